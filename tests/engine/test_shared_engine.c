/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two engines on one pool: the second one finds what the first has computed,
 * computes the tail alone, and its logits are the same bits. Who is another
 * user, has another model or another precision finds nothing. Tiny models
 * always, whole ones where they are there. Where the kernel has pools, each
 * engine opens the same one by its name; else they are given one.
 */
#include <unistd.h>

#include "engine/kv/libkvpool.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/tiny_model.h"

enum {
	NR_NEW = 4,
	NR_PROMPT = 301, /* beyond both the tile and Gemma's tiny window */
	TILE = 64,
	MAX_VOCAB = 300000,
};

struct trace {
	float *logits; /* [NR_NEW][n_vocab] */
	int32_t tokens[NR_NEW];
	uint32_t nr_cached;
};

FIXTURE(engines)
{
	struct tiny_model tiny;
	const char *path;
	struct kvpool *pool;
	const char *pool_name; /* NULL: it has none */
	char name[32];
	int32_t prompt[NR_PROMPT];
	uint32_t n_vocab;
	struct trace want, got;
};

FIXTURE_VARIANT(engines)
{
	const struct kit_model *model; /* NULL: tiny */
	const char *arch;
	uint32_t type;
	bool precise;
};

FIXTURE_VARIANT_ADD(engines, tiny_llama){ .arch = "llama",
					  .type = GGUF_TYPE_Q4_0 };
FIXTURE_VARIANT_ADD(engines, tiny_llama_precise){ .arch = "llama",
						  .type = GGUF_TYPE_Q4_0,
						  .precise = true };
FIXTURE_VARIANT_ADD(engines, tiny_gemma3){ .arch = "gemma3",
					   .type = GGUF_TYPE_Q8_0 };
FIXTURE_VARIANT_ADD(engines, smollm2){ .model = &kit_smollm2 };
FIXTURE_VARIANT_ADD(engines, gemma3){ .model = &kit_gemma3 };

static struct tarn_engine *open_with(struct fixture_engines *self,
				     struct tarn_engine_options options)
{
	struct tarn_engine *engine = NULL;
	char err[256] = "";

	options.model_path = self->path;
	options.ctx_tokens = 512;
	options.nr_threads = 2;
	options.kv_bytes = 64 << 20;
	if (options.pool && self->pool_name) {
		options.pool = NULL;
		options.pool_name = self->pool_name;
	}
	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return engine;
}

static struct tarn_engine *open_shared(struct fixture_engines *self,
				       const struct variant_engines *variant)
{
	return open_with(self, (struct tarn_engine_options){
				       .pool = self->pool,
				       .precise = variant->precise,
			       });
}

