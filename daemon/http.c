/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server and its calls: see http.h. The care for single connections
 * is in http_conn.c.
 */
#include "daemon/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/http_private.h"
#include "daemon/log.h"

enum { ACCEPT_PAUSE_MS = 100 };

/* ---- calls begin --------------------------------------------------------------- */

/* The client's own id is kept if it can stand in a header and a log line. */
static void choose_id(struct http_call *call)
{
	const char *given = evhttp_find_header(
		evhttp_request_get_input_headers(call->evreq), "X-Request-Id");
	unsigned char random[12];
	size_t len = given ? strlen(given) : 0;
	bool is_good = len > 0 && len < sizeof(call->id);

	for (size_t i = 0; i < len && is_good; i++)
		is_good = given[i] > ' ' && given[i] < 0x7f;
	if (is_good) {
		memcpy(call->id, given, len + 1);
		return;
	}
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		memset(random, 0, sizeof(random));
	for (size_t i = 0; i < sizeof(random); i++)
		sprintf(call->id + 2 * i, "%02x", random[i]);
}

static enum http_method method_of(struct evhttp_request *evreq)
{
	switch (evhttp_request_get_command(evreq)) {
	case EVHTTP_REQ_GET:
	case EVHTTP_REQ_HEAD:
		return HTTP_GET;
	case EVHTTP_REQ_POST:
		return HTTP_POST;
	default:
		return HTTP_OTHER;
	}
}

/* evhttp has sent the last byte and is about to free the request. */
static void on_complete(struct evhttp_request *evreq, void *arg)
{
	struct http_call *call = arg;
	struct http_conn *conn = call->conn;
	struct http_server *server = conn->server;

	(void)evreq;
	conn->call = NULL;
	server->nr_calls--;
	server->handlers.done(call->user, server->handlers.arg);
	free(call->path);
	free(call);
	http_conn_next(conn);
}

void http_call_lost(struct http_call *call)
{
	struct http_server *server = call->conn->server;

	call->conn->call = NULL;
	server->nr_calls--;
	server->handlers.gone(call->user, server->handlers.arg);
	free(call->path);
	free(call);
}

/*
 * Whether the length of the body is beyond doubt. Where another reader of the same bytes (a proxy)
 * could see another length, the rest would be a request of somebody else's making. @error says
 * what is wrong; then the connection must be closed.
 */
static bool check_framing(struct evhttp_request *evreq, struct api_error *error)
{
	const bool is_head = evhttp_request_get_command(evreq) ==
			     EVHTTP_REQ_HEAD;
	const struct evkeyvalq *headers =
		evhttp_request_get_input_headers(evreq);
	const char *length = NULL, *coding = NULL;
	const struct evkeyval *header;

	TAILQ_FOREACH(header, headers, next)
	{
		if (evutil_ascii_strcasecmp(header->key, "Content-Length") ==
		    0) {
			if (length && strcmp(length, header->value) != 0)
				return api_fail(
					error, 400, NULL, "invalid_http",
					"the request has two Content-Lengths");
			length = header->value;
		} else if (evutil_ascii_strcasecmp(header->key,
						   "Transfer-Encoding") == 0) {
			if (coding || evutil_ascii_strcasecmp(header->value,
							      "chunked") != 0)
				return api_fail(
					error, 501, NULL, "invalid_http",
					"no Transfer-Encoding but \"chunked\" is supported");
			coding = header->value;
		}
	}
	if (length && (!*length || length[strspn(length, "0123456789")]))
		return api_fail(error, 400, NULL, "invalid_http",
				"Content-Length is not a number");
	/* evhttp reads none, and would take it for the next request. */
	if (is_head && (coding || (length && length[strspn(length, "0")])))
		return api_fail(error, 400, NULL, "invalid_http",
				"a HEAD request has no body");
	return true;
}

/* A path with a NUL in it is none of ours, and must not end there: it stays as it came. */
static char *decode_path(const struct evhttp_uri *uri)
{
	const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
	size_t len = 0;
	char *decoded = evhttp_uridecode(path ? path : "", 0, &len);

	if (!decoded || strlen(decoded) == len)
		return decoded;
	free(decoded);
	return strdup(path);
}

