/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the exchange: a directory of their own, raw sockets in it,
 * and descriptors counted. Included by test programs only, behind
 * tests/harness.h.
 */
#ifndef TARN_TESTS_ENGINE_EXCHANGE_KIT_H
#define TARN_TESTS_ENGINE_EXCHANGE_KIT_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

enum {
	/* A sanitizer and a busy machine are slow; who does not answer costs this much. */
	KIT_ANSWER_MS = 1500,
	KIT_RETRY_MS = 600000, /* never again in a test */
};

struct kit_dir {
	char base[32]; /* made */
	char path[40]; /* to be made by the exchange */
};

static inline struct kit_dir kit_dir_make(void)
{
	struct kit_dir dir = { .base = "/tmp/tarn-test-XXXXXX" };

	ASSERT_TRUE(mkdtemp(dir.base) != NULL);
	snprintf(dir.path, sizeof(dir.path), "%s/share", dir.base);
	return dir;
}

static inline void kit_dir_remove(struct kit_dir *dir)
{
	DIR *list = opendir(dir->path);
	const struct dirent *entry;

	while (list && (entry = readdir(list)))
		unlinkat(dirfd(list), entry->d_name, 0);
	if (list)
		closedir(list);
	rmdir(dir->path);
	unlink(dir->path);
	rmdir(dir->base);
}

/* Sockets in the directory, those of the dead too. */
static inline int kit_nr_sockets(const struct kit_dir *dir)
{
	DIR *list = opendir(dir->path);
	const struct dirent *entry;
	struct stat st;
	int nr = 0;

	while (list && (entry = readdir(list)))
		nr += !fstatat(dirfd(list), entry->d_name, &st,
			       AT_SYMLINK_NOFOLLOW) &&
		      S_ISSOCK(st.st_mode);
	if (list)
		closedir(list);
	return nr;
}

static inline int kit_nr_fds(void)
{
	int nr = 0;

	for (int fd = 0; fd < 512; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

/* Servers close what was closed at the other end in their own time. */
static inline bool kit_settles_at_fds(int nr_fds)
{
	for (int i = 0; i < 1000 && kit_nr_fds() != nr_fds; i++)
		usleep(10000);
	return kit_nr_fds() == nr_fds;
}

/* To compare with later: what was closed just now is gone. */
static inline int kit_settled_fds(void)
{
	int before, now = kit_nr_fds();

	do {
		before = now;
		usleep(100000);
		now = kit_nr_fds();
	} while (now != before);
	return now;
}

static inline int kit_try_exchange(struct kvpool *pool, const char *path,
				   struct kv_exchange **out, char *err,
				   size_t errlen)
{
	struct kv_exchange_options options = {
		.pool = pool,
		.dir = path,
		.answer_ms = KIT_ANSWER_MS * HARNESS_TIME_SCALE,
		.room_ms = 2000 * HARNESS_TIME_SCALE,
		.retry_ms = KIT_RETRY_MS,
	};

	return kv_exchange_create(&options, out, err, errlen);
}

static inline struct kv_exchange *kit_exchange(struct kvpool *pool,
					       const struct kit_dir *dir)
{
	struct kv_exchange *exchange = NULL;
	char err[256];

	ASSERT_EQ(0, kit_try_exchange(pool, dir->path, &exchange, err,
				      sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return exchange;
}

static inline struct kv_exchange_stat
kit_exchange_stat(struct kv_exchange *exchange)
{
	struct kv_exchange_stat stat;

	memset(&stat, 0xcc, sizeof(stat));
	kv_exchange_stat(exchange, &stat);
	return stat;
}

static inline struct sockaddr_un kit_address(const struct kit_dir *dir,
					     const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", dir->path,
		 name);
	return addr;
}

/* A peer that the test plays: its socket listens under a name that is looked for. */
static inline int kit_listen(const struct kit_dir *dir,
			     const struct kv_exchange *like)
{
	char name[EXCHANGE_NAME_BYTES];
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(name, sizeof(name), "%s.1.played", like->dir.device);
	struct sockaddr_un addr = kit_address(dir, name);

	ASSERT_EQ(0, bind(sock, (void *)&addr, sizeof(addr)));
	ASSERT_EQ(0, listen(sock, 8));
	return sock;
}

/* A raw connection to the exchange of somebody. */
static inline int kit_connect(const struct kit_dir *dir,
			      const struct kv_exchange *to)
{
	struct sockaddr_un addr = kit_address(dir, to->dir.name);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ASSERT_EQ(0, connect(sock, (void *)&addr, sizeof(addr)));
	return sock;
}

#endif /* TARN_TESTS_ENGINE_EXCHANGE_KIT_H */
