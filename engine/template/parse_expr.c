/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions: tokens to syntax tree, by recursive descent with jinja2's
 * precedences. Depth of the recursion and height of every tree are bounded,
 * so that no later walk can exhaust the stack.
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

static int parse_primary(struct tmpl_compile *c, bool ns, struct tnode **out)
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
		struct tnode *n;

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
	rc = parse_primary(c, false, &v);
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
	struct tnode *n, *neg;
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

static int parse_unary(struct tmpl_compile *c, bool filters, struct tnode **out)
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
			rc = parse_unary(c, false, &n->a);
		if (!rc)
			rc = tmpl_node_done(c, n);
		*out = n;
	} else {
		rc = parse_primary(c, false, out);
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

static int binary(struct tmpl_compile *c, enum tnode_type type, enum tmpl_op op,
		  struct tnode *l, struct tnode *rhs, struct tnode **out)
{
	int rc = tmpl_new_node(c, type, l->line, out);

	if (rc)
		return rc;
	(*out)->op = (uint8_t)op;
	(*out)->a = l;
	(*out)->b = rhs;
	return tmpl_node_done(c, *out);
}

struct op_entry {
	const char *text;
	enum tmpl_op op;
};

static int find_op(const struct tmpl_compile *c, const struct op_entry *t)
{
	for (; t->text; t++)
		if (tmpl_at_op(c, t->text))
			return (int)t->op;
	return -1;
}

static int parse_pow(struct tmpl_compile *c, struct tnode **out)
{
	int rc = parse_unary(c, true, out);

	while (!rc && tmpl_skip_op(c, "**")) {
		struct tnode *rhs;

		rc = parse_unary(c, true, &rhs);
		if (!rc)
			rc = binary(c, TN_BINOP, OP_POW, *out, rhs, out);
	}
	return rc;
}

static int parse_product(struct tmpl_compile *c, struct tnode **out)
{
	static const struct op_entry ops[] = { { "*", OP_MUL },
					       { "/", OP_DIV },
					       { "//", OP_FLOORDIV },
					       { "%", OP_MOD },
					       { 0 } };
	int rc = parse_pow(c, out), op;

	while (!rc && (op = find_op(c, ops)) >= 0) {
		struct tnode *rhs;

		c->pos++;
		rc = parse_pow(c, &rhs);
		if (!rc)
			rc = binary(c, TN_BINOP, (enum tmpl_op)op, *out, rhs,
				    out);
	}
	return rc;
}

static int parse_concat(struct tmpl_compile *c, struct tnode **out)
{
	struct tmpl_nodes l = { 0 };
	struct tnode *v, *n;
	int rc = parse_product(c, out);

	if (rc || !tmpl_at_op(c, "~"))
		return rc;
	rc = tmpl_nodes_add(c, &l, *out);
	while (!rc && tmpl_skip_op(c, "~")) {
		rc = parse_product(c, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
	}
	if (!rc)
		rc = tmpl_new_node(c, TN_CONCAT, (*out)->line, &n);
	if (rc)
		return rc;
	n->items = l.v;
	n->nr_items = l.n;
	*out = n;
	return tmpl_node_done(c, n);
}

static int parse_sum(struct tmpl_compile *c, struct tnode **out)
{
	static const struct op_entry ops[] = { { "+", OP_ADD },
					       { "-", OP_SUB },
					       { 0 } };
	int rc = parse_concat(c, out), op;

	while (!rc && (op = find_op(c, ops)) >= 0) {
		struct tnode *rhs;

		c->pos++;
		rc = parse_concat(c, &rhs);
		if (!rc)
			rc = binary(c, TN_BINOP, (enum tmpl_op)op, *out, rhs,
				    out);
	}
	return rc;
}

static int compare_op(struct tmpl_compile *c)
{
	static const struct op_entry ops[] = { { "==", OP_EQ },
					       { "!=", OP_NE },
					       { "<", OP_LT },
					       { "<=", OP_LE },
					       { ">", OP_GT },
					       { ">=", OP_GE },
					       { 0 } };
	int op = find_op(c, ops);
	const struct ttok *next = tmpl_look(c);

	if (op >= 0) {
		c->pos++;
		return op;
	}
	if (tmpl_skip_name(c, "in"))
		return OP_IN;
	if (tmpl_at_name(c, "not") && next->type == TK_NAME && next->len == 2 &&
	    memcmp(next->s, "in", 2) == 0) {
		c->pos += 2;
		return OP_NOTIN;
	}
	return -1;
}

static int parse_compare(struct tmpl_compile *c, struct tnode **out)
{
	struct tmpl_nodes l = { 0 };
	uint8_t ops[64];
	struct tnode *n, *v;
	int rc = parse_sum(c, out), op;

	while (!rc && (op = compare_op(c)) >= 0) {
		if (l.n == sizeof(ops))
			return tmpl_cfail(c, -E2BIG, tmpl_tok(c)->line,
					  "comparison chain too long");
		ops[l.n] = (uint8_t)op;
		rc = parse_sum(c, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
	}
	if (rc || !l.n)
		return rc;
	rc = tmpl_new_node(c, TN_COMPARE, (*out)->line, &n);
	if (rc)
		return rc;
	n->ops = tmpl_arena_alloc(&c->t->arena, l.n);
	if (!n->ops)
		return no_memory(c);
	memcpy(n->ops, ops, l.n);
	n->a = *out;
	n->items = l.v;
	n->nr_items = l.n;
	*out = n;
	return tmpl_node_done(c, n);
}

static int parse_not(struct tmpl_compile *c, struct tnode **out)
{
	uint32_t line = tmpl_tok(c)->line;
	struct tnode *n;
	int rc;

	if (!tmpl_skip_name(c, "not"))
		return parse_compare(c, out);
	if (c->depth >= TMPL_MAX_PARSE_DEPTH)
		return tmpl_cfail(c, -E2BIG, line, "nested more than %d deep",
				  TMPL_MAX_PARSE_DEPTH);
	c->depth++;
	rc = tmpl_new_node(c, TN_NOT, line, &n);
	if (!rc)
		rc = parse_not(c, &n->a);
	c->depth--;
	*out = n;
	return rc ? rc : tmpl_node_done(c, n);
}

static int parse_and(struct tmpl_compile *c, struct tnode **out)
{
	int rc = parse_not(c, out);

	while (!rc && tmpl_skip_name(c, "and")) {
		struct tnode *rhs;

		rc = parse_not(c, &rhs);
		if (!rc)
			rc = binary(c, TN_AND, 0, *out, rhs, out);
	}
	return rc;
}

static int parse_or(struct tmpl_compile *c, struct tnode **out)
{
	int rc = parse_and(c, out);

	while (!rc && tmpl_skip_name(c, "or")) {
		struct tnode *rhs;

		rc = parse_and(c, &rhs);
		if (!rc)
			rc = binary(c, TN_OR, 0, *out, rhs, out);
	}
	return rc;
}

int tmpl_parse_expr(struct tmpl_compile *c, struct tnode **out)
{
	uint32_t line = tmpl_tok(c)->line;
	int rc;

	if (c->depth >= TMPL_MAX_PARSE_DEPTH)
		return tmpl_cfail(c, -E2BIG, line, "nested more than %d deep",
				  TMPL_MAX_PARSE_DEPTH);
	c->depth++;
	rc = parse_or(c, out);
	while (!rc && tmpl_skip_name(c, "if")) {
		struct tnode *n;

		c->soft++;
		rc = tmpl_new_node(c, TN_COND, line, &n);
		if (!rc)
			rc = parse_or(c, &n->b);
		if (!rc && tmpl_skip_name(c, "else"))
			rc = tmpl_parse_expr(c, &n->c);
		c->soft--;
		if (rc)
			break;
		n->a = *out;
		*out = n;
		rc = tmpl_node_done(c, n);
	}
	c->depth--;
	return rc;
}

static bool at_tuple_end(const struct tmpl_compile *c, unsigned int flags)
{
	enum ttok_type t = tmpl_tok(c)->type;

	return t == TK_VAR_END || t == TK_BLOCK_END || tmpl_at_op(c, ")") ||
	       ((flags & TUPLE_END_IN) && tmpl_at_name(c, "in")) ||
	       ((flags & TUPLE_END_RECURSIVE) && tmpl_at_name(c, "recursive"));
}

static int parse_member(struct tmpl_compile *c, unsigned int flags,
			struct tnode **out)
{
	int rc;

	if (flags & TUPLE_NO_COND)
		return parse_or(c, out);
	if (!(flags & TUPLE_TARGET))
		return tmpl_parse_expr(c, out);
	if (c->depth >= TMPL_MAX_PARSE_DEPTH)
		return tmpl_cfail(c, -E2BIG, tmpl_tok(c)->line,
				  "nested more than %d deep",
				  TMPL_MAX_PARSE_DEPTH);
	c->depth++;
	rc = parse_primary(c, flags & TUPLE_NS, out);
	c->depth--;
	return rc;
}

/* An expression, or a tuple of them where commas stand between. */
int tmpl_parse_tuple(struct tmpl_compile *c, unsigned int flags,
		     struct tnode **out)
{
	uint32_t line = tmpl_tok(c)->line;
	struct tmpl_nodes l = { 0 };
	bool is_tuple = false;
	struct tnode *v;
	int rc = 0;

	while (!rc) {
		if (l.n && (rc = tmpl_expect_op(c, ",")))
			return rc;
		if (at_tuple_end(c, flags))
			break;
		rc = parse_member(c, flags, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
		if (!tmpl_at_op(c, ","))
			break;
		is_tuple = true;
	}
	if (rc)
		return rc;
	if (!is_tuple && l.n) {
		*out = l.v[0];
		return 0;
	}
	if (!l.n && !(flags & TUPLE_PARENS))
		return tmpl_unexpected(c, "an expression");
	rc = tmpl_new_node(c, TN_TUPLE, line, out);
	if (rc)
		return rc;
	(*out)->items = l.v;
	(*out)->nr_items = l.n;
	return tmpl_node_done(c, *out);
}
