/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight formats of the linear kernels: how a lane reads its part of a packed
 * tile (linear_pack.h) and makes MMA fragments of it. Codes become bf16
 * integers, which are exact; scales stay float32 and are applied to the sums
 * of a block, so the weights that a kernel multiplies with are the file's own.
 *
 * A format has:
 *   TILE_BYTES
 *   SCALE_STEPS  k16 steps under one scale, 0: none
 *   HAS_MIN      a block of 32 has a minimum to add
 *   load         the lane's part of 64 k: `half` 0 or 1 of the tile
 *   fragment<s>  A[16 rows][16 k] of step s = 0..3 of those
 *   scale, min   of rows g, g + 8, block or step b of those; min in the
 *                fragments' scale
 */
#ifndef TARN_KERNELS_CUDA_LINEAR_FORMATS_CUH
#define TARN_KERNELS_CUDA_LINEAR_FORMATS_CUH

#include <stdint.h>
#include "kernels/cuda/linear_pack.h"

/* What a lane holds of 64 k; a format leaves unused what it does not need. */
struct linear_raw {
	uint32_t code[16];
	uint32_t high[2];
	uint32_t scale[2];
	uint32_t extra[2];
};

static __device__ __forceinline__ void read_u4(uint32_t *to, const uint8_t *from)
{
	uint4 v = *(const uint4 *)from;

	to[0] = v.x;
	to[1] = v.y;
	to[2] = v.z;
	to[3] = v.w;
}

static __device__ __forceinline__ void read_u2(uint32_t *to, const uint8_t *from)
{
	uint2 v = *(const uint2 *)from;

	to[0] = v.x;
	to[1] = v.y;
}

/* Two f16 to float, exact. */
static __device__ __forceinline__ void read_halves(uint32_t both, float (&to)[2])
{
	asm("{\n"
	    ".reg .b16 lo, hi;\n"
	    "mov.b32 {lo, hi}, %2;\n"
	    "cvt.f32.f16 %0, lo;\n"
	    "cvt.f32.f16 %1, hi;\n"
	    "}\n"
	    : "=f"(to[0]), "=f"(to[1])
	    : "r"(both));
}

/*
 * 2^23 + byte i of `word`, whose bits are the byte's: conversions run at a
 * quarter of the rate.
 */
static __device__ __forceinline__ float shifted_byte(uint32_t word, int i)
{
	return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7540 + i));
}

/* d times byte i, d times (byte i - 128): exact both ways, d has 11 bits. */
static __device__ __forceinline__ float times_u8(float d, uint32_t word, int i)
{
	return __fmaf_rn(d, shifted_byte(word, i), __fmul_rn(d, -8388608.0f));
}

static __device__ __forceinline__ float times_s8(float d, uint32_t word, int i)
{
	return __fmul_rn(d, __fadd_rn(shifted_byte(word, i), -8388608.0f - 128.0f));
}

/*
 * From codes to bf16 without shifts: a bf16 whose upper byte is zero is the
 * integer in its lower byte times 2^-133, exactly (exponents 0, which is that of
 * the subnormals, and 1 have the same step). So bits of a code are masked where
 * they stand, in both halves of a word, and one fused multiply-add brings them
 * to their place and takes the offset away. All of it is exact: eight bits of
 * mantissa hold every code. Fragments come out CODE_SCALE times too small, which
 * end_scale() puts right once a chunk; powers of two change no rounding.
 */
enum { CODE_SCALE_LOG2 = -10 };

static __device__ __forceinline__ float end_scale(float acc)
{
	return __fmul_rn(acc, 1024.0f);
}

/* 2^e in both halves. */
static __device__ __forceinline__ constexpr uint32_t bf16x2_power(int e)
{
	return (uint32_t)(e + 127) << 7 | (uint32_t)(e + 127) << 23;
}

/* -2^e times 2^CODE_SCALE_LOG2 in both halves: what is taken from codes of offset 2^e. */
static __device__ __forceinline__ constexpr uint32_t minus_offset(int e)
{
	return 0x80008000 | bf16x2_power(e + CODE_SCALE_LOG2);
}

