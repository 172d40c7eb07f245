/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits a template into tokens: text between tags with whitespace control
 * already applied, and the names, numbers, strings and operators inside tags.
 * Token texts lie in the template's arena. Called by template_compile() only.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/template/internal.h"

struct lexer {
	struct tmpl_compile *c;
	const char *s; /* newlines normalised */
	size_t n;
	size_t pos;
	uint32_t line;
	bool line_starting;
};

static const char ops3[][3] = { "//", "**", "==", "!=", ">=", "<=" };
static const char ops1[] = "+-/*%~[](){}><=.:|,;";

static int push(struct lexer *x, enum ttok_type type, const char *s, size_t n)
{
	struct tmpl_compile *c = x->c;

	if (c->nr_toks == c->cap_toks) {
		size_t cap = c->cap_toks ? c->cap_toks * 2 : 256;
		struct ttok *t = realloc(c->toks, cap * sizeof(*t));

		if (!t)
			return tmpl_cfail(c, -ENOMEM, x->line, "out of memory");
		c->toks = t;
		c->cap_toks = cap;
	}
	c->toks[c->nr_toks++] = (struct ttok){
		.type = type, .line = x->line, .s = s, .len = (uint32_t)n
	};
	return 0;
}

static bool at(const struct lexer *x, size_t pos, const char *lit)
{
	size_t n = strlen(lit);

	return pos <= x->n && n <= x->n - pos &&
	       memcmp(x->s + pos, lit, n) == 0;
}

/* Length of the white space (Python's idea of it) at @pos. */
static size_t space_at(const struct lexer *x, size_t pos)
{
	size_t start = pos;

	while (pos < x->n) {
		uint32_t cp;
		size_t k = tmpl_u8_decode(x->s + pos, x->n - pos, &cp);

		if (!tmpl_cp_is_space(cp))
			break;
		pos += k;
	}
	return pos - start;
}

static size_t rstrip_len(const char *s, size_t n)
{
	struct tv v = tv_lit(s, n);

	return tmpl_strip(&v, NULL, false, true).len;
}

static void advance(struct lexer *x, size_t to)
{
	for (size_t i = x->pos; i < to; i++)
		x->line += x->s[i] == '\n';
	if (to > x->pos)
		x->line_starting = x->s[to - 1] == '\n';
	x->pos = to;
}

/*
 * Emits the text [x->pos, end) before a tag with the sign @sign; @lstrip:
 * blanks between the line's start and the tag go (blocks and comments).
 */
static int push_text(struct lexer *x, size_t end, char sign, bool lstrip)
{
	const char *s = x->s + x->pos;
	size_t n = end - x->pos;

	if (sign == '-') {
		n = rstrip_len(s, n);
	} else if (sign != '+' && lstrip) {
		size_t l = n;

		while (l > 0 && s[l - 1] != '\n')
			l--;
		if ((l > 0 || x->line_starting) &&
		    rstrip_len(s + l, n - l) == 0)
			n = l;
	}
	if (n == 0)
		return 0;
	return push(x, TK_DATA, s, n);
}

/*
 * If a tag's end marker (as "%}") stands at @pos, with its sign and what
 * whitespace control takes behind it: its length; else 0.
 */
static size_t tag_end(const struct lexer *x, size_t pos, const char *mark,
		      bool plus, bool trim)
{
	size_t start = pos;

	if (at(x, pos, "-") && at(x, pos + 1, mark)) {
		pos += 3;
		return pos + space_at(x, pos) - start;
	}
	if (plus && at(x, pos, "+") && at(x, pos + 1, mark))
		return 3;
	if (!at(x, pos, mark))
		return 0;
	pos += 2;
	if (trim && at(x, pos, "\n"))
		pos++;
	return pos - start;
}

static char sign_at(const struct lexer *x, size_t pos)
{
	if (pos < x->n && (x->s[pos] == '-' || x->s[pos] == '+'))
		return x->s[pos];
	return 0;
}

static int lex_comment(struct lexer *x, size_t body)
{
	for (size_t p = body; p < x->n; p++) {
		size_t k = tag_end(x, p, "#}", true, true);

		if (k) {
			advance(x, p + k);
			return 0;
		}
	}
	if (body == x->n) { /* as in jinja2, which looks for no end there */
		advance(x, body);
		return 0;
	}
	return tmpl_cfail(x->c, -EINVAL, x->line, "missing end of comment tag");
}

