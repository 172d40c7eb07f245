/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which path does what. Event thread only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_ollama.h"
#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/server.h"

struct route {
	const char *path; /* one that ends in '/' takes everything below it */
	enum http_method method;
	bool needs_model;
	void (*handle)(struct server *server, struct http_call *call);
};

static void log_call(const struct http_call *call, int status)
{
	const struct tarn_principal *peer = http_call_peer(call);

	log_debug("%s %d uid=%u gid=%u pid=%d id=%s", http_call_path(call),
		  status, (unsigned int)peer->uid, (unsigned int)peer->gid,
		  (int)peer->pid, http_call_id(call));
}

/* Below /api/ clients are Ollama's and read its kind of error. */
static char *error_json(const char *path, const struct api_error *error)
{
	return strncmp(path, "/api/", strlen("/api/")) == 0 ?
		       api_ollama_error(error) :
		       api_error_json(error);
}

static void refuse(struct http_call *call, const struct api_error *error)
{
	char seconds[16];

	log_call(call, error->status);
	snprintf(seconds, sizeof(seconds), "%u", error->retry_after_s);
	http_reply_json(call, error->status,
			error_json(http_call_path(call), error),
			error->retry_after_s ? "Retry-After" : NULL, seconds);
}

static void answer(struct http_call *call, char *json)
{
	log_call(call, 200);
	http_reply_json(call, 200, json, NULL, NULL);
}

static void handle_health(struct server *server, struct http_call *call)
{
	const bool is_well = server->state == SERVER_SERVING;
	json_t *root = json_pack("{s:s}", "status", server_state_name(server));
	char stage[sizeof(server->stage)], *text;

	if (server->state == SERVER_LOADING) {
		double fraction = server_get_progress(server, stage);

		json_object_set_new(root, "stage", json_string(stage));
		json_object_set_new(root, "progress", json_real(fraction));
	}
	text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(4)) :
		      NULL;
	json_decref(root);
	log_call(call, is_well ? 200 : 503);
	http_reply_json(call, is_well ? 200 : 503, text,
			is_well ? NULL : "Retry-After", "1");
}

static void handle_version(struct server *server, struct http_call *call)
{
	answer(call, api_version_json(server->context.info ? &server->context :
							     NULL));
}

static void handle_stats(struct server *server, struct http_call *call)
{
	answer(call, server_stats_json(server));
}

static void handle_metrics(struct server *server, struct http_call *call)
{
	log_call(call, 200);
	http_reply_text(call, "text/plain; version=0.0.4; charset=utf-8",
			server_metrics_text(server));
}

static void handle_models(struct server *server, struct http_call *call)
{
	answer(call, api_models_json(&server->context));
}

static void handle_model(struct server *server, struct http_call *call)
{
	struct api_error error;
	char *json = api_model_json(
		&server->context, http_call_path(call) + strlen("/v1/models/"),
		&error);

	if (json)
		answer(call, json);
	else
		refuse(call, &error);
}

static void handle_completion(struct server *server, struct http_call *call)
{
	exchange_start(server, call, REQUEST_COMPLETION);
}

static void handle_chat(struct server *server, struct http_call *call)
{
	exchange_start(server, call, REQUEST_CHAT);
}

static void handle_tokenize(struct server *server, struct http_call *call)
{
	exchange_start(server, call, REQUEST_TOKENIZE);
}

static void handle_detokenize(struct server *server, struct http_call *call)
{
	exchange_start(server, call, REQUEST_DETOKENIZE);
}

static void handle_apply_template(struct server *server, struct http_call *call)
{
	exchange_start(server, call, REQUEST_APPLY_TEMPLATE);
}

static void handle_ollama_chat(struct server *server, struct http_call *call)
{
	exchange_start(server, call, REQUEST_OLLAMA_CHAT);
}

static void handle_ollama_generate(struct server *server,
				   struct http_call *call)
{
	exchange_start(server, call, REQUEST_OLLAMA_GENERATE);
}

static void handle_ollama_tags(struct server *server, struct http_call *call)
{
	answer(call, api_ollama_tags(&server->context));
}

static void handle_ollama_ps(struct server *server, struct http_call *call)
{
	answer(call, api_ollama_ps(&server->context));
}

static void handle_ollama_version(struct server *server, struct http_call *call)
{
	(void)server;
	answer(call, api_ollama_version());
}

static const struct route routes[] = {
	{ "/health", HTTP_GET, false, handle_health },
	{ "/version", HTTP_GET, false, handle_version },
	{ "/stats", HTTP_GET, false, handle_stats },
	{ "/metrics", HTTP_GET, false, handle_metrics },
	{ "/v1/models", HTTP_GET, true, handle_models },
	{ "/v1/models/", HTTP_GET, true, handle_model },
	{ "/v1/completions", HTTP_POST, true, handle_completion },
	{ "/v1/chat/completions", HTTP_POST, true, handle_chat },
	{ "/api/chat", HTTP_POST, true, handle_ollama_chat },
	{ "/api/generate", HTTP_POST, true, handle_ollama_generate },
	{ "/api/tags", HTTP_GET, true, handle_ollama_tags },
	{ "/api/ps", HTTP_GET, true, handle_ollama_ps },
	{ "/api/version", HTTP_GET, false, handle_ollama_version },
	{ "/tokenize", HTTP_POST, true, handle_tokenize },
	{ "/detokenize", HTTP_POST, true, handle_detokenize },
	{ "/apply-template", HTTP_POST, true, handle_apply_template },
};

static const struct route *find_route(const char *path)
{
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		size_t len = strlen(routes[i].path);

		if (strcmp(path, routes[i].path) == 0)
			return &routes[i];
		if (routes[i].path[len - 1] == '/' &&
		    strncmp(path, routes[i].path, len) == 0)
			return &routes[i];
	}
	return NULL;
}

/* Loading or stopping: the 503 that says so. */
static void unavailable(struct server *server, struct api_error *error)
{
	char stage[sizeof(server->stage)];
	double fraction = server_get_progress(server, stage);

	if (server->state == SERVER_LOADING)
		api_fail(error, 503, NULL, "loading",
			 "the model is being loaded: %s, %.0f %%", stage,
			 fraction * 100);
	else
		api_fail(error, 503, NULL, "shutting_down",
			 "the server is shutting down");
	error->retry_after_s = server->state == SERVER_LOADING ? 1 : 5;
}

void server_route(struct http_call *call, void *arg)
{
	struct server *server = arg;
	const char *path = http_call_path(call);
	const struct route *route = find_route(path);
	struct api_error error;

	if (!route) {
		api_fail(&error, 404, NULL, "not_found",
			 "there is nothing at %.200s", path);
		refuse(call, &error);
	} else if (http_call_method(call) != route->method) {
		const char *allow = route->method == HTTP_GET ? "GET, HEAD" :
								"POST";

		api_fail(&error, 405, NULL, "method_not_allowed",
			 "%.200s takes %s", path, allow);
		log_call(call, 405);
		http_reply_json(call, 405, error_json(path, &error), "Allow",
				allow);
	} else if (route->needs_model && server->state != SERVER_SERVING) {
		unavailable(server, &error);
		refuse(call, &error);
	} else {
		route->handle(server, call);
	}
}
