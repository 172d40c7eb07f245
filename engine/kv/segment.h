/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: the KV of token sequences over libkvpool.
 *
 * A sequence is a chain of segments: sealed ancestors (immutable, shared,
 * counted) and one open leaf (its own, growing). A segment starts at a
 * multiple of T and has one buffer per stream. The cache finds sealed
 * segments again by a hash chain over the tokens they hold.
 *
 * Threads: every call that takes a kv_cache or kv_seq comes from the engine's
 * driver thread. kv_cache_stat() may come from any.
 */
#ifndef TARN_ENGINE_KV_SEGMENT_H
#define TARN_ENGINE_KV_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/kv/libkvpool.h"
#include "kernels/attn_plan.h"

enum {
	KV_MAX_STREAMS = 2,
	/* Deeper chains are compacted when a sequence is opened on them. */
	KV_MAX_CHAIN = 16,
};

/* One stream of a model: layers that see the same keys. */
struct kv_stream_desc {
	uint32_t nr_layers;
	uint32_t nr_kv_heads;
	uint32_t head_dim;
	uint32_t window_tokens; /* 0: all earlier tokens */
};

enum kv_layout_kind {
	KV_LAYOUT_TILE, /* [layer][K|V][kv_head][T][head_dim], DESIGN section 2 */
	KV_LAYOUT_LAYER, /* a buffer per layer and per K and V, [t][kv_head][head_dim] */
};

/*
 * T of a model: 64, or 32, if the widest stream's tile then fits 4 MiB, else
 * 16. The same for every stream and backend.
 */
uint32_t kv_tile_tokens(const struct kv_stream_desc *streams,
			uint32_t nr_streams, uint32_t elem_bytes);
/*
 * Fill in the layout of one stream's buffers. KV_LAYOUT_LAYER: the layout of each of
 * its 2 * nr_layers buffers (nr_layers = 1 in @out; stride without padding).
 */
void kv_layout_init(struct attn_layout *out, enum kv_layout_kind kind,
		    const struct kv_stream_desc *stream, uint32_t tile_tokens,
		    enum attn_elem elem);

struct kv_cache;
struct kv_exchange;
struct kv_seq;

struct kv_cache_options {
	struct kvpool *pool; /* the cache takes a reference */
	enum kv_layout_kind layout;
	enum attn_elem elem;
	struct kv_stream_desc streams[KV_MAX_STREAMS];
	uint32_t nr_streams;
	uint32_t max_tokens; /* of one sequence: sizes the address ranges */
	/*
	 * Most tokens of one kv_seq_append() (a prompt chunk): what a windowed stream reserves
	 * beside its window. 0: 512. A larger append takes the rest from what the pool has free.
	 */
	uint32_t max_append_tokens;
	uint32_t tile_tokens; /* T; 0: kv_tile_tokens(). Other values are for tests. */
	bool prefix_cache; /* keep sealed segments for later matches */
	/* K runs are [T][head_dim], as V runs are: a GPU's. Else in groups of 16 tokens. */
	bool is_k_by_token;
	/*
	 * Of the pool's limit, bytes that are promised to nobody: what the pool may hold beside
	 * what is committed (a device's, with handles of several pages).
	 */
	uint64_t slack_bytes;
	/*
	 * Publish what is kept in the pool, and look there for prefixes that are not known
	 * here: other caches on the pool find them, other processes' too. With the prefix
	 * cache and KV_LAYOUT_TILE only; see shared_prefix.h.
	 */
	bool share_prefixes;
	/*
	 * With it, of a pool that no other cache uses: other processes' caches, instead of the
	 * pool's. It outlives the cache. NULL: none.
	 */
	struct kv_exchange *exchange;
	/* Root of every hash chain: the numerics id, model, tokenizer, KV format. */
	struct kvpool_key root;
};

int kv_cache_create(const struct kv_cache_options *options,
		    struct kv_cache **out_cache);
/* Every sequence must be gone. NULL is fine. */
void kv_cache_destroy(struct kv_cache *cache);
const struct attn_layout *kv_cache_layout(const struct kv_cache *cache,
					  uint32_t stream);
uint32_t kv_cache_nr_streams(const struct kv_cache *cache);
/*
 * Where the pool has one range of addresses for all its buffers: every tile of a stream lies a
 * multiple of the stream's stride_bytes behind this address, so (address of a tile - base) /
 * stride_bytes is its number in one tensor map over the range. NULL: tiles have no such numbers.
 */
