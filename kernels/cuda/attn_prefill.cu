/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill attention, causal, bf16, head_dim 128, any number of query heads to
 * a KV head, chunks of a prompt at any position.
 *
 * Algorithm: a unit is 128 query rows of one head. A producer thread takes
 * units from a counter and loads Q, then K and V in 128-token blocks (two
 * stages each) by the copy engine. Two consumer warpgroups own 64 rows each:
 * S[64 x 128] = Q K^T by wgmma, softmax in registers, O[64 x 128] += P V with
 * P in registers. S of block n runs beside P V of block n - 1. Blocks ascend;
 * at each anchored split of 512 tokens the split's O and state are merged into
 * a running total in shared memory, in the same operations as the decode
 * kernel's merge, so that a row has the same bits in both.
 *
 * Grid 1 CTA per SM, block 3 warpgroups (producer 40 registers, consumers
 * 232), 226 KB of shared memory: Q 32, K 64, V 64, totals 64.
 * FLOPs: 4 * 128 * q_heads * sum over rows of visible tokens. Bytes: q and out
 * once, K and V once from memory if a KV head's fit L2.
 * Bound: tensor cores. Reached, 2026-11-30, H200, 32 query and 8 KV heads, of
 * 755 TFLOP/s in a GEMM of the same run: 65 % at 2k tokens, 80 % at 8k, 72 % at
 * 16k. Without the merges at split borders (other bits): 8 % faster.
 * Tried and lost: no turns between the warpgroups, 5 % slower; the merge of a
 * split beside the next block's scores, 1 % slower.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/kv_walk.cuh"
#include "kernels/cuda/mma.cuh"

enum {
	HEAD_DIM = 128,
	NR_STAGES = 2, /* of K and of V; a power of two */
	NR_SLOTS = 2,
	NR_GROUPS = 2, /* consumer warpgroups */
	GROUP_ROWS = 64,
	GROUP_THREADS = 128,
	NR_CONSUMER_WARPS = NR_GROUPS * 4,
	K_STEPS = HEAD_DIM / 16,
	P_STEPS = GPU_ATTN_BLOCK_TOKENS / 16,
	HALF_BYTES = GPU_ATTN_PREFILL_LOAD * KV_ROW_BYTES,
	BLOCK_BYTES = 2 * HALF_BYTES,
	ACC = 64, /* accumulators a thread holds of 64 x 128 */
};

enum {
	BAR_TURN = 1, /* + warpgroup: whose turn it is to issue MMAs */
	BAR_GROUP = 3, /* + warpgroup: its own threads */
};

/* What the producer tells the consumers about a unit; nr_blocks 0: no more. */
struct prefill_slot {
	uint32_t nr_blocks;
	uint32_t nr_tokens; /* written KV tokens of the sequence */
	uint32_t first_pos; /* position of the unit's first row */
	uint32_t first_row;
	uint32_t nr_rows;
	uint32_t head;
};

struct prefill_smem {
	uint8_t q[BLOCK_BYTES];
	uint8_t k[NR_STAGES][BLOCK_BYTES];
	uint8_t v[NR_STAGES][BLOCK_BYTES];
	float4 total[NR_GROUPS][ACC / 4][GROUP_THREADS]; /* each thread its own column */
	struct prefill_slot slot[NR_SLOTS];
	uint64_t q_full, q_empty;
	uint64_t k_full[NR_STAGES], k_empty[NR_STAGES];
	uint64_t v_full[NR_STAGES], v_empty[NR_STAGES];
	uint64_t slot_full[NR_SLOTS], slot_empty[NR_SLOTS];
};

static_assert(sizeof(struct prefill_smem) + 1024 <= GPU_ATTN_PREFILL_SMEM_BYTES, "shared memory");
static_assert(GPU_ATTN_PREFILL_ROWS == NR_GROUPS * GROUP_ROWS, "rows of a unit");

/* A ring of two: item n lies in stage n & 1, its pass has parity (n >> 1) & 1. */
static __device__ __forceinline__ uint32_t pass_of(uint32_t n)
{
	return (n / NR_STAGES) & 1;
}

/* ---- producer: one thread ---- */

static __device__ __forceinline__ uint32_t queue_take(struct gpu_attn_queue *queue)
{
	return gridDim.x + atomicAdd(&queue->taken, 1);
}

