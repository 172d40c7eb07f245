/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed segments: who holds what of them, what may be evicted, and evicting
 * it, least recently used first. A segment lives as long as a chain or the
 * prefix index wants it. Unreferenced streams are volatile in the pool, which
 * may purge them by itself; that shows when they are wanted again. Driver
 * thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/segment_private.h"
#include "engine/probes.h"

static void set_in_lru(struct kv_segment *seg, bool value)
{
	struct kv_cache *cache = seg->cache;

	if (value == seg->in_lru)
		return;
	if (value)
		TAILQ_INSERT_TAIL(&cache->lru, seg, lru_link);
	else
		TAILQ_REMOVE(&cache->lru, seg, lru_link);
	seg->in_lru = value;
}

/* Frees a segment that neither a chain nor the index leads to. */
static void destroy(struct kv_segment *seg, bool is_eviction)
{
	struct kv_cache *cache = seg->cache;

	if (seg->entries)
		prefix_remove(&cache->index, seg, is_eviction);
	set_in_lru(seg, false);
	cache->pinned_bytes -= seg->pinned_bytes;
	cache->evictable_bytes -= seg->evictable_bytes;
	cache->rest_bytes -= seg->rest_bytes;
	cache->foreign_bytes -= seg->foreign_bytes;
	if (seg->in_unpublished)
		TAILQ_REMOVE(&cache->unpublished, seg, unpublished_link);
	TAILQ_REMOVE(&cache->segments, seg, link);
	cache->stat.nr_segments--;
	cache->stat.nr_cached_segments -= seg->is_unused;
	kv_segment_free(seg);
}

/* Tiles [*first, *end) of a stream that some chain needs. */
static void needed_tiles(const struct kv_segment *seg, uint32_t s,
			 uint32_t *first, uint32_t *end)
{
	const struct kv_seg_stream *st = &seg->streams[s];
	const struct kv_view *view;
	uint32_t lo = UINT32_MAX, hi = 0, T = seg->cache->tile_tokens;

	LIST_FOREACH(view, &seg->views, link)
	{
		if (!view->holds[s])
			continue;
		if (view->need[s] < lo)
			lo = view->need[s];
		if (view->end > hi)
			hi = view->end;
	}
	*first = lo < hi ? (lo - seg->start) / T : st->first_tile;
	*end = lo < hi ? (hi - seg->start) / T : st->first_tile;
	if (*first < st->first_tile)
		*first = st->first_tile;
	if (*end > st->end_tile)
		*end = st->end_tile;
}

/* Memory that letting go of would not give back to the pool. */
static bool is_foreign(const struct kv_segment *seg, uint32_t s)
{
	const struct kv_seg_stream *st = &seg->streams[s];
	bool is_resting = !st->nr_refs && !seg->nr_holds;

	return st->is_alias ||
	       (st->is_fixed && is_resting && !seg->cache->options.exchange);
}

static void recount(struct kv_segment *seg)
{
	struct kv_cache *cache = seg->cache;
	uint64_t pinned = 0, evictable = 0, rest = 0, foreign = 0;

	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		const struct kv_seg_stream *st = &seg->streams[s];
		uint64_t all = kv_tile_bytes(cache, s, st->first_tile,
					     st->end_tile),
			 held = 0;
		bool is_resting = !st->nr_refs && !seg->nr_holds;
		uint32_t first, end;

		needed_tiles(seg, s, &first, &end);
		if (st->is_fixed)
			held = st->nr_refs ? all : 0;
		else if (first < end)
			held = kv_tile_bytes(cache, s, first, end);
		pinned += held;
		evictable += all - held;
		if (is_foreign(seg, s))
			foreign += all;
		else if (is_resting)
			rest += all;
	}
	cache->rest_bytes += rest - seg->rest_bytes;
	cache->foreign_bytes += foreign - seg->foreign_bytes;
	seg->rest_bytes = rest;
	seg->foreign_bytes = foreign;
	cache->pinned_bytes += pinned - seg->pinned_bytes;
	cache->evictable_bytes += evictable - seg->evictable_bytes;
	seg->pinned_bytes = pinned;
	seg->evictable_bytes = evictable;
}

void kv_segment_update(struct kv_segment *seg)
{
	bool is_free = LIST_EMPTY(&seg->views) && !seg->nr_holds;

	recount(seg);
	/* Where other segments hold the same, this one is not worth its memory. */
	if (is_free && (!seg->entries || !seg->evictable_bytes ||
			prefix_is_covered(&seg->cache->index, seg))) {
		destroy(seg, false);
		return;
	}
	set_in_lru(seg, seg->evictable_bytes > 0);
	seg->cache->stat.nr_cached_segments += is_free - seg->is_unused;
	seg->is_unused = is_free;
}

void kv_segment_seal(struct kv_segment *seg)
{
	struct kv_cache *cache = seg->cache;

	/*
	 * A matter of this book-keeping alone. The pool's own seal comes with publication: it
	 * would keep parts that nobody needs from being given back.
	 */
	seg->is_sealed = true;
	PROBE_SEGMENT_SEAL(seg->id, seg->nr_tokens);
	seg->nr_holds = 1;
	TAILQ_INSERT_TAIL(&cache->segments, seg, link);
	cache->stat.nr_segments++;
	/* Without memory for its entries it serves its own chain all the same. */
	if (cache->options.prefix_cache)
		prefix_insert(&cache->index, seg);
}

