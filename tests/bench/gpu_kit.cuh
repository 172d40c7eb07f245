/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPU probes share: checked calls, reports, numbers from a hash, bit
 * comparisons on the device, tensor maps, and a cold L2. Included by
 * gpu_probe_kit.cuh and gpu_linear_kit.cuh. One thread; any failed call ends
 * the program.
 */
#ifndef TARN_TESTS_BENCH_GPU_KIT_CUH
#define TARN_TESTS_BENCH_GPU_KIT_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>
#include <vector>
#include "kernels/cuda/launch_params.h"

enum {
	NR_SAMPLES = 50,
	FLUSH_BYTES = 256 << 20,
};

static int nr_sms;
static int nr_failed;

#define CU_OK(call)                                                            \
	do {                                                                   \
		CUresult cu_ret = (call);                                      \
		if (cu_ret != CUDA_SUCCESS) {                                  \
			const char *cu_text = "?";                             \
			cuGetErrorString(cu_ret, &cu_text);                    \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, \
				#call, cu_text);                               \
			exit(1);                                               \
		}                                                              \
	} while (0)

#define RT_OK(call)                                                            \
	do {                                                                   \
		cudaError_t rt_ret = (call);                                   \
		if (rt_ret != cudaSuccess) {                                   \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, \
				#call, cudaGetErrorString(rt_ret));            \
			exit(1);                                               \
		}                                                              \
	} while (0)

static void report(bool ok, const char *name)
{
	printf("%s %s\n", ok ? "ok    " : "FAILED", name);
	nr_failed += !ok;
}

/* ---- values ---- */

static __host__ __device__ inline uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static __host__ __device__ inline uint16_t to_bf16(float f)
{
	union {
		float f;
		uint32_t u;
	} v = { f };

	return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

static inline double from_bf16(uint16_t b)
{
	union {
		uint32_t u;
		float f;
	} v = { (uint32_t)b << 16 };

	return v.f;
}

/* ---- on the device ---- */

/* Reads everything: empties L2 of the timed data and leaves no dirty lines. */
static __global__ void read_all(const uint4 *data, size_t nr, uint32_t *sink)
{
	uint32_t x = 0;
	size_t step = (size_t)gridDim.x * blockDim.x;
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; i + 7 * step < nr; i += 8 * step) {
		uint4 v[8];

#pragma unroll
		for (int j = 0; j < 8; j++)
			v[j] = __ldcs(data + i + j * step);
#pragma unroll
		for (int j = 0; j < 8; j++)
			x ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
	}
	if (x == 0x12345678)
		*sink = x;
}

static __global__ void count_diffs(const uint16_t *a, const uint16_t *b,
				   size_t nr, unsigned long long *out_nr)
{
	unsigned long long diffs = 0;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < nr;
	     i += (size_t)gridDim.x * blockDim.x)
		diffs += a[i] != b[i];
	if (diffs)
		atomicAdd(out_nr, diffs);
}

static __global__ void count_nans(const uint16_t *a, size_t nr,
				  unsigned long long *out_nr)
{
	unsigned long long nans = 0;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < nr;
	     i += (size_t)gridDim.x * blockDim.x)
		nans += (a[i] & 0x7fff) > 0x7f80;
	if (nans)
		atomicAdd(out_nr, nans);
}

static unsigned long long *counter;

static unsigned long long nr_diffs(const void *a, const void *b, size_t nr)
{
	unsigned long long n = 0;

	RT_OK(cudaMemset(counter, 0, sizeof(n)));
	count_diffs<<<1024, 256>>>((const uint16_t *)a, (const uint16_t *)b, nr,
				   counter);
	RT_OK(cudaMemcpy(&n, counter, sizeof(n), cudaMemcpyDeviceToHost));
	return n;
}

static unsigned long long nr_nans(const void *a, size_t nr)
{
	unsigned long long n = 0;

	RT_OK(cudaMemset(counter, 0, sizeof(n)));
	count_nans<<<1024, 256>>>((const uint16_t *)a, nr, counter);
	RT_OK(cudaMemcpy(&n, counter, sizeof(n), cudaMemcpyDeviceToHost));
	return n;
}

/* ---- tensor maps and kernels ---- */

static void encode_map(struct gpu_attn_tensor_map *map, CUdeviceptr base,
		       uint32_t rank, const cuuint64_t *dims,
		       const cuuint64_t *strides, const cuuint32_t *box)
{
	const cuuint32_t ones[5] = { 1, 1, 1, 1, 1 };

	static_assert(sizeof(*map) == sizeof(CUtensorMap), "tensor map size");
	CU_OK(cuTensorMapEncodeTiled(
		(CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank,
		(void *)base, dims, strides, box, ones,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
		CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static CUfunction load_kernel(const char *dir, const char *file,
			      const char *name, uint32_t smem_bytes)
{
	char path[512];
	CUmodule module;
	CUfunction fn;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	CU_OK(cuModuleLoad(&module, path));
	CU_OK(cuModuleGetFunction(&fn, module, name));
	CU_OK(cuFuncSetAttribute(
		fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		(int)smem_bytes));
	return fn;
}

/* ---- times ---- */

static uint4 *flush_data;
static uint32_t *flush_sink;

/* Before all else: the device, and what the above needs of its memory. */
static void gpu_init(void)
{
	RT_OK(cudaFree(NULL)); /* makes the primary context current */
	RT_OK(cudaDeviceGetAttribute(&nr_sms, cudaDevAttrMultiProcessorCount,
				     0));
	RT_OK(cudaMalloc(&counter, sizeof(*counter)));
	RT_OK(cudaMalloc(&flush_data, FLUSH_BYTES));
	RT_OK(cudaMalloc(&flush_sink, sizeof(*flush_sink)));
	RT_OK(cudaMemset(flush_data, 0x5a, FLUSH_BYTES));
}

/*
 * Milliseconds of the graph of what `launch(stream)` puts on a stream, L2 cold
 * before each sample: the median. @out_min: [out] the least; NULL: not wanted.
 */
template <typename Launch>
static double time_graph(Launch launch, double *out_min)
{
	std::vector<float> ms(NR_SAMPLES);
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaEvent_t start, stop;

	RT_OK(cudaStreamCreate(&stream));
	RT_OK(cudaEventCreate(&start));
	RT_OK(cudaEventCreate(&stop));
	RT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	launch(stream);
	RT_OK(cudaStreamEndCapture(stream, &graph));
	RT_OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = -3; i < NR_SAMPLES; i++) {
		read_all<<<2 * nr_sms, 512, 0, stream>>>(
			flush_data, FLUSH_BYTES / 16, flush_sink);
		RT_OK(cudaEventRecord(start, stream));
		RT_OK(cudaGraphLaunch(exec, stream));
		RT_OK(cudaEventRecord(stop, stream));
		RT_OK(cudaStreamSynchronize(stream));
		if (i >= 0)
			RT_OK(cudaEventElapsedTime(&ms[i], start, stop));
	}
	std::sort(ms.begin(), ms.end());
	if (out_min)
		*out_min = ms[0];
	RT_OK(cudaGraphExecDestroy(exec));
	RT_OK(cudaGraphDestroy(graph));
	RT_OK(cudaEventDestroy(start));
	RT_OK(cudaEventDestroy(stop));
	RT_OK(cudaStreamDestroy(stream));
	return ms[NR_SAMPLES / 2];
}

#endif
