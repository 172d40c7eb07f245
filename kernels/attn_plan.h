/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attention works on: the layout of a KV stream and the plan of a step.
 *
 * Every form of attention is one list of work units: query rows, one anchored
 * split of ATTN_SPLIT_TOKENS absolute positions, and the pieces of memory that
 * hold its keys and values, scanned in order with one running state per row.
 * Decode has one row a unit, a prompt chunk many, a shared prefix the rows of
 * several sequences. A row's result depends on its own position and keys alone
 * (the same-bits contract), so units may be cut and handed out at will along
 * rows, heads and splits, never inside a split.
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
};

/*
 * One stream's tile, [layer][K|V][kv_head][T][head_dim], T tokens of all
 * layers of the stream. On the CPU K is [T / 16][head_dim][16 tokens] inside
 * its run and V is [T][head_dim]. Tiles lie back to back at stride_bytes.
 *
 * The dense layout (layout=layer) is the same structure with one layer and one
 * of K and V to a buffer, [t][kv_head][head_dim] in both; only the reference
 * kernels read it. See attn_layout_tile() and attn_layout_dense().
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
	uint32_t first_token; /* range of the piece, inside one split */
	uint32_t end_token;
};

struct attn_row {
	uint32_t batch_row; /* row of q and of the output */
	uint32_t pos; /* absolute position; keys [pos - window + 1, pos] are seen */
	uint32_t slot; /* partial state to write, or ATTN_SLOT_DIRECT */
};

struct attn_unit {
	uint32_t first_row; /* in plan->rows; positions ascend inside a unit */
	uint32_t nr_rows;
	uint32_t first_piece; /* in plan->pieces; ascending, without gaps */
	uint32_t nr_pieces;
	uint32_t split;
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
	uint32_t window_tokens; /* 0: every earlier key is seen */
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
