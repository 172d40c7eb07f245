/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool: pools and buffers of KV memory, the user side of Tarn's KV
 * resource. Usable without the engine: this header includes nothing of ours.
 *
 * A pool holds memory under one limit. A buffer is a contiguous range of
 * virtual addresses that gets pages as it is committed, can be sealed,
 * published under 32-byte keys and found again by them. Three backends keep
 * the same rules: "kernel" (/dev/kvpool), "memfd" (unprivileged, memory of
 * this process) and "cuda" (device memory). What a backend cannot do answers
 * -EOPNOTSUPP; kvpool_features() says so ahead.
 *
 * Threads: every call may come from any thread. Calls on one buffer that
 * change it (commit, release, seal, publish, advise) are serialised by the
 * library; reading and writing its memory is the callers' affair. Handles are
 * counted: _get adds a reference, _put drops one; the last one frees.
 *
 * Errors: 0 or -errno. Common to all calls and not repeated below: -ENOMEM
 * (memory for bookkeeping), -EINVAL (range not page-aligned or outside the
 * buffer, unknown flag, NULL where a value is needed).
 * On an error nothing has changed, unless said otherwise.
 */
#ifndef LIBKVPOOL_H
#define LIBKVPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols: what stands here is its interface. */
#pragma GCC visibility push(default)

enum {
	KVPOOL_KEY_BYTES = 32,
	KVPOOL_NAME_BYTES = 64, /* with the NUL */
};

struct kvpool;
struct kvpool_buf;

struct kvpool_key {
	uint8_t bytes[KVPOOL_KEY_BYTES];
};

enum kvpool_backend {
	KVPOOL_BACKEND_AUTO, /* kernel where /dev/kvpool is there, else memfd */
	KVPOOL_BACKEND_KERNEL,
	KVPOOL_BACKEND_MEMFD,
	KVPOOL_BACKEND_CUDA,
};

enum kvpool_feature {
	KVPOOL_F_QUOTA = 1u << 0, /* hard limits per uid */
	KVPOOL_F_SHARED = 1u
			  << 1, /* other processes can open the pool by name */
	KVPOOL_F_REVOKE = 1u << 2,
	KVPOOL_F_PURGE = 1u
			 << 3, /* volatile memory goes under system pressure */
	KVPOOL_F_EXPORT = 1u << 4, /* buffers travel as descriptors */
};

struct kvpool_options {
	enum kvpool_backend backend;
	const char *name; /* NULL: private to the process */
	uint64_t limit_bytes; /* all memory of the pool, spare pages included; 0 is -EINVAL */
	/*
	 * Committed pages kept for reuse after their buffer is gone: so that the
	 * next buffer starts warm. Counted apart, at most this; 0: none.
	 */
	uint64_t spare_limit_bytes;
	/* NUMA nodes to allocate from, bit per node; 0: the process' policy. */
	uint64_t node_mask;
};

/**
 * kvpool_open - create or open a pool
 * @out_pool: [out] kvpool_put() drops it. Buffers keep their pool alive.
 *
 * Return: 0; -ENODEV (the backend's device or driver is not there); -EACCES;
 * -EOPNOTSUPP (a name, where pools are private); -ENOMEM.
 */
int kvpool_open(const struct kvpool_options *options, struct kvpool **out_pool);
struct kvpool *kvpool_get(struct kvpool *pool);
void kvpool_put(struct kvpool *pool); /* NULL is fine */

const char *kvpool_backend_name(const struct kvpool *pool);
unsigned int
kvpool_features(const struct kvpool *pool); /* enum kvpool_feature */
/* Smallest unit of commit and release, bytes. */
size_t kvpool_page_bytes(const struct kvpool *pool);

struct kvpool_stat {
	uint64_t limit_bytes;
	uint64_t resident_bytes; /* committed to live buffers */
	uint64_t spare_bytes; /* committed, waiting for reuse; not in resident */
	uint64_t volatile_bytes; /* part of resident that may be taken */
	uint64_t shared_bytes; /* part of resident that is published */
	uint64_t virtual_bytes; /* address space of live buffers */
	uint64_t nr_buffers;
	uint64_t nr_keys;
	uint64_t commits, releases, seals, publishes, lookups, hits, purges;
	uint64_t peak_resident_bytes;
};

