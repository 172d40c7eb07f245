/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of buffers: what mmap() refuses, rights, faults and their size,
 * SIGBUS, fork(), and the calls of the system that try to change a mapping.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 8 * MIB };

FIXTURE(map)
{
	int dev, pool, buf;
	uint64_t id;
	bool has_huge;
};

FIXTURE_SETUP(map)
{
	struct kvpool_info info;

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	info_ok(self->dev, &info);
	self->has_huge = info.out_huge_size;
	self->pool = pool_new(self->dev, POOL_BYTES);
	self->buf = buf_new_id(self->pool, BUF_BYTES, &self->id);
}

FIXTURE_TEARDOWN(map)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

/* ---- mmap() -------------------------------------------------------------- */

TEST_F(map, private_is_refused)
{
	buf_map_err(EINVAL, self->buf, 0, PAGE, RW, MAP_PRIVATE);
	buf_map_err(EINVAL, self->buf, 0, PAGE, PROT_READ, MAP_PRIVATE);
}

TEST_F(map, beyond_the_end_is_refused)
{
	buf_map_err(EINVAL, self->buf, BUF_BYTES, PAGE, RW, MAP_SHARED);
	buf_map_err(EINVAL, self->buf, 0, BUF_BYTES + PAGE, RW, MAP_SHARED);
	buf_map_err(EINVAL, self->buf, BUF_BYTES - PAGE, 2 * PAGE, RW,
		    MAP_SHARED);
	buf_map_err(EINVAL, self->buf, 1ULL << 50, PAGE, RW, MAP_SHARED);
}

TEST_F(map, an_offset_that_overflows_is_refused)
{
	uint8_t *at = NULL;
	int err = _buf_map(self->buf, ~0ULL - PAGE + 1, 2 * PAGE, RW,
			   MAP_SHARED, &at);

	/* The system may refuse it before the module sees it. */
	EXPECT_TRUE(err == -EINVAL || err == -EOVERFLOW);
}

TEST_F(map, a_part_at_an_offset)
{
	uint8_t *all = buf_map(self->buf, BUF_BYTES, RW), *part = NULL;

	ASSERT_EQ(0, _buf_map(self->buf, 3 * PAGE, 2 * PAGE, RW, MAP_SHARED,
			      &part));
	all[4 * PAGE + 5] = 0x42;
	EXPECT_EQ(0x42, part[PAGE + 5]);
}

TEST_F(map, a_read_only_descriptor_is_not_written)
{
	uint8_t *at;
	int fd;

	buf_commit_ok(self->buf, 0, PAGE);
	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	buf_map_err(EACCES, fd, 0, PAGE, RW, MAP_SHARED);
	buf_map_err(EACCES, fd, 0, PAGE, PROT_WRITE, MAP_SHARED);
	at = buf_map(fd, PAGE, PROT_READ);
	touch_ok(at);
	poke_err(SIGSEGV, at);
	EXPECT_EQ(-1, mprotect(at, PAGE, RW));
	EXPECT_EQ(EACCES, errno);
	/* ptrace's way around the protection: the system refuses it too. */
	int mem = open("/proc/self/mem", O_RDWR);

	if (mem >= 0)
		EXPECT_LT(pwrite(mem, "x", 1, (off_t)(uintptr_t)at), 0);
	EXPECT_EQ(0, *at);
}

TEST_F(map, a_hole_through_a_read_only_descriptor_is_a_bus_error)
{
	uint8_t *at;
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	at = buf_map(fd, PAGE, PROT_READ);
	touch_err(SIGBUS, at);
	EXPECT_EQ(BUS_ADRERR, touch_code);
	charged_ok(self->pool, 0);
	buf_commit_ok(self->buf, 0, PAGE);
	touch_ok(at);
}

TEST_F(map, a_mapping_keeps_the_memory_after_close)
{
	uint8_t *at = buf_map(self->buf, PAGE, RW);

	poke_ok(at, 7);
	close(self->buf);
	EXPECT_EQ(7, *at);
	EXPECT_GE(charged(self->pool), PAGE);
	munmap(at, PAGE);
	charged_ok(self->pool, 0);
}

