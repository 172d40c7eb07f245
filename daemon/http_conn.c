/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Care for one connection, around evhttp's back but by public calls alone:
 * our callbacks stand before evhttp's on its bufferevent. evhttp sets its own
 * anew at each turn, always with writing or a new request, so a `care` event
 * is activated at those moments and, with a priority of its own, puts ours back
 * before the next I/O.
 *
 * Why: (1) evhttp stops reading while a request waits, and would not see the
 * client go; and if it read, input in that state would end the process. So
 * reading goes on without a read callback. (2) A client that has closed only
 * its sending side still gets its answer. (3) A drip-fed request ends at a
 * deadline with 408, a broken one with JSON instead of a page of HTML.
 */
#include "daemon/http_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log.h"

enum {
	/* Requests sent ahead while one waits: more than this stays in the kernel. */
	PIPELINE_BYTES = 64 * 1024,
};

static void on_read(struct bufferevent *bev, void *arg);
static void on_write(struct bufferevent *bev, void *arg);
static void on_event(struct bufferevent *bev, short what, void *arg);

static void conn_destroy(struct http_conn *conn)
{
	struct http_server *server = conn->server;

	evbuffer_remove_cb_entry(bufferevent_get_input(conn->bev),
				 conn->input_cb);
	evbuffer_remove_cb_entry(bufferevent_get_output(conn->bev),
				 conn->output_cb);
	event_free(conn->care);
	event_free(conn->deadline);
	if (conn->hangup) {
		int fd = event_get_fd(conn->hangup);

		event_free(conn->hangup);
		close(fd);
	}
	TAILQ_REMOVE(&server->conns, conn, link);
	server->nr_conns--;
	http_accept_resume(server);
	free(conn);
}

/* evhttp is about to free the connection, whatever the reason. */
static void on_close(struct evhttp_connection *evcon, void *arg)
{
	struct http_conn *conn = arg;
	struct http_call *call = conn->call;

	(void)evcon;
	if (call) {
		/* Unless the reply was complete, evhttp has left the request to us. */
		if (!evhttp_request_get_connection(call->evreq))
			evhttp_request_free(call->evreq);
		http_call_lost(call);
	}
	conn_destroy(conn);
}

struct http_conn *http_conn_find(struct http_server *server,
				 struct evhttp_connection *evcon)
{
	struct http_conn *conn;

	TAILQ_FOREACH(conn, &server->conns, link)
	{
		if (conn->evcon == evcon)
			return conn;
	}
	return NULL;
}

static void arm_deadline(struct http_conn *conn)
{
	const struct timeval wait = { .tv_sec =
					      conn->server->options.timeout_s };

	event_add(conn->deadline, &wait);
}

/* ---- last words ------------------------------------------------------------------ */

/* The reply in full, for moments when evhttp cannot send one or has sent HTML. */
static void put_error(struct evbuffer *output, int status, const char *code,
		      const char *message)
{
	struct api_error error;
	char *json;

	api_fail(&error, status, NULL, code, "%s", message);
	json = api_error_json(&error);
	evbuffer_add_printf(
		output,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
		status, api_status_text(status), json ? strlen(json) : 0,
		json ? json : "");
	free(json);
}

static void on_refused_write(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn = arg;

	if (evbuffer_get_length(bufferevent_get_output(bev)) > 0)
		return;
	/* Who reads to the end shall not wait for it. */
	if (conn->is_lingering)
		shutdown(conn->fd, SHUT_WR);
	else
		evhttp_connection_free(conn->evcon);
}

static void on_refused_read(struct bufferevent *bev, void *arg)
{
	struct evbuffer *input = bufferevent_get_input(bev);

	(void)arg;
	evbuffer_drain(input, evbuffer_get_length(input));
}

static void on_refused_event(struct bufferevent *bev, short what, void *arg)
{
	struct http_conn *conn = arg;

	/* Nothing more comes, but the answer is still to go. */
	if ((what & BEV_EVENT_EOF) && conn->is_lingering &&
	    evbuffer_get_length(bufferevent_get_output(bev)) > 0)
		conn->is_lingering = false;
	else
		evhttp_connection_free(conn->evcon);
}

/* Answer what is not a whole request, then close. */
static void refuse(struct http_conn *conn, int status, const char *code,
		   const char *message)
{
	struct evbuffer *output = bufferevent_get_output(conn->bev);

	log_info("uid=%u pid=%d %d %s", (unsigned int)conn->peer.uid,
		 (int)conn->peer.pid, status, message);
	conn->is_refused = true;
	bufferevent_disable(conn->bev, EV_READ);
	evbuffer_unfreeze(output, 1);
	evbuffer_drain(output, evbuffer_get_length(output));
	put_error(output, status, code, message);
	bufferevent_setcb(conn->bev, NULL, on_refused_write, on_refused_event,
			  conn);
	bufferevent_enable(conn->bev, EV_WRITE);
}

