/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: prefixItems, then items, from minItems to maxItems of both. See schema.h.
 */
#include <errno.h>
#include <string.h>

#include "engine/grammar/schema.h"

enum { MAX_PREFIX_ITEMS = 256 };

static struct ast_node *text(struct schema *s, const char *bytes)
{
	return ast_text(s->ast, bytes, strlen(bytes));
}

/* [","] value, with white space behind each. */
static struct ast_node *element(struct schema *s, struct ast_node *value,
				bool is_first)
{
	struct ast_node *node = ast_sequence(s->ast);

	if (!is_first) {
		ast_add(node, text(s, ","));
		ast_add(node, schema_space(s));
	}
	ast_add(node, value);
	return ast_add(node, schema_space(s));
}

static uint32_t less(uint32_t count, uint32_t by)
{
	return count == AST_UNBOUNDED ? count : count > by ? count - by : 0;
}

/* Elements from place @at on, all of one rule. */
static struct ast_node *repeat(struct schema *s, uint32_t rule, uint32_t at,
			       uint32_t min, uint32_t max)
{
	struct ast_node *all = ast_sequence(s->ast);

	if (!max)
		return all;
	if (at)
		return ast_repeat(s->ast,
				  element(s, ast_rule(s->ast, rule), false),
				  min, max);
	ast_add(all, element(s, ast_rule(s->ast, rule), true));
	ast_add(all,
		ast_repeat(s->ast, element(s, ast_rule(s->ast, rule), false),
			   less(min, 1), less(max, 1)));
	return min ? all : ast_repeat(s->ast, all, 0, 1);
}

/* The elements behind the prefix. */
static int build_rest(struct schema *s, const json_t *items, uint32_t nr_prefix,
		      uint32_t min, uint32_t max,
		      const struct schema_path *path, struct ast_node **out)
{
	const struct schema_path at = { path, "items", 0 };
	struct ast_node *value = NULL;
	int rc;

	*out = ast_sequence(s->ast);
	if (json_is_false(items) && min)
		return schema_fail(s, path,
				   "minItems is more than prefixItems has");
	if (json_is_false(items) || !max || (!items && nr_prefix && !min))
		return 0;
	/* Behind a prefix nothing more than it takes, where nothing is said of it. */
	if (!items && nr_prefix)
		max = min;
	rc = schema_build(s, items ? items : json_true(), &at, &value);
	if (!rc)
		*out = repeat(s, schema_rule(s, "items", value), nr_prefix, min,
			      max);
	return rc;
}

static int build_elements(struct schema *s, const json_t *prefix,
			  const json_t *items, uint32_t min, uint32_t max,
			  const struct schema_path *path, struct ast_node **out)
{
	const struct schema_path at = { path, "prefixItems", 0 };
	uint32_t nr = (uint32_t)json_array_size(prefix);
	int rc = build_rest(s, items, nr, less(min, nr), less(max, nr), path,
			    out);

	for (uint32_t i = nr < max ? nr : max; i-- > 0 && !rc;) {
		const struct schema_path place = { &at, NULL, i };
		struct ast_node *value, *both = ast_sequence(s->ast);

		rc = schema_build(s, json_array_get(prefix, i), &place, &value);
		if (rc)
			break;
		ast_add(both, element(s, value, i == 0));
		ast_add(both, *out);
		*out = i < min ? both : ast_repeat(s->ast, both, 0, 1);
	}
	return rc;
}

int schema_array(struct schema *s, const json_t *schema,
		 const struct schema_path *path, struct ast_node **out)
{
	const json_t *items = json_object_get(schema, "items");
	const json_t *prefix = json_object_get(schema, "prefixItems");
	uint32_t min = 0, max = AST_UNBOUNDED;
	struct ast_node *elements = NULL;
	int rc = schema_count(s, schema, "minItems", path, &min);

	if (!rc)
		rc = schema_count(s, schema, "maxItems", path, &max);
	if (rc)
		return rc;
	if (max < min)
		return schema_fail(s, path,
				   "minItems %u is more than maxItems %u", min,
				   max);
	/* As items was written before 2020. */
	if (json_is_array(items)) {
		if (prefix)
			return schema_fail(
				s, path,
				"items as an array beside prefixItems");
		prefix = items;
		items = NULL;
	}
	if (prefix && (!json_is_array(prefix) ||
		       json_array_size(prefix) > MAX_PREFIX_ITEMS))
		return schema_fail(s, path,
				   "prefixItems must be an array of at most %d",
				   MAX_PREFIX_ITEMS);
	rc = build_elements(s, prefix, items, min, max, path, &elements);
	if (rc)
		return rc;
	*out = ast_sequence(s->ast);
	ast_add(*out, text(s, "["));
	ast_add(*out, schema_space(s));
	ast_add(*out, elements);
	ast_add(*out, text(s, "]"));
	return 0;
}