static __device__ __forceinline__ void queue_leave(struct gpu_attn_queue *queue)
{
	if (atomicAdd(&queue->done, 1) == gridDim.x - 1) {
		queue->taken = 0;
		queue->done = 0;
	}
}

struct loader {
	const struct gpu_attn_prefill_params *p;
	struct prefill_smem *sm;
	struct kv_walk walk;
	uint64_t policy;
	uint32_t kv_head;
	uint32_t nr_k; /* blocks loaded so far, over all units */
	uint32_t nr_v;
};

static __device__ __forceinline__ void load_k(struct loader *l, uint32_t block)
{
	const struct gpu_attn_kv *kv = &l->p->kv;
	uint32_t token = block * GPU_ATTN_BLOCK_TOKENS;
	uint32_t at = l->nr_k % NR_STAGES;
	uint64_t *full = &l->sm->k_full[at];

	kv_walk_to(&l->walk, token);
	mbar_wait(&l->sm->k_empty[at], pass_of(l->nr_k) ^ 1);
	mbar_arrive_expect(full,
			   kv_load_bytes(&l->walk, token, GPU_ATTN_PREFILL_LOAD, kv->tile_tokens));
	kv_load(&l->walk, &kv->k_block, &kv->k_tile, kv->tile_tokens, kv->k_plane + l->kv_head,
		token, GPU_ATTN_PREFILL_LOAD, l->sm->k[at], full, l->policy);
	l->nr_k++;
}

static __device__ __forceinline__ void load_v(struct loader *l, const struct kv_walk *walk,
					      uint32_t block)
{
	const struct gpu_attn_kv *kv = &l->p->kv;
	uint32_t token = block * GPU_ATTN_BLOCK_TOKENS;
	uint32_t at = l->nr_v % NR_STAGES;
	uint64_t *full = &l->sm->v_full[at];

	mbar_wait(&l->sm->v_empty[at], pass_of(l->nr_v) ^ 1);
	mbar_arrive_expect(full,
			   kv_load_bytes(walk, token, GPU_ATTN_PREFILL_LOAD, kv->tile_tokens));
	kv_load(walk, &kv->v_block, &kv->v_tile, kv->tile_tokens, kv->v_plane + l->kv_head, token,
		GPU_ATTN_PREFILL_LOAD, l->sm->v[at], full, l->policy);
	l->nr_v++;
}

/* K runs one block ahead of V, as the consumers want them. */
static __device__ __forceinline__ void load_unit(struct loader *l, uint32_t nr_blocks)
{
	struct kv_walk behind;

	load_k(l, 0);
	for (uint32_t n = 0; n < nr_blocks; n++) {
		behind = l->walk;
		if (n + 1 < nr_blocks)
			load_k(l, n + 1);
		load_v(l, &behind, n);
	}
}

static __device__ __forceinline__ void produce(const struct gpu_attn_prefill_params *p,
					       struct prefill_smem *sm)
{
	uint32_t nr_units = p->nr_units * p->nr_q_heads;
	struct loader l = { p, sm };
	uint32_t nr_taken = 0;
	uint32_t at;

	l.policy = policy_evict_last();
	for (at = blockIdx.x;; at = queue_take(p->queue), nr_taken++) {
		struct prefill_slot *slot = &sm->slot[nr_taken % NR_SLOTS];
		struct gpu_attn_unit unit;
		struct gpu_attn_seq seq;
		uint32_t head = at % p->nr_q_heads;
		uint32_t row, nr_rows, end;

		mbar_wait(&sm->slot_empty[nr_taken % NR_SLOTS], pass_of(nr_taken) ^ 1);
		if (at >= nr_units) {
			slot->nr_blocks = 0;
			mbar_arrive(&sm->slot_full[nr_taken % NR_SLOTS]);
			break;
		}
		unit = p->units[at / p->nr_q_heads];
		seq = p->seqs[unit.seq];
		row = unit.tile * GPU_ATTN_PREFILL_ROWS;
		nr_rows = min(seq.nr_rows - row, (uint32_t)GPU_ATTN_PREFILL_ROWS);
		end = seq.first_pos + row + nr_rows; /* tokens the last row sees */
		slot->nr_blocks = (end + GPU_ATTN_BLOCK_TOKENS - 1) / GPU_ATTN_BLOCK_TOKENS;
		slot->nr_tokens = seq.nr_tokens;
		slot->first_pos = seq.first_pos + row;
		slot->first_row = seq.first_row + row;
		slot->nr_rows = nr_rows;
		slot->head = head;
		mbar_arrive(&sm->slot_full[nr_taken % NR_SLOTS]);
		mbar_wait(&sm->q_empty, (nr_taken & 1) ^ 1);
		mbar_arrive_expect(&sm->q_full, BLOCK_BYTES);
		tma_load_4d(sm->q, &p->q_map, &sm->q_full, 0, seq.first_row + row, 0, head);
		l.kv_head = head / (p->nr_q_heads / p->kv.nr_kv_heads);
		l.walk.next = p->pieces + seq.first_piece + 1;
		l.walk.piece = p->pieces[seq.first_piece];
		l.walk.nr_tokens = seq.nr_tokens;
		load_unit(&l, slot->nr_blocks);
	}
	queue_leave(p->queue);
}

