/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarnd: reads the command line, takes the socket, runs the event loop. Only
 * this file exits.
 */
#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/listen.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/server.h"
#include "daemon/stdfds.h"
#include "daemon/version.h"

enum { NR_STOP_SIGNALS = 3 };

struct daemon {
	struct options options;
	struct listen_socket socket;
	struct server server;
	struct event_base *base;
	struct event *signals[NR_STOP_SIGNALS]; /* NULL: ignored */
	bool is_told; /* to stop, once */
};

/* SIGHUP too: whoever started it in a terminal has gone. */
static const int stop_signals[NR_STOP_SIGNALS] = { SIGTERM, SIGINT, SIGHUP };

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	struct daemon *daemon = arg;

	(void)what;
	if (daemon->is_told) {
		log_warn("signal %d again: stopping at once", (int)signo);
		listen_close(&daemon->socket);
		_exit(EXIT_CODE_FAILURE);
	}
	daemon->is_told = true;
	log_info("signal %d: refusing what waits, finishing what runs",
		 (int)signo);
	/* Nobody finds us any more; who has connected still gets an answer. */
	listen_unlink(&daemon->socket);
	server_stop(&daemon->server, false);
}

/* One connection is a descriptor, and a half-closed one two. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		log_debug("the limit of open files stays: %s", strerror(errno));
}

/*
 * Threads get the stack that the shell allows (ulimit -s). Templates may nest a thousand deep,
 * which takes up to a MiB.
 */
static void raise_thread_stack(void)
{
	const size_t wanted = 2 << 20;
	pthread_attr_t attr;
	size_t bytes;

	if (pthread_getattr_default_np(&attr) != 0)
		return;
	if (pthread_attr_getstacksize(&attr, &bytes) == 0 && bytes < wanted &&
	    pthread_attr_setstacksize(&attr, wanted) == 0 &&
	    pthread_setattr_default_np(&attr) != 0)
		log_debug("threads keep stacks of %zu bytes", bytes);
	pthread_attr_destroy(&attr);
}

/* What the handler below tidies up: set before, never changed. */
static struct listen_socket *socket_in_use;

/*
 * The model's file is mapped while it loads: reading what somebody cut off meanwhile ends here,
 * with a reason. Async-signal-safe calls only.
 */
static void on_bus_error(int signo)
{
	static const char text[] =
		"tarnd: bus error: a mapped file was cut while it was read (the model's, while "
		"loading), or memory failed\n";
	ssize_t nr = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)signo;
	(void)nr;
	listen_close(socket_in_use);
	_exit(EXIT_CODE_FAILURE);
}

static int take_socket(struct daemon *daemon)
{
	const struct options *options = &daemon->options;
	char err[300];
	int fd = notify_listen_fd(), rc;

	if (fd >= 0) {
		listen_adopt(&daemon->socket, fd);
		return EXIT_CODE_OK;
	}
	if (fd == -EINVAL) {
		log_error(
			"LISTEN_FDS: expected one listening Unix stream socket");
		return EXIT_CODE_SOCKET;
	}
	rc = listen_open(&daemon->socket, options->socket_path,
			 options->socket_mode, options->socket_uid,
			 options->socket_gid, err, sizeof(err));
	if (rc == 0) {
		log_info("listening on %s", options->socket_path);
		return EXIT_CODE_OK;
	}
	log_error("%s", err);
	return rc == -EADDRINUSE ? EXIT_CODE_IN_USE : EXIT_CODE_SOCKET;
}

/* Return: 0 or -ENOMEM. */
static int take_signals(struct daemon *daemon)
{
	struct sigaction old;

	for (int i = 0; i < NR_STOP_SIGNALS; i++) {
		/* Ignored from the start, as nohup and shells do: it stays so. */
		if (sigaction(stop_signals[i], NULL, &old) == 0 &&
		    old.sa_handler == SIG_IGN)
			continue;
		daemon->signals[i] = evsignal_new(daemon->base, stop_signals[i],
						  on_signal, daemon);
		if (!daemon->signals[i] ||
		    event_add(daemon->signals[i], NULL) != 0)
			return -ENOMEM;
	}
	return 0;
}

static int serve(struct daemon *daemon)
{
	int rc, exit_code;

	daemon->base = event_base_new();
	/* Two: the care for connections goes before all else, see http.h. */
	if (!daemon->base || event_base_priority_init(daemon->base, 2) != 0)
		return EXIT_CODE_FAILURE;
	if (take_signals(daemon) != 0)
		return EXIT_CODE_FAILURE;
	rc = server_init(&daemon->server, daemon->base, &daemon->options,
			 daemon->socket.fd);
	if (rc != 0) {
		log_error("cannot start: %s", strerror(-rc));
		return EXIT_CODE_FAILURE;
	}
	event_base_dispatch(daemon->base);
	listen_unlink(&daemon->socket);
	exit_code = daemon->server.exit_code;
	server_deinit(&daemon->server);
	for (int i = 0; i < NR_STOP_SIGNALS; i++)
		if (daemon->signals[i])
			event_free(daemon->signals[i]);
	event_base_free(daemon->base);
	libevent_global_shutdown();
	return exit_code;
}

/* A full disk is seen only here. */
static int finish_output(void)
{
	if (fflush(stdout) == 0)
		return EXIT_CODE_OK;
	fprintf(stderr, "tarnd: standard output: %s\n", strerror(errno));
	return EXIT_CODE_FAILURE;
}

int main(int argc, char **argv)
{
	static struct daemon daemon = { .socket = { .fd = -1, .lock_fd = -1 } };
	char err[300];
	int exit_code;

	/* Without it the log could be written into the lock file, or worse. */
	if (stdfds_fill() != 0)
		return EXIT_CODE_FAILURE;
	switch (options_parse(argc, argv, &daemon.options, err, sizeof(err))) {
	case OPTIONS_HELP:
		fputs(options_help(), stdout);
		return finish_output();
	case OPTIONS_VERSION:
		puts("tarnd " TARN_VERSION);
		return finish_output();
	case OPTIONS_WRONG:
		fprintf(stderr, "tarnd: %s\nTry: tarnd --help\n", err);
		return EXIT_CODE_USAGE;
	case OPTIONS_RUN:
		break;
	}
	log_init(daemon.options.log_level);
	signal(SIGPIPE, SIG_IGN);
	/* Beyond the limit of a file's size: an errno will do. */
	signal(SIGXFSZ, SIG_IGN);
	socket_in_use = &daemon.socket;
	signal(SIGBUS, on_bus_error);
	/* Several threads parse JSON: the hash seed is made here, once. */
	json_object_seed(0);
	raise_file_limit();
	raise_thread_stack();
	exit_code = take_socket(&daemon);
	if (exit_code == EXIT_CODE_OK)
		exit_code = serve(&daemon);
	listen_close(&daemon.socket);
	if (exit_code == EXIT_CODE_OK)
		log_info("stopped");
	return exit_code;
}
