/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a file's tensors to the backend's weights: names, shapes, tied output,
 * streams. Driver thread, once a model.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/model/model.h"
#include "kernels/cpu/half.h"

static const char embed_name[] = "token_embd.weight";
static const char output_name[] =
	"output.weight"; /* absent: tied to the embedding */

struct declare {
	const struct gguf *gguf;
	struct backend *backend;
	struct model *model;
	uint64_t bytes_by_type[64];
	bool *is_used; /* [tensors of the file] */
	char *err;
	size_t errlen;
};

enum presence { REQUIRED, OPTIONAL };

/* Tensor @name of shape [nr_rows][nr_cols]; a vector has nr_rows 0. *out stays NULL if optional. */
static int find(struct declare *d, const char *name, enum presence presence,
		uint32_t nr_cols, uint32_t nr_rows,
		const struct gguf_tensor **out)
{
	const struct gguf_tensor *t = gguf_tensor(d->gguf, name);

	*out = NULL;
	if (!t && presence == OPTIONAL)
		return 0;
	if (!t) {
		snprintf(d->err, d->errlen, "tensor %s is missing", name);
		return -EINVAL;
	}
	if (!gguf_type_supported(t->type)) {
		char buf[16];

		snprintf(d->err, d->errlen,
			 "tensor %s: type %s is not supported", name,
			 gguf_type_name(t->type, buf, sizeof(buf)));
		return -ENOTSUP;
	}
	if (t->dims[0] != nr_cols || t->dims[1] != (nr_rows ? nr_rows : 1) ||
	    t->dims[2] != 1 || t->dims[3] != 1) {
		snprintf(d->err, d->errlen,
			 "tensor %s is [%llu, %llu, %llu, %llu], want [%u, %u]",
			 name, (unsigned long long)t->dims[0],
			 (unsigned long long)t->dims[1],
			 (unsigned long long)t->dims[2],
			 (unsigned long long)t->dims[3], nr_cols,
			 nr_rows ? nr_rows : 1);
		return -EINVAL;
	}
	d->is_used[t - gguf_tensor_at(d->gguf, 0)] = true;
	*out = t;
	return 0;
}

static int declare(struct declare *d, const char *name, enum presence presence,
		   uint32_t nr_cols, uint32_t nr_rows, int *out_id)
{
	const struct gguf_tensor *t;
	struct backend_tensor bt = { .name = name };
	int rc = find(d, name, presence, nr_cols, nr_rows, &t);

	*out_id = BACKEND_NONE;
	if (rc || !t)
		return rc;
	bt.type = t->type;
	bt.nr_cols = nr_cols;
	bt.nr_rows = nr_rows ? nr_rows : 1;
	bt.data = t->data;
	bt.is_looked_up = !strcmp(name, embed_name);
	bt.is_multiplied = !bt.is_looked_up ||
			   !gguf_tensor(d->gguf, output_name);
	d->model->nr_params += (uint64_t)bt.nr_cols * bt.nr_rows;
	if (t->type < 64)
		d->bytes_by_type[t->type] += t->size_bytes;
	return nr_rows ? d->backend->ops->add_matrix(d->backend, &bt, out_id,
						     d->err, d->errlen) :
			 d->backend->ops->add_vector(d->backend, &bt, out_id,
						     d->err, d->errlen);
}

