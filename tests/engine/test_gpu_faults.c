/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the driver failing in turn, under an engine on the GPU: while it
 * is made, and while it computes; out of memory, another error, a device that is
 * lost. Each time there is a clear errno, other sequences go on where they can,
 * and nothing is left.
 */
#include "tests/harness.h"

#include "tests/engine/gpu_kit.h"

enum {
	CUDA_LAUNCH_FAILED = 719, /* a device that is of no more use says so */
	MAX_CALLS = 4000,
	PROMPT = 200,
};

FIXTURE(faults)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	int32_t tokens[1024];
};

FIXTURE_VARIANT(faults)
{
	uint32_t head_dim, window;
	cuda_status failure;
	bool is_lost;
};

FIXTURE_VARIANT_ADD(faults, no_memory){ .head_dim = 128,
					.failure = CUDA_OUT_OF_MEMORY };
FIXTURE_VARIANT_ADD(faults, no_memory_windows){ .head_dim = 64,
						.window = 48,
						.failure = CUDA_OUT_OF_MEMORY };
FIXTURE_VARIANT_ADD(faults, error){ .head_dim = 128,
				    .failure = CUDA_LAUNCH_FAILED };
FIXTURE_VARIANT_ADD(faults, lost){ .head_dim = 128,
				   .failure = CUDA_LAUNCH_FAILED,
				   .is_lost = true };

FIXTURE_SETUP(faults)
{
	struct tiny_spec spec = gpu_spec(variant->head_dim, variant->window);

	if (variant->window)
		spec.nr_layers = 6;
	else
		spec.nr_layers = 1;
	standin_install();
	standin.is_hidden = true;
	if (variant->is_lost) /* nothing is given back */
		standin.total_bytes = 4ull << 30;
	standin.nr_sms = 4; /* of which memory depends */
	tiny_create(&self->model, &spec);
	gpu_fill_tokens(self->tokens, 1024, 3);
}

FIXTURE_TEARDOWN(faults)
{
	(void)variant;
	standin.fail = NULL;
	tarn_engine_destroy(self->engine);
	tiny_destroy(&self->model);
	standin_forget();
	if (!variant->is_lost)
		EXPECT_TRUE(standin_is_clean());
}

static int try_engine(struct fixture_faults *self, char *err, size_t errlen)
{
	struct tarn_engine_options options = gpu_options(&self->model);

	options.nr_threads = 1;
	self->engine = NULL;
	return tarn_engine_create(&options, &self->engine, err, errlen);
}

/*
 * What an engine may answer to a driver that fails: -ENODEV where the driver does not start,
 * -EOPNOTSUPP where a GPU does not say what it can, -ENOSPC from an append, which has one answer
 * for memory that does not come.
 */
static bool is_known(int rc, const struct variant_faults *variant)
{
	if (rc == -ENODEV || rc == -EOPNOTSUPP || rc == -ENOSPC)
		return true;
	return rc == (variant->failure == CUDA_OUT_OF_MEMORY ? -ENOMEM : -EIO);
}

TEST_F_TIMEOUT(faults, every_call_of_a_start, 120)
{
	uint32_t nr_failed = 0;

	for (int nth = 0; nth < MAX_CALLS; nth += variant->is_lost ? 17 : 1) {
		char err[256] = "";

		gpu_arm(nth, variant->failure, variant->is_lost);
		int rc = try_engine(self, err, sizeof(err));

		standin.fail = NULL;
		ASSERT_EQ(0, standin_depth());
		if (!gpu_has_failed) {
			ASSERT_EQ(0, rc);
			break;
		}
		nr_failed++;
		/* The pool's own thread may have met it, which nobody waits for. */
		if (!rc) {
			tarn_engine_destroy(self->engine);
		} else {
			ASSERT_TRUE(is_known(rc, variant))
			{
				TH_LOG("call %d, %s: %s: \"%s\"", nth,
				       gpu_failed_call, strerror(-rc), err);
			}
			ASSERT_TRUE(err[0] && strcmp(err, strerror(-rc)))
			{
				TH_LOG("call %d, %s: only \"%s\"", nth,
				       gpu_failed_call, err);
			}
		}
		self->engine = NULL;
		/* A lost device keeps what it had: the driver gives nothing back. */
		if (variant->is_lost)
			continue;
		ASSERT_TRUE(standin_is_clean())
		{
			TH_LOG("call %d, %s: %d", nth, gpu_failed_call, rc);
		}
	}
	EXPECT_GT(nr_failed, variant->is_lost ? 8 : 150);
}

