// SPDX-License-Identifier: GPL-2.0
/*
 * Open descriptions of buffers: what a process holds, its rights, its vote and
 * whether it was cut off.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

static int buf_release(struct inode *inode, struct file *file)
{
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf *buf = handle->buf;
	struct kvpool_pool *pool = buf->pool;

	down_write(&buf->sem);
	list_del(&handle->list);
	if (!handle->is_revoked)
		buf->nr_open--;
	if (handle->has_vote) {
		buf->nr_votes--;
		/*
		 * An unpublished one that nobody has open goes at once. Those
		 * who were revoked keep it, but not from being taken.
		 */
		if (buf->publisher || !list_empty(&buf->handles))
			kvpool_buf_update_votes(buf);
	}
	up_write(&buf->sem);
	kfree(handle);
	kvpool_buf_put(buf);
	kvpool_pool_unuse(pool);
	return 0;
}

static int ioctl_stat(struct file *file, union kvpool_argument *arg,
		      struct kvpool_new_fd *out_fd)
{
	struct kvpool_handle *handle = file->private_data;

	if (arg->buf_stat.flags)
		return -EOPNOTSUPP;
	if (READ_ONCE(handle->is_revoked))
		return -ESTALE;
	kvpool_buf_read_stat(handle->buf, &arg->buf_stat);
	arg->buf_stat.out_bytes =
		min_t(u64, arg->buf_stat.out_bytes, PAGE_ALIGN(handle->limit));
	arg->buf_stat.out_sealed =
		min(arg->buf_stat.out_sealed, arg->buf_stat.out_bytes);
	return 0;
}

static int ioctl_advise(struct file *file, union kvpool_argument *arg,
			struct kvpool_new_fd *out_fd)
{
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf_advise *advise = &arg->buf_advise;
	struct kvpool_buf *buf = handle->buf;
	const bool is_needed = advise->advice == KVPOOL_ADVICE_WILLNEED;
	bool is_lost;
	int rc = 0;

	if (advise->flags)
		return -EOPNOTSUPP;
	if (advise->advice > KVPOOL_ADVICE_VOLATILE)
		return -EINVAL;
	down_write(&buf->sem);
	if (handle->is_revoked) {
		rc = -ESTALE;
		goto out;
	}
	/* What is filled in after a loss was never shown to who looked up. */
	is_lost = handle->is_lookup && handle->seen_purges != buf->nr_purges;
	if (is_needed != handle->has_vote && !is_lost) {
		handle->has_vote = is_needed;
		buf->nr_votes += is_needed ? 1 : -1;
		kvpool_buf_update_votes(buf);
	}
	advise->out_survived = 0;
	if (is_needed) {
		advise->out_survived = handle->seen_purges == buf->nr_purges;
		/* Begun anew: empty, and open to be filled. */
		if (buf->is_purged && handle->can_write) {
			buf->is_purged = false;
			buf->nr_sealed = 0;
		}
		if (!buf->is_purged && !is_lost)
			handle->seen_purges = buf->nr_purges;
	}
out:
	up_write(&buf->sem);
	return rc;
}

static int ioctl_revoke(struct file *file, union kvpool_argument *arg,
			struct kvpool_new_fd *out_fd)
{
	struct kvpool_handle *mine = file->private_data, *handle;
	struct kvpool_buf *buf = mine->buf;
	int rc = 0;

	if (arg->buf_revoke.flags || arg->buf_revoke.__reserved)
		return -EOPNOTSUPP;
	if (!uid_eq(current_euid(), buf->owner->uid) &&
	    !capable(CAP_DAC_OVERRIDE))
		return -EPERM;
	arg->buf_revoke.out_nr_revoked = 0;
	down_write(&buf->sem);
	if (mine->is_revoked) {
		rc = -ESTALE;
		goto out;
	}
	list_for_each_entry(handle, &buf->handles, list) {
		if (handle == mine || handle->is_revoked)
			continue;
		WRITE_ONCE(handle->is_revoked, true);
		if (handle->has_vote)
			buf->nr_votes--;
		handle->has_vote = false;
		buf->nr_open--;
		arg->buf_revoke.out_nr_revoked++;
	}
	kvpool_buf_block(buf, 0, buf->bytes >> PAGE_SHIFT);
	kvpool_buf_update_votes(buf);
out:
	up_write(&buf->sem);
	if (!rc)
		trace_kvpool_revoke(buf, arg->buf_revoke.out_nr_revoked);
	return rc;
}

