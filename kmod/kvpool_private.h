/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the module share: its objects, who protects which field,
 * and the order of locks. The ABI is uapi/kvpool.h.
 *
 * Objects and who holds them:
 *  - A pool lives while its kref is held: by its users as a whole (open pool
 *    and buffer files), by each buffer, by each draining folio, by each queued
 *    work. When the last user goes, the pool closes: name, keys, reserve.
 *  - A buffer lives while its refcount is held: by each handle (open
 *    description, which every mapping keeps open), by its publication, and for
 *    moments by whoever found it. Its memory goes with it.
 *  - A folio belongs to the buffers whose xarray holds its record; the record
 *    holds the one reference of the module. Whatever else refers to the folio is
 *    a mapping or somebody else ("pinned").
 *  - The module stays while a pool does (kvpool_pool_create()).
 *
 * Order of locks, outermost first:
 *	mmap_lock of a process
 *	  kvpool_pools_mutex
 *	    kvpool_buf.sem (of one buffer, and inside it of a clone nobody knows)
 *	      folio lock; the mapping's i_mmap_rwsem; page table locks
 *	      kvpool_pool.key_lock
 *	        kvpool_pool.lru_lock, drain_lock, event_lock
 *	          kvpool_pool.acct_lock
 * Reclaim comes in from any allocation: it only tries kvpool_buf.sem, and takes
 * the spin locks, under which nothing is allocated. User memory is never
 * touched under kvpool_buf.sem (a page fault takes it).
 *
 * A page fault against a change of state. .fault returns a locked folio, and
 * the page table is written under that lock. Whoever forbids what a fault may
 * have just allowed (seal, release, volatile, revoke) holds sem for writing,
 * raises kvpool_buf.gen, and then takes and leaves the lock of every folio
 * concerned before he unmaps (kvpool_buf_block()). A fault reads gen under sem
 * and again under the folio's lock: it sees the new state, or it is over
 * before the unmapping.
 */
#ifndef _KVPOOL_PRIVATE_H
#define _KVPOOL_PRIVATE_H

#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "uapi/kvpool.h"

enum {
	KVPOOL_HUGE_ORDER = PMD_SHIFT - PAGE_SHIFT,
	KVPOOL_BLOCK_ORDER = 4, /* 64 KiB: fewer allocations, mapped by pages */
	KVPOOL_MAX_MARKS = 4096,
	KVPOOL_KEY_BUCKETS = 4096,
	KVPOOL_ACCOUNT_BUCKETS = 64,
	KVPOOL_QUEUE_EVENTS = 64,
};

/*
 * For records: charged, and an error rather than the OOM killer where the
 * cgroup is full.
 */
#define KVPOOL_RECORD_GFP \
	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)

struct mem_cgroup;

/* What one uid holds in one pool. Made at first use, freed with the pool. */
struct kvpool_account {
	struct hlist_node node; /* in kvpool_pool.accounts; acct_lock */
	kuid_t uid;
	/* All below: acct_lock. Bytes. */
	u64 private; /* draining pages included */
	u64 shared; /* published; draining pages included */
	u64 draining;
	u64 quota, shared_quota; /* if has_quota, else the pool's */
	bool has_quota;
	unsigned int nr_bufs, nr_keys;
};

/* One folio, in the xarray of every buffer that shares it, at the same index. */
struct kvpool_folio {
	struct folio *folio;
	struct kvpool_account *owner; /* pays until it is published */
	struct kvpool_account *publisher; /* pays from then on; acct_lock */
	pgoff_t index; /* of its first page in the buffer */
	unsigned int order;
	unsigned int nr_bufs; /* acct_lock */
	/* Of nr_bufs, those that became volatile while it was shared; acct_lock. */
	unsigned int nr_volatile;
	bool is_draining; /* acct_lock */
	struct list_head list; /* being made, or kvpool_pool.drain; drain_lock */
};

static inline u64 kvpool_folio_bytes(const struct kvpool_folio *f)
{
	return (u64)PAGE_SIZE << f->order;
}

static inline pgoff_t kvpool_folio_end(const struct kvpool_folio *f)
{
	return f->index + (1UL << f->order);
}

/* The pool's part of one node. */
struct kvpool_node {
	struct list_head reserve; /* zeroed huge folios, by lru; acct_lock */
	unsigned long nr_reserve; /* acct_lock */
	unsigned long nr_volatile; /* pages of one buffer each; lru_lock */
	/* Pages of several buffers, all of them volatile; acct_lock. */
	unsigned long nr_shared_volatile;
	/* Makes reclaim of the pool's memory cgroup ask us about this node. */
	struct kvpool_token *token;
};

