/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block of one row of a model file, of each quantised type, into its lane
 * of a packed group (the formats stand at struct packed_matrix). Codes and
 * scales are moved, never changed. Pure functions; any thread.
 */
#include "kernels/cpu/kernels_private.h"

static void put_f16(uint8_t *plane, unsigned int r, const uint8_t *src)
{
	memcpy(plane + 2 * r, src, 2);
}

/* 16 bytes of nibbles whose halves are already k and k + 16, as the file has them. */
static void put_nibbles(uint8_t *codes, const uint8_t *src)
{
	for (unsigned int i = 0; i < 4; i++)
		memcpy(codes + 64 * i, src + 4 * i, 4);
}

/* Bit k of @bits becomes bit j of byte c, k = 4 j + c. */
static void put_fifth_bits(uint8_t *high, uint32_t bits)
{
	uint32_t out = 0;

	for (unsigned int j = 0; j < 8; j++) {
		uint32_t nibble = bits >> (4 * j) & 15;

		/* Spread four bits over four bytes; the copies do not overlap. */
		out |= ((nibble * 0x00204081u) & 0x01010101u) << j;
	}
	store_u32(high, out);
}

/* Two bits of each of 32 values, at @shift of their bytes, as the plane of struct packed_matrix. */
static void put_two_bits(uint8_t *plane, const uint8_t *src, unsigned int shift)
{
	for (unsigned int h = 0; h < 2; h++) {
		uint32_t out = 0;

		for (unsigned int j = 0; j < 4; j++)
			out |= (load_u32(src + 4 * (4 * h + j)) >> shift & 0x03030303u) << (2 * j);
		store_u32(plane + 64 * h, out);
	}
}

/* One bit of each of 32 values, at @shift of their bytes. */
static void put_one_bits(uint8_t *plane, const uint8_t *src, unsigned int shift)
{
	uint32_t out = 0;

	for (unsigned int j = 0; j < 8; j++)
		out |= (load_u32(src + 4 * j) >> shift & 0x01010101u) << j;
	store_u32(plane, out);
}

static void put_q4_0(const struct pack_lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_nibbles(to->codes, src + 2);
}

static void put_q4_1(const struct pack_lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_f16(to->scales + 32, to->r, src + 2);
	put_nibbles(to->codes, src + 4);
}

static void put_q5_0(const struct pack_lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_fifth_bits(to->high, load_u32(src + 2));
	put_nibbles(to->codes, src + 6);
}

static void put_q5_1(const struct pack_lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_f16(to->scales + 32, to->r, src + 2);
	put_fifth_bits(to->high, load_u32(src + 4));
	put_nibbles(to->codes, src + 8);
}

static void put_q8_0(const struct pack_lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	for (unsigned int i = 0; i < 8; i++)
		store_u32(to->codes + 64 * i, load_u32(src + 2 + 4 * i) ^ 0x80808080u);
}

/* Sub-scales and mins of Q4_K and Q5_K: eight pairs of 6 bits in 12 bytes. */
static void put_k_scales(const struct pack_lane *to, const uint8_t *src)
{
	uint8_t *sc = to->scales + 64 + to->r;
	uint8_t *mn = to->scales + 192 + to->r;
	const uint8_t *q = src + 4;

	put_f16(to->scales, to->r, src);
	put_f16(to->scales + 32, to->r, src + 2);
	for (unsigned int j = 0; j < 4; j++) {
		sc[16 * j] = q[j] & 63;
		mn[16 * j] = q[j + 4] & 63;
		sc[16 * (j + 4)] = (q[j + 8] & 15) | (q[j] >> 6) << 4;
		mn[16 * (j + 4)] = q[j + 8] >> 4 | (q[j + 4] >> 6) << 4;
	}
}

/*
 * Low four bits of one block: @src 32 bytes that hold its values in the low
 * (@shift 0) or high (4) nibble.
 */
static void put_split_nibbles(uint8_t *codes, const uint8_t *src, unsigned int shift)
{
	for (unsigned int i = 0; i < 4; i++) {
		uint32_t low = load_u32(src + 4 * i) >> shift & 0x0f0f0f0fu;
		uint32_t high = load_u32(src + 16 + 4 * i) >> shift & 0x0f0f0f0fu;

		store_u32(codes + 64 * i, low | high << 4);
	}
}

static void put_q4_k(const struct pack_lane *to, const uint8_t *src)
{
	put_k_scales(to, src);
	for (unsigned int b = 0; b < 8; b++)
		put_split_nibbles(to->codes + 256 * b, src + 16 + 32 * (b / 2), 4 * (b & 1));
}

