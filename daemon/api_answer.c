/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of /v1/completions and /v1/chat/completions, whole and in chunks.
 * Every sampled token counts as a completion token and stands in token_ids and
 * logprobs, end tokens and those of a stop string included; the text has
 * neither.
 */
#include "daemon/api.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

const char *api_finish_name(enum finish_reason finish)
{
	return finish == FINISH_LENGTH ? "length" :
	       finish == FINISH_STOP   ? "stop" :
	       finish == FINISH_ERROR  ? "error" :
					 NULL;
}

/* A choice that stopped after calling tools says so. */
static const char *finish_name(const struct api_choice *choice,
			       enum finish_reason finish)
{
	return finish == FINISH_STOP && choice->parse.nr_calls ?
		       "tool_calls" :
		       api_finish_name(finish);
}

int api_answer_init(struct api_answer *answer,
		    const struct api_context *context,
		    const struct request *request)
{
	*answer = (struct api_answer){ .context = context, .request = request };
	answer->choices =
		calloc(request->params.nr_choices, sizeof(*answer->choices));
	for (uint32_t i = 0; answer->choices && i < request->params.nr_choices;
	     i++)
		toolparse_init(&answer->choices[i].parse,
			       request->params.tool_format,
			       request->params.tool_names,
			       request->params.only_first_call);
	return answer->choices ? 0 : -ENOMEM;
}

void api_answer_deinit(struct api_answer *answer)
{
	for (uint32_t i = 0;
	     answer->choices && i < answer->request->params.nr_choices; i++) {
		text_deinit(&answer->choices[i].text);
		json_decref(answer->choices[i].logprobs);
		json_decref(answer->choices[i].token_ids);
		json_decref(answer->choices[i].tool_calls);
		toolparse_deinit(&answer->choices[i].parse);
		toolparse_out_deinit(&answer->choices[i].events);
	}
	free(answer->choices);
	answer->choices = NULL;
}

/* The delta's tokens into the two lists, each made when it is first needed. */
static int add_tokens(struct api_answer *answer, const struct reply *delta,
		      json_t **logprobs, json_t **token_ids)
{
	const struct request *request = answer->request;
	struct api_choice *choice = &answer->choices[delta->choice];

	if (request->params.logprobs && !*logprobs)
		*logprobs = api_logprobs_new(request->kind);
	if (request->params.return_token_ids && !*token_ids)
		*token_ids = json_array();
	for (uint32_t i = 0; i < delta->nr_tokens; i++) {
		const struct reply_token *token = &delta->tokens[i];

		if (i >= delta->nr_echoed)
			choice->sum_logprob += (double)token->logprob;
		if (*token_ids && i >= delta->nr_echoed &&
		    json_array_append_new(*token_ids,
					  json_integer(token->id)) != 0)
			return -ENOMEM;
		if (*logprobs &&
		    api_logprobs_add(answer->context, request->kind, *logprobs,
				     token, &choice->nr_chars) != 0)
			return -ENOMEM;
	}
	answer->nr_completion += delta->nr_tokens - delta->nr_echoed;
	choice->nr_tokens += delta->nr_tokens - delta->nr_echoed;
	if (delta->finish != FINISH_NONE)
		choice->finish = delta->finish;
	return 0;
}

int api_answer_add(struct api_answer *answer, const struct reply *delta)
{
	struct api_choice *choice = &answer->choices[delta->choice];
	int rc = add_tokens(answer, delta, &choice->logprobs,
			    &choice->token_ids);

	if (rc == 0 && choice->parse.format == TOOL_FORMAT_NONE)
		return text_append(&choice->text, delta->text.bytes,
				   delta->text.len);
	if (rc == 0)
		rc = api_tool_events(choice, delta);
	return rc == 0 ? api_tool_collect(choice) : rc;
}

