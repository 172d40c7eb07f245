/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions in double precision for what is computed rarely and
 * must not change with the C library: rotary tables, sampling. Good to an ulp
 * or two of double; their results end in float32.
 */
#ifndef TARN_KERNELS_CPU_DMATH_H
#define TARN_KERNELS_CPU_DMATH_H

#include <math.h>
#include <stdint.h>

#include "kernels/cpu/inline.h"

/* ln 2 in two parts: the first has 33 significant bits, so that n * DMATH_LN2_HI is exact. */
#define DMATH_LN2_HI 0x1.62e42feep-1
#define DMATH_LN2_LO 0x1.a39ef35793c76p-33
/* pi / 2 in three parts of 33 bits and a rest. */
#define DMATH_PIO2_1 0x1.921fb544p+0
#define DMATH_PIO2_2 0x1.0b4611a6p-34
#define DMATH_PIO2_3 0x1.3198a2e037073p-69

/* ln x for normal x > 0: 2 atanh((m - 1) / (m + 1)) by its series, m in [sqrt 1/2, sqrt 2]. */
KERNEL_INLINE double dmath_log(double x)
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
	return fma((double)e, DMATH_LN2_HI, fma((double)e, DMATH_LN2_LO, 2 * z * sum));
}

/* e^x for |x| < 700 by its series on [-ln 2 / 2, ln 2 / 2]. */
static inline double dmath_exp(double x)
{
	double n = nearbyint(x * 0x1.71547652b82fep+0);
	double r = fma(n, -DMATH_LN2_LO, fma(n, -DMATH_LN2_HI, x));
	double sum = 1;

	for (int k = 16; k >= 1; k--)
		sum = fma(sum, r / k, 1);
	return ldexp(sum, (int)n);
}

/* sin and cos of x >= 0, x < 2^30: reduce by pi / 2, then their series on [-pi/4, pi/4]. */
static inline void dmath_sincos(double x, double *out_sin, double *out_cos)
{
	double n = nearbyint(x * 0x1.45f306dc9c883p-1);
	double r = fma(n, -DMATH_PIO2_3, fma(n, -DMATH_PIO2_2, fma(n, -DMATH_PIO2_1, x)));
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

#endif /* TARN_KERNELS_CPU_DMATH_H */
