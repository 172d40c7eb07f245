/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log probabilities of a prompt (tarn_seq_scores) on a tiny model: those that a plain log softmax
 * gives of the logits after each token, whatever the pieces, with and without company.
 */
#include <errno.h>
#include <math.h>

#include "engine/engine.h"
#include "tests/harness.h"
#include "tests/engine/tiny_engine.h"

enum { NR_PROMPT = 90, NR_TOP = 4 };

FIXTURE(scores)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	uint32_t nr_vocab;
	int32_t prompt[NR_PROMPT];
};

FIXTURE_SETUP(scores)
{
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tarn_engine_options options = { .nr_threads = 2,
					       .kv_bytes = 1 << 20 };

	tiny_create(&self->model, &spec);
	self->engine = tiny_engine_open(&self->model, options);
	self->nr_vocab = tarn_engine_info(self->engine)->nr_vocab;
	for (uint32_t i = 0; i < NR_PROMPT; i++)
		self->prompt[i] = (int32_t)(3 + tiny_u32(&self->model) % 256);
}
FIXTURE_TEARDOWN(scores)
{
	struct tarn_engine_stat stat;

	tarn_engine_stat(self->engine, &stat);
	EXPECT_EQ(0, stat.nr_seqs);
	tarn_engine_destroy(self->engine);
	tiny_destroy(&self->model);
}

static struct tarn_seq *open_ok(struct fixture_scores *self, uint32_t nr_prompt,
				bool score_prompt, uint32_t nr_choices)
{
	struct tarn_seq_params p = {
		.prompt = self->prompt,
		.nr_prompt = nr_prompt,
		.max_new_tokens = 4,
		.nr_choices = nr_choices,
		.sampling = { .top_p = 1,
			      .ignore_eos = true,
			      .nr_logprobs = NR_TOP },
		.score_prompt = score_prompt,
	};
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	ASSERT_EQ(0, tarn_seq_create(self->engine, &p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return seq;
}

static struct tarn_result step_ok(struct fixture_scores *self,
				  struct tarn_seq *seq, uint32_t nr)
{
	struct tarn_work work = { seq, nr };
	struct tarn_result result;

	ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &result));
	ASSERT_EQ(0, result.status);
	return result;
}

/* @chunk tokens a step, until all of the prompt is computed; the answer's first token. */
static int32_t run(struct fixture_scores *self, struct tarn_seq *seq,
		   uint32_t chunk)
{
	for (;;) {
		uint32_t pending = tarn_seq_pending(seq);
		struct tarn_result result =
			step_ok(self, seq, pending < chunk ? pending : chunk);

		if (result.has_token)
			return result.token;
	}
}

/* Of the logits after @nr tokens, by a sequence that ends there. */
static void expect_score(struct fixture_scores *self,
			 const struct tarn_score *score, uint32_t nr)
{
	struct tarn_seq *seq = open_ok(self, nr, false, 1);
	const float *logits;
	double max = -INFINITY, sum = 0, log_sum;
	uint32_t nr_above = 0;

	run(self, seq, 500);
	logits = tarn_step_logits(self->engine, 0);
	ASSERT_TRUE(logits != NULL);
	for (uint32_t i = 0; i < self->nr_vocab; i++)
		max = fmax(max, (double)logits[i]);
	for (uint32_t i = 0; i < self->nr_vocab; i++)
		sum += exp((double)logits[i] - max);
	log_sum = max + log(sum);
	EXPECT_LT(fabs((double)score->logprob -
		       ((double)logits[self->prompt[nr]] - log_sum)),
		  1e-5);
	ASSERT_EQ(NR_TOP, score->nr_top);
	for (uint32_t i = 0; i < self->nr_vocab; i++)
		nr_above += logits[i] > logits[score->top[NR_TOP - 1].id];
	EXPECT_EQ(NR_TOP - 1, nr_above);
	for (uint32_t i = 0; i < NR_TOP; i++) {
		EXPECT_LT(fabs((double)score->top[i].logprob -
			       ((double)logits[score->top[i].id] - log_sum)),
			  1e-5);
		EXPECT_TRUE(i == 0 ||
			    score->top[i].logprob <= score->top[i - 1].logprob);
	}
	tarn_seq_destroy(seq);
}

