/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CLONE: whole sealed folios are shared and counted once, the tail is copied
 * and charged to the caller, holes stay, chains of clones outlive their source.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 4 * MIB };

FIXTURE(clone)
{
	int dev;
	int pool; /* of single pages: sharing is by page */
	int buf; /* 16 pages, each filled with its number + 1, 8 of them sealed */
};

static void fill_pages(int buf, uint64_t nr)
{
	uint8_t *at = buf_map(buf, nr * PAGE, RW);

	buf_commit_ok(buf, 0, nr * PAGE);
	for (uint64_t i = 0; i < nr; i++)
		memset(at + i * PAGE, i + 1, PAGE);
	munmap(at, nr * PAGE);
}

/* Pages [0, nr) hold their number + 1. */
static void pages_ok(int buf, uint64_t nr)
{
	uint8_t *at = buf_map(buf, nr * PAGE, PROT_READ);

	for (uint64_t i = 0; i < nr; i++)
		EXPECT_TRUE(is_filled(at + i * PAGE, i + 1, PAGE))
	TH_LOG("page %lu", (unsigned long)i);
	munmap(at, nr * PAGE);
}

FIXTURE_SETUP(clone)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new_small(self->dev, POOL_BYTES);
	self->buf = buf_new(self->pool, BUF_BYTES);
	fill_pages(self->buf, 16);
	buf_seal_ok(self->buf, 8 * PAGE);
}

FIXTURE_TEARDOWN(clone)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

TEST_F(clone, shares_sealed_pages_and_copies_the_rest)
{
	struct kvpool_buf_clone c =
		clone_args(self->pool, 10 * PAGE + 100, BUF_BYTES);

	buf_clone_ok(self->buf, &c);
	EXPECT_TRUE(is_cloexec(c.out_fd));
	EXPECT_EQ(8 * PAGE, c.out_shared);
	EXPECT_EQ(3 * PAGE, c.out_copied);
	charged_ok(self->pool, 19 * PAGE);
	struct kvpool_buf_stat s = buf_stat_of(c.out_fd);

	EXPECT_EQ(c.out_id, s.id);
	EXPECT_EQ(BUF_BYTES, s.out_bytes);
	EXPECT_EQ(11 * PAGE, s.out_resident);
	EXPECT_EQ(8 * PAGE, s.out_shared);
	EXPECT_EQ(3 * PAGE, s.out_private);
	EXPECT_EQ(8 * PAGE, s.out_sealed);
	EXPECT_EQ(8 * PAGE, buf_stat_of(self->buf).out_shared);
	pages_ok(c.out_fd, 10);
	uint8_t *at = buf_map(c.out_fd, 11 * PAGE, PROT_READ);

	EXPECT_TRUE(is_filled(at + 10 * PAGE, 11, 100));
	EXPECT_TRUE(is_filled(at + 10 * PAGE + 100, 0, PAGE - 100));
}

TEST_F(clone, a_copy_is_its_own)
{
	struct kvpool_buf_clone c =
		clone_args(self->pool, 16 * PAGE, BUF_BYTES);
	uint8_t *mine = NULL, *theirs = NULL;

	buf_clone_ok(self->buf, &c);
	ASSERT_EQ(0, _buf_map(self->buf, 8 * PAGE, 8 * PAGE, RW, MAP_SHARED,
			      &mine));
	ASSERT_EQ(0, _buf_map(c.out_fd, 8 * PAGE, 8 * PAGE, RW, MAP_SHARED,
			      &theirs));
	theirs[0] = 0x70;
	mine[PAGE] = 0x71;
	EXPECT_EQ(9, mine[0]);
	EXPECT_EQ(10, theirs[PAGE]);
	/* What is shared is sealed in the clone too. */
	buf_map_err(EACCES, c.out_fd, 0, PAGE, RW, MAP_SHARED);
	buf_release_err(EPERM, c.out_fd, 0, PAGE);
}

TEST_F(clone, goes_on_behind_what_it_took)
{
	struct kvpool_buf_clone c =
		clone_args(self->pool, 8 * PAGE, 2 * BUF_BYTES);
	uint8_t *at = NULL;

	buf_clone_ok(self->buf, &c);
	EXPECT_EQ(0, c.out_copied);
	EXPECT_EQ(2 * BUF_BYTES, buf_stat_of(c.out_fd).out_bytes);
	ASSERT_EQ(0, _buf_map(c.out_fd, 8 * PAGE, PAGE, RW, MAP_SHARED, &at));
	poke_ok(at, 1);
	buf_seal_ok(c.out_fd, 9 * PAGE);
	EXPECT_EQ(8 * PAGE, buf_stat_of(self->buf).out_sealed);
	pages_ok(c.out_fd, 8);
}

