/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front, buffers: arguments are checked and handles counted here, then the
 * call goes to the pool's kind. Pools: kvpool_main.c. Any thread.
 */
#include <errno.h>

#include "engine/kv/kvpool_private.h"

/* More addresses than any process has. */
static const uint64_t max_buf_bytes = (uint64_t)1 << 46;

static bool is_size_bad(const struct kvpool *pool, uint64_t bytes)
{
	return !bytes || bytes % pool->page_bytes || bytes > max_buf_bytes;
}

static bool is_stride_bad(uint64_t stride_bytes)
{
	return !stride_bytes || stride_bytes > max_buf_bytes;
}

static bool is_range_bad(const struct kvpool_buf *buf, uint64_t offset,
			 uint64_t len)
{
	return !buf || !len || offset % buf->pool->page_bytes ||
	       len % buf->pool->page_bytes || len > buf->size_bytes ||
	       offset > buf->size_bytes - len;
}

int kvpool_buf_create(struct kvpool *pool, uint64_t size_bytes, uid_t owner,
		      struct kvpool_buf **out_buf)
{
	if (!pool || !out_buf || is_size_bad(pool, size_bytes))
		return -EINVAL;
	return pool->calls->create(pool, size_bytes, owner, out_buf);
}

int kvpool_buf_create_stride(struct kvpool *pool, uint64_t size_bytes,
			     uint64_t stride_bytes, uid_t owner,
			     struct kvpool_buf **out_buf)
{
	if (!pool || !out_buf || is_size_bad(pool, size_bytes) ||
	    is_stride_bad(stride_bytes))
		return -EINVAL;
	if (!pool->calls->base || !pool->calls->base(pool))
		return -EOPNOTSUPP;
	return pool->calls->create_stride(pool, size_bytes, stride_bytes, owner,
					  out_buf);
}

int kvpool_buf_open(struct kvpool *pool, uint64_t id, bool is_writable,
		    struct kvpool_buf **out_buf)
{
	if (!pool || !out_buf)
		return -EINVAL;
	return pool->calls->open ?
		       pool->calls->open(pool, id, is_writable, out_buf) :
		       -EOPNOTSUPP;
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
	struct kvpool *pool = buf->pool;

	pool->calls->free(buf);
	kvpool_put(pool);
}

uint64_t kvpool_buf_id(const struct kvpool_buf *buf)
{
	return buf->id;
}

uint64_t kvpool_buf_size(const struct kvpool_buf *buf)
{
	return buf->size_bytes;
}

void *kvpool_buf_addr(const struct kvpool_buf *buf)
{
	return buf->addr;
}

int kvpool_buf_commit(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	if (is_range_bad(buf, offset, len))
		return -EINVAL;
	return buf->is_read_only ? -EPERM :
				   buf->pool->calls->commit(buf, offset, len);
}

int kvpool_buf_release(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	if (is_range_bad(buf, offset, len))
		return -EINVAL;
	return buf->is_read_only ? -EPERM :
				   buf->pool->calls->release(buf, offset, len);
}

int kvpool_buf_seal(struct kvpool_buf *buf, uint64_t n)
{
	if (!buf || n > buf->size_bytes)
		return -EINVAL;
	return buf->is_read_only ? -EPERM : buf->pool->calls->seal(buf, n);
}

int kvpool_buf_clone(struct kvpool_buf *buf, uint64_t n, uint64_t size_bytes,
		     uid_t owner, struct kvpool_buf **out_buf)
{
	if (!buf || !out_buf || !n || n > buf->size_bytes || n > size_bytes ||
	    is_size_bad(buf->pool, size_bytes))
		return -EINVAL;
	return buf->pool->calls->clone(buf, n, size_bytes, owner, out_buf);
}

int kvpool_buf_covers(struct kvpool_buf *buf, uint64_t offset, uint64_t len)
{
	if (!buf || !len || len > buf->size_bytes ||
	    offset > buf->size_bytes - len)
		return -EINVAL;
	return buf->pool->calls->covers ?
		       buf->pool->calls->covers(buf, offset, len) :
		       -EOPNOTSUPP;
}

int kvpool_buf_stat(struct kvpool_buf *buf, struct kvpool_buf_stat *out_stat)
{
	if (!buf || !out_stat)
		return -EINVAL;
	return buf->pool->calls->buf_stat(buf, out_stat);
}

int kvpool_buf_publish(struct kvpool_buf *buf, const struct kvpool_mark *marks,
		       size_t nr)
{
	if (!buf || !marks || !nr)
		return -EINVAL;
	return buf->is_read_only ? -EPERM :
				   buf->pool->calls->publish(buf, marks, nr);
}

int kvpool_buf_unpublish(struct kvpool_buf *buf)
{
	if (!buf)
		return -EINVAL;
	return buf->is_read_only ? -EPERM : buf->pool->calls->unpublish(buf);
}

int kvpool_lookup(struct kvpool *pool, const struct kvpool_key *key,
		  struct kvpool_buf **out_buf, uint64_t *out_n, uid_t *out_uid)
{
	if (!pool || !key || !out_buf || !out_n)
		return -EINVAL;
	return pool->calls->lookup(pool, key, out_buf, out_n, out_uid);
}

int kvpool_buf_advise(struct kvpool_buf *buf, enum kvpool_advice advice,
		      bool *out_survived)
{
	if (!buf || (advice != KVPOOL_VOLATILE && advice != KVPOOL_WILLNEED))
		return -EINVAL;
	return buf->pool->calls->advise(buf, advice, out_survived);
}

int kvpool_buf_revoke(struct kvpool_buf *buf)
{
	if (!buf)
		return -EINVAL;
	if (!buf->pool->calls->revoke)
		return -EOPNOTSUPP;
	return buf->is_read_only ? -EPERM : buf->pool->calls->revoke(buf);
}

int kvpool_buf_export(struct kvpool_buf *buf)
{
	return buf ? buf->pool->calls->export_fd(buf) : -EINVAL;
}

int kvpool_buf_import(struct kvpool *pool, int fd, struct kvpool_buf **out_buf)
{
	if (!pool || !out_buf)
		return -EINVAL;
	return pool->calls->import(pool, fd, 0, out_buf);
}

int kvpool_buf_import_stride(struct kvpool *pool, int fd, uint64_t stride_bytes,
			     struct kvpool_buf **out_buf)
{
	if (!pool || !out_buf || is_stride_bad(stride_bytes))
		return -EINVAL;
	return kvpool_base(pool) ?
		       pool->calls->import(pool, fd, stride_bytes, out_buf) :
		       -EOPNOTSUPP;
}
