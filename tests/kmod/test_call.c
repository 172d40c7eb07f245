/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for every ioctl of the kernel module alike: how structs grow,
 * flags and reserved fields, bad addresses, wrong and read-only descriptors.
 * One variant per call, with arguments that are valid but for the one fault.
 */
#include "tests/kmod/kit.h"

#include <stddef.h>

enum { DEV, POOL, BUF, NR_KINDS, ARG_ROOM = 512 };

FIXTURE(call)
{
	int fds[NR_KINDS]; /* of each kind one, for reading and writing */
	int read_only[NR_KINDS];
	uint64_t buf_id;
	uint8_t name[KVPOOL_NAME_SIZE];
	/* The call's struct and what may follow it. */
	uint8_t arg[ARG_ROOM] __attribute__((aligned(8)));
	struct kvpool_mark mark;
};

FIXTURE_VARIANT(call)
{
	unsigned long command;
	size_t bytes; /* of its struct */
	int kind;
	size_t reserved; /* offset of a reserved field; 0: none */
	bool is_writer;
	bool has_out;
	void (*fill)(struct fixture_call * self);
};

static void fill_nothing(struct fixture_call *self)
{
	(void)self;
}

#define ARG(type) ((struct type *)self->arg)

static void fill_pool_create(struct fixture_call *self)
{
	*ARG(kvpool_pool_create) = pool_args(MIB);
	name_pool(ARG(kvpool_pool_create), "second");
}

static void fill_pool_open(struct fixture_call *self)
{
	ARG(kvpool_pool_open)->flags = KVPOOL_READ;
	memcpy(ARG(kvpool_pool_open)->name, self->name, KVPOOL_NAME_SIZE);
}

static void fill_pool_stat(struct fixture_call *self)
{
	ARG(kvpool_pool_stat)->uid = KVPOOL_NO_UID;
}

static void fill_set_limit(struct fixture_call *self)
{
	ARG(kvpool_pool_set_limit)->limit = 2 * MIB;
}

static void fill_set_quota(struct fixture_call *self)
{
	ARG(kvpool_pool_set_quota)->uid = BOB;
	ARG(kvpool_pool_set_quota)->quota = MIB;
}

static void fill_buf_create(struct fixture_call *self)
{
	ARG(kvpool_buf_create)->bytes = MIB;
}

static void fill_buf_open(struct fixture_call *self)
{
	ARG(kvpool_buf_open)->flags = KVPOOL_READ;
	ARG(kvpool_buf_open)->id = self->buf_id;
}

static void fill_buf_lookup(struct fixture_call *self)
{
	memcpy(ARG(kvpool_buf_lookup)->key, mark_of(1, 0).key, KVPOOL_KEY_SIZE);
}

static void fill_trim(struct fixture_call *self)
{
	ARG(kvpool_pool_trim)->bytes = PAGE;
}

static void fill_range(struct fixture_call *self)
{
	ARG(kvpool_buf_range)->offset = 2 * PAGE;
	ARG(kvpool_buf_range)->len = PAGE;
}

static void fill_hole(struct fixture_call *self)
{
	ARG(kvpool_buf_range)->offset = 3 * PAGE;
	ARG(kvpool_buf_range)->len = PAGE;
}

static void fill_seal(struct fixture_call *self)
{
	ARG(kvpool_buf_seal)->n = 2 * PAGE;
}

static void fill_clone(struct fixture_call *self)
{
	ARG(kvpool_buf_clone)->n = PAGE;
	ARG(kvpool_buf_clone)->bytes = 4 * PAGE;
	ARG(kvpool_buf_clone)->pool_fd = self->fds[POOL];
}

static void fill_publish(struct fixture_call *self)
{
	self->mark = mark_of(2, PAGE);
	ARG(kvpool_buf_publish)->marks = (uintptr_t)&self->mark;
	ARG(kvpool_buf_publish)->nr_marks = 1;
}

/* clang-format off */
#define CALL(variant, number, on, type, fill_name, ...)                       \
	FIXTURE_VARIANT_ADD(call, variant) {                            \
		.command = (number), .kind = (on),                      \
		.bytes = sizeof(struct type),                           \
		.fill = fill_##fill_name, __VA_ARGS__                   \
	}
