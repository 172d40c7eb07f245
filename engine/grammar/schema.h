/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of JSON schemas as grammars: what schema*.c share. A schema is walked once; each part
 * becomes a node, each target of a $ref a rule.
 *
 * What is written is narrower than what the schema admits where that costs nothing: properties
 * come in the schema's order, undeclared ones only where additionalProperties is there, one
 * spelling for each character of a name. Nothing is ever wider.
 */
#ifndef TARN_ENGINE_GRAMMAR_SCHEMA_H
#define TARN_ENGINE_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "engine/grammar/ast.h"
#include "engine/grammar/grammar.h"

enum {
	SCHEMA_MAX_DEPTH = 128, /* schemas within schemas */
	SCHEMA_MAX_PARTS =
		20000, /* schemas that are walked, repeated ones included */
	SCHEMA_MAX_NAME_BYTES =
		256, /* of a property beside others that are not declared */
};

/* Where in the schema: a JSON pointer, from its end. */
struct schema_path {
	const struct schema_path *parent;
	const char *key; /* NULL: index */
	size_t index;
};

struct schema {
	struct ast *ast;
	const json_t *root;
	json_t *made; /* array: schemas that were merged, kept to the end */
	struct {
		uint32_t rule;
		const json_t *target; /* of the $ref, whose body is to be made */
	} * pending;
	uint32_t nr_pending, max_pending;
	uint32_t nr_parts, depth, nr_rules;
	char *err;
	size_t errlen;
};

/* schema.c. All answer 0, -EINVAL with err filled, -ENOMEM. */

/* "#/properties/a: " and the message to err; answers -EINVAL. */
int schema_fail(struct schema *s, const struct schema_path *path,
		const char *format, ...) __attribute__((format(printf, 3, 4)));
int schema_build(struct schema *s, const json_t *schema,
		 const struct schema_path *path, struct ast_node **out);
/* The rules of all references so far, and of those within them. */
int schema_build_pending(struct schema *s);
/* A rule of its own for a node, so that it can stand in several places. AST_NO_RULE: none. */
uint32_t schema_rule(struct schema *s, const char *what, struct ast_node *body);
/* Any JSON value, object, array or string; and bounded white space. */
struct ast_node *schema_any(struct schema *s, const char *what);
struct ast_node *schema_space(struct schema *s);
/* The text of a value as JSON, in one spelling. */
int schema_literal(struct schema *s, const json_t *value,
		   struct ast_node **out);
/* @max_name: the keyword; *value is left alone where it is not there. */
int schema_count(struct schema *s, const json_t *schema, const char *keyword,
		 const struct schema_path *path, uint32_t *value);
const json_t *schema_resolve(const struct schema *s, const char *ref);

/* schema_merge.c: one schema that says what @a and @b say; kept by @s. */
int schema_merge(struct schema *s, const json_t *a, const json_t *b,
		 const struct schema_path *path, const json_t **out);
/* A copy without @keyword. */
int schema_without(struct schema *s, const json_t *schema, const char *keyword,
		   const json_t **out);

/* schema_object.c, schema_array.c, schema_string.c, schema_number.c: one type each. */
int schema_object(struct schema *s, const json_t *schema,
		  const struct schema_path *path, struct ast_node **out);
int schema_array(struct schema *s, const json_t *schema,
		 const struct schema_path *path, struct ast_node **out);
int schema_string(struct schema *s, const json_t *schema,
		  const struct schema_path *path, struct ast_node **out);
int schema_number(struct schema *s, const json_t *schema, bool is_integer,
		  const struct schema_path *path, struct ast_node **out);
/* A string of the characters that JSON has one spelling for; with the quotes. */
struct ast_node *schema_name(struct schema *s);

#endif /* TARN_ENGINE_GRAMMAR_SCHEMA_H */
