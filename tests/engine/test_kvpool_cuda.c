/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend on a driver without a GPU: finding a device, addresses,
 * handles that grow with the buffer, pages ahead, reuse, work of the device,
 * quotas, memory that others take. What it has in common with the other backends
 * is in test_kvpool.c; sharing is in test_kvpool_cuda_share.c.
 */
#include "tests/engine/cuda_kit.h"

/* ---- finding a device ---- */

static int check(char *err, size_t errlen)
{
	memset(err, 0x5a, errlen);
	err[errlen - 1] = 0;
	return kvpool_cuda_check(0, err, errlen);
}

#define EXPECT_REFUSED(error, words)                              \
	do {                                                      \
		struct kvpool_options options = options_of(1, 0); \
		struct kvpool *pool = NULL;                       \
		char err[200];                                    \
		options.limit_bytes = GRANULE;                    \
		EXPECT_EQ(error, check(err, sizeof(err)));        \
		EXPECT_STREQ(words, err);                         \
		EXPECT_EQ(error, kvpool_open(&options, &pool));   \
		EXPECT_TRUE(pool == NULL);                        \
		use_standin(GRANULE, 1 << 30);                    \
	} while (0)

TEST(what_is_missing_is_said)
{
	use_standin(GRANULE, 1 << 30);
	standin.has_library = false;
	EXPECT_REFUSED(-ENODEV, "no libcuda.so.1: no NVIDIA driver here");
	standin.has_proc_v1 = false;
	standin.has_proc_v2 = false;
	EXPECT_REFUSED(-EOPNOTSUPP,
		       "the NVIDIA driver is older than CUDA 11.3");
	standin.missing = "cuMemSetAccess";
	EXPECT_REFUSED(-EOPNOTSUPP,
		       "the NVIDIA driver is too old: it lacks cuMemSetAccess");
	standin.init_status = CUDA_STUB_LIBRARY;
	EXPECT_REFUSED(-ENODEV,
		       "libcuda.so.1 is a stub: no NVIDIA driver here");
	standin.init_status = CUDA_NO_DEVICE;
	EXPECT_REFUSED(-ENODEV, "no NVIDIA GPU here");
	standin.init_status = CUDA_DRIVER_MISMATCH;
	EXPECT_REFUSED(-EOPNOTSUPP,
		       "libcuda.so.1 does not fit the kernel's driver");
	standin.init_status = 999;
	EXPECT_REFUSED(-ENODEV,
		       "the NVIDIA driver does not start: CUDA error 999");
	standin.nr_devices = 0;
	EXPECT_REFUSED(-ENODEV, "no NVIDIA GPU here");
	standin.has_vmm = false;
	EXPECT_REFUSED(-EOPNOTSUPP, "GPU 0 has no virtual memory management");
	standin.has_fd = false;
	EXPECT_REFUSED(-EOPNOTSUPP, "GPU 0 has no virtual memory management");
	/* None of it was kept: the driver that works is found. */
	EXPECT_EQ(0, kvpool_cuda_check(0, NULL, 0));
	EXPECT_EQ(-ENODEV, kvpool_cuda_check(1, NULL, 0));
	EXPECT_EQ(-ENODEV, kvpool_cuda_check(UINT32_MAX, NULL, 0));
	EXPECT_TRUE(standin_is_clean());
}

TEST(a_driver_of_cuda_11_will_do)
{
	use_standin(GRANULE, 1 << 30);
	standin.has_proc_v2 = false;
	EXPECT_EQ(0, kvpool_cuda_check(0, NULL, 0));
}

TEST(options_choose_the_device)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool_options options = options_of(1, 0);
	struct kvpool *pool = NULL;

	options.device = 1;
	EXPECT_EQ(-ENODEV, kvpool_open(&options, &pool));
	standin.nr_devices = 2;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	EXPECT_STREQ("cuda", kvpool_backend_name(pool));
	EXPECT_EQ(KVPOOL_F_QUOTA | KVPOOL_F_EXPORT | KVPOOL_F_DEVICE,
		  kvpool_features(pool));
	EXPECT_EQ(GRANULE, kvpool_page_bytes(pool));
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

