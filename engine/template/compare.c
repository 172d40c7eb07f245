/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing values by Python's rules: equality across number types, order,
 * membership, and a stable sort. Depth and work are charged.
 */
#include <errno.h>
#include <math.h>

#include "engine/template/internal.h"

static int dicts_equal(struct tmpl_render *r, const struct tv_dict *a,
		       const struct tv_dict *b, bool *out)
{
	*out = a->n == b->n;
	for (size_t i = 0; *out && i < a->n; i++) {
		const struct tv *v;
		int rc = tv_dict_get(r, b, &a->pairs[i].key, &v);

		*out = v != NULL;
		if (!rc && v)
			rc = tv_equal(r, &a->pairs[i].val, v, out);
		if (rc)
			return rc;
	}
	return 0;
}

static int seqs_equal(struct tmpl_render *r, const struct tv_seq *a,
		      const struct tv_seq *b, bool *out)
{
	*out = a->n == b->n;
	for (size_t i = 0; *out && i < a->n; i++) {
		int rc = tv_equal(r, &a->v[i], &b->v[i], out);

		if (rc)
			return rc;
	}
	return 0;
}

static int same_type_equal(struct tmpl_render *r, const struct tv *a,
			   const struct tv *b, bool *out)
{
	switch (a->type) {
	case TV_NONE:
	case TV_UNDEF:
	case TV_MISSING:
		*out = true;
		return 0;
	case TV_STR:
		*out = a->len == b->len && memcmp(a->u.s, b->u.s, a->len) == 0;
		return tmpl_charge(r, a->len);
	case TV_LIST:
	case TV_TUPLE:
		return seqs_equal(r, a->u.seq, b->u.seq, out);
	case TV_DICT:
		return dicts_equal(r, a->u.dict, b->u.dict, out);
	case TV_RANGE:
		*out = a->u.range->n == b->u.range->n &&
		       (!a->u.range->n ||
			(a->u.range->start == b->u.range->start &&
			 (a->u.range->n == 1 ||
			  a->u.range->step == b->u.range->step)));
		return 0;
	default:
		*out = a->u.s == b->u.s; /* identity */
		return 0;
	}
}

/* -1, 0 or 1; 2 where a NaN makes them unordered. Exact beyond 2^53 too. */
static int int_float_sign(int64_t i, double f)
{
	if (isnan(f))
		return 2;
	if (f >= 9223372036854775808.0)
		return -1;
	if (f < -9223372036854775808.0)
		return 1;
	int64_t whole = (int64_t)f;
	double rest = f - (double)whole;

	if (i != whole)
		return i < whole ? -1 : 1;
	return rest > 0 ? -1 : rest < 0;
}

static int number_sign(const struct tv *a, const struct tv *b)
{
	int sign;

	if (tv_is_int(a) && tv_is_int(b))
		return a->u.i < b->u.i ? -1 : a->u.i > b->u.i;
	if (tv_is_int(a))
		return int_float_sign(a->u.i, b->u.f);
	if (tv_is_int(b)) {
		sign = int_float_sign(b->u.i, a->u.f);
		return sign == 2 ? 2 : -sign;
	}
	if (isnan(a->u.f) || isnan(b->u.f))
		return 2;
	return a->u.f < b->u.f ? -1 : a->u.f > b->u.f;
}

int tv_equal(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	     bool *out)
{
	int rc;

	*out = false;
	if (tv_is_num(a) && tv_is_num(b)) {
		*out = number_sign(a, b) == 0;
		return 0;
	}
	if (a->type != b->type)
		return 0;
	rc = tmpl_enter(r);
	if (rc)
		return rc;
	rc = same_type_equal(r, a, b, out);
	tmpl_leave(r);
	return rc;
}

static bool sign_order(int sign, enum tmpl_op op)
{
	return op == OP_LT ? sign < 0 :
	       op == OP_LE ? sign <= 0 :
	       op == OP_GT ? sign > 0 :
			     sign >= 0;
}

static int seq_order(struct tmpl_render *r, const struct tv_seq *a,
		     const struct tv_seq *b, enum tmpl_op op, bool *out)
{
	for (size_t i = 0; i < a->n && i < b->n; i++) {
		bool is_same;
		int rc = tv_equal(r, &a->v[i], &b->v[i], &is_same);

		if (rc)
			return rc;
		if (!is_same)
			return tv_order(r, &a->v[i], &b->v[i], op, out);
	}
	*out = sign_order(a->n < b->n ? -1 : a->n > b->n, op);
	return 0;
}

static const char *op_text(enum tmpl_op op)
{
	return op == OP_LT ? "<" :
	       op == OP_LE ? "<=" :
	       op == OP_GT ? ">" :
			     ">=";
}

