// SPDX-License-Identifier: GPL-2.0
/*
 * Keys: publishing sealed bytes, finding them again, withdrawing them. A key
 * belongs to its publisher's uid, so that nobody can put bytes in another's
 * way or learn from a look-up what another has asked.
 */
#include <linux/jhash.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

struct kvpool_key {
	struct hlist_node node; /* pool->keys; pool->key_lock */
	struct hlist_node of_buf; /* buf->keys; pool->key_lock */
	struct kvpool_buf *buf;
	struct kvpool_account *publisher;
	u64 n;
	u8 key[KVPOOL_KEY_SIZE];
};

static struct hlist_head *bucket_of(struct kvpool_pool *pool, const u8 *key)
{
	return &pool->keys[jhash(key, KVPOOL_KEY_SIZE, pool->key_seed) %
			   KVPOOL_KEY_BUCKETS];
}

static struct kvpool_key *find_key(struct kvpool_pool *pool, const u8 *bytes,
				   kuid_t uid, bool is_any)
{
	struct kvpool_key *key, *found = NULL;

	lockdep_assert_held(&pool->key_lock);
	hlist_for_each_entry(key, bucket_of(pool, bytes), node) {
		if (memcmp(key->key, bytes, KVPOOL_KEY_SIZE))
			continue;
		if (uid_eq(key->publisher->uid, uid))
			return key;
		if (is_any && !found)
			found = key;
	}
	return found;
}

/* Context: pool->key_lock. */
static void key_free(struct kvpool_pool *pool, struct kvpool_key *key)
{
	lockdep_assert_held(&pool->key_lock);
	hlist_del(&key->node);
	hlist_del(&key->of_buf);
	key->buf->nr_keys--;
	spin_lock(&pool->acct_lock);
	key->publisher->nr_keys--;
	pool->nr_keys--;
	spin_unlock(&pool->acct_lock);
	kfree(key);
}

/**
 * kvpool_keys_drop() - withdraw every key of a buffer
 * @buf: with sem, written
 *
 * Its charge stays with the shared account until the pages go. Reclaim calls.
 * Return: whether it was published; then the caller drops the reference that
 * the publication held, when he has left sem.
 */
bool kvpool_keys_drop(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	const bool was_published = buf->publisher;
	struct kvpool_key *key;
	struct hlist_node *next;

	lockdep_assert_held_write(&buf->sem);
	spin_lock(&pool->key_lock);
	hlist_for_each_entry_safe(key, next, &buf->keys, of_buf)
		key_free(pool, key);
	spin_unlock(&pool->key_lock);
	buf->publisher = NULL;
	return was_published;
}

/* ---- publish ----------------------------------------------------------------------- */

static void keys_discard(struct hlist_head *keys)
{
	struct kvpool_key *key;
	struct hlist_node *next;

	hlist_for_each_entry_safe(key, next, keys, of_buf)
		kfree(key);
}

/* Keys outlive the caller: as for pages, the pool's cgroup pays. */
static struct kvpool_key *make_key(struct kvpool_pool *pool)
{
	struct mem_cgroup *old = set_active_memcg(pool->memcg);
	struct kvpool_key *key = kmalloc(sizeof(*key), KVPOOL_RECORD_GFP);

	set_active_memcg(old);
	return key;
}

/* Copies the marks into keys that nobody can find yet. */
static int read_marks(struct kvpool_pool *pool,
		      const struct kvpool_buf_publish *args,
		      struct hlist_head *out_keys)
{
	const struct kvpool_mark __user *marks = u64_to_user_ptr(args->marks);
	struct kvpool_mark mark;
	struct kvpool_key *key;
	u32 i;

	if (!kvpool_has_headroom(pool))
		return -ENOMEM;
	/* Backwards, because each goes to the front: the last of equals counts. */
	for (i = args->nr_marks; i-- > 0;) {
		if (copy_from_user(&mark, &marks[i], sizeof(mark)))
			return -EFAULT;
		if (!mark.n)
			return -EINVAL;
		key = make_key(pool);
		if (!key)
			return -ENOMEM;
		memcpy(key->key, mark.key, sizeof(key->key));
		key->n = mark.n;
		hlist_add_head(&key->of_buf, out_keys);
	}
	return 0;
}

