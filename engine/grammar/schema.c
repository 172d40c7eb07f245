/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas as grammars: types, alternatives, references and what is not supported.
 * See schema.h.
 */
#include "engine/grammar/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar_private.h"
#include "engine/grammar/regex.h"

/* ---- messages ------------------------------------------------------------------------- */

static size_t print_path(const struct schema_path *path, char *out, size_t size)
{
	size_t at;

	if (!path->parent)
		return (size_t)snprintf(out, size, "#");
	at = print_path(path->parent, out, size);
	if (at >= size)
		return at;
	if (path->key)
		at += (size_t)snprintf(out + at, size - at, "/%.60s",
				       path->key);
	else
		at += (size_t)snprintf(out + at, size - at, "/%zu",
				       path->index);
	return at;
}

int schema_fail(struct schema *s, const struct schema_path *path,
		const char *format, ...)
{
	char where[200];
	va_list args;
	size_t len;

	print_path(path, where, sizeof(where));
	len = (size_t)snprintf(s->err, s->errlen, "%s: ", where);
	va_start(args, format);
	if (len < s->errlen)
		vsnprintf(s->err + len, s->errlen - len, format, args);
	va_end(args);
	return -EINVAL;
}

int schema_count(struct schema *s, const json_t *schema, const char *keyword,
		 const struct schema_path *path, uint32_t *value)
{
	const json_t *field = json_object_get(schema, keyword);
	double number = json_number_value(field);

	if (!field)
		return 0;
	if (!json_is_number(field) || number < 0 ||
	    number != (double)(json_int_t)number || number > INT32_MAX)
		return schema_fail(s, path,
				   "%s must be a whole number of at "
				   "least 0",
				   keyword);
	*value = (uint32_t)number;
	return 0;
}

/* ---- rules that schemas share ----------------------------------------------------------- */

uint32_t schema_rule(struct schema *s, const char *what, struct ast_node *body)
{
	char name[300];
	uint32_t rule;

	snprintf(name, sizeof(name), "%s (%u)", what, s->nr_rules++);
	rule = ast_rule_id(s->ast, name, strlen(name), 0);
	if (rule == AST_NO_RULE)
		s->ast->is_out_of_memory = true;
	else
		s->ast->rules[rule].body = body;
	return rule;
}

static struct ast_node *text(struct ast *ast, const char *bytes)
{
	return ast_text(ast, bytes, strlen(bytes));
}

struct ast_node *schema_any(struct schema *s, const char *what)
{
	uint32_t rule = ast_rule_find(s->ast, what, strlen(what));

	return rule == AST_NO_RULE ? NULL : ast_rule(s->ast, rule);
}

struct ast_node *schema_space(struct schema *s)
{
	return schema_any(s, "json-space");
}

int schema_literal(struct schema *s, const json_t *value, struct ast_node **out)
{
	char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	if (!dump)
		return -ENOMEM;
	*out = text(s->ast, dump);
	free(dump);
	return 0;
}

/* ---- references ----------------------------------------------------------------------- */

/* One step of a JSON pointer, unescaped, to @out; answers the rest, NULL at the end. */
static const char *pointer_step(const char *at, char *out, size_t size)
{
	size_t len = 0;

	for (; *at && *at != '/'; at++) {
		char c = *at;

		if (c == '~' && (at[1] == '0' || at[1] == '1'))
			c = *++at == '0' ? '~' : '/';
		if (len + 1 < size)
			out[len++] = c;
	}
	out[len] = '\0';
	return *at ? at + 1 : NULL;
}

const json_t *schema_resolve(const struct schema *s, const char *ref)
{
	const json_t *at = s->root;
	const char *rest;
	char key[300];

	if (strcmp(ref, "#") == 0)
		return at;
	if (ref[0] != '#' || ref[1] != '/')
		return NULL;
	for (rest = ref + 2; rest && at;) {
		rest = pointer_step(rest, key, sizeof(key));
		at = json_is_array(at) ?
			     json_array_get(at, strtoul(key, NULL, 10)) :
			     json_object_get(at, key);
	}
	return at;
}

/* The rule of the target, which is made later: it may refer to itself. */
static int build_ref(struct schema *s, const json_t *ref,
		     const struct schema_path *path, struct ast_node **out)
{
	const char *name = json_string_value(ref);
	const json_t *target = name ? schema_resolve(s, name) : NULL;
	uint32_t nr_rules = s->ast->nr_rules, rule;

	if (!target)
		return schema_fail(s, path,
				   "$ref must be a JSON pointer into the "
				   "schema (\"#/$defs/...\"), not %.100s",
				   name ? name : "another type");
	rule = ast_rule_id(s->ast, name, strlen(name), 0);
	if (rule == AST_NO_RULE)
		return -ENOMEM;
	*out = ast_rule(s->ast, rule);
	if (s->ast->nr_rules == nr_rules)
		return 0;
	if (grammar_grow((void **)&s->pending, s->nr_pending, &s->max_pending,
			 sizeof(*s->pending)) != 0)
		return -ENOMEM;
	s->pending[s->nr_pending].rule = rule;
	s->pending[s->nr_pending++].target = target;
	return 0;
}

