/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests of "is": one function each, found by name in tmpl_tests[]. A new
 * one is a function and a line in the table.
 */
#include <errno.h>

#include "engine/template/internal.h"

#define TEST(id, expr)                                                  \
	static int test_##id(struct tmpl_render *r, const struct tv *v, \
			     const struct tmpl_args *a, struct tv *out) \
	{                                                               \
		(void)r;                                                \
		(void)a;                                                \
		*out = tv_bool(expr);                                   \
		return 0;                                               \
	}

TEST(defined, v->type != TV_UNDEF)
TEST(undefined, v->type == TV_UNDEF)
TEST(none, v->type == TV_NONE)
TEST(boolean, v->type == TV_BOOL)
TEST(true, v->type == TV_BOOL && v->u.i)
TEST(false, v->type == TV_BOOL && !v->u.i)
TEST(integer, v->type == TV_INT)
TEST(float, v->type == TV_FLOAT)
TEST(number, tv_is_num(v))
TEST(string, v->type == TV_STR)
TEST(mapping, v->type == TV_DICT)
TEST(iterable, v->type == TV_UNDEF ||
		       (v->type >= TV_STR && v->type <= TV_VIEW) ||
		       v->type == TV_LOOP)
TEST(sequence,
     v->type == TV_UNDEF || (v->type >= TV_STR && v->type <= TV_RANGE))
TEST(callable, v->type == TV_UNDEF || v->type == TV_MACRO ||
		       v->type == TV_FUNC || v->type == TV_METHOD ||
		       v->type == TV_LOOP || v->type == TV_JOINER)
TEST(escaped, v->type == TV_STR && (v->flags & TV_F_MARKUP))
TEST(filter, v->type == TV_STR && tmpl_filter_find(v->u.s, v->len))
TEST(test, v->type == TV_STR && tmpl_find(tmpl_tests, v->u.s, v->len))

/* v % divisor == rest, with the errors of the operator. */
static int modulo_is(struct tmpl_render *r, const struct tv *v,
		     const struct tv *divisor, int64_t rest, struct tv *out)
{
	struct tv m, want = tv_int(rest);
	bool is_same = false;
	int rc = tv_binop(r, OP_MOD, v, divisor, &m);

	if (!rc)
		rc = tv_equal(r, &m, &want, &is_same);
	*out = tv_bool(is_same);
	return rc;
}

static int test_odd(struct tmpl_render *r, const struct tv *v,
		    const struct tmpl_args *a, struct tv *out)
{
	struct tv two = tv_int(2);

	(void)a;
	return modulo_is(r, v, &two, 1, out);
}

static int test_even(struct tmpl_render *r, const struct tv *v,
		     const struct tmpl_args *a, struct tv *out)
{
	struct tv two = tv_int(2);

	(void)a;
	return modulo_is(r, v, &two, 0, out);
}

static int test_divisibleby(struct tmpl_render *r, const struct tv *v,
			    const struct tmpl_args *a, struct tv *out)
{
	return modulo_is(r, v, &a->pos[0], 0, out);
}

/* Cased characters, and all of them in the case asked for. */
static int case_is(struct tmpl_render *r, const struct tv *v,
		   enum tmpl_class want, enum tmpl_class other, struct tv *out)
{
	struct tv s;
	bool has = false;
	int rc = tv_to_str(r, v, &s);

	*out = tv_bool(false);
	if (!rc)
		rc = tmpl_charge(r, s.len);
	for (size_t i = 0; !rc && i < s.len;) {
		uint32_t cp;

		i += tmpl_u8_decode(s.u.s + i, s.len - i, &cp);
		if (tmpl_cp_is(r, cp, other) ||
		    (cp >= 0x80 && tmpl_cp_is(r, cp, TMPL_TITLE)))
			return 0;
		has |= tmpl_cp_is(r, cp, want);
	}
	*out = tv_bool(has);
	return rc;
}

static int test_lower(struct tmpl_render *r, const struct tv *v,
		      const struct tmpl_args *a, struct tv *out)
{
	(void)a;
	return case_is(r, v, TMPL_LOWER, TMPL_UPPER, out);
}

