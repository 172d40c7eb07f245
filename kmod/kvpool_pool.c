// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: their names, their life, and who may open them. A pool is used by the
 * open files of it and of its buffers; when the last one closes, its name and
 * its publications go, and with the last buffer and the last draining page the
 * pool itself.
 */
#include <linux/capability.h>
#include <linux/cpuset.h>
#include <linux/ctype.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/* Pools by id. A pool whose last user has gone is not in it any more. */
static DEFINE_XARRAY_ALLOC1(kvpool_pools);
static DEFINE_MUTEX(kvpool_pools_mutex);
static unsigned int nr_pools; /* kvpool_pools_mutex */
static u32 next_pool_id; /* kvpool_pools_mutex */

/* ---- life ------------------------------------------------------------------ */

void kvpool_pool_get(struct kvpool_pool *pool)
{
	kref_get(&pool->kref);
}

static void pool_free(struct kref *kref)
{
	struct kvpool_pool *pool = container_of(kref, struct kvpool_pool, kref);

	WARN_ON_ONCE(pool->charged || !list_empty(&pool->lru));
	kvpool_tokens_destroy(pool);
	kvpool_accounts_free(pool);
	xa_destroy(&pool->bufs);
	if (pool->memcg)
		mem_cgroup_put(pool->memcg);
	kfree(pool->keys);
	kfree(pool->node);
	kfree_rcu(pool, rcu);
	module_put(THIS_MODULE);
}

void kvpool_pool_put(struct kvpool_pool *pool)
{
	kref_put(&pool->kref, pool_free);
}

void kvpool_pool_use(struct kvpool_pool *pool)
{
	refcount_inc(&pool->nr_users);
}

/* Publications keep buffers, but nobody is left who could look them up. */
static void unpublish_all(struct kvpool_pool *pool)
{
	struct kvpool_buf *buf;
	bool was_published;
	u64 id = 0;

	while ((buf = kvpool_buf_find_next(pool, id))) {
		id = buf->id;
		down_write(&buf->sem);
		was_published = kvpool_keys_drop(buf);
		up_write(&buf->sem);
		if (was_published)
			kvpool_buf_put(buf);
		kvpool_buf_put(buf);
		cond_resched();
	}
}

static void pool_close(struct kvpool_pool *pool)
{
	int nid;

	trace_kvpool_pool_free(pool);
	spin_lock(&pool->acct_lock);
	pool->is_closed = true;
	spin_unlock(&pool->acct_lock);
	unpublish_all(pool);
	for_each_node_mask(nid, pool->nodes)
		kvpool_reserve_shrink(pool, nid, ULONG_MAX);
	kvpool_pool_put(pool);
}

/* Context: may sleep, no lock is held. */
void kvpool_pool_unuse(struct kvpool_pool *pool)
{
	if (!refcount_dec_and_mutex_lock(&pool->nr_users, &kvpool_pools_mutex))
		return;
	xa_erase(&kvpool_pools, pool->id);
	nr_pools--;
	mutex_unlock(&kvpool_pools_mutex);
	pool_close(pool);
}

/* The next pool behind @id, with a reference; NULL: none. Reclaim may call. */
struct kvpool_pool *kvpool_pool_find_next(unsigned long id)
{
	unsigned long index = id + 1;
	struct kvpool_pool *pool;

	rcu_read_lock();
	for (;; index++) {
		pool = xa_find(&kvpool_pools, &index, ULONG_MAX, XA_PRESENT);
		if (!pool || kref_get_unless_zero(&pool->kref))
			break;
	}
	rcu_read_unlock();
	return pool;
}

/* ---- names and rights -------------------------------------------------------- */

static bool is_name(const u8 name[KVPOOL_NAME_SIZE])
{
	const size_t len = strnlen(name, KVPOOL_NAME_SIZE);
	size_t i;

	if (len == KVPOOL_NAME_SIZE || name[0] == '.')
		return false;
	for (i = 0; i < len; i++)
		if (!isascii(name[i]) || (!isalnum(name[i]) && name[i] != '.' &&
					  name[i] != '_' && name[i] != '-'))
			return false;
	return !memchr_inv(name + len, 0, KVPOOL_NAME_SIZE - len);
}

static struct kvpool_pool *find_name(const u8 *name)
{
	struct kvpool_pool *pool;
	unsigned long id;

