/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of the cuda backend: one reservation per pool, so that one
 * descriptor of it (a tensor map) serves every buffer, cut by first fit.
 * Addresses cost nothing; what matters is where a range starts. Any thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/kvpool_cuda.h"

int kvpool_cuda_ranges_init(struct kvpool_cuda *cuda, uint64_t wanted_bytes,
			    uint64_t fewest_bytes)
{
	struct kvpool_cuda_range *all = kvpool_sys.calloc(1, sizeof(*all));
	uint64_t bytes = wanted_bytes / cuda->page_bytes * cuda->page_bytes;
	cuda_status status;

	if (!all)
		return -ENOMEM;
	/* What a process may reserve differs by driver and by its own limits. */
	while ((status = cuda->driver->MemAddressReserve(
			&cuda->base, bytes, cuda->page_bytes, 0, 0)) &&
	       bytes / 2 >= fewest_bytes)
		bytes = bytes / 2 / cuda->page_bytes * cuda->page_bytes;
	if (status) {
		free(all);
		return cuda_errno(status);
	}
	cuda->base_bytes = bytes;
	*all = (struct kvpool_cuda_range){ .start = 0, .end = bytes };
	TAILQ_INIT(&cuda->free_ranges);
	TAILQ_INSERT_TAIL(&cuda->free_ranges, all, link);
	pthread_mutex_init(&cuda->range_lock, NULL);
	return 0;
}

int kvpool_cuda_ranges_deinit(struct kvpool_cuda *cuda)
{
	struct kvpool_cuda_range *range;

	while ((range = TAILQ_FIRST(&cuda->free_ranges))) {
		TAILQ_REMOVE(&cuda->free_ranges, range, link);
		free(range);
	}
	pthread_mutex_destroy(&cuda->range_lock);
	return cuda_errno(
		cuda->driver->MemAddressFree(cuda->base, cuda->base_bytes));
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Take [start, start + bytes) out of @range, which holds it. Return: 0, -ENOMEM. */
static int cut(struct kvpool_cuda *cuda, struct kvpool_cuda_range *range,
	       uint64_t start, uint64_t bytes)
{
	uint64_t end = range->end;

	if (start > range->start && start + bytes < end) {
		struct kvpool_cuda_range *rest =
			kvpool_sys.calloc(1, sizeof(*rest));

		if (!rest)
			return -ENOMEM;
		rest->start = start + bytes;
		rest->end = end;
		range->end = start;
		TAILQ_INSERT_AFTER(&cuda->free_ranges, range, rest, link);
	} else if (start > range->start) {
		range->end = start;
	} else if (start + bytes < end) {
		range->start = start + bytes;
	} else {
		TAILQ_REMOVE(&cuda->free_ranges, range, link);
		free(range);
	}
	return 0;
}

int kvpool_cuda_range_take(struct kvpool_cuda *cuda, uint64_t bytes,
			   uint64_t stride_bytes, uint64_t *out_start)
{
	uint64_t page = cuda->page_bytes, unit = page;
	struct kvpool_cuda_range *range;
	int err = -ENOMEM;

	if (stride_bytes &&
	    __builtin_mul_overflow(stride_bytes / gcd(stride_bytes, page), page,
				   &unit))
		return -EINVAL;
	pthread_mutex_lock(&cuda->range_lock);
	TAILQ_FOREACH(range, &cuda->free_ranges, link)
	{
		uint64_t rest = range->start % unit;
		uint64_t skip = rest ? unit - rest : 0;
		uint64_t len = range->end - range->start;

		if (skip >= len || len - skip < bytes)
			continue;
		*out_start = range->start + skip;
		err = cut(cuda, range, *out_start, bytes);
		break;
	}
	pthread_mutex_unlock(&cuda->range_lock);
	return err;
}

int kvpool_cuda_range_put(struct kvpool_cuda *cuda, uint64_t start,
			  uint64_t bytes)
{
	struct kvpool_cuda_range *next, *prev, *range;
	uint64_t end = start + bytes;
	int err = 0;

	pthread_mutex_lock(&cuda->range_lock);
	TAILQ_FOREACH(next, &cuda->free_ranges, link)
	{
		if (next->start >= end)
			break;
	}
	prev = next ? TAILQ_PREV(next, kvpool_cuda_ranges, link) :
		      TAILQ_LAST(&cuda->free_ranges, kvpool_cuda_ranges);
	bool joins_prev = prev && prev->end == start;
	bool joins_next = next && next->start == end;

	if (joins_prev && joins_next) {
		prev->end = next->end;
		TAILQ_REMOVE(&cuda->free_ranges, next, link);
		free(next);
	} else if (joins_prev) {
		prev->end = end;
	} else if (joins_next) {
		next->start = start;
	} else {
		range = kvpool_sys.calloc(1, sizeof(*range));
		err = range ? 0 : -ENOMEM;
		if (range) {
			range->start = start;
			range->end = end;
			if (next)
				TAILQ_INSERT_BEFORE(next, range, link);
			else
				TAILQ_INSERT_TAIL(&cuda->free_ranges, range,
						  link);
		}
	}
	pthread_mutex_unlock(&cuda->range_lock);
	return err;
}
