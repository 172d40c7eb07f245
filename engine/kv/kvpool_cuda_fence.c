/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of the device and the cuda backend's view of it: fences, which are events
 * recorded in the callers' streams and numbered in that order. A fence counts as
 * passed once all before it are. Any thread.
 */
#include <errno.h>
#include <time.h>

#include "engine/kv/kvpool_cuda.h"

enum {
	/* Errors of work that ran: the context is lost, and nothing runs in it any more. */
	FIRST_LOST = 700,
	LAST_LOST = 719,
	/* A step takes milliseconds, a large prefill less than a second. */
	LONGEST_WAIT_MS = 3000,
	FIRST_NAP_US = 20,
	LONGEST_NAP_US = 1000,
};

int kvpool_cuda_enter(struct kvpool_cuda *cuda)
{
	return cuda_errno(cuda->driver->CtxPushCurrent(cuda->context));
}

void kvpool_cuda_leave(struct kvpool_cuda *cuda)
{
	cuda_context context;

	cuda->driver->CtxPopCurrent(&context);
}

static void poll_locked(struct kvpool_cuda *cuda)
{
	while (cuda->nr_fences) {
		struct kvpool_cuda_fence *fence =
			&cuda->fences[cuda->first_fence];
		cuda_status status = cuda->driver->EventQuery(fence->event);

		if (status && (status < FIRST_LOST || status > LAST_LOST))
			return;
		cuda->spare_events[cuda->nr_spare_events++] = fence->event;
		atomic_store(&cuda->done, fence->seq);
		cuda->first_fence =
			(cuda->first_fence + 1) % KVPOOL_CUDA_MAX_FENCES;
		cuda->nr_fences--;
	}
}

bool kvpool_cuda_is_passed(struct kvpool_cuda *cuda, uint64_t seq)
{
	if (seq <= atomic_load(&cuda->done))
		return true;
	pthread_mutex_lock(&cuda->fence_lock);
	if (!kvpool_cuda_enter(cuda)) {
		poll_locked(cuda);
		kvpool_cuda_leave(cuda);
	}
	pthread_mutex_unlock(&cuda->fence_lock);
	return seq <= atomic_load(&cuda->done);
}

/* An event is in one of two places, so spare_events has room for each. */
static int record_locked(struct kvpool_cuda *cuda, cuda_stream stream)
{
	cuda_event event;
	cuda_status status;

	poll_locked(cuda);
	if (cuda->nr_fences == KVPOOL_CUDA_MAX_FENCES)
		return -EBUSY;
	if (cuda->nr_spare_events) {
		event = cuda->spare_events[--cuda->nr_spare_events];
	} else {
		status =
			cuda->driver->EventCreate(&event, CUDA_EVENT_NO_TIMING);
		if (status)
			return cuda_errno(status);
	}
	status = cuda->driver->EventRecord(event, stream);
	if (status) {
		cuda->spare_events[cuda->nr_spare_events++] = event;
		return cuda_errno(status);
	}
	uint64_t seq = atomic_load(&cuda->issued) + 1;

	cuda->fences[(cuda->first_fence + cuda->nr_fences++) %
		     KVPOOL_CUDA_MAX_FENCES] =
		(struct kvpool_cuda_fence){ .event = event, .seq = seq };
	atomic_store(&cuda->issued, seq);
	return 0;
}

int kvpool_cuda_fence(struct kvpool_local *pool, void *stream)
{
	struct kvpool_cuda *cuda = kvpool_cuda(pool);
	int err;

	pthread_mutex_lock(&cuda->fence_lock);
	err = kvpool_cuda_enter(cuda);
	if (!err) {
		err = record_locked(cuda, stream);
		kvpool_cuda_leave(cuda);
	}
	pthread_mutex_unlock(&cuda->fence_lock);
	return err;
}

static void nap(uint64_t us)
{
	struct timespec time = { .tv_nsec = (long)us * 1000 };

	nanosleep(&time, NULL);
}

/* Until fences later than @seen are passed. Return: whether some were, in time. */
static bool wait_beyond(struct kvpool_cuda *cuda, uint64_t seen)
{
	uint64_t nap_us = FIRST_NAP_US, waited_us = 0;

	while (!kvpool_cuda_is_passed(cuda, seen + 1)) {
		if (waited_us >= LONGEST_WAIT_MS * 1000ull)
			return false;
		nap(nap_us);
		waited_us += nap_us;
		if (nap_us < LONGEST_NAP_US)
			nap_us *= 2;
	}
	return true;
}

/* Whether memory that was given up waits for work, so that waiting can help. */
static bool is_awaited(struct kvpool_cuda *cuda)
{
	struct kvpool_local *pool = cuda->pool;
	struct kvpool_mem *mem;

	pthread_mutex_lock(&pool->lock);
	bool is_any = !TAILQ_EMPTY(&pool->draining) ||
		      atomic_load(&cuda->has_waiting);

	TAILQ_FOREACH(mem, &pool->volatiles, volatile_link)
	{
		if (is_any)
			break;
		is_any = mem->nr_committed && !mem->is_exported &&
			 !mem->is_imported &&
			 atomic_load(&kvpool_cuda_mem(mem)->busy_until) >
				 atomic_load(&cuda->done);
	}
	pthread_mutex_unlock(&pool->lock);
	return is_any;
}

bool kvpool_cuda_wait(struct kvpool_mem *mem, uint64_t *state)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	uint64_t seen = atomic_load(&cuda->done);

	if (!*state) {
		*state = atomic_load(&cuda->issued);
		if (!*state)
			*state = UINT64_MAX;
		/*
		 * Pages on their way to somebody who did not ask yet. Where none are, the thread
		 * may have been at some until a moment ago, and what it made could not be taken.
		 */
		kvpool_cuda_halt(mem);
		return true;
	}
	if (seen >= *state || *state == UINT64_MAX || !is_awaited(cuda))
		return false;
	if (!wait_beyond(cuda, seen)) {
		*state = UINT64_MAX;
		return false;
	}
	return true;
}

int kvpool_cuda_order(struct kvpool_cuda *cuda)
{
	cuda_status status = CUDA_OK;

	pthread_mutex_lock(&cuda->fence_lock);
	for (uint32_t i = 0; i < cuda->nr_fences && !status; i++)
		status = cuda->driver->StreamWaitEvent(
			cuda->stream,
			cuda->fences[(cuda->first_fence + i) %
				     KVPOOL_CUDA_MAX_FENCES]
				.event,
			0);
	pthread_mutex_unlock(&cuda->fence_lock);
	return cuda_errno(status);
}

void kvpool_cuda_fences_deinit(struct kvpool_cuda *cuda)
{
	uint64_t seen = atomic_load(&cuda->done);

	while (seen < atomic_load(&cuda->issued) && wait_beyond(cuda, seen))
		seen = atomic_load(&cuda->done);
	if (kvpool_cuda_enter(cuda))
		return;
	while (cuda->nr_fences) {
		cuda->driver->EventDestroy(
			cuda->fences[cuda->first_fence].event);
		cuda->first_fence =
			(cuda->first_fence + 1) % KVPOOL_CUDA_MAX_FENCES;
		cuda->nr_fences--;
	}
	while (cuda->nr_spare_events)
		cuda->driver->EventDestroy(
			cuda->spare_events[--cuda->nr_spare_events]);
	kvpool_cuda_leave(cuda);
}
