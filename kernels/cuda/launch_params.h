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
	const uint32_t *nr_splits_at; /* for graphs; NULL: as below */
	uint32_t nr_splits; /* of all sequences, where nr_splits_at is NULL */
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

/* ---- linear layers ----------------------------------------------------- */

enum {
	GPU_LINEAR_CHUNKS = 2, /* of a span */
	GPU_LINEAR_MAX_SPANS = 2, /* CTAs of a cluster: with 4 and 8 they start later */
	GPU_LINEAR_MAX_STAGES = 12,
	GPU_LINEAR_CHUNK_UNIT = 256, /* chunks and spans of K are multiples of this */
};

/*
 * How K is cut, for the numerics contract's rule 8: a function of the matrix
 * alone, the same for every M and every kernel. K is one or two spans, a span up
 * to two chunks (of bf16 weights: one). Each chunk has its own accumulator;
 * sum of a span = chunk 0 + chunk 1 + ..., output = span 0 + span 1 + ..., each
 * from the left.
 */
struct gpu_linear_cut {
	uint32_t span_k;
	uint32_t chunk_k;
};

static inline uint32_t gpu_linear_part(uint32_t nr_cols, uint32_t nr)
{
	return ((nr_cols + nr - 1) / nr + GPU_LINEAR_CHUNK_UNIT - 1) / GPU_LINEAR_CHUNK_UNIT *
	       GPU_LINEAR_CHUNK_UNIT;
}

/* Spans are as many as give each of some 130 multiprocessors two groups of 16 rows. */
static inline struct gpu_linear_cut gpu_linear_cut_get(uint32_t nr_rows, uint32_t nr_cols,
						       uint32_t is_bf16)
{
	uint32_t nr_groups = (nr_rows + 15) / 16;
	struct gpu_linear_cut cut;
	uint32_t nr = 1;

	while (nr < GPU_LINEAR_MAX_SPANS && nr_groups * nr <= 264 && nr_cols / nr >= 1024)
		nr *= 2;
	cut.span_k = gpu_linear_part(nr_cols, nr);
	cut.chunk_k = is_bf16 ? cut.span_k : gpu_linear_part(cut.span_k, GPU_LINEAR_CHUNKS);
	return cut;
}

/* Of one kernel instance; the host picks by M, which changes no bit. */
struct gpu_linear_shape {
	uint32_t tokens; /* of a tile: 8, 16, 32, 64 */
	uint32_t streams; /* runs of k that are computed side by side: 1 or GPU_LINEAR_CHUNKS */
	uint32_t tile_bytes; /* of the weights, see linear_pack.h */
	uint32_t has_min; /* Q4_1, Q4_K */
};

/* Groups of 16 weight rows that a CTA has warps for. */
static inline uint32_t gpu_linear_max_groups(uint32_t streams)
{
	return streams == 1 ? 8 : 7;
}

static inline uint32_t gpu_linear_threads(const struct gpu_linear_shape *shape)
{
	uint32_t nr_groups = gpu_linear_max_groups(shape->streams);

	return (nr_groups * shape->streams + 1) * 32;
}

/*
 * linear_<type>_<m|w><tokens>: out[m][n] = sum over k of x[m][k] w[n][k].
 * Block gpu_linear_threads(); cluster (nr_spans, 1, 1), nr_spans = ceil(nr_cols / span_k); grid
 * (nr_spans * clusters, ceil(nr_tokens / tokens)); dynamic shared memory
 * gpu_linear_smem_bytes(). With more than one span a cluster must not get more than cta_groups
 * groups, that is clusters >= ceil(groups / cta_groups); else any number of clusters will do.
 */
struct gpu_linear_params {
	/*
	 * x: bf16 [nr_tokens][nr_cols] as [64 of nr_cols][token][nr_cols / 64], innermost
	 * first; box {64, tokens, 2}, 128-byte swizzle, zeros outside
	 */
	struct gpu_attn_tensor_map x_map;
	const float *x_sums; /* linear_sums' output for this tile of tokens; types with a minimum */
	const void *weights; /* as linear_pack.h has it */
	void *out; /* bf16 or float [nr_tokens][out_stride] */
	uint32_t nr_rows; /* N, a multiple of 8 */
	uint32_t nr_cols; /* K, a multiple of 64 (K-quants: 256) */
	uint32_t nr_tokens; /* M */
	struct gpu_linear_cut cut;
	uint32_t cta_groups; /* at a time; at most gpu_linear_max_groups() */
	uint32_t nr_stages; /* of the ring; 2 to GPU_LINEAR_MAX_STAGES; changes no bit */
	uint32_t out_stride; /* elements, even */
	uint32_t out_is_float;
	uint32_t is_overlapped; /* launched with programmatic serialisation */
};

