/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps that take candidates out of a draw (engine/backend/sample_filter.h), each against a
 * plain computation in double over a full sort, on random, tied, masked and flat logits; and what
 * sample_row() makes of them: order, changes of logits, mirostat's limit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/sample.h"
#include "engine/backend/sample_filter.h"
#include "kernels/cpu/kernels_cpu.h"
#include "tests/harness.h"
#include "tests/random.h"

enum { N = 701, NR_KINDS = 6 };

FIXTURE(filter)
{
	const struct cpu_kernels *kernels;
	float logits[N], weights[N], keys[N];
	uint32_t ids[N];
	struct candidates c;
	void *scratch;
};

/* Kinds of rows: smooth, tied, one peak, flat, masked in part, two equal peaks. */
static void fill(struct fixture_filter *self, uint32_t kind)
{
	uint64_t state = 11 + kind;

	for (uint32_t i = 0; i < N; i++) {
		float smooth = (float)(random_next(&state) % 100000) / 9000;

		self->logits[i] = kind == 1 ? floorf(smooth) :
				  kind == 3 ? 2.5f :
					      smooth;
		if (kind == 4 && i % 3)
			self->logits[i] = -INFINITY;
	}
	if (kind == 2)
		self->logits[33] = 30;
	if (kind == 5)
		self->logits[7] = self->logits[500] = 19;
}

/* All tokens as candidates at temperature 1. */
static void start(struct fixture_filter *self, uint32_t kind)
{
	float max;

	fill(self, kind);
	max = self->logits[self->kernels->argmax(self->logits, N)];
	self->kernels->exp_sum(self->logits, max, 1, N, self->weights);
	self->c = (struct candidates){
		self->logits, self->weights,
		self->keys,   logits_sigma(self->logits, N),
		self->ids,    0
	};
	for (uint32_t i = 0; i < N; i++)
		self->ids[self->c.nr++] = i;
}

FIXTURE_SETUP(filter)
{
	self->kernels = cpu_kernels_get(CPU_ISA_REF);
	self->scratch =
		aligned_alloc(64, (sample_scratch_bytes(N) + 63) & ~(size_t)63);
	ASSERT_TRUE(self->scratch != NULL);
}
FIXTURE_TEARDOWN(filter)
{
	free(self->scratch);
}

/* ---- the plain computation ---------------------------------------------------- */

struct plain {
	double p[N]; /* softmax, by id */
	uint32_t ids[N]; /* by falling key, lower id first */
};

static const double *sort_keys;

static int by_key(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	if (sort_keys[a] != sort_keys[b])
		return sort_keys[a] > sort_keys[b] ? -1 : 1;
	return a < b ? -1 : 1;
}

static void plain_sort(struct plain *plain, const double *keys)
{
	for (uint32_t i = 0; i < N; i++)
		plain->ids[i] = i;
	sort_keys = keys;
	qsort(plain->ids, N, sizeof(plain->ids[0]), by_key);
}

static void plain_softmax(const struct fixture_filter *self,
			  struct plain *plain)
{
	double sum = 0;

	for (uint32_t i = 0; i < N; i++)
		sum += (double)self->weights[i];
	for (uint32_t i = 0; i < N; i++)
		plain->p[i] = (double)self->weights[i] / sum;
}

/* The candidates are those for which @is_kept says so, neither more nor fewer. */
static void expect_kept(const struct fixture_filter *self, const bool *is_kept,
			const char *what, uint32_t kind)
{
	bool found[N] = { false };
	uint32_t nr = 0;

	for (uint32_t i = 0; i < self->c.nr; i++) {
		EXPECT_FALSE(found[self->ids[i]]);
		found[self->ids[i]] = true;
	}
	for (uint32_t i = 0; i < N; i++)
		nr += is_kept[i];
	EXPECT_EQ(nr, self->c.nr);
	EXPECT_MEMEQ(is_kept, found, sizeof(found))
	{
		TH_LOG("%s, row %u", what, kind);
	}
	EXPECT_LT(0, nr);
}

/* The first of plain->ids whose probabilities reach @share. */
static void keep_share(const struct plain *plain, double share, bool *is_kept)
{
	double acc = 0;

	memset(is_kept, 0, N);
	for (uint32_t i = 0; i < N && acc < share; i++) {
		acc += plain->p[plain->ids[i]];
		is_kept[plain->ids[i]] = true;
	}
}

/* ---- one step each ---------------------------------------------------------------- */

