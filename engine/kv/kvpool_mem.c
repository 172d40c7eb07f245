/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memories of a pool: page maps, birth, recycling, death. Sizes are rounded up
 * to classes, so that a memory whose last handle is gone can serve the next
 * buffer of about its size, pages included. What is counted where is
 * kvpool_account.c's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/kvpool_local.h"

enum { BITS = 64 };

uint64_t kvpool_map_count(const uint64_t *map, uint64_t first, uint64_t end)
{
	uint64_t count = 0;

	while (first < end) {
		uint64_t bit = first % BITS;
		uint64_t span = BITS - bit < end - first ? BITS - bit :
							   end - first;
		uint64_t word = map[first / BITS] >> bit;

		if (span < BITS)
			word &= (1ull << span) - 1;
		count += (uint64_t)__builtin_popcountll(word);
		first += span;
	}
	return count;
}

static bool page_fits(const uint64_t *yes, const uint64_t *no, uint64_t page)
{
	uint64_t bit = 1ull << (page % BITS);

	return (!yes || (yes[page / BITS] & bit)) && !(no[page / BITS] & bit);
}

uint64_t kvpool_map_run(const uint64_t *yes, const uint64_t *no,
			uint64_t *first, uint64_t end)
{
	uint64_t page = *first;

	while (page < end && !page_fits(yes, no, page)) {
		uint64_t word = ~no[page / BITS] &
				(yes ? yes[page / BITS] : ~0ull);

		/* Nothing in this word: on to the next. */
		page = word ? page + 1 : (page / BITS + 1) * BITS;
	}
	*first = page < end ? page : end;
	while (page < end && page_fits(yes, no, page))
		page++;
	return page < end ? page - *first : end - *first;
}

void kvpool_map_set(uint64_t *map, uint64_t first, uint64_t end, bool value)
{
	while (first < end) {
		uint64_t bit = first % BITS;
		uint64_t span = BITS - bit < end - first ? BITS - bit :
							   end - first;
		uint64_t mask = (span < BITS ? (1ull << span) - 1 : ~0ull)
				<< bit;

		if (value)
			map[first / BITS] |= mask;
		else
			map[first / BITS] &= ~mask;
		first += span;
	}
}

void kvpool_map_copy(uint64_t *to, const uint64_t *from, uint64_t nr_pages)
{
	memcpy(to, from, (nr_pages / BITS + 1) * sizeof(*to));
}

/* Quarters of a power of two: at most a fifth of the addresses is never used. */
static uint64_t size_class(const struct kvpool_local *pool, uint64_t bytes)
{
	uint64_t step = pool->base.page_bytes;

	while (step * 8 < bytes)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

struct kvpool_mem *kvpool_mem_alloc(struct kvpool_local *pool,
				    uint64_t size_bytes)
{
	struct kvpool_mem *mem = kvpool_sys.calloc(1, sizeof(*mem));

	if (!mem)
		return NULL;
	mem->pool = pool;
	mem->class_bytes = size_class(pool, size_bytes);
	size_t words = kvpool_nr_pages(mem) / BITS + 1;

	mem->present = kvpool_sys.calloc(words, sizeof(uint64_t));
	mem->committed = kvpool_sys.calloc(words, sizeof(uint64_t));
	if (!mem->present || !mem->committed) {
		free(mem->present);
		free(mem->committed);
		free(mem);
		return NULL;
	}
	mem->size_bytes = size_bytes;
	mem->fd = -1;
	pthread_mutex_init(&mem->lock, NULL);
	return mem;
}

void kvpool_mem_free(struct kvpool_mem *mem)
{
	mem->pool->ops->destroy(mem);
	pthread_mutex_destroy(&mem->lock);
	free(mem->present);
	free(mem->committed);
	free(mem);
}

void kvpool_mem_insert_locked(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;

	mem->id = ++pool->next_id;
	mem->nr_refs = 1;
	mem->nr_votes = 1;
	mem->is_idle = false;
	TAILQ_INSERT_TAIL(&pool->live, mem, link);
	pool->nr_live++;
	pool->virtual_bytes += mem->size_bytes;
	kvpool_account_locked(mem, 0, 0);
}

/* Whether addresses of @stride_bytes start where @mem does. */
static bool is_stride_met(const struct kvpool_mem *mem, uint64_t stride_bytes)
{
	struct kvpool_local *pool = mem->pool;

	if (!stride_bytes || stride_bytes == mem->stride_bytes)
		return true;
	return pool->ops->base &&
	       (uint64_t)(mem->addr - (uint8_t *)pool->ops->base(pool)) %
			       stride_bytes ==
		       0;
}

/* The warmest memory of the class: the one that became idle last. */
static struct kvpool_mem *take_idle_locked(struct kvpool_local *pool,
					   uint64_t class_bytes,
					   uint64_t stride_bytes)
{
	struct kvpool_mem *mem;

	TAILQ_FOREACH_REVERSE(mem, &pool->idle, kvpool_mem_list, link)
	{
		if (mem->class_bytes == class_bytes &&
		    is_stride_met(mem, stride_bytes)) {
			TAILQ_REMOVE(&pool->idle, mem, link);
			return mem;
		}
	}
	return NULL;
}

/* A memory kept from earlier, its spare pages within the quota of its new owner; or NULL. */
static struct kvpool_mem *recycled_locked(struct kvpool_local *pool,
					  uint64_t size_bytes,
					  uint64_t stride_bytes, uid_t owner,
					  struct kvpool_owner *account)
{
	kvpool_reap_locked(pool);
	struct kvpool_mem *mem = take_idle_locked(
		pool, size_class(pool, size_bytes), stride_bytes);

	if (!mem)
		return NULL;
	mem->account = account;
	if (mem->nr_present * kvpool_page(mem) >
	    kvpool_owner_room_locked(mem)) {
		mem->account = NULL;
		TAILQ_INSERT_TAIL(&pool->idle, mem, link);
		return NULL;
	}
	mem->size_bytes = size_bytes;
	mem->stride_bytes = stride_bytes;
	mem->owner = owner;
	kvpool_mem_insert_locked(mem);
	return mem;
}

/* As the backend makes it; if need be without idle memories, which hold descriptors, addresses. */
static int create_mem(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	int err = pool->ops->create(mem, mem->stride_bytes);

	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM)
		return err;
	pthread_mutex_lock(&pool->lock);
	uint64_t dropped = kvpool_drop_spare_locked(pool, UINT64_MAX, NULL);

	pthread_mutex_unlock(&pool->lock);
	return dropped ? pool->ops->create(mem, mem->stride_bytes) : err;
}

