/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen floats as two AVX2 registers: the vector type the shared kernel
 * bodies (*_simd.h) are written in. Same names as v16_avx512.h.
 */
#ifndef TARN_KERNELS_CPU_V16_AVX2_H
#define TARN_KERNELS_CPU_V16_AVX2_H

#include <immintrin.h>

#include "kernels/cpu/fmath.h"

typedef struct {
	__m256 lo, hi;
} v16;
typedef v16 v16_mask;

enum {
	V16_BLOCK = 6,
	V16_NARROW = 3,
	V16_NARROW_CHUNKS = 2,
	V16_NARROW_GROUPS = 2,
};

static inline v16 v16_set1(float x)
{
	return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

static inline v16 v16_load(const float *p)
{
	return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

static inline v16 v16_load_f16(const uint16_t *p)
{
	return (v16){ _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
		      _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))) };
}

static inline void v16_store(float *p, v16 a)
{
	_mm256_storeu_ps(p, a.lo);
	_mm256_storeu_ps(p + 8, a.hi);
}

static inline void v16_store_f16(uint16_t *p, v16 a)
{
	_mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
	_mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

static inline v16 v16_add(v16 a, v16 b)
{
	return (v16){ _mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi) };
}

static inline v16 v16_sub(v16 a, v16 b)
{
	return (v16){ _mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi) };
}

static inline v16 v16_mul(v16 a, v16 b)
{
	return (v16){ _mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi) };
}

static inline v16 v16_div(v16 a, v16 b)
{
	return (v16){ _mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi) };
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
	return (v16){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}

static inline v16_mask v16_mask_range(uint32_t lo, uint32_t hi)
{
	__m256i below = _mm256_set1_epi32((int)lo - 1), end = _mm256_set1_epi32((int)hi);
	__m256i a = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	__m256i b = _mm256_add_epi32(a, _mm256_set1_epi32(8));

	return (v16_mask){
		_mm256_castsi256_ps(
			_mm256_and_si256(_mm256_cmpgt_epi32(a, below), _mm256_cmpgt_epi32(end, a))),
		_mm256_castsi256_ps(
			_mm256_and_si256(_mm256_cmpgt_epi32(b, below), _mm256_cmpgt_epi32(end, b))),
	};
}

static inline v16 v16_select(v16_mask m, v16 a, v16 b)
{
	return (v16){ _mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi) };
}

static inline float v16_max_lane(v16 a)
{
	__m256 b = _mm256_max_ps(a.lo, a.hi);
	__m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_max_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static inline float v16_fold(v16 a)
{
	__m256 b = _mm256_add_ps(a.lo, a.hi);
	__m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_add_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

static inline __m256 v8_exp(__m256 x)
{
	__m256 c = _mm256_min_ps(_mm256_set1_ps(EXP_HI), x);
	__m256 t = _mm256_fmadd_ps(c, _mm256_set1_ps(EXP_LOG2E), _mm256_set1_ps(EXP_MAGIC));
	__m256 n = _mm256_sub_ps(t, _mm256_set1_ps(EXP_MAGIC));
	__m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LO),
				   _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HI), c));
	__m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_P5), r, _mm256_set1_ps(EXP_P4));
	__m256i e;

	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P3));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P2));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P1));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P0));
	p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
	e = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
			     _mm256_set1_epi32(0x3f800000));
	p = _mm256_mul_ps(p, _mm256_castsi256_ps(e));
	return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(EXP_LO), _CMP_LT_OQ), p);
}

/* fmath_exp(), operation by operation. */
static inline v16 v16_exp(v16 x)
{
	return (v16){ v8_exp(x.lo), v8_exp(x.hi) };
}

#endif /* TARN_KERNELS_CPU_V16_AVX2_H */
