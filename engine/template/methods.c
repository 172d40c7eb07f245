/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of str; those of dict and list are in methods_seq.c. A new method is
 * a function and a line in the table; a line without function makes it known
 * but refused by name.
 */
#include <errno.h>

#include "engine/template/internal.h"

#define METHOD(id)                                                        \
	static int str_##id(struct tmpl_render *r, const struct tv *self, \
			    const struct tmpl_args *a, struct tv *out)

static int need_str(struct tmpl_render *r, const struct tv *v)
{
	if (v->type == TV_STR)
		return 0;
	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	return tmpl_fail(r, -EINVAL, "a string is needed, not '%s'",
			 tv_type_name(v));
}

static int need_int(struct tmpl_render *r, const struct tv *v, int64_t dflt,
		    int64_t *out)
{
	*out = dflt;
	if (v->type == TV_MISSING || v->type == TV_NONE)
		return 0;
	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	if (!tv_is_int(v))
		return tmpl_fail(r, -EINVAL, "an integer is needed, not '%s'",
				 tv_type_name(v));
	*out = v->u.i;
	return 0;
}

METHOD(upper)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_UPPER, out);
}

METHOD(lower)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_LOWER, out);
}

METHOD(title)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_TITLE, out);
}

METHOD(capitalize)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_CAPITAL, out);
}

METHOD(swapcase)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_SWAP, out);
}

static int strip(struct tmpl_render *r, const struct tv *self,
		 const struct tmpl_args *a, bool left, bool right,
		 struct tv *out)
{
	const struct tv *chars = &a->pos[0];
	int rc = 0;

	if (chars->type == TV_MISSING || chars->type == TV_NONE)
		chars = NULL;
	else
		rc = need_str(r, chars);
	if (rc)
		return rc;
	rc = tmpl_charge(r, (size_t)self->len * (chars ? chars->len : 1));
	if (!rc)
		*out = tmpl_strip(self, chars, left, right);
	return rc;
}

METHOD(strip)
{
	return strip(r, self, a, true, true, out);
}

METHOD(lstrip)
{
	return strip(r, self, a, true, false, out);
}

METHOD(rstrip)
{
	return strip(r, self, a, false, true, out);
}

/* The last @what in @s, or NULL; what it looks at is charged. */
static int find_last(struct tmpl_render *r, const char *s, size_t n,
		     const struct tv *what, const char **out)
{
	size_t m = what->len, i;
	int rc = 0;

	*out = NULL;
	if (m > n)
		return 0;
	for (i = n - m + 1; !rc && i > 0; i--) {
		const char *at = s + i - 1;

		if (m &&
		    (at[0] != what->u.s[0] || at[m - 1] != what->u.s[m - 1]))
			continue;
		rc = tmpl_charge(r, m);
		if (!rc && memcmp(at, what->u.s, m) == 0) {
			*out = at;
			break;
		}
	}
	return rc ? rc : tmpl_charge(r, n - m + 1 - i);
}

static int find_either(struct tmpl_render *r, const char *s, size_t n,
		       const struct tv *what, bool last, const char **out)
{
	if (last)
		return find_last(r, s, n, what, out);
	*out = tmpl_find_first(s, n, what);
	return tmpl_charge(r, *out ? (size_t)(*out - s) : n);
}

/* Parts at runs of white space, from the left, at most @max cuts. */
static int split_space(struct tmpl_render *r, struct tv rest, int64_t max,
		       struct tv_list_builder *l)
{
	rest = tmpl_strip(&rest, NULL, true, false);
	while (rest.len) {
		size_t i = 0;
		uint32_t cp;
		struct tv part;
		int rc;

		if (max >= 0 && (int64_t)l->n == max) {
			part = rest;
			rest.len = 0;
		} else {
			while (i < rest.len) {
				size_t k = tmpl_u8_decode(rest.u.s + i,
							  rest.len - i, &cp);

				if (tmpl_cp_is_space(cp))
					break;
				i += k;
			}
			part = tv_lit(rest.u.s, i);
			rest = tv_lit(rest.u.s + i, rest.len - i);
			rest = tmpl_strip(&rest, NULL, true, false);
		}
		rc = tv_list_add(r, l, &part);
		if (rc)
			return rc;
	}
	return 0;
}

