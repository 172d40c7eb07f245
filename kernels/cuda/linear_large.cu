/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers with bf16 weights and activations, float32 accumulation, many
 * tokens. The bits are those of the flat kernels: what makes them stands in
 * linear_flat.cuh, the weights' layout in linear_pack.h, the launch in
 * launch_params.h.
 *
 * Algorithm: a tile is 128 weight rows x 256 (or 128) tokens. A producer warp
 * streams 64 k of both at a time through a ring in shared memory, by lanes: the
 * halves of eight packed tiles, and the tokens by the copy engine. Two consumer
 * warpgroups own 64 rows each: D[64 rows][tokens] by wgmma, the weights as the
 * operand from registers, which is what their packing is for: while the MMAs of
 * a stage run, the fragments of the next one are loaded. CTAs stay and take
 * tiles in turn, those of a run of token tiles beside each other; the next
 * tile's first stages arrive during the epilogue.
 * Of a matrix with two spans, the first one's sums wait in registers (128
 * tokens) or in a slab of the CTA's own that stays in L2, and are added last.
 *
 * Grid 1 CTA per SM, block 3 warpgroups (producer 40 registers, consumers 232),
 * 225 KB of shared memory: 4 stages of 48 KB or 6 of 32, 32 for the epilogue.
 * FLOPs: 2 M N K. Bytes: 2 N K for each run of token tiles, 2 M K, 2 M N.
 * Bound: tensor cores; x and w come from L2 at 8 TB/s at full speed. Reached,
 * 2026-11-30, H200, M = 2048, tiles of 256: 14336 x 4096 693 TFLOP/s, 4096 x 14336
 * 714, 6144 x 4096 689, 4096 x 4096 620; cuBLAS in the same run 787, 767, 709, 680.
 * Tried and lost: pairs of CTAs that share x by multicast, stages given back
 * across the pair with release at cluster scope, which is a memory barrier each time:
 * 450; runs of 16 token tiles, as 8.
 */
#include "kernels/cuda/linear_flat.cuh"

enum {
	ROWS = GPU_LINEAR_LARGE_ROWS,
	STAGE_K = 64,
	NR_TEAMS = 2, /* consumer warpgroups */
	TEAM_THREADS = 128,
	TILE_GROUPS = ROWS / GPU_LINEAR_GROUP_ROWS,
	HALF_TILE_BYTES = GPU_LINEAR_TILE_BF16 / 2, /* 64 k of a group */
	W_BYTES = TILE_GROUPS * HALF_TILE_BYTES,
	OUT_TOKENS = 64, /* of one step of the epilogue */
	OUT_ROW_BYTES = 128, /* 64 rows of one token */
	OUT_BYTES = OUT_TOKENS * OUT_ROW_BYTES,
	BAR_TEAM = 1, /* + team: its own threads */
	MAX_STAGES = 6,
};

/* Sizes of one instance. */
template <int tokens_> struct large {
	enum {
		TOKENS = tokens_,
		ACC = TOKENS / 2, /* accumulators a thread holds of 64 x tokens */
		X_BYTES = TOKENS * X_ROW_BYTES,
		STAGE_BYTES = W_BYTES + X_BYTES,
		NR_STAGES = TOKENS == 256 ? 4 : 6,
		IS_SAVED_HERE = TOKENS <= 128, /* the first span's sums, in registers */
	};
	static_assert(NR_STAGES <= MAX_STAGES, "barriers");
	static_assert(1024 + NR_STAGES * STAGE_BYTES + NR_TEAMS * 2 * OUT_BYTES <=
			      GPU_LINEAR_LARGE_SMEM_BYTES,
		      "shared memory");
};

/* Dynamic shared memory: x of all stages, w of all stages, the teams' epilogues. */
template <typename S> static __device__ __forceinline__ uint8_t *stage_x(uint32_t slot)
{
	return smem_base() + slot * S::X_BYTES;
}

template <typename S> static __device__ __forceinline__ uint8_t *stage_w(uint32_t slot)
{
	return smem_base() + S::NR_STAGES * S::X_BYTES + slot * W_BYTES;
}

struct ring {
	uint64_t full[MAX_STAGES];
	uint64_t empty[MAX_STAGES];
};

/* A CTA's tile. */
struct tile {
	uint32_t first_group;
	uint32_t first_token;
};

template <typename S>
static __device__ __forceinline__ uint32_t nr_tiles_of(const struct gpu_linear_large_params *p)
{
	return ((p->nr_rows + ROWS - 1) / ROWS) * ((p->nr_tokens + S::TOKENS - 1) / S::TOKENS);
}

