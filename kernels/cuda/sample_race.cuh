/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The race of sample.cu: of a part of the row, or of what top_k, top_p and min_p leave of it. Time
 * and winner come to the CTA's shared memory, for the cluster.
 */
#ifndef TARN_KERNELS_CUDA_SAMPLE_RACE_CUH
#define TARN_KERNELS_CUDA_SAMPLE_RACE_CUH

#include "kernels/cuda/sample_cta.cuh"

/* ---- 2. the race ---- */

struct race {
	const struct gpu_sample_row *row;
	float max, inv_temp;
	float min_weight;
	double time; /* of the first so far */
	uint32_t winner;
};

static __device__ void enter(struct race *r, uint32_t *hurdle, uint32_t id, uint32_t random,
			     float weight)
{
	double time = sample_time(random, weight);

	if (time < r->time || (time == r->time && id < r->winner)) {
		r->time = time;
		r->winner = id;
		atomicMin(hurdle, __float_as_uint(sample_hurdle(time))); /* positive: ordered */
	}
}

static __device__ __forceinline__ void race_vec(struct race *r, uint32_t *hurdle, uint32_t vec,
						float4 v)
{
	/* At any moment the time of some token: an old one only rules out less. */
	const float bar = __uint_as_float(*(volatile uint32_t *)hurdle);
	const float x[4] = { v.x, v.y, v.z, v.w };
	float weight[4], limit[4];
	uint32_t random[4], entering = 0;
	uint64_t seed = r->row->seed;
	bool any = false;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		weight[i] = sample_weight(x[i], r->max, r->inv_temp);
		limit[i] = weight[i] >= r->min_weight ? weight[i] * bar : 0;
		any |= limit[i] > SAMPLE_RACE_FLOOR;
	}
	if (!any)
		return;
	/* Its 20 round keys are made here each time: kept, they would fill the registers. */
	asm volatile("" : "+l"(seed));
#pragma unroll
	for (int i = 0; i < 4; i++) {
		random[i] = philox(seed, r->row->choice, r->row->position, vec * 4 + i);
		if (limit[i] > SAMPLE_RACE_FLOOR && sample_may_win(random[i], limit[i]))
			entering |= 1u << i;
	}
#pragma unroll 1
	while (entering) {
		uint32_t i = __ffs(entering) - 1;
		uint32_t ran = i & 2 ? (i & 1 ? random[3] : random[2]) :
				       (i & 1 ? random[1] : random[0]);
		float w = i & 2 ? (i & 1 ? weight[3] : weight[2]) : (i & 1 ? weight[1] : weight[0]);

		enter(r, hurdle, vec * 4 + i, ran, w);
		entering &= entering - 1;
	}
}

template <bool leaves_out>
static __device__ void race_thread(const struct part *p, struct race *r, uint32_t *hurdle)
{
	uint32_t vec = p->first_vec + threadIdx.x;
	float4 next = load_vec(p, vec);

	while (vec < p->end_vec) {
		float4 x = leaves_out ? leave_out(p, vec, next) : next;

		if (vec + THREADS < p->end_vec)
			next = load_vec(p, vec + THREADS);
		race_vec(r, hurdle, vec, x);
		vec += THREADS;
	}
}

/* The first of the threads' to time and winner of @s. */
static __device__ void finish_race(struct cta *s, double thread_time, uint32_t thread_winner)
{
	uint64_t bits = (uint64_t)__double_as_longlong(thread_time); /* positive: ordered */
	uint64_t time = ~cta_max(s, ~bits);
	uint64_t winner = ~cta_max(s, ~(uint64_t)(bits == time ? thread_winner : 0xffffffff));

	if (threadIdx.x == 0) {
		s->time = time;
		s->winner = winner;
	}
}

/* This CTA's part of the race, its result to time and winner of @s. All threads. */
static __device__ void race_part(struct cta *s, const struct part *p,
				 const struct gpu_sample_row *row, uint64_t best_key)
{
	struct race r = { row, sample_key_value(best_key), 1.0f / row->temperature };
	float best_weight = sample_weight(r.max, r.max, r.inv_temp); /* 1 or NaN */

	r.min_weight = row->min_p > 0 ? row->min_p : 0;
	r.winner = sample_key_id(best_key);
	r.time = __longlong_as_double(0x7ff0000000000000ll); /* infinity */
	/* Where the largest does not race, nobody does: it wins. */
	if (best_weight > 0 && best_weight >= r.min_weight) {
		r.time = sample_time(philox(row->seed, row->choice, row->position, r.winner),
				     best_weight);
		if (threadIdx.x == 0)
			s->hurdle = __float_as_uint(sample_hurdle(r.time));
		__syncthreads();
		if (p->allowed)
			race_thread<true>(p, &r, &s->hurdle);
		else
			race_thread<false>(p, &r, &s->hurdle);
	}
	finish_race(s, r.time, r.winner);
}

/* ---- top_k, top_p, min_p ---- */

/*
 * Keys by weight of the row's tokens that weigh anything, those not below top_key, to keys as far
 * as they fit. nr_listed: all of them. @out_key: the thread's largest. Return: the thread's
 * tokens whose weight is a number.
 */
