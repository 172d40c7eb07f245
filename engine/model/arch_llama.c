/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architecture "llama": LLaMA 1 to 3, Mistral, SmolLM2 and their kin. Pre-norm,
 * SiLU gate, rotation of adjacent pairs (the converter permuted q and k for it).
 */
#include "engine/model/gguf.h"
#include "engine/model/model.h"

static int describe(const struct gguf *gguf, struct model_config *c, char *err,
		    size_t errlen)
{
	(void)gguf;
	(void)err;
	(void)errlen;
	c->act = BACKEND_SILU;
	c->has_attn_bias = true;
	c->ropes[0].neox = false;
	return 0;
}

const struct model_arch model_arch_llama = {
	.name = "llama",
	.describe = describe,
};
