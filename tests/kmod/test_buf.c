/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers and their ranges: create, open by id, COMMIT, RELEASE, STAT. Bad
 * ranges have the exact errno and change nothing.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 16 * PAGE };

FIXTURE(buf)
{
	int dev;
	int pool; /* of single pages */
	int buf; /* BUF_BYTES; pages 2 and 3 are there */
	uint64_t id;
};

FIXTURE_SETUP(buf)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new_small(self->dev, POOL_BYTES);
	self->buf = buf_new_id(self->pool, BUF_BYTES, &self->id);
	buf_commit_ok(self->buf, 2 * PAGE, 2 * PAGE);
}

FIXTURE_TEARDOWN(buf)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

/* ---- BUF_CREATE, BUF_OPEN ------------------------------------------------ */

TEST_F(buf, create_refuses_bad_sizes_and_flags)
{
	static const uint64_t sizes[] = { 0,	     1,	    PAGE - 1,
					  PAGE + 1,  ~0ULL, ~0ULL - PAGE + 1,
					  1ULL << 63 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		buf_create_err(EINVAL, self->pool, sizes[i], 0);
	buf_create_err(EOPNOTSUPP, self->pool, PAGE, 1U << 1);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
}

TEST_F(buf, a_huge_virtual_size_costs_nothing)
{
	int buf = buf_new(self->pool, 1ULL << 40);

	charged_ok(self->pool, 2 * PAGE);
	buf_commit_ok(buf, (1ULL << 40) - PAGE, PAGE);
	EXPECT_EQ(PAGE, buf_stat_of(buf).out_resident);
	EXPECT_EQ(1ULL << 40, buf_stat_of(buf).out_bytes);
}

TEST_F(buf, create_without_room_for_a_descriptor_leaves_no_buffer)
{
	struct rlimit old, none;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	none = old;
	none.rlim_cur = 3;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	buf_create_err(EMFILE, self->pool, PAGE, 0);
	buf_open_err(EMFILE, self->pool, self->id, KVPOOL_READ);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_votes);
}

TEST_F(buf, ids_are_never_used_again)
{
	uint64_t last = self->id;

	for (int i = 0; i < 10; i++) {
		uint64_t id;
		int buf = buf_new_id(self->pool, PAGE, &id);

		EXPECT_GT(id, last);
		last = id;
		close(buf);
		buf_open_err(ENOENT, self->pool, id, KVPOOL_READ);
	}
}

TEST_F(buf, open_by_id_is_a_new_description_of_the_same_memory)
{
	uint8_t *mine = buf_map(self->buf, BUF_BYTES, RW), *theirs;
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	EXPECT_TRUE(is_cloexec(fd));
	theirs = buf_map(fd, BUF_BYTES, PROT_READ);
	mine[2 * PAGE] = 0x5a;
	EXPECT_EQ(0x5a, theirs[2 * PAGE]);
	EXPECT_EQ(2, buf_stat_of(fd).out_nr_open);
	EXPECT_EQ(2, buf_stat_of(fd).out_nr_votes);
	EXPECT_EQ(self->id, buf_stat_of(fd).id);
	/* It holds the buffer alone as well. */
	close(self->buf);
	munmap(mine, BUF_BYTES);
	EXPECT_EQ(0x5a, theirs[2 * PAGE]);
	EXPECT_EQ(1, buf_stat_of(fd).out_nr_open);
}

TEST_F(buf, open_refuses_bad_arguments)
{
	buf_open_err(EINVAL, self->pool, self->id, 0);
	buf_open_err(EOPNOTSUPP, self->pool, self->id, KVPOOL_READ | 8);
	buf_open_err(ENOENT, self->pool, 0, KVPOOL_READ);
	buf_open_err(ENOENT, self->pool, self->id + 1, KVPOOL_READ);
	buf_open_err(ENOENT, self->pool, self->id + (1ULL << 32), KVPOOL_READ);
	buf_open_err(ENOENT, self->pool, ~0ULL, KVPOOL_READ);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open);
}

