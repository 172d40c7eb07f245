/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place that asks for the kernel's version. Each case names the
 * change upstream that it answers. Written for Debian 12's 6.1.
 */
#ifndef _KVPOOL_COMPAT_H
#define _KVPOOL_COMPAT_H

#include <linux/mm.h>
#include <linux/version.h>

/* bc292ab00f6c (6.3): vma->vm_flags is changed by functions only. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void kvpool_vm_flags_set(struct vm_area_struct *vma,
				       unsigned long flags)
{
	vma->vm_flags |= flags;
}
#else
#define kvpool_vm_flags_set(vma, flags) vm_flags_set(vma, flags)
#endif

#endif /* _KVPOOL_COMPAT_H */
