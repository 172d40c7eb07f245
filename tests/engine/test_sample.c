/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing tokens (engine/backend/sample.h): who may be drawn under each filter,
 * how often, and by which random numbers; log probabilities. Every test runs
 * with the kernels of each instruction set, and all must draw the same tokens.
 *
 * The expectation is written plainly: a full sort, sums in double, and a
 * Philox of its own that is checked against published vectors.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/sample.h"
#include "kernels/cpu/kernels_cpu.h"
#include "tests/harness.h"
#include "tests/random.h"

enum {
	N = 1003, /* odd: no whole number of lanes */
	NR_DRAWS = 24000,
};

FIXTURE(sample)
{
	const struct cpu_kernels *kernels;
	float logits[N];
	float before[N];
	void *scratch;
};
FIXTURE_VARIANT(sample)
{
	enum cpu_isa isa;
};
FIXTURE_VARIANT_ADD(sample, ref){ CPU_ISA_REF };
FIXTURE_VARIANT_ADD(sample, avx2){ CPU_ISA_AVX2 };
FIXTURE_VARIANT_ADD(sample, avx512){ CPU_ISA_AVX512 };

static void *scratch_alloc(uint32_t n)
{
	size_t bytes = (sample_scratch_bytes(n) + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, bytes);

	ASSERT_TRUE(p != NULL);
	memset(p, 0xcc, bytes);
	return p;
}

/* Multiples of 1/64 in [-8, 8): ties are common, and their weights are equal too. */
static void fill_logits(float *logits, uint32_t n, uint64_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		logits[i] = (float)(random_next(&seed) % 1024) / 64 - 8;
}

FIXTURE_SETUP(sample)
{
	self->kernels = cpu_kernels_get(variant->isa);
	if (!self->kernels)
		SKIP(return, "this CPU lacks the instructions");
	fill_logits(self->logits, N, 7);
	memcpy(self->before, self->logits, sizeof(self->before));
	self->scratch = scratch_alloc(N);
}
FIXTURE_TEARDOWN(sample)
{
	(void)variant;
	free(self->scratch);
}

static int32_t take(const struct cpu_kernels *kernels, float *logits,
		    uint32_t n, struct backend_sample s, void *scratch)
{
	s.token = -77;
	sample_row(kernels, logits, n, &s, scratch);
	EXPECT_GE(s.token, 0);
	EXPECT_LT(s.token, (int32_t)n);
	return s.token;
}

/* ---- what is expected ------------------------------------------------------ */

/* Philox4x32-10, all four words. */
static void philox_block(const uint32_t key[2], const uint32_t in[4],
			 uint32_t out[4])
{
	uint32_t k[2] = { key[0], key[1] };

	memcpy(out, in, 4 * sizeof(*out));
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)out[0] * 0xD2511F53,
			 p1 = (uint64_t)out[2] * 0xCD9E8D57;
		uint32_t was1 = out[1], was3 = out[3];

		out[0] = (uint32_t)(p1 >> 32) ^ was1 ^ k[0];
		out[1] = (uint32_t)p1;
		out[2] = (uint32_t)(p0 >> 32) ^ was3 ^ k[1];
		out[3] = (uint32_t)p0;
		k[0] += 0x9E3779B9;
		k[1] += 0xBB67AE85;
	}
}

static double uniform(const struct backend_sample *s, uint32_t id)
{
	uint32_t key[2] = { (uint32_t)s->seed, (uint32_t)(s->seed >> 32) };
	uint32_t in[4] = { s->choice, s->position, id, 0 }, out[4];

	philox_block(key, in, out);
	return ((double)out[0] + 0.5) / 4294967296.0;
}

struct want {
	uint32_t nr; /* candidates left */
	uint32_t ids[N]; /* heaviest first, lower id among equals */
	double p[N]; /* [n], by id; 0: not a candidate */
};

static const float *sort_logits;

static int by_weight(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
	float x = sort_logits[a], y = sort_logits[b];

	if (x != y)
		return x > y ? -1 : 1;
	return a < b ? -1 : 1;
}