int schema_build_pending(struct schema *s)
{
	for (uint32_t i = 0; i < s->nr_pending; i++) {
		const uint32_t rule = s->pending[i].rule;
		const struct schema_path path = { 0 };
		const struct schema_path at = {
			.parent = &path, .key = s->ast->rules[rule].name + 2
		};
		const bool is_root = strlen(s->ast->rules[rule].name) < 2;
		struct ast_node *body = NULL;
		int rc = schema_build(s, s->pending[i].target,
				      is_root ? &path : &at, &body);

		if (rc)
			return rc;
		s->ast->rules[rule].body = body;
	}
	return 0;
}

/* ---- what a schema says ----------------------------------------------------------------- */

static bool is_listed(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* Keywords of any value; they say nothing about the text. */
static const char *const annotations[] = {
	"title",	   "description",   "default",	     "examples",
	"example",	   "$schema",	    "$id",	     "$comment",
	"$defs",	   "definitions",   "deprecated",    "readOnly",
	"writeOnly",	   "$anchor",	    "nullable",	     "contentMediaType",
	"contentEncoding", "contentSchema", "discriminator", NULL
};

/* Values with which a keyword says nothing. */
enum { IF_FALSE = 1, IF_TRUE = 2, IF_EMPTY = 4, IF_ZERO = 8, IF_ONE = 16 };

static const struct {
	const char *name;
	unsigned int neutral;
} refused[] = {
	{ "not", IF_FALSE },
	{ "if", IF_TRUE | IF_EMPTY },
	{ "then", IF_TRUE | IF_EMPTY },
	{ "else", IF_TRUE | IF_EMPTY },
	{ "dependentRequired", IF_EMPTY },
	{ "dependentSchemas", IF_EMPTY },
	{ "dependencies", IF_EMPTY },
	{ "patternProperties", IF_EMPTY },
	{ "propertyNames", IF_TRUE | IF_EMPTY },
	{ "minProperties", IF_ZERO },
	{ "maxProperties", 0 },
	{ "contains", 0 },
	{ "minContains", 0 },
	{ "maxContains", 0 },
	{ "uniqueItems", IF_FALSE },
	{ "unevaluatedProperties", IF_TRUE | IF_EMPTY },
	{ "unevaluatedItems", IF_TRUE | IF_EMPTY },
	{ "additionalItems", IF_TRUE | IF_EMPTY },
	{ "multipleOf", IF_ONE },
	{ "$dynamicRef", 0 },
	{ "$recursiveRef", 0 },
};

static bool is_neutral(const json_t *value, unsigned int neutral,
		       bool is_integer)
{
	return (neutral & IF_FALSE && json_is_false(value)) ||
	       (neutral & IF_TRUE && json_is_true(value)) ||
	       (neutral & IF_EMPTY && json_is_object(value) &&
		!json_object_size(value)) ||
	       (neutral & IF_ZERO && json_is_number(value) &&
		json_number_value(value) == 0) ||
	       (neutral & IF_ONE && is_integer &&
		json_number_value(value) == 1);
}

/* What changes the meaning and is not built. */
static int check_keywords(struct schema *s, const json_t *schema,
			  const struct schema_path *path)
{
	const char *type = json_string_value(json_object_get(schema, "type"));
	const bool is_integer = type && strcmp(type, "integer") == 0;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const json_t *value = json_object_get(schema, refused[i].name);
		const struct schema_path at = { path, refused[i].name, 0 };

		if (value && !is_neutral(value, refused[i].neutral, is_integer))
			return schema_fail(s, &at, "%s is not supported",
					   refused[i].name);
	}
	return 0;
}

/* A keyword besides those and annotations, or NULL. */
static const char *find_other(const json_t *schema, const char *const *but)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)schema, key, value)
	{
		if (!is_listed(key, but) && !is_listed(key, annotations))
			return key;
	}
	return NULL;
}

static bool has_more(const json_t *schema, const char *but)
{
	const char *const names[] = { but, NULL };

	return find_other(schema, names) != NULL;
}

static bool has_any(const json_t *schema, const char *const *names)
{
	for (; *names; names++)
		if (json_object_get(schema, *names))
			return true;
	return false;
}

/* ---- values that are listed --------------------------------------------------------------- */

