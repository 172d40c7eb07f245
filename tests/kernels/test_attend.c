/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention kernels: the plain C version against float64, and every vector
 * version against plain C, bit for bit, over random plans: rows anywhere in a
 * split, several pieces, windows, groups of 1 to 16 heads, both element types.
 * Tokens nobody may see hold NaN.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/kernels_cpu.h"
#include "tests/harness.h"
#include "tests/random.h"

enum {
	MAX_TOKENS = 1536,
	MAX_ROWS = 40,
	POISON_WORD = 0x7fc00000,
};

struct scene {
	struct attn_layout layout;
	uint8_t *memory;
	float *k, *v; /* [MAX_TOKENS][heads][d]: what was appended */
	float *q, *out[CPU_NR_ISAS], *slots;
	void *scratch;
	uint32_t nr_q_heads, nr_rows, len;
	struct attn_plan plan;
	struct attn_unit units[256];
	struct attn_row rows[2048];
	struct attn_piece pieces[2048];
	struct attn_merge merges[MAX_ROWS];
	uint32_t nr_unit_rows, nr_pieces;
};

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
	return random_next(&seed) % n;
}

static float rnd_float(void)
{
	return ((float)rnd(1u << 20) / (1u << 19) - 1) * 2;
}

static void *alloc64(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

	ASSERT_NE(NULL, p);
	return p;
}

static void layout_set(struct attn_layout *l, uint32_t t, uint32_t heads,
		       uint32_t d, enum attn_elem elem)
{
	uint32_t bytes = elem == ATTN_F16 ? 2 : 4;

	*l = (struct attn_layout){ t, 2, heads, d, elem, bytes, 0, 0, 0, 0 };
	l->head_bytes = (uint64_t)t * d * bytes;
	l->v_offset_bytes = heads * l->head_bytes;
	l->layer_bytes = 2 * l->v_offset_bytes;
	l->stride_bytes = (2 * l->layer_bytes + 4095) & ~4095ull;
}

/* Fill layer 1 with random keys and values up to len; everything else is NaN. */
static void scene_fill(struct scene *s, const struct cpu_kernels *kernels)
{
	const struct attn_layout *l = &s->layout;
	size_t tiles = MAX_TOKENS / l->tile_tokens,
	       row = (size_t)l->nr_kv_heads * l->head_dim;

	s->memory = alloc64(tiles * l->stride_bytes);
	for (size_t i = 0; i < tiles * l->stride_bytes / 4; i++)
		((uint32_t *)s->memory)[i] = l->elem == ATTN_F16 ? 0x7e007e00 :
								   POISON_WORD;
	s->k = alloc64(MAX_TOKENS * row * sizeof(float));
	s->v = alloc64(MAX_TOKENS * row * sizeof(float));
	for (size_t i = 0; i < s->len * row; i++) {
		s->k[i] = rnd_float();
		s->v[i] = rnd_float();
	}
	for (uint32_t t = 0; t < s->len; t++)
		kernels->append(&(struct append_args){
			.layout = l,
			.tile = s->memory +
				t / l->tile_tokens * l->stride_bytes,
			.layer = 1,
			.token = t % l->tile_tokens,
			.k = s->k + t * row,
			.v = s->v + t * row,
		});
}

/* Pieces of [first, end), cut at random multiples of T. */
static uint32_t add_pieces(struct scene *s, uint32_t nr, uint32_t first,
			   uint32_t end)
{
	uint32_t tile = s->layout.tile_tokens;

	while (first < end) {
		uint32_t next = (first / tile + 1 + rnd(6)) * tile,
			 base = first / tile;

		next = next < end ? next : end;
		base -= base ? rnd(base < 3 ? base : 3) : 0;
		s->pieces[nr++] = (struct attn_piece){
			s->memory + base * s->layout.stride_bytes, base * tile,
			first, next
		};
		first = next;
	}
	return nr;
}

static uint32_t first_seen(uint32_t pos, uint32_t window)
{
	return window && pos + 1 > window ? pos + 1 - window : 0;
}

