/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory in which the processes of one uid meet: nobody else may look into
 * it. Sockets are named after the device, the process and chance; one that has
 * its final name listens, so one that refuses belonged to a process that died.
 * All names are looked up in the directory that was opened, wherever its path
 * leads by then. Holds no state but struct exchange_dir. Driver thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

enum {
	BACKLOG = EXCHANGE_MAX_CONNECTIONS,
	/* A socket that is not listened to yet is no dead process' before this. */
	YOUNG_SECONDS = 10,
};

static const char secret_name[] = "secret", fresh_prefix[] = "new.";

/* ---- the directory ------------------------------------------------------- */

static bool is_own_dir(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid();
}

static int default_path(char *out, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int len;

	if (runtime && runtime[0] == '/' && is_own_dir(runtime))
		len = snprintf(out, size, "%s/tarn", runtime);
	else if (is_own_dir("/run/tarn"))
		len = snprintf(out, size, "/run/tarn/share");
	else
		len = snprintf(out, size, "/tmp/tarn-%u",
			       (unsigned int)geteuid());
	return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

static int open_path(struct exchange_dir *dir, char *err, size_t errlen)
{
	struct stat st;

	if (mkdir(dir->path, 0700) && errno != EEXIST) {
		snprintf(err, errlen, "%s: %s", dir->path, strerror(errno));
		return -errno;
	}
	dir->fd = open(dir->path,
		       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir->fd < 0 || fstat(dir->fd, &st)) {
		snprintf(err, errlen, "%s: %s", dir->path, strerror(errno));
		return -errno;
	}
	if (st.st_uid == geteuid() && !(st.st_mode & 077))
		return 0;
	snprintf(err, errlen,
		 st.st_uid == geteuid() ?
			 "%s: others may look into it: want mode 0700" :
			 "%s: belongs to somebody else",
		 dir->path);
	return -EPERM;
}

static void name_device(struct exchange_dir *dir, struct kvpool *pool)
{
	uint8_t id[KVPOOL_DEVICE_ID_BYTES] = { 0 };

	/* Of memory of the host: zeros. */
	kvpool_device_id(pool, id);
	for (size_t i = 0; i < sizeof(id); i++)
		snprintf(dir->device + 2 * i, 3, "%02x", id[i]);
}

/* ---- the secret ---------------------------------------------------------- */

static int fresh_name(char out[EXCHANGE_NAME_BYTES], const char *prefix)
{
	uint64_t chance;

	if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
		return -EIO;
	snprintf(out, EXCHANGE_NAME_BYTES, "%s%d.%08x", prefix, (int)getpid(),
		 (unsigned int)chance);
	return 0;
}

/* Nobody sees it half written: it gets its name when it is whole, and only the first one does. */
static int make_secret(const struct exchange_dir *dir)
{
	struct kvpool_key secret;
	char name[EXCHANGE_NAME_BYTES];
	int err = fresh_name(name, fresh_prefix);

	if (err)
		return err;
	if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret))
		return -EIO;
	int fd = openat(dir->fd, name,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			0600);

	if (fd < 0)
		return -errno;
	if (write(fd, &secret, sizeof(secret)) != sizeof(secret))
		err = -EIO;
	else if (linkat(dir->fd, name, dir->fd, secret_name, 0) &&
		 errno != EEXIST)
		err = -errno;
	close(fd);
	unlinkat(dir->fd, name, 0);
	return err;
}

