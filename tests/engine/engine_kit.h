/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the whole engine share: opening a test model, running a
 * prompt in chunks, taking logits. All static; include after harness.h.
 */
#ifndef TARN_TESTS_ENGINE_KIT_H
#define TARN_TESTS_ENGINE_KIT_H

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/kv/libkvpool.h"
#include "tests/engine/golden_logits.h"
#include "tests/harness.h"

struct kit_model {
	const char *env; /* names the file */
	const char *golden; /* its golden logits */
	const char *path; /* of a model that lies in the tree; no env then */
};

static const struct kit_model kit_smollm2 = { "TARN_TEST_MODEL",
					      "tests/data/logits_smollm2.bin",
					      NULL };
static const struct kit_model kit_gemma3 = { "TARN_TEST_MODEL_GEMMA",
					     "tests/data/logits_gemma3.bin",
					     NULL };

/* Two random layers each, see make_tiny_models.py. */
#define KIT_TINY(name)                                          \
	{                                                       \
		.path = "tests/data/tiny_" name ".gguf",        \
		.golden = "tests/data/logits_tiny_" name ".bin" \
	}
static const struct kit_model kit_tiny_llama = KIT_TINY("llama");
static const struct kit_model kit_tiny_qwen2 = KIT_TINY("qwen2");
static const struct kit_model kit_tiny_qwen3 = KIT_TINY("qwen3");

/* NULL where the model is not there: the test is skipped then. */
static inline const char *kit_path(const struct kit_model *m)
{
	const char *path = m->path ? m->path : getenv(m->env);

	return path && *path ? path : NULL;
}

/*
 * Real models under sanitizers take minutes a test, and the tiny ones go the
 * same ways through the code; logits and daemon tests still run real ones.
 */
static inline bool kit_is_too_slow(const struct kit_model *m)
{
	return HARNESS_TIME_SCALE > 1 && !m->path;
}

static inline bool kit_has_device(enum tarn_device device)
{
	return device != TARN_DEVICE_CUDA || !kvpool_cuda_check(0, NULL, 0);
}

static inline struct tarn_engine *kit_open(const struct kit_model *m,
					   struct tarn_engine_options options)
{
	struct tarn_engine *engine = NULL;
	char err[256] = "";

	options.model_path = kit_path(m);
	/* What is known to the bit is what the CPU computes. */
	if (options.device == TARN_DEVICE_AUTO)
		options.device = TARN_DEVICE_CPU;
	if (!options.kv_bytes)
		options.kv_bytes = 1u << 30;
	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)))
	{
		TH_LOG("%s: %s", options.model_path, err);
	}
	return engine;
}

static inline struct tarn_seq *kit_seq(struct tarn_engine *engine,
				       const int32_t *tokens, uint32_t nr,
				       uint32_t max_new, bool no_cache)
{
	struct tarn_seq_params p = {
		.prompt = tokens,
		.nr_prompt = nr,
		.max_new_tokens = max_new,
		.nr_choices = 1,
		.sampling = { .top_p = 1, .ignore_eos = true },
		.no_prefix_cache = no_cache,
	};
	struct tarn_seq *seq = NULL;
	char err[256] = "";

	ASSERT_EQ(0, tarn_seq_create(engine, &p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return seq;
}

/* One entry, at most @chunk tokens of what is pending. */
static inline struct tarn_result kit_step(struct tarn_engine *engine,
					  struct tarn_seq *seq, uint32_t chunk)
{
	uint32_t pending = tarn_seq_pending(seq);
	struct tarn_work work = { seq, pending < chunk ? pending : chunk };
	struct tarn_result result;

	ASSERT_EQ(0, tarn_step(engine, &work, 1, &result));
	ASSERT_EQ(0, result.status);
	return result;
}

/* The golden file's longest prompt. */
static inline struct golden_prompt kit_long_prompt(const struct golden *golden)
{
	struct golden_prompt best = { 0 }, p;

	for (uint32_t i = 0; golden_prompt_at(golden, i, &p) == 0; i++)
		if (p.nr_tokens > best.nr_tokens)
			best = p;
	return best;
}

#endif /* TARN_TESTS_ENGINE_KIT_H */
