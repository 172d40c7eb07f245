/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of the cuda backend: which handles a commit takes, mapping and
 * unmapping them, and those kept for reuse by size. Called by the rest of the
 * local pools under the locks that struct kvpool_backend_ops names.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/kvpool_cuda.h"

static uint32_t class_of(uint64_t nr_pages)
{
	return (uint32_t)__builtin_ctzll(nr_pages);
}

static cuda_addr addr_of(const struct kvpool_mem *mem, uint64_t page)
{
	return (cuda_addr)mem->addr + page * kvpool_page(mem);
}

static void push(struct kvpool_cuda_handle **list, struct kvpool_cuda_handle *h)
{
	h->next = *list;
	*list = h;
}

static struct kvpool_cuda_handle *pop(struct kvpool_cuda_handle **list)
{
	struct kvpool_cuda_handle *h = *list;

	if (h)
		*list = h->next;
	return h;
}

/* ---- which handles ------------------------------------------------------- */

/*
 * The next handle's worth of absent pages in [*page, end): moves *page to its start. The largest
 * power of two that fits. Return: its pages; 0 at the end.
 */
static uint64_t next_piece(struct kvpool_mem *mem, uint64_t *page, uint64_t end)
{
	uint64_t run = kvpool_map_run(NULL, mem->present, page, end);
	uint64_t most = kvpool_cuda(mem->pool)->is_exact ?
				1 :
				1ull << (KVPOOL_CUDA_CLASSES - 1);

	return run ? kvpool_cuda_floor_power(run < most ? run : most) : 0;
}

uint64_t kvpool_cuda_allowance(const struct kvpool_mem *mem,
			       uint64_t nr_committed, uint64_t excess,
			       bool is_ahead)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t spare = pool->spare_bytes, room = kvpool_room_locked(pool);
	uint64_t kept = pool->spare_limit_bytes > spare ?
				pool->spare_limit_bytes - spare :
				0;
	uint64_t owner_room = kvpool_owner_room_locked(mem);
	uint64_t pages = nr_committed / KVPOOL_CUDA_WASTE_PART;

	/* A page ahead is what keeps a short buffer's growth off its caller's path. */
	if (is_ahead && !pages)
		pages = 1;
	pages = pages > excess ? pages - excess : 0;
	room = room < kept ? room : kept;
	room = (room < owner_room ? room : owner_room) / kvpool_page(mem);
	return pages < room ? pages : room;
}

/*
 * Pages behind @end, so that the commit's last handle is one that fits the buffer's length rather
 * than several small ones.
 */
static uint64_t pages_to_grow(struct kvpool_mem *mem, uint64_t first,
			      uint64_t end)
{
	uint64_t in_range = kvpool_map_count(mem->committed, first, end);
	uint64_t nr_committed = mem->nr_committed + (end - first) - in_range;
	uint64_t nr_new =
		end - first - kvpool_map_count(mem->present, first, end);
	uint64_t page = end - 1, limit = kvpool_nr_pages(mem), absent = end,
		 run;

	if (kvpool_cuda(mem->pool)->is_exact ||
	    kvpool_map_count(mem->present, page, end))
		return 0;
	while (page > first && !kvpool_map_count(mem->present, page - 1, page))
		page--;
	run = kvpool_map_run(NULL, mem->present, &absent, limit);
	if (absent != end)
		run = 0;
	/* What the commit itself needs comes first. */
	uint64_t need = nr_new * kvpool_page(mem);
	struct kvpool_local *pool = mem->pool;

	if (kvpool_room_locked(pool) < need ||
	    kvpool_owner_room_locked(mem) < need)
		return 0;
	uint64_t allowed = kvpool_cuda_allowance(
		mem, nr_committed, mem->nr_present + nr_new - nr_committed,
		false);
	uint64_t room = (kvpool_room_locked(pool) - need) / kvpool_page(mem);
	uint64_t most = 1ull << (KVPOOL_CUDA_CLASSES - 1);
	uint64_t size = nr_committed / KVPOOL_CUDA_WASTE_PART;

	allowed = allowed < room ? allowed : room;
	allowed = allowed < run ? allowed : run;
	size = size ? kvpool_cuda_floor_power(size < most ? size : most) : 0;
	for (; size > 1; size /= 2) {
		uint64_t rest = (end - page) % size;

		if (rest && size - rest <= allowed)
			return size - rest;
		if (!rest)
			break;
	}
	return 0;
}

