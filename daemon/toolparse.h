/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tool calls in the text of a model's answer: pieces of text go in, events
 * come out. Each family of models writes its calls in its own way; which one
 * is seen in the source of the chat template (toolparse_format).
 *
 * A call is held back until it is whole and its arguments are known to be
 * JSON; what looked like one and is none comes out as content, unchanged. What
 * comes out does not depend on where the pieces' borders lie.
 *
 * Pure: no I/O, no clock. One thread at a time.
 */
#ifndef TARN_DAEMON_TOOLPARSE_H
#define TARN_DAEMON_TOOLPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/textstream.h"

enum tool_format {
	TOOL_FORMAT_NONE, /* nothing is looked for */
	TOOL_FORMAT_HERMES, /* <tool_call>{"name", "arguments"}</tool_call>: Qwen too */
	TOOL_FORMAT_LLAMA, /* <|python_tag|> or the answer's start, {"name", "parameters"}; ... */
	TOOL_FORMAT_MISTRAL, /* [TOOL_CALLS] with [{...}, ...] or name[ARGS]{...} */
	TOOL_FORMAT_FUNCTION, /* <function=name>{...}</function> */
	TOOL_FORMAT_JSON, /* the answer's start: one object or an array of them */
	TOOL_FORMAT_UNKNOWN, /* the template has markers that are not known here */
};

/* How calls look to a model with this template. @source NULL: as of one without markers. */
enum tool_format toolparse_format(const char *source);
/* Whether a control token with this text has a meaning in the format, and must be handed in. */
bool toolparse_is_marker(enum tool_format format, const char *bytes,
			 size_t len);

enum toolparse_kind {
	TOOLPARSE_CONTENT,
	TOOLPARSE_BEGIN, /* its text is the name */
	TOOLPARSE_ARGUMENTS, /* JSON text, or a part of it */
	TOOLPARSE_END,
};

struct toolparse_event {
	enum toolparse_kind kind;
	uint32_t call; /* from 0; not of content */
	size_t at, len; /* of its bytes in the text */
};

/* What came out; the caller may set nr_events and text.len to 0 at any time. */
struct toolparse_out {
	struct text text;
	struct toolparse_event *events;
	uint32_t nr_events, size;
};

enum toolparse_state {
	TOOLPARSE_IN_TEXT,
	TOOLPARSE_IN_HEAD, /* behind an opening marker */
	TOOLPARSE_IN_VALUE, /* in the JSON of a call */
	TOOLPARSE_BEHIND, /* what closes a call may follow */
};

enum { TOOLPARSE_NAME_BYTES = 64 };

struct toolparse {
	enum tool_format format;
	const char *
		names; /* of the tools, each with its NUL, "" behind the last */
	bool only_first; /* calls after the first are dropped */
	enum toolparse_state state;
	struct text
		held; /* what is not decided yet: white space, marker, value */
	size_t body; /* in held: behind the opening marker, then the start of the value */
	size_t scanned; /* in held: the value up to here is looked at */
	uint32_t depth; /* of brackets there */
	bool is_in_string, is_escaped;
	bool is_bare; /* a value without a marker: its name has to be of a tool */
	bool is_start; /* nothing but white space so far */
	bool is_behind_call; /* white space alone may go */
	char name[TOOLPARSE_NAME_BYTES +
		  1]; /* that stood before the value, or "" */
	uint32_t nr_calls;
};

/* @names outlive the parser. */
void toolparse_init(struct toolparse *parse, enum tool_format format,
		    const char *names, bool only_first);
void toolparse_deinit(struct toolparse *parse);
void toolparse_out_deinit(struct toolparse_out *out);
/* Put text in, valid UTF-8; what is certain is appended to @out. Return: 0 or -ENOMEM. */
int toolparse_push(struct toolparse *parse, const char *bytes, size_t len,
		   struct toolparse_out *out);
/* The end of the answer: what was held comes out, as calls or as content. Return: 0 or -ENOMEM. */
int toolparse_finish(struct toolparse *parse, struct toolparse_out *out);

#endif /* TARN_DAEMON_TOOLPARSE_H */