static void put_q5_k(const struct pack_lane *to, const uint8_t *src)
{
	const uint8_t *qh = src + 16;

	put_k_scales(to, src);
	for (unsigned int b = 0; b < 8; b++) {
		put_split_nibbles(to->codes + 256 * b, src + 48 + 32 * (b / 2), 4 * (b & 1));
		put_one_bits(to->high + 64 * b, qh, b);
	}
}

static void put_q6_k(const struct pack_lane *to, const uint8_t *src)
{
	const uint8_t *ql = src;
	const uint8_t *qh = src + 128;
	const uint8_t *sc = src + 192;

	put_f16(to->scales, to->r, src + 208);
	for (unsigned int s = 0; s < 16; s++)
		to->scales[64 + 16 * s + to->r] = sc[s];
	for (unsigned int b = 0; b < 8; b++) {
		unsigned int half = b / 4, quarter = b % 4;

		put_split_nibbles(to->codes + 256 * b, ql + 64 * half + 32 * (quarter & 1),
				  4 * (quarter >> 1));
		put_two_bits(to->high + 128 * b, qh + 32 * half, 2 * quarter);
	}
}

static void put_q2_k(const struct pack_lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src + 80);
	put_f16(to->scales + 32, to->r, src + 82);
	for (unsigned int s = 0; s < 16; s++)
		to->scales[64 + 16 * s + to->r] = src[s];
	for (unsigned int b = 0; b < 8; b++)
		put_two_bits(to->codes + 128 * b, src + 16 + 32 * (b / 4), 2 * (b % 4));
}

static void put_q3_k(const struct pack_lane *to, const uint8_t *src)
{
	const uint8_t *low = src + 96; /* of the sub-scales: nibbles, then pairs of bits */
	const uint8_t *high = src + 104;

	put_f16(to->scales, to->r, src + 108);
	for (unsigned int s = 0; s < 16; s++) {
		int sc = (low[s % 8] >> (4 * (s / 8)) & 15) | (high[s % 4] >> (2 * (s / 4)) & 3)
								      << 4;

		to->scales[32 + 16 * s + to->r] = (uint8_t)(sc - 32);
	}
	for (unsigned int b = 0; b < 8; b++) {
		put_two_bits(to->codes + 128 * b, src + 32 + 32 * (b / 4), 2 * (b % 4));
		put_one_bits(to->high + 64 * b, src, b);
	}
}

static void put_iq4_xs(const struct pack_lane *to, const uint8_t *src)
{
	unsigned int high = load_u16(src + 2);

	put_f16(to->scales, to->r, src);
	for (unsigned int b = 0; b < 8; b++) {
		int sc = (src[4 + b / 2] >> (4 * (b % 2)) & 15) | (high >> (2 * b) & 3) << 4;

		to->scales[32 + 16 * b + to->r] = (uint8_t)(sc - 32);
		put_nibbles(to->codes + 256 * b, src + 8 + 16 * b);
	}
}

static void put_mxfp4(const struct pack_lane *to, const uint8_t *src)
{
	to->scales[to->r] = src[0];
	put_nibbles(to->codes, src + 1);
}

void pack_put_block(enum pack_type type, const struct pack_lane *to, const uint8_t *src)
{
	switch (type) {
	case PACK_Q4_0:
	case PACK_IQ4_NL: /* the same layout, other values */
		put_q4_0(to, src);
		break;
	case PACK_Q4_1:
		put_q4_1(to, src);
		break;
	case PACK_Q5_0:
		put_q5_0(to, src);
		break;
	case PACK_Q5_1:
		put_q5_1(to, src);
		break;
	case PACK_Q8_0:
		put_q8_0(to, src);
		break;
	case PACK_Q2_K:
		put_q2_k(to, src);
		break;
	case PACK_Q3_K:
		put_q3_k(to, src);
		break;
	case PACK_Q4_K:
		put_q4_k(to, src);
		break;
	case PACK_Q5_K:
		put_q5_k(to, src);
		break;
	case PACK_Q6_K:
		put_q6_k(to, src);
		break;
	case PACK_IQ4_XS:
		put_iq4_xs(to, src);
		break;
	case PACK_MXFP4:
		put_mxfp4(to, src);
		break;
	case PACK_F32:
	case PACK_F16:
	case PACK_BF16:
		break; /* packed by value, see pack_groups() */
	}
}
