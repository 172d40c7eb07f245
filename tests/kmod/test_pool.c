/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a pool that are not about one buffer: STAT, SET_LIMIT,
 * SET_QUOTA, TRIM, SECRET, BUF_NEXT, and its events by poll() and read().
 */
#include "tests/kmod/kit.h"

/* ---- STAT ---------------------------------------------------------------- */

TEST_F(pool, stat_of_an_empty_pool)
{
	struct kvpool_pool_stat s = stat_of(self->pool);

	EXPECT_EQ(POOL_BYTES, s.out_limit);
	EXPECT_EQ(KVPOOL_UNLIMITED, s.out_quota);
	EXPECT_EQ(KVPOOL_UNLIMITED, s.out_shared_quota);
	EXPECT_EQ(0, s.out_charged);
	EXPECT_EQ(0, s.out_volatile);
	EXPECT_EQ(0, s.out_draining);
	EXPECT_EQ(0, s.out_peak);
	EXPECT_EQ(0, s.out_poisoned);
	EXPECT_EQ(0, s.out_nr_bufs);
	EXPECT_EQ(0, s.out_nr_keys);
	EXPECT_EQ(0, s.out_faults);
	EXPECT_EQ(0, s.out_limit_hits);
}

TEST_F(pool, stat_follows_a_buffer)
{
	int buf = buf_new(self->pool, 8 * PAGE);
	uint8_t *at = buf_map(buf, 8 * PAGE, RW);
	struct kvpool_pool_stat s;

	buf_commit_ok(buf, 0, 3 * PAGE);
	s = stat_of(self->pool);
	EXPECT_EQ(1, s.out_nr_bufs);
	EXPECT_EQ(3 * PAGE, s.out_resident);
	EXPECT_EQ(3 * PAGE, s.out_charged);
	EXPECT_EQ(3 * PAGE, s.out_peak);
	EXPECT_EQ(1, s.out_commits);
	poke_ok(at + 5 * PAGE, 1);
	s = stat_of(self->pool);
	EXPECT_GE(s.out_faults, 1);
	EXPECT_GE(s.out_resident, 4 * PAGE);
	buf_release_ok(buf, 0, 8 * PAGE);
	s = stat_of(self->pool);
	EXPECT_EQ(0, s.out_charged);
	EXPECT_EQ(1, s.out_releases);
	EXPECT_GE(s.out_peak, 4 * PAGE);
	buf_commit_ok(buf, 0, PAGE);
	buf_seal_ok(buf, PAGE);
	EXPECT_EQ(1, stat_of(self->pool).out_seals);
	buf_publish_ok(buf, 1, PAGE);
	s = stat_of(self->pool);
	EXPECT_EQ(1, s.out_publishes);
	EXPECT_EQ(1, s.out_nr_keys);
	EXPECT_EQ(PAGE, s.out_shared);
	munmap(at, 8 * PAGE);
	buf_unpublish_ok(buf);
	close(buf);
	s = stat_of(self->pool);
	EXPECT_EQ(0, s.out_nr_bufs);
	EXPECT_EQ(0, s.out_nr_keys);
	EXPECT_EQ(0, s.out_charged);
}

