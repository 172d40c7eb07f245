// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/kvpool: the module's beginning and end, the device, and the one way in
 * for ioctls. See kvpool_private.h for objects and locks.
 */
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "kvpool_private.h"

#define CREATE_TRACE_POINTS
#include "kvpool_trace.h"

unsigned int kvpool_max_pools = 1024;
module_param_named(max_pools, kvpool_max_pools, uint, 0644);
MODULE_PARM_DESC(max_pools, "most pools at a time (default 1024)");

unsigned int kvpool_max_bufs = 65536;
module_param_named(max_bufs, kvpool_max_bufs, uint, 0644);
MODULE_PARM_DESC(max_bufs,
		 "most buffers of one uid in one pool (default 65536)");

unsigned int kvpool_max_keys = 1048576;
module_param_named(max_keys, kvpool_max_keys, uint, 0644);
MODULE_PARM_DESC(max_keys,
		 "most keys of one uid in one pool (default 1048576)");

unsigned long kvpool_max_reserve = 256UL << 20;
module_param_named(max_reserve, kvpool_max_reserve, ulong, 0644);
MODULE_PARM_DESC(max_reserve,
		 "most zeroed bytes a pool keeps ready (default 256 MiB)");

struct workqueue_struct *kvpool_wq;

/* ---- ioctls --------------------------------------------------------------------- */

static int call_with(const struct kvpool_ioctl *ioctl, struct file *file,
		     void __user *user, u32 size)
{
	struct kvpool_new_fd new_fd = { .fd = -1 };
	union kvpool_argument arg;
	int rc;

	memset(&arg, 0, sizeof(arg));
	rc = copy_struct_from_user(&arg, ioctl->size, user, size);
	if (rc)
		return rc;
	/* What cannot be answered is not begun. */
	if (copy_to_user(user, &arg, min(size, ioctl->size)))
		return -EFAULT;
	rc = ioctl->call(file, &arg, &new_fd);
	if (rc)
		return rc;
	if (copy_to_user(user, &arg, min(size, ioctl->size))) {
		if (new_fd.fd >= 0) {
			put_unused_fd(new_fd.fd);
			fput(new_fd.file);
		}
		return -EFAULT;
	}
	if (new_fd.fd >= 0)
		fd_install(new_fd.fd, new_fd.file);
	return 0;
}

/* For the ioctl of every kind of file: finds the call, checks size and right. */
long kvpool_ioctl_dispatch(const struct kvpool_ioctl *table, size_t nr,
			   struct file *file, unsigned int cmd,
			   unsigned long arg)
{
	void __user *user = (void __user *)arg;
	size_t i;
	u32 size;

	for (i = 0; i < nr; i++)
		if (table[i].cmd == cmd)
			break;
	if (i == nr)
		return -ENOTTY;
	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size < table[i].min_size)
		return -EINVAL;
	/* What lies behind the struct is looked at byte by byte. */
	if (size > PAGE_SIZE)
		return -E2BIG;
	if (table[i].is_writer && !(file->f_mode & FMODE_WRITE))
		return -EACCES;
	return call_with(&table[i], file, user, size);
}

static int ioctl_info(struct file *file, union kvpool_argument *arg,
		      struct kvpool_new_fd *out_fd)
{
	struct kvpool_info *info = &arg->info;

	if (info->flags || info->__reserved)
		return -EOPNOTSUPP;
	info->out_abi_version = KVPOOL_ABI_VERSION;
	info->out_page_size = PAGE_SIZE;
	info->out_huge_size = PMD_SIZE;
	info->out_max_order = KVPOOL_HUGE_ORDER;
	info->out_features = KVPOOL_FEATURE_HUGE | KVPOOL_FEATURE_PURGE;
	if (IS_ENABLED(CONFIG_MEMCG_KMEM))
		info->out_features |= KVPOOL_FEATURE_MEMCG;
	info->out_max_marks = KVPOOL_MAX_MARKS;
	return 0;
}

static int ioctl_pool_create(struct file *file, union kvpool_argument *arg,
			     struct kvpool_new_fd *out_fd)
{
	return kvpool_pool_create(arg, out_fd);
}

static int ioctl_pool_open(struct file *file, union kvpool_argument *arg,
			   struct kvpool_new_fd *out_fd)
{
	return kvpool_pool_open(arg, out_fd);
}

static int ioctl_pool_next(struct file *file, union kvpool_argument *arg,
			   struct kvpool_new_fd *out_fd)
{
	return kvpool_pool_next(arg);
}

static const struct kvpool_ioctl device_ioctls[] = {
	{ KVPOOL_INFO, 40, sizeof(struct kvpool_info), false, ioctl_info },
	{ KVPOOL_POOL_CREATE, 128, sizeof(struct kvpool_pool_create), false,
	  ioctl_pool_create },
	{ KVPOOL_POOL_OPEN, 80, sizeof(struct kvpool_pool_open), false,
	  ioctl_pool_open },
	{ KVPOOL_POOL_NEXT, 104, sizeof(struct kvpool_pool_next), false,
	  ioctl_pool_next },
};

static long device_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return kvpool_ioctl_dispatch(device_ioctls, ARRAY_SIZE(device_ioctls),
				     file, cmd, arg);
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.llseek = no_llseek,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* Everybody may have a pool of his own; group and mode are udev's to change. */
static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvpool",
	.fops = &device_fops,
	.mode = 0660,
};

/* ---- beginning and end ------------------------------------------------------------- */

static int __init kvpool_init(void)
{
	int rc = -ENOMEM;

	kvpool_wq = alloc_workqueue("kvpool", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!kvpool_wq)
		return rc;
	rc = kvpool_folio_init();
	if (rc)
		goto err_wq;
	rc = kvpool_buf_init();
	if (rc)
		goto err_folio;
	rc = kvpool_reclaim_init();
	if (rc)
		goto err_buf;
	rc = misc_register(&device);
	if (rc)
		goto err_reclaim;
	kvpool_debugfs_init();
	pr_info("kvpool: ABI %d, folios of %lu KiB\n", KVPOOL_ABI_VERSION,
		PMD_SIZE >> 10);
	return 0;

err_reclaim:
	kvpool_reclaim_exit();
err_buf:
	kvpool_buf_exit();
err_folio:
	kvpool_folio_exit();
err_wq:
	destroy_workqueue(kvpool_wq);
	return rc;
}

/* No file and no pool is left: each holds the module. */
static void __exit kvpool_exit(void)
{
	kvpool_debugfs_exit();
	misc_deregister(&device);
	destroy_workqueue(kvpool_wq);
	kvpool_reclaim_exit();
	kvpool_buf_exit();
	kvpool_folio_exit();
	rcu_barrier();
}

module_init(kvpool_init);
module_exit(kvpool_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The Tarn authors");
MODULE_DESCRIPTION("Pools of KV cache memory: demand-paged, shared, limited");
MODULE_VERSION("1");
