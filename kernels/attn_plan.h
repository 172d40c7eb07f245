/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attention works on: the layout of a KV stream and the plan of a step.
 *
 * Every form of attention is one list of work units: query rows, a run of
 * anchored splits of ATTN_SPLIT_TOKENS absolute positions each, and the pieces
 * of memory that hold their keys and values, scanned in order with one running
 * state per row and split; finished splits are folded in ascending order.
 * Decode has one row and one split a unit, so that threads share a long
 * context; a prompt chunk many rows and all their splits; a shared prefix the
 * rows of several sequences. A row's result depends on its own keys alone (the
 * same-bits contract), so units may be cut and handed out at will along rows,
 * heads and splits, never inside a split.
 *
 * Plain structures, no pointers to anything of the engine. The engine fills
 * them once a step; every layer of a stream reads the same plan.
 */
#ifndef TARN_KERNELS_ATTN_PLAN_H
#define TARN_KERNELS_ATTN_PLAN_H

#include <stddef.h>
#include <stdint.h>

enum {
	/* Anchored: split s holds positions [512 s, 512 (s + 1)). Part of the bits. */
	ATTN_SPLIT_TOKENS = 512,
	/* The running maximum moves once per anchored group. Part of the bits. */
	ATTN_GROUP_TOKENS = 16,
	/* Row slot of a result that needs no merge: written to the output. */
	ATTN_SLOT_DIRECT = 0xffffffffu,
};

enum attn_elem {
	ATTN_F16,
	ATTN_F32,
	ATTN_BF16,
};

/*
 * One stream's tile, [layer][K|V][kv_head][T][head_dim], T tokens of all
 * layers of the stream. On the CPU K is [T / 16][head_dim][16 tokens] inside
 * its run and V is [T][head_dim]; on a GPU both are [T][head_dim]. Tiles lie
 * back to back at stride_bytes.
 *
 * The dense layout (layout=layer) describes its buffers with the same
 * structure, one layer and one of K and V to a buffer, [t][kv_head][head_dim]
 * in both. It is for attention routines of others: the kernels here read tiles.
 */
struct attn_layout {
	uint32_t tile_tokens; /* T: 16, 32 or 64 */
	uint32_t nr_layers; /* in this stream */
	uint32_t nr_kv_heads;
	uint32_t head_dim;
	enum attn_elem elem;
	uint32_t elem_bytes;
	uint64_t head_bytes; /* T * head_dim * elem_bytes: one run */
	uint64_t v_offset_bytes; /* from the K runs of a layer to its V runs */
	uint64_t layer_bytes; /* from layer to layer */
	uint64_t stride_bytes; /* from tile to tile: a multiple of 4 KiB */
};

/*
 * Consecutive tokens of one segment. @base is the address of the tile that
 * holds position @base_token, itself a multiple of T; token t of layer l lies
 * in the tile at base + (t - base_token) / T * stride_bytes.
 */
struct attn_piece {
	const uint8_t *base;
	uint32_t base_token;
	/*
	 * Range of the piece. Borders between the pieces of a unit are multiples of T: an anchored
	 * group of 16 never lies in two pieces, else bits would depend on how KV came to be.
	 */
	uint32_t first_token;
	uint32_t end_token;
};

struct attn_row {
	uint32_t batch_row; /* row of q and of the output */
	uint32_t first_key; /* absolute positions it sees: [first_key, end_key) */
	uint32_t end_key;
	uint32_t slot; /* partial state to write, or ATTN_SLOT_DIRECT */
};

struct attn_unit {
	uint32_t first_row; /* in plan->rows; end_key ascends inside a unit */
	uint32_t nr_rows;
	uint32_t first_piece; /* in plan->pieces; ascending, without gaps */
	uint32_t nr_pieces;
	uint32_t first_split;
	/* More than one: every row has ATTN_SLOT_DIRECT and all it sees lies in the unit. */
	uint32_t nr_splits;
};

/* Slots [first_slot, first_slot + nr_slots) of one row, in ascending splits. */
struct attn_merge {
	uint32_t batch_row;
	uint32_t first_slot;
	uint32_t nr_slots; /* at least 2 */
};

struct attn_plan {
	const struct attn_unit *units;
	uint32_t nr_units;
	const struct attn_row *rows;
	const struct attn_piece *pieces;
	const struct attn_merge *merges;
	uint32_t nr_merges;
	uint32_t nr_slots;
};

/* Address of the K run of (tile, layer, head); V lies v_offset_bytes behind. */
static inline uint64_t attn_run_offset(const struct attn_layout *l, uint32_t layer,
				       uint32_t kv_head)
{
	return layer * l->layer_bytes + kv_head * l->head_bytes;
}

static inline const uint8_t *attn_tile(const struct attn_layout *l, const struct attn_piece *p,
				       uint32_t token)
{
	return p->base + (uint64_t)((token - p->base_token) / l->tile_tokens) * l->stride_bytes;
}

/* Floats of one (slot, query head): head_dim sums, maximum, sum; 64-byte multiple. */
static inline size_t attn_slot_floats(uint32_t head_dim)
{
	return ((size_t)head_dim + 2 + 15) & ~(size_t)15;
}

#endif /* TARN_KERNELS_ATTN_PLAN_H */
