// SPDX-License-Identifier: GPL-2.0
/*
 * Folios: getting them zeroed and charged, sharing them between buffers, and
 * giving them back when nobody refers to them any longer. A folio that
 * somebody still holds when its last buffer lets go of it (a device, a pipe)
 * waits on the drain list, charged, until he is done: there is no call-back
 * when a reference of a page goes, so a work looks again and again.
 */
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/*
 * Not movable: the pages are in nobody's LRU lists, so they could not be moved
 * anyway, and long-term pins refuse movable ones. The pool's node mask stands
 * above the cpuset of whoever happens to fault. RETRY_MAYFAIL: try hard, but
 * never call the OOM killer: the caller has a smaller order, or an error.
 */
#define KVPOOL_GFP                                                    \
	((GFP_HIGHUSER & ~__GFP_HARDWALL) | __GFP_COMP | __GFP_ZERO | \
	 __GFP_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)

/* How long a folio that somebody holds waits for the next look. */
static const unsigned long drain_delay = HZ / 50 ? HZ / 50 : 1;

/* So that what takes the reserve is not stopped by what fills it. */
static const unsigned long refill_delay = HZ / 100 ? HZ / 100 : 1;

static struct kmem_cache *folio_cache;
static atomic_long_t nr_folios;

/* Folios that are allocated now, withdrawn ones not counted. */
long kvpool_folios_left(void)
{
	return atomic_long_read(&nr_folios);
}

static struct folio *folio_alloc_on(struct kvpool_pool *pool,
				    unsigned int order, gfp_t gfp)
{
	int nid = numa_mem_id();
	struct mem_cgroup *old;
	struct page *page;

	if (!node_isset(nid, pool->nodes))
		nid = first_node(pool->nodes);
	old = set_active_memcg(pool->memcg);
	page = __alloc_pages(gfp, order, nid, &pool->nodes);
	set_active_memcg(old);
	if (!page)
		return NULL;
	atomic_long_inc(&nr_folios);
	return page_folio(page);
}

static void folio_free(struct folio *folio)
{
	atomic_long_dec(&nr_folios);
	folio_put(folio);
}

bool kvpool_folio_is_poisoned(const struct kvpool_folio *f)
{
	long i;

	if (!f->order)
		return PageHWPoison(&f->folio->page);
	if (folio_test_has_hwpoisoned(f->folio))
		return true;
	if (f->order >= KVPOOL_HUGE_ORDER)
		return PageHWPoison(&f->folio->page);
	for (i = 0; i < 1L << f->order; i++)
		if (PageHWPoison(folio_page(f->folio, i)))
			return true;
	return false;
}

/* ---- the reserve --------------------------------------------------------- */

/* The node to take reserve from; NUMA_NO_NODE: there is none. */
static int reserve_node(struct kvpool_pool *pool)
{
	int nid = numa_mem_id();

	lockdep_assert_held(&pool->acct_lock);
	if (pool->node[nid].nr_reserve)
		return nid;
	for_each_node_mask(nid, pool->nodes)
		if (pool->node[nid].nr_reserve)
			return nid;
	return NUMA_NO_NODE;
}

/* Moves a folio from the reserve to @account. NULL: none, or over quota. */
static struct folio *reserve_take(struct kvpool_pool *pool,
				  struct kvpool_account *account)
{
	const u64 bytes = (u64)PAGE_SIZE << KVPOOL_HUGE_ORDER;
	struct folio *folio = NULL;
	int nid;

	spin_lock(&pool->acct_lock);
	nid = reserve_node(pool);
	if (nid != NUMA_NO_NODE && kvpool_account_fits(pool, account, bytes)) {
		folio = list_first_entry(&pool->node[nid].reserve, struct folio,
					 lru);
		list_del(&folio->lru);
		pool->node[nid].nr_reserve--;
		pool->reserve -= bytes;
		account->private += bytes;
	}
	spin_unlock(&pool->acct_lock);
	if (folio && READ_ONCE(pool->reserve) < pool->reserve_target / 2)
		kvpool_reserve_refill(pool, refill_delay);
	return folio;
}

/*
 * Have the reserve filled up in the background, after @delay jiffies. Not at
 * every folio that is taken, which would cost more than it saves, and not where
 * the limit leaves no room.
 */
