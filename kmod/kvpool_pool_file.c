// SPDX-License-Identifier: GPL-2.0
/*
 * Open descriptions of pools: the calls on them, and their events.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/* ---- events ------------------------------------------------------------------ */

static struct kvpool_event_record *find_waiting(struct kvpool_pool_file *pf,
						u32 kind)
{
	unsigned int i;

	for (i = 0; i < pf->nr; i++) {
		struct kvpool_event_record *record =
			&pf->events[(pf->first + i) % KVPOOL_QUEUE_EVENTS];

		if (record->kind == kind)
			return record;
	}
	return NULL;
}

static void queue_event(struct kvpool_pool_file *pf,
			const struct kvpool_event_record *event)
{
	struct kvpool_event_record *record = NULL;

	if (event->kind != KVPOOL_EVENT_PURGED)
		record = find_waiting(pf, event->kind);
	if (record) {
		record->count++;
		record->id = event->id;
		record->bytes = event->bytes;
	} else if (pf->nr == KVPOOL_QUEUE_EVENTS) {
		pf->nr_lost++;
	} else {
		pf->events[(pf->first + pf->nr++) % KVPOOL_QUEUE_EVENTS] =
			*event;
	}
	wake_up_interruptible(&pf->wait);
}

/**
 * kvpool_event_send() - tell those who have the pool open
 * @pool: the pool
 * @kind: enum kvpool_event_kind
 * @id: buffer, 0: none
 * @bytes: see struct kvpool_event_record
 * @uid: told to his descriptors and the pool owner's; INVALID_UID: to all
 *
 * Context: any that may take a spin lock; reclaim among them.
 */
void kvpool_event_send(struct kvpool_pool *pool, u32 kind, u64 id, u64 bytes,
		       kuid_t uid)
{
	const struct kvpool_event_record event = {
		.kind = kind,
		.count = 1,
		.id = id,
		.bytes = bytes,
	};
	struct kvpool_pool_file *pf;

	spin_lock(&pool->event_lock);
	list_for_each_entry(pf, &pool->subscribers, list)
		if (!uid_valid(uid) || uid_eq(pf->uid, uid) ||
		    uid_eq(pf->uid, pool->uid))
			queue_event(pf, &event);
	spin_unlock(&pool->event_lock);
}

static bool take_event(struct kvpool_pool_file *pf,
		       struct kvpool_event_record *out)
{
	bool is_there = true;

	spin_lock(&pf->pool->event_lock);
	if (pf->nr) {
		*out = pf->events[pf->first];
		pf->first = (pf->first + 1) % KVPOOL_QUEUE_EVENTS;
		pf->nr--;
	} else if (pf->nr_lost) {
		*out = (struct kvpool_event_record){
			.kind = KVPOOL_EVENT_LOST,
			.count = pf->nr_lost,
		};
		pf->nr_lost = 0;
	} else {
		is_there = false;
	}
	spin_unlock(&pf->pool->event_lock);
	return is_there;
}

static bool has_events(struct kvpool_pool_file *pf)
{
	return READ_ONCE(pf->nr) || READ_ONCE(pf->nr_lost);
}

static ssize_t pool_read(struct file *file, char __user *to, size_t count,
			 loff_t *pos)
{
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_event_record event;
	size_t done = 0;
	int rc;

	if (count < sizeof(event))
		return -EINVAL;
	while (count - done >= sizeof(event)) {
		if (!take_event(pf, &event)) {
			if (done)
				break;
			if (file->f_flags & O_NONBLOCK)
				return -EAGAIN;
			rc = wait_event_interruptible(pf->wait, has_events(pf));
			if (rc)
				return rc;
			continue;
		}
		/* A record that cannot be written is lost, as with a pipe. */
		if (copy_to_user(to + done, &event, sizeof(event)))
			return done ? done : -EFAULT;
		done += sizeof(event);
	}
	return done;
}

static __poll_t pool_poll(struct file *file, poll_table *wait)
{
	struct kvpool_pool_file *pf = file->private_data;

	poll_wait(file, &pf->wait, wait);
	return has_events(pf) ? EPOLLIN | EPOLLRDNORM : 0;
}

