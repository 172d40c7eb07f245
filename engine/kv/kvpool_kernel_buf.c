/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel backend, buffers: what is mapped and with which rights. The order
 * of seal and release is that of the module's header: take away our own right
 * to write first, then tell the kernel. Called by the front. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/kv/kvpool_abi.h"
#include "engine/kv/kvpool_kernel.h"

static const int writable = PROT_READ | PROT_WRITE;

static int set_rights(struct kvpool_kernel_buf *buf, uint64_t first,
		      uint64_t end, int prot)
{
	if (first >= end)
		return 0;
	return kvpool_sys.mprotect(buf->base.addr + first, end - first, prot) ?
		       -errno :
		       0;
}

static int stat_of_fd(int fd, struct kvpool_abi_buf_stat *out_stat)
{
	*out_stat = (struct kvpool_abi_buf_stat){ .size = sizeof(*out_stat) };
	return kvpool_kernel_call(fd, KVPOOL_BUF_STAT, out_stat);
}

/* ---- handles ------------------------------------------------------------- */

int kvpool_kernel_handle(struct kvpool_kernel *pool, int fd, uint64_t id,
			 uint64_t size_bytes, uint64_t sealed_bytes,
			 bool is_read_only, struct kvpool_kernel_buf **out_buf)
{
	struct kvpool_kernel_buf *buf = NULL;
	int prot = is_read_only || sealed_bytes ? PROT_READ : writable;
	int err = -EMFILE;

	if (kvpool_is_fd_beyond_share(fd))
		goto err_close;
	err = -ENOMEM;
	buf = kvpool_sys.calloc(1, sizeof(*buf));
	if (!buf)
		goto err_close;
	void *addr = kvpool_sys.mmap(NULL, size_bytes, prot, MAP_SHARED, fd, 0);

	if (addr == MAP_FAILED) {
		err = -errno;
		goto err_close;
	}
	buf->base.addr = addr;
	if (!is_read_only && sealed_bytes) {
		err = set_rights(buf, sealed_bytes, size_bytes, writable);
		if (err)
			goto err_unmap;
	}
	buf->base.pool = kvpool_get(&pool->base);
	buf->base.id = id;
	buf->base.size_bytes = size_bytes;
	buf->base.is_read_only = is_read_only;
	atomic_init(&buf->base.nr_refs, 1);
	buf->fd = fd;
	buf->sealed_bytes = sealed_bytes;
	pthread_mutex_init(&buf->lock, NULL);
	atomic_fetch_add(&pool->virtual_bytes, size_bytes);
	*out_buf = buf;
	return 0;

err_unmap:
	munmap(addr, size_bytes);
err_close:
	free(buf);
	close(fd);
	return err;
}

/* Small buffers never get a huge page, so that they are charged what they commit. */
static uint32_t size_flags(const struct kvpool_kernel *pool, uint64_t bytes)
{
	return bytes < pool->huge_bytes ? KVPOOL_BUF_SMALL : 0;
}

int kvpool_kernel_create(struct kvpool *base, uint64_t size_bytes, uid_t owner,
			 struct kvpool_buf **out_buf)
{
	struct kvpool_kernel *pool = kvpool_kernel(base);
	struct kvpool_kernel_buf *buf;
	struct kvpool_buf_create arg = {
		.size = sizeof(arg),
		.flags = size_flags(pool, size_bytes),
		.bytes = size_bytes,
	};
	int err = kvpool_kernel_call(pool->fd, KVPOOL_BUF_CREATE, &arg);

	if (!err)
		err = kvpool_kernel_handle(pool, arg.out_fd, arg.out_id,
					   size_bytes, 0, false, &buf);
	if (err)
		return err;
	buf->owner = owner;
	buf->is_owner_given = true;
	*out_buf = &buf->base;
	return 0;
}

int kvpool_kernel_buf_open(struct kvpool *base, uint64_t id, bool is_writable,
			   struct kvpool_buf **out_buf)
{
	struct kvpool_kernel *pool = kvpool_kernel(base);
	struct kvpool_kernel_buf *buf;
	struct kvpool_abi_buf_stat stat;
	struct kvpool_buf_open arg = {
		.size = sizeof(arg),
		.flags = KVPOOL_READ | (is_writable ? KVPOOL_WRITE : 0),
		.id = id,
	};
	int err = kvpool_kernel_call(pool->fd, KVPOOL_BUF_OPEN, &arg);

