/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers, every weight type: the plain C form against a float64 sum over
 * weights read by other code; every other form against it, bit for bit, over
 * batch sizes, shapes and cuts.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/kernels/weights.h"

enum {
	MAX_ROWS = 133,
	Y_PAD = 5, /* floats behind each output row that must stay */
	/* Sanitized, the plain C forms crawl: fewer batches and shapes, same paths. */
	IS_THIN = HARNESS_TIME_SCALE > 1,
};

static const uint32_t batches[] = { 1,	2,  3,	4,  5,	6,  7,	8,  9,	 10,
				    15, 16, 17, 31, 32, 33, 64, 65, 129, 133 };

/* One layer and its inputs; buffers freed by layer_free(). */
struct layer {
	enum pack_type type;
	uint32_t n, k;
	uint8_t *src, *packed;
	struct packed_matrix w;
	float *x;
	struct act_q8 xq;
	float *y_first; /* what y holds before, for accumulate */
};

static bool is_float(enum pack_type type)
{
	return type == PACK_F32 || type == PACK_F16 || type == PACK_BF16;
}

static void layer_make(struct layer *l, enum pack_type type, uint32_t n,
		       uint32_t k, uint32_t m, bool tame)
{
	struct rng rng = { n * 1000003u + k + (uint32_t)type };
	size_t nx = (size_t)m * k, ny = (size_t)m * (n + Y_PAD);

	l->type = type;
	l->n = n;
	l->k = k;
	l->src = weights_make(type, n, k, tame, &rng);
	l->packed = weights_pack(type, n, k, l->src, &l->w);
	l->x = malloc(nx * sizeof(float));
	l->y_first = malloc(ny * sizeof(float));
	l->xq = (struct act_q8){ malloc(nx),
				 malloc(nx / 32 * sizeof(float) + 1),
				 malloc(nx / 32 * 2 * sizeof(int16_t) + 1), k };
	for (size_t i = 0; i < nx; i++)
		l->x[i] = rng_unit(&rng);
	for (size_t i = 0; i < ny; i++)
		l->y_first[i] = rng_unit(&rng);
	/* Codes of our own: all values, and blocks of nothing but extremes. */
	for (size_t b = 0; b < nx / 32; b++) {
		uint32_t kind = rng_u32(&rng) % 4;
		int sums[2] = { 0 };

		for (size_t i = 0; i < 32; i++) {
			int v = (int)(rng_u32(&rng) % 255) - 127;

			if (kind == 1)
				v = 127;
			else if (kind == 2)
				v = -127;
			else if (kind == 3)
				v = v < 0 ? -127 : 127;
			l->xq.q[b * 32 + i] = (int8_t)v;
			sums[i / 16] += v;
		}
		l->xq.d[b] = rng_unit(&rng) * 0.01f;
		l->xq.sum16[2 * b] = (int16_t)sums[0];
		l->xq.sum16[2 * b + 1] = (int16_t)sums[1];
	}
}

static void layer_free(struct layer *l)
{
	free(l->src);
	free(l->packed);
	free(l->x);
	free(l->y_first);
	free(l->xq.q);
	free(l->xq.d);
	free(l->xq.sum16);
}

/* Rows [first_row, first_row + m) of the inputs, groups [first, end). */
static void run(const struct cpu_kernels *kernels, const struct layer *l,
		bool int8, uint32_t first_row, uint32_t m, bool accumulate,
		uint32_t first, uint32_t end, float *y)
{
	size_t y_stride = l->n + Y_PAD;

	if (int8) {
		size_t nb = l->k / 32;
		struct act_q8 x = { l->xq.q + first_row * (size_t)l->k,
				    l->xq.d + first_row * nb,
				    l->xq.sum16 + first_row * nb * 2, l->k };
		struct linear_q8_args args = {
			&l->w, &x, m, y, y_stride, accumulate, first, end
		};

		kernels->linear_q8(&args);
	} else {
		struct linear_f32_args args = {
			&l->w,	    l->x + first_row * (size_t)l->k,
			l->k,	    m,
			y,	    y_stride,
			accumulate, first,
			end,
		};

		kernels->linear_f32(&args);
	}
}

static uint32_t nr_groups(const struct layer *l)
{
	return (l->n + 15) / 16;
}

/* ---- ref against float64 ----------------------------------------------------- */