/* Temperature, then top-k, then top-p of what is left, then min-p. NaN is no candidate. */
static void expect_candidates(const float *logits, uint32_t n,
			      const struct backend_sample *s, struct want *want)
{
	double sum = 0, acc = 0, total = 0, w[N];
	uint32_t nr = 0, kept = 0;

	for (uint32_t i = 0; i < n; i++)
		if (!isnan(logits[i]))
			want->ids[nr++] = i;
	sort_logits = logits;
	qsort(want->ids, nr, sizeof(want->ids[0]), by_weight);
	for (uint32_t i = 0; i < nr; i++)
		w[i] = exp(((double)logits[want->ids[i]] -
			    (double)logits[want->ids[0]]) /
			   (double)s->temperature);
	if (s->top_k && s->top_k < nr)
		nr = s->top_k;
	for (uint32_t i = 0; i < nr; i++)
		sum += w[i];
	if (s->top_p < 1) {
		do
			acc += w[kept++];
		while (kept < nr && acc < (double)s->top_p * sum);
		nr = kept;
	}
	while (nr > 1 && w[nr - 1] < (double)s->min_p)
		nr--;
	memset(want->p, 0, sizeof(want->p));
	for (uint32_t i = 0; i < nr; i++)
		total += w[i];
	for (uint32_t i = 0; i < nr; i++)
		want->p[want->ids[i]] = w[i] / total;
	want->nr = nr;
}

/* The race run in full. *out_gap: by how much the second was slower, relative. */
static int32_t expect_winner(const struct want *want,
			     const struct backend_sample *s, double *out_gap)
{
	double best = INFINITY, second = INFINITY;
	int32_t winner = -1;

	for (uint32_t i = 0; i < want->nr; i++) {
		double e =
			-log(uniform(s, want->ids[i])) / want->p[want->ids[i]];

		if (e < best) {
			second = best;
			best = e;
			winner = (int32_t)want->ids[i];
		} else if (e < second) {
			second = e;
		}
	}
	*out_gap = (second - best) / best;
	return winner;
}

TEST(the_reference_is_the_published_philox)
{
	static const struct {
		uint32_t key[2], in[4], out[4];
	} known[] = {
		{ { 0 },
		  { 0 },
		  { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff },
		  { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0xa4093822, 0x299f31d0 },
		  { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		uint32_t out[4];

		philox_block(known[i].key, known[i].in, out);
		EXPECT_MEMEQ(known[i].out, out, sizeof(out));
	}
}

/* ---- greedy ----------------------------------------------------------------- */

TEST_F(sample, greedy_takes_the_largest_and_the_lower_id_among_equals)
{
	static const uint32_t places[] = { 0, 1, 15, 16, 17, 511, 1000, 1002 };
	struct backend_sample s = { .top_p = 1 };

	for (size_t a = 0; a < 8; a++) {
		for (size_t b = a; b < 8; b++) {
			fill_logits(self->logits, N, 9);
			self->logits[places[a]] = self->logits[places[b]] =
				8.5f;
			EXPECT_EQ(places[a], take(self->kernels, self->logits,
						  N, s, self->scratch));
		}
	}
	for (uint32_t i = 0; i < N; i++)
		self->logits[i] = -3;
	EXPECT_EQ(0, take(self->kernels, self->logits, N, s, self->scratch));
	self->logits[0] = -INFINITY;
	EXPECT_EQ(1, take(self->kernels, self->logits, N, s, self->scratch));
}

TEST_F(sample, nan_is_never_drawn)
{
	static const struct backend_sample ways[] = {
		{ .top_p = 1 },
		{ .top_p = 1, .temperature = 1 },
		{ .top_p = 1, .temperature = 1, .top_k = 5 },
		{ .top_p = 1, .temperature = 1, .top_k = 900 },
		{ .top_p = 0.9f, .temperature = 1 },
		{ .top_p = 0.9f, .temperature = 2, .top_k = 700 },
		{ .top_p = 1, .temperature = 1, .min_p = 0.01f },
	};

	for (uint32_t i = 0; i < N; i++)
		if (i % 3 != 1)
			self->logits[i] = NAN;
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		for (uint32_t pos = 0; pos < 400; pos++) {
			struct backend_sample s = ways[w];

			s.position = pos;
			EXPECT_EQ(1, take(self->kernels, self->logits, N, s,
					  self->scratch) %
					     3)
			{
				TH_LOG("way %zu, position %u", w, pos);
				return;
			}
		}
	}
	/* Infinity is a number: the largest. */
	self->logits[700] = INFINITY;
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++)
		EXPECT_EQ(700, take(self->kernels, self->logits, N, ways[w],
				    self->scratch));
	for (uint32_t i = 0; i < N; i++)
		self->logits[i] = i == 500 ? -1e30f : NAN;
	EXPECT_EQ(500,
		  take(self->kernels, self->logits, N, ways[0], self->scratch));
}

