/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operands of expressions: literals, names, subscripts, calls, filters,
 * tests; and how nodes are made for all of the parser. Depth of the recursion
 * and height of every tree are bounded, so that no later walk can exhaust the
 * stack.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/template/internal.h"

int tmpl_cfail(struct tmpl_compile *c, int rc, uint32_t line, const char *fmt,
	       ...)
{
	va_list ap;

	if (!c->errlen)
		return rc;
	int n = snprintf(c->err, c->errlen, "line %u: ", line);

	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < c->errlen)
		vsnprintf(c->err + n, c->errlen - (size_t)n, fmt, ap);
	va_end(ap);
	return rc;
}

static int no_memory(struct tmpl_compile *c)
{
	return tmpl_cfail(c, -ENOMEM, tmpl_tok(c)->line, "out of memory");
}

int tmpl_new_node(struct tmpl_compile *c, enum tnode_type type, uint32_t line,
		  struct tnode **out)
{
	struct tnode *n = tmpl_arena_alloc(&c->t->arena, sizeof(*n));

	if (!n)
		return no_memory(c);
	*n = (struct tnode){ .type = (uint8_t)type, .height = 1, .line = line };
	*out = n;
	return 0;
}

static void raise_height(struct tnode *n, const struct tnode *child)
{
	if (child && child->height >= n->height)
		n->height = (uint16_t)(child->height + 1);
}

/* To be called once all children of @n are in place. */
int tmpl_node_done(struct tmpl_compile *c, struct tnode *n)
{
	raise_height(n, n->a);
	raise_height(n, n->b);
	raise_height(n, n->c);
	for (uint32_t i = 0; i < n->nr_items; i++)
		raise_height(n, n->items[i]);
	for (uint32_t i = 0; n->args && i < n->args->nr_pos; i++)
		raise_height(n, n->args->pos[i]);
	for (uint32_t i = 0; n->args && i < n->args->nr_kw; i++)
		raise_height(n, n->args->kw[i].value);
	if (n->args) {
		raise_height(n, n->args->star);
		raise_height(n, n->args->star2);
	}
	if (n->height > TMPL_MAX_HEIGHT)
		return tmpl_cfail(c, -E2BIG, n->line,
				  "nested more than %d deep", TMPL_MAX_HEIGHT);
	return 0;
}

/* The list lies in the arena; growing leaves the old copy behind. */
int tmpl_nodes_add(struct tmpl_compile *c, struct tmpl_nodes *l,
		   struct tnode *n)
{
	if (l->n == l->cap) {
		uint32_t cap = l->cap ? l->cap * 2 : 4;
		struct tnode **v =
			tmpl_arena_alloc(&c->t->arena, cap * sizeof(*v));

		if (!v)
			return no_memory(c);
		if (l->n)
			memcpy(v, l->v, l->n * sizeof(*v));
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = n;
	return 0;
}

int tmpl_name_id(struct tmpl_compile *c, const char *s, size_t len,
		 uint32_t *out)
{
	struct template *t = c->t;

	for (uint32_t i = 0; i < t->nr_names; i++) {
		if (t->names[i].len == len &&
		    memcmp(t->names[i].s, s, len) == 0) {
			*out = i;
			return 0;
		}
	}
	if (t->nr_names >= 4096)
		return tmpl_cfail(c, -E2BIG, tmpl_tok(c)->line,
				  "more than 4096 names");
	if (t->nr_names == t->cap_names) {
		uint32_t cap = t->cap_names ? t->cap_names * 2 : 64;
		struct tmpl_name *v =
			tmpl_arena_alloc(&t->arena, cap * sizeof(*v));

		if (!v)
			return no_memory(c);
		if (t->nr_names)
			memcpy(v, t->names, t->nr_names * sizeof(*v));
		t->names = v;
		t->cap_names = cap;
	}
	t->names[t->nr_names] = (struct tmpl_name){ s, (uint32_t)len };
	*out = t->nr_names++;
	return 0;
}

static int tok_name(struct tmpl_compile *c, uint32_t *out)
{
	const struct ttok *t = tmpl_tok(c);

	if (t->type != TK_NAME)
		return tmpl_unexpected(c, "a name");
	c->pos++;
	return tmpl_name_id(c, t->s, t->len, out);
}

static int const_node(struct tmpl_compile *c, uint32_t line, struct tv v,
		      struct tnode **out)
{
	int rc = tmpl_new_node(c, TN_CONST, line, out);

