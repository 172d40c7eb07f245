/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a sequence begins (prefix match, admission) and ends (what it computed is
 * offered to the prefix index). Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment_private.h"
#include "engine/kv/shared_prefix.h"
#include "engine/probes.h"

/* What a sequence of @reserve tokens takes when nothing of it is shared. */
static uint64_t need_alone(const struct kv_cache *cache, uint32_t reserve)
{
	uint64_t bytes = 0;

	for (uint32_t s = 0; s < cache->nr_streams; s++)
		bytes += kv_need_bytes(cache, s,
				       kv_need_tiles(cache, s, 0, reserve));
	return bytes;
}

int kv_check_size(struct kv_cache *cache, uint32_t reserve)
{
	struct kvpool_stat stat;

	if (reserve > cache->options.max_tokens)
		return -E2BIG;
	kvpool_stat(cache->pool, &stat);
	return need_alone(cache, reserve) + cache->options.slack_bytes >
			       stat.limit_bytes ?
		       -ENOSPC :
		       0;
}

/* Views of the match that stay views; the rest is copied into the leaf. */
static uint32_t nr_kept_views(const struct kv_cache *cache,
			      const struct prefix_match *match)
{
	if (cache->options.layout == KV_LAYOUT_LAYER)
		return 0;
	return match->nr_views > KV_MAX_CHAIN ? KV_COMPACT_VIEWS :
						match->nr_views;
}

static int get_views(struct kv_seq *seq, const struct prefix_match *match,
		     uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		seq->views[i] = match->views[i];
		if (kv_view_get(&seq->views[i], match->len))
			return -ESTALE;
		seq->nr_views++;
	}
	return 0;
}

static void unhold_rest(const struct prefix_match *match, uint32_t first,
			uint32_t end)
{
	for (uint32_t i = first; i < end; i++)
		kv_segment_unhold(match->views[i].seg);
}

/* What is to be copied must not be evicted for the copy. */
static int hold_rest(const struct prefix_match *match, uint32_t first)
{
	for (uint32_t i = first; i < match->nr_views; i++) {
		if (!kv_segment_hold(match->views[i].seg))
			continue;
		unhold_rest(match, first, i);
		return -ESTALE;
	}
	if (match->part && kv_segment_hold(match->part)) {
		unhold_rest(match, first, match->nr_views);
		return -ESTALE;
	}
	return 0;
}

/* Copy the matched tokens behind the kept views into the leaf. */
static int fill_leaf(struct kv_seq *seq, struct prefix_match *match,
		     uint32_t nr_kept)
{
	uint32_t nr = match->nr_views - nr_kept, first = seq->leaf->start;
	struct kv_view *rest = &match->views[nr_kept];

	if (match->len == first)
		return 0;
	/* One list of sources: the scratch has room for one more. */
	if (match->part) {
		rest[nr] = (struct kv_view){
			.seg = match->part,
			.first = nr ? rest[nr - 1].end : first,
			.end = match->len,
		};
		nr++;
	}
	return kv_seq_fill(seq->leaf, rest, nr, NULL, first, match->len);
}

static int open_leaf(struct kv_seq *seq, const struct kvpool_key *root,
		     const struct prefix_match *match, uint32_t nr_kept)
{
	struct kv_cache *cache = seq->cache;
	uint32_t start = nr_kept ? match->views[nr_kept - 1].end : 0;
	uint32_t T = cache->tile_tokens;

	seq->leaf =
		kv_segment_alloc(cache, start, seq->reserve_tokens, seq->owner);
	if (!seq->leaf)
		return -ENOMEM;
	seq->leaf->start_key = start ? cache->match_keys[start / T - 1] : *root;
	for (uint32_t i = start / T; i < match->len / T; i++)
		seq->leaf->keys[i - start / T] = cache->match_keys[i];
	for (uint32_t s = 0;
	     cache->options.layout == KV_LAYOUT_LAYER && s < cache->nr_streams;
	     s++) {
		int err = kv_segment_open_bufs(seq->leaf, s);

		if (err)
			return err == -EMFILE || err == -ENFILE ? -EAGAIN : err;
	}
	return 0;
}

static int start_seq(struct kv_seq *seq, const struct kvpool_key *root,
		     struct prefix_match *match, uint32_t nr_kept)
{
	int err = open_leaf(seq, root, match, nr_kept);

	if (err)
		return err;
	kv_seq_account(seq);
	if (!kv_cache_admits(seq->cache, 0, 0))
		return -EAGAIN;
	/* What cannot be copied is computed: a device that is lost says so again, and louder. */
	return fill_leaf(seq, match, nr_kept) ? -ENOBUFS : 0;
}

/*
 * -ESTALE: the pool took a matched segment meanwhile. -ENOBUFS: there is no memory for what had
 * to be copied; the match is cut to what needs no copy.
 */
static int open_on(struct kv_cache *cache, const struct kvpool_key *root,
		   struct prefix_match *match, uint32_t reserve, uid_t owner,
		   struct kv_seq **out_seq)
{
	uint32_t nr_kept = nr_kept_views(cache, match);
	struct kv_seq *seq = kv_seq_alloc(cache, reserve, owner);

