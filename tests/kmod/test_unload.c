/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing the module: refused while anything of it is held, works when it is
 * idle, and it can be loaded again. TARN_KVPOOL_KO names its file; the module
 * is loaded again before the program ends. No other test may run beside it.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 4 * MIB };

static int module_remove(void)
{
	return syscall(SYS_delete_module, "kvpool", O_NONBLOCK) ? -errno : 0;
}

/* Works of the module may still hold it for a moment. */
static int module_remove_in_time(void)
{
	int err = module_remove();

	for (int i = 0; i < 250 && err; i++) {
		sleep_ms(20);
		err = module_remove();
	}
	return err;
}

static int module_load(void)
{
	int fd = open(getenv("TARN_KVPOOL_KO"), O_RDONLY | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (syscall(SYS_finit_module, fd, "", 0))
		err = -errno;
	close(fd);
	return err;
}

FIXTURE(unload)
{
	int dev, pool, buf;
};

FIXTURE_SETUP(unload)
{
	if (!getenv("TARN_KVPOOL_KO"))
		SKIP(return, "TARN_KVPOOL_KO does not say where the module is");
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	if (geteuid() != 0)
		SKIP(return, "loading modules needs root");
	self->pool = pool_new(self->dev, POOL_BYTES);
	self->buf = buf_new(self->pool, BUF_BYTES);
	buf_commit_ok(self->buf, 0, BUF_BYTES);
}

FIXTURE_TEARDOWN(unload)
{
	/* Whatever the test did, the next one finds the module. */
	if (access(KVPOOL_DEVICE, F_OK))
		EXPECT_EQ(0, module_load());
}

static void removal_ok(void)
{
	EXPECT_EQ(0, module_remove_in_time());
	EXPECT_NE(0, access(KVPOOL_DEVICE, F_OK));
	EXPECT_EQ(0, module_load());
	EXPECT_EQ(0, access(KVPOOL_DEVICE, F_OK));
}

#define BUSY_OK()                                                     \
	do {                                                          \
		int busy_ = module_remove();                          \
		EXPECT_TRUE(busy_ == -EWOULDBLOCK || busy_ == -EBUSY) \
		{                                                     \
			TH_LOG("removal answers %d", busy_);          \
		}                                                     \
	} while (0)

TEST_F(unload, works_when_idle)
{
	close(self->buf);
	close(self->pool);
	close(self->dev);
	removal_ok();
	/* And the one that was loaded again works. */
	self->dev = dev_open();
	self->pool = pool_new(self->dev, POOL_BYTES);
	self->buf = buf_new(self->pool, BUF_BYTES);
	buf_commit_ok(self->buf, 0, BUF_BYTES);
	charged_ok(self->pool, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	close(self->dev);
	removal_ok();
}

TEST_F(unload, is_refused_while_the_device_is_open)
{
	close(self->buf);
	close(self->pool);
	BUSY_OK();
	close(self->dev);
	removal_ok();
}

TEST_F(unload, is_refused_while_a_pool_is_open)
{
	close(self->buf);
	close(self->dev);
	BUSY_OK();
	close(self->pool);
	removal_ok();
}

TEST_F(unload, is_refused_while_a_buffer_is_open)
{
	close(self->pool);
	close(self->dev);
	BUSY_OK();
	close(self->buf);
	removal_ok();
}

TEST_F(unload, is_refused_while_a_buffer_is_mapped)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW);

	close(self->buf);
	close(self->pool);
	close(self->dev);
	poke_ok(at, 1);
	BUSY_OK();
	poke_ok(at + PAGE, 1);
	munmap(at, BUF_BYTES);
	removal_ok();
}

TEST_F(unload, is_refused_while_a_pipe_holds_a_page)
{
	uint8_t *at = buf_map(self->buf, BUF_BYTES, RW), copy[PAGE];
	struct iovec iov = { at, PAGE };
	int fds[2];

	ASSERT_EQ(0, pipe(fds));
	memset(at, 0x4d, PAGE);
	ASSERT_EQ(PAGE, vmsplice(fds[1], &iov, 1, 0));
	munmap(at, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	close(self->dev);
	sleep_ms(100);
	BUSY_OK();
	ASSERT_EQ(PAGE, read(fds[0], copy, PAGE));
	EXPECT_TRUE(is_filled(copy, 0x4d, PAGE));
	removal_ok();
}

TEST_F(unload, is_refused_while_a_descriptor_is_on_its_way)
{
	int pair[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	fd_send(pair[1], self->buf);
	close(self->buf);
	close(self->pool);
	close(self->dev);
	BUSY_OK();
	close(pair[0]);
	close(pair[1]);
	removal_ok();
}

TEST_F(unload, is_refused_while_a_killed_client_lives)
{
	pid_t pid = child_start();

	if (pid == 0) {
		for (;;)
			pause();
	}
	close(self->buf);
	close(self->pool);
	close(self->dev);
	BUSY_OK();
	child_kill(pid);
	removal_ok();
}

TEST_HARNESS_MAIN
