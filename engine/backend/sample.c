/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling on the host (sample.h): the row is changed where asked, steps take
 * candidates out, those that are left race. Any thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/sample.h"
#include "engine/backend/sample_filter.h"
#include "kernels/cpu/dmath.h"
#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cpu/philox.h"

/* Smallest -ln(u) of u = (w + 1/2) / 2^32: no token can do better. */
#define RACE_FLOOR 0x1p-33

/* No token has this id: the random number that decides whether top choices are excluded. */
#define XTC_ID UINT32_MAX

/*
 * Five arrays by token id or candidate: weights, ids, keys, logits as they were, and those of the
 * tokens that are allowed.
 */
size_t sample_scratch_bytes(uint32_t n_vocab)
{
	return ((size_t)n_vocab * 5 + BACKEND_MAX_BANNED) * sizeof(float);
}

static bool is_allowed(const struct backend_sample *s, uint32_t id)
{
	return !s->allowed || s->allowed[id >> 6] >> (id & 63) & 1;
}

/* A random number in (0, 1), for the token drawn now and @id. */
static double uniform(const struct backend_sample *s, uint32_t id)
{
	return ((double)philox(s->seed, s->choice, s->position, id) + 0.5) *
	       0x1p-32;
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
	u = uniform(s, id);
	if (1 - u >= limit)
		return;
	e = -dmath_log(u) / (double)weight;
	if (e < *best || (e == *best && (int32_t)id < *winner)) {
		*best = e;
		*winner = (int32_t)id;
	}
}

static bool is_on(const struct backend_sample *s, enum backend_sampler step,
		  uint32_t n_vocab)
{
	switch (step) {
	case BACKEND_TOP_N_SIGMA:
		return s->top_n_sigma > 0;
	case BACKEND_TEMPERATURE:
		return true;
	case BACKEND_TOP_K:
		return s->top_k > 0 && s->top_k < n_vocab;
	case BACKEND_TYPICAL_P:
		return s->typical_p > 0 && s->typical_p < 1;
	case BACKEND_TOP_P:
		return s->top_p < 1;
	case BACKEND_MIN_P:
		return s->min_p > 0;
	case BACKEND_XTC:
		return s->xtc_probability > 0;
	default:
		return false;
	}
}

static void take_step(struct candidates *c, const struct backend_sample *s,
		      enum backend_sampler step)
{
	switch (step) {
	case BACKEND_TOP_N_SIGMA:
		filter_top_n_sigma(c, s->top_n_sigma);
		break;
	case BACKEND_TOP_K:
		filter_top_k(c, s->top_k);
		break;
	case BACKEND_TYPICAL_P:
		filter_typical_p(c, s->typical_p);
		break;
	case BACKEND_TOP_P:
		filter_top_p(c, s->top_p);
		break;
	case BACKEND_MIN_P:
		filter_min_p(c, s->min_p);
		break;
	case BACKEND_XTC:
		if (uniform(s, XTC_ID) < (double)s->xtc_probability)
			filter_xtc(c, s->xtc_threshold);
		break;
	default:
		break;
	}
}

static void candidates_init(struct candidates *c, const float *logits,
			    uint32_t n_vocab, void *scratch)
{
	c->logits = logits;
	c->weights = scratch;
	c->ids = (uint32_t *)(c->weights + n_vocab);
	c->keys = c->weights + 2 * (size_t)n_vocab;
	c->nr = 0;
}

/* All tokens allowed whose weight is a number: another would spoil every order and sum. */
static void candidates_fill(struct candidates *c, uint32_t n_vocab,
			    const struct backend_sample *s)
{
	for (uint32_t id = 0; id < n_vocab; id++)
		if (!isnan(c->weights[id]) && is_allowed(s, id))
			c->ids[c->nr++] = id;
}

static int32_t race(const struct candidates *c, const struct backend_sample *s,
		    uint32_t best_id)
{
	double best = INFINITY;
	int32_t winner = (int32_t)best_id;

	/* Where nothing weighs anything the largest logit is infinite, and wins. */
	if (c->nr && c->weights[candidates_heaviest(c)] > 0)
		winner = (int32_t)candidates_heaviest(c);
	for (uint32_t i = 0; i < c->nr; i++)
		race_enter(s, c->ids[i], c->weights[c->ids[i]], &best, &winner);
	return winner;
}

/* No step but the temperature: the whole vocabulary races, the likeliest winner first. */
static int32_t race_all(const float *weights, uint32_t n_vocab,
			const struct backend_sample *s, uint32_t best_id)
{
	double best = INFINITY;
	int32_t winner = (int32_t)best_id;

	race_enter(s, best_id, weights[best_id], &best, &winner);
	for (uint32_t id = 0; id < n_vocab; id++)
		if (id != best_id)
			race_enter(s, id, weights[id], &best, &winner);
	return winner;
}

/* Mirostat 2: what is too surprising is cut off, and the limit moves with what was drawn. */
static int32_t draw_mirostat(struct candidates *c, struct backend_sample *s,
			     uint32_t best_id)
{
	int32_t token;
	double surprise;

	if (!c->nr)
		return (int32_t)best_id;
	filter_surprise(c, s->mirostat_mu);
	token = race(c, s, best_id);
	surprise = (dmath_log(candidates_sum(c)) -
		    dmath_log((double)c->weights[token])) /
		   M_LN2;
	s->mirostat_mu -=
		(double)s->mirostat_eta * (surprise - (double)s->mirostat_tau);
	return token;
}