TEST(opening_fails_cleanly_at_each_call)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool_options options = options_of(8, 4);
	struct kvpool *pool = NULL;
	int nth = 0;

	standin.fail = fail_nth;
	for (;; nth++) {
		calls_left = nth;
		has_failed = false;
		int err = kvpool_open(&options, &pool);

		calls_left = -1;
		if (!has_failed)
			break;
		/* A smaller reservation is tried after one that failed. */
		EXPECT_TRUE(err == -EIO || err == -ENODEV ||
			    err == -EOPNOTSUPP || !err);
		if (!err)
			kvpool_put(pool);
		EXPECT_TRUE(standin_is_clean())
		{
			TH_LOG("after failure %d", nth);
		}
	}
	kvpool_put(pool);
	EXPECT_GE(nth, 10);
	EXPECT_TRUE(standin_is_clean());
}

/* ---- addresses ---- */

TEST_F(cuda, ranges_start_at_multiples_of_stride_and_granule)
{
	static const uint64_t strides[] = { 1474560, 4 << 20, 5 << 20, 4096,
					    GRANULE };
	uint8_t *base = kvpool_base(self->pool);
	struct kvpool_buf *bufs[10];

	for (int i = 0; i < 10; i++) {
		uint64_t stride = strides[i % 5];

		ASSERT_EQ(0,
			  kvpool_buf_create_stride(self->pool, (7 + i) * PAGE,
						   stride, 0, &bufs[i]));
		uint8_t *addr = kvpool_buf_addr(bufs[i]);

		EXPECT_EQ(0, (uint64_t)(addr - base) % stride);
		EXPECT_EQ(0, (uint64_t)addr % PAGE);
		ASSERT_EQ(0, commit(bufs[i], 0, 7 + i));
		memset(addr, i, 4096);
		memset(addr + (6 + i) * PAGE, i, 4096);
	}
	for (int i = 0; i < 10; i++) {
		EXPECT_EQ(i, bytes_of(bufs[i])[0]);
		EXPECT_EQ(i, bytes_of(bufs[i])[(6 + i) * PAGE]);
		kvpool_buf_put(bufs[i]);
	}
	EXPECT_EQ(-EINVAL,
		  kvpool_buf_create_stride(self->pool, PAGE, 0, 0, &bufs[0]));
	EXPECT_EQ(-EINVAL, kvpool_buf_create_stride(self->pool, PAGE,
						    1ull << 60, 0, &bufs[0]));
	/* Of an odd stride the common multiple may be more than there are addresses. */
	EXPECT_EQ(-ENOMEM, kvpool_buf_create_stride(self->pool, (256ull << 30),
						    3, 0, &bufs[0]));
}

TEST(other_backends_have_no_base)
{
	struct kvpool *pool = open_ok(4, 0);
	struct kvpool_buf *buf;

	EXPECT_TRUE(kvpool_base(pool) == NULL);
	EXPECT_TRUE(kvpool_base(NULL) == NULL);
	EXPECT_EQ(-EOPNOTSUPP,
		  kvpool_buf_create_stride(pool, PAGE, PAGE, 0, &buf));
	EXPECT_EQ(-EOPNOTSUPP, kvpool_fence(pool, NULL));
	EXPECT_EQ(-EINVAL, kvpool_fence(NULL, NULL));
	kvpool_put(pool);
}