/* ---- consumers: two warpgroups ---- */

/* Per thread: rows r = warp * 16 + lane / 4 and r + 8 of its warpgroup's 64. */
struct prefill_rows {
	float mc[2];
	float sum[2]; /* of this lane's class of columns */
};

static __device__ __forceinline__ void issue_scores(float (&s)[ACC], uint32_t q, uint32_t k)
{
	wgmma_fence();
#pragma unroll
	for (int i = 0; i < K_STEPS; i++) {
		uint32_t at = (i / 4) * HALF_BYTES + (i % 4) * 32;

		wgmma_m64n128k16_ss(s, wgmma_desc(q + at, 0), wgmma_desc(k + at, 0),
				    i > 0); // S[64][128]
	}
	wgmma_commit();
}

static __device__ __forceinline__ void
issue_outputs(float (&o)[ACC], const uint32_t (&p)[P_STEPS * 4], uint32_t v, int accumulate)
{
	wgmma_fence();
#pragma unroll
	for (int i = 0; i < P_STEPS; i++)
		wgmma_m64n128k16_rs(o, &p[i * 4], wgmma_desc(v + i * 16 * KV_ROW_BYTES, HALF_BYTES),
				    i > 0 || accumulate); // O[64][128]
	wgmma_commit();
}

/* Column 8j + 2c + {0, 1} of rows r (s[4j], s[4j + 1]) and r + 8 (the next two). */
static __device__ __forceinline__ void mask_causal(float (&s)[ACC], uint32_t first_token,
						   uint32_t pos, uint32_t lane)
{
#pragma unroll
	for (int i = 0; i < ACC; i++) {
		uint32_t token = first_token + (i / 4) * 8 + (lane % 4) * 2 + i % 2;

		if (token > pos + (i % 4 / 2) * 8)
			s[i] = ATTN_NEG_INF;
	}
}

/* s becomes p; `rescale` is what O must be multiplied by first. */
static __device__ __forceinline__ void softmax_step(float (&s)[ACC], struct prefill_rows *rows,
						    float scale_log2, float (&rescale)[2])
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float top = ATTN_NEG_INF;
		float even = 0.0f;
		float odd = 0.0f;
		float new_mc, finite;

#pragma unroll
		for (int j = 0; j < ACC / 4; j++)
			top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
		top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
		top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
		new_mc = fmaxf(rows->mc[r], __fmul_rn(top, scale_log2));
		finite = attn_finite_mc(new_mc);
		rescale[r] = attn_rescale(rows->mc[r], finite);
		rows->mc[r] = new_mc;
#pragma unroll
		for (int j = 0; j < ACC / 4; j++) {
			float *p = &s[4 * j + 2 * r];

			p[0] = attn_prob(p[0], scale_log2, finite);
			p[1] = attn_prob(p[1], scale_log2, finite);
			even = __fadd_rn(even, p[0]);
			odd = __fadd_rn(odd, p[1]);
		}
		rows->sum[r] = __fmaf_rn(rows->sum[r], rescale[r], __fadd_rn(even, odd));
	}
}

