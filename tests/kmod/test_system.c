/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module within the system: its parameters, user namespaces, memory
 * pressure by a neighbour, policies of NUMA, and memory that a killed process
 * or a reclaiming kernel gives back to MemFree.
 */
#include "tests/kmod/kit.h"

#include <sched.h>
#include <sys/inotify.h>

/* ---- parameters ---------------------------------------------------------- */

static const char parameters[] = "/sys/module/kvpool/parameters/";

static unsigned long parameter_read(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s", parameters, name);
	return file_number(path, "");
}

static int parameter_write(const char *name, unsigned long value)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "%s%s", parameters, name);
	snprintf(text, sizeof(text), "%lu", value);
	return file_write(path, text);
}

FIXTURE(parameter)
{
	int dev, pool;
	unsigned long before;
};

FIXTURE_VARIANT(parameter)
{
	const char *name;
};

FIXTURE_VARIANT_ADD(parameter, pools){ "max_pools" };
FIXTURE_VARIANT_ADD(parameter, bufs){ "max_bufs" };
FIXTURE_VARIANT_ADD(parameter, keys){ "max_keys" };

FIXTURE_SETUP(parameter)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	if (access(parameters, W_OK))
		SKIP(return, "%s cannot be changed", parameters);
	self->before = parameter_read(variant->name);
	self->pool = pool_new(self->dev, POOL_BYTES);
}

FIXTURE_TEARDOWN(parameter)
{
	EXPECT_EQ(0, parameter_write(variant->name, self->before));
}

/* Return: of how many the last was made before EMFILE came. */
static int make_until_full(struct fixture_parameter *self, const char *what)
{
	struct kvpool_pool_create args = pool_args(MIB);
	int buf = buf_sealed(self->pool, PAGE, 1), fd, nr, err = 0;

	for (nr = 0; nr < 100 && !err; nr++) {
		if (!strcmp(what, "max_pools"))
			err = _pool_create(self->dev, &args);
		else if (!strcmp(what, "max_bufs"))
			err = _buf_create(self->pool, PAGE, 0, &fd, NULL);
		else
			err = _buf_publish_key(buf, nr, 1);
	}
	EXPECT_EQ(-EMFILE, err);
	return nr - 1;
}

TEST_F(parameter, is_a_limit)
{
	/* Others may have pools now: count from what is there. */
	unsigned long most = 8;

	ASSERT_EQ(0, parameter_write(variant->name, most));
	int nr = make_until_full(self, variant->name);
	struct kvpool_pool_stat s = stat_of(self->pool);

	EXPECT_LE(nr, most);
	if (!strcmp(variant->name, "max_keys"))
		EXPECT_EQ(most, s.out_nr_keys);
	if (!strcmp(variant->name, "max_bufs"))
		EXPECT_EQ(most, s.out_nr_bufs);
	/* More is allowed: one more is given. */
	ASSERT_EQ(0, parameter_write(variant->name, self->before));
	buf_new(self->pool, PAGE);
	pool_new(self->dev, MIB);
}

TEST_F(pool, keys_come_all_or_not_at_all_at_their_limit)
{
	struct kvpool_mark marks[6];
	unsigned long before;
	int buf;

	if (access(parameters, W_OK))
		SKIP(return, "%s cannot be changed", parameters);
	before = parameter_read("max_keys");
	buf = buf_sealed(self->pool, PAGE, 1);
	for (int i = 0; i < 6; i++)
		marks[i] = mark_of(i, PAGE);
	ASSERT_EQ(0, parameter_write("max_keys", 5));
	EXPECT_EQ(-EMFILE, _buf_publish(buf, marks, 6));
	EXPECT_EQ(0, stat_of(self->pool).out_nr_keys);
	EXPECT_EQ(0, stat_of(self->pool).out_shared);
	EXPECT_EQ(0, buf_stat_of(buf).out_state);
	EXPECT_EQ(0, _buf_publish(buf, marks, 5));
	/* Replacing keys takes no more of them. */
	int other = buf_sealed(self->pool, PAGE, 2);
	int err = _buf_publish(other, marks, 1);

	EXPECT_TRUE(err == 0 || err == -EMFILE);
	EXPECT_EQ(5, stat_of(self->pool).out_nr_keys);
	ASSERT_EQ(0, parameter_write("max_keys", before));
}

TEST_F(pool, the_reserve_has_a_cap)
{
	struct kvpool_pool_create args = pool_args(32 * MIB);
	unsigned long before;

	if (access(parameters, W_OK))
		SKIP(return, "%s cannot be changed", parameters);
	before = parameter_read("max_reserve");
	ASSERT_EQ(0, parameter_write("max_reserve", 4 * MIB));
	args.reserve = 16 * MIB;
	pool_create_ok(self->dev, &args);
	for (int i = 0; i < 20; i++, sleep_ms(20))
		EXPECT_LE(stat_of(args.out_fd).out_reserve, 4 * MIB);
	ASSERT_EQ(0, parameter_write("max_reserve", before));
}

