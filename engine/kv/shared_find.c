/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a prompt's beginning in the pool and taking it into this cache's
 * index: see shared_prefix.h. Driver thread.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/exchange.h"
#include "engine/kv/shared_prefix.h"

/*
 * A published buffer of one stream, as far as the prompt goes: tokens [start, end). Of another
 * process it is a descriptor until it is mapped, which costs more than to find it.
 */
struct found {
	struct kvpool_buf *buf; /* NULL: not mapped yet, or none */
	int fd; /* -1: none */
	uint32_t start, end;
};

struct search {
	struct kv_cache *cache;
	const struct kvpool_key *root;
	const int32_t *tokens;
	uint32_t stream; /* that leads: one without a window, if there is one */
	uint32_t nr_tiles; /* of the prompt, whole ones */
	uint32_t nr_lookups;
	struct found found[SHARED_PREFIX_MAX_SEGMENTS]; /* the last one first */
	uint32_t nr_found;
};

static void put_found(struct found *found)
{
	kvpool_buf_put(found->buf);
	found->buf = NULL;
	if (found->fd >= 0)
		close(found->fd);
	found->fd = -1;
}

/* Ask whoever shares with us. Return: 0; or it is not there. */
static int ask(struct kv_cache *cache, const struct kvpool_key *key,
	       struct found *out, uint64_t *out_n)
{
	struct kv_exchange_found found;

	*out = (struct found){ .fd = -1 };
	if (!cache->options.exchange)
		return kvpool_lookup(cache->pool, key, &out->buf, out_n, NULL);
	int err = kv_exchange_find(cache->options.exchange, key, &found);

	if (!err) {
		out->fd = found.fd;
		*out_n = found.n_bytes;
	}
	return err;
}

/* Tiles [first, end) of what is found can be read from now on. */
static bool map_found(struct kv_cache *cache, uint32_t stream,
		      struct found *found, uint32_t first_tile,
		      uint32_t end_tile)
{
	uint64_t stride = cache->layouts[stream].stride_bytes;
	int err;

	if (found->buf)
		return true;
	/* As those of our own, so that its tiles have numbers. */
	err = kvpool_base(cache->pool) ?
		      kvpool_buf_import_stride(cache->pool, found->fd, stride,
					       &found->buf) :
		      kvpool_buf_import(cache->pool, found->fd, &found->buf);
	if (err)
		return false;
	/* A tile that is not there would be read by the device. */
	return !kvpool_buf_covers(found->buf, first_tile * stride,
				  (end_tile - first_tile) * stride);
}

/* The keys of match_tiles() end with the first border that the index lacks. */
static void hash_borders(struct search *search, uint32_t from_tile)
{
	struct kv_cache *cache = search->cache;
	uint32_t T = cache->tile_tokens;

	for (uint32_t i = from_tile; i < search->nr_tiles; i++)
		prefix_hash(&cache->index, &cache->match_keys[i - 1],
			    search->tokens + (size_t)i * T,
			    T * sizeof(*search->tokens), &cache->match_keys[i]);
}

/* Look for the border behind tile @end_tile - 1. The caller puts what is found. */
static bool look_up(struct search *search, uint32_t stream, uint32_t end_tile,
		    struct found *out)
{
	struct kv_cache *cache = search->cache;
	uint64_t stride = cache->layouts[stream].stride_bytes, n;
	struct kvpool_key key;

	if (search->nr_lookups++ >= SHARED_PREFIX_MAX_LOOKUPS)
		return false;
	cache->stat.nr_lookups++;
	shared_prefix_key(cache, &cache->match_keys[end_tile - 1], stream,
			  &key);
	if (ask(cache, &key, out, &n))
		return false;
	/* Whoever published it: only what our own arithmetic can mean is used. */
	if (!n || n % stride || n / stride > end_tile ||
	    (out->buf && n > kvpool_buf_size(out->buf))) {
		put_found(out);
		return false;
	}
	out->end = end_tile * cache->tile_tokens;
	out->start = out->end - (uint32_t)(n / stride) * cache->tile_tokens;
	return true;
}