/* ---- filters ------------------------------------------------------------------ */

/* What each way of drawing allows; the logits are full of ties. */
static const struct backend_sample ways[] = {
	{ .temperature = 1, .top_p = 1 },
	{ .temperature = 0.3f, .top_p = 1 },
	{ .temperature = 4, .top_p = 1 },
	{ .temperature = 1, .top_p = 1, .top_k = 1 },
	{ .temperature = 1, .top_p = 1, .top_k = 7 },
	{ .temperature = 2, .top_p = 1, .top_k = 40 },
	{ .temperature = 3, .top_p = 1, .top_k = N - 1 },
	{ .temperature = 1, .top_p = 1, .top_k = N + 5 },
	{ .temperature = 1, .top_p = 0 },
	{ .temperature = 1, .top_p = 0.31f },
	{ .temperature = 1.5f, .top_p = 0.9f },
	{ .temperature = 1, .top_p = 1, .min_p = 0.21f },
	{ .temperature = 2, .top_p = 1, .min_p = 0.03f },
	{ .temperature = 1, .top_p = 1, .min_p = 1 },
	{ .temperature = 2, .top_p = 0.8f, .top_k = 50 },
	{ .temperature = 2, .top_p = 0.95f, .top_k = 60, .min_p = 0.31f },
	{ .temperature = 1, .top_p = 0.7f, .min_p = 0.3f },
};

enum { NR_WAYS = sizeof(ways) / sizeof(ways[0]) };

/* Chi-square of @counts against the probabilities; rare tokens share one cell. */
static void expect_frequencies(const struct want *want, const uint32_t *counts,
			       uint32_t nr_draws, uint32_t n, size_t way)
{
	double chi = 0, rest_p = 0, rest_nr = 0;
	uint32_t nr_cells = 0;

	for (uint32_t i = 0; i < n; i++) {
		double e = want->p[i] * nr_draws;

		if (want->p[i] == 0)
			EXPECT_EQ(0, counts[i])
			{
				TH_LOG("way %zu drew token %u, which is filtered out",
				       way, i);
			}
		if (e < 8) {
			rest_p += e;
			rest_nr += counts[i];
			continue;
		}
		chi += (counts[i] - e) * (counts[i] - e) / e;
		nr_cells++;
	}
	if (rest_p >= 8) {
		chi += (rest_nr - rest_p) * (rest_nr - rest_p) / rest_p;
		nr_cells++;
	}
	if (nr_cells < 2)
		return;
	/* Mean df, deviation sqrt(2 df): four of them are left to the fixed seed. */
	EXPECT_LE(chi, nr_cells - 1 + 4 * sqrt(2.0 * (nr_cells - 1)) + 4)
	{
		TH_LOG("way %zu: chi-square %.1f in %u cells", way, chi,
		       nr_cells);
	}
}

TEST_F_TIMEOUT(sample, draws_follow_softmax_over_what_the_filters_leave, 60)
{
	enum { SMALL = 61 };
	struct want want;

	for (size_t w = 0; w < NR_WAYS; w++) {
		uint32_t counts[SMALL] = { 0 };
		struct backend_sample s = ways[w];

		fill_logits(self->logits, SMALL, 100 + w);
		for (uint32_t i = 0; i < SMALL; i++)
			self->logits[i] *=
				0.5f; /* flat enough that most tokens are drawn */
		if (s.top_k == N - 1)
			s.top_k = SMALL - 1;
		expect_candidates(self->logits, SMALL, &s, &want);
		s.seed = 0x0123456789abcdefu;
		for (uint32_t pos = 0; pos < NR_DRAWS; pos++) {
			s.position = pos;
			counts[take(self->kernels, self->logits, SMALL, s,
				    self->scratch)]++;
		}
		expect_frequencies(&want, counts, NR_DRAWS, SMALL, w);
	}
}