static __device__ uint32_t list_weights(struct cta *s, const struct part *p, float max,
					float inv_temp, bool is_listing, uint64_t *out_key)
{
	uint32_t nr = 0;

	*out_key = 0;
	for (uint32_t vec = threadIdx.x; vec < p->end_vec; vec += THREADS) {
		float4 v = load_vec(p, vec);

		if (p->allowed)
			v = leave_out(p, vec, v);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float x = i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
			float weight = sample_weight(x, max, inv_temp);
			uint64_t key = sample_key(weight, vec * 4 + i);

			nr += weight >= 0;
			if (!(weight > 0))
				continue;
			*out_key = key > *out_key ? key : *out_key;
			if (is_listing && key >= s->top_key) {
				uint32_t at = atomicAdd(&s->nr_listed, 1);

				if (at < MAX_KEYS)
					s->keys[at] = key;
			}
		}
	}
	return nr;
}

/* Lists the heaviest, @top_k at least if there are as many, MAX_KEYS at most. */
static __device__ void list_heaviest(struct cta *s, const struct part *p, float max, float inv_temp,
				     uint32_t top_k)
{
	uint64_t low = s->top_key, high = ~0ull, at = low, unused;

	/* The first bound will do but where few threads have most of what is heavy. */
	for (;;) {
		__syncthreads();
		if (threadIdx.x == 0) {
			s->nr_listed = 0;
			s->top_key = at;
		}
		__syncthreads();
		list_weights(s, p, max, inv_temp, true, &unused);
		__syncthreads();
		if (s->nr_listed <= MAX_KEYS && (s->nr_listed >= top_k || at == low))
			return;
		if (s->nr_listed < top_k)
			high = at;
		else
			low = at;
		at = low + (high - low) / 2;
	}
}

/*
 * What top_p and min_p leave of the first nr_heavy of sorted, which are all that weigh anything
 * of nr candidates. One thread; the sums are the CPU's, in its order.
 */
static __device__ uint32_t cut_tail(const struct cta *s, const struct gpu_sample_row *row,
				    uint32_t nr_heavy, uint32_t nr)
{
	uint32_t kept = 0, left = nr_heavy;
	double sum = 0, acc = 0, floor;
	float min_weight;

	if (row->top_p < 1) {
		for (uint32_t i = 0; i < nr_heavy; i++)
			sum += (double)s->by_id[i];
		floor = (1 - (double)row->top_p) * sum / nr;
		while (kept < nr_heavy && (double)sample_key_value(s->sorted[kept]) >= floor) {
			acc += (double)sample_key_value(s->sorted[kept++]);
			if (acc >= (double)row->top_p * sum)
				break;
		}
		left = kept;
	}
	if (row->min_p > 0) {
		min_weight = row->min_p * sample_key_value(s->sorted[0]);
		for (kept = 0; kept < left; kept++)
			if (!(sample_key_value(s->sorted[kept]) >= min_weight))
				break;
		left = kept;
	}
	return left;
}

/* Sorts the listed and leaves top_k; by_id has their weights in the order they are summed in. */
static __device__ uint32_t sort_heaviest(struct cta *s, uint32_t top_k, bool is_by_id)
{
	uint32_t nr = min(s->nr_listed, top_k);

	for (uint32_t i = threadIdx.x; i < s->nr_listed; i += THREADS) {
		uint64_t key = s->keys[i];
		uint32_t rank = 0;

		for (uint32_t j = 0; j < s->nr_listed; j++)
			rank += s->keys[j] > key;
		if (rank < top_k)
			s->sorted[rank] = key;
	}
	__syncthreads();
	if (threadIdx.x < nr) {
		uint64_t key = s->sorted[threadIdx.x];
		uint32_t rank = 0;

		for (uint32_t j = 0; j < nr; j++)
			rank += sample_key_id(s->sorted[j]) < sample_key_id(key);
		s->by_id[is_by_id ? rank : threadIdx.x] = sample_key_value(key);
	}
	__syncthreads();
	return nr;
}

/* The race of what top_k, top_p and min_p leave of the row, as race_part(). */
static __device__ void race_top_k(struct cta *s, const struct part *p,
				  const struct gpu_sample_row *row, uint64_t best_key)
{
	float max = sample_key_value(best_key), inv_temp = 1.0f / row->temperature;
	double time = __longlong_as_double(0x7ff0000000000000ll); /* infinity */
	uint32_t winner = sample_key_id(best_key), top_k = min(row->top_k, GPU_SAMPLE_MAX_TOP_K);
	uint32_t nr_heavy, nr;
	uint64_t key;

	nr = list_weights(s, p, max, inv_temp, false, &key);
	find_top_key(s, key, top_k);
	nr = cta_sum(s, nr);
	/* What is banned stays a candidate that weighs nothing. */
	if (p->allowed && sample_weight(__uint_as_float(0xff800000), max, inv_temp) >= 0)
		nr += s->nr_banned;
	list_heaviest(s, p, max, inv_temp, top_k);
	/* The CPU sorts what it takes out of more; a whole list stays in the order of ids. */
	nr_heavy = sort_heaviest(s, top_k, nr <= top_k);
	if (threadIdx.x == 0)
		s->nr_racing = nr_heavy ? cut_tail(s, row, nr_heavy, min(nr, top_k)) : 0;
	__syncthreads();
	if (threadIdx.x < s->nr_racing) {
		winner = sample_key_id(s->sorted[threadIdx.x]);
		time = sample_time(philox(row->seed, row->choice, row->position, winner),
				   sample_key_value(s->sorted[threadIdx.x]));
	}
	finish_race(s, time, winner);
}

#endif
