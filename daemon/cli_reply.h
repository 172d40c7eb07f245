/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon's replies say: JSON bodies, errors, and events of a stream.
 */
#ifndef TARN_DAEMON_CLI_REPLY_H
#define TARN_DAEMON_CLI_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/cli_http.h"
#include "daemon/textstream.h"

/* The collected body as an object; NULL when it is none. json_decref() it. */
json_t *cli_reply_json(const struct cli_http_call *call);
/* The message of a reply that is an error, or what is known instead. */
void cli_reply_error(const struct cli_http_call *call, char *message,
		     size_t size);

/* Server-sent events, cut out of a stream of bytes. */
struct cli_events {
	struct text line; /* not whole yet */
	struct text data; /* of the event under way */
	bool is_done; /* [DONE] came */
	/* Takes one event's data, a 0 behind it. Not 0: give up. */
	int (*take)(void *arg, const char *data, size_t len);
	void *arg;
};

/* Return: 0, -ENOMEM, -EBADMSG (an endless line), or what @take gave. */
int cli_events_push(struct cli_events *events, const char *bytes, size_t len);
void cli_events_deinit(struct cli_events *events);

#endif /* TARN_DAEMON_CLI_REPLY_H */