/* ---- user namespaces ----------------------------------------------------- */

/* A child that is Bob outside and root in a user namespace of its own. */
static pid_t child_start_as_inner_root(void)
{
	pid_t pid = child_start_as(BOB);
	char map[32];

	if (pid)
		return pid;
	/* A process that changed its uid has files of root in /proc. */
	prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER))
		_exit(77);
	snprintf(map, sizeof(map), "0 %d 1", BOB);
	ASSERT_EQ(0, file_write("/proc/self/uid_map", map));
	ASSERT_EQ(0, file_write("/proc/self/setgroups", "deny"));
	ASSERT_EQ(0, file_write("/proc/self/gid_map", map));
	ASSERT_EQ(0, geteuid());
	return 0;
}

#define inner_child_ok(pid)                                      \
	do {                                                     \
		int inner_status_ = child_status(pid);           \
		if (inner_status_ == 77)                         \
			SKIP(return, "no user namespaces here"); \
		ASSERT_EQ(0, inner_status_);                     \
	} while (0)

TEST_F(pool, capabilities_in_a_user_namespace_move_nothing)
{
	struct kvpool_pool_create args = pool_args(MIB), open = args;
	uint64_t bytes, id;
	int fd;

	NEED_ROOT();
	args.mode = 0600;
	name_pool(&args, "closed");
	pool_create_ok(self->dev, &args);
	open.mode = 0666;
	name_pool(&open, "open");
	pool_create_ok(self->dev, &open);
	int buf = buf_new_id(open.out_fd, PAGE, &id);
	pid_t pid = child_start_as_inner_root();

	if (pid == 0) {
		pool_open_err(EACCES, self->dev, args.name, KVPOOL_READ);
		pool_open_ok(self->dev, open.name, KVPOOL_WRITE, &fd);
		pool_set_limit_err(EPERM, fd, 2 * MIB);
		pool_set_quota_err(EPERM, fd, 0, MIB, MIB);
		EXPECT_EQ(-EPERM, _pool_trim(fd, PAGE, &bytes));
		buf_open_err(EPERM, fd, id, KVPOOL_READ);
		buf_revoke_err(EPERM, buf);
		child_end();
	}
	inner_child_ok(pid);
	EXPECT_EQ(MIB, stat_of(open.out_fd).out_limit);
}

TEST_F(pool, uids_are_translated_at_the_door)
{
	struct kvpool_pool_create args = pool_args(MIB);
	struct turns turns = turns_new();
	struct kvpool_buf_stat s;

	NEED_ROOT();
	args.mode = 0666;
	name_pool(&args, "door");
	pool_create_ok(self->dev, &args);
	int theirs = buf_new(args.out_fd, PAGE);
	pid_t pid = child_start_as_inner_root();

	if (pid == 0) {
		int buf = buf_new(args.out_fd, PAGE), mine;

		buf_commit_ok(buf, 0, PAGE);
		EXPECT_EQ(0, buf_stat_of(buf).out_uid);
		/* Who has no name here is nobody. */
		EXPECT_EQ(65534, buf_stat_of(theirs).out_uid);
		EXPECT_EQ(PAGE, stat_of_uid(args.out_fd, 0).out_charged);
		mine = pool_new(self->dev, MIB);
		pool_set_quota_err(EINVAL, mine, ALICE, MIB, MIB);
		pool_set_quota_ok(mine, 0, MIB, MIB);
		tell_parent(&turns);
		await_parent(&turns);
		child_end();
	}
	struct pollfd pfd = { .fd = turns.to_parent[0], .events = POLLIN };

	if (poll(&pfd, 1, 10000) == 1) {
		await_child(&turns);
		EXPECT_EQ(PAGE, stat_of_uid(args.out_fd, BOB).out_charged);
		EXPECT_EQ(0, stat_of_uid(args.out_fd, 0).out_charged);
		ASSERT_EQ(0, _buf_stat(theirs, &s));
		ASSERT_EQ(0, _buf_next(args.out_fd, s.id, &s));
		EXPECT_EQ(BOB, s.out_uid);
		tell_child(&turns);
	}
	inner_child_ok(pid);
}

/* ---- pressure ------------------------------------------------------------ */

static long long free_kib(void)
{
	return file_number("/proc/meminfo", "MemFree:");
}

static void fill_volatile(int pool, uint64_t bytes)
{
	enum { EACH = 8 * MIB };

	for (uint64_t done = 0; done < bytes; done += EACH) {
		int buf = buf_new(pool, EACH);

		buf_commit_ok(buf, 0, EACH);
		buf_volatile_ok(buf);
	}
}

