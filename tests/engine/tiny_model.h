/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny models for tests: random files of every architecture and tensor type,
 * whole or with one thing wrong, in an anonymous file; and their weights in
 * double (tiny_blocks.h).
 *
 * Shares no code with the engine but the names of types. All static; out of memory aborts.
 *
 *	struct tiny_model m;
 *	struct tiny_spec spec = tiny_llama(GGUF_TYPE_Q4_0);
 *
 *	tiny_create(&m, &spec);		(m.path is the file; tiny_weights(&m, name) its weights)
 *	tiny_destroy(&m);
 */
#ifndef TARN_TESTS_ENGINE_TINY_MODEL_H
#define TARN_TESTS_ENGINE_TINY_MODEL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/engine/gguf_writer.h"
#include "tests/engine/tiny_blocks.h"

enum {
	TINY_VOCAB = 263, /* <unk> <s> </s>, 256 bytes, four letters */
	TINY_EOS = 2,
};

/* A metadata value to write in the place of the right one. */
struct tiny_value {
	enum {
		TINY_ABSENT,
		TINY_U32,
		TINY_I32,
		TINY_F32,
		TINY_STR,
		TINY_LAYERS, /* an array of u32, the last one different if so asked */
		TINY_FLOATS, /* an array of floats */
	} kind;
	uint32_t u;
	float f;
	const char *s;
	uint32_t last;
};

/* One thing that is wrong, or merely different. */
struct tiny_change {
	const char *key; /* full name; written with @value instead, or besides */
	struct tiny_value value;
	const char
		*tensor; /* full name; left out, or of another shape and type */
	bool is_missing;
	uint32_t type;
	uint32_t nr_dims; /* 0: its own shape */
	uint64_t dims[3];
	const char *extra; /* one more tensor of this name: F32 [dims[0]] */
	float fill; /* its values */
};

struct tiny_spec {
	const char *arch;
	uint32_t nr_layers, n_embd, n_ff, n_q, n_kv, head_dim, n_vocab,
		nr_tokens;
	uint32_t ctx, window, nr_rot;
	uint32_t type; /* of matrices */
	uint32_t vector_type;
	float eps, base, base_local, rope_factor; /* factor 0: not written */
	float softcap; /* 0: not written */
	bool is_untied, has_bias, has_rope_freqs;
	bool is_neox, has_qk_norm;
	uint64_t seed;
	const struct tiny_change *change;
};

struct tiny_tensor {
	char name[64];
	uint32_t nr_rows, nr_cols;
	double *w; /* [nr_rows][nr_cols] */
};

struct tiny_model {
	struct tiny_spec spec;
	struct gguf_writer writer;
	struct tiny_tensor tensors[160];
	uint32_t nr_tensors;
	uint64_t random;
	int fd;
	char path[64];
};

static inline struct tiny_spec tiny_llama(uint32_t type)
{
	bool k = tiny_type(type).block == 256;

	return (struct tiny_spec){
		.arch = "llama",
		.nr_layers = 2,
		.n_embd = k ? 256 : 64,
		.n_ff = k ? 512 : 96,
		.n_q = 4,
		.n_kv = 2,
		.head_dim = k ? 64 : 16,
		.nr_rot = k ? 64 : 16,
		.n_vocab = TINY_VOCAB,
		.nr_tokens = TINY_VOCAB,
		.ctx = 512,
		.type = type,
		.vector_type = type == GGUF_TYPE_F16 || type == GGUF_TYPE_BF16 ?
				       type :
				       GGUF_TYPE_F32,
		.eps = 1e-5f,
		.base = 10000,
		.seed = type + 1,
	};
}

static inline struct tiny_spec tiny_gemma3(uint32_t type)
{
	struct tiny_spec s = tiny_llama(type);

	s.arch = "gemma3";
	s.nr_layers = 7; /* the sixth sees everything */
	s.n_kv = 1;
	s.window = 24;
	s.base = 1e6f;
	s.base_local = 5000;
	s.rope_factor = 8;
	s.eps = 1e-6f;
	s.is_neox = true;
	s.has_qk_norm = true;
	return s;
}

static inline struct tiny_spec tiny_qwen2(uint32_t type)
{
	struct tiny_spec s = tiny_llama(type);

	s.arch = "qwen2";
	s.has_bias = true;
	s.is_neox = true;
	s.base = 1e6f;
	s.eps = 1e-6f;
	return s;
}

