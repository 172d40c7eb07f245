/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log probabilities of sample.cu: the sum of a row's exponentials, its most likely tokens. One
 * CTA, whatever the cluster.
 */
#ifndef TARN_KERNELS_CUDA_SAMPLE_LOGPROB_CUH
#define TARN_KERNELS_CUDA_SAMPLE_LOGPROB_CUH

#include "kernels/cuda/sample_cta.cuh"

/* ---- 3. log probabilities ---- */

static __device__ float add_chunk(const float *terms, float sum)
{
	const float *from = terms + threadIdx.x % LANES;

#pragma unroll 16
	for (int i = 0; i < CHUNK; i += LANES)
		sum = __fadd_rn(sum, from[i]);
	return sum;
}

static __device__ void list_vec(struct cta *s, uint32_t first_id, uint32_t vec, float4 v)
{
	const float x[4] = { v.x, v.y, v.z, v.w };

	for (int i = 0; i < 4; i++) {
		uint32_t id = vec * 4 + i;

		if (!(x[i] >= sample_key_value(s->top_key)) || id < first_id ||
		    sample_key(x[i], id) < s->top_key)
			continue;
		s->listed[atomicAdd(&s->nr_listed, 1)] = id;
	}
}

static __device__ __forceinline__ float term(float x, float max, bool is_there)
{
	return is_there ? sample_weight(x, max, 1.0f) : 0.0f;
}

/* A filler's vectors of a chunk to its terms; zeros behind the row change no sum. */
static __device__ __forceinline__ void fill_chunk(const struct part *p, float *terms,
						  uint32_t first_vec, float max,
						  const float4 x[FILL_VECS])
{
#pragma unroll
	for (int i = 0; i < FILL_VECS; i++) {
		uint32_t at = threadIdx.x - 32 + i * FILLERS;
		uint32_t id = (first_vec + at) * 4;
		float4 t;

		t.x = term(x[i].x, max, id < p->n_vocab);
		t.y = term(x[i].y, max, id + 1 < p->n_vocab);
		t.z = term(x[i].z, max, id + 2 < p->n_vocab);
		t.w = term(x[i].w, max, id + 3 < p->n_vocab);
		((float4 *)terms)[at] = t;
	}
}

static __device__ __forceinline__ void load_chunk(const struct part *p, uint32_t first_vec,
						  float4 x[FILL_VECS])
{
#pragma unroll
	for (int i = 0; i < FILL_VECS; i++)
		x[i] = load_vec(p, first_vec + threadIdx.x - 32 + i * FILLERS);
}

/*
 * Sum of exp(x - max) over the row, in thread 0; where is_listing, ids whose key is not below
 * top_key to listed. All threads.
 */
static __device__ float sum_row(struct cta *s, const struct part *p, float max, bool is_listing)
{
	uint32_t nr_chunks = (p->end_vec + CHUNK_VECS - 1) / CHUNK_VECS;
	bool is_adder = threadIdx.x < 32;
	float4 x[FILL_VECS];
	float sum = 0;

	if (!is_adder)
		load_chunk(p, 0, x);
	/* One beyond: the adder is a chunk behind. */
	for (uint32_t chunk = 0; chunk <= nr_chunks; chunk++) {
		if (is_adder) {
			if (chunk)
				sum = add_chunk(s->terms[(chunk - 1) % 2], sum);
		} else if (chunk < nr_chunks) {
			uint32_t first_vec = chunk * CHUNK_VECS;

			fill_chunk(p, s->terms[chunk % 2], first_vec, max, x);
			if (is_listing)
				for (int i = 0; i < FILL_VECS; i++)
					list_vec(s, p->first_id,
						 first_vec + threadIdx.x - 32 + i * FILLERS, x[i]);
			load_chunk(p, first_vec + CHUNK_VECS, x);
		}
		__syncthreads();
	}
	for (int step = LANES / 2; step && is_adder; step /= 2)
		sum = __fadd_rn(sum, __shfl_down_sync(0xffffffff, sum, step));
	return sum;
}

/*
 * The CPU fills its list with the first ids whatever they are, and nothing passes a NaN in it. So
 * up to the last NaN among the first `want` the list is what it makes of them one by one, and
 * the rest of it is the most likely of the ids behind. Return: how many ids those are.
 */
static __device__ uint32_t list_first(struct cta *s, const float *row, uint32_t want)
{
	uint32_t nr = 0;

	for (uint32_t id = 0; id < want; id++)
		if (row[id] != row[id])
			nr = id + 1;
	for (uint32_t id = 0; id < nr && threadIdx.x == 0; id++) {
		uint32_t at = id;

		for (; at > 0 && row[id] > row[s->top_ids[at - 1]]; at--)
			s->top_ids[at] = s->top_ids[at - 1];
		s->top_ids[at] = (int32_t)id;
	}
	return nr;
}

/* The listed ids that are among the `want` most likely to their places in top_ids. */
static __device__ void rank_listed(struct cta *s, const float *row, uint32_t first, uint32_t want)
{
	for (uint32_t i = threadIdx.x; i < s->nr_listed; i += THREADS) {
		uint32_t id = s->listed[i], rank = 0;
		uint64_t key = sample_key(__ldg(row + id), id);

		for (uint32_t j = 0; j < s->nr_listed; j++)
			rank += sample_key(__ldg(row + s->listed[j]), s->listed[j]) > key;
		if (rank < want)
			s->top_ids[first + rank] = (int32_t)id;
	}
}

/* Log-sum-exp to log_sum, the most likely to top_ids. raw_key: thread's, best: the row's. */
static __device__ void find_log_sum(struct cta *s, struct part *p, uint64_t raw_key, uint64_t best,
				    uint32_t nr_top)
{
	float max = p->row[sample_key_id(best)], sum;
	uint32_t want = nr_top;

	if (nr_top) {
		p->first_id = list_first(s, p->row, nr_top);
		want -= p->first_id;
	}
	if (p->first_id)
		raw_key = thread_largest<true>(p);
	if (want)
		find_top_key(s, raw_key, want);
	if (threadIdx.x == 0)
		s->nr_listed = 0;
	__syncthreads();
	sum = sum_row(s, p, max, want != 0);
	if (threadIdx.x == 0)
		s->log_sum = (double)max + dmath_log((double)sum);
	if (want)
		rank_listed(s, p->row, p->first_id, want);
	__syncthreads();
}

#endif
