/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/completions: the fields of its own. The prompt is a text or token
 * ids, one prompt a request.
 */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"

static const char *const own_names[] = { "prompt", "echo", "suffix", NULL };

static bool tokenize_prompt(const struct api_context *context,
			    const json_t *text, struct request *request,
			    struct api_error *error)
{
	size_t nr;
	int rc;

	if (json_string_length(text) == 0)
		return api_fail(error, 400, "prompt", "invalid_value",
				"the prompt is empty");
	rc = tarn_tokenize(context->engine, json_string_value(text),
			   json_string_length(text),
			   TARN_TOKENIZE_PARSE_SPECIAL |
				   TARN_TOKENIZE_ADD_SPECIAL,
			   &request->prompt, &nr);
	if (rc == -EFBIG || (rc == 0 && nr > UINT32_MAX))
		return api_fail(error, 400, "prompt", "context_length_exceeded",
				"the prompt is too long: %zu bytes",
				json_string_length(text));
	if (rc != 0)
		return api_fail(error, 500, NULL, NULL, "tokenising failed: %s",
				strerror(-rc));
	request->nr_prompt = (uint32_t)nr;
	return true;
}

static bool read_prompt(const struct api_context *context, const json_t *prompt,
			struct request *request, struct api_error *error)
{
	const json_t *first;

	if (!prompt)
		return api_fail(error, 400, "prompt", "missing_field",
				"prompt is missing");
	if (json_is_string(prompt))
		return tokenize_prompt(context, prompt, request, error);
	if (!json_is_array(prompt))
		return api_fail(
			error, 400, "prompt", "invalid_type",
			"prompt must be a string or an array of token ids");
	if (json_array_size(prompt) == 0)
		return api_fail(error, 400, "prompt", "invalid_value",
				"the prompt is empty");
	first = json_array_get(prompt, 0);
	if (json_is_integer(first) || json_is_number(first))
		return api_read_ids(prompt, "prompt", context->info->nr_vocab,
				    &request->prompt, &request->nr_prompt,
				    error);
	if (json_array_size(prompt) > 1)
		return api_fail(
			error, 400, "prompt", "unsupported",
			"%zu prompts in one request are not supported; send one request "
			"each, they are computed together",
			json_array_size(prompt));
	if (json_is_string(first))
		return tokenize_prompt(context, first, request, error);
	if (json_is_array(first))
		return api_read_ids(first, "prompt", context->info->nr_vocab,
				    &request->prompt, &request->nr_prompt,
				    error);
	return api_fail(error, 400, "prompt", "invalid_type",
			"prompt must be a string or an array of token ids");
}

/* The prompt as it was sent; ids as the text that they stand for. */
static bool read_echo(const struct api_context *context, const json_t *prompt,
		      struct request *request, struct api_error *error)
{
	char *text = NULL;
	size_t len;
	int rc;

	if (json_is_array(prompt) && json_is_string(json_array_get(prompt, 0)))
		prompt = json_array_get(prompt, 0);
	if (json_is_string(prompt)) {
		rc = text_append(&request->echo_text, json_string_value(prompt),
				 json_string_length(prompt));
	} else {
		size_t used;

		rc = tarn_detokenize(context->engine, request->prompt,
				     request->nr_prompt, true, &text, &len);
		if (rc == 0)
			rc = text_append_utf8(&request->echo_text, text, len,
					      true, &used);
		free(text);
	}
	return rc == 0 ||
	       api_fail(error, 500, NULL, NULL, "echo: %s", strerror(-rc));
}

bool api_read_completion(const struct api_context *context, const json_t *body,
			 struct request *request, struct api_error *error)
{
	struct request_params *params = &request->params;
	const char *suffix = NULL;
	int64_t nr_logprobs = -1;
	size_t len = 0;

	if (!api_read_bool(body, "echo", &params->echo, error) ||
	    !api_read_params(context, body, request->kind, own_names, params,
			     error) ||
	    !api_read_string(body, "suffix", &suffix, &len, error) ||
	    !api_read_int(body, "logprobs", 0, TARN_MAX_LOGPROBS, &nr_logprobs,
			  error))
		return false;
	if (len)
		return api_fail(error, 400, "suffix", "unsupported",
				"suffix is not supported");
	if (nr_logprobs >= 0) {
		params->logprobs = true;
		params->sampling.logprobs = true;
		params->sampling.nr_logprobs = (uint32_t)nr_logprobs;
	}
	return read_prompt(context, api_get(body, "prompt"), request, error) &&
	       (!params->echo ||
		read_echo(context, api_get(body, "prompt"), request, error));
}
