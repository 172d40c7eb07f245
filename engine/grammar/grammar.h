/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars as automata over bytes.
 *
 * A grammar is read into rules (ast.h), and these are compiled into positions: places between the
 * bytes of a rule. Where a text may stand is a stack of positions, and as a grammar may be
 * ambiguous, a set of stacks. Such a set is a state. States and what a byte makes of them are
 * worked out when they are first asked for, and kept: a deterministic automaton that is built as
 * far as it is used.
 *
 * Threads: reading and compiling, any; a grammar has one thread at a time.
 */
#ifndef TARN_ENGINE_GRAMMAR_GRAMMAR_H
#define TARN_ENGINE_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ast;
struct grammar;

enum {
	/* Positions of all rules with repetitions written out: 12 bytes each. */
	GRAMMAR_MAX_POSITIONS = 1 << 18,
	/* Rules within rules that are not at an end; what goes deeper is not allowed. */
	GRAMMAR_MAX_DEPTH = 1000,
	/* Stacks of one state: a grammar that is more ambiguous than that is given up. */
	GRAMMAR_MAX_STACKS = 1 << 12,
	/* Stacks looked at between two calls of grammar_allow_work(): some 50 ms. */
	GRAMMAR_MAX_WORK = 1 << 20,
	/* All that a grammar's states may take. */
	GRAMMAR_MAX_STATE_BYTES = 64 << 20,
	/* Bytes that grammar_alike() looks ahead. */
	GRAMMAR_SIGHT = 32,
	/* Groups within groups of what is read. */
	GRAMMAR_MAX_NESTING = 200,
	/* The state in which no byte is allowed and the text is not complete. */
	GRAMMAR_DEAD = 0,
};

/**
 * gbnf_read - read a grammar in GBNF, the notation of llama.cpp
 * @text, @len: UTF-8; the rule "root" is what a text must match.
 * @ast: [out] rules; ast_deinit() it in any case. Refers to @text.
 *
 * Return: 0; -EINVAL with line and column; -ENOMEM.
 */
int gbnf_read(const char *text, size_t len, struct ast *ast, char *err,
	      size_t errlen);

/* A regular expression (regex.h) that the whole text matches. Otherwise as gbnf_read(). */
int regex_read(const char *text, size_t len, struct ast *ast, char *err,
	       size_t errlen);
/* A JSON array of strings, one of which is the text. Otherwise as gbnf_read(), without places. */
int choice_read(const char *text, size_t len, struct ast *ast, char *err,
		size_t errlen);

/* Any JSON object; the text is not looked at. Otherwise as gbnf_read(). */
int json_object_read(const char *text, size_t len, struct ast *ast, char *err,
		     size_t errlen);
/* A JSON schema (schema.h); messages begin with the JSON pointer of what is wrong. */
int schema_read(const char *text, size_t len, struct ast *ast, char *err,
		size_t errlen);

/*
 * Calls of tools: a JSON object {"begin", "between", "end", "is_parallel", "tools": [{"head",
 * "parameters", "tail"}, ...]}. The text is begin, a call, with is_parallel further ones with
 * between before each, and end; a call is a tool's head, arguments that are an instance of its
 * parameters (a JSON schema), and its tail. A tool of null is not called. Otherwise as
 * schema_read().
 */
int calls_read(const char *text, size_t len, struct ast *ast, char *err,
	       size_t errlen);

/**
 * grammar_compile - rules into an automaton
 * @ast: not needed afterwards.
 * @out: [out] grammar_destroy() it.
 *
 * Return: 0; -EINVAL: a rule that begins with itself, has no end, is not defined, or too many
 * positions, with its name and place; -ENOMEM.
 */
int grammar_compile(const struct ast *ast, struct grammar **out, char *err,
		    size_t errlen);
void grammar_destroy(struct grammar *g); /* NULL is fine */

/* Before the first byte. */
uint32_t grammar_start(const struct grammar *g);
/**
 * grammar_step - the state after one more byte
 * @out: [out] GRAMMAR_DEAD where @byte is not allowed.
 *
 * Return: 0; -E2BIG: a limit on states, or the work that was allowed is done; -ENOMEM. After
 * either the grammar can still be asked.
 */
int grammar_step(struct grammar *g, uint32_t state, uint8_t byte,
		 uint32_t *out);
/* New states may be made, up to GRAMMAR_MAX_WORK's worth: no request is to hold up others. */
void grammar_allow_work(struct grammar *g);
/* Whether the text may end here. */
bool grammar_accepts(const struct grammar *g, uint32_t state);
/**
 * grammar_alike - a state from which the same texts of up to GRAMMAR_SIGHT bytes can follow
 * @out: [out] the same one for all places of a long repetition that are far from its end.
 *
 * Return: as grammar_step().
 */
int grammar_alike(struct grammar *g, uint32_t state, uint32_t *out);
/* How many there are so far, GRAMMAR_DEAD included; of tools and tests. */
uint32_t grammar_nr_states(const struct grammar *g);

#endif /* TARN_ENGINE_GRAMMAR_GRAMMAR_H */
