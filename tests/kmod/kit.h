/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the kernel module: one trio per ioctl of uapi/kvpool.h.
 * _x() makes the call and answers 0 or -errno, x_ok() asserts success,
 * x_err(errno, ...) expects that error. Outputs are poisoned before each call,
 * so that one which was not written is seen. Without /dev/kvpool every test of
 * the fixture `pool` is skipped. Included by test programs only.
 */
#ifndef TARN_TESTS_KMOD_KIT_H
#define TARN_TESTS_KMOD_KIT_H

#include "tests/kmod/kit_task.h"
#include "uapi/kvpool.h"

enum {
	POISON_FD = -0x5a5a,
	POISON_BYTE = 0xcc,
	POOL_BYTES = 64 * MIB, /* limit of the fixture's pool */
};

static const uint64_t POISON = 0xcccccccccccccccc;

static inline int kit_call(int fd, unsigned long command, void *arg)
{
	return ioctl(fd, command, arg) < 0 ? -errno : 0;
}

/* ---- the device ---------------------------------------------------------- */

static inline int _info(int dev, struct kvpool_info *out)
{
	memset(out, POISON_BYTE, sizeof(*out));
	out->size = sizeof(*out);
	out->flags = 0;
	out->__reserved = 0;
	return kit_call(dev, KVPOOL_INFO, out);
}

#define info_ok(dev, out) ASSERT_EQ(0, _info(dev, out))

/* A pool without name, quotas and reserve, of every order and node. */
static inline struct kvpool_pool_create pool_args(uint64_t limit)
{
	return (struct kvpool_pool_create){
		.size = sizeof(struct kvpool_pool_create),
		.flags = KVPOOL_POOL_NO_ORDER,
		.limit = limit,
		.quota = KVPOOL_UNLIMITED,
		.shared_quota = KVPOOL_UNLIMITED,
		.mode = 0600,
	};
}

/* A name that no other test program has at this moment. */
static inline void name_pool(struct kvpool_pool_create *args, const char *stem)
{
	memset(args->name, 0, sizeof(args->name));
	snprintf((char *)args->name, sizeof(args->name), "test-%d-%s",
		 (int)getpid(), stem);
}

static inline int _pool_create(int dev, struct kvpool_pool_create *args)
{
	int err;

	args->out_fd = POISON_FD;
	err = kit_call(dev, KVPOOL_POOL_CREATE, args);
	if (err)
		EXPECT_EQ(POISON_FD, args->out_fd);
	return err;
}

#define pool_create_ok(dev, args) ASSERT_EQ(0, _pool_create(dev, args))
#define pool_create_err(err, dev, args) \
	EXPECT_EQ(-(err), _pool_create(dev, args))

/* Return: a descriptor of a new pool without name. */
static inline int pool_new(int dev, uint64_t limit)
{
	struct kvpool_pool_create args = pool_args(limit);

	pool_create_ok(dev, &args);
	return args.out_fd;
}

/* One of single pages: every byte of its figures can be foretold. */
static inline int pool_new_small(int dev, uint64_t limit)
{
	struct kvpool_pool_create args = pool_args(limit);

	args.flags = 0;
	pool_create_ok(dev, &args);
	return args.out_fd;
}

static inline int _pool_open(int dev, const uint8_t *name, uint32_t flags,
			     int *out_fd)
{
	struct kvpool_pool_open args = { .size = sizeof(args),
					 .flags = flags,
					 .out_fd = POISON_FD };
	int err;

	memcpy(args.name, name, sizeof(args.name));
	err = kit_call(dev, KVPOOL_POOL_OPEN, &args);
	if (err)
		EXPECT_EQ(POISON_FD, args.out_fd);
	*out_fd = args.out_fd;
	return err;
}

#define pool_open_ok(dev, name, flags, out_fd) \
	ASSERT_EQ(0, _pool_open(dev, name, flags, out_fd))
