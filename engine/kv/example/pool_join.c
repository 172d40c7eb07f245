/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example of libkvpool's use, and of nothing else of Tarn: joins a named pool
 * of /dev/kvpool for reading and prints its numbers and its buffers. Without a
 * name it lists the pools there are. Builds by the Makefile beside it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <libkvpool.h>

static void print_bytes(const char *what, uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		printf("%-10s unlimited\n", what);
	else
		printf("%-10s %" PRIu64 " KiB\n", what, bytes / 1024);
}

static const char *state_of(const struct kvpool_buf_stat *buf)
{
	if (buf->is_purged)
		return "purged";
	if (buf->is_published)
		return buf->is_volatile ? "published, volatile" : "published";
	return buf->is_volatile ? "volatile" : "private";
}

static int list_pools(void)
{
	struct kvpool_pool_info pool;
	uint64_t id = 0;
	int err;

	while (!(err = kvpool_next_pool(&id, &pool)))
		printf("%-24s owner %u, mode %03o, %" PRIu64 " KiB held\n",
		       pool.name[0] ? pool.name : "(no name)", pool.owner,
		       pool.mode, pool.charged_bytes / 1024);
	return err == -ENOENT ? 0 : err;
}

static int print_stat(struct kvpool *pool)
{
	struct kvpool_stat stat;
	int err = kvpool_stat(pool, &stat);

	if (err)
		return err;
	print_bytes("limit", stat.limit_bytes);
	print_bytes("charged", stat.charged_bytes);
	print_bytes("resident", stat.resident_bytes);
	print_bytes("shared", stat.shared_bytes);
	print_bytes("volatile", stat.volatile_bytes);
	print_bytes("draining", stat.draining_bytes);
	print_bytes("reserve", stat.spare_bytes);
	printf("%-10s %" PRIu64 ", found %" PRIu64 " times of %" PRIu64 "\n",
	       "keys", stat.nr_keys, stat.hits, stat.lookups);
	return 0;
}

static int print_bufs(struct kvpool *pool)
{
	struct kvpool_buf_stat buf;
	uint64_t id = 0;
	int err;

	while (!(err = kvpool_next_buf(pool, &id, &buf)))
		printf("buffer %" PRIu64 ": owner %u, %" PRIu64 " of %" PRIu64
		       " KiB, sealed %" PRIu64
		       " KiB, %u keys, %u handles, %s\n",
		       buf.id, buf.owner, buf.resident_bytes / 1024,
		       buf.size_bytes / 1024, buf.sealed_bytes / 1024,
		       buf.nr_keys, buf.nr_refs, state_of(&buf));
	return err == -ENOENT ? 0 : err;
}

static int join(const char *name)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_KERNEL,
		.name = name,
		.is_read_only = true,
	};
	struct kvpool *pool;
	int err = kvpool_open(&options, &pool);

	if (err)
		return err;
	err = print_stat(pool);
	if (!err)
		err = print_bufs(pool);
	kvpool_put(pool);
	return err;
}

int main(int argc, char **argv)
{
	int err;

	if (argc > 2) {
		fprintf(stderr, "usage: %s [POOL]\n", argv[0]);
		return 2;
	}
	err = argc == 2 ? join(argv[1]) : list_pools();
	if (err) {
		fprintf(stderr, "%s: %s: %s\n", argv[0],
			argc == 2 ? argv[1] : "/dev/kvpool", strerror(-err));
		return 1;
	}
	return 0;
}
