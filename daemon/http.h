/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 on a Unix socket, by libevent's evhttp: requests come in whole,
 * replies go out whole or in pieces. What evhttp leaves open is closed here:
 * a client that goes away while its request waits is seen at once; slow
 * clients time out, with an answer; every error is JSON.
 *
 * Event thread only.
 */
#ifndef TARN_DAEMON_HTTP_H
#define TARN_DAEMON_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/api_error.h"
#include "engine/engine.h"

struct event_base;
struct http_server;
struct http_call; /* one request and its reply */

enum http_method {
	HTTP_GET,
	HTTP_POST,
	HTTP_OTHER
}; /* HEAD is GET without the body */

struct http_options {
	uint64_t max_body_bytes;
	uint32_t timeout_s; /* idle; for a request to arrive whole; without progress in writing */
	uint32_t max_connections; /* more wait in the kernel's backlog */
	size_t max_unsent_bytes; /* of a stream, see http_stream_write() */
};

struct http_handlers {
	/* A request is there. The call must be replied to, now or later. */
	void (*request)(struct http_call *call, void *arg);
	/*
	 * The client went away before its reply was complete, or was cut off; @user is what
	 * http_call_set_user() said, never NULL. The call is over.
	 */
	void (*gone)(void *user, void *arg);
	/* The reply is with the kernel: the call is over. @user may be NULL. */
	void (*done)(void *user, void *arg);
	void *arg;
};

/**
 * http_server_create - serve a listening socket
 * @base: with two priorities; the server's own care for its connections has the first, so
 *	that it comes before input and output that are already waiting to be handled.
 * @fd: listening, stays the caller's.
 *
 * Return: 0, -ENOMEM, or -errno.
 */
int http_server_create(struct event_base *base, int fd,
		       const struct http_options *options,
		       const struct http_handlers *handlers,
		       struct http_server **out_server);
/* Open connections are cut; calls that are not over get gone(). NULL is fine. */
void http_server_destroy(struct http_server *server);
/* From now on each reply closes its connection. */
void http_server_drain(struct http_server *server);
/* Calls that are not over. */
uint32_t http_server_nr_calls(const struct http_server *server);

/* ---- a call ---------------------------------------------------------------- */

void http_call_set_user(struct http_call *call, void *user);
enum http_method http_call_method(const struct http_call *call);
const char *
http_call_path(const struct http_call *call); /* decoded, without the query */
const struct tarn_principal *http_call_peer(const struct http_call *call);
const char *http_call_id(
	const struct http_call *call); /* X-Request-Id, the client's or ours */
uint64_t http_call_start_ns(const struct http_call *call);
/* The body, malloc'ed, with a NUL behind it; it is taken out. NULL without memory. */
char *http_call_take_body(struct http_call *call, size_t *out_len);

/* A 200 with @text, which is freed; NULL becomes a 500. */
void http_reply_text(struct http_call *call, const char *content_type,
		     char *text);
/* @json is freed; NULL becomes a 500. @extra_name, @extra_value: one more header, or NULL. */
void http_reply_json(struct http_call *call, int status, char *json,
		     const char *extra_name, const char *extra_value);
void http_reply_error(struct http_call *call, const struct api_error *error);

void http_stream_begin(struct http_call *call, const char *content_type);
/*
 * Return: true, or false when the client has left more than max_unsent_bytes unread; then the
 * bytes were not taken, and the caller cuts the call.
 */
bool http_stream_write(struct http_call *call, const char *bytes, size_t len);
void http_stream_end(struct http_call *call);
/* Close the connection without a (further) reply; gone() comes before this returns. */
void http_call_cut(struct http_call *call);

#endif /* TARN_DAEMON_HTTP_H */