/* The bits under `mask`, of which `at` is the lowest, as 2^weight times their integer, + add. */
static __device__ __forceinline__ uint32_t take_bits(uint32_t word, uint32_t mask, int at,
						     int weight, uint32_t add)
{
	uint32_t d;

	asm("fma.rn.bf16x2 %0, %1, %2, %3;"
	    : "=r"(d)
	    : "r"(word & mask << at), "r"(bf16x2_power(133 + CODE_SCALE_LOG2 + weight - at)),
	      "r"(add));
	return d;
}

/* Upper bytes of both halves to the lower ones; what is above them is zero. */
static __device__ __forceinline__ uint32_t upper_bytes(uint32_t word)
{
	return __byte_perm(word, 0, 0x4341);
}

/* Pair j of a word of 2 x 4 nibbles. */
static __device__ __forceinline__ uint32_t take_nibbles(uint32_t word, int j, uint32_t add)
{
	return take_bits(j < 2 ? word : upper_bytes(word), 0x000f000f, j % 2 * 4, 0, add);
}

/* Bits from `at` = 0..15 (and `at` + 16) on, as many as `mask` has: bit 4 and up of a code. */
static __device__ __forceinline__ uint32_t take_high(uint32_t word, int at, uint32_t mask,
						     uint32_t add)
{
	return take_bits(at < 8 ? word : upper_bytes(word), mask, at % 8, 4, add);
}

struct linear_bf16 {
	enum { TILE_BYTES = GPU_LINEAR_TILE_BF16, SCALE_STEPS = 0, HAS_MIN = 0 };

	static __device__ __forceinline__ void load(const uint8_t *tile, int half, uint32_t lane,
						    linear_raw &raw)
	{
#pragma unroll
		for (int s = 0; s < 4; s++)
			read_u4(raw.code + 4 * s, tile + 2048 * half + 512 * s + 16 * lane);
	}

	template <int s>
	static __device__ __forceinline__ void fragment(const linear_raw &raw, uint32_t (&a)[4])
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			a[j] = raw.code[4 * s + j];
	}
};

/* Formats whose tile ends in d, or d and m, of its blocks. */
template <int tile_bytes, int has_min> struct linear_simple {
	enum { TILE_BYTES = tile_bytes, SCALE_STEPS = 2, HAS_MIN = has_min };

	static __device__ __forceinline__ void load_scales(const uint8_t *tile, int half,
							   uint32_t lane, linear_raw &raw)
	{
		const uint8_t *from =
			tile + tile_bytes - 128 * (1 + has_min) + lane / 4 * 16 + half * 8;

		read_u2(raw.scale, from);
		if (has_min)
			read_u2(raw.extra, from + 128);
	}

	static __device__ __forceinline__ void scale(const linear_raw &raw, int b, float (&d)[2])
	{
		read_halves(raw.scale[b], d);
	}

	static __device__ __forceinline__ void min(const linear_raw &raw, int b, float (&m)[2])
	{
		read_halves(raw.extra[b], m);
		m[0] = __fmul_rn(m[0], 0x1p-10f);
		m[1] = __fmul_rn(m[1], 0x1p-10f);
	}
};

/* add: minus_offset() of the codes, or 0. */
template <int tile_bytes, int has_min, uint32_t add>
struct linear_nibbles : linear_simple<tile_bytes, has_min> {
	static __device__ __forceinline__ void load(const uint8_t *tile, int half, uint32_t lane,
						    linear_raw &raw)
	{
		read_u4(raw.code, tile + 512 * half + 16 * lane);
		linear_simple<tile_bytes, has_min>::load_scales(tile, half, lane, raw);
	}

	template <int s>
	static __device__ __forceinline__ void fragment(const linear_raw &raw, uint32_t (&a)[4])
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			a[j] = take_nibbles(raw.code[s], j, add);
	}
};

typedef linear_nibbles<GPU_LINEAR_TILE_Q4_0, 0, minus_offset(3)> linear_q4_0;
typedef linear_nibbles<GPU_LINEAR_TILE_Q4_1, 1, 0> linear_q4_1;

struct linear_q5_0 : linear_simple<GPU_LINEAR_TILE_Q5_0, 0> {
	static __device__ __forceinline__ void load(const uint8_t *tile, int half, uint32_t lane,
						    linear_raw &raw)
	{
		read_u4(raw.code, tile + 512 * half + 16 * lane);
		raw.high[0] = *(const uint32_t *)(tile + 1024 + 128 * half + 4 * lane);
		load_scales(tile, half, lane, raw);
	}