/* ---- calls -------------------------------------------------------------------- */

static int read_account(struct kvpool_pool *pool, struct kvpool_pool_stat *out)
{
	kuid_t uid = make_kuid(current_user_ns(), out->uid);
	struct kvpool_account *account;

	if (!uid_valid(uid))
		return -EINVAL;
	out->out_charged = 0;
	out->out_shared = 0;
	out->out_draining = 0;
	/* None is made: a reader may ask for four billion of them. */
	spin_lock(&pool->acct_lock);
	account = kvpool_account_find(pool, uid);
	if (account) {
		out->out_charged = account->private + account->shared;
		out->out_shared = account->shared;
		out->out_draining = account->draining;
	}
	if (account && account->has_quota) {
		out->out_quota = account->quota;
		out->out_shared_quota = account->shared_quota;
	}
	spin_unlock(&pool->acct_lock);
	return 0;
}

static void read_pool(struct kvpool_pool *pool, struct kvpool_pool_stat *out)
{
	spin_lock(&pool->lru_lock);
	spin_lock(&pool->acct_lock);
	out->out_id = pool->id;
	out->out_limit = pool->limit;
	out->out_quota = pool->quota;
	out->out_shared_quota = pool->shared_quota;
	out->out_charged = pool->charged;
	out->out_resident = pool->resident;
	out->out_shared = pool->shared;
	out->out_volatile = pool->volatile_bytes + pool->shared_volatile;
	out->out_draining = pool->draining;
	out->out_reserve = pool->reserve;
	out->out_peak = pool->peak;
	out->out_huge = pool->huge;
	out->out_poisoned = pool->poisoned;
	out->out_nr_bufs = pool->nr_bufs;
	out->out_nr_keys = pool->nr_keys;
	out->out_faults = pool->faults;
	out->out_commits = pool->commits;
	out->out_releases = pool->releases;
	out->out_seals = pool->seals;
	out->out_clones = pool->clones;
	out->out_publishes = pool->publishes;
	out->out_lookups = pool->lookups;
	out->out_hits = pool->hits;
	out->out_purges = pool->purges;
	out->out_purged = pool->purged;
	out->out_limit_hits = pool->limit_hits;
	spin_unlock(&pool->acct_lock);
	spin_unlock(&pool->lru_lock);
}

static int ioctl_stat(struct file *file, union kvpool_argument *arg,
		      struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_pool_stat *stat = &arg->pool_stat;

	if (stat->flags || stat->__reserved)
		return -EOPNOTSUPP;
	read_pool(pf->pool, stat);
	return stat->uid == KVPOOL_NO_UID ? 0 : read_account(pf->pool, stat);
}

static int ioctl_set_limit(struct file *file, union kvpool_argument *arg,
			   struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_pool *pool = pf->pool;
	u64 over;

	if (arg->pool_set_limit.flags)
		return -EOPNOTSUPP;
	if (!arg->pool_set_limit.limit)
		return -EINVAL;
	if (!kvpool_may_manage(pool))
		return -EPERM;
	spin_lock(&pool->acct_lock);
	pool->limit = arg->pool_set_limit.limit;
	pool->reserve_target = min(pool->reserve_target, pool->limit);
	spin_unlock(&pool->acct_lock);
	do {
		spin_lock(&pool->acct_lock);
		over = pool->charged > pool->limit ?
			       pool->charged - pool->limit :
			       0;
		spin_unlock(&pool->acct_lock);
	} while (over && kvpool_reclaim(pool, NULL, over));
	return over ? -EBUSY : 0;
}

static int ioctl_set_quota(struct file *file, union kvpool_argument *arg,
			   struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_set_quota *args = &arg->pool_set_quota;
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_account *account;
	kuid_t uid;

	if (args->flags || args->__reserved)
		return -EOPNOTSUPP;
	uid = make_kuid(current_user_ns(), args->uid);
	if (!uid_valid(uid))
		return -EINVAL;
	if (!kvpool_may_manage(pf->pool))
		return -EPERM;
	account = kvpool_account_get(pf->pool, uid);
	if (!account)
		return -ENOMEM;
	spin_lock(&pf->pool->acct_lock);
	account->has_quota = true;
	account->quota = args->quota;
	account->shared_quota = args->shared_quota;
	spin_unlock(&pf->pool->acct_lock);
	return 0;
}

