/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a tokenizer from the tokenizer.ggml.* metadata. Every value comes
 * from outside and is checked here; what is wrong is named.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/token/tokenizer_private.h"

/* Where messages go, carried through the steps. */
struct load {
	const struct gguf *gguf;
	struct tokenizer *tok;
	unsigned int flags; /* enum tokenizer_create_flags */
	char *warning; /* [WARNING_BYTES] */
	char *err;
	size_t errlen;
};

enum {
	WARNING_BYTES = 160,
	/* Falcon's and old GPT-2 files' end of text, where a file names no id. */
	BPE_DEFAULT_ID = 11,
	SPM_DEFAULT_UNKNOWN = 0,
	SPM_DEFAULT_BOS = 1,
	SPM_DEFAULT_EOS = 2,
};

static bool str_is(struct gguf_str str, const char *text)
{
	return str.len == strlen(text) && memcmp(str.data, text, str.len) == 0;
}

/* An array of exactly @nr elements (any number but 0 when @nr is 0). */
static int get_array(const struct load *load, const char *key, uint64_t nr,
		     struct gguf_array *out)
{
	int err = gguf_get_array(load->gguf, key, out, load->err, load->errlen);

	if (err == -ENOENT) {
		snprintf(load->err, load->errlen, "%s is missing", key);
		return -EINVAL;
	}
	if (err)
		return err;
	if (nr > 0 && out->nr != nr) {
		snprintf(load->err, load->errlen,
			 "%s has %llu elements, the vocabulary %llu", key,
			 (unsigned long long)out->nr, (unsigned long long)nr);
		return -EINVAL;
	}
	if (out->nr == 0 || out->nr > INT32_MAX) {
		snprintf(load->err, load->errlen, "%s has %llu elements", key,
			 (unsigned long long)out->nr);
		return -EINVAL;
	}
	return 0;
}

/* [out] malloc'ed spans into the file. */
static int get_strings(const struct load *load, const char *key,
		       struct gguf_str **out, uint32_t *out_nr)
{
	struct gguf_array arr;
	int err = get_array(load, key, 0, &arr);

	*out = NULL;
	*out_nr = 0;
	if (err)
		return err;
	if (arr.type != GGUF_STRING) {
		snprintf(load->err, load->errlen, "%s is no array of strings",
			 key);
		return -EINVAL;
	}
	*out = malloc(arr.nr * sizeof(**out));
	if (!*out)
		return -ENOMEM;
	err = gguf_array_strings(&arr, *out);
	if (err) {
		snprintf(load->err, load->errlen, "%s is no array of strings",
			 key);
		free(*out);
		*out = NULL;
		return err;
	}
	*out_nr = (uint32_t)arr.nr;
	return 0;
}

/* [out] malloc'ed; all normal where the file says nothing. */
static int get_types(const struct load *load, uint32_t nr, uint8_t **out)
{
	static const char key[] = "tokenizer.ggml.token_type";
	struct gguf_array arr;
	uint32_t id;
	int err;

	*out = NULL;
	if (gguf_has(load->gguf, key)) {
		err = get_array(load, key, nr, &arr);
		if (err)
			return err;
	}
	*out = malloc(nr);
	if (!*out)
		return -ENOMEM;
	memset(*out, TOKEN_NORMAL, nr);
	if (!gguf_has(load->gguf, key))
		return 0;
	for (id = 0; id < nr; id++) {
		int64_t type;

		err = gguf_array_i64(&arr, id, &type);
		/* 0 is "undefined" in old files. */
		if (err || type < 0 || type > TOKEN_BYTE) {
			snprintf(load->err, load->errlen,
				 "%s[%u] is no token type", key, id);
			free(*out);
			*out = NULL;
			return -EINVAL;
		}
		if (type > 0)
			(*out)[id] = (uint8_t)type;
	}
	return 0;
}

/* [out] malloc'ed. */
static int get_scores(const struct load *load, uint32_t nr, float **out)
{
	static const char key[] = "tokenizer.ggml.scores";
	struct gguf_array arr;
	uint32_t id;
	int err = get_array(load, key, nr, &arr);

	*out = NULL;
	if (err)
		return err;
	*out = malloc((size_t)nr * sizeof(**out));
	if (!*out)
		return -ENOMEM;
	for (id = 0; id < nr; id++) {
		err = gguf_array_f32(&arr, id, &(*out)[id]);
		if (err || isnan((*out)[id])) {
			snprintf(load->err, load->errlen, "%s[%u] is no number",
				 key, id);
			free(*out);
			*out = NULL;
			return -EINVAL;
		}
	}
	return 0;
}