static json_t *usage_object(const struct api_answer *answer)
{
	const uint32_t nr_prompt = answer->request->nr_prompt;

	return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens",
			 (json_int_t)nr_prompt, "completion_tokens",
			 (json_int_t)answer->nr_completion, "total_tokens",
			 (json_int_t)nr_prompt + answer->nr_completion,
			 "prompt_tokens_details", "cached_tokens",
			 (json_int_t)answer->nr_cached);
}

static json_t *prompt_ids(const struct request *request)
{
	json_t *ids = json_array();

	for (uint32_t i = 0; i < request->nr_prompt; i++)
		json_array_append_new(ids, json_integer(request->prompt[i]));
	return ids;
}

static json_t *text_string(const struct text *text)
{
	return json_stringn(text->bytes ? text->bytes : "", text->len);
}

static json_t *or_null(json_t *value)
{
	return value ? json_incref(value) : json_null();
}

/* What every body starts with; @choices: taken over. */
static json_t *envelope(const struct api_answer *answer, bool is_chunk,
			json_t *choices)
{
	const struct request *request = answer->request;
	const char *object = request->kind != REQUEST_CHAT ? "text_completion" :
			     is_chunk ? "chat.completion.chunk" :
					"chat.completion";

	return json_pack(
		"{s:s, s:s, s:I, s:s, s:s, s:o}", "id", request->id, "object",
		object, "created", (json_int_t)request->created_s, "model",
		answer->context->info->model_name, "system_fingerprint",
		answer->context->info->fingerprint, "choices", choices);
}

static json_t *message_object(const struct api_choice *choice)
{
	json_t *message = json_pack("{s:s, s:o, s:n}", "role", "assistant",
				    "content",
				    choice->tool_calls && !choice->text.len ?
					    json_null() :
					    text_string(&choice->text),
				    "refusal");

	if (choice->tool_calls)
		json_object_set(message, "tool_calls", choice->tool_calls);
	return message;
}

/* @index: its number in the answer. */
static json_t *whole_choice(const struct request *request,
			    const struct api_choice *choice, uint32_t index)
{
	json_t *object = json_pack("{s:I, s:o, s:s?}", "index",
				   (json_int_t)index, "logprobs",
				   or_null(choice->logprobs), "finish_reason",
				   finish_name(choice, choice->finish));

	if (request->kind == REQUEST_CHAT)
		json_object_set_new(object, "message", message_object(choice));
	else
		json_object_set_new(object, "text", text_string(&choice->text));
	if (request->params.return_token_ids) {
		json_object_set_new(object, "token_ids",
				    choice->token_ids ?
					    json_incref(choice->token_ids) :
					    json_array());
		/* vLLM puts a completion's prompt ids in each choice. */
		if (request->kind == REQUEST_COMPLETION)
			json_object_set_new(object, "prompt_token_ids",
					    prompt_ids(request));
	}
	return object;
}

static double mean_logprob(const struct api_choice *choice)
{
	return choice->nr_tokens ? choice->sum_logprob / choice->nr_tokens :
				   -INFINITY;
}

/* The place of choice @i, best first; of equals the first is better. */
static uint32_t rank_of(const struct api_answer *answer, uint32_t i)
{
	const double own = mean_logprob(&answer->choices[i]);
	uint32_t nr_better = 0;

	for (uint32_t k = 0; k < answer->request->params.nr_choices; k++) {
		double other = mean_logprob(&answer->choices[k]);

		nr_better += other > own || (other == own && k < i);
	}
	return nr_better;
}

/* Which choice is answered at place @place: with best_of the best first. */
static const struct api_choice *choice_at(const struct api_answer *answer,
					  uint32_t place)
{
	const struct request_params *params = &answer->request->params;

	for (uint32_t i = 0;
	     params->nr_answers != params->nr_choices && i < params->nr_choices;
	     i++)
		if (rank_of(answer, i) == place)
			return &answer->choices[i];
	return &answer->choices[place];
}

