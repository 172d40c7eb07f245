/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the tensor types, for tests: random ones whose values are about as
 * large as asked, and their values in double, one after the other, by the
 * published layouts. Shares no code with the engine but the names of types. All
 * static; no state but the caller's random number.
 */
#ifndef TARN_TESTS_ENGINE_TINY_BLOCKS_H
#define TARN_TESTS_ENGINE_TINY_BLOCKS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/model/gguf.h"

/* ---- random numbers -------------------------------------------------------- */

static inline uint32_t tiny_random_u32(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 32);
}

/* Uniform in [-1, 1). */
static inline double tiny_random_unit(uint64_t *random)
{
	return tiny_random_u32(random) / 2147483648.0 - 1;
}

/* ---- blocks: random bytes that are valid, and their values ------------------- */

static inline double tiny_half(const uint8_t *at)
{
	_Float16 h;

	memcpy(&h, at, sizeof(h));
	return (double)h;
}

static inline void tiny_put_half(uint8_t *at, double value)
{
	_Float16 h = (_Float16)value;

	memcpy(at, &h, sizeof(h));
}

struct tiny_type {
	uint32_t block, bytes;
	uint32_t d_at, m_at; /* halfs: scale, and minimum if m_at differs */
	double spread; /* of a value, in units of the scale */
	double m; /* minimum, in units of the scale */
};

static inline struct tiny_type tiny_type(uint32_t type)
{
	switch (type) {
	case GGUF_TYPE_F32:
		return (struct tiny_type){ 1, 4, 0, 0, 0, 0 };
	case GGUF_TYPE_F16:
	case GGUF_TYPE_BF16:
		return (struct tiny_type){ 1, 2, 0, 0, 0, 0 };
	case GGUF_TYPE_Q4_0:
		return (struct tiny_type){ 32, 18, 0, 0, 4.6, 0 };
	case GGUF_TYPE_Q4_1:
		return (struct tiny_type){ 32, 20, 0, 2, 4.6, -7.5 };
	case GGUF_TYPE_Q5_0:
		return (struct tiny_type){ 32, 22, 0, 0, 9.2, 0 };
	case GGUF_TYPE_Q5_1:
		return (struct tiny_type){ 32, 24, 0, 2, 9.2, -15.5 };
	case GGUF_TYPE_Q8_0:
		return (struct tiny_type){ 32, 34, 0, 0, 74, 0 };
	case GGUF_TYPE_Q4_K:
		return (struct tiny_type){ 256, 144, 0, 2, 260, 7.5 };
	case GGUF_TYPE_Q5_K:
		return (struct tiny_type){ 256, 176, 0, 2, 520, 15.5 };
	case GGUF_TYPE_Q6_K:
		return (struct tiny_type){ 256, 210, 208, 208, 1350, 0 };
	case GGUF_TYPE_Q2_K:
		return (struct tiny_type){ 256, 84, 80, 82, 14, 1.5 };
	case GGUF_TYPE_Q3_K:
		return (struct tiny_type){ 256, 110, 108, 108, 43, 0 };
	case GGUF_TYPE_IQ4_NL:
		return (struct tiny_type){ 32, 18, 0, 0, 67, 0 };
	case GGUF_TYPE_IQ4_XS:
		return (struct tiny_type){ 256, 136, 0, 0, 1250, 0 };
	case GGUF_TYPE_MXFP4: /* in units of half the scale; no half in it */
		return (struct tiny_type){ 32, 17, 0, 0, 5.9, 0 };
	default: /* not computed with: any bytes do */
		return (struct tiny_type){ 256, 110, 0, 0, 0, 0 };
	}
}

static inline void tiny_float(uint32_t type, double value, uint8_t *at)
{
	float f = (float)value;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	if (type == GGUF_TYPE_F32)
		memcpy(at, &f, sizeof(f));
	else if (type == GGUF_TYPE_F16)
		tiny_put_half(at, value);
	else
		memcpy(at, (uint8_t *)&bits + 2, 2);
}

/* One block with values of about @size. */
static inline void tiny_block(uint64_t *random, uint32_t type, double size,
			      uint8_t *at)
{
	struct tiny_type t = tiny_type(type);
	double d = size / t.spread * (1 + tiny_random_unit(random) / 2);

	if (t.block == 1) {
		tiny_float(type, size * 1.7 * tiny_random_unit(random), at);
		return;
	}
	for (uint32_t i = 0; i < t.bytes; i++)
		at[i] = (uint8_t)(tiny_random_u32(random) >> 8);
	if (type == GGUF_TYPE_MXFP4) {
		at[0] = (uint8_t)(128 + lrint(log2(d)));
		return;
	}
	if (t.m_at != t.d_at)
		tiny_put_half(at + t.m_at,
			      d * t.m * (1 + tiny_random_unit(random) / 8));
	/* Scales of either sign are about. */
	tiny_put_half(at + t.d_at,
		      tiny_random_u32(random) & 256 && t.m == 0 ? -d : d);
}

static inline uint32_t tiny_nibble(const uint8_t *qs, uint32_t i)
{
	return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

static const int tiny_iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				  1,	13,   25,  38,	53,  69,  89,  113 };
/* E2M1: sign, two bits of exponent, one of mantissa. */
static const double tiny_fp4[16] = { 0,	  0.5,	1,  1.5,  2,  3,  4,  6,
				     -0., -0.5, -1, -1.5, -2, -3, -4, -6 };

