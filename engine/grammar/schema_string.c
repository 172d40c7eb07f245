/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings: lengths in characters, patterns, and the formats that have a simple form. Other formats
 * are annotations. See schema.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

#define DATE                                                    \
	"[1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|" \
	"(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define TIME                                               \
	"([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?" \
	"(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"

static const struct {
	const char *name, *regex;
} formats[] = {
	{ "date", "^" DATE "$" },
	{ "time", "^" TIME "$" },
	{ "date-time", "^" DATE "T" TIME "$" },
	{ "uuid",
	  "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$" },
	{ "email", "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,2}@"
		   "([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\\.){1,4}[a-z]{2,12}$" },
	{ "ipv4", "^((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}"
		  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)$" },
};

static struct ast_node *quoted(struct schema *s, struct ast_node *content)
{
	struct ast_node *string = ast_sequence(s->ast);

	ast_add(string, ast_text(s->ast, "\"", 1));
	ast_add(string, content);
	return ast_add(string, ast_text(s->ast, "\"", 1));
}

static int build_regex(struct schema *s, const char *regex, size_t len,
		       const struct schema_path *path, struct ast_node **out)
{
	struct ast_node *content = NULL;
	char why[200] = "";
	int rc = regex_build(s->ast, regex, len, REGEX_IN_JSON, &content, why,
			     sizeof(why));

	if (rc == -EINVAL)
		return schema_fail(s, path, "%s", why);
	*out = quoted(s, content);
	return rc;
}

static const char *format_regex(const json_t *schema)
{
	const char *format =
		json_string_value(json_object_get(schema, "format"));

	for (size_t i = 0; format && i < sizeof(formats) / sizeof(formats[0]);
	     i++)
		if (strcmp(formats[i].name, format) == 0)
			return formats[i].regex;
	return NULL;
}

int schema_string(struct schema *s, const json_t *schema,
		  const struct schema_path *path, struct ast_node **out)
{
	const json_t *pattern = json_object_get(schema, "pattern");
	const char *format = format_regex(schema);
	uint32_t min = 0, max = AST_UNBOUNDED;
	const struct schema_path at = { path, pattern ? "pattern" : "format",
					0 };
	int rc = schema_count(s, schema, "minLength", path, &min);

	if (!rc)
		rc = schema_count(s, schema, "maxLength", path, &max);
	if (rc)
		return rc;
	if (max < min)
		return schema_fail(s, path,
				   "minLength %u is more than maxLength %u",
				   min, max);
	if (pattern && !json_is_string(pattern))
		return schema_fail(s, &at, "must be a string");
	if ((pattern || format) && (min || max != AST_UNBOUNDED))
		return schema_fail(s, &at,
				   "beside minLength or maxLength it is not "
				   "supported");
	if (pattern && format)
		return schema_fail(s, &at, "beside format it is not supported");
	if (pattern)
		return build_regex(s, json_string_value(pattern),
				   json_string_length(pattern), &at, out);
	if (format)
		return build_regex(s, format, strlen(format), &at, out);
	*out = min || max != AST_UNBOUNDED ?
		       quoted(s, ast_repeat(s->ast, schema_any(s, "json-char"),
					    min, max)) :
		       schema_any(s, "json-string");
	return 0;
}