TEST_F_TIMEOUT(sample, the_token_is_the_winner_of_the_race, 60)
{
	struct want want;
	uint32_t nr_close = 0;

	for (size_t w = 0; w < NR_WAYS; w++) {
		for (uint32_t i = 0; i < 150; i++) {
			struct backend_sample s = ways[w];
			double gap;
			int32_t winner;

			s.seed = i * 0x9e3779b97f4a7c15u;
			s.choice = i % 5;
			s.position = i * 31;
			if (i % 50 == 0) {
				fill_logits(self->logits, N, i + w * 977);
				for (uint32_t k = 100; i == 100 && k < N;
				     k += 7)
					self->logits[k] =
						NAN; /* takes nobody's place */
				expect_candidates(self->logits, N, &s, &want);
			}
			winner = expect_winner(&want, &s, &gap);
			if (gap <
			    1e-5) { /* float weights may decide it otherwise */
				nr_close++;
				continue;
			}
			EXPECT_EQ(winner, take(self->kernels, self->logits, N,
					       s, self->scratch))
			{
				TH_LOG("way %zu, draw %u, %u candidates", w, i,
				       want.nr);
				return;
			}
		}
	}
	EXPECT_LE(nr_close, 5);
}

/* Tokens ever drawn, at a temperature so high that each candidate has its chance. */
static uint32_t drawn_set(const struct cpu_kernels *kernels, float *logits,
			  uint32_t n, struct backend_sample s, void *scratch)
{
	uint32_t set = 0;

	for (s.position = 0; s.position < 3000; s.position++)
		set |= 1u << take(kernels, logits, n, s, scratch);
	return set;
}

TEST_F(sample, filters_cut_exactly)
{
	/* Probabilities 0.1 0.3 0.05 0.4 0.05 0.05 0.05 at temperature 1. */
	static const double p[7] = { 0.1, 0.3, 0.05, 0.4, 0.05, 0.05, 0.05 };
	static const struct {
		struct backend_sample s;
		uint32_t set; /* bit per id */
	} cuts[] = {
		{ { .top_p = 1 }, 0x7f },
		{ { .top_p = 1, .top_k = 3 }, 0x0b },
		{ { .top_p = 1, .top_k = 4 },
		  0x0f }, /* of the equal ones the lowest id */
		{ { .top_p = 1, .top_k = 5 }, 0x1f },
		{ { .top_p = 1, .top_k = 6 }, 0x3f },
		{ { .top_p = 0.39f }, 0x08 },
		{ { .top_p = 0.41f }, 0x0a },
		{ { .top_p = 0.69f }, 0x0a },
		{ { .top_p = 0.71f }, 0x0b },
		{ { .top_p = 0.81f }, 0x0f },
		{ { .top_p = 0.94f }, 0x3f },
		{ { .top_p = 0.96f }, 0x7f },
		{ { .top_p = 1, .min_p = 0.74f }, 0x0a },
		{ { .top_p = 1, .min_p = 0.76f }, 0x08 },
		{ { .top_p = 1, .min_p = 0.24f }, 0x0b },
		{ { .top_p = 1, .min_p = 0.12f }, 0x7f },
		/* top_p is of what top_k left: 0.4 of 0.7 is 0.571. */
		{ { .top_p = 0.56f, .top_k = 2 }, 0x08 },
		{ { .top_p = 0.58f, .top_k = 2 }, 0x0a },
		/* min_p is against the heaviest, whatever was cut before. */
		{ { .top_p = 0.81f, .min_p = 0.2f }, 0x0b },
		{ { .top_p = 0.81f, .top_k = 6, .min_p = 0.1f }, 0x0b },
		{ { .top_p = 0.86f, .top_k = 6, .min_p = 0.1f }, 0x0f },
	};

	for (int i = 0; i < 7; i++)
		self->logits[i] = (float)log(p[i]);
	/* Bits of the equal ones must be equal. */
	self->logits[4] = self->logits[5] = self->logits[6] = self->logits[2];
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		struct backend_sample s = cuts[i].s;

		s.temperature = 1;
		EXPECT_EQ(cuts[i].set, drawn_set(self->kernels, self->logits, 7,
						 s, self->scratch))
		{
			TH_LOG("cut %zu", i);
		}
	}
}

/* ---- random numbers --------------------------------------------------------------- */

