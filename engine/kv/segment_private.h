/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments inside: shared by engine/kv/segment_*.c and prefix*.c, nobody else.
 *
 * Memory of a cache is in one of three accounts, in bytes:
 *   pinned     committed tiles that live sequences need: their leaves, and of the sealed
 *              segments in their chains the tiles that they see (shared ones once)
 *   evictable  committed tiles that nobody needs: unreferenced segments, and of others the
 *              tiles behind every window or past the last that a chain uses (a partly filled
 *              one is copied by each sequence behind it)
 *   promised   not committed: what live sequences may still ask for (their reservation)
 * pinned + promised never exceeds what the pool can give, so evicting always makes room for what
 * was promised. Tiles committed ahead of a sequence's length are pinned and counted apart as well.
 *
 * Of streams that are sealed in the pool (shared_prefix.h) all tiles are pinned while a chain needs
 * one. While none does they are volatile, and not counted as this cache's own memory: letting go of
 * them frees nothing, but the pool takes them by itself where memory is asked for. With an exchange
 * it does not, as descriptors of them are out; there they are this cache's, to be evicted.
 * Memory of another process counts as pinned and evictable too, for once that process has let go of
 * it, it is ours alone.
 *
 * All of it belongs to the engine's driver thread but for the snapshot behind kv_cache_stat().
 */
#ifndef TARN_ENGINE_KV_SEGMENT_PRIVATE_H
#define TARN_ENGINE_KV_SEGMENT_PRIVATE_H

#include <pthread.h>
#include <sys/queue.h>

#include "engine/kv/segment.h"

enum {
	/* Views kept when a chain is compacted: the next ones fit without doing it again soon. */
	KV_COMPACT_VIEWS = KV_MAX_CHAIN / 2,
	/* Room for one prompt chunk in a windowed stream where options name none. */
	KV_DEFAULT_MAX_APPEND = 512,
	/* Evicted tiles remembered, to tell "evicted" from "never seen". A power of two. */
	PREFIX_NR_GHOSTS = 1 << 14,
};

/* One stream of a segment. Tiles are counted from the segment's start. */
struct kv_seg_stream {
	struct kvpool_buf **
		bufs; /* one, or 2 * nr_layers with KV_LAYOUT_LAYER; NULL: none yet */
	uint8_t *base; /* of bufs[0] */
	uint32_t first_tile, end_tile; /* committed: [first_tile, end_tile) */
	uint32_t nr_refs; /* views that hold it */
	bool is_dropped; /* sealed, and its memory is gone */
	/* Sealed in the pool (published here, or found there): given up whole or not at all. */
	bool is_fixed;
	/* Not of this cache's own: another segment of it has the same memory, or: */
	bool is_alias;
	bool is_imported; /* another process' memory; the pool counts it nowhere */
};

struct prefix_entry;
struct kv_segment;

/*
 * Tokens [first, end) of a sealed segment, both ends multiples of T. Part of a chain once
 * kv_view_get() has linked it; it must not move from then on.
 */
struct kv_view {
	struct kv_segment *seg;
	uint32_t first, end;
	bool holds[KV_MAX_STREAMS]; /* a reference on the stream */
	uint32_t need[KV_MAX_STREAMS]; /* where held: first token needed, a multiple of T */
	LIST_ENTRY(kv_view) link; /* seg->views */
};

LIST_HEAD(kv_view_list, kv_view);

struct kv_segment {
	struct kv_cache *cache;
	uint64_t id; /* for probes: unique in this process, from 1 */
	uint32_t start; /* position of token 0, a multiple of T */
	uint32_t nr_tokens;
	uint32_t capacity; /* of tokens, and of keys in tiles */
	int32_t *tokens;
	struct kvpool_key start_key; /* of the border in front */
	struct kvpool_key *keys; /* keys[i]: of the border behind whole tile i */
	struct kv_seg_stream streams[KV_MAX_STREAMS];
	uid_t owner;

