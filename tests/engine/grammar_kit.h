/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of grammars share: texts through an automaton, rules written out, and a recogniser
 * that follows the rules as they were read, slow and plain. All static; include after harness.h.
 */
#ifndef TARN_TESTS_ENGINE_GRAMMAR_KIT_H
#define TARN_TESTS_ENGINE_GRAMMAR_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/ast.h"
#include "engine/grammar/grammar.h"
#include "engine/token/utf8.h"
#include "tests/harness.h"

typedef int (*kit_reader)(const char *text, size_t len, struct ast *ast,
			  char *err, size_t errlen);

static inline int kit_compile(kit_reader read, const char *text,
			      struct grammar **out, char *err, size_t errlen)
{
	/* Behind the end of a copy of its own a sanitizer watches. */
	size_t len = strlen(text);
	char *copy = malloc(len ? len : 1);
	struct ast ast;
	int rc;

	memcpy(copy, text, len);
	*out = NULL;
	err[0] = '\0';
	rc = read(copy, len, &ast, err, errlen);
	if (!rc)
		rc = grammar_compile(&ast, out, err, errlen);
	ast_deinit(&ast);
	free(copy);
	return rc;
}

static inline struct grammar *kit_compile_ok(kit_reader read, const char *text)
{
	struct grammar *g;
	char err[256];

	ASSERT_EQ(0, kit_compile(read, text, &g, err, sizeof(err)))
	{
		TH_LOG("%s: %s", text, err);
	}
	return g;
}

/* Refused with exactly this message. */
static inline void kit_compile_err(kit_reader read, const char *text,
				   const char *message)
{
	struct grammar *g;
	char err[256];

	EXPECT_EQ(-EINVAL, kit_compile(read, text, &g, err, sizeof(err)))
	{
		TH_LOG("%s", text);
	}
	EXPECT_STREQ(message, err)
	{
		TH_LOG("%s", text);
	}
	grammar_destroy(g);
}

static inline uint32_t kit_run(struct grammar *g, const char *text, size_t len)
{
	uint32_t state = grammar_start(g);

	grammar_allow_work(g);
	for (size_t i = 0; i < len; i++)
		ASSERT_EQ(0, grammar_step(g, state, (uint8_t)text[i], &state));
	return state;
}

static inline bool kit_accepts(struct grammar *g, const char *text)
{
	return grammar_accepts(g, kit_run(g, text, strlen(text)));
}

/* Texts that match, and texts that do not, each list ended by NULL. */
static inline void kit_expect(kit_reader read, const char *grammar,
			      const char *const *good, const char *const *bad)
{
	struct grammar *g = kit_compile_ok(read, grammar);

	for (; *good; good++)
		EXPECT_TRUE(kit_accepts(g, *good))
		{
			TH_LOG("%s: \"%s\" is good", grammar, *good);
		}
	for (; *bad; bad++)
		EXPECT_FALSE(kit_accepts(g, *bad))
		{
			TH_LOG("%s: \"%s\" is bad", grammar, *bad);
		}
	grammar_destroy(g);
}

#define KIT_LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ---- rules written out -------------------------------------------------------------- */

static inline void kit_dump_node(const struct ast *ast,
				 const struct ast_node *n, FILE *out)
{
	switch (n->kind) {
	case AST_TEXT:
		fputc('\'', out);
		for (uint32_t i = 0; i < n->text.len; i++)
			fprintf(out, n->text.bytes[i] < 33 ? "<%02x>" : "%c",
				(unsigned char)n->text.bytes[i]);
		fputc('\'', out);
		break;
	case AST_CLASS:
		fputc('[', out);
		for (uint32_t i = 0; i < n->class.nr; i++)
			fprintf(out, "%s%x-%x", i ? " " : "",
				n->class.ranges[i].first,
				n->class.ranges[i].last);
		fputc(']', out);
		break;
	case AST_SEQUENCE:
	case AST_CHOICE:
		fputc('(', out);
		for (const struct ast_node *p = n->parts.first; p;
		     p = p->next) {
			kit_dump_node(ast, p, out);
			if (p->next)
				fputc(n->kind == AST_CHOICE ? '|' : ' ', out);
		}
		fputc(')', out);
		break;
	case AST_REPEAT:
		kit_dump_node(ast, n->repeat.what, out);
		fprintf(out, "{%u,", n->repeat.min);
		if (n->repeat.max != AST_UNBOUNDED)
			fprintf(out, "%u", n->repeat.max);
		fputc('}', out);
		break;
	case AST_RULE:
		fputs(ast->rules[n->rule].name, out);
		break;
	}
}

