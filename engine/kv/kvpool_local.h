/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools that this library keeps by itself: private to the process, with limits,
 * accounting, recycling, keys and events in user space. A backend (memfd) only
 * makes, fills, empties and protects ranges. The kernel's pools are of another
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
	KVPOOL_PAGE_BYTES =
		4096, /* of the memfd backend, and of the page maps */
	KVPOOL_MAX_EVENTS = 128,
	KVPOOL_MIN_KEY_BUCKETS = 64,
};

struct kvpool_mem {
	struct kvpool_local *pool;
	pthread_mutex_t lock; /* page maps, seal, the backend's fields */
	uint64_t id;
	uint64_t size_bytes; /* as asked for */
	uint64_t class_bytes; /* as mapped: sizes are rounded so that memory can be recycled */
	uid_t owner;
	uint8_t *addr;
	int fd; /* memfd; -1 after a purge of protected memory */

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
	uint32_t nr_refs; /* handles, and one for being published */
	uint32_t nr_votes; /* handles that need the content */
	uint64_t purge_count;
	bool is_published, is_purged, is_volatile, is_idle, in_live_spare;
	struct kvpool_key_entry *keys; /* of this memory, linked by next_of_mem */
	TAILQ_ENTRY(kvpool_mem) link; /* pool->live or pool->idle */
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

struct kvpool_backend_ops {
	const char *name;
	unsigned int features;
	/* 0; -ENODEV, -EOPNOTSUPP, -EINVAL. */
	int (*open)(struct kvpool_local *pool,
		    const struct kvpool_options *options);
	/* Make addr (of class_bytes) and fd; at @mem->addr again where that is set. */
	int (*create)(struct kvpool_mem *mem);
	void (*destroy)(struct kvpool_mem *mem);
	/* Fill absent pages; on an error none of them is present. */
	int (*populate)(struct kvpool_mem *mem, uint64_t offset, uint64_t len);
	int (*punch)(struct kvpool_mem *mem, uint64_t offset, uint64_t len);
	/* Write-protect for ever, every mapping included. */
	int (*protect)(struct kvpool_mem *mem);
	/* Drop the pages of protected memory; the range stays reserved, fd becomes -1. */
	int (*discard)(struct kvpool_mem *mem);
	int (*export_fd)(struct kvpool_mem *mem);
	/* Fill in addr, fd and sizes from a descriptor. */
	int (*import_fd)(struct kvpool_mem *mem, int fd);
};

extern const struct kvpool_backend_ops kvpool_memfd_ops;

struct kvpool_local {
	struct kvpool base; /* counts callers and handles; not memories */
	const struct kvpool_backend_ops *ops;
	uint64_t node_mask; /* already cut to what this process may use */
	int event_fd;
	uint8_t secret[KVPOOL_KEY_BYTES];

	pthread_mutex_t lock; /* everything below */
	uint64_t limit_bytes, spare_limit_bytes;
	uint64_t resident_bytes, spare_bytes, volatile_bytes, shared_bytes;
	uint64_t virtual_bytes, peak_resident_bytes;
	uint64_t nr_live;
	uint64_t next_id;
	uint64_t commits, releases, seals, publishes, lookups, hits, purges;
	struct kvpool_mem_list live;
	struct kvpool_mem_list
		idle; /* no handle; kept for their pages; oldest first */
	struct kvpool_mem_list live_spare; /* live ones that have spare pages */
	struct kvpool_mem_list volatiles;

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
void kvpool_local_free(struct kvpool_buf *buf);
int kvpool_local_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
int kvpool_local_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
int kvpool_local_seal(struct kvpool_buf *buf, uint64_t n);
int kvpool_local_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		       uid_t owner, struct kvpool_buf **out_buf);
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
int kvpool_local_import(struct kvpool *pool, int fd,
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
		      uid_t owner, struct kvpool_mem **out_mem);
void kvpool_mem_insert_locked(struct kvpool_mem *mem);
/* Frees or recycles on the last reference. pool->lock held, mem->lock not. */
void kvpool_mem_put_locked(struct kvpool_mem *mem);
void kvpool_mem_free(struct kvpool_mem *mem);
int kvpool_handle_create(struct kvpool_mem *mem, bool is_read_only,
			 struct kvpool_buf **out_buf);

/* kvpool_account.c: limit, spare pages, purging; all with pool->lock held */
/*
 * Count @nr_new absent and @nr_spare spare pages of @self as committed; make room where needed.
 * -ENOSPC: nothing counted.
 */
int kvpool_charge_locked(struct kvpool_mem *self, uint64_t nr_new,
			 uint64_t nr_spare);
/* Spare pages go, at most @bytes. @self is locked by the caller, or NULL. Return: bytes. */
uint64_t kvpool_drop_spare_locked(struct kvpool_local *pool, uint64_t bytes,
				  struct kvpool_mem *self);
uint64_t kvpool_purge_locked(struct kvpool_local *pool, uint64_t bytes,
			     struct kvpool_mem *self);
/* Say that @mem's page counts changed by these many pages. */
void kvpool_account_locked(struct kvpool_mem *mem, int64_t committed,
			   int64_t present);
void kvpool_votes_changed_locked(struct kvpool_mem *mem);

/* kvpool_publish.c */
/* Takes the keys of @mem out; its publication reference is the caller's to drop. */
void kvpool_keys_remove_locked(struct kvpool_mem *mem);

/* kvpool_event.c; pool->lock held */
void kvpool_event_locked(struct kvpool_local *pool, enum kvpool_event_type type,
			 uint64_t buf_id, uint64_t bytes);

static inline uint64_t kvpool_round_up(uint64_t n)
{
	return (n + KVPOOL_PAGE_BYTES - 1) & ~(uint64_t)(KVPOOL_PAGE_BYTES - 1);
}

#endif /* TARN_ENGINE_KV_KVPOOL_LOCAL_H */
