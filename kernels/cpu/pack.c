/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing of weights: from the rows of a model file to groups of 16 rows in
 * lanes (the format stands at struct packed_matrix), and one row back as float.
 * It moves codes and scales, never changes them. Any thread may pack disjoint
 * groups of one matrix at once.
 */
#include "kernels/cpu/kernels_private.h"

#include <math.h>

static const struct pack_format formats[] = {
	[PACK_F32] = { 1, 4, 0, 0, 64, 0, 0, false },
	[PACK_F16] = { 1, 2, 0, 0, 32, 0, 0, false },
	[PACK_Q4_0] = { 32, 18, 32, 32, 256, 0, 8, false },
	[PACK_Q4_1] = { 32, 20, 32, 64, 256, 0, 0, true },
	[PACK_Q5_0] = { 32, 22, 32, 32, 256, 64, 16, false },
	[PACK_Q5_1] = { 32, 24, 32, 64, 256, 64, 0, true },
	[PACK_Q8_0] = { 32, 34, 32, 32, 512, 0, 128, false },
	[PACK_Q4_K] = { 256, 144, 256, 320, 256, 0, 0, true },
	[PACK_Q5_K] = { 256, 176, 256, 320, 256, 64, 0, true },
	[PACK_Q6_K] = { 256, 210, 256, 320, 256, 128, 32, false },
	[PACK_BF16] = { 1, 2, 0, 0, 32, 0, 0, false },
};

const struct pack_format *pack_format_get(enum pack_type type)
{
	if ((unsigned)type >= sizeof(formats) / sizeof(formats[0]) ||
	    formats[type].source_values == 0)
		return NULL;
	return &formats[type];
}

static uint64_t align_plane(uint64_t bytes)
{
	return (bytes + PACK_ALIGN - 1) & ~(uint64_t)(PACK_ALIGN - 1);
}

void pack_offsets_get(const struct pack_format *format, uint32_t nr_cols,
		      struct pack_offsets *out_offsets)
{
	uint64_t nr_units = format->scale_values ? nr_cols / ACT_BLOCK : nr_cols;
	uint64_t scales = 0;

	if (format->scale_values)
		scales = (uint64_t)nr_cols / format->scale_values * format->scale_bytes;
	out_offsets->codes = align_plane(scales);
	out_offsets->high = out_offsets->codes + align_plane(nr_units * format->code_bytes);
	out_offsets->end = out_offsets->high + align_plane(nr_units * format->high_bytes);
}

uint64_t pack_layout(struct packed_matrix *m, enum pack_type type, uint32_t nr_rows,
		     uint32_t nr_cols)
{
	const struct pack_format *format = pack_format_get(type);
	struct pack_offsets offsets;
	uint64_t total;

	if (!format || nr_cols % format->source_values != 0)
		return 0;
	pack_offsets_get(format, nr_cols, &offsets);
	m->type = type;
	m->nr_rows = nr_rows;
	m->nr_cols = nr_cols;
	m->group_bytes = offsets.end;
	if (__builtin_mul_overflow(((uint64_t)nr_rows + PACK_ROWS - 1) / PACK_ROWS, offsets.end,
				   &total) ||
	    total > SIZE_MAX)
		return 0;
	return total;
}

uint64_t pack_source_row_bytes(enum pack_type type, uint32_t nr_cols)
{
	const struct pack_format *format = pack_format_get(type);

	return format ? (uint64_t)nr_cols / format->source_values * format->source_bytes : 0;
}

/* ---- one row of one block into its lanes --------------------------------- */

/* Where row @r of a group writes, at block or super-block @b. */
struct lane {
	uint8_t *scales; /* of the scale entry, row 0 */
	uint8_t *codes; /* of the block: byte (0, r, 0) */
	uint8_t *high;
	unsigned int r;
};

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

static void put_q4_0(const struct lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_nibbles(to->codes, src + 2);
}

static void put_q4_1(const struct lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_f16(to->scales + 32, to->r, src + 2);
	put_nibbles(to->codes, src + 4);
}

static void put_q5_0(const struct lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_fifth_bits(to->high, load_u32(src + 2));
	put_nibbles(to->codes, src + 6);
}

static void put_q5_1(const struct lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	put_f16(to->scales + 32, to->r, src + 2);
	put_fifth_bits(to->high, load_u32(src + 4));
	put_nibbles(to->codes, src + 8);
}

static void put_q8_0(const struct lane *to, const uint8_t *src)
{
	put_f16(to->scales, to->r, src);
	for (unsigned int i = 0; i < 8; i++)
		store_u32(to->codes + 64 * i, load_u32(src + 2 + 4 * i) ^ 0x80808080u);
}

/* Sub-scales and mins of Q4_K and Q5_K: eight pairs of 6 bits in 12 bytes. */
static void put_k_scales(const struct lane *to, const uint8_t *src)
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

static void put_q4_k(const struct lane *to, const uint8_t *src)
{
	put_k_scales(to, src);
	for (unsigned int b = 0; b < 8; b++)
		put_split_nibbles(to->codes + 256 * b, src + 16 + 32 * (b / 2), 4 * (b & 1));
}

static void put_q5_k(const struct lane *to, const uint8_t *src)
{
	const uint8_t *qh = src + 16;

	put_k_scales(to, src);
	for (unsigned int b = 0; b < 8; b++) {
		uint32_t high = 0;

		put_split_nibbles(to->codes + 256 * b, src + 48 + 32 * (b / 2), 4 * (b & 1));
		for (unsigned int j = 0; j < 8; j++)
			high |= (load_u32(qh + 4 * j) >> b & 0x01010101u) << j;
		store_u32(to->high + 64 * b, high);
	}
}

