/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEAL: after it has returned no byte of the range changes, whoever writes and
 * however; who holds pages otherwise makes it answer EBUSY.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 4 * MIB };

FIXTURE(seal)
{
	int dev, pool, buf;
	uint64_t id;
	uint8_t *at; /* all of it, writable */
};

FIXTURE_VARIANT(seal)
{
	uint32_t flags; /* of the buffer */
};

FIXTURE_VARIANT_ADD(seal, huge){ 0 };
FIXTURE_VARIANT_ADD(seal, small){ KVPOOL_BUF_SMALL };

FIXTURE_SETUP(seal)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new(self->dev, POOL_BYTES);
	buf_create_ok(self->pool, BUF_BYTES, variant->flags, &self->buf,
		      &self->id);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
	buf_commit_ok(self->buf, 0, BUF_BYTES);
}

FIXTURE_TEARDOWN(seal)
{
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

static void make_read_only(uint8_t *at, size_t bytes)
{
	ASSERT_EQ(0, mprotect(at, bytes, PROT_READ));
}

TEST_F(seal, rounds_up_and_answers_how_much)
{
	uint64_t sealed;

	ASSERT_EQ(0, _buf_seal(self->buf, PAGE + 1, &sealed));
	EXPECT_EQ(2 * PAGE, sealed);
	EXPECT_EQ(2 * PAGE, buf_stat_of(self->buf).out_sealed);
	ASSERT_EQ(0, _buf_seal(self->buf, BUF_BYTES, &sealed));
	EXPECT_EQ(BUF_BYTES, sealed);
}

TEST_F(seal, of_the_same_again_changes_nothing)
{
	uint64_t sealed;

	memset(self->at, 0x33, 2 * PAGE);
	buf_seal_ok(self->buf, 2 * PAGE);
	ASSERT_EQ(0, _buf_seal(self->buf, 2 * PAGE, &sealed));
	EXPECT_EQ(2 * PAGE, sealed);
	make_read_only(self->at, BUF_BYTES);
	EXPECT_TRUE(is_filled(self->at, 0x33, 2 * PAGE));
}

TEST_F(seal, below_an_earlier_seal_is_refused)
{
	buf_seal_ok(self->buf, 2 * PAGE);
	buf_seal_err(EPERM, self->buf, PAGE);
	EXPECT_EQ(2 * PAGE, buf_stat_of(self->buf).out_sealed);
}

TEST_F(seal, beyond_the_end_is_refused)
{
	buf_seal_err(EINVAL, self->buf, BUF_BYTES + 1);
	buf_seal_err(EINVAL, self->buf, BUF_BYTES + PAGE);
	buf_seal_err(EINVAL, self->buf, ~0ULL);
	buf_seal_err(EINVAL, self->buf, 1ULL << 63);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_sealed);
	poke_ok(self->at, 1);
}

TEST_F(seal, zeroes_the_rest_of_the_last_page)
{
	memset(self->at, 0x33, 3 * PAGE);
	buf_seal_ok(self->buf, PAGE + 100);
	make_read_only(self->at, BUF_BYTES);
	EXPECT_TRUE(is_filled(self->at, 0x33, PAGE + 100));
	EXPECT_TRUE(is_filled(self->at + PAGE + 100, 0, PAGE - 100));
	EXPECT_TRUE(is_filled(self->at + 2 * PAGE, 0x33, PAGE));
}

TEST_F(seal, a_writable_mapping_gets_a_bus_error)
{
	memset(self->at, 0x33, BUF_BYTES);
	buf_seal_ok(self->buf, 2 * PAGE);
	touch_err(SIGBUS, self->at);
	poke_err(SIGBUS, self->at + PAGE);
	/* Behind the seal life goes on. */
	poke_ok(self->at + 2 * PAGE, 0x44);
	EXPECT_EQ(0x44, self->at[2 * PAGE]);
	EXPECT_TRUE(is_filled(self->at + 3 * PAGE, 0x33, BUF_BYTES - 3 * PAGE));
}

TEST_F(seal, a_mapping_made_read_only_before_reads_on)
{
	memset(self->at, 0x33, BUF_BYTES);
	make_read_only(self->at, 2 * PAGE);
	buf_seal_ok(self->buf, 2 * PAGE);
	EXPECT_TRUE(is_filled(self->at, 0x33, 2 * PAGE));
	poke_err(SIGSEGV, self->at);
	poke_ok(self->at + 2 * PAGE, 0x44);
}

TEST_F(seal, a_mapping_made_read_only_after_reads_again)
{
	memset(self->at, 0x33, BUF_BYTES);
	buf_seal_ok(self->buf, 2 * PAGE);
	touch_err(SIGBUS, self->at);
	make_read_only(self->at, 2 * PAGE);
	EXPECT_TRUE(is_filled(self->at, 0x33, 2 * PAGE));
}

