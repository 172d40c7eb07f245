/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of the device: INFO, POOL_CREATE, POOL_OPEN, POOL_NEXT; names,
 * limits, modes, nodes, and who may open whose pool.
 */
#include "tests/kmod/kit.h"

FIXTURE(dev)
{
	int dev;
};

FIXTURE_SETUP(dev)
{
	self->dev = dev_open();
}

FIXTURE_TEARDOWN(dev)
{
	close(self->dev);
}

TEST_F(dev, info_tells_version_and_sizes)
{
	struct kvpool_info info;

	info_ok(self->dev, &info);
	EXPECT_EQ(KVPOOL_ABI_VERSION, info.out_abi_version);
	EXPECT_EQ(sysconf(_SC_PAGESIZE), info.out_page_size);
	EXPECT_TRUE(info.out_huge_size == 0 || info.out_huge_size == HPAGE);
	EXPECT_GE(9, info.out_max_order);
	EXPECT_GE(info.out_max_marks, 64);
	EXPECT_EQ(0, info.out_features &
			     ~(KVPOOL_FEATURE_MEMCG | KVPOOL_FEATURE_HUGE |
			       KVPOOL_FEATURE_PURGE));
	EXPECT_TRUE(info.out_features & KVPOOL_FEATURE_PURGE);
	EXPECT_EQ(info.out_huge_size != 0,
		  !!(info.out_features & KVPOOL_FEATURE_HUGE));
}

/* ---- POOL_CREATE: one wrong value at a time ------------------------------ */

FIXTURE(create)
{
	int dev;
	struct kvpool_pool_create args;
};

FIXTURE_VARIANT(create)
{
	void (*spoil)(struct kvpool_pool_create * args, int dev);
};

FIXTURE_SETUP(create)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->args = pool_args(MIB);
	name_pool(&self->args, "create");
}

FIXTURE_TEARDOWN(create)
{
	close(self->dev);
}

#define SPOIL(variant, ...)                                                   \
	static void spoil_##variant(struct kvpool_pool_create *args, int dev) \
	{                                                                     \
		(void)dev;                                                    \
		__VA_ARGS__;                                                  \
	}                                                                     \
	FIXTURE_VARIANT_ADD(create, variant)                                  \
	{                                                                     \
		.spoil = spoil_##variant                                      \
	}

SPOIL(name_with_slash, args->name[2] = '/');
SPOIL(name_with_dot_first, args->name[0] = '.');
SPOIL(name_with_space, args->name[2] = ' ');
SPOIL(name_with_control_character, args->name[2] = '\n');
SPOIL(name_with_high_byte, args->name[2] = 0xe4);
SPOIL(name_without_end, memset(args->name, 'a', sizeof(args->name)));
SPOIL(name_with_garbage_behind, args->name[sizeof(args->name) - 1] = 'a');
SPOIL(empty_name_with_garbage_behind, args->name[0] = 0);
SPOIL(limit_of_zero, args->limit = 0);
SPOIL(mode_with_execute_bits, args->mode = 0700);
SPOIL(mode_with_high_bits, args->mode = 0100600);
SPOIL(order_without_leave, args->max_order = 1);
SPOIL(order_too_large, struct kvpool_info info; info_ok(dev, &info);
      args->flags = 0; args->max_order = info.out_max_order + 1);
SPOIL(order_of_all_ones, args->flags = 0; args->max_order = ~0U);
SPOIL(nodes_that_do_not_exist, args->node_mask = 1ULL << 63);

TEST_F(create, refuses_the_value)
{
	int nr = nr_fds();

	variant->spoil(&self->args, self->dev);
	pool_create_err(EINVAL, self->dev, &self->args);
	EXPECT_EQ(nr, nr_fds());
	/* No name was left behind: the valid struct can have it. */
	self->args = pool_args(MIB);
	name_pool(&self->args, "create");
	pool_create_ok(self->dev, &self->args);
}

