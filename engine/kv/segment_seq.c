/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence as its writer and the attention plan see it: growing, windows,
 * truncation, and where tokens lie. How it begins, ends and branches is in
 * segment_open.c and segment_branch.c. Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment_private.h"

struct kv_seq *kv_seq_alloc(struct kv_cache *cache, uint32_t reserve_tokens,
			    uid_t owner)
{
	struct kv_seq *seq = calloc(1, sizeof(*seq));

	if (!seq)
		return NULL;
	seq->cache = cache;
	seq->reserve_tokens = reserve_tokens;
	seq->owner = owner;
	TAILQ_INSERT_TAIL(&cache->seqs, seq, link);
	cache->stat.nr_seqs++;
	return seq;
}

void kv_seq_free(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	struct kv_segment *leaf = seq->leaf;

	seq->leaf = NULL;
	kv_seq_account(seq);
	kv_segment_free(leaf);
	/* The deepest first: it is the first to be evicted. */
	while (seq->nr_views)
		kv_view_put(&seq->views[--seq->nr_views]);
	TAILQ_REMOVE(&cache->seqs, seq, link);
	cache->stat.nr_seqs--;
	free(seq);
}

uint32_t kv_seq_len(const struct kv_seq *seq)
{
	return seq->len;
}

/*
 * Let go of what no row from the current length on can see. Earlier rows have been computed by
 * now, so this is called when the next ones begin, and off the token path. What is shared is found
 * by borders of tiles: there the window in front of the last one is kept as well.
 */
void kv_seq_advance_window(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	uint32_t len = cache->is_sharing ? seq->len / cache->tile_tokens *
						   cache->tile_tokens :
					   seq->len;

	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		if (!kv_is_windowed(cache, s))
			continue;
		uint32_t first = kv_window_first(cache, s, len);

		for (uint32_t i = 0;
		     i < seq->nr_views && seq->views[i].first < first; i++)
			kv_view_advance(&seq->views[i], s, len);
		if (first > seq->leaf->start)
			kv_segment_trim(seq->leaf, s,
					(first - seq->leaf->start) /
						cache->tile_tokens,
					UINT32_MAX);
	}
}

static int copy_views(struct kv_segment *to, uint32_t s,
		      const struct kv_view *views, uint32_t nr_views,
		      const struct kv_segment *leaf, uint32_t first,
		      uint32_t end)
{
	int err = 0;

	for (uint32_t i = 0; i < nr_views && !err; i++) {
		uint32_t lo = views[i].first > first ? views[i].first : first;
		uint32_t hi = views[i].end < end ? views[i].end : end;

		if (lo < hi)
			err = kv_segment_copy(to, views[i].seg, s, lo, hi);
	}
	if (leaf && leaf->start < end && !err)
		err = kv_segment_copy(to, leaf, s,
				      leaf->start > first ? leaf->start : first,
				      end);
	return err;
}

static void copy_ids(struct kv_segment *to, const struct kv_segment *from,
		     uint32_t first, uint32_t end)
{
	memcpy(to->tokens + (first - to->start),
	       from->tokens + (first - from->start),
	       (end - first) * sizeof(*to->tokens));
}

int kv_seq_fill(struct kv_segment *to, const struct kv_view *views,
		uint32_t nr_views, const struct kv_segment *leaf,
		uint32_t first, uint32_t end)
{
	struct kv_cache *cache = to->cache;
	uint32_t T = cache->tile_tokens;

	if (kv_segment_grow(to, end - to->start))
		return -ENOMEM;
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		struct kv_seg_stream *st = &to->streams[s];
		uint32_t from = first, seen = 0;

		if (kv_is_windowed(cache, s))
			seen = kv_window_first(cache, s, end);
		if (seen / T * T > first)
			from = seen / T * T;
		if (!st->end_tile && from > to->start) {
			/* Tiles behind the window are never made. */
			st->first_tile = (from - to->start) / T;
			st->end_tile = st->first_tile;
		}
		int err =
			kv_segment_commit(to, s, kv_div_up(end - to->start, T));

		if (!err && seen < end)
			err = copy_views(to, s, views, nr_views, leaf, from,
					 end);
		if (err)
			return err;
	}
	for (uint32_t i = 0; i < nr_views; i++) {
		if (views[i].end > first && views[i].first < end)
			copy_ids(to, views[i].seg,
				 views[i].first > first ? views[i].first :
							  first,
				 views[i].end < end ? views[i].end : end);
	}
	if (leaf && leaf->start < end)
		copy_ids(to, leaf, leaf->start > first ? leaf->start : first,
			 end);
	to->nr_tokens = end - to->start;
	return 0;
}

/* Border keys of tiles that became whole between two numbers of the leaf's tokens with ids. */
static void hash_tiles(struct kv_segment *leaf, uint32_t from_tokens,
		       uint32_t end_tokens)
{
	struct kv_cache *cache = leaf->cache;
	uint32_t T = cache->tile_tokens;

	if (!cache->options.prefix_cache)
		return;
	for (uint32_t i = from_tokens / T; i < end_tokens / T; i++)
		prefix_hash(&cache->index,
			    i ? &leaf->keys[i - 1] : &leaf->start_key,
			    leaf->tokens + (size_t)i * T,
			    T * sizeof(*leaf->tokens), &leaf->keys[i]);
}

