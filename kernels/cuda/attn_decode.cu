/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode attention over anchored splits, bf16, head_dim 128, one query row a
 * sequence, up to 8 query heads to a KV head.
 *
 * Algorithm: a unit is (sequence, split of 512 tokens, KV head). A producer
 * thread takes units from a counter and streams their K and V in 128-token
 * blocks through a ring of three 32 KiB stages by the copy engine. Four warps
 * compute with swapped operands: S^T[128 x 8] = K Q^T (each warp 32 tokens),
 * one online-softmax step, P through shared memory, O^T[128 x 8] += V^T P^T
 * (each warp 32 of head_dim). A finished split leaves its unnormalised O and
 * state in memory; the CTA that finishes the last split of a (sequence, KV
 * head) merges all of them in ascending order.
 *
 * Grid 2 CTAs per SM, block 4 consumer warps + 1 producer warp, about 110 KB
 * of shared memory; registers <= 168.
 * Bytes: 2 * tokens * kv_heads * 256 read, 2 * 520 * q_heads per split for
 * the partial results (0.8 % of K and V at 4 heads to a group). FLOPs as
 * executed: 4 * tokens * kv_heads * 128 * 8 (padding of 4 heads to 8 included).
 * Bound: memory. Reached: see tests/bench/LOG.md.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/kv_walk.cuh"
#include "kernels/cuda/mma.cuh"

enum {
	HEAD_DIM = 128,
	NR_STAGES = 3,
	NR_SLOTS = 4, /* units announced ahead; short ones need more than one */
	NR_CONSUMER_WARPS = 4,
	NR_CONSUMERS = NR_CONSUMER_WARPS * 32,
	MAX_ROWS = GPU_ATTN_DECODE_MAX_ROWS,
	/* Floats per row of P: rows 8 banks apart make the fragment reads conflict-free. */
	P_STRIDE = GPU_ATTN_BLOCK_TOKENS + 8,
	K_STEPS = HEAD_DIM / 16,
	MERGE_AHEAD = 8, /* splits whose loads are in flight together in a merge */
};

enum {
	BAR_CONSUMERS = 1,
};

/* What the producer tells the consumers about a unit; nr_tokens 0: no more. */
struct decode_slot {
	uint32_t nr_tokens; /* in this split */
	uint32_t seq;
	uint32_t split;
	uint32_t kv_head;
	uint32_t nr_splits;
	uint32_t first_partial;
	uint32_t row;
	uint32_t pad;
};

struct decode_smem {
	uint8_t stage[NR_STAGES][KV_BLOCK_BYTES]; /* K, V, K, V, ... */
	uint16_t q[NR_SLOTS][MAX_ROWS][HEAD_DIM];
	float p[MAX_ROWS][P_STRIDE];
	float warp_max[NR_CONSUMER_WARPS][MAX_ROWS];
	struct decode_slot slot[NR_SLOTS];
	uint64_t full[NR_STAGES];
	uint64_t empty[NR_STAGES];
	uint64_t slot_full[NR_SLOTS];
	uint64_t slot_empty[NR_SLOTS];
	uint32_t is_last; /* this CTA finished the last split */
};

static_assert(sizeof(struct decode_smem) + 1024 <= GPU_ATTN_DECODE_SMEM_BYTES, "shared memory");
static_assert(2 * (GPU_ATTN_DECODE_SMEM_BYTES + 1024) <= 228 * 1024, "two CTAs to an SM");

/* ---- producer: one thread ---- */

struct ring {
	uint32_t at;
	uint32_t parity; /* of the current pass over the ring */
};

static __device__ __forceinline__ void ring_next(struct ring *ring, uint32_t nr)
{
	if (++ring->at == nr) {
		ring->at = 0;
		ring->parity ^= 1;
	}
}

static __device__ __forceinline__ uint32_t queue_take(const struct gpu_attn_decode_params *p)
{
	return gridDim.x + atomicAdd(&p->queue->taken, 1);
}

static __device__ __forceinline__ void queue_leave(struct gpu_attn_queue *queue)
{
	if (atomicAdd(&queue->done, 1) == gridDim.x - 1) {
		queue->taken = 0;
		queue->done = 0;
	}
}