#define pool_open_err(err, dev, name, flags)                            \
	do {                                                            \
		int pool_open_fd_;                                      \
		EXPECT_EQ(-(err),                                       \
			  _pool_open(dev, name, flags, &pool_open_fd_)) \
		close(pool_open_fd_);                                   \
	} while (0)

static inline int _pool_next(int dev, uint64_t id, struct kvpool_pool_next *out)
{
	memset(out, POISON_BYTE, sizeof(*out));
	out->size = sizeof(*out);
	out->flags = 0;
	out->id = id;
	return kit_call(dev, KVPOOL_POOL_NEXT, out);
}

/* ---- a pool -------------------------------------------------------------- */

static inline int _pool_stat(int pool, uint32_t uid,
			     struct kvpool_pool_stat *out)
{
	memset(out, POISON_BYTE, sizeof(*out));
	out->size = sizeof(*out);
	out->flags = 0;
	out->uid = uid;
	out->__reserved = 0;
	return kit_call(pool, KVPOOL_POOL_STAT, out);
}

/*
 * The whole pool's reading, which must agree with itself. What is charged may be
 * more than what is held: pages are charged before they are allocated.
 */
static inline struct kvpool_pool_stat stat_of(int pool)
{
	struct kvpool_pool_stat s;

	ASSERT_EQ(0, _pool_stat(pool, KVPOOL_NO_UID, &s));
	EXPECT_GE(s.out_charged,
		  s.out_resident + s.out_draining + s.out_reserve);
	EXPECT_LE(s.out_shared, s.out_resident);
	EXPECT_LE(s.out_volatile, s.out_resident);
	EXPECT_LE(s.out_huge, s.out_resident);
	EXPECT_LE(s.out_charged, s.out_peak);
	return s;
}

static inline struct kvpool_pool_stat stat_of_uid(int pool, uint32_t uid)
{
	struct kvpool_pool_stat s;

	ASSERT_EQ(0, _pool_stat(pool, uid, &s));
	return s;
}

static inline uint64_t charged(int pool)
{
	return stat_of(pool).out_charged;
}

/* The same of a pool in which nothing happens: then it is the sum. */
static inline uint64_t charged_at_rest(int pool)
{
	struct kvpool_pool_stat s = stat_of(pool);

	EXPECT_EQ(s.out_charged,
		  s.out_resident + s.out_draining + s.out_reserve);
	return s.out_charged;
}

/* Waits up to 10 s until the pool is charged so much. Return: what it is then. */
static inline uint64_t charged_in_time(int pool, uint64_t wanted)
{
	uint64_t seen = charged(pool);

	for (int i = 0; i < 500 && seen != wanted; i++) {
		sleep_ms(20);
		seen = charged(pool);
	}
	return seen;
}

#define charged_ok(pool, wanted) EXPECT_EQ(wanted, charged_at_rest(pool))
#define drained_ok(pool, wanted) \
	EXPECT_EQ(wanted, charged_in_time(pool, wanted))

static inline int _pool_set_limit(int pool, uint64_t limit)
{
	struct kvpool_pool_set_limit args = { .size = sizeof(args),
					      .limit = limit };

	return kit_call(pool, KVPOOL_POOL_SET_LIMIT, &args);
}

#define pool_set_limit_ok(pool, limit) \
	ASSERT_EQ(0, _pool_set_limit(pool, limit))
#define pool_set_limit_err(err, pool, limit) \
	EXPECT_EQ(-(err), _pool_set_limit(pool, limit))

static inline int _pool_set_quota(int pool, uint32_t uid, uint64_t quota,
				  uint64_t shared_quota)
{
	struct kvpool_pool_set_quota args = { .size = sizeof(args),
					      .uid = uid,
					      .quota = quota,
					      .shared_quota = shared_quota };

	return kit_call(pool, KVPOOL_POOL_SET_QUOTA, &args);
}