/* Length of "{%- raw -%}" at @pos (also of "endraw" tags), or 0. */
static size_t raw_tag(const struct lexer *x, size_t pos, const char *word,
		      bool is_end, char *sign)
{
	size_t start = pos;

	if (!at(x, pos, "{%"))
		return 0;
	pos += 2;
	*sign = sign_at(x, pos);
	if (*sign)
		pos++;
	pos += space_at(x, pos);
	if (!at(x, pos, word))
		return 0;
	pos += strlen(word);
	pos += space_at(x, pos);
	size_t k = tag_end(x, pos, "%}", is_end, is_end);

	return k ? pos + k - start : 0;
}

static int lex_raw(struct lexer *x, size_t body)
{
	advance(x, body);
	for (size_t p = body; p < x->n; p++) {
		char sign;
		size_t k = x->s[p] == '{' ?
				   raw_tag(x, p, "endraw", true, &sign) :
				   0;

		if (!k)
			continue;
		int rc = push_text(x, p, sign, true);

		advance(x, p + k);
		return rc;
	}
	if (body == x->n) /* as in jinja2, which looks for no end there */
		return 0;
	return tmpl_cfail(x->c, -EINVAL, x->line,
			  "missing end of raw directive");
}

static int hex_value(const char *s, size_t n, uint32_t *out)
{
	*out = 0;
	for (size_t i = 0; i < n; i++) {
		char ch = s[i];
		uint32_t d;

		if (ch >= '0' && ch <= '9')
			d = (uint32_t)(ch - '0');
		else if ((ch | 32) >= 'a' && (ch | 32) <= 'f')
			d = (uint32_t)((ch | 32) - 'a' + 10);
		else
			return -EINVAL;
		*out = *out << 4 | d;
	}
	return 0;
}

/* One escape of a literal, @s past the backslash; returns bytes read or 0. */
static size_t unescape(const char *s, size_t n, char *dst, size_t *out_len)
{
	static const char from[] = "abfnrtv\\'\"";
	static const char to[] = "\a\b\f\n\r\t\v\\'\"";
	const char *p = s[0] ? strchr(from, s[0]) : NULL;
	uint32_t cp = 0;

	*out_len = 1;
	if (p) {
		*dst = to[p - from];
		return 1;
	}
	if (s[0] == '\n') {
		*out_len = 0;
		return 1;
	}
	if (s[0] >= '0' && s[0] <= '7') {
		size_t k = 0;

		while (k < 3 && k < n && s[k] >= '0' && s[k] <= '7')
			cp = cp * 8 + (uint32_t)(s[k++] - '0');
		*out_len = tmpl_u8_encode(cp, dst);
		return k;
	}
	size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;

	if (!digits) {
		*dst = '\\';
		return s[0] == 'N' ? 0 : SIZE_MAX;
	}
	if (n < digits + 1 || hex_value(s + 1, digits, &cp) || cp > 0x10ffff ||
	    (cp >= 0xd800 && cp < 0xe000))
		return 0;
	*out_len = tmpl_u8_encode(cp, dst);
	return digits + 1;
}

static int lex_string(struct lexer *x)
{
	char quote = x->s[x->pos];
	size_t p = x->pos + 1;

	while (p < x->n && x->s[p] != quote)
		p += x->s[p] == '\\' ? 2 : 1;
	if (p >= x->n)
		return tmpl_cfail(x->c, -EINVAL, x->line,
				  "string literal without an end");
	const char *s = x->s + x->pos + 1;
	size_t n = p - x->pos - 1, len = 0;
	char *dst = tmpl_arena_alloc(&x->c->t->arena, n + 1);

	if (!dst)
		return tmpl_cfail(x->c, -ENOMEM, x->line, "out of memory");
	for (size_t i = 0; i < n;) {
		size_t k, got;

		if (s[i] != '\\') {
			dst[len++] = s[i++];
			continue;
		}
		k = unescape(s + i + 1, n - i - 1, dst + len, &got);
		if (k == 0)
			return tmpl_cfail(x->c, -EINVAL, x->line,
					  "invalid escape '\\%c' in a string",
					  s[i + 1]);
		len += got;
		i += 1 + (k == SIZE_MAX ? 0 : k); /* unknown: stays as it is */
	}
	int rc = push(x, TK_STR, dst, len);

	advance(x, p + 1);
	return rc;
}

