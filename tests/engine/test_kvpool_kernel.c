/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool over /dev/kvpool, what no other backend can: pools by name, several
 * processes on one pool, quotas, revocation, memory that the system takes,
 * clones that share. What both backends do is in test_kvpool.c and
 * test_kvpool_share.c; the module's own calls are in tests/kmod.
 */
#include "tests/engine/kvpool_kit.h"

#include <sys/uio.h>

FIXTURE(kernel_pool)
{
	char name[KVPOOL_NAME_BYTES];
	struct kvpool *pool; /* of that name */
	struct kvpool_buf *buf; /* 256 pages of addresses */
};

static struct kvpool_options named(const char *name)
{
	struct kvpool_options options = options_of(LIMIT_PAGES, 0);

	options.name = name;
	return options;
}

static struct kvpool *join_ok(const char *name)
{
	struct kvpool_options options = named(name);
	struct kvpool *pool = NULL;

	ASSERT_EQ(0, kvpool_open(&options, &pool));
	return pool;
}

FIXTURE_SETUP(kernel_pool)
{
	USE_KERNEL_OR_SKIP();
	snprintf(self->name, sizeof(self->name), "test.%d", getpid());
	self->pool = join_ok(self->name);
	self->buf = create_ok(self->pool, 256);
}

FIXTURE_TEARDOWN(kernel_pool)
{
	kvpool_buf_put(self->buf);
	kvpool_put(self->pool);
}

