/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu_linear.cu works with: random matrices as a model file has them,
 * packed and on the device; launches of the linear kernels; and the float64
 * reference, which expands weights by the CPU's packer, not by the GPU's.
 * Included by that file alone.
 */
#ifndef TARN_TESTS_BENCH_GPU_LINEAR_KIT_CUH
#define TARN_TESTS_BENCH_GPU_LINEAR_KIT_CUH

#include <string.h>
#include <algorithm>
#include <string>
#include <thread>
#include <vector>
extern "C" {
#include "kernels/cpu/kernels_cpu.h"
}
#include "kernels/cuda/linear_pack.h"
#include "tests/bench/gpu_kit.cuh"

struct format {
	enum gpu_linear_type type;
	const char *name;
	uint32_t tile_bytes;
	uint32_t unit_k; /* K is a multiple of it */
};

static const struct format formats[] = {
	{ GPU_LINEAR_BF16, "bf16", GPU_LINEAR_TILE_BF16, 64 },
	{ GPU_LINEAR_Q8_0, "q8_0", GPU_LINEAR_TILE_Q8_0, 64 },
	{ GPU_LINEAR_Q4_0, "q4_0", GPU_LINEAR_TILE_Q4_0, 64 },
	{ GPU_LINEAR_Q4_1, "q4_1", GPU_LINEAR_TILE_Q4_1, 64 },
	{ GPU_LINEAR_Q5_0, "q5_0", GPU_LINEAR_TILE_Q5_0, 64 },
	{ GPU_LINEAR_Q4_K, "q4_k", GPU_LINEAR_TILE_Q4_K, 256 },
	{ GPU_LINEAR_Q6_K, "q6_k", GPU_LINEAR_TILE_Q6_K, 256 },
};

/*
 * Instances: tokens of a tile, streams, and whether by mma.sync (m) or wgmma
 * (w). Those of bf16 have one stream everywhere.
 */
struct instance {
	const char *suffix;
	uint32_t tokens, streams;
};

static const struct instance instances[] = {
	{ "m8", 8, 2 },
	{ "m16", 16, 2 },
	{ "m32", 32, 2 },
	{ "w64", 64, 1 },
};

enum {
	NR_FORMATS = sizeof(formats) / sizeof(formats[0]),
	NR_INSTANCES = sizeof(instances) / sizeof(instances[0]),
	W64 = 3,
	SMEM_MAX = 226 * 1024, /* dynamic; 1 KiB stays for barriers */
	SMEM_HALF = 112 * 1024, /* the same where two CTAs share a multiprocessor */
};

static struct gpu_linear_shape shape_of(int format, int instance)
{
	return { instances[instance].tokens,
		 format ? instances[instance].streams : 1,
		 formats[format].tile_bytes,
		 formats[format].type == GPU_LINEAR_Q4_1 ||
			 formats[format].type == GPU_LINEAR_Q4_K };
}

static CUfunction kernels[NR_FORMATS][NR_INSTANCES];
static CUfunction sums_kernel;

static void load_kernels(const char *dir)
{
	sums_kernel = load_kernel(dir, "linear_sums.cubin", "linear_sums", 0);
	for (int f = 0; f < NR_FORMATS; f++) {
		for (int i = 0; i < NR_INSTANCES; i++) {
			std::string name = std::string("linear_") +
					   formats[f].name + "_" +
					   instances[i].suffix;

			kernels[f][i] = load_kernel(dir,
						    f ? "linear_quant.cubin" :
							"linear_bf16.cubin",
						    name.c_str(),
						    SMEM_MAX);
		}
	}
}

/* ---- matrices ---- */

/* f16 in +-[2^-7, 2^-6). */
static uint16_t random_f16(uint64_t bits)
{
	return (uint16_t)(0x2000 | (bits & 0x3ff) | (bits >> 32 & 1) << 15);
}