static int ioctl_trim(struct file *file, union kvpool_argument *arg,
		      struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_file *pf = file->private_data;

	if (arg->pool_trim.flags)
		return -EOPNOTSUPP;
	if (!kvpool_may_manage(pf->pool))
		return -EPERM;
	flush_delayed_work(&pf->pool->refill_work);
	arg->pool_trim.out_bytes =
		kvpool_reclaim(pf->pool, NULL, arg->pool_trim.bytes);
	return 0;
}

static int ioctl_secret(struct file *file, union kvpool_argument *arg,
			struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_file *pf = file->private_data;

	if (arg->pool_secret.flags)
		return -EOPNOTSUPP;
	memcpy(arg->pool_secret.out_secret, pf->pool->secret,
	       sizeof(arg->pool_secret.out_secret));
	return 0;
}

static int ioctl_buf_create(struct file *file, union kvpool_argument *arg,
			    struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_create *args = &arg->buf_create;
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_buf *buf;
	int rc;

	if (args->__reserved)
		return -EOPNOTSUPP;
	rc = kvpool_buf_create(pf->pool, args->bytes, args->flags, &buf);
	if (rc)
		return rc;
	kvpool_buf_enter(buf);
	args->out_id = buf->id;
	rc = kvpool_handle_create(buf, true, buf->bytes, NULL, out_fd);
	if (!rc)
		args->out_fd = out_fd->fd;
	return rc;
}

static int ioctl_buf_open(struct file *file, union kvpool_argument *arg,
			  struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_open *args = &arg->buf_open;
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_buf *buf;
	int rc;

	if (args->flags & ~(KVPOOL_READ | KVPOOL_WRITE) || args->__reserved)
		return -EOPNOTSUPP;
	if (!args->flags)
		return -EINVAL;
	if (args->flags & KVPOOL_WRITE && !pf->can_write)
		return -EACCES;
	rc = kvpool_buf_find(pf->pool, args->id, &buf);
	if (rc)
		return rc;
	if (!uid_eq(current_euid(), buf->owner->uid) &&
	    !capable(CAP_DAC_OVERRIDE)) {
		kvpool_buf_put(buf);
		return -EPERM;
	}
	rc = kvpool_handle_create(buf, args->flags & KVPOOL_WRITE, buf->bytes,
				  NULL, out_fd);
	if (!rc)
		args->out_fd = out_fd->fd;
	return rc;
}

static int ioctl_buf_lookup(struct file *file, union kvpool_argument *arg,
			    struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_file *pf = file->private_data;

	return kvpool_lookup(pf->pool, arg, out_fd);
}

static int ioctl_buf_next(struct file *file, union kvpool_argument *arg,
			  struct kvpool_new_fd *out_fd)
{
	struct kvpool_buf_stat *stat = &arg->buf_stat;
	struct kvpool_pool_file *pf = file->private_data;
	const bool is_manager = kvpool_may_manage(pf->pool);
	struct kvpool_buf *buf;
	u64 id = stat->id;

	if (stat->flags)
		return -EOPNOTSUPP;
	while ((buf = kvpool_buf_find_next(pf->pool, id))) {
		id = buf->id;
		if (is_manager || uid_eq(current_euid(), buf->owner->uid))
			break;
		kvpool_buf_put(buf);
	}
	if (!buf)
		return -ENOENT;
	kvpool_buf_read_stat(buf, stat);
	kvpool_buf_put(buf);
	return 0;
}