/*
 * Answer a request of which more is to come. A client that sends first and reads then would find
 * the connection closed and no answer: until it stops, or the deadline, what it sends is dropped.
 */
static void refuse_early(struct http_conn *conn, const struct api_error *error)
{
	struct bufferevent *bev = conn->bev;

	refuse(conn, error->status, error->code, error->message);
	conn->is_lingering = true;
	on_refused_read(bev, conn);
	bufferevent_setcb(bev, on_refused_read, on_refused_write,
			  on_refused_event, conn);
	bufferevent_enable(bev, EV_READ);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *conn = arg;

	(void)fd;
	(void)what;
	if (conn->call || !conn->evcon)
		return;
	if (conn->is_begun && !conn->is_refused)
		refuse(conn, 408, "timeout",
		       "the request did not arrive in time");
	else
		evhttp_connection_free(conn->evcon);
}

/* Turns the HTML page that evhttp made of an error into JSON; it will close the connection. */
static void translate_error(struct http_conn *conn)
{
	struct evbuffer *output = bufferevent_get_output(conn->bev);
	char head[16] = "";
	const char *message;
	int status;

	if (conn->call || conn->is_translated)
		return;
	/* Between writes a bufferevent keeps the front of its output frozen. */
	evbuffer_unfreeze(output, 1);
	if (evbuffer_copyout(output, head, sizeof(head) - 1) < 13)
		return;
	status = atoi(head + sizeof("HTTP/1.1 ") - 1);
	if (strncmp(head, "HTTP/", 5) != 0 || status < 400)
		return;
	switch (status) {
	case 413:
		message =
			"the body is larger than this server takes (--max-body)";
		break;
	case 417:
		message =
			"the Expect header asks for something else than 100-continue";
		break;
	default:
		message =
			"this is not a well-formed HTTP request, or its headers are too large";
		break;
	}
	log_info("uid=%u pid=%d %d %s", (unsigned int)conn->peer.uid,
		 (int)conn->peer.pid, status, message);
	/* What we put there brings us here again. */
	conn->is_translated = true;
	evbuffer_drain(output, evbuffer_get_length(output));
	put_error(output, status,
		  status == 413 ? "body_too_large" : "invalid_http", message);
}

/* ---- a client that goes ------------------------------------------------------------ */

/* Both directions are down: nobody is there to read a reply. */
static bool is_hung_up(int fd)
{
	struct pollfd poll_fd = { .fd = fd };

	return poll(&poll_fd, 1, 0) < 0 ||
	       (poll_fd.revents & (POLLHUP | POLLERR | POLLNVAL));
}

static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *conn = arg;

	(void)what;
	if (is_hung_up((int)fd))
		evhttp_connection_free(conn->evcon);
}

/*
 * The client has closed its sending side and waits for the reply. Its end of file would be
 * reported for ever, so it is watched edge-triggered, which needs a descriptor of its own.
 */
static void watch_half_closed(struct http_conn *conn)
{
	int fd;

	if (conn->hangup)
		return;
	fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return;
	conn->hangup = event_new(conn->server->base, fd,
				 EV_READ | EV_ET | EV_PERSIST, on_hangup, conn);
	if (!conn->hangup) {
		close(fd);
		return;
	}
	event_add(conn->hangup, NULL);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct http_conn *conn = arg;

	if ((what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING) &&
	    !is_hung_up(conn->fd)) {
		if (conn->call) {
			watch_half_closed(conn);
			return;
		}
		if (conn->is_begun) {
			refuse(conn, 400, "incomplete_request",
			       "the request ended before it was complete");
			return;
		}
	}
	conn->evhttp_event(bev, what, conn->evcon);
}

/* ---- standing before evhttp ---------------------------------------------------------- */

/* evhttp calls its bufferevent's read callback by itself, with its own argument. */
static void on_read(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn;
	struct api_error error;
	void *own_arg;

	(void)arg;
	bufferevent_getcb(bev, NULL, NULL, NULL, &own_arg);
	conn = own_arg;
	if (http_scan_input(&conn->scan, bufferevent_get_input(bev),
			    conn->server->options.max_body_bytes, &error))
		conn->evhttp_read(bev, conn->evcon);
	else
		refuse_early(conn, &error);
}

static void on_write(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn = arg;

	conn->evhttp_write(bev, conn->evcon);
}

