// SPDX-License-Identifier: GPL-2.0
/*
 * Giving memory back under pressure: volatile buffers, whole and least
 * recently used first, and the reserves. The system asks by a shrinker, for a
 * node and a memory cgroup, and by the OOM notifier; a pool asks itself when
 * it has come to its limit. Nothing here allocates or sleeps.
 */
#include <linux/list_lru.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/swap.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/* ---- the pool's list ------------------------------------------------------ */

/*
 * Whether nobody needs a folio of several buffers: all are volatile. (Where it
 * is of one only, since it became volatile, that one counts it by itself, see
 * count_pages().) Context: acct_lock.
 */
bool kvpool_folio_is_volatile(const struct kvpool_folio *f)
{
	return f->nr_volatile && f->nr_volatile == f->nr_bufs;
}

/* After nr_bufs or nr_volatile of a folio has changed. Context: acct_lock. */
void kvpool_folio_recount(struct kvpool_pool *pool, struct kvpool_folio *f,
			  bool was_volatile)
{
	const bool is_volatile = kvpool_folio_is_volatile(f);
	const int nid = folio_nid(f->folio);
	const long nr = is_volatile ? 1L << f->order : -(1L << f->order);

	lockdep_assert_held(&pool->acct_lock);
	if (is_volatile == was_volatile)
		return;
	pool->node[nid].nr_shared_volatile += nr;
	pool->shared_volatile += nr * (long)PAGE_SIZE;
	mod_node_page_state(NODE_DATA(nid), NR_KERNEL_MISC_RECLAIMABLE, nr);
}

/* The buffer's part of a folio that it shares. Context: acct_lock. */
static void vote_shared(struct kvpool_pool *pool, struct kvpool_folio *f,
			int change)
{
	const bool was_volatile = kvpool_folio_is_volatile(f);

	f->nr_volatile += change;
	kvpool_folio_recount(pool, f, was_volatile);
}

/*
 * Per node: the pages that would be freed. Those that clones have as well are
 * freed with the last of them, and no clone is made of a volatile buffer.
 */
static void count_pages(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_folio *f;
	unsigned long index;

	xa_for_each(&buf->folios, index, f) {
		spin_lock(&pool->acct_lock);
		if (f->nr_bufs == 1) {
			buf->nr_volatile[folio_nid(f->folio)] += 1UL
								 << f->order;
		} else {
			buf->has_shared = true;
			vote_shared(pool, f, 1);
		}
		spin_unlock(&pool->acct_lock);
	}
}

static void uncount_shared(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_folio *f;
	unsigned long index;

	buf->has_shared = false;
	xa_for_each(&buf->folios, index, f) {
		spin_lock(&pool->acct_lock);
		if (f->nr_volatile)
			vote_shared(pool, f, -1);
		spin_unlock(&pool->acct_lock);
	}
}

/* The buffer has become volatile. Context: sem, written. */
void kvpool_lru_add(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	int nid;

	lockdep_assert_held_write(&buf->sem);
	count_pages(buf);
	spin_lock(&pool->lru_lock);
	list_add_tail(&buf->lru, &pool->lru);
	for_each_node_mask(nid, pool->nodes) {
		pool->node[nid].nr_volatile += buf->nr_volatile[nid];
		pool->volatile_bytes += (u64)buf->nr_volatile[nid]
					<< PAGE_SHIFT;
		/* So that MemAvailable counts them. */
		mod_node_page_state(NODE_DATA(nid), NR_KERNEL_MISC_RECLAIMABLE,
				    buf->nr_volatile[nid]);
	}
	spin_unlock(&pool->lru_lock);
}

/*
 * It is needed again, purged or freed. Does nothing where it is not listed.
 * Context: sem, written, or nobody knows the buffer any longer.
 */
void kvpool_lru_del(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	int nid;

	spin_lock(&pool->lru_lock);
	if (!list_empty(&buf->lru)) {
		list_del_init(&buf->lru);
		for_each_node_mask(nid, pool->nodes) {
			pool->node[nid].nr_volatile -= buf->nr_volatile[nid];
			pool->volatile_bytes -= (u64)buf->nr_volatile[nid]
						<< PAGE_SHIFT;
			mod_node_page_state(NODE_DATA(nid),
					    NR_KERNEL_MISC_RECLAIMABLE,
					    -(long)buf->nr_volatile[nid]);
			buf->nr_volatile[nid] = 0;
		}
	}
	spin_unlock(&pool->lru_lock);
	if (buf->has_shared)
		uncount_shared(buf);
}

