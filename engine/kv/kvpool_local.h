/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools that this library keeps by itself: private to the process, with limits,
 * accounting, quotas, recycling, keys and events in user space. A backend (memfd,
 * cuda) only makes, fills, empties and protects ranges. The kernel's pools are of another
 * kind: kvpool_kernel.h. Included by the library, and by tests that inject
 * faults.
 *
 * A handle (struct kvpool_local_buf) is what callers hold; it has a vote on
 * whether the content is needed. Several handles may lead to one memory (struct
 * kvpool_mem): create gives the first, each look-up one more.
 *
 * Pages of a memory are in one of three states: absent; spare (present, not
 * committed: warm pages of an earlier life); committed (resident).
 *
 * Lock order: mem->lock, then pool->lock. Under pool->lock another memory is
 * only ever try-locked. System calls that take long run under mem->lock alone,
 * but for those that make room at the limit.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_LOCAL_H
#define TARN_ENGINE_KV_KVPOOL_LOCAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "engine/kv/kvpool_private.h"

enum {
	KVPOOL_PAGE_BYTES = 4096, /* of the memfd backend */
	KVPOOL_MAX_EVENTS = 128,
	KVPOOL_MIN_KEY_BUCKETS = 64,
};

struct kvpool_mem {
	struct kvpool_local *pool;
	pthread_mutex_t lock; /* page maps, seal, the backend's fields */
	uint64_t id;
	uint64_t size_bytes; /* as asked for */
	uint64_t class_bytes; /* as mapped: sizes are rounded so that memory can be recycled */
	uint64_t stride_bytes; /* addr is a multiple of it behind the backend's base; 0: any */
	uid_t owner;
	uint8_t *addr;
	int fd; /* memfd; -1 after a purge of protected memory */
	void *backend; /* the cuda backend's own */

	/* Bit per page. committed is a subset of present. */
	uint64_t *present;
	uint64_t *committed;
	/* Pages that a commit under way is about to use: their spare ones may not be dropped. */
	uint64_t guard_first, guard_end;
	uint64_t sealed_n; /* bytes, exact; pages below its round-up are immutable */
	bool is_protected; /* write-sealed for ever: published once, or imported */
	bool is_exported; /* others may hold the pages: purging would free nothing */
	bool is_imported; /* charged to the sender */

	/* Under pool->lock from here on; nr_* also under mem->lock when written. */
	uint64_t nr_present, nr_committed; /* pages */
	uint32_t nr_refs; /* handles, one for being published, and: */
	uint32_t nr_own_refs; /* the backend's, which callers do not see */
	uint32_t nr_votes; /* handles that need the content */
	uint64_t purge_count;
	bool is_published, is_purged, is_volatile, is_idle, in_live_spare;
	bool is_draining; /* nobody's, but not free yet: on pool->draining */
	struct kvpool_owner *account; /* NULL: of a pool without quotas */
	uint64_t owner_bytes; /* what account holds of it */
	bool is_owner_shared; /* in which of its two sums */
	bool is_publishing; /* counts as published already */
	struct kvpool_key_entry *keys; /* of this memory, linked by next_of_mem */
	TAILQ_ENTRY(kvpool_mem) link; /* pool->live, idle or draining */
	TAILQ_ENTRY(kvpool_mem) spare_link; /* pool->live_spare */
	TAILQ_ENTRY(kvpool_mem)
	volatile_link; /* pool->volatiles, oldest first */
};

TAILQ_HEAD(kvpool_mem_list, kvpool_mem);

struct kvpool_local_buf {
	struct kvpool_buf base;
	struct kvpool_mem *mem;
	/* Under pool->lock. */
	bool is_needed; /* the vote */
	uint64_t seen_purges; /* mem->purge_count when this handle was last told */
};

static inline struct kvpool_local_buf *kvpool_local_buf(struct kvpool_buf *buf)
{
	return (struct kvpool_local_buf *)buf; /* base is its first member */
}

struct kvpool_key_entry {
	struct kvpool_key key;
	struct kvpool_mem *mem;
	uint64_t n_bytes;
	struct kvpool_key_entry *next; /* in the bucket */
	struct kvpool_key_entry *next_of_mem;
};

/* What one uid holds, with its limits in bytes. Under pool->lock; lives as long as the pool. */
struct kvpool_owner {
	uid_t uid;
	uint64_t private_bytes, shared_bytes;
	uint64_t quota_bytes, shared_quota_bytes; /* UINT64_MAX: none */
	struct kvpool_owner *next;
};

