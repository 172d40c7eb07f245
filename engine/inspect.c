/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a model file and what this engine would do with it, as JSON.
 * Weights are looked at, not read. Any thread.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/model/gguf.h"
#include "engine/template/template.h"
#include "engine/token/utf8.h"

enum { WHY_BYTES = 512 };

/* Bytes of a file as a JSON string: what is no UTF-8 becomes '?'. */
static json_t *string_of(struct gguf_str str)
{
	char *copy = malloc(str.len + 1);
	json_t *string;
	size_t at = 0;

	if (!copy)
		return NULL;
	while (at < str.len) {
		unsigned int nr = utf8_char_len(str.data + at, str.len - at);

		memcpy(copy + at, nr ? str.data + at : "?", nr ? nr : 1);
		at += nr ? nr : 1;
	}
	string = json_stringn(copy, str.len);
	free(copy);
	return string;
}

/* ---- metadata and tensors -------------------------------------------------------- */

/* A number of any width; JSON's reals are doubles, its integers 64 bits with a sign. */
static json_t *scalar(const struct gguf *gguf, const char *key,
		      enum gguf_value_type type)
{
	struct gguf_array one;
	int64_t integer;
	float real;

	if (gguf_get_scalar(gguf, key, &one))
		return json_null();
	if (type == GGUF_BOOL)
		return gguf_array_i64(&one, 0, &integer) ?
			       json_null() :
			       json_boolean(integer);
	if (gguf_array_i64(&one, 0, &integer) == 0)
		return json_integer(integer);
	return gguf_array_f32(&one, 0, &real) == 0 ? json_real((double)real) :
						     json_null();
}

static json_t *value_of(const struct gguf *gguf, const char *key,
			enum gguf_value_type type)
{
	struct gguf_array array;
	struct gguf_str str;

	switch (type) {
	case GGUF_STRING:
		return gguf_get_str(gguf, key, &str, NULL, 0) ? json_null() :
								string_of(str);
	case GGUF_ARRAY:
		if (gguf_get_array(gguf, key, &array, NULL, 0))
			return json_null();
		return json_pack("{s:s, s:I}", "array_of",
				 gguf_value_type_name(array.type), "length",
				 (json_int_t)array.nr);
	default:
		return scalar(gguf, key, type);
	}
}

static json_t *metadata(const struct gguf *gguf)
{
	json_t *all = json_object();

	for (size_t i = 0; i < gguf_nr_keys(gguf); i++) {
		enum gguf_value_type type;
		struct gguf_str key = gguf_key(gguf, i, &type);
		char *name = utf8_dup(key.data, key.len);
		json_t *shown = string_of(key);

		if (name && shown)
			json_object_set_new(all, json_string_value(shown),
					    value_of(gguf, name, type));
		json_decref(shown);
		free(name);
	}
	return all;
}

static json_t *tensors(const struct gguf *gguf)
{
	json_t *all = json_array();

	for (size_t i = 0; i < gguf_nr_tensors(gguf); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
		json_t *shape = json_array();
		char type[16];

		for (uint32_t d = 0; d < t->nr_dims; d++)
			json_array_append_new(
				shape, json_integer((json_int_t)t->dims[d]));
		json_array_append_new(
			all,
			json_pack("{s:o, s:s, s:o, s:I}", "name",
				  string_of(t->name), "type",
				  gguf_type_name(t->type, type, sizeof(type)),
				  "shape", shape, "bytes",
				  (json_int_t)t->size_bytes));
	}
	return all;
}

/* How much there is of each type, in the order in which types are met. */
static json_t *types(const struct gguf *gguf)
{
	json_t *all = json_object();

	for (size_t i = 0; i < gguf_nr_tensors(gguf); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
		char name[16];
		const char *type = gguf_type_name(t->type, name, sizeof(name));
		json_t *entry = json_object_get(all, type);
		json_int_t nr = 0, bytes = 0;

		if (entry)
			json_unpack(entry, "{s:I, s:I}", "tensors", &nr,
				    "bytes", &bytes);
		json_object_set_new(
			all, type,
			json_pack("{s:I, s:I}", "tensors", nr + 1, "bytes",
				  bytes + (json_int_t)t->size_bytes));
	}
	return all;
}

/* ---- what Tarn makes of it ------------------------------------------------------- */

static json_t *tokenizer_object(const struct gguf *gguf, char *why)
{
	struct tokenizer *tok = NULL;
	json_t *object = json_object();
	int rc = tokenizer_create(gguf, 0, &tok, why, WHY_BYTES);

	json_object_set_new(object, "supported", json_boolean(rc == 0));
	if (rc) {
		json_object_set_new(object, "reason",
				    json_string(*why ? why : strerror(-rc)));
		return object;
	}
	*why = '\0'; /* a warning at most */
	json_object_set_new(object, "tokens",
			    json_integer(tokenizer_nr_tokens(tok)));
	json_object_set_new(object, "bos", json_integer(tokenizer_bos(tok)));
	json_object_set_new(object, "eos", json_integer(tokenizer_eos(tok)));
	tokenizer_destroy(tok);
	return object;
}

