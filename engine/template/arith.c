/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on values: numbers by Python's rules (floor division, modulo with
 * the divisor's sign; integers are 64 bits and overflow is an error), joining
 * and repeating of sequences, slices.
 */
#include <errno.h>
#include <math.h>

#include "engine/template/internal.h"

static const char *const op_names[] = {
	[OP_ADD] = "+", [OP_SUB] = "-",	      [OP_MUL] = "*",  [OP_DIV] = "/",
	[OP_MOD] = "%", [OP_FLOORDIV] = "//", [OP_POW] = "**",
};

static int overflow(struct tmpl_render *r, enum tmpl_op op)
{
	return tmpl_fail(r, -EINVAL, "integer overflow in '%s' (64 bits)",
			 op_names[op]);
}

static int int_pow(struct tmpl_render *r, int64_t base, int64_t exp,
		   struct tv *out)
{
	int64_t v = 1;

	while (exp > 0) {
		if ((exp & 1) && __builtin_mul_overflow(v, base, &v))
			return overflow(r, OP_POW);
		exp >>= 1;
		if (exp && __builtin_mul_overflow(base, base, &base))
			return overflow(r, OP_POW);
	}
	*out = tv_int(v);
	return 0;
}

static int int_divide(struct tmpl_render *r, enum tmpl_op op, int64_t a,
		      int64_t b, struct tv *out)
{
	if (b == 0)
		return tmpl_fail(r, -EINVAL, "division by zero in '%s'",
				 op_names[op]);
	if (op == OP_DIV) {
		*out = tv_float((double)a / (double)b);
		return 0;
	}
	if (b == -1) {
		if (op == OP_FLOORDIV && a == INT64_MIN)
			return overflow(r, op);
		*out = tv_int(op == OP_MOD ? 0 : -a);
		return 0;
	}
	int64_t q = a / b, m = a % b;

	if (m != 0 && (m < 0) != (b < 0)) {
		q--;
		m += b;
	}
	*out = tv_int(op == OP_MOD ? m : q);
	return 0;
}

static int int_op(struct tmpl_render *r, enum tmpl_op op, int64_t a, int64_t b,
		  struct tv *out)
{
	int64_t v = 0;
	bool is_over;

	switch (op) {
	case OP_ADD:
		is_over = __builtin_add_overflow(a, b, &v);
		break;
	case OP_SUB:
		is_over = __builtin_sub_overflow(a, b, &v);
		break;
	case OP_MUL:
		is_over = __builtin_mul_overflow(a, b, &v);
		break;
	case OP_POW:
		if (b >= 0)
			return int_pow(r, a, b, out);
		if (a == 0)
			return tmpl_fail(r, -EINVAL, "0 to a negative power");
		*out = tv_float(pow((double)a, (double)b));
		return 0;
	default:
		return int_divide(r, op, a, b, out);
	}
	if (is_over)
		return overflow(r, op);
	*out = tv_int(v);
	return 0;
}

static int float_op(struct tmpl_render *r, enum tmpl_op op, double a, double b,
		    struct tv *out)
{
	double v = 0;

	if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
		return tmpl_fail(r, -EINVAL, "division by zero in '%s'",
				 op_names[op]);
	switch (op) {
	case OP_ADD:
		v = a + b;
		break;
	case OP_SUB:
		v = a - b;
		break;
	case OP_MUL:
		v = a * b;
		break;
	case OP_DIV:
		v = a / b;
		break;
	case OP_POW:
		if ((a == 0 && b < 0) || (a < 0 && b != floor(b)))
			return tmpl_fail(r, -EINVAL,
					 "power without a real result");
		v = pow(a, b);
		break;
	default:
		v = fmod(a, b);
		if (v != 0 && (v < 0) != (b < 0))
			v += b;
		if (op == OP_FLOORDIV)
			v = floor((a - v) / b + 0.5);
		else if (v == 0)
			v = copysign(0.0, b);
		break;
	}
	*out = tv_float(v);
	return 0;
}

/* Joins text; the left side grows in place where it is the latest value. */
static int join_strs(struct tmpl_render *r, const struct tv *a,
		     const struct tv *b, struct tv *out)
{
	size_t n = (size_t)a->len + b->len;
	int rc = tmpl_charge(r, b->len);
	char *p;

	if (rc)
		return rc;
	*out = *a;
	if (!b->len)
		return 0;
	if (n > UINT32_MAX / 2)
		return tmpl_fail(r, -E2BIG, "string too long");
	if (a->len && tmpl_arena_extend(&r->arena, a->u.s + a->len, b->len)) {
		/* the bytes behind a's end are ours alone now */
		p = r->arena.head ? (char *)(uintptr_t)a->u.s : NULL;
	} else {
		p = tmpl_alloc(r, n);
		if (!p)
			return -E2BIG;
		if (a->len)
			memcpy(p, a->u.s, a->len);
	}
	memcpy(p + a->len, b->u.s, b->len);
	out->u.s = p;
	out->len = (uint32_t)n;
	return 0;
}

