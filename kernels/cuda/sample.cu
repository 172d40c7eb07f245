/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a token from each row of logits, and reports log probabilities: the
 * tokens and bits of sample_row() in engine/backend/sample.c, for rows as
 * sample_params.h has them. NaN results are NaN there too, of whatever bits.
 *
 * A row has a CTA, or a cluster whose CTAs share the vocabulary out.
 * 1. Largest logit: a thread keeps the first vector of 4 with the largest value
 *    it saw; (value, lower id) is a total order, so any reduction gives it.
 * 2. With a temperature, the race: the token whose -ln(u) / weight is least.
 *    Sound bounds in float rule out all but a few before a logarithm is taken, so
 *    the winner is that of the CPU, whatever the order. Bans and mask are a
 *    bitmap in shared memory; rows without them have loops of their own.
 *    With top_k: the heaviest are listed as in 3, sorted, and cut by one thread
 *    that adds in the CPU's order; they race alone. One CTA does this.
 * 3. Log probabilities: the sum of exponentials is 16 chains of float additions
 *    that ascend through the row, as on the CPU. One warp adds them from shared
 *    memory while 15 fill the other buffer. The most likely n: those not below
 *    the n-th largest of the threads' maxima are listed on the way (all belong to n
 *    threads, which bounds the list), then ranked.
 * Every sum's order is the CPU's; no bit depends on cluster, grid or neighbours.
 *
 * Block 512, two CTAs per SM: 60 registers, 93 KiB of shared memory.
 * Bytes, V = n_vocab: greedy 4 V a row; temperature 8 V (masked: + V / 8), where
 * the second 4 V may come from L2; top_k 12 V; log probabilities 4 V more.
 * Operations: 17 wide multiplies and 20 logical ones a token of the race.
 * Bounds, 256 x 128,256 on an H200: greedy memory, 131 MB, 30 us at 4.4 TB/s;
 * race integer pipes, some 55 us, after the 30 us of the maximum; log
 * probabilities the chain of V / 16 additions at 4 clocks, 18 us a row, or memory,
 * 60 us. Reached: not measured yet.
 */
#include "kernels/cuda/sample_logprob.cuh"
#include "kernels/cuda/sample_race.cuh"

/* ---- the draw ---- */

/* The tokens of the part that may be drawn, as bits. */
static __device__ void fill_allowed(struct cta *s, const struct part *p,
				    const struct gpu_sample_row *row)
{
	uint32_t first = p->first_vec * 4, end = min(p->end_vec * 4, p->n_vocab);

	if (threadIdx.x == 0)
		s->nr_banned = 0;
	for (uint32_t i = threadIdx.x; first + i * 64 < end; i += THREADS) {
		uint64_t bits = row->allowed ? row->allowed[first / 64 + i] : ~0ull;

		s->allowed[2 * i] = (uint32_t)bits;
		s->allowed[2 * i + 1] = (uint32_t)(bits >> 32);
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < row->nr_banned; i += THREADS) {
		uint32_t id = (uint32_t)row->banned[i];

		if (id >= first && id < end) {
			uint32_t bit = 1u << (id - first) % 32;

			if (atomicAnd(&s->allowed[(id - first) / 32], ~bit) & bit)
				atomicAdd(&s->nr_banned, 1);
		}
	}
	__syncthreads();
}

static __device__ bool is_allowed(const struct gpu_sample_row *row, uint32_t id)
{
	return !row->allowed || row->allowed[id / 64] >> id % 64 & 1;
}

/* Where no logit that is allowed is a number any of them will do: the first. */
static __device__ uint32_t settle(struct cta *s, const struct gpu_sample_row *row, uint32_t n_vocab,
				  uint32_t token)
{
	uint64_t key = 0;

	if (is_allowed(row, token))
		return token;
	for (uint32_t i = threadIdx.x; i * 64 < n_vocab && !key; i += THREADS) {
		uint64_t bits = row->allowed[i];
		uint32_t id = i * 64 + __ffsll((long long)bits) - 1;

		if (bits && id < n_vocab)
			key = ~(uint64_t)id;
	}
	key = cta_max(s, key);
	return key ? (uint32_t)~key : token;
}

