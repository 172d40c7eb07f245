/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding: tables of cosines and sines from our own double
 * arithmetic, the rotation, and the writing of a token's K and V into its
 * tile. Plain C that defines the bits. Pure functions, any thread.
 */
#include <math.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_private.h"

/* ln 2 in two parts: the first has 33 significant bits, so that n * LN2_HI is exact. */
#define LN2_HI 0x1.62e42feep-1
#define LN2_LO 0x1.a39ef35793c76p-33
/* pi / 2 in three parts of 33 bits and a rest. */
#define PIO2_1 0x1.921fb544p+0
#define PIO2_2 0x1.0b4611a6p-34
#define PIO2_3 0x1.3198a2e037073p-69

/* ln x for normal x > 0: 2 atanh((m - 1) / (m + 1)) by its series, m in [sqrt 1/2, sqrt 2]. */
static double log_double(double x)
{
	int e;
	double m = frexp(x, &e);
	double z, z2, sum = 0;

	if (m < 0x1.6a09e667f3bcdp-1) {
		m = m * 2;
		e--;
	}
	z = (m - 1) / (m + 1);
	z2 = z * z;
	for (int k = 21; k >= 1; k -= 2) /* |z| <= 0.172: the first term left out is below 1e-18 */
		sum = fma(sum, z2, 1.0 / k);
	return fma(e, LN2_HI, fma(e, LN2_LO, 2 * z * sum));
}

/* e^x for |x| < 700 by its series on [-ln 2 / 2, ln 2 / 2]. */
static double exp_double(double x)
{
	double n = nearbyint(x * 0x1.71547652b82fep+0);
	double r = fma(n, -LN2_LO, fma(n, -LN2_HI, x));
	double sum = 1;

	for (int k = 16; k >= 1; k--)
		sum = fma(sum, r / k, 1);
	return ldexp(sum, (int)n);
}

/* sin and cos of x >= 0, x < 2^30: reduce by pi / 2, then their series on [-pi/4, pi/4]. */
static void sincos_double(double x, double *out_sin, double *out_cos)
{
	double n = nearbyint(x * 0x1.45f306dc9c883p-1);
	double r = fma(n, -PIO2_3, fma(n, -PIO2_2, fma(n, -PIO2_1, x)));
	double r2 = r * r, s = 1, c = 1;

	for (int k = 18; k >= 2; k -= 2) {
		c = fma(c, -r2 / (double)(k * (k - 1)), 1);
		s = fma(s, -r2 / (double)(k * (k + 1)), 1);
	}
	s = s * r;
	switch ((int64_t)n & 3) {
	case 0:
		*out_sin = s;
		*out_cos = c;
		break;
	case 1:
		*out_sin = c;
		*out_cos = -s;
		break;
	case 2:
		*out_sin = -s;
		*out_cos = -c;
		break;
	default:
		*out_sin = -c;
		*out_cos = s;
	}
}

void rope_inv_freq(double base, const float *factors, double pos_scale, uint32_t nr_rot,
		   double *out_inv_freq)
{
	double ln_base = log_double(base);

	for (uint32_t i = 0; i < nr_rot / 2; i++) {
		double f = exp_double(-ln_base * (2.0 * i / nr_rot)) * pos_scale;

		out_inv_freq[i] = factors ? f / (double)factors[i] : f;
	}
}

void rope_cos_sin(const double *inv_freq, uint32_t nr_rot, uint32_t pos, float *out_cos_sin)
{
	for (uint32_t i = 0; i < nr_rot / 2; i++) {
		double s, c;

		sincos_double((double)pos * inv_freq[i], &s, &c);
		out_cos_sin[2 * i] = (float)c;
		out_cos_sin[2 * i + 1] = (float)s;
	}
}

void rope_ref(float *head, const struct rope_args *args)
{
	uint32_t half = args->nr_rot / 2;

	for (uint32_t i = 0; i < half; i++) {
		float *a = args->neox ? &head[i] : &head[2 * i];
		float *b = args->neox ? &head[i + half] : &head[2 * i + 1];
		float cos = args->cos_sin[2 * i], sin = args->cos_sin[2 * i + 1];
		float x = *a, y = *b;

		*a = fmaf(x, cos, -(y * sin));
		*b = fmaf(x, sin, y * cos);
	}
}

void append_ref(const struct append_args *args)
{
	const struct attn_layout *l = args->layout;
	uint32_t d = l->head_dim, t = args->token;

	for (uint32_t h = 0; h < l->nr_kv_heads; h++) {
		uint8_t *run = args->tile + attn_run_offset(l, args->layer, h);
		size_t k_at = (size_t)(t / ATTN_GROUP_TOKENS) * d * ATTN_GROUP_TOKENS +
			      t % ATTN_GROUP_TOKENS;
		size_t v_at = (size_t)t * d;
		const float *k = args->k + (size_t)h * d, *v = args->v + (size_t)h * d;

		for (uint32_t i = 0; i < d; i++) {
			if (l->elem == ATTN_F16) {
				((uint16_t *)run)[k_at + (size_t)i * ATTN_GROUP_TOKENS] =
					f32_to_f16(k[i]);
				((uint16_t *)(run + l->v_offset_bytes))[v_at + i] =
					f32_to_f16(v[i]);
			} else {
				((float *)run)[k_at + (size_t)i * ATTN_GROUP_TOKENS] = k[i];
				((float *)(run + l->v_offset_bytes))[v_at + i] = v[i];
			}
		}
	}
}
