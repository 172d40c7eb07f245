/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode attention over anchored splits, bf16, head_dim 128, one query row a
 * sequence, up to 8 query heads to a KV head.
 *
 * Algorithm: a unit is (sequence, split of 512 tokens, KV head). A producer
 * thread streams K and V of the CTA's units through a ring of three stages of
 * 64 tokens (16 KiB) by the copy engine. Four warps compute 128-token blocks
 * with swapped operands: S^T[128 x 8] = K Q^T (each warp 32 tokens), one
 * online-softmax step, P through shared memory, O^T[128 x 8] += V^T P^T (each
 * warp 32 of head_dim). A finished split leaves its unnormalised O and state in
 * memory. Four more warps count finished splits; those of the CTA that counts
 * the last one of a (sequence, KV head) merge all of them in ascending order.
 *
 * Grid 2 CTAs per SM, block 4 consumer + 4 merge + 1 producer warps, 113 KB of
 * shared memory asked for: ring 48, Q 4, P 4, merge 4; 96 registers.
 * Bytes: 2 * tokens * kv_heads * 256 read, 2 * 520 * q_heads per split for
 * the partial results (0.8 % of K and V at 4 heads to a group). FLOPs as
 * executed: 4 * tokens * kv_heads * 128 * 8 (padding of 4 heads to 8 included).
 * Bound: memory. Reached, 2026-11-30, H200, through 2 MiB pages, of 4.64 TB/s
 * read there: 94 % at 32 x 8k, 92 % at 256 x 2k and 64 ragged, 67 % at 1 x 32k.
 * Tried and lost, 32 x 8k: consumers that count and merge themselves, 4.03 TB/s
 * (fences take microseconds under load); units from a counter (its latency
 * stalls the producer); loads of 128 tokens; four, five and six stages of 64,
 * 4.19, 4.08 and 4.00 (more in flight is slower); one CTA with eight or twelve,
 * 3.55; L2 promotion of 256 bytes, 3.69; no evict-first hint, 0.8 of the rate;
 * tile strides padded off powers of two, no change.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/kv_walk.cuh"
#include "kernels/cuda/mma.cuh"

enum {
	HEAD_DIM = 128,
	LOAD_TOKENS = GPU_ATTN_DECODE_LOAD,
	LOAD_HALF_BYTES = LOAD_TOKENS * KV_ROW_BYTES,
	LOAD_BYTES = 2 * LOAD_HALF_BYTES,
	BLOCK_LOADS = 4, /* K, K, V, V */
	NR_STAGES = 3, /* of one load */
	NR_SLOTS = 2, /* units announced ahead of the consumers */
	NR_DONE = 2, /* finished splits that may wait for the merge warps */
	NR_WARPS = 4, /* consumers */
	NR_CONSUMERS = NR_WARPS * 32,
	NR_MERGERS = 128,
	MAX_ROWS = GPU_ATTN_DECODE_MAX_ROWS,
	/* Floats per row of P: rows 8 banks apart make the fragment reads conflict-free. */
	P_STRIDE = GPU_ATTN_BLOCK_TOKENS + 8,
	K_STEPS = HEAD_DIM / 16,
	MERGE_AHEAD = 12, /* splits whose loads are in flight together in a merge */
	MERGE_CHUNK = 64, /* splits whose states are in shared memory together */
};

enum {
	BAR_CONSUMERS = 1,
	BAR_MERGERS,
};

/* What the producer tells the consumers about a unit; nr_tokens 0: no more. */
struct decode_slot {
	uint32_t nr_tokens; /* in this split */
	uint32_t first_stage; /* count of stages filled before this unit's */
	uint32_t kv_head;
	uint32_t split;
	uint32_t seq;
	uint32_t row;
	uint32_t nr_splits;
	uint32_t first_partial;
};

struct decode_smem {
	uint8_t stage[NR_STAGES][LOAD_BYTES]; /* K, K, V, V, K, ... */
	uint16_t q[NR_SLOTS][MAX_ROWS][HEAD_DIM];
	float p[MAX_ROWS][P_STRIDE];
	float2 merge_state[MERGE_CHUNK][MAX_ROWS];
	float warp_max[NR_WARPS][MAX_ROWS];
	struct decode_slot slot[NR_SLOTS]; /* producer to consumers */
	struct decode_slot done[NR_DONE]; /* consumers to merge warps */
	uint64_t full[NR_STAGES], empty[NR_STAGES];
	uint64_t slot_full[NR_SLOTS], slot_empty[NR_SLOTS];
	uint64_t done_full[NR_DONE], done_empty[NR_DONE];
	uint32_t is_last; /* this CTA finished the last split */
};

