/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that have failed (MADV_HWPOISON): a touch is SIGBUS with the code of a
 * memory error, calls answer EHWPOISON, and the page is never handed out again.
 */
#include "tests/kmod/kit.h"

FIXTURE(poison)
{
	int dev, pool, buf;
	size_t bytes; /* of the buffer; page 1 has failed */
};

FIXTURE_VARIANT(poison)
{
	size_t bytes;
	uint32_t max_order;
};

FIXTURE_VARIANT_ADD(poison, page){ 4 * PAGE, 0 };
FIXTURE_VARIANT_ADD(poison, huge){ 2 * MIB, 9 };

FIXTURE_SETUP(poison)
{
	struct kvpool_pool_create args = pool_args(8 * MIB);
	struct kvpool_info info;
	uint8_t *at;

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	info_ok(self->dev, &info);
	if (info.out_max_order < variant->max_order)
		SKIP(return, "no folio of order %u", variant->max_order);
	args.flags = 0;
	args.max_order = variant->max_order;
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
	self->bytes = variant->bytes;
	self->buf = buf_new(self->pool, self->bytes);
	buf_commit_ok(self->buf, 0, self->bytes);
	at = buf_map(self->buf, self->bytes, RW);
	memset(at, 0x21, self->bytes);
	/* EBUSY: the page is marked, the system could do nothing more. */
	if (madvise(at + PAGE, PAGE, MADV_HWPOISON) && errno != EBUSY)
		SKIP(return, "MADV_HWPOISON: %s", strerror(errno));
	munmap(at, self->bytes);
}

FIXTURE_TEARDOWN(poison)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

TEST_F(poison, a_touch_is_a_memory_error)
{
	uint8_t *at = buf_map(self->buf, self->bytes, RW);

	touch_err(SIGBUS, at + PAGE);
	EXPECT_EQ(BUS_MCEERR_AR, touch_code);
	/* Of a huge folio the others may go with it, but with the same word. */
	if (_touch(at, NULL))
		EXPECT_EQ(BUS_MCEERR_AR, touch_code);
	else
		EXPECT_EQ(0x21, *at);
}

TEST_F(poison, calls_answer_it)
{
	struct kvpool_buf_clone c =
		clone_args(self->pool, 2 * PAGE + 1, self->bytes);
	uint64_t before = charged(self->pool);

	buf_commit_err(EHWPOISON, self->buf, 0, 4 * PAGE);
	buf_seal_err(EHWPOISON, self->buf, 4 * PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_sealed);
	buf_clone_err(EHWPOISON, self->buf, &c);
	charged_ok(self->pool, before);
	EXPECT_EQ(1, stat_of(self->pool).out_nr_bufs);
}

TEST_F(poison, a_released_page_is_withdrawn)
{
	buf_release_ok(self->buf, 0, self->bytes);
	struct kvpool_pool_stat s = stat_of(self->pool);

	EXPECT_EQ(0, s.out_charged);
	EXPECT_GE(s.out_poisoned, PAGE);
	/* Take much memory: the page is not among it. */
	int buf = buf_new(self->pool, 8 * MIB);
	uint8_t *at = buf_map(buf, 8 * MIB, RW);

	buf_commit_ok(buf, 0, 8 * MIB);
	EXPECT_EQ(8 * MIB, poke_pages(at, 8 * MIB, 1));
	munmap(at, 8 * MIB);
	buf_seal_ok(buf, 8 * MIB);
}

TEST_F(poison, a_closed_buffer_withdraws_its_page)
{
	uint64_t bytes;

	close(self->buf);
	self->buf = buf_new(self->pool, PAGE);
	charged_ok(self->pool, 0);
	EXPECT_GE(stat_of(self->pool).out_poisoned, PAGE);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	buf_commit_ok(self->buf, 0, PAGE);
}

TEST_F(poison, a_volatile_buffer_with_it_can_be_given_up)
{
	uint64_t bytes;

	buf_volatile_ok(self->buf);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	close(self->buf);
	self->buf = buf_new(self->pool, PAGE);
	charged_ok(self->pool, 0);
	EXPECT_GE(stat_of(self->pool).out_poisoned, PAGE);
}

TEST_HARNESS_MAIN
