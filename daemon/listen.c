/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket: see listen.h. Whoever holds the lock on PATH.lock owns
 * PATH; the lock goes with its process, so a crash leaves nothing locked.
 */
#include "daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static int fail(char *err, size_t errlen, int rc, const char *what,
		const char *path)
{
	snprintf(err, errlen, "%s %s: %s", what, path, strerror(-rc));
	return rc;
}

/* The directory of @path, where only the last part is missing (as /run/tarn is after a boot). */
static int make_directory(const char *path, char *err, size_t errlen)
{
	char dir[108];
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return 0;
	*slash = '\0';
	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		return fail(err, errlen, -errno, "cannot make the directory",
			    dir);
	return 0;
}

static int refuse_in_use(int lock_fd, const char *path, char *err,
			 size_t errlen)
{
	char text[32] = "";
	long pid;

	if (lock_fd >= 0 && pread(lock_fd, text, sizeof(text) - 1, 0) > 0 &&
	    (pid = strtol(text, NULL, 10)) > 0)
		snprintf(err, errlen,
			 "%s is in use by another tarnd (process %ld)", path,
			 pid);
	else
		snprintf(err, errlen, "%s is in use by another process", path);
	return -EADDRINUSE;
}

/* Opens and locks the lock file. Return: 0 or -errno. */
static int take_lock(struct listen_socket *sock, char *err, size_t errlen)
{
	struct stat ours, there;
	char text[32];
	int len, rc;

	for (;;) {
		sock->lock_fd = open(sock->lock_path,
				     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
				     0644);
		if (sock->lock_fd < 0)
			return fail(err, errlen, -errno,
				    "cannot open the lock file",
				    sock->lock_path);
		if (flock(sock->lock_fd, LOCK_EX | LOCK_NB) != 0) {
			rc = errno == EWOULDBLOCK ?
				     refuse_in_use(sock->lock_fd, sock->path,
						   err, errlen) :
				     fail(err, errlen, -errno, "cannot lock",
					  sock->lock_path);
			break;
		}
		/* Its last owner may have removed the file between our two calls. */
		if (fstat(sock->lock_fd, &ours) == 0 &&
		    stat(sock->lock_path, &there) == 0 &&
		    ours.st_dev == there.st_dev &&
		    ours.st_ino == there.st_ino) {
			len = snprintf(text, sizeof(text), "%d\n",
				       (int)getpid());
			if (ftruncate(sock->lock_fd, 0) == 0 &&
			    pwrite(sock->lock_fd, text, (size_t)len, 0) == len)
				return 0;
			rc = fail(err, errlen, -errno, "cannot write",
				  sock->lock_path);
			break;
		}
		close(sock->lock_fd);
	}
	close(sock->lock_fd);
	sock->lock_fd = -1;
	return rc;
}

/* Removes a socket file that nobody accepts on. */
static int clear_stale(const char *path, const struct sockaddr_un *addr,
		       char *err, size_t errlen)
{
	struct stat stat;
	int fd, rc;

	if (lstat(path, &stat) != 0)
		return errno == ENOENT ? 0 :
					 fail(err, errlen, -errno,
					      "cannot look at", path);
	if (!S_ISSOCK(stat.st_mode)) {
		snprintf(err, errlen, "%s exists and is not a socket", path);
		return -ENOTSOCK;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(err, errlen, -errno, "no socket for", path);
	rc = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ?
		     0 :
		     -errno;
	close(fd);
	/* -EAGAIN: somebody's backlog is full. Only a refusal shows that nobody is there. */
	if (rc != -ECONNREFUSED)
		return refuse_in_use(-1, path, err, errlen);
	if (unlink(path) != 0)
		return fail(err, errlen, -errno,
			    "cannot remove the stale socket", path);
	return 0;
}

static int bind_socket(struct listen_socket *sock,
		       const struct sockaddr_un *addr, mode_t mode, uid_t uid,
		       gid_t gid, char *err, size_t errlen)
{
	struct stat stat;
	mode_t old_mask;
	int rc;

	sock->fd =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock->fd < 0)
		return fail(err, errlen, -errno, "no socket for", sock->path);
	/* Closed to all until mode and owner are set: connecting needs listen() anyway. */
	old_mask = umask(0777);
	rc = bind(sock->fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ?
		     0 :
		     -errno;
	umask(old_mask);
	if (rc != 0)
		return fail(err, errlen, rc, "cannot bind", sock->path);
	if (lstat(sock->path, &stat) != 0)
		return fail(err, errlen, -errno, "cannot look at", sock->path);
	sock->dev = stat.st_dev;
	sock->ino = stat.st_ino;
	if ((uid != (uid_t)-1 || gid != (gid_t)-1) &&
	    lchown(sock->path, uid, gid) != 0)
		return fail(err, errlen, -errno, "cannot change the owner of",
			    sock->path);
	if (chmod(sock->path, mode) != 0)
		return fail(err, errlen, -errno, "cannot change the mode of",
			    sock->path);
	if (listen(sock->fd, BACKLOG) != 0)
		return fail(err, errlen, -errno, "cannot listen on",
			    sock->path);
	return 0;
}

int listen_open(struct listen_socket *sock, const char *path, mode_t mode,
		uid_t uid, gid_t gid, char *err, size_t errlen)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int rc;

	*sock = (struct listen_socket){ .fd = -1, .lock_fd = -1 };
	if (strlen(path) >= sizeof(addr.sun_path))
		return fail(err, errlen, -ENAMETOOLONG, "cannot use", path);
	strcpy(addr.sun_path, path);
	strcpy(sock->path, path);
	snprintf(sock->lock_path, sizeof(sock->lock_path), "%s.lock", path);
	rc = make_directory(path, err, errlen);
	if (rc == 0)
		rc = take_lock(sock, err, errlen);
	if (rc == 0)
		rc = clear_stale(path, &addr, err, errlen);
	if (rc == 0)
		rc = bind_socket(sock, &addr, mode, uid, gid, err, errlen);
	if (rc != 0)
		listen_close(sock);
	return rc;
}

void listen_adopt(struct listen_socket *sock, int fd)
{
	*sock = (struct listen_socket){ .fd = fd, .lock_fd = -1 };
}

void listen_unlink(struct listen_socket *sock)
{
	struct stat stat;

	if (sock->ino && lstat(sock->path, &stat) == 0 &&
	    stat.st_dev == sock->dev && stat.st_ino == sock->ino)
		unlink(sock->path);
	sock->ino = 0;
}

void listen_close(struct listen_socket *sock)
{
	listen_unlink(sock);
	if (sock->fd >= 0)
		close(sock->fd);
	if (sock->lock_fd >= 0) {
		unlink(sock->lock_path);
		close(sock->lock_fd);
	}
	sock->fd = -1;
	sock->lock_fd = -1;
}