/* The longest border in (@tile, @end_tile]: there are none if the first is not there. */
static bool find_last(struct search *search, uint32_t tile, uint32_t end_tile,
		      struct found *out)
{
	uint32_t good = tile + 1, bad = end_tile + 1;
	struct found next;

	if (!look_up(search, search->stream, good, out))
		return false;
	hash_borders(search, good);
	/* The whole prompt is the likeliest; then halves. */
	for (uint32_t at = end_tile; good + 1 < bad;
	     at = good + (bad - good) / 2) {
		if (look_up(search, search->stream, at, &next)) {
			put_found(out);
			*out = next;
			good = at;
		} else {
			bad = at;
		}
	}
	return true;
}

static void put_chain(struct search *search)
{
	while (search->nr_found)
		put_found(&search->found[--search->nr_found]);
}

/* Back from the last border to @len, which is known. Return: 0, or where it breaks. */
static uint32_t find_chain(struct search *search, uint32_t len)
{
	for (;;) {
		const struct found *first =
			&search->found[search->nr_found - 1];
		uint32_t start = first->start;

		if (start <= len)
			return 0;
		if (search->nr_found == SHARED_PREFIX_MAX_SEGMENTS ||
		    !look_up(search, search->stream,
			     start / search->cache->tile_tokens,
			     &search->found[search->nr_found])) {
			put_chain(search);
			return start;
		}
		search->nr_found++;
	}
}

/* Whether a stream of [start, end) is there as well; the caller puts it. */
static bool find_stream(struct search *search, uint32_t stream,
			const struct found *lead, struct found *out)
{
	if (!look_up(search, stream, lead->end / search->cache->tile_tokens,
		     out))
		return false;
	if (out->start == lead->start)
		return true;
	/* Of another writer, who cut his tokens elsewhere. */
	put_found(out);
	return false;
}

/* Another segment here has the same pages: they are counted once. */
static bool has_alias(const struct kv_cache *cache, uint32_t stream,
		      const struct kvpool_buf *buf)
{
	const struct kv_segment *seg;

	TAILQ_FOREACH(seg, &cache->segments, link)
	{
		const struct kv_seg_stream *st = &seg->streams[stream];

		if (st->is_fixed && !st->is_alias &&
		    kvpool_buf_id(st->bufs[0]) == kvpool_buf_id(buf))
			return true;
	}
	return false;
}

/* Takes @found over, also on failure. */
static bool set_stream(struct kv_segment *seg, uint32_t stream,
		       struct found *found)
{
	struct kv_cache *cache = seg->cache;
	struct kv_seg_stream *st = &seg->streams[stream];
	uint32_t first =
		shared_prefix_window(cache, stream, found->start, found->end);

	st->first_tile = (first - found->start) / cache->tile_tokens;
	st->end_tile = (found->end - found->start) / cache->tile_tokens;
	if (map_found(cache, stream, found, st->first_tile, st->end_tile))
		st->bufs = calloc(1, sizeof(struct kvpool_buf *));
	if (!st->bufs) {
		put_found(found);
		return false;
	}
	st->is_imported = found->fd >= 0;
	st->is_alias = st->is_imported || has_alias(cache, stream, found->buf);
	st->bufs[0] = kvpool_buf_get(found->buf);
	st->base = kvpool_buf_addr(found->buf);
	st->is_fixed = true;
	put_found(found);
	return true;
}

/*
 * One segment into the index, held by the caller. @need_end: where the chain ends; windows in
 * front of it are wanted. NULL: no memory, or a stream is missing. Takes @lead over, always.
 */
