/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine short of memory: clients that keep volatile buffers, more of them
 * than fit, beside a neighbour who takes most of what is free and gives it back,
 * again and again. Nobody is killed, and what survives is unharmed.
 * TARN_TEST_SQUEEZE_SECONDS says how long (make check-debug: ten minutes).
 */
#include "tests/kmod/kit.h"

enum { NR_CLIENTS = 3, BUF_BYTES = 2 * MIB, NR_BUFS = 64 };

static long squeeze_seconds(void)
{
	return env_number("TARN_TEST_SQUEEZE_SECONDS", 10);
}

static long long nr_oom_kills(void)
{
	return file_number("/proc/vmstat", "oom_kill ");
}

static uint8_t byte_of(unsigned int client, unsigned int i)
{
	return (uint8_t)(1 + client * NR_BUFS + i);
}

/* Shared by the processes: what they have done. Atomic. */
struct squeeze {
	long nr_survived, nr_lost, nr_taken;
};

static void count(long *number)
{
	__atomic_add_fetch(number, 1, __ATOMIC_RELAXED);
}

static long counted(long *number)
{
	return __atomic_load_n(number, __ATOMIC_RELAXED);
}

/* The time is over, and it was a squeeze: some content was lost, some not. */
static bool is_over(struct squeeze *s, long long end)
{
	return harness_now_ms() >= end && counted(&s->nr_taken) >= 2 &&
	       counted(&s->nr_survived) && counted(&s->nr_lost);
}

/*
 * Return: whether the buffer is full. The memory may be short for a moment:
 * ENOMEM is a clean answer, and the next round tries again.
 */
static bool refill(int buf, uint8_t *at, uint8_t byte)
{
	int err = _buf_commit(buf, 0, BUF_BYTES);

	EXPECT_TRUE(err == 0 || err == -ENOMEM) TH_LOG("COMMIT: %d", err);
	if (!err)
		memset(at, byte, BUF_BYTES);
	return !err;
}

/* Looks at each of its buffers in turn, and makes anew what it has lost. */
static void live_on(struct squeeze *s, int pool, unsigned int client,
		    long long end)
{
	bool is_full[NR_BUFS] = { false };
	int bufs[NR_BUFS];
	uint32_t survived;

	for (unsigned int i = 0; i < NR_BUFS; i++)
		bufs[i] = buf_new(pool, BUF_BYTES);
	for (unsigned int i = 0; !is_over(s, end); i = (i + 1) % NR_BUFS) {
		buf_willneed_ok(bufs[i], &survived);
		uint8_t *at = buf_map(bufs[i], BUF_BYTES, RW);

		if (survived && is_full[i]) {
			ASSERT_TRUE(
				is_filled(at, byte_of(client, i), BUF_BYTES))
			TH_LOG("client %u, buffer %u", client, i);
			count(&s->nr_survived);
		} else {
			if (is_full[i])
				count(&s->nr_lost);
			is_full[i] = refill(bufs[i], at, byte_of(client, i));
		}
		munmap(at, BUF_BYTES);
		buf_volatile_ok(bufs[i]);
	}
}

/*
 * The neighbour: seven eighths of what is available, in which the kernel counts
 * the volatile memory; most of that must go therefore.
 */
static void take_and_give(struct squeeze *s, long long end)
{
	while (!is_over(s, end)) {
		size_t bytes =
			(size_t)file_number("/proc/meminfo", "MemAvailable:") *
			1024 / 8 * 7;
		uint8_t *at = mmap(NULL, bytes, RW,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
				   -1, 0);

		ASSERT_NE(MAP_FAILED, at);
		sleep_ms(100);
		munmap(at, bytes);
		count(&s->nr_taken);
		sleep_ms(500);
	}
}

TEST_TIMEOUT(squeeze_kills_nobody, 1200)
{
	const long long oom_before = nr_oom_kills();
	int dev = dev_open();
	struct squeeze *s;
	pid_t pids[NR_CLIENTS + 1];
	long long end;

	if (dev < 0)
		return;
	NEED_ROOT();
	int pool = pool_new(dev, KVPOOL_UNLIMITED);
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, s);
	end = harness_now_ms() + squeeze_seconds() * 1000;
	for (unsigned int i = 0; i <= NR_CLIENTS; i++) {
		pids[i] = child_start();
		if (pids[i] == 0) {
			if (i < NR_CLIENTS)
				live_on(s, pool, i, end);
			else
				take_and_give(s, end);
			child_end();
		}
	}
	for (int i = 0; i <= NR_CLIENTS; i++)
		EXPECT_EQ(0, child_status(pids[i]));
	EXPECT_EQ(oom_before, nr_oom_kills());
	TH_LOG("survived %ld times, lost %ld times, memory taken %ld times",
	       s->nr_survived, s->nr_lost, s->nr_taken);
	EXPECT_LE(s->nr_lost, (long)stat_of(pool).out_purges);
}

/*
 * The last resort: before the kernel kills anybody for want of memory, all that
 * is volatile goes. SysRq f asks for a kill; a child offers itself.
 */
TEST(squeeze_the_oom_killer_takes_volatile_memory_first)
{
	const uint64_t bytes = 32 * MIB;
	int dev = dev_open();
	pid_t pid;

	if (dev < 0)
		return;
	NEED_ROOT();
	int pool = pool_new(dev, KVPOOL_UNLIMITED);
	int kept = buf_sealed(pool, 2 * MIB, 0x47);

	for (uint64_t done = 0; done < bytes; done += BUF_BYTES) {
		int buf = buf_new(pool, BUF_BYTES);

		buf_commit_ok(buf, 0, BUF_BYTES);
		buf_volatile_ok(buf);
	}
	EXPECT_EQ(bytes, stat_of(pool).out_volatile);
	pid = child_start();
	if (pid == 0) {
		for (;;)
			pause();
	}
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	ASSERT_EQ(0, file_write(path, "1000"));
	ASSERT_EQ(0, file_write("/proc/sysrq-trigger", "f"));
	EXPECT_EQ(128 + SIGKILL, child_status(pid));
	EXPECT_EQ(0, stat_of(pool).out_volatile);
	EXPECT_EQ(bytes, stat_of(pool).out_purged);
	uint8_t *at = buf_map(kept, 2 * MIB, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x47, 2 * MIB));
}

TEST_HARNESS_MAIN
