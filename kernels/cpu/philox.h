/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers, for the host and for kernels/cuda. Pure; any thread.
 */
#ifndef TARN_KERNELS_CPU_PHILOX_H
#define TARN_KERNELS_CPU_PHILOX_H

#include <stdint.h>

#include "kernels/cpu/inline.h"

/* Philox4x32-10 (Salmon et al., 2011) of the counter (c0, c1, c2, 0), first word. */
KERNEL_INLINE uint32_t philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2)
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), c3 = 0;

#ifdef __CUDACC__
#pragma unroll
#endif
	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53u * c0;
		uint64_t b = (uint64_t)0xcd9e8d57u * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return c0;
}

#endif /* TARN_KERNELS_CPU_PHILOX_H */
