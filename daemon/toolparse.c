/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds calls in text that comes in pieces: see toolparse.h. Whatever is not
 * decided stays in held; a value is scanned once, byte by byte, so that the
 * work is linear in the text whatever the model writes.
 */
#include "daemon/toolparse_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* White space that is held back at most; more is content. */
	MAX_BLANK = 64,
	/*
	 * So many bytes are taken at once: what is found moves those behind it, which must not be
	 * a whole answer for each of its markers.
	 */
	SLICE = 4096,
};

static const struct marks {
	const char *open, *close; /* or NULL */
	const char *bare; /* brackets that begin a call at the answer's start */
} all_marks[] = {
	[TOOL_FORMAT_HERMES] = { "<tool_call>", "</tool_call>", "" },
	[TOOL_FORMAT_LLAMA] = { "<|python_tag|>", NULL, "{" },
	[TOOL_FORMAT_MISTRAL] = { "[TOOL_CALLS]", NULL, "" },
	[TOOL_FORMAT_FUNCTION] = { "<function=", "</function>", "" },
	[TOOL_FORMAT_JSON] = { NULL, NULL, "{[" },
	[TOOL_FORMAT_UNKNOWN] = { NULL, NULL, "" },
};

void toolparse_init(struct toolparse *parse, enum tool_format format,
		    const char *names, bool only_first)
{
	*parse = (struct toolparse){
		.format = format,
		.names = names,
		.only_first = only_first,
		.is_start = true,
	};
}

void toolparse_deinit(struct toolparse *parse)
{
	text_deinit(&parse->held);
}

void toolparse_out_deinit(struct toolparse_out *out)
{
	text_deinit(&out->text);
	free(out->events);
	*out = (struct toolparse_out){ 0 };
}