static int declare_layer(struct declare *d, uint32_t il)
{
	const struct model_config *c = &d->model->config;
	struct model_layer *l = &d->model->layers[il];
	uint32_t n_q = c->n_q_heads * c->head_dim,
		 n_kv = c->n_kv_heads * c->head_dim;
	bool windowed = model_is_windowed(c, il);
	enum presence bias = c->needs_attn_bias ? REQUIRED : OPTIONAL;
	const struct {
		const char *name;
		bool wanted;
		enum presence presence;
		uint32_t nr_cols, nr_rows; /* 0 rows: a vector */
		int *out;
	} want[] = {
		{ "attn_norm.weight", true, REQUIRED, c->n_embd, 0,
		  &l->attn_norm },
		{ "attn_q.weight", true, REQUIRED, c->n_embd, n_q, &l->q },
		{ "attn_k.weight", true, REQUIRED, c->n_embd, n_kv, &l->k },
		{ "attn_v.weight", true, REQUIRED, c->n_embd, n_kv, &l->v },
		{ "attn_output.weight", true, REQUIRED, n_q, c->n_embd, &l->o },
		{ "attn_q.bias", c->has_attn_bias, bias, n_q, 0, &l->q_bias },
		{ "attn_k.bias", c->has_attn_bias, bias, n_kv, 0, &l->k_bias },
		{ "attn_v.bias", c->has_attn_bias, bias, n_kv, 0, &l->v_bias },
		{ "attn_q_norm.weight", c->has_qk_norm, REQUIRED, c->head_dim,
		  0, &l->q_norm },
		{ "attn_k_norm.weight", c->has_qk_norm, REQUIRED, c->head_dim,
		  0, &l->k_norm },
		{ "post_attention_norm.weight", c->has_post_norms, REQUIRED,
		  c->n_embd, 0, &l->post_attn_norm },
		{ "ffn_norm.weight", true, REQUIRED, c->n_embd, 0,
		  &l->ffn_norm },
		{ "ffn_gate.weight", true, REQUIRED, c->n_embd, c->n_ff,
		  &l->gate },
		{ "ffn_up.weight", true, REQUIRED, c->n_embd, c->n_ff, &l->up },
		{ "ffn_down.weight", true, REQUIRED, c->n_ff, c->n_embd,
		  &l->down },
		{ "post_ffw_norm.weight", c->has_post_norms, REQUIRED,
		  c->n_embd, 0, &l->post_ffn_norm },
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char name[64];
		int rc;

		*want[i].out = BACKEND_NONE;
		if (!want[i].wanted)
			continue;
		snprintf(name, sizeof(name), "blk.%u.%s", il, want[i].name);
		rc = declare(d, name, want[i].presence, want[i].nr_cols,
			     want[i].nr_rows, want[i].out);
		if (rc)
			return rc;
	}
	if (d->backend->ops->join) {
		d->backend->ops->join(d->backend,
				      (const int[]){ l->q, l->k, l->v }, 3);
		d->backend->ops->join(d->backend,
				      (const int[]){ l->gate, l->up }, 2);
	}
	l->rope = windowed ? 1 : 0;
	l->stream = windowed && d->model->nr_streams == 2 ? 1 : 0;
	l->stream_layer = d->model->streams[l->stream].nr_layers++;
	return 0;
}

/* A stream of global layers, one of windowed layers, or one of either alone. */
static void declare_streams(struct model *m)
{
	const struct model_config *c = &m->config;
	uint32_t nr_windowed = 0;

	for (uint32_t i = 0; i < c->nr_layers; i++)
		nr_windowed += model_is_windowed(c, i);
	m->nr_streams = nr_windowed && nr_windowed < c->nr_layers ? 2 : 1;
	for (uint32_t i = 0; i < m->nr_streams; i++) {
		bool windowed = i == 1 || nr_windowed == c->nr_layers;

		m->streams[i] = (struct kv_stream_desc){
			.nr_kv_heads = c->n_kv_heads,
			.head_dim = c->head_dim,
			.window_tokens = windowed ? c->window_tokens : 0,
		};
	}
}

