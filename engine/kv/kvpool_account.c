/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has how much of a pool: the limit, spare pages, purging of volatile
 * memory. resident + spare <= limit holds whenever pool->lock is free.
 * Everything here runs with pool->lock held; room is made in the order spare
 * pages, volatile memory, refusal.
 */
#include <errno.h>

#include "engine/kv/kvpool_local.h"

static void live_spare_update(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	bool should = !mem->is_idle && mem->nr_refs &&
		      mem->nr_present > mem->nr_committed;

	if (should == mem->in_live_spare)
		return;
	if (should)
		TAILQ_INSERT_TAIL(&pool->live_spare, mem, spare_link);
	else
		TAILQ_REMOVE(&pool->live_spare, mem, spare_link);
	mem->in_live_spare = should;
}

void kvpool_account_locked(struct kvpool_mem *mem, int64_t committed,
			   int64_t present)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t page = kvpool_page(mem);
	uint64_t resident = (uint64_t)committed * page;

	/* Unsigned wrap-around carries the sign. */
	mem->nr_committed += (uint64_t)committed;
	mem->nr_present += (uint64_t)present;
	if (mem->is_draining) {
		pool->draining_bytes += (uint64_t)present * page;
	} else if (!mem->is_imported) {
		pool->resident_bytes += resident;
		pool->spare_bytes += (uint64_t)(present - committed) * page;
		if (mem->is_volatile)
			pool->volatile_bytes += resident;
		if (mem->is_published)
			pool->shared_bytes += resident;
	}
	if (pool->resident_bytes > pool->peak_resident_bytes)
		pool->peak_resident_bytes = pool->resident_bytes;
	live_spare_update(mem);
	kvpool_owner_update_locked(mem);
	if (pool->ops->settle)
		pool->ops->settle(mem);

	bool is_pressed = pool->resident_bytes > pool->limit_bytes / 8 * 7;

	if (is_pressed && !pool->is_pressed)
		kvpool_event_locked(pool, KVPOOL_EVENT_PRESSURE, 0,
				    pool->resident_bytes);
	pool->is_pressed = is_pressed;
}

void kvpool_votes_changed_locked(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t bytes =
		mem->is_imported ? 0 : mem->nr_committed * kvpool_page(mem);
	bool is_volatile = mem->nr_votes == 0;

	if (is_volatile == mem->is_volatile)
		return;
	mem->is_volatile = is_volatile;
	if (is_volatile) {
		TAILQ_INSERT_TAIL(&pool->volatiles, mem, volatile_link);
		pool->volatile_bytes += bytes;
		if (pool->ops->retire_all)
			pool->ops->retire_all(mem);
	} else {
		TAILQ_REMOVE(&pool->volatiles, mem, volatile_link);
		pool->volatile_bytes -= bytes;
	}
}

/* Spare pages of [first, end), the last ones first to go. Return: pages. */
static uint64_t drop_spare_range(struct kvpool_mem *mem, uint64_t first,
				 uint64_t end, uint64_t wanted)
{
	uint64_t left = kvpool_map_count(mem->present, first, end) -
			kvpool_map_count(mem->committed, first, end);
	uint64_t to_keep = left > wanted ? left - wanted : 0;
	uint64_t dropped = 0, len;

	for (;
	     (len = kvpool_map_run(mem->present, mem->committed, &first, end));
	     first += len) {
		uint64_t start = first + (len < to_keep ? len : to_keep);
		uint64_t nr = first + len - start;

		to_keep -= len - nr;
		int64_t gone =
			nr ? mem->pool->ops->punch(mem, start, start + nr) : 0;

		dropped += gone > 0 ? (uint64_t)gone : 0;
	}
	return dropped;
}

/* Spare pages of one memory: new content starts at the front, so the end goes first. */
static uint64_t drop_spare_of(struct kvpool_mem *mem, uint64_t bytes)
{
	uint64_t nr_pages = kvpool_nr_pages(mem);
	uint64_t wanted = (bytes - 1) / kvpool_page(mem) + 1;
	uint64_t dropped =
		drop_spare_range(mem, mem->guard_end, nr_pages, wanted);

	if (dropped < wanted)
		dropped += drop_spare_range(mem, 0, mem->guard_first,
					    wanted - dropped);
	kvpool_account_locked(mem, 0, -(int64_t)dropped);
	return dropped * kvpool_page(mem);
}

/* Live memories keep spare pages only by chance; sealed ones cannot use them any more. */
static uint64_t drop_live_spare(struct kvpool_local *pool, uint64_t bytes,
				struct kvpool_mem *self, bool is_sealed,
				const struct kvpool_owner *owner)
{
	uint64_t dropped = 0;
	struct kvpool_mem *mem, *next;

	for (mem = TAILQ_FIRST(&pool->live_spare); mem && dropped < bytes;
	     mem = next) {
		next = TAILQ_NEXT(mem, spare_link);
		if ((owner && mem->account != owner) ||
		    (mem != self && pthread_mutex_trylock(&mem->lock)))
			continue;
		if ((mem->sealed_n > 0) == is_sealed)
			dropped += drop_spare_of(mem, bytes - dropped);
		if (mem != self)
			pthread_mutex_unlock(&mem->lock);
	}
	return dropped;
}

static uint64_t drop_idle(struct kvpool_local *pool, uint64_t bytes)
{
	uint64_t dropped = 0;
	struct kvpool_mem *mem, *next;

	for (mem = TAILQ_FIRST(&pool->idle); mem && dropped < bytes;
	     mem = next) {
		next = TAILQ_NEXT(mem, link);
		dropped += drop_spare_of(mem, bytes - dropped);
		if (!mem->nr_present) {
			TAILQ_REMOVE(&pool->idle, mem, link);
			kvpool_mem_free(mem);
		}
	}
	return dropped;
}

