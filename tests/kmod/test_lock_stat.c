/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tasks on two processors that fault in two buffers of two pools wait for
 * no lock of the module: /proc/lock_stat says so. Needs a kernel that has it
 * (the debug kernel of scripts/vm-run); skipped elsewhere.
 */
#include "tests/kmod/kit.h"

#include <sched.h>

enum { NR_TASKS = 2, NR_ROUNDS = 64, NR_PAGES = 256 };

/* The module's lock classes, as its sources name them to lockdep. */
static const char *const lock_names[] = {
	"&pool->acct_lock",   "&pool->key_lock",   "&pool->lru_lock",
	"&pool->drain_lock",  "&pool->event_lock", "&buf->sem",
	"kvpool_pools_mutex",
};

enum { NR_LOCKS = sizeof(lock_names) / sizeof(lock_names[0]) };

struct lock_count {
	unsigned long contentions, acquisitions;
};

/*
 * What lock_stat says of a lock, its classes for reading and writing added up:
 * "NAME-R: con-bounces contentions 4 waiting times acq-bounces acquisitions ..."
 * Return: -ENOENT where there is no lock_stat.
 */
static int read_lock(const char *name, struct lock_count *out)
{
	unsigned long contentions, acquisitions;
	FILE *in = fopen("/proc/lock_stat", "re");
	const size_t len = strlen(name);
	char line[512], *at;

	*out = (struct lock_count){ 0 };
	if (!in)
		return -ENOENT;
	while (fgets(line, sizeof(line), in)) {
		at = line + strspn(line, " ");
		if (strncmp(at, name, len) != 0 || !strchr(":-/#", at[len]))
			continue;
		at = strrchr(at, ':');
		if (at && sscanf(at + 1, "%*s %lu %*s %*s %*s %*s %*s %lu",
				 &contentions, &acquisitions) == 2) {
			out->contentions += contentions;
			out->acquisitions += acquisitions;
		}
	}
	fclose(in);
	return 0;
}

struct task {
	int cpu, buf;
	uint8_t *at;
	pthread_barrier_t *barrier;
	int err;
};

/* Faults pages in, gives them back, and so on. */
static void *fault_in(void *arg)
{
	struct task *task = arg;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(task->cpu, &cpus);
	task->err = sched_setaffinity(0, sizeof(cpus), &cpus) ? -errno : 0;
	pthread_barrier_wait(task->barrier);
	for (int round = 0; !task->err && round < NR_ROUNDS; round++) {
		for (int i = 0; i < NR_PAGES; i++)
			((volatile uint8_t *)task->at)[i * PAGE] = 1;
		task->err = _buf_release(task->buf, 0, NR_PAGES * PAGE, NULL);
	}
	return NULL;
}

TEST_TIMEOUT(lock_stat_two_tasks_in_two_pools_wait_for_no_lock, 120)
{
	int dev = dev_open();
	pthread_t threads[NR_TASKS];
	struct task tasks[NR_TASKS];
	pthread_barrier_t barrier;
	struct lock_count count;

	if (dev < 0)
		return;
	if (read_lock(lock_names[0], &count))
		SKIP(return, "no /proc/lock_stat");
	if (sysconf(_SC_NPROCESSORS_ONLN) < NR_TASKS)
		SKIP(return, "one processor");
	ASSERT_EQ(0, pthread_barrier_init(&barrier, NULL, NR_TASKS));
	for (int i = 0; i < NR_TASKS; i++) {
		tasks[i] = (struct task){ .cpu = i, .barrier = &barrier };
		tasks[i].buf =
			buf_new(pool_new_small(dev, POOL_BYTES), 4 * MIB);
		tasks[i].at =
			buf_map(tasks[i].buf, 4 * MIB, PROT_READ | PROT_WRITE);
	}
	/* From here on, and nothing of what was before. */
	ASSERT_EQ(0, file_write("/proc/sys/kernel/lock_stat", "1"));
	ASSERT_EQ(0, file_write("/proc/lock_stat", "0"));
	for (int i = 0; i < NR_TASKS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, fault_in,
					    &tasks[i]));
	for (int i = 0; i < NR_TASKS; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, tasks[i].err);
	}
	for (int i = 0; i < NR_LOCKS; i++) {
		ASSERT_EQ(0, read_lock(lock_names[i], &count));
		printf("# %s: %lu times taken, %lu times waited for\n",
		       lock_names[i], count.acquisitions, count.contentions);
		EXPECT_EQ(0, count.contentions);
	}
	/* Else it measured nothing: each fault takes both of these. */
	ASSERT_EQ(0, read_lock("&pool->acct_lock", &count));
	EXPECT_LE(NR_TASKS * NR_ROUNDS * NR_PAGES, count.acquisitions);
	ASSERT_EQ(0, read_lock("&buf->sem", &count));
	EXPECT_LE(NR_TASKS * NR_ROUNDS * NR_PAGES, count.acquisitions);
}

TEST_HARNESS_MAIN
