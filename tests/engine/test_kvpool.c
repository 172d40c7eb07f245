/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool over each backend, one call at a time: what it does, each errno,
 * exact accounts, recycling, sealing, and the system failing at every nth call.
 * Publication, purging and events are in test_kvpool_share.c, what only the
 * kernel can do in test_kvpool_kernel.c.
 */
#include "tests/engine/kvpool_kit.h"

/* ---- pools ---- */

TEST(open_refuses_bad_options)
{
	struct kvpool_options good = options_of(1, 0), bad = good;
	struct kvpool *pool = (void *)1;
	char long_name[KVPOOL_NAME_BYTES + 1];

	memset(long_name, 'a', sizeof(long_name));
	long_name[KVPOOL_NAME_BYTES] = 0;
	EXPECT_EQ(-EINVAL, kvpool_open(NULL, &pool));
	EXPECT_EQ(-EINVAL, kvpool_open(&good, NULL));
	bad.limit_bytes = 0;
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	bad = good;
	bad.name = "shared";
	EXPECT_EQ(-EOPNOTSUPP, kvpool_open(&bad, &pool));
	bad.is_read_only = true;
	EXPECT_EQ(-EOPNOTSUPP, kvpool_open(&bad, &pool));
	bad.name = NULL;
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	bad = good;
	bad.name = long_name;
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	bad.name = "";
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	bad = good;
	bad.node_mask = 1ull << 63;
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	bad = good;
	bad.mode = 0700;
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	bad = good;
	bad.backend = (enum kvpool_backend)77;
	EXPECT_EQ(-EINVAL, kvpool_open(&bad, &pool));
	standin_install();
	standin.has_library = false;
	bad.backend = KVPOOL_BACKEND_CUDA;
	EXPECT_EQ(-ENODEV, kvpool_open(&bad, &pool));
	EXPECT_EQ(-EINVAL, kvpool_open_fd(-1, &pool));
	EXPECT_EQ(-EINVAL, kvpool_open_fd(0, &pool));
	EXPECT_EQ(-EINVAL, kvpool_open_fd(0, NULL));
	EXPECT_TRUE(pool == (void *)1);
}

TEST(options_of_other_sizes_are_taken_or_refused)
{
	struct {
		struct kvpool_options options;
		uint64_t later; /* a field that this library does not know */
	} grown = { .options = options_of(1, 0) };
	struct kvpool *pool = NULL;

	grown.options.size = 0;
	EXPECT_EQ(-EINVAL, kvpool_open(&grown.options, &pool));
	grown.options.size = offsetof(struct kvpool_options, is_read_only);
	EXPECT_EQ(-EINVAL, kvpool_open(&grown.options, &pool));
	grown.options.size = sizeof(grown);
	grown.later = 1;
	EXPECT_EQ(-E2BIG, kvpool_open(&grown.options, &pool));
	EXPECT_TRUE(pool == NULL);
	grown.later = 0;
	ASSERT_EQ(0, kvpool_open(&grown.options, &pool));
	EXPECT_EQ(PAGE, stat_of(pool).limit_bytes);
	kvpool_put(pool);
}

TEST(without_the_device_the_kernel_is_not_there)
{
	struct kvpool_options options = options_of(1, 0);
	struct kvpool_pool_info info;
	struct kvpool *pool;
	uint64_t id = 0;

	if (!access("/dev/kvpool", F_OK))
		SKIP(return, "/dev/kvpool is here");
	options.backend = KVPOOL_BACKEND_KERNEL;
	EXPECT_EQ(-ENODEV, kvpool_open(&options, &pool));
	EXPECT_EQ(-ENODEV, kvpool_next_pool(&id, &info));
	EXPECT_EQ(-EINVAL, kvpool_next_pool(NULL, &info));
	/* By itself the library takes memfd, but has nothing for a name. */
	options.backend = KVPOOL_BACKEND_AUTO;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	EXPECT_STREQ("memfd", kvpool_backend_name(pool));
	kvpool_put(pool);
	options.name = "shared";
	EXPECT_EQ(-EOPNOTSUPP, kvpool_open(&options, &pool));
}