TEST_F(pool, stat_counts_look_ups_and_hits)
{
	struct kvpool_buf_lookup found;
	int buf = buf_sealed(self->pool, PAGE, 1);

	buf_publish_ok(buf, 1, PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	buf_lookup_err(ENOENT, self->pool, 2);
	EXPECT_EQ(2, stat_of(self->pool).out_lookups);
	EXPECT_EQ(1, stat_of(self->pool).out_hits);
}

TEST_F(pool, stat_counts_huge_folios)
{
	struct kvpool_info info;
	int buf = buf_new(self->pool, 4 * MIB);

	info_ok(self->dev, &info);
	if (!info.out_huge_size)
		SKIP(return, "no huge folios here");
	buf_commit_ok(buf, 0, 4 * MIB);
	EXPECT_EQ(4 * MIB, stat_of(self->pool).out_huge);
	EXPECT_EQ(4 * MIB, buf_stat_of(buf).out_huge);
	buf_create_ok(self->pool, 4 * MIB, KVPOOL_BUF_SMALL, &buf, NULL);
	buf_commit_ok(buf, 0, 4 * MIB);
	EXPECT_EQ(0, buf_stat_of(buf).out_huge);
	EXPECT_EQ(4 * MIB, stat_of(self->pool).out_huge);
	EXPECT_EQ(8 * MIB, stat_of(self->pool).out_resident);
}

TEST_F(pool, an_order_of_zero_gives_single_pages)
{
	int pool = pool_new_small(self->dev, 8 * MIB);
	int buf = buf_new(pool, 4 * MIB);
	uint8_t *at = buf_map(buf, 4 * MIB, RW);

	poke_ok(at, 1);
	charged_ok(pool, PAGE);
	poke_ok(at + 2 * MIB, 1);
	charged_ok(pool, 2 * PAGE);
	buf_commit_ok(buf, 0, 4 * MIB);
	EXPECT_EQ(0, stat_of(pool).out_huge);
	charged_ok(pool, 4 * MIB);
}

TEST_F(pool, stat_of_a_uid_shows_its_account)
{
	uid_t me = geteuid();
	int buf = buf_new(self->pool, 4 * PAGE);

	buf_commit_ok(buf, 0, 4 * PAGE);
	pool_set_quota_ok(self->pool, BOB, 5 * PAGE, 7 * PAGE);
	struct kvpool_pool_stat s = stat_of_uid(self->pool, me);

	EXPECT_EQ(4 * PAGE, s.out_charged);
	EXPECT_EQ(0, s.out_shared);
	EXPECT_EQ(KVPOOL_UNLIMITED, s.out_quota);
	buf_seal_ok(buf, 4 * PAGE);
	buf_publish_ok(buf, 1, PAGE);
	s = stat_of_uid(self->pool, me);
	EXPECT_EQ(4 * PAGE, s.out_shared);
	s = stat_of_uid(self->pool, BOB);
	EXPECT_EQ(0, s.out_charged);
	EXPECT_EQ(5 * PAGE, s.out_quota);
	EXPECT_EQ(7 * PAGE, s.out_shared_quota);
	s = stat_of_uid(self->pool, CAROL);
	EXPECT_EQ(0, s.out_charged);
	EXPECT_EQ(KVPOOL_UNLIMITED, s.out_quota);
}

TEST_F(pool, stat_of_many_uids_keeps_no_record_of_them)
{
	enum { NR = 40000 };
	long long before, after;

	before = file_number("/proc/meminfo", "Slab:");
	for (uint32_t uid = 100000; uid < 100000 + NR; uid++)
		EXPECT_EQ(0, stat_of_uid(self->pool, uid).out_charged);
	after = file_number("/proc/meminfo", "Slab:");
	/* In KiB. Who may only read cannot make the kernel remember. */
	EXPECT_LE(after - before, NR * 50 / 1024);
}

/* ---- SET_LIMIT, SET_QUOTA ------------------------------------------------ */

TEST_F(pool, a_limit_can_move_up_and_down)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 16 * PAGE);

	pool_set_limit_ok(pool, 4 * PAGE);
	buf_commit_ok(buf, 0, 4 * PAGE);
	buf_commit_err(ENOSPC, buf, 4 * PAGE, PAGE);
	pool_set_limit_ok(pool, 5 * PAGE);
	buf_commit_ok(buf, 4 * PAGE, PAGE);
	pool_set_limit_ok(pool, KVPOOL_UNLIMITED);
	buf_commit_ok(buf, 5 * PAGE, PAGE);
	EXPECT_EQ(1, stat_of(pool).out_limit_hits);
}

TEST_F(pool, a_limit_of_zero_is_refused)
{
	pool_set_limit_err(EINVAL, self->pool, 0);
	EXPECT_EQ(POOL_BYTES, stat_of(self->pool).out_limit);
}