static const struct kvpool_ioctl pool_ioctls[] = {
	{ KVPOOL_POOL_STAT, 224, sizeof(struct kvpool_pool_stat), false,
	  ioctl_stat },
	{ KVPOOL_POOL_SET_LIMIT, 16, sizeof(struct kvpool_pool_set_limit), true,
	  ioctl_set_limit },
	{ KVPOOL_POOL_SET_QUOTA, 32, sizeof(struct kvpool_pool_set_quota), true,
	  ioctl_set_quota },
	{ KVPOOL_POOL_TRIM, 24, sizeof(struct kvpool_pool_trim), true,
	  ioctl_trim },
	{ KVPOOL_POOL_SECRET, 40, sizeof(struct kvpool_pool_secret), true,
	  ioctl_secret },
	{ KVPOOL_BUF_CREATE, 32, sizeof(struct kvpool_buf_create), true,
	  ioctl_buf_create },
	{ KVPOOL_BUF_OPEN, 24, sizeof(struct kvpool_buf_open), false,
	  ioctl_buf_open },
	{ KVPOOL_BUF_LOOKUP, 64, sizeof(struct kvpool_buf_lookup), false,
	  ioctl_buf_lookup },
	{ KVPOOL_BUF_NEXT, 96, sizeof(struct kvpool_buf_stat), false,
	  ioctl_buf_next },
};

static long pool_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return kvpool_ioctl_dispatch(pool_ioctls, ARRAY_SIZE(pool_ioctls), file,
				     cmd, arg);
}

/* ---- the file ------------------------------------------------------------------ */

static int pool_release(struct inode *inode, struct file *file)
{
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_pool *pool = pf->pool;

	spin_lock(&pool->event_lock);
	list_del(&pf->list);
	spin_unlock(&pool->event_lock);
	kfree(pf);
	kvpool_pool_unuse(pool);
	kvpool_pool_put(pool);
	return 0;
}

static void pool_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct kvpool_pool_file *pf = file->private_data;
	struct kvpool_pool_stat stat = { 0 };

	read_pool(pf->pool, &stat);
	seq_printf(seq, "kvpool-pool:\t%s\n", pf->pool->name);
	seq_printf(seq, "kvpool-limit:\t%llu KiB\n", stat.out_limit >> 10);
	seq_printf(seq, "kvpool-charged:\t%llu KiB\n", stat.out_charged >> 10);
	seq_printf(seq, "kvpool-resident:\t%llu KiB\n",
		   stat.out_resident >> 10);
	seq_printf(seq, "kvpool-shared:\t%llu KiB\n", stat.out_shared >> 10);
	seq_printf(seq, "kvpool-purgeable:\t%llu KiB\n",
		   stat.out_volatile >> 10);
	seq_printf(seq, "kvpool-buffers:\t%llu\n", stat.out_nr_bufs);
}

static const struct file_operations pool_fops = {
	.owner = THIS_MODULE,
	.llseek = no_llseek,
	.read = pool_read,
	.poll = pool_poll,
	.unlocked_ioctl = pool_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = pool_release,
	.show_fdinfo = pool_show_fdinfo,
};

/* The pool file behind a descriptor's file; NULL: it is of another kind. */
struct kvpool_pool_file *kvpool_pool_file_of(struct file *file)
{
	return file->f_op == &pool_fops ? file->private_data : NULL;
}

/* Return: 0, -ENOMEM, -EMFILE, -ENFILE. The descriptor is not installed yet. */
int kvpool_pool_file_create(struct kvpool_pool *pool, bool can_write,
			    struct kvpool_new_fd *out_fd)
{
	struct kvpool_pool_file *pf;
	struct file *file;
	int fd;

	pf = kzalloc(sizeof(*pf), KVPOOL_RECORD_GFP);
	if (!pf)
		return -ENOMEM;
	pf->pool = pool;
	pf->uid = current_euid();
	pf->can_write = can_write;
	init_waitqueue_head(&pf->wait);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		kfree(pf);
		return fd;
	}
	file = anon_inode_getfile("kvpool-pool", &pool_fops, pf,
				  can_write ? O_RDWR : O_RDONLY);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		kfree(pf);
		return PTR_ERR(file);
	}
	kvpool_pool_get(pool);
	kvpool_pool_use(pool);
	spin_lock(&pool->event_lock);
	list_add_tail(&pf->list, &pool->subscribers);
	spin_unlock(&pool->event_lock);
	out_fd->fd = fd;
	out_fd->file = file;
	return 0;
}