	lockdep_assert_held(&kvpool_pools_mutex);
	xa_for_each(&kvpool_pools, id, pool)
		if (!strcmp(pool->name, name))
			return pool;
	return NULL;
}

/* @want: bits 4 and 2, as of a file's mode. */
static bool may_open(const struct kvpool_pool *pool, unsigned int want)
{
	unsigned int mode = pool->mode;

	if (uid_eq(current_euid(), pool->uid))
		mode >>= 6;
	else if (in_egroup_p(pool->gid))
		mode >>= 3;
	return (mode & want) == want || capable(CAP_DAC_OVERRIDE);
}

/* ---- making ------------------------------------------------------------------- */

static int read_nodes(const struct kvpool_pool_create *args, nodemask_t *out)
{
	nodemask_t wanted = node_states[N_MEMORY];
	int nid;

	if (args->node_mask) {
		nodes_clear(wanted);
		for (nid = 0; nid < 64; nid++) {
			if (!(args->node_mask & BIT_ULL(nid)))
				continue;
			if (nid >= MAX_NUMNODES || !node_state(nid, N_MEMORY))
				return -EINVAL;
			node_set(nid, wanted);
		}
	}
	nodes_and(*out, wanted, cpuset_current_mems_allowed);
	return nodes_empty(*out) ? -EINVAL : 0;
}

static int check_create(const struct kvpool_pool_create *args)
{
	if (args->flags & ~(KVPOOL_POOL_SHARED | KVPOOL_POOL_NO_ORDER) ||
	    args->__reserved)
		return -EOPNOTSUPP;
	if (!is_name(args->name) || !args->limit || args->mode & ~0666)
		return -EINVAL;
	if (args->max_order > KVPOOL_HUGE_ORDER ||
	    (args->max_order && args->flags & KVPOOL_POOL_NO_ORDER))
		return -EINVAL;
	if (args->reserve > args->limit)
		return -EINVAL;
	return 0;
}

static void init_fields(struct kvpool_pool *pool,
			const struct kvpool_pool_create *args)
{
	int nid;

	kref_init(&pool->kref);
	refcount_set(&pool->nr_users, 1);
	memcpy(pool->name, args->name, sizeof(pool->name));
	pool->uid = current_euid();
	pool->gid = current_egid();
	pool->mode = args->mode;
	pool->flags = args->flags & KVPOOL_POOL_SHARED;
	pool->max_order = args->flags & KVPOOL_POOL_NO_ORDER ?
				  KVPOOL_HUGE_ORDER :
				  args->max_order;
	pool->limit = args->limit;
	pool->quota = args->quota;
	pool->shared_quota = args->shared_quota;
	pool->reserve_target = min_t(u64, args->reserve, kvpool_max_reserve);
	get_random_bytes(pool->secret, sizeof(pool->secret));
	pool->key_seed = get_random_u32();
	spin_lock_init(&pool->acct_lock);
	spin_lock_init(&pool->key_lock);
	spin_lock_init(&pool->lru_lock);
	spin_lock_init(&pool->drain_lock);
	spin_lock_init(&pool->event_lock);
	xa_init_flags(&pool->bufs, XA_FLAGS_ACCOUNT);
	INIT_LIST_HEAD(&pool->lru);
	INIT_LIST_HEAD(&pool->drain);
	INIT_LIST_HEAD(&pool->subscribers);
	INIT_DELAYED_WORK(&pool->drain_work, kvpool_drain_work);
	INIT_DELAYED_WORK(&pool->refill_work, kvpool_refill_work);
	for (nid = 0; nid < nr_node_ids; nid++)
		INIT_LIST_HEAD(&pool->node[nid].reserve);
}

static int pool_alloc(const struct kvpool_pool_create *args,
		      struct kvpool_pool **out_pool)
{
	struct kvpool_pool *pool;
	int rc = -ENOMEM;

