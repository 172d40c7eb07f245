/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions in float32 that give the same bits in C, AVX2 and
 * AVX-512: the C library's change from version to version, ours do not. The
 * vector versions repeat these operations one for one; every step is a single
 * rounded or fused operation.
 */
#ifndef TARN_KERNELS_CPU_FMATH_H
#define TARN_KERNELS_CPU_FMATH_H

#include <math.h>
#include <stdint.h>

#include "kernels/cpu/half.h"

/*
 * e^x = 2^n e^r, n = round(x log2 e), |r| <= ln 2 / 2; e^r = 1 + (r + r^2 p(r)), p a minimax fit of
 * degree 5 made for this file (relative error 5e-11 before rounding). Inputs above
 * EXP_HI count as EXP_HI, so the result is finite; below EXP_LO it is 0.
 */
#define EXP_HI 88.0f
#define EXP_LO -87.0f
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_MAGIC 0x1.8p23f /* adding it rounds to an integer, in the low mantissa bits */
#define EXP_LN2_HI 0x1.62e4p-1f
#define EXP_LN2_LO 0x1.7f7d1cp-20f
#define EXP_P0 0x1p-1f
#define EXP_P1 0x1.555554p-3f
#define EXP_P2 0x1.55548ep-5f
#define EXP_P3 0x1.11127p-7f
#define EXP_P4 0x1.6d8dbcp-10f
#define EXP_P5 0x1.9f085cp-13f

KERNEL_INLINE float fmath_exp(float x)
{
	float c = EXP_HI < x ? EXP_HI : x; /* as minps(EXP_HI, x): NaN stays */
	float t = fmaf(c, EXP_LOG2E, EXP_MAGIC);
	float n = t - EXP_MAGIC;
	float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, c));
	float p = fmaf(EXP_P5, r, EXP_P4);

	p = fmaf(p, r, EXP_P3);
	p = fmaf(p, r, EXP_P2);
	p = fmaf(p, r, EXP_P1);
	p = fmaf(p, r, EXP_P0);
	p = fmaf(p, r * r, r) + 1.0f;
	p = p * f32_from_bits((f32_to_bits(t) << 23) + 0x3f800000);
	return x < EXP_LO ? 0.0f : p;
}

/* tanh(x) = 1 - 2 / (1 + e^(2 x)) */
static inline float fmath_tanh(float x)
{
	return 1.0f - 2.0f / (1.0f + fmath_exp(x + x));
}

#endif /* TARN_KERNELS_CPU_FMATH_H */
