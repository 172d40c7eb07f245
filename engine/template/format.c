/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "..." % values: the conversions that templates use. Anything else is refused
 * by name. str.format() is in format_braces.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/template/internal.h"

struct spec {
	bool is_markup; /* the text is: what is put in gets escaped */
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
	int rc = sp->conv == 'r' ? tv_repr(r, &text, v) :
		 sp->is_markup	 ? tmpl_put_html(r, &text, v) :
				   tv_print(r, &text, v);

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

/* A character, or its number. */
static int put_char(struct tmpl_render *r, struct tmpl_buf *b,
		    const struct spec *sp, const struct tv *v)
{
	struct spec as_text = *sp;
	char text[4];
	struct tv s = *v;

	if (tv_is_int(v) && v->u.i >= 0 && v->u.i <= 0x10ffff &&
	    (v->u.i < 0xd800 || v->u.i > 0xdfff))
		s = tv_lit(text, tmpl_u8_encode((uint32_t)v->u.i, text));
	if (s.type != TV_STR || tmpl_u8_count(s.u.s, s.len) != 1)
		return tmpl_fail(r, -EINVAL, "format: %%c needs one character");
	as_text.conv = 's';
	as_text.prec = -1;
	return put_text(r, b, &as_text, &s);
}

static int put_field(struct tmpl_render *r, struct tmpl_buf *b,
		     const struct spec *sp, const struct tv *v)
{
	if (sp->conv == 's' || sp->conv == 'r')
		return put_text(r, b, sp, v);
	if (sp->conv == 'c')
		return put_char(r, b, sp, v);
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
	*sp = (struct spec){ .is_markup = f->flags & TV_F_MARKUP, .prec = -1 };
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

	if (!end || !map || map->type != TV_DICT)
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

/* fmt % values; @map: the one value where it may have names (a dictionary has), or NULL. */
int tmpl_percent(struct tmpl_render *r, const struct tv *fmt,
		 const struct tmpl_args *a, const struct tv *map,
		 struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc = percent(r, fmt, a, map, &b);

	if (!rc)
		rc = tv_str_take(r, &b, out);
	else
		tmpl_buf_deinit(&b);
	if (!rc)
		out->flags = fmt->flags;
	return rc;
}
