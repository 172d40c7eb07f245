/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of the vector int8 linear layers (see linear_q8_tile.h): panels of
 * activation rows, pieces of K, groups of weights, tiles. Plain C, no
 * instruction set of its own. Any thread, disjoint groups or rows.
 */
#include "kernels/cpu/linear_q8_tile.h"

enum {
	/* Rows gathered at once: a widened group serves this many. */
	PANEL_ROWS = 64,
	PANEL_BYTES = PANEL_ROWS * Q8_PIECE_BLOCKS * (ACT_BLOCK + 12),
	/* Accumulators that wait between pieces of K: groups * rows. */
	ACC_SLOTS = 1024,
	MAX_TILES = PANEL_ROWS,
};

struct q8_tile {
	uint32_t first_row; /* in the batch */
	uint32_t nr_cols;
	uint32_t first_col; /* in the panel */
};

struct q8_walk {
	const struct linear_q8_args *args;
	const struct q8_linear *linear;
	const struct pack_format *format;
	struct pack_offsets offsets;
	uint32_t nr_blocks; /* of K */
	uint32_t first_block, piece_blocks; /* the piece at hand */
	uint32_t nr_tiles, panel_rows; /* the panel at hand */
	struct q8_tile tiles[MAX_TILES];
	_Alignas(64) uint8_t panel[PANEL_BYTES];
	_Alignas(64) uint8_t wide[Q8_PIECE_BLOCKS * Q8_WIDE_MAX_BYTES];
	_Alignas(64) float acc[ACC_SLOTS * PACK_ROWS];
};

/* Where a tile of the panel starts: each is as large as its columns' piece of K. */
static uint8_t *tile_at(struct q8_walk *walk, const struct q8_tile *tile)
{
	return walk->panel +
	       (size_t)tile->first_col * walk->piece_blocks * q8_column_bytes(walk->linear->kind);
}

/* The sums a kernel needs of one block, at @aux and, where halves count, @aux + nr_cols. */
static inline void gather_sums(struct q8_kind kind, const int16_t *sum16, float d, uint32_t nr_cols,
			       uint8_t *aux)
{
	int32_t sum = sum16[0] + sum16[1];
	int32_t offset = q8_offset(kind);

	if (kind.has_min && kind.has_halves) {
		store_u32(aux, f32_to_bits((float)sum16[0]));
		store_u32(aux + 4 * (size_t)nr_cols, f32_to_bits((float)sum16[1]));
	} else if (kind.has_min) {
		store_u32(aux, f32_to_bits(d * (float)sum));
	} else if (kind.has_halves) {
		store_u32(aux, (uint32_t)(-offset * sum16[0]));
		store_u32(aux + 4 * (size_t)nr_cols, (uint32_t)(-offset * sum16[1]));
	} else {
		store_u32(aux, (uint32_t)(-offset * sum));
	}
}

/* The piece of K at hand of one tile's rows. */
static void gather_tile(struct q8_walk *walk, const struct q8_tile *tile)
{
	const struct act_q8 *x = walk->args->x;
	struct q8_kind kind = walk->linear->kind;
	uint32_t nr_cols = tile->nr_cols;
	size_t stride = (size_t)nr_cols * q8_column_bytes(kind);

	for (uint32_t c = 0; c < nr_cols; c++) {
		size_t at = (size_t)(tile->first_row + c) * walk->nr_blocks + walk->first_block;
		const int8_t *q = x->q + at * ACT_BLOCK;
		const float *d = x->d + at;
		const int16_t *sum16 = x->sum16 + 2 * at;
		uint8_t *to = tile_at(walk, tile);

		for (uint32_t b = 0; b < walk->piece_blocks; b++) {
			memcpy(to + (size_t)c * ACT_BLOCK, q + (size_t)b * ACT_BLOCK, ACT_BLOCK);
			store_u32(to + (size_t)nr_cols * ACT_BLOCK + 4 * (size_t)c,
				  f32_to_bits(d[b]));
			gather_sums(kind, sum16 + 2 * b, d[b], nr_cols,
				    to + (size_t)nr_cols * (ACT_BLOCK + 4) + 4 * (size_t)c);
			to += stride;
		}
	}
}

static void store_outputs(const struct linear_q8_args *args, uint32_t group,
			  const struct q8_tile *tile, const float *acc)
{
	uint32_t left = args->w->nr_rows - group * PACK_ROWS;
	uint32_t nr_lanes = left < PACK_ROWS ? left : PACK_ROWS;

	for (uint32_t c = 0; c < tile->nr_cols; c++, acc += PACK_ROWS) {
		float *y = args->y + (size_t)(tile->first_row + c) * args->y_stride +
			   (size_t)group * PACK_ROWS;

		if (args->accumulate) {
			for (uint32_t r = 0; r < nr_lanes; r++)
				y[r] = y[r] + acc[r];
		} else if (nr_lanes == PACK_ROWS) {
			memcpy(y, acc, PACK_ROWS * sizeof(*y));
		} else {
			memcpy(y, acc, nr_lanes * sizeof(*y));
		}
	}
}

