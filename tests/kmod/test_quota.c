/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits and quotas are exact, whatever a client does: the smallest ones, who
 * pays, pages held by a pipe after they were released, and hostile children
 * under a sampler.
 */
#include "tests/kmod/kit.h"

enum { ROOM = 64 * PAGE };

FIXTURE(quota)
{
	int dev, pool; /* of single pages, open to everybody */
};

FIXTURE_SETUP(quota)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	args.flags = 0;
	args.mode = 0666;
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
}

FIXTURE_TEARDOWN(quota)
{
	close(self->pool);
	close(self->dev);
}

/* ---- the smallest -------------------------------------------------------- */

TEST_F(quota, a_limit_of_one_page)
{
	int buf = buf_new(self->pool, ROOM);
	uint8_t *at = buf_map(buf, ROOM, RW);

	pool_set_limit_ok(self->pool, PAGE);
	poke_ok(at, 1);
	poke_err(SIGBUS, at + PAGE);
	buf_commit_err(ENOSPC, buf, PAGE, PAGE);
	buf_commit_ok(buf, 0, PAGE);
	charged_ok(self->pool, PAGE);
	buf_release_ok(buf, 0, PAGE);
	poke_ok(at + PAGE, 1);
	poke_err(SIGBUS, at);
	charged_ok(self->pool, PAGE);
	EXPECT_EQ(PAGE, stat_of(self->pool).out_peak);
}

TEST_F(quota, a_quota_of_one_page_each)
{
	NEED_ROOT();
	pool_set_quota_ok(self->pool, ALICE, PAGE, 0);
	pool_set_quota_ok(self->pool, BOB, PAGE, 0);
	for (uid_t uid = ALICE; uid <= BOB; uid++) {
		pid_t pid = child_start_as(uid);

		if (pid == 0) {
			int buf = buf_new(self->pool, ROOM);
			uint8_t *at = buf_map(buf, ROOM, RW);

			buf_commit_ok(buf, 0, PAGE);
			buf_commit_err(EDQUOT, buf, 0, 2 * PAGE);
			poke_err(SIGBUS, at + PAGE);
			/* Another buffer is no way round. */
			buf_commit_err(EDQUOT, buf_new(self->pool, PAGE), 0,
				       PAGE);
			EXPECT_EQ(PAGE,
				  stat_of_uid(self->pool, uid).out_charged);
			child_end();
		}
		child_ok(pid);
	}
	buf_commit_ok(buf_new(self->pool, ROOM), 0, ROOM);
	charged_ok(self->pool, ROOM);
}

TEST_F(quota, a_default_quota_holds_for_each_uid_alone)
{
	struct kvpool_pool_create args = pool_args(MIB);
	struct turns turns = turns_new();

	NEED_ROOT();
	args.flags = 0;
	args.mode = 0666;
	args.quota = 2 * PAGE;
	pool_create_ok(self->dev, &args);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		int buf = buf_new(args.out_fd, ROOM);

		buf_commit_ok(buf, 0, 2 * PAGE);
		buf_commit_err(EDQUOT, buf, 2 * PAGE, PAGE);
		tell_parent(&turns);
		await_parent(&turns);
		child_end();
	}
	await_child(&turns);
	int buf = buf_new(args.out_fd, ROOM);

	buf_commit_ok(buf, 0, 2 * PAGE);
	buf_commit_err(EDQUOT, buf, 2 * PAGE, PAGE); /* root too */
	charged_ok(args.out_fd, 4 * PAGE);
	tell_child(&turns);
	child_ok(pid);
	charged_ok(args.out_fd, 2 * PAGE);
}

/* ---- who pays ------------------------------------------------------------ */

TEST_F(quota, the_owner_of_a_buffer_pays_for_its_guests)
{
	NEED_ROOT();
	int buf = buf_new(self->pool, ROOM);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		uint8_t *at = buf_map(buf, ROOM, RW);

		poke_ok(at, 1);
		buf_commit_ok(buf, PAGE, PAGE);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(0, stat_of_uid(self->pool, BOB).out_charged);
	EXPECT_EQ(2 * PAGE, stat_of_uid(self->pool, 0).out_charged);
}

