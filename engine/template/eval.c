/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions: syntax tree to values. Each node costs a step and a level of
 * depth, so that neither time nor the C stack can run away.
 */
#include <errno.h>

#include "engine/template/internal.h"

static int eval_name(struct tmpl_render *r, uint32_t id, struct tv *out)
{
	const struct tmpl_name *name = &r->t->names[id];
	const struct tmpl_func *f;
	const struct tv *v;

	for (struct tmpl_scope *s = r->scope; s; s = s->parent) {
		for (uint32_t i = 0; i < s->n; i++) {
			if (s->vars[i].name == id) {
				*out = s->vars[i].v;
				return 0;
			}
		}
	}
	v = tv_dict_get_str(r->context, name->s, name->len);
	if (v) {
		*out = *v;
		return 0;
	}
	f = tmpl_find(tmpl_globals, name->s, name->len);
	if (f) {
		*out = (struct tv){ .type = TV_FUNC, .u.func = f };
		return 0;
	}
	return tv_undef(r, out, "'%.*s' is undefined",
			name->len < 80 ? (int)name->len : 80, name->s);
}

static int eval_items(struct tmpl_render *r, const struct tnode *n,
		      struct tv *out)
{
	struct tv *v = tmpl_alloc(r, n->nr_items * sizeof(*v));

	if (!v)
		return -E2BIG;
	for (uint32_t i = 0; i < n->nr_items; i++) {
		int rc = tmpl_eval(r, n->items[i], &v[i]);

		if (rc)
			return rc;
	}
	return tv_seq_new(r, n->type == TN_LIST ? TV_LIST : TV_TUPLE, v,
			  n->nr_items, out);
}

static int eval_dict(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	struct tv_dict *d;
	int rc = tv_dict_new(r, n->nr_items / 2, &d);

	for (uint32_t i = 0; !rc && i < n->nr_items; i += 2) {
		struct tv k, v;

		rc = tmpl_eval(r, n->items[i], &k);
		if (!rc)
			rc = tmpl_eval(r, n->items[i + 1], &v);
		if (!rc)
			rc = tv_dict_set(r, d, &k, &v);
	}
	*out = (struct tv){ .type = TV_DICT, .u.dict = d };
	return rc;
}

static int eval_getitem(struct tmpl_render *r, const struct tnode *n,
			struct tv *out)
{
	const struct tnode *part[3] = { n->b->a, n->b->b, n->b->c };
	struct tv v, key[3];
	int rc = tmpl_eval(r, n->a, &v);

	if (rc)
		return rc;
	if (n->b->type != TN_SLICE) {
		rc = tmpl_eval(r, n->b, &key[0]);
		r->line = n->line;
		return rc ? rc : tv_getitem(r, &v, &key[0], out);
	}
	for (int i = 0; !rc && i < 3; i++)
		if (part[i])
			rc = tmpl_eval(r, part[i], &key[i]);
	if (rc)
		return rc;
	return tv_slice(r, &v, part[0] ? &key[0] : NULL,
			part[1] ? &key[1] : NULL, part[2] ? &key[2] : NULL,
			out);
}

static int eval_call(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	struct tmpl_args a;
	struct tv fn;
	int rc = tmpl_eval(r, n->a, &fn);

	if (!rc)
		rc = tmpl_eval_args(r, n->args, &a);
	r->line = n->line;
	return rc ? rc : tmpl_call(r, &fn, &a, out);
}

static int eval_func(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	bool is_test = n->type == TN_TEST;
	const struct tmpl_name *name = &r->t->names[n->name];
	struct tmpl_args a;
	struct tv in;
	int rc = 0;

	if (!n->func)
		return tmpl_fail(r, -EINVAL, "unknown %s '%.*s'",
				 is_test ? "test" : "filter",
				 name->len < 80 ? (int)name->len : 80, name->s);
	rc = tmpl_eval(r, n->a, &in);
	if (!rc)
		rc = tmpl_eval_args(r, n->args, &a);
	r->line = n->line;
	if (rc)
		return rc;
	return tmpl_call_func(r, is_test ? "test" : "filter", n->func, &in, &a,
			      out);
}

static int eval_sign(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	struct tv zero = tv_int(0), v;
	int rc = tmpl_eval(r, n->a, &v);

	if (rc)
		return rc;
	if (v.type == TV_UNDEF)
		return tv_undef_use(r, &v);
	if (!tv_is_num(&v))
		return tmpl_fail(r, -EINVAL,
				 "bad operand type for unary %s: '%s'",
				 n->type == TN_NEG ? "-" : "+",
				 tv_type_name(&v));
	if (v.type == TV_FLOAT) {
		*out = tv_float(n->type == TN_NEG ? -v.u.f : v.u.f);
		return 0;
	}
	return tv_binop(r, n->type == TN_NEG ? OP_SUB : OP_ADD, &zero, &v, out);
}

