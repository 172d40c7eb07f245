/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep of failing allocations: each sequence runs with its 1st, 2nd, 3rd...
 * allocation failing until it passes clean. It looks for crashes, leaks and
 * changed state, not for meaning: a call answers 0 or ENOMEM, an error has
 * changed nothing, and the same call succeeds afterwards. The injector counts
 * copies from and to the user too: the last one of a call may be the one that
 * fails, after all is done, so EFAULT says nothing about the state. Needs a
 * kernel with FAILSLAB, FAIL_PAGE_ALLOC and FAULT_INJECTION_DEBUG_FS.
 */
#include "tests/kmod/kit.h"

enum { NR_MOST = 5000, BUF_BYTES = 4 * MIB };

static int fail_nth_fd = -1;

/* The injector must not leave out the allocations that may sleep. */
static int set_up_injector(void)
{
	static const char dir[] = "/sys/kernel/debug/";
	static const char *const knobs[][2] = {
		{ "failslab/ignore-gfp-wait", "N" },
		{ "failslab/cache-filter", "N" },
		{ "failslab/verbose", "0" },
		{ "fail_page_alloc/ignore-gfp-wait", "N" },
		{ "fail_page_alloc/ignore-gfp-highmem", "N" },
		{ "fail_page_alloc/min-order", "0" },
		{ "fail_page_alloc/verbose", "0" },
		{ "fail_usercopy/verbose", "0" },
	};
	char path[128];
	int err;

	for (size_t i = 0; i < sizeof(knobs) / sizeof(*knobs); i++) {
		snprintf(path, sizeof(path), "%s%s", dir, knobs[i][0]);
		err = file_write(path, knobs[i][1]);
		if (err)
			return err;
	}
	snprintf(path, sizeof(path), "/proc/self/task/%d/fail-nth",
		 (int)syscall(SYS_gettid));
	fail_nth_fd = open(path, O_RDWR | O_CLOEXEC);
	return fail_nth_fd < 0 ? -errno : 0;
}

static void arm(int nth)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", nth);
	ASSERT_EQ(strlen(text), write(fail_nth_fd, text, strlen(text)));
}

/*
 * Ends the injection. These two calls copy memory of the user, which the
 * injector counts as well: it may be they that fail.
 * Return: whether something of what was before was made to fail.
 */
static bool disarm(void)
{
	char text[16] = { 0 };
	ssize_t nr = pread(fail_nth_fd, text, sizeof(text) - 1, 0);

	while (pwrite(fail_nth_fd, "0", 1, 0) != 1)
		ASSERT_EQ(EFAULT, errno);
	return nr > 0 && atoi(text) == 0;
}

FIXTURE(fail)
{
	int dev, pool, buf, sealed;
	uint8_t name[KVPOOL_NAME_SIZE];
	uint64_t id;
	uint8_t *at; /* the buffer, writable */
	int new_fd; /* what the call has made, or -1 */
};

FIXTURE_VARIANT(fail)
{
	int (*call)(struct fixture_fail * self);
	int step; /* behind the first 64; 0: every allocation */
};

/* ---- the sequences ------------------------------------------------------- */

static int call_pool_create(struct fixture_fail *self)
{
	struct kvpool_pool_create args = pool_args(MIB);
	int err;

	name_pool(&args, "failing");
	err = kit_call(self->dev, KVPOOL_POOL_CREATE, &args);
	if (!err)
		self->new_fd = args.out_fd;
	return err;
}

static int call_pool_open(struct fixture_fail *self)
{
	return _pool_open(self->dev, self->name, KVPOOL_WRITE, &self->new_fd);
}

static int call_buf_create(struct fixture_fail *self)
{
	return _buf_create(self->pool, MIB, 0, &self->new_fd, NULL);
}

static int call_buf_open(struct fixture_fail *self)
{
	return _buf_open(self->pool, self->id, KVPOOL_READ, &self->new_fd);
}

static int call_lookup(struct fixture_fail *self)
{
	struct kvpool_buf_lookup found;
	int err = _buf_lookup(self->pool, 1, &found);

	if (!err)
		self->new_fd = found.out_fd;
	return err;
}

static int call_commit(struct fixture_fail *self)
{
	return _buf_commit(self->buf, 0, 64 * PAGE);
}

static int call_commit_huge(struct fixture_fail *self)
{
	return _buf_commit(self->buf, 2 * MIB, 2 * MIB);
}

static int call_touch(struct fixture_fail *self)
{
	/* A signal is the answer of a fault that got no page. */
	return _touch(self->at + MIB, NULL) ? -ENOMEM : 0;
}

static int call_release_part(struct fixture_fail *self)
{
	uint64_t done;

	return _buf_release(self->buf, 2 * MIB + PAGE, PAGE, &done);
}

static int call_seal(struct fixture_fail *self)
{
	return _buf_seal(self->buf, PAGE, NULL);
}

static int call_clone(struct fixture_fail *self)
{
	struct kvpool_buf_clone args =
		clone_args(self->pool, 4 * PAGE, 8 * PAGE);
	int err = _buf_clone(self->sealed, &args);

	if (!err)
		self->new_fd = args.out_fd;
	return err;
}

static int call_publish(struct fixture_fail *self)
{
	struct kvpool_mark marks[8];

	for (int i = 0; i < 8; i++)
		marks[i] = mark_of(10 + i, PAGE);
	return _buf_publish(self->sealed, marks, 8);
}

static int call_unpublish(struct fixture_fail *self)
{
	return _buf_unpublish(self->sealed);
}

