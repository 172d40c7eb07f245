/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with descriptors: see kvpool_cuda_message.h. Holds no state.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/kv/kvpool_cuda_message.h"

enum {
	/* Several full messages, beside what the process has open else; 32 KiB of the system's. */
	TABLE_FDS = 4096,
};

void kvpool_share_close(struct kvpool_share *share)
{
	while (share->nr_fds)
		close(share->fds[--share->nr_fds]);
}

static size_t message_bytes(uint32_t nr_pieces)
{
	return offsetof(struct kvpool_share_message, pieces) +
	       nr_pieces * sizeof(struct kvpool_share_piece);
}

/* ---- writing ------------------------------------------------------------- */

static int send_share(int sock, struct kvpool_share *share)
{
	char control[CMSG_SPACE(sizeof(int) * KVPOOL_SHARE_MAX_FDS)] = { 0 };
	size_t fd_bytes = share->nr_fds * sizeof(int);
	struct iovec iov = { &share->message,
			     message_bytes(share->message.nr_pieces) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = CMSG_SPACE(fd_bytes) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(fd_bytes);
	memcpy(CMSG_DATA(cmsg), share->fds, fd_bytes);
	if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return errno == EAGAIN || errno == ETOOMANYREFS ? -EMFILE :
								  -errno;
	return 0;
}

int kvpool_share_pack(struct kvpool_share *share)
{
	int ends[2], err = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		err = -errno;
	if (!err) {
		err = send_share(ends[0], share);
		close(ends[0]);
		if (err)
			close(ends[1]);
	}
	kvpool_share_close(share);
	return err ? err : ends[1];
}

/* ---- reading ------------------------------------------------------------- */

/* Descriptors that came with a message, which are ours now whatever it is. */
static void take_fds(struct msghdr *msg, struct kvpool_share *share)
{
	struct cmsghdr *cmsg;

	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		share->nr_fds = (uint32_t)((cmsg->cmsg_len - CMSG_LEN(0)) /
					   sizeof(int));
		memcpy(share->fds, CMSG_DATA(cmsg),
		       share->nr_fds * sizeof(int));
	}
}

int kvpool_share_open(int fd, struct kvpool_share *out)
{
	char control[CMSG_SPACE(sizeof(int) * KVPOOL_SHARE_MAX_FDS)];
	struct iovec iov = { &out->message, sizeof(out->message) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct ucred peer;
	socklen_t len = sizeof(peer);

	out->nr_fds = 0;
	/* Who made the pair of sockets is who exported. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -EINVAL;
	if (peer.uid != geteuid())
		return -EPERM;
	ssize_t got =
		recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0)
		return -EINVAL;
	take_fds(&msg, out);
	if (msg.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	if (msg.msg_flags & MSG_TRUNC || got < (ssize_t)message_bytes(0) ||
	    out->message.nr_pieces != out->nr_fds || !out->nr_fds ||
	    (size_t)got != message_bytes(out->nr_fds))
		return -EINVAL;
	return 0;
}

/* ---- room ---------------------------------------------------------------- */

void kvpool_share_reserve_fds(void)
{
	struct rlimit limit;
	int fd, high;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur < 2)
		return;
	fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0)
		return;
	high = limit.rlim_cur < TABLE_FDS ? (int)limit.rlim_cur : TABLE_FDS;
	/* The table reaches as far as its highest descriptor, and is not made smaller. */
	high = fcntl(fd, F_DUPFD_CLOEXEC, high - 1);
	if (high >= 0)
		close(high);
	close(fd);
}