static_assert(sizeof(struct decode_smem) + 1024 <= GPU_ATTN_DECODE_SMEM_BYTES, "shared memory");
static_assert(GPU_ATTN_DECODE_CTAS * (GPU_ATTN_DECODE_SMEM_BYTES + 1024) <= 228 * 1024,
	      "CTAs to an SM");
static_assert(sizeof(struct gpu_attn_split) == 48, "read as three 16-byte words");

/* Item n of a ring of nr: place n % nr, its pass over the ring has this parity. */
static __device__ __forceinline__ uint32_t pass_of(uint32_t n, uint32_t nr)
{
	return n / nr & 1;
}

/*
 * Gives a stage back after the MMAs whose results a and b are. The arrival must
 * not overtake the ldmatrix loads that fed them: without a true dependence it is
 * issued while the last of them are in flight, and now and then the copy engine
 * writes first (seen, 2 CTAs an SM and K, V in L2: 3 to 10 wrong of 65,536 pairs
 * of row and KV head). No MMA yields that pattern: both operands would have to
 * be negative NaNs.
 */
static __device__ __forceinline__ void release_after(uint64_t *bar, uint32_t lane, float a, float b)
{
	__syncwarp();
	if (lane == 0 && (__float_as_uint(a) & __float_as_uint(b)) != 0xffffdead)
		mbar_arrive(bar);
}

/* ---- producer: one thread ---- */

struct unit {
	struct gpu_attn_split split;
	uint32_t kv_head;
};

/* Neighbours in time read all heads of the same tokens. */
static __device__ __forceinline__ void read_unit(const struct gpu_attn_decode_params *p,
						 uint32_t at, struct unit *out_unit)
{
	const uint4 *from = (const uint4 *)&p->splits[at / p->kv.nr_kv_heads];
	uint4 *to = (uint4 *)&out_unit->split;

	out_unit->kv_head = at % p->kv.nr_kv_heads;
#pragma unroll
	for (int i = 0; i < 3; i++)
		to[i] = __ldg(from + i);
}

static __device__ __forceinline__ void announce_unit(const struct gpu_attn_decode_params *p,
						     struct decode_smem *sm, uint32_t n,
						     const struct unit *unit, uint32_t first_stage)
{
	uint32_t group = p->nr_q_heads / p->kv.nr_kv_heads;
	struct decode_slot *slot = &sm->slot[n % NR_SLOTS];
	uint64_t *full = &sm->slot_full[n % NR_SLOTS];
	const struct gpu_attn_split *split = &unit->split;
	const uint16_t *q = (const uint16_t *)p->q;

	mbar_wait(&sm->slot_empty[n % NR_SLOTS], pass_of(n, NR_SLOTS) ^ 1);
	slot->nr_tokens = split->end_token - split->first_token;
	slot->first_stage = first_stage;
	slot->kv_head = unit->kv_head;
	slot->split = split->first_token / GPU_ATTN_SPLIT_TOKENS;
	slot->seq = split->seq;
	slot->row = split->row;
	slot->nr_splits = split->nr_splits;
	slot->first_partial = split->first_partial;
	mbar_arrive_expect(full, group * HEAD_DIM * 2);
	bulk_load(sm->q[n % NR_SLOTS],
		  q + ((size_t)split->row * p->nr_q_heads + unit->kv_head * group) * HEAD_DIM,
		  group * HEAD_DIM * 2, full);
}

static __device__ __forceinline__ void announce_end(struct decode_smem *sm, uint32_t n)
{
	mbar_wait(&sm->slot_empty[n % NR_SLOTS], pass_of(n, NR_SLOTS) ^ 1);
	sm->slot[n % NR_SLOTS].nr_tokens = 0;
	mbar_arrive(&sm->slot_full[n % NR_SLOTS]);
}