/* Commit the tiles of tokens up to @end, within the reservation or what is free beyond it. */
static int commit_to(struct kv_seq *seq, uint32_t end)
{
	struct kv_cache *cache = seq->cache;
	struct kv_segment *leaf = seq->leaf;
	uint32_t end_tile = kv_div_up(end - leaf->start, cache->tile_tokens);
	uint32_t before[KV_MAX_STREAMS];
	uint64_t beyond = 0;

	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		const struct kv_seg_stream *st = &leaf->streams[s];
		uint32_t need = kv_need_tiles(cache, s, leaf->start,
					      seq->reserve_tokens);
		uint64_t promise = kv_need_bytes(cache, s, need);
		uint64_t now =
			kv_tile_bytes(cache, s, st->first_tile, st->end_tile);
		uint64_t want = kv_tile_bytes(
			cache, s, st->first_tile,
			end_tile > st->end_tile ? end_tile : st->end_tile);

		before[s] = st->end_tile;
		if (want > promise)
			beyond += want - (now > promise ? now : promise);
	}
	if (beyond && !kv_cache_admits(cache, beyond, 0))
		return -ENOSPC;
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		int err = kv_segment_commit(leaf, s, end_tile);

		if (!err)
			continue;
		while (s--)
			kv_segment_trim(leaf, s, leaf->streams[s].first_tile,
					before[s]);
		return err;
	}
	return 0;
}

int kv_seq_append(struct kv_seq *seq, const int32_t *tokens, uint32_t nr)
{
	struct kv_cache *cache = seq->cache;
	struct kv_segment *leaf = seq->leaf;
	uint32_t nr_before = leaf->nr_tokens;

	if (nr > cache->options.max_tokens ||
	    seq->len > cache->options.max_tokens - nr)
		return -E2BIG;
	if (kv_segment_grow(leaf, nr_before + nr))
		return -ENOSPC;
	kv_seq_advance_window(seq);
	int err = commit_to(seq, seq->len + nr);

	if (!err) {
		leaf->nr_tokens += nr;
		seq->len += nr;
	}
	if (!err && tokens) {
		memcpy(leaf->tokens + nr_before, tokens, nr * sizeof(*tokens));
		hash_tiles(leaf, nr_before, leaf->nr_tokens);
	} else if (!err) {
		seq->nr_unnamed += nr;
	}
	kv_seq_account(seq);
	kv_stat_publish(cache);
	return err;
}

void kv_seq_name(struct kv_seq *seq, int32_t token)
{
	struct kv_segment *leaf = seq->leaf;
	uint32_t at = leaf->nr_tokens - seq->nr_unnamed--;

	leaf->tokens[at] = token;
	hash_tiles(leaf, at, at + 1);
}

void kv_seq_prepare(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	uint32_t ahead = seq->len + cache->tile_tokens / 2;

	kv_seq_advance_window(seq);
	kv_seq_account(seq);
	/* When half of the last tile is filled, and only what was promised. */
	if (kv_div_up(ahead, cache->tile_tokens) <=
	    kv_div_up(seq->reserve_tokens, cache->tile_tokens))
		commit_to(seq, ahead);
	kv_seq_account(seq);
	kv_stat_publish(cache);
}

/* Whether a stream still has what the row at @len sees. */
static bool has_window(const struct kv_seq *seq, uint32_t s, uint32_t len)
{
	const struct kv_cache *cache = seq->cache;
	const struct kv_segment *leaf = seq->leaf;
	uint32_t first = kv_window_first(cache, s, len), T = cache->tile_tokens;

	if (first >= len)
		return true;
	for (uint32_t i = 0; i < seq->nr_views; i++) {
		const struct kv_view *view = &seq->views[i];

		/* Not what happens to be resident still: that may be evicted any time. */
		if (view->end > first && view->first < len &&
		    (!view->holds[s] ||
		     (first < view->need[s] && view->first < view->need[s])))
			return false;
	}
	return leaf->start >= len || !leaf->streams[s].first_tile ||
	       first >= leaf->start + leaf->streams[s].first_tile * T;
}

/* The leaf ends at @len now; at most one tile beyond is kept. */
static void truncate_leaf(struct kv_seq *seq, uint32_t len)
{
	struct kv_segment *leaf = seq->leaf;
	uint32_t used = kv_div_up(len - leaf->start, seq->cache->tile_tokens);

	leaf->nr_tokens = len - leaf->start;
	for (uint32_t s = 0; s < seq->cache->nr_streams; s++) {
		struct kv_seg_stream *st = &leaf->streams[s];
		uint32_t next = leaf->nr_tokens / seq->cache->tile_tokens;

		kv_segment_trim(leaf, s, st->first_tile, used + 1);
		if (st->first_tile <= next)
			continue;
		/* The next row sees nothing of what is gone: start again at its tile. */
		kv_segment_trim(leaf, s, st->first_tile, st->first_tile);
		st->first_tile = next;
		st->end_tile = next;
	}
}

