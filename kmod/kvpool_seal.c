// SPDX-License-Identifier: GPL-2.0
/*
 * Immutable bytes: SEAL, and CLONE, which shares what is sealed.
 */
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/* ---- seal ------------------------------------------------------------------------ */

/*
 * Whether somebody besides the pool refers to a page of [first, end), which is
 * mapped nowhere now. Context: sem, written.
 */
static bool is_held(struct kvpool_buf *buf, pgoff_t first, pgoff_t end)
{
	struct kvpool_folio *f;
	unsigned long index;

	xa_for_each_range(&buf->folios, index, f, first, end - 1)
		if (folio_ref_count(f->folio) != 1)
			return true;
	return false;
}

/*
 * References come and go for a moment (a walk of page tables without locks, a
 * fault that waits for the folio): what is still there after 10 ms is a holder.
 */
static int wait_unheld(struct kvpool_buf *buf, pgoff_t first, pgoff_t end)
{
	int tries;

	for (tries = 0; tries < 20; tries++) {
		if (!is_held(buf, first, end))
			return 0;
		usleep_range(400, 600);
	}
	return -EBUSY;
}

static void zero_tail(struct kvpool_buf *buf, u64 n)
{
	const pgoff_t index = n >> PAGE_SHIFT;
	struct kvpool_folio *f = xa_load(&buf->folios, index);

	if (n % PAGE_SIZE && f)
		zero_user_segment(folio_page(f->folio, index - f->index),
				  n % PAGE_SIZE, PAGE_SIZE);
}

static int seal(struct kvpool_buf *buf, u64 n)
{
	const pgoff_t nr = DIV_ROUND_UP(n, PAGE_SIZE);
	const pgoff_t before = buf->nr_sealed;
	pgoff_t first = before, end = nr;
	int rc;

	lockdep_assert_held_write(&buf->sem);
	if (nr == before)
		return 0;
	kvpool_buf_widen(buf, &first, &end);
	if (kvpool_buf_is_poisoned(buf, before, nr))
		return -EHWPOISON;
	buf->nr_sealed = nr;
	kvpool_buf_block(buf, first, end);
	rc = wait_unheld(buf, before, nr);
	if (rc)
		buf->nr_sealed = before;
	else
		zero_tail(buf, n);
	return rc;
}

int kvpool_ioctl_seal(struct file *file, union kvpool_argument *arg,
		      struct kvpool_new_fd *out_fd)
{
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf_seal *args = &arg->buf_seal;
	struct kvpool_buf *buf = handle->buf;
	const u64 start = ktime_get_ns();
	int rc;

	if (args->flags)
		return -EOPNOTSUPP;
	if (args->n > buf->bytes)
		return -EINVAL;
	down_write(&buf->sem);
	if (handle->is_revoked)
		rc = -ESTALE;
	else if (buf->is_volatile || buf->is_purged ||
		 DIV_ROUND_UP(args->n, PAGE_SIZE) < buf->nr_sealed)
		rc = -EPERM;
	else
		rc = seal(buf, args->n);
	args->out_sealed = (u64)buf->nr_sealed << PAGE_SHIFT;
	up_write(&buf->sem);
	trace_kvpool_seal(buf, args->n, rc, ktime_get_ns() - start);
	if (rc)
		return rc;
	kvpool_count(buf->pool, &buf->pool->seals);
	return 0;
}

/* ---- clone ----------------------------------------------------------------------- */

/* A page of a clone that nobody else knows yet, made where it is missing. */
static int clone_page(struct kvpool_buf *to, pgoff_t at, pgoff_t end,
		      struct page **out_page)
{
	struct kvpool_folio *f = xa_load(&to->folios, at);
	int rc;

	if (!f) {
		/* Not before @at: what is a hole there stays one. */
		rc = kvpool_buf_make_folio(to, at, at, end, &f);
		if (rc)
			return rc;
		rc = kvpool_buf_store(to, f);
		if (rc) {
			kvpool_folio_destroy(to->pool, f);
			return rc;
		}
	}
	*out_page = folio_page(f->folio, at - f->index);
	return 0;
}

static int copy_pages(struct kvpool_buf *to, struct kvpool_folio *f,
		      pgoff_t first, pgoff_t end)
{
	struct page *page;
	pgoff_t at;
	int rc;

	for (at = first; at < end; at++) {
		rc = clone_page(to, at, end, &page);
		if (rc)
			return rc;
		copy_highpage(page, folio_page(f->folio, at - f->index));
	}
	return 0;
}

