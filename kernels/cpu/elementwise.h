/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of the elementwise and reducing kernels: norm, gates, sums, rotation,
 * append. Plain C over runs of 16 lanes, with every fused operation written
 * out, so that the same text compiled for AVX2 or AVX-512 gives the same bits
 * in vectors: the compiler may not reorder it (no -ffast-math).
 *
 * Included by elementwise_{ref,avx2,avx512}.c, which define ELEMENTWISE(name)
 * (the function's name there) and, where the instruction set has it, TO_F16.
 */
#include <math.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/kernels_private.h"

#ifndef TO_F16
#define TO_F16(x) f32_to_f16(x)
#endif

enum {
	LANES = 16,
};

/* The fixed tree: lane j takes lane j + 8, then + 4, + 2, + 1. */
static float fold_lanes(float lanes[LANES])
{
	for (int half = LANES / 2; half; half /= 2)
		for (int j = 0; j < half; j++)
			lanes[j] = lanes[j] + lanes[j + half];
	return lanes[0];
}

void ELEMENTWISE(rms_norm)(const float *x, const float *w, uint32_t n, float eps, bool add,
			   float *out)
{
	float lanes[LANES] = { 0 };
	uint32_t whole = n - n % LANES;
	float s;

	for (uint32_t i = 0; i < whole; i += LANES)
		for (int j = 0; j < LANES; j++)
			lanes[j] = fmaf(x[i + j], x[i + j], lanes[j]);
	for (uint32_t i = whole; i < n; i++)
		lanes[i - whole] = fmaf(x[i], x[i], lanes[i - whole]);
	s = 1.0f / sqrtf(fold_lanes(lanes) / (float)n + eps);
	if (add) {
		for (uint32_t i = 0; i < n; i++)
			out[i] = out[i] + (x[i] * s) * w[i];
	} else {
		for (uint32_t i = 0; i < n; i++)
			out[i] = (x[i] * s) * w[i];
	}
}

void ELEMENTWISE(gate)(enum gate_kind kind, const float *g, const float *u, uint32_t n, float *h)
{
	/* sqrt(2 / pi), and that times 0.044715 */
	const float a = 0x1.988454p-1f, b = 0x1.2444f2p-5f;

	if (kind == GATE_SILU) {
		for (uint32_t i = 0; i < n; i++)
			h[i] = g[i] / (1.0f + fmath_exp(-g[i])) * u[i];
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		float t = fmath_tanh(g[i] * fmaf(g[i] * g[i], b, a));

		h[i] = (0.5f * g[i]) * (1.0f + t) * u[i];
	}
}

void ELEMENTWISE(add)(float *y, const float *x, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = y[i] + x[i];
}

void ELEMENTWISE(scale)(float *y, float s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = y[i] * s;
}

void ELEMENTWISE(softcap)(float *y, float cap, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = cap * fmath_tanh(y[i] / cap);
}

uint32_t ELEMENTWISE(argmax)(const float *x, uint32_t n)
{
	float lanes[LANES], max = -INFINITY;
	uint32_t whole = n - n % LANES;

	for (int j = 0; j < LANES; j++)
		lanes[j] = -INFINITY;
	for (uint32_t i = 0; i < whole; i += LANES)
		for (int j = 0; j < LANES; j++)
			lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
	for (uint32_t i = whole; i < n; i++)
		max = x[i] > max ? x[i] : max;
	for (int j = 0; j < LANES; j++)
		max = lanes[j] > max ? lanes[j] : max;
	/* Nothing is above -inf: the first. */
	for (uint32_t i = 0; i < n && max > -INFINITY; i++)
		if (x[i] == max)
			return i;
	return 0;
}

float ELEMENTWISE(exp_sum)(const float *x, float max, float inv_temp, uint32_t n, float *out)
{
	float lanes[LANES] = { 0 };
	uint32_t whole = n - n % LANES;

	for (uint32_t i = 0; i < whole; i += LANES) {
		float p[LANES];

		for (int j = 0; j < LANES; j++)
			p[j] = fmath_exp((x[i + j] - max) * inv_temp);
		for (int j = 0; j < LANES; j++)
			lanes[j] = lanes[j] + p[j];
		if (out)
			memcpy(out + i, p, sizeof(p));
	}
	for (uint32_t i = whole; i < n; i++) {
		float p = fmath_exp((x[i] - max) * inv_temp);

		lanes[i - whole] = lanes[i - whole] + p;
		if (out)
			out[i] = p;
	}
	return fold_lanes(lanes);
}

void ELEMENTWISE(rope)(float *head, const struct rope_args *args)
{
	uint32_t half = args->nr_rot / 2;
	const float *cs = args->cos_sin;

	if (args->neox) {
		float *restrict a = head, *restrict b = head + half;

		for (uint32_t i = 0; i < half; i++) {
			float x = a[i], y = b[i];

			a[i] = fmaf(x, cs[2 * i], -(y * cs[2 * i + 1]));
			b[i] = fmaf(x, cs[2 * i + 1], y * cs[2 * i]);
		}
		return;
	}
	for (uint32_t i = 0; i < half; i++) {
		float x = head[2 * i], y = head[2 * i + 1];

		head[2 * i] = fmaf(x, cs[2 * i], -(y * cs[2 * i + 1]));
		head[2 * i + 1] = fmaf(x, cs[2 * i + 1], y * cs[2 * i]);
	}
}

void ELEMENTWISE(append)(const struct append_args *args)
{
	const struct attn_layout *l = args->layout;
	uint32_t d = l->head_dim, t = args->token;
	size_t k_at =
		(size_t)(t / ATTN_GROUP_TOKENS) * d * ATTN_GROUP_TOKENS + t % ATTN_GROUP_TOKENS;

	for (uint32_t h = 0; h < l->nr_kv_heads; h++) {
		uint8_t *run = args->tile + attn_run_offset(l, args->layer, h);
		const float *k = args->k + (size_t)h * d, *v = args->v + (size_t)h * d;

		if (l->elem == ATTN_F16) {
			uint16_t *kr = (uint16_t *)run + k_at;
			uint16_t *vr = (uint16_t *)(run + l->v_offset_bytes) + (size_t)t * d;

			for (uint32_t i = 0; i < d; i++)
				kr[(size_t)i * ATTN_GROUP_TOKENS] = TO_F16(k[i]);
			for (uint32_t i = 0; i < d; i++)
				vr[i] = TO_F16(v[i]);
		} else {
			float *kr = (float *)run + k_at;

			for (uint32_t i = 0; i < d; i++)
				kr[(size_t)i * ATTN_GROUP_TOKENS] = k[i];
			memcpy((float *)(run + l->v_offset_bytes) + (size_t)t * d, v,
			       d * sizeof(float));
		}
	}
}
