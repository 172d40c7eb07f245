/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool: pools and buffers of KV memory, the user side of Tarn's KV
 * resource. Usable without the engine: this header includes nothing of ours.
 *
 * A pool holds memory under one limit. A buffer is a contiguous range of
 * virtual addresses that gets pages as it is committed, can be sealed,
 * published under 32-byte keys and found again by them. Three backends keep
 * the same rules: "kernel" (/dev/kvpool: shared between processes, limits and
 * quotas that hold), "memfd" (unprivileged, memory of this process) and "cuda"
 * (memory of an NVIDIA GPU, of this process too, whose addresses the CPU cannot
 * touch). What a backend cannot do answers -EOPNOTSUPP;
 * kvpool_features() says so ahead.
 *
 * Threads: every call may come from any thread. Calls on one buffer that
 * change it (commit, release, seal, publish, advise) are serialised by the
 * library; reading and writing its memory is the callers' affair. Handles are
 * counted: _get adds a reference, _put drops one; the last one frees.
 *
 * Errors: 0 or -errno. Common to all calls and not repeated below: -ENOMEM
 * (memory for bookkeeping), -EINVAL (range not page-aligned or outside the
 * buffer, unknown flag, NULL where a value is needed).
 * Kernel backend only: -ESTALE (this handle was revoked), -EACCES (the pool was
 * joined read-only), -EHWPOISON (a page of the range failed).
 * On an error nothing has changed, unless said otherwise.
 *
 * Kernel backend, signals: a touch of memory that is volatile, purged, revoked,
 * or not committed and beyond a limit raises SIGBUS. Committed memory of a
 * handle that needs its content is safe, from revocation apart.
 *
 * Cuda backend: addresses are of the device's primary context. Work on the GPU
 * goes on after the call that started it, so the caller names it by
 * kvpool_fence() before he gives up what it uses, and before the library is to
 * copy what it writes. Graphs are captured in thread-local mode, since the
 * library calls the driver from a thread of its own. -EIO: the driver or the
 * device failed.
 *
 * The order of work, there: kvpool_fence() after each batch is started; then
 * whatever the library does by itself (kvpool_copy(), kvpool_fill(), seal,
 * clone, publish) runs behind all fences so far, on a stream of its own, and is done when
 * the call returns. So it sees what those batches wrote, and every batch that is
 * started after the call, on any stream, sees what it did. Work that was not
 * named by a fence is not waited for.
 *
 * Growth: struct kvpool_options carries its size. Other structs are fixed per
 * soname of the library.
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
	KVPOOL_BACKEND_AUTO, /* kernel where /dev/kvpool can be opened, else memfd */
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
	KVPOOL_F_DEVICE = 1u << 5, /* addresses are a device's, not the CPU's */
};

struct kvpool_options {
	size_t size; /* sizeof(struct kvpool_options) of the caller */
	enum kvpool_backend backend;
	/*
	 * NULL: private to the process. Else (KVPOOL_F_SHARED) the pool of this name, made where
	 * it is not there: letters, digits, '.', '_', '-', the first no '.'.
	 */
	const char *name;
	uint64_t limit_bytes; /* all memory of the pool, spare pages included; 0 is -EINVAL */
	/*
	 * Pages kept ready for what comes: memfd keeps committed ones after their buffer is gone,
	 * the kernel keeps zeroed huge ones, cuda does as memfd and makes pages ahead of commits.
	 * Counted apart, at most this; 0: none.
	 */
	uint64_t spare_limit_bytes;
	/* NUMA nodes to allocate from, bit per node; 0: the process' policy. */
	uint64_t node_mask;
	/*
	 * With KVPOOL_F_QUOTA: most private, and most published bytes of a uid that has no quota
	 * of its own; 0: unlimited.
	 */
	uint64_t quota_bytes;
	uint64_t shared_quota_bytes;
	uint32_t mode; /* permission bits of a named pool, of 0666; 0: 0600 */
	bool is_shared_keys; /* look-ups see the keys of every uid, not the own ones only */
	/*
	 * The smallest pages only: what is charged is exactly what was committed. Else the kernel
	 * may take up to a huge page around it, within limit and quota. Memfd is always exact. Cuda
	 * takes handles of several pages: a buffer may hold up to an eighth of its committed bytes
	 * more, or one page, within limit, quota and spare_limit_bytes; and of a range that is
	 * released a handle's pages go when the last of them does.
	 */
	bool is_small_pages;
	/*
	 * Join for looking: statistics, look-ups, reading. The pool of the name must be there
	 * (-ENOENT), and fields about memory are not looked at.
	 */
	bool is_read_only;
	uint32_t device; /* cuda: the GPU's ordinal */
};