static __device__ __forceinline__ void announce_unit(const struct gpu_attn_decode_params *p,
						     struct decode_smem *sm, struct ring *slots,
						     const struct gpu_attn_seq *seq,
						     struct gpu_attn_unit unit, uint32_t kv_head,
						     uint32_t nr_tokens)
{
	uint32_t group = p->nr_q_heads / p->kv.nr_kv_heads;
	struct decode_slot *slot = &sm->slot[slots->at];
	uint64_t *full = &sm->slot_full[slots->at];

	mbar_wait(&sm->slot_empty[slots->at], slots->parity ^ 1);
	slot->nr_tokens = nr_tokens;
	if (nr_tokens == 0) {
		mbar_arrive(full);
		return;
	}
	slot->seq = unit.seq;
	slot->split = unit.part;
	slot->kv_head = kv_head;
	slot->nr_splits = (seq->nr_tokens + GPU_ATTN_SPLIT_TOKENS - 1) / GPU_ATTN_SPLIT_TOKENS;
	slot->first_partial = seq->first_partial;
	slot->row = seq->first_row;
	mbar_arrive_expect(full, group * HEAD_DIM * 2);
	bulk_load(sm->q[slots->at],
		  (const uint16_t *)p->q +
			  ((size_t)seq->first_row * p->nr_q_heads + kv_head * group) * HEAD_DIM,
		  group * HEAD_DIM * 2, full);
	ring_next(slots, NR_SLOTS);
}

static __device__ __forceinline__ void produce(const struct gpu_attn_decode_params *p,
					       struct decode_smem *sm)
{
	uint64_t policy = policy_evict_first();
	struct ring slots = { 0, 0 };
	struct ring stages = { 0, 0 };
	uint32_t nr_units = p->nr_units * p->kv.nr_kv_heads;
	uint32_t at;

	for (at = blockIdx.x; at < nr_units; at = queue_take(p)) {
		/* Neighbours in time read all heads of the same tokens. */
		struct gpu_attn_unit unit = p->units[at / p->kv.nr_kv_heads];
		uint32_t kv_head = at % p->kv.nr_kv_heads;
		struct gpu_attn_seq seq = p->seqs[unit.seq];
		uint32_t token = unit.part * GPU_ATTN_SPLIT_TOKENS;
		uint32_t end = min(token + GPU_ATTN_SPLIT_TOKENS, seq.nr_tokens);
		struct kv_walk walk;

		announce_unit(p, sm, &slots, &seq, unit, kv_head, end - token);
		kv_walk_start(&walk, p->pieces, &seq);
		for (; token < end; token += GPU_ATTN_BLOCK_TOKENS) {
			uint32_t nr_bytes = kv_block_bytes(&walk, token, p->kv.tile_tokens);

			kv_walk_to(&walk, token);
#pragma unroll
			for (int is_v = 0; is_v < 2; is_v++) {
				uint64_t *full = &sm->full[stages.at];

				mbar_wait(&sm->empty[stages.at], stages.parity ^ 1);
				mbar_arrive_expect(full, nr_bytes);
				kv_load_block(&walk, is_v ? &p->kv.v_block : &p->kv.k_block,
					      is_v ? &p->kv.v_tile : &p->kv.k_tile,
					      p->kv.tile_tokens,
					      (is_v ? p->kv.v_plane : p->kv.k_plane) + kv_head,
					      token, sm->stage[stages.at], full, policy);
				ring_next(&stages, NR_STAGES);
			}
		}
	}
	announce_unit(p, sm, &slots, NULL, { 0, 0 }, 0, 0);
	queue_leave(p->queue);
}

/* ---- consumers: four warps ---- */

/* Per lane: g = lane / 4, c = lane % 4. Score fragments belong to rows 2c, 2c + 1. */
struct decode_state {
	float col_mc[2]; /* rows 2c and 2c + 1: those of S^T and O^T fragments */
	float row_mc; /* row g: that of the P fragments, for the sum */
	float sum; /* row g, class c */
	float out[2][4]; /* O^T: 16 of head_dim x 8 rows, twice */
};

