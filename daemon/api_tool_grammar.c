/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that must come (tool_choice "required", or a function by its name): the
 * answer is calls in the form the model was trained on, and nothing else, with
 * arguments that follow the schema. toolparse.h takes them apart again.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/api_fields.h"

/* How calls are written; "%s" is the name, as JSON writes it within quotes. */
struct form {
	enum tool_format format;
	const char *begin, *head, *tail, *between, *end;
};

static const struct form forms[] = {
	{ TOOL_FORMAT_HERMES, "",
	  "<tool_call>\n{\"name\": \"%s\", \"arguments\": ", "}\n</tool_call>",
	  "\n", "" },
	{ TOOL_FORMAT_LLAMA, "", "{\"name\": \"%s\", \"parameters\": ", "}",
	  "; ", "" },
	{ TOOL_FORMAT_MISTRAL, "[TOOL_CALLS][",
	  "{\"name\": \"%s\", \"arguments\": ", "}", ", ", "]" },
	{ TOOL_FORMAT_FUNCTION, "", "<function=%s>", "</function>", "", "" },
	{ TOOL_FORMAT_JSON, "[", "{\"name\": \"%s\", \"arguments\": ", "}",
	  ", ", "]" },
};

static const struct form *form_of(enum tool_format format)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (forms[i].format == format)
			return &forms[i];
	return NULL;
}

/* The parameters, an object in any case. NULL without memory. */
static json_t *parameters_of(const json_t *function)
{
	const json_t *given = api_get(function, "parameters");
	json_t *schema = given ? json_deep_copy(given) : json_object();

	if (json_is_object(schema) && !json_object_get(schema, "type") &&
	    json_object_set_new(schema, "type", json_string("object")) != 0) {
		json_decref(schema);
		return NULL;
	}
	return schema;
}

/* What grammars of calls take for a tool; NULL without memory. */
static json_t *tool_of(const struct form *form, const json_t *tool)
{
	const char *mark = strstr(form->head, "%s");
	json_t *head = json_pack("s#++", form->head, (int)(mark - form->head),
				 api_tool_name(tool), mark + strlen("%s"));

	return json_pack("{s:o, s:o, s:s}", "head", head, "parameters",
			 parameters_of(json_object_get(tool, "function")),
			 "tail", form->tail);
}

/* @only: the one function that may be called; NULL: any. NULL without memory. */
static char *calls_text(const struct form *form, const json_t *tools,
			const char *only, bool is_parallel)
{
	json_t *list = json_array(), *calls;
	char *text = NULL;
	json_t *tool;
	size_t i;
	int rc = 0;

	json_array_foreach((json_t *)tools, i, tool)
	{
		if (rc == 0)
			rc = json_array_append_new(
				list, !only || strcmp(api_tool_name(tool),
						      only) == 0 ?
					      tool_of(form, tool) :
					      json_null());
	}
	calls = json_pack("{s:s, s:s, s:s, s:b, s:o}", "begin", form->begin,
			  "between", form->between, "end", form->end,
			  "is_parallel", is_parallel, "tools", list);
	if (rc == 0 && calls)
		text = json_dumps(calls, JSON_COMPACT);
	json_decref(calls);
	return text;
}

bool api_require_calls(const struct api_context *context, const json_t *tools,
		       const char *only, bool is_parallel,
		       struct request_params *params, struct api_error *error)
{
	const struct form *form = form_of(params->tool_format);
	char *text;
	bool is_good;

	if (params->grammar)
		return api_fail(
			error, 400, "tool_choice", "invalid_value",
			"tool_choice and a grammar or response_format both say what the answer "
			"has to look like: give one");
	text = form ? calls_text(form, tools, only, is_parallel) : NULL;
	if (!text)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	is_good = api_make_grammar(
		context, TARN_GRAMMAR_TOOL_CALLS, text, strlen(text), "tools",
		"tools cannot be called as their parameters ask", params,
		error);
	free(text);
	return is_good;
}