/* A stream is in use (by a reference or a hold) or volatile. */
static bool wake_stream(struct kv_segment *seg, uint32_t s)
{
	bool survived = true;

	if (!seg->streams[s].nr_refs && !seg->nr_holds)
		kv_segment_advise(seg, s, KVPOOL_WILLNEED, &survived);
	return survived;
}

static void rest_stream(struct kv_segment *seg, uint32_t s)
{
	if (!seg->streams[s].nr_refs && !seg->nr_holds)
		kv_segment_advise(seg, s, KVPOOL_VOLATILE, NULL);
}

/* The pool took the pages of a volatile stream, this process' or another's memory. */
static void lose_stream(struct kv_segment *seg, uint32_t s)
{
	kv_segment_drop_stream(seg, s);
	seg->cache->stat.evictions++;
	/* A windowed stream may be missing; without the others no token can be matched. */
	if (!kv_is_windowed(seg->cache, s) && seg->entries)
		prefix_remove(&seg->cache->index, seg, true);
}

int kv_view_get(struct kv_view *view, uint32_t len)
{
	struct kv_segment *seg = view->seg;
	struct kv_cache *cache = seg->cache;
	bool is_lost = false;

	LIST_INSERT_HEAD(&seg->views, view, link);
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		uint32_t need = view->first;

		if (kv_is_windowed(cache, s) &&
		    kv_window_first(cache, s, len) > need)
			need = kv_window_first(cache, s, len);
		view->need[s] = need / cache->tile_tokens * cache->tile_tokens;
		view->holds[s] = need < view->end && wake_stream(seg, s);
		if (view->holds[s]) {
			seg->streams[s].nr_refs++;
		} else if (need < view->end) {
			lose_stream(seg, s);
			is_lost = true;
		}
	}
	kv_segment_update(seg);
	if (is_lost) {
		kv_view_put(view);
		return -ESTALE;
	}
	return 0;
}

static void unref_stream(struct kv_view *view, uint32_t stream)
{
	if (!view->holds[stream])
		return;
	view->holds[stream] = false;
	view->seg->streams[stream].nr_refs--;
	rest_stream(view->seg, stream);
}

void kv_view_advance(struct kv_view *view, uint32_t stream, uint32_t len)
{
	struct kv_cache *cache = view->seg->cache;
	uint32_t first = kv_window_first(cache, stream, len);
	uint32_t need = first / cache->tile_tokens * cache->tile_tokens;

	if (!view->holds[stream] || need <= view->need[stream])
		return;
	view->need[stream] = need;
	if (first >= view->end)
		unref_stream(view, stream);
	kv_segment_update(view->seg);
}

void kv_view_put(struct kv_view *view)
{
	struct kv_segment *seg = view->seg;

	for (uint32_t s = 0; s < seg->cache->nr_streams; s++)
		unref_stream(view, s);
	LIST_REMOVE(view, link);
	view->seg = NULL;
	/* Used just now: to the young end, in the order of putting. */
	set_in_lru(seg, false);
	kv_segment_update(seg);
}

int kv_segment_hold(struct kv_segment *seg)
{
	bool is_lost = false;

	for (uint32_t s = 0; s < seg->cache->nr_streams; s++) {
		if (seg->streams[s].is_dropped || wake_stream(seg, s))
			continue;
		lose_stream(seg, s);
		is_lost = true;
	}
	seg->nr_holds++;
	if (is_lost)
		kv_segment_unhold(seg);
	else
		recount(seg);
	return is_lost ? -ESTALE : 0;
}

void kv_segment_unhold(struct kv_segment *seg)
{
	seg->nr_holds--;
	for (uint32_t s = 0; s < seg->cache->nr_streams; s++)
		rest_stream(seg, s);
	set_in_lru(seg, false);
	kv_segment_update(seg);
}

/* What of a segment in chains nobody needs: streams, tiles behind windows, tiles at its end. */
static void evict_parts(struct kv_segment *seg)
{
	struct kv_cache *cache = seg->cache;
	const struct kv_view *view;
	uint32_t first, end, last_end = seg->start;
	bool is_fixed = false;

	LIST_FOREACH(view, &seg->views, link)
	last_end = view->end > last_end ? view->end : last_end;
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		if (!seg->streams[s].bufs)
			continue;
		needed_tiles(seg, s, &first, &end);
		if (!seg->streams[s].nr_refs)
			kv_segment_drop_stream(seg, s);
		else if (seg->streams[s].is_fixed)
			is_fixed = true;
		else
			kv_segment_trim(seg, s, first, end);
	}
	if (!is_fixed) {
		if (seg->entries)
			prefix_cut(&cache->index, seg,
				   (last_end - seg->start) /
					   cache->tile_tokens);
		seg->nr_tokens = last_end - seg->start;
	}
	kv_segment_update(seg);
}

bool kv_evict_one(struct kv_cache *cache)
{
	struct kv_segment *seg;

	TAILQ_FOREACH(seg, &cache->lru, lru_link)
	{
		if (seg->nr_holds)
			continue;
		cache->stat.evictions++;
		PROBE_SEGMENT_EVICT(seg->id, seg->evictable_bytes);
		if (!LIST_EMPTY(&seg->views))
			evict_parts(seg);
		else
			destroy(seg, true);
		return true;
	}
	return false;
}

int kv_make_room(struct kv_cache *cache, uint64_t bytes)
{
	struct kvpool_stat stat;

	for (;;) {
		kvpool_stat(cache->pool, &stat);
		if (stat.resident_bytes + bytes <=
		    stat.limit_bytes + kv_cache_takeable(cache, &stat))
			return 0;
		if (!kv_evict_one(cache))
			return -ENOSPC;
	}
}