/* Runs @body in a child. Return: its exit status; 256 and the signal it died of. */
static int status_of_child(int (*body)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(body(arg));
	ASSERT_TRUE(pid > 0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

/* ---- names ---- */

TEST_F(kernel_pool, is_what_auto_takes_and_says_what_it_can)
{
	struct kvpool_options options = options_of(1, 0);
	struct kvpool *pool;

	options.backend = KVPOOL_BACKEND_AUTO;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	EXPECT_STREQ("kernel", kvpool_backend_name(pool));
	EXPECT_EQ(KVPOOL_F_QUOTA | KVPOOL_F_SHARED | KVPOOL_F_REVOKE |
			  KVPOOL_F_EXPORT | KVPOOL_F_PURGE,
		  kvpool_features(pool));
	kvpool_put(pool);
}

TEST_F(kernel_pool, refuses_bad_names_and_nodes)
{
	static const char *const bad[] = { ".hidden", "a/b", "a b",
					   "\xc3\xa4" };
	struct kvpool_options options = named("x");
	struct kvpool *pool = (void *)1;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		options.name = bad[i];
		EXPECT_EQ(-EINVAL, kvpool_open(&options, &pool));
	}
	options = named("nodes");
	options.node_mask = 1ull << 63;
	EXPECT_EQ(-EINVAL, kvpool_open(&options, &pool));
	options = named("absent");
	options.is_read_only = true;
	EXPECT_EQ(-ENOENT, kvpool_open(&options, &pool));
	EXPECT_TRUE(pool == (void *)1);
}

TEST_F(kernel_pool, one_name_is_one_pool_as_long_as_somebody_has_it)
{
	uint8_t first[KVPOOL_KEY_BYTES], second[KVPOOL_KEY_BYTES];
	struct kvpool_options options = named(self->name);
	struct kvpool *other;

	options.limit_bytes = PAGE; /* whoever joins has no say in it */
	ASSERT_EQ(0, kvpool_open(&options, &other));
	EXPECT_EQ(LIMIT_PAGES * PAGE, stat_of(other).limit_bytes);
	ASSERT_EQ(0, kvpool_secret(self->pool, first));
	ASSERT_EQ(0, kvpool_secret(other, second));
	EXPECT_EQ(0, memcmp(first, second, sizeof(first)));
	kvpool_buf_put(self->buf);
	self->buf = NULL;
	kvpool_put(self->pool);
	self->pool = other;
	EXPECT_EQ(LIMIT_PAGES * PAGE, stat_of(other).limit_bytes);
	kvpool_put(other);
	/* The last one is gone: the same name is a new pool. */
	self->pool = join_ok(self->name);
	ASSERT_EQ(0, kvpool_secret(self->pool, second));
	EXPECT_NE(0, memcmp(first, second, sizeof(first)));
}

TEST_F(kernel_pool, joined_for_reading_shows_but_does_not_give)
{
	struct kvpool_options options = named(self->name);
	struct kvpool_key one = key_of(1);
	struct kvpool_buf *buf;
	struct kvpool *reader;
	uint8_t secret[KVPOOL_KEY_BYTES];
	uint64_t n;

	publish_ok(self->buf);
	options.is_read_only = true;
	options.limit_bytes = 0;
	ASSERT_EQ(0, kvpool_open(&options, &reader));
	EXPECT_EQ(2 * PAGE, stat_of(reader).resident_bytes);
	ASSERT_EQ(0, kvpool_lookup(reader, &one, &buf, &n, NULL));
	EXPECT_EQ(0x11, bytes_of(buf)[0]);
	kvpool_buf_put(buf);
	EXPECT_EQ(-EACCES, kvpool_buf_create(reader, PAGE, 0, &buf));
	EXPECT_EQ(-EACCES, kvpool_buf_open(reader, kvpool_buf_id(self->buf),
					   true, &buf));
	EXPECT_EQ(-EACCES, kvpool_set_limit(reader, PAGE));
	EXPECT_EQ(-EACCES, kvpool_set_quota(reader, 0, PAGE, PAGE));
	EXPECT_EQ(-EACCES, kvpool_secret(reader, secret));
	EXPECT_EQ(0, kvpool_trim(reader, PAGE));
	kvpool_put(reader);
}

TEST_F(kernel_pool, pools_and_buffers_are_listed)
{
	struct kvpool_pool_info info;
	struct kvpool_buf_stat stat;
	uint64_t id = 0;
	int nr_found = 0, err;

	publish_ok(self->buf);
	while (!(err = kvpool_next_pool(&id, &info))) {
		EXPECT_EQ(id, info.id);
		if (strcmp(info.name, self->name))
			continue;
		nr_found++;
		EXPECT_EQ(LIMIT_PAGES * PAGE, info.limit_bytes);
		EXPECT_EQ(2 * PAGE, info.charged_bytes);
		EXPECT_EQ(geteuid(), info.owner);
		EXPECT_EQ(0600, info.mode);
	}
	EXPECT_EQ(-ENOENT, err);
	EXPECT_EQ(1, nr_found);

	struct kvpool_buf *other = create_ok(self->pool, 8);

	id = 0;
	ASSERT_EQ(0, kvpool_next_buf(self->pool, &id, &stat));
	EXPECT_EQ(kvpool_buf_id(self->buf), stat.id);
	EXPECT_EQ(2 * PAGE, stat.resident_bytes);
	EXPECT_EQ(2 * PAGE, stat.sealed_bytes);
	EXPECT_TRUE(stat.is_published);
	EXPECT_EQ(geteuid(), stat.publisher);
	EXPECT_EQ(2, stat.nr_keys);
	EXPECT_EQ(1, stat.nr_votes);
	ASSERT_EQ(0, kvpool_next_buf(self->pool, &id, &stat));
	EXPECT_EQ(kvpool_buf_id(other), stat.id);
	EXPECT_EQ(8 * PAGE, stat.size_bytes);
	EXPECT_FALSE(stat.is_published);
	EXPECT_EQ((uid_t)-1, stat.publisher);
	EXPECT_EQ(-ENOENT, kvpool_next_buf(self->pool, &id, &stat));
	kvpool_buf_put(other);
}

/* ---- several processes ---- */

/* Another program that knows the name: finds the prefix, reads it, cannot change it. */
static int read_by_name(void *arg)
{
	struct kvpool_options options = named(arg);
	struct kvpool_key two = key_of(2);
	struct kvpool *pool;
	struct kvpool_buf *buf;
	struct kvpool_stat stat;
	uint64_t n;

	if (kvpool_open(&options, &pool))
		return 10;
	if (kvpool_lookup(pool, &two, &buf, &n, NULL) || n != 2 * PAGE)
		return 11;
	if (bytes_of(buf)[0] != 0x11 || bytes_of(buf)[2 * PAGE - 1] != 0x22)
		return 12;
	if (!mprotect(bytes_of(buf), PAGE, PROT_READ | PROT_WRITE) ||
	    commit(buf, 0, 1) != -EPERM)
		return 13;
	if (kvpool_stat(pool, &stat) || stat.resident_bytes != 2 * PAGE)
		return 14; /* one copy for both */
	kvpool_buf_put(buf);
	if (kvpool_buf_create(pool, 4 * PAGE, 0, &buf))
		return 15;
	struct kvpool_mark mark = { key_of(9), PAGE };

	if (commit(buf, 0, 4))
		return 16;
	memset(bytes_of(buf), 0x99, 4 * PAGE);
	if (kvpool_buf_seal(buf, PAGE) || kvpool_buf_publish(buf, &mark, 1))
		return 17;
	/* Killed, with nothing given back. */
	kill(getpid(), SIGKILL);
	return 18;
}

TEST_F(kernel_pool, processes_share_by_name_and_survive_each_other)
{
	struct kvpool_key nine = key_of(9);
	struct kvpool_buf *buf;
	uint64_t n;

	publish_ok(self->buf);
	EXPECT_EQ(256 + SIGKILL, status_of_child(read_by_name, self->name));
	/* What the dead one published is there; what it had for itself is back. */
	EXPECT_EQ(3 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(PAGE, stat_of(self->pool).volatile_bytes);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &nine, &buf, &n, NULL));
	EXPECT_EQ(0x99, bytes_of(buf)[PAGE - 1]);
	kvpool_buf_put(buf);
	EXPECT_EQ(0x22, bytes_of(self->buf)[PAGE]);
}

