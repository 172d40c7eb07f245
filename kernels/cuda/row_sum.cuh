/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over a row by a CTA, in an order that depends on the row's length alone
 * (numerics contract, rule 6).
 */
#ifndef TARN_KERNELS_CUDA_ROW_SUM_CUH
#define TARN_KERNELS_CUDA_ROW_SUM_CUH

#include "kernels/cuda/layer_params.h"

/* The sum over a warp's lanes, in all of them: a butterfly. */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
	for (int step = 16; step; step /= 2)
		x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, step));
	return x;
}

/* The sum over a CTA of GPU_ROW_THREADS, in all threads: warps in ascending order. */
static __device__ __forceinline__ float cta_sum(float x)
{
	__shared__ float part[GPU_ROW_THREADS / 32];
	float sum;

	x = warp_sum(x);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	sum = part[0];
#pragma unroll
	for (int w = 1; w < GPU_ROW_THREADS / 32; w++)
		sum = __fadd_rn(sum, part[w]);
	return sum;
}

#endif
