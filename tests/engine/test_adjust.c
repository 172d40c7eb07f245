/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Penalties and biases (engine/adjust.h): the list of changes after every token of random texts
 * against a plain count of the whole text, and DRY against the search that its author describes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/adjust.h"
#include "tests/harness.h"
#include "tests/random.h"

enum { NR_VOCAB = 60, NR_TOKENS = 300, NR_PROMPT = 70 };

FIXTURE(adjust)
{
	int32_t tokens[NR_TOKENS];
	struct tarn_sampling s;
	struct adjust *a;
};

/* Half random, half copies of what stood before: repetitions of all lengths. */
static void fill_tokens(struct fixture_adjust *self, uint64_t seed)
{
	uint32_t nr = 0;

	while (nr < NR_TOKENS) {
		uint32_t len = 1 + (uint32_t)random_next(&seed) % 9, from = 0;
		bool is_copy = nr > 12 && random_next(&seed) % 2;

		if (is_copy)
			from = (uint32_t)random_next(&seed) % (nr - 10);
		for (uint32_t i = 0; i < len && nr < NR_TOKENS; i++)
			self->tokens[nr++] =
				is_copy ? self->tokens[from + i] :
					  (int32_t)(random_next(&seed) %
						    NR_VOCAB);
	}
}

FIXTURE_SETUP(adjust)
{
	fill_tokens(self, 3);
	self->s.top_p = 1;
	self->s.repetition_penalty = 1;
}
FIXTURE_TEARDOWN(adjust)
{
	adjust_destroy(self->a);
}

static void create_ok(struct fixture_adjust *self, uint32_t nr_tokens)
{
	adjust_destroy(self->a);
	ASSERT_EQ(0,
		  adjust_create(&self->s, self->tokens, nr_tokens,
				nr_tokens < NR_PROMPT ? nr_tokens : NR_PROMPT,
				&self->a));
}

/* ---- the plain way ---------------------------------------------------------------- */

/* Length of the longest repetition that @next would lengthen, by looking at every place. */
static uint32_t plain_dry(const int32_t *t, uint32_t nr,
			  const uint64_t *breakers, int32_t next)
{
	uint32_t best = 0;

	if (dry_is_breaker(breakers, t[nr - 1]) ||
	    dry_is_breaker(breakers, next))
		return 0;
	for (uint32_t i = 0; i + 1 < nr; i++) {
		uint32_t len = 0;

		if (t[i] != t[nr - 1] || t[i + 1] != next)
			continue;
		while (len <= i && t[i - len] == t[nr - 1 - len] &&
		       !dry_is_breaker(breakers, t[nr - 1 - len]))
			len++;
		best = len > best ? len : best;
	}
	return best;
}

static double plain_penalty(const struct tarn_sampling *s, const int32_t *t,
			    uint32_t nr, uint32_t nr_prompt, int32_t id)
{
	uint32_t nr_answer = 0, from = 0, len;
	double penalty = 0;

	for (uint32_t i = nr_prompt; i < nr; i++)
		nr_answer += t[i] == id;
	if (nr_answer)
		penalty = (double)s->presence_penalty +
			  (double)s->frequency_penalty * nr_answer;
	if (s->dry_multiplier <= 0)
		return penalty;
	if (s->dry_window && nr > s->dry_window)
		from = nr - s->dry_window;
	len = plain_dry(t + from, nr - from, s->dry_breakers, id);
	if (len && len >= s->dry_allowed_length)
		penalty +=
			(double)s->dry_multiplier *
			pow((double)s->dry_base, len - s->dry_allowed_length);
	return penalty;
}

static bool is_in_window(const struct tarn_sampling *s, const int32_t *t,
			 uint32_t nr, int32_t id)
{
	uint32_t from = s->repetition_window && nr > s->repetition_window ?
				nr - s->repetition_window :
				0;

	for (uint32_t i = from; i < nr; i++)
		if (t[i] == id)
			return true;
	return false;
}

static float plain_bias(const struct tarn_sampling *s, int32_t id)
{
	for (uint32_t i = 0; i < s->nr_biases; i++)
		if (s->biases[i].id == id)
			return s->biases[i].bias;
	return 0;
}

