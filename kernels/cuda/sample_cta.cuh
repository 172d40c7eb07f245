/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of sample.cu share: a CTA's shared memory, its reductions, the vectors of a row,
 * and the largest of them. Included by those parts alone.
 */
#ifndef TARN_KERNELS_CUDA_SAMPLE_CTA_CUH
#define TARN_KERNELS_CUDA_SAMPLE_CTA_CUH

#include <stdint.h>
#include "kernels/cuda/sample_cluster.cuh"
#include "kernels/cuda/sample_math.cuh"
#include "kernels/cuda/sample_params.h"

enum {
	THREADS = GPU_SAMPLE_THREADS,
	WARPS = THREADS / 32,
	LANES = 16, /* of the sum of exponentials: kernels/cpu/elementwise.h */
	FILLERS = THREADS - 32,
	FILL_VECS = 3, /* of a filler in a chunk */
	CHUNK_VECS = FILLERS * FILL_VECS,
	CHUNK = CHUNK_VECS * 4,
	MAX_VECS = GPU_SAMPLE_MAX_VOCAB / 4,
	MAX_LISTED = 12000,
	MAX_KEYS = 4096, /* of which the top_k are taken */
	MASK_WORDS = (GPU_SAMPLE_MAX_VOCAB + 63) / 64 * 2,
	SCAN_AHEAD = 4, /* vectors a thread has on their way */
	NO_VEC = 0xffffffff,
};

/* All of shared memory. */
struct cta {
	uint64_t best_key; /* of this CTA's part; read by the cluster */
	uint64_t time; /* best of this CTA's part: bits of the double; read by the cluster */
	uint64_t winner; /* its id */
	uint64_t top_key; /* the most likely n are not below it */
	double log_sum;
	uint64_t warps[WARPS]; /* of a reduction */
	uint32_t hurdle; /* bits of the float, as low as any thread brought it */
	float sum;
	uint32_t nr_listed;
	uint32_t nr_banned; /* different tokens of the part that are banned, but not by the mask */
	uint32_t nr_racing;
	uint32_t pad;
	int32_t top_ids[GPU_SAMPLE_MAX_TOP];
	union { /* one after the other */
		uint32_t allowed[MASK_WORDS]; /* bits from the part's first id on */
		uint32_t listed[MAX_LISTED]; /* ids */
	};
	union {
		struct {
			alignas(16) uint64_t thread_keys[THREADS];
			uint64_t keys[MAX_KEYS];
			uint64_t sorted[GPU_SAMPLE_MAX_TOP_K]; /* of the top_k, heaviest first */
			float by_id[GPU_SAMPLE_MAX_TOP_K]; /* their weights, ascending ids */
		};
		alignas(16) float terms[2][CHUNK];
	};
};

static_assert(sizeof(struct cta) <= GPU_SAMPLE_SMEM_BYTES, "shared memory");
static_assert((MAX_VECS + THREADS - 1) / THREADS * 4 * GPU_SAMPLE_MAX_TOP <= MAX_LISTED,
	      "what as many threads as are wanted may list");
static_assert((int)GPU_SAMPLE_MAX_TOP_K <= (int)THREADS, "a thread for each");
static_assert(CHUNK % LANES == 0, "a chunk begins with lane 0");

/* What is looked at of a row. */
struct part {
	const float *row;
	uint32_t n_vocab;
	uint32_t first_vec; /* a multiple of 16 */
	uint32_t end_vec;
	uint32_t first_id; /* those below are left out, if it asks for leaving out */
	const uint32_t *allowed; /* as in struct cta; NULL: all */
};

/* ---- reductions ---- */

static __device__ uint64_t cta_max(struct cta *s, uint64_t x)
{
	for (int step = 16; step; step /= 2) {
		uint64_t y = __shfl_xor_sync(0xffffffff, (unsigned long long)x, step);

		x = y > x ? y : x;
	}
	__syncthreads(); /* nobody reads the last reduction's */
	if (threadIdx.x % 32 == 0)
		s->warps[threadIdx.x / 32] = x;
	__syncthreads();
	x = s->warps[0];
	for (int i = 1; i < WARPS; i++)
		x = s->warps[i] > x ? s->warps[i] : x;
	return x;
}

static __device__ uint32_t cta_sum(struct cta *s, uint32_t x)
{
	for (int step = 16; step; step /= 2)
		x += __shfl_xor_sync(0xffffffff, x, step);
	__syncthreads(); /* nobody reads the last reduction's */
	if (threadIdx.x % 32 == 0)
		s->warps[threadIdx.x / 32] = x;
	__syncthreads();
	x = 0;
	for (int i = 0; i < WARPS; i++)
		x += (uint32_t)s->warps[i];
	return x;
}