/* Context: sem. */
static int check_publish(struct kvpool_handle *handle,
			 struct kvpool_account *publisher,
			 struct hlist_head *keys)
{
	struct kvpool_buf *buf = handle->buf;
	struct kvpool_key *key;

	if (handle->is_revoked)
		return -ESTALE;
	if (buf->is_volatile || buf->is_purged)
		return -EPERM;
	if (buf->publisher && buf->publisher != publisher)
		return -EPERM;
	hlist_for_each_entry(key, keys, of_buf)
		if (key->n > (u64)buf->nr_sealed << PAGE_SHIFT)
			return -EPERM;
	return 0;
}

static bool pay(struct kvpool_pool *pool, struct kvpool_folio *f,
		struct kvpool_account *publisher)
{
	const u64 bytes = kvpool_folio_bytes(f);
	bool is_moved;

	spin_lock(&pool->acct_lock);
	is_moved = !f->publisher;
	if (is_moved) {
		f->publisher = publisher;
		f->owner->private -= bytes;
		pool->shared += bytes;
	}
	spin_unlock(&pool->acct_lock);
	return is_moved;
}

/* Moves the charge of all pages to the shared account. Context: sem, written. */
static int move_charge(struct kvpool_buf *buf, struct kvpool_account *publisher)
{
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_folio *f;
	unsigned long index;
	u64 bytes = 0;
	int rc;

	xa_for_each(&buf->folios, index, f)
		if (!READ_ONCE(f->publisher))
			bytes += kvpool_folio_bytes(f);
	rc = kvpool_charge_shared(pool, publisher, bytes);
	if (rc)
		return rc;
	xa_for_each(&buf->folios, index, f)
		if (pay(pool, f, publisher))
			bytes -= kvpool_folio_bytes(f);
	/* Others published clones of it meanwhile. */
	if (bytes)
		kvpool_uncharge_shared(pool, publisher, bytes);
	return 0;
}

static int count_keys(struct kvpool_pool *pool,
		      struct kvpool_account *publisher, u32 nr)
{
	int rc = 0;

	spin_lock(&pool->acct_lock);
	if (publisher->nr_keys + nr > kvpool_max_keys) {
		rc = -EMFILE;
	} else {
		publisher->nr_keys += nr;
		pool->nr_keys += nr;
	}
	spin_unlock(&pool->acct_lock);
	return rc;
}

/*
 * Makes the keys known; an older one of the same publisher goes. Buffers that
 * lost their last key so come to @orphans, each with a reference.
 */
static void enter_keys(struct kvpool_buf *buf, struct kvpool_account *publisher,
		       struct hlist_head *keys, struct list_head *orphans)
{
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_key *key, *old;
	struct hlist_node *next;

	spin_lock(&pool->key_lock);
	hlist_for_each_entry_safe(key, next, keys, of_buf) {
		hlist_del(&key->of_buf);
		old = find_key(pool, key->key, publisher->uid, false);
		if (old) {
			if (old->buf != buf && old->buf->nr_keys == 1 &&
			    list_empty(&old->buf->orphan)) {
				refcount_inc(&old->buf->nr_refs);
				list_add(&old->buf->orphan, orphans);
			}
			key_free(pool, old);
		}
		key->buf = buf;
		key->publisher = publisher;
		hlist_add_head(&key->node, bucket_of(pool, key->key));
		hlist_add_head(&key->of_buf, &buf->keys);
		buf->nr_keys++;
	}
	spin_unlock(&pool->key_lock);
}

/* Nobody can find a published buffer without keys: it is published no more. */
static void drop_orphans(struct kvpool_pool *pool, struct list_head *orphans)
{
	struct kvpool_buf *buf, *next;
	bool is_orphan;

	list_for_each_entry_safe(buf, next, orphans, orphan) {
		down_write(&buf->sem);
		spin_lock(&pool->key_lock);
		list_del_init(&buf->orphan);
		is_orphan = buf->publisher && !buf->nr_keys;
		spin_unlock(&pool->key_lock);
		if (is_orphan)
			kvpool_keys_drop(buf);
		up_write(&buf->sem);
		if (is_orphan)
			kvpool_buf_put(buf);
		kvpool_buf_put(buf);
	}
}

static int publish(struct kvpool_handle *handle,
		   struct kvpool_account *publisher, u32 nr,
		   struct hlist_head *keys, struct list_head *orphans)
{
	struct kvpool_buf *buf = handle->buf;
	int rc;