TEST_F(dev, create_takes_names_of_every_allowed_character_and_length)
{
	static const char *const names[] = { "a", "Z", "0",
					     "_", "-", "kv.pool-A_9" };
	struct kvpool_pool_create args = pool_args(MIB);
	int fd;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		memset(args.name, 0, sizeof(args.name));
		strcpy((char *)args.name, names[i]);
		pool_create_ok(self->dev, &args);
		pool_open_ok(self->dev, args.name, KVPOOL_WRITE, &fd);
		close(fd);
		close(args.out_fd);
	}
	memset(args.name, 'n', sizeof(args.name) - 1);
	pool_create_ok(self->dev, &args);
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &fd);
}

TEST_F(dev, create_takes_the_largest_limits_and_quotas)
{
	struct kvpool_pool_create args = pool_args(KVPOOL_UNLIMITED);

	pool_create_ok(self->dev, &args);
	EXPECT_EQ(KVPOOL_UNLIMITED, stat_of(args.out_fd).out_limit);
	EXPECT_EQ(KVPOOL_UNLIMITED, stat_of(args.out_fd).out_quota);
	EXPECT_EQ(KVPOOL_UNLIMITED, stat_of(args.out_fd).out_shared_quota);
	args.limit = KVPOOL_UNLIMITED - 1;
	pool_create_ok(self->dev, &args);
	EXPECT_EQ(KVPOOL_UNLIMITED - 1, stat_of(args.out_fd).out_limit);
	buf_commit_ok(buf_new(args.out_fd, PAGE), 0, PAGE);
}

TEST_F(dev, create_with_quota_of_zero_gives_nothing)
{
	struct kvpool_pool_create args = pool_args(MIB);

	args.quota = 0;
	pool_create_ok(self->dev, &args);
	buf_commit_err(EDQUOT, buf_new(args.out_fd, PAGE), 0, PAGE);
	charged_ok(args.out_fd, 0);
}

TEST_F(dev, a_limit_below_a_page_gives_nothing)
{
	int pool = pool_new(self->dev, 1);

	buf_commit_err(ENOSPC, buf_new(pool, PAGE), 0, PAGE);
	charged_ok(pool, 0);
}

TEST_F(dev, create_refuses_a_name_that_is_taken)
{
	struct kvpool_pool_create args = pool_args(MIB);

	name_pool(&args, "taken");
	pool_create_ok(self->dev, &args);
	struct kvpool_pool_create again = args;

	pool_create_err(EEXIST, self->dev, &again);
	close(args.out_fd);
	pool_create_ok(self->dev, &again);
}

TEST_F(dev, pools_without_name_do_not_collide)
{
	int a = pool_new(self->dev, MIB), b = pool_new(self->dev, MIB);

	EXPECT_NE(stat_of(a).out_id, stat_of(b).out_id);
	EXPECT_NE(0, stat_of(a).out_id);
}

TEST_F(dev, create_without_room_for_a_descriptor_leaves_no_pool)
{
	struct kvpool_pool_create args = pool_args(MIB);
	struct rlimit old, none;

	name_pool(&args, "nofd");
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	none = old;
	none.rlim_cur = 3;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	pool_create_err(EMFILE, self->dev, &args);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
	pool_create_ok(self->dev, &args);
}

TEST_F(dev, a_reserve_is_kept_within_the_limit)
{
	struct kvpool_pool_create args = pool_args(8 * MIB);

	args.reserve = KVPOOL_UNLIMITED;
	int err = _pool_create(self->dev, &args);

	if (err == -EINVAL)
		return;
	ASSERT_EQ(0, err);
	for (int i = 0; i < 20; i++, sleep_ms(10)) {
		struct kvpool_pool_stat s = stat_of(args.out_fd);

		EXPECT_LE(s.out_reserve, s.out_limit);
		EXPECT_LE(s.out_charged, s.out_limit);
	}
}

TEST_F(dev, a_reserve_fills_and_serves)
{
	struct kvpool_pool_create args = pool_args(16 * MIB);
	struct kvpool_info info;
	uint64_t reserve = 0;

	info_ok(self->dev, &info);
	if (!info.out_huge_size)
		SKIP(return, "no huge folios here");
	args.reserve = 4 * MIB;
	pool_create_ok(self->dev, &args);
	for (int i = 0; i < 500 && reserve != 4 * MIB; i++, sleep_ms(20))
		reserve = stat_of(args.out_fd).out_reserve;
	EXPECT_EQ(4 * MIB, reserve);
	charged_ok(args.out_fd, 4 * MIB);

	/* What is taken from it comes back to it, and all counts. */
	int buf = buf_new(args.out_fd, 16 * MIB);

	buf_commit_ok(buf, 0, 16 * MIB);
	struct kvpool_pool_stat s = stat_of(args.out_fd);

	EXPECT_EQ(16 * MIB, s.out_resident);
	EXPECT_EQ(0, s.out_reserve);
	EXPECT_EQ(16 * MIB, s.out_charged);
}

