/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools of a chat: what of them a request may ask for, and the calls of an
 * answer in the shapes of OpenAI's API. The text is taken apart by
 * toolparse.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/api.h"
#include "daemon/api_fields.h"

/* ---- requests ----------------------------------------------------------------------- */

const char *api_tool_name(const json_t *tool)
{
	return json_string_value(
		json_object_get(json_object_get(tool, "function"), "name"));
}

/* What tool_choice says. */
struct choice {
	bool is_offered; /* the model hears of the tools */
	bool is_required; /* the answer is calls */
	const char *only; /* of this function; NULL: of any */
};

/* {"type": "function", "function": {"name": ...}}, which has to be one of @tools. */
static bool read_named(const json_t *field, const json_t *tools,
		       struct choice *out, struct api_error *error)
{
	const char *type = json_string_value(json_object_get(field, "type"));
	json_t *tool;
	size_t i;

	out->only = json_string_value(
		json_object_get(json_object_get(field, "function"), "name"));
	if (!type || strcmp(type, "function") != 0 || !out->only)
		return api_fail(
			error, 400, "tool_choice", "invalid_value",
			"tool_choice as an object must be "
			"{\"type\": \"function\", \"function\": {\"name\": ...}}");
	json_array_foreach((json_t *)tools, i, tool)
	{
		if (strcmp(api_tool_name(tool), out->only) == 0)
			return true;
	}
	return api_fail(error, 400, "tool_choice", "invalid_value",
			"tool_choice names \"%.64s\", which is not among tools",
			out->only);
}

static bool read_choice(const json_t *body, const json_t *tools,
			struct choice *out, struct api_error *error)
{
	const json_t *field = api_get(body, "tool_choice");
	const char *name = api_name(field);

	*out = (struct choice){ .is_offered = true };
	if (!field || (name && strcmp(name, "auto") == 0))
		return true;
	if (name && strcmp(name, "none") == 0) {
		out->is_offered = false;
		return true;
	}
	if (!json_is_object(field) && (!name || strcmp(name, "required") != 0))
		return api_fail(
			error, 400, "tool_choice",
			name ? "invalid_value" : "invalid_type",
			"tool_choice must be \"none\", \"auto\", "
			"\"required\" or an object that names a function");
	out->is_required = true;
	if (json_is_object(field))
		return read_named(field, tools, out, error);
	if (!json_array_size(tools))
		return api_fail(
			error, 400, "tool_choice", "invalid_value",
			"tool_choice is \"required\", but there are no tools");
	return true;
}

/* Arguments follow their schema only where a call must come: text is not constrained. */
static bool check_strict(const json_t *tools, bool is_required,
			 struct api_error *error)
{
	json_t *tool;
	size_t i;

	json_array_foreach((json_t *)tools, i, tool)
	{
		const json_t *strict = json_object_get(
			json_object_get(tool, "function"), "strict");

		if (strict && !json_is_boolean(strict) && !json_is_null(strict))
			return api_fail(
				error, 400, "tools", "invalid_type",
				"tools[%zu].function.strict must be true or false",
				i);
		if (json_is_true(strict) && !is_required)
			return api_fail(
				error, 400, "tools", "unsupported",
				"tools[%zu].function.strict needs tool_choice \"required\" or a "
				"function by name: calls that the model may leave out are not "
				"constrained",
				i);
	}
	return true;
}

/* The names in a row, "" behind the last; NULL without memory. */
static char *names_of(const json_t *tools)
{
	struct text names = { 0 };
	json_t *tool;
	size_t i;
	int rc = 0;

	json_array_foreach((json_t *)tools, i, tool)
	{
		const char *name = api_tool_name(tool);

		if (rc == 0)
			rc = text_append(&names, name, strlen(name) + 1);
	}
	if (rc == 0)
		rc = text_append(&names, "", 1);
	if (rc == 0)
		return names.bytes;
	text_deinit(&names);
	return NULL;
}

bool api_read_tools(const struct api_context *context, const json_t *body,
		    struct request_params *params, struct api_error *error)
{
	const struct api_template_traits *traits = &context->traits;
	const json_t *tools = api_get(body, "tools");
	bool is_parallel = true;
	struct choice choice;