/* Runs of token tiles one after the other; in a run, all its tokens for each column. */
template <typename S>
static __device__ __forceinline__ struct tile find_tile(const struct gpu_linear_large_params *p,
							uint32_t index)
{
	uint32_t nr_columns = (p->nr_rows + ROWS - 1) / ROWS;
	uint32_t nr_tiles = (p->nr_tokens + S::TOKENS - 1) / S::TOKENS;
	uint32_t first = index / (nr_columns * p->run_tiles) * p->run_tiles;
	uint32_t nr = min(p->run_tiles, nr_tiles - first);
	uint32_t at = index - first * nr_columns;
	struct tile tile;

	tile.first_group = at / nr * TILE_GROUPS;
	tile.first_token = (first + at % nr) * S::TOKENS;
	return tile;
}

/* ---- producer: one warp ---- */

/* A stage of a tile: 64 k from `half_tile` on. Lanes 0 to 7 load the groups, lane 8 x. */
template <typename S>
static __device__ __forceinline__ void load_stage(const struct gpu_linear_large_params *p,
						  struct ring *ring, uint32_t slot,
						  const struct tile *tile, uint32_t half_tile)
{
	uint32_t nr_groups = (p->nr_rows + 15) / 16;
	uint32_t nr_live = 0;
	uint32_t lane = threadIdx.x % 32;
	uint64_t *full = &ring->full[slot];

	if (tile->first_group < nr_groups)
		nr_live = min(nr_groups - tile->first_group, (uint32_t)TILE_GROUPS);
	if (lane == 0)
		mbar_arrive_expect(full, ring_bytes(nr_live * HALF_TILE_BYTES) + S::X_BYTES);
	__syncwarp();
	if (lane < nr_live) {
		size_t from = ((size_t)(half_tile / 2) * nr_groups + tile->first_group + lane) *
				      GPU_LINEAR_TILE_BF16 +
			      half_tile % 2 * HALF_TILE_BYTES;

		ring_copy(stage_w<S>(slot) + lane * HALF_TILE_BYTES,
			  (const uint8_t *)p->weights + from, HALF_TILE_BYTES, full);
	}
	ring_copied(full);
	if (lane == TILE_GROUPS)
		tma_load_3d(stage_x<S>(slot), &p->x_map, full, 0, tile->first_token, half_tile,
			    policy_evict_normal());
}

template <typename S>
static __device__ __forceinline__ void produce_tiles(const struct gpu_linear_large_params *p,
						     struct ring *ring)
{
	struct cursor at = { 0, 1 };

	grid_launch_next();
	grid_wait();
	for (uint32_t i = blockIdx.x; i < nr_tiles_of<S>(p); i += gridDim.x) {
		struct tile tile = find_tile<S>(p, i);

		for (uint32_t j = 0; j < p->nr_cols / STAGE_K; j++) {
			mbar_wait(&ring->empty[at.slot], at.parity);
			load_stage<S>(p, ring, at.slot, &tile, j);
			advance(&at, S::NR_STAGES);
		}
	}
}

/* ---- consumers: two warpgroups ---- */

/* Where a consumer stands. */
struct consumer {
	struct cursor at; /* the stage whose fragments are loaded next */
	uint32_t w; /* of slot 0: the lane's part of its warp's group */
	uint32_t x; /* of slot 0 */
};

/* A[64 rows][16 k] of four steps, each warp its 16 rows. */
template <typename S>
static __device__ __forceinline__ void load_fragments(uint32_t (&a)[4][4], uint32_t w)
{
#pragma unroll
	for (int s = 0; s < 4; s++)
		asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(a[s][0]), "=r"(a[s][1]), "=r"(a[s][2]), "=r"(a[s][3])
			     : "r"(w + 512 * s)
			     : "memory");
}

/* A warp's MMAs no longer read the stage, and its fragments went into them. */
static __device__ __forceinline__ void release_stage(struct ring *ring, uint32_t slot)
{
	if (ring_elect(threadIdx.x % 32))
		mbar_arrive(&ring->empty[slot]);
}

/*
 * Issues the MMAs of the stage whose fragments `now` holds. Beside them: the
 * stage before is given back, the fragments of the one behind are loaded.
 */
template <typename S>
static __device__ __forceinline__ void
mma_large(struct ring *ring, struct consumer *me, float (&acc)[S::ACC], const uint32_t (&now)[4][4],
	  uint32_t (&next)[4][4], bool is_first, bool is_last)
{
	uint32_t slot = me->at.slot;
	uint32_t before = slot == 0 ? S::NR_STAGES - 1 : slot - 1;
	uint64_t b = wgmma_desc(me->x + slot * S::X_BYTES, 0);

	wgmma_fence();
#pragma unroll
	for (int s = 0; s < 4; s++)
		wgmma_rs(acc, now[s], b + 2 * s); // D[64][tokens]
	wgmma_commit();
	advance(&me->at, S::NR_STAGES);
	wgmma_wait<1>();
	if (!is_first)
		release_stage(ring, before);
	if (!is_last) {
		mbar_wait(&ring->full[me->at.slot], me->at.parity);
		load_fragments<S>(next, me->w + me->at.slot * W_BYTES);
	}
}

