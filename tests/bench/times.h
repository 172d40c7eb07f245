/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks and order statistics of the benchmarks; all static.
 */
#ifndef TARN_TESTS_BENCH_TIMES_H
#define TARN_TESTS_BENCH_TIMES_H

#include <stdlib.h>
#include <time.h>

/* Seconds on @clock. */
static inline double clock_s(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Sorts @values, @nr of them, at least one. @q: 0 the least, 0.5 the median, 1 the largest. */
static inline double quantile(double *values, size_t nr, double q)
{
	qsort(values, nr, sizeof(*values), compare_times);
	return values[(size_t)((double)(nr - 1) * q)];
}

#endif /* TARN_TESTS_BENCH_TIMES_H */