	if (!api_check_tools(tools, error) ||
	    !read_choice(body, tools, &choice, error) ||
	    !api_read_bool(body, "parallel_tool_calls", &is_parallel, error))
		return false;
	if (!choice.is_offered || json_array_size(tools) == 0)
		return true;
	if (!traits->knows_tools)
		return api_fail(
			error, 400, "tools", "unsupported",
			"this model's chat template does not know tools: it would never see them");
	if (traits->tool_format == TOOL_FORMAT_UNKNOWN)
		return api_fail(
			error, 400, "tools", "unsupported",
			"tools are not supported with this model: it writes its calls in a form "
			"that is not known here");
	if (!check_strict(tools, choice.is_required, error))
		return false;
	params->tool_names = names_of(tools);
	if (!params->tool_names)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	params->tool_format = traits->tool_format;
	params->only_first_call = !is_parallel;
	return !choice.is_required ||
	       api_require_calls(context, tools, choice.only, is_parallel,
				 params, error);
}

/* ---- answers ------------------------------------------------------------------------ */

int api_tool_events(struct api_choice *choice, const struct reply *delta)
{
	int rc;

	choice->events.nr_events = 0;
	choice->events.text.len = 0;
	if (choice->parse.format == TOOL_FORMAT_NONE)
		return 0;
	rc = toolparse_push(&choice->parse, delta->text.bytes, delta->text.len,
			    &choice->events);
	if (rc == 0 && delta->finish != FINISH_NONE)
		rc = toolparse_finish(&choice->parse, &choice->events);
	return rc;
}

/* "call_" and 24 hex digits that no other call has; NULL without memory. */
static json_t *new_id(void)
{
	unsigned char bytes[12];
	char id[sizeof("call_") + 2 * sizeof(bytes)] = "call_";

	/* So few bytes come whole, once the system's pool is filled. */
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return NULL;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(id + strlen("call_") + 2 * i, 3, "%02x", bytes[i]);
	return json_string(id);
}

static json_t *event_text(const struct api_choice *choice,
			  const struct toolparse_event *event)
{
	return json_stringn(choice->events.text.bytes + event->at, event->len);
}

/* A call without its arguments. */
static json_t *new_call(const struct api_choice *choice,
			const struct toolparse_event *event)
{
	return json_pack("{s:o, s:s, s:{s:o, s:s}}", "id", new_id(), "type",
			 "function", "function", "name",
			 event_text(choice, event), "arguments", "");
}

static int add_arguments(struct api_choice *choice,
			 const struct toolparse_event *event)
{
	json_t *call = json_array_get(choice->tool_calls, event->call);
	json_t *function = json_object_get(call, "function");
	const char *so_far =
		json_string_value(json_object_get(function, "arguments"));
	json_t *more = so_far ? json_pack("s+%", so_far,
					  choice->events.text.bytes + event->at,
					  event->len) :
				NULL;

	return json_object_set_new(function, "arguments", more) == 0 ? 0 :
								       -ENOMEM;
}

int api_tool_collect(struct api_choice *choice)
{
	int rc = 0;

	for (uint32_t i = 0; i < choice->events.nr_events && rc == 0; i++) {
		const struct toolparse_event *event = &choice->events.events[i];

		switch (event->kind) {
		case TOOLPARSE_CONTENT:
			rc = text_append(&choice->text,
					 choice->events.text.bytes + event->at,
					 event->len);
			break;
		case TOOLPARSE_BEGIN:
			if (!choice->tool_calls)
				choice->tool_calls = json_array();
			if (json_array_append_new(choice->tool_calls,
						  new_call(choice, event)) != 0)
				rc = -ENOMEM;
			break;
		case TOOLPARSE_ARGUMENTS:
			rc = add_arguments(choice, event);
			break;
		case TOOLPARSE_END:
			break;
		}
	}
	return rc;
}

/* NULL without memory. */
static json_t *event_delta(const struct api_choice *choice,
			   const struct toolparse_event *event)
{
	json_t *call;

	if (event->kind == TOOLPARSE_CONTENT)
		return json_pack("{s:o}", "content", event_text(choice, event));
	call = event->kind == TOOLPARSE_BEGIN ?
		       new_call(choice, event) :
		       json_pack("{s:{s:o}}", "function", "arguments",
				 event_text(choice, event));
	if (!call || json_object_set_new(call, "index",
					 json_integer(event->call)) != 0) {
		json_decref(call);
		return NULL;
	}
	return json_pack("{s:[o]}", "tool_calls", call);
}

json_t *api_tool_deltas(const struct api_choice *choice)
{
	json_t *deltas = json_array();

	for (uint32_t i = 0; deltas && i < choice->events.nr_events; i++) {
		const struct toolparse_event *event = &choice->events.events[i];

		if (event->kind == TOOLPARSE_END)
			continue;
		if (json_array_append_new(deltas, event_delta(choice, event)) !=
		    0) {
			json_decref(deltas);
			return NULL;
		}
	}
	return deltas;
}