static int test_upper(struct tmpl_render *r, const struct tv *v,
		      const struct tmpl_args *a, struct tv *out)
{
	(void)a;
	return case_is(r, v, TMPL_UPPER, TMPL_LOWER, out);
}

static int test_eq(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	bool is_same;
	int rc = tv_equal(r, v, &a->pos[0], &is_same);

	*out = tv_bool(is_same);
	return rc;
}

static int test_ne(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	int rc = test_eq(r, v, a, out);

	*out = tv_bool(!out->u.i);
	return rc;
}

static int order(struct tmpl_render *r, const struct tv *v,
		 const struct tmpl_args *a, enum tmpl_op op, struct tv *out)
{
	bool holds = false;
	int rc = tv_order(r, v, &a->pos[0], op, &holds);

	*out = tv_bool(holds);
	return rc;
}

static int test_lt(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	return order(r, v, a, OP_LT, out);
}

static int test_le(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	return order(r, v, a, OP_LE, out);
}

static int test_gt(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	return order(r, v, a, OP_GT, out);
}

static int test_ge(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	return order(r, v, a, OP_GE, out);
}

static int test_in(struct tmpl_render *r, const struct tv *v,
		   const struct tmpl_args *a, struct tv *out)
{
	bool holds;
	int rc = tv_contains(r, &a->pos[0], v, &holds);

	*out = tv_bool(holds);
	return rc;
}

/* "is": one object; small values are the same object when equal. */
static int test_sameas(struct tmpl_render *r, const struct tv *v,
		       const struct tmpl_args *a, struct tv *out)
{
	const struct tv *o = &a->pos[0];
	bool is_same = v->type == o->type;

	if (is_same && v->type > TV_FLOAT)
		is_same = v->u.s == o->u.s && v->len == o->len;
	else if (is_same)
		return test_eq(r, v, a, out);
	*out = tv_bool(is_same);
	return 0;
}

const struct tmpl_func tmpl_tests[] = {
	{ "defined", test_defined, "", 0 },
	{ "undefined", test_undefined, "", 0 },
	{ "none", test_none, "", 0 },
	{ "boolean", test_boolean, "", 0 },
	{ "true", test_true, "", 0 },
	{ "false", test_false, "", 0 },
	{ "integer", test_integer, "", 0 },
	{ "float", test_float, "", 0 },
	{ "number", test_number, "", 0 },
	{ "string", test_string, "", 0 },
	{ "mapping", test_mapping, "", 0 },
	{ "iterable", test_iterable, "", 0 },
	{ "sequence", test_sequence, "", 0 },
	{ "callable", test_callable, "", 0 },
	{ "escaped", test_escaped, "", 0 },
	{ "filter", test_filter, "", 0 },
	{ "test", test_test, "", 0 },
	{ "odd", test_odd, "", 0 },
	{ "even", test_even, "", 0 },
	{ "divisibleby", test_divisibleby, "num", 1 },
	{ "lower", test_lower, "", 0 },
	{ "upper", test_upper, "", 0 },
	{ "sameas", test_sameas, "other", 1 },
	{ "in", test_in, "seq", 1 },
	{ "eq", test_eq, "b", 1 },
	{ "equalto", test_eq, "b", 1 },
	{ "==", test_eq, "b", 1 },
	{ "ne", test_ne, "b", 1 },
	{ "!=", test_ne, "b", 1 },
	{ "lt", test_lt, "b", 1 },
	{ "lessthan", test_lt, "b", 1 },
	{ "<", test_lt, "b", 1 },
	{ "le", test_le, "b", 1 },
	{ "<=", test_le, "b", 1 },
	{ "gt", test_gt, "b", 1 },
	{ "greaterthan", test_gt, "b", 1 },
	{ ">", test_gt, "b", 1 },
	{ "ge", test_ge, "b", 1 },
	{ ">=", test_ge, "b", 1 },
	{ 0 },
};

const struct tmpl_func *tmpl_find(const struct tmpl_func *table, const char *s,
				  size_t n)
{
	for (; table->name; table++)
		if (strlen(table->name) == n && memcmp(table->name, s, n) == 0)
			return table;
	return NULL;
}