#define pool_set_quota_ok(pool, uid, quota, shared_quota) \
	ASSERT_EQ(0, _pool_set_quota(pool, uid, quota, shared_quota))
#define pool_set_quota_err(err, pool, uid, quota, shared_quota) \
	EXPECT_EQ(-(err), _pool_set_quota(pool, uid, quota, shared_quota))

static inline int _pool_trim(int pool, uint64_t bytes, uint64_t *out_bytes)
{
	struct kvpool_pool_trim args = { .size = sizeof(args),
					 .bytes = bytes,
					 .out_bytes = POISON };
	int err = kit_call(pool, KVPOOL_POOL_TRIM, &args);

	*out_bytes = args.out_bytes;
	return err;
}

static inline int _pool_secret(int pool, uint8_t *out)
{
	struct kvpool_pool_secret args = { .size = sizeof(args) };
	int err;

	memset(args.out_secret, POISON_BYTE, sizeof(args.out_secret));
	err = kit_call(pool, KVPOOL_POOL_SECRET, &args);
	memcpy(out, args.out_secret, sizeof(args.out_secret));
	return err;
}

/* One record that waits, or kind 0 where none comes within the time. */
static inline struct kvpool_event_record event_next(int pool, int ms)
{
	struct kvpool_event_record record = { 0 };
	struct pollfd pfd = { .fd = pool, .events = POLLIN };

	if (poll(&pfd, 1, ms) == 1 && (pfd.revents & POLLIN))
		EXPECT_EQ(sizeof(record), read(pool, &record, sizeof(record)));
	return record;
}

/* The next record of this kind; those of other kinds before it are dropped. */
static inline struct kvpool_event_record event_of(int pool, uint32_t kind,
						  int ms)
{
	struct kvpool_event_record record;

	do
		record = event_next(pool, ms);
	while (record.kind && record.kind != kind);
	return record;
}

/* ---- buffers of a pool --------------------------------------------------- */

static inline int _buf_create(int pool, uint64_t bytes, uint32_t flags,
			      int *out_fd, uint64_t *out_id)
{
	struct kvpool_buf_create args = { .size = sizeof(args),
					  .flags = flags,
					  .bytes = bytes,
					  .out_id = POISON,
					  .out_fd = POISON_FD };
	int err = kit_call(pool, KVPOOL_BUF_CREATE, &args);

	if (err)
		EXPECT_EQ(POISON_FD, args.out_fd);
	if (out_id)
		*out_id = args.out_id;
	*out_fd = args.out_fd;
	return err;
}

#define buf_create_ok(pool, bytes, flags, out_fd, out_id) \
	ASSERT_EQ(0, _buf_create(pool, bytes, flags, out_fd, out_id))
#define buf_create_err(err, pool, bytes, flags)                       \
	do {                                                          \
		int buf_create_fd_;                                   \
		EXPECT_EQ(-(err), _buf_create(pool, bytes, flags,     \
					      &buf_create_fd_, NULL)) \
		close(buf_create_fd_);                                \
	} while (0)

static inline int buf_new(int pool, uint64_t bytes)
{
	int fd;

	buf_create_ok(pool, bytes, 0, &fd, NULL);
	return fd;
}

static inline int _buf_open(int pool, uint64_t id, uint32_t flags, int *out_fd)
{
	struct kvpool_buf_open args = { .size = sizeof(args),
					.flags = flags,
					.id = id,
					.out_fd = POISON_FD };
	int err = kit_call(pool, KVPOOL_BUF_OPEN, &args);

	if (err)
		EXPECT_EQ(POISON_FD, args.out_fd);
	*out_fd = args.out_fd;
	return err;
}

#define buf_open_ok(pool, id, flags, out_fd) \
	ASSERT_EQ(0, _buf_open(pool, id, flags, out_fd))