/* acc = the sum over nr stages. */
template <typename S>
static __device__ __forceinline__ void sum_span(struct ring *ring, struct consumer *me, uint32_t nr,
						float (&acc)[S::ACC])
{
	uint32_t even[4][4], odd[4][4];

#pragma unroll
	for (int i = 0; i < S::ACC; i++)
		acc[i] = 0.0f;
	mbar_wait(&ring->full[me->at.slot], me->at.parity);
	load_fragments<S>(even, me->w + me->at.slot * W_BYTES);
	for (uint32_t i = 0;; i += 2) {
		mma_large<S>(ring, me, acc, even, odd, i == 0, i + 1 == nr);
		if (i + 1 == nr)
			break;
		mma_large<S>(ring, me, acc, odd, even, false, i + 2 == nr);
		if (i + 2 == nr)
			break;
	}
	wgmma_wait<0>();
	wgmma_hold(acc);
	release_stage(ring, me->at.slot == 0 ? S::NR_STAGES - 1 : me->at.slot - 1);
}

/* The CTA's slab of sums of the first span: each thread its own column of it. */
template <typename S>
static __device__ __forceinline__ float4 *slab_of(const struct gpu_linear_large_params *p)
{
	return (float4 *)p->scratch + (size_t)blockIdx.x * (S::ACC / 4 * NR_TEAMS * TEAM_THREADS) +
	       (threadIdx.x - TEAM_THREADS);
}

template <typename S>
static __device__ __forceinline__ void keep_sums(const struct gpu_linear_large_params *p,
						 const float (&acc)[S::ACC])
{
	float4 *slab = slab_of<S>(p);

#pragma unroll
	for (int i = 0; i < S::ACC / 4; i++)
		__stcg(slab + i * (NR_TEAMS * TEAM_THREADS),
		       make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
}

/* acc = first span + acc. */
template <typename S>
static __device__ __forceinline__ void add_kept(const struct gpu_linear_large_params *p,
						float (&acc)[S::ACC])
{
	const float4 *slab = slab_of<S>(p);
	const int batch = S::ACC / 8; /* loads at a time: no more registers are free */

#pragma unroll
	for (int i = 0; i < S::ACC / 4; i += batch) {
		float4 kept[batch];

#pragma unroll
		for (int j = 0; j < batch; j++)
			kept[j] = __ldcg(slab + (i + j) * (NR_TEAMS * TEAM_THREADS));
#pragma unroll
		for (int j = 0; j < batch; j++) {
			float *to = &acc[4 * (i + j)];

			to[0] = __fadd_rn(kept[j].x, to[0]);
			to[1] = __fadd_rn(kept[j].y, to[1]);
			to[2] = __fadd_rn(kept[j].z, to[2]);
			to[3] = __fadd_rn(kept[j].w, to[3]);
		}
		/* No load of the next batch may move up here. */
		named_sync(BAR_TEAM + threadIdx.x / TEAM_THREADS - 1, TEAM_THREADS);
	}
}

/* ---- epilogue ---- */

/* Straight from registers: runs of 8 rows of one token. */
template <typename S>
static __device__ __forceinline__ void store_floats(const struct gpu_linear_large_params *p,
						    const struct tile *tile,
						    const float (&acc)[S::ACC])
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t warp = threadIdx.x / 32 - TEAM_THREADS / 32;
	uint32_t n = (tile->first_group + warp) * 16 + lane / 4;
	uint32_t first = tile->first_token + lane % 4 * 2;

#pragma unroll
	for (int i = 0; i < S::ACC; i++) {
		uint32_t token = first + i / 4 * 8 + i % 2;
		uint32_t row = n + i % 4 / 2 * 8;

		if (token < p->nr_tokens && row < p->nr_rows)
			((float *)p->out)[(size_t)token * p->out_stride + row] = acc[i];
	}
}

/* 64 tokens of the team's 64 rows, in the team's staging area, to out by whole lines. */
static __device__ __forceinline__ void copy_out(const struct gpu_linear_large_params *p,
						uint32_t first_token, uint32_t first_row,
						const uint8_t *from)
{
	uint32_t thread = threadIdx.x % TEAM_THREADS;
	uint32_t chunk = thread % 8;
	uint32_t row = first_row + chunk * 8;

#pragma unroll
	for (int i = 0; i < OUT_TOKENS / 16; i++) {
		uint32_t t = i * 16 + thread / 8;
		uint32_t token = first_token + t;
		uint4 v = *(const uint4 *)(from + t * OUT_ROW_BYTES + (chunk ^ t % 8) * 16);

		if (token < p->nr_tokens && row < p->nr_rows)
			*(uint4 *)((uint16_t *)p->out + (size_t)token * p->out_stride + row) = v;
	}
}

