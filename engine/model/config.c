/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a model: the keys all architectures share, their defaults
 * and bounds. What an architecture adds is in its arch_*.c.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/model/model.h"

static const struct model_arch *const archs[] = {
	&model_arch_llama,
	&model_arch_gemma3,
	&model_arch_qwen2,
	&model_arch_qwen3,
};

enum {
	NR_ARCHS = sizeof(archs) / sizeof(archs[0]),
	KEY_BYTES = 128,
};

static int full_key(const struct gguf *gguf, const char *suffix,
		    char key[KEY_BYTES], char *err, size_t errlen)
{
	struct gguf_str arch;
	int rc = gguf_get_str(gguf, "general.architecture", &arch, err, errlen);

	if (rc)
		return rc;
	snprintf(key, KEY_BYTES, "%.*s.%s",
		 (int)(arch.len < 64 ? arch.len : 64), arch.data, suffix);
	return 0;
}

int model_key_u32(const struct gguf *gguf, const char *suffix, bool required,
		  uint32_t fallback, uint32_t *out, char *err, size_t errlen)
{
	char key[KEY_BYTES];
	int rc = full_key(gguf, suffix, key, err, errlen);

	if (rc)
		return rc;
	if (!required && !gguf_has(gguf, key)) {
		*out = fallback;
		return 0;
	}
	rc = gguf_get_u32(gguf, key, out, err, errlen);
	return rc == -ENOENT ? -EINVAL : rc;
}

int model_key_f32(const struct gguf *gguf, const char *suffix, bool required,
		  float fallback, float *out, char *err, size_t errlen)
{
	char key[KEY_BYTES];
	int rc = full_key(gguf, suffix, key, err, errlen);

	if (rc)
		return rc;
	if (!required && !gguf_has(gguf, key)) {
		*out = fallback;
		return 0;
	}
	rc = gguf_get_f32(gguf, key, out, err, errlen);
	if (rc)
		return rc == -ENOENT ? -EINVAL : rc;
	if (!isfinite(*out)) {
		snprintf(err, errlen, "%s is not a finite number", key);
		return -EINVAL;
	}
	return 0;
}

/* A value that may be an array with one entry per layer: all must be the same. */
static int key_u32_or_layers(const struct gguf *gguf, const char *suffix,
			     bool required, uint32_t fallback, uint32_t *out,
			     char *err, size_t errlen)
{
	char key[KEY_BYTES];
	struct gguf_array array;
	int64_t first = 0, value;
	int rc = full_key(gguf, suffix, key, err, errlen);

	if (rc)
		return rc;
	if (!gguf_has(gguf, key) ||
	    gguf_get_array(gguf, key, &array, err, errlen) != 0 || !array.nr)
		return model_key_u32(gguf, suffix, required, fallback, out, err,
				     errlen);
	for (uint64_t i = 0; i < array.nr; i++) {
		if (gguf_array_i64(&array, i, &value) || value < 0 ||
		    value > UINT32_MAX) {
			snprintf(err, errlen, "%s: entry %llu is not a count",
				 key, (unsigned long long)i);
			return -EINVAL;
		}
		if (i && value != first) {
			snprintf(
				err, errlen,
				"%s: layers of different shape are not supported",
				key);
			return -ENOTSUP;
		}
		first = value;
	}
	*out = (uint32_t)first;
	return 0;
}

static int read_shape(const struct gguf *gguf, struct model_config *c,
		      char *err, size_t errlen)
{
	uint32_t value_dim, half;
	int rc = model_key_u32(gguf, "block_count", true, 0, &c->nr_layers, err,
			       errlen);

	if (!rc)
		rc = model_key_u32(gguf, "embedding_length", true, 0,
				   &c->n_embd, err, errlen);
	if (!rc)
		rc = key_u32_or_layers(gguf, "feed_forward_length", true, 0,
				       &c->n_ff, err, errlen);
	if (!rc)
		rc = key_u32_or_layers(gguf, "attention.head_count", true, 0,
				       &c->n_q_heads, err, errlen);
	if (!rc)
		rc = key_u32_or_layers(gguf, "attention.head_count_kv", false,
				       c->n_q_heads, &c->n_kv_heads, err,
				       errlen);
	if (!rc)
		rc = model_key_u32(gguf, "context_length", true, 0,
				   &c->ctx_tokens, err, errlen);
	if (rc)
		return rc;
	if (!c->n_q_heads || c->n_q_heads > MODEL_MAX_HEADS) {
		snprintf(err, errlen,
			 "%s.attention.head_count is %u, want 1 to %u", c->arch,
			 c->n_q_heads, MODEL_MAX_HEADS);
		return -EINVAL;
	}
	half = c->n_embd / c->n_q_heads;
	rc = model_key_u32(gguf, "attention.key_length", false, half,
			   &c->head_dim, err, errlen);
	if (!rc)
		rc = model_key_u32(gguf, "attention.value_length", false,
				   c->head_dim, &value_dim, err, errlen);
	if (!rc && value_dim != c->head_dim) {
		snprintf(
			err, errlen,
			"key_length %u and value_length %u differ: not supported",
			c->head_dim, value_dim);
		return -ENOTSUP;
	}
	return rc;
}

/* Mixtral's files say "llama" too: they are known by their experts. */
static int refuse_experts(const struct gguf *gguf, const struct model_config *c,
			  char *err, size_t errlen)
{
	uint32_t nr;
	int rc =
		model_key_u32(gguf, "expert_count", false, 0, &nr, err, errlen);

	if (rc || !nr)
		return rc;
	snprintf(err, errlen,
		 "%s.expert_count is %u: mixtures of experts are not supported",
		 c->arch, nr);
	return -ENOTSUP;
}

