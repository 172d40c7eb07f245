/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool_copy() and kvpool_fill(): the same bytes on every backend, and what is
 * refused; on the cuda backend their place among the device's work, memory that
 * the CPU cannot touch, and calls of the driver that fail. And how much memory a
 * GPU has.
 */
#include "tests/engine/cuda_kit.h"

enum { PITCH = 300, WIDTH = 100, ROWS = 40 };

static struct kvpool_place place(struct kvpool_buf *buf, uint64_t offset,
				 uint64_t pitch)
{
	return (struct kvpool_place){ buf, offset, pitch };
}

/* Bytes that tell where they are from. */
static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 7 + offset / 251 + 1);
}

static void write_all(struct kvpool_buf *buf, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		bytes_of(buf)[i] = byte_at(i);
}

/* ---- every backend ---- */

TEST_F(kvpool, rows_are_copied_and_nothing_between_them)
{
	struct kvpool_buf *to = create_ok(self->pool, 8);
	struct kvpool_place dst = place(to, 77, 2 * PITCH);
	struct kvpool_place src = place(self->buf, 5, PITCH);

	ASSERT_EQ(0, commit(self->buf, 0, 8));
	ASSERT_EQ(0, commit(to, 0, 8));
	write_all(self->buf, 8 * PAGE);
	memset(bytes_of(to), 0, 8 * PAGE);
	ASSERT_EQ(0, kvpool_copy(&dst, &src, WIDTH, ROWS));
	for (uint64_t i = 0; i < 8 * PAGE; i++) {
		uint64_t row = i < 77 ? ROWS : (i - 77) / (2 * PITCH);
		uint64_t at = i < 77 ? 0 : (i - 77) % (2 * PITCH);
		uint8_t expected = row < ROWS && at < WIDTH ?
					   byte_at(5 + row * PITCH + at) :
					   0;

		ASSERT_EQ(expected, bytes_of(to)[i]);
	}
	/* Rows back to back on one side, and within one buffer. */
	dst = place(to, 0, WIDTH);
	src = place(to, 4 * PAGE + 3, PITCH);
	write_all(to, 8 * PAGE);
	ASSERT_EQ(0, kvpool_copy(&dst, &src, WIDTH, 3));
	for (uint64_t i = 0; i < 3 * WIDTH; i++)
		ASSERT_EQ(byte_at(4 * PAGE + 3 + i / WIDTH * PITCH + i % WIDTH),
			  bytes_of(to)[i]);
	ASSERT_EQ(byte_at(3 * WIDTH), bytes_of(to)[3 * WIDTH]);
	/* On both sides, and one row. */
	src = place(self->buf, PAGE, WIDTH);
	ASSERT_EQ(0, kvpool_copy(&dst, &src, WIDTH, 3));
	ASSERT_EQ(0,
		  memcmp(bytes_of(to), bytes_of(self->buf) + PAGE, 3 * WIDTH));
	src = place(self->buf, 1, 0);
	ASSERT_EQ(0, kvpool_copy(&dst, &src, 2 * PAGE, 1));
	EXPECT_EQ(0, memcmp(bytes_of(to), bytes_of(self->buf) + 1, 2 * PAGE));
	kvpool_buf_put(to);
}

TEST_F(kvpool, rows_are_set_and_nothing_between_them)
{
	struct kvpool_place at = place(self->buf, 9, PITCH);

	ASSERT_EQ(0, commit(self->buf, 0, 8));
	write_all(self->buf, 8 * PAGE);
	ASSERT_EQ(0, kvpool_fill(&at, 0xa7, WIDTH, ROWS));
	for (uint64_t i = 0; i < 8 * PAGE; i++) {
		bool is_set = i >= 9 && (i - 9) / PITCH < ROWS &&
			      (i - 9) % PITCH < WIDTH;

		ASSERT_EQ(is_set ? 0xa7 : byte_at(i), bytes_of(self->buf)[i]);
	}
	at = place(self->buf, 3, 0);
	write_all(self->buf, 8 * PAGE);
	ASSERT_EQ(0, kvpool_fill(&at, 0, 2 * PAGE, 1));
	EXPECT_EQ(byte_at(2), bytes_of(self->buf)[2]);
	EXPECT_EQ(0, bytes_of(self->buf)[3]);
	EXPECT_EQ(0, bytes_of(self->buf)[2 * PAGE + 2]);
	EXPECT_EQ(byte_at(2 * PAGE + 3), bytes_of(self->buf)[2 * PAGE + 3]);
}