/* Pages are the pool's. What may be NULL says so. */
struct kvpool_backend_ops {
	const char *name;
	unsigned int features;
	/* Sets base.page_bytes. 0; -ENODEV, -EOPNOTSUPP, -EINVAL, -ENOMEM. */
	int (*open)(struct kvpool_local *pool,
		    const struct kvpool_options *options);
	/* The rest of opening, when the pool is usable; NULL: nothing. */
	int (*start)(struct kvpool_local *pool);
	/* No handle is left: what runs beside the callers ends here. May be NULL. */
	void (*stop)(struct kvpool_local *pool);
	void (*close)(
		struct kvpool_local *pool); /* no memory is left; may be NULL */
	/* Make addr (of class_bytes) and fd; at @mem->addr again where that is set. */
	int (*create)(struct kvpool_mem *mem, uint64_t stride_bytes);
	void (*destroy)(struct kvpool_mem *mem);
	/*
	 * Before a commit of pages [first, end) is charged: set aside what is at hand for it.
	 * Return: pages behind @end that come with it, as spare ones; none unless @may_grow.
	 * pool->lock held. NULL: nothing is at hand and nothing comes.
	 */
	uint64_t (*plan)(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			 bool may_grow);
	void (*unplan)(
		struct kvpool_mem *mem); /* undoes plan; pool->lock held */
	/* Fill absent pages and mark them in present; all or, on an error, none of them. */
	int (*populate)(struct kvpool_mem *mem, uint64_t first, uint64_t end);
	/*
	 * Give present pages back, of which none is committed or guarded, and take them out of
	 * present. Return: how many went, which may be fewer (what holds them together stays),
	 * or more; -errno when none did.
	 */
	int64_t (*punch)(struct kvpool_mem *mem, uint64_t first, uint64_t end);
	/* The content goes, of protected memory too. As punch; -errno: all of it is there. */
	int64_t (*purge)(struct kvpool_mem *mem);
	/* Write-protect [0, sealed_n) for ever, every mapping included; nothing else is seen. */
	int (*protect)(struct kvpool_mem *mem);
	int (*zero)(struct kvpool_mem *mem, uint64_t offset, uint64_t len);
	int (*copy)(struct kvpool_mem *to, struct kvpool_mem *from, uint64_t n);
	/* Rows of bytes; of a device's memory only, and NULL elsewhere. */
	int (*copy_rows)(const struct kvpool_place *to,
			 const struct kvpool_place *from, uint64_t row_bytes,
			 uint64_t nr_rows);
	int (*fill_rows)(const struct kvpool_place *to, uint8_t value,
			 uint64_t row_bytes, uint64_t nr_rows);
	int (*export_fd)(struct kvpool_mem *mem);
	/* A memory over what a descriptor leads to: sizes, addr, present, owner. */
	int (*import_fd)(struct kvpool_local *pool, int fd,
			 uint64_t stride_bytes, struct kvpool_mem **out_mem);
	/* Whether pages [first, end) of an imported memory were sent; NULL: all of it was. */
	bool (*covers)(const struct kvpool_mem *mem, uint64_t first,
		       uint64_t end);
	/* The rest may be NULL: work on a device, which goes on after a call returned. */
	int (*fence)(struct kvpool_local *pool, void *stream);
	/* Pages [first, end) are given up: fences so far are before their end. mem->lock held. */
	void (*retire)(struct kvpool_mem *mem, uint64_t first, uint64_t end);
	/* All of it is: volatile, or nobody's any more. pool->lock held. */
	void (*retire_all)(struct kvpool_mem *mem);
	/*
	 * After a release of [first, end): where the memory was cut short, spare pages that are
	 * more than the rest deserves go. Return: pages. mem->lock held.
	 */
	uint64_t (*shed)(struct kvpool_mem *mem, uint64_t first, uint64_t end);
	/* Whether work may still touch a memory that was given up. pool->lock held. */
	bool (*is_busy)(struct kvpool_mem *mem);
	/*
	 * A commit of @mem found no room: wait, with mem->lock held alone, for what may make some
	 * and began before the first of several calls; @state is 0 then. Return: whether to try
	 * again.
	 */
	bool (*wait)(struct kvpool_mem *mem, uint64_t *state);
	/* Pages were committed up to @end: others may be made ahead. mem->lock held. */
	void (*grown)(struct kvpool_mem *mem, uint64_t end);
	/*
	 * A handle goes: the backend gives up references of its own, so that what the handle is the
	 * last user of is free when the call returns. pool->lock held, and let go meanwhile.
	 */
	void (*quiesce)(struct kvpool_mem *mem);
	/* What punch has left over is to be kept or freed. pool->lock held. */
	void (*settle)(struct kvpool_mem *mem);
	/* Free what is kept ready and belongs to no memory. Return: bytes. pool->lock held. */
	uint64_t (*trim)(struct kvpool_local *pool, uint64_t bytes);
	void *(*base)(struct kvpool_local *pool);
	void (*device_id)(const struct kvpool_local *pool, uint8_t *out_id);
};

