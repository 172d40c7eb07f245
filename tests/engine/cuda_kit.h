/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the cuda backend alone: a pool of a driver without a GPU with
 * granules of 2 MiB, and what the driver holds beside what the pool says.
 * Included by test programs only.
 */
#ifndef TARN_TESTS_ENGINE_CUDA_KIT_H
#define TARN_TESTS_ENGINE_CUDA_KIT_H

#include <stdatomic.h>

#include "tests/engine/kvpool_kit.h"

#include "engine/kv/kvpool_cuda.h"

enum { GRANULE = 2 << 20, WAIT_MS = 5000 };

/* @limit_pages, @spare_pages; handles of several pages. */
static inline struct kvpool *open_growing(uint64_t limit_pages,
					  uint64_t spare_pages)
{
	struct kvpool_options options = options_of(limit_pages, spare_pages);
	struct kvpool *pool = NULL;

	options.is_small_pages = false;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	return pool;
}

static inline uint64_t mapped_pages(struct kvpool_buf *buf)
{
	return standin_mapped_bytes(kvpool_buf_addr(buf),
				    kvpool_buf_size(buf)) /
	       PAGE;
}

static inline void nap_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

/* Wait until @condition, which another thread brings about. */
#define EVENTUALLY(condition)                               \
	do {                                                \
		int left_ms = WAIT_MS * HARNESS_TIME_SCALE; \
		while (!(condition) && left_ms-- > 0)       \
			nap_ms(1);                          \
		ASSERT_TRUE(condition);                     \
	} while (0)

/* Whether the library's thread has pages to make. */
static inline bool is_making_ahead(struct kvpool *pool)
{
	struct kvpool_cuda *cuda = kvpool_cuda(kvpool_local(pool));

	pthread_mutex_lock(&cuda->pool->lock);
	bool is_busy = cuda->current || !TAILQ_EMPTY(&cuda->queue);

	pthread_mutex_unlock(&cuda->pool->lock);
	return is_busy;
}

/* The library's thread has nothing to do any more, and the driver's calls have stopped. */
static inline void settle(struct kvpool *pool)
{
	struct standin_count before, now = standin_counts();

	do {
		EVENTUALLY(!is_making_ahead(pool));
		before = now;
		nap_ms(20);
		now = standin_counts();
	} while (memcmp(&before, &now, sizeof(now)));
}

/* What the pool counts is what the driver gave, to the byte. */
static inline void expect_exact(struct kvpool *pool)
{
	struct kvpool_stat stat = stat_of(pool);

	EXPECT_EQ(standin_counts().used_bytes, stat.charged_bytes);
	EXPECT_EQ(stat.charged_bytes,
		  stat.resident_bytes + stat.spare_bytes + stat.draining_bytes);
	EXPECT_TRUE(stat.charged_bytes <= stat.limit_bytes);
}

/* ---- calls that fail: standin.fail = fail_nth ---- */

static atomic_int calls_left; /* until one fails; below 0: none does */
static atomic_bool has_failed;
static cuda_status failure = 999; /* what it fails with: an unknown error */

static cuda_status fail_nth(const char *name)
{
	(void)name;
	if (atomic_load(&calls_left) < 0 ||
	    atomic_fetch_sub(&calls_left, 1) > 0)
		return CUDA_OK;
	has_failed = true;
	return failure;
}

FIXTURE(cuda)
{
	struct kvpool *pool; /* of 256 pages, 64 spare ones */
	cuda_stream stream;
};

FIXTURE_SETUP(cuda)
{
	use_standin(GRANULE, 1 << 30);
	self->pool = open_growing(256, 64);
	self->stream = standin_stream();
}

FIXTURE_TEARDOWN(cuda)
{
	standin_finish(self->stream);
	kvpool_put(self->pool);
	standin_stream_end(self->stream);
	EXPECT_TRUE(standin_is_clean());
}

#endif /* TARN_TESTS_ENGINE_CUDA_KIT_H */