/* A whole request of @uid; the prompt in pieces of @chunk. */
static void run(struct fixture_engines *self, struct tarn_engine *e, uid_t uid,
		uint32_t chunk, struct trace *out)
{
	struct tarn_seq_params p = {
		.principal = { .uid = uid },
		.prompt = self->prompt,
		.nr_prompt = NR_PROMPT,
		.max_new_tokens = NR_NEW,
		.nr_choices = 1,
		.sampling = { .top_p = 1, .ignore_eos = true },
	};
	struct tarn_seq *seq;
	char err[256];

	ASSERT_EQ(0, tarn_seq_create(e, &p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	out->nr_cached = tarn_seq_cached(seq);
	EXPECT_EQ(NR_PROMPT - out->nr_cached, tarn_seq_pending(seq));
	for (uint32_t n = 0; n < NR_NEW;) {
		struct tarn_result r = kit_step(e, seq, chunk);

		if (r.has_token) {
			out->tokens[n] = r.token;
			memcpy(out->logits + (size_t)n++ * self->n_vocab,
			       tarn_step_logits(e, 0),
			       self->n_vocab * sizeof(float));
		}
		tarn_engine_tidy(e);
	}
	tarn_seq_destroy(seq);
	tarn_engine_tidy(e);
}

static void expect_same(const struct fixture_engines *self)
{
	uint32_t nr_differ = 0;

	for (size_t i = 0; i < (size_t)NR_NEW * self->n_vocab; i++)
		nr_differ += memcmp(&self->want.logits[i], &self->got.logits[i],
				    sizeof(float)) != 0;
	EXPECT_EQ(0, nr_differ);
	for (uint32_t n = 0; n < NR_NEW; n++)
		EXPECT_EQ(self->want.tokens[n], self->got.tokens[n]);
}

FIXTURE_SETUP(engines)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.limit_bytes = 256 << 20,
		.name = self->name,
	};
	struct tarn_engine *alone;

	if (variant->model) {
		self->path = kit_path(variant->model);
		if (!self->path)
			SKIP(return, "%s names no model", variant->model->env);
		if (kit_is_too_slow(variant->model))
			SKIP(return,
				   "too slow under sanitizers; tiny models run");
	} else {
		struct tiny_spec spec = strcmp(variant->arch, "llama") ?
						tiny_gemma3(variant->type) :
						tiny_llama(variant->type);

		tiny_create(&self->tiny, &spec);
		self->path = self->tiny.path;
	}
	snprintf(self->name, sizeof(self->name), "tarn-test-%d", getpid());
	if (!kvpool_open(&options, &self->pool)) {
		self->pool_name = self->name;
	} else {
		options.name = NULL;
		ASSERT_EQ(0, kvpool_open(&options, &self->pool));
	}
	for (uint32_t i = 0; i < NR_PROMPT; i++)
		self->prompt[i] = (int32_t)(3 + i * 37 % 200);
	alone = open_with(self, (struct tarn_engine_options){
					.precise = variant->precise,
					.no_prefix_cache = true,
				});
	self->n_vocab = tarn_engine_info(alone)->nr_vocab;
	ASSERT_LE(self->n_vocab, MAX_VOCAB);
	self->want.logits =
		calloc((size_t)NR_NEW * self->n_vocab, sizeof(float));
	self->got.logits =
		calloc((size_t)NR_NEW * self->n_vocab, sizeof(float));
	EXPECT_FALSE(tarn_engine_info(alone)->shares_prefixes);
	run(self, alone, 1000, 512, &self->want);
	EXPECT_EQ(0, self->want.nr_cached);
	tarn_engine_destroy(alone);
}

FIXTURE_TEARDOWN(engines)
{
	free(self->want.logits);
	free(self->got.logits);
	kvpool_put(self->pool);
	if (!variant->model)
		tiny_destroy(&self->tiny);
}

TEST_F_TIMEOUT(engines, the_second_computes_the_tail_alone, 120)
{
	struct tarn_engine *first = open_shared(self, variant);
	struct tarn_engine *second = open_shared(self, variant);
	uint32_t per_token = tarn_engine_info(first)->kv_bytes_per_token;
	struct tarn_engine_stat stat;
	struct kvpool_stat before, after;

	ASSERT_TRUE(tarn_engine_info(first)->shares_prefixes);
	run(self, first, 1000, 512, &self->got);
	EXPECT_EQ(0, self->got.nr_cached);
	expect_same(self);
	EXPECT_EQ(0, kvpool_stat(self->pool, &before));
	EXPECT_GT(before.nr_keys, 0);
	memset(self->got.logits, 0xff, self->n_vocab * sizeof(float));
	run(self, second, 1000, 7, &self->got);
	EXPECT_EQ(NR_PROMPT / TILE * TILE, self->got.nr_cached);
	expect_same(self);
	tarn_engine_stat(second, &stat);
	EXPECT_EQ(self->got.nr_cached, stat.prefix_shared_tokens);
	EXPECT_EQ(self->got.nr_cached, stat.prefix_hit_tokens);
	EXPECT_EQ(NR_PROMPT - self->got.nr_cached, stat.prompt_tokens);
	/*
	 * One copy: what the second adds is the tile it went on in, twice once sealed. The kernel
	 * gives larger pieces than a tiny tile.
	 */
	EXPECT_EQ(0, kvpool_stat(self->pool, &after));
	EXPECT_EQ(before.shared_bytes, after.shared_bytes);
	if (!self->pool_name)
		EXPECT_GE(before.resident_bytes + 2ull * TILE * per_token,
			  after.resident_bytes);
	tarn_engine_destroy(first);
	/* The first is gone: what it left serves on. */
	struct tarn_engine *third = open_shared(self, variant);

	run(self, third, 1000, 512, &self->got);
	EXPECT_EQ(NR_PROMPT / TILE * TILE, self->got.nr_cached);
	expect_same(self);
	tarn_engine_destroy(second);
	tarn_engine_destroy(third);
}