static int adopt_pool(void *arg)
{
	int fd = receive_fd(*(int *)arg);
	struct kvpool_key two = key_of(2);
	struct kvpool *pool;
	struct kvpool_buf *buf;
	uint64_t n;

	if (fd < 0 || kvpool_open_fd(fd, &pool))
		return 10;
	close(fd);
	if (kvpool_lookup(pool, &two, &buf, &n, NULL) ||
	    bytes_of(buf)[PAGE] != 0x22)
		return 11;
	kvpool_buf_put(buf);
	if (kvpool_buf_create(pool, PAGE, 0, &buf) || commit(buf, 0, 1))
		return 12;
	kvpool_buf_put(buf);
	kvpool_put(pool);
	return 0;
}

TEST_F(kernel_pool, a_passed_descriptor_is_the_pool)
{
	int socks[2];

	publish_ok(self->buf);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	send_fd(socks[0], kvpool_pool_fd(self->pool));
	EXPECT_EQ(0, status_of_child(adopt_pool, &socks[1]));
	close(socks[0]);
	close(socks[1]);
}

TEST_F(kernel_pool, a_held_descriptor_keeps_what_is_published)
{
	struct kvpool_key one = key_of(1);
	struct kvpool_buf *buf;
	uint64_t n;

	publish_ok(self->buf);
	int held = fcntl(kvpool_pool_fd(self->pool), F_DUPFD_CLOEXEC, 0);

	ASSERT_TRUE(held >= 0);
	kvpool_buf_put(self->buf);
	self->buf = NULL;
	kvpool_put(self->pool);
	ASSERT_EQ(0, kvpool_open_fd(held, &self->pool));
	close(held);
	EXPECT_STREQ("kernel", kvpool_backend_name(self->pool));
	EXPECT_EQ(PAGE, kvpool_page_bytes(self->pool));
	ASSERT_EQ(0, kvpool_lookup(self->pool, &one, &buf, &n, NULL));
	EXPECT_EQ(PAGE, n);
	EXPECT_EQ(0x11, bytes_of(buf)[0]);
	kvpool_buf_put(buf);
}

struct stranger {
	int fd; /* the pool */
	bool is_shared;
};

