/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe of the linear kernels for many tokens on a GPU: the bits of the flat
 * kernel for every instance, grid and order of tiles, correctness against
 * float64, and speed. Run by scripts/bench-gpu-probe: gpu_large CUBIN_DIR
 * large-small|large-check|large-time. Exits 1 if a check fails.
 */
#include "tests/bench/gpu_linear_kit.cuh"

enum {
	POISON = 0xff, /* NaN, in bf16 and in float */
	ERROR_TOKENS = 64,
	NR_REPEATS = 10,
	DEFAULT_RUN = 8,
};

struct large_instance {
	const char *name;
	uint32_t tokens;
};

static const struct large_instance large_instances[] = {
	{ "t128", 128 },
	{ "t256", 256 },
};

enum { NR_LARGE = sizeof(large_instances) / sizeof(large_instances[0]) };

static CUfunction large_kernels[NR_LARGE];
static void *scratch;

struct large_launch {
	int instance;
	uint32_t nr_rows, nr_cols, nr_tokens;
	uint32_t run_tiles;
	uint32_t max_ctas; /* 0: all multiprocessors */
	bool is_float;
};

static void run_large(const struct large_launch *l, const void *packed,
		      const void *x, void *out, cudaStream_t stream)
{
	uint32_t tokens = large_instances[l->instance].tokens;
	cuuint64_t dims[3] = { 64, l->nr_tokens, l->nr_cols / 64 };
	cuuint64_t strides[2] = { (cuuint64_t)l->nr_cols * 2, 128 };
	cuuint32_t box[3] = { 64, tokens, 1 };
	uint32_t nr_tiles = (l->nr_rows + GPU_LINEAR_LARGE_ROWS - 1) /
			    GPU_LINEAR_LARGE_ROWS *
			    ((l->nr_tokens + tokens - 1) / tokens);
	uint32_t max_ctas = l->max_ctas ? l->max_ctas : nr_sms;
	struct gpu_linear_large_params p = {};
	void *args[] = { &p };

	encode_map(&p.x_map, (CUdeviceptr)x, 3, dims, strides, box);
	p.weights = packed;
	p.out = out;
	p.scratch = scratch;
	p.nr_rows = l->nr_rows;
	p.nr_cols = l->nr_cols;
	p.nr_tokens = l->nr_tokens;
	p.span_k = gpu_linear_cut_get(l->nr_rows, l->nr_cols, 1).span_k;
	p.out_stride = l->nr_rows;
	p.out_is_float = l->is_float;
	p.run_tiles = l->run_tiles;
	CU_OK(cuLaunchKernel(large_kernels[l->instance],
			     std::min(max_ctas, nr_tiles), 1, 1,
			     GPU_LINEAR_LARGE_THREADS, 1, 1,
			     GPU_LINEAR_LARGE_SMEM_BYTES, stream, args, NULL));
}

static void run_flat(const struct matrix *w, const struct tokens *x,
		     uint32_t nr_tokens, bool is_float, void *out)
{
	struct launch l = { 0, W64, nr_tokens };

	l.is_float = is_float;
	run_linear(&l, w, w->packed, x, out, 0);
}

/* ---- checks ---- */

struct check {
	struct matrix w;
	struct tokens x;
	uint8_t *want; /* the flat kernel's, [nr_tokens][N] */
	uint8_t *out;
	size_t out_bytes;
	unsigned long long nr_compared;
};

static void check_report(const struct check *c, bool ok, const char *what)
{
	char line[200];

	snprintf(line, sizeof(line), "large bf16 %u x %u: %s", c->w.nr_rows,
		 c->w.nr_cols, what);
	report(ok, line);
	fflush(stdout);
}

/* Launches over poison: values that differ from `want`, and writes behind. */
static unsigned long long nr_wrong(struct check *c, struct large_launch l)
{
	size_t nr_bytes =
		(size_t)l.nr_tokens * c->w.nr_rows * (l.is_float ? 4 : 2);
	unsigned long long wrong;

	l.nr_rows = c->w.nr_rows;
	l.nr_cols = c->w.nr_cols;
	RT_OK(cudaMemset(c->out, POISON, c->out_bytes));
	run_large(&l, c->w.packed, c->x.dev, c->out, 0);
	wrong = nr_diffs(c->want, c->out, nr_bytes / 2);
	RT_OK(cudaMemset(c->out, POISON, nr_bytes));
	c->nr_compared += (size_t)l.nr_tokens * c->w.nr_rows;
	return wrong + c->out_bytes / 2 - nr_nans(c->out, c->out_bytes / 2);
}

