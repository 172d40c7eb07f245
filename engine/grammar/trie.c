/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trie of a vocabulary: tokens sorted by their bytes become nodes, each byte that a token has
 * beyond what it shares with the one before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/trie.h"
#include "engine/token/tokenizer.h"

enum {
	MAX_TOKEN_BYTES = 1 << 12, /* a longer token is not allowed: none is */
};

struct piece {
	const char *bytes;
	uint32_t len;
	int32_t id;
};

bool token_is_text(const struct tokenizer *tok, int32_t id)
{
	enum token_type type = tokenizer_type(tok, id);

	return (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED ||
		type == TOKEN_BYTE) &&
	       !tokenizer_is_end(tok, id);
}

static int compare_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	uint32_t len = x->len < y->len ? x->len : y->len;
	int order = memcmp(x->bytes, y->bytes, len);

	if (order)
		return order;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* The tokens that stand for text of @min to @max bytes, sorted; answers how many. */
static uint32_t list_pieces(const struct tokenizer *tok, uint32_t min,
			    uint32_t max, struct piece *out, size_t *out_bytes)
{
	uint32_t nr = 0;

	*out_bytes = 0;
	for (uint32_t i = 0; i < tokenizer_nr_tokens(tok); i++) {
		const int32_t id = (int32_t)i;
		size_t len = 0;
		const char *bytes = tokenizer_piece(tok, id, false, &len);

		if (!token_is_text(tok, id) || len < min || len > max)
			continue;
		out[nr++] = (struct piece){ bytes, (uint32_t)len, id };
		*out_bytes += len;
	}
	if (nr)
		qsort(out, nr, sizeof(*out), compare_pieces);
	return nr;
}

static uint32_t shared_len(const struct piece *a, const struct piece *b)
{
	uint32_t len = 0;

	while (len < a->len && len < b->len && a->bytes[len] == b->bytes[len])
		len++;
	return len;
}

/* Branches end where the next node is not deeper. */
static void set_ends(struct trie_part *t, uint32_t *open)
{
	uint32_t depth = 0;

	for (uint32_t i = 0; i <= t->nr_nodes; i++) {
		uint32_t to = i < t->nr_nodes ? t->nodes[i].depth : 0;

		while (depth > to)
			t->nodes[open[--depth]].end = i;
		if (i < t->nr_nodes)
			open[depth++] = i;
	}
}

/* A node holds up to 255 tokens of the same bytes; vocabularies have a handful at most. */
static void add_nodes(struct trie_part *t, const struct piece *pieces,
		      uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		const struct piece *p = &pieces[i];
		uint32_t from = i ? shared_len(p, p - 1) : 0;
		struct trie_node *last;

		if (from == p->len) /* the same bytes again */
			from = t->nodes[t->nr_nodes - 1].nr_ids == UINT8_MAX ?
				       p->len - 1 :
				       p->len;
		for (uint32_t d = from; d < p->len; d++)
			t->nodes[t->nr_nodes++] = (struct trie_node){
				.depth = (uint16_t)d,
				.byte = (uint8_t)p->bytes[d],
				.first_id = i,
			};
		last = &t->nodes[t->nr_nodes - 1];
		last->nr_ids++;
		t->ids[t->nr_ids++] = p->id;
		if (p->len > t->max_depth)
			t->max_depth = p->len;
	}
}

static int build_part(struct trie_part *t, const struct tokenizer *tok,
		      uint32_t min, uint32_t max, struct piece *pieces)
{
	size_t bytes;
	uint32_t nr = list_pieces(tok, min, max, pieces, &bytes);
	struct trie_node *nodes;
	uint32_t *open;

	if (bytes > UINT32_MAX / 2)
		return -ENOMEM;
	t->nodes = malloc((bytes + 1) * sizeof(*t->nodes));
	t->ids = malloc((nr + (size_t)1) * sizeof(*t->ids));
	open = malloc((MAX_TOKEN_BYTES + 1) * sizeof(*open));
	if (!t->nodes || !t->ids || !open) {
		free(open);
		return -ENOMEM;
	}
	add_nodes(t, pieces, nr);
	set_ends(t, open);
	free(open);
	/* What tokens share was counted for each. */
	nodes = realloc(t->nodes, (t->nr_nodes + (size_t)1) * sizeof(*nodes));
	if (nodes)
		t->nodes = nodes;
	return 0;
}

static int list_ends(struct token_trie *t)
{
	const uint32_t nr_tokens = tokenizer_nr_tokens(t->tok);

	t->ends = malloc((nr_tokens + (size_t)1) * sizeof(*t->ends));
	if (!t->ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr_tokens; i++)
		if (tokenizer_is_end(t->tok, (int32_t)i))
			t->ends[t->nr_ends++] = (int32_t)i;
	return 0;
}

int token_trie_create(const struct tokenizer *tok, uint32_t nr_vocab,
		      struct token_trie **out)
{
	struct token_trie *t = calloc(1, sizeof(*t));
	struct piece *pieces = malloc((tokenizer_nr_tokens(tok) + (size_t)1) *
				      sizeof(*pieces));
	int rc = -ENOMEM;

	if (t && pieces) {
		t->tok = tok;
		t->nr_words = (nr_vocab + 63) / 64;
		rc = build_part(&t->near, tok, 1, GRAMMAR_SIGHT, pieces);
		if (!rc)
			rc = build_part(&t->far, tok, GRAMMAR_SIGHT + 1,
					MAX_TOKEN_BYTES, pieces);
		if (!rc)
			rc = list_ends(t);
	}
	free(pieces);
	if (rc) {
		token_trie_destroy(t);
		return rc;
	}
	*out = t;
	return 0;
}

void token_trie_destroy(struct token_trie *t)
{
	if (!t)
		return;
	free(t->near.nodes);
	free(t->near.ids);
	free(t->far.nodes);
	free(t->far.ids);
	free(t->ends);
	free(t);
}

uint32_t token_trie_words(const struct token_trie *t)
{
	return t->nr_words;
}
