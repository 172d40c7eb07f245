/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars as they are read: see ast.h.
 */
#include "engine/grammar/ast.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CHUNK_BYTES = 16 << 10,
	FIRST_SURROGATE = 0xd800,
	LAST_SURROGATE = 0xdfff,
};

struct ast_chunk {
	struct ast_chunk *next;
	size_t used, size;
	max_align_t bytes[];
};

void ast_init(struct ast *ast, const char *source, size_t len)
{
	*ast = (struct ast){ .source = source, .source_len = len };
}

void ast_deinit(struct ast *ast)
{
	while (ast->chunks) {
		struct ast_chunk *chunk = ast->chunks;

		ast->chunks = chunk->next;
		free(chunk);
	}
	free(ast->rules);
	free(ast->slots);
}

static void *take_bytes(struct ast *ast, size_t bytes)
{
	const size_t align = sizeof(max_align_t);
	struct ast_chunk *chunk = ast->chunks;
	char *taken;

	bytes = (bytes + align - 1) / align * align;
	if (!chunk || chunk->size - chunk->used < bytes) {
		size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;

		chunk = malloc(sizeof(*chunk) + size);
		if (!chunk) {
			ast->is_out_of_memory = true;
			return NULL;
		}
		chunk->next = ast->chunks;
		chunk->used = 0;
		chunk->size = size;
		ast->chunks = chunk;
	}
	taken = (char *)chunk->bytes + chunk->used;
	chunk->used += bytes;
	return taken;
}

static char *copy_bytes(struct ast *ast, const char *bytes, size_t len)
{
	char *copy = take_bytes(ast, len + 1);

	if (!copy)
		return NULL;
	memcpy(copy, bytes, len);
	copy[len] = '\0';
	return copy;
}

/* ---- nodes ------------------------------------------------------------------------ */

static struct ast_node *node_new(struct ast *ast, enum ast_kind kind)
{
	struct ast_node *node = take_bytes(ast, sizeof(*node));

	if (node)
		*node = (struct ast_node){ .kind = kind };
	return node;
}

struct ast_node *ast_text(struct ast *ast, const char *bytes, size_t len)
{
	struct ast_node *node = node_new(ast, AST_TEXT);
	char *copy = copy_bytes(ast, bytes, len);

	if (!node || !copy)
		return NULL;
	node->text.bytes = copy;
	node->text.len = (uint32_t)len;
	return node;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct ast_range *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorted, merged where they touch; answers how many are left. */
static uint32_t merge_ranges(struct ast_range *ranges, uint32_t nr)
{
	uint32_t kept = 0;

	qsort(ranges, nr, sizeof(*ranges), compare_ranges);
	for (uint32_t i = 0; i < nr; i++) {
		if (kept && ranges[i].first <= ranges[kept - 1].last + 1) {
			if (ranges[i].last > ranges[kept - 1].last)
				ranges[kept - 1].last = ranges[i].last;
		} else {
			ranges[kept++] = ranges[i];
		}
	}
	return kept;
}

/* What lies between the sorted @ranges [nr], to @out [nr + 1]; answers how many. */
static uint32_t negate_ranges(const struct ast_range *ranges, uint32_t nr,
			      struct ast_range *out)
{
	uint32_t from = 0, kept = 0;

	for (uint32_t i = 0; i < nr; i++) {
		if (ranges[i].first > from)
			out[kept++] =
				(struct ast_range){ from, ranges[i].first - 1 };
		from = ranges[i].last + 1;
	}
	if (from <= AST_MAX_CODE_POINT)
		out[kept++] = (struct ast_range){ from, AST_MAX_CODE_POINT };
	return kept;
}

struct ast_node *ast_class(struct ast *ast, const struct ast_range *ranges,
			   uint32_t nr, bool is_negated)
{
	struct ast_node *node = node_new(ast, AST_CLASS);
	/* Surrogates are taken out as the complement of one with them: one more range, twice. */
	struct ast_range *set = take_bytes(ast, (nr + 2) * sizeof(*set));
	struct ast_range *rest = take_bytes(ast, (nr + 3) * sizeof(*rest));

	if (!node || !set || !rest)
		return NULL;
	if (nr)
		memcpy(set, ranges, nr * sizeof(*set));
	nr = merge_ranges(set, nr);
	if (!is_negated) {
		nr = negate_ranges(set, nr, rest);
		memcpy(set, rest, nr * sizeof(*set));
	}
	set[nr++] = (struct ast_range){ FIRST_SURROGATE, LAST_SURROGATE };
	nr = merge_ranges(set, nr);
	node->class.nr = negate_ranges(set, nr, rest);
	node->class.ranges = rest;
	return node;
}

struct ast_node *ast_sequence(struct ast *ast)
{
	return node_new(ast, AST_SEQUENCE);
}

struct ast_node *ast_choice(struct ast *ast)
{
	return node_new(ast, AST_CHOICE);
}

struct ast_node *ast_add(struct ast_node *parts, struct ast_node *node)
{
	if (!parts || !node)
		return parts;
	if (parts->parts.last)
		parts->parts.last->next = node;
	else
		parts->parts.first = node;
	parts->parts.last = node;
	return parts;
}

struct ast_node *ast_repeat(struct ast *ast, struct ast_node *what,
			    uint32_t min, uint32_t max)
{
	struct ast_node *node = node_new(ast, AST_REPEAT);

	if (!node || !what)
		return NULL;
	node->at = what->at;
	node->repeat.what = what;
	node->repeat.min = min;
	node->repeat.max = max;
	return node;
}

struct ast_node *ast_rule(struct ast *ast, uint32_t rule)
{
	struct ast_node *node = node_new(ast, AST_RULE);