/* A row of the file: random codes everywhere, scales of one size. */
static void random_row(const struct format *f, uint32_t nr_cols, uint64_t seed,
		       uint8_t *row)
{
	size_t nr_bytes = gpu_linear_source_row_bytes(f->type, nr_cols);
	size_t step = f->type == GPU_LINEAR_Q4_K ? 144 :
		      f->type == GPU_LINEAR_Q6_K ? 210 :
						   f->tile_bytes;
	uint64_t h = mix64(seed);

	if (f->type == GPU_LINEAR_BF16) {
		for (uint32_t k = 0; k < nr_cols; k++) {
			uint16_t v;

			h = mix64(h);
			v = to_bf16(((int)(h & 0xffff) + (int)(h >> 16 & 0xffff) -
				     65535) *
				    (1.0f / 32768));
			memcpy(row + 2 * k, &v, 2);
		}
		return;
	}
	for (size_t i = 0; i < nr_bytes; i++) {
		if (i % 8 == 0)
			h = mix64(h);
		row[i] = (uint8_t)(h >> (8 * (i % 8)));
	}
	if (f->unit_k == 64)
		step = gpu_linear_source_row_bytes(f->type, 64) / 2;
	for (size_t i = 0; i < nr_bytes; i += step) {
		size_t d = f->type == GPU_LINEAR_Q6_K ? 208 : 0;
		uint16_t v = random_f16(mix64(seed ^ i << 32));

		memcpy(row + i + d, &v, 2);
		v = random_f16(mix64(seed ^ i << 32 ^ 1));
		if (f->type == GPU_LINEAR_Q4_1 || f->type == GPU_LINEAR_Q4_K)
			memcpy(row + i + 2, &v, 2);
	}
}

struct matrix {
	const struct format *format;
	uint32_t nr_rows, nr_cols;
	std::vector<uint8_t> source;
	void *packed; /* on the device */
	size_t packed_bytes;
};

template <typename F> static void in_threads(uint32_t nr, F call)
{
	uint32_t nr_threads = std::max(1u, std::thread::hardware_concurrency());
	std::vector<std::thread> threads;

	for (uint32_t t = 0; t < nr_threads; t++)
		threads.emplace_back([=] {
			call((uint64_t)nr * t / nr_threads,
			     (uint64_t)nr * (t + 1) / nr_threads);
		});
	for (auto &t : threads)
		t.join();
}

static void matrix_init(struct matrix *m, const struct format *f,
			uint32_t nr_rows, uint32_t nr_cols, uint64_t seed)
{
	size_t row_bytes = gpu_linear_source_row_bytes(f->type, nr_cols);
	std::vector<uint8_t> packed(
		gpu_linear_packed_bytes(f->type, nr_rows, nr_cols));

	m->format = f;
	m->nr_rows = nr_rows;
	m->nr_cols = nr_cols;
	m->packed_bytes = packed.size();
	m->source.resize(row_bytes * nr_rows);
	in_threads(nr_rows, [&](uint32_t first, uint32_t end) {
		for (uint32_t r = first; r < end; r++)
			random_row(f, nr_cols, seed * 1000003 + r,
				   m->source.data() + r * row_bytes);
	});
	in_threads((nr_rows + 15) / 16, [&](uint32_t first, uint32_t end) {
		gpu_linear_pack(f->type, nr_rows, nr_cols, m->source.data(),
				first, end, packed.data());
	});
	RT_OK(cudaMalloc(&m->packed, packed.size()));
	RT_OK(cudaMemcpy(m->packed, packed.data(), packed.size(),
			 cudaMemcpyHostToDevice));
}

static void matrix_deinit(struct matrix *m)
{
	RT_OK(cudaFree(m->packed));
}

/* Row `row` in double, by the CPU's packer. */
static void matrix_row(const struct matrix *m, uint32_t row,
		       std::vector<double> *out)
{
	struct packed_matrix w = {};
	size_t row_bytes =
		pack_source_row_bytes((enum pack_type)m->format->type,
				      m->nr_cols);
	std::vector<uint8_t> packed(pack_layout(
		&w, (enum pack_type)m->format->type, 1, m->nr_cols));
	std::vector<float> values(m->nr_cols);

	pack_groups(&w, m->source.data() + row * row_bytes, 0, 1,
		    packed.data());
	w.data = packed.data();
	pack_row_f32(&w, 0, values.data());
	out->assign(values.begin(), values.end());
}

/* ---- activations ---- */