static int load_vocab(const struct load *load, bool has_scores)
{
	struct gguf_str *strs = NULL;
	uint8_t *types = NULL;
	float *scores = NULL;
	uint32_t nr;
	int err = get_strings(load, "tokenizer.ggml.tokens", &strs, &nr);

	if (!err)
		err = get_types(load, nr, &types);
	if (!err && has_scores)
		err = get_scores(load, nr, &scores);
	if (!err) {
		err = vocab_init(&load->tok->vocab, strs, nr, types, scores);
		if (err == -EFBIG)
			snprintf(load->err, load->errlen,
				 "tokenizer.ggml.tokens exceeds 4 GiB");
	}
	if (err) {
		free(types);
		free(scores);
	}
	free(strs);
	return err == -EFBIG ? -EINVAL : err;
}

/* An id that the file names, or @otherwise. */
static int get_id(const struct load *load, const char *name, int32_t otherwise,
		  int32_t *out)
{
	char key[64];
	uint32_t id;
	int err;

	*out = otherwise;
	snprintf(key, sizeof(key), "tokenizer.ggml.%s_token_id", name);
	if (!gguf_has(load->gguf, key))
		return 0;
	err = gguf_get_u32(load->gguf, key, &id, load->err, load->errlen);
	if (err)
		return err;
	if (id >= load->tok->vocab.nr) {
		snprintf(load->err, load->errlen,
			 "%s is %u, the vocabulary has %u tokens", key, id,
			 load->tok->vocab.nr);
		return -EINVAL;
	}
	*out = (int32_t)id;
	return 0;
}

static int get_flag(const struct load *load, const char *name, bool otherwise,
		    bool *out)
{
	char key[64];

	*out = otherwise;
	snprintf(key, sizeof(key), "tokenizer.ggml.%s", name);
	if (!gguf_has(load->gguf, key))
		return 0;
	return gguf_get_bool(load->gguf, key, out, load->err, load->errlen);
}

/* @id when it is one of the vocabulary and a control token, else TOKEN_NONE. */
static int32_t control_or_none(const struct vocab *vocab, int32_t id)
{
	bool is_one = (uint32_t)id < vocab->nr &&
		      vocab->types[id] == TOKEN_CONTROL;

	return is_one ? id : TOKEN_NONE;
}

static int load_ids(const struct load *load, bool is_spm)
{
	static const char *const end_names[] = {
		"eot", "eom", "fim_pad", "fim_rep", "fim_sep",
	};
	struct tokenizer *tok = load->tok;
	const struct vocab *vocab = &tok->vocab;
	int32_t unknown = TOKEN_NONE, id;
	size_t i;
	int err;

	if (is_spm && vocab->types[SPM_DEFAULT_UNKNOWN] == TOKEN_UNKNOWN)
		unknown = SPM_DEFAULT_UNKNOWN;
	err = get_id(load, "unknown", unknown, &tok->unknown);
	if (!err)
		err = get_id(load, "bos",
			     control_or_none(vocab, is_spm ? SPM_DEFAULT_BOS :
							     BPE_DEFAULT_ID),
			     &tok->bos);
	if (!err)
		err = get_id(load, "eos",
			     control_or_none(vocab, is_spm ? SPM_DEFAULT_EOS :
							     BPE_DEFAULT_ID),
			     &tok->eos);
	if (err)
		return err;
	ends_add(&tok->ends, tok->eos);
	for (i = 0; i < sizeof(end_names) / sizeof(end_names[0]); i++) {
		err = get_id(load, end_names[i], TOKEN_NONE, &id);
		if (err)
			return err;
		ends_add(&tok->ends, id);
	}
	ends_add_known(&tok->ends, &tok->vocab);
	return 0;
}