/* The block at `token` into the next BLOCK_LOADS stages: K twice, then V. */
static __device__ __forceinline__ void load_block(const struct gpu_attn_decode_params *p,
						  struct decode_smem *sm, struct kv_walk *walk,
						  uint32_t kv_head, uint32_t token, uint32_t stage,
						  uint64_t policy)
{
	const struct gpu_attn_kv *kv = &p->kv;

	struct kv_walk v_walk;

	kv_walk_to(walk, token);
	v_walk = *walk;
#pragma unroll
	for (int i = 0; i < BLOCK_LOADS; i++) {
		uint32_t at = (stage + i) % NR_STAGES;
		uint32_t from = token + i % 2 * LOAD_TOKENS;
		bool is_v = i >= 2;

		mbar_wait(&sm->empty[at], pass_of(stage + i, NR_STAGES) ^ 1);
		mbar_arrive_expect(&sm->full[at],
				   kv_load_bytes(walk, from, LOAD_TOKENS, kv->tile_tokens));
		if (from >= walk->nr_tokens)
			continue;
		kv_walk_to(is_v ? &v_walk : walk, from);
		kv_load(is_v ? &v_walk : walk, is_v ? &kv->v_block : &kv->k_block,
			is_v ? &kv->v_tile : &kv->k_tile, kv->tile_tokens,
			(is_v ? kv->v_plane : kv->k_plane) + kv_head, from, LOAD_TOKENS,
			sm->stage[at], &sm->full[at], policy);
	}
}

/*
 * Unit n of a CTA is at + n * grid: splits weigh the same but for the last ones
 * of sequences. The next one is read while this one's loads wait for room, so
 * that no load depends on the latency of another.
 */
static __device__ __forceinline__ void produce(const struct gpu_attn_decode_params *p,
					       struct decode_smem *sm)
{
	uint64_t policy = policy_evict_first();
	uint32_t nr_splits = p->nr_splits_at ? *p->nr_splits_at : p->nr_splits;
	uint32_t nr_units = nr_splits * p->kv.nr_kv_heads;
	uint32_t stage = 0;
	uint32_t n = 0;
	struct unit next;

	if (blockIdx.x < nr_units)
		read_unit(p, blockIdx.x, &next);
	for (uint32_t at = blockIdx.x; at < nr_units; at += gridDim.x, n++) {
		struct unit unit = next;
		struct kv_walk walk = { p->pieces + unit.split.next_piece, unit.split.piece,
					unit.split.end_token };

		if (at + gridDim.x < nr_units)
			read_unit(p, at + gridDim.x, &next);
		announce_unit(p, sm, n, &unit, stage);
		for (uint32_t token = unit.split.first_token; token < unit.split.end_token;
		     token += GPU_ATTN_BLOCK_TOKENS) {
			load_block(p, sm, &walk, unit.kv_head, token, stage, policy);
			stage += BLOCK_LOADS;
		}
	}
	announce_end(sm, n);
}

/* ---- consumers: four warps ---- */

/* Per lane: g = lane / 4, c = lane % 4. Score fragments belong to rows 2c, 2c + 1. */
struct decode_state {
	float col_mc[2]; /* rows 2c and 2c + 1: those of S^T and O^T fragments */
	float row_mc; /* row g: that of the P fragments, for the sum */
	float sum; /* row g, class c */
	float out[2][4]; /* O^T: 16 of head_dim x 8 rows, twice */
};

/* Byte offset of (row, 16-byte chunk 0..15) in a load under the swizzle. */
static __device__ __forceinline__ uint32_t load_offset(uint32_t row, uint32_t chunk)
{
	return (chunk >> 3) * LOAD_HALF_BYTES + row * KV_ROW_BYTES + (((chunk ^ row) & 7) << 4);
}

static __device__ __forceinline__ void load_q(const uint16_t (*q)[HEAD_DIM], uint32_t lane,
					      uint32_t (&frag)[K_STEPS][2])
{
	const uint32_t *row = (const uint32_t *)q[lane / 4];

#pragma unroll
	for (int k = 0; k < K_STEPS; k++) {
		frag[k][0] = row[k * 8 + lane % 4];
		frag[k][1] = row[k * 8 + 4 + lane % 4];
	}
}

/* s[2][4]: tokens warp * 32 + 16 m + (g, g + 8), rows 2c, 2c + 1. */
static __device__ __forceinline__ void scores(const uint8_t *k_load, uint32_t warp, uint32_t lane,
					      const uint32_t (&q)[K_STEPS][2], float (&s)[2][4])
{
	uint32_t base = smem_addr(k_load); /* the one that holds this warp's tokens */

#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[m][i] = 0.0f;
#pragma unroll
	for (int k = 0; k < K_STEPS; k++) {
#pragma unroll
		for (int m = 0; m < 2; m++) {
			uint32_t row = warp % 2 * 32 + m * 16 + lane % 16;
			uint32_t a[4]; // K[16 tokens][16 of d]

			ldmatrix_x4(a, base + load_offset(row, 2 * k + lane / 16));
			mma_m16n8k16(s[m], a, q[k][0], q[k][1]); // S^T[16][8]
		}
	}
}

