/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "...".format(): fields by place and by name, attributes and items of them,
 * "!r" and "!s", and Python's format specifications. The "%" operator is in
 * format.c.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/template/internal.h"

enum { MAX_WIDTH = 10000, MAX_PRECISION = 100, MAX_NUMBER_BYTES = 1024 };

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
struct brace_spec {
	struct tv fill;
	char align; /* 0: not given */
	char sign;
	bool alt;
	char group; /* ',' or '_' between digits; 0: nothing */
	int width, prec; /* prec -1: not given */
	char type; /* 0: not given */
};

static int bad_spec(struct tmpl_render *r, const struct tv *s)
{
	return tmpl_fail(r, -EINVAL,
			 "str.format: format '%.*s' is not supported for this "
			 "value",
			 s->len < 40 ? (int)s->len : 40, s->u.s);
}

static int read_digits(const struct tv *s, size_t *at, int max, int *out)
{
	int v = 0;

	if (*at >= s->len || s->u.s[*at] < '0' || s->u.s[*at] > '9')
		return 0;
	while (*at < s->len && s->u.s[*at] >= '0' && s->u.s[*at] <= '9' &&
	       v <= max)
		v = v * 10 + (s->u.s[(*at)++] - '0');
	*out = v;
	return v <= max ? 0 : -E2BIG;
}

static bool is_align(const struct tv *s, size_t at)
{
	return at < s->len && s->u.s[at] && strchr("<>=^", s->u.s[at]);
}

/* Whether a fill character is given. */
static bool read_align(const struct tv *s, size_t *at, struct brace_spec *sp)
{
	size_t k = tmpl_u8_offset(s->u.s, s->len, 1);

	if (s->len && is_align(s, k)) {
		sp->fill = tv_lit(s->u.s, k);
		sp->align = s->u.s[k];
		*at = k + 1;
		return true;
	}
	if (is_align(s, 0)) {
		sp->align = s->u.s[0];
		*at = 1;
	}
	return false;
}

static bool take(const struct tv *s, size_t *at, const char *any, char *out)
{
	if (*at >= s->len || !s->u.s[*at] || !strchr(any, s->u.s[*at]))
		return false;
	*out = s->u.s[(*at)++];
	return true;
}

static int read_spec(struct tmpl_render *r, const struct tv *s,
		     struct brace_spec *sp)
{
	size_t at = 0;
	bool has_fill;
	char ch;
	int rc;

	*sp = (struct brace_spec){ .fill = tv_lit(" ", 1), .prec = -1 };
	has_fill = read_align(s, &at, sp);
	take(s, &at, "+- ", &sp->sign);
	sp->alt = take(s, &at, "#", &ch);
	if (!has_fill && take(s, &at, "0", &ch)) {
		sp->fill = tv_lit("0", 1);
		if (!sp->align)
			sp->align = '0'; /* '=', but '<' where it is text */
	}
	rc = read_digits(s, &at, MAX_WIDTH, &sp->width);
	take(s, &at, ",_", &sp->group);
	if (!rc && take(s, &at, ".", &ch)) {
		size_t from = at;

		sp->prec = 0;
		rc = read_digits(s, &at, MAX_PRECISION, &sp->prec);
		if (!rc && at == from)
			return bad_spec(r, s);
	}
	if (rc)
		return tmpl_fail(r, rc, "str.format: field too wide");
	if (at < s->len)
		sp->type = s->u.s[at++];
	/* Zeros before groups of digits would have to be grouped too. */
	return at == s->len && !(sp->group && sp->align == '0') ?
		       0 :
		       bad_spec(r, s);
}

/* @head (a sign, a prefix) and @body, filled up to the width. */
static int put_aligned(struct tmpl_render *r, struct tmpl_buf *b,
		       const struct brace_spec *sp, char align,
		       const struct tv *head, const struct tv *body)
{
	size_t n = tmpl_u8_count(head->u.s, head->len) +
		   tmpl_u8_count(body->u.s, body->len);
	size_t pad = (size_t)sp->width > n ? (size_t)sp->width - n : 0;
	size_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
	int rc = 0;

	if (align == '=')
		rc = tmpl_put(r, b, head->u.s, head->len);
	for (size_t i = 0; !rc && i < left; i++)
		rc = tmpl_put(r, b, sp->fill.u.s, sp->fill.len);
	if (!rc && align != '=')
		rc = tmpl_put(r, b, head->u.s, head->len);
	if (!rc)
		rc = tmpl_put(r, b, body->u.s, body->len);
	for (size_t i = left; !rc && i < pad; i++)
		rc = tmpl_put(r, b, sp->fill.u.s, sp->fill.len);
	return rc;
}

