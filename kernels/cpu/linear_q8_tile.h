/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the vector forms of the int8 linear layer walk a matrix: activation rows
 * are gathered into a panel of narrow tiles, and each group of weights runs
 * against the tiles, from its packed form or, where several tiles share it,
 * widened to bytes and floats once. Shared by the AVX2 and AVX-512 files; the
 * walk is linear_q8_walk.c, the tile kernels are theirs. Nothing here changes a
 * bit: columns are independent chains, and widening is exact.
 */
#ifndef TARN_KERNELS_LINEAR_Q8_TILE_H
#define TARN_KERNELS_LINEAR_Q8_TILE_H

#include "kernels/cpu/kernels_private.h"

enum {
	Q8_MAX_COLS = 8, /* columns of the widest tile; kernels exist for 1 to this */
	/* Blocks of K taken at once: a widened group and a tile fit the first-level cache. */
	Q8_PIECE_BLOCKS = 48,
	/* How far ahead of use packed weights are asked for. */
	Q8_PREFETCH_BYTES = 4096,
	/* A widened block: codes [8][16 rows][4], then the floats of Q8_WIDE_*. */
	Q8_WIDE_CODES = 512,
	Q8_WIDE_MAX_BYTES = Q8_WIDE_CODES + 6 * 64,
};

/*
 * Of a weight type, what loops depend on. Always a constant, so that each kernel
 * is a template instance.
 */
struct q8_kind {
	unsigned int bits; /* 2, 3, 4, 5, 6, 8 */
	bool super; /* scales per 256 with integer sub-scales */
	bool has_min;
	bool has_halves; /* sub-scales per 16 (Q2_K: and mins; Q3_K, Q6_K) */
	const int8_t *values; /* what 4-bit codes stand for; NULL: themselves */
	bool is_e8m0; /* scales are exponents (MXFP4) */
};

static const struct q8_kind q8_kind_q4_0 = { .bits = 4 };
static const struct q8_kind q8_kind_q4_1 = { .bits = 4, .has_min = true };
static const struct q8_kind q8_kind_q5_0 = { .bits = 5 };
static const struct q8_kind q8_kind_q5_1 = { .bits = 5, .has_min = true };
static const struct q8_kind q8_kind_q8_0 = { .bits = 8 };
static const struct q8_kind q8_kind_iq4_nl = { .bits = 4, .values = pack_iq4_values };
static const struct q8_kind q8_kind_mxfp4 = { .bits = 4,
					      .values = pack_fp4_values,
					      .is_e8m0 = true };
static const struct q8_kind q8_kind_q2_k = {
	.bits = 2, .super = true, .has_min = true, .has_halves = true
};
static const struct q8_kind q8_kind_q3_k = { .bits = 3, .super = true, .has_halves = true };
static const struct q8_kind q8_kind_iq4_xs = { .bits = 4,
					       .super = true,
					       .values = pack_iq4_values };
static const struct q8_kind q8_kind_q4_k = { .bits = 4, .super = true, .has_min = true };
static const struct q8_kind q8_kind_q5_k = { .bits = 5, .super = true, .has_min = true };
static const struct q8_kind q8_kind_q6_k = { .bits = 6, .super = true, .has_halves = true };

/* What unsigned codes have too much; values of a table are made unsigned by 128. */
static inline int32_t q8_offset(struct q8_kind kind)
{
	if (kind.values)
		return 128;
	return kind.has_min ? 0 : 1 << (kind.bits - 1);
}

/* Bytes of the packed planes: codes and high bits per block, scales per entry. */
static inline size_t q8_code_bytes(struct q8_kind kind)
{
	return kind.bits == 8 ? 512 : kind.bits < 4 ? 128 : 256;
}

static inline size_t q8_high_bytes(struct q8_kind kind)
{
	return kind.bits == 5 || kind.bits == 3 ? 64 : kind.bits == 6 ? 128 : 0;
}

/* Where the integer sub-scales begin in an entry of super-blocks. */
static inline size_t q8_sub_at(struct q8_kind kind)
{
	return kind.has_min || kind.bits == 6 ? 64 : 32;
}

static inline size_t q8_scale_bytes(struct q8_kind kind)
{
	if (kind.super)
		return q8_sub_at(kind) + (kind.has_halves || kind.has_min ? 256 : 128);
	return kind.is_e8m0 ? 16 : kind.has_min ? 64 : 32;
}

/* Floats behind a widened block's codes: d[16]; m[16] and mn[2][16] if any; sc[16] or sc[2][16]. */
static inline uint32_t q8_wide_bytes(struct q8_kind kind)
{
	uint32_t nr = 1 + kind.has_min + kind.super + kind.has_halves;

	return Q8_WIDE_CODES + 64u * (kind.has_min && kind.has_halves ? nr + 2 : nr);
}

/* Bytes of one column in a block of a tile. */
static inline uint32_t q8_column_bytes(struct q8_kind kind)
{
	return ACT_BLOCK + 8 + 4 * kind.has_halves;
}

/*
 * One group against one tile. A tile is, per block: int8 q[cols][32], float
 * d[cols], then int32 -offset * sum [cols] (Q3_K, Q6_K: of each half, [2][cols]),
 * or float d * sum [cols] for types with mins (Q2_K: the halves' sums [2][cols]).
 */
struct q8_run {
	struct pack_planes planes; /* at the first block: of packed kernels */
	const uint8_t *wide; /* of kernels over widened groups */
	const uint8_t *tile;
	uint32_t nr_blocks; /* K-quants: starts at a super-block */
	float *acc; /* [cols][16], in and out; 64-byte aligned */
};

typedef void (*q8_tile_fn)(const struct q8_run *run);

/* What the walk needs of one type on one instruction set. */
struct q8_linear {
	struct q8_kind kind;
	uint32_t max_cols;
	const q8_tile_fn *packed; /* [max_cols], by columns - 1 */
	/* Both NULL: packed kernels serve every batch. */
	const q8_tile_fn *wide;
	void (*widen)(const struct pack_planes *planes, uint32_t nr_blocks, uint8_t *out);
};

/* The packed planes as a loop over blocks walks them. */
struct q8_cursor {
	const uint8_t *scales;
	const uint8_t *codes;
	const uint8_t *high;
};

static inline void q8_cursor_next(struct q8_kind kind, struct q8_cursor *at, uint32_t block)
{
	at->codes += q8_code_bytes(kind);
	at->high += q8_high_bytes(kind);
	if (!kind.super || block % 8 == 7)
		at->scales += q8_scale_bytes(kind);
}

/* Needs about 250 KiB of stack. */
void linear_q8_walk(const struct linear_q8_args *args, const struct q8_linear *linear);

#endif /* TARN_KERNELS_LINEAR_Q8_TILE_H */
