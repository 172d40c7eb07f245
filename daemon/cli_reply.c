/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the daemon's replies: see cli_reply.h.
 */
#include "daemon/cli_reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_EVENT_BYTES = 16 << 20 };

json_t *cli_reply_json(const struct cli_http_call *call)
{
	json_t *root = call->reply.len ?
			       json_loadb(call->reply.bytes, call->reply.len,
					  JSON_ALLOW_NUL, NULL) :
			       NULL;

	if (!json_is_object(root)) {
		json_decref(root);
		return NULL;
	}
	return root;
}

void cli_reply_error(const struct cli_http_call *call, char *message,
		     size_t size)
{
	json_t *root = cli_reply_json(call);
	json_t *error = json_object_get(root, "error");
	const char *text = json_string_value(json_object_get(error, "message"));
	const char *status = json_string_value(json_object_get(root, "status"));

	if (text)
		snprintf(message, size, "%s", text);
	else if (status)
		snprintf(message, size, "the daemon is not ready: it is %s",
			 status);
	else
		snprintf(message, size,
			 "the daemon answered with status %ld and no reason",
			 call->status);
	json_decref(root);
}

/* ---- events ------------------------------------------------------------------------ */

/* An empty line: the event is whole. */
static int end_event(struct cli_events *events)
{
	int rc;

	if (!events->data.len)
		return 0;
	rc = text_append(&events->data, "", 1);
	if (rc != 0)
		return rc;
	/* Each line of data left a newline behind; the last one goes. */
	events->data.len -= 2;
	events->data.bytes[events->data.len] = '\0';
	if (strcmp(events->data.bytes, "[DONE]") == 0)
		events->is_done = true;
	else
		rc = events->take(events->arg, events->data.bytes,
				  events->data.len);
	events->data.len = 0;
	return rc;
}

static int take_line(struct cli_events *events, const char *line, size_t len)
{
	int rc;

	if (len && line[len - 1] == '\r')
		len--;
	if (len == 0)
		return end_event(events);
	/* Comments, which keep a connection open, and names of events mean nothing here. */
	if (len < 5 || memcmp(line, "data:", 5) != 0)
		return 0;
	line += 5;
	len -= 5;
	if (len && *line == ' ') {
		line++;
		len--;
	}
	if (events->data.len + len > MAX_EVENT_BYTES)
		return -EBADMSG;
	rc = text_append(&events->data, line, len);
	return rc == 0 ? text_append(&events->data, "\n", 1) : rc;
}

int cli_events_push(struct cli_events *events, const char *bytes, size_t len)
{
	const char *newline;
	int rc = 0;

	while (rc == 0 && (newline = memchr(bytes, '\n', len)) != NULL) {
		const size_t part = (size_t)(newline - bytes);

		rc = text_append(&events->line, bytes, part);
		if (rc == 0)
			rc = take_line(events,
				       events->line.len ? events->line.bytes :
							  "",
				       events->line.len);
		events->line.len = 0;
		bytes += part + 1;
		len -= part + 1;
	}
	if (rc != 0)
		return rc;
	if (events->line.len + len > MAX_EVENT_BYTES)
		return -EBADMSG;
	return text_append(&events->line, bytes, len);
}

void cli_events_deinit(struct cli_events *events)
{
	text_deinit(&events->line);
	text_deinit(&events->data);
}