/* ---- modes and owners ---------------------------------------------------- */

/* Alice, a user of group ALICE, makes a pool; the test holds it. */
static int pool_of_alice(int dev, uint32_t mode, uint8_t *out_name)
{
	struct kvpool_pool_create args = pool_args(MIB);
	int pair[2], pool;
	pid_t pid;

	name_pool(&args, "alice");
	memcpy(out_name, args.name, sizeof(args.name));
	args.mode = mode;
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid = child_start_as(ALICE);
	if (pid == 0) {
		pool_create_ok(dev, &args);
		fd_send(pair[1], args.out_fd);
		child_end();
	}
	pool = fd_receive(pair[0]);
	child_ok(pid);
	return pool;
}

struct right {
	uid_t uid;
	gid_t gid;
	uint32_t mode;
	int err_read;
	int err_write;
};

static void right_try(int dev, const struct right *right)
{
	uint8_t name[KVPOOL_NAME_SIZE];
	int pool = pool_of_alice(dev, right->mode, name), fd;
	pid_t pid = child_start();

	if (pid == 0) {
		if (right->uid)
			become(right->uid, right->gid);
		EXPECT_EQ(-right->err_read,
			  _pool_open(dev, name, KVPOOL_READ, &fd))
		TH_LOG("uid %u, gid %u, mode %o", right->uid, right->gid,
		       right->mode);
		EXPECT_EQ(-right->err_write,
			  _pool_open(dev, name, KVPOOL_READ | KVPOOL_WRITE,
				     &fd))
		TH_LOG("uid %u, gid %u, mode %o", right->uid, right->gid,
		       right->mode);
		child_end();
	}
	child_ok(pid);
	close(pool);
}

TEST_F(dev, mode_decides_who_may_open)
{
	static const struct right rights[] = {
		{ ALICE, ALICE, 0600, 0, 0 },
		{ ALICE, ALICE, 0400, 0, EACCES },
		{ ALICE, ALICE, 0000, EACCES, EACCES },
		{ BOB, BOB, 0600, EACCES, EACCES },
		{ BOB, BOB, 0604, 0, EACCES },
		{ BOB, BOB, 0606, 0, 0 },
		{ BOB, ALICE, 0600, EACCES, EACCES },
		{ BOB, ALICE, 0640, 0, EACCES },
		{ BOB, ALICE, 0660, 0, 0 },
		/* The first class that fits decides, as for files. */
		{ ALICE, ALICE, 0066, EACCES, EACCES },
		{ BOB, ALICE, 0606, EACCES, EACCES },
		/* Root passes by CAP_DAC_OVERRIDE. */
		{ 0, 0, 0000, 0, 0 },
	};

	NEED_ROOT();
	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++)
		right_try(self->dev, &rights[i]);
}

TEST_F(dev, a_group_beside_the_first_counts)
{
	uint8_t name[KVPOOL_NAME_SIZE];
	gid_t groups[] = { CAROL, ALICE };
	int fd;

	NEED_ROOT();
	pool_of_alice(self->dev, 0640, name);
	pid_t pid = child_start();

	if (pid == 0) {
		ASSERT_EQ(0, setgroups(2, groups));
		ASSERT_EQ(0, setresgid(BOB, BOB, BOB));
		ASSERT_EQ(0, setresuid(BOB, BOB, BOB));
		pool_open_ok(self->dev, name, KVPOOL_READ, &fd);
		child_end();
	}
	child_ok(pid);
}

