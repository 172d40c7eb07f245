/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices on the GPU: which kernel for which type and number of tokens, how a
 * launch is cut up, and loading the kernels. Which instance runs changes no
 * bit (numerics contract, rules 7 and 8). Driver thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/gpu_private.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/sample_params.h"

enum {
	FORMAT_BF16, /* index */
	SMEM_MAX = 226 * 1024, /* dynamic; 1 KiB stays for barriers */
	SMEM_HALF =
		112 * 1024, /* the same where two CTAs share a multiprocessor */
	LARGE_RUN_TILES = 8,
};

static const struct format {
	enum gpu_linear_type type;
	uint32_t tile_bytes;
	const char *name;
} formats[GPU_NR_FORMATS] = {
	{ GPU_LINEAR_BF16, GPU_LINEAR_TILE_BF16, "bf16" },
	{ GPU_LINEAR_Q8_0, GPU_LINEAR_TILE_Q8_0, "q8_0" },
	{ GPU_LINEAR_Q4_0, GPU_LINEAR_TILE_Q4_0, "q4_0" },
	{ GPU_LINEAR_Q4_1, GPU_LINEAR_TILE_Q4_1, "q4_1" },
	{ GPU_LINEAR_Q5_0, GPU_LINEAR_TILE_Q5_0, "q5_0" },
	{ GPU_LINEAR_Q4_K, GPU_LINEAR_TILE_Q4_K, "q4_k" },
	{ GPU_LINEAR_Q6_K, GPU_LINEAR_TILE_Q6_K, "q6_k" },
};

/* Boxes of an input's maps: the flat instances, then the large ones. */
static const uint32_t box_tokens[GPU_NR_BOXES] = { 8, 16, 32, 64, 128, 256 };
static const char *const flat_names[GPU_NR_FLAT] = { "m8", "m16", "m32",
						     "w64" };

uint32_t gpu_format_of(uint32_t type)
{
	for (uint32_t i = 0; i < GPU_NR_FORMATS; i++)
		if (formats[i].type == type)
			return i;
	return FORMAT_BF16;
}

enum gpu_linear_type gpu_format_type(uint32_t format)
{
	return formats[format].type;
}

uint32_t gpu_box_tokens(uint32_t box)
{
	return box_tokens[box];
}

/* ---- launches ------------------------------------------------------------------ */

static bool has_min(uint32_t format)
{
	return formats[format].type == GPU_LINEAR_Q4_1 ||
	       formats[format].type == GPU_LINEAR_Q4_K;
}

static struct gpu_linear_shape shape_of(uint32_t format, uint32_t box)
{
	return (struct gpu_linear_shape){
		.tokens = box_tokens[box],
		/* wgmma, and every instance of bf16, has one stream. */
		.streams = format == FORMAT_BF16 || box == GPU_NR_FLAT - 1 ?
				   1 :
				   GPU_LINEAR_CHUNKS,
		.tile_bytes = formats[format].tile_bytes,
		.has_min = has_min(format),
	};
}

/* How a launch of a flat instance is cut up. */
struct cut {
	struct gpu_linear_cut k;
	uint32_t nr_spans, nr_clusters, cta_groups, nr_stages, smem_bytes;
};

/*
 * bf16 wants bytes in flight. The others compute longer than they load: 3 or 4 stages with which
 * the next kernel's CTA fits beside, or 6.
 */
static uint32_t stages_wanted(uint32_t format,
			      const struct gpu_linear_shape *shape,
			      uint32_t cta_groups)
{
	for (uint32_t nr = 4; nr >= 3 && format != FORMAT_BF16; nr--)
		if (gpu_linear_smem_bytes(shape, cta_groups, nr) <= SMEM_HALF)
			return nr;
	return 6;
}

static uint32_t div_up(uint32_t a, uint32_t b)
{
	return (a + b - 1) / b;
}

static struct cut cut_of(const struct gpu_backend *gpu,
			 const struct gpu_matrix *m,
			 const struct gpu_linear_shape *shape)
{
	uint32_t max_groups = gpu_linear_max_groups(shape->streams);
	uint32_t nr_groups = div_up(m->nr_rows, GPU_LINEAR_GROUP_ROWS);
	struct cut cut = { .k = gpu_linear_cut_get(m->nr_rows,
						   m->tensor.nr_cols,
						   m->format == FORMAT_BF16) };

	cut.nr_spans = div_up(m->tensor.nr_cols, cut.k.span_k);
	cut.nr_clusters = gpu_min(gpu->nr_sms / cut.nr_spans, nr_groups);
	/* The CTAs of a cluster add up their spans once: it must not get more groups than fit. */
	if (cut.nr_spans > 1 && cut.nr_clusters < div_up(nr_groups, max_groups))
		cut.nr_clusters = div_up(nr_groups, max_groups);
	cut.cta_groups =
		gpu_min(max_groups, div_up(nr_groups, cut.nr_clusters));
	cut.nr_stages = stages_wanted(m->format, shape, cut.cta_groups);
	while (cut.nr_stages > 2 &&
	       gpu_linear_smem_bytes(shape, cut.cta_groups, cut.nr_stages) >
		       SMEM_MAX)
		cut.nr_stages--;
	cut.smem_bytes =
		gpu_linear_smem_bytes(shape, cut.cta_groups, cut.nr_stages);
	return cut;
}

