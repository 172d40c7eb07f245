/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the vector forms of the float linear layer walk a matrix: a few groups'
 * weights are expanded to float a piece of K at a time, [groups][inputs][16
 * rows], and tiles of activation rows run against them. The walk is
 * linear_f32_walk.c; tiles and expansion are of each instruction set. Lanes are
 * rows, so every output is one ascending chain, however it is cut.
 */
#ifndef TARN_KERNELS_LINEAR_F32_TILE_H
#define TARN_KERNELS_LINEAR_F32_TILE_H

#include "kernels/cpu/kernels_private.h"

enum {
	/* Inputs and groups expanded at once: 16 KiB stay in the first-level cache. */
	F32_PIECE_INPUTS = 64,
	F32_SET_GROUPS = 4,
	/* Rows of the widest tile; kernels exist for 1 to this. */
	F32_TILE_COLS = 6,
};

/* @nr_inputs links of the chains of one tile. */
struct f32_run {
	const float *w; /* [inputs][16] of the first group, 64-byte aligned */
	size_t w_stride; /* floats from group to group */
	const float *x; /* the tile's first row, at the piece */
	size_t x_stride;
	uint32_t nr_inputs;
	float *acc; /* [cols][F32_SET_GROUPS][16], in and out; 64-byte aligned */
};

typedef void (*f32_tile_fn)(const struct f32_run *run);

struct f32_linear {
	const f32_tile_fn *one; /* [F32_TILE_COLS], by columns - 1: one group */
	const f32_tile_fn *four; /* F32_SET_GROUPS groups */
	/*
	 * Inputs [k, k + nr) of one group as float [nr][16]; every type but F32, which is
	 * read as it lies. k and nr are multiples of 32 for quantised types.
	 */
	void (*expand)(enum pack_type type, const struct pack_planes *planes, uint32_t k,
		       uint32_t nr, float *out);
};

/* Needs about 32 KiB of stack. */
void linear_f32_walk(const struct linear_f32_args *args, const struct f32_linear *linear);

#endif /* TARN_KERNELS_LINEAR_F32_TILE_H */