/* ---- faults -------------------------------------------------------------- */

TEST_F(map, a_first_touch_reads_zero)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	for (size_t i = 0; i < BUF_BYTES; i += 64 * PAGE)
		EXPECT_TRUE(is_filled(at + i, 0, PAGE));
	EXPECT_LE(charged(self->pool), BUF_BYTES);
}

TEST_F(map, long_mappings_are_aligned_to_a_huge_page)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	if (!self->has_huge)
		SKIP(return, "no huge folios here");
	EXPECT_EQ(0, (uintptr_t)at % HPAGE);
}

TEST_F(map, thirty_two_mib_take_few_faults)
{
	int buf = buf_new(self->pool, 32 * MIB);
	uint8_t *at = buf_map(buf, 32 * MIB, RW);
	long before = nr_faults();

	if (!self->has_huge)
		SKIP(return, "no huge folios here");
	EXPECT_EQ(32 * MIB, poke_pages(at, 32 * MIB, 1));
	EXPECT_LE(nr_faults() - before, 20);
	EXPECT_EQ(32 * MIB, buf_stat_of(buf).out_huge);
	charged_ok(self->pool, 32 * MIB);
	/* The same in another mapping, where the folios are there already. */
	uint8_t *again = buf_map(buf, 32 * MIB, PROT_READ);

	before = nr_faults();
	for (size_t i = 0; i < 32 * MIB; i += PAGE)
		touch_ok(again + i);
	EXPECT_LE(nr_faults() - before, 20);
}

TEST_F(map, committed_memory_takes_few_faults)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	if (!self->has_huge)
		SKIP(return, "no huge folios here");
	buf_commit_ok(self->buf, 0, BUF_BYTES);
	long before = nr_faults();

	EXPECT_EQ(BUF_BYTES, poke_pages(at, BUF_BYTES, 1));
	EXPECT_LE(nr_faults() - before, 8);
}

TEST_F(map, a_fault_at_the_limit_is_a_bus_error)
{
	int pool = pool_new_small(self->dev, 4 * PAGE);
	int buf = buf_new(pool, 8 * PAGE);
	uint8_t *at = buf_map(buf, 8 * PAGE, RW);

	EXPECT_EQ(4 * PAGE, poke_pages(at, 8 * PAGE, 1));
	poke_err(SIGBUS, at + 4 * PAGE);
	EXPECT_EQ(BUS_ADRERR, touch_code);
	touch_err(SIGBUS, at + 5 * PAGE);
	charged_ok(pool, 4 * PAGE);
	buf_release_ok(buf, 0, PAGE);
	poke_ok(at + 5 * PAGE, 1);
	EXPECT_EQ(1, at[PAGE]);
}

TEST_F(map, near_the_limit_a_fault_takes_a_smaller_folio)
{
	int pool = pool_new(self->dev, 2 * MIB + PAGE);
	int buf = buf_new(pool, 4 * MIB);
	uint8_t *at = buf_map(buf, 4 * MIB, RW);

	poke_ok(at, 1);
	poke_ok(at + 2 * MIB, 1);
	EXPECT_LE(charged(pool), 2 * MIB + PAGE);
}

TEST_F(map, a_fault_at_the_quota_is_a_bus_error)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	pool_set_quota_ok(self->pool, geteuid(), 0, 0);
	poke_err(SIGBUS, at);
	charged_ok(self->pool, 0);
	pool_set_quota_ok(self->pool, geteuid(), KVPOOL_UNLIMITED, 0);
	poke_ok(at, 1);
}

TEST_F(map, the_system_gets_an_error_where_the_user_gets_a_signal)
{
	int pool = pool_new_small(self->dev, PAGE);
	int buf = buf_new(pool, 2 * PAGE), fds[2];
	uint8_t *at = buf_map(buf, 2 * PAGE, RW);

	ASSERT_EQ(0, pipe(fds));
	poke_ok(at, 1);
	ASSERT_EQ(1, write(fds[1], at, 1));
	EXPECT_EQ(-1, write(fds[1], at + PAGE, 1));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, read(fds[0], at + PAGE, 1));
	EXPECT_EQ(EFAULT, errno);
}