static void expect_list(struct fixture_adjust *self, uint32_t nr)
{
	const struct tarn_sampling *s = &self->s;
	const uint32_t nr_prompt = nr < NR_PROMPT ? nr : NR_PROMPT;
	struct backend_adjust found[NR_VOCAB] = { 0 };
	const struct backend_adjust *list;
	uint32_t nr_list;

	list = adjust_list(self->a, self->tokens, nr, &nr_list);
	for (uint32_t i = 0; i < nr_list; i++) {
		EXPECT_EQ(0, found[list[i].id].repetition); /* every id once */
		found[list[i].id] = list[i];
	}
	for (int32_t id = 0; id < NR_VOCAB; id++) {
		double penalty =
			plain_penalty(s, self->tokens, nr, nr_prompt, id);
		float repetition = is_in_window(s, self->tokens, nr, id) ?
					   s->repetition_penalty :
					   1;
		float bias = plain_bias(s, id);

		if (!found[id].repetition) /* not in the list: nothing to change */
			found[id].repetition = 1;
		EXPECT_TRUE(fabs((double)found[id].penalty - penalty) <=
				    1e-5 * fabs(penalty) &&
			    found[id].repetition == repetition &&
			    found[id].bias == bias)
		{
			TH_LOG("after %u tokens, id %d: penalty %g, want %g; "
			       "repetition %g, want %g; bias %g, want %g",
			       nr, id, (double)found[id].penalty, penalty,
			       (double)found[id].repetition, (double)repetition,
			       (double)found[id].bias, (double)bias);
			return;
		}
	}
}

/* Token by token, and made anew in the middle as a fork is: the same list. */
static void expect_all(struct fixture_adjust *self)
{
	for (uint64_t seed = 1; seed < 6; seed++) {
		fill_tokens(self, seed);
		create_ok(self, NR_PROMPT);
		for (uint32_t nr = NR_PROMPT; nr < NR_TOKENS; nr++) {
			expect_list(self, nr);
			if (nr % 50 == 0)
				create_ok(self, nr);
			ASSERT_EQ(0,
				  adjust_note(self->a, self->tokens, nr + 1));
		}
	}
}

/* ---- tests ------------------------------------------------------------------------------ */

TEST_F(adjust, nothing_asked_for_is_no_state_at_all)
{
	create_ok(self, NR_PROMPT);
	EXPECT_EQ(NULL, self->a);
	self->s.repetition_penalty = 0; /* off as well */
	create_ok(self, NR_PROMPT);
	EXPECT_EQ(NULL, self->a);
}

TEST_F(adjust, presence_and_frequency_count_the_answer)
{
	self->s.presence_penalty = 0.75f;
	expect_all(self);
	self->s.frequency_penalty = -0.3f;
	expect_all(self);
}

TEST_F(adjust, repetition_sees_its_window)
{
	static const uint32_t windows[] = { 0, 1, 2, 64, NR_PROMPT, 500 };

	self->s.repetition_penalty = 1.3f;
	for (size_t i = 0; i < 6; i++) {
		self->s.repetition_window = windows[i];
		expect_all(self);
	}
}

TEST_F(adjust, biases_stand_whether_a_token_was_seen_or_not)
{
	static const struct tarn_logit_bias biases[] = { { 39, -100 },
							 { 0, 5.5f },
							 { 7, 0.25f } };

	self->s.biases = biases;
	self->s.nr_biases = 3;
	expect_all(self);
	self->s.presence_penalty = 1;
	self->s.repetition_penalty = 0.8f;
	expect_all(self);
}

TEST_F(adjust, dry_penalises_what_would_lengthen_a_repetition)
{
	uint64_t breakers[1] = { 0 };

	self->s.dry_multiplier = 0.8f;
	self->s.dry_base = 1.75f;
	for (uint32_t allowed = 0; allowed < 5; allowed++) {
		self->s.dry_allowed_length = allowed;
		expect_all(self);
	}
	self->s.dry_allowed_length = 2;
	self->s.dry_breakers = breakers;
	for (uint32_t i = 0; i < 40; i += 13) {
		breakers[0] |= 1ull << i;
		expect_all(self);
	}
	self->s.dry_window = 25;
	self->s.frequency_penalty = 0.5f;
	expect_all(self);
}

TEST_F(adjust, dry_of_one_token_again_and_again_stays_finite_and_linear)
{
	enum { NR = 400000 };
	static int32_t same[NR];
	static uint32_t lengths[NR];
	struct backend_adjust change;
	uint32_t nr = 0;

	/* The square of this many comparisons would take minutes. */
	dry_lengths(same, NR, NULL, lengths);
	for (uint32_t i = 0; i < NR; i++)
		if (lengths[i] != NR - i)
			break;
		else
			nr++;
	EXPECT_EQ(NR, nr);
	self->s.dry_multiplier = 1;
	self->s.dry_base = 4;
	self->s.dry_allowed_length = 1;
	ASSERT_EQ(0, adjust_create(&self->s, same, NR, 10, &self->a));
	change = *adjust_list(self->a, same, NR, &nr);
	EXPECT_EQ(1, nr);
	EXPECT_EQ(1e30f, change.penalty);
}

TEST_HARNESS_MAIN
