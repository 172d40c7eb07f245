/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields that completions and chat share: sampling, stop strings, limits.
 * Defaults: temperature 1, top_p 1, n 1, no logprobs; a random seed.
 */
#include "daemon/api.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/api_fields.h"
#include "daemon/schedule.h"

enum { MAX_STOP_BYTES = 4096 };

/* Fields both endpoints know, those that have no effect here included. */
static const char *const common_names[] = {
	"model",
	"max_tokens",
	"temperature",
	"top_p",
	"top_k",
	"min_p",
	"seed",
	"n",
	"stop",
	"logprobs",
	"ignore_eos",
	"return_token_ids",
	"stream",
	"stream_options",
	"user",
	"metadata",
	"presence_penalty",
	"frequency_penalty",
	"logit_bias",
	"best_of",
	"response_format",
	"tools",
	"tool_choice",
	"functions",
	"function_call",
	"repetition_penalty",
	"cache_prompt",
	NULL,
};

/* What changes the answer and is not built: the neutral value passes, the rest is refused. */
static bool refuse_unbuilt(const json_t *body, struct api_error *error)
{
	static const char *const zeros[] = { "presence_penalty",
					     "frequency_penalty" };
	static const struct {
		const char *name;
		json_type type;
		const char *type_name;
	} empties[] = {
		{ "logit_bias", JSON_OBJECT, "an object" },
		{ "tools", JSON_ARRAY, "an array" },
		{ "functions", JSON_ARRAY, "an array" },
	};
	const json_t *field;

	for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
		double value = 0;

		if (!api_read_real(body, zeros[i], -2, 2, &value, error))
			return false;
		if (value != 0)
			return api_fail(error, 400, zeros[i], "unsupported",
					"%s other than 0 is not supported",
					zeros[i]);
	}
	for (size_t i = 0; i < sizeof(empties) / sizeof(empties[0]); i++) {
		field = api_get(body, empties[i].name);
		if (field && json_typeof(field) != empties[i].type)
			return api_fail(error, 400, empties[i].name,
					"invalid_type", "%s must be %s",
					empties[i].name, empties[i].type_name);
		if (field &&
		    json_object_size(field) + json_array_size(field) > 0)
			return api_fail(error, 400, empties[i].name,
					"unsupported", "%s is not supported",
					empties[i].name);
	}
	field = api_get(body, "response_format");
	if (field) {
		const char *type =
			json_string_value(json_object_get(field, "type"));

		if (!type || strcmp(type, "text") != 0)
			return api_fail(
				error, 400, "response_format", "unsupported",
				"response_format other than {\"type\": \"text\"} is not "
				"supported");
	}
	field = api_get(body, "tool_choice");
	if (field && (!json_is_string(field) ||
		      (strcmp(json_string_value(field), "none") != 0 &&
		       strcmp(json_string_value(field), "auto") != 0)))
		return api_fail(
			error, 400, "tool_choice", "unsupported",
			"tool_choice other than \"none\" or \"auto\" is not supported");
	double penalty = 1;

	if (!api_read_real(body, "repetition_penalty", 0, 2, &penalty, error))
		return false;
	if (penalty != 1)
		return api_fail(
			error, 400, "repetition_penalty", "unsupported",
			"repetition_penalty other than 1 is not supported");
	return true;
}

static bool add_stop(const json_t *value, struct request_params *params,
		     struct api_error *error)
{
	const size_t len = json_string_length(value);
	char *bytes;

	if (!json_is_string(value))
		return api_fail(error, 400, "stop", "invalid_type",
				"stop must be a string or an array of strings");
	if (len == 0 || len > MAX_STOP_BYTES)
		return api_fail(
			error, 400, "stop", "invalid_value",
			"a stop string must have from 1 to %d bytes, not %zu",
			MAX_STOP_BYTES, len);
	bytes = malloc(len);
	if (!bytes)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	memcpy(bytes, json_string_value(value), len);
	params->stops[params->nr_stops++] = (struct stop_string){ bytes, len };
	return true;
}

static bool read_stops(const json_t *body, struct request_params *params,
		       struct api_error *error)
{
	const json_t *field = api_get(body, "stop");
	size_t nr = json_array_size(field);

	if (!field)
		return true;
	if (!json_is_array(field))
		return add_stop(field, params, error);
	if (nr > REQUEST_MAX_STOPS)
		return api_fail(error, 400, "stop", "invalid_value",
				"stop has %zu strings; at most %d are allowed",
				nr, REQUEST_MAX_STOPS);
	for (size_t i = 0; i < nr; i++) {
		if (!add_stop(json_array_get(field, i), params, error))
			return false;
	}
	return true;
}

static bool read_seed(const json_t *body, struct tarn_sampling *sampling,
		      struct api_error *error)
{
	int64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return api_fail(error, 500, NULL, NULL, "no random seed: %s",
				strerror(errno));
	if (!api_read_int(body, "seed", INT64_MIN, INT64_MAX, &seed, error))
		return false;
	sampling->seed = (uint64_t)seed;
	return true;
}

static bool read_sampling(const json_t *body, struct tarn_sampling *sampling,
			  struct api_error *error)
{
	double temperature = 1, top_p = 1, min_p = 0;
	int64_t top_k = 0;