static int check_shape(const struct model_config *c, char *err, size_t errlen)
{
	const struct {
		const char *name;
		uint32_t value, min, max;
	} bounds[] = {
		{ "block_count", c->nr_layers, 1, MODEL_MAX_LAYERS },
		{ "embedding_length", c->n_embd, 1, MODEL_MAX_WIDTH },
		{ "feed_forward_length", c->n_ff, 1, MODEL_MAX_WIDTH },
		{ "attention.head_count_kv", c->n_kv_heads, 1, c->n_q_heads },
		{ "attention.key_length", c->head_dim, 2, 1024 },
		{ "context_length", c->ctx_tokens, 1, 1u << 28 },
	};

	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		if (bounds[i].value >= bounds[i].min &&
		    bounds[i].value <= bounds[i].max)
			continue;
		snprintf(err, errlen, "%s.%s is %u, want %u to %u", c->arch,
			 bounds[i].name, bounds[i].value, bounds[i].min,
			 bounds[i].max);
		return -EINVAL;
	}
	if (c->n_q_heads % c->n_kv_heads) {
		snprintf(err, errlen,
			 "%u query heads are not a multiple of %u key heads",
			 c->n_q_heads, c->n_kv_heads);
		return -EINVAL;
	}
	if (c->head_dim % 16) {
		snprintf(
			err, errlen,
			"a head of %u values: not a multiple of 16, not supported",
			c->head_dim);
		return -ENOTSUP;
	}
	for (uint32_t i = 0; i < c->nr_ropes; i++) {
		const struct model_rope *r = &c->ropes[i];

		if (r->nr_rot < 2 || r->nr_rot > c->head_dim || r->nr_rot % 2 ||
		    !(r->base > 1)) {
			snprintf(
				err, errlen,
				"rope: %u of %u dimensions at base %g make no rotation",
				r->nr_rot, c->head_dim, r->base);
			return -EINVAL;
		}
	}
	return 0;
}

/* The main rotation: what rope.* says, linear scaling included. */
static int read_rope(const struct gguf *gguf, struct model_config *c, char *err,
		     size_t errlen)
{
	struct model_rope *r = &c->ropes[0];
	char key[KEY_BYTES];
	struct gguf_str type;
	float base, factor;
	int rc = model_key_f32(gguf, "rope.freq_base", false, 10000, &base, err,
			       errlen);

	if (!rc)
		rc = model_key_u32(gguf, "rope.dimension_count", false,
				   c->head_dim, &r->nr_rot, err, errlen);
	if (!rc)
		rc = model_key_f32(gguf, "rope.scale_linear", false, 1, &factor,
				   err, errlen);
	if (!rc)
		rc = model_key_f32(gguf, "rope.scaling.factor", false, factor,
				   &factor, err, errlen);
	if (!rc)
		rc = full_key(gguf, "rope.scaling.type", key, err, errlen);
	if (rc)
		return rc;
	if (gguf_has(gguf, key)) {
		rc = gguf_get_str(gguf, key, &type, err, errlen);
		if (rc)
			return rc;
		if (type.len == 4 && !memcmp(type.data, "none", 4)) {
			factor = 1;
		} else if (type.len != 6 || memcmp(type.data, "linear", 6)) {
			char shown[GGUF_SHOWN_BYTES];

			snprintf(err, errlen, "%s \"%s\" is not supported", key,
				 gguf_show(type, shown));
			return -ENOTSUP;
		}
	}
	if (!(factor > 0)) {
		snprintf(err, errlen, "rope scaling factor %g is not positive",
			 (double)factor);
		return -EINVAL;
	}
	r->base = (double)base;
	r->pos_scale = 1 / (double)factor;
	r->use_factors = true;
	c->nr_ropes = 1;
	return 0;
}

int model_config_read(const struct gguf *gguf, struct model_config *c,
		      char *err, size_t errlen)
{
	const struct model_arch *arch = NULL;
	struct gguf_str name;
	int rc = gguf_get_str(gguf, "general.architecture", &name, err, errlen);

	if (rc)
		return rc == -ENOENT ? -EINVAL : rc;
	for (int i = 0; i < NR_ARCHS; i++)
		if (name.len == strlen(archs[i]->name) &&
		    !memcmp(name.data, archs[i]->name, name.len))
			arch = archs[i];
	if (!arch) {
		char shown[GGUF_SHOWN_BYTES];

		snprintf(err, errlen, "architecture \"%s\" is not supported",
			 gguf_show(name, shown));
		return -ENOTSUP;
	}
	*c = (struct model_config){ .arch = arch->name, .embed_scale = 1 };
	rc = refuse_experts(gguf, c, err, errlen);
	if (!rc)
		rc = read_shape(gguf, c, err, errlen);
	if (!rc)
		rc = model_key_f32(gguf, "attention.layer_norm_rms_epsilon",
				   true, 0, &c->norm_eps, err, errlen);
	if (!rc && (c->nr_layers > MODEL_MAX_LAYERS || !c->head_dim))
		return check_shape(c, err, errlen);
	if (rc)
		return rc;
	if (c->norm_eps < 0) {
		snprintf(err, errlen,
			 "%s.attention.layer_norm_rms_epsilon is negative",
			 c->arch);
		return -EINVAL;
	}
	c->attn_scale = 1.0f / sqrtf((float)c->head_dim);
	rc = read_rope(gguf, c, err, errlen);
	if (!rc)
		rc = arch->describe(gguf, c, err, errlen);
	if (!rc)
		rc = check_shape(c, err, errlen);
	if (!rc && errlen)
		err[0] = '\0'; /* of keys that need not be there */
	return rc;
}