/* Another uid with a descriptor of the pool. */
static int act_as_stranger(void *arg)
{
	const struct stranger *stranger = arg;
	struct kvpool_key one = key_of(1);
	struct kvpool *pool;
	struct kvpool_buf *buf;
	uid_t uid = 0;
	uint64_t n;

	if (setresuid(65534, 65534, 65534) ||
	    kvpool_open_fd(stranger->fd, &pool))
		return 10;
	int err = kvpool_lookup(pool, &one, &buf, &n, &uid);

	if (stranger->is_shared ? err : err != -ENOENT)
		return 11;
	if (!err) {
		if (uid != 0 || bytes_of(buf)[0] != 0x11)
			return 12;
		/* What he found he may pass on, though the buffer is not his. */
		int fd = kvpool_buf_export(buf);

		if (fd < 0)
			return 13;
		close(fd);
		kvpool_buf_put(buf);
	}
	if (kvpool_buf_open(pool, 1, false, &buf) != -EPERM)
		return 14;
	struct kvpool_mark mark = { key_of(7), PAGE };

	if (kvpool_buf_create(pool, PAGE, 0, &buf) || commit(buf, 0, 1) ||
	    kvpool_buf_seal(buf, PAGE) || kvpool_buf_publish(buf, &mark, 1))
		return 15;
	kvpool_put(pool);
	return 0;
}

TEST_F(kernel_pool, keys_of_another_uid_are_seen_only_where_they_are_shared)
{
	struct kvpool_key seven = key_of(7);

	if (geteuid())
		SKIP(return, "only root can become somebody else");
	for (int is_shared = 0; is_shared < 2; is_shared++) {
		struct kvpool_options options = options_of(LIMIT_PAGES, 0);
		struct kvpool *pool;
		uid_t uid = 1;
		uint64_t n;

		options.is_shared_keys = is_shared;
		ASSERT_EQ(0, kvpool_open(&options, &pool));
		struct kvpool_buf *buf = create_ok(pool, 4), *found;
		struct stranger stranger = { kvpool_pool_fd(pool), is_shared };

		publish_ok(buf);
		EXPECT_EQ(0, status_of_child(act_as_stranger, &stranger));
		int err = kvpool_lookup(pool, &seven, &found, &n, &uid);

		EXPECT_EQ(is_shared ? 0 : -ENOENT, err);
		if (!err) {
			EXPECT_EQ(65534, uid);
			kvpool_buf_put(found);
		}
		kvpool_buf_put(buf);
		kvpool_put(pool);
	}
}

/* ---- limits ---- */

TEST_F(kernel_pool, quotas_are_hard_and_may_be_moved)
{
	struct kvpool_options options = options_of(LIMIT_PAGES, 0);
	struct kvpool_mark mark = { key_of(1), 4 * PAGE };
	struct kvpool *pool;

	options.quota_bytes = 8 * PAGE;
	options.shared_quota_bytes = 2 * PAGE;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	struct kvpool_buf *buf = create_ok(pool, 64);

	EXPECT_EQ(0, commit(buf, 0, 8));
	EXPECT_EQ(-EDQUOT, commit(buf, 8, 1));
	EXPECT_EQ(8 * PAGE, stat_of(pool).charged_bytes);
	EXPECT_EQ(0, kvpool_set_quota(pool, geteuid(), 10 * PAGE, 2 * PAGE));
	EXPECT_EQ(0, commit(buf, 8, 2));
	EXPECT_EQ(-EDQUOT, commit(buf, 10, 1));
	/* What is published counts on its own. */
	ASSERT_EQ(0, kvpool_buf_seal(buf, 4 * PAGE));
	EXPECT_EQ(-EDQUOT, kvpool_buf_publish(buf, &mark, 1));
	EXPECT_EQ(0, stat_of(pool).nr_keys);
	/* It goes on as it was, but for the pages behind the seal. */
	EXPECT_EQ(4 * PAGE, stat_of(pool).charged_bytes);
	EXPECT_EQ(0, commit(buf, 5, 1));
	bytes_of(buf)[5 * PAGE] = 1;
	EXPECT_EQ(0, kvpool_set_quota(pool, geteuid(), 10 * PAGE, UINT64_MAX));
	EXPECT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	EXPECT_EQ(4 * PAGE, stat_of(pool).shared_bytes);
	EXPECT_EQ(-EINVAL, kvpool_set_quota(pool, (uid_t)-1, PAGE, PAGE));
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST_F(kernel_pool, a_touch_within_the_limit_gives_a_page)
{
	bytes_of(self->buf)[7 * PAGE] = 1;
	EXPECT_EQ(PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, commit(self->buf, 7, 1));
	EXPECT_EQ(1, bytes_of(self->buf)[7 * PAGE]);
}

TEST_F_SIGNAL(kernel_pool, a_touch_beyond_the_limit_is_a_signal, SIGBUS)
{
	ASSERT_EQ(0, commit(self->buf, 0, LIMIT_PAGES));
	signal(SIGBUS, SIG_DFL);
	*(volatile uint8_t *)(bytes_of(self->buf) + 100 * PAGE) = 1;
}

TEST_F(kernel_pool, the_reserve_is_spare_and_trim_gives_it_back)
{
	enum { HUGE_PAGES = 512 };
	struct kvpool_options options = options_of(8 * HUGE_PAGES, HUGE_PAGES);
	struct kvpool *pool;

	options.is_small_pages = false;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	/* It is filled behind our back. */
	for (int i = 0; i < 500 && !stat_of(pool).spare_bytes; i++)
		usleep(10000);
	EXPECT_EQ(HUGE_PAGES * PAGE, stat_of(pool).spare_bytes);
	EXPECT_EQ(0, stat_of(pool).resident_bytes);
	struct kvpool_buf *buf = create_ok(pool, 2 * HUGE_PAGES);

	EXPECT_EQ(0, commit(buf, 0, HUGE_PAGES));
	EXPECT_EQ(HUGE_PAGES * PAGE, buf_stat_of(buf).huge_bytes);
	EXPECT_EQ(0, (uintptr_t)kvpool_buf_addr(buf) % (HUGE_PAGES * PAGE));
	kvpool_buf_put(buf);
	for (int i = 0; i < 500 && !stat_of(pool).spare_bytes; i++)
		usleep(10000);
	EXPECT_LE(HUGE_PAGES * PAGE, kvpool_trim(pool, UINT64_MAX));
	kvpool_put(pool);
}

/* ---- sealing ---- */

TEST_F_SIGNAL(kernel_pool, writing_sealed_memory_is_a_fault, SIGSEGV)
{
	ASSERT_EQ(0, commit(self->buf, 0, 2));
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, PAGE));
	bytes_of(self->buf)[PAGE] = 1;
	signal(SIGSEGV, SIG_DFL);
	*(volatile uint8_t *)bytes_of(self->buf) = 1;
}

