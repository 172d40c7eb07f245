/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REVOKE: every other open description loses its mappings, its vote and its
 * calls for ever, wherever it was passed to; the caller goes on.
 */
#include "tests/kmod/kit.h"

#include <sched.h>

enum { BUF_BYTES = 4 * MIB };

FIXTURE(revoke)
{
	int dev, pool, buf;
	uint64_t id;
	uint8_t *at;
};

FIXTURE_SETUP(revoke)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new(self->dev, POOL_BYTES);
	self->buf = buf_new_id(self->pool, BUF_BYTES, &self->id);
	buf_commit_ok(self->buf, 0, BUF_BYTES);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
	memset(self->at, 0x51, BUF_BYTES);
}

FIXTURE_TEARDOWN(revoke)
{
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

TEST_F(revoke, alone_cuts_off_nobody)
{
	uint32_t nr;

	buf_revoke_ok(self->buf, &nr);
	EXPECT_EQ(0, nr);
	EXPECT_TRUE(is_filled(self->at, 0x51, BUF_BYTES));
	poke_ok(self->at, 1);
}

TEST_F(revoke, cuts_off_every_other_description)
{
	struct kvpool_buf_stat s;
	struct kvpool_buf_clone c;
	uint8_t *read, *written;
	uint32_t nr;
	int a, b;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &a);
	buf_open_ok(self->pool, self->id, KVPOOL_WRITE, &b);
	read = buf_map(a, BUF_BYTES, PROT_READ);
	written = buf_map(b, BUF_BYTES, RW);
	touch_ok(read);
	poke_ok(written + PAGE, 0x51);
	buf_revoke_ok(self->buf, &nr);
	EXPECT_EQ(2, nr);

	touch_err(SIGBUS, read);
	touch_err(SIGBUS, read + 2 * MIB);
	poke_err(SIGBUS, written + PAGE);
	buf_map_err(ESTALE, a, 0, PAGE, PROT_READ, MAP_SHARED);
	buf_map_err(ESTALE, b, 0, PAGE, RW, MAP_SHARED);
	EXPECT_EQ(-ESTALE, _buf_stat(b, &s));
	buf_commit_err(ESTALE, b, 0, PAGE);
	buf_release_err(ESTALE, b, 0, PAGE);
	buf_seal_err(ESTALE, b, PAGE);
	buf_publish_err(ESTALE, b, 1, PAGE);
	buf_unpublish_err(ESTALE, b);
	buf_advise_err(ESTALE, b, KVPOOL_ADVICE_WILLNEED);
	buf_advise_err(ESTALE, a, KVPOOL_ADVICE_VOLATILE);
	buf_revoke_err(ESTALE, b);
	c = clone_args(self->pool, PAGE, PAGE);
	buf_clone_err(ESTALE, a, &c);

	/* The caller has lost nothing. */
	EXPECT_TRUE(is_filled(self->at, 0x51, BUF_BYTES));
	poke_ok(self->at, 1);
	s = buf_stat_of(self->buf);
	EXPECT_EQ(1, s.out_nr_open);
	EXPECT_EQ(1, s.out_nr_votes);
	charged_ok(self->pool, BUF_BYTES);
	/* Nor those who come later. */
	buf_open_ok(self->pool, self->id, KVPOOL_WRITE, &a);
	uint8_t *again = buf_map(a, BUF_BYTES, RW);

	poke_ok(again, 1);
	buf_revoke_ok(self->buf, &nr);
	EXPECT_EQ(1, nr);
}

TEST_F(revoke, a_duplicate_stays_with_its_description)
{
	int mine = dup(self->buf);
	uint32_t nr;

	buf_revoke_ok(mine, &nr);
	EXPECT_EQ(0, nr);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open);
}

TEST_F(revoke, a_mapping_whose_descriptor_was_closed)
{
	uint8_t *at;
	uint32_t nr;
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	at = buf_map(fd, BUF_BYTES, PROT_READ);
	close(fd);
	touch_ok(at);
	buf_revoke_ok(self->buf, &nr);
	EXPECT_EQ(1, nr);
	touch_err(SIGBUS, at);
}

