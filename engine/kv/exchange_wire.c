/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message of the exchange as one packet of a Unix socket, and the descriptor
 * that goes along. Whatever a peer sends beyond that is not kept. Never waits.
 * Any thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

int exchange_peer_uid(int sock, uid_t *out_uid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -errno;
	*out_uid = peer.uid;
	return 0;
}

int exchange_send(int sock, const void *message, size_t bytes, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)message, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno :
								      0;
}

/* All that came are ours now. Return: whether it was one at most, which is in *out_fd then. */
static bool take_fds(struct msghdr *msg, int *out_fd)
{
	bool is_good = true;
	struct cmsghdr *cmsg;

	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t nr = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < nr; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd),
			       sizeof(fd));
			if (*out_fd < 0) {
				*out_fd = fd;
			} else {
				close(fd);
				is_good = false;
			}
		}
	}
	return is_good;
}

int exchange_receive(int sock, void *out_message, size_t bytes, int *out_fd)
{
	/* Room for one; by alignment two may fit. The system closes what does not. */
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { out_message, bytes };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*out_fd = -1;
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN :
							   -ECONNRESET;
	bool is_good = take_fds(&msg, out_fd);

	if (is_good && (size_t)got == bytes &&
	    !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 0;
	if (*out_fd >= 0)
		close(*out_fd);
	*out_fd = -1;
	return got ? -EBADMSG : -ECONNRESET;
}