/* Rounded, turned from [row][token] to [token][row] on the way through shared memory. */
template <typename S>
static __device__ __forceinline__ void store_bf16(const struct gpu_linear_large_params *p,
						  const struct tile *tile,
						  const float (&acc)[S::ACC])
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t team = threadIdx.x / TEAM_THREADS - 1;
	uint32_t warp = threadIdx.x / 32 % 4;
	uint8_t *area = stage_w<S>(S::NR_STAGES) + team * 2 * OUT_BYTES;
	/* The lane's row of a matrix that it addresses: a token, 8 of the weight rows. */
	uint32_t token = lane / 16 * 8 + lane % 8;
	uint32_t chunk = warp * 2 + lane / 8 % 2;
	uint32_t to = smem_addr(area) + token * OUT_ROW_BYTES + (chunk ^ token % 8) * 16;

#pragma unroll
	for (int step = 0; step < S::TOKENS / OUT_TOKENS; step++) {
		uint32_t which = step % 2 * OUT_BYTES;

#pragma unroll
		for (int i = 0; i < OUT_TOKENS / 16; i++) {
			const float *d = &acc[(step * OUT_TOKENS / 16 + i) * 8];
			uint32_t packed[4];

#pragma unroll
			for (int j = 0; j < 4; j++)
				packed[j] = to_bf16x2(make_float2(d[2 * j], d[2 * j + 1]));
			stmatrix_x4_trans(to + which + i * 16 * OUT_ROW_BYTES, packed);
		}
		/* One a step: behind it nobody reads the area's other half any more. */
		named_sync(BAR_TEAM + team, TEAM_THREADS);
		copy_out(p, tile->first_token + step * OUT_TOKENS,
			 tile->first_group * 16 + team * 64, area + which);
	}
}

template <typename S>
static __device__ __forceinline__ void consume_tiles(const struct gpu_linear_large_params *p,
						     struct ring *ring)
{
	uint32_t warp = threadIdx.x / 32 - TEAM_THREADS / 32;
	uint32_t nr_total = p->nr_cols / STAGE_K;
	uint32_t nr_first = min(p->span_k / STAGE_K, nr_total);
	struct consumer me = { { 0, 0 } };

	me.w = smem_addr(stage_w<S>(0)) + warp * HALF_TILE_BYTES + threadIdx.x % 32 * 16;
	me.x = smem_addr(stage_x<S>(0));
	for (uint32_t i = blockIdx.x; i < nr_tiles_of<S>(p); i += gridDim.x) {
		struct tile tile = find_tile<S>(p, i);
		float acc[S::ACC];

		sum_span<S>(ring, &me, nr_first, acc);
		if (nr_first < nr_total) {
			if constexpr (S::IS_SAVED_HERE) {
				float kept[S::ACC];

#pragma unroll
				for (int i = 0; i < S::ACC; i++)
					kept[i] = acc[i];
				sum_span<S>(ring, &me, nr_total - nr_first, acc);
#pragma unroll
				for (int i = 0; i < S::ACC; i++)
					acc[i] = __fadd_rn(kept[i], acc[i]);
			} else {
				keep_sums<S>(p, acc);
				sum_span<S>(ring, &me, nr_total - nr_first, acc);
				add_kept<S>(p, acc);
			}
		}
		if (p->out_is_float)
			store_floats<S>(p, &tile, acc);
		else
			store_bf16<S>(p, &tile, acc);
	}
}

template <typename S>
static __device__ __forceinline__ void linear_large(const struct gpu_linear_large_params *p)
{
	__shared__ struct ring ring;

	if (threadIdx.x == 0) {
		tma_prefetch_map(&p->x_map);
		for (int i = 0; i < S::NR_STAGES; i++) {
			mbar_init(&ring.full[i], 1 + RING_COPY_ARRIVALS);
			mbar_init(&ring.empty[i], NR_TEAMS * 4 * RING_WARP_ARRIVALS);
		}
		mbar_init_fence();
	}
	__syncthreads();
	if (threadIdx.x < TEAM_THREADS) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		if (threadIdx.x < 32)
			produce_tiles<S>(p, &ring);
		__syncwarp();
	} else {
		asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
		consume_tiles<S>(p, &ring);
	}
}

#define INSTANCE(name, tokens)                                                    \
	extern "C" __global__ void __launch_bounds__(GPU_LINEAR_LARGE_THREADS, 1) \
		name(const __grid_constant__ struct gpu_linear_large_params p)    \
	{                                                                         \
		linear_large<large<tokens>>(&p);                                  \
	}

INSTANCE(linear_large_bf16_t128, 128)
INSTANCE(linear_large_bf16_t256, 256)