/* One unit of rows [r0, r1) over splits [split, split + nr_splits); none if they see nothing. */
static void add_unit(struct scene *s, uint32_t window, uint32_t r0, uint32_t r1,
		     uint32_t split, uint32_t nr_splits, uint32_t *slot_at)
{
	struct attn_unit *u = &s->units[s->plan.nr_units];
	uint32_t first_pos = s->len - s->nr_rows;
	uint32_t first = split * ATTN_SPLIT_TOKENS;
	uint32_t end = first + nr_splits * ATTN_SPLIT_TOKENS;

	end = end < first_pos + r1 ? end : first_pos + r1;
	*u = (struct attn_unit){ s->nr_unit_rows, 0,	    s->nr_pieces, 0,
				 split,		  nr_splits };
	for (uint32_t r = r0; r < r1; r++) {
		uint32_t pos = first_pos + r, lo = first_seen(pos, window);

		if (pos < first || lo >= end)
			continue;
		s->rows[s->nr_unit_rows++] =
			(struct attn_row){ r, lo, pos + 1,
					   slot_at[r] == ATTN_SLOT_DIRECT ||
							   nr_splits > 1 ?
						   ATTN_SLOT_DIRECT :
						   slot_at[r]++ };
	}
	u->nr_rows = s->nr_unit_rows - u->first_row;
	if (!u->nr_rows)
		return;
	s->nr_pieces = add_pieces(s, s->nr_pieces, first, end);
	u->nr_pieces = s->nr_pieces - u->first_piece;
	s->plan.nr_units++;
}

/*
 * Rows are the last nr_rows tokens; units of up to @unit_rows, one per live split, or with @whole
 * one over all splits.
 */
static void scene_plan(struct scene *s, uint32_t window, uint32_t unit_rows,
		       bool whole)
{
	uint32_t first_pos = s->len - s->nr_rows, slot_at[MAX_ROWS];

	s->nr_unit_rows = s->nr_pieces = 0;
	s->plan = (struct attn_plan){ s->units,	 0, s->rows, s->pieces,
				      s->merges, 0, 0 };
	for (uint32_t r = 0; r < s->nr_rows; r++) {
		uint32_t pos = first_pos + r;
		uint32_t n = pos / ATTN_SPLIT_TOKENS -
			     first_seen(pos, window) / ATTN_SPLIT_TOKENS + 1;

		slot_at[r] = ATTN_SLOT_DIRECT;
		if (n == 1 || whole)
			continue;
		slot_at[r] = s->plan.nr_slots;
		s->merges[s->plan.nr_merges++] =
			(struct attn_merge){ r, s->plan.nr_slots, n };
		s->plan.nr_slots += n;
	}
	for (uint32_t r0 = 0; r0 < s->nr_rows; r0 += unit_rows) {
		uint32_t r1 = r0 + unit_rows < s->nr_rows ? r0 + unit_rows :
							    s->nr_rows;
		uint32_t nr_splits =
			(first_pos + r1 - 1) / ATTN_SPLIT_TOKENS + 1;

		if (whole)
			add_unit(s, window, r0, r1, 0, nr_splits, slot_at);
		for (uint32_t split = 0; !whole && split < nr_splits; split++)
			add_unit(s, window, r0, r1, split, 1, slot_at);
	}
	free(s->slots);
	s->slots =
		alloc64(((size_t)s->plan.nr_slots * s->nr_q_heads + 1) *
			attn_slot_floats(s->layout.head_dim) * sizeof(float));
}

static void scene_free(struct scene *s)
{
	free(s->memory);
	free(s->k);
	free(s->v);
	free(s->q);
	free(s->slots);
	free(s->scratch);
	for (int i = 0; i < CPU_NR_ISAS; i++)
		free(s->out[i]);
}

static struct attn_args scene_args(struct scene *s, int isa)
{
	size_t width = (size_t)s->nr_q_heads * s->layout.head_dim;

	return (struct attn_args){ &s->layout,
				   &s->plan,
				   1,
				   s->nr_q_heads,
				   1 / sqrtf((float)s->layout.head_dim),
				   s->q,
				   width,
				   s->out[isa],
				   width,
				   s->slots };
}

