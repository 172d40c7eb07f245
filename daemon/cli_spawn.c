/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting tarnd for one call: see cli_spawn.h.
 *
 * The socket is made here, in a new folder that only this user may enter, and
 * handed to tarnd as service managers do it (LISTEN_FDS). Socket file and
 * folder are removed before tarnd even starts: we keep a descriptor of the
 * file, and connect through /proc/self/fd. So nothing can be left behind, not
 * by SIGKILL either, and nobody else can connect. tarnd itself is killed by the
 * kernel when we die (PR_SET_PDEATHSIG).
 */
#include "daemon/cli_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cli.h"
#include "daemon/cli_model.h"
#include "daemon/cli_signal.h"
#include "daemon/options.h"

enum {
	LISTEN_FD = 3, /* where LISTEN_FDS begin */
	STOP_MS = 5000, /* a step of a large batch may have to end first */
	EXEC_FAILED = 127,
	MAX_ARGS = 16,
};

/* ---- the socket ------------------------------------------------------------------ */

/* A listening socket at @path, and a descriptor of its file. */
static int bind_socket(const char *path, int *out_fd, int *out_place_fd)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd, rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
	    listen(fd, 16) != 0) {
		rc = -errno;
		goto err_close;
	}
	*out_place_fd = open(path, O_PATH | O_CLOEXEC);
	if (*out_place_fd < 0) {
		rc = -errno;
		goto err_close;
	}
	*out_fd = fd;
	return 0;

err_close:
	close(fd);
	return rc;
}

static int make_socket(struct cli_daemon *daemon, char *path, size_t size,
		       int *out_fd, char *err, size_t errlen)
{
	const char *tmp = getenv("TMPDIR");
	char folder[PATH_MAX];
	int rc;

	/* A long TMPDIR would not leave room: socket paths have 107 bytes. */
	if (!tmp || !*tmp || strlen(tmp) > 80)
		tmp = "/tmp";
	snprintf(folder, sizeof(folder), "%s/tarn-XXXXXX", tmp);
	if (!mkdtemp(folder)) { /* of mode 0700 */
		rc = -errno;
		snprintf(err, errlen, "no folder for a socket in %s: %s", tmp,
			 strerror(-rc));
		return rc;
	}
	snprintf(path, size, "%s/tarn.sock", folder);
	rc = bind_socket(path, out_fd, &daemon->place_fd);
	if (rc != 0)
		snprintf(err, errlen, "no socket at %s: %s", path,
			 strerror(-rc));
	unlink(path);
	rmdir(folder);
	snprintf(daemon->socket_path, sizeof(daemon->socket_path),
		 "/proc/self/fd/%d", daemon->place_fd);
	return rc;
}

/* ---- the child ------------------------------------------------------------------- */

/* Between fork and exec, in a process of one thread. Never returns. */
static void become_daemon(const char *program, char **args, int listen_fd,
			  int log_fd, pid_t parent)
{
	char pid[16];
	int null_fd;

	/* Ctrl-C on the terminal is for us: it stops an answer, not the daemon. */
	setpgid(0, 0);
	cli_signal_restore();
	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXEC_FAILED); /* it died before the line above */
	null_fd = open("/dev/null", O_RDWR);
	dup2(null_fd, STDIN_FILENO);
	dup2(null_fd, STDOUT_FILENO);
	if (log_fd >= 0)
		dup2(log_fd, STDERR_FILENO);
	if (listen_fd == LISTEN_FD)
		fcntl(LISTEN_FD, F_SETFD, 0);
	else
		dup2(listen_fd, LISTEN_FD);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	/* These speak of us. */
	unsetenv("NOTIFY_SOCKET");
	unsetenv("JOURNAL_STREAM");
	execvp(program, args);
	dprintf(STDERR_FILENO, "tarnd: %s: %s\n", program, strerror(errno));
	_exit(EXEC_FAILED);
}

static void put_args(char **args, const struct cli_options *options,
		     const char *model_path, const char *socket_path)
{
	int nr = 0;

	args[nr++] = "tarnd";
	args[nr++] = "--model";
	args[nr++] = (char *)model_path;
	args[nr++] = "--socket";
	args[nr++] = (char *)socket_path;
	args[nr++] = "--log-level";
	args[nr++] = options->is_verbose ? "info" : "error";
	if (options->ctx) {
		args[nr++] = "--ctx";
		args[nr++] = (char *)options->ctx;
	}
	if (options->threads) {
		args[nr++] = "--threads";
		args[nr++] = (char *)options->threads;
	}
	if (options->device) {
		args[nr++] = "--device";
		args[nr++] = (char *)options->device;
	}
	if (options->is_precise)
		args[nr++] = "--precise";
	args[nr] = NULL;
}