/**
 * kvpool_open - create a pool, or join one by its name
 * @options: [in] limit, quotas, mode, nodes and the like are those of whoever creates the pool:
 *	one that is joined keeps its own.
 * @out_pool: [out] kvpool_put() drops it. Buffers keep their pool alive; a named one lives until
 *	the last process has dropped it.
 *
 * KVPOOL_BACKEND_AUTO takes the kernel's device where it opens and speaks this library's ABI. Never
 * the GPU, which is asked for by name; a process that uses it must not fork and go on using it.
 * Return: 0; -ENODEV (the backend's device or driver is not there; kvpool_cuda_check() says why);
 * -EACCES (device or pool do not admit this process); -EOPNOTSUPP (a name, where pools are private;
 * a module of another ABI; a driver or GPU without what cuda needs; nodes for cuda);
 * -EINVAL (also: options->size too small, a bad name, no such node); -E2BIG (options->size larger
 * than this library's, with something in the rest); -ENOENT (is_read_only); -EMFILE, -ENFILE.
 */
int kvpool_open(const struct kvpool_options *options, struct kvpool **out_pool);
/**
 * kvpool_open_fd - a pool from a descriptor of it, as received over a socket
 * @fd: stays the caller's. What it may do (write or only read) the pool may do.
 * @out_pool: [out] as of kvpool_open(). It shares its queue of events with whoever else has the
 *	descriptor.
 *
 * Return: 0; -EINVAL (a descriptor of another kind, or -1); -EMFILE.
 */
int kvpool_open_fd(int fd, struct kvpool **out_pool);
/**
 * kvpool_cuda_check - whether the cuda backend can work here
 * @device: ordinal of the GPU
 * @err: [out] why not, in words for the operator; NULL with @errlen 0: of no interest
 *
 * Return: 0; -ENODEV (no driver, no such GPU); -EOPNOTSUPP (the driver is too old, or the GPU has
 * no virtual memory management).
 */
int kvpool_cuda_check(uint32_t device, char *err, size_t errlen);
/**
 * kvpool_cuda_memory - how much memory a GPU has
 * @out_free: [out] bytes that nobody has taken now, other processes included
 * @out_total: [out] bytes it has; NULL if of no interest
 *
 * Costs a context on the GPU, where the process has none yet. Return: 0; as kvpool_cuda_check();
 * -EIO.
 */
int kvpool_cuda_memory(uint32_t device, uint64_t *out_free,
		       uint64_t *out_total);
/**
 * kvpool_pool_fd - the descriptor that stands for a pool
 *
 * It keeps the pool and everything published in it: pass it on, or let a service manager hold it,
 * and kvpool_open_fd() it again. Owned by the pool: duplicate it to keep it.
 * Return: the descriptor; -EOPNOTSUPP without KVPOOL_F_SHARED; -EINVAL for NULL.
 */
int kvpool_pool_fd(struct kvpool *pool);
struct kvpool *kvpool_get(struct kvpool *pool);
void kvpool_put(struct kvpool *pool); /* NULL is fine */

const char *kvpool_backend_name(const struct kvpool *pool);
unsigned int
kvpool_features(const struct kvpool *pool); /* enum kvpool_feature */
/* Smallest unit of commit and release, bytes. */
size_t kvpool_page_bytes(const struct kvpool *pool);
enum { KVPOOL_DEVICE_ID_BYTES = 16 };
/*
 * What the driver calls the device whose memory this is, the same in every process.
 * Return: 0; -EOPNOTSUPP without KVPOOL_F_DEVICE.
 */
