/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What http.c (server and calls) and http_conn.c (care for a connection) share.
 * Event thread only.
 */
#ifndef TARN_DAEMON_HTTP_PRIVATE_H
#define TARN_DAEMON_HTTP_PRIVATE_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <sys/queue.h>

#include "daemon/http.h"
#include "daemon/http_scan.h"

enum {
	HTTP_MAX_HEADERS_BYTES = 64 * 1024,
	HTTP_ID_BYTES = 72, /* of X-Request-Id, with the NUL */
};

struct http_conn {
	TAILQ_ENTRY(http_conn) link;
	struct http_server *server;
	struct bufferevent *bev; /* evhttp's, from its birth in bevcb on */
	struct evbuffer_cb_entry *input_cb, *output_cb;
	struct evhttp_connection *evcon; /* known once adopted */
	/* evhttp's own callbacks, which ours call; read again each time evhttp sets them. */
	bufferevent_data_cb evhttp_read, evhttp_write;
	bufferevent_event_cb evhttp_event;
	int fd;
	struct tarn_principal peer;
	struct event
		*care; /* activated, not waited for: runs before the next I/O */
	struct event *deadline;
	struct event *
		hangup; /* watches a half-closed client, on a descriptor of its own */
	struct http_call *
		call; /* what is being answered; NULL while a request is read */
	struct http_scan scan; /* of the request that is read */
	bool is_begun; /* bytes of a request have come */
	bool is_refused; /* our own last words are being written */
	bool is_lingering; /* behind them, what the client still sends is read and dropped */
	bool is_translated; /* evhttp's last words are, as JSON */
};

struct http_call {
	struct http_conn *conn;
	struct evhttp_request *evreq;
	void *user;
	char *path;
	enum http_method method;
	bool is_misframed; /* where the next request begins is not certain */
	uint64_t start_ns;
	char id[HTTP_ID_BYTES];
};

struct http_server {
	struct event_base *base;
	struct evhttp *evhttp;
	struct evconnlistener *listener;
	struct http_options options;
	struct http_handlers handlers;
	TAILQ_HEAD(, http_conn) conns;
	uint32_t nr_conns, nr_calls;
	struct event *resume; /* ends a pause in accepting */
	bool is_short; /* of descriptors or memory for connections; it was logged */
	bool is_draining;
};

/* The bufferevent that evhttp is to use for a new connection; NULL: it takes its own. */
struct bufferevent *http_conn_create(struct event_base *base, void *server);
struct http_conn *http_conn_find(struct http_server *server,
				 struct evhttp_connection *evcon);
/* Accept again, if there is room for a connection. */
void http_accept_resume(struct http_server *server);
/* A request was read and waits for its reply: keep an eye on the client. */
void http_conn_wait(struct http_conn *conn);
/* The reply is out: the next request may come. */
void http_conn_next(struct http_conn *conn);
/* The call is over because its connection is; frees it. */
void http_call_lost(struct http_call *call);

#endif /* TARN_DAEMON_HTTP_PRIVATE_H */
