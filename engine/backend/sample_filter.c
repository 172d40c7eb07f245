/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters of a draw: see sample_filter.h.
 */
#include "engine/backend/sample_filter.h"

#include <math.h>
#include <stdbool.h>

#include "kernels/cpu/dmath.h"

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

double candidates_sum(const struct candidates *c)
{
	double sum = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		sum += (double)c->weights[c->ids[i]];
	return sum;
}

uint32_t candidates_heaviest(const struct candidates *c)
{
	uint32_t best = c->ids[0];

	for (uint32_t i = 1; i < c->nr; i++)
		if (before(c->weights, c->ids[i], best))
			best = c->ids[i];
	return best;
}

void filter_top_k(struct candidates *c, uint32_t top_k)
{
	if (top_k >= c->nr)
		return;
	select_first(c->weights, c->ids, c->nr, top_k);
	c->nr = top_k;
	sort_ids(c->weights, c->ids, c->nr); /* sums run in a fixed order */
}

/* Keeps the first candidates, as many as it takes to hold @want of the weight. */
static void keep_share(struct candidates *c, double want)
{
	double acc = 0;
	uint32_t kept = 0;

	while (kept < c->nr) {
		acc += (double)c->weights[c->ids[kept++]];
		if (acc >= want)
			break;
	}
	c->nr = kept;
}

void filter_top_p(struct candidates *c, float top_p)
{
	double sum = candidates_sum(c), floor;
	uint32_t kept = 0;

	/* Those below @floor hold less than 1 - top_p together: never needed, not worth sorting. */
	floor = (1 - (double)top_p) * sum / c->nr;
	for (uint32_t i = 0; i < c->nr; i++)
		if ((double)c->weights[c->ids[i]] >= floor)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
	sort_ids(c->weights, c->ids, c->nr);
	keep_share(c, (double)top_p * sum);
}

void filter_min_p(struct candidates *c, float min_p)
{
	float floor = min_p * c->weights[candidates_heaviest(c)];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		if (c->weights[c->ids[i]] >= floor)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
}

double logits_sigma(const float *logits, uint32_t n_vocab)
{
	double sum = 0, squares = 0, mean;
	uint32_t nr = 0;

	for (uint32_t i = 0; i < n_vocab; i++) {
		if (!isfinite(logits[i]))
			continue;
		sum += (double)logits[i];
		nr++;
	}
	if (!nr)
		return 0;
	mean = sum / nr;
	for (uint32_t i = 0; i < n_vocab; i++) {
		double x = (double)logits[i] - mean;

		if (isfinite(x))
			squares += x * x;
	}
	return sqrt(squares / nr);
}

void filter_top_n_sigma(struct candidates *c, float n)
{
	double max = -INFINITY, floor;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		max = fmax(max, (double)c->logits[c->ids[i]]);
	floor = max - (double)n * c->sigma;
	for (uint32_t i = 0; i < c->nr; i++)
		if ((double)c->logits[c->ids[i]] >= floor)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
}

void filter_typical_p(struct candidates *c, float typical_p)
{
	double sum = candidates_sum(c), entropy = 0;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->nr; i++) {
		uint32_t id = c->ids[i];
		double p = (double)c->weights[id] / sum;

		if (!(p >= 0x1p-1000)) /* its logarithm would not count */
			continue;
		c->ids[kept++] = id;
		entropy -= p * dmath_log(p);
	}
	if (!kept)
		return;
	c->nr = kept;
	for (uint32_t i = 0; i < c->nr; i++) {
		uint32_t id = c->ids[i];
		double p = (double)c->weights[id] / sum;

		c->keys[id] = -(float)fabs(dmath_log(p) + entropy);
	}
	sort_ids(c->keys, c->ids, c->nr);
	keep_share(c, (double)typical_p * sum);
}

void filter_xtc(struct candidates *c, float threshold)
{
	double floor = (double)threshold * candidates_sum(c);
	uint32_t last = 0, nr = 0, kept = 0;

	for (uint32_t i = 0; i < c->nr; i++) {
		uint32_t id = c->ids[i];

		if ((double)c->weights[id] < floor)
			continue;
		if (!nr++ || before(c->weights, last, id))
			last = id;
	}
	if (nr < 2)
		return;
	for (uint32_t i = 0; i < c->nr; i++)
		if ((double)c->weights[c->ids[i]] < floor || c->ids[i] == last)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
}

void filter_surprise(struct candidates *c, double mu)
{
	/* Within what dmath_exp() takes; no weight is that small or large. */
	double bits = fmin(fmax(mu, -1000), 1000);
	double floor = candidates_sum(c) * dmath_exp(-bits * M_LN2);
	uint32_t heaviest = candidates_heaviest(c), kept = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		if ((double)c->weights[c->ids[i]] >= floor ||
		    c->ids[i] == heaviest)
			c->ids[kept++] = c->ids[i];
	c->nr = kept;
}