/*
 * The token, in rank 0; the others have no use of what they return. raw_key: in rank 0 the
 * largest of the whole row, where has_raw says that it was looked for.
 */
static __device__ uint32_t draw(struct cta *s, const struct part *whole,
				const struct gpu_sample_row *row, bool has_raw, uint64_t raw_key)
{
	uint32_t rank = cluster_rank(), nr = cluster_size();
	bool has_top_k = row->temperature > 0 && row->top_k;
	uint32_t nr_parts = has_top_k ? 1 : nr;
	uint32_t part_vecs = ((whole->end_vec + nr_parts - 1) / nr_parts + 15) / 16 * 16;
	struct part p = *whole;
	uint64_t best_key = raw_key, time;
	uint32_t token;

	p.first_vec = min(rank * part_vecs, whole->end_vec);
	p.end_vec = min(p.first_vec + part_vecs, whole->end_vec);
	p.allowed = row->allowed || row->nr_banned ? s->allowed : NULL;
	if (p.allowed)
		fill_allowed(s, &p, row);
	if (!has_raw || p.allowed) {
		best_key = p.allowed ? thread_largest<true>(&p) : thread_largest<false>(&p);
		best_key = cta_max(s, best_key);
	}
	if (threadIdx.x == 0)
		s->best_key = has_raw && !p.allowed && rank ? 0 : best_key;
	cluster_sync();
	best_key = 0;
	for (uint32_t i = 0; i < nr; i++)
		best_key = max(best_key, cluster_load_u64(&s->best_key, i));
	best_key = key_or_first(best_key);
	token = sample_key_id(best_key);
	if (row->temperature > 0) {
		if (!has_top_k)
			race_part(s, &p, row, best_key);
		else if (rank == 0)
			race_top_k(s, &p, row, best_key);
		else if (threadIdx.x == 0)
			s->time = ~0ull;
		cluster_sync();
		time = ~0ull;
		for (uint32_t i = 0; i < nr; i++) {
			uint64_t t = cluster_load_u64(&s->time, i);
			uint32_t id = (uint32_t)cluster_load_u64(&s->winner, i);

			if (t < time || (t == time && id < token)) {
				time = t;
				token = id;
			}
		}
	}
	cluster_sync(); /* nobody leaves while others read its shared memory */
	return rank == 0 ? settle(s, row, whole->n_vocab, token) : token;
}

extern "C" __global__ void __launch_bounds__(GPU_SAMPLE_THREADS, 2)
	sample_rows(const __grid_constant__ struct gpu_sample_params params)
{
	extern __shared__ __align__(16) uint8_t smem[];
	struct cta *s = (struct cta *)smem;
	const struct gpu_sample_row *row = &params.rows[blockIdx.y];
	struct gpu_sample_result *result = &params.results[blockIdx.y];
	struct part p = { params.logits + (size_t)row->logits_row * params.stride, params.n_vocab };
	uint32_t nr_top = min(row->nr_top, params.n_vocab);
	bool has_raw = row->want_logprob || nr_top;
	uint32_t token = (uint32_t)row->token;
	uint64_t raw_key = 0, best = 0;

	if (row->is_off)
		return;
	p.end_vec = (params.n_vocab + 3) / 4;
	if (has_raw && cluster_rank() == 0) {
		raw_key = thread_largest<false>(&p);
		best = cta_max(s, raw_key);
	}
	if (!row->is_given)
		token = draw(s, &p, row, has_raw, best);
	if (cluster_rank() != 0)
		return;
	if (has_raw) {
		find_log_sum(s, &p, raw_key, key_or_first(best), nr_top);
		for (uint32_t i = threadIdx.x; i < nr_top; i += THREADS) {
			result->top_ids[i] = s->top_ids[i];
			result->top_logprobs[i] =
				(float)((double)p.row[s->top_ids[i]] - s->log_sum);
		}
	}
	if (threadIdx.x == 0) {
		result->token = (int32_t)token;
		result->nr_top = nr_top;
		if (row->want_logprob)
			result->logprob = (float)((double)p.row[token] - s->log_sum);
	}
}
