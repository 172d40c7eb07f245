/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architecture "qwen2": Qwen 1.5 to 2.5 and their kin. As llama, but for biases
 * of q, k and v, which every file has, and rotation of the halves of a head.
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
	c->needs_attn_bias = true;
	c->ropes[0].neox = true;
	c->ropes[0].use_factors = false;
	return 0;
}

const struct model_arch model_arch_qwen2 = {
	.name = "qwen2",
	.describe = describe,
};