static void scene_run(struct scene *s, const struct cpu_kernels *kernels,
		      int isa)
{
	size_t width = (size_t)s->nr_q_heads * s->layout.head_dim;
	uint32_t heads = s->layout.nr_kv_heads, g = s->nr_q_heads / heads;
	struct attn_args args;

	free(s->out[isa]);
	s->out[isa] = alloc64(s->nr_rows * width * sizeof(float));
	for (size_t i = 0; i < s->nr_rows * width; i++)
		s->out[isa][i] = NAN;
	args = scene_args(s, isa);
	for (uint32_t u = 0; u < s->plan.nr_units; u++)
		for (uint32_t h = 0; h < heads; h++)
			kernels->attend(&args, u, h, s->scratch);
	for (uint32_t m = 0; m < s->plan.nr_merges; m++)
		for (uint32_t h = 0; h < heads; h++)
			kernels->merge(&args, m, h * g, (h + 1) * g);
}

/* float64 attention of one row and head over the values as stored. */
static void exact_row(const struct scene *s, uint32_t r, uint32_t head,
		      uint32_t window, double *out)
{
	const struct attn_layout *l = &s->layout;
	uint32_t d = l->head_dim, pos = s->len - s->nr_rows + r;
	uint32_t lo = window && pos + 1 > window ? pos + 1 - window : 0;
	uint32_t kv = head / (s->nr_q_heads / l->nr_kv_heads);
	const float *q = s->q + ((size_t)r * s->nr_q_heads + head) * d;
	double *score = malloc((pos + 1) * sizeof(double)), max = -INFINITY,
	       sum = 0;

	for (uint32_t t = lo; t <= pos; t++) {
		score[t] = 0;
		for (uint32_t i = 0; i < d; i++)
			score[t] += (double)q[i] *
				    (double)s->k[((size_t)t * l->nr_kv_heads +
						  kv) * d +
						 i];
		score[t] *= 1 / sqrt(d);
		max = fmax(max, score[t]);
	}
	memset(out, 0, d * sizeof(double));
	for (uint32_t t = lo; t <= pos; t++) {
		double p = exp(score[t] - max);

		sum += p;
		for (uint32_t i = 0; i < d; i++)
			out[i] += p * (double)s->v[((size_t)t * l->nr_kv_heads +
						    kv) * d +
						   i];
	}
	for (uint32_t i = 0; i < d; i++)
		out[i] /= sum;
	free(score);
}

struct shape {
	uint32_t tile, heads, group, d;
	enum attn_elem elem;
	uint32_t len, rows, window, unit_rows;
};

static void expect_same(struct scene *s, const struct shape *shape, int isa,
			const float *want)
{
	const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_isa)isa);
	size_t width = (size_t)s->nr_q_heads * shape->d;

	if (!kernels)
		return;
	scene_run(s, kernels, isa);
	EXPECT_EQ(0,
		  memcmp(want, s->out[isa], s->nr_rows * width * sizeof(float)))
	{
		TH_LOG("%s: T %u, %u x %u heads of %u, %u rows of %u, window %u, %u units",
		       kernels->isa, shape->tile, shape->heads, shape->group,
		       shape->d, shape->rows, shape->len, shape->window,
		       s->plan.nr_units);
	}
}

static void run_shape(const struct shape *shape)
{
	float *want;
	struct scene *s = calloc(1, sizeof(*s));
	const struct cpu_kernels *ref = cpu_kernels_get(CPU_ISA_REF);
	size_t width;
	double diff = 0, norm = 0;

	layout_set(&s->layout, shape->tile, shape->heads, shape->d,
		   shape->elem);
	s->nr_q_heads = shape->heads * shape->group;
	s->len = shape->len;
	s->nr_rows = shape->rows;
	width = (size_t)s->nr_q_heads * shape->d;
	scene_fill(s, ref);
	s->q = alloc64(s->nr_rows * width * sizeof(float));
	for (size_t i = 0; i < s->nr_rows * width; i++)
		s->q[i] = rnd_float() * 3;
	scene_plan(s, shape->window, shape->unit_rows, false);
	s->scratch = alloc64(attn_scratch_bytes(&s->layout, s->nr_q_heads,
						shape->unit_rows));
	scene_run(s, ref, CPU_ISA_REF);
	for (uint32_t r = 0; r < s->nr_rows; r++) {
		for (uint32_t h = 0; h < s->nr_q_heads; h++) {
			double want[1024];

			exact_row(s, r, h, shape->window, want);
			for (uint32_t i = 0; i < shape->d; i++) {
				double e = want[i] -
					   (double)s->out[CPU_ISA_REF]
							 [(r * s->nr_q_heads +
							   h) * shape->d +
							  i];

				diff += e * e;
				norm += want[i] * want[i];
			}
		}
	}
	EXPECT_LE(sqrt(diff / norm), shape->elem == ATTN_F16 ? 2e-3 : 2e-6)
	{
		TH_LOG("T %u, %u x %u heads of %u, %u rows of %u, window %u",
		       shape->tile, shape->heads, shape->group, shape->d,
		       shape->rows, shape->len, shape->window);
	}
	want = s->out[CPU_ISA_REF];
	s->out[CPU_ISA_REF] = NULL;
	for (int whole = 0; whole < 2; whole++) {
		scene_plan(s, shape->window, shape->unit_rows, whole);
		for (int isa = 0; isa < CPU_NR_ISAS; isa++)
			expect_same(s, shape, isa, want);
	}
	free(want);
	scene_free(s);
	free(s);
}

