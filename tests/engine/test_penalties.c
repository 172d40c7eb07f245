/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Penalties, biases and mirostat of sequences, by the engine's public header on a tiny model: they
 * reach the draw, count what was drawn, and a fork counts for itself.
 */
#include <errno.h>

#include "engine/engine.h"
#include "tests/harness.h"
#include "tests/engine/tiny_engine.h"

enum { NR_PROMPT = 20, NR_NEW = 60, NR_VOCAB_USED = 256 };

FIXTURE(penalties)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	int32_t prompt[NR_PROMPT];
	int32_t out[NR_NEW];
};

FIXTURE_SETUP(penalties)
{
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tarn_engine_options options = { .nr_threads = 1,
					       .kv_bytes = 1 << 20 };

	tiny_create(&self->model, &spec);
	self->engine = tiny_engine_open(&self->model, options);
	for (uint32_t i = 0; i < NR_PROMPT; i++)
		self->prompt[i] =
			(int32_t)(3 + tiny_u32(&self->model) % NR_VOCAB_USED);
}
FIXTURE_TEARDOWN(penalties)
{
	tarn_engine_destroy(self->engine);
	tiny_destroy(&self->model);
}

static struct tarn_seq *open_ok(struct fixture_penalties *self,
				struct tarn_sampling s, uint32_t nr_choices)
{
	struct tarn_seq_params p = {
		.prompt = self->prompt,
		.nr_prompt = NR_PROMPT,
		.max_new_tokens = NR_NEW,
		.nr_choices = nr_choices,
		.sampling = s,
	};
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	p.sampling.top_p = 1;
	p.sampling.ignore_eos = true;
	ASSERT_EQ(0, tarn_seq_create(self->engine, &p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return seq;
}

static int32_t step(struct fixture_penalties *self, struct tarn_seq *seq)
{
	struct tarn_work work = { seq, tarn_seq_pending(seq) };
	struct tarn_result result;

	ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &result));
	ASSERT_EQ(0, result.status);
	ASSERT_TRUE(result.has_token);
	return result.token;
}

/* All new tokens into self->out; how often the commonest stands among them. */
static uint32_t run(struct fixture_penalties *self, struct tarn_sampling s)
{
	struct tarn_seq *seq = open_ok(self, s, 1);
	uint32_t most = 0;

	for (uint32_t i = 0; i < NR_NEW; i++)
		self->out[i] = step(self, seq);
	tarn_seq_destroy(seq);
	for (uint32_t i = 0; i < NR_NEW; i++) {
		uint32_t nr = 0;

		for (uint32_t k = 0; k < NR_NEW; k++)
			nr += self->out[k] == self->out[i];
		most = nr > most ? nr : most;
	}
	return most;
}

TEST_F(penalties, a_token_that_is_penalised_hard_comes_once)
{
	struct tarn_logit_bias favourite;

	run(self, (struct tarn_sampling){ 0 });
	/* A bias that makes one token the best everywhere: nothing else comes. */
	favourite = (struct tarn_logit_bias){ self->out[0], 90 };
	EXPECT_EQ(NR_NEW,
		  run(self, (struct tarn_sampling){ .biases = &favourite,
						    .nr_biases = 1 }));
	EXPECT_EQ(1,
		  run(self, (struct tarn_sampling){ .biases = &favourite,
						    .nr_biases = 1,
						    .presence_penalty = 100 }));
	EXPECT_EQ(favourite.id, self->out[0]);
	/* By 30 each time: thrice it is still the best, then no more than others. */
	run(self, (struct tarn_sampling){ .biases = &favourite,
					  .nr_biases = 1,
					  .frequency_penalty = 30 });
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(favourite.id, self->out[i]);
	EXPECT_NE(favourite.id, self->out[4]);
	favourite.bias = -100;
	run(self,
	    (struct tarn_sampling){ .biases = &favourite, .nr_biases = 1 });
	for (uint32_t i = 0; i < NR_NEW; i++)
		EXPECT_NE(favourite.id, self->out[i]);
}

TEST_F(penalties, the_prompt_counts_for_repetition_and_dry_alone)
{
	struct tarn_logit_bias favourite = { self->prompt[NR_PROMPT - 1], 80 };
	struct tarn_sampling s = { .biases = &favourite, .nr_biases = 1 };

	s.presence_penalty = 100;
	run(self, s);
	EXPECT_EQ(favourite.id, self->out[0]);
	s.presence_penalty = 0;
	s.repetition_penalty = 100;
	run(self, s);
	EXPECT_NE(favourite.id, self->out[0]);
	/* Out of the window's sight it does not count. */
	s.repetition_window = 1;
	favourite.id = self->prompt[NR_PROMPT - 2];
	run(self, s);
	EXPECT_EQ(favourite.id, self->out[0]);
	EXPECT_NE(favourite.id, self->out[1]);
	EXPECT_EQ(favourite.id, self->out[2]);
	/* DRY: a, b, ..., a: b would repeat two, and the prompt says so. */
	self->prompt[3] = self->prompt[NR_PROMPT - 1] = 70;
	self->prompt[4] = favourite.id = 71;
	s = (struct tarn_sampling){ .biases = &favourite,
				    .nr_biases = 1,
				    .dry_base = 2,
				    .dry_allowed_length = 1 };
	run(self, s);
	EXPECT_EQ(71, self->out[0]);
	s.dry_multiplier = 100;
	run(self, s);
	EXPECT_NE(71, self->out[0]);
}

