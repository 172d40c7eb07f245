/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizer metadata for tests: a small synthetic vocabulary of either kind,
 * and a real file's vocabulary under another pre-tokenizer or other flags.
 * For tests; all static; out of memory aborts the test.
 */
#ifndef TARN_TESTS_ENGINE_TOKEN_FILE_H
#define TARN_TESTS_ENGINE_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/token/tokenizer.h"
#include "tests/engine/gguf_writer.h"

/* What of a real file is written otherwise. */
struct token_file_change {
	const char *pre; /* another pre-tokenizer, or NULL */
	/* User-defined tokens become normal ones, their spaces U+2581. */
	bool no_user_defined;
	bool space_prefix;
};

static inline void token_file_put_escaped(struct gguf_writer *w,
					  struct gguf_str str)
{
	size_t nr_spaces = 0, i;

	for (i = 0; i < str.len; i++)
		nr_spaces += str.data[i] == ' ';
	gw_put_u64(&w->kvs, str.len + 2 * nr_spaces);
	for (i = 0; i < str.len; i++) {
		if (str.data[i] == ' ')
			gw_put(&w->kvs, "\xe2\x96\x81", 3);
		else
			gw_put(&w->kvs, &str.data[i], 1);
	}
}

/* @escape: whether spaces become U+2581. */
static inline void token_file_copy_strings(struct gguf_writer *w,
					   const struct gguf *gguf,
					   const char *key, bool escape)
{
	struct gguf_array arr;
	struct gguf_str *strs;
	char err[256];
	uint64_t i;

	if (gguf_get_array(gguf, key, &arr, err, sizeof(err)))
		return;
	strs = calloc(arr.nr, sizeof(*strs));
	if (!strs || gguf_array_strings(&arr, strs))
		abort();
	gw_key(w, key, GGUF_ARRAY);
	gw_put_u32(&w->kvs, GGUF_STRING);
	gw_put_u64(&w->kvs, arr.nr);
	for (i = 0; i < arr.nr; i++) {
		if (escape)
			token_file_put_escaped(w, strs[i]);
		else
			gw_put_str(&w->kvs, strs[i].data, strs[i].len);
	}
	free(strs);
}

static inline void token_file_copy_types(struct gguf_writer *w,
					 const struct gguf *gguf,
					 const struct token_file_change *change)
{
	static const char key[] = "tokenizer.ggml.token_type";
	struct gguf_array arr;
	char err[256];
	uint64_t i;

	if (gguf_get_array(gguf, key, &arr, err, sizeof(err)))
		abort();
	gw_key(w, key, GGUF_ARRAY);
	gw_put_u32(&w->kvs, GGUF_I32);
	gw_put_u64(&w->kvs, arr.nr);
	for (i = 0; i < arr.nr; i++) {
		int64_t type;

		if (gguf_array_i64(&arr, i, &type))
			abort();
		if (type == TOKEN_USER_DEFINED && change->no_user_defined)
			type = TOKEN_NORMAL;
		gw_put_u32(&w->kvs, (uint32_t)type);
	}
}

static inline void token_file_copy_scores(struct gguf_writer *w,
					  const struct gguf *gguf)
{
	static const char key[] = "tokenizer.ggml.scores";
	struct gguf_array arr;
	char err[256];

	if (gguf_get_array(gguf, key, &arr, err, sizeof(err)))
		return;
	gw_array(w, key, arr.type, arr.data, arr.nr, sizeof(float));
}

/**
 * token_file_changed - a file with @gguf's vocabulary and little else
 *
 * Return: its bytes, for the caller to free.
 */
static inline uint8_t *
token_file_changed(const struct gguf *gguf,
		   const struct token_file_change *change, size_t *out_size)
{
	struct gguf_writer w = GGUF_WRITER_INIT;
	struct gguf_str model, pre = { .data = "default", .len = 7 };
	char err[256];

	if (gguf_get_str(gguf, "tokenizer.ggml.model", &model, err,
			 sizeof(err)))
		abort();
	gguf_get_str(gguf, "tokenizer.ggml.pre", &pre, err, sizeof(err));
	if (change->pre)
		pre = (struct gguf_str){ change->pre, strlen(change->pre) };
	gw_strn(&w, "tokenizer.ggml.model", model.data, model.len);
	gw_strn(&w, "tokenizer.ggml.pre", pre.data, pre.len);
	gw_bool(&w, "tokenizer.ggml.add_space_prefix", change->space_prefix);
	token_file_copy_strings(&w, gguf, "tokenizer.ggml.tokens",
				change->no_user_defined);
	token_file_copy_strings(&w, gguf, "tokenizer.ggml.merges", false);
	token_file_copy_types(&w, gguf, change);
	token_file_copy_scores(&w, gguf);
	return gw_finish(&w, out_size);
}

/* A synthetic vocabulary; what is NULL is not written. */
struct token_spec {
	const char *model, *pre;
	const char *const *tokens;
	size_t nr;
	const int32_t *types; /* [nr_types] */
	size_t nr_types;
	const float *scores; /* [nr_scores] */
	size_t nr_scores;
	const char *const *merges;
	size_t nr_merges;
};

static inline void token_spec_put(struct gguf_writer *w,
				  const struct token_spec *spec)
{
	if (spec->model)
		gw_str(w, "tokenizer.ggml.model", spec->model);
	if (spec->pre)
		gw_str(w, "tokenizer.ggml.pre", spec->pre);
	if (spec->tokens)
		gw_strings(w, "tokenizer.ggml.tokens", spec->tokens, spec->nr);
	if (spec->types)
		gw_array(w, "tokenizer.ggml.token_type", GGUF_I32, spec->types,
			 spec->nr_types, sizeof(int32_t));
	if (spec->scores)
		gw_array(w, "tokenizer.ggml.scores", GGUF_F32, spec->scores,
			 spec->nr_scores, sizeof(float));
	if (spec->merges)
		gw_strings(w, "tokenizer.ggml.merges", spec->merges,
			   spec->nr_merges);
}

/* Finish the file and build its tokenizer. Return: as tokenizer_create(). */
static inline int token_file_build(struct gguf_writer *w,
				   struct tokenizer **out, char *err,
				   size_t errlen)
{
	struct gguf *gguf;
	size_t size;
	uint8_t *file = gw_finish(w, &size);
	int ret = gguf_open_memory(file, size, GGUF_METADATA_ONLY, &gguf, err,
				   errlen);

	*out = NULL;
	if (!ret) {
		ret = tokenizer_create(gguf, 0, out, err, errlen);
		gguf_close(gguf);
	}
	free(file);
	return ret;
}

#endif /* TARN_TESTS_ENGINE_TOKEN_FILE_H */