int kvpool_device_id(struct kvpool *pool,
		     uint8_t out_id[KVPOOL_DEVICE_ID_BYTES]);

struct kvpool_stat {
	uint64_t limit_bytes;
	uint64_t resident_bytes; /* committed to live buffers */
	uint64_t spare_bytes; /* committed, waiting for reuse; not in resident */
	uint64_t charged_bytes; /* counts against the limit: resident, spare and draining */
	uint64_t draining_bytes; /* released, while a device or a pipe still holds them */
	uint64_t volatile_bytes; /* part of resident that may be taken */
	uint64_t shared_bytes; /* part of resident that is published */
	uint64_t virtual_bytes; /* address space of live buffers, as far as this process has them */
	uint64_t nr_buffers;
	uint64_t nr_keys;
	uint64_t commits, releases, seals, publishes, lookups, hits, purges;
	uint64_t peak_resident_bytes; /* kernel: the largest charged_bytes */
};

/*
 * Context: a consistent snapshot of the whole pool, other processes included. resident + spare <=
 * limit holds always, but for a limit that was lowered below what is held.
 */
int kvpool_stat(struct kvpool *pool, struct kvpool_stat *out_stat);
/*
 * Move the pool's limit. Lowering drops spare pages first, then purges volatile buffers. Return:
 * 0; -EBUSY when resident memory is still above (the limit holds for what comes); -EPERM (kernel:
 * neither the pool's owner nor CAP_SYS_RESOURCE).
 */
int kvpool_set_limit(struct kvpool *pool, uint64_t limit_bytes);
/**
 * kvpool_set_quota - hard limits of one uid
 * @bytes: most private memory, draining pages included; UINT64_MAX: no limit
 * @shared_bytes: most published memory, likewise
 *
 * Holds for what comes. Return: 0; -EOPNOTSUPP without KVPOOL_F_QUOTA; -EPERM (neither the pool's
 * owner nor CAP_SYS_RESOURCE); -EINVAL (no such uid in this user namespace).
 */
int kvpool_set_quota(struct kvpool *pool, uid_t uid, uint64_t bytes,
		     uint64_t shared_bytes);
/*
 * Give spare pages back to the system, at most @bytes; on the kernel backend volatile buffers too,
 * which only the pool's owner may. Return: the bytes given back.
 */
uint64_t kvpool_trim(struct kvpool *pool, uint64_t bytes);
/**
 * kvpool_purge - take volatile buffers, oldest first, until @bytes are gone
 *
 * As the pool does at its limit, but of exported ones too: whoever holds a descriptor of such a
 * buffer, or has imported it, keeps the memory, which is no longer this pool's. Return: the bytes
 * that were taken; 0 on the kernel backend, where kvpool_trim() does it.
 */
uint64_t kvpool_purge(struct kvpool *pool, uint64_t bytes);
/**
 * kvpool_secret - random bytes of the pool, the same for its whole life
 * @out_secret: [out] KVPOOL_KEY_BYTES bytes
 *
 * For keys that nobody without the pool can compute. Return: 0; -EACCES (joined read-only).
 */
int kvpool_secret(struct kvpool *pool, uint8_t out_secret[KVPOOL_KEY_BYTES]);

struct kvpool_pool_info {
	uint64_t id;
	char name[KVPOOL_NAME_BYTES]; /* empty: it has none */
	uint64_t limit_bytes, charged_bytes;
	uid_t owner;
	uint32_t mode;
};

/**
 * kvpool_next_pool - walk over the kernel's pools
 * @id: [in, out] 0 to begin with, then what the last call left
 * @out_info: [out] the next pool
 *
 * Shows what this process might open for reading. Each call opens the device anew. Return: 0;
 * -ENOENT (no further one); -ENODEV, -EACCES (the device); -EOPNOTSUPP (another ABI).
 */
int kvpool_next_pool(uint64_t *id, struct kvpool_pool_info *out_info);

/* ---- buffers ------------------------------------------------------------ */

