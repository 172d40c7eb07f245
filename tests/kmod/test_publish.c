/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUBLISH, UNPUBLISH, LOOKUP: whose keys are seen by whom, what a look-up may
 * map, who pays, and how long a publication lives.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 8 * PAGE };

FIXTURE(publish)
{
	int dev, pool; /* open to everybody, of single pages */
	int buf; /* BUF_BYTES; 4 pages of 0x31 are sealed, no other is there */
	uint8_t name[KVPOOL_NAME_SIZE];
};

FIXTURE_VARIANT(publish)
{
	uint32_t flags; /* of the pool */
};

FIXTURE_VARIANT_ADD(publish, own){ 0 };
FIXTURE_VARIANT_ADD(publish, shared){ KVPOOL_POOL_SHARED };

static int buf_of_four_sealed(int pool)
{
	int buf = buf_new(pool, BUF_BYTES);
	uint8_t *at = buf_map(buf, BUF_BYTES, RW);

	buf_commit_ok(buf, 0, 4 * PAGE);
	memset(at, 0x31, 4 * PAGE);
	munmap(at, BUF_BYTES);
	buf_seal_ok(buf, 4 * PAGE);
	return buf;
}

FIXTURE_SETUP(publish)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	args.flags = variant->flags;
	args.mode = 0666;
	name_pool(&args, "publish");
	memcpy(self->name, args.name, sizeof(self->name));
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
	self->buf = buf_of_four_sealed(self->pool);
}

FIXTURE_TEARDOWN(publish)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

/* ---- LOOKUP -------------------------------------------------------------- */

TEST_F(publish, a_look_up_finds_the_bytes)
{
	struct kvpool_buf_lookup found;

	buf_lookup_err(ENOENT, self->pool, 1);
	buf_publish_ok(self->buf, 1, 4 * PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_EQ(4 * PAGE, found.out_n);
	EXPECT_EQ(buf_stat_of(self->buf).id, found.out_id);
	EXPECT_EQ(geteuid(), found.out_uid);
	EXPECT_TRUE(is_cloexec(found.out_fd));
	uint8_t *at = buf_map(found.out_fd, 4 * PAGE, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x31, 4 * PAGE));
	EXPECT_EQ(KVPOOL_BUF_PUBLISHED, buf_stat_of(self->buf).out_state);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(2, buf_stat_of(self->buf).out_nr_open);
	buf_lookup_err(ENOENT, self->pool, 2);
}

