/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one segment: token ids, border keys, one buffer per stream (two
 * per layer with KV_LAYOUT_LAYER), its tiles, and copying between segments.
 * Knows nothing of sequences and of who refers to whom. Driver thread.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment_private.h"
#include "engine/probes.h"

/* Of all caches of the process; several driver threads may count. */
static atomic_ullong last_id;

struct kv_segment *kv_segment_alloc(struct kv_cache *cache, uint32_t start,
				    uint32_t end, uid_t owner)
{
	struct kv_segment *seg = calloc(1, sizeof(*seg));

	if (!seg)
		return NULL;
	seg->cache = cache;
	seg->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) +
		  1;
	seg->start = start;
	seg->owner = owner;
	LIST_INIT(&seg->views);
	if (kv_segment_grow(seg, end > start ? end - start : 1)) {
		free(seg);
		return NULL;
	}
	return seg;
}

static void free_bufs(struct kv_segment *seg, uint32_t stream)
{
	struct kv_seg_stream *st = &seg->streams[stream];

	for (uint32_t i = 0; st->bufs && i < seg->cache->nr_bufs[stream]; i++)
		kvpool_buf_put(st->bufs[i]);
	free(st->bufs);
	st->bufs = NULL;
	st->base = NULL;
	st->first_tile = 0;
	st->end_tile = 0;
}

void kv_segment_free(struct kv_segment *seg)
{
	if (!seg)
		return;
	for (uint32_t s = 0; s < seg->cache->nr_streams; s++)
		free_bufs(seg, s);
	free(seg->entries);
	free(seg->tokens);
	free(seg->keys);
	free(seg);
}

int kv_segment_grow(struct kv_segment *seg, uint32_t nr_tokens)
{
	if (nr_tokens <= seg->capacity)
		return 0;
	uint32_t capacity = nr_tokens > 2 * seg->capacity ? nr_tokens :
							    2 * seg->capacity;
	uint32_t nr_keys = capacity / seg->cache->tile_tokens + 1;
	int32_t *tokens = realloc(seg->tokens, capacity * sizeof(*tokens));

	if (!tokens)
		return -ENOMEM;
	seg->tokens = tokens;
	struct kvpool_key *keys = realloc(seg->keys, nr_keys * sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	seg->keys = keys;
	seg->capacity = capacity;
	return 0;
}

/* Descriptors and addresses are finite too: cached segments give theirs up. */
static int create_buf(struct kv_segment *seg, uint32_t stream,
		      struct kvpool_buf **out_buf)
{
	struct kv_cache *cache = seg->cache;
	int err;

	do {
		err = kvpool_buf_create(cache->pool, cache->buf_bytes[stream],
					seg->owner, out_buf);
	} while ((err == -EMFILE || err == -ENFILE || err == -ENOMEM) &&
		 kv_evict_one(cache));
	return err;
}

int kv_segment_open_bufs(struct kv_segment *seg, uint32_t stream)
{
	struct kv_seg_stream *st = &seg->streams[stream];
	uint32_t nr = seg->cache->nr_bufs[stream];

	if (st->bufs)
		return 0;
	st->bufs = calloc(nr, sizeof(struct kvpool_buf *));
	if (!st->bufs)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		int err = create_buf(seg, stream, &st->bufs[i]);

		if (err) {
			free_bufs(seg, stream);
			return err;
		}
	}
	st->base = kvpool_buf_addr(st->bufs[0]);
	return 0;
}

/* Bytes [*first, *end) of each buffer that tiles [first_tile, end_tile) add or give back. */
static void byte_range(const struct kv_cache *cache, uint32_t stream,
		       uint32_t first_tile, uint32_t end_tile, uint64_t *first,
		       uint64_t *end)
{
	uint64_t page = kvpool_page_bytes(cache->pool);
	uint64_t stride = cache->layouts[stream].stride_bytes;

	/* Tiles of the dense layout share pages: the page at the front is the earlier tile's. */
	*first = (first_tile * stride + page - 1) / page * page;
	*end = (end_tile * stride + page - 1) / page * page;
}

static void release_tiles(struct kv_segment *seg, uint32_t stream,
			  uint32_t first_tile, uint32_t end_tile)
{
	struct kv_cache *cache = seg->cache;
	uint64_t first, end;

	byte_range(cache, stream, first_tile, end_tile, &first, &end);
	for (uint32_t i = 0; first < end && i < cache->nr_bufs[stream]; i++)
		kvpool_buf_release(seg->streams[stream].bufs[i], first,
				   end - first);
}

/* Whether another's memory would help: after anything else, what is cached stays. */
static bool is_shortage(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -ENOMEM;
}