/* Accumulator layout to A operand layout: both are pairs of columns in a lane. */
static __device__ __forceinline__ void pack_probs(const float (&s)[ACC], uint32_t (&p)[P_STEPS * 4])
{
#pragma unroll
	for (int i = 0; i < P_STEPS * 4; i++)
		p[i] = pack_bf16(s[2 * i], s[2 * i + 1]); // P[64][128]
}

/* Most blocks of a long row do not move its maximum: a factor of 1 changes no bit. */
static __device__ __forceinline__ void rescale_outputs(float (&o)[ACC], const float (&rescale)[2])
{
	if (!__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f))
		return;
#pragma unroll
	for (int i = 0; i < ACC; i++)
		o[i] = __fmul_rn(o[i], rescale[i % 4 / 2]);
}

/* A finished split joins the total; the first one only has to be kept. */
static __device__ __forceinline__ void keep_split(float4 (*total)[GROUP_THREADS],
						  struct attn_total (&state)[2],
						  const float (&o)[ACC],
						  const struct prefill_rows *rows, bool is_first)
{
	uint32_t thread = threadIdx.x % GROUP_THREADS;
	float a[2], b[2];

#pragma unroll
	for (int r = 0; r < 2; r++)
		attn_total_add(&state[r], rows->mc[r], attn_join_sum(rows->sum[r]), &a[r], &b[r]);
#pragma unroll
	for (int i = 0; i < ACC / 4; i++) {
		float4 t = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);

		if (!is_first) {
			float4 old = total[i][thread];

			t.x = attn_merge_out(old.x, a[0], t.x, b[0]);
			t.y = attn_merge_out(old.y, a[0], t.y, b[0]);
			t.z = attn_merge_out(old.z, a[1], t.z, b[1]);
			t.w = attn_merge_out(old.w, a[1], t.w, b[1]);
		}
		total[i][thread] = t;
	}
}

/* The last split: o becomes the normalised result of the row. */
static __device__ __forceinline__ void finish_rows(const float4 (*total)[GROUP_THREADS],
						   struct attn_total (&state)[2], float (&o)[ACC],
						   const struct prefill_rows *rows, bool is_first)
{
	uint32_t thread = threadIdx.x % GROUP_THREADS;
	float a[2], b[2], inv[2];

#pragma unroll
	for (int r = 0; r < 2; r++) {
		attn_total_add(&state[r], rows->mc[r], attn_join_sum(rows->sum[r]), &a[r], &b[r]);
		inv[r] = __fdiv_rn(1.0f, state[r].sum);
	}
#pragma unroll
	for (int i = 0; i < ACC / 4; i++) {
		if (!is_first) {
			float4 old = total[i][thread];

			o[4 * i] = attn_merge_out(old.x, a[0], o[4 * i], b[0]);
			o[4 * i + 1] = attn_merge_out(old.y, a[0], o[4 * i + 1], b[0]);
			o[4 * i + 2] = attn_merge_out(old.z, a[1], o[4 * i + 2], b[1]);
			o[4 * i + 3] = attn_merge_out(old.w, a[1], o[4 * i + 3], b[1]);
		}
	}
#pragma unroll
	for (int i = 0; i < ACC; i++)
		o[i] = __fmul_rn(o[i], inv[i % 4 / 2]);
}

/* Through the warpgroup's own totals area, so that rows are written 256 bytes wide. */
static __device__ __forceinline__ void store_rows(const struct gpu_attn_prefill_params *p,
						  uint8_t *stage, uint32_t group,
						  const float (&o)[ACC],
						  const struct prefill_slot *slot)
{
	uint32_t thread = threadIdx.x % GROUP_THREADS;
	uint32_t row = thread / 32 * 16 + thread % 32 / 4;
	uint32_t c = thread % 4;

	named_sync(BAR_GROUP + group, GROUP_THREADS); /* all totals have been read */
#pragma unroll
	for (int j = 0; j < ACC / 4; j++) {
		uint32_t at = row * 256 + ((j ^ (row % 8)) << 4) + c * 4; /* same for r + 8 */

		*(uint32_t *)(stage + at) = pack_bf16(o[4 * j], o[4 * j + 1]);
		*(uint32_t *)(stage + at + 8 * 256) = pack_bf16(o[4 * j + 2], o[4 * j + 3]);
	}
	named_sync(BAR_GROUP + group, GROUP_THREADS);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		uint32_t r = i * 8 + thread / 16;
		uint32_t chunk = thread % 16;
		size_t out = ((size_t)(slot->first_row + group * GROUP_ROWS + r) * p->nr_q_heads +
			      slot->head) *
				     256 +
			     chunk * 16;

		if (group * GROUP_ROWS + r < slot->nr_rows)
			*(uint4 *)((uint8_t *)p->out + out) =
				*(uint4 *)(stage + r * 256 + ((chunk ^ (r % 8)) << 4));
	}
	named_sync(BAR_GROUP + group, GROUP_THREADS); /* before the area holds totals again */
}

