/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-memory barriers (mbarrier), the bulk copy engine and the ordering
 * between it and ordinary accesses: thin wrappers over PTX, sm_90. Any thread
 * may call them; what one elected thread must do alone says so.
 */
#ifndef TARN_KERNELS_CUDA_TMA_CUH
#define TARN_KERNELS_CUDA_TMA_CUH

#include <stdint.h>
#include "kernels/cuda/launch_params.h"

static __device__ __forceinline__ uint32_t smem_addr(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void mbar_init(uint64_t *bar, uint32_t nr_arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(bar)),
		     "r"(nr_arrivals)
		     : "memory");
}

/* Makes mbar_init visible to the copy engine; before the CTA's first barrier. */
static __device__ __forceinline__ void mbar_init_fence(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void mbar_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_addr(bar)) : "memory");
}

/* One arrival, and nr_bytes more to come from the copy engine. */
static __device__ __forceinline__ void mbar_arrive_expect(uint64_t *bar, uint32_t nr_bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)),
		     "r"(nr_bytes)
		     : "memory");
}

/* Waits until the phase of this parity has completed (acquire). */
static __device__ __forceinline__ void mbar_wait(uint64_t *bar, uint32_t parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		     "@done bra ready;\n"
		     "bra again;\n"
		     "ready:\n"
		     "}\n" ::"r"(smem_addr(bar)),
		     "r"(parity)
		     : "memory");
}

/* Orders this thread's shared-memory stores before later async-proxy accesses. */
static __device__ __forceinline__ void fence_async_smem(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* L2 policy for data read once. */
static __device__ __forceinline__ uint64_t policy_evict_first(void)
{
	uint64_t policy;

	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}

static __device__ __forceinline__ uint64_t policy_evict_normal(void)
{
	uint64_t policy;

	asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}

static __device__ __forceinline__ uint64_t policy_evict_last(void)
{
	uint64_t policy;

	asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}

static __device__ __forceinline__ void tma_load_5d(void *dst, const struct gpu_attn_tensor_map *map,
						   uint64_t *bar, uint32_t c0, uint32_t c1,
						   uint32_t c2, uint32_t c3, uint32_t c4,
						   uint64_t policy)
{
	asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes.L2::cache_hint"
		     " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(smem_addr(dst)),
		     "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
		     "l"(policy)
		     : "memory");
}

static __device__ __forceinline__ void tma_load_4d(void *dst, const struct gpu_attn_tensor_map *map,
						   uint64_t *bar, uint32_t c0, uint32_t c1,
						   uint32_t c2, uint32_t c3)
{
	asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes"
		     " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem_addr(dst)),
		     "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
		     : "memory");
}

static __device__ __forceinline__ void tma_prefetch_map(const struct gpu_attn_tensor_map *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

static __device__ __forceinline__ void tma_load_3d(void *dst, const struct gpu_attn_tensor_map *map,
						   uint64_t *bar, uint32_t c0, uint32_t c1,
						   uint32_t c2, uint64_t policy)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes.L2::cache_hint"
		     " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_addr(dst)),
		     "l"(map), "r"(smem_addr(bar)), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
		     : "memory");
}

/* Plain run of bytes; both ends 16-byte aligned, nr_bytes a multiple of 16. */
static __device__ __forceinline__ void bulk_load(void *dst, const void *src, uint32_t nr_bytes,
						 uint64_t *bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
		     " [%0], [%1], %2, [%3];" ::"r"(smem_addr(dst)),
		     "l"(src), "r"(nr_bytes), "r"(smem_addr(bar))
		     : "memory");
}

/* The same with an L2 policy. */
static __device__ __forceinline__ void bulk_load_hint(void *dst, const void *src, uint32_t nr_bytes,
						      uint64_t *bar, uint64_t policy)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
		     ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(smem_addr(dst)),
		     "l"(src), "r"(nr_bytes), "r"(smem_addr(bar)), "l"(policy)
		     : "memory");
}

/*
 * Launched with programmatic serialisation, a kernel may start before the one
 * in front of it has ended: it waits here before it touches what that one
 * writes or reads. Launched otherwise: returns at once.
 */
static __device__ __forceinline__ void grid_wait(void)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* Lets the next kernel start as soon as all CTAs have said so and it finds room. */
static __device__ __forceinline__ void grid_launch_next(void)
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Both, for a kernel that has nothing to do before: all of its threads. */
static __device__ __forceinline__ void grid_begin(void)
{
	grid_launch_next();
	grid_wait();
}

static __device__ __forceinline__ uint32_t cluster_rank(void)
{
	uint32_t rank;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

static __device__ __forceinline__ uint32_t cluster_size(void)
{
	uint32_t size;

	asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
	return size;
}

/* All threads of all CTAs of the cluster; orders their shared-memory accesses. */
static __device__ __forceinline__ void cluster_sync(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
		     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Reads what lies at `addr` (shared memory) in CTA `rank` of the cluster. */
static __device__ __forceinline__ float2 cluster_load_f2(uint32_t addr, uint32_t rank)
{
	float2 v;

	asm volatile("{\n"
		     ".reg .b32 there;\n"
		     "mapa.shared::cluster.u32 there, %2, %3;\n"
		     "ld.shared::cluster.v2.f32 {%0, %1}, [there];\n"
		     "}\n"
		     : "=f"(v.x), "=f"(v.y)
		     : "r"(addr), "r"(rank)
		     : "memory");
	return v;
}

/* Barrier `id` (1..15) among nr_threads threads of the CTA. */
static __device__ __forceinline__ void named_sync(uint32_t id, uint32_t nr_threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(nr_threads) : "memory");
}

static __device__ __forceinline__ void named_arrive(uint32_t id, uint32_t nr_threads)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(nr_threads) : "memory");
}

#endif
