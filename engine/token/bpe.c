/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-level BPE. Symbols are ids from the start (each byte's token), and a
 * merge is found by the pair of ids, so no text is touched while merging.
 */
#include "engine/token/bpe.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/token/bpe_bytes.h"
#include "engine/token/nfc.h"
#include "engine/token/pretok.h"
#include "engine/token/utf8.h"

struct bpe_pair {
	uint64_t key; /* left id << 32 | right id */
	uint32_t rank;
	uint32_t joined_plus_1; /* id + 1 of what they make; 0: the slot is free */
};

struct bpe {
	const struct vocab *vocab;
	const struct pretok *pretok;
	int32_t byte_ids[256]; /* TOKEN_NONE where the vocabulary lacks the byte */
	struct bpe_pair *pairs;
	uint64_t mask;
};

/* One encoding. */
struct bpe_job {
	const struct bpe *bpe;
	struct bpe_scratch *scratch;
	struct ids *out;
	unsigned int flags; /* enum pretok_flags */
};

static uint64_t pair_slot(const struct bpe *bpe, uint64_t key)
{
	uint64_t hash = key * 0x9e3779b97f4a7c15u;

	return (hash ^ hash >> 32) & bpe->mask;
}

static const struct bpe_pair *pair_find(const struct bpe *bpe, int32_t left,
					int32_t right)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	uint64_t slot;

	for (slot = pair_slot(bpe, key); bpe->pairs[slot].joined_plus_1;
	     slot = (slot + 1) & bpe->mask) {
		if (bpe->pairs[slot].key == key)
			return &bpe->pairs[slot];
	}
	return NULL;
}

/* The first of equal pairs counts. */
static void pair_add(struct bpe *bpe, int32_t left, int32_t right,
		     int32_t joined, uint32_t rank)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	uint64_t slot;

	for (slot = pair_slot(bpe, key); bpe->pairs[slot].joined_plus_1;
	     slot = (slot + 1) & bpe->mask) {
		if (bpe->pairs[slot].key == key)
			return;
	}
	bpe->pairs[slot] = (struct bpe_pair){
		.key = key,
		.rank = rank,
		.joined_plus_1 = (uint32_t)joined + 1,
	};
}

/* A merge on its way into the table. */
struct bpe_merge {
	const struct gguf_str *str;
	uint32_t rank;
	const char *right; /* the left part is what stands before, less a space */
	size_t left_len, right_len;
	uint64_t left_hash, right_hash;
};

/* What reading them needs. */
struct bpe_reader {
	struct bpe *bpe;
	char *joined; /* [vocab->max_len] */
	int32_t guess; /* the result of the merge to come */
	char *err;
	size_t errlen;
};

static int merge_error(const struct bpe_reader *reader,
		       const struct bpe_merge *merge, const char *why)
{
	char shown[GGUF_SHOWN_BYTES];

	snprintf(reader->err, reader->errlen,
		 "tokenizer.ggml.merges[%u] (\"%s\"): %s", merge->rank,
		 gguf_show(*merge->str, shown), why);
	return -EINVAL;
}

static int cut_merge(const struct bpe_reader *reader, struct bpe_merge *merge)
{
	const struct vocab *vocab = reader->bpe->vocab;
	const struct gguf_str *str = merge->str;
	const char *gap = NULL;

	/* From the second byte on: a token may itself begin with a space. */
	if (str->len > 2)
		gap = memchr(str->data + 1, ' ', str->len - 1);
	if (!gap || gap == str->data + str->len - 1)
		return merge_error(reader, merge,
				   "not two tokens and a space between");
	merge->right = gap + 1;
	merge->left_len = (size_t)(gap - str->data);
	merge->right_len = str->len - merge->left_len - 1;
	if (str->len - 1 > vocab->max_len)
		return merge_error(reader, merge, "longer than any token");
	merge->left_hash = vocab_hash(vocab, str->data, merge->left_len);
	merge->right_hash = vocab_hash(vocab, merge->right, merge->right_len);
	return 0;
}