static void put_q6_k(const struct lane *to, const uint8_t *src)
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
		for (unsigned int h = 0; h < 2; h++) {
			uint32_t high = 0;

			for (unsigned int j = 0; j < 4; j++)
				high |= (load_u32(qh + 32 * half + 4 * (4 * h + j)) >>
						 (2 * quarter) &
					 0x03030303u)
					<< (2 * j);
			store_u32(to->high + 128 * b + 64 * h, high);
		}
	}
}

static void put_block(enum pack_type type, const struct lane *to, const uint8_t *src)
{
	switch (type) {
	case PACK_Q4_0:
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
	case PACK_Q4_K:
		put_q4_k(to, src);
		break;
	case PACK_Q5_K:
		put_q5_k(to, src);
		break;
	case PACK_Q6_K:
		put_q6_k(to, src);
		break;
	case PACK_F32:
	case PACK_F16:
	case PACK_BF16:
		break; /* packed by value, see pack_float_group() */
	}
}

static void pack_quant_group(const struct packed_matrix *m, const uint8_t *src, unsigned int nr,
			     uint8_t *dst)
{
	const struct pack_format *format = pack_format_get(m->type);
	uint64_t row_bytes = pack_source_row_bytes(m->type, m->nr_cols);
	uint32_t nr_source = m->nr_cols / format->source_values;
	uint32_t blocks = format->source_values / ACT_BLOCK;
	struct pack_offsets offsets;

	pack_offsets_get(format, m->nr_cols, &offsets);
	/* Blocks outside, rows inside: the lines written stay in the first cache. */
	for (uint32_t b = 0; b < nr_source; b++) {
		for (unsigned int r = 0; r < nr; r++) {
			struct lane to = {
				dst + (uint64_t)b * format->scale_bytes,
				dst + offsets.codes + (uint64_t)b * blocks * format->code_bytes +
					4 * r,
				dst + offsets.high + (uint64_t)b * blocks * format->high_bytes +
					4 * r,
				r,
			};

			put_block(m->type, &to,
				  src + r * row_bytes + (uint64_t)b * format->source_bytes);
		}
	}
}

static void pack_float_group(const struct packed_matrix *m, const uint8_t *src, unsigned int nr,
			     uint8_t *dst)
{
	uint64_t row_bytes = pack_source_row_bytes(m->type, m->nr_cols);
	bool is_f32 = m->type == PACK_F32;

	for (size_t k = 0; k < m->nr_cols; k++) {
		/* Constant sizes: each copy is one move. */
		for (unsigned int r = 0; r < nr; r++) {
			if (is_f32)
				memcpy(dst + (k * PACK_ROWS + r) * 4, src + r * row_bytes + k * 4,
				       4);
			else
				memcpy(dst + (k * PACK_ROWS + r) * 2, src + r * row_bytes + k * 2,
				       2);
		}
	}
}

void pack_groups(const struct packed_matrix *m, const void *src, uint32_t first_group,
		 uint32_t end_group, uint8_t *dst)
{
	uint64_t row_bytes = pack_source_row_bytes(m->type, m->nr_cols);

	for (uint32_t g = first_group; g < end_group; g++) {
		uint32_t first_row = g * PACK_ROWS;
		uint32_t left = m->nr_rows - first_row;
		unsigned int nr = left < PACK_ROWS ? left : PACK_ROWS;
		const uint8_t *rows = (const uint8_t *)src + first_row * row_bytes;
		uint8_t *group = dst + g * m->group_bytes;
		struct pack_offsets offsets;

		/* Padding and missing rows are zero whatever the memory held. */
		pack_offsets_get(pack_format_get(m->type), m->nr_cols, &offsets);
		if (nr < PACK_ROWS)
			memset(group, 0, m->group_bytes);
		else
			memset(group, 0, offsets.codes);
		if (pack_is_float(m->type)) {
			if (m->nr_cols % 2)
				memset(group + m->group_bytes - PACK_ALIGN, 0, PACK_ALIGN);
			pack_float_group(m, rows, nr, group);
		} else {
			pack_quant_group(m, rows, nr, group);
		}
	}
}

/* ---- back to float -------------------------------------------------------- */

static float float_at(const struct packed_matrix *m, const uint8_t *group, uint32_t k,
		      unsigned int r)
{
	size_t i = (size_t)k * PACK_ROWS + r;

	if (m->type == PACK_F32)
		return f32_from_bits(load_u32(group + 4 * i));
	if (m->type == PACK_F16)
		return f16_to_f32(load_u16(group + 2 * i));
	return bf16_to_f32(load_u16(group + 2 * i));
}

void pack_row_f32(const struct packed_matrix *m, uint32_t row, float *out)
{
	const struct pack_format *format = pack_format_get(m->type);
	unsigned int r = row % PACK_ROWS;
	struct unpacked_block block;
	struct pack_offsets offsets;
	struct pack_planes planes;

	pack_offsets_get(format, m->nr_cols, &offsets);
	planes = pack_planes_at(m, &offsets, row / PACK_ROWS);
	if (pack_is_float(m->type)) {
		for (uint32_t k = 0; k < m->nr_cols; k++)
			out[k] = float_at(m, planes.codes, k, r);
		return;
	}
	for (uint32_t b = 0; b < m->nr_cols / ACT_BLOCK; b++) {
		unpack_block_ref(m->type, &planes, b, &block);
		for (unsigned int k = 0; k < ACT_BLOCK; k++) {
			float d = block.d[r] * (float)block.sc[k / 16][r];
			float q = (float)block.q[k][r];

			out[b * ACT_BLOCK + k] = format->has_min ? fmaf(d, q, block.m[r]) : d * q;
		}
	}
}
