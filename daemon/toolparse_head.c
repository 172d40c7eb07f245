/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands between an opening marker and the JSON of a call, in each
 * family's form: see toolparse.h.
 */
#include "daemon/toolparse_private.h"

/* From an opening marker to the value: a name, an id, their markers. */
enum { MAX_HEAD = 256 };

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

/* A name into the parser; @at goes behind it. */
static enum look read_name(struct toolparse *parse, size_t *at)
{
	const struct text *held = &parse->held;
	size_t len = 0;

	while (*at + len < held->len && is_name_char(held->bytes[*at + len]))
		len++;
	if (len > TOOLPARSE_NAME_BYTES)
		return LOOK_NO;
	if (*at + len == held->len)
		return LOOK_MORE;
	memcpy(parse->name, held->bytes + *at, len);
	parse->name[len] = '\0';
	*at += len;
	return len ? LOOK_YES : LOOK_NO;
}

/* name[CALL_ID]id[ARGS], the id being optional; or nothing of it. */
static enum look read_mistral_head(struct toolparse *parse, size_t *at)
{
	const struct text *held = &parse->held;
	enum look look;

	*at = skip_blank(held, *at);
	if (*at < held->len && held->bytes[*at] &&
	    strchr("[{", held->bytes[*at]))
		return LOOK_YES;
	look = read_name(parse, at);
	if (look != LOOK_YES)
		return look;
	look = look_at(held, *at, "[CALL_ID]");
	if (look == LOOK_YES) {
		*at += strlen("[CALL_ID]");
		while (*at < held->len && is_name_char(held->bytes[*at]))
			++*at;
		look = LOOK_NO;
	}
	if (look == LOOK_MORE || *at == held->len)
		return LOOK_MORE;
	look = look_at(held, *at, "[ARGS]");
	if (look == LOOK_YES)
		*at += strlen("[ARGS]");
	return look == LOOK_NO && held->bytes[*at] == '{' ? LOOK_YES : look;
}

static enum look read_function_head(struct toolparse *parse, size_t *at)
{
	const enum look look = read_name(parse, at);

	if (look != LOOK_YES)
		return look;
	return parse->held.bytes[(*at)++] == '>' ? LOOK_YES : LOOK_NO;
}

static enum look find_value(struct toolparse *parse, size_t *at)
{
	const struct text *held = &parse->held;
	enum look look = LOOK_YES;

	*at = parse->body;
	parse->name[0] = '\0';
	if (parse->format == TOOL_FORMAT_MISTRAL)
		look = read_mistral_head(parse, at);
	else if (parse->format == TOOL_FORMAT_FUNCTION)
		look = read_function_head(parse, at);
	if (look != LOOK_YES)
		return look;
	*at = skip_blank(held, *at);
	if (*at == held->len)
		return LOOK_MORE;
	/* Arguments alone are an object, calls may come in an array. */
	return held->bytes[*at] == '{' ||
			       (held->bytes[*at] == '[' && !parse->name[0]) ?
		       LOOK_YES :
		       LOOK_NO;
}

enum look toolparse_read_head(struct toolparse *parse, size_t *at)
{
	const enum look look = find_value(parse, at);
	const size_t len = look == LOOK_MORE ? parse->held.len : *at;

	return look != LOOK_NO && len - parse->body > MAX_HEAD ? LOOK_NO : look;
}