uint64_t kvpool_drop_spare_locked(struct kvpool_local *pool, uint64_t bytes,
				  struct kvpool_mem *self)
{
	if (!bytes)
		return 0;
	bool was_making_room = pool->is_making_room;

	pool->is_making_room = true;
	uint64_t dropped = pool->ops->trim ? pool->ops->trim(pool, bytes) : 0;

	if (dropped < bytes)
		dropped += drop_live_spare(pool, bytes - dropped, self, true,
					   NULL);
	if (dropped < bytes)
		dropped += drop_idle(pool, bytes - dropped);
	if (dropped < bytes)
		dropped += drop_live_spare(pool, bytes - dropped, self, false,
					   NULL);
	pool->is_making_room = was_making_room;
	return dropped;
}

/* Empty one volatile memory. Return: bytes; 0 when it cannot go now. */
static uint64_t purge_one(struct kvpool_mem *mem)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t bytes = mem->nr_committed * kvpool_page(mem);
	int64_t gone = pool->ops->purge(mem);

	if (gone < 0)
		return 0;
	kvpool_map_set(mem->committed, 0, kvpool_nr_pages(mem), false);
	kvpool_account_locked(mem, -(int64_t)mem->nr_committed, -gone);
	mem->is_protected = false;
	mem->is_purged = true;
	mem->sealed_n = 0;
	mem->purge_count++;
	pool->purges++;
	kvpool_event_locked(pool, KVPOOL_EVENT_PURGED, mem->id, bytes);
	return bytes;
}

uint64_t kvpool_purge_locked(struct kvpool_local *pool, uint64_t bytes,
			     struct kvpool_mem *self,
			     const struct kvpool_owner *owner,
			     bool with_exported)
{
	bool was_making_room = pool->is_making_room;
	uint64_t purged = 0;
	struct kvpool_mem *mem, *next;

	pool->is_making_room = true;
	for (mem = TAILQ_FIRST(&pool->volatiles); mem && purged < bytes;
	     mem = next) {
		next = TAILQ_NEXT(mem, volatile_link);
		/* Exported pages live on elsewhere: dropping our mapping frees nothing. */
		if (mem == self || !mem->nr_committed ||
		    (mem->is_exported && !with_exported) || mem->is_imported ||
		    (owner && mem->account != owner) ||
		    pthread_mutex_trylock(&mem->lock))
			continue;
		purged += purge_one(mem);
		pthread_mutex_unlock(&mem->lock);
		if (mem->is_published && mem->is_purged) {
			kvpool_keys_remove_locked(mem);
			kvpool_mem_put_locked(mem);
		}
	}
	pool->is_making_room = was_making_room;
	return purged;
}

static uint64_t total_bytes(const struct kvpool_local *pool)
{
	return pool->resident_bytes + pool->spare_bytes + pool->draining_bytes;
}

uint64_t kvpool_room_locked(const struct kvpool_local *pool)
{
	uint64_t total = total_bytes(pool);

	return total < pool->limit_bytes ? pool->limit_bytes - total : 0;
}

static uint64_t excess_bytes(const struct kvpool_local *pool, uint64_t bytes)
{
	uint64_t total = total_bytes(pool) + bytes;

	return total > pool->limit_bytes ? total - pool->limit_bytes : 0;
}

/* Room within the owner's quota: by his own spare pages and volatile memory, nobody else's. */
static int charge_owner(struct kvpool_mem *self, uint64_t bytes)
{
	struct kvpool_local *pool = self->pool;
	uint64_t room = kvpool_owner_room_locked(self);

	if (bytes <= room)
		return 0;
	pool->is_making_room = true;
	drop_live_spare(pool, bytes - room, self, true, self->account);
	room = kvpool_owner_room_locked(self);
	if (bytes > room)
		drop_live_spare(pool, bytes - room, self, false, self->account);
	pool->is_making_room = false;
	room = kvpool_owner_room_locked(self);
	if (bytes > room)
		kvpool_purge_locked(pool, bytes - room, self, self->account,
				    false);
	return bytes <= kvpool_owner_room_locked(self) ? 0 : -EDQUOT;
}

int kvpool_charge_locked(struct kvpool_mem *self, uint64_t nr_new,
			 uint64_t nr_spare, uint64_t nr_ahead)
{
	struct kvpool_local *pool = self->pool;
	uint64_t bytes = nr_new * kvpool_page(self);

	if (bytes && (excess_bytes(pool, bytes) ||
		      bytes > kvpool_owner_room_locked(self)))
		kvpool_reap_locked(pool);
	int err = bytes ? charge_owner(self, bytes) : 0;

	if (err)
		return err;
	if (bytes && excess_bytes(pool, bytes))
		kvpool_drop_spare_locked(pool, excess_bytes(pool, bytes), self);
	if (bytes && excess_bytes(pool, bytes))
		kvpool_purge_locked(pool, excess_bytes(pool, bytes), self, NULL,
				    false);
	if (bytes && excess_bytes(pool, bytes)) {
		kvpool_event_locked(pool, KVPOOL_EVENT_LIMIT, self->id, bytes);
		return -ENOSPC;
	}
	kvpool_account_locked(self, (int64_t)(nr_new + nr_spare),
			      (int64_t)(nr_new + nr_ahead));
	return 0;
}
