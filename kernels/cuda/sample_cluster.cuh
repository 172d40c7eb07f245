/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CTAs of a cluster and each other's shared memory, for sample.cu: a load.
 */
#ifndef TARN_KERNELS_CUDA_SAMPLE_CLUSTER_CUH
#define TARN_KERNELS_CUDA_SAMPLE_CLUSTER_CUH

#include "kernels/cuda/tma.cuh"

/* Reads what lies at `from` (own shared memory) in CTA `rank`; both sides have met before. */
static __device__ __forceinline__ uint64_t cluster_load_u64(const uint64_t *from, uint32_t rank)
{
	uint64_t x;

	asm volatile("{\n"
		     ".reg .b32 there;\n"
		     "mapa.shared::cluster.u32 there, %1, %2;\n"
		     "ld.shared::cluster.u64 %0, [there];\n"
		     "}"
		     : "=l"(x)
		     : "r"(smem_addr(from)), "r"(rank)
		     : "memory");
	return x;
}

#endif
