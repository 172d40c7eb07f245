/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend where others are at work: kernels that still read what was
 * given up, owners with quotas, processes that take the device's memory, calls
 * of the driver that fail, threads.
 */
#include "tests/engine/cuda_kit.h"

/* A buffer of @nr committed pages that a kernel of @stream uses, and a fence behind it. */
static struct kvpool_buf *used_buf(struct kvpool *pool, cuda_stream stream,
				   uint64_t nr)
{
	struct kvpool_buf *buf = create_ok(pool, 256);

	ASSERT_EQ(0, commit(buf, 0, nr));
	standin_launch(stream, kvpool_buf_addr(buf), nr * PAGE);
	ASSERT_EQ(0, kvpool_fence(pool, stream));
	return buf;
}

/* ---- work of the device ---- */

TEST_F(cuda, released_pages_stay_mapped_under_the_work_that_reads_them)
{
	struct kvpool_buf *buf = used_buf(self->pool, self->stream, 32);

	settle(self->pool);
	ASSERT_EQ(0, kvpool_buf_release(buf, 0, 32 * PAGE));
	settle(self->pool);
	EXPECT_TRUE(mapped_pages(buf) >= 32);
	EXPECT_EQ(0, stat_of(self->pool).resident_bytes);
	expect_exact(self->pool);
	kvpool_trim(self->pool, UINT64_MAX);
	EXPECT_TRUE(mapped_pages(buf) >= 32);
	standin_finish(self->stream);
	/* Nobody calls: the library's own thread unmaps. */
	EVENTUALLY(mapped_pages(buf) == 0);
	settle(self->pool);
	expect_exact(self->pool);
	EXPECT_EQ(0, standin_counts().nr_violations);
	kvpool_buf_put(buf);
	/* All of a buffer at once is no different. */
	buf = used_buf(self->pool, self->stream, 256);
	ASSERT_EQ(0, kvpool_buf_release(buf, 0, kvpool_buf_size(buf)));
	EXPECT_EQ(256, mapped_pages(buf));
	standin_finish(self->stream);
	EVENTUALLY(mapped_pages(buf) == 0);
	kvpool_buf_put(buf);
}

TEST_F(cuda, work_before_the_release_is_all_that_it_waits_for)
{
	struct kvpool_buf *buf = used_buf(self->pool, self->stream, 16);
	cuda_stream later = standin_stream();

	ASSERT_EQ(0, kvpool_buf_release(buf, 0, 16 * PAGE));
	ASSERT_EQ(0, kvpool_fence(self->pool, later));
	standin_finish(self->stream);
	EVENTUALLY(standin_mapped_bytes(kvpool_buf_addr(buf), 16 * PAGE) == 0);
	standin_finish(later);
	standin_stream_end(later);
	kvpool_buf_put(buf);
}

TEST_F(cuda, a_buffer_put_drains_and_is_nobodys_until_then)
{
	struct kvpool_buf *buf = used_buf(self->pool, self->stream, 32);
	void *addr = kvpool_buf_addr(buf);

	settle(self->pool);
	kvpool_buf_put(buf);
	settle(self->pool);
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ(0, stat.resident_bytes);
	EXPECT_GE(stat.draining_bytes, 32 * PAGE);
	EXPECT_EQ(0, stat.nr_buffers);
	expect_exact(self->pool);
	buf = create_ok(self->pool, 256);
	EXPECT_TRUE(addr != kvpool_buf_addr(buf));
	kvpool_buf_put(buf);
	standin_finish(self->stream);
	EVENTUALLY(stat_of(self->pool).draining_bytes == 0);
	/* Then it is kept, still mapped, for whoever comes next. */
	buf = create_ok(self->pool, 256);
	EXPECT_TRUE(addr == kvpool_buf_addr(buf));
	EXPECT_TRUE(mapped_pages(buf) >= 32);
	expect_exact(self->pool);
	kvpool_buf_put(buf);
}

static void *finish_later(void *stream)
{
	nap_ms(50);
	standin_finish(stream);
	return NULL;
}

