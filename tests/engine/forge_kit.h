/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of exported buffers taken apart, changed and imported: what a hostile
 * or broken peer could send. Included by test programs only.
 */
#ifndef TARN_TESTS_ENGINE_FORGE_KIT_H
#define TARN_TESTS_ENGINE_FORGE_KIT_H

#include "tests/engine/cuda_kit.h"

/* The message of an export, to be changed, and its descriptors, which are the test's to close. */
struct forged {
	uint32_t words[64];
	size_t bytes;
	int fds[8];
	int nr_fds;
};

static inline struct forged take_apart(int fd)
{
	struct forged forged = { 0 };
	char control[CMSG_SPACE(sizeof(forged.fds))];
	struct iovec iov = { forged.words, sizeof(forged.words) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &msg, 0);

	ASSERT_GT(got, 0);
	forged.bytes = (size_t)got;
	forged.nr_fds = (int)((CMSG_FIRSTHDR(&msg)->cmsg_len - CMSG_LEN(0)) /
			      sizeof(int));
	memcpy(forged.fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)),
	       forged.nr_fds * sizeof(int));
	close(fd);
	return forged;
}

/* Import what @forged says. Return: as kvpool_buf_import(). */
static inline int import_forged(struct kvpool *pool,
				const struct forged *forged)
{
	char control[CMSG_SPACE(sizeof(forged->fds))] = { 0 };
	size_t fd_bytes = forged->nr_fds * sizeof(int);
	struct iovec iov = { (void *)forged->words, forged->bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct kvpool_buf *buf;
	int socks[2];

	if (forged->nr_fds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(fd_bytes);
		CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(fd_bytes);
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), forged->fds, fd_bytes);
	}
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks));
	ASSERT_EQ(forged->bytes, sendmsg(socks[0], &msg, 0));
	int err = kvpool_buf_import(pool, socks[1], &buf);

	close(socks[0]);
	close(socks[1]);
	if (!err)
		kvpool_buf_put(buf);
	return err;
}

static inline int nr_open_fds(void)
{
	int nr = 0;

	for (int fd = 0; fd < 4096; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

#endif /* TARN_TESTS_ENGINE_FORGE_KIT_H */