int cli_daemon_start(const struct cli_options *options, const char *model_path,
		     struct cli_daemon *daemon, char *err, size_t errlen)
{
	char folder[PATH_MAX], program[PATH_MAX + 8], path[PATH_MAX + 16];
	char *args[MAX_ARGS];
	const pid_t parent = getpid();
	int listen_fd = -1, rc;

	*daemon = (struct cli_daemon){ .place_fd = -1, .log_fd = -1 };
	rc = make_socket(daemon, path, sizeof(path), &listen_fd, err, errlen);
	if (rc != 0)
		return rc;
	if (!options->is_verbose)
		daemon->log_fd = memfd_create("tarnd's messages", MFD_CLOEXEC);
	snprintf(program, sizeof(program), "tarnd");
	if (cli_own_folder(folder, sizeof(folder)) == 0) {
		snprintf(program, sizeof(program), "%s/tarnd", folder);
		if (access(program, X_OK) != 0)
			snprintf(program, sizeof(program), "tarnd");
	}
	put_args(args, options, model_path, path);
	fflush(NULL);
	daemon->pid = fork();
	if (daemon->pid == 0)
		become_daemon(program, args, listen_fd, daemon->log_fd, parent);
	rc = daemon->pid < 0 ? -errno : 0;
	/* With the last one of these, calls to a dead daemon fail instead of waiting. */
	close(listen_fd);
	if (rc != 0) {
		daemon->pid = 0;
		snprintf(err, errlen, "cannot start tarnd: %s", strerror(-rc));
	}
	return rc;
}

/* ---- its end ---------------------------------------------------------------------- */

/* The last line it said, without the time and level before it. */
static void last_words(int log_fd, char *reason, size_t size)
{
	char tail[2048];
	off_t end = log_fd < 0 ? 0 : lseek(log_fd, 0, SEEK_END);
	off_t start = end > (off_t)sizeof(tail) - 1 ?
			      end - ((off_t)sizeof(tail) - 1) :
			      0;
	ssize_t len =
		end > 0 ? pread(log_fd, tail, (size_t)(end - start), start) : 0;
	char *line = tail, *next, *mark;

	reason[0] = '\0';
	if (len <= 0)
		return;
	tail[len] = '\0';
	for (; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		/* Usage is told on a line of its own, with a hint behind. */
		if (strncmp(line, "Try: ", 5) == 0)
			continue;
		mark = strstr(line, " error ");
		if (mark && *line >= '0' && *line <= '9')
			line = mark + strlen(" error ");
		else if (strncmp(line, "tarnd: ", 7) == 0)
			line += strlen("tarnd: ");
		line += strspn(line, " ");
		snprintf(reason, size, "%s", line);
	}
}

/* Return: whether it has ended and was reaped. */
static bool reap(struct cli_daemon *daemon, int wait_ms, int *out_status)
{
	struct pollfd wait = { .events = POLLIN };

	if (waitpid(daemon->pid, out_status, WNOHANG) == daemon->pid)
		return true;
	if (wait_ms == 0)
		return false;
	wait.fd = pidfd_open(daemon->pid, 0);
	if (wait.fd >= 0) {
		while (poll(&wait, 1, wait_ms) < 0 && errno == EINTR)
			; /* one more signal changes nothing here */
		close(wait.fd);
	}
	return waitpid(daemon->pid, out_status, WNOHANG) == daemon->pid;
}

bool cli_daemon_has_ended(struct cli_daemon *daemon, int wait_ms, int *out_exit,
			  char *reason, size_t size)
{
	int status, code;

	if (!daemon->pid || !reap(daemon, wait_ms, &status))
		return false;
	daemon->pid = 0;
	code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	*out_exit = code == EXIT_CODE_USAGE ? CLI_USAGE :
		    code == EXIT_CODE_MODEL || code == EXEC_FAILED ?
					      CLI_UNAVAILABLE :
					      CLI_FAILURE;
	last_words(daemon->log_fd, reason, size);
	if (reason[0])
		return true;
	if (WIFSIGNALED(status))
		snprintf(reason, size, "tarnd was ended by signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(reason, size, "tarnd ended with exit code %d", code);
	return true;
}

void cli_daemon_stop(struct cli_daemon *daemon)
{
	int status;

	if (daemon->pid) {
		kill(daemon->pid, SIGTERM);
		if (!reap(daemon, STOP_MS, &status)) {
			kill(daemon->pid, SIGKILL);
			while (waitpid(daemon->pid, &status, 0) < 0 &&
			       errno == EINTR)
				;
		}
	}
	if (daemon->place_fd >= 0)
		close(daemon->place_fd);
	if (daemon->log_fd >= 0)
		close(daemon->log_fd);
	*daemon = (struct cli_daemon){ .place_fd = -1, .log_fd = -1 };
}
