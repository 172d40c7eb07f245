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
	const json_t *value; /* NULL: the kind says it all */
};

struct source {
	const char *name;
	enum tarn_grammar_kind kind;
};

static const struct source body_sources[] = {
	{ "grammar", TARN_GRAMMAR_GBNF },
	{ "json_schema", TARN_GRAMMAR_JSON_SCHEMA },
	{ "guided_grammar", TARN_GRAMMAR_GBNF },
	{ "guided_regex", TARN_GRAMMAR_REGEX },
	{ "guided_choice", TARN_GRAMMAR_CHOICE },
	{ "guided_json", TARN_GRAMMAR_JSON_SCHEMA },
};

/* In structured_outputs, beside json_object. */
static const struct source nested_sources[] = {
	{ "structured_outputs.grammar", TARN_GRAMMAR_GBNF },
	{ "structured_outputs.regex", TARN_GRAMMAR_REGEX },
	{ "structured_outputs.choice", TARN_GRAMMAR_CHOICE },
	{ "structured_outputs.json", TARN_GRAMMAR_JSON_SCHEMA },
};

static const char *const nested_names[] = { "grammar", "regex",	      "choice",
					    "json",    "json_object", NULL };

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
	const json_t *object = api_get(body, "structured_outputs");
	bool any_object = false;

	if (!object)
		return true;
	if (!json_is_object(object))
		return api_fail(error, 400, "structured_outputs",
				"invalid_type",
				"structured_outputs must be an object");
	for (size_t i = 0;
	     i < sizeof(nested_sources) / sizeof(nested_sources[0]); i++) {
		const struct source *source = &nested_sources[i];
		const json_t *value =
			api_get(object, strchr(source->name, '.') + 1);

		if (value &&
		    !note(wanted, source->name, source->kind, value, error))
			return false;
	}
	if (!api_read_bool(object, "json_object", &any_object, error) ||
	    (any_object && !note(wanted, "structured_outputs.json_object",
				 TARN_GRAMMAR_JSON_OBJECT, NULL, error)))
		return false;
	/* An unknown one would change the answer: it is never passed over. */
	return api_check_nested(object, "structured_outputs", nested_names,
				error);
}

/* OpenAI's, and llama-server's with the schema beside the type. */
static bool find_format(const json_t *body, struct wanted *wanted,
			struct api_error *error)
{
	static const char *const name = "response_format";
	const json_t *format = api_get(body, name);
	const char *type = api_name(json_object_get(format, "type"));
	const json_t *outer, *schema;

	if (!format)
		return true;
	if (!type)
		return api_fail(
			error, 400, name, "invalid_type",
			"response_format must be an object with a type: \"text\", "
			"\"json_object\" or \"json_schema\"");
	if (strcmp(type, "text") == 0)
		return true;
	outer = api_get(format, "json_schema");
	schema = api_get(outer ? outer : format, "schema");
	if (strcmp(type, "json_object") == 0)
		return note(wanted, name,
			    schema ? TARN_GRAMMAR_JSON_SCHEMA :
				     TARN_GRAMMAR_JSON_OBJECT,
			    schema, error);
	if (strcmp(type, "json_schema") != 0)
		return api_fail(
			error, 400, name, "unsupported",
			"response_format of type \"%.40s\" is not supported",
			type);
	if (!schema)
		return api_fail(
			error, 400, name, "missing_field",
			"response_format.json_schema.schema is missing");
	return note(wanted, name, TARN_GRAMMAR_JSON_SCHEMA, schema, error);
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
	return find_nested(body, wanted, error) &&
	       find_format(body, wanted, error);
}

/* The text that the engine reads; *out_dump: to be freed, where it was made here. */
static bool grammar_text(const struct wanted *wanted, const char **out_text,
			 size_t *out_len, char **out_dump,
			 struct api_error *error)
{
	const bool is_schema = wanted->kind == TARN_GRAMMAR_JSON_SCHEMA;

	*out_text = "";
	*out_len = 0;
	if (!wanted->value)
		return true;
	/* A schema may come as its text, as in vLLM. */
	if (json_is_string(wanted->value) &&
	    wanted->kind != TARN_GRAMMAR_CHOICE) {
		*out_text = json_string_value(wanted->value);
		*out_len = json_string_length(wanted->value);
		return true;
	}
	if (!is_schema && wanted->kind != TARN_GRAMMAR_CHOICE)
		return api_fail(error, 400, wanted->name, "invalid_type",
				"%s must be a string", wanted->name);
	*out_dump = json_dumps(wanted->value, JSON_COMPACT | JSON_ENCODE_ANY);
	if (!*out_dump)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	*out_text = *out_dump;
	*out_len = strlen(*out_dump);
	return true;
}

bool api_make_grammar(const struct api_context *context,
		      enum tarn_grammar_kind kind, const char *text, size_t len,
		      const char *field, const char *what,
		      struct request_params *params, struct api_error *error)
{
	char reason[400] = "";
	int rc = tarn_grammar_create(context->engine, kind, text, len,
				     &params->grammar, reason, sizeof(reason));

	if (rc == -ENOMEM)
		return api_fail(error, 500, NULL, NULL, "out of memory");
	if (rc != 0)
		return api_fail(error, 400, field, "invalid_grammar", "%s: %s",
				what, reason[0] ? reason : strerror(-rc));
	params->sampling.grammar = params->grammar;
	return true;
}

bool api_read_grammar(const struct api_context *context, const json_t *body,
		      struct request_params *params, struct api_error *error)
{
	struct wanted wanted = { 0 };
	const char *text = NULL;
	char *dump = NULL;
	size_t len = 0;
	bool is_good;

	if (!find_wanted(body, &wanted, error))
		return false;
	if (!wanted.name)
		return true;
	if (!grammar_text(&wanted, &text, &len, &dump, error))
		return false;
	is_good = api_make_grammar(context, wanted.kind, text, len, wanted.name,
				   wanted.name, params, error);
	free(dump);
	return is_good;
}
