/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/kvpool: memory of KV caches as a resource of the system. The whole ABI.
 *
 * Objects. A device descriptor (open of /dev/kvpool) makes and finds pools. A
 * pool descriptor stands for one pool: a name, a limit, quotas, a set of NUMA
 * nodes, and a table of keys. A buffer descriptor stands for one buffer: a
 * range of bytes that gets pages as it is committed or touched, that can be
 * mapped, sealed, shared and found again by key. Every descriptor is
 * close-on-exec, can be passed over a Unix socket, and keeps its object alive;
 * so does a mapping. A published buffer is kept by its pool. A pool lives as
 * long as a descriptor of it or of one of its buffers is open; then its
 * publications, its name and all its memory go. Nobody has to clean up after a
 * process that died.
 *
 * Security. The boundary is the uid and the pool: what belongs to a uid may be
 * touched by every process of that uid which can open the pool. Uids are those
 * of the caller's effective credentials, global underneath and translated to
 * the caller's user namespace at the door. Pool names are global to the
 * machine: no namespace divides them. A pool is opened by the bits of its mode
 * (owner, group, other: 4 to open for reading, 2 for writing); CAP_DAC_OVERRIDE
 * in the initial user namespace passes them. Limits and quotas hold for
 * everybody, root included; who may move them: the pool's owner and
 * CAP_SYS_RESOURCE. Reading needs a descriptor opened for reading, what changes
 * something one opened for writing; where a call says "writer", it needs the
 * latter. A descriptor cannot be reopened with more rights than it has. Memory
 * is zeroed before it changes its owner.
 *
 * Growth. Every struct begins with __u32 size, filled by the caller with the
 * size he was compiled with. The kernel takes the sizes that it has ever had
 * for a struct or larger, up to a page; a field it does not know must be zero,
 * a field the caller does not know counts as zero. Flags, and fields called
 * __reserved, that have no meaning here must be zero. Fields called out_... are
 * written by the kernel and ignored on the way in. Numbers of ioctls never
 * change, and say nothing about sizes.
 *
 * Errors. Nothing has changed after an error, unless a call says otherwise.
 * Every call may answer:
 *   ENOTTY      no such call on this kind of descriptor
 *   EFAULT      the argument cannot be read or written
 *   EINVAL      size is smaller than the call's first version, a value is out
 *               of range, or a range overflows or is not page-aligned
 *   E2BIG       a part of the struct that the kernel does not know is not zero,
 *               or size is larger than a page
 *   EOPNOTSUPP  a flag is not known, or a reserved field is not zero
 *   ENOMEM      the kernel has no memory for its own records, or the system or
 *               the pool's memory cgroup has no page to give
 *   EINTR       a fatal signal arrived
 * The rest stands with the calls:
 *   EACCES      the descriptor was not opened for it
 *   EPERM       not the owner, or the state of the object forbids it
 *   ENOSPC      the pool's limit       EDQUOT   the quota of the uid
 *   ENOENT      no such pool, buffer or key
 *   EEXIST      the name is taken      EBUSY    something else holds pages
 *   ESTALE      the descriptor was revoked
 *   EMFILE      too many pools, buffers or keys (module parameters), or
 *   ENFILE      descriptors
 *   EHWPOISON   a page of the range has failed
 *
 * Memory is accounted in bytes of whole pages, from allocation until the last
 * reference to a page is gone: a page that was released while a device or a
 * pipe still held it stays charged to its owner ("draining").
 *
 * Signals. SIGBUS meets a touch of mapped memory that cannot be given: beyond
 * a limit or quota, sealed memory through a writable mapping, a hole in sealed
 * memory or through a read-only descriptor, volatile, purged or revoked memory,
 * a failed page. Who would rather have an error calls KVPOOL_BUF_COMMIT.
 */
#ifndef _UAPI_LINUX_KVPOOL_H
#define _UAPI_LINUX_KVPOOL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KVPOOL_DEVICE "/dev/kvpool"

