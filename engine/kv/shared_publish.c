/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing sealed segments in the pool: see shared_prefix.h. Owns the list of
 * those that wait for it. Driver thread, between steps.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/exchange.h"
#include "engine/kv/shared_prefix.h"

void shared_prefix_key(struct kv_cache *cache, const struct kvpool_key *border,
		       uint32_t stream, struct kvpool_key *out)
{
	const uint32_t words[2] = { SHARED_PREFIX_KEY, stream };

	prefix_hash(&cache->index, border, words, sizeof(words), out);
}

uint32_t shared_prefix_window(const struct kv_cache *cache, uint32_t stream,
			      uint32_t start, uint32_t border)
{
	uint32_t T = cache->tile_tokens, first = start;

	if (kv_is_windowed(cache, stream) &&
	    kv_window_first(cache, stream, border) > first)
		first = kv_window_first(cache, stream, border) / T * T;
	return first;
}

void shared_prefix_queue(struct kv_segment *seg)
{
	struct kv_cache *cache = seg->cache;

	if (!cache->is_sharing || !seg->entries ||
	    seg->nr_tokens < cache->tile_tokens)
		return;
	TAILQ_INSERT_TAIL(&cache->unpublished, seg, unpublished_link);
	seg->in_unpublished = true;
}

/* Whether a tile's end is a border that a look-up may end at. */
static bool has_border(const struct kv_segment *seg, uint32_t stream,
		       uint32_t end_tile)
{
	const struct kv_seg_stream *st = &seg->streams[stream];
	uint32_t T = seg->cache->tile_tokens;
	uint32_t border = seg->start + end_tile * T;
	uint32_t first =
		shared_prefix_window(seg->cache, stream, seg->start, border);

	return st->bufs && first < border && end_tile <= st->end_tile &&
	       (first - seg->start) / T >= st->first_tile;
}

static bool is_known(struct kv_cache *cache, const struct kvpool_key *border,
		     uint32_t stream)
{
	struct kvpool_buf *buf;
	struct kvpool_key key;
	uint64_t n;

	shared_prefix_key(cache, border, stream, &key);
	cache->stat.nr_lookups++;
	if (kvpool_lookup(cache->pool, &key, &buf, &n, NULL))
		return false;
	kvpool_buf_put(buf);
	return true;
}

/* The pool has as much of this as we could add. */
static bool is_published(const struct kv_segment *seg, uint32_t nr_tiles)
{
	for (uint32_t s = 0; s < seg->cache->nr_streams; s++) {
		if (has_border(seg, s, nr_tiles) &&
		    !is_known(seg->cache, &seg->keys[nr_tiles - 1], s))
			return false;
	}
	return true;
}

void shared_prefix_unpublish(struct kv_segment *seg, uint32_t stream)
{
	const struct kv_seg_stream *st = &seg->streams[stream];

	if (!seg->cache->options.exchange || !st->bufs || st->is_imported)
		return;
	kv_exchange_withdraw(seg->cache->options.exchange, st->bufs[0]);
	kvpool_buf_unpublish(st->bufs[0]);
}

/* Return: 0; or what the pool answers, and what is sealed stays so. */
static int publish_stream(struct kv_segment *seg, uint32_t stream,
			  uint32_t nr_tiles)
{
	struct kv_cache *cache = seg->cache;
	struct kv_seg_stream *st = &seg->streams[stream];
	uint64_t stride = cache->layouts[stream].stride_bytes;
	struct kvpool_mark *marks = calloc(nr_tiles, sizeof(*marks));
	size_t nr = 0;

	if (!marks)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr_tiles; i++) {
		if (!has_border(seg, stream, i + 1))
			continue;
		shared_prefix_key(cache, &seg->keys[i], stream, &marks[nr].key);
		marks[nr++].n_bytes = (i + 1) * stride;
	}
	int err = kv_segment_clear_unused(seg, stream);

	if (!err)
		err = kvpool_buf_seal(st->bufs[0], st->end_tile * stride);
	if (!err) {
		st->is_fixed = true;
		err = kvpool_buf_publish(st->bufs[0], marks, nr);
	}
	if (!err && cache->options.exchange)
		err = kv_exchange_offer(cache->options.exchange, st->bufs[0],
					marks, nr);
	free(marks);
	return err;
}

/* Whether all that will be pinned can be: sealed memory is not given up by parts. */
static bool is_affordable(const struct kv_segment *seg)
{
	uint64_t all = 0;

	for (uint32_t s = 0; s < seg->cache->nr_streams; s++) {
		const struct kv_seg_stream *st = &seg->streams[s];

		if (st->nr_refs)
			all += kv_tile_bytes(seg->cache, s, st->first_tile,
					     st->end_tile);
	}
	return all <= seg->pinned_bytes ||
	       kv_cache_admits(seg->cache, all - seg->pinned_bytes, 0);
}

static void publish(struct kv_segment *seg)
{
	struct kv_cache *cache = seg->cache;
	uint32_t nr_tiles = seg->nr_tokens / cache->tile_tokens;
	int err = 0;

	if (!nr_tiles || !is_affordable(seg) || is_published(seg, nr_tiles))
		return;
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		if (!kv_is_windowed(cache, s) && !has_border(seg, s, nr_tiles))
			return;
	}
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		/* Without it the rest is of use to longer prompts all the same. */
		if (kv_is_windowed(cache, s) && has_border(seg, s, nr_tiles))
			publish_stream(seg, s, nr_tiles);
	}
	for (uint32_t s = cache->nr_streams; s-- && !err;) {
		if (!kv_is_windowed(cache, s))
			err = publish_stream(seg, s, nr_tiles);
	}
	cache->stat.nr_published += !err;
	for (uint32_t s = 0; err && s < cache->nr_streams; s++) {
		if (!seg->streams[s].is_fixed)
			continue;
		shared_prefix_unpublish(seg, s);
		kvpool_buf_unpublish(seg->streams[s].bufs[0]);
	}
}

void kv_cache_publish(struct kv_cache *cache)
{
	struct kv_segment *seg;

	if (TAILQ_EMPTY(&cache->unpublished))
		return;
	while ((seg = TAILQ_FIRST(&cache->unpublished))) {
		TAILQ_REMOVE(&cache->unpublished, seg, unpublished_link);
		seg->in_unpublished = false;
		/* Volatile memory cannot be sealed, and may be gone. */
		if (kv_segment_hold(seg))
			continue;
		publish(seg);
		kv_segment_unhold(seg);
	}
	kv_stat_publish(cache);
}