	/* Sealed segments only. */
	bool is_sealed;
	struct kv_view_list views; /* of chains; as many as sequences share it */
	uint32_t nr_holds; /* being copied from: not to be evicted */
	struct prefix_entry *
		entries; /* one per tile, the last one maybe partial; NULL: unindexed */
	uint32_t nr_entries;
	uint64_t pinned_bytes, evictable_bytes; /* as counted in the cache */
	uint64_t rest_bytes, foreign_bytes; /* likewise */
	bool in_lru;
	bool in_unpublished;
	bool is_unused; /* as counted: in the index, in no chain */
	TAILQ_ENTRY(kv_segment) lru_link;
	TAILQ_ENTRY(kv_segment) link; /* cache->segments */
	TAILQ_ENTRY(kv_segment) unpublished_link;
};

TAILQ_HEAD(kv_segment_list, kv_segment);

struct kv_seq {
	struct kv_cache *cache;
	struct kv_view views[KV_MAX_CHAIN];
	uint32_t nr_views;
	struct kv_segment *leaf;
	uint32_t len;
	uint32_t nr_unnamed; /* the last of them, without ids */
	uint32_t reserve_tokens;
	uint32_t indexed_len; /* tokens [0, indexed_len) are in the prefix index */
	uid_t owner;
	bool keeps_prefix; /* what it computes is offered to the prefix index */
	/* As counted in the cache. */
	uint64_t leaf_bytes, promised_bytes, ahead_bytes;
	TAILQ_ENTRY(kv_seq) link;
};

TAILQ_HEAD(kv_seq_list, kv_seq);

struct prefix_entry {
	struct kv_segment *seg;
	uint32_t tile;
	/* By the border in front (all tiles), and by the border behind (whole tiles). */
	struct prefix_entry *start_next, **start_link;
	struct prefix_entry *end_next, **end_link;
};

struct prefix_index {
	struct prefix_entry **by_start, **by_end;
	size_t nr_buckets; /* of each; a power of two */
	size_t nr_entries;
	uint64_t *ghosts; /* [PREFIX_NR_GHOSTS] of evicted borders, direct-mapped */
	void *md, *ctx; /* OpenSSL's SHA-256 */
};

struct kv_cache {
	struct kv_cache_options options;
	struct kvpool *pool;
	struct attn_layout layouts[KV_MAX_STREAMS];
	uint32_t nr_streams;
	uint32_t tile_tokens;
	bool is_sharing;
	uint64_t buf_bytes[KV_MAX_STREAMS]; /* virtual size of one buffer */
	uint32_t nr_bufs[KV_MAX_STREAMS]; /* of a segment */
	/* Most tiles of a windowed stream that one sequence ever needs at once; else UINT32_MAX. */
	uint32_t max_tiles[KV_MAX_STREAMS];
	/* Of a windowed stream: most bytes of a page in front of the first tile in it. */
	uint64_t front_bytes[KV_MAX_STREAMS];

	uint64_t pinned_bytes, evictable_bytes, promised_bytes, ahead_bytes;
	/* Parts of pinned and evictable: volatile in the pool and nobody else's; not ours alone. */
	uint64_t rest_bytes, foreign_bytes;
	struct kv_seq_list seqs;
	struct kv_segment_list segments; /* sealed ones */
	struct kv_segment_list lru; /* those with evictable bytes, oldest first */
	struct kv_segment_list
		unpublished; /* sealed since the last kv_cache_publish() */
	struct prefix_index index;
	struct kv_view *
		match_views; /* scratch of a match: one per tile of the longest sequence */
	struct kvpool_key *match_keys;

	struct kv_cache_stat
		stat; /* counters; the rest is filled in by kv_stat_publish() */
	pthread_mutex_t stat_lock; /* snapshot */
	struct kv_cache_stat snapshot;
};

