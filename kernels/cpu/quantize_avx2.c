/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations to int8 per 32 values, AVX2. Same bits as quantize_ref(), its two
 * corners included. Any thread, disjoint rows.
 */
#include <immintrin.h>

#include "kernels/cpu/kernels_private.h"

static inline uint32_t largest(__m256i v)
{
	__m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(m);
}

static inline int16_t sum_of(__m256i v)
{
	__m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
	return (int16_t)_mm_cvtsi128_si32(m);
}

static inline void quantize_block(const float *x, int8_t *q, float *out_d, int16_t *sum16)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
	/* Packing works inside halves of 128 bits: this puts the words in order. */
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	__m256i amax4 = _mm256_setzero_si256(), v[4];
	uint32_t amax_bits;
	float amax, inv;

	for (int i = 0; i < 4; i++) {
		__m256i bits = _mm256_loadu_si256((const __m256i *)(x + 8 * i));

		amax4 = _mm256_max_epu32(amax4, _mm256_and_si256(bits, magnitude));
	}
	amax_bits = largest(amax4);
	amax = f32_from_bits(amax_bits);
	inv = 127.0f / amax;
	if (amax_bits >= 0x7f800000 || f32_to_bits(inv) == 0x7f800000) {
		*out_d = amax_bits >= 0x7f800000 ? f32_from_bits(0x7fc00000) : 0;
		memset(q, 0, ACT_BLOCK);
		sum16[0] = 0;
		sum16[1] = 0;
		return;
	}
	/* To nearest even: the rounding mode no one changes. */
	for (int i = 0; i < 4; i++)
		v[i] = _mm256_cvtps_epi32(
			_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inv)));
	sum16[0] = sum_of(_mm256_add_epi32(v[0], v[1]));
	sum16[1] = sum_of(_mm256_add_epi32(v[2], v[3]));
	*out_d = amax / 127.0f;
	v[0] = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
	_mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(v[0], order));
}

void quantize_avx2(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
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
