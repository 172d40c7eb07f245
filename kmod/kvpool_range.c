// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of a range: COMMIT and RELEASE, and what a fault fills.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/* ---- filling -------------------------------------------------------------------- */

/* Context: sem. Why pages from @first on cannot be changed; 0: they can. */
static int check_open(struct kvpool_handle *handle, pgoff_t first)
{
	struct kvpool_buf *buf = handle->buf;

	if (handle->is_revoked)
		return -ESTALE;
	if (buf->is_volatile || buf->is_purged || first < buf->nr_sealed)
		return -EPERM;
	return 0;
}

/* The first page of [from, end) that has no folio; @end: none. Context: sem. */
static pgoff_t next_gap(struct kvpool_buf *buf, pgoff_t from, pgoff_t end)
{
	struct kvpool_folio *f;

	while (from < end) {
		f = xa_load(&buf->folios, from);
		if (!f)
			break;
		from = kvpool_folio_end(f);
	}
	return min(from, end);
}

/*
 * The largest folio that fits at @index: not before @from, before @end, behind
 * the seal, and where nothing is. Context: sem.
 */
static unsigned int order_at(struct kvpool_buf *buf, pgoff_t index,
			     pgoff_t from, pgoff_t end, unsigned int max_order)
{
	static const unsigned int orders[] = { KVPOOL_HUGE_ORDER,
					       KVPOOL_BLOCK_ORDER };
	int i;

	for (i = 0; i < ARRAY_SIZE(orders); i++) {
		const pgoff_t nr = 1UL << orders[i];
		unsigned long first = ALIGN_DOWN(index, nr);

		if (orders[i] > max_order || first < buf->nr_sealed ||
		    first < from || first + nr > end)
			continue;
		if (!xa_find(&buf->folios, &first, first + nr - 1, XA_PRESENT))
			return orders[i];
	}
	return 0;
}

/*
 * A folio for the gap at @index, of the largest order that is to be had and ends
 * before @end; not in the buffer yet. Context: the buffer's sem is not held, or nobody knows the
 * buffer. Return: 0, -ENOSPC, -EDQUOT, -ENOMEM.
 */
int kvpool_buf_make_folio(struct kvpool_buf *buf, pgoff_t index, pgoff_t from,
			  pgoff_t end, struct kvpool_folio **out_f)
{
	unsigned int order = buf->max_order;
	int rc;

	for (;;) {
		/* Nested: a clone is filled with the sem of its source held. */
		down_read_nested(&buf->sem, SINGLE_DEPTH_NESTING);
		order = order_at(buf, index, from, end, order);
		up_read(&buf->sem);
		rc = kvpool_folio_create(buf->pool, buf->owner,
					 ALIGN_DOWN(index, 1UL << order), order,
					 out_f);
		if (!rc || !order)
			return rc;
		order--; /* order_at() rounds it down to one in use */
	}
}

/*
 * Puts new folios in, all or none. Return: 0; -EAGAIN: another was faster
 * somewhere; why the buffer is not open any longer; -ENOMEM.
 */
static int insert_all(struct kvpool_handle *handle, struct list_head *fresh,
		      pgoff_t first)
{
	struct kvpool_buf *buf = handle->buf;
	struct kvpool_folio *f;
	unsigned long index;
	int rc;

	lockdep_assert_held_write(&buf->sem);
	rc = check_open(handle, first);
	if (rc)
		return rc;
	list_for_each_entry(f, fresh, list) {
		index = f->index;
		if (f->index < buf->nr_sealed ||
		    xa_find(&buf->folios, &index, kvpool_folio_end(f) - 1,
			    XA_PRESENT))
			return -EAGAIN;
	}
	list_for_each_entry(f, fresh, list) {
		rc = kvpool_buf_store(buf, f);
		if (rc)
			goto err_erase;
	}
	return 0;

err_erase:
	/* Nobody has seen them: faults wait for sem. */
	list_for_each_entry_continue_reverse(f, fresh, list)
		xa_erase(&buf->folios, f->index);
	return rc;
}

static int fill_all(struct kvpool_handle *handle, pgoff_t first, pgoff_t end,
		    struct list_head *fresh, pgoff_t *out_end)
{
	struct kvpool_buf *buf = handle->buf;
	struct kvpool_folio *f;
	pgoff_t at = first, from = 0;
	int rc;

	for (;;) {
		down_read(&buf->sem);
		rc = check_open(handle, first);
		at = next_gap(buf, at, end);
		up_read(&buf->sem);
		*out_end = at;
		if (rc || at == end)
			return rc;
		if (fatal_signal_pending(current))
			return -EINTR;
		rc = kvpool_buf_make_folio(buf, at, from,
					   buf->bytes >> PAGE_SHIFT, &f);
		if (rc)
			return rc;
		list_add_tail(&f->list, fresh);
		/* What is fresh is not in the buffer yet: nothing goes over it. */
		at = kvpool_folio_end(f);
		from = at;
		cond_resched();
	}
}