struct kvpool_pool {
	struct kref kref;
	refcount_t nr_users; /* open files */
	struct rcu_head rcu;
	u32 id;
	char name[KVPOOL_NAME_SIZE];
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
	unsigned int flags; /* KVPOOL_POOL_* */
	unsigned int max_order;
	nodemask_t nodes;
	struct mem_cgroup *memcg; /* pays for the pages; NULL: none */
	u8 secret[KVPOOL_KEY_SIZE];

	spinlock_t acct_lock; /* who pays, and the figures */
	struct hlist_head accounts[KVPOOL_ACCOUNT_BUCKETS]; /* acct_lock */
	/* Bytes and counts: acct_lock. */
	u64 limit, quota, shared_quota;
	u64 charged, resident, shared, draining, reserve, huge, poisoned, peak;
	u64 reserve_target;
	u64 nr_bufs, nr_keys;
	u64 faults, commits, releases, seals, clones, publishes, lookups, hits;
	u64 purges, purged, limit_hits;
	u64 shared_volatile; /* the sum of node[].nr_shared_volatile */
	bool is_pressed; /* above 7/8 of the limit; acct_lock */
	bool is_closed; /* no user is left: nothing is kept ready; acct_lock */

	struct xarray bufs; /* by id; bufs.xa_lock */
	u32 last_buf_id; /* bufs.xa_lock */

	spinlock_t key_lock; /* which buffer a key leads to */
	struct hlist_head *keys; /* KVPOOL_KEY_BUCKETS; key_lock */
	u32 key_seed;

	spinlock_t lru_lock; /* what may be purged */
	struct list_head lru; /* volatile buffers, oldest first; lru_lock */
	u64 volatile_bytes; /* lru_lock */

	spinlock_t drain_lock; /* what is still held elsewhere */
	struct list_head drain; /* drain_lock */
	struct delayed_work drain_work;
	struct delayed_work refill_work;

	spinlock_t event_lock; /* who is told what */
	struct list_head subscribers; /* event_lock */

	struct kvpool_node *node; /* [nr_node_ids] */
};

struct kvpool_buf {
	refcount_t nr_refs;
	struct rcu_head rcu;
	struct work_struct put_work; /* for a last reference dropped in reclaim */
	struct kvpool_pool *pool; /* a reference */
	struct kvpool_account *owner;
	u32 id;
	u64 bytes; /* virtual */
	unsigned int max_order;
	struct inode *inode; /* its mapping finds the VMAs */

	struct rw_semaphore sem;
	struct xarray
		folios; /* kvpool_folio by page; changed with sem for writing */
	unsigned long gen; /* written with sem for writing; see the top */
	pgoff_t nr_sealed; /* pages; sem */
	struct list_head handles; /* sem */
	unsigned int nr_open, nr_votes; /* sem */
	unsigned int nr_purges; /* sem; raised after the keys are gone */
	bool is_volatile, is_purged; /* sem */

	struct kvpool_account *publisher; /* NULL: not published; sem */
	struct hlist_head keys; /* of this buffer; pool->key_lock */
	unsigned int nr_keys; /* pool->key_lock */
	struct list_head orphan; /* its last key was replaced; pool->key_lock */

	struct list_head lru; /* pool->lru_lock */
	bool has_shared; /* pages of clones as well; stays while it is in lru */
	unsigned long nr_volatile[]; /* [nr_node_ids] pages; pool->lru_lock */
};

/* An open description of a buffer. */
struct kvpool_handle {
	struct kvpool_buf *buf; /* a reference */
	struct list_head list; /* buf->sem */
	u64 limit; /* bytes it may see */
	bool can_write, is_lookup;
	bool has_vote, is_revoked; /* buf->sem */
	unsigned int seen_purges; /* buf->sem */
};

/* An open description of a pool, with its events. */
struct kvpool_pool_file {
	struct kvpool_pool *pool; /* a reference, and a user */
	struct list_head list; /* pool->event_lock */
	wait_queue_head_t wait;
	kuid_t uid;
	bool can_write;
	unsigned int first, nr; /* pool->event_lock */
	u32 nr_lost; /* pool->event_lock */
	struct kvpool_event_record events[KVPOOL_QUEUE_EVENTS];
};

/* ---- kvpool_main.c ------------------------------------------------------- */

