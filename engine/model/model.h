/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as the engine computes it: its numbers, its layers and the names
 * its weights have in the file. An architecture is one small file (arch_*.c)
 * that fills in this description from a GGUF; nothing else knows its name.
 *
 * Covers dense decoders: pre-norm attention and gated MLP, with or without
 * norms of q and k, norms behind the branches, biases, sliding windows.
 */
#ifndef TARN_ENGINE_MODEL_MODEL_H
#define TARN_ENGINE_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/backend/backend.h"
#include "engine/kv/segment.h"

struct gguf;

enum {
	MODEL_MAX_LAYERS = 1024,
	MODEL_MAX_HEADS = 1024,
	MODEL_MAX_WIDTH = 1 << 20, /* any one dimension but the vocabulary */
};

/* Weights of a layer, as the backend's ids; BACKEND_NONE where the model has none. */
struct model_layer {
	int attn_norm, q, k, v, o, q_bias, k_bias, v_bias;
	int q_norm, k_norm, post_attn_norm;
	int ffn_norm, gate, up, down, post_ffn_norm;
	uint32_t stream; /* of the KV cache */
	uint32_t stream_layer; /* place in it */
	uint32_t rope; /* index into config.ropes */
};

struct model_rope {
	double base;
	double pos_scale; /* 1 / linear scaling factor */
	uint32_t nr_rot;
	bool neox;
	bool use_factors; /* divide by rope_freqs.weight where the file has it */
};

struct model_config {
	const char *arch;
	uint32_t nr_layers, n_embd, n_ff, n_vocab;
	uint32_t n_q_heads, n_kv_heads, head_dim;
	uint32_t ctx_tokens;
	float norm_eps;
	float embed_scale, attn_scale, logit_softcap;
	enum backend_act act;
	bool has_qk_norm, has_post_norms;
	/* Biases of q, k and v: there may be some; there must be all. */
	bool has_attn_bias, needs_attn_bias;
	uint32_t nr_ropes;
	struct model_rope ropes[BACKEND_MAX_ROPES];
	uint32_t window_tokens;
	/* Layer il is windowed: KV stream 1, rope 1. Bit per layer. */
	uint8_t windowed[MODEL_MAX_LAYERS / 8];
};

struct model_arch {
	const char *name; /* general.architecture */
	/*
	 * What differs from model_config_read()'s common part. Return: 0, or as gguf_get_*
	 * with @err naming the key.
	 */
	int (*describe)(const struct gguf *gguf, struct model_config *config,
			char *err, size_t errlen);
};

/* arch_*.c */
extern const struct model_arch model_arch_llama, model_arch_gemma3,
	model_arch_qwen2, model_arch_qwen3;

struct model {
	struct model_config config;
	struct model_layer *layers; /* [nr_layers] */
	int embed, output_norm, output;
	uint32_t nr_streams;
	struct kv_stream_desc streams[KV_MAX_STREAMS];
	float *rope_factors; /* rope_freqs.weight, or NULL */
	uint64_t nr_params;
	const char *quant; /* type most weight bytes have; static string */
};

/* config.c: read and check the numbers. -ENOTSUP for an unknown architecture, named. */
int model_config_read(const struct gguf *gguf, struct model_config *out_config,
		      char *err, size_t errlen);
static inline bool model_is_windowed(const struct model_config *c,
				     uint32_t layer)
{
	return c->windowed[layer / 8] >> (layer % 8) & 1;
}

/*
 * An integer, float or string key "{arch}.suffix". Absent: @fallback, or -EINVAL when @required.
 */
int model_key_u32(const struct gguf *gguf, const char *suffix, bool required,
		  uint32_t fallback, uint32_t *out, char *err, size_t errlen);
int model_key_f32(const struct gguf *gguf, const char *suffix, bool required,
		  float fallback, float *out, char *err, size_t errlen);

/**
 * model_declare - find the model's tensors, check their shapes, declare them to @backend
 * @out_model: [out] model_free() frees what it owns. Tensor data is read by backend load().
 *
 * Return: 0; -EINVAL for a missing tensor or a wrong shape, named; -ENOTSUP; -ENOMEM.
 */
int model_declare(const struct gguf *gguf, struct backend *backend,
		  struct model *out_model, char *err, size_t errlen);
void model_free(struct model *model);

/* forward.c: record one step on @backend, up to the logits of the batch's out_rows. */
void model_forward(const struct model *model, struct backend *backend);

#endif /* TARN_ENGINE_MODEL_MODEL_H */