/* ---- steps ---- */

enum { NR_SEQS = 3 };

/* Sequences of a batch; those that failed are NULL. */
struct batch {
	struct tarn_seq *seqs[NR_SEQS];
};

static void drop(struct batch *b, uint32_t i)
{
	tarn_seq_destroy(b->seqs[i]);
	b->seqs[i] = NULL;
}

/* All that live, once, at most @most tokens each. Return: whether none failed. */
static bool step(struct fixture_faults *self,
		 const struct variant_faults *variant, struct batch *b,
		 uint32_t most)
{
	struct tarn_work work[NR_SEQS];
	struct tarn_result r[NR_SEQS];
	uint32_t nr = 0, at[NR_SEQS];
	bool is_good = true;

	for (uint32_t i = 0; i < NR_SEQS; i++) {
		uint32_t pending = b->seqs[i] ? tarn_seq_pending(b->seqs[i]) :
						0;

		if (!pending)
			continue;
		at[nr] = i;
		work[nr++] = (struct tarn_work){ b->seqs[i], pending < most ?
								     pending :
								     most };
	}
	if (!nr)
		return true;
	int rc = tarn_step(self->engine, work, nr, r);

	ASSERT_EQ(0, standin_depth());
	ASSERT_TRUE(!rc || is_known(rc, variant))
	{
		TH_LOG("step: %s after %s", strerror(-rc), gpu_failed_call);
	}
	for (uint32_t i = 0; i < nr; i++) {
		if (!r[i].status)
			continue;
		is_good = false;
		ASSERT_TRUE(is_known(r[i].status, variant))
		{
			TH_LOG("sequence %u: %s after %s", at[i],
			       strerror(-r[i].status), gpu_failed_call);
		}
		/* Not even those of an earlier step. */
		ASSERT_TRUE(tarn_step_logits(self->engine, i) == NULL);
		drop(b, at[i]);
	}
	if (rc)
		ASSERT_FALSE(is_good);
	return is_good;
}

/* One is there, a second finds its prefix, a third is forked off; they decode together. */
static void work_together(struct fixture_faults *self,
			  const struct variant_faults *variant, struct batch *b)
{
	int rc = gpu_try_seq(self->engine, self->tokens, PROMPT + 130, 2, 0.8f,
			     &b->seqs[1]);
	struct batch alone = { .seqs = { b->seqs[1] } };

	ASSERT_TRUE(!rc || rc == -EAGAIN || is_known(rc, variant))
	{
		TH_LOG("a sequence: %s after %s", strerror(-rc),
		       gpu_failed_call);
	}
	while (alone.seqs[0] && tarn_seq_pending(alone.seqs[0]) > 1) {
		uint32_t left = tarn_seq_pending(alone.seqs[0]) - 1;

		step(self, variant, &alone, left < 110 ? left : 110);
	}
	b->seqs[1] = alone.seqs[0];
	if (b->seqs[1]) {
		rc = tarn_seq_fork(b->seqs[1], 1, &b->seqs[2]);
		ASSERT_TRUE(!rc || rc == -EAGAIN || is_known(rc, variant));
		if (rc)
			b->seqs[2] = NULL;
	}
	for (uint32_t i = 0; i < 3; i++)
		step(self, variant, b, GPU_KIT_BATCH / NR_SEQS);
}

/* Results of the step that was begun first: those that failed go. */
static void end_first(struct fixture_faults *self,
		      const struct variant_faults *variant, struct batch *b,
		      uint32_t nr, const uint32_t *at)
{
	struct tarn_result r[NR_SEQS];
	int rc = tarn_step_end(self->engine, r);

	ASSERT_EQ(0, standin_depth());
	ASSERT_TRUE(!rc || is_known(rc, variant));
	for (uint32_t i = 0; i < nr; i++) {
		if (!b->seqs[at[i]])
			continue;
		if (!r[i].status) {
			ASSERT_TRUE(r[i].has_token);
			continue;
		}
		ASSERT_TRUE(is_known(r[i].status, variant))
		{
			TH_LOG("sequence %u: %s after %s", at[i],
			       strerror(-r[i].status), gpu_failed_call);
		}
		drop(b, at[i]);
	}
}

