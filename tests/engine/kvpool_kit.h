/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the pool tests: fixtures with a pool and one buffer in it, and small
 * helpers that assert. Tests of fixture kvpool run over every backend (cuda on a
 * driver without a GPU), those of memfd_pool and kernel_pool over one. Included
 * by test programs only.
 */
#ifndef TARN_TESTS_ENGINE_KVPOOL_KIT_H
#define TARN_TESTS_ENGINE_KVPOOL_KIT_H

#include "tests/harness.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "engine/kv/kvpool_local.h"
#include "tests/engine/cuda_standin.h"

enum {
	LIMIT_PAGES = 64,
	SPARE_PAGES = 16,
	/* Small enough to fill many of them, where the size of a granule is not what is tested. */
	STANDIN_GRANULE = 64 << 10,
};

static uint64_t kit_page = KVPOOL_PAGE_BYTES;

#define PAGE kit_page

/* The backend that this test is about; open_ok() opens pools of it. */
static enum kvpool_backend kit_backend = KVPOOL_BACKEND_MEMFD;

static inline bool is_kernel(void)
{
	return kit_backend == KVPOOL_BACKEND_KERNEL;
}

static inline bool is_cuda(void)
{
	return kit_backend == KVPOOL_BACKEND_CUDA;
}

static inline void use_standin(uint64_t granule_bytes, uint64_t total_bytes)
{
	standin_install();
	standin.granule_bytes = granule_bytes;
	standin.total_bytes = total_bytes;
	kit_backend = KVPOOL_BACKEND_CUDA;
	kit_page = granule_bytes;
}

static inline struct kvpool_options options_of(uint64_t limit_pages,
					       uint64_t spare_pages)
{
	return (struct kvpool_options){
		.size = sizeof(struct kvpool_options),
		.backend = kit_backend,
		.limit_bytes = limit_pages * PAGE,
		.spare_limit_bytes = spare_pages * PAGE,
		.is_small_pages = true,
	};
}

static inline struct kvpool *open_ok(uint64_t limit_pages, uint64_t spare_pages)
{
	struct kvpool_options options = options_of(limit_pages, spare_pages);
	struct kvpool *pool = NULL;

	ASSERT_EQ(0, kvpool_open(&options, &pool));
	return pool;
}

static inline struct kvpool_buf *create_ok(struct kvpool *pool, uint64_t pages)
{
	struct kvpool_buf *buf = NULL;

	ASSERT_EQ(0, kvpool_buf_create(pool, pages * PAGE, 0, &buf));
	return buf;
}

/* Why tests of the kernel backend cannot run here; NULL: they can. */
static inline const char *why_no_kernel(void)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_KERNEL,
		.limit_bytes = PAGE,
	};
	struct kvpool *pool;
	int err = kvpool_open(&options, &pool);

	if (err == -ENODEV)
		return "no /dev/kvpool here";
	if (err == -EACCES)
		return "/dev/kvpool does not admit this user";
	if (!err)
		kvpool_put(pool);
	return NULL;
}

#define USE_KERNEL_OR_SKIP()                           \
	do {                                           \
		const char *why_not = why_no_kernel(); \
		if (why_not)                           \
			SKIP(return, "%s", why_not);   \
		kit_backend = KVPOOL_BACKEND_KERNEL;   \
	} while (0)

FIXTURE(kvpool)
{
	struct kvpool *pool;
	struct kvpool_buf *buf; /* 256 pages of addresses */
};

FIXTURE_VARIANT(kvpool)
{
	enum kvpool_backend backend;
};

FIXTURE_VARIANT_ADD(kvpool, memfd){ .backend = KVPOOL_BACKEND_MEMFD };
FIXTURE_VARIANT_ADD(kvpool, kernel){ .backend = KVPOOL_BACKEND_KERNEL };
FIXTURE_VARIANT_ADD(kvpool, cuda){ .backend = KVPOOL_BACKEND_CUDA };

FIXTURE_SETUP(kvpool)
{
	if (variant->backend == KVPOOL_BACKEND_KERNEL)
		USE_KERNEL_OR_SKIP();
	if (variant->backend == KVPOOL_BACKEND_CUDA)
		use_standin(STANDIN_GRANULE, 64 << 20);
	self->pool = open_ok(LIMIT_PAGES, is_kernel() ? 0 : SPARE_PAGES);
	ASSERT_EQ(0,
		  kvpool_buf_create(self->pool, 256 * PAGE, 1000, &self->buf));
}

FIXTURE_TEARDOWN(kvpool)
{
	kvpool_buf_put(self->buf);
	kvpool_put(self->pool);
	if (is_cuda())
		EXPECT_TRUE(standin_is_clean());
}

FIXTURE(memfd_pool)
{
	struct kvpool *pool;
	struct kvpool_buf *buf;
};

FIXTURE_SETUP(memfd_pool)
{
	self->pool = open_ok(LIMIT_PAGES, SPARE_PAGES);
	self->buf = create_ok(self->pool, 256);
}

FIXTURE_TEARDOWN(memfd_pool)
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
	ASSERT_TRUE(stat.resident_bytes + stat.spare_bytes +
			    stat.draining_bytes <=
		    stat.charged_bytes);
	return stat;
}

static inline struct kvpool_buf_stat buf_stat_of(struct kvpool_buf *buf)
{
	struct kvpool_buf_stat stat;

	memset(&stat, 0xcc, sizeof(stat));
	ASSERT_EQ(0, kvpool_buf_stat(buf, &stat));
	return stat;
}

static inline int commit(struct kvpool_buf *buf, uint64_t first, uint64_t nr)
{
	return kvpool_buf_commit(buf, first * PAGE, nr * PAGE);
}

static inline uint8_t *bytes_of(struct kvpool_buf *buf)
{
	return kvpool_buf_addr(buf);
}

/* Pages of the buffer, spare ones included, as the system counts them. */
static inline uint64_t pages_of(struct kvpool_buf *buf)
{
	struct stat st;

	if (is_kernel())
		return buf_stat_of(buf).resident_bytes / PAGE;
	if (is_cuda())
		return standin_mapped_bytes(kvpool_buf_addr(buf),
					    kvpool_buf_size(buf)) /
		       PAGE;
	ASSERT_EQ(0, fstat(kvpool_local_buf(buf)->mem->fd, &st));
	return (uint64_t)st.st_blocks * 512 / PAGE;
}

static inline struct kvpool_key key_of(int i)
{
	struct kvpool_key key = { { 0 } };

	memcpy(key.bytes, &i, sizeof(i));
	return key;
}

/* Two pages, sealed and published under keys 1 (one page) and 2 (both). */
static inline void publish_ok(struct kvpool_buf *buf)
{
	struct kvpool_mark marks[] = { { key_of(1), PAGE },
				       { key_of(2), 2 * PAGE } };

	ASSERT_EQ(0, commit(buf, 0, 2));
	memset(bytes_of(buf), 0x11, PAGE);
	memset(bytes_of(buf) + PAGE, 0x22, PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(buf, 2 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, marks, 2));
}

static inline void send_fd(int sock, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	ASSERT_EQ(1, sendmsg(sock, &msg, 0));
}

static inline int receive_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(sock, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

#endif /* TARN_TESTS_ENGINE_KVPOOL_KIT_H */
