/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text as the daemon sees it: tokens of a string, the chat template, pieces.
 * Everything here is immutable after loading; any thread may call.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_template.h"
#include "engine/engine_private.h"
#include "engine/model/gguf.h"

static unsigned int tokenizer_flags(unsigned int flags)
{
	return (flags & TARN_TOKENIZE_PARSE_SPECIAL ? TOKENIZE_PARSE_SPECIAL :
						      0) |
	       (flags & TARN_TOKENIZE_ADD_SPECIAL ? TOKENIZE_ADD_SPECIAL : 0);
}

int engine_text_init(struct tarn_engine *e, const struct gguf *gguf, char *err,
		     size_t errlen)
{
	for (uint32_t i = 0; i < tokenizer_nr_tokens(e->tokenizer); i++)
		if (tokenizer_is_end(e->tokenizer, (int32_t)i) &&
		    e->nr_end_tokens < BACKEND_MAX_BANNED)
			e->end_tokens[e->nr_end_tokens++] = (int32_t)i;
	/* The model is of use with a broken one; chat requests are refused with the reason. */
	return chat_template_create(gguf, e->tokenizer, &e->template, err,
				    errlen);
}

void engine_text_deinit(struct tarn_engine *e)
{
	tarn_template_close(e->template);
}

const struct tarn_template *tarn_engine_template(const struct tarn_engine *e)
{
	return e->template;
}

int tarn_tokenize(const struct tarn_engine *e, const char *text, size_t len,
		  unsigned int flags, int32_t **out_ids, size_t *out_nr)
{
	return tokenizer_encode(e->tokenizer, text, len, tokenizer_flags(flags),
				out_ids, out_nr);
}

const char *tarn_token_piece(const struct tarn_engine *e, int32_t id,
			     bool special, size_t *out_len)
{
	return tokenizer_piece(e->tokenizer, id, special, out_len);
}

int tarn_detokenize(const struct tarn_engine *e, const int32_t *ids, size_t nr,
		    bool special, char **out_text, size_t *out_len)
{
	return tokenizer_decode(e->tokenizer, ids, nr, special, out_text,
				out_len);
}

/* Tokens of rendered text, with one BOS where the model wants it: templates may write it too. */
static int prompt_ids(const struct tarn_engine *e, const char *text, size_t len,
		      int32_t **out_ids, size_t *out_nr)
{
	int32_t bos = tokenizer_bos(e->tokenizer), *ids, *grown;
	size_t nr;
	int rc = tokenizer_encode(e->tokenizer, text, len,
				  TOKENIZE_PARSE_SPECIAL, &ids, &nr);

	if (rc)
		return rc;
	if (tokenizer_adds_bos(e->tokenizer) && bos != TOKEN_NONE &&
	    (!nr || ids[0] != bos)) {
		grown = realloc(ids, (nr + 1) * sizeof(*ids));
		if (!grown) {
			free(ids);
			return -ENOMEM;
		}
		ids = grown;
		memmove(ids + 1, ids, nr * sizeof(*ids));
		ids[0] = bos;
		nr++;
	}
	*out_ids = ids;
	*out_nr = nr;
	return 0;
}

int tarn_chat_prompt(const struct tarn_engine *e, const char *request_json,
		     size_t len, char **out_text, int32_t **out_ids,
		     size_t *out_nr, char *err, size_t errlen)
{
	size_t text_len;
	char *text;
	int rc;

	if (!e->template) {
		snprintf(err, errlen, "the model file has no chat template");
		return -ENOENT;
	}
	rc = tarn_template_render(e->template, request_json, len, &text,
				  &text_len, err, errlen);
	if (rc)
		return rc;
	rc = prompt_ids(e, text, text_len, out_ids, out_nr);
	if (out_text && !rc)
		*out_text = text;
	else
		free(text);
	return rc;
}

int tarn_tokenize_file(const char *model_path, const char *text, size_t len,
		       unsigned int flags, int32_t **out_ids, size_t *out_nr,
		       char *err, size_t errlen)
{
	struct gguf *gguf;
	struct tokenizer *tok;
	int rc = gguf_open(model_path, GGUF_METADATA_ONLY, &gguf, err, errlen);

	if (rc)
		return rc;
	rc = tokenizer_create(gguf,
			      flags & TARN_TOKENIZE_ALLOW_UNKNOWN_PRE ?
				      TOKENIZER_ALLOW_UNKNOWN_PRE :
				      0,
			      &tok, err, errlen);
	gguf_close(gguf);
	if (rc)
		return rc;
	rc = tokenizer_encode(tok, text, len, tokenizer_flags(flags), out_ids,
			      out_nr);
	if (rc)
		snprintf(err, errlen, "%s", strerror(-rc));
	tokenizer_destroy(tok);
	return rc;
}