/* ---- one buffer ------------------------------------------------------------ */

/*
 * Whether a purge gives anything. Where others need every page, the content
 * would be lost for nothing. One without pages is not asked again.
 */
static bool is_worth_it(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	bool is_taken = true;
	struct kvpool_folio *f;
	unsigned long index;

	xa_for_each(&buf->folios, index, f) {
		spin_lock(&pool->acct_lock);
		is_taken = f->nr_bufs == 1 || kvpool_folio_is_volatile(f);
		spin_unlock(&pool->acct_lock);
		if (is_taken)
			break;
	}
	return is_taken;
}

/* All folios or none: a reader must find the whole content, or be told. */
static bool freeze_all(struct kvpool_buf *buf)
{
	struct kvpool_folio *f;
	unsigned long index, undo;

	xa_for_each(&buf->folios, index, f) {
		if (kvpool_folio_nr_bufs(buf->pool, f) > 1)
			continue;
		if (kvpool_folio_is_poisoned(f) ||
		    !folio_ref_freeze(f->folio, 1))
			goto roll_back;
	}
	return true;

roll_back:
	undo = f->index;
	xa_for_each_range(&buf->folios, index, f, 0, undo) {
		if (f->index >= undo)
			break;
		if (!folio_ref_count(f->folio))
			folio_ref_unfreeze(f->folio, 1);
	}
	return false;
}

static u64 take_all(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	struct kvpool_folio *f;
	unsigned long index;
	u64 freed = 0;

	xa_for_each(&buf->folios, index, f) {
		const u64 bytes = kvpool_folio_bytes(f);

		xa_erase(&buf->folios, f->index);
		if (folio_ref_count(f->folio)) {
			/* A clone has it as well. */
			kvpool_folio_destroy(pool, f);
			continue;
		}
		kvpool_folio_unshare(pool, f);
		kvpool_folio_free_frozen(pool, f);
		freed += bytes;
	}
	return freed;
}

/*
 * Take the pages of a volatile buffer. Touches were forbidden when it became
 * volatile, so nothing maps them. Context: a reference of @buf.
 * Return: bytes freed; 0: it is busy, pinned or needed again.
 */
static u64 purge(struct kvpool_buf *buf)
{
	struct kvpool_pool *pool = buf->pool;
	bool was_published = false;
	u64 freed;

	if (!down_write_trylock(&buf->sem))
		return 0;
	if (!buf->is_volatile || buf->is_purged || !is_worth_it(buf) ||
	    !freeze_all(buf)) {
		/* Not the first one to be asked next time. */
		spin_lock(&pool->lru_lock);
		if (!list_empty(&buf->lru))
			list_move_tail(&buf->lru, &pool->lru);
		spin_unlock(&pool->lru_lock);
		up_write(&buf->sem);
		return 0;
	}
	kvpool_lru_del(buf);
	freed = take_all(buf);
	buf->is_purged = true;
	was_published = kvpool_keys_drop(buf);
	/* Behind the keys: who found one knows the number of before. */
	WRITE_ONCE(buf->nr_purges, buf->nr_purges + 1);
	spin_lock(&pool->acct_lock);
	pool->purges++;
	pool->purged += freed;
	spin_unlock(&pool->acct_lock);
	up_write(&buf->sem);
	trace_kvpool_purge(buf, freed);
	kvpool_event_send(pool, KVPOOL_EVENT_PURGED, buf->id, freed,
			  buf->owner->uid);
	if (was_published)
		kvpool_buf_put_async(buf);
	return freed;
}

/* ---- a pool ---------------------------------------------------------------- */

/*
 * The oldest volatile buffer that has pages on @nid (NUMA_NO_NODE: anywhere)
 * and belongs to @only (NULL: anybody), with a reference. It goes to the end of
 * the list, so that one that cannot be had does not stop the others.
 */
static struct kvpool_buf *lru_next(struct kvpool_pool *pool, int nid,
				   struct kvpool_account *only)
{
	struct kvpool_buf *buf, *found = NULL;