/* Raised when a call changes its meaning; growth alone does not raise it. */
#define KVPOOL_ABI_VERSION 1

#define KVPOOL_KEY_SIZE 32
#define KVPOOL_NAME_SIZE 64 /* with the NUL */
#define KVPOOL_UNLIMITED (~0ULL)
/* Any uid, where one uid is asked for. */
#define KVPOOL_NO_UID (~0U)

#define KVPOOL_IOC_MAGIC 0xBC

/* ---- the device ---------------------------------------------------------- */

/* Bits of kvpool_info.out_features. */
#define KVPOOL_FEATURE_MEMCG \
	(1ULL << 0) /* pages are charged to a memory cgroup */
#define KVPOOL_FEATURE_HUGE \
	(1ULL << 1) /* folios of a PMD's size are mapped by a PMD */
#define KVPOOL_FEATURE_PURGE \
	(1ULL << 2) /* the system takes volatile memory by itself */

/*
 * The argument of every ioctl is the address of the struct that its name says.
 */

/**
 * struct kvpool_info - KVPOOL_INFO: what this kernel offers
 * @size: sizeof(struct kvpool_info)
 * @flags: must be 0
 * @out_abi_version: KVPOOL_ABI_VERSION of the module
 * @out_page_size: smallest unit of every range, bytes
 * @out_huge_size: bytes of a folio that a PMD maps; 0: none
 * @out_max_order: largest folio order a pool may ask for
 * @out_features: KVPOOL_FEATURE_*
 * @out_max_marks: pairs that one KVPOOL_BUF_PUBLISH takes
 * @__reserved: must be 0
 */
struct kvpool_info {
	__u32 size;
	__u32 flags;
	__u32 out_abi_version;
	__u32 out_page_size;
	__u32 out_huge_size;
	__u32 out_max_order;
	__aligned_u64 out_features;
	__u32 out_max_marks;
	__u32 __reserved;
};

#define KVPOOL_INFO _IO(KVPOOL_IOC_MAGIC, 0x00)

/* Flags of kvpool_pool_create. */
#define KVPOOL_POOL_SHARED (1U << 0) /* look-ups see the keys of every uid */
#define KVPOOL_POOL_NO_ORDER (1U << 1) /* max_order is not given: the largest */

/**
 * struct kvpool_pool_create - KVPOOL_POOL_CREATE: a new pool
 * @size: sizeof(struct kvpool_pool_create)
 * @flags: KVPOOL_POOL_*
 * @name: letters, digits, '.', '_', '-', the first no '.'; NUL-terminated and
 *	zero behind it. Empty: no name, the pool is reached by descriptors only
 * @limit: most bytes the pool ever holds, draining and reserve included; not
 *	0; KVPOOL_UNLIMITED
 * @quota: most private bytes of a uid that has no quota of its own
 * @shared_quota: most published bytes of such a uid; both may be 0
 * @reserve: bytes of zeroed huge folios that the pool keeps ready, within its
 *	limit; the module caps it
 * @node_mask: NUMA nodes to allocate from, bit n for node n; 0: all. It is cut
 *	to the caller's cpuset
 * @mode: permission bits, of 0666
 * @max_order: largest folio order; 0 with KVPOOL_POOL_NO_ORDER
 * @out_fd: the pool, opened for reading and writing
 * @__reserved: must be 0
 *
 * The pool's pages are charged to the memory cgroup that the caller is in now.
 * Errors: EEXIST; EINVAL (also: no node of the mask is left); EMFILE.
 */
struct kvpool_pool_create {
	__u32 size;
	__u32 flags;
	__u8 name[KVPOOL_NAME_SIZE];
	__aligned_u64 limit;
	__aligned_u64 quota;
	__aligned_u64 shared_quota;
	__aligned_u64 reserve;
	__aligned_u64 node_mask;
	__u32 mode;
	__u32 max_order;
	__s32 out_fd;
	__u32 __reserved;
};

