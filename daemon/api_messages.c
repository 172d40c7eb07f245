/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a chat request, checked and in the shape that the model's
 * template takes: see api_template.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"
#include "daemon/api_template.h"
#include "daemon/textstream.h"

/* One message at work. */
struct reading {
	const struct api_template_traits *traits;
	struct api_error *error;
	json_t *call_ids; /* of the tool calls so far: an object, ids its keys */
	size_t nr_calls; /* so far, those without an id too */
	size_t place; /* of the message */
};

static bool no_memory(struct api_error *error)
{
	return api_fail(error, 500, NULL, NULL, "out of memory");
}

/* A member of the message at hand is not what it has to be. */
static bool wrong(const struct reading *r, const char *name, bool is_there,
		  const char *must)
{
	return api_fail(r->error, 400, "messages",
			is_there ? "invalid_type" : "missing_field",
			"messages[%zu]%s %s", r->place, name, must);
}

static bool set(const struct reading *r, json_t *object, const char *key,
		json_t *value)
{
	return json_object_set_new(object, key, value) == 0 ||
	       no_memory(r->error);
}

/* ---- content ---------------------------------------------------------------------- */

/* Content in parts becomes one text, which most templates understand: lines, as in vLLM. */
static json_t *join_parts(const struct reading *r, const json_t *parts)
{
	struct text text = { 0 };
	json_t *joined = NULL, *part;
	size_t i;

	json_array_foreach((json_t *)parts, i, part)
	{
		const char *type = api_name(json_object_get(part, "type"));
		const json_t *content = json_object_get(part, "text");

		if (!type || strcmp(type, "text") != 0 ||
		    !json_is_string(content)) {
			api_fail(
				r->error, 400, "messages",
				type ? "unsupported" : "invalid_type",
				"messages[%zu].content[%zu]: only parts of type \"text\" are "
				"supported",
				r->place, i);
			goto out;
		}
		if ((i && text_append(&text, "\n", 1) != 0) ||
		    text_append(&text, json_string_value(content),
				json_string_length(content)) != 0) {
			no_memory(r->error);
			goto out;
		}
	}
	joined = json_stringn(text.bytes ? text.bytes : "", text.len);
	if (!joined)
		no_memory(r->error);
out:
	text_deinit(&text);
	return joined;
}

static bool read_content(const struct reading *r, json_t *message)
{
	json_t *content = json_object_get(message, "content"), *text;
	const bool has_calls =
		json_array_size(json_object_get(message, "tool_calls")) > 0;

	if (!content) {
		text = has_calls && r->traits->wants_null_content ?
			       json_null() :
			       json_string("");
	} else if (json_is_string(content)) {
		text = json_incref(content);
	} else if (json_is_array(content)) {
		text = join_parts(r, content);
		if (!text)
			return false;
	} else {
		return wrong(r, ".content", true,
			     "must be a string or an array of text parts");
	}
	if (has_calls && r->traits->wants_null_content &&
	    json_is_string(text) && json_string_length(text) == 0) {
		json_decref(text);
		text = json_null();
	}
	if (r->traits->wants_parts && json_is_string(text))
		text = json_pack("[{s:s, s:o}]", "type", "text", "text", text);
	return text ? set(r, message, "content", text) : no_memory(r->error);
}

/* ---- tool calls ------------------------------------------------------------------- */

/* JSON as Python's json.dumps() writes it, reals with no more digits than they need. */
static json_t *dump(json_t *value)
{
	json_t *again, *text = NULL;

	for (size_t digits = 15; digits <= 17 && !text; digits++) {
		char *json = json_dumps(
			value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));

		again = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
		if (json && (digits == 17 || json_equal(again, value)))
			text = json_string(json);
		json_decref(again);
		free(json);
	}
	return text;
}

