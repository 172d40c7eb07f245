/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which handles a commit of the cuda backend takes: larger ones as the buffer
 * grows, since the driver's cost is per handle, and those kept from earlier
 * before new ones. Called with mem->lock held; pool->lock too, but for
 * kvpool_cuda_next_piece().
 */
#include "engine/kv/kvpool_cuda.h"

uint64_t kvpool_cuda_next_piece(struct kvpool_mem *mem, uint64_t *page,
				uint64_t end)
{
	uint64_t run = kvpool_map_run(NULL, mem->present, page, end);
	uint64_t most = kvpool_cuda(mem->pool)->is_exact ?
				1 :
				1ull << (KVPOOL_CUDA_CLASSES - 1);

	return run ? kvpool_cuda_floor_power(run < most ? run : most) : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

uint64_t kvpool_cuda_allowance(const struct kvpool_mem *mem,
			       uint64_t nr_committed, uint64_t nr_new,
			       bool is_ahead)
{
	const struct kvpool_local *pool = mem->pool;
	uint64_t need = nr_new * kvpool_page(mem);
	uint64_t pages = nr_committed / KVPOOL_CUDA_WASTE_PART;

	/* A page ahead is what keeps a short buffer's growth off its caller's path. */
	if (is_ahead && !pages)
		pages = 1;
	pages = less(pages, mem->nr_present + nr_new - nr_committed);
	/* Nothing is taken from anybody for it, and what is asked for comes first. */
	uint64_t room = least(less(kvpool_room_locked(pool), need),
			      less(kvpool_owner_room_locked(mem), need));

	room = least(room, less(pool->spare_limit_bytes, pool->spare_bytes));
	return least(pages, room / kvpool_page(mem));
}

/* Absent pages that end at @end, in [first, end). */
static uint64_t last_run(const struct kvpool_mem *mem, uint64_t first,
			 uint64_t end)
{
	uint64_t page = end;

	while (page > first && !kvpool_map_count(mem->present, page - 1, page))
		page--;
	return end - page;
}

/*
 * Pages behind @end, so that the commit's last handle is one that fits the buffer's length rather
 * than several small ones.
 */
static uint64_t pages_to_grow(const struct kvpool_mem *mem, uint64_t first,
			      uint64_t end)
{
	uint64_t nr_committed = mem->nr_committed + (end - first) -
				kvpool_map_count(mem->committed, first, end);
	uint64_t nr_new =
		end - first - kvpool_map_count(mem->present, first, end);
	uint64_t len = last_run(mem, first, end), behind = end;
	uint64_t run = kvpool_map_run(NULL, mem->present, &behind,
				      kvpool_nr_pages(mem));
	uint64_t size = least(nr_committed / KVPOOL_CUDA_WASTE_PART,
			      1ull << (KVPOOL_CUDA_CLASSES - 1));

	if (!len || behind != end || !size)
		return 0;
	uint64_t allowed = least(run, kvpool_cuda_allowance(mem, nr_committed,
							    nr_new, false));

	for (size = kvpool_cuda_floor_power(size); size > 1; size /= 2) {
		uint64_t rest = len % size;

		if (!rest)
			return 0;
		if (size - rest <= allowed)
			return size - rest;
	}
	return 0;
}

uint64_t kvpool_cuda_plan(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			  bool may_grow)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t ahead = may_grow && !cuda->is_exact ?
				 pages_to_grow(mem, first, end) :
				 0;
	uint64_t page = first, nr;

	for (; (nr = kvpool_cuda_next_piece(mem, &page, end + ahead));
	     page += nr) {
		struct kvpool_cuda_handle *h =
			kvpool_cuda_pop(&cuda->kept[kvpool_cuda_class(nr)]);

		if (!h)
			continue;
		mem->pool->spare_bytes -= nr * kvpool_page(mem);
		kvpool_cuda_push(&cm->taken, h);
	}
	return ahead;
}

void kvpool_cuda_unplan(struct kvpool_mem *mem)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_handle *h;

	while ((h = kvpool_cuda_pop(&kvpool_cuda_mem(mem)->taken))) {
		mem->pool->spare_bytes += h->nr_pages * kvpool_page(mem);
		kvpool_cuda_push(&cuda->kept[kvpool_cuda_class(h->nr_pages)],
				 h);
	}
}
