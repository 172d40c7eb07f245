/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen floats as one AVX-512 register: the vector type the shared kernel
 * bodies (*_simd.h) are written in. Same names as v16_avx2.h.
 */
#ifndef TARN_KERNELS_CPU_V16_AVX512_H
#define TARN_KERNELS_CPU_V16_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/fmath.h"

typedef __m512 v16;
typedef __mmask16 v16_mask;

enum {
	/* Accumulators that fit the register file: queries of a block, chunks of head_dim. */
	V16_BLOCK = 12,
	V16_NARROW = 4, /* queries of a narrow block */
	V16_NARROW_CHUNKS = 4, /* 4 x 4 accumulators */
	V16_NARROW_GROUPS = 4,
};

static inline v16 v16_set1(float x)
{
	return _mm512_set1_ps(x);
}

static inline v16 v16_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

static inline v16 v16_load_f16(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline void v16_store(float *p, v16 a)
{
	_mm512_storeu_ps(p, a);
}

static inline void v16_store_f16(uint16_t *p, v16 a)
{
	_mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline v16 v16_add(v16 a, v16 b)
{
	return _mm512_add_ps(a, b);
}

static inline v16 v16_sub(v16 a, v16 b)
{
	return _mm512_sub_ps(a, b);
}

static inline v16 v16_mul(v16 a, v16 b)
{
	return _mm512_mul_ps(a, b);
}

static inline v16 v16_div(v16 a, v16 b)
{
	return _mm512_div_ps(a, b);
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
	return _mm512_fmadd_ps(a, b, c);
}

/* Lanes [lo, hi). */
static inline v16_mask v16_mask_range(uint32_t lo, uint32_t hi)
{
	return (v16_mask)((0xffffu >> (16 - hi)) & (0xffffu << lo));
}

/* a where the mask is set, else b. */
static inline v16 v16_select(v16_mask m, v16 a, v16 b)
{
	return _mm512_mask_blend_ps(m, b, a);
}

static inline float v16_max_lane(v16 a)
{
	return _mm512_reduce_max_ps(a);
}

/* The fixed tree: lanes + 8, + 4, + 2, + 1. */
static inline float v16_fold(v16 a)
{
	__m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_add_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* fmath_exp(), operation by operation. */
static inline v16 v16_exp(v16 x)
{
	v16 c = _mm512_min_ps(v16_set1(EXP_HI), x);
	v16 t = v16_fma(c, v16_set1(EXP_LOG2E), v16_set1(EXP_MAGIC));
	v16 n = v16_sub(t, v16_set1(EXP_MAGIC));
	v16 r = v16_fma(n, v16_set1(-EXP_LN2_LO), v16_fma(n, v16_set1(-EXP_LN2_HI), c));
	v16 p = v16_fma(v16_set1(EXP_P5), r, v16_set1(EXP_P4));
	__m512i e;

	p = v16_fma(p, r, v16_set1(EXP_P3));
	p = v16_fma(p, r, v16_set1(EXP_P2));
	p = v16_fma(p, r, v16_set1(EXP_P1));
	p = v16_fma(p, r, v16_set1(EXP_P0));
	p = v16_add(v16_fma(p, v16_mul(r, r), r), v16_set1(1.0f));
	e = _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
			     _mm512_set1_epi32(0x3f800000));
	p = v16_mul(p, _mm512_castsi512_ps(e));
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, v16_set1(EXP_LO), _CMP_LT_OQ), p,
				    _mm512_setzero_ps());
}

#endif /* TARN_KERNELS_CPU_V16_AVX512_H */
