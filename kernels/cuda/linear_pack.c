/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing of a linear layer's weights for the CUDA kernels: the layout stands in linear_pack.h. A
 * tile's codes are spread out to one byte (or bf16) each, then put where the lanes want them.
 */
#include "kernels/cuda/linear_pack.h"

#include <stddef.h>
#include <string.h>

enum {
	ROWS = GPU_LINEAR_GROUP_ROWS,
	TILE_K = GPU_LINEAR_TILE_K,
	MAX_BLOCK = 256, /* values of a block of the file */
};

struct linear_format {
	uint16_t source_values; /* values of a block of the file */
	uint16_t source_bytes;
	uint16_t unit_k; /* K is a multiple of it */
	uint16_t tile_bytes;
};

static const struct linear_format formats[] = {
	[GPU_LINEAR_Q4_0] = { 32, 18, 64, GPU_LINEAR_TILE_Q4_0 },
	[GPU_LINEAR_Q4_1] = { 32, 20, 64, GPU_LINEAR_TILE_Q4_1 },
	[GPU_LINEAR_Q5_0] = { 32, 22, 64, GPU_LINEAR_TILE_Q5_0 },
	[GPU_LINEAR_Q8_0] = { 32, 34, 64, GPU_LINEAR_TILE_Q8_0 },
	[GPU_LINEAR_Q4_K] = { 256, 144, 256, GPU_LINEAR_TILE_Q4_K },
	[GPU_LINEAR_Q6_K] = { 256, 210, 256, GPU_LINEAR_TILE_Q6_K },
	[GPU_LINEAR_BF16] = { 1, 2, 64, GPU_LINEAR_TILE_BF16 },
};

static const struct linear_format *format_get(enum gpu_linear_type type, uint32_t nr_cols)
{
	const struct linear_format *format;

	if ((unsigned)type >= sizeof(formats) / sizeof(formats[0]))
		return NULL;
	format = &formats[type];
	if (format->unit_k == 0 || nr_cols == 0 || nr_cols % format->unit_k)
		return NULL;
	return format;
}

static uint32_t nr_tiles_of(uint32_t nr_cols)
{
	return nr_cols / TILE_K + (nr_cols % TILE_K != 0);
}

uint64_t gpu_linear_packed_bytes(enum gpu_linear_type type, uint32_t nr_rows, uint32_t nr_cols)
{
	const struct linear_format *format = format_get(type, nr_cols);
	uint64_t total;

	if (!format || nr_rows == 0 || nr_rows % 8)
		return 0;
	if (__builtin_mul_overflow(((uint64_t)nr_rows + ROWS - 1) / ROWS,
				   (uint64_t)nr_tiles_of(nr_cols) * format->tile_bytes, &total))
		return 0;
	return total;
}

uint64_t gpu_linear_source_row_bytes(enum gpu_linear_type type, uint32_t nr_cols)
{
	const struct linear_format *format = format_get(type, nr_cols);

	return format ? (uint64_t)nr_cols / format->source_values * format->source_bytes : 0;
}

/* ---- one block of the file to one byte a code ---------------------------- */

static void spread_nibbles(const uint8_t *src, uint8_t *codes)
{
	for (unsigned int i = 0; i < 16; i++) {
		codes[i] = src[i] & 15;
		codes[i + 16] = src[i] >> 4;
	}
}

static void spread_fifth_bits(const uint8_t *src, uint8_t *codes)
{
	for (unsigned int k = 0; k < 32; k++)
		codes[k] |= (src[k / 8] >> (k % 8) & 1) << 4;
}

static void spread_q4_k(const uint8_t *src, uint8_t *codes)
{
	for (unsigned int k = 0; k < 256; k++)
		codes[k] = src[16 + k / 64 * 32 + k % 32] >> (k / 32 % 2 * 4) & 15;
}

