/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events over a streamed reply: "data: JSON", an empty line, and
 * "data: [DONE]" at the end; or lines of JSON alone. Event thread only.
 */
#ifndef TARN_DAEMON_SSE_H
#define TARN_DAEMON_SSE_H

#include <stdbool.h>

struct http_call;

void sse_begin(struct http_call *call);
/* @json is freed. False: without memory, or the client reads too slowly; cut the call. */
bool sse_send(struct http_call *call, char *json);
/* Lines of JSON, for clients that want those; sent and freed alike. */
void ndjson_begin(struct http_call *call);
bool ndjson_send(struct http_call *call, char *json);
/* The closing event and the end of the reply; the call may be over on return. */
void sse_end(struct http_call *call);

#endif /* TARN_DAEMON_SSE_H */
