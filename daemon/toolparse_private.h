/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the parser of tool calls share: toolparse.c (text and
 * states), toolparse_head.c (from a marker to the value) and
 * toolparse_calls.c (the value).
 */
#ifndef TARN_DAEMON_TOOLPARSE_PRIVATE_H
#define TARN_DAEMON_TOOLPARSE_PRIVATE_H

#include <string.h>

#include "daemon/toolparse.h"

enum look { LOOK_NO, LOOK_YES, LOOK_MORE /* not decided by what is there */ };

static inline bool is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline size_t skip_blank(const struct text *held, size_t at)
{
	while (at < held->len && is_blank(held->bytes[at]))
		at++;
	return at;
}

static inline enum look look_at(const struct text *held, size_t at,
				const char *mark)
{
	const size_t len = strlen(mark), left = held->len - at;

	if (memcmp(held->bytes + at, mark, left < len ? left : len) != 0)
		return LOOK_NO;
	return left < len ? LOOK_MORE : LOOK_YES;
}

/* Append an event; content joins content before it. Return: 0 or -ENOMEM. */
int toolparse_emit(struct toolparse_out *out, enum toolparse_kind kind,
		   uint32_t call, const char *bytes, size_t len);
/*
 * The whole value that the parser's held text has from body to @end: emits its calls.
 * Return: how many; 0, nothing was emitted: these are no calls; -ENOMEM.
 */
int toolparse_read_calls(struct toolparse *parse, size_t end,
			 struct toolparse_out *out);
/*
 * What stands behind the opening marker, up to the value: a name goes into the parser. So much is
 * looked at, however the text came. @at: [out] where the value begins, for LOOK_YES.
 */
enum look toolparse_read_head(struct toolparse *parse, size_t *at);

#endif /* TARN_DAEMON_TOOLPARSE_PRIVATE_H */
