/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking and printing: see cli_answer.h. The answer is always streamed, so that
 * the time to its first token is known; --no-stream only prints it later.
 */
#include "daemon/cli_answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/cli_reply.h"
#include "daemon/cli_signal.h"
#include "daemon/clock.h"

struct stream {
	struct cli_answer *answer;
	bool is_whole; /* print at the end */
	uint64_t start_ns, first_ns, last_ns;
	struct cli_events events;
	char error[1024]; /* the daemon's message, in the middle of a stream */
	bool is_misunderstood;
	bool is_mute; /* standard output cannot be written; it was complained of */
};

/* ---- the question -------------------------------------------------------------------- */

/* @max_tokens: 0 leaves it to the daemon. malloc'ed; NULL without memory. */
static char *question(const struct cli_options *options, json_t *messages,
		      const char *prompt, int64_t max_tokens)
{
	json_t *root = json_pack("{s:b, s:{s:b}, s:f}", "stream", 1,
				 "stream_options", "include_usage", 1,
				 "temperature", options->temperature);
	char *body;

	if (!root)
		return NULL;
	if (messages)
		json_object_set(root, "messages", messages);
	else
		json_object_set_new(root, "prompt", json_string(prompt));
	if (max_tokens)
		json_object_set_new(root, "max_tokens",
				    json_integer(max_tokens));
	if (options->top_p >= 0)
		json_object_set_new(root, "top_p", json_real(options->top_p));
	if (options->top_k >= 0)
		json_object_set_new(root, "top_k",
				    json_integer(options->top_k));
	if (options->has_seed)
		json_object_set_new(root, "seed", json_integer(options->seed));
	body = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return body;
}

/* ---- the answer ------------------------------------------------------------------------ */

static int take_text(struct stream *stream, const json_t *text)
{
	const char *bytes = json_string_value(text);
	const size_t len = json_string_length(text);
	int rc;

	if (!bytes || !len)
		return 0;
	rc = text_append(&stream->answer->text, bytes, len);
	if (rc == 0 && !stream->is_whole) {
		rc = cli_print(stdout, bytes, len);
		stream->is_mute = rc != 0;
	}
	return rc;
}

static void take_usage(struct cli_answer *answer, const json_t *usage)
{
	const json_t *details = json_object_get(usage, "prompt_tokens_details");

	answer->has_usage = true;
	answer->nr_prompt =
		json_integer_value(json_object_get(usage, "prompt_tokens"));
	answer->nr_generated =
		json_integer_value(json_object_get(usage, "completion_tokens"));
	answer->nr_cached =
		json_integer_value(json_object_get(details, "cached_tokens"));
}

static int take_choice(struct stream *stream, const json_t *choice)
{
	const json_t *delta = json_object_get(choice, "delta");
	const char *finish =
		json_string_value(json_object_get(choice, "finish_reason"));

	stream->last_ns = clock_ns();
	if (!stream->first_ns)
		stream->first_ns = stream->last_ns;
	if (finish && strcmp(finish, "length") == 0)
		stream->answer->is_cut = true;
	return take_text(stream, delta ? json_object_get(delta, "content") :
					 json_object_get(choice, "text"));
}

static int take_event(void *arg, const char *data, size_t len)
{
	struct stream *stream = arg;
	json_t *root = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
	const json_t *choice =
		json_array_get(json_object_get(root, "choices"), 0);
	const json_t *usage = json_object_get(root, "usage");
	const json_t *error = json_object_get(root, "error");
	const char *message =
		json_string_value(json_object_get(error, "message"));
	int rc = 0;

	if (!json_is_object(root)) {
		stream->is_misunderstood = true;
		rc = -EBADMSG;
	} else if (error) {
		snprintf(stream->error, sizeof(stream->error), "%s",
			 message ? message : "an error without a message");
		rc = -ECANCELED;
	} else {
		if (json_is_object(usage))
			take_usage(stream->answer, usage);
		if (choice)
			rc = take_choice(stream, choice);
	}
	json_decref(root);
	return rc;
}

static int take_bytes(void *arg, const char *bytes, size_t len)
{
	struct stream *stream = arg;

	return cli_events_push(&stream->events, bytes, len);
}

