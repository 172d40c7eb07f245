/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: the model's own and, where its file names another for
 * requests with tools, that one; or one from text alone. Immutable once made.
 */
#include "engine/chat_template.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/template/template.h"
#include "engine/token/tokenizer.h"
#include "engine/token/utf8.h"

enum { WHY_BYTES = 200 };

struct one_template {
	struct template *compiled; /* NULL: there is none, or it is broken */
	char *source; /* NULL like it */
	char why[WHY_BYTES]; /* what is wrong with it, or "" */
};

struct tarn_template {
	struct one_template plain, tool_use;
	/* Of the model; NULL: the request may bring them. */
	char *bos_text, *eos_text;
};

static int compile(struct one_template *t, const char *source, size_t len)
{
	int rc = template_compile(source, len, &t->compiled, t->why,
				  sizeof(t->why));

	if (rc)
		return rc == -ENOMEM ? rc : 0;
	t->source = strndup(source, len);
	return t->source ? 0 : -ENOMEM;
}

static void forget(struct one_template *t)
{
	template_destroy(t->compiled);
	free(t->source);
}

static bool is_there(const struct one_template *t)
{
	return t->compiled || t->why[0];
}

/* Texts of a template are characters: a token of other bytes is none to it. */
static char *token_text(const struct tokenizer *tok, int32_t id)
{
	size_t len = 0;
	const char *piece =
		id == TOKEN_NONE ? "" : tokenizer_piece(tok, id, true, &len);

	return utf8_dup(piece, utf8_valid_len(piece, len) == len ? len : 0);
}

/*
 * The same of a file whose tokenizer is not supported: its text as it stands in the file, which is
 * how control tokens are kept.
 */
static char *file_token_text(const struct gguf *gguf, const char *id_key)
{
	struct gguf_array tokens;
	struct gguf_str *texts;
	char why[WHY_BYTES], *text;
	uint32_t id;

	if (gguf_get_u32(gguf, id_key, &id, why, sizeof(why)) ||
	    gguf_get_array(gguf, "tokenizer.ggml.tokens", &tokens, why,
			   sizeof(why)) ||
	    id >= tokens.nr)
		return strdup("");
	texts = calloc(tokens.nr, sizeof(*texts));
	if (!texts)
		return NULL;
	if (gguf_array_strings(&tokens, texts) ||
	    utf8_valid_len(texts[id].data, texts[id].len) != texts[id].len)
		text = strdup("");
	else
		text = utf8_dup(texts[id].data, texts[id].len);
	free(texts);
	return text;
}

static int compile_key(struct one_template *t, const struct gguf *gguf,
		       const char *key, char *err, size_t errlen)
{
	struct gguf_str source;
	char why[WHY_BYTES];
	int rc;

	if (gguf_get_str(gguf, key, &source, why, sizeof(why)))
		return 0;
	rc = compile(t, source.data, source.len);
	if (!rc && t->why[0]) {
		size_t at = strlen(err); /* behind other warnings */

		snprintf(err + at, errlen - at,
			 "%sthe chat template cannot be used: %s",
			 at ? "; " : "", t->why);
	}
	return rc;
}

int chat_template_create(const struct gguf *gguf, const struct tokenizer *tok,
			 struct tarn_template **out_template, char *err,
			 size_t errlen)
{
	struct tarn_template *t = calloc(1, sizeof(*t));
	int rc;

	*out_template = NULL;
	if (!t)
		return -ENOMEM;
	rc = compile_key(&t->tool_use, gguf, "tokenizer.chat_template.tool_use",
			 err, errlen);
	if (!rc)
		rc = compile_key(&t->plain, gguf, "tokenizer.chat_template",
				 err, errlen);
	if (rc || (!is_there(&t->plain) && !is_there(&t->tool_use)))
		goto out;
	if (tok) {
		t->bos_text = token_text(tok, tokenizer_bos(tok));
		t->eos_text = token_text(tok, tokenizer_eos(tok));
	} else {
		t->bos_text =
			file_token_text(gguf, "tokenizer.ggml.bos_token_id");
		t->eos_text =
			file_token_text(gguf, "tokenizer.ggml.eos_token_id");
	}
	if (t->bos_text && t->eos_text) {
		*out_template = t;
		return 0;
	}
	rc = -ENOMEM;
out:
	tarn_template_close(t);
	return rc;
}

