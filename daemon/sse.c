/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events: see sse.h.
 */
#include "daemon/sse.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/http.h"

void sse_begin(struct http_call *call)
{
	http_stream_begin(call, "text/event-stream; charset=utf-8");
}

bool sse_send(struct http_call *call, char *json)
{
	const size_t len = json ? strlen(json) : 0;
	char *event = json ? malloc(len + 8) : NULL;
	bool is_sent = false;

	if (event) {
		memcpy(event, "data: ", 6);
		memcpy(event + 6, json, len);
		memcpy(event + 6 + len, "\n\n", 2);
		is_sent = http_stream_write(call, event, len + 8);
	}
	free(event);
	free(json);
	return is_sent;
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
