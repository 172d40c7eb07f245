/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the module tells those who watch: its tracepoints, one line per call
 * with the right ids, and the list of pools in debugfs.
 */
#include "tests/kmod/kit.h"

static const char tracing[] = "/sys/kernel/tracing";

static int trace_write(const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", tracing, file);
	return file_write(path, text);
}

FIXTURE(trace)
{
	int dev, pool, buf;
	uint64_t pool_id, buf_id;
};

FIXTURE_SETUP(trace)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	/*
	 * Without recording of names, events patch only the module's own code. The
	 * scheduler's runs on the other processor meanwhile, and emulators before QEMU 8.1
	 * may go on executing the breakpoint that the kernel puts there for a moment.
	 */
	if (trace_write("trace", "") ||
	    trace_write("options/record-cmd", "0") ||
	    trace_write("events/kvpool/enable", "1"))
		SKIP(return, "no tracing at %s: %s", tracing, strerror(errno));
	ASSERT_EQ(0, trace_write("tracing_on", "1"));
	name_pool(&args, "trace");
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
	self->pool_id = stat_of(self->pool).out_id;
	self->buf = buf_new_id(self->pool, 4 * MIB, &self->buf_id);
}

FIXTURE_TEARDOWN(trace)
{
	trace_write("events/kvpool/enable", "0");
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

/* Return: how many lines hold this event and, behind it, this text. */
static int nr_lines(const char *event, const char *text)
{
	char path[128], line[1024];
	FILE *file;
	int nr = 0;

	snprintf(path, sizeof(path), "%s/trace", tracing);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		char *at = strstr(line, event);

		if (at && at[strlen(event)] == ':' && strstr(at, text))
			nr++;
	}
	fclose(file);
	return nr;
}

#define traced_ok(nr, event, ...)                                \
	do {                                                     \
		char traced_[256];                               \
		snprintf(traced_, sizeof(traced_), __VA_ARGS__); \
		EXPECT_EQ(nr, nr_lines(event, traced_))          \
		{                                                \
			TH_LOG("%s: %s", event, traced_);        \
		}                                                \
	} while (0)

#define IDS "pool=%lu buf=%lu"
#define IDS_OF(self) \
	(unsigned long)(self)->pool_id, (unsigned long)(self)->buf_id

TEST_F(trace, pools_and_buffers_come_and_go)
{
	char text[128];
	uint64_t id;
	int buf, pool;

	snprintf(text, sizeof(text), "pool=%lu uid=%u limit=%u name=test-",
		 (unsigned long)self->pool_id, geteuid(), POOL_BYTES);
	EXPECT_EQ(1, nr_lines("kvpool_pool_create", text));
	traced_ok(1, "kvpool_buf_create", IDS " uid=%u bytes=%u", IDS_OF(self),
		  geteuid(), 4 * MIB);
	buf = buf_new_id(self->pool, PAGE, &id);
	traced_ok(0, "kvpool_buf_free", "buf=%lu ", (unsigned long)id);
	close(buf);
	traced_ok(1, "kvpool_buf_free", "pool=%lu buf=%lu",
		  (unsigned long)self->pool_id, (unsigned long)id);
	pool = pool_new(self->dev, MIB);
	id = stat_of(pool).out_id;
	close(pool);
	/* A work ends it. */
	for (int i = 0; i < 100; i++, sleep_ms(20)) {
		snprintf(text, sizeof(text), "pool=%lu ", (unsigned long)id);
		if (nr_lines("kvpool_pool_free", text) == 1)
			break;
	}
	EXPECT_EQ(1, nr_lines("kvpool_pool_free", text));
}