static int refused_open(const char *path, int flags, ...)
{
	(void)path;
	(void)flags;
	errno = EACCES;
	return -1;
}

TEST(a_device_that_refuses_is_passed_over_unless_asked_for)
{
	struct kvpool_options options = options_of(1, 0);
	struct kvpool *pool;

	kvpool_sys.open = refused_open;
	options.backend = KVPOOL_BACKEND_AUTO;
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	EXPECT_STREQ("memfd", kvpool_backend_name(pool));
	kvpool_put(pool);
	/* Where memfd cannot serve, or was not asked for, the refusal is the answer. */
	options.name = "shared";
	EXPECT_EQ(-EACCES, kvpool_open(&options, &pool));
	options.name = NULL;
	options.backend = KVPOOL_BACKEND_KERNEL;
	EXPECT_EQ(-EACCES, kvpool_open(&options, &pool));
}

TEST_F(memfd_pool, says_what_it_cannot)
{
	struct kvpool_buf_stat stat;
	struct kvpool_buf *buf;
	uint64_t id = 0;

	EXPECT_STREQ("memfd", kvpool_backend_name(self->pool));
	EXPECT_EQ(KVPOOL_F_EXPORT, kvpool_features(self->pool));
	EXPECT_EQ(-EOPNOTSUPP, kvpool_set_quota(self->pool, 0, PAGE, PAGE));
	EXPECT_EQ(-EINVAL, kvpool_set_quota(NULL, 0, PAGE, PAGE));
	EXPECT_EQ(-EOPNOTSUPP, kvpool_pool_fd(self->pool));
	EXPECT_EQ(-EINVAL, kvpool_pool_fd(NULL));
	EXPECT_EQ(-EOPNOTSUPP, kvpool_next_buf(self->pool, &id, &stat));
	EXPECT_EQ(-EINVAL, kvpool_next_buf(self->pool, &id, NULL));
	EXPECT_EQ(-EOPNOTSUPP,
		  kvpool_buf_open(self->pool, kvpool_buf_id(self->buf), false,
				  &buf));
	EXPECT_EQ(-EOPNOTSUPP, kvpool_buf_revoke(self->buf));
	EXPECT_EQ(-EINVAL, kvpool_buf_revoke(NULL));
}

TEST_F(kvpool, nodes_may_be_named)
{
	struct kvpool_options options = options_of(8, 0);
	struct kvpool *pool;

	options.node_mask = 1;
	if (is_cuda()) {
		/* Its memory lies on no node of the host. */
		EXPECT_EQ(-EOPNOTSUPP, kvpool_open(&options, &pool));
		return;
	}
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	EXPECT_STREQ(is_kernel() ? "kernel" : "memfd",
		     kvpool_backend_name(pool));
	EXPECT_EQ(PAGE, kvpool_page_bytes(pool));
	struct kvpool_buf *buf = create_ok(pool, 4);

	EXPECT_EQ(0, commit(buf, 0, 4));
	kvpool_buf_put(buf);
	kvpool_put(pool);
	kvpool_put(NULL);
	options.node_mask = 1ull << 63;
	EXPECT_EQ(-EINVAL, kvpool_open(&options, &pool));
}

TEST_F(kvpool, each_pool_has_a_secret_of_its_own)
{
	uint8_t one[KVPOOL_KEY_BYTES] = { 0 }, again[KVPOOL_KEY_BYTES],
		other[KVPOOL_KEY_BYTES], none[KVPOOL_KEY_BYTES] = { 0 };
	struct kvpool *pool = open_ok(1, 0);

	EXPECT_EQ(0, kvpool_secret(self->pool, one));
	EXPECT_EQ(0, kvpool_secret(self->pool, again));
	EXPECT_EQ(0, kvpool_secret(pool, other));
	EXPECT_EQ(0, memcmp(one, again, sizeof(one)));
	EXPECT_NE(0, memcmp(one, other, sizeof(one)));
	EXPECT_NE(0, memcmp(one, none, sizeof(one)));
	EXPECT_EQ(-EINVAL, kvpool_secret(NULL, one));
	EXPECT_EQ(-EINVAL, kvpool_secret(pool, NULL));
	kvpool_put(pool);
}