/* Of @nr draws, how many agree between two streams that differ by the given steps. */
static double agreement(struct cpu_kernels const *kernels, float *logits,
			uint32_t n, void *scratch, uint64_t seed_step,
			uint32_t choice_step, uint32_t position_step)
{
	uint32_t nr_equal = 0;

	for (uint32_t i = 0; i < 4000; i++) {
		struct backend_sample a = {
			.temperature = 1, .top_p = 1, .seed = 42, .position = i
		};
		struct backend_sample b = a;

		b.seed += seed_step;
		b.choice += choice_step;
		b.position += position_step;
		nr_equal += take(kernels, logits, n, a, scratch) ==
			    take(kernels, logits, n, b, scratch);
	}
	return nr_equal / 4000.0;
}

TEST_F(sample, seed_choice_and_position_each_give_an_independent_draw)
{
	static const struct {
		uint64_t seed;
		uint32_t choice, position;
	} steps[] = { { 1, 0, 0 },   { 1ull << 32, 0, 0 },
		      { 0, 1, 0 },   { 0, 1u << 31, 0 },
		      { 0, 0, 1 },   { 0, 0, 100000 },
		      { 1, 0, -1u }, { -1ull, 1, 0 } };
	struct backend_sample s = { .temperature = 1, .top_p = 1 };
	double same = 0, deviation;
	struct want want;

	fill_logits(self->logits, 31, 3);
	for (int i = 0; i < 31; i++)
		self->logits[i] *= 0.25f;
	expect_candidates(self->logits, 31, &s, &want);
	for (int i = 0; i < 31; i++)
		same += want.p[i] * want.p[i];
	deviation = sqrt(same * (1 - same) / 4000);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		EXPECT_NEAR(same,
			    agreement(self->kernels, self->logits, 31,
				      self->scratch, steps[i].seed,
				      steps[i].choice, steps[i].position),
			    4.5 * deviation)
		{
			TH_LOG("step %zu", i);
		}
	EXPECT_EQ(1, agreement(self->kernels, self->logits, 31, self->scratch,
			       0, 0, 0));
}

TEST_F(sample, draws_are_the_same_on_every_instruction_set)
{
	const struct cpu_kernels *ref = cpu_kernels_get(CPU_ISA_REF);
	void *other = scratch_alloc(N);

	for (uint32_t n = N - 40; n <= N; n += 5) {
		for (size_t w = 0; w < NR_WAYS; w++) {
			struct backend_sample a = ways[w], b;

			a.position = n;
			a.seed = w;
			a.want_logprob = true;
			a.nr_top = 9;
			b = a;
			sample_row(ref, self->logits, n, &a, other);
			sample_row(self->kernels, self->logits, n, &b,
				   self->scratch);
			EXPECT_EQ(a.token, b.token);
			EXPECT_MEMEQ(&a.logprob, &b.logprob, sizeof(a.logprob));
			EXPECT_MEMEQ(a.top_ids, b.top_ids, sizeof(a.top_ids));
			EXPECT_MEMEQ(a.top_logprobs, b.top_logprobs,
				     sizeof(a.top_logprobs));
		}
	}
	free(other);
}

/* ---- bans and log probabilities ------------------------------------------------------ */

TEST_F(sample, banned_tokens_are_never_drawn_and_logits_come_back)
{
	int32_t banned[BACKEND_MAX_BANNED];
	struct backend_sample none = { .temperature = 1, .top_p = 1 };
	struct want want;

	/* The likeliest of all; and one of them twice. */
	expect_candidates(self->logits, N, &none, &want);
	for (int i = 0; i < BACKEND_MAX_BANNED - 1; i++)
		banned[i] = (int32_t)want.ids[i];
	banned[BACKEND_MAX_BANNED - 1] = banned[3];
	for (size_t w = 0; w <= NR_WAYS; w++) {
		struct backend_sample s =
			w < NR_WAYS ? ways[w] :
				      (struct backend_sample){ .top_p = 1 };

		s.banned = banned;
		s.nr_banned = BACKEND_MAX_BANNED;
		for (s.position = 0; s.position < 200; s.position++) {
			int32_t token = take(self->kernels, self->logits, N, s,
					     self->scratch);

			for (int i = 0; i < BACKEND_MAX_BANNED; i++)
				EXPECT_NE(banned[i], token);
			if (w == NR_WAYS || s.top_k == 1)
				EXPECT_EQ(want.ids[BACKEND_MAX_BANNED - 1],
					  token);
		}
	}
	EXPECT_MEMEQ(self->before, self->logits, sizeof(self->before));
}