static int put_text(struct tmpl_render *r, struct tmpl_buf *b,
		    const struct brace_spec *sp, const struct tv *spec,
		    const struct tv *v)
{
	struct tv none = tv_lit("", 0), s = *v;
	char align = sp->align == '0' || !sp->align ? '<' : sp->align;

	if ((sp->type && sp->type != 's') || sp->sign || sp->alt || sp->group ||
	    align == '=')
		return bad_spec(r, spec);
	if (sp->prec >= 0)
		s.len = (uint32_t)tmpl_u8_offset(s.u.s, s.len,
						 (size_t)sp->prec);
	return put_aligned(r, b, sp, align, &none, &s);
}

/* The digits of @value to @out, its end; @out has room for 64. */
static char *binary_digits(uint64_t value, char *end)
{
	do {
		*--end = (char)('0' + (value & 1));
		value >>= 1;
	} while (value);
	return end;
}

/* Puts @sep between the digits before the point, every @every of them. */
static void group_digits(char *text, size_t size, char sep, size_t every)
{
	size_t n = strlen(text), digits = 0;

	while ((text[digits] >= '0' && text[digits] <= '9') ||
	       (every == 4 && strchr("abcdefABCDEF", text[digits]) &&
		text[digits]))
		digits++;
	for (size_t i = digits; i > every && n + 1 < size; i -= every) {
		memmove(text + i - every + 1, text + i - every,
			n - (i - every) + 1);
		text[i - every] = sep;
		n++;
	}
}

static int put_number(struct tmpl_render *r, struct tmpl_buf *b,
		      const struct brace_spec *sp, bool is_negative,
		      const char *prefix, char *text)
{
	char head[4] = "";
	struct tv head_v, body;
	char align = sp->align == '0' ? '=' : sp->align ? sp->align : '>';

	if (sp->group)
		group_digits(text, MAX_NUMBER_BYTES, sp->group,
			     sp->type && strchr("boxX", sp->type) ? 4 : 3);
	snprintf(head, sizeof(head), "%s%s",
		 is_negative	 ? "-" :
		 sp->sign == '+' ? "+" :
		 sp->sign == ' ' ? " " :
				   "",
		 prefix);
	head_v = tv_lit(head, strlen(head));
	body = tv_lit(text, strlen(text));
	return put_aligned(r, b, sp, align, &head_v, &body);
}

/*
 * A float without a type: as repr() without a precision, else as %g, but with
 * a digit behind the point.
 */
static int plain_float(struct tmpl_render *r, const struct brace_spec *sp,
		       double f, char *text)
{
	struct tmpl_buf b = { 0 };
	int rc;

	if (sp->prec < 0) {
		rc = tmpl_put_float(r, &b, f);
		if (!rc && b.len < MAX_NUMBER_BYTES) {
			memcpy(text, b.data, b.len);
			text[b.len] = 0;
		}
		tmpl_buf_deinit(&b);
		return rc;
	}
	snprintf(text, MAX_NUMBER_BYTES, "%.*e", sp->prec ? sp->prec - 1 : 0,
		 f);

	const char *e = strchr(text, 'e');
	int exp = e ? atoi(e + 1) : 0, prec = sp->prec ? sp->prec : 1;

	/* One digit less than %g before it takes an exponent. */
	if (e && exp == prec - 1)
		snprintf(text, MAX_NUMBER_BYTES, "%.*e", prec - 1, f);
	else
		snprintf(text, MAX_NUMBER_BYTES, "%.*g", prec, f);
	if (e && exp == prec - 1) {
		/* the digits of the mantissa without trailing zeros */
		char *at = strchr(text, 'e'), tail[16];
		size_t n = (size_t)(at - text);

		snprintf(tail, sizeof(tail), "%s", at);
		while (n > 1 && text[n - 1] == '0')
			n--;
		if (text[n - 1] == '.')
			n--;
		if (!strchr(text, '.'))
			n = (size_t)(at - text);
		snprintf(text + n, MAX_NUMBER_BYTES - n, "%s", tail);
	} else if (!strpbrk(text, ".en")) {
		strcat(text, ".0");
	}
	return 0;
}

static int put_float(struct tmpl_render *r, struct tmpl_buf *b,
		     const struct brace_spec *sp, const struct tv *spec,
		     double f)
{
	char text[MAX_NUMBER_BYTES], fmt[8];
	bool is_negative = signbit(f) && !isnan(f);
	int rc = 0;

	f = is_negative ? -f : f;
	if (!sp->type) {
		rc = plain_float(r, sp, f, text);
	} else if (sp->type == '%') {
		snprintf(text, sizeof(text), "%.*f%%",
			 sp->prec < 0 ? 6 : sp->prec, f * 100);
	} else if (strchr("eEfFgG", sp->type)) {
		snprintf(fmt, sizeof(fmt), "%%%s.*%c", sp->alt ? "#" : "",
			 sp->type);
		snprintf(text, sizeof(text), fmt, sp->prec < 0 ? 6 : sp->prec,
			 f);
	} else {
		return bad_spec(r, spec);
	}
	return rc ? rc : put_number(r, b, sp, is_negative, "", text);
}

