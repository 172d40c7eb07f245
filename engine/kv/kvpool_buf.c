/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: handles and what is done to the memory behind them. Every call
 * checks its range, takes the memory's lock, and leaves counting to
 * kvpool_account.c. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/kvpool_private.h"

int kvpool_handle_create(struct kvpool_mem *mem, bool is_read_only,
			 struct kvpool_buf **out_buf)
{
	struct kvpool_buf *buf = kvpool_sys.calloc(1, sizeof(*buf));

	if (!buf)
		return -ENOMEM;
	buf->mem = mem;
	buf->is_read_only = is_read_only;
	buf->is_needed = true;
	buf->seen_purges = mem->purge_count;
	atomic_init(&buf->nr_refs, 1);
	kvpool_get(mem->pool);
	*out_buf = buf;
	return 0;
}

int kvpool_buf_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
		      struct kvpool_buf **out_buf)
{
	struct kvpool_mem *mem;

	if (!pool || !out_buf || !size_bytes ||
	    size_bytes % KVPOOL_PAGE_BYTES || size_bytes > (uint64_t)1 << 46)
		return -EINVAL;
	int err = kvpool_mem_create(pool, size_bytes, owner, &mem);

	if (err)
		return err;
	err = kvpool_handle_create(mem, false, out_buf);
	if (err) {
		pthread_mutex_lock(&pool->lock);
		kvpool_mem_put_locked(mem);
		pthread_mutex_unlock(&pool->lock);
	}
	return err;
}

struct kvpool_buf *kvpool_buf_get(struct kvpool_buf *buf)
{
	if (buf)
		atomic_fetch_add_explicit(&buf->nr_refs, 1,
					  memory_order_relaxed);
	return buf;
}

void kvpool_buf_put(struct kvpool_buf *buf)
{
	if (!buf || atomic_fetch_sub_explicit(&buf->nr_refs, 1,
					      memory_order_acq_rel) != 1)
		return;
	struct kvpool_mem *mem = buf->mem;
	struct kvpool *pool = mem->pool;

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
	kvpool_put(pool);
}

uint64_t kvpool_buf_id(const struct kvpool_buf *buf)
{
	return buf->mem->id;
}

uint64_t kvpool_buf_size(const struct kvpool_buf *buf)
{
	return buf->mem->size_bytes;
}

void *kvpool_buf_addr(const struct kvpool_buf *buf)
{
	return buf->mem->addr;
}

static bool is_range_bad(const struct kvpool_buf *buf, uint64_t offset,
			 uint64_t len)
{
	return !buf || !len || offset % KVPOOL_PAGE_BYTES ||
	       len % KVPOOL_PAGE_BYTES || len > buf->mem->size_bytes ||
	       offset > buf->mem->size_bytes - len;
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
	struct kvpool *pool = mem->pool;
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
static bool is_closed(const struct kvpool_buf *buf, uint64_t offset)
{
	const struct kvpool_mem *mem = buf->mem;

	return buf->is_read_only || mem->is_protected ||
	       offset < kvpool_round_up(mem->sealed_n);
}

int kvpool_buf_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	if (is_range_bad(buf, offset, len))
		return -EINVAL;
	struct kvpool_mem *mem = buf->mem;

	pthread_mutex_lock(&mem->lock);
	int err = is_closed(buf, offset) ?
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

int kvpool_buf_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	if (is_range_bad(buf, offset, len))
		return -EINVAL;
	struct kvpool_mem *mem = buf->mem;
	int err = 0;

	pthread_mutex_lock(&mem->lock);
	if (is_closed(buf, offset))
		err = -EPERM;
	else
		release_locked(mem, offset / KVPOOL_PAGE_BYTES,
			       (offset + len) / KVPOOL_PAGE_BYTES);
	pthread_mutex_unlock(&mem->lock);
	return err;
}

int kvpool_buf_seal(struct kvpool_buf *buf, uint64_t n)
{
	if (!buf || n > buf->mem->size_bytes)
		return -EINVAL;
	struct kvpool_mem *mem = buf->mem;
	int err = 0;

	pthread_mutex_lock(&mem->lock);
	if (buf->is_read_only || n < mem->sealed_n ||
	    (mem->is_protected && n > mem->sealed_n)) {
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

int kvpool_buf_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		     uid_t owner, struct kvpool_buf **out_buf)
{
	struct kvpool_buf *copy;

	if (!buf || !out_buf || !n || n > buf->mem->size_bytes ||
	    n > size_bytes)
		return -EINVAL;
	struct kvpool_mem *mem = buf->mem;
	uint64_t end = kvpool_round_up(n) / KVPOOL_PAGE_BYTES;
	int err = kvpool_buf_create(mem->pool, size_bytes, owner, &copy);

	if (err)
		return err;
	pthread_mutex_lock(&mem->lock);
	if (!mem->is_imported &&
	    kvpool_map_count(mem->committed, 0, end) != end)
		err = -ERANGE;
	if (!err)
		err = kvpool_buf_commit(copy, 0, end * KVPOOL_PAGE_BYTES);
	if (!err)
		memcpy(copy->mem->addr, mem->addr, n);
	pthread_mutex_unlock(&mem->lock);
	if (err)
		kvpool_buf_put(copy);
	else
		*out_buf = copy;
	return err;
}

int kvpool_buf_stat(struct kvpool_buf *buf, struct kvpool_buf_stat *out_stat)
{
	if (!buf || !out_stat)
		return -EINVAL;
	struct kvpool_mem *mem = buf->mem;

	pthread_mutex_lock(&mem->lock);
	pthread_mutex_lock(&mem->pool->lock);
	uint64_t resident = mem->nr_committed * KVPOOL_PAGE_BYTES;

	*out_stat = (struct kvpool_buf_stat){
		.id = mem->id,
		.size_bytes = mem->size_bytes,
		.resident_bytes = resident,
		.sealed_bytes = kvpool_round_up(mem->sealed_n),
		.charged_bytes = mem->is_imported ? 0 : resident,
		.owner = mem->owner,
		.is_volatile = mem->is_volatile,
		.is_published = mem->is_published,
		.is_purged = mem->is_purged,
		.nr_refs = mem->nr_refs,
	};
	pthread_mutex_unlock(&mem->pool->lock);
	pthread_mutex_unlock(&mem->lock);
	return 0;
}

int kvpool_buf_advise(struct kvpool_buf *buf, enum kvpool_advice advice,
		      bool *out_survived)
{
	if (!buf || (advice != KVPOOL_VOLATILE && advice != KVPOOL_WILLNEED))
		return -EINVAL;
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

int kvpool_buf_revoke(struct kvpool_buf *buf)
{
	return buf ? -EOPNOTSUPP : -EINVAL;
}