void kvpool_reserve_refill(struct kvpool_pool *pool, unsigned long delay)
{
	const u64 bytes = (u64)PAGE_SIZE << KVPOOL_HUGE_ORDER;

	if (READ_ONCE(pool->is_closed) ||
	    READ_ONCE(pool->reserve) + bytes >
		    READ_ONCE(pool->reserve_target) ||
	    READ_ONCE(pool->charged) + bytes > READ_ONCE(pool->limit) ||
	    delayed_work_pending(&pool->refill_work))
		return;
	kvpool_pool_get(pool);
	if (!queue_delayed_work(kvpool_wq, &pool->refill_work, delay))
		kvpool_pool_put(pool);
}

void kvpool_refill_work(struct work_struct *work)
{
	struct delayed_work *delayed = to_delayed_work(work);
	struct kvpool_pool *pool =
		container_of(delayed, struct kvpool_pool, refill_work);
	const u64 bytes = (u64)PAGE_SIZE << KVPOOL_HUGE_ORDER;
	struct folio *folio;
	int nid;

	while (!READ_ONCE(pool->is_closed) &&
	       READ_ONCE(pool->reserve) + bytes <= pool->reserve_target) {
		if (kvpool_charge(pool, NULL, bytes))
			break;
		/* Only what is to be had without pushing others out. */
		folio = folio_alloc_on(pool, KVPOOL_HUGE_ORDER,
				       (KVPOOL_GFP & ~__GFP_RETRY_MAYFAIL) |
					       __GFP_NORETRY);
		if (!folio) {
			kvpool_uncharge(pool, NULL, bytes);
			break;
		}
		nid = folio_nid(folio);
		spin_lock(&pool->acct_lock);
		list_add(&folio->lru, &pool->node[nid].reserve);
		pool->node[nid].nr_reserve++;
		spin_unlock(&pool->acct_lock);
		cond_resched();
	}
	if (READ_ONCE(pool->is_closed))
		for_each_node_mask(nid, pool->nodes)
			kvpool_reserve_shrink(pool, nid, ULONG_MAX);
	kvpool_pool_put(pool);
}

/* Gives reserve of one node back. Return: pages freed. Reclaim may call. */
unsigned long kvpool_reserve_shrink(struct kvpool_pool *pool, int nid,
				    unsigned long nr_pages)
{
	const u64 bytes = (u64)PAGE_SIZE << KVPOOL_HUGE_ORDER;
	struct kvpool_node *node = &pool->node[nid];
	unsigned long freed = 0;
	struct folio *folio;

	while (freed < nr_pages) {
		folio = NULL;
		spin_lock(&pool->acct_lock);
		if (node->nr_reserve) {
			folio = list_first_entry(&node->reserve, struct folio,
						 lru);
			list_del(&folio->lru);
			node->nr_reserve--;
		}
		spin_unlock(&pool->acct_lock);
		if (!folio)
			break;
		folio_free(folio);
		kvpool_uncharge(pool, NULL, bytes);
		freed += 1UL << KVPOOL_HUGE_ORDER;
	}
	return freed;
}

/* ---- making and sharing --------------------------------------------------- */

/* Charges, and purges the pool's own volatile buffers where that is needed. */
static int charge_or_purge(struct kvpool_pool *pool,
			   struct kvpool_account *account, u64 bytes)
{
	int rc;

	for (;;) {
		rc = kvpool_charge(pool, account, bytes);
		if (rc == 0)
			return 0;
		if (kvpool_reclaim(pool, rc == -EDQUOT ? account : NULL, bytes))
			continue;
		/* Reserve that is being made is charged, but not to be had yet. */
		if (rc != -ENOSPC || !READ_ONCE(pool->reserve))
			return rc;
		flush_delayed_work(&pool->refill_work);
	}
}

/* Bytes of a memory cgroup that its pools leave to everything else in it. */
enum { MEMCG_HEADROOM_FOLIOS = 16 };

static bool is_nearly_full(struct mem_cgroup *memcg, unsigned long nr_pages)
{
#ifdef CONFIG_MEMCG
	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		const unsigned long max = READ_ONCE(memcg->memory.max);

		if (page_counter_read(&memcg->memory) + nr_pages > max)
			return true;
	}
#endif
	return false;
}

/**
 * kvpool_has_headroom() - whether the pool's memory cgroup can do with a bit less
 * @pool: the pool
 *
 * Our memory cannot be reclaimed while it is needed. Were it to fill a cgroup
 * to its last page, the next fault of any process in it would call the OOM
 * killer; so the pool gets the error first. Whether there is room is asked by
 * taking it for a moment: that reclaims page cache, which a counter cannot tell
 * from memory that stays.
 *
 * Context: may sleep.
 */
