/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling on the host (sample.h): temperature, then top-k, then top-p over
 * what is left, then min-p, then the race. Any thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/sample.h"
#include "kernels/cpu/dmath.h"
#include "kernels/cpu/kernels_cpu.h"

/* Smallest -ln(u) of u = (w + 1/2) / 2^32: no token can do better. */
#define RACE_FLOOR 0x1p-33

struct candidates {
	float *weights; /* [n_vocab] e^((x - max) / temperature), by token id */
	uint32_t *ids; /* those still in the race */
	uint32_t nr;
};

size_t sample_scratch_bytes(uint32_t n_vocab)
{
	return ((size_t)n_vocab + BACKEND_MAX_BANNED) *
	       (sizeof(float) + sizeof(uint32_t));
}

/* Philox4x32-10 (Salmon et al., 2011), first word. */
static uint32_t philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2)
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), c3 = 0;

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53u * c0,
			 b = (uint64_t)0xcd9e8d57u * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return c0;
}

/*
 * Gumbel-max as a race of exponential clocks: the smallest -ln(u) / weight wins. Most tokens are
 * ruled out by their weight, or by -ln(u) >= 1 - u, before a logarithm is taken.
 */
static void race_enter(const struct backend_sample *s, uint32_t id,
		       float weight, double *best, int32_t *winner)
{
	double limit = *best * (double)weight, u, e;

	if (!(limit > RACE_FLOOR)) /* no weight, or not a number */
		return;
	u = ((double)philox(s->seed, s->choice, s->position, id) + 0.5) *
	    0x1p-32;
	if (1 - u >= limit)
		return;
	e = -dmath_log(u) / (double)weight;
	if (e < *best || (e == *best && (int32_t)id < *winner)) {
		*best = e;
		*winner = (int32_t)id;
	}
}

/* Heavier first, lower id among equals: a total order. */
static bool before(const float *w, uint32_t a, uint32_t b)
{
	return w[a] > w[b] || (w[a] == w[b] && a < b);
}

static void swap_ids(uint32_t *a, uint32_t *b)
{
	uint32_t t = *a;

	*a = *b;
	*b = t;
}

/* Restore the heap at @i: the root is the last in order. */
static void sift_down(const float *w, uint32_t *ids, uint32_t nr, uint32_t i)
{
	for (;;) {
		uint32_t last = i, l = 2 * i + 1, r = l + 1;

		if (l < nr && before(w, ids[last], ids[l]))
			last = l;
		if (r < nr && before(w, ids[last], ids[r]))
			last = r;
		if (last == i)
			return;
		swap_ids(&ids[i], &ids[last]);
		i = last;
	}
}

/* The @k first in order move to the front, in no order among themselves. */
static void select_first(const float *w, uint32_t *ids, uint32_t nr, uint32_t k)
{
	for (uint32_t i = k / 2; i-- > 0;)
		sift_down(w, ids, k, i);
	for (uint32_t i = k; i < nr; i++) {
		if (before(w, ids[i], ids[0])) {
			swap_ids(&ids[i], &ids[0]);
			sift_down(w, ids, k, 0);
		}
	}
}

static void sort_ids(const float *w, uint32_t *ids, uint32_t nr)
{
	for (uint32_t i = nr / 2; i-- > 0;)
		sift_down(w, ids, nr, i);
	for (uint32_t n = nr; n > 1; n--) {
		swap_ids(&ids[0], &ids[n - 1]);
		sift_down(w, ids, n - 1, 0);
	}
}

/*
 * Keep the fewest, heaviest first, whose share of the weight reaches @top_p. Sums are double, in
 * the order of the candidates: by id, or after top-k by falling weight, lower id first.
 */
static void filter_top_p(struct candidates *c, float top_p)
{
	double sum = 0, acc = 0, floor;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		sum += (double)c->weights[c->ids[i]];
	/* Those below @floor hold less than 1 - top_p together: never needed, not worth sorting. */
	floor = (1 - (double)top_p) * sum / c->nr;
	for (uint32_t i = 0; i < c->nr; i++)
		if ((double)c->weights[c->ids[i]] >= floor)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
	sort_ids(c->weights, c->ids, c->nr);
	for (kept = 0; kept < c->nr;) {
		acc += (double)c->weights[c->ids[kept++]];
		if (acc >= (double)top_p * sum)
			break;
	}
	c->nr = kept;
}