/* and, or: the value that decided, as in Python. */
static int eval_logic(struct tmpl_render *r, const struct tnode *n,
		      struct tv *out)
{
	int rc = tmpl_eval(r, n->a, out);

	if (rc || tv_truth(out) == (n->type == TN_OR))
		return rc;
	return tmpl_eval(r, n->b, out);
}

static int eval_cond(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	struct tv test;
	int rc = tmpl_eval(r, n->b, &test);

	if (rc)
		return rc;
	if (tv_truth(&test))
		return tmpl_eval(r, n->a, out);
	if (n->c)
		return tmpl_eval(r, n->c, out);
	return tv_undef(r, out,
			"the inline if on line %u is false and has no else",
			n->line);
}

static int eval_concat(struct tmpl_render *r, const struct tnode *n,
		       struct tv *out)
{
	struct tv all = tv_lit("", 0);

	for (uint32_t i = 0; i < n->nr_items; i++) {
		struct tv v;
		int rc = tmpl_eval(r, n->items[i], &v);

		if (!rc && i == 0)
			rc = tv_to_str(r, &v, &all);
		else if (!rc)
			rc = tv_concat(r, &all, &v, &all);
		if (rc)
			return rc;
	}
	all.flags = 0;
	*out = all;
	return 0;
}

static int compare_one(struct tmpl_render *r, enum tmpl_op op,
		       const struct tv *a, const struct tv *b, bool *out)
{
	int rc;

	switch (op) {
	case OP_EQ:
	case OP_NE:
		rc = tv_equal(r, a, b, out);
		*out = *out == (op == OP_EQ);
		return rc;
	case OP_IN:
	case OP_NOTIN:
		rc = tv_contains(r, b, a, out);
		*out = *out == (op == OP_IN);
		return rc;
	default:
		return tv_order(r, a, b, op, out);
	}
}

static int eval_compare(struct tmpl_render *r, const struct tnode *n,
			struct tv *out)
{
	struct tv a, b;
	bool holds = true;
	int rc = tmpl_eval(r, n->a, &a);

	for (uint32_t i = 0; !rc && holds && i < n->nr_items; i++) {
		rc = tmpl_eval(r, n->items[i], &b);
		r->line = n->line;
		if (!rc)
			rc = compare_one(r, n->ops[i], &a, &b, &holds);
		a = b;
	}
	*out = tv_bool(holds);
	return rc;
}

static int eval_binop(struct tmpl_render *r, const struct tnode *n,
		      struct tv *out)
{
	struct tv a, b;
	int rc = tmpl_eval(r, n->a, &a);

	if (!rc)
		rc = tmpl_eval(r, n->b, &b);
	r->line = n->line;
	return rc ? rc : tv_binop(r, n->op, &a, &b, out);
}

static int eval_attr(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	const struct tmpl_name *name = &r->t->names[n->name];
	struct tv v, key = tv_lit(name->s, name->len);
	int rc = tmpl_eval(r, n->a, &v);

	r->line = n->line;
	return rc ? rc : tv_getattr(r, &v, &key, out);
}

static int eval_node(struct tmpl_render *r, const struct tnode *n,
		     struct tv *out)
{
	int rc;

	switch (n->type) {
	case TN_CONST:
		*out = n->value;
		return 0;
	case TN_NAME:
		return eval_name(r, n->name, out);
	case TN_LIST:
	case TN_TUPLE:
		return eval_items(r, n, out);
	case TN_DICT:
		return eval_dict(r, n, out);
	case TN_GETATTR:
		return eval_attr(r, n, out);
	case TN_GETITEM:
		return eval_getitem(r, n, out);
	case TN_CALL:
		return eval_call(r, n, out);
	case TN_FILTER:
	case TN_TEST:
		return eval_func(r, n, out);
	case TN_NEG:
	case TN_POS:
		return eval_sign(r, n, out);
	case TN_NOT:
		rc = tmpl_eval(r, n->a, out);
		*out = tv_bool(!rc && !tv_truth(out));
		return rc;
	case TN_AND:
	case TN_OR:
		return eval_logic(r, n, out);
	case TN_COND:
		return eval_cond(r, n, out);
	case TN_CONCAT:
		return eval_concat(r, n, out);
	case TN_COMPARE:
		return eval_compare(r, n, out);
	case TN_BINOP:
		return eval_binop(r, n, out);
	case TN_CAPTURED:
		*out = r->captured;
		return 0;
	default:
		return tmpl_fail(r, -EINVAL, "not an expression");
	}
}

int tmpl_eval(struct tmpl_render *r, const struct tnode *n, struct tv *out)
{
	int rc;

	r->line = n->line;
	rc = tmpl_enter(r);
	if (rc)
		return rc;
	*out = tv_none();
	rc = eval_node(r, n, out);
	tmpl_leave(r);
	return rc;
}