TEST_F(buf, open_for_writing_needs_a_writer_of_the_pool)
{
	struct kvpool_pool_create args = pool_args(MIB);
	uint64_t id;
	int reader, fd;

	name_pool(&args, "reader");
	pool_create_ok(self->dev, &args);
	buf_new_id(args.out_fd, PAGE, &id);
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &reader);
	buf_open_err(EACCES, reader, id, KVPOOL_WRITE);
	buf_open_ok(reader, id, KVPOOL_READ, &fd);
	buf_commit_err(EACCES, fd, 0, PAGE);
	buf_map_err(EACCES, fd, 0, PAGE, RW, MAP_SHARED);
}

TEST_F(buf, open_is_for_the_owner)
{
	struct kvpool_pool_create args = pool_args(MIB);
	uint64_t id;
	int fd;

	NEED_ROOT();
	args.mode = 0666;
	pool_create_ok(self->dev, &args);
	pid_t pid = child_start_as(ALICE);

	if (pid == 0) {
		buf_new_id(args.out_fd, PAGE, &id);
		buf_open_ok(args.out_fd, id, KVPOOL_WRITE, &fd);
		child_end();
	}
	child_ok(pid);
	buf_new_id(args.out_fd, PAGE, &id);
	pid = child_start_as(BOB);
	if (pid == 0) {
		buf_open_err(EPERM, args.out_fd, id, KVPOOL_READ);
		buf_open_err(EPERM, args.out_fd, id, KVPOOL_WRITE);
		child_end();
	}
	child_ok(pid);
	/* Root may open a buffer of Bob's. */
	struct turns turns = turns_new();
	int pair[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid = child_start_as(BOB);
	if (pid == 0) {
		fd_send(pair[1], buf_new(args.out_fd, PAGE));
		await_parent(&turns);
		child_end();
	}
	fd = fd_receive(pair[0]);
	EXPECT_EQ(BOB, buf_stat_of(fd).out_uid);
	int again;

	buf_open_ok(args.out_fd, buf_stat_of(fd).id, KVPOOL_WRITE, &again);
	tell_child(&turns);
	child_ok(pid);
}

TEST_F(buf, a_descriptor_gets_no_rights_by_reopening)
{
	char path[64];
	int fd, again;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	if (again >= 0)
		buf_commit_err(EACCES, again, 0, PAGE);
	EXPECT_LT(again, 0);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open - 1);
	EXPECT_LT(ftruncate(self->buf, PAGE), 0);
	EXPECT_LT(fallocate(self->buf, 0, 0, PAGE), 0);
	EXPECT_EQ(BUF_BYTES, buf_stat_of(self->buf).out_bytes);
}

/* ---- bad ranges ---------------------------------------------------------- */

FIXTURE(range)
{
	int dev, pool, buf;
};

FIXTURE_VARIANT(range)
{
	uint64_t offset, len;
};

FIXTURE_VARIANT_ADD(range, empty){ 0, 0 };
FIXTURE_VARIANT_ADD(range, empty_at_the_end){ BUF_BYTES, 0 };
FIXTURE_VARIANT_ADD(range, offset_unaligned){ 1, PAGE };
FIXTURE_VARIANT_ADD(range, offset_half_a_page){ PAGE / 2, PAGE };
FIXTURE_VARIANT_ADD(range, len_unaligned){ 0, PAGE + 1 };
FIXTURE_VARIANT_ADD(range, len_below_a_page){ 0, 1 };
FIXTURE_VARIANT_ADD(range, behind_the_end){ BUF_BYTES, PAGE };
FIXTURE_VARIANT_ADD(range, over_the_end){ BUF_BYTES - PAGE, 2 * PAGE };
FIXTURE_VARIANT_ADD(range, far_behind_the_end){ 1ULL << 50, PAGE };
FIXTURE_VARIANT_ADD(range, longer_than_all){ 0, BUF_BYTES + PAGE };
FIXTURE_VARIANT_ADD(range, sum_overflows){ ~0ULL - PAGE + 1, PAGE };
FIXTURE_VARIANT_ADD(range, sum_overflows_to_valid){ ~0ULL - PAGE + 1,
						    2 * PAGE };
FIXTURE_VARIANT_ADD(range, len_of_all_pages){ PAGE, ~0ULL - PAGE + 1 };
FIXTURE_VARIANT_ADD(range, sign_bit){ 1ULL << 63, PAGE };
FIXTURE_VARIANT_ADD(range, all_ones){ ~0ULL, ~0ULL };

