/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear kernels' common body: packed weights streamed once, up to 64
 * tokens beside them. linear_bf16.cu and linear_quant.cu make its instances
 * and say what they reach.
 *
 * A CTA owns up to 7 or 8 groups of 16 weight rows at a time, over one span of
 * K. A producer warp streams the groups' tiles, and the same k of x, through a
 * ring in shared memory by the copy engine, 128 k a stage. A consumer warp
 * computes one group: D[16 rows][tokens] by MMAs whose 16-row operand is the
 * weights, mma.sync up to 32 tokens, wgmma for 64 (four groups together, the
 * weights from registers). With two streams a stage holds the same step of the
 * span's two chunks, and a group has two warps; with one, a group has one warp,
 * which takes the chunks one after the other. The CTAs of a cluster have the
 * spans of the same rows; they fold through distributed shared memory. Tiles of
 * tokens beyond the first are further CTAs (grid y), so any M is computed, but
 * beyond 64 the weights are read again for each tile.
 *
 * What makes a row's bits: per chunk (gpu_linear_cut_get, by the matrix alone)
 *   BF16    one chain of k16 MMAs from 0, ascending
 *   others  per block (32 k; Q6_K: 16 k) part = its MMAs from 0, ascending;
 *           acc = fma(scale, part, acc); with minimum: acc = fma(min, sum of
 *           the block's x as linear_sums makes it, acc)
 * then chunks to spans, spans to the output, from the left, and one rounding to
 * bf16. M, the tokens of an instance, streams, grid and ring take no part.
 */
#ifndef TARN_KERNELS_CUDA_LINEAR_FLAT_CUH
#define TARN_KERNELS_CUDA_LINEAR_FLAT_CUH

#include "kernels/cuda/linear_formats.cuh"
#include "kernels/cuda/linear_ring.cuh"
#include "kernels/cuda/mma.cuh"

enum {
	X_ROW_BYTES = 128, /* 64 k of one token, swizzled */
	BAR_CONSUMERS = 1,
};

/* Sizes of one instance. */
template <typename F, int tokens_, int streams_> struct flat {
	typedef F format;
	enum {
		TOKENS = tokens_,
		STREAMS = streams_,
		NT = TOKENS / 8,
		MAX_GROUPS = STREAMS == 1 ? 8 : 7,
		NR_WARPS = MAX_GROUPS * STREAMS, /* consumers; the producer warp is behind them */
		NR_CONSUMERS = NR_WARPS * 32,
		NR_THREADS = NR_CONSUMERS + 32,
		BLOCKS = GPU_LINEAR_TILE_K / 32, /* of a stream in a stage */
		SUMS_BYTES = F::HAS_MIN * BLOCKS * TOKENS * 4, /* of a stream */
		COPIES = 1 + F::HAS_MIN, /* plain ones, of a stream in a stage */
		X_PART_BYTES = TOKENS * X_ROW_BYTES,
		X_STREAM_BYTES = 2 * X_PART_BYTES,
		X_BYTES = STREAMS * X_STREAM_BYTES,
		/* Floats per token: 2 tokens 8 banks apart make the stores conflict-free. */
		FOLD_STRIDE = MAX_GROUPS * 16 + 4,
		FOLD_FLOATS = TOKENS * FOLD_STRIDE, /* of a chunk */
		STREAM_CHUNKS = GPU_LINEAR_CHUNKS / STREAMS,
	};
	static_assert(X_PART_BYTES % 1024 == 0, "the swizzle repeats every 1024 bytes");
	static_assert(F::TILE_BYTES % 16 == 0, "bulk copies");
	static_assert(GPU_LINEAR_CHUNK_UNIT % GPU_LINEAR_TILE_K == 0, "stages end with chunks");
};

/* This CTA's work: groups of 16 rows over one span of K. */
struct work {
	uint32_t first_group, nr_groups;
	uint32_t nr_passes; /* of up to cta_groups each */
	uint32_t first_k, end_k;
	uint32_t nr_stages; /* of one pass */
	uint32_t first_token;
};

/* In shared memory, so that it takes no registers: they are short with 29 warps. */
struct cta {
	uint64_t full[GPU_LINEAR_MAX_STAGES];
	uint64_t empty[GPU_LINEAR_MAX_STAGES];
	struct work work;
};

/*
 * Dynamic shared memory, from a multiple of 1024 on:
 *   x     [stage][stream][2][token][128 bytes]
 *   w     [stage][stream][cta_groups] tiles
 *   sums  float [stage][stream][block][token], formats with a minimum
 *   fold  float [chunk, or the only stream][token][FOLD_STRIDE]
 */
static __device__ __forceinline__ uint8_t *smem_base(void)
{
	extern __shared__ uint8_t smem_raw[];

	return smem_raw + (-smem_addr(smem_raw) & 1023);
}

template <typename S> static __device__ __forceinline__ uint8_t *ring_x(uint32_t slot)
{
	return smem_base() + slot * S::X_BYTES;
}

template <typename S>
static __device__ __forceinline__ uint8_t *ring_w(const struct gpu_linear_params *p, uint32_t slot)
{
	return smem_base() + p->nr_stages * S::X_BYTES +
	       slot * p->cta_groups * (S::STREAMS * S::format::TILE_BYTES);
}

template <typename S>
static __device__ __forceinline__ float *ring_sums(const struct gpu_linear_params *p, uint32_t slot)
{
	return (float *)(ring_w<S>(p, p->nr_stages) + slot * (S::STREAMS * S::SUMS_BYTES));
}

template <typename S>
static __device__ __forceinline__ float *fold_of(const struct gpu_linear_params *p)
{
	return ring_sums<S>(p, p->nr_stages);
}

/* A place in the ring. */
struct cursor {
	uint32_t slot;
	uint32_t parity;
};

static __device__ __forceinline__ void advance(struct cursor *at, uint32_t nr_stages)
{
	if (++at->slot == nr_stages) {
		at->slot = 0;
		at->parity ^= 1;
	}
}

/* First k of a stream: it takes STREAM_CHUNKS chunks one after the other, the only one all. */
template <typename S>
static __device__ __forceinline__ uint32_t stream_first(const struct gpu_linear_params *p,
							const struct work *w, uint32_t stream)
{
	return w->first_k + stream * S::STREAM_CHUNKS * p->cut.chunk_k;
}

/* How much k it takes; 0: the span is too short for this stream. */
template <typename S>
static __device__ __forceinline__ uint32_t stream_cols(const struct gpu_linear_params *p,
						       const struct work *w, uint32_t stream)
{
	uint32_t first = stream_first<S>(p, w, stream);

	if (S::STREAMS == 1)
		return w->end_k - first;
	return first < w->end_k ? min(w->end_k - first, S::STREAM_CHUNKS * p->cut.chunk_k) : 0;
}

/* Clusters share the groups evenly; so do passes. */
template <typename S>
static __device__ __forceinline__ void find_work(const struct gpu_linear_params *p, struct work *w)
{
	uint32_t nr_groups = (p->nr_rows + 15) / 16;
	uint32_t nr_clusters = gridDim.x / cluster_size();
	uint32_t at = blockIdx.x / cluster_size();

	w->first_group = nr_groups * at / nr_clusters;
	w->nr_groups = nr_groups * (at + 1) / nr_clusters - w->first_group;
	w->nr_passes = (w->nr_groups + p->cta_groups - 1) / p->cta_groups;
	w->first_k = cluster_rank() * p->cut.span_k;
	w->end_k = min(w->first_k + p->cut.span_k, p->nr_cols);
	w->nr_stages = (stream_cols<S>(p, w, 0) + GPU_LINEAR_TILE_K - 1) / GPU_LINEAR_TILE_K;
	w->first_token = blockIdx.y * S::TOKENS;
}

static __device__ __forceinline__ uint32_t pass_first(const struct work *w, uint32_t pass)
{
	return w->first_group + w->nr_groups * pass / w->nr_passes;
}

/* ---- producer: one warp, a lane for each stream ---- */

/* A stage: which pass and which 128 k of every stream; slot of the ring. */
struct stage {
	uint32_t pass;
	uint32_t tile;
	uint32_t slot;
	uint32_t parity; /* of the slot's last release */
};

static __device__ __forceinline__ void next_stage(const struct gpu_linear_params *p,
						  const struct work *w, struct stage *at)
{
	if (++at->slot == p->nr_stages) {
		at->slot = 0;
		at->parity ^= 1;
	}
	if (++at->tile == w->nr_stages) {
		at->tile = 0;
		at->pass++;
	}
}

/* The lane's stream: tiles from the matrix's first on. */
struct lane_stream {
	uint32_t lane;
	uint32_t first_tile;
	uint32_t nr_tiles; /* 0: none */
};

/* Announces all bytes of the stage, x included. */
template <typename S>
static __device__ __forceinline__ void load_w(const struct gpu_linear_params *p, struct cta *cta,
					      const struct stage *at, const struct lane_stream *my,
					      uint64_t policy)
{
	uint32_t nr_groups = (p->nr_rows + 15) / 16;
	uint32_t first = pass_first(&cta->work, at->pass);
	uint32_t nr_bytes =
		(pass_first(&cta->work, at->pass + 1) - first) * S::format::TILE_BYTES;
	bool is_live = at->tile < my->nr_tiles;
	uint32_t nr_live = __popc(__ballot_sync(~0u, is_live));
	size_t from = ((size_t)(my->first_tile + at->tile) * nr_groups + first) *
		      S::format::TILE_BYTES;

	if (my->lane == 0)
		mbar_arrive_expect(&cta->full[at->slot],
				   nr_live * (ring_bytes(nr_bytes + S::SUMS_BYTES) +
					      S::X_STREAM_BYTES));
	__syncwarp();
	if (is_live)
		ring_copy_hint(ring_w<S>(p, at->slot) +
				       my->lane * p->cta_groups * S::format::TILE_BYTES,
			       (const uint8_t *)p->weights + from, nr_bytes, &cta->full[at->slot],
			       policy);
	ring_copied(&cta->full[at->slot]);
}

template <typename S>
static __device__ __forceinline__ void load_x(const struct gpu_linear_params *p, struct cta *cta,
					      const struct stage *at, const struct lane_stream *my,
					      uint64_t policy)
{
	uint32_t tile = my->first_tile + at->tile;

	if (at->tile < my->nr_tiles) {
		tma_load_3d(ring_x<S>(at->slot) + my->lane * S::X_STREAM_BYTES, &p->x_map,
			    &cta->full[at->slot], 0, cta->work.first_token, tile * 2, policy);
		if (S::format::HAS_MIN) {
			uint32_t nr_tiles =
				(p->nr_cols + GPU_LINEAR_TILE_K - 1) / GPU_LINEAR_TILE_K;

			ring_copy(ring_sums<S>(p, at->slot) + my->lane * S::BLOCKS * S::TOKENS,
				  p->x_sums + ((size_t)blockIdx.y * nr_tiles + tile) *
						      (S::BLOCKS * S::TOKENS),
				  S::SUMS_BYTES, &cta->full[at->slot]);
		}
	}
	if (S::format::HAS_MIN)
		ring_copied(&cta->full[at->slot]);
}

/* The whole producer warp: what it is about to ask for. */
struct producer {
	struct lane_stream my;
	struct stage at;
	uint64_t w_policy, x_policy;
	uint32_t nr_first; /* stages asked for by produce_first() */
};

/*
 * The first stages, before the CTA's first barrier: nobody waits for it
 * to begin. Weights depend on no kernel: with overlapped launches they are asked
 * for before the kernel in front has ended, x after it. A lane has one copy of
 * weights and one of x a stage: one thread for all could not ask fast enough
 * (4-bit weights at M = 1: 23 us instead of 13).
 */
template <typename S>
static __device__ __forceinline__ void produce_first(const struct gpu_linear_params *p,
						     struct cta *cta, struct producer *pr)
{
	const struct work *w = &cta->work;
	struct stage at = { 0, 0, 0, 1 };

	pr->my.lane = threadIdx.x % 32;
	pr->my.first_tile = stream_first<S>(p, w, pr->my.lane) / GPU_LINEAR_TILE_K;
	pr->my.nr_tiles = 0;
	if (pr->my.lane < S::STREAMS)
		pr->my.nr_tiles = (stream_cols<S>(p, w, pr->my.lane) + GPU_LINEAR_TILE_K - 1) /
				  GPU_LINEAR_TILE_K;
	pr->w_policy = policy_evict_first();
	pr->x_policy = policy_evict_last();
	pr->at = at;
	/* Where x comes at once, more than two would keep the consumers waiting for the barrier. */
	pr->nr_first = min(p->is_overlapped ? p->nr_stages : 2, w->nr_passes * w->nr_stages);
	for (uint32_t n = 0; n < pr->nr_first; n++) {
		load_w<S>(p, cta, &at, &pr->my, pr->w_policy);
		if (!p->is_overlapped)
			load_x<S>(p, cta, &at, &pr->my, pr->x_policy);
		next_stage(p, w, &at);
	}
	if (!p->is_overlapped)
		pr->at = at;
}

template <typename S>
static __device__ __forceinline__ void produce(const struct gpu_linear_params *p, struct cta *cta,
					       struct producer *pr)
{
	const struct work *w = &cta->work;
	uint32_t nr_total = w->nr_passes * w->nr_stages;

	grid_launch_next();
	if (p->is_overlapped) {
		grid_wait();
		for (uint32_t n = 0; n < pr->nr_first; n++) {
			load_x<S>(p, cta, &pr->at, &pr->my, pr->x_policy);
			next_stage(p, w, &pr->at);
		}
	}
	for (uint32_t n = pr->nr_first; n < nr_total; n++) {
		mbar_wait(&cta->empty[pr->at.slot], pr->at.parity);
		load_w<S>(p, cta, &pr->at, &pr->my, pr->w_policy);
		load_x<S>(p, cta, &pr->at, &pr->my, pr->x_policy);
		next_stage(p, w, &pr->at);
	}
}

/* ---- consumers ---- */

/*
 * Gives a stage back. The arrival depends on the MMAs that read it, because it
 * would else overtake the loads that fed them (see attn_decode.cu); no MMA or
 * multiply-add yields that pattern. One arrival a warp; the wgmma kernels, which
 * have few warps, arrive by threads, whose order racecheck can follow there too.
 */
template <int NT, bool is_wgmma>
static __device__ __forceinline__ void release_after(uint64_t *bar, uint32_t lane,
						     const float (&acc)[NT][4])
{
	uint32_t all = ~0u;

#pragma unroll
	for (int n = 0; n < NT; n++)
		all &= __float_as_uint(acc[n][0]);
	if ((is_wgmma || ring_elect(lane)) && all != 0xffffdead)
		mbar_arrive(bar);
}

static __device__ __forceinline__ uint32_t x_offset(uint32_t token, uint32_t chunk)
{
	return token * X_ROW_BYTES + (chunk ^ token % 8) * 16;
}

/* acc += scale * part, the four elements of one 16 x 8 tile. */
static __device__ __forceinline__ void add_scaled(float *acc, const float *part,
						  const float (&scale)[2])
{
#pragma unroll
	for (int e = 0; e < 4; e++)
		acc[e] = __fmaf_rn(scale[e / 2], part[e], acc[e]);
}

/* acc += min * (sum of the block's x), per row and token. */
static __device__ __forceinline__ void add_min(float *acc, const float (&m)[2], float2 sum)
{
	acc[0] = __fmaf_rn(m[0], sum.x, acc[0]);
	acc[1] = __fmaf_rn(m[0], sum.y, acc[1]);
	acc[2] = __fmaf_rn(m[1], sum.x, acc[2]);
	acc[3] = __fmaf_rn(m[1], sum.y, acc[3]);
}

/* 32 k of 16 rows and 8 tokens: a[step] W[16 rows][16 k], b x^T[32 k][8 tokens]. */
template <typename F, int half>
static __device__ __forceinline__ void mma_tile(const linear_raw &raw, const uint32_t (&a)[2][4],
						const uint32_t (&b)[4], const float *sums,
						float (&acc)[4])
{
	if constexpr (F::SCALE_STEPS == 0) {
		mma_m16n8k16(acc, a[0], b[0], b[1]);
		mma_m16n8k16(acc, a[1], b[2], b[3]);
	} else {
		float part[4] = {};
		float scale[2];

		mma_m16n8k16(part, a[0], b[0], b[1]);
		if constexpr (F::SCALE_STEPS == 1) {
			float next[4] = {};

			mma_m16n8k16(next, a[1], b[2], b[3]);
			F::scale(raw, 2 * half, scale);
			add_scaled(acc, part, scale);
			F::scale(raw, 2 * half + 1, scale);
			add_scaled(acc, next, scale);
		} else {
			mma_m16n8k16(part, a[1], b[2], b[3]);
			F::scale(raw, half, scale);
			add_scaled(acc, part, scale);
		}
	}
	if constexpr (F::HAS_MIN) {
		float m[2];

		F::min(raw, half, m);
		add_min(acc, m, *(const float2 *)sums);
	}
}

/* 32 k of 16 rows: steps 2 * half and 2 * half + 1 of `raw`. */
template <typename S, int half>
static __device__ __forceinline__ void mma_block(const linear_raw &raw, uint32_t x,
						 const float *sums, uint32_t lane,
						 float (&acc)[S::NT][4])
{
	typedef typename S::format F;
	uint32_t a[2][4];

	F::template fragment<2 * half>(raw, a[0]);
	F::template fragment<2 * half + 1>(raw, a[1]);
#pragma unroll
	for (int n = 0; n < S::NT; n++) {
		uint32_t b[4];

		if (n > 0 && n % 2 == 0)
			__syncwarp(); /* no more of x in registers than two tiles: q4_k spills */
		ldmatrix_x4(b, x + x_offset(n * 8 + lane % 8, half * 4 + lane / 8));
		mma_tile<F, half>(raw, a, b, sums + half * S::TOKENS + n * 8, acc[n]);
	}
}

/* What a warp computes in one stage: its group, its stream. */
struct operands {
	const uint8_t *w; /* tile */
	uint32_t x;
	const float *sums; /* of the lane's first column, [block][token] */
	uint32_t nr_halves; /* 64 k each */
};

/* 64 k of one warp's group. */
template <typename S>
static __device__ __forceinline__ void mma_half(const struct operands *in, int half, uint32_t lane,
						float (&acc)[S::NT][4])
{
	uint32_t x = in->x + half * S::X_PART_BYTES;
	const float *sums = in->sums + half * 2 * S::TOKENS;
	linear_raw raw;

	S::format::load(in->w, half, lane, raw);
	mma_block<S, 0>(raw, x, sums, lane, acc);
	mma_block<S, 1>(raw, x, sums, lane, acc);
}

template <typename S>
static __device__ __forceinline__ void mma_stage(const struct operands *in, uint32_t lane,
						 float (&acc)[S::NT][4])
{
	if constexpr (S::NT > 2) {
		/* Unrolled, too much of it is in registers at once. */
#pragma unroll 1
		for (uint32_t i = 0; i < in->nr_halves; i++)
			mma_half<S>(in, i, lane, acc);
	} else {
		if (in->nr_halves > 0)
			mma_half<S>(in, 0, lane, acc);
		if (in->nr_halves > 1)
			mma_half<S>(in, 1, lane, acc);
	}
}

/* part = 16 or 32 k of D[64 rows][64 tokens], the warpgroup's four groups; waits for it. */
static __device__ __forceinline__ void wgmma_part(float (&part)[32], const uint32_t (&a0)[4],
						  const uint32_t (&a1)[4], uint64_t b0, uint64_t b1,
						  int nr_steps)
{
	wgmma_fence();
	wgmma_m64n64k16_rs<0>(part, a0, b0);
	if (nr_steps == 2)
		wgmma_m64n64k16_rs<1>(part, a1, b1);
	wgmma_commit();
	wgmma_wait<0>();
	wgmma_hold(part);
}

static __device__ __forceinline__ void add_scaled_all(float (&acc)[8][4], const float (&part)[32],
						      const float (&scale)[2])
{
#pragma unroll
	for (int n = 0; n < 8; n++)
		add_scaled(acc[n], part + 4 * n, scale);
}

template <typename F, int half>
static __device__ __forceinline__ void wgmma_block(const linear_raw &raw, uint64_t b,
						   const float *sums, float (&acc)[8][4])
{
	uint64_t b0 = b + half * 4, b1 = b0 + 2; /* 32 bytes a step, in units of 16 */
	uint32_t a[2][4];
	float part[32] = {};
	float scale[2];

	F::template fragment<2 * half>(raw, a[0]);
	F::template fragment<2 * half + 1>(raw, a[1]);
	if constexpr (F::SCALE_STEPS == 1) {
		wgmma_part(part, a[0], a[0], b0, b0, 1);
		F::scale(raw, 2 * half, scale);
		add_scaled_all(acc, part, scale);
		wgmma_part(part, a[1], a[1], b1, b1, 1);
		F::scale(raw, 2 * half + 1, scale);
		add_scaled_all(acc, part, scale);
	} else {
		wgmma_part(part, a[0], a[1], b0, b1, 2);
		F::scale(raw, half, scale);
		add_scaled_all(acc, part, scale);
	}
	if constexpr (F::HAS_MIN) {
		F::min(raw, half, scale);
#pragma unroll
		for (int n = 0; n < 8; n++)
			add_min(acc[n], scale, *(const float2 *)(sums + half * 64 + n * 8));
	}
}

/* The same by wgmma, 64 tokens: a warpgroup's four groups together. */
template <typename S>
static __device__ __forceinline__ void wgmma_stage(const struct operands *in, uint32_t lane,
						   float (&acc)[8][4])
{
	typedef typename S::format F;

#pragma unroll 1
	for (uint32_t i = 0; i < in->nr_halves; i++) {
		uint64_t b = wgmma_desc(in->x + i * S::X_PART_BYTES, 0);
		const float *sums = in->sums + i * 2 * S::TOKENS;
		linear_raw raw;

			F::load(in->w, i, lane, raw);
		if constexpr (F::SCALE_STEPS == 0) {
			float(&d)[32] = *(float(*)[32]) & acc[0][0];
			uint32_t a[4][4];

			F::template fragment<0>(raw, a[0]);
			F::template fragment<1>(raw, a[1]);
			F::template fragment<2>(raw, a[2]);
			F::template fragment<3>(raw, a[3]);
			wgmma_fence();
#pragma unroll
			for (int s = 0; s < 4; s++)
				wgmma_m64n64k16_rs<1>(d, a[s], b + 2 * s);
			wgmma_commit();
			wgmma_wait<0>();
			wgmma_hold(d);
		} else {
			wgmma_block<F, 0>(raw, b, sums, acc);
			wgmma_block<F, 1>(raw, b, sums, acc);
		}
	}
}

/* ---- fold ---- */

/* D of one group to the fold, token by token, or added to what is there. */
template <typename S, bool is_adding>
static __device__ __forceinline__ void put_fold(float *fold, uint32_t group, uint32_t lane,
						const float (&acc)[S::NT][4])
{
	float *to = fold + 2 * (lane % 4) * S::FOLD_STRIDE + group * 16 + lane / 4;

#pragma unroll
	for (int n = 0; n < S::NT; n++) {
#pragma unroll
		for (int e = 0; e < 4; e++) {
			float *at = to + (8 * n + e % 2) * S::FOLD_STRIDE + e / 2 * 8;

			*at = is_adding ? __fadd_rn(*at, acc[n][e]) : acc[n][e];
		}
	}
}

static __device__ __forceinline__ float2 add_f2(float2 a, float2 b)
{
	return make_float2(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y));
}