#define EXPECT_BAD(offset, pitch, width, rows)                             \
	do {                                                               \
		struct kvpool_place bad = place(self->buf, offset, pitch); \
		EXPECT_EQ(-EINVAL, kvpool_copy(&bad, &good, width, rows)); \
		EXPECT_EQ(-EINVAL, kvpool_copy(&good, &bad, width, rows)); \
		EXPECT_EQ(-EINVAL, kvpool_fill(&bad, 0, width, rows));     \
	} while (0)

TEST_F(kvpool, rows_outside_of_a_buffer_are_refused)
{
	uint64_t size = kvpool_buf_size(self->buf);
	struct kvpool_place good = place(self->buf, 0, PITCH), other;
	struct kvpool_buf *foreign, *found = NULL;
	struct kvpool *pool;
	uint64_t n;

	ASSERT_EQ(0, commit(self->buf, 0, 4));
	EXPECT_BAD(0, 0, 0, 1);
	EXPECT_BAD(0, PITCH, 1, 0);
	EXPECT_BAD(size, 0, 1, 1);
	EXPECT_BAD(size - 3, 0, 4, 1);
	EXPECT_BAD(UINT64_MAX, 0, 4, 1);
	EXPECT_BAD(0, WIDTH - 1, WIDTH, 2);
	EXPECT_BAD(size - PITCH - WIDTH + 1, PITCH, WIDTH, 2);
	EXPECT_BAD(0, UINT64_MAX / 2, 1, 4);
	EXPECT_EQ(-EINVAL, kvpool_copy(NULL, &good, 1, 1));
	EXPECT_EQ(-EINVAL, kvpool_copy(&good, NULL, 1, 1));
	EXPECT_EQ(-EINVAL, kvpool_fill(NULL, 0, 1, 1));
	other = place(NULL, 0, 0);
	EXPECT_EQ(-EINVAL, kvpool_fill(&other, 0, 1, 1));
	pool = open_ok(4, 0);
	foreign = create_ok(pool, 1);
	other = place(foreign, 0, 0);
	EXPECT_EQ(-EINVAL, kvpool_copy(&other, &good, 1, 1));
	kvpool_buf_put(foreign);
	kvpool_put(pool);
	/* A handle that only reads is no place to write to. */
	publish_ok(self->buf);
	struct kvpool_key key = key_of(1);

	ASSERT_EQ(0, kvpool_lookup(self->pool, &key, &found, &n, NULL));
	other = place(found, 0, 0);
	EXPECT_EQ(-EPERM, kvpool_fill(&other, 0, 1, 1));
	EXPECT_EQ(-EPERM, kvpool_copy(&other, &good, 1, 1));
	kvpool_buf_put(found);
}

/* ---- a device ---- */

TEST_F(cuda, memory_that_is_not_there_is_not_touched)
{
	struct kvpool_buf *buf = create_ok(self->pool, 8),
			  *to = create_ok(self->pool, 8);
	struct kvpool_place src = place(buf, 0, PAGE), dst = place(to, 0, PAGE);

	ASSERT_EQ(0, commit(buf, 0, 2));
	ASSERT_EQ(0, commit(to, 0, 3));
	EXPECT_EQ(0, kvpool_copy(&dst, &src, WIDTH, 2));
	EXPECT_EQ(-ERANGE, kvpool_copy(&dst, &src, WIDTH, 3));
	EXPECT_EQ(-ERANGE, kvpool_copy(&src, &dst, WIDTH, 3));
	EXPECT_EQ(0, kvpool_fill(&dst, 0, WIDTH, 3));
	EXPECT_EQ(-ERANGE, kvpool_fill(&dst, 0, WIDTH, 4));
	ASSERT_EQ(0, kvpool_buf_seal(to, 1));
	EXPECT_EQ(-EPERM, kvpool_copy(&dst, &src, WIDTH, 2));
	EXPECT_EQ(-EPERM, kvpool_fill(&dst, 0, 1, 1));
	EXPECT_EQ(0, kvpool_copy(&src, &dst, WIDTH, 2));
	dst.offset = PAGE;
	EXPECT_EQ(0, kvpool_fill(&dst, 0, 1, 1));
	kvpool_buf_put(buf);
	kvpool_buf_put(to);
}