enum {
	GPU_LINEAR_LARGE_ROWS = 128, /* weight rows of a tile, one CTA */
	GPU_LINEAR_LARGE_THREADS = 384,
	GPU_LINEAR_LARGE_SMEM_BYTES = 225 * 1024,
};

/*
 * linear_large_bf16_t<tokens>: the same product for many tokens, tiles of 128 rows x
 * `tokens` (256 or 128). Grid up to one CTA a multiprocessor; block and dynamic shared
 * memory above. Which instance, grid or order of tiles changes no bit.
 */
struct gpu_linear_large_params {
	struct gpu_attn_tensor_map x_map; /* as in gpu_linear_params, but box {64, tokens, 1} */
	const void *weights; /* as linear_pack.h has it */
	void *out; /* bf16 or float [nr_tokens][out_stride] */
	/* gpu_linear_large_scratch_bytes(); used by tiles of 256 where K has two spans */
	void *scratch;
	uint32_t nr_rows; /* N, a multiple of 8 */
	uint32_t nr_cols; /* K, a multiple of 64 */
	uint32_t nr_tokens; /* M */
	uint32_t span_k; /* gpu_linear_cut_get() */
	uint32_t out_stride; /* elements, a multiple of 8 */
	uint32_t out_is_float;
	uint32_t run_tiles; /* tiles of tokens computed beside each other, for L2: 4 to 8 */
};

/*
 * The faster instance's tokens for a matrix and M: a tile of 128 takes about 3/4
 * of the time of one of 256, and CTAs take whole tiles.
 */
static inline uint32_t gpu_linear_large_tokens(uint32_t nr_rows, uint32_t nr_tokens,
					       uint32_t nr_ctas)
{
	uint32_t nr = (nr_rows + GPU_LINEAR_LARGE_ROWS - 1) / GPU_LINEAR_LARGE_ROWS;
	uint32_t waves_128 = (nr * ((nr_tokens + 127) / 128) + nr_ctas - 1) / nr_ctas;
	uint32_t waves_256 = (nr * ((nr_tokens + 255) / 256) + nr_ctas - 1) / nr_ctas;

	return waves_128 * 3 < waves_256 * 4 ? 128 : 256;
}

static inline uint64_t gpu_linear_large_scratch_bytes(uint32_t nr_ctas)
{
	return (uint64_t)nr_ctas * GPU_LINEAR_LARGE_ROWS * 256 * 4;
}

/*
 * linear_sums: sums of x over blocks of 32, by which the minimum of a weight block
 * is multiplied. sums: float [ceil(nr_tokens / tile)][4 * ceil(nr_cols / 128)][tile], zeros
 * where x ends; the sum of a block ascends, whatever the tile. One thread a sum:
 * grid * block >= gpu_linear_nr_sums().
 */
struct gpu_linear_sums_params {
	const void *x; /* bf16 [nr_tokens][nr_cols] */
	float *sums;
	uint32_t nr_tokens;
	uint32_t nr_cols; /* a multiple of 32 */
	uint32_t tile; /* tokens of the kernel instance that will read them */
};

static inline uint32_t gpu_linear_nr_sums(uint32_t nr_tokens, uint32_t nr_cols, uint32_t tile)
{
	return (nr_tokens + tile - 1) / tile * tile * ((nr_cols + 127) / 128 * 4);
}

static inline uint32_t gpu_linear_smem_bytes(const struct gpu_linear_shape *shape,
					     uint32_t cta_groups, uint32_t nr_stages)
{
	uint32_t w_bytes = shape->streams * cta_groups * shape->tile_bytes;
	uint32_t x_bytes = shape->streams * shape->tokens * 256; /* 128 k */
	uint32_t sums_bytes = shape->has_min * shape->streams * shape->tokens * 16;
	uint32_t fold_stride = gpu_linear_max_groups(shape->streams) * 16 + 4;

	return 1024 + nr_stages * (w_bytes + x_bytes + sums_bytes) +
	       (shape->streams == 1 ? 1 : GPU_LINEAR_CHUNKS) * shape->tokens * fold_stride * 4;
}

#endif