static __device__ __forceinline__ void release(uint64_t *bar)
{
	__syncwarp();
	if (threadIdx.x % 32 == 0)
		mbar_arrive(bar);
}

struct consumer {
	uint32_t group;
	uint32_t nr_k; /* blocks consumed so far, over all units */
	uint32_t nr_v;
};

static __device__ __forceinline__ void consume_unit(const struct gpu_attn_prefill_params *p,
						    struct prefill_smem *sm, struct consumer *me,
						    const struct prefill_slot *slot)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t group_pos = slot->first_pos + me->group * GROUP_ROWS;
	uint32_t pos = group_pos + threadIdx.x % GROUP_THREADS / 32 * 16 + lane / 4;
	uint32_t q = smem_addr(sm->q) + me->group * GROUP_ROWS * KV_ROW_BYTES;
	uint32_t k = smem_addr(sm->k[0]);
	uint32_t v = smem_addr(sm->v[0]);
	struct attn_total total[2] = { { ATTN_NEG_INF, 0.0f }, { ATTN_NEG_INF, 0.0f } };
	struct prefill_rows rows = { { ATTN_NEG_INF, ATTN_NEG_INF }, { 0.0f, 0.0f } };
	uint32_t nr_blocks = slot->nr_blocks;
	uint32_t nr_valid, at;
	float s[ACC], o[ACC];
	uint32_t probs[P_STEPS * 4];
	float rescale[2];

	mbar_wait(&sm->k_full[me->nr_k % NR_STAGES], pass_of(me->nr_k));
	issue_scores(s, q, k + me->nr_k % NR_STAGES * BLOCK_BYTES);
	wgmma_wait<0>();
	wgmma_hold(s);
	release(&sm->k_empty[me->nr_k++ % NR_STAGES]);
	if (nr_blocks == 1) {
		release(&sm->q_empty);
		mask_causal(s, 0, pos, lane);
	} else if (GPU_ATTN_BLOCK_TOKENS - 1 > group_pos) {
		mask_causal(s, 0, pos, lane);
	}
	softmax_step(s, &rows, p->scale_log2, rescale);
	pack_probs(s, probs);

	for (uint32_t n = 1; n < nr_blocks; n++) {
		bool is_new_split = n % GPU_ATTN_SPLIT_BLOCKS == 0;
		struct prefill_rows done = rows;

		mbar_wait(&sm->k_full[me->nr_k % NR_STAGES], pass_of(me->nr_k));
		named_sync(BAR_TURN + me->group, NR_GROUPS * GROUP_THREADS);
		issue_scores(s, q, k + me->nr_k % NR_STAGES * BLOCK_BYTES);
		mbar_wait(&sm->v_full[me->nr_v % NR_STAGES], pass_of(me->nr_v));
		issue_outputs(o, probs, v + me->nr_v % NR_STAGES * BLOCK_BYTES,
			      (n - 1) % GPU_ATTN_SPLIT_BLOCKS != 0);
		named_arrive(BAR_TURN + (me->group ^ 1), NR_GROUPS * GROUP_THREADS);
		wgmma_wait<1>();
		wgmma_hold(s);
		release(&sm->k_empty[me->nr_k++ % NR_STAGES]);
		if (n == nr_blocks - 1)
			release(&sm->q_empty);
		if ((n + 1) * GPU_ATTN_BLOCK_TOKENS - 1 > group_pos)
			mask_causal(s, n * GPU_ATTN_BLOCK_TOKENS, pos, lane);
		if (is_new_split) {
			rows.mc[0] = rows.mc[1] = ATTN_NEG_INF;
			rows.sum[0] = rows.sum[1] = 0.0f;
		}
		softmax_step(s, &rows, p->scale_log2, rescale);
		wgmma_wait<0>();
		wgmma_hold(o);
		release(&sm->v_empty[me->nr_v++ % NR_STAGES]);
		pack_probs(s, probs);
		if (is_new_split)
			keep_split(sm->total[me->group], total, o, &done,
				   n == GPU_ATTN_SPLIT_BLOCKS);
		else
			rescale_outputs(o, rescale);
	}

	at = me->nr_v % NR_STAGES;
	mbar_wait(&sm->v_full[at], pass_of(me->nr_v));
	nr_valid = slot->nr_tokens - (nr_blocks - 1) * GPU_ATTN_BLOCK_TOKENS;
	if (nr_valid < GPU_ATTN_BLOCK_TOKENS) {
		/* Both warpgroups write the same zeroes, each before it reads. */
		kv_zero_rows(sm->v[at], GPU_ATTN_BLOCK_TOKENS, nr_valid,
			     threadIdx.x % GROUP_THREADS, GROUP_THREADS);
		fence_async_smem();
		named_sync(BAR_GROUP + me->group, GROUP_THREADS);
	}
	issue_outputs(o, probs, v + at * BLOCK_BYTES, (nr_blocks - 1) % GPU_ATTN_SPLIT_BLOCKS != 0);
	wgmma_wait<0>();
	wgmma_hold(o);
	release(&sm->v_empty[at]);
	me->nr_v++;
	finish_rows(sm->total[me->group], total, o, &rows, nr_blocks <= GPU_ATTN_SPLIT_BLOCKS);
	store_rows(p, (uint8_t *)sm->total[me->group], me->group, o, slot);
}

