/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass of a dense decoder, recorded on a backend: embedding,
 * layers, logits. One file for every architecture described by struct model.
 * Driver thread.
 */
#include "engine/model/model.h"

static void attention_branch(const struct model *m, const struct model_layer *l,
			     struct backend *b)
{
	const struct model_config *c = &m->config;
	const int mats[] = { l->q, l->k, l->v };
	const int biases[] = { l->q_bias, l->k_bias, l->v_bias };
	bool post = l->post_attn_norm != BACKEND_NONE;

	b->ops->norm(b, SLOT_X, l->attn_norm, c->norm_eps, false, SLOT_H);
	b->ops->linear(b, SLOT_H, mats, biases, 3, false, SLOT_QKV);
	b->ops->rope_append(b, l->q_norm, l->k_norm, c->norm_eps, l->rope,
			    l->stream, l->stream_layer);
	b->ops->attention(b, l->stream, l->stream_layer, c->attn_scale);
	b->ops->linear(b, SLOT_A, &l->o, NULL, 1, !post,
		       post ? SLOT_Y : SLOT_X);
	if (post)
		b->ops->norm(b, SLOT_Y, l->post_attn_norm, c->norm_eps, true,
			     SLOT_X);
}

static void mlp_branch(const struct model *m, const struct model_layer *l,
		       struct backend *b)
{
	const struct model_config *c = &m->config;
	bool post = l->post_ffn_norm != BACKEND_NONE;

	b->ops->norm(b, SLOT_X, l->ffn_norm, c->norm_eps, false, SLOT_H);
	b->ops->gated(b, SLOT_H, l->gate, l->up, c->act);
	b->ops->linear(b, SLOT_F, &l->down, NULL, 1, !post,
		       post ? SLOT_Y : SLOT_X);
	if (post)
		b->ops->norm(b, SLOT_Y, l->post_ffn_norm, c->norm_eps, true,
			     SLOT_X);
}

void model_forward(const struct model *m, struct backend *b)
{
	const struct model_config *c = &m->config;

	b->ops->embed(b, m->embed, c->embed_scale);
	for (uint32_t i = 0; i < c->nr_layers; i++) {
		attention_branch(m, &m->layers[i], b);
		mlp_branch(m, &m->layers[i], b);
	}
	b->ops->logits(b, m->output_norm, c->norm_eps, m->output,
		       c->logit_softcap);
}
