/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured output: grammars of requests, and how far a sequence has come in its own. The trie of
 * the vocabulary is built when the first grammar is made.
 */
#ifndef TARN_ENGINE_STRUCTURED_H
#define TARN_ENGINE_STRUCTURED_H

#include "engine/engine.h"

struct tokenizer;
struct structured;

/* Return: 0, -ENOMEM. @nr_vocab: bits of a mask. */
int structured_create(const struct tokenizer *tok, uint32_t nr_vocab,
		      struct structured **out);
void structured_destroy(struct structured *s); /* NULL is fine */

/* A sequence's place in its grammar. Driver thread. */
struct constraint {
	struct tarn_grammar *grammar;
	uint64_t *allowed; /* bits by id of the tokens that may come next */
	uint32_t state;
	bool is_end; /* end tokens are allowed, and nothing else is */
};

/**
 * constraint_create - at the begin of @grammar
 * @out: [out] constraint_destroy() it; NULL where @grammar is.
 *
 * Return: 0, -ENOMEM.
 */
int constraint_create(struct tarn_grammar *grammar, struct constraint **out);
void constraint_destroy(struct constraint *c); /* NULL is fine */
/*
 * A token was drawn, which is not an end token. Return: 0; else nothing can follow: -ENOENT (no
 * token is allowed), -E2BIG (a limit on states), -EINVAL (it was not allowed), -ENOMEM.
 */
int constraint_advance(struct constraint *c, int32_t token);

/* Whether @grammar was made for this engine's vocabulary. */
bool structured_owns(const struct structured *s,
		     const struct tarn_grammar *grammar);

#endif /* TARN_ENGINE_STRUCTURED_H */
