/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log probabilities in the shapes of OpenAI's API. Completions: four arrays in
 * step; chat: a list of objects with each token's exact bytes. Tokens that are
 * not text by themselves are written "bytes:\xe2\x98" in completions, as
 * OpenAI does, and with U+FFFD in chat, where the bytes stand beside.
 */
#include "daemon/api.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* JSON has no infinity. */
static json_t *logprob_value(float logprob)
{
	return json_real(isfinite(logprob) && logprob > -9999.0f ?
				 (double)logprob :
				 -9999.0);
}

static const char *piece_of(const struct api_context *context, int32_t id,
			    size_t *out_len)
{
	const char *piece =
		tarn_token_piece(context->engine, id, true, out_len);

	if (!piece) {
		*out_len = 0;
		return "";
	}
	return piece;
}

/* The token as text; @escape: broken characters as "bytes:\x..". */
static json_t *piece_text(const char *piece, size_t len, bool escape)
{
	struct text text = { 0 };
	json_t *string = NULL;
	size_t used;
	int rc = 0;

	if (!escape || utf8_is_valid(piece, len)) {
		rc = text_append_utf8(&text, piece, len, true, &used);
	} else {
		rc = text_append(&text, "bytes:", 6);
		for (size_t i = 0; i < len && rc == 0; i++) {
			char hex[8];
			int nr = snprintf(hex, sizeof(hex), "\\x%02x",
					  (unsigned char)piece[i]);

			rc = text_append(&text, hex, (size_t)nr);
		}
	}
	if (rc == 0)
		string = json_stringn(text.bytes ? text.bytes : "", text.len);
	text_deinit(&text);
	return string;
}

static json_t *bytes_array(const char *piece, size_t len)
{
	json_t *array = json_array();

	for (size_t i = 0; i < len; i++)
		json_array_append_new(array,
				      json_integer((unsigned char)piece[i]));
	return array;
}

json_t *api_logprobs_new(enum request_kind kind)
{
	if (kind == REQUEST_CHAT)
		return json_pack("{s:[], s:n}", "content", "refusal");
	return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs",
			 "top_logprobs", "text_offset");
}

static json_t *chat_entry(const struct api_context *context, int32_t id,
			  float logprob)
{
	size_t len;
	const char *piece = piece_of(context, id, &len);

	return json_pack("{s:o, s:o, s:o}", "token",
			 piece_text(piece, len, false), "logprob",
			 logprob_value(logprob), "bytes",
			 bytes_array(piece, len));
}

static int add_chat(const struct api_context *context, json_t *into,
		    const struct reply_token *token)
{
	json_t *entry = chat_entry(context, token->id, token->logprob);
	json_t *top = json_array();

	for (uint32_t i = 0; i < token->nr_top; i++)
		json_array_append_new(top, chat_entry(context, token->top[i].id,
						      token->top[i].logprob));
	if (json_object_set_new(entry, "top_logprobs", top) != 0 ||
	    json_array_append_new(json_object_get(into, "content"), entry) != 0)
		return -ENOMEM;
	return 0;
}

/* The object token text -> log probability; where two ids share a text, the likelier stays. */
static json_t *top_object(const struct api_context *context,
			  const struct reply_token *token)
{
	json_t *top = json_object();

	for (uint32_t i = 0; i <= token->nr_top; i++) {
		bool is_own = i == token->nr_top;
		size_t len;
		const char *piece = piece_of(
			context, is_own ? token->id : token->top[i].id, &len);
		json_t *text = piece_text(piece, len, true);

		/* Keys of jansson are C strings: a token with a NUL ends there. */
		if (text && !json_object_get(top, json_string_value(text)))
			json_object_set_new(
				top, json_string_value(text),
				logprob_value(is_own ? token->logprob :
						       token->top[i].logprob));
		json_decref(text);
	}
	return top;
}

static int add_completion(const struct api_context *context, json_t *into,
			  const struct reply_token *token, uint32_t *nr_chars)
{
	const bool is_first = isnan(token->logprob);
	size_t len;
	const char *piece = piece_of(context, token->id, &len);

	if (json_array_append_new(json_object_get(into, "tokens"),
				  piece_text(piece, len, true)) != 0 ||
	    json_array_append_new(json_object_get(into, "token_logprobs"),
				  is_first ?
					  json_null() :
					  logprob_value(token->logprob)) != 0 ||
	    json_array_append_new(json_object_get(into, "top_logprobs"),
				  is_first ? json_null() :
					     top_object(context, token)) != 0 ||
	    json_array_append_new(json_object_get(into, "text_offset"),
				  json_integer(*nr_chars)) != 0)
		return -ENOMEM;
	/* Control tokens are named in tokens, but are not in the text. */
	piece = tarn_token_piece(context->engine, token->id, false, &len);
	for (size_t i = 0; piece && i < len; i++)
		*nr_chars += ((unsigned char)piece[i] & 0xc0) != 0x80;
	return 0;
}

int api_logprobs_add(const struct api_context *context, enum request_kind kind,
		     json_t *into, const struct reply_token *token,
		     uint32_t *nr_chars)
{
	if (kind == REQUEST_CHAT)
		return add_chat(context, into, token);
	return add_completion(context, into, token, nr_chars);
}