static __device__ __forceinline__ void mask_tail(float (&s)[2][4], uint32_t warp, uint32_t lane,
						 uint32_t nr_valid)
{
#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (warp * 32 + m * 16 + (i / 2) * 8 + lane / 4 >= nr_valid)
				s[m][i] = ATTN_NEG_INF;
}

/* Writes the maximum of this warp's 32 tokens for each of the 8 rows. */
static __device__ __forceinline__ void publish_max(struct decode_smem *sm, const float (&s)[2][4],
						   uint32_t warp, uint32_t lane)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top = fmaxf(fmaxf(s[0][i], s[0][i + 2]), fmaxf(s[1][i], s[1][i + 2]));

#pragma unroll
		for (int step = 4; step < 32; step *= 2)
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
		if (lane < 4)
			sm->warp_max[warp][2 * lane + i] = top;
	}
}

static __device__ __forceinline__ float block_mc(const struct decode_smem *sm, uint32_t row,
						 float scale_log2)
{
	float top = sm->warp_max[0][row];

#pragma unroll
	for (int w = 1; w < NR_WARPS; w++)
		top = fmaxf(top, sm->warp_max[w][row]);
	return __fmul_rn(top, scale_log2);
}

/* After publish_max and a barrier: new maxima, rescaling, P to shared memory. */
static __device__ __forceinline__ void softmax_step(struct decode_smem *sm, struct decode_state *st,
						    const float (&s)[2][4], uint32_t warp,
						    uint32_t lane, float scale_log2,
						    float *row_rescale)
{
	uint32_t g = lane / 4;
	uint32_t c = lane % 4;
	float new_mc = fmaxf(st->row_mc, block_mc(sm, g, scale_log2));

	*row_rescale = attn_rescale(st->row_mc, attn_finite_mc(new_mc));
	st->row_mc = new_mc;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float finite, rescale;

		new_mc = fmaxf(st->col_mc[i], block_mc(sm, 2 * c + i, scale_log2));
		finite = attn_finite_mc(new_mc);
		rescale = attn_rescale(st->col_mc[i], finite);
		st->col_mc[i] = new_mc;
#pragma unroll
		for (int m = 0; m < 2; m++) {
			float *p = &sm->p[2 * c + i][warp * 32 + m * 16 + g];

			p[0] = attn_prob(s[m][i], scale_log2, finite);
			p[8] = attn_prob(s[m][i + 2], scale_log2, finite);
			st->out[m][i] = __fmul_rn(st->out[m][i], rescale);
			st->out[m][i + 2] = __fmul_rn(st->out[m][i + 2], rescale);
		}
	}
}

/* Sums of a row's class over one block: even and odd columns, ascending. */
struct block_sum {
	float even;
	float odd;
};

/* O^T += V^T P^T over one load, head_dim [warp * 32, + 32); the row sums beside it. */
static __device__ __forceinline__ void outputs(const float *p, const uint8_t *v_load,
					       struct decode_state *st, uint32_t warp,
					       uint32_t lane, struct block_sum *sum)
{
	uint32_t base = smem_addr(v_load);

#pragma unroll
	for (int k = 0; k < LOAD_TOKENS / 16; k++) {
		float2 lo = *(const float2 *)(p + k * 16);
		float2 hi = *(const float2 *)(p + k * 16 + 8);
		uint32_t b0 = pack_bf16(lo.x, lo.y);
		uint32_t b1 = pack_bf16(hi.x, hi.y);

		sum->even = __fadd_rn(__fadd_rn(sum->even, lo.x), hi.x);
		sum->odd = __fadd_rn(__fadd_rn(sum->odd, lo.y), hi.y);
#pragma unroll
		for (int m = 0; m < 2; m++) {
			uint32_t row = k * 16 + (lane / 16) * 8 + lane % 8;
			uint32_t chunk = warp * 4 + m * 2 + (lane / 8) % 2;
			uint32_t a[4]; // V^T[16 of d][16 tokens]

			ldmatrix_x4_trans(a, base + load_offset(row, chunk));
			mma_m16n8k16(st->out[m], a, b0, b1); // O^T[16][8]
		}
	}
}

