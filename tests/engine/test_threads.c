/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread pool (engine/backend/threads.h): each unit of a share is taken
 * once, barriers order what is written, runs follow each other without loss,
 * with more threads than cores too. What is written is plain memory, so that
 * the thread sanitizer sees an order that is missing.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/threads.h"
#include "tests/harness.h"

enum {
	MANY = 9, /* threads: more than the cores of a small machine */
	MAX_UNITS = 1000,
};

static struct threads *pool(uint32_t nr)
{
	struct threads *threads = NULL;

	ASSERT_EQ(0, threads_create(nr, &threads));
	ASSERT_EQ(nr, threads_nr(threads));
	return threads;
}

/* ---- creation --------------------------------------------------------------- */

TEST(numbers_out_of_range_are_refused)
{
	struct threads *threads = (void *)0x1;

	EXPECT_EQ(-EINVAL, threads_create(0, &threads));
	EXPECT_EQ(-EINVAL, threads_create(THREADS_MAX + 1, &threads));
	EXPECT_EQ((void *)0x1, (void *)threads);
	threads_destroy(NULL);
}

TEST(pools_come_and_go_unused)
{
	for (uint32_t i = 0; i < 60; i++)
		threads_destroy(pool(1 + i % MANY));
}

static void count_call(void *arg, uint32_t thread)
{
	((uint32_t *)arg)[thread]++;
}

TEST(the_largest_pool_runs_each_thread_once)
{
	uint32_t *calls = calloc(THREADS_MAX, sizeof(*calls));
	struct threads *threads = pool(THREADS_MAX);

	ASSERT_TRUE(calls != NULL);
	for (int i = 0; i < 3; i++)
		threads_run(threads, count_call, calls);
	for (uint32_t i = 0; i < THREADS_MAX; i++)
		EXPECT_EQ(3, calls[i]);
	threads_destroy(threads);
	free(calls);
}

TEST(the_caller_may_use_its_cpus_again_once_the_pool_is_gone)
{
	cpu_set_t before, after;
	uint32_t calls[1] = { 0 };

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(before), &before));
	for (int i = 0; i < 2; i++) {
		struct threads *threads = pool(1);

		threads_run(threads, count_call, calls);
		threads_run(threads, count_call, calls);
		threads_destroy(threads);
		ASSERT_EQ(0, sched_getaffinity(0, sizeof(after), &after));
		EXPECT_TRUE(CPU_EQUAL(&before, &after));
	}
	EXPECT_EQ(4, calls[0]);
}

/* ---- shares ------------------------------------------------------------------- */

struct share_job {
	struct work_share *share;
	uint32_t nr_units, chunk;
	uint32_t taken
		[MAX_UNITS]; /* how often; each is one thread's alone if all goes well */
	uint32_t nr_bad; /* ranges that are empty, too long or out of range */
};

static void take_all(void *arg, uint32_t thread)
{
	struct share_job *job = arg;
	uint32_t first, end;

	while (work_share_take(job->share, thread, &first, &end)) {
		if (first >= end || end > job->nr_units ||
		    end - first > job->chunk) {
			__atomic_fetch_add(&job->nr_bad, 1, __ATOMIC_RELAXED);
			return;
		}
		for (uint32_t i = first; i < end; i++)
			job->taken[i]++;
	}
}

static struct work_share *share_alloc(uint32_t nr_threads)
{
	struct work_share *share = aligned_alloc(
		64, (work_share_bytes(nr_threads) + 63) & ~(size_t)63);

	ASSERT_TRUE(share != NULL);
	return share;
}

static void expect_once(const struct share_job *job, uint32_t nr_threads)
{
	EXPECT_EQ(0, job->nr_bad);
	for (uint32_t i = 0; i < job->nr_units; i++)
		EXPECT_EQ(1, job->taken[i])
		{
			TH_LOG("unit %u of %u, %u threads, chunk %u", i,
			       job->nr_units, nr_threads, job->chunk);
			return;
		}
}

TEST_TIMEOUT(every_unit_is_taken_once, 60)
{
	static const uint32_t nr_threads[] = { 1, 2, 3, 5, MANY };
	static const uint32_t units[] = { 0, 1,	 2,  3,	 7,
					  8, 63, 64, 65, MAX_UNITS };
	static const uint32_t chunks[] = { 1, 2, 3, 8, 64, 5000 };

	for (size_t t = 0; t < 5; t++) {
		struct threads *threads = pool(nr_threads[t]);
		struct share_job job = { .share = share_alloc(nr_threads[t]) };

		for (int i = 0; i < 10 * 6; i++) {
			job.nr_units = units[i % 10];
			job.chunk = chunks[i / 10];
			memset(job.taken, 0, sizeof(job.taken));
			work_share_init(job.share, nr_threads[t], job.nr_units,
					job.chunk);
			threads_run(threads, take_all, &job);
			expect_once(&job, nr_threads[t]);
		}
		threads_destroy(threads);
		free(job.share);
	}
}

TEST(a_chunk_of_0_is_one_unit)
{
	struct work_share *share = share_alloc(1);
	uint32_t first = 77, end = 77;

	work_share_init(share, 1, 2, 0);
	for (uint32_t i = 0; i < 2; i++) {
		ASSERT_TRUE(work_share_take(share, 0, &first, &end));
		EXPECT_EQ(i, first);
		EXPECT_EQ(i + 1, end);
	}
	EXPECT_FALSE(work_share_take(share, 0, &first, &end));
	free(share);
}