FIXTURE_SETUP(range)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new_small(self->dev, POOL_BYTES);
	self->buf = buf_new(self->pool, BUF_BYTES);
	buf_commit_ok(self->buf, 0, PAGE);
	buf_commit_ok(self->buf, BUF_BYTES - PAGE, PAGE);
}

FIXTURE_TEARDOWN(range)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

TEST_F(range, is_refused_by_commit_and_release)
{
	uint64_t done;

	buf_commit_err(EINVAL, self->buf, variant->offset, variant->len);
	EXPECT_EQ(-EINVAL, _buf_commit_partial(self->buf, variant->offset,
					       variant->len, &done));
	buf_release_err(EINVAL, self->buf, variant->offset, variant->len);
	charged_ok(self->pool, 2 * PAGE);
	EXPECT_EQ(0, stat_of(self->pool).out_limit_hits);
}

/* ---- COMMIT -------------------------------------------------------------- */

TEST_F(buf, commit_fills_what_is_missing)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	memset(at + 2 * PAGE, 0x77, 2 * PAGE);
	/* [..CC....]: overlapping on both sides, then all again. */
	buf_commit_ok(self->buf, PAGE, 2 * PAGE);
	charged_ok(self->pool, 3 * PAGE);
	buf_commit_ok(self->buf, 3 * PAGE, 2 * PAGE);
	charged_ok(self->pool, 4 * PAGE);
	buf_commit_ok(self->buf, 0, 6 * PAGE);
	buf_commit_ok(self->buf, 0, 6 * PAGE);
	charged_ok(self->pool, 6 * PAGE);
	EXPECT_TRUE(is_filled(at, 0, 2 * PAGE));
	EXPECT_TRUE(is_filled(at + 2 * PAGE, 0x77, 2 * PAGE));
	EXPECT_TRUE(is_filled(at + 4 * PAGE, 0, 2 * PAGE));
}

TEST_F(buf, committed_pages_take_no_fault_that_allocates)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	buf_commit_ok(self->buf, 0, BUF_BYTES);
	uint64_t before = stat_of(self->pool).out_faults;

	EXPECT_EQ(BUF_BYTES, poke_pages(at, BUF_BYTES, 1));
	EXPECT_EQ(before, stat_of(self->pool).out_faults);
	charged_ok(self->pool, BUF_BYTES);
}

TEST_F(buf, commit_is_all_or_nothing_at_the_limit)
{
	pool_set_limit_ok(self->pool, 5 * PAGE);
	buf_commit_err(ENOSPC, self->buf, 0, 8 * PAGE);
	charged_ok(self->pool, 2 * PAGE);
	EXPECT_EQ(2 * PAGE, buf_stat_of(self->buf).out_resident);
	buf_commit_ok(self->buf, 0, 5 * PAGE);
	charged_ok(self->pool, 5 * PAGE);
}

TEST_F(buf, commit_is_all_or_nothing_at_the_quota)
{
	pool_set_quota_ok(self->pool, geteuid(), 5 * PAGE, 0);
	buf_commit_err(EDQUOT, self->buf, 0, 8 * PAGE);
	charged_ok(self->pool, 2 * PAGE);
	buf_commit_ok(self->buf, 0, 5 * PAGE);
}

TEST_F(buf, partial_commit_keeps_what_it_could_get)
{
	uint64_t done;

	pool_set_limit_ok(self->pool, 5 * PAGE);
	ASSERT_EQ(0, _buf_commit_partial(self->buf, 0, 8 * PAGE, &done));
	EXPECT_EQ(5 * PAGE, done);
	charged_ok(self->pool, 5 * PAGE);
	ASSERT_EQ(0, _buf_commit_partial(self->buf, 0, 8 * PAGE, &done));
	EXPECT_EQ(5 * PAGE, done);
	EXPECT_EQ(-ENOSPC,
		  _buf_commit_partial(self->buf, 5 * PAGE, 8 * PAGE, &done));
	charged_ok(self->pool, 5 * PAGE);
}

TEST_F(buf, commit_of_more_than_all_memory_leaves_nothing)
{
	int pool = pool_new(self->dev, KVPOOL_UNLIMITED);
	uint64_t bytes = 64ULL << 30;
	int buf = buf_new(pool, bytes);

	pool_set_limit_ok(pool, 8 * MIB);
	buf_commit_err(ENOSPC, buf, 0, bytes);
	charged_ok(pool, 0);
}