#define buf_open_err(err, pool, id, flags)                                   \
	do {                                                                 \
		int buf_open_fd_;                                            \
		EXPECT_EQ(-(err), _buf_open(pool, id, flags, &buf_open_fd_)) \
		close(buf_open_fd_);                                         \
	} while (0)

/* A mark of key number `number`: different numbers, different keys. */
static inline struct kvpool_mark mark_of(uint32_t number, uint64_t n)
{
	struct kvpool_mark mark = { .n = n };

	memset(mark.key, 0x11, sizeof(mark.key));
	memcpy(mark.key, &number, sizeof(number));
	return mark;
}

static inline int _buf_lookup(int pool, uint32_t number,
			      struct kvpool_buf_lookup *out)
{
	struct kvpool_mark mark = mark_of(number, 0);
	int err;

	memset(out, POISON_BYTE, sizeof(*out));
	out->size = sizeof(*out);
	out->flags = 0;
	out->out_fd = POISON_FD;
	memcpy(out->key, mark.key, sizeof(out->key));
	err = kit_call(pool, KVPOOL_BUF_LOOKUP, out);
	if (err)
		EXPECT_EQ(POISON_FD, out->out_fd);
	return err;
}

#define buf_lookup_ok(pool, number, out) \
	ASSERT_EQ(0, _buf_lookup(pool, number, out))
#define buf_lookup_err(err, pool, number)                              \
	do {                                                           \
		struct kvpool_buf_lookup lookup_;                      \
		EXPECT_EQ(-(err), _buf_lookup(pool, number, &lookup_)) \
		close(lookup_.out_fd);                                 \
	} while (0)

static inline int _buf_stat_call(int fd, unsigned long command, uint64_t id,
				 struct kvpool_buf_stat *out)
{
	memset(out, POISON_BYTE, sizeof(*out));
	out->size = sizeof(*out);
	out->flags = 0;
	out->id = id;
	return kit_call(fd, command, out);
}

static inline int _buf_next(int pool, uint64_t id, struct kvpool_buf_stat *out)
{
	return _buf_stat_call(pool, KVPOOL_BUF_NEXT, id, out);
}

/* ---- a buffer ------------------------------------------------------------ */

static inline int _buf_stat(int buf, struct kvpool_buf_stat *out)
{
	return _buf_stat_call(buf, KVPOOL_BUF_STAT, 0, out);
}

static inline struct kvpool_buf_stat buf_stat_of(int buf)
{
	struct kvpool_buf_stat s;

	ASSERT_EQ(0, _buf_stat(buf, &s));
	EXPECT_EQ(s.out_resident, s.out_private + s.out_shared);
	EXPECT_LE(s.out_charged, s.out_resident);
	EXPECT_LE(s.out_sealed, s.out_bytes);
	return s;
}

static inline int _buf_range(int buf, unsigned long command, uint64_t offset,
			     uint64_t len, uint32_t flags, uint64_t *out_done)
{
	struct kvpool_buf_range args = { .size = sizeof(args),
					 .flags = flags,
					 .offset = offset,
					 .len = len,
					 .out_done = POISON };
	int err = kit_call(buf, command, &args);

	if (out_done)
		*out_done = args.out_done;
	return err;
}

static inline int _buf_commit(int buf, uint64_t offset, uint64_t len)
{
	uint64_t done;
	int err = _buf_range(buf, KVPOOL_BUF_COMMIT, offset, len, 0, &done);

	if (!err)
		EXPECT_EQ(len, done);
	return err;
}

static inline int _buf_commit_partial(int buf, uint64_t offset, uint64_t len,
				      uint64_t *out_done)
{
	return _buf_range(buf, KVPOOL_BUF_COMMIT, offset, len,
			  KVPOOL_COMMIT_PARTIAL, out_done);
}

static inline int _buf_release(int buf, uint64_t offset, uint64_t len,
			       uint64_t *out_done)
{
	return _buf_range(buf, KVPOOL_BUF_RELEASE, offset, len, 0, out_done);
}

