/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers of byte-level BPE: the table from the name a file gives to
 * regular expressions and flags, and the splitting of text by them. Knows no
 * vocabulary. Immutable once built; any thread may split, each with a
 * pretok_scratch of its own.
 */
#ifndef TARN_ENGINE_TOKEN_PRETOK_H
#define TARN_ENGINE_TOKEN_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

struct pretok;
struct pretok_scratch;

enum pretok_flags {
	/* A pre-token that is a token as a whole is taken whole. */
	PRETOK_IGNORE_MERGES = 1u << 0,
	/* BOS goes in front unless the file says otherwise. */
	PRETOK_ADD_BOS = 1u << 1,
	/* Characters are composed before the text is split (nfc.h). */
	PRETOK_NFC = 1u << 2,
};

/**
 * pretok_create - compile the pre-tokenizer of that name
 * @name, @len: as in tokenizer.ggml.pre; aliases are known.
 * @err, @errlen: [out] names it when the call fails.
 *
 * Return: 0, -ENOTSUP for an unknown name, -ENOMEM.
 */
int pretok_create(const char *name, size_t len, struct pretok **out, char *err,
		  size_t errlen);
void pretok_destroy(struct pretok *pretok); /* NULL is fine */
/* Whether pretok_create() knows the name. */
bool pretok_is_known(const char *name, size_t len);
unsigned int pretok_flags(const struct pretok *pretok);

/* Scratch memory of one thread's splitting; NULL when there is no memory. */
struct pretok_scratch *pretok_scratch_create(void);
void pretok_scratch_destroy(struct pretok_scratch *scratch); /* NULL is fine */

/**
 * pretok_split - hand the pre-tokens of a text to @emit, from left to right
 * @text, @len: valid UTF-8 throughout (not checked here).
 * @emit: gets each piece, never empty; together they are the whole text. A
 *	value other than 0 stops the split and is returned. Pieces of falcon
 *	may end within a character.
 *
 * Return: 0, @emit's value, -ENOMEM.
 */
int pretok_split(const struct pretok *pretok, struct pretok_scratch *scratch,
		 const char *text, size_t len,
		 int (*emit)(void *owner, const char *piece, size_t len),
		 void *owner);

#endif /* TARN_ENGINE_TOKEN_PRETOK_H */
