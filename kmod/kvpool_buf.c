// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers: their life, their votes, and the one way to forbid what is mapped.
 * Each has an inode of its own, because unmapping goes by address space; the
 * inode's file system is pinned only while a buffer exists, because a mount
 * that stays would keep the module from being removed.
 */
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

static const unsigned long kvpool_fs_magic = 0x6b76706f; /* "kvpo" */

static struct vfsmount *kvpool_mount;
static int kvpool_mount_count;

static int kvpool_fs_init(struct fs_context *fc)
{
	return init_pseudo(fc, kvpool_fs_magic) ? 0 : -ENOMEM;
}

static struct file_system_type kvpool_fs_type = {
	.name = "kvpool",
	.owner = THIS_MODULE,
	.init_fs_context = kvpool_fs_init,
	.kill_sb = kill_anon_super,
};

struct vfsmount *kvpool_buf_mount(void)
{
	return kvpool_mount;
}

static struct inode *inode_create(void)
{
	struct inode *inode;
	int rc;

	rc = simple_pin_fs(&kvpool_fs_type, &kvpool_mount, &kvpool_mount_count);
	if (rc)
		return ERR_PTR(rc);
	inode = alloc_anon_inode(kvpool_mount->mnt_sb);
	if (IS_ERR(inode)) {
		simple_release_fs(&kvpool_mount, &kvpool_mount_count);
		return inode;
	}
	inode->i_flags |= S_NOCMTIME; /* a fault need not stamp it */
	/*
	 * alloc_anon_inode() leaves it off the list. Whoever unmounts with the
	 * last buffer finds watches (inotify) by that list, and waits for ever
	 * for those that he did not find.
	 */
	inode_sb_list_add(inode);
	return inode;
}

static void inode_destroy(struct inode *inode)
{
	iput(inode);
	simple_release_fs(&kvpool_mount, &kvpool_mount_count);
}

/* ---- life ------------------------------------------------------------------ */

static void buf_destroy(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_folio *f;
	unsigned long index;

	trace_kvpool_buf_free(buf);
	xa_erase(&pool->bufs, buf->id);
	kvpool_lru_del(buf);
	xa_for_each(&buf->folios, index, f) {
		kvpool_folio_destroy(pool, f);
		cond_resched();
	}
	xa_destroy(&buf->folios);
	inode_destroy(buf->inode);
	spin_lock(&pool->acct_lock);
	pool->nr_bufs--;
	buf->owner->nr_bufs--;
	spin_unlock(&pool->acct_lock);
	kfree_rcu(buf, rcu);
	kvpool_pool_put(pool);
}

/* Context: may sleep, no lock of the module is held. */
void kvpool_buf_put(struct kvpool_buf *buf)
{
	if (refcount_dec_and_test(&buf->nr_refs))
		buf_destroy(buf);
}

static void put_work(struct work_struct *work)
{
	buf_destroy(container_of(work, struct kvpool_buf, put_work));
}

/* For reclaim, which must not end an inode. */
void kvpool_buf_put_async(struct kvpool_buf *buf)
{
	if (refcount_dec_and_test(&buf->nr_refs))
		queue_work(kvpool_wq, &buf->put_work);
}

static int count_in(struct kvpool_pool *pool, struct kvpool_account *owner)
{
	int rc = 0;

	spin_lock(&pool->acct_lock);
	if (owner->nr_bufs >= kvpool_max_bufs) {
		rc = -EMFILE;
	} else {
		owner->nr_bufs++;
		pool->nr_bufs++;
	}
	spin_unlock(&pool->acct_lock);
	return rc;
}

static int id_alloc(struct kvpool_pool *pool, struct kvpool_buf *buf)
{
	/* None is used twice: a pool that has made 4 billion makes no more. */
	xa_lock(&pool->bufs);
	buf->id = pool->last_buf_id + 1;
	if (buf->id)
		pool->last_buf_id = buf->id;
	xa_unlock(&pool->bufs);
	if (!buf->id)
		return -EMFILE;
	return xa_reserve(&pool->bufs, buf->id, KVPOOL_RECORD_GFP);
}

/* Lets others find a buffer that is ready. */
void kvpool_buf_enter(struct kvpool_buf *buf)
{
	/* id_alloc() has reserved the place: nothing is allocated. */
	xa_store(&buf->pool->bufs, buf->id, buf, GFP_NOWAIT);
}