/**
 * kvpool_buf_create - reserve a range of addresses
 * @size_bytes: virtual size, a multiple of the page size; costs no memory.
 * @owner: uid the memory is charged to, as far as a backend can: memfd has no quotas and the kernel
 *	charges the effective uid of this process, so both only report it (kvpool_buf_stat() of
 *	this handle). Cuda charges it.
 * @out_buf: [out] one reference.
 *
 * The memory reads as the backend left it: zero, or what this process wrote
 * into recycled pages before. Nobody else's bytes are ever seen.
 * Return: 0; -ENOMEM (address space), -EMFILE (also when the process has a
 * quarter of its descriptors left), -ENFILE.
 */
int kvpool_buf_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
		      struct kvpool_buf **out_buf);
/**
 * kvpool_buf_create_stride - as kvpool_buf_create(), for one descriptor of all buffers of a kind
 * @stride_bytes: the first address is a multiple of it behind kvpool_base(), so that units of that
 *	size have one numbering over all buffers
 *
 * Return: as kvpool_buf_create(); -EOPNOTSUPP where the pool has no base.
 */
int kvpool_buf_create_stride(struct kvpool *pool, uint64_t size_bytes,
			     uint64_t stride_bytes, uid_t owner,
			     struct kvpool_buf **out_buf);
/* The start of the one range in which all buffers of the pool lie; NULL: there is none. */
void *kvpool_base(struct kvpool *pool);
/**
 * kvpool_buf_open - a buffer of the pool by its id, from whichever process it is
 * @is_writable: for committing and the like; else for reading
 * @out_buf: [out] a handle and a mapping of its own, with a will-need vote
 *
 * Return: 0; -EOPNOTSUPP without KVPOOL_F_SHARED; -ENOENT (no such buffer, or it was purged);
 * -EPERM (of another uid); -EMFILE as of kvpool_buf_create().
 */
int kvpool_buf_open(struct kvpool *pool, uint64_t id, bool is_writable,
		    struct kvpool_buf **out_buf);
struct kvpool_buf *kvpool_buf_get(struct kvpool_buf *buf);
void kvpool_buf_put(struct kvpool_buf *buf); /* NULL is fine */

uint64_t
kvpool_buf_id(const struct kvpool_buf *buf); /* unique in the pool, never 0 */
/* Bytes mapped. Of a look-up at least what may be read of it. */
uint64_t kvpool_buf_size(const struct kvpool_buf *buf);
/* First address. Constant for the buffer's life; committed ranges may be touched. */
void *kvpool_buf_addr(const struct kvpool_buf *buf);

/**
 * kvpool_buf_commit - back [offset, offset + len) with pages, ahead of use
 *
 * Pages already there stay. All or nothing; the kernel backend may back more than the range, see
 * kvpool_options.is_small_pages. Return: 0; -ENOSPC (the pool's
 * limit; volatile buffers and spare pages were tried first), -EDQUOT (the
 * owner's quota), -ENOMEM (the system), -EINTR (fatal signal), -EPERM (sealed).
 * Touching committed memory raises no signal.
 */
int kvpool_buf_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
/* Give the pages of a range back. -EPERM when it is sealed or published. */
int kvpool_buf_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len);

/**
 * kvpool_fence - name the work of a device that may use the pool's memory
 * @stream: [in] CUstream of the device's primary context, all of whose work so far is meant, and
 *	which is not being captured; NULL: the default stream
 *
 * Memory that is given up after this call (released, volatile, its last handle put) stays mapped
 * and untouched by others until that work is done, counted as draining or spare; seal and clone
 * read and write after it. A commit that only misses such memory waits for it, a few seconds at
 * most, and so does the last kvpool_put(). Call it once for each batch of work, before giving up
 * what the batch uses.
 * Context: any thread, the pool alone is locked. Return: 0; -EOPNOTSUPP without KVPOOL_F_DEVICE;
 * -EBUSY (a thousand fences wait); -EIO.
 */
int kvpool_fence(struct kvpool *pool, void *stream);