static bool is_digit(char ch, int base)
{
	if (ch >= '0' && ch <= '9')
		return ch - '0' < base;
	return (ch | 32) >= 'a' && (ch | 32) <= 'f' && base == 16;
}

/* Digits of @base with single underscores between them, as Python's. */
static size_t digits_at(const struct lexer *x, size_t p, int base)
{
	size_t start = p;

	while (p < x->n && (is_digit(x->s[p], base) ||
			    (x->s[p] == '_' && p > start && p + 1 < x->n &&
			     is_digit(x->s[p + 1], base))))
		p++;
	return p - start;
}

static size_t float_at(const struct lexer *x, size_t p)
{
	size_t start = p, k = digits_at(x, p, 10);
	bool is_float = false;

	if (start > 0 && x->s[start - 1] == '.')
		return 0;
	p += k;
	if (at(x, p, ".") && (k = digits_at(x, p + 1, 10)) > 0) {
		p += 1 + k;
		is_float = true;
	}
	if (p < x->n && (x->s[p] | 32) == 'e') {
		size_t q = p + 1;

		if (sign_at(x, q))
			q++;
		k = digits_at(x, q, 10);
		if (k) {
			p = q + k;
			is_float = true;
		}
	}
	return is_float ? p - start : 0;
}

static int lex_number(struct lexer *x)
{
	size_t k = float_at(x, x->pos), skip = 0;
	bool is_float = k > 0;
	int base = 10;
	char text[128];
	size_t n = 0;

	if (!is_float && x->s[x->pos] == '0' && x->pos + 1 < x->n) {
		char ch = x->s[x->pos + 1] | 32;

		base = ch == 'x' ? 16 : ch == 'o' ? 8 : ch == 'b' ? 2 : 10;
		skip = base == 10 ? 0 : 2;
		if (skip && digits_at(x, x->pos + 2, base) == 0) {
			base = 10;
			skip = 0;
		}
	}
	if (!is_float)
		k = skip + digits_at(x, x->pos + skip, base);
	for (size_t i = skip; i < k && n < sizeof(text) - 1; i++)
		if (x->s[x->pos + i] != '_')
			text[n++] = x->s[x->pos + i];
	text[n] = 0;
	if (k >= sizeof(text))
		return tmpl_cfail(x->c, -EINVAL, x->line, "number too long");
	int rc = push(x, is_float ? TK_FLOAT : TK_INT, x->s + x->pos, k);

	if (rc)
		return rc;
	struct ttok *t = &x->c->toks[x->c->nr_toks - 1];

	errno = 0;
	if (is_float)
		t->f = strtod(text, NULL);
	else
		t->i = strtoll(text, NULL, base);
	if (!is_float && errno == ERANGE)
		return tmpl_cfail(x->c, -EINVAL, x->line,
				  "integer %s is beyond 64 bits", text);
	advance(x, x->pos + k);
	return 0;
}

static bool is_name_byte(unsigned char ch)
{
	return ch == '_' || ch >= 0x80 || (ch >= '0' && ch <= '9') ||
	       ((ch | 32) >= 'a' && (ch | 32) <= 'z');
}