/* Largest |y - exact| / (sum of the absolute terms) over all outputs. */
static double ref_error(const struct layer *l, bool int8, uint32_t m)
{
	size_t y_stride = l->n + Y_PAD;
	float *y = calloc(m * y_stride, sizeof(*y));
	uint64_t row_bytes = pack_source_row_bytes(l->type, l->k);
	double worst = 0;

	run(cpu_kernels_get(CPU_ISA_REF), l, int8, 0, m, false, 0, nr_groups(l),
	    y);
	for (uint32_t i = 0; i < m; i++) {
		for (uint32_t n = 0; n < l->n; n++) {
			double sum = 0, size = 0, error;

			for (uint32_t k = 0; k < l->k; k++) {
				size_t at = (size_t)i * l->k + k;
				double x = int8 ? (double)l->xq.d[at / 32] *
							   l->xq.q[at] :
						  l->x[at];
				double w = weights_value(
					l->type, l->src + n * row_bytes, k);

				sum += x * w;
				size += fabs(x * w);
			}
			error = fabs(sum - y[i * y_stride + n]);
			if (!(error <= 1e30))
				error = 1e30;
			if (error > worst * size && error > 0)
				worst = size > 0 ? error / size : 1e30;
		}
	}
	free(y);
	return worst;
}

TEST_TIMEOUT(ref_is_near_float64, 60)
{
	static const uint32_t shapes[][2] = { { 33, 256 }, { 17, 1536 } };

	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		for (int s = 0; s < 2; s++) {
			struct layer l;

			layer_make(&l, weights_types[t], shapes[s][0],
				   shapes[s][1], 3, true);
			/* One rounding a link at worst: K / 32, or K, times 2^-24. */
			EXPECT_LT(ref_error(&l, false, 3), 2e-5)
			{
				TH_LOG("%s f32", weights_name(l.type));
			}
			/*
			 * With mins the exact sum is of terms that cancel: d q x and m x apart are
			 * far larger than (d q + m) x.
			 */
			if (!is_float(l.type))
				EXPECT_LT(ref_error(&l, true, 3), 1e-4)
				{
					TH_LOG("%s q8", weights_name(l.type));
				}
			layer_free(&l);
		}
	}
}

/* ---- every form against ref --------------------------------------------------- */

static void fill_y(const struct layer *l, uint32_t m, bool accumulate, float *y)
{
	size_t ny = (size_t)m * (l->n + Y_PAD);

	for (size_t i = 0; i < ny; i++)
		y[i] = accumulate || i % (l->n + Y_PAD) >= l->n ?
			       l->y_first[i] :
			       NAN;
}

static int first_difference(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (memcmp(a + i, b + i, sizeof(*a)) != 0)
			return (int)i;
	}
	return -1;
}

static void check_shape(const struct cpu_kernels *kernels, enum pack_type type,
			bool int8, uint32_t n, uint32_t k, uint32_t max_m)
{
	struct layer l;
	size_t y_floats;
	float *want, *got;

	/* The plain form is slow, and of itself only the batches matter. */
	if (kernels == cpu_kernels_get(CPU_ISA_REF) && max_m > 9)
		max_m = 9;
	if (IS_THIN && max_m > 17)
		max_m = 17;
	layer_make(&l, type, n, k, max_m, false);
	y_floats = (size_t)max_m * (n + Y_PAD);
	want = malloc(y_floats * sizeof(*want));
	got = malloc(y_floats * sizeof(*got));
	for (int accumulate = 0; accumulate < 2; accumulate++) {
		fill_y(&l, max_m, accumulate, want);
		run(cpu_kernels_get(CPU_ISA_REF), &l, int8, 0, max_m,
		    accumulate, 0, nr_groups(&l), want);
		for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]);
		     i++) {
			uint32_t m = batches[i];
			/* A row's bits depend on the row alone: any batch, any place in it. */
			uint32_t first_row =
				m < max_m ? (m * 7) % (max_m - m + 1) : 0;
			size_t at = first_row * (size_t)(n + Y_PAD);

			if (m > max_m)
				continue;
			fill_y(&l, max_m, accumulate, got);
			run(kernels, &l, int8, first_row, m, accumulate, 0,
			    nr_groups(&l), got + at);
			ASSERT_EQ(-1, first_difference(want + at, got + at,
						       (size_t)m * (n + Y_PAD)))
			{
				TH_LOG("%s %s %s N %u K %u M %u row %u accumulate %d",
				       kernels->isa, weights_name(type),
				       int8 ? "q8" : "f32", n, k, m, first_row,
				       accumulate);
			}
		}
	}
	layer_free(&l);
	free(want);
	free(got);
}