/* The same from the right; the parts come in reverse. */
static int rsplit_space(struct tmpl_render *r, struct tv rest, int64_t max,
			struct tv_list_builder *l)
{
	rest = tmpl_strip(&rest, NULL, false, true);
	while (rest.len) {
		size_t i = rest.len;
		struct tv part = rest;
		int rc;

		while (i > 0 && !(max >= 0 && (int64_t)l->n == max)) {
			size_t k = i - 1;
			uint32_t cp;

			while (k > 0 &&
			       ((unsigned char)rest.u.s[k] & 0xc0) == 0x80)
				k--;
			tmpl_u8_decode(rest.u.s + k, i - k, &cp);
			if (tmpl_cp_is_space(cp))
				break;
			i = k;
		}
		if (max >= 0 && (int64_t)l->n == max)
			i = 0;
		part = tv_lit(rest.u.s + i, rest.len - i);
		rest.len = (uint32_t)i;
		rest = tmpl_strip(&rest, NULL, false, true);
		rc = tv_list_add(r, l, &part);
		if (rc)
			return rc;
	}
	return 0;
}

static int split_sep(struct tmpl_render *r, struct tv rest,
		     const struct tv *sep, int64_t max, bool from_right,
		     struct tv_list_builder *l)
{
	int rc = 0;

	while (!rc) {
		const char *p = NULL;
		struct tv part = rest;
		size_t at;

		if (max < 0 || (int64_t)l->n < max)
			rc = find_either(r, rest.u.s, rest.len, sep, from_right,
					 &p);
		if (rc)
			return rc;
		if (!p)
			return tv_list_add(r, l, &part);
		at = (size_t)(p - rest.u.s);
		if (from_right) {
			part = tv_lit(p + sep->len, rest.len - at - sep->len);
			rest.len = (uint32_t)at;
		} else {
			part.len = (uint32_t)at;
			rest = tv_lit(p + sep->len, rest.len - at - sep->len);
		}
		rc = tv_list_add(r, l, &part);
	}
	return rc;
}

static void reverse(struct tv_list_builder *l)
{
	for (size_t i = 0; i + 1 < l->n - i; i++) {
		struct tv t = l->v[i];

		l->v[i] = l->v[l->n - 1 - i];
		l->v[l->n - 1 - i] = t;
	}
}

static int split(struct tmpl_render *r, const struct tv *self,
		 const struct tmpl_args *a, bool from_right, struct tv *out)
{
	const struct tv *sep = &a->pos[0];
	struct tv_list_builder l = { 0 };
	struct tv s = *self;
	int64_t max;
	int rc = need_int(r, &a->pos[1], -1, &max);

	s.flags = 0;
	if (!rc)
		rc = tmpl_charge(r, s.len);
	if (!rc && (sep->type == TV_MISSING || sep->type == TV_NONE)) {
		rc = from_right ? rsplit_space(r, s, max, &l) :
				  split_space(r, s, max, &l);
	} else if (!rc) {
		rc = need_str(r, sep);
		if (!rc && !sep->len)
			rc = tmpl_fail(r, -EINVAL, "empty separator");
		if (!rc)
			rc = split_sep(r, s, sep, max, from_right, &l);
	}
	if (rc)
		return rc;
	if (from_right && l.n)
		reverse(&l);
	return tv_seq_new(r, TV_LIST, l.v, l.n, out);
}

METHOD(split)
{
	return split(r, self, a, false, out);
}

METHOD(rsplit)
{
	return split(r, self, a, true, out);
}

/* Lines at what Python's splitlines() takes as their ends. */
int tmpl_str_lines(struct tmpl_render *r, const struct tv *s, bool keep_ends,
		   struct tv_list_builder *out)
{
	size_t start = 0, i = 0;
	int rc = tmpl_charge(r, s->len);

