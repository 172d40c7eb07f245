/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens may come next: a trie of a vocabulary's tokens by their bytes, walked together with
 * a grammar's automaton. The walk enters a branch of the trie only where the automaton does, and
 * what it finds for a state is kept.
 *
 * Tokens are bytes, so one may end within a character. Control tokens have no bytes and are never
 * allowed; end tokens are where the text may end.
 *
 * Threads: a trie is immutable; masks have one thread at a time.
 */
#ifndef TARN_ENGINE_GRAMMAR_MASK_H
#define TARN_ENGINE_GRAMMAR_MASK_H

#include "engine/grammar/grammar.h"

struct tokenizer;
struct token_trie;
struct mask_cache;

enum {
	/* Masks that a grammar keeps, and at least so many, however large they are. */
	MASK_CACHE_BYTES = 16 << 20,
	MASK_CACHE_MIN = 16,
};

/**
 * token_trie_create - the tokens of a vocabulary, by their bytes
 * @nr_vocab: ids that a mask has bits for, at least as many as @tok has tokens.
 *
 * Return: 0, -ENOMEM.
 */
int token_trie_create(const struct tokenizer *tok, uint32_t nr_vocab,
		      struct token_trie **out);
void token_trie_destroy(struct token_trie *trie); /* NULL is fine */
/* 64-bit words of a mask. */
uint32_t token_trie_words(const struct token_trie *trie);

/* Both stay the caller's, and there as long as the cache. Return: 0, -ENOMEM. */
int mask_cache_create(struct grammar *g, const struct token_trie *trie,
		      struct mask_cache **out);
void mask_cache_destroy(struct mask_cache *cache); /* NULL is fine */

struct mask {
	uint64_t *allowed; /* bits by token id */
	bool is_empty; /* nothing is allowed: a dead end */
	bool is_end; /* end tokens are, and nothing else is */
};

/**
 * mask_find - the tokens allowed in a state
 * @out: [out] valid until the next call.
 *
 * Return: 0; -E2BIG: a limit on states or work; -ENOMEM.
 */
int mask_find(struct mask_cache *cache, uint32_t state, struct mask *out);
/*
 * The state after the token @id, which has to be allowed and no end token. Return: 0; -EINVAL:
 * it is not allowed; -E2BIG, -ENOMEM.
 */
int mask_advance(struct mask_cache *cache, uint32_t state, int32_t id,
		 uint32_t *out);

#endif /* TARN_ENGINE_GRAMMAR_MASK_H */
