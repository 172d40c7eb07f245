/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes that several caches on one pool share, whichever process they are
 * in: what one has computed is found, mapped and read by the others, and lies
 * in memory once. Used by engine/kv/segment_*.c alone. Driver thread.
 *
 * Publishing (shared_publish.c). A sealed segment that is kept for later
 * prompts is sealed in the pool too, one buffer per stream, and gets a key for
 * the border behind each of its whole tiles:
 *
 *	H(chain key of the border, SHARED_PREFIX_KEY, number of the stream)
 *
 * The chain key hashes the numerics id, the model, the KV format, the salt and
 * every token up to the border (prefix.c): equal keys mean equal bytes. Who
 * does not know the pool's secret and the tokens cannot make one. The mark of
 * a key says how many bytes of the buffer lie in front of the border. As tiles
 * are of one size, that also tells where the buffer begins:
 *
 *	start = border - n / stride * T
 *
 * so keys need no start, a reader knows nothing of how the writer cut its
 * tokens into segments, and any border of any segment of a chain can be asked
 * for. A windowed stream gives up tiles behind its window: it has a key only
 * for borders at which the segment still holds all that the next row sees of
 * it. A reader of that key takes no more than that. Streams without a window
 * are published wholly or the segment is not; windowed ones come first, so that
 * they are there once the others are found. What the pool has already is not
 * published a second time.
 *
 * Nothing is written once it is sealed, and memory that was another request's
 * (unused rows of the last tile, padding) is cleared before. Pages sealed in
 * the pool cannot be given back by parts: they count as pinned as a whole while
 * a sequence needs one of them, so a segment is published only where that
 * leaves every promise standing. Evicting a published segment means to forget
 * it here: the pool keeps it, volatile, until it needs the memory.
 *
 * Finding (shared_find.c). When the index of this cache ends before the prompt
 * does, the pool is asked for the next border; mostly it is not there, and one
 * look-up was all. Else for the last one, and between them by bisection: a
 * chain is published from its front on. From the longest border found, the
 * starts lead back, buffer by buffer, to what is known here. Then each becomes
 * a sealed segment of this cache (its tokens are the prompt's own) and enters
 * the index; sequences use it like any other. A hole in the chain shortens it,
 * a last segment without the window of its end is left out, and whatever goes
 * wrong is a miss. A purge shows at the next use: the segment leaves the index.
 *
 * Over an exchange (exchange.h) all this goes between pools that are private to
 * their processes. What is published is offered there, until the segment is
 * evicted; look-ups ask the peers, and a buffer is mapped once it is known to be
 * used. The key's secret is then the exchange's.
 */
#ifndef TARN_ENGINE_KV_SHARED_PREFIX_H
#define TARN_ENGINE_KV_SHARED_PREFIX_H

#include "engine/kv/segment_private.h"

enum {
	SHARED_PREFIX_KEY =
		0x5441524e, /* part of every key; changes with their meaning */
	/* Segments taken from the pool for one prompt. */
	SHARED_PREFIX_MAX_SEGMENTS = 64,
	/* Look-ups for one prompt: more is cheaper to compute than to find. */
	SHARED_PREFIX_MAX_LOOKUPS = 256,
};

/* What one prompt found; held, so that nothing takes it before a sequence does. */
struct shared_prefix {
	struct kv_segment *segs[SHARED_PREFIX_MAX_SEGMENTS];
	uint32_t nr_segs;
	bool lacks_window; /* more was there, but for its windowed streams */
};

/* The key of the border behind @border's tile in a stream. */
void shared_prefix_key(struct kv_cache *cache, const struct kvpool_key *border,
		       uint32_t stream, struct kvpool_key *out);
/* First position of a stream's window in front of @border within a segment from @start on. */
uint32_t shared_prefix_window(const struct kv_cache *cache, uint32_t stream,
			      uint32_t start, uint32_t border);

/*
 * A published stream of a segment goes: with an exchange nobody finds it any more. Else the pool
 * keeps it, until it needs the memory.
 */
void shared_prefix_unpublish(struct kv_segment *seg, uint32_t stream);
/* Have a segment published at the next kv_cache_publish(), if there is anything to share. */
void shared_prefix_queue(struct kv_segment *seg);
/**
 * shared_prefix_find - take what the pool knows of a prompt into the index
 * @nr: tokens that may be taken over.
 * @len: of them, how many this cache has already.
 * @out: [in, out] zeroed; shared_prefix_put() lets go of it.
 *
 * Return: whether the index has changed.
 */
bool shared_prefix_find(struct kv_cache *cache, const struct kvpool_key *root,
			const int32_t *tokens, uint32_t nr, uint32_t len,
			uid_t owner, struct shared_prefix *out);
void shared_prefix_put(struct shared_prefix *shared);

#endif /* TARN_ENGINE_KV_SHARED_PREFIX_H */