	if (err)
		return err;
	err = stat_of_fd(arg.out_fd, &stat);
	if (err) {
		close(arg.out_fd);
		return err;
	}
	err = kvpool_kernel_handle(pool, arg.out_fd, id, stat.out_bytes,
				   stat.out_sealed, !is_writable, &buf);
	if (err)
		return err;
	*out_buf = &buf->base;
	return 0;
}

void kvpool_kernel_free(struct kvpool_buf *base)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);

	munmap(base->addr, base->size_bytes);
	close(buf->fd);
	atomic_fetch_sub(&kvpool_kernel(base->pool)->virtual_bytes,
			 base->size_bytes);
	pthread_mutex_destroy(&buf->lock);
	free(buf);
}

/* ---- memory -------------------------------------------------------------- */

int kvpool_kernel_commit(struct kvpool_buf *base, uint64_t offset, uint64_t len)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	struct kvpool_buf_range arg = { .size = sizeof(arg),
					.offset = offset,
					.len = len };

	pthread_mutex_lock(&buf->lock);
	int err = buf->is_closed ?
			  -EPERM :
			  kvpool_kernel_call(buf->fd, KVPOOL_BUF_COMMIT, &arg);

	/* Page-table entries ahead of use; what is missing comes by faults. */
	if (!err)
		madvise(base->addr + offset, len, MADV_POPULATE_WRITE);
	pthread_mutex_unlock(&buf->lock);
	return err;
}

int kvpool_kernel_release(struct kvpool_buf *base, uint64_t offset,
			  uint64_t len)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	struct kvpool_buf_range arg = { .size = sizeof(arg),
					.offset = offset,
					.len = len };

	pthread_mutex_lock(&buf->lock);
	int err = buf->is_closed ?
			  -EPERM :
			  kvpool_kernel_call(buf->fd, KVPOOL_BUF_RELEASE, &arg);

	pthread_mutex_unlock(&buf->lock);
	return err;
}

int kvpool_kernel_reprotect_locked(struct kvpool_kernel_buf *buf)
{
	struct kvpool_abi_buf_stat stat;
	int err = stat_of_fd(buf->fd, &stat);

	if (err)
		return err;
	buf->sealed_bytes = stat.out_sealed;
	err = set_rights(buf, 0, buf->sealed_bytes, PROT_READ);
	if (!err)
		err = set_rights(buf, buf->sealed_bytes, buf->base.size_bytes,
				 buf->is_closed ? PROT_READ : writable);
	return err;
}

static int seal_locked(struct kvpool_kernel_buf *buf, uint64_t n)
{
	struct kvpool_buf_seal arg = { .size = sizeof(arg), .n = n };
	uint64_t end = kvpool_kernel_round_up(buf->base.pool, n);
	/* Our own right to write goes first: what still writes there faults here. */
	int err = set_rights(buf, buf->sealed_bytes, end, PROT_READ);

	if (!err)
		err = kvpool_kernel_call(buf->fd, KVPOOL_BUF_SEAL, &arg);
	if (!err)
		buf->sealed_bytes = arg.out_sealed;
	else if (end > buf->sealed_bytes)
		kvpool_kernel_reprotect_locked(buf);
	return err;
}

int kvpool_kernel_seal(struct kvpool_buf *base, uint64_t n)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	int err = 0;

	pthread_mutex_lock(&buf->lock);
	if (!n)
		err = buf->sealed_bytes ? -EPERM : 0;
	else if (buf->is_closed && n > buf->sealed_bytes)
		err = -EPERM;
	else
		err = seal_locked(buf, n);
	pthread_mutex_unlock(&buf->lock);
	return err;
}