TEST_F(cuda, addresses_come_back_in_one_piece)
{
	/* Half of all: it fits twice, and again only if what was between them is joined. */
	uint64_t half = 16ull << 30;
	struct kvpool_buf *parts[16], *buf;

	standin.most_addresses = 2 * half;
	struct kvpool *pool = open_growing(4, 0);

	for (int i = 0; i < 16; i++)
		ASSERT_EQ(0, kvpool_buf_create(pool, half / 8, 0, &parts[i]));
	EXPECT_EQ(-ENOMEM, kvpool_buf_create(pool, PAGE, 0, &buf));
	for (int i = 0; i < 16; i += 2)
		kvpool_buf_put(parts[i]);
	EXPECT_EQ(-ENOMEM, kvpool_buf_create(pool, half, 0, &buf));
	for (int i = 15; i > 0; i -= 2)
		kvpool_buf_put(parts[i]);
	ASSERT_EQ(0, kvpool_buf_create(pool, 2 * half, 0, &buf));
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST_F(cuda, a_kept_range_serves_only_strides_it_fits)
{
	uint64_t stride = 3 * PAGE;
	struct kvpool_buf *first, *buf;

	ASSERT_EQ(0, kvpool_buf_create(self->pool, PAGE, 0, &first));
	ASSERT_EQ(0, kvpool_buf_create(self->pool, 4 * PAGE, 0, &buf));
	ASSERT_EQ(0, commit(buf, 0, 4));
	void *addr = kvpool_buf_addr(buf);

	kvpool_buf_put(buf);
	/* It starts one page behind the base. */
	ASSERT_EQ(0, kvpool_buf_create_stride(self->pool, 4 * PAGE, stride, 0,
					      &buf));
	EXPECT_TRUE(addr != kvpool_buf_addr(buf));
	EXPECT_EQ(0, (uint64_t)(bytes_of(buf) -
				(uint8_t *)kvpool_base(self->pool)) %
			     stride);
	kvpool_buf_put(buf);
	ASSERT_EQ(0, kvpool_buf_create(self->pool, 4 * PAGE, 0, &buf));
	EXPECT_TRUE(addr == kvpool_buf_addr(buf));
	kvpool_buf_put(buf);
	kvpool_buf_put(first);
}

/* ---- handles ---- */

/* Grow a buffer page by page. Return: the handles that it took. */
static uint64_t grow(struct kvpool *pool, uint64_t nr_pages)
{
	uint64_t creates = standin_counts().creates;
	struct kvpool_buf *buf = create_ok(pool, 2 * nr_pages);

	for (uint64_t n = 1; n <= nr_pages; n++) {
		ASSERT_EQ(0, commit(buf, n - 1, 1));
		uint64_t mapped = mapped_pages(buf);
		uint64_t excess = n / 8 > 1 ? n / 8 : 1;

		if (n % 64 == 0)
			settle(pool);
		EXPECT_TRUE(mapped >= n && mapped <= n + excess)
		{
			TH_LOG("%llu pages for %llu",
			       (unsigned long long)mapped,
			       (unsigned long long)n);
		}
	}
	settle(pool);
	expect_exact(pool);
	creates = standin_counts().creates - creates;
	kvpool_buf_put(buf);
	return creates;
}

static _Atomic uint64_t nr_accesses;

static cuda_status count_accesses(const char *name)
{
	nr_accesses += !strcmp(name, "cuMemSetAccess");
	return CUDA_OK;
}

/* The device loses its translations each time; the pages ahead come all at once. */
TEST_TIMEOUT(growth_gives_access_seldom, 60)
{
	use_standin(GRANULE, 8ull << 30);
	standin.fail = count_accesses;
	struct kvpool *pool = open_growing(1000, 1000);
	struct kvpool_buf *buf = create_ok(pool, 512);

	ASSERT_EQ(0, commit(buf, 0, 64));
	settle(pool);
	uint64_t before = nr_accesses;

	for (uint64_t n = 64; n < 256; n++) {
		ASSERT_EQ(0, commit(buf, n, 1));
		/* A page lasts many steps: the thread is done by the next. */
		settle(pool);
	}
	/* From 64 to 256 by an eighth each time is twelve. */
	TH_LOG("%llu times", (unsigned long long)(nr_accesses - before));
	EXPECT_LE(nr_accesses - before, 18);
	EXPECT_GE(nr_accesses - before, 8);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST_TIMEOUT(growth_takes_few_handles_and_wastes_an_eighth, 120)
{
	use_standin(GRANULE, 8ull << 30);
	struct kvpool *pool = open_growing(4000, 1000);
	uint64_t nr = grow(pool, 2048);

	/* Eight handles of each size, and those of 128 MiB at the end. */
	TH_LOG("4 GiB in %llu handles", (unsigned long long)nr);
	EXPECT_LT(nr, 140);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

TEST(small_pages_are_exact)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool *pool = open_ok(256, 64);
	struct kvpool_buf *buf = create_ok(pool, 100);

	ASSERT_EQ(0, commit(buf, 0, 64));
	settle(pool);
	EXPECT_EQ(64, mapped_pages(buf));
	EXPECT_EQ(64, standin_counts().creates);
	EXPECT_EQ(0, kvpool_buf_release(buf, 10 * PAGE, 3 * PAGE));
	EXPECT_EQ(61, mapped_pages(buf));
	expect_exact(pool);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST_F(cuda, a_large_commit_takes_large_handles)
{
	struct kvpool_buf *buf = create_ok(self->pool, 200);

	/* 64 + 32 + 4: a last handle of 4 is what fits the length best. */
	ASSERT_EQ(0, commit(buf, 0, 100));
	EXPECT_LE(standin_counts().creates, 4);
	EXPECT_EQ(0, stat_of(self->pool).resident_bytes - 100 * PAGE);
	settle(self->pool);
	EXPECT_TRUE(mapped_pages(buf) <= 112);
	expect_exact(self->pool);
	kvpool_buf_put(buf);
}

/* Calls of the driver by this thread, not by the library's. */
static __thread int nr_own_calls;

static cuda_status count_own(const char *name)
{
	(void)name;
	nr_own_calls++;
	return CUDA_OK;
}

TEST_F(cuda, pages_come_ahead_of_the_commit)
{
	struct kvpool_buf *buf = create_ok(self->pool, 200);

	standin.fail = count_own;
	ASSERT_EQ(0, commit(buf, 0, 1));
	for (int n = 1; n < 40; n++) {
		EVENTUALLY(mapped_pages(buf) > (uint64_t)n);
		settle(self->pool);
		nr_own_calls = 0;
		ASSERT_EQ(0, commit(buf, n, 1));
		EXPECT_EQ(0, nr_own_calls);
	}
	kvpool_buf_put(buf);
}

TEST(without_spare_pages_nothing_is_ahead)
{
	use_standin(GRANULE, 1 << 30);
	struct kvpool *pool = open_growing(256, 0);
	struct kvpool_buf *buf = create_ok(pool, 200);

	for (int n = 0; n < 100; n++)
		ASSERT_EQ(0, commit(buf, n, 1));
	settle(pool);
	EXPECT_EQ(100, mapped_pages(buf));
	EXPECT_EQ(0, stat_of(pool).spare_bytes);
	ASSERT_EQ(0, kvpool_buf_release(buf, 0, 50 * PAGE));
	EXPECT_EQ(0, stat_of(pool).spare_bytes);
	expect_exact(pool);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

TEST_F(cuda, pages_ahead_give_way_at_the_limit)
{
	struct kvpool_buf *a = create_ok(self->pool, 256),
			  *b = create_ok(self->pool, 256);

	for (int n = 0; n < 100; n++)
		ASSERT_EQ(0, commit(a, n, 1));
	settle(self->pool);
	EXPECT_GT(stat_of(self->pool).spare_bytes, 0);
	/* All but what a's last handle holds together can be had. */
	ASSERT_EQ(0, commit(b, 0, 256 - 112));
	settle(self->pool);
	expect_exact(self->pool);
	kvpool_buf_put(a);
	ASSERT_EQ(0, commit(b, 0, 256));
	a = create_ok(self->pool, 1);
	EXPECT_EQ(-ENOSPC, commit(a, 0, 1));
	EXPECT_EQ(0, stat_of(self->pool).spare_bytes);
	kvpool_buf_put(a);
	kvpool_buf_put(b);
}

/* ---- reuse ---- */

TEST_F(cuda, a_freed_range_is_reused_still_mapped)
{
	struct kvpool_buf *buf = create_ok(self->pool, 40);

	ASSERT_EQ(0, commit(buf, 0, 32));
	settle(self->pool);
	void *addr = kvpool_buf_addr(buf);

	kvpool_buf_put(buf);
	settle(self->pool);
	struct standin_count before = standin_counts();

	buf = create_ok(self->pool, 40);
	EXPECT_TRUE(addr == kvpool_buf_addr(buf));
	ASSERT_EQ(0, commit(buf, 0, 32));
	struct standin_count after = standin_counts();

	EXPECT_EQ(before.creates, after.creates);
	EXPECT_EQ(before.maps, after.maps);
	EXPECT_EQ(before.unmaps, after.unmaps);
	EXPECT_EQ(before.set_accesses, after.set_accesses);
	kvpool_buf_put(buf);
}

/* Whether the page behind a commit of the first eight comes by itself. */
static void expect_page_behind(struct kvpool *pool, struct kvpool_buf *buf)
{
	kvpool_trim(pool, UINT64_MAX);
	ASSERT_EQ(0, commit(buf, 0, 8));
	settle(pool);
	EXPECT_EQ(PAGE, standin_mapped_bytes(bytes_of(buf) + 8 * PAGE, PAGE));
}

TEST_F(cuda, a_new_life_grows_from_the_front)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64);
	void *addr = kvpool_buf_addr(buf);
	bool survived = true;

	ASSERT_EQ(0, commit(buf, 0, 40));
	settle(self->pool);
	kvpool_buf_put(buf);
	buf = create_ok(self->pool, 64);
	ASSERT_TRUE(addr == kvpool_buf_addr(buf));
	expect_page_behind(self->pool, buf);
	/* Likewise after a purge. */
	ASSERT_EQ(0, commit(buf, 8, 40));
	settle(self->pool);
	ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_VOLATILE, NULL));
	struct kvpool_buf *all = create_ok(self->pool, 256);

	ASSERT_EQ(0, commit(all, 0, 256));
	kvpool_buf_put(all);
	ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	expect_page_behind(self->pool, buf);
	kvpool_buf_put(buf);
}