TEST_F(seal, makes_no_new_way_to_write)
{
	uint8_t *at = NULL;
	int fd;

	buf_seal_ok(self->buf, 2 * PAGE);
	buf_map_err(EACCES, self->buf, 0, PAGE, RW, MAP_SHARED);
	buf_map_err(EACCES, self->buf, PAGE, 2 * PAGE, RW, MAP_SHARED);
	buf_map_err(EACCES, self->buf, 0, BUF_BYTES, PROT_WRITE, MAP_SHARED);
	ASSERT_EQ(0, _buf_map(self->buf, 2 * PAGE, PAGE, RW, MAP_SHARED, &at));
	poke_ok(at, 1);
	ASSERT_EQ(0,
		  _buf_map(self->buf, 0, 4 * PAGE, PROT_READ, MAP_SHARED, &at));
	touch_ok(at);
	EXPECT_EQ(-1, mprotect(at, PAGE, RW));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-1, mprotect(at, 4 * PAGE, RW));
	EXPECT_EQ(EACCES, errno);
	ASSERT_EQ(0, mprotect(at + 2 * PAGE, 2 * PAGE, RW));
	/* Nor through a new description. */
	buf_open_ok(self->pool, self->id, KVPOOL_WRITE, &fd);
	buf_map_err(EACCES, fd, 0, PAGE, RW, MAP_SHARED);
}

TEST_F(seal, keeps_holes_and_they_stay_empty)
{
	uint8_t *at = NULL;

	memset(self->at, 0x33, 8 * PAGE);
	buf_release_ok(self->buf, 2 * PAGE, PAGE);
	uint64_t before = charged(self->pool);

	buf_seal_ok(self->buf, 8 * PAGE);
	charged_ok(self->pool, before);
	ASSERT_EQ(0,
		  _buf_map(self->buf, 0, 8 * PAGE, PROT_READ, MAP_SHARED, &at));
	touch_ok(at + PAGE);
	touch_ok(at + 3 * PAGE);
	if (buf_stat_of(self->buf).out_resident == BUF_BYTES - PAGE)
		touch_err(SIGBUS, at + 2 * PAGE);
	else /* it was a part of a folio, and stayed as zeros */
		EXPECT_TRUE(is_filled(at + 2 * PAGE, 0, PAGE));
	charged_ok(self->pool, before);
}

TEST_F(seal, of_an_empty_buffer)
{
	int buf = buf_new(self->pool, MIB);
	uint8_t *at = buf_map(buf, MIB, PROT_READ);

	buf_seal_ok(buf, MIB);
	touch_err(SIGBUS, at);
	buf_commit_err(EPERM, buf, 0, PAGE);
}

TEST_F(seal, a_volatile_buffer_is_refused)
{
	buf_volatile_ok(self->buf);
	buf_seal_err(EPERM, self->buf, PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_sealed);
}

/* ---- writers ------------------------------------------------------------- */

struct writer {
	uint8_t *at;
	size_t bytes;
	volatile bool is_stopped;
	unsigned long nr_rounds; /* atomic */
	unsigned long nr_signals; /* atomic */
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint8_t byte = 0;

