/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of HTTP over a Unix socket, one call at a time. A signal
 * that cli_signal.h notes ends the call.
 */
#ifndef TARN_DAEMON_CLI_HTTP_H
#define TARN_DAEMON_CLI_HTTP_H

#include <stddef.h>

#include "daemon/textstream.h"

struct cli_http;

struct cli_http_call {
	const char *path;
	const char *body; /* JSON for a POST; NULL: a GET */
	long timeout_ms; /* for all of it; 0: none */
	/*
	 * Takes the body of a 200 as it comes; otherwise, and where it is NULL, the body
	 * is collected. Not 0: give up.
	 */
	int (*take)(void *arg, const char *bytes, size_t len);
	void *arg;
	long status; /* [out] */
	struct text reply; /* [out] collected; text_deinit() it */
};

/* @socket_path: copied. Return: 0, -ENAMETOOLONG, -ENOMEM. */
int cli_http_create(const char *socket_path, struct cli_http **out_http);
void cli_http_destroy(struct cli_http *http);
/**
 * cli_http_perform - one call, to its end
 * @err: says in a few words what went wrong with the connection.
 *
 * Return: 0 (a reply came whole: look at its status); -ECONNREFUSED (nobody answers there); -EPIPE
 * (the connection ended too early); -EINTR (a signal); -ECANCELED (@take gave up);
 * -ETIMEDOUT; -EBADMSG (what came is not HTTP, or too much of it); -ENOMEM.
 */
int cli_http_perform(struct cli_http *http, struct cli_http_call *call,
		     char *err, size_t errlen);

#endif /* TARN_DAEMON_CLI_HTTP_H */