static json_t *template_object(const struct gguf *gguf)
{
	struct template *template = NULL;
	struct gguf_str source;
	char why[WHY_BYTES] = "";
	int rc;

	if (gguf_get_str(gguf, "tokenizer.chat_template", &source, NULL, 0))
		return json_null();
	rc = template_compile(source.data, source.len, &template, why,
			      sizeof(why));
	template_destroy(template);
	return json_pack("{s:I, s:b, s:s?}", "bytes", (json_int_t)source.len,
			 "supported", rc == 0, "reason", rc ? why : NULL);
}

static json_t *shape_object(const struct model_config *c)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "architecture", c->arch, "layers",
			 (json_int_t)c->nr_layers, "width",
			 (json_int_t)c->n_embd, "hidden", (json_int_t)c->n_ff,
			 "heads", (json_int_t)c->n_q_heads, "kv_heads",
			 (json_int_t)c->n_kv_heads, "head_dim",
			 (json_int_t)c->head_dim, "context_tokens",
			 (json_int_t)c->ctx_tokens, "window_tokens",
			 (json_int_t)c->window_tokens, "vocabulary",
			 (json_int_t)c->n_vocab);
}

/* With 16-bit KV. A windowed stream holds its window at most. */
static json_t *memory_object(const struct model *m, uint64_t weight_bytes)
{
	uint64_t per_token = 0, full = 0;

	for (uint32_t i = 0; i < m->nr_streams; i++) {
		const struct kv_stream_desc *s = &m->streams[i];
		uint64_t bytes =
			2ull * 2 * s->nr_layers * s->nr_kv_heads * s->head_dim;
		uint32_t tokens = m->config.ctx_tokens;

		if (s->window_tokens && s->window_tokens < tokens)
			tokens = s->window_tokens;
		per_token += bytes;
		full += bytes * tokens;
	}
	return json_pack("{s:I, s:I, s:I}", "weight_bytes",
			 (json_int_t)weight_bytes, "kv_bytes_per_token",
			 (json_int_t)per_token, "kv_bytes_of_context",
			 (json_int_t)full);
}

/* The model as the CPU would load it, but for the loading. @why: what it would refuse. */
static int describe(const struct gguf *gguf, json_t *root, char *why)
{
	const struct backend_options options = { .nr_threads = 1 };
	struct backend *backend;
	struct model model = { 0 };
	int rc = backend_cpu_create(&options, &backend);

	if (rc)
		return rc;
	rc = model_declare(gguf, backend, &model, why, WHY_BYTES);
	if (!rc) {
		json_object_set_new(root, "parameters",
				    json_integer((json_int_t)model.nr_params));
		json_object_set_new(root, "quantisation",
				    json_string(model.quant));
		json_object_set_new(root, "shape", shape_object(&model.config));
		json_object_set_new(
			root, "memory",
			memory_object(&model,
				      backend->ops->weight_bytes(backend)));
		model_free(&model);
	}
	backend->ops->destroy(backend);
	return rc;
}

static json_t *inspect(const char *path, const struct gguf *gguf,
		       const char *broken)
{
	json_t *root = json_object(), *tokenizer;
	struct gguf_str name = { 0 };
	char why[WHY_BYTES] = "", no_tokens[WHY_BYTES] = "";

	json_object_set_new(root, "file", json_string(path));
	json_object_set_new(root, "bytes",
			    json_integer((json_int_t)gguf_file_size(gguf)));
	if (gguf_get_str(gguf, "general.name", &name, NULL, 0) == 0)
		json_object_set_new(root, "name", string_of(name));
	tokenizer = tokenizer_object(gguf, no_tokens);
	if (broken)
		snprintf(why, sizeof(why), "%s", broken);
	else if (describe(gguf, root, why) == 0)
		snprintf(why, sizeof(why), "%s", no_tokens);
	json_object_set_new(root, "types", types(gguf));
	json_object_set_new(root, "tokenizer", tokenizer);
	json_object_set_new(root, "chat_template", template_object(gguf));
	json_object_set_new(root, "can_be_served", json_boolean(!*why));
	json_object_set_new(root, "reason",
			    *why ? json_string(why) : json_null());
	json_object_set_new(root, "metadata", metadata(gguf));
	json_object_set_new(root, "tensors", tensors(gguf));
	return root;
}

int tarn_inspect_file(const char *path, char **out_json, char *err,
		      size_t errlen)
{
	char broken[WHY_BYTES] = "", other[WHY_BYTES];
	struct gguf *gguf;
	json_t *root;
	int rc = gguf_open(path, 0, &gguf, broken, sizeof(broken));
	const bool is_whole = rc == 0;

	/* A file that is not there in full yet still says what it will be. */
	if (rc == -EINVAL || rc == -ENOTSUP)
		rc = gguf_open(path, GGUF_METADATA_ONLY, &gguf, other,
			       sizeof(other));
	if (rc) {
		snprintf(err, errlen, "%s", broken[0] ? broken : strerror(-rc));
		return rc;
	}
	root = inspect(path, gguf, is_whole ? NULL : broken);
	gguf_close(gguf);
	*out_json = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL;
	json_decref(root);
	return *out_json ? 0 : -ENOMEM;
}