TEST_F(publish, a_look_up_is_read_only)
{
	struct kvpool_buf_lookup found;
	uint8_t *at;

	buf_publish_ok(self->buf, 1, 4 * PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	buf_map_err(EACCES, found.out_fd, 0, PAGE, RW, MAP_SHARED);
	at = buf_map(found.out_fd, PAGE, PROT_READ);
	EXPECT_EQ(-1, mprotect(at, PAGE, RW));
	EXPECT_EQ(EACCES, errno);
	poke_err(SIGSEGV, at);
	buf_commit_err(EACCES, found.out_fd, 4 * PAGE, PAGE);
	buf_release_err(EACCES, found.out_fd, 0, PAGE);
	buf_seal_err(EACCES, found.out_fd, 4 * PAGE);
	buf_publish_err(EACCES, found.out_fd, 2, PAGE);
	buf_unpublish_err(EACCES, found.out_fd);
	buf_revoke_err(EACCES, found.out_fd);
	EXPECT_EQ(0x31, *at);
}

TEST_F(publish, a_look_up_maps_nothing_beyond_its_n)
{
	struct kvpool_mark marks[] = { mark_of(1, 1), mark_of(2, PAGE),
				       mark_of(3, 2 * PAGE + 1) };
	struct kvpool_buf_lookup found;
	uint8_t *at;

	ASSERT_EQ(0, _buf_publish(self->buf, marks, 3));
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_EQ(1, found.out_n);
	at = buf_map(found.out_fd, PAGE, PROT_READ);
	touch_ok(at);
	buf_map_err(EINVAL, found.out_fd, 0, 2 * PAGE, PROT_READ, MAP_SHARED);
	buf_map_err(EINVAL, found.out_fd, PAGE, PAGE, PROT_READ, MAP_SHARED);
	EXPECT_EQ(MAP_FAILED, mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
	buf_lookup_ok(self->pool, 2, &found);
	EXPECT_EQ(PAGE, found.out_n);
	buf_map_err(EINVAL, found.out_fd, PAGE, PAGE, PROT_READ, MAP_SHARED);
	buf_lookup_ok(self->pool, 3, &found);
	EXPECT_EQ(2 * PAGE + 1, found.out_n);
	at = buf_map(found.out_fd, 3 * PAGE, PROT_READ);
	touch_ok(at + 2 * PAGE);
	buf_map_err(EINVAL, found.out_fd, 0, 4 * PAGE, PROT_READ, MAP_SHARED);
}

TEST_F(publish, a_clone_of_a_look_up_takes_no_more_than_its_n)
{
	struct kvpool_buf_lookup found;
	struct kvpool_buf_clone c;

	buf_publish_ok(self->buf, 1, 2 * PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	c = clone_args(self->pool, 2 * PAGE + 1, BUF_BYTES);
	buf_clone_err(EINVAL, found.out_fd, &c);
	c = clone_args(self->pool, 2 * PAGE, BUF_BYTES);
	buf_clone_ok(found.out_fd, &c);
	EXPECT_EQ(2 * PAGE, c.out_shared);
	EXPECT_EQ(0, c.out_copied);
	charged_ok(self->pool, 4 * PAGE);
}

/* ---- PUBLISH: what it refuses -------------------------------------------- */

TEST_F(publish, refuses_bad_marks)
{
	struct kvpool_info info;
	struct kvpool_mark mark = mark_of(1, 0);

	info_ok(self->dev, &info);
	EXPECT_EQ(-EINVAL, _buf_publish(self->buf, &mark, 1));
	mark.n = 4 * PAGE + 1;
	EXPECT_EQ(-EPERM, _buf_publish(self->buf, &mark, 1));
	mark.n = ~0ULL;
	EXPECT_EQ(-EPERM, _buf_publish(self->buf, &mark, 1));
	mark.n = PAGE;
	EXPECT_EQ(-EINVAL, _buf_publish(self->buf, &mark, 0));
	EXPECT_EQ(-EFAULT, _buf_publish(self->buf, NULL, 1));
	EXPECT_EQ(-EFAULT, _buf_publish(self->buf, (void *)-4096, 1));
	EXPECT_EQ(-EINVAL,
		  _buf_publish(self->buf, &mark, info.out_max_marks + 1));
	EXPECT_EQ(-EINVAL, _buf_publish(self->buf, &mark, ~0U));
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_state);
	EXPECT_EQ(0, stat_of(self->pool).out_shared);
	buf_lookup_err(ENOENT, self->pool, 1);
}

TEST_F(publish, takes_all_marks_or_none)
{
	struct kvpool_mark marks[] = { mark_of(1, PAGE), mark_of(2, 2 * PAGE),
				       mark_of(3, 5 * PAGE) };
	uint8_t *at =
		mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvpool_mark *edge = (void *)(at + PAGE);

	EXPECT_EQ(-EPERM, _buf_publish(self->buf, marks, 3));
	marks[2].n = 0;
	EXPECT_EQ(-EINVAL, _buf_publish(self->buf, marks, 3));
	/* The third mark lies where no memory is. */
	memcpy(edge - 2, marks, 2 * sizeof(*marks));
	ASSERT_EQ(0, munmap(at + PAGE, PAGE));
	EXPECT_EQ(-EFAULT, _buf_publish(self->buf, edge - 2, 3));
	for (int key = 1; key <= 3; key++)
		buf_lookup_err(ENOENT, self->pool, key);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(0, stat_of_uid(self->pool, geteuid()).out_shared);
	ASSERT_EQ(0, _buf_publish(self->buf, edge - 2, 2));
	EXPECT_EQ(2, buf_stat_of(self->buf).out_nr_keys);
}

TEST_F(publish, takes_as_many_marks_as_it_says)
{
	struct kvpool_info info;
	struct kvpool_buf_lookup found;

	info_ok(self->dev, &info);
	struct kvpool_mark *marks = calloc(info.out_max_marks, sizeof(*marks));

	ASSERT_TRUE(marks != NULL);
	for (uint32_t i = 0; i < info.out_max_marks; i++)
		marks[i] = mark_of(i, 1 + i % (4 * PAGE));
	ASSERT_EQ(0, _buf_publish(self->buf, marks, info.out_max_marks));
	EXPECT_EQ(info.out_max_marks, buf_stat_of(self->buf).out_nr_keys);
	for (uint32_t i = 0; i < info.out_max_marks; i += 97) {
		buf_lookup_ok(self->pool, i, &found);
		EXPECT_EQ(marks[i].n, found.out_n);
		close(found.out_fd);
	}
	buf_unpublish_ok(self->buf);
	EXPECT_EQ(0, stat_of(self->pool).out_nr_keys);
	free(marks);
}

TEST_F(publish, the_same_key_twice_in_one_call)
{
	struct kvpool_mark marks[] = { mark_of(1, PAGE), mark_of(1, 2 * PAGE) };
	struct kvpool_buf_lookup found;
	int err = _buf_publish(self->buf, marks, 2);

	ASSERT_EQ(0, err);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_keys);
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_TRUE(found.out_n == PAGE || found.out_n == 2 * PAGE);
	buf_unpublish_ok(self->buf);
	buf_lookup_err(ENOENT, self->pool, 1);
	EXPECT_EQ(0, stat_of(self->pool).out_nr_keys);
}

TEST_F(publish, unsealed_bytes_are_refused)
{
	int buf = buf_new(self->pool, BUF_BYTES);

	buf_commit_ok(buf, 0, BUF_BYTES);
	buf_publish_err(EPERM, buf, 1, PAGE);
	buf_volatile_ok(self->buf);
	buf_publish_err(EPERM, self->buf, 1, PAGE);
}

TEST_F(publish, unpublish_takes_no_marks)
{
	struct kvpool_mark mark = mark_of(1, PAGE);
	struct kvpool_buf_publish args = { .size = sizeof(args),
					   .marks = (uintptr_t)&mark };

	buf_unpublish_err(ENOENT, self->buf);
	buf_publish_ok(self->buf, 1, PAGE);
	EXPECT_EQ(-EINVAL, kit_call(self->buf, KVPOOL_BUF_UNPUBLISH, &args));
	args.marks = 0;
	args.nr_marks = 1;
	EXPECT_EQ(-EINVAL, kit_call(self->buf, KVPOOL_BUF_UNPUBLISH, &args));
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_keys);
	buf_unpublish_ok(self->buf);
	buf_unpublish_err(ENOENT, self->buf);
}