static __device__ __forceinline__ uint32_t to_bf16x2(float2 v)
{
	uint32_t packed;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(v.y), "f"(v.x));
	return packed;
}

/* The sum of a span's chunks at `from` in its CTA's shared memory. */
template <typename S>
static __device__ __forceinline__ float2 span_sum(const struct gpu_linear_params *p,
						  const float *from, uint32_t span)
{
	uint32_t first_k = span * p->cut.span_k;
	uint32_t nr_cols = min(p->cut.span_k, p->nr_cols - first_k);
	uint32_t nr = S::STREAMS == 1 ? 1 : (nr_cols + p->cut.chunk_k - 1) / p->cut.chunk_k;
	float2 sum;

	sum = cluster_load_f2(smem_addr(from), span);
	for (uint32_t c = 1; c < nr; c++)
		sum = add_f2(sum, cluster_load_f2(smem_addr(from + c * S::FOLD_FLOATS), span));
	return sum;
}

/* Rows [first, end) of the CTA's, two by two, to out. */
template <typename S>
static __device__ __forceinline__ void store_rows(const struct gpu_linear_params *p,
						  const struct work *w, uint32_t first_group,
						  uint32_t first, uint32_t end)
{
	uint32_t nr_pairs = (end - first) / 2;
	uint32_t nr_spans = cluster_size();
	uint32_t nr_tokens = min(p->nr_tokens - w->first_token, (uint32_t)S::TOKENS);

	for (uint32_t i = threadIdx.x; i < nr_pairs * nr_tokens; i += S::NR_CONSUMERS) {
		uint32_t token = i / nr_pairs;
		uint32_t row = first + i % nr_pairs * 2;
		const float *from = fold_of<S>(p) + token * S::FOLD_STRIDE + row;
		uint32_t n = first_group * 16 + row;
		size_t at = (size_t)(w->first_token + token) * p->out_stride + n;
		float2 sum;

		if (n >= p->nr_rows)
			continue;
		sum = span_sum<S>(p, from, 0);
		for (uint32_t span = 1; span < nr_spans; span++)
			sum = add_f2(sum, span_sum<S>(p, from, span));
		if (p->out_is_float)
			*(float2 *)((float *)p->out + at) = sum;
		else
			*(uint32_t *)((uint16_t *)p->out + at) = to_bf16x2(sum);
	}
}

