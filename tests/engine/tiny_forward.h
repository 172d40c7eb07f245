/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass of a tiny model (tiny_model.h), written plainly: double,
 * one token after the other, every key looked at, nothing shared with the engine.
 * For tests; all static; out of memory aborts.
 */
#ifndef TARN_TESTS_ENGINE_TINY_FORWARD_H
#define TARN_TESTS_ENGINE_TINY_FORWARD_H

#include "tests/engine/tiny_model.h"

struct tiny_state {
	const struct tiny_model *m;
	uint32_t nr; /* tokens */
	double *x; /* [nr][n_embd] */
	double *k, *v; /* of one layer: [nr][n_kv * head_dim] */
};

static inline double *tiny_doubles(size_t nr)
{
	double *p = calloc(nr, sizeof(*p));

	if (!p)
		abort();
	return p;
}

/* y = W x (+ bias) */
static inline void tiny_matvec(const double *w, const double *bias,
			       const double *x, uint32_t nr_cols,
			       uint32_t nr_rows, double *y)
{
	for (uint32_t r = 0; r < nr_rows; r++) {
		double sum = bias ? bias[r] : 0;

		for (uint32_t i = 0; i < nr_cols; i++)
			sum += w[(size_t)r * nr_cols + i] * x[i];
		y[r] = sum;
	}
}

static inline void tiny_rms_norm(const double *x, const double *w, uint32_t n,
				 double eps, double *y)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (uint32_t i = 0; i < n; i++)
		y[i] = x[i] / sqrt(sum / n + eps) * w[i];
}

static inline bool tiny_is_local(const struct tiny_spec *s, uint32_t layer)
{
	return s->window && layer % 6 != 5;
}

/* Llama rotates neighbours, others the halves; local layers have a base of their own. */
static inline void tiny_rope(const struct tiny_model *m, uint32_t layer,
			     uint32_t pos, double *head)
{
	const struct tiny_spec *s = &m->spec;
	const double *freqs = tiny_weights(m, "rope_freqs.weight");
	bool is_local = tiny_is_local(s, layer), halves = s->is_neox;
	uint32_t nr_pairs = s->nr_rot / 2;

	for (uint32_t i = 0; i < nr_pairs; i++) {
		double base = (double)(is_local ? s->base_local : s->base);
		double angle = pos * pow(base, -2.0 * i / s->nr_rot);
		uint32_t ia = halves ? i : 2 * i,
			 ib = halves ? i + nr_pairs : 2 * i + 1;
		double a = head[ia], b = head[ib];

		if (!is_local && s->rope_factor > 0)
			angle /= (double)s->rope_factor;
		if (!is_local && freqs)
			angle /= freqs[i];
		head[ia] = a * cos(angle) - b * sin(angle);
		head[ib] = a * sin(angle) + b * cos(angle);
	}
}

static inline void tiny_attend(const struct tiny_state *st, uint32_t layer,
			       uint32_t pos, uint32_t h, const double *q,
			       double *out)
{
	const struct tiny_spec *s = &st->m->spec;
	uint32_t d = s->head_dim, kv = h / (s->n_q / s->n_kv),
		 stride = s->n_kv * d;
	uint32_t first = tiny_is_local(s, layer) && pos >= s->window ?
				 pos - s->window + 1 :
				 0;
	double *p = tiny_doubles(pos + 1), max = -INFINITY, sum = 0;

	for (uint32_t t = first; t <= pos; t++) {
		for (uint32_t i = 0; i < d; i++)
			p[t] += q[i] * st->k[(size_t)t * stride + kv * d + i];
		p[t] /= sqrt(d);
		max = p[t] > max ? p[t] : max;
	}
	for (uint32_t t = first; t <= pos; t++)
		sum += p[t] = exp(p[t] - max);
	for (uint32_t i = 0; i < d; i++) {
		out[i] = 0;
		for (uint32_t t = first; t <= pos; t++)
			out[i] += p[t] / sum *
				  st->v[(size_t)t * stride + kv * d + i];
	}
	free(p);
}

/* Q of @pos into @q, K and V into the state. */
static inline void tiny_qkv(const struct tiny_state *st, uint32_t layer,
			    uint32_t pos, const double *h, double *q)
{
	const struct tiny_model *m = st->m;
	const struct tiny_spec *s = &m->spec;
	uint32_t d = s->head_dim, n_kv = s->n_kv * d;
	double *k = st->k + (size_t)pos * n_kv, *v = st->v + (size_t)pos * n_kv;
	const double *qn = tiny_layer_weights(m, layer, "attn_q_norm.weight");
	const double *kn = tiny_layer_weights(m, layer, "attn_k_norm.weight");

	tiny_matvec(tiny_layer_weights(m, layer, "attn_q.weight"),
		    tiny_layer_weights(m, layer, "attn_q.bias"), h, s->n_embd,
		    s->n_q * d, q);
	tiny_matvec(tiny_layer_weights(m, layer, "attn_k.weight"),
		    tiny_layer_weights(m, layer, "attn_k.bias"), h, s->n_embd,
		    n_kv, k);
	tiny_matvec(tiny_layer_weights(m, layer, "attn_v.weight"),
		    tiny_layer_weights(m, layer, "attn_v.bias"), h, s->n_embd,
		    n_kv, v);
	for (uint32_t i = 0; i < s->n_q + s->n_kv; i++) {
		double *head = i < s->n_q ? q + i * d : k + (i - s->n_q) * d;

		if (qn)
			tiny_rms_norm(head, i < s->n_q ? qn : kn, d,
				      (double)s->eps, head);
		tiny_rope(m, layer, pos, head);
	}
}

