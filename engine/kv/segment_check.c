/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every invariant of a cache, recomputed from scratch and compared with what
 * is counted. For tests: cost grows with all there is. Driver thread.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/kv/segment_private.h"

struct check {
	struct kv_cache *cache;
	char *err;
	size_t errlen;
	uint64_t leaf_bytes, promised_bytes, ahead_bytes, seg_pinned_bytes,
		evictable_bytes;
	uint64_t nr_seq_views, nr_seg_views, nr_bufs, nr_entries, nr_unused;
	uint64_t rest_bytes, foreign_bytes;
};

__attribute__((format(printf, 2, 3))) static int breach(const struct check *c,
							const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->err, c->errlen, format, args);
	va_end(args);
	return -EINVAL;
}

/* Buffers hold exactly the pages of the tiles that the segment counts. */
static int check_bufs(struct check *c, const struct kv_segment *seg, uint32_t s)
{
	struct kv_cache *cache = c->cache;
	const struct kv_seg_stream *st = &seg->streams[s];
	uint64_t expected =
			 kv_tile_bytes(cache, s, st->first_tile, st->end_tile),
		 resident = 0;
	bool is_purged = false;

	for (uint32_t i = 0; st->bufs && i < cache->nr_bufs[s]; i++) {
		struct kvpool_buf_stat stat;

		kvpool_buf_stat(st->bufs[i], &stat);
		resident += stat.resident_bytes;
		is_purged = is_purged || stat.is_purged;
		c->nr_bufs++;
	}
	if (st->first_tile > st->end_tile)
		return breach(c, "segment at %u: tiles [%u, %u)", seg->start,
			      st->first_tile, st->end_tile);
	/* Sealed in the pool: others may see more of it, and it may be gone unless it is in use. */
	if (resident != expected && !is_purged && !st->is_imported &&
	    !(st->is_fixed &&
	      (resident > expected || (!resident && !st->nr_refs))))
		return breach(
			c,
			"segment at %u, stream %u: %llu bytes resident, %llu counted",
			seg->start, s, (unsigned long long)resident,
			(unsigned long long)expected);
	return 0;
}

static int check_segment(struct check *c, const struct kv_segment *seg)
{
	struct kv_cache *cache = c->cache;
	const struct kv_view *view;
	uint64_t all = 0;

	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		const struct kv_seg_stream *st = &seg->streams[s];
		uint32_t nr_refs = 0;
		int err = check_bufs(c, seg, s);

		if (err)
			return err;
		LIST_FOREACH(view, &seg->views, link)
		nr_refs += view->holds[s];
		if (nr_refs != st->nr_refs)
			return breach(
				c,
				"segment at %u, stream %u: %u references counted, %u held",
				seg->start, s, st->nr_refs, nr_refs);
		uint64_t bytes =
			kv_tile_bytes(cache, s, st->first_tile, st->end_tile);

		all += bytes;
		if (st->is_alias ||
		    (st->is_fixed && !nr_refs && !cache->options.exchange))
			c->foreign_bytes += bytes;
		else if (!nr_refs)
			c->rest_bytes += bytes;
	}
	LIST_FOREACH(view, &seg->views, link)
	c->nr_seg_views++;
	if (seg->pinned_bytes + seg->evictable_bytes != all)
		return breach(
			c, "segment at %u: pinned and evictable do not add up",
			seg->start);
	if (seg->in_lru != (seg->evictable_bytes > 0))
		return breach(c, "segment at %u: evictable but not in the list",
			      seg->start);
	if (seg->nr_holds)
		return breach(c, "segment at %u is still held for copying",
			      seg->start);
	if (LIST_EMPTY(&seg->views) && !seg->entries)
		return breach(c, "segment at %u: nobody leads to it",
			      seg->start);
	c->nr_entries += seg->nr_entries;
	c->nr_unused += LIST_EMPTY(&seg->views);
	c->seg_pinned_bytes += seg->pinned_bytes;
	c->evictable_bytes += seg->evictable_bytes;
	return 0;
}

/* What the next row sees is there, in every stream. */
static int check_visible(struct check *c, const struct kv_seq *seq)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];

	if (c->cache->options.layout != KV_LAYOUT_TILE)
		return 0;
	for (uint32_t s = 0; s < c->cache->nr_streams; s++) {
		uint32_t first = kv_window_first(c->cache, s, seq->len);
		int nr = kv_seq_pieces(seq, s,
				       first < seq->len ? first : seq->len,
				       seq->len, pieces);

		if (nr < 0)
			return breach(
				c,
				"sequence of %u tokens, stream %u: a visible key is gone",
				seq->len, s);
		for (int i = 0; i < nr; i++)
			first = pieces[i].first_token == first ?
					pieces[i].end_token :
					UINT32_MAX;
		if (nr && first != seq->len)
			return breach(
				c,
				"sequence of %u tokens, stream %u: pieces have a gap",
				seq->len, s);
	}
	return 0;
}