/* What came of the call, as an exit code. */
static int judge(struct cli_session *session, struct stream *stream,
		 const struct cli_http_call *call, int rc, const char *err)
{
	if (stream->is_mute)
		return cli_signal_noted() ? cli_signal_exit() : CLI_FAILURE;
	if (stream->error[0]) {
		cli_complain("%s", stream->error);
		return CLI_FAILURE;
	}
	if (stream->is_misunderstood)
		return cli_session_complain(session, call, -EBADMSG,
					    "an event that is no JSON object");
	if (rc != 0 || call->status != 200)
		return cli_session_complain(session, call, rc, err);
	/* A connection may end in good order and yet too early. */
	if (!stream->events.is_done)
		return cli_session_complain(session, call, -EPIPE, err);
	return CLI_OK;
}

/* The end of an answer is the end of a line. */
static int end_text(struct stream *stream)
{
	const struct text *text = &stream->answer->text;
	int rc = 0;

	if (stream->is_mute)
		return -EIO;
	if (stream->is_whole && text->len)
		rc = cli_print(stdout, text->bytes, text->len);
	if (rc == 0 && text->len && text->bytes[text->len - 1] != '\n')
		rc = cli_print(stdout, "\n", 1);
	return rc;
}

/* Whether the daemon refused the limit of tokens because the context is shorter. */
static bool is_too_long(const struct cli_http_call *call)
{
	json_t *root = cli_reply_json(call);
	const json_t *error = json_object_get(root, "error");
	const char *code = json_string_value(json_object_get(error, "code"));
	const bool is_it = call->status == 400 && code &&
			   strcmp(code, "context_length_exceeded") == 0;

	json_decref(root);
	return is_it;
}

int cli_ask(struct cli_session *session, const struct cli_options *options,
	    json_t *messages, const char *prompt, struct cli_answer *answer)
{
	struct stream stream = { .answer = answer,
				 .is_whole = options->is_whole,
				 .start_ns = clock_ns() };
	struct cli_http_call call = {
		.path = messages ? "/v1/chat/completions" : "/v1/completions",
		.take = take_bytes,
		.arg = &stream,
	};
	int64_t max_tokens = options->max_tokens ? options->max_tokens :
						   CLI_MAX_TOKENS;
	char err[256] = "";
	int rc = -ENOMEM, exit_code;
	bool is_again;

	*answer = (struct cli_answer){ 0 };
	stream.events.take = take_event;
	stream.events.arg = &stream;
	do {
		char *body = question(options, messages, prompt, max_tokens);

		text_deinit(&call.reply);
		if (!body)
			break;
		call.body = body;
		rc = cli_http_perform(session->http, &call, err, sizeof(err));
		free(body);
		/* Our own limit must not refuse what fits: then the context is the limit. */
		is_again = rc == 0 && max_tokens && !options->max_tokens &&
			   is_too_long(&call);
		max_tokens = 0;
	} while (is_again);
	if (stream.first_ns) {
		answer->first_s =
			(double)(stream.first_ns - stream.start_ns) / 1e9;
		answer->whole_s =
			(double)(stream.last_ns - stream.start_ns) / 1e9;
	}
	/* First the rest of the line, then a complaint on one of its own. */
	if (end_text(&stream) != 0)
		stream.is_mute = true;
	exit_code = judge(session, &stream, &call, rc, err);
	cli_events_deinit(&stream.events);
	text_deinit(&call.reply);
	return exit_code;
}

static double rate(int64_t nr, double seconds)
{
	return seconds > 0 && nr > 0 ? (double)nr / seconds : 0;
}

void cli_show_speed(const struct cli_answer *answer)
{
	const int64_t nr_computed = answer->nr_prompt - answer->nr_cached;
	char cached[48] = "", decode[48] = "";

	if (!answer->has_usage)
		return;
	if (answer->nr_cached)
		snprintf(cached, sizeof(cached), " (%lld cached)",
			 (long long)answer->nr_cached);
	/* The first token is the prompt's work. */
	if (answer->nr_generated > 1)
		snprintf(decode, sizeof(decode), ", %.1f tok/s",
			 rate(answer->nr_generated - 1,
			      answer->whole_s - answer->first_s));
	fprintf(stderr,
		"prompt: %lld tokens%s, %.1f tok/s; answer: %lld tokens%s%s; first token after "
		"%.3f s\n",
		(long long)answer->nr_prompt, cached,
		rate(nr_computed, answer->first_s),
		(long long)answer->nr_generated, decode,
		answer->is_cut ? ", cut at the limit" : "", answer->first_s);
}