TEST_F(quota, processes_of_a_uid_share_its_quota)
{
	NEED_ROOT();
	struct turns turns = turns_new();

	pool_set_quota_ok(self->pool, BOB, 2 * PAGE, 0);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		buf_commit_ok(buf_new(self->pool, ROOM), 0, 2 * PAGE);
		tell_parent(&turns);
		await_parent(&turns);
		child_end();
	}
	await_child(&turns);
	pid_t other = child_start_as(BOB);

	if (other == 0) {
		buf_commit_err(EDQUOT, buf_new(self->pool, ROOM), 0, PAGE);
		child_end();
	}
	child_ok(other);
	tell_child(&turns);
	child_ok(pid);
	EXPECT_EQ(0, stat_of_uid(self->pool, BOB).out_charged);
}

/* ---- pages that somebody holds ------------------------------------------- */

static void splice_pages(int pipe_end, uint8_t *at, size_t bytes)
{
	struct iovec iov = { at, bytes };

	ASSERT_EQ(bytes, vmsplice(pipe_end, &iov, 1, 0));
}

TEST_F(quota, a_page_in_a_pipe_stays_charged_after_release)
{
	int buf = buf_new(self->pool, ROOM), fds[2];
	uint8_t *at = buf_map(buf, ROOM, RW), copy[4 * PAGE];
	uint64_t done;

	ASSERT_EQ(0, pipe(fds));
	pool_set_limit_ok(self->pool, 4 * PAGE);
	pool_set_quota_ok(self->pool, geteuid(), 4 * PAGE, 0);
	buf_commit_ok(buf, 0, 4 * PAGE);
	memset(at, 0x71, 4 * PAGE);
	splice_pages(fds[1], at, 4 * PAGE);
	ASSERT_EQ(0, _buf_release(buf, 0, 4 * PAGE, &done));
	EXPECT_EQ(4 * PAGE, done);
	for (int i = 0; i < 10; i++, sleep_ms(20)) {
		struct kvpool_pool_stat s = stat_of(self->pool);

		EXPECT_EQ(4 * PAGE, s.out_charged);
		EXPECT_EQ(4 * PAGE, s.out_draining);
		EXPECT_EQ(0, s.out_resident);
		EXPECT_EQ(4 * PAGE,
			  stat_of_uid(self->pool, geteuid()).out_charged);
	}
	EXPECT_NE(0, _buf_commit(buf, 0, PAGE));
	poke_err(SIGBUS, at);
	/* Its bytes are nobody else's while it is held. */
	ASSERT_EQ(4 * PAGE, read(fds[0], copy, 4 * PAGE));
	EXPECT_TRUE(is_filled(copy, 0x71, 4 * PAGE));
	drained_ok(self->pool, 0);
	EXPECT_EQ(0, stat_of_uid(self->pool, geteuid()).out_charged);
	buf_commit_ok(buf, 0, 4 * PAGE);
	EXPECT_TRUE(is_filled(at, 0, 4 * PAGE));
}

TEST_F(quota, a_page_in_a_pipe_stays_charged_after_the_buffer)
{
	int buf = buf_new(self->pool, ROOM), fds[2];
	uint8_t *at = buf_map(buf, ROOM, RW), copy[PAGE];

	ASSERT_EQ(0, pipe(fds));
	buf_commit_ok(buf, 0, 4 * PAGE);
	memset(at, 0x71, 4 * PAGE);
	splice_pages(fds[1], at + PAGE, PAGE);
	munmap(at, ROOM);
	close(buf);
	charged_ok(self->pool, PAGE);
	EXPECT_EQ(PAGE, stat_of(self->pool).out_draining);
	EXPECT_EQ(0, stat_of(self->pool).out_nr_bufs);
	ASSERT_EQ(PAGE, read(fds[0], copy, PAGE));
	EXPECT_TRUE(is_filled(copy, 0x71, PAGE));
	drained_ok(self->pool, 0);
}