	while (!rc && i < s->len) {
		uint32_t cp;
		size_t end = i;
		struct tv line;

		i += tmpl_u8_decode(s->u.s + i, s->len - i, &cp);
		if (!((cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) ||
		      cp == 0x85 || cp == 0x2028 || cp == 0x2029))
			continue;
		if (cp == '\r' && i < s->len && s->u.s[i] == '\n')
			i++;
		line = tv_lit(s->u.s + start, (keep_ends ? i : end) - start);
		start = i;
		rc = tv_list_add(r, out, &line);
	}
	if (!rc && start < s->len) {
		struct tv line = tv_lit(s->u.s + start, s->len - start);

		rc = tv_list_add(r, out, &line);
	}
	return rc;
}

METHOD(splitlines)
{
	struct tv_list_builder l = { 0 };
	int rc = tmpl_str_lines(r, self, tv_truth(&a->pos[0]), &l);

	return rc ? rc : tv_seq_new(r, TV_LIST, l.v, l.n, out);
}

/* @max < 0: all of them. */
int tmpl_str_replace(struct tmpl_render *r, const struct tv *s,
		     const struct tv *old, const struct tv *new, int64_t max,
		     struct tv *out)
{
	struct tmpl_buf b = { 0 };
	size_t at = 0;
	int rc = tmpl_charge(r, s->len);

