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
 * 128 tokens, plane = kv_head, one map per layer and per K and V.
 */
#ifndef TARN_KERNELS_CUDA_LAUNCH_PARAMS_H
#define TARN_KERNELS_CUDA_LAUNCH_PARAMS_H

#include <stdint.h>

enum {
	GPU_ATTN_BLOCK_TOKENS = 128, /* numerics contract, rule 9 */
	GPU_ATTN_SPLIT_TOKENS = 512, /* numerics contract, rule 5 */
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

struct gpu_attn_seq {
	uint32_t first_piece; /* index into pieces */
	uint32_t nr_tokens; /* KV tokens written, the query rows' own included */
	uint32_t first_row; /* row of its first query in q and out */
	uint32_t nr_rows; /* query rows; 1 in decode */
	uint32_t first_pos; /* absolute position of its first query row */
	uint32_t first_partial; /* decode: its first slot of split results */
};

/* Decode: (sequence, split of 512 tokens). Prefill: (sequence, tile of 128 rows). */
struct gpu_attn_unit {
	uint32_t seq;
	uint32_t part;
};

/* KV memory of one layer, as the maps see it. */
struct gpu_attn_kv {
	struct gpu_attn_tensor_map k_block; /* box: 128 tokens (128 / T tiles), both halves */
	struct gpu_attn_tensor_map v_block;
	struct gpu_attn_tensor_map k_tile; /* box: one tile, one half of head_dim */
	struct gpu_attn_tensor_map v_tile;
	uint32_t tile_tokens; /* T, divides 128 */
	uint32_t k_plane; /* plane of kv_head 0 */
	uint32_t v_plane;
	uint32_t nr_kv_heads;
};

/*
 * Two words per kernel that hands out work by a counter: units taken beyond
 * the first wave, CTAs that found none left. The last CTA puts both back to
 * zero, so one allocation, zeroed once, serves every later launch.
 */
struct gpu_attn_queue {
	uint32_t taken;
	uint32_t done;
};

/* attn_decode_d128: block 160, grid <= 2 per SM, dynamic shared memory below. */
struct gpu_attn_decode_params {
	struct gpu_attn_kv kv;
	const struct gpu_attn_piece *pieces;
	const struct gpu_attn_seq *seqs;
	const struct gpu_attn_unit *units; /* [nr_units], heaviest first */
	const void *q; /* bf16 [row][q_head][128] */
	void *out; /* bf16 [row][q_head][128] */
	float *partial_out; /* [slot][q_head][128], not normalised */
	float *partial_state; /* [slot][q_head][2]: max * scale_log2, sum */
	uint32_t *arrivals; /* [seq][kv_head], zero between launches */
	struct gpu_attn_queue *queue;
	uint32_t nr_units; /* per KV head */
	uint32_t nr_q_heads;
	float scale_log2; /* softmax scale * log2(e) */
};

/* attn_prefill_d128: block 384, grid <= 1 per SM, dynamic shared memory below. */
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
	GPU_ATTN_DECODE_THREADS = 160,
	GPU_ATTN_PREFILL_THREADS = 384,
};

/* Dynamic shared memory; the kernels assert that their layouts fit. */
enum {
	GPU_ATTN_DECODE_SMEM_BYTES = 112 * 1024,
	GPU_ATTN_PREFILL_SMEM_BYTES = 226 * 1024,
};

#endif
