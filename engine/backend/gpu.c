/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU backend: its creation, its end, its table of operations, and how a
 * kernel is launched.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/gpu_private.h"
#include "engine/kv/libkvpool.h"
#include "kernels/cuda/images.h"

int gpu_errno(cuda_status status)
{
	int rc = cuda_errno(status);

	return !rc || rc == -ENOMEM ? rc : -EIO;
}

int gpu_enter(struct gpu_backend *gpu)
{
	return gpu_errno(gpu_base(gpu)->CtxPushCurrent(gpu->context));
}

void gpu_leave(struct gpu_backend *gpu)
{
	cuda_context popped;

	(void)gpu_base(gpu)->CtxPopCurrent(&popped);
}

void gpu_note(struct gpu_backend *gpu, cuda_status status)
{
	if (!gpu->error)
		gpu->error = gpu_errno(status);
}

void gpu_launch(struct gpu_backend *gpu, gpu_function function,
		const struct gpu_grid *grid, void *params)
{
	struct gpu_launch_attribute attributes[] = {
		{ .id = GPU_LAUNCH_OVERLAP,
		  .value.flag = !grid->is_after_copy },
		{ .id = GPU_LAUNCH_CLUSTER,
		  .value.cluster = { grid->cluster, 1, 1 } },
	};
	struct gpu_launch_config config = {
		.grid = { grid->x, grid->y, grid->z },
		.block = { grid->threads, 1, 1 },
		.smem_bytes = grid->smem_bytes,
		.stream = gpu->stream,
		.attributes = attributes,
		.nr_attributes = grid->cluster > 1 ? 2 : 1,
	};
	void *args[] = { params };

	if (!gpu->error && gpu->mode != GPU_REPLAY)
		gpu_note(gpu, gpu->driver->LaunchKernelEx(&config, function,
							  args, NULL));
}

static void *gpu_stream(struct backend *b)
{
	return to_gpu(b)->stream;
}

static uint64_t gpu_weight_bytes(const struct backend *b)
{
	return ((const struct gpu_backend *)b)->weight_bytes;
}

static void gpu_destroy(struct backend *b)
{
	struct gpu_backend *gpu = to_gpu(b);
	bool is_inside = gpu->context && !gpu_enter(gpu);

	/* The host's memory goes also where the device is lost and the driver's calls fail. */
	if (gpu->stream)
		(void)gpu_base(gpu)->StreamSynchronize(gpu->stream);
	gpu_graph_free(gpu);
	gpu_sample_free(gpu);
	gpu_buffers_free(gpu);
	gpu_weights_free(gpu);
	for (size_t i = 0; i < gpu->nr_modules; i++)
		(void)gpu->driver->ModuleUnload(gpu->modules[i]);
	if (gpu->stream)
		(void)gpu_base(gpu)->StreamDestroy(gpu->stream);
	if (is_inside)
		gpu_leave(gpu);
	if (gpu->context)
		(void)gpu_base(gpu)->DevicePrimaryCtxRelease(gpu->device);
	threads_destroy(gpu->threads);
	free(gpu->modules);
	free(gpu->matrices);
	free(gpu->vectors);
	free(gpu);
}

static const struct backend_ops gpu_ops = {
	.add_matrix = gpu_add_matrix,
	.add_vector = gpu_add_vector,
	.join = gpu_join,
	.load = gpu_load,
	.weight_bytes = gpu_weight_bytes,
	.prepare = gpu_prepare,
	.destroy = gpu_destroy,
	.begin = gpu_begin,
	.embed = gpu_embed,
	.norm = gpu_norm,
	.linear = gpu_linear,
	.rope_append = gpu_rope_append,
	.attention = gpu_attention,
	.gated = gpu_gated,
	.logits = gpu_logits,
	.sample = gpu_sample,
	.keeps_token = gpu_keeps_token,
	.submit = gpu_submit,
	.wait = gpu_wait,
	.stream = gpu_stream,
	.logits_row = gpu_logits_row,
};