static int escape_str(struct tmpl_render *r, const struct tv *v, struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc = tmpl_put_html(r, &b, v);

	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

static int add_strs(struct tmpl_render *r, const struct tv *a,
		    const struct tv *b, struct tv *out)
{
	struct tv x = *a, y = *b;
	int rc = 0;

	if (!((a->flags | b->flags) & TV_F_MARKUP))
		return join_strs(r, a, b, out);
	if (!(a->flags & TV_F_MARKUP))
		rc = escape_str(r, a, &x);
	if (!rc && !(b->flags & TV_F_MARKUP))
		rc = escape_str(r, b, &y);
	if (!rc)
		rc = join_strs(r, &x, &y, out);
	out->flags = TV_F_MARKUP;
	return rc;
}

static int join_seqs(struct tmpl_render *r, enum tv_type type,
		     const struct tv_seq *a, const struct tv_seq *b,
		     struct tv *out)
{
	struct tv *v = tmpl_alloc(r, (a->n + b->n) * sizeof(*v));

	if (!v)
		return -E2BIG;
	if (a->n)
		memcpy(v, a->v, a->n * sizeof(*v));
	if (b->n)
		memcpy(v + a->n, b->v, b->n * sizeof(*v));
	return tv_seq_new(r, type, v, a->n + b->n, out);
}

static int repeat(struct tmpl_render *r, const struct tv *v, int64_t times,
		  struct tv *out)
{
	bool is_str = v->type == TV_STR;
	size_t unit = is_str ? v->len : v->u.seq->n * sizeof(struct tv);
	const void *src = is_str ? (const void *)v->u.s :
				   (const void *)v->u.seq->v;
	size_t total;
	char *p;

	if (times < 0 || unit == 0)
		times = 0;
	if (__builtin_mul_overflow(unit, (size_t)times, &total) ||
	    total > r->lim.max_value_bytes)
		return tmpl_fail(
			r, -E2BIG,
			"repeating %lld times is over the limit of %zu bytes",
			(long long)times, r->lim.max_value_bytes);
	p = tmpl_alloc(r, total);
	if (!p)
		return -E2BIG;
	for (size_t at = 0; at < total; at += unit)
		memcpy(p + at, src, unit);
	if (!is_str)
		return tv_seq_new(r, v->type, (struct tv *)(void *)p,
				  total / sizeof(struct tv), out);
	*out = tv_lit(p, total);
	out->flags = v->flags;
	return 0;
}

static bool is_seq(const struct tv *v)
{
	return v->type == TV_STR || v->type == TV_LIST || v->type == TV_TUPLE;
}

int tv_binop(struct tmpl_render *r, enum tmpl_op op, const struct tv *a,
	     const struct tv *b, struct tv *out)
{
	if (tv_is_int(a) && tv_is_int(b))
		return int_op(r, op, a->u.i, b->u.i, out);
	if (tv_is_num(a) && tv_is_num(b))
		return float_op(r, op, tv_num(a), tv_num(b), out);
	if (op == OP_ADD && a->type == b->type && is_seq(a)) {
		if (a->type == TV_STR)
			return add_strs(r, a, b, out);
		return join_seqs(r, a->type, a->u.seq, b->u.seq, out);
	}
	if (op == OP_MUL && is_seq(a) && tv_is_int(b))
		return repeat(r, a, b->u.i, out);
	if (op == OP_MUL && is_seq(b) && tv_is_int(a))
		return repeat(r, b, a->u.i, out);
	if (op == OP_MOD && a->type == TV_STR) {
		struct tmpl_args args = { .pos = b, .nr_pos = 1 };

		if (b->type == TV_TUPLE) {
			args.pos = b->u.seq->v;
			args.nr_pos = b->u.seq->n;
		}
		/* What Python could index by name need not be used up. */
		return tmpl_percent(r, a, &args,
				    tv_is_num(b) || b->type == TV_NONE ||
						    b->type == TV_STR ||
						    b->type == TV_TUPLE ?
					    NULL :
					    b,
				    out);
	}
	if (a->type == TV_UNDEF)
		return tv_undef_use(r, a);
	if (b->type == TV_UNDEF)
		return tv_undef_use(r, b);
	if (op == OP_ADD && is_seq(a))
		return tmpl_fail(r, -EINVAL,
				 "can only concatenate %s (not \"%s\") to %s",
				 tv_type_name(a), tv_type_name(b),
				 tv_type_name(a));
	return tmpl_fail(r, -EINVAL,
			 "unsupported operand types for %s: '%s' and '%s'",
			 op_names[op], tv_type_name(a), tv_type_name(b));
}

/* a ~ b: both as plain text. */
int tv_concat(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	      struct tv *out)
{
	struct tv y;
	int rc;

	if (b->type != TV_STR && a->type == TV_STR) {
		struct tmpl_buf buf = { 0 };

		/* printed beside the arena, so that a can grow in place */
		rc = tv_print(r, &buf, b);
		y = tv_lit(buf.data ? buf.data : "", buf.len);
		if (!rc)
			rc = join_strs(r, a, &y, out);
		tmpl_buf_deinit(&buf);
	} else {
		struct tv x;

		rc = tv_to_str(r, a, &x);
		if (!rc)
			rc = tv_to_str(r, b, &y);
		if (!rc)
			rc = join_strs(r, &x, &y, out);
	}
	out->flags = 0;
	return rc;
}

/* Clamps one end of a slice as Python's slice.indices() does. */
static int64_t slice_end(const struct tv *v, int64_t n, int64_t step,
			 int64_t dflt)
{
	int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
	int64_t i;

	if (!v || v->type == TV_NONE)
		return dflt;
	i = v->u.i;
	if (i < 0)
		i = i < -n ? lo : i + n;
	return i < lo ? lo : i > hi ? hi : i;
}

struct slice {
	int64_t start, step, n;
};

static int slice_indices(struct tmpl_render *r, const struct tv *lo,
			 const struct tv *hi, const struct tv *step, int64_t n,
			 struct slice *out)
{
	const struct tv *part[3] = { lo, hi, step };
	int64_t stop;

	for (int i = 0; i < 3; i++)
		if (part[i] && part[i]->type == TV_UNDEF)
			return tv_undef_use(r, part[i]);
	for (int i = 0; i < 3; i++)
		if (part[i] && part[i]->type != TV_NONE && !tv_is_int(part[i]))
			return tmpl_fail(
				r, -EINVAL,
				"slice indices must be integers or None");
	out->step = step && step->type != TV_NONE ? step->u.i : 1;
	if (out->step == 0)
		return tmpl_fail(r, -EINVAL, "slice step cannot be zero");
	if (out->step < -INT64_MAX)
		out->step = -INT64_MAX;
	out->start = slice_end(lo, n, out->step, out->step < 0 ? n - 1 : 0);
	stop = slice_end(hi, n, out->step, out->step < 0 ? -1 : n);
	out->n = 0;
	if (out->step > 0 && stop > out->start)
		out->n = (stop - out->start - 1) / out->step + 1;
	if (out->step < 0 && stop < out->start)
		out->n = (out->start - stop - 1) / -out->step + 1;
	return 0;
}

static int slice_str(struct tmpl_render *r, const struct tv *v,
		     const struct slice *s, struct tv *out)
{
	struct tv_seq chars;
	size_t len = 0;
	char *p;
	int rc;

	if (s->step == 1) {
		size_t from = tmpl_u8_offset(v->u.s, v->len, (size_t)s->start);
		size_t n = tmpl_u8_offset(v->u.s + from, v->len - from,
					  (size_t)s->n);

		*out = tv_lit(v->u.s + from, n);
		out->flags = v->flags;
		return tmpl_charge(r, v->len);
	}
	rc = tv_items(r, v, &chars);
	if (rc)
		return rc;
	p = tmpl_alloc(r, v->len);
	if (!p)
		return -E2BIG;
	for (int64_t i = 0; i < s->n; i++) {
		const struct tv *c = &chars.v[s->start + i * s->step];

		memcpy(p + len, c->u.s, c->len);
		len += c->len;
	}
	*out = tv_lit(p, len);
	out->flags = v->flags;
	return 0;
}

static int slice_range(struct tmpl_render *r, const struct tv_range *g,
		       const struct slice *s, struct tv *out)
{
	struct tv_range *n = tmpl_alloc(r, sizeof(*n));

	if (!n)
		return -E2BIG;
	/* in unsigned arithmetic: an empty slice may have any step */
	n->start = (int64_t)((uint64_t)g->start +
			     (uint64_t)s->start * (uint64_t)g->step);
	n->step = (int64_t)((uint64_t)g->step * (uint64_t)s->step);
	n->stop = (int64_t)((uint64_t)n->start +
			    (uint64_t)s->n * (uint64_t)n->step);
	n->n = s->n;
	*out = (struct tv){ .type = TV_RANGE, .u.range = n };
	return 0;
}

/* v[lo:hi:step]; a part is NULL where it was left out. */
int tv_slice(struct tmpl_render *r, const struct tv *v, const struct tv *lo,
	     const struct tv *hi, const struct tv *step, struct tv *out)
{
	struct slice s = { 0 };
	struct tv *items;
	size_t n;
	int rc;

	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	if (!is_seq(v) && v->type != TV_RANGE)
		return tmpl_fail(r, -EINVAL, "'%s' object cannot be sliced",
				 tv_type_name(v));
	rc = tv_len(r, v, &n);
	if (!rc)
		rc = slice_indices(r, lo, hi, step, (int64_t)n, &s);
	if (rc)
		return rc;
	if (v->type == TV_STR)
		return slice_str(r, v, &s, out);
	if (v->type == TV_RANGE)
		return slice_range(r, v->u.range, &s, out);
	items = tmpl_alloc(r, (size_t)s.n * sizeof(*items));
	if (!items)
		return -E2BIG;
	for (int64_t i = 0; i < s.n; i++)
		items[i] = v->u.seq->v[s.start + i * s.step];
	return tv_seq_new(r, v->type, items, (size_t)s.n, out);
}