const uint8_t *kv_cache_base(const struct kv_cache *cache);
/**
 * kv_cache_fence - the work of a device that uses the cache's memory was started
 * @stream: as of kvpool_fence()
 *
 * To be called behind each step, before any other call that changes a sequence: those copy and
 * give up memory behind this fence. Nothing where the CPU computes. Return: as kvpool_fence().
 */
int kv_cache_fence(struct kv_cache *cache, void *stream);
/* Keys that a row of the stream sees, its own included; 0: all. */
uint32_t kv_cache_window(const struct kv_cache *cache, uint32_t stream);

/* Why a prefix was not found in full. */
enum kv_miss {
	KV_MISS_NONE, /* all of it was found */
	KV_MISS_NEVER, /* these tokens were not seen under this salt */
	KV_MISS_EVICTED, /* seen, and dropped since */
	KV_MISS_WINDOW, /* the windowed stream at the cut is gone */
	KV_MISS_OFF, /* no prefix cache */
};

struct kv_cache_stat {
	uint64_t used_bytes; /* in tiles of live sequences that hold tokens, shared ones once */
	uint64_t ahead_bytes; /* committed by kv_seq_prepare(), no token in them yet */
	uint64_t cached_bytes; /* sealed tiles that no sequence uses: may be evicted */
	uint64_t reserved_bytes; /* promised to live sequences, not yet committed */
	uint64_t nr_seqs, nr_segments, nr_cached_segments;
	uint64_t query_tokens, hit_tokens; /* of the prefix cache */
	uint64_t shared_hit_tokens; /* part of hit_tokens that came from the pool just then */
	uint64_t nr_published, nr_imported; /* segments, so far */
	uint64_t nr_lookups; /* in the pool */
	uint64_t evictions;
	uint64_t misses[KV_MISS_OFF + 1];
};

void kv_cache_stat(struct kv_cache *cache, struct kv_cache_stat *out_stat);

/*
 * Publish what was sealed since the last call, with share_prefixes: off the token path, between
 * the steps. Never fails: what cannot be published stays this cache's own.
 */
void kv_cache_publish(struct kv_cache *cache);

/**
 * kv_seq_open - start a sequence on the longest cached prefix of its prompt
 * @tokens, @nr: the prompt. At most @nr - 1 tokens are taken from the cache, so that
 *	one is left to compute logits from.
 * @reserve_tokens: length the sequence may reach: memory for it is kept until the
 *	sequence ends (cached segments are evicted for it, least recently used first).
 * @salt: separates those who may not see each other's prefixes (hash of secret and uid); NULL: the
 *	sequence neither looks for a prefix nor leaves one behind.
 * @owner: uid the memory is charged to.
 * @out_seq: [out]; @out_matched: [out] tokens found, already in the sequence;
 * @out_miss: [out] why not more.
 *
 * Return: 0; -EAGAIN when the memory is not to be had now (others hold it: try again when
 * one ends); -ENOSPC when it exceeds the pool's limit even alone; -E2BIG beyond max_tokens;
 * -EIO (a device's pool, of this and all that copy: the device failed).
 * With no other sequence in the cache it is -EAGAIN only for what others hold of the pool.
 */
int kv_seq_open(struct kv_cache *cache, const int32_t *tokens, uint32_t nr,
		uint32_t reserve_tokens, const struct kvpool_key *salt,
		uid_t owner, struct kv_seq **out_seq, uint32_t *out_matched,
		enum kv_miss *out_miss);
/*
 * Ends the sequence; its tokens are sealed and kept for prefix matches: one whose K and V were not
 * all written is truncated to what was first. NULL is fine.
 */
void kv_seq_close(struct kv_seq *seq);

/* What it holds since its last seal is not to be trusted: nothing of that is kept at its end. */
void kv_seq_distrust(struct kv_seq *seq);

/* Tokens whose K and V are written, or are being written. */
uint32_t kv_seq_len(const struct kv_seq *seq);