static bool is_of_type(const json_t *value, const char *type)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return strcmp(type, "object") == 0;
	case JSON_ARRAY:
		return strcmp(type, "array") == 0;
	case JSON_STRING:
		return strcmp(type, "string") == 0;
	case JSON_INTEGER:
		return strcmp(type, "integer") == 0 ||
		       strcmp(type, "number") == 0;
	case JSON_REAL:
		return strcmp(type, "number") == 0;
	case JSON_NULL:
		return strcmp(type, "null") == 0;
	default:
		return strcmp(type, "boolean") == 0;
	}
}

static bool type_admits(const json_t *schema, const json_t *value)
{
	const json_t *type = json_object_get(schema, "type"), *one;
	size_t i;

	if (json_is_string(type))
		return is_of_type(value, json_string_value(type));
	json_array_foreach((json_t *)type, i, one)
	{
		if (json_is_string(one) &&
		    is_of_type(value, json_string_value(one)))
			return true;
	}
	return !type;
}

static int build_values(struct schema *s, const json_t *schema,
			const struct schema_path *path, struct ast_node **out)
{
	static const char *const beside[] = { "type", "enum", "const", NULL };
	const json_t *list = json_object_get(schema, "enum"), *value;
	const json_t *only = json_object_get(schema, "const");
	const char *other = find_other(schema, beside);
	struct ast_node *one;
	int rc = 0;
	size_t i;

	if (other)
		return schema_fail(s, path, "%s beside %s is not supported",
				   other, only ? "const" : "enum");
	if (list && (!json_is_array(list) || !json_array_size(list)))
		return schema_fail(s, path, "enum must be an array, not empty");
	*out = ast_choice(s->ast);
	if (only && type_admits(schema, only)) {
		bool is_in = !list;

		json_array_foreach((json_t *)list, i, value)
			is_in |= json_equal(value, only);
		rc = is_in ? schema_literal(s, only, &one) : 0;
		if (!rc && is_in)
			ast_add(*out, one);
	}
	json_array_foreach((json_t *)list, i, value)
	{
		if (only || rc || !type_admits(schema, value))
			continue;
		rc = schema_literal(s, value, &one);
		if (!rc)
			ast_add(*out, one);
	}
	if (!rc && *out && !(*out)->parts.first)
		return schema_fail(s, path, "no value fits %s and its siblings",
				   only ? "const" : "enum");
	return rc;
}

/* ---- types -------------------------------------------------------------------------------- */

static int build_type(struct schema *s, const json_t *schema, const char *type,
		      const struct schema_path *path, struct ast_node **out)
{
	if (strcmp(type, "object") == 0)
		return schema_object(s, schema, path, out);
	if (strcmp(type, "array") == 0)
		return schema_array(s, schema, path, out);
	if (strcmp(type, "string") == 0)
		return schema_string(s, schema, path, out);
	if (strcmp(type, "number") == 0 || strcmp(type, "integer") == 0)
		return schema_number(s, schema, type[0] == 'i', path, out);
	if (strcmp(type, "null") == 0) {
		*out = text(s->ast, "null");
		return 0;
	}
	if (strcmp(type, "boolean") != 0)
		return schema_fail(s, path, "unknown type \"%.40s\"", type);
	*out = ast_add(ast_add(ast_choice(s->ast), text(s->ast, "true")),
		       text(s->ast, "false"));
	return 0;
}

/* Without a type, that of the keywords that are there: others would not be looked at by them. */
static const char *implied_type(const json_t *schema)
{
	static const char *const of_object[] = { "properties", "required",
						 "additionalProperties", NULL };
	static const char *const of_array[] = { "items", "prefixItems",
						"minItems", "maxItems", NULL };
	static const char *const of_string[] = { "minLength", "maxLength",
						 "pattern", "format", NULL };
	static const char *const of_number[] = { "minimum", "maximum",
						 "exclusiveMinimum",
						 "exclusiveMaximum", NULL };

	return has_any(schema, of_object) ? "object" :
	       has_any(schema, of_array)  ? "array" :
	       has_any(schema, of_string) ? "string" :
	       has_any(schema, of_number) ? "number" :
					    NULL;
}

static int build_types(struct schema *s, const json_t *schema,
		       const struct schema_path *path, struct ast_node **out)
{
	const json_t *types = json_object_get(schema, "type"), *type;
	const char *implied = implied_type(schema);
	struct ast_node *one = NULL;
	size_t i;
	int rc;

	if (json_is_string(types))
		return build_type(s, schema, json_string_value(types), path,
				  out);
	if (!types && implied)
		return build_type(s, schema, implied, path, out);
	if (!types) {
		*out = schema_any(s, "json-value");
		return 0;
	}
	if (!json_is_array(types) || !json_array_size(types))
		return schema_fail(s, path,
				   "type must be a name or an array of names");
	*out = ast_choice(s->ast);
	json_array_foreach((json_t *)types, i, type)
	{
		if (!json_is_string(type))
			return schema_fail(
				s, path,
				"type must be a name or an array of names");
		rc = build_type(s, schema, json_string_value(type), path, &one);
		if (rc)
			return rc;
		ast_add(*out, one);
	}
	return 0;
}