	pool = kzalloc(sizeof(*pool), KVPOOL_RECORD_GFP);
	if (!pool)
		return rc;
	rc = read_nodes(args, &pool->nodes);
	if (rc)
		goto err_free;
	rc = -ENOMEM;
	pool->node =
		kcalloc(nr_node_ids, sizeof(*pool->node), KVPOOL_RECORD_GFP);
	if (!pool->node)
		goto err_free;
	pool->keys = kcalloc(KVPOOL_KEY_BUCKETS, sizeof(*pool->keys),
			     KVPOOL_RECORD_GFP);
	if (!pool->keys)
		goto err_node;
	init_fields(pool, args);
	pool->memcg = get_mem_cgroup_from_mm(current->mm);
	rc = kvpool_tokens_create(pool);
	if (rc)
		goto err_memcg;
	__module_get(THIS_MODULE); /* pool_free() gives it back */
	*out_pool = pool;
	return 0;

err_memcg:
	kvpool_tokens_destroy(pool);
	if (pool->memcg)
		mem_cgroup_put(pool->memcg);
	kfree(pool->keys);
err_node:
	kfree(pool->node);
err_free:
	kfree(pool);
	return rc;
}

/* Makes the pool known. From here on it is closed by kvpool_pool_unuse(). */
static int pool_enter(struct kvpool_pool *pool)
{
	struct xa_limit limit = XA_LIMIT(1, U32_MAX);
	int rc = 0;

	mutex_lock(&kvpool_pools_mutex);
	if (pool->name[0] && find_name(pool->name))
		rc = -EEXIST;
	else if (nr_pools >= kvpool_max_pools)
		rc = -EMFILE;
	else
		rc = xa_alloc_cyclic(&kvpool_pools, &pool->id, pool, limit,
				     &next_pool_id, KVPOOL_RECORD_GFP);
	if (rc >= 0)
		nr_pools++;
	mutex_unlock(&kvpool_pools_mutex);
	return min(rc, 0);
}

/* Return: 0 and what struct kvpool_pool_create says. */
int kvpool_pool_create(union kvpool_argument *arg, struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool *pool;
	int rc;

	rc = check_create(&arg->pool_create);
	if (rc)
		return rc;
	rc = pool_alloc(&arg->pool_create, &pool);
	if (rc)
		return rc;
	rc = pool_enter(pool);
	if (rc) {
		kvpool_pool_put(pool);
		return rc;
	}
	trace_kvpool_pool_create(pool);
	kvpool_reserve_refill(pool, 0);
	rc = kvpool_pool_file_create(pool, true, out_fd);
	kvpool_pool_unuse(pool);
	if (!rc)
		arg->pool_create.out_fd = out_fd->fd;
	return rc;
}

int kvpool_pool_open(union kvpool_argument *arg, struct kvpool_new_fd *out_fd)
{
	const unsigned int flags = arg->pool_open.flags;
	struct kvpool_pool *pool;
	int rc = 0;

	if (flags & ~(KVPOOL_READ | KVPOOL_WRITE) || arg->pool_open.__reserved)
		return -EOPNOTSUPP;
	if (!flags || !is_name(arg->pool_open.name) || !arg->pool_open.name[0])
		return -EINVAL;
	mutex_lock(&kvpool_pools_mutex);
	pool = find_name(arg->pool_open.name);
	if (!pool || !refcount_inc_not_zero(&pool->nr_users))
		rc = -ENOENT;
	mutex_unlock(&kvpool_pools_mutex);
	if (rc)
		return rc;
	rc = may_open(pool, flags & KVPOOL_WRITE ? 6 : 4) ?
		     kvpool_pool_file_create(pool, flags & KVPOOL_WRITE,
					     out_fd) :
		     -EACCES;
	kvpool_pool_unuse(pool);
	if (!rc)
		arg->pool_open.out_fd = out_fd->fd;
	return rc;
}

int kvpool_pool_next(union kvpool_argument *arg)
{
	struct kvpool_pool_next *next = &arg->pool_next;
	struct user_namespace *ns = current_user_ns();
	struct kvpool_pool *pool;
	unsigned long id = next->id;

	if (next->flags)
		return -EOPNOTSUPP;
	if (next->id >= U32_MAX)
		return -ENOENT;
	while ((pool = kvpool_pool_find_next(id))) {
		id = pool->id;
		if (may_open(pool, 4))
			break;
		kvpool_pool_put(pool);
	}
	if (!pool)
		return -ENOENT;
	next->id = pool->id;
	memcpy(next->out_name, pool->name, sizeof(next->out_name));
	spin_lock(&pool->acct_lock);
	next->out_limit = pool->limit;
	next->out_charged = pool->charged;
	spin_unlock(&pool->acct_lock);
	next->out_uid = from_kuid_munged(ns, pool->uid);
	next->out_mode = pool->mode;
	kvpool_pool_put(pool);
	return 0;
}