TEST_F(quota, a_page_in_a_pipe_outlives_the_pool)
{
	int pool = pool_new(self->dev, 8 * MIB), fds[2];
	int buf = buf_new(pool, 4 * MIB);
	uint8_t *at = buf_map(buf, 4 * MIB, RW), copy[PAGE];

	ASSERT_EQ(0, pipe(fds));
	memset(at, 0x71, 4 * MIB);
	splice_pages(fds[1], at + PAGE, PAGE);
	munmap(at, 4 * MIB);
	close(buf);
	close(pool);
	sleep_ms(100);
	ASSERT_EQ(PAGE, read(fds[0], copy, PAGE));
	EXPECT_TRUE(is_filled(copy, 0x71, PAGE));
}

TEST_F(quota, one_held_page_holds_its_huge_folio)
{
	int pool = pool_new(self->dev, 8 * MIB), fds[2];
	int buf = buf_new(pool, 4 * MIB);
	uint8_t *at = buf_map(buf, 4 * MIB, RW), copy[PAGE];
	struct kvpool_info info;

	info_ok(self->dev, &info);
	if (!info.out_huge_size)
		SKIP(return, "no huge folios here");
	ASSERT_EQ(0, pipe(fds));
	buf_commit_ok(buf, 0, 4 * MIB);
	splice_pages(fds[1], at + 5 * PAGE, PAGE);
	buf_release_ok(buf, 0, 4 * MIB);
	charged_ok(pool, 2 * MIB);
	EXPECT_EQ(2 * MIB, stat_of(pool).out_draining);
	ASSERT_EQ(PAGE, read(fds[0], copy, PAGE));
	drained_ok(pool, 0);
}

TEST_F(quota, a_part_of_a_held_folio_reads_zero_after_release)
{
	int pool = pool_new(self->dev, 8 * MIB), fds[2];
	int buf = buf_new(pool, 2 * MIB);
	uint8_t *at = buf_map(buf, 2 * MIB, RW);

	ASSERT_EQ(0, pipe(fds));
	buf_commit_ok(buf, 0, 2 * MIB);
	memset(at, 0x71, 2 * MIB);
	splice_pages(fds[1], at + 5 * PAGE, PAGE);
	buf_release_ok(buf, 8 * PAGE, 8 * PAGE);
	EXPECT_LE(charged(pool), 4 * MIB);
	buf_commit_ok(buf, 8 * PAGE, 8 * PAGE);
	EXPECT_TRUE(is_filled(at, 0x71, 8 * PAGE));
	EXPECT_TRUE(is_filled(at + 8 * PAGE, 0, 8 * PAGE));
	EXPECT_TRUE(is_filled(at + 16 * PAGE, 0x71, 2 * MIB - 16 * PAGE));
	/* A write shows up in the pipe, or the pipe has the old page. */
	close(fds[0]);
	close(fds[1]);
	munmap(at, 2 * MIB);
	close(buf);
	drained_ok(pool, 0);
}

TEST_F(quota, a_purge_cannot_be_used_to_escape)
{
	int buf = buf_new(self->pool, ROOM), fds[2];
	uint8_t *at = buf_map(buf, ROOM, RW);
	uint64_t bytes;

	ASSERT_EQ(0, pipe(fds));
	pool_set_limit_ok(self->pool, 4 * PAGE);
	buf_commit_ok(buf, 0, 4 * PAGE);
	splice_pages(fds[1], at, 2 * PAGE);
	buf_volatile_ok(buf);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	charged_ok(self->pool, 4 * PAGE);
	buf_commit_err(ENOSPC, buf_new(self->pool, PAGE), 0, PAGE);
}

/* ---- hostile children ---------------------------------------------------- */