/* Byte offset of (row, 16-byte chunk 0..15) in a block under the swizzle. */
static __device__ __forceinline__ uint32_t block_offset(uint32_t row, uint32_t chunk)
{
	return (chunk >> 3) * KV_HALF_BYTES + row * KV_ROW_BYTES + (((chunk ^ row) & 7) << 4);
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
static __device__ __forceinline__ void scores(const uint8_t *k_block, uint32_t warp, uint32_t lane,
					      const uint32_t (&q)[K_STEPS][2], float (&s)[2][4])
{
	uint32_t base = smem_addr(k_block);

#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[m][i] = 0.0f;
#pragma unroll
	for (int k = 0; k < K_STEPS; k++) {
#pragma unroll
		for (int m = 0; m < 2; m++) {
			uint32_t row = warp * 32 + m * 16 + lane % 16;
			uint32_t a[4]; // K[16 tokens][16 of d]

			ldmatrix_x4(a, base + block_offset(row, 2 * k + lane / 16));
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
	for (int w = 1; w < NR_CONSUMER_WARPS; w++)
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

/* O^T += V^T P^T for head_dim [warp * 32, + 32); the row sums beside it. */
static __device__ __forceinline__ void outputs(const struct decode_smem *sm, const uint8_t *v_block,
					       struct decode_state *st, uint32_t warp,
					       uint32_t lane, float row_rescale)
{
	const float *p = &sm->p[lane / 4][2 * (lane % 4)];
	uint32_t base = smem_addr(v_block);
	float even = 0.0f;
	float odd = 0.0f;

#pragma unroll
	for (int k = 0; k < GPU_ATTN_BLOCK_TOKENS / 16; k++) {
		float2 lo = *(const float2 *)(p + k * 16);
		float2 hi = *(const float2 *)(p + k * 16 + 8);
		uint32_t b0 = pack_bf16(lo.x, lo.y);
		uint32_t b1 = pack_bf16(hi.x, hi.y);

		even = __fadd_rn(__fadd_rn(even, lo.x), hi.x);
		odd = __fadd_rn(__fadd_rn(odd, lo.y), hi.y);
#pragma unroll
		for (int m = 0; m < 2; m++) {
			uint32_t row = k * 16 + (lane / 16) * 8 + lane % 8;
			uint32_t chunk = warp * 4 + m * 2 + (lane / 8) % 2;
			uint32_t a[4]; // V^T[16 of d][16 tokens]

			ldmatrix_x4_trans(a, base + block_offset(row, chunk));
			mma_m16n8k16(st->out[m], a, b0, b1); // O^T[16][8]
		}
	}
	st->sum = __fmaf_rn(st->sum, row_rescale, __fadd_rn(even, odd));
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

/* One lane: four of head_dim of one row, over all splits, ascending. */
static __device__ __forceinline__ void merge_cell(const struct gpu_attn_decode_params *p,
						  const struct decode_slot *slot, uint32_t row,
						  uint32_t d)
{
	uint32_t group = p->nr_q_heads / p->kv.nr_kv_heads;
	uint32_t head = slot->kv_head * group + row;
	size_t first = (size_t)slot->first_partial * p->nr_q_heads + head;
	struct attn_total total = { ATTN_NEG_INF, 0.0f };
	float4 out = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
	uint2 packed;
	float inv;

	for (uint32_t s = 0; s < slot->nr_splits; s += MERGE_AHEAD) {
		float4 part[MERGE_AHEAD];
		float2 state[MERGE_AHEAD];

#pragma unroll
		for (int i = 0; i < MERGE_AHEAD; i++) {
			size_t at = first + (size_t)(s + i) * p->nr_q_heads;

			if (s + i < slot->nr_splits) {
				state[i] = __ldcg((const float2 *)p->partial_state + at);
				part[i] = __ldcg(
					(const float4 *)(p->partial_out + at * HEAD_DIM + d));
			}
		}
#pragma unroll
		for (int i = 0; i < MERGE_AHEAD; i++) {
			float a, b;

			if (s + i >= slot->nr_splits)
				break;
			attn_total_add(&total, state[i].x, state[i].y, &a, &b);
			out.x = attn_merge_out(out.x, a, part[i].x, b);
			out.y = attn_merge_out(out.y, a, part[i].y, b);
			out.z = attn_merge_out(out.z, a, part[i].z, b);
			out.w = attn_merge_out(out.w, a, part[i].w, b);
		}
	}
	inv = __fdiv_rn(1.0f, total.sum);
	packed.x = pack_bf16(__fmul_rn(out.x, inv), __fmul_rn(out.y, inv));
	packed.y = pack_bf16(__fmul_rn(out.z, inv), __fmul_rn(out.w, inv));
	*(uint2 *)((uint16_t *)p->out + ((size_t)slot->row * p->nr_q_heads + head) * HEAD_DIM + d) =
		packed;
}

/* The last split of a (sequence, KV head) to arrive merges; the order is the splits'. */
static __device__ __forceinline__ void finish_split(const struct gpu_attn_decode_params *p,
						    struct decode_smem *sm,
						    const struct decode_slot *slot, uint32_t thread)
{
	uint32_t group = p->nr_q_heads / p->kv.nr_kv_heads;

	/* Releases this CTA's partial results; pairs with the fence after is_last. */
	__threadfence();
	named_sync(BAR_CONSUMERS, NR_CONSUMERS);
	if (thread == 0) {
		uint32_t *arrivals = p->arrivals + slot->seq * p->kv.nr_kv_heads + slot->kv_head;

		sm->is_last = atomicAdd(arrivals, 1) == slot->nr_splits - 1;
		if (sm->is_last)
			*arrivals = 0;
		__threadfence();
	}
	named_sync(BAR_CONSUMERS, NR_CONSUMERS);
	if (!sm->is_last)
		return;
	__threadfence();
	for (uint32_t cell = thread; cell < group * (HEAD_DIM / 4); cell += NR_CONSUMERS)
		merge_cell(p, slot, cell / (HEAD_DIM / 4), cell % (HEAD_DIM / 4) * 4);
}

static __device__ __forceinline__ void consume_block(const struct gpu_attn_decode_params *p,
						     struct decode_smem *sm, struct ring *stages,
						     const uint32_t (&q)[K_STEPS][2],
						     struct decode_state *st, uint32_t nr_valid,
						     uint32_t warp, uint32_t lane)
{
	float s[2][4];
	float row_rescale;
	uint8_t *v;

	mbar_wait(&sm->full[stages->at], stages->parity);
	scores(sm->stage[stages->at], warp, lane, q, s);
	__syncwarp();
	if (lane == 0)
		mbar_arrive(&sm->empty[stages->at]);
	ring_next(stages, NR_STAGES);
	if (nr_valid < GPU_ATTN_BLOCK_TOKENS)
		mask_tail(s, warp, lane, nr_valid);
	publish_max(sm, s, warp, lane);
	named_sync(BAR_CONSUMERS, NR_CONSUMERS);
	softmax_step(sm, st, s, warp, lane, p->scale_log2, &row_rescale);
	v = sm->stage[stages->at];
	mbar_wait(&sm->full[stages->at], stages->parity);
	if (nr_valid < GPU_ATTN_BLOCK_TOKENS) {
		kv_zero_rows(v, nr_valid, warp * 32 + lane, NR_CONSUMERS);
		fence_async_smem();
	}
	named_sync(BAR_CONSUMERS, NR_CONSUMERS);
	outputs(sm, v, st, warp, lane, row_rescale);
	__syncwarp();
	if (lane == 0)
		mbar_arrive(&sm->empty[stages->at]);
	ring_next(stages, NR_STAGES);
}

static __device__ __forceinline__ void consume(const struct gpu_attn_decode_params *p,
					       struct decode_smem *sm)
{
	uint32_t thread = threadIdx.x;
	uint32_t warp = thread / 32;
	uint32_t lane = thread % 32;
	struct ring slots = { 0, 0 };
	struct ring stages = { 0, 0 };

	for (;;) {
		struct decode_state st = { { ATTN_NEG_INF, ATTN_NEG_INF }, ATTN_NEG_INF };
		struct decode_slot slot;
		uint32_t q[K_STEPS][2];

		mbar_wait(&sm->slot_full[slots.at], slots.parity);
		slot = sm->slot[slots.at];
		if (slot.nr_tokens == 0)
			return;
		load_q(sm->q[slots.at], lane, q);
		__syncwarp();
		if (lane == 0)
			mbar_arrive(&sm->slot_empty[slots.at]);
		ring_next(&slots, NR_SLOTS);
		for (uint32_t t = 0; t < slot.nr_tokens; t += GPU_ATTN_BLOCK_TOKENS)
			consume_block(p, sm, &stages, q, &st,
				      min(slot.nr_tokens - t, (uint32_t)GPU_ATTN_BLOCK_TOKENS),
				      warp, lane);
		store_partial(p, &slot, &st, warp, lane);
		finish_split(p, sm, &slot, thread);
	}
}

extern "C" __global__ void __launch_bounds__(GPU_ATTN_DECODE_THREADS, 2)
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
			mbar_init(&sm->empty[i], NR_CONSUMER_WARPS);
		}
		for (int i = 0; i < NR_SLOTS; i++) {
			mbar_init(&sm->slot_full[i], 1);
			mbar_init(&sm->slot_empty[i], NR_CONSUMER_WARPS);
		}
		mbar_init_fence();
	}
	__syncthreads();
	if (threadIdx.x < NR_CONSUMERS)
		consume(&p, sm);
	else if (threadIdx.x == NR_CONSUMERS)
		produce(&p, sm);
}