static void *finish_later(void *stream)
{
	nap_ms(50);
	standin_finish(stream);
	return NULL;
}

TEST_F(cuda, a_copy_sees_what_fenced_work_wrote)
{
	struct kvpool_buf *buf = create_ok(self->pool, 8);
	struct kvpool_place src = place(buf, 0, PITCH);
	struct kvpool_place dst = place(buf, 4 * PAGE, PITCH);
	pthread_t thread;

	ASSERT_EQ(0, commit(buf, 0, 8));
	memset(bytes_of(buf), 1, 8 * PAGE);
	standin_launch_set(self->stream, bytes_of(buf), PAGE, 2);
	ASSERT_EQ(0, kvpool_fence(self->pool, self->stream));
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	ASSERT_EQ(0, kvpool_copy(&dst, &src, WIDTH, ROWS));
	/* Done when the call returns: nobody waits for a stream here. */
	EXPECT_EQ(2, bytes_of(buf)[4 * PAGE]);
	EXPECT_EQ(2, bytes_of(buf)[4 * PAGE + (ROWS - 1) * PITCH]);
	EXPECT_EQ(1, bytes_of(buf)[4 * PAGE + WIDTH]);
	pthread_join(thread, NULL);
	/* Setting comes behind it as well. */
	standin_launch_set(self->stream, bytes_of(buf), PAGE, 3);
	ASSERT_EQ(0, kvpool_fence(self->pool, self->stream));
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	ASSERT_EQ(0, kvpool_fill(&src, 4, 2 * PAGE, 1));
	pthread_join(thread, NULL);
	EXPECT_EQ(4, bytes_of(buf)[0]);
	EXPECT_EQ(4, bytes_of(buf)[PAGE - 1]);
	kvpool_buf_put(buf);
}

