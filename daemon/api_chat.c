/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/chat/completions: messages, and the prompt that the model's own
 * template makes of them.
 */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"

static const char *const own_names[] = {
	"messages",
	"max_completion_tokens",
	"top_logprobs",
	"add_generation_prompt",
	"continue_final_message",
	"chat_template",
	"chat_template_kwargs",
	"store",
	"service_tier",
	"parallel_tool_calls",
	"modalities",
	"reasoning_effort",
	"documents",
	NULL,
};

bool api_chat_ids(const struct api_context *context, const json_t *body,
		  int32_t **out_ids, uint32_t *out_nr, struct api_error *error)
{
	json_t *input =
		api_template_input(body, &context->traits, false, error);
	char reason[400] = "";
	char *json;
	size_t nr = 0;
	int rc;

	if (!input)
		return false;
	json = json_dumps(input, JSON_COMPACT);
	json_decref(input);
	if (!json)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	rc = tarn_chat_prompt(context->engine, json, strlen(json), NULL,
			      out_ids, &nr, reason, sizeof(reason));
	free(json);
	if (rc != 0)
		return api_template_refused(rc, reason, error);
	*out_nr = nr < UINT32_MAX ? (uint32_t)nr : UINT32_MAX;
	return true;
}

static bool read_chat_logprobs(const json_t *body,
			       struct request_params *params,
			       struct api_error *error)
{
	int64_t nr_top = 0;

	if (!api_read_bool(body, "logprobs", &params->logprobs, error) ||
	    !api_read_int(body, "top_logprobs", 0, TARN_MAX_LOGPROBS, &nr_top,
			  error))
		return false;
	if (nr_top && !params->logprobs)
		return api_fail(error, 400, "top_logprobs", "invalid_value",
				"top_logprobs needs \"logprobs\": true");
	params->sampling.logprobs |= params->logprobs;
	params->sampling.nr_logprobs = (uint32_t)nr_top;
	return true;
}

static bool refuse_other_modalities(const json_t *body, struct api_error *error)
{
	const json_t *field = api_get(body, "modalities");
	const char *only = json_string_value(json_array_get(field, 0));

	if (!field ||
	    (json_array_size(field) == 1 && only && strcmp(only, "text") == 0))
		return true;
	return api_fail(error, 400, "modalities", "unsupported",
			"modalities other than [\"text\"] is not supported");
}

bool api_read_chat(const struct api_context *context, const json_t *body,
		   struct request *request, struct api_error *error)
{
	struct request_params *params = &request->params;
	const json_t *input = body;
	json_t *without_tools = NULL;
	int64_t max_tokens;
	bool is_good;

	if (!api_read_params(context, body, request->kind, own_names, params,
			     error) ||
	    !refuse_other_modalities(body, error) ||
	    (request->kind == REQUEST_CHAT &&
	     !api_read_tools(context, body, params, error)))
		return false;
	/* The newer name of max_tokens; where both are given it counts. */
	max_tokens = params->max_tokens;
	if (!api_read_int(body, "max_completion_tokens", 1, INT32_MAX,
			  &max_tokens, error) ||
	    !read_chat_logprobs(body, params, error))
		return false;
	params->max_tokens = (uint32_t)max_tokens;
	/* A model that must not call a tool is not told of any. */
	if (params->tool_format == TOOL_FORMAT_NONE && api_get(body, "tools")) {
		without_tools = json_copy((json_t *)body);
		if (!without_tools)
			return api_fail(error, 500, NULL, NULL,
					"out of memory");
		json_object_del(without_tools, "tools");
		input = without_tools;
	}
	is_good = api_chat_ids(context, input, &request->prompt,
			       &request->nr_prompt, error);
	json_decref(without_tools);
	return is_good;
}
