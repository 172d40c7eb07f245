/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over any plan (kernels/attn_plan.h) for heads of 64, 128 and 256,
 * bf16: decode rows, prompt chunks, windows, shared prefixes and trees alike.
 * The bits are those of attn_decode_d128 and attn_prefill_d128, which serve
 * the shapes that they know faster; attn_math.cuh has the arithmetic.
 *
 * Algorithm: a CTA takes 16 or 64 pairs (row, query head of a group) of a unit
 * and one KV head, and walks the unit's anchored splits in blocks of 128
 * tokens. Four warps: each computes the scores of 32 tokens for all pairs
 * (Q from shared memory, K row-major), the maxima meet in shared memory, P goes
 * there in float32, and each warp adds P V to a quarter of head_dim. K of the
 * next block arrives during P V, V during the scores. A row that has several
 * splits in its unit keeps its running total in memory of its own (in L2).
 *
 * Grid (units, KV heads, tiles of pairs), block 128; shared memory 48 KB (16
 * pairs, head 64) to 204 KB (64 pairs, head 256).
 * Bytes: K and V of the unit once for each tile of pairs. FLOPs as executed: 4 *
 * tokens * head_dim * pairs (rounded up to 16 or 64).
 * Bound: latency of the block's three barriers; see tests/bench/LOG.md.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/layer_params.h"
#include "kernels/cuda/mma.cuh"

enum {
	BLOCK = GPU_ATTN_ANY_BLOCK,
	P_STRIDE = GPU_ATTN_ANY_P_STRIDE,
	NR_THREADS = GPU_ATTN_ANY_THREADS,
	NR_WARPS = NR_THREADS / 32,
	WARP_TOKENS = BLOCK / NR_WARPS,
	MAX_PAIRS = 64,
};

/* Sizes of an instance; tiles is of 16 pairs. */
template <int head_dim_, int tiles_> struct any_shape {
	enum {
		HEAD_DIM = head_dim_,
		TILES = tiles_,
		PAIRS = 16 * TILES,
		ROW_BYTES = HEAD_DIM * 2 + GPU_ATTN_ANY_PAD,
		ROW_CHUNKS = HEAD_DIM / 8, /* of 16 bytes */
		WARP_DIM = HEAD_DIM / NR_WARPS,
		OUT_TILES = WARP_DIM / 8, /* MMA columns of a warp's part of O */
		SUMS = (PAIRS * 4 + NR_THREADS - 1) / NR_THREADS, /* (pair, class) of a thread */
	};
};

/* What a pair is: a row of the plan and a query head. */
struct pair_info {
	uint32_t batch_row;
	uint32_t first_key, end_key; /* equal: there is no such pair */
	uint32_t slot;
	uint32_t q_head;
};

struct any_smem {
	struct pair_info pair[MAX_PAIRS];
	float warp_max[NR_WARPS][MAX_PAIRS];
	float rescale[MAX_PAIRS]; /* of this block */
	float mc[MAX_PAIRS], sum[MAX_PAIRS]; /* of a finished split */
	float out_old[MAX_PAIRS], out_new[MAX_PAIRS]; /* factors of a fold */
	float total_mc[MAX_PAIRS], total_sum[MAX_PAIRS];
};

/* Dynamic shared memory of an instance. */
template <typename S> struct any_tiles {
	uint8_t *q, *k, *v;
	float *p;

	__device__ __forceinline__ any_tiles(uint8_t *base)
	{
		q = base;
		k = q + S::PAIRS * S::ROW_BYTES;
		v = k + BLOCK * S::ROW_BYTES;
		p = (float *)(v + BLOCK * S::ROW_BYTES);
	}
};

/* Unit at hand: its pieces, and the tokens that some row may see. */
struct any_unit {
	const struct attn_piece *pieces;
	uint32_t nr_pieces;
	uint32_t first_token, end_token;
	uint32_t first_split, nr_splits;
};

/* 16 bytes, or zeros where there is no source. */
static __device__ __forceinline__ void copy_async(uint32_t dst, const void *src, bool is_there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
		     "r"(is_there ? 16 : 0)
		     : "memory");
}