/* Two that decode, each step begun before the last one ended. */
static void decode_ahead(struct fixture_faults *self,
			 const struct variant_faults *variant, struct batch *b)
{
	uint32_t nr[2], at[2][NR_SEQS], nr_begun = 0, nr_ended = 0;

	for (uint32_t round = 0; round < 5; round++) {
		struct tarn_work work[NR_SEQS];
		uint32_t *n = &nr[nr_begun % 2], *a = at[nr_begun % 2];

		*n = 0;
		for (uint32_t i = 0; i < NR_SEQS; i++) {
			if (!b->seqs[i])
				continue;
			work[*n] = (struct tarn_work){ b->seqs[i], 1 };
			a[(*n)++] = i;
		}
		if (*n) {
			ASSERT_EQ(0, tarn_step_begin(self->engine, work, *n));
			nr_begun++;
		}
		while (nr_begun > nr_ended &&
		       !(*n && nr_begun - nr_ended == 1 && round < 4 &&
			 tarn_step_may_begin(self->engine))) {
			end_first(self, variant, b, nr[nr_ended % 2],
				  at[nr_ended % 2]);
			nr_ended++;
		}
	}
	ASSERT_EQ(nr_begun, nr_ended);
}

/* It goes on as if nothing had been, or answers that the device is lost. */
static void expect_alive(struct fixture_faults *self,
			 const struct variant_faults *variant,
			 struct tarn_seq *seq)
{
	struct tarn_work work = { seq, 1 };
	struct tarn_result r;
	int rc = tarn_step(self->engine, &work, 1, &r);

	if (variant->is_lost) {
		ASSERT_EQ(-EIO, rc ? rc : r.status);
		ASSERT_EQ(0, standin_depth());
		return;
	}
	ASSERT_EQ(0, rc);
	ASSERT_EQ(0, r.status)
	{
		TH_LOG("after %s", gpu_failed_call);
	}
	ASSERT_TRUE(r.has_token);
	ASSERT_EQ(0, r.token);
}

static struct tarn_seq *computed(struct fixture_faults *self,
				 const struct variant_faults *variant,
				 uint32_t offset)
{
	struct batch b = { .seqs = { gpu_seq(self->engine,
					     self->tokens + offset, PROMPT) } };

	/* Small steps: larger ones, for which memory grows, are those that a call fails in. */
	while (tarn_seq_pending(b.seqs[0]) > 1)
		ASSERT_TRUE(step(self, variant, &b, 24));
	return b.seqs[0];
}

/* Return: whether a call failed. */
static bool run_with_failure(struct fixture_faults *self,
			     const struct variant_faults *variant, int nth,
			     bool is_ahead)
{
	struct tarn_seq *bystander = computed(self, variant, 300);
	struct batch b = { .seqs = { computed(self, variant, 0) } };
	bool has_failed;

	if (is_ahead) {
		b.seqs[1] = computed(self, variant, 600);
		ASSERT_TRUE(step(self, variant, &b, 1));
	}
	gpu_arm(nth, variant->failure, variant->is_lost);
	if (is_ahead)
		decode_ahead(self, variant, &b);
	else
		work_together(self, variant, &b);
	has_failed = gpu_has_failed;
	if (!variant->is_lost)
		standin.fail = NULL;
	/* One that failed can only be destroyed: a lost device is met once. */
	for (uint32_t i = 0; i < (variant->is_lost ? has_failed : 3); i++)
		expect_alive(self, variant, bystander);
	for (uint32_t i = 0; i < NR_SEQS; i++) {
		if (b.seqs[i] && !variant->is_lost)
			step(self, variant, &b, 1);
		drop(&b, i);
	}
	tarn_seq_destroy(bystander);
	if (!variant->is_lost) {
		/* Someone who comes later finds all as it should be. */
		char err[256] = "";

		tarn_seq_destroy(computed(self, variant, 600));
		ASSERT_EQ(0, kv_cache_check(self->engine->kv, err, sizeof(err)))
		{
			TH_LOG("%s", err);
		}
	}
	tarn_engine_destroy(self->engine);
	self->engine = NULL;
	standin.fail = NULL;
	return has_failed;
}