static void on_request(struct evhttp_request *evreq, void *arg)
{
	struct http_server *server = arg;
	struct evhttp_connection *evcon = evhttp_request_get_connection(evreq);
	struct http_conn *conn = http_conn_find(server, evcon);
	struct http_call *call = calloc(1, sizeof(*call));
	struct api_error error;

	if (!conn || !call) {
		free(call);
		evhttp_send_error(evreq, 500, "out of memory");
		return;
	}
	call->path = decode_path(evhttp_request_get_evhttp_uri(evreq));
	if (!call->path) {
		free(call);
		evhttp_send_error(evreq, 500, "out of memory");
		return;
	}
	call->conn = conn;
	call->evreq = evreq;
	call->method = method_of(evreq);
	call->start_ns = clock_ns();
	choose_id(call);
	conn->call = call;
	server->nr_calls++;
	evhttp_request_set_on_complete_cb(evreq, on_complete, call);
	http_conn_wait(conn);
	call->is_misframed = !check_framing(evreq, &error);
	if (call->is_misframed)
		http_reply_error(call, &error);
	else
		server->handlers.request(call, server->handlers.arg);
}

void http_call_set_user(struct http_call *call, void *user)
{
	call->user = user;
}

enum http_method http_call_method(const struct http_call *call)
{
	return call->method;
}

const char *http_call_path(const struct http_call *call)
{
	return call->path;
}

const struct tarn_principal *http_call_peer(const struct http_call *call)
{
	return &call->conn->peer;
}

const char *http_call_id(const struct http_call *call)
{
	return call->id;
}

uint64_t http_call_start_ns(const struct http_call *call)
{
	return call->start_ns;
}

char *http_call_take_body(struct http_call *call, size_t *out_len)
{
	struct evbuffer *input = evhttp_request_get_input_buffer(call->evreq);
	size_t len = evbuffer_get_length(input);
	char *body = malloc(len + 1);

	if (!body)
		return NULL;
	evbuffer_remove(input, body, len);
	body[len] = '\0';
	*out_len = len;
	return body;
}

/* ---- replies --------------------------------------------------------------------- */

static void add_header(struct http_call *call, const char *name,
		       const char *value)
{
	evhttp_add_header(evhttp_request_get_output_headers(call->evreq), name,
			  value);
}

static void add_common_headers(struct http_call *call, const char *content_type)
{
	add_header(call, "Content-Type", content_type);
	add_header(call, "X-Request-Id", call->id);
	/* A method we do not know may have a body that nobody read. */
	if (call->conn->server->is_draining || call->is_misframed ||
	    call->method == HTTP_OTHER)
		add_header(call, "Connection", "close");
}

static void free_bytes(const void *bytes, size_t len, void *arg)
{
	(void)len;
	(void)arg;
	free((void *)bytes);
}

/* @text is freed; NULL becomes a 500 without a body. @end: what stands behind it. */
static void reply(struct http_call *call, int status, const char *content_type,
		  char *text, const char *end)
{
	struct evbuffer *body = evbuffer_new();

	if (!text || !body ||
	    evbuffer_add_reference(body, text, strlen(text), free_bytes,
				   NULL)) {
		free(text);
		status = 500;
	}
	if (body)
		evbuffer_add(body, end, strlen(end));
	add_common_headers(call, content_type);
	/* evhttp would send it, and clients take it for the next reply. */
	if (body &&
	    evhttp_request_get_command(call->evreq) == EVHTTP_REQ_HEAD) {
		char length[24];

		snprintf(length, sizeof(length), "%zu",
			 evbuffer_get_length(body));
		add_header(call, "Content-Length", length);
		evbuffer_drain(body, evbuffer_get_length(body));
	}
	evhttp_send_reply(call->evreq, status, api_status_text(status), body);
	if (body)
		evbuffer_free(body);
}

void http_reply_text(struct http_call *call, const char *content_type,
		     char *text)
{
	reply(call, 200, content_type, text, "");
}

void http_reply_json(struct http_call *call, int status, char *json,
		     const char *extra_name, const char *extra_value)
{
	if (extra_name)
		add_header(call, extra_name, extra_value);
	reply(call, status, "application/json", json, "\n");
}

void http_reply_error(struct http_call *call, const struct api_error *error)
{
	char seconds[16];

	snprintf(seconds, sizeof(seconds), "%u", error->retry_after_s);
	http_reply_json(call, error->status, api_error_json(error),
			error->retry_after_s ? "Retry-After" : NULL, seconds);
}

void http_stream_begin(struct http_call *call, const char *content_type)
{
	add_common_headers(call, content_type);
	add_header(call, "Cache-Control", "no-cache");
	/* Without chunks the end of the connection is the end of the stream. */
	if (call->evreq->major == 1 && call->evreq->minor == 0)
		add_header(call, "Connection", "close");
	evhttp_send_reply_start(call->evreq, 200, api_status_text(200));
}

