/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request for text, seen from its client: handed on when its body is there,
 * answered as messages come back, cancelled when the client goes. Event
 * thread only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/api_ollama.h"
#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/probes.h"
#include "daemon/schedule.h"
#include "daemon/server.h"
#include "daemon/sse.h"

static const char *kind_path(enum request_kind kind)
{
	static const char *const paths[] = {
		[REQUEST_COMPLETION] = "/v1/completions",
		[REQUEST_CHAT] = "/v1/chat/completions",
		[REQUEST_TOKENIZE] = "/tokenize",
		[REQUEST_DETOKENIZE] = "/detokenize",
		[REQUEST_OLLAMA_CHAT] = "/api/chat",
		[REQUEST_OLLAMA_GENERATE] = "/api/generate",
		[REQUEST_APPLY_TEMPLATE] = "/apply-template",
	};

	return paths[kind];
}

static bool is_ollama(const struct exchange *exchange)
{
	return api_is_ollama(exchange->request->kind);
}

static void reply_error(struct exchange *exchange,
			const struct api_error *error)
{
	exchange->status = error->status;
	if (is_ollama(exchange))
		http_reply_json(exchange->call, error->status,
				api_ollama_error(error), NULL, NULL);
	else
		http_reply_error(exchange->call, error);
}

/* Whether there is room for one more that waits; else the 503 is in @error. */
static bool check_room(struct server *server, struct api_error *error)
{
	const uint32_t nr_waiting = atomic_load(&server->backlog);
	const uint64_t span_ms =
		(clock_ns() - server->finished_since_ns) / 1000000;

	if (nr_waiting < server->options->max_queue)
		return true;
	api_fail(
		error, 503, NULL, "queue_full",
		"%u requests are waiting already, as many as this server lets wait (--queue)",
		nr_waiting);
	error->retry_after_s =
		sched_retry_after_s(nr_waiting, server->nr_finished, span_ms);
	return false;
}

static struct exchange *exchange_create(struct server *server,
					struct http_call *call,
					enum request_kind kind)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	struct request *request = request_create(kind);

	if (!exchange || !request)
		goto err_free;
	request->body = http_call_take_body(call, &request->body_len);
	if (!request->body)
		goto err_free;
	snprintf(request->id, sizeof(request->id), "%s-%.32s",
		 kind == REQUEST_CHAT ? "chatcmpl" : "cmpl",
		 http_call_id(call));
	request->principal = *http_call_peer(call);
	request->created_s = time(NULL);
	request->arrive_ns = http_call_start_ns(call);
	request->exchange = exchange;
	request->metrics = &server->metrics;
	exchange->server = server;
	exchange->call = call;
	exchange->request = request;
	return exchange;

err_free:
	request_put(request);
	free(exchange);
	return NULL;
}

void exchange_start(struct server *server, struct http_call *call,
		    enum request_kind kind)
{
	struct exchange *exchange = exchange_create(server, call, kind);
	struct api_error error;
	struct request *request;

	if (!exchange) {
		api_fail(&error, 500, NULL, NULL, "out of memory");
		http_reply_error(call, &error);
		return;
	}
	request = exchange->request;
	http_call_set_user(call, exchange);
	TAILQ_INSERT_TAIL(&server->exchanges, exchange, link);
	PROBE_REQUEST_ARRIVE(request->serial, request->principal.uid,
			     request->principal.pid, request->body_len);
	if (!check_room(server, &error)) {
		reply_error(exchange, &error);
		return;
	}
	request_enter_backlog(request, &server->backlog);
	preparer_submit(&server->preparer, request_get(request));
}

/* ---- what comes back ------------------------------------------------------------- */

static void cut(struct exchange *exchange, const char *why)
{
	log_warn("%s uid=%u pid=%d cut off: %s", exchange->request->id,
		 (unsigned int)exchange->request->principal.uid,
		 (int)exchange->request->principal.pid, why);
	http_call_cut(exchange->call);
}

static void take_start(struct exchange *exchange, const struct reply *reply)
{
	struct api_error error;

	if (api_answer_init(&exchange->answer, &exchange->server->context,
			    exchange->request) != 0) {
		atomic_store(&exchange->request->is_cancelled, true);
		api_fail(&error, 500, NULL, NULL, "out of memory");
		reply_error(exchange, &error);
		return;
	}
	exchange->answer.nr_cached = reply->nr_cached;
	if (exchange->request->params.is_stream) {
		if (is_ollama(exchange))
			ndjson_begin(exchange->call);
		else
			sse_begin(exchange->call);
		exchange->is_streaming = true;
		exchange->status = 200;
	}
}

static bool send_chunk(void *arg, char *json)
{
	return sse_send(arg, json);
}

static void take_delta(struct exchange *exchange, const struct reply *reply)
{
	if (!exchange->is_streaming) {
		if (api_answer_add(&exchange->answer, reply) != 0)
			cut(exchange, "out of memory");
		return;
	}
	if (!(is_ollama(exchange) ?
		      ndjson_send(exchange->call,
				  api_ollama_chunk(&exchange->answer, reply)) :
		      api_answer_chunks(&exchange->answer, reply, send_chunk,
					exchange->call)))
		cut(exchange, "it reads too slowly");
}