static void launch_sums(struct gpu_backend *gpu, const struct gpu_input *input,
			uint32_t nr_rows, uint32_t tile)
{
	struct gpu_linear_sums_params p = {
		.x = (const void *)(uintptr_t)input->rows,
		.sums = (float *)(uintptr_t)gpu->sums.addr,
		.nr_tokens = nr_rows,
		.nr_cols = input->nr_cols,
		.tile = tile,
	};
	struct gpu_grid grid = {
		.x = div_up(gpu_linear_nr_sums(nr_rows, p.nr_cols, tile), 128),
		.y = 1,
		.z = 1,
		.threads = 128,
	};

	gpu_launch(gpu, gpu->kernels.sums, &grid, &p);
}

static void launch_flat(struct gpu_backend *gpu, const struct gpu_input *input,
			uint32_t nr_rows, const struct gpu_matrix *m,
			cuda_addr out, uint32_t out_stride)
{
	uint32_t box = 0;

	while (box < GPU_NR_FLAT - 1 && box_tokens[box] < nr_rows)
		box++;
	struct gpu_linear_shape shape = shape_of(m->format, box);
	struct cut cut = cut_of(gpu, m, &shape);
	struct gpu_linear_params p = {
		.x_map = input->maps[box],
		.x_sums = (const float *)(uintptr_t)gpu->sums.addr,
		.weights = (const void *)(uintptr_t)m->packed,
		.out = (void *)(uintptr_t)out,
		.nr_rows = m->nr_rows,
		.nr_cols = m->tensor.nr_cols,
		.nr_tokens = nr_rows,
		.cut = cut.k,
		.cta_groups = cut.cta_groups,
		.nr_stages = cut.nr_stages,
		.out_stride = out_stride,
		.out_is_float = 1,
		.is_overlapped = 1,
	};
	struct gpu_grid grid = {
		.x = cut.nr_clusters * cut.nr_spans,
		.y = div_up(nr_rows, shape.tokens),
		.z = 1,
		.threads = gpu_linear_threads(&shape),
		.smem_bytes = cut.smem_bytes,
		.cluster = cut.nr_spans,
	};

	if (shape.has_min)
		launch_sums(gpu, input, nr_rows, shape.tokens);
	gpu_launch(gpu, gpu->kernels.flat[m->format][box], &grid, &p);
}

static void launch_large(struct gpu_backend *gpu, const struct gpu_input *input,
			 uint32_t nr_rows, const struct gpu_matrix *m,
			 cuda_addr out, uint32_t out_stride)
{
	uint32_t tokens =
		gpu_linear_large_tokens(m->nr_rows, nr_rows, gpu->nr_sms);
	uint32_t which = tokens == 256;
	struct gpu_linear_large_params p = {
		.x_map = input->maps[GPU_NR_FLAT + which],
		.weights = (const void *)(uintptr_t)m->packed,
		.out = (void *)(uintptr_t)out,
		.scratch = (void *)(uintptr_t)gpu->scratch.addr,
		.nr_rows = m->nr_rows,
		.nr_cols = m->tensor.nr_cols,
		.nr_tokens = nr_rows,
		.span_k = gpu_linear_cut_get(m->nr_rows, m->tensor.nr_cols, 1)
				  .span_k,
		.out_stride = out_stride,
		.out_is_float = 1,
		.run_tiles = LARGE_RUN_TILES,
	};
	struct gpu_grid grid = {
		.x = gpu_min(gpu->nr_sms,
			     div_up(m->nr_rows, GPU_LINEAR_LARGE_ROWS) *
				     div_up(nr_rows, tokens)),
		.y = 1,
		.z = 1,
		.threads = GPU_LINEAR_LARGE_THREADS,
		.smem_bytes = GPU_LINEAR_LARGE_SMEM_BYTES,
	};

	gpu_launch(gpu, gpu->kernels.large[which], &grid, &p);
}

void gpu_matmul(struct gpu_backend *gpu, const struct gpu_input *input,
		uint32_t nr_rows, const struct gpu_matrix *m, cuda_addr out,
		uint32_t out_stride)
{
	if (m->format == FORMAT_BF16 && nr_rows > box_tokens[GPU_NR_FLAT - 1])
		launch_large(gpu, input, nr_rows, m, out, out_stride);
	else
		launch_flat(gpu, input, nr_rows, m, out, out_stride);
}

/* ---- kernels ------------------------------------------------------------------- */

