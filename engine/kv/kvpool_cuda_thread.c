/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of the cuda backend: makes pages ahead of buffers that grow, so
 * that a commit on the token path is bookkeeping, and gives up memory once the
 * device's work with it is over. One thread per pool: the driver serialises
 * those of a process anyhow.
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "engine/kv/kvpool_cuda.h"

enum {
	/* While something waits for a fence; a step of a model takes longer. */
	TICK_US = 1000,
	/*
	 * Before each handle that is made ahead. Its calls hold the driver's lock, and who has just
	 * committed is most often about to launch; what is made is wanted many steps later.
	 */
	PACE_US = 300,
};

/* Whether @mem should get pages ahead of @cm->frontier. mem->lock and pool->lock held. */
static uint64_t pages_ahead(struct kvpool_mem *mem, uint64_t *out_first)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t target = mem->nr_committed / KVPOOL_CUDA_WASTE_PART;
	uint64_t spare = mem->nr_present - mem->nr_committed;
	uint64_t first = cm->frontier, run;

	if (!mem->nr_committed || mem->is_protected || mem->is_volatile ||
	    kvpool_to_pages(mem, mem->sealed_n) >= cm->frontier)
		return 0;
	/*
	 * A quarter of what may be ahead is there: no hurry. Each time that access is given the
	 * device loses its translations, and the step that runs some 150 us, however much is
	 * mapped: so it is done seldom, and all at once.
	 */
	if (spare && spare >= target / 4)
		return 0;
	run = kvpool_map_run(NULL, mem->present, &first, kvpool_nr_pages(mem));
	uint64_t pages = kvpool_cuda_allowance(mem, mem->nr_committed, 0, true);

	*out_first = first;
	return pages < run ? pages : run;
}

void kvpool_cuda_grown(struct kvpool_mem *mem, uint64_t end)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t first;

	if (cuda->is_exact)
		return;
	if (end > cm->frontier)
		cm->frontier = end;
	pthread_mutex_lock(&mem->pool->lock);
	if (!cm->is_queued && !cuda->is_stopping && pages_ahead(mem, &first)) {
		mem->nr_refs++;
		mem->nr_own_refs++;
		cm->is_queued = true;
		TAILQ_INSERT_TAIL(&cuda->queue, cm, link);
		pthread_cond_signal(&cuda->wake);
	}
	pthread_mutex_unlock(&mem->pool->lock);
}

/* Pages ahead of @mem, as many as it should have. */
static void extend(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t first = 0, nr;

	pthread_mutex_lock(&mem->lock);
	pthread_mutex_lock(&pool->lock);
	/* Ours is not the only reference, or nobody waits for the pages. */
	nr = mem->nr_refs > mem->nr_own_refs ? pages_ahead(mem, &first) : 0;
	if (nr) {
		kvpool_cuda_plan(mem, first, first + nr, false);
		kvpool_account_locked(mem, 0, (int64_t)nr);
	}
	pthread_mutex_unlock(&pool->lock);
	if (nr && kvpool_cuda_populate(mem, first, first + nr)) {
		/* The commit that needs them will try by itself, and say why not. */
		pthread_mutex_lock(&pool->lock);
		kvpool_account_locked(mem, 0, -(int64_t)nr);
		pthread_mutex_unlock(&pool->lock);
	}
	pthread_mutex_unlock(&mem->lock);
}

/* Released pages of @mem whose fence has passed; both locks held. */
static void punch_released(struct kvpool_mem *mem)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t page = 0, end = kvpool_nr_pages(mem), run;
	int64_t gone = 0;

	for (; (run = kvpool_map_run(mem->present, mem->committed, &page, end));
	     page += run) {
		for (uint64_t i = page; i < page + run; i++) {
			struct kvpool_cuda_handle *h = cm->handles[i];

			if (!h || !h->is_released)
				continue;
			int64_t nr = kvpool_cuda_punch(mem, i, i + 1);

			gone += nr > 0 ? nr : 0;
		}
	}
	kvpool_account_locked(mem, 0, -gone);
}