TEST_F(filter, top_k_and_min_p)
{
	static const uint32_t counts[] = { 1, 2, 17, 300, N - 1, N, N + 7 };
	struct plain plain;
	bool is_kept[N];

	for (uint32_t kind = 0; kind < NR_KINDS; kind++) {
		for (size_t k = 0; k < 7; k++) {
			start(self, kind);
			plain_softmax(self, &plain);
			plain_sort(&plain, plain.p);
			memset(is_kept, 0, sizeof(is_kept));
			for (uint32_t i = 0; i < N && i < counts[k]; i++)
				is_kept[plain.ids[i]] = true;
			filter_top_k(&self->c, counts[k]);
			expect_kept(self, is_kept, "top_k", kind);
		}
		for (float min_p = 0.01f; min_p <= 1; min_p *= 3) {
			start(self, kind);
			/* The heaviest is gone already: the share is that of the second. */
			plain_softmax(self, &plain);
			plain_sort(&plain, plain.p);
			self->ids[plain.ids[0]] = self->ids[--self->c.nr];
			float floor = min_p * self->weights[plain.ids[1]];

			for (uint32_t i = 0; i < N; i++)
				is_kept[i] = i != plain.ids[0] &&
					     self->weights[i] >= floor;
			filter_min_p(&self->c, min_p);
			expect_kept(self, is_kept, "min_p", kind);
		}
	}
}

TEST_F(filter, top_p)
{
	static const float shares[] = { 0, 0.01f, 0.3f, 0.75f, 0.999f };
	struct plain plain;
	bool is_kept[N];

	for (uint32_t kind = 0; kind < NR_KINDS; kind++) {
		for (size_t k = 0; k < 5; k++) {
			start(self, kind);
			plain_softmax(self, &plain);
			plain_sort(&plain, plain.p);
			keep_share(&plain, (double)shares[k], is_kept);
			is_kept[plain.ids[0]] = true; /* at least one */
			filter_top_p(&self->c, shares[k]);
			expect_kept(self, is_kept, "top_p", kind);
		}
	}
}

TEST_F(filter, typical_p)
{
	static const float shares[] = { 0.01f, 0.2f, 0.5f, 0.95f };
	struct plain plain;
	double keys[N], entropy;
	bool is_kept[N];

	for (uint32_t kind = 0; kind < NR_KINDS; kind++) {
		for (size_t k = 0; k < 4; k++) {
			start(self, kind);
			plain_softmax(self, &plain);
			entropy = 0;
			for (uint32_t i = 0; i < N; i++)
				if (plain.p[i] > 0)
					entropy -= plain.p[i] * log(plain.p[i]);
			/* To a float's precision, as there: ties go to the lower id. */
			for (uint32_t i = 0; i < N; i++)
				keys[i] = plain.p[i] > 0 ?
						  (double)-(float)fabs(
							  -log(plain.p[i]) -
							  entropy) :
						  -INFINITY;
			plain_sort(&plain, keys);
			keep_share(&plain, (double)shares[k], is_kept);
			filter_typical_p(&self->c, shares[k]);
			expect_kept(self, is_kept, "typical_p", kind);
		}
	}
}

TEST_F(filter, top_n_sigma)
{
	bool is_kept[N];

	for (uint32_t kind = 0; kind < NR_KINDS; kind++) {
		for (float n = 0.2f; n < 5; n *= 1.7f) {
			double max = -INFINITY, mean = 0, var = 0;
			uint32_t nr = 0;

			start(self, kind);
			for (uint32_t i = 0; i < N; i++)
				if (isfinite(self->logits[i])) {
					max = fmax(max,
						   (double)self->logits[i]);
					mean += (double)self->logits[i];
					nr++;
				}
			mean /= nr;
			for (uint32_t i = 0; i < N; i++)
				if (isfinite(self->logits[i]))
					var += pow((double)self->logits[i] -
							   mean,
						   2) /
					       nr;
			for (uint32_t i = 0; i < N; i++)
				is_kept[i] = (double)self->logits[i] >=
					     max - (double)n * sqrt(var);
			filter_top_n_sigma(&self->c, n);
			expect_kept(self, is_kept, "top_n_sigma", kind);
		}
	}
}

TEST_F(filter, xtc)
{
	struct plain plain;
	bool is_kept[N];

	for (uint32_t kind = 0; kind < NR_KINDS; kind++) {
		for (float t = 0.0005f; t <= 0.5f; t *= 2.1f) {
			uint32_t nr_top = 0;

			start(self, kind);
			plain_softmax(self, &plain);
			plain_sort(&plain, plain.p);
			while (nr_top < N &&
			       plain.p[plain.ids[nr_top]] >= (double)t)
				nr_top++;
			memset(is_kept, true, sizeof(is_kept));
			/* All but the last of those above; where there are two at least. */
			for (uint32_t i = 0; i + 1 < nr_top; i++)
				is_kept[plain.ids[i]] = false;
			filter_xtc(&self->c, t);
			expect_kept(self, is_kept, "xtc", kind);
		}
	}
}