TEST_TIMEOUT(decode_gives_the_same_bits, 120)
{
	static const uint32_t lens[] = { 1,  15,  16,  17,  63,	 64,
					 65, 511, 512, 513, 1100 };
	static const uint32_t groups[] = { 1, 2, 3, 4, 5, 6, 7, 8, 16 };

	seed = 1;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
			run_shape(&(struct shape){
				16u << i % 3, 1 + i % 2, groups[g], 64,
				g % 4 == 3 ? ATTN_F32 : ATTN_F16, lens[i], 1, 0,
				1 });
}

TEST_TIMEOUT(chunks_give_the_same_bits, 120)
{
	seed = 2;
	for (uint32_t i = 0; i < 24; i++) {
		uint32_t rows = 2 + rnd(MAX_ROWS - 2), len = rows + rnd(700);

		run_shape(&(struct shape){ 16u << i % 3, 1 + i % 2, 1 + rnd(5),
					   64, i % 5 == 4 ? ATTN_F32 : ATTN_F16,
					   len, rows, 0, 1 + rnd(32) });
	}
}

TEST_TIMEOUT(windows_give_the_same_bits, 120)
{
	seed = 3;
	for (uint32_t i = 0; i < 24; i++) {
		uint32_t rows = 1 + rnd(MAX_ROWS - 1), len = rows + rnd(900);

		run_shape(&(struct shape){ 16u << i % 3, 1, 1 + rnd(4), 32,
					   ATTN_F16, len, rows, 1 + rnd(600),
					   1 + rnd(32) });
	}
}

TEST_TIMEOUT(wide_heads_give_the_same_bits, 120)
{
	static const uint32_t dims[] = { 64, 80, 96, 128, 192, 256 };

	seed = 4;
	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
		run_shape(&(struct shape){ 64, 2, 4, dims[i], ATTN_F16, 150, 20,
					   0, 16 });
		run_shape(&(struct shape){ 64, 1, 4, dims[i], ATTN_F16, 150, 1,
					   0, 1 });
		run_shape(&(struct shape){ 16, 1, 2, dims[i], ATTN_F32, 90, 9,
					   33, 4 });
	}
}

/* A row alone, among others, and with its unit cut elsewhere: the same bits. */
TEST(a_row_does_not_see_its_unit)
{
	const struct cpu_kernels *kernels = cpu_kernels_best();
	float *want = NULL;
	size_t width = 3 * 64;

	for (uint32_t unit_rows = 1; unit_rows <= 32; unit_rows *= 2) {
		struct scene *s = calloc(1, sizeof(*s));

		seed = 5;
		layout_set(&s->layout, 64, 1, 64, ATTN_F16);
		s->nr_q_heads = 3;
		s->len = 700;
		s->nr_rows = 32;
		scene_fill(s, kernels);
		s->q = alloc64(s->nr_rows * width * sizeof(float));
		for (size_t i = 0; i < s->nr_rows * width; i++)
			s->q[i] = rnd_float();
		scene_plan(s, 0, unit_rows, false);
		s->scratch = alloc64(attn_scratch_bytes(
			&s->layout, s->nr_q_heads, unit_rows));
		scene_run(s, kernels, 0);
		if (want)
			EXPECT_EQ(0, memcmp(want, s->out[0],
					    32 * width * sizeof(float)));
		else
			want = memcpy(malloc(32 * width * sizeof(float)),
				      s->out[0], 32 * width * sizeof(float));
		scene_free(s);
		free(s);
	}
	free(want);
}

TEST_HARNESS_MAIN