	lockdep_assert_held_write(&buf->sem);
	rc = check_publish(handle, publisher, keys);
	if (rc)
		return rc;
	rc = count_keys(buf->pool, publisher, nr);
	if (rc)
		return rc;
	rc = move_charge(buf, publisher);
	if (rc) {
		spin_lock(&buf->pool->acct_lock);
		publisher->nr_keys -= nr;
		buf->pool->nr_keys -= nr;
		spin_unlock(&buf->pool->acct_lock);
		return rc;
	}
	if (!buf->publisher) {
		buf->publisher = publisher;
		refcount_inc(&buf->nr_refs); /* kvpool_keys_drop() returns it */
	}
	enter_keys(buf, publisher, keys, orphans);
	return 0;
}

int kvpool_ioctl_publish(struct file *file, union kvpool_argument *arg,
			 struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_publish *args = &arg->buf_publish;
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf *buf = handle->buf;
	struct kvpool_account *publisher;
	HLIST_HEAD(keys);
	LIST_HEAD(orphans);
	int rc;

	if (args->flags || args->__reserved)
		return -EOPNOTSUPP;
	if (!args->nr_marks || args->nr_marks > KVPOOL_MAX_MARKS)
		return -EINVAL;
	publisher = kvpool_account_get(buf->pool, current_euid());
	if (!publisher)
		return -ENOMEM;
	rc = read_marks(buf->pool, args, &keys);
	if (!rc) {
		down_write(&buf->sem);
		rc = publish(handle, publisher, args->nr_marks, &keys,
			     &orphans);
		up_write(&buf->sem);
		drop_orphans(buf->pool, &orphans);
	}
	if (rc)
		keys_discard(&keys);
	trace_kvpool_publish(buf, args->nr_marks, rc);
	if (rc)
		return rc;
	kvpool_count(buf->pool, &buf->pool->publishes);
	return 0;
}

int kvpool_ioctl_unpublish(struct file *file, union kvpool_argument *arg,
			   struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_publish *args = &arg->buf_publish;
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf *buf = handle->buf;
	const kuid_t uid = current_euid();
	int rc = 0;

	if (args->flags || args->__reserved)
		return -EOPNOTSUPP;
	if (args->marks || args->nr_marks)
		return -EINVAL;
	down_write(&buf->sem);
	if (handle->is_revoked)
		rc = -ESTALE;
	else if (!buf->publisher)
		rc = -ENOENT;
	else if (!uid_eq(uid, buf->publisher->uid) &&
		 !uid_eq(uid, buf->owner->uid))
		rc = -EPERM;
	else
		kvpool_keys_drop(buf);
	up_write(&buf->sem);
	/* Never the last one: the caller has the buffer open. */
	if (!rc)
		kvpool_buf_put(buf);
	return rc;
}

/* ---- lookup -------------------------------------------------------------------------- */

/* Return: 0 and what struct kvpool_buf_lookup says. */
int kvpool_lookup(struct kvpool_pool *pool, union kvpool_argument *arg,
		  struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_lookup *args = &arg->buf_lookup;
	const bool is_any = pool->flags & KVPOOL_POOL_SHARED;
	struct user_namespace *ns = current_user_ns();
	struct kvpool_buf *buf = NULL;
	unsigned int purges = 0;
	struct kvpool_key *key;
	int rc = -ENOENT;

	if (args->flags)
		return -EOPNOTSUPP;
	spin_lock(&pool->key_lock);
	key = find_key(pool, args->key, current_euid(), is_any);
	if (key && refcount_inc_not_zero(&key->buf->nr_refs)) {
		buf = key->buf;
		/* A purge drops the keys first: this is before the next one. */
		purges = READ_ONCE(buf->nr_purges);
		args->out_n = key->n;
		args->out_id = buf->id;
		args->out_uid = from_kuid_munged(ns, key->publisher->uid);
	}
	spin_unlock(&pool->key_lock);
	if (buf)
		rc = kvpool_handle_create(buf, false, args->out_n, &purges,
					  out_fd);
	if (!rc)
		args->out_fd = out_fd->fd;
	trace_kvpool_lookup(pool, rc ? 0 : args->out_id, rc ? 0 : args->out_n,
			    rc);
	spin_lock(&pool->acct_lock);
	pool->lookups++;
	pool->hits += !rc;
	spin_unlock(&pool->acct_lock);
	return rc;
}
