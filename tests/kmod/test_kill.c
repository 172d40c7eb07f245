/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that die by SIGKILL at random moments: the pool's unpublished usage
 * is back at zero, and what others have is untouched. TARN_TEST_KILLS says how
 * many die (500).
 */
#include "tests/kmod/kit.h"

/*
 * One life is short, so that a kill meets every part of it: single pages are few
 * (each takes long where an instrumented kernel is emulated), huge ones are not.
 */
enum {
	NR_AT_ONCE = 5,
	KEPT_BYTES = 8 * PAGE,
	CLIENT_BYTES = 4 * MIB,
	MAX_SMALL_PAGES = 48,
};

FIXTURE(kill)
{
	int dev, pool, kept; /* published by key 1 */
};

FIXTURE_SETUP(kill)
{
	struct kvpool_pool_create args = pool_args(POOL_BYTES);

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	args.reserve = 4 * MIB;
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
	self->kept = buf_sealed(self->pool, KEPT_BYTES, 0x19);
	buf_publish_ok(self->kept, 1, KEPT_BYTES);
}

FIXTURE_TEARDOWN(kill)
{
	close(self->kept);
	close(self->pool);
	close(self->dev);
}

static void live_until_killed(int pool, unsigned int seed)
{
	int fds[2];

	if (pipe2(fds, O_NONBLOCK))
		_exit(HARNESS_FAIL);
	for (;;) {
		const bool is_small = rand_r(&seed) % 2;
		const uint64_t max_pages = is_small ? MAX_SMALL_PAGES :
						      CLIENT_BYTES / PAGE;
		int fd = -1;

		if (_buf_create(pool, CLIENT_BYTES,
				is_small ? KVPOOL_BUF_SMALL : 0, &fd, NULL))
			continue;
		uint8_t *at = buf_map(fd, CLIENT_BYTES, RW);
		struct iovec iov = { at, PAGE };
		uint64_t bytes = (1 + rand_r(&seed) % max_pages) * PAGE;
		struct kvpool_buf_lookup found;
		struct kvpool_buf_clone c =
			clone_args(pool, bytes, CLIENT_BYTES);

		_buf_commit_partial(fd, 0, bytes, &bytes);
		poke_pages(at + MIB, 16 * PAGE, 1);
		if (vmsplice(fds[1], &iov, 1, SPLICE_F_NONBLOCK) < 0)
			_buf_release(fd, 0, 8 * PAGE, NULL);
		_buf_seal(fd, (1 + rand_r(&seed) % max_pages) * PAGE, NULL);
		if (_buf_clone(fd, &c) == 0)
			_buf_commit_partial(c.out_fd, MIB,
					    MAX_SMALL_PAGES * PAGE, &bytes);
		if (_buf_lookup(pool, 1, &found) == 0) {
			uint8_t *seen =
				buf_map(found.out_fd, KEPT_BYTES, PROT_READ);

			EXPECT_EQ(0x19, seen[KEPT_BYTES - 1]);
			munmap(seen, KEPT_BYTES);
			close(found.out_fd);
		}
		if (rand_r(&seed) % 4 == 0) {
			_buf_advise(fd, KVPOOL_ADVICE_VOLATILE, NULL);
			_buf_advise(fd, KVPOOL_ADVICE_WILLNEED, NULL);
		}
		munmap(at, CLIENT_BYTES);
		close(c.out_fd);
		close(fd);
	}
}

/* What clients have, or had and somebody still holds. */
static uint64_t unpublished(int pool)
{
	struct kvpool_pool_stat s = stat_of(pool);

	return s.out_charged - s.out_reserve - s.out_shared;
}

TEST_F_TIMEOUT(kill, clients_that_die_leave_nothing, 3600)
{
	long nr_kills = env_number("TARN_TEST_KILLS", 500);
	unsigned int seed = env_number("TARN_TEST_SEED", 1);

	for (long nr = 0; nr < nr_kills; nr += NR_AT_ONCE) {
		pid_t pids[NR_AT_ONCE];

		for (int i = 0; i < NR_AT_ONCE; i++) {
			pids[i] = child_start();
			if (pids[i] == 0)
				live_until_killed(self->pool, seed + nr + i);
		}
		sleep_ms(rand_r(&seed) % 60);
		for (int i = 0; i < NR_AT_ONCE; i++) {
			kill(pids[i], SIGKILL);
			EXPECT_EQ(128 + SIGKILL, child_status(pids[i]));
		}
		EXPECT_LE(charged(self->pool), POOL_BYTES);
		for (int i = 0; i < 500 && unpublished(self->pool); i++)
			sleep_ms(10);
		ASSERT_EQ(0, unpublished(self->pool))
		TH_LOG("after %ld kills", nr + NR_AT_ONCE);
		ASSERT_EQ(1, stat_of(self->pool).out_nr_bufs);
		ASSERT_EQ(1, buf_stat_of(self->kept).out_nr_open);
	}
	uint8_t *at = buf_map(self->kept, KEPT_BYTES, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x19, KEPT_BYTES));
}

TEST_F(kill, a_client_killed_in_a_long_commit_dies_soon)
{
	int pool = pool_new(self->dev, KVPOOL_UNLIMITED);
	struct turns turns = turns_new();
	pid_t pid = child_start();

	if (pid == 0) {
		int buf;

		ASSERT_EQ(0, _buf_create(pool, 400 * MIB, KVPOOL_BUF_SMALL,
					 &buf, NULL));
		tell_parent(&turns);
		for (;;) {
			uint64_t done;

			_buf_commit_partial(buf, 0, 400 * MIB, &done);
			_buf_release(buf, 0, 400 * MIB, NULL);
		}
	}
	await_child(&turns);
	sleep_ms(30);
	long long before = harness_now_ms();

	kill(pid, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	EXPECT_LE(harness_now_ms() - before, 5000);
	drained_ok(pool, 0);
}

TEST_HARNESS_MAIN
