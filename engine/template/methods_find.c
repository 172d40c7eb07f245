/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of str that look for something: find, count, startswith, split,
 * partition and their kin.
 */
#include <errno.h>

#include "engine/template/methods.h"

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
	int rc = tmpl_need_int(r, &a->pos[1], -1, &max);

	s.flags = 0;
	if (!rc)
		rc = tmpl_charge(r, s.len);
	if (!rc && (sep->type == TV_MISSING || sep->type == TV_NONE)) {
		rc = from_right ? rsplit_space(r, s, max, &l) :
				  split_space(r, s, max, &l);
	} else if (!rc) {
		rc = tmpl_need_str(r, sep);
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

/* Code points [start, end) of @self as bytes, by Python's slice rules. */
static int window(struct tmpl_render *r, const struct tv *self,
		  const struct tv *lo, const struct tv *hi, struct tv *out,
		  size_t *out_start)
{
	int64_t n = (int64_t)tmpl_u8_count(self->u.s, self->len), from, to;
	int rc = tmpl_need_int(r, lo, 0, &from);
	size_t at;

	if (!rc)
		rc = tmpl_need_int(r, hi, n, &to);
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
	int rc = tmpl_need_str(r, &a->pos[0]);

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
	int rc = tmpl_need_str(r, what);

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
		rc = tmpl_need_str(r, &seq.v[i]);
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
	int rc = tmpl_need_str(r, &a->pos[0]);

	*out = *self;
	if (!rc && has_affix(self, &a->pos[0], false)) {
		out->u.s += a->pos[0].len;
		out->len -= a->pos[0].len;
	}
	return rc;
}

METHOD(removesuffix)
{
	int rc = tmpl_need_str(r, &a->pos[0]);

	*out = *self;
	if (!rc && has_affix(self, &a->pos[0], true))
		out->len -= a->pos[0].len;
	return rc;
}

static int partition(struct tmpl_render *r, const struct tv *self,
		     const struct tmpl_args *a, bool last, struct tv *out)
{
	struct tv *v = tmpl_alloc(r, 3 * sizeof(*v));
	const struct tv *sep = &a->pos[0];
	const char *p;
	int rc = tmpl_need_str(r, sep);

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
