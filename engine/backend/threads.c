/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread pool (threads.h). Workers sleep on a futex between runs, after
 * spinning a little, since the next step often follows at once.
 */
#include <errno.h>
#include <linux/futex.h>
#include <numa.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/backend/threads.h"

enum {
	/*
	 * About 20 us at 3 GHz: longer than any phase of a small model, shorter than a
	 * time slice lost to a neighbour.
	 */
	SPIN_PAUSES = 1500,
	/* Yields before a worker that waits for a run sleeps. */
	IDLE_YIELDS = 50,
};

struct threads {
	uint32_t nr;
	int cpus[THREADS_MAX]; /* -1: not pinned */
	pthread_t workers[THREADS_MAX]; /* [1, nr) */
	pthread_t pinned_caller;
	_Bool has_pinned_caller;
	cpu_set_t caller_cpus; /* what it might use before */
	void (*fn)(void *arg, uint32_t thread);
	void *arg;
	/* Each on a line of its own: all threads hammer on them. */
	_Alignas(64) atomic_uint
		run_id; /* moved by the caller; workers wait on it */
	_Alignas(64) atomic_uint arrived;
	_Alignas(64) atomic_uint phase;
	_Alignas(64) atomic_uint nr_asleep;
	_Bool stop; /* written before run_id moves */
};

struct worker_start {
	struct threads *threads;
	uint32_t index;
};

static void cpu_relax(void)
{
	__builtin_ia32_pause();
}

uint32_t threads_nr_cpus(void)
{
	cpu_set_t set;
	int nr = sched_getaffinity(0, sizeof(set), &set) == 0 ?
			 CPU_COUNT(&set) :
			 1;

	return nr > THREADS_MAX ? THREADS_MAX : nr > 0 ? (uint32_t)nr : 1;
}

static void pin_self(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* A refusal (a cgroup moved under us) costs speed alone. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* CPUs the process may use, those of one NUMA node together. */
static void choose_cpus(struct threads *threads)
{
	cpu_set_t set;
	uint32_t n = 0;
	int last_node = numa_available() < 0 ? 0 : numa_max_node();

	for (uint32_t i = 0; i < threads->nr; i++)
		threads->cpus[i] = -1;
	if (threads_nr_cpus() < threads->nr ||
	    sched_getaffinity(0, sizeof(set), &set) != 0)
		return;
	for (int node = 0; node <= last_node; node++) {
		for (int cpu = 0; cpu < CPU_SETSIZE && n < threads->nr; cpu++) {
			if (!CPU_ISSET(cpu, &set))
				continue;
			if (last_node > 0 && numa_node_of_cpu(cpu) != node)
				continue;
			threads->cpus[n++] = cpu;
		}
	}
}

/* Wait until *word differs from @old: spin, yield, and last sleep if @may_sleep. */
static void wait_change(struct threads *threads, atomic_uint *word,
			unsigned int old, _Bool may_sleep)
{
	for (int i = 0; i < SPIN_PAUSES; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return;
		cpu_relax();
	}
	for (int i = 0; !may_sleep || i < IDLE_YIELDS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return;
		sched_yield();
	}
	atomic_fetch_add(&threads->nr_asleep,
			 1); /* pairs with the read in threads_run() */
	while (atomic_load(word) == old)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL,
			0);
	atomic_fetch_sub(&threads->nr_asleep, 1);
}

void threads_barrier(struct threads *threads)
{
	unsigned int phase;

	if (threads->nr == 1)
		return;
	phase = atomic_load_explicit(&threads->phase, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&threads->arrived, 1,
				      memory_order_acq_rel) +
		    1 ==
	    threads->nr) {
		atomic_store_explicit(&threads->arrived, 0,
				      memory_order_relaxed);
		/* Pairs with the acquire in wait_change(). */
		atomic_store_explicit(&threads->phase, phase + 1,
				      memory_order_release);
		return;
	}
	wait_change(threads, &threads->phase, phase, 0);
}

static void *worker_main(void *arg)
{
	struct worker_start start = *(struct worker_start *)arg;
	struct threads *threads = start.threads;
	unsigned int seen = 0;

	free(arg);
	pin_self(threads->cpus[start.index]);
	for (;;) {
		wait_change(threads, &threads->run_id, seen, 1);
		seen++;
		if (threads->stop)
			return NULL;
		threads->fn(threads->arg, start.index);
		threads_barrier(threads);
	}
}

