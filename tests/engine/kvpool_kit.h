/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the pool tests: a pool with one buffer in it, and small helpers that
 * assert. Included by test programs only.
 */
#ifndef TARN_TESTS_ENGINE_KVPOOL_KIT_H
#define TARN_TESTS_ENGINE_KVPOOL_KIT_H

#include "tests/harness.h"

#include <pthread.h>
#include <sys/stat.h>

#include "engine/kv/kvpool_private.h"

enum { PAGE = KVPOOL_PAGE_BYTES, LIMIT_PAGES = 64, SPARE_PAGES = 16 };

FIXTURE(kvpool)
{
	struct kvpool *pool;
	struct kvpool_buf *buf; /* 256 pages of addresses */
};

static inline struct kvpool *open_ok(uint64_t limit_pages, uint64_t spare_pages)
{
	struct kvpool_options options = {
		.backend = KVPOOL_BACKEND_MEMFD,
		.limit_bytes = limit_pages * PAGE,
		.spare_limit_bytes = spare_pages * PAGE,
	};
	struct kvpool *pool = NULL;

	ASSERT_EQ(0, kvpool_open(&options, &pool));
	return pool;
}

FIXTURE_SETUP(kvpool)
{
	self->pool = open_ok(LIMIT_PAGES, SPARE_PAGES);
	ASSERT_EQ(0,
		  kvpool_buf_create(self->pool, 256 * PAGE, 1000, &self->buf));
}

FIXTURE_TEARDOWN(kvpool)
{
	kvpool_buf_put(self->buf);
	kvpool_put(self->pool);
}

static inline struct kvpool_stat stat_of(struct kvpool *pool)
{
	struct kvpool_stat stat;

	memset(&stat, 0xcc, sizeof(stat));
	ASSERT_EQ(0, kvpool_stat(pool, &stat));
	ASSERT_TRUE(stat.resident_bytes + stat.spare_bytes <= stat.limit_bytes);
	return stat;
}

static inline struct kvpool_buf *create_ok(struct kvpool *pool, uint64_t pages)
{
	struct kvpool_buf *buf = NULL;

	ASSERT_EQ(0, kvpool_buf_create(pool, pages * PAGE, 0, &buf));
	return buf;
}

static inline int commit(struct kvpool_buf *buf, uint64_t first, uint64_t nr)
{
	return kvpool_buf_commit(buf, first * PAGE, nr * PAGE);
}

/* Pages of the buffer's file as the kernel counts them. */
static inline uint64_t pages_of_fd(const struct kvpool_buf *buf)
{
	struct stat st;

	ASSERT_EQ(0, fstat(buf->mem->fd, &st));
	return (uint64_t)st.st_blocks * 512 / PAGE;
}

static inline struct kvpool_key key_of(int i)
{
	struct kvpool_key key = { { 0 } };

	memcpy(key.bytes, &i, sizeof(i));
	return key;
}

#endif /* TARN_TESTS_ENGINE_KVPOOL_KIT_H */