static void filter_min_p(struct candidates *c, float min_p)
{
	uint32_t kept = 0;

	/* The heaviest token weighs 1. */
	for (uint32_t i = 0; i < c->nr; i++)
		if (c->weights[c->ids[i]] >= min_p)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
}

static int32_t draw(const struct cpu_kernels *kernels, const float *logits,
		    uint32_t n_vocab, const struct backend_sample *s,
		    void *scratch)
{
	struct candidates c = { .weights = scratch };
	uint32_t best_id = kernels->argmax(logits, n_vocab);
	double best = INFINITY;
	int32_t winner = (int32_t)best_id;

	c.ids = (uint32_t *)(c.weights + n_vocab);
	kernels->exp_sum(logits, logits[best_id], 1.0f / s->temperature,
			 n_vocab, c.weights);
	if ((s->top_k == 0 || s->top_k >= n_vocab) && s->top_p >= 1 &&
	    s->min_p <= 0) {
		race_enter(s, best_id, c.weights[best_id], &best, &winner);
		for (uint32_t id = 0; id < n_vocab; id++)
			if (id != best_id)
				race_enter(s, id, c.weights[id], &best,
					   &winner);
		return winner;
	}
	for (uint32_t id = 0; id < n_vocab; id++)
		if (!isnan(c.weights[id])) /* it would spoil every order and sum */
			c.ids[c.nr++] = id;
	if (s->top_k > 0 && s->top_k < c.nr) {
		select_first(c.weights, c.ids, c.nr, s->top_k);
		c.nr = s->top_k;
		sort_ids(c.weights, c.ids,
			 c.nr); /* sums run in a fixed order */
	}
	if (s->top_p < 1)
		filter_top_p(&c, s->top_p);
	if (s->min_p > 0)
		filter_min_p(&c, s->min_p);
	for (uint32_t i = 0; i < c.nr; i++)
		race_enter(s, c.ids[i], c.weights[c.ids[i]], &best, &winner);
	return winner;
}

/* The nr_top largest, descending, lower id among equals. */
static void report_top(const float *logits, uint32_t n_vocab, double log_sum,
		       struct backend_sample *s)
{
	uint32_t nr = 0, want = s->nr_top < n_vocab ? s->nr_top : n_vocab;
	float vals[BACKEND_MAX_TOP];

	for (uint32_t id = 0; id < n_vocab && want; id++) {
		uint32_t at;

		if (nr == want && !(logits[id] > vals[nr - 1]))
			continue;
		at = nr < want ? nr++ : nr - 1;
		for (; at > 0 && logits[id] > vals[at - 1]; at--) {
			vals[at] = vals[at - 1];
			s->top_ids[at] = s->top_ids[at - 1];
		}
		vals[at] = logits[id];
		s->top_ids[at] = (int32_t)id;
	}
	s->nr_top = nr;
	for (uint32_t i = 0; i < nr; i++)
		s->top_logprobs[i] = (float)((double)vals[i] - log_sum);
}

void sample_row(const struct cpu_kernels *kernels, float *logits,
		uint32_t n_vocab, struct backend_sample *s, void *scratch)
{
	double log_sum = 0;
	float *saved = NULL;

	if (s->want_logprob || s->nr_top) {
		float max = logits[kernels->argmax(logits, n_vocab)];

		log_sum = (double)max + dmath_log((double)kernels->exp_sum(
						logits, max, 1, n_vocab, NULL));
		report_top(logits, n_vocab, log_sum, s);
	}
	if (s->nr_banned) {
		/* Behind weights and ids: room for BACKEND_MAX_BANNED of each. */
		saved = (float *)scratch + 2 * (size_t)n_vocab;
		for (uint32_t i = 0; i < s->nr_banned; i++) {
			saved[i] = logits[s->banned[i]];
			logits[s->banned[i]] = -INFINITY;
		}
	}
	s->token = s->temperature > 0 ?
			   draw(kernels, logits, n_vocab, s, scratch) :
			   (int32_t)kernels->argmax(logits, n_vocab);
	for (uint32_t i = s->nr_banned; i-- > 0;)
		logits[s->banned[i]] = saved[i];
	if (s->want_logprob)
		s->logprob = (float)((double)logits[s->token] - log_sum);
}