TEST_F(cuda, a_commit_waits_for_work_that_holds_what_it_needs)
{
	struct kvpool_buf *old = used_buf(self->pool, self->stream, 200);
	struct kvpool_buf *buf = create_ok(self->pool, 256);
	pthread_t thread;

	kvpool_buf_put(old);
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	EXPECT_EQ(0, commit(buf, 0, 256));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, standin_counts().nr_violations);
	settle(self->pool);
	expect_exact(self->pool);
	kvpool_buf_put(buf);
}

TEST_F_TIMEOUT(cuda, work_that_never_ends_is_an_error_not_a_hang, 60)
{
	struct kvpool_buf *old = used_buf(self->pool, self->stream, 200);
	struct kvpool_buf *buf = create_ok(self->pool, 256);

	kvpool_buf_put(old);
	EXPECT_EQ(-ENOSPC, commit(buf, 0, 256));
	EXPECT_EQ(0, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, standin_counts().nr_violations);
	/* What fits beside it is had at once. */
	EXPECT_EQ(0, commit(buf, 0, 16));
	kvpool_buf_put(buf);
}

TEST_F(cuda, work_that_holds_nothing_is_not_waited_for)
{
	struct kvpool_buf *buf = used_buf(self->pool, self->stream, 200);
	struct kvpool_buf *other;
	struct timespec before, after;

	ASSERT_EQ(0, kvpool_set_quota(self->pool, 0, 240 * PAGE, UINT64_MAX));
	settle(self->pool);
	clock_gettime(CLOCK_MONOTONIC, &before);
	EXPECT_EQ(-EDQUOT, commit(buf, 200, 50));
	ASSERT_EQ(0, kvpool_set_quota(self->pool, 0, UINT64_MAX, UINT64_MAX));
	other = create_ok(self->pool, 256);
	EXPECT_EQ(-ENOSPC, commit(other, 0, 100));
	clock_gettime(CLOCK_MONOTONIC, &after);
	EXPECT_LT(after.tv_sec - before.tv_sec, 2);
	kvpool_buf_put(other);
	kvpool_buf_put(buf);
}

static cuda_status slow_map(const char *name)
{
	if (!strcmp(name, "cuMemMap"))
		usleep(300);
	return CUDA_OK;
}

TEST_F(cuda, what_is_put_is_free_though_pages_came_ahead_of_it)
{
	struct kvpool_buf *buf = create_ok(self->pool, 256);

	standin.fail = slow_map;
	for (int i = 0; i < 40; i++) {
		struct kvpool_buf *old = create_ok(self->pool, 256);

		ASSERT_EQ(0, commit(old, 0, 8));
		if (i % 2)
			usleep(200);
		EXPECT_EQ(1, buf_stat_of(old).nr_refs);
		kvpool_buf_put(old);
		EXPECT_EQ(0, stat_of(self->pool).resident_bytes);
		EXPECT_EQ(1, stat_of(self->pool).nr_buffers);
		/* All of the pool can be had at once. */
		ASSERT_EQ(0, commit(buf, 0, 256));
		ASSERT_EQ(0, kvpool_buf_release(buf, 0, 256 * PAGE));
		/* Else spare pages are what there may be, and none comes ahead. */
		kvpool_trim(self->pool, UINT64_MAX);
	}
	EXPECT_EQ(0, stat_of(self->pool).purges);
	kvpool_buf_put(buf);
}

TEST_F(cuda, pages_that_are_being_made_ahead_give_way)
{
	struct kvpool_buf *a = create_ok(self->pool, 256),
			  *b = create_ok(self->pool, 256);

	standin.fail = slow_map;
	for (int i = 0; i < 40; i++) {
		ASSERT_EQ(0, commit(a, 0, 8));
		if (i % 2)
			usleep(100);
		ASSERT_EQ(0, commit(b, 0, 256 - 8));
		ASSERT_EQ(0, kvpool_buf_release(b, 0, 248 * PAGE));
		ASSERT_EQ(0, kvpool_buf_release(a, 0, 8 * PAGE));
		kvpool_trim(self->pool, UINT64_MAX);
	}
	kvpool_buf_put(a);
	kvpool_buf_put(b);
}