TEST_F(clone, of_nothing_is_an_empty_buffer)
{
	struct kvpool_buf_clone c = clone_args(self->pool, 0, PAGE);

	buf_clone_ok(self->buf, &c);
	EXPECT_EQ(0, c.out_shared);
	EXPECT_EQ(0, c.out_copied);
	EXPECT_EQ(0, buf_stat_of(c.out_fd).out_resident);
	EXPECT_EQ(0, buf_stat_of(c.out_fd).out_sealed);
}

TEST_F(clone, of_less_than_a_sealed_page_copies_it)
{
	struct kvpool_buf_clone c = clone_args(self->pool, PAGE + 7, BUF_BYTES);

	buf_clone_ok(self->buf, &c);
	EXPECT_EQ(PAGE, c.out_shared);
	EXPECT_EQ(PAGE, c.out_copied);
	uint8_t *at = buf_map(c.out_fd, PAGE, PROT_READ);

	EXPECT_TRUE(is_filled(at, 1, PAGE));
	munmap(at, PAGE);
	ASSERT_EQ(0, _buf_map(c.out_fd, PAGE, PAGE, RW, MAP_SHARED, &at));
	EXPECT_TRUE(is_filled(at, 2, 7));
	EXPECT_TRUE(is_filled(at + 7, 0, PAGE - 7));
	/* The source has kept its own. */
	pages_ok(self->buf, 8);
}

TEST_F(clone, holes_stay_holes)
{
	int buf = buf_new(self->pool, BUF_BYTES);
	uint64_t before;

	buf_commit_ok(buf, 0, PAGE);
	buf_commit_ok(buf, 3 * PAGE, PAGE);
	buf_commit_ok(buf, 6 * PAGE, PAGE);
	buf_seal_ok(buf, 5 * PAGE);
	before = charged(self->pool);
	struct kvpool_buf_clone c =
		clone_args(self->pool, BUF_BYTES, BUF_BYTES);

	buf_clone_ok(buf, &c);
	EXPECT_EQ(2 * PAGE, c.out_shared);
	EXPECT_EQ(PAGE, c.out_copied);
	charged_ok(self->pool, before + PAGE);
	EXPECT_EQ(3 * PAGE, buf_stat_of(c.out_fd).out_resident);
	uint8_t *at = buf_map(c.out_fd, 8 * PAGE, PROT_READ);

	touch_ok(at);
	touch_err(SIGBUS, at + PAGE); /* sealed */
	touch_ok(at + 3 * PAGE);
	touch_ok(at + 6 * PAGE);
}

TEST_F(clone, a_hole_before_a_copied_page_stays_one)
{
	int pool = pool_new(self->dev, POOL_BYTES);
	struct kvpool_buf_clone c = clone_args(pool, 16 * PAGE, 16 * PAGE);
	int buf = buf_new(pool, 16 * PAGE);

	/* One page at the end of what could be one folio. */
	buf_commit_ok(buf, 0, 16 * PAGE);
	buf_release_ok(buf, 0, 15 * PAGE);
	buf_seal_ok(buf, 8 * PAGE);
	charged_ok(pool, PAGE);
	buf_clone_ok(buf, &c);
	EXPECT_EQ(PAGE, c.out_copied);
	EXPECT_EQ(PAGE, buf_stat_of(c.out_fd).out_resident);
	charged_ok(pool, 2 * PAGE);
	touch_err(SIGBUS, buf_map(c.out_fd, PAGE, PROT_READ));
}