static struct kv_segment *import(struct search *search, struct found *lead,
				 uint32_t need_end, uid_t owner)
{
	struct kv_cache *cache = search->cache;
	uint32_t T = cache->tile_tokens, first = lead->start / T;
	struct kv_segment *seg =
		kv_segment_alloc(cache, lead->start, lead->end, owner);

	if (!seg) {
		put_found(lead);
		return NULL;
	}
	seg->nr_tokens = lead->end - lead->start;
	memcpy(seg->tokens, search->tokens + lead->start,
	       seg->nr_tokens * sizeof(*seg->tokens));
	seg->start_key = first ? cache->match_keys[first - 1] : *search->root;
	memcpy(seg->keys, &cache->match_keys[first],
	       seg->nr_tokens / T * sizeof(*seg->keys));
	struct found other, at = *lead;
	bool is_whole = set_stream(seg, search->stream, lead);

	for (uint32_t s = 0; is_whole && s < cache->nr_streams; s++) {
		bool is_seen = !kv_is_windowed(cache, s) ||
			       kv_window_first(cache, s, need_end) < at.end;

		if (s == search->stream)
			continue;
		if (is_seen && find_stream(search, s, &at, &other))
			is_whole = set_stream(seg, s, &other);
		else if (kv_is_windowed(cache, s))
			seg->streams[s].is_dropped = true;
		else
			is_whole = false;
	}
	if (!is_whole) {
		kv_segment_free(seg);
		return NULL;
	}
	kv_segment_seal(seg);
	return seg;
}

/* Nothing can go on behind a border whose window is gone. */
static bool has_windows(struct search *search, const struct found *last)
{
	struct kv_cache *cache = search->cache;

	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		struct found other;

		if (s == search->stream || !kv_is_windowed(cache, s) ||
		    kv_window_first(cache, s, last->end) >= last->end)
			continue;
		if (!find_stream(search, s, last, &other))
			return false;
		put_found(&other);
	}
	return true;
}

/* Fill in @search->found: a chain from @len or before to the longest border. */
static void find(struct search *search, uint32_t len)
{
	uint32_t T = search->cache->tile_tokens, broken;
	uint32_t end_tile = search->nr_tiles;

	while (len / T < end_tile &&
	       find_last(search, len / T, end_tile, &search->found[0])) {
		search->nr_found = 1;
		broken = find_chain(search, len / T * T);
		if (!broken)
			return;
		end_tile = broken / T - 1;
	}
}

bool shared_prefix_find(struct kv_cache *cache, const struct kvpool_key *root,
			const int32_t *tokens, uint32_t nr, uint32_t len,
			uid_t owner, struct shared_prefix *out)
{
	struct search search = {
		.cache = cache,
		.root = root,
		.tokens = tokens,
		.nr_tiles = nr / cache->tile_tokens,
	};
	uint32_t tile = len / cache->tile_tokens, last = 0;

	if (!cache->is_sharing || tile >= search.nr_tiles)
		return false;
	if (cache->options.exchange)
		kv_exchange_begin(cache->options.exchange);
	while (search.stream + 1 < cache->nr_streams &&
	       kv_is_windowed(cache, search.stream))
		search.stream++;
	if (kv_is_windowed(cache, search.stream))
		search.stream = 0;
	find(&search, len);
	while (last < search.nr_found &&
	       !has_windows(&search, &search.found[last])) {
		put_found(&search.found[last++]);
		out->lacks_window = true;
	}
	uint32_t end = last < search.nr_found ? search.found[last].end : 0;

	/* From the front: what is behind a failure would lead nowhere. */
	while (search.nr_found > last) {
		struct kv_segment *seg = import(
			&search, &search.found[--search.nr_found], end, owner);

		if (!seg)
			break;
		cache->stat.nr_imported++;
		out->segs[out->nr_segs++] = seg;
	}
	while (search.nr_found > last)
		put_found(&search.found[--search.nr_found]);
	return out->nr_segs > 0;
}

void shared_prefix_put(struct shared_prefix *shared)
{
	while (shared->nr_segs)
		kv_segment_unhold(shared->segs[--shared->nr_segs]);
}
