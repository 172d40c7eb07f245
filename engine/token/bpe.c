/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-level BPE. Symbols are ids from the start (each byte's token), and a
 * merge is found by the pair of ids, so no text is touched while merging.
 */
#include "engine/token/bpe.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/token/bpe_bytes.h"
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
	bool takes_whole; /* PRETOK_IGNORE_MERGES */
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

static int merge_error(const struct gguf_str *merge, uint32_t rank,
		       const char *why, char *err, size_t errlen)
{
	snprintf(err, errlen, "tokenizer.ggml.merges[%u] (\"%.*s\"): %s", rank,
		 merge->len > 64 ? 64 : (int)merge->len, merge->data, why);
	return -EINVAL;
}

/* @joined: room for a text of the vocabulary's longest. */
static int read_merge(struct bpe *bpe, const struct gguf_str *merge,
		      uint32_t rank, char *joined, char *err, size_t errlen)
{
	int32_t left, right, both;
	const char *gap = NULL;
	size_t left_len, right_len;

	/* From the second byte on: a token may itself begin with a space. */
	if (merge->len > 2)
		gap = memchr(merge->data + 1, ' ', merge->len - 1);
	if (!gap || gap == merge->data + merge->len - 1)
		return merge_error(merge, rank,
				   "not two tokens and a space between", err,
				   errlen);
	left_len = (size_t)(gap - merge->data);
	right_len = merge->len - left_len - 1;
	if (left_len + right_len > bpe->vocab->max_len)
		return merge_error(merge, rank, "longer than any token", err,
				   errlen);
	memcpy(joined, merge->data, left_len);
	memcpy(joined + left_len, gap + 1, right_len);
	left = vocab_find(bpe->vocab, merge->data, left_len);
	right = vocab_find(bpe->vocab, gap + 1, right_len);
	both = vocab_find(bpe->vocab, joined, left_len + right_len);
	if (left == TOKEN_NONE || right == TOKEN_NONE)
		return merge_error(merge, rank, "a part is not a token", err,
				   errlen);
	if (both == TOKEN_NONE)
		return merge_error(merge, rank, "the whole is not a token", err,
				   errlen);
	/* Text must not spell a control token: such a merge never applies. */
	left = vocab_find_plain(bpe->vocab, merge->data, left_len);
	right = vocab_find_plain(bpe->vocab, gap + 1, right_len);
	both = vocab_find_plain(bpe->vocab, joined, left_len + right_len);
	if (left != TOKEN_NONE && right != TOKEN_NONE && both != TOKEN_NONE)
		pair_add(bpe, left, right, both, rank);
	return 0;
}

static int read_merges(struct bpe *bpe, const struct gguf_str *merges,
		       uint32_t nr, char *err, size_t errlen)
{
	char *joined = malloc((size_t)bpe->vocab->max_len + 1);
	uint32_t i;
	int ret = joined ? 0 : -ENOMEM;

	for (i = 0; i < nr && !ret; i++)
		ret = read_merge(bpe, &merges[i], i, joined, err, errlen);
	free(joined);
	return ret;
}

int bpe_create(const struct vocab *vocab, const struct gguf_str *merges,
	       uint32_t nr, const struct pretok *pretok, struct bpe **out,
	       char *err, size_t errlen)
{
	struct bpe *bpe = calloc(1, sizeof(*bpe));
	uint64_t nr_slots = 16;
	unsigned int byte;
	int ret;

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
	ret = bpe->pairs ? read_merges(bpe, merges, nr, err, errlen) : -ENOMEM;
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

	if (job->takes_whole) {
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

static int encode_stretches(struct bpe_job *job, const char *text, size_t len)
{
	int ret = 0;

	while (len > 0 && !ret) {
		size_t run = utf8_valid_len(text, len);

		if (run > 0) {
			ret = pretok_split(job->bpe->pretok,
					   job->scratch->pretok, text, run,
					   encode_piece, job);
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
		.takes_whole = pretok_flags(bpe->pretok) & PRETOK_IGNORE_MERGES,
	};

	return encode_stretches(&job, text, len);
}