/* -ENOENT: there is none. */
static int read_secret(struct exchange_dir *dir)
{
	struct stat st;
	int fd = openat(dir->fd, secret_name,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int err = fd < 0 ? -errno : 0;

	if (!err &&
	    (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	     st.st_mode & 077 || st.st_size != sizeof(dir->secret) ||
	     read(fd, &dir->secret, sizeof(dir->secret)) !=
		     sizeof(dir->secret)))
		err = -EINVAL;
	if (fd >= 0)
		close(fd);
	return err;
}

static int get_secret(struct exchange_dir *dir, char *err, size_t errlen)
{
	int rc = read_secret(dir);

	if (rc == -ENOENT) {
		rc = make_secret(dir);
		if (!rc)
			rc = read_secret(dir);
	}
	if (rc == -EINVAL || rc == -ELOOP)
		snprintf(
			err, errlen,
			"%s/%s: is no secret of %d bytes that only we can read",
			dir->path, secret_name, KVPOOL_KEY_BYTES);
	else if (rc)
		snprintf(err, errlen, "%s/%s: %s", dir->path, secret_name,
			 strerror(-rc));
	return rc == -ELOOP ? -EINVAL : rc;
}

int exchange_dir_open(struct exchange_dir *dir, const char *path,
		      struct kvpool *pool, char *err, size_t errlen)
{
	int rc = 0;

	*dir = (struct exchange_dir){ .fd = -1 };
	if (!path)
		rc = default_path(dir->path, sizeof(dir->path));
	else if (snprintf(dir->path, sizeof(dir->path), "%s", path) >=
		 (int)sizeof(dir->path))
		rc = -ENAMETOOLONG;
	if (rc) {
		snprintf(err, errlen, "the directory's name is too long");
		return rc;
	}
	rc = open_path(dir, err, errlen);
	if (!rc)
		rc = get_secret(dir, err, errlen);
	if (rc)
		exchange_dir_close(dir);
	else
		name_device(dir, pool);
	return rc;
}

void exchange_dir_close(struct exchange_dir *dir)
{
	if (dir->fd < 0)
		return;
	if (dir->name[0])
		unlinkat(dir->fd, dir->name, 0);
	close(dir->fd);
	dir->fd = -1;
}

/* ---- sockets ------------------------------------------------------------- */

/* Addresses are short: the directory goes by its descriptor. */
static struct sockaddr_un address_of(const struct exchange_dir *dir,
				     const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%.63s",
		 dir->fd, name);
	return addr;
}

static int make_socket(void)
{
	int sock = socket(AF_UNIX,
			  SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return sock < 0 ? -errno : sock;
}

int exchange_dir_listen(struct exchange_dir *dir)
{
	char fresh[EXCHANGE_NAME_BYTES], name[EXCHANGE_NAME_BYTES];
	int err = fresh_name(fresh, fresh_prefix);
	int sock = make_socket();

	if (err || sock < 0) {
		if (sock >= 0)
			close(sock);
		return err ? err : sock;
	}
	struct sockaddr_un addr = address_of(dir, fresh);

	snprintf(name, sizeof(name), "%s.%.30s", dir->device,
		 fresh + strlen(fresh_prefix));
	if (bind(sock, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(sock, BACKLOG) || renameat(dir->fd, fresh, dir->fd, name)) {
		err = -errno;
		unlinkat(dir->fd, fresh, 0);
		close(sock);
		return err;
	}
	memcpy(dir->name, name, sizeof(name));
	return sock;
}

/* Refused: a name that is young may be one that does not listen yet. */
static void remove_dead(const struct exchange_dir *dir, const char *name)
{
	struct stat st;

	if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
		return;
	if (!strncmp(name, fresh_prefix, strlen(fresh_prefix)) &&
	    time(NULL) - st.st_mtime < YOUNG_SECONDS)
		return;
	unlinkat(dir->fd, name, 0);
}

int exchange_dir_connect(const struct exchange_dir *dir, const char *name)
{
	struct sockaddr_un addr = address_of(dir, name);
	int sock = make_socket();

	if (sock < 0)
		return sock;
	if (!connect(sock, (struct sockaddr *)&addr, sizeof(addr)))
		return sock;
	int err = -errno;

	close(sock);
	if (err == -ECONNREFUSED)
		remove_dead(dir, name);
	return err;
}

static DIR *open_list(const struct exchange_dir *dir)
{
	/* A description of its own: reading moves its offset. */
	int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	return list;
}

size_t exchange_dir_list(const struct exchange_dir *dir,
			 char (*out_names)[EXCHANGE_NAME_BYTES], size_t nr)
{
	size_t nr_found = 0, len = strlen(dir->device);
	DIR *list = open_list(dir);
	const struct dirent *entry;

	while (list && nr_found < nr && (entry = readdir(list))) {
		size_t name_len = strlen(entry->d_name);

		if (strncmp(entry->d_name, dir->device, len) ||
		    entry->d_name[len] != '.' ||
		    !strcmp(entry->d_name, dir->name) ||
		    name_len >= EXCHANGE_NAME_BYTES)
			continue;
		memcpy(out_names[nr_found++], entry->d_name, name_len + 1);
	}
	if (list)
		closedir(list);
	return nr_found;
}

void exchange_dir_sweep(const struct exchange_dir *dir)
{
	DIR *list = open_list(dir);
	const struct dirent *entry;

	while (list && (entry = readdir(list))) {
		if (entry->d_name[0] == '.' ||
		    !strcmp(entry->d_name, secret_name) ||
		    strlen(entry->d_name) >= EXCHANGE_NAME_BYTES)
			continue;
		int sock = exchange_dir_connect(dir, entry->d_name);

		if (sock >= 0)
			close(sock);
	}
	if (list)
		closedir(list);
}
