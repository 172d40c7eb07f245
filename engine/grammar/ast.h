/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A grammar as it is read, whatever it was written in: rules made of texts, classes of characters,
 * sequences, alternatives and repetitions. Nodes live in one arena and are freed together. One
 * thread at a time.
 *
 * Functions that make nodes answer NULL without memory and note that in the grammar; they take
 * NULL nodes, so that only the end has to look. A node has one place: it is never used twice.
 */
#ifndef TARN_ENGINE_GRAMMAR_AST_H
#define TARN_ENGINE_GRAMMAR_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	AST_UNBOUNDED = UINT32_MAX, /* a repetition without an upper end */
	AST_NO_RULE = UINT32_MAX,
	AST_MAX_RULES = 1 << 16,
	AST_MAX_CODE_POINT = 0x10ffff,
};

enum ast_kind {
	AST_TEXT,
	AST_CLASS,
	AST_SEQUENCE, /* of no parts: the empty text */
	AST_CHOICE, /* of no parts: nothing matches */
	AST_REPEAT,
	AST_RULE,
};

/* Code points from @first to @last, both included. */
struct ast_range {
	uint32_t first, last;
};

struct ast_node {
	enum ast_kind kind;
	uint32_t at; /* byte of the source it starts at */
	struct ast_node *next; /* beside it in a sequence or choice */
	union {
		struct {
			const char *bytes;
			uint32_t len;
		} text;
		struct {
			struct ast_range *ranges; /* ascending, apart */
			uint32_t nr;
		} class;
		struct {
			struct ast_node *first, *last;
		} parts;
		struct {
			struct ast_node *what;
			uint32_t min, max;
		} repeat;
		uint32_t rule;
	};
};

struct ast_rule {
	const char *name; /* NUL-terminated */
	uint32_t name_len;
	uint32_t at; /* where it was first named */
	struct ast_node *body; /* NULL: named, not defined so far */
};

struct ast_chunk;

struct ast {
	/* Of messages: text that places are places of; NULL: there are none. */
	const char *source;
	size_t source_len;
	struct ast_rule *rules; /* [nr_rules] */
	uint32_t nr_rules, root;
	bool is_out_of_memory;
	/* private */
	struct ast_chunk *chunks;
	uint32_t *slots; /* rule + 1 by hash of the name, 0: free */
	uint32_t nr_slots;
};

void ast_init(struct ast *ast, const char *source, size_t len);
void ast_deinit(struct ast *ast);

struct ast_node *ast_text(struct ast *ast, const char *bytes, size_t len);
/* @ranges: [nr], copied; may overlap, in any order. Surrogates are left out. */
struct ast_node *ast_class(struct ast *ast, const struct ast_range *ranges,
			   uint32_t nr, bool is_negated);
struct ast_node *ast_sequence(struct ast *ast);
struct ast_node *ast_choice(struct ast *ast);
/* Append to a sequence or choice; answers @parts. */
struct ast_node *ast_add(struct ast_node *parts, struct ast_node *node);
struct ast_node *ast_repeat(struct ast *ast, struct ast_node *what,
			    uint32_t min, uint32_t max);
struct ast_node *ast_rule(struct ast *ast, uint32_t rule);

/*
 * The rule of this name, made where there is none. AST_NO_RULE: out of memory, or more than
 * AST_MAX_RULES.
 */
uint32_t ast_rule_id(struct ast *ast, const char *name, size_t len,
		     uint32_t at);
/* As ast_rule_id(), but AST_NO_RULE where there is none. */
uint32_t ast_rule_find(const struct ast *ast, const char *name, size_t len);

/* Write "line L, column C: " and the message to @err; answers -EINVAL. */
int ast_fail(const struct ast *ast, uint32_t at, char *err, size_t errlen,
	     const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif /* TARN_ENGINE_GRAMMAR_AST_H */