/**
 * kvpool_buf_create() - an empty buffer of the caller's uid
 * @pool: its pool
 * @bytes: virtual size
 * @flags: KVPOOL_BUF_SMALL
 * @out_buf: with one reference; unknown to others until kvpool_buf_enter()
 *
 * Return: 0, -EINVAL, -EOPNOTSUPP, -EMFILE, -ENOMEM.
 */
int kvpool_buf_create(struct kvpool_pool *pool, u64 bytes, unsigned int flags,
		      struct kvpool_buf **out_buf)
{
	struct kvpool_account *owner;
	struct kvpool_buf *buf;
	int rc;

	if (flags & ~KVPOOL_BUF_SMALL)
		return -EOPNOTSUPP;
	if (!bytes || bytes % PAGE_SIZE || bytes > TASK_SIZE_MAX)
		return -EINVAL;
	owner = kvpool_account_get(pool, current_euid());
	if (!owner)
		return -ENOMEM;
	rc = count_in(pool, owner);
	if (rc)
		return rc;
	buf = kzalloc(struct_size(buf, nr_volatile, nr_node_ids),
		      KVPOOL_RECORD_GFP);
	if (!buf) {
		rc = -ENOMEM;
		goto err_count;
	}
	buf->inode = inode_create();
	if (IS_ERR(buf->inode)) {
		rc = PTR_ERR(buf->inode);
		goto err_free;
	}
	refcount_set(&buf->nr_refs, 1);
	INIT_WORK(&buf->put_work, put_work);
	buf->pool = pool;
	buf->owner = owner;
	buf->bytes = bytes;
	buf->max_order = pool->max_order;
	if (flags & KVPOOL_BUF_SMALL)
		buf->max_order =
			min_t(unsigned int, buf->max_order, KVPOOL_BLOCK_ORDER);
	init_rwsem(&buf->sem);
	xa_init_flags(&buf->folios, XA_FLAGS_ACCOUNT);
	INIT_LIST_HEAD(&buf->handles);
	INIT_LIST_HEAD(&buf->lru);
	INIT_LIST_HEAD(&buf->orphan);
	INIT_HLIST_HEAD(&buf->keys);
	rc = id_alloc(pool, buf);
	if (rc)
		goto err_inode;
	kvpool_pool_get(pool);
	trace_kvpool_buf_create(buf);
	*out_buf = buf;
	return 0;

err_inode:
	inode_destroy(buf->inode);
err_free:
	kfree(buf);
err_count:
	spin_lock(&pool->acct_lock);
	pool->nr_bufs--;
	owner->nr_bufs--;
	spin_unlock(&pool->acct_lock);
	return rc;
}

/* A buffer by id, with a reference. Return: 0, -ENOENT. */
int kvpool_buf_find(struct kvpool_pool *pool, u64 id,
		    struct kvpool_buf **out_buf)
{
	struct kvpool_buf *buf;

	if (id == 0 || id > U32_MAX)
		return -ENOENT;
	rcu_read_lock();
	buf = xa_load(&pool->bufs, id);
	if (buf && !refcount_inc_not_zero(&buf->nr_refs))
		buf = NULL;
	rcu_read_unlock();
	*out_buf = buf;
	return buf ? 0 : -ENOENT;
}

/* The next buffer behind @id, with a reference; NULL: none. */
struct kvpool_buf *kvpool_buf_find_next(struct kvpool_pool *pool, u64 id)
{
	unsigned long index = id + 1;
	struct kvpool_buf *buf;

	if (id >= U32_MAX)
		return NULL;
	rcu_read_lock();
	for (;; index++) {
		buf = xa_find(&pool->bufs, &index, U32_MAX, XA_PRESENT);
		if (!buf || refcount_inc_not_zero(&buf->nr_refs))
			break;
	}
	rcu_read_unlock();
	return buf;
}

/* ---- what is mapped --------------------------------------------------------- */

static void unmap(struct kvpool_buf *buf, pgoff_t first, pgoff_t end)
{
	unmap_mapping_range(buf->inode->i_mapping, (loff_t)first << PAGE_SHIFT,
			    (loff_t)(end - first) << PAGE_SHIFT, 1);
}

/*
 * Pages [first, end) of every mapping are gone when this returns, and no fault
 * that began under the old state can bring them back: see the top of
 * kvpool_private.h. The folios are still in the buffer, the new state is set.
 * Context: sem, written, until the caller has done what it forbids faults for.
 */