#define KVPOOL_POOL_CREATE _IO(KVPOOL_IOC_MAGIC, 0x01)

/* Flags of kvpool_pool_open and kvpool_buf_open: at least one. */
#define KVPOOL_READ (1U << 0)
#define KVPOOL_WRITE (1U << 1) /* implies reading */

/**
 * struct kvpool_pool_open - KVPOOL_POOL_OPEN: a pool by name
 * @size: sizeof(struct kvpool_pool_open)
 * @flags: KVPOOL_READ, KVPOOL_WRITE
 * @name: as in kvpool_pool_create, not empty
 * @out_fd: the pool
 * @__reserved: must be 0
 *
 * Errors: ENOENT; EACCES (the mode does not allow it).
 */
struct kvpool_pool_open {
	__u32 size;
	__u32 flags;
	__u8 name[KVPOOL_NAME_SIZE];
	__s32 out_fd;
	__u32 __reserved;
};

#define KVPOOL_POOL_OPEN _IO(KVPOOL_IOC_MAGIC, 0x02)

/**
 * struct kvpool_pool_next - KVPOOL_POOL_NEXT: walk over the pools
 * @size: sizeof(struct kvpool_pool_next)
 * @flags: must be 0
 * @id: in: the last id seen, 0 to begin; out: the next pool's
 * @out_name: its name
 * @out_limit: its limit
 * @out_charged: what it holds
 * @out_uid: its owner
 * @out_mode: its mode
 *
 * Only pools are shown that the caller might open for reading.
 * Errors: ENOENT (no further pool).
 */
struct kvpool_pool_next {
	__u32 size;
	__u32 flags;
	__aligned_u64 id;
	__u8 out_name[KVPOOL_NAME_SIZE];
	__aligned_u64 out_limit;
	__aligned_u64 out_charged;
	__u32 out_uid;
	__u32 out_mode;
};

#define KVPOOL_POOL_NEXT _IO(KVPOOL_IOC_MAGIC, 0x03)

/* ---- a pool -------------------------------------------------------------- */

/**
 * struct kvpool_pool_stat - KVPOOL_POOL_STAT: one consistent reading
 * @size: sizeof(struct kvpool_pool_stat)
 * @flags: must be 0
 * @uid: KVPOOL_NO_UID: the whole pool; else the account of that uid, for
 *	out_charged, out_shared, out_draining, out_quota, out_shared_quota
 * @__reserved: must be 0
 * @out_id: the pool's id, never 0
 * @out_limit: limit of the pool
 * @out_quota: private quota of @uid, or of uids without one
 * @out_shared_quota: shared quota, likewise
 * @out_charged: every byte held: resident, draining, reserve, and folios that
 *	are being made or freed at this moment
 * @out_resident: bytes of pages that belong to buffers; shared by clones: once
 * @out_shared: part of resident that is published
 * @out_volatile: part of resident that may be taken
 * @out_draining: bytes released while somebody still held a reference
 * @out_reserve: zeroed bytes kept ready
 * @out_peak: the largest out_charged so far
 * @out_huge: bytes of resident in folios of a PMD's size
 * @out_poisoned: bytes withdrawn because a page failed; not in charged
 * @out_nr_bufs: buffers
 * @out_nr_keys: keys
 * @out_faults: pages or folios given by a page fault
 * @out_commits: calls that succeeded, and so on
 * @out_purges: buffers that lost their pages
 * @out_purged: bytes they lost
 * @out_limit_hits: allocations refused for limit or quota
 */