	if (!rc)
		(*out)->value = v;
	return rc;
}

/* Adjacent string literals are one. */
static int parse_strings(struct tmpl_compile *c, struct tnode **out)
{
	size_t first = c->pos, len = 0;
	uint32_t line = tmpl_tok(c)->line;

	while (tmpl_tok(c)->type == TK_STR) {
		len += tmpl_tok(c)->len;
		c->pos++;
	}
	if (c->pos == first + 1)
		return const_node(c, line, tv_lit(c->toks[first].s, len), out);
	char *s = tmpl_arena_alloc(&c->t->arena, len + 1);

	if (!s)
		return no_memory(c);
	len = 0;
	for (size_t i = first; i < c->pos; i++) {
		memcpy(s + len, c->toks[i].s, c->toks[i].len);
		len += c->toks[i].len;
	}
	return const_node(c, line, tv_lit(s, len), out);
}

static int parse_items(struct tmpl_compile *c, struct tnode *n, bool pairs,
		       const char *end)
{
	struct tmpl_nodes l = { 0 };
	int rc = tmpl_expect_op(c, pairs ? "{" : "[");

	while (!rc && !tmpl_at_op(c, end)) {
		struct tnode *v;

		if (l.n && (rc = tmpl_expect_op(c, ",")))
			break;
		if (tmpl_at_op(c, end))
			break;
		rc = tmpl_parse_expr(c, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
		if (rc || !pairs)
			continue;
		rc = tmpl_expect_op(c, ":");
		if (!rc)
			rc = tmpl_parse_expr(c, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
	}
	n->items = l.v;
	n->nr_items = l.n;
	return rc ? rc : tmpl_expect_op(c, end);
}

static int parse_name(struct tmpl_compile *c, bool ns, struct tnode **out)
{
	const struct ttok *t = tmpl_tok(c);
	struct tv name = tv_lit(t->s, t->len);
	int rc;

	if (tv_streq(&name, "true") || tv_streq(&name, "True"))
		rc = const_node(c, t->line, tv_bool(true), out);
	else if (tv_streq(&name, "false") || tv_streq(&name, "False"))
		rc = const_node(c, t->line, tv_bool(false), out);
	else if (tv_streq(&name, "none") || tv_streq(&name, "None"))
		rc = const_node(c, t->line, tv_none(), out);
	else {
		rc = tmpl_new_node(c, TN_NAME, t->line, out);
		if (!rc)
			rc = tmpl_name_id(c, t->s, t->len, &(*out)->name);
		if (tv_streq(&name, "caller"))
			c->macro_seen |= MACRO_CALLER;
		if (tv_streq(&name, "varargs"))
			c->macro_seen |= MACRO_VARARGS;
		if (tv_streq(&name, "kwargs"))
			c->macro_seen |= MACRO_KWARGS;
		c->pos++;
		if (!rc && ns && tmpl_skip_op(c, ".")) {
			(*out)->type = TN_NSREF;
			rc = tok_name(c, &(*out)->name2);
		}
		return rc;
	}
	c->pos++;
	return rc;
}

int tmpl_parse_primary(struct tmpl_compile *c, bool ns, struct tnode **out)
{
	const struct ttok *t = tmpl_tok(c);
	int rc;

	switch (t->type) {
	case TK_NAME:
		return parse_name(c, ns, out);
	case TK_STR:
		return parse_strings(c, out);
	case TK_INT:
		c->pos++;
		return const_node(c, t->line, tv_int(t->i), out);
	case TK_FLOAT:
		c->pos++;
		return const_node(c, t->line, tv_float(t->f), out);
	default:
		break;
	}
	if (tmpl_skip_op(c, "(")) {
		rc = tmpl_parse_tuple(c, TUPLE_PARENS, out);
		return rc ? rc : tmpl_expect_op(c, ")");
	}
	bool is_list = tmpl_at_op(c, "[");

	if (!is_list && !tmpl_at_op(c, "{"))
		return tmpl_unexpected(c, "an expression");
	rc = tmpl_new_node(c, is_list ? TN_LIST : TN_DICT, t->line, out);
	if (!rc)
		rc = parse_items(c, *out, !is_list, is_list ? "]" : "}");
	return rc ? rc : tmpl_node_done(c, *out);
}

/* One part of a subscript: an expression or a slice. */
static int parse_subscribed(struct tmpl_compile *c, struct tnode **out)
{
	struct tnode *part[3] = { 0 };
	uint32_t line = tmpl_tok(c)->line;
	int rc = 0, k = 0;

	if (!tmpl_at_op(c, ":")) {
		rc = tmpl_parse_expr(c, &part[0]);
		if (rc || !tmpl_at_op(c, ":")) {
			*out = part[0];
			return rc;
		}
	}
	while (!rc && k < 2 && tmpl_skip_op(c, ":")) {
		k++;
		if (!tmpl_at_op(c, ":") && !tmpl_at_op(c, "]") &&
		    !tmpl_at_op(c, ","))
			rc = tmpl_parse_expr(c, &part[k]);
	}
	if (!rc)
		rc = tmpl_new_node(c, TN_SLICE, line, out);
	if (rc)
		return rc;
	(*out)->a = part[0];
	(*out)->b = part[1];
	(*out)->c = part[2];
	return tmpl_node_done(c, *out);
}

static int parse_subscript(struct tmpl_compile *c, struct tnode *in,
			   struct tnode **out)
{
	uint32_t line = tmpl_tok(c)->line;
	struct tmpl_nodes l = { 0 };
	struct tnode *n;
	int rc = tmpl_new_node(c, TN_GETITEM, line, &n);

	if (rc)
		return rc;
	n->a = in;
	if (tmpl_skip_op(c, ".")) {
		const struct ttok *t = tmpl_tok(c);

		if (t->type == TK_INT) {
			c->pos++;
			rc = const_node(c, line, tv_int(t->i), &n->b);
		} else {
			n->type = TN_GETATTR;
			rc = tok_name(c, &n->name);
		}
	} else {
		rc = tmpl_expect_op(c, "[");
		while (!rc && !tmpl_at_op(c, "]")) {
			struct tnode *v;

			if (l.n && (rc = tmpl_expect_op(c, ",")))
				break;
			rc = parse_subscribed(c, &v);
			if (!rc)
				rc = tmpl_nodes_add(c, &l, v);
		}
		if (!rc)
			rc = tmpl_expect_op(c, "]");
		if (!rc && l.n != 1)
			rc = tmpl_cfail(
				c, -EINVAL, line,
				"subscript with %u parts is not supported",
				l.n);
		if (!rc)
			n->b = l.v[0];
	}
	*out = n;
	return rc ? rc : tmpl_node_done(c, n);
}

static int add_kw(struct tmpl_compile *c, struct tn_args *a, uint32_t *cap)
{
	const struct ttok *t = tmpl_tok(c);

	if (a->nr_kw == *cap) {
		uint32_t more = *cap ? *cap * 2 : 4;
		struct tn_kw *kw =
			tmpl_arena_alloc(&c->t->arena, more * sizeof(*kw));

		if (!kw)
			return no_memory(c);
		if (a->nr_kw)
			memcpy(kw, a->kw, a->nr_kw * sizeof(*kw));
		a->kw = kw;
		*cap = more;
	}
	struct tn_kw *kw = &a->kw[a->nr_kw];
	int rc = tmpl_name_id(c, t->s, t->len, &kw->name);

	for (uint32_t i = 0; !rc && i < a->nr_kw; i++)
		if (a->kw[i].name == kw->name)
			rc = tmpl_cfail(c, -EINVAL, t->line,
					"keyword argument '%.*s' given twice",
					(int)t->len, t->s);
	c->pos += 2;
	if (!rc)
		rc = tmpl_parse_expr(c, &kw->value);
	a->nr_kw++;
	return rc;
}

static int parse_arg(struct tmpl_compile *c, struct tn_args *a,
		     struct tmpl_nodes *pos, uint32_t *kw_cap)
{
	const struct ttok *next = tmpl_look(c);
	struct tnode *v;
	int rc;

	if (!a->star2 && !a->star && tmpl_skip_op(c, "*"))
		return tmpl_parse_expr(c, &a->star);
	if (!a->star2 && tmpl_skip_op(c, "**"))
		return tmpl_parse_expr(c, &a->star2);
	if (!a->star2 && tmpl_tok(c)->type == TK_NAME && next->type == TK_OP &&
	    next->len == 1 && next->s[0] == '=')
		return add_kw(c, a, kw_cap);
	if (a->star || a->star2 || a->nr_kw)
		return tmpl_cfail(c, -EINVAL, tmpl_tok(c)->line,
				  "positional argument after keyword argument");
	rc = tmpl_parse_expr(c, &v);
	return rc ? rc : tmpl_nodes_add(c, pos, v);
}

static int parse_args(struct tmpl_compile *c, const struct tn_args **out)
{
	struct tn_args *a = tmpl_arena_alloc(&c->t->arena, sizeof(*a));
	struct tmpl_nodes pos = { 0 };
	uint32_t kw_cap = 0;
	bool is_first = true;
	int rc = tmpl_expect_op(c, "(");

	if (!a)
		return no_memory(c);
	*a = (struct tn_args){ 0 };
	while (!rc && !tmpl_at_op(c, ")")) {
		if (!is_first) {
			rc = tmpl_expect_op(c, ",");
			if (rc || tmpl_at_op(c, ")"))
				break;
		}
		is_first = false;
		rc = parse_arg(c, a, &pos, &kw_cap);
	}
	a->pos = pos.v;
	a->nr_pos = pos.n;
	*out = a;
	return rc ? rc : tmpl_expect_op(c, ")");
}

static int parse_call(struct tmpl_compile *c, struct tnode *in,
		      struct tnode **out)
{
	struct tnode *n;
	int rc = tmpl_new_node(c, TN_CALL, tmpl_tok(c)->line, &n);

	if (rc)
		return rc;
	n->a = in;
	rc = parse_args(c, &n->args);
	*out = n;
	return rc ? rc : tmpl_node_done(c, n);
}

static int parse_postfix(struct tmpl_compile *c, struct tnode **n)
{
	int rc = 0;

	while (!rc) {
		if (tmpl_at_op(c, ".") || tmpl_at_op(c, "["))
			rc = parse_subscript(c, *n, n);
		else if (tmpl_at_op(c, "("))
			rc = parse_call(c, *n, n);
		else
			break;
	}
	return rc;
}

/* Looks a filter or test up; an unknown one in a branch fails when met. */
static int bind_func(struct tmpl_compile *c, struct tnode *n, bool is_test)
{
	const struct tmpl_name *name = &c->t->names[n->name];

	n->func = is_test ? tmpl_find(tmpl_tests, name->s, name->len) :
			    tmpl_filter_find(name->s, name->len);
	if (n->func || c->soft)
		return 0;
	return tmpl_cfail(c, -EINVAL, n->line, "unknown %s '%.*s'",
			  is_test ? "test" : "filter", (int)name->len, name->s);
}

/* "| name(args)", repeated; @inl: the first has no bar before it. */
int tmpl_parse_filters(struct tmpl_compile *c, struct tnode *in, bool inl,
		       struct tnode **out)
{
	int rc = 0;

	while (!rc && (inl || tmpl_skip_op(c, "|"))) {
		struct tnode *n = NULL;

		inl = false;
		rc = tmpl_new_node(c, TN_FILTER, tmpl_tok(c)->line, &n);
		if (!rc)
			rc = tok_name(c, &n->name);
		if (!rc)
			rc = bind_func(c, n, false);
		if (!rc && tmpl_at_op(c, "("))
			rc = parse_args(c, &n->args);
		if (rc)
			break;
		n->a = in;
		in = n;
		rc = tmpl_node_done(c, n);
	}
	*out = in;
	return rc;
}

static bool starts_test_arg(const struct tmpl_compile *c)
{
	enum ttok_type t = tmpl_tok(c)->type;

	if (t == TK_NAME)
		return !tmpl_at_name(c, "else") && !tmpl_at_name(c, "or") &&
		       !tmpl_at_name(c, "and");
	return t == TK_STR || t == TK_INT || t == TK_FLOAT ||
	       tmpl_at_op(c, "[") || tmpl_at_op(c, "{");
}

static int parse_test_arg(struct tmpl_compile *c, struct tnode *n)
{
	struct tn_args *a;
	struct tmpl_nodes l = { 0 };
	struct tnode *v;
	int rc;

	if (tmpl_at_op(c, "("))
		return parse_args(c, &n->args);
	if (!starts_test_arg(c))
		return 0;
	if (tmpl_at_name(c, "is"))
		return tmpl_cfail(c, -EINVAL, n->line,
				  "tests with 'is' cannot be chained");
	a = tmpl_arena_alloc(&c->t->arena, sizeof(*a));
	if (!a)
		return no_memory(c);
	rc = tmpl_parse_primary(c, false, &v);
	if (!rc)
		rc = parse_postfix(c, &v);
	if (!rc)
		rc = tmpl_nodes_add(c, &l, v);
	*a = (struct tn_args){ .pos = l.v, .nr_pos = l.n };
	n->args = a;
	return rc;
}

static int parse_test(struct tmpl_compile *c, struct tnode *in,
		      struct tnode **out)
{
	uint32_t line = tmpl_tok(c)->line;
	struct tnode *n = NULL, *neg = NULL;
	bool is_negated;
	int rc = tmpl_new_node(c, TN_TEST, line, &n);

	c->pos++;
	is_negated = tmpl_skip_name(c, "not");
	if (!rc)
		rc = tok_name(c, &n->name);
	if (!rc)
		rc = bind_func(c, n, true);
	if (!rc)
		rc = parse_test_arg(c, n);
	if (rc)
		return rc;
	n->a = in;
	*out = n;
	rc = tmpl_node_done(c, n);
	if (rc || !is_negated)
		return rc;
	rc = tmpl_new_node(c, TN_NOT, line, &neg);
	if (rc)
		return rc;
	neg->a = n;
	*out = neg;
	return tmpl_node_done(c, neg);
}

int tmpl_parse_unary(struct tmpl_compile *c, bool filters, struct tnode **out)
{
	uint32_t line = tmpl_tok(c)->line;
	bool is_neg = tmpl_at_op(c, "-");
	int rc;

	if (c->depth >= TMPL_MAX_PARSE_DEPTH)
		return tmpl_cfail(c, -E2BIG, line, "nested more than %d deep",
				  TMPL_MAX_PARSE_DEPTH);
	c->depth++;
	if (is_neg || tmpl_at_op(c, "+")) {
		struct tnode *n;

		c->pos++;
		rc = tmpl_new_node(c, is_neg ? TN_NEG : TN_POS, line, &n);
		if (!rc)
			rc = tmpl_parse_unary(c, false, &n->a);
		if (!rc)
			rc = tmpl_node_done(c, n);
		*out = n;
	} else {
		rc = tmpl_parse_primary(c, false, out);
	}
	if (!rc)
		rc = parse_postfix(c, out);
	while (!rc && filters) {
		if (tmpl_at_op(c, "|"))
			rc = tmpl_parse_filters(c, *out, false, out);
		else if (tmpl_at_name(c, "is"))
			rc = parse_test(c, *out, out);
		else if (tmpl_at_op(c, "("))
			rc = parse_call(c, *out, out);
		else
			break;
	}
	c->depth--;
	return rc;
}
