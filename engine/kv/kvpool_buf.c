/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of local pools: handles and what is done to the memory behind them.
 * Every call takes the memory's lock, and leaves counting to kvpool_account.c.
 * Called by the front, which has checked the arguments. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/kvpool_local.h"

int kvpool_handle_create(struct kvpool_mem *mem, bool is_read_only,
			 struct kvpool_buf **out_buf)
{
	struct kvpool_local_buf *buf = kvpool_sys.calloc(1, sizeof(*buf));

	if (!buf)
		return -ENOMEM;
	buf->base.pool = kvpool_get(&mem->pool->base);
	buf->base.id = mem->id;
	buf->base.size_bytes = mem->size_bytes;
	buf->base.addr = mem->addr;
	buf->base.is_read_only = is_read_only;
	atomic_init(&buf->base.nr_refs, 1);
	buf->mem = mem;
	buf->is_needed = true;
	buf->seen_purges = mem->purge_count;
	*out_buf = &buf->base;
	return 0;
}

int kvpool_local_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
			struct kvpool_buf **out_buf)
{
	struct kvpool_mem *mem;
	int err =
		kvpool_mem_create(kvpool_local(pool), size_bytes, owner, &mem);

	if (err)
		return err;
	err = kvpool_handle_create(mem, false, out_buf);
	if (err) {
		pthread_mutex_lock(&mem->pool->lock);
		kvpool_mem_put_locked(mem);
		pthread_mutex_unlock(&kvpool_local(pool)->lock);
	}
	return err;
}

void kvpool_local_free(struct kvpool_buf *base)
{
	struct kvpool_local_buf *buf = kvpool_local_buf(base);
	struct kvpool_mem *mem = buf->mem;
	struct kvpool_local *pool = mem->pool;

	pthread_mutex_lock(&pool->lock);
	if (buf->is_needed) {
		mem->nr_votes--;
		/* Kept by its publication alone: it may be taken from now on. */
		if (mem->nr_refs > 1)
			kvpool_votes_changed_locked(mem);
	}
	kvpool_mem_put_locked(mem);
	pthread_mutex_unlock(&pool->lock);
	free(buf);
}

/* Absent pages of the range become present and counted; mem->lock held. */
static int populate_range(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	uint64_t page = first, len;

	for (; (len = kvpool_map_run(NULL, mem->present, &page, end));
	     page += len) {
		int err = mem->pool->ops->populate(
			mem, page * KVPOOL_PAGE_BYTES, len * KVPOOL_PAGE_BYTES);

		if (!err)
			continue;
		/* All or nothing: the runs before this one go again. */
		uint64_t undo = first;

		for (; (len = kvpool_map_run(NULL, mem->present, &undo, page));
		     undo += len)
			mem->pool->ops->punch(mem, undo * KVPOOL_PAGE_BYTES,
					      len * KVPOOL_PAGE_BYTES);
		return err;
	}
	kvpool_map_set(mem->present, first, end, true);
	return 0;
}

static int commit_locked(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t nr_committed = kvpool_map_count(mem->committed, first, end);
	uint64_t nr_spare =
		kvpool_map_count(mem->present, first, end) - nr_committed;
	uint64_t nr_new = end - first - nr_committed - nr_spare;

	pthread_mutex_lock(&pool->lock);
	mem->guard_first = first;
	mem->guard_end = end;
	int err = mem->is_volatile ?
			  -EPERM :
			  kvpool_charge_locked(mem, nr_new, nr_spare);

	mem->guard_first = 0;
	mem->guard_end = 0;
	if (!err)
		pool->commits++;
	pthread_mutex_unlock(&pool->lock);
	if (err)
		return err;
	err = nr_new ? populate_range(mem, first, end) : 0;
	if (err) {
		pthread_mutex_lock(&pool->lock);
		kvpool_account_locked(mem, -(int64_t)(nr_new + nr_spare),
				      -(int64_t)nr_new);
		pool->commits--;
		pthread_mutex_unlock(&pool->lock);
		return err;
	}
	kvpool_map_set(mem->committed, first, end, true);
	return 0;
}

/* What a writer may not touch: sealed bytes and protected memory. */
static bool is_closed(const struct kvpool_mem *mem, uint64_t offset)
{
	return mem->is_protected || offset < kvpool_round_up(mem->sealed_n);
}

int kvpool_local_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;

	pthread_mutex_lock(&mem->lock);
	int err = is_closed(mem, offset) ?
			  -EPERM :
			  commit_locked(mem, offset / KVPOOL_PAGE_BYTES,
					(offset + len) / KVPOOL_PAGE_BYTES);

	pthread_mutex_unlock(&mem->lock);
	return err;
}