/* "name=..., in the order of the rules' ids, joined by "; ". */
static inline void kit_expect_rules(kit_reader read, const char *text,
				    const char *rules)
{
	char *dump = NULL, err[256] = "";
	size_t len;
	FILE *out = open_memstream(&dump, &len);
	struct ast ast;

	EXPECT_EQ(0, read(text, strlen(text), &ast, err, sizeof(err)))
	{
		TH_LOG("%s: %s", text, err);
	}
	for (uint32_t i = 0; i < ast.nr_rules && !err[0]; i++) {
		fprintf(out, "%s%s=", i ? "; " : "", ast.rules[i].name);
		if (ast.rules[i].body)
			kit_dump_node(&ast, ast.rules[i].body, out);
	}
	fclose(out);
	EXPECT_STREQ(rules, dump);
	free(dump);
	ast_deinit(&ast);
}

/* ---- the plain recogniser ------------------------------------------------------------ */

enum { PLAIN_MAX_BYTES = 31, PLAIN_MAX_RULES = 64 };

static uint32_t plain_rule_ends(const struct ast *ast, uint32_t rule,
				const char *text, uint32_t len, uint32_t begin);

/* Ends, as bits, of what @n matches of the text from each of @begins on. */
static inline uint32_t plain_ends(const struct ast *ast,
				  const struct ast_node *n, const char *text,
				  uint32_t len, uint32_t begins)
{
	uint32_t ends = 0, reached = begins;

	switch (n->kind) {
	case AST_TEXT:
		for (uint32_t i = 0; i + n->text.len <= len; i++)
			if (begins >> i & 1 &&
			    !memcmp(text + i, n->text.bytes, n->text.len))
				ends |= 1u << (i + n->text.len);
		return ends;
	case AST_CLASS:
		for (uint32_t i = 0; i < len; i++) {
			unsigned int nr = utf8_char_len(text + i, len - i);
			uint32_t c = nr ? utf8_get(text + i, nr) : 0;

			for (uint32_t k = 0; k < n->class.nr; k++)
				if (nr && begins >> i & 1 &&
				    c >= n->class.ranges[k].first &&
				    c <= n->class.ranges[k].last)
					ends |= 1u << (i + nr);
		}
		return ends;
	case AST_SEQUENCE:
		for (const struct ast_node *p = n->parts.first; p && reached;
		     p = p->next)
			reached = plain_ends(ast, p, text, len, reached);
		return reached;
	case AST_CHOICE:
		for (const struct ast_node *p = n->parts.first; p; p = p->next)
			ends |= plain_ends(ast, p, text, len, begins);
		return ends;
	case AST_REPEAT:
		for (uint32_t i = 0; i <= n->repeat.max; i++) {
			uint32_t before = ends;

			if (i >= n->repeat.min)
				ends |= reached;
			/* Beyond twice the text's bytes nothing new comes. */
			if (!reached ||
			    (i > n->repeat.min + 2 * len + 2 && ends == before))
				break;
			reached = plain_ends(ast, n->repeat.what, text, len,
					     reached);
		}
		return ends;
	case AST_RULE:
		for (uint32_t i = 0; i <= len; i++)
			if (begins >> i & 1)
				ends |= plain_rule_ends(ast, n->rule, text, len,
							i);
		return ends;
	}
	return 0;
}

/* What is known of each rule from each place of the text at hand. */
static uint32_t plain_known[PLAIN_MAX_RULES][PLAIN_MAX_BYTES + 1];
static bool plain_is_known[PLAIN_MAX_RULES][PLAIN_MAX_BYTES + 1];

static uint32_t plain_rule_ends(const struct ast *ast, uint32_t rule,
				const char *text, uint32_t len, uint32_t begin)
{
	if (!plain_is_known[rule][begin]) {
		plain_known[rule][begin] = plain_ends(
			ast, ast->rules[rule].body, text, len, 1u << begin);
		plain_is_known[rule][begin] = true;
	}
	return plain_known[rule][begin];
}

/* @len at most PLAIN_MAX_BYTES; no rule begins with itself. */
static inline bool plain_accepts(const struct ast *ast, const char *text,
				 uint32_t len)
{
	memset(plain_is_known, 0, sizeof(plain_is_known));
	return plain_ends(ast, ast->rules[ast->root].body, text, len, 1) >>
		       len &
	       1;
}

static inline uint64_t kit_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

#endif /* TARN_TESTS_ENGINE_GRAMMAR_KIT_H */