/*
 * Whether @len more bytes may be left for the client. Much can come at once
 * (one step of many choices), so the socket gets its chance first: only who
 * does not read is behind.
 */
static bool has_room(struct http_call *call, size_t len)
{
	struct evbuffer *output = bufferevent_get_output(call->conn->bev);
	const size_t limit = call->conn->server->options.max_unsent_bytes;

	if (evbuffer_get_length(output) + len <= limit)
		return true;
	/* Between writes a bufferevent keeps the front of its output frozen. */
	evbuffer_unfreeze(output, 1);
	/* A failure is for the bufferevent to see, when it writes next. */
	(void)evbuffer_write(output, call->conn->fd);
	return evbuffer_get_length(output) <= limit;
}

bool http_stream_write(struct http_call *call, const char *bytes, size_t len)
{
	struct evbuffer *chunk;

	if (!has_room(call, len))
		return false;
	chunk = evbuffer_new();
	if (!chunk)
		return false;
	evbuffer_add(chunk, bytes, len);
	evhttp_send_reply_chunk(call->evreq, chunk);
	evbuffer_free(chunk);
	return true;
}

void http_stream_end(struct http_call *call)
{
	evhttp_send_reply_end(call->evreq);
}

void http_call_cut(struct http_call *call)
{
	evhttp_connection_free(call->conn->evcon);
}

/* ---- the server -------------------------------------------------------------------- */

/* evhttp has the listener's argument for itself: there is one server a process. */
static struct http_server *accepting;

void http_accept_resume(struct http_server *server)
{
	if (server->listener &&
	    server->nr_conns < server->options.max_connections)
		evconnlistener_enable(server->listener);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	http_accept_resume(arg);
}

/*
 * The client stays in the backlog, and the socket readable: without a pause we would be back here
 * at once, for as long as descriptors are short.
 */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	const struct timeval pause = { .tv_usec = ACCEPT_PAUSE_MS * 1000 };

	(void)arg;
	if (!accepting->is_short)
		log_warn("accept failed: %s; new clients wait",
			 strerror(errno));
	accepting->is_short = true;
	evconnlistener_disable(listener);
	event_add(accepting->resume, &pause);
}

int http_server_create(struct event_base *base, int fd,
		       const struct http_options *options,
		       const struct http_handlers *handlers,
		       struct http_server **out_server)
{
	struct http_server *server = calloc(1, sizeof(*server));
	int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (!server || own_fd < 0)
		goto err_free;
	server->base = base;
	server->options = *options;
	server->handlers = *handlers;
	TAILQ_INIT(&server->conns);
	server->resume = evtimer_new(base, on_resume, server);
	server->evhttp = evhttp_new(base);
	if (!server->resume || !server->evhttp)
		goto err_free_http;
	/* Backlog 0: the socket listens already. The descriptor goes with the listener. */
	server->listener = evconnlistener_new(
		base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
		0, own_fd);
	if (!server->listener)
		goto err_free_http;
	if (!evhttp_bind_listener(server->evhttp, server->listener)) {
		evconnlistener_free(server->listener);
		own_fd = -1;
		goto err_free_http;
	}
	evconnlistener_set_error_cb(server->listener, on_accept_error);
	evhttp_set_bevcb(server->evhttp, http_conn_create, server);
	evhttp_set_gencb(server->evhttp, on_request, server);
	/* Every method reaches us, so that the answer is 405 and JSON. */
	evhttp_set_allowed_methods(server->evhttp, 0xffff);
	evhttp_set_max_headers_size(server->evhttp, HTTP_MAX_HEADERS_BYTES);
	evhttp_set_max_body_size(server->evhttp,
				 (ev_ssize_t)options->max_body_bytes);
	/* Read the rest of a body that is too large: only then the client reads the answer. */
	evhttp_set_flags(server->evhttp, EVHTTP_SERVER_LINGERING_CLOSE);
	accepting = server;
	*out_server = server;
	return 0;

err_free_http:
	if (server->evhttp)
		evhttp_free(server->evhttp);
	if (server->resume)
		event_free(server->resume);
err_free:
	if (own_fd >= 0)
		close(own_fd);
	free(server);
	return -ENOMEM;
}

void http_server_destroy(struct http_server *server)
{
	if (!server)
		return;
	server->listener = NULL;
	evhttp_free(server->evhttp);
	event_free(server->resume);
	accepting = NULL;
	free(server);
}

void http_server_drain(struct http_server *server)
{
	server->is_draining = true;
}

uint32_t http_server_nr_calls(const struct http_server *server)
{
	return server->nr_calls;
}
