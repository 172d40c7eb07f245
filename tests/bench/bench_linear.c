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
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/cpu/kernels_cpu.h"

enum {
	MAX_THREADS = 64,
	NR_PASSES = 9,
};

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
	{ "Q4_1", PACK_Q4_1 }, { "Q4_0", PACK_Q4_0 }, { "Q5_0", PACK_Q5_0 },
	{ "Q5_1", PACK_Q5_1 }, { "Q8_0", PACK_Q8_0 }, { "Q4_K", PACK_Q4_K },
	{ "Q5_K", PACK_Q5_K }, { "Q6_K", PACK_Q6_K }, { "F16", PACK_F16 },
	{ "BF16", PACK_BF16 }, { "F32", PACK_F32 },
};

static double cpu_time_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *map_bytes(size_t bytes)
{
	size_t huge = 2 << 20;
	void *p = mmap(NULL, (bytes + huge) & ~(huge - 1),
		       PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

/* ---- running on N threads -------------------------------------------------- */

typedef void (*work_fn)(void *ctx, int thread, int nr_threads);

struct crew {
	pthread_barrier_t barrier;
	work_fn fn;
	void *ctx;
	int nr_threads;
};

struct member {
	struct crew *crew;
	int index;
	double times[NR_PASSES];
	pthread_t thread;
};

static void *member_main(void *arg)
{
	struct member *me = arg;

	for (int pass = 0; pass < NR_PASSES; pass++) {
		double t;

		pthread_barrier_wait(&me->crew->barrier);
		t = cpu_time_s();
		me->crew->fn(me->crew->ctx, me->index, me->crew->nr_threads);
		me->times[pass] = cpu_time_s() - t;
	}
	return NULL;
}

/* Best time of NR_PASSES passes of @fn on @nr_threads threads, seconds. */
static double best_time(work_fn fn, void *ctx, int nr_threads)
{
	struct crew crew = { .fn = fn, .ctx = ctx, .nr_threads = nr_threads };
	static struct member members[MAX_THREADS];
	double best = 1e30;

	pthread_barrier_init(&crew.barrier, NULL, (unsigned int)nr_threads);
	for (int i = 0; i < nr_threads; i++) {
		members[i] = (struct member){ .crew = &crew, .index = i };
		if (pthread_create(&members[i].thread, NULL, member_main,
				   &members[i]) != 0) {
			perror("pthread_create");
			exit(1);
		}
	}
	for (int i = 0; i < nr_threads; i++)
		pthread_join(members[i].thread, NULL);
	for (int pass = 0; pass < NR_PASSES; pass++) {
		double slowest = 0;

		for (int i = 0; i < nr_threads; i++) {
			double t = members[i].times[pass];

			slowest = t > slowest ? t : slowest;
		}
		best = slowest < best ? slowest : best;
	}
	pthread_barrier_destroy(&crew.barrier);
	return best;
}

/* ---- peaks ------------------------------------------------------------------ */

enum { PEAK_LOOPS = 200000 };

__attribute__((target("avx512f,avx512vnni"))) static void
peak_vnni(void *ctx, int thread, int nr_threads)
{
	__m512i acc[12], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(3);

	(void)ctx, (void)thread, (void)nr_threads;
#pragma GCC unroll 12
	for (int i = 0; i < 12; i++)
		acc[i] = _mm512_setzero_si512();
	for (int n = 0; n < PEAK_LOOPS; n++) {
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++) {
			acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
			__asm__ volatile("" : "+v"(acc[i]));
		}
	}
}

/* Without VNNI: 8-bit pairs to 16 bits, those to 32. Two instructions for 32 multiply-adds. */
__attribute__((target("avx2"))) static void peak_avx2(void *ctx, int thread,
						      int nr_threads)
{
	__m256i acc[6], a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(3);
	const __m256i ones = _mm256_set1_epi16(1);

	(void)ctx, (void)thread, (void)nr_threads;
#pragma GCC unroll 6
	for (int i = 0; i < 6; i++)
		acc[i] = _mm256_setzero_si256();
	for (int n = 0; n < PEAK_LOOPS; n++) {
#pragma GCC unroll 6
		for (int i = 0; i < 6; i++) {
			__m256i p = _mm256_maddubs_epi16(a, b);

			__asm__ volatile("" : "+v"(p));
			acc[i] = _mm256_add_epi32(acc[i],
						  _mm256_madd_epi16(p, ones));
			__asm__ volatile("" : "+v"(acc[i]));
		}
	}
}

/* Operations a second, a multiply-add being two. */
static double peak_ops(int nr_threads)
{
	if (strcmp(opt.kernels->isa, "avx512") == 0)
		return nr_threads * 12.0 * 128 * PEAK_LOOPS /
		       best_time(peak_vnni, NULL, nr_threads);
	if (__builtin_cpu_supports("avx2"))
		return nr_threads * 6.0 * 64 * PEAK_LOOPS /
		       best_time(peak_avx2, NULL, nr_threads);
	return 0;
}

struct read_job {
	const uint8_t *p;
	size_t bytes;
};

__attribute__((target("avx2"))) static void read_all(void *ctx, int thread,
						     int nr_threads)
{
	const struct read_job *job = ctx;
	size_t part = job->bytes / (size_t)nr_threads & ~(size_t)4095;
	const uint8_t *p = job->p + part * (size_t)thread;
	__m256i sum[4] = { 0 };

	/* Four streams: the best a thread can do. */
	for (size_t i = 0; i < part / 4; i += 64) {
		for (int s = 0; s < 4; s++) {
			const uint8_t *q = p + part / 4 * (size_t)s + i;

			sum[s] = _mm256_xor_si256(
				sum[s], _mm256_load_si256((const void *)q));
			sum[s] = _mm256_xor_si256(
				sum[s],
				_mm256_load_si256((const void *)(q + 32)));
		}
	}
	for (int s = 0; s < 4; s++)
		__asm__ volatile("" ::"x"(sum[s]));
}

static double read_rate(const uint8_t *p, size_t bytes, int nr_threads)
{
	struct read_job job = { p, bytes };

	return (double)bytes / best_time(read_all, &job, nr_threads);
}

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
	t = best_time(run_linear, &job, nr_threads) / job.nr_used;
	printf("%-5s %5ux%-5u %4u %3d %10.2f us %7.2f GB/s %5.1f %%", name, n,
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
	double peak = peak_ops(nr_threads);
	double near, far;
	uint8_t *far_buffer = map_bytes(opt.far_bytes);

	memset(far_buffer, 1, opt.far_bytes);
	near = read_rate(weights, opt.model_bytes, nr_threads);
	far = read_rate(far_buffer, opt.far_bytes, nr_threads);
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

static void print_cpu(void)
{
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "model name", 10) == 0) {
			printf("# %s# kernels: %s\n", strchr(line, ':') + 2,
			       opt.kernels->isa);
			break;
		}
	}
	if (f)
		fclose(f);
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

	parse(argc, argv);
	weight_bytes = opt.model_bytes + (128 << 20);
	weights = map_bytes(weight_bytes);
	/* 0x11 in every byte: small codes, and f16 scales far from infinity. */
	memset(weights, 0x11, weight_bytes);
	print_cpu();
	if (opt.nr_threads) {
		bench_threads(weights, opt.nr_threads);
		return 0;
	}
	bench_threads(weights, 1);
	bench_threads(weights, 2);
	return 0;
}
