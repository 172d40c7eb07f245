/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of bench_kvpool: calls of uapi/kvpool.h that end the program where they fail,
 * readings of the system, and the lines that are printed. One process measures;
 * those that it makes only do as they are told.
 */
#ifndef TARN_TESTS_BENCH_KVPOOL_KIT_H
#define TARN_TESTS_BENCH_KVPOOL_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bench/times.h"
#include "uapi/kvpool.h"

#define MIB ((uint64_t)1 << 20)
#define HUGE_BYTES ((uint64_t)2 << 20)

/* What the benchmarks are told. */
struct bench_sizes {
	unsigned int nr_folios; /* of the cloned buffer */
	uint64_t share_bytes; /* of the shared prefix */
	uint64_t volatile_bytes;
	uint64_t kill_bytes;
	unsigned int nr_repeats;
};

/* kvpool_time.c: what calls cost. kvpool_memory.c: where memory goes. */
void bench_commit(const struct bench_sizes *sizes);
void bench_clone(const struct bench_sizes *sizes);
void bench_share(const struct bench_sizes *sizes);
void bench_volatile(const struct bench_sizes *sizes);
void bench_kill(const struct bench_sizes *sizes);

__attribute__((format(printf, 1, 2), noreturn)) static inline void
bench_die(const char *format, ...)
{
	va_list args;

	fputs("bench_kvpool: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* Ends the program with the reason in errno. */
static inline int must(int result, const char *what)
{
	if (result < 0)
		bench_die("%s: %s", what, strerror(errno));
	return result;
}

/* A raw figure, as printf(). */
__attribute__((format(printf, 1, 2))) static inline void
note(const char *format, ...)
{
	va_list args;

	fputs("  ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

/* The line of a bar: a ratio that must not be above @bar. */
static inline void bar(const char *name, double measured, double limit)
{
	printf("bar %s: measured %.4g (bar %.4g): %s\n", name, measured, limit,
	       measured <= limit ? "met" : "missed");
	fflush(stdout);
}

static inline double now_us(void)
{
	return clock_s(CLOCK_MONOTONIC) * 1e6;
}

/* ---- the module ---------------------------------------------------------- */

static inline int kv_device(void)
{
	return must(open(KVPOOL_DEVICE, O_RDWR | O_CLOEXEC), KVPOOL_DEVICE);
}

/* Return: a pool's descriptor. @name may be empty. */
static inline int kv_pool(const char *name, uint64_t limit, uint64_t reserve)
{
	struct kvpool_pool_create args = {
		.size = sizeof(args),
		.flags = KVPOOL_POOL_NO_ORDER,
		.limit = limit,
		.quota = KVPOOL_UNLIMITED,
		.shared_quota = KVPOOL_UNLIMITED,
		.reserve = reserve,
		.mode = 0600,
	};
	int dev = kv_device();

	snprintf((char *)args.name, sizeof(args.name), "%s", name);
	must(ioctl(dev, KVPOOL_POOL_CREATE, &args), "POOL_CREATE");
	close(dev);
	return args.out_fd;
}

static inline struct kvpool_pool_stat kv_pool_stat(int pool)
{
	struct kvpool_pool_stat args = { .size = sizeof(args),
					 .uid = KVPOOL_NO_UID };

	must(ioctl(pool, KVPOOL_POOL_STAT, &args), "POOL_STAT");
	return args;
}

static inline int kv_buf(int pool, uint64_t bytes)
{
	struct kvpool_buf_create args = { .size = sizeof(args),
					  .bytes = bytes };

	must(ioctl(pool, KVPOOL_BUF_CREATE, &args), "BUF_CREATE");
	return args.out_fd;
}

static inline void kv_commit(int buf, uint64_t offset, uint64_t len)
{
	struct kvpool_buf_range args = { .size = sizeof(args),
					 .offset = offset,
					 .len = len };

	must(ioctl(buf, KVPOOL_BUF_COMMIT, &args), "BUF_COMMIT");
}

static inline void kv_release(int buf, uint64_t offset, uint64_t len)
{
	struct kvpool_buf_range args = { .size = sizeof(args),
					 .offset = offset,
					 .len = len };

	must(ioctl(buf, KVPOOL_BUF_RELEASE, &args), "BUF_RELEASE");
}

static inline void kv_seal(int buf, uint64_t n)
{
	struct kvpool_buf_seal args = { .size = sizeof(args), .n = n };

	must(ioctl(buf, KVPOOL_BUF_SEAL, &args), "BUF_SEAL");
}

static inline void kv_advise(int buf, unsigned int advice)
{
	struct kvpool_buf_advise args = { .size = sizeof(args),
					  .advice = advice };

	must(ioctl(buf, KVPOOL_BUF_ADVISE, &args), "BUF_ADVISE");
}

/* ---- memory -------------------------------------------------------------- */

static inline char *map(int fd, uint64_t bytes, int prot, int flags)
{
	char *at = mmap(NULL, bytes, prot, flags, fd, 0);

	if (at == MAP_FAILED)
		bench_die("mmap of %llu MiB: %s",
			  (unsigned long long)(bytes / MIB), strerror(errno));
	return at;
}

static inline void touch_write(char *at, uint64_t bytes, uint64_t step)
{
	for (uint64_t i = 0; i < bytes; i += step)
		*(volatile char *)(at + i) = 1;
}

static inline void touch_read(const char *at, uint64_t bytes, uint64_t step)
{
	for (uint64_t i = 0; i < bytes; i += step)
		(void)*(const volatile char *)(at + i);
}

/* Bytes that /proc/meminfo says of @field. */
static inline uint64_t meminfo(const char *field)
{
	size_t len = strlen(field);
	unsigned long long kib = 0;
	char line[128];
	FILE *in = fopen("/proc/meminfo", "re");

	if (!in)
		bench_die("/proc/meminfo: %s", strerror(errno));
	while (fgets(line, sizeof(line), in))
		if (strncmp(line, field, len) == 0 && line[len] == ':')
			sscanf(line + len + 1, "%llu", &kib);
	fclose(in);
	return (uint64_t)kib << 10;
}

/* Writes a setting of the system. Return: whether it could be written. */
static inline bool set_file(const char *path, const char *text)
{
	FILE *out = fopen(path, "we");
	bool is_written;

	if (!out)
		return false;
	is_written = fputs(text, out) >= 0;
	return (fclose(out) == 0) && is_written;
}

#endif /* TARN_TESTS_BENCH_KVPOOL_KIT_H */