int kvpool_mem_create(struct kvpool_local *pool, uint64_t size_bytes,
		      uint64_t stride_bytes, uid_t owner,
		      struct kvpool_mem **out_mem)
{
	bool has_quota = pool->base.features & KVPOOL_F_QUOTA;

	pthread_mutex_lock(&pool->lock);
	struct kvpool_owner *account =
		has_quota ? kvpool_owner_locked(pool, owner) : NULL;
	struct kvpool_mem *mem = has_quota && !account ?
					 NULL :
					 recycled_locked(pool, size_bytes,
							 stride_bytes, owner,
							 account);

	pthread_mutex_unlock(&pool->lock);
	if (mem) {
		*out_mem = mem;
		return 0;
	}
	mem = has_quota && !account ? NULL : kvpool_mem_alloc(pool, size_bytes);
	if (!mem)
		return -ENOMEM;
	mem->owner = owner;
	mem->account = account;
	mem->stride_bytes = stride_bytes;
	int err = create_mem(mem);

	if (err) {
		kvpool_mem_free(mem);
		return err;
	}
	pthread_mutex_lock(&pool->lock);
	kvpool_mem_insert_locked(mem);
	pthread_mutex_unlock(&pool->lock);
	*out_mem = mem;
	return 0;
}

/* Forget the life that ended; the pages stay, as spare ones. */
static void recycle_locked(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;

	mem->sealed_n = 0;
	mem->purge_count = 0;
	mem->is_purged = false;
	mem->is_idle = true;
	kvpool_account_locked(mem, 0, 0);
	mem->account = NULL;
	TAILQ_INSERT_TAIL(&pool->idle, mem, link);
	uint64_t most = pool->spare_limit_bytes;

	/* What drained may come back when the limit is lower than it was. */
	if (pool->limit_bytes < pool->resident_bytes)
		most = 0;
	else if (pool->limit_bytes - pool->resident_bytes < most)
		most = pool->limit_bytes - pool->resident_bytes;
	if (pool->spare_bytes > most)
		kvpool_drop_spare_locked(pool, pool->spare_bytes - most, NULL);
}

/* Count the pages of @mem, which is nobody's, as draining ones or no longer so. */
static void set_draining_locked(struct kvpool_mem *mem, bool value)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t bytes = mem->is_imported ? 0 :
					    mem->nr_present * kvpool_page(mem);

	if (mem->is_draining == value)
		return;
	mem->is_draining = value;
	if (value) {
		pool->spare_bytes -= bytes;
		pool->draining_bytes += bytes;
		TAILQ_INSERT_TAIL(&pool->draining, mem, link);
	} else {
		TAILQ_REMOVE(&pool->draining, mem, link);
		pool->draining_bytes -= bytes;
		pool->spare_bytes += bytes;
	}
}

/* Nobody has @mem any more, which has no committed pages: keep it, free it, or let it drain. */
static void retire_locked(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	/* Protected pages can never be written again: they are not recycled. */
	bool is_wanted = !mem->is_protected && mem->nr_present > 0 &&
			 pool->spare_limit_bytes > 0;
	int64_t gone = (int64_t)mem->nr_present;

	if (pool->ops->is_busy && pool->ops->is_busy(mem)) {
		set_draining_locked(mem, true);
		return;
	}
	if (is_wanted) {
		set_draining_locked(mem, false);
		recycle_locked(mem);
		return;
	}
	/* Where pages can fail to go, they go before the memory does. */
	if (pool->ops->settle && gone)
		gone = pool->ops->punch(mem, 0, kvpool_nr_pages(mem));
	kvpool_account_locked(mem, 0, gone > 0 ? -gone : 0);
	if (mem->nr_present) {
		set_draining_locked(mem, true);
		return;
	}
	set_draining_locked(mem, false);
	kvpool_mem_free(mem);
}

void kvpool_reap_locked(struct kvpool_local *pool)
{
	struct kvpool_mem *mem, *next;

	for (mem = TAILQ_FIRST(&pool->draining); mem; mem = next) {
		next = TAILQ_NEXT(mem, link);
		retire_locked(mem);
	}
}

void kvpool_mem_put_locked(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;

	if (--mem->nr_refs)
		return;
	if (mem->is_volatile) {
		/* Nobody is left to ask whether it survived. */
		mem->nr_votes = 1;
		kvpool_votes_changed_locked(mem);
	}
	mem->nr_votes = 0;
	TAILQ_REMOVE(&pool->live, mem, link);
	pool->nr_live--;
	pool->virtual_bytes -= mem->size_bytes;
	if (pool->ops->retire_all)
		pool->ops->retire_all(mem);
	kvpool_map_set(mem->committed, 0, kvpool_nr_pages(mem), false);
	kvpool_account_locked(mem, -(int64_t)mem->nr_committed, 0);
	retire_locked(mem);
}