	spin_lock(&pool->lru_lock);
	list_for_each_entry(buf, &pool->lru, lru) {
		if (nid != NUMA_NO_NODE && !buf->nr_volatile[nid] &&
		    !buf->has_shared)
			continue;
		if (only && (buf->owner != only || buf->publisher))
			continue;
		if (!refcount_inc_not_zero(&buf->nr_refs))
			continue;
		found = buf;
		list_move_tail(&buf->lru, &pool->lru);
		break;
	}
	spin_unlock(&pool->lru_lock);
	return found;
}

static unsigned int lru_length(struct kvpool_pool *pool)
{
	struct list_head *entry;
	unsigned int nr = 0;

	spin_lock(&pool->lru_lock);
	list_for_each(entry, &pool->lru)
		nr++;
	spin_unlock(&pool->lru_lock);
	return nr;
}

static u64 purge_some(struct kvpool_pool *pool, int nid,
		      struct kvpool_account *only, u64 bytes)
{
	unsigned int nr = lru_length(pool);
	struct kvpool_buf *buf;
	u64 freed = 0;

	while (freed < bytes && nr--) {
		buf = lru_next(pool, nid, only);
		if (!buf)
			break;
		freed += purge(buf);
		kvpool_buf_put_async(buf);
	}
	return freed;
}

/**
 * kvpool_reclaim() - have a pool give back memory of its own
 * @pool: the pool
 * @only: an account at its quota, whose private buffers alone help; NULL: the
 *	pool is at its limit, and the reserve goes first
 * @bytes: wanted
 *
 * Return: bytes given back.
 */
u64 kvpool_reclaim(struct kvpool_pool *pool, struct kvpool_account *only,
		   u64 bytes)
{
	const unsigned long nr_pages =
		(bytes >> PAGE_SHIFT) + !!(bytes % PAGE_SIZE);
	u64 freed = 0;
	int nid;

	if (!only)
		for_each_node_mask(nid, pool->nodes)
			if (freed < bytes)
				freed += (u64)kvpool_reserve_shrink(pool, nid,
								    nr_pages)
					 << PAGE_SHIFT;
	if (freed < bytes)
		freed += purge_some(pool, NUMA_NO_NODE, only, bytes - freed);
	return freed;
}

/* ---- the system ------------------------------------------------------------ */

/*
 * The system asks a shrinker about a memory cgroup only if an object of that
 * cgroup was put on the shrinker's list. One page per pool and node, charged
 * like the pool's pages, is that object; it stays there. What the pool could
 * give is counted by the pool.
 */
struct kvpool_token {
	struct list_head lru;
};

static struct list_lru token_lru;
static struct kmem_cache *token_cache;

int kvpool_tokens_create(struct kvpool_pool *pool)
{
	struct mem_cgroup *old = set_active_memcg(pool->memcg);
	struct kvpool_token *first;
	struct page *page;
	int nid, rc = -ENOMEM;

	/* Only this call makes the list's part for a cgroup. */
	first = kmem_cache_alloc_lru(token_cache, &token_lru, GFP_KERNEL);
	if (!first)
		goto out;
	kmem_cache_free(token_cache, first);
	for_each_node_mask(nid, pool->nodes) {
		page = alloc_pages_node(nid,
					GFP_KERNEL_ACCOUNT | __GFP_THISNODE |
						__GFP_NOWARN |
						__GFP_RETRY_MAYFAIL,
					0);
		if (!page)
			goto out; /* the caller takes back what there is */
		pool->node[nid].token = page_address(page);
		INIT_LIST_HEAD(&pool->node[nid].token->lru);
		list_lru_add(&token_lru, &pool->node[nid].token->lru);
	}
	rc = 0;
out:
	set_active_memcg(old);
	return rc;
}

void kvpool_tokens_destroy(struct kvpool_pool *pool)
{
	int nid;

	for_each_node_mask(nid, pool->nodes) {
		if (!pool->node[nid].token)
			continue;
		list_lru_del(&token_lru, &pool->node[nid].token->lru);
		free_page((unsigned long)pool->node[nid].token);
		pool->node[nid].token = NULL;
	}
}