char *api_answer_json(const struct api_answer *answer)
{
	const struct request *request = answer->request;
	json_t *choices = json_array(), *root;

	for (uint32_t i = 0; i < request->params.nr_answers; i++)
		json_array_append_new(choices,
				      whole_choice(request,
						   choice_at(answer, i), i));
	root = envelope(answer, false, choices);
	json_object_set_new(root, "usage", usage_object(answer));
	if (request->params.return_token_ids)
		json_object_set_new(root, "prompt_token_ids",
				    prompt_ids(request));
	return api_dump(root);
}

/* What the deltas of the chunks are of: one, but for tools. NULL without memory. */
static json_t *chunk_deltas(const struct api_choice *choice,
			    const struct reply *delta)
{
	if (choice->parse.format != TOOL_FORMAT_NONE)
		return api_tool_deltas(choice);
	return delta->text.len || !choice->is_begun ?
		       json_pack("[{s:o}]", "content",
				 text_string(&delta->text)) :
		       json_pack("[{}]");
}

/* One chunk; @content, @logprobs and @token_ids are taken over, the last two may be NULL. */
static char *chunk(const struct api_answer *answer, const struct reply *delta,
		   json_t *content, const char *finish, json_t *logprobs,
		   json_t *token_ids)
{
	const struct request *request = answer->request;
	const bool is_first = !answer->choices[delta->choice].is_begun;
	json_t *root, *object = json_pack("{s:I, s:o, s:s?}", "index",
					  (json_int_t)delta->choice, "logprobs",
					  logprobs ? logprobs : json_null(),
					  "finish_reason", finish);

	if (request->kind == REQUEST_CHAT) {
		json_object_set_new(object, "delta", content);
	} else {
		json_object_set_new(object, "text", text_string(&delta->text));
		json_decref(content);
	}
	if (token_ids)
		json_object_set_new(object, "token_ids", token_ids);
	root = envelope(answer, true, json_pack("[o]", object));
	if (is_first && request->params.return_token_ids)
		json_object_set_new(root, "prompt_token_ids",
				    prompt_ids(request));
	/* With include_usage every chunk but the last carries a null, as OpenAI's do. */
	if (request->params.include_usage)
		json_object_set_new(root, "usage", json_null());
	return api_dump(root);
}

/* The role leads; content that is not there yet is a null, as OpenAI has it. */
static json_t *first_delta(json_t *content)
{
	json_t *first = json_pack("{s:s, s:n}", "role", "assistant", "content");

	json_object_update(first, content);
	return first;
}

bool api_answer_chunks(struct api_answer *answer, const struct reply *delta,
		       bool (*send)(void *arg, char *json), void *arg)
{
	struct api_choice *choice = &answer->choices[delta->choice];
	json_t *logprobs = NULL, *token_ids = NULL, *deltas = NULL;
	const char *finish;
	bool is_good = add_tokens(answer, delta, &logprobs, &token_ids) == 0 &&
		       api_tool_events(choice, delta) == 0;

	if (is_good)
		deltas = chunk_deltas(choice, delta);
	finish = finish_name(choice, delta->finish);
	is_good = deltas != NULL;
	/* Nothing to say is said where it is the first or the last, or has tokens to show. */
	if (is_good && !json_array_size(deltas) &&
	    (!choice->is_begun || finish || logprobs || token_ids))
		json_array_append_new(deltas, json_object());
	for (size_t i = 0; is_good && i < json_array_size(deltas); i++) {
		const bool is_last = i + 1 == json_array_size(deltas);
		json_t *content = json_array_get(deltas, i);

		content = choice->is_begun ? json_incref(content) :
					     first_delta(content);
		is_good = send(arg, chunk(answer, delta, content,
					  is_last ? finish : NULL, logprobs,
					  token_ids));
		/* Tokens go with the first. */
		logprobs = NULL;
		token_ids = NULL;
		choice->is_begun = true;
	}
	json_decref(logprobs);
	json_decref(token_ids);
	json_decref(deltas);
	return is_good;
}

char *api_answer_usage_chunk(const struct api_answer *answer)
{
	json_t *root = envelope(answer, true, json_array());

	json_object_set_new(root, "usage", usage_object(answer));
	return api_dump(root);
}