static __device__ __forceinline__ void copy_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int pending> static __device__ __forceinline__ void copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- loads ---- */

template <typename S>
static __device__ __forceinline__ void find_pairs(const struct gpu_attn_any_params *p,
						  const struct attn_unit *unit, struct any_smem *sm)
{
	uint32_t group = p->nr_q_heads / p->nr_kv_heads;

	for (uint32_t i = threadIdx.x; i < S::PAIRS; i += NR_THREADS) {
		uint32_t pair = blockIdx.z * S::PAIRS + i;
		struct pair_info info = {};

		if (pair < unit->nr_rows * group) {
			struct attn_row row = p->rows[unit->first_row + pair / group];

			info.batch_row = row.batch_row;
			info.first_key = row.first_key;
			info.end_key = row.end_key;
			info.slot = row.slot;
			info.q_head = blockIdx.y * group + pair % group;
		}
		sm->pair[i] = info;
		sm->total_mc[i] = ATTN_NEG_INF;
		sm->total_sum[i] = 0.0f;
	}
}

template <typename S>
static __device__ __forceinline__ void load_q(const struct gpu_attn_any_params *p,
					      const struct any_smem *sm, uint8_t *q)
{
	for (uint32_t i = threadIdx.x; i < S::PAIRS * S::ROW_CHUNKS; i += NR_THREADS) {
		const struct pair_info *pair = &sm->pair[i / S::ROW_CHUNKS];
		uint32_t chunk = i % S::ROW_CHUNKS;
		const uint8_t *from =
			(const uint8_t *)p->q +
			((size_t)pair->batch_row * p->nr_q_heads + pair->q_head) * S::HEAD_DIM * 2;

		copy_async(smem_addr(q + i / S::ROW_CHUNKS * S::ROW_BYTES + chunk * 16),
			   from + chunk * 16, pair->end_key > pair->first_key);
	}
}

/*
 * K or V of the block at `token`: rows that no pair may see are zero. Each thread walks the pieces
 * for the rows it copies, which ascend.
 */
template <typename S>
static __device__ __forceinline__ void load_rows(const struct gpu_attn_any_params *p,
						 const struct any_unit *unit, uint32_t token,
						 uint64_t offset, uint8_t *dst)
{
	uint32_t at = 0;
	struct attn_piece piece = unit->pieces[0];

	for (uint32_t i = threadIdx.x; i < BLOCK * S::ROW_CHUNKS; i += NR_THREADS) {
		uint32_t t = token + i / S::ROW_CHUNKS;
		uint32_t chunk = i % S::ROW_CHUNKS;
		bool is_there = t >= unit->first_token && t < unit->end_token;
		const uint8_t *from = piece.base;

		if (is_there) {
			uint32_t ahead;

			while (t >= piece.end_token && at + 1 < unit->nr_pieces)
				piece = unit->pieces[++at];
			ahead = t - piece.base_token;
			from = piece.base + (uint64_t)(ahead / p->tile_tokens) * p->stride_bytes +
			       offset + (uint64_t)(ahead % p->tile_tokens) * (S::HEAD_DIM * 2) +
			       chunk * 16;
		}
		copy_async(smem_addr(dst + i / S::ROW_CHUNKS * S::ROW_BYTES + chunk * 16), from,
			   is_there);
	}
	copy_commit();
}

/* ---- a block ---- */

/* Per lane: g = lane / 4, c = lane % 4; pairs g and g + 8 of each tile of 16. */
template <typename S> struct any_state {
	float mc[S::TILES][2];
	float sum[S::SUMS]; /* of (pair, class) number thread + NR_THREADS i */
	float out[S::TILES][S::OUT_TILES][4];
};

