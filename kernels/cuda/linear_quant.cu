/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers with quantised weights and bf16 activations, few tokens: codes
 * become bf16 integers on the fly, sums of a block are scaled in float32, so the
 * product is with the file's own weights. The algorithm and what makes a row's
 * bits stand in linear_flat.cuh, the expansion of codes in linear_formats.cuh,
 * the weights' layout in linear_pack.h, the launch in launch_params.h. Formats
 * with a minimum (Q4_1, Q4_K) also read linear_sums' output.
 *
 * Grid about one CTA a multiprocessor. Up to 32 tokens (mma.sync): 14 consumer
 * warps, two for each of 7 groups of 16 rows, and a producer warp, 53 to 120
 * registers; 64 tokens (wgmma): 8 and one, 134 to 161 registers. Ring of 3 to 6
 * stages: per stream 128 k of weights (8 to 15 KB) and of x (2 to 16 KB).
 * Bytes: N K / 128 tiles of 1152 (Q4_0) to 2176 (Q8_0) / 16, and 2 M K for each
 * CTA from L2. FLOPs: 2 M N K. ALU: about 60 instructions of a warp for 16 rows
 * x 64 k x 8 tokens (Q4_0), of them 4 MMAs.
 * Bound: memory for Q8_0; instruction issue for the others, and for all beyond
 * 16 tokens. Reached, 2026-11-30, H200, N x K = 14336 x 4096, M = 1, in a graph
 * over rotated weights, with programmatic serialisation, of 4.5 TB/s of the
 * file's bytes: Q8_0 82 %, Q4_0 64, Q4_1 61, Q5_0 61, Q4_K 51, Q6_K 59; at M = 16
 * 76, 48, 47, 47, 38, 48. Q4_0 at M = 1 without its loads 7.5 us, without its
 * compute 10.2, both 11.5.
 * Tried and lost, Q4_0 at M = 1: one warp a group, 20 us; one thread asking for
 * all copies, 23; four warps a group (28 warps), no faster than two; codes by
 * shift, mask and subtraction in place of mask and multiply-add, 12.2; sums of x
 * by a warp of the CTA (Q4_1), 17.9 against 14.6, and by MMAs of ones, 15.0.
 */
#include "kernels/cuda/linear_flat.cuh"

#define INSTANCE(type, suffix, tokens, streams, is_wgmma)                                    \
	extern "C" __global__ void __launch_bounds__(                                        \
		flat<linear_##type, tokens, streams>::NR_THREADS, 1)                         \
		linear_##type##_##suffix(const __grid_constant__ struct gpu_linear_params p) \
	{                                                                                    \
		linear_flat<flat<linear_##type, tokens, streams>, is_wgmma>(&p);             \
	}

#define INSTANCES(type)                                                                      \
	INSTANCE(type, m8, 8, 2, false)                                                      \
	INSTANCE(type, m16, 16, 2, false)                                                    \
	INSTANCE(type, m32, 32, 2, false)                                                    \
	INSTANCE(type, w64, 64, 1, true)

INSTANCES(q4_0)
INSTANCES(q4_1)
INSTANCES(q5_0)
INSTANCES(q8_0)
INSTANCES(q4_k)
INSTANCES(q6_k)
