/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over float activations, weights of any type, the plain C form
 * that defines the bits: one fused multiply-add per input, ascending. Any
 * thread, disjoint groups or rows.
 */
#include "kernels/cpu/kernels_private.h"

#include <math.h>

enum {
	/* Inputs expanded at a time, and rows that share them. Change no bit. */
	TILE_INPUTS = ACT_BLOCK,
	TILE_ROWS = 8,
};

/* Inputs [k, k + nr) of one group as float, [nr][16]. */
static void expand(const struct packed_matrix *w, const struct pack_planes *planes, uint32_t k,
		   uint32_t nr, float (*out)[PACK_ROWS])
{
	struct unpacked_block block;
	bool has_min;

	if (pack_is_float(w->type)) {
		for (size_t i = 0; i < (size_t)nr * PACK_ROWS; i++) {
			size_t at = (size_t)k * PACK_ROWS + i;
			float *to = &out[i / PACK_ROWS][i % PACK_ROWS];

			if (w->type == PACK_F32)
				*to = f32_from_bits(load_u32(planes->codes + 4 * at));
			else if (w->type == PACK_F16)
				*to = f16_to_f32(load_u16(planes->codes + 2 * at));
			else
				*to = bf16_to_f32(load_u16(planes->codes + 2 * at));
		}
		return;
	}
	has_min = pack_format_get(w->type)->has_min;
	unpack_block_ref(w->type, planes, k / ACT_BLOCK, &block);
	for (uint32_t i = 0; i < nr; i++) {
		for (unsigned int r = 0; r < PACK_ROWS; r++) {
			float d = block.d[r] * (float)block.sc[i / 16][r];
			float q = (float)block.q[i][r];

			float m = block.m[r] * (float)block.mn[i / 16][r];

			out[i][r] = has_min ? fmaf(d, q, m) : d * q;
		}
	}
}

/* Rows [first, first + nr) of one group. */
static void linear_tile(const struct linear_f32_args *args, const struct pack_planes *planes,
			uint32_t group, uint32_t first, uint32_t nr)
{
	const struct packed_matrix *w = args->w;
	uint32_t rows_left = w->nr_rows - group * PACK_ROWS;
	uint32_t nr_lanes = rows_left < PACK_ROWS ? rows_left : PACK_ROWS;
	float weights[TILE_INPUTS][PACK_ROWS];
	float acc[TILE_ROWS][PACK_ROWS] = { 0 };

	for (uint32_t k = 0; k < w->nr_cols; k += TILE_INPUTS) {
		uint32_t left = w->nr_cols - k;
		uint32_t nr_inputs = left < TILE_INPUTS ? left : TILE_INPUTS;

		expand(w, planes, k, nr_inputs, weights);
		for (uint32_t i = 0; i < nr; i++) {
			const float *x = args->x + (first + i) * args->x_stride + k;

			for (uint32_t j = 0; j < nr_inputs; j++) {
				for (unsigned int r = 0; r < PACK_ROWS; r++)
					acc[i][r] = fmaf(x[j], weights[j][r], acc[i][r]);
			}
		}
	}
	for (uint32_t i = 0; i < nr; i++) {
		float *y = args->y + (first + i) * args->y_stride + group * PACK_ROWS;

		for (uint32_t r = 0; r < nr_lanes; r++)
			y[r] = args->accumulate ? y[r] + acc[i][r] : acc[i][r];
	}
}

void linear_f32_ref(const struct linear_f32_args *args)
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