TEST_F(filter, surprise)
{
	struct plain plain;
	bool is_kept[N];

	for (uint32_t kind = 0; kind < NR_KINDS; kind++) {
		for (double mu = -3; mu < 20; mu += 0.61) {
			start(self, kind);
			plain_softmax(self, &plain);
			plain_sort(&plain, plain.p);
			for (uint32_t i = 0; i < N; i++)
				is_kept[i] = -log2(plain.p[i]) <= mu;
			is_kept[plain.ids[0]] = true;
			filter_surprise(&self->c, mu);
			expect_kept(self, is_kept, "surprise", kind);
		}
		start(self, kind);
		filter_surprise(&self->c,
				1e9); /* no overflow: all that weigh */
		for (uint32_t i = 0; i < N; i++)
			is_kept[i] = self->weights[i] > 0;
		expect_kept(self, is_kept, "any surprise", kind);
	}
}

/* ---- the whole draw ------------------------------------------------------------------ */

static int32_t draw(struct fixture_filter *self, struct backend_sample s,
		    uint32_t position)
{
	s.position = position;
	s.seed = 5;
	sample_row(self->kernels, self->logits, N, &s, self->scratch);
	return s.token;
}

static uint32_t counts[N];

/* Tokens drawn in 4,000 draws: a set, and how often. */
static uint32_t drawn(struct fixture_filter *self,
		      const struct backend_sample *s, bool *is_drawn)
{
	uint32_t nr = 0;

	memset(is_drawn, 0, N);
	memset(counts, 0, sizeof(counts));
	for (uint32_t i = 0; i < 4000; i++) {
		int32_t token = draw(self, *s, i);

		is_drawn[token] = true;
		counts[token]++;
	}
	for (uint32_t i = 0; i < N; i++)
		nr += is_drawn[i];
	return nr;
}

/* Ten tokens of 0, 1 ... 9 and nothing else that counts. */
static void fill_steps(struct fixture_filter *self)
{
	for (uint32_t i = 0; i < N; i++)
		self->logits[i] = i < 10 ? (float)i : -50;
}

TEST_F(filter, steps_are_taken_in_the_order_asked_for)
{
	struct backend_sample s = { .temperature = 20, .top_p = 0.5f };
	bool is_drawn[N];

	fill_steps(self);
	/* By default hot first: half of the weight is spread over half of the ten and more. */
	EXPECT_LT(4, drawn(self, &s, is_drawn));
	s.order[0] = BACKEND_TOP_P;
	s.order[1] = BACKEND_TEMPERATURE;
	s.nr_order = 2;
	/* Cold, one token has more than half. */
	EXPECT_EQ(1, drawn(self, &s, is_drawn));
	EXPECT_TRUE(is_drawn[9]);
	s.top_p = 0.99f;
	/* Cold choice of a few, drawn hot: each comes about equally often. */
	EXPECT_EQ(5, drawn(self, &s, is_drawn));
	for (uint32_t id = 5; id < 10; id++)
		EXPECT_LT(500, counts[id]);
	s.nr_order = 1; /* what is not named is not done: cold draws */
	s.top_p = 0.5f;
	EXPECT_EQ(1, drawn(self, &s, is_drawn));
	s.order[0] = BACKEND_TOP_K; /* off: top_k is 0 */
	EXPECT_LT(3, drawn(self, &s, is_drawn));
	EXPECT_GT(11, drawn(self, &s, is_drawn)); /* hot it would be hundreds */
}

TEST_F(filter, a_penalty_is_no_part_of_sigma)
{
	const struct backend_adjust huge = { 600, 0, 1, 1e30f };
	struct backend_sample s = { .temperature = 2, .top_n_sigma = 1 };
	bool plain[N], penalised[N];

	s.top_p = 1;
	fill(self, 0);
	self->logits[600] = -5;
	EXPECT_LT(9, drawn(self, &s, plain));
	s.adjust = &huge;
	s.nr_adjust = 1;
	EXPECT_GT(N / 3, drawn(self, &s, penalised));
	EXPECT_MEMEQ(plain, penalised, sizeof(plain));
}

