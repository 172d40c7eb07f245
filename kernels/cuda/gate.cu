/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands between matrices of the MLP, and behind the last one: the gate
 * act(g) * u, rounded to bf16 for the next matrix, and the soft cap of logits.
 * Exponentials are the multiprocessor's ex2 on a product rounded once: relative
 * error of some 2^-21 for arguments of ordinary size, far below bf16's.
 * Bytes: 8 in and 2 out a value (gate), 4 and 4 (cap). Bound: memory.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/layer_params.h"
#include "kernels/cuda/tma.cuh"

static __device__ __forceinline__ float exp_of(float x)
{
	return attn_exp2(__fmul_rn(x, 0x1.715476p+0f)); /* log2(e) */
}

/* 1 - 2 / (e^2x + 1): exact at both ends, and small x lose only what the sum rounds. */
static __device__ __forceinline__ float tanh_of(float x)
{
	return __fsub_rn(1.0f, __fdiv_rn(2.0f, __fadd_rn(exp_of(__fmul_rn(2.0f, x)), 1.0f)));
}

static __device__ __forceinline__ float silu(float g)
{
	return __fdiv_rn(g, __fadd_rn(1.0f, exp_of(-g)));
}

static __device__ __forceinline__ float gelu_tanh(float g)
{
	/* sqrt(2 / pi), and that times 0.044715 */
	float inner = __fmul_rn(g, __fmaf_rn(__fmul_rn(g, g), 0x1.2444f2p-5f, 0x1.988454p-1f));

	return __fmul_rn(__fmul_rn(0.5f, g), __fadd_rn(1.0f, tanh_of(inner)));
}

extern "C" __global__ void __launch_bounds__(GPU_ROW_THREADS)
	gate(const __grid_constant__ struct gpu_gate_params p)
{
	uint32_t nr_pairs = p.nr_cols / 2;
	size_t nr = (size_t)p.nr_rows * nr_pairs;
	size_t step = (size_t)gridDim.x * GPU_ROW_THREADS;

	grid_begin();
	for (size_t i = (size_t)blockIdx.x * GPU_ROW_THREADS + threadIdx.x; i < nr; i += step) {
		size_t from = i / nr_pairs * p.in_stride + i % nr_pairs * 2;
		float2 g = *(const float2 *)(p.gate + from);
		float2 u = *(const float2 *)(p.up + from);
		bool is_silu = p.kind == GPU_GATE_SILU;

		((uint32_t *)p.out)[i] =
			pack_bf16(__fmul_rn(is_silu ? silu(g.x) : gelu_tanh(g.x), u.x),
				  __fmul_rn(is_silu ? silu(g.y) : gelu_tanh(g.y), u.y));
	}
}

extern "C" __global__ void __launch_bounds__(GPU_ROW_THREADS)
	softcap(const __grid_constant__ struct gpu_softcap_params p)
{
	uint64_t step = (uint64_t)gridDim.x * GPU_ROW_THREADS;

	grid_begin();
	for (uint64_t i = (uint64_t)blockIdx.x * GPU_ROW_THREADS + threadIdx.x; i < p.nr; i += step)
		p.x[i] = __fmul_rn(p.cap, tanh_of(__fdiv_rn(p.x[i], p.cap)));
}