TEST_F(kvpool, starts_empty)
{
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ(LIMIT_PAGES * PAGE, stat.limit_bytes);
	EXPECT_EQ(0, stat.resident_bytes);
	EXPECT_EQ(0, stat.spare_bytes);
	EXPECT_EQ(1, stat.nr_buffers);
	EXPECT_EQ(256 * PAGE, stat.virtual_bytes);
	EXPECT_EQ(256 * PAGE, kvpool_buf_size(self->buf));
	EXPECT_NE(0, kvpool_buf_id(self->buf));
	EXPECT_EQ(-EINVAL, kvpool_stat(NULL, &stat));
	EXPECT_EQ(-EINVAL, kvpool_stat(self->pool, NULL));
}

TEST_F(kvpool, buffers_keep_their_pool_alive)
{
	struct kvpool_buf *buf = create_ok(self->pool, 1);

	kvpool_buf_put(self->buf);
	self->buf = NULL;
	kvpool_put(self->pool);
	self->pool = NULL;
	EXPECT_EQ(0, commit(buf, 0, 1));
	memset(kvpool_buf_addr(buf), 1, PAGE);
	kvpool_buf_put(kvpool_buf_get(buf));
	kvpool_buf_put(buf);
}

/* ---- commit and release ---- */

TEST_F(kvpool, commit_counts_each_page_once)
{
	EXPECT_EQ(0, commit(self->buf, 3, 5));
	EXPECT_EQ(5 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, commit(self->buf, 3, 5));
	EXPECT_EQ(5 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, commit(self->buf, 0, 10));
	EXPECT_EQ(10 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(10, pages_of(self->buf));
	memset(kvpool_buf_addr(self->buf), 0xab, 10 * PAGE);
	EXPECT_EQ(10, pages_of(self->buf));
}

TEST_F(kvpool, release_gives_pages_back_to_the_system)
{
	uint8_t *addr = kvpool_buf_addr(self->buf);

	ASSERT_EQ(0, commit(self->buf, 0, 10));
	memset(addr, 0xab, 10 * PAGE);
	EXPECT_EQ(0, kvpool_buf_release(self->buf, 2 * PAGE, 3 * PAGE));
	EXPECT_EQ(7 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(7, pages_of(self->buf));
	EXPECT_EQ(0xab, addr[2 * PAGE - 1]);
	EXPECT_EQ(0xab, addr[5 * PAGE]);
	EXPECT_EQ(0, kvpool_buf_release(self->buf, 0, 256 * PAGE));
	EXPECT_EQ(0, pages_of(self->buf));
	EXPECT_EQ(0, stat_of(self->pool).resident_bytes);
}

TEST_F(kvpool, ranges_are_checked)
{
	EXPECT_EQ(-EINVAL, kvpool_buf_commit(NULL, 0, PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_commit(self->buf, 0, 0));
	EXPECT_EQ(-EINVAL, kvpool_buf_commit(self->buf, 1, PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_commit(self->buf, 0, PAGE + 1));
	EXPECT_EQ(-EINVAL, kvpool_buf_commit(self->buf, 256 * PAGE, PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_commit(self->buf, 255 * PAGE, 2 * PAGE));
	EXPECT_EQ(-EINVAL,
		  kvpool_buf_commit(self->buf, UINT64_MAX - PAGE + 1, PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_release(self->buf, 0, 257 * PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_create(self->pool, 0, 0,
					     &(struct kvpool_buf *){ NULL }));
	EXPECT_EQ(-EINVAL, kvpool_buf_create(self->pool, 100, 0,
					     &(struct kvpool_buf *){ NULL }));
	EXPECT_EQ(-EINVAL, kvpool_buf_create(self->pool, PAGE, 0, NULL));
	EXPECT_EQ(-EINVAL, kvpool_buf_create(NULL, PAGE, 0,
					     &(struct kvpool_buf *){ NULL }));
	EXPECT_EQ(0, stat_of(self->pool).resident_bytes);
}

TEST_F(kvpool, the_limit_is_exact_and_an_error_not_a_signal)
{
	ASSERT_EQ(0, commit(self->buf, 0, LIMIT_PAGES - 1));
	EXPECT_EQ(-ENOSPC, commit(self->buf, LIMIT_PAGES - 1, 2));
	EXPECT_EQ((LIMIT_PAGES - 1) * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, commit(self->buf, 200, 1));
	EXPECT_EQ(-ENOSPC, commit(self->buf, 100, 1));
	EXPECT_EQ(LIMIT_PAGES * PAGE, stat_of(self->pool).peak_resident_bytes);
	/* Pages that are there already need nothing. */
	EXPECT_EQ(0, commit(self->buf, 0, LIMIT_PAGES - 1));
}

/* ---- spare pages ---- */

TEST_F(memfd_pool, a_buffer_gone_leaves_its_pages_to_the_next)
{
	struct kvpool_buf *buf = create_ok(self->pool, 100);
	void *addr = kvpool_buf_addr(buf);
	uint64_t id = kvpool_buf_id(buf);

	ASSERT_EQ(0, commit(buf, 0, 12));
	kvpool_buf_put(buf);
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ(0, stat.resident_bytes);
	EXPECT_EQ(12 * PAGE, stat.spare_bytes);
	EXPECT_EQ(1, stat.nr_buffers);

	/* A size of the same class: the same memory, under another id. */
	buf = create_ok(self->pool, 99);
	EXPECT_TRUE(addr == kvpool_buf_addr(buf));
	EXPECT_NE(id, kvpool_buf_id(buf));
	EXPECT_EQ(12 * PAGE, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(0, commit(buf, 0, 3));
	stat = stat_of(self->pool);
	EXPECT_EQ(3 * PAGE, stat.resident_bytes);
	EXPECT_EQ(9 * PAGE, stat.spare_bytes);
	EXPECT_EQ(12, pages_of(buf));
	kvpool_buf_put(buf);
}

TEST_F(memfd_pool, spare_pages_are_capped)
{
	struct kvpool_buf *buf = create_ok(self->pool, 100);

	ASSERT_EQ(0, commit(buf, 0, 40));
	kvpool_buf_put(buf);
	EXPECT_EQ(SPARE_PAGES * PAGE, stat_of(self->pool).spare_bytes);
	/* What stays is the front, where the next content begins. */
	buf = create_ok(self->pool, 100);
	EXPECT_EQ(SPARE_PAGES, pages_of(buf));
	EXPECT_EQ(0, commit(buf, 0, SPARE_PAGES));
	EXPECT_EQ(0, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(SPARE_PAGES, pages_of(buf));
	kvpool_buf_put(buf);
}

TEST_F(memfd_pool, spare_pages_go_before_a_commit_is_refused)
{
	struct kvpool_buf *buf = create_ok(self->pool, 100);

	ASSERT_EQ(0, commit(buf, 0, SPARE_PAGES));
	kvpool_buf_put(buf);
	EXPECT_EQ(0, commit(self->buf, 0, LIMIT_PAGES));
	EXPECT_EQ(0, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(-ENOSPC, commit(self->buf, LIMIT_PAGES, 1));
}

TEST_F(memfd_pool, a_buffer_uses_its_own_spare_pages_at_the_limit)
{
	struct kvpool_buf *buf = create_ok(self->pool, 100);

	ASSERT_EQ(0, commit(buf, 0, SPARE_PAGES));
	kvpool_buf_put(buf);
	buf = create_ok(self->pool, 100);
	ASSERT_EQ(0, commit(self->buf, 0, LIMIT_PAGES - SPARE_PAGES));
	/* 8 spare pages wanted and 4 new: the other 8 spare ones make room. */
	EXPECT_EQ(0, commit(buf, 8, 12));
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ((LIMIT_PAGES - SPARE_PAGES + 12) * PAGE, stat.resident_bytes);
	EXPECT_EQ(4 * PAGE, stat.spare_bytes);
	EXPECT_EQ(16, pages_of(buf));
	kvpool_buf_put(buf);
}

TEST_F(memfd_pool, trim_gives_spare_pages_back)
{
	struct kvpool_buf *buf = create_ok(self->pool, 100);

	ASSERT_EQ(0, commit(buf, 0, 10));
	kvpool_buf_put(buf);
	EXPECT_EQ(4 * PAGE, kvpool_trim(self->pool, 4 * PAGE));
	EXPECT_EQ(6 * PAGE, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(6 * PAGE, kvpool_trim(self->pool, UINT64_MAX));
	EXPECT_EQ(0, kvpool_trim(self->pool, PAGE));
	EXPECT_EQ(0, kvpool_trim(NULL, PAGE));
}

TEST_F(memfd_pool, lowering_the_limit_takes_spare_then_volatile_then_is_busy)
{
	struct kvpool_buf *spare = create_ok(self->pool, 100),
			  *old = create_ok(self->pool, 50);

	ASSERT_EQ(0, commit(spare, 0, 10));
	kvpool_buf_put(spare);
	ASSERT_EQ(0, commit(self->buf, 0, 20));
	ASSERT_EQ(0, commit(old, 0, 20));
	ASSERT_EQ(0, kvpool_buf_advise(old, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(-EINVAL, kvpool_set_limit(self->pool, 0));
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 45 * PAGE));
	EXPECT_EQ(5 * PAGE, stat_of(self->pool).spare_bytes);
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 40 * PAGE));
	EXPECT_EQ(40 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 39 * PAGE));
	EXPECT_EQ(20 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(-EBUSY, kvpool_set_limit(self->pool, 19 * PAGE));
	EXPECT_EQ(-ENOSPC, commit(self->buf, 20, 1));
	EXPECT_EQ(0, kvpool_buf_release(self->buf, 0, 2 * PAGE));
	EXPECT_EQ(0, commit(self->buf, 0, 1));
	kvpool_buf_put(old);
}

TEST_F(kvpool, lowering_the_limit_takes_volatile_memory_then_is_busy)
{
	struct kvpool_buf *old = create_ok(self->pool, 50);

	ASSERT_EQ(0, commit(self->buf, 0, 20));
	ASSERT_EQ(0, commit(old, 0, 20));
	ASSERT_EQ(0, kvpool_buf_advise(old, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(-EINVAL, kvpool_set_limit(self->pool, 0));
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 40 * PAGE));
	EXPECT_EQ(40 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 39 * PAGE));
	EXPECT_EQ(20 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(-EBUSY, kvpool_set_limit(self->pool, 19 * PAGE));
	EXPECT_EQ(-ENOSPC, commit(self->buf, 20, 1));
	EXPECT_EQ(0, kvpool_buf_release(self->buf, 0, 2 * PAGE));
	EXPECT_EQ(0, commit(self->buf, 0, 1));
	kvpool_buf_put(old);
}

/* ---- sealing and cloning ---- */

TEST_F(kvpool, seal_zeroes_the_rest_of_the_page_and_holds)
{
	uint8_t *addr = kvpool_buf_addr(self->buf);
	struct kvpool_buf_stat stat;

	ASSERT_EQ(0, commit(self->buf, 0, 4));
	memset(addr, 0xab, 4 * PAGE);
	EXPECT_EQ(0, kvpool_buf_seal(self->buf, PAGE + 10));
	EXPECT_EQ(0xab, addr[PAGE + 9]);
	EXPECT_EQ(0, addr[PAGE + 10]);
	EXPECT_EQ(0, addr[2 * PAGE - 1]);
	EXPECT_EQ(0xab, addr[2 * PAGE]);
	ASSERT_EQ(0, kvpool_buf_stat(self->buf, &stat));
	EXPECT_EQ(2 * PAGE, stat.sealed_bytes);
	EXPECT_EQ(-EPERM, kvpool_buf_release(self->buf, 0, PAGE));
	EXPECT_EQ(-EPERM, commit(self->buf, 1, 2));
	EXPECT_EQ(0, commit(self->buf, 2, 4));
	EXPECT_EQ(0, kvpool_buf_release(self->buf, 2 * PAGE, PAGE));
	EXPECT_EQ(-EPERM, kvpool_buf_seal(self->buf, PAGE));
	EXPECT_EQ(0, kvpool_buf_seal(self->buf, PAGE + 10));
	EXPECT_EQ(0, kvpool_buf_seal(self->buf, 5 * PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_seal(self->buf, 257 * PAGE));
	EXPECT_EQ(-EINVAL, kvpool_buf_seal(NULL, 1));
}

TEST_F(kvpool, clone_copies_what_is_committed)
{
	uint8_t *addr = kvpool_buf_addr(self->buf);
	struct kvpool_buf *copy = NULL;
	struct kvpool_buf_stat stat;

	ASSERT_EQ(0, commit(self->buf, 0, 3));
	memset(addr, 0x5a, 3 * PAGE);
	ASSERT_EQ(0, kvpool_buf_clone(self->buf, 2 * PAGE + 7, 10 * PAGE, 77,
				      &copy));
	EXPECT_EQ(0, memcmp(addr, kvpool_buf_addr(copy), 2 * PAGE + 7));
	addr[0] = 1;
	EXPECT_EQ(0x5a, *(uint8_t *)kvpool_buf_addr(copy));
	ASSERT_EQ(0, kvpool_buf_stat(copy, &stat));
	EXPECT_EQ(3 * PAGE, stat.resident_bytes);
	EXPECT_EQ(10 * PAGE, stat.size_bytes);
	EXPECT_EQ(77, stat.owner);
	kvpool_buf_put(copy);
	if (is_kernel()) {
		/* The page that is not there is a hole in the clone too. */
		EXPECT_EQ(0, kvpool_buf_clone(self->buf, 4 * PAGE, 10 * PAGE, 0,
					      &copy));
		EXPECT_EQ(3, pages_of(copy));
		kvpool_buf_put(copy);
	} else {
		EXPECT_EQ(-ERANGE, kvpool_buf_clone(self->buf, 4 * PAGE,
						    10 * PAGE, 0, &copy));
	}
	EXPECT_EQ(-EINVAL,
		  kvpool_buf_clone(self->buf, 2 * PAGE, PAGE, 0, &copy));
	EXPECT_EQ(-EINVAL, kvpool_buf_clone(self->buf, 0, PAGE, 0, &copy));
	ASSERT_EQ(0, commit(self->buf, 0, 40));
	EXPECT_EQ(-ENOSPC,
		  kvpool_buf_clone(self->buf, 40 * PAGE, 40 * PAGE, 0, &copy));
	EXPECT_EQ(1, stat_of(self->pool).nr_buffers);
}

/* ---- the system fails ---- */

static struct {
	struct kvpool_sys real;
	/* Calls until one fails; below 0: none does. The library's threads call too. */
	atomic_int left;
	atomic_bool has_failed;
	cuda_status status; /* what the driver answers then */
} faults;

static bool fails_now(int error)
{
	if (atomic_load(&faults.left) < 0 ||
	    atomic_fetch_sub(&faults.left, 1) > 0)
		return false;
	faults.has_failed = true;
	errno = error;
	return true;
}

static int failing_memfd_create(const char *name, unsigned int flags)
{
	return fails_now(EMFILE) ? -1 : faults.real.memfd_create(name, flags);
}

static int failing_fallocate(int fd, int mode, off_t offset, off_t len)
{
	return fails_now(ENOMEM) ? -1 :
				   faults.real.fallocate(fd, mode, offset, len);
}

static void *failing_mmap(void *addr, size_t len, int prot, int flags, int fd,
			  off_t offset)
{
	return fails_now(ENOMEM) ?
		       MAP_FAILED :
		       faults.real.mmap(addr, len, prot, flags, fd, offset);
}

static int failing_open(const char *path, int flags, ...)
{
	return fails_now(EMFILE) ? -1 : faults.real.open(path, flags);
}

static int failing_add_seals(int fd, int seals)
{
	return fails_now(EBUSY) ? -1 : faults.real.add_seals(fd, seals);
}

static int failing_ioctl(int fd, unsigned long request, void *arg)
{
	return fails_now(ENOMEM) ? -1 : faults.real.ioctl(fd, request, arg);
}

static int failing_mprotect(void *addr, size_t len, int prot)
{
	return fails_now(ENOMEM) ? -1 : faults.real.mprotect(addr, len, prot);
}

static void *failing_calloc(size_t nr, size_t size)
{
	return fails_now(ENOMEM) ? NULL : faults.real.calloc(nr, size);
}

static cuda_status failing_driver(const char *name)
{
	(void)name;
	return fails_now(EIO) ? faults.status : CUDA_OK;
}

/* Numbers are asked for without failing. */
static struct kvpool_stat quiet_stat_of(struct kvpool *pool)
{
	int left = faults.left;

	faults.left = -1;
	struct kvpool_stat stat = stat_of(pool);

	faults.left = left;
	return stat;
}

/* Ten committed pages of 0x77, as they go to the next ones. Return: whether all of it worked. */
static bool share_everything(struct kvpool *pool, struct kvpool_buf *buf)
{
	struct kvpool_mark mark = { key_of(5), 2 * PAGE };
	struct kvpool_buf *found = NULL;
	struct kvpool_key key = key_of(5);
	uint64_t n;

	if (kvpool_buf_seal(buf, 2 * PAGE)) {
		/* Not sealed: it can still be written, all of it. */
		bytes_of(buf)[0] = 0x77;
		return false;
	}
	int err = kvpool_buf_publish(buf, &mark, 1);

	EXPECT_EQ(0x77, bytes_of(buf)[0]);
	if (err) {
		EXPECT_EQ(0, quiet_stat_of(pool).nr_keys);
		if (!commit(buf, 3, 1))
			bytes_of(buf)[3 * PAGE] = 1;
		return false;
	}
	bool is_whole = !kvpool_lookup(pool, &key, &found, &n, NULL);

	if (is_whole)
		EXPECT_EQ(0x77, bytes_of(found)[0]);
	is_whole = !kvpool_buf_unpublish(buf) && is_whole;
	kvpool_buf_put(found);
	return is_whole;
}

/* Everything once. Return: whether all of it worked; what did not must have changed nothing. */
static bool use_everything(struct kvpool *pool)
{
	struct kvpool_buf *buf, *copy = NULL;
	bool is_whole = true;
	int err = kvpool_buf_create(pool, 50 * PAGE, 0, &buf);

	if (err) {
		EXPECT_TRUE(err == -ENOMEM || err == -EMFILE);
		return false;
	}
	is_whole = is_whole && !commit(buf, 4, 2);
	uint64_t before = quiet_stat_of(pool).resident_bytes;

	if (commit(buf, 0, 10)) {
		/* All or nothing, around pages that were there. */
		EXPECT_EQ(before, quiet_stat_of(pool).resident_bytes);
		if (!is_kernel())
			EXPECT_EQ(before / PAGE, pages_of(buf));
		is_whole = false;
	} else {
		memset(bytes_of(buf), 0x77, 10 * PAGE);
		is_whole = is_whole &&
			   !kvpool_buf_release(buf, 8 * PAGE, 2 * PAGE);
		is_whole = is_whole &&
			   !kvpool_buf_clone(buf, 3 * PAGE, 5 * PAGE, 0, &copy);
		is_whole = share_everything(pool, buf) && is_whole;
	}
	/* A key that an injected failure left would keep the memory. */
	int left = faults.left;

	faults.left = -1;
	kvpool_buf_unpublish(buf);
	faults.left = left;
	kvpool_buf_put(copy);
	kvpool_buf_put(buf);
	return is_whole;
}

TEST_F(kvpool, every_nth_failure_leaves_exact_accounts)
{
	int nth = 0;

	faults.real = kvpool_sys;
	faults.left = -1;
	kvpool_sys = (struct kvpool_sys){
		.memfd_create = failing_memfd_create,
		.fallocate = failing_fallocate,
		.mmap = failing_mmap,
		.open = failing_open,
		.add_seals = failing_add_seals,
		.ioctl = failing_ioctl,
		.mprotect = failing_mprotect,
		.calloc = failing_calloc,
	};
	standin.fail = failing_driver;
	for (;; nth++) {
		struct kvpool *pool =
			open_ok(LIMIT_PAGES, nth % 2 ? SPARE_PAGES : 0);

		faults.status = nth / 2 % 2 ? CUDA_OUT_OF_MEMORY :
					      CUDA_ILLEGAL_ADDRESS;
		faults.left = nth;
		faults.has_failed = false;
		use_everything(pool);
		faults.left = -1;
		bool has_failed = faults.has_failed;

		EXPECT_EQ(0, stat_of(pool).resident_bytes);
		EXPECT_EQ(0, stat_of(pool).nr_buffers);
		EXPECT_EQ(0, stat_of(pool).virtual_bytes);
		EXPECT_EQ(0, stat_of(pool).nr_keys);
		/* The pool works on as if nothing had been. */
		EXPECT_TRUE(use_everything(pool))
		{
			TH_LOG("after failure %d", nth);
		}
		kvpool_put(pool);
		EXPECT_EQ(0, standin_counts().mappings);
		EXPECT_EQ(0, standin_counts().used_bytes);
		if (!has_failed)
			break;
	}
	kvpool_sys = faults.real;
	standin.fail = NULL;
	EXPECT_GT(nth, 15);
	TH_LOG("%d calls failed in turn", nth);
}

TEST_F(memfd_pool, a_file_size_limit_is_an_error_not_a_signal)
{
	struct rlimit limit = { 10 * PAGE, 10 * PAGE };
	struct kvpool *pool = open_ok(LIMIT_PAGES, 0);
	struct kvpool_buf *buf;

	ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
	EXPECT_EQ(-ENOMEM, kvpool_buf_create(pool, 20 * PAGE, 0, &buf));
	kvpool_put(pool);
}

TEST_F(kvpool, a_quarter_of_the_descriptors_stays_for_others)
{
	enum { NR_FDS = 64, NR_OTHERS = NR_FDS / 4 };
	if (is_cuda())
		SKIP(return, "its buffers hold no descriptors");
	struct rlimit limit = { NR_FDS, NR_FDS };
	struct kvpool *pool = open_ok(2 * NR_FDS, 0);
	struct kvpool_buf *bufs[NR_FDS];
	int nr = 0, others[NR_OTHERS], err;

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	while ((err = kvpool_buf_create(pool, PAGE, 0, &bufs[nr])) == 0)
		ASSERT_LT(++nr, NR_FDS);
	EXPECT_EQ(-EMFILE, err);
	EXPECT_GT(nr, NR_FDS / 2);
	for (int i = 0; i < NR_OTHERS; i++) {
		others[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		EXPECT_GE(others[i], 0);
	}
	for (int i = 0; i < NR_OTHERS; i++)
		close(others[i]);
	/* One given back is one to be had. */
	kvpool_buf_put(bufs[--nr]);
	EXPECT_EQ(0, kvpool_buf_create(pool, PAGE, 0, &bufs[nr]));
	while (nr >= 0)
		kvpool_buf_put(bufs[nr--]);
	kvpool_put(pool);
}

/* ---- threads ---- */

static void *commit_and_release(void *arg)
{
	struct kvpool *pool = arg;

	for (int i = 0; i < 300; i++) {
		struct kvpool_buf *buf = create_ok(pool, 30);
		int err = commit(buf, 0, 20);

		ASSERT_TRUE(err == 0 || err == -ENOSPC);
		if (!err) {
			memset(kvpool_buf_addr(buf), i, 20 * PAGE);
			ASSERT_EQ(0,
				  kvpool_buf_release(buf, 5 * PAGE, 5 * PAGE));
			ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_VOLATILE,
						       NULL));
			bool survived;

			ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_WILLNEED,
						       &survived));
		}
		kvpool_buf_put(buf);
	}
	return NULL;
}

TEST_F_TIMEOUT(kvpool, threads_share_a_pool_that_is_too_small_for_them, 120)
{
	struct kvpool *pool = open_ok(50, is_kernel() ? 0 : 25);
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL,
					    commit_and_release, pool));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	EXPECT_EQ(0, stat_of(pool).resident_bytes);
	EXPECT_EQ(0, stat_of(pool).nr_buffers);
	EXPECT_TRUE(stat_of(pool).spare_bytes <= 25 * PAGE);
	kvpool_put(pool);
}

TEST_HARNESS_MAIN