TEST_F(pool, a_limit_below_what_is_held_stands_but_says_busy)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 16 * PAGE);

	buf_commit_ok(buf, 0, 4 * PAGE);
	pool_set_limit_err(EBUSY, pool, 2 * PAGE);
	EXPECT_EQ(2 * PAGE, stat_of(pool).out_limit);
	charged_ok(pool, 4 * PAGE);
	buf_commit_err(ENOSPC, buf, 4 * PAGE, PAGE);
	buf_release_ok(buf, 0, 3 * PAGE);
	buf_commit_ok(buf, 0, PAGE);
	buf_commit_err(ENOSPC, buf, PAGE, PAGE);
}

TEST_F(pool, a_lower_limit_takes_volatile_memory)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 4 * PAGE), kept;

	kept = buf_new(pool, 4 * PAGE);
	buf_commit_ok(buf, 0, 4 * PAGE);
	buf_commit_ok(kept, 0, 4 * PAGE);
	buf_volatile_ok(buf);
	pool_set_limit_ok(pool, 4 * PAGE);
	charged_ok(pool, 4 * PAGE);
	EXPECT_EQ(4 * PAGE, buf_stat_of(kept).out_resident);
	EXPECT_EQ(0, buf_stat_of(buf).out_resident);
}

TEST_F(pool, quotas_of_zero_and_of_everything)
{
	uid_t me = geteuid();
	int buf = buf_new(self->pool, 4 * PAGE);

	pool_set_quota_ok(self->pool, me, 0, 0);
	buf_commit_err(EDQUOT, buf, 0, PAGE);
	pool_set_quota_ok(self->pool, me, KVPOOL_UNLIMITED, KVPOOL_UNLIMITED);
	buf_commit_ok(buf, 0, PAGE);
	pool_set_quota_ok(self->pool, me, 0, 0);
	charged_ok(self->pool, PAGE);
	buf_commit_ok(buf, 0, PAGE); /* asks for nothing new */
	buf_commit_err(EDQUOT, buf, 0, 2 * PAGE);
}

TEST_F(pool, a_quota_of_nobody_is_refused)
{
	pool_set_quota_err(EINVAL, self->pool, KVPOOL_NO_UID, PAGE, PAGE);
}

TEST_F(pool, only_owner_and_resource_admin_move_limits)
{
	struct kvpool_pool_create args = pool_args(MIB);
	uint64_t bytes;

	NEED_ROOT();
	args.mode = 0666;
	name_pool(&args, "manage");
	pool_create_ok(self->dev, &args);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		int fd;

		pool_open_ok(self->dev, args.name, KVPOOL_WRITE, &fd);
		pool_set_limit_err(EPERM, fd, 2 * MIB);
		pool_set_quota_err(EPERM, fd, BOB, MIB, MIB);
		EXPECT_EQ(-EPERM, _pool_trim(fd, PAGE, &bytes));
		EXPECT_EQ(MIB, stat_of(fd).out_limit);
		EXPECT_EQ(KVPOOL_UNLIMITED, stat_of_uid(fd, BOB).out_quota);
		child_end();
	}
	child_ok(pid);
	/* An owner without any capability may. */
	pid = child_start_as(ALICE);
	if (pid == 0) {
		int fd = pool_new(self->dev, MIB);

		pool_set_limit_ok(fd, 2 * MIB);
		pool_set_quota_ok(fd, BOB, MIB, MIB);
		EXPECT_EQ(0, _pool_trim(fd, PAGE, &bytes));
		child_end();
	}
	child_ok(pid);
}

/* ---- TRIM, SECRET -------------------------------------------------------- */

TEST_F(pool, trim_takes_whole_volatile_buffers_oldest_first)
{
	int bufs[3];
	uint64_t bytes;

	for (int i = 0; i < 3; i++) {
		bufs[i] = buf_new(self->pool, 4 * PAGE);
		buf_commit_ok(bufs[i], 0, 4 * PAGE);
	}
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	EXPECT_EQ(0, bytes);
	buf_volatile_ok(bufs[1]);
	buf_volatile_ok(bufs[0]);
	EXPECT_EQ(8 * PAGE, stat_of(self->pool).out_volatile);
	ASSERT_EQ(0, _pool_trim(self->pool, 1, &bytes));
	EXPECT_EQ(4 * PAGE, bytes);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE | KVPOOL_BUF_PURGED,
		  buf_stat_of(bufs[1]).out_state);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(bufs[0]).out_state);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	EXPECT_EQ(4 * PAGE, bytes);
	charged_ok(self->pool, 4 * PAGE);
	EXPECT_EQ(2, stat_of(self->pool).out_purges);
	EXPECT_EQ(8 * PAGE, stat_of(self->pool).out_purged);
}

