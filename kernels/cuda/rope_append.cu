/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the projections and attention: bias, norm of each head, rotary
 * position embedding, then q as bf16 beside its neighbours and k, v as bf16
 * into their tiles. A warp takes one head of q, k or v of one row; what it
 * works on lies in shared memory. Sums of a head's norm are a lane's own in
 * ascending order, then a butterfly: the length alone decides.
 * Bytes: 4 in, 2 out a value. Bound: memory; few rows: the launch.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/row_sum.cuh"
#include "kernels/cuda/tma.cuh"

static __device__ __forceinline__ void norm_head(float *head, const float *w, uint32_t nr,
						 float eps, uint32_t lane)
{
	float sum = 0.0f, scale;

	for (uint32_t i = lane; i < nr; i += 32)
		sum = __fmaf_rn(head[i], head[i], sum);
	sum = warp_sum(sum);
	scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)nr), eps)));
	for (uint32_t i = lane; i < nr; i += 32)
		head[i] = __fmul_rn(__fmul_rn(head[i], scale), w[i]);
	__syncwarp();
}

/* Pairs (i, i + nr_rot / 2) or (2 i, 2 i + 1) by the position's angles. */
static __device__ __forceinline__ void rotate_head(float *head, const float2 *cos_sin,
						   uint32_t nr_rot, bool is_neox, uint32_t lane)
{
	for (uint32_t i = lane; i < nr_rot / 2; i += 32) {
		float *a = head + (is_neox ? i : 2 * i);
		float *b = is_neox ? a + nr_rot / 2 : a + 1;
		float2 cs = cos_sin[i];
		float x = *a, y = *b;

		*a = __fmaf_rn(x, cs.x, -__fmul_rn(y, cs.y));
		*b = __fmaf_rn(x, cs.y, __fmul_rn(y, cs.x));
	}
	__syncwarp();
}

static __device__ __forceinline__ void load_head(const struct gpu_rope_params *p, uint32_t row,
						 uint32_t head, float *own, uint32_t lane)
{
	bool is_q = head < p->nr_q, is_k = !is_q && head < p->nr_q + p->nr_kv;
	const float *bias = is_q ? p->q_bias : is_k ? p->k_bias : p->v_bias;
	uint32_t first = is_q ? 0 : is_k ? p->nr_q : p->nr_q + p->nr_kv; /* head */
	uint32_t nr_heads = p->nr_q + 2 * p->nr_kv;
	const float *in = p->qkv + ((size_t)row * nr_heads + head) * p->head_dim;

	for (uint32_t i = lane; i < p->head_dim; i += 32)
		own[i] = bias ? __fadd_rn(in[i], bias[(head - first) * p->head_dim + i]) : in[i];
	__syncwarp();
}

/* Where head number `head` of q, k, v goes. */
static __device__ __forceinline__ uint32_t *head_out(const struct gpu_rope_params *p, uint32_t row,
						     uint32_t head, uint32_t pos)
{
	uint32_t kv_head = (head - p->nr_q) % p->nr_kv;
	uint64_t offset = head < p->nr_q + p->nr_kv ? p->k_offset : p->v_offset;

	if (head < p->nr_q)
		return (uint32_t *)p->q + ((size_t)row * p->nr_q + head) * (p->head_dim / 2);
	return (uint32_t *)(p->tiles[row] + offset + kv_head * p->head_bytes +
			    (uint64_t)(pos % p->tile_tokens) * p->head_dim * 2);
}

extern "C" __global__ void __launch_bounds__(32 * GPU_ROPE_WARPS)
	rope_append(const __grid_constant__ struct gpu_rope_params p)
{
	__shared__ float heads[GPU_ROPE_WARPS][GPU_MAX_HEAD_DIM];
	uint32_t row = blockIdx.x, lane = threadIdx.x % 32;
	uint32_t head = blockIdx.y * GPU_ROPE_WARPS + threadIdx.x / 32;
	uint32_t nr_heads = p.nr_q + 2 * p.nr_kv;
	uint32_t pos;
	float *own = heads[threadIdx.x / 32];
	uint32_t *out;

	grid_begin();
	if (head >= nr_heads)
		return;
	pos = p.positions[row];
	load_head(&p, row, head, own, lane);
	if (head < p.nr_q + p.nr_kv) {
		const float *w = head < p.nr_q ? p.q_norm : p.k_norm;

		if (w)
			norm_head(own, w, p.head_dim, p.eps, lane);
		rotate_head(own, (const float2 *)p.cos_sin + (size_t)pos * (p.nr_rot / 2), p.nr_rot,
			    p.is_neox, lane);
	}
	out = head_out(&p, row, head, pos);
	for (uint32_t i = lane; i < p.head_dim / 2; i += 32)
		out[i] = pack_bf16(own[2 * i], own[2 * i + 1]);
}