TEST_F(kernel_pool, a_seal_that_fails_leaves_the_memory_writable)
{
	uint8_t bytes[PAGE];
	int pipe_fds[2];

	ASSERT_EQ(0, commit(self->buf, 0, 4));
	memset(bytes_of(self->buf), 0x33, 4 * PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, PAGE));
	/* A pipe holds page 1. */
	ASSERT_EQ(0, pipe(pipe_fds));
	struct iovec iov = { bytes_of(self->buf) + PAGE, PAGE };

	ASSERT_EQ(PAGE, vmsplice(pipe_fds[1], &iov, 1, 0));
	EXPECT_EQ(-EBUSY, kvpool_buf_seal(self->buf, 2 * PAGE));
	bytes_of(self->buf)[PAGE] = 0x44;
	EXPECT_EQ(PAGE, buf_stat_of(self->buf).sealed_bytes);
	ASSERT_EQ(PAGE, read(pipe_fds[0], bytes, PAGE));
	EXPECT_EQ(0x44, bytes[0]);
	EXPECT_EQ(0, kvpool_buf_seal(self->buf, 2 * PAGE));
	EXPECT_EQ(0x44, bytes_of(self->buf)[PAGE]);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TEST_F(kernel_pool, released_pages_that_a_pipe_holds_stay_charged)
{
	uint8_t bytes[PAGE];
	int pipe_fds[2];

	ASSERT_EQ(0, commit(self->buf, 0, 4));
	ASSERT_EQ(0, pipe(pipe_fds));
	struct iovec iov = { bytes_of(self->buf), PAGE };

	ASSERT_EQ(PAGE, vmsplice(pipe_fds[1], &iov, 1, 0));
	ASSERT_EQ(0, kvpool_buf_release(self->buf, 0, 4 * PAGE));
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ(0, stat.resident_bytes);
	EXPECT_EQ(PAGE, stat.draining_bytes);
	EXPECT_EQ(PAGE, stat.charged_bytes);
	ASSERT_EQ(PAGE, read(pipe_fds[0], bytes, PAGE));
	for (int i = 0; i < 500 && stat_of(self->pool).charged_bytes; i++)
		usleep(10000);
	EXPECT_EQ(0, stat_of(self->pool).charged_bytes);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TEST_F(kernel_pool, clones_share_what_is_sealed)
{
	struct kvpool_buf *copy, *second;

	ASSERT_EQ(0, commit(self->buf, 0, 20));
	memset(bytes_of(self->buf), 0x5a, 20 * PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, 16 * PAGE));
	ASSERT_EQ(0, kvpool_buf_clone(self->buf, 17 * PAGE + 5, 40 * PAGE, 77,
				      &copy));
	/* 20 of the one, and of the other what lies behind the seal. */
	EXPECT_EQ(22 * PAGE, stat_of(self->pool).resident_bytes);
	struct kvpool_buf_stat stat = buf_stat_of(copy);

	EXPECT_EQ(16 * PAGE, stat.sealed_bytes);
	EXPECT_EQ(18 * PAGE, stat.resident_bytes);
	EXPECT_EQ(2 * PAGE, stat.private_bytes);
	EXPECT_EQ(77, stat.owner);
	EXPECT_EQ(0,
		  memcmp(bytes_of(copy), bytes_of(self->buf), 17 * PAGE + 5));
	EXPECT_EQ(0, bytes_of(copy)[17 * PAGE + 5]);
	bytes_of(copy)[16 * PAGE] = 1;
	EXPECT_EQ(0x5a, bytes_of(self->buf)[16 * PAGE]);
	EXPECT_EQ(-1, mprotect(bytes_of(copy), PAGE, PROT_READ | PROT_WRITE));
	/* A clone of the clone, after the first owner has gone. */
	kvpool_buf_put(self->buf);
	self->buf = NULL;
	ASSERT_EQ(0, kvpool_buf_clone(copy, 16 * PAGE, 16 * PAGE, 0, &second));
	kvpool_buf_put(copy);
	EXPECT_EQ(16 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0x5a, bytes_of(second)[15 * PAGE]);
	kvpool_buf_put(second);
}

