/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of bench_kvpool: what COMMIT, SEAL and CLONE cost, each against its baseline,
 * measured in turns so that both see the same machine.
 */
#include <sys/resource.h>

#include "tests/bench/kvpool_kit.h"

enum {
	MAX_REPEATS = 1024,
	PAGE_BYTES = 4096,
	TAIL_BYTES = 5000, /* of the cloned buffer: not a whole page */
	NR_COPIED =
		32, /* folios that are copied, to know what all would cost */
};

struct samples {
	double at[MAX_REPEATS];
	unsigned int nr;
};

static void add(struct samples *samples, double value)
{
	if (samples->nr < MAX_REPEATS)
		samples->at[samples->nr++] = value;
}

/* Prints least, median and largest. Return: the median. */
static double tell(struct samples *samples, const char *what)
{
	double median = quantile(samples->at, samples->nr, 0.5);

	note("%-44s %9.1f us (%.1f to %.1f, %u times)", what, median,
	     samples->at[0], samples->at[samples->nr - 1], samples->nr);
	return median;
}

static long nr_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* ---- commit ---------------------------------------------------------------- */

/* A buffer of one pool, used 2 MiB by 2 MiB. */
struct area {
	int pool, buf;
	char *at;
	uint64_t bytes, next;
};

static struct area area_create(uint64_t bytes, uint64_t limit, uint64_t reserve)
{
	struct area area = { .bytes = bytes };

