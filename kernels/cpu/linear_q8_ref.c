/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over int8 activations, the plain C form that defines the bits:
 * exact integer sums per block, one ascending chain of fused multiply-adds per
 * output. Any thread, disjoint groups or rows.
 */
#include "kernels/cpu/kernels_private.h"

#include <math.h>

enum {
	/* Rows that share one unpacked block. Changes no bit. */
	TILE_ROWS = 8,
};

/* acc += the link of one block for one activation row. */
static void link_block(const struct unpacked_block *w, const struct pack_format *format,
		       const int8_t *q, float dx, const int16_t *sum16, float *acc)
{
	int32_t half[2][PACK_ROWS] = { 0 };
	float scaled_sum = dx * (float)(sum16[0] + sum16[1]);

	for (unsigned int k = 0; k < ACT_BLOCK; k++) {
		for (unsigned int r = 0; r < PACK_ROWS; r++)
			half[k / 16][r] += w->q[k][r] * q[k];
	}
	for (unsigned int r = 0; r < PACK_ROWS; r++) {
		int32_t isum = w->sc[0][r] * half[0][r] + w->sc[1][r] * half[1][r];

		acc[r] = fmaf(w->d[r] * dx, (float)isum, acc[r]);
		if (format->has_min && format->has_halves) {
			int32_t imin = w->mn[0][r] * sum16[0] + w->mn[1][r] * sum16[1];

			acc[r] = fmaf(w->m[r] * dx, (float)imin, acc[r]);
		} else if (format->has_min) {
			acc[r] = fmaf(w->m[r], scaled_sum, acc[r]);
		}
	}
}

/* Rows [first, first + nr) of one group. */
static void linear_tile(const struct linear_q8_args *args, const struct pack_planes *planes,
			uint32_t group, uint32_t first, uint32_t nr)
{
	const struct packed_matrix *w = args->w;
	const struct act_q8 *x = args->x;
	const struct pack_format *format = pack_format_get(w->type);
	size_t nr_blocks = w->nr_cols / ACT_BLOCK;
	uint32_t left = w->nr_rows - group * PACK_ROWS;
	uint32_t nr_lanes = left < PACK_ROWS ? left : PACK_ROWS;
	float acc[TILE_ROWS][PACK_ROWS] = { 0 };
	struct unpacked_block block;

	for (size_t b = 0; b < nr_blocks; b++) {
		unpack_block_ref(w->type, planes, (uint32_t)b, &block);
		for (uint32_t i = 0; i < nr; i++) {
			size_t at = (first + i) * nr_blocks + b;

			link_block(&block, format, x->q + at * ACT_BLOCK, x->d[at],
				   x->sum16 + 2 * at, acc[i]);
		}
	}
	for (uint32_t i = 0; i < nr; i++) {
		float *y = args->y + (first + i) * args->y_stride + group * PACK_ROWS;

		for (uint32_t r = 0; r < nr_lanes; r++)
			y[r] = args->accumulate ? y[r] + acc[i][r] : acc[i][r];
	}
}

void linear_q8_ref(const struct linear_q8_args *args)
{
	struct pack_offsets offsets;

	pack_offsets_get(pack_format_get(args->w->type), args->w->nr_cols, &offsets);
	for (uint32_t g = args->first_group; g < args->end_group; g++) {
		struct pack_planes planes = pack_planes_at(args->w, &offsets, g);

		for (uint32_t m = 0; m < args->nr_rows; m += TILE_ROWS) {
			uint32_t left = args->nr_rows - m;

			linear_tile(args, &planes, g, m, left < TILE_ROWS ? left : TILE_ROWS);
		}
	}
}
