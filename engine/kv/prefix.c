/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix index: which sealed segment holds which tile, by the hash chain
 * over tokens. Border 0 is a root; the border behind tile i is
 * H(border in front || token ids of the tile). Each tile has an entry, found by
 * the border in front (to compare token by token) and, where it is whole, by
 * the border behind. Several segments may hold equal tiles. Owns the entries,
 * not the segments. Driver thread.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/segment_private.h"

enum { MIN_BUCKETS = 256 };

int prefix_init(struct prefix_index *index)
{
	index->nr_buckets = MIN_BUCKETS;
	index->by_start = calloc(MIN_BUCKETS, sizeof(struct prefix_entry *));
	index->by_end = calloc(MIN_BUCKETS, sizeof(struct prefix_entry *));
	index->ghosts = calloc(PREFIX_NR_GHOSTS, sizeof(uint64_t));
	/* Fetched once: looking an algorithm up costs more than hashing a tile. */
	index->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	index->ctx = EVP_MD_CTX_new();
	if (index->by_start && index->by_end && index->ghosts && index->md &&
	    index->ctx)
		return 0;
	prefix_deinit(index);
	return -ENOMEM;
}

void prefix_deinit(struct prefix_index *index)
{
	free(index->by_start);
	free(index->by_end);
	free(index->ghosts);
	EVP_MD_free(index->md);
	EVP_MD_CTX_free(index->ctx);
	*index = (struct prefix_index){ 0 };
}

void prefix_hash(struct prefix_index *index, const struct kvpool_key *before,
		 const void *data, size_t bytes, struct kvpool_key *out)
{
	unsigned int len = sizeof(out->bytes);

	/* SHA-256 of memory has nothing that could fail once the context is there. */
	EVP_DigestInit_ex2(index->ctx, index->md, NULL);
	EVP_DigestUpdate(index->ctx, before->bytes, sizeof(before->bytes));
	EVP_DigestUpdate(index->ctx, data, bytes);
	EVP_DigestFinal_ex(index->ctx, out->bytes, &len);
}

static uint64_t key_word(const struct kvpool_key *key)
{
	uint64_t word;

	memcpy(&word, key->bytes, sizeof(word));
	return word;
}

static struct prefix_entry **bucket(struct prefix_entry **table, size_t nr,
				    const struct kvpool_key *key)
{
	return &table[key_word(key) & (nr - 1)];
}

static const struct kvpool_key *start_key(const struct prefix_entry *entry)
{
	return entry->tile ? &entry->seg->keys[entry->tile - 1] :
			     &entry->seg->start_key;
}

static bool is_whole(const struct prefix_entry *entry)
{
	return entry->tile <
	       entry->seg->nr_tokens / entry->seg->cache->tile_tokens;
}