/* clang-format on */
#define RESERVED(type) .reserved = offsetof(struct type, __reserved)

CALL(info, KVPOOL_INFO, DEV, kvpool_info, nothing, RESERVED(kvpool_info),
     .has_out = true);
CALL(pool_create, KVPOOL_POOL_CREATE, DEV, kvpool_pool_create, pool_create,
     RESERVED(kvpool_pool_create), .has_out = true);
CALL(pool_open, KVPOOL_POOL_OPEN, DEV, kvpool_pool_open, pool_open,
     RESERVED(kvpool_pool_open), .has_out = true);
CALL(pool_next, KVPOOL_POOL_NEXT, DEV, kvpool_pool_next, nothing,
     .has_out = true);
CALL(pool_stat, KVPOOL_POOL_STAT, POOL, kvpool_pool_stat, pool_stat,
     RESERVED(kvpool_pool_stat), .has_out = true);
CALL(set_limit, KVPOOL_POOL_SET_LIMIT, POOL, kvpool_pool_set_limit, set_limit,
     .is_writer = true);
CALL(set_quota, KVPOOL_POOL_SET_QUOTA, POOL, kvpool_pool_set_quota, set_quota,
     RESERVED(kvpool_pool_set_quota), .is_writer = true);
CALL(buf_create, KVPOOL_BUF_CREATE, POOL, kvpool_buf_create, buf_create,
     RESERVED(kvpool_buf_create), .is_writer = true, .has_out = true);
CALL(buf_open, KVPOOL_BUF_OPEN, POOL, kvpool_buf_open, buf_open,
     RESERVED(kvpool_buf_open), .has_out = true);
CALL(buf_lookup, KVPOOL_BUF_LOOKUP, POOL, kvpool_buf_lookup, buf_lookup,
     .has_out = true);
CALL(buf_next, KVPOOL_BUF_NEXT, POOL, kvpool_buf_stat, nothing,
     .has_out = true);
CALL(trim, KVPOOL_POOL_TRIM, POOL, kvpool_pool_trim, trim, .is_writer = true,
     .has_out = true);
CALL(secret, KVPOOL_POOL_SECRET, POOL, kvpool_pool_secret, nothing,
     .is_writer = true, .has_out = true);
CALL(buf_stat, KVPOOL_BUF_STAT, BUF, kvpool_buf_stat, nothing, .has_out = true);
CALL(commit, KVPOOL_BUF_COMMIT, BUF, kvpool_buf_range, hole, .is_writer = true,
     .has_out = true);
CALL(release, KVPOOL_BUF_RELEASE, BUF, kvpool_buf_range, range,
     .is_writer = true, .has_out = true);
CALL(seal, KVPOOL_BUF_SEAL, BUF, kvpool_buf_seal, seal, .is_writer = true,
     .has_out = true);
CALL(clone, KVPOOL_BUF_CLONE, BUF, kvpool_buf_clone, clone, .has_out = true);
CALL(publish, KVPOOL_BUF_PUBLISH, BUF, kvpool_buf_publish, publish,
     RESERVED(kvpool_buf_publish), .is_writer = true);
CALL(unpublish, KVPOOL_BUF_UNPUBLISH, BUF, kvpool_buf_publish, nothing,
     RESERVED(kvpool_buf_publish), .is_writer = true);
CALL(advise, KVPOOL_BUF_ADVISE, BUF, kvpool_buf_advise, nothing,
     .has_out = true);
CALL(revoke, KVPOOL_BUF_REVOKE, BUF, kvpool_buf_revoke, nothing,
     RESERVED(kvpool_buf_revoke), .is_writer = true, .has_out = true);

/*
 * A pool with one buffer of four pages: the first is sealed and published by
 * key 1, the second and third have pages.
 */
