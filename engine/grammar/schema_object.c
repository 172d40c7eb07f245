/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: the properties in the schema's order, then what additionalProperties admits. See
 * schema.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar_private.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"
#include "engine/token/utf8.h"

struct member {
	const char *name;
	uint32_t rule; /* its name, the colon and its value */
	bool is_required;
};

struct members {
	struct member *list;
	uint32_t nr, max;
	uint32_t additional; /* the rule of one that is not declared, or AST_NO_RULE */
};

static struct ast_node *text(struct schema *s, const char *bytes)
{
	return ast_text(s->ast, bytes, strlen(bytes));
}

/* ---- names that are not declared ------------------------------------------------------------ */

/* Any character of a name. */
static struct ast_node *any_char(struct schema *s)
{
	return json_class(s->ast, NULL, 0, true);
}

struct ast_node *schema_name(struct schema *s)
{
	struct ast_node *name = ast_sequence(s->ast);

	ast_add(name, text(s, "\""));
	ast_add(name, ast_repeat(s->ast, any_char(s), 0, AST_UNBOUNDED));
	return ast_add(name, text(s, "\""));
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/*
 * The rest of a name that is none of @names [nr], sorted, which all begin with the same @at bytes:
 * it goes another way than they do, or ends elsewhere.
 */
static struct ast_node *rest_of_name(struct schema *s, const char **names,
				     uint32_t nr, uint32_t at)
{
	struct ast_node *choice = ast_choice(s->ast), *other;
	struct ast_range *taken = malloc((nr + 1) * sizeof(*taken));
	uint32_t nr_taken = 0, i = 0;

	if (!taken) {
		s->ast->is_out_of_memory = true;
		return NULL;
	}
	if (names[0][at]) /* the quote may come: no name ends here */
		ast_add(choice, text(s, "\""));
	else
		i = 1;
	while (i < nr) {
		const char *here = names[i] + at;
		unsigned int len = utf8_char_len(here, strlen(here));
		uint32_t first = i;
		struct ast_node *branch = ast_sequence(s->ast);

		while (i < nr && !strncmp(names[i] + at, here, len))
			i++;
		taken[nr_taken].first = taken[nr_taken].last =
			utf8_get(here, len);
		ast_add(branch,
			json_class(s->ast, &taken[nr_taken++], 1, false));
		ast_add(branch,
			rest_of_name(s, names + first, i - first, at + len));
		ast_add(choice, branch);
	}
	other = ast_sequence(s->ast);
	ast_add(other, json_class(s->ast, taken, nr_taken, true));
	ast_add(other, ast_repeat(s->ast, any_char(s), 0, AST_UNBOUNDED));
	ast_add(other, text(s, "\""));
	free(taken);
	return ast_add(choice, other);
}

static int other_name(struct schema *s, const struct members *members,
		      const struct schema_path *path, struct ast_node **out)
{
	const char **names;

	if (!members->nr) {
		*out = schema_name(s);
		return 0;
	}
	names = malloc(members->nr * sizeof(*names));
	if (!names)
		return -ENOMEM;
	for (uint32_t i = 0; i < members->nr; i++) {
		names[i] = members->list[i].name;
		if (strlen(names[i]) <= SCHEMA_MAX_NAME_BYTES)
			continue;
		free(names);
		return schema_fail(s, path,
				   "the name of a property has more than %d "
				   "bytes, beside additionalProperties",
				   SCHEMA_MAX_NAME_BYTES);
	}
	qsort(names, members->nr, sizeof(*names), compare_names);
	*out = ast_sequence(s->ast);
	ast_add(*out, text(s, "\""));
	ast_add(*out, rest_of_name(s, names, members->nr, 0));
	free(names);
	return 0;
}

/* ---- members -------------------------------------------------------------------------------- */

/* "name": value */
static struct ast_node *pair(struct schema *s, struct ast_node *name,
			     struct ast_node *value)
{
	struct ast_node *pair = ast_sequence(s->ast);

	ast_add(pair, name);
	ast_add(pair, text(s, ":"));
	ast_add(pair, schema_space(s));
	ast_add(pair, value);
	return ast_add(pair, schema_space(s));
}

static int add_member(struct schema *s, struct members *members,
		      const char *name, const json_t *schema, bool is_required,
		      const struct schema_path *path)
{
	json_t *literal = json_string(name);
	struct ast_node *key, *value;
	int rc = literal ? schema_literal(s, literal, &key) : -ENOMEM;

	json_decref(literal);
	if (!rc)
		rc = grammar_grow((void **)&members->list, members->nr,
				  &members->max, sizeof(*members->list));
	if (!rc)
		rc = schema_build(s, schema, path, &value);
	/* What nothing fits may be left out, and has to be. */
	if (rc || (json_is_false(schema) && !is_required))
		return rc;
	members->list[members->nr++] = (struct member){
		.name = name,
		.rule = schema_rule(s, name, pair(s, key, value)),
		.is_required = is_required,
	};
	return 0;
}

static bool is_required(const json_t *required, const char *name)
{
	const json_t *one;
	size_t i;

	json_array_foreach((json_t *)required, i, one)
	{
		if (json_is_string(one) &&
		    strcmp(json_string_value(one), name) == 0)
			return true;
	}
	return false;
}

/* Declared ones in their order, then those that are only required. */
static int list_members(struct schema *s, const json_t *schema,
			struct members *members, const struct schema_path *path)
{
	const json_t *properties = json_object_get(schema, "properties");
	const json_t *required = json_object_get(schema, "required"), *one;
	const struct schema_path at = { path, "properties", 0 };
	const char *name;
	json_t *value;
	size_t i;
	int rc = 0;

