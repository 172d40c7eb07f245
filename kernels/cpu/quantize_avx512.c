/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations to int8 per 32 values, AVX-512. Same bits as quantize_ref(), its
 * two corners included. Any thread, disjoint rows.
 */
#include <immintrin.h>

#include "kernels/cpu/kernels_private.h"

static inline void quantize_block(const float *x, int8_t *q, float *out_d, int16_t *sum16)
{
	__m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
	const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
	__m512i a0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
	__m512i a1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
	uint32_t amax_bits = _mm512_reduce_max_epu32(_mm512_max_epu32(a0, a1));
	float amax = f32_from_bits(amax_bits);
	float inv = 127.0f / amax;
	float d = amax / 127.0f;
	__m512i q0, q1;

	if (amax_bits >= 0x7f800000 || f32_to_bits(inv) == 0x7f800000) {
		*out_d = amax_bits >= 0x7f800000 ? f32_from_bits(0x7fc00000) : 0;
		memset(q, 0, ACT_BLOCK);
		sum16[0] = 0;
		sum16[1] = 0;
		return;
	}
	/* To nearest even: the rounding mode no one changes. */
	q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, _mm512_set1_ps(inv)));
	q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, _mm512_set1_ps(inv)));
	_mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(q0));
	_mm_storeu_si128((__m128i *)(q + 16), _mm512_cvtepi32_epi8(q1));
	sum16[0] = (int16_t)_mm512_reduce_add_epi32(q0);
	sum16[1] = (int16_t)_mm512_reduce_add_epi32(q1);
	*out_d = d;
}

void quantize_avx512(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
		     const struct act_q8 *out)
{
	size_t nr_blocks = out->nr_cols / ACT_BLOCK;

	for (size_t row = first_row; row < (size_t)first_row + nr_rows; row++) {
		for (size_t b = 0; b < nr_blocks; b++) {
			size_t at = row * nr_blocks + b;

			quantize_block(x + row * x_stride + b * ACT_BLOCK, out->q + at * ACT_BLOCK,
				       out->d + at, out->sum16 + 2 * at);
		}
	}
}
