/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "..." % values and "...".format(): the conversions that templates use.
 * Anything else is refused by name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/template/internal.h"

struct spec {
	bool left, zero, plus, space, alt;
	int width, prec;
	char conv;
};

static int read_number(const char *s, size_t n, size_t *at, int *out)
{
	int v = 0;

	if (*at >= n || s[*at] < '0' || s[*at] > '9')
		return 0;
	while (*at < n && s[*at] >= '0' && s[*at] <= '9' && v < 10000)
		v = v * 10 + (s[(*at)++] - '0');
	*out = v;
	return v < 10000 ? 0 : -E2BIG;
}

/* A number by printf, with a format put together from checked parts. */
static int put_number(struct tmpl_render *r, struct tmpl_buf *b,
		      const struct spec *sp, const struct tv *v)
{
	bool is_float = strchr("eEfFgG", sp->conv) != NULL;
	char fmt[32], small[512];
	int n;

	if (!tv_is_num(v))
		return tmpl_fail(r, -EINVAL,
				 "format: %%%c needs a number, not '%s'",
				 sp->conv, tv_type_name(v));
	if (sp->width > 400 || sp->prec > 100)
		return tmpl_fail(r, -E2BIG, "format: field too wide");
	snprintf(fmt, sizeof(fmt), "%%%s%s%s%s%s*.*%s%c", sp->left ? "-" : "",
		 sp->zero ? "0" : "", sp->plus ? "+" : "", sp->space ? " " : "",
		 sp->alt ? "#" : "", is_float ? "" : "ll",
		 sp->conv == 'i' || sp->conv == 'u' ? 'd' : sp->conv);
	if (is_float)
		n = snprintf(small, sizeof(small), fmt, sp->width, sp->prec,
			     tv_num(v));
	else
		n = snprintf(small, sizeof(small), fmt, sp->width, sp->prec,
			     v->type == TV_FLOAT ? (long long)v->u.f :
						   (long long)v->u.i);
	if (n < 0 || (size_t)n >= sizeof(small))
		return tmpl_fail(r, -E2BIG, "format: field too wide");
	return tmpl_put(r, b, small, (size_t)n);
}

static int put_text(struct tmpl_render *r, struct tmpl_buf *b,
		    const struct spec *sp, const struct tv *v)
{
	struct tmpl_buf text = { 0 };
	struct tv none = { .type = TV_MISSING }, s, padded;
	int rc = sp->conv == 'r' ? tv_repr(r, &text, v) : tv_print(r, &text, v);

	if (!rc)
		rc = tv_str_take(r, &text, &s);
	else
		tmpl_buf_deinit(&text);
	if (rc)
		return rc;
	if (sp->prec >= 0)
		s.len = (uint32_t)tmpl_u8_offset(s.u.s, s.len,
						 (size_t)sp->prec);
	rc = tmpl_str_pad(r, &s, sp->width, &none, sp->left ? -1 : 1, &padded);
	return rc ? rc : tmpl_put(r, b, padded.u.s, padded.len);
}

static int put_field(struct tmpl_render *r, struct tmpl_buf *b,
		     const struct spec *sp, const struct tv *v)
{
	if (sp->conv == 's' || sp->conv == 'r')
		return put_text(r, b, sp, v);
	if (sp->conv && strchr("diuxXoeEfFgG", sp->conv)) {
		if (v->type == TV_FLOAT && !strchr("eEfFgG", sp->conv) &&
		    !(v->u.f > -9e18 && v->u.f < 9e18))
			return tmpl_fail(r, -EINVAL,
					 "format: float beyond 64 bits");
		return put_number(r, b, sp, v);
	}
	return tmpl_fail(r, -EINVAL,
			 "format: conversion '%%%c' is not supported",
			 sp->conv ? sp->conv : ' ');
}

static int read_spec(struct tmpl_render *r, const struct tv *f, size_t *at,
		     struct spec *sp)
{
	*sp = (struct spec){ .prec = -1 };
	for (; *at < f->len; ++*at) {
		char ch = f->u.s[*at];

		if (ch == '-')
			sp->left = true;
		else if (ch == '0')
			sp->zero = true;
		else if (ch == '+')
			sp->plus = true;
		else if (ch == ' ')
			sp->space = true;
		else if (ch == '#')
			sp->alt = true;
		else
			break;
	}
	int rc = read_number(f->u.s, f->len, at, &sp->width);

	if (!rc && *at < f->len && f->u.s[*at] == '.') {
		++*at;
		sp->prec = 0;
		rc = read_number(f->u.s, f->len, at, &sp->prec);
	}
	if (rc)
		return tmpl_fail(r, rc, "format: field too wide");
	if (*at >= f->len)
		return tmpl_fail(r, -EINVAL, "format: incomplete format");
	sp->conv = f->u.s[(*at)++];
	return 0;
}

/* "%(name)s": the value under the name in @map. */
static int mapped(struct tmpl_render *r, const struct tv *f, size_t *at,
		  const struct tv *map, const struct tv **out)
{
	const char *s = f->u.s + *at + 1;
	const char *end = memchr(s, ')', f->len - *at - 1);

	if (!end || !map)
		return tmpl_fail(r, -EINVAL, "format requires a mapping");
	*out = tv_dict_get_str(map->u.dict, s, (size_t)(end - s));
	if (!*out)
		return tmpl_fail(r, -EINVAL, "format: no key '%.*s'",
				 (int)(end - s < 80 ? end - s : 80), s);
	*at = (size_t)(end + 1 - f->u.s);
	return 0;
}