/* Committed pages of the range go; what cannot be given back stays as spare pages. */
static void release_locked(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	uint64_t nr_committed = kvpool_map_count(mem->committed, first, end);
	uint64_t nr_punched = 0, page = first, len;

	kvpool_map_set(mem->committed, first, end, false);
	for (; (len = kvpool_map_run(mem->present, mem->committed, &page, end));
	     page += len) {
		if (mem->pool->ops->punch(mem, page * KVPOOL_PAGE_BYTES,
					  len * KVPOOL_PAGE_BYTES))
			continue;
		kvpool_map_set(mem->present, page, page + len, false);
		nr_punched += len;
	}
	pthread_mutex_lock(&mem->pool->lock);
	kvpool_account_locked(mem, -(int64_t)nr_committed,
			      -(int64_t)nr_punched);
	mem->pool->releases++;
	pthread_mutex_unlock(&mem->pool->lock);
}

int kvpool_local_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	int err = 0;

	pthread_mutex_lock(&mem->lock);
	if (is_closed(mem, offset))
		err = -EPERM;
	else
		release_locked(mem, offset / KVPOOL_PAGE_BYTES,
			       (offset + len) / KVPOOL_PAGE_BYTES);
	pthread_mutex_unlock(&mem->lock);
	return err;
}

int kvpool_local_seal(struct kvpool_buf *buf, uint64_t n)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	int err = 0;

	pthread_mutex_lock(&mem->lock);
	if (n < mem->sealed_n || (mem->is_protected && n > mem->sealed_n)) {
		err = -EPERM;
	} else if (n > mem->sealed_n) {
		uint64_t page = n / KVPOOL_PAGE_BYTES,
			 rest = n % KVPOOL_PAGE_BYTES;

		/* Recycled pages hold what was there before. */
		if (rest && kvpool_map_count(mem->committed, page, page + 1))
			memset(mem->addr + n, 0, KVPOOL_PAGE_BYTES - rest);
		mem->sealed_n = n;
		pthread_mutex_lock(&mem->pool->lock);
		mem->pool->seals++;
		pthread_mutex_unlock(&mem->pool->lock);
	}
	pthread_mutex_unlock(&mem->lock);
	return err;
}

int kvpool_local_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		       uid_t owner, struct kvpool_buf **out_buf)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	uint64_t end = kvpool_round_up(n) / KVPOOL_PAGE_BYTES;
	struct kvpool_buf *copy;
	int err = kvpool_local_create(buf->pool, size_bytes, owner, &copy);

	if (err)
		return err;
	pthread_mutex_lock(&mem->lock);
	if (!mem->is_imported &&
	    kvpool_map_count(mem->committed, 0, end) != end)
		err = -ERANGE;
	if (!err)
		err = kvpool_local_commit(copy, 0, end * KVPOOL_PAGE_BYTES);
	if (!err)
		memcpy(copy->addr, mem->addr, n);
	pthread_mutex_unlock(&mem->lock);
	if (err)
		kvpool_buf_put(copy);
	else
		*out_buf = copy;
	return err;
}

int kvpool_local_buf_stat(struct kvpool_buf *buf,
			  struct kvpool_buf_stat *out_stat)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	uint32_t nr_keys = 0;

	pthread_mutex_lock(&mem->lock);
	pthread_mutex_lock(&mem->pool->lock);
	uint64_t resident = mem->nr_committed * KVPOOL_PAGE_BYTES;

	for (struct kvpool_key_entry *e = mem->keys; e; e = e->next_of_mem)
		nr_keys++;
	*out_stat = (struct kvpool_buf_stat){
		.id = mem->id,
		.size_bytes = mem->size_bytes,
		.resident_bytes = resident,
		.sealed_bytes = kvpool_round_up(mem->sealed_n),
		.charged_bytes = mem->is_imported ? 0 : resident,
		.private_bytes = resident,
		.owner = mem->owner,
		.publisher = mem->is_published ? geteuid() : (uid_t)-1,
		.is_volatile = mem->is_volatile,
		.is_published = mem->is_published,
		.is_purged = mem->is_purged,
		.nr_refs = mem->nr_refs,
		.nr_votes = mem->nr_votes,
		.nr_keys = nr_keys,
	};
	pthread_mutex_unlock(&mem->pool->lock);
	pthread_mutex_unlock(&mem->lock);
	return 0;
}

int kvpool_local_advise(struct kvpool_buf *base, enum kvpool_advice advice,
			bool *out_survived)
{
	struct kvpool_local_buf *buf = kvpool_local_buf(base);
	struct kvpool_mem *mem = buf->mem;
	bool is_needed = advice == KVPOOL_WILLNEED;

	pthread_mutex_lock(&mem->pool->lock);
	if (is_needed != buf->is_needed) {
		buf->is_needed = is_needed;
		mem->nr_votes += is_needed ? 1 : -1;
		kvpool_votes_changed_locked(mem);
	}
	if (is_needed) {
		if (out_survived)
			*out_survived = buf->seen_purges == mem->purge_count;
		buf->seen_purges = mem->purge_count;
		mem->is_purged = false;
	}
	pthread_mutex_unlock(&mem->pool->lock);
	return 0;
}
