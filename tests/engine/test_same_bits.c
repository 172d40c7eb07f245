/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same-bits contract: a golden request's logits and tokens are the same
 * bits whatever runs beside it, however its prompt is cut, on any number of
 * threads, after a prefix hit of any length, after a fork, after truncation, on
 * any instruction set.
 *
 * The prompt crosses the borders of a tile, of a split at 512 and of Gemma's
 * window; the reference is computed alone, in one piece, on one thread.
 */
#include "engine/engine_private.h"
#include "tests/engine/engine_kit.h"

enum {
	NR_NEW = 6, /* tokens drawn behind the prompt */
	MAX_NEIGHBOURS = 32,
};

/* Logits of the prompt's last token and of each drawn one. */
struct trace {
	float *logits; /* [NR_NEW][n_vocab] */
	int32_t tokens[NR_NEW];
};

FIXTURE(same_bits)
{
	struct golden golden;
	struct golden_prompt prompt;
	uint32_t n_vocab;
	struct trace want, got;
};
FIXTURE_VARIANT(same_bits)
{
	const struct kit_model *model;
	bool precise;
	enum tarn_device device;
};
FIXTURE_VARIANT_ADD(same_bits, smollm2){ &kit_smollm2, false, TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, smollm2_precise){ &kit_smollm2, true,
						 TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, gemma3){ &kit_gemma3, false, TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, tiny_llama){ &kit_tiny_llama, false,
					    TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, tiny_qwen2){ &kit_tiny_qwen2, false,
					    TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, tiny_qwen3){ &kit_tiny_qwen3, false,
					    TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, tiny_qwen3_precise){ &kit_tiny_qwen3, true,
						    TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(same_bits, smollm2_gpu){ &kit_smollm2, false,
					     TARN_DEVICE_CUDA };
FIXTURE_VARIANT_ADD(same_bits, gemma3_gpu){ &kit_gemma3, false,
					    TARN_DEVICE_CUDA };

static struct tarn_engine *open_with(const FIXTURE_VARIANT(same_bits) * variant,
				     uint32_t nr_threads)
{
	return kit_open(variant->model, (struct tarn_engine_options){
						.device = variant->device,
						.nr_threads = nr_threads,
						.precise = variant->precise,
						.max_batch_tokens = 1024,
						.ctx_tokens = 1024,
					});
}

static void note(struct tarn_engine *e, struct trace *t, uint32_t n_vocab,
		 uint32_t n, const struct tarn_result *r, uint32_t entry)
{
	ASSERT_TRUE(r->has_token);
	t->tokens[n] = r->token;
	memcpy(t->logits + (size_t)n * n_vocab, tarn_step_logits(e, entry),
	       n_vocab * sizeof(float));
}

/* Run @seq to its end, alone, its prompt in pieces of @chunk. */
static void run_alone(struct tarn_engine *e, struct tarn_seq *seq,
		      uint32_t n_vocab, uint32_t chunk, struct trace *out)
{
	for (uint32_t n = 0; n < NR_NEW;) {
		struct tarn_result r = kit_step(e, seq, chunk);

		if (r.has_token)
			note(e, out, n_vocab, n++, &r, 0);
	}
}

static void expect_same(const struct trace *want, const struct trace *got,
			uint32_t n_vocab, const char *what, uint32_t how_much)
{
	for (uint32_t n = 0; n < NR_NEW; n++) {
		uint32_t nr_differ = 0;

		for (size_t i = 0; i < n_vocab; i++)
			nr_differ +=
				memcmp(&want->logits[n * (size_t)n_vocab + i],
				       &got->logits[n * (size_t)n_vocab + i],
				       sizeof(float)) != 0;
		EXPECT_EQ(0, nr_differ)
		{
			TH_LOG("%s %u: logits of token %u", what, how_much, n);
			return;
		}
		EXPECT_EQ(want->tokens[n], got->tokens[n]);
	}
}

FIXTURE_SETUP(same_bits)
{
	struct tarn_engine *e;
	struct tarn_seq *seq;

	if (!kit_path(variant->model))
		SKIP(return, "%s names no model", variant->model->env);
	if (!kit_has_device(variant->device))
		SKIP(return, "no GPU here");
	if (kit_is_too_slow(variant->model))
		SKIP(return, "too slow under sanitizers; tiny models run");
	ASSERT_EQ(0, golden_open(variant->model->golden, &self->golden));
	self->prompt = kit_long_prompt(&self->golden);
	ASSERT_GT(self->prompt.nr_tokens, 600);
	self->n_vocab = self->golden.head->n_vocab;
	self->want.logits =
		calloc((size_t)NR_NEW * self->n_vocab, sizeof(float));
	self->got.logits =
		calloc((size_t)NR_NEW * self->n_vocab, sizeof(float));
	e = open_with(variant, 1);
	seq = kit_seq(e, self->prompt.tokens, self->prompt.nr_tokens, NR_NEW,
		      true);
	run_alone(e, seq, self->n_vocab, 1024, &self->want);
	tarn_seq_destroy(seq);
	tarn_engine_destroy(e);
}
FIXTURE_TEARDOWN(same_bits)
{
	(void)variant;
	free(self->want.logits);
	free(self->got.logits);
	if (self->golden.base)
		golden_close(&self->golden);
}

TEST_F_TIMEOUT(same_bits, whatever_the_chunks_and_threads, 300)
{
	static const uint32_t chunks[] = { 1, 7, 64, 1024 };
	static const uint32_t threads[] = { 2, 3 };

	for (int t = 0; t < 2; t++) {
		struct tarn_engine *e = open_with(variant, threads[t]);

		for (int c = t ? 2 : 0; c < 4; c++) {
			struct tarn_seq *seq = kit_seq(e, self->prompt.tokens,
						       self->prompt.nr_tokens,
						       NR_NEW, true);

			run_alone(e, seq, self->n_vocab, chunks[c], &self->got);
			expect_same(&self->want, &self->got, self->n_vocab,
				    "chunk", chunks[c]);
			tarn_seq_destroy(seq);
		}
		tarn_engine_destroy(e);
	}
}

/* Neighbours decode, prefill and end beside the golden request, which stands among them. */
static void run_in_batch(struct tarn_engine *e,
			 const struct golden_prompt *prompt, uint32_t n_vocab,
			 uint32_t nr, struct trace *out)
{
	struct tarn_seq *seqs[MAX_NEIGHBOURS + 1];
	uint32_t golden_at = nr / 2, n = 0;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t first = i * 13 % 97, len = 1 + i * 29 % 151;

		seqs[i] = i == golden_at ?
				  kit_seq(e, prompt->tokens, prompt->nr_tokens,
					  NR_NEW, true) :
				  kit_seq(e, prompt->tokens + first, len, 200,
					  true);
	}
	while (n < NR_NEW) {
		struct tarn_work work[MAX_NEIGHBOURS + 1];
		struct tarn_result results[MAX_NEIGHBOURS + 1];

		for (uint32_t i = 0; i < nr; i++) {
			uint32_t pending = tarn_seq_pending(seqs[i]);
			uint32_t chunk = i == golden_at ? 100 : 11;

			work[i] = (struct tarn_work){ seqs[i], pending < chunk ?
								       pending :
								       chunk };
		}
		ASSERT_EQ(0, tarn_step(e, work, nr, results));
		for (uint32_t i = 0; i < nr; i++)
			ASSERT_EQ(0, results[i].status);
		if (results[golden_at].has_token)
			note(e, out, n_vocab, n++, &results[golden_at],
			     golden_at);
	}
	for (uint32_t i = 0; i < nr; i++)
		tarn_seq_destroy(seqs[i]);
}

