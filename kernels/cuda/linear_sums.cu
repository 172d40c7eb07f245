/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of activations over blocks of 32, for linear layers whose weights have a
 * minimum (Q4_1, Q4_K): sum of w x = d * sum of code x + m * sum of x. They are
 * the same for all rows of all matrices that read x, so whoever writes x may as
 * well write them; this kernel does where nobody has.
 *
 * One thread a sum, 32 additions in ascending order from the first value.
 * Bytes: 2 M K read, M K / 8 written. Bound: the launch.
 */
#include <stdint.h>
#include "kernels/cuda/launch_params.h"
#include "kernels/cuda/tma.cuh"

extern "C" __global__ void linear_sums(const __grid_constant__ struct gpu_linear_sums_params p)
{
	uint32_t nr_blocks = (p.nr_cols + 127) / 128 * 4;
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t token = i / p.tile / nr_blocks * p.tile + i % p.tile;
	uint32_t block = i / p.tile % nr_blocks;
	float sum = 0.0f;

	grid_begin();
	if (i / p.tile / nr_blocks * p.tile >= p.nr_tokens)
		return;
	if (token < p.nr_tokens && block < p.nr_cols / 32) {
		const uint4 *from = (const uint4 *)((const uint16_t *)p.x +
						    (size_t)token * p.nr_cols + block * 32);

		for (int j = 0; j < 4; j++) {
			uint4 v = __ldg(from + j);
			uint32_t word[4] = { v.x, v.y, v.z, v.w };

#pragma unroll
			for (int k = 0; k < 4; k++) {
				float lo = __uint_as_float(word[k] << 16);

				sum = j + k == 0 ? lo : __fadd_rn(sum, lo);
				sum = __fadd_rn(sum, __uint_as_float(word[k] & 0xffff0000));
			}
		}
	}
	p.sums[i] = sum;
}