static double log_softmax(const float *logits, uint32_t n, uint32_t id)
{
	double max = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		max = (double)logits[i] > max ? (double)logits[i] : max;
	for (uint32_t i = 0; i < n; i++)
		sum += exp((double)logits[i] - max);
	return (double)logits[id] - max - log(sum);
}

TEST_F(sample, log_probabilities_are_those_of_the_model_itself)
{
	struct want want;
	struct backend_sample none = { .temperature = 1, .top_p = 1 };

	expect_candidates(self->logits, N, &none, &want);
	for (size_t w = 0; w < NR_WAYS; w++) {
		struct backend_sample s = ways[w];
		int32_t banned = (int32_t)want.ids[0];

		s.want_logprob = true;
		s.nr_top = BACKEND_MAX_TOP;
		s.position = (uint32_t)w;
		/* A ban changes who is drawn, not what the model thought. */
		s.banned = &banned;
		s.nr_banned = w % 2;
		memset(s.top_ids, 0xcc, sizeof(s.top_ids));
		sample_row(self->kernels, self->logits, N, &s, self->scratch);
		/* Sums of a thousand float exponentials: a few units in the last place of 8. */
		EXPECT_NEAR(log_softmax(self->logits, N, (uint32_t)s.token),
			    (double)s.logprob, 3e-6);
		ASSERT_EQ(BACKEND_MAX_TOP, s.nr_top);
		for (uint32_t i = 0; i < s.nr_top; i++) {
			EXPECT_EQ(want.ids[i], s.top_ids[i]);
			EXPECT_NEAR(log_softmax(self->logits, N, want.ids[i]),
				    (double)s.top_logprobs[i], 3e-6);
			if ((int32_t)want.ids[i] == s.token)
				EXPECT_EQ(s.logprob, s.top_logprobs[i]);
		}
	}
}

TEST_F(sample, top_lists_are_as_long_as_asked_or_as_the_vocabulary)
{
	struct want want;
	struct backend_sample none = { .temperature = 1, .top_p = 1 };

	for (uint32_t n = 1; n < 30; n++) {
		for (uint32_t nr = 0; nr <= BACKEND_MAX_TOP; nr++) {
			struct backend_sample s = { .top_p = 1, .nr_top = nr };

			fill_logits(self->logits, n, n);
			expect_candidates(self->logits, n, &none, &want);
			sample_row(self->kernels, self->logits, n, &s,
				   self->scratch);
			ASSERT_EQ(nr < n ? nr : n, s.nr_top);
			for (uint32_t i = 0; i < s.nr_top; i++)
				EXPECT_EQ(want.ids[i], s.top_ids[i]);
		}
	}
}

TEST_F(sample, scratch_is_not_overrun)
{
	size_t bytes = sample_scratch_bytes(N);
	uint8_t *scratch = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
	int32_t banned[BACKEND_MAX_BANNED];

	ASSERT_TRUE(scratch != NULL);
	memset(scratch, 0xa5, (bytes + 127) & ~(size_t)63);
	for (int i = 0; i < BACKEND_MAX_BANNED; i++)
		banned[i] = i;
	for (size_t w = 0; w < NR_WAYS; w++) {
		struct backend_sample s = ways[w];

		s.banned = banned;
		s.nr_banned = BACKEND_MAX_BANNED;
		take(self->kernels, self->logits, N, s, scratch);
	}
	for (size_t i = bytes; i < ((bytes + 127) & ~(size_t)63); i++)
		ASSERT_EQ(0xa5, scratch[i]);
	free(scratch);
}

/* ---- tokens that are allowed ------------------------------------------------ */

