/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP API without HTTP: bodies become requests, replies become bodies.
 * Fields, defaults and limits are those of OpenAI's API, with vLLM's
 * additions; what would change the answer and is not built is refused, never
 * ignored. Everything here is pure but for the engine's text functions, which
 * may be called from any thread.
 */
#ifndef TARN_DAEMON_API_H
#define TARN_DAEMON_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/api_error.h"
#include "daemon/api_template.h"
#include "daemon/request.h"
#include "engine/engine.h"

/* What the API knows of the daemon it speaks for. Constant once the model is loaded. */
struct api_context {
	const struct tarn_engine *engine;
	const struct tarn_engine_info *info;
	struct api_template_traits traits;
	bool is_strict;
	int64_t loaded_s; /* wall clock */
};

enum {
	/* Reals are floats; nine digits give each back exactly. */
	API_JSON_FLAGS = JSON_COMPACT | JSON_REAL_PRECISION(9),
};

/* ---- bodies into requests (the preparer) ---------------------------------- */

/**
 * api_prepare - read the body of a request
 * @request: body, kind and principal are set; for completions and chat, params and prompt get set.
 * @out_json: [out] for tokenize and detokenize, the whole answer, malloc'ed; else NULL.
 *
 * Return: true, or false with @error filled.
 */
bool api_prepare(const struct api_context *context, struct request *request,
		 char **out_json, struct api_error *error);

/* The parts of it. */
bool api_read_completion(const struct api_context *context, const json_t *body,
			 struct request *request, struct api_error *error);
bool api_read_chat(const struct api_context *context, const json_t *body,
		   struct request *request, struct api_error *error);
/* Fields common to both. @known: names of the endpoint's own fields. */
bool api_read_params(const struct api_context *context, const json_t *body,
		     enum request_kind kind, const char *const *known,
		     struct request_params *params, struct api_error *error);
/* Fields that would change the answer and are not built, unless they change nothing. */
bool api_refuse_unbuilt(const json_t *body, enum request_kind kind,
			struct api_error *error);
/* How tokens are chosen; lists end up in @params, which owns them. */
bool api_read_sampling(const struct api_context *context, const json_t *body,
		       struct request_params *params, struct api_error *error);
/*
 * The tokens that break DRY's repetitions, into @params: a search of the whole vocabulary, for when
 * everything else is known to be right.
 */
bool api_find_breakers(const struct api_context *context, const json_t *body,
		       struct request_params *params, struct api_error *error);
/* What the answer has to look like; @params owns the grammar. */
bool api_read_grammar(const struct api_context *context, const json_t *body,
		      struct request_params *params, struct api_error *error);
/* @what begins the message where the text is no grammar. */
bool api_make_grammar(const struct api_context *context,
		      enum tarn_grammar_kind kind, const char *text, size_t len,
		      const char *field, const char *what,
		      struct request_params *params, struct api_error *error);
/* Of one that api_check_tools() has seen. */
const char *api_tool_name(const json_t *tool);
/* Tools of a chat and what the model may do with them. */
bool api_read_tools(const struct api_context *context, const json_t *body,
		    struct request_params *params, struct api_error *error);
/*
 * The answer is calls of @tools, or of the one named @only, with arguments after their schemas;
 * @params->tool_format is set, and @params owns the grammar.
 */
bool api_require_calls(const struct api_context *context, const json_t *tools,
		       const char *only, bool is_parallel,
		       struct request_params *params, struct api_error *error);
/* Settle max_tokens and let the engine look at the whole. */
bool api_check_request(const struct api_context *context, const json_t *body,
		       struct request *request, struct api_error *error);
bool api_check_model(const struct api_context *context, const char *name,
		     size_t len, struct api_error *error);
/* The template's input from a chat body, and the prompt's ids by it. */
bool api_chat_ids(const struct api_context *context, const json_t *body,
		  int32_t **out_ids, uint32_t *out_nr, struct api_error *error);
char *api_tokenize(const struct api_context *context, const json_t *body,
		   struct api_error *error);
char *api_detokenize(const struct api_context *context, const json_t *body,
		     struct api_error *error);
char *api_apply_template(const struct api_context *context, const json_t *body,
			 struct api_error *error);

/* ---- replies into bodies (the event thread) ------------------------------- */

/* One choice while it grows; kept by the exchange. */
struct api_choice {
	struct text text; /* not streamed: the whole; streamed: unused */
	json_t *logprobs; /* likewise: tokens so far, or NULL */
	json_t *token_ids; /* likewise */
	uint32_t nr_chars; /* characters of the tokens before, for text_offset */
	double sum_logprob; /* of its tokens, for best_of */
	uint32_t nr_tokens;
	enum finish_reason finish;
	bool is_begun; /* its first chunk is out */
	struct toolparse parse; /* where the request has tools */
	struct toolparse_out events; /* of the delta at hand */
	json_t *tool_calls; /* not streamed: the whole, or NULL */
};

struct api_answer {
	const struct api_context *context;
	const struct request *request;
	struct api_choice *choices; /* [nr_choices] */
	uint32_t nr_cached;
	uint32_t nr_completion; /* tokens of all choices */
};

/* Return: 0 or -ENOMEM. */
int api_answer_init(struct api_answer *answer,
		    const struct api_context *context,
		    const struct request *request);
void api_answer_deinit(struct api_answer *answer);
/* Take a delta in. Return: 0 or -ENOMEM. */
int api_answer_add(struct api_answer *answer, const struct reply *delta);
/* The whole body of an answer that is not streamed: malloc'ed, or NULL without memory. */
char *api_answer_json(const struct api_answer *answer);
/*
 * The chunks that a delta gives, each one JSON text, to @send, which frees it. One, of which the
 * first of a chat choice carries the role; with tools as many as there are events, or none while
 * something is held back. Return: false without memory, or what @send said if that was false.
 */
bool api_answer_chunks(struct api_answer *answer, const struct reply *delta,
		       bool (*send)(void *arg, char *json), void *arg);
/* The last chunk of a stream, likewise; malloc'ed, or NULL without memory. */
char *api_answer_usage_chunk(const struct api_answer *answer);

/* The text of a delta, and its end, into the choice's events. Return: 0 or -ENOMEM. */
int api_tool_events(struct api_choice *choice, const struct reply *delta);
/* The events into the whole: its text and its calls. Return: 0 or -ENOMEM. */
int api_tool_collect(struct api_choice *choice);
/* The events as the deltas of a stream's chunks: an array; NULL without memory. */
json_t *api_tool_deltas(const struct api_choice *choice);

const char *api_finish_name(enum finish_reason finish);

/* Log probabilities in the two shapes of OpenAI's API; tokens are appended to @into. */
json_t *api_logprobs_new(enum request_kind kind);
int api_logprobs_add(const struct api_context *context, enum request_kind kind,
		     json_t *into, const struct reply_token *token,
		     uint32_t *nr_chars);

/* The text of a body, malloc'ed; NULL for NULL and without memory. Takes the reference. */
char *api_dump(json_t *root);

/* ---- about the model -------------------------------------------------------- */

char *api_models_json(const struct api_context *context);
/* NULL with @error filled when @id is not our model. */
char *api_model_json(const struct api_context *context, const char *id,
		     struct api_error *error);
char *
api_version_json(const struct api_context *context); /* @context may be NULL */

#endif /* TARN_DAEMON_API_H */