static int call_map(struct fixture_fail *self)
{
	uint8_t *at = NULL;
	int err = _buf_map(self->buf, 0, BUF_BYTES, RW, MAP_SHARED, &at);

	/* It allocates as well. */
	while (!err && munmap(at, BUF_BYTES))
		ASSERT_EQ(ENOMEM, errno);
	return err;
}

static int call_advise(struct fixture_fail *self)
{
	int err = _buf_advise(self->buf, KVPOOL_ADVICE_VOLATILE, NULL);

	if (!err)
		err = _buf_advise(self->buf, KVPOOL_ADVICE_WILLNEED, NULL);
	return err;
}

static int call_revoke(struct fixture_fail *self)
{
	return _buf_revoke(self->buf, NULL);
}

static int call_set_quota(struct fixture_fail *self)
{
	static uint32_t uid = 5000;

	return _pool_set_quota(self->pool, uid++, MIB, MIB);
}

static int call_set_limit(struct fixture_fail *self)
{
	return _pool_set_limit(self->pool, POOL_BYTES);
}

static int call_open_device(struct fixture_fail *self)
{
	self->new_fd = open(KVPOOL_DEVICE, O_RDWR | O_CLOEXEC);
	return self->new_fd < 0 ? -errno : 0;
}

/* clang-format off */
#define SEQUENCE(name) \
	FIXTURE_VARIANT_ADD(fail, name) { .call = call_##name }
/* clang-format on */
SEQUENCE(open_device);
SEQUENCE(pool_create);
SEQUENCE(pool_open);
SEQUENCE(buf_create);
SEQUENCE(buf_open);
SEQUENCE(lookup);
SEQUENCE(commit);
SEQUENCE(commit_huge);
SEQUENCE(touch);
/* Some thousand allocations, nearly all of them one small page each. */
FIXTURE_VARIANT_ADD(fail, release_part){ .call = call_release_part,
					 .step = 41 };
SEQUENCE(seal);
SEQUENCE(clone);
SEQUENCE(publish);
SEQUENCE(unpublish);
SEQUENCE(map);
SEQUENCE(advise);
SEQUENCE(revoke);
SEQUENCE(set_quota);
SEQUENCE(set_limit);

FIXTURE_SETUP(fail)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	int err = set_up_injector();

	if (err)
		SKIP(return, "no fault injection in this kernel: %s",
			   strerror(-err));
}

FIXTURE_TEARDOWN(fail)
{
	close(fail_nth_fd);
	close(self->dev);
}

/* The pool and its buffers, as each round finds them. */
static void begin_round(struct fixture_fail *self)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);

	name_pool(&args, "fail");
	memcpy(self->name, args.name, sizeof(self->name));
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
	self->buf = buf_new_id(self->pool, BUF_BYTES, &self->id);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
	self->sealed = buf_sealed(self->pool, 4 * PAGE, 1);
	buf_publish_ok(self->sealed, 1, 4 * PAGE);
	self->new_fd = -1;
}

static void end_round(struct fixture_fail *self)
{
	munmap(self->at, BUF_BYTES);
	if (self->new_fd >= 0)
		close(self->new_fd);
	close(self->buf);
	close(self->sealed);
	close(self->pool);
}

static void expect_unchanged(int nth, const struct kvpool_pool_stat *before,
			     const struct kvpool_pool_stat *after)
{
	EXPECT_EQ(before->out_charged, after->out_charged)
	TH_LOG("allocation %d", nth);
	EXPECT_EQ(before->out_nr_bufs, after->out_nr_bufs)
	TH_LOG("allocation %d", nth);
	EXPECT_EQ(before->out_nr_keys, after->out_nr_keys)
	TH_LOG("allocation %d", nth);
	EXPECT_EQ(before->out_shared, after->out_shared)
	TH_LOG("allocation %d", nth);
	EXPECT_EQ(before->out_volatile, after->out_volatile)
	TH_LOG("allocation %d", nth);
}

TEST_F_TIMEOUT(fail, sweeps_clean, 600)
{
	int nth, nr_failed = 0;

	for (nth = 1; nth < NR_MOST;
	     nth += nth < 64 || !variant->step ? 1 : variant->step) {
		struct kvpool_pool_stat before, after;
		bool is_injected;
		int nr, err;

		begin_round(self);
		/* What RELEASE splits. */
		if (variant->call == call_release_part)
			buf_commit_ok(self->buf, 2 * MIB, 2 * MIB);
		nr = nr_fds();
		before = stat_of(self->pool);
		arm(nth);
		err = variant->call(self);
		is_injected = disarm();
		if (err) {
			nr_failed++;
			EXPECT_TRUE(is_injected);
			EXPECT_TRUE(err == -ENOMEM || err == -ENFILE ||
				    err == -EFAULT)
			TH_LOG("allocation %d: error %d", nth, err);
			EXPECT_EQ(nr, nr_fds());
			after = stat_of(self->pool);
			if (err != -EFAULT)
				expect_unchanged(nth, &before, &after);
			err = variant->call(self);
			/* Else done before the answer could not be written. */
			EXPECT_TRUE(!err || err == -EEXIST || err == -ENOENT)
			TH_LOG("again after allocation %d: %d", nth, err);
		}
		end_round(self);
		if (!is_injected)
			break;
	}
	EXPECT_LT(nth, NR_MOST);
	TH_LOG("up to %d allocations were made to fail, %d calls with them",
	       nth - 1, nr_failed);
	/* Else nothing was injected. */
	EXPECT_LT(1, nth);
}

TEST_HARNESS_MAIN
