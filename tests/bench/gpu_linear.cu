/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe of the linear kernels on a GPU: correctness against float64, the same
 * bits for every M, neighbour, instance, grid and ring, and speed. Run by
 * scripts/bench-gpu-probe: gpu_linear CUBIN_DIR linear-small|linear-check|
 * linear-time|linear-tune|linear-quick. Exits 1 if a check fails.
 */
#include "tests/bench/gpu_linear_kit.cuh"

enum {
	MAX_TOKENS = 64,
	MANY_TOKENS = 200, /* more than one tile of every instance */
	POISON = 0xff, /* NaN, in bf16 and in float */
};

struct shape {
	uint32_t nr_rows, nr_cols;
};

/* ---- checks ---- */

struct check {
	struct matrix w;
	struct tokens x;
	float *first; /* what every other launch must give: [MANY_TOKENS][N] */
	float *out;
	size_t out_bytes;
	int format;
	unsigned long long nr_compared;
};

static void check_report(const struct check *c, bool ok, const char *what)
{
	char line[200];

	snprintf(line, sizeof(line), "%s %u x %u: %s", formats[c->format].name,
		 c->w.nr_rows, c->w.nr_cols, what);
	report(ok, line);
}

/* Launches over poison: values that differ from the first nr_tokens rows, and writes behind. */
static unsigned long long nr_wrong(struct check *c, struct launch l,
				   const struct tokens *x, const float *want)
{
	size_t nr = (size_t)l.nr_tokens * c->w.nr_rows;
	unsigned long long wrong;

	RT_OK(cudaMemset(c->out, POISON, c->out_bytes));
	l.format = c->format;
	l.is_float = true;
	run_sums(&l, x, 0);
	run_linear(&l, &c->w, c->w.packed, x, c->out, 0);
	wrong = nr_diffs(want, c->out, nr * 2);
	RT_OK(cudaMemset(c->out, POISON, nr * 4));
	c->nr_compared += nr;
	return wrong + c->out_bytes / 2 - nr_nans(c->out, c->out_bytes / 2);
}

/* Every M, by every instance, against the first 64 rows of one launch of 200 tokens. */
static void check_every_m(struct check *c, uint32_t step)
{
	for (int i = 0; i < NR_INSTANCES; i++) {
		unsigned long long wrong = 0;
		char what[100];

		if (!kernels[c->format][i])
			continue;
		for (uint32_t m = 1; m <= MAX_TOKENS; m += step)
			wrong += nr_wrong(c, { 0, i, m }, &c->x, c->first);
		wrong += nr_wrong(c, { 0, i, MANY_TOKENS }, &c->x, c->first);
		snprintf(what, sizeof(what),
			 "%s, M 1 to 64 and 200: %llu differ",
			 instances[i].suffix, wrong);
		check_report(c, wrong == 0, what);
	}
}

/* The same row at another place beside other rows, one of them NaN. */
static void check_neighbours(struct check *c)
{
	struct tokens x = c->x;
	size_t row_bytes = (size_t)x.nr_cols * 2;
	size_t n = c->w.nr_rows;
	unsigned long long wrong = 0;
	char what[100];

	RT_OK(cudaMalloc(&x.dev, MANY_TOKENS * row_bytes));
	RT_OK(cudaMemset(x.dev, POISON, MANY_TOKENS * row_bytes));
	/* Rows 5 to 12 go to 1 to 8; 0 and those behind are NaN. */
	RT_OK(cudaMemcpy((uint8_t *)x.dev + row_bytes,
			 (uint8_t *)c->x.dev + 5 * row_bytes, 8 * row_bytes,
			 cudaMemcpyDeviceToDevice));
	for (int i = 0; i < NR_INSTANCES; i++) {
		if (!kernels[c->format][i])
			continue;
		for (uint32_t m : { 9u, 16u, 33u, 64u }) {
			struct launch l = { c->format, i, m };

			l.is_float = true;
			RT_OK(cudaMemset(c->out, 0, c->out_bytes));
			run_sums(&l, &x, 0);
			run_linear(&l, &c->w, c->w.packed, &x, c->out, 0);
			wrong += nr_diffs(c->first + 5 * n, c->out + n,
					  8 * n * 2);
			c->nr_compared += 8 * n;
		}
	}
	snprintf(what, sizeof(what), "other place, NaN neighbours: %llu differ",
		 wrong);
	check_report(c, wrong == 0, what);
	RT_OK(cudaFree(x.dev));
}

/* Rings, grids and overlapped launches; again and again. */
static void check_launches(struct check *c)
{
	unsigned long long wrong = 0;
	char what[100];

	for (int i = 0; i < NR_INSTANCES; i++) {
		if (!kernels[c->format][i])
			continue;
		for (uint32_t nr_stages = 2; nr_stages <= 4; nr_stages++) {
			struct launch l = { c->format, i, 7, nr_stages };

			for (uint32_t nr_clusters : { 0u, 3u, 17u, 100u }) {
				l.nr_clusters = nr_clusters;
				l.is_overlapped = nr_clusters % 2;
				wrong += nr_wrong(c, l, &c->x, c->first);
			}
		}
		for (int j = 0; j < 20; j++)
			wrong += nr_wrong(c, { 0, i, 64 }, &c->x, c->first);
	}
	snprintf(what, sizeof(what),
		 "2 to 4 stages, 4 grids, 20 repeats: %llu differ", wrong);
	check_report(c, wrong == 0, what);
}

