/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon at work: routes, the requests under way, and the order of its
 * life: loading, serving, draining. It ties HTTP, preparer and driver
 * together. Event thread only, but for the two progress functions.
 */
#ifndef TARN_DAEMON_SERVER_H
#define TARN_DAEMON_SERVER_H

#include <event2/event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/api.h"
#include "daemon/driver.h"
#include "daemon/http.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "daemon/prepare.h"
#include "daemon/queue.h"

enum server_state {
	SERVER_LOADING,
	SERVER_SERVING,
	SERVER_DRAINING, /* what runs may finish */
	SERVER_STOPPED,
};

/* One request for text on its way through the daemon: the event thread's side. */
struct exchange {
	TAILQ_ENTRY(exchange) link;
	struct server *server;
	struct http_call *call;
	struct request *request; /* one reference */
	struct api_answer answer; /* choices is NULL until REPLY_START */
	int status; /* for the log; 0: no reply yet */
	bool is_streaming; /* the head of the stream is out */
};

struct server {
	struct event_base *base;
	struct http_server *http;
	struct queue replies;
	struct event *replies_event, *drain_timer;
	struct driver driver;
	struct preparer preparer;
	struct api_context context;
	const struct options *options;
	enum server_state state;
	bool is_failed; /* a fatal message came */
	bool is_driver_done;
	bool is_giving_up; /* the drain timeout is over */
	int exit_code;
	char fatal[512];
	/* How far the load is: written by the driver's thread, under the lock. */
	pthread_mutex_t progress_lock;
	double progress; /* 0 to 1 */
	char stage[64];
	uint64_t start_ns;
	struct metrics metrics;
	atomic_uint backlog; /* requests that were not let in yet */
	TAILQ_HEAD(, exchange) exchanges;
	/* Requests that ended lately, for Retry-After. */
	uint32_t nr_finished;
	uint64_t finished_since_ns;
};

/**
 * server_init - start threads and serve @listen_fd
 * @options, @base: outlive the server.
 *
 * Return: 0 or -errno.
 */
int server_init(struct server *server, struct event_base *base,
		const struct options *options, int listen_fd);
/* Threads have ended, memory is free. */
void server_deinit(struct server *server);
/* Stop in good order: the loop is left when all replies are out. @abort: now. */
void server_stop(struct server *server, bool abort);
/* How far the load is. Any thread. @stage: [out] of 64 bytes. */
void server_set_progress(struct server *server, const char *stage,
			 double fraction);
double server_get_progress(struct server *server, char *stage);

/* Routes: server_routes.c. */
void server_route(struct http_call *call, void *arg);
void server_gone(void *user, void *arg);
void server_done(void *user, void *arg);
/* Messages of preparer and driver about one request: exchange.c. */
void exchange_start(struct server *server, struct http_call *call,
		    enum request_kind kind);
void exchange_take(struct exchange *exchange, struct reply *reply);
/* The reply is out, or the client is gone. */
void exchange_end(struct exchange *exchange, bool is_gone);
/* GET /stats and GET /metrics: server_stats.c. malloc'ed, NULL without memory. */
char *server_stats_json(struct server *server);
char *server_metrics_text(struct server *server);
const char *server_state_name(const struct server *server);

#endif /* TARN_DAEMON_SERVER_H */