static int percent(struct tmpl_render *r, const struct tv *f,
		   const struct tmpl_args *a, const struct tv *map,
		   struct tmpl_buf *b)
{
	size_t at = 0, used = 0;
	bool by_name = false;
	int rc = 0;

	while (!rc && at < f->len) {
		const char *p = memchr(f->u.s + at, '%', f->len - at);
		size_t end = p ? (size_t)(p - f->u.s) : f->len;
		const struct tv *v = NULL;
		struct spec sp;

		rc = tmpl_put(r, b, f->u.s + at, end - at);
		at = end + 1;
		if (rc || !p)
			break;
		if (at < f->len && f->u.s[at] == '(') {
			by_name = true;
			rc = mapped(r, f, &at, map, &v);
		}
		if (!rc)
			rc = read_spec(r, f, &at, &sp);
		if (rc)
			break;
		if (sp.conv == '%') {
			rc = tmpl_put(r, b, "%", 1);
			continue;
		}
		if (!v && used == a->nr_pos)
			return tmpl_fail(
				r, -EINVAL,
				"not enough arguments for format string");
		rc = put_field(r, b, &sp, v ? v : &a->pos[used++]);
	}
	if (!rc && !by_name && !map && used < a->nr_pos)
		rc = tmpl_fail(
			r, -EINVAL,
			"not all arguments converted during string formatting");
	return rc;
}

/* fmt % values; @map: the dictionary for named fields, or NULL. */
int tmpl_percent(struct tmpl_render *r, const struct tv *fmt,
		 const struct tmpl_args *a, const struct tv *map,
		 struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc = percent(r, fmt, a, map, &b);

	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

/* The value that "{0.name}", "{name}" or "{}" means. */
static int brace_value(struct tmpl_render *r, const struct tv *field,
		       const struct tmpl_args *a, size_t *next, struct tv *out)
{
	size_t n = 0, i = 0;
	struct tv name, path;

	while (n < field->len && field->u.s[n] != '.' && field->u.s[n] != '[')
		n++;
	if (n < field->len && field->u.s[n] == '[')
		return tmpl_fail(r, -EINVAL,
				 "str.format: '[' in a field is not supported");
	name = tv_lit(field->u.s, n);
	while (i < n && i < 6 && name.u.s[i] >= '0' && name.u.s[i] <= '9')
		i++;
	if (i == n) {
		size_t at = n ? strtoul(name.u.s, NULL, 10) : (*next)++;

		if (at >= a->nr_pos)
			return tmpl_fail(r, -EINVAL,
					 "str.format: argument %zu is missing",
					 at);
		*out = a->pos[at];
	} else {
		out->type = TV_MISSING;
		for (i = 0; i < a->nr_kw; i++)
			if (a->kw[i].name.len == n &&
			    memcmp(a->kw[i].name.u.s, name.u.s, n) == 0)
				*out = a->kw[i].v;
		if (out->type == TV_MISSING)
			return tmpl_fail(r, -EINVAL,
					 "str.format: no argument '%.*s'",
					 n < 80 ? (int)n : 80, name.u.s);
	}
	if (n == field->len)
		return 0;
	path = tv_lit(field->u.s + n + 1, field->len - n - 1);
	name = *out;
	return tv_getpath(r, &name, &path, NULL, out);
}

static int brace_field(struct tmpl_render *r, struct tmpl_buf *b,
		       const struct tv *v, const char *s, size_t n)
{
	struct spec sp = { .prec = -1, .conv = 's' };
	size_t at = 0;
	int rc = 0;

	if (!n)
		return tv_print(r, b, v);
	sp.left = v->type == TV_STR;
	if (s[0] == '<' || s[0] == '>') {
		sp.left = s[0] == '<';
		at = 1;
	}
	if (at < n && s[at] == '0') {
		sp.zero = true;
		at++;
	}
	rc = read_number(s, n, &at, &sp.width);
	if (!rc && at < n && s[at] == '.') {
		at++;
		rc = read_number(s, n, &at, &sp.prec);
	}
	if (v->type != TV_STR)
		sp.conv = v->type == TV_FLOAT ? 'g' : 'd';
	if (!rc && at < n)
		sp.conv = s[at++];
	if (rc || at != n)
		return tmpl_fail(r, -EINVAL,
				 "str.format: format '%.*s' is not supported",
				 n < 40 ? (int)n : 40, s);
	return put_field(r, b, &sp, v);
}

static int braces(struct tmpl_render *r, const struct tv *f,
		  const struct tmpl_args *a, struct tmpl_buf *b)
{
	size_t at = 0, next = 0;
	int rc = 0;

	while (!rc && at < f->len) {
		char ch = f->u.s[at];
		const char *end, *colon;
		struct tv field, v;

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
		field = tv_lit(f->u.s + at + 1,
			       (size_t)(end - f->u.s) - at - 1);
		at = (size_t)(end - f->u.s) + 1;
		colon = memchr(field.u.s, ':', field.len);
		if (colon)
			field.len = (uint32_t)(colon - field.u.s);
		else
			colon = end - 1;
		if (memchr(field.u.s, '!', field.len))
			return tmpl_fail(r, -EINVAL,
					 "str.format: '!' is not supported");
		rc = brace_value(r, &field, a, &next, &v);
		if (!rc)
			rc = brace_field(r, b, &v, colon + 1,
					 (size_t)(end - colon - 1));
	}
	return rc;
}

int tmpl_str_format(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc = braces(r, self, a, &b);

	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}