struct tokens {
	std::vector<uint16_t> host; /* bf16 [nr][nr_cols] */
	uint16_t *dev;
	float *sums; /* room for those of any launch */
	uint32_t nr, nr_cols;
};

/* Token 3 is all zeros: its outputs have a sign all the same. */
static void tokens_init(struct tokens *x, uint32_t nr, uint32_t nr_cols,
			uint64_t seed)
{
	x->nr = nr;
	x->nr_cols = nr_cols;
	x->host.resize((size_t)nr * nr_cols);
	for (size_t i = 0; i < x->host.size(); i++) {
		uint64_t h = mix64(seed << 40 ^ i);
		int sum = (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) +
			  (int)(h >> 32 & 0xffff) + (int)(h >> 48);

		if (i / nr_cols != 3)
			x->host[i] = to_bf16((float)(sum - 131070) *
					     (1.0f / 37837));
	}
	RT_OK(cudaMalloc(&x->dev, x->host.size() * 2));
	RT_OK(cudaMemcpy(x->dev, x->host.data(), x->host.size() * 2,
			 cudaMemcpyHostToDevice));
	RT_OK(cudaMalloc(&x->sums,
			 4ul * gpu_linear_nr_sums((nr + 63) / 64 * 64, nr_cols,
						  64)));
}

static void tokens_deinit(struct tokens *x)
{
	RT_OK(cudaFree(x->dev));
	RT_OK(cudaFree(x->sums));
}

/* ---- launches ---- */

struct launch {
	int format, instance; /* indexes */
	uint32_t nr_tokens;
	uint32_t nr_stages; /* 0: as many as fit, up to the default */
	uint32_t nr_clusters; /* 0: as many as the device holds */
	bool is_float, is_overlapped;
};

/* How a launch is cut up. */
struct plan {
	struct gpu_linear_cut cut;
	uint32_t nr_spans, nr_clusters, cta_groups, nr_stages, smem_bytes;
};

/*
 * bf16 wants bytes in flight. The others compute longer than they load: 3 or 4
 * stages with which the next kernel's CTA fits beside, or 6.
 */
static uint32_t default_stages(const struct launch *l,
			       const struct gpu_linear_shape *shape,
			       uint32_t cta_groups)
{
	for (uint32_t nr = 4; nr >= 3 && l->format; nr--)
		if (gpu_linear_smem_bytes(shape, cta_groups, nr) <= SMEM_HALF)
			return nr;
	return 6;
}

static struct plan plan_of(const struct launch *l, const struct matrix *m)
{
	struct gpu_linear_shape shape = shape_of(l->format, l->instance);
	uint32_t max_groups = gpu_linear_max_groups(shape.streams);
	uint32_t nr_groups = (m->nr_rows + 15) / 16;
	struct plan plan = {};

	plan.cut = gpu_linear_cut_get(m->nr_rows, m->nr_cols, l->format == 0);
	plan.nr_spans = (m->nr_cols + plan.cut.span_k - 1) / plan.cut.span_k;
	plan.nr_clusters = l->nr_clusters ? l->nr_clusters :
					    nr_sms / plan.nr_spans;
	plan.nr_clusters = std::min(plan.nr_clusters, nr_groups);
	if (plan.nr_spans > 1)
		plan.nr_clusters =
			std::max(plan.nr_clusters,
				 (nr_groups + max_groups - 1) / max_groups);
	plan.cta_groups = std::min(max_groups,
				   (nr_groups + plan.nr_clusters - 1) /
					   plan.nr_clusters);
	plan.nr_stages = l->nr_stages ? l->nr_stages :
					default_stages(l, &shape, plan.cta_groups);
	while (plan.nr_stages > 2 &&
	       gpu_linear_smem_bytes(&shape, plan.cta_groups, plan.nr_stages) >
		       SMEM_MAX)
		plan.nr_stages--;
	plan.smem_bytes = gpu_linear_smem_bytes(&shape, plan.cta_groups,
						plan.nr_stages);
	return plan;
}

