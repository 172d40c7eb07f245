/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed reading of JSON fields: see api_fields.h.
 */
#include "daemon/api_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

static const char *type_name(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	default:
		return "null";
	}
}

/*
 * Nesting of the text, without parsing it: brackets outside of strings. Looked at first, so that
 * nothing that recurses ever sees a deep text.
 */
static unsigned int nesting(const char *body, size_t len)
{
	unsigned int depth = 0, deepest = 0;
	bool is_string = false;

	for (size_t i = 0; i < len; i++) {
		switch (body[i]) {
		case '\\':
			i += is_string;
			break;
		case '"':
			is_string = !is_string;
			break;
		case '[':
		case '{':
			if (!is_string && ++depth > deepest)
				deepest = depth;
			break;
		case ']':
		case '}':
			if (!is_string && depth)
				depth--;
			break;
		}
	}
	return deepest;
}

json_t *api_parse_object(const char *body, size_t len, struct api_error *error)
{
	json_error_t where;
	json_t *root;
	unsigned int depth = nesting(body, len);

	if (depth > MAX_DEPTH) {
		api_fail(
			error, 400, NULL, "invalid_json",
			"the body is nested %u levels deep; at most %d are allowed",
			depth, MAX_DEPTH);
		return NULL;
	}
	root = json_loadb(body, len,
			  JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
				  JSON_DECODE_ANY,
			  &where);
	if (!root) {
		api_fail(error, 400, NULL, "invalid_json",
			 "the body is not valid JSON: line %d, column %d: %s",
			 where.line, where.column, where.text);
		return NULL;
	}
	if (!json_is_object(root)) {
		api_fail(error, 400, NULL, "invalid_json",
			 "the body must be a JSON object, not %s",
			 type_name(root));
		json_decref(root);
		return NULL;
	}
	return root;
}

const char *api_name(const json_t *value)
{
	const char *name = json_string_value(value);

	return name && strlen(name) == json_string_length(value) ? name : NULL;
}

json_t *api_get(const json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	return json_is_null(value) ? NULL : value;
}

static bool wrong_type(struct api_error *error, const char *name,
		       const char *wanted, const json_t *value)
{
	return api_fail(error, 400, name, "invalid_type",
			"%s must be %s, not %s", name, wanted,
			type_name(value));
}

bool api_read_bool(const json_t *object, const char *name, bool *value,
		   struct api_error *error)
{
	const json_t *field = api_get(object, name);

	if (!field)
		return true;
	if (!json_is_boolean(field))
		return wrong_type(error, name, "a boolean", field);
	*value = json_is_true(field);
	return true;
}

bool api_read_int(const json_t *object, const char *name, int64_t min,
		  int64_t max, int64_t *value, struct api_error *error)
{
	const json_t *field = api_get(object, name);
	int64_t number;

	if (!field)
		return true;
	if (!json_is_integer(field))
		return wrong_type(error, name, "an integer", field);
	number = json_integer_value(field);
	if (number < min || number > max)
		return api_fail(error, 400, name, "invalid_value",
				"%s is %lld; it must be from %lld to %lld",
				name, (long long)number, (long long)min,
				(long long)max);
	*value = number;
	return true;
}

bool api_read_real(const json_t *object, const char *name, double min,
		   double max, double *value, struct api_error *error)
{
	const json_t *field = api_get(object, name);
	double number;

	if (!field)
		return true;
	if (!json_is_number(field))
		return wrong_type(error, name, "a number", field);
	number = json_number_value(field);
	if (!isfinite(number) || number < min || number > max)
		return api_fail(error, 400, name, "invalid_value",
				"%s is %g; it must be from %g to %g", name,
				number, min, max);
	*value = number;
	return true;
}

bool api_read_string(const json_t *object, const char *name, const char **value,
		     size_t *len, struct api_error *error)
{
	const json_t *field = api_get(object, name);

	if (!field)
		return true;
	if (!json_is_string(field))
		return wrong_type(error, name, "a string", field);
	*value = json_string_value(field);
	*len = json_string_length(field);
	return true;
}

bool api_read_ids(const json_t *array, const char *name, uint32_t nr_vocab,
		  int32_t **out_ids, uint32_t *out_nr, struct api_error *error)
{
	size_t nr = json_array_size(array);
	int32_t *ids = malloc(nr ? nr * sizeof(*ids) : 1);

	if (!ids || nr > UINT32_MAX) {
		free(ids);
		return api_fail(error, 500, NULL, NULL, "out of memory");
	}
	for (size_t i = 0; i < nr; i++) {
		const json_t *item = json_array_get(array, i);

		if (!json_is_integer(item)) {
			free(ids);
			return api_fail(error, 400, name, "invalid_type",
					"%s[%zu] must be a token id, not %s",
					name, i, type_name(item));
		}
		if (json_integer_value(item) < 0 ||
		    json_integer_value(item) >= nr_vocab) {
			free(ids);
			return api_fail(
				error, 400, name, "invalid_value",
				"%s[%zu] is %lld; token ids go from 0 to %u",
				name, i, (long long)json_integer_value(item),
				nr_vocab - 1);
		}
		ids[i] = (int32_t)json_integer_value(item);
	}
	*out_ids = ids;
	*out_nr = (uint32_t)nr;
	return true;
}

static bool is_listed(const char *name, const char *const *names)
{
	for (; names && *names; names++) {
		if (strcmp(*names, name) == 0)
			return true;
	}
	return false;
}

bool api_check_names(const json_t *object, const char *const *names,
		     const char *const *more, struct api_error *error)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)object, name, value)
	{
		if (!is_listed(name, names) && !is_listed(name, more))
			return api_fail(
				error, 400, name, "unknown_field",
				"unknown field %s (this server runs with --strict)",
				name);
	}
	return true;
}

bool api_check_nested(const json_t *object, const char *field,
		      const char *const *names, struct api_error *error)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)object, name, value)
	{
		if (!json_is_null(value) && !is_listed(name, names))
			return api_fail(error, 400, field, "unsupported",
					"%s.%.60s is not supported", field,
					name);
	}
	return true;
}
