/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool inside: what every kind of pool has. The front (kvpool_main.c,
 * kvpool_handle.c, kvpool_rows.c) is the public interface: it checks arguments, counts
 * references and hands on to the pool's kind: kvpool_local.h for pools kept in
 * this process, kvpool_kernel.h for those of /dev/kvpool. Nobody outside
 * engine/kv/kvpool_*.c includes this, but for tests that inject faults.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_PRIVATE_H
#define TARN_ENGINE_KV_KVPOOL_PRIVATE_H

#include <stdatomic.h>

#include "engine/kv/libkvpool.h"

/*
 * What a kind of pool does. The front has checked: nothing is NULL that may not be, ranges are
 * page-aligned and inside the buffer, the handle may write where the call needs it. Each answers
 * as the public call of its name. NULL: the kind cannot, -EOPNOTSUPP.
 */
struct kvpool_calls {
	void (*destroy)(struct kvpool *pool); /* no handle is left */
	int (*stat)(struct kvpool *pool, struct kvpool_stat *out_stat);
	int (*set_limit)(struct kvpool *pool, uint64_t limit_bytes);
	int (*set_quota)(struct kvpool *pool, uid_t uid, uint64_t bytes,
			 uint64_t shared_bytes);
	uint64_t (*trim)(struct kvpool *pool, uint64_t bytes);
	uint64_t (*purge)(struct kvpool *pool, uint64_t bytes);
	int (*device_id)(struct kvpool *pool, uint8_t *out_id);
	int (*secret)(struct kvpool *pool, uint8_t *out_secret);
	int (*pool_fd)(struct kvpool *pool);
	int (*event_fd)(struct kvpool *pool);
	int (*events)(struct kvpool *pool, struct kvpool_event *out_events,
		      size_t nr, uint64_t *out_lost);
	int (*next_buf)(struct kvpool *pool, uint64_t *id,
			struct kvpool_buf_stat *out_stat);

	int (*create)(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
		      struct kvpool_buf **out_buf);
	int (*create_stride)(struct kvpool *pool, uint64_t size_bytes,
			     uint64_t stride_bytes, uid_t owner,
			     struct kvpool_buf **out_buf);
	int (*open)(struct kvpool *pool, uint64_t id, bool is_writable,
		    struct kvpool_buf **out_buf);
	int (*lookup)(struct kvpool *pool, const struct kvpool_key *key,
		      struct kvpool_buf **out_buf, uint64_t *out_n,
		      uid_t *out_uid);
	/* @stride_bytes: 0: any address. */
	int (*import)(struct kvpool *pool, int fd, uint64_t stride_bytes,
		      struct kvpool_buf **out_buf);

	void (*free)(struct kvpool_buf *buf); /* the handle, and its vote */
	int (*commit)(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
	int (*release)(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
	int (*seal)(struct kvpool_buf *buf, uint64_t n);
	int (*clone)(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		     uid_t owner, struct kvpool_buf **out_buf);
	int (*covers)(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
	int (*buf_stat)(struct kvpool_buf *buf,
			struct kvpool_buf_stat *out_stat);
	int (*publish)(struct kvpool_buf *buf, const struct kvpool_mark *marks,
		       size_t nr);
	int (*unpublish)(struct kvpool_buf *buf);
	int (*advise)(struct kvpool_buf *buf, enum kvpool_advice advice,
		      bool *out_survived);
	int (*revoke)(struct kvpool_buf *buf);
	int (*export_fd)(struct kvpool_buf *buf);
	/* With KVPOOL_F_DEVICE only: else the front copies and fills by itself. */
	int (*copy)(const struct kvpool_place *to,
		    const struct kvpool_place *from, uint64_t row_bytes,
		    uint64_t nr_rows);
	int (*fill)(const struct kvpool_place *to, uint8_t value,
		    uint64_t row_bytes, uint64_t nr_rows);
	int (*fence)(struct kvpool *pool, void *stream);
	void *(*base)(struct kvpool *pool);
};

/* First member of every kind's pool. Constant but for the count. */
struct kvpool {
	const struct kvpool_calls *calls;
	atomic_uint nr_refs; /* callers and handles */
	const char *backend_name;
	unsigned int features;
	size_t page_bytes;
};

/* First member of every kind's handle. Constant but for the count. */
struct kvpool_buf {
	struct kvpool *pool; /* a reference */
	atomic_uint nr_refs;
	uint64_t id;
	uint64_t size_bytes;
	uint8_t *addr;
	bool is_read_only; /* found by look-up, opened for reading, or imported */
};

/*
 * Whether a descriptor just made lies among those that are left to the caller: it serves clients,
 * not a cache. Descriptors come lowest first.
 */
bool kvpool_is_fd_beyond_share(int fd);

/*
 * The system calls of the backends, and the library's allocator, through one table, so that a test
 * can make the nth of them fail.
 */
struct kvpool_sys {
	int (*memfd_create)(const char *name, unsigned int flags);
	int (*fallocate)(int fd, int mode, off_t offset, off_t len);
	void *(*mmap)(void *addr, size_t len, int prot, int flags, int fd,
		      off_t offset);
	int (*open)(const char *path, int flags, ...);
	int (*add_seals)(int fd, int seals);
	int (*ioctl)(int fd, unsigned long request, void *arg);
	int (*mprotect)(void *addr, size_t len, int prot);
	void *(*calloc)(size_t nr, size_t size);
};

extern struct kvpool_sys kvpool_sys;

#endif /* TARN_ENGINE_KV_KVPOOL_PRIVATE_H */
