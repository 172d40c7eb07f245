/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of pinned threads that run one function together, with a barrier
 * between its phases. The caller is thread 0.
 *
 * Knows nothing of what is computed. One caller at a time.
 */
#ifndef TARN_ENGINE_BACKEND_THREADS_H
#define TARN_ENGINE_BACKEND_THREADS_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	THREADS_MAX = 256,
};

struct threads;

/* CPUs this process may run on, THREADS_MAX at most. */
uint32_t threads_nr_cpus(void);
/**
 * threads_create - start @nr - 1 workers
 *
 * Worker i is pinned to the i-th CPU the process may use, in order of NUMA nodes, when there are
 * enough; the caller is pinned to the first at its first run, and let go when it destroys the pool.
 * Return: 0, -EINVAL (0 or more than THREADS_MAX), -EAGAIN, -ENOMEM.
 */
int threads_create(uint32_t nr, struct threads **out_threads);
void threads_destroy(struct threads *threads); /* NULL is fine */
uint32_t threads_nr(const struct threads *threads);

/* Run fn(arg, thread) once on every thread; returns when all have returned. */
void threads_run(struct threads *threads,
		 void (*fn)(void *arg, uint32_t thread), void *arg);
/*
 * Inside fn: wait until every thread has come here. Writes before it are seen by all behind it.
 * Spins briefly, then yields the CPU, so that more threads than cores still make progress.
 */
void threads_barrier(struct threads *threads);

/*
 * Units [0, nr) handed to threads: each has a run of its own, for locality, and takes
 * from others when that is done, so that a thread the system holds up delays nobody for long.
 */
struct work_share {
	uint32_t nr_threads;
	uint32_t chunk; /* units taken at once */
	struct work_run {
		_Alignas(64) atomic_uint next;
		uint32_t end;
	} runs[]; /* [nr_threads] */
};

size_t work_share_bytes(uint32_t nr_threads);
void work_share_init(struct work_share *share, uint32_t nr_threads,
		     uint32_t nr_units, uint32_t chunk);
/* Next units for @thread: [*out_first, *out_end). Return: false when none is left. */
_Bool work_share_take(struct work_share *share, uint32_t thread,
		      uint32_t *out_first, uint32_t *out_end);

#endif /* TARN_ENGINE_BACKEND_THREADS_H */
