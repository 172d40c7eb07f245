/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend on a GPU, where there is one: that the real driver takes the
 * calls as the tests' own does, that bytes stay where they were put while a
 * buffer grows, and what growth costs. Everything finer is tested without a GPU.
 */
#include "tests/engine/kvpool_kit.h"

#include <dlfcn.h>

/* Of the driver, beside what the library asks for. */
static struct {
	const struct cuda_driver *driver;
	cuda_context context;
	cuda_status (*to_device)(cuda_addr to, const void *from, size_t bytes);
	cuda_status (*to_host)(void *to, cuda_addr from, size_t bytes);
} gpu;

static char why_not[200];

/* Whether a GPU serves here; it is this thread's then. */
static bool have_gpu(void)
{
	int device;

	if (kvpool_cuda_check(0, why_not, sizeof(why_not)))
		return false;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	ASSERT_TRUE(library != NULL);
	gpu.to_device = (cuda_status(*)(cuda_addr, const void *, size_t))dlsym(
		library, "cuMemcpyHtoD_v2");
	gpu.to_host = (cuda_status(*)(void *, cuda_addr,
				      size_t))dlsym(library, "cuMemcpyDtoH_v2");
	ASSERT_TRUE(gpu.to_device && gpu.to_host);
	ASSERT_EQ(0, cuda_driver_get(&gpu.driver, NULL, 0));
	ASSERT_EQ(0, gpu.driver->DeviceGet(&device, 0));
	ASSERT_EQ(0, gpu.driver->DevicePrimaryCtxRetain(&gpu.context, device));
	ASSERT_EQ(0, gpu.driver->CtxPushCurrent(gpu.context));
	return true;
}

#define USE_GPU_OR_SKIP()                            \
	do {                                         \
		if (!have_gpu())                     \
			SKIP(return, "%s", why_not); \
		kit_backend = KVPOOL_BACKEND_CUDA;   \
	} while (0)

static struct kvpool *open_gpu(uint64_t limit_bytes, uint64_t spare_bytes)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_CUDA,
		.limit_bytes = limit_bytes,
		.spare_limit_bytes = spare_bytes,
	};
	struct kvpool *pool = NULL;

	ASSERT_EQ(0, kvpool_open(&options, &pool));
	kit_page = kvpool_page_bytes(pool);
	return pool;
}

/* A word at the start and one at the end of a page. */
static void put_page(struct kvpool_buf *buf, uint64_t page, uint64_t value)
{
	cuda_addr addr = (cuda_addr)bytes_of(buf) + page * PAGE;

	ASSERT_EQ(0, gpu.to_device(addr, &value, sizeof(value)));
	ASSERT_EQ(0, gpu.to_device(addr + PAGE - sizeof(value), &value,
				   sizeof(value)));
	/* A copy from memory that is not pinned may be under way yet when the call returns. */
	ASSERT_EQ(0, gpu.driver->StreamSynchronize(NULL));
}

static void expect_page(struct kvpool_buf *buf, uint64_t page, uint64_t value)
{
	cuda_addr addr = (cuda_addr)bytes_of(buf) + page * PAGE;
	uint64_t first = ~value, last = ~value;

	ASSERT_EQ(0, gpu.to_host(&first, addr, sizeof(first)));
	ASSERT_EQ(0,
		  gpu.to_host(&last, addr + PAGE - sizeof(last), sizeof(last)));
	EXPECT_EQ(value, first);
	EXPECT_EQ(value, last);
}

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* ---- growth ---- */

