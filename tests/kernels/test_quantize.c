/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to int8: the plain C form against its definition, the others against it. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/kernels/weights.h"

enum {
	NR_ROWS = 9,
	NR_COLS = 608,
	NR_BLOCKS = NR_COLS / 32,
};

struct act_buffers {
	int8_t q[NR_ROWS * NR_COLS];
	float d[NR_ROWS * NR_BLOCKS];
	int16_t sum16[NR_ROWS * NR_BLOCKS * 2];
};

static void quantize(const struct cpu_kernels *kernels, const float *x,
		     size_t x_stride, uint32_t first, uint32_t nr,
		     struct act_buffers *out)
{
	struct act_q8 act = { out->q, out->d, out->sum16, NR_COLS };

	kernels->quantize(x, x_stride, first, nr, &act);
}

/* Rows of many sizes, with every awkward kind of block among them. */
static void fill(float *x, size_t x_stride)
{
	struct rng rng = { 1 };

	for (uint32_t r = 0; r < NR_ROWS; r++) {
		for (uint32_t k = 0; k < NR_COLS; k++)
			x[r * x_stride + k] =
				rng_unit(&rng) *
				ldexpf(1, (int)(rng_u32(&rng) % 40) - 20);
	}
	for (uint32_t k = 0; k < 32; k++) {
		float half = (float)((int)k - 16) + 0.5f;

		x[k] = 0;
		x[32 + k] = k % 2 ? -0.0f : 0;
		x[64 + k] = k == 5 ? 127 : half; /* exact ties */
		x[96 + k] = k == 5 ? -127 : 7 * half;
		x[128 + k] =
			1e-38f * half; /* 127 / amax overflows or nearly does */
		x[160 + k] = 3.7e-37f * rng_unit(&rng);
		x[192 + k] = 1e-44f * half; /* subnormal */
		x[224 + k] = 3e38f * rng_unit(&rng);
		x[256 + k] = k == 31 ? 10000 : half;
	}
}

TEST(ref_is_the_definition)
{
	struct act_buffers *out = calloc(1, sizeof(*out));
	float *x = calloc(NR_ROWS * NR_COLS, sizeof(*x));

	fill(x, NR_COLS);
	quantize(cpu_kernels_get(CPU_ISA_REF), x, NR_COLS, 0, NR_ROWS, out);
	for (uint32_t b = 0; b < NR_ROWS * NR_BLOCKS; b++) {
		const float *block = x + b * 32;
		float amax = 0;
		int sums[2] = { 0 };

		for (int k = 0; k < 32; k++)
			amax = fmaxf(amax, fabsf(block[k]));
		if (isinf(127 / amax))
			amax = 0;
		ASSERT_EQ(amax / 127, out->d[b]);
		for (int k = 0; k < 32; k++) {
			float scaled = block[k] * (127 / amax);

			sums[k / 16] += out->q[b * 32 + k];
			ASSERT_EQ(amax > 0 ? (int)nearbyint(scaled) : 0,
				  out->q[b * 32 + k])
			{
				TH_LOG("block %u value %d: %a", b, k, block[k]);
			}
		}
		ASSERT_EQ(sums[0], out->sum16[2 * b]);
		ASSERT_EQ(sums[1], out->sum16[2 * b + 1]);
	}
	free(x);
	free(out);
}

TEST(values_that_are_no_numbers_spoil_their_block_alone)
{
	struct act_buffers *out = calloc(1, sizeof(*out));
	float *x = calloc(NR_ROWS * NR_COLS, sizeof(*x));

	for (int isa = 0; isa < CPU_NR_ISAS; isa++) {
		const struct cpu_kernels *kernels =
			cpu_kernels_get((enum cpu_isa)isa);

		if (!kernels)
			continue;
		for (int k = 0; k < NR_COLS; k++)
			x[k] = 1;
		x[40] = NAN;
		x[100] = INFINITY;
		x[130] = -INFINITY;
		quantize(kernels, x, NR_COLS, 0, 1, out);
		EXPECT_EQ(1.0f / 127, out->d[0]);
		for (int b = 1; b <= 4; b++) {
			EXPECT_EQ(b != 2, isnan(out->d[b]));
			EXPECT_EQ(b == 2 ? 127 : 0, out->q[b * 32 + 3]);
			EXPECT_EQ(b == 2 ? 127 * 16 : 0, out->sum16[2 * b]);
		}
		EXPECT_EQ(127, out->q[5 * 32]);
	}
	free(x);
	free(out);
}

TEST(every_isa_gives_the_bits_of_ref)
{
	size_t x_stride = NR_COLS + 3;
	struct act_buffers *want = malloc(sizeof(*want));
	struct act_buffers *got = malloc(sizeof(*got));
	float *x = calloc(NR_ROWS * x_stride, sizeof(*x));
	int nr_checked = 0;

	fill(x, x_stride);
	x[5 * x_stride + 77] = NAN;
	x[6 * x_stride + 300] = INFINITY;
	memset(want, 0x55, sizeof(*want));
	quantize(cpu_kernels_get(CPU_ISA_REF), x, x_stride, 1, NR_ROWS - 2,
		 want);
	for (int isa = 1; isa < CPU_NR_ISAS; isa++) {
		const struct cpu_kernels *kernels =
			cpu_kernels_get((enum cpu_isa)isa);

		if (!kernels)
			continue;
		/* Rows outside the range stay as they are. */
		memset(got, 0x55, sizeof(*got));
		quantize(kernels, x, x_stride, 1, 3, got);
		quantize(kernels, x, x_stride, 4, NR_ROWS - 5, got);
		EXPECT_MEMEQ(want->q, got->q, sizeof(want->q));
		EXPECT_MEMEQ(want->d, got->d, sizeof(want->d));
		EXPECT_MEMEQ(want->sum16, got->sum16, sizeof(want->sum16));
		nr_checked++;
	}
	free(x);
	free(want);
	free(got);
	if (!nr_checked)
		SKIP(return, "this CPU has no vector kernels");
}

TEST_HARNESS_MAIN
