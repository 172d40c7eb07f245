/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-level BPE: a text without special tokens to ids, by a pre-tokenizer
 * and merges in order of rank. Borrows the vocabulary. Immutable once built.
 *
 * Bytes that are not valid UTF-8: the text is cut into the longest stretches
 * of well-formed characters and the runs of bytes between them. A stretch is
 * pre-tokenized, by its characters composed where the pre-tokenizer says so
 * (PRETOK_NFC); a run is one pre-token as it stands. A byte for which the
 * vocabulary has no token vanishes, and its neighbours become neighbours.
 */
#ifndef TARN_ENGINE_TOKEN_BPE_H
#define TARN_ENGINE_TOKEN_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/token/ids.h"
#include "engine/token/merge.h"
#include "engine/token/vocab.h"

struct bpe;
struct gguf_str;
struct pretok;
struct pretok_scratch;

/**
 * bpe_create - the merges of a vocabulary
 * @vocab: borrowed; must outlive it.
 * @merges: [nr] "left right" in order of rank; not needed after the call.
 * @pretok: borrowed; must outlive it.
 * @err, @errlen: [out] names the merge that is wrong.
 *
 * Return: 0, -ENOMEM, -EINVAL for a merge that is no pair or names a text
 * that is no token.
 */
int bpe_create(const struct vocab *vocab, const struct gguf_str *merges,
	       uint32_t nr, const struct pretok *pretok, struct bpe **out,
	       char *err, size_t errlen);
void bpe_destroy(struct bpe *bpe); /* NULL is fine */

/* Scratch memory of one encoding at a time. */
struct bpe_scratch {
	struct merge_work work;
	struct pretok_scratch *pretok;
	char *mapped; /* [vocab->max_len]: a pre-token in GPT-2's alphabet */
};

/* Return: 0, -ENOMEM (nothing to undo then). */
int bpe_scratch_init(struct bpe_scratch *scratch, const struct bpe *bpe);
void bpe_scratch_deinit(struct bpe_scratch *scratch);

/* Append the ids of a text. Return: 0, -ENOMEM, -EFBIG. */
int bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch,
	       const char *text, size_t len, struct ids *out);

/**
 * bpe_decode_text - the bytes that a token's text in the file stands for
 * @out: room for @len bytes.
 *
 * Characters outside GPT-2's alphabet of bytes stand for themselves.
 * Return: bytes written.
 */
size_t bpe_decode_text(const char *text, size_t len, char *out);

#endif /* TARN_ENGINE_TOKEN_BPE_H */