int tv_order(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	     enum tmpl_op op, bool *out)
{
	int rc;

	if (tv_is_num(a) && tv_is_num(b)) {
		int sign = number_sign(a, b);

		*out = sign != 2 && sign_order(sign, op);
		return 0;
	}
	if (a->type == TV_STR && b->type == TV_STR) {
		size_t n = a->len < b->len ? a->len : b->len;
		int sign = n ? memcmp(a->u.s, b->u.s, n) : 0;

		if (!sign)
			sign = a->len < b->len ? -1 : a->len > b->len;
		*out = sign_order(sign, op);
		return tmpl_charge(r, n);
	}
	if (a->type == b->type && (a->type == TV_LIST || a->type == TV_TUPLE)) {
		rc = tmpl_enter(r);
		if (rc)
			return rc;
		rc = seq_order(r, a->u.seq, b->u.seq, op, out);
		tmpl_leave(r);
		return rc;
	}
	if (a->type == TV_UNDEF)
		return tv_undef_use(r, a);
	if (b->type == TV_UNDEF)
		return tv_undef_use(r, b);
	return tmpl_fail(
		r, -EINVAL,
		"'%s' not supported between instances of '%s' and '%s'",
		op_text(op), tv_type_name(a), tv_type_name(b));
}

static int range_contains(const struct tv_range *g, const struct tv *what,
			  bool *out)
{
	int64_t v = what->type == TV_FLOAT ? (int64_t)what->u.f : what->u.i;

	*out = false;
	if (what->type == TV_FLOAT && (double)v != what->u.f)
		return 0;
	if (g->n && (g->step > 0 ? v >= g->start && v < g->stop :
				   v <= g->start && v > g->stop))
		*out = (v - g->start) % g->step == 0;
	return 0;
}

int tv_contains(struct tmpl_render *r, const struct tv *in,
		const struct tv *what, bool *out)
{
	const struct tv *found;
	struct tv_seq seq;
	int rc;

	*out = false;
	switch (in->type) {
	case TV_STR:
		if (what->type != TV_STR)
			return tmpl_fail(
				r, -EINVAL,
				"'in <string>' requires string as left operand, not %s",
				tv_type_name(what));
		*out = !what->len || tmpl_find_first(in->u.s, in->len, what);
		return tmpl_charge(r, (size_t)in->len + what->len);
	case TV_DICT:
		if (!tv_is_hashable(what))
			return tmpl_fail(r, -EINVAL, "unhashable type: '%s'",
					 tv_type_name(what));
		rc = tv_dict_get(r, in->u.dict, what, &found);
		*out = found != NULL;
		return rc;
	case TV_RANGE:
		if (tv_is_int(what) || (what->type == TV_FLOAT &&
					what->u.f > -9e18 && what->u.f < 9e18))
			return range_contains(in->u.range, what, out);
		return 0;
	default:
		rc = tv_items(r, in, &seq);
		for (size_t i = 0; !rc && !*out && i < seq.n; i++) {
			rc = tmpl_charge(r, 0);
			if (!rc)
				rc = tv_equal(r, &seq.v[i], what, out);
		}
		return rc;
	}
}

/*
 * Stable merge sort of @v by @keys (n each); equal ones keep their order with
 * @is_reverse too, as in Python.
 */
int tv_sort(struct tmpl_render *r, struct tv *v, const struct tv *keys,
	    size_t n, bool is_reverse)
{
	uint32_t *idx = tmpl_alloc(r, 2 * n * sizeof(*idx));
	struct tv *sorted = tmpl_alloc(r, n * sizeof(*sorted));
	uint32_t *from = idx, *to = idx + n;

	if (!idx || !sorted)
		return -E2BIG;
	for (size_t i = 0; i < n; i++)
		from[i] = (uint32_t)i;
	for (size_t width = 1; width < n; width *= 2) {
		for (size_t lo = 0; lo < n; lo += 2 * width) {
			size_t mid = lo + width < n ? lo + width : n;
			size_t hi = mid + width < n ? mid + width : n;
			size_t a = lo, b = mid;

			for (size_t k = lo; k < hi; k++) {
				bool take_b = a == mid;
				int rc = tmpl_charge(r, 0);

				if (!rc && a < mid && b < hi)
					rc = tv_order(r, &keys[from[b]],
						      &keys[from[a]],
						      is_reverse ? OP_GT :
								   OP_LT,
						      &take_b);
				if (rc)
					return rc;
				to[k] = take_b ? from[b++] : from[a++];
			}
		}
		uint32_t *t = from;

		from = to;
		to = t;
	}
	for (size_t i = 0; i < n; i++)
		sorted[i] = v[from[i]];
	if (n)
		memcpy(v, sorted, n * sizeof(*v));
	return 0;
}