TEST_F(pool, trim_of_nothing_takes_nothing)
{
	int buf = buf_new(self->pool, 4 * PAGE);
	uint64_t bytes;

	buf_commit_ok(buf, 0, PAGE);
	buf_volatile_ok(buf);
	ASSERT_EQ(0, _pool_trim(self->pool, 0, &bytes));
	EXPECT_EQ(0, bytes);
	charged_ok(self->pool, PAGE);
}

TEST_F(pool, trim_gives_the_reserve_back)
{
	struct kvpool_pool_create args = pool_args(16 * MIB);
	struct kvpool_info info;
	uint64_t bytes;

	info_ok(self->dev, &info);
	if (!info.out_huge_size)
		SKIP(return, "no huge folios here");
	args.reserve = 4 * MIB;
	pool_create_ok(self->dev, &args);
	for (int i = 0; i < 500 && charged(args.out_fd) != 4 * MIB; i++)
		sleep_ms(20);
	sleep_ms(100); /* what was charged last comes a little later */
	ASSERT_EQ(0, _pool_trim(args.out_fd, KVPOOL_UNLIMITED, &bytes));
	EXPECT_EQ(4 * MIB, bytes);
}

TEST_F(pool, the_secret_stays_and_differs_between_pools)
{
	uint8_t a[KVPOOL_KEY_SIZE], again[KVPOOL_KEY_SIZE], b[KVPOOL_KEY_SIZE];
	uint8_t poison[KVPOOL_KEY_SIZE], zero[KVPOOL_KEY_SIZE] = { 0 };

	memset(poison, POISON_BYTE, sizeof(poison));
	ASSERT_EQ(0, _pool_secret(self->pool, a));
	ASSERT_EQ(0, _pool_secret(self->pool, again));
	ASSERT_EQ(0, _pool_secret(pool_new(self->dev, MIB), b));
	EXPECT_MEMEQ(a, again, sizeof(a));
	EXPECT_NE(0, memcmp(a, b, sizeof(a)));
	EXPECT_NE(0, memcmp(a, poison, sizeof(a)));
	EXPECT_NE(0, memcmp(a, zero, sizeof(a)));
}

/* ---- BUF_NEXT ------------------------------------------------------------ */

static int nr_shown(int pool)
{
	struct kvpool_buf_stat s;
	uint64_t last = 0;
	int nr = 0, err;

	while ((err = _buf_next(pool, last, &s)) == 0) {
		EXPECT_GT(s.id, last);
		if (s.id <= last)
			break;
		last = s.id;
		nr++;
	}
	EXPECT_EQ(-ENOENT, err);
	return nr;
}

TEST_F(pool, next_walks_over_the_buffers)
{
	struct kvpool_buf_stat s;
	uint64_t a, b;
	int fd = buf_new_id(self->pool, 4 * PAGE, &a);

	EXPECT_NE(0, a);
	buf_new_id(self->pool, 8 * PAGE, &b);
	EXPECT_EQ(2, nr_shown(self->pool));
	buf_commit_ok(fd, 0, PAGE);
	ASSERT_EQ(0, _buf_next(self->pool, 0, &s));
	EXPECT_EQ(a, s.id);
	EXPECT_EQ(4 * PAGE, s.out_bytes);
	EXPECT_EQ(PAGE, s.out_resident);
	EXPECT_EQ(geteuid(), s.out_uid);
	EXPECT_EQ(KVPOOL_NO_UID, s.out_publisher);
	EXPECT_EQ(1, s.out_nr_open);
	EXPECT_EQ(1, s.out_nr_votes);
	ASSERT_EQ(0, _buf_next(self->pool, a, &s));
	EXPECT_EQ(b, s.id);
	EXPECT_EQ(8 * PAGE, s.out_bytes);
	EXPECT_EQ(-ENOENT, _buf_next(self->pool, b, &s));
	EXPECT_EQ(-ENOENT, _buf_next(self->pool, ~0ULL, &s));
	close(fd);
	EXPECT_EQ(1, nr_shown(self->pool));
}

