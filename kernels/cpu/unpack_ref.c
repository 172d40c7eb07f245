/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One packed block (32 values of 16 rows) in plain integers and floats: what
 * the plain C linear kernels and pack_row_f32() compute with, and what the
 * fast kernels are checked against. Pure functions; any thread.
 */
#include "kernels/cpu/kernels_private.h"

/* Code of value k = 4 i + c at lane byte @at = 4 r + c. */
static unsigned int code_at(const struct pack_format *format, const uint8_t *codes,
			    const uint8_t *high, unsigned int i, unsigned int at)
{
	unsigned int code, low_bits = 4;

	if (format->code_bytes == 512)
		return codes[64 * i + at];
	if (format->code_bytes == 128) {
		code = codes[64 * (i / 4) + at] >> (2 * (i % 4)) & 3;
		low_bits = 2;
	} else {
		code = codes[64 * (i % 4) + at] >> (4 * (i / 4)) & 15;
	}
	if (format->high_bytes == 64)
		code |= (high[at] >> i & 1) << low_bits;
	else if (format->high_bytes == 128)
		code |= (high[64 * (i / 4) + at] >> (2 * (i % 4)) & 3) << low_bits;
	return code;
}

static void unpack_codes(const struct pack_format *format, const struct pack_planes *planes,
			 uint32_t block, int16_t (*q)[PACK_ROWS])
{
	const uint8_t *codes = planes->codes + (uint64_t)block * format->code_bytes;
	const uint8_t *high = planes->high + (uint64_t)block * format->high_bytes;

	for (unsigned int k = 0; k < ACT_BLOCK; k++) {
		for (unsigned int r = 0; r < PACK_ROWS; r++) {
			unsigned int code = code_at(format, codes, high, k / 4, 4 * r + k % 4);

			q[k][r] = format->values ? format->values[code] :
						   (int16_t)((int)code - format->offset);
		}
	}
}

static void unpack_simple_scales(enum pack_type type, const uint8_t *scales,
				 struct unpacked_block *out_block)
{
	bool has_min = pack_format_get(type)->has_min;

	for (unsigned int r = 0; r < PACK_ROWS; r++) {
		out_block->d[r] = type == PACK_MXFP4 ? e8m0_half_to_f32(scales[r]) :
						       f16_to_f32(load_u16(scales + 2 * r));
		out_block->m[r] = has_min ? f16_to_f32(load_u16(scales + 32 + 2 * r)) : 0;
		for (unsigned int half = 0; half < 2; half++) {
			out_block->sc[half][r] = 1;
			out_block->mn[half][r] = 1;
		}
	}
}

static void unpack_super_scales(const struct pack_format *format, const uint8_t *scales,
				unsigned int sub, struct unpacked_block *out_block)
{
	for (unsigned int r = 0; r < PACK_ROWS; r++) {
		float dmin = format->has_min ? f16_to_f32(load_u16(scales + 32 + 2 * r)) : 0;

		out_block->d[r] = f16_to_f32(load_u16(scales + 2 * r));
		out_block->m[r] = format->has_min ? -dmin : 0;
		for (unsigned int half = 0; half < 2; half++) {
			unsigned int s = format->has_halves ? 2 * sub + half : sub;
			uint8_t sc = scales[format->sc_at + 16 * s + r];
			int16_t *to = &out_block->sc[half][r];

			out_block->mn[half][r] = 1;
			if (!format->has_min) {
				*to = (int8_t)sc;
			} else if (format->has_halves) {
				*to = sc & 15;
				out_block->mn[half][r] = sc >> 4;
			} else {
				*to = sc;
			}
		}
		if (format->has_min && !format->has_halves)
			out_block->m[r] = -(dmin * (float)scales[192 + 16 * sub + r]);
	}
}

void unpack_block_ref(enum pack_type type, const struct pack_planes *planes, uint32_t block,
		      struct unpacked_block *out_block)
{
	const struct pack_format *format = pack_format_get(type);
	uint32_t per_entry = format->scale_values / ACT_BLOCK;
	const uint8_t *scales =
		planes->scales + (uint64_t)(block / per_entry) * format->scale_bytes;

	unpack_codes(format, planes, block, out_block->q);
	if (per_entry == 1)
		unpack_simple_scales(type, scales, out_block);
	else
		unpack_super_scales(format, scales, block % per_entry, out_block);
}