static __device__ __forceinline__ void consume(const struct gpu_attn_prefill_params *p,
					       struct prefill_smem *sm)
{
	struct consumer me = { threadIdx.x / GROUP_THREADS - 1, 0, 0 };

	/* Warpgroup 0 has the first turn. */
	if (me.group == 1)
		named_arrive(BAR_TURN, NR_GROUPS * GROUP_THREADS);
	for (uint32_t nr_taken = 0;; nr_taken++) {
		struct prefill_slot slot;

		mbar_wait(&sm->slot_full[nr_taken % NR_SLOTS], pass_of(nr_taken));
		slot = sm->slot[nr_taken % NR_SLOTS];
		if (slot.nr_blocks == 0)
			break;
		mbar_wait(&sm->q_full, nr_taken & 1);
		consume_unit(p, sm, &me, &slot);
		/* Here all that was read from the slot has been used, not only asked for. */
		mbar_arrive(&sm->slot_empty[nr_taken % NR_SLOTS]);
	}
	/* Takes the turn that nobody will use. */
	if (me.group == 0)
		named_sync(BAR_TURN, NR_GROUPS * GROUP_THREADS);
}

extern "C" __global__ void __launch_bounds__(GPU_ATTN_PREFILL_THREADS, 1)
	attn_prefill_d128(const __grid_constant__ struct gpu_attn_prefill_params p)
{
	extern __shared__ uint8_t smem_raw[];
	struct prefill_smem *sm = (struct prefill_smem *)(smem_raw + (-smem_addr(smem_raw) & 1023));

	if (threadIdx.x == 0) {
		mbar_init(&sm->q_full, 1);
		mbar_init(&sm->q_empty, NR_CONSUMER_WARPS);
		for (int i = 0; i < NR_STAGES; i++) {
			mbar_init(&sm->k_full[i], 1);
			mbar_init(&sm->k_empty[i], NR_CONSUMER_WARPS);
			mbar_init(&sm->v_full[i], 1);
			mbar_init(&sm->v_empty[i], NR_CONSUMER_WARPS);
		}
		for (int i = 0; i < NR_SLOTS; i++) {
			mbar_init(&sm->slot_full[i], 1);
			mbar_init(&sm->slot_empty[i], NR_CONSUMER_WARPS * 32);
		}
		mbar_init_fence();
	}
	grid_begin();
	__syncthreads();
	if (threadIdx.x < GROUP_THREADS) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		if (threadIdx.x == 0)
			produce(&p, sm);
	} else {
		asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
		consume(&p, sm);
	}
}
