/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the GPU backend: small models that it takes, and an engine on
 * the driver without a GPU, which computes nothing: every logit is zero.
 * Included by test programs only, behind tests/harness.h.
 */
#ifndef TARN_TESTS_ENGINE_GPU_KIT_H
#define TARN_TESTS_ENGINE_GPU_KIT_H

#include <stdatomic.h>

#include "engine/backend/gpu_private.h"
#include "engine/engine_private.h"
#include "tests/engine/cuda_standin_gpu.h"
#include "tests/engine/tiny_model.h"

/* In the place of kernels/cuda/images.c in this program. */
const struct gpu_image *gpu_images(size_t *out_nr)
{
	return standin_images(out_nr);
}

enum {
	GPU_KIT_VOCAB = 264, /* rows of a matrix are a multiple of 8 */
	GPU_KIT_BATCH = 128, /* tokens of a step */
};

/* @head_dim 128: has kernels of its own for decode and prefill. @window 0: one stream. */
static inline struct tiny_spec gpu_spec(uint32_t head_dim, uint32_t window)
{
	struct tiny_spec s = window ? tiny_gemma3(GGUF_TYPE_BF16) :
				      tiny_llama(GGUF_TYPE_BF16);

	s.n_embd = 128;
	s.n_ff = 192;
	s.head_dim = s.nr_rot = head_dim;
	s.n_vocab = GPU_KIT_VOCAB;
	s.nr_tokens = TINY_VOCAB;
	s.ctx = 2048;
	s.window = window;
	return s;
}

static inline struct tarn_engine_options gpu_options(const struct tiny_model *m)
{
	return (struct tarn_engine_options){
		.model_path = m->path,
		.nr_threads = 2,
		.device = TARN_DEVICE_CUDA,
		.kv_bytes = 64 << 20,
		.max_batch_tokens = GPU_KIT_BATCH,
	};
}

static inline struct gpu_backend *gpu_of(const struct tarn_engine *engine)
{
	return to_gpu(engine->backend);
}

/* Return: as tarn_seq_create(). A temperature other than 0 is drawn by the host. */
static inline int gpu_try_seq(struct tarn_engine *engine, const int32_t *tokens,
			      uint32_t nr, uint32_t nr_choices,
			      float temperature, struct tarn_seq **out)
{
	struct tarn_seq_params p = {
		.prompt = tokens,
		.nr_prompt = nr,
		.max_new_tokens = 16,
		.nr_choices = nr_choices,
		.sampling = { .temperature = temperature,
			      .top_p = temperature > 0 ? 0.9f : 1,
			      .ignore_eos = true },
	};
	char err[256] = "";

	*out = NULL;
	return tarn_seq_create(engine, &p, out, err, sizeof(err));
}

static inline struct tarn_seq *gpu_seq(struct tarn_engine *engine,
				       const int32_t *tokens, uint32_t nr)
{
	struct tarn_seq *seq;

	ASSERT_EQ(0, gpu_try_seq(engine, tokens, nr, 1, 0, &seq));
	return seq;
}

static inline void gpu_fill_tokens(int32_t *tokens, uint32_t nr, uint32_t seed)
{
	for (uint32_t i = 0; i < nr; i++)
		tokens[i] = (int32_t)((i * 7 + seed * 31) % TINY_VOCAB);
}

/* An array in the device's memory, as the CPU sees it. */
static inline const void *gpu_seen(const void *at)
{
	return standin_cpu(at);
}

/* ---- calls that fail ---- */

static atomic_int gpu_calls_left; /* until one fails; below 0: none does */
static atomic_bool gpu_has_failed;
static cuda_status gpu_failure;
static bool gpu_is_lost; /* every later call fails, too */
static char gpu_failed_call[48];

/* What gives back has no second way: it is the driver that keeps it then. */
static inline bool gpu_is_undo(const char *name)
{
	static const char *const undo[] = {
		"cuMemFree",
		"cuMemFreeHost",
		"cuModuleUnload",
		"cuStreamDestroy",
		"cuEventDestroy",
		"cuMemUnmap",
		"cuMemAddressFree",
		"cuMemRelease",
		"cuGraphDestroy",
		"cuGraphExecDestroy",
		"cuDevicePrimaryCtxRelease",
	};

	for (size_t i = 0; i < sizeof(undo) / sizeof(undo[0]); i++)
		if (!strcmp(name, undo[i]))
			return true;
	return false;
}

/* standin.fail: the call after gpu_calls_left others. */
static inline cuda_status gpu_fail_nth(const char *name)
{
	if (atomic_load(&gpu_has_failed))
		return gpu_is_lost ? gpu_failure : CUDA_OK;
	if (gpu_is_undo(name) || atomic_load(&gpu_calls_left) < 0 ||
	    atomic_fetch_sub(&gpu_calls_left, 1) > 0)
		return CUDA_OK;
	atomic_store(&gpu_has_failed, true);
	snprintf(gpu_failed_call, sizeof(gpu_failed_call), "%s", name);
	return gpu_failure;
}

/* From now on. @nth below 0: no call fails. */
static inline void gpu_arm(int nth, cuda_status failure, bool is_lost)
{
	gpu_failure = failure;
	gpu_is_lost = is_lost;
	atomic_store(&gpu_has_failed, false);
	atomic_store(&gpu_calls_left, nth);
	standin.fail = gpu_fail_nth;
}

#endif /* TARN_TESTS_ENGINE_GPU_KIT_H */
