/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU backend on a driver without a GPU: what it says where something is
 * missing, and what an engine on it launches: the right kernels with grids that
 * the driver takes, inputs that have arrived on the device, nothing left behind.
 * Calls that fail are in test_gpu_faults.c.
 */
#include "tests/harness.h"

#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cuda/images.h"
#include "tests/engine/gpu_kit.h"

/* ---- creation ---- */

static int try_create(uint32_t device, char *err, size_t errlen)
{
	struct backend_options options = { .nr_threads = 1, .device = device };
	struct backend *backend = NULL;
	int rc = backend_gpu_create(&options, &backend, err, errlen);

	if (!rc)
		backend->ops->destroy(backend);
	return rc;
}

/* It answers @rc with @want in the message, and leaves nothing. */
static void create_err(uint32_t device, int rc, const char *want)
{
	char err[256] = "";

	EXPECT_EQ(rc, try_create(device, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, want) != NULL)
	{
		TH_LOG("want \"%s\", got \"%s\"", want, err);
	}
	EXPECT_TRUE(standin_is_clean());
}

TEST(creation_needs_a_library)
{
	standin_install();
	standin.has_library = false;
	create_err(0, -ENODEV, "device cuda: no libcuda.so.1");
	/* A driver that is installed while the program runs is found. */
	standin.has_library = true;
	create_err(1, -ENODEV, "device cuda: GPU 1");
	EXPECT_EQ(0, try_create(0, NULL, 0));
	EXPECT_TRUE(standin_is_clean());
}

TEST(creation_names_the_entry_point_that_an_old_driver_lacks)
{
	standin_install();
#define CHECK(symbol, member, version, params) \
	standin.missing = #symbol;             \
	create_err(                            \
		0, -EOPNOTSUPP,                \
		"device cuda: the NVIDIA driver is too old: it lacks " #symbol);
	GPU_ENTRIES(CHECK)
#undef CHECK
	standin.missing = NULL;
	EXPECT_EQ(0, try_create(0, NULL, 0));
}

TEST(creation_needs_a_gpu)
{
	standin_install();
	standin.nr_devices = 0;
	create_err(0, -ENODEV, "device cuda: no NVIDIA GPU here");
}

TEST(creation_needs_the_kernels_generation)
{
	static const int others[][2] = { { 8, 9 }, { 9, 1 }, { 10, 0 } };
	char want[64];

	standin_install();
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		memcpy(standin.capability, others[i], sizeof(others[i]));
		snprintf(want, sizeof(want),
			 "Stand-in 0 has compute capability %d.%d",
			 others[i][0], others[i][1]);
		create_err(0, -ENODEV, want);
	}
}

TEST(creation_needs_images)
{
	standin_install();
	standin.has_no_images = true;
	create_err(0, -ENODEV, "this build has no GPU kernels");
	EXPECT_FALSE(backend_gpu_is_there(0));
	standin.has_no_images = false;
	EXPECT_TRUE(backend_gpu_is_there(0));
	EXPECT_FALSE(backend_gpu_is_there(1));
}

TEST(creation_names_a_kernel_that_is_missing)
{
	static const char *const kernels[] = {
		"linear_bf16_m8", "linear_q4_k_w64",  "linear_large_bf16_t256",
		"linear_sums",	  "attn_any_256_m64", "attn_prefill_d128",
	};

	standin_install();
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		standin.missing_kernel = kernels[i];
		create_err(0, -EIO, kernels[i]);
	}
}

TEST(creation_refuses_numbers_of_threads)
{
	struct backend_options options = { .nr_threads = THREADS_MAX + 1 };
	struct backend *backend = NULL;
	char err[128] = "";

	standin_install();
	EXPECT_EQ(-EINVAL,
		  backend_gpu_create(&options, &backend, err, sizeof(err)));
	EXPECT_STREQ("257 threads: want 1 to 256", err);
	EXPECT_TRUE(standin_is_clean());
}

