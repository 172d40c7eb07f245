/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object that a template reads of a chat request: messages, tools and
 * further variables; and the rendering. See api_template.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"
#include "daemon/api_template.h"
#include "engine/engine.h"

/* Members of a chat request with a meaning of their own: no variables by the way. */
static const char *const own_members[] = {
	"messages",
	"tools",
	"add_generation_prompt",
	"continue_final_message",
	"chat_template",
	"chat_template_kwargs",
	"model",
	NULL,
};

/* Variables that every endpoint with messages takes beside chat_template_kwargs. */
static const char *const known_variables[] = { "documents", "reasoning_effort",
					       NULL };

static bool is_among(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* ---- tools ------------------------------------------------------------------------ */

enum { MAX_TOOLS = 128, MAX_TOOL_NAME = 64 };

static bool wrong_tool(struct api_error *error, size_t place, const char *name,
		       const json_t *found, const char *must)
{
	return api_fail(error, 400, "tools",
			found ? "invalid_type" : "missing_field",
			"tools[%zu]%s %s", place, name, must);
}

static bool is_tool_name(const json_t *name)
{
	const size_t len = json_string_length(name);

	return len <= MAX_TOOL_NAME &&
	       strspn(json_string_value(name),
		      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		      "0123456789_-") == len;
}

static bool check_tool(const json_t *tool, size_t place, json_t *names,
		       struct api_error *error)
{
	const json_t *type = json_object_get(tool, "type");
	const json_t *function = json_object_get(tool, "function");
	const json_t *name = json_object_get(function, "name");
	const json_t *parameters = json_object_get(function, "parameters");
	const json_t *description = json_object_get(function, "description");

	if (!json_is_object(tool))
		return wrong_tool(error, place, "", tool, "must be an object");
	if (!type || strcmp(json_is_string(type) ? json_string_value(type) : "",
			    "function") != 0)
		return api_fail(error, 400, "tools",
				type ? "unsupported" : "missing_field",
				"tools[%zu].type must be \"function\"", place);
	if (!json_is_object(function))
		return wrong_tool(error, place, ".function", function,
				  "must be an object");
	if (!json_is_string(name) || json_string_length(name) == 0)
		return wrong_tool(error, place, ".function.name", name,
				  "must be a string that is not empty");
	if (!is_tool_name(name))
		return api_fail(
			error, 400, "tools", "invalid_value",
			"tools[%zu].function.name must be 1 to %d letters of "
			"ASCII, digits, _ and -",
			place, MAX_TOOL_NAME);
	if (description && !json_is_string(description) &&
	    !json_is_null(description))
		return wrong_tool(error, place, ".function.description",
				  description, "must be a string");
	if (parameters && !json_is_object(parameters) &&
	    !json_is_null(parameters))
		return wrong_tool(error, place, ".function.parameters",
				  parameters, "must be an object");
	if (json_object_get(names, json_string_value(name)))
		return api_fail(
			error, 400, "tools", "invalid_value",
			"tools[%zu].function.name: \"%.64s\" is the name of a tool before it",
			place, json_string_value(name));
	return json_object_set_new(names, json_string_value(name),
				   json_true()) == 0 ||
	       api_fail(error, 500, NULL, NULL, "out of memory");
}

bool api_check_tools(const json_t *tools, struct api_error *error)
{
	bool is_good = true;
	json_t *names, *tool;
	size_t i;

	if (!tools)
		return true;
	if (!json_is_array(tools))
		return api_fail(error, 400, "tools", "invalid_type",
				"tools must be an array");
	if (json_array_size(tools) > MAX_TOOLS)
		return api_fail(error, 400, "tools", "invalid_value",
				"tools has %zu entries; at most %d are allowed",
				json_array_size(tools), MAX_TOOLS);
	names = json_object();
	if (!names)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	json_array_foreach((json_t *)tools, i, tool)
	{
		is_good = is_good && check_tool(tool, i, names, error);
	}
	json_decref(names);
	return is_good;
}

/* @out: what the template gets as tools: null where there are none, as in Transformers. */
static bool read_tools(const json_t *body, json_t **out,
		       struct api_error *error)
{
	json_t *tools = api_get(body, "tools");

	*out = NULL;
	if (!api_check_tools(tools, error))
		return false;
	*out = json_array_size(tools) ? json_incref(tools) : json_null();
	return true;
}

/* ---- the whole --------------------------------------------------------------------- */

static const json_t *find_messages(const json_t *body, struct api_error *error)
{
	const json_t *messages = api_get(body, "messages");

	if (json_is_array(messages) && json_array_size(messages))
		return messages;
	if (json_is_array(messages))
		api_fail(error, 400, "messages", "invalid_value",
			 "messages is empty");
	else
		api_fail(error, 400, "messages",
			 messages ? "invalid_type" : "missing_field",
			 messages ? "messages must be an array" :
				    "messages is missing");
	return NULL;
}

/* Further variables: the body's own first, so that chat_template_kwargs stands above them. */
static json_t *read_variables(const json_t *body, bool all,
			      struct api_error *error)
{
	const json_t *kwargs = api_get(body, "chat_template_kwargs");
	json_t *input, *value;
	const char *name;
	int failed;

	if (kwargs && !json_is_object(kwargs)) {
		api_fail(error, 400, "chat_template_kwargs", "invalid_type",
			 "chat_template_kwargs must be an object");
		return NULL;
	}
	json_object_foreach((json_t *)kwargs, name, value)
	{
		if (!is_among(own_members, name))
			continue;
		api_fail(
			error, 400, "chat_template_kwargs", "invalid_value",
			"chat_template_kwargs.%s: %s is a field of its own in the request",
			name, name);
		return NULL;
	}
	input = json_pack("{s:n}", "documents");
	failed = !input;
	json_object_foreach((json_t *)body, name, value)
	{
		/* As everywhere in the API, null stands for what is not given. */
		if (json_is_null(value) || is_among(own_members, name) ||
		    !(all || is_among(known_variables, name)))
			continue;
		failed |= json_object_set(input, name, value);
	}
	if (!failed && kwargs)
		failed |= json_object_update(input, (json_t *)kwargs);
	if (!failed)
		return input;
	json_decref(input);
	api_fail(error, 500, NULL, NULL, "out of memory");
	return NULL;
}

/* What would make another prompt and is not built: the neutral value passes. */
static bool refuse_unbuilt(const json_t *body, struct api_error *error)
{
	bool continues = false;

	if (!api_read_bool(body, "continue_final_message", &continues, error))
		return false;
	if (continues)
		return api_fail(
			error, 400, "continue_final_message", "unsupported",
			"continue_final_message is not supported; /apply-template gives the "
			"text that /v1/completions can go on from");
	if (api_get(body, "chat_template"))
		return api_fail(
			error, 400, "chat_template", "unsupported",
			"chat_template is not supported: the model's own is used");
	return true;
}

json_t *api_template_input(const json_t *body,
			   const struct api_template_traits *traits, bool all,
			   struct api_error *error)
{
	const json_t *messages = find_messages(body, error);
	bool add_prompt = true;
	json_t *input = NULL, *list = NULL, *tools = NULL;

	if (!messages ||
	    !api_read_bool(body, "add_generation_prompt", &add_prompt, error) ||
	    !refuse_unbuilt(body, error) || !read_tools(body, &tools, error))
		return NULL;
	list = api_template_messages(messages, traits, error);
	if (list)
		input = read_variables(body, all, error);
	if (!input) {
		json_decref(list);
		json_decref(tools);
		return NULL;
	}
	if (json_object_set_new(input, "messages", list) != 0 ||
	    json_object_set_new(input, "tools", tools) != 0 ||
	    json_object_set_new(input, "add_generation_prompt",
				json_boolean(add_prompt)) != 0) {
		json_decref(input);
		api_fail(error, 500, NULL, NULL, "out of memory");
		return NULL;
	}
	return input;
}

/* ---- rendering --------------------------------------------------------------------- */

bool api_template_refused(int rc, const char *reason, struct api_error *error)
{
	if (rc == -ENOMEM)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	if (rc == -ENOENT)
		return api_fail(
			error, 400, "messages", "no_chat_template",
			"this model has no chat template; use /v1/completions");
	return api_fail(error, 400, "messages", "chat_template",
			"the chat template refused the messages: %s",
			reason[0] ? reason : strerror(-rc));
}

bool api_template_text(const struct tarn_template *template,
		       const json_t *input, char **out_text, size_t *out_len,
		       struct api_error *error)
{
	char reason[400] = "";
	char *json = json_dumps(input, JSON_COMPACT);
	int rc = -ENOMEM;

	if (json)
		rc = tarn_template_render(template, json, strlen(json),
					  out_text, out_len, reason,
					  sizeof(reason));
	free(json);
	return rc == 0 || api_template_refused(rc, reason, error);
}
