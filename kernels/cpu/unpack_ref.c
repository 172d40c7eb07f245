/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One packed block (32 values of 16 rows) in plain integers and floats: what
 * the plain C linear kernels and pack_row_f32() compute with, and what the
 * fast kernels are checked against. Pure functions; any thread.
 */
#include "kernels/cpu/kernels_private.h"

static void unpack_codes(enum pack_type type, const struct pack_planes *planes, uint32_t block,
			 int16_t (*q)[PACK_ROWS])
{
	const struct pack_format *format = pack_format_get(type);
	const uint8_t *codes = planes->codes + (uint64_t)block * format->code_bytes;
	const uint8_t *high = planes->high + (uint64_t)block * format->high_bytes;

	for (unsigned int k = 0; k < ACT_BLOCK; k++) {
		unsigned int i = k / 4, c = k % 4;

		for (unsigned int r = 0; r < PACK_ROWS; r++) {
			unsigned int at = 4 * r + c;
			unsigned int code;

			if (format->offset == 128)
				code = codes[64 * i + at];
			else
				code = codes[64 * (i % 4) + at] >> (4 * (i / 4)) & 15;
			if (format->high_bytes == 64)
				code |= (high[at] >> i & 1) << 4;
			else if (format->high_bytes == 128)
				code |= (high[64 * (i / 4) + at] >> (2 * (i % 4)) & 3) << 4;
			q[k][r] = (int16_t)((int)code - format->offset);
		}
	}
}

static void unpack_simple_scales(const struct pack_format *format, const uint8_t *scales,
				 struct unpacked_block *out_block)
{
	for (unsigned int r = 0; r < PACK_ROWS; r++) {
		out_block->d[r] = f16_to_f32(load_u16(scales + 2 * r));
		out_block->m[r] = format->has_min ? f16_to_f32(load_u16(scales + 32 + 2 * r)) : 0;
		out_block->sc[0][r] = 1;
		out_block->sc[1][r] = 1;
	}
}

static void unpack_super_scales(const struct pack_format *format, const uint8_t *scales,
				unsigned int sub, struct unpacked_block *out_block)
{
	const uint8_t *sc = scales + 64;
	const uint8_t *mn = scales + 192;

	for (unsigned int r = 0; r < PACK_ROWS; r++) {
		out_block->d[r] = f16_to_f32(load_u16(scales + 2 * r));
		if (format->has_min) {
			float dmin = f16_to_f32(load_u16(scales + 32 + 2 * r));

			out_block->sc[0][r] = sc[16 * sub + r];
			out_block->sc[1][r] = sc[16 * sub + r];
			out_block->m[r] = -(dmin * (float)mn[16 * sub + r]);
		} else {
			out_block->sc[0][r] = (int8_t)sc[16 * (2 * sub) + r];
			out_block->sc[1][r] = (int8_t)sc[16 * (2 * sub + 1) + r];
			out_block->m[r] = 0;
		}
	}
}

void unpack_block_ref(enum pack_type type, const struct pack_planes *planes, uint32_t block,
		      struct unpacked_block *out_block)
{
	const struct pack_format *format = pack_format_get(type);
	uint32_t per_entry = format->scale_values / ACT_BLOCK;
	const uint8_t *scales =
		planes->scales + (uint64_t)(block / per_entry) * format->scale_bytes;

	unpack_codes(type, planes, block, out_block->q);
	if (per_entry == 1)
		unpack_simple_scales(format, scales, out_block);
	else
		unpack_super_scales(format, scales, block % per_entry, out_block);
}
