// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/kvpool/pools: every pool and its buffers, for root's eyes.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "kvpool_private.h"

static struct dentry *folder;

static void show_bufs(struct seq_file *seq, struct kvpool_pool *pool)
{
	struct kvpool_buf_stat stat;
	struct kvpool_buf *buf;
	u64 id = 0;

	while ((buf = kvpool_buf_find_next(pool, id))) {
		kvpool_buf_read_stat(buf, &stat);
		id = stat.id;
		seq_printf(seq, "  buffer %llu uid %u bytes %llu resident %llu",
			   stat.id, stat.out_uid, stat.out_bytes,
			   stat.out_resident);
		seq_printf(seq, " shared %llu sealed %llu huge %llu",
			   stat.out_shared, stat.out_sealed, stat.out_huge);
		seq_printf(seq, " open %u votes %u keys %u", stat.out_nr_open,
			   stat.out_nr_votes, stat.out_nr_keys);
		if (stat.out_state & KVPOOL_BUF_VOLATILE)
			seq_puts(seq, " volatile");
		if (stat.out_state & KVPOOL_BUF_PURGED)
			seq_puts(seq, " purged");
		if (stat.out_state & KVPOOL_BUF_PUBLISHED)
			seq_puts(seq, " published");
		seq_putc(seq, '\n');
		kvpool_buf_put(buf);
	}
}

static int pools_show(struct seq_file *seq, void *unused)
{
	struct kvpool_pool *pool;
	unsigned long id = 0;

	while ((pool = kvpool_pool_find_next(id))) {
		id = pool->id;
		spin_lock(&pool->acct_lock);
		seq_printf(seq, "pool %u name \"%s\" uid %u mode %03o",
			   pool->id, pool->name,
			   from_kuid(&init_user_ns, pool->uid), pool->mode);
		seq_printf(seq, " limit %llu charged %llu resident %llu",
			   pool->limit, pool->charged, pool->resident);
		seq_printf(seq, " shared %llu draining %llu reserve %llu",
			   pool->shared, pool->draining, pool->reserve);
		seq_printf(seq, " poisoned %llu purges %llu\n", pool->poisoned,
			   pool->purges);
		spin_unlock(&pool->acct_lock);
		show_bufs(seq, pool);
		kvpool_pool_put(pool);
	}
	seq_printf(seq, "folios %ld\n", kvpool_folios_left());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pools);

void kvpool_debugfs_init(void)
{
	folder = debugfs_create_dir("kvpool", NULL);
	debugfs_create_file("pools", 0400, folder, NULL, &pools_fops);
}

void kvpool_debugfs_exit(void)
{
	debugfs_remove_recursive(folder);
}