/* What the linear kernels of types with a minimum read beside x. */
static void run_sums(const struct launch *l, const struct tokens *x,
		     cudaStream_t stream)
{
	struct gpu_linear_sums_params p = { x->dev, x->sums, l->nr_tokens,
					    x->nr_cols,
					    instances[l->instance].tokens };
	uint32_t nr = gpu_linear_nr_sums(p.nr_tokens, p.nr_cols, p.tile);
	void *args[] = { &p };

	CU_OK(cuLaunchKernel(sums_kernel, (nr + 127) / 128, 1, 1, 128, 1, 1, 0,
			     stream, args, NULL));
}

static void run_linear(const struct launch *l, const struct matrix *m,
		       const void *packed, const struct tokens *x, void *out,
		       cudaStream_t stream)
{
	struct gpu_linear_shape shape = shape_of(l->format, l->instance);
	struct plan plan = plan_of(l, m);
	uint32_t tokens = instances[l->instance].tokens;
	cuuint64_t dims[3] = { 64, l->nr_tokens, m->nr_cols / 64 };
	cuuint64_t strides[2] = { (cuuint64_t)m->nr_cols * 2, 128 };
	cuuint32_t box[3] = { 64, tokens, 2 };
	struct gpu_linear_params p = {};
	CUlaunchAttribute attrs[2] = {};
	CUlaunchConfig config = {};
	void *args[] = { &p };

	encode_map(&p.x_map, (CUdeviceptr)x->dev, 3, dims, strides, box);
	p.x_sums = x->sums;
	p.weights = packed;
	p.out = out;
	p.nr_rows = m->nr_rows;
	p.nr_cols = m->nr_cols;
	p.nr_tokens = l->nr_tokens;
	p.cut = plan.cut;
	p.cta_groups = plan.cta_groups;
	p.nr_stages = plan.nr_stages;
	p.out_stride = m->nr_rows;
	p.out_is_float = l->is_float;
	p.is_overlapped = l->is_overlapped;
	attrs[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attrs[0].value.clusterDim.x = plan.nr_spans;
	attrs[0].value.clusterDim.y = 1;
	attrs[0].value.clusterDim.z = 1;
	attrs[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	attrs[1].value.programmaticStreamSerializationAllowed = 1;
	config.gridDimX = plan.nr_clusters * plan.nr_spans;
	config.gridDimY = (l->nr_tokens + tokens - 1) / tokens;
	config.gridDimZ = 1;
	config.blockDimX = gpu_linear_threads(&shape);
	config.blockDimY = config.blockDimZ = 1;
	config.sharedMemBytes = plan.smem_bytes;
	config.hStream = stream;
	config.attrs = attrs;
	config.numAttrs = l->is_overlapped ? 2 : 1;
	CU_OK(cuLaunchKernelEx(&config, kernels[l->format][l->instance], args,
			       NULL));
}

/* ---- float64 reference ---- */

/*
 * Pooled relative error of out [x->nr][N] (float) over all tokens and
 * `nr_sampled` rows (all of them where N is no larger).
 */
static double error_of(const struct matrix *m, const struct tokens *x,
		       const float *dev_out, uint32_t nr_tokens,
		       uint32_t nr_sampled)
{
	std::vector<float> out((size_t)nr_tokens * m->nr_rows);
	uint32_t nr = std::min(nr_sampled, m->nr_rows);
	std::vector<double> err2(nr), ref2(nr);
	double err = 0, ref = 0;

	RT_OK(cudaMemcpy(out.data(), dev_out, out.size() * 4,
			 cudaMemcpyDeviceToHost));
	in_threads(nr, [&](uint32_t first, uint32_t end) {
		for (uint32_t i = first; i < end; i++) {
			uint32_t row = nr == m->nr_rows ? i :
							  mix64(i) % m->nr_rows;
			std::vector<double> w;

			matrix_row(m, row, &w);
			for (uint32_t t = 0; t < nr_tokens; t++) {
				double sum = 0, d;

				for (uint32_t k = 0; k < m->nr_cols; k++)
					sum += w[k] *
					       from_bf16(x->host[(size_t)t * x->nr_cols + k]);
				d = out[(size_t)t * m->nr_rows + row] - sum;
				err2[i] += d * d;
				ref2[i] += sum * sum;
			}
		}
	});
	for (uint32_t i = 0; i < nr; i++) {
		err += err2[i];
		ref += ref2[i];
	}
	return sqrt(err / ref);
}

#endif