/* The piece of one group against every tile; acc: [panel rows][16]. */
static void run_group(struct q8_walk *walk, uint32_t group, float *acc)
{
	const struct q8_linear *linear = walk->linear;
	const struct pack_format *format = walk->format;
	size_t first = walk->first_block;
	bool is_wide = linear->wide && walk->nr_tiles > 1;
	const q8_tile_fn *fns = is_wide ? linear->wide : linear->packed;
	struct q8_run run = {
		.planes = pack_planes_at(walk->args->w, &walk->offsets, group),
		.wide = walk->wide,
		.nr_blocks = walk->piece_blocks,
	};

	run.planes.scales += first * ACT_BLOCK / format->scale_values * format->scale_bytes;
	run.planes.codes += first * format->code_bytes;
	run.planes.high += first * format->high_bytes;
	if (is_wide)
		linear->widen(&run.planes, walk->piece_blocks, walk->wide);
	if (first == 0)
		memset(acc, 0, walk->panel_rows * PACK_ROWS * sizeof(*acc));
	for (uint32_t t = 0; t < walk->nr_tiles; t++) {
		const struct q8_tile *tile = &walk->tiles[t];

		run.tile = tile_at(walk, tile);
		run.acc = acc + (size_t)tile->first_col * PACK_ROWS;
		fns[tile->nr_cols - 1](&run);
		if (first + walk->piece_blocks == walk->nr_blocks)
			store_outputs(walk->args, group, tile, run.acc);
	}
}

/* Groups [group, end) against the panel, all of K. */
static void run_groups(struct q8_walk *walk, uint32_t group, uint32_t end)
{
	for (uint32_t first = 0; first < walk->nr_blocks; first += Q8_PIECE_BLOCKS) {
		uint32_t left = walk->nr_blocks - first;
		uint32_t nr = left < Q8_PIECE_BLOCKS ? left : Q8_PIECE_BLOCKS;
		/* When K is one piece nothing waits, and one slot serves all groups. */
		size_t acc_stride = nr == walk->nr_blocks ? 0 : walk->panel_rows * PACK_ROWS;

		walk->first_block = first;
		walk->piece_blocks = nr;
		for (uint32_t t = 0; t < walk->nr_tiles; t++)
			gather_tile(walk, &walk->tiles[t]);
		for (uint32_t g = group; g < end; g++)
			run_group(walk, g, walk->acc + (g - group) * acc_stride);
	}
}

/* Rows [first, first + nr) cut into tiles as equal as can be, so that none is a sliver. */
static void cut_panel(struct q8_walk *walk, uint32_t first, uint32_t nr)
{
	uint32_t max = walk->linear->max_cols;

	walk->panel_rows = nr;
	walk->nr_tiles = (nr + max - 1) / max;
	for (uint32_t t = 0; t < walk->nr_tiles; t++) {
		uint32_t from = nr * t / walk->nr_tiles;
		uint32_t to = nr * (t + 1) / walk->nr_tiles;

		walk->tiles[t] = (struct q8_tile){ first + from, to - from, from };
	}
}

void linear_q8_walk(const struct linear_q8_args *args, const struct q8_linear *linear)
{
	uint32_t nr_panels = (args->nr_rows + PANEL_ROWS - 1) / PANEL_ROWS;
	struct q8_walk walk; /* large: only what is used is set */

	walk.args = args;
	walk.linear = linear;
	walk.format = pack_format_get(args->w->type);
	walk.nr_blocks = args->w->nr_cols / ACT_BLOCK;
	pack_offsets_get(walk.format, args->w->nr_cols, &walk.offsets);
	for (uint32_t p = 0; p < nr_panels; p++) {
		uint32_t first = (uint32_t)((uint64_t)args->nr_rows * p / nr_panels);
		uint32_t next = (uint32_t)((uint64_t)args->nr_rows * (p + 1) / nr_panels);
		uint32_t chunk = args->end_group - args->first_group;

		cut_panel(&walk, first, next - first);
		if (walk.nr_blocks > Q8_PIECE_BLOCKS)
			chunk = ACC_SLOTS / walk.panel_rows;
		for (uint32_t g = args->first_group; g < args->end_group;) {
			uint32_t left = args->end_group - g;
			uint32_t nr = left < chunk ? left : chunk;

			run_groups(&walk, g, g + nr);
			g += nr;
		}
	}
}