TEST_F_TIMEOUT(pool, a_neighbour_takes_volatile_memory_and_nobody_dies, 120)
{
	long long free_before = free_kib(), kills;
	uint64_t bytes = free_before / 2 / 8192 * 8 * MIB, need;
	int pool = pool_new(self->dev, KVPOOL_UNLIMITED);
	/* This much must survive: somebody needs it. */
	int kept = buf_sealed(pool, 8 * MIB, 0x47);

	kills = file_number("/proc/vmstat", "oom_kill ");
	fill_volatile(pool, bytes);
	EXPECT_EQ(bytes, stat_of(pool).out_volatile);
	/* More than is free now, less than with the volatile memory. */
	need = (free_kib() + bytes / 1024 / 2) * 1024 / PAGE * PAGE;
	pid_t pid = child_start();

	if (pid == 0) {
		uint8_t *at = mmap(NULL, need, RW,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
				   -1, 0);

		ASSERT_TRUE(at != MAP_FAILED);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(kills, file_number("/proc/vmstat", "oom_kill "));
	EXPECT_GT(stat_of(pool).out_purges, 0);
	EXPECT_LT(stat_of(pool).out_volatile, bytes);
	uint8_t *at = buf_map(kept, 8 * MIB, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x47, 8 * MIB));
}

TEST_F(pool, released_memory_is_free_again)
{
	int pool = pool_new(self->dev, KVPOOL_UNLIMITED);
	enum { BYTES = 256 * MIB };
	long long before, held, after;

	before = free_kib();
	int buf = buf_new(pool, BYTES);

	if (_buf_commit(buf, 0, BYTES))
		SKIP(return, "less than 256 MiB are free");
	held = free_kib();
	/* The rest of the system moves too, and keeps pages per processor. */
	EXPECT_GE(before - held, BYTES / 1024 / 2);
	close(buf);
	charged_ok(pool, 0);
	after = free_kib();
	EXPECT_GE(after - held, BYTES / 1024 / 2);
}

TEST_F(pool, a_killed_owners_memory_is_free_again)
{
	enum { BYTES = 256 * MIB };
	struct turns turns = turns_new();
	int pool = pool_new(self->dev, KVPOOL_UNLIMITED);
	long long held, after;
	pid_t pid = child_start();

	if (pid == 0) {
		int buf = buf_new(pool, BYTES);

		_buf_commit(buf, 0, BYTES);
		poke_pages(buf_map(buf, BYTES, RW), BYTES, 1);
		tell_parent(&turns);
		await_parent(&turns);
		child_end();
	}
	await_child(&turns);
	uint64_t was = charged(pool);

	held = free_kib();
	child_kill(pid);
	charged_ok(pool, 0);
	after = free_kib();
	EXPECT_GE(after - held, (long long)(was / 1024 / 2));
}

/* ---- NUMA ---------------------------------------------------------------- */

TEST_F(pool, mbind_has_no_effect)
{
	struct kvpool_pool_create args = pool_args(16 * MIB);
	unsigned long mask = 1; /* node 0 */
	uint8_t *at;
	int buf;

	args.node_mask = 2;
	if (_pool_create(self->dev, &args))
		SKIP(return, "one NUMA node only");
	buf = buf_new(args.out_fd, 8 * MIB);
	at = buf_map(buf, 8 * MIB, RW);
	/* MPOL_BIND */
	syscall(SYS_mbind, at, 8UL * MIB, 2, &mask, 8, 0);
	poke_ok(at, 1);
	EXPECT_EQ(1, node_of(at));
	buf_commit_ok(buf, 4 * MIB, PAGE);
	touch_ok(at + 4 * MIB);
	EXPECT_EQ(1, node_of(at + 4 * MIB));
}

TEST_F(pool, pages_stay_where_they_are)
{
	unsigned long from = 1, to = 2;
	struct kvpool_pool_create args = pool_args(16 * MIB);
	uint8_t *at;

	args.node_mask = 1;
	pool_create_ok(self->dev, &args);
	int buf = buf_new(args.out_fd, 4 * MIB);

	at = buf_map(buf, 4 * MIB, RW);
	memset(at, 0x3c, 4 * MIB);
	/* The system's migration does not know these pages. */
	syscall(SYS_migrate_pages, 0, 8, &from, &to);
	EXPECT_EQ(0, node_of(at));
	EXPECT_TRUE(is_filled(at, 0x3c, 4 * MIB));
	charged_ok(args.out_fd, 4 * MIB);
}

/* ---- watches ------------------------------------------------------------- */

/* Watches the buffer, and closes it while the watch stays. */
static void watch_and_close(int pool)
{
	int watcher = inotify_init1(IN_CLOEXEC);
	int buf = buf_new(pool, PAGE);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", buf);
	ASSERT_LE(0, inotify_add_watch(watcher, path, IN_ATTRIB));
	close(buf);
	close(watcher);
}

TEST_F(pool, a_watched_buffer_can_be_closed)
{
	int status = 0;
	pid_t pid = child_start();

	if (pid == 0) {
		watch_and_close(self->pool);
		child_end();
	}
	/* Where it hangs it cannot be killed: nobody may wait for it for ever. */
	for (int i = 0; i < 500 && !waitpid(pid, &status, WNOHANG); i++) {
		status = -1;
		sleep_ms(20);
	}
	EXPECT_EQ(0, status);
	charged_ok(self->pool, 0);
}

TEST_HARNESS_MAIN