struct wanted {
	gpu_function *out;
	const char *image;
	char name[48];
	uint32_t smem_bytes; /* 0: what every kernel may have */
};

static int find_function(struct gpu_backend *gpu, const struct wanted *w,
			 char *err, size_t errlen)
{
	size_t nr;
	const struct gpu_image *images = gpu_images(&nr);
	cuda_status status = CUDA_NOT_FOUND;

	for (size_t i = 0; i < gpu->nr_modules; i++)
		if (!strcmp(images[i].name, w->image))
			status = gpu->driver->ModuleGetFunction(
				w->out, gpu->modules[i], w->name);
	if (status == CUDA_OK && w->smem_bytes)
		status = gpu->driver->FuncSetAttribute(
			*w->out, GPU_FUNC_DYNAMIC_SMEM, (int)w->smem_bytes);
	if (status != CUDA_OK) {
		snprintf(err, errlen, "device cuda: kernel %s: CUDA error %d",
			 w->name, status);
		/* Kernels are loaded when they are first asked for. */
		return cuda_errno(status) == -ENOMEM ? -ENOMEM : -EIO;
	}
	return 0;
}

static int find_linear(struct gpu_backend *gpu, char *err, size_t errlen)
{
	struct wanted w = { .smem_bytes = SMEM_MAX };
	int rc = 0;

	for (uint32_t f = 0; f < GPU_NR_FORMATS; f++) {
		for (uint32_t i = 0; i < GPU_NR_FLAT && !rc; i++) {
			w.out = &gpu->kernels.flat[f][i];
			w.image = f == FORMAT_BF16 ? "linear_bf16" :
						     "linear_quant";
			snprintf(w.name, sizeof(w.name), "linear_%s_%s",
				 formats[f].name, flat_names[i]);
			rc = find_function(gpu, &w, err, errlen);
		}
	}
	w.smem_bytes = GPU_LINEAR_LARGE_SMEM_BYTES;
	for (uint32_t i = 0; i < GPU_NR_LARGE && !rc; i++) {
		w.out = &gpu->kernels.large[i];
		w.image = "linear_large";
		snprintf(w.name, sizeof(w.name), "linear_large_bf16_t%u",
			 box_tokens[GPU_NR_FLAT + i]);
		rc = find_function(gpu, &w, err, errlen);
	}
	return rc;
}

static int find_rest(struct gpu_backend *gpu, char *err, size_t errlen)
{
	struct gpu_kernels *k = &gpu->kernels;
	const struct wanted rest[] = {
		{ &k->sums, "linear_sums", "linear_sums", 0 },
		{ &k->embed, "embed", "embed", 0 },
		{ &k->rms_norm, "rms_norm", "rms_norm", 0 },
		{ &k->rope_append, "rope_append", "rope_append", 0 },
		{ &k->gate, "gate", "gate", 0 },
		{ &k->softcap, "gate", "softcap", 0 },
		{ &k->sample, "sample", "sample_rows", GPU_SAMPLE_SMEM_BYTES },
		{ &k->merge, "attn_any", "attn_any_merge", 0 },
		{ &k->decode, "attn_decode", "attn_decode_d128",
		  GPU_ATTN_DECODE_SMEM_BYTES },
		{ &k->prefill, "attn_prefill", "attn_prefill_d128",
		  GPU_ATTN_PREFILL_SMEM_BYTES },
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]) && !rc; i++)
		rc = find_function(gpu, &rest[i], err, errlen);
	for (uint32_t i = 0; i < GPU_NR_HEADS * 2 && !rc; i++) {
		uint32_t dim = 64u << (i / 2), pairs = i % 2 ? 64 : 16;
		struct wanted w = {
			.out = &k->attend[i / 2][i % 2],
			.image = "attn_any",
			.smem_bytes = gpu_attn_any_smem_bytes(dim, pairs),
		};

		snprintf(w.name, sizeof(w.name), "attn_any_%u_m%u", dim, pairs);
		rc = find_function(gpu, &w, err, errlen);
	}
	return rc;
}

int gpu_kernels_load(struct gpu_backend *gpu, char *err, size_t errlen)
{
	size_t nr;
	const struct gpu_image *images = gpu_images(&nr);
	int rc;

	if (!nr) {
		snprintf(
			err, errlen,
			"device cuda: this build has no GPU kernels: nvcc was not there "
			"when it was made");
		return -ENODEV;
	}
	gpu->modules = calloc(nr, sizeof(*gpu->modules));
	if (!gpu->modules)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		cuda_status status = gpu->driver->ModuleLoadData(
			&gpu->modules[i], images[i].data);

		if (status != CUDA_OK) {
			snprintf(
				err, errlen,
				"device cuda: loading kernels \"%s\": CUDA error %d",
				images[i].name, status);
			return cuda_errno(status);
		}
		gpu->nr_modules++;
	}
	rc = find_linear(gpu, err, errlen);
	return rc ? rc : find_rest(gpu, err, errlen);
}