TEST_F(cuda, released_handles_are_kept_by_size_and_trimmed)
{
	struct kvpool_buf *a = create_ok(self->pool, 64),
			  *b = create_ok(self->pool, 256);

	ASSERT_EQ(0, commit(a, 0, 48)); /* 32 + 16 */
	settle(self->pool);
	uint64_t creates = standin_counts().creates;

	ASSERT_EQ(0, kvpool_buf_release(a, 0, 48 * PAGE));
	EXPECT_EQ(0, mapped_pages(a));
	expect_exact(self->pool);
	ASSERT_EQ(0, commit(b, 0, 32));
	EXPECT_EQ(creates, standin_counts().creates);
	settle(self->pool);
	EXPECT_GT(kvpool_trim(self->pool, UINT64_MAX), 0);
	expect_exact(self->pool);
	EXPECT_EQ(0, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(32 * PAGE, standin_counts().used_bytes);
	kvpool_buf_put(a);
	kvpool_buf_put(b);
}

TEST_F(cuda, a_handle_goes_when_its_last_page_does)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64);

	ASSERT_EQ(0, commit(buf, 0, 16));
	for (int n = 0; n < 15; n++) {
		EXPECT_EQ(0, kvpool_buf_release(buf, n * PAGE, PAGE));
		EXPECT_TRUE(mapped_pages(buf) >= 16);
	}
	bytes_of(buf)[15 * PAGE] = 1;
	EXPECT_EQ(0, kvpool_buf_release(buf, 15 * PAGE, PAGE));
	settle(self->pool);
	EXPECT_EQ(0, standin_mapped_bytes(kvpool_buf_addr(buf), 16 * PAGE));
	expect_exact(self->pool);
	kvpool_buf_put(buf);
}

TEST_HARNESS_MAIN