static int load_flags(const struct load *load, bool is_spm)
{
	struct tokenizer *tok = load->tok;
	bool adds_bos = is_spm || pretok_flags(tok->pretok) & PRETOK_ADD_BOS;
	int err = get_flag(load, "add_bos_token", adds_bos, &tok->adds_bos);

	if (!err)
		err = get_flag(load, "add_eos_token", false, &tok->adds_eos);
	if (!err)
		err = get_flag(load, "add_space_prefix", is_spm,
			       &tok->adds_space);
	if (!err)
		err = get_flag(load, "remove_extra_whitespaces", false,
			       &tok->removes_spaces);
	/* Byte-level BPE never adds one, whatever the file says. */
	tok->adds_space &= is_spm;
	return err;
}

static int load_pretok(const struct load *load)
{
	static const char key[] = "tokenizer.ggml.pre";
	const struct gguf_str standard = { .data = "default", .len = 7 };
	struct gguf_str name = standard;
	char shown[GGUF_SHOWN_BYTES];
	int err = 0;

	if (gguf_has(load->gguf, key))
		err = gguf_get_str(load->gguf, key, &name, load->err,
				   load->errlen);
	else
		snprintf(load->warning, WARNING_BYTES,
			 "%s is missing: taken as \"default\"", key);
	if (err)
		return err;
	if (load->flags & TOKENIZER_ALLOW_UNKNOWN_PRE &&
	    !pretok_is_known(name.data, name.len)) {
		snprintf(
			load->warning, WARNING_BYTES,
			"pre-tokenizer \"%s\" is not known: taken as \"default\"",
			gguf_show(name, shown));
		name = standard;
	}
	return pretok_create(name.data, name.len, &load->tok->pretok, load->err,
			     load->errlen);
}

static int load_bpe(const struct load *load)
{
	struct tokenizer *tok = load->tok;
	struct gguf_str *merges;
	uint32_t nr;
	int err = get_strings(load, "tokenizer.ggml.merges", &merges, &nr);

	if (!err)
		err = bpe_create(&tok->vocab, merges, nr, tok->pretok,
				 &tok->bpe, load->err, load->errlen);
	free(merges);
	return err;
}

static int load_all(const struct load *load)
{
	struct tokenizer *tok = load->tok;
	struct gguf_str model;
	bool is_spm;
	int err;

	err = gguf_get_str(load->gguf, "tokenizer.ggml.model", &model,
			   load->err, load->errlen);
	if (err)
		return err == -ENOENT ? -EINVAL : err;
	is_spm = str_is(model, "llama");
	if (!is_spm && !str_is(model, "gpt2")) {
		char shown[GGUF_SHOWN_BYTES];

		snprintf(load->err, load->errlen,
			 "tokenizer model \"%s\" is not supported",
			 gguf_show(model, shown));
		return -ENOTSUP;
	}
	/* The pre-tokenizer first: it is quick to refuse. */
	if (!is_spm)
		err = load_pretok(load);
	if (!err)
		err = load_vocab(load, is_spm);
	if (!err)
		err = load_ids(load, is_spm);
	if (!err)
		err = load_flags(load, is_spm);
	if (!err)
		err = tokenizer_build_pieces(tok);
	if (!err)
		err = tokenizer_build_special(tok);
	if (err == -EFBIG) {
		snprintf(load->err, load->errlen,
			 "tokenizer.ggml.tokens: special tokens exceed 2 GiB");
		err = -EINVAL;
	}
	if (!err)
		err = is_spm ?
			      spm_create(&tok->vocab, tok->unknown, &tok->spm) :
			      load_bpe(load);
	return err;
}

int tokenizer_create(const struct gguf *gguf, unsigned int flags,
		     struct tokenizer **out, char *err, size_t errlen)
{
	char warning[WARNING_BYTES] = "";
	struct load load = {
		.gguf = gguf,
		.tok = calloc(1, sizeof(*load.tok)),
		.flags = flags,
		.warning = warning,
		.err = err,
		.errlen = errlen,
	};
	int ret;

	*out = NULL;
	snprintf(err, errlen, "no memory for the tokenizer");
	if (!load.tok)
		return -ENOMEM;
	ret = load_all(&load);
	if (ret) {
		tokenizer_destroy(load.tok);
		return ret;
	}
	snprintf(err, errlen, "%s", warning);
	*out = load.tok;
	return 0;
}