extern const struct kvpool_backend_ops kvpool_memfd_ops;
extern const struct kvpool_backend_ops kvpool_cuda_ops;

struct kvpool_local {
	struct kvpool base; /* counts callers and handles; not memories */
	const struct kvpool_backend_ops *ops;
	uint64_t node_mask; /* already cut to what this process may use */
	void *backend; /* the cuda backend's own */
	int event_fd;
	uint8_t secret[KVPOOL_KEY_BYTES];

	pthread_mutex_t lock; /* everything below */
	uint64_t limit_bytes, spare_limit_bytes;
	uint64_t resident_bytes, spare_bytes, volatile_bytes, shared_bytes;
	uint64_t draining_bytes; /* of memories on draining */
	uint64_t virtual_bytes, peak_resident_bytes;
	uint64_t nr_live;
	uint64_t next_id;
	uint64_t commits, releases, seals, publishes, lookups, hits, purges;
	struct kvpool_mem_list live;
	struct kvpool_mem_list
		idle; /* no handle; kept for their pages; oldest first */
	struct kvpool_mem_list live_spare; /* live ones that have spare pages */
	struct kvpool_mem_list volatiles;
	/* No handle; a device or a driver does not let go of their pages yet. */
	struct kvpool_mem_list draining;
	/* Spare pages are being freed: none may be kept in another way. */
	bool is_making_room;
	struct kvpool_owner *owners; /* of pools with KVPOOL_F_QUOTA */
	uint64_t quota_bytes,
		shared_quota_bytes; /* of owners without their own */

	struct kvpool_key_entry **key_buckets;
	size_t nr_key_buckets; /* a power of two */
	size_t nr_keys;

	struct kvpool_event events[KVPOOL_MAX_EVENTS]; /* a ring */
	uint32_t first_event, nr_events;
	uint64_t nr_lost_events;
	bool is_pressed; /* above 7/8 of the limit */
};

static inline struct kvpool_local *kvpool_local(struct kvpool *pool)
{
	return (struct kvpool_local *)pool; /* base is its first member */
}

/* kvpool_local.c; 0, -ENOMEM, -EMFILE, -EIO, and what the backend's open answers. */
int kvpool_local_open(const struct kvpool_backend_ops *ops,
		      const struct kvpool_options *options,
		      struct kvpool **out_pool);

/* The calls of local pools, as struct kvpool_calls has them; arguments are checked. */
/* kvpool_buf.c */
int kvpool_local_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
			struct kvpool_buf **out_buf);
int kvpool_local_create_stride(struct kvpool *pool, uint64_t size_bytes,
			       uint64_t stride_bytes, uid_t owner,
			       struct kvpool_buf **out_buf);
void kvpool_local_free(struct kvpool_buf *buf);
int kvpool_local_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
int kvpool_local_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
int kvpool_local_seal(struct kvpool_buf *buf, uint64_t n);
int kvpool_local_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		       uid_t owner, struct kvpool_buf **out_buf);
/* Whether all of [@offset, @offset + @len) is committed; @is_write: and not sealed. */
int kvpool_local_check(struct kvpool_buf *buf, uint64_t offset, uint64_t len,
		       bool is_write);
