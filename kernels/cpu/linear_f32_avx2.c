/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over float activations, AVX2: tiles and expansion of weights
 * for linear_f32_walk.c. Same bits as linear_f32_ref(). Any thread, disjoint
 * groups or rows.
 */
#include <immintrin.h>

#include "kernels/cpu/linear_f32_tile.h"
#include "kernels/cpu/linear_q8_avx2.h"

/* One group: two halves of 8 lanes, 12 chains at six rows. */
Q8_INLINE void f32_one(const int nr_cols, const struct f32_run *run, int g)
{
	const float *w = run->w + g * run->w_stride;
	__m256 acc[F32_TILE_COLS][2];

#pragma GCC unroll 6
	for (int c = 0; c < nr_cols; c++) {
		acc[c][0] = _mm256_load_ps(run->acc + (c * F32_SET_GROUPS + g) * 16);
		acc[c][1] = _mm256_load_ps(run->acc + (c * F32_SET_GROUPS + g) * 16 + 8);
	}
	for (uint32_t k = 0; k < run->nr_inputs; k++, w += 16) {
		__m256 w0 = _mm256_load_ps(w), w1 = _mm256_load_ps(w + 8);

#pragma GCC unroll 6
		for (int c = 0; c < nr_cols; c++) {
			__m256 x = _mm256_set1_ps(run->x[c * run->x_stride + k]);

			acc[c][0] = _mm256_fmadd_ps(x, w0, acc[c][0]);
			acc[c][1] = _mm256_fmadd_ps(x, w1, acc[c][1]);
		}
	}
#pragma GCC unroll 6
	for (int c = 0; c < nr_cols; c++) {
		_mm256_store_ps(run->acc + (c * F32_SET_GROUPS + g) * 16, acc[c][0]);
		_mm256_store_ps(run->acc + (c * F32_SET_GROUPS + g) * 16 + 8, acc[c][1]);
	}
}

/* One row and four groups abreast: eight chains hide the latency two would show. */
Q8_INLINE void f32_row(const struct f32_run *run)
{
	__m256 acc[2 * F32_SET_GROUPS];

#pragma GCC unroll 8
	for (int i = 0; i < 2 * F32_SET_GROUPS; i++)
		acc[i] = _mm256_load_ps(run->acc + 8 * i);
	for (uint32_t k = 0; k < run->nr_inputs; k++) {
		__m256 x = _mm256_set1_ps(run->x[k]);

#pragma GCC unroll 8
		for (int i = 0; i < 2 * F32_SET_GROUPS; i++) {
			const float *w = run->w + i / 2 * run->w_stride + k * 16 + i % 2 * 8;

			acc[i] = _mm256_fmadd_ps(x, _mm256_load_ps(w), acc[i]);
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < 2 * F32_SET_GROUPS; i++)
		_mm256_store_ps(run->acc + 8 * i, acc[i]);
}

Q8_INLINE void f32_tile(const int nr_cols, const int nr_groups, const struct f32_run *run)
{
	if (nr_cols == 1 && nr_groups == F32_SET_GROUPS) {
		f32_row(run);
		return;
	}
	for (int g = 0; g < nr_groups; g++)
		f32_one(nr_cols, run, g);
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

/* Eight rows of block @block of a group as float, in lanes of [32][16]. */
Q8_INLINE void expand_half(struct q8_kind kind, const struct pack_planes *planes, uint32_t block,
			   int h, float *out)
{
	uint32_t entry = kind.super ? block / 8 : block;
	const __m256i byte = _mm256_set1_epi32(255);
	const __m256i offset = _mm256_set1_epi32(q8_is_signed(kind) ? 0 : q8_offset(kind));
	struct q8_scales s;
	__m256i w[8];

	q8_load_codes(kind, planes->codes + block * q8_code_bytes(kind),
		      planes->high + block * q8_high_bytes(kind), h, w);
	s = q8_load_scales(kind, planes->scales + entry * q8_scale_bytes(kind),
			   kind.super ? block % 8 : 0, h);
	for (int i = 0; i < 8; i++) {
		__m256 d = s.d, m = s.m;

		if (kind.super)
			d = _mm256_mul_ps(d, s.sc[kind.has_halves ? i / 4 : 0]);
		if (kind.has_min && kind.has_halves)
			m = _mm256_mul_ps(m, s.mn[i / 4]);
		for (int c = 0; c < 4; c++) {
			__m256i code = _mm256_srl_epi32(w[i], _mm_cvtsi32_si128(8 * c));
			__m256 q;

			if (q8_is_signed(kind)) /* sign of the byte */
				code = _mm256_srai_epi32(_mm256_slli_epi32(code, 24), 24);
			else
				code = _mm256_and_si256(code, byte);
			q = _mm256_cvtepi32_ps(_mm256_sub_epi32(code, offset));
			_mm256_store_ps(out + (4 * i + c) * 16 + 8 * h,
					kind.has_min ? _mm256_fmadd_ps(d, q, m) :
						       _mm256_mul_ps(d, q));
		}
	}
}

Q8_INLINE void expand_block(struct q8_kind kind, const struct pack_planes *planes, uint32_t block,
			    float *out)
{
	expand_half(kind, planes, block, 0, out);
	expand_half(kind, planes, block, 1, out);
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
	for (uint32_t i = 0; i < 2 * nr; i++, p += 16, out += 8) {
		__m128i half = _mm_load_si128((const __m128i *)p);

		_mm_prefetch((const char *)p + 1024, _MM_HINT_T0);
		if (type == PACK_F16)
			_mm256_store_ps(out, _mm256_cvtph_ps(half));
		else
			_mm256_store_si256((__m256i *)out,
					   _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
	}
}

void linear_f32_avx2(const struct linear_f32_args *args)
{
	static const struct f32_linear linear = { tiles_of_one, tiles_of_four, expand };

	linear_f32_walk(args, &linear);
}
