/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's place in the file system: a listening Unix socket, and a lock
 * file beside it that makes two starts at once safe. Before threads start and
 * after they have ended.
 */
#ifndef TARN_DAEMON_LISTEN_H
#define TARN_DAEMON_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct listen_socket {
	int fd;
	int lock_fd; /* -1: the socket was handed to us, its file is not ours */
	dev_t dev; /* of the socket's file, so that only ours is removed */
	ino_t ino;
	char path[108], lock_path[128];
};

/**
 * listen_open - take the path and listen on it
 * @mode, @uid, @gid: of the socket's file, in force before anyone can connect; -1: unchanged.
 *
 * A socket file that nobody accepts on is replaced. A missing last directory is made.
 * Return: 0; -EADDRINUSE (a daemon has it; err names its process); -ENOTSOCK (some other file is
 * there); else -errno. err says more.
 */
int listen_open(struct listen_socket *socket, const char *path, mode_t mode,
		uid_t uid, gid_t gid, char *err, size_t errlen);
/* A socket that a service manager handed over. */
void listen_adopt(struct listen_socket *socket, int fd);
/* Nobody can connect any more; who did may still be accepted. May be called twice. */
void listen_unlink(struct listen_socket *socket);
void listen_close(struct listen_socket *socket);

#endif /* TARN_DAEMON_LISTEN_H */