/* Rows of bytes in a buffer: the first one's offset, and how far apart they begin. */
struct kvpool_place {
	struct kvpool_buf *buf;
	uint64_t offset;
	uint64_t pitch_bytes; /* not less than a row; of one row not looked at */
};

/**
 * kvpool_copy - copy rows of bytes between buffers of one pool, or within one
 * @row_bytes, @nr_rows: of both sides; neither is 0. Nothing of @to lies over @from.
 *
 * From the first row to the last all is committed, and nothing of @to is sealed. Where the CPU can
 * touch the memory this is memcpy(). A device's is copied by the device, in one piece of work,
 * behind all fences so far; it is over when the call returns.
 * Return: 0; -EINVAL (rows outside of the buffer or over each other, another pool); -EPERM (a
 * read-only handle); KVPOOL_F_DEVICE: -ERANGE (not committed), -EPERM (sealed); -EIO, and then
 * what @to holds is undefined.
 */
int kvpool_copy(const struct kvpool_place *to, const struct kvpool_place *from,
		uint64_t row_bytes, uint64_t nr_rows);
/* Set rows of bytes to @value; else as kvpool_copy(). */
int kvpool_fill(const struct kvpool_place *to, uint8_t value,
		uint64_t row_bytes, uint64_t nr_rows);

/**
 * kvpool_buf_seal - bytes [0, n) become immutable
 * @n: rounded up to a page; the rest of that page is zeroed.
 *
 * Bookkeeping on the memfd backend (publication is what protects there). On the kernel backend
 * the bytes become read-only here; another handle's writable mapping of them raises SIGBUS.
 * Return: 0; -EBUSY (pinned, kernel backend); -EPERM (n below an earlier seal); -EIO (cuda).
 */
int kvpool_buf_seal(struct kvpool_buf *buf, uint64_t n);
/*
 * A new buffer of @size_bytes that starts with the first @n bytes of @buf: sealed whole pages
 * are shared where the backend can, and then sealed in the new buffer too; the rest is copied and
 * charged as by kvpool_buf_create(). Return: 0; -ENOSPC, -EDQUOT, -EMFILE; -EPERM (volatile or
 * purged, kernel backend); -ERANGE when [0, n) is not committed (memfd; the kernel keeps holes).
 */
int kvpool_buf_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		     uid_t owner, struct kvpool_buf **out_buf);

struct kvpool_buf_stat {
	uint64_t id;
	uint64_t size_bytes, resident_bytes, sealed_bytes;
	uint64_t charged_bytes; /* part of resident that owner or publisher pays for */
	uint64_t private_bytes; /* part of resident that no clone shares */
	uint64_t huge_bytes; /* part of resident in huge pages */
	uid_t owner;
	uid_t publisher; /* (uid_t)-1: not published */
	bool is_volatile, is_published, is_purged;
	uint32_t nr_refs; /* handles of all processes, and one for being published */
	uint32_t nr_votes; /* handles that need the content */
	uint32_t nr_keys;
};

/*
 * Whether bytes [offset, offset + len) are committed, or were sent where the buffer is imported.
 * Return: 0; -ERANGE (not all of them); -EOPNOTSUPP (kernel backend); -EINVAL (beyond the buffer).
 */
int kvpool_buf_covers(struct kvpool_buf *buf, uint64_t offset, uint64_t len);
/* State of one buffer. Context: a consistent snapshot. */
int kvpool_buf_stat(struct kvpool_buf *buf, struct kvpool_buf_stat *out_stat);
/**
 * kvpool_next_buf - walk over the buffers of a pool
 * @id: [in, out] 0 to begin with, then what the last call left
 * @out_stat: [out] the next buffer
 *
 * Shows the buffers of this process' uid; all of them to the pool's owner and CAP_SYS_RESOURCE.
 * Return: 0; -ENOENT (no further one); -EOPNOTSUPP without KVPOOL_F_SHARED.
 */