/* Heads twice as wide as n_embd / n_q. */
static inline struct tiny_spec tiny_qwen3(uint32_t type)
{
	struct tiny_spec s = tiny_llama(type);

	s.arch = "qwen3";
	s.head_dim *= 2;
	s.nr_rot = s.head_dim;
	s.is_neox = true;
	s.has_qk_norm = true;
	s.base = 1e6f;
	s.eps = 1e-6f;
	return s;
}

static inline uint32_t tiny_u32(struct tiny_model *m)
{
	return tiny_random_u32(&m->random);
}

/* Uniform in [-1, 1). */
static inline double tiny_unit(struct tiny_model *m)
{
	return tiny_random_unit(&m->random);
}

/* ---- metadata ------------------------------------------------------------------- */

static inline void tiny_put_value(struct gguf_writer *w, const char *key,
				  const struct tiny_value *v)
{
	uint32_t layers[4] = { v->u, v->u, v->u, v->last };
	float floats[2] = { v->f, v->f };

	switch (v->kind) {
	case TINY_ABSENT:
		break;
	case TINY_U32:
		gw_u32(w, key, v->u);
		break;
	case TINY_I32:
		gw_i32(w, key, (int32_t)v->u);
		break;
	case TINY_F32:
		gw_f32(w, key, v->f);
		break;
	case TINY_STR:
		gw_str(w, key, v->s);
		break;
	case TINY_LAYERS:
		gw_array(w, key, GGUF_U32, layers, 4, sizeof(layers[0]));
		break;
	case TINY_FLOATS:
		gw_array(w, key, GGUF_F32, floats, 2, sizeof(floats[0]));
		break;
	}
}

static inline bool tiny_is_changed(const struct tiny_model *m, const char *key)
{
	return m->spec.change && m->spec.change->key &&
	       !strcmp(m->spec.change->key, key);
}

static inline void tiny_key(struct tiny_model *m, const char *suffix,
			    struct tiny_value value)
{
	char key[96];

	snprintf(key, sizeof(key), "%s.%s", m->spec.arch, suffix);
	if (!tiny_is_changed(m, key))
		tiny_put_value(&m->writer, key, &value);
}

static inline void tiny_key_u32(struct tiny_model *m, const char *suffix,
				uint32_t u)
{
	tiny_key(m, suffix, (struct tiny_value){ .kind = TINY_U32, .u = u });
}

static inline void tiny_key_f32(struct tiny_model *m, const char *suffix,
				float f)
{
	tiny_key(m, suffix, (struct tiny_value){ .kind = TINY_F32, .f = f });
}

static inline void tiny_put_tokens(struct tiny_model *m)
{
	static const char *const others[] = { "a", "b", "c", "d" };
	uint32_t nr = m->spec.nr_tokens;
	char(*texts)[16] = calloc(nr, sizeof(*texts));
	const char **tokens = calloc(nr, sizeof(*tokens));
	int32_t *types = calloc(nr, sizeof(*types));
	float *scores = calloc(nr, sizeof(*scores));

	if (!texts || !tokens || !types || !scores)
		abort();
	for (uint32_t i = 0; i < nr; i++) {
		static const char *const first[] = { "<unk>", "<s>", "</s>" };

		tokens[i] = texts[i];
		types[i] = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
		if (i >= 3 && i < 259)
			snprintf(texts[i], sizeof(*texts), "<0x%02X>", i - 3);
		else if (i >= 263)
			snprintf(texts[i], sizeof(*texts), "more%u", i);
		else
			tokens[i] = i < 3 ? first[i] : others[i - 259];
	}
	gw_str(&m->writer, "tokenizer.ggml.model", "llama");
	gw_strings(&m->writer, "tokenizer.ggml.tokens", tokens, nr);
	gw_array(&m->writer, "tokenizer.ggml.scores", GGUF_F32, scores, nr,
		 sizeof(*scores));
	gw_array(&m->writer, "tokenizer.ggml.token_type", GGUF_I32, types, nr,
		 sizeof(*types));
	free(texts);
	free(tokens);
	free(types);
	free(scores);
}

