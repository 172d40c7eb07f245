/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The longest usable prefix of a prompt: whole tiles by their border keys, then
 * single tokens of one more tile, cut back to where the windowed streams still
 * have what the next row sees. Reads the index, changes nothing. Driver thread.
 */
#include "engine/kv/segment_private.h"

/* Whole tiles, joined into views of one segment each. Return: tokens. */
static uint32_t match_tiles(struct kv_cache *cache,
			    const struct kvpool_key *root,
			    const int32_t *tokens, uint32_t nr,
			    struct prefix_match *out)
{
	uint32_t T = cache->tile_tokens, pos = 0;
	const struct kvpool_key *border = root;

	for (; pos + T <= nr; pos += T) {
		struct kvpool_key *key = &cache->match_keys[pos / T];
		struct kv_view *last =
			out->nr_views ? &out->views[out->nr_views - 1] : NULL;
		const struct kv_segment *after = last ? last->seg : NULL;

		prefix_hash(&cache->index, border, tokens + pos,
			    T * sizeof(*tokens), key);
		const struct prefix_entry *entry = prefix_find_tile(
			&cache->index, key, tokens + pos, after,
			after ? (pos - after->start) / T : 0);

		if (!entry)
			break;
		border = key;
		if (entry->seg == after)
			last->end = pos + T;
		else
			out->views[out->nr_views++] = (struct kv_view){
				.seg = entry->seg,
				.first = pos,
				.end = pos + T,
			};
	}
	return pos;
}

/* Resident positions of one stream within [first, end) of a segment. */
static void resident_range(const struct kv_segment *seg, uint32_t stream,
			   uint32_t *first, uint32_t *end)
{
	const struct kv_seg_stream *st = &seg->streams[stream];
	uint32_t T = seg->cache->tile_tokens;
	uint32_t lo = seg->start + st->first_tile * T,
		 hi = seg->start + st->end_tile * T;

	if (*first < lo)
		*first = lo;
	if (*end > hi)
		*end = hi;
}

/*
 * The longest cut <= @len whose window is wholly there. Resident positions come in runs; a run
 * [a, b) serves cuts from a + window - 1 (or any, where a is 0) up to b.
 */
static uint32_t window_cut(const struct kv_cache *cache, uint32_t stream,
			   const struct prefix_match *match, uint32_t len)
{
	uint32_t window = cache->options.streams[stream].window_tokens;
	uint32_t run_first = 0, run_end = 0, best = 0;

	for (uint32_t i = 0; i <= match->nr_views; i++) {
		const struct kv_view *view = &match->views[i];
		bool is_part = i == match->nr_views;
		uint32_t first = is_part ? len / cache->tile_tokens *
						   cache->tile_tokens :
					   view->first;
		uint32_t end = is_part || view->end > len ? len : view->end;

		if (first >= end || (is_part && !match->part))
			continue;
		resident_range(is_part ? match->part : view->seg, stream,
			       &first, &end);
		if (first >= end)
			continue;
		if (first != run_end)
			run_first = first;
		run_end = end;
		if (!run_first || run_end >= run_first + window - 1)
			best = run_end;
	}
	/* A window of one token sees none of the earlier ones. */
	return window == 1 ? len : best;
}

static void cut_views(struct prefix_match *match, uint32_t tile_tokens,
		      uint32_t len)
{
	uint32_t whole = len / tile_tokens * tile_tokens;
	struct kv_segment *part =
		match->len / tile_tokens == len / tile_tokens ? match->part :
								NULL;

	while (match->nr_views &&
	       match->views[match->nr_views - 1].end > whole) {
		struct kv_view *view = &match->views[match->nr_views - 1];

		part = len > whole ? view->seg : NULL;
		if (view->first < whole) {
			view->end = whole;
			break;
		}
		match->nr_views--;
	}
	match->part = len > whole ? part : NULL;
	match->len = len;
}

/* Cut until every windowed stream agrees. */
static void cut_to_windows(struct kv_cache *cache, struct prefix_match *match)
{
	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		if (!kv_is_windowed(cache, s) || !match->len)
			continue;
		uint32_t cut = window_cut(cache, s, match, match->len);

		if (cut == match->len)
			continue;
		cut_views(match, cache->tile_tokens, cut);
		match->miss = KV_MISS_WINDOW;
		s = UINT32_MAX; /* the other streams again, at the shorter cut */
	}
}

void prefix_search(struct kv_cache *cache, const struct kvpool_key *root,
		   const int32_t *tokens, uint32_t nr, struct prefix_match *out)
{
	uint32_t T = cache->tile_tokens, part_len;

	*out = (struct prefix_match){ .views = cache->match_views,
				      .miss = KV_MISS_NONE };
	if (!nr)
		return;
	uint32_t pos = match_tiles(cache, root, tokens, nr, out);
	const struct kvpool_key *border =
		pos ? &cache->match_keys[pos / T - 1] : root;
	const struct prefix_entry *entry = NULL;

	out->len = pos;
	if (pos < nr)
		entry = prefix_find_part(&cache->index, border, tokens + pos,
					 nr - pos, &part_len);
	if (entry) {
		out->part = entry->seg;
		out->len += part_len;
	}
	if (out->len < nr) {
		bool was_evicted =
			pos + T <= nr &&
			prefix_was_evicted(&cache->index,
					   &cache->match_keys[pos / T]);

		out->miss = was_evicted ? KV_MISS_EVICTED : KV_MISS_NEVER;
	}
	cut_to_windows(cache, out);
}
