/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas as grammars, from the text to the rules: a schema alone, and
 * those of a request's tools within the text of their calls.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema.h"

/* In GBNF, which is shorter to read than nodes are. Lengths of numbers are bounded. */
static const char shared_rules[] =
	"root ::= json-object\n"
	"json-value ::= json-object | json-array | json-string | json-number | "
	"\"true\" | \"false\" | \"null\"\n"
	"json-object ::= \"{\" json-space (json-string \":\" json-space json-value "
	"json-space (\",\" json-space json-string \":\" json-space json-value "
	"json-space)*)? \"}\"\n"
	"json-array ::= \"[\" json-space (json-value json-space (\",\" json-space "
	"json-value json-space)*)? \"]\"\n"
	"json-string ::= \"\\\"\" json-char* \"\\\"\"\n"
	"json-char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
	"([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | "
	"[dD] [89abAB] [0-9a-fA-F]{2} \"\\\\u\" [dD] [c-fC-F] [0-9a-fA-F]{2}))\n"
	"json-number ::= json-integer (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
	"json-integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
	"json-space ::= (\" \" | \"\\n\"{1,2} [ \\t]{0,20})?\n";

static int read_shared(struct ast *ast, char *err, size_t errlen)
{
	int rc =
		gbnf_read(shared_rules, strlen(shared_rules), ast, err, errlen);

	/* Messages are about the schema. */
	ast->source = NULL;
	ast->source_len = 0;
	return rc;
}

int json_object_read(const char *text, size_t len, struct ast *ast, char *err,
		     size_t errlen)
{
	(void)text;
	(void)len;
	return read_shared(ast, err, errlen);
}

/* @build makes the whole answer of what @root says. */
static int read_with(const char *text, size_t len, struct ast *ast, char *err,
		     size_t errlen,
		     int (*build)(struct schema *s, json_t *root,
				  struct ast_node **out))
{
	const struct schema_path path = { 0 };
	struct schema s = { .ast = ast, .err = err, .errlen = errlen };
	json_error_t why;
	json_t *root = json_loadb(text, len, JSON_DECODE_ANY, &why);
	struct ast_node *body = NULL;
	int rc = read_shared(ast, err, errlen);

	s.root = root;
	s.made = json_array();
	if (!rc && !s.made)
		rc = -ENOMEM;
	if (!rc)
		rc = root ? build(&s, root, &body) :
			    schema_fail(
				    &s, &path,
				    json_error_code(&why) ==
						    json_error_null_character ?
					    "\\u0000 in a string is not supported" :
					    "the schema is no JSON");
	if (!rc)
		rc = schema_build_pending(&s);
	if (!rc && ast->is_out_of_memory)
		rc = -ENOMEM;
	if (!rc)
		ast->rules[ast->root].body = body;
	free(s.pending);
	json_decref(s.made);
	json_decref(root);
	return rc;
}

static int build_alone(struct schema *s, json_t *root, struct ast_node **out)
{
	const struct schema_path path = { 0 };

	return schema_build(s, root, &path, out);
}

int schema_read(const char *text, size_t len, struct ast *ast, char *err,
		size_t errlen)
{
	return read_with(text, len, ast, err, errlen, build_alone);
}

/* ---- calls ------------------------------------------------------------------ */

/* Whether the values of keyword @key are no schemas; @is_map: @key is a name, not a keyword. */
static bool is_data(const char *key, bool is_map)
{
	return !is_map &&
	       (strcmp(key, "const") == 0 || strcmp(key, "enum") == 0 ||
		strcmp(key, "default") == 0 || strcmp(key, "examples") == 0);
}

static bool is_map_of_schemas(const char *key, bool is_map)
{
	return !is_map &&
	       (strcmp(key, "properties") == 0 || strcmp(key, "$defs") == 0 ||
		strcmp(key, "definitions") == 0 ||
		strcmp(key, "patternProperties") == 0);
}

/* References into @schema, from the root of all: @prefix and what stood behind "#". */
static int move_refs(json_t *schema, const char *prefix, bool is_map)
{
	const char *ref, *key;
	json_t *part;
	size_t i;
	int rc = 0;

	json_array_foreach(schema, i, part) if (!rc)
		rc = move_refs(part, prefix, false);
	ref = json_string_value(json_object_get(schema, "$ref"));
	if (ref && ref[0] == '#') {
		part = json_pack("s+", prefix, ref + 1);
		if (json_object_set_new(schema, "$ref", part) != 0)
			return -ENOMEM;
	}
	json_object_foreach(schema, key, part) if (!rc && !is_data(key, is_map))
		rc = move_refs(part, prefix, is_map_of_schemas(key, is_map));
	return rc;
}

static struct ast_node *text_of(struct schema *s, const json_t *object,
				const char *key)
{
	const json_t *value = json_object_get(object, key);

	return ast_text(s->ast, json_string_value(value),
			json_string_length(value));
}

/* What a call of the tool looks like. */
static int build_call(struct schema *s, const json_t *tool, size_t index,
		      struct ast_node **out)
{
	const struct schema_path root = { 0 }, tools = { &root, "tools", 0 },
				 at = { &tools, NULL, index },
				 path = { &at, "parameters", 0 };
	json_t *parameters = json_object_get(tool, "parameters");
	struct ast_node *arguments = NULL;
	char prefix[64];
	int rc;

	snprintf(prefix, sizeof(prefix), "#/tools/%zu/parameters", index);
	rc = move_refs(parameters, prefix, false);
	if (!rc)
		rc = schema_build(s, parameters, &path, &arguments);
	if (rc)
		return rc;
	*out = ast_sequence(s->ast);
	ast_add(*out, text_of(s, tool, "head"));
	ast_add(*out, arguments);
	ast_add(*out, text_of(s, tool, "tail"));
	return 0;
}

/* begin call (between call)* end, as often as is allowed. */
static int build_calls(struct schema *s, json_t *root, struct ast_node **out)
{
	const bool is_one = json_is_false(json_object_get(root, "is_parallel"));
	struct ast_node *call = ast_choice(s->ast), *more, *one = NULL;
	json_t *tool;
	uint32_t rule;
	size_t i;
	int rc = 0;

	json_array_foreach(json_object_get(root, "tools"), i, tool)
	{
		if (json_is_null(tool))
			continue;
		rc = build_call(s, tool, i, &one);
		if (rc)
			return rc;
		ast_add(call, one);
	}
	rule = schema_rule(s, "tool-call", call);
	if (rule == AST_NO_RULE)
		return -ENOMEM;
	*out = ast_sequence(s->ast);
	ast_add(*out, text_of(s, root, "begin"));
	ast_add(*out, ast_rule(s->ast, rule));
	if (!is_one) {
		more = ast_sequence(s->ast);
		ast_add(more, text_of(s, root, "between"));
		ast_add(more, ast_rule(s->ast, rule));
		ast_add(*out, ast_repeat(s->ast, more, 0, AST_UNBOUNDED));
	}
	ast_add(*out, text_of(s, root, "end"));
	return rc;
}

int calls_read(const char *text, size_t len, struct ast *ast, char *err,
	       size_t errlen)
{
	return read_with(text, len, ast, err, errlen, build_calls);
}