/* One sampler of each kind, and some together. */
static const struct backend_sample limited[] = {
	{ .temperature = 0 },
	{ .temperature = 0.8f, .top_p = 1 },
	{ .temperature = 1, .top_p = 1, .top_k = 7 },
	{ .temperature = 1, .top_p = 0.8f },
	{ .temperature = 1, .top_p = 1, .min_p = 0.1f },
	{ .temperature = 1, .top_p = 1, .typical_p = 0.5f },
	{ .temperature = 1, .top_p = 1, .top_n_sigma = 1 },
	{ .temperature = 1,
	  .top_p = 1,
	  .xtc_probability = 1,
	  .xtc_threshold = 0.01f },
	{ .temperature = 1,
	  .top_p = 1,
	  .xtc_probability = 1,
	  .xtc_threshold = 0 },
	{ .temperature = 1, .top_p = 1, .mirostat_tau = 3, .mirostat_mu = 6 },
	{ .temperature = 1.2f, .top_p = 0.9f, .top_k = 90, .min_p = 0.01f },
};

TEST_F(sample, draws_only_what_is_allowed_as_if_the_rest_were_not_there)
{
	uint64_t allowed[(N + 63) / 64], seed = 5;
	float *alone = malloc(N * sizeof(*alone));

	for (int round = 0; round < 200; round++) {
		struct backend_sample s =
			limited[round % (sizeof(limited) / sizeof(s))];
		const uint64_t one_in = 1 + random_next(&seed) % 40;
		int32_t token;

		memset(allowed, 0, sizeof(allowed));
		allowed[round % N >> 6] |= 1ull << (round % N & 63);
		for (uint32_t id = 0; id < N; id++) {
			if (random_next(&seed) % one_in == 0)
				allowed[id >> 6] |= 1ull << (id & 63);
			alone[id] = allowed[id >> 6] >> (id & 63) & 1 ?
					    self->logits[id] :
					    -INFINITY;
		}
		s.seed = (uint64_t)round;
		s.want_logprob = true;
		s.allowed = allowed;
		token = take(self->kernels, self->logits, N, s, self->scratch);
		EXPECT_TRUE(allowed[token >> 6] >> (token & 63) & 1);
		s.allowed = NULL;
		/* Of what weighs nothing XTC would take one here. */
		if (s.xtc_probability == 0 || s.xtc_threshold > 0)
			EXPECT_EQ(take(self->kernels, alone, N, s,
				       self->scratch),
				  token)
			{
				TH_LOG("round %d", round);
			}
		EXPECT_EQ(0, memcmp(self->before, self->logits,
				    sizeof(self->before)));
	}
	free(alone);
}

TEST_F(sample, excludes_top_choices_among_what_is_allowed)
{
	uint64_t allowed[(N + 63) / 64] = { [1] = 7ull << 20 };
	struct backend_sample s = { .temperature = 1,
				    .top_p = 1,
				    .xtc_probability = 1,
				    .allowed = allowed };

	/* With a threshold of 0 all are top choices, and the lightest stays. */
	self->logits[84] = 1;
	self->logits[85] = -3;
	self->logits[86] = 2;
	EXPECT_EQ(85, take(self->kernels, self->logits, N, s, self->scratch));
}

TEST_F(sample, reports_the_models_log_probability_of_what_is_allowed)
{
	uint64_t allowed[(N + 63) / 64] = { [3] = 1ull << 8 };
	struct backend_sample s = { .temperature = 1,
				    .top_p = 1,
				    .want_logprob = true,
				    .nr_top = 2,
				    .allowed = allowed };
	struct backend_sample free_one;

	sample_row(self->kernels, self->logits, N, &s, self->scratch);
	EXPECT_EQ(200, s.token);
	free_one = s;
	free_one.allowed = NULL;
	sample_row(self->kernels, self->logits, N, &free_one, self->scratch);
	EXPECT_EQ(free_one.top_ids[0], s.top_ids[0]);
	EXPECT_TRUE(s.logprob -
			    (self->logits[200] - self->logits[free_one.token]) -
			    free_one.logprob <
		    1e-4f);
}

TEST_F(sample, draws_what_is_allowed_where_no_logit_is_a_number)
{
	uint64_t allowed[(N + 63) / 64] = { [5] = 3ull << 9 };

	for (size_t i = 0; i < sizeof(limited) / sizeof(limited[0]); i++)
		for (int k = 0; k < 2; k++) {
			struct backend_sample s = limited[i];

			for (uint32_t id = 0; id < N; id++)
				self->logits[id] = k ? NAN : -INFINITY;
			s.allowed = allowed;
			s.seed = i;
			EXPECT_EQ(329, take(self->kernels, self->logits, N, s,
					    self->scratch) &
					       ~2);
		}
}

TEST_HARNESS_MAIN