	template <int s>
	static __device__ __forceinline__ void fragment(const linear_raw &raw, uint32_t (&a)[4])
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			a[j] = take_nibbles(
				raw.code[s], j,
				take_high(raw.high[0], 4 * s + j, 0x00010001, minus_offset(4)));
	}
};

struct linear_q8_0 : linear_simple<GPU_LINEAR_TILE_Q8_0, 0> {
	static __device__ __forceinline__ void load(const uint8_t *tile, int half, uint32_t lane,
						    linear_raw &raw)
	{
		read_u4(raw.code, tile + 1024 * half + 16 * lane);
		read_u4(raw.code + 4, tile + 1024 * half + 512 + 16 * lane);
		load_scales(tile, half, lane, raw);
	}

	template <int s>
	static __device__ __forceinline__ void fragment(const linear_raw &raw, uint32_t (&a)[4])
	{
#pragma unroll
		for (int j = 0; j < 4; j += 2) {
			uint32_t word = raw.code[2 * s + j / 2];

			a[j] = take_bits(word, 0x00ff00ff, 0, 0, minus_offset(7));
			a[j + 1] = take_bits(upper_bytes(word), 0x00ff00ff, 0, 0, minus_offset(7));
		}
	}
};

struct linear_q4_k {
	enum { TILE_BYTES = GPU_LINEAR_TILE_Q4_K, SCALE_STEPS = 2, HAS_MIN = 1 };

	static __device__ __forceinline__ void load(const uint8_t *tile, int half, uint32_t lane,
						    linear_raw &raw)
	{
		read_u4(raw.code, tile + 512 * half + 16 * lane);
		read_u2(raw.extra, tile + 1024 + lane / 4 * 16 + half * 8);
		read_u2(raw.scale, tile + 1024 + 128 + lane / 4 * 8);
	}

	template <int s>
	static __device__ __forceinline__ void fragment(const linear_raw &raw, uint32_t (&a)[4])
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			a[j] = take_nibbles(raw.code[s], j, 0);
	}

	static __device__ __forceinline__ void scale(const linear_raw &raw, int b, float (&d)[2])
	{
		read_halves(raw.scale[0], d);
#pragma unroll
		for (int i = 0; i < 2; i++)
			d[i] = times_u8(d[i], raw.extra[b], i);
	}

	static __device__ __forceinline__ void min(const linear_raw &raw, int b, float (&m)[2])
	{
		read_halves(raw.scale[1], m);
#pragma unroll
		for (int i = 0; i < 2; i++)
			m[i] = times_u8(__fmul_rn(m[i], -0x1p-10f), raw.extra[b], 2 + i);
	}
};

struct linear_q6_k {
	enum { TILE_BYTES = GPU_LINEAR_TILE_Q6_K, SCALE_STEPS = 1, HAS_MIN = 0 };

	static __device__ __forceinline__ void load(const uint8_t *tile, int half, uint32_t lane,
						    linear_raw &raw)
	{
		read_u4(raw.code, tile + 512 * half + 16 * lane);
		read_u2(raw.high, tile + 1024 + 256 * half + 8 * lane);
		read_u2(raw.extra, tile + 1536 + lane / 4 * 16 + half * 8);
		raw.extra[0] ^= 0x80808080;
		raw.extra[1] ^= 0x80808080;
		raw.scale[0] = *(const uint32_t *)(tile + 1536 + 128 + lane / 4 * 4);
	}

	template <int s>
	static __device__ __forceinline__ void fragment(const linear_raw &raw, uint32_t (&a)[4])
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			a[j] = take_nibbles(raw.code[s], j,
					    take_high(raw.high[s / 2], 2 * (4 * (s % 2) + j),
						      0x00030003, minus_offset(5)));
	}

	static __device__ __forceinline__ void scale(const linear_raw &raw, int b, float (&d)[2])
	{
		read_halves(raw.scale[0], d);
#pragma unroll
		for (int i = 0; i < 2; i++) /* int8, 128 added */
			d[i] = times_s8(d[i], raw.extra[b / 2], b % 2 * 2 + i);
	}
};

#endif