TEST_F_TIMEOUT(engines, a_restart_finds_what_was_there_before, 120)
{
	struct tarn_engine *e = open_shared(self, variant);

	run(self, e, 1000, 512, &self->got);
	tarn_engine_destroy(e);
	e = open_shared(self, variant);
	run(self, e, 1000, 512, &self->got);
	EXPECT_EQ(NR_PROMPT / TILE * TILE, self->got.nr_cached);
	expect_same(self);
	tarn_engine_destroy(e);
}

TEST_F_TIMEOUT(engines, others_find_nothing, 120)
{
	struct tarn_engine *first = open_shared(self, variant);
	struct tarn_engine *second = open_shared(self, variant), *other;

	run(self, first, 1000, 512, &self->got);
	/* Another user of the same model. */
	run(self, second, 1001, 512, &self->got);
	EXPECT_EQ(0, self->got.nr_cached);
	expect_same(self);
	tarn_engine_destroy(second);
	/* Another precision. */
	other = open_with(self, (struct tarn_engine_options){
					.pool = self->pool,
					.precise = !variant->precise,
				});
	run(self, other, 1000, 512, &self->got);
	EXPECT_EQ(0, self->got.nr_cached);
	tarn_engine_destroy(other);
	/* One that is told not to. */
	other = open_with(self, (struct tarn_engine_options){
					.pool = self->pool,
					.precise = variant->precise,
					.no_prefix_sharing = true,
				});
	EXPECT_FALSE(tarn_engine_info(other)->shares_prefixes);
	run(self, other, 1000, 512, &self->got);
	EXPECT_EQ(0, self->got.nr_cached);
	expect_same(self);
	tarn_engine_destroy(other);
	tarn_engine_destroy(first);
}

TEST_F_TIMEOUT(engines, other_weights_find_nothing, 120)
{
	struct tarn_engine *first, *other;
	struct tiny_model model;
	struct tiny_spec spec;

	if (variant->model)
		SKIP(return, "tiny models show it");
	first = open_shared(self, variant);
	run(self, first, 1000, 512, &self->got);
	spec = self->tiny.spec;
	spec.seed += 100;
	tiny_create(&model, &spec);
	self->path = model.path;
	other = open_shared(self, variant);
	run(self, other, 1000, 512, &self->got);
	EXPECT_EQ(0, self->got.nr_cached);
	EXPECT_NE(0, memcmp(self->want.logits, self->got.logits,
			    self->n_vocab * sizeof(float)));
	tarn_engine_destroy(other);
	tarn_engine_destroy(first);
	tiny_destroy(&model);
}

TEST_F_TIMEOUT(engines, users_share_where_the_operator_says_so, 120)
{
	struct tarn_engine_options options = {
		.pool = self->pool,
		.precise = variant->precise,
		.prefix_scope = TARN_PREFIX_OF_ALL,
	};
	struct tarn_engine *first = open_with(self, options), *second;

	run(self, first, 1000, 512, &self->got);
	second = open_with(self, options);
	run(self, second, 1001, 512, &self->got);
	EXPECT_EQ(NR_PROMPT / TILE * TILE, self->got.nr_cached);
	expect_same(self);
	tarn_engine_destroy(second);
	/* Of another scope. */
	second = open_shared(self, variant);
	run(self, second, 1000, 512, &self->got);
	EXPECT_EQ(0, self->got.nr_cached);
	tarn_engine_destroy(second);
	tarn_engine_destroy(first);
}

TEST_F(engines, a_pool_by_name_needs_the_kernel)
{
	struct tarn_engine_options options = {
		.model_path = self->path,
		.kv_backend = TARN_KV_MEMFD,
		.kv_bytes = 16 << 20,
		.pool_name = "tests",
	};
	struct tarn_engine *engine;
	char err[256] = "";

	(void)variant;
	EXPECT_EQ(-ENODEV,
		  tarn_engine_create(&options, &engine, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "pool \"tests\"") != NULL);
	EXPECT_TRUE(strstr(err, "kernel module") != NULL);
}

TEST_HARNESS_MAIN
