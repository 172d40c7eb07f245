/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norm, gates, sums, rotation and append: plain C against double arithmetic,
 * vector versions against plain C, bit for bit, at every length around the
 * lanes; the rotary tables and exp against the C library's double versions.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/dmath.h"
#include "kernels/cpu/fmath.h"
#include "kernels/cpu/kernels_cpu.h"
#include "tests/harness.h"

enum {
	MAX_N = 4096,
};

static uint64_t seed = 7;

static float rnd_float(float range)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return ((float)(seed >> 40) / (1u << 23) - 1) * range;
}

static const uint32_t lengths[] = { 1,	 2,   7,    8,	  15,	16,  17,
				    31,	 32,  33,   47,	  63,	64,  65,
				    100, 576, 1536, 2048, 3001, 4096 };

/* Call fn(isa, n) for every vector version and length. */
static void for_all(void (*fn)(const struct cpu_kernels *ref,
			       const struct cpu_kernels *isa, uint32_t n))
{
	for (int i = 1; i < CPU_NR_ISAS; i++) {
		const struct cpu_kernels *isa =
			cpu_kernels_get((enum cpu_isa)i);

		for (size_t n = 0;
		     isa && n < sizeof(lengths) / sizeof(lengths[0]); n++)
			fn(cpu_kernels_get(CPU_ISA_REF), isa, lengths[n]);
	}
}

static void fill(float *x, uint32_t n, float range)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = rnd_float(range);
}

#define EXPECT_SAME(a, b, n, isa)                                         \
	EXPECT_EQ(0, memcmp(a, b, (size_t)(n) * sizeof(*(a))))            \
	{                                                                 \
		TH_LOG("%s at length %u", (isa)->isa, (unsigned int)(n)); \
	}

static void same_norm(const struct cpu_kernels *ref,
		      const struct cpu_kernels *isa, uint32_t n)
{
	static float x[MAX_N], w[MAX_N], a[MAX_N], b[MAX_N];

	fill(x, n, 30);
	fill(w, n, 2);
	ref->rms_norm(x, w, n, 1e-5f, false, a);
	isa->rms_norm(x, w, n, 1e-5f, false, b);
	EXPECT_SAME(a, b, n, isa);
	ref->rms_norm(x, w, n, 1e-5f, true, a);
	isa->rms_norm(x, w, n, 1e-5f, true, b);
	EXPECT_SAME(a, b, n, isa);
	memcpy(b, x, n * sizeof(float)); /* in place */
	isa->rms_norm(b, w, n, 1e-5f, false, b);
	ref->rms_norm(x, w, n, 1e-5f, false, a);
	EXPECT_SAME(a, b, n, isa);
}

static void same_gates(const struct cpu_kernels *ref,
		       const struct cpu_kernels *isa, uint32_t n)
{
	static float g[MAX_N], u[MAX_N], a[MAX_N], b[MAX_N];

	for (int kind = GATE_SILU; kind <= GATE_GELU_TANH; kind++) {
		fill(g, n, kind ? 12 : 120);
		fill(u, n, 4);
		ref->gate((enum gate_kind)kind, g, u, n, a);
		isa->gate((enum gate_kind)kind, g, u, n, b);
		EXPECT_SAME(a, b, n, isa);
	}
	memcpy(b, a, n * sizeof(float));
	ref->softcap(a, 30, n);
	isa->softcap(b, 30, n);
	ref->add(a, u, n);
	isa->add(b, u, n);
	ref->scale(a, 25.3f, n);
	isa->scale(b, 25.3f, n);
	EXPECT_SAME(a, b, n, isa);
}

static void same_sums(const struct cpu_kernels *ref,
		      const struct cpu_kernels *isa, uint32_t n)
{
	static float x[MAX_N], a[MAX_N], b[MAX_N];
	float sum_a, sum_b;

	fill(x, n, 20);
	x[n / 2] = x[n - 1]; /* a tie now and then */
	EXPECT_EQ(ref->argmax(x, n), isa->argmax(x, n));
	sum_a = ref->exp_sum(x, x[ref->argmax(x, n)], 0.8f, n, a);
	sum_b = isa->exp_sum(x, x[ref->argmax(x, n)], 0.8f, n, b);
	EXPECT_SAME(a, b, n, isa);
	EXPECT_SAME(&sum_a, &sum_b, 1, isa);
	sum_b = isa->exp_sum(x, x[ref->argmax(x, n)], 0.8f, n, NULL);
	EXPECT_SAME(&sum_a, &sum_b, 1, isa);
}

static void same_rope(const struct cpu_kernels *ref,
		      const struct cpu_kernels *isa, uint32_t n)
{
	static float head[MAX_N], a[MAX_N], b[MAX_N], cs[MAX_N];
	uint32_t rot = n & ~1u;

	fill(head, n, 5);
	fill(cs, n, 1);
	for (int neox = 0; neox < 2; neox++) {
		struct rope_args args = { cs, rot, neox };

		memcpy(a, head, n * sizeof(float));
		memcpy(b, head, n * sizeof(float));
		ref->rope(a, &args);
		isa->rope(b, &args);
		EXPECT_SAME(a, b, n, isa);
	}
}

TEST(norms_give_the_same_bits)
{
	for_all(same_norm);
}

TEST(gates_give_the_same_bits)
{
	for_all(same_gates);
}

TEST(sums_give_the_same_bits)
{
	for_all(same_sums);
}

TEST(rotations_give_the_same_bits)
{
	for_all(same_rope);
}