static int declare_rope_factors(struct declare *d)
{
	const struct model_config *c = &d->model->config;
	const struct gguf_tensor *t;
	uint32_t n = c->ropes[0].nr_rot / 2;
	int rc;

	if (!c->ropes[0].use_factors)
		return 0;
	rc = find(d, "rope_freqs.weight", OPTIONAL, n, 0, &t);
	if (rc || !t)
		return rc;
	if (t->type != GGUF_TYPE_F32) {
		snprintf(d->err, d->errlen,
			 "tensor rope_freqs.weight: want type F32");
		return -ENOTSUP;
	}
	d->model->rope_factors = malloc(n * sizeof(float));
	if (!d->model->rope_factors)
		return -ENOMEM;
	memcpy(d->model->rope_factors, t->data, n * sizeof(float));
	for (uint32_t i = 0; i < n; i++) {
		if (d->model->rope_factors[i] > 0 &&
		    isfinite(d->model->rope_factors[i]))
			continue;
		snprintf(
			d->err, d->errlen,
			"tensor rope_freqs.weight: factor %u is no positive number",
			i);
		return -EINVAL;
	}
	return 0;
}

/* The vocabulary is as long as the embedding table; the tokenizer must agree with it. */
static int declare_vocabulary(struct declare *d)
{
	struct model *m = d->model;
	struct model_config *c = &m->config;
	const struct gguf_tensor *t = gguf_tensor(d->gguf, embed_name);
	int rc;

	if (t && (t->dims[1] < 1 || t->dims[1] > 1u << 24)) {
		snprintf(d->err, d->errlen,
			 "tensor token_embd.weight: %llu tokens",
			 (unsigned long long)t->dims[1]);
		return -EINVAL;
	}
	c->n_vocab = t ? (uint32_t)t->dims[1] : 1;
	rc = declare(d, embed_name, REQUIRED, c->n_embd, c->n_vocab, &m->embed);
	if (!rc)
		rc = declare(d, "output_norm.weight", REQUIRED, c->n_embd, 0,
			     &m->output_norm);
	if (!rc)
		rc = declare(d, output_name, OPTIONAL, c->n_embd, c->n_vocab,
			     &m->output);
	if (!rc && m->output == BACKEND_NONE)
		m->output = m->embed; /* tied */
	return rc;
}

/* A tensor that no layer reads (a bias, an expert) would make the answers wrong in silence. */
static int refuse_unused(const struct declare *d)
{
	for (size_t i = 0; i < gguf_nr_tensors(d->gguf); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(d->gguf, i);

		if (d->is_used[i])
			continue;
		char shown[GGUF_SHOWN_BYTES];

		snprintf(d->err, d->errlen,
			 "tensor %s: architecture %s knows no such tensor",
			 gguf_show(t->name, shown), d->model->config.arch);
		return -ENOTSUP;
	}
	return 0;
}

int model_declare(const struct gguf *gguf, struct backend *backend,
		  struct model *m, char *err, size_t errlen)
{
	struct declare d = { .gguf = gguf,
			     .backend = backend,
			     .model = m,
			     .err = err,
			     .errlen = errlen };
	uint32_t widest = 0;
	int rc;

	*m = (struct model){ 0 };
	rc = model_config_read(gguf, &m->config, err, errlen);
	if (rc)
		return rc;
	m->layers = calloc(m->config.nr_layers, sizeof(*m->layers));
	d.is_used = calloc(gguf_nr_tensors(gguf) + 1, sizeof(*d.is_used));
	if (!m->layers || !d.is_used)
		rc = -ENOMEM;
	declare_streams(m);
	if (!rc)
		rc = declare_vocabulary(&d);
	for (uint32_t i = 0; i < m->config.nr_layers && !rc; i++)
		rc = declare_layer(&d, i);
	if (!rc)
		rc = declare_rope_factors(&d);
	if (!rc)
		rc = refuse_unused(&d);
	free(d.is_used);
	for (uint32_t i = 1; i < 64; i++)
		if (d.bytes_by_type[i] > d.bytes_by_type[widest])
			widest = i;
	m->quant = gguf_type_name(widest, NULL, 0);
	if (rc)
		model_free(m);
	return rc;
}

void model_free(struct model *m)
{
	free(m->layers);
	free(m->rope_factors);
	m->layers = NULL;
	m->rope_factors = NULL;
}