TEST_F(cuda, volatile_memory_is_not_purged_under_work)
{
	struct kvpool_buf *old = used_buf(self->pool, self->stream, 200);
	struct kvpool_buf *buf = create_ok(self->pool, 256);
	bool survived = true;
	pthread_t thread;

	ASSERT_EQ(0, kvpool_buf_advise(old, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	EXPECT_EQ(0, commit(buf, 0, 200));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, standin_counts().nr_violations);
	ASSERT_EQ(0, kvpool_buf_advise(old, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	settle(self->pool);
	expect_exact(self->pool);
	kvpool_buf_put(old);
	kvpool_buf_put(buf);
}

TEST_F(cuda, a_clone_begins_after_the_fences)
{
	struct kvpool_buf *buf = used_buf(self->pool, self->stream, 2), *copy;
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	memset(bytes_of(buf), 0x5a, 2 * PAGE);
	ASSERT_EQ(0, kvpool_buf_clone(buf, PAGE + 100, 4 * PAGE, 0, &copy));
	EXPECT_EQ(0, standin_work_left(self->stream));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, memcmp(bytes_of(buf), bytes_of(copy), PAGE + 100));
	kvpool_buf_put(copy);
	kvpool_buf_put(buf);
}

TEST_F(cuda, fences_are_bounded)
{
	for (int i = 0; i < 1024; i++)
		ASSERT_EQ(0, kvpool_fence(self->pool, self->stream));
	EXPECT_EQ(-EBUSY, kvpool_fence(self->pool, self->stream));
	standin_finish(self->stream);
	for (int i = 0; i < 3000; i++) {
		ASSERT_EQ(0, kvpool_fence(self->pool, NULL));
		standin_finish(self->stream);
	}
	EXPECT_LE(standin_counts().events, 1024);
}

TEST_F(cuda, what_drained_obeys_a_limit_lowered_meanwhile)
{
	struct kvpool_buf *buf = used_buf(self->pool, self->stream, 60);

	kvpool_buf_put(buf);
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 10 * PAGE));
	EXPECT_GE(stat_of(self->pool).draining_bytes, 60 * PAGE);
	standin_finish(self->stream);
	EVENTUALLY(stat_of(self->pool).draining_bytes == 0);
	expect_exact(self->pool);
}

/* ---- quotas ---- */

static struct kvpool_buf *owned(struct kvpool *pool, uid_t uid)
{
	struct kvpool_buf *buf = NULL;

	ASSERT_EQ(0, kvpool_buf_create(pool, 256 * PAGE, uid, &buf));
	return buf;
}

/* Pages of the driver under the buffers. */
static uint64_t held(struct kvpool_buf *a, struct kvpool_buf *b)
{
	settle(a->pool);
	return mapped_pages(a) + mapped_pages(b);
}

TEST_F(cuda, a_quota_is_exact_with_what_comes_ahead)
{
	struct kvpool_buf *a = owned(self->pool, 1000),
			  *b = owned(self->pool, 1000);

	ASSERT_EQ(0, kvpool_set_quota(self->pool, 1000, 50 * PAGE, UINT64_MAX));
	for (int n = 0; n < 40; n++) {
		ASSERT_EQ(0, commit(a, n, 1));
		EXPECT_TRUE(held(a, b) <= 50);
	}
	/* Pages that only came ahead make room for what is asked for. */
	EXPECT_EQ(0, commit(b, 0, 1));
	EXPECT_TRUE(held(a, b) <= 50);
	EXPECT_EQ(-EDQUOT, commit(b, 1, 20));
	EXPECT_TRUE(held(a, b) <= 50);
	EXPECT_EQ(41 * PAGE, stat_of(self->pool).resident_bytes);
	/* Somebody else's are not touched, nor is he stopped. */
	struct kvpool_buf *other = owned(self->pool, 1001);

	EXPECT_EQ(0, commit(other, 0, 60));
	settle(self->pool);
	uint64_t held_by_other = mapped_pages(other);

	EXPECT_GT(held_by_other, 60);
	EXPECT_EQ(-EDQUOT, commit(b, 1, 20));
	EXPECT_EQ(held_by_other, mapped_pages(other));
	kvpool_buf_put(other);
	settle(self->pool);
	expect_exact(self->pool);
	kvpool_buf_put(a);
	EXPECT_EQ(0, commit(b, 1, 40));
	EXPECT_TRUE(mapped_pages(b) <= 50);
	kvpool_buf_put(b);
}

