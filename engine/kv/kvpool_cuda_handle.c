/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of the cuda backend: creating, mapping and unmapping them, and what
 * access there is. Which ones a commit takes is kvpool_cuda_plan.c's, when they
 * go is kvpool_cuda_reclaim.c's. Called with mem->lock held, or the memory
 * unreachable.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/kvpool_cuda.h"

static cuda_addr addr_of(const struct kvpool_mem *mem, uint64_t page)
{
	return (cuda_addr)mem->addr + page * kvpool_page(mem);
}

void kvpool_cuda_prop(const struct kvpool_cuda *cuda,
		      struct cuda_alloc_prop *out_prop)
{
	*out_prop = (struct cuda_alloc_prop){
		.type = CUDA_PINNED,
		.handle_types = CUDA_POSIX_FD,
		.location = { .type = CUDA_ON_DEVICE, .id = cuda->device },
	};
}

/* ---- mapping ------------------------------------------------------------- */

static int handle_create(struct kvpool_mem *mem, uint64_t nr_pages,
			 struct kvpool_cuda_handle **out)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_handle *h = kvpool_sys.calloc(1, sizeof(*h));
	struct cuda_alloc_prop prop;

	if (!h)
		return -ENOMEM;
	kvpool_cuda_prop(cuda, &prop);
	int err = cuda_errno(cuda->driver->MemCreate(
		&h->handle, nr_pages * kvpool_page(mem), &prop, 0));

	if (err) {
		free(h);
		return err;
	}
	h->nr_pages = nr_pages;
	*out = h;
	return 0;
}

/* One that plan set aside, or a new one. */
static int handle_get(struct kvpool_mem *mem, uint64_t nr_pages,
		      struct kvpool_cuda_handle **out)
{
	struct kvpool_cuda_handle **link = &kvpool_cuda_mem(mem)->taken;

	while (*link && (*link)->nr_pages != nr_pages)
		link = &(*link)->next;
	if (!*link)
		return handle_create(mem, nr_pages, out);
	*out = *link;
	*link = (*out)->next;
	return 0;
}

static void set_handle(struct kvpool_mem *mem, struct kvpool_cuda_handle *h,
		       struct kvpool_cuda_handle *value)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

	for (uint64_t i = 0; i < h->nr_pages; i++)
		cm->handles[h->first + i] = value;
}

/* Map @h at @page, without access yet. On an error it is for settle to keep or free. */
static int handle_map(struct kvpool_mem *mem, struct kvpool_cuda_handle *h,
		      uint64_t page)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	int err = cuda_errno(cuda->driver->MemMap(
		addr_of(mem, page), h->nr_pages * kvpool_page(mem), 0,
		h->handle, 0));

	if (err) {
		kvpool_cuda_push(&kvpool_cuda_mem(mem)->freed, h);
		return err;
	}
	h->first = page;
	h->busy_until = 0;
	h->is_released = false;
	h->is_read_only = false;
	set_handle(mem, h, h);
	return 0;
}

bool kvpool_cuda_unmap(struct kvpool_mem *mem, struct kvpool_cuda_handle *h)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);

	if (cuda->driver->MemUnmap(addr_of(mem, h->first),
				   h->nr_pages * kvpool_page(mem)))
		return false;
	set_handle(mem, h, NULL);
	kvpool_cuda_push(&kvpool_cuda_mem(mem)->freed, h);
	return true;
}

/* Unmap what is mapped in [first, end), but not in present. */
static void undo_map(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t page = first, run;

	for (; (run = kvpool_map_run(NULL, mem->present, &page, end));
	     page += run) {
		for (uint64_t i = page; i < page + run; i++) {
			struct kvpool_cuda_handle *h = cm->handles[i];

			if (!h || kvpool_cuda_unmap(mem, h))
				continue;
			/* Nobody can have these addresses any more; destroy tries again. */
			set_handle(mem, h, NULL);
			kvpool_cuda_push(&cm->stuck, h);
		}
	}
}

static int set_prot(struct kvpool_mem *mem, uint64_t first, uint64_t end,
		    int prot)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct cuda_access access = {
		.location = { .type = CUDA_ON_DEVICE, .id = cuda->device },
		.prot = prot,
	};

	return cuda_errno(cuda->driver->MemSetAccess(
		addr_of(mem, first), (end - first) * kvpool_page(mem), &access,
		1));
}

/* Mapped runs of [first, end) with @prot. Return: the page that it came to. */
static uint64_t set_prot_runs(struct kvpool_mem *mem, uint64_t first,
			      uint64_t end, int prot, int *out_err)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

	*out_err = 0;
	while (first < end && !*out_err) {
		uint64_t stop = first;

		while (stop < end && cm->handles[stop])
			stop++;
		if (stop > first)
			*out_err = set_prot(mem, first, stop, prot);
		if (!*out_err)
			first = stop > first ? stop : first + 1;
	}
	return first;
}

int kvpool_cuda_set_access(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			   int prot)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	int err, undo_err;
	uint64_t done = set_prot_runs(mem, first, end, prot, &err);

	if (err) {
		set_prot_runs(mem, first, done,
			      prot == CUDA_PROT_READ ? CUDA_PROT_READWRITE :
						       CUDA_PROT_READ,
			      &undo_err);
		return err;
	}
	for (uint64_t page = first; page < end; page++) {
		if (cm->handles[page])
			cm->handles[page]->is_read_only = prot ==
							  CUDA_PROT_READ;
	}
	return 0;
}

/* Access to the absent pages of [first, end), which are mapped now. */
static int open_absent(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	uint64_t page = first, run;
	int err = 0;

	for (; !err && (run = kvpool_map_run(NULL, mem->present, &page, end));
	     page += run)
		err = set_prot(mem, page, page + run, CUDA_PROT_READWRITE);
	return err;
}

/* Pages of an earlier life that a failed purge left read-only. */
static int reopen_present(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	int err = 0;

	for (uint64_t page = first; page < end && !err; page++) {
		struct kvpool_cuda_handle *h = cm->handles[page];

		if (h && h->is_read_only)
			err = kvpool_cuda_set_access(mem, h->first,
						     h->first + h->nr_pages,
						     CUDA_PROT_READWRITE);
	}
	return err;
}

int kvpool_cuda_populate(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct kvpool_cuda_handle *h;
	uint64_t page = first, nr;
	int err = cm->stuck ? -EIO : 0;

	for (; !err && (nr = kvpool_cuda_next_piece(mem, &page, end));
	     page += nr) {
		err = handle_get(mem, nr, &h);
		if (!err)
			err = handle_map(mem, h, page);
	}
	if (!err)
		err = open_absent(mem, first, end);
	if (!err)
		err = reopen_present(mem, first, end);
	while ((h = kvpool_cuda_pop(&cm->taken)))
		kvpool_cuda_push(&cm->freed, h);
	if (err)
		undo_map(mem, first, end);
	else
		kvpool_map_set(mem->present, first, end, true);
	return err;
}