static int put_int(struct tmpl_render *r, struct tmpl_buf *b,
		   const struct brace_spec *sp, const struct tv *spec,
		   int64_t i)
{
	uint64_t value = i < 0 ? -(uint64_t)i : (uint64_t)i;
	char type = sp->type ? sp->type : 'd', text[MAX_NUMBER_BYTES];
	char digits[65] = "", prefix[3] = "";

	if (strchr("eEfFgG%", type))
		return put_float(r, b, sp, spec, (double)i);
	if (sp->prec >= 0)
		return bad_spec(r, spec);
	if (sp->alt && strchr("boxX", type))
		snprintf(prefix, sizeof(prefix), "0%c", type);
	if (type == 'b')
		snprintf(text, sizeof(text), "%s",
			 binary_digits(value, digits + 64));
	else if (type == 'o')
		snprintf(text, sizeof(text), "%llo", (unsigned long long)value);
	else if (type == 'x')
		snprintf(text, sizeof(text), "%llx", (unsigned long long)value);
	else if (type == 'X')
		snprintf(text, sizeof(text), "%llX", (unsigned long long)value);
	else if (type == 'd')
		snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	else
		return bad_spec(r, spec);
	return put_number(r, b, sp, i < 0, prefix, text);
}

static int put_field(struct tmpl_render *r, struct tmpl_buf *b,
		     const struct tv *v, const struct tv *spec)
{
	struct brace_spec sp;
	int rc;

	if (!spec->len)
		return tv_print(r, b, v);
	if (v->type != TV_STR && !tv_is_num(v))
		return bad_spec(r, spec);
	rc = read_spec(r, spec, &sp);
	if (rc)
		return rc;
	if (v->type == TV_STR)
		return put_text(r, b, &sp, spec, v);
	if (v->type == TV_FLOAT)
		return put_float(r, b, &sp, spec, v->u.f);
	return put_int(r, b, &sp, spec, v->u.i);
}

/* ---- fields ------------------------------------------------------------ */

static const struct tv *keyword(const struct tmpl_args *a,
				const struct tv *name)
{
	for (size_t i = 0; i < a->nr_kw; i++)
		if (a->kw[i].name.len == name->len &&
		    memcmp(a->kw[i].name.u.s, name->u.s, name->len) == 0)
			return &a->kw[i].v;
	return NULL;
}

static bool is_number(const struct tv *s, int64_t *out)
{
	size_t i = 0;

	*out = 0;
	while (i < s->len && i < 18 && s->u.s[i] >= '0' && s->u.s[i] <= '9')
		*out = *out * 10 + (s->u.s[i++] - '0');
	return i == s->len;
}

/* Places that "{}" and "{0}" take: one way of them in one text. */
struct places {
	size_t next; /* of those without a number */
	bool is_numbered;
};

/* The value that the beginning of a field, "0", "name" or "", means. */
static int first_value(struct tmpl_render *r, const struct tv *name,
		       bool is_whole, const struct tmpl_args *a,
		       struct places *p, struct tv *out)
{
	const struct tv *v;
	int64_t at;

	if (is_number(name, &at) && (name->len || is_whole)) {
		if (is_whole && (name->len ? p->next > 0 : p->is_numbered))
			return tmpl_fail(
				r, -EINVAL,
				"str.format: fields with and without a number");
		p->is_numbered |= is_whole && name->len;
		at = name->len ? at : (int64_t)p->next++;
		v = (size_t)at < a->nr_pos ? &a->pos[at] : NULL;
	} else {
		v = keyword(a, name);
	}
	if (v) {
		*out = *v;
		return 0;
	}
	if (is_number(name, &at))
		return tmpl_fail(r, -EINVAL,
				 "str.format: an argument is missing");
	return tmpl_fail(r, -EINVAL, "str.format: no argument '%.*s'",
			 name->len < 80 ? (int)name->len : 80, name->u.s);
}

/* One more step of a field, ".name" or "[key]", at @at. */
static int step(struct tmpl_render *r, const struct tv *field, size_t *at,
		struct tv *v)
{
	const char *s = field->u.s + *at + 1;
	size_t left = field->len - *at - 1, n = 0;
	bool is_item = field->u.s[*at] == '[';
	struct tv key, from = *v;
	int64_t index;

