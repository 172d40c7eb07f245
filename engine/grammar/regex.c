/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads regular expressions: see regex.h.
 */
#include "engine/grammar/regex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/token/utf8.h"

enum {
	MAX_COUNT = 1 << 20, /* more than positions allow anyway */
	MAX_CLASS_RANGES = 1024,
};

struct reader {
	struct ast *ast;
	struct ast here; /* the expression, for messages */
	const char *text;
	uint32_t len, at, nesting;
	enum regex_use use;
	struct ast_range *ranges; /* [MAX_CLASS_RANGES] of the class at hand */
	uint32_t nr_ranges;
	char *err;
	size_t errlen;
};

#define fail_at(r, at, ...) \
	ast_fail(&(r)->here, at, (r)->err, (r)->errlen, __VA_ARGS__)

static const struct ast_range digits[] = { { '0', '9' } };
static const struct ast_range word_chars[] = {
	{ '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
};
static const struct ast_range spaces[] = { { '\t', '\r' }, { ' ', ' ' } };
static const struct ast_range line_ends[] = { { '\n', '\n' }, { '\r', '\r' } };

static int peek(const struct reader *r)
{
	return r->at < r->len ? (unsigned char)r->text[r->at] : -1;
}

static bool looking_at(const struct reader *r, const char *text)
{
	size_t len = strlen(text);

	return r->len - r->at >= len && !memcmp(r->text + r->at, text, len);
}

/* ---- characters ----------------------------------------------------------------------- */

struct ast_node *json_class(struct ast *ast, const struct ast_range *ranges,
			    uint32_t nr, bool is_negated)
{
	/* What JSON has a short escape for, and how. */
	static const char escaped[][2] = { { '"', '"' },  { '\\', '\\' },
					   { '\b', 'b' }, { '\f', 'f' },
					   { '\n', 'n' }, { '\r', 'r' },
					   { '\t', 't' } };
	static const struct ast_range never[] = { { 0, 0x1f },
						  { '"', '"' },
						  { '\\', '\\' } };
	struct ast_node *choice = ast_choice(ast);
	struct ast_node *class = ast_class(ast, ranges, nr, is_negated);
	struct ast_range *plain;
	uint32_t nr_plain = 3;

	if (!class)
		return NULL;
	plain = malloc((class->class.nr + 4) * sizeof(*plain));
	if (!plain) {
		ast->is_out_of_memory = true;
		return NULL;
	}
	/* What must be escaped, and all that is not of the class: then the opposite. */
	memcpy(plain, never, sizeof(never));
	for (uint32_t i = 0, from = 0; i <= class->class.nr; i++) {
		uint32_t to = i < class->class.nr ?
				      class->class.ranges[i].first :
				      AST_MAX_CODE_POINT + 1;

		if (to > from)
			plain[nr_plain++] = (struct ast_range){ from, to - 1 };
		if (i < class->class.nr)
			from = class->class.ranges[i].last + 1;
	}
	ast_add(choice, ast_class(ast, plain, nr_plain, true));
	free(plain);
	for (size_t i = 0; i < sizeof(escaped) / sizeof(escaped[0]); i++)
		for (uint32_t k = 0; k < class->class.nr; k++) {
			const char text[2] = { '\\', escaped[i][1] };

			if (class->class.ranges[k].first <=
				    (uint8_t)escaped[i][0] &&
			    class->class.ranges[k].last >=
				    (uint8_t)escaped[i][0])
				ast_add(choice, ast_text(ast, text, 2));
		}
	return choice;
}

static struct ast_node *class_node(struct reader *r,
				   const struct ast_range *ranges, uint32_t nr,
				   bool is_negated)
{
	return r->use == REGEX_IN_JSON ?
		       json_class(r->ast, ranges, nr, is_negated) :
		       ast_class(r->ast, ranges, nr, is_negated);
}

static int read_hex(struct reader *r, uint32_t nr_digits, uint32_t *out)
{
	const uint32_t start = r->at;
	bool is_braced = peek(r) == '{';
	uint32_t nr = 0;

	*out = 0;
	r->at += is_braced;
	for (; is_braced ? nr < 8 : nr < nr_digits; nr++, r->at++) {
		int c = peek(r);

		if (c >= '0' && c <= '9')
			*out = *out * 16 + (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			*out = *out * 16 + (uint32_t)((c | 32) - 'a' + 10);
		else
			break;
	}
	if (is_braced && nr && peek(r) == '}')
		r->at++;
	else if (is_braced || nr < nr_digits)
		return fail_at(r, start, "want %u hexadecimal digits",
			       nr_digits);
	if (*out > AST_MAX_CODE_POINT || *out >> 11 == 0x1b)
		return fail_at(r, start, "U+%04X is no character", *out);
	return 0;
}

/* What an escape stands for: a set of characters, or one. */
struct escape {
	const struct ast_range *ranges;
	uint32_t nr;
	bool is_negated;
	struct ast_range one;
};

static int refuse_escape(struct reader *r, uint32_t start, int c)
{
	if ((c >= '1' && c <= '9') || c == 'k' || c == 'g')
		return fail_at(r, start, "back references are not supported");
	if (c == 'p' || c == 'P' || c == 'X')
		return fail_at(r, start,
			       "Unicode properties (\\%c) are not supported",
			       c);
	if (c > 0 && strchr("bBAzZG", c))
		return fail_at(r, start,
			       "the anchor \\%c is not supported; ^ and $ at "
			       "the ends are",
			       c);
	if (c == -1)
		return fail_at(r, start, "the expression ends in a backslash");
	if (c < ' ' || c > '~')
		return fail_at(r, start, "unknown escape");
	return fail_at(r, start, "the escape \\%c is not supported", c);
}

/* At the backslash. */
static int read_escape(struct reader *r, bool in_class, struct escape *out)
{
	static const char controls[] = "n\nr\rt\tf\fv\va\ae\x1b";
	const uint32_t start = r->at++;
	const int c = peek(r);
	uint32_t code = 0;

	*out = (struct escape){ 0 };
	r->at += c != -1;
	switch (c) {
	case 'd':
	case 'D':
		*out = (struct escape){ digits, 1, c == 'D', { 0 } };
		return 0;
	case 'w':
	case 'W':
		*out = (struct escape){ word_chars, 4, c == 'W', { 0 } };
		return 0;
	case 's':
	case 'S':
		*out = (struct escape){ spaces, 2, c == 'S', { 0 } };
		return 0;
	case 'x':
	case 'u':
		if (read_hex(r, c == 'x' ? 2 : 4, &code) != 0)
			return -EINVAL;
		break;
	case '0':
		if (peek(r) >= '0' && peek(r) <= '7')
			return refuse_escape(r, start, c);
		break;
	case 'b':
		if (!in_class)
			return refuse_escape(r, start, c);
		code = '\b';
		break;
	default:
		code = (uint32_t)c;
		for (size_t i = 0; i + 1 < sizeof(controls); i += 2)
			if (c == controls[i])
				code = (uint8_t)controls[i + 1];
		if (code == (uint32_t)c &&
		    (c < '!' || c > '~' || (c >= '0' && c <= '9') ||
		     ((c | 32) >= 'a' && (c | 32) <= 'z')))
			return refuse_escape(r, start, c);
	}
	out->one = (struct ast_range){ code, code };
	out->ranges = &out->one;
	out->nr = 1;
	return 0;
}

/* ---- classes -------------------------------------------------------------------------- */

static int put_range(struct reader *r, uint32_t first, uint32_t last)
{
	if (r->nr_ranges == MAX_CLASS_RANGES)
		return fail_at(r, r->at, "a class of more than %d parts",
			       MAX_CLASS_RANGES);
	r->ranges[r->nr_ranges++] = (struct ast_range){ first, last };
	return 0;
}

/* The opposite of a set, within a class. */
static int put_escape(struct reader *r, const struct escape *e)
{
	uint32_t from = 0;
	int rc = 0;

	for (uint32_t i = 0; i < e->nr && !rc; i++) {
		if (!e->is_negated)
			rc = put_range(r, e->ranges[i].first,
				       e->ranges[i].last);
		else if (e->ranges[i].first > from)
			rc = put_range(r, from, e->ranges[i].first - 1);
		from = e->ranges[i].last + 1;
	}
	return rc || !e->is_negated ? rc :
				      put_range(r, from, AST_MAX_CODE_POINT);
}

/* One character, or a set; *out_is_set says which. */
static int read_class_char(struct reader *r, struct escape *out)
{
	unsigned int nr = utf8_char_len(r->text + r->at, r->len - r->at);
	uint32_t code;

	if (peek(r) == '\\')
		return read_escape(r, true, out);
	if (peek(r) == '[' && r->at + 1 < r->len && r->text[r->at + 1] &&
	    strchr(":.=", r->text[r->at + 1]))
		return fail_at(r, r->at, "POSIX classes are not supported");
	code = utf8_get(r->text + r->at, nr);
	r->at += nr;
	*out = (struct escape){ NULL, 1, false, { code, code } };
	return 0;
}

static bool is_set(const struct escape *e)
{
	return e->ranges == digits || e->ranges == word_chars ||
	       e->ranges == spaces;
}

static int read_class_part(struct reader *r)
{
	const uint32_t start = r->at;
	struct escape first, last;
	int rc = read_class_char(r, &first);

	if (rc)
		return rc;
	if (is_set(&first))
		return put_escape(r, &first);
	if (peek(r) != '-' || r->at + 1 >= r->len || r->text[r->at + 1] == ']')
		return put_range(r, first.one.first, first.one.last);
	r->at++;
	rc = read_class_char(r, &last);
	if (rc)
		return rc;
	if (is_set(&last))
		return fail_at(r, start, "a range that ends in a class");
	if (last.one.first < first.one.first)
		return fail_at(r, start, "the range goes backwards");
	return put_range(r, first.one.first, last.one.first);
}

static int read_class(struct reader *r, struct ast_node **out)
{
	const uint32_t start = r->at++;
	bool is_negated = peek(r) == '^';

	r->at += is_negated;
	r->nr_ranges = 0;
	if (peek(r) == ']')
		return fail_at(r, start,
			       "the class is empty; write \\] for "
			       "the bracket");
	while (peek(r) != ']') {
		int rc;

		if (peek(r) == -1)
			return fail_at(r, start,
				       "the class has no closing ']'");
		rc = read_class_part(r);
		if (rc)
			return rc;
	}
	r->at++;
	*out = class_node(r, r->ranges, r->nr_ranges, is_negated);
	return 0;
}

/* ---- groups, repetitions, sequences ------------------------------------------------------ */

static int read_choice(struct reader *r, struct ast_node **out);

/* Behind the "(": what kind of group it is. */
static int read_group_head(struct reader *r, uint32_t start)
{
	static const struct {
		const char *head, *name;
	} refused[] = {
		{ "?=", "look-ahead is" },	  { "?!", "look-ahead is" },
		{ "?<=", "look-behind is" },	  { "?<!", "look-behind is" },
		{ "?>", "atomic groups are" },	  { "?(", "conditions are" },
		{ "?#", "comments are" },	  { "*", "verbs are" },
		{ "?P=", "back references are" }, { "?P>", "recursion is" },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (looking_at(r, refused[i].head))
			return fail_at(r, start, "%s not supported",
				       refused[i].name);
	if (looking_at(r, "?:")) {
		r->at += 2;
	} else if (looking_at(r, "?P<") || looking_at(r, "?<")) {
		while (peek(r) != '>' && peek(r) != -1)
			r->at++;
		r->at += peek(r) == '>';
	} else if (peek(r) == '?') {
		return fail_at(r, start, "flags are not supported");
	}
	return 0;
}

static int read_group(struct reader *r, struct ast_node **out)
{
	const uint32_t start = r->at++;
	int rc = read_group_head(r, start);

	if (rc)
		return rc;
	if (r->nesting == GRAMMAR_MAX_NESTING)
		return fail_at(r, start,
			       "more than %d groups within one another",
			       GRAMMAR_MAX_NESTING);
	r->nesting++;
	rc = read_choice(r, out);
	r->nesting--;
	if (rc)
		return rc;
	if (peek(r) != ')')
		return fail_at(r, start, "the group has no closing ')'");
	r->at++;
	return 0;
}

static int read_atom(struct reader *r, struct ast_node **out)
{
	unsigned int nr = utf8_char_len(r->text + r->at, r->len - r->at);
	struct escape e;
	uint32_t code;
	int rc;

	switch (peek(r)) {
	case '(':
		return read_group(r, out);
	case '[':
		return read_class(r, out);
	case '.':
		r->at++;
		*out = class_node(r, line_ends, 2, true);
		return 0;
	case '\\':
		rc = read_escape(r, false, &e);
		if (!rc)
			*out = class_node(r, is_set(&e) ? e.ranges : &e.one,
					  e.nr, e.is_negated);
		return rc;
	case '^':
	case '$':
		return fail_at(r, r->at,
			       "the anchor '%c' is not at an end of the "
			       "expression",
			       peek(r));
	case '*':
	case '+':
	case '?':
		return fail_at(r, r->at, "'%c' has nothing to repeat", peek(r));
	default:
		code = utf8_get(r->text + r->at, nr);
		r->at += nr;
		*out = class_node(r, &(struct ast_range){ code, code }, 1,
				  false);
		return 0;
	}
}

static bool read_number(struct reader *r, uint32_t *out)
{
	const uint32_t start = r->at;

	for (*out = 0; peek(r) >= '0' && peek(r) <= '9'; r->at++)
		if (*out <= MAX_COUNT)
			*out = *out * 10 + (uint32_t)(peek(r) - '0');
	return r->at > start;
}

/* "{m}", "{m,}", "{m,n}" or "{,n}"; false, at the brace: it is a character. */
static bool read_braces(struct reader *r, uint32_t *min, uint32_t *max)
{
	const uint32_t start = r->at++;
	bool has_min = read_number(r, min), has_max = has_min;

	*max = *min;
	if (peek(r) == ',') {
		r->at++;
		has_max = read_number(r, max);
		if (!has_max)
			*max = AST_UNBOUNDED;
	}
	if ((has_min || has_max) && peek(r) == '}') {
		r->at++;
		return true;
	}
	r->at = start;
	return false;
}

static int read_repeat(struct reader *r, struct ast_node **node)
{
	const uint32_t start = r->at;
	uint32_t min = 0, max = AST_UNBOUNDED;
	const int c = peek(r);

	if (c == '{') {
		if (!read_braces(r, &min, &max))
			return 0;
	} else if (c == '*' || c == '+' || c == '?') {
		r->at++;
		min = c == '+';
		max = c == '?' ? 1 : AST_UNBOUNDED;
	} else {
		return 0;
	}
	if (min > MAX_COUNT || (max != AST_UNBOUNDED && max > MAX_COUNT))
		return fail_at(r, start, "a repetition of more than %d times",
			       MAX_COUNT);
	if (max < min)
		return fail_at(r, start, "the range goes backwards");
	if (peek(r) == '+')
		return fail_at(r, start,
			       "possessive repetitions are not supported");
	r->at += peek(r) == '?'; /* lazy: the same texts match */
	if (peek(r) == '*' || peek(r) == '+' || peek(r) == '?')
		return fail_at(r, r->at, "'%c' has nothing to repeat", peek(r));
	*node = ast_repeat(r->ast, *node, min, max);
	return 0;
}

static int read_sequence(struct reader *r, struct ast_node **out)
{
	*out = ast_sequence(r->ast);
	while (peek(r) != -1 && peek(r) != '|' && peek(r) != ')') {
		struct ast_node *atom = NULL;
		int rc;

		/* At the very end it is for whoever reads the outermost choice. */
		if (peek(r) == '$' && !r->nesting &&
		    (r->at + 1 == r->len || r->text[r->at + 1] == '|'))
			return 0;
		rc = read_atom(r, &atom);
		if (!rc)
			rc = read_repeat(r, &atom);
		if (rc)
			return rc;
		ast_add(*out, atom);
	}
	return 0;
}

/* Any text, before and behind an expression that does not say where it stands. */
static struct ast_node *anything(struct reader *r)
{
	return ast_repeat(r->ast, class_node(r, NULL, 0, true), 0,
			  AST_UNBOUNDED);
}

static int read_choice(struct reader *r, struct ast_node **out)
{
	const bool is_outer = !r->nesting;
	const bool is_search = is_outer && r->use == REGEX_IN_JSON;

	*out = ast_choice(r->ast);
	for (;;) {
		struct ast_node *whole = ast_sequence(r->ast), *sequence;
		bool at_begin = is_outer && peek(r) == '^';
		int rc;

		r->at += at_begin;
		if (is_search && !at_begin)
			ast_add(whole, anything(r));
		rc = read_sequence(r, &sequence);
		if (rc)
			return rc;
		ast_add(whole, sequence);
		if (is_outer && peek(r) == '$')
			r->at++;
		else if (is_search)
			ast_add(whole, anything(r));
		ast_add(*out, whole);
		if (peek(r) != '|')
			return 0;
		r->at++;
	}
}

int regex_build(struct ast *ast, const char *text, size_t len,
		enum regex_use use, struct ast_node **out, char *err,
		size_t errlen)
{
	struct reader r = { .ast = ast,
			    .here = { .source = text, .source_len = len },
			    .text = text,
			    .len = (uint32_t)len,
			    .use = use,
			    .err = err,
			    .errlen = errlen };
	size_t valid = utf8_valid_len(text, len);
	int rc;

	*out = NULL;
	if (len > INT32_MAX)
		return fail_at(&r, 0, "the expression is too long");
	if (valid < len)
		return fail_at(&r, (uint32_t)valid, "byte 0x%02x is not UTF-8",
			       (unsigned char)text[valid]);
	r.ranges = malloc(MAX_CLASS_RANGES * sizeof(*r.ranges));
	if (!r.ranges)
		return -ENOMEM;
	rc = read_choice(&r, out);
	free(r.ranges);
	if (!rc && r.at < r.len)
		return fail_at(&r, r.at, "')' closes no group");
	return rc;
}

int regex_read(const char *text, size_t len, struct ast *ast, char *err,
	       size_t errlen)
{
	struct ast_node *body = NULL;
	int rc;

	ast_init(ast, text, len);
	ast->root = ast_rule_id(ast, "root", 4, 0);
	rc = regex_build(ast, text, len, REGEX_WHOLE, &body, err, errlen);
	if (rc || ast->is_out_of_memory)
		return rc ? rc : -ENOMEM;
	ast->rules[ast->root].body = body;
	return 0;
}
