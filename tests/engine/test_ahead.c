/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that are begun while the one before is computed give the tokens of steps one
 * by one: many random requests with ends in the middle, cancellations, choices, admission in
 * between and memory that is nearly full, on the CPU, and on the driver without a GPU, whose
 * kernels compute a model of a kind and whose streams are as late as they can be. And what the
 * calls refuse, and what is left of sequences that are destroyed under a step.
 */
#include "tests/harness.h"

#include "tests/engine/gpu_kit.h"
#include "tests/engine/tiny_engine.h"

enum {
	NR_REQUESTS = 40,
	MAX_CHOICES = 3,
	MAX_PROMPT = 160,
	MAX_NEW = 250,
	BATCH = 96,
	MAX_LIVE = 16,
	NOT_CANCELLED = 1000,
};

FIXTURE(ahead)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	uint64_t random;
	uint32_t nr_begun,
		nr_behind; /* steps; those that one ran in front of */
};

FIXTURE_VARIANT(ahead)
{
	bool is_device;
	uint32_t window;
};

FIXTURE_VARIANT_ADD(ahead, cpu){ .is_device = false };
FIXTURE_VARIANT_ADD(ahead, cpu_window){ .window = 48 };
FIXTURE_VARIANT_ADD(ahead, device){ .is_device = true };
FIXTURE_VARIANT_ADD(ahead, device_window){ .is_device = true, .window = 48 };

FIXTURE_SETUP(ahead)
{
	struct tiny_spec spec = gpu_spec(64, variant->window);

	if (!variant->is_device)
		spec.type = GGUF_TYPE_F32;
	standin_install();
	standin.is_hidden = standin.is_lazy = standin.has_model = true;
	/* Tiles come and go by themselves. */
	standin.granule_bytes = 1 << 16;
	tiny_create(&self->model, &spec);
	self->random = 1;
}