/* ---- segment_cache.c ---- */
/* Memory of tiles [first, end) of a stream: all pages that one of them touches. */
uint64_t kv_tile_bytes(const struct kv_cache *cache, uint32_t stream,
		       uint32_t first, uint32_t end);
/* The most memory of @nr tiles of a leaf at once, wherever its window stands. */
uint64_t kv_need_bytes(const struct kv_cache *cache, uint32_t stream,
		       uint32_t nr);
/* What the pool can give to this cache: its limit less what others hold. */
uint64_t kv_cache_avail(struct kv_cache *cache);
/* What the pool takes by itself when it is asked for memory, beyond what this cache may evict. */
uint64_t kv_cache_takeable(const struct kv_cache *cache,
			   const struct kvpool_stat *stat);
/* Whether @extra bytes more can be pinned or promised. */
bool kv_cache_admits(struct kv_cache *cache, uint64_t extra, uint64_t freed);
void kv_stat_publish(struct kv_cache *cache);
void kv_seq_account(struct kv_seq *seq);
/* Tiles a leaf that starts at @start needs at once for @reserve tokens in all. */
uint32_t kv_need_tiles(const struct kv_cache *cache, uint32_t stream,
		       uint32_t start, uint32_t reserve);
static inline uint32_t kv_div_up(uint32_t n, uint32_t d)
{
	return n / d + (n % d != 0);
}

/* ---- segment_memory.c: buffers and tiles of one segment ---- */
/* Room for the ids of tokens [start, end) at first. */
struct kv_segment *kv_segment_alloc(struct kv_cache *cache, uint32_t start,
				    uint32_t end, uid_t owner);
void kv_segment_free(struct kv_segment *seg);
int kv_segment_grow(struct kv_segment *seg,
		    uint32_t nr_tokens); /* room for ids and keys */
int kv_segment_open_bufs(struct kv_segment *seg, uint32_t stream);
/* Commit up to @end_tile, evicting as needed. -ENOSPC, whatever ran out: as before. */
int kv_segment_commit(struct kv_segment *seg, uint32_t stream,
		      uint32_t end_tile);
/* Give tiles back outside [first_tile, end_tile). */
void kv_segment_trim(struct kv_segment *seg, uint32_t stream,
		     uint32_t first_tile, uint32_t end_tile);
void kv_segment_drop_stream(struct kv_segment *seg, uint32_t stream);
void kv_segment_advise(struct kv_segment *seg, uint32_t stream,
		       enum kvpool_advice advice, bool *out_survived);
/* ---- segment_copy.c: bytes of K and V, by whom can touch them ---- */
/*
 * Copy K and V of tokens [first, end) (absolute, first a multiple of T) between segments; both
 * have the tiles committed. Return: 0, -EIO.
 */
int kv_segment_copy(struct kv_segment *to, const struct kv_segment *from,
		    uint32_t stream, uint32_t first, uint32_t end);
/* Clear what no token of the segment lies in, in all pages of its tiles. Return: 0, -EIO. */
int kv_segment_clear_unused(const struct kv_segment *seg, uint32_t stream);

/* ---- segment_evict.c: sealed segments, references, eviction ---- */
/* A leaf becomes a sealed segment, in the index if it can; the caller gets a hold on it. */
void kv_segment_seal(struct kv_segment *seg);
void kv_segment_update(
	struct kv_segment *seg); /* recount; frees it where it is of no use */
/*
 * Link a view (seg, first, end filled in) of a sequence of @len tokens and hold the streams that
 * its next row sees. -ESTALE: the pool purged one; not linked then.
 */
int kv_view_get(struct kv_view *view, uint32_t len);
/* The sequence has @len tokens now: needs less of a windowed stream, or nothing. */
void kv_view_advance(struct kv_view *view, uint32_t stream, uint32_t len);
void kv_view_put(struct kv_view *view);
int kv_segment_hold(
	struct kv_segment *seg); /* -ESTALE: purged meanwhile, and gone */