	if (!api_read_real(body, "temperature", 0, 2, &temperature, error) ||
	    !api_read_real(body, "top_p", 0, 1, &top_p, error) ||
	    !api_read_real(body, "min_p", 0, 1, &min_p, error) ||
	    !api_read_int(body, "top_k", -1, INT_MAX, &top_k, error) ||
	    !api_read_bool(body, "ignore_eos", &sampling->ignore_eos, error))
		return false;
	sampling->temperature = (float)temperature;
	sampling->top_p = (float)top_p;
	sampling->min_p = (float)min_p;
	sampling->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
	return read_seed(body, sampling, error);
}

static bool read_stream(const json_t *body, struct request_params *params,
			struct api_error *error)
{
	const json_t *options = api_get(body, "stream_options");

	if (!api_read_bool(body, "stream", &params->is_stream, error))
		return false;
	if (!options)
		return true;
	if (!json_is_object(options))
		return api_fail(error, 400, "stream_options", "invalid_type",
				"stream_options must be an object");
	if (!params->is_stream)
		return api_fail(
			error, 400, "stream_options", "invalid_value",
			"stream_options is only allowed with \"stream\": true");
	return api_read_bool(options, "include_usage", &params->include_usage,
			     error);
}

bool api_read_params(const struct api_context *context, const json_t *body,
		     const char *const *known, struct request_params *params,
		     struct api_error *error)
{
	const char *model = NULL;
	int64_t nr_choices = 1, best_of = 1, max_tokens = 0;
	bool cache_prompt = true;
	size_t len;

	if (context->is_strict &&
	    !api_check_names(body, common_names, known, error))
		return false;
	if (!api_read_string(body, "model", &model, &len, error) ||
	    (model && !api_check_model(context, model, error)) ||
	    !api_read_int(body, "n", 1, TARN_MAX_CHOICES, &nr_choices, error))
		return false;
	best_of = nr_choices;
	if (!api_read_int(body, "best_of", 1, TARN_MAX_CHOICES, &best_of,
			  error))
		return false;
	if (best_of != nr_choices)
		return api_fail(error, 400, "best_of", "unsupported",
				"best_of other than n is not supported");
	if (!api_read_int(body, "max_tokens", 1, INT32_MAX, &max_tokens,
			  error) ||
	    !api_read_bool(body, "return_token_ids", &params->return_token_ids,
			   error) ||
	    !api_read_bool(body, "cache_prompt", &cache_prompt, error) ||
	    !read_stream(body, params, error) ||
	    !read_stops(body, params, error) ||
	    !read_sampling(body, &params->sampling, error) ||
	    !refuse_unbuilt(body, error))
		return false;
	params->nr_choices = (uint32_t)nr_choices;
	params->max_tokens = (uint32_t)max_tokens;
	params->no_prefix_cache = !cache_prompt;
	return true;
}

bool api_check_request(const struct api_context *context,
		       struct request *request, struct api_error *error)
{
	const struct tarn_engine_info *info = context->info;
	struct request_params *params = &request->params;
	const char *field = request->kind == REQUEST_CHAT ? "messages" :
							    "prompt";
	struct tarn_seq_params seq;
	char reason[256];
	int rc;

	if (request->nr_prompt == 0)
		return api_fail(error, 400, field, "invalid_value",
				"the prompt is empty");
	if (request->nr_prompt >= info->ctx_tokens)
		return api_fail(
			error, 400, field, "context_length_exceeded",
			"the prompt has %u tokens, but the context holds %u, and at least "
			"one more is needed for the answer; nothing was cut",
			request->nr_prompt, info->ctx_tokens);
	if (request->nr_prompt + (uint64_t)params->max_tokens >
	    info->ctx_tokens)
		return api_fail(
			error, 400, "max_tokens", "context_length_exceeded",
			"the prompt has %u tokens and max_tokens asks for %u, together %llu, "
			"but the context holds %u",
			request->nr_prompt, params->max_tokens,
			(unsigned long long)request->nr_prompt +
				params->max_tokens,
			info->ctx_tokens);
	if (params->max_tokens == 0) {
		const struct sched_memory memory = {
			.limit_bytes = info->kv_limit_bytes,
			.bytes_per_token = info->kv_bytes_per_token,
			.ctx_tokens = info->ctx_tokens,
		};

		params->max_tokens = sched_open_max_tokens(
			&memory, request->nr_prompt, params->nr_choices);
		/* OpenAI's default for completions is 16 tokens. */
		if (request->kind == REQUEST_COMPLETION &&
		    params->max_tokens > 16)
			params->max_tokens = 16;
	}
	seq = (struct tarn_seq_params){
		.principal = request->principal,
		.prompt = request->prompt,
		.nr_prompt = request->nr_prompt,
		.max_new_tokens = params->max_tokens,
		.nr_choices = params->nr_choices,
		.sampling = params->sampling,
		.no_prefix_cache = params->no_prefix_cache,
	};
	reason[0] = '\0';
	rc = tarn_seq_check(context->engine, &seq, reason, sizeof(reason));
	if (rc == -E2BIG)
		return api_fail(error, 400, field, "context_length_exceeded",
				"%s", reason);
	if (rc != 0)
		return api_fail(error, rc == -ENOMEM ? 500 : 400, NULL,
				"invalid_value", "%s",
				reason[0] ? reason : strerror(-rc));
	return true;
}