/* ---- fork() -------------------------------------------------------------- */

TEST_F(map, fork_shares_the_memory)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);
	pid_t pid;

	at[0] = 1;
	pid = child_start();
	if (pid == 0) {
		EXPECT_EQ(1, at[0]);
		at[1] = 2;
		at[4 * MIB] = 3; /* a page that the parent never touched */
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(2, at[1]);
	EXPECT_EQ(3, at[4 * MIB]);
	/* The parent's writes are seen by a child as well. */
	struct turns turns = turns_new();

	pid = child_start();
	if (pid == 0) {
		EXPECT_EQ(2, at[1]);
		tell_parent(&turns);
		await_parent(&turns);
		EXPECT_EQ(9, at[1]);
		child_end();
	}
	await_child(&turns);
	at[1] = 9;
	tell_child(&turns);
	child_ok(pid);
}

TEST_F(map, a_child_keeps_the_memory_alive)
{
	uint8_t *at = buf_map(self->buf, PAGE, RW);
	struct turns turns = turns_new();
	pid_t pid;

	at[0] = 1;
	pid = child_start();
	if (pid == 0) {
		close(self->buf);
		await_parent(&turns);
		EXPECT_EQ(1, at[0]);
		child_end();
	}
	munmap(at, PAGE);
	close(self->buf);
	EXPECT_GE(charged(self->pool), PAGE);
	tell_child(&turns);
	child_ok(pid);
	charged_ok(self->pool, 0);
}

/* ---- what the system's calls do to a mapping ----------------------------- */

TEST_F(map, mremap_does_not_grow)
{
	uint8_t *at = buf_map(self->buf, 2 * PAGE, RW);
	void *new;

	poke_ok(at, 1);
	EXPECT_EQ(MAP_FAILED, mremap(at, 2 * PAGE, 4 * PAGE, 0));
	new = mremap(at, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
	EXPECT_EQ(MAP_FAILED, new);
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(1, *at);
}

TEST_F(map, mremap_does_not_leave_the_end)
{
	uint8_t *at = NULL;

	ASSERT_EQ(0, _buf_map(self->buf, BUF_BYTES - PAGE, PAGE, RW, MAP_SHARED,
			      &at));
	EXPECT_EQ(MAP_FAILED, mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
	poke_ok(at, 1);
}

TEST_F(map, mremap_moves_and_shrinks)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW), *new;
	uint8_t *room = mmap(NULL, BUF_BYTES, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	at[0] = 1;
	at[PAGE] = 2;
	new = mremap(at, BUF_BYTES, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		     room);
	ASSERT_EQ(room, new);
	EXPECT_EQ(1, new[0]);
	EXPECT_EQ(2, new[PAGE]);
	buf_release_ok(self->buf, 0, BUF_BYTES);
	EXPECT_EQ(0, new[0]);
}

TEST_F(map, mremap_of_zero_length_makes_a_second_mapping)
{
	uint8_t *at = buf_map(self->buf, PAGE, RW), *twin;

	at[0] = 1;
	twin = mremap(at, 0, PAGE, MREMAP_MAYMOVE);
	if (twin == MAP_FAILED)
		return; /* refused is fine as well */
	EXPECT_EQ(1, twin[0]);
	munmap(at, PAGE);
	EXPECT_EQ(1, twin[0]);
	buf_volatile_ok(self->buf);
	touch_err(SIGBUS, twin);
}

TEST_F(map, a_hole_in_the_mapping_leaves_the_rest)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	buf_commit_ok(self->buf, 0, BUF_BYTES);
	memset(at, 5, BUF_BYTES);
	ASSERT_EQ(0, munmap(at + 5 * PAGE, PAGE));
	EXPECT_TRUE(is_filled(at, 5, 5 * PAGE));
	EXPECT_TRUE(is_filled(at + 6 * PAGE, 5, BUF_BYTES - 6 * PAGE));
	touch_err(SIGSEGV, at + 5 * PAGE);
	charged_ok(self->pool, BUF_BYTES);
}

