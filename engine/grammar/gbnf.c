/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads GBNF, as llama.cpp publishes it: see grammar.h.
 *
 *	rule     = name "::=" choice
 *	choice   = sequence *( "|" sequence )
 *	sequence = *( item *( "*" / "+" / "?" / "{" m [ "," [ n ] ] "}" ) )
 *	item     = '"' text '"' / "[" [ "^" ] ranges "]" / "." / name / "(" choice ")"
 *
 * A rule ends with its line, but for lines within parentheses and behind "::=" and "|", and for a
 * next line that starts with "|". "#" starts a comment. Escapes: \n \r \t \\ \" \[ \] \xHH \uHHHH
 * \UHHHHHHHH, each a code point.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/ast.h"
#include "engine/grammar/grammar.h"
#include "engine/token/utf8.h"

enum {
	MAX_COUNT =
		1 << 20, /* of a repetition: more than positions allow anyway */
	MAX_NAME_BYTES = 256,
	MAX_REPEATS = 8, /* of one item, as in "a*?" */
};

struct reader {
	struct ast *ast;
	const char *text;
	uint32_t len, at;
	uint32_t nesting;
	char *err;
	size_t errlen;
	/* The characters of the class or text at hand. */
	struct ast_range *ranges;
	uint32_t nr_ranges, max_ranges;
	char *bytes;
	size_t nr_bytes, max_bytes;
};

#define fail_at(r, at, ...) \
	ast_fail((r)->ast, at, (r)->err, (r)->errlen, __VA_ARGS__)

static int peek(const struct reader *r)
{
	return r->at < r->len ? (unsigned char)r->text[r->at] : -1;
}

