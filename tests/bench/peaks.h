/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a machine can do at most, measured in the run that quotes it: 8-bit
 * multiply-adds and reading, on N threads. For benchmarks; all static.
 *
 * @clock is CLOCK_MONOTONIC, or CLOCK_THREAD_CPUTIME_ID: then other programs'
 * turns on the cores do not count.
 */
#ifndef TARN_TESTS_BENCH_PEAKS_H
#define TARN_TESTS_BENCH_PEAKS_H

#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/bench/times.h"

enum {
	MAX_THREADS = 64,
	NR_PASSES = 30,
};

/* "model name" of the machine's first CPU, or "unknown CPU". */
static inline void cpu_model(char *out, size_t len)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256], *name;

	snprintf(out, len, "unknown CPU");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "model name", 10) != 0)
			continue;
		name = strchr(line, ':');
		if (name)
			snprintf(out, len, "%.*s",
				 (int)strcspn(name + 1, "\n") - 1, name + 2);
		break;
	}
	if (f)
		fclose(f);
}

static inline void *map_bytes(size_t bytes)
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

/* ---- running on N threads --------------------------------------------------- */

typedef void (*work_fn)(void *ctx, int thread, int nr_threads);

struct crew {
	pthread_barrier_t start;
	work_fn fn;
	void *ctx;
	int nr_threads;
	clockid_t clock;
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

		pthread_barrier_wait(&me->crew->start);
		t = clock_s(me->crew->clock);
		me->crew->fn(me->crew->ctx, me->index, me->crew->nr_threads);
		me->times[pass] = clock_s(me->crew->clock) - t;
	}
	return NULL;
}

/*
 * Best of NR_PASSES passes of @fn on @nr_threads threads, each pass taking as
 * long as its slowest thread, seconds.
 */
static double best_time(work_fn fn, void *ctx, int nr_threads, clockid_t clock)
{
	struct crew crew = {
		.fn = fn, .ctx = ctx, .nr_threads = nr_threads, .clock = clock
	};
	static struct member members[MAX_THREADS];
	double best = 1e30;

	pthread_barrier_init(&crew.start, NULL, (unsigned int)nr_threads);
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
	pthread_barrier_destroy(&crew.start);
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

/* Operations a second, a multiply-add being two; @use_avx512: by vpdpbusd. */
static inline double peak_ops(int nr_threads, bool use_avx512, clockid_t clock)
{
	if (use_avx512)
		return nr_threads * 12.0 * 128 * PEAK_LOOPS /
		       best_time(peak_vnni, NULL, nr_threads, clock);
	if (__builtin_cpu_supports("avx2"))
		return nr_threads * 6.0 * 64 * PEAK_LOOPS /
		       best_time(peak_avx2, NULL, nr_threads, clock);
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

/* Bytes a second of @nr_threads threads reading their parts of @p, 64-byte aligned. */
static inline double read_rate(const uint8_t *p, size_t bytes, int nr_threads,
			       clockid_t clock)
{
	struct read_job job = { p, bytes };

	return (double)bytes / best_time(read_all, &job, nr_threads, clock);
}

#endif /* TARN_TESTS_BENCH_PEAKS_H */