/* ---- loads ---- */

/* NaN beyond the vocabulary: never the largest, never in the race. */
static __device__ __forceinline__ float4 load_vec(const struct part *p, uint32_t vec)
{
	const float nan = __uint_as_float(0x7fffffff);
	float4 x = { nan, nan, nan, nan };
	uint32_t id = vec * 4;

	if (id + 4 <= p->n_vocab)
		return __ldg((const float4 *)p->row + vec);
	if (id < p->n_vocab)
		x.x = __ldg(p->row + id);
	if (id + 1 < p->n_vocab)
		x.y = __ldg(p->row + id + 1);
	if (id + 2 < p->n_vocab)
		x.z = __ldg(p->row + id + 2);
	return x;
}

/* What is left out becomes NaN. */
static __device__ float4 leave_out(const struct part *p, uint32_t vec, float4 x)
{
	const float nan = __uint_as_float(0x7fffffff);
	uint32_t id = vec * 4, at = id - p->first_vec * 4;
	uint32_t bits = p->allowed ? p->allowed[at / 32] >> at % 32 : 0xf;

	if (id < p->first_id)
		bits &= id + 4 > p->first_id ? 0xfu << (p->first_id - id) : 0;
	x.x = bits & 1 ? x.x : nan;
	x.y = bits & 2 ? x.y : nan;
	x.z = bits & 4 ? x.z : nan;
	x.w = bits & 8 ? x.w : nan;
	return x;
}

/* ---- 1. the largest ---- */

struct largest {
	float value;
	uint32_t vec; /* the first that has it */
};

static __device__ __forceinline__ void take_vec(struct largest *l, uint32_t vec, float4 x)
{
	float max = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)); /* NaN counts where all are */

	/* -inf is taken where nothing was: the list of the most likely may come down to it. */
	if (l->vec == NO_VEC ? max >= l->value : max > l->value) {
		l->value = max;
		l->vec = vec;
	}
}

/* Key of the largest a thread comes upon; 0: none but NaN. */
template <bool leaves_out> static __device__ uint64_t thread_largest(const struct part *p)
{
	struct largest l = { __uint_as_float(0xff800000), NO_VEC };
	uint32_t full_vec = min(p->end_vec, p->n_vocab / 4);
	uint32_t vec = p->first_vec + threadIdx.x;
	float4 x;
	uint32_t at;

	for (; vec + (SCAN_AHEAD - 1) * THREADS < full_vec; vec += SCAN_AHEAD * THREADS) {
		float4 v[SCAN_AHEAD];

#pragma unroll
		for (int i = 0; i < SCAN_AHEAD; i++)
			v[i] = __ldg((const float4 *)p->row + vec + i * THREADS);
#pragma unroll
		for (int i = 0; i < SCAN_AHEAD; i++) {
			if (leaves_out)
				v[i] = leave_out(p, vec + i * THREADS, v[i]);
			take_vec(&l, vec + i * THREADS, v[i]);
		}
	}
	for (; vec < p->end_vec; vec += THREADS) {
		x = load_vec(p, vec);
		take_vec(&l, vec, leaves_out ? leave_out(p, vec, x) : x);
	}
	if (l.vec == NO_VEC)
		return 0;
	x = load_vec(p, l.vec);
	if (leaves_out)
		x = leave_out(p, l.vec, x);
	at = x.x == l.value ? 0 : x.y == l.value ? 1 : x.z == l.value ? 2 : 3;
	return sample_key(l.value, l.vec * 4 + at);
}

/* As argmax of kernels/cpu: where nothing is above -inf, the first. */
static __device__ uint64_t key_or_first(uint64_t key)
{
	const float least = __uint_as_float(0xff800000);

	return key > sample_key(least, 0) ? key : sample_key(least, 0);
}

/* top_key = the want-th largest of the threads' keys; below all where there are fewer. */
static __device__ void find_top_key(struct cta *s, uint64_t key, uint32_t want)
{
	uint32_t rank = 0;

	__syncthreads();
	s->thread_keys[threadIdx.x] = key;
	if (threadIdx.x == 0)
		s->top_key = sample_key(__uint_as_float(0xff800000), 0xffffffff);
	__syncthreads();
	for (int i = 0; i < THREADS; i += 2) {
		ulonglong2 k = *(const ulonglong2 *)&s->thread_keys[i];

		rank += (k.x > key) + (k.y > key);
	}
	if (key && rank == want - 1)
		s->top_key = key;
	__syncthreads();
}

#endif
