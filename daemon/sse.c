/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events: see sse.h.
 */
#include "daemon/sse.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/http.h"

void sse_begin(struct http_call *call)
{
	http_stream_begin(call, "text/event-stream; charset=utf-8");
}

void ndjson_begin(struct http_call *call)
{
	http_stream_begin(call, "application/x-ndjson");
}

/* @json between two texts, in one piece: all of it is taken, or nothing. */
static bool send_between(struct http_call *call, const char *before, char *json,
			 const char *behind)
{
	char *event = NULL;
	bool is_sent = false;
	int len = json ? asprintf(&event, "%s%s%s", before, json, behind) : -1;

	if (len >= 0) {
		is_sent = http_stream_write(call, event, (size_t)len);
		free(event);
	}
	free(json);
	return is_sent;
}

bool sse_send(struct http_call *call, char *json)
{
	return send_between(call, "data: ", json, "\n\n");
}

bool ndjson_send(struct http_call *call, char *json)
{
	return send_between(call, "", json, "\n");
}

void sse_end(struct http_call *call)
{
	static const char done[] = "data: [DONE]\n\n";

	/* A client so far behind that this does not fit sees the stream end without it. */
	if (http_stream_write(call, done, sizeof(done) - 1))
		http_stream_end(call);
	else
		http_call_cut(call);
}