/* ---- consumers ---- */

/* One pass of one warp: its group over the stages, result to the fold. */
template <typename S, bool is_wgmma>
static __device__ __forceinline__ void consume_pass(const struct gpu_linear_params *p,
						    struct cta *cta, uint32_t nr_groups,
						    struct cursor *at)
{
	/* One warp a group: it adds its chunks up; their own places would not fit at 64 tokens. */
	const bool is_adding = S::STREAMS == 1;
	uint32_t lane = threadIdx.x % 32;
	uint32_t group = threadIdx.x / 32 / S::STREAMS;
	uint32_t stream = threadIdx.x / 32 % S::STREAMS;
	/* wgmma takes all four warps; those without a group repeat one and drop it. */
	uint32_t w_group = is_wgmma ? min(group, nr_groups - 1) : group;
	uint32_t nr_left = stream_cols<S>(p, &cta->work, stream) / 64;
	uint32_t nr_stages = cta->work.nr_stages;
	float *fold = fold_of<S>(p) + stream * S::STREAM_CHUNKS * S::FOLD_FLOATS;

	while (nr_stages > 0) {
		uint32_t nr = min(nr_stages, p->cut.chunk_k / GPU_LINEAR_TILE_K);
		bool is_first = nr_stages == cta->work.nr_stages;
		float acc[S::NT][4] = {}; // D[16 rows][tokens]

		for (nr_stages -= nr; nr > 0; nr--) {
			struct operands in;

			in.w = ring_w<S>(p, at->slot) +
			       (stream * p->cta_groups + w_group) * S::format::TILE_BYTES;
			in.x = smem_addr(ring_x<S>(at->slot)) + stream * S::X_STREAM_BYTES;
			in.sums = ring_sums<S>(p, at->slot) +
				  stream * S::BLOCKS * S::TOKENS + lane % 4 * 2;
			in.nr_halves = min(nr_left, 2u);
			nr_left -= in.nr_halves;
			mbar_wait(&cta->full[at->slot], at->parity);
			if constexpr (is_wgmma)
				wgmma_stage<S>(&in, lane, acc);
			else if (group < nr_groups)
				mma_stage<S>(&in, lane, acc);
			release_after<S::NT, is_wgmma>(&cta->empty[at->slot], lane, acc);
			advance(at, p->nr_stages);
		}
#pragma unroll
		for (int n = 0; n < S::NT && S::format::SCALE_STEPS > 0; n++) {
#pragma unroll
			for (int e = 0; e < 4; e++)
				acc[n][e] = end_scale(acc[n][e]);
		}
		if (group < nr_groups && is_adding && !is_first)
			put_fold<S, true>(fold, group, lane, acc);
		else if (group < nr_groups)
			put_fold<S, false>(fold, group, lane, acc);
		if (!is_adding)
			fold += S::FOLD_FLOATS;
	}
}