static bool key_equal(const struct kvpool_key *a, const struct kvpool_key *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

static void link_start(struct prefix_entry **head, struct prefix_entry *entry)
{
	entry->start_next = *head;
	entry->start_link = head;
	if (*head)
		(*head)->start_link = &entry->start_next;
	*head = entry;
}

static void link_end(struct prefix_entry **head, struct prefix_entry *entry)
{
	entry->end_next = *head;
	entry->end_link = head;
	if (*head)
		(*head)->end_link = &entry->end_next;
	*head = entry;
}

static void link_entry(struct prefix_index *index, struct prefix_entry *entry)
{
	link_start(bucket(index->by_start, index->nr_buckets, start_key(entry)),
		   entry);
	if (is_whole(entry))
		link_end(bucket(index->by_end, index->nr_buckets,
				&entry->seg->keys[entry->tile]),
			 entry);
}

static void unlink_entry(struct prefix_entry *entry)
{
	*entry->start_link = entry->start_next;
	if (entry->start_next)
		entry->start_next->start_link = entry->start_link;
	if (!entry->end_link)
		return;
	*entry->end_link = entry->end_next;
	if (entry->end_next)
		entry->end_next->end_link = entry->end_link;
}

static int grow(struct prefix_index *index, size_t nr_entries)
{
	size_t nr = index->nr_buckets;

	while (nr < nr_entries)
		nr *= 2;
	if (nr == index->nr_buckets)
		return 0;
	struct prefix_entry **by_start =
		calloc(nr, sizeof(struct prefix_entry *));
	struct prefix_entry **by_end =
		calloc(nr, sizeof(struct prefix_entry *));

	if (!by_start || !by_end) {
		free(by_start);
		free(by_end);
		return -ENOMEM;
	}
	for (size_t i = 0; i < index->nr_buckets; i++) {
		struct prefix_entry *entry, *next;

		for (entry = index->by_start[i]; entry; entry = next) {
			next = entry->start_next;
			link_start(bucket(by_start, nr, start_key(entry)),
				   entry);
		}
		for (entry = index->by_end[i]; entry; entry = next) {
			next = entry->end_next;
			link_end(bucket(by_end, nr,
					&entry->seg->keys[entry->tile]),
				 entry);
		}
	}
	free(index->by_start);
	free(index->by_end);
	index->by_start = by_start;
	index->by_end = by_end;
	index->nr_buckets = nr;
	return 0;
}

int prefix_insert(struct prefix_index *index, struct kv_segment *seg)
{
	uint32_t nr = kv_div_up(seg->nr_tokens, seg->cache->tile_tokens);

	if (!nr)
		return 0;
	if (grow(index, index->nr_entries + nr))
		return -ENOMEM;
	seg->entries = calloc(nr, sizeof(*seg->entries));
	if (!seg->entries)
		return -ENOMEM;
	seg->nr_entries = nr;
	for (uint32_t i = 0; i < nr; i++) {
		seg->entries[i].seg = seg;
		seg->entries[i].tile = i;
		link_entry(index, &seg->entries[i]);
	}
	index->nr_entries += nr;
	return 0;
}

static void remember(struct prefix_index *index,
		     const struct prefix_entry *entry)
{
	uint64_t word = key_word(&entry->seg->keys[entry->tile]);

	index->ghosts[word & (PREFIX_NR_GHOSTS - 1)] = word;
}

void prefix_remove(struct prefix_index *index, struct kv_segment *seg,
		   bool is_eviction)
{
	for (uint32_t i = 0; i < seg->nr_entries; i++) {
		if (is_eviction && is_whole(&seg->entries[i]))
			remember(index, &seg->entries[i]);
		unlink_entry(&seg->entries[i]);
	}
	index->nr_entries -= seg->nr_entries;
	free(seg->entries);
	seg->entries = NULL;
	seg->nr_entries = 0;
}

void prefix_cut(struct prefix_index *index, struct kv_segment *seg,
		uint32_t nr_tiles)
{
	while (seg->nr_entries > nr_tiles) {
		struct prefix_entry *entry = &seg->entries[--seg->nr_entries];

		if (is_whole(entry))
			remember(index, entry);
		unlink_entry(entry);
		index->nr_entries--;
	}
	if (!seg->nr_entries)
		prefix_remove(index, seg, true);
}

bool prefix_was_evicted(const struct prefix_index *index,
			const struct kvpool_key *key)
{
	uint64_t word = key_word(key);

	return index->ghosts[word & (PREFIX_NR_GHOSTS - 1)] == word;
}

static bool has_tile(const struct kv_segment *seg, uint32_t stream,
		     uint32_t tile)
{
	return tile >= seg->streams[stream].first_tile &&
	       tile < seg->streams[stream].end_tile;
}

/* Tiles may go by themselves; windowed streams are looked at when the match is cut. */
static bool is_usable(const struct prefix_entry *entry)
{
	const struct kv_cache *cache = entry->seg->cache;

	for (uint32_t s = 0; s < cache->nr_streams; s++) {
		if (!kv_is_windowed(cache, s) &&
		    !has_tile(entry->seg, s, entry->tile))
			return false;
	}
	return true;
}

static const int32_t *tile_tokens(const struct prefix_entry *entry)
{
	return entry->seg->tokens +
	       (size_t)entry->tile * entry->seg->cache->tile_tokens;
}

/* How good an entry is to go on with: a stream is worth more than any length. */
static uint64_t rank(const struct prefix_entry *entry)
{
	const struct kv_segment *seg = entry->seg;
	uint64_t rank = seg->nr_entries - entry->tile;

	for (uint32_t s = 0; s < seg->cache->nr_streams; s++)
		rank += seg->streams[s].is_dropped ? 0 : 1ull << 32;
	return rank;
}

const struct prefix_entry *prefix_find_tile(const struct prefix_index *index,
					    const struct kvpool_key *end_key,
					    const int32_t *tokens,
					    const struct kv_segment *after,
					    uint32_t next_tile)
{
	const struct prefix_entry *entry =
		*bucket(index->by_end, index->nr_buckets, end_key);
	const struct prefix_entry *best = NULL;

	for (; entry; entry = entry->end_next) {
		const struct kv_segment *seg = entry->seg;

		/* The ids are compared too: a wrong hit would be somebody else's text. */
		if (!key_equal(&seg->keys[entry->tile], end_key) ||
		    !is_usable(entry) ||
		    memcmp(tile_tokens(entry), tokens,
			   seg->cache->tile_tokens * sizeof(*tokens)))
			continue;
		if (seg == after && entry->tile == next_tile)
			return entry;
		if (!best || rank(entry) > rank(best))
			best = entry;
	}
	return best;
}

static uint32_t common_start(const struct prefix_entry *entry,
			     const int32_t *tokens, uint32_t nr)
{
	const struct kv_segment *seg = entry->seg;
	uint32_t first = entry->tile * seg->cache->tile_tokens;
	uint32_t max = seg->nr_tokens - first, len = 0;

	if (max > seg->cache->tile_tokens)
		max = seg->cache->tile_tokens;
	if (max > nr)
		max = nr;
	while (len < max && seg->tokens[first + len] == tokens[len])
		len++;
	return len;
}

const struct prefix_entry *prefix_find_part(const struct prefix_index *index,
					    const struct kvpool_key *key,
					    const int32_t *tokens, uint32_t nr,
					    uint32_t *out_len)
{
	const struct prefix_entry *entry =
		*bucket(index->by_start, index->nr_buckets, key);
	const struct prefix_entry *best = NULL;

	*out_len = 0;
	for (; entry; entry = entry->start_next) {
		if (!key_equal(start_key(entry), key) || !is_usable(entry))
			continue;
		uint32_t len = common_start(entry, tokens, nr);

		if (len > *out_len ||
		    (len && len == *out_len && rank(entry) > rank(best))) {
			*out_len = len;
			best = entry;
		}
	}
	return best;
}

static bool is_tile_covered(const struct prefix_index *index,
			    const struct prefix_entry *own)
{
	const struct kv_segment *seg = own->seg;
	const struct prefix_entry *entry =
		*bucket(index->by_start, index->nr_buckets, start_key(own));
	uint32_t per_tile = seg->cache->tile_tokens;
	uint32_t nr = seg->nr_tokens - own->tile * per_tile;

	if (nr > per_tile)
		nr = per_tile;
	for (; entry; entry = entry->start_next) {
		const struct kv_segment *other = entry->seg;
		bool has_all = other != seg &&
			       key_equal(start_key(entry), start_key(own)) &&
			       common_start(entry, tile_tokens(own), nr) == nr;

		/* Of every stream that is there, the other has the tile as well. */
		for (uint32_t s = 0; has_all && s < seg->cache->nr_streams; s++)
			has_all = !has_tile(seg, s, own->tile) ||
				  has_tile(other, s, entry->tile);
		if (has_all)
			return true;
	}
	return false;
}

bool prefix_is_covered(const struct prefix_index *index,
		       const struct kv_segment *seg)
{
	/* From the end: what is new is there. */
	for (uint32_t i = seg->nr_entries; i-- > 0;) {
		if (!is_tile_covered(index, &seg->entries[i]))
			return false;
	}
	return true;
}
