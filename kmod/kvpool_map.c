// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings and page faults. Folios, never page frame numbers: the pages can be
 * pinned, counted and poisoned like any other, and a huge folio gets a PMD from
 * the fault code by itself. No page_mkwrite: it would forbid long-term pins of
 * writable mappings since 6.5.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "kvpool_compat.h"
#include "kvpool_private.h"
#include "kvpool_trace.h"

/* Whether the handle may touch the page at all. Context: sem. */
static bool may_touch(struct kvpool_handle *handle, struct vm_area_struct *vma,
		      pgoff_t index)
{
	struct kvpool_buf *buf = handle->buf;

	if (handle->is_revoked || buf->is_volatile || buf->is_purged)
		return false;
	/* What was lost and begun anew is not what this one has mapped. */
	if (handle->seen_purges != buf->nr_purges)
		return false;
	if (index >= DIV_ROUND_UP(handle->limit, PAGE_SIZE))
		return false;
	return index >= buf->nr_sealed || !(vma->vm_flags & VM_WRITE);
}

/* Whether a missing page may be made for it. Context: sem. */
static bool may_fill(struct kvpool_handle *handle, pgoff_t index)
{
	return handle->can_write && index >= handle->buf->nr_sealed;
}

/*
 * The page at @index, locked, with a reference, or why not.
 * Return: VM_FAULT_LOCKED; VM_FAULT_SIGBUS, VM_FAULT_HWPOISON; 0: it is
 * missing and may be made; VM_FAULT_RETRY: the state moved, look again.
 * @out_is_straddling: a huge folio that is sealed in part.
 */
static vm_fault_t find_page(struct kvpool_handle *handle, struct vm_fault *vmf,
			    bool *out_is_straddling)
{
	struct kvpool_buf *buf = handle->buf;
	struct kvpool_folio *f;
	struct folio *folio;
	bool is_straddling;
	unsigned long gen;
	pgoff_t index;

	down_read(&buf->sem);
	if (!may_touch(handle, vmf->vma, vmf->pgoff)) {
		up_read(&buf->sem);
		return VM_FAULT_SIGBUS;
	}
	f = xa_load(&buf->folios, vmf->pgoff);
	if (!f) {
		const bool may = may_fill(handle, vmf->pgoff);

		up_read(&buf->sem);
		return may ? 0 : VM_FAULT_SIGBUS;
	}
	folio = f->folio;
	index = f->index;
	is_straddling = f->order == KVPOOL_HUGE_ORDER && index < buf->nr_sealed;
	folio_get(folio);
	gen = buf->gen;
	up_read(&buf->sem);

	folio_lock(folio);
	/* Pairs with kvpool_buf_block(). */
	if (READ_ONCE(buf->gen) != gen) {
		folio_unlock(folio);
		folio_put(folio);
		return VM_FAULT_RETRY;
	}
	*out_is_straddling = is_straddling;
	vmf->page = folio_page(folio, vmf->pgoff - index);
	if (PageHWPoison(vmf->page) ||
	    (folio_test_large(folio) && folio_test_has_hwpoisoned(folio))) {
		folio_unlock(folio);
		folio_put(folio);
		vmf->page = NULL;
		return VM_FAULT_HWPOISON;
	}
	return VM_FAULT_LOCKED;
}

static int leave_pte(pte_t *pte, unsigned long addr, void *data)
{
	return 0;
}

/*
 * A PMD of a writable mapping would let sealed pages of the folio be written.
 * The fault code installs one only where no page table is: so there is to be
 * one, which stays as long as the mapping. (VM_MIXEDMAP and vm_insert_page() are
 * no way: the unmapping of PMDs in such a VMA forgets the folio.)
 */
static vm_fault_t forbid_pmd(struct vm_fault *vmf)
{
	if (!apply_to_page_range(vmf->vma->vm_mm, vmf->address & PAGE_MASK,
				 PAGE_SIZE, leave_pte, NULL))
		return VM_FAULT_LOCKED;
	unlock_page(vmf->page);
	put_page(vmf->page);
	vmf->page = NULL;
	return VM_FAULT_SIGBUS;
}

/*
 * Out of memory of whatever kind is SIGBUS: VM_FAULT_OOM would have the fault
 * taken again and again, for ever.
 */
static vm_fault_t kvpool_fault(struct vm_fault *vmf)
{
	struct kvpool_handle *handle = vmf->vma->vm_file->private_data;
	struct kvpool_buf *buf = handle->buf;
	const u64 start = trace_kvpool_fault_enabled() ? ktime_get_ns() : 0;
	bool is_filled = false, is_straddling = false;
	vm_fault_t ret;
	pgoff_t done;
	int rc;

	for (;;) {
		ret = find_page(handle, vmf, &is_straddling);
		if (ret && ret != VM_FAULT_RETRY)
			break;
		if (fatal_signal_pending(current)) {
			ret = VM_FAULT_SIGBUS;
			break;
		}
		if (ret == VM_FAULT_RETRY)
			continue;
		rc = kvpool_buf_populate(handle, vmf->pgoff, vmf->pgoff + 1,
					 false, &done);
		if (rc) {
			ret = VM_FAULT_SIGBUS;
			break;
		}
		is_filled = true;
	}
	if (ret == VM_FAULT_LOCKED && is_straddling &&
	    vmf->vma->vm_flags & VM_WRITE)
		ret = forbid_pmd(vmf);
	if (is_filled)
		kvpool_count(buf->pool, &buf->pool->faults);
	if (start)
		trace_kvpool_fault(buf, vmf->pgoff,
				   vmf->flags & FAULT_FLAG_WRITE, is_filled,
				   (__force unsigned int)ret,
				   ktime_get_ns() - start);
	return ret;
}

/* Write access to sealed bytes is refused as for a file that cannot be written. */
static int kvpool_mprotect(struct vm_area_struct *vma, unsigned long start,
			   unsigned long end, unsigned long new_flags)
{
	struct kvpool_handle *handle = vma->vm_file->private_data;
	struct kvpool_buf *buf = handle->buf;
	const pgoff_t first =
		vma->vm_pgoff + ((start - vma->vm_start) >> PAGE_SHIFT);
	int rc = 0;

	if (!(new_flags & VM_WRITE))
		return 0;
	down_read(&buf->sem);
	if (first < buf->nr_sealed)
		rc = -EACCES;
	up_read(&buf->sem);
	return rc;
}

/* No policy of a VMA: the pool's nodes decide, and hinting faults stay away. */
static struct mempolicy *kvpool_get_policy(struct vm_area_struct *vma,
					   unsigned long addr)
{
	return NULL;
}

static const struct vm_operations_struct kvpool_vm_ops = {
	.fault = kvpool_fault,
	.mprotect = kvpool_mprotect,
#ifdef CONFIG_NUMA
	.get_policy = kvpool_get_policy,
#endif
};

int kvpool_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct kvpool_handle *handle = file->private_data;
	struct kvpool_buf *buf = handle->buf;
	const pgoff_t nr_limit = DIV_ROUND_UP(handle->limit, PAGE_SIZE);
	const pgoff_t nr = vma_pages(vma);
	int rc = 0;

	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_pgoff > nr_limit || nr > nr_limit - vma->vm_pgoff)
		return -EINVAL;
	down_read(&buf->sem);
	if (handle->is_revoked)
		rc = -ESTALE;
	else if (vma->vm_flags & VM_WRITE && vma->vm_pgoff < buf->nr_sealed)
		rc = -EACCES;
	up_read(&buf->sem);
	if (rc)
		return rc;
	kvpool_vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &kvpool_vm_ops;
	return 0;
}
