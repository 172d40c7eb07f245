/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The preparer thread: see prepare.h. It holds no state between requests.
 */
#include "daemon/prepare.h"

#include <stdlib.h>

#include "daemon/api_fields.h"
#include "daemon/api_ollama.h"
#include "daemon/log.h"

bool api_prepare(const struct api_context *context, struct request *request,
		 char **out_json, struct api_error *error)
{
	json_t *body =
		api_parse_object(request->body, request->body_len, error);
	bool is_good = false;

	*out_json = NULL;
	if (!body)
		return false;
	switch (request->kind) {
	case REQUEST_COMPLETION:
		is_good = api_read_completion(context, body, request, error) &&
			  api_check_request(context, body, request, error);
		break;
	case REQUEST_CHAT:
		is_good = api_read_chat(context, body, request, error) &&
			  api_check_request(context, body, request, error);
		break;
	case REQUEST_OLLAMA_CHAT:
	case REQUEST_OLLAMA_GENERATE:
		is_good = api_read_ollama(context, body, request, out_json,
					  error);
		break;
	case REQUEST_TOKENIZE:
		*out_json = api_tokenize(context, body, error);
		is_good = *out_json != NULL;
		break;
	case REQUEST_DETOKENIZE:
		*out_json = api_detokenize(context, body, error);
		is_good = *out_json != NULL;
		break;
	case REQUEST_APPLY_TEMPLATE:
		*out_json = api_apply_template(context, body, error);
		is_good = *out_json != NULL;
		break;
	}
	json_decref(body);
	return is_good;
}

static void post(struct preparer *preparer, struct reply *reply)
{
	if (reply)
		queue_push(preparer->replies, &reply->item);
	else
		log_error("out of memory: a reply is lost");
}

/* Reads one request and sends it on, or answers it. Takes the reference. */
static void prepare_one(struct preparer *preparer, struct request *request)
{
	struct api_error error = { 0 };
	struct reply *reply;
	char *json = NULL;

	if (request_is_cancelled(request)) {
		request_put(request);
		return;
	}
	if (atomic_load(&preparer->is_draining)) {
		api_fail(&error, 503, NULL, "shutting_down",
			 "the server is shutting down");
		error.retry_after_s = 5;
	} else if (api_prepare(preparer->context, request, &json, &error) &&
		   !json) {
		free(request->body);
		request->body = NULL;
		atomic_store(&request->nr_prompt_seen, request->nr_prompt);
		driver_submit(preparer->driver, request);
		return;
	}
	request_leave_backlog(request);
	atomic_store(&request->state, REQUEST_FINISHED);
	if (json) {
		reply = reply_create(REPLY_JSON, request);
		if (reply)
			reply->json = json;
		else
			free(json);
	} else {
		reply = reply_create_error(request, &error);
	}
	post(preparer, reply);
	request_put(request);
}

static void *preparer_main(void *arg)
{
	struct preparer *preparer = arg;
	struct queue_item *chain;

	while ((chain = queue_take_wait(&preparer->inbox)) != NULL) {
		while (chain) {
			struct request *request = (struct request *)chain;

			chain = chain->next;
			prepare_one(preparer, request);
		}
	}
	return NULL;
}

int preparer_init(struct preparer *preparer, const struct api_context *context,
		  struct driver *driver, struct queue *replies)
{
	int rc;

	*preparer = (struct preparer){
		.context = context,
		.driver = driver,
		.replies = replies,
	};
	rc = queue_init(&preparer->inbox, false);
	if (rc != 0)
		return rc;
	rc = pthread_create(&preparer->thread, NULL, preparer_main, preparer);
	if (rc != 0) {
		queue_deinit(&preparer->inbox);
		return -rc;
	}
	preparer->is_started = true;
	pthread_setname_np(preparer->thread, "tarn-prepare");
	return 0;
}

void preparer_submit(struct preparer *preparer, struct request *request)
{
	request->item.next = NULL;
	queue_push(&preparer->inbox, &request->item);
}

void preparer_drain(struct preparer *preparer)
{
	atomic_store(&preparer->is_draining, true);
}

void preparer_deinit(struct preparer *preparer)
{
	if (!preparer->is_started)
		return;
	preparer_drain(preparer);
	queue_close(&preparer->inbox);
	pthread_join(preparer->thread, NULL);
	for (struct queue_item *item = queue_take(&preparer->inbox); item;) {
		struct request *request = (struct request *)item;

		item = item->next;
		request_put(request);
	}
	queue_deinit(&preparer->inbox);
	preparer->is_started = false;
}