static bool read_arguments(const struct reading *r, json_t *function,
			   size_t call)
{
	json_t *given = json_object_get(function, "arguments"), *value;
	json_error_t why;
	char name[64];

	snprintf(name, sizeof(name), ".tool_calls[%zu].function.arguments",
		 call);
	if (given && !json_is_null(given) && !json_is_string(given) &&
	    !json_is_object(given))
		return wrong(r, name, true, "must be a string of JSON");
	if (json_is_object(given)) {
		if (!r->traits->wants_text_arguments)
			return true;
		value = dump(given);
		return value ? set(r, function, "arguments", value) :
			       no_memory(r->error);
	}
	/* Some clients send nothing at all for a call without arguments. */
	if (!given || json_is_null(given) || json_string_length(given) == 0) {
		value = r->traits->wants_text_arguments ? json_string("{}") :
							  json_object();
		return value ? set(r, function, "arguments", value) :
			       no_memory(r->error);
	}
	if (r->traits->wants_text_arguments)
		return true;
	value = json_loadb(json_string_value(given), json_string_length(given),
			   JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
	if (value)
		return set(r, function, "arguments", value);
	return api_fail(r->error, 400, "messages", "invalid_value",
			"messages[%zu]%s is not JSON: %s", r->place, name,
			why.text);
}

static bool read_call(struct reading *r, json_t *call, size_t place)
{
	json_t *function = json_object_get(call, "function");
	const char *id = json_string_value(json_object_get(call, "id"));
	const json_t *called = json_object_get(function, "name");
	char name[64];

	snprintf(name, sizeof(name), ".tool_calls[%zu]%s", place,
		 json_is_object(function) ? ".function.name" : ".function");
	if (!json_is_object(function))
		return wrong(r, name, function != NULL, "must be an object");
	if (!json_is_string(called))
		return wrong(r, name, called != NULL, "must be a string");
	if (id && !set(r, r->call_ids, id, json_true()))
		return false;
	r->nr_calls++;
	return read_arguments(r, function, place);
}

/* Calls get changed, and the client's objects must not: from the list on all are copies. */
static bool read_calls(struct reading *r, json_t *message)
{
	const json_t *given = json_object_get(message, "tool_calls");
	json_t *calls, *call;
	size_t i;

	if (!given)
		return true;
	if (!json_is_array(given))
		return wrong(r, ".tool_calls", true, "must be an array");
	calls = json_deep_copy(given);
	if (!calls)
		return no_memory(r->error);
	json_array_foreach(calls, i, call)
	{
		if (!read_call(r, call, i)) {
			json_decref(calls);
			return false;
		}
	}
	return set(r, message, "tool_calls", calls);
}

/* A result belongs to a call before it: by its id, where it has one. */
static bool check_result(const struct reading *r, const json_t *message)
{
	const json_t *id = json_object_get(message, "tool_call_id");

	if (id && !json_is_string(id))
		return wrong(r, ".tool_call_id", true, "must be a string");
	if (!r->nr_calls)
		return api_fail(
			r->error, 400, "messages", "invalid_value",
			"messages[%zu] is the result of a tool, but no message before it "
			"has tool_calls",
			r->place);
	if (json_is_string(id) && json_object_size(r->call_ids) &&
	    !json_object_get(r->call_ids, json_string_value(id)))
		return api_fail(
			r->error, 400, "messages", "invalid_value",
			"messages[%zu].tool_call_id: no tool call before it has the id \"%.64s\"",
			r->place, json_string_value(id));
	return true;
}

/* ---- messages --------------------------------------------------------------------- */

/*
 * The thoughts behind an answer go by three names, of which a template reads one: each is there,
 * as in Transformers.
 */
static bool alias_reasoning(const struct reading *r, json_t *message)
{
	static const char *const names[] = { "reasoning_content", "thinking",
					     "reasoning" };
	json_t *said = NULL;

	for (size_t i = 0; i < 3 && !said; i++)
		said = json_object_get(message, names[i]);
	if (!said)
		return true;
	if (!json_object_get(message, "thinking") &&
	    !set(r, message, "thinking", json_incref(said)))
		return false;
	return set(r, message, "reasoning_content", json_incref(said));
}

/*
 * Clients that hand back what they were answered send null for what was not said, and no calls as
 * an empty list: to templates that ask whether a member is there, it must not be.
 */
static void drop_empty(json_t *message)
{
	const char *name;
	json_t *value;
	void *next;

	json_object_foreach_safe(message, next, name, value)
	{
		if (json_is_null(value) ||
		    (strcmp(name, "tool_calls") == 0 && json_is_array(value) &&
		     json_array_size(value) == 0))
			json_object_del(message, name);
	}
}

/* Makes @message, a shallow copy, what the template gets. */
static bool read_message(struct reading *r, json_t *message)
{
	const json_t *role;

	drop_empty(message);
	role = json_object_get(message, "role");
	if (!json_is_string(role))
		return wrong(r, ".role", role != NULL, "must be a string");
	if (strcmp(json_string_value(role), "tool") == 0 &&
	    !check_result(r, message))
		return false;
	return read_calls(r, message) && read_content(r, message) &&
	       alias_reasoning(r, message);
}

json_t *api_template_messages(const json_t *messages,
			      const struct api_template_traits *traits,
			      struct api_error *error)
{
	struct reading r = { .traits = traits,
			     .error = error,
			     .call_ids = json_object() };
	json_t *list = json_array(), *message;
	bool is_good = (r.call_ids && list) || no_memory(error);

	json_array_foreach((json_t *)messages, r.place, message)
	{
		json_t *copy = NULL;

		if (is_good && !json_is_object(message))
			is_good = wrong(&r, "", true, "must be an object");
		if (is_good)
			copy = json_copy(message);
		is_good = is_good && (copy || no_memory(error)) &&
			  read_message(&r, copy) &&
			  (json_array_append(list, copy) == 0 ||
			   no_memory(error));
		json_decref(copy);
		if (!is_good)
			break;
	}
	json_decref(r.call_ids);
	if (is_good)
		return list;
	json_decref(list);
	return NULL;
}