struct kvpool_pool_stat {
	__u32 size;
	__u32 flags;
	__u32 uid;
	__u32 __reserved;
	__aligned_u64 out_id;
	__aligned_u64 out_limit;
	__aligned_u64 out_quota;
	__aligned_u64 out_shared_quota;
	__aligned_u64 out_charged;
	__aligned_u64 out_resident;
	__aligned_u64 out_shared;
	__aligned_u64 out_volatile;
	__aligned_u64 out_draining;
	__aligned_u64 out_reserve;
	__aligned_u64 out_peak;
	__aligned_u64 out_huge;
	__aligned_u64 out_poisoned;
	__aligned_u64 out_nr_bufs;
	__aligned_u64 out_nr_keys;
	__aligned_u64 out_faults;
	__aligned_u64 out_commits;
	__aligned_u64 out_releases;
	__aligned_u64 out_seals;
	__aligned_u64 out_clones;
	__aligned_u64 out_publishes;
	__aligned_u64 out_lookups;
	__aligned_u64 out_hits;
	__aligned_u64 out_purges;
	__aligned_u64 out_purged;
	__aligned_u64 out_limit_hits;
};

#define KVPOOL_POOL_STAT _IO(KVPOOL_IOC_MAGIC, 0x10)

/**
 * struct kvpool_pool_set_limit - KVPOOL_POOL_SET_LIMIT: move the limit (writer)
 * @size: sizeof(struct kvpool_pool_set_limit)
 * @flags: must be 0
 * @limit: bytes, not 0
 *
 * The limit holds for what comes, at once. Reserve and volatile memory are
 * given back until it is met. Errors: EPERM (neither owner nor
 * CAP_SYS_RESOURCE); EBUSY (the limit stands, the pool still holds more).
 */
struct kvpool_pool_set_limit {
	__u32 size;
	__u32 flags;
	__aligned_u64 limit;
};

#define KVPOOL_POOL_SET_LIMIT _IO(KVPOOL_IOC_MAGIC, 0x11)

/**
 * struct kvpool_pool_set_quota - KVPOOL_POOL_SET_QUOTA: quotas of a uid (writer)
 * @size: sizeof(struct kvpool_pool_set_quota)
 * @flags: must be 0
 * @uid: whose
 * @__reserved: must be 0
 * @quota: most bytes of private memory, its draining pages included
 * @shared_quota: most bytes of published memory
 *
 * Errors: EPERM (neither owner nor CAP_SYS_RESOURCE); EINVAL (no such uid in
 * the caller's user namespace).
 */
struct kvpool_pool_set_quota {
	__u32 size;
	__u32 flags;
	__u32 uid;
	__u32 __reserved;
	__aligned_u64 quota;
	__aligned_u64 shared_quota;
};

#define KVPOOL_POOL_SET_QUOTA _IO(KVPOOL_IOC_MAGIC, 0x12)

/* Flags of kvpool_buf_create and kvpool_buf_clone. */
#define KVPOOL_BUF_SMALL (1U << 0) /* never a huge folio */

/**
 * struct kvpool_buf_create - KVPOOL_BUF_CREATE: a new buffer (writer)
 * @size: sizeof(struct kvpool_buf_create)
 * @flags: KVPOOL_BUF_SMALL
 * @bytes: virtual size, a multiple of the page size, not 0; costs no memory
 * @out_id: its id in the pool, never 0 and never used again
 * @out_fd: the buffer, opened for reading and writing, with a will-need vote
 * @__reserved: must be 0
 *
 * The buffer belongs to the caller's uid. Errors: EMFILE.
 */
struct kvpool_buf_create {
	__u32 size;
	__u32 flags;
	__aligned_u64 bytes;
	__aligned_u64 out_id;
	__s32 out_fd;
	__u32 __reserved;
};

#define KVPOOL_BUF_CREATE _IO(KVPOOL_IOC_MAGIC, 0x13)

/**
 * struct kvpool_buf_open - KVPOOL_BUF_OPEN: a buffer by id
 * @size: sizeof(struct kvpool_buf_open)
 * @flags: KVPOOL_READ, KVPOOL_WRITE
 * @id: the buffer
 * @out_fd: a new open description, with a vote of its own
 * @__reserved: must be 0
 *
 * Errors: ENOENT (no such buffer, or it was purged); EPERM (neither its owner
 * nor CAP_DAC_OVERRIDE); EACCES (KVPOOL_WRITE on a pool opened for reading).
 */