FIXTURE_SETUP(call)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);

	self->fds[DEV] = dev_open();
	if (self->fds[DEV] < 0)
		return;
	name_pool(&args, "call");
	memcpy(self->name, args.name, sizeof(self->name));
	pool_create_ok(self->fds[DEV], &args);
	self->fds[POOL] = args.out_fd;
	buf_create_ok(self->fds[POOL], 4 * PAGE, 0, &self->fds[BUF],
		      &self->buf_id);
	buf_commit_ok(self->fds[BUF], 0, 3 * PAGE);
	buf_seal_ok(self->fds[BUF], PAGE);
	buf_publish_ok(self->fds[BUF], 1, PAGE);
	self->read_only[DEV] = open(KVPOOL_DEVICE, O_RDONLY | O_CLOEXEC);
	pool_open_ok(self->fds[DEV], args.name, KVPOOL_READ,
		     &self->read_only[POOL]);
	buf_open_ok(self->fds[POOL], self->buf_id, KVPOOL_READ,
		    &self->read_only[BUF]);
	((uint32_t *)self->arg)[0] = variant->bytes;
	variant->fill(self);
}

FIXTURE_TEARDOWN(call)
{
	for (int kind = 0; kind < NR_KINDS; kind++) {
		close(self->fds[kind]);
		close(self->read_only[kind]);
	}
}

#define CALL_BYTES ((uint32_t)variant->bytes)
#define SET_SIZE(bytes) (((uint32_t *)self->arg)[0] = (bytes))
#define FLAGS (((uint32_t *)self->arg)[1])
#define call_on(fd) kit_call(fd, variant->command, self->arg)

struct state {
	struct kvpool_pool_stat pool;
	struct kvpool_buf_stat buf;
	int nr_fds;
};

static struct state state_of(struct fixture_call *self)
{
	return (struct state){ stat_of(self->fds[POOL]),
			       buf_stat_of(self->fds[BUF]), nr_fds() };
}

/* Counters of calls may move; what a call would have done must not. */
static void same_ok(struct fixture_call *self, const struct state *before)
{
	struct state now = state_of(self);

	EXPECT_EQ(before->nr_fds, now.nr_fds);
	EXPECT_EQ(before->pool.out_limit, now.pool.out_limit);
	EXPECT_EQ(before->pool.out_charged, now.pool.out_charged);
	EXPECT_EQ(before->pool.out_nr_bufs, now.pool.out_nr_bufs);
	EXPECT_EQ(before->pool.out_nr_keys, now.pool.out_nr_keys);
	EXPECT_MEMEQ(&before->buf, &now.buf, sizeof(now.buf));
}

TEST_F(call, succeeds_with_valid_arguments)
{
	EXPECT_EQ(0, call_on(self->fds[variant->kind]));
}

TEST_F(call, a_larger_struct_with_zeros_behind_is_taken)
{
	SET_SIZE(CALL_BYTES + 24);
	EXPECT_EQ(0, call_on(self->fds[variant->kind]));
}

TEST_F(call, a_larger_struct_with_anything_behind_is_too_big)
{
	struct state before = state_of(self);

	SET_SIZE(CALL_BYTES + 24);
	self->arg[CALL_BYTES + 23] = 1;
	EXPECT_EQ(-E2BIG, call_on(self->fds[variant->kind]));
	same_ok(self, &before);
}

TEST_F(call, a_smaller_struct_is_refused)
{
	struct state before = state_of(self);
	uint32_t sizes[] = { 0, 4, 8, CALL_BYTES - 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sizes[i] >= CALL_BYTES)
			continue;
		SET_SIZE(sizes[i]);
		EXPECT_EQ(-EINVAL, call_on(self->fds[variant->kind]))
		TH_LOG("size %u of %lu", sizes[i], (unsigned long)CALL_BYTES);
	}
	same_ok(self, &before);
}

TEST_F(call, an_unknown_flag_is_refused)
{
	struct state before = state_of(self);

	FLAGS |= 1U << 31;
	EXPECT_EQ(-EOPNOTSUPP, call_on(self->fds[variant->kind]));
	same_ok(self, &before);
}

TEST_F(call, a_reserved_field_must_be_zero)
{
	struct state before = state_of(self);

	if (!variant->reserved)
		SKIP(return, "the struct has no reserved field");
	self->arg[variant->reserved + 3] = 0x80;
	EXPECT_EQ(-EOPNOTSUPP, call_on(self->fds[variant->kind]));
	same_ok(self, &before);
}

