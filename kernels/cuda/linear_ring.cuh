/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the linear kernels fill a stage of their rings and give it back, in two
 * forms: the one that runs, and one for images that only a race checker runs
 * (GPU_CHECK_RACES; make check-gpu builds them beside, the daemon has none).
 *
 * What runs: plain runs of bytes come by the copy engine, which tells the stage's
 * full barrier of each byte once it lies there; and one lane arrives at its empty
 * barrier for a warp whose lanes have all read it, behind __syncwarp(). Both are
 * orders by PTX's memory model. A copy's writes are made visible by the completion
 * that the barrier counts, which a reader's wait acquires. __syncwarp() orders
 * what the lanes did before it for each of them, so the elected lane's arrival, a
 * release, comes after all of their reads; the wait of whoever asks for the next
 * copy acquires it. That no read is still on its way then, see release_after().
 *
 * racecheck (CUDA 13.0) follows neither: it takes a plain bulk copy for stores of
 * the thread that asked, counts no bytes at barriers, and an arrival only for the
 * thread that makes it. So in its images a thread copies the bytes itself, all
 * lanes arrive when they have, and every reader arrives alone. All else is the
 * same: which slots, which parities, who waits for what and when. Seen 2026-12-01,
 * H200: no hazard then, and many where a stage was given back before it was read.
 */
#ifndef TARN_KERNELS_CUDA_LINEAR_RING_CUH
#define TARN_KERNELS_CUDA_LINEAR_RING_CUH

#include "kernels/cuda/tma.cuh"

#ifdef GPU_CHECK_RACES

enum {
	RING_COPY_ARRIVALS = 32, /* at a full barrier, for each ring_copied() */
	RING_WARP_ARRIVALS = 32, /* at an empty one, of a warp */
};

/* What a full barrier is to expect of plain copies. */
static __device__ __forceinline__ uint32_t ring_bytes(uint32_t)
{
	return 0;
}

/* 16 bytes or a multiple, from and to such borders. */
static __device__ __forceinline__ void ring_copy(void *dst, const void *src, uint32_t nr_bytes,
						 uint64_t *)
{
	for (uint32_t i = 0; i < nr_bytes / 16; i++)
		((uint4 *)dst)[i] = ((const uint4 *)src)[i];
}

static __device__ __forceinline__ void ring_copy_hint(void *dst, const void *src, uint32_t nr_bytes,
						      uint64_t *full, uint64_t)
{
	ring_copy(dst, src, nr_bytes, full);
}

/* All lanes, behind their copies of one kind for a stage. */
static __device__ __forceinline__ void ring_copied(uint64_t *full)
{
	mbar_arrive(full);
}

/* All lanes of a warp that has read a stage. Return: whether this one is to arrive. */
static __device__ __forceinline__ bool ring_elect(uint32_t)
{
	return true;
}

#else

enum { RING_COPY_ARRIVALS = 0, RING_WARP_ARRIVALS = 1 };

static __device__ __forceinline__ uint32_t ring_bytes(uint32_t nr_bytes)
{
	return nr_bytes;
}

static __device__ __forceinline__ void ring_copy(void *dst, const void *src, uint32_t nr_bytes,
						 uint64_t *full)
{
	bulk_load(dst, src, nr_bytes, full);
}

/* The same with an L2 policy. */
static __device__ __forceinline__ void ring_copy_hint(void *dst, const void *src, uint32_t nr_bytes,
						      uint64_t *full, uint64_t policy)
{
	bulk_load_hint(dst, src, nr_bytes, full, policy);
}

static __device__ __forceinline__ void ring_copied(uint64_t *)
{
}

static __device__ __forceinline__ bool ring_elect(uint32_t lane)
{
	__syncwarp();
	return lane == 0;
}

#endif
#endif