static inline void tiny_put_keys(struct tiny_model *m)
{
	const struct tiny_spec *s = &m->spec;

	if (!tiny_is_changed(m, "general.architecture"))
		gw_str(&m->writer, "general.architecture", s->arch);
	tiny_key_u32(m, "block_count", s->nr_layers);
	tiny_key_u32(m, "context_length", s->ctx);
	tiny_key_u32(m, "embedding_length", s->n_embd);
	tiny_key_u32(m, "feed_forward_length", s->n_ff);
	tiny_key_u32(m, "attention.head_count", s->n_q);
	tiny_key_u32(m, "attention.head_count_kv", s->n_kv);
	tiny_key_u32(m, "attention.key_length", s->head_dim);
	tiny_key_f32(m, "attention.layer_norm_rms_epsilon", s->eps);
	tiny_key_u32(m, "rope.dimension_count", s->nr_rot);
	tiny_key_f32(m, "rope.freq_base", s->base);
	if (s->rope_factor > 0) {
		tiny_key_f32(m, "rope.scaling.factor", s->rope_factor);
		tiny_key(m, "rope.scaling.type",
			 (struct tiny_value){ .kind = TINY_STR,
					      .s = "linear" });
	}
	if (s->window) {
		tiny_key_u32(m, "attention.sliding_window", s->window);
		tiny_key_f32(m, "rope.local.freq_base", s->base_local);
	}
	if (s->softcap > 0)
		tiny_key_f32(m, "final_logit_softcapping", s->softcap);
	if (s->change && s->change->key)
		tiny_put_value(&m->writer, s->change->key, &s->change->value);
	tiny_put_tokens(m);
}

/* ---- tensors --------------------------------------------------------------------- */

/* @nr_rows 0: a vector. Values are about @size, around @centre (float types only). */
static inline void tiny_tensor(struct tiny_model *m, const char *name,
			       uint32_t nr_cols, uint32_t nr_rows, double size,
			       double centre)
{
	const struct tiny_change *c = m->spec.change;
	bool changed = c && c->tensor && !strcmp(c->tensor, name);
	uint32_t type = nr_rows ? m->spec.type : m->spec.vector_type;
	uint64_t dims[3] = { nr_cols, nr_rows, 1 }, nr_blocks = 1;
	uint32_t nr_dims = nr_rows ? 2 : 1;
	struct tiny_tensor *t = &m->tensors[m->nr_tensors++];
	struct tiny_type info;
	uint8_t *data;

	if (changed && c->is_missing)
		return;
	if (changed) {
		type = c->type;
		if (c->nr_dims) {
			nr_dims = c->nr_dims;
			memcpy(dims, c->dims, sizeof(dims));
		}
	}
	info = tiny_type(type);
	for (uint32_t i = 0; i < nr_dims; i++)
		nr_blocks *= i ? dims[i] :
				 (dims[i] + info.block - 1) / info.block;
	data = calloc(nr_blocks, info.bytes);
	if (!data)
		abort();
	for (uint64_t i = 0; i < nr_blocks; i++) {
		if (centre != 0)
			tiny_float(type, centre + size * tiny_unit(m),
				   data + i * info.bytes);
		else
			tiny_block(&m->random, type, size,
				   data + i * info.bytes);
	}
	gw_tensor(&m->writer, name, type, nr_dims, dims, data,
		  nr_blocks * info.bytes);
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->nr_cols = nr_cols;
	t->nr_rows = nr_rows ? nr_rows : 1;
	t->w = changed ? NULL :
			 calloc((size_t)t->nr_rows * nr_cols, sizeof(double));
	for (uint32_t r = 0; t->w && r < t->nr_rows; r++)
		for (uint32_t i = 0; i < nr_cols; i++)
			t->w[(size_t)r * nr_cols + i] = tiny_value_at(
				type,
				data + (size_t)r * (nr_cols / info.block) *
						info.bytes,
				i);
	free(data);
}

static inline void tiny_layer_tensor(struct tiny_model *m, uint32_t layer,
				     const char *name, uint32_t nr_cols,
				     uint32_t nr_rows, double size,
				     double centre)
{
	char full[64];

	snprintf(full, sizeof(full), "blk.%u.%s", layer, name);
	tiny_tensor(m, full, nr_cols, nr_rows, size, centre);
}

