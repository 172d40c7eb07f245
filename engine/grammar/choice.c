/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of several texts, written as a JSON array of strings.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "engine/grammar/ast.h"
#include "engine/grammar/grammar.h"

int choice_read(const char *text, size_t len, struct ast *ast, char *err,
		size_t errlen)
{
	json_t *list = json_loadb(text, len, JSON_ALLOW_NUL, NULL), *item;
	struct ast_node *choice;
	int rc = 0;
	size_t i;

	ast_init(ast, NULL, 0);
	ast->root = ast_rule_id(ast, "root", 4, 0);
	choice = ast_choice(ast);
	if (!json_is_array(list) || !json_array_size(list)) {
		snprintf(err, errlen,
			 "the choices must be an array of strings, not empty");
		rc = -EINVAL;
	}
	json_array_foreach(list, i, item)
	{
		if (!json_is_string(item)) {
			snprintf(err, errlen, "choice %zu is not a string", i);
			rc = -EINVAL;
			break;
		}
		ast_add(choice, ast_text(ast, json_string_value(item),
					 json_string_length(item)));
	}
	json_decref(list);
	if (!rc && ast->is_out_of_memory)
		rc = -ENOMEM;
	if (!rc)
		ast->rules[ast->root].body = choice;
	return rc;
}