TEST_F(penalties, each_choice_counts_its_own_answer)
{
	struct tarn_sampling s = { .temperature = 1.5f,
				   .seed = 4,
				   .presence_penalty = 90,
				   .mirostat_tau = 5,
				   .mirostat_eta = 0.3f };
	struct tarn_seq *parent = open_ok(self, s, 3), *forks[2];
	int32_t tokens[3][NR_NEW];
	struct tarn_work work = { parent, NR_PROMPT - 1 };
	struct tarn_result result;

	ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &result));
	for (uint32_t c = 0; c < 2; c++)
		ASSERT_EQ(0, tarn_seq_fork(parent, c + 1, &forks[c]));
	for (uint32_t i = 0; i < NR_NEW; i++) {
		tokens[0][i] = step(self, parent);
		tokens[1][i] = step(self, forks[0]);
		tokens[2][i] = step(self, forks[1]);
	}
	for (uint32_t c = 0; c < 3; c++)
		for (uint32_t i = 0; i < NR_NEW; i++)
			for (uint32_t k = 0; k < i; k++)
				EXPECT_NE(tokens[c][k], tokens[c][i]);
	tarn_seq_destroy(forks[0]);
	tarn_seq_destroy(forks[1]);
	tarn_seq_destroy(parent);
	/* A choice alone is what it was among others. */
	run(self, s);
	EXPECT_MEMEQ(tokens[0], self->out, sizeof(self->out));
}

TEST_F(penalties, mirostat_remembers_from_token_to_token)
{
	struct tarn_sampling s = { .temperature = 1,
				   .seed = 8,
				   .mirostat_tau = 0.5f };
	int32_t still[NR_NEW];

	run(self, s); /* eta 0: the limit stays at 2 tau */
	memcpy(still, self->out, sizeof(still));
	s.mirostat_eta = 1;
	run(self, s);
	EXPECT_EQ(still[0], self->out[0]);
	EXPECT_NE(0, memcmp(still, self->out, sizeof(still)));
}

TEST_F(penalties, what_is_out_of_range_is_refused_by_name)
{
	static const struct tarn_logit_bias no_token = { 100000, 1 },
					    huge = { 5, 2e6f };
	const struct {
		struct tarn_sampling s;
		const char *message;
	} cases[] = {
		{ { .typical_p = 1.5f }, "typical_p is 1.5, want 0 to 1" },
		{ { .top_n_sigma = -1 }, "top_n_sigma is -1, want 0 to 100" },
		{ { .xtc_probability = 2 },
		  "xtc_probability is 2, want 0 to 1" },
		{ { .mirostat_eta = -1 }, "mirostat_eta is -1, want 0 to 1" },
		{ { .repetition_penalty = -1 },
		  "repetition_penalty is -1, want 0 to 100" },
		{ { .dry_multiplier = 1 }, "dry_base is 0, want 1 to 100" },
		{ { .nr_order = 2 },
		  "step 1 of the sampler, number 0, is unknown or there twice" },
		{ { .nr_order = 1, .order = { TARN_NR_SAMPLERS } },
		  "step 0 of the sampler, number 7, is unknown or there twice" },
		{ { .nr_order = 8 }, "8 steps of the sampler, there are 7" },
		{ { .biases = &huge, .nr_biases = 1 },
		  "the logit bias of token id 5 is 2e+06, want -1e6 to 1e6" },
	};
	struct tarn_seq_params p = { .prompt = self->prompt,
				     .nr_prompt = NR_PROMPT,
				     .max_new_tokens = 1,
				     .nr_choices = 1 };
	char err[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.sampling = cases[i].s;
		EXPECT_EQ(-EINVAL,
			  tarn_seq_check(self->engine, &p, err, sizeof(err)));
		EXPECT_STREQ(cases[i].message, err);
	}
	p.sampling =
		(struct tarn_sampling){ .biases = &no_token, .nr_biases = 1 };
	EXPECT_EQ(-EINVAL, tarn_seq_check(self->engine, &p, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "token id 100000, which is out of range"));
}

TEST_HARNESS_MAIN
