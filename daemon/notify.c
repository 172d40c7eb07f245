/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's protocol: see notify.h.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3 }; /* SD_LISTEN_FDS_START */

void notify_send(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len < 2 || len >= sizeof(addr.sun_path) ||
	    (*path != '/' && *path != '@'))
		return;
	memcpy(addr.sun_path, path, len);
	if (*path == '@')
		addr.sun_path[0] = '\0'; /* in the abstract name space */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* A manager that does not listen, or does not keep up, is none of our business. */
	sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
	       (struct sockaddr *)&addr,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
}

int notify_listen_fd(void)
{
	const char *pid = getenv("LISTEN_PID");
	const char *nr = getenv("LISTEN_FDS");
	struct sockaddr_storage addr;
	socklen_t addr_len = sizeof(addr), int_len = sizeof(int);
	int type = 0, listens = 0;

	if (!pid || !nr || strtol(pid, NULL, 10) != getpid() ||
	    strtol(nr, NULL, 10) < 1)
		return -ENOENT;
	if (strtol(nr, NULL, 10) != 1)
		return -EINVAL;
	if (getsockname(FIRST_FD, (struct sockaddr *)&addr, &addr_len) != 0 ||
	    addr.ss_family != AF_UNIX ||
	    getsockopt(FIRST_FD, SOL_SOCKET, SO_TYPE, &type, &int_len) != 0 ||
	    type != SOCK_STREAM ||
	    getsockopt(FIRST_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens,
		       &int_len) != 0 ||
	    !listens)
		return -EINVAL;
	fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
	fcntl(FIRST_FD, F_SETFL, fcntl(FIRST_FD, F_GETFL) | O_NONBLOCK);
	return FIRST_FD;
}
