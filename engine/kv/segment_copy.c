/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of K and V in a segment's tiles: copying between segments, clearing
 * what is nobody's. All of it goes through the pool, which may be a device's:
 * nothing here touches an address. Driver thread.
 */
#include "engine/kv/segment_private.h"

static struct kvpool_place place_of(const struct kv_segment *seg,
				    uint32_t stream, uint64_t offset)
{
	return (struct kvpool_place){
		.buf = seg->streams[stream].bufs[0],
		.offset = offset,
	};
}

/* Every run of a tile, K or V of a layer and head, lies head_bytes behind the one before. */
static uint64_t nr_runs(const struct attn_layout *layout)
{
	return 2ull * layout->nr_layers * layout->nr_kv_heads;
}

static uint64_t row_bytes_of(const struct attn_layout *layout)
{
	return (uint64_t)layout->head_dim * layout->elem_bytes;
}

/* A buffer for each of K and V of each layer, rows of all heads back to back. */
static int copy_dense(struct kv_segment *to, const struct kv_segment *from,
		      uint32_t stream, uint32_t first, uint32_t end)
{
	const struct attn_layout *layout = &to->cache->layouts[stream];
	uint64_t row_bytes = layout->stride_bytes / layout->tile_tokens;
	int err = 0;

	for (uint32_t i = 0; i < to->cache->nr_bufs[stream] && !err; i++) {
		struct kvpool_place dst = {
			.buf = to->streams[stream].bufs[i],
			.offset = (first - to->start) * row_bytes,
		};
		struct kvpool_place src = {
			.buf = from->streams[stream].bufs[i],
			.offset = (first - from->start) * row_bytes,
		};

		err = kvpool_copy(&dst, &src, (end - first) * row_bytes, 1);
	}
	return err;
}

int kv_segment_copy(struct kv_segment *to, const struct kv_segment *from,
		    uint32_t stream, uint32_t first, uint32_t end)
{
	const struct attn_layout *layout = &to->cache->layouts[stream];
	uint64_t stride = layout->stride_bytes;
	uint32_t T = layout->tile_tokens, rest = (end - first) % T;
	uint64_t whole = (end - first) / T * stride;
	int err = 0;

	if (to->cache->options.layout == KV_LAYOUT_LAYER)
		return copy_dense(to, from, stream, first, end);
	struct kvpool_place dst =
		place_of(to, stream, (first - to->start) / T * stride);
	struct kvpool_place src =
		place_of(from, stream, (first - from->start) / T * stride);

	if (whole)
		err = kvpool_copy(&dst, &src, whole, 1);
	if (err || !rest)
		return err;
	dst.offset += whole;
	src.offset += whole;
	dst.pitch_bytes = layout->head_bytes;
	src.pitch_bytes = layout->head_bytes;
	/* Whole groups of 16 tokens, as K may lie in groups: one shape for all runs of the tile. */
	return kvpool_copy(&dst, &src,
			   (uint64_t)kv_div_up(rest, ATTN_GROUP_TOKENS) *
				   ATTN_GROUP_TOKENS * row_bytes_of(layout),
			   nr_runs(layout));
}

/* ---- clearing ------------------------------------------------------------ */

/* Tokens [nr, T) of the runs at @at, @pitch apart, each [T][head_dim]. */
static int clear_tokens(const struct attn_layout *layout,
			struct kvpool_place at, uint32_t nr, uint64_t pitch,
			uint64_t nr_rows)
{
	uint64_t row_bytes = row_bytes_of(layout);

	if (nr == layout->tile_tokens || !nr_rows)
		return 0;
	at.offset += nr * row_bytes;
	at.pitch_bytes = pitch;
	return kvpool_fill(&at, 0, (layout->tile_tokens - nr) * row_bytes,
			   nr_rows);
}

/* The same of K in groups of 16 tokens, each [head_dim][16]: places of a group that is begun. */
static int clear_lanes(const struct attn_layout *layout,
		       struct kvpool_place tile, uint32_t nr)
{
	uint32_t lane = nr % ATTN_GROUP_TOKENS;
	uint32_t nr_heads = layout->nr_kv_heads;
	uint64_t elem = layout->elem_bytes;
	int err = 0;

	for (uint32_t i = 0; lane && i < layout->nr_layers * nr_heads && !err;
	     i++) {
		struct kvpool_place at = tile;

		at.offset +=
			attn_run_offset(layout, i / nr_heads, i % nr_heads) +
			(nr - lane) * row_bytes_of(layout) + lane * elem;
		at.pitch_bytes = ATTN_GROUP_TOKENS * elem;
		err = kvpool_fill(&at, 0, (ATTN_GROUP_TOKENS - lane) * elem,
				  layout->head_dim);
	}
	return err;
}

/* Tokens [nr, T) of a tile: what was there before is not this segment's to show. */
static int clear_tile(const struct kv_cache *cache, uint32_t stream,
		      struct kvpool_place tile, uint32_t nr)
{
	const struct attn_layout *layout = &cache->layouts[stream];
	int err = 0;

	if (cache->options.is_k_by_token)
		return clear_tokens(layout, tile, nr, layout->head_bytes,
				    nr_runs(layout));
	err = clear_lanes(layout, tile, nr);
	for (uint32_t h = 0; h < layout->nr_kv_heads && !err; h++) {
		struct kvpool_place k = tile, v = tile;

		k.offset += h * layout->head_bytes;
		v.offset += h * layout->head_bytes + layout->v_offset_bytes;
		err = clear_tokens(layout, k,
				   kv_div_up(nr, ATTN_GROUP_TOKENS) *
					   ATTN_GROUP_TOKENS,
				   layout->layer_bytes, layout->nr_layers);
		if (!err)
			err = clear_tokens(layout, v, nr, layout->layer_bytes,
					   layout->nr_layers);
	}
	return err;
}

int kv_segment_clear_unused(const struct kv_segment *seg, uint32_t stream)
{
	const struct kv_cache *cache = seg->cache;
	const struct attn_layout *layout = &cache->layouts[stream];
	const struct kv_seg_stream *st = &seg->streams[stream];
	uint64_t stride = layout->stride_bytes, first = st->first_tile * stride;
	uint64_t used = layout->nr_layers * layout->layer_bytes;
	uint64_t rest = first % kvpool_page_bytes(cache->pool);
	struct kvpool_place at = place_of(seg, stream, first - rest);
	uint32_t T = layout->tile_tokens, last = seg->nr_tokens / T;
	int err = 0;

	if (st->first_tile >= st->end_tile)
		return 0;
	/* Of a tile that fell behind the window, or never was. */
	if (rest)
		err = kvpool_fill(&at, 0, rest, 1);
	at.offset = first + used;
	at.pitch_bytes = stride;
	if (!err && stride > used)
		err = kvpool_fill(&at, 0, stride - used,
				  st->end_tile - st->first_tile);
	if (err || last < st->first_tile || last >= st->end_tile)
		return err;
	at = place_of(seg, stream, last * stride);
	return clear_tile(cache, stream, at, seg->nr_tokens % T);
}