struct kvpool_buf_open {
	__u32 size;
	__u32 flags;
	__aligned_u64 id;
	__s32 out_fd;
	__u32 __reserved;
};

#define KVPOOL_BUF_OPEN _IO(KVPOOL_IOC_MAGIC, 0x14)

/**
 * struct kvpool_buf_lookup - KVPOOL_BUF_LOOKUP: a published buffer by key
 * @size: sizeof(struct kvpool_buf_lookup)
 * @flags: must be 0
 * @key: the key
 * @out_n: bytes that may be read, from 0; the page that holds the last of them
 *	is mapped whole, and what lies behind in it is seen too
 * @out_id: the buffer
 * @out_fd: read-only, with a vote that was taken before anybody could purge it
 * @out_uid: the publisher
 *
 * Sees the keys of the caller's uid, and those of every uid in a pool that was
 * created KVPOOL_POOL_SHARED (the caller's own come first).
 * Errors: ENOENT (never published, withdrawn or purged).
 */
struct kvpool_buf_lookup {
	__u32 size;
	__u32 flags;
	__u8 key[KVPOOL_KEY_SIZE];
	__aligned_u64 out_n;
	__aligned_u64 out_id;
	__s32 out_fd;
	__u32 out_uid;
};

#define KVPOOL_BUF_LOOKUP _IO(KVPOOL_IOC_MAGIC, 0x15)

/* State of a buffer: bits of kvpool_buf_stat.out_state. */
#define KVPOOL_BUF_VOLATILE (1U << 0) /* nobody needs it: it may be purged */
#define KVPOOL_BUF_PURGED \
	(1U << 1) /* it was, and no writer has said will-need since */
#define KVPOOL_BUF_PUBLISHED (1U << 2) /* keys lead to it */

/**
 * struct kvpool_buf_stat - KVPOOL_BUF_STAT of a buffer; KVPOOL_BUF_NEXT of a pool
 * @size: sizeof(struct kvpool_buf_stat)
 * @flags: must be 0
 * @id: KVPOOL_BUF_NEXT: in: the last id seen, 0 to begin; out: the buffer's id
 * @out_bytes: virtual size
 * @out_resident: bytes of its pages, those it shares with clones included
 * @out_private: part of resident that no other buffer shares
 * @out_shared: part of resident that other buffers share too
 * @out_charged: part of resident that its owner or publisher pays for
 * @out_sealed: bytes from 0 that are immutable
 * @out_huge: part of resident in huge folios
 * @out_uid: owner
 * @out_publisher: uid of the publisher; KVPOOL_NO_UID: not published
 * @out_state: KVPOOL_BUF_*
 * @out_nr_open: open descriptions, revoked ones not counted
 * @out_nr_votes: will-need votes
 * @out_nr_keys: keys that lead to it
 *
 * KVPOOL_BUF_NEXT shows a caller the buffers of his uid, and all of them to the
 * pool's owner and CAP_SYS_RESOURCE. Errors: ENOENT (no further buffer);
 * ESTALE (KVPOOL_BUF_STAT, revoked). KVPOOL_BUF_STAT on a look-up's descriptor
 * answers what that descriptor may see: out_bytes is its out_n rounded up to a
 * page, out_sealed no more than that.
 */
struct kvpool_buf_stat {
	__u32 size;
	__u32 flags;
	__aligned_u64 id;
	__aligned_u64 out_bytes;
	__aligned_u64 out_resident;
	__aligned_u64 out_private;
	__aligned_u64 out_shared;
	__aligned_u64 out_charged;
	__aligned_u64 out_sealed;
	__aligned_u64 out_huge;
	__u32 out_uid;
	__u32 out_publisher;
	__u32 out_state;
	__u32 out_nr_open;
	__u32 out_nr_votes;
	__u32 out_nr_keys;
};

