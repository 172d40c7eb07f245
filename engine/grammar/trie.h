/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of masks: the trie as an array in the order of a walk from the root downwards.
 */
#ifndef TARN_ENGINE_GRAMMAR_TRIE_H
#define TARN_ENGINE_GRAMMAR_TRIE_H

#include "engine/grammar/mask.h"

struct trie_node {
	uint32_t end; /* the node behind its branch */
	uint32_t first_id; /* its tokens: ids[first_id ...] */
	uint16_t depth; /* bytes up to it, it included, less one */
	uint8_t byte;
	uint8_t nr_ids; /* tokens with exactly these bytes; more are on nodes beside it */
};

struct trie_part {
	struct trie_node *nodes; /* [nr_nodes] */
	uint32_t nr_nodes;
	uint32_t max_depth; /* nodes on the longest path */
	int32_t *ids; /* [nr_ids] */
	uint32_t nr_ids;
};

/* Tokens of up to GRAMMAR_SIGHT bytes, and the few that are longer. */
struct token_trie {
	struct trie_part near, far;
	int32_t *ends; /* [nr_ends] end tokens */
	uint32_t nr_ends;
	uint32_t nr_words;
	const struct tokenizer *tok;
};

/* Whether a token stands for text that a grammar is about. */
bool token_is_text(const struct tokenizer *tok, int32_t id);

#endif /* TARN_ENGINE_GRAMMAR_TRIE_H */