/* ---- more than one handle ---- */

TEST_F(kernel_pool, a_buffer_is_opened_by_its_id)
{
	struct kvpool_buf *writer, *reader, *none;
	uint64_t id = kvpool_buf_id(self->buf);

	ASSERT_EQ(0, commit(self->buf, 0, 4));
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, PAGE));
	ASSERT_EQ(0, kvpool_buf_open(self->pool, id, true, &writer));
	ASSERT_EQ(0, kvpool_buf_open(self->pool, id, false, &reader));
	EXPECT_EQ(-ENOENT, kvpool_buf_open(self->pool, id + 100, false, &none));
	EXPECT_EQ(id, kvpool_buf_id(writer));
	EXPECT_EQ(256 * PAGE, kvpool_buf_size(reader));
	EXPECT_EQ(3, buf_stat_of(writer).nr_refs);
	bytes_of(writer)[2 * PAGE] = 7;
	EXPECT_EQ(7, bytes_of(self->buf)[2 * PAGE]);
	EXPECT_EQ(7, bytes_of(reader)[2 * PAGE]);
	EXPECT_EQ(0, commit(writer, 10, 1));
	EXPECT_EQ(-EPERM, commit(reader, 11, 1));
	EXPECT_EQ(-EPERM, kvpool_buf_revoke(reader));
	EXPECT_EQ(-1,
		  mprotect(bytes_of(reader), 4 * PAGE, PROT_READ | PROT_WRITE));
	/* Sealed through one handle, sealed for all. */
	EXPECT_EQ(0, kvpool_buf_seal(self->buf, 3 * PAGE));
	EXPECT_EQ(-EPERM, kvpool_buf_release(writer, 2 * PAGE, PAGE));
	EXPECT_EQ(7, bytes_of(reader)[2 * PAGE]);
	EXPECT_EQ(0, kvpool_buf_seal(writer, 4 * PAGE));
	EXPECT_EQ(7, bytes_of(writer)[2 * PAGE]);
	EXPECT_EQ(4 * PAGE, buf_stat_of(self->buf).sealed_bytes);
	kvpool_buf_put(writer);
	kvpool_buf_put(reader);
}

