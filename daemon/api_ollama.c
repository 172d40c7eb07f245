/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of Ollama's /api/chat and /api/generate, as bodies of /v1/...: the
 * fields are read where those are read. Options that size a server (num_ctx,
 * num_gpu ...) have no effect; whatever would change the answer and is not
 * built is refused.
 */
#include "daemon/api_ollama.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"

/* Of options, those that go by the same name here. */
static const char *const same_names[] = {
	"temperature",
	"top_k",
	"top_p",
	"min_p",
	"typical_p",
	"seed",
	"stop",
	"repeat_penalty",
	"repeat_last_n",
	"presence_penalty",
	"frequency_penalty",
	"mirostat",
	"mirostat_tau",
	"mirostat_eta",
	NULL,
};

/* The others that have a meaning, most of which sizes a server and has no effect here. */
static const char *const other_options[] = {
	"num_predict", "num_ctx",    "num_keep", "num_batch", "num_gpu",
	"main_gpu",    "num_thread", "use_mmap", "use_mlock", "low_vram",
	"f16_kv",      "numa",	     NULL,
};

static const char *const both_names[] = {
	"model", "stream", "options", "format", "think", "keep_alive", NULL,
};
static const char *const chat_names[] = { "messages", "tools", NULL };
static const char *const generate_names[] = {
	"prompt", "system", "raw",     "template",
	"suffix", "images", "context", NULL,
};

/* Ollama's defaults, where its own differ. */
static bool set_defaults(json_t *out)
{
	return json_object_set_new(out, "temperature", json_real(0.8)) == 0 &&
	       json_object_set_new(out, "top_k", json_integer(40)) == 0 &&
	       json_object_set_new(out, "top_p", json_real(0.9)) == 0;
}

static bool read_options(const json_t *body, json_t *out,
			 struct api_error *error)
{
	const json_t *options = api_get(body, "options");
	int64_t nr = -1;

	if (!set_defaults(out))
		return api_fail(error, 500, NULL, NULL, "out of memory");
	if (!options)
		return true;
	if (!json_is_object(options))
		return api_fail(error, 400, "options", "invalid_type",
				"options must be an object");
	for (size_t i = 0; same_names[i]; i++) {
		json_t *value = api_get(options, same_names[i]);

		if (value && json_object_set(out, same_names[i], value) != 0)
			return api_fail(error, 500, NULL, NULL,
					"out of memory");
	}
	/* -1: until it ends, -2: until the context is full. Both end at the context here. */
	if (!api_read_int(options, "num_predict", -2, INT32_MAX, &nr, error))
		return false;
	if (nr > 0)
		json_object_set_new(out, "max_tokens", json_integer(nr));
	return true;
}

/* "json", or a schema. */
static bool read_format(const json_t *body, json_t *out,
			struct api_error *error)
{
	json_t *format = api_get(body, "format");
	const char *name = json_string_value(format);

	if (!format || (name && !*name))
		return true;
	if (json_is_object(format))
		return json_object_set_new(
			       out, "response_format",
			       json_pack("{s:s, s:{s:s, s:O}}", "type",
					 "json_schema", "json_schema", "name",
					 "format", "schema", format)) == 0;
	if (!name || strcmp(name, "json") != 0)
		return api_fail(error, 400, "format", "invalid_value",
				"format must be \"json\" or a JSON schema");
	return json_object_set_new(out, "response_format",
				   json_pack("{s:s}", "type", "json_object")) ==
	       0;
}

static bool refuse_unbuilt(const json_t *body, struct api_error *error)
{
	static const char *const texts[] = { "template", "suffix" };
	static const char *const lists[] = { "images", "context" };

	for (size_t i = 0; i < 2; i++) {
		if (json_string_length(api_get(body, texts[i])))
			return api_fail(error, 400, texts[i], "unsupported",
					"%s is not supported", texts[i]);
		if (json_array_size(api_get(body, lists[i])))
			return api_fail(error, 400, lists[i], "unsupported",
					"%s is not supported", lists[i]);
	}
	return true;
}

/* Names may have a tag, which is "latest" where none is said. */
static bool read_model(const json_t *body, json_t *out, struct api_error *error)
{
	static const char latest[] = ":latest";
	const size_t tail = sizeof(latest) - 1;
	const char *model = NULL;
	size_t len = 0;

	if (!api_read_string(body, "model", &model, &len, error))
		return false;
	if (!model)
		return api_fail(error, 400, "model", "missing_field",
				"model is missing");
	if (len > tail && memcmp(model + len - tail, latest, tail) == 0)
		len -= tail;
	return json_object_set_new(out, "model", json_stringn(model, len)) ==
		       0 ||
	       api_fail(error, 500, NULL, NULL, "out of memory");
}

