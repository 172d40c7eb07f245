/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing tokens of a step: on the device where its kernel does what a row
 * asks for, with the bits of the host's code; on the host, by all threads, what
 * is left (penalties, masks, filters that sort). Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/gpu_private.h"
#include "engine/backend/sample.h"
#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cuda/sample_params.h"

_Static_assert((int)GPU_SAMPLE_MAX_TOP == (int)BACKEND_MAX_TOP,
	       "alternatives of a token");
_Static_assert((int)GPU_SAMPLE_MAX_BANNED == (int)BACKEND_MAX_BANNED,
	       "tokens never drawn");

/* What the kernel has, see sample_params.h. Greedy needs no filter: the likeliest survives all. */
static bool is_for_device(const struct gpu_backend *gpu,
			  const struct backend_sample *s)
{
	bool has_top_k = s->top_k && s->top_k < gpu->shape.n_vocab;
	bool has_filter = (has_top_k && s->top_k > GPU_SAMPLE_MAX_TOP_K) ||
			  (s->top_p < 1 && !has_top_k) || s->top_n_sigma > 0 ||
			  s->xtc_probability > 0 || s->mirostat_tau > 0 ||
			  (s->typical_p > 0 && s->typical_p < 1);

	if (gpu->shape.n_vocab > GPU_SAMPLE_MAX_VOCAB)
		return false;
	if (s->is_given)
		return true;
	if (s->nr_adjust || s->allowed)
		return false;
	/* An order given is most often the default one, but the default is what the kernel has. */
	return !(s->temperature > 0) || (!has_filter && !s->nr_order);
}

static void fill_row(const struct backend_sample *s, uint32_t row,
		     struct gpu_sample_row *out)
{
	*out = (struct gpu_sample_row){
		.seed = s->seed,
		.temperature = s->temperature,
		.top_k = s->top_k,
		.top_p = s->top_p,
		.min_p = s->min_p,
		.choice = s->choice,
		.position = s->position,
		.logits_row = row,
		.is_given = s->is_given,
		.token = s->token,
		.want_logprob = s->want_logprob,
		.nr_top = s->nr_top,
		.nr_banned = s->is_given ? 0 : s->nr_banned,
	};
	if (out->nr_banned)
		memcpy(out->banned, s->banned,
		       out->nr_banned * sizeof(*s->banned));
}

bool gpu_keeps_token(const struct backend *b,
		     const struct backend_sample *sample)
{
	return is_for_device((const struct gpu_backend *)b, sample);
}

static uint64_t rows_bytes(const struct gpu_backend *gpu)
{
	return (uint64_t)gpu->shape.max_rows * sizeof(struct gpu_sample_row);
}

/* Rows and results, on both sides: never moved, for a step reads what the one before drew. */
int gpu_sample_reserve(struct gpu_backend *gpu)
{
	uint64_t bytes =
		rows_bytes(gpu) + (uint64_t)gpu->shape.max_rows *
					  sizeof(struct gpu_sample_result);
	int rc = gpu_reserve(gpu, &gpu->samples_mem, bytes);

	gpu->results = gpu->samples_mem.addr + rows_bytes(gpu);
	for (uint32_t i = 0; i < BACKEND_MAX_STARTED && !rc; i++)
		rc = gpu_errno(gpu->driver->MemHostAlloc(
			(void **)&gpu->steps[i].host_samples, bytes, 0));
	/* Results are copied whole, also what a row did not ask for. */
	if (!rc)
		rc = gpu_errno(gpu_base(gpu)->MemsetD8Async(
			gpu->samples_mem.addr, 0, gpu->samples_mem.bytes,
			gpu->stream));
	return rc;
}

static void launch(struct gpu_backend *gpu, uint32_t nr)
{
	uint64_t bytes = (uint64_t)nr * sizeof(struct gpu_sample_result);
	uint8_t *host = gpu->step->host_samples;
	cuda_addr rows = gpu->samples_mem.addr;
	uint32_t cluster = gpu_sample_cluster(nr, gpu->nr_sms);
	struct gpu_sample_params p = {
		.logits = (const float *)(uintptr_t)gpu->logits.addr,
		.rows = (const void *)(uintptr_t)rows,
		.results = (void *)(uintptr_t)gpu->results,
		.n_vocab = gpu->shape.n_vocab,
		.stride = gpu->logits_stride,
	};
	struct gpu_grid grid = {
		.x = cluster,
		.y = nr,
		.z = 1,
		.threads = GPU_SAMPLE_THREADS,
		.smem_bytes = GPU_SAMPLE_SMEM_BYTES,
		.cluster = cluster,
		.is_after_copy = true,
	};

	gpu_note(gpu, gpu->driver->MemcpyHtoDAsync(
			      rows, host, nr * sizeof(struct gpu_sample_row),
			      gpu->stream));
	gpu_launch(gpu, gpu->kernels.sample, &grid, &p);
	gpu_note(gpu, gpu->driver->MemcpyDtoHAsync(host + rows_bytes(gpu),
						   gpu->results, bytes,
						   gpu->stream));
}

