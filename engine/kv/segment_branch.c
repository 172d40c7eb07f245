/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing and forking: a leaf becomes a sealed segment of the chain and its
 * writer goes on in a new leaf; a second writer starts on the same chain.
 * Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment_private.h"
#include "engine/kv/shared_prefix.h"
#include "engine/probes.h"

/* The reservation, or what it has grown to beyond it. */
static uint32_t most_tokens(const struct kv_seq *seq)
{
	return seq->reserve_tokens > seq->len ? seq->reserve_tokens : seq->len;
}

static uint64_t leaf_need_bytes(const struct kv_cache *cache, uint32_t start,
				uint32_t reserve)
{
	uint64_t bytes = 0;

	for (uint32_t s = 0; s < cache->nr_streams; s++)
		bytes += kv_need_bytes(cache, s,
				       kv_need_tiles(cache, s, start, reserve));
	return bytes;
}

static const struct kvpool_key *border_key(const struct kv_segment *seg,
					   uint32_t token)
{
	uint32_t tile = (token - seg->start) / seg->cache->tile_tokens;

	return tile ? &seg->keys[tile - 1] : &seg->start_key;
}

/* A leaf from @start on with [start, len) of @from's leaf, which stays as it is. */
static int copy_leaf(const struct kv_seq *from, uint32_t start,
		     uint32_t reserve, struct kv_segment **out_leaf)
{
	uint32_t T = from->cache->tile_tokens;
	struct kv_segment *leaf = kv_segment_alloc(
		from->cache, start, reserve > from->len ? reserve : from->len,
		from->owner);

	if (!leaf)
		return -ENOMEM;
	leaf->start_key = *border_key(from->leaf, start);
	for (uint32_t i = 0; i < (from->len - start) / T; i++)
		leaf->keys[i] =
			from->leaf->keys[(start - from->leaf->start) / T + i];
	int err = from->len > start ? kv_seq_fill(leaf, NULL, 0, from->leaf,
						  start, from->len) :
				      0;

	if (err) {
		kv_segment_free(leaf);
		return err == -ENOSPC ? -EAGAIN : err;
	}
	*out_leaf = leaf;
	return 0;
}

/*
 * Move everything behind the first views into one leaf. Rare: once in KV_COMPACT_VIEWS seals of
 * one chain.
 */
static int compact(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	uint32_t start = seq->views[KV_COMPACT_VIEWS].first,
		 T = cache->tile_tokens;

	/* Old and new memory at once, so that a failure leaves the sequence as it is. */
	if (!kv_cache_admits(
		    cache, leaf_need_bytes(cache, start, most_tokens(seq)), 0))
		return -EAGAIN;
	struct kv_segment *leaf =
		kv_segment_alloc(cache, start, seq->reserve_tokens, seq->owner);

	if (!leaf)
		return -ENOMEM;
	int err = kv_seq_fill(leaf, seq->views + KV_COMPACT_VIEWS,
			      seq->nr_views - KV_COMPACT_VIEWS, seq->leaf,
			      start, seq->len);

	if (err) {
		kv_segment_free(leaf);
		return err == -ENOSPC ? -EAGAIN : err;
	}
	leaf->start_key = *border_key(seq->views[KV_COMPACT_VIEWS].seg, start);
	for (uint32_t i = KV_COMPACT_VIEWS; i < seq->nr_views; i++) {
		const struct kv_view *view = &seq->views[i];

		for (uint32_t t = view->first; t < view->end; t += T)
			leaf->keys[(t - start) / T] =
				*border_key(view->seg, t + T);
	}
	for (uint32_t t = seq->leaf->start; t + T <= seq->len; t += T)
		leaf->keys[(t - start) / T] = *border_key(seq->leaf, t + T);
	kv_segment_free(seq->leaf);
	seq->leaf = leaf;
	while (seq->nr_views > KV_COMPACT_VIEWS)
		kv_view_put(&seq->views[--seq->nr_views]);
	kv_seq_account(seq);
	return 0;
}

/* The sealed leaf joins the chain with its whole tiles. */
static void push_view(struct kv_seq *seq, struct kv_segment *seg)
{
	uint32_t T = seq->cache->tile_tokens;
	struct kv_view *view = &seq->views[seq->nr_views];

	if (seg->nr_tokens < T)
		return;
	*view = (struct kv_view){
		.seg = seg,
		.first = seg->start,
		.end = seg->start + seg->nr_tokens / T * T,
	};
	/* Held since it was sealed: nothing of it can have been purged. */
	if (!kv_view_get(view, seq->len))
		seq->nr_views++;
}