static void destroy_list(struct kvpool_pool *pool, struct list_head *list)
{
	struct kvpool_folio *f, *next;

	list_for_each_entry_safe(f, next, list, list) {
		list_del(&f->list);
		kvpool_folio_destroy(pool, f);
		cond_resched();
	}
}

static void note_limit(struct kvpool_buf *buf, pgoff_t first, pgoff_t end,
		       pgoff_t done, int rc)
{
	struct kvpool_pool *pool = buf->pool;

	kvpool_count(pool, &pool->limit_hits);
	trace_kvpool_limit(buf, (u64)(end - done) << PAGE_SHIFT, rc);
	kvpool_event_send(pool, KVPOOL_EVENT_LIMIT, buf->id,
			  (u64)(end - first) << PAGE_SHIFT, buf->owner->uid);
}

/**
 * kvpool_buf_populate() - have pages in [first, end)
 * @handle: of the buffer
 * @first: first page
 * @end: behind the last page
 * @is_partial: keep what could be given, and succeed if that is anything
 * @out_end: pages [first, *out_end) are there
 *
 * The new folios are made without a lock, which is what takes long, and put in
 * all at once: all or nothing. Where somebody else has put one in meanwhile,
 * it begins anew; each such round means that another has got on.
 *
 * Context: may sleep; no lock of the module is held; page faults call it.
 * Return: 0; -ENOSPC, -EDQUOT, -ENOMEM, -EPERM, -ESTALE, -EINTR.
 */
int kvpool_buf_populate(struct kvpool_handle *handle, pgoff_t first,
			pgoff_t end, bool is_partial, pgoff_t *out_end)
{
	struct kvpool_buf *buf = handle->buf;
	LIST_HEAD(fresh);
	int rc;

	do {
		rc = fill_all(handle, first, end, &fresh, out_end);
		if (rc == -ENOSPC || rc == -EDQUOT)
			note_limit(buf, first, end, *out_end, rc);
		if (rc && is_partial && *out_end > first)
			rc = 0;
		if (!rc && !list_empty(&fresh)) {
			down_write(&buf->sem);
			rc = insert_all(handle, &fresh, first);
			up_write(&buf->sem);
		}
		if (rc)
			destroy_list(buf->pool, &fresh);
		else
			INIT_LIST_HEAD(&fresh);
	} while (rc == -EAGAIN);
	return rc;
}

/* ---- the calls ------------------------------------------------------------------- */

static int read_range(struct kvpool_handle *handle,
		      const struct kvpool_buf_range *args, pgoff_t *out_first,
		      pgoff_t *out_end)
{
	u64 end;

	if (!args->len || args->offset % PAGE_SIZE || args->len % PAGE_SIZE ||
	    check_add_overflow(args->offset, args->len, &end) ||
	    end > handle->buf->bytes)
		return -EINVAL;
	*out_first = args->offset >> PAGE_SHIFT;
	*out_end = end >> PAGE_SHIFT;
	return READ_ONCE(handle->is_revoked) ? -ESTALE : 0;
}

int kvpool_ioctl_commit(struct file *file, union kvpool_argument *arg,
			struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_range *args = &arg->buf_range;
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf *buf = handle->buf;
	const u64 start = ktime_get_ns();
	pgoff_t first, end, done;
	int rc;

	if (args->flags & ~KVPOOL_COMMIT_PARTIAL)
		return -EOPNOTSUPP;
	rc = read_range(handle, args, &first, &end);
	if (rc)
		return rc;
	down_read(&buf->sem);
	rc = kvpool_buf_is_poisoned(buf, first, end) ? -EHWPOISON : 0;
	up_read(&buf->sem);
	if (rc)
		return rc;
	/*
	 * The state may move between the making and the look: what counts is
	 * that the pages are there when nobody took them away since.
	 */
	rc = kvpool_buf_populate(handle, first, end,
				 args->flags & KVPOOL_COMMIT_PARTIAL, &done);
	trace_kvpool_commit(buf, args->offset, args->len, rc,
			    ktime_get_ns() - start);
	if (rc)
		return rc;
	args->out_done = (u64)(done - first) << PAGE_SHIFT;
	kvpool_count(buf->pool, &buf->pool->commits);
	return 0;
}

static void zero_pages(struct kvpool_folio *f, pgoff_t first, pgoff_t end)
{
	pgoff_t at;

	for (at = first; at < end; at++) {
		struct page *page = folio_page(f->folio, at - f->index);

		/* Touching a failed one ends the machine. */
		if (!PageHWPoison(page))
			clear_highpage(page);
	}
}

/* ---- a folio that lies partly in the range ------------------------------------ */

/* Small folios for [from, to), as many as are to be had. */
static void make_pieces(struct kvpool_buf *buf, pgoff_t from, pgoff_t to,
			struct list_head *pieces)
{
	struct kvpool_folio *piece;
	pgoff_t at;

	for (at = from; at < to; at++) {
		if (kvpool_folio_create(buf->pool, buf->owner, at, 0, &piece))
			return;
		list_add_tail(&piece->list, pieces);
	}
}

/*
 * Pieces for the pages outside [first, end) of the folios that lie across its
 * ends: of one folio, or of two. Return: why the range is not open; 0.
 */
