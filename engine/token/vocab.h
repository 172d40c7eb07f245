/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary: texts, types and scores of all tokens in one arena, and
 * the index from a text to its id. Owns copies of everything it keeps.
 * Knows nothing of how text is split or merged. Immutable once built.
 */
#ifndef TARN_ENGINE_TOKEN_VOCAB_H
#define TARN_ENGINE_TOKEN_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/token/tokenizer.h"

struct gguf_str;

/* Spans of one arena: string i is text[off[i]..off[i + 1]). */
struct span_table {
	char *text;
	uint32_t *off; /* [nr + 1] */
};

struct vocab {
	uint32_t nr;
	uint32_t max_len; /* bytes of the longest text */
	bool has_equal; /* some text is that of an earlier token */
	struct span_table texts;
	uint8_t *types; /* [nr], enum token_type */
	float *scores; /* [nr], or NULL */
	uint64_t *slots; /* hash's high half << 32 | id + 1; 0 is free */
	uint32_t mask;
};

/**
 * vocab_init - copy and index the tokens
 * @strs: [nr] texts in order of id; may repeat and may be empty. An empty
 *	text is never found; of equal texts the first is.
 * @types: [nr] enum token_type; taken over, freed by vocab_deinit().
 * @scores: [nr] or NULL; taken over likewise.
 *
 * On failure nothing is taken over. Return: 0, -ENOMEM, -EFBIG when the texts
 * exceed 4 GiB.
 */
int vocab_init(struct vocab *vocab, const struct gguf_str *strs, uint32_t nr,
	       uint8_t *types, float *scores);
void vocab_deinit(struct vocab *vocab);

/* Id of the token whose text is exactly this, or TOKEN_NONE. */
int32_t vocab_find(const struct vocab *vocab, const char *text, size_t len);

/*
 * The same among the tokens that running text may turn into (normal,
 * user-defined, unused): text must never spell a control token.
 */
int32_t vocab_find_plain(const struct vocab *vocab, const char *text,
			 size_t len);

/*
 * Both in two steps, for many look-ups in a row: ask for the hashes of some
 * texts, which starts to load their slots, then find them. @plain_only: as
 * vocab_find_plain().
 */
uint64_t vocab_hash(const struct vocab *vocab, const char *text, size_t len);
int32_t vocab_find_hashed(const struct vocab *vocab, uint64_t hash,
			  const char *text, size_t len, bool plain_only);

static inline bool token_type_is_plain(uint8_t type)
{
	return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED ||
	       type == TOKEN_UNUSED;
}

static inline const char *vocab_text(const struct vocab *vocab, uint32_t id,
				     size_t *out_len)
{
	*out_len = vocab->texts.off[id + 1] - vocab->texts.off[id];
	return vocab->texts.text + vocab->texts.off[id];
}

#endif /* TARN_ENGINE_TOKEN_VOCAB_H */
