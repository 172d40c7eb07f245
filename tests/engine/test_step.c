/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences and steps of the engine by its public header alone, on a tiny
 * model: what is refused and how, memory that runs out and comes back, forks,
 * end tokens, the prefix cache. Bits and accuracy are for other tests.
 */
#include <math.h>

#include "engine/engine.h"
#include "tests/harness.h"
#include "tests/engine/tiny_engine.h"

enum {
	CTX = 8192,
	MAX_BATCH = 96,
	/* A token takes 2 x 2 layers x 2 heads x 16 x 2 bytes; a tile of 64 of them 16 KiB. */
	KV_BYTES = 1 << 20,
	KV_TOKENS = 4096,
	TILE = 64,
};

FIXTURE(step)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	int32_t tokens[CTX + 1];
	char err[256];
};
FIXTURE_VARIANT(step)
{
	bool no_prefix_cache;
};
FIXTURE_VARIANT_ADD(step, cached){ .no_prefix_cache = false };
FIXTURE_VARIANT_ADD(step, uncached){ .no_prefix_cache = true };

static struct tarn_engine *engine_open(const struct tiny_model *m,
				       bool no_prefix_cache)
{
	struct tarn_engine_options options = {
		.nr_threads = 1,
		.kv_bytes = KV_BYTES,
		.max_batch_tokens = MAX_BATCH,
		.no_prefix_cache = no_prefix_cache,
	};

	return tiny_engine_open(m, options);
}

FIXTURE_SETUP(step)
{
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	spec.ctx = CTX;
	tiny_create(&self->model, &spec);
	self->engine = engine_open(&self->model, variant->no_prefix_cache);
	ASSERT_EQ(KV_BYTES / KV_TOKENS,
		  tarn_engine_info(self->engine)->kv_bytes_per_token);
	for (uint32_t i = 0; i <= CTX; i++)
		self->tokens[i] = (int32_t)(3 + tiny_u32(&self->model) % 256);
}
FIXTURE_TEARDOWN(step)
{
	struct tarn_engine_stat stat;

	(void)variant;
	tarn_engine_stat(self->engine, &stat);
	EXPECT_EQ(0, stat.nr_seqs);
	EXPECT_EQ(0, stat.kv_used_bytes);
	EXPECT_EQ(0, stat.kv_reserved_bytes);
	tarn_engine_destroy(self->engine);
	tiny_destroy(&self->model);
}

static struct tarn_seq_params params(const int32_t *tokens, uint32_t nr,
				     uint32_t max_new)
{
	return (struct tarn_seq_params){
		.prompt = tokens,
		.nr_prompt = nr,
		.max_new_tokens = max_new,
		.nr_choices = 1,
		.sampling = { .top_p = 1 },
	};
}