TEST_F(trace, calls_of_a_buffer_are_told_with_their_ids)
{
	struct kvpool_buf_clone c = clone_args(self->pool, PAGE, 4 * MIB);
	struct kvpool_buf_lookup found;
	uint8_t *at = buf_map(self->buf, 4 * MIB, RW);
	uint64_t freed;

	poke_ok(at + 2 * MIB, 1);
	traced_ok(1, "kvpool_fault", IDS " page=512 write=1 filled=1",
		  IDS_OF(self));
	munmap(at, 4 * MIB);
	buf_commit_ok(self->buf, 0, 2 * PAGE);
	traced_ok(1, "kvpool_commit", IDS " offset=0 len=8192 rc=0",
		  IDS_OF(self));
	buf_release_ok(self->buf, PAGE, PAGE);
	traced_ok(1, "kvpool_release", IDS " offset=4096 len=4096",
		  IDS_OF(self));
	buf_seal_ok(self->buf, 100);
	traced_ok(1, "kvpool_seal", IDS " n=100 rc=0", IDS_OF(self));
	buf_clone_ok(self->buf, &c);
	traced_ok(1, "kvpool_clone", "pool=%lu from=%lu to=%lu n=4096",
		  IDS_OF(self), (unsigned long)c.out_id);
	buf_publish_ok(self->buf, 1, 100);
	traced_ok(1, "kvpool_publish", IDS " keys=1 rc=0", IDS_OF(self));
	buf_lookup_ok(self->pool, 1, &found);
	traced_ok(1, "kvpool_lookup", IDS " n=100 rc=0", IDS_OF(self));
	buf_lookup_err(ENOENT, self->pool, 2);
	traced_ok(1, "kvpool_lookup", "rc=-2");
	buf_revoke_ok(self->buf, NULL);
	traced_ok(1, "kvpool_revoke", IDS, IDS_OF(self));
	close(found.out_fd);
	buf_volatile_ok(self->buf);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &freed));
	traced_ok(1, "kvpool_purge", IDS " freed=", IDS_OF(self));
}

TEST_F(trace, refusals_and_draining_are_told)
{
	uint8_t *at = buf_map(self->buf, 4 * MIB, RW);
	struct iovec iov = { at, PAGE };
	int fds[2];

	poke_ok(at, 1);
	pool_set_limit_err(EBUSY, self->pool, PAGE);
	buf_commit_err(ENOSPC, self->buf, 2 * MIB, 2 * MIB);
	EXPECT_GE(nr_lines("kvpool_limit", ""), 1);
	traced_ok(1, "kvpool_commit", IDS " offset=2097152 len=2097152 rc=-28",
		  IDS_OF(self));
	ASSERT_EQ(0, pipe(fds));
	ASSERT_EQ(PAGE, vmsplice(fds[1], &iov, 1, 0));
	buf_release_ok(self->buf, 0, 4 * MIB);
	traced_ok(1, "kvpool_drain",
		  "pool=%lu bytes=", (unsigned long)self->pool_id);
}

TEST_F(trace, debugfs_lists_pools_and_buffers)
{
	char line[1024], pool[64], buf[64];
	FILE *file = fopen("/sys/kernel/debug/kvpool/pools", "re");
	int nr_pools = 0, nr_bufs = 0, nr_totals = 0;

	if (!file)
		SKIP(return, "no debugfs: %s", strerror(errno));
	buf_commit_ok(self->buf, 0, 4 * MIB);
	snprintf(pool, sizeof(pool), "pool %lu name \"test-",
		 (unsigned long)self->pool_id);
	snprintf(buf, sizeof(buf), "buffer %lu uid %u bytes %u resident %u ",
		 (unsigned long)self->buf_id, geteuid(), 4 * MIB, 4 * MIB);
	while (fgets(line, sizeof(line), file)) {
		nr_pools += strstr(line, pool) != NULL;
		nr_bufs += strstr(line, buf) != NULL;
		nr_totals += strstr(line, "folios ") == line;
	}
	fclose(file);
	EXPECT_EQ(1, nr_pools);
	EXPECT_EQ(1, nr_bufs);
	EXPECT_EQ(1, nr_totals);
	/* Not for everybody's eyes. */
	struct stat st;

	ASSERT_EQ(0, stat("/sys/kernel/debug/kvpool/pools", &st));
	EXPECT_EQ(0, st.st_mode & 077);
}

TEST_HARNESS_MAIN