TEST_F(call, an_address_without_memory_is_a_fault)
{
	EXPECT_EQ(-EFAULT,
		  kit_call(self->fds[variant->kind], variant->command, NULL));
	EXPECT_EQ(-EFAULT, kit_call(self->fds[variant->kind], variant->command,
				    (void *)-4096));
}

TEST_F(call, an_argument_that_ends_beyond_its_memory_is_a_fault)
{
	struct state before = state_of(self);
	uint8_t *at =
		mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *arg = at + PAGE - CALL_BYTES + 4;

	ASSERT_TRUE(at != MAP_FAILED);
	ASSERT_EQ(0, munmap(at + PAGE, PAGE));
	memcpy(arg, self->arg, CALL_BYTES - 4);
	EXPECT_EQ(-EFAULT,
		  kit_call(self->fds[variant->kind], variant->command, arg));
	same_ok(self, &before);
}

TEST_F(call, an_answer_that_cannot_be_written_changes_nothing)
{
	struct state before = state_of(self);
	uint8_t *at = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!variant->has_out)
		SKIP(return, "the call answers nothing");
	ASSERT_TRUE(at != MAP_FAILED);
	memcpy(at, self->arg, sizeof(self->arg));
	ASSERT_EQ(0, mprotect(at, PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT,
		  kit_call(self->fds[variant->kind], variant->command, at));
	same_ok(self, &before);
}

TEST_F(call, another_kind_of_descriptor_knows_no_such_call)
{
	struct state before = state_of(self);

	for (int kind = 0; kind < NR_KINDS; kind++) {
		if (kind == variant->kind)
			continue;
		EXPECT_EQ(-ENOTTY, call_on(self->fds[kind]))
		TH_LOG("descriptor of kind %d", kind);
	}
	same_ok(self, &before);
}

TEST_F(call, a_read_only_descriptor_reads_only)
{
	struct state before = state_of(self);

	if (variant->is_writer) {
		EXPECT_EQ(-EACCES, call_on(self->read_only[variant->kind]));
		same_ok(self, &before);
	} else {
		EXPECT_EQ(0, call_on(self->read_only[variant->kind]));
	}
}

TEST_F(pool, an_unknown_number_is_no_call)
{
	uint64_t arg[8] = { sizeof(arg) };
	int buf = buf_new(self->pool, PAGE);

	for (int nr = 0; nr < 256; nr++) {
		unsigned long command = _IO(KVPOOL_IOC_MAGIC, nr);

		if (nr > 0x03)
			EXPECT_EQ(-ENOTTY, kit_call(self->dev, command, arg));
		if (nr < 0x10 || nr > 0x18)
			EXPECT_EQ(-ENOTTY, kit_call(self->pool, command, arg));
		if (nr < 0x20 || nr > 0x28)
			EXPECT_EQ(-ENOTTY, kit_call(buf, command, arg));
	}
	EXPECT_EQ(-ENOTTY, kit_call(self->dev, _IO('x', 0), arg));
	EXPECT_EQ(-ENOTTY, kit_call(self->pool, _IO('x', 0x10), arg));
	EXPECT_EQ(-ENOTTY, kit_call(buf, _IO('x', 0x20), arg));
}

TEST_F(pool, a_struct_of_more_than_a_page_is_too_big)
{
	/* All of it zero: the kernel would have to look at every byte. */
	struct kvpool_info *info =
		mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, (void *)info);
	info->size = PAGE;
	EXPECT_EQ(0, kit_call(self->dev, KVPOOL_INFO, info));
	memset(info, 0, sizeof(*info));
	info->size = PAGE + 8;
	EXPECT_EQ(-E2BIG, kit_call(self->dev, KVPOOL_INFO, info));
	EXPECT_EQ(0, info->out_abi_version);
	munmap(info, 4 * PAGE);
}

TEST_F(pool, descriptors_close_on_exec)
{
	int buf = buf_new(self->pool, PAGE);

	EXPECT_TRUE(is_cloexec(self->pool));
	EXPECT_TRUE(is_cloexec(buf));
}

TEST_HARNESS_MAIN
