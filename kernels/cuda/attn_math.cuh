/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic that every attention kernel shares, so that decode, prefill
 * and merge give the same bits (numerics contract, rules 5, 7 and 9): each
 * operation is written out with its rounding, none is left to contraction.
 *
 * Per query row and split: mc = max(score) * scale_log2, sum = sum of p, O =
 * sum of p * v. Per block of 128 tokens, ascending:
 *   mc' = max(mc, max(block) * scale_log2)
 *   p = exp2(score * scale_log2 - mc')            one fma, one ex2
 *   sum = sum * exp2(mc - mc') + (even + odd)      see below
 *   O = O * exp2(mc - mc'), then eight k16 MMA steps over bf16(p) and V
 * The 128 columns of a row belong to four classes, class c holding columns
 * 8j + 2c and 8j + 2c + 1; even and odd are chains over ascending j. Each
 * class has its own sum; a split ends with (s0 + s1) + (s2 + s3).
 */
#ifndef TARN_KERNELS_CUDA_ATTN_MATH_CUH
#define TARN_KERNELS_CUDA_ATTN_MATH_CUH

#include <stdint.h>

#define ATTN_NEG_INF (-__int_as_float(0x7f800000))

static __device__ __forceinline__ float attn_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* A row whose tokens so far are all masked has mc = -inf: subtract 0 there. */
static __device__ __forceinline__ float attn_finite_mc(float mc)
{
	return mc == ATTN_NEG_INF ? 0.0f : mc;
}

static __device__ __forceinline__ float attn_prob(float score, float scale_log2, float finite_mc)
{
	return attn_exp2(__fmaf_rn(score, scale_log2, -finite_mc));
}

/* Factor on what a row gathered under old_mc. */
static __device__ __forceinline__ float attn_rescale(float old_mc, float finite_mc)
{
	return attn_exp2(__fsub_rn(old_mc, finite_mc));
}

/* Joins the four class sums, which lie in the four lanes of a quad. */
static __device__ __forceinline__ float attn_join_sum(float sum)
{
	sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
	return __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
}

/* Running total over splits, in ascending order. Starts as {-inf, 0}. */
struct attn_total {
	float mc;
	float sum;
};

/*
 * Adds a finished split to the total's state and gives the factors for the
 * outputs: total = total * out_old + split * out_new.
 */
static __device__ __forceinline__ void attn_total_add(struct attn_total *total, float mc, float sum,
						      float *out_old, float *out_new)
{
	float new_mc = fmaxf(total->mc, mc);

	*out_old = attn_exp2(__fsub_rn(total->mc, new_mc));
	*out_new = attn_exp2(__fsub_rn(mc, new_mc));
	total->sum = __fmaf_rn(total->sum, *out_old, __fmul_rn(sum, *out_new));
	total->mc = new_mc;
}

static __device__ __forceinline__ float attn_merge_out(float total, float out_old, float split,
						       float out_new)
{
	return __fmaf_rn(total, out_old, __fmul_rn(split, out_new));
}

/* bf16 pair, lo in the low half, round to nearest even. */
static __device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
	uint32_t out;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(hi), "f"(lo));
	return out;
}

#endif
