/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request for text, from its body to its last token, and the messages
 * about it that travel back to the event thread.
 *
 * It passes through three threads, each owning other fields: the event thread
 * (HTTP), the preparer (JSON, template, tokens) and the driver (the engine).
 * What one writes before it hands the request on, the next may read. The
 * request is counted; whoever drops the last reference frees it.
 */
#ifndef TARN_DAEMON_REQUEST_H
#define TARN_DAEMON_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/api_error.h"
#include "daemon/queue.h"
#include "daemon/textstream.h"
#include "daemon/toolparse.h"
#include "engine/engine.h"

struct metrics;

enum request_kind {
	REQUEST_COMPLETION,
	REQUEST_CHAT,
	REQUEST_TOKENIZE,
	REQUEST_DETOKENIZE,
	REQUEST_OLLAMA_CHAT,
	REQUEST_OLLAMA_GENERATE,
	REQUEST_APPLY_TEMPLATE,
};

enum request_state {
	REQUEST_PREPARING,
	REQUEST_WAITING, /* for memory, or for its turn */
	REQUEST_PROMPT,
	REQUEST_DECODING,
	REQUEST_FINISHED,
};

enum { REQUEST_MAX_STOPS = 16 };

/* What the client asked for: filled by the API's parsers. */
struct request_params {
	struct tarn_sampling sampling;
	struct tarn_logit_bias *biases; /* malloc'ed; sampling points to it */
	uint64_t *dry_breakers; /* likewise */
	struct tarn_grammar *grammar; /* likewise */
	uint32_t nr_choices; /* that are computed */
	uint32_t nr_answers; /* of these, the best by mean log probability are answered */
	uint32_t max_tokens; /* 0: left open */
	bool is_stream;
	bool include_usage;
	bool return_token_ids;
	bool logprobs;
	bool no_prefix_cache;
	bool echo; /* the prompt comes before the answer */
	bool is_echo_alone; /* no answer: the one token that is drawn is dropped */
	bool only_first_call; /* of the calls in an answer */
	enum tool_format tool_format; /* NONE: no calls are looked for */
	char *tool_names; /* malloc'ed, as toolparse_init() takes them; or NULL */
	struct stop_string stops[REQUEST_MAX_STOPS]; /* malloc'ed bytes */
	uint32_t nr_stops;
};

struct request {
	struct queue_item item; /* while it waits in a queue */
	atomic_int nr_refs;
	enum request_kind kind;
	uint64_t serial; /* unique in this process, from 1 */
	char id[48]; /* "chatcmpl-..." */
	struct tarn_principal principal;
	int64_t created_s; /* wall clock */
	uint64_t arrive_ns; /* monotonic */

	/* Set by the event thread, read by all: the client is gone, or was cut off. */
	atomic_bool is_cancelled;
	/* For /stats: written by whoever works on it. */
	_Atomic enum request_state state;
	_Atomic uint32_t nr_prompt_seen, nr_cached_seen, nr_generated_seen;
	/* Monotonic; 0: not yet. */
	_Atomic uint64_t scheduled_ns, first_token_ns, last_token_ns, gone_ns;
	struct metrics *metrics; /* that it counts in; NULL: none */
	/* Requests that were not let in yet, this one included; NULL once it does not count. */
	_Atomic(atomic_uint *) backlog;

	/* Event thread only: its side of the exchange; NULL once that is over. */
	struct exchange *exchange;

	/* Until prepared. */
	char *body; /* malloc'ed, NUL behind it */
	size_t body_len;

	/* From the preparer on; constant. */
	struct request_params params;
	int32_t *prompt; /* malloc'ed */
	uint32_t nr_prompt;
	struct text echo_text; /* the prompt's, with params.echo */
};

/* One reference, the caller's. NULL without memory. */
struct request *request_create(enum request_kind kind);
struct request *request_get(struct request *request);
void request_put(struct request *request);
/* Count it in @backlog until request_leave_backlog(), which may be called any number of times. */
void request_enter_backlog(struct request *request, atomic_uint *backlog);
void request_leave_backlog(struct request *request);
const char *request_state_name(enum request_state state);

static inline bool request_is_cancelled(const struct request *request)
{
	return atomic_load_explicit(&request->is_cancelled,
				    memory_order_relaxed);
}

/* ---- what comes back ----------------------------------------------------- */

enum finish_reason {
	FINISH_NONE,
	FINISH_STOP,
	FINISH_LENGTH,
	FINISH_ERROR, /* its grammar cannot go on */
};

/* One sampled token, with what the client wants to know about it. */
struct reply_token {
	int32_t id;
	float logprob; /* NaN: the first of a prompt has none */
	uint32_t nr_top;
	const struct tarn_logprob *top; /* in the reply's own array */
};

enum reply_kind {
	REPLY_ERROR, /* the last message of a request */
	REPLY_JSON, /* the last message: a whole body, for the helpers' endpoints */
	REPLY_START, /* the prompt is known and memory is kept */
	REPLY_DELTA, /* more of one choice; with finish set, its end */
	REPLY_END, /* all choices have ended: the last message */
	REPLY_LOADED, /* about the daemon, not a request: the model is there */
	REPLY_FATAL, /* likewise: it cannot go on; error says why */
	REPLY_DRAINED, /* likewise: the driver has ended, as asked */
};

/* A message to the event thread. Owns everything in it, and a reference to the request. */
struct reply {
	struct queue_item item;
	enum reply_kind kind;
	struct request *request; /* NULL for the daemon's own */
	struct api_error *error; /* malloc'ed, or NULL */
	char *json; /* malloc'ed, or NULL */
	uint32_t nr_cached;
	uint32_t choice;
	enum finish_reason finish;
	struct text text;
	struct reply_token *tokens; /* malloc'ed */
	uint32_t nr_echoed; /* so many of the first are the prompt's */
	struct tarn_logprob *tops; /* malloc'ed; the tokens point into it */
	uint32_t nr_tokens;
};

/* NULL without memory. @request may be NULL; a reference is taken. */
struct reply *reply_create(enum reply_kind kind, struct request *request);
struct reply *reply_create_error(struct request *request,
				 const struct api_error *error);
void reply_destroy(struct reply *reply);

#endif /* TARN_DAEMON_REQUEST_H */
