/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of /dev/kvpool. The module keeps limits, accounts, keys and votes; a
 * handle is a buffer descriptor and a mapping of it. Here is decided what is
 * mapped how, and what is asked in which order, so that the rules of
 * libkvpool.h hold. Included by kvpool_kernel*.c and the front.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_KERNEL_H
#define TARN_ENGINE_KV_KVPOOL_KERNEL_H

#include <pthread.h>

#include "engine/kv/kvpool_private.h"

struct kvpool_kernel {
	struct kvpool base;
	int fd; /* the pool's descriptor; O_NONBLOCK, for its events */
	uint32_t max_marks; /* of one PUBLISH */
	uint64_t huge_bytes; /* smallest buffer that may get huge pages */
	atomic_ullong virtual_bytes; /* mapped by handles of this process */
	pthread_mutex_t event_lock; /* nr_lost_events, and who reads */
	uint64_t nr_lost_events;
};

struct kvpool_kernel_buf {
	struct kvpool_buf base;
	int fd; /* an open description of its own: it has a vote */
	bool is_imported; /* its id may be another pool's */
	bool is_found; /* by key */
	bool is_owner_given; /* owner says what to report */
	uid_t owner;
	struct kvpool_key key; /* where is_found */

	pthread_mutex_t lock; /* protection of the mapping, and: */
	uint64_t sealed_bytes; /* whole pages, as far as this handle knows */
	bool is_closed; /* published: this handle writes no more */
};

static inline struct kvpool_kernel *kvpool_kernel(struct kvpool *pool)
{
	return (struct kvpool_kernel *)pool; /* base is its first member */
}

static inline struct kvpool_kernel_buf *
kvpool_kernel_buf(struct kvpool_buf *buf)
{
	return (struct kvpool_kernel_buf *)buf; /* base is its first member */
}

/* kvpool_kernel.c: the device and pools */
/*
 * Open the device. Return: the descriptor; -ENODEV (it is not there), -EACCES, -EOPNOTSUPP (a
 * module of another ABI), -EMFILE, -ENFILE.
 */
int kvpool_kernel_device(void);
/* A pool by @options, which are checked; @device is taken, also on an error. */
int kvpool_kernel_open(int device, const struct kvpool_options *options,
		       struct kvpool **out_pool);
int kvpool_kernel_open_fd(int fd, struct kvpool **out_pool);
int kvpool_kernel_next_pool(uint64_t *id, struct kvpool_pool_info *out_info);
/* One ioctl. Return: 0 or -errno. */
int kvpool_kernel_call(int fd, unsigned int call, void *arg);

/* kvpool_kernel_buf.c: the calls on buffers, as struct kvpool_calls has them */
int kvpool_kernel_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
			 struct kvpool_buf **out_buf);
int kvpool_kernel_buf_open(struct kvpool *pool, uint64_t id, bool is_writable,
			   struct kvpool_buf **out_buf);
void kvpool_kernel_free(struct kvpool_buf *buf);
int kvpool_kernel_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
int kvpool_kernel_release(struct kvpool_buf *buf, uint64_t offset,
			  uint64_t len);
int kvpool_kernel_seal(struct kvpool_buf *buf, uint64_t n);
int kvpool_kernel_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
			uid_t owner, struct kvpool_buf **out_buf);
int kvpool_kernel_buf_stat(struct kvpool_buf *buf,
			   struct kvpool_buf_stat *out_stat);
int kvpool_kernel_next_buf(struct kvpool *pool, uint64_t *id,
			   struct kvpool_buf_stat *out_stat);
int kvpool_kernel_advise(struct kvpool_buf *buf, enum kvpool_advice advice,
			 bool *out_survived);
int kvpool_kernel_revoke(struct kvpool_buf *buf);

/* For kvpool_kernel_publish.c. */
/*
 * A handle over a descriptor just made; @fd is taken, also on an error. [0, @sealed_bytes) is
 * mapped read-only, the rest too where @is_read_only.
 */
int kvpool_kernel_handle(struct kvpool_kernel *pool, int fd, uint64_t id,
			 uint64_t size_bytes, uint64_t sealed_bytes,
			 bool is_read_only, struct kvpool_kernel_buf **out_buf);
/* Let the mapping's protection follow the kernel's state. buf->lock held. */
int kvpool_kernel_reprotect_locked(struct kvpool_kernel_buf *buf);

/* kvpool_kernel_publish.c: what leads from one handle to another */
int kvpool_kernel_publish(struct kvpool_buf *buf,
			  const struct kvpool_mark *marks, size_t nr);
int kvpool_kernel_unpublish(struct kvpool_buf *buf);
int kvpool_kernel_lookup(struct kvpool *pool, const struct kvpool_key *key,
			 struct kvpool_buf **out_buf, uint64_t *out_n,
			 uid_t *out_uid);
int kvpool_kernel_export(struct kvpool_buf *buf);
int kvpool_kernel_import(struct kvpool *pool, int fd, uint64_t stride_bytes,
			 struct kvpool_buf **out_buf);

static inline uint64_t kvpool_kernel_round_up(const struct kvpool *pool,
					      uint64_t n)
{
	return (n + pool->page_bytes - 1) / pool->page_bytes * pool->page_bytes;
}

#endif /* TARN_ENGINE_KV_KVPOOL_KERNEL_H */