TEST_TIMEOUT(a_buffer_grows_and_keeps_its_bytes, 120)
{
	enum { NR_PAGES = 512 };

	USE_GPU_OR_SKIP();
	struct kvpool *pool = open_gpu(4ull << 30, 1ull << 30);
	struct kvpool_buf *buf, *copy;
	double worst_us = 0, sum_us = 0;

	TH_LOG("driver %d, pages of %d KiB", gpu.driver->version,
	       (int)(PAGE >> 10));
	ASSERT_EQ(0, kvpool_buf_create_stride(pool, 4 * NR_PAGES * PAGE,
					      5 << 20, 0, &buf));
	EXPECT_EQ(0, (uint64_t)(bytes_of(buf) - (uint8_t *)kvpool_base(pool)) %
			     (5 << 20));
	for (uint64_t n = 0; n < NR_PAGES; n++) {
		double start = now_us();

		ASSERT_EQ(0, commit(buf, n, 1));
		double us = now_us() - start;

		sum_us += us;
		worst_us = us > worst_us ? us : worst_us;
		put_page(buf, n, n * 0x9e3779b97f4a7c15ull);
		usleep(300); /* a step of decoding: the library's thread works meanwhile */
	}
	TH_LOG("a commit of a page: mean %.1f us, worst %.1f us",
	       sum_us / NR_PAGES, worst_us);
	for (uint64_t n = 0; n < NR_PAGES; n++)
		expect_page(buf, n, n * 0x9e3779b97f4a7c15ull);
	struct kvpool_stat stat = stat_of(pool);

	EXPECT_LE(stat.spare_bytes, NR_PAGES * PAGE / 8);
	ASSERT_EQ(0, kvpool_buf_clone(buf, 100 * PAGE, 100 * PAGE, 0, &copy));
	expect_page(copy, 99, 99 * 0x9e3779b97f4a7c15ull);
	kvpool_buf_put(copy);
	/* What is given up and taken again is of this process still. */
	ASSERT_EQ(0, kvpool_buf_release(buf, 0, 256 * PAGE));
	ASSERT_EQ(0, commit(buf, 0, 256));
	put_page(buf, 255, 1);
	expect_page(buf, 256, 256 * 0x9e3779b97f4a7c15ull);
	kvpool_buf_put(buf);
	double start = now_us();

	ASSERT_EQ(0, kvpool_buf_create(pool, 4 * NR_PAGES * PAGE, 0, &buf));
	ASSERT_EQ(0, commit(buf, 0, 200));
	TH_LOG("200 pages of a freed range: %.1f us", now_us() - start);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST(sealing_clears_the_rest_of_the_page)
{
	USE_GPU_OR_SKIP();
	struct kvpool *pool = open_gpu(64 << 20, 0);
	struct kvpool_buf *buf = create_ok(pool, 4);
	uint64_t word = 1;

	ASSERT_EQ(0, commit(buf, 0, 2));
	put_page(buf, 0, 7);
	put_page(buf, 1, 8);
	ASSERT_EQ(0, kvpool_buf_seal(buf, PAGE + 64));
	expect_page(buf, 0, 7);
	ASSERT_EQ(0, gpu.to_host(&word, (cuda_addr)bytes_of(buf) + PAGE, 8));
	EXPECT_EQ(8, word);
	ASSERT_EQ(0, gpu.to_host(&word, (cuda_addr)bytes_of(buf) + 2 * PAGE - 8,
				 8));
	EXPECT_EQ(0, word);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

/* ---- work of the device ---- */

TEST_TIMEOUT(memory_goes_after_the_work_that_uses_it, 60)
{
	enum { NR_PAGES = 256, NR_CLEARS = 200 };

	USE_GPU_OR_SKIP();
	struct kvpool *pool = open_gpu(1ull << 30, 0);
	struct kvpool_buf *buf = create_ok(pool, NR_PAGES);
	cuda_stream stream;

	ASSERT_EQ(0, gpu.driver->StreamCreate(&stream, 1));
	ASSERT_EQ(0, commit(buf, 0, NR_PAGES));
	for (int i = 0; i < NR_CLEARS; i++)
		ASSERT_EQ(0, gpu.driver->MemsetD8Async(
				     (cuda_addr)bytes_of(buf), (uint8_t)i,
				     NR_PAGES * PAGE, stream));
	ASSERT_EQ(0, kvpool_fence(pool, stream));
	kvpool_buf_put(buf);
	TH_LOG("%d MiB drain", (int)(stat_of(pool).draining_bytes >> 20));
	/* Had it been unmapped at once, the device would have failed by now. */
	EXPECT_EQ(0, gpu.driver->StreamSynchronize(stream));
	for (int i = 0; i < 5000 && stat_of(pool).charged_bytes; i++)
		usleep(1000);
	EXPECT_EQ(0, stat_of(pool).charged_bytes);
	EXPECT_EQ(0, gpu.driver->StreamDestroy(stream));
	kvpool_put(pool);
}

/* ---- between processes ---- */

static int import_and_look(int sock)
{
	struct kvpool_buf *buf;
	int fd = receive_fd(sock);

	if (fd < 0 || !have_gpu())
		return 1;
	struct kvpool *pool = open_gpu(64 << 20, 0);
	double start = now_us();

	if (kvpool_buf_import(pool, fd, &buf))
		return 2;
	TH_LOG("attached to 1 GiB in %.1f ms", (now_us() - start) / 1e3);
	expect_page(buf, 0, 11);
	expect_page(buf, 511, 22);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	return 0;
}

TEST_TIMEOUT(another_process_reads_what_was_published, 120)
{
	struct kvpool_mark mark;
	int socks[2], status = -1;

	/* No process forks with a GPU: the other one is there first. */
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	pid_t pid = fork();

	if (!pid) {
		close(socks[0]);
		_exit(import_and_look(socks[1]));
	}
	close(socks[1]);
	if (!have_gpu()) {
		close(socks[0]);
		waitpid(pid, &status, 0);
		SKIP(return, "%s", why_not);
	}
	struct kvpool *pool = open_gpu(4ull << 30, 0);
	struct kvpool_buf *buf = create_ok(pool, 512);

	ASSERT_EQ(0, commit(buf, 0, 512));
	put_page(buf, 0, 11);
	put_page(buf, 511, 22);
	mark = (struct kvpool_mark){ key_of(1), 512 * PAGE };
	ASSERT_EQ(0, kvpool_buf_seal(buf, 512 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	int fd = kvpool_buf_export(buf);

	ASSERT_GE(fd, 0);
	send_fd(socks[0], fd);
	close(fd);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	close(socks[0]);
	expect_page(buf, 511, 22);
	kvpool_buf_unpublish(buf);
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

TEST_HARNESS_MAIN