void gpu_sample(struct backend *b, struct backend_sample *samples, uint32_t nr)
{
	struct gpu_backend *gpu = to_gpu(b);
	struct gpu_step *step = gpu->step;
	struct gpu_sample_row *rows = (void *)step->host_samples;
	uint32_t nr_device = 0;

	step->samples = samples;
	step->nr_samples = nr;
	if (gpu->error || !nr)
		return;
	for (uint32_t i = 0; i < nr; i++) {
		if (is_for_device(gpu, &samples[i]))
			fill_row(&samples[i], i, &rows[nr_device++]);
		else
			gpu_fetch_logits(gpu, i);
	}
	step->nr_device_samples = nr_device;
	if (nr_device)
		launch(gpu, nr_device);
}

static void take_results(struct gpu_backend *gpu, const struct gpu_step *step)
{
	const struct gpu_sample_result *r =
		(const void *)(step->host_samples + rows_bytes(gpu));

	for (uint32_t i = 0; i < step->nr_samples; i++) {
		struct backend_sample *s = &step->samples[i];

		if (!is_for_device(gpu, s))
			continue;
		s->token = r->token;
		if (s->want_logprob)
			s->logprob = r->logprob;
		if (s->nr_top) {
			s->nr_top = r->nr_top;
			memcpy(s->top_ids, r->top_ids,
			       s->nr_top * sizeof(*s->top_ids));
			memcpy(s->top_logprobs, r->top_logprobs,
			       s->nr_top * sizeof(*s->top_logprobs));
		}
		r++;
	}
}

struct host_job {
	struct gpu_backend *gpu;
	const struct gpu_step *step;
	struct work_share *share;
};

static void host_thread(void *arg, uint32_t thread)
{
	struct host_job *job = arg;
	struct gpu_backend *gpu = job->gpu;
	uint32_t first, end;

	while (work_share_take(job->share, thread, &first, &end))
		for (uint32_t i = first; i < end; i++)
			if (!is_for_device(gpu, &job->step->samples[i]))
				sample_row(cpu_kernels_best(),
					   gpu->host_logits +
						   (size_t)i *
							   gpu->logits_stride,
					   gpu->shape.n_vocab,
					   &job->step->samples[i],
					   gpu->sample_scratch[thread]);
}

void gpu_take_samples(struct gpu_backend *gpu, const struct gpu_step *step)
{
	struct host_job job = { .gpu = gpu,
				.step = step,
				.share = gpu->sample_share };

	/* Which rows are the device's is asked again: nothing it depends on has changed by then. */
	if (step->nr_device_samples < step->nr_samples) {
		work_share_init(job.share, threads_nr(gpu->threads),
				step->nr_samples, 1);
		threads_run(gpu->threads, host_thread, &job);
	}
	if (step->nr_device_samples)
		take_results(gpu, step);
}

int gpu_sample_prepare(struct gpu_backend *gpu)
{
	uint32_t nr = threads_nr(gpu->threads);
	size_t bytes = (sample_scratch_bytes(gpu->shape.n_vocab) + 63) &
		       ~(size_t)63;

	gpu->sample_scratch = calloc(nr, sizeof(*gpu->sample_scratch));
	gpu->sample_share =
		aligned_alloc(64, (work_share_bytes(nr) + 63) & ~(size_t)63);
	if (!gpu->sample_scratch || !gpu->sample_share)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		gpu->sample_scratch[i] = aligned_alloc(64, bytes);
		if (!gpu->sample_scratch[i])
			return -ENOMEM;
	}
	return 0;
}

void gpu_sample_free(struct gpu_backend *gpu)
{
	for (uint32_t i = 0;
	     gpu->sample_scratch && i < threads_nr(gpu->threads); i++)
		free(gpu->sample_scratch[i]);
	free(gpu->sample_scratch);
	free(gpu->sample_share);
	if (gpu->samples_mem.addr)
		(void)gpu->driver->MemFree(gpu->samples_mem.addr);
	for (uint32_t i = 0; i < BACKEND_MAX_STARTED; i++)
		if (gpu->steps[i].host_samples)
			(void)gpu->driver->MemFreeHost(
				gpu->steps[i].host_samples);
}