bool kvpool_has_headroom(struct kvpool_pool *pool)
{
	const unsigned long nr = MEMCG_HEADROOM_FOLIOS << KVPOOL_BLOCK_ORDER;
	struct folio *taken[MEMCG_HEADROOM_FOLIOS];
	int i, nr_taken;

	if (!pool->memcg || !is_nearly_full(pool->memcg, nr))
		return true;
	for (i = 0; i < MEMCG_HEADROOM_FOLIOS; i++) {
		taken[i] = folio_alloc_on(pool, KVPOOL_BLOCK_ORDER,
					  KVPOOL_GFP & ~__GFP_ZERO);
		if (!taken[i])
			break;
	}
	nr_taken = i;
	while (i-- > 0)
		folio_free(taken[i]);
	return nr_taken == MEMCG_HEADROOM_FOLIOS;
}

/**
 * kvpool_folio_create() - a zeroed folio, charged to an account
 * @pool: pays with the limit
 * @account: pays with the quota
 * @index: first page in the buffer it is meant for
 * @order: of the folio
 * @out_f: the record, which no buffer holds yet
 *
 * Context: may sleep; no lock of the module is held.
 * Return: 0, -ENOSPC, -EDQUOT, -ENOMEM.
 */
int kvpool_folio_create(struct kvpool_pool *pool,
			struct kvpool_account *account, pgoff_t index,
			unsigned int order, struct kvpool_folio **out_f)
{
	const u64 bytes = (u64)PAGE_SIZE << order;
	struct kvpool_folio *f;
	int rc;

	f = kmem_cache_zalloc(folio_cache, KVPOOL_RECORD_GFP);
	if (!f)
		return -ENOMEM;
	f->owner = account;
	f->index = index;
	f->order = order;
	if (order == KVPOOL_HUGE_ORDER)
		f->folio = reserve_take(pool, account);
	if (!f->folio) {
		rc = charge_or_purge(pool, account, bytes);
		if (rc)
			goto err_free;
		f->folio = folio_alloc_on(pool, order, KVPOOL_GFP);
		if (f->folio && !kvpool_has_headroom(pool)) {
			folio_free(f->folio);
			f->folio = NULL;
		}
		if (!f->folio) {
			rc = -ENOMEM;
			goto err_uncharge;
		}
	}
	f->nr_bufs = 1;
	spin_lock(&pool->acct_lock);
	pool->resident += bytes;
	if (order == KVPOOL_HUGE_ORDER)
		pool->huge += bytes;
	spin_unlock(&pool->acct_lock);
	*out_f = f;
	return 0;

err_uncharge:
	kvpool_uncharge(pool, account, bytes);
err_free:
	kmem_cache_free(folio_cache, f);
	return rc;
}

/* One more buffer holds it. Context: sem of a buffer that holds it. */
void kvpool_folio_share(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	spin_lock(&pool->acct_lock);
	f->nr_bufs++;
	spin_unlock(&pool->acct_lock);
}

unsigned int kvpool_folio_nr_bufs(struct kvpool_pool *pool,
				  struct kvpool_folio *f)
{
	unsigned int nr;

	spin_lock(&pool->acct_lock);
	nr = f->nr_bufs;
	spin_unlock(&pool->acct_lock);
	return nr;
}

/* ---- giving back ---------------------------------------------------------- */

/* Ends the charge of a folio that is no longer in any buffer. */
static void folio_uncharge(struct kvpool_pool *pool, struct kvpool_folio *f,
			   bool is_withdrawn)
{
	struct kvpool_account *payer = f->publisher ?: f->owner;
	const u64 bytes = kvpool_folio_bytes(f);

	spin_lock(&pool->acct_lock);
	pool->charged -= bytes;
	if (f->publisher)
		payer->shared -= bytes;
	else
		payer->private -= bytes;
	if (f->is_draining) {
		pool->draining -= bytes;
		payer->draining -= bytes;
	}
	if (is_withdrawn)
		pool->poisoned += bytes;
	kvpool_note_pressure(pool);
	spin_unlock(&pool->acct_lock);
}

/*
 * Free a folio whose one reference is ours and frozen. Reclaim may call.
 * Context: the record is in no buffer and no list.
 */