TEST_F(clone, refuses_bad_arguments)
{
	struct kvpool_buf_clone c;
	uint64_t before = charged(self->pool);
	struct kvpool_pool_create args = pool_args(MIB);
	int other = pool_new(self->dev, MIB), reader;

#define CLONE_ERR(err, n_, bytes_, fd_)            \
	do {                                       \
		c = clone_args(fd_, n_, bytes_);   \
		buf_clone_err(err, self->buf, &c); \
	} while (0)
	CLONE_ERR(EINVAL, PAGE, 0, self->pool);
	CLONE_ERR(EINVAL, PAGE, PAGE + 1, self->pool);
	CLONE_ERR(EINVAL, 2 * PAGE, PAGE, self->pool);
	CLONE_ERR(EINVAL, BUF_BYTES + 1, 2 * BUF_BYTES, self->pool);
	CLONE_ERR(EINVAL, ~0ULL, ~0ULL, self->pool);
	CLONE_ERR(EINVAL, ~0ULL, BUF_BYTES, self->pool);
	CLONE_ERR(EINVAL, PAGE, ~0ULL - PAGE + 1, self->pool);
	CLONE_ERR(EBADF, PAGE, PAGE, -1);
	CLONE_ERR(EBADF, PAGE, PAGE, 999);
	CLONE_ERR(EINVAL, PAGE, PAGE, other);
	name_pool(&args, "clone");
	pool_create_ok(self->dev, &args);
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &reader);
	int buf = buf_sealed(args.out_fd, PAGE, 1);

	c = clone_args(reader, PAGE, PAGE);
	buf_clone_err(EACCES, buf, &c);
	c = clone_args(args.out_fd, PAGE, PAGE);
	c.flags = 2;
	buf_clone_err(EOPNOTSUPP, buf, &c);
	EXPECT_EQ(1, stat_of(args.out_fd).out_nr_bufs);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
	charged_ok(self->pool, before);
}

TEST_F(clone, a_descriptor_that_is_no_pool_is_refused)
{
	int null = open("/dev/null", O_RDWR);
	struct kvpool_buf_clone c = clone_args(null, PAGE, PAGE);

	EXPECT_TRUE(_buf_clone(self->buf, &c) == -EINVAL);
	c = clone_args(self->buf, PAGE, PAGE);
	EXPECT_TRUE(_buf_clone(self->buf, &c) == -EINVAL);
	c = clone_args(self->dev, PAGE, PAGE);
	EXPECT_TRUE(_buf_clone(self->buf, &c) == -EINVAL);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
}

TEST_F(clone, without_room_for_the_copy_leaves_nothing)
{
	struct kvpool_buf_clone c =
		clone_args(self->pool, 16 * PAGE, BUF_BYTES);

	pool_set_limit_ok(self->pool, 20 * PAGE);
	buf_clone_err(ENOSPC, self->buf, &c);
	charged_ok(self->pool, 16 * PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_shared);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
	pool_set_limit_ok(self->pool, POOL_BYTES);
	pool_set_quota_ok(self->pool, geteuid(), 20 * PAGE, 0);
	c = clone_args(self->pool, 16 * PAGE, BUF_BYTES);
	buf_clone_err(EDQUOT, self->buf, &c);
	charged_ok(self->pool, 16 * PAGE);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
	/* What is shared only costs nothing. */
	c = clone_args(self->pool, 8 * PAGE, BUF_BYTES);
	pool_set_quota_ok(self->pool, geteuid(), 0, 0);
	buf_clone_ok(self->buf, &c);
}

TEST_F(clone, of_a_volatile_buffer_is_refused)
{
	struct kvpool_buf_clone c = clone_args(self->pool, PAGE, PAGE);

	buf_volatile_ok(self->buf);
	buf_clone_err(EPERM, self->buf, &c);
}

TEST_F(clone, a_chain_outlives_its_source)
{
	enum { NR = 8 };
	int last = self->buf;

	for (int i = 0; i < NR; i++) {
		/* Each seals one page more and hands on. */
		struct kvpool_buf_clone c =
			clone_args(self->pool, (8 + i) * PAGE, BUF_BYTES);
		uint8_t *at = NULL;

		buf_clone_ok(last, &c);
		EXPECT_EQ((8 + i) * PAGE, c.out_shared);
		EXPECT_EQ(0, c.out_copied);
		ASSERT_EQ(0, _buf_map(c.out_fd, (8 + i) * PAGE, PAGE, RW,
				      MAP_SHARED, &at));
		memset(at, 8 + i + 1, PAGE);
		munmap(at, PAGE);
		buf_seal_ok(c.out_fd, (9 + i) * PAGE);
		if (last != self->buf)
			close(last);
		last = c.out_fd;
	}
	buf_release_ok(self->buf, 8 * PAGE, 8 * PAGE);
	charged_ok(self->pool, 16 * PAGE);
	close(self->buf);
	charged_ok(self->pool, 16 * PAGE);
	pages_ok(last, 16);
	EXPECT_EQ(16 * PAGE, buf_stat_of(last).out_private);
	close(last);
	charged_ok(self->pool, 0);
}