/* bf16 output is the float output rounded once. */
static void check_bf16_out(struct check *c)
{
	size_t nr = (size_t)MAX_TOKENS * c->w.nr_rows;
	std::vector<float> want(nr);
	std::vector<uint16_t> got(nr);
	unsigned long long wrong = 0;
	char what[100];

	RT_OK(cudaMemcpy(want.data(), c->first, nr * 4,
			 cudaMemcpyDeviceToHost));
	for (int i = 0; i < NR_INSTANCES; i++) {
		struct launch l = { c->format, i, MAX_TOKENS };

		if (!kernels[c->format][i])
			continue;
		RT_OK(cudaMemset(c->out, POISON, c->out_bytes));
		run_sums(&l, &c->x, 0);
		run_linear(&l, &c->w, c->w.packed, &c->x, c->out, 0);
		RT_OK(cudaMemcpy(got.data(), c->out, nr * 2,
				 cudaMemcpyDeviceToHost));
		for (size_t j = 0; j < nr; j++)
			wrong += got[j] != to_bf16(want[j]);
	}
	snprintf(what, sizeof(what), "bf16 output: %llu differ", wrong);
	check_report(c, wrong == 0, what);
}

/* Once, and with a ring so short that every slot of it is filled again. */
static void check_small(struct check *c)
{
	for (int i = 0; i < NR_INSTANCES; i++) {
		struct launch l = { c->format, i, 5 };
		unsigned long long wrong = nr_wrong(c, l, &c->x, c->first);
		char what[100];

		l.nr_stages = 2;
		wrong += nr_wrong(c, l, &c->x, c->first);
		l.is_overlapped = true;
		wrong += nr_wrong(c, l, &c->x, c->first);
		snprintf(what, sizeof(what), "%s, M 5, 2 rings: %llu differ",
			 instances[i].suffix, wrong);
		check_report(c, wrong == 0, what);
	}
}

static void check_one(int format, struct shape s, bool small, bool all_m)
{
	struct check c = {};
	struct launch l = { format, W64, MANY_TOKENS };
	double error;
	char what[100];

	if (s.nr_cols % formats[format].unit_k)
		s.nr_cols = (s.nr_cols + 255) / 256 * 256;
	c.format = format;
	matrix_init(&c.w, &formats[format], s.nr_rows, s.nr_cols,
		    s.nr_rows + 7 * s.nr_cols + format);
	tokens_init(&c.x, MANY_TOKENS, s.nr_cols, s.nr_cols + 3);
	c.out_bytes = (size_t)(MANY_TOKENS + 8) * s.nr_rows * 4;
	RT_OK(cudaMalloc(&c.first, c.out_bytes));
	RT_OK(cudaMalloc(&c.out, c.out_bytes));
	RT_OK(cudaMemset(c.first, POISON, c.out_bytes));
	l.is_float = true;
	run_sums(&l, &c.x, 0);
	run_linear(&l, &c.w, c.w.packed, &c.x, c.first, 0);
	error = error_of(&c.w, &c.x, c.first, MAX_TOKENS, 300);
	snprintf(what, sizeof(what), "relative error %.2e <= 1e-5", error);
	check_report(&c, error <= 1e-5, what);
	if (small) {
		check_small(&c);
	} else {
		check_every_m(&c, all_m ? 1 : 9);
		check_neighbours(&c);
		check_launches(&c);
		check_bf16_out(&c);
	}
	printf("       %llu values compared\n", c.nr_compared);
	fflush(stdout);
	matrix_deinit(&c.w);
	tokens_deinit(&c.x);
	RT_OK(cudaFree(c.first));
	RT_OK(cudaFree(c.out));
}

static void run_checks(bool small)
{
	static const struct shape shapes[] = {
		{ 264, 576 },	 { 8, 64 },	  { 1000, 1536 },
		{ 1024, 4096 },	 { 4096, 4096 },  { 14336, 4096 },
		{ 4096, 14336 }, { 17000, 1024 },
	};

	for (int f = 0; f < NR_FORMATS; f++) {
		for (size_t i = 0; i < std::size(shapes); i++) {
			bool all_m = i != 0 && shapes[i].nr_rows < 4000;

			if (small && i != 0 && i != 2)
				continue;
			check_one(f, shapes[i], small, all_m || i == 0);
		}
	}
}

/* ---- times ---- */

struct timing {
	struct matrix w; /* the first of nr_copies */
	std::vector<void *> copies;
	struct tokens x;
	void *out;
};

