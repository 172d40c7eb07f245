/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What would change the answer and is not built: its neutral value passes, any
 * other is refused. A field that was passed over in silence would give an
 * answer that its client did not ask for.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/api_fields.h"

/* Values that change nothing; null always does. */
enum neutral { NEUTRAL_NONE, NEUTRAL_EMPTY, NEUTRAL_NUMBER, NEUTRAL_BOOL };

static const struct unbuilt {
	const char *name;
	enum neutral neutral;
	double number; /* or 0 and 1 for false and true */
} unbuilt[] = {
	{ "functions", NEUTRAL_EMPTY, 0 },
	{ "stop_token_ids", NEUTRAL_EMPTY, 0 },
	{ "allowed_token_ids", NEUTRAL_EMPTY, 0 },
	{ "bad_words", NEUTRAL_EMPTY, 0 },
	{ "min_tokens", NEUTRAL_NUMBER, 0 },
	{ "include_stop_str_in_output", NEUTRAL_BOOL, 0 },
	{ "skip_special_tokens", NEUTRAL_BOOL, 1 },
	{ "truncate_prompt_tokens", NEUTRAL_NONE, 0 },
	{ "prompt_logprobs", NEUTRAL_NONE, 0 },
	{ "use_beam_search", NEUTRAL_BOOL, 0 },
	{ "length_penalty", NEUTRAL_NUMBER, 1 },
	{ "dynatemp_range", NEUTRAL_NUMBER, 0 },
};

static bool is_neutral(const struct unbuilt *field, const json_t *value)
{
	switch (field->neutral) {
	case NEUTRAL_NUMBER:
		return json_is_number(value) &&
		       json_number_value(value) == field->number;
	case NEUTRAL_BOOL:
		return json_is_boolean(value) &&
		       json_is_true(value) == (field->number != 0);
	case NEUTRAL_EMPTY:
	case NEUTRAL_NONE:
		break;
	}
	return false;
}

static bool refuse(const char *name, const json_t *value,
		   struct api_error *error)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	api_fail(error, 400, name, "unsupported",
		 "%s of %.60s is not supported", name,
		 text ? text : "this kind");
	free(text);
	return false;
}

/* An array without anything in it. */
static bool refuse_filled(const char *name, const json_t *value,
			  struct api_error *error)
{
	if (!json_is_array(value))
		return api_fail(error, 400, name, "invalid_type",
				"%s must be an array", name);
	return json_array_size(value) == 0 || refuse(name, value, error);
}

static bool check_value(const struct unbuilt *field, const json_t *value,
			struct api_error *error)
{
	if (field->neutral == NEUTRAL_EMPTY)
		return refuse_filled(field->name, value, error);
	return is_neutral(field, value) || refuse(field->name, value, error);
}

/* Texts get what the model's tokenizer adds; templates write it themselves. */
static bool check_special(const json_t *body, bool is_chat,
			  struct api_error *error)
{
	const json_t *value = api_get(body, "add_special_tokens");

	return !value ||
	       (json_is_boolean(value) && json_is_true(value) != is_chat) ||
	       refuse("add_special_tokens", value, error);
}

/* Tools of endpoints that take none. */
static bool refuse_tools(const json_t *body, struct api_error *error)
{
	const json_t *tools = api_get(body, "tools");
	const json_t *choice = api_get(body, "tool_choice");
	const char *name = api_name(choice);

	if (tools && !refuse_filled("tools", tools, error))
		return false;
	return !choice ||
	       (name &&
		(strcmp(name, "none") == 0 || strcmp(name, "auto") == 0)) ||
	       refuse("tool_choice", choice, error);
}

bool api_refuse_unbuilt(const json_t *body, enum request_kind kind,
			struct api_error *error)
{
	const bool is_chat = kind == REQUEST_CHAT;
	const json_t *value;

	for (size_t i = 0; i < sizeof(unbuilt) / sizeof(unbuilt[0]); i++) {
		value = api_get(body, unbuilt[i].name);
		if (value && !check_value(&unbuilt[i], value, error))
			return false;
	}
	if (kind == REQUEST_COMPLETION &&
	    api_get(body, "max_completion_tokens"))
		return api_fail(
			error, 400, "max_completion_tokens", "unsupported",
			"max_completion_tokens is a field of chats; of completions it is "
			"max_tokens");
	return check_special(body, is_chat, error) &&
	       (is_chat || refuse_tools(body, error));
}