static inline void tiny_layer(struct tiny_model *m, uint32_t il)
{
	const struct tiny_spec *s = &m->spec;
	uint32_t n_q = s->n_q * s->head_dim, n_kv = s->n_kv * s->head_dim;
	double in = 1 / sqrt(s->n_embd);

	tiny_layer_tensor(m, il, "attn_norm.weight", s->n_embd, 0, 0.3, 1);
	tiny_layer_tensor(m, il, "attn_q.weight", s->n_embd, n_q, in, 0);
	tiny_layer_tensor(m, il, "attn_k.weight", s->n_embd, n_kv, in, 0);
	tiny_layer_tensor(m, il, "attn_v.weight", s->n_embd, n_kv, in, 0);
	tiny_layer_tensor(m, il, "attn_output.weight", n_q, s->n_embd,
			  1 / sqrt(n_q), 0);
	if (s->has_bias) {
		tiny_layer_tensor(m, il, "attn_q.bias", n_q, 0, 0.5, 0.1);
		tiny_layer_tensor(m, il, "attn_k.bias", n_kv, 0, 0.5, -0.1);
		tiny_layer_tensor(m, il, "attn_v.bias", n_kv, 0, 0.5, 0.1);
	}
	if (s->has_qk_norm) {
		tiny_layer_tensor(m, il, "attn_q_norm.weight", s->head_dim, 0,
				  0.3, 1);
		tiny_layer_tensor(m, il, "attn_k_norm.weight", s->head_dim, 0,
				  0.3, 1);
	}
	if (s->window) {
		tiny_layer_tensor(m, il, "post_attention_norm.weight",
				  s->n_embd, 0, 0.3, 1);
		tiny_layer_tensor(m, il, "post_ffw_norm.weight", s->n_embd, 0,
				  0.3, 1);
	}
	tiny_layer_tensor(m, il, "ffn_norm.weight", s->n_embd, 0, 0.3, 1);
	tiny_layer_tensor(m, il, "ffn_gate.weight", s->n_embd, s->n_ff, in, 0);
	tiny_layer_tensor(m, il, "ffn_up.weight", s->n_embd, s->n_ff, in, 0);
	tiny_layer_tensor(m, il, "ffn_down.weight", s->n_ff, s->n_embd,
			  1 / sqrt(s->n_ff), 0);
}

static inline void tiny_put_tensors(struct tiny_model *m)
{
	const struct tiny_spec *s = &m->spec;
	const struct tiny_change *c = s->change;

	tiny_tensor(m, "token_embd.weight", s->n_embd, s->n_vocab,
		    1 / sqrt(s->n_embd), 0);
	tiny_tensor(m, "output_norm.weight", s->n_embd, 0, 0.3, 1);
	if (s->is_untied)
		tiny_tensor(m, "output.weight", s->n_embd, s->n_vocab,
			    1 / sqrt(s->n_embd), 0);
	if (s->has_rope_freqs)
		tiny_tensor(m, "rope_freqs.weight", s->nr_rot / 2, 0, 1, 3);
	for (uint32_t i = 0; i < s->nr_layers; i++)
		tiny_layer(m, i);
	if (c && c->extra) {
		float *values = calloc(c->dims[0], sizeof(float));

		if (!values)
			abort();
		for (uint64_t i = 0; i < c->dims[0]; i++)
			values[i] = c->fill;
		gw_tensor(&m->writer, c->extra, GGUF_TYPE_F32, 1, c->dims,
			  values, c->dims[0] * sizeof(float));
		free(values);
	}
}

/* ---- the file ------------------------------------------------------------------------ */

static inline void tiny_create(struct tiny_model *m,
			       const struct tiny_spec *spec)
{
	uint8_t *bytes;
	size_t size;

	memset(m, 0, sizeof(*m));
	m->spec = *spec;
	m->random = spec->seed * 0x9e3779b97f4a7c15u;
	m->writer = (struct gguf_writer)GGUF_WRITER_INIT;
	tiny_put_keys(m);
	tiny_put_tensors(m);
	bytes = gw_finish(&m->writer, &size);
	m->fd = memfd_create("tiny.gguf", MFD_CLOEXEC);
	if (m->fd < 0 || write(m->fd, bytes, size) != (ssize_t)size)
		abort();
	free(bytes);
	snprintf(m->path, sizeof(m->path), "/proc/self/fd/%d", m->fd);
}

static inline void tiny_destroy(struct tiny_model *m)
{
	for (uint32_t i = 0; i < m->nr_tensors; i++)
		free(m->tensors[i].w);
	close(m->fd);
}

/* The values of a tensor, row after row; NULL where the model has none. */
static inline const double *tiny_weights(const struct tiny_model *m,
					 const char *name)
{
	for (uint32_t i = 0; i < m->nr_tensors; i++)
		if (!strcmp(m->tensors[i].name, name))
			return m->tensors[i].w;
	return NULL;
}

static inline const double *tiny_layer_weights(const struct tiny_model *m,
					       uint32_t layer, const char *name)
{
	char full[64];

	snprintf(full, sizeof(full), "blk.%u.%s", layer, name);
	return tiny_weights(m, full);
}

#endif /* TARN_TESTS_ENGINE_TINY_MODEL_H */
