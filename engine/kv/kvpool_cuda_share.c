/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published buffers of the cuda backend between processes of one uid. A buffer
 * is several handles, but travels as one descriptor: the end of a socket pair
 * whose other end is closed, with one message in it that carries a descriptor
 * per handle. Importing looks at the message and leaves it there, so that it can
 * be done more than once. Whatever is not imported goes with the last copy of
 * the descriptor: nobody has to clean up after a process that died.
 *
 * An importer could map a handle writable: this is for one uid, no boundary.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/kv/kvpool_cuda.h"

enum {
	MAX_FDS = 253, /* of one message, the system's limit */
	MAGIC = 0x31766b63, /* "ckv1" */
};

/* Between processes of one machine that may be of different builds: layout is fixed. */
struct share_piece {
	uint32_t first, nr_pages;
};

struct share_message {
	uint32_t magic;
	uint32_t nr_pieces;
	struct cuda_uuid uuid; /* of the GPU */
	uint64_t page_bytes;
	uint64_t nr_pages; /* that are sealed; the last piece may end behind them */
	uint32_t owner;
	uint32_t reserved; /* 0 */
	struct share_piece pieces[MAX_FDS];
};

_Static_assert(sizeof(struct share_piece) == 8, "share_piece");
_Static_assert(offsetof(struct share_message, pieces) == 48, "share_message");

struct share {
	struct share_message message;
	int fds[MAX_FDS];
	uint32_t nr_fds;
};

static void close_fds(struct share *share)
{
	while (share->nr_fds)
		close(share->fds[--share->nr_fds]);
}

static size_t message_bytes(uint32_t nr_pieces)
{
	return offsetof(struct share_message, pieces) +
	       nr_pieces * sizeof(struct share_piece);
}

/* ---- export -------------------------------------------------------------- */

/* Handles that hold sealed bytes, in order, each as a descriptor. */
static int gather(struct kvpool_mem *mem, struct share *share)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct share_message *message = &share->message;

	*message = (struct share_message){
		.magic = MAGIC,
		.uuid = cuda->uuid,
		.page_bytes = cuda->page_bytes,
		.nr_pages = kvpool_to_pages(mem, mem->sealed_n),
		.owner = mem->owner,
	};
	for (uint64_t page = 0; page < message->nr_pages; page++) {
		struct kvpool_cuda_handle *h = cm->handles[page];
		uint32_t i = message->nr_pieces;

		if (!h || h->first != page)
			continue;
		if (i == MAX_FDS || page > UINT32_MAX)
			return -E2BIG;
		int err = cuda_errno(cuda->driver->MemExportToShareableHandle(
			&share->fds[i], h->handle, CUDA_POSIX_FD, 0));

		if (err)
			return err;
		share->nr_fds++;
		message->nr_pieces++;
		message->pieces[i] = (struct share_piece){
			.first = (uint32_t)page,
			.nr_pages = (uint32_t)h->nr_pages,
		};
	}
	return message->nr_pieces ? 0 : -ERANGE;
}