static __device__ __forceinline__ void store_partial(const struct gpu_attn_decode_params *p,
						     const struct decode_slot *slot,
						     const struct decode_state *st, uint32_t warp,
						     uint32_t lane)
{
	uint32_t group = p->nr_q_heads / p->kv.nr_kv_heads;
	size_t first =
		(size_t)(slot->first_partial + slot->split) * p->nr_q_heads + slot->kv_head * group;
	uint32_t g = lane / 4;
	uint32_t c = lane % 4;
	float sum = attn_join_sum(st->sum);

#pragma unroll
	for (int i = 0; i < 2; i++) {
		float *out = p->partial_out + (first + 2 * c + i) * HEAD_DIM + warp * 32 + g;

		if (2 * c + i >= group)
			continue;
#pragma unroll
		for (int m = 0; m < 2; m++) {
			out[m * 16] = st->out[m][i];
			out[m * 16 + 8] = st->out[m][i + 2];
		}
	}
	if (warp == 0 && c == 0 && g < group)
		*(float2 *)(p->partial_state + (first + g) * 2) = make_float2(st->row_mc, sum);
}

struct consumer {
	uint32_t thread;
	uint32_t warp;
	uint32_t lane;
};

static __device__ __forceinline__ void wait_stage(struct decode_smem *sm, uint32_t n)
{
	mbar_wait(&sm->full[n % NR_STAGES], pass_of(n, NR_STAGES));
}

/* Rows of V behind the last token, before any warp reads P and V. */
static __device__ __forceinline__ void zero_tail(struct decode_smem *sm, uint32_t stage,
						 uint32_t nr_valid, uint32_t thread)
{
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t first = i * LOAD_TOKENS;

		wait_stage(sm, stage + i);
		kv_zero_rows(sm->stage[(stage + i) % NR_STAGES], LOAD_TOKENS,
			     nr_valid > first ? nr_valid - first : 0, thread, NR_CONSUMERS);
	}
	fence_async_smem();
}

static __device__ __forceinline__ void consume_block(const struct gpu_attn_decode_params *p,
						     struct decode_smem *sm,
						     const struct consumer *me, uint32_t stage,
						     const uint32_t (&q)[K_STEPS][2],
						     struct decode_state *st, uint32_t nr_valid)
{
	const float *probs = &sm->p[me->lane / 4][2 * (me->lane % 4)];
	struct block_sum sum = { 0.0f, 0.0f };
	float s[2][4];
	float row_rescale;

	wait_stage(sm, stage);
	wait_stage(sm, stage + 1);
	scores(sm->stage[(stage + me->warp / 2) % NR_STAGES], me->warp, me->lane, q, s);
	release_after(&sm->empty[stage % NR_STAGES], me->lane, s[0][0], s[1][0]);
	release_after(&sm->empty[(stage + 1) % NR_STAGES], me->lane, s[0][0], s[1][0]);
	if (nr_valid < GPU_ATTN_BLOCK_TOKENS)
		mask_tail(s, me->warp, me->lane, nr_valid);
	publish_max(sm, s, me->warp, me->lane);
	named_sync(BAR_CONSUMERS, NR_CONSUMERS);
	softmax_step(sm, st, s, me->warp, me->lane, p->scale_log2, &row_rescale);
	if (nr_valid < GPU_ATTN_BLOCK_TOKENS)
		zero_tail(sm, stage + 2, nr_valid, me->thread);
	named_sync(BAR_CONSUMERS, NR_CONSUMERS);
#pragma unroll
	for (uint32_t i = 2; i < 4; i++) {
		wait_stage(sm, stage + i);
		outputs(probs + (i - 2) * LOAD_TOKENS, sm->stage[(stage + i) % NR_STAGES], st,
			me->warp, me->lane, &sum);
		release_after(&sm->empty[(stage + i) % NR_STAGES], me->lane, st->out[0][0],
			      st->out[1][0]);
	}
	st->sum = __fmaf_rn(st->sum, row_rescale, __fadd_rn(sum.even, sum.odd));
}

/* After this thread's part of the partial result has been stored. */
static __device__ __forceinline__ void report_done(struct decode_smem *sm, uint32_t n,
						   const struct decode_slot *slot, uint32_t thread)
{
	if (thread == 0) {
		mbar_wait(&sm->done_empty[n % NR_DONE], pass_of(n, NR_DONE) ^ 1);
		sm->done[n % NR_DONE] = *slot;
	}
	mbar_arrive(&sm->done_full[n % NR_DONE]);
}