/* Trainers number tokens as they make them: mostly it is the one behind. */
static int32_t find_joined(const struct bpe_reader *reader,
			   const struct bpe_merge *merge)
{
	const struct vocab *vocab = reader->bpe->vocab;
	size_t len = merge->left_len + merge->right_len, own_len;
	const char *text;

	if (!vocab->has_equal && (uint32_t)reader->guess < vocab->nr &&
	    token_type_is_plain(vocab->types[reader->guess])) {
		text = vocab_text(vocab, (uint32_t)reader->guess, &own_len);
		if (own_len == len &&
		    !memcmp(text, merge->str->data, merge->left_len) &&
		    !memcmp(text + merge->left_len, merge->right,
			    merge->right_len))
			return reader->guess;
	}
	memcpy(reader->joined, merge->str->data, merge->left_len);
	memcpy(reader->joined + merge->left_len, merge->right,
	       merge->right_len);
	return vocab_find_plain(vocab, reader->joined, len);
}

/* Why a merge without three plain tokens is wrong, or 0: it never applies. */
static int check_unusable(const struct bpe_reader *reader,
			  const struct bpe_merge *merge)
{
	const struct vocab *vocab = reader->bpe->vocab;

	if (vocab_find(vocab, merge->str->data, merge->left_len) ==
		    TOKEN_NONE ||
	    vocab_find(vocab, merge->right, merge->right_len) == TOKEN_NONE)
		return merge_error(reader, merge, "a part is not a token");
	memcpy(reader->joined, merge->str->data, merge->left_len);
	memcpy(reader->joined + merge->left_len, merge->right,
	       merge->right_len);
	if (vocab_find(vocab, reader->joined,
		       merge->left_len + merge->right_len) == TOKEN_NONE)
		return merge_error(reader, merge, "the whole is not a token");
	/* A control token is among them, which text must not spell. */
	return 0;
}

static int add_merge(struct bpe_reader *reader, const struct bpe_merge *merge)
{
	const struct vocab *vocab = reader->bpe->vocab;
	int32_t left, right, joined;

	left = vocab_find_hashed(vocab, merge->left_hash, merge->str->data,
				 merge->left_len, true);
	right = vocab_find_hashed(vocab, merge->right_hash, merge->right,
				  merge->right_len, true);
	joined = find_joined(reader, merge);
	if (left == TOKEN_NONE || right == TOKEN_NONE || joined == TOKEN_NONE)
		return check_unusable(reader, merge);
	reader->guess = joined + 1;
	pair_add(reader->bpe, left, right, joined, merge->rank);
	return 0;
}

/* In batches, so that the loads from the vocabulary's index overlap. */
static int read_merges(struct bpe_reader *reader, const struct gguf_str *strs,
		       uint32_t nr)
{
	enum { BATCH = 16 };
	struct bpe_merge merges[BATCH];
	uint32_t first, i;
	int err = 0;

	for (first = 0; first < nr && !err; first += BATCH) {
		uint32_t end = nr - first < BATCH ? nr - first : BATCH;

		for (i = 0; i < end && !err; i++) {
			merges[i].str = &strs[first + i];
			merges[i].rank = first + i;
			err = cut_merge(reader, &merges[i]);
		}
		for (i = 0; i < end && !err; i++)
			err = add_merge(reader, &merges[i]);
	}
	return err;
}

int bpe_create(const struct vocab *vocab, const struct gguf_str *merges,
	       uint32_t nr, const struct pretok *pretok, struct bpe **out,
	       char *err, size_t errlen)
{
	struct bpe *bpe = calloc(1, sizeof(*bpe));
	struct bpe_reader reader = { .err = err, .errlen = errlen };
	uint64_t nr_slots = 16;
	unsigned int byte;
	int ret = -ENOMEM;

	*out = NULL;
	if (!bpe)
		return -ENOMEM;
	while (nr_slots < 2 * (uint64_t)nr)
		nr_slots *= 2;
	bpe->vocab = vocab;
	bpe->pretok = pretok;
	bpe->mask = nr_slots - 1;
	bpe->pairs = calloc(nr_slots, sizeof(*bpe->pairs));
	for (byte = 0; byte < 256; byte++) {
		char text[UTF8_MAX_BYTES];
		unsigned int len =
			utf8_put(bpe_byte_to_char((uint8_t)byte), text);

		bpe->byte_ids[byte] = vocab_find_plain(vocab, text, len);
	}
	reader.bpe = bpe;
	reader.joined = malloc((size_t)vocab->max_len + 1);
	if (bpe->pairs && reader.joined)
		ret = read_merges(&reader, merges, nr);
	free(reader.joined);
	if (ret) {
		bpe_destroy(bpe);
		return ret;
	}
	*out = bpe;
	return 0;
}

