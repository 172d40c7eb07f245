/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the answer has to look like: the fields of llama-server (grammar), of vLLM (guided_*,
 * structured_outputs) and of OpenAI (response_format). A request says it once at most.
 */
#include "daemon/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"

/* A field that says it. */
struct wanted {
	const char *name; /* NULL: none was found so far */
	enum tarn_grammar_kind kind;
	const json_t *value;
};

struct source {
	const char *name;
	enum tarn_grammar_kind kind;
};

static const struct source body_sources[] = {
	{ "grammar", TARN_GRAMMAR_GBNF },
	{ "guided_grammar", TARN_GRAMMAR_GBNF },
	{ "guided_regex", TARN_GRAMMAR_REGEX },
	{ "guided_choice", TARN_GRAMMAR_CHOICE },
};

static const struct source nested_sources[] = {
	{ "grammar", TARN_GRAMMAR_GBNF },
	{ "regex", TARN_GRAMMAR_REGEX },
	{ "choice", TARN_GRAMMAR_CHOICE },
};

static const char *const nested_names[] = { "grammar", "regex", "choice",
					    NULL };

static bool note(struct wanted *wanted, const char *name,
		 enum tarn_grammar_kind kind, const json_t *value,
		 struct api_error *error)
{
	if (wanted->name)
		return api_fail(
			error, 400, name, "invalid_value",
			"%s and %s both say what the answer has to look like: give one",
			wanted->name, name);
	*wanted = (struct wanted){ name, kind, value };
	return true;
}

/* vLLM's object: its fields are those of the guided_ kind. */
static bool find_nested(const json_t *body, struct wanted *wanted,
			struct api_error *error)
{
	static const char *const full_names[] = {
		"structured_outputs.grammar",
		"structured_outputs.regex",
		"structured_outputs.choice",
	};
	const json_t *object = api_get(body, "structured_outputs");

	if (!object)
		return true;
	if (!json_is_object(object))
		return api_fail(error, 400, "structured_outputs",
				"invalid_type",
				"structured_outputs must be an object");
	for (size_t i = 0;
	     i < sizeof(nested_sources) / sizeof(nested_sources[0]); i++) {
		const json_t *value = api_get(object, nested_sources[i].name);

		if (value && !note(wanted, full_names[i],
				   nested_sources[i].kind, value, error))
			return false;
	}
	/* An unknown one would change the answer: it is never passed over. */
	return api_check_nested(object, "structured_outputs", nested_names,
				error);
}

static bool find_wanted(const json_t *body, struct wanted *wanted,
			struct api_error *error)
{
	for (size_t i = 0; i < sizeof(body_sources) / sizeof(body_sources[0]);
	     i++) {
		const json_t *value = api_get(body, body_sources[i].name);

		if (value && !note(wanted, body_sources[i].name,
				   body_sources[i].kind, value, error))
			return false;
	}
	return find_nested(body, wanted, error);
}

/* The text that the engine reads; *out_dump: to be freed, where it was made here. */
static bool grammar_text(const struct wanted *wanted, const char **out_text,
			 size_t *out_len, char **out_dump,
			 struct api_error *error)
{
	if (wanted->kind == TARN_GRAMMAR_CHOICE) {
		*out_dump = json_dumps(wanted->value,
				       JSON_COMPACT | JSON_ENCODE_ANY);
		if (!*out_dump)
			return api_fail(error, 500, NULL, NULL,
					"out of memory");
		*out_text = *out_dump;
		*out_len = strlen(*out_dump);
		return true;
	}
	if (!json_is_string(wanted->value))
		return api_fail(error, 400, wanted->name, "invalid_type",
				"%s must be a string", wanted->name);
	*out_text = json_string_value(wanted->value);
	*out_len = json_string_length(wanted->value);
	return true;
}

bool api_read_grammar(const struct api_context *context, const json_t *body,
		      struct request_params *params, struct api_error *error)
{
	struct wanted wanted = { 0 };
	char reason[400] = "", *dump = NULL;
	const char *text = NULL;
	size_t len = 0;
	int rc;

	if (!find_wanted(body, &wanted, error))
		return false;
	if (!wanted.name)
		return true;
	if (!grammar_text(&wanted, &text, &len, &dump, error))
		return false;
	rc = tarn_grammar_create(context->engine, wanted.kind, text, len,
				 &params->grammar, reason, sizeof(reason));
	free(dump);
	if (rc == -ENOMEM)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	if (rc != 0)
		return api_fail(error, 400, wanted.name, "invalid_grammar",
				"%s: %s", wanted.name,
				reason[0] ? reason : strerror(-rc));
	params->sampling.grammar = params->grammar;
	return true;
}