TEST_F(revoke, reaches_a_descriptor_passed_over_a_socket)
{
	struct turns turns = turns_new();
	int pair[2], fd;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	pid_t pid = child_start();

	if (pid == 0) {
		close(self->buf);
		close(fd);
		munmap(self->at, BUF_BYTES);
		int got = fd_receive(pair[0]);
		uint8_t *at = buf_map(got, BUF_BYTES, PROT_READ);

		EXPECT_EQ(0x51, *at);
		tell_parent(&turns);
		await_parent(&turns);
		touch_err(SIGBUS, at);
		buf_map_err(ESTALE, got, 0, PAGE, PROT_READ, MAP_SHARED);
		child_end();
	}
	fd_send(pair[1], fd);
	close(fd);
	await_child(&turns);
	buf_revoke_ok(self->buf, NULL);
	tell_child(&turns);
	child_ok(pid);
	EXPECT_EQ(0x51, *self->at);
}

TEST_F(revoke, reaches_a_descriptor_on_its_way)
{
	int pair[2], fd;
	uint32_t nr;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	fd_send(pair[1], fd);
	close(fd);
	buf_revoke_ok(self->buf, &nr);
	EXPECT_EQ(1, nr);
	fd = fd_receive(pair[0]);
	buf_map_err(ESTALE, fd, 0, PAGE, PROT_READ, MAP_SHARED);
}

TEST_F(revoke, a_descriptor_in_a_dead_socket_goes)
{
	int pair[2], fd;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	fd_send(pair[1], fd);
	close(fd);
	EXPECT_EQ(2, buf_stat_of(self->buf).out_nr_open);
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < 100 && buf_stat_of(self->buf).out_nr_open != 1; i++)
		sleep_ms(20);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open);
}

TEST_F(revoke, reaches_look_ups_and_leaves_the_keys)
{
	struct kvpool_buf_lookup found;
	uint8_t *at;
	uint32_t nr;

	munmap(self->at, BUF_BYTES);
	self->at = buf_map(self->buf, BUF_BYTES, PROT_READ);
	buf_seal_ok(self->buf, BUF_BYTES);
	buf_publish_ok(self->buf, 1, BUF_BYTES);
	buf_lookup_ok(self->pool, 1, &found);
	at = buf_map(found.out_fd, BUF_BYTES, PROT_READ);
	touch_ok(at);
	buf_revoke_ok(self->buf, &nr);
	EXPECT_EQ(1, nr);
	touch_err(SIGBUS, at);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_keys);
	buf_lookup_ok(self->pool, 1, &found);
	at = buf_map(found.out_fd, BUF_BYTES, PROT_READ);
	EXPECT_EQ(0x51, *at);
}

TEST_F(revoke, a_vote_is_lost_too)
{
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	buf_volatile_ok(self->buf);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_state);
	buf_revoke_ok(self->buf, NULL);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(self->buf).out_state);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_votes);
	close(fd);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_votes);
}

TEST_F(revoke, who_was_cut_off_keeps_no_memory)
{
	uint64_t bytes;
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	buf_revoke_ok(self->buf, NULL);
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	/* His descriptor is open still, but nobody is left who needs the pages. */
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	EXPECT_EQ(BUF_BYTES, bytes);
	charged_ok(self->pool, 0);
	close(fd);
}

TEST_F(revoke, is_for_the_owner)
{
	NEED_ROOT();
	pid_t pid = child_start_as(BOB);

	if (pid == 0) {
		buf_revoke_err(EPERM, self->buf);
		child_end();
	}
	child_ok(pid);
	poke_ok(self->at, 1);
}

struct toucher {
	uint8_t *at;
	volatile bool is_stopped;
	long nr_ok, nr_signals;
};

static void *touch_on(void *arg)
{
	struct toucher *t = arg;
	size_t i = 0;

	while (!t->is_stopped) {
		if (_touch(t->at + i, NULL))
			t->nr_signals++;
		else
			t->nr_ok++;
		i = (i + PAGE) % BUF_BYTES;
	}
	return NULL;
}