	if (node)
		node->rule = rule;
	return node;
}

/* ---- rules ------------------------------------------------------------------------ */

/* FNV-1a, 32 bits. */
static uint32_t hash_name(const char *name, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)name[i]) * 16777619u;
	return hash;
}

/* The slot that holds the name, or the free one where it belongs. */
static uint32_t *find_slot(const struct ast *ast, const char *name, size_t len)
{
	uint32_t at = hash_name(name, len) & (ast->nr_slots - 1);

	for (;; at = (at + 1) & (ast->nr_slots - 1)) {
		const struct ast_rule *rule;

		if (!ast->slots[at])
			return &ast->slots[at];
		rule = &ast->rules[ast->slots[at] - 1];
		if (rule->name_len == len && !memcmp(rule->name, name, len))
			return &ast->slots[at];
	}
}

/* Room for one more rule; tables double, and are never more than half full. */
static int grow_rules(struct ast *ast)
{
	uint32_t nr_slots = ast->nr_slots ? 2 * ast->nr_slots : 64;
	struct ast_rule *rules;
	uint32_t *slots;

	if (2 * (ast->nr_rules + 1) <= ast->nr_slots)
		return 0;
	rules = realloc(ast->rules, nr_slots / 2 * sizeof(*rules));
	if (!rules)
		return -ENOMEM;
	ast->rules = rules;
	slots = calloc(nr_slots, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(ast->slots);
	ast->slots = slots;
	ast->nr_slots = nr_slots;
	for (uint32_t i = 0; i < ast->nr_rules; i++)
		*find_slot(ast, rules[i].name, rules[i].name_len) = i + 1;
	return 0;
}

uint32_t ast_rule_find(const struct ast *ast, const char *name, size_t len)
{
	uint32_t slot = ast->nr_slots ? *find_slot(ast, name, len) : 0;

	return slot ? slot - 1 : AST_NO_RULE;
}

uint32_t ast_rule_id(struct ast *ast, const char *name, size_t len, uint32_t at)
{
	uint32_t found = ast_rule_find(ast, name, len);
	char *copy;

	if (found != AST_NO_RULE || ast->nr_rules == AST_MAX_RULES)
		return found;
	copy = copy_bytes(ast, name, len);
	if (!copy || grow_rules(ast) != 0) {
		ast->is_out_of_memory = true;
		return AST_NO_RULE;
	}
	ast->rules[ast->nr_rules] = (struct ast_rule){
		.name = copy, .name_len = (uint32_t)len, .at = at
	};
	*find_slot(ast, name, len) = ++ast->nr_rules;
	return ast->nr_rules - 1;
}

int ast_fail(const struct ast *ast, uint32_t at, char *err, size_t errlen,
	     const char *format, ...)
{
	uint32_t line = 1, column = 1;
	size_t len = 0;
	va_list args;

	for (uint32_t i = 0; ast->source && i < at && i < ast->source_len;
	     i++) {
		if (ast->source[i] == '\n') {
			line++;
			column = 1;
		} else if ((ast->source[i] & 0xc0) != 0x80) {
			column++; /* characters, not bytes */
		}
	}
	if (ast->source && errlen)
		len = (size_t)snprintf(err, errlen,
				       "line %u, column %u: ", line, column);
	va_start(args, format);
	if (len < errlen)
		vsnprintf(err + len, errlen - len, format, args);
	va_end(args);
	return -EINVAL;
}