	while (!w->is_stopped) {
		byte++;
		for (size_t i = 0; i < w->bytes; i += PAGE) {
			if (_poke(w->at + i, byte))
				__atomic_add_fetch(&w->nr_signals, 1,
						   __ATOMIC_RELAXED);
		}
		__atomic_add_fetch(&w->nr_rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Waits until the writer has gone once more over all. */
static void await_round(struct writer *w)
{
	unsigned long from = __atomic_load_n(&w->nr_rounds, __ATOMIC_RELAXED);

	while (__atomic_load_n(&w->nr_rounds, __ATOMIC_RELAXED) < from + 2)
		sleep_ms(1);
}

static void seal_against(struct fixture_seal *self, uint8_t *seen)
{
	enum { SEALED = 1 * MIB };
	struct writer w = { .at = self->at, .bytes = BUF_BYTES };
	uint8_t *copy = malloc(SEALED);
	pthread_t thread;

	ASSERT_TRUE(copy != NULL);
	ASSERT_EQ(0, pthread_create(&thread, NULL, write_on, &w));
	await_round(&w);
	buf_seal_ok(self->buf, SEALED);
	memcpy(copy, seen, SEALED);
	await_round(&w);
	EXPECT_MEMEQ(copy, seen, SEALED);
	EXPECT_GT(w.nr_signals, 0);
	await_round(&w);
	EXPECT_MEMEQ(copy, seen, SEALED);
	w.is_stopped = true;
	pthread_join(thread, NULL);
	EXPECT_MEMEQ(copy, seen, SEALED);
	free(copy);
}

TEST_F(seal, stops_a_thread_that_writes)
{
	seal_against(self, buf_map(self->buf, BUF_BYTES, PROT_READ));
}

TEST_F(seal, stops_faults_on_their_way)
{
	/* The writer's pages are taken away all the time, so that it faults. */
	enum { ROUNDS = 30, BYTES = 16 * PAGE };

	for (int round = 0; round < ROUNDS; round++) {
		uint8_t copy[BYTES], *at, *seen;
		pthread_t thread;
		int buf;

		buf_create_ok(self->pool, BUF_BYTES, variant->flags, &buf,
			      NULL);
		at = buf_map(buf, BYTES, RW);
		seen = buf_map(buf, BYTES, PROT_READ);
		buf_commit_ok(buf, 0, BYTES);
		struct writer w = { .at = at, .bytes = BYTES };

		ASSERT_EQ(0, pthread_create(&thread, NULL, write_on, &w));
		sleep_ms(round % 4);
		for (int i = 0; i < round; i++)
			madvise(at, BYTES, MADV_DONTNEED);
		buf_seal_ok(buf, BYTES);
		memcpy(copy, seen, BYTES);
		await_round(&w);
		EXPECT_MEMEQ(copy, seen, BYTES);
		w.is_stopped = true;
		pthread_join(thread, NULL);
		EXPECT_MEMEQ(copy, seen, BYTES);
		munmap(at, BYTES);
		munmap(seen, BYTES);
		close(buf);
	}
}

TEST_F(seal, stops_another_process_that_writes)
{
	struct turns turns = turns_new();
	pid_t pid = child_start();
	uint8_t before;

	if (pid == 0) {
		long nr = 0;

		tell_parent(&turns);
		while (_poke(self->at, nr++) == 0)
			;
		child_end();
	}
	await_child(&turns);
	sleep_ms(20);
	buf_seal_ok(self->buf, PAGE);
	make_read_only(self->at, BUF_BYTES);
	before = self->at[0];
	sleep_ms(20);
	EXPECT_EQ(before, self->at[0]);
	child_ok(pid);
	EXPECT_EQ(before, self->at[0]);
}

TEST_F(seal, stops_calls_that_write_for_a_process)
{
	int fds[2], mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	struct iovec iov = { self->at, 8 };
	char text[8] = "changed";

	memset(self->at, 0x33, PAGE);
	buf_seal_ok(self->buf, PAGE);
	ASSERT_EQ(0, pipe(fds));
	ASSERT_EQ(8, write(fds[1], text, 8));
	EXPECT_EQ(-1, readv(fds[0], &iov, 1));
	EXPECT_EQ(EFAULT, errno);
	struct iovec from = { text, 8 };

	EXPECT_EQ(-1, process_vm_writev(getpid(), &from, 1, &iov, 1, 0));
	EXPECT_LT(pwrite(mem, text, 8, (off_t)(uintptr_t)self->at), 0);
	make_read_only(self->at, BUF_BYTES);
	EXPECT_LT(pwrite(mem, text, 8, (off_t)(uintptr_t)self->at), 0);
	EXPECT_TRUE(is_filled(self->at, 0x33, PAGE));
}

/* ---- pins ---------------------------------------------------------------- */

TEST_F(seal, is_busy_while_a_pipe_holds_a_page)
{
	struct iovec iov = { self->at + PAGE, PAGE };
	char drained[PAGE];
	int fds[2];

	ASSERT_EQ(0, pipe(fds));
	self->at[PAGE] = 0x33;
	ASSERT_EQ(PAGE, vmsplice(fds[1], &iov, 1, 0));
	buf_seal_err(EBUSY, self->buf, 4 * PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_sealed);
	/* Nothing has changed: it can be written on. */
	poke_ok(self->at + PAGE, 0x44);
	poke_ok(self->at, 0x44);
	ASSERT_EQ(PAGE, read(fds[0], drained, PAGE));
	EXPECT_EQ(0x44, drained[0]);
	buf_seal_ok(self->buf, 4 * PAGE);
}

TEST_F(seal, a_page_held_elsewhere_does_not_count)
{
	struct iovec iov = { self->at + 2 * MIB, PAGE };
	int fds[2];

	ASSERT_EQ(0, pipe(fds));
	poke_ok(self->at + 2 * MIB, 1);
	ASSERT_EQ(PAGE, vmsplice(fds[1], &iov, 1, 0));
	buf_seal_ok(self->buf, 2 * MIB);
	buf_seal_err(EBUSY, self->buf, 2 * MIB + PAGE);
	EXPECT_EQ(2 * MIB, buf_stat_of(self->buf).out_sealed);
}

TEST_F(seal, closing_the_pipe_ends_it)
{
	struct iovec iov = { self->at, PAGE };
	int fds[2];

	ASSERT_EQ(0, pipe(fds));
	poke_ok(self->at, 1);
	ASSERT_EQ(PAGE, vmsplice(fds[1], &iov, 1, 0));
	buf_seal_err(EBUSY, self->buf, PAGE);
	close(fds[0]);
	close(fds[1]);
	buf_seal_ok(self->buf, PAGE);
}

TEST_HARNESS_MAIN