TEST_F(clone, many_clones_cost_one_copy)
{
	enum { NR = 32 };
	int clones[NR];

	buf_release_ok(self->buf, 8 * PAGE, 8 * PAGE);
	for (int i = 0; i < NR; i++) {
		struct kvpool_buf_clone c =
			clone_args(self->pool, 8 * PAGE, BUF_BYTES);

		buf_clone_ok(self->buf, &c);
		clones[i] = c.out_fd;
		pages_ok(clones[i], 8);
	}
	charged_ok(self->pool, 8 * PAGE);
	EXPECT_EQ(8 * PAGE, stat_of(self->pool).out_resident);
	EXPECT_EQ(NR, stat_of(self->pool).out_clones);
	for (int i = 0; i < NR; i++)
		close(clones[i]);
	charged_ok(self->pool, 8 * PAGE);
	EXPECT_EQ(8 * PAGE, buf_stat_of(self->buf).out_private);
}

TEST_F(clone, shares_huge_folios)
{
	int pool = pool_new(self->dev, POOL_BYTES);
	int buf = buf_sealed(pool, 8 * MIB, 0x21);
	struct kvpool_info info;
	struct kvpool_buf_clone c = clone_args(pool, 5 * MIB, 16 * MIB);

	info_ok(self->dev, &info);
	if (!info.out_huge_size)
		SKIP(return, "no huge folios here");
	buf_clone_ok(buf, &c);
	EXPECT_EQ(4 * MIB, c.out_shared);
	EXPECT_EQ(MIB, c.out_copied);
	charged_ok(pool, 9 * MIB);
	EXPECT_EQ(4 * MIB, buf_stat_of(c.out_fd).out_sealed);
	uint8_t *at = buf_map(c.out_fd, 5 * MIB, PROT_READ);
	long before = nr_faults();

	EXPECT_TRUE(is_filled(at, 0x21, 4 * MIB));
	EXPECT_LE(nr_faults() - before, 6);
	EXPECT_TRUE(is_filled(at + 4 * MIB, 0x21, MIB));
	close(buf);
	charged_ok(pool, 5 * MIB);
}

TEST_F(clone, the_copy_is_charged_to_the_caller)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);
	struct turns turns = turns_new();

	NEED_ROOT();
	args.mode = 0666;
	args.flags = 0;
	name_pool(&args, "charge");
	pool_create_ok(self->dev, &args);
	int buf = buf_new(args.out_fd, BUF_BYTES);

	fill_pages(buf, 4);
	buf_seal_ok(buf, 2 * PAGE);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		struct kvpool_buf_clone c =
			clone_args(args.out_fd, 4 * PAGE, BUF_BYTES);

		buf_clone_ok(buf, &c);
		close(buf);
		EXPECT_EQ(BOB, buf_stat_of(c.out_fd).out_uid);
		tell_parent(&turns);
		await_parent(&turns);
		/* The owner of the shared pages is gone; they are there. */
		pages_ok(c.out_fd, 4);
		charged_ok(args.out_fd, 4 * PAGE);
		child_end();
	}
	await_child(&turns);
	EXPECT_EQ(2 * PAGE, stat_of_uid(args.out_fd, BOB).out_charged);
	EXPECT_EQ(4 * PAGE, stat_of_uid(args.out_fd, 0).out_charged);
	close(buf);
	tell_child(&turns);
	child_ok(pid);
	charged_ok(args.out_fd, 0);
	EXPECT_EQ(0, stat_of_uid(args.out_fd, 0).out_charged);
	EXPECT_EQ(0, stat_of_uid(args.out_fd, BOB).out_charged);
}

/* ---- clones while the source changes ------------------------------------- */

struct cloner {
	int pool, buf;
	volatile bool is_stopped;
	long nr;
};

static void *clone_on(void *arg)
{
	struct cloner *cloner = arg;

	while (!cloner->is_stopped) {
		struct kvpool_buf_clone c =
			clone_args(cloner->pool, 16 * PAGE, BUF_BYTES);

		ASSERT_EQ(0, _buf_clone(cloner->buf, &c));
		/* Every page is as it was, or a hole. */
		EXPECT_LE(buf_stat_of(c.out_fd).out_resident, 16 * PAGE);
		close(c.out_fd);
		cloner->nr++;
	}
	return NULL;
}

TEST_F(clone, while_the_source_is_released_and_committed)
{
	struct cloner cloner = { .pool = self->pool, .buf = self->buf };
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, clone_on, &cloner));
	for (int i = 0; i < 300; i++) {
		buf_release_ok(self->buf, 8 * PAGE, 8 * PAGE);
		buf_commit_ok(self->buf, 8 * PAGE, 8 * PAGE);
	}
	cloner.is_stopped = true;
	pthread_join(thread, NULL);
	EXPECT_GT(cloner.nr, 0);
	charged_ok(self->pool, 16 * PAGE);
	pages_ok(self->buf, 8);
}

TEST_HARNESS_MAIN
