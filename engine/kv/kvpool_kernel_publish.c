/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel backend, what leads from one handle to another: publication,
 * look-up by key, and descriptors that travel between processes. Called by the
 * front. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/kv/kvpool_abi.h"
#include "engine/kv/kvpool_kernel.h"

/* Marks go to the kernel as they are. */
_Static_assert(sizeof(struct kvpool_mark) == sizeof(struct kvpool_abi_mark) &&
		       offsetof(struct kvpool_mark, key) ==
			       offsetof(struct kvpool_abi_mark, key) &&
		       offsetof(struct kvpool_mark, n_bytes) ==
			       offsetof(struct kvpool_abi_mark, n),
	       "marks");

static int buf_stat(struct kvpool_kernel_buf *buf,
		    struct kvpool_abi_buf_stat *out_stat)
{
	*out_stat = (struct kvpool_abi_buf_stat){ .size = sizeof(*out_stat) };
	return kvpool_kernel_call(buf->fd, KVPOOL_BUF_STAT, out_stat);
}

static int check_marks(const struct kvpool_abi_buf_stat *stat,
		       const struct kvpool_mark *marks, size_t nr)
{
	if (stat->out_state & (KVPOOL_BUF_VOLATILE | KVPOOL_BUF_PURGED))
		return -EPERM;
	for (size_t i = 0; i < nr; i++) {
		if (!marks[i].n_bytes)
			return -EINVAL;
		if (marks[i].n_bytes > stat->out_sealed)
			return -EPERM;
	}
	return 0;
}

/* What is not sealed goes, and cannot come back through this handle: nobody reads it by a key. */
static int close_tail(struct kvpool_kernel_buf *buf)
{
	struct kvpool_buf_range arg = {
		.size = sizeof(arg),
		.offset = buf->sealed_bytes,
		.len = buf->base.size_bytes - buf->sealed_bytes,
	};

	if (buf->is_closed)
		return 0;
	buf->is_closed = true;
	if (!arg.len)
		return 0;
	if (kvpool_sys.mprotect(buf->base.addr + arg.offset, arg.len,
				PROT_READ))
		return -errno;
	return kvpool_kernel_call(buf->fd, KVPOOL_BUF_RELEASE, &arg);
}

static int unpublish(struct kvpool_kernel_buf *buf)
{
	struct kvpool_buf_publish arg = { .size = sizeof(arg) };

	return kvpool_kernel_call(buf->fd, KVPOOL_BUF_UNPUBLISH, &arg);
}

static int publish_marks(struct kvpool_kernel_buf *buf,
			 const struct kvpool_mark *marks, size_t nr,
			 bool is_first)
{
	size_t max = kvpool_kernel(buf->base.pool)->max_marks;
	size_t done = 0;

	while (done < nr) {
		struct kvpool_buf_publish arg = {
			.size = sizeof(arg),
			.marks = (uintptr_t)(marks + done),
			.nr_marks = nr - done < max ? nr - done : max,
		};
		int err = kvpool_kernel_call(buf->fd, KVPOOL_BUF_PUBLISH, &arg);

		if (err) {
			if (done && is_first)
				unpublish(buf);
			return err;
		}
		done += arg.nr_marks;
	}
	return 0;
}

int kvpool_kernel_publish(struct kvpool_buf *base,
			  const struct kvpool_mark *marks, size_t nr)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	struct kvpool_abi_buf_stat stat;

	pthread_mutex_lock(&buf->lock);
	bool was_closed = buf->is_closed;
	int err = buf_stat(buf, &stat);

	if (!err)
		err = check_marks(&stat, marks, nr);
	if (err)
		goto out;
	buf->sealed_bytes = stat.out_sealed;
	err = close_tail(buf);
	if (!err)
		err = publish_marks(buf, marks, nr,
				    !(stat.out_state & KVPOOL_BUF_PUBLISHED));
	if (err && !was_closed) {
		buf->is_closed = false;
		kvpool_kernel_reprotect_locked(buf);
	}
out:
	pthread_mutex_unlock(&buf->lock);
	return err;
}

int kvpool_kernel_unpublish(struct kvpool_buf *buf)
{
	return unpublish(kvpool_kernel_buf(buf));
}

static int find(struct kvpool_kernel *pool, const struct kvpool_key *key,
		struct kvpool_buf_lookup *arg)
{
	*arg = (struct kvpool_buf_lookup){ .size = sizeof(*arg) };
	memcpy(arg->key, key->bytes, sizeof(arg->key));
	return kvpool_kernel_call(pool->fd, KVPOOL_BUF_LOOKUP, arg);
}

int kvpool_kernel_lookup(struct kvpool *base, const struct kvpool_key *key,
			 struct kvpool_buf **out_buf, uint64_t *out_n,
			 uid_t *out_uid)
{
	struct kvpool_kernel *pool = kvpool_kernel(base);
	struct kvpool_kernel_buf *buf;
	struct kvpool_buf_lookup arg;
	int err = find(pool, key, &arg);

	if (err)
		return err;
	uint64_t bytes = kvpool_kernel_round_up(base, arg.out_n);

	err = kvpool_kernel_handle(pool, arg.out_fd, arg.out_id, bytes, bytes,
				   true, &buf);
	if (err)
		return err;
	buf->is_found = true;
	buf->key = *key;
	*out_buf = &buf->base;
	*out_n = arg.out_n;
	if (out_uid)
		*out_uid = arg.out_uid;
	return 0;
}

/* ---- between processes --------------------------------------------------- */

int kvpool_kernel_export(struct kvpool_buf *base)
{
	struct kvpool_kernel_buf *buf = kvpool_kernel_buf(base);
	struct kvpool_kernel *pool = kvpool_kernel(base->pool);
	struct kvpool_abi_buf_stat stat;
	struct kvpool_buf_lookup found;
	struct kvpool_buf_open arg = { .size = sizeof(arg),
				       .flags = KVPOOL_READ,
				       .id = base->id };
	int err = buf->is_imported ? -EPERM : buf_stat(buf, &stat);

	if (err)
		return err;
	if (!(stat.out_state & KVPOOL_BUF_PUBLISHED) ||
	    stat.out_state & KVPOOL_BUF_VOLATILE)
		return -EPERM;
	/*
	 * A new open description, with a vote of its own: ours duplicated would leave the receiver
	 * without memory when we let go. By key where that is how we came to it, for it may belong
	 * to somebody else.
	 */
	if (buf->is_found && !find(pool, &buf->key, &found)) {
		if (found.out_id == base->id)
			return found.out_fd;
		close(found.out_fd);
	}
	err = kvpool_kernel_call(pool->fd, KVPOOL_BUF_OPEN, &arg);
	return err ? err : arg.out_fd;
}

/* Of this kind no stride is asked for: the pool has no base. */
int kvpool_kernel_import(struct kvpool *base, int fd, uint64_t stride_bytes,
			 struct kvpool_buf **out_buf)
{
	struct kvpool_abi_buf_stat stat = { .size = sizeof(stat) };
	struct kvpool_kernel_buf *buf;
	int err = kvpool_kernel_call(fd, KVPOOL_BUF_STAT, &stat);

	(void)stride_bytes;
	if (err)
		return err == -ESTALE ? err : -EINVAL;
	if (!stat.out_sealed || stat.out_state & KVPOOL_BUF_PURGED)
		return -EINVAL;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	err = kvpool_kernel_handle(kvpool_kernel(base), fd, stat.id,
				   stat.out_sealed, stat.out_sealed, true,
				   &buf);
	if (err)
		return err;
	buf->is_imported = true;
	*out_buf = &buf->base;
	return 0;
}