/* Every instance and output type against the flat kernel at this M. */
static void check_m(struct check *c, uint32_t nr_tokens)
{
	for (int is_float = 0; is_float < 2; is_float++) {
		run_flat(&c->w, &c->x, nr_tokens, is_float, c->want);
		for (int i = 0; i < NR_LARGE; i++) {
			struct large_launch l = { i,	     0,		  0,
						  nr_tokens, DEFAULT_RUN, 0,
						  !!is_float };
			unsigned long long wrong = nr_wrong(c, l);
			char what[100];

			snprintf(what, sizeof(what),
				 "%s, M %u, %s: %llu differ",
				 large_instances[i].name, nr_tokens,
				 is_float ? "float" : "bf16", wrong);
			check_report(c, wrong == 0, what);
		}
	}
}

/* Grids, runs and repeats at one M; `want` is still that of check_m(). */
static void check_launches(struct check *c, uint32_t nr_tokens)
{
	unsigned long long wrong = 0;
	char what[100];

	for (int i = 0; i < NR_LARGE; i++) {
		struct large_launch l = { i,	       0, 0,   nr_tokens,
					  DEFAULT_RUN, 0, true };

		for (int j = 0; j < NR_REPEATS; j++)
			wrong += nr_wrong(c, l);
		for (uint32_t max_ctas : { 7u, 100u }) {
			for (uint32_t run : { 1u, 3u }) {
				l.run_tiles = run;
				l.max_ctas = max_ctas;
				wrong += nr_wrong(c, l);
			}
		}
	}
	snprintf(what, sizeof(what),
		 "M %u, 2 grids, 2 runs, %d repeats: %llu differ", nr_tokens,
		 NR_REPEATS, wrong);
	check_report(c, wrong == 0, what);
}

/* Eight rows at another place beside rows of NaN. */
static void check_neighbours(struct check *c)
{
	const uint32_t nr_tokens = 200, from = 5, to = 123, nr = 8;
	size_t row_bytes = (size_t)c->w.nr_cols * 2;
	size_t out_row = (size_t)c->w.nr_rows * 4;
	unsigned long long wrong = 0;
	uint8_t *x;
	char what[100];

	run_flat(&c->w, &c->x, nr_tokens, true, c->want);
	RT_OK(cudaMalloc(&x, nr_tokens * row_bytes));
	RT_OK(cudaMemset(x, POISON, nr_tokens * row_bytes));
	RT_OK(cudaMemcpy(x + to * row_bytes,
			 (uint8_t *)c->x.dev + from * row_bytes, nr * row_bytes,
			 cudaMemcpyDeviceToDevice));
	for (int i = 0; i < NR_LARGE; i++) {
		struct large_launch l = { i,	     c->w.nr_rows, c->w.nr_cols,
					  nr_tokens, DEFAULT_RUN,  0,
					  true };

		RT_OK(cudaMemset(c->out, 0, c->out_bytes));
		run_large(&l, c->w.packed, x, c->out, 0);
		wrong += nr_diffs(c->want + from * out_row,
				  c->out + to * out_row, nr * out_row / 2);
	}
	snprintf(what, sizeof(what), "other place, NaN neighbours: %llu differ",
		 wrong);
	check_report(c, wrong == 0, what);
	RT_OK(cudaFree(x));
}

static void check_one(uint32_t nr_rows, uint32_t nr_cols, uint32_t max_tokens)
{
	struct check c = {};
	double error;
	char what[100];

	matrix_init(&c.w, &formats[0], nr_rows, nr_cols, nr_rows + 7 * nr_cols);
	tokens_init(&c.x, max_tokens, nr_cols, nr_cols + 3);
	c.out_bytes = (size_t)(max_tokens + 8) * nr_rows * 4;
	RT_OK(cudaMalloc(&c.want, c.out_bytes));
	RT_OK(cudaMalloc(&c.out, c.out_bytes));
	for (uint32_t m : { 1u, 65u, 200u, 256u, 1000u, 4096u })
		if (m <= max_tokens)
			check_m(&c, m);
	if (max_tokens > 200) {
		check_launches(&c, max_tokens);
		check_neighbours(&c);
		for (int i = 0; i < NR_LARGE; i++) {
			struct large_launch l = { i,	       nr_rows,
						  nr_cols,     max_tokens,
						  DEFAULT_RUN, 0,
						  true };

			RT_OK(cudaMemset(c.out, POISON, c.out_bytes));
			run_large(&l, c.w.packed, c.x.dev, c.out, 0);
			error = error_of(&c.w, &c.x, (float *)c.out,
					 ERROR_TOKENS, 100);
			snprintf(what, sizeof(what),
				 "%s, relative error %.2e <= 1e-5",
				 large_instances[i].name, error);
			check_report(&c, error <= 1e-5, what);
		}
	}
	printf("       %llu values compared\n", c.nr_compared);
	fflush(stdout);
	matrix_deinit(&c.w);
	tokens_deinit(&c.x);
	RT_OK(cudaFree(c.want));
	RT_OK(cudaFree(c.out));
}