void kv_segment_unhold(struct kv_segment *seg);
bool kv_evict_one(struct kv_cache *cache);
int kv_make_room(struct kv_cache *cache, uint64_t bytes);

/* ---- segment_open.c ---- */
/* -E2BIG, -ENOSPC: a sequence of that many tokens is never possible. */
int kv_check_size(struct kv_cache *cache, uint32_t reserve);

/* ---- segment_seq.c ---- */
struct kv_seq *kv_seq_alloc(struct kv_cache *cache, uint32_t reserve_tokens,
			    uid_t owner);
void kv_seq_free(
	struct kv_seq *seq); /* drops leaf and views without caching anything */
void kv_seq_advance_window(struct kv_seq *seq);
/* First position of a stream that rows from @len on can see. */
static inline uint32_t kv_window_first(const struct kv_cache *cache,
				       uint32_t stream, uint32_t len)
{
	uint32_t window = cache->options.streams[stream].window_tokens;

	return window && len >= window ? len - window + 1 : 0;
}
static inline bool kv_is_windowed(const struct kv_cache *cache, uint32_t stream)
{
	return cache->options.layout == KV_LAYOUT_TILE &&
	       cache->options.streams[stream].window_tokens;
}
/*
 * Commit and copy [first, end) of every stream, as far as later rows see it, out of @views and
 * @leaf (may be NULL), which are held; ids too. -ENOSPC, -ENOMEM, -EIO: @to is to be thrown away.
 */
int kv_seq_fill(struct kv_segment *to, const struct kv_view *views,
		uint32_t nr_views, const struct kv_segment *leaf,
		uint32_t first, uint32_t end);

/* ---- prefix.c: the index; prefix_match.c: the search ---- */
int prefix_init(struct prefix_index *index);
void prefix_deinit(struct prefix_index *index);
void prefix_hash(struct prefix_index *index, const struct kvpool_key *before,
		 const void *data, size_t bytes, struct kvpool_key *out);
int prefix_insert(struct prefix_index *index,
		  struct kv_segment *seg); /* -ENOMEM */
void prefix_remove(struct prefix_index *index, struct kv_segment *seg,
		   bool is_eviction);
/* Only the first @nr_tiles whole tiles stay; seg->nr_tokens still has its old value. */
void prefix_cut(struct prefix_index *index, struct kv_segment *seg,
		uint32_t nr_tiles);
bool prefix_was_evicted(const struct prefix_index *index,
			const struct kvpool_key *key);
/* Whether other segments hold all that this one holds, with all streams. */
bool prefix_is_covered(const struct prefix_index *index,
		       const struct kv_segment *seg);
/* A whole tile by its end border: the one behind (@after, its last tile) if there is one. */
const struct prefix_entry *prefix_find_tile(const struct prefix_index *index,
					    const struct kvpool_key *end_key,
					    const int32_t *tokens,
					    const struct kv_segment *after,
					    uint32_t next_tile);
/* The tile behind @start_key with the longest common start of @tokens; *out_len > 0. */
const struct prefix_entry *prefix_find_part(const struct prefix_index *index,
					    const struct kvpool_key *start_key,
					    const int32_t *tokens, uint32_t nr,
					    uint32_t *out_len);

struct prefix_match {
	struct kv_view *views; /* whole tiles, ascending */
	uint32_t nr_views;
	struct kv_segment *part; /* holds tokens [end of views, len), or NULL */
	uint32_t len;
	enum kv_miss miss;
};

/* The longest usable prefix of @tokens[0, @nr) behind the border @root. */
void prefix_search(struct kv_cache *cache, const struct kvpool_key *root,
		   const int32_t *tokens, uint32_t nr,
		   struct prefix_match *out);

#endif /* TARN_ENGINE_KV_SEGMENT_PRIVATE_H */