void kvpool_folio_free_frozen(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	folio_ref_unfreeze(f->folio, 1);
	folio_free(f->folio);
	folio_uncharge(pool, f, false);
	kmem_cache_free(folio_cache, f);
}

/*
 * A folio with a failed page never comes back. The system keeps single pages
 * out by itself when they are freed; of a larger folio it would not, so our
 * reference stays for ever.
 */
static void folio_withdraw(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	atomic_long_dec(&nr_folios);
	if (!f->order)
		folio_put(f->folio);
	folio_uncharge(pool, f, true);
	kmem_cache_free(folio_cache, f);
}

/* Return: whether the folio, of no buffer any longer, is gone. */
static bool folio_try_free(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	if (kvpool_folio_is_poisoned(f)) {
		folio_withdraw(pool, f);
		return true;
	}
	if (!folio_ref_freeze(f->folio, 1))
		return false;
	kvpool_folio_free_frozen(pool, f);
	return true;
}

static void folio_drain(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	struct kvpool_account *payer = f->publisher ?: f->owner;
	const u64 bytes = kvpool_folio_bytes(f);

	spin_lock(&pool->acct_lock);
	f->is_draining = true;
	pool->draining += bytes;
	payer->draining += bytes;
	spin_unlock(&pool->acct_lock);
	trace_kvpool_drain(pool, bytes, pool->draining);
	spin_lock(&pool->drain_lock);
	list_add_tail(&f->list, &pool->drain);
	spin_unlock(&pool->drain_lock);
	kvpool_pool_get(pool);
	if (!queue_delayed_work(kvpool_wq, &pool->drain_work, drain_delay))
		kvpool_pool_put(pool);
}

/* Holds a reference of the pool, which it passes on to its next run. */
void kvpool_drain_work(struct work_struct *work)
{
	struct kvpool_pool *pool = container_of(to_delayed_work(work),
						struct kvpool_pool, drain_work);
	struct kvpool_folio *f, *next;
	LIST_HEAD(waiting);
	bool is_empty;

	spin_lock(&pool->drain_lock);
	list_splice_init(&pool->drain, &waiting);
	spin_unlock(&pool->drain_lock);
	list_for_each_entry_safe(f, next, &waiting, list) {
		list_del(&f->list);
		if (!folio_try_free(pool, f)) {
			spin_lock(&pool->drain_lock);
			list_add_tail(&f->list, &pool->drain);
			spin_unlock(&pool->drain_lock);
		}
		cond_resched();
	}
	spin_lock(&pool->drain_lock);
	is_empty = list_empty(&pool->drain);
	spin_unlock(&pool->drain_lock);
	if (is_empty ||
	    !queue_delayed_work(kvpool_wq, &pool->drain_work, drain_delay))
		kvpool_pool_put(pool);
}

/* A folio leaves the resident memory: its last buffer let go of it. */
static void folio_retire(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	if (!folio_try_free(pool, f))
		folio_drain(pool, f);
}

/* One buffer fewer holds it. Return: whether it was the last one. */
bool kvpool_folio_unshare(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	const u64 bytes = kvpool_folio_bytes(f);
	bool is_last, was_volatile;

	spin_lock(&pool->acct_lock);
	was_volatile = kvpool_folio_is_volatile(f);
	is_last = --f->nr_bufs == 0;
	/* Those that are left may all be volatile. */
	kvpool_folio_recount(pool, f, was_volatile);
	if (is_last) {
		pool->resident -= bytes;
		if (f->order == KVPOOL_HUGE_ORDER)
			pool->huge -= bytes;
		if (f->publisher)
			pool->shared -= bytes;
	}
	spin_unlock(&pool->acct_lock);
	return is_last;
}

/*
 * Undo kvpool_folio_create(), or end a buffer's hold of a folio that is mapped
 * nowhere through it any longer.
 */
void kvpool_folio_destroy(struct kvpool_pool *pool, struct kvpool_folio *f)
{
	if (kvpool_folio_unshare(pool, f))
		folio_retire(pool, f);
}

int __init kvpool_folio_init(void)
{
	folio_cache = KMEM_CACHE(kvpool_folio, SLAB_ACCOUNT);
	return folio_cache ? 0 : -ENOMEM;
}

void kvpool_folio_exit(void)
{
	if (kvpool_folios_left())
		pr_warn("kvpool: %ld folios left behind\n",
			kvpool_folios_left());
	kmem_cache_destroy(folio_cache);
}
