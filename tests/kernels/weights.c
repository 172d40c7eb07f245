/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights and their values, see weights.h. */
#include "tests/kernels/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const enum pack_type weights_types[WEIGHTS_NR_TYPES] = {
	PACK_F32,  PACK_F16,	PACK_BF16,   PACK_Q4_0,	 PACK_Q4_1, PACK_Q5_0,
	PACK_Q5_1, PACK_Q8_0,	PACK_Q4_K,   PACK_Q5_K,	 PACK_Q6_K, PACK_Q2_K,
	PACK_Q3_K, PACK_IQ4_NL, PACK_IQ4_XS, PACK_MXFP4,
};

static const struct {
	const char *name;
	uint32_t block;
	uint32_t bytes;
	int f16_at[2]; /* offsets of the scales in a block; -1: none */
} info[] = {
	[PACK_F32] = { "F32", 1, 4, { -1, -1 } },
	[PACK_F16] = { "F16", 1, 2, { 0, -1 } },
	[PACK_BF16] = { "BF16", 1, 2, { -1, -1 } },
	[PACK_Q4_0] = { "Q4_0", 32, 18, { 0, -1 } },
	[PACK_Q4_1] = { "Q4_1", 32, 20, { 0, 2 } },
	[PACK_Q5_0] = { "Q5_0", 32, 22, { 0, -1 } },
	[PACK_Q5_1] = { "Q5_1", 32, 24, { 0, 2 } },
	[PACK_Q8_0] = { "Q8_0", 32, 34, { 0, -1 } },
	[PACK_Q4_K] = { "Q4_K", 256, 144, { 0, 2 } },
	[PACK_Q5_K] = { "Q5_K", 256, 176, { 0, 2 } },
	[PACK_Q6_K] = { "Q6_K", 256, 210, { 208, -1 } },
	[PACK_Q2_K] = { "Q2_K", 256, 84, { 80, 82 } },
	[PACK_Q3_K] = { "Q3_K", 256, 110, { 108, -1 } },
	[PACK_IQ4_NL] = { "IQ4_NL", 32, 18, { 0, -1 } },
	[PACK_IQ4_XS] = { "IQ4_XS", 256, 136, { 0, -1 } },
	[PACK_MXFP4] = { "MXFP4", 32, 17, { -1, -1 } },
};

const char *weights_name(enum pack_type type)
{
	return info[type].name;
}

uint32_t weights_block(enum pack_type type)
{
	return info[type].block;
}

uint32_t rng_u32(struct rng *rng)
{
	rng->state =
		rng->state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng->state >> 32);
}

float rng_unit(struct rng *rng)
{
	return (float)((int32_t)rng_u32(rng) >> 8) * 0x1p-23f;
}

static uint16_t random_f16(bool tame, struct rng *rng)
{
	uint16_t h = (uint16_t)rng_u32(rng);

	if (tame) /* exponents 2^-9 to 2^-6 */
		return (uint16_t)((h & 0x83ff) | (6 + (h >> 10 & 3)) << 10);
	if (rng_u32(rng) % 8 == 0) /* subnormal */
		return h & 0x83ff;
	return (h & 0x7c00) == 0x7c00 ? h & 0xbfff :
					h; /* no infinity, no NaN */
}

/* Up to 2^111, so that sums of any length here stay finite; every fourth row is subnormal or so. */
static uint8_t random_e8m0(size_t row, bool tame, struct rng *rng)
{
	uint32_t e = rng_u32(rng);

	if (tame)
		return (uint8_t)(119 + e % 4);
	return (uint8_t)(row % 4 == 0 ? e % 4 : e % 240);
}

uint8_t *weights_make(enum pack_type type, uint32_t nr_rows, uint32_t nr_cols,
		      bool tame, struct rng *rng)
{
	size_t nr_blocks = (size_t)nr_rows * (nr_cols / info[type].block);
	size_t bytes = nr_blocks * info[type].bytes;
	uint8_t *p = malloc(bytes + 1);

	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(rng_u32(rng) >> 11);
	for (size_t b = 0; b < nr_blocks; b++) {
		uint8_t *block = p + b * info[type].bytes;
		float f = rng_unit(rng);

		for (int s = 0; s < 2 && info[type].f16_at[s] >= 0; s++) {
			uint16_t h = random_f16(tame, rng);

			memcpy(block + info[type].f16_at[s], &h, 2);
		}
		if (type == PACK_MXFP4)
			block[0] = random_e8m0(b / (nr_blocks / nr_rows), tame,
					       rng);
		if (type == PACK_F32)
			memcpy(block, &f, 4);
		if (type == PACK_BF16)
			memcpy(block, (uint8_t *)&f + 2, 2);
	}
	return p;
}

static double half(const uint8_t *p)
{
	unsigned int h = p[0] | p[1] << 8;
	int exponent = h >> 10 & 31;
	double m = h & 1023;

	m = exponent ? ldexp(m + 1024, exponent - 25) : ldexp(m, -24);
	return h & 0x8000 ? -m : m;
}

static double q_k_value(const uint8_t *block, uint32_t k, int code)
{
	const uint8_t *s = block + 4;
	unsigned int j = k / 32, sc, mn;

	if (j < 4) {
		sc = s[j] & 63;
		mn = s[j + 4] & 63;
	} else {
		sc = (s[j + 4] & 15) + 16 * (s[j - 4] / 64);
		mn = s[j + 4] / 16 + 16 * (s[j] / 64);
	}
	return half(block) * sc * code - half(block + 2) * mn;
}