static void spread_q6_k(const uint8_t *src, uint8_t *codes)
{
	for (unsigned int k = 0; k < 256; k++) {
		unsigned int half = k / 128, quarter = k / 32 % 4, i = k % 32;
		unsigned int low = src[64 * half + 32 * (quarter & 1) + i] >> (4 * (quarter >> 1)) &
				   15;
		unsigned int high = src[128 + 32 * half + i] >> (2 * quarter) & 3;

		codes[k] = (uint8_t)(low | high << 4);
	}
}

static void spread(enum gpu_linear_type type, const uint8_t *src, uint8_t *codes)
{
	switch (type) {
	case GPU_LINEAR_Q4_0:
		spread_nibbles(src + 2, codes);
		break;
	case GPU_LINEAR_Q4_1:
		spread_nibbles(src + 4, codes);
		break;
	case GPU_LINEAR_Q5_0:
		spread_nibbles(src + 6, codes);
		spread_fifth_bits(src + 2, codes);
		break;
	case GPU_LINEAR_Q8_0:
		for (unsigned int i = 0; i < 32; i++)
			codes[i] = src[2 + i] ^ 128;
		break;
	case GPU_LINEAR_Q4_K:
		spread_q4_k(src, codes);
		break;
	case GPU_LINEAR_Q6_K:
		spread_q6_k(src, codes);
		break;
	case GPU_LINEAR_BF16:
		break; /* not by codes, see put_bf16() */
	}
}

/* ---- codes and scales of one row into a tile ------------------------------ */

/* Where (row r, k) of a tile goes: step, lane, pair j, and which of the pair. */
struct place {
	unsigned int step;
	unsigned int lane;
	unsigned int j;
	unsigned int is_hi;
};

static struct place place_of(unsigned int r, unsigned int k)
{
	return (struct place){ k / 16, r % 8 * 4 + k % 8 / 2, r / 8 + k / 8 % 2 * 2, k % 2 };
}

/* Words are little-endian, as the GPU's; bits of a byte never straddle it. */
static void or_bits(uint8_t *words, unsigned int word, unsigned int bit, unsigned int bits)
{
	words[4 * word + bit / 8] |= (uint8_t)(bits << (bit % 8));
}

static void put_bf16(uint8_t *tile, unsigned int r, const uint8_t *src, unsigned int nr)
{
	for (unsigned int k = 0; k < nr; k++) {
		struct place p = place_of(r, k);

		memcpy(tile + 512 * p.step + 16 * p.lane + 4 * p.j + 2 * p.is_hi, src + 2 * k, 2);
	}
}

static void put_codes(enum gpu_linear_type type, uint8_t *tile, unsigned int r,
		      const uint8_t *codes, unsigned int nr)
{
	for (unsigned int k = 0; k < nr; k++) {
		struct place p = place_of(r, k);
		unsigned int half = p.step / 4;

		if (type == GPU_LINEAR_Q8_0) {
			tile[512 * (p.step / 2) + 16 * p.lane + 8 * (p.step % 2) + 4 * (p.j / 2) +
			     2 * p.is_hi + p.j % 2] = codes[k];
			continue;
		}
		or_bits(tile + 512 * half, 4 * p.lane + p.step % 4, 4 * p.j + 16 * p.is_hi,
			codes[k] & 15);
		if (type == GPU_LINEAR_Q5_0)
			or_bits(tile + 1024 + 128 * half, p.lane,
				4 * (p.step % 4) + p.j + 16 * p.is_hi, codes[k] >> 4);
		if (type == GPU_LINEAR_Q6_K)
			or_bits(tile + 1024 + 256 * half, 2 * p.lane + p.step / 2 % 2,
				2 * (4 * (p.step % 2) + p.j) + 16 * p.is_hi, codes[k] >> 4);
	}
}

/* Sub-scales and mins of Q4_K: eight pairs of 6 bits in 12 bytes; those of one half. */
static void put_q4_k_scales(uint8_t *scales, unsigned int r, const uint8_t *src, unsigned int half)
{
	const uint8_t *q = src + 4;
	uint8_t *d = scales + 128 + r % 8 * 8 + r / 8 * 2;

	for (unsigned int i = 0; i < 4; i++) {
		uint8_t *to = scales + r % 8 * 16 + i * 4 + r / 8;

		to[0] = half ? (q[i + 8] & 15) | q[i] >> 6 << 4 : q[i] & 63;
		to[2] = half ? q[i + 8] >> 4 | q[i + 4] >> 6 << 4 : q[i + 4] & 63;
	}
	memcpy(d, src, 2);
	memcpy(d + 4, src + 2, 2);
}