union kvpool_argument {
	struct kvpool_info info;
	struct kvpool_pool_create pool_create;
	struct kvpool_pool_open pool_open;
	struct kvpool_pool_next pool_next;
	struct kvpool_pool_stat pool_stat;
	struct kvpool_pool_set_limit pool_set_limit;
	struct kvpool_pool_set_quota pool_set_quota;
	struct kvpool_pool_trim pool_trim;
	struct kvpool_pool_secret pool_secret;
	struct kvpool_buf_create buf_create;
	struct kvpool_buf_open buf_open;
	struct kvpool_buf_lookup buf_lookup;
	struct kvpool_buf_stat buf_stat;
	struct kvpool_buf_range buf_range;
	struct kvpool_buf_seal buf_seal;
	struct kvpool_buf_clone buf_clone;
	struct kvpool_buf_publish buf_publish;
	struct kvpool_buf_advise buf_advise;
	struct kvpool_buf_revoke buf_revoke;
};

/*
 * One ioctl. The argument is a kernel copy of the caller's struct, which goes
 * back when call() returns 0. A descriptor among the results is not installed
 * by call(): it returns it with its file in *out_fd, so that a caller whose
 * memory cannot be written gets none.
 */
struct kvpool_new_fd {
	int fd; /* -1: none */
	struct file *file;
};

struct kvpool_ioctl {
	unsigned int cmd;
	u32 min_size; /* of the first version */
	u32 size; /* sizeof the struct */
	bool is_writer; /* the descriptor must have been opened for writing */
	int (*call)(struct file *file, union kvpool_argument *arg,
		    struct kvpool_new_fd *out_fd);
};

long kvpool_ioctl_dispatch(const struct kvpool_ioctl *table, size_t nr,
			   struct file *file, unsigned int cmd,
			   unsigned long arg);

extern struct workqueue_struct *kvpool_wq;
extern unsigned int kvpool_max_pools, kvpool_max_bufs, kvpool_max_keys;
extern unsigned long kvpool_max_reserve;

/* ---- kvpool_account.c ---------------------------------------------------- */

struct kvpool_account *kvpool_account_find(struct kvpool_pool *pool,
					   kuid_t uid);
struct kvpool_account *kvpool_account_get(struct kvpool_pool *pool, kuid_t uid);
void kvpool_accounts_free(struct kvpool_pool *pool);
void kvpool_count(struct kvpool_pool *pool, u64 *counter);
bool kvpool_account_fits(const struct kvpool_pool *pool,
			 const struct kvpool_account *account, u64 bytes);
bool kvpool_note_pressure(struct kvpool_pool *pool);
int kvpool_charge(struct kvpool_pool *pool, struct kvpool_account *account,
		  u64 bytes);
void kvpool_uncharge(struct kvpool_pool *pool, struct kvpool_account *account,
		     u64 bytes);
int kvpool_charge_shared(struct kvpool_pool *pool,
			 struct kvpool_account *publisher, u64 bytes);
void kvpool_uncharge_shared(struct kvpool_pool *pool,
			    struct kvpool_account *publisher, u64 bytes);
bool kvpool_may_manage(const struct kvpool_pool *pool);

/* ---- kvpool_folio.c ------------------------------------------------------ */

bool kvpool_has_headroom(struct kvpool_pool *pool);
int kvpool_folio_create(struct kvpool_pool *pool,
			struct kvpool_account *account, pgoff_t index,
			unsigned int order, struct kvpool_folio **out_f);
void kvpool_folio_destroy(struct kvpool_pool *pool, struct kvpool_folio *f);
void kvpool_folio_share(struct kvpool_pool *pool, struct kvpool_folio *f);
bool kvpool_folio_unshare(struct kvpool_pool *pool, struct kvpool_folio *f);
unsigned int kvpool_folio_nr_bufs(struct kvpool_pool *pool,
				  struct kvpool_folio *f);
void kvpool_folio_free_frozen(struct kvpool_pool *pool, struct kvpool_folio *f);
bool kvpool_folio_is_poisoned(const struct kvpool_folio *f);
unsigned long kvpool_reserve_shrink(struct kvpool_pool *pool, int nid,
				    unsigned long nr_pages);
void kvpool_reserve_refill(struct kvpool_pool *pool, unsigned long delay);
void kvpool_refill_work(struct work_struct *work);
void kvpool_drain_work(struct work_struct *work);
long kvpool_folios_left(void);
int __init kvpool_folio_init(void);
void kvpool_folio_exit(void);

/* ---- kvpool_pool.c ------------------------------------------------------- */

int kvpool_pool_create(union kvpool_argument *arg,
		       struct kvpool_new_fd *out_fd);
int kvpool_pool_open(union kvpool_argument *arg, struct kvpool_new_fd *out_fd);
int kvpool_pool_next(union kvpool_argument *arg);
struct kvpool_pool *kvpool_pool_find_next(unsigned long id);
void kvpool_pool_get(struct kvpool_pool *pool);
void kvpool_pool_put(struct kvpool_pool *pool);
void kvpool_pool_use(struct kvpool_pool *pool);
void kvpool_pool_unuse(struct kvpool_pool *pool);

