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
	"chat_template_kwargs",
	"store",
	"service_tier",
	"parallel_tool_calls",
	"modalities",
	"reasoning_effort",
	NULL,
};

/* Content in parts becomes one text, which is what templates understand: lines, as in vLLM. */
static json_t *join_parts(const json_t *parts, size_t message,
			  struct api_error *error)
{
	struct text text = { 0 };
	json_t *joined = NULL, *part;
	size_t i;

	json_array_foreach((json_t *)parts, i, part)
	{
		const char *type =
			json_string_value(json_object_get(part, "type"));
		const json_t *content = json_object_get(part, "text");

		if (!type || strcmp(type, "text") != 0 ||
		    !json_is_string(content)) {
			api_fail(
				error, 400, "messages",
				type ? "unsupported" : "invalid_type",
				"messages[%zu].content[%zu]: only parts of type \"text\" are "
				"supported",
				message, i);
			goto out;
		}
		if ((i && text_append(&text, "\n", 1) != 0) ||
		    text_append(&text, json_string_value(content),
				json_string_length(content)) != 0) {
			api_fail(error, 500, NULL, NULL, "out of memory");
			goto out;
		}
	}
	joined = json_stringn(text.bytes ? text.bytes : "", text.len);
	if (!joined)
		api_fail(error, 500, NULL, NULL, "out of memory");
out:
	text_deinit(&text);
	return joined;
}

/* A checked copy of one message, for the template; NULL with the error filled. */
static json_t *read_message(const json_t *message, size_t place,
			    struct api_error *error)
{
	const json_t *role, *content;
	json_t *copy, *joined;

	if (!json_is_object(message)) {
		api_fail(error, 400, "messages", "invalid_type",
			 "messages[%zu] must be an object", place);
		return NULL;
	}
	role = json_object_get(message, "role");
	content = json_object_get(message, "content");
	if (!json_is_string(role)) {
		api_fail(error, 400, "messages",
			 role ? "invalid_type" : "missing_field",
			 "messages[%zu].role must be a string", place);
		return NULL;
	}
	if (content && !json_is_string(content) && !json_is_array(content) &&
	    !json_is_null(content)) {
		api_fail(
			error, 400, "messages", "invalid_type",
			"messages[%zu].content must be a string or an array of text parts",
			place);
		return NULL;
	}
	copy = json_copy((json_t *)message);
	if (!copy)
		goto no_memory;
	if (json_is_array(content)) {
		joined = join_parts(content, place, error);
		if (!joined ||
		    json_object_set_new(copy, "content", joined) != 0) {
			json_decref(copy);
			return NULL;
		}
	} else if (!content || json_is_null(content)) {
		if (json_object_set_new(copy, "content", json_string("")) != 0)
			goto no_memory;
	}
	return copy;
no_memory:
	json_decref(copy);
	api_fail(error, 500, NULL, NULL, "out of memory");
	return NULL;
}

/* The object that the template reads; NULL with the error filled. */
static json_t *template_input(const json_t *body, struct api_error *error)
{
	const json_t *messages = api_get(body, "messages");
	const json_t *kwargs = api_get(body, "chat_template_kwargs");
	json_t *input, *list, *message;
	bool add_prompt = true;
	size_t i;

	if (!json_is_array(messages)) {
		api_fail(error, 400, "messages",
			 messages ? "invalid_type" : "missing_field",
			 messages ? "messages must be an array" :
				    "messages is missing");
		return NULL;
	}
	if (json_array_size(messages) == 0) {
		api_fail(error, 400, "messages", "invalid_value",
			 "messages is empty");
		return NULL;
	}
	if (kwargs && !json_is_object(kwargs)) {
		api_fail(error, 400, "chat_template_kwargs", "invalid_type",
			 "chat_template_kwargs must be an object");
		return NULL;
	}
	if (!api_read_bool(body, "add_generation_prompt", &add_prompt, error))
		return NULL;
	input = kwargs ? json_copy((json_t *)kwargs) : json_object();
	list = json_array();
	if (!input || !list ||
	    json_object_set_new(input, "messages", list) != 0) {
		json_decref(input);
		api_fail(error, 500, NULL, NULL, "out of memory");
		return NULL;
	}
	json_object_set_new(input, "add_generation_prompt",
			    json_boolean(add_prompt));
	json_array_foreach((json_t *)messages, i, message)
	{
		json_t *copy = read_message(message, i, error);

		if (!copy || json_array_append_new(list, copy) != 0) {
			json_decref(input);
			return NULL;
		}
	}
	return input;
}

bool api_chat_ids(const struct api_context *context, const json_t *body,
		  int32_t **out_ids, uint32_t *out_nr, struct api_error *error)
{
	json_t *input = template_input(body, error);
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
	if (rc == -ENOMEM)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	if (rc == -ENOENT)
		return api_fail(
			error, 400, "messages", "no_chat_template",
			"this model has no chat template; use /v1/completions");
	if (rc != 0)
		return api_fail(error, 400, "messages", "chat_template",
				"the chat template refused the messages: %s",
				reason[0] ? reason : strerror(-rc));
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
	int64_t max_tokens;

	if (!api_read_params(context, body, own_names, params, error) ||
	    !refuse_other_modalities(body, error))
		return false;
	/* The newer name of max_tokens; where both are given it counts. */
	max_tokens = params->max_tokens;
	if (!api_read_int(body, "max_completion_tokens", 1, INT32_MAX,
			  &max_tokens, error) ||
	    !read_chat_logprobs(body, params, error))
		return false;
	params->max_tokens = (uint32_t)max_tokens;
	return api_chat_ids(context, body, &request->prompt,
			    &request->nr_prompt, error);
}