/**
 * kv_seq_append - room for the next tokens
 *
 * Commits their tiles from the sequence's reservation and records their ids; the caller then
 * writes their K and V, before the next call but kv_seq_pieces(), kv_seq_tile() and
 * kv_seq_dense(). What rows from the present length on cannot see of windowed streams is let go,
 * on an error too; all that the new rows see is there. Bytes of a tile beyond its tokens are
 * undefined, NaN included. @tokens NULL: their ids are not known yet, kv_seq_name() tells them.
 * Return: 0; -ENOSPC beyond the reservation when the pool has no more
 * either (within it only when the system is out of memory or descriptors); -E2BIG beyond
 * max_tokens; -EIO: the device is lost. On an error the sequence is as before.
 */
int kv_seq_append(struct kv_seq *seq, const int32_t *tokens, uint32_t nr);
/*
 * The id of the first token that was appended without one. Until all have theirs, or are truncated
 * again, the sequence is not sealed, forked or closed, nor more tokens with ids appended.
 */
void kv_seq_name(struct kv_seq *seq, int32_t token);
/*
 * Off the token path, once the rows so far are computed: lets go of what fell behind windows and,
 * where half of the last tile is filled, commits the next one within the reservation. Never
 * fails: it only helps.
 */
void kv_seq_prepare(struct kv_seq *seq);

/**
 * kv_seq_seal - seal the leaf at its length and offer it to the cache
 *
 * Called at the end of a prompt: equal prompts that follow find it. The sequence goes on in a new
 * leaf; whole 16-token groups of the last, partly filled tile are copied into it. That tile of the
 * sealed segment is nobody's from then on: cached, and evictable by itself. Nothing happens
 * without a prefix cache, without new tokens, and with KV_LAYOUT_LAYER, where the sequence is
 * offered at its end. Return: 0; -EAGAIN when there is no memory for the copy (and, with windows,
 * for a second window), -EIO: the sequence goes on unsealed.
 */
int kv_seq_seal(struct kv_seq *seq);
/**
 * kv_seq_fork - a second sequence with the same tokens
 * @reserve_tokens: as in kv_seq_open(), for the child.
 *
 * Seals the leaf; both go on in new leaves. O(1) but for the partly filled tile, and for a chain
 * of KV_MAX_CHAIN segments, which is compacted. KV_LAYOUT_LAYER copies everything.
 * Return: 0, -EAGAIN, -ENOSPC, -E2BIG as kv_seq_open().
 */
int kv_seq_fork(struct kv_seq *seq, uint32_t reserve_tokens,
		struct kv_seq **out_seq);
/**
 * kv_seq_truncate - forget tokens from @len on
 *
 * O(1) within the leaf; further back, the partly used tile is copied into a new leaf. Always
 * possible down to the length before the last append, while no prepare, seal or fork came
 * between. Return: 0; -ESTALE when a windowed stream no longer holds the window in front of @len
 * (recompute); -EAGAIN when there is no memory for the copy, or for promising again what the
 * chain shared; -EINVAL when @len exceeds the length. On an error nothing has changed.
 */
int kv_seq_truncate(struct kv_seq *seq, uint32_t len);

/* Address of the tile that holds @token of the leaf, for writing (KV_LAYOUT_TILE). */
uint8_t *kv_seq_tile(const struct kv_seq *seq, uint32_t stream, uint32_t token);
/* Start of a buffer of KV_LAYOUT_LAYER: K (@v false) or V of one layer, [t][kv_head][head_dim]. */
uint8_t *kv_seq_dense(const struct kv_seq *seq, uint32_t stream, uint32_t layer,
		      bool v);

/**
 * kv_seq_pieces - where tokens [first, end) of a stream lie
 * @out_pieces: [out] room for at least KV_MAX_CHAIN + 1.
 *
 * Ascending, without gaps; the ends are exactly @first and @end. Valid until the next call that
 * changes the sequence. Return: how many; -ESTALE when a token fell out of the window and is gone;
 * -EINVAL beyond the length, and with KV_LAYOUT_LAYER.
 */
int kv_seq_pieces(const struct kv_seq *seq, uint32_t stream, uint32_t first,
		  uint32_t end, struct attn_piece *out_pieces);

/*
 * Walk every invariant: no page in two states, sum of references equals mapped pages,
 * free + used = total. Return: 0, or -EINVAL with @err naming the first breach. For tests.
 */
int kv_cache_check(struct kv_cache *cache, char *err, size_t errlen);

#endif /* TARN_ENGINE_KV_SEGMENT_H */