/* The first care: now evhttp has a connection and a descriptor. */
static void adopt(struct http_conn *conn, struct evhttp_connection *evcon)
{
	const struct timeval wait = { .tv_sec =
					      conn->server->options.timeout_s };
	struct ucred cred;
	socklen_t len = sizeof(cred);

	conn->evcon = evcon;
	conn->fd = bufferevent_getfd(conn->bev);
	evhttp_connection_set_closecb(evcon, on_close, conn);
	bufferevent_set_timeouts(conn->bev, NULL, &wait);
	if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
		conn->peer =
			(struct tarn_principal){ cred.uid, cred.gid, cred.pid };
	else
		conn->peer = (struct tarn_principal){ (uid_t)-1, (gid_t)-1, 0 };
	arm_deadline(conn);
}

static void on_care(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *conn = arg;
	bufferevent_data_cb read_cb, write_cb;
	bufferevent_event_cb event_cb;
	size_t limit = conn->server->options.max_body_bytes +
		       HTTP_MAX_HEADERS_BYTES + PIPELINE_BYTES;
	void *cb_arg;

	(void)fd;
	(void)what;
	if (conn->is_refused)
		return;
	bufferevent_getcb(conn->bev, &read_cb, &write_cb, &event_cb, &cb_arg);
	if (event_cb != on_event) {
		conn->evhttp_read = read_cb;
		conn->evhttp_write = write_cb;
		conn->evhttp_event = event_cb;
		bufferevent_setcb(conn->bev, read_cb ? on_read : NULL, on_write,
				  on_event, conn);
		if (!conn->evcon) {
			adopt(conn, cb_arg);
			return;
		}
	}
	if (!conn->call &&
	    evbuffer_get_length(bufferevent_get_input(conn->bev)) > limit)
		refuse(conn, 413, "body_too_large",
		       "the request is larger than this server takes");
	else
		translate_error(conn);
}

static void on_input(struct evbuffer *buffer,
		     const struct evbuffer_cb_info *info, void *arg)
{
	struct http_conn *conn = arg;

	(void)buffer;
	http_scan_taken(&conn->scan, info->n_deleted);
	if (!info->n_added || conn->call)
		return;
	if (!conn->is_begun && conn->evcon) {
		conn->is_begun = true;
		arm_deadline(conn);
	}
	if (info->orig_size + info->n_added >
	    conn->server->options.max_body_bytes)
		event_active(conn->care, 0, 0);
}

static void on_output(struct evbuffer *buffer,
		      const struct evbuffer_cb_info *info, void *arg)
{
	struct http_conn *conn = arg;

	(void)buffer;
	if (info->n_added)
		event_active(conn->care, 0, 0);
}

struct bufferevent *http_conn_create(struct event_base *base, void *arg)
{
	struct http_server *server = arg;
	struct bufferevent *bev = bufferevent_socket_new(base, -1, 0);
	struct http_conn *conn = calloc(1, sizeof(*conn));

	if (!bev || !conn)
		goto err_free;
	conn->server = server;
	conn->bev = bev;
	conn->fd = -1;
	conn->care = event_new(base, -1, 0, on_care, conn);
	conn->deadline = evtimer_new(base, on_deadline, conn);
	conn->input_cb =
		evbuffer_add_cb(bufferevent_get_input(bev), on_input, conn);
	conn->output_cb =
		evbuffer_add_cb(bufferevent_get_output(bev), on_output, conn);
	if (!conn->care || !conn->deadline || !conn->input_cb ||
	    !conn->output_cb)
		goto err_free_events;
	/* Input that has come in with what activates it must find our callbacks in place. */
	event_priority_set(conn->care, 0);
	server->is_short = false;
	TAILQ_INSERT_TAIL(&server->conns, conn, link);
	if (++server->nr_conns == server->options.max_connections)
		evconnlistener_disable(server->listener);
	event_active(conn->care, 0, 0);
	return bev;

err_free_events:
	if (conn->care)
		event_free(conn->care);
	if (conn->deadline)
		event_free(conn->deadline);
err_free:
	free(conn);
	if (bev)
		bufferevent_free(bev);
	return NULL;
}

void http_conn_wait(struct http_conn *conn)
{
	evtimer_del(conn->deadline);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, PIPELINE_BYTES);
	bufferevent_setcb(conn->bev, NULL, on_write, on_event, conn);
	bufferevent_enable(conn->bev, EV_READ);
}

void http_conn_next(struct http_conn *conn)
{
	bufferevent_setwatermark(conn->bev, EV_READ, 0, 0);
	conn->is_begun = evbuffer_get_length(bufferevent_get_input(conn->bev)) >
			 0;
	conn->scan = (struct http_scan){ 0 };
	arm_deadline(conn);
	event_active(conn->care, 0, 0);
}
