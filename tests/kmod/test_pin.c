/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long-term pins of mapped buffers, as a driver's (tests/kmod/pin):
 * SEAL answers EBUSY, RELEASE leaves the page charged and drains it, a purge
 * lets the buffer be, and the device's writes hurt nobody. TARN_KVPOOL_PIN_KO
 * names the test module.
 */
#include "tests/kmod/kit.h"
#include "tests/kmod/pin/kvpool_pin.h"

#include <sched.h>

enum { BUF_BYTES = 2 * MIB };

FIXTURE(pin)
{
	int dev, pool, buf, pin;
	uint64_t id;
	uint8_t *at;
};

FIXTURE_VARIANT(pin)
{
	uint32_t flags; /* of the buffer */
};

FIXTURE_VARIANT_ADD(pin, huge){ 0 };
FIXTURE_VARIANT_ADD(pin, small){ KVPOOL_BUF_SMALL };

static int load_pin_module(void)
{
	const char *path = getenv("TARN_KVPOOL_PIN_KO");
	int fd, err = 0;

	if (access(KVPOOL_PIN_DEVICE, F_OK) == 0)
		return 0;
	fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return -ENOENT;
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
		err = -errno;
	close(fd);
	return err;
}

FIXTURE_SETUP(pin)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	if (load_pin_module())
		SKIP(return, "the test module kvpool_pin.ko is not to be had");
	self->pin = open(KVPOOL_PIN_DEVICE, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->pin);
	self->pool = pool_new(self->dev, POOL_BYTES);
	buf_create_ok(self->pool, BUF_BYTES, variant->flags, &self->buf,
		      &self->id);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
	buf_commit_ok(self->buf, 0, BUF_BYTES);
	memset(self->at, 0x12, BUF_BYTES);
}

FIXTURE_TEARDOWN(pin)
{
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	close(self->pin);
	close(self->dev);
}

static int _pin_take(int pin, uint8_t *at, uint32_t nr)
{
	struct kvpool_pin_range range = { .address = (uintptr_t)at,
					  .nr_pages = nr };

	return kit_call(pin, KVPOOL_PIN_TAKE, &range);
}

static int _pin_fill(int pin, uint8_t byte)
{
	return kit_call(pin, KVPOOL_PIN_FILL, (void *)(uintptr_t)byte);
}

static int _pin_drop(int pin)
{
	return kit_call(pin, KVPOOL_PIN_DROP, NULL);
}

TEST_F(pin, a_mapped_buffer_can_be_pinned_for_long)
{
	ASSERT_EQ(0, _pin_take(self->pin, self->at, BUF_BYTES / PAGE));
	ASSERT_EQ(0, _pin_fill(self->pin, 0x77));
	EXPECT_TRUE(is_filled(self->at, 0x77, BUF_BYTES));
	ASSERT_EQ(0, _pin_drop(self->pin));
}

TEST_F(pin, a_page_that_is_missing_is_made)
{
	buf_release_ok(self->buf, 0, BUF_BYTES);
	ASSERT_EQ(0, _pin_take(self->pin, self->at, 4));
	EXPECT_LE(4 * PAGE, charged(self->pool));
	ASSERT_EQ(0, _pin_fill(self->pin, 0x77));
	EXPECT_TRUE(is_filled(self->at, 0x77, 4 * PAGE));
}

TEST_F(pin, a_limit_holds_for_pins)
{
	int pool = pool_new(self->dev, 2 * PAGE), buf = buf_new(pool, 4 * PAGE);
	uint8_t *at = buf_map(buf, 4 * PAGE, RW);

	EXPECT_EQ(-EFAULT, _pin_take(self->pin, at, 4));
	EXPECT_LE(charged(pool), 2 * PAGE);
}

TEST_F(pin, seal_is_busy_until_it_is_dropped)
{
	ASSERT_EQ(0, _pin_take(self->pin, self->at + PAGE, 1));
	buf_seal_err(EBUSY, self->buf, 4 * PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_sealed);
	poke_ok(self->at, 1);
	ASSERT_EQ(0, _pin_fill(self->pin, 0x77));
	EXPECT_EQ(0x77, self->at[PAGE]);
	ASSERT_EQ(0, _pin_drop(self->pin));
	buf_seal_ok(self->buf, 4 * PAGE);
}

