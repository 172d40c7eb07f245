/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations to int8 per 32 values (struct act_q8), the plain C form that
 * defines the bits. Any thread, disjoint rows.
 *
 * Two corners the formula leaves open: a block whose largest magnitude is so
 * small that 127 / amax overflows is stored as zeros; a block that holds a NaN
 * or an infinity gets d = NaN and zero codes, so that the damage shows in every
 * output instead of turning into some number.
 */
#include "kernels/cpu/kernels_private.h"

#include <math.h>

static void quantize_block(const float *x, int8_t *q, float *out_d, int16_t *sum16)
{
	uint32_t amax_bits = 0;
	float amax, d, inv;

	/* As integers, magnitudes order like floats and a NaN is above them all. */
	for (unsigned int k = 0; k < ACT_BLOCK; k++) {
		uint32_t bits = f32_to_bits(x[k]) & 0x7fffffff;

		amax_bits = bits > amax_bits ? bits : amax_bits;
	}
	amax = f32_from_bits(amax_bits);
	inv = 127.0f / amax;
	d = amax / 127.0f;
	if (amax_bits >= 0x7f800000) {
		d = f32_from_bits(0x7fc00000);
		inv = 0;
	} else if (isinf(inv)) {
		d = 0;
		inv = 0;
	}
	sum16[0] = 0;
	sum16[1] = 0;
	for (unsigned int k = 0; k < ACT_BLOCK; k++) {
		/* rintf: to nearest even, the mode no one changes; |x * inv| < 127.5. */
		q[k] = inv == 0 ? 0 : (int8_t)rintf(x[k] * inv);
		sum16[k / 16] = (int16_t)(sum16[k / 16] + q[k]);
	}
	*out_d = d;
}

void quantize_ref(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
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