/* The device's context, its stream, and what it is called. */
static int open_device(struct gpu_backend *gpu, uint32_t ordinal, char *err,
		       size_t errlen)
{
	const struct cuda_driver *base = gpu_base(gpu);
	char model[96] = "GPU";
	int major = 0, minor = 0, nr_sms = 0;
	cuda_status status = base->DeviceGet(&gpu->device, (int)ordinal);

	if (status == CUDA_OK)
		status = base->DeviceGetAttribute(
			&major, GPU_ATTR_CAPABILITY_MAJOR, gpu->device);
	if (status == CUDA_OK)
		status = base->DeviceGetAttribute(
			&minor, GPU_ATTR_CAPABILITY_MINOR, gpu->device);
	if (status == CUDA_OK)
		status = base->DeviceGetAttribute(
			&nr_sms, GPU_ATTR_MULTIPROCESSORS, gpu->device);
	if (status == CUDA_OK)
		(void)gpu->driver->DeviceGetName(model, sizeof(model),
						 gpu->device);
	if (status == CUDA_OK && (major != 9 || minor != 0)) {
		snprintf(
			err, errlen,
			"device cuda: %s has compute capability %d.%d, and the kernels are "
			"made for 9.0 (Hopper)",
			model, major, minor);
		return -ENODEV;
	}
	gpu->nr_sms = (uint32_t)nr_sms;
	snprintf(gpu->name, sizeof(gpu->name), "cuda (%s)", model);
	if (status == CUDA_OK)
		status = base->DevicePrimaryCtxRetain(&gpu->context,
						      gpu->device);
	if (status != CUDA_OK) {
		snprintf(err, errlen, "device cuda: GPU %u: %sCUDA error %d",
			 ordinal,
			 status == CUDA_OUT_OF_MEMORY ?
				 "others hold all of its memory: " :
				 "",
			 status);
		return cuda_errno(status);
	}
	return 0;
}

static int start(struct gpu_backend *gpu, char *err, size_t errlen)
{
	int rc = gpu_enter(gpu);

	if (!rc) {
		rc = cuda_errno(gpu_base(gpu)->StreamCreate(
			&gpu->stream, CUDA_STREAM_NON_BLOCKING));
		if (rc)
			gpu_leave(gpu);
	}
	if (rc) {
		snprintf(err, errlen, "device cuda: starting a stream: %s",
			 strerror(-rc));
		return rc;
	}
	rc = gpu_kernels_load(gpu, err, errlen);
	gpu_leave(gpu);
	return rc;
}

static int start_threads(struct gpu_backend *gpu, uint32_t nr, char *err,
			 size_t errlen)
{
	int rc = threads_create(nr, &gpu->threads);

	if (rc == -EINVAL)
		snprintf(err, errlen, "%u threads: want 1 to %d", nr,
			 THREADS_MAX);
	else if (rc)
		snprintf(err, errlen, "starting threads: %s", strerror(-rc));
	return rc;
}

bool backend_gpu_is_there(uint32_t device)
{
	size_t nr_images;

	(void)gpu_images(&nr_images);
	return nr_images && !kvpool_cuda_check(device, NULL, 0);
}

int backend_gpu_create(const struct backend_options *options,
		       struct backend **out_backend, char *err, size_t errlen)
{
	uint32_t nr = options->nr_threads ? options->nr_threads :
					    threads_nr_cpus();
	/* Tensor maps, which it holds, lie at multiples of 64. */
	struct gpu_backend *gpu = aligned_alloc(64, sizeof(*gpu));
	char why[160];
	int rc;

	if (!gpu)
		return -ENOMEM;
	memset(gpu, 0, sizeof(*gpu));
	gpu->base.ops = &gpu_ops;
	gpu->step = &gpu->steps[0];
	rc = gpu_driver_get(&gpu->driver, why, sizeof(why));
	if (rc)
		snprintf(err, errlen, "device cuda: %s", why);
	if (!rc)
		rc = open_device(gpu, options->device, err, errlen);
	if (!rc)
		rc = start_threads(gpu, nr, err, errlen);
	if (!rc)
		rc = start(gpu, err, errlen);
	if (rc) {
		gpu_destroy(&gpu->base);
		return rc;
	}
	gpu->base.nr_threads = nr;
	gpu->base.unit_rows = GPU_UNIT_ROWS;
	gpu->base.name = gpu->name;
	gpu->base.numerics = "1/cuda/bf16";
	gpu->base.kv_elem = ATTN_BF16;
	gpu->base.is_device = true;
	gpu->base.device = options->device;
	*out_backend = &gpu->base;
	return 0;
}
