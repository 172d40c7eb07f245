/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators and tuples: tokens to syntax tree, by recursive descent with
 * jinja2's precedences. Operands are in parse_primary.c.
 */
#include <errno.h>

#include "engine/template/syntax.h"

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
	int rc = tmpl_parse_unary(c, true, out);

	while (!rc && tmpl_skip_op(c, "**")) {
		struct tnode *rhs;

		rc = tmpl_parse_unary(c, true, &rhs);
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
	struct tnode *v, *n = NULL;
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
		return tmpl_cfail(c, -ENOMEM, n->line, "out of memory");
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
	rc = tmpl_parse_primary(c, flags & TUPLE_NS, out);
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