/* Groups computed in pieces are the whole; groups outside the piece are not touched. */
static void check_cuts(const struct cpu_kernels *kernels, enum pack_type type,
		       bool int8)
{
	enum { N = 192 + 5, M = 11 };
	struct layer l;
	size_t y_floats = (size_t)M * (N + Y_PAD);
	float *want = malloc(y_floats * sizeof(*want));
	float *got = malloc(y_floats * sizeof(*got));

	layer_make(&l, type, N, 512, M, false);
	fill_y(&l, M, false, want);
	run(kernels, &l, int8, 0, M, false, 0, 13, want);
	fill_y(&l, M, false, got);
	run(kernels, &l, int8, 0, M, false, 12, 13, got);
	run(kernels, &l, int8, 0, M, false, 5, 5, got);
	run(kernels, &l, int8, 0, M, false, 0, 3, got);
	for (uint32_t i = 0; i < M; i++) {
		for (uint32_t n = 3 * 16; n < 12 * 16; n++)
			ASSERT_TRUE(isnan(got[i * (N + Y_PAD) + n]));
	}
	run(kernels, &l, int8, 0, M, false, 3, 12, got);
	ASSERT_EQ(-1, first_difference(want, got, y_floats))
	{
		TH_LOG("%s %s", kernels->isa, weights_name(type));
	}
	layer_free(&l);
	free(want);
	free(got);
}

FIXTURE(isa)
{
	const struct cpu_kernels *kernels;
};
FIXTURE_VARIANT(isa)
{
	enum cpu_isa isa;
	bool int8;
};
FIXTURE_VARIANT_ADD(isa, ref_q8){ CPU_ISA_REF, true };
FIXTURE_VARIANT_ADD(isa, ref_f32){ CPU_ISA_REF, false };
FIXTURE_VARIANT_ADD(isa, avx2_q8){ CPU_ISA_AVX2, true };
FIXTURE_VARIANT_ADD(isa, avx2_f32){ CPU_ISA_AVX2, false };
FIXTURE_VARIANT_ADD(isa, avx512_q8){ CPU_ISA_AVX512, true };
FIXTURE_VARIANT_ADD(isa, avx512_f32){ CPU_ISA_AVX512, false };

FIXTURE_SETUP(isa)
{
	self->kernels = cpu_kernels_get(variant->isa);
	if (!self->kernels)
		SKIP(return, "this CPU lacks the instructions");
}

FIXTURE_TEARDOWN(isa)
{
	(void)self;
}

TEST_F_TIMEOUT(isa, small_shapes_equal_ref, 120)
{
	static const uint32_t rows[] = { 1, 15, 17, 192 };

	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		enum pack_type type = weights_types[t];

		if (variant->int8 && is_float(type))
			continue;
		for (int n = IS_THIN ? 2 : 0; n < (IS_THIN ? 3 : 4); n++)
			check_shape(self->kernels, type, variant->int8, rows[n],
				    256, rows[n] == 17 ? MAX_ROWS : 33);
		if (weights_block(type) == 32)
			check_shape(self->kernels, type, variant->int8, 17, 32,
				    17);
		if (is_float(type))
			check_shape(self->kernels, type, variant->int8, 17, 77,
				    17);
	}
}

TEST_F_TIMEOUT(isa, model_shapes_equal_ref, 120)
{
	static const uint32_t cols[] = { 576, 640, 1024, 1536, 2048, 4096 };

	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		enum pack_type type = weights_types[t];

		if (variant->int8 && is_float(type))
			continue;
		for (int k = 0; k < 6; k++) {
			/* More than one chunk of groups where K comes in pieces. */
			uint32_t n = cols[k] == 2048 && variant->int8 ?
					     272 + 16 * 8 + 1 :
					     33;

			if (IS_THIN && cols[k] != 576 && cols[k] != 2048)
				continue;
			if (cols[k] % weights_block(type) == 0)
				check_shape(self->kernels, type, variant->int8,
					    n, cols[k],
					    cols[k] > 1024 ? 65 : 17);
		}
	}
}

TEST_F(isa, cuts_along_groups_change_nothing)
{
	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		if (!variant->int8 || !is_float(weights_types[t]))
			check_cuts(self->kernels, weights_types[t],
				   variant->int8);
	}
}

TEST_HARNESS_MAIN