int kvpool_local_covers(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
int kvpool_local_buf_stat(struct kvpool_buf *buf,
			  struct kvpool_buf_stat *out_stat);
int kvpool_local_advise(struct kvpool_buf *buf, enum kvpool_advice advice,
			bool *out_survived);
/* kvpool_publish.c */
int kvpool_local_publish(struct kvpool_buf *buf,
			 const struct kvpool_mark *marks, size_t nr);
int kvpool_local_unpublish(struct kvpool_buf *buf);
int kvpool_local_lookup(struct kvpool *pool, const struct kvpool_key *key,
			struct kvpool_buf **out_buf, uint64_t *out_n,
			uid_t *out_uid);
int kvpool_local_export(struct kvpool_buf *buf);
int kvpool_local_import(struct kvpool *pool, int fd, uint64_t stride_bytes,
			struct kvpool_buf **out_buf);
/* kvpool_event.c */
int kvpool_local_event_fd(struct kvpool *pool);
int kvpool_local_events(struct kvpool *pool, struct kvpool_event *out_events,
			size_t nr, uint64_t *out_lost);

/* kvpool_mem.c: memories, their page maps and lifetime */
uint64_t kvpool_map_count(const uint64_t *map, uint64_t first, uint64_t end);
/*
 * The next run of pages in [*first, end) that are set in @yes (NULL: all) and clear in @no;
 * moves *first to its start. Return: its length in pages, 0 when there is none.
 */
uint64_t kvpool_map_run(const uint64_t *yes, const uint64_t *no,
			uint64_t *first, uint64_t end);
void kvpool_map_set(uint64_t *map, uint64_t first, uint64_t end, bool value);
void kvpool_map_copy(uint64_t *to, const uint64_t *from, uint64_t nr_pages);
struct kvpool_mem *kvpool_mem_alloc(struct kvpool_local *pool,
				    uint64_t size_bytes);
/* A memory with one handle's reference and vote: a recycled one, or new. */
int kvpool_mem_create(struct kvpool_local *pool, uint64_t size_bytes,
		      uint64_t stride_bytes, uid_t owner,
		      struct kvpool_mem **out_mem);
void kvpool_mem_insert_locked(struct kvpool_mem *mem);
/* Frees or recycles on the last reference. pool->lock held, mem->lock not. */
void kvpool_mem_put_locked(struct kvpool_mem *mem);
/* Free or recycle those draining memories whose work is done. */
void kvpool_reap_locked(struct kvpool_local *pool);
void kvpool_mem_free(struct kvpool_mem *mem);
int kvpool_handle_create(struct kvpool_mem *mem, bool is_read_only,
			 struct kvpool_buf **out_buf);

/* kvpool_account.c: limit, spare pages, purging; all with pool->lock held */
/*
 * Count @nr_new absent and @nr_spare spare pages of @self as committed, and @nr_ahead absent ones
 * as spare; make room where needed. -ENOSPC, -EDQUOT: nothing counted.
 */
int kvpool_charge_locked(struct kvpool_mem *self, uint64_t nr_new,
			 uint64_t nr_spare, uint64_t nr_ahead);
/* Bytes between what all of the pool is and its limit. */
uint64_t kvpool_room_locked(const struct kvpool_local *pool);
/* Spare pages go, at most @bytes. @self is locked by the caller, or NULL. Return: bytes. */
uint64_t kvpool_drop_spare_locked(struct kvpool_local *pool, uint64_t bytes,
				  struct kvpool_mem *self);
/* Volatile memories go, oldest first, but @self, for @bytes; of one @owner, unless it is NULL. */
uint64_t kvpool_purge_locked(struct kvpool_local *pool, uint64_t bytes,
			     struct kvpool_mem *self,
			     const struct kvpool_owner *owner,
			     bool with_exported);
/* Say that @mem's page counts changed by these many pages. */
void kvpool_account_locked(struct kvpool_mem *mem, int64_t committed,
			   int64_t present);
void kvpool_votes_changed_locked(struct kvpool_mem *mem);

/* kvpool_quota.c: what each uid holds; all with pool->lock held */
/* The account of @uid, made where there is none. NULL: no memory. */
struct kvpool_owner *kvpool_owner_locked(struct kvpool_local *pool, uid_t uid);
/* Let the account of @mem follow its pages and state. */
void kvpool_owner_update_locked(struct kvpool_mem *mem);
/* Bytes that @mem's account may still grow by; UINT64_MAX: no quota. */
uint64_t kvpool_owner_room_locked(const struct kvpool_mem *mem);
void kvpool_owners_free(struct kvpool_local *pool);
int kvpool_local_set_quota(struct kvpool *pool, uid_t uid, uint64_t bytes,
			   uint64_t shared_bytes);

/* kvpool_publish.c */
/* Takes the keys of @mem out; its publication reference is the caller's to drop. */
void kvpool_keys_remove_locked(struct kvpool_mem *mem);

/* kvpool_event.c; pool->lock held */
void kvpool_event_locked(struct kvpool_local *pool, enum kvpool_event_type type,
			 uint64_t buf_id, uint64_t bytes);

static inline uint64_t kvpool_page(const struct kvpool_mem *mem)
{
	return mem->pool->base.page_bytes;
}

static inline uint64_t kvpool_nr_pages(const struct kvpool_mem *mem)
{
	return mem->class_bytes / kvpool_page(mem);
}

/* Of @n bytes of a memory; the last page counts whole. */
static inline uint64_t kvpool_to_pages(const struct kvpool_mem *mem, uint64_t n)
{
	return (n + kvpool_page(mem) - 1) / kvpool_page(mem);
}

#endif /* TARN_ENGINE_KV_KVPOOL_LOCAL_H */