static int32_t draw(const struct cpu_kernels *kernels, const float *logits,
		    uint32_t n_vocab, double sigma, struct backend_sample *s,
		    void *scratch)
{
	struct candidates c = { .sigma = sigma };
	uint32_t best_id = kernels->argmax(logits, n_vocab);
	uint32_t nr = s->nr_order ? s->nr_order : BACKEND_NR_SAMPLERS;
	float temperature = 1;
	bool is_weighed = false;

	candidates_init(&c, logits, n_vocab, scratch);
	for (uint32_t i = 0; i < nr; i++) {
		enum backend_sampler step = s->nr_order ? s->order[i] : i;

		if (step == BACKEND_TEMPERATURE) {
			temperature = s->temperature;
			/* Candidates stay; they get their new weights. */
			if (is_weighed)
				kernels->exp_sum(logits, logits[best_id],
						 1.0f / temperature, n_vocab,
						 c.weights);
			continue;
		}
		if (s->mirostat_tau > 0 || !is_on(s, step, n_vocab))
			continue;
		if (!is_weighed) {
			kernels->exp_sum(logits, logits[best_id],
					 1.0f / temperature, n_vocab,
					 c.weights);
			candidates_fill(&c, n_vocab, s);
			is_weighed = true;
		}
		if (c.nr)
			take_step(&c, s, step);
	}
	if (is_weighed)
		return race(&c, s, best_id);
	kernels->exp_sum(logits, logits[best_id], 1.0f / temperature, n_vocab,
			 c.weights);
	if (!(s->mirostat_tau > 0))
		return race_all(c.weights, n_vocab, s, best_id);
	candidates_fill(&c, n_vocab, s);
	return draw_mirostat(&c, s, best_id);
}

/* What penalties and biases make of a logit. */
static float adjusted(float x, const struct backend_adjust *a)
{
	x += a->bias;
	if (a->repetition != 1)
		x = x > 0 ? x / a->repetition : x * a->repetition;
	return x - a->penalty;
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

/* Changes @logits as asked; @saved: what they were, [nr_adjust + nr_banned]. */
static void change_row(float *logits, const struct backend_sample *s,
		       float *saved)
{
	for (uint32_t i = 0; i < s->nr_adjust; i++) {
		float *x = &logits[s->adjust[i].id];

		*saved++ = *x;
		*x = adjusted(*x, &s->adjust[i]);
	}
	for (uint32_t i = 0; i < s->nr_banned; i++) {
		*saved++ = logits[s->banned[i]];
		logits[s->banned[i]] = -INFINITY;
	}
}

/* Backwards: a banned token may have been changed before. */
static void restore_row(float *logits, const struct backend_sample *s,
			const float *saved)
{
	saved += s->nr_adjust + s->nr_banned;
	for (uint32_t i = s->nr_banned; i-- > 0;)
		logits[s->banned[i]] = *--saved;
	for (uint32_t i = s->nr_adjust; i-- > 0;)
		logits[s->adjust[i].id] = *--saved;
}

/* The row with what is not allowed out of reach, to @out. */
static void copy_allowed(const float *logits, uint32_t n_vocab,
			 const uint64_t *allowed, float *out)
{
	for (uint32_t first = 0; first < n_vocab; first += 64) {
		const uint32_t nr = n_vocab - first < 64 ? n_vocab - first : 64;
		const uint64_t bits = allowed[first >> 6];

		for (uint32_t i = 0; i < nr; i++)
			out[first + i] = bits >> i & 1 ? logits[first + i] :
							 -INFINITY;
	}
}

/* Where no logit that is allowed is a number any of them will do: the first. */
static int32_t settle(const struct backend_sample *s, uint32_t n_vocab,
		      int32_t token)
{
	if (is_allowed(s, (uint32_t)token))
		return token;
	for (uint32_t id = 0; id < n_vocab; id++)
		if (is_allowed(s, id))
			return (int32_t)id;
	return token;
}

static void draw_token(const struct cpu_kernels *kernels, float *logits,
		       uint32_t n_vocab, struct backend_sample *s,
		       void *scratch)
{
	float *saved = (float *)scratch + 3 * (size_t)n_vocab;
	float *row = logits;
	double sigma;

	if (s->allowed) {
		row = saved + n_vocab + BACKEND_MAX_BANNED;
		copy_allowed(logits, n_vocab, s->allowed, row);
	}
	/* A penalty is no part of how the model's own logits are spread. */
	sigma = s->top_n_sigma > 0 ? logits_sigma(row, n_vocab) : 0;
	change_row(row, s, saved);
	s->token = s->temperature > 0 ?
			   draw(kernels, row, n_vocab, sigma, s, scratch) :
			   (int32_t)kernels->argmax(row, n_vocab);
	restore_row(row, s, saved);
	if (s->allowed)
		s->token = settle(s, n_vocab, s->token);
}

void sample_row(const struct cpu_kernels *kernels, float *logits,
		uint32_t n_vocab, struct backend_sample *s, void *scratch)
{
	double log_sum = 0;

	if (s->want_logprob || s->nr_top) {
		float max = logits[kernels->argmax(logits, n_vocab)];

		log_sum = (double)max + dmath_log((double)kernels->exp_sum(
						logits, max, 1, n_vocab, NULL));
		report_top(logits, n_vocab, log_sum, s);
	}
	if (!s->is_given)
		draw_token(kernels, logits, n_vocab, s, scratch);
	if (s->want_logprob)
		s->logprob = (float)((double)logits[s->token] - log_sum);
}
