/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /tokenize and /detokenize, in vLLM's shapes with llama-server's names
 * accepted too:
 *
 *	{"prompt" or "content": text, "add_special_tokens": true, "parse_special": true,
 *	 "return_token_strs": false}  or  {"messages": [...], "add_generation_prompt": true}
 *		-> {"count", "max_model_len", "tokens", "token_strs"}
 *	{"tokens": [ids], "special": true} -> {"prompt": text, "content": the same}
 */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"

static json_t *clean_string(const char *bytes, size_t len)
{
	struct text clean = { 0 };
	json_t *string = NULL;
	size_t used;

	if (text_append_utf8(&clean, bytes, len, true, &used) == 0)
		string =
			json_stringn(clean.bytes ? clean.bytes : "", clean.len);
	text_deinit(&clean);
	return string;
}

static bool read_text(const struct api_context *context, const json_t *body,
		      int32_t **out_ids, uint32_t *out_nr,
		      struct api_error *error)
{
	const char *text = NULL;
	size_t len = 0, nr = 0;
	bool add_special = true, parse_special = true;
	unsigned int flags = 0;
	int rc;

	if (!api_read_string(body, "content", &text, &len, error) ||
	    !api_read_string(body, "prompt", &text, &len, error) ||
	    !api_read_bool(body, "add_special", &add_special, error) ||
	    !api_read_bool(body, "add_special_tokens", &add_special, error) ||
	    !api_read_bool(body, "parse_special", &parse_special, error))
		return false;
	if (!text)
		return api_fail(
			error, 400, "prompt", "missing_field",
			"one of prompt, content and messages is needed");
	flags |= add_special ? TARN_TOKENIZE_ADD_SPECIAL : 0;
	flags |= parse_special ? TARN_TOKENIZE_PARSE_SPECIAL : 0;
	rc = tarn_tokenize(context->engine, text, len, flags, out_ids, &nr);
	if (rc != 0)
		return api_fail(error, rc == -EFBIG ? 400 : 500, "prompt", NULL,
				"tokenising failed: %s", strerror(-rc));
	*out_nr = (uint32_t)nr;
	return true;
}

static bool check_model_field(const struct api_context *context,
			      const json_t *body, const char *const *names,
			      struct api_error *error)
{
	const char *model = NULL;
	size_t len;

	if (context->is_strict && !api_check_names(body, names, NULL, error))
		return false;
	return api_read_string(body, "model", &model, &len, error) &&
	       (!model || api_check_model(context, model, len, error));
}

char *api_tokenize(const struct api_context *context, const json_t *body,
		   struct api_error *error)
{
	static const char *const names[] = {
		"model",
		"prompt",
		"content",
		"add_special_tokens",
		"add_special",
		"parse_special",
		"messages",
		"return_token_strs",
		"add_generation_prompt",
		"continue_final_message",
		"chat_template",
		"chat_template_kwargs",
		"tools",
		"documents",
		"reasoning_effort",
		NULL,
	};
	bool want_strings = false;
	int32_t *ids = NULL;
	uint32_t nr = 0;
	json_t *tokens, *strings, *root;
	char *text;

	if (!check_model_field(context, body, names, error) ||
	    !api_read_bool(body, "return_token_strs", &want_strings, error))
		return NULL;
	if (api_get(body, "messages") ?
		    !api_chat_ids(context, body, &ids, &nr, error) :
		    !read_text(context, body, &ids, &nr, error))
		return NULL;
	tokens = json_array();
	strings = want_strings ? json_array() : json_null();
	for (uint32_t i = 0; i < nr; i++) {
		size_t len;
		const char *piece;

		json_array_append_new(tokens, json_integer(ids[i]));
		if (!want_strings)
			continue;
		piece = tarn_token_piece(context->engine, ids[i], true, &len);
		json_array_append_new(strings, clean_string(piece ? piece : "",
							    piece ? len : 0));
	}
	free(ids);
	root = json_pack("{s:I, s:I, s:o, s:o}", "count", (json_int_t)nr,
			 "max_model_len", (json_int_t)context->info->ctx_tokens,
			 "tokens", tokens, "token_strs", strings);
	text = api_dump(root);
	if (!text)
		api_fail(error, 500, NULL, NULL, "out of memory");
	return text;
}

char *api_detokenize(const struct api_context *context, const json_t *body,
		     struct api_error *error)
{
	static const char *const names[] = { "model", "tokens", "special",
					     NULL };
	const json_t *tokens = api_get(body, "tokens");
	bool special = true;
	int32_t *ids;
	uint32_t nr;
	char *text = NULL, *json;
	size_t len;
	json_t *root;
	int rc;

	if (!check_model_field(context, body, names, error) ||
	    !api_read_bool(body, "special", &special, error))
		return NULL;
	if (!json_is_array(tokens)) {
		api_fail(error, 400, "tokens",
			 tokens ? "invalid_type" : "missing_field",
			 "tokens must be an array of token ids");
		return NULL;
	}
	if (!api_read_ids(tokens, "tokens", context->info->nr_vocab, &ids, &nr,
			  error))
		return NULL;
	rc = tarn_detokenize(context->engine, ids, nr, special, &text, &len);
	free(ids);
	if (rc != 0) {
		api_fail(error, rc == -EINVAL ? 400 : 500, "tokens", NULL,
			 "detokenising failed: %s", strerror(-rc));
		return NULL;
	}
	root = json_pack("{s:o, s:o}", "prompt", clean_string(text, len),
			 "content", clean_string(text, len));
	free(text);
	json = api_dump(root);
	if (!json)
		api_fail(error, 500, NULL, NULL, "out of memory");
	return json;
}
