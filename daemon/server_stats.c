/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon says of itself: GET /stats, for tarn ps, and GET /metrics,
 * for Prometheus. Event thread only.
 */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/server.h"

const char *server_state_name(const struct server *server)
{
	return server->state == SERVER_LOADING ? "loading" :
	       server->state == SERVER_SERVING ? "ok" :
						 "stopping";
}

static json_t *request_stats(const struct request *request)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:f}",
			 "id", request->id, "uid",
			 (json_int_t)request->principal.uid, "gid",
			 (json_int_t)request->principal.gid, "pid",
			 (json_int_t)request->principal.pid, "state",
			 request_state_name(atomic_load(&request->state)),
			 "prompt_tokens",
			 (json_int_t)atomic_load(&request->nr_prompt_seen),
			 "cached_tokens",
			 (json_int_t)atomic_load(&request->nr_cached_seen),
			 "completion_tokens",
			 (json_int_t)atomic_load(&request->nr_generated_seen),
			 "choices", (json_int_t)request->params.nr_choices,
			 "age_s",
			 (double)(clock_ns() - request->arrive_ns) / 1e9);
}

static json_t *kv_stats(const struct server *server)
{
	const struct tarn_engine_info *info = server->context.info;
	struct tarn_engine_stat stat;

	tarn_engine_stat(server->driver.engine, &stat);
	return json_pack("{s:s, s:s?, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "backend", info->kv_backend, "pool", info->pool_name,
			 "shares_prefixes", info->shares_prefixes,
			 "limit_bytes", (json_int_t)info->kv_limit_bytes,
			 "used_bytes", (json_int_t)stat.kv_used_bytes,
			 "reserved_bytes", (json_int_t)stat.kv_reserved_bytes,
			 "cached_bytes", (json_int_t)stat.kv_cached_bytes,
			 "spare_bytes", (json_int_t)stat.kv_spare_bytes,
			 "resident_bytes", (json_int_t)stat.kv_resident_bytes,
			 "bytes_per_token",
			 (json_int_t)info->kv_bytes_per_token);
}

static json_t *totals(const struct server *server)
{
	struct tarn_engine_stat stat;

	tarn_engine_stat(server->driver.engine, &stat);
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests_finished",
		(json_int_t)server->nr_finished, "steps",
		(json_int_t)stat.nr_steps, "prompt_tokens",
		(json_int_t)stat.prompt_tokens, "generated_tokens",
		(json_int_t)stat.generated_tokens, "prefix_query_tokens",
		(json_int_t)stat.prefix_query_tokens, "prefix_hit_tokens",
		(json_int_t)stat.prefix_hit_tokens, "prefix_shared_tokens",
		(json_int_t)stat.prefix_shared_tokens);
}

/* Runs, or waits; neither: its parameters are the preparer's, or it is over. */
enum place { PLACE_NOWHERE, PLACE_WAITING, PLACE_RUNNING };

static enum place place_of(const struct exchange *exchange)
{
	const enum request_state state = atomic_load(&exchange->request->state);

	if (state == REQUEST_FINISHED || state == REQUEST_PREPARING ||
	    exchange->status >= 400)
		return PLACE_NOWHERE;
	return state == REQUEST_WAITING ? PLACE_WAITING : PLACE_RUNNING;
}

char *server_stats_json(struct server *server)
{
	const struct tarn_engine_info *info = server->context.info;
	json_t *running = json_array(), *waiting = json_array(), *root;
	struct exchange *exchange;
	char *text;

	TAILQ_FOREACH(exchange, &server->exchanges, link)
	{
		const enum place place = place_of(exchange);

		if (place != PLACE_NOWHERE)
			json_array_append_new(place == PLACE_RUNNING ? running :
								       waiting,
					      request_stats(exchange->request));
	}
	root = json_pack("{s:s, s:s?, s:I, s:f, s:I, s:o, s:o}", "status",
			 server_state_name(server), "model",
			 info ? info->model_name : NULL, "pid",
			 (json_int_t)getpid(), "uptime_s",
			 (double)(clock_ns() - server->start_ns) / 1e9,
			 "backlog", (json_int_t)atomic_load(&server->backlog),
			 "running", running, "waiting", waiting);
	if (info) {
		json_object_set_new(root, "device", json_string(info->device));
		json_object_set_new(root, "threads",
				    json_integer(info->nr_threads));
		json_object_set_new(root, "ctx_tokens",
				    json_integer(info->ctx_tokens));
		json_object_set_new(root, "kv", kv_stats(server));
		json_object_set_new(root, "totals", totals(server));
	}
	text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9)) :
		      NULL;
	json_decref(root);
	return text;
}

char *server_metrics_text(struct server *server)
{
	const struct tarn_engine_info *info = server->context.info;
	struct metrics_now now = { 0 };
	struct tarn_engine_stat stat;
	struct exchange *exchange;

	TAILQ_FOREACH(exchange, &server->exchanges, link)
	{
		const enum place place = place_of(exchange);

		now.nr_running += place == PLACE_RUNNING;
		now.nr_waiting += place == PLACE_WAITING;
	}
	if (info) {
		tarn_engine_stat(server->driver.engine, &stat);
		now.model = info->model_name;
		now.stat = &stat;
		now.kv_limit_bytes = info->kv_limit_bytes;
	}
	return metrics_text(&server->metrics, &now);
}