/* x += y, through the norm behind the branch where there is one. */
static inline void tiny_add(const struct tiny_model *m, uint32_t layer,
			    const char *norm, double *y, double *x)
{
	const double *w = tiny_layer_weights(m, layer, norm);

	if (w)
		tiny_rms_norm(y, w, m->spec.n_embd, (double)m->spec.eps, y);
	for (uint32_t i = 0; i < m->spec.n_embd; i++)
		x[i] += y[i];
}

static inline void tiny_attention_branch(const struct tiny_state *st,
					 uint32_t layer, uint32_t pos)
{
	const struct tiny_model *m = st->m;
	const struct tiny_spec *s = &m->spec;
	double *x = st->x + (size_t)pos * s->n_embd;
	double *h = tiny_doubles(s->n_embd),
	       *q = tiny_doubles(s->n_q * s->head_dim);
	double *a = tiny_doubles(s->n_q * s->head_dim);

	tiny_rms_norm(x, tiny_layer_weights(m, layer, "attn_norm.weight"),
		      s->n_embd, (double)s->eps, h);
	tiny_qkv(st, layer, pos, h, q);
	for (uint32_t i = 0; i < s->n_q; i++)
		tiny_attend(st, layer, pos, i, q + i * s->head_dim,
			    a + i * s->head_dim);
	tiny_matvec(tiny_layer_weights(m, layer, "attn_output.weight"), NULL, a,
		    s->n_q * s->head_dim, s->n_embd, h);
	tiny_add(m, layer, "post_attention_norm.weight", h, x);
	free(h);
	free(q);
	free(a);
}

static inline double tiny_act(const struct tiny_spec *s, double g)
{
	if (s->window)
		return 0.5 * g *
		       (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
	return g / (1 + exp(-g));
}

static inline void tiny_mlp_branch(const struct tiny_state *st, uint32_t layer,
				   uint32_t pos)
{
	const struct tiny_model *m = st->m;
	const struct tiny_spec *s = &m->spec;
	double *x = st->x + (size_t)pos * s->n_embd;
	double *h = tiny_doubles(s->n_embd), *g = tiny_doubles(s->n_ff),
	       *u = tiny_doubles(s->n_ff);

	tiny_rms_norm(x, tiny_layer_weights(m, layer, "ffn_norm.weight"),
		      s->n_embd, (double)s->eps, h);
	tiny_matvec(tiny_layer_weights(m, layer, "ffn_gate.weight"), NULL, h,
		    s->n_embd, s->n_ff, g);
	tiny_matvec(tiny_layer_weights(m, layer, "ffn_up.weight"), NULL, h,
		    s->n_embd, s->n_ff, u);
	for (uint32_t i = 0; i < s->n_ff; i++)
		g[i] = tiny_act(s, g[i]) * u[i];
	tiny_matvec(tiny_layer_weights(m, layer, "ffn_down.weight"), NULL, g,
		    s->n_ff, s->n_embd, h);
	tiny_add(m, layer, "post_ffw_norm.weight", h, x);
	free(h);
	free(g);
	free(u);
}

/* Logits of every position: double [nr][n_vocab], for the caller to free. */
static inline double *tiny_forward(const struct tiny_model *m,
				   const int32_t *tokens, uint32_t nr)
{
	const struct tiny_spec *s = &m->spec;
	const double *embed = tiny_weights(m, "token_embd.weight");
	const double *output = tiny_weights(m, "output.weight");
	size_t n_kv = (size_t)s->n_kv * s->head_dim;
	struct tiny_state st = { m, nr, tiny_doubles((size_t)nr * s->n_embd),
				 tiny_doubles(nr * n_kv),
				 tiny_doubles(nr * n_kv) };
	double *logits = tiny_doubles((size_t)nr * s->n_vocab),
	       *h = tiny_doubles(s->n_embd);

	for (uint32_t t = 0; t < nr; t++)
		for (uint32_t i = 0; i < s->n_embd; i++)
			st.x[t * s->n_embd + i] =
				embed[(size_t)tokens[t] * s->n_embd + i] *
				(s->window ? sqrt(s->n_embd) : 1);
	for (uint32_t il = 0; il < s->nr_layers; il++) {
		for (uint32_t t = 0; t < nr; t++) {
			tiny_attention_branch(&st, il, t);
			tiny_mlp_branch(&st, il, t);
		}
	}
	for (uint32_t t = 0; t < nr; t++) {
		double *row = logits + (size_t)t * s->n_vocab;

		tiny_rms_norm(st.x + t * s->n_embd,
			      tiny_weights(m, "output_norm.weight"), s->n_embd,
			      (double)s->eps, h);
		tiny_matvec(output ? output : embed, NULL, h, s->n_embd,
			    s->n_vocab, row);
		for (uint32_t i = 0; s->softcap > 0 && i < s->n_vocab; i++)
			row[i] = (double)s->softcap *
				 tanh(row[i] / (double)s->softcap);
	}
	free(st.x);
	free(st.k);
	free(st.v);
	free(h);
	return logits;
}

#endif /* TARN_TESTS_ENGINE_TINY_FORWARD_H */