static int send_share(int socket, struct share *share)
{
	char control[CMSG_SPACE(sizeof(int) * MAX_FDS)] = { 0 };
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
	if (sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return errno == EAGAIN || errno == ETOOMANYREFS ? -EMFILE :
								  -errno;
	return 0;
}

int kvpool_cuda_export(struct kvpool_mem *mem)
{
	struct share *share = kvpool_sys.calloc(1, sizeof(*share));
	int ends[2], err;

	if (!share)
		return -ENOMEM;
	err = gather(mem, share);
	if (!err && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		err = -errno;
	if (!err) {
		err = send_share(ends[0], share);
		close(ends[0]);
		if (err)
			close(ends[1]);
	}
	close_fds(share);
	free(share);
	return err ? err : ends[1];
}

/* ---- import -------------------------------------------------------------- */

/* Descriptors that came with a message, which are ours now whatever it is. */
static void take_fds(struct msghdr *msg, struct share *share)
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

static int receive_share(int socket, struct share *share)
{
	char control[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	struct iovec iov = { &share->message, sizeof(share->message) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct ucred peer;
	socklen_t len = sizeof(peer);

	/* Who made the pair of sockets is who exported. */
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -EINVAL;
	if (peer.uid != geteuid())
		return -EPERM;
	ssize_t got = recvmsg(socket, &msg,
			      MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0)
		return -EINVAL;
	take_fds(&msg, share);
	if (msg.msg_flags & MSG_CTRUNC)
		return -EMFILE; /* no room for all of the descriptors here */
	if (msg.msg_flags & MSG_TRUNC || got < (ssize_t)message_bytes(0) ||
	    share->message.nr_pieces != share->nr_fds || !share->nr_fds ||
	    (size_t)got != message_bytes(share->nr_fds))
		return -EINVAL;
	return 0;
}

/* Pages up to the end of the last piece; 0 where the message makes no sense here. */
static uint64_t checked_pages(const struct kvpool_cuda *cuda,
			      const struct share_message *message)
{
	uint64_t end = 0;

	if (message->magic != MAGIC || message->reserved ||
	    memcmp(&message->uuid, &cuda->uuid, sizeof(cuda->uuid)) ||
	    message->page_bytes != cuda->page_bytes)
		return 0;
	for (uint32_t i = 0; i < message->nr_pieces; i++) {
		const struct share_piece *piece = &message->pieces[i];

		if (!piece->nr_pages || piece->first < end ||
		    piece->first >= message->nr_pages)
			return 0;
		end = (uint64_t)piece->first + piece->nr_pages;
	}
	return message->nr_pages &&
			       end <= cuda->base_bytes / cuda->page_bytes &&
			       message->nr_pages <= end ?
		       end :
		       0;
}

static int map_piece(struct kvpool_mem *mem, const struct share_piece *piece,
		     int fd)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct kvpool_cuda_handle *h = kvpool_sys.calloc(1, sizeof(*h));
	cuda_status status;

	if (!h)
		return -ENOMEM;
	h->first = piece->first;
	h->nr_pages = piece->nr_pages;
	status = cuda->driver->MemImportFromShareableHandle(
		&h->handle, (void *)(intptr_t)fd, CUDA_POSIX_FD);
	if (status) {
		free(h);
		return cuda_errno(status);
	}
	status = cuda->driver->MemMap(
		(cuda_addr)mem->addr + h->first * cuda->page_bytes,
		h->nr_pages * cuda->page_bytes, 0, h->handle, 0);
	if (status) {
		h->next = cm->freed;
		cm->freed = h;
		return cuda_errno(status);
	}
	for (uint64_t i = 0; i < h->nr_pages; i++)
		cm->handles[h->first + i] = h;
	return 0;
}

static int map_share(struct kvpool_local *pool, const struct share *share,
		     uint64_t stride_bytes, struct kvpool_mem **out_mem)
{
	const struct share_message *message = &share->message;
	uint64_t end = checked_pages(kvpool_cuda(pool), message);
	struct kvpool_mem *mem;

	if (!end)
		return -EINVAL;
	mem = kvpool_mem_alloc(pool, end * message->page_bytes);
	if (!mem)
		return -ENOMEM;
	/* Exactly what was sent: nothing is mapped behind it. */
	mem->class_bytes = end * message->page_bytes;
	mem->size_bytes = message->nr_pages * message->page_bytes;
	mem->owner = message->owner;
	mem->stride_bytes = stride_bytes;
	int err = kvpool_cuda_create(mem, stride_bytes);

	for (uint32_t i = 0; i < share->nr_fds && !err; i++)
		err = map_piece(mem, &message->pieces[i], share->fds[i]);
	if (!err)
		err = kvpool_cuda_set_access(mem, 0, end, CUDA_PROT_READ);
	if (err)
		kvpool_mem_free(mem);
	else
		*out_mem = mem;
	return err;
}

bool kvpool_cuda_covers(const struct kvpool_mem *mem, uint64_t first,
			uint64_t end)
{
	const struct kvpool_cuda_mem *cm = mem->backend;

	while (first < end && cm->handles[first])
		first++;
	return first >= end;
}

int kvpool_cuda_import(struct kvpool_local *pool, int fd, uint64_t stride_bytes,
		       struct kvpool_mem **out_mem)
{
	struct share *share = kvpool_sys.calloc(1, sizeof(*share));

	if (!share)
		return -ENOMEM;
	int err = receive_share(fd, share);

	if (!err)
		err = map_share(pool, share, stride_bytes, out_mem);
	close_fds(share);
	free(share);
	return err;
}