/* Context: a consistent snapshot. resident + spare <= limit holds always. */
int kvpool_stat(struct kvpool *pool, struct kvpool_stat *out_stat);
/*
 * Move the pool's limit. Lowering drops spare pages first, then purges volatile buffers. Return:
 * 0; -EBUSY when resident memory is still above (the limit holds for what comes).
 */
int kvpool_set_limit(struct kvpool *pool, uint64_t limit_bytes);
/* Hard limit of one uid. Return: 0; -EOPNOTSUPP without KVPOOL_F_QUOTA; -EPERM. */
int kvpool_set_quota(struct kvpool *pool, uid_t uid, uint64_t bytes);
/* Give spare pages back to the system, at most @bytes. Return: the bytes given back. */
uint64_t kvpool_trim(struct kvpool *pool, uint64_t bytes);

/* ---- buffers ------------------------------------------------------------ */

/**
 * kvpool_buf_create - reserve a range of addresses
 * @size_bytes: virtual size, a multiple of the page size; costs no memory.
 * @owner: uid the memory is charged to (backends without quotas only report it).
 * @out_buf: [out] one reference.
 *
 * The memory reads as the backend left it: zero, or what this process wrote
 * into recycled pages before. Nobody else's bytes are ever seen.
 * Return: 0; -ENOMEM (address space), -EMFILE (also when the process has a
 * quarter of its descriptors left), -ENFILE.
 */
int kvpool_buf_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
		      struct kvpool_buf **out_buf);
struct kvpool_buf *kvpool_buf_get(struct kvpool_buf *buf);
void kvpool_buf_put(struct kvpool_buf *buf); /* NULL is fine */

uint64_t
kvpool_buf_id(const struct kvpool_buf *buf); /* unique in the pool, never 0 */
uint64_t kvpool_buf_size(const struct kvpool_buf *buf);
/* First address. Constant for the buffer's life; committed ranges may be touched. */
void *kvpool_buf_addr(const struct kvpool_buf *buf);

/**
 * kvpool_buf_commit - back [offset, offset + len) with pages, ahead of use
 *
 * Pages already there stay. All or nothing. Return: 0; -ENOSPC (the pool's
 * limit; volatile buffers and spare pages were tried first), -EDQUOT (the
 * owner's quota), -ENOMEM (the system), -EINTR (fatal signal), -EPERM (sealed).
 * Touching committed memory raises no signal.
 */
int kvpool_buf_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
/* Give the pages of a range back. -EPERM when it is sealed or published. */
int kvpool_buf_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len);

/**
 * kvpool_buf_seal - bytes [0, n) become immutable
 * @n: rounded up to a page; the rest of that page is zeroed.
 *
 * Bookkeeping on the memfd backend (publication is what protects there).
 * Return: 0; -EBUSY (pinned, kernel backend); -EPERM (n below an earlier seal).
 */
int kvpool_buf_seal(struct kvpool_buf *buf, uint64_t n);
/*
 * A new buffer of @size_bytes that starts with the first @n bytes of @buf: sealed whole pages
 * are shared where the backend can, the rest copied and charged to @owner.
 * Return: 0; -ENOSPC, -EDQUOT; -ERANGE when [0, n) is not committed.
 */
int kvpool_buf_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		     uid_t owner, struct kvpool_buf **out_buf);

struct kvpool_buf_stat {
	uint64_t id;
	uint64_t size_bytes, resident_bytes, sealed_bytes, charged_bytes;
	uid_t owner;
	bool is_volatile, is_published, is_purged;
	uint32_t nr_refs;
};

int kvpool_buf_stat(struct kvpool_buf *buf, struct kvpool_buf_stat *out_stat);

/* ---- publication ---------------------------------------------------------- */