static void put_q6_k_scales(uint8_t *scales, unsigned int r, const uint8_t *src, unsigned int half)
{
	for (unsigned int s = 0; s < 8; s++)
		scales[r % 8 * 16 + s * 2 + r / 8] = src[192 + 8 * half + s];
	memcpy(scales + 128 + r % 8 * 4 + r / 8 * 2, src + 208, 2);
}

/* d of a tile's blocks, or d and m, side by side in the file and in planes here. */
static void put_simple_scales(const struct linear_format *format, uint8_t *tile, unsigned int r,
			      const uint8_t *src, unsigned int nr_blocks, unsigned int nr_planes)
{
	for (unsigned int b = 0; b < nr_blocks; b++)
		for (unsigned int i = 0; i < nr_planes; i++)
			memcpy(tile + format->tile_bytes - 128 * (nr_planes - i) + r % 8 * 16 +
				       b * 4 + r / 8 * 2,
			       src + b * format->source_bytes + 2 * i, 2);
}

/* Row @r of the tile whose first column is @k, @nr of them in the matrix; @src: the whole row. */
static void put_row(enum gpu_linear_type type, const struct linear_format *format, uint8_t *tile,
		    unsigned int r, const uint8_t *src, uint32_t k, unsigned int nr)
{
	unsigned int half = k % 256 / 128; /* of a super-block */
	uint8_t codes[MAX_BLOCK];

	src += (uint64_t)(k / format->source_values) * format->source_bytes;
	switch (type) {
	case GPU_LINEAR_BF16:
		put_bf16(tile, r, src, nr);
		break;
	case GPU_LINEAR_Q4_K:
		spread(type, src, codes);
		put_codes(type, tile, r, codes + 128 * half, 128);
		put_q4_k_scales(tile + 1024, r, src, half);
		break;
	case GPU_LINEAR_Q6_K:
		spread(type, src, codes);
		put_codes(type, tile, r, codes + 128 * half, 128);
		put_q6_k_scales(tile + 1024 + 512, r, src, half);
		break;
	default:
		for (unsigned int b = 0; b < nr / 32; b++)
			spread(type, src + b * format->source_bytes, codes + 32 * b);
		put_codes(type, tile, r, codes, nr);
		put_simple_scales(format, tile, r, src, nr / 32, type == GPU_LINEAR_Q4_1 ? 2 : 1);
	}
}

void gpu_linear_pack(enum gpu_linear_type type, uint32_t nr_rows, uint32_t nr_cols, const void *src,
		     uint32_t first_group, uint32_t end_group, void *dst)
{
	const struct linear_format *format = format_get(type, nr_cols);
	uint64_t row_bytes = gpu_linear_source_row_bytes(type, nr_cols);
	uint64_t nr_groups = ((uint64_t)nr_rows + ROWS - 1) / ROWS;
	uint32_t nr_tiles = nr_tiles_of(nr_cols);

	for (uint32_t group = first_group; group < end_group; group++) {
		uint32_t first_row = group * ROWS;
		unsigned int nr = nr_rows - first_row < ROWS ? nr_rows - first_row : ROWS;

		for (uint32_t t = 0; t < nr_tiles; t++) {
			uint32_t left = nr_cols - t * TILE_K;
			uint8_t *tile =
				(uint8_t *)dst + (t * nr_groups + group) * format->tile_bytes;

			memset(tile, 0, format->tile_bytes);
			for (unsigned int r = 0; r < nr; r++)
				put_row(type, format, tile, r,
					(const uint8_t *)src + (first_row + r) * row_bytes,
					t * TILE_K, left < TILE_K ? left : TILE_K);
		}
	}
}