/* ---- keys ---------------------------------------------------------------- */

TEST_F(publish, a_key_published_again_leads_to_the_new_buffer)
{
	int other = buf_of_four_sealed(self->pool);
	struct kvpool_buf_lookup found;

	buf_publish_ok(self->buf, 1, PAGE);
	buf_publish_ok(self->buf, 2, PAGE);
	buf_publish_ok(other, 1, 2 * PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_EQ(buf_stat_of(other).id, found.out_id);
	EXPECT_EQ(2 * PAGE, found.out_n);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(2, stat_of(self->pool).out_nr_keys);
	/* The old buffer keeps its other key. */
	buf_lookup_ok(self->pool, 2, &found);
	EXPECT_EQ(buf_stat_of(self->buf).id, found.out_id);
}

TEST_F(publish, a_buffer_whose_last_key_was_replaced)
{
	int other = buf_of_four_sealed(self->pool);

	buf_publish_ok(self->buf, 1, PAGE);
	buf_publish_ok(other, 1, PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_keys);
	/* Nobody can find it any longer: it must not stay for ever. */
	close(self->buf);
	charged_ok(self->pool, 4 * PAGE);
}

TEST_F(publish, more_keys_can_be_added)
{
	struct kvpool_buf_lookup found;

	buf_publish_ok(self->buf, 1, PAGE);
	buf_publish_ok(self->buf, 2, 2 * PAGE);
	buf_publish_ok(self->buf, 1, 3 * PAGE);
	EXPECT_EQ(2, buf_stat_of(self->buf).out_nr_keys);
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_EQ(3 * PAGE, found.out_n);
	EXPECT_EQ(4 * PAGE, stat_of_uid(self->pool, geteuid()).out_shared);
}

TEST_F(publish, keys_of_other_uids)
{
	struct kvpool_buf_lookup found;

	NEED_ROOT();
	buf_publish_ok(self->buf, 1, PAGE);
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		if (variant->flags & KVPOOL_POOL_SHARED) {
			buf_lookup_ok(self->pool, 1, &found);
			EXPECT_EQ(0, found.out_uid);
			EXPECT_EQ(PAGE, found.out_n);
			/* The own key comes first, and replaces no other's. */
			int mine = buf_of_four_sealed(self->pool);

			buf_publish_ok(mine, 1, 3 * PAGE);
			buf_lookup_ok(self->pool, 1, &found);
			EXPECT_EQ(BOB, found.out_uid);
			EXPECT_EQ(3 * PAGE, found.out_n);
		} else {
			buf_lookup_err(ENOENT, self->pool, 1);
		}
		child_end();
	}
	child_ok(pid);
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_EQ(0, found.out_uid);
	EXPECT_EQ(PAGE, found.out_n);
}