/* s[tile][n][4]: pairs g, g, g + 8, g + 8; tokens 8 n + 2c, + 1 of the warp's 32. */
template <typename S>
static __device__ __forceinline__ void scores(const uint8_t *q, const uint8_t *k, uint32_t warp,
					      uint32_t lane, float (&s)[S::TILES][4][4])
{
	uint32_t q_at = smem_addr(q) + lane % 16 * S::ROW_BYTES + lane / 16 * 16;
	uint32_t k_at = smem_addr(k) +
			(warp * WARP_TOKENS + lane / 16 * 8 + lane % 8) * S::ROW_BYTES +
			lane / 8 % 2 * 16;

#pragma unroll
	for (int m = 0; m < S::TILES; m++)
#pragma unroll
		for (int n = 0; n < 4; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				s[m][n][i] = 0.0f;
#pragma unroll 4
	for (int step = 0; step < S::HEAD_DIM / 16; step++) {
		uint32_t b[2][4]; // K[16 tokens][16 of d], twice

		ldmatrix_x4(b[0], k_at + step * 32);
		ldmatrix_x4(b[1], k_at + 16 * S::ROW_BYTES + step * 32);
#pragma unroll
		for (int m = 0; m < S::TILES; m++) {
			uint32_t a[4]; // Q[16 pairs][16 of d]

			ldmatrix_x4(a, q_at + m * 16 * S::ROW_BYTES + step * 32);
#pragma unroll
			for (int n = 0; n < 4; n++)
				mma_m16n8k16(s[m][n], a, b[n / 2][n % 2 * 2],
					     b[n / 2][n % 2 * 2 + 1]);
		}
	}
}

/* Masks what a pair does not see, and leaves its maximum over the warp's tokens. */
template <typename S>
static __device__ __forceinline__ void mask_and_max(struct any_smem *sm, uint32_t token,
						    uint32_t warp, uint32_t lane,
						    float (&s)[S::TILES][4][4])
{
	uint32_t first = token + warp * WARP_TOKENS + lane % 4 * 2;

#pragma unroll
	for (int m = 0; m < S::TILES; m++) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			uint32_t at = m * 16 + r * 8 + lane / 4;
			uint32_t first_key = sm->pair[at].first_key;
			uint32_t end_key = sm->pair[at].end_key;
			float top = ATTN_NEG_INF;

#pragma unroll
			for (int n = 0; n < 4; n++) {
#pragma unroll
				for (int i = 0; i < 2; i++) {
					uint32_t t = first + n * 8 + i;
					float *v = &s[m][n][2 * r + i];

					if (t < first_key || t >= end_key)
						*v = ATTN_NEG_INF;
					top = fmaxf(top, *v);
				}
			}
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
			if (lane % 4 == 0)
				sm->warp_max[warp][at] = top;
		}
	}
}

/* After the maxima are there: P to shared memory, O rescaled. */
template <typename S>
static __device__ __forceinline__ void
softmax_step(struct any_smem *sm, float *p_out, struct any_state<S> *st, float scale_log2,
	     uint32_t warp, uint32_t lane, const float (&s)[S::TILES][4][4])
{
#pragma unroll
	for (int m = 0; m < S::TILES; m++) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			uint32_t at = m * 16 + r * 8 + lane / 4;
			float *row = p_out + at * P_STRIDE + warp * WARP_TOKENS + lane % 4 * 2;
			float top = sm->warp_max[0][at];
			float new_mc, finite, rescale;

#pragma unroll
			for (int w = 1; w < NR_WARPS; w++)
				top = fmaxf(top, sm->warp_max[w][at]);
			new_mc = fmaxf(st->mc[m][r], __fmul_rn(top, scale_log2));
			finite = attn_finite_mc(new_mc);
			rescale = attn_rescale(st->mc[m][r], finite);
			st->mc[m][r] = new_mc;
			if (warp == 0 && lane % 4 == 0)
				sm->rescale[at] = rescale;
#pragma unroll
			for (int n = 0; n < 4; n++)
				*(float2 *)(row + n * 8) = make_float2(
					attn_prob(s[m][n][2 * r], scale_log2, finite),
					attn_prob(s[m][n][2 * r + 1], scale_log2, finite));
#pragma unroll
			for (int n = 0; n < S::OUT_TILES; n++)
#pragma unroll
				for (int i = 0; i < 2; i++)
					st->out[m][n][2 * r + i] =
						__fmul_rn(st->out[m][n][2 * r + i], rescale);
		}
	}
}