TEST(the_builds_images_have_every_kernel)
{
	char err[256] = "";
	size_t nr;

	standin_install();
	standin.has_build_images = true;
	(void)gpu_images(&nr);
	if (!nr)
		SKIP(return, "built without nvcc");
	EXPECT_EQ(0, try_create(0, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	EXPECT_TRUE(standin_is_clean());
}

/* ---- an engine ---- */

FIXTURE(engine)
{
	struct tiny_model model;
	struct tarn_engine *engine;
	int32_t tokens[1024];
};

FIXTURE_VARIANT(engine)
{
	uint32_t head_dim, window;
};

FIXTURE_VARIANT_ADD(engine, heads_of_64){ .head_dim = 64 };
FIXTURE_VARIANT_ADD(engine, heads_of_128){ .head_dim = 128 };
FIXTURE_VARIANT_ADD(engine, heads_of_256){ .head_dim = 256 };
FIXTURE_VARIANT_ADD(engine, window_64){ .head_dim = 64, .window = 48 };
FIXTURE_VARIANT_ADD(engine, window_128){ .head_dim = 128, .window = 48 };

FIXTURE_SETUP(engine)
{
	struct tiny_spec spec = gpu_spec(variant->head_dim, variant->window);
	struct tarn_engine_options options;
	char err[256] = "";

	standin_install();
	standin.is_hidden = true;
	tiny_create(&self->model, &spec);
	options = gpu_options(&self->model);
	ASSERT_EQ(0,
		  tarn_engine_create(&options, &self->engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	gpu_fill_tokens(self->tokens, 1024, 1);
}

FIXTURE_TEARDOWN(engine)
{
	(void)variant;
	tarn_engine_destroy(self->engine);
	tiny_destroy(&self->model);
	standin_forget();
	EXPECT_TRUE(standin_is_clean());
}

static struct tarn_result step_ok(struct tarn_engine *engine,
				  struct tarn_seq *seq)
{
	uint32_t pending = tarn_seq_pending(seq);
	struct tarn_work work = { seq, pending < GPU_KIT_BATCH ?
					       pending :
					       GPU_KIT_BATCH };
	struct tarn_result result;

	ASSERT_EQ(0, tarn_step(engine, &work, 1, &result));
	ASSERT_EQ(0, result.status);
	ASSERT_EQ(0, standin_depth());
	return result;
}

static uint32_t nr_launched(const char *name)
{
	uint32_t nr = 0;

	for (size_t i = 0; i < standin_nr_records(); i++)
		nr += !strncmp(standin_record(i)->name, name, strlen(name));
	return nr;
}

TEST_F(engine, info_says_what_computes)
{
	const struct tarn_engine_info *info = tarn_engine_info(self->engine);

	EXPECT_STREQ("cuda (Stand-in 0)", info->device);
	EXPECT_STREQ("cuda", info->kv_backend);
	EXPECT_GT(info->weight_bytes, 0);
}

TEST_F(engine, memory_that_does_not_grow_is_as_large_as_it_must_be)
{
	struct gpu_backend *gpu = gpu_of(self->engine);
	struct gpu_mem mem = { 0 };

	EXPECT_EQ(gpu_linear_large_scratch_bytes(132), gpu->scratch.bytes);
	ASSERT_EQ(0, gpu_enter(gpu));
	ASSERT_EQ(0, gpu_reserve(gpu, &mem, 1000));
	EXPECT_EQ(1024, mem.bytes);
	/* What grows does so by halves. */
	ASSERT_EQ(0, gpu_reserve(gpu, &mem, 1025));
	EXPECT_EQ(1536, mem.bytes);
	ASSERT_EQ(0, gpu_reserve(gpu, &mem, 1536));
	EXPECT_EQ(1536, mem.bytes);
	EXPECT_EQ(0, gpu->driver->MemFree(mem.addr));
	gpu_leave(gpu);
}

/* What rope_append and embed read, and where K and V go, as it is on the device. */
static void expect_inputs(struct tarn_engine *e, const struct tarn_seq *seq,
			  uint32_t first, uint32_t nr)
{
	const struct standin_record *embed = standin_find_record("embed");
	const struct standin_record *rope = standin_find_record("rope_append");
	const struct gpu_embed_params *ep = (const void *)embed->params;
	const struct gpu_rope_params *rp = (const void *)rope->params;
	const int32_t *tokens = gpu_seen(ep->tokens);
	const uint32_t *positions = gpu_seen(rp->positions);
	uint8_t *const *tiles = gpu_seen(rp->tiles);
	const struct model_layer *last =
		&e->model.layers[e->model.config.nr_layers - 1];

	ASSERT_EQ(nr, embed->grid[0]);
	ASSERT_EQ(nr, rope->grid[0]);
	for (uint32_t i = 0; i < nr; i++) {
		EXPECT_EQ(seq->tokens[first + i], tokens[i]);
		EXPECT_EQ(first + i, positions[i]);
		EXPECT_EQ((uintptr_t)kv_seq_tile(seq->kv, last->stream,
						 first + i),
			  (uintptr_t)tiles[i]);
	}
}

TEST_F(engine, a_step_launches_each_layer_once)
{
	uint32_t nr_layers = self->engine->model.config.nr_layers;
	struct tarn_seq *seq = gpu_seq(self->engine, self->tokens, 40);
	bool is_fast = variant->head_dim == 128;
	/* All 43 rows see everything before them, windows or not. */
	uint32_t nr_fast = is_fast ? nr_layers : 0;

	for (uint32_t step = 0; step < 3; step++) {
		uint32_t first = step ? 39 + step : 0;

		standin_forget();
		struct tarn_result r = step_ok(self->engine, seq);

		EXPECT_TRUE(r.has_token);
		EXPECT_EQ(0, r.token);
		EXPECT_EQ(1, nr_launched("embed"));
		EXPECT_EQ(nr_layers, nr_launched("rope_append"));
		EXPECT_EQ(nr_layers, nr_launched("gate"));
		EXPECT_EQ(1, nr_launched("sample_rows"));
		/* qkv, output, gate and up, down: four products a layer, and the logits. */
		EXPECT_EQ(4 * nr_layers + 1, nr_launched("linear_bf16"));
		EXPECT_EQ(step ? 0 : nr_fast, nr_launched("attn_prefill_d128"));
		EXPECT_EQ(step ? nr_fast : 0, nr_launched("attn_decode_d128"));
		EXPECT_EQ(nr_layers - nr_fast, nr_launched("attn_any_"));
		if (!step)
			continue; /* a prompt is sealed at its end: its tiles are another's */
		expect_inputs(self->engine, seq, first, 1);
	}
	tarn_seq_destroy(seq);
}

TEST_F(engine, a_replayed_step_launches_what_a_direct_one_does)
{
	struct tarn_seq *seq = gpu_seq(self->engine, self->tokens, 20);
	uint32_t nr_layers = self->engine->model.config.nr_layers;

	for (uint32_t step = 0; step < 8; step++) {
		standin_forget();
		step_ok(self->engine, seq);
		EXPECT_EQ(nr_layers, nr_launched("rope_append"));
		EXPECT_EQ(1, nr_launched("sample_rows"));
		if (step)
			expect_inputs(self->engine, seq, 19 + step, 1);
	}
	EXPECT_EQ(1, standin_counts().graphs);
	tarn_seq_destroy(seq);
}

TEST_F(engine, inputs_of_a_prompt_chunk_arrive)
{
	struct tarn_seq *seq = gpu_seq(self->engine, self->tokens, 300);

	step_ok(self->engine, seq);
	expect_inputs(self->engine, seq, 0, GPU_KIT_BATCH);
	step_ok(self->engine, seq);
	expect_inputs(self->engine, seq, GPU_KIT_BATCH, GPU_KIT_BATCH);
	tarn_seq_destroy(seq);
}

TEST_F(engine, many_tokens_take_the_large_product)
{
	struct tarn_seq *seq = gpu_seq(self->engine, self->tokens, 300);
	uint32_t nr_layers = self->engine->model.config.nr_layers;

	standin_forget();
	step_ok(self->engine, seq);
	EXPECT_EQ(4 * nr_layers, nr_launched("linear_large_bf16"));
	EXPECT_EQ(0, nr_launched("sample_rows")); /* not at its end yet */
	tarn_seq_destroy(seq);
}

TEST_F(engine, counters_of_kernels_are_zero_before_the_first_launch)
{
	struct tarn_engine_options options = gpu_options(&self->model);
	struct tarn_engine *e = NULL;
	char err[256];

	standin.fill = 0x5a;
	ASSERT_EQ(0, tarn_engine_create(&options, &e, err, sizeof(err)));
	if (gpu_of(e)->has_fast_attn) {
		struct tarn_seq *seq = gpu_seq(e, self->tokens, 200);

		step_ok(e, seq); /* the stream runs */
		const uint32_t *queue = gpu_seen((void *)gpu_of(e)->queue.addr);
		const uint32_t *arrivals =
			gpu_seen((void *)gpu_of(e)->arrivals.addr);

		EXPECT_EQ(0, queue[0]);
		EXPECT_EQ(0, queue[1]);
		for (uint32_t i = 0;
		     i < GPU_KIT_BATCH * e->model.config.n_kv_heads; i++)
			EXPECT_EQ(0, arrivals[i]);
		tarn_seq_destroy(seq);
	}
	tarn_engine_destroy(e);
}

TEST_F(engine, angles_reach_positions_beyond_the_first_table)
{
	struct gpu_backend *gpu = gpu_of(self->engine);
	uint32_t had = gpu->nr_positions;
	const struct backend_rope *rope = &gpu->shape.ropes[0];
	float want[256];
	double inv_freq[128];

	ASSERT_EQ(0, gpu_enter(gpu));
	ASSERT_EQ(0, gpu_reserve_positions(gpu, had + 1));
	gpu_leave(gpu);
	EXPECT_EQ(2 * had, gpu->nr_positions);
	rope_inv_freq(rope->base, NULL, rope->pos_scale, rope->nr_rot,
		      inv_freq);
	rope_cos_sin(inv_freq, rope->nr_rot, had, want);
	const float *got = gpu_seen((void *)(gpu->cos_sin[0].addr +
					     (uint64_t)had * rope->nr_rot * 4));

	EXPECT_EQ(0, memcmp(want, got, rope->nr_rot * sizeof(float)));
}

TEST_F(engine, the_host_draws_what_the_kernel_does_not)
{
	struct tarn_seq *a = gpu_seq(self->engine, self->tokens, 20), *b;
	struct tarn_result r[2];

	ASSERT_EQ(0,
		  gpu_try_seq(self->engine, self->tokens + 5, 20, 1, 0.7f, &b));
	for (uint32_t step = 0; step < 3; step++) {
		struct tarn_work work[] = { { a, tarn_seq_pending(a) },
					    { b, tarn_seq_pending(b) } };

		standin_forget();
		ASSERT_EQ(0, tarn_step(self->engine, work, 2, r));
		EXPECT_EQ(0, r[0].token);
		EXPECT_TRUE(r[1].token >= 0 && r[1].token < GPU_KIT_VOCAB);
		EXPECT_EQ(1, standin_find_record("sample_rows")->grid[1]);
		/* Logits that were not fetched for drawing are when they are asked for. */
		for (uint32_t i = 0; i < 2; i++) {
			const float *logits = tarn_step_logits(self->engine, i);

			ASSERT_TRUE(logits != NULL);
			for (uint32_t k = 0; k < GPU_KIT_VOCAB; k++)
				ASSERT_EQ(0, logits[k]);
		}
	}
	tarn_seq_destroy(a);
	tarn_seq_destroy(b);
}

TEST_F(engine, prefixes_and_forks_share_memory)
{
	struct tarn_seq *a = gpu_seq(self->engine, self->tokens, 600);
	struct tarn_seq *b, *c, *seqs[3];
	struct tarn_result r[3];

	while (tarn_seq_pending(a) > 1)
		step_ok(self->engine, a);
	step_ok(self->engine, a);
	ASSERT_EQ(0, gpu_try_seq(self->engine, self->tokens, 601, 2, 0, &b));
	EXPECT_GE(tarn_seq_cached(b), 512);
	while (tarn_seq_pending(b) > 1) {
		struct tarn_work work = { b, tarn_seq_pending(b) - 1 };

		ASSERT_EQ(0, tarn_step(self->engine, &work, 1, r));
		ASSERT_EQ(0, r[0].status);
	}
	ASSERT_EQ(0, tarn_seq_fork(b, 1, &c));
	seqs[0] = a;
	seqs[1] = b;
	seqs[2] = c;
	for (uint32_t step = 0; step < 4; step++) {
		struct tarn_work work[3];

		for (uint32_t i = 0; i < 3; i++)
			work[i] =
				(struct tarn_work){ seqs[i],
						    tarn_seq_pending(seqs[i]) };
		standin_forget();
		ASSERT_EQ(0, tarn_step(self->engine, work, 3, r));
		for (uint32_t i = 0; i < 3; i++)
			EXPECT_EQ(0, r[i].status);
	}
	/* The split that all three share is read once, by the kernel for any rows. */
	const struct standin_record *any = standin_find_record("attn_any_");

	ASSERT_TRUE(any != NULL);
	const struct gpu_attn_any_params *p = (const void *)any->params;
	const struct attn_unit *units = gpu_seen(p->units);
	uint32_t nr_shared = 0;

	for (uint32_t i = 0; i < any->grid[0]; i++)
		nr_shared += units[i].nr_rows == 3;
	if (!variant->window) /* the last layer's is another stream's */
		EXPECT_EQ(1, nr_shared);
	for (uint32_t i = 0; i < 3; i++)
		tarn_seq_destroy(seqs[i]);
}

/* ---- devices ---- */

static void open_err(const struct tarn_engine_options *options, int rc,
		     const char *want)
{
	struct tarn_engine *e = NULL;
	char err[512] = "";

	EXPECT_EQ(rc, tarn_engine_create(options, &e, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, want) != NULL)
	{
		TH_LOG("want \"%s\", got \"%s\"", want, err);
	}
	EXPECT_TRUE(standin_is_clean());
}

TEST(a_model_that_no_kernel_serves_is_refused)
{
	struct tiny_spec heads = gpu_spec(32, 0), rows = gpu_spec(64, 0);
	struct tarn_engine_options options;
	struct tiny_model m;

	standin_install();
	heads.head_dim = heads.nr_rot = 32;
	tiny_create(&m, &heads);
	options = gpu_options(&m);
	open_err(&options, -ENOTSUP, "no kernel for attention heads of 32");
	options.precise = true;
	open_err(&options, -EINVAL, "--precise is the CPU's");
	tiny_destroy(&m);
	rows.n_ff = 100;
	tiny_create(&m, &rows);
	options = gpu_options(&m);
	open_err(&options, -ENOTSUP, "blk.0.ffn_gate.weight: no GPU kernel");
	tiny_destroy(&m);
}

struct auto_case {
	const char *device; /* of the engine then */
	const char *warning; /* "" none */
};

static void auto_ok(const struct tarn_engine_options *options,
		    struct auto_case want)
{
	struct tarn_engine *e = NULL;
	char err[512] = "";

	ASSERT_EQ(0, tarn_engine_create(options, &e, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	EXPECT_EQ(0, strncmp(tarn_engine_info(e)->device, want.device,
			     strlen(want.device)))
	{
		TH_LOG("%s", tarn_engine_info(e)->device);
	}
	EXPECT_EQ(want.warning[0] != 0, err[0] != 0);
	EXPECT_TRUE(strstr(err, want.warning) != NULL)
	{
		TH_LOG("want \"%s\", got \"%s\"", want.warning, err);
	}
	tarn_engine_destroy(e);
	EXPECT_TRUE(standin_is_clean());
}

TEST(auto_takes_the_gpu_that_works_and_the_cpu_where_none_does)
{
	struct tiny_spec spec = gpu_spec(64, 0);
	struct tarn_engine_options options;
	struct tiny_model m;

	standin_install();
	tiny_create(&m, &spec);
	options = gpu_options(&m);
	options.device = TARN_DEVICE_AUTO;
	standin.has_library = false;
	auto_ok(&options, (struct auto_case){ "cpu", "" });
	standin.has_library = true;
	standin.nr_devices = 0;
	auto_ok(&options, (struct auto_case){ "cpu", "" });
	standin.nr_devices = 1;
	standin.has_no_images = true;
	auto_ok(&options, (struct auto_case){ "cpu", "" });
	standin.has_no_images = false;
	auto_ok(&options, (struct auto_case){ "cuda", "" });
	/* What only the CPU has. */
	options.precise = true;
	auto_ok(&options, (struct auto_case){ "cpu", "" });
	options.precise = false;
	options.kv_backend = TARN_KV_MEMFD;
	auto_ok(&options, (struct auto_case){ "cpu", "" });
	options.kv_backend = TARN_KV_AUTO;
	/* Another GPU, one that is full, and a model that it has no kernels for. */
	standin.capability[0] = 8;
	auto_ok(&options,
		(struct auto_case){ "cpu", "compute capability 8.0" });
	standin.capability[0] = 9;
	standin_steal((1 << 30) - 1000);
	auto_ok(&options, (struct auto_case){ "cpu", "not enough memory" });
	/* KV memory that was asked for by name is on the GPU or nowhere. */
	options.kv_backend = TARN_KV_CUDA;
	open_err(&options, -ENOMEM, "not enough memory");
	standin_steal(-((1 << 30) - 1000));
	auto_ok(&options, (struct auto_case){ "cuda", "" });
	tiny_destroy(&m);
}

TEST(auto_takes_the_cpu_for_a_model_that_the_gpu_refuses)
{
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_Q4_0);
	struct tarn_engine_options options;
	struct tiny_model m;

	standin_install();
	tiny_create(&m, &spec);
	options = gpu_options(&m);
	options.device = TARN_DEVICE_AUTO;
	auto_ok(&options,
		(struct auto_case){ "cpu", "the GPU does not: tensor" });
	tiny_destroy(&m);
}

static int stop_at;

static int stop(void *arg, const char *stage, double fraction)
{
	uint32_t *nr = arg;

	(void)stage;
	(void)fraction;
	return ++*nr == (uint32_t)stop_at;
}

TEST_TIMEOUT(a_load_is_stopped_at_any_report, 60)
{
	struct tiny_spec spec = gpu_spec(128, 0);
	struct tarn_engine *e = NULL;
	struct tarn_engine_options options;
	struct tiny_model m;
	uint32_t nr = 0;
	int rc = -ECANCELED;

	standin_install();
	tiny_create(&m, &spec);
	options = gpu_options(&m);
	options.progress = stop;
	options.progress_arg = &nr;
	for (stop_at = 1; rc; stop_at++) {
		char err[256] = "";

		nr = 0;
		options.device = stop_at % 2 ? TARN_DEVICE_CUDA :
					       TARN_DEVICE_AUTO;
		rc = tarn_engine_create(&options, &e, err, sizeof(err));
		if (!rc)
			break;
		ASSERT_EQ(-ECANCELED, rc);
		EXPECT_STREQ("Operation canceled", err);
		EXPECT_EQ(stop_at, nr);
		ASSERT_TRUE(standin_is_clean());
	}
	EXPECT_GT(stop_at, 15); /* matrices, each with a report */
	tarn_engine_destroy(e);
	tiny_destroy(&m);
}

TEST_HARNESS_MAIN
