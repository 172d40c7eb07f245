/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the linear kernels by type, shape and batch: packed bytes a second
 * next to the read bandwidth, and integer operations a second next to the
 * multiply-add peak, both measured in the same run.
 *
 * Usage: bench_linear [--isa ref|avx2|avx512] [--type NAME] [--shape NxK] [--m M]
 *                     [--threads N] [--model-bytes BYTES] [--far-bytes BYTES]
 * Times are the best of several passes, each the largest CPU time among its
 * threads, so that other programs' turns on the cores do not count. Weights
 * rotate through a buffer of the model's size, as in decoding.
 */
#include <getopt.h>

#include "kernels/cpu/kernels_cpu.h"
#include "tests/bench/peaks.h"

static struct {
	const struct cpu_kernels *kernels;
	const char *type;
	uint32_t nr_rows, nr_cols; /* 0: the standard shapes */
	uint32_t m;
	int nr_threads; /* 0: one, then two */
	size_t model_bytes, far_bytes;
} opt = { .model_bytes = 98000000, .far_bytes = 640000000 };

static const struct {
	const char *name;
	enum pack_type type;
} types[] = {
	{ "Q4_1", PACK_Q4_1 },	   { "Q4_0", PACK_Q4_0 },
	{ "Q5_0", PACK_Q5_0 },	   { "Q5_1", PACK_Q5_1 },
	{ "Q8_0", PACK_Q8_0 },	   { "Q4_K", PACK_Q4_K },
	{ "Q5_K", PACK_Q5_K },	   { "Q6_K", PACK_Q6_K },
	{ "Q2_K", PACK_Q2_K },	   { "Q3_K", PACK_Q3_K },
	{ "IQ4_NL", PACK_IQ4_NL }, { "IQ4_XS", PACK_IQ4_XS },
	{ "MXFP4", PACK_MXFP4 },   { "F16", PACK_F16 },
	{ "BF16", PACK_BF16 },	   { "F32", PACK_F32 },
};

/* ---- the kernels ------------------------------------------------------------- */

struct linear_job {
	struct packed_matrix w;
	uint64_t matrix_bytes;
	uint32_t nr_matrices, nr_used;
	uint32_t m;
	struct act_q8 xq;
	float *x, *y;
};

static void run_linear(void *ctx, int thread, int nr_threads)
{
	const struct linear_job *job = ctx;
	uint32_t groups = (job->w.nr_rows + PACK_ROWS - 1) / PACK_ROWS;
	uint32_t first = groups * (uint32_t)thread / (uint32_t)nr_threads;
	uint32_t end = groups * (uint32_t)(thread + 1) / (uint32_t)nr_threads;

	for (uint32_t i = 0; i < job->nr_used; i++) {
		struct packed_matrix w = job->w;

		w.data += i % job->nr_matrices * job->matrix_bytes;
		if (w.type == PACK_F32 || w.type == PACK_F16 ||
		    w.type == PACK_BF16) {
			struct linear_f32_args args = {
				&w,	   job->x, w.nr_cols, job->m, job->y,
				w.nr_rows, false,  first,     end,
			};

			opt.kernels->linear_f32(&args);
		} else {
			struct linear_q8_args args = {
				&w,	   &job->xq, job->m, job->y,
				w.nr_rows, false,    first,  end,
			};

			opt.kernels->linear_q8(&args);
		}
	}
}

static void bench_one(const char *name, enum pack_type type, uint32_t n,
		      uint32_t k, uint32_t m, uint8_t *weights, int nr_threads,
		      double read, double peak)
{
	struct linear_job job = { .m = m };
	double ops, t;

	job.matrix_bytes = pack_layout(&job.w, type, n, k);
	if (!job.matrix_bytes)
		return;
	job.w.data = weights;
	job.nr_matrices = (uint32_t)(opt.model_bytes / job.matrix_bytes);
	if (!job.nr_matrices)
		job.nr_matrices = 1;
	ops = 2.0 * n * k * m;
	/*
	 * A pass over the model, or some milliseconds of it where the batch
	 * is large.
	 */
	job.nr_used = job.nr_matrices;
	if (ops * job.nr_used > 1e9)
		job.nr_used = (uint32_t)(1e9 / ops) + 1;
	job.x = map_bytes((size_t)m * k * sizeof(float));
	job.y = map_bytes((size_t)m * n * sizeof(float));
	job.xq = (struct act_q8){ map_bytes((size_t)m * k),
				  map_bytes((size_t)m * k / 8),
				  map_bytes((size_t)m * k / 8), k };
	for (size_t i = 0; i < (size_t)m * k; i++)
		job.x[i] = (float)((i * 2654435761u) % 2001) * 1e-3f - 1;
	opt.kernels->quantize(job.x, k, 0, m, &job.xq);
	t = best_time(run_linear, &job, nr_threads, CLOCK_THREAD_CPUTIME_ID) /
	    job.nr_used;
	printf("%-6s %5ux%-5u %4u %3d %10.2f us %7.2f GB/s %5.1f %%", name, n,
	       k, m, nr_threads, t * 1e6, (double)job.matrix_bytes / t * 1e-9,
	       (double)job.matrix_bytes / t / read * 100);
	printf(" %8.1f GOP/s %5.1f %%\n", ops / t * 1e-9,
	       peak > 0 ? ops / t / peak * 100 : 0);
	munmap(job.x, (size_t)m * k * sizeof(float));
	munmap(job.y, (size_t)m * n * sizeof(float));
	munmap(job.xq.q, (size_t)m * k);
	munmap(job.xq.d, (size_t)m * k / 8);
	munmap(job.xq.sum16, (size_t)m * k / 8);
}