	while (n < left && (is_item ? s[n] != ']' : s[n] != '.' && s[n] != '['))
		n++;
	if (!n || (is_item && n == left))
		return tmpl_fail(r, -EINVAL, "str.format: bad field '%.*s'",
				 field->len < 80 ? (int)field->len : 80,
				 field->u.s);
	key = tv_lit(s, n);
	*at += 1 + n + is_item;
	if (is_item && is_number(&key, &index))
		key = tv_int(index);
	return is_item ? tv_getitem(r, &from, &key, v) :
			 tv_getattr(r, &from, &key, v);
}

static int find_value(struct tmpl_render *r, const struct tv *field,
		      const struct tmpl_args *a, struct places *p,
		      struct tv *out)
{
	size_t at = 0;
	struct tv name;
	int rc;

	while (at < field->len && field->u.s[at] != '.' &&
	       field->u.s[at] != '[')
		at++;
	name = tv_lit(field->u.s, at);
	rc = first_value(r, &name, at == field->len, a, p, out);
	while (!rc && at < field->len) {
		if (field->u.s[at] != '.' && field->u.s[at] != '[')
			return tmpl_fail(r, -EINVAL,
					 "str.format: bad field '%.*s'",
					 field->len < 80 ? (int)field->len : 80,
					 field->u.s);
		rc = step(r, field, &at, out);
	}
	return rc;
}

/* "!r" and "!s" turn the value into text before it is formatted. */
static int convert(struct tmpl_render *r, char conv, struct tv *v)
{
	struct tmpl_buf b = { 0 };
	struct tv from = *v;
	int rc;

	if (!conv)
		return 0;
	if (conv != 'r' && conv != 's')
		return tmpl_fail(r, -EINVAL,
				 "str.format: '!%c' is not supported", conv);
	rc = conv == 'r' ? tv_repr(r, &b, &from) : tv_print(r, &b, &from);
	if (!rc)
		return tv_str_take(r, &b, v);
	tmpl_buf_deinit(&b);
	return rc;
}

/* In a text that is markup, what is put in is not. */
static int put_escaped(struct tmpl_render *r, struct tmpl_buf *b,
		       const struct tv *v, const struct tv *spec)
{
	struct tmpl_buf text = { 0 };
	struct tv s;
	int rc = put_field(r, &text, v, spec);

	if (!rc)
		rc = tv_str_take(r, &text, &s);
	else
		tmpl_buf_deinit(&text);
	if (rc)
		return rc;
	s.flags = v->type == TV_STR ? v->flags : 0;
	return tmpl_put_html(r, b, &s);
}

/* What stands between the braces. */
static int put_braces(struct tmpl_render *r, struct tmpl_buf *b,
		      struct tv field, bool is_markup,
		      const struct tmpl_args *a, struct places *p)
{
	const char *colon = memchr(field.u.s, ':', field.len);
	struct tv spec = tv_lit("", 0), v;
	char conv = 0;
	int rc;

	if (colon) {
		size_t n = (size_t)(colon - field.u.s);

		spec = tv_lit(colon + 1, field.len - n - 1);
		field.len = (uint32_t)n;
	}
	if (memchr(spec.u.s, '{', spec.len))
		return tmpl_fail(
			r, -EINVAL,
			"str.format: a field in a field is not supported");
	if (field.len >= 2 && field.u.s[field.len - 2] == '!') {
		conv = field.u.s[field.len - 1];
		field.len -= 2;
	}
	rc = find_value(r, &field, a, p, &v);
	if (!rc)
		rc = convert(r, conv, &v);
	if (!rc && is_markup)
		return put_escaped(r, b, &v, &spec);
	return rc ? rc : put_field(r, b, &v, &spec);
}

static int braces(struct tmpl_render *r, const struct tv *f,
		  const struct tmpl_args *a, struct tmpl_buf *b)
{
	struct places p = { 0 };
	size_t at = 0;
	int rc = 0;

	while (!rc && at < f->len) {
		char ch = f->u.s[at];
		const char *end;

		if (ch != '{' && ch != '}') {
			rc = tmpl_put(r, b, f->u.s + at++, 1);
			continue;
		}
		if (at + 1 < f->len && f->u.s[at + 1] == ch) {
			rc = tmpl_put(r, b, &ch, 1);
			at += 2;
			continue;
		}
		end = ch == '{' ? memchr(f->u.s + at, '}', f->len - at) : NULL;
		if (!end)
			return tmpl_fail(r, -EINVAL, "str.format: single '%c'",
					 ch);
		rc = put_braces(r, b,
				tv_lit(f->u.s + at + 1,
				       (size_t)(end - f->u.s) - at - 1),
				f->flags & TV_F_MARKUP, a, &p);
		at = (size_t)(end - f->u.s) + 1;
	}
	return rc;
}

int tmpl_str_format(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc = braces(r, self, a, &b);

	if (!rc)
		rc = tv_str_take(r, &b, out);
	else
		tmpl_buf_deinit(&b);
	if (!rc)
		out->flags = self->flags;
	return rc;
}