static int code_q6_k(const uint8_t *block, uint32_t k)
{
	uint32_t n = k / 128, l = k % 32, quarter = k % 128 / 32;
	uint8_t low = block[64 * n + 32 * (quarter % 2) + l];
	uint8_t high = block[128 + 32 * n + l];

	return (quarter < 2 ? low % 16 : low / 16) +
	       16 * (high / (1 << 2 * quarter) % 4);
}

static int code_q2_k(const uint8_t *qs, uint32_t k)
{
	return qs[k / 128 * 32 + k % 32] / (1 << 2 * (k % 128 / 32)) % 4;
}

/* The sub-scale of 16 values of Q3_K: four bits in one place, two in another. */
static int scale_q3_k(const uint8_t *s, uint32_t i)
{
	int low = i < 8 ? s[i] % 16 : s[i - 8] / 16;

	return low + 16 * (s[8 + i % 4] / (1 << 2 * (i / 4)) % 4) - 32;
}

static int scale_iq4_xs(const uint8_t *block, uint32_t i)
{
	int low = i % 2 ? block[4 + i / 2] / 16 : block[4 + i / 2] % 16;
	int high = block[2 + i / 4] / (1 << 2 * (i % 4)) % 4;

	return low + 16 * high - 32;
}

/* Quantiles of a bell curve, and the positive values of E2M1. */
static int iq4_value(int code)
{
	static const int values[] = { -127, -104, -83, -65, -49, -35, -22, -10,
				      1,    13,	  25,  38,  53,	 69,  89,  113 };

	return values[code];
}

static double fp4_value(int code)
{
	int e = code / 2 % 4, m = code % 2;
	double v = e ? ldexp(1 + m / 2.0, e - 1) : m / 2.0;

	return code & 8 ? -v : v;
}

int weights_code(enum pack_type type, const uint8_t *row, uint32_t k)
{
	const uint8_t *block =
		row + (size_t)(k / info[type].block) * info[type].bytes;
	uint32_t at = k % info[type].block;
	const uint8_t *low, *high;

	switch (type) {
	case PACK_Q8_0:
		return (int8_t)block[2 + at];
	case PACK_Q4_K:
	case PACK_Q5_K:
		low = block + (type == PACK_Q4_K ? 16 : 48) + 32 * (at / 64) +
		      at % 32;
		high = block + 16 + at % 32;
		return (at % 64 < 32 ? *low % 16 : *low / 16) +
		       (type == PACK_Q5_K ? 16 * (*high / (1 << at / 32) % 2) :
					    0);
	case PACK_Q6_K:
		return code_q6_k(block, at);
	case PACK_Q2_K:
		return code_q2_k(block + 16, at);
	case PACK_Q3_K:
		return code_q2_k(block + 32, at) +
		       4 * (block[at % 32] / (1 << at / 32) % 2);
	case PACK_IQ4_XS:
		low = block + 8 + at / 32 * 16 + at % 16;
		return at % 32 < 16 ? *low % 16 : *low / 16;
	default:
		low = block + info[type].bytes - 16 + at % 16;
		high = block + info[type].bytes - 20 + at / 8;
		return (at < 16 ? *low % 16 : *low / 16) +
		       (type == PACK_Q5_0 || type == PACK_Q5_1 ?
				16 * (*high / (1 << at % 8) % 2) :
				0);
	}
}

double weights_value(enum pack_type type, const uint8_t *row, uint32_t k)
{
	const uint8_t *block =
		row + (size_t)(k / info[type].block) * info[type].bytes;
	uint32_t at = k % info[type].block;
	uint8_t wide[4] = { 0, 0, block[0], block[1] };
	float f;

	switch (type) {
	case PACK_F32:
		memcpy(&f, block, 4);
		return f;
	case PACK_F16:
		return half(block);
	case PACK_BF16:
		memcpy(&f, wide, 4);
		return f;
	case PACK_Q4_0:
		return half(block) * (weights_code(type, row, k) - 8);
	case PACK_Q5_0:
		return half(block) * (weights_code(type, row, k) - 16);
	case PACK_Q8_0:
		return half(block) * weights_code(type, row, k);
	case PACK_Q4_1:
	case PACK_Q5_1:
		return half(block) * weights_code(type, row, k) +
		       half(block + 2);
	case PACK_Q4_K:
	case PACK_Q5_K:
		return q_k_value(block, at, weights_code(type, row, k));
	case PACK_Q6_K:
		return half(block + 208) * (int8_t)block[192 + at / 16] *
		       (weights_code(type, row, k) - 32);
	case PACK_Q2_K:
		return half(block + 80) * (block[at / 16] % 16) *
			       weights_code(type, row, k) -
		       half(block + 82) * (block[at / 16] / 16);
	case PACK_Q3_K:
		return half(block + 108) * scale_q3_k(block + 96, at / 16) *
		       (weights_code(type, row, k) - 4);
	case PACK_IQ4_NL:
		return half(block) * iq4_value(weights_code(type, row, k));
	case PACK_IQ4_XS:
		return half(block) * scale_iq4_xs(block, at / 32) *
		       iq4_value(weights_code(type, row, k));
	case PACK_MXFP4:
		return ldexp(fp4_value(weights_code(type, row, k)),
			     block[0] - 127);
	}
	return NAN;
}

uint8_t *weights_pack(enum pack_type type, uint32_t nr_rows, uint32_t nr_cols,
		      const uint8_t *src, struct packed_matrix *out_matrix)
{
	uint64_t bytes = pack_layout(out_matrix, type, nr_rows, nr_cols);
	uint8_t *p = bytes ? aligned_alloc(64, bytes) : NULL;

	if (p) {
		/* What the memory held before must not matter. */
		memset(p, 0xa5, bytes);
		pack_groups(out_matrix, src, 0, (nr_rows + 15) / 16, p);
		out_matrix->data = p;
	}
	return p;
}
