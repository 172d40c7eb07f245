/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of rotary position embedding, from our own double arithmetic. The
 * same on every instruction set. Pure functions, any thread.
 */
#include "kernels/cpu/dmath.h"
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