/*
 * Whether reclaim for sc means the pool's pages on sc->nid. The cgroup is read
 * off the token, because its charge moves to the parent when a cgroup is removed.
 */
static bool is_asked(struct kvpool_pool *pool, struct shrink_control *sc)
{
	struct kvpool_token *token = pool->node[sc->nid].token;
	struct mem_cgroup *memcg;
	bool is_same;

	if (!token)
		return false;
	rcu_read_lock();
	memcg = page_memcg_check(virt_to_page(token));
	if (!sc->memcg || !sc->memcg->css.parent)
		is_same = !memcg || !memcg->css.parent;
	else
		is_same = memcg == sc->memcg;
	rcu_read_unlock();
	return is_same;
}

static unsigned long shrink_count(struct shrinker *shrinker,
				  struct shrink_control *sc)
{
	const struct kvpool_node *node;
	struct kvpool_pool *pool;
	unsigned long id = 0, nr = 0;

	while ((pool = kvpool_pool_find_next(id))) {
		node = &pool->node[sc->nid];
		if (is_asked(pool, sc))
			nr += READ_ONCE(node->nr_volatile) +
			      READ_ONCE(node->nr_shared_volatile) +
			      (READ_ONCE(node->nr_reserve)
			       << KVPOOL_HUGE_ORDER);
		id = pool->id;
		kvpool_pool_put(pool);
	}
	return nr;
}

static unsigned long shrink_scan(struct shrinker *shrinker,
				 struct shrink_control *sc)
{
	const unsigned long wanted = sc->nr_to_scan;
	unsigned long id = 0, freed = 0;
	struct kvpool_pool *pool;

	while (freed < wanted && (pool = kvpool_pool_find_next(id))) {
		if (is_asked(pool, sc)) {
			freed += kvpool_reserve_shrink(pool, sc->nid,
						       wanted - freed);
			if (freed < wanted)
				freed += purge_some(pool, sc->nid, NULL,
						    (u64)(wanted - freed)
							    << PAGE_SHIFT) >>
					 PAGE_SHIFT;
		}
		id = pool->id;
		kvpool_pool_put(pool);
	}
	sc->nr_scanned = max(freed, wanted);
	/* Else kswapd believes that nothing was to be had, and gives up. */
	if (current->reclaim_state)
		current->reclaim_state->reclaimed_slab += freed;
	return freed ? freed : SHRINK_STOP;
}

static struct shrinker kvpool_shrinker = {
	.count_objects = shrink_count,
	.scan_objects = shrink_scan,
	.seeks = DEFAULT_SEEKS,
	.batch = 1UL << KVPOOL_HUGE_ORDER,
	.flags = SHRINKER_NUMA_AWARE | SHRINKER_MEMCG_AWARE,
};

static int oom_notify(struct notifier_block *block, unsigned long unused,
		      void *out_freed)
{
	unsigned long *freed = out_freed, id = 0;
	struct kvpool_pool *pool;

	while ((pool = kvpool_pool_find_next(id))) {
		*freed += kvpool_reclaim(pool, NULL, U64_MAX) >> PAGE_SHIFT;
		id = pool->id;
		kvpool_pool_put(pool);
	}
	return NOTIFY_OK;
}

static struct notifier_block oom_block = { .notifier_call = oom_notify };

int __init kvpool_reclaim_init(void)
{
	int rc = -ENOMEM;

	token_cache = KMEM_CACHE(kvpool_token, SLAB_ACCOUNT);
	if (!token_cache)
		return rc;
	rc = register_shrinker(&kvpool_shrinker, "kvpool");
	if (rc)
		goto err_cache;
	rc = list_lru_init_memcg(&token_lru, &kvpool_shrinker);
	if (rc)
		goto err_shrinker;
	rc = register_oom_notifier(&oom_block);
	if (rc)
		goto err_lru;
	return 0;

err_lru:
	list_lru_destroy(&token_lru);
err_shrinker:
	unregister_shrinker(&kvpool_shrinker);
err_cache:
	kmem_cache_destroy(token_cache);
	return rc;
}

void kvpool_reclaim_exit(void)
{
	unregister_oom_notifier(&oom_block);
	unregister_shrinker(&kvpool_shrinker);
	list_lru_destroy(&token_lru);
	kmem_cache_destroy(token_cache);
}
