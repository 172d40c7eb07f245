/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two schemas that both hold, as one: allOf, and keywords beside $ref, anyOf and oneOf. What
 * cannot be said in one is refused. See schema.h.
 */
#include <errno.h>
#include <string.h>

#include "engine/grammar/schema.h"

enum { MAX_REFS = 32 }; /* a $ref to a $ref ... */

static json_t *keep(struct schema *s, json_t *made)
{
	if (!made || json_array_append_new(s->made, made) != 0)
		return NULL;
	return made;
}

int schema_without(struct schema *s, const json_t *schema, const char *keyword,
		   const json_t **out)
{
	json_t *copy = keep(s, json_copy((json_t *)schema));

	if (!copy)
		return -ENOMEM;
	json_object_del(copy, keyword);
	*out = copy;
	return 0;
}

/* The schema itself in place of a bare $ref to it. */
static int follow(struct schema *s, const json_t *schema,
		  const struct schema_path *path, const json_t **out)
{
	for (int i = 0; i < MAX_REFS; i++) {
		const json_t *ref = json_object_get(schema, "$ref");
		const char *name = json_string_value(ref);

		*out = schema;
		if (!ref)
			return 0;
		if (json_object_size(schema) > 1)
			return schema_fail(
				s, path, "$ref with siblings cannot be merged");
		schema = name ? schema_resolve(s, name) : NULL;
		if (!schema)
			return schema_fail(s, path,
					   "$ref must be a JSON pointer into "
					   "the schema, not %.100s",
					   name ? name : "another type");
	}
	return schema_fail(s, path, "$ref leads to itself");
}

/* Properties that both declare have to be as both say. */
static int merge_properties(struct schema *s, json_t *into, const json_t *more)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)more, key, value)
	{
		json_t *old = json_object_get(into, key), *both = value;
		int failed;

		if (old && !json_equal(old, value)) {
			both = keep(s, json_pack("{s:[O,O]}", "allOf", old,
						 value));
			if (!both)
				return -ENOMEM;
		}
		failed = json_object_set(into, key, both);
		if (failed)
			return -ENOMEM;
	}
	return 0;
}

static int merge_required(json_t *into, const json_t *more)
{
	json_t *value, *old;
	size_t i, k;

	json_array_foreach((json_t *)more, i, value)
	{
		bool is_there = false;

		json_array_foreach(into, k, old)
			is_there |= json_equal(old, value);
		if (!is_there && json_array_append(into, value) != 0)
			return -ENOMEM;
	}
	return 0;
}

/* Types that both admit; a number that is an integer is one. */
static json_t *merge_types(const json_t *a, const json_t *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < (json_is_array(a) ? json_array_size(a) : 1);
	     i++) {
		const json_t *x = json_is_array(a) ? json_array_get(a, i) : a;

		for (size_t k = 0;
		     k < (json_is_array(b) ? json_array_size(b) : 1); k++) {
			const json_t *y =
				json_is_array(b) ? json_array_get(b, k) : b;
			const char *p = json_string_value(x),
				   *q = json_string_value(y);

			if (!p || !q)
				continue;
			if (!strcmp(p, q) ||
			    (!strcmp(p, "integer") && !strcmp(q, "number")))
				json_array_append(list, (json_t *)x);
			else if (!strcmp(p, "number") && !strcmp(q, "integer"))
				json_array_append(list, (json_t *)y);
		}
	}
	return list;
}

static bool is_lower_bound(const char *key)
{
	return strncmp(key, "min", 3) == 0 || !strcmp(key, "exclusiveMinimum");
}

static bool is_bound(const char *key)
{
	return is_lower_bound(key) || strncmp(key, "max", 3) == 0 ||
	       !strcmp(key, "exclusiveMaximum");
}

/* The same keyword in both, and they do not agree. */
static int merge_keyword(struct schema *s, json_t *into, const char *key,
			 json_t *value, const struct schema_path *path)
{
	json_t *old = json_object_get(into, key);
	json_t *made;

	if (!strcmp(key, "properties") && json_is_object(old) &&
	    json_is_object(value)) {
		made = keep(s, json_copy(old));
		if (!made || merge_properties(s, made, value) != 0)
			return -ENOMEM;
	} else if (!strcmp(key, "required") && json_is_array(old)) {
		made = keep(s, json_copy(old));
		if (!made || merge_required(made, value) != 0)
			return -ENOMEM;
	} else if (!strcmp(key, "type")) {
		made = keep(s, merge_types(old, value));
		if (!made)
			return -ENOMEM;
		if (!json_array_size(made))
			return schema_fail(s, path, "no type is in both");
	} else if (is_bound(key) && json_is_number(old) &&
		   json_is_number(value)) {
		bool is_more = json_number_value(value) >
			       json_number_value(old);

		made = is_more == is_lower_bound(key) ? value : old;
	} else {
		return schema_fail(s, path,
				   "%s is there twice, and cannot be merged",
				   key);
	}
	return json_object_set(into, key, made) ? -ENOMEM : 0;
}

/*
 * additionalProperties is about the properties beside it: where the other schema has some of its
 * own the two cannot be said in one.
 */
static int check_additional(struct schema *s, const json_t *a, const json_t *b,
			    const struct schema_path *path)
{
	const json_t *additional = json_object_get(a, "additionalProperties");
	const json_t *own = json_object_get(a, "properties");
	const char *key;
	json_t *value;

	if (!additional || json_is_true(additional))
		return 0;
	json_object_foreach(json_object_get(b, "properties"), key, value)
	{
		if (json_object_get(own, key))
			continue;
		return schema_fail(
			s, path,
			"additionalProperties of one part forbids \"%.60s\" of another",
			key);
	}
	return 0;
}

static bool is_annotation(const char *key)
{
	return !strcmp(key, "title") || !strcmp(key, "description") ||
	       !strcmp(key, "default") || !strcmp(key, "examples") ||
	       !strcmp(key, "example") || key[0] == '$';
}

int schema_merge(struct schema *s, const json_t *a, const json_t *b,
		 const struct schema_path *path, const json_t **out)
{
	json_t *merged, *value;
	const char *key;
	int rc;

	if (json_is_false(a) || json_is_false(b) || json_is_true(b)) {
		*out = json_is_true(b) ? a : json_is_false(a) ? a : b;
		return 0;
	}
	rc = follow(s, a, path, &a);
	if (!rc)
		rc = follow(s, b, path, &b);
	if (!rc && json_is_true(a)) {
		*out = b;
		return 0;
	}
	if (!rc && (!json_is_object(a) || !json_is_object(b)))
		return schema_fail(s, path,
				   "a schema is an object, true or false");
	if (!rc)
		rc = check_additional(s, a, b, path);
	if (!rc)
		rc = check_additional(s, b, a, path);
	if (rc)
		return rc;
	merged = keep(s, json_copy((json_t *)a));
	if (!merged)
		return -ENOMEM;
	json_object_foreach((json_t *)b, key, value)
	{
		json_t *old = json_object_get(merged, key);

		rc = 0;
		if (!old)
			rc = json_object_set(merged, key, value) ? -ENOMEM : 0;
		else if (!json_equal(old, value) && !is_annotation(key))
			rc = merge_keyword(s, merged, key, value, path);
		if (rc)
			return rc;
	}
	*out = merged;
	return 0;
}
