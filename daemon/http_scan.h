/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at a request as it comes in, ahead of evhttp, which tells of a body that is too large only
 * once it has come, and of every fault of a chunk as if it were too large. Nothing is taken out of
 * the input. Event thread only.
 */
#ifndef TARN_DAEMON_HTTP_SCAN_H
#define TARN_DAEMON_HTTP_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/api_error.h"

struct evbuffer;

enum http_scan_state {
	HTTP_SCAN_START, /* the request line; zero, so that a new scan is { 0 } */
	HTTP_SCAN_HEADERS,
	HTTP_SCAN_CHUNK_SIZE,
	HTTP_SCAN_CHUNK_DATA,
	HTTP_SCAN_DONE, /* what follows is none of ours */
};

struct http_scan {
	enum http_scan_state state;
	size_t at; /* bytes of the input that were looked at */
	uint64_t chunk_left, body_bytes; /* of a body in chunks */
	bool is_chunked, is_too_large, is_no_number;
};

/* evhttp has taken @nr bytes from the front of the input. */
void http_scan_taken(struct http_scan *scan, size_t nr);
/* Look at what is new. Return: true, or false with @error filled: the connection must end. */
bool http_scan_input(struct http_scan *scan, struct evbuffer *input,
		     uint64_t max_body_bytes, struct api_error *error);

#endif /* TARN_DAEMON_HTTP_SCAN_H */