/* Value @i of a block of 32 values. */
static inline double tiny_value_32(uint32_t type, const uint8_t *b, uint32_t i)
{
	double d = tiny_half(b);
	uint32_t high;

	switch (type) {
	case GGUF_TYPE_Q4_0:
		return d * ((int)tiny_nibble(b + 2, i) - 8);
	case GGUF_TYPE_Q4_1:
		return d * tiny_nibble(b + 4, i) + tiny_half(b + 2);
	case GGUF_TYPE_Q5_0:
		high = b[2 + i / 8] >> i % 8 & 1;
		return d * ((int)(tiny_nibble(b + 6, i) | high << 4) - 16);
	case GGUF_TYPE_Q5_1:
		high = b[4 + i / 8] >> i % 8 & 1;
		return d * (tiny_nibble(b + 8, i) | high << 4) +
		       tiny_half(b + 2);
	case GGUF_TYPE_IQ4_NL:
		return d * tiny_iq4[tiny_nibble(b + 2, i)];
	case GGUF_TYPE_MXFP4:
		return ldexp(tiny_fp4[tiny_nibble(b + 1, i)], b[0] - 127);
	default:
		return d * (int8_t)b[2 + i];
	}
}

/* Value @i of Q4_K or Q5_K: eight sub-blocks with a scale and a minimum of 6 bits each. */
static inline double tiny_value_k(uint32_t type, const uint8_t *b, uint32_t i)
{
	const uint8_t *s = b + 4, *qs = b + (type == GGUF_TYPE_Q4_K ? 16 : 48);
	uint32_t j = i / 32, l = i % 32, q, sc, mn;

	if (j < 4) {
		sc = s[j] & 63;
		mn = s[j + 4] & 63;
	} else {
		sc = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
		mn = s[j + 4] >> 4 | (s[j] >> 6) << 4;
	}
	q = j % 2 ? qs[j / 2 * 32 + l] >> 4 : qs[j / 2 * 32 + l] & 15;
	if (type == GGUF_TYPE_Q5_K)
		q |= (uint32_t)(b[16 + l] >> j & 1) << 4;
	return tiny_half(b) * sc * q - tiny_half(b + 2) * mn;
}

static inline double tiny_value_q6_k(const uint8_t *b, uint32_t i)
{
	uint32_t half = i / 128, r = i % 128, l = r % 32, quarter = r / 32;
	const uint8_t *ql = b + 64 * half, *qh = b + 128 + 32 * half;
	uint32_t low = ql[l + quarter % 2 * 32] >> (quarter < 2 ? 0 : 4) & 15;
	uint32_t high = qh[l] >> 2 * quarter & 3;
	int sc = (int8_t)b[192 + 8 * half + l / 16 + 2 * quarter];

	return tiny_half(b + 208) * sc * ((int)(low | high << 4) - 32);
}

/* Two bits of value @i of Q2_K and Q3_K. */
static inline uint32_t tiny_pair(const uint8_t *qs, uint32_t i)
{
	return qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* Value @i of Q2_K: sixteen sub-blocks with a scale and a minimum of 4 bits each. */
static inline double tiny_value_q2_k(const uint8_t *b, uint32_t i)
{
	uint32_t both = b[i / 16];

	return tiny_half(b + 80) * (both & 15) * tiny_pair(b + 16, i) -
	       tiny_half(b + 82) * (both >> 4);
}

/* Of Q3_K: sixteen signed scales of 6 bits, the third bit of a value in a mask. */
static inline double tiny_value_q3_k(const uint8_t *b, uint32_t i)
{
	const uint8_t *s = b + 96;
	uint32_t j = i / 16;
	int sc = (s[j % 8] >> j / 8 * 4 & 15) | (s[8 + j % 4] >> j / 4 * 2 & 3)
							<< 4;
	int q = (int)tiny_pair(b + 32, i) - (b[i % 32] >> i / 32 & 1 ? 0 : 4);

	return tiny_half(b + 108) * (sc - 32) * q;
}

static inline double tiny_value_iq4_xs(const uint8_t *b, uint32_t i)
{
	uint32_t j = i / 32, high = b[2] | b[3] << 8;
	int sc = (b[4 + j / 2] >> j % 2 * 4 & 15) | (high >> 2 * j & 3) << 4;

	return tiny_half(b) * (sc - 32) *
	       tiny_iq4[tiny_nibble(b + 8 + 16 * j, i % 32)];
}

static inline double tiny_value_at(uint32_t type, const uint8_t *row,
				   uint32_t i)
{
	struct tiny_type t = tiny_type(type);
	const uint8_t *b = row + (size_t)(i / t.block) * t.bytes;
	uint32_t bits = 0;
	float f;

	switch (type) {
	case GGUF_TYPE_F32:
		memcpy(&f, b, sizeof(f));
		return (double)f;
	case GGUF_TYPE_F16:
		return tiny_half(b);
	case GGUF_TYPE_BF16:
		memcpy((uint8_t *)&bits + 2, b, 2);
		memcpy(&f, &bits, sizeof(f));
		return (double)f;
	case GGUF_TYPE_Q4_K:
	case GGUF_TYPE_Q5_K:
		return tiny_value_k(type, b, i % 256);
	case GGUF_TYPE_Q6_K:
		return tiny_value_q6_k(b, i % 256);
	case GGUF_TYPE_Q2_K:
		return tiny_value_q2_k(b, i % 256);
	case GGUF_TYPE_Q3_K:
		return tiny_value_q3_k(b, i % 256);
	case GGUF_TYPE_IQ4_XS:
		return tiny_value_iq4_xs(b, i % 256);
	default:
		return tiny_value_32(type, b, i % 32);
	}
}

#endif /* TARN_TESTS_ENGINE_TINY_BLOCKS_H */