/* Tokens that the next step took from one that failed were never drawn. */
TEST_F(faults, a_step_behind_one_that_failed_fails_too)
{
	char err[256] = "";
	struct tarn_seq *seq;
	struct tarn_work work;
	struct tarn_result r;

	ASSERT_EQ(0, try_engine(self, err, sizeof(err)));
	seq = computed(self, variant, 0);
	work = (struct tarn_work){ seq, 1 };
	ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &r));
	ASSERT_EQ(0, tarn_step_begin(self->engine, &work, 1));
	ASSERT_EQ(0, tarn_step_begin(self->engine, &work, 1));
	gpu_arm(0, variant->failure, variant->is_lost);
	(void)tarn_step_end(self->engine, &r);
	ASSERT_TRUE(is_known(r.status, variant));
	if (!variant->is_lost)
		standin.fail = NULL;
	(void)tarn_step_end(self->engine, &r);
	EXPECT_TRUE(r.status && is_known(r.status, variant));
	EXPECT_FALSE(r.has_token);
	tarn_seq_destroy(seq);
	if (variant->is_lost)
		return;
	/* Nothing of the two is found again. */
	seq = gpu_seq(self->engine, self->tokens, PROMPT);
	EXPECT_GT(tarn_seq_cached(seq), 0);
	EXPECT_LT(tarn_seq_cached(seq), PROMPT);
	tarn_seq_destroy(seq);
}

static bool has_failed_to_record;

static cuda_status fail_record_once(const char *name)
{
	if (has_failed_to_record || strcmp(name, "cuEventRecord"))
		return CUDA_OK;
	has_failed_to_record = true;
	return CUDA_LAUNCH_FAILED;
}

/* What was launched of it reads memory that the next step writes. */
TEST_F(faults, a_step_that_was_not_started_is_waited_for)
{
	char err[256] = "";
	struct tarn_seq *seq;
	struct tarn_work work;
	struct tarn_result r;

	standin.is_lazy = standin.has_model = true;
	ASSERT_EQ(0, try_engine(self, err, sizeof(err)));
	seq = computed(self, variant, 0);
	work = (struct tarn_work){ seq, 1 };
	standin.fail = fail_record_once;
	ASSERT_EQ(0, tarn_step_begin(self->engine, &work, 1));
	EXPECT_TRUE(has_failed_to_record);
	EXPECT_EQ(0, standin_work_left(gpu_of(self->engine)->stream));
	EXPECT_EQ(-EIO, tarn_step_end(self->engine, &r));
	EXPECT_EQ(-EIO, r.status);
	tarn_seq_destroy(seq);
}

/* A fresh engine each time: memory that grows with use grows again. */
static void fail_each(struct fixture_faults *self,
		      const struct variant_faults *variant, bool is_ahead)
{
	uint32_t nr_failed = 0;

	for (int nth = 0; nth < MAX_CALLS; nth += variant->is_lost ? 17 : 1) {
		char err[256] = "";

		ASSERT_EQ(0, try_engine(self, err, sizeof(err)))
		{
			TH_LOG("%s", err);
		}
		if (!run_with_failure(self, variant, nth, is_ahead))
			break;
		nr_failed++;
		if (!variant->is_lost)
			ASSERT_TRUE(standin_is_clean())
			{
				TH_LOG("call %d, %s", nth, gpu_failed_call);
			}
		if (variant->window)
			nth += 4; /* more layers, the same calls */
	}
	EXPECT_GT(nr_failed, variant->is_lost ? 4 : 12);
}

TEST_F_TIMEOUT(faults, every_call_of_steps, 240)
{
	fail_each(self, variant, false);
}

TEST_F_TIMEOUT(faults, every_call_of_steps_that_are_begun_ahead, 240)
{
	fail_each(self, variant, true);
}

TEST_HARNESS_MAIN
