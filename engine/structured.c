/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured output: see structured.h. Making grammars: any thread; the rest: the driver's.
 */
#include "engine/structured.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/grammar/ast.h"
#include "engine/grammar/mask.h"

struct structured {
	const struct tokenizer *tok;
	uint32_t nr_vocab;
	pthread_mutex_t
		lock; /* protects trie until it is there; then it is constant */
	struct token_trie *trie;
};

struct tarn_grammar {
	const struct structured *structured;
	struct grammar *grammar;
	struct mask_cache *masks;
};

int structured_create(const struct tokenizer *tok, uint32_t nr_vocab,
		      struct structured **out)
{
	struct structured *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->tok = tok;
	s->nr_vocab = nr_vocab;
	pthread_mutex_init(&s->lock, NULL);
	*out = s;
	return 0;
}

void structured_destroy(struct structured *s)
{
	if (!s)
		return;
	token_trie_destroy(s->trie);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool structured_owns(const struct structured *s,
		     const struct tarn_grammar *grammar)
{
	return grammar->structured == s;
}

/* ---- grammars ----------------------------------------------------------------------- */

static int get_trie(struct structured *s, const struct token_trie **out)
{
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	if (!s->trie)
		rc = token_trie_create(s->tok, s->nr_vocab, &s->trie);
	*out = s->trie;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static int read_rules(enum tarn_grammar_kind kind, const char *text, size_t len,
		      struct ast *ast, char *err, size_t errlen)
{
	switch (kind) {
	case TARN_GRAMMAR_GBNF:
		return gbnf_read(text, len, ast, err, errlen);
	case TARN_GRAMMAR_REGEX:
		return regex_read(text, len, ast, err, errlen);
	case TARN_GRAMMAR_CHOICE:
		return choice_read(text, len, ast, err, errlen);
	case TARN_GRAMMAR_JSON_OBJECT:
		return json_object_read(text, len, ast, err, errlen);
	case TARN_GRAMMAR_JSON_SCHEMA:
		return schema_read(text, len, ast, err, errlen);
	case TARN_GRAMMAR_TOOL_CALLS:
		return calls_read(text, len, ast, err, errlen);
	}
	ast_init(ast, NULL, 0);
	snprintf(err, errlen, "unknown kind of grammar: %d", (int)kind);
	return -EINVAL;
}

static int compile(struct tarn_grammar *grammar, enum tarn_grammar_kind kind,
		   const char *text, size_t len, char *err, size_t errlen)
{
	struct ast ast;
	int rc = read_rules(kind, text, len, &ast, err, errlen);

	if (!rc)
		rc = grammar_compile(&ast, &grammar->grammar, err, errlen);
	ast_deinit(&ast);
	return rc;
}

/* The first mask is made here, off the driver's thread. */
static int start_masks(struct tarn_grammar *grammar, struct structured *s,
		       char *err, size_t errlen)
{
	const struct token_trie *trie;
	struct mask mask;
	int rc = get_trie(s, &trie);

	if (!rc)
		rc = mask_cache_create(grammar->grammar, trie, &grammar->masks);
	if (!rc)
		rc = mask_find(grammar->masks, grammar_start(grammar->grammar),
			       &mask);
	if (rc == -E2BIG) {
		snprintf(err, errlen, "the grammar is too ambiguous");
		return -EINVAL;
	}
	if (!rc && mask.is_empty) {
		snprintf(err, errlen,
			 "no token of the model begins a text of the grammar");
		return -EINVAL;
	}
	return rc;
}

int tarn_grammar_create(const struct tarn_engine *e,
			enum tarn_grammar_kind kind, const char *text,
			size_t len, struct tarn_grammar **out, char *err,
			size_t errlen)
{
	struct tarn_grammar *grammar;
	int rc;

	if (!e->nr_end_tokens) {
		snprintf(err, errlen,
			 "the model has no token that ends a text");
		return -EINVAL;
	}
	grammar = calloc(1, sizeof(*grammar));
	if (!grammar)
		return -ENOMEM;
	grammar->structured = e->structured;
	rc = compile(grammar, kind, text, len, err, errlen);
	if (!rc)
		rc = start_masks(grammar, e->structured, err, errlen);
	if (rc) {
		tarn_grammar_destroy(grammar);
		return rc;
	}
	*out = grammar;
	return 0;
}

void tarn_grammar_destroy(struct tarn_grammar *grammar)
{
	if (!grammar)
		return;
	mask_cache_destroy(grammar->masks);
	grammar_destroy(grammar->grammar);
	free(grammar);
}

/* ---- sequences ---------------------------------------------------------------------- */

/* Masks of the cache last until the next is looked for: each sequence has a copy. */
static int take_mask(struct constraint *c)
{
	struct mask mask;
	int rc = mask_find(c->grammar->masks, c->state, &mask);

	if (rc)
		return rc;
	memcpy(c->allowed, mask.allowed,
	       token_trie_words(c->grammar->structured->trie) *
		       sizeof(*c->allowed));
	c->is_end = mask.is_end;
	return mask.is_empty ? -ENOENT : 0;
}

int constraint_create(struct tarn_grammar *grammar, struct constraint **out)
{
	struct constraint *c;
	int rc;

	*out = NULL;
	if (!grammar)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->grammar = grammar;
	c->state = grammar_start(grammar->grammar);
	c->allowed = calloc(token_trie_words(grammar->structured->trie),
			    sizeof(*c->allowed));
	/* The first mask has been made once: what it can lack is memory. */
	rc = c->allowed ? take_mask(c) : -ENOMEM;
	if (rc) {
		constraint_destroy(c);
		return -ENOMEM;
	}
	*out = c;
	return 0;
}

void constraint_destroy(struct constraint *c)
{
	if (!c)
		return;
	free(c->allowed);
	free(c);
}

int constraint_advance(struct constraint *c, int32_t token)
{
	int rc = mask_advance(c->grammar->masks, c->state, token, &c->state);

	return rc ? rc : take_mask(c);
}