#define KVPOOL_BUF_NEXT _IO(KVPOOL_IOC_MAGIC, 0x16)

/**
 * struct kvpool_pool_trim - KVPOOL_POOL_TRIM: give reserve and volatile memory back (writer)
 * @size: sizeof(struct kvpool_pool_trim)
 * @flags: must be 0
 * @bytes: at most so many, rounded up to whole folios and buffers
 * @out_bytes: what was given back
 *
 * Errors: EPERM (neither owner nor CAP_SYS_RESOURCE).
 */
struct kvpool_pool_trim {
	__u32 size;
	__u32 flags;
	__aligned_u64 bytes;
	__aligned_u64 out_bytes;
};

#define KVPOOL_POOL_TRIM _IO(KVPOOL_IOC_MAGIC, 0x17)

/**
 * struct kvpool_pool_secret - KVPOOL_POOL_SECRET: random bytes of the pool (writer)
 * @size: sizeof(struct kvpool_pool_secret)
 * @flags: must be 0
 * @out_secret: made with the pool, the same for its whole life
 *
 * For keys that nobody without the pool can compute.
 */
struct kvpool_pool_secret {
	__u32 size;
	__u32 flags;
	__u8 out_secret[KVPOOL_KEY_SIZE];
};

#define KVPOOL_POOL_SECRET _IO(KVPOOL_IOC_MAGIC, 0x18)

/*
 * Events of a pool descriptor: poll() says POLLIN while some wait, read() takes
 * whole records. Each open description has a queue of its own, bounded; what it
 * could not hold is counted in a record of type KVPOOL_EVENT_LOST. PRESSURE and
 * LIMIT are coalesced: one waits at most, with a count, id and bytes of the
 * last. PURGED and LIMIT are told to descriptors opened by the buffer's owner,
 * and to the pool's owner.
 * read() errors: EINVAL (room for less than one record), EAGAIN, ERESTARTSYS.
 */
enum kvpool_event_kind {
	KVPOOL_EVENT_PRESSURE =
		1, /* charged crossed 7/8 of the limit upwards */
	KVPOOL_EVENT_LIMIT =
		2, /* an allocation was refused for limit or quota */
	KVPOOL_EVENT_PURGED = 3, /* buffer id lost its pages */
	KVPOOL_EVENT_LOST = 4, /* count records were lost */
};

struct kvpool_event_record {
	__u32 kind; /* enum kvpool_event_kind */
	__u32 count; /* how many this record stands for */
	__aligned_u64 id; /* buffer; 0: none */
	__aligned_u64 bytes; /* purged or asked for; PRESSURE: charged */
};

/* ---- a buffer ------------------------------------------------------------ */

/*
 * mmap() of a buffer descriptor: MAP_SHARED only (EINVAL), within the buffer
 * and, for a look-up, within its out_n (EINVAL); PROT_WRITE only on a
 * descriptor opened for writing (EACCES) and where nothing is sealed (EACCES),
 * mprotect() likewise; a revoked descriptor: ESTALE. Aligned to 2 MiB by itself
 * where it is long enough. A mapping cannot grow by mremap(). mbind() has no
 * effect: the pool's node mask decides. Mappings are inherited by fork().
 */

#define KVPOOL_BUF_STAT _IO(KVPOOL_IOC_MAGIC, 0x20)

/* Flag of kvpool_buf_range for KVPOOL_BUF_COMMIT. */
#define KVPOOL_COMMIT_PARTIAL (1U << 0) /* keep what could be given */

