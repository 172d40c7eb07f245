/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's life: see server.h.
 */
#include "daemon/server.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/progress.h"

enum {
	MAX_CONNECTIONS = 1024,
};

void server_set_progress(struct server *server, const char *stage,
			 double fraction)
{
	pthread_mutex_lock(&server->progress_lock);
	snprintf(server->stage, sizeof(server->stage), "%s", stage);
	server->progress = fmin(fmax(fraction, 0), 1);
	pthread_mutex_unlock(&server->progress_lock);
}

double server_get_progress(struct server *server, char *stage)
{
	double fraction;

	pthread_mutex_lock(&server->progress_lock);
	memcpy(stage, server->stage, sizeof(server->stage));
	fraction = server->progress;
	pthread_mutex_unlock(&server->progress_lock);
	return fraction;
}

/* The driver's thread, from inside tarn_engine_create(). */
static int on_progress(void *arg, const char *stage, double fraction)
{
	struct server *server = arg;

	server_set_progress(server, stage, fraction);
	progress_show(stage, fraction);
	return atomic_load(&server->driver.is_draining) ? -ECANCELED : 0;
}

/* The last reply is out: leave the loop. */
static void maybe_leave(struct server *server)
{
	if (server->state != SERVER_DRAINING || !server->is_driver_done)
		return;
	if (http_server_nr_calls(server->http) > 0)
		return;
	server->state = SERVER_STOPPED;
	event_base_loopbreak(server->base);
}

void server_gone(void *user, void *arg)
{
	if (user)
		exchange_end(user, true);
	maybe_leave(arg);
}

void server_done(void *user, void *arg)
{
	if (user)
		exchange_end(user, false);
	maybe_leave(arg);
}

/* ---- messages about the daemon itself -------------------------------------------- */

static void on_loaded(struct server *server)
{
	const struct tarn_engine_info *info =
		tarn_engine_info(server->driver.engine);
	char status[200];

	server->context.engine = server->driver.engine;
	server->context.info = info;
	api_template_probe(tarn_engine_template(server->driver.engine),
			   &server->context.traits);
	server->context.loaded_s = time(NULL);
	progress_end();
	server->finished_since_ns = clock_ns();
	if (server->state != SERVER_LOADING)
		return;
	server->state = SERVER_SERVING;
	log_info(
		"ready: %s (%s, %s, %.0f M parameters) on %s with %u threads, context %u, "
		"%.0f MiB of KV memory (%s, %u bytes a token), in %.0f ms",
		info->model_name, info->arch, info->quant,
		(double)info->nr_params / 1e6, info->device, info->nr_threads,
		info->ctx_tokens, (double)info->kv_limit_bytes / (1 << 20),
		info->kv_backend, info->kv_bytes_per_token,
		(double)(clock_ns() - server->start_ns) / 1e6);
	snprintf(status, sizeof(status), "READY=1\nSTATUS=serving %.100s",
		 info->model_name);
	notify_send(status);
}

static void on_fatal(struct server *server, const struct api_error *error)
{
	progress_end();
	snprintf(server->fatal, sizeof(server->fatal), "%s", error->message);
	/* Until the model is there, it is the model's fault; told to stop, it is nobody's. */
	if (server->state == SERVER_DRAINING && !server->context.info)
		server->exit_code = EXIT_CODE_OK;
	else
		server->exit_code = server->context.info ? EXIT_CODE_FAILURE :
							   EXIT_CODE_MODEL;
	if (server->exit_code != EXIT_CODE_OK)
		log_error("%s", server->fatal);
	server->is_failed = true;
	server->is_driver_done = true;
	server_stop(server, true);
}

static void take_own(struct server *server, const struct reply *reply)
{
	switch (reply->kind) {
	case REPLY_LOADED:
		on_loaded(server);
		break;
	case REPLY_FATAL:
		on_fatal(server, reply->error);
		break;
	case REPLY_DRAINED:
		server->is_driver_done = true;
		break;
	default:
		break;
	}
}

/*
 * Whoever ran was told why it ends no further: a step can last longer than any wait, so this
 * counts from there. Clients that do not even read an error are not waited for.
 */
static void maybe_give_up(struct server *server)
{
	if (!server->is_giving_up || !server->is_driver_done)
		return;
	server->is_giving_up = false;
	event_base_loopexit(server->base, &(struct timeval){ .tv_sec = 1 });
}