TEST_F(revoke, against_a_thread_that_reads)
{
	for (int round = 0; round < 20; round++) {
		pthread_t thread;
		uint32_t nr;
		int fd;

		buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
		struct toucher t = { .at = buf_map(fd, BUF_BYTES, PROT_READ) };

		ASSERT_EQ(0, pthread_create(&thread, NULL, touch_on, &t));
		sleep_ms(round % 5);
		buf_revoke_ok(self->buf, &nr);
		EXPECT_EQ(1, nr);
		/* Not one page of it can be read any longer. */
		for (size_t i = 0; i < BUF_BYTES; i += PAGE)
			EXPECT_EQ(-SIGBUS, _touch(t.at + i, NULL));
		t.is_stopped = true;
		pthread_join(thread, NULL);
		munmap(t.at, BUF_BYTES);
		close(fd);
	}
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_open);
	EXPECT_TRUE(is_filled(self->at, 0x51, BUF_BYTES));
}

/* ---- races --------------------------------------------------------------- */

static void *release_on(void *arg)
{
	int fd = *(int *)arg, err;

	do
		err = _buf_release(fd, 0, PAGE, NULL);
	while (!err);
	return (void *)(intptr_t)err;
}

TEST_F(revoke, no_call_takes_effect_afterwards)
{
	enum { NR = 4 };
	long long end = harness_now_ms() + 3000;

	for (int round = 0; harness_now_ms() < end; round++) {
		pthread_t threads[NR];
		void *err;
		int fd;

		buf_open_ok(self->pool, self->id, KVPOOL_WRITE, &fd);
		for (int i = 0; i < NR; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL,
						    release_on, &fd));
		if (round % 2)
			sleep_ms(1);
		buf_revoke_ok(self->buf, NULL);
		/* From here on nobody but this thread changes the buffer. */
		self->at[0] = 0x6d;
		for (int i = 0; i < NR; i++) {
			pthread_join(threads[i], &err);
			EXPECT_EQ(-ESTALE, (intptr_t)err);
		}
		ASSERT_EQ(0x6d, self->at[0])
		TH_LOG("round %d", round);
		close(fd);
	}
}

/*
 * Threads that fault all the time, more of them than processors, so that some
 * are interrupted between the check of their fault and its end.
 */
struct crowd {
	uint8_t *at; /* atomic: the mapping of this round */
	bool is_revoked; /* atomic */
	bool is_stopped; /* atomic */
	long nr_touched, nr_late; /* atomic */
};

enum { NR_CROWD = 6, CROWD_PAGES = 4 };

#define GET(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define PUT(x, value) __atomic_store_n(&(x), value, __ATOMIC_SEQ_CST)

static void *fault_on(void *arg)
{
	struct crowd *c = arg;
	unsigned int i = 0;

	while (!GET(c->is_stopped)) {
		uint8_t *page = GET(c->at);

		if (!page || GET(c->is_revoked)) {
			sched_yield();
			continue;
		}
		page += i++ % CROWD_PAGES * PAGE;
		madvise(page, PAGE, MADV_DONTNEED);
		if (_touch(page, NULL))
			continue;
		__atomic_add_fetch(&c->nr_touched, 1, __ATOMIC_RELAXED);
		/* What a fault on its way brought back would be here still. */
		if (GET(c->is_revoked) && GET(c->at) && !_touch(page, NULL))
			__atomic_add_fetch(&c->nr_late, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F(revoke, stops_faults_on_their_way)
{
	long long end = harness_now_ms() + 5000;
	struct crowd c = { 0 };
	pthread_t threads[NR_CROWD];

	for (int i = 0; i < NR_CROWD; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, fault_on, &c));
	for (int round = 0; harness_now_ms() < end; round++) {
		uint8_t *at;
		int fd;

		buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
		/* Stays mapped: a thread may be late. It is small. */
		at = buf_map(fd, CROWD_PAGES * PAGE, PROT_READ);
		PUT(c.is_revoked, false);
		PUT(c.at, at);
		sleep_ms(1 + round % 3);
		buf_revoke_ok(self->buf, NULL);
		PUT(c.is_revoked, true);
		sleep_ms(5);
		for (int i = 0; i < CROWD_PAGES; i++)
			EXPECT_EQ(-SIGBUS, _touch(at + i * PAGE, NULL));
		PUT(c.at, NULL);
		close(fd);
	}
	PUT(c.is_stopped, true);
	for (int i = 0; i < NR_CROWD; i++)
		pthread_join(threads[i], NULL);
	EXPECT_GT(c.nr_touched, 0);
	EXPECT_EQ(0, c.nr_late);
}

TEST_HARNESS_MAIN