void kvpool_buf_block(struct kvpool_buf *buf, pgoff_t first, pgoff_t end)
{
	struct kvpool_folio *f;
	unsigned long index;

	lockdep_assert_held_write(&buf->sem);
	WRITE_ONCE(buf->gen, buf->gen + 1);
	if (first >= end)
		return;
	unmap(buf, first, end);
	xa_for_each_range(&buf->folios, index, f, first, end - 1) {
		/* Pairs with kvpool_fault(), which reads gen under this lock. */
		folio_lock(f->folio);
		folio_unlock(f->folio);
	}
	unmap(buf, first, end);
}

/* Put a folio in, at its index. Context: sem, written, or nobody knows the buffer. */
int kvpool_buf_store(struct kvpool_buf *buf, struct kvpool_folio *f)
{
	return xa_err(xa_store_range(&buf->folios, f->index,
				     kvpool_folio_end(f) - 1, f,
				     KVPOOL_RECORD_GFP));
}

/* Moves both ends outwards to those of the folios that lie across. Context: sem. */
void kvpool_buf_widen(struct kvpool_buf *buf, pgoff_t *first, pgoff_t *end)
{
	struct kvpool_folio *f;

	f = xa_load(&buf->folios, *first);
	if (f)
		*first = min(*first, f->index);
	f = xa_load(&buf->folios, *end - 1);
	if (f)
		*end = max(*end, kvpool_folio_end(f));
}

/* Whether a folio in [first, end) has failed. Context: sem. */
bool kvpool_buf_is_poisoned(struct kvpool_buf *buf, pgoff_t first, pgoff_t end)
{
	struct kvpool_folio *f;
	unsigned long index;

	xa_for_each_range(&buf->folios, index, f, first, end - 1)
		if (kvpool_folio_is_poisoned(f))
			return true;
	return false;
}

/* After nr_votes has changed. Context: sem, written. */
void kvpool_buf_update_votes(struct kvpool_buf *buf)
{
	const bool is_volatile = !buf->nr_votes;

	if (is_volatile == buf->is_volatile)
		return;
	buf->is_volatile = is_volatile;
	if (is_volatile) {
		kvpool_buf_block(buf, 0, buf->bytes >> PAGE_SHIFT);
		if (!buf->is_purged)
			kvpool_lru_add(buf);
	} else {
		kvpool_lru_del(buf);
	}
}

/* ---- figures ---------------------------------------------------------------- */

void kvpool_buf_read_stat(struct kvpool_buf *buf, struct kvpool_buf_stat *out)
{
	struct user_namespace *ns = current_user_ns();
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_folio *f;
	unsigned long index;

	*out = (struct kvpool_buf_stat){ .size = out->size };
	down_read(&buf->sem);
	out->id = buf->id;
	out->out_bytes = buf->bytes;
	xa_for_each(&buf->folios, index, f) {
		const u64 bytes = kvpool_folio_bytes(f);

		out->out_resident += bytes;
		if (f->order == KVPOOL_HUGE_ORDER)
			out->out_huge += bytes;
		if (kvpool_folio_nr_bufs(pool, f) > 1)
			out->out_shared += bytes;
		else
			out->out_private += bytes;
		if (f->owner == buf->owner ||
		    (f->publisher && f->publisher == buf->publisher))
			out->out_charged += bytes;
	}
	out->out_sealed = (u64)buf->nr_sealed << PAGE_SHIFT;
	out->out_uid = from_kuid_munged(ns, buf->owner->uid);
	out->out_publisher = buf->publisher ?
				     from_kuid_munged(ns, buf->publisher->uid) :
				     KVPOOL_NO_UID;
	if (buf->is_volatile)
		out->out_state |= KVPOOL_BUF_VOLATILE;
	if (buf->is_purged)
		out->out_state |= KVPOOL_BUF_PURGED;
	if (buf->publisher)
		out->out_state |= KVPOOL_BUF_PUBLISHED;
	out->out_nr_open = buf->nr_open;
	out->out_nr_votes = buf->nr_votes;
	up_read(&buf->sem);
	spin_lock(&pool->key_lock);
	out->out_nr_keys = buf->nr_keys;
	spin_unlock(&pool->key_lock);
}

int __init kvpool_buf_init(void)
{
	return register_filesystem(&kvpool_fs_type);
}

void kvpool_buf_exit(void)
{
	unregister_filesystem(&kvpool_fs_type);
}
