/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of local pools: handles and what is done to the memory behind them.
 * Every call takes the memory's lock, and leaves counting to kvpool_account.c.
 * Called by the front, which has checked the arguments. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/kv/kvpool_local.h"

/* Pages of a commit by what they were before it. */
struct kvpool_commit {
	uint64_t nr_new; /* absent */
	uint64_t nr_spare; /* present, of an earlier life or made ahead */
	uint64_t nr_ahead; /* absent and behind it: they become spare ones */
};

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

int kvpool_local_create_stride(struct kvpool *pool, uint64_t size_bytes,
			       uint64_t stride_bytes, uid_t owner,
			       struct kvpool_buf **out_buf)
{
	struct kvpool_mem *mem;
	int err = kvpool_mem_create(kvpool_local(pool), size_bytes,
				    stride_bytes, owner, &mem);

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

int kvpool_local_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
			struct kvpool_buf **out_buf)
{
	return kvpool_local_create_stride(pool, size_bytes, 0, owner, out_buf);
}

void kvpool_local_free(struct kvpool_buf *base)
{
	struct kvpool_local_buf *buf = kvpool_local_buf(base);
	struct kvpool_mem *mem = buf->mem;
	struct kvpool_local *pool = mem->pool;

	pthread_mutex_lock(&pool->lock);
	if (pool->ops->quiesce)
		pool->ops->quiesce(mem);
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

/* Make room in the books, and with it what the backend has at hand. Return: 0, -ENOSPC, -EDQUOT. */
static int charge(struct kvpool_mem *mem, uint64_t first, uint64_t end,
		  struct kvpool_commit *out)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t nr_committed = kvpool_map_count(mem->committed, first, end);

	pthread_mutex_lock(&pool->lock);
	mem->guard_first = first;
	mem->guard_end = end;
	/* Under the lock: who makes room may take our spare pages outside of the guard. */
	out->nr_spare =
		kvpool_map_count(mem->present, first, end) - nr_committed;
	out->nr_new = end - first - nr_committed - out->nr_spare;
	out->nr_ahead = 0;
	int err = mem->is_volatile ? -EPERM : 0;

	if (!err && pool->ops->plan)
		out->nr_ahead = pool->ops->plan(mem, first, end, true);
	if (!err) {
		err = kvpool_charge_locked(mem, out->nr_new, out->nr_spare,
					   out->nr_ahead);
		if (err && pool->ops->plan)
			pool->ops->unplan(mem);
	}
	mem->guard_first = 0;
	mem->guard_end = 0;
	if (!err)
		pool->commits++;
	pthread_mutex_unlock(&pool->lock);
	return err;
}

/*
 * Nothing was filled. Where that was for want of memory, some is freed. Return: whether it was.
 */
static bool uncharge(struct kvpool_mem *mem, const struct kvpool_commit *commit,
		     bool is_short)
{
	struct kvpool_local *pool = mem->pool;
	uint64_t wanted = commit->nr_new * kvpool_page(mem), freed = 0;

	pthread_mutex_lock(&pool->lock);
	kvpool_account_locked(mem,
			      -(int64_t)(commit->nr_new + commit->nr_spare),
			      -(int64_t)(commit->nr_new + commit->nr_ahead));
	pool->commits--;
	if (is_short)
		freed = kvpool_drop_spare_locked(pool, UINT64_MAX, mem);
	if (is_short && freed < wanted)
		freed += kvpool_purge_locked(pool, wanted - freed, mem, NULL,
					     false);
	pthread_mutex_unlock(&pool->lock);
	return freed > 0;
}

/* As charge(); what a device still reads may be all that is missing. */
static int charge_or_wait(struct kvpool_mem *mem, uint64_t first, uint64_t end,
			  struct kvpool_commit *out)
{
	const struct kvpool_backend_ops *ops = mem->pool->ops;
	uint64_t state = 0;
	int err;

	do {
		err = charge(mem, first, end, out);
	} while ((err == -ENOSPC || err == -EDQUOT) && ops->wait &&
		 ops->wait(mem, &state));
	return err;
}

static int commit_locked(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	const struct kvpool_backend_ops *ops = mem->pool->ops;
	struct kvpool_commit commit;
	bool is_again = false;

	for (;;) {
		int err = charge_or_wait(mem, first, end, &commit);

		if (err)
			return err;
		err = ops->populate(mem, first, end + commit.nr_ahead);
		if (!err)
			break;
		/* Another process may have taken the memory that the limit promises. */
		bool is_short = err == -ENOMEM && !is_again;

		if (!uncharge(mem, &commit, is_short))
			return err;
		is_again = true;
	}
	kvpool_map_set(mem->committed, first, end, true);
	if (ops->grown)
		ops->grown(mem, end);
	return 0;
}

/* What a writer may not touch: sealed bytes and protected memory. */
static bool is_closed(const struct kvpool_mem *mem, uint64_t offset)
{
	return mem->is_protected ||
	       offset / kvpool_page(mem) < kvpool_to_pages(mem, mem->sealed_n);
}

int kvpool_local_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;

	pthread_mutex_lock(&mem->lock);
	int err = is_closed(mem, offset) ?
			  -EPERM :
			  commit_locked(mem, offset / kvpool_page(mem),
					(offset + len) / kvpool_page(mem));

	pthread_mutex_unlock(&mem->lock);
	return err;
}