TEST_F_TIMEOUT(same_bits, whoever_runs_beside, 300)
{
	static const uint32_t sizes[] = { 8, 2, 33 };
	struct tarn_engine *e = open_with(variant, 2);

	for (int i = 0; i < 3; i++) {
		run_in_batch(e, &self->prompt, self->n_vocab, sizes[i],
			     &self->got);
		expect_same(&self->want, &self->got, self->n_vocab, "batch of",
			    sizes[i]);
	}
	tarn_engine_destroy(e);
}

/* Behind the prompt, @nr tokens of which each was on its way before the last one was known. */
static void run_ahead(struct tarn_engine *e, struct tarn_seq *seq,
		      const struct trace *want, uint32_t nr)
{
	const struct tarn_work work = { seq, 1 };
	struct tarn_result r;

	ASSERT_EQ(0, tarn_step_begin(e, &work, 1));
	for (uint32_t n = 1; n <= nr; n++) {
		if (n < nr) {
			ASSERT_TRUE(tarn_step_may_begin(e));
			ASSERT_EQ(0, tarn_step_begin(e, &work, 1));
		}
		ASSERT_EQ(0, tarn_step_end(e, &r));
		ASSERT_EQ(0, r.status);
		EXPECT_EQ(want->tokens[n], r.token);
	}
}

TEST_F_TIMEOUT(same_bits, begun_before_the_last_one_ended, 300)
{
	struct tarn_engine *e = open_with(variant, 2);

	for (uint32_t nr = 1; nr < NR_NEW; nr++) {
		struct tarn_seq *seq = kit_seq(e, self->prompt.tokens,
					       self->prompt.nr_tokens, NR_NEW,
					       false);
		struct tarn_result r = { 0 };
		const float *logits;

		while (!r.has_token)
			r = kit_step(e, seq, 1024);
		run_ahead(e, seq, &self->want, nr);
		logits = tarn_step_logits(e, 0);
		ASSERT_TRUE(logits != NULL);
		EXPECT_EQ(0,
			  memcmp(self->want.logits + (size_t)nr * self->n_vocab,
				 logits, self->n_vocab * sizeof(float)));
		tarn_seq_destroy(seq);
	}
	tarn_engine_destroy(e);
}

