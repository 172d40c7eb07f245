/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the kernel module: children with other uids, touches of
 * memory that answer with the signal instead of dying of it, descriptors over
 * sockets, time. Knows nothing of kvpool; included by kit.h only. Touches may
 * be made by any thread.
 */
#ifndef TARN_TESTS_KMOD_KIT_TASK_H
#define TARN_TESTS_KMOD_KIT_TASK_H

#include "tests/harness.h"

#include <dirent.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum {
	PAGE = 4096,
	HPAGE = 2 << 20, /* what a PMD maps */
	MIB = 1 << 20,
	ALICE = 4001, /* uids and gids that nobody else has */
	BOB = 4002,
	CAROL = 4003,
};

/* ---- time ---------------------------------------------------------------- */

static inline void sleep_ms(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static inline long env_number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* ---- children ------------------------------------------------------------ */

/*
 * Forks. In the child, a failed ASSERT ends the child; failures count for the
 * test either way. The child ends by child_end().
 */
static inline pid_t child_start(void)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		harness_can_stop = 0;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(HARNESS_FAIL);
	}
	return pid;
}

static inline void child_end(void)
{
	fflush(NULL);
	_exit(0);
}

/* What the child ended with: its status, or 128 + the signal. */
static inline int child_status(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) :
				     WEXITSTATUS(status);
}

#define child_ok(pid) ASSERT_EQ(0, child_status(pid))

static inline void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	child_status(pid);
}

/* Gives up root for ever: one uid, one gid, no group beside it. */
static inline void become(uid_t uid, gid_t gid)
{
	ASSERT_EQ(0, setgroups(0, NULL));
	ASSERT_EQ(0, setresgid(gid, gid, gid));
	ASSERT_EQ(0, setresuid(uid, uid, uid));
	/* A change of uid clears it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* A child that is somebody else. */
static inline pid_t child_start_as(uid_t uid)
{
	pid_t pid = child_start();

	if (pid == 0)
		become(uid, uid);
	return pid;
}

/* Two tasks take turns through a pipe each: one byte is one word. */
struct turns {
	int to_child[2];
	int to_parent[2];
};

static inline struct turns turns_new(void)
{
	struct turns t;

	ASSERT_EQ(0, pipe2(t.to_child, O_CLOEXEC));
	ASSERT_EQ(0, pipe2(t.to_parent, O_CLOEXEC));
	return t;
}

static inline void turn_give(int fd)
{
	char c = 'x';

	ASSERT_EQ(1, write(fd, &c, 1));
}

static inline void turn_await(int fd)
{
	char c;

	ASSERT_EQ(1, read(fd, &c, 1));
}

#define tell_child(t) turn_give((t)->to_child[1])
#define await_parent(t) turn_await((t)->to_child[0])
#define tell_parent(t) turn_give((t)->to_parent[1])
#define await_child(t) turn_await((t)->to_parent[0])

/* ---- descriptors --------------------------------------------------------- */

static inline int nr_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int nr = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr;
}

static inline void fd_send(int sock, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char c = 'x';
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	ASSERT_EQ(1, sendmsg(sock, &msg, 0));
}

static inline int fd_receive(int sock)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char c;
	int fd = -1;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };

	ASSERT_EQ(1, recvmsg(sock, &msg, MSG_CMSG_CLOEXEC));
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	ASSERT_TRUE(head && head->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

static inline bool is_cloexec(int fd)
{
	return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

/* ---- touches ------------------------------------------------------------- */

static __thread sigjmp_buf touch_jump;
static __thread volatile sig_atomic_t touch_is_armed;
static __thread volatile sig_atomic_t touch_code; /* si_code of the signal */

static inline void touch_caught(int signo, siginfo_t *info, void *context)
{
	(void)context;
	if (!touch_is_armed) {
		signal(signo, SIG_DFL);
		return; /* the touch is made again, and kills */
	}
	touch_is_armed = 0;
	touch_code = info->si_code;
	siglongjmp(touch_jump, signo);
}

static inline void touch_init(void)
{
	/* The jump leaves the handler without giving the mask back. */
	struct sigaction action = { .sa_sigaction = touch_caught,
				    .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
}

/* Reads a byte. Return: 0, or the negative signal. */
static inline int _touch(const volatile uint8_t *at, uint8_t *out)
{
	int signo;
	uint8_t byte;

	touch_is_armed = 0;
	signo = sigsetjmp(touch_jump, 0);
	if (signo)
		return -signo;
	touch_is_armed = 1;
	byte = *at;
	touch_is_armed = 0;
	if (out)
		*out = byte;
	return 0;
}

/* Writes a byte. Return: 0, or the negative signal. */
static inline int _poke(volatile uint8_t *at, uint8_t byte)
{
	int signo;

	touch_is_armed = 0;
	signo = sigsetjmp(touch_jump, 0);
	if (signo)
		return -signo;
	touch_is_armed = 1;
	*at = byte;
	touch_is_armed = 0;
	return 0;
}

#define touch_ok(at) ASSERT_EQ(0, _touch(at, NULL))
#define touch_err(signo, at) EXPECT_EQ(-(signo), _touch(at, NULL))
#define poke_ok(at, byte) ASSERT_EQ(0, _poke(at, byte))
#define poke_err(signo, at) EXPECT_EQ(-(signo), _poke(at, 0xee))

/* Writes one byte per page. Return: bytes of pages before the first signal. */
static inline size_t poke_pages(uint8_t *at, size_t bytes, uint8_t byte)
{
	size_t done = 0;

	while (done < bytes && _poke(at + done, byte) == 0)
		done += PAGE;
	return done;
}

static inline bool is_filled(const uint8_t *at, uint8_t byte, size_t bytes)
{
	return bytes == 0 || (*at == byte && !memcmp(at, at + 1, bytes - 1));
}

/* Faults that this thread took without a disk, so far. */
static inline long nr_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt;
}

/* NUMA node of a mapped page, or a negative errno. */
static inline int node_of(void *at)
{
	int status = -EINVAL;

	if (syscall(SYS_move_pages, 0, 1UL, &at, NULL, &status, 0))
		return -errno;
	return status;
}

/* ---- files of the kernel ------------------------------------------------- */

/* Return: 0 or -errno. */
static inline int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = errno ? -errno : -EIO;
	close(fd);
	return err;
}

/* The number behind a word at the start of a line: /proc/meminfo and such; -1: none. */
static inline long long file_number(const char *path, const char *word)
{
	FILE *file = fopen(path, "re");
	char line[512];
	long long number = -1;

	if (!file)
		return -1;
	while (number < 0 && fgets(line, sizeof(line), file)) {
		if (!strncmp(line, word, strlen(word)))
			number = strtoll(line + strlen(word), NULL, 10);
	}
	fclose(file);
	return number;
}

#endif /* TARN_TESTS_KMOD_KIT_TASK_H */
