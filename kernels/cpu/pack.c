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
	[PACK_Q2_K] = { 256, 84, 256, 320, 128, 0, 0, true, .has_halves = true, .sc_at = 64 },
	[PACK_Q3_K] = { 256, 110, 256, 288, 128, 64, 4, false, .has_halves = true, .sc_at = 32 },
	[PACK_Q4_K] = { 256, 144, 256, 320, 256, 0, 0, true, .sc_at = 64 },
	[PACK_Q5_K] = { 256, 176, 256, 320, 256, 64, 0, true, .sc_at = 64 },
	[PACK_Q6_K] = { 256, 210, 256, 320, 256, 128, 32, false, .has_halves = true, .sc_at = 64 },
	[PACK_IQ4_NL] = { 32, 18, 32, 32, 256, 0, 0, false, .values = pack_iq4_values },
	[PACK_IQ4_XS] = { 256, 136, 256, 160, 256, 0, 0, false, .sc_at = 32,
			  .values = pack_iq4_values },
	[PACK_BF16] = { 1, 2, 0, 0, 32, 0, 0, false },
	[PACK_MXFP4] = { 32, 17, 32, 16, 256, 0, 0, false, .values = pack_fp4_values },
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

/* ---- groups ---------------------------------------------------------------- */

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
			struct pack_lane to = {
				dst + (uint64_t)b * format->scale_bytes,
				dst + offsets.codes + (uint64_t)b * blocks * format->code_bytes +
					4 * r,
				dst + offsets.high + (uint64_t)b * blocks * format->high_bytes +
					4 * r,
				r,
			};

			pack_put_block(m->type, &to,
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

			float m = block.m[r] * (float)block.mn[k / 16][r];

			out[b * ACT_BLOCK + k] = format->has_min ? fmaf(d, q, m) : d * q;
		}
	}
}