/* Row counts that end inside a tile and a group; K of one and two spans, odd stages. */
static void run_checks(void)
{
	static const uint32_t shapes[][2] = {
		{ 264, 576 },	 { 8, 64 },	  { 520, 1088 },
		{ 1000, 1536 },	 { 17000, 1088 }, { 4096, 4096 },
		{ 14336, 4096 }, { 4096, 14336 }, { 6144, 4096 },
	};

	for (auto &s : shapes)
		check_one(s[0], s[1], 4096);
}

static void run_small(void)
{
	check_one(264, 576, 200);
	check_one(520, 1088, 200);
}

/* ---- times ---- */

/* Random bf16 in +-[2^-3, 2): all that matters to the clock is that bits change. */
static __global__ void fill_random(uint32_t *data, size_t nr, uint64_t seed)
{
	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < nr;
	     i += (size_t)gridDim.x * blockDim.x)
		data[i] = ((uint32_t)mix64(seed + i) & 0x81ff81ff) | 0x3e003e00;
}

static void *random_bytes(size_t nr_bytes, uint64_t seed)
{
	void *data;

	RT_OK(cudaMalloc(&data, nr_bytes));
	fill_random<<<1024, 256>>>((uint32_t *)data, nr_bytes / 4, seed);
	return data;
}

/* Median microseconds of one launch in a graph, L2 cold. */
static double time_large(const struct large_launch *l, const void *packed,
			 const void *x, void *out)
{
	return 1e3 * time_graph(
			     [&](cudaStream_t stream) {
				     run_large(l, packed, x, out, stream);
			     },
			     NULL);
}

static void time_shape(uint32_t nr_rows, uint32_t nr_cols)
{
	const uint32_t max_tokens = 8192;
	void *w = random_bytes((size_t)nr_rows * nr_cols * 2, 1);
	void *x = random_bytes((size_t)max_tokens * nr_cols * 2, 2);
	void *out = random_bytes((size_t)max_tokens * nr_rows * 2, 3);

	for (uint32_t m : { 512u, 2048u, 8192u }) {
		double flops = 2.0 * m * nr_rows * nr_cols;

		printf("large bf16 %5u x %5u M %4u, us (TFLOP/s):", nr_rows,
		       nr_cols, m);
		printf(" [t%u]", gpu_linear_large_tokens(nr_rows, m, nr_sms));
		for (int i = 0; i < NR_LARGE; i++) {
			printf(" %s", large_instances[i].name);
			for (uint32_t run : { 4u, 8u, 16u }) {
				struct large_launch l = { i, nr_rows, nr_cols,
							  m, run };
				double us = time_large(&l, w, x, out);

				printf(" %.1f (%.0f)", us, flops / us * 1e-6);
				if (run * large_instances[i].tokens >= m)
					break;
			}
		}
		printf("\n");
		fflush(stdout);
	}
	RT_OK(cudaFree(w));
	RT_OK(cudaFree(x));
	RT_OK(cudaFree(out));
}

static void run_times(void)
{
	static const uint32_t shapes[][2] = {
		{ 14336, 4096 }, { 4096, 14336 }, { 6144, 4096 },
		{ 4096, 4096 },	 { 28672, 4096 }, { 8192, 8192 },
	};

	for (auto &s : shapes)
		time_shape(s[0], s[1]);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";

	if (argc < 3 || !strstr("large-small large-check large-time", mode)) {
		fprintf(stderr, "usage: gpu_large CUBIN_DIR "
				"large-small|large-check|large-time\n");
		return 2;
	}
	gpu_init();
	RT_OK(cudaMalloc(&scratch, gpu_linear_large_scratch_bytes(nr_sms)));
	RT_OK(cudaMemset(scratch, POISON,
			 gpu_linear_large_scratch_bytes(nr_sms)));
	load_kernels(argv[1]);
	for (int i = 0; i < NR_LARGE; i++) {
		std::string name = std::string("linear_large_bf16_") +
				   large_instances[i].name;

		large_kernels[i] = load_kernel(argv[1], "linear_large.cubin",
					       name.c_str(),
					       GPU_LINEAR_LARGE_SMEM_BYTES);
	}
	if (strcmp(mode, "large-time") == 0)
		run_times();
	else if (strcmp(mode, "large-small") == 0)
		run_small();
	else
		run_checks();
	printf("%d checks failed\n", nr_failed);
	return nr_failed != 0;
}