TEST_F(publish, a_published_buffer_is_not_taken_over)
{
	NEED_ROOT();
	buf_publish_ok(self->buf, 1, PAGE);
	/* Bob, who was handed a writable descriptor. */
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		buf_publish_err(EPERM, self->buf, 2, PAGE);
		buf_unpublish_err(EPERM, self->buf);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_publisher);
}

TEST_F(publish, a_holder_publishes_under_his_own_uid)
{
	uint64_t before = stat_of_uid(self->pool, 0).out_charged;

	NEED_ROOT();
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		buf_publish_ok(self->buf, 1, PAGE);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(BOB, buf_stat_of(self->buf).out_publisher);
	EXPECT_EQ(4 * PAGE, stat_of_uid(self->pool, BOB).out_shared);
	EXPECT_EQ(0, stat_of_uid(self->pool, 0).out_shared);
	EXPECT_EQ(before - 4 * PAGE, stat_of_uid(self->pool, 0).out_charged);
	charged_ok(self->pool, 4 * PAGE);
	/* The owner may withdraw it; until the pages go, Bob pays. */
	buf_unpublish_ok(self->buf);
	EXPECT_EQ(KVPOOL_NO_UID, buf_stat_of(self->buf).out_publisher);
	EXPECT_EQ(4 * PAGE, stat_of_uid(self->pool, BOB).out_charged);
	EXPECT_EQ(before - 4 * PAGE, stat_of_uid(self->pool, 0).out_charged);
	close(self->buf);
	EXPECT_EQ(0, stat_of_uid(self->pool, BOB).out_charged);
	EXPECT_EQ(0, stat_of_uid(self->pool, BOB).out_shared);
	EXPECT_EQ(0, stat_of_uid(self->pool, 0).out_charged);
	charged_ok(self->pool, 0);
}

/* ---- charge -------------------------------------------------------------- */

