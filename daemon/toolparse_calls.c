/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls from a whole JSON value. Jansson says whether it is one; arguments
 * are then cut out of the text as they stand, so that the client gets what the
 * model wrote and not what a parser made of it.
 */
#include <errno.h>
#include <jansson.h>

#include "daemon/toolparse_private.h"

/* A call in the text; the arguments of one in quotes lie in @value. */
struct call {
	const char *name;
	const char *arguments;
	size_t len;
};

/* ---- places in JSON text that is known to be right ------------------------ */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Something follows: a bracket closes what is looked at. */
static size_t next_at(const char *text, size_t at)
{
	while (is_space(text[at]))
		at++;
	return at;
}

static size_t skip_string(const char *text, size_t at)
{
	for (at++; text[at] != '"'; at++)
		at += text[at] == '\\';
	return at + 1;
}

static size_t skip_value(const char *text, size_t at)
{
	uint32_t depth = 0;

	if (text[at] != '{' && text[at] != '[' && text[at] != '"') {
		while (!is_space(text[at]) && text[at] != ',' &&
		       text[at] != ']' && text[at] != '}')
			at++;
		return at;
	}
	do {
		if (text[at] == '"') {
			at = skip_string(text, at);
			continue;
		}
		depth += text[at] == '{' || text[at] == '[';
		depth -= text[at] == '}' || text[at] == ']';
		at++;
	} while (depth);
	return at;
}

/* The text of member @name of the object at @text; of several the last, as jansson takes it. */
static bool find_member(const char *text, const char *name, const char **out,
			size_t *out_len)
{
	const size_t name_len = strlen(name);
	bool is_found = false;
	size_t at = next_at(text, 1);

	while (text[at] != '}') {
		const size_t key = at + 1;
		size_t start;

		at = skip_string(text, at);
		start = next_at(text, next_at(text, at) + 1);
		if (at - 1 - key == name_len &&
		    memcmp(text + key, name, name_len) == 0) {
			*out = text + start;
			*out_len = skip_value(text, start) - start;
			is_found = true;
		}
		at = next_at(text, skip_value(text, start));
		if (text[at] == ',')
			at = next_at(text, at + 1);
	}
	return is_found;
}

/* ---- calls ------------------------------------------------------------------ */

static bool is_tool(const struct toolparse *parse, const char *name)
{
	for (const char *known = parse->names; known && *known;
	     known += strlen(known) + 1)
		if (strcmp(known, name) == 0)
			return true;
	return false;
}

/* Arguments in quotes, as some models write them: JSON in a JSON string. */
static bool read_quoted(const json_t *value, struct call *call)
{
	json_t *inner =
		json_loadb(json_string_value(value), json_string_length(value),
			   JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
	const bool is_good = json_is_object(inner);

	json_decref(inner);
	call->arguments = json_string_value(value);
	call->len = json_string_length(value);
	return is_good;
}

/* @text: where the object @value stands. */
static bool read_call(const struct toolparse *parse, const json_t *value,
		      const char *text, struct call *call)
{
	const json_t *name = json_object_get(value, "name");
	const char *key = json_object_get(value, "arguments") ? "arguments" :
								"parameters";
	const json_t *arguments = json_object_get(value, key);

	call->name = json_string_value(name);
	if (!call->name || !*call->name ||
	    strlen(call->name) != json_string_length(name) ||
	    (parse->is_bare && (!arguments || !is_tool(parse, call->name))))
		return false;
	if (json_is_string(arguments))
		return read_quoted(arguments, call);
	if (json_is_object(arguments))
		return find_member(text, key, &call->arguments, &call->len);
	call->arguments = "{}";
	call->len = 2;
	return !arguments || json_is_null(arguments);
}

static int emit_call(struct toolparse *parse, const struct call *call,
		     struct toolparse_out *out)
{
	const uint32_t nr = parse->nr_calls;
	int rc;

	if (parse->only_first && nr)
		return 0;
	parse->nr_calls++;
	rc = toolparse_emit(out, TOOLPARSE_BEGIN, nr, call->name,
			    strlen(call->name));
	if (rc == 0)
		rc = toolparse_emit(out, TOOLPARSE_ARGUMENTS, nr,
				    call->arguments, call->len);
	return rc == 0 ? toolparse_emit(out, TOOLPARSE_END, nr, "", 0) : rc;
}

/* All are calls, or none is: with @out NULL it is only looked whether they are. */
static int walk_array(struct toolparse *parse, const json_t *array,
		      const char *text, struct toolparse_out *out)
{
	size_t at = next_at(text, 1);
	struct call call;
	int rc;

	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *value = json_array_get(array, i);

		if (!json_is_object(value) ||
		    !read_call(parse, value, text + at, &call))
			return 0;
		rc = out ? emit_call(parse, &call, out) : 0;
		if (rc != 0)
			return rc;
		at = next_at(text, skip_value(text, at));
		at = next_at(text, at + (text[at] == ','));
	}
	return (int)json_array_size(array);
}

int toolparse_read_calls(struct toolparse *parse, size_t end,
			 struct toolparse_out *out)
{
	const char *text = parse->held.bytes + parse->body;
	struct call call = { parse->name, text, end - parse->body };
	json_error_t why;
	/* Of numbers only the text counts: any size will do. */
	json_t *value = json_loadb(
		text, call.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
	int nr = 0;

	if (!value)
		return json_error_code(&why) == json_error_out_of_memory ?
			       -ENOMEM :
			       0;
	if (parse->name[0]) {
		nr = json_is_object(value);
	} else if (json_is_object(value)) {
		nr = read_call(parse, value, text, &call);
	} else {
		nr = walk_array(parse, value, text, NULL);
		if (nr > 0)
			nr = walk_array(parse, value, text, out);
		json_decref(value);
		return nr;
	}
	if (nr) {
		int rc = emit_call(parse, &call, out);

		nr = rc ? rc : nr;
	}
	json_decref(value);
	return nr;
}