TEST_F(pool, next_shows_others_to_the_pool_owner_only)
{
	struct kvpool_pool_create args = pool_args(MIB);
	struct turns turns = turns_new();
	int fd;

	NEED_ROOT();
	args.mode = 0666;
	name_pool(&args, "shown");
	pool_create_ok(self->dev, &args);
	buf_new(args.out_fd, PAGE);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		pool_open_ok(self->dev, args.name, KVPOOL_WRITE, &fd);
		EXPECT_EQ(0, nr_shown(fd));
		buf_new(fd, PAGE);
		EXPECT_EQ(1, nr_shown(fd));
		tell_parent(&turns);
		await_parent(&turns);
		child_end();
	}
	await_child(&turns);
	EXPECT_EQ(2, nr_shown(args.out_fd));
	tell_child(&turns);
	child_ok(pid);
	EXPECT_EQ(1, nr_shown(args.out_fd));
}

/* ---- events -------------------------------------------------------------- */

TEST_F(pool, no_event_waits_at_first)
{
	struct pollfd pfd = { .fd = self->pool, .events = POLLIN };
	struct kvpool_event_record record;

	EXPECT_EQ(0, poll(&pfd, 1, 0));
	fcntl(self->pool, F_SETFL, O_NONBLOCK);
	EXPECT_EQ(-1, read(self->pool, &record, sizeof(record)));
	EXPECT_EQ(EAGAIN, errno);
}

TEST_F(pool, a_record_is_read_as_a_whole)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	struct kvpool_event_record records[2];
	void *nowhere =
		mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pool_set_limit_ok(pool, PAGE);
	buf_commit_err(ENOSPC, buf_new(pool, PAGE * 2), 0, 2 * PAGE);
	EXPECT_EQ(-1, read(pool, records, sizeof(*records) - 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(pool, records, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(pool, nowhere, sizeof(*records)));
	EXPECT_EQ(EFAULT, errno);
	/* Room for one and a half: one comes. */
	EXPECT_EQ(sizeof(*records),
		  read(pool, records, sizeof(*records) * 3 / 2));
	EXPECT_NE(0, records[0].kind);
}

TEST_F(pool, a_refused_allocation_is_an_event_with_a_count)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 16 * PAGE);

	pool_set_limit_ok(pool, PAGE);
	for (int i = 0; i < 3; i++)
		buf_commit_err(ENOSPC, buf, 0, 2 * PAGE);
	/* Taking and giving back on the way there may have meant pressure. */
	struct kvpool_event_record record =
		event_of(pool, KVPOOL_EVENT_LIMIT, 1000);

	EXPECT_EQ(KVPOOL_EVENT_LIMIT, record.kind);
	EXPECT_GE(record.count, 3);
	EXPECT_EQ(0, event_next(pool, 0).kind);
}

TEST_F(pool, a_record_of_several_is_of_the_last_one)
{
	int pool = pool_new(self->dev, PAGE);
	struct kvpool_event_record record;
	uint64_t first_id, last_id;
	int first = buf_new_id(pool, 2 * PAGE, &first_id);
	int last = buf_new_id(pool, 3 * PAGE, &last_id);

	buf_commit_err(ENOSPC, first, 0, 2 * PAGE);
	buf_commit_err(ENOSPC, last, 0, 3 * PAGE);
	record = event_of(pool, KVPOOL_EVENT_LIMIT, 1000);
	EXPECT_EQ(2, record.count);
	EXPECT_EQ(3 * PAGE, record.bytes);
	EXPECT_EQ(last_id, record.id);
	EXPECT_NE(first_id, record.id);
}

