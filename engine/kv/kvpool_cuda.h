/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend inside: device memory by the Driver API's virtual memory.
 * One reservation of addresses per pool; each buffer is a range of it. Physical
 * memory comes in handles of 1, 2, 4 ... 64 pages (a page is the driver's
 * granule, 2 MiB as a rule), since the driver's cost is per handle, not per byte
 * (H200: create 14 us, map 1.5, set access 33, unmap 21, of 2 MiB and of 128
 * MiB alike). A handle is mapped whole and unmapped whole. Included by
 * kvpool_cuda*.c only.
 *
 * What is charged, recycled, purged is decided by kvpool_account.c and its
 * neighbours; here it is done.
 *
 * Locks: mem->lock and pool->lock as kvpool_local.h says; below them work_lock,
 * then fence_lock; and range_lock, with no other below it.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_CUDA_H
#define TARN_ENGINE_KV_KVPOOL_CUDA_H

#include <stdatomic.h>

#include "engine/kv/kvpool_cuda_driver.h"
#include "engine/kv/kvpool_local.h"

enum {
	KVPOOL_CUDA_CLASSES = 7, /* handles of 1 << class pages */
	KVPOOL_CUDA_MAX_FENCES = 1024,
	/* Pages in excess of what is committed are at most one part in so many. */
	KVPOOL_CUDA_WASTE_PART = 8,
};

/* One piece of physical memory: mapped in one memory, or on a list of free ones. */
struct kvpool_cuda_handle {
	cuda_handle handle;
	uint64_t first; /* page of the memory that it is mapped from */
	uint64_t nr_pages;
	uint64_t busy_until; /* fence; it was given up then */
	bool is_released; /* nobody waits for its spare pages: they go when they can */
	bool is_read_only; /* mapped so */
	struct kvpool_cuda_handle *next;
};

/* kvpool_mem.backend. Under mem->lock, but for what says otherwise. */
struct kvpool_cuda_mem {
	struct kvpool_cuda_handle *
		*handles; /* by page; NULL: nothing is mapped */
	struct kvpool_cuda_handle *taken; /* by plan, for populate */
	struct kvpool_cuda_handle *freed; /* by punch, for settle */
	/* Mapped, and could not be unmapped after a failure: out of the books until destroy. */
	struct kvpool_cuda_handle *stuck;
	uint64_t frontier; /* page behind the last commit */
	uint64_t addr_bytes; /* of the range */
	atomic_ullong busy_until; /* fence; all of it was given up then */
	atomic_bool is_waiting; /* released pages wait for a fence */
	bool is_queued; /* on cuda->queue, with a reference; pool->lock */
	struct kvpool_mem *mem;
	TAILQ_ENTRY(kvpool_cuda_mem) link; /* cuda->queue */
};

TAILQ_HEAD(kvpool_cuda_queue, kvpool_cuda_mem);

/* Addresses [start, end) of the reservation that no buffer has, in ascending order. */
struct kvpool_cuda_range {
	uint64_t start, end;
	TAILQ_ENTRY(kvpool_cuda_range) link;
};

TAILQ_HEAD(kvpool_cuda_ranges, kvpool_cuda_range);

struct kvpool_cuda_fence {
	cuda_event event;
	uint64_t seq;
};

/* kvpool_local.backend. */
struct kvpool_cuda {
	/* Constant. */
	struct kvpool_local *pool;
	const struct cuda_driver *driver;
	int device;
	struct cuda_uuid uuid;
	cuda_context context; /* the device's primary one, retained */
	bool is_exact; /* handles of one page, nothing ahead */
	uint64_t page_bytes;
	cuda_addr base;
	uint64_t base_bytes;

	pthread_mutex_t range_lock;
	struct kvpool_cuda_ranges free_ranges;
	struct kvpool_cuda_handle
		*lost; /* the driver would not take them back; for close */

	pthread_mutex_t work_lock; /* who uses stream */
	cuda_stream stream; /* copies and clearing */