TEST_F_TIMEOUT(same_bits, after_a_prefix_hit_of_any_length, 300)
{
	static const uint32_t lengths[] = { 1,	 15,  16,  17,	48,
					    63,	 64,  65,  127, 128,
					    130, 511, 512, 513, 600 };
	struct tarn_engine *e = open_with(variant, 2);

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct tarn_seq_params p = {
			.principal = { .uid = 1000 +
					      (uid_t)i }, /* prefixes of its own */
			.prompt = self->prompt.tokens,
			.nr_prompt = lengths[i],
			.max_new_tokens = 1,
			.nr_choices = 1,
			.sampling = { .top_p = 1, .ignore_eos = true },
		};
		struct tarn_seq *seq;
		char err[256];

		ASSERT_EQ(0, tarn_seq_create(e, &p, &seq, err, sizeof(err)));
		kit_step(e, seq, 1024);
		tarn_seq_destroy(seq);
		p.nr_prompt = self->prompt.nr_tokens;
		p.max_new_tokens = NR_NEW;
		ASSERT_EQ(0, tarn_seq_create(e, &p, &seq, err, sizeof(err)));
		EXPECT_LE(lengths[i] / 64 * 64, tarn_seq_cached(seq));
		EXPECT_GE(lengths[i] + 1, tarn_seq_cached(seq));
		run_alone(e, seq, self->n_vocab, 1024, &self->got);
		expect_same(&self->want, &self->got, self->n_vocab, "prefix of",
			    lengths[i]);
		tarn_seq_destroy(seq);
	}
	tarn_engine_destroy(e);
}

TEST_F_TIMEOUT(same_bits, after_a_fork, 300)
{
	struct tarn_engine *e = open_with(variant, 2);
	struct tarn_seq_params p = {
		.prompt = self->prompt.tokens,
		.nr_prompt = self->prompt.nr_tokens,
		.max_new_tokens = NR_NEW,
		.nr_choices = 3,
		.sampling = { .top_p = 1, .ignore_eos = true },
	};
	struct tarn_seq *seqs[3];
	char err[256];

	ASSERT_EQ(0, tarn_seq_create(e, &p, &seqs[0], err, sizeof(err)));
	while (tarn_seq_pending(seqs[0]) > 1)
		kit_step(e, seqs[0], tarn_seq_pending(seqs[0]) - 1);
	for (uint32_t i = 1; i < 3; i++)
		ASSERT_EQ(0, tarn_seq_fork(seqs[0], i, &seqs[i]));
	for (uint32_t n = 0; n < NR_NEW; n++) {
		struct tarn_work work[3] = { { seqs[0], 1 },
					     { seqs[1], 1 },
					     { seqs[2], 1 } };
		struct tarn_result results[3];

		ASSERT_EQ(0, tarn_step(e, work, 3, results));
		note(e, &self->got, self->n_vocab, n, &results[n % 3], n % 3);
	}
	expect_same(&self->want, &self->got, self->n_vocab, "fork", 3);
	for (int i = 0; i < 3; i++)
		tarn_seq_destroy(seqs[i]);
	tarn_engine_destroy(e);
}

/* The plain C form defines the bits; on the real models it would take minutes. */
TEST_F_TIMEOUT(same_bits, on_every_instruction_set, 300)
{
	static const char *const names[] = { "avx512", "avx2", "ref" };
	int nr = variant->model->path ? 3 : 2;

	if (variant->device == TARN_DEVICE_CUDA)
		SKIP(return, "the CPU's");
	for (int i = 0; i < nr; i++) {
		struct tarn_engine *e;
		struct tarn_seq *seq;

		ASSERT_EQ(0, setenv("TARN_CPU_ISA", names[i], 1));
		e = open_with(variant, 2);
		seq = kit_seq(e, self->prompt.tokens, self->prompt.nr_tokens,
			      NR_NEW, true);
		run_alone(e, seq, self->n_vocab, 100, &self->got);
		expect_same(&self->want, &self->got, self->n_vocab,
			    e->backend->name, 0);
		tarn_seq_destroy(seq);
		tarn_engine_destroy(e);
	}
}

TEST_F_TIMEOUT(same_bits, after_truncation, 300)
{
	static const uint32_t back[] = { 1, 17, 40 };
	struct tarn_engine *e = open_with(variant, 2);
	struct tarn_seq *seq = kit_seq(e, self->prompt.tokens,
				       self->prompt.nr_tokens, NR_NEW, true);
	uint32_t len = self->prompt.nr_tokens;

	for (int i = 0; i < 3; i++) {
		run_alone(e, seq, self->n_vocab, 1024, &self->got);
		/* As a rolled back speculation does: the prompt's end is computed again. */
		ASSERT_EQ(0, kv_seq_truncate(seq->kv, len - back[i]));
		seq->nr_tokens = len;
		run_alone(e, seq, self->n_vocab, 1024, &self->got);
		expect_same(&self->want, &self->got, self->n_vocab,
			    "truncated by", back[i]);
		ASSERT_EQ(0, kv_seq_truncate(seq->kv, len - back[i]));
		seq->nr_tokens = len;
	}
	tarn_seq_destroy(seq);
	tarn_engine_destroy(e);
}

TEST_HARNESS_MAIN