#define buf_commit_ok(buf, offset, len) \
	ASSERT_EQ(0, _buf_commit(buf, offset, len))
#define buf_commit_err(err, buf, offset, len) \
	EXPECT_EQ(-(err), _buf_commit(buf, offset, len))
#define buf_release_ok(buf, offset, len) \
	ASSERT_EQ(0, _buf_release(buf, offset, len, NULL))
#define buf_release_err(err, buf, offset, len) \
	EXPECT_EQ(-(err), _buf_release(buf, offset, len, NULL))

static inline int _buf_seal(int buf, uint64_t n, uint64_t *out_sealed)
{
	struct kvpool_buf_seal args = { .size = sizeof(args),
					.n = n,
					.out_sealed = POISON };
	int err = kit_call(buf, KVPOOL_BUF_SEAL, &args);

	if (out_sealed)
		*out_sealed = args.out_sealed;
	return err;
}

#define buf_seal_ok(buf, n) ASSERT_EQ(0, _buf_seal(buf, n, NULL))
#define buf_seal_err(err, buf, n) EXPECT_EQ(-(err), _buf_seal(buf, n, NULL))

/* What a clone needs; out_ fields poisoned. */
static inline struct kvpool_buf_clone clone_args(int pool, uint64_t n,
						 uint64_t bytes)
{
	return (struct kvpool_buf_clone){
		.size = sizeof(struct kvpool_buf_clone),
		.n = n,
		.bytes = bytes,
		.pool_fd = pool,
		.out_fd = POISON_FD,
		.out_id = POISON,
		.out_shared = POISON,
		.out_copied = POISON,
	};
}

static inline int _buf_clone(int buf, struct kvpool_buf_clone *args)
{
	int err;

	args->out_fd = POISON_FD;
	err = kit_call(buf, KVPOOL_BUF_CLONE, args);
	if (err)
		EXPECT_EQ(POISON_FD, args->out_fd);
	return err;
}

#define buf_clone_ok(buf, args) ASSERT_EQ(0, _buf_clone(buf, args))
#define buf_clone_err(err, buf, args)                    \
	do {                                             \
		EXPECT_EQ(-(err), _buf_clone(buf, args)) \
		close((args)->out_fd);                   \
	} while (0)

static inline int _buf_publish(int buf, const struct kvpool_mark *marks,
			       uint32_t nr_marks)
{
	struct kvpool_buf_publish args = { .size = sizeof(args),
					   .marks = (uintptr_t)marks,
					   .nr_marks = nr_marks };

	return kit_call(buf, KVPOOL_BUF_PUBLISH, &args);
}

/* Publishes one key. */
static inline int _buf_publish_key(int buf, uint32_t number, uint64_t n)
{
	struct kvpool_mark mark = mark_of(number, n);

	return _buf_publish(buf, &mark, 1);
}

#define buf_publish_ok(buf, number, n) \
	ASSERT_EQ(0, _buf_publish_key(buf, number, n))
#define buf_publish_err(err, buf, number, n) \
	EXPECT_EQ(-(err), _buf_publish_key(buf, number, n))

static inline int _buf_unpublish(int buf)
{
	struct kvpool_buf_publish args = { .size = sizeof(args) };

	return kit_call(buf, KVPOOL_BUF_UNPUBLISH, &args);
}

#define buf_unpublish_ok(buf) ASSERT_EQ(0, _buf_unpublish(buf))
#define buf_unpublish_err(err, buf) EXPECT_EQ(-(err), _buf_unpublish(buf))

static inline int _buf_advise(int buf, uint32_t advice, uint32_t *out_survived)
{
	struct kvpool_buf_advise args = { .size = sizeof(args),
					  .advice = advice,
					  .out_survived = 0xcccccccc };
	int err = kit_call(buf, KVPOOL_BUF_ADVISE, &args);

	if (out_survived)
		*out_survived = args.out_survived;
	return err;
}