static void sweep_locked(struct kvpool_cuda *cuda)
{
	struct kvpool_local *pool = cuda->pool;
	struct kvpool_mem *mem, *next;

	kvpool_reap_locked(pool);
	if (!atomic_exchange(&cuda->has_waiting, false))
		return;
	for (mem = TAILQ_FIRST(&pool->live_spare); mem; mem = next) {
		struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

		next = TAILQ_NEXT(mem, spare_link);
		if (!atomic_load(&cm->is_waiting))
			continue;
		if (pthread_mutex_trylock(&mem->lock)) {
			atomic_store(&cuda->has_waiting, true);
			continue;
		}
		atomic_store(&cm->is_waiting, false);
		punch_released(mem);
		pthread_mutex_unlock(&mem->lock);
	}
}

static void sleep_locked(struct kvpool_cuda *cuda)
{
	struct kvpool_local *pool = cuda->pool;
	struct timespec time;

	if (TAILQ_EMPTY(&pool->draining) && !atomic_load(&cuda->has_waiting)) {
		pthread_cond_wait(&cuda->wake, &pool->lock);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_nsec += TICK_US * 1000;
	if (time.tv_nsec >= 1000000000) {
		time.tv_nsec -= 1000000000;
		time.tv_sec++;
	}
	pthread_cond_timedwait(&cuda->wake, &pool->lock, &time);
}

/* Take @cm, which has a reference for it, off the queue. */
static void dequeue(struct kvpool_cuda *cuda, struct kvpool_cuda_mem *cm)
{
	TAILQ_REMOVE(&cuda->queue, cm, link);
	cm->is_queued = false;
}

static void put_own_locked(struct kvpool_mem *mem)
{
	mem->nr_own_refs--;
	kvpool_mem_put_locked(mem);
}

void kvpool_cuda_quiesce(struct kvpool_mem *mem)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

	/* The caller's handle is a reference still: this is not the last one. */
	if (cm->is_queued) {
		dequeue(cuda, cm);
		put_own_locked(mem);
	}
	while (cuda->current == mem)
		pthread_cond_wait(&cuda->idle, &mem->pool->lock);
}

void kvpool_cuda_halt(struct kvpool_mem *mem)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm;

	pthread_mutex_lock(&mem->pool->lock);
	while ((cm = TAILQ_FIRST(&cuda->queue))) {
		dequeue(cuda, cm);
		put_own_locked(cm->mem);
	}
	/* At @mem it waits for our lock, and has nothing yet. */
	while (cuda->current && cuda->current != mem)
		pthread_cond_wait(&cuda->idle, &mem->pool->lock);
	pthread_mutex_unlock(&mem->pool->lock);
}

static void *run(void *arg)
{
	struct kvpool_cuda *cuda = arg;
	struct kvpool_local *pool = cuda->pool;
	struct kvpool_cuda_mem *cm;

	pthread_mutex_lock(&pool->lock);
	while (!cuda->is_stopping) {
		if (!TAILQ_EMPTY(&cuda->queue)) {
			pthread_mutex_unlock(&pool->lock);
			usleep(PACE_US);
			pthread_mutex_lock(&pool->lock);
			if (cuda->is_stopping)
				break; /* the signal for it came meanwhile */
		}
		cm = TAILQ_FIRST(&cuda->queue);
		if (cm) {
			struct kvpool_mem *mem = cm->mem;

			dequeue(cuda, cm);
			cuda->current = mem;
			pthread_mutex_unlock(&pool->lock);
			extend(mem);
			pthread_mutex_lock(&pool->lock);
			put_own_locked(mem);
			cuda->current = NULL;
			pthread_cond_broadcast(&cuda->idle);
			continue;
		}
		sweep_locked(cuda);
		sleep_locked(cuda);
	}
	while ((cm = TAILQ_FIRST(&cuda->queue))) {
		dequeue(cuda, cm);
		put_own_locked(cm->mem);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int kvpool_cuda_start(struct kvpool_local *pool)
{
	struct kvpool_cuda *cuda = kvpool_cuda(pool);

	TAILQ_INIT(&cuda->queue);
	return -pthread_create(&cuda->thread, NULL, run, cuda);
}

void kvpool_cuda_stop(struct kvpool_local *pool)
{
	struct kvpool_cuda *cuda = kvpool_cuda(pool);

	pthread_mutex_lock(&pool->lock);
	cuda->is_stopping = true;
	pthread_cond_signal(&cuda->wake);
	pthread_mutex_unlock(&pool->lock);
	pthread_join(cuda->thread, NULL);
	kvpool_cuda_fences_deinit(cuda);
}