enum { NR_BUFS = 4, BUF_BYTES = 32 * PAGE };

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Does what it can to hold more than it may; every refusal is fine. */
static void be_greedy(int pool, uint64_t seed)
{
	int bufs[NR_BUFS], fds[2];
	uint8_t *at[NR_BUFS], page[PAGE];

	if (pipe2(fds, O_NONBLOCK))
		_exit(HARNESS_FAIL);
	for (int i = 0; i < NR_BUFS; i++) {
		bufs[i] = buf_new(pool, BUF_BYTES);
		at[i] = buf_map(bufs[i], BUF_BYTES, RW);
	}
	for (;;) {
		uint64_t r = random_next(&seed);
		int i = r % NR_BUFS;
		uint64_t offset = (r >> 8) % 32 * PAGE;
		uint64_t len = (1 + (r >> 16) % 16) * PAGE;
		struct iovec iov = { at[i] + offset, PAGE };
		struct kvpool_buf_clone c;

		switch ((r >> 32) % 9) {
		case 0:
		case 1:
			_buf_commit_partial(bufs[i], offset, len, &len);
			break;
		case 2:
			poke_pages(at[i] + offset, PAGE, 1);
			break;
		case 3:
			_buf_release(bufs[i], offset, len, NULL);
			break;
		case 4:
			if (vmsplice(fds[1], &iov, 1, SPLICE_F_NONBLOCK) < 0)
				break;
			_buf_release(bufs[i], offset, PAGE, NULL);
			break;
		case 5:
			if (read(fds[0], page, PAGE) < 0)
				break;
			break;
		case 6:
			_buf_advise(bufs[i], KVPOOL_ADVICE_VOLATILE, NULL);
			_buf_advise(bufs[i], KVPOOL_ADVICE_WILLNEED, NULL);
			break;
		case 7:
			c = clone_args(pool, BUF_BYTES, BUF_BYTES);
			if (_buf_clone(bufs[i], &c) == 0)
				close(c.out_fd);
			break;
		case 8:
			munmap(at[i], BUF_BYTES);
			close(bufs[i]);
			bufs[i] = buf_new(pool, BUF_BYTES);
			at[i] = buf_map(bufs[i], BUF_BYTES, RW);
			break;
		}
	}
}

TEST_F(quota, hostile_children_never_get_a_byte_more)
{
	enum { NR = 4 };
	static const uid_t uids[NR] = { ALICE, BOB, BOB, CAROL };
	static const uint64_t limit = 100 * PAGE, quota = 40 * PAGE;
	long ms = env_number("TARN_TEST_QUOTA_MS", 4000), nr_samples = 0;
	uint64_t most = 0, most_bob = 0;
	pid_t pids[NR];

	NEED_ROOT();
	pool_set_limit_ok(self->pool, limit);
	for (uid_t uid = ALICE; uid <= CAROL; uid++)
		pool_set_quota_ok(self->pool, uid, quota, 0);
	for (int i = 0; i < NR; i++) {
		pids[i] = child_start_as(uids[i]);
		if (pids[i] == 0)
			be_greedy(self->pool, 0x9e3779b97f4a7c15 * (i + 1));
	}
	for (long long end = harness_now_ms() + ms; harness_now_ms() < end;
	     nr_samples++) {
		struct kvpool_pool_stat s = stat_of(self->pool);
		uid_t uid = ALICE + nr_samples % 3;
		uint64_t held = stat_of_uid(self->pool, uid).out_charged;

		EXPECT_LE(s.out_charged, limit);
		EXPECT_LE(held, quota);
		most = s.out_charged > most ? s.out_charged : most;
		if (uid == BOB)
			most_bob = held > most_bob ? held : most_bob;
	}
	for (int i = 0; i < NR; i++)
		child_kill(pids[i]);
	TH_LOG("%ld samples, at most %lu of %lu pages, one uid %lu of %lu",
	       nr_samples, (unsigned long)(most / PAGE),
	       (unsigned long)(limit / PAGE), (unsigned long)(most_bob / PAGE),
	       (unsigned long)(quota / PAGE));
	EXPECT_LE(stat_of(self->pool).out_peak, limit);
	/* The limits were met, so that the test could have failed. */
	EXPECT_GT(stat_of(self->pool).out_limit_hits, 0);
	drained_ok(self->pool, 0);
	for (uid_t uid = ALICE; uid <= CAROL; uid++)
		EXPECT_EQ(0, stat_of_uid(self->pool, uid).out_charged);
}

TEST_HARNESS_MAIN