static __device__ __forceinline__ void consume(const struct gpu_attn_decode_params *p,
					       struct decode_smem *sm)
{
	struct consumer me = { threadIdx.x, threadIdx.x / 32, threadIdx.x % 32 };

	for (uint32_t n = 0;; n++) {
		struct decode_state st = { { ATTN_NEG_INF, ATTN_NEG_INF }, ATTN_NEG_INF };
		struct decode_slot slot;
		uint32_t q[K_STEPS][2];

		mbar_wait(&sm->slot_full[n % NR_SLOTS], pass_of(n, NR_SLOTS));
		slot = sm->slot[n % NR_SLOTS];
		if (slot.nr_tokens == 0) {
			report_done(sm, n, &slot, me.thread);
			return;
		}
		load_q(sm->q[n % NR_SLOTS], me.lane, q);
		for (uint32_t t = 0; t < slot.nr_tokens; t += GPU_ATTN_BLOCK_TOKENS)
			consume_block(p, sm, &me,
				      slot.first_stage + t / GPU_ATTN_BLOCK_TOKENS * BLOCK_LOADS, q,
				      &st,
				      min(slot.nr_tokens - t, (uint32_t)GPU_ATTN_BLOCK_TOKENS));
		store_partial(p, &slot, &st, me.warp, me.lane);
		report_done(sm, n, &slot, me.thread);
		/*
		 * Here all that was read from the slot has been used, not only asked for. By
		 * threads, because racecheck does not follow one arrival for a warp's reads.
		 */
		mbar_arrive(&sm->slot_empty[n % NR_SLOTS]);
	}
}

/* ---- merge warps ---- */

/* Running total of one thread: four of head_dim of one row. */
struct merge_cell {
	struct attn_total total;
	float4 out;
};

/* Adds `nr` splits whose states lie in shared memory; partials at `from`, one per `step`. */
static __device__ __forceinline__ void merge_chunk(const float2 (*state)[MAX_ROWS], uint32_t row,
						   const float *from, size_t step, uint32_t nr,
						   struct merge_cell *cell)
{
	for (uint32_t s = 0; s < nr; s += MERGE_AHEAD) {
		float4 part[MERGE_AHEAD];

#pragma unroll
		for (int i = 0; i < MERGE_AHEAD; i++)
			if (s + i < nr)
				part[i] = __ldcg((const float4 *)(from + (s + i) * step));
#pragma unroll
		for (int i = 0; i < MERGE_AHEAD; i++) {
			float2 st;
			float a, b;

			if (s + i >= nr)
				break;
			st = state[s + i][row];
			attn_total_add(&cell->total, st.x, st.y, &a, &b);
			cell->out.x = attn_merge_out(cell->out.x, a, part[i].x, b);
			cell->out.y = attn_merge_out(cell->out.y, a, part[i].y, b);
			cell->out.z = attn_merge_out(cell->out.z, a, part[i].z, b);
			cell->out.w = attn_merge_out(cell->out.w, a, part[i].w, b);
		}
	}
}

static __device__ __forceinline__ void store_row(const struct gpu_attn_decode_params *p,
						 size_t head_row, uint32_t d,
						 const struct merge_cell *cell)
{
	float inv = __fdiv_rn(1.0f, cell->total.sum);
	uint2 packed;

	packed.x = pack_bf16(__fmul_rn(cell->out.x, inv), __fmul_rn(cell->out.y, inv));
	packed.y = pack_bf16(__fmul_rn(cell->out.z, inv), __fmul_rn(cell->out.w, inv));
	*(uint2 *)((uint16_t *)p->out + head_row * HEAD_DIM + d) = packed;
}