	/* Fences [done, issued] wait in a ring, oldest first. Written under fence_lock. */
	pthread_mutex_t fence_lock;
	struct kvpool_cuda_fence fences[KVPOOL_CUDA_MAX_FENCES];
	uint32_t first_fence, nr_fences;
	cuda_event spare_events[KVPOOL_CUDA_MAX_FENCES];
	uint32_t nr_spare_events;
	atomic_ullong issued, done;

	/* pool->lock from here on. */
	struct kvpool_cuda_handle *kept[KVPOOL_CUDA_CLASSES]; /* in spare_bytes */
	struct kvpool_cuda_queue queue; /* memories to make pages ahead in */
	pthread_t thread;
	pthread_cond_t wake; /* the thread */
	struct kvpool_mem *current; /* what the thread is at */
	pthread_cond_t idle; /* current is another */
	bool is_stopping;
	atomic_bool has_waiting; /* some memory's is_waiting */
};

static inline struct kvpool_cuda *kvpool_cuda(struct kvpool_local *pool)
{
	return pool->backend;
}

static inline struct kvpool_cuda_mem *kvpool_cuda_mem(struct kvpool_mem *mem)
{
	return mem->backend;
}

/* kvpool_cuda_range.c: addresses */
/* Reserve them, as many as the driver gives. Return: 0 or -errno. */
int kvpool_cuda_ranges_init(struct kvpool_cuda *cuda, uint64_t wanted_bytes,
			    uint64_t fewest_bytes);
int kvpool_cuda_ranges_deinit(struct kvpool_cuda *cuda);
/*
 * A range of @bytes (whole pages) that starts a multiple of lcm(@stride_bytes, page) behind base;
 * 0: of the page. Return: 0; -ENOMEM (no such range is left), -EINVAL (the multiple is too large).
 */
int kvpool_cuda_range_take(struct kvpool_cuda *cuda, uint64_t bytes,
			   uint64_t stride_bytes, uint64_t *out_start);
/* Return: 0; -ENOMEM: the range is lost to this pool. */
int kvpool_cuda_range_put(struct kvpool_cuda *cuda, uint64_t start,
			  uint64_t bytes);

/* kvpool_cuda_fence.c: work of the device */
int kvpool_cuda_fence(struct kvpool_local *pool, void *stream);
/* Whether all work before fence @seq is over. */
bool kvpool_cuda_is_passed(struct kvpool_cuda *cuda, uint64_t seq);
bool kvpool_cuda_wait(struct kvpool_mem *mem, uint64_t *state);
/* Wait for all fences, some seconds at most, and free their events. */
void kvpool_cuda_fences_deinit(struct kvpool_cuda *cuda);
/* Streams and events belong to a context: make ours this thread's current one. 0 or -errno. */
int kvpool_cuda_enter(struct kvpool_cuda *cuda);
void kvpool_cuda_leave(struct kvpool_cuda *cuda);
/* Let our stream go on after all fences. work_lock held, in the context. */
int kvpool_cuda_order(struct kvpool_cuda *cuda);

/* kvpool_cuda_copy.c: copies and clearing, on our stream; done when they return */
int kvpool_cuda_finish(struct kvpool_cuda *cuda); /* nothing but to wait */
int kvpool_cuda_zero(struct kvpool_mem *mem, uint64_t offset, uint64_t len);
int kvpool_cuda_copy(struct kvpool_mem *to, struct kvpool_mem *from,
		     uint64_t n);
int kvpool_cuda_copy_rows(const struct kvpool_place *to,
			  const struct kvpool_place *from, uint64_t row_bytes,
			  uint64_t nr_rows);
int kvpool_cuda_fill_rows(const struct kvpool_place *to, uint8_t value,
			  uint64_t row_bytes, uint64_t nr_rows);

/* The largest power of two up to @n, which is not 0. */
static inline uint64_t kvpool_cuda_floor_power(uint64_t n)
{
	return 1ull << (63 - __builtin_clzll(n));
}

