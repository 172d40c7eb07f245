/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads K or V of one sequence into shared memory by the copy engine, walking
 * the sequence's chain of pieces. One elected producer thread owns a walk.
 * load_tokens, a constant of the kernel, is the size of one load: 64 or 128.
 * Tiles that were never committed are not touched (their pages may not exist);
 * their rows in shared memory keep what they held, and the consumer masks K's
 * and zeroes V's.
 *
 * In shared memory a load is two halves of head_dim, each load_tokens rows of
 * 128 bytes under the 128-byte swizzle.
 */
#ifndef TARN_KERNELS_CUDA_KV_WALK_CUH
#define TARN_KERNELS_CUDA_KV_WALK_CUH

#include "kernels/cuda/tma.cuh"

enum {
	KV_ROW_BYTES = 128, /* 64 elements of 16 bits: one swizzle row */
	KV_TOKEN_BYTES = 2 * KV_ROW_BYTES,
};

struct kv_walk {
	const struct gpu_attn_piece *next; /* piece to look at after the current one */
	struct gpu_attn_piece piece; /* the one that holds the tokens last asked for */
	uint32_t nr_tokens; /* of the sequence */
};

static __device__ __forceinline__ void kv_walk_to(struct kv_walk *walk, uint32_t token)
{
	while (token >= walk->piece.end_token)
		walk->piece = *walk->next++;
}

static __device__ __forceinline__ uint32_t kv_walk_tile(const struct kv_walk *walk, uint32_t token,
							uint32_t tile_tokens)
{
	return walk->piece.first_tile + (token - walk->piece.first_token) / tile_tokens;
}

/* Bytes that kv_load will bring for the tokens from first_token; 0 behind the last one. */
static __device__ __forceinline__ uint32_t kv_load_bytes(const struct kv_walk *walk,
							 uint32_t first_token, uint32_t load_tokens,
							 uint32_t tile_tokens)
{
	uint32_t left = walk->nr_tokens - min(first_token, walk->nr_tokens);

	if (left >= load_tokens)
		return load_tokens * KV_TOKEN_BYTES;
	return (left + tile_tokens - 1) / tile_tokens * tile_tokens * KV_TOKEN_BYTES;
}

/*
 * first_token: a multiple of load_tokens, < nr_tokens, in the walk's piece (the
 * caller has walked there). `bar` must already expect kv_load_bytes.
 */
static __device__ __forceinline__ void
kv_load(const struct kv_walk *from, const struct gpu_attn_tensor_map *block,
	const struct gpu_attn_tensor_map *tile, uint32_t tile_tokens, uint32_t plane,
	uint32_t first_token, uint32_t load_tokens, uint8_t *dst, uint64_t *bar, uint64_t policy)
{
	struct kv_walk walk = *from;
	uint32_t end = first_token + load_tokens;

	if (end <= walk.nr_tokens && end <= walk.piece.end_token) {
		tma_load_5d(dst, block, bar, 0, 0, kv_walk_tile(&walk, first_token, tile_tokens), 0,
			    plane, policy);
		return;
	}
	end = min(end, walk.nr_tokens);
	for (uint32_t token = first_token; token < end; token += tile_tokens) {
		uint8_t *rows = dst + (token - first_token) * KV_ROW_BYTES;
		uint32_t at;

		kv_walk_to(&walk, token);
		at = kv_walk_tile(&walk, token, tile_tokens);
		tma_load_5d(rows, tile, bar, 0, 0, at, 0, plane, policy);
		tma_load_5d(rows + load_tokens * KV_ROW_BYTES, tile, bar, 0, 0, at, 1, plane,
			    policy);
	}
}

/*
 * Zeroes rows [nr_valid, nr_rows) of a load of V: probability 0 times a stale NaN is
 * NaN. Called by nr_threads threads, this one being `thread`; the caller
 * orders it (fence_async_smem, barrier) before MMAs and later copies.
 */
static __device__ __forceinline__ void kv_zero_rows(uint8_t *v, uint32_t nr_rows, uint32_t nr_valid,
						    uint32_t thread, uint32_t nr_threads)
{
	uint32_t nr_chunks = nr_valid < nr_rows ? (nr_rows - nr_valid) * (KV_ROW_BYTES / 16) : 0;
	uint8_t *tail = v + nr_valid * KV_ROW_BYTES;

	for (uint32_t i = thread; i < nr_chunks; i += nr_threads) {
		*(uint4 *)(tail + i * 16) = make_uint4(0, 0, 0, 0);
		*(uint4 *)(tail + nr_rows * KV_ROW_BYTES + i * 16) = make_uint4(0, 0, 0, 0);
	}
}

#endif