template <typename S, bool is_wgmma>
static __device__ __forceinline__ void consume(const struct gpu_linear_params *p, struct cta *cta)
{
	struct cursor at = { 0, 0 };

	for (uint32_t pass = 0; pass < cta->work.nr_passes; pass++) {
		uint32_t nr_groups =
			pass_first(&cta->work, pass + 1) - pass_first(&cta->work, pass);

		consume_pass<S, is_wgmma>(p, cta, nr_groups, &at);
		if (cluster_size() > 1)
			return; /* one pass; linear_flat() folds */
		named_sync(BAR_CONSUMERS, S::NR_CONSUMERS);
		store_rows<S>(p, &cta->work, pass_first(&cta->work, pass), 0, nr_groups * 16);
		named_sync(BAR_CONSUMERS, S::NR_CONSUMERS); /* before the next pass's fold */
	}
}

template <typename S, bool is_wgmma>
static __device__ __forceinline__ void linear_flat(const struct gpu_linear_params *p)
{
	__shared__ struct cta cta;
	struct producer pr;

	if (threadIdx.x >= S::NR_CONSUMERS) {
		if (threadIdx.x == S::NR_CONSUMERS) {
			tma_prefetch_map(&p->x_map);
			find_work<S>(p, &cta.work);
			for (uint32_t i = 0; i < p->nr_stages; i++) {
				mbar_init(&cta.full[i], 1 + S::COPIES * RING_COPY_ARRIVALS);
				mbar_init(&cta.empty[i],
					  is_wgmma ? S::NR_CONSUMERS :
						     S::NR_WARPS * RING_WARP_ARRIVALS);
			}
			mbar_init_fence();
		}
		__syncwarp();
		produce_first<S>(p, &cta, &pr);
	}
	__syncthreads();
	if (threadIdx.x < S::NR_CONSUMERS)
		consume<S, is_wgmma>(p, &cta);
	else
		produce<S>(p, &cta, &pr);
	if (cluster_size() > 1) {
		/* Even: 2, 4 or 8 spans. */
		uint32_t nr = cta.work.nr_groups * 16 / cluster_size();

		__syncwarp();
		cluster_sync();
		if (threadIdx.x < S::NR_CONSUMERS)
			store_rows<S>(p, &cta.work, cta.work.first_group, nr * cluster_rank(),
				      nr * (cluster_rank() + 1));
		cluster_sync(); /* nobody leaves while others read its shared memory */
	}
}

#endif