/* The last line has counts and times, streamed or not. */
static void take_ollama_end(struct exchange *exchange)
{
	char *json = api_ollama_end(&exchange->answer);

	if (!exchange->is_streaming) {
		exchange->status = 200;
		http_reply_json(exchange->call, 200, json, NULL, NULL);
	} else if (ndjson_send(exchange->call, json)) {
		http_stream_end(exchange->call);
	} else {
		cut(exchange, "it reads too slowly");
	}
}

static void take_end(struct exchange *exchange)
{
	struct server *server = exchange->server;

	server->nr_finished++;
	if (is_ollama(exchange)) {
		take_ollama_end(exchange);
		return;
	}
	if (!exchange->is_streaming) {
		exchange->status = 200;
		http_reply_json(exchange->call, 200,
				api_answer_json(&exchange->answer), NULL, NULL);
		return;
	}
	if (exchange->request->params.include_usage &&
	    !sse_send(exchange->call,
		      api_answer_usage_chunk(&exchange->answer))) {
		cut(exchange, "it reads too slowly");
		return;
	}
	sse_end(exchange->call);
}

static void take_error(struct exchange *exchange, const struct api_error *error)
{
	if (!exchange->is_streaming) {
		reply_error(exchange, error);
		return;
	}
	/* The status is out already: the error comes as an event, then the end. */
	exchange->status = error->status;
	if (is_ollama(exchange) &&
	    ndjson_send(exchange->call, api_ollama_error(error)))
		http_stream_end(exchange->call);
	else if (!is_ollama(exchange) &&
		 sse_send(exchange->call, api_error_json(error)))
		sse_end(exchange->call);
	else
		cut(exchange, "it reads too slowly");
}

void exchange_take(struct exchange *exchange, struct reply *reply)
{
	char *json;

	switch (reply->kind) {
	case REPLY_ERROR:
		take_error(exchange, reply->error);
		break;
	case REPLY_JSON:
		exchange->status = 200;
		json = reply->json;
		reply->json = NULL;
		http_reply_json(exchange->call, 200, json, NULL, NULL);
		break;
	case REPLY_START:
		take_start(exchange, reply);
		break;
	case REPLY_DELTA:
		take_delta(exchange, reply);
		break;
	case REPLY_END:
		take_end(exchange);
		break;
	default:
		break;
	}
}

/* ---- the end ------------------------------------------------------------------------ */

static void log_exchange(const struct exchange *exchange, bool is_gone)
{
	const struct request *request = exchange->request;
	const uint64_t first_ns = atomic_load(&request->first_token_ns);
	char finish[32] = "";

	if (!log_enabled(LOG_LEVEL_INFO))
		return;
	if (exchange->answer.choices &&
	    api_finish_name(exchange->answer.choices[0].finish))
		snprintf(finish, sizeof(finish), " finish=%s",
			 api_finish_name(exchange->answer.choices[0].finish));
	log_info(
		"%s %d%s uid=%u gid=%u pid=%d id=%s prompt=%u cached=%u tokens=%u ttft_ms=%.1f "
		"total_ms=%.1f%s",
		kind_path(request->kind), exchange->status,
		is_gone ? " gone" : "", (unsigned int)request->principal.uid,
		(unsigned int)request->principal.gid,
		(int)request->principal.pid, request->id,
		atomic_load(&request->nr_prompt_seen),
		atomic_load(&request->nr_cached_seen),
		atomic_load(&request->nr_generated_seen),
		first_ns ? (double)(first_ns - request->arrive_ns) / 1e6 : 0.0,
		(double)(clock_ns() - request->arrive_ns) / 1e6, finish);
}

/* Requests for text alone: the helpers' endpoints draw nothing. */
static void count_exchange(const struct exchange *exchange, bool is_gone)
{
	const struct request *request = exchange->request;
	struct metrics *metrics = &exchange->server->metrics;

	if (exchange->status >= METRICS_FIRST_STATUS)
		metrics_refuse(metrics, exchange->status);
	else if (exchange->answer.choices)
		metrics_end(metrics, request,
			    is_gone ? FINISH_NONE :
				      exchange->answer.choices[0].finish,
			    clock_ns());
	else if (is_gone && request->kind != REQUEST_TOKENIZE &&
		 request->kind != REQUEST_DETOKENIZE &&
		 request->kind != REQUEST_APPLY_TEMPLATE)
		metrics_end(metrics, request, FINISH_NONE, clock_ns());
}

void exchange_end(struct exchange *exchange, bool is_gone)
{
	struct server *server = exchange->server;

	if (is_gone) {
		atomic_store(&exchange->request->gone_ns, clock_ns());
		atomic_store(&exchange->request->is_cancelled, true);
	}
	count_exchange(exchange, is_gone);
	log_exchange(exchange, is_gone);
	exchange->request->exchange = NULL;
	if (exchange->answer.choices)
		api_answer_deinit(&exchange->answer);
	TAILQ_REMOVE(&server->exchanges, exchange, link);
	request_put(exchange->request);
	free(exchange);
}