/* Committed pages of the range go; what cannot be given back stays as spare pages. */
static void release_locked(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	uint64_t nr_committed = kvpool_map_count(mem->committed, first, end);
	uint64_t nr_punched = 0, page = first, len;

	kvpool_map_set(mem->committed, first, end, false);
	if (mem->pool->ops->retire)
		mem->pool->ops->retire(mem, first, end);
	for (; (len = kvpool_map_run(mem->present, mem->committed, &page, end));
	     page += len) {
		int64_t gone = mem->pool->ops->punch(mem, page, page + len);

		nr_punched += gone > 0 ? (uint64_t)gone : 0;
	}
	if (mem->pool->ops->shed)
		nr_punched += mem->pool->ops->shed(mem, first, end);
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
		release_locked(mem, offset / kvpool_page(mem),
			       (offset + len) / kvpool_page(mem));
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
		uint64_t page = n / kvpool_page(mem),
			 rest = n % kvpool_page(mem);

		/* Recycled pages hold what was there before. */
		if (rest && kvpool_map_count(mem->committed, page, page + 1))
			err = mem->pool->ops->zero(mem, n,
						   kvpool_page(mem) - rest);
		if (!err)
			mem->sealed_n = n;
		pthread_mutex_lock(&mem->pool->lock);
		mem->pool->seals += !err;
		pthread_mutex_unlock(&mem->pool->lock);
	}
	pthread_mutex_unlock(&mem->lock);
	return err;
}

/* Whether pages [0, @end) of a source are there. mem->lock held. */
static int check_source(const struct kvpool_mem *mem, uint64_t end)
{
	return mem->is_imported ||
			       kvpool_map_count(mem->committed, 0, end) == end ?
		       0 :
		       -ERANGE;
}

int kvpool_local_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		       uid_t owner, struct kvpool_buf **out_buf)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	uint64_t end = kvpool_to_pages(mem, n);
	struct kvpool_buf *copy;
	int err = kvpool_local_create_stride(buf->pool, size_bytes,
					     mem->stride_bytes, owner, &copy);

	if (err)
		return err;
	pthread_mutex_lock(&mem->lock);
	err = check_source(mem, end);
	pthread_mutex_unlock(&mem->lock);
	/* Without the source's lock: who makes room may have to wait for one who holds it. */
	if (!err)
		err = kvpool_local_commit(copy, 0, end * kvpool_page(mem));
	if (!err) {
		pthread_mutex_lock(&mem->lock);
		err = check_source(mem, end);
		if (!err)
			err = mem->pool->ops->copy(kvpool_local_buf(copy)->mem,
						   mem, n);
		pthread_mutex_unlock(&mem->lock);
	}
	if (err)
		kvpool_buf_put(copy);
	else
		*out_buf = copy;
	return err;
}

int kvpool_local_check(struct kvpool_buf *buf, uint64_t offset, uint64_t len,
		       bool is_write)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	uint64_t first = offset / kvpool_page(mem);
	uint64_t end = kvpool_to_pages(mem, offset + len);
	int err = 0;

	pthread_mutex_lock(&mem->lock);
	if (is_write && is_closed(mem, offset))
		err = -EPERM;
	else if (!mem->is_imported &&
		 kvpool_map_count(mem->committed, first, end) != end - first)
		err = -ERANGE;
	pthread_mutex_unlock(&mem->lock);
	return err;
}

int kvpool_local_covers(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	uint64_t first = offset / kvpool_page(mem);
	uint64_t end = kvpool_to_pages(mem, offset + len);
	bool is_there;

	pthread_mutex_lock(&mem->lock);
	if (mem->is_imported)
		is_there = !mem->pool->ops->covers ||
			   mem->pool->ops->covers(mem, first, end);
	else
		is_there = kvpool_map_count(mem->committed, first, end) ==
			   end - first;
	pthread_mutex_unlock(&mem->lock);
	return is_there ? 0 : -ERANGE;
}

int kvpool_local_buf_stat(struct kvpool_buf *buf,
			  struct kvpool_buf_stat *out_stat)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	uint32_t nr_keys = 0;

	pthread_mutex_lock(&mem->lock);
	pthread_mutex_lock(&mem->pool->lock);
	uint64_t resident = mem->nr_committed * kvpool_page(mem);

	for (struct kvpool_key_entry *e = mem->keys; e; e = e->next_of_mem)
		nr_keys++;
	*out_stat = (struct kvpool_buf_stat){
		.id = mem->id,
		.size_bytes = mem->size_bytes,
		.resident_bytes = resident,
		.sealed_bytes =
			kvpool_to_pages(mem, mem->sealed_n) * kvpool_page(mem),
		.charged_bytes = mem->is_imported ? 0 : resident,
		.private_bytes = resident,
		.owner = mem->owner,
		.publisher = mem->is_published ? geteuid() : (uid_t)-1,
		.is_volatile = mem->is_volatile,
		.is_published = mem->is_published,
		.is_purged = mem->is_purged,
		.nr_refs = mem->nr_refs - mem->nr_own_refs,
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
