/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IEEE 754 binary16 and bfloat16 to and from float32, in plain C and exact:
 * the same results as F16C's vcvtph2ps and vcvtps2ph (round to nearest even);
 * and the scales of MXFP4.
 */
#ifndef TARN_KERNELS_CPU_HALF_H
#define TARN_KERNELS_CPU_HALF_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/inline.h"

KERNEL_INLINE float f32_from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

KERNEL_INLINE uint32_t f32_to_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t rest = h & 0x7fff;

	if (rest >= 0x7c00) /* infinity, NaN (made quiet, as the instruction does) */
		return f32_from_bits(sign | 0x7f800000 | ((rest & 0x3ff) << 13) |
				     (rest > 0x7c00 ? 0x400000 : 0));
	if (rest < 0x400) /* subnormal or zero: an integer times 2^-24, exact */
		return f32_from_bits(sign | f32_to_bits((float)rest * 0x1p-24f));
	return f32_from_bits(sign | ((rest + (112u << 10)) << 13));
}

static inline uint16_t f32_to_f16(float f)
{
	uint32_t bits = f32_to_bits(f);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t rest = bits & 0x7fffffff;

	if (rest > 0x7f800000) /* NaN stays NaN, quiet */
		return sign | 0x7e00 | (uint16_t)(rest >> 13 & 0x3ff);
	if (rest >= 0x477ff000) /* rounds to 65520 or more: infinity */
		return sign | 0x7c00;
	if (rest < 0x38800000) /* below 2^-14: let the adder round to a multiple of 2^-24 */
		return sign |
		       (uint16_t)(f32_to_bits(f32_from_bits(rest) + 0.5f) - f32_to_bits(0.5f));
	rest += 0xfff + (rest >> 13 & 1);
	return sign | (uint16_t)((rest >> 13) - (112u << 10));
}

/* Round to nearest even; NaN stays NaN, quiet. */
static inline uint16_t f32_to_bf16(float f)
{
	uint32_t bits = f32_to_bits(f);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_to_f32(uint16_t h)
{
	return f32_from_bits((uint32_t)h << 16);
}

/* 2^(e - 128): half of what the exponent byte of OCP's MX formats stands for; no NaN at 255. */
static inline float e8m0_half_to_f32(uint8_t e)
{
	return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

#endif /* TARN_KERNELS_CPU_HALF_H */