int kvpool_kernel_clone(struct kvpool_buf *base, uint64_t n,
			uint64_t size_bytes, uid_t owner,
			struct kvpool_buf **out_buf)
{
	struct kvpool_kernel *pool = kvpool_kernel(base->pool);
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base), *copy;
	struct kvpool_abi_buf_stat stat = { 0 };
	struct kvpool_buf_clone arg = {
		.size = sizeof(arg),
		.flags = size_flags(pool, size_bytes),
		.n = n,
		.bytes = size_bytes,
		.pool_fd = pool->fd,
	};
	int err = kvpool_kernel_call(buf->fd, KVPOOL_BUF_CLONE, &arg);

	if (err)
		return err;
	if (arg.out_shared) {
		err = stat_of_fd(arg.out_fd, &stat);
		if (err) {
			close(arg.out_fd);
			return err;
		}
	}
	err = kvpool_kernel_handle(pool, arg.out_fd, arg.out_id, size_bytes,
				   stat.out_sealed, false, &copy);
	if (err)
		return err;
	copy->owner = owner;
	copy->is_owner_given = true;
	*out_buf = &copy->base;
	return 0;
}

/* ---- state --------------------------------------------------------------- */

static void convert_stat(const struct kvpool_abi_buf_stat *from,
			 struct kvpool_buf_stat *out_stat)
{
	bool is_published = from->out_state & KVPOOL_BUF_PUBLISHED;

	*out_stat = (struct kvpool_buf_stat){
		.id = from->id,
		.size_bytes = from->out_bytes,
		.resident_bytes = from->out_resident,
		.sealed_bytes = from->out_sealed,
		.charged_bytes = from->out_charged,
		.private_bytes = from->out_private,
		.huge_bytes = from->out_huge,
		.owner = from->out_uid,
		.publisher = is_published ? from->out_publisher : (uid_t)-1,
		.is_volatile = from->out_state & KVPOOL_BUF_VOLATILE,
		.is_published = is_published,
		.is_purged = from->out_state & KVPOOL_BUF_PURGED,
		.nr_refs = from->out_nr_open + is_published,
		.nr_votes = from->out_nr_votes,
		.nr_keys = from->out_nr_keys,
	};
}

int kvpool_kernel_buf_stat(struct kvpool_buf *base,
			   struct kvpool_buf_stat *out_stat)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	struct kvpool_abi_buf_stat stat;
	int err = stat_of_fd(buf->fd, &stat);

	if (err)
		return err;
	convert_stat(&stat, out_stat);
	out_stat->id = base->id;
	if (buf->is_owner_given)
		out_stat->owner = buf->owner;
	return 0;
}

int kvpool_kernel_next_buf(struct kvpool *pool, uint64_t *id,
			   struct kvpool_buf_stat *out_stat)
{
	struct kvpool_abi_buf_stat stat = { .size = sizeof(stat), .id = *id };
	int err = kvpool_kernel_call(kvpool_kernel(pool)->fd, KVPOOL_BUF_NEXT,
				     &stat);

	if (err)
		return err;
	convert_stat(&stat, out_stat);
	*id = stat.id;
	return 0;
}

int kvpool_kernel_advise(struct kvpool_buf *base, enum kvpool_advice advice,
			 bool *out_survived)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	struct kvpool_buf_advise arg = {
		.size = sizeof(arg),
		.advice = advice == KVPOOL_WILLNEED ? KVPOOL_ADVICE_WILLNEED :
						      KVPOOL_ADVICE_VOLATILE,
	};

	pthread_mutex_lock(&buf->lock);
	int err = kvpool_kernel_call(buf->fd, KVPOOL_BUF_ADVISE, &arg);

	if (!err && advice == KVPOOL_WILLNEED) {
		if (out_survived)
			*out_survived = arg.out_survived;
		/* Empty and open to be filled again, unless another writer was faster. */
		if (!arg.out_survived && !base->is_read_only) {
			buf->is_closed = false;
			err = kvpool_kernel_reprotect_locked(buf);
		}
	}
	pthread_mutex_unlock(&buf->lock);
	return err;
}

int kvpool_kernel_revoke(struct kvpool_buf *base)
{
	struct kvpool_buf_revoke arg = { .size = sizeof(arg) };

	return kvpool_kernel_call(kvpool_kernel_buf(base)->fd,
				  KVPOOL_BUF_REVOKE, &arg);
}