/* What both endpoints have, as an OpenAI body; NULL with @error filled. */
static json_t *translate(const json_t *body, struct api_error *error)
{
	json_t *out = json_object(), *tools = api_get(body, "tools");
	bool is_streamed = true, thinks = false;

	if (!out) {
		api_fail(error, 500, NULL, NULL, "out of memory");
		return NULL;
	}
	if (!read_model(body, out, error) || !refuse_unbuilt(body, error) ||
	    !read_options(body, out, error) || !read_format(body, out, error) ||
	    !api_read_bool(body, "stream", &is_streamed, error) ||
	    !api_read_bool(body, "think", &thinks, error)) {
		json_decref(out);
		return NULL;
	}
	json_object_set_new(out, "stream", json_boolean(is_streamed));
	if (tools)
		json_object_set(out, "tools", tools);
	if (api_get(body, "think"))
		json_object_set_new(out, "chat_template_kwargs",
				    json_pack("{s:b}", "enable_thinking",
					      thinks));
	return out;
}

/* Messages without their pictures, which nothing here looks at. */
static bool check_images(const json_t *messages, struct api_error *error)
{
	json_t *message;
	size_t i;

	json_array_foreach((json_t *)messages, i, message)
	{
		if (json_array_size(json_object_get(message, "images")))
			return api_fail(error, 400, "messages", "unsupported",
					"messages[%zu].images: pictures are "
					"not supported",
					i);
	}
	return true;
}

/* Asked for nothing, Ollama loads the model and says so. It is loaded. */
static bool answer_load(const struct api_context *context,
			const struct request *request, char **out_json,
			struct api_error *error)
{
	struct api_answer answer = { .context = context, .request = request };

	*out_json = api_ollama_end(&answer);
	return *out_json || api_fail(error, 500, NULL, NULL, "out of memory");
}

static bool read_chat(const struct api_context *context, const json_t *body,
		      json_t *out, struct request *request, char **out_json,
		      struct api_error *error)
{
	json_t *messages = api_get(body, "messages");

	if (!messages ||
	    (json_is_array(messages) && json_array_size(messages) == 0))
		return answer_load(context, request, out_json, error);
	if (!check_images(messages, error))
		return false;
	json_object_set(out, "messages", messages);
	return api_read_chat(context, out, request, error);
}

/* A prompt goes through the chat template, unless it is raw or there is none. */
static bool read_generate(const struct api_context *context, const json_t *body,
			  json_t *out, struct request *request, char **out_json,
			  struct api_error *error)
{
	const char *prompt = NULL, *system = NULL;
	size_t prompt_len = 0, system_len = 0;
	bool is_raw = false;
	json_t *messages;

	if (!api_read_string(body, "prompt", &prompt, &prompt_len, error) ||
	    !api_read_string(body, "system", &system, &system_len, error) ||
	    !api_read_bool(body, "raw", &is_raw, error))
		return false;
	if (prompt_len == 0)
		return answer_load(context, request, out_json, error);
	if (is_raw || !context->info->has_chat_template) {
		json_object_set_new(out, "prompt",
				    json_stringn(prompt, prompt_len));
		json_object_del(out, "chat_template_kwargs");
		return api_read_completion(context, out, request, error);
	}
	messages = json_array();
	json_object_set_new(out, "messages", messages);
	if (system_len)
		json_array_append_new(
			messages,
			json_pack("{s:s, s:o}", "role", "system", "content",
				  json_stringn(system, system_len)));
	json_array_append_new(messages,
			      json_pack("{s:s, s:o}", "role", "user", "content",
					json_stringn(prompt, prompt_len)));
	return api_read_chat(context, out, request, error);
}

/* --strict, in Ollama's own names. */
static bool check_names(const json_t *body, const struct request *request,
			struct api_error *error)
{
	return api_check_names(body, both_names,
			       request->kind == REQUEST_OLLAMA_CHAT ?
				       chat_names :
				       generate_names,
			       error) &&
	       api_check_names(json_object_get(body, "options"), same_names,
			       other_options, error);
}

bool api_read_ollama(const struct api_context *context, const json_t *body,
		     struct request *request, char **out_json,
		     struct api_error *error)
{
	const char *model;
	json_t *out;
	bool is_good;

	if (context->is_strict && !check_names(body, request, error))
		return false;
	out = translate(body, error);
	model = json_string_value(json_object_get(out, "model"));
	is_good = model &&
		  api_check_model(context, model, strlen(model), error);
	if (is_good)
		is_good = request->kind == REQUEST_OLLAMA_CHAT ?
				  read_chat(context, body, out, request,
					    out_json, error) :
				  read_generate(context, body, out, request,
						out_json, error);
	if (is_good && !*out_json)
		is_good = api_check_request(context, out, request, error);
	json_decref(out);
	return is_good;
}
