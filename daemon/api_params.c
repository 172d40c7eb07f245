/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields that completions and chat share: stop strings, limits, choices.
 * Defaults: n 1, no logprobs. Sampling: api_sampling.c.
 */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	"repetition_penalty",
	"repeat_penalty",
	"repeat_last_n",
	"logit_bias",
	"typical_p",
	"typ_p",
	"top_n_sigma",
	"xtc_probability",
	"xtc_threshold",
	"mirostat",
	"mirostat_tau",
	"mirostat_eta",
	"dry_multiplier",
	"dry_base",
	"dry_allowed_length",
	"dry_penalty_last_n",
	"dry_sequence_breakers",
	"samplers",
	"best_of",
	"grammar",
	"guided_grammar",
	"guided_regex",
	"guided_choice",
	"guided_json",
	"json_schema",
	"structured_outputs",
	"response_format",
	"tools",
	"tool_choice",
	"functions",
	"function_call",
	"cache_prompt",
	"stop_token_ids",
	"allowed_token_ids",
	"bad_words",
	"min_tokens",
	"include_stop_str_in_output",
	"skip_special_tokens",
	"truncate_prompt_tokens",
	"prompt_logprobs",
	"use_beam_search",
	"length_penalty",
	"add_special_tokens",
	"dynatemp_range",
	NULL,
};

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

/* n, and best_of which computes more than are answered. */
static bool read_choices(const json_t *body, struct request_params *params,
			 struct api_error *error)
{
	int64_t n = 1, best_of;

	if (!api_read_int(body, "n", 1, TARN_MAX_CHOICES, &n, error))
		return false;
	best_of = n;
	if (!api_read_int(body, "best_of", 1, TARN_MAX_CHOICES, &best_of,
			  error))
		return false;
	if (best_of < n)
		return api_fail(
			error, 400, "best_of", "invalid_value",
			"best_of is %lld, fewer than n, %lld: it says how many are computed",
			(long long)best_of, (long long)n);
	if (best_of > n && params->is_stream)
		return api_fail(
			error, 400, "best_of", "invalid_value",
			"best_of above n cannot be streamed: the best is known at the end");
	params->nr_choices = (uint32_t)best_of;
	params->nr_answers = (uint32_t)n;
	/* The best is the one of the highest mean log probability. */
	params->sampling.logprobs = best_of > n;
	return true;
}

bool api_read_params(const struct api_context *context, const json_t *body,
		     enum request_kind kind, const char *const *known,
		     struct request_params *params, struct api_error *error)
{
	const char *model = NULL;
	int64_t max_tokens = 0;
	bool cache_prompt = true;
	size_t len;

	if (context->is_strict &&
	    !api_check_names(body, common_names, known, error))
		return false;
	if (!api_read_string(body, "model", &model, &len, error) ||
	    (model && !api_check_model(context, model, len, error)))
		return false;
	if (!api_read_int(body, "max_tokens", params->echo ? 0 : 1, INT32_MAX,
			  &max_tokens, error) ||
	    !api_read_bool(body, "return_token_ids", &params->return_token_ids,
			   error) ||
	    !api_read_bool(body, "cache_prompt", &cache_prompt, error) ||
	    !read_stream(body, params, error) ||
	    !read_stops(body, params, error) ||
	    !read_choices(body, params, error) ||
	    !api_read_sampling(context, body, params, error) ||
	    !api_refuse_unbuilt(body, kind, error) ||
	    !api_read_grammar(context, body, params, error))
		return false;
	params->max_tokens = (uint32_t)max_tokens;
	if (max_tokens == 0 && api_get(body, "max_tokens")) {
		params->is_echo_alone = true;
		params->max_tokens = 1;
	}
	params->no_prefix_cache = !cache_prompt;
	return true;
}

bool api_check_request(const struct api_context *context, const json_t *body,
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
			"one more is needed for %s; nothing was cut",
			request->nr_prompt, info->ctx_tokens,
			params->is_echo_alone ?
				"the token that is drawn behind it and dropped" :
				"the answer");
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
	return api_find_breakers(context, body, params, error);
}
