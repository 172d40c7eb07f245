/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding: tables of cosines and sines from our own double
 * arithmetic, the rotation, and the writing of a token's K and V into its
 * tile. Plain C that defines the bits. Pure functions, any thread.
 */
#include "kernels/cpu/dmath.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_private.h"

void rope_inv_freq(double base, const float *factors, double pos_scale, uint32_t nr_rot,
		   double *out_inv_freq)
{
	double ln_base = dmath_log(base);

	for (uint32_t i = 0; i < nr_rot / 2; i++) {
		double f = dmath_exp(-ln_base * (2.0 * i / nr_rot)) * pos_scale;

		out_inv_freq[i] = factors ? f / (double)factors[i] : f;
	}
}

void rope_cos_sin(const double *inv_freq, uint32_t nr_rot, uint32_t pos, float *out_cos_sin)
{
	for (uint32_t i = 0; i < nr_rot / 2; i++) {
		double s, c;

		dmath_sincos((double)pos * inv_freq[i], &s, &c);
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
