/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers with bf16 weights and activations, float32 accumulation, few
 * tokens: the weights pass once. The algorithm and what makes a row's bits stand
 * in linear_flat.cuh, the weights' layout in linear_pack.h, the launch in
 * launch_params.h.
 *
 * Grid about one CTA a multiprocessor, 8 consumer warps of 16 weight rows and a
 * producer warp, ring of 4 to 6 stages of 128 k: 28 KB of weights and 2 to 16 KB
 * of x each. 47 to 83 registers. Tile: 128 rows x 8, 16, 32 (mma.sync) or 64
 * (wgmma) tokens.
 * Bytes: 2 N K, and 2 M K for each CTA from L2. FLOPs: 2 M N K.
 * Bound: memory. Reached, 2026-11-30, H200, N x K = 14336 x 4096 in a graph over
 * rotated weights, launched plainly / with programmatic serialisation: M = 1
 * 29.5 / 27.2 us (4.32 TB/s), 16 30.8 / 28.4, 32 31.9 / 29.8, 64 33.7 / 32.2;
 * cuBLAS in the same run 30.2, 30.4, 30.8, 33.1. Loads alone take 26.9 and 27.8
 * (M = 1, 16).
 * Tried and lost: weights in the order [group][k], 4 KB a copy, 31.2 and 32.1;
 * mma.sync for 64 tokens, 36.4 against 35.0; stages two or three, 31.0 and 29.6;
 * clusters of 4 and 8 for small N, 1024 x 4096 at M = 1 10.2 us against 8.9.
 */
#include "kernels/cuda/linear_flat.cuh"

#define INSTANCE(name, tokens, is_wgmma)                                                          \
	extern "C" __global__ void __launch_bounds__(flat<linear_bf16, tokens, 1>::NR_THREADS, 1) \
		name(const __grid_constant__ struct gpu_linear_params p)                          \
	{                                                                                         \
		linear_flat<flat<linear_bf16, tokens, 1>, is_wgmma>(&p);                          \
	}

INSTANCE(linear_bf16_m8, 8, false)
INSTANCE(linear_bf16_m16, 16, false)
INSTANCE(linear_bf16_m32, 32, false)
INSTANCE(linear_bf16_w64, 64, true)