/* ---- RELEASE ------------------------------------------------------------- */

TEST_F(buf, release_gives_back_and_reads_as_zero_again)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);
	uint64_t done;

	memset(at + 2 * PAGE, 0x77, 2 * PAGE);
	ASSERT_EQ(0, _buf_release(self->buf, 2 * PAGE, PAGE, &done));
	EXPECT_EQ(PAGE, done);
	charged_ok(self->pool, PAGE);
	EXPECT_EQ(0x77, at[3 * PAGE]);
	buf_commit_ok(self->buf, 2 * PAGE, PAGE);
	EXPECT_TRUE(is_filled(at + 2 * PAGE, 0, PAGE));
}

TEST_F(buf, release_of_holes_gives_nothing_back)
{
	uint64_t done;

	ASSERT_EQ(0, _buf_release(self->buf, 8 * PAGE, 4 * PAGE, &done));
	EXPECT_EQ(0, done);
	ASSERT_EQ(0, _buf_release(self->buf, 0, BUF_BYTES, &done));
	EXPECT_EQ(2 * PAGE, done);
	charged_ok(self->pool, 0);
}

TEST_F(buf, a_touch_after_release_gets_a_new_page)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	memset(at + 2 * PAGE, 0x77, PAGE);
	buf_release_ok(self->buf, 0, BUF_BYTES);
	charged_ok(self->pool, 0);
	EXPECT_EQ(0, at[2 * PAGE]);
	charged_ok(self->pool, PAGE);
}

TEST_F(buf, release_of_a_part_of_a_huge_folio_keeps_the_rest)
{
	int pool = pool_new(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 4 * MIB);
	uint8_t *at = buf_map(buf, 4 * MIB, RW);

	buf_commit_ok(buf, 0, 2 * MIB);
	memset(at, 0x77, 2 * MIB);
	buf_release_ok(buf, PAGE, 3 * PAGE);
	EXPECT_TRUE(is_filled(at, 0x77, PAGE));
	EXPECT_TRUE(is_filled(at + 4 * PAGE, 0x77, 2 * MIB - 4 * PAGE));
	charged_ok(pool, 2 * MIB - 3 * PAGE);
	buf_commit_ok(buf, PAGE, 3 * PAGE);
	EXPECT_TRUE(is_filled(at + PAGE, 0, 3 * PAGE));
	charged_ok(pool, 2 * MIB);
}

TEST_F(buf, release_of_a_part_at_the_limit_zeroes_it_at_least)
{
	int pool = pool_new(self->dev, 2 * MIB);
	int buf = buf_new(pool, 2 * MIB);
	uint8_t *at = buf_map(buf, 2 * MIB, RW);

	buf_commit_ok(buf, 0, 2 * MIB);
	memset(at, 0x77, 2 * MIB);
	/* No copy of the rest fits: the pages stay, and read as zero. */
	buf_release_ok(buf, PAGE, PAGE);
	EXPECT_LE(charged(pool), 2 * MIB);
	EXPECT_TRUE(is_filled(at, 0x77, PAGE));
	EXPECT_TRUE(is_filled(at + 2 * PAGE, 0x77, 2 * MIB - 2 * PAGE));
	buf_commit_ok(buf, PAGE, PAGE);
	EXPECT_TRUE(is_filled(at + PAGE, 0, PAGE));
}

TEST_F(buf, release_of_parts_of_two_blocks_keeps_the_rest)
{
	enum { BLOCK = 64 << 10 };
	struct kvpool_pool_create args = pool_args(POOL_BYTES);
	uint64_t done;

	args.flags = 0;
	args.max_order = 4;
	pool_create_ok(self->dev, &args);
	int buf = buf_new(args.out_fd, 2 * BLOCK);
	uint8_t *at = buf_map(buf, 2 * BLOCK, RW);

	buf_commit_ok(buf, 0, 2 * BLOCK);
	memset(at, 0x77, 2 * BLOCK);
	ASSERT_EQ(0, _buf_release(buf, BLOCK / 2, BLOCK, &done));
	EXPECT_EQ(BLOCK, done);
	charged_ok(args.out_fd, BLOCK);
	EXPECT_TRUE(is_filled(at, 0x77, BLOCK / 2));
	EXPECT_TRUE(is_filled(at + 3 * BLOCK / 2, 0x77, BLOCK / 2));
	EXPECT_TRUE(is_filled(at + BLOCK / 2, 0, BLOCK));
}

