/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers in Ollama's shapes: lines of JSON, each by itself, the last one with
 * counts and times in nanoseconds.
 */
#include <stdlib.h>
#include <stdio.h>
#include <time.h>

#include "daemon/api_ollama.h"
#include "daemon/clock.h"
#include "daemon/version.h"

/* "2026-01-31T12:00:00.123456789Z" */
static json_t *time_string(struct timespec at)
{
	char date[32], text[48];
	struct tm utc;

	gmtime_r(&at.tv_sec, &utc);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(text, sizeof(text), "%s.%09ldZ", date, at.tv_nsec);
	return json_string(text);
}

static json_t *now_string(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return time_string(now);
}

/* A line with a piece of the answer, where its kind has it. */
static json_t *line(const struct api_answer *answer, const struct text *text,
		    bool is_done)
{
	json_t *piece = json_stringn(text && text->bytes ? text->bytes : "",
				     text ? text->len : 0);
	json_t *root = json_pack("{s:s, s:o}", "model",
				 answer->context->info->model_name,
				 "created_at", now_string());

	if (answer->request->kind == REQUEST_OLLAMA_CHAT)
		json_object_set_new(root, "message",
				    json_pack("{s:s, s:o}", "role", "assistant",
					      "content", piece));
	else
		json_object_set_new(root, "response", piece);
	json_object_set_new(root, "done", json_boolean(is_done));
	return root;
}

char *api_ollama_chunk(struct api_answer *answer, const struct reply *delta)
{
	answer->nr_completion += delta->nr_tokens;
	if (delta->finish != FINISH_NONE)
		answer->choices[0].finish = delta->finish;
	/* What ends it may bring no text: the last line comes with api_ollama_end(). */
	return api_dump(line(answer, &delta->text, false));
}

char *api_ollama_end(const struct api_answer *answer)
{
	const struct request *request = answer->request;
	const struct api_choice *choice = answer->choices;
	const char *reason = choice ? api_finish_name(choice->finish) : "load";
	json_t *root = line(answer, choice ? &choice->text : NULL, true);
	uint64_t first_ns = atomic_load(&request->first_token_ns),
		 end_ns = clock_ns();

	json_object_set_new(root, "done_reason", json_string(reason));
	if (!choice)
		return api_dump(root);
	json_object_update_new(
		root,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "total_duration",
			  (json_int_t)(end_ns - request->arrive_ns),
			  "load_duration", (json_int_t)0, "prompt_eval_count",
			  (json_int_t)request->nr_prompt,
			  "prompt_eval_duration",
			  (json_int_t)(first_ns - request->arrive_ns),
			  "eval_count", (json_int_t)answer->nr_completion,
			  "eval_duration", (json_int_t)(end_ns - first_ns)));
	return api_dump(root);
}

char *api_ollama_error(const struct api_error *error)
{
	char *text = api_error_json(error);
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;
	json_t *message =
		json_object_get(json_object_get(root, "error"), "message");

	free(text);
	text = message ? api_dump(json_pack("{s:O}", "error", message)) : NULL;
	json_decref(root);
	return text;
}

static json_t *details(const struct tarn_engine_info *info)
{
	char size[32];

	snprintf(size, sizeof(size), "%.1fM", (double)info->nr_params * 1e-6);
	return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "",
			 "format", "gguf", "family", info->arch, "families",
			 info->arch, "parameter_size", size,
			 "quantization_level", info->quant);
}

static json_t *model_entry(const struct tarn_engine_info *info)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "name", info->model_name,
			 "model", info->model_name, "size",
			 (json_int_t)info->weight_bytes, "digest",
			 info->fingerprint, "details", details(info));
}

char *api_ollama_tags(const struct api_context *context)
{
	json_t *entry = model_entry(context->info);

	json_object_set_new(
		entry, "modified_at",
		time_string((struct timespec){ .tv_sec = context->loaded_s }));
	return api_dump(json_pack("{s:[o]}", "models", entry));
}

char *api_ollama_ps(const struct api_context *context)
{
	json_t *entry = model_entry(context->info);

	/* It stays until the daemon ends. */
	json_object_set_new(entry, "expires_at",
			    json_string("9999-12-31T23:59:59Z"));
	json_object_set_new(entry, "size_vram", json_integer(0));
	json_object_set_new(entry, "context_length",
			    json_integer(context->info->ctx_tokens));
	return api_dump(json_pack("{s:[o]}", "models", entry));
}

char *api_ollama_version(void)
{
	return api_dump(json_pack("{s:s}", "version", TARN_VERSION));
}