/**
 * struct kvpool_buf_range - KVPOOL_BUF_COMMIT, KVPOOL_BUF_RELEASE (writer)
 * @size: sizeof(struct kvpool_buf_range)
 * @flags: COMMIT: KVPOOL_COMMIT_PARTIAL
 * @offset: page-aligned
 * @len: page-aligned, not 0
 * @out_done: COMMIT: bytes of the range, from its start, that have pages now;
 *	RELEASE: bytes given back or draining
 *
 * COMMIT backs the range with zeroed pages where it has none. A larger folio
 * may serve that reaches beyond the range, within the buffer, and is charged
 * whole; where it does not fit the limit, smaller ones serve. All or nothing;
 * with KVPOOL_COMMIT_PARTIAL what could be given stays, and the call succeeds
 * if that is anything. Errors: ENOSPC, EDQUOT, EPERM (sealed, volatile or
 * purged), ESTALE, EHWPOISON.
 *
 * RELEASE gives the pages of the range back; it reads as zero when it is
 * committed again. Pages of a larger folio that lies only partly in the range
 * are zeroed and stay, if somebody else holds the folio or there is no memory
 * to copy the rest. Errors: EPERM (sealed, volatile or purged), ESTALE.
 */
struct kvpool_buf_range {
	__u32 size;
	__u32 flags;
	__aligned_u64 offset;
	__aligned_u64 len;
	__aligned_u64 out_done;
};

#define KVPOOL_BUF_COMMIT _IO(KVPOOL_IOC_MAGIC, 0x21)
#define KVPOOL_BUF_RELEASE _IO(KVPOOL_IOC_MAGIC, 0x22)

/**
 * struct kvpool_buf_seal - KVPOOL_BUF_SEAL: bytes [0, n) become immutable (writer)
 * @size: sizeof(struct kvpool_buf_seal)
 * @flags: must be 0
 * @n: bytes; rounded up to a page, the rest of which is zeroed
 * @out_sealed: bytes that are sealed now
 *
 * For ever, for every process, whatever it has mapped: writable mappings of
 * the range get SIGBUS at the next touch (make them read-only first). Pages
 * that are not there stay holes. Errors: EBUSY (a page has a reference that is
 * neither the pool's nor a mapping's: a device, a pipe, a pin); EPERM (n lies
 * below an earlier seal, volatile or purged); ESTALE; EHWPOISON.
 */
struct kvpool_buf_seal {
	__u32 size;
	__u32 flags;
	__aligned_u64 n;
	__aligned_u64 out_sealed;
};

#define KVPOOL_BUF_SEAL _IO(KVPOOL_IOC_MAGIC, 0x23)

/**
 * struct kvpool_buf_clone - KVPOOL_BUF_CLONE: a new buffer with the same first bytes
 * @size: sizeof(struct kvpool_buf_clone)
 * @flags: KVPOOL_BUF_SMALL: for what is copied and comes later
 * @n: bytes taken over from the start, at most the size; a descriptor of a
 *	look-up: at most its out_n
 * @bytes: virtual size of the new buffer, page-aligned, at least @n
 * @pool_fd: a descriptor of the same pool, opened for writing
 * @out_fd: the clone, opened for reading and writing
 * @out_id: its id
 * @out_shared: bytes of whole sealed folios that both hold now, sealed in the
 *	clone too
 * @out_copied: bytes of pages that were copied and charged to the caller
 *
 * The clone belongs to the caller's uid. Holes stay holes. Bytes of the last
 * page behind @n read as zero. Errors: EINVAL (also: pool_fd is of another
 * pool); EBADF; EACCES (pool_fd is no writer); ENOSPC, EDQUOT, EMFILE, ESTALE;
 * EPERM (volatile or purged); EHWPOISON.
 */
struct kvpool_buf_clone {
	__u32 size;
	__u32 flags;
	__aligned_u64 n;
	__aligned_u64 bytes;
	__s32 pool_fd;
	__s32 out_fd;
	__aligned_u64 out_id;
	__aligned_u64 out_shared;
	__aligned_u64 out_copied;
};

#define KVPOOL_BUF_CLONE _IO(KVPOOL_IOC_MAGIC, 0x24)

/* A look-up of the key sees bytes [0, n). */
struct kvpool_mark {
	__u8 key[KVPOOL_KEY_SIZE];
	__aligned_u64 n;
};

