/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the cuda backend gives physical memory back: whole handles, once nobody
 * uses them and the device's work with them is over; then they are kept by size
 * for what comes, or go back to the driver. Called under the locks that struct
 * kvpool_backend_ops names.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/kvpool_cuda.h"

static bool is_busy(struct kvpool_mem *mem, const struct kvpool_cuda_handle *h)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	uint64_t seq = atomic_load(&kvpool_cuda_mem(mem)->busy_until);

	if (seq < h->busy_until)
		seq = h->busy_until;
	return !kvpool_cuda_is_passed(cuda, seq);
}

/* Whether a page of @h is in use, or a commit under way is about to use one. */
static bool is_used(const struct kvpool_mem *mem,
		    const struct kvpool_cuda_handle *h)
{
	uint64_t end = h->first + h->nr_pages;

	return kvpool_map_count(mem->committed, h->first, end) ||
	       (h->first < mem->guard_end && mem->guard_first < end);
}

int64_t kvpool_cuda_punch(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	int64_t gone = 0;
	int err = 0;

	for (uint64_t page = first; page < end; page++) {
		struct kvpool_cuda_handle *h = cm->handles[page];
		uint64_t h_end = h ? h->first + h->nr_pages : page + 1;

		if (h && !is_used(mem, h)) {
			if (is_busy(mem, h)) {
				atomic_store(&cm->is_waiting, true);
				atomic_store(
					&kvpool_cuda(mem->pool)->has_waiting,
					true);
			} else if (kvpool_cuda_unmap(mem, h)) {
				kvpool_map_set(mem->present, h->first, h_end,
					       false);
				gone += (int64_t)h->nr_pages;
			} else {
				err = -EIO;
			}
		}
		page = h_end - 1;
	}
	return gone || !err ? gone : err;
}

/* One handle that nobody uses, now or when its fence has passed. Return: pages that went. */
static uint64_t give_up(struct kvpool_mem *mem, struct kvpool_cuda_handle *h)
{
	uint64_t seq = atomic_load(&kvpool_cuda(mem->pool)->issued);
	int64_t gone;

	h->is_released = true;
	h->busy_until = seq;
	gone = kvpool_cuda_punch(mem, h->first, h->first + 1);
	return gone > 0 ? (uint64_t)gone : 0;
}

uint64_t kvpool_cuda_shed(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

	/* Pages at the front go as the buffer's window moves: that says nothing about its end. */
	if (kvpool_cuda(mem->pool)->is_exact || end < cm->frontier)
		return 0;
	cm->frontier = first;
	uint64_t page = kvpool_nr_pages(mem), gone = 0;
	uint64_t nr_committed = kvpool_map_count(mem->committed, 0, page);
	uint64_t excess =
		kvpool_map_count(mem->present, 0, page) - nr_committed;
	uint64_t allowed = nr_committed / KVPOOL_CUDA_WASTE_PART;

	if (nr_committed && !allowed)
		allowed = 1;
	/* From the end, where the buffer will not be for longest. */
	while (page > 0 && excess > allowed) {
		struct kvpool_cuda_handle *h = cm->handles[--page];

		if (!h)
			continue;
		page = h->first;
		if (is_used(mem, h))
			continue;
		excess -= h->nr_pages < excess ? h->nr_pages : excess;
		gone += give_up(mem, h);
	}
	return gone;
}

int64_t kvpool_cuda_purge(struct kvpool_mem *mem)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t end = kvpool_nr_pages(mem);
	int64_t gone = 0;

	if (!kvpool_cuda_is_passed(kvpool_cuda(mem->pool),
				   atomic_load(&cm->busy_until)))
		return -EBUSY;
	for (uint64_t page = 0; page < end; page++) {
		struct kvpool_cuda_handle *h = cm->handles[page];

		if (!h || (h->first != page))
			continue;
		if (kvpool_cuda_unmap(mem, h)) {
			kvpool_map_set(mem->present, page, page + h->nr_pages,
				       false);
			gone += (int64_t)h->nr_pages;
		} else if (!gone) {
			return -EIO;
		} else {
			h->is_released = true;
		}
	}
	cm->frontier = 0;
	return gone;
}

bool kvpool_cuda_strip(struct kvpool_mem *mem)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t end = kvpool_nr_pages(mem);
	struct kvpool_cuda_handle *stuck = cm->stuck, *h;
	bool is_whole = true;

	for (uint64_t page = 0; page < end; page++) {
		h = cm->handles[page];
		if (h && h->first == page)
			is_whole = kvpool_cuda_unmap(mem, h) && is_whole;
	}
	cm->stuck = NULL;
	while ((h = kvpool_cuda_pop(&stuck))) {
		if (kvpool_cuda_unmap(mem, h))
			continue;
		kvpool_cuda_push(&cm->stuck, h);
		is_whole = false;
	}
	return is_whole;
}

/* ---- keeping for reuse --------------------------------------------------- */

/* Return: whether the driver took it back. */
static bool handle_release(struct kvpool_cuda *cuda,
			   struct kvpool_cuda_handle *h)
{
	if (cuda->driver->MemRelease(h->handle))
		return false;
	free(h);
	return true;
}

static void keep(struct kvpool_cuda *cuda, struct kvpool_cuda_handle *h)
{
	cuda->pool->spare_bytes += h->nr_pages * cuda->page_bytes;
	kvpool_cuda_push(&cuda->kept[kvpool_cuda_class(h->nr_pages)], h);
}

void kvpool_cuda_settle(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	struct kvpool_cuda *cuda = kvpool_cuda(pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct kvpool_cuda_handle *h;

	while ((h = kvpool_cuda_pop(&cm->freed))) {
		uint64_t bytes = h->nr_pages * cuda->page_bytes;
		bool is_wanted = !pool->is_making_room && !mem->is_exported &&
				 !mem->is_imported &&
				 bytes <= kvpool_room_locked(pool) &&
				 pool->spare_bytes + bytes <=
					 pool->spare_limit_bytes;

		/* One that the driver does not take stays in the books, for trim to try again. */
		if (is_wanted || !handle_release(cuda, h))
			keep(cuda, h);
	}
	if (atomic_load(&cuda->has_waiting) ||
	    atomic_load(&cm->busy_until) > atomic_load(&cuda->done))
		pthread_cond_signal(&cuda->wake);
}

uint64_t kvpool_cuda_trim(struct kvpool_local *pool, uint64_t bytes)
{
	struct kvpool_cuda *cuda = kvpool_cuda(pool);
	uint64_t freed = 0;

	for (int class = 0; class < KVPOOL_CUDA_CLASSES; class ++) {
		while (freed < bytes && cuda->kept[class]) {
			struct kvpool_cuda_handle *h =
				kvpool_cuda_pop(&cuda->kept[class]);
			uint64_t len = h->nr_pages * cuda->page_bytes;

			if (!handle_release(cuda, h)) {
				kvpool_cuda_push(&cuda->kept[class], h);
				break;
			}
			pool->spare_bytes -= len;
			freed += len;
		}
	}
	return freed;
}
