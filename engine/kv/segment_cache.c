/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache as a whole: its making and end, the accounts of its memory and
 * admission to them, numbers for others. Driver thread, but for
 * kv_cache_stat().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment_private.h"

static int check_options(const struct kv_cache_options *options)
{
	if (!options || !options->pool || !options->nr_streams ||
	    options->nr_streams > KV_MAX_STREAMS || !options->max_tokens ||
	    options->max_tokens > INT32_MAX / 2 ||
	    (options->tile_tokens && options->tile_tokens != 16 &&
	     options->tile_tokens != 32 && options->tile_tokens != 64) ||
	    (options->layout != KV_LAYOUT_TILE &&
	     options->layout != KV_LAYOUT_LAYER))
		return -EINVAL;
	for (uint32_t s = 0; s < options->nr_streams; s++) {
		const struct kv_stream_desc *stream = &options->streams[s];

		if (!stream->nr_layers || !stream->nr_kv_heads ||
		    !stream->head_dim)
			return -EINVAL;
	}
	return 0;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static void init_stream(struct kv_cache *cache, uint32_t s)
{
	const struct kv_stream_desc *stream = &cache->options.streams[s];
	struct attn_layout *layout = &cache->layouts[s];
	uint32_t chunk = cache->options.max_append_tokens;
	uint64_t page = kvpool_page_bytes(cache->pool);

	kv_layout_init(layout, cache->options.layout, stream,
		       cache->tile_tokens, cache->options.elem);
	uint32_t tiles =
		kv_div_up(cache->options.max_tokens, cache->tile_tokens);

	cache->buf_bytes[s] =
		(tiles * layout->stride_bytes + page - 1) / page * page;
	cache->nr_bufs[s] = cache->options.layout == KV_LAYOUT_LAYER ?
				    2 * stream->nr_layers :
				    1;
	cache->max_tiles[s] = UINT32_MAX;
	if (!kv_is_windowed(cache, s))
		return;
	cache->front_bytes[s] = page - gcd(layout->stride_bytes, page);
	/* The rows of one chunk and the window in front of its first, wherever tiles begin. */
	if (chunk < cache->tile_tokens)
		chunk = cache->tile_tokens;
	/* The last border's window too: see kv_seq_advance_window(). */
	if (cache->is_sharing)
		chunk += cache->tile_tokens - 1;
	cache->max_tiles[s] = kv_div_up(stream->window_tokens - 1 + chunk,
					cache->tile_tokens) +
			      1;
}

int kv_cache_create(const struct kv_cache_options *options,
		    struct kv_cache **out_cache)
{
	int err = check_options(options);

	if (err || !out_cache)
		return -EINVAL;
	struct kv_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	cache->options = *options;
	if (!cache->options.max_append_tokens)
		cache->options.max_append_tokens = KV_DEFAULT_MAX_APPEND;
	cache->pool = kvpool_get(options->pool);
	cache->nr_streams = options->nr_streams;
	cache->tile_tokens = kv_tile_tokens(options->streams,
					    options->nr_streams,
					    options->elem == ATTN_F32 ? 4 : 2);
	if (options->tile_tokens)
		cache->tile_tokens = options->tile_tokens;
	cache->is_sharing = options->share_prefixes && options->prefix_cache &&
			    options->layout == KV_LAYOUT_TILE;
	for (uint32_t s = 0; s < cache->nr_streams; s++)
		init_stream(cache, s);
	TAILQ_INIT(&cache->seqs);
	TAILQ_INIT(&cache->segments);
	TAILQ_INIT(&cache->lru);
	TAILQ_INIT(&cache->unpublished);
	pthread_mutex_init(&cache->stat_lock, NULL);
	uint32_t tiles = kv_div_up(options->max_tokens, cache->tile_tokens) + 1;

	cache->match_views = calloc(tiles, sizeof(*cache->match_views));
	cache->match_keys = calloc(tiles + 1, sizeof(*cache->match_keys));
	err = cache->match_views && cache->match_keys ?
		      prefix_init(&cache->index) :
		      -ENOMEM;
	if (err) {
		kv_cache_destroy(cache);
		return err;
	}
	kv_stat_publish(cache);
	*out_cache = cache;
	return 0;
}

void kv_cache_destroy(struct kv_cache *cache)
{
	if (!cache)
		return;
	while (kv_evict_one(cache))
		;
	prefix_deinit(&cache->index);
	free(cache->match_views);
	free(cache->match_keys);
	pthread_mutex_destroy(&cache->stat_lock);
	kvpool_put(cache->pool);
	free(cache);
}

const struct attn_layout *kv_cache_layout(const struct kv_cache *cache,
					  uint32_t stream)
{
	return &cache->layouts[stream];
}

uint32_t kv_cache_nr_streams(const struct kv_cache *cache)
{
	return cache->nr_streams;
}

const uint8_t *kv_cache_base(const struct kv_cache *cache)
{
	return kvpool_base(cache->pool);
}

int kv_cache_fence(struct kv_cache *cache, void *stream)
{
	return kvpool_features(cache->pool) & KVPOOL_F_DEVICE ?
		       kvpool_fence(cache->pool, stream) :
		       0;
}

uint32_t kv_cache_window(const struct kv_cache *cache, uint32_t stream)
{
	return cache->options.streams[stream].window_tokens;
}

uint64_t kv_tile_bytes(const struct kv_cache *cache, uint32_t stream,
		       uint32_t first, uint32_t end)
{
	uint64_t stride = cache->layouts[stream].stride_bytes;
	uint64_t page = kvpool_page_bytes(cache->pool);

	if (first >= end)
		return 0;
	uint64_t pages =
		(end * stride + page - 1) / page - first * stride / page;

	return pages * page * cache->nr_bufs[stream];
}

uint64_t kv_need_bytes(const struct kv_cache *cache, uint32_t stream,
		       uint32_t nr)
{
	uint64_t page = kvpool_page_bytes(cache->pool);
	uint64_t bytes = nr * cache->layouts[stream].stride_bytes;

	if (!nr || !kv_is_windowed(cache, stream))
		return kv_tile_bytes(cache, stream, 0, nr);
	bytes += cache->front_bytes[stream];
	return (bytes + page - 1) / page * page;
}

uint32_t kv_need_tiles(const struct kv_cache *cache, uint32_t stream,
		       uint32_t start, uint32_t reserve)
{
	uint32_t end = kv_div_up(reserve, cache->tile_tokens);
	uint32_t first = start / cache->tile_tokens;
	uint32_t nr = end > first ? end - first : 0;

	return nr < cache->max_tiles[stream] ? nr : cache->max_tiles[stream];
}

uint64_t kv_cache_takeable(const struct kv_cache *cache,
			   const struct kvpool_stat *stat)
{
	return stat->volatile_bytes > cache->rest_bytes ?
		       stat->volatile_bytes - cache->rest_bytes :
		       0;
}

uint64_t kv_cache_avail(struct kv_cache *cache)
{
	struct kvpool_stat stat;
	uint64_t own = cache->pinned_bytes + cache->evictable_bytes -
		       cache->foreign_bytes;

	kvpool_stat(cache->pool, &stat);
	own += kv_cache_takeable(cache, &stat);
	uint64_t others =
		stat.resident_bytes > own ? stat.resident_bytes - own : 0;

	others += cache->options.slack_bytes;
	return stat.limit_bytes > others ? stat.limit_bytes - others : 0;
}

bool kv_cache_admits(struct kv_cache *cache, uint64_t extra, uint64_t freed)
{
	return cache->pinned_bytes + cache->promised_bytes + extra <=
	       kv_cache_avail(cache) + freed;
}

/* Bring what the cache counts for this sequence up to what it holds. */
void kv_seq_account(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	uint64_t leaf = 0, promised = 0, ahead = 0;

	for (uint32_t s = 0; seq->leaf && s < cache->nr_streams; s++) {
		const struct kv_seg_stream *st = &seq->leaf->streams[s];
		uint32_t used =
			kv_div_up(seq->leaf->nr_tokens, cache->tile_tokens);
		uint32_t need = kv_need_tiles(cache, s, seq->leaf->start,
					      seq->reserve_tokens);
		uint64_t bytes =
			kv_tile_bytes(cache, s, st->first_tile, st->end_tile);
		uint64_t need_bytes = kv_need_bytes(cache, s, need);

		leaf += bytes;
		promised += need_bytes > bytes ? need_bytes - bytes : 0;
		if (st->end_tile > used)
			ahead += bytes -
				 kv_tile_bytes(cache, s, st->first_tile, used);
	}
	cache->pinned_bytes += leaf - seq->leaf_bytes;
	cache->promised_bytes += promised - seq->promised_bytes;
	cache->ahead_bytes += ahead - seq->ahead_bytes;
	seq->leaf_bytes = leaf;
	seq->promised_bytes = promised;
	seq->ahead_bytes = ahead;
}

void kv_stat_publish(struct kv_cache *cache)
{
	struct kv_cache_stat *stat = &cache->stat;

	stat->used_bytes = cache->pinned_bytes - cache->ahead_bytes;
	stat->ahead_bytes = cache->ahead_bytes;
	stat->cached_bytes = cache->evictable_bytes;
	stat->reserved_bytes = cache->promised_bytes;
	pthread_mutex_lock(&cache->stat_lock);
	cache->snapshot = *stat;
	pthread_mutex_unlock(&cache->stat_lock);
}

void kv_cache_stat(struct kv_cache *cache, struct kv_cache_stat *out_stat)
{
	pthread_mutex_lock(&cache->stat_lock);
	*out_stat = cache->snapshot;
	pthread_mutex_unlock(&cache->stat_lock);
}