TEST_F(pool, crossing_seven_eighths_is_an_event)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 16 * PAGE);
	struct kvpool_event_record record;

	pool_set_limit_ok(pool, 16 * PAGE);
	/* Exactly 7/8 is not above it. */
	buf_commit_ok(buf, 0, 14 * PAGE);
	EXPECT_EQ(0, event_next(pool, 0).kind);
	buf_commit_ok(buf, 14 * PAGE, PAGE);
	record = event_next(pool, 1000);
	EXPECT_EQ(KVPOOL_EVENT_PRESSURE, record.kind);
	EXPECT_EQ(1, record.count);
	EXPECT_EQ(15 * PAGE, record.bytes);
	/* Staying above is no news; coming back up is. */
	buf_commit_ok(buf, 15 * PAGE, PAGE);
	EXPECT_EQ(0, event_next(pool, 0).kind);
	for (int i = 0; i < 2; i++) {
		buf_release_ok(buf, 0, 8 * PAGE);
		buf_commit_ok(buf, 0, 8 * PAGE);
	}
	record = event_next(pool, 1000);
	EXPECT_EQ(KVPOOL_EVENT_PRESSURE, record.kind);
	EXPECT_EQ(2, record.count);
}

TEST_F(pool, every_open_description_has_its_own_queue)
{
	struct kvpool_pool_create args = pool_args(PAGE);
	int a, b;

	args.flags = 0;
	name_pool(&args, "queues");
	pool_create_ok(self->dev, &args);
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &a);
	pool_open_ok(self->dev, args.name, KVPOOL_READ, &b);
	buf_commit_err(ENOSPC, buf_new(args.out_fd, 2 * PAGE), 0, 2 * PAGE);
	EXPECT_EQ(2 * PAGE, event_of(a, KVPOOL_EVENT_LIMIT, 1000).bytes);
	EXPECT_EQ(1, event_of(b, KVPOOL_EVENT_LIMIT, 1000).count);
	EXPECT_EQ(1, event_of(args.out_fd, KVPOOL_EVENT_LIMIT, 1000).count);
	EXPECT_EQ(0, event_of(a, KVPOOL_EVENT_LIMIT, 0).kind);
}

TEST_F(pool, what_the_queue_cannot_hold_is_counted_as_lost)
{
	enum { NR = 1000 };
	struct kvpool_event_record record;
	unsigned int nr_purged = 0, nr_lost = 0;
	uint64_t bytes;

	for (int i = 0; i < NR; i++) {
		int buf = buf_new(self->pool, PAGE);

		buf_commit_ok(buf, 0, PAGE);
		buf_volatile_ok(buf);
		ASSERT_EQ(0, _pool_trim(self->pool, PAGE, &bytes));
		close(buf);
	}
	while ((record = event_next(self->pool, 0)).kind) {
		if (record.kind == KVPOOL_EVENT_PURGED)
			nr_purged++;
		else if (record.kind == KVPOOL_EVENT_LOST)
			nr_lost += record.count;
	}
	EXPECT_GT(nr_purged, 0);
	EXPECT_GT(nr_lost, 0);
	EXPECT_EQ(NR, nr_purged + nr_lost);
}

static void *wait_for_event(void *arg)
{
	struct kvpool_event_record record = { 0 };
	ssize_t nr = read(*(int *)arg, &record, sizeof(record));

	return (void *)(uintptr_t)(nr == sizeof(record) ? record.kind : 99);
}

TEST_F(pool, a_blocking_read_waits_for_the_event)
{
	int pool = pool_new_small(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 2 * PAGE);
	pthread_t thread;
	void *kind;

	pool_set_limit_ok(pool, PAGE);
	ASSERT_EQ(0, pthread_create(&thread, NULL, wait_for_event, &pool));
	sleep_ms(200);
	buf_commit_err(ENOSPC, buf, 0, 2 * PAGE);
	ASSERT_EQ(0, pthread_join(thread, &kind));
	EXPECT_TRUE((uintptr_t)kind == KVPOOL_EVENT_LIMIT ||
		    (uintptr_t)kind == KVPOOL_EVENT_PRESSURE);
}

TEST_F(pool, a_killed_reader_goes)
{
	pid_t pid = child_start();

	if (pid == 0) {
		wait_for_event(&self->pool);
		child_end();
	}
	sleep_ms(100);
	kill(pid, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
}

TEST_HARNESS_MAIN