/* Its place in kvpool_cuda.kept. */
static inline uint32_t kvpool_cuda_class(uint64_t nr_pages)
{
	return (uint32_t)__builtin_ctzll(nr_pages);
}

static inline void kvpool_cuda_push(struct kvpool_cuda_handle **list,
				    struct kvpool_cuda_handle *h)
{
	h->next = *list;
	*list = h;
}

/* NULL: the list is empty. */
static inline struct kvpool_cuda_handle *
kvpool_cuda_pop(struct kvpool_cuda_handle **list)
{
	struct kvpool_cuda_handle *h = *list;

	if (h)
		*list = h->next;
	return h;
}

/* kvpool_cuda_plan.c: which handles; plan and unplan as struct kvpool_backend_ops has them */
uint64_t kvpool_cuda_plan(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			  bool may_grow);
void kvpool_cuda_unplan(struct kvpool_mem *mem);
/*
 * The next handle's worth of absent pages in [*page, end): moves *page to its start. The largest
 * power of two that fits. Return: its pages; 0 at the end.
 */
uint64_t kvpool_cuda_next_piece(struct kvpool_mem *mem, uint64_t *page,
				uint64_t end);
/*
 * Pages that @mem may get beyond its committed ones, when @nr_new absent pages have become such
 * and it has @nr_committed. @is_ahead: made by the thread. pool->lock held.
 */
uint64_t kvpool_cuda_allowance(const struct kvpool_mem *mem,
			       uint64_t nr_committed, uint64_t nr_new,
			       bool is_ahead);

/* kvpool_cuda_handle.c: mapping */
int kvpool_cuda_populate(struct kvpool_mem *mem, uint64_t first, uint64_t end);
/* Return: whether it is unmapped, and on the list of freed ones, for settle. */
bool kvpool_cuda_unmap(struct kvpool_mem *mem, struct kvpool_cuda_handle *h);
/* Map all handles of @mem that lie in [first, end) with @prot. All or nothing. */
int kvpool_cuda_set_access(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			   int prot);
void kvpool_cuda_prop(const struct kvpool_cuda *cuda,
		      struct cuda_alloc_prop *out_prop);

/* kvpool_cuda_reclaim.c: giving back, as struct kvpool_backend_ops has the calls */
int64_t kvpool_cuda_punch(struct kvpool_mem *mem, uint64_t first, uint64_t end);
int64_t kvpool_cuda_purge(struct kvpool_mem *mem);
uint64_t kvpool_cuda_shed(struct kvpool_mem *mem, uint64_t first, uint64_t end);
void kvpool_cuda_settle(struct kvpool_mem *mem);
uint64_t kvpool_cuda_trim(struct kvpool_local *pool, uint64_t bytes);
/* Unmap whatever @mem still has. Return: whether all of it went. */
bool kvpool_cuda_strip(struct kvpool_mem *mem);

/* kvpool_cuda_thread.c: what happens beside the callers */
int kvpool_cuda_start(struct kvpool_local *pool);
void kvpool_cuda_stop(struct kvpool_local *pool);
void kvpool_cuda_grown(struct kvpool_mem *mem, uint64_t end);
void kvpool_cuda_quiesce(struct kvpool_mem *mem);
/* Nothing is made ahead but in @mem, whose lock the caller holds. */
void kvpool_cuda_halt(struct kvpool_mem *mem);

/* kvpool_cuda_share.c: published buffers as descriptors */
int kvpool_cuda_export(struct kvpool_mem *mem);
int kvpool_cuda_import(struct kvpool_local *pool, int fd, uint64_t stride_bytes,
		       struct kvpool_mem **out_mem);
bool kvpool_cuda_covers(const struct kvpool_mem *mem, uint64_t first,
			uint64_t end);

/* kvpool_cuda.c */
/* An empty memory with a range of addresses. */
int kvpool_cuda_create(struct kvpool_mem *mem, uint64_t stride_bytes);

#endif /* TARN_ENGINE_KV_KVPOOL_CUDA_H */
