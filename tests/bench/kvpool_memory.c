/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of bench_kvpool: where memory is and how soon it comes back: one prefix for
 * several processes, volatile buffers under pressure, the death of an owner.
 */
#include <signal.h>
#include <sys/wait.h>

#include "tests/bench/kvpool_kit.h"

enum {
	NR_SHARERS = 8,
	NR_VOLATILE_BUFS = 16,
	NR_ROUNDS = 3, /* of what takes long */
	PAGE_BYTES = 4096,
};

/* A process that does its work when told to, says so, and waits to be killed. */
struct helper {
	pid_t pid;
	int go, done; /* pipes */
};

static struct helper helper_start(void (*work)(const void *), const void *arg)
{
	int go[2], done[2];
	char byte;
	struct helper helper;

	must(pipe(go), "pipe");
	must(pipe(done), "pipe");
	helper.pid = must(fork(), "fork");
	if (helper.pid == 0) {
		close(go[1]);
		close(done[0]);
		if (read(go[0], &byte, 1) != 1)
			_exit(0);
		work(arg);
		if (write(done[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(go[0]);
	close(done[1]);
	helper.go = go[1];
	helper.done = done[0];
	return helper;
}

static void helper_run(struct helper *helper)
{
	char byte;

	must((int)write(helper->go, "", 1), "write");
	if (read(helper->done, &byte, 1) != 1)
		bench_die("a process could not do its part");
}

static void helper_end(struct helper *helper)
{
	kill(helper->pid, SIGKILL);
	waitpid(helper->pid, NULL, 0);
	close(helper->go);
	close(helper->done);
}

static double median_of(double *values, unsigned int nr, const char *what)
{
	double median = quantile(values, nr, 0.5);

	note("%-44s %9.1f us (%.1f to %.1f, %u times)", what, median, values[0],
	     values[nr - 1], nr);
	return median;
}

/* ---- one prefix, several processes ------------------------------------------ */

struct prefix {
	int pool;
	uint64_t bytes;
	struct kvpool_mark mark;
};

static int lookup(const struct prefix *prefix)
{
	struct kvpool_buf_lookup args = { .size = sizeof(args) };

	memcpy(args.key, prefix->mark.key, sizeof(args.key));
	must(ioctl(prefix->pool, KVPOOL_BUF_LOOKUP, &args), "BUF_LOOKUP");
	if (args.out_n != prefix->bytes)
		bench_die("a look-up found too little");
	return args.out_fd;
}

static void attach_and_read(const void *arg)
{
	const struct prefix *prefix = arg;
	int fd = lookup(prefix);
	char *at = map(fd, prefix->bytes, PROT_READ, MAP_SHARED);

	touch_read(at, prefix->bytes, PAGE_BYTES);
}

/* The publisher keeps no mapping and no descriptor: the pool holds the prefix. */
static struct prefix prefix_create(uint64_t bytes)
{
	struct prefix prefix = { .bytes = bytes };
	struct kvpool_buf_publish args = {
		.size = sizeof(args),
		.marks = (uintptr_t)&prefix.mark,
		.nr_marks = 1,
	};
	int buf;
	char *at;

	prefix.pool = kv_pool("", KVPOOL_UNLIMITED, 0);
	buf = kv_buf(prefix.pool, bytes);
	at = map(buf, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	kv_commit(buf, 0, bytes);
	touch_write(at, bytes, PAGE_BYTES);
	munmap(at, bytes);
	kv_seal(buf, bytes);
	memset(prefix.mark.key, 7, sizeof(prefix.mark.key));
	prefix.mark.n = bytes;
	must(ioctl(buf, KVPOOL_BUF_PUBLISH, &args), "BUF_PUBLISH");
	close(buf);
	return prefix;
}

static void share_memory(const struct prefix *prefix)
{
	struct helper helpers[NR_SHARERS];
	struct kvpool_pool_stat stat;
	uint64_t before, after;
	double lost;

	for (int i = 0; i < NR_SHARERS; i++)
		helpers[i] = helper_start(attach_and_read, prefix);
	usleep(200000);
	before = meminfo("MemFree");
	for (int i = 0; i < NR_SHARERS; i++)
		helper_run(&helpers[i]);
	after = meminfo("MemFree");
	stat = kv_pool_stat(prefix->pool);
	for (int i = 0; i < NR_SHARERS; i++)
		helper_end(&helpers[i]);
	lost = (double)before - (double)after;
	note("prefix %.1f MiB, resident %.1f MiB, lost from MemFree %.2f MiB",
	     (double)prefix->bytes / MIB, (double)stat.out_resident / MIB,
	     lost / MIB);
	bar("share-memory",
	    ((double)stat.out_resident + (lost > 0 ? lost : 0)) /
		    (double)prefix->bytes,
	    1.02);
}

static void share_attach(const struct prefix *prefix, unsigned int nr_repeats)
{
	const uint64_t bytes = prefix->bytes;
	int memfd = must(memfd_create("bench", MFD_CLOEXEC), "memfd_create");
	double *ours = calloc(nr_repeats, sizeof(*ours));
	double *theirs = calloc(nr_repeats, sizeof(*theirs));
	char path[64];

	if (!ours || !theirs)
		bench_die("no memory");
	must(ftruncate(memfd, (off_t)bytes), "ftruncate");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
	for (unsigned int i = 0; i < nr_repeats; i++) {
		double start = now_us();
		int fd = must(open(path, O_RDONLY | O_CLOEXEC), path);
		char *at = map(fd, bytes, PROT_READ, MAP_SHARED);

		theirs[i] = now_us() - start;
		munmap(at, bytes);
		close(fd);

		start = now_us();
		fd = lookup(prefix);
		at = map(fd, bytes, PROT_READ, MAP_SHARED);
		ours[i] = now_us() - start;
		munmap(at, bytes);
		close(fd);
	}
	double base = median_of(theirs, nr_repeats, "open and map a memfd");
	bar("share-attach",
	    median_of(ours, nr_repeats, "LOOKUP and map") / base, 2);
	free(ours);
	free(theirs);
	close(memfd);
}

void bench_share(const struct bench_sizes *sizes)
{
	struct prefix prefix = prefix_create(sizes->share_bytes);

	share_memory(&prefix);
	share_attach(&prefix, sizes->nr_repeats);
	close(prefix.pool);
}

/* ---- volatile memory -------------------------------------------------------- */

/* Volatile buffers of one pool, full. */
struct volatile_pool {
	int pool, bufs[NR_VOLATILE_BUFS];
};

static struct volatile_pool volatile_create(uint64_t bytes)
{
	struct volatile_pool v = { .pool = kv_pool("", KVPOOL_UNLIMITED, 0) };
	const uint64_t each = bytes / NR_VOLATILE_BUFS;
	char *at;

	for (int i = 0; i < NR_VOLATILE_BUFS; i++) {
		v.bufs[i] = kv_buf(v.pool, each);
		at = map(v.bufs[i], each, PROT_READ | PROT_WRITE, MAP_SHARED);
		kv_commit(v.bufs[i], 0, each);
		touch_write(at, each, PAGE_BYTES);
		munmap(at, each);
		kv_advise(v.bufs[i], KVPOOL_ADVICE_VOLATILE);
	}
	return v;
}

static void volatile_destroy(struct volatile_pool *v)
{
	for (int i = 0; i < NR_VOLATILE_BUFS; i++)
		close(v->bufs[i]);
	close(v->pool);
}

static void drop_all(uint64_t bytes)
{
	struct volatile_pool v = volatile_create(bytes);
	struct kvpool_pool_stat stat = kv_pool_stat(v.pool);
	double start;

	if (stat.out_volatile != bytes)
		bench_die("%llu bytes are volatile, not all",
			  (unsigned long long)stat.out_volatile);
	start = now_us();
	if (!set_file("/proc/sys/vm/drop_caches", "2"))
		bench_die("drop_caches cannot be written");
	note("echo 2 > drop_caches: %.1f us", now_us() - start);
	stat = kv_pool_stat(v.pool);
	note("of %.1f MiB volatile, %.1f MiB are resident after it",
	     (double)bytes / MIB, (double)stat.out_resident / MIB);
	bar("volatile-dropped-rest", (double)stat.out_resident, 0);
	volatile_destroy(&v);
}

static void hog(const void *arg)
{
	const uint64_t bytes = *(const uint64_t *)arg;
	char *at = map(-1, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS);

	touch_write(at, bytes, PAGE_BYTES);
	must(mlock(at, bytes), "mlock");
}

/* Microseconds for a process to get @bytes, all but little of which is to be taken. */
static double populate(uint64_t bytes)
{
	double start = now_us(), end;
	char *at = map(-1, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);

	end = now_us();
	munmap(at, bytes);
	return end - start;
}

/* So much stays free: less would have the system kill somebody. */
static uint64_t slack(void)
{
	return 64 * MIB + meminfo("MemTotal") / 32;
}

static double populate_with_volatile(uint64_t bytes, uint64_t *out_taken)
{
	struct volatile_pool v = volatile_create(bytes);
	double us = populate(bytes);

	*out_taken = kv_pool_stat(v.pool).out_purged;
	volatile_destroy(&v);
	return us;
}

static double populate_with_freed(uint64_t bytes, uint64_t *out_taken)
{
	char *all = map(-1, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS);
	char *at = all + (-(uintptr_t)all & (HUGE_BYTES - 1));
	double us;

	must(madvise(at, bytes, MADV_HUGEPAGE), "MADV_HUGEPAGE");
	touch_write(at, bytes, PAGE_BYTES);
	must(madvise(at, bytes, MADV_FREE), "MADV_FREE");
	us = populate(bytes);
	*out_taken = 0;
	for (uint64_t i = 0; i < bytes; i += PAGE_BYTES)
		*out_taken += at[i] ? 0 : PAGE_BYTES;
	munmap(all, bytes + HUGE_BYTES);
	return us;
}

/* The rest of the memory is held, so that the neighbour has to take ours. */
static void squeeze(uint64_t bytes)
{
	double ours[NR_ROUNDS], theirs[NR_ROUNDS];
	uint64_t free_bytes, held, taken, freed;
	struct helper helper;

	set_file("/proc/sys/vm/drop_caches", "3");
	free_bytes = meminfo("MemFree");
	if (free_bytes < bytes + 2 * slack())
		bench_die("%llu MiB are free: too little for --volatile",
			  (unsigned long long)(free_bytes / MIB));
	held = free_bytes - bytes - slack();
	helper = helper_start(hog, &held);
	helper_run(&helper);
	note("held %.0f MiB, free %.0f MiB", (double)held / MIB,
	     (double)meminfo("MemFree") / MIB);
	for (int i = 0; i < NR_ROUNDS; i++) {
		theirs[i] = populate_with_freed(bytes, &freed);
		ours[i] = populate_with_volatile(bytes, &taken);
		note("taken: %.0f MiB of MADV_FREE'd, %.0f MiB of volatile",
		     (double)freed / MIB, (double)taken / MIB);
	}
	helper_end(&helper);
	double base = median_of(theirs, NR_ROUNDS,
				"MAP_POPULATE against MADV_FREE'd memory");
	bar("volatile-populate",
	    median_of(ours, NR_ROUNDS, "MAP_POPULATE against volatile") / base,
	    1.2);
}

void bench_volatile(const struct bench_sizes *sizes)
{
	drop_all(sizes->volatile_bytes);
	squeeze(sizes->volatile_bytes);
}

/* ---- the death of an owner ---------------------------------------------------- */

struct owned {
	int pool; /* -1: a memfd */
	uint64_t bytes;
};

static void own(const void *arg)
{
	const struct owned *owned = arg;
	int fd;
	char *at;

	if (owned->pool >= 0) {
		fd = kv_buf(owned->pool, owned->bytes);
	} else {
		fd = must(memfd_create("bench", MFD_CLOEXEC), "memfd_create");
		must(ftruncate(fd, (off_t)owned->bytes), "ftruncate");
	}
	at = map(fd, owned->bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	touch_write(at, owned->bytes, PAGE_BYTES);
}

/* Whether nothing of a dead owner's memory is left. */
static bool is_back(const struct owned *owned, uint64_t shmem_before)
{
	if (owned->pool >= 0)
		return kv_pool_stat(owned->pool).out_charged == 0;
	return meminfo("Shmem") + owned->bytes / 100 < shmem_before;
}

/* Microseconds from the kill until the process and its memory are gone. */
static double kill_owner(const struct owned *owned)
{
	struct helper helper = helper_start(own, owned);
	uint64_t huge = meminfo("ShmemHugePages"), shmem = meminfo("Shmem");
	double start, end;

	helper_run(&helper);
	huge = meminfo("ShmemHugePages") - huge;
	if (owned->pool < 0 && huge < owned->bytes)
		note("only %.0f MiB of the memfd are huge", (double)huge / MIB);
	shmem += owned->bytes / 50; /* nobody else's few pages count */
	start = now_us();
	kill(helper.pid, SIGKILL);
	waitpid(helper.pid, NULL, 0);
	while (!is_back(owned, shmem)) {
		if (now_us() - start > 60e6)
			bench_die("the memory does not come back");
	}
	end = now_us();
	close(helper.go);
	close(helper.done);
	return end - start;
}

void bench_kill(const struct bench_sizes *sizes)
{
	static const char setting[] =
		"/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	struct owned memfd = { -1, sizes->kill_bytes };
	struct owned ours = { kv_pool("", KVPOOL_UNLIMITED, 0),
			      sizes->kill_bytes };
	double ours_us[NR_ROUNDS], theirs_us[NR_ROUNDS];

	if (!set_file(setting, "force"))
		note("%s cannot be written: the memfd has small pages",
		     setting);
	for (int i = 0; i < NR_ROUNDS; i++) {
		theirs_us[i] = kill_owner(&memfd);
		ours_us[i] = kill_owner(&ours);
	}
	set_file(setting, "never");
	double base = median_of(theirs_us, NR_ROUNDS, "owner of a memfd");
	bar("kill", median_of(ours_us, NR_ROUNDS, "owner of a buffer") / base,
	    1.2);
	close(ours.pool);
}
