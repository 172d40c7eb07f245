/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What KV memory on a GPU costs the host: growth on the decode path, beside a
 * step of decoding and in one go, and attaching to a prefix that another process
 * has published. Buffers as an 8B-shaped model fills them: 128 KiB a token, so
 * a page of 2 MiB every 16 tokens.
 *
 * Usage: bench_kvcuda. Needs a GPU. Bars: 32k tokens attached within 20 ms
 * (goal 5); a commit on the decode path within 3 % of a step of 5 ms.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/kv/libkvpool.h"
#include "tests/bench/times.h"

enum { MAX_STEPS = 4096, NR_ATTACHES = 21, STEP_US = 5000 };

static const uint64_t GIB = 1ull << 30;

static double now_us(void)
{
	return clock_s(CLOCK_MONOTONIC) * 1e6;
}

static void must(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "bench_kvcuda: %s: %s\n", what, strerror(-err));
	exit(1);
}

static struct kvpool *open_pool(uint64_t limit_bytes, uint64_t spare_bytes)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_CUDA,
		.limit_bytes = limit_bytes,
		.spare_limit_bytes = spare_bytes,
	};
	struct kvpool *pool;
	char why[200] = "pool";

	if (kvpool_cuda_check(0, why, sizeof(why)))
		must(-ENODEV, why);
	must(kvpool_open(&options, &pool), "pool");
	return pool;
}

/* @pause_us between commits of a page, as between steps that need one. */
static void grow(uint64_t bytes, unsigned int pause_us)
{
	static double us[MAX_STEPS];
	struct kvpool *pool = open_pool(2 * bytes, bytes / 8);
	uint64_t page = kvpool_page_bytes(pool);
	struct kvpool_buf *buf;
	size_t nr = 0;

	must(kvpool_buf_create(pool, bytes, getuid(), &buf), "buffer");
	for (uint64_t at = 0; at < bytes && nr < MAX_STEPS; at += page) {
		double start = now_us();

		must(kvpool_buf_commit(buf, at, page), "commit");
		us[nr++] = now_us() - start;
		if (pause_us)
			usleep(pause_us);
	}
	printf("growth by %zu pages of %d KiB, %u us between: "
	       "median %.1f, p99 %.1f, worst %.1f us\n",
	       nr, (int)(page >> 10), pause_us, quantile(us, nr, 0.5),
	       quantile(us, nr, 0.99), quantile(us, nr, 1));
	kvpool_buf_put(buf);
	kvpool_put(pool);
}

static void send_fd(int sock, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	must(sendmsg(sock, &msg, 0) == 1 ? 0 : -errno, "send");
}

static int receive_fd(int sock)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	int fd = -1;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* The other process: attaches to what comes, again and again. */
static int attach(int sock, uint64_t bytes)
{
	static double us[NR_ATTACHES], put_us[NR_ATTACHES];
	struct kvpool *pool = open_pool(GIB, 0);
	int fd = receive_fd(sock);

	must(fd < 0 ? -EBADF : 0, "receive");
	for (int i = 0; i < NR_ATTACHES; i++) {
		struct kvpool_buf *buf;
		double start = now_us();

		must(kvpool_buf_import(pool, fd, &buf), "import");
		us[i] = now_us() - start;
		start = now_us();
		kvpool_buf_put(buf);
		put_us[i] = now_us() - start;
	}
	const double first = us[0];

	printf("attach to %d GiB of a peer: "
	       "first %.2f ms, median %.2f, worst %.2f; letting go %.2f\n",
	       (int)(bytes / GIB), first / 1e3,
	       quantile(us, NR_ATTACHES, 0.5) / 1e3, us[NR_ATTACHES - 1] / 1e3,
	       quantile(put_us, NR_ATTACHES, 0.5) / 1e3);
	kvpool_put(pool);
	return 0;
}

static void share(uint64_t bytes, bool is_grown)
{
	struct kvpool_mark mark = { .n_bytes = bytes };
	struct kvpool *pool;
	struct kvpool_buf *buf;
	int socks[2], status, fd;
	uint64_t step;
	pid_t pid;

	must(socketpair(AF_UNIX, SOCK_STREAM, 0, socks) ? -errno : 0, "socket");
	fflush(stdout);
	/* Before this process has the GPU: it does not survive a fork. */
	pid = fork();
	if (pid == 0) {
		close(socks[0]);
		exit(attach(socks[1], bytes));
	}
	pool = open_pool(3 * bytes, bytes / 8);
	step = is_grown ? kvpool_page_bytes(pool) : bytes;
	must(kvpool_buf_create(pool, bytes, getuid(), &buf), "buffer");
	for (uint64_t at = 0; at < bytes; at += step)
		must(kvpool_buf_commit(buf, at, step), "commit");
	must(kvpool_buf_seal(buf, bytes), "seal");
	double start = now_us();

	must(kvpool_buf_publish(buf, &mark, 1), "publish");
	printf("publish %d GiB, %s: %.2f ms\n", (int)(bytes / GIB),
	       is_grown ? "grown by pages" : "committed at once",
	       (now_us() - start) / 1e3);
	fd = kvpool_buf_export(buf);
	must(fd, "export");
	send_fd(socks[0], fd);
	close(fd);
	waitpid(pid, &status, 0);
	close(socks[0]);
	close(socks[1]);
	kvpool_buf_unpublish(buf);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	if (status)
		exit(1);
}

/* In a process of its own, so that the next one starts without the GPU. */
static void alone(void (*part)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		part();
		exit(0);
	}
	waitpid(pid, &status, 0);
	if (status)
		exit(1);
}

static void grow_beside_steps(void)
{
	grow(2 * GIB, STEP_US);
}

static void grow_at_once(void)
{
	grow(2 * GIB, 0);
}

static void share_grown(void)
{
	share(4 * GIB, true);
}

static void share_whole(void)
{
	share(4 * GIB, false);
}

int main(void)
{
	alone(grow_beside_steps);
	alone(grow_at_once);
	alone(share_grown);
	alone(share_whole);
	return 0;
}