/**
 * struct kvpool_buf_publish - KVPOOL_BUF_PUBLISH, KVPOOL_BUF_UNPUBLISH (writer)
 * @size: sizeof(struct kvpool_buf_publish)
 * @flags: must be 0
 * @marks: PUBLISH: address of @nr_marks struct kvpool_mark; UNPUBLISH: 0
 * @nr_marks: 1 to kvpool_info.out_max_marks; UNPUBLISH: 0
 * @__reserved: must be 0
 *
 * PUBLISH makes sealed bytes findable. The pool takes a reference: the buffer
 * outlives its descriptors, and is volatile once none holds a vote. Its charge
 * moves from the owner's private account to the publisher's shared one. The
 * keys belong to the caller's uid; one that he had published before leads to
 * this buffer from now on. All or nothing. Errors: EINVAL (n is 0);
 * EPERM (n lies beyond the seal, volatile or purged, or another uid publishes
 * this buffer); EDQUOT (shared quota); EMFILE (keys); ESTALE.
 *
 * UNPUBLISH withdraws every key of the buffer; who has it open keeps it. The
 * charge stays with the shared account until the pages go: moved back, it
 * might not fit the owner's quota. A buffer whose keys were all replaced by
 * newer ones is withdrawn by that. Errors: ENOENT (not published); EPERM
 * (neither publisher nor owner); ESTALE.
 */
struct kvpool_buf_publish {
	__u32 size;
	__u32 flags;
	__aligned_u64 marks;
	__u32 nr_marks;
	__u32 __reserved;
};

#define KVPOOL_BUF_PUBLISH _IO(KVPOOL_IOC_MAGIC, 0x25)
#define KVPOOL_BUF_UNPUBLISH _IO(KVPOOL_IOC_MAGIC, 0x26)

#define KVPOOL_ADVICE_WILLNEED 0U
#define KVPOOL_ADVICE_VOLATILE 1U

/**
 * struct kvpool_buf_advise - KVPOOL_BUF_ADVISE: whether the content is needed
 * @size: sizeof(struct kvpool_buf_advise)
 * @flags: must be 0
 * @advice: KVPOOL_ADVICE_*
 * @out_survived: WILLNEED: 1: the content is what it was when this descriptor
 *	last voted; 0: it was lost meanwhile
 *
 * Each open description holds one vote, from its start. Once nobody holds one
 * the buffer is volatile: a touch is SIGBUS and the system may take all of its
 * pages. WILLNEED takes the vote back. Where the content was lost, the buffer
 * stays unusable until a writer says WILLNEED: then it is empty, not sealed,
 * and may be filled again. Any descriptor may vote: it speaks for itself only.
 * For a look-up's descriptor what was lost stays so: it never sees what is
 * filled in later, and has no vote on it.
 * Errors: EINVAL (advice); ESTALE.
 */
struct kvpool_buf_advise {
	__u32 size;
	__u32 flags;
	__u32 advice;
	__u32 out_survived;
};

#define KVPOOL_BUF_ADVISE _IO(KVPOOL_IOC_MAGIC, 0x27)

/**
 * struct kvpool_buf_revoke - KVPOOL_BUF_REVOKE: cut off every other holder (writer)
 * @size: sizeof(struct kvpool_buf_revoke)
 * @flags: must be 0
 * @out_nr_revoked: open descriptions that were cut off
 * @__reserved: must be 0
 *
 * Every open description but the caller's loses its mappings and its votes for
 * ever: a touch is SIGBUS, a call ESTALE. Keys stay. Errors: EPERM (not the
 * buffer's owner, nor CAP_DAC_OVERRIDE); ESTALE.
 */
struct kvpool_buf_revoke {
	__u32 size;
	__u32 flags;
	__u32 out_nr_revoked;
	__u32 __reserved;
};

#define KVPOOL_BUF_REVOKE _IO(KVPOOL_IOC_MAGIC, 0x28)

#endif /* _UAPI_LINUX_KVPOOL_H */