struct kvpool_mark {
	struct kvpool_key key;
	uint64_t n_bytes; /* a look-up of the key sees [0, n_bytes) */
};

/**
 * kvpool_buf_publish - make sealed bytes findable by key
 * @marks: pairs; n_bytes within the sealed part.
 *
 * The pool takes a reference of its own. From here on the bytes are write-protected, this process
 * included: every mapping becomes read-only. Pages behind the sealed part are given back, also
 * when the call fails: a descriptor of the buffer shows nothing but what was sealed. A key belongs
 * to its publisher's uid; one that he published before points to the newest buffer.
 * Return: 0; -EPERM (not sealed that far, or volatile), -EDQUOT (shared account), -ENOMEM, and
 * what the system answers when it cannot protect the memory.
 */
int kvpool_buf_publish(struct kvpool_buf *buf, const struct kvpool_mark *marks,
		       size_t nr);
/* Take back all keys of the buffer; users keep what they hold. -ENOENT: none. */
int kvpool_buf_unpublish(struct kvpool_buf *buf);
/**
 * kvpool_lookup - find a published buffer
 * @out_buf: [out] a reference, read-only, with a will-need vote.
 * @out_n: [out] bytes that may be read.
 * @out_uid: [out] the publisher; NULL if of no interest.
 *
 * Only trusted publishers are seen: this process' own uid, unless the pool was
 * created otherwise. Return: 0; -ENOENT (never there, or purged).
 */
int kvpool_lookup(struct kvpool *pool, const struct kvpool_key *key,
		  struct kvpool_buf **out_buf, uint64_t *out_n, uid_t *out_uid);

enum kvpool_advice {
	KVPOOL_VOLATILE, /* may be taken until it is needed again; do not touch */
	KVPOOL_WILLNEED,
};

/**
 * kvpool_buf_advise - say whether the content is needed
 * @out_survived: [out] for KVPOOL_WILLNEED: whether the bytes are still there; NULL if
 *	of no interest. When not, the buffer is empty and may be committed anew.
 *
 * Every buffer starts needed. The vote is per handle given out by create or lookup.
 */
int kvpool_buf_advise(struct kvpool_buf *buf, enum kvpool_advice advice,
		      bool *out_survived);

/* Cut off every other holder. -EOPNOTSUPP without KVPOOL_F_REVOKE. */
int kvpool_buf_revoke(struct kvpool_buf *buf);

/* ---- between processes ------------------------------------------------------ */

/*
 * A read-only descriptor of a published buffer, to be sent over a Unix socket; the caller closes
 * it. Return: the descriptor; -EPERM when it is not published; -EOPNOTSUPP without KVPOOL_F_EXPORT.
 */
int kvpool_buf_export(struct kvpool_buf *buf);
/*
 * A buffer over a received descriptor, read-only; @fd stays the caller's. The memory is the
 * sender's account. Return: 0; -EINVAL for a descriptor of another kind or one that is
 * not write-sealed (its sender could change it under us); -EOPNOTSUPP.
 */
int kvpool_buf_import(struct kvpool *pool, int fd, struct kvpool_buf **out_buf);

/* ---- events ------------------------------------------------------------------ */

enum kvpool_event_type {
	KVPOOL_EVENT_PRESSURE, /* resident memory crossed 7/8 of the limit */
	KVPOOL_EVENT_LIMIT, /* a commit was refused */
	KVPOOL_EVENT_PURGED, /* buf_id lost its pages */
};

struct kvpool_event {
	enum kvpool_event_type type;
	uint64_t buf_id; /* 0 where none is meant */
	uint64_t bytes;
};

/* Readable (poll, epoll) while events wait. Owned by the pool. */
int kvpool_event_fd(struct kvpool *pool);
/*
 * Take up to @nr events. The queue is bounded and coalesced: @out_lost counts what it could
 * not keep since the last call. Return: how many were written.
 */
int kvpool_events(struct kvpool *pool, struct kvpool_event *out_events,
		  size_t nr, uint64_t *out_lost);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* LIBKVPOOL_H */