/* ---- combinations ------------------------------------------------------------------------- */

static int build_any_of(struct schema *s, const json_t *schema,
			const char *keyword, const struct schema_path *path,
			struct ast_node **out)
{
	const json_t *list = json_object_get(schema, keyword), *part;
	const struct schema_path at = { path, keyword, 0 };
	const json_t *rest;
	struct ast_node *one = NULL;
	size_t i;
	int rc;

	if (!json_is_array(list) || !json_array_size(list))
		return schema_fail(s, &at, "must be an array, not empty");
	*out = ast_choice(s->ast);
	rc = schema_without(s, schema, keyword, &rest);
	json_array_foreach((json_t *)list, i, part)
	{
		const struct schema_path place = { &at, NULL, i };
		const json_t *merged = part;

		if (!rc && has_more(rest, ""))
			rc = schema_merge(s, rest, part, &place, &merged);
		if (!rc)
			rc = schema_build(s, merged, &place, &one);
		if (rc)
			return rc;
		ast_add(*out, one);
	}
	return rc;
}

static int build_all_of(struct schema *s, const json_t *schema,
			const struct schema_path *path, struct ast_node **out)
{
	const json_t *list = json_object_get(schema, "allOf"), *part;
	const struct schema_path at = { path, "allOf", 0 };
	const json_t *merged;
	size_t i;
	int rc;

	if (!json_is_array(list) || !json_array_size(list))
		return schema_fail(s, &at, "must be an array, not empty");
	rc = schema_without(s, schema, "allOf", &merged);
	json_array_foreach((json_t *)list, i, part)
	{
		const struct schema_path place = { &at, NULL, i };

		if (!rc)
			rc = schema_merge(s, merged, part, &place, &merged);
	}
	return rc ? rc : schema_build(s, merged, path, out);
}

/* $ref with siblings: as if both stood in an allOf. */
static int build_ref_and_more(struct schema *s, const json_t *schema,
			      const struct schema_path *path,
			      struct ast_node **out)
{
	const json_t *rest, *merged, *ref = json_object_get(schema, "$ref");
	json_t *target = json_pack("{s:O}", "$ref", (json_t *)ref);
	int rc = target && !json_array_append_new(s->made, target) ? 0 :
								     -ENOMEM;

	if (!rc)
		rc = schema_without(s, schema, "$ref", &rest);
	if (!rc)
		rc = schema_merge(s, rest, target, path, &merged);
	return rc ? rc : schema_build(s, merged, path, out);
}

static int build_object_form(struct schema *s, const json_t *schema,
			     const struct schema_path *path,
			     struct ast_node **out)
{
	int rc = check_keywords(s, schema, path);

	if (rc)
		return rc;
	if (json_object_get(schema, "$ref"))
		return has_more(schema, "$ref") ?
			       build_ref_and_more(s, schema, path, out) :
			       build_ref(s, json_object_get(schema, "$ref"),
					 path, out);
	if (json_object_get(schema, "allOf"))
		return build_all_of(s, schema, path, out);
	if (json_object_get(schema, "anyOf") &&
	    json_object_get(schema, "oneOf"))
		return schema_fail(s, path,
				   "anyOf beside oneOf is not supported");
	if (json_object_get(schema, "anyOf"))
		return build_any_of(s, schema, "anyOf", path, out);
	if (json_object_get(schema, "oneOf"))
		return build_any_of(s, schema, "oneOf", path, out);
	if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
		return build_values(s, schema, path, out);
	return build_types(s, schema, path, out);
}

int schema_build(struct schema *s, const json_t *schema,
		 const struct schema_path *path, struct ast_node **out)
{
	int rc;

	*out = NULL;
	if (++s->nr_parts > SCHEMA_MAX_PARTS)
		return schema_fail(s, path, "the schema has more than %d parts",
				   SCHEMA_MAX_PARTS);
	if (json_is_boolean(schema)) {
		*out = json_is_true(schema) ? schema_any(s, "json-value") :
					      ast_choice(s->ast);
		return 0;
	}
	if (!json_is_object(schema))
		return schema_fail(s, path,
				   "a schema is an object, true or false");
	if (s->depth == SCHEMA_MAX_DEPTH)
		return schema_fail(s, path,
				   "more than %d schemas within one another",
				   SCHEMA_MAX_DEPTH);
	s->depth++;
	rc = build_object_form(s, schema, path, out);
	s->depth--;
	if (!rc && json_is_true(json_object_get(schema, "nullable")))
		*out = ast_add(ast_add(ast_choice(s->ast), *out),
			       text(s->ast, "null"));
	return rc;
}
