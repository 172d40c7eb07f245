/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that is ready to answer: a named one, or one started for the call.
 */
#ifndef TARN_DAEMON_CLI_SESSION_H
#define TARN_DAEMON_CLI_SESSION_H

#include <stdbool.h>

#include "daemon/cli_http.h"
#include "daemon/cli_options.h"
#include "daemon/cli_spawn.h"

struct cli_session {
	struct cli_http *http;
	struct cli_daemon daemon; /* pid 0: a named one */
	const char *socket_path;
	bool has_template; /* the model has a chat template */
	char model[128];
};

/*
 * Connect, or start one, and wait until the model is loaded; shows the progress on a terminal.
 * Return: an exit code, after a complaint where it is not CLI_OK. cli_session_close() it anyway.
 */
int cli_session_open(const struct cli_options *options,
		     struct cli_session *session);
void cli_session_close(struct cli_session *session);
/*
 * Complain about a call that failed with @rc of cli_http_perform(), or was answered by an error
 * (rc 0). Return: the exit code for it.
 */
int cli_session_complain(struct cli_session *session,
			 const struct cli_http_call *call, int rc,
			 const char *err);
/* 128 and the number of the signal that was noted. */
int cli_signal_exit(void);

#endif /* TARN_DAEMON_CLI_SESSION_H */