static const struct kvpool_ioctl buf_ioctls[] = {
	{ KVPOOL_BUF_STAT, 96, sizeof(struct kvpool_buf_stat), false,
	  ioctl_stat },
	{ KVPOOL_BUF_COMMIT, 32, sizeof(struct kvpool_buf_range), true,
	  kvpool_ioctl_commit },
	{ KVPOOL_BUF_RELEASE, 32, sizeof(struct kvpool_buf_range), true,
	  kvpool_ioctl_release },
	{ KVPOOL_BUF_SEAL, 24, sizeof(struct kvpool_buf_seal), true,
	  kvpool_ioctl_seal },
	{ KVPOOL_BUF_CLONE, 56, sizeof(struct kvpool_buf_clone), false,
	  kvpool_ioctl_clone },
	{ KVPOOL_BUF_PUBLISH, 24, sizeof(struct kvpool_buf_publish), true,
	  kvpool_ioctl_publish },
	{ KVPOOL_BUF_UNPUBLISH, 24, sizeof(struct kvpool_buf_publish), true,
	  kvpool_ioctl_unpublish },
	{ KVPOOL_BUF_ADVISE, 16, sizeof(struct kvpool_buf_advise), false,
	  ioctl_advise },
	{ KVPOOL_BUF_REVOKE, 16, sizeof(struct kvpool_buf_revoke), true,
	  ioctl_revoke },
};

static long buf_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return kvpool_ioctl_dispatch(buf_ioctls, ARRAY_SIZE(buf_ioctls), file,
				     cmd, arg);
}

/* Keys in the manner of Documentation/gpu/drm-usage-stats.rst. */
static void buf_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf_stat stat;

	kvpool_buf_read_stat(handle->buf, &stat);
	seq_printf(seq, "kvpool-pool:\t%s\n", handle->buf->pool->name);
	seq_printf(seq, "kvpool-buffer:\t%llu\n", stat.id);
	seq_printf(seq, "kvpool-size:\t%llu KiB\n", stat.out_bytes >> 10);
	seq_printf(seq, "kvpool-resident:\t%llu KiB\n",
		   stat.out_resident >> 10);
	seq_printf(seq, "kvpool-shared:\t%llu KiB\n", stat.out_shared >> 10);
	seq_printf(seq, "kvpool-sealed:\t%llu KiB\n", stat.out_sealed >> 10);
	seq_printf(seq, "kvpool-purgeable:\t%llu KiB\n",
		   stat.out_state & KVPOOL_BUF_VOLATILE ?
			   stat.out_resident >> 10 :
			   0);
	seq_printf(seq, "kvpool-revoked:\t%d\n", READ_ONCE(handle->is_revoked));
}

static const struct file_operations buf_fops = {
	.owner = THIS_MODULE,
	.llseek = no_llseek,
	.mmap = kvpool_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
	.unlocked_ioctl = buf_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = buf_release,
	.show_fdinfo = buf_show_fdinfo,
};

static struct file *open_file(struct kvpool_buf *buf, bool can_write)
{
	struct file *file;

	/* The file gives it back, but takes none. */
	__module_get(THIS_MODULE);
	ihold(buf->inode);
	file = alloc_file_pseudo(buf->inode, kvpool_buf_mount(),
				 "kvpool-buffer", can_write ? O_RDWR : O_RDONLY,
				 &buf_fops);
	if (IS_ERR(file)) {
		iput(buf->inode);
		module_put(THIS_MODULE);
	}
	return file;
}

/**
 * kvpool_handle_create() - a new open description with a will-need vote
 * @buf: taken over: a reference, dropped on failure too
 * @can_write: opened for writing
 * @limit: bytes it may see
 * @purges: of a look-up, buf->nr_purges when its key was found: only while the
 *	buffer is published, and has not been lost since; else NULL
 * @out_fd: a descriptor that is not installed yet
 *
 * Context: may sleep, no lock is held.
 * Return: 0; -ENOENT (purged, or withdrawn); -ENOMEM, -EMFILE, -ENFILE.
 */
int kvpool_handle_create(struct kvpool_buf *buf, bool can_write, u64 limit,
			 const unsigned int *purges,
			 struct kvpool_new_fd *out_fd)
{
	struct kvpool_handle *handle;
	struct file *file;
	int rc, fd;

	handle = kzalloc(sizeof(*handle), KVPOOL_RECORD_GFP);
	if (!handle) {
		rc = -ENOMEM;
		goto err_put;
	}
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		rc = fd;
		goto err_free;
	}
	file = open_file(buf, can_write);
	if (IS_ERR(file)) {
		rc = PTR_ERR(file);
		goto err_fd;
	}
	handle->buf = buf;
	handle->limit = limit;
	handle->can_write = can_write;
	handle->is_lookup = purges;
	handle->has_vote = true;
	file->private_data = handle;
	kvpool_pool_use(buf->pool);
	down_write(&buf->sem);
	rc = 0;
	if (buf->is_purged ||
	    (purges && (!buf->publisher || *purges != buf->nr_purges)))
		rc = -ENOENT;
	handle->seen_purges = buf->nr_purges;
	list_add_tail(&handle->list, &buf->handles);
	buf->nr_open++;
	buf->nr_votes++;
	kvpool_buf_update_votes(buf);
	up_write(&buf->sem);
	if (rc) {
		/* Everything goes by the file now. */
		put_unused_fd(fd);
		fput(file);
		return rc;
	}
	out_fd->fd = fd;
	out_fd->file = file;
	return 0;

err_fd:
	put_unused_fd(fd);
err_free:
	kfree(handle);
err_put:
	kvpool_buf_put(buf);
	return rc;
}