TEST_F(cuda, a_larger_handle_is_not_taken_past_the_quota)
{
	struct kvpool_buf *a = owned(self->pool, 1000);

	ASSERT_EQ(0, kvpool_set_quota(self->pool, 1000, 50 * PAGE, UINT64_MAX));
	ASSERT_EQ(0, commit(a, 0, 40));
	/* Rounded up to handles of 4 pages it would be 52. */
	ASSERT_EQ(0, commit(a, 40, 9));
	EXPECT_TRUE(mapped_pages(a) <= 50);
	kvpool_buf_put(a);
}

TEST_F(cuda, what_drains_counts_against_the_quota)
{
	struct kvpool_buf *b = owned(self->pool, 1000), *a;

	ASSERT_EQ(0, kvpool_set_quota(self->pool, 1000, 50 * PAGE, UINT64_MAX));
	a = owned(self->pool, 1000);
	ASSERT_EQ(0, commit(a, 0, 40));
	standin_launch(self->stream, kvpool_buf_addr(a), 40 * PAGE);
	ASSERT_EQ(0, kvpool_fence(self->pool, self->stream));
	kvpool_buf_put(a);
	EXPECT_EQ(-EDQUOT, commit(b, 0, 20));
	standin_finish(self->stream);
	EXPECT_EQ(0, commit(b, 0, 50));
	settle(self->pool);
	EXPECT_EQ(50, mapped_pages(b));
	kvpool_buf_put(b);
}