static void open_engine(struct fixture_ahead *self,
			const struct variant_ahead *variant)
{
	struct tarn_engine_options options = gpu_options(&self->model);
	char err[256] = "";

	options.max_batch_tokens = BATCH;
	/* Windows go as soon as they can. */
	options.no_prefix_sharing = variant->window;
	options.kv_bytes = variant->window ? 5 << 20 : 3 << 20;
	if (!variant->is_device) {
		options.device = TARN_DEVICE_CPU;
		options.kv_bytes = variant->window ? 6 << 20 : 4 << 20;
	}
	ASSERT_EQ(0,
		  tarn_engine_create(&options, &self->engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
}

/* Nothing is left of what ran, on the driver's side neither. */
static void close_engine(struct fixture_ahead *self)
{
	struct tarn_engine_stat stat;
	char err[256] = "";

	tarn_engine_stat(self->engine, &stat);
	EXPECT_EQ(0, stat.nr_seqs);
	EXPECT_EQ(0, stat.kv_used_bytes);
	EXPECT_EQ(0, stat.kv_reserved_bytes);
	EXPECT_EQ(0, kv_cache_check(self->engine->kv, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	tarn_engine_destroy(self->engine);
	self->engine = NULL;
	EXPECT_EQ(0, standin_counts().nr_violations);
	standin_forget();
}

FIXTURE_TEARDOWN(ahead)
{
	(void)variant;
	if (self->engine)
		close_engine(self);
	tiny_destroy(&self->model);
	EXPECT_TRUE(standin_is_clean());
}

static uint32_t random_below(struct fixture_ahead *self, uint32_t n)
{
	self->random =
		self->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(self->random >> 33) % n;
}

/* ---- random requests ------------------------------------------------------------- */

struct lane {
	struct tarn_seq *seq; /* NULL: not there yet, or ended */
	int32_t tokens[MAX_NEW];
	float logprobs[MAX_NEW];
	uint32_t nr, nr_drawn;
	bool is_over;
};

struct request {
	int32_t prompt[MAX_PROMPT];
	uint32_t nr_prompt, max_new, nr_choices, cancel_at;
	bool has_stops; /* tokens that end it, and only the caller knows */
	struct tarn_sampling sampling;
	struct lane lanes[MAX_CHOICES];
	uint32_t nr_lanes;
};

/* Draws that the device makes, but for a few requests. */
static struct tarn_sampling random_sampling(struct fixture_ahead *self,
					    uint32_t i)
{
	struct tarn_sampling s = { .top_p = 1, .seed = i * 77 };
	uint32_t kind = random_below(self, 5);

	s.temperature = kind == 1 ? 0.9f : kind == 2 ? 1.1f : 0;
	s.top_k = kind == 2 ? 20 : 0;
	s.logprobs = kind == 3;
	s.nr_logprobs = kind == 3 ? 3 : 0;
	s.ignore_eos = kind == 4;
	if (i == 3 || i >= NR_REQUESTS - 4)
		switch (i % 4) {
		case 0:
			s.presence_penalty = 0.5f;
			break;
		case 1:
			s.mirostat_tau = 3;
			s.mirostat_eta = 0.1f;
			s.temperature = 1;
			break;
		default:
			s.temperature = 1;
			s.top_p = 0.9f;
		}
	return s;
}

static void make_requests(struct fixture_ahead *self,
			  const struct variant_ahead *variant,
			  struct request *requests)
{
	memset(requests, 0, NR_REQUESTS * sizeof(*requests));
	for (uint32_t i = 0; i < NR_REQUESTS; i++) {
		struct request *r = &requests[i];

		r->nr_prompt = 1 + random_below(self, MAX_PROMPT);
		/* Every third begins as the one before. */
		for (uint32_t k = 0; k < r->nr_prompt; k++)
			r->prompt[k] =
				i % 3 == 2 && k < 130 &&
						k < requests[i - 1].nr_prompt ?
					requests[i - 1].prompt[k] :
					3 + (int32_t)random_below(self, 256);
		r->max_new = 1 + random_below(self, MAX_NEW);
		/* A fork may find a device's few, large pages taken. */
		r->nr_choices =
			i % 7 == 6 && !variant->is_device ? MAX_CHOICES : 1;
		r->cancel_at = i % 8 == 5 ? random_below(self, 20) :
					    NOT_CANCELLED;
		r->has_stops = i % 2;
		r->sampling = random_sampling(self, i);
	}
}

/* Return: whether it was let in. */
static bool admit(struct fixture_ahead *self, struct request *r)
{
	struct tarn_seq_params p = {
		.prompt = r->prompt,
		.nr_prompt = r->nr_prompt,
		.max_new_tokens = r->max_new,
		.nr_choices = r->nr_choices,
		.sampling = r->sampling,
	};
	char err[256] = "";
	int rc = tarn_seq_create(self->engine, &p, &r->lanes[0].seq, err,
				 sizeof(err));

	ASSERT_TRUE(!rc || rc == -EAGAIN)
	{
		TH_LOG("%s", err);
	}
	r->nr_lanes = rc ? 0 : 1;
	return !rc;
}

static void fork_lanes(struct request *r)
{
	while (r->nr_lanes && r->nr_lanes < r->nr_choices && r->lanes[0].seq &&
	       tarn_seq_pending(r->lanes[0].seq) == 1) {
		ASSERT_EQ(0, tarn_seq_fork(r->lanes[0].seq, r->nr_lanes,
					   &r->lanes[r->nr_lanes].seq));
		r->nr_lanes++;
	}
}

static void end_lane(struct lane *lane)
{
	tarn_seq_destroy(lane->seq);
	lane->seq = NULL;
	lane->is_over = true;
}

struct slot {
	struct request *request;
	struct lane *lane;
	bool draws;
};

/* A step as it was begun. */
struct begun {
	struct slot slots[BATCH];
	struct tarn_work work[BATCH];
	uint32_t nr;
};

/* Decodes first, then prompts, each as the daemon does. */
static void compose(struct request *requests, struct begun *step)
{
	uint32_t left = BATCH;

	step->nr = 0;
	for (int is_prompt = 0; is_prompt < 2; is_prompt++) {
		for (uint32_t i = 0; i < NR_REQUESTS * MAX_CHOICES; i++) {
			struct request *r = &requests[i / MAX_CHOICES];
			struct lane *lane = &r->lanes[i % MAX_CHOICES];
			uint32_t keep = r->nr_lanes < r->nr_choices, nr;

			if (!lane->seq || !left)
				continue;
			nr = tarn_seq_pending(lane->seq);
			if ((lane->nr_drawn &&
			     lane->nr + lane->nr_drawn >= r->max_new) ||
			    nr <= keep || (nr == 1 && !keep) == (bool)is_prompt)
				continue;
			nr = nr - keep < left ? nr - keep : left;
			left -= nr;
			step->work[step->nr] =
				(struct tarn_work){ lane->seq, nr };
			step->slots[step->nr++] = (struct slot){
				r, lane, nr == tarn_seq_pending(lane->seq)
			};
		}
	}
}

static void take(struct slot *slot, const struct tarn_result *result)
{
	struct request *r = slot->request;
	struct lane *lane = slot->lane;

	lane->nr_drawn -= slot->draws;
	if (lane->is_over) {
		EXPECT_FALSE(result->has_token);
		return;
	}
	ASSERT_EQ(0, result->status);
	ASSERT_EQ(slot->draws, result->has_token);
	if (!result->has_token)
		return;
	lane->logprobs[lane->nr] = result->logprob;
	lane->tokens[lane->nr++] = result->token;
	if (result->is_end || lane->nr == r->max_new ||
	    (r->has_stops && result->token % 31 == 7))
		end_lane(lane);
}

static void cancel(struct request *r)
{
	if (!r->nr_lanes || r->lanes[0].nr < r->cancel_at)
		return;
	for (uint32_t i = 0; i < r->nr_lanes; i++)
		if (r->lanes[i].seq)
			end_lane(&r->lanes[i]);
	r->nr_lanes = r->nr_choices; /* no more come */
}

static uint32_t nr_live(const struct request *requests)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < NR_REQUESTS * MAX_CHOICES; i++)
		nr += requests[i / MAX_CHOICES].lanes[i % MAX_CHOICES].seq !=
		      NULL;
	return nr;
}

/* All of them, from the first to the last token. Return: how often one had to wait for memory. */
static uint32_t serve(struct fixture_ahead *self, struct request *requests,
		      bool is_ahead)
{
	static struct begun steps[2];
	static struct tarn_result results[BATCH];
	uint32_t nr_in = 0, nr_steps = 0, nr_refused = 0, first = 0;
	bool goes_on;

	do {
		struct begun *step = &steps[(first + nr_steps) % 2];

		for (uint32_t i = 0; i < NR_REQUESTS; i++)
			cancel(&requests[i]);
		while (nr_in < NR_REQUESTS && nr_live(requests) < MAX_LIVE &&
		       admit(self, &requests[nr_in]))
			nr_in++;
		nr_refused += nr_in < NR_REQUESTS &&
			      nr_live(requests) < MAX_LIVE;
		for (uint32_t i = 0; i < NR_REQUESTS; i++)
			fork_lanes(&requests[i]);
		compose(requests, step);
		goes_on = is_ahead && step->nr;
		if (step->nr) {
			ASSERT_EQ(0, tarn_step_begin(self->engine, step->work,
						     step->nr));
			for (uint32_t i = 0; i < step->nr; i++)
				step->slots[i].lane->nr_drawn +=
					step->slots[i].draws;
			self->nr_begun++;
			self->nr_behind += nr_steps++;
		}
		while (nr_steps && !(goes_on && nr_steps == 1 &&
				     tarn_step_may_begin(self->engine))) {
			step = &steps[first % 2];
			ASSERT_EQ(0, tarn_step_end(self->engine, results));
			for (uint32_t i = 0; i < step->nr; i++)
				take(&step->slots[i], &results[i]);
			first++;
			nr_steps--;
			tarn_engine_tidy(self->engine);
			/* What was given up under the step behind is gone. */
			kvpool_trim(self->engine->pool, UINT64_MAX);
		}
	} while (nr_in < NR_REQUESTS || nr_live(requests) || nr_steps);
	return nr_refused;
}

static void expect_same(const struct request *want, const struct request *got)
{
	for (uint32_t i = 0; i < NR_REQUESTS; i++) {
		for (uint32_t k = 0; k < MAX_CHOICES; k++) {
			const struct lane *w = &want[i].lanes[k];
			const struct lane *g = &got[i].lanes[k];
			uint32_t nr = w->nr;

			/* It leaves with the step behind the one that runs. */
			if (want[i].cancel_at != NOT_CANCELLED)
				ASSERT_TRUE(g->nr >= nr && g->nr <= nr + 1);
			else
				ASSERT_EQ(nr, g->nr)
				{
					TH_LOG("request %u, choice %u", i, k);
				}
			ASSERT_EQ(0, memcmp(w->tokens, g->tokens,
					    nr * sizeof(w->tokens[0])))
			{
				TH_LOG("request %u, choice %u", i, k);
			}
			if (want[i].sampling.logprobs)
				ASSERT_EQ(0, memcmp(w->logprobs, g->logprobs,
						    nr * sizeof(float)));
		}
	}
}

TEST_F_TIMEOUT(ahead, random_requests_get_the_same_tokens, 240)
{
	static struct request one_by_one[NR_REQUESTS], ahead[NR_REQUESTS];
	uint32_t nr_refused;

	for (uint32_t round = 0; round < 2; round++) {
		make_requests(self, variant, one_by_one);
		memcpy(ahead, one_by_one, sizeof(ahead));
		open_engine(self, variant);
		serve(self, one_by_one, false);
		ASSERT_EQ(0, self->nr_behind);
		close_engine(self);
		open_engine(self, variant);
		self->nr_begun = 0;
		nr_refused = serve(self, ahead, true);
		TH_LOG("%u steps, %u of them begun ahead, %u times no memory",
		       self->nr_begun, self->nr_behind, nr_refused);
		EXPECT_GT(self->nr_behind, 40);
		EXPECT_GT(nr_refused, 0);
		self->nr_behind = 0;
		close_engine(self);
		expect_same(one_by_one, ahead);
	}
}

/* ---- the calls -------------------------------------------------------------------- */

static struct tarn_seq *open_seq(struct fixture_ahead *self,
				 const int32_t *prompt, uint32_t nr,
				 const struct tarn_sampling *sampling)
{
	struct tarn_seq_params p = {
		.prompt = prompt,
		.nr_prompt = nr,
		.max_new_tokens = 20,
		.nr_choices = 1,
		.sampling = *sampling,
	};
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	ASSERT_EQ(0, tarn_seq_create(self->engine, &p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return seq;
}

static const struct tarn_sampling greedy = { .top_p = 1, .ignore_eos = true };

static void begin_ok(struct fixture_ahead *self, struct tarn_seq *seq)
{
	struct tarn_work work = { seq, tarn_seq_pending(seq) };

	ASSERT_EQ(0, tarn_step_begin(self->engine, &work, 1));
}

static struct tarn_result end_ok(struct fixture_ahead *self)
{
	struct tarn_result r;

	ASSERT_EQ(0, tarn_step_end(self->engine, &r));
	ASSERT_EQ(0, r.status);
	return r;
}

static void expect_busy(struct fixture_ahead *self, struct tarn_seq *seq)
{
	struct tarn_work work = { seq, 1 };
	struct tarn_result r;

	EXPECT_FALSE(tarn_step_may_begin(self->engine));
	EXPECT_EQ(-EBUSY, tarn_step_begin(self->engine, &work, 1));
	EXPECT_EQ(-EBUSY, tarn_step(self->engine, &work, 1, &r));
}

/* A step of @seq, which decodes, is followed by another one, or is not. */
static void expect_followed(struct fixture_ahead *self,
			    const struct tarn_sampling *sampling, bool is)
{
	static const int32_t prompt[] = { 5, 6, 7, 8 };
	struct tarn_seq *seq = open_seq(self, prompt, 4, sampling);

	/* Another may join the next one, and the prompt is sealed at the end. */
	begin_ok(self, seq);
	expect_busy(self, seq);
	end_ok(self);
	begin_ok(self, seq);
	EXPECT_EQ(is, tarn_step_may_begin(self->engine));
	if (is) {
		EXPECT_EQ(1, tarn_seq_pending(seq));
		begin_ok(self, seq);
	}
	expect_busy(self, seq);
	end_ok(self);
	if (is)
		end_ok(self);
	EXPECT_TRUE(tarn_step_may_begin(self->engine));
	tarn_seq_destroy(seq);
}

TEST_F(ahead, a_step_waits_where_the_host_has_to_know_more)
{
	static const struct tarn_logit_bias bias = { 9, 1 };
	const struct tarn_sampling kinds[] = {
		{ .top_p = 1, .presence_penalty = 1 },
		{ .top_p = 1, .repetition_penalty = 1.5f },
		{ .top_p = 1, .biases = &bias, .nr_biases = 1 },
		{ .top_p = 1,
		  .temperature = 1,
		  .mirostat_tau = 2,
		  .mirostat_eta = 0.1f },
	};
	struct tarn_sampling s = { .top_p = 0.9f, .temperature = 1 };
	char err[128];

	open_engine(self, variant);
	expect_followed(self, &greedy, true);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		expect_followed(self, &kinds[i], false);
	/* The GPU's kernel does not draw so, the CPU's code does. */
	expect_followed(self, &s, !variant->is_device);
	s = (struct tarn_sampling){ .top_p = 1, .logprobs = true };
	expect_followed(self, &s, true);
	ASSERT_EQ(0, tarn_grammar_create(self->engine, TARN_GRAMMAR_REGEX,
					 "[a-z]*", 6, &s.grammar, err,
					 sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	expect_followed(self, &s, false);
	tarn_grammar_destroy(s.grammar);
}

TEST_F(ahead, what_is_wrong_with_a_step_is_said)
{
	static const int32_t prompt[] = { 5, 6, 7, 8 };
	struct tarn_seq *seq, *child;
	struct tarn_result r;

	open_engine(self, variant);
	EXPECT_EQ(-EINVAL, tarn_step_end(self->engine, &r));
	seq = open_seq(self, prompt, 4, &greedy);
	begin_ok(self, seq);
	end_ok(self);
	begin_ok(self, seq);
	/* One token is pending, the one that is drawn. */
	struct tarn_work two = { seq, 2 }, twice[] = { { seq, 1 }, { seq, 1 } };

	EXPECT_EQ(-EINVAL, tarn_step_begin(self->engine, &two, 1));
	EXPECT_EQ(-EINVAL, tarn_step_begin(self->engine, twice, 2));
	EXPECT_EQ(-EINVAL, tarn_seq_fork(seq, 1, &child));
	end_ok(self);
	/* A prompt whose last token is due, but what is before is being computed. */
	static const int32_t other[] = { 9, 10, 11, 12 };
	struct tarn_seq *parent = open_seq(self, other, 4, &greedy);
	struct tarn_work three = { parent, 3 };

	ASSERT_EQ(0, tarn_step_begin(self->engine, &three, 1));
	EXPECT_EQ(-EBUSY, tarn_seq_fork(parent, 1, &child));
	end_ok(self);
	ASSERT_EQ(0, tarn_seq_fork(parent, 1, &child));
	tarn_seq_destroy(child);
	tarn_seq_destroy(parent);
	begin_ok(self, seq);
	end_ok(self);
	/* Its logits are there until another one is begun. */
	EXPECT_TRUE(tarn_step_logits(self->engine, 0) != NULL);
	begin_ok(self, seq);
	EXPECT_TRUE(tarn_step_logits(self->engine, 0) == NULL);
	begin_ok(self, seq);
	end_ok(self);
	EXPECT_TRUE(tarn_step_logits(self->engine, 0) == NULL);
	end_ok(self);
	EXPECT_TRUE(tarn_step_logits(self->engine, 0) != NULL);
	tarn_seq_destroy(seq);
}

static uint64_t used_bytes(const struct fixture_ahead *self)
{
	struct tarn_engine_stat stat;

	tarn_engine_stat(self->engine, &stat);
	return stat.kv_used_bytes;
}

/* 70 tokens, then @nr more; a second step behind the last one is of no consequence. */
static uint32_t cached_after(struct fixture_ahead *self, int32_t first,
			     uint32_t nr, bool is_ahead)
{
	int32_t prompt[128] = { first };
	struct tarn_seq *seq;
	uint32_t cached;

	for (int32_t i = 1; i < 70; i++)
		prompt[i] = 3 + i;
	seq = open_seq(self, prompt, 70, &greedy);
	for (uint32_t i = 0; i < nr; i++) {
		begin_ok(self, seq);
		if (is_ahead && i && i + 1 == nr)
			begin_ok(self, seq);
		prompt[70 + i] = end_ok(self).token;
	}
	tarn_seq_destroy(seq);
	if (is_ahead) {
		EXPECT_GT(used_bytes(self), 0);
		EXPECT_FALSE(end_ok(self).has_token);
	}
	EXPECT_EQ(0, used_bytes(self));
	prompt[70 + nr] = 3;
	seq = open_seq(self, prompt, 71 + nr, &greedy);
	cached = tarn_seq_cached(seq);
	begin_ok(self, seq);
	EXPECT_TRUE(end_ok(self).has_token);
	tarn_seq_destroy(seq);
	return cached;
}

TEST_F(ahead, a_row_that_nobody_wanted_leaves_nothing_behind)
{
	open_engine(self, variant);
	for (uint32_t nr = 2; nr < 20; nr++) {
		uint32_t want = cached_after(self, 3 + (int32_t)nr, nr, false);

		EXPECT_EQ(69 + nr, want);
		EXPECT_EQ(want,
			  cached_after(self, 103 + (int32_t)nr, nr, true));
	}
}

/* Small ones, until there is no memory for another. */
static uint32_t fill_memory(struct fixture_ahead *self, struct tarn_seq **seqs,
			    uint32_t most)
{
	static const int32_t prompt[] = { 5 };
	struct tarn_seq_params p = {
		.prompt = prompt,
		.nr_prompt = 1,
		.max_new_tokens = 60,
		.nr_choices = 1,
		.sampling = greedy,
		.no_prefix_cache = true,
	};
	char err[256];
	uint32_t nr = 0;

	while (nr < most &&
	       !tarn_seq_create(self->engine, &p, &seqs[nr], err, sizeof(err)))
		nr++;
	ASSERT_LT(nr, most);
	return nr;
}

/* 62 tokens and 2 more fill the tile that is kept for them; the next one finds no memory. */
TEST_F(ahead, a_sequence_without_memory_in_the_second_step_harms_nobody)
{
	static struct tarn_seq *fill[1000];
	struct tarn_seq *seqs[2];
	struct tarn_result r[2];
	uint32_t nr_fill;

	if (variant->is_device || variant->window)
		SKIP(return, "its pages hold more than a tile");
	open_engine(self, variant);
	for (uint32_t i = 0; i < 2; i++) {
		int32_t prompt[62];
		struct tarn_seq_params p = {
			.prompt = prompt,
			.nr_prompt = 62,
			.max_new_tokens = i ? 60 : 2,
			.nr_choices = 1,
			.sampling = greedy,
			.no_prefix_cache = true,
		};
		char err[256];

		gpu_fill_tokens(prompt, 62, i);
		ASSERT_EQ(0, tarn_seq_create(self->engine, &p, &seqs[i], err,
					     sizeof(err)));
		begin_ok(self, seqs[i]);
		end_ok(self);
		if (!i) {
			begin_ok(self, seqs[0]);
			end_ok(self);
		}
	}
	nr_fill = fill_memory(self, fill, 1000);
	const struct tarn_work work[] = { { seqs[0], 1 }, { seqs[1], 1 } };

	ASSERT_EQ(0, tarn_step_begin(self->engine, work, 2));
	ASSERT_EQ(0, tarn_step_begin(self->engine, work, 2));
	ASSERT_EQ(0, tarn_step_end(self->engine, r));
	EXPECT_EQ(0, r[0].status);
	EXPECT_TRUE(r[0].has_token && r[1].has_token);
	/* Who does not know yet is not let go on with it. */
	EXPECT_FALSE(tarn_step_may_begin(self->engine));
	ASSERT_EQ(0, tarn_step_end(self->engine, r));
	EXPECT_EQ(-ENOSPC, r[0].status);
	EXPECT_EQ(0, r[1].status);
	EXPECT_TRUE(r[1].has_token);
	tarn_seq_destroy(seqs[0]);
	begin_ok(self, seqs[1]);
	EXPECT_TRUE(end_ok(self).has_token);
	tarn_seq_destroy(seqs[1]);
	while (nr_fill)
		tarn_seq_destroy(fill[--nr_fill]);
}

/* A sequence goes while two of its steps are under way. */
static void destroy_under_two_steps(struct fixture_ahead *self)
{
	static const int32_t prompt[] = { 5, 6, 7, 8 };
	struct tarn_seq *seq = open_seq(self, prompt, 4, &greedy);

	begin_ok(self, seq);
	end_ok(self);
	begin_ok(self, seq);
	begin_ok(self, seq);
	tarn_seq_destroy(seq);
}

TEST_F(ahead, sequences_are_destroyed_under_two_steps)
{
	struct tarn_engine_stat stat;

	open_engine(self, variant);
	destroy_under_two_steps(self);
	for (uint32_t i = 0; i < 2; i++) {
		tarn_engine_stat(self->engine, &stat);
		EXPECT_EQ(1, stat.nr_seqs);
		EXPECT_FALSE(end_ok(self).has_token);
	}
	tarn_engine_stat(self->engine, &stat);
	EXPECT_EQ(0, stat.nr_seqs);
	/* An engine does not wait for anybody to end what was begun. */
	destroy_under_two_steps(self);
	tarn_engine_destroy(self->engine);
	self->engine = NULL;
	standin_forget();
}

TEST_HARNESS_MAIN
