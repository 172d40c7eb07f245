/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and replies: see request.h. Only their memory is managed here.
 */
#include "daemon/request.h"

#include <stdlib.h>

struct request *request_create(enum request_kind kind)
{
	static atomic_uint_fast64_t last_serial;
	struct request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->kind = kind;
	request->serial = atomic_fetch_add(&last_serial, 1) + 1;
	atomic_init(&request->nr_refs, 1);
	return request;
}

struct request *request_get(struct request *request)
{
	atomic_fetch_add_explicit(&request->nr_refs, 1, memory_order_relaxed);
	return request;
}

void request_put(struct request *request)
{
	if (!request)
		return;
	if (atomic_fetch_sub_explicit(&request->nr_refs, 1,
				      memory_order_acq_rel) != 1)
		return;
	request_leave_backlog(request);
	for (uint32_t i = 0; i < request->params.nr_stops; i++)
		free((char *)request->params.stops[i].bytes);
	free(request->params.biases);
	free(request->params.dry_breakers);
	free(request->params.tool_names);
	text_deinit(&request->echo_text);
	tarn_grammar_destroy(request->params.grammar);
	free(request->body);
	free(request->prompt);
	free(request);
}

void request_enter_backlog(struct request *request, atomic_uint *backlog)
{
	atomic_fetch_add(backlog, 1);
	atomic_store(&request->backlog, backlog);
}

void request_leave_backlog(struct request *request)
{
	atomic_uint *backlog = atomic_exchange(&request->backlog, NULL);

	if (backlog)
		atomic_fetch_sub(backlog, 1);
}

const char *request_state_name(enum request_state state)
{
	static const char *const names[] = {
		[REQUEST_PREPARING] = "preparing",
		[REQUEST_WAITING] = "waiting",
		[REQUEST_PROMPT] = "prompt",
		[REQUEST_DECODING] = "decoding",
		[REQUEST_FINISHED] = "finished",
	};

	return names[state];
}

struct reply *reply_create(enum reply_kind kind, struct request *request)
{
	struct reply *reply = calloc(1, sizeof(*reply));

	if (!reply)
		return NULL;
	reply->kind = kind;
	reply->request = request ? request_get(request) : NULL;
	return reply;
}

struct reply *reply_create_error(struct request *request,
				 const struct api_error *error)
{
	struct reply *reply = reply_create(REPLY_ERROR, request);

	if (!reply)
		return NULL;
	reply->error = malloc(sizeof(*error));
	if (!reply->error) {
		reply_destroy(reply);
		return NULL;
	}
	*reply->error = *error;
	return reply;
}

void reply_destroy(struct reply *reply)
{
	if (!reply)
		return;
	request_put(reply->request);
	free(reply->error);
	free(reply->json);
	text_deinit(&reply->text);
	free(reply->tokens);
	free(reply->tops);
	free(reply);
}
