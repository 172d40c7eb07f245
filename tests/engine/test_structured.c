/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars of sequences, by the engine's public header on a tiny model: nothing else is drawn,
 * each choice has a place of its own, and what goes wrong ends one sequence.
 */
#include "tests/harness.h"

#include <math.h>

#include "engine/engine.h"
#include "tests/engine/grammar_kit.h"
#include "tests/engine/tiny_model.h"

enum { NR_PROMPT = 8, MAX_NEW = 100 };

static const char pair_grammar[] =
	"root ::= \"{\" [a-z]{1,5} \":\" ([0-9]{1,3} | [\\u00e0-\\u00ff]+ | root) \"}\"\n";

FIXTURE(structured)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	struct tarn_grammar *grammar;
	struct tarn_sampling sampling;
};

static struct tarn_grammar *grammar_ok(struct fixture_structured *self,
				       const char *text)
{
	struct tarn_grammar *grammar = NULL;
	char err[256] = "";

	ASSERT_EQ(0,
		  tarn_grammar_create(self->engine, TARN_GRAMMAR_GBNF, text,
				      strlen(text), &grammar, err, sizeof(err)))
	{
		TH_LOG("%s: %s", text, err);
	}
	return grammar;
}

FIXTURE_SETUP(structured)
{
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tarn_engine_options options = { .nr_threads = 1,
					       .kv_bytes = 4 << 20 };
	char err[256] = "";

	tiny_create(&self->model, &spec);
	options.model_path = self->model.path;
	ASSERT_EQ(0,
		  tarn_engine_create(&options, &self->engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	self->grammar = grammar_ok(self, pair_grammar);
	self->sampling = (struct tarn_sampling){ .temperature = 1,
						 .top_p = 1,
						 .grammar = self->grammar };
}

FIXTURE_TEARDOWN(structured)
{
	tarn_grammar_destroy(self->grammar);
	tarn_engine_destroy(self->engine);
	tiny_destroy(&self->model);
}

static int open_seq(struct fixture_structured *self, uint32_t nr_choices,
		    struct tarn_seq **out, char *err, size_t errlen)
{
	int32_t prompt[NR_PROMPT];
	struct tarn_seq_params p = {
		.prompt = prompt,
		.nr_prompt = NR_PROMPT,
		.max_new_tokens = MAX_NEW,
		.nr_choices = nr_choices,
		.sampling = self->sampling,
	};

	for (uint32_t i = 0; i < NR_PROMPT; i++)
		prompt[i] = 10 + (int32_t)i;
	return tarn_seq_create(self->engine, &p, out, err, errlen);
}

static struct tarn_seq *open_ok(struct fixture_structured *self,
				uint32_t nr_choices)
{
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	ASSERT_EQ(0, open_seq(self, nr_choices, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return seq;
}

static struct tarn_result step(struct fixture_structured *self,
			       struct tarn_seq *seq)
{
	struct tarn_work work = { seq, tarn_seq_pending(seq) };
	struct tarn_result result;

	ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &result));
	ASSERT_EQ(0, result.status);
	ASSERT_TRUE(result.has_token);
	return result;
}

struct answer {
	char text[512];
	size_t len;
	uint32_t nr_tokens;
	bool is_ended, is_stuck;
};

/* Takes the token in; answers whether the answer goes on. */
static bool answer_add(struct fixture_structured *self, struct answer *a,
		       const struct tarn_result *r)
{
	size_t len;
	const char *piece =
		tarn_token_piece(self->engine, r->token, true, &len);

	a->nr_tokens++;
	a->is_ended = r->is_end;
	a->is_stuck = r->is_stuck;
	if (r->is_end)
		return false;
	ASSERT_TRUE(a->len + len < sizeof(a->text));
	memcpy(a->text + a->len, piece, len);
	a->len += len;
	return !r->is_stuck && a->nr_tokens < MAX_NEW;
}

static struct answer generate(struct fixture_structured *self,
			      struct tarn_seq *seq)
{
	struct answer a = { 0 };
	struct tarn_result r;

	do {
		r = step(self, seq);
	} while (answer_add(self, &a, &r));
	tarn_seq_destroy(seq);
	return a;
}

static void expect_matches(const char *grammar, const struct answer *a)
{
	struct grammar *g = kit_compile_ok(gbnf_read, grammar);
	uint32_t state = kit_run(g, a->text, a->len);

	EXPECT_NE(GRAMMAR_DEAD, state)
	{
		TH_LOG("\"%.*s\"", (int)a->len, a->text);
	}
	if (a->is_ended)
		EXPECT_TRUE(grammar_accepts(g, state))
		{
			TH_LOG("\"%.*s\"", (int)a->len, a->text);
		}
	grammar_destroy(g);
}

TEST_F(structured, every_answer_follows_the_grammar)
{
	uint32_t nr_ended = 0;

	for (uint32_t i = 0; i < 40; i++) {
		struct answer a;

		self->sampling.seed = i;
		self->sampling.temperature = i % 4 ? 1.5f : 0;
		self->sampling.top_k = i % 3 ? 0 : 5;
		self->sampling.min_p = i % 5 ? 0 : 0.2f;
		self->sampling.repetition_penalty = i % 2 ? 1 : 1.3f;
		self->sampling.mirostat_tau = i % 7 ? 0 : 4;
		self->sampling.mirostat_eta = 0.1f;
		a = generate(self, open_ok(self, 1));
		expect_matches(pair_grammar, &a);
		EXPECT_FALSE(a.is_stuck);
		nr_ended += a.is_ended;
	}
	EXPECT_TRUE(nr_ended > 10);
}

TEST_F(structured, a_text_that_is_complete_ends)
{
	struct tarn_grammar *g = grammar_ok(self, "root ::= \"yes\" | \"no\"");
	struct answer a;

	self->sampling.grammar = g;
	for (int i = 0; i < 2; i++) {
		self->sampling.ignore_eos = i;
		self->sampling.seed = 5;
		a = generate(self, open_ok(self, 1));
		EXPECT_TRUE(a.is_ended);
		EXPECT_TRUE(!memcmp(a.text, "yes", a.len) ||
			    !memcmp(a.text, "no", a.len));
		EXPECT_EQ(a.len + 1, a.nr_tokens);
	}
	tarn_grammar_destroy(g);
}

TEST_F(structured, end_tokens_that_are_ignored_wait_for_the_grammars_end)
{
	struct tarn_grammar *g = grammar_ok(self, "root ::= [ab]{0,20}");
	struct tarn_logit_bias eager = { TINY_EOS, 90 };
	struct answer a;

	self->sampling.grammar = g;
	self->sampling.biases = &eager;
	self->sampling.nr_biases = 1;
	a = generate(self, open_ok(self, 1));
	EXPECT_TRUE(a.is_ended);
	EXPECT_EQ(0, a.len);
	self->sampling.ignore_eos = true;
	a = generate(self, open_ok(self, 1));
	EXPECT_TRUE(a.is_ended);
	EXPECT_EQ(20, a.len);
	tarn_grammar_destroy(g);
}

TEST_F(structured, choices_have_a_place_each_and_answer_as_alone)
{
	struct answer together[3] = { 0 }, alone;
	struct tarn_seq *seqs[3] = { open_ok(self, 3) };
	bool goes_on[3] = { true, true, true };
	struct tarn_work prompt = { seqs[0], NR_PROMPT - 1 };
	struct tarn_result r;

	ASSERT_EQ(0, tarn_step(self->engine, &prompt, 1, &r));
	for (uint32_t i = 1; i < 3; i++)
		ASSERT_EQ(0, tarn_seq_fork(seqs[0], i, &seqs[i]));
	while (goes_on[0] || goes_on[1] || goes_on[2])
		for (int i = 0; i < 3; i++)
			if (goes_on[i]) {
				r = step(self, seqs[i]);
				goes_on[i] = answer_add(self, &together[i], &r);
			}
	for (int i = 0; i < 3; i++) {
		expect_matches(pair_grammar, &together[i]);
		tarn_seq_destroy(seqs[i]);
	}
	EXPECT_FALSE(
		together[0].len == together[1].len &&
		!memcmp(together[0].text, together[1].text, together[0].len));
	alone = generate(self, open_ok(self, 1));
	EXPECT_EQ(alone.len, together[0].len);
	EXPECT_EQ(0, memcmp(alone.text, together[0].text, alone.len));
}

TEST_F(structured, log_probabilities_are_the_models_own)
{
	struct tarn_seq *seq;

	self->sampling.logprobs = true;
	seq = open_ok(self, 1);
	for (int i = 0; i < 5; i++) {
		struct tarn_result r = step(self, seq);
		const float *logits = tarn_step_logits(self->engine, 0);
		double sum = 0;

		for (uint32_t id = 0; id < TINY_VOCAB; id++)
			sum += exp((double)logits[id]);
		EXPECT_TRUE(fabs((double)logits[r.token] - log(sum) -
				 (double)r.logprob) < 1e-4);
	}
	tarn_seq_destroy(seq);
}

TEST_F(structured, a_limit_ends_one_sequence_and_no_other)
{
	/* Stacks grow with the square of the text's length. */
	struct tarn_grammar *g =
		grammar_ok(self, "root ::= (\"a\"{0,200} x){0,200} \"z\"\n"
				 "x ::= \"a\"{0,100}");
	struct tarn_logit_bias favourite = { 3 + 'z', -100 };
	struct tarn_sampling plain = self->sampling;
	struct tarn_seq *seqs[2];
	struct answer a[2] = { 0 };
	bool goes_on[2] = { true, true };

	seqs[0] = open_ok(self, 1);
	self->sampling.grammar = g;
	self->sampling.biases = &favourite;
	self->sampling.nr_biases = 1;
	seqs[1] = open_ok(self, 1);
	while (goes_on[0] || goes_on[1]) {
		struct tarn_work work[2];
		struct tarn_result r[2];
		uint32_t nr = 0, which[2];

		for (uint32_t i = 0; i < 2; i++)
			if (goes_on[i]) {
				which[nr] = i;
				work[nr++] = (struct tarn_work){
					seqs[i], tarn_seq_pending(seqs[i])
				};
			}
		ASSERT_EQ(0, tarn_step(self->engine, work, nr, r));
		for (uint32_t i = 0; i < nr; i++) {
			ASSERT_EQ(0, r[i].status);
			goes_on[which[i]] =
				answer_add(self, &a[which[i]], &r[i]);
		}
	}
	EXPECT_TRUE(a[1].is_stuck);
	EXPECT_FALSE(a[0].is_stuck);
	EXPECT_TRUE(a[0].len > 0);
	expect_matches(pair_grammar, &a[0]);
	/* What is stuck computes no more. */
	struct tarn_work work = { seqs[1], 1 };
	struct tarn_result r;

	EXPECT_EQ(-EINVAL, tarn_step(self->engine, &work, 1, &r));
	tarn_seq_destroy(seqs[0]);
	tarn_seq_destroy(seqs[1]);
	self->sampling = plain;
	tarn_grammar_destroy(g);
}

TEST_F(structured, a_grammar_that_does_not_parse_is_refused)
{
	struct tarn_grammar *g = NULL;
	char err[256] = "";

	EXPECT_EQ(-EINVAL, tarn_grammar_create(self->engine, TARN_GRAMMAR_GBNF,
					       "root ::= \"a", 11, &g, err,
					       sizeof(err)));
	EXPECT_STREQ("line 1, column 10: the text has no closing '\"'", err);
	EXPECT_EQ(-EINVAL, tarn_grammar_create(self->engine, 77, "", 0, &g, err,
					       sizeof(err)));
	EXPECT_STREQ("unknown kind of grammar: 77", err);
}

TEST_F(structured, another_engines_grammar_is_refused)
{
	struct fixture_structured other = { 0 };
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	harness_setup_structured(&other, NULL);
	self->sampling.grammar = other.grammar;
	EXPECT_EQ(-EINVAL, open_seq(self, 1, &seq, err, sizeof(err)));
	EXPECT_STREQ("the grammar is another engine's", err);
	harness_teardown_structured(&other, NULL);
}

TEST_HARNESS_MAIN