TEST_F(publish, the_charge_moves_and_stays_moved)
{
	uid_t me = geteuid();

	pool_set_quota_ok(self->pool, me, 4 * PAGE, 4 * PAGE);
	int other = buf_new(self->pool, PAGE);

	buf_commit_err(EDQUOT, other, 0, PAGE);
	EXPECT_EQ(0, stat_of_uid(self->pool, me).out_shared);
	buf_publish_ok(self->buf, 1, PAGE);
	EXPECT_EQ(4 * PAGE, stat_of_uid(self->pool, me).out_shared);
	EXPECT_EQ(4 * PAGE, stat_of(self->pool).out_shared);
	charged_ok(self->pool, 4 * PAGE);
	/* The private quota is free again. */
	buf_commit_ok(other, 0, PAGE);
	/* Withdrawn, it might not fit the private quota: it stays. */
	buf_unpublish_ok(self->buf);
	EXPECT_EQ(4 * PAGE, stat_of_uid(self->pool, me).out_shared);
	charged_ok(self->pool, 5 * PAGE);
	pool_set_quota_ok(self->pool, me, KVPOOL_UNLIMITED, 4 * PAGE);
	buf_publish_err(EDQUOT, buf_of_four_sealed(self->pool), 3, PAGE);
	/* Published again it pays no second time. */
	buf_publish_ok(self->buf, 1, PAGE);
	EXPECT_EQ(4 * PAGE, stat_of_uid(self->pool, me).out_shared);
	buf_unpublish_ok(self->buf);
	close(self->buf);
	EXPECT_EQ(0, stat_of_uid(self->pool, me).out_shared);
	EXPECT_EQ(0, stat_of(self->pool).out_shared);
}

TEST_F(publish, at_the_shared_quota_nothing_is_published)
{
	pool_set_quota_ok(self->pool, geteuid(), KVPOOL_UNLIMITED,
			  4 * PAGE - 1);
	buf_publish_err(EDQUOT, self->buf, 1, PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_keys);
	EXPECT_EQ(0, stat_of(self->pool).out_shared);
	buf_lookup_err(ENOENT, self->pool, 1);
	pool_set_quota_ok(self->pool, geteuid(), KVPOOL_UNLIMITED, 4 * PAGE);
	buf_publish_ok(self->buf, 1, PAGE);
	buf_publish_ok(self->buf, 2, PAGE); /* pays once */
	buf_publish_err(EDQUOT, buf_of_four_sealed(self->pool), 3, PAGE);
}

TEST_F(publish, what_is_committed_later_counts_as_shared)
{
	uid_t me = geteuid();

	buf_publish_ok(self->buf, 1, PAGE);
	int err = _buf_commit(self->buf, 4 * PAGE, PAGE);
	struct kvpool_pool_stat s = stat_of_uid(self->pool, me);

	ASSERT_EQ(0, err);
	EXPECT_EQ(5 * PAGE, s.out_charged);
	charged_ok(self->pool, 5 * PAGE);
	buf_unpublish_ok(self->buf);
	close(self->buf);
	charged_ok(self->pool, 0);
	EXPECT_EQ(0, stat_of_uid(self->pool, me).out_charged);
	EXPECT_EQ(0, stat_of_uid(self->pool, me).out_shared);
}

/* ---- life ---------------------------------------------------------------- */

TEST_F(publish, a_release_beside_the_published_bytes_moves_no_charge)
{
	int pool = pool_new(self->dev, POOL_BYTES);
	int buf = buf_new(pool, 2 * MIB);
	uint8_t *at = buf_map(buf, 2 * MIB, RW);

	buf_commit_ok(buf, 0, 2 * MIB);
	memset(at, 0x31, 2 * MIB);
	munmap(at, 2 * MIB);
	buf_seal_ok(buf, MIB);
	buf_publish_ok(buf, 9, MIB);
	EXPECT_EQ(2 * MIB, stat_of(pool).out_shared);
	buf_release_ok(buf, MIB, MIB);
	/* One folio holds both, and it was paid as shared. */
	EXPECT_EQ(charged(pool), stat_of(pool).out_shared);
	at = buf_map(buf, 2 * MIB, PROT_READ);
	EXPECT_TRUE(is_filled(at, 0x31, MIB));
	EXPECT_TRUE(is_filled(at + MIB, 0, MIB));
}