/* ---- kvpool_pool_file.c -------------------------------------------------- */

int kvpool_pool_file_create(struct kvpool_pool *pool, bool can_write,
			    struct kvpool_new_fd *out_fd);
struct kvpool_pool_file *kvpool_pool_file_of(struct file *file);
void kvpool_event_send(struct kvpool_pool *pool, u32 kind, u64 id, u64 bytes,
		       kuid_t uid);

/* ---- kvpool_buf.c -------------------------------------------------------- */

int kvpool_buf_create(struct kvpool_pool *pool, u64 bytes, unsigned int flags,
		      struct kvpool_buf **out_buf);
struct vfsmount *kvpool_buf_mount(void);
void kvpool_buf_enter(struct kvpool_buf *buf);
void kvpool_buf_put(struct kvpool_buf *buf);
void kvpool_buf_put_async(struct kvpool_buf *buf);
int kvpool_buf_find(struct kvpool_pool *pool, u64 id,
		    struct kvpool_buf **out_buf);
struct kvpool_buf *kvpool_buf_find_next(struct kvpool_pool *pool, u64 id);
void kvpool_buf_block(struct kvpool_buf *buf, pgoff_t first, pgoff_t end);
int kvpool_buf_store(struct kvpool_buf *buf, struct kvpool_folio *f);
void kvpool_buf_widen(struct kvpool_buf *buf, pgoff_t *first, pgoff_t *end);
bool kvpool_buf_is_poisoned(struct kvpool_buf *buf, pgoff_t first, pgoff_t end);
void kvpool_buf_update_votes(struct kvpool_buf *buf);
void kvpool_buf_read_stat(struct kvpool_buf *buf, struct kvpool_buf_stat *out);
int __init kvpool_buf_init(void);
void kvpool_buf_exit(void);

/* ---- kvpool_buf_file.c --------------------------------------------------- */

int kvpool_handle_create(struct kvpool_buf *buf, bool can_write, u64 limit,
			 const unsigned int *purges,
			 struct kvpool_new_fd *out_fd);

/* ---- kvpool_map.c -------------------------------------------------------- */

int kvpool_mmap(struct file *file, struct vm_area_struct *vma);

/* ---- kvpool_range.c ------------------------------------------------------ */

int kvpool_buf_make_folio(struct kvpool_buf *buf, pgoff_t index, pgoff_t from,
			  pgoff_t end, struct kvpool_folio **out_f);
int kvpool_buf_populate(struct kvpool_handle *handle, pgoff_t first,
			pgoff_t end, bool is_partial, pgoff_t *out_end);
int kvpool_ioctl_commit(struct file *file, union kvpool_argument *arg,
			struct kvpool_new_fd *out_fd);
int kvpool_ioctl_release(struct file *file, union kvpool_argument *arg,
			 struct kvpool_new_fd *out_fd);

/* ---- kvpool_seal.c ------------------------------------------------------- */

int kvpool_ioctl_seal(struct file *file, union kvpool_argument *arg,
		      struct kvpool_new_fd *out_fd);
int kvpool_ioctl_clone(struct file *file, union kvpool_argument *arg,
		       struct kvpool_new_fd *out_fd);

/* ---- kvpool_publish.c ---------------------------------------------------- */

int kvpool_ioctl_publish(struct file *file, union kvpool_argument *arg,
			 struct kvpool_new_fd *out_fd);
int kvpool_ioctl_unpublish(struct file *file, union kvpool_argument *arg,
			   struct kvpool_new_fd *out_fd);
int kvpool_lookup(struct kvpool_pool *pool, union kvpool_argument *arg,
		  struct kvpool_new_fd *out_fd);
bool kvpool_keys_drop(struct kvpool_buf *buf);

/* ---- kvpool_reclaim.c ---------------------------------------------------- */

bool kvpool_folio_is_volatile(const struct kvpool_folio *f);
void kvpool_folio_recount(struct kvpool_pool *pool, struct kvpool_folio *f,
			  bool was_volatile);
void kvpool_lru_add(struct kvpool_buf *buf);
void kvpool_lru_del(struct kvpool_buf *buf);
u64 kvpool_reclaim(struct kvpool_pool *pool, struct kvpool_account *only,
		   u64 bytes);
int kvpool_tokens_create(struct kvpool_pool *pool);
void kvpool_tokens_destroy(struct kvpool_pool *pool);
int __init kvpool_reclaim_init(void);
void kvpool_reclaim_exit(void);

/* ---- kvpool_debugfs.c ---------------------------------------------------- */

void kvpool_debugfs_init(void);
void kvpool_debugfs_exit(void);

#endif /* _KVPOOL_PRIVATE_H */
