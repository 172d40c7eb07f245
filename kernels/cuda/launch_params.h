/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of the CUDA kernels: plain C structs, one per kernel, passed by
 * value. The host fills them; the kernels never write them. All pointers are
 * device pointers. No CUDA header is needed to read this file, so that host
 * code builds where the toolkit is missing.
 *
 * KV memory is read through tensor maps only (DESIGN section 2). For both
 * layouts a map has five dimensions, innermost first:
 *   [64 of head_dim][token in tile][tile][half of head_dim][plane]
 * Tile layout: plane = (layer * 2 + (V ? 1 : 0)) * nr_kv_heads + kv_head, one
 * map over the whole reservation. Per-layer [t][h][d]: a "tile" is a run of
 * 64 tokens, plane = kv_head, one map per layer and per K and V.
 */
#ifndef TARN_KERNELS_CUDA_LAUNCH_PARAMS_H
#define TARN_KERNELS_CUDA_LAUNCH_PARAMS_H

#include <stdint.h>

enum {
	GPU_ATTN_BLOCK_TOKENS = 128, /* numerics contract, rule 9 */
	GPU_ATTN_SPLIT_TOKENS = 512, /* numerics contract, rule 5 */
	GPU_ATTN_DECODE_LOAD = 64, /* tokens of one copy into shared memory; T divides it */
	GPU_ATTN_PREFILL_LOAD = 128,
	GPU_ATTN_SPLIT_BLOCKS = GPU_ATTN_SPLIT_TOKENS / GPU_ATTN_BLOCK_TOKENS,
	GPU_ATTN_PREFILL_ROWS = 128, /* query rows of a prefill unit, one head */
	GPU_ATTN_DECODE_MAX_ROWS = 8, /* query heads that share a KV head */
};

/* A CUtensorMap, opaque here: 128 bytes, 64-byte aligned. */
struct gpu_attn_tensor_map {
	uint64_t opaque[16];
} __attribute__((aligned(64)));

/*
 * A run of tokens of one segment, as one link of a sequence's chain. The
 * pieces of a sequence follow each other without a gap, in ascending order.
 */
struct gpu_attn_piece {
	uint32_t first_token; /* absolute position, a multiple of T */
	uint32_t end_token; /* exclusive; a multiple of T but in the last piece */
	uint32_t first_tile; /* coordinate in the tensor map of first_token's tile */
};

/* Prefill: a chunk of a prompt. */
struct gpu_attn_seq {
	uint32_t first_piece; /* index into pieces */
	uint32_t nr_tokens; /* KV tokens written, the query rows' own included */
	uint32_t first_row; /* row of its first query in q and out */
	uint32_t nr_rows; /* query rows */
	uint32_t first_pos; /* absolute position of its first query row */
};

/*
 * Decode: one anchored split of one sequence, with all that the kernel must
 * know before its first load. The host writes them once a step; every layer
 * reads the same.
 */
struct gpu_attn_split {
	uint32_t first_token; /* a multiple of 512 */
	uint32_t end_token; /* exclusive: of the split, or of the sequence */
	uint32_t seq; /* picks the arrival counters */
	uint32_t row; /* of q and out */
	uint32_t nr_splits; /* of the sequence */
	uint32_t first_partial; /* slot of the sequence's split 0 */
	uint32_t next_piece; /* the chain's piece after `piece` */
	uint32_t pad;
	struct gpu_attn_piece piece; /* the one that holds first_token */
	uint32_t pad2;
};

/* Prefill: a tile of 128 query rows of a sequence. */
struct gpu_attn_unit {
	uint32_t seq;
	uint32_t tile;
};

/* KV memory of one layer, as the maps see it. */
struct gpu_attn_kv {
	struct gpu_attn_tensor_map k_block; /* box: one load (LOAD / T tiles), both halves */
	struct gpu_attn_tensor_map v_block;
	struct gpu_attn_tensor_map k_tile; /* box: one tile, one half of head_dim */
	struct gpu_attn_tensor_map v_tile;
	uint32_t tile_tokens; /* T, divides 64 */
	uint32_t k_plane; /* plane of kv_head 0 */
	uint32_t v_plane;
	uint32_t nr_kv_heads;
};

/*
 * Two words of the prefill kernel, which hands out units by a counter: units
 * taken beyond the first wave, CTAs that found none left. The last CTA puts both back to
 * zero, so one allocation, zeroed once, serves every later launch.
 */
struct gpu_attn_queue {
	uint32_t taken;
	uint32_t done;
};

/* attn_decode_d128: block and dynamic shared memory below,
 * grid <= GPU_ATTN_DECODE_CTAS per SM. */
struct gpu_attn_decode_params {
	struct gpu_attn_kv kv;
	const struct gpu_attn_piece *pieces;
	const struct gpu_attn_split *splits; /* [nr_splits], heaviest first */
	const void *q; /* bf16 [row][q_head][128] */
	void *out; /* bf16 [row][q_head][128] */
	float *partial_out; /* [slot][q_head][128], not normalised */
	float *partial_state; /* [slot][q_head][2]: max * scale_log2, sum */
	uint32_t *arrivals; /* [seq][kv_head], zero between launches */
	uint32_t nr_splits; /* of all sequences */
	uint32_t nr_q_heads;
	float scale_log2; /* softmax scale * log2(e) */
};

/* attn_prefill_d128: block and dynamic shared memory below, grid <= 1 per SM. */
struct gpu_attn_prefill_params {
	struct gpu_attn_kv kv;
	/* [64 of head_dim][row][half][q_head], box {64, 128, 2, 1}; bf16 */
	struct gpu_attn_tensor_map q_map;
	const struct gpu_attn_piece *pieces;
	const struct gpu_attn_seq *seqs;
	const struct gpu_attn_unit *units; /* [nr_units], heaviest first */
	void *out; /* bf16 [row][q_head][128] */
	struct gpu_attn_queue *queue;
	uint32_t nr_units; /* per query head */
	uint32_t nr_q_heads;
	float scale_log2;
};

enum {
	GPU_ATTN_DECODE_CTAS = 2, /* per SM */
	GPU_ATTN_DECODE_THREADS = 288,
	GPU_ATTN_PREFILL_THREADS = 384,
};

/* Dynamic shared memory; the kernels assert that their layouts fit. */
enum {
	GPU_ATTN_DECODE_SMEM_BYTES = 113 * 1024,
	GPU_ATTN_PREFILL_SMEM_BYTES = 226 * 1024,
};

#endif