TEST_F(scores, they_are_the_log_softmax_of_the_logits_before)
{
	struct tarn_seq *seq = open_ok(self, NR_PROMPT, true, 1);

	run(self, seq, TARN_MAX_SCORED);
	for (uint32_t i = 1; i < NR_PROMPT; i++)
		expect_score(self, &tarn_seq_scores(seq)[i], i);
	tarn_seq_destroy(seq);
}

TEST_F(scores, pieces_company_and_the_cache_change_no_bit)
{
	static const uint32_t chunks[] = { 1, 2, 7, TARN_MAX_SCORED };
	struct tarn_seq *first = open_ok(self, NR_PROMPT, true, 1);
	int32_t token = run(self, first, 16), plain;
	size_t bytes = NR_PROMPT * sizeof(struct tarn_score);

	for (size_t i = 0; i < 4; i++) {
		struct tarn_seq *seq = open_ok(self, NR_PROMPT, true, 1);

		EXPECT_EQ(0, tarn_seq_cached(seq));
		EXPECT_EQ(token, run(self, seq, chunks[i]));
		EXPECT_MEMEQ(tarn_seq_scores(first), tarn_seq_scores(seq),
			     bytes);
		tarn_seq_destroy(seq);
	}
	/* Beside another that wants scores, in the same steps. */
	struct tarn_seq *pair[2] = { open_ok(self, NR_PROMPT, true, 1),
				     open_ok(self, NR_PROMPT - 30, true, 1) };
	struct tarn_result results[2];

	for (uint32_t at = 0; at < NR_PROMPT; at += 30) {
		struct tarn_work work[2] = { { pair[0], 30 }, { pair[1], 30 } };

		ASSERT_EQ(0, tarn_step(self->engine, work, at < 60 ? 2 : 1,
				       results));
	}
	EXPECT_EQ(token, results[0].token);
	EXPECT_MEMEQ(tarn_seq_scores(first), tarn_seq_scores(pair[0]), bytes);
	EXPECT_MEMEQ(tarn_seq_scores(first), tarn_seq_scores(pair[1]),
		     bytes - 30 * sizeof(struct tarn_score));
	tarn_seq_destroy(pair[0]);
	tarn_seq_destroy(pair[1]);
	tarn_seq_destroy(first);
	/* Nor does scoring change the answer. */
	first = open_ok(self, NR_PROMPT, false, 1);
	EXPECT_EQ(NULL, tarn_seq_scores(first));
	plain = run(self, first, 500);
	EXPECT_EQ(plain, token);
	tarn_seq_destroy(first);
}

TEST_F(scores, choices_share_them_and_the_last_one_frees_them)
{
	struct tarn_seq *parent = open_ok(self, NR_PROMPT, true, 2), *child;
	struct tarn_score second;

	for (uint32_t nr = NR_PROMPT - 1; nr;) {
		uint32_t chunk = nr < TARN_MAX_SCORED ? nr : TARN_MAX_SCORED;

		step_ok(self, parent, chunk);
		nr -= chunk;
	}
	second = tarn_seq_scores(parent)[NR_PROMPT - 1];
	EXPECT_NE(0, second.logprob);
	ASSERT_EQ(0, tarn_seq_fork(parent, 1, &child));
	tarn_seq_destroy(parent);
	EXPECT_MEMEQ(&second, &tarn_seq_scores(child)[NR_PROMPT - 1],
		     sizeof(second));
	run(self, child, 1);
	tarn_seq_destroy(child);
}

TEST_F(scores, a_piece_that_needs_too_many_logits_is_refused)
{
	struct tarn_seq *seq = open_ok(self, NR_PROMPT, true, 1);
	struct tarn_work work = { seq, TARN_MAX_SCORED + 1 };
	struct tarn_result result;

	EXPECT_EQ(-EINVAL, tarn_step(self->engine, &work, 1, &result));
	EXPECT_EQ(NR_PROMPT, tarn_seq_pending(seq));
	tarn_seq_destroy(seq);
}

TEST_HARNESS_MAIN
