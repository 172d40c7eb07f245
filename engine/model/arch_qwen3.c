/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architecture "qwen3", dense: no biases, but a norm of each head of q and k
 * before the rotation of its halves. A head is as wide as attention.key_length
 * says, which is not always n_embd / n_head.
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
	c->has_qk_norm = true;
	c->ropes[0].neox = true;
	c->ropes[0].use_factors = false;
	return 0;
}

const struct model_arch model_arch_qwen3 = {
	.name = "qwen3",
	.describe = describe,
};