int kv_segment_commit(struct kv_segment *seg, uint32_t stream,
		      uint32_t end_tile)
{
	struct kv_cache *cache = seg->cache;
	struct kv_seg_stream *st = &seg->streams[stream];
	uint64_t first, end;

	if (end_tile <= st->end_tile)
		return 0;
	/*
	 * Pages cannot move between buffers. Where something will have to go
	 * for what is promised, one goes before a buffer is made, which then
	 * takes over its pages: they need not be made anew.
	 */
	if (!st->bufs && cache->pinned_bytes + cache->promised_bytes +
					 cache->evictable_bytes >
				 kv_cache_avail(cache))
		kv_evict_one(cache);
	int err = kv_make_room(cache, kv_tile_bytes(cache, stream, st->end_tile,
						    end_tile));

	if (!err)
		err = kv_segment_open_bufs(seg, stream);
	if (err)
		return -ENOSPC;
	byte_range(cache, stream, st->end_tile, end_tile, &first, &end);
	for (uint32_t i = 0; first < end && i < cache->nr_bufs[stream]; i++) {
		do {
			err = kvpool_buf_commit(st->bufs[i], first,
						end - first);
		} while (is_shortage(err) && kv_evict_one(cache));
		if (!err)
			continue;
		while (i--)
			kvpool_buf_release(st->bufs[i], first, end - first);
		return -ENOSPC;
	}
	PROBE_SEGMENT_COMMIT(seg->id, stream,
			     kv_tile_bytes(cache, stream, st->end_tile,
					   end_tile));
	st->end_tile = end_tile;
	return 0;
}

void kv_segment_trim(struct kv_segment *seg, uint32_t stream,
		     uint32_t first_tile, uint32_t end_tile)
{
	struct kv_seg_stream *st = &seg->streams[stream];

	if (first_tile > st->end_tile)
		first_tile = st->end_tile;
	if (first_tile > st->first_tile) {
		release_tiles(seg, stream, st->first_tile, first_tile);
		st->first_tile = first_tile;
	}
	if (end_tile < st->first_tile)
		end_tile = st->first_tile;
	if (end_tile < st->end_tile) {
		release_tiles(seg, stream, end_tile, st->end_tile);
		st->end_tile = end_tile;
	}
}

void kv_segment_drop_stream(struct kv_segment *seg, uint32_t stream)
{
	free_bufs(seg, stream);
	seg->streams[stream].is_dropped = true;
	seg->streams[stream].is_fixed = false;
	seg->streams[stream].is_alias = false;
}

void kv_segment_advise(struct kv_segment *seg, uint32_t stream,
		       enum kvpool_advice advice, bool *out_survived)
{
	const struct kv_seg_stream *st = &seg->streams[stream];
	bool survived = true;

	for (uint32_t i = 0; st->bufs && i < seg->cache->nr_bufs[stream]; i++) {
		bool one = true;

		/* Cut off by its owner (another process): as good as gone. */
		if (kvpool_buf_advise(st->bufs[i], advice, &one))
			one = false;
		survived = survived && one;
	}
	if (out_survived)
		*out_survived = survived;
}

/* The first tokens of one tile: whole groups of K, which lies in groups, and rows of V. */
static void copy_part(const struct attn_layout *layout, uint8_t *to,
		      const uint8_t *from, uint32_t nr_tokens)
{
	uint32_t groups = kv_div_up(nr_tokens, ATTN_GROUP_TOKENS);
	size_t row_bytes = (size_t)layout->head_dim * layout->elem_bytes;
	size_t k_bytes = groups * ATTN_GROUP_TOKENS * row_bytes;

	for (uint32_t l = 0; l < layout->nr_layers; l++) {
		for (uint32_t h = 0; h < layout->nr_kv_heads; h++) {
			uint64_t k = attn_run_offset(layout, l, h);
			uint64_t v = k + layout->v_offset_bytes;

			memcpy(to + k, from + k, k_bytes);
			memcpy(to + v, from + v, nr_tokens * row_bytes);
		}
	}
}

void kv_segment_copy(struct kv_segment *to, const struct kv_segment *from,
		     uint32_t stream, uint32_t first, uint32_t end)
{
	const struct attn_layout *layout = &to->cache->layouts[stream];
	uint32_t tile_tokens = layout->tile_tokens;

	if (to->cache->options.layout == KV_LAYOUT_LAYER) {
		size_t row_bytes = layout->stride_bytes / tile_tokens;

		for (uint32_t i = 0; i < to->cache->nr_bufs[stream]; i++) {
			uint8_t *dst =
				kvpool_buf_addr(to->streams[stream].bufs[i]);
			const uint8_t *src =
				kvpool_buf_addr(from->streams[stream].bufs[i]);

			memcpy(dst + (first - to->start) * row_bytes,
			       src + (first - from->start) * row_bytes,
			       (end - first) * row_bytes);
		}
		return;
	}
	uint8_t *dst = to->streams[stream].base +
		       (uint64_t)(first - to->start) / tile_tokens *
			       layout->stride_bytes;
	const uint8_t *src = from->streams[stream].base +
			     (uint64_t)(first - from->start) / tile_tokens *
				     layout->stride_bytes;
	uint64_t whole =
		(uint64_t)(end - first) / tile_tokens * layout->stride_bytes;

	memcpy(dst, src, whole);
	if ((end - first) % tile_tokens)
		copy_part(layout, dst + whole, src + whole,
			  (end - first) % tile_tokens);
}