/* ---- states -------------------------------------------------------------- */

TEST_F(buf, sealed_pages_are_neither_committed_nor_released)
{
	buf_seal_ok(self->buf, 4 * PAGE);
	buf_commit_err(EPERM, self->buf, 0, PAGE);
	buf_commit_err(EPERM, self->buf, 3 * PAGE, 2 * PAGE);
	buf_release_err(EPERM, self->buf, 2 * PAGE, PAGE);
	buf_release_err(EPERM, self->buf, 0, BUF_BYTES);
	charged_ok(self->pool, 2 * PAGE);
	buf_commit_ok(self->buf, 4 * PAGE, PAGE);
	buf_release_ok(self->buf, 4 * PAGE, PAGE);
	charged_ok(self->pool, 2 * PAGE);
}

TEST_F(buf, a_refused_release_takes_no_volatile_memory)
{
	int pool = pool_new(self->dev, 4 * MIB);
	int kept = buf_new(pool, 2 * MIB), buf = buf_new(pool, 2 * MIB);
	uint32_t survived;

	buf_commit_ok(kept, 0, 2 * MIB);
	buf_commit_ok(buf, 0, 2 * MIB);
	buf_seal_ok(buf, PAGE);
	buf_volatile_ok(kept);
	/* At its limit, the pool would take it to copy what stays. */
	buf_release_err(EPERM, buf, 0, 2 * PAGE);
	buf_willneed_ok(kept, &survived);
	EXPECT_EQ(1, survived);
}

TEST_F(buf, a_volatile_buffer_is_neither_committed_nor_released)
{
	uint64_t bytes;

	buf_volatile_ok(self->buf);
	buf_commit_err(EPERM, self->buf, 0, PAGE);
	buf_release_err(EPERM, self->buf, 2 * PAGE, PAGE);
	charged_ok(self->pool, 2 * PAGE);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	buf_commit_err(EPERM, self->buf, 0, PAGE);
	buf_release_err(EPERM, self->buf, 2 * PAGE, PAGE);
	charged_ok(self->pool, 0);
}

TEST_F(buf, recycled_pages_are_zero_for_the_next_owner)
{
	int pool = pool_new(self->dev, 4 * MIB);

	for (int i = 0; i < 4; i++) {
		int buf = buf_new(pool, 4 * MIB);
		uint8_t *at = buf_map(buf, 4 * MIB, RW);

		buf_commit_ok(buf, 0, 2 * MIB);
		EXPECT_TRUE(is_filled(at, 0, 4 * MIB));
		memset(at, 0x66, 4 * MIB);
		munmap(at, 4 * MIB);
		close(buf);
	}
}

/* ---- races --------------------------------------------------------------- */

struct toggler {
	int buf;
	bool is_stopped; /* atomic */
};

static void *toggle_nine_pages(void *arg)
{
	struct toggler *t = arg;

	while (!__atomic_load_n(&t->is_stopped, __ATOMIC_RELAXED)) {
		_buf_range(t->buf, KVPOOL_BUF_COMMIT, 0, 9 * PAGE, 0, NULL);
		_buf_release(t->buf, 0, 9 * PAGE, NULL);
	}
	return NULL;
}

/*
 * Of 24 pages, a neighbour takes and gives back nine all the time: while he has
 * them, a 64 KiB folio around page 8 does not fit, and single pages are made.
 * When he gives them back in the midst of that, it would fit: over the pages
 * that were made already.
 */
TEST_F(buf, commit_loses_no_page_when_memory_comes_free_meanwhile)
{
	int pool = pool_new(self->dev, 17 * PAGE),
	    buf = buf_new(pool, BUF_BYTES);
	struct toggler t = { .buf = buf_new(pool, 9 * PAGE) };
	long long end = harness_now_ms() + 3000;
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, toggle_nine_pages, &t));
	while (harness_now_ms() < end) {
		buf_commit_ok(buf, 8 * PAGE, 8 * PAGE);
		buf_release_ok(buf, 0, BUF_BYTES);
	}
	__atomic_store_n(&t.is_stopped, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	close(t.buf);
	close(buf);
	drained_ok(pool, 0);
}

TEST_HARNESS_MAIN