int kvpool_next_buf(struct kvpool *pool, uint64_t *id,
		    struct kvpool_buf_stat *out_stat);

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
 * Kernel backend: this handle gives up writing; others opened by id may go on behind the seal. More
 * marks than one call of the module takes go in several: where a later one fails, a first
 * publication is withdrawn, but keys that the call added to an earlier one stay.
 * Return: 0; -EPERM (not sealed that far, volatile, or published by another uid), -EDQUOT (shared
 * account), -EMFILE (keys), -ENOMEM, and what the system answers when it cannot protect the memory.
 */
int kvpool_buf_publish(struct kvpool_buf *buf, const struct kvpool_mark *marks,
		       size_t nr);
/*
 * Take back all keys of the buffer; users keep what they hold. Return: 0; -ENOENT (it has none);
 * -EPERM (a read-only handle; neither publisher nor owner).
 */
int kvpool_buf_unpublish(struct kvpool_buf *buf);
/**
 * kvpool_lookup - find a published buffer
 * @out_buf: [out] a reference, read-only, with a will-need vote.
 * @out_n: [out] bytes that may be read; the rest of the last page is seen too.
 * @out_uid: [out] the publisher; NULL if of no interest.
 *
 * Only trusted publishers are seen: this process' own uid, unless the pool was
 * created is_shared_keys. Return: 0; -ENOENT (never there, or purged); -EMFILE
 * (kernel backend: each look-up holds a descriptor).
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
 *	of no interest. When not, the buffer is empty and may be committed anew, by a handle that
 *	can write; a read-only one leads to nothing any more.
 *
 * Every buffer starts needed. The vote is per handle given out by create or lookup.
 */
int kvpool_buf_advise(struct kvpool_buf *buf, enum kvpool_advice advice,
		      bool *out_survived);

/*
 * Cut off every other handle, this process' own ones too: their calls answer -ESTALE, a touch of
 * their memory raises SIGBUS. Return: 0; -EOPNOTSUPP without KVPOOL_F_REVOKE; -EPERM (a read-only
 * handle; not the buffer's owner).
 */
int kvpool_buf_revoke(struct kvpool_buf *buf);

/* ---- between processes ------------------------------------------------------ */

/*
 * A read-only descriptor of a published buffer, to be sent over a Unix socket; the caller closes
 * it. While it is open the content stays. Return: the descriptor; -EPERM when it is not published;
 * -EOPNOTSUPP without KVPOOL_F_EXPORT; cuda: -E2BIG (more than 64,009 pieces of memory), -ERANGE
 * (nothing of it is committed), -EMFILE, -EIO.
 */
int kvpool_buf_export(struct kvpool_buf *buf);
/*
 * A buffer over a received descriptor of the same backend, read-only; @fd stays the caller's. The
 * memory is the sender's account. On the kernel backend what is sealed is mapped; descriptors that
 * went over a socket share one vote, so a sender who lets go of his takes ours: import only from
 * whom you trust. Cuda: only from a process of the same uid (else -EPERM), which could still write
 * what it sent. Return: 0; -EINVAL for a descriptor of another kind, one that is not sealed (its
 * sender could change it under us) or one of another GPU; -EOPNOTSUPP; -EMFILE.
 */
int kvpool_buf_import(struct kvpool *pool, int fd, struct kvpool_buf **out_buf);
/* As kvpool_buf_import(), at an address as of kvpool_buf_create_stride(), and with its errors. */
int kvpool_buf_import_stride(struct kvpool *pool, int fd, uint64_t stride_bytes,
			     struct kvpool_buf **out_buf);

/* ---- events ------------------------------------------------------------------ */

enum kvpool_event_type {
	KVPOOL_EVENT_PRESSURE, /* memory crossed 7/8 of the limit */
	KVPOOL_EVENT_LIMIT, /* a commit was refused */
	KVPOOL_EVENT_PURGED, /* buf_id lost its pages */
};

struct kvpool_event {
	enum kvpool_event_type type;
	uint64_t buf_id; /* 0 where none is meant */
	uint64_t bytes;
};

/*
 * Readable (poll, epoll) while events wait. Owned by the pool; on the kernel backend the pool's
 * own descriptor. Purges are told to the buffer's owner and to the pool's.
 */
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