TEST_F(cuda, an_owner_makes_room_by_his_own_volatile_memory)
{
	struct kvpool_buf *a = owned(self->pool, 1000),
			  *b = owned(self->pool, 1000),
			  *other = owned(self->pool, 1001);
	bool survived = false;

	ASSERT_EQ(0, kvpool_set_quota(self->pool, 1000, 50 * PAGE, UINT64_MAX));
	ASSERT_EQ(0, commit(other, 0, 30));
	ASSERT_EQ(0, kvpool_buf_advise(other, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, commit(a, 0, 40));
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(0, commit(b, 0, 30));
	ASSERT_EQ(0, kvpool_buf_advise(other, KVPOOL_WILLNEED, &survived));
	EXPECT_TRUE(survived);
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	kvpool_buf_put(a);
	kvpool_buf_put(b);
	kvpool_buf_put(other);
}

TEST_F(cuda, publishing_moves_the_charge_within_a_quota_of_its_own)
{
	struct kvpool_mark mark = { key_of(1), 8 * PAGE };
	struct kvpool_buf *a = owned(self->pool, 1000),
			  *b = owned(self->pool, 1000);

	ASSERT_EQ(0, kvpool_set_quota(self->pool, 1000, 50 * PAGE, 40 * PAGE));
	ASSERT_EQ(0, commit(a, 0, 32));
	ASSERT_EQ(0, kvpool_buf_seal(a, 32 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(a, &mark, 1));
	settle(self->pool);
	EXPECT_EQ(0, commit(b, 0, 48));
	ASSERT_EQ(0, kvpool_buf_seal(b, 48 * PAGE));
	mark.key = key_of(2);
	EXPECT_EQ(-EDQUOT, kvpool_buf_publish(b, &mark, 1));
	/* Refused before anything was protected. */
	bytes_of(b)[0] = 1;
	EXPECT_EQ(1, stat_of(self->pool).nr_keys);
	EXPECT_EQ(-EDQUOT, commit(b, 48, 10));
	/* Taken back, it is private again, and more than that account may have. */
	ASSERT_EQ(0, kvpool_buf_unpublish(a));
	EXPECT_EQ(-EDQUOT, commit(b, 100, 1));
	kvpool_buf_put(a);
	EXPECT_EQ(0, commit(b, 100, 1));
	kvpool_buf_put(b);
}

TEST(quotas_of_the_options_are_everyones)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool_options options = options_of(256, 0);
	struct kvpool *pool;

	options.quota_bytes = 10 * PAGE;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	struct kvpool_buf *a = owned(pool, 1), *b = owned(pool, 2);

	EXPECT_EQ(0, commit(a, 0, 10));
	EXPECT_EQ(-EDQUOT, commit(a, 10, 1));
	EXPECT_EQ(0, commit(b, 0, 10));
	EXPECT_EQ(-EDQUOT, commit(b, 10, 1));
	EXPECT_EQ(-EINVAL, kvpool_set_quota(pool, (uid_t)-1, 1, 1));
	ASSERT_EQ(0, kvpool_set_quota(pool, 2, UINT64_MAX, UINT64_MAX));
	EXPECT_EQ(0, commit(b, 10, 100));
	kvpool_buf_put(a);
	kvpool_buf_put(b);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

/* ---- memory that others take ---- */

TEST_F(cuda, memory_taken_by_another_process_is_an_error_and_comes_back)
{
	struct kvpool_buf *a = create_ok(self->pool, 256),
			  *b = create_ok(self->pool, 256);
	bool survived = true;

	ASSERT_EQ(0, commit(a, 0, 32));
	settle(self->pool);
	/* All that is left of the 512 pages is 40, less what is spare here. */
	standin_steal((512 - 32 - 40) * PAGE);
	EXPECT_EQ(-ENOMEM, commit(b, 0, 64));
	EXPECT_EQ(32 * PAGE, stat_of(self->pool).resident_bytes);
	expect_exact(self->pool);
	/* Spare pages are given up for it, then volatile ones. */
	EXPECT_EQ(0, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(0, commit(b, 0, 30));
	settle(self->pool);
	ASSERT_EQ(0, kvpool_buf_release(b, 0, 30 * PAGE));
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(0, commit(b, 0, 60));
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	settle(self->pool);
	expect_exact(self->pool);
	standin_steal(-(512 - 32 - 40) * (int64_t)PAGE);
	EXPECT_EQ(0, commit(a, 0, 100));
	kvpool_buf_put(a);
	kvpool_buf_put(b);
}

/* ---- calls that fail ---- */

/* Growth, fences, windows, volatile memory, the limit; whatever fails, the books are right. */
static void live_a_little(struct kvpool *pool, cuda_stream stream)
{
	struct kvpool_buf *a, *b;

	if (kvpool_buf_create(pool, 256 * PAGE, 1, &a))
		return;
	if (kvpool_buf_create_stride(pool, 64 * PAGE, 3 * PAGE, 2, &b)) {
		kvpool_buf_put(a);
		return;
	}
	for (int n = 0; n < 24; n += 3) {
		if (commit(a, n, 3))
			continue;
		memset(bytes_of(a) + n * PAGE, n, 64);
		standin_launch(stream, bytes_of(a) + n * PAGE, 3 * PAGE);
		if (kvpool_fence(pool, stream))
			standin_finish(
				stream); /* what has no fence ends first */
	}
	kvpool_buf_release(a, 0, 8 * PAGE);
	if (!commit(b, 0, 20))
		bytes_of(b)[19 * PAGE] = 1;
	standin_finish(stream);
	if (!commit(b, 20, 20))
		bytes_of(b)[39 * PAGE] = 1;
	kvpool_buf_advise(a, KVPOOL_VOLATILE, NULL);
	if (!commit(b, 40, 20))
		bytes_of(b)[59 * PAGE] = 1;
	kvpool_buf_advise(a, KVPOOL_WILLNEED, NULL);
	if (!commit(a, 0, 2))
		bytes_of(a)[0] = 1;
	kvpool_buf_put(b);
	kvpool_trim(pool, UINT64_MAX);
	kvpool_buf_put(a);
}

TEST_TIMEOUT(every_nth_call_fails_and_nothing_is_left, 120)
{
	use_standin(GRANULE, 256 << 20);
	cuda_stream stream = standin_stream();
	int nth = 0;

	standin.fail = fail_nth;
	calls_left = -1;
	for (;; nth++) {
		struct kvpool *pool = open_growing(64, 16);

		failure = nth % 2 ? CUDA_OUT_OF_MEMORY : 999;
		has_failed = false;
		calls_left = nth;
		live_a_little(pool, stream);
		calls_left = -1;
		settle(pool);
		expect_exact(pool);
		EXPECT_EQ(0, stat_of(pool).resident_bytes);
		EXPECT_EQ(0, stat_of(pool).draining_bytes);
		EXPECT_EQ(0, stat_of(pool).nr_buffers);
		EXPECT_EQ(0, stat_of(pool).virtual_bytes);
		/* The pool works on as if nothing had been. */
		struct kvpool_buf *buf = create_ok(pool, 64);

		EXPECT_EQ(0, commit(buf, 0, 64));
		memset(bytes_of(buf), 1, 64);
		kvpool_buf_put(buf);
		kvpool_put(pool);
		EXPECT_TRUE(standin_is_clean())
		{
			TH_LOG("after failure %d", nth);
		}
		if (!has_failed)
			break;
	}
	TH_LOG("%d calls failed in turn", nth);
	EXPECT_GT(nth, 60);
	standin_stream_end(stream);
}

static cuda_status fail_map(const char *name)
{
	return strcmp(name, "cuMemMap") ? CUDA_OK : fail_nth(name);
}

TEST(a_commit_that_failed_puts_kept_handles_back)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool *pool = open_ok(64, 16);
	struct kvpool_buf *buf = create_ok(pool, 16);

	standin.fail = fail_map;
	failure = 999;
	calls_left = -1;
	for (int nth = 0; nth < 8; nth++) {
		ASSERT_EQ(0, commit(buf, 0, 8));
		ASSERT_EQ(0, kvpool_buf_release(buf, 0, 8 * PAGE));
		EXPECT_EQ(8 * PAGE, stat_of(pool).spare_bytes);
		calls_left = nth;
		EXPECT_EQ(-EIO, commit(buf, 0, 8));
		calls_left = -1;
		EXPECT_EQ(8 * PAGE, stat_of(pool).spare_bytes);
		expect_exact(pool);
		EXPECT_EQ(0, standin_counts().mappings);
	}
	EXPECT_EQ(8, standin_counts().creates);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

static cuda_status fail_unmap(const char *name)
{
	return strcmp(name, "cuMemUnmap") ? CUDA_OK : fail_nth(name);
}

TEST(what_a_purge_left_behind_can_be_written_again)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool *pool = open_ok(8, 0);
	struct kvpool_buf *buf = create_ok(pool, 4),
			  *other = create_ok(pool, 8);
	struct kvpool_mark mark = { key_of(1), 4 * PAGE };
	bool survived = true;

	calls_left = -1;
	failure = 999;
	standin.fail = fail_unmap;
	ASSERT_EQ(0, commit(buf, 0, 4));
	ASSERT_EQ(0, kvpool_buf_seal(buf, 4 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_VOLATILE, NULL));
	/* The second page stays, with the protection that all of them had. */
	calls_left = 1;
	ASSERT_EQ(0, commit(other, 0, 6));
	calls_left = -1;
	expect_exact(pool);
	EXPECT_EQ(1, mapped_pages(buf));
	kvpool_buf_put(other);
	ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	ASSERT_EQ(0, commit(buf, 0, 4));
	memset(bytes_of(buf), 1, 4 * PAGE);
	expect_exact(pool);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

static atomic_bool is_lost;

static cuda_status fail_all(const char *name)
{
	(void)name;
	return is_lost ? failure : CUDA_OK;
}

/* Whatever the pool is at: errors, and an end. What the driver had is the driver's. */
static void lose_device(cuda_status status)
{
	use_standin(GRANULE, 1 << 30);
	standin.fail = fail_all;
	struct kvpool *pool = open_growing(256, 64);
	cuda_stream stream = standin_stream();
	struct kvpool_buf *a = used_buf(pool, stream, 20),
			  *b = used_buf(pool, stream, 20), *copy;

	kvpool_buf_put(b);
	b = create_ok(pool, 64);
	ASSERT_EQ(0, commit(b, 0, 30));
	failure = status;
	is_lost = true;
	EXPECT_EQ(-EIO, commit(a, 100, 10));
	EXPECT_EQ(-EIO, kvpool_fence(pool, stream));
	EXPECT_EQ(-EIO, kvpool_buf_seal(a, 1));
	EXPECT_EQ(-EIO, kvpool_buf_clone(a, PAGE, PAGE, 0, &copy));
	EXPECT_EQ(0, kvpool_buf_release(a, 5 * PAGE, 5 * PAGE));
	kvpool_trim(pool, UINT64_MAX);
	kvpool_buf_put(a);
	EXPECT_EQ(30 * PAGE, stat_of(pool).resident_bytes);
	kvpool_buf_put(b);
	EXPECT_EQ(0, stat_of(pool).resident_bytes);
	EXPECT_EQ(0, stat_of(pool).nr_buffers);
	/* It is still there, as far as anybody can tell. */
	EXPECT_EQ(standin_counts().used_bytes, stat_of(pool).charged_bytes);
	kvpool_put(pool);
	standin_stream_end(stream);
}

TEST_TIMEOUT(a_device_that_is_lost_is_an_error_not_a_hang, 60)
{
	lose_device(CUDA_ILLEGAL_ADDRESS);
}

TEST_TIMEOUT(a_driver_that_fails_for_good_is_an_error_not_a_hang, 60)
{
	lose_device(999);
}

/* ---- threads ---- */

struct worker {
	struct kvpool *pool;
	uid_t uid;
};

static void *grow_and_drop(void *arg)
{
	struct worker *worker = arg;
	cuda_stream stream = standin_stream();

	for (int i = 0; i < 30; i++) {
		struct kvpool_buf *buf = owned(worker->pool, worker->uid);

		for (int n = 0; n < 50; n++) {
			if (commit(buf, n, 1))
				break;
			bytes_of(buf)[n * PAGE] = (uint8_t)i;
			standin_launch(stream, bytes_of(buf) + n * PAGE, PAGE);
			ASSERT_EQ(0, kvpool_fence(worker->pool, stream));
			if (n % 8 == 7) {
				standin_finish(stream);
				kvpool_buf_release(buf, (n - 7) * PAGE,
						   4 * PAGE);
			}
		}
		standin_finish(stream);
		kvpool_buf_put(buf);
	}
	standin_stream_end(stream);
	return NULL;
}

TEST_TIMEOUT(threads_grow_at_the_limit_with_kernels_running, 120)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool *pool = open_growing(100, 30);
	struct worker workers[3];
	pthread_t threads[3];

	for (int i = 0; i < 3; i++) {
		workers[i] =
			(struct worker){ .pool = pool, .uid = (uid_t)(i % 2) };
		ASSERT_EQ(0, kvpool_set_quota(pool, (uid_t)(i % 2), 60 * PAGE,
					      UINT64_MAX));
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, grow_and_drop,
					    &workers[i]));
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	settle(pool);
	expect_exact(pool);
	EXPECT_EQ(0, stat_of(pool).resident_bytes);
	EXPECT_EQ(0, standin_counts().nr_violations);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

TEST_HARNESS_MAIN