TEST_F(publish, outlives_the_publisher)
{
	struct kvpool_buf_lookup found;

	NEED_ROOT();
	pid_t pid = child_start();

	if (pid == 0) {
		buf_publish_ok(buf_of_four_sealed(self->pool), 9, 2 * PAGE);
		raise(SIGKILL);
	}
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	buf_lookup_ok(self->pool, 9, &found);
	uint8_t *at = buf_map(found.out_fd, 2 * PAGE, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x31, 2 * PAGE));
	EXPECT_EQ(1, buf_stat_of(found.out_fd).out_nr_votes);
	charged_ok(self->pool, 8 * PAGE);
}

TEST_F(publish, dies_with_the_last_descriptor_of_the_pool)
{
	int again;

	buf_publish_ok(self->buf, 1, PAGE);
	pool_open_ok(self->dev, self->name, KVPOOL_READ, &again);
	close(self->pool);
	close(self->buf);
	/* Held by this one. */
	struct kvpool_buf_lookup found;

	buf_lookup_ok(again, 1, &found);
	close(again);
	/* Held by a buffer now. */
	pool_open_ok(self->dev, self->name, KVPOOL_READ, &again);
	close(found.out_fd);
	buf_lookup_ok(again, 1, &found);
	close(found.out_fd);
	close(again);
	pool_open_err(ENOENT, self->dev, self->name, KVPOOL_READ);
}

TEST_F(publish, unpublish_leaves_it_to_those_who_have_it)
{
	struct kvpool_buf_lookup found;
	uint8_t *at;

	buf_publish_ok(self->buf, 1, PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	at = buf_map(found.out_fd, PAGE, PROT_READ);
	buf_unpublish_ok(self->buf);
	buf_lookup_err(ENOENT, self->pool, 1);
	EXPECT_EQ(0x31, *at);
	close(self->buf);
	charged_ok(self->pool, 4 * PAGE);
	uint8_t *again = buf_map(found.out_fd, PAGE, PROT_READ);

	EXPECT_EQ(0x31, *again);
	munmap(at, PAGE);
	munmap(again, PAGE);
	close(found.out_fd);
	charged_ok(self->pool, 0);
}

TEST_F(publish, without_a_vote_it_is_volatile_but_there)
{
	struct kvpool_buf_lookup found;

	buf_publish_ok(self->buf, 1, PAGE);
	close(self->buf);
	EXPECT_EQ(4 * PAGE, stat_of(self->pool).out_volatile);
	charged_ok(self->pool, 4 * PAGE);
	buf_lookup_ok(self->pool, 1, &found);
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
	uint8_t *at = buf_map(found.out_fd, PAGE, PROT_READ);

	EXPECT_EQ(0x31, *at);
}

/* ---- races --------------------------------------------------------------- */

struct finder {
	int pool;
	volatile bool is_stopped;
	long nr_found, nr_missed;
};

static void *look_up_on(void *arg)
{
	struct finder *finder = arg;

	while (!finder->is_stopped) {
		struct kvpool_buf_lookup found;
		int err = _buf_lookup(finder->pool, 1, &found);

		if (err) {
			EXPECT_EQ(-ENOENT, err);
			finder->nr_missed++;
			continue;
		}
		uint8_t *at = buf_map(found.out_fd, found.out_n, PROT_READ);

		/* Who found it has it whole. */
		EXPECT_EQ(0x31, at[0]);
		EXPECT_EQ(0x31, at[found.out_n - 1]);
		munmap(at, found.out_n);
		close(found.out_fd);
		finder->nr_found++;
	}
	return NULL;
}

TEST_F(publish, look_ups_race_with_publish_and_unpublish)
{
	struct finder finder = { .pool = self->pool };
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, look_up_on, &finder));
	for (int i = 0; i < 200; i++) {
		buf_publish_ok(self->buf, 1, 4 * PAGE);
		if (i % 4 == 0)
			sleep_ms(1);
		buf_unpublish_ok(self->buf);
	}
	finder.is_stopped = true;
	pthread_join(thread, NULL);
	EXPECT_GT(finder.nr_found + finder.nr_missed, 0);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open);
	charged_ok(self->pool, 4 * PAGE);
	EXPECT_EQ(0, stat_of(self->pool).out_nr_keys);
}

TEST_HARNESS_MAIN
