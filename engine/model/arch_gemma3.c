/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architecture "gemma3": norms of q and k, norms behind both branches, tanh-GELU
 * gate, embeddings times sqrt(n_embd), five windowed layers to each global one.
 * The "+ 1" of Gemma's norms is in the file's weights already.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "engine/model/gguf.h"
#include "engine/model/model.h"

enum {
	LAYERS_PER_GLOBAL = 6,
	/* Of the 27B model, the one that scales scores by n_embd / n_head. */
	LAYERS_27B = 62,
};

static int describe(const struct gguf *gguf, struct model_config *c, char *err,
		    size_t errlen)
{
	struct model_rope *local = &c->ropes[1];
	float base, fallback;
	int rc;

	c->act = BACKEND_GELU_TANH;
	c->has_qk_norm = true;
	c->has_post_norms = true;
	c->embed_scale = sqrtf((float)c->n_embd);
	if (c->nr_layers == LAYERS_27B)
		c->attn_scale =
			1.0f / sqrtf((float)c->n_embd / (float)c->n_q_heads);
	c->ropes[0].neox = true;
	rc = model_key_f32(gguf, "final_logit_softcapping", false, 0,
			   &c->logit_softcap, err, errlen);
	if (!rc)
		rc = model_key_u32(gguf, "attention.sliding_window", true, 0,
				   &c->window_tokens, err, errlen);
	/* Both spellings are about. */
	if (!rc)
		rc = model_key_f32(gguf, "rope.local.freq_base", false, 10000,
				   &fallback, err, errlen);
	if (!rc)
		rc = model_key_f32(gguf, "rope.freq_base_swa", false, fallback,
				   &base, err, errlen);
	if (rc)
		return rc;
	if (c->logit_softcap < 0) {
		snprintf(err, errlen,
			 "gemma3.final_logit_softcapping is negative");
		return -EINVAL;
	}
	if (!c->window_tokens) {
		snprintf(err, errlen, "gemma3.attention.sliding_window is 0");
		return -EINVAL;
	}
	*local = c->ropes[0];
	local->base = (double)base;
	local->pos_scale = 1;
	local->use_factors = false;
	c->nr_ropes = 2;
	for (uint32_t i = 0; i < c->nr_layers; i++)
		if (i % LAYERS_PER_GLOBAL != LAYERS_PER_GLOBAL - 1)
			c->windowed[i / 8] |= (uint8_t)(1u << i % 8);
	return 0;
}

const struct model_arch model_arch_gemma3 = {
	.name = "gemma3",
	.describe = describe,
};