static void start_run(struct threads *threads)
{
	atomic_fetch_add(&threads->run_id, 1);
	if (atomic_load(&threads->nr_asleep))
		syscall(SYS_futex, &threads->run_id, FUTEX_WAKE_PRIVATE,
			THREADS_MAX, NULL, NULL, 0);
}

void threads_run(struct threads *threads,
		 void (*fn)(void *arg, uint32_t thread), void *arg)
{
	if (!threads->has_pinned_caller ||
	    !pthread_equal(threads->pinned_caller, pthread_self())) {
		CPU_ZERO(&threads->caller_cpus);
		(void)sched_getaffinity(0, sizeof(threads->caller_cpus),
					&threads->caller_cpus);
		pin_self(threads->cpus[0]);
		threads->pinned_caller = pthread_self();
		threads->has_pinned_caller = 1;
	}
	threads->fn = fn;
	threads->arg = arg;
	if (threads->nr > 1)
		start_run(threads);
	fn(arg, 0);
	threads_barrier(threads);
}

int threads_create(uint32_t nr, struct threads **out_threads)
{
	struct threads *threads;

	if (!nr || nr > THREADS_MAX)
		return -EINVAL;
	threads = aligned_alloc(64, (sizeof(*threads) + 63) & ~(size_t)63);
	if (!threads)
		return -ENOMEM;
	memset(threads, 0, sizeof(*threads));
	threads->nr = nr;
	choose_cpus(threads);
	for (uint32_t i = 1; i < nr; i++) {
		struct worker_start *start = malloc(sizeof(*start));
		int rc = ENOMEM;

		if (start) {
			*start = (struct worker_start){ threads, i };
			rc = pthread_create(&threads->workers[i], NULL,
					    worker_main, start);
		}
		if (rc) {
			free(start);
			threads->nr = i; /* those that run: stop them */
			threads_destroy(threads);
			return -rc;
		}
	}
	*out_threads = threads;
	return 0;
}

/* The next pool of this thread, and its children, are to find every CPU. */
static void unpin_caller(struct threads *threads)
{
	if (threads->has_pinned_caller && threads->cpus[0] >= 0 &&
	    pthread_equal(threads->pinned_caller, pthread_self()))
		(void)sched_setaffinity(0, sizeof(threads->caller_cpus),
					&threads->caller_cpus);
}

void threads_destroy(struct threads *threads)
{
	if (!threads)
		return;
	unpin_caller(threads);
	threads->stop = 1;
	if (threads->nr > 1)
		start_run(threads);
	for (uint32_t i = 1; i < threads->nr; i++)
		pthread_join(threads->workers[i], NULL);
	free(threads);
}

uint32_t threads_nr(const struct threads *threads)
{
	return threads->nr;
}

size_t work_share_bytes(uint32_t nr_threads)
{
	return sizeof(struct work_share) + nr_threads * sizeof(struct work_run);
}

void work_share_init(struct work_share *share, uint32_t nr_threads,
		     uint32_t nr_units, uint32_t chunk)
{
	share->nr_threads = nr_threads;
	share->chunk = chunk ? chunk : 1;
	for (uint32_t i = 0; i < nr_threads; i++) {
		uint64_t first = (uint64_t)nr_units * i / nr_threads;

		atomic_init(&share->runs[i].next, (unsigned int)first);
		share->runs[i].end =
			(uint32_t)((uint64_t)nr_units * (i + 1) / nr_threads);
	}
}

_Bool work_share_take(struct work_share *share, uint32_t thread,
		      uint32_t *out_first, uint32_t *out_end)
{
	for (uint32_t i = 0; i < share->nr_threads; i++) {
		struct work_run *run =
			&share->runs[(thread + i) % share->nr_threads];
		uint32_t first;

		/* A plain look first: a run that is done must not be counted up for ever. */
		if (atomic_load_explicit(&run->next, memory_order_relaxed) >=
		    run->end)
			continue;
		first = atomic_fetch_add_explicit(&run->next, share->chunk,
						  memory_order_relaxed);
		if (first >= run->end)
			continue;
		*out_first = first;
		*out_end = run->end - first < share->chunk ?
				   run->end :
				   first + share->chunk;
		return 1;
	}
	return 0;
}