static void on_replies(evutil_socket_t fd, short what, void *arg)
{
	struct server *server = arg;
	struct queue_item *item = queue_take(&server->replies);

	(void)fd;
	(void)what;
	while (item) {
		struct reply *reply = (struct reply *)item;

		item = item->next;
		if (!reply->request)
			take_own(server, reply);
		else if (reply->request->exchange)
			exchange_take(reply->request->exchange, reply);
		reply_destroy(reply);
	}
	maybe_give_up(server);
	maybe_leave(server);
}

/* ---- stopping ----------------------------------------------------------------------- */

static void on_drain_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct server *server = arg;

	(void)fd;
	(void)what;
	log_warn("%u s are over: giving up what still runs",
		 server->options->drain_timeout_s);
	server->is_giving_up = true;
	server_stop(server, true);
	maybe_give_up(server);
}

void server_stop(struct server *server, bool abort)
{
	const struct timeval wait = {
		.tv_sec = server->options->drain_timeout_s
	};

	if (server->state == SERVER_STOPPED)
		return;
	if (server->state != SERVER_DRAINING) {
		server->state = SERVER_DRAINING;
		notify_send("STOPPING=1\nSTATUS=finishing what runs");
		http_server_drain(server->http);
		event_add(server->drain_timer, &wait);
	}
	preparer_drain(&server->preparer);
	driver_drain(&server->driver, abort);
	maybe_leave(server);
}

/* ---- start and end -------------------------------------------------------------------- */

static int start_threads(struct server *server)
{
	const struct options *options = server->options;
	const struct tarn_engine_options engine = {
		.model_path = options->model_path,
		.nr_threads = options->nr_threads,
		.ctx_tokens = options->ctx_tokens,
		.device = options->device,
		.kv_backend = options->kv_backend,
		.kv_bytes = options->kv_bytes,
		.pool_name = options->pool_name,
		.pool_quota_bytes = options->pool_quota_bytes,
		.no_prefix_sharing = options->no_prefix_sharing,
		.prefix_scope = options->prefix_scope,
		.precise = options->is_precise,
		.no_prefix_cache = options->no_prefix_cache,
		.allow_unknown_pre = options->allow_unknown_pre,
		.max_batch_tokens = options->max_batch_tokens,
		.progress = on_progress,
		.progress_arg = server,
	};
	int rc = driver_init(&server->driver, &engine, &server->replies,
			     &server->metrics);

	if (rc != 0)
		return rc;
	return preparer_init(&server->preparer, &server->context,
			     &server->driver, &server->replies);
}

int server_init(struct server *server, struct event_base *base,
		const struct options *options, int listen_fd)
{
	const struct http_options http = {
		.max_body_bytes = options->max_body_bytes,
		.timeout_s = options->timeout_s,
		.max_connections = MAX_CONNECTIONS,
		.max_unsent_bytes = options->max_unsent_bytes,
	};
	const struct http_handlers handlers = {
		.request = server_route,
		.gone = server_gone,
		.done = server_done,
		.arg = server,
	};
	int rc;

	*server = (struct server){ .base = base, .options = options };
	server->context.is_strict = options->is_strict;
	server->start_ns = clock_ns();
	TAILQ_INIT(&server->exchanges);
	pthread_mutex_init(&server->progress_lock, NULL);
	server_set_progress(server, "starting", 0);
	rc = queue_init(&server->replies, true);
	if (rc != 0)
		return rc;
	server->replies_event = event_new(base, server->replies.event_fd,
					  EV_READ | EV_PERSIST, on_replies,
					  server);
	server->drain_timer = evtimer_new(base, on_drain_timeout, server);
	if (!server->replies_event || !server->drain_timer ||
	    event_add(server->replies_event, NULL) != 0)
		return -ENOMEM;
	rc = http_server_create(base, listen_fd, &http, &handlers,
				&server->http);
	return rc == 0 ? start_threads(server) : rc;
}

void server_deinit(struct server *server)
{
	struct queue_item *item;

	server->state = SERVER_STOPPED;
	driver_drain(&server->driver, true);
	/* Cutting connections ends their exchanges. */
	http_server_destroy(server->http);
	preparer_deinit(&server->preparer);
	driver_deinit(&server->driver);
	for (item = queue_take(&server->replies); item;) {
		struct reply *reply = (struct reply *)item;

		item = item->next;
		reply_destroy(reply);
	}
	event_free(server->replies_event);
	event_free(server->drain_timer);
	queue_deinit(&server->replies);
	pthread_mutex_destroy(&server->progress_lock);
}