TEST_F(kernel_pool, revoke_cuts_off_every_other_handle)
{
	struct kvpool_key one = key_of(1);
	struct kvpool_buf *found, *again;
	uint64_t n;

	publish_ok(self->buf);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &one, &found, &n, NULL));
	EXPECT_EQ(-EPERM, kvpool_buf_revoke(found));
	EXPECT_EQ(0, kvpool_buf_revoke(self->buf));
	struct kvpool_buf_stat stat;

	EXPECT_EQ(-ESTALE, kvpool_buf_stat(found, &stat));
	EXPECT_EQ(-ESTALE, kvpool_buf_advise(found, KVPOOL_WILLNEED, NULL));
	EXPECT_EQ(-ESTALE, kvpool_buf_export(found));
	EXPECT_EQ(0x11, bytes_of(self->buf)[0]);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &one, &again, &n, NULL));
	EXPECT_EQ(0x11, bytes_of(again)[0]);
	kvpool_buf_put(again);
	kvpool_buf_put(found);
}

TEST_F_SIGNAL(kernel_pool, revoked_memory_is_a_signal, SIGBUS)
{
	struct kvpool_buf *other;

	ASSERT_EQ(0, commit(self->buf, 0, 1));
	ASSERT_EQ(0, kvpool_buf_open(self->pool, kvpool_buf_id(self->buf), true,
				     &other));
	bytes_of(other)[0] = 1;
	ASSERT_EQ(0, kvpool_buf_revoke(self->buf));
	bytes_of(self->buf)[0] = 2;
	signal(SIGBUS, SIG_DFL);
	*(volatile uint8_t *)bytes_of(other) = 3;
}

TEST_F_SIGNAL(kernel_pool, volatile_memory_is_a_signal, SIGBUS)
{
	ASSERT_EQ(0, commit(self->buf, 0, 1));
	bytes_of(self->buf)[0] = 1;
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_VOLATILE, NULL));
	signal(SIGBUS, SIG_DFL);
	*(volatile uint8_t *)bytes_of(self->buf) = 2;
}

TEST_F(kernel_pool, whoever_fills_a_purged_buffer_first_has_it)
{
	struct kvpool_buf *other;
	bool survived = true;

	publish_ok(self->buf);
	ASSERT_EQ(0, kvpool_buf_open(self->pool, kvpool_buf_id(self->buf), true,
				     &other));
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(other, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(2 * PAGE, kvpool_trim(self->pool, UINT64_MAX));
	EXPECT_TRUE(buf_stat_of(self->buf).is_purged);
	ASSERT_EQ(0, kvpool_buf_advise(other, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	ASSERT_EQ(0, commit(other, 0, 3));
	memset(bytes_of(other), 0x66, 3 * PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(other, PAGE));
	/* The late one is told, and sees the new content with the new seal. */
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	EXPECT_EQ(0x66, bytes_of(self->buf)[0]);
	bytes_of(self->buf)[PAGE] = 1;
	EXPECT_EQ(1, bytes_of(other)[PAGE]);
	EXPECT_EQ(-EPERM, kvpool_buf_release(self->buf, 0, PAGE));
	kvpool_buf_put(other);
}

/* ---- descriptors ---- */

TEST_F(kernel_pool, import_refuses_other_descriptors)
{
	struct kvpool_buf *buf = (void *)1;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int memfd = memfd_create("other", MFD_CLOEXEC);

	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, -1, &buf));
	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, null, &buf));
	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, memfd, &buf));
	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool,
					     kvpool_pool_fd(self->pool), &buf));
	EXPECT_TRUE(buf == (void *)1);
	struct kvpool *pool;

	EXPECT_EQ(-EINVAL, kvpool_open_fd(null, &pool));
	EXPECT_EQ(-EINVAL, kvpool_open_fd(memfd, &pool));
	publish_ok(self->buf);
	int fd = kvpool_buf_export(self->buf);

	ASSERT_TRUE(fd >= 0);
	EXPECT_EQ(-EINVAL, kvpool_open_fd(fd, &pool));
	EXPECT_TRUE(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 0) == MAP_FAILED);
	EXPECT_EQ(EACCES, errno);
	close(fd);
	close(memfd);
	close(null);
}

