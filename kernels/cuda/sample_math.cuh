/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of a draw, for sample.cu and for the host: one for one that of
 * engine/backend/sample.c, so that both draw the same token. Logarithm and exponential are the
 * CPU kernels' own.
 */
#ifndef TARN_KERNELS_CUDA_SAMPLE_MATH_CUH
#define TARN_KERNELS_CUDA_SAMPLE_MATH_CUH

#include "kernels/cpu/dmath.h"
#include "kernels/cpu/fmath.h"
#include "kernels/cpu/philox.h"

/* Smallest -ln(u) of u = (w + 1/2) / 2^32: no token can do better. */
#define SAMPLE_RACE_FLOOR 0x1p-33f

/* ---- order: larger logit first, lower id among equals, 0 and -0 equal; 0: no token ---- */

KERNEL_INLINE uint64_t sample_key(float x, uint32_t id)
{
	uint32_t bits = f32_to_bits(x + 0.0f); /* -0 becomes 0 */

	bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
	return (uint64_t)bits << 32 | (uint32_t)~id;
}

KERNEL_INLINE uint32_t sample_key_id(uint64_t key)
{
	return ~(uint32_t)key;
}

KERNEL_INLINE float sample_key_value(uint64_t key)
{
	uint32_t bits = (uint32_t)(key >> 32);

	return f32_from_bits(bits ^ (bits >> 31 ? 0x80000000u : 0xffffffffu));
}

/* ---- the race ---- */

/* When a token of this weight rings whose random number is `random`: the first one wins. */
KERNEL_INLINE double sample_time(uint32_t random, float weight)
{
	double u = ((double)random + 0.5) * 0x1p-32;

	return -dmath_log(u) / (double)weight;
}

KERNEL_INLINE float sample_weight(float x, float max, float inv_temp)
{
	return fmath_exp((x - max) * inv_temp);
}

/*
 * `time` as a float that is above it by 2^-21 of it at least: what is ruled out by hurdle * weight,
 * rounded, is ruled out by time * weight.
 */
KERNEL_INLINE float sample_hurdle(double time)
{
	return (float)time * 0x1.00001p+0f;
}

/*
 * Whether a token may ring before the hurdle: -ln(u) > 1 - u >= `limit` = hurdle * weight would be
 * too late. 1 - u = (~random + 1/2) / 2^32; rounding ~random is within what the hurdle leaves.
 */
KERNEL_INLINE bool sample_may_win(uint32_t random, float limit)
{
	return (float)~random < limit * 0x1p32f;
}

#endif