static int lex_operator(struct lexer *x, char *stack, size_t *depth)
{
	char ch = x->s[x->pos];
	size_t k = 1;

	for (size_t i = 0; i < sizeof(ops3) / sizeof(ops3[0]); i++)
		if (at(x, x->pos, ops3[i]))
			k = 2;
	if (k == 1 && (!ch || !strchr(ops1, ch)))
		return tmpl_cfail(x->c, -EINVAL, x->line,
				  "unexpected character '%c'", ch);
	if (k == 1 && strchr("([{", ch)) {
		if (*depth == TMPL_MAX_PARSE_DEPTH)
			return tmpl_cfail(x->c, -E2BIG, x->line,
					  "brackets nested too deeply");
		stack[(*depth)++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
	} else if (k == 1 && strchr(")]}", ch)) {
		if (*depth == 0)
			return tmpl_cfail(x->c, -EINVAL, x->line,
					  "unexpected '%c'", ch);
		if (stack[--*depth] != ch)
			return tmpl_cfail(x->c, -EINVAL, x->line,
					  "unexpected '%c', expected '%c'", ch,
					  stack[*depth]);
	}
	int rc = push(x, TK_OP, x->s + x->pos, k);

	advance(x, x->pos + k);
	return rc;
}

/* The inside of a tag up to and with its end. */
static int lex_tag(struct lexer *x, bool is_block)
{
	char stack[TMPL_MAX_PARSE_DEPTH];
	size_t depth = 0;
	uint32_t first_line = x->line;
	int rc = 0;

	while (!rc && x->pos < x->n) {
		size_t k = depth ? 0 :
				   tag_end(x, x->pos, is_block ? "%}" : "}}",
					   is_block, is_block);
		unsigned char ch = (unsigned char)x->s[x->pos];

		if (k) {
			rc = push(x, is_block ? TK_BLOCK_END : TK_VAR_END, "",
				  0);
			advance(x, x->pos + k);
			return rc;
		}
		k = space_at(x, x->pos);
		if (k) {
			advance(x, x->pos + k);
		} else if (ch >= '0' && ch <= '9') {
			rc = lex_number(x);
		} else if (is_name_byte(ch)) {
			size_t p = x->pos;

			while (p < x->n && is_name_byte((unsigned char)x->s[p]))
				p++;
			rc = push(x, TK_NAME, x->s + x->pos, p - x->pos);
			advance(x, p);
		} else if (ch == '"' || ch == '\'') {
			rc = lex_string(x);
		} else {
			rc = lex_operator(x, stack, &depth);
		}
	}
	if (rc)
		return rc;
	return tmpl_cfail(x->c, -EINVAL, first_line,
			  "tag without an end ('%s' is missing)",
			  is_block ? "%}" : "}}");
}

static int lex_all(struct lexer *x)
{
	int rc = 0;

	while (!rc && x->pos < x->n) {
		size_t p = x->pos;
		char sign = 0;

		while (p < x->n && !(x->s[p] == '{' && p + 1 < x->n &&
				     strchr("{%#", x->s[p + 1]) && x->s[p + 1]))
			p++;
		if (p == x->n)
			return push_text(x, p, '+', false);
		char kind = x->s[p + 1];
		size_t raw = raw_tag(x, p, "raw", false, &sign);

		if (!raw)
			sign = sign_at(x, p + 2);
		rc = push_text(x, p, sign, kind != '{');
		advance(x, p);
		if (rc)
			break;
		if (raw) {
			rc = lex_raw(x, p + raw);
			continue;
		}
		size_t body = p + 2 + (sign ? 1 : 0);

		if (kind == '#') {
			rc = lex_comment(x, body);
			continue;
		}
		rc = push(x, kind == '%' ? TK_BLOCK_BEGIN : TK_VAR_BEGIN, "",
			  0);
		advance(x, body);
		if (!rc)
			rc = lex_tag(x, kind == '%');
	}
	return rc;
}

/*
 * Fills c->toks (freed by the caller) from @src; one final newline goes, and
 * CR and CR LF become LF, as in jinja2.
 */
int tmpl_lex(struct tmpl_compile *c, const char *src, size_t len)
{
	char *s = tmpl_arena_alloc(&c->t->arena, len + 1);
	size_t n = 0;

	if (!s)
		return tmpl_cfail(c, -ENOMEM, 1, "out of memory");
	for (size_t i = 0; i < len; i++) {
		if (src[i] == '\r') {
			s[n++] = '\n';
			if (i + 1 < len && src[i + 1] == '\n')
				i++;
		} else {
			s[n++] = src[i];
		}
	}
	if (n && s[n - 1] == '\n')
		n--;
	struct lexer x = {
		.c = c, .s = s, .n = n, .line = 1, .line_starting = true
	};
	int rc = lex_all(&x);

	return rc ? rc : push(&x, TK_EOF, "", 0);
}