TEST_F(dev, a_name_of_another_user_is_taken)
{
	struct kvpool_pool_create args = pool_args(MIB);
	uint8_t name[KVPOOL_NAME_SIZE];

	NEED_ROOT();
	pool_of_alice(self->dev, 0600, name);
	memcpy(args.name, name, sizeof(name));
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		pool_create_err(EEXIST, self->dev, &args);
		pool_open_err(EACCES, self->dev, name, KVPOOL_READ);
		child_end();
	}
	child_ok(pid);
}

/* ---- POOL_OPEN ----------------------------------------------------------- */

TEST_F(dev, open_by_name_gives_the_same_pool)
{
	struct kvpool_pool_create args = pool_args(MIB);
	int fd;

	name_pool(&args, "same");
	pool_create_ok(self->dev, &args);
	pool_open_ok(self->dev, args.name, KVPOOL_READ | KVPOOL_WRITE, &fd);
	EXPECT_TRUE(is_cloexec(fd));
	EXPECT_EQ(stat_of(args.out_fd).out_id, stat_of(fd).out_id);
	buf_commit_ok(buf_new(fd, PAGE), 0, PAGE);
	charged_ok(args.out_fd, PAGE);
}

TEST_F(dev, write_implies_reading)
{
	struct kvpool_pool_create args = pool_args(MIB);
	struct kvpool_buf_lookup lookup;
	int fd;

	name_pool(&args, "implied");
	pool_create_ok(self->dev, &args);
	pool_open_ok(self->dev, args.name, KVPOOL_WRITE, &fd);
	EXPECT_EQ(args.limit, stat_of(fd).out_limit);
	EXPECT_EQ(-ENOENT, _buf_lookup(fd, 1, &lookup));
}

TEST_F(dev, open_refuses_bad_arguments)
{
	struct kvpool_pool_create args = pool_args(MIB);
	uint8_t bad[KVPOOL_NAME_SIZE] = { 0 };

	name_pool(&args, "bad");
	pool_create_ok(self->dev, &args);
	pool_open_err(EINVAL, self->dev, args.name, 0);
	pool_open_err(EOPNOTSUPP, self->dev, args.name, KVPOOL_READ | 4);
	pool_open_err(EINVAL, self->dev, bad, KVPOOL_READ);
	memcpy(bad, args.name, sizeof(bad));
	bad[KVPOOL_NAME_SIZE - 1] = 'x';
	pool_open_err(EINVAL, self->dev, bad, KVPOOL_READ);
	memset(bad, 'x', sizeof(bad));
	pool_open_err(EINVAL, self->dev, bad, KVPOOL_READ);
	memcpy(bad, args.name, sizeof(bad));
	bad[1] = '/';
	pool_open_err(EINVAL, self->dev, bad, KVPOOL_READ);
	memcpy(bad, args.name, sizeof(bad));
	bad[1] = 'X';
	pool_open_err(ENOENT, self->dev, bad, KVPOOL_READ);
}

TEST_F(dev, a_name_goes_with_the_last_descriptor)
{
	struct kvpool_pool_create args = pool_args(MIB);
	int buf, again;

	name_pool(&args, "last");
	pool_create_ok(self->dev, &args);
	buf = buf_new(args.out_fd, PAGE);
	close(args.out_fd);
	/* The buffer's descriptor holds it. */
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &again);
	close(again);
	uint8_t *at = buf_map(buf, PAGE, RW);

	poke_ok(at, 1);
	close(buf);
	/* A mapping holds it too. */
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &again);
	charged_ok(again, PAGE);
	close(again);
	ASSERT_EQ(0, munmap(at, PAGE));
	pool_open_err(ENOENT, self->dev, args.name, KVPOOL_READ);
}

/* ---- POOL_NEXT ----------------------------------------------------------- */

/* Return: whether the caller is shown a pool of this name. */
static bool is_shown(int dev, const uint8_t *name, struct kvpool_pool_next *out)
{
	struct kvpool_pool_next next = { .id = 0 };
	uint64_t last = 0;
	bool is_seen = false;
	int err;

	while ((err = _pool_next(dev, last, &next)) == 0) {
		EXPECT_GT(next.id, last);
		if (next.id <= last)
			return false;
		last = next.id;
		if (!memcmp(next.out_name, name, KVPOOL_NAME_SIZE)) {
			is_seen = true;
			*out = next;
		}
	}
	EXPECT_EQ(-ENOENT, err);
	return is_seen;
}