static int check_seq(struct check *c, const struct kv_seq *seq)
{
	uint32_t pos = 0;

	for (uint32_t i = 0; i < seq->nr_views; i++) {
		const struct kv_view *view = &seq->views[i];

		if (view->first != pos || view->end <= pos ||
		    view->end % c->cache->tile_tokens ||
		    view->end > view->seg->start + view->seg->nr_tokens)
			return breach(c,
				      "view %u of a chain: [%u, %u) after %u",
				      i, view->first, view->end, pos);
		pos = view->end;
	}
	if (seq->leaf->start != pos || pos + seq->leaf->nr_tokens != seq->len)
		return breach(c,
			      "leaf at %u with %u tokens after %u, length %u",
			      seq->leaf->start, seq->leaf->nr_tokens, pos,
			      seq->len);
	c->nr_seq_views += seq->nr_views;
	c->leaf_bytes += seq->leaf_bytes;
	c->promised_bytes += seq->promised_bytes;
	c->ahead_bytes += seq->ahead_bytes;
	uint64_t bytes = 0;

	for (uint32_t s = 0; s < c->cache->nr_streams; s++) {
		const struct kv_seg_stream *st = &seq->leaf->streams[s];
		int err = check_bufs(c, seq->leaf, s);

		if (err)
			return err;
		bytes += kv_tile_bytes(c->cache, s, st->first_tile,
				       st->end_tile);
	}
	if (bytes != seq->leaf_bytes)
		return breach(c,
			      "leaf at %u: its tiles are not what is counted",
			      seq->leaf->start);
	return check_visible(c, seq);
}

static int check_index(struct check *c)
{
	const struct prefix_index *index = &c->cache->index;
	uint64_t nr = 0;

	for (size_t i = 0; i < index->nr_buckets; i++) {
		for (const struct prefix_entry *e = index->by_start[i]; e;
		     e = e->start_next) {
			if (e != &e->seg->entries[e->tile])
				return breach(
					c,
					"the index leads to a segment that is gone");
			nr++;
		}
	}
	if (nr != index->nr_entries || nr != c->nr_entries)
		return breach(
			c,
			"%llu entries in the index, %zu counted, %llu in segments",
			(unsigned long long)nr, index->nr_entries,
			(unsigned long long)c->nr_entries);
	return 0;
}

static int check_totals(struct check *c)
{
	struct kv_cache *cache = c->cache;
	struct kvpool_stat stat;

	kvpool_stat(cache->pool, &stat);
	if (c->leaf_bytes + c->seg_pinned_bytes != cache->pinned_bytes ||
	    c->evictable_bytes != cache->evictable_bytes ||
	    c->promised_bytes != cache->promised_bytes ||
	    c->ahead_bytes != cache->ahead_bytes)
		return breach(
			c,
			"totals differ: pinned %llu, evictable %llu, promised %llu",
			(unsigned long long)cache->pinned_bytes,
			(unsigned long long)cache->evictable_bytes,
			(unsigned long long)cache->promised_bytes);
	if (c->rest_bytes != cache->rest_bytes ||
	    c->foreign_bytes != cache->foreign_bytes)
		return breach(c, "totals differ: rest %llu, foreign %llu",
			      (unsigned long long)cache->rest_bytes,
			      (unsigned long long)cache->foreign_bytes);
	if (!stat.purges &&
	    stat.resident_bytes < cache->pinned_bytes + cache->evictable_bytes -
					  cache->foreign_bytes)
		return breach(c, "more is counted than the pool has");
	if (c->nr_unused != cache->stat.nr_cached_segments)
		return breach(
			c, "%llu segments in no chain, %llu counted",
			(unsigned long long)c->nr_unused,
			(unsigned long long)cache->stat.nr_cached_segments);
	if (c->nr_seq_views != c->nr_seg_views)
		return breach(c, "%llu views in chains, %llu in segments",
			      (unsigned long long)c->nr_seq_views,
			      (unsigned long long)c->nr_seg_views);
	if (stat.resident_bytes + stat.spare_bytes > stat.limit_bytes)
		return breach(c, "the pool is over its limit");
	/* Alone in the pool: every resident page is one of ours, and promises can be kept. */
	if (stat.nr_buffers == c->nr_bufs && !stat.purges &&
	    !cache->is_sharing &&
	    stat.resident_bytes != cache->pinned_bytes + cache->evictable_bytes)
		return breach(
			c, "%llu bytes resident in the pool, %llu in the cache",
			(unsigned long long)stat.resident_bytes,
			(unsigned long long)(cache->pinned_bytes +
					     cache->evictable_bytes));
	if (stat.nr_buffers == c->nr_bufs && !cache->is_sharing &&
	    cache->pinned_bytes + cache->promised_bytes > stat.limit_bytes)
		return breach(c, "more is promised than there is");
	return 0;
}

int kv_cache_check(struct kv_cache *cache, char *err, size_t errlen)
{
	struct check c = { .cache = cache, .err = err, .errlen = errlen };
	const struct kv_segment *seg;
	const struct kv_seq *seq;
	int ret;

	TAILQ_FOREACH(seg, &cache->segments, link)
	{
		ret = check_segment(&c, seg);
		if (ret)
			return ret;
	}
	TAILQ_FOREACH(seq, &cache->seqs, link)
	{
		ret = check_seq(&c, seq);
		if (ret)
			return ret;
	}
	ret = check_index(&c);
	return ret ? ret : check_totals(&c);
}
