/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over float activations, AVX-512: tiles and expansion of weights
 * for linear_f32_walk.c. Same bits as linear_f32_ref(). Any thread, disjoint
 * groups or rows.
 */
#include <immintrin.h>

#include "kernels/cpu/linear_f32_tile.h"
#include "kernels/cpu/linear_q8_avx512.h"

Q8_INLINE void f32_tile(const int nr_cols, const int nr_groups, const struct f32_run *run)
{
	__m512 acc[F32_TILE_COLS][F32_SET_GROUPS];

#pragma GCC unroll 6
	for (int c = 0; c < nr_cols; c++) {
#pragma GCC unroll 4
		for (int g = 0; g < nr_groups; g++)
			acc[c][g] = _mm512_load_ps(run->acc + (c * F32_SET_GROUPS + g) * 16);
	}
	for (uint32_t k = 0; k < run->nr_inputs; k++) {
		__m512 w[F32_SET_GROUPS];

#pragma GCC unroll 4
		for (int g = 0; g < nr_groups; g++)
			w[g] = _mm512_load_ps(run->w + g * run->w_stride + k * 16);
#pragma GCC unroll 6
		for (int c = 0; c < nr_cols; c++) {
			__m512 x = _mm512_set1_ps(run->x[c * run->x_stride + k]);

#pragma GCC unroll 4
			for (int g = 0; g < nr_groups; g++)
				acc[c][g] = _mm512_fmadd_ps(x, w[g], acc[c][g]);
		}
	}
#pragma GCC unroll 6
	for (int c = 0; c < nr_cols; c++) {
#pragma GCC unroll 4
		for (int g = 0; g < nr_groups; g++)
			_mm512_store_ps(run->acc + (c * F32_SET_GROUPS + g) * 16, acc[c][g]);
	}
}

#define F32_INSTANCE(cols, groups)                                        \
	static void f32_tile_##cols##_##groups(const struct f32_run *run) \
	{                                                                 \
		f32_tile(cols, groups, run);                              \
	}

F32_INSTANCE(1, 1)
F32_INSTANCE(2, 1)
F32_INSTANCE(3, 1)
F32_INSTANCE(4, 1)
F32_INSTANCE(5, 1)
F32_INSTANCE(6, 1)
F32_INSTANCE(1, 4)
F32_INSTANCE(2, 4)
F32_INSTANCE(3, 4)
F32_INSTANCE(4, 4)
F32_INSTANCE(5, 4)
F32_INSTANCE(6, 4)

static const f32_tile_fn tiles_of_one[F32_TILE_COLS] = {
	f32_tile_1_1, f32_tile_2_1, f32_tile_3_1, f32_tile_4_1, f32_tile_5_1, f32_tile_6_1,
};
static const f32_tile_fn tiles_of_four[F32_TILE_COLS] = {
	f32_tile_1_4, f32_tile_2_4, f32_tile_3_4, f32_tile_4_4, f32_tile_5_4, f32_tile_6_4,
};

/* ---- weights to float ------------------------------------------------------- */

/* Block @block of a group as float [32][16]. */
Q8_INLINE void expand_block(struct q8_kind kind, const struct pack_planes *planes, uint32_t block,
			    float *out)
{
	uint32_t entry = kind.super ? block / 8 : block;
	const __m512i byte = _mm512_set1_epi32(255);
	const __m512i offset = _mm512_set1_epi32(q8_offset(kind));
	struct q8_scales s;
	__m512i w[8];

	q8_load_codes(kind, planes->codes + block * q8_code_bytes(kind),
		      planes->high + block * q8_high_bytes(kind), w);
	s = q8_load_scales(kind, planes->scales + entry * q8_scale_bytes(kind),
			   kind.super ? block % 8 : 0);
	for (int i = 0; i < 8; i++) {
		__m512 d = s.d, m = s.m;

		if (kind.super)
			d = _mm512_mul_ps(d, s.sc[kind.has_halves ? i / 4 : 0]);
		if (kind.has_min && kind.has_halves)
			m = _mm512_mul_ps(m, s.mn[i / 4]);
		for (int c = 0; c < 4; c++) {
			__m512i code = _mm512_and_si512(
				_mm512_srl_epi32(w[i], _mm_cvtsi32_si128(8 * c)), byte);
			__m512 q = _mm512_cvtepi32_ps(_mm512_sub_epi32(code, offset));

			_mm512_store_ps(out + (4 * i + c) * 16, kind.has_min ?
									_mm512_fmadd_ps(d, q, m) :
									_mm512_mul_ps(d, q));
		}
	}
}

static void expand_quantised(enum pack_type type, const struct pack_planes *planes, uint32_t block,
			     float *out)
{
	switch (type) {
	case PACK_Q4_0:
		expand_block(q8_kind_q4_0, planes, block, out);
		break;
	case PACK_Q4_1:
		expand_block(q8_kind_q4_1, planes, block, out);
		break;
	case PACK_Q5_0:
		expand_block(q8_kind_q5_0, planes, block, out);
		break;
	case PACK_Q5_1:
		expand_block(q8_kind_q5_1, planes, block, out);
		break;
	case PACK_Q8_0:
		expand_block(q8_kind_q8_0, planes, block, out);
		break;
	case PACK_Q2_K:
		expand_block(q8_kind_q2_k, planes, block, out);
		break;
	case PACK_Q3_K:
		expand_block(q8_kind_q3_k, planes, block, out);
		break;
	case PACK_Q4_K:
		expand_block(q8_kind_q4_k, planes, block, out);
		break;
	case PACK_Q5_K:
		expand_block(q8_kind_q5_k, planes, block, out);
		break;
	case PACK_Q6_K:
		expand_block(q8_kind_q6_k, planes, block, out);
		break;
	case PACK_IQ4_NL:
		expand_block(q8_kind_iq4_nl, planes, block, out);
		break;
	case PACK_IQ4_XS:
		expand_block(q8_kind_iq4_xs, planes, block, out);
		break;
	case PACK_MXFP4:
		expand_block(q8_kind_mxfp4, planes, block, out);
		break;
	case PACK_F32:
	case PACK_F16:
	case PACK_BF16:
		break; /* see expand() */
	}
}

/* Inputs [k, k + nr) of one group as float [nr][16]. */
static void expand(enum pack_type type, const struct pack_planes *planes, uint32_t k, uint32_t nr,
		   float *out)
{
	const uint8_t *p = planes->codes + (size_t)k * 32;

	if (!pack_is_float(type)) {
		for (uint32_t i = 0; i < nr; i += ACT_BLOCK)
			expand_quantised(type, planes, (k + i) / ACT_BLOCK, out + i * 16);
		return;
	}
	for (uint32_t i = 0; i < nr; i++, p += 32, out += 16) {
		__m256i half = _mm256_load_si256((const __m256i *)p);

		_mm_prefetch((const char *)p + 1024, _MM_HINT_T0);
		if (type == PACK_F16)
			_mm512_store_ps(out, _mm512_cvtph_ps(half));
		else
			_mm512_store_si512(out, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
	}
}

void linear_f32_avx512(const struct linear_f32_args *args)
{
	static const struct f32_linear linear = { tiles_of_one, tiles_of_four, expand };

	linear_f32_walk(args, &linear);
}