TEST_F(map, mprotect_of_a_part)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	buf_commit_ok(self->buf, 0, BUF_BYTES);
	memset(at, 5, BUF_BYTES);
	ASSERT_EQ(0, mprotect(at + PAGE, PAGE, PROT_READ));
	poke_err(SIGSEGV, at + PAGE);
	poke_ok(at, 6);
	poke_ok(at + 2 * PAGE, 6);
	ASSERT_EQ(0, mprotect(at + PAGE, PAGE, RW));
	poke_ok(at + PAGE, 6);
}

TEST_F(map, advice_of_madvise_loses_nothing)
{
	static const int advices[] = { MADV_DONTNEED, MADV_COLD,
				       MADV_PAGEOUT,  MADV_FREE,
				       MADV_REMOVE,   MADV_WILLNEED,
				       MADV_HUGEPAGE };
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	buf_commit_ok(self->buf, 0, BUF_BYTES);
	memset(at, 5, BUF_BYTES);
	for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++) {
		madvise(at, BUF_BYTES, advices[i]);
		EXPECT_TRUE(is_filled(at, 5, BUF_BYTES))
		TH_LOG("advice %d", advices[i]);
	}
	charged_ok(self->pool, BUF_BYTES);
}

TEST_F(map, populate_gives_pages)
{
	uint8_t *at = NULL;

	ASSERT_EQ(0, _buf_map(self->buf, 0, BUF_BYTES, RW,
			      MAP_SHARED | MAP_POPULATE, &at));
	charged_ok(self->pool, BUF_BYTES);
	uint8_t *part = NULL;
	int buf = buf_new(self->pool, 64 * PAGE);

	ASSERT_EQ(0, _buf_map(buf, 0, 64 * PAGE, RW, MAP_SHARED, &part));
	if (madvise(part, 64 * PAGE, MADV_POPULATE_WRITE) == 0)
		charged_ok(self->pool, BUF_BYTES + 64 * PAGE);
}

TEST_F(map, mlock_and_a_limit)
{
	int pool = pool_new_small(self->dev, 2 * PAGE);
	int buf = buf_new(pool, 4 * PAGE);
	uint8_t *at = buf_map(buf, 4 * PAGE, RW);

	EXPECT_NE(0, mlock(at, 4 * PAGE));
	EXPECT_LE(charged(pool), 2 * PAGE);
	munlock(at, 4 * PAGE);
	munmap(at, 4 * PAGE);
	close(buf);
	charged_ok(pool, 0);
}

TEST_F(map, fdinfo_names_the_buffer)
{
	char path[64], line[256];
	int fields = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->buf);
	FILE *file = fopen(path, "re");

	ASSERT_TRUE(file != NULL);
	while (fgets(line, sizeof(line), file)) {
		uint64_t number;

		if (sscanf(line, "kvpool-buffer: %lu", &number) == 1) {
			EXPECT_EQ(self->id, number);
			fields++;
		} else if (sscanf(line, "kvpool-size: %lu KiB", &number) == 1) {
			EXPECT_EQ(BUF_BYTES / 1024, number);
			fields++;
		}
	}
	fclose(file);
	EXPECT_EQ(2, fields);
}

/* ---- two threads --------------------------------------------------------- */

struct toucher {
	uint8_t *at;
	size_t bytes;
	uint8_t byte;
};

static void *touch_all(void *arg)
{
	struct toucher *t = arg;

	for (size_t i = 0; i < t->bytes; i += PAGE)
		t->at[i + t->byte] = t->byte;
	return NULL;
}

TEST_F(map, threads_that_fault_in_one_buffer_lose_no_write)
{
	enum { NR = 4 };
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);
	struct toucher touchers[NR];
	pthread_t threads[NR];

	for (int i = 0; i < NR; i++) {
		touchers[i] = (struct toucher){ at, BUF_BYTES, i + 1 };
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, touch_all,
					    &touchers[i]));
	}
	for (int i = 0; i < NR; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < BUF_BYTES; i += PAGE)
		for (int byte = 1; byte <= NR; byte++)
			ASSERT_EQ(byte, at[i + byte]);
	charged_ok(self->pool, BUF_BYTES);
}

TEST_HARNESS_MAIN