TEST(copies_need_no_address_that_the_cpu_can_touch)
{
	use_standin(GRANULE, 1 << 30);
	standin.is_hidden = true;
	struct kvpool *pool = open_ok(16, 0);
	struct kvpool_buf *buf = create_ok(pool, 4);
	struct kvpool_place src = place(buf, 0, PITCH);
	struct kvpool_place dst = place(buf, 2 * PAGE, 2 * PITCH);

	ASSERT_EQ(0, commit(buf, 0, 4));
	uint8_t *bytes = standin_cpu(kvpool_buf_addr(buf));

	ASSERT_TRUE(bytes != kvpool_buf_addr(buf));
	ASSERT_EQ(0, kvpool_fill(&src, 5, PITCH * ROWS, 1));
	ASSERT_EQ(0, kvpool_fill(&src, 6, WIDTH, ROWS));
	ASSERT_EQ(0, kvpool_copy(&dst, &src, WIDTH + 1, ROWS));
	EXPECT_EQ(6, bytes[2 * PAGE + 2 * PITCH * (ROWS - 1)]);
	EXPECT_EQ(5, bytes[2 * PAGE + 2 * PITCH * (ROWS - 1) + WIDTH]);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

/* Each call of the driver fails in turn: an error, and what was there stays. */
TEST_F(cuda, copies_that_fail_say_so_and_leave_nothing)
{
	struct kvpool_buf *buf = create_ok(self->pool, 8);
	struct kvpool_place src = place(buf, 0, PITCH);
	struct kvpool_place dst = place(buf, 4 * PAGE, PITCH);
	int nr_failed = 0;

	ASSERT_EQ(0, commit(buf, 0, 8));
	write_all(buf, 4 * PAGE);
	settle(self->pool);
	atomic_store(&calls_left, -1);
	standin.fail = fail_nth;
	for (int nth = 0;; nth++) {
		ASSERT_EQ(0, kvpool_fence(self->pool, self->stream));
		/* Over, and still to be waited for. */
		standin_finish(self->stream);
		atomic_store(&has_failed, false);
		atomic_store(&calls_left, nth);
		int copied = kvpool_copy(&dst, &src, WIDTH, ROWS);
		int set = copied ? 0 : kvpool_fill(&dst, 9, WIDTH, ROWS);

		atomic_store(&calls_left, -1);
		if (!has_failed) {
			EXPECT_EQ(0, copied);
			EXPECT_EQ(0, set);
			break;
		}
		nr_failed++;
		EXPECT_EQ(-EIO, copied ? copied : set);
		/* The source is untouched, and the next try works. */
		for (uint64_t i = 0; i < 4 * PAGE; i += 1021)
			ASSERT_EQ(byte_at(i), bytes_of(buf)[i]);
		ASSERT_EQ(0, kvpool_copy(&dst, &src, WIDTH, ROWS));
		EXPECT_EQ(byte_at(0), bytes_of(buf)[4 * PAGE]);
	}
	standin.fail = NULL;
	EXPECT_GE(nr_failed, 8);
	kvpool_buf_put(buf);
}

static atomic_bool is_cloned;

static void *grow_and_shrink(void *arg)
{
	struct kvpool_buf *buf = arg;

	while (!atomic_load(&is_cloned)) {
		kvpool_buf_commit(buf, 50 * PAGE, 10 * PAGE);
		kvpool_buf_release(buf, 50 * PAGE, 10 * PAGE);
	}
	return NULL;
}

/* The library's thread waits for the source's lock while the clone looks for room. */
TEST_F(cuda, a_clone_without_room_does_not_wait_for_itself)
{
	struct kvpool_buf *buf = create_ok(self->pool, 256), *copy = NULL;
	pthread_t thread;

	ASSERT_EQ(0, kvpool_set_limit(self->pool, 90 * PAGE));
	ASSERT_EQ(0, commit(buf, 0, 50));
	ASSERT_EQ(0, pthread_create(&thread, NULL, grow_and_shrink, buf));
	for (int i = 0; i < 20000; i++)
		EXPECT_EQ(-ENOSPC, kvpool_buf_clone(buf, 50 * PAGE, 256 * PAGE,
						    0, &copy));
	atomic_store(&is_cloned, true);
	pthread_join(thread, NULL);
	EXPECT_TRUE(copy == NULL);
	kvpool_buf_put(buf);
}

TEST(a_gpu_says_how_much_memory_it_has_left)
{
	uint64_t free_bytes = 1, total = 1;

	use_standin(GRANULE, 1 << 30);
	EXPECT_EQ(0, kvpool_cuda_memory(0, &free_bytes, &total));
	EXPECT_EQ(1 << 30, free_bytes);
	EXPECT_EQ(1 << 30, total);
	standin_steal(100 << 20);
	EXPECT_EQ(0, kvpool_cuda_memory(0, &free_bytes, NULL));
	EXPECT_EQ((1 << 30) - (100 << 20), free_bytes);
	standin_steal(-(100 << 20));
	EXPECT_EQ(-EINVAL, kvpool_cuda_memory(0, NULL, &total));
	EXPECT_EQ(-ENODEV, kvpool_cuda_memory(1, &free_bytes, &total));
	EXPECT_TRUE(standin_is_clean());
}

static cuda_status fail_info(const char *name)
{
	return strcmp(name, "cuMemGetInfo") ? CUDA_OK : 999;
}

TEST(a_gpu_that_does_not_answer_is_an_error)
{
	uint64_t free_bytes = 1;

	use_standin(GRANULE, 1 << 30);
	standin.fail = fail_info;
	EXPECT_EQ(-EIO, kvpool_cuda_memory(0, &free_bytes, NULL));
	EXPECT_EQ(1, free_bytes);
	EXPECT_TRUE(standin_is_clean());
}

TEST_HARNESS_MAIN