int tarn_template_open(const char *model_path,
		       struct tarn_template **out_template, char *err,
		       size_t errlen)
{
	struct tarn_template *t = NULL;
	struct tokenizer *tok = NULL;
	struct gguf *gguf;
	char warning[WHY_BYTES + 64] = "";
	int rc = gguf_open(model_path, GGUF_METADATA_ONLY, &gguf, err, errlen);

	if (rc)
		return rc;
	/* For BOS and EOS alone: how a text is cut does not matter. */
	rc = tokenizer_create(gguf, TOKENIZER_ALLOW_UNKNOWN_PRE, &tok, err,
			      errlen);
	if (!rc || rc == -ENOTSUP) {
		rc = chat_template_create(gguf, tok, &t, warning,
					  sizeof(warning));
		tokenizer_destroy(tok);
		if (rc)
			snprintf(err, errlen, "%s", strerror(-rc));
	}
	gguf_close(gguf);
	if (!rc && !t) {
		snprintf(err, errlen, "the model file has no chat template");
		rc = -ENOENT;
	}
	if (!rc)
		*out_template = t;
	return rc;
}

int tarn_template_parse(const char *source, size_t len,
			struct tarn_template **out_template, char *err,
			size_t errlen)
{
	struct tarn_template *t = calloc(1, sizeof(*t));
	int rc;

	if (!t) {
		snprintf(err, errlen, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	rc = template_compile(source, len, &t->plain.compiled, err, errlen);
	if (!rc) {
		t->plain.source = strndup(source, len);
		rc = t->plain.source ? 0 : -ENOMEM;
	}
	if (rc)
		tarn_template_close(t);
	else
		*out_template = t;
	return rc;
}

void tarn_template_close(struct tarn_template *t)
{
	if (!t)
		return;
	forget(&t->plain);
	forget(&t->tool_use);
	free(t->bos_text);
	free(t->eos_text);
	free(t);
}

/* The request with what the template may read besides. */
static int add_to_request(const struct tarn_template *t, json_t *root)
{
	int failed = 0;

	if (!json_object_get(root, "add_generation_prompt"))
		failed |= json_object_set_new(root, "add_generation_prompt",
					      json_true());
	if (t->bos_text)
		failed |= json_object_set_new(root, "bos_token",
					      json_string(t->bos_text));
	if (t->eos_text)
		failed |= json_object_set_new(root, "eos_token",
					      json_string(t->eos_text));
	return failed ? -ENOMEM : 0;
}

/* As Transformers does: the file's own template for tools serves where there are tools. */
static const struct one_template *choose(const struct tarn_template *t,
					 bool has_tools)
{
	if (is_there(&t->tool_use) && (has_tools || !is_there(&t->plain)))
		return &t->tool_use;
	return &t->plain;
}

const char *tarn_template_source(const struct tarn_template *t, bool has_tools)
{
	return choose(t, has_tools)->source;
}

int tarn_template_render(const struct tarn_template *t,
			 const char *request_json, size_t len, char **out_text,
			 size_t *out_len, char *err, size_t errlen)
{
	json_error_t why;
	json_t *root = json_loadb(request_json, len, JSON_ALLOW_NUL, &why);
	const struct one_template *chosen;
	char *context = NULL;
	int rc;

	if (!json_is_object(root)) {
		snprintf(err, errlen,
			 "the chat request is not a JSON object: %s",
			 root ? "" : why.text);
		json_decref(root);
		return -EINVAL;
	}
	chosen = choose(t, json_array_size(json_object_get(root, "tools")) > 0);
	if (!chosen->compiled) {
		snprintf(err, errlen, "it cannot be used: %s", chosen->why);
		json_decref(root);
		return -EINVAL;
	}
	rc = add_to_request(t, root);
	if (!rc)
		context = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	if (!context)
		return -ENOMEM;
	rc = template_render(chosen->compiled, context, strlen(context), NULL,
			     out_text, out_len, err, errlen);
	free(context);
	return !rc || rc == -ENOMEM ? rc : -EINVAL;
}