static void timing_init(struct timing *t, int format, struct shape s)
{
	matrix_init(&t->w, &formats[format], s.nr_rows, s.nr_cols, 99);
	tokens_init(&t->x, MANY_TOKENS, s.nr_cols, 98);
	RT_OK(cudaMalloc(&t->out, (size_t)MANY_TOKENS * s.nr_rows * 4));
	t->copies.push_back(t->w.packed);
	/* Beyond twice the L2, and 8 of them at least. */
	while (t->copies.size() < 8 ||
	       t->copies.size() * t->w.packed_bytes < 300e6) {
		void *copy;

		RT_OK(cudaMalloc(&copy, t->w.packed_bytes));
		RT_OK(cudaMemcpy(copy, t->w.packed, t->w.packed_bytes,
				 cudaMemcpyDeviceToDevice));
		t->copies.push_back(copy);
	}
}

static void timing_deinit(struct timing *t)
{
	for (void *copy : t->copies)
		RT_OK(cudaFree(copy));
	tokens_deinit(&t->x);
	RT_OK(cudaFree(t->out));
	t->copies.clear();
}

/* Median microseconds of one launch, in a graph of one launch for each copy. */
static double time_linear(const struct timing *t, const struct launch *l)
{
	run_sums(l, &t->x, 0);
	double ms = time_graph(
		[&](cudaStream_t stream) {
			for (void *copy : t->copies)
				run_linear(l, &t->w, copy, &t->x, t->out,
					   stream);
		},
		NULL);

	return ms * 1e3 / t->copies.size();
}

static int instance_for(uint32_t nr_tokens)
{
	int i = 0;

	while (instances[i].tokens < nr_tokens && i < 3)
		i++;
	return i;
}

static void print_time(const struct timing *t, const struct launch *l,
		       double us)
{
	double file_bytes = (double)t->w.source.size();

	printf("linear %s_%-3s %5u x %5u M %3u, %2u stages%s: %7.2f us, %.3f TB/s "
	       "packed = %4.1f %%, %.3f TB/s of the file's\n",
	       formats[l->format].name, instances[l->instance].suffix,
	       t->w.nr_rows, t->w.nr_cols, l->nr_tokens,
	       plan_of(l, &t->w).nr_stages, l->is_overlapped ? " pdl" : "    ",
	       us, t->w.packed_bytes / us * 1e-6,
	       t->w.packed_bytes / us * 1e-6 / 4.5 * 100,
	       file_bytes / us * 1e-6);
	fflush(stdout);
}

/* Rings and overlap, main shape: what the defaults should be. */
static void run_tune(void)
{
	for (int f = 0; f < NR_FORMATS; f++) {
		struct timing t = {};

		timing_init(&t, f, { 14336, 4096 });
		for (int i = 0; i < NR_INSTANCES; i++) {
			struct launch l = { f, i,
					    i == 0 ? 1 : instances[i].tokens };
			uint32_t fit;

			if (!kernels[f][i])
				continue;
			l.nr_stages = GPU_LINEAR_MAX_STAGES;
			fit = plan_of(&l, &t.w).nr_stages;
			for (uint32_t n : { 2u, 3u, 4u, 6u, 8u, 12u }) {
				l.nr_stages = std::min(n, fit);
				for (int overlap = 0; overlap < 2; overlap++) {
					l.is_overlapped = overlap;
					print_time(&t, &l, time_linear(&t, &l));
				}
				if (n >= fit)
					break;
			}
		}
		timing_deinit(&t);
	}
}

static void time_shape(struct shape s, std::vector<uint32_t> nrs)
{
	for (int f = 0; f < NR_FORMATS; f++) {
		struct timing t = {};

		timing_init(&t, f, s);
		for (uint32_t m : nrs) {
			struct launch l = { f, instance_for(m), m };

			for (int overlap = 0; overlap < 2; overlap++) {
				l.is_overlapped = overlap;
				print_time(&t, &l, time_linear(&t, &l));
			}
		}
		timing_deinit(&t);
	}
}

static void run_times(void)
{
	static const struct shape shapes[] = {
		{ 14336, 4096 }, { 4096, 14336 }, { 28672, 4096 },
		{ 6144, 4096 },	 { 4096, 4096 },  { 1024, 4096 },
	};

	for (struct shape s : shapes)
		time_shape(s, { 1, 8, 16, 32, 64 });
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";

	if (argc < 3 ||
	    !strstr("linear-small linear-check linear-tune linear-time linear-quick",
		    mode)) {
		fprintf(stderr,
			"usage: gpu_linear CUBIN_DIR linear-small|linear-check|"
			"linear-tune|linear-time|linear-quick\n");
		return 2;
	}
	gpu_init();
	load_kernels(argv[1]);
	if (strcmp(mode, "linear-time") == 0)
		run_times();
	else if (strcmp(mode, "linear-quick") == 0)
		time_shape({ 14336, 4096 }, { 1, 16 });
	else if (strcmp(mode, "linear-tune") == 0)
		run_tune();
	else
		run_checks(strcmp(mode, "linear-small") == 0);
	printf("%d checks failed\n", nr_failed);
	return nr_failed != 0;
}
