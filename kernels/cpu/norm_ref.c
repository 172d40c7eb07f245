/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain C of the elementwise and reducing kernels: norm, gates, sums. They
 * define the bits (kernels_cpu.h); vector versions must equal them. Pure
 * functions, any thread.
 */
#include <math.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/kernels_private.h"

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

void rms_norm_ref(const float *x, const float *w, uint32_t n, float eps, bool add, float *out)
{
	float lanes[LANES] = { 0 };
	float s;

	for (uint32_t i = 0; i < n; i++)
		lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
	s = 1.0f / sqrtf(fold_lanes(lanes) / (float)n + eps);
	for (uint32_t i = 0; i < n; i++) {
		float y = (x[i] * s) * w[i];

		out[i] = add ? out[i] + y : y;
	}
}

void gate_ref(enum gate_kind kind, const float *g, const float *u, uint32_t n, float *h)
{
	/* sqrt(2 / pi), and that times 0.044715 */
	const float a = 0x1.988454p-1f, b = 0x1.2444f2p-5f;

	for (uint32_t i = 0; i < n; i++) {
		float x = g[i];

		if (kind == GATE_SILU) {
			h[i] = x / (1.0f + fmath_exp(-x)) * u[i];
		} else {
			float t = fmath_tanh(x * fmaf(x * x, b, a));

			h[i] = (0.5f * x) * (1.0f + t) * u[i];
		}
	}
}

void add_ref(float *y, const float *x, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = y[i] + x[i];
}

void scale_ref(float *y, float s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = y[i] * s;
}

void softcap_ref(float *y, float cap, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = cap * fmath_tanh(y[i] / cap);
}

uint32_t argmax_ref(const float *x, uint32_t n)
{
	uint32_t best = 0;
	float max = -INFINITY;

	for (uint32_t i = 0; i < n; i++) {
		if (x[i] > max) {
			max = x[i];
			best = i;
		}
	}
	return best;
}

float exp_sum_ref(const float *x, float max, float inv_temp, uint32_t n, float *out)
{
	float lanes[LANES] = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		float p = fmath_exp((x[i] - max) * inv_temp);

		lanes[i % LANES] = lanes[i % LANES] + p;
		if (out)
			out[i] = p;
	}
	return fold_lanes(lanes);
}
