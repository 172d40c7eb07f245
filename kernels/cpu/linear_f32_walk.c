/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of the vector float linear layers (see linear_f32_tile.h): panels of
 * activation rows, sets of groups, pieces of K, tiles. Plain C, no instruction
 * set of its own. Any thread, disjoint groups or rows.
 */
#include "kernels/cpu/linear_f32_tile.h"

enum {
	/* Rows that one expansion serves. */
	PANEL_ROWS = 48,
};

struct f32_walk {
	const struct linear_f32_args *args;
	const struct f32_linear *linear;
	struct pack_offsets offsets;
	uint32_t group, nr_groups; /* the set: one group or F32_SET_GROUPS */
	uint32_t first_row, nr_rows; /* the panel */
	_Alignas(64) float w[F32_SET_GROUPS * F32_PIECE_INPUTS * PACK_ROWS];
	_Alignas(64) float acc[PANEL_ROWS * F32_SET_GROUPS * PACK_ROWS];
};

static void run_piece(struct f32_walk *walk, uint32_t k)
{
	const struct packed_matrix *m = walk->args->w;
	bool is_set = walk->nr_groups == F32_SET_GROUPS;
	const f32_tile_fn *fns = is_set ? walk->linear->four : walk->linear->one;
	uint32_t left = m->nr_cols - k;
	uint32_t nr = left < F32_PIECE_INPUTS ? left : F32_PIECE_INPUTS;
	uint32_t nr_tiles = (walk->nr_rows + F32_TILE_COLS - 1) / F32_TILE_COLS;
	struct f32_run run = {
		.w = walk->w,
		.w_stride = F32_PIECE_INPUTS * PACK_ROWS,
		.x_stride = walk->args->x_stride,
		.nr_inputs = nr,
	};

	if (m->type == PACK_F32) {
		run.w = (const float *)(m->data + walk->group * m->group_bytes) +
			(size_t)k * PACK_ROWS;
		run.w_stride = m->group_bytes / sizeof(float);
	} else {
		for (uint32_t g = 0; g < walk->nr_groups; g++) {
			struct pack_planes planes =
				pack_planes_at(m, &walk->offsets, walk->group + g);

			walk->linear->expand(m->type, &planes, k, nr, walk->w + g * run.w_stride);
		}
	}
	for (uint32_t t = 0; t < nr_tiles; t++) {
		uint32_t from = walk->nr_rows * t / nr_tiles;
		uint32_t to = walk->nr_rows * (t + 1) / nr_tiles;

		run.x = walk->args->x + (size_t)(walk->first_row + from) * run.x_stride + k;
		run.acc = walk->acc + (size_t)from * F32_SET_GROUPS * PACK_ROWS;
		fns[to - from - 1](&run);
	}
}

static void store_set(const struct f32_walk *walk)
{
	const struct linear_f32_args *args = walk->args;

	for (uint32_t i = 0; i < walk->nr_rows; i++) {
		for (uint32_t g = 0; g < walk->nr_groups; g++) {
			uint32_t n = (walk->group + g) * PACK_ROWS;
			uint32_t left = args->w->nr_rows - n;
			uint32_t nr_lanes = left < PACK_ROWS ? left : PACK_ROWS;
			float *y = args->y + (size_t)(walk->first_row + i) * args->y_stride + n;
			const float *acc = walk->acc + (i * F32_SET_GROUPS + g) * PACK_ROWS;

			for (uint32_t r = 0; r < nr_lanes; r++)
				y[r] = args->accumulate ? y[r] + acc[r] : acc[r];
		}
	}
}

void linear_f32_walk(const struct linear_f32_args *args, const struct f32_linear *linear)
{
	struct f32_walk walk; /* large: only what is used is set */

	walk.args = args;
	walk.linear = linear;
	pack_offsets_get(pack_format_get(args->w->type), args->w->nr_cols, &walk.offsets);
	for (uint32_t row = 0; row < args->nr_rows; row += PANEL_ROWS) {
		uint32_t left = args->nr_rows - row;

		walk.first_row = row;
		walk.nr_rows = left < PANEL_ROWS ? left : PANEL_ROWS;
		for (uint32_t g = args->first_group; g < args->end_group; g += walk.nr_groups) {
			walk.group = g;
			walk.nr_groups = args->end_group - g < F32_SET_GROUPS ? 1 : F32_SET_GROUPS;
			memset(walk.acc, 0,
			       walk.nr_rows * F32_SET_GROUPS * PACK_ROWS * sizeof(float));
			for (uint32_t k = 0; k < args->w->nr_cols; k += F32_PIECE_INPUTS)
				run_piece(&walk, k);
			store_set(&walk);
		}
	}
}
