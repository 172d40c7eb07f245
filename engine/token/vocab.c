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

/* Either any token (@plain_only false) or only those text may turn into. */
static int32_t find(const struct vocab *vocab, const char *text, size_t len,
		    bool plain_only)
{
	uint64_t hash;
	uint32_t slot;

	if (len == 0 || len > vocab->max_len)
		return TOKEN_NONE;
	hash = hash_text(text, len);
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
static void insert(struct vocab *vocab, uint32_t id)
{
	size_t len;
	const char *text = vocab_text(vocab, id, &len);
	bool is_plain = token_type_is_plain(vocab->types[id]);
	uint64_t hash;
	uint32_t slot;

	if (len == 0)
		return;
	hash = hash_text(text, len);
	for (slot = (uint32_t)hash & vocab->mask; vocab->slots[slot];
	     slot = (slot + 1) & vocab->mask) {
		uint32_t other = (uint32_t)vocab->slots[slot] - 1;

		if ((vocab->slots[slot] ^ hash) >> 32 ||
		    !text_is(vocab, other, text, len))
			continue;
		if (!is_plain || token_type_is_plain(vocab->types[other]))
			return;
	}
	vocab->slots[slot] = (hash & 0xffffffff00000000u) | (id + 1);
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
	uint32_t id;
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
	for (id = 0; id < nr; id++)
		insert(vocab, id);
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