TEST(one_thread_takes_what_the_others_leave)
{
	struct share_job job = { .share = share_alloc(4),
				 .nr_units = 101,
				 .chunk = 3 };
	uint32_t first, end;

	work_share_init(job.share, 4, job.nr_units, job.chunk);
	/* Its own part is the third quarter. */
	ASSERT_TRUE(work_share_take(job.share, 2, &first, &end));
	EXPECT_EQ(50, first);
	EXPECT_EQ(53, end);
	for (uint32_t i = first; i < end; i++)
		job.taken[i]++;
	take_all(&job, 2);
	expect_once(&job, 4);
	/* Done is done, however often one asks. */
	for (int i = 0; i < 1000; i++)
		EXPECT_FALSE(work_share_take(job.share, i % 4, &first, &end));
	free(job.share);
}

TEST(a_share_takes_the_bytes_it_says)
{
	for (uint32_t nr = 1; nr <= MANY; nr++) {
		size_t bytes = work_share_bytes(nr);
		uint8_t *mem = aligned_alloc(64, (bytes + 127) & ~(size_t)63);

		ASSERT_TRUE(mem != NULL);
		memset(mem, 0xa5, (bytes + 127) & ~(size_t)63);
		work_share_init((struct work_share *)mem, nr, 50, 4);
		for (size_t i = bytes; i < ((bytes + 127) & ~(size_t)63); i++)
			EXPECT_EQ(0xa5, mem[i]);
		free(mem);
	}
}

/* ---- barriers ------------------------------------------------------------------- */

struct phase_job {
	struct threads *threads;
	uint32_t nr_threads, nr_phases;
	uint64_t cells
		[2]
		[MANY]; /* written in one phase by their owner, read in the next by all */
	uint32_t nr_wrong;
};

static void walk_phases(void *arg, uint32_t thread)
{
	struct phase_job *job = arg;

	for (uint32_t p = 0; p < job->nr_phases; p++) {
		uint64_t *now = job->cells[p % 2];
		uint64_t sum = 0;

		now[thread] = (uint64_t)p * (thread + 1);
		threads_barrier(job->threads);
		for (uint32_t i = 0; i < job->nr_threads; i++)
			sum += now[i];
		if (sum !=
		    (uint64_t)p * job->nr_threads * (job->nr_threads + 1) / 2)
			__atomic_fetch_add(&job->nr_wrong, 1, __ATOMIC_RELAXED);
	}
}

TEST_TIMEOUT(what_is_written_before_a_barrier_is_read_behind_it, 60)
{
	static const uint32_t nr_threads[] = { 1, 2, 3, MANY };

	for (size_t t = 0; t < 4; t++) {
		struct phase_job job = {
			.threads = pool(nr_threads[t]),
			.nr_threads = nr_threads[t],
			.nr_phases = nr_threads[t] > 3 ? 150 : 3000,
		};

		for (int i = 0; i < 3; i++)
			threads_run(job.threads, walk_phases, &job);
		EXPECT_EQ(0, job.nr_wrong)
		{
			TH_LOG("%u threads", nr_threads[t]);
		}
		threads_destroy(job.threads);
	}
}

/* ---- runs ------------------------------------------------------------------------- */

struct run_job {
	uint32_t given; /* by the caller before the run */
	uint32_t got[MANY];
};

static void note_given(void *arg, uint32_t thread)
{
	struct run_job *job = arg;

	job->got[thread] += job->given;
}

static void run_often(uint32_t nr_threads, uint32_t nr_runs)
{
	struct threads *threads = pool(nr_threads);
	struct run_job job = { 0 };
	uint32_t want = 0;

	for (uint32_t i = 0; i < nr_runs; i++) {
		job.given = i % 1000;
		want += job.given;
		threads_run(threads, note_given, &job);
		/* A run that returned early, or a worker that slept through it, is seen here. */
		for (uint32_t t = 0; t < nr_threads; t++)
			ASSERT_EQ(want, job.got[t])
			{
				TH_LOG("run %u, thread %u of %u", i, t,
				       nr_threads);
			}
	}
	threads_destroy(threads);
}

TEST_TIMEOUT(a_hundred_thousand_short_runs_lose_nothing, 120)
{
	run_often(1, 1000);
	run_often(2, 100000);
}

TEST_TIMEOUT(runs_lose_nothing_with_more_threads_than_cores, 120)
{
	run_often(MANY, 600);
}

TEST(workers_that_fell_asleep_wake_up)
{
	struct threads *threads = pool(3);
	struct run_job job = { .given = 1 };

	for (uint32_t i = 1; i <= 20; i++) {
		/* Longer than any spinning and yielding. */
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		threads_run(threads, note_given, &job);
		for (int t = 0; t < 3; t++)
			EXPECT_EQ(i, job.got[t]);
	}
	nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	threads_destroy(threads); /* asleep */
}

static void *run_elsewhere(void *arg)
{
	uint32_t calls[2] = { 0 };

	threads_run(arg, count_call, calls);
	EXPECT_EQ(1, calls[0]);
	EXPECT_EQ(1, calls[1]);
	return NULL;
}

/* A model is loaded by one thread and driven by another. */
TEST(callers_may_take_turns)
{
	struct threads *threads = pool(2);

	for (int i = 0; i < 5; i++) {
		pthread_t other;

		run_elsewhere(threads);
		ASSERT_EQ(0,
			  pthread_create(&other, NULL, run_elsewhere, threads));
		ASSERT_EQ(0, pthread_join(other, NULL));
	}
	threads_destroy(threads);
}

TEST_HARNESS_MAIN