	if (properties && !json_is_object(properties))
		return schema_fail(s, path, "properties must be an object");
	if (required && !json_is_array(required))
		return schema_fail(s, path, "required must be an array");
	json_object_foreach((json_t *)properties, name, value)
	{
		const struct schema_path place = { &at, name, 0 };

		rc = add_member(s, members, name, value,
				is_required(required, name), &place);
		if (rc)
			return rc;
	}
	json_array_foreach((json_t *)required, i, one)
	{
		const json_t *any =
			json_object_get(schema, "additionalProperties");
		const char *only = json_string_value(one);

		if (!only)
			return schema_fail(
				s, path, "required must be an array of names");
		if (json_object_get(properties, only) || rc)
			continue;
		rc = add_member(s, members, only, any ? any : json_true(), true,
				path);
	}
	return rc;
}

static int add_additional(struct schema *s, const json_t *schema,
			  struct members *members,
			  const struct schema_path *path)
{
	const json_t *additional =
		json_object_get(schema, "additionalProperties");
	const struct schema_path at = { path, "additionalProperties", 0 };
	struct ast_node *name = NULL, *value = NULL;
	int rc;

	members->additional = AST_NO_RULE;
	/* Undeclared ones that nothing is said of: only where none is declared. */
	if (json_is_false(additional) || (!additional && members->nr))
		return 0;
	rc = schema_build(s, additional ? additional : json_true(), &at,
			  &value);
	if (!rc)
		rc = other_name(s, members, path, &name);
	if (!rc)
		members->additional = schema_rule(s, "additionalProperties",
						  pair(s, name, value));
	return rc;
}

static struct ast_node *after_comma(struct schema *s, uint32_t rule)
{
	struct ast_node *next = ast_sequence(s->ast);

	ast_add(next, text(s, ","));
	ast_add(next, schema_space(s));
	return ast_add(next, ast_rule(s->ast, rule));
}

/*
 * From the last to the first: tails[i] is what follows where members were written before member i,
 * and *out what follows where none were.
 */
static struct ast_node *chain_members(struct schema *s, struct members *members)
{
	uint32_t tail = AST_NO_RULE;
	struct ast_node *begin = ast_sequence(s->ast), *one, *rest;

	if (members->additional != AST_NO_RULE) {
		tail = schema_rule(
			s, "additionalProperties",
			ast_repeat(s->ast, after_comma(s, members->additional),
				   0, AST_UNBOUNDED));
		one = ast_sequence(s->ast);
		ast_add(one, ast_rule(s->ast, members->additional));
		ast_add(one, ast_rule(s->ast, tail));
		begin = ast_repeat(s->ast, one, 0, 1);
	}
	for (uint32_t i = members->nr; i-- > 0;) {
		const struct member *m = &members->list[i];

		one = ast_sequence(s->ast);
		ast_add(one, ast_rule(s->ast, m->rule));
		if (tail != AST_NO_RULE)
			ast_add(one, ast_rule(s->ast, tail));
		begin = m->is_required ?
				one :
				ast_add(ast_add(ast_choice(s->ast), one),
					begin);
		rest = ast_sequence(s->ast);
		ast_add(rest, ast_repeat(s->ast, after_comma(s, m->rule),
					 m->is_required, 1));
		if (tail != AST_NO_RULE)
			ast_add(rest, ast_rule(s->ast, tail));
		tail = schema_rule(s, m->name, rest);
		/* Choices within choices are as deep as there are members. */
		begin = ast_rule(s->ast, schema_rule(s, m->name, begin));
	}
	return begin;
}

int schema_object(struct schema *s, const json_t *schema,
		  const struct schema_path *path, struct ast_node **out)
{
	struct members members = { 0 };
	int rc = list_members(s, schema, &members, path);

	if (!rc)
		rc = add_additional(s, schema, &members, path);
	if (!rc) {
		*out = ast_sequence(s->ast);
		ast_add(*out, text(s, "{"));
		ast_add(*out, schema_space(s));
		ast_add(*out, chain_members(s, &members));
		ast_add(*out, text(s, "}"));
	}
	free(members.list);
	return rc;
}