int toolparse_emit(struct toolparse_out *out, enum toolparse_kind kind,
		   uint32_t call, const char *bytes, size_t len)
{
	struct toolparse_event *last =
		out->nr_events ? &out->events[out->nr_events - 1] : NULL;
	const size_t at = out->text.len;
	int rc;

	if (out->nr_events == out->size) {
		const uint32_t size = out->size ? out->size * 2 : 8;
		struct toolparse_event *grown =
			realloc(out->events, size * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		out->events = grown;
		out->size = size;
		last = out->nr_events ? &grown[out->nr_events - 1] : NULL;
	}
	rc = text_append(&out->text, bytes, len);
	if (rc != 0)
		return rc;
	if (kind == TOOLPARSE_CONTENT && last && last->kind == kind)
		last->len += len;
	else
		out->events[out->nr_events++] =
			(struct toolparse_event){ kind, call, at, len };
	return 0;
}

/* ---- looking at what is held ------------------------------------------------ */

/* A NUL is in every C string, but no bracket. */
static bool begins_bare(const struct marks *marks, const struct text *held,
			size_t at)
{
	return at < held->len && held->bytes[at] && held->bytes[at] &&
	       strchr(marks->bare, held->bytes[at]);
}

/* Bytes at the end of held that may become @mark. */
static size_t partial_mark(const struct text *held, const char *mark)
{
	size_t len = mark ? strlen(mark) - 1 : 0;

	if (len > held->len)
		len = held->len;
	while (len && memcmp(held->bytes + held->len - len, mark, len) != 0)
		len--;
	return len;
}

/* @end without the white space before it, as far as that is held back. */
static size_t before_blank(const struct text *held, size_t end)
{
	size_t at = end;

	while (at && end - at < MAX_BLANK && is_blank(held->bytes[at - 1]))
		at--;
	return at;
}

static void drop(struct toolparse *parse, size_t len)
{
	struct text *held = &parse->held;

	if (!len)
		return;
	memmove(held->bytes, held->bytes + len, held->len - len);
	held->len -= len;
}

/* The first @len bytes are content after all. */
static int give(struct toolparse *parse, size_t len, struct toolparse_out *out)
{
	int rc;

	if (!len)
		return 0;
	rc = toolparse_emit(out, TOOLPARSE_CONTENT, 0, parse->held.bytes, len);
	if (rc != 0)
		return rc;
	drop(parse, len);
	parse->is_start = false;
	parse->is_behind_call = false;
	return 0;
}

/* ---- the states: each returns 1 when there may be more to do, 0, or -ENOMEM ---- */

static int go_to(struct toolparse *parse, enum toolparse_state state)
{
	parse->state = state;
	return 1;
}

static int begin_value(struct toolparse *parse, size_t at, bool is_bare)
{
	parse->body = at;
	parse->scanned = at;
	parse->depth = 0;
	parse->is_in_string = false;
	parse->is_escaped = false;
	parse->is_bare = is_bare;
	if (is_bare)
		parse->name[0] = '\0';
	return go_to(parse, TOOLPARSE_IN_VALUE);
}

static int step_text(struct toolparse *parse, bool is_end,
		     struct toolparse_out *out)
{
	const struct marks *marks = &all_marks[parse->format];
	const struct text *held = &parse->held;
	const size_t start = skip_blank(held, 0);
	const char *mark = NULL;
	size_t end;
	int rc;

	if (parse->is_start && *marks->bare) {
		if (start == held->len && start <= MAX_BLANK && !is_end)
			return 0;
		if (start <= MAX_BLANK && begins_bare(marks, held, start))
			return begin_value(parse, start, true);
	}
	if (marks->open && held->len)
		mark = memmem(held->bytes, held->len, marks->open,
			      strlen(marks->open));
	if (mark) {
		end = before_blank(held, (size_t)(mark - held->bytes));
		parse->body = (size_t)(mark - held->bytes) - end +
			      strlen(marks->open);
		rc = give(parse, end, out);
		parse->is_start = false;
		return rc ? rc : go_to(parse, TOOLPARSE_IN_HEAD);
	}
	if (is_end && parse->is_behind_call && start == held->len)
		drop(parse, held->len);
	end = held->len;
	if (!is_end)
		end = before_blank(held, end - partial_mark(held, marks->open));
	return give(parse, end, out);
}

static int step_head(struct toolparse *parse, bool is_end,
		     struct toolparse_out *out)
{
	size_t at;
	const enum look look = toolparse_read_head(parse, &at);
	int rc;

	if (look == LOOK_YES)
		return begin_value(parse, at, false);
	if (look == LOOK_MORE && !is_end)
		return 0;
	rc = give(parse, parse->body, out);
	return rc ? rc : go_to(parse, TOOLPARSE_IN_TEXT);
}

/*
 * On through the value: its end is found by its brackets. Bytes that no JSON has where they stand
 * end it at once, so that a call that is broken does not swallow those behind it.
 */
static enum look scan_value(struct toolparse *parse)
{
	const struct text *held = &parse->held;

	for (; parse->scanned < held->len; parse->scanned++) {
		const char c = held->bytes[parse->scanned];

		if (parse->is_in_string) {
			if ((unsigned char)c < ' ')
				return LOOK_NO;
			if (parse->is_escaped)
				parse->is_escaped = false;
			else if (c == '\\')
				parse->is_escaped = true;
			else
				parse->is_in_string = c != '"';
			continue;
		}
		if (c == '"')
			parse->is_in_string = true;
		else if (c == '{' || c == '[')
			parse->depth++;
		else if (c == '}' || c == ']')
			parse->depth--;
		else if (!is_blank(c) &&
			 (!c || !strchr(",:-+.0123456789eEtrufalsn", c)))
			return LOOK_NO;
		if (!parse->depth) {
			parse->scanned++;
			return LOOK_YES;
		}
	}
	return LOOK_MORE;
}

static int step_value(struct toolparse *parse, bool is_end,
		      struct toolparse_out *out)
{
	const enum look look = scan_value(parse);
	int rc = 0;

	if (look == LOOK_MORE && !is_end)
		return 0;
	if (look == LOOK_YES)
		rc = toolparse_read_calls(parse, parse->scanned, out);
	if (rc > 0) {
		drop(parse, parse->scanned);
		parse->is_start = false;
		parse->is_behind_call = true;
		return go_to(parse, TOOLPARSE_BEHIND);
	}
	if (rc == 0)
		rc = give(parse, parse->scanned, out);
	return rc ? rc : go_to(parse, TOOLPARSE_IN_TEXT);
}

/* The closing marker; or, where calls need none, "; " and another. */
static int step_behind(struct toolparse *parse, bool is_end)
{
	const struct marks *marks = &all_marks[parse->format];
	const struct text *held = &parse->held;
	size_t at = skip_blank(held, 0);
	enum look look;

	if (*marks->bare && at < held->len && held->bytes[at] == ';')
		at = skip_blank(held, at + 1);
	if (at > MAX_BLANK)
		return go_to(parse, TOOLPARSE_IN_TEXT);
	if (marks->close) {
		look = look_at(held, at, marks->close);
		if (look == LOOK_MORE && !is_end)
			return 0;
		if (look == LOOK_YES)
			drop(parse, at + strlen(marks->close));
	} else if (*marks->bare) {
		if (at == held->len && !is_end)
			return 0;
		if (begins_bare(marks, held, at))
			return begin_value(parse, at, true);
	}
	return go_to(parse, TOOLPARSE_IN_TEXT);
}

static int run(struct toolparse *parse, bool is_end, struct toolparse_out *out)
{
	int rc = 1;

	while (rc > 0) {
		switch (parse->state) {
		case TOOLPARSE_IN_TEXT:
			rc = step_text(parse, is_end, out);
			break;
		case TOOLPARSE_IN_HEAD:
			rc = step_head(parse, is_end, out);
			break;
		case TOOLPARSE_IN_VALUE:
			rc = step_value(parse, is_end, out);
			break;
		case TOOLPARSE_BEHIND:
			rc = step_behind(parse, is_end);
			break;
		}
	}
	return rc;
}

int toolparse_push(struct toolparse *parse, const char *bytes, size_t len,
		   struct toolparse_out *out)
{
	int rc = 0;

	if (parse->format == TOOL_FORMAT_NONE)
		return len ? toolparse_emit(out, TOOLPARSE_CONTENT, 0, bytes,
					    len) :
			     0;
	while (rc == 0 && len) {
		const size_t slice = len < SLICE ? len : SLICE;

		rc = text_append(&parse->held, bytes, slice);
		if (rc == 0)
			rc = run(parse, false, out);
		bytes += slice;
		len -= slice;
	}
	return rc;
}

int toolparse_finish(struct toolparse *parse, struct toolparse_out *out)
{
	return parse->format == TOOL_FORMAT_NONE ? 0 : run(parse, true, out);
}
