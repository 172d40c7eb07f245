/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMS norm of a row, with the addition to the residual that comes before or
 * behind it in the same pass: see struct gpu_norm_params.
 *
 * A CTA a row; a thread takes pairs of columns 512 apart, so the order of a
 * sum depends on the length alone. Bytes: 4 to 12 of float32 in and out a
 * value, 2 of bf16. Bound: memory; few rows: latency of one barrier.
 */
#include "kernels/cuda/attn_math.cuh"
#include "kernels/cuda/row_sum.cuh"
#include "kernels/cuda/tma.cuh"

extern "C" __global__ void __launch_bounds__(GPU_ROW_THREADS)
	rms_norm(const __grid_constant__ struct gpu_norm_params p)
{
	size_t row;
	float2 *x;
	const float2 *y;
	const float2 *w = (const float2 *)p.w;
	uint32_t *out = (uint32_t *)p.out + (size_t)blockIdx.x * (p.nr_cols / 2);
	uint32_t nr = p.nr_cols / 2;
	float sum = 0.0f, scale;

	grid_begin();
	row = p.rows ? p.rows[blockIdx.x] : blockIdx.x;
	x = (float2 *)(p.x + row * p.nr_cols);
	y = (const float2 *)(p.y + row * p.nr_cols);
	for (uint32_t i = threadIdx.x; i < nr; i += GPU_ROW_THREADS) {
		float2 v = p.is_post ? y[i] : x[i];

		if (p.y && !p.is_post) {
			float2 more = y[i];

			v.x = __fadd_rn(v.x, more.x);
			v.y = __fadd_rn(v.y, more.y);
			x[i] = v;
		}
		sum = __fmaf_rn(v.x, v.x, sum);
		sum = __fmaf_rn(v.y, v.y, sum);
	}
	sum = cta_sum(sum);
	scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)p.nr_cols), p.eps)));
	for (uint32_t i = threadIdx.x; i < nr; i += GPU_ROW_THREADS) {
		float2 v = p.is_post ? y[i] : x[i];
		float2 weight = w[i];

		v.x = __fmul_rn(__fmul_rn(v.x, scale), weight.x);
		v.y = __fmul_rn(__fmul_rn(v.y, scale), weight.y);
		if (p.is_post) {
			float2 old = x[i];

			x[i] = make_float2(__fadd_rn(old.x, v.x), __fadd_rn(old.y, v.y));
		} else {
			out[i] = pack_bf16(v.x, v.y);
		}
	}
}