uint64_t kvpool_cuda_plan(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			  bool may_grow)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t ahead = may_grow ? pages_to_grow(mem, first, end) : 0;
	uint64_t page = first, nr;

	for (; (nr = next_piece(mem, &page, end + ahead)); page += nr) {
		struct kvpool_cuda_handle *h = pop(&cuda->kept[class_of(nr)]);

		if (!h)
			continue;
		mem->pool->spare_bytes -= nr * kvpool_page(mem);
		push(&cm->taken, h);
	}
	return ahead;
}

void kvpool_cuda_unplan(struct kvpool_mem *mem)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_handle *h;

	while ((h = pop(&kvpool_cuda_mem(mem)->taken))) {
		mem->pool->spare_bytes += h->nr_pages * kvpool_page(mem);
		push(&cuda->kept[class_of(h->nr_pages)], h);
	}
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
		push(&kvpool_cuda_mem(mem)->freed, h);
		return err;
	}
	h->first = page;
	h->busy_until = 0;
	h->is_released = false;
	h->is_read_only = false;
	set_handle(mem, h, h);
	return 0;
}

/* Return: whether it is unmapped, and for settle now. */
static bool handle_unmap(struct kvpool_mem *mem, struct kvpool_cuda_handle *h)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);

	if (cuda->driver->MemUnmap(addr_of(mem, h->first),
				   h->nr_pages * kvpool_page(mem)))
		return false;
	set_handle(mem, h, NULL);
	push(&kvpool_cuda_mem(mem)->freed, h);
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

			if (!h || handle_unmap(mem, h))
				continue;
			/* Nobody can have these addresses any more; destroy tries again. */
			set_handle(mem, h, NULL);
			push(&cm->stuck, h);
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

	for (; !err && (nr = next_piece(mem, &page, end)); page += nr) {
		err = handle_get(mem, nr, &h);
		if (!err)
			err = handle_map(mem, h, page);
	}
	if (!err)
		err = open_absent(mem, first, end);
	if (!err)
		err = reopen_present(mem, first, end);
	while ((h = pop(&cm->taken)))
		push(&cm->freed, h);
	if (err)
		undo_map(mem, first, end);
	else
		kvpool_map_set(mem->present, first, end, true);
	return err;
}

/* ---- giving back --------------------------------------------------------- */

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
			} else if (handle_unmap(mem, h)) {
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
		if (handle_unmap(mem, h)) {
			kvpool_map_set(mem->present, page, page + h->nr_pages,
				       false);
			gone += (int64_t)h->nr_pages;
		} else if (!gone) {
			return -EIO;
		} else {
			h->is_released = true;
		}
	}
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
			is_whole = handle_unmap(mem, h) && is_whole;
	}
	cm->stuck = NULL;
	while ((h = pop(&stuck))) {
		if (handle_unmap(mem, h))
			continue;
		push(&cm->stuck, h);
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
	push(&cuda->kept[class_of(h->nr_pages)], h);
}

void kvpool_cuda_settle(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	struct kvpool_cuda *cuda = kvpool_cuda(pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct kvpool_cuda_handle *h;

	while ((h = pop(&cm->freed))) {
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
			struct kvpool_cuda_handle *h = pop(&cuda->kept[class]);
			uint64_t len = h->nr_pages * cuda->page_bytes;

			if (!handle_release(cuda, h)) {
				push(&cuda->kept[class], h);
				break;
			}
			pool->spare_bytes -= len;
			freed += len;
		}
	}
	return freed;
}
