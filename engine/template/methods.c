/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of str: the table, and those that make one string of another. Those
 * that find and split are in methods_find.c, those that answer a question in
 * methods_is.c, those of dict and list in methods_seq.c. A new method is a
 * function and a line in the table; a line without function makes it known
 * but refused by name.
 */
#include <errno.h>

#include "engine/template/methods.h"

static METHOD(upper)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_UPPER, out);
}

static METHOD(lower)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_LOWER, out);
}

static METHOD(title)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_TITLE, out);
}

static METHOD(capitalize)
{
	(void)a;
	return tmpl_case_map(r, self, CASE_CAPITAL, out);
}

static METHOD(swapcase)
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
		rc = tmpl_need_str(r, chars);
	if (rc)
		return rc;
	rc = tmpl_charge(r, (size_t)self->len * (chars ? chars->len : 1));
	if (!rc)
		*out = tmpl_strip(self, chars, left, right);
	return rc;
}

static METHOD(strip)
{
	return strip(r, self, a, true, true, out);
}

static METHOD(lstrip)
{
	return strip(r, self, a, true, false, out);
}

static METHOD(rstrip)
{
	return strip(r, self, a, false, true, out);
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

static METHOD(replace)
{
	int64_t max;
	int rc = tmpl_need_int(r, &a->pos[2], -1, &max);

	if (!rc)
		rc = tmpl_need_str(r, &a->pos[0]);
	if (!rc)
		rc = tmpl_need_str(r, &a->pos[1]);
	if (rc)
		return rc;
	return tmpl_str_replace(r, self, &a->pos[0], &a->pos[1], max, out);
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

static METHOD(join)
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
	int rc = tmpl_need_int(r, &a->pos[0], 0, &width);

	return rc ? rc : tmpl_str_pad(r, self, width, &a->pos[1], where, out);
}

static METHOD(center)
{
	return pad(r, self, a, 0, out);
}

static METHOD(ljust)
{
	return pad(r, self, a, -1, out);
}

static METHOD(rjust)
{
	return pad(r, self, a, 1, out);
}

static METHOD(zfill)
{
	struct tv zero = tv_lit("0", 1), digits = *self, padded, sign;
	int64_t width;
	int rc = tmpl_need_int(r, &a->pos[0], 0, &width);
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

const struct tmpl_func tmpl_str_methods[] = {
	{ "capitalize", tmpl_str_capitalize_method, "", 0 },
	{ "casefold", NULL, NULL, 0 },
	{ "center", tmpl_str_center_method, "width,fillchar", 1 },
	{ "count", tmpl_str_count_method, "sub,start,end", 1 },
	{ "encode", NULL, NULL, 0 },
	{ "endswith", tmpl_str_endswith_method, "suffix,start,end", 1 },
	{ "expandtabs", NULL, NULL, 0 },
	{ "find", tmpl_str_find_method, "sub,start,end", 1 },
	{ "format", tmpl_str_format, NULL, 0 },
	{ "format_map", NULL, NULL, 0 },
	{ "index", tmpl_str_index_method, "sub,start,end", 1 },
	{ "isalnum", tmpl_str_isalnum_method, "", 0 },
	{ "isalpha", tmpl_str_isalpha_method, "", 0 },
	{ "isascii", tmpl_str_isascii_method, "", 0 },
	{ "isdecimal", tmpl_str_isdecimal_method, "", 0 },
	{ "isdigit", tmpl_str_isdigit_method, "", 0 },
	{ "isidentifier", NULL, NULL, 0 },
	{ "islower", tmpl_str_islower_method, "", 0 },
	{ "isnumeric", NULL, NULL, 0 },
	{ "isprintable", tmpl_str_isprintable_method, "", 0 },
	{ "isspace", tmpl_str_isspace_method, "", 0 },
	{ "istitle", NULL, NULL, 0 },
	{ "isupper", tmpl_str_isupper_method, "", 0 },
	{ "join", tmpl_str_join_method, "iterable", 1 },
	{ "ljust", tmpl_str_ljust_method, "width,fillchar", 1 },
	{ "lower", tmpl_str_lower_method, "", 0 },
	{ "lstrip", tmpl_str_lstrip_method, "chars", 0 },
	{ "maketrans", NULL, NULL, 0 },
	{ "partition", tmpl_str_partition_method, "sep", 1 },
	{ "removeprefix", tmpl_str_removeprefix_method, "prefix", 1 },
	{ "removesuffix", tmpl_str_removesuffix_method, "suffix", 1 },
	{ "replace", tmpl_str_replace_method, "old,new,count", 2 },
	{ "rfind", tmpl_str_rfind_method, "sub,start,end", 1 },
	{ "rindex", tmpl_str_rindex_method, "sub,start,end", 1 },
	{ "rjust", tmpl_str_rjust_method, "width,fillchar", 1 },
	{ "rpartition", tmpl_str_rpartition_method, "sep", 1 },
	{ "rsplit", tmpl_str_rsplit_method, "sep,maxsplit", 0 },
	{ "rstrip", tmpl_str_rstrip_method, "chars", 0 },
	{ "split", tmpl_str_split_method, "sep,maxsplit", 0 },
	{ "splitlines", tmpl_str_splitlines_method, "keepends", 0 },
	{ "startswith", tmpl_str_startswith_method, "prefix,start,end", 1 },
	{ "strip", tmpl_str_strip_method, "chars", 0 },
	{ "swapcase", tmpl_str_swapcase_method, "", 0 },
	{ "title", tmpl_str_title_method, "", 0 },
	{ "translate", NULL, NULL, 0 },
	{ "upper", tmpl_str_upper_method, "", 0 },
	{ "zfill", tmpl_str_zfill_method, "width", 1 },
	{ 0 },
};