TEST_F(pin, sealed_memory_cannot_be_pinned_for_writing)
{
	buf_seal_ok(self->buf, 4 * PAGE);
	EXPECT_EQ(-EFAULT, _pin_take(self->pin, self->at, 1));
	ASSERT_EQ(0, mprotect(self->at, 4 * PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, _pin_take(self->pin, self->at, 1));
	EXPECT_TRUE(is_filled(self->at, 0x12, 4 * PAGE));
}

TEST_F(pin, a_released_page_stays_charged_and_drains)
{
	ASSERT_EQ(0, _pin_take(self->pin, self->at, 2));
	buf_release_ok(self->buf, 0, BUF_BYTES);
	struct kvpool_pool_stat s = stat_of(self->pool);

	EXPECT_GE(s.out_draining, 2 * PAGE);
	EXPECT_EQ(s.out_draining, s.out_charged);
	EXPECT_EQ(0, s.out_resident);
	/* The device writes to what nobody else sees. */
	buf_commit_ok(self->buf, 0, BUF_BYTES);
	ASSERT_EQ(0, _pin_fill(self->pin, 0x77));
	EXPECT_TRUE(is_filled(self->at, 0, BUF_BYTES));
	sleep_ms(300);
	EXPECT_GE(stat_of(self->pool).out_draining, 2 * PAGE);
	ASSERT_EQ(0, _pin_drop(self->pin));
	drained_ok(self->pool, BUF_BYTES);
}

TEST_F(pin, outlives_buffer_and_pool)
{
	ASSERT_EQ(0, _pin_take(self->pin, self->at, 4));
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	ASSERT_EQ(0, _pin_fill(self->pin, 0x77));
	/* New memory is not what the device writes to. */
	self->pool = pool_new(self->dev, POOL_BYTES);
	self->buf = buf_new(self->pool, BUF_BYTES);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
	buf_commit_ok(self->buf, 0, BUF_BYTES);
	ASSERT_EQ(0, _pin_fill(self->pin, 0x78));
	EXPECT_TRUE(is_filled(self->at, 0, BUF_BYTES));
	ASSERT_EQ(0, _pin_drop(self->pin));
}

TEST_F(pin, a_purge_leaves_it)
{
	uint32_t survived;
	uint64_t bytes;

	ASSERT_EQ(0, _pin_take(self->pin, self->at + BUF_BYTES - PAGE, 1));
	buf_volatile_ok(self->buf);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	EXPECT_EQ(0, bytes);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(1, survived);
	EXPECT_TRUE(is_filled(self->at, 0x12, BUF_BYTES));
	ASSERT_EQ(0, _pin_drop(self->pin));
	buf_volatile_ok(self->buf);
	ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
	EXPECT_EQ(BUF_BYTES, bytes);
}

/* ---- a fault that is overtaken ------------------------------------------- */

static void run_on_cpu(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(cpus), &cpus));
}

/* A child that takes a processor wholly until it is killed. */
static pid_t child_busy(int cpu)
{
	const struct sched_param param = { .sched_priority = 10 };
	struct turns turns = turns_new();
	pid_t pid = child_start();

	if (pid == 0) {
		run_on_cpu(cpu);
		ASSERT_EQ(0, sched_setscheduler(0, SCHED_FIFO, &param))
		TH_LOG("%s", strerror(errno));
		tell_parent(&turns);
		for (;;)
			;
	}
	await_child(&turns);
	return pid;
}

/* Whether it sleeps where no signal reaches it. */
static bool is_waiting(pid_t pid)
{
	char path[64], text[256] = "", *at;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	in = fopen(path, "re");
	if (in) {
		if (!fgets(text, sizeof(text), in))
			text[0] = 0;
		fclose(in);
	}
	at = strrchr(text, ')');
	return at && at[1] == ' ' && at[2] == 'D';
}

/*
 * A fault waits for the folio's lock. The lock is let go, but the task cannot
 * run, because another has its processor; meanwhile its description is revoked.
 * What the fault was allowed before must not be mapped after.
 */
TEST_F(pin, a_fault_overtaken_by_a_revocation_maps_nothing)
{
	uint8_t *at;
	pid_t pid, busy;
	int fd;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one processor");
	run_on_cpu(0);
	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	at = buf_map(fd, BUF_BYTES, PROT_READ);
	ASSERT_EQ(0, _pin_take(self->pin, self->at, 1));
	ASSERT_EQ(0, kit_call(self->pin, KVPOOL_PIN_LOCK, NULL));
	pid = child_start();
	if (pid == 0) {
		/* The lock must end with the parent, if it comes to that. */
		close(self->pin);
		run_on_cpu(1);
		touch_err(SIGBUS, at);
		touch_err(SIGBUS, at);
		child_end();
	}
	while (!is_waiting(pid))
		sleep_ms(1);
	busy = child_busy(1);
	ASSERT_EQ(0, kit_call(self->pin, KVPOOL_PIN_UNLOCK, NULL));
	buf_revoke_ok(self->buf, NULL);
	child_kill(busy);
	child_ok(pid);
}

TEST_HARNESS_MAIN
