/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions: what Perl, Python and ECMAScript have in common and a finite automaton can
 * do. Groups, "|", classes, "." (not a line's end), \d \w \s (of ASCII) and their opposites,
 * escapes, "*", "+", "?", "{m,n}" (lazy ones mean the same here), "^" and "$" at the ends.
 * Refused by name: references, look-around, other anchors, possessive repetitions, flags, \p.
 */
#ifndef TARN_ENGINE_GRAMMAR_REGEX_H
#define TARN_ENGINE_GRAMMAR_REGEX_H

#include "engine/grammar/ast.h"

enum regex_use {
	REGEX_WHOLE, /* the text is what the expression matches, from begin to end */
	/*
	 * The text of a JSON string, between its quotes, in which the expression matches somewhere:
	 * characters that JSON escapes are escaped.
	 */
	REGEX_IN_JSON,
};

/**
 * regex_build - an expression as a node
 * @out: [out] NULL without memory: @ast knows.
 *
 * Return: 0; -EINVAL with line and column in @err.
 */
int regex_build(struct ast *ast, const char *text, size_t len,
		enum regex_use use, struct ast_node **out, char *err,
		size_t errlen);

/* A class of characters within a JSON string, the escaped ones included. */
struct ast_node *json_class(struct ast *ast, const struct ast_range *ranges,
			    uint32_t nr, bool is_negated);

#endif /* TARN_ENGINE_GRAMMAR_REGEX_H */
