/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary's arena and its index: open addressing over spans, at most
 * half full. A quarter of a million tokens must build in milliseconds, so a
 * slot carries half of the hash and texts are compared only when it agrees.
 */
#include "engine/token/vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"

/* Multiplies into 128 bits and folds: every input bit reaches both halves. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_text(const char *text, size_t len)
{
	static const uint64_t k0 = 0x9e3779b97f4a7c15u,
			      k1 = 0xd1b54a32d192ed03u;
	uint64_t hash = len * k0, word;

	while (len > sizeof(word)) {
		memcpy(&word, text, sizeof(word));
		hash = mix(hash ^ word, k1);
		text += sizeof(word);
		len -= sizeof(word);
	}
	word = 0;
	memcpy(&word, text, len);
	return mix(hash ^ word, k1) ^ k0;
}

static bool text_is(const struct vocab *vocab, uint32_t id, const char *text,
		    size_t len)
{
	size_t own_len;
	const char *own = vocab_text(vocab, id, &own_len);

	return own_len == len && memcmp(own, text, len) == 0;
}

uint64_t vocab_hash(const struct vocab *vocab, const char *text, size_t len)
{
	uint64_t hash = hash_text(text, len);

	__builtin_prefetch(&vocab->slots[(uint32_t)hash & vocab->mask]);
	return hash;
}

int32_t vocab_find_hashed(const struct vocab *vocab, uint64_t hash,
			  const char *text, size_t len, bool plain_only)
{
	uint32_t slot;

	if (len == 0)
		return TOKEN_NONE;
	for (slot = (uint32_t)hash & vocab->mask; vocab->slots[slot];
	     slot = (slot + 1) & vocab->mask) {
		uint32_t id = (uint32_t)vocab->slots[slot] - 1;

		if ((vocab->slots[slot] ^ hash) >> 32 ||
		    !text_is(vocab, id, text, len))
			continue;
		if (!plain_only || token_type_is_plain(vocab->types[id]))
			return (int32_t)id;
	}
	return TOKEN_NONE;
}

/* Most runs of text are longer than any token: those are not even hashed. */
static int32_t find(const struct vocab *vocab, const char *text, size_t len,
		    bool plain_only)
{
	if (len > vocab->max_len)
		return TOKEN_NONE;
	return vocab_find_hashed(vocab, hash_text(text, len), text, len,
				 plain_only);
}

int32_t vocab_find(const struct vocab *vocab, const char *text, size_t len)
{
	return find(vocab, text, len, false);
}

int32_t vocab_find_plain(const struct vocab *vocab, const char *text,
			 size_t len)
{
	return find(vocab, text, len, true);
}

/*
 * Of equal texts the first is kept, and the first plain one beside a control
 * token, so that chains stay short whatever the file says.
 */
static void insert(struct vocab *vocab, uint32_t id, uint64_t hash)
{
	size_t len;
	const char *text = vocab_text(vocab, id, &len);
	bool is_plain = token_type_is_plain(vocab->types[id]);
	uint32_t slot;

	if (len == 0)
		return;
	for (slot = (uint32_t)hash & vocab->mask; vocab->slots[slot];
	     slot = (slot + 1) & vocab->mask) {
		uint32_t other = (uint32_t)vocab->slots[slot] - 1;

		if ((vocab->slots[slot] ^ hash) >> 32 ||
		    !text_is(vocab, other, text, len))
			continue;
		vocab->has_equal = true;
		if (!is_plain || token_type_is_plain(vocab->types[other]))
			return;
	}
	vocab->slots[slot] = (hash & 0xffffffff00000000u) | (id + 1);
}

/*
 * The index is larger than the caches near the core: slots are asked for a
 * batch ahead, so that their loads overlap. It halves the time.
 */
static void index_texts(struct vocab *vocab)
{
	enum { BATCH = 32 };
	uint64_t hashes[BATCH];
	uint32_t first, i;

	for (first = 0; first < vocab->nr; first += BATCH) {
		uint32_t nr = vocab->nr - first;

		if (nr > BATCH)
			nr = BATCH;
		for (i = 0; i < nr; i++) {
			size_t len;
			const char *text = vocab_text(vocab, first + i, &len);

			hashes[i] = hash_text(text, len);
			__builtin_prefetch(
				&vocab->slots[(uint32_t)hashes[i] & vocab->mask],
				1);
		}
		for (i = 0; i < nr; i++)
			insert(vocab, first + i, hashes[i]);
	}
}

static int copy_texts(struct vocab *vocab, const struct gguf_str *strs,
		      uint32_t nr)
{
	uint64_t total = 0;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		total += strs[i].len;
		if (strs[i].len > UINT32_MAX || total > UINT32_MAX)
			return -EFBIG;
		if (strs[i].len > vocab->max_len)
			vocab->max_len = (uint32_t)strs[i].len;
	}
	vocab->texts.text = malloc(total + 1);
	vocab->texts.off = malloc(((size_t)nr + 1) * sizeof(*vocab->texts.off));
	if (!vocab->texts.text || !vocab->texts.off)
		return -ENOMEM;
	total = 0;
	for (i = 0; i < nr; i++) {
		vocab->texts.off[i] = (uint32_t)total;
		if (strs[i].len)
			memcpy(vocab->texts.text + total, strs[i].data,
			       strs[i].len);
		total += strs[i].len;
	}
	vocab->texts.off[nr] = (uint32_t)total;
	return 0;
}

int vocab_init(struct vocab *vocab, const struct gguf_str *strs, uint32_t nr,
	       uint8_t *types, float *scores)
{
	uint64_t nr_slots = 16;
	int err;

	memset(vocab, 0, sizeof(*vocab));
	while (nr_slots < 2 * (uint64_t)nr)
		nr_slots *= 2;
	err = copy_texts(vocab, strs, nr);
	if (!err) {
		vocab->slots = calloc(nr_slots, sizeof(*vocab->slots));
		err = vocab->slots ? 0 : -ENOMEM;
	}
	if (err) {
		vocab_deinit(vocab);
		return err;
	}
	vocab->nr = nr;
	vocab->types = types;
	vocab->scores = scores;
	vocab->mask = (uint32_t)(nr_slots - 1);
	index_texts(vocab);
	return 0;
}

void vocab_deinit(struct vocab *vocab)
{
	free(vocab->texts.text);
	free(vocab->texts.off);
	free(vocab->types);
	free(vocab->scores);
	free(vocab->slots);
	memset(vocab, 0, sizeof(*vocab));
}