static bool is_name_char(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static void skip_space(struct reader *r, bool over_lines)
{
	for (;;) {
		int c = peek(r);

		if (c == '#') {
			while (peek(r) != -1 && peek(r) != '\n' &&
			       peek(r) != '\r')
				r->at++;
		} else if (c == ' ' || c == '\t' ||
			   (over_lines && (c == '\n' || c == '\r'))) {
			r->at++;
		} else {
			return;
		}
	}
}

/* A message about what stands at r->at, by its character. */
static int fail_here(struct reader *r, const char *wanted)
{
	unsigned int nr = utf8_char_len(r->text + r->at, r->len - r->at);

	if (r->at == r->len)
		return fail_at(r, r->at, "the grammar ends, want %s", wanted);
	if (peek(r) < ' ')
		return fail_at(r, r->at, "%s, want %s",
			       peek(r) == '\n' || peek(r) == '\r' ?
				       "the line ends" :
				       "a control character",
			       wanted);
	return fail_at(r, r->at, "unexpected '%.*s', want %s", (int)nr,
		       r->text + r->at, wanted);
}

/* ---- characters ------------------------------------------------------------------- */

static int read_hex(struct reader *r, uint32_t nr_digits, uint32_t *out)
{
	uint32_t value = 0;

	for (uint32_t i = 0; i < nr_digits; i++) {
		int c = peek(r);

		if (c >= '0' && c <= '9')
			value = value * 16 + (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			value = value * 16 + (uint32_t)((c | 32) - 'a' + 10);
		else
			return fail_here(r, "a hexadecimal digit");
		r->at++;
	}
	*out = value;
	return 0;
}

/* Behind the backslash. */
static int read_escape(struct reader *r, uint32_t *out)
{
	const uint32_t start = r->at - 1;
	int c = peek(r), rc = 0;

	r->at += c != -1;
	switch (c) {
	case 'n':
		*out = '\n';
		break;
	case 'r':
		*out = '\r';
		break;
	case 't':
		*out = '\t';
		break;
	case '\\':
	case '"':
	case '[':
	case ']':
		*out = (uint32_t)c;
		break;
	case 'x':
		rc = read_hex(r, 2, out);
		break;
	case 'u':
		rc = read_hex(r, 4, out);
		break;
	case 'U':
		rc = read_hex(r, 8, out);
		break;
	default:
		return fail_at(
			r, start,
			"unknown escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] "
			"\\xHH \\uHHHH \\UHHHHHHHH");
	}
	if (!rc && (*out > AST_MAX_CODE_POINT || (*out >> 11) == 0x1b))
		return fail_at(r, start, "U+%04X is no character", *out);
	return rc;
}

/* One character of a text or class, written out or escaped. */
static int read_char(struct reader *r, uint32_t *out)
{
	unsigned int nr = utf8_char_len(r->text + r->at, r->len - r->at);

	if (peek(r) == '\\') {
		r->at++;
		return read_escape(r, out);
	}
	*out = utf8_get(r->text + r->at, nr); /* the whole was checked */
	r->at += nr;
	return 0;
}

/* ---- items ------------------------------------------------------------------------ */

static int put_bytes(struct reader *r, uint32_t code_point)
{
	if (r->max_bytes - r->nr_bytes < UTF8_MAX_BYTES) {
		size_t max = r->max_bytes ? 2 * r->max_bytes : 64;
		char *grown = realloc(r->bytes, max);

		if (!grown)
			return -ENOMEM;
		r->bytes = grown;
		r->max_bytes = max;
	}
	r->nr_bytes += utf8_put(code_point, r->bytes + r->nr_bytes);
	return 0;
}

static int read_text(struct reader *r, struct ast_node **out)
{
	const uint32_t start = r->at++;

	r->nr_bytes = 0;
	while (peek(r) != '"') {
		uint32_t c;
		int rc;

		if (peek(r) == -1 || peek(r) == '\n' || peek(r) == '\r')
			return fail_at(r, start,
				       "the text has no closing '\"'");
		rc = read_char(r, &c);
		if (!rc)
			rc = put_bytes(r, c);
		if (rc)
			return rc;
	}
	r->at++;
	*out = ast_text(r->ast, r->nr_bytes ? r->bytes : "", r->nr_bytes);
	return 0;
}

static int put_range(struct reader *r, struct ast_range range)
{
	if (r->nr_ranges == r->max_ranges) {
		uint32_t max = r->max_ranges ? 2 * r->max_ranges : 16;
		struct ast_range *grown =
			realloc(r->ranges, max * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		r->ranges = grown;
		r->max_ranges = max;
	}
	r->ranges[r->nr_ranges++] = range;
	return 0;
}

static int read_range(struct reader *r, struct ast_range *out)
{
	const uint32_t start = r->at;
	int rc = read_char(r, &out->first);

	out->last = out->first;
	/* A '-' before the ']' is itself. */
	if (rc || peek(r) != '-' || r->at + 1 >= r->len ||
	    r->text[r->at + 1] == ']')
		return rc;
	r->at++;
	rc = read_char(r, &out->last);
	if (!rc && out->last < out->first)
		return fail_at(r, start, "the range goes backwards");
	return rc;
}

static int read_class(struct reader *r, struct ast_node **out)
{
	const uint32_t start = r->at++;
	bool is_negated = peek(r) == '^';

	r->at += is_negated;
	r->nr_ranges = 0;
	while (peek(r) != ']') {
		struct ast_range range;
		int rc;

		if (peek(r) == -1 || peek(r) == '\n' || peek(r) == '\r')
			return fail_at(r, start,
				       "the class has no closing ']'");
		rc = read_range(r, &range);
		if (!rc)
			rc = put_range(r, range);
		if (rc)
			return rc;
	}
	r->at++;
	if (!r->nr_ranges)
		return fail_at(r, start, "the class is empty");
	*out = ast_class(r->ast, r->ranges, r->nr_ranges, is_negated);
	return 0;
}

static int read_choice(struct reader *r, struct ast_node **out);

static int read_group(struct reader *r, struct ast_node **out)
{
	const uint32_t start = r->at++;
	int rc;

	if (r->nesting == GRAMMAR_MAX_NESTING)
		return fail_at(r, start,
			       "more than %d groups within one another",
			       GRAMMAR_MAX_NESTING);
	r->nesting++;
	skip_space(r, true);
	rc = read_choice(r, out);
	r->nesting--;
	if (rc)
		return rc;
	if (peek(r) == -1)
		return fail_at(r, start, "the group has no closing ')'");
	if (peek(r) != ')')
		return fail_here(r, "')'");
	r->at++;
	return 0;
}

static int read_name(struct reader *r, uint32_t *out_rule)
{
	const uint32_t start = r->at;

	while (is_name_char(peek(r)))
		r->at++;
	if (r->at == start)
		return fail_here(r, "the name of a rule");
	if (r->at - start > MAX_NAME_BYTES)
		return fail_at(r, start,
			       "the name of a rule has %u bytes, "
			       "want at most %d",
			       r->at - start, MAX_NAME_BYTES);
	*out_rule = ast_rule_id(r->ast, r->text + start, r->at - start, start);
	if (*out_rule == AST_NO_RULE && r->ast->is_out_of_memory)
		return -ENOMEM;
	if (*out_rule == AST_NO_RULE)
		return fail_at(r, start, "more than %d rules", AST_MAX_RULES);
	return 0;
}

static int read_item(struct reader *r, struct ast_node **out)
{
	static const struct ast_range any = { 0, AST_MAX_CODE_POINT };
	uint32_t rule;
	int rc;

	switch (peek(r)) {
	case '"':
		return read_text(r, out);
	case '[':
		return read_class(r, out);
	case '(':
		return read_group(r, out);
	case '.':
		r->at++;
		*out = ast_class(r->ast, &any, 1, false);
		return 0;
	default:
		rc = read_name(r, &rule);
		if (!rc)
			*out = ast_rule(r->ast, rule);
		return rc;
	}
}

/* ---- repetitions, sequences, choices, rules ----------------------------------------- */

static int read_count(struct reader *r, uint32_t *out)
{
	const uint32_t start = r->at;

	if (peek(r) < '0' || peek(r) > '9')
		return fail_here(r, "a number");
	for (*out = 0; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
		*out = *out * 10 + (uint32_t)(peek(r) - '0');
		if (*out > MAX_COUNT)
			return fail_at(r, start,
				       "a repetition of more than %d times",
				       MAX_COUNT);
	}
	skip_space(r, r->nesting > 0);
	return 0;
}

/* "{m}", "{m,}" and "{m,n}", at the brace. */
static int read_counts(struct reader *r, uint32_t *min, uint32_t *max)
{
	const uint32_t start = r->at++;
	int rc;

	skip_space(r, r->nesting > 0);
	rc = read_count(r, min);
	*max = *min;
	if (!rc && peek(r) == ',') {
		r->at++;
		skip_space(r, r->nesting > 0);
		*max = AST_UNBOUNDED;
		if (peek(r) != '}')
			rc = read_count(r, max);
	}
	if (rc)
		return rc;
	if (peek(r) != '}')
		return fail_here(r, "'}'");
	r->at++;
	if (*max < *min)
		return fail_at(r, start,
			       "at least %u times and at most %u: the range "
			       "goes backwards",
			       *min, *max);
	return 0;
}

static int read_repeats(struct reader *r, struct ast_node **node)
{
	for (uint32_t nr = 0;; nr++) {
		uint32_t min = 0, max = AST_UNBOUNDED;
		int rc = 0, c = peek(r);

		if (nr == MAX_REPEATS &&
		    (c == '{' || c == '*' || c == '+' || c == '?'))
			return fail_at(r, r->at,
				       "more than %d repetitions of one item",
				       MAX_REPEATS);
		if (c == '{') {
			rc = read_counts(r, &min, &max);
		} else if (c == '*' || c == '+' || c == '?') {
			r->at++;
			min = c == '+';
			max = c == '?' ? 1 : AST_UNBOUNDED;
		} else {
			return 0;
		}
		if (rc)
			return rc;
		*node = ast_repeat(r->ast, *node, min, max);
		skip_space(r, r->nesting > 0);
	}
}

static bool starts_item(int c)
{
	return c == '"' || c == '[' || c == '(' || c == '.' || is_name_char(c);
}

static int read_sequence(struct reader *r, struct ast_node **out)
{
	*out = ast_sequence(r->ast);
	while (starts_item(peek(r))) {
		const uint32_t start = r->at;
		struct ast_node *item = NULL;
		int rc = read_item(r, &item);

		if (rc)
			return rc;
		if (item)
			item->at = start;
		skip_space(r, r->nesting > 0);
		rc = read_repeats(r, &item);
		if (rc)
			return rc;
		ast_add(*out, item);
	}
	return 0;
}

/* Whether the choice goes on: with "|" here, or at the start of the next line with text. */
static bool goes_on(struct reader *r)
{
	const uint32_t start = r->at;

	skip_space(r, true);
	if (peek(r) == '|')
		return true;
	r->at = start;
	return false;
}

static int read_choice(struct reader *r, struct ast_node **out)
{
	const uint32_t start = r->at;

	*out = ast_choice(r->ast);
	if (*out)
		(*out)->at = start;
	do {
		struct ast_node *sequence;
		int rc;

		if (peek(r) == '|')
			r->at++;
		skip_space(r, true);
		rc = read_sequence(r, &sequence);
		if (rc)
			return rc;
		ast_add(*out, sequence);
	} while (goes_on(r));
	return 0;
}

static int read_rule(struct reader *r)
{
	const uint32_t start = r->at;
	struct ast_node *body;
	uint32_t rule;
	int rc = read_name(r, &rule);

	if (rc)
		return rc;
	if (r->ast->rules[rule].body)
		return fail_at(r, start, "the rule \"%s\" is defined twice",
			       r->ast->rules[rule].name);
	skip_space(r, false);
	if (r->len - r->at < 3 || memcmp(r->text + r->at, "::=", 3) != 0)
		return fail_here(r, "\"::=\"");
	r->at += 3;
	skip_space(r, true);
	rc = read_choice(r, &body);
	if (rc)
		return rc;
	r->ast->rules[rule].body = body;
	if (peek(r) != -1 && peek(r) != '\n' && peek(r) != '\r')
		return fail_here(r, "a part of the rule or its end");
	skip_space(r, true);
	return 0;
}

static int read_rules(struct reader *r)
{
	int rc = 0;

	skip_space(r, true);
	while (!rc && r->at < r->len)
		rc = read_rule(r);
	if (!rc && r->ast->is_out_of_memory)
		rc = -ENOMEM;
	if (rc)
		return rc;
	r->ast->root = ast_rule_find(r->ast, "root", 4);
	if (r->ast->root == AST_NO_RULE)
		return fail_at(r, r->len, "there is no rule \"root\"");
	return 0;
}

int gbnf_read(const char *text, size_t len, struct ast *ast, char *err,
	      size_t errlen)
{
	struct reader r = {
		.ast = ast, .text = text, .err = err, .errlen = errlen
	};
	size_t valid = utf8_valid_len(text, len);
	int rc;

	ast_init(ast, text, len);
	if (len > INT32_MAX)
		return ast_fail(ast, 0, err, errlen, "the grammar is too long");
	if (valid < len)
		return ast_fail(ast, (uint32_t)valid, err, errlen,
				"byte 0x%02x is not UTF-8",
				(unsigned char)text[valid]);
	r.len = (uint32_t)len;
	rc = read_rules(&r);
	free(r.ranges);
	free(r.bytes);
	return rc;
}