static int make_all_pieces(struct kvpool_handle *handle, pgoff_t first,
			   pgoff_t end, struct list_head *pieces)
{
	struct kvpool_buf *buf = handle->buf;
	pgoff_t from = first, to = end;
	int rc;

	down_read(&buf->sem);
	rc = check_open(handle, first);
	kvpool_buf_widen(buf, &from, &to);
	up_read(&buf->sem);
	if (rc)
		return rc;
	make_pieces(buf, from, first, pieces);
	make_pieces(buf, end, to, pieces);
	return 0;
}

static bool has_all_pieces(const struct kvpool_folio *f, pgoff_t first,
			   pgoff_t end, const struct list_head *pieces)
{
	const pgoff_t f_end = kvpool_folio_end(f);
	const pgoff_t nr =
		(1UL << f->order) - (min(end, f_end) - max(first, f->index));
	struct kvpool_folio *piece;
	pgoff_t found = 0;

	list_for_each_entry(piece, pieces, list)
		if (piece->index >= f->index && piece->index < f_end)
			found++;
	return found == nr;
}

/*
 * Put the pieces in the place of @f, with its bytes. Context: sem, written;
 * the whole folio is blocked. Return: whether @f is out of the buffer.
 */
static bool replace_folio(struct kvpool_buf *buf, struct kvpool_folio *f,
			  pgoff_t first, pgoff_t end, struct list_head *pieces)
{
	XA_STATE_ORDER(xas, &buf->folios, f->index, 0);
	struct kvpool_folio *piece, *next;
	pgoff_t at;

	/* Kernels built to be small have trees too flat for that. */
	if (f->order > 2 * XA_CHUNK_SHIFT)
		return false;
	/* The pieces are private: what was published is paid as such to its end. */
	if (READ_ONCE(f->publisher))
		return false;
	if (!has_all_pieces(f, first, end, pieces) ||
	    folio_ref_count(f->folio) != 1 ||
	    kvpool_folio_nr_bufs(buf->pool, f) != 1 ||
	    kvpool_folio_is_poisoned(f))
		return false;
	xas_split_alloc(&xas, f, f->order, KVPOOL_RECORD_GFP);
	if (xas_error(&xas))
		return false;
	xas_lock(&xas);
	xas_split(&xas, f, f->order);
	xas_unlock(&xas);
	list_for_each_entry_safe(piece, next, pieces, list) {
		if (piece->index < f->index ||
		    piece->index >= kvpool_folio_end(f))
			continue;
		list_del(&piece->list);
		copy_highpage(&piece->folio->page,
			      folio_page(f->folio, piece->index - f->index));
		/* The nodes are there: nothing is allocated. */
		xa_store(&buf->folios, piece->index, piece, GFP_NOWAIT);
	}
	for (at = max(first, f->index); at < min(end, kvpool_folio_end(f));
	     at++)
		xa_erase(&buf->folios, at);
	return true;
}

/* Context: sem, written. Return: the bytes that left the buffer. */
static u64 take_range(struct kvpool_buf *buf, pgoff_t first, pgoff_t end,
		      struct list_head *pieces, struct list_head *gone)
{
	struct kvpool_folio *f;
	pgoff_t from = first, to = end;
	unsigned long index;
	u64 done = 0;

	kvpool_buf_widen(buf, &from, &to);
	kvpool_buf_block(buf, from, to);
	xa_for_each_range(&buf->folios, index, f, first, end - 1) {
		const pgoff_t f_first = max(first, f->index);
		const pgoff_t f_end = min(end, kvpool_folio_end(f));

		if (f->index >= first && kvpool_folio_end(f) <= end) {
			xa_erase(&buf->folios, f->index);
			list_add_tail(&f->list, gone);
		} else if (replace_folio(buf, f, first, end, pieces)) {
			list_add_tail(&f->list, gone);
		} else {
			zero_pages(f, f_first, f_end);
			continue;
		}
		done += (u64)(f_end - f_first) << PAGE_SHIFT;
	}
	return done;
}

int kvpool_ioctl_release(struct file *file, union kvpool_argument *arg,
			 struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_range *args = &arg->buf_range;
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf *buf = handle->buf;
	pgoff_t first, end;
	LIST_HEAD(pieces);
	LIST_HEAD(gone);
	int rc;

	if (args->flags)
		return -EOPNOTSUPP;
	rc = read_range(handle, args, &first, &end);
	if (rc)
		return rc;
	rc = make_all_pieces(handle, first, end, &pieces);
	if (rc)
		return rc;
	down_write(&buf->sem);
	rc = check_open(handle, first);
	if (!rc)
		args->out_done = take_range(buf, first, end, &pieces, &gone);
	up_write(&buf->sem);
	destroy_list(buf->pool, &gone);
	destroy_list(buf->pool, &pieces);
	if (rc)
		return rc;
	trace_kvpool_release(buf, args->offset, args->len, args->out_done);
	kvpool_count(buf->pool, &buf->pool->releases);
	return 0;
}