static int share_folio(struct kvpool_buf *to, struct kvpool_folio *f)
{
	int rc = kvpool_buf_store(to, f);

	if (!rc)
		kvpool_folio_share(to->pool, f);
	return rc;
}

/*
 * Fill a clone that nobody else knows, and whose sem is not needed therefore.
 * Context: from->sem, read, so that nothing is sealed, released or purged
 * meanwhile.
 */
static int clone_fill(struct kvpool_buf *from, struct kvpool_buf *to,
		      struct kvpool_buf_clone *args)
{
	const pgoff_t nr = DIV_ROUND_UP(args->n, PAGE_SIZE);
	const pgoff_t nr_shared =
		min_t(pgoff_t, from->nr_sealed, args->n >> PAGE_SHIFT);
	struct kvpool_folio *f;
	pgoff_t sealed = nr_shared;
	unsigned long index;
	int rc = 0;

	args->out_shared = 0;
	args->out_copied = 0;
	if (!nr)
		return 0;
	xa_for_each_range(&from->folios, index, f, 0, nr - 1) {
		if (kvpool_folio_is_poisoned(f))
			return -EHWPOISON;
		if (kvpool_folio_end(f) <= nr_shared) {
			rc = share_folio(to, f);
			args->out_shared += kvpool_folio_bytes(f);
		} else {
			const pgoff_t end = min(nr, kvpool_folio_end(f));

			sealed = min(sealed, f->index);
			rc = copy_pages(to, f, f->index, end);
			args->out_copied += (u64)(end - f->index) << PAGE_SHIFT;
		}
		if (rc)
			return rc;
		cond_resched();
	}
	to->nr_sealed = sealed;
	zero_tail(to, args->n);
	return 0;
}

static int check_clone(struct kvpool_handle *handle,
		       const struct kvpool_buf_clone *args)
{
	if (args->n > handle->limit || args->n > args->bytes)
		return -EINVAL;
	return READ_ONCE(handle->is_revoked) ? -ESTALE : 0;
}

/* The pool descriptor must be one of the same pool, opened for writing. */
static int check_pool_fd(struct kvpool_buf *buf, int fd)
{
	struct fd f = fdget(fd);
	struct kvpool_pool_file *pf;
	int rc = 0;

	if (!f.file)
		return -EBADF;
	pf = kvpool_pool_file_of(f.file);
	if (!pf || pf->pool != buf->pool)
		rc = -EINVAL;
	else if (!pf->can_write)
		rc = -EACCES;
	fdput(f);
	return rc;
}

static int clone_from(struct kvpool_handle *handle, struct kvpool_buf *to,
		      struct kvpool_buf_clone *args)
{
	struct kvpool_buf *from = handle->buf;
	int rc;

	down_read(&from->sem);
	if (handle->is_revoked)
		rc = -ESTALE;
	else if (from->is_volatile || from->is_purged ||
		 handle->seen_purges != from->nr_purges)
		rc = -EPERM;
	else
		rc = clone_fill(from, to, args);
	up_read(&from->sem);
	return rc;
}

int kvpool_ioctl_clone(struct file *file, union kvpool_argument *arg,
		       struct kvpool_new_fd *out_fd)
{
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf_clone *args = &arg->buf_clone;
	struct kvpool_pool *pool = handle->buf->pool;
	struct kvpool_buf *buf;
	int rc;

	rc = check_clone(handle, args);
	if (rc)
		return rc;
	rc = check_pool_fd(handle->buf, args->pool_fd);
	if (rc)
		return rc;
	rc = kvpool_buf_create(pool, args->bytes, args->flags, &buf);
	if (rc)
		return rc;
	rc = clone_from(handle, buf, args);
	if (rc) {
		kvpool_buf_put(buf);
		return rc;
	}
	kvpool_buf_enter(buf);
	args->out_id = buf->id;
	trace_kvpool_clone(handle->buf, buf, args->n, args->out_shared,
			   args->out_copied);
	rc = kvpool_handle_create(buf, true, buf->bytes, NULL, out_fd);
	if (rc)
		return rc;
	args->out_fd = out_fd->fd;
	kvpool_count(pool, &pool->clones);
	return 0;
}