static int seal_leaf(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	uint32_t start = seq->len / cache->tile_tokens * cache->tile_tokens;
	struct kv_segment *leaf;
	int err = 0;

	if (seq->nr_views == KV_MAX_CHAIN && start > seq->leaf->start)
		err = compact(seq);
	if (err)
		return err;
	struct kv_segment *old = seq->leaf;
	uint32_t end_tile = kv_div_up(old->nr_tokens, cache->tile_tokens);

	kv_seq_advance_window(seq);
	for (uint32_t s = 0; s < cache->nr_streams; s++)
		kv_segment_trim(old, s, old->streams[s].first_tile, end_tile);
	kv_seq_account(seq);
	/* Old tiles stay (the last one until it is copied); the promise is the new leaf's. */
	if (!kv_cache_admits(cache,
			     leaf_need_bytes(cache, start, most_tokens(seq)),
			     seq->promised_bytes))
		return -EAGAIN;
	err = copy_leaf(seq, start, seq->reserve_tokens, &leaf);
	if (err)
		return err;
	seq->leaf = leaf;
	kv_seq_account(seq);
	kv_segment_seal(old);
	push_view(seq, old);
	if (seq->keeps_prefix)
		shared_prefix_queue(old);
	kv_segment_unhold(old);
	if (seq->keeps_prefix)
		seq->indexed_len = seq->len;
	return 0;
}

int kv_seq_seal(struct kv_seq *seq)
{
	struct kv_cache *cache = seq->cache;
	int err = 0;

	/* The dense layout has chains of one segment: it is offered when the sequence ends. */
	if (seq->keeps_prefix && cache->options.layout == KV_LAYOUT_TILE &&
	    seq->leaf->nr_tokens && seq->len > seq->indexed_len)
		err = seal_leaf(seq);
	kv_stat_publish(cache);
	return err;
}

/* The same chain once more. Every stream that the parent holds is there. */
static void share_views(const struct kv_seq *seq, struct kv_seq *child)
{
	for (uint32_t i = 0; i < seq->nr_views; i++) {
		struct kv_view *view = &child->views[child->nr_views++];

		*view = seq->views[i];
		kv_view_get(view, seq->len);
	}
}

static int fork_seq(struct kv_seq *seq, uint32_t reserve,
		    struct kv_seq **out_seq)
{
	struct kv_cache *cache = seq->cache;

	if (!kv_cache_admits(cache,
			     leaf_need_bytes(cache, seq->leaf->start, reserve),
			     0))
		return -EAGAIN;
	struct kv_seq *child = kv_seq_alloc(cache, reserve, seq->owner);

	if (!child)
		return -ENOMEM;
	int err = copy_leaf(seq, seq->leaf->start, reserve, &child->leaf);

	if (!err && cache->options.layout == KV_LAYOUT_LAYER) {
		for (uint32_t s = 0; !err && s < cache->nr_streams; s++)
			err = kv_segment_open_bufs(child->leaf, s);
	}
	if (err) {
		kv_seq_free(child);
		return err;
	}
	share_views(seq, child);
	child->len = seq->len;
	child->indexed_len = seq->indexed_len;
	child->keeps_prefix = seq->keeps_prefix;
	kv_seq_account(child);
	PROBE_SEGMENT_FORK(seq->leaf->id, child->leaf->id, seq->len);
	*out_seq = child;
	return 0;
}

int kv_seq_fork(struct kv_seq *seq, uint32_t reserve_tokens,
		struct kv_seq **out_seq)
{
	struct kv_cache *cache = seq->cache;
	uint32_t reserve = reserve_tokens > seq->len ? reserve_tokens :
						       seq->len;
	int err = kv_check_size(cache, reserve);

	if (!err) {
		kv_seq_advance_window(seq);
		kv_seq_account(seq);
		/* Less than a tile is copied straight away; more is shared, and so sealed. */
		if (cache->options.layout == KV_LAYOUT_TILE &&
		    seq->leaf->nr_tokens >= cache->tile_tokens)
			err = seal_leaf(seq);
	}
	if (!err)
		err = fork_seq(seq, reserve, out_seq);
	kv_stat_publish(cache);
	return err;
}
