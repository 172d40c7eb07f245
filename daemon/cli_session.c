/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting to a daemon that is ready: see cli_session.h.
 */
#include "daemon/cli_session.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli.h"
#include "daemon/cli_model.h"
#include "daemon/cli_reply.h"
#include "daemon/cli_signal.h"
#include "daemon/progress.h"

enum {
	POLL_MS = 25, /* a load takes some tenths of a second */
	HEALTH_TIMEOUT_MS = 10000, /* of a daemon that hangs */
};

int cli_signal_exit(void)
{
	return 128 + cli_signal_noted();
}

/* An own daemon that has ended says why; @wait_ms: it may be about to. */
static bool complain_of_death(struct cli_session *session, int wait_ms,
			      int *out_exit)
{
	char reason[512];

	if (!cli_daemon_has_ended(&session->daemon, wait_ms, out_exit, reason,
				  sizeof(reason)))
		return false;
	cli_complain("%s", reason);
	return true;
}

int cli_session_complain(struct cli_session *session,
			 const struct cli_http_call *call, int rc,
			 const char *err)
{
	char message[1024];
	int exit_code;

	if (rc == -EINTR)
		return cli_signal_exit();
	if ((rc == -EPIPE || rc == -ECONNREFUSED) &&
	    complain_of_death(session, 500, &exit_code))
		return exit_code;
	switch (rc) {
	case 0:
		cli_reply_error(call, message, sizeof(message));
		cli_complain("%s", message);
		return call->status == 503 ? CLI_UNAVAILABLE : CLI_FAILURE;
	case -ECONNREFUSED:
		cli_complain("no daemon answers at %s: %s",
			     session->socket_path, err);
		return CLI_UNAVAILABLE;
	case -EPIPE:
		cli_complain(
			"the daemon at %s went away before the answer was whole",
			session->socket_path);
		return CLI_FAILURE;
	case -ETIMEDOUT:
		cli_complain("the daemon at %s does not answer in time",
			     session->socket_path);
		return CLI_UNAVAILABLE;
	case -ENOMEM:
		cli_complain("out of memory");
		return CLI_FAILURE;
	default:
		cli_complain("what %s answers is not understood: %s",
			     session->socket_path, err);
		return CLI_FAILURE;
	}
}

/* ---- waiting until it is ready ------------------------------------------------------ */

/* Sleeps, unless a signal comes. */
static void sleep_ms(int ms)
{
	struct pollfd signal = { .fd = cli_signal_fd(), .events = POLLIN };

	poll(&signal, 1, ms);
}

/* Return: whether a 503 says that it is loading, shown as a bar. */
static bool show_loading(const struct cli_session *session,
			 const struct cli_options *options,
			 const struct cli_http_call *call)
{
	json_t *root = cli_reply_json(call);
	const char *status = json_string_value(json_object_get(root, "status"));
	const char *stage = json_string_value(json_object_get(root, "stage"));
	const bool is_loading = status && strcmp(status, "loading") == 0;
	/* A verbose daemon draws on the same terminal. */
	const bool draws_itself = session->daemon.pid && options->is_verbose;

	if (is_loading && !draws_itself && isatty(STDERR_FILENO))
		progress_show(
			stage ? stage : "",
			json_number_value(json_object_get(root, "progress")));
	json_decref(root);
	return is_loading;
}

static int wait_until_ready(struct cli_session *session,
			    const struct cli_options *options)
{
	struct cli_http_call call = { .path = "/health",
				      .timeout_ms = HEALTH_TIMEOUT_MS };
	char err[256] = "";
	int rc, exit_code = CLI_OK;
	bool is_loading = true;

	while (is_loading) {
		rc = cli_http_perform(session->http, &call, err, sizeof(err));
		is_loading = rc == 0 && call.status == 503 &&
			     show_loading(session, options, &call);
		if (is_loading) {
			sleep_ms(POLL_MS);
		} else if (rc != 0 || call.status != 200) {
			progress_end();
			exit_code =
				cli_session_complain(session, &call, rc, err);
		}
		text_deinit(&call.reply);
		if (cli_signal_noted()) {
			exit_code = cli_signal_exit();
			break;
		}
	}
	progress_end();
	return exit_code;
}

static int ask_about_model(struct cli_session *session)
{
	struct cli_http_call call = { .path = "/v1/models" };
	char err[256] = "";
	int rc = cli_http_perform(session->http, &call, err, sizeof(err));
	json_t *root, *model, *meta;
	const char *name;
	int exit_code = CLI_OK;

	if (rc != 0 || call.status != 200) {
		exit_code = cli_session_complain(session, &call, rc, err);
		text_deinit(&call.reply);
		return exit_code;
	}
	root = cli_reply_json(&call);
	model = json_array_get(json_object_get(root, "data"), 0);
	meta = json_object_get(model, "meta");
	name = json_string_value(json_object_get(model, "id"));
	if (name) {
		snprintf(session->model, sizeof(session->model), "%s", name);
		/* Another server that speaks this API knows no such field: it has one. */
		session->has_template =
			!json_is_false(json_object_get(meta, "chat_template"));
	} else {
		exit_code = cli_session_complain(session, &call, -EBADMSG,
						 "no model in /v1/models");
	}
	json_decref(root);
	text_deinit(&call.reply);
	return exit_code;
}

/* ---- the whole ------------------------------------------------------------------------ */

static int start_own(const struct cli_options *options,
		     struct cli_session *session)
{
	char err[1024];
	char *model_path;
	int rc;

	if (cli_model_path(options->model_path, &model_path, err,
			   sizeof(err)) != 0) {
		cli_complain("%s", err);
		return CLI_UNAVAILABLE;
	}
	rc = cli_daemon_start(options, model_path, &session->daemon, err,
			      sizeof(err));
	free(model_path);
	if (rc != 0) {
		cli_complain("%s", err);
		return CLI_FAILURE;
	}
	session->socket_path = session->daemon.socket_path;
	return CLI_OK;
}

int cli_session_open(const struct cli_options *options,
		     struct cli_session *session)
{
	int exit_code = CLI_OK, rc;

	*session = (struct cli_session){
		.daemon = { .place_fd = -1, .log_fd = -1 },
		.socket_path = options->socket_path,
	};
	if (!options->socket_path)
		exit_code = start_own(options, session);
	if (exit_code != CLI_OK)
		return exit_code;
	rc = cli_http_create(session->socket_path, &session->http);
	if (rc != 0) {
		cli_complain("the socket %s: %s", session->socket_path,
			     strerror(-rc));
		return CLI_FAILURE;
	}
	exit_code = wait_until_ready(session, options);
	return exit_code == CLI_OK ? ask_about_model(session) : exit_code;
}

void cli_session_close(struct cli_session *session)
{
	cli_http_destroy(session->http);
	session->http = NULL;
	cli_daemon_stop(&session->daemon);
}
