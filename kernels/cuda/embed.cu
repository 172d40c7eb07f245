/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embedding: the residual's first value is a row of the model's table, expanded
 * from the file's own codes to float32 and scaled. A CTA a token;
 * a token that the step before drew is read where it lies, before the host knows it.
 * Bytes: a row of the table, 4 a column out. Bound: the launch.
 */
#include "kernels/cuda/layer_params.h"
#include "kernels/cuda/tma.cuh"

static __device__ __forceinline__ float half_at(const uint8_t *from)
{
	uint16_t half = (uint16_t)(from[0] | from[1] << 8);
	float value;

	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
	return value;
}

/* Blocks of 32: f16 d, then i8 [32]. */
static __device__ __forceinline__ float q8_0_at(const uint8_t *row, uint32_t k)
{
	const uint8_t *block = row + k / 32 * 34;

	return __fmul_rn(half_at(block), (float)(int8_t)block[2 + k % 32]);
}

/* Blocks of 256: u8 low[128], u8 high[64], i8 scale[16], f16 d. */
static __device__ __forceinline__ float q6_k_at(const uint8_t *row, uint32_t k)
{
	const uint8_t *block = row + k / 256 * 210;
	uint32_t half = k % 256 / 128, in = k % 128; /* in: four runs of 32 */
	uint32_t low = block[half * 64 + in % 64] >> (in / 64 * 4) & 15;
	uint32_t high = block[128 + half * 32 + in % 32] >> (in / 32 * 2) & 3;
	int code = (int)(low | high << 4) - 32;
	int scale = (int8_t)block[192 + k % 256 / 16];

	return __fmul_rn(half_at(block + 208), (float)(scale * code));
}

static __device__ __forceinline__ float value_at(const struct gpu_embed_params *p,
						 const uint8_t *row, uint32_t k)
{
	switch (p->type) {
	case GPU_EMBED_F32:
		return ((const float *)row)[k];
	case GPU_EMBED_F16:
		return half_at(row + 2 * k);
	case GPU_EMBED_BF16:
		return __uint_as_float((uint32_t)((const uint16_t *)row)[k] << 16);
	case GPU_EMBED_Q8_0:
		return q8_0_at(row, k);
	default:
		return q6_k_at(row, k);
	}
}

extern "C" __global__ void __launch_bounds__(GPU_ROW_THREADS)
	embed(const __grid_constant__ struct gpu_embed_params p)
{
	const uint8_t *row;
	float *out = p.out + (size_t)blockIdx.x * p.nr_cols;
	int32_t token;

	grid_begin();
	token = p.tokens[blockIdx.x];
	if (token < 0)
		token = p.drawn[(size_t)~token * p.drawn_stride];
	row = (const uint8_t *)p.table + (uint64_t)(uint32_t)token * p.row_bytes;
	for (uint32_t k = threadIdx.x; k < p.nr_cols; k += GPU_ROW_THREADS)
		out[k] = __fmul_rn(value_at(&p, row, k), p.scale);
}