TEST_F(kernel_pool, a_look_up_is_passed_on_by_its_descriptor)
{
	struct kvpool_key one = key_of(1);
	struct kvpool_buf *found, *imported;
	uint64_t n;

	publish_ok(self->buf);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &one, &found, &n, NULL));
	int fd = kvpool_buf_export(found);

	ASSERT_TRUE(fd >= 0);
	/* Whoever found one page passes on no more than that. */
	ASSERT_EQ(0, kvpool_buf_import(self->pool, fd, &imported));
	close(fd);
	EXPECT_EQ(PAGE, kvpool_buf_size(imported));
	EXPECT_EQ(0x11, bytes_of(imported)[0]);
	EXPECT_EQ(-EPERM, kvpool_buf_export(imported));
	kvpool_buf_put(imported);
	kvpool_buf_put(found);
}

/* More keys than the module takes at once. */
TEST_F(kernel_pool, any_number_of_marks_is_published)
{
	enum { NR_MARKS = 5000 };
	struct kvpool_mark *marks = calloc(NR_MARKS, sizeof(*marks));
	struct kvpool_buf *found;
	uint64_t n;

	ASSERT_EQ(0, commit(self->buf, 0, 2));
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, 2 * PAGE));
	for (int i = 0; i < NR_MARKS; i++)
		marks[i] = (struct kvpool_mark){ key_of(i), 1 + i };
	ASSERT_EQ(0, kvpool_buf_publish(self->buf, marks, NR_MARKS));
	EXPECT_EQ(NR_MARKS, stat_of(self->pool).nr_keys);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &marks[NR_MARKS - 1].key, &found,
				   &n, NULL));
	EXPECT_EQ(NR_MARKS, n);
	kvpool_buf_put(found);
	free(marks);
}

/* ---- many at once ---- */

/* Publishes, finds what others publish, is short of memory now and then. */
static int work_on_pool(void *arg)
{
	struct kvpool_options options = named(arg);
	unsigned int seed = getpid();
	struct kvpool *pool;

	if (kvpool_open(&options, &pool))
		return 10;
	for (int i = 0; i < 150; i++) {
		int mine = rand_r(&seed) % 8, other = rand_r(&seed) % 8;
		struct kvpool_mark mark = { key_of(mine), 2 * PAGE };
		struct kvpool_key key = key_of(other);
		struct kvpool_buf *buf;
		uint64_t n;

		if (kvpool_buf_create(pool, 30 * PAGE, 0, &buf))
			return 11;
		int err = commit(buf, 0, 10);

		if (err && err != -ENOSPC)
			return 12;
		if (!err) {
			memset(bytes_of(buf), 0x40 + mine, 10 * PAGE);
			if (kvpool_buf_seal(buf, 2 * PAGE) ||
			    kvpool_buf_publish(buf, &mark, 1))
				return 13;
		}
		kvpool_buf_put(buf);
		err = kvpool_lookup(pool, &key, &buf, &n, NULL);
		if (err == -ENOENT)
			continue;
		if (err || n != 2 * PAGE)
			return 14;
		if (bytes_of(buf)[0] != 0x40 + other ||
		    bytes_of(buf)[n - 1] != 0x40 + other)
			return 15;
		kvpool_buf_put(buf);
	}
	kvpool_put(pool);
	return 0;
}

TEST_F_TIMEOUT(kernel_pool, processes_work_on_one_pool_that_is_too_small, 120)
{
	enum { NR_WORKERS = 4 };
	pid_t pids[NR_WORKERS];
	int status;

	for (int i = 0; i < NR_WORKERS; i++) {
		pids[i] = fork();
		if (!pids[i])
			_exit(work_on_pool(self->name));
	}
	for (int i = 0; i < NR_WORKERS; i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		EXPECT_EQ(0, status);
	}
	/* What is left is published, and nobody needs it. */
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_LE(stat.resident_bytes, 8 * 2 * PAGE);
	EXPECT_EQ(stat.resident_bytes, stat.volatile_bytes);
	EXPECT_EQ(stat.resident_bytes, stat.charged_bytes);
	EXPECT_LE(stat.peak_resident_bytes, stat.limit_bytes);
	kvpool_trim(self->pool, UINT64_MAX);
	EXPECT_EQ(0, stat_of(self->pool).charged_bytes);
	EXPECT_EQ(0, stat_of(self->pool).nr_keys);
}

TEST_HARNESS_MAIN
