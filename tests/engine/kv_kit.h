/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the KV tests: what the K and V of a token must look like. Every element
 * is derived from the history of tokens up to its own, the layer, the head and
 * the element's index, so that any row that is old, moved or another's shows.
 * Knows the tile's layout from kernels/attn_plan.h alone. Over a cuda pool on a
 * driver without a GPU it looks at memory through that driver.
 */
#ifndef TARN_TESTS_ENGINE_KV_KIT_H
#define TARN_TESTS_ENGINE_KV_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment.h"

static inline uint64_t kit_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185ull;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44dull;
	return x ^ x >> 33;
}

/* Where the CPU finds an address of the pool, and how K lies there: a device test sets both. */
static uint8_t *(*kit_cpu)(const void *addr);
static bool kit_is_k_by_token;

static inline uint8_t *kit_bytes(const void *addr)
{
	return kit_cpu ? kit_cpu(addr) : (uint8_t *)(uintptr_t)addr;
}

struct kit_random {
	uint64_t state;
};

static inline uint32_t kit_below(struct kit_random *random, uint32_t n)
{
	random->state += 0x9e3779b97f4a7c15ull;
	return (uint32_t)((kit_mix(random->state) >> 32) * n >> 32);
}

/* hashes[i] stands for tokens [0, i]. */
static inline void kit_history(const int32_t *tokens, uint32_t from,
			       uint32_t end, uint64_t *hashes)
{
	for (uint32_t i = from; i < end; i++)
		hashes[i] = kit_mix((i ? hashes[i - 1] : 1) * 31 +
				    (uint64_t)tokens[i] + i);
}

static inline uint16_t kit_value(uint64_t hash, uint32_t layer, uint32_t head,
				 bool v, uint32_t dim)
{
	return (uint16_t)(kit_mix(hash + layer * 4099 + head * 257 + v) +
			  dim * 40503u);
}

/* Index of element (token of the tile, dim) in a run: the CPU's K is in groups of 16 tokens. */
static inline size_t kit_index(const struct attn_layout *l, bool v,
			       uint32_t token, uint32_t dim)
{
	if (v || kit_is_k_by_token)
		return (size_t)token * l->head_dim + dim;
	return ((size_t)(token / 16) * l->head_dim + dim) * 16 + token % 16;
}

static inline void kit_write(const struct attn_layout *l, uint8_t *tile,
			     uint32_t token, uint64_t hash)
{
	tile = kit_bytes(tile);
	for (uint32_t layer = 0; layer < l->nr_layers; layer++) {
		for (uint32_t h = 0; h < l->nr_kv_heads; h++) {
			for (int v = 0; v < 2; v++) {
				uint16_t *run =
					(uint16_t *)(tile +
						     attn_run_offset(l, layer,
								     h) +
						     v * l->v_offset_bytes);

				for (uint32_t d = 0; d < l->head_dim; d++)
					run[kit_index(l, v, token, d)] =
						kit_value(hash, layer, h, v, d);
			}
		}
	}
}

static inline bool kit_matches(const struct attn_layout *l, const uint8_t *tile,
			       uint32_t token, uint64_t hash)
{
	tile = kit_bytes(tile);
	for (uint32_t layer = 0; layer < l->nr_layers; layer++) {
		for (uint32_t h = 0; h < l->nr_kv_heads; h++) {
			for (int v = 0; v < 2; v++) {
				const uint16_t *run =
					(const uint16_t
						 *)(tile +
						    attn_run_offset(l, layer,
								    h) +
						    v * l->v_offset_bytes);

				for (uint32_t d = 0; d < l->head_dim; d++) {
					if (run[kit_index(l, v, token, d)] !=
					    kit_value(hash, layer, h, v, d))
						return false;
				}
			}
		}
	}
	return true;
}

/* Write K and V of tokens [first, end), all in the leaf. */
static inline void kit_fill(const struct kv_cache *cache, struct kv_seq *seq,
			    uint32_t first, uint32_t end,
			    const uint64_t *hashes)
{
	for (uint32_t s = 0; s < kv_cache_nr_streams(cache); s++) {
		const struct attn_layout *l = kv_cache_layout(cache, s);

		for (uint32_t t = first; t < end; t++)
			kit_write(l, kv_seq_tile(seq, s, t), t % l->tile_tokens,
				  hashes[t]);
	}
}

static inline uint32_t kit_first_visible(const struct kv_cache *cache,
					 uint32_t stream, uint32_t len)
{
	uint32_t window = kv_cache_window(cache, stream);

	return window && len >= window ? len - window + 1 : 0;
}

/* Whether all that the row at @len sees is there and right; says on standard output what is not. */
static inline bool kit_verify(const struct kv_cache *cache,
			      const struct kv_seq *seq, const uint64_t *hashes)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];
	uint32_t len = kv_seq_len(seq);

	for (uint32_t s = 0; s < kv_cache_nr_streams(cache); s++) {
		const struct attn_layout *l = kv_cache_layout(cache, s);
		uint32_t first = kit_first_visible(cache, s, len);

		if (first >= len)
			continue;
		int nr = kv_seq_pieces(seq, s, first, len, pieces);

		if (nr < 0) {
			printf("stream %u, [%u, %u): no pieces: %d\n", s, first,
			       len, nr);
			return false;
		}
		for (int i = 0; i < nr; i++) {
			for (uint32_t t = pieces[i].first_token;
			     t < pieces[i].end_token; t++) {
				if (t != first++ ||
				    !kit_matches(l, attn_tile(l, &pieces[i], t),
						 t % l->tile_tokens,
						 hashes[t])) {
					printf("stream %u of %u tokens: token %u is wrong\n",
					       s, len, t);
					return false;
				}
			}
		}
		if (first != len) {
			printf("stream %u: pieces end at %u of %u\n", s, first,
			       len);
			return false;
		}
	}
	return true;
}

static inline bool kit_check(struct kv_cache *cache)
{
	char err[256] = "";

	if (!kv_cache_check(cache, err, sizeof(err)))
		return true;
	printf("check: %s\n", err);
	return false;
}

#endif /* TARN_TESTS_ENGINE_KV_KIT_H */