/* The chain ends at @len now: a new leaf behind the last whole tile, with the tokens past it. */
static int truncate_chain(struct kv_seq *seq, uint32_t len)
{
	struct kv_cache *cache = seq->cache;
	uint32_t start = len / cache->tile_tokens * cache->tile_tokens, nr = 0;
	uint32_t most = seq->reserve_tokens > len ? seq->reserve_tokens : len;
	uint64_t extra = 0;

	for (uint32_t s = 0; s < cache->nr_streams; s++)
		extra += kv_need_bytes(cache, s,
				       kv_need_tiles(cache, s, start, most));
	/* Copied before anything is let go, so that a failure leaves the sequence as it is. */
	if (!kv_cache_admits(cache, extra,
			     seq->leaf_bytes + seq->promised_bytes))
		return -EAGAIN;
	while (seq->views[nr].end < start ||
	       (seq->views[nr].end == start && start < len))
		nr++;
	struct kv_view *view = &seq->views[nr];
	struct kv_segment *leaf =
		kv_segment_alloc(cache, start, seq->reserve_tokens, seq->owner);

	if (!leaf)
		return -ENOMEM;
	uint32_t tile = (start - view->seg->start) / cache->tile_tokens;

	leaf->start_key = tile ? view->seg->keys[tile - 1] :
				 view->seg->start_key;
	int err = start < len ? kv_seq_fill(leaf, view, 1, NULL, start, len) :
				0;

	if (err) {
		kv_segment_free(leaf);
		return err == -ENOSPC ? -EAGAIN : err;
	}
	kv_segment_free(seq->leaf);
	seq->leaf = leaf;
	while (seq->nr_views > nr + 1)
		kv_view_put(&seq->views[--seq->nr_views]);
	if (view->first < start) {
		view->end = start;
		kv_segment_update(view->seg);
	} else {
		kv_view_put(&seq->views[--seq->nr_views]);
	}
	return 0;
}

int kv_seq_truncate(struct kv_seq *seq, uint32_t len)
{
	int err = 0;

	if (len > seq->len)
		return -EINVAL;
	for (uint32_t s = 0; s < seq->cache->nr_streams; s++) {
		if (kv_is_windowed(seq->cache, s) && !has_window(seq, s, len))
			return -ESTALE;
	}
	if (len >= seq->leaf->start)
		truncate_leaf(seq, len);
	else
		err = truncate_chain(seq, len);
	if (!err) {
		uint32_t nr_gone = seq->len - len;

		seq->nr_unnamed = seq->nr_unnamed > nr_gone ?
					  seq->nr_unnamed - nr_gone :
					  0;
		seq->len = len;
		if (seq->indexed_len > len)
			seq->indexed_len = len;
	}
	kv_seq_account(seq);
	kv_stat_publish(seq->cache);
	return err;
}

uint8_t *kv_seq_tile(const struct kv_seq *seq, uint32_t stream, uint32_t token)
{
	const struct attn_layout *layout = &seq->cache->layouts[stream];

	return seq->leaf->streams[stream].base +
	       (uint64_t)((token - seq->leaf->start) / layout->tile_tokens) *
		       layout->stride_bytes;
}

uint8_t *kv_seq_dense(const struct kv_seq *seq, uint32_t stream, uint32_t layer,
		      bool v)
{
	return kvpool_buf_addr(seq->leaf->streams[stream].bufs[2 * layer + v]);
}

/* The part of [first, end) that lies in @seg, which serves [seg_first, seg_end) of the chain. */
static bool make_piece(const struct kv_segment *seg, uint32_t stream,
		       uint32_t first, uint32_t end, struct attn_piece *out)
{
	const struct attn_layout *layout = &seg->cache->layouts[stream];
	const struct kv_seg_stream *st = &seg->streams[stream];
	uint32_t tile = (first - seg->start) / layout->tile_tokens;

	*out = (struct attn_piece){
		.base = st->base + tile * layout->stride_bytes,
		.base_token = seg->start + tile * layout->tile_tokens,
		.first_token = first,
		.end_token = end,
	};
	return tile >= st->first_tile;
}

int kv_seq_pieces(const struct kv_seq *seq, uint32_t stream, uint32_t first,
		  uint32_t end, struct attn_piece *out_pieces)
{
	uint32_t nr = 0;

	if (seq->cache->options.layout != KV_LAYOUT_TILE || end > seq->len ||
	    first > end)
		return -EINVAL;
	for (uint32_t i = 0; i < seq->nr_views && first < end; i++) {
		const struct kv_view *view = &seq->views[i];
		uint32_t hi = view->end < end ? view->end : end;

		if (view->end <= first)
			continue;
		if (!view->holds[stream] || first < view->need[stream] ||
		    !make_piece(view->seg, stream, first, hi,
				&out_pieces[nr++]))
			return -ESTALE;
		first = hi;
	}
	if (first < end &&
	    !make_piece(seq->leaf, stream, first, end, &out_pieces[nr++]))
		return -ESTALE;
	return (int)nr;
}