#define buf_volatile_ok(buf) \
	ASSERT_EQ(0, _buf_advise(buf, KVPOOL_ADVICE_VOLATILE, NULL))
#define buf_willneed_ok(buf, out_survived) \
	ASSERT_EQ(0, _buf_advise(buf, KVPOOL_ADVICE_WILLNEED, out_survived))
#define buf_advise_err(err, buf, advice) \
	EXPECT_EQ(-(err), _buf_advise(buf, advice, NULL))

static inline int _buf_revoke(int buf, uint32_t *out_nr)
{
	struct kvpool_buf_revoke args = { .size = sizeof(args),
					  .out_nr_revoked = 0xcccccccc };
	int err = kit_call(buf, KVPOOL_BUF_REVOKE, &args);

	if (out_nr)
		*out_nr = args.out_nr_revoked;
	return err;
}

#define buf_revoke_ok(buf, out_nr) ASSERT_EQ(0, _buf_revoke(buf, out_nr))
#define buf_revoke_err(err, buf) EXPECT_EQ(-(err), _buf_revoke(buf, NULL))

/* Return: 0 with the address, or -errno. */
static inline int _buf_map(int buf, uint64_t offset, size_t bytes, int prot,
			   int flags, uint8_t **out)
{
	void *at = mmap(NULL, bytes, prot, flags, buf, offset);

	if (at == MAP_FAILED)
		return -errno;
	*out = at;
	return 0;
}

#define buf_map_err(err, buf, offset, bytes, prot, flags)                   \
	do {                                                                \
		uint8_t *map_ = NULL;                                       \
		EXPECT_EQ(-(err),                                           \
			  _buf_map(buf, offset, bytes, prot, flags, &map_)) \
		munmap(map_, bytes);                                        \
	} while (0)

static inline uint8_t *buf_map(int buf, size_t bytes, int prot)
{
	uint8_t *at = NULL;

	ASSERT_EQ(0, _buf_map(buf, 0, bytes, prot, MAP_SHARED, &at));
	return at;
}

#define RW (PROT_READ | PROT_WRITE)

static inline int buf_new_id(int pool, uint64_t bytes, uint64_t *out_id)
{
	int fd;

	buf_create_ok(pool, bytes, 0, &fd, out_id);
	return fd;
}

/* A buffer that is filled and sealed as a whole, and no longer mapped. */
static inline int buf_sealed(int pool, uint64_t bytes, uint8_t byte)
{
	int buf = buf_new(pool, bytes);
	uint8_t *at = buf_map(buf, bytes, RW);

	buf_commit_ok(buf, 0, bytes);
	memset(at, byte, bytes);
	ASSERT_EQ(0, munmap(at, bytes));
	buf_seal_ok(buf, bytes);
	return buf;
}

/* ---- the fixture --------------------------------------------------------- */

/* Return: the device, or -1 after the test was marked as skipped. */
static inline int dev_open(void)
{
	int dev = open(KVPOOL_DEVICE, O_RDWR | O_CLOEXEC);

	if (dev < 0)
		SKIP(return -1, "%s: %s", KVPOOL_DEVICE, strerror(errno));
	touch_init();
	return dev;
}

FIXTURE(pool)
{
	int dev;
	int pool; /* no name, POOL_BYTES, mode 0600 */
};

FIXTURE_SETUP(pool)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new(self->dev, POOL_BYTES);
}

FIXTURE_TEARDOWN(pool)
{
	close(self->pool);
	close(self->dev);
}

/* Rights are tried from root, which can become anybody. */
#define NEED_ROOT()                                                  \
	do {                                                         \
		if (geteuid() != 0)                                  \
			SKIP(return, "changing the uid needs root"); \
	} while (0)

#endif /* TARN_TESTS_KMOD_KIT_H */