	while (!rc && max != 0) {
		const char *from = s->u.s + at, *p;
		size_t left = s->len - at, k;

		if (old->len) {
			p = tmpl_find_first(from, left, old);
			if (!p)
				break;
			rc = tmpl_put(r, &b, from, (size_t)(p - from));
			at = (size_t)(p - s->u.s) + old->len;
			if (!rc)
				rc = tmpl_put(r, &b, new->u.s, new->len);
		} else { /* before each character and at the end */
			rc = tmpl_put(r, &b, new->u.s, new->len);
			if (!left || rc)
				break;
			k = tmpl_u8_offset(from, left, 1);
			rc = tmpl_put(r, &b, from, k);
			at += k;
		}
		max -= max > 0;
	}
	if (!rc)
		rc = tmpl_put(r, &b, s->u.s + at, s->len - at);
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

METHOD(replace)
{
	int64_t max;
	int rc = need_int(r, &a->pos[2], -1, &max);

	if (!rc)
		rc = need_str(r, &a->pos[0]);
	if (!rc)
		rc = need_str(r, &a->pos[1]);
	if (rc)
		return rc;
	return tmpl_str_replace(r, self, &a->pos[0], &a->pos[1], max, out);
}

/* Code points [start, end) of @self as bytes, by Python's slice rules. */
static int window(struct tmpl_render *r, const struct tv *self,
		  const struct tv *lo, const struct tv *hi, struct tv *out,
		  size_t *out_start)
{
	int64_t n = (int64_t)tmpl_u8_count(self->u.s, self->len), from, to;
	int rc = need_int(r, lo, 0, &from);
	size_t at;

	if (!rc)
		rc = need_int(r, hi, n, &to);
	if (rc)
		return rc;
	from = from < 0 ? (from < -n ? 0 : from + n) : from;
	to = to < 0 ? (to < -n ? 0 : to + n) : to > n ? n : to;
	*out_start = (size_t)from;
	if (from > to) {
		*out = (struct tv){ .type = TV_MISSING };
		return 0;
	}
	at = tmpl_u8_offset(self->u.s, self->len, (size_t)from);
	*out = tv_lit(self->u.s + at,
		      tmpl_u8_offset(self->u.s + at, self->len - at,
				     (size_t)(to - from)));
	return tmpl_charge(r, (size_t)self->len * 2);
}

static int find(struct tmpl_render *r, const struct tv *self,
		const struct tmpl_args *a, bool last, bool must, struct tv *out)
{
	struct tv w;
	const char *p = NULL;
	size_t start;
	int rc = need_str(r, &a->pos[0]);

	if (!rc)
		rc = window(r, self, &a->pos[1], &a->pos[2], &w, &start);
	if (rc)
		return rc;
	if (w.type == TV_STR)
		rc = find_either(r, w.u.s, w.len, &a->pos[0], last, &p);
	if (rc)
		return rc;
	if (!p && must)
		return tmpl_fail(r, -EINVAL, "substring not found");
	*out = tv_int(-1);
	if (p)
		*out = tv_int(
			(int64_t)(start +
				  tmpl_u8_count(w.u.s, (size_t)(p - w.u.s))));
	return 0;
}

METHOD(find)
{
	return find(r, self, a, false, false, out);
}

METHOD(rfind)
{
	return find(r, self, a, true, false, out);
}

METHOD(index)
{
	return find(r, self, a, false, true, out);
}

METHOD(rindex)
{
	return find(r, self, a, true, true, out);
}

METHOD(count)
{
	const struct tv *what = &a->pos[0];
	int64_t n = 0;
	struct tv w;
	size_t start;
	int rc = need_str(r, what);

	if (!rc)
		rc = window(r, self, &a->pos[1], &a->pos[2], &w, &start);
	if (rc)
		return rc;
	if (w.type == TV_STR && !what->len)
		n = (int64_t)tmpl_u8_count(w.u.s, w.len) + 1;
	while (w.type == TV_STR && what->len) {
		const char *p = tmpl_find_first(w.u.s, w.len, what);

		if (!p)
			break;
		n++;
		p += what->len;
		w = tv_lit(p, w.len - (size_t)(p - w.u.s));
	}
	*out = tv_int(n);
	return 0;
}

static bool has_affix(const struct tv *w, const struct tv *x, bool at_end)
{
	return w->type == TV_STR && x->len <= w->len &&
	       memcmp(w->u.s + (at_end ? w->len - x->len : 0), x->u.s,
		      x->len) == 0;
}

static int affix(struct tmpl_render *r, const struct tv *self,
		 const struct tmpl_args *a, bool at_end, struct tv *out)
{
	struct tv_seq seq = { 1, &a->pos[0] };
	bool holds = false;
	struct tv w;
	size_t start;
	int rc = window(r, self, &a->pos[1], &a->pos[2], &w, &start);

	if (a->pos[0].type == TV_TUPLE)
		seq = *a->pos[0].u.seq;
	for (size_t i = 0; !rc && !holds && i < seq.n; i++) {
		rc = need_str(r, &seq.v[i]);
		holds = !rc && has_affix(&w, &seq.v[i], at_end);
	}
	*out = tv_bool(holds);
	return rc;
}

METHOD(startswith)
{
	return affix(r, self, a, false, out);
}

METHOD(endswith)
{
	return affix(r, self, a, true, out);
}

METHOD(removeprefix)
{
	int rc = need_str(r, &a->pos[0]);

	*out = *self;
	if (!rc && has_affix(self, &a->pos[0], false)) {
		out->u.s += a->pos[0].len;
		out->len -= a->pos[0].len;
	}
	return rc;
}

METHOD(removesuffix)
{
	int rc = need_str(r, &a->pos[0]);

	*out = *self;
	if (!rc && has_affix(self, &a->pos[0], true))
		out->len -= a->pos[0].len;
	return rc;
}

/* @is_strict: as str.join(), items must be strings; else str() of each. */
int tmpl_str_join(struct tmpl_render *r, const struct tv *sep,
		  const struct tv_seq *items, bool is_strict, struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc = 0;

	for (size_t i = 0; !rc && i < items->n; i++) {
		if (is_strict && items->v[i].type != TV_STR)
			rc = tmpl_fail(r, -EINVAL,
				       "join: item %zu is no string but '%s'",
				       i, tv_type_name(&items->v[i]));
		if (!rc && i)
			rc = tmpl_put(r, &b, sep->u.s, sep->len);
		if (!rc)
			rc = tv_print(r, &b, &items->v[i]);
	}
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

METHOD(join)
{
	struct tv_seq seq;
	int rc = tv_items(r, &a->pos[0], &seq);

	return rc ? rc : tmpl_str_join(r, self, &seq, true, out);
}

/* @where: -1 text to the left, 0 in the middle, 1 to the right. */
int tmpl_str_pad(struct tmpl_render *r, const struct tv *s, int64_t width,
		 const struct tv *fill, int where, struct tv *out)
{
	int64_t n = (int64_t)tmpl_u8_count(s->u.s, s->len);
	int64_t pad = width > n ? width - n : 0, left;
	struct tmpl_buf b = { 0 };
	int rc = 0;

	if (fill->type != TV_MISSING &&
	    (fill->type != TV_STR || tmpl_u8_count(fill->u.s, fill->len) != 1))
		return tmpl_fail(r, -EINVAL,
				 "the fill character must be one character");
	/* Python puts the odd blank to the left where the width is odd */
	left = where < 0 ? 0 : where > 0 ? pad : pad / 2 + (pad & width & 1);
	for (int64_t i = 0; !rc && i < pad + 1; i++) {
		if (i == left)
			rc = tmpl_put(r, &b, s->u.s, s->len);
		if (!rc && i < pad)
			rc = fill->type == TV_STR ?
				     tmpl_put(r, &b, fill->u.s, fill->len) :
				     tmpl_put(r, &b, " ", 1);
	}
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

static int pad(struct tmpl_render *r, const struct tv *self,
	       const struct tmpl_args *a, int where, struct tv *out)
{
	int64_t width;
	int rc = need_int(r, &a->pos[0], 0, &width);

	return rc ? rc : tmpl_str_pad(r, self, width, &a->pos[1], where, out);
}

METHOD(center)
{
	return pad(r, self, a, 0, out);
}

METHOD(ljust)
{
	return pad(r, self, a, -1, out);
}

METHOD(rjust)
{
	return pad(r, self, a, 1, out);
}

METHOD(zfill)
{
	struct tv zero = tv_lit("0", 1), digits = *self, padded, sign;
	int64_t width;
	int rc = need_int(r, &a->pos[0], 0, &width);
	bool has_sign = self->len &&
			(self->u.s[0] == '-' || self->u.s[0] == '+');

	if (rc)
		return rc;
	if (!has_sign)
		return tmpl_str_pad(r, self, width, &zero, 1, out);
	sign = tv_lit(self->u.s, 1);
	digits.u.s++;
	digits.len--;
	rc = tmpl_str_pad(r, &digits, width - 1, &zero, 1, &padded);
	return rc ? rc : tv_concat(r, &sign, &padded, out);
}

static int partition(struct tmpl_render *r, const struct tv *self,
		     const struct tmpl_args *a, bool last, struct tv *out)
{
	struct tv *v = tmpl_alloc(r, 3 * sizeof(*v));
	const struct tv *sep = &a->pos[0];
	const char *p;
	int rc = need_str(r, sep);

	if (!rc && !sep->len)
		rc = tmpl_fail(r, -EINVAL, "empty separator");
	if (rc || !v)
		return rc ? rc : -E2BIG;
	rc = find_either(r, self->u.s, self->len, sep, last, &p);
	if (rc)
		return rc;
	v[0] = v[1] = v[2] = tv_lit("", 0);
	if (p) {
		v[0] = tv_lit(self->u.s, (size_t)(p - self->u.s));
		v[1] = *sep;
		p += sep->len;
		v[2] = tv_lit(p, self->len - (size_t)(p - self->u.s));
	} else {
		v[last ? 2 : 0] = *self;
	}
	return tv_seq_new(r, TV_TUPLE, v, 3, out);
}

METHOD(partition)
{
	return partition(r, self, a, false, out);
}

METHOD(rpartition)
{
	return partition(r, self, a, true, out);
}

/* Methods that answer a question: all characters of a class, some cased. */
static int all_of(struct tmpl_render *r, const struct tv *s, const char *klass,
		  struct tv *out)
{
	bool holds = s->len != 0;
	int rc = tmpl_charge(r, (size_t)s->len * 4);

	for (size_t i = 0; !rc && holds && i < s->len;) {
		uint32_t cp;

		i += tmpl_u8_decode(s->u.s + i, s->len - i, &cp);
		holds = tmpl_cp_is(r, cp, klass);
	}
	*out = tv_bool(holds);
	return rc;
}

METHOD(isdigit)
{
	(void)a;
	return all_of(r, self, "digit", out);
}

METHOD(isalpha)
{
	(void)a;
	return all_of(r, self, "alpha", out);
}

METHOD(isalnum)
{
	(void)a;
	return all_of(r, self, "alnum", out);
}

METHOD(isspace)
{
	(void)a;
	*out = tv_bool(self->len &&
		       tmpl_strip(self, NULL, true, false).len == 0);
	return tmpl_charge(r, self->len);
}

METHOD(isascii)
{
	bool holds = true;

	(void)a;
	for (size_t i = 0; i < self->len; i++)
		holds &= (unsigned char)self->u.s[i] < 0x80;
	*out = tv_bool(holds);
	return tmpl_charge(r, self->len);
}

static int by_test(struct tmpl_render *r, const struct tv *self,
		   const char *name, struct tv *out)
{
	const struct tmpl_func *f = tmpl_find(tmpl_tests, name, strlen(name));
	struct tmpl_args none = { 0 };

	return tmpl_call_func(r, "test", f, self, &none, out);
}

METHOD(isupper)
{
	(void)a;
	return by_test(r, self, "upper", out);
}

METHOD(islower)
{
	(void)a;
	return by_test(r, self, "lower", out);
}

const struct tmpl_func tmpl_str_methods[] = {
	{ "capitalize", str_capitalize, "", 0 },
	{ "casefold", str_lower, "", 0 },
	{ "center", str_center, "width,fillchar", 1 },
	{ "count", str_count, "sub,start,end", 1 },
	{ "encode", NULL, NULL, 0 },
	{ "endswith", str_endswith, "suffix,start,end", 1 },
	{ "expandtabs", NULL, NULL, 0 },
	{ "find", str_find, "sub,start,end", 1 },
	{ "format", tmpl_str_format, NULL, 0 },
	{ "format_map", NULL, NULL, 0 },
	{ "index", str_index, "sub,start,end", 1 },
	{ "isalnum", str_isalnum, "", 0 },
	{ "isalpha", str_isalpha, "", 0 },
	{ "isascii", str_isascii, "", 0 },
	{ "isdecimal", str_isdigit, "", 0 },
	{ "isdigit", str_isdigit, "", 0 },
	{ "isidentifier", NULL, NULL, 0 },
	{ "islower", str_islower, "", 0 },
	{ "isnumeric", str_isdigit, "", 0 },
	{ "isprintable", NULL, NULL, 0 },
	{ "isspace", str_isspace, "", 0 },
	{ "istitle", NULL, NULL, 0 },
	{ "isupper", str_isupper, "", 0 },
	{ "join", str_join, "iterable", 1 },
	{ "ljust", str_ljust, "width,fillchar", 1 },
	{ "lower", str_lower, "", 0 },
	{ "lstrip", str_lstrip, "chars", 0 },
	{ "maketrans", NULL, NULL, 0 },
	{ "partition", str_partition, "sep", 1 },
	{ "removeprefix", str_removeprefix, "prefix", 1 },
	{ "removesuffix", str_removesuffix, "suffix", 1 },
	{ "replace", str_replace, "old,new,count", 2 },
	{ "rfind", str_rfind, "sub,start,end", 1 },
	{ "rindex", str_rindex, "sub,start,end", 1 },
	{ "rjust", str_rjust, "width,fillchar", 1 },
	{ "rpartition", str_rpartition, "sep", 1 },
	{ "rsplit", str_rsplit, "sep,maxsplit", 0 },
	{ "rstrip", str_rstrip, "chars", 0 },
	{ "split", str_split, "sep,maxsplit", 0 },
	{ "splitlines", str_splitlines, "keepends", 0 },
	{ "startswith", str_startswith, "prefix,start,end", 1 },
	{ "strip", str_strip, "chars", 0 },
	{ "swapcase", str_swapcase, "", 0 },
	{ "title", str_title, "", 0 },
	{ "translate", NULL, NULL, 0 },
	{ "upper", str_upper, "", 0 },
	{ "zfill", str_zfill, "width", 1 },
	{ 0 },
};