void bpe_destroy(struct bpe *bpe)
{
	if (!bpe)
		return;
	free(bpe->pairs);
	free(bpe);
}

static void look_pair(void *owner, struct merge_sym *left,
		      const struct merge_sym *right)
{
	const struct bpe_pair *pair = pair_find(owner, left->id, right->id);

	if (!pair)
		return;
	left->rank = pair->rank;
	left->joined = (int32_t)(pair->joined_plus_1 - 1);
}

/* The token that is the whole pre-token, or TOKEN_NONE. */
static int32_t find_whole(const struct bpe_job *job, const char *piece,
			  size_t len)
{
	uint32_t room = job->bpe->vocab->max_len;
	size_t nr = 0, i;

	if (len > room)
		return TOKEN_NONE;
	for (i = 0; i < len; i++) {
		char text[UTF8_MAX_BYTES];
		unsigned int text_len;

		text_len = utf8_put(bpe_byte_to_char((uint8_t)piece[i]), text);
		if (nr + text_len > room)
			return TOKEN_NONE;
		memcpy(job->scratch->mapped + nr, text, text_len);
		nr += text_len;
	}
	return vocab_find_plain(job->bpe->vocab, job->scratch->mapped, nr);
}

static int encode_piece(void *owner, const char *piece, size_t len)
{
	struct bpe_job *job = owner;
	const struct merge_rules rules = {
		.look = look_pair,
		.owner = (void *)job->bpe,
	};
	uint32_t at;
	size_t i;
	int ret;

	if (job->flags & PRETOK_IGNORE_MERGES) {
		int32_t id = find_whole(job, piece, len);

		if (id != TOKEN_NONE)
			return ids_push(job->out, id);
	}
	ret = merge_reset(&job->scratch->work, len);
	if (ret)
		return ret;
	for (i = 0; i < len; i++) {
		int32_t id = job->bpe->byte_ids[(unsigned char)piece[i]];

		if (id != TOKEN_NONE)
			merge_push(&job->scratch->work, (uint32_t)i, 1, id);
	}
	if (job->scratch->work.nr == 0)
		return 0;
	ret = merge_run(&job->scratch->work, &rules);
	for (at = 0; at != MERGE_NONE && !ret;
	     at = job->scratch->work.syms[at].next)
		ret = ids_push(job->out, job->scratch->work.syms[at].id);
	return ret;
}

static int encode_valid(struct bpe_job *job, const char *text, size_t len)
{
	char *composed = NULL;
	int ret = 0;

	if (job->flags & PRETOK_NFC) {
		size_t composed_len;

		ret = nfc_compose(text, len, &composed, &composed_len);
		if (composed) {
			text = composed;
			len = composed_len;
		}
	}
	if (!ret)
		ret = pretok_split(job->bpe->pretok, job->scratch->pretok, text,
				   len, encode_piece, job);
	free(composed);
	return ret;
}

static int encode_stretches(struct bpe_job *job, const char *text, size_t len)
{
	int ret = 0;

	while (len > 0 && !ret) {
		size_t run = utf8_valid_len(text, len);

		if (run > 0) {
			ret = encode_valid(job, text, run);
		} else {
			run = utf8_invalid_len(text, len);
			ret = encode_piece(job, text, run);
		}
		text += run;
		len -= run;
	}
	return ret;
}

int bpe_scratch_init(struct bpe_scratch *scratch, const struct bpe *bpe)
{
	*scratch = (struct bpe_scratch){
		.pretok = pretok_scratch_create(),
		.mapped = malloc((size_t)bpe->vocab->max_len + 1),
	};
	if (scratch->pretok && scratch->mapped)
		return 0;
	bpe_scratch_deinit(scratch);
	return -ENOMEM;
}

void bpe_scratch_deinit(struct bpe_scratch *scratch)
{
	merge_work_deinit(&scratch->work);
	pretok_scratch_destroy(scratch->pretok);
	free(scratch->mapped);
	*scratch = (struct bpe_scratch){ 0 };
}

int bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch,
	       const char *text, size_t len, struct ids *out)
{
	struct bpe_job job = {
		.bpe = bpe,
		.scratch = scratch,
		.out = out,
		.flags = pretok_flags(bpe->pretok),
	};

	return encode_stretches(&job, text, len);
}
