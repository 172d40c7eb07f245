/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of one's own: a tarnd that serves this process alone and ends with
 * it, however that comes about. Nothing of it stays in the file system: see
 * cli_spawn.c.
 */
#ifndef TARN_DAEMON_CLI_SPAWN_H
#define TARN_DAEMON_CLI_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/cli_options.h"

struct cli_daemon {
	pid_t pid; /* 0: none runs */
	int place_fd; /* the socket's file, which has no name any more */
	int log_fd; /* what the daemon says; -1: it says it on our stderr */
	char socket_path[64]; /* connect here; good in this process only */
};

/**
 * cli_daemon_start - start tarnd, found beside this program, else in PATH
 * @options: --ctx, --threads, --device, --precise, --verbose count.
 * @daemon: [out] cli_daemon_stop() ends it, also after a failure.
 *
 * It may be connected to at once, and answers when it is up.
 * Return: 0; -ENOENT (no tarnd); else -errno. err says more.
 */
int cli_daemon_start(const struct cli_options *options, const char *model_path,
		     struct cli_daemon *daemon, char *err, size_t errlen);
/*
 * Whether it has ended by itself; then *out_exit is the exit code that suits, and @reason the last
 * thing it said. @wait_ms: how long it may take to end.
 */
bool cli_daemon_has_ended(struct cli_daemon *daemon, int wait_ms, int *out_exit,
			  char *reason, size_t size);
/* Ends it, by force if it takes long. */
void cli_daemon_stop(struct cli_daemon *daemon);

#endif /* TARN_DAEMON_CLI_SPAWN_H */