TEST_F(filter, xtc_excludes_as_often_as_asked)
{
	struct backend_sample s = {
		.temperature = 1,
		.top_p = 1,
		.xtc_probability = 0.25f,
		.xtc_threshold = 0.1f,
	};
	memset(counts, 0, sizeof(counts));
	for (uint32_t i = 0; i < N; i++)
		self->logits[i] = -50;
	self->logits[3] = 5;
	self->logits[4] = 4.5f;
	for (uint32_t i = 0; i < 8000; i++)
		counts[draw(self, s, i)]++;
	/* Token 3 has 0.6225 of the weight, and is excluded in a quarter of the draws. */
	EXPECT_LT(8000 * 0.6225 * 0.75 - 180, counts[3]);
	EXPECT_GT(8000 * 0.6225 * 0.75 + 180, counts[3]);
	EXPECT_EQ(8000, counts[3] + counts[4]);
	s.xtc_threshold = 0.51f; /* no two tokens have more than half */
	memset(counts, 0, sizeof(counts));
	for (uint32_t i = 0; i < 8000; i++)
		counts[draw(self, s, i)]++;
	EXPECT_LT(8000 * 0.6225 - 180, counts[3]);
}

TEST_F(filter, logits_are_changed_as_asked_and_come_back)
{
	const struct backend_adjust changes[] = {
		{ 9, 0, 2, 0 }, /* 9 / 2 */
		{ 8, 0, 1, 3.25f }, /* 8 - 3.25 */
		{ 7, -0.5f, 1, 0 }, /* 6.5 */
		{ 20, 60, 4, 4 }, /* (-50 + 60) / 4 - 4 */
		{ 21, 48, 1.5f, -4 }, /* (-50 + 48) * 1.5 + 4 */
	};
	struct backend_sample s = { .top_p = 1,
				    .adjust = changes,
				    .nr_adjust = 5 };
	const int32_t banned[] = { 7, 6 };
	float before[N];

	fill_steps(self);
	memcpy(before, self->logits, sizeof(before));
	EXPECT_EQ(7, draw(self, s, 0)); /* 4.5, 4.75, 6.5 and six untouched */
	s.banned = banned;
	s.nr_banned = 2;
	EXPECT_EQ(5, draw(self, s, 0));
	EXPECT_MEMEQ(before, self->logits, sizeof(before));
	/* Each alone, by how often it is drawn: the odds of two tokens are e^(difference). */
	static const struct {
		uint32_t id;
		double value;
	} want[] = { { 9, 4.5 }, { 8, 4.75 }, { 20, -1.5 }, { 21, 1 } };

	for (size_t i = 0; i < 4; i++) {
		uint32_t nr_others = 0;
		double p = 1 / (1 + exp(want[i].value - 3));

		fill_steps(self);
		for (uint32_t k = 0; k < N; k++)
			if (k != want[i].id)
				self->logits[k] = k == 40 ? 3 : -1000;
		s.nr_banned = 0;
		s.temperature = 1;
		s.nr_adjust = 5;
		s.adjust = changes;
		for (uint32_t k = 0; k < 6000; k++)
			nr_others += draw(self, s, k) == 40;
		EXPECT_LT(fabs(nr_others - 6000 * p), 170)
		{
			TH_LOG("token %u: %u of 6000, want %g", want[i].id,
			       nr_others, 6000 * p);
		}
	}
}

TEST_F(filter, mirostat_moves_its_limit_by_the_surprise)
{
	struct backend_sample s = {
		.temperature = 1.5f,
		.top_p = 0.01f, /* has no effect: mirostat stands for it */
		.mirostat_tau = 3,
		.mirostat_eta = 0.2f,
		.mirostat_mu = 6,
		.seed = 9,
	};
	double mean = 0;

	fill(self, 0);
	for (uint32_t pos = 0; pos < 3000; pos++) {
		double mu = s.mirostat_mu, sum = 0, kept = 0, w[N], max = 0;

		for (uint32_t i = 0; i < N; i++)
			max = fmax(max, (double)self->logits[i]);
		for (uint32_t i = 0; i < N; i++)
			sum += w[i] =
				exp(((double)self->logits[i] - max) / 1.5);
		for (uint32_t i = 0; i < N; i++)
			if (-log2(w[i] / sum) <= mu)
				kept += w[i];
		if (kept == 0)
			kept = 1; /* the heaviest */
		s.position = pos;
		sample_row(self->kernels, self->logits, N, &s, self->scratch);
		double surprise = -log2(w[s.token] / kept);

		mu -= 0.2 * (surprise - 3);
		/* A token on the very border may be in one and out of the other. */
		EXPECT_LT(fabs(mu - s.mirostat_mu), 0.01)
		{
			TH_LOG("position %u: %g, want %g", pos, s.mirostat_mu,
			       mu);
			return;
		}
		mean += surprise / 3000;
	}
	/* Which is what it is for: the surprise is near tau on average. */
	EXPECT_LT(fabs(mean - 3), 0.1);
}

TEST_HARNESS_MAIN