static void bench_threads(uint8_t *weights, int nr_threads)
{
	static const uint32_t shapes[][2] = { { 1536, 576 },
					      { 576, 1536 },
					      { 640, 2048 } };
	static const uint32_t batches[] = { 1, 4, 8, 16, 512 };
	double peak = peak_ops(nr_threads,
			       strcmp(opt.kernels->isa, "avx512") == 0,
			       CLOCK_THREAD_CPUTIME_ID);
	double near, far;
	uint8_t *far_buffer = map_bytes(opt.far_bytes);

	memset(far_buffer, 1, opt.far_bytes);
	near = read_rate(weights, opt.model_bytes, nr_threads,
			 CLOCK_THREAD_CPUTIME_ID);
	far = read_rate(far_buffer, opt.far_bytes, nr_threads,
			CLOCK_THREAD_CPUTIME_ID);
	munmap(far_buffer, opt.far_bytes);
	printf("# %d threads: read %.1f GB/s (%zu MB), %.1f GB/s (%zu MB); peak %.0f GOP/s\n",
	       nr_threads, near * 1e-9, opt.model_bytes / 1000000, far * 1e-9,
	       opt.far_bytes / 1000000, peak * 1e-9);
	printf("# type, shape NxK, M, threads, time; packed bytes a second and %% of the "
	       "read rate at the model's size; operations and %% of the peak\n");
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		if (opt.type && strcmp(opt.type, types[t].name) != 0)
			continue;
		for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]);
		     s++) {
			uint32_t n = opt.nr_rows ? opt.nr_rows : shapes[s][0];
			uint32_t k = opt.nr_rows ? opt.nr_cols : shapes[s][1];

			for (size_t b = 0;
			     b < sizeof(batches) / sizeof(batches[0]); b++) {
				uint32_t m = opt.m ? opt.m : batches[b];

				bench_one(types[t].name, types[t].type, n, k, m,
					  weights, nr_threads, near, peak);
				if (opt.m)
					break;
			}
			if (opt.nr_rows)
				break;
		}
	}
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "isa", required_argument, NULL, 'i' },
		{ "type", required_argument, NULL, 't' },
		{ "shape", required_argument, NULL, 's' },
		{ "m", required_argument, NULL, 'm' },
		{ "threads", required_argument, NULL, 'n' },
		{ "model-bytes", required_argument, NULL, 'b' },
		{ "far-bytes", required_argument, NULL, 'f' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'i')
			setenv("TARN_CPU_ISA", optarg, 1);
		else if (c == 't')
			opt.type = optarg;
		else if (c == 's' && sscanf(optarg, "%ux%u", &opt.nr_rows,
					    &opt.nr_cols) == 2)
			;
		else if (c == 'm')
			opt.m = (uint32_t)atoi(optarg);
		else if (c == 'n')
			opt.nr_threads = atoi(optarg);
		else if (c == 'b')
			opt.model_bytes = (size_t)atoll(optarg);
		else if (c == 'f')
			opt.far_bytes = (size_t)atoll(optarg);
		else
			exit(2);
	}
	if (opt.nr_threads < 0 || opt.nr_threads > MAX_THREADS)
		exit(2);
	opt.kernels = cpu_kernels_best();
}

int main(int argc, char **argv)
{
	/* Room for one matrix larger than the model. */
	size_t weight_bytes;
	uint8_t *weights;
	char model[256];

	parse(argc, argv);
	weight_bytes = opt.model_bytes + (128 << 20);
	weights = map_bytes(weight_bytes);
	/* 0x11 in every byte: small codes, and f16 scales far from infinity. */
	memset(weights, 0x11, weight_bytes);
	cpu_model(model, sizeof(model));
	printf("# %s\n# kernels: %s\n", model, opt.kernels->isa);
	if (opt.nr_threads) {
		bench_threads(weights, opt.nr_threads);
		return 0;
	}
	bench_threads(weights, 1);
	bench_threads(weights, 2);
	return 0;
}