TEST(append_rounds_the_same)
{
	static const uint16_t heads = 2;
	struct attn_layout l = { 32, 1,	   heads, 64,	 ATTN_F16,
				 2,  4096, 8192,  16384, 16384 };
	static float k[128], v[128];
	static uint8_t a[16384], b[16384];

	/* Overflow, subnormals, ties, infinities. */
	static const float odd[] = { 65504,	    65519.996f, 65520,
				     1e-8f,	    0x1p-25f,	0x1.8p-24f,
				     -0.0f,	    INFINITY,	1.00048828125f,
				     1.00146484375f };

	for (int i = 1; i < CPU_NR_ISAS; i++) {
		const struct cpu_kernels *isa =
			cpu_kernels_get((enum cpu_isa)i);

		for (uint32_t t = 0; isa && t < 32; t++) {
			struct append_args args = { &l, a, 0, t, k, v };

			fill(k, 128, t % 2 ? 1e-6f : 100);
			fill(v, 128, t % 3 ? 1e-4f : 70000);
			memcpy(v, odd, sizeof(odd));
			cpu_kernels_get(CPU_ISA_REF)->append(&args);
			args.tile = b;
			isa->append(&args);
		}
		if (isa)
			EXPECT_SAME(a, b, sizeof(a), isa);
	}
}

TEST(argmax_takes_the_lowest_of_equals_and_never_nan)
{
	for (int i = 0; i < CPU_NR_ISAS; i++) {
		const struct cpu_kernels *isa =
			cpu_kernels_get((enum cpu_isa)i);
		float x[50];

		if (!isa)
			continue;
		for (int j = 0; j < 50; j++)
			x[j] = j == 21 || j == 37 || j == 49 ? 3 :
							       (float)j / 100;
		EXPECT_EQ(21, isa->argmax(x, 50));
		x[5] = NAN;
		x[21] = NAN;
		EXPECT_EQ(37, isa->argmax(x, 50));
		for (int j = 0; j < 50; j++)
			x[j] = -INFINITY;
		EXPECT_EQ(0, isa->argmax(x, 50));
	}
}

TEST(exp_is_within_an_ulp)
{
	double worst = 0;

	for (float x = EXP_LO; x < EXP_HI; x += 0.00137f) {
		double want = exp((double)x), got = (double)fmath_exp(x);

		worst = fmax(worst, fabs(got - want) / want);
	}
	EXPECT_LE(worst, 1.3e-7);
	EXPECT_EQ(1, fmath_exp(0));
	EXPECT_EQ(0, fmath_exp(-INFINITY));
	EXPECT_EQ(0, fmath_exp(-100));
	EXPECT_TRUE(isfinite(fmath_exp(INFINITY)));
	EXPECT_TRUE(isnan(fmath_exp(NAN)));
	EXPECT_LE(fabs((double)fmath_tanh(0.3f) - tanh((double)0.3f)), 1e-7);
}

TEST(double_functions_are_exact_to_float)
{
	for (double x = 1e-9; x < 1e9; x *= 1.0173)
		EXPECT_LE(fabs(dmath_log(x) - log(x)),
			  4e-16 * fmax(1, fabs(log(x))));
	for (double x = -300; x < 300; x += 0.31)
		EXPECT_LE(fabs(dmath_exp(x) / exp(x) - 1), 4e-15);
	for (double x = 0; x < 3e6; x = x * 1.01 + 0.37) {
		double s, c;

		dmath_sincos(x, &s, &c);
		EXPECT_LE(fabs(s - sin(x)), 4e-15);
		EXPECT_LE(fabs(c - cos(x)), 4e-15);
	}
}

TEST(rope_tables_hold_cos_and_sin)
{
	double inv[32];
	float cs[64];

	rope_inv_freq(100000, NULL, 0.125, 64, inv);
	for (int i = 0; i < 32; i++)
		EXPECT_LE(
			fabs(inv[i] / (0.125 * pow(100000, -2.0 * i / 64)) - 1),
			1e-14);
	for (uint32_t pos = 0; pos < 100000; pos += 997) {
		rope_cos_sin(inv, 64, pos, cs);
		for (int i = 0; i < 32; i++) {
			EXPECT_LE(fabs((double)cs[2 * i] - cos(pos * inv[i])),
				  6e-8);
			EXPECT_LE(
				fabs((double)cs[2 * i + 1] - sin(pos * inv[i])),
				6e-8);
		}
	}
}

TEST(gates_and_norm_are_accurate)
{
	const struct cpu_kernels *ref = cpu_kernels_get(CPU_ISA_REF);
	float g[64], u[64], h[64], w[64];
	double ss = 0;

	fill(g, 64, 8);
	fill(u, 64, 2);
	fill(w, 64, 2);
	ref->gate(GATE_SILU, g, u, 64, h);
	for (int i = 0; i < 64; i++)
		EXPECT_LE(fabs((double)h[i] - (double)g[i] /
						      (1 + exp(-(double)g[i])) *
						      (double)u[i]),
			  3e-6);
	ref->gate(GATE_GELU_TANH, g, u, 64, h);
	for (int i = 0; i < 64; i++) {
		double x = (double)g[i];
		double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));

		EXPECT_LE(fabs((double)h[i] - 0.5 * x * (1 + t) * (double)u[i]),
			  3e-6);
	}
	ref->rms_norm(g, w, 64, 1e-5f, false, h);
	for (int i = 0; i < 64; i++)
		ss += (double)g[i] * (double)g[i];
	for (int i = 0; i < 64; i++)
		EXPECT_LE(fabs((double)h[i] - (double)g[i] /
						      sqrt(ss / 64 + 1e-5) *
						      (double)w[i]),
			  3e-6);
}

TEST_HARNESS_MAIN
