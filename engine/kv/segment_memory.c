/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one segment: token ids, border keys, one buffer per stream (two
 * per layer with KV_LAYOUT_LAYER) and its tiles. Knows nothing of sequences and
 * of who refers to whom. What lies in the tiles is segment_copy.c's. Driver
 * thread.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/kv/exchange.h"
#include "engine/kv/segment_private.h"
#include "engine/kv/shared_prefix.h"
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

	if (st->is_fixed)
		shared_prefix_unpublish(seg, stream);
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
	uint64_t bytes = cache->buf_bytes[stream];
	bool has_base = kvpool_base(cache->pool);
	int err;

	do {
		err = has_base ? kvpool_buf_create_stride(
					 cache->pool, bytes,
					 cache->layouts[stream].stride_bytes,
					 seg->owner, out_buf) :
				 kvpool_buf_create(cache->pool, bytes,
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

/*
 * Bytes [*first, *end) of each buffer whose pages tiles [first_tile, end_tile) touch. A page that
 * is larger than what the stride is a multiple of belongs to the tiles on both sides of a border.
 */
static void byte_range(const struct kv_cache *cache, uint32_t stream,
		       uint32_t first_tile, uint32_t end_tile, uint64_t *first,
		       uint64_t *end)
{
	uint64_t page = kvpool_page_bytes(cache->pool);
	uint64_t stride = cache->layouts[stream].stride_bytes;

	*first = first_tile * stride / page * page;
	*end = (end_tile * stride + page - 1) / page * page;
}

static void release(struct kv_segment *seg, uint32_t stream, uint64_t first,
		    uint64_t end)
{
	for (uint32_t i = 0; first < end && i < seg->cache->nr_bufs[stream];
	     i++)
		kvpool_buf_release(seg->streams[stream].bufs[i], first,
				   end - first);
}

/* Whether another's memory would help: after anything else, what is cached stays. */
static bool is_shortage(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -ENOMEM;
}

/*
 * The device has no memory, within the limit of the pool: others have it. What they keep without
 * need is older than what is cached here, where work goes on. They are asked once for a commit.
 */
static bool get_room(struct kv_cache *cache, int err, uint64_t bytes,
		     bool *has_asked)
{
	if (err != -ENOMEM || *has_asked || !cache->options.exchange)
		return false;
	*has_asked = true;
	return kv_exchange_ask_room(cache->options.exchange, bytes) > 0;
}

int kv_segment_commit(struct kv_segment *seg, uint32_t stream,
		      uint32_t end_tile)
{
	struct kv_cache *cache = seg->cache;
	struct kv_seg_stream *st = &seg->streams[stream];
	bool has_asked = false;
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
	uint64_t bytes =
		kv_tile_bytes(cache, stream, st->first_tile, end_tile) -
		kv_tile_bytes(cache, stream, st->first_tile, st->end_tile);
	int err = kv_make_room(cache, bytes);

	if (!err)
		err = kv_segment_open_bufs(seg, stream);
	if (err)
		return -ENOSPC;
	byte_range(cache, stream, st->first_tile, st->end_tile, &first, &end);
	uint64_t done = st->end_tile > st->first_tile ? end : first;

	byte_range(cache, stream, st->first_tile, end_tile, &first, &end);
	first = done;
	for (uint32_t i = 0; first < end && i < cache->nr_bufs[stream]; i++) {
		do {
			err = kvpool_buf_commit(st->bufs[i], first,
						end - first);
		} while (is_shortage(err) &&
			 (get_room(cache, err, end - first, &has_asked) ||
			  kv_evict_one(cache)));
		if (!err)
			continue;
		while (i--)
			kvpool_buf_release(st->bufs[i], first, end - first);
		/* A device that is lost is no want of memory. */
		return err == -EIO ? -EIO : -ENOSPC;
	}
	PROBE_SEGMENT_COMMIT(seg->id, stream, bytes);
	st->end_tile = end_tile;
	return 0;
}

void kv_segment_trim(struct kv_segment *seg, uint32_t stream,
		     uint32_t first_tile, uint32_t end_tile)
{
	struct kv_seg_stream *st = &seg->streams[stream];
	uint64_t first, end, old_first, old_end;

	if (first_tile < st->first_tile)
		first_tile = st->first_tile;
	if (first_tile > st->end_tile)
		first_tile = st->end_tile;
	if (end_tile < first_tile)
		end_tile = first_tile;
	if (end_tile > st->end_tile)
		end_tile = st->end_tile;
	byte_range(seg->cache, stream, st->first_tile, st->end_tile, &old_first,
		   &old_end);
	byte_range(seg->cache, stream, first_tile, end_tile, &first, &end);
	if (st->first_tile == st->end_tile) {
		/* There was nothing. */
	} else if (first_tile == end_tile) {
		release(seg, stream, old_first, old_end);
	} else {
		release(seg, stream, old_first, first);
		release(seg, stream, end, old_end);
	}
	st->first_tile = first_tile;
	st->end_tile = end_tile;
}

void kv_segment_drop_stream(struct kv_segment *seg, uint32_t stream)
{
	free_bufs(seg, stream);
	seg->streams[stream].is_dropped = true;
	seg->streams[stream].is_fixed = false;
	seg->streams[stream].is_alias = false;
	seg->streams[stream].is_imported = false;
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