/* Row sums by class of columns, in ascending order. */
template <typename S>
static __device__ __forceinline__ void add_sums(const struct any_smem *sm, const float *p,
						struct any_state<S> *st)
{
#pragma unroll
	for (int i = 0; i < S::SUMS; i++) {
		uint32_t n = threadIdx.x + i * NR_THREADS;
		const float *row = p + n / 4 * P_STRIDE + n % 4 * 2;
		float even = 0.0f, odd = 0.0f;

		if (n >= S::PAIRS * 4)
			break;
#pragma unroll
		for (int j = 0; j < BLOCK / 8; j++) {
			float2 v = *(const float2 *)(row + j * 8);

			even = __fadd_rn(even, v.x);
			odd = __fadd_rn(odd, v.y);
		}
		st->sum[i] = __fmaf_rn(st->sum[i], sm->rescale[n / 4], __fadd_rn(even, odd));
	}
}

/* O += P V for head_dim [warp * WARP_DIM, + WARP_DIM). */
template <typename S>
static __device__ __forceinline__ void
outputs(const float *p, const uint8_t *v, struct any_state<S> *st, uint32_t warp, uint32_t lane)
{
	uint32_t v_at = smem_addr(v) + (lane / 8 % 2 * 8 + lane % 8) * S::ROW_BYTES +
			warp * S::WARP_DIM * 2 + lane / 16 * 16;
	const float *rows = p + lane / 4 * P_STRIDE + lane % 4 * 2;

#pragma unroll 2
	for (int step = 0; step < BLOCK / 16; step++) {
		uint32_t a[S::TILES][4]; // P[16 pairs][16 tokens]

#pragma unroll
		for (int m = 0; m < S::TILES; m++) {
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float2 pv =
					*(const float2 *)(rows + (m * 16 + i % 2 * 8) * P_STRIDE +
							  step * 16 + i / 2 * 8);

				a[m][i] = pack_bf16(pv.x, pv.y);
			}
		}
#pragma unroll
		for (int n = 0; n < S::OUT_TILES; n += 2) {
			uint32_t b[4]; // V[16 tokens][16 of d]

			ldmatrix_x4_trans(b, v_at + step * 16 * S::ROW_BYTES + n * 16);
#pragma unroll
			for (int m = 0; m < S::TILES; m++) {
				mma_m16n8k16(st->out[m][n], a[m], b[0], b[1]);
				mma_m16n8k16(st->out[m][n + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* ---- a split ---- */

/* States of a finished split into shared memory, and what folding it takes. */
template <typename S>
static __device__ __forceinline__ void
finish_states(struct any_smem *sm, const struct any_state<S> *st, uint32_t warp, uint32_t lane)
{
#pragma unroll
	for (int i = 0; i < S::SUMS; i++) {
		uint32_t n = threadIdx.x + i * NR_THREADS;
		float sum = attn_join_sum(st->sum[i]);

		if (n < S::PAIRS * 4 && n % 4 == 0)
			sm->sum[n / 4] = sum;
	}
	if (warp == 0 && lane % 4 == 0) {
#pragma unroll
		for (int m = 0; m < S::TILES; m++)
#pragma unroll
			for (int r = 0; r < 2; r++)
				sm->mc[m * 16 + r * 8 + lane / 4] = st->mc[m][r];
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < S::PAIRS; i += NR_THREADS) {
		struct attn_total total = { sm->total_mc[i], sm->total_sum[i] };

		/* A split of which the row sees nothing is no split of that row. */
		if (sm->mc[i] == ATTN_NEG_INF) {
			sm->out_old[i] = 1.0f;
			sm->out_new[i] = 0.0f;
			continue;
		}
		attn_total_add(&total, sm->mc[i], sm->sum[i], &sm->out_old[i], &sm->out_new[i]);
		sm->total_mc[i] = total.mc;
		sm->total_sum[i] = total.sum;
	}
	__syncthreads();
}

/* Where a pair's O goes: a slot, the result, or the running total of its row. */
template <typename S>
static __device__ __forceinline__ void
store_split(const struct gpu_attn_any_params *p, struct any_smem *sm, struct any_state<S> *st,
	    bool is_first, bool is_last, uint32_t warp, uint32_t lane)
{
#pragma unroll
	for (int m = 0; m < S::TILES; m++) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			uint32_t at = m * 16 + r * 8 + lane / 4;
			struct pair_info pair = sm->pair[at];
			uint32_t d = warp * S::WARP_DIM + lane % 4 * 2;
			size_t row = (size_t)pair.batch_row * p->nr_q_heads + pair.q_head;
			size_t slot = (size_t)pair.slot * p->nr_q_heads + pair.q_head;
			float inv;

			if (pair.end_key <= pair.first_key)
				continue;
			if (pair.slot != ATTN_SLOT_DIRECT) {
				if (warp == 0 && lane % 4 == 0)
					*(float2 *)(p->partial_state + slot * 2) =
						make_float2(sm->mc[at], sm->sum[at]);
#pragma unroll
				for (int n = 0; n < S::OUT_TILES; n++)
					*(float2 *)(p->partial_out + slot * S::HEAD_DIM + d +
						    n * 8) = make_float2(st->out[m][n][2 * r],
									 st->out[m][n][2 * r + 1]);
				continue;
			}
			inv = __fdiv_rn(1.0f, sm->total_sum[at]);
#pragma unroll
			for (int n = 0; n < S::OUT_TILES; n++) {
				float2 *total =
					(float2 *)(p->totals + row * S::HEAD_DIM + d + n * 8);
				float2 old = is_first ? make_float2(0.0f, 0.0f) : *total;

				old.x = attn_merge_out(old.x, sm->out_old[at], st->out[m][n][2 * r],
						       sm->out_new[at]);
				old.y = attn_merge_out(old.y, sm->out_old[at],
						       st->out[m][n][2 * r + 1], sm->out_new[at]);
				if (!is_last)
					*total = old;
				else
					*(uint32_t *)((uint16_t *)p->out + row * S::HEAD_DIM + d +
						      n * 8) = pack_bf16(__fmul_rn(old.x, inv),
									 __fmul_rn(old.y, inv));
			}
		}
	}
}

/* K of the split's first block is on its way. */
template <typename S>
static __device__ __forceinline__ void
run_block(const struct gpu_attn_any_params *p, const struct any_unit *unit, struct any_smem *sm,
	  const struct any_tiles<S> *tiles, struct any_state<S> *st, uint32_t token,
	  uint32_t next_token, uint64_t k_offset, uint64_t v_offset)
{
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	float s[S::TILES][4][4];

	load_rows<S>(p, unit, token, v_offset, tiles->v);
	copy_wait<1>();
	__syncthreads();
	scores<S>(tiles->q, tiles->k, warp, lane, s);
	mask_and_max<S>(sm, token, warp, lane, s);
	__syncthreads();
	if (next_token)
		load_rows<S>(p, unit, next_token, k_offset, tiles->k);
	softmax_step<S>(sm, tiles->p, st, p->scale_log2, warp, lane, s);
	if (next_token)
		copy_wait<1>();
	else
		copy_wait<0>();
	__syncthreads();
	add_sums<S>(sm, tiles->p, st);
	outputs<S>(tiles->p, tiles->v, st, warp, lane);
	__syncthreads();
}

template <typename S> static __device__ __forceinline__ void state_init(struct any_state<S> *st)
{
#pragma unroll
	for (int m = 0; m < S::TILES; m++) {
		st->mc[m][0] = st->mc[m][1] = ATTN_NEG_INF;
#pragma unroll
		for (int n = 0; n < S::OUT_TILES; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				st->out[m][n][i] = 0.0f;
	}
#pragma unroll
	for (int i = 0; i < S::SUMS; i++)
		st->sum[i] = 0.0f;
}

template <typename S>
static __device__ __forceinline__ void attend(const struct gpu_attn_any_params *p)
{
	extern __shared__ __align__(16) uint8_t dynamic[];
	__shared__ struct any_smem sm;
	struct any_tiles<S> tiles(dynamic);
	struct attn_unit plan;
	uint32_t group = p->nr_q_heads / p->nr_kv_heads;
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	uint64_t k_offset = p->k_offset + blockIdx.y * p->head_bytes;
	uint64_t v_offset = p->v_offset + blockIdx.y * p->head_bytes;
	struct any_unit unit;
	struct any_state<S> st;
	bool is_first = true;

	grid_begin();
	if (blockIdx.x >= p->counts->nr_units)
		return;
	plan = p->units[blockIdx.x];
	if (blockIdx.z * S::PAIRS >= plan.nr_rows * group)
		return;
	unit.pieces = p->pieces + plan.first_piece;
	unit.nr_pieces = plan.nr_pieces;
	unit.first_token = unit.pieces[0].first_token;
	unit.end_token = unit.pieces[plan.nr_pieces - 1].end_token;
	find_pairs<S>(p, &plan, &sm);
	__syncthreads();
	load_q<S>(p, &sm, tiles.q);
	for (uint32_t split = plan.first_split; split < plan.first_split + plan.nr_splits;
	     split++) {
		uint32_t start = split * ATTN_SPLIT_TOKENS;
		uint32_t end = min(start + ATTN_SPLIT_TOKENS, unit.end_token);
		uint32_t token = max(start, unit.first_token / BLOCK * BLOCK);

		state_init<S>(&st);
		load_rows<S>(p, &unit, token, k_offset, tiles.k);
		for (; token < end; token += BLOCK)
			run_block<S>(p, &unit, &sm, &tiles, &st, token,
				     token + BLOCK < end ? token + BLOCK : 0, k_offset, v_offset);
		finish_states<S>(&sm, &st, warp, lane);
		store_split<S>(p, &sm, &st, is_first,
			       split + 1 == plan.first_split + plan.nr_splits, warp, lane);
		is_first = false;
		__syncthreads();
	}
}

#define INSTANCE(dim, tiles, pairs)                                                             \
	extern "C" __global__ void __launch_bounds__(NR_THREADS)                                \
		attn_any_##dim##_m##pairs(const __grid_constant__ struct gpu_attn_any_params p) \
	{                                                                                       \
		attend<any_shape<dim, tiles>>(&p);                                              \
	}

INSTANCE(64, 1, 16)
INSTANCE(64, 4, 64)
INSTANCE(128, 1, 16)
INSTANCE(128, 4, 64)
INSTANCE(256, 1, 16)
INSTANCE(256, 4, 64)

/* Finished splits of a row, in ascending order; a thread one of head_dim. */
extern "C" __global__ void attn_any_merge(const __grid_constant__ struct gpu_attn_any_params p)
{
	struct attn_merge merge;
	struct attn_total total = { ATTN_NEG_INF, 0.0f };
	size_t row;
	uint32_t d = threadIdx.x;
	float out = 0.0f, hi;

	grid_begin();
	if (blockIdx.x >= p.counts->nr_merges)
		return;
	merge = p.merges[blockIdx.x];
	row = (size_t)merge.batch_row * p.nr_q_heads + blockIdx.y;
	for (uint32_t i = 0; i < merge.nr_slots; i++) {
		size_t slot = (size_t)(merge.first_slot + i) * p.nr_q_heads + blockIdx.y;
		float2 state = *(const float2 *)(p.partial_state + slot * 2);
		float a, b;

		attn_total_add(&total, state.x, state.y, &a, &b);
		out = attn_merge_out(out, a, p.partial_out[slot * blockDim.x + d], b);
	}
	out = __fmul_rn(out, __fdiv_rn(1.0f, total.sum));
	hi = __shfl_down_sync(0xffffffffu, out, 1);
	if (d % 2 == 0)
		*(uint32_t *)((uint16_t *)p.out + row * blockDim.x + d) = pack_bf16(out, hi);
}