	area.pool = kv_pool("", limit, reserve);
	area.buf = kv_buf(area.pool, bytes);
	area.at = map(area.buf, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	return area;
}

static void area_destroy(struct area *area)
{
	munmap(area->at, area->bytes);
	close(area->buf);
	close(area->pool);
}

/* Waits until the pool has @bytes ready. */
static void wait_reserve(int pool, uint64_t bytes)
{
	for (int i = 0; i < 10000; i++) {
		if (kv_pool_stat(pool).out_reserve >= bytes)
			return;
		usleep(1000);
	}
	bench_die("the reserve does not come to %llu MiB",
		  (unsigned long long)(bytes / MIB));
}

/*
 * COMMIT of the next 2 MiB and a touch of it. Return: microseconds.
 * @out_commit: those of the call alone
 */
static double commit_and_touch(struct area *area, double *out_commit)
{
	double start = now_us(), between, end;

	kv_commit(area->buf, area->next, HUGE_BYTES);
	between = now_us();
	touch_write(area->at + area->next, 1, 1);
	end = now_us();
	area->next += HUGE_BYTES;
	*out_commit = between - start;
	return end - start;
}

/* The next huge page of the hugetlb file; it is there already. */
static double populate_and_touch(char *at, uint64_t offset)
{
	double start = now_us();

	must(madvise(at + offset, HUGE_BYTES, 23 /* MADV_POPULATE_WRITE */),
	     "MADV_POPULATE_WRITE");
	touch_write(at + offset, 1, 1);
	return now_us() - start;
}

/* A file of huge pages that are all there; -1: the system gives none. */
static int hugetlb_file(uint64_t bytes)
{
	char nr[32];
	int fd;

	snprintf(nr, sizeof(nr), "%llu",
		 (unsigned long long)(bytes / HUGE_BYTES));
	set_file("/proc/sys/vm/nr_hugepages", nr);
	fd = memfd_create("bench", MFD_CLOEXEC | MFD_HUGETLB);
	if (fd >= 0 && (ftruncate(fd, (off_t)bytes) != 0 ||
			fallocate(fd, 0, 0, (off_t)bytes) != 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/*
 * What the kernel takes for mapping a huge page that is in a shmem file: the
 * way through the fault is the same as ours. For knowledge: no bar.
 */
static void touch_shmem(unsigned int nr)
{
	static const char setting[] =
		"/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	const uint64_t bytes = nr * HUGE_BYTES;
	struct samples theirs = { .nr = 0 };
	int file = must(memfd_create("bench", MFD_CLOEXEC), "memfd_create");
	char *all, *at;

	must(ftruncate(file, (off_t)bytes), "ftruncate");
	if (!set_file(setting, "force") ||
	    fallocate(file, 0, 0, (off_t)bytes) != 0) {
		note("no huge pages in a memfd here");
		close(file);
		return;
	}
	all = map(-1, bytes + HUGE_BYTES, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS);
	at = all + (-(uintptr_t)all & (HUGE_BYTES - 1));
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 file, 0) == MAP_FAILED)
		bench_die("mmap of a memfd: %s", strerror(errno));
	touch_write(at, bytes, HUGE_BYTES);
	/* All is there and zeroed now; mapped anew, only the fault is left. */
	must(madvise(at, bytes, MADV_DONTNEED), "MADV_DONTNEED");
	for (unsigned int i = 0; i < nr; i++) {
		double start = now_us();

		touch_write(at + i * HUGE_BYTES, 1, 1);
		add(&theirs, now_us() - start);
	}
	tell(&theirs, "touch of a huge page that a memfd has");
	munmap(all, bytes + HUGE_BYTES);
	close(file);
	set_file(setting, "never");
}

/*
 * From the reserve, in a pool whose limit leaves nothing to refill it with, so
 * that the zeroing of later folios is not in what is measured.
 */
static void commit_from_reserve(const struct bench_sizes *sizes)
{
	const unsigned int nr = sizes->nr_repeats < 100 ? sizes->nr_repeats :
							  100;
	const uint64_t bytes = nr * HUGE_BYTES;
	struct area area = area_create(bytes, bytes, bytes);
	struct samples ours = { .nr = 0 }, theirs = { .nr = 0 },
		       call = { .nr = 0 };
	int file = hugetlb_file(bytes);
	double commit;
	char *at;

	if (file < 0) {
		note("no huge pages to be had: commit from the reserve is left out");
		area_destroy(&area);
		return;
	}
	at = map(file, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	wait_reserve(area.pool, bytes);
	for (unsigned int i = 0; i < nr; i++) {
		add(&theirs, populate_and_touch(at, i * HUGE_BYTES));
		add(&ours, commit_and_touch(&area, &commit));
		add(&call, commit);
	}
	if (kv_pool_stat(area.pool).out_reserve)
		bench_die("the reserve was not used up");
	tell(&call, "COMMIT from the reserve, the call alone");
	double base = tell(&theirs, "MADV_POPULATE_WRITE, populated hugetlb");
	bar("commit-reserve",
	    tell(&ours, "COMMIT from the reserve, touch") / base, 1.2);
	munmap(at, bytes);
	close(file);
	set_file("/proc/sys/vm/nr_hugepages", "0");
	area_destroy(&area);
}

/* As above, but the reserve fills up again meanwhile: no bar, for knowledge. */
static void commit_with_refill(const struct bench_sizes *sizes)
{
	const uint64_t bytes = sizes->nr_repeats * HUGE_BYTES;
	struct area area = area_create(bytes, KVPOOL_UNLIMITED, 16 * MIB);
	struct samples ours = { .nr = 0 };
	double commit;

	for (unsigned int i = 0; i < sizes->nr_repeats; i++) {
		wait_reserve(area.pool, 16 * MIB);
		add(&ours, commit_and_touch(&area, &commit));
	}
	tell(&ours, "the same while the reserve is refilled");
	area_destroy(&area);
}

/* A touch of 2 MiB of anonymous memory that gets a huge page. */
static double fault_thp(char *at)
{
	double start = now_us();

	touch_write(at, 1, 1);
	return now_us() - start;
}

static void commit_cold(const struct bench_sizes *sizes)
{
	const uint64_t bytes = sizes->nr_repeats * HUGE_BYTES;
	struct area area = area_create(bytes, KVPOOL_UNLIMITED, 0);
	struct samples ours = { .nr = 0 }, theirs = { .nr = 0 },
		       fault = { .nr = 0 };
	char *all = map(-1, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS);
	char *at = all + (-(uintptr_t)all & (HUGE_BYTES - 1));
	double commit;
	long before;

	must(madvise(at, bytes, MADV_HUGEPAGE), "MADV_HUGEPAGE");
	for (unsigned int i = 0; i < sizes->nr_repeats; i++) {
		const uint64_t offset = i * HUGE_BYTES;

		add(&theirs, fault_thp(at + offset));
		add(&ours, commit_and_touch(&area, &commit));
		before = nr_faults();
		touch_write(at + offset, HUGE_BYTES, PAGE_BYTES);
		touch_write(area.at + offset, HUGE_BYTES, PAGE_BYTES);
		if (nr_faults() - before > 4)
			note("page %u: %ld faults: not huge", i,
			     nr_faults() - before);
		must(madvise(at + offset, HUGE_BYTES, MADV_DONTNEED), "free");
		kv_release(area.buf, offset, HUGE_BYTES);
		/* A fault alone, without COMMIT. */
		double start = now_us();
		touch_write(area.at + offset, 1, 1);
		add(&fault, now_us() - start);
		kv_release(area.buf, offset, HUGE_BYTES);
	}
	double base = tell(&theirs, "anonymous THP fault");
	double cold = tell(&ours, "COMMIT without reserve, touch");
	double faulted = tell(&fault, "fault without COMMIT or reserve");
	bar("commit-cold", cold / base, 1.1);
	bar("fault-cold", faulted / base, 1.1);
	munmap(all, bytes + HUGE_BYTES);
	area_destroy(&area);
}

void bench_commit(const struct bench_sizes *sizes)
{
	touch_shmem(sizes->nr_repeats);
	commit_from_reserve(sizes);
	commit_with_refill(sizes);
	commit_cold(sizes);
}

/* ---- clone ----------------------------------------------------------------- */

/* Microseconds for copying one folio, where both sides are there. */
static double copy_us(const char *from, const struct bench_sizes *sizes)
{
	unsigned int nr = sizes->nr_folios < NR_COPIED ? sizes->nr_folios :
							 NR_COPIED;
	struct area area = area_create(nr * HUGE_BYTES, KVPOOL_UNLIMITED, 0);
	struct samples samples = { .nr = 0 };

	kv_commit(area.buf, 0, nr * HUGE_BYTES);
	touch_write(area.at, nr * HUGE_BYTES, PAGE_BYTES);
	for (unsigned int i = 0; i < 4 * nr; i++) {
		const uint64_t offset = i % nr * HUGE_BYTES;
		double start = now_us();

		memcpy(area.at + offset, from + offset, HUGE_BYTES);
		add(&samples, now_us() - start);
	}
	area_destroy(&area);
	return tell(&samples, "memcpy of one folio");
}

static struct kvpool_buf_clone clone_args(int pool, uint64_t n, uint64_t bytes)
{
	return (struct kvpool_buf_clone){
		.size = sizeof(struct kvpool_buf_clone),
		.n = n,
		.bytes = bytes,
		.pool_fd = pool,
	};
}

void bench_clone(const struct bench_sizes *sizes)
{
	const uint64_t whole = sizes->nr_folios * HUGE_BYTES;
	const uint64_t bytes = whole + HUGE_BYTES, n = whole + TAIL_BYTES;
	struct area area = area_create(bytes, KVPOOL_UNLIMITED, 0);
	struct samples clone = { .nr = 0 };
	struct kvpool_buf_clone args;
	double start, fresh, seal, refault, copy;
	long faults;

	start = now_us();
	kv_commit(area.buf, 0, bytes);
	touch_write(area.at, bytes, HUGE_BYTES);
	fresh = now_us() - start;
	touch_write(area.at, bytes, PAGE_BYTES);
	/* As libkvpool does it: a writable mapping would get SIGBUS. */
	must(mprotect(area.at, bytes, PROT_READ), "mprotect");
	start = now_us();
	kv_seal(area.buf, n);
	seal = now_us() - start;
	faults = nr_faults();
	start = now_us();
	touch_read(area.at, n, HUGE_BYTES);
	refault = now_us() - start;
	faults = nr_faults() - faults;

	for (int i = 0; i < 9; i++) {
		args = clone_args(area.pool, n, bytes);
		start = now_us();
		must(ioctl(area.buf, KVPOOL_BUF_CLONE, &args), "BUF_CLONE");
		add(&clone, now_us() - start);
		if (args.out_shared != whole)
			bench_die("shared %llu bytes, not all",
				  (unsigned long long)args.out_shared);
		close(args.out_fd);
	}
	note("%u folios and %u bytes", sizes->nr_folios, TAIL_BYTES);
	note("%-44s %9.1f us", "SEAL", seal);
	note("%-44s %9.1f us, %ld faults", "owner's refaults after it", refault,
	     faults);
	double call = tell(&clone, "CLONE");
	copy = copy_us(area.at, sizes) * sizes->nr_folios;
	note("%-44s %9.1f us", "copying all of it, by that", copy);
	note("%-44s %9.1f us", "copying all of it into new memory",
	     copy + fresh);
	bar("clone-and-refaults", (call + refault) / copy, 0.01);
	bar("clone-and-refaults-new-memory", (call + refault) / (copy + fresh),
	    0.01);
	bar("clone-copied-bytes", (double)args.out_copied, 2 * PAGE_BYTES);
	area_destroy(&area);
}