/* All splits of a (sequence, KV head), ascending; 4 rows at a time, all merge threads. */
static __device__ __forceinline__ void merge_splits(const struct gpu_attn_decode_params *p,
						    struct decode_smem *sm,
						    const struct decode_slot *slot, uint32_t thread)
{
	uint32_t group = p->nr_q_heads / p->kv.nr_kv_heads;
	uint32_t head = slot->kv_head * group;
	uint32_t d = thread % 32 * 4;

	for (uint32_t row = thread / 32; row - thread / 32 < group; row += NR_MERGERS / 32) {
		struct merge_cell cell = { { ATTN_NEG_INF, 0.0f } };

		for (uint32_t s = 0; s < slot->nr_splits; s += MERGE_CHUNK) {
			uint32_t nr = min(slot->nr_splits - s, (uint32_t)MERGE_CHUNK);
			size_t first = (size_t)(slot->first_partial + s) * p->nr_q_heads + head;
			const float2 *states = (const float2 *)p->partial_state + first;

			named_sync(BAR_MERGERS, NR_MERGERS);
			for (uint32_t i = thread; i < nr * group; i += NR_MERGERS)
				sm->merge_state[i / group][i % group] = __ldcg(
					states + (size_t)(i / group) * p->nr_q_heads + i % group);
			named_sync(BAR_MERGERS, NR_MERGERS);
			if (row < group)
				merge_chunk(sm->merge_state, row,
					    p->partial_out + (first + row) * HEAD_DIM + d,
					    (size_t)p->nr_q_heads * HEAD_DIM, nr, &cell);
		}
		if (row < group)
			store_row(p, (size_t)slot->row * p->nr_q_heads + head + row, d, &cell);
	}
}

/*
 * Counts finished splits; the CTA that counts the last one of a (sequence, KV
 * head) merges, in the order of the splits. Apart from the consumers, because
 * the fences and the count take microseconds under load.
 */
static __device__ __forceinline__ void merge_loop(const struct gpu_attn_decode_params *p,
						  struct decode_smem *sm, uint32_t thread)
{
	for (uint32_t n = 0;; n++) {
		struct decode_slot slot;

		mbar_wait(&sm->done_full[n % NR_DONE], pass_of(n, NR_DONE));
		slot = sm->done[n % NR_DONE];
		if (slot.nr_tokens == 0)
			return;
		if (thread == 0) {
			uint32_t *arrivals =
				p->arrivals + slot.seq * p->kv.nr_kv_heads + slot.kv_head;

			/*
			 * The fence before the count releases the consumers'
			 * partial results (done_full made them this thread's
			 * past); the one after it pairs with those of the CTAs
			 * that finished the other splits.
			 */
			__threadfence();
			sm->is_last = atomicAdd(arrivals, 1) == slot.nr_splits - 1;
			if (sm->is_last)
				*arrivals = 0;
			__threadfence();
		}
		named_sync(BAR_MERGERS, NR_MERGERS);
		if (sm->is_last)
			merge_splits(p, sm, &slot, thread);
		named_sync(BAR_MERGERS, NR_MERGERS); /* before is_last and states change */
		mbar_arrive(&sm->done_empty[n % NR_DONE]);
	}
}

extern "C" __global__ void __launch_bounds__(GPU_ATTN_DECODE_THREADS, GPU_ATTN_DECODE_CTAS)
	attn_decode_d128(const __grid_constant__ struct gpu_attn_decode_params p)
{
	extern __shared__ uint8_t smem_raw[];
	struct decode_smem *sm = (struct decode_smem *)(smem_raw + (-smem_addr(smem_raw) & 1023));

	/* Rows of q beyond the group stay zero for good: the copies never reach them. */
	for (uint32_t i = threadIdx.x; i < sizeof(sm->q) / 4; i += blockDim.x)
		((uint32_t *)sm->q)[i] = 0;
	fence_async_smem();
	if (threadIdx.x == 0) {
		for (int i = 0; i < NR_STAGES; i++) {
			mbar_init(&sm->full[i], 1);
			mbar_init(&sm->empty[i], NR_WARPS);
		}
		for (int i = 0; i < NR_SLOTS; i++) {
			mbar_init(&sm->slot_full[i], 1);
			mbar_init(&sm->slot_empty[i], NR_CONSUMERS);
		}
		for (int i = 0; i < NR_DONE; i++) {
			mbar_init(&sm->done_full[i], NR_CONSUMERS);
			mbar_init(&sm->done_empty[i], NR_MERGERS);
		}
		mbar_init_fence();
	}
	grid_begin();
	__syncthreads();
	if (threadIdx.x < NR_CONSUMERS)
		consume(&p, sm);
	else if (threadIdx.x < NR_CONSUMERS + NR_MERGERS)
		merge_loop(&p, sm, threadIdx.x - NR_CONSUMERS);
	else if (threadIdx.x == NR_CONSUMERS + NR_MERGERS)
		produce(&p, sm);
}