	if (!seq)
		return -ENOMEM;
	int err = get_views(seq, match, nr_kept);

	if (!err)
		err = hold_rest(match, nr_kept);
	if (!err) {
		uint32_t nr_views = match->nr_views;

		err = start_seq(seq, root, match, nr_kept);
		unhold_rest(match, nr_kept, nr_views);
		if (match->part)
			kv_segment_unhold(match->part);
	}
	if (err) {
		match->len = nr_kept ? seq->views[nr_kept - 1].end : 0;
		kv_seq_free(seq);
		return err;
	}
	seq->len = match->len;
	seq->indexed_len = match->len;
	kv_seq_account(seq);
	*out_seq = seq;
	return 0;
}

static void count_query(struct kv_cache *cache, uint32_t nr,
			const struct prefix_match *match, uint32_t local_len)
{
	cache->stat.query_tokens += nr;
	cache->stat.hit_tokens += match->len;
	if (match->len > local_len)
		cache->stat.shared_hit_tokens += match->len - local_len;
	cache->stat.misses[match->miss]++;
}

/* As kv_seq_open(), of which @root and @usable are derived; the caller has @match, searched. */
static int open_longest(struct kv_cache *cache, const struct kvpool_key *root,
			const int32_t *tokens, uint32_t usable,
			uint32_t reserve, uid_t owner,
			struct prefix_match *match, struct kv_seq **out_seq)
{
	uint32_t nr_usable = usable;
	int err;

	for (;;) {
		err = open_on(cache, root, match, reserve, owner, out_seq);
		if (err == -ENOBUFS)
			nr_usable = match->len;
		/*
		 * What is shared is pinned beside the reservation (a windowed stream; all that
		 * is sealed in the pool): a sequence that fits alone must not fail for it.
		 */
		else if (err == -EAGAIN && nr_usable &&
			 TAILQ_EMPTY(&cache->seqs))
			nr_usable = 0;
		else if (err != -ESTALE)
			break;
		prefix_search(cache, root, tokens, nr_usable, match);
	}
	if (nr_usable < usable)
		match->miss = KV_MISS_EVICTED;
	return err;
}

int kv_seq_open(struct kv_cache *cache, const int32_t *tokens, uint32_t nr,
		uint32_t reserve_tokens, const struct kvpool_key *salt,
		uid_t owner, struct kv_seq **out_seq, uint32_t *out_matched,
		enum kv_miss *out_miss)
{
	struct shared_prefix shared = { 0 };
	struct prefix_match match;
	struct kvpool_key root;
	uint32_t reserve = reserve_tokens > nr ? reserve_tokens : nr;
	bool keeps_prefix = cache->options.prefix_cache && salt;
	uint32_t usable = nr && keeps_prefix ? nr - 1 : 0, local_len;
	int err = kv_check_size(cache, reserve);

	if (err)
		return err;
	prefix_hash(&cache->index, &cache->options.root,
		    salt ? salt->bytes : NULL, salt ? sizeof(salt->bytes) : 0,
		    &root);
	prefix_search(cache, &root, tokens, usable, &match);
	local_len = match.len;
	if (shared_prefix_find(cache, &root, tokens, usable, match.len, owner,
			       &shared))
		prefix_search(cache, &root, tokens, usable, &match);
	if (match.miss == KV_MISS_NEVER && shared.lacks_window)
		match.miss = KV_MISS_WINDOW;
	err = open_longest(cache, &root, tokens, usable, reserve, owner, &match,
			   out_seq);
	shared_prefix_put(&shared);
	if (!err) {
		(*out_seq)->keeps_prefix = keeps_prefix;
		if (!keeps_prefix)
			match.miss = KV_MISS_OFF;
		count_query(cache, nr, &match, local_len);
		*out_matched = match.len;
		*out_miss = match.miss;
		PROBE_PREFIX_MATCH(owner, nr, match.len, match.miss);
	}
	kv_stat_publish(cache);
	return err;
}

void kv_seq_distrust(struct kv_seq *seq)
{
	seq->keeps_prefix = false;
}

void kv_seq_close(struct kv_seq *seq)
{
	if (!seq)
		return;
	struct kv_cache *cache = seq->cache;
	struct kv_segment *leaf = seq->leaf;

	if (seq->keeps_prefix && leaf->nr_tokens &&
	    seq->len > seq->indexed_len) {
		kv_seq_advance_window(seq);
		for (uint32_t s = 0; s < cache->nr_streams; s++)
			kv_segment_trim(leaf, s, leaf->streams[s].first_tile,
					kv_div_up(leaf->nr_tokens,
						  cache->tile_tokens));
		seq->leaf = NULL;
		kv_seq_account(seq);
		kv_segment_seal(leaf);
		shared_prefix_queue(leaf);
		kv_segment_unhold(leaf);
	}
	PROBE_SEQUENCE_END(seq->owner, seq->len);
	kv_seq_free(seq);
	kv_stat_publish(cache);
}