TEST_F(dev, next_walks_over_the_pools)
{
	struct kvpool_pool_create a = pool_args(MIB), b = pool_args(2 * MIB);
	struct kvpool_pool_next next;

	name_pool(&a, "next-a");
	name_pool(&b, "next-b");
	b.mode = 0640;
	pool_create_ok(self->dev, &a);
	pool_create_ok(self->dev, &b);
	buf_commit_ok(buf_new(b.out_fd, PAGE), 0, PAGE);
	ASSERT_TRUE(is_shown(self->dev, a.name, &next));
	EXPECT_EQ(MIB, next.out_limit);
	EXPECT_EQ(0, next.out_charged);
	ASSERT_TRUE(is_shown(self->dev, b.name, &next));
	EXPECT_EQ(2 * MIB, next.out_limit);
	EXPECT_EQ(PAGE, next.out_charged);
	EXPECT_EQ(geteuid(), next.out_uid);
	EXPECT_EQ(0640, next.out_mode);
	EXPECT_EQ(stat_of(b.out_fd).out_id, next.id);
	EXPECT_EQ(-ENOENT, _pool_next(self->dev, ~0ULL, &next));
}

TEST_F(dev, next_shows_only_what_one_may_open)
{
	uint8_t name[KVPOOL_NAME_SIZE];
	struct kvpool_pool_next next;

	NEED_ROOT();
	pool_of_alice(self->dev, 0600, name);
	EXPECT_TRUE(is_shown(self->dev, name, &next));
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		EXPECT_FALSE(is_shown(self->dev, name, &next));
		child_end();
	}
	child_ok(pid);
	pid = child_start_as(ALICE);
	if (pid == 0) {
		EXPECT_TRUE(is_shown(self->dev, name, &next));
		EXPECT_EQ(ALICE, next.out_uid);
		child_end();
	}
	child_ok(pid);
}

/* ---- nodes --------------------------------------------------------------- */

TEST_F(dev, pages_come_from_the_nodes_of_the_mask)
{
	for (int node = 0; node < 2; node++) {
		struct kvpool_pool_create args = pool_args(8 * MIB);

		args.node_mask = 1ULL << node;
		int err = _pool_create(self->dev, &args);

		if (node == 1 && err == -EINVAL)
			SKIP(return, "one NUMA node only");
		ASSERT_EQ(0, err);
		int buf = buf_new(args.out_fd, 4 * MIB);
		uint8_t *at = buf_map(buf, 4 * MIB, RW);

		buf_commit_ok(buf, 0, 2 * MIB);
		poke_ok(at, 1);
		poke_ok(at + 3 * MIB, 1);
		EXPECT_EQ(node, node_of(at));
		EXPECT_EQ(node, node_of(at + 3 * MIB));
		munmap(at, 4 * MIB);
		close(buf);
		close(args.out_fd);
	}
}

TEST_F(dev, nodes_outside_the_cpuset_are_cut_off)
{
	static const char group[] = "/sys/fs/cgroup/kvpool-test-cpuset";
	struct kvpool_pool_create args = pool_args(MIB);
	char procs[128];

	NEED_ROOT();
	args.node_mask = 2;
	if (_pool_create(self->dev, &args))
		SKIP(return, "one NUMA node only");
	close(args.out_fd);
	mkdir(group, 0755);
	snprintf(procs, sizeof(procs), "%s/cpuset.mems", group);
	if (file_write(procs, "0"))
		SKIP(return, "no cpuset controller at %s", group);
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
	pid_t pid = child_start();

	if (pid == 0) {
		ASSERT_EQ(0, file_write(procs, "0"));
		pool_create_err(EINVAL, self->dev, &args);
		args.node_mask = 3;
		pool_create_ok(self->dev, &args);
		int buf = buf_new(args.out_fd, PAGE);
		uint8_t *at = buf_map(buf, PAGE, RW);

		poke_ok(at, 1);
		EXPECT_EQ(0, node_of(at));
		child_end();
	}
	child_ok(pid);
	rmdir(group);
}

TEST_HARNESS_MAIN