static struct tarn_seq *open_ok(struct tarn_engine *e,
				const struct tarn_seq_params *p)
{
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	ASSERT_EQ(0, tarn_seq_create(e, p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return seq;
}

static void open_err(struct tarn_engine *e, const struct tarn_seq_params *p,
		     int rc, const char *message)
{
	struct tarn_seq *seq = (void *)0x1;
	struct tarn_engine_stat before, after;
	char err[256] = "untouched";

	tarn_engine_stat(e, &before);
	EXPECT_EQ(rc, tarn_seq_create(e, p, &seq, err, sizeof(err)));
	EXPECT_STREQ(message, err);
	EXPECT_EQ((void *)0x1, (void *)seq);
	tarn_engine_stat(e, &after);
	EXPECT_EQ(before.nr_seqs, after.nr_seqs);
	EXPECT_EQ(before.kv_used_bytes, after.kv_used_bytes);
	EXPECT_EQ(before.kv_reserved_bytes, after.kv_reserved_bytes);
}

/* Also what tarn_seq_check() says, which needs no memory. */
static void check_err(struct tarn_engine *e, const struct tarn_seq_params *p,
		      int rc, const char *message)
{
	char err[256] = "untouched";

	EXPECT_EQ(rc, tarn_seq_check(e, p, err, sizeof(err)));
	EXPECT_STREQ(message, err);
	open_err(e, p, rc, message);
}

/* One entry with all that is pending, in as many steps as it takes. */
static struct tarn_result run_to_token(struct tarn_engine *e,
				       struct tarn_seq *seq)
{
	struct tarn_result result = { 0 };

	while (!result.has_token) {
		uint32_t pending = tarn_seq_pending(seq);
		struct tarn_work work = { seq, pending < MAX_BATCH ?
						       pending :
						       MAX_BATCH };

		ASSERT_EQ(0, tarn_step(e, &work, 1, &result));
		ASSERT_EQ(0, result.status);
	}
	return result;
}

/* ---- what a sequence may be ---------------------------------------------------- */

TEST_F(step, prompts_are_checked)
{
	struct tarn_seq_params p = params(self->tokens, 0, 1);

	check_err(self->engine, &p, -EINVAL, "the prompt is empty");
	p = params(self->tokens, 8, 1);
	self->tokens[3] = -1;
	check_err(self->engine, &p, -EINVAL,
		  "token id -1 at place 3 is out of range: want 0 to 262");
	self->tokens[3] = TINY_VOCAB;
	check_err(self->engine, &p, -EINVAL,
		  "token id 263 at place 3 is out of range: want 0 to 262");
	self->tokens[3] = INT32_MIN;
	check_err(
		self->engine, &p, -EINVAL,
		"token id -2147483648 at place 3 is out of range: want 0 to 262");
	self->tokens[3] = TINY_VOCAB - 1;
	EXPECT_EQ(0, tarn_seq_check(self->engine, &p, self->err,
				    sizeof(self->err)));
}

TEST_F(step, prompts_beyond_the_context_name_both_numbers)
{
	struct tarn_seq_params p = params(self->tokens, CTX + 1, 0);

	check_err(self->engine, &p, -E2BIG,
		  "the prompt has 8193 tokens and up to 0 more are asked for: "
		  "the context holds 8192");
	p = params(self->tokens, CTX - 5, 6);
	check_err(self->engine, &p, -E2BIG,
		  "the prompt has 8187 tokens and up to 6 more are asked for: "
		  "the context holds 8192");
	p = params(self->tokens, 5, UINT32_MAX);
	check_err(
		self->engine, &p, -E2BIG,
		"the prompt has 5 tokens and up to 4294967295 more are asked for: "
		"the context holds 8192");
	p = params(self->tokens, CTX - 5, 5);
	EXPECT_EQ(0, tarn_seq_check(self->engine, &p, self->err,
				    sizeof(self->err)));
}

TEST_F(step, sampling_is_checked)
{
	static const struct {
		struct tarn_sampling sampling;
		const char *message;
	} bad[] = {
		{ { .temperature = NAN, .top_p = 1 },
		  "temperature is nan, want 0 to 100" },
		{ { .temperature = -0.5f, .top_p = 1 },
		  "temperature is -0.5, want 0 to 100" },
		{ { .temperature = INFINITY, .top_p = 1 },
		  "temperature is inf, want 0 to 100" },
		{ { .top_p = 1.5f }, "top_p is 1.5, want 0 to 1" },
		{ { .top_p = -1 }, "top_p is -1, want 0 to 1" },
		{ { .top_p = NAN }, "top_p is nan, want 0 to 1" },
		{ { .top_p = 1, .min_p = 2 }, "min_p is 2, want 0 to 1" },
		{ { .top_p = 1, .min_p = NAN }, "min_p is nan, want 0 to 1" },
		{ { .top_p = 1, .nr_logprobs = 21 },
		  "21 log probabilities a token, want at most 20" },
	};
	struct tarn_seq_params p = params(self->tokens, 8, 1);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		p.sampling = bad[i].sampling;
		check_err(self->engine, &p, -EINVAL, bad[i].message);
	}
	p = params(self->tokens, 8, 1);
	p.nr_choices = 0;
	check_err(self->engine, &p, -EINVAL, "0 choices, want 1 to 128");
	p.nr_choices = 129;
	check_err(self->engine, &p, -EINVAL, "129 choices, want 1 to 128");
}

/* ---- memory ------------------------------------------------------------------------ */

TEST_F(step, memory_that_others_hold_comes_back)
{
	/* Four take it all; what they only promised counts. */
	struct tarn_seq_params p =
		params(self->tokens, 100, KV_TOKENS / 4 - 100);
	struct tarn_seq *seqs[5];

	for (int i = 0; i < 4; i++) {
		self->tokens[0] = 3 + i; /* nothing in common */
		seqs[i] = open_ok(self->engine, &p);
		run_to_token(self->engine, seqs[i]);
	}
	open_err(self->engine, &p, -EAGAIN,
		 "KV memory: Resource temporarily unavailable");
	/* Those that are in go on. */
	for (int i = 0; i < 4; i++)
		run_to_token(self->engine, seqs[i]);
	tarn_seq_destroy(seqs[2]);
	self->tokens[0] = 99;
	seqs[2] = open_ok(self->engine, &p);
	run_to_token(self->engine, seqs[2]);
	open_err(self->engine, &p, -EAGAIN,
		 "KV memory: Resource temporarily unavailable");
	for (int i = 0; i < 4; i++)
		tarn_seq_destroy(seqs[i]);
}

TEST_F(step, what_was_promised_is_there)
{
	struct tarn_seq_params p = params(self->tokens, 10, TILE * 4);
	struct tarn_seq_params rest =
		params(self->tokens + 500, 10, KV_TOKENS - 6 * TILE - 10);
	struct tarn_seq *seq = open_ok(self->engine, &p);
	struct tarn_seq *other = open_ok(self->engine, &rest);

	for (int i = 0; i < TILE * 4; i++)
		run_to_token(self->engine, seq);
	EXPECT_EQ(10 + TILE * 4, tarn_seq_len(seq));
	tarn_seq_destroy(seq);
	tarn_seq_destroy(other);
}

TEST_F(step, more_than_all_memory_is_refused_for_good)
{
	struct tarn_seq_params p = params(self->tokens, 100, KV_TOKENS - 99);

	open_err(
		self->engine, &p, -ENOSPC,
		"4097 tokens in 1 choices need more than all KV memory, 1048576 bytes");
	p = params(self->tokens, KV_TOKENS - 10, 10);
	tarn_seq_destroy(open_ok(self->engine, &p));
	/* Each choice fits, all together never do: nobody is to wait for that. */
	p = params(self->tokens, 100, KV_TOKENS / 8);
	p.nr_choices = 12;
	open_err(
		self->engine, &p, -ENOSPC,
		"612 tokens in 12 choices need more than all KV memory, 1048576 bytes");
}

TEST_F(step, choices_that_were_never_forked_give_their_memory_back)
{
	struct tarn_seq_params p = params(self->tokens, 100, 900);
	struct tarn_seq *seq, *child;

	/* Seen by the teardown. */
	p.nr_choices = 4;
	tarn_seq_destroy(open_ok(self->engine, &p));
	self->tokens[0]++;
	p = params(self->tokens, 1, 900);
	p.nr_choices = 4;
	seq = open_ok(self->engine, &p);
	ASSERT_EQ(0, tarn_seq_fork(seq, 1, &child));
	/* Two of four are held; a third sequence's four do not fit beside them. */
	self->tokens[0]++;
	open_err(self->engine, &p, -EAGAIN,
		 "KV memory: Resource temporarily unavailable");
	tarn_seq_destroy(seq);
	tarn_seq_destroy(child);
	tarn_seq_destroy(open_ok(self->engine, &p));
}

/* Windowed streams need less than a count of tokens says: it is tried. */
TEST(choices_of_a_windowed_model_that_never_fit_are_refused_for_good)
{
	static const int32_t tokens[100] = { 1, 2, 3 };
	struct tarn_seq_params p = params(tokens, 100, 1000);
	struct tiny_spec spec = tiny_gemma3(GGUF_TYPE_F32);
	struct tarn_engine *engine;
	struct tiny_model model;
	struct tarn_seq *seq;

	spec.ctx = CTX;
	tiny_create(&model, &spec);
	engine = engine_open(&model, false);
	p.nr_choices = 2;
	seq = open_ok(engine, &p);
	p.nr_choices = 128;
	open_err(engine, &p, -EAGAIN,
		 "KV memory: Resource temporarily unavailable");
	tarn_seq_destroy(seq);
	open_err(
		engine, &p, -ENOSPC,
		"1100 tokens in 128 choices need more than all KV memory, 1048576 bytes");
	p.nr_choices = 2;
	tarn_seq_destroy(open_ok(engine, &p));
	tarn_engine_destroy(engine);
	tiny_destroy(&model);
}

/* ---- batches that are wrong ---------------------------------------------------------- */

FIXTURE(batch)
{
	struct tiny_model model;
	struct tarn_engine *engine, *other;
	struct tarn_seq *seqs[3];
	struct tarn_seq *stranger; /* of @other */
};
FIXTURE_SETUP(batch)
{
	static const int32_t tokens[80] = { 1, 2, 3, 4, 5 };
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tarn_seq_params p = params(tokens, 80, 4);

	tiny_create(&self->model, &spec);
	self->engine = engine_open(&self->model, true);
	self->other = engine_open(&self->model, true);
	for (int i = 0; i < 3; i++)
		self->seqs[i] = open_ok(self->engine, &p);
	self->stranger = open_ok(self->other, &p);
}
FIXTURE_TEARDOWN(batch)
{
	(void)variant;
	for (int i = 0; i < 3; i++)
		tarn_seq_destroy(self->seqs[i]);
	tarn_seq_destroy(self->stranger);
	tarn_engine_destroy(self->engine);
	tarn_engine_destroy(self->other);
	tiny_destroy(&self->model);
}

static void step_err(struct fixture_batch *self, const struct tarn_work *work,
		     uint32_t nr)
{
	struct tarn_result results[8], poison[8];
	struct tarn_engine_stat before, after;

	memset(results, 0xcc, sizeof(results));
	memset(poison, 0xcc, sizeof(poison));
	tarn_engine_stat(self->engine, &before);
	EXPECT_EQ(-EINVAL, tarn_step(self->engine, work, nr, results));
	EXPECT_MEMEQ(poison, results, sizeof(results));
	tarn_engine_stat(self->engine, &after);
	EXPECT_EQ(before.nr_steps, after.nr_steps);
	EXPECT_EQ(before.prompt_tokens, after.prompt_tokens);
}

TEST_F(batch, bad_ones_are_refused_whole_and_change_nothing)
{
	struct tarn_seq **s = self->seqs;
	uint32_t pending[3];
	struct tarn_result results[3];
	const struct {
		struct tarn_work work[3];
		uint32_t nr;
	} bad[] = {
		{ { { s[0], 5 } }, 0 },
		{ { { s[0], 0 } }, 1 },
		{ { { s[0], 5 }, { s[1], 0 } }, 2 },
		{ { { NULL, 5 } }, 1 },
		{ { { s[0], 5 }, { NULL, 1 } }, 2 },
		{ { { s[0], 5 }, { s[0], 5 } }, 2 },
		{ { { s[0], 5 }, { s[1], 5 }, { s[0], 5 } }, 3 },
		{ { { s[0], 81 } }, 1 },
		{ { { s[0], UINT32_MAX } }, 1 },
		{ { { s[0], 80 }, { s[1], 17 } }, 2 }, /* 97 in all */
		{ { { s[0], 40 }, { s[1], 40 }, { s[2], 17 } }, 3 },
		{ { { s[0], 5 }, { self->stranger, 5 } }, 2 },
	};

	for (int i = 0; i < 3; i++)
		pending[i] = tarn_seq_pending(s[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		step_err(self, bad[i].work, bad[i].nr);
		for (int k = 0; k < 3; k++)
			EXPECT_EQ(pending[k], tarn_seq_pending(s[k]));
	}
	/* All of them are as good as before. */
	ASSERT_EQ(0,
		  tarn_step(self->engine,
			    (struct tarn_work[]){
				    { s[0], 80 }, { s[2], 10 }, { s[1], 6 } },
			    3, results));
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(0, results[i].status);
	EXPECT_TRUE(results[0].has_token);
	EXPECT_FALSE(results[1].has_token);
	EXPECT_FALSE(results[2].has_token);
	EXPECT_TRUE(tarn_step_logits(self->engine, 0) != NULL);
	EXPECT_TRUE(tarn_step_logits(self->engine, 1) == NULL);
	EXPECT_TRUE(tarn_step_logits(self->engine, 2) == NULL);
	EXPECT_TRUE(tarn_step_logits(self->engine, 3) == NULL);
	EXPECT_EQ(1, tarn_seq_pending(s[0]));
	EXPECT_EQ(74, tarn_seq_pending(s[1]));
	EXPECT_EQ(70, tarn_seq_pending(s[2]));
	EXPECT_EQ(81, tarn_seq_len(s[0]));
	EXPECT_EQ(80, tarn_seq_len(s[1]));
}

/* ---- forks ------------------------------------------------------------------------------ */

TEST_F(step, forks_happen_at_the_last_token_of_the_prompt_alone)
{
	struct tarn_seq_params p = params(self->tokens, 70, 5);
	struct tarn_seq *seq, *child = (void *)0x1;
	struct tarn_result result;

	p.nr_choices = 2;
	seq = open_ok(self->engine, &p);
	EXPECT_EQ(-EINVAL, tarn_seq_fork(seq, 1, &child));
	ASSERT_EQ(0, tarn_step(self->engine, &(struct tarn_work){ seq, 68 }, 1,
			       &result));
	EXPECT_EQ(-EINVAL, tarn_seq_fork(seq, 1, &child));
	EXPECT_EQ((void *)0x1, (void *)child);
	ASSERT_EQ(0, tarn_step(self->engine, &(struct tarn_work){ seq, 1 }, 1,
			       &result));
	ASSERT_EQ(0, tarn_seq_fork(seq, 1, &child));
	EXPECT_EQ(1, tarn_seq_pending(child));
	EXPECT_EQ(70, tarn_seq_len(child));
	/* A choice may be forked as well, as long as nothing was drawn. */
	run_to_token(self->engine, seq);
	EXPECT_EQ(-EINVAL, tarn_seq_fork(seq, 2, &(struct tarn_seq *){ NULL }));
	run_to_token(self->engine, child);
	EXPECT_EQ(-EINVAL,
		  tarn_seq_fork(child, 2, &(struct tarn_seq *){ NULL }));
	tarn_seq_destroy(seq);
	tarn_seq_destroy(child);
}

/* Eight tokens of the choice @choice of the prompt. */
static void draw_choice(struct fixture_step *self, uint32_t choice,
			int32_t out[8])
{
	struct tarn_seq_params p = params(self->tokens, 70, 8);
	struct tarn_seq *seq, *child;
	struct tarn_result result;

	p.nr_choices = 2;
	p.sampling.temperature = 2;
	p.sampling.seed = 11;
	seq = open_ok(self->engine, &p);
	if (tarn_seq_pending(seq) > 1)
		ASSERT_EQ(0, tarn_step(self->engine,
				       &(struct tarn_work){
					       seq, tarn_seq_pending(seq) - 1 },
				       1, &result));
	ASSERT_EQ(0, tarn_seq_fork(seq, choice, &child));
	tarn_seq_destroy(seq); /* the child goes on alone */
	for (int i = 0; i < 8; i++)
		out[i] = run_to_token(self->engine, child).token;
	tarn_seq_destroy(child);
}

TEST_F(step, a_choice_is_its_number_and_the_seed)
{
	int32_t zero[8], one[8], again[8], plain[8];
	struct tarn_seq_params p = params(self->tokens, 70, 8);
	struct tarn_seq *seq;

	draw_choice(self, 0, zero);
	draw_choice(self, 1, one);
	draw_choice(self, 1, again);
	EXPECT_MEMEQ(one, again, sizeof(one));
	EXPECT_NE(0, memcmp(zero, one, sizeof(one)));
	p.sampling.temperature = 2;
	p.sampling.seed = 11;
	seq = open_ok(self->engine, &p);
	for (int i = 0; i < 8; i++)
		plain[i] = run_to_token(self->engine, seq).token;
	EXPECT_MEMEQ(zero, plain, sizeof(plain));
	tarn_seq_destroy(seq);
}

/* ---- end tokens ------------------------------------------------------------------------- */

/* First tokens of many seeds at a temperature where every token has its chance. */
static uint32_t count_ends(struct fixture_step *self, bool ignore_eos,
			   uint32_t *out_nr_flagged)
{
	enum { BATCH = 60, ROUNDS = 40 };
	uint32_t nr_ends = 0;

	*out_nr_flagged = 0;
	for (uint64_t seed = 0; seed < BATCH * ROUNDS; seed += BATCH) {
		struct tarn_work work[BATCH];
		struct tarn_result results[BATCH];

		for (uint32_t i = 0; i < BATCH; i++) {
			struct tarn_seq_params p = params(self->tokens, 1, 1);

			p.sampling.temperature = 50;
			p.sampling.seed = seed + i;
			p.sampling.ignore_eos = ignore_eos;
			work[i] = (struct tarn_work){ open_ok(self->engine, &p),
						      1 };
		}
		ASSERT_EQ(0, tarn_step(self->engine, work, BATCH, results));
		for (uint32_t i = 0; i < BATCH; i++) {
			ASSERT_TRUE(results[i].has_token);
			nr_ends += results[i].token == TINY_EOS;
			*out_nr_flagged += results[i].is_end;
			tarn_seq_destroy(work[i].seq);
		}
	}
	return nr_ends;
}

TEST_F(step, ignore_eos_never_draws_an_end_token)
{
	uint32_t nr_flagged, nr_ends = count_ends(self, false, &nr_flagged);

	/* 2,400 draws of 263 tokens: nine ends on average. */
	EXPECT_GE(nr_ends, 2);
	EXPECT_LE(nr_ends, 30);
	EXPECT_EQ(nr_ends, nr_flagged);
	EXPECT_EQ(0, count_ends(self, true, &nr_flagged));
	EXPECT_EQ(0, nr_flagged);
}

/* ---- log probabilities -------------------------------------------------------------------- */

TEST_F(step, log_probabilities_are_of_the_logits)
{
	struct tarn_seq_params p = params(self->tokens, 20, 1);
	struct tarn_result r;
	struct tarn_seq *seq;
	const float *logits;
	double sum = 0;

	p.sampling.logprobs = true;
	p.sampling.nr_logprobs = 5;
	seq = open_ok(self->engine, &p);
	r = run_to_token(self->engine, seq);
	logits = tarn_step_logits(self->engine, 0);
	ASSERT_TRUE(logits != NULL);
	for (uint32_t i = 0; i < TINY_VOCAB; i++)
		sum += exp((double)logits[i]);
	EXPECT_NEAR((double)logits[r.token] - log(sum), (double)r.logprob,
		    1e-5);
	ASSERT_EQ(5, r.nr_top);
	EXPECT_EQ(r.token, r.top[0].id);
	for (uint32_t i = 0; i < r.nr_top; i++) {
		EXPECT_NEAR((double)logits[r.top[i].id] - log(sum),
			    (double)r.top[i].logprob, 1e-5);
		if (i)
			EXPECT_GE(r.top[i - 1].logprob, r.top[i].logprob);
	}
	tarn_seq_destroy(seq);
}

/* ---- the prefix cache ----------------------------------------------------------------------- */

static uint32_t cached_after(struct fixture_step *self, uid_t uid,
			     bool no_prefix_cache)
{
	struct tarn_seq_params p = params(self->tokens, 200, 2);
	struct tarn_seq *seq;
	uint32_t nr;

	p.principal.uid = uid;
	p.no_prefix_cache = no_prefix_cache;
	seq = open_ok(self->engine, &p);
	nr = tarn_seq_cached(seq);
	EXPECT_EQ(200 - nr, tarn_seq_pending(seq));
	run_to_token(self->engine, seq);
	tarn_seq_destroy(seq);
	return nr;
}

TEST_F(step, a_prefix_is_found_again_by_its_own_user_unless_off)
{
	struct tarn_engine_stat stat;
	uint32_t nr;

	/* One that stays out neither finds nor leaves anything. */
	EXPECT_EQ(0, cached_after(self, 1, true));
	EXPECT_EQ(0, cached_after(self, 1, false));
	nr = cached_after(self, 1, false);
	if (variant->no_prefix_cache) {
		EXPECT_EQ(0, nr);
	} else {
		EXPECT_GE(nr, 200 / TILE * TILE);
		EXPECT_LE(nr, 199);
	}
	EXPECT_EQ(0, cached_after(self, 1, true));
	EXPECT_EQ(0, cached_after(self, 2, false));
	tarn_engine_stat(self->engine, &stat);
	EXPECT_EQ(nr, stat.prefix_hit_tokens);
	if (variant->no_prefix_cache)
		EXPECT_EQ(0, stat.kv_cached_bytes);
	else
		EXPECT_GT(stat.kv_cached_bytes, 0);
}

TEST_HARNESS_MAIN
