/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements: the tags of a template to syntax tree, and template_compile()
 * itself. A new tag is a function here, a node type and a case in exec.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/template/internal.h"

enum { MAX_SOURCE_BYTES = 4 * 1024 * 1024 };

const struct ttok *tmpl_tok(const struct tmpl_compile *c)
{
	return &c->toks[c->pos < c->nr_toks ? c->pos : c->nr_toks - 1];
}

const struct ttok *tmpl_look(const struct tmpl_compile *c)
{
	return &c->toks[c->pos + 1 < c->nr_toks ? c->pos + 1 : c->nr_toks - 1];
}

bool tmpl_at_op(const struct tmpl_compile *c, const char *op)
{
	const struct ttok *t = tmpl_tok(c);

	return t->type == TK_OP && t->len == strlen(op) &&
	       memcmp(t->s, op, t->len) == 0;
}

bool tmpl_at_name(const struct tmpl_compile *c, const char *name)
{
	const struct ttok *t = tmpl_tok(c);

	return t->type == TK_NAME && t->len == strlen(name) &&
	       memcmp(t->s, name, t->len) == 0;
}

bool tmpl_skip_op(struct tmpl_compile *c, const char *op)
{
	bool is_at = tmpl_at_op(c, op);

	c->pos += is_at;
	return is_at;
}

bool tmpl_skip_name(struct tmpl_compile *c, const char *name)
{
	bool is_at = tmpl_at_name(c, name);

	c->pos += is_at;
	return is_at;
}

int tmpl_unexpected(struct tmpl_compile *c, const char *wanted)
{
	const struct ttok *t = tmpl_tok(c);
	int n = t->len < 40 ? (int)t->len : 40;

	switch (t->type) {
	case TK_EOF:
		return tmpl_cfail(c, -EINVAL, t->line,
				  "expected %s, got the end of the template",
				  wanted);
	case TK_VAR_END:
	case TK_BLOCK_END:
		return tmpl_cfail(c, -EINVAL, t->line,
				  "expected %s, got the end of the tag",
				  wanted);
	case TK_STR:
		return tmpl_cfail(c, -EINVAL, t->line,
				  "expected %s, got a string", wanted);
	default:
		return tmpl_cfail(c, -EINVAL, t->line,
				  "expected %s, got '%.*s'", wanted, n, t->s);
	}
}

int tmpl_expect_op(struct tmpl_compile *c, const char *op)
{
	char wanted[8];

	if (tmpl_skip_op(c, op))
		return 0;
	snprintf(wanted, sizeof(wanted), "'%s'", op);
	return tmpl_unexpected(c, wanted);
}

static int expect_end(struct tmpl_compile *c)
{
	if (tmpl_tok(c)->type != TK_BLOCK_END)
		return tmpl_unexpected(c, "'%}'");
	c->pos++;
	return 0;
}

static int parse_body(struct tmpl_compile *c, const char *tag,
		      const char *const *ends, struct tnode **out);

/* The body of @tag, the tag's own end included. */
static int body_to(struct tmpl_compile *c, const char *tag, const char *end,
		   struct tnode **out)
{
	const char *const ends[] = { end, NULL };
	int rc;

	tmpl_skip_op(c, ":");
	rc = expect_end(c);
	if (!rc)
		rc = parse_body(c, tag, ends, out);
	if (rc)
		return rc;
	c->pos++;
	return 0;
}

static int check_target(struct tmpl_compile *c, const struct tnode *n)
{
	if (n->type == TN_NAME || n->type == TN_NSREF)
		return 0;
	for (uint32_t i = 0; n->type == TN_TUPLE && i < n->nr_items; i++) {
		int rc = check_target(c, n->items[i]);

		if (rc)
			return rc;
	}
	if (n->type == TN_TUPLE)
		return 0;
	return tmpl_cfail(c, -EINVAL, n->line,
			  "cannot assign to this expression");
}

static int parse_target(struct tmpl_compile *c, unsigned int flags,
			struct tnode **out)
{
	uint32_t seen = c->macro_seen;
	int rc = tmpl_parse_tuple(c, TUPLE_TARGET | flags, out);

	c->macro_seen = seen;
	return rc ? rc : check_target(c, *out);
}

static int captured_node(struct tmpl_compile *c, struct tnode **out)
{
	return tmpl_new_node(c, TN_CAPTURED, tmpl_tok(c)->line, out);
}

static int parse_set(struct tmpl_compile *c, struct tnode *n)
{
	struct tnode *text;
	int rc = parse_target(c, TUPLE_NS, &n->a);

	if (rc)
		return rc;
	if (tmpl_skip_op(c, "=")) {
		n->type = TN_SET;
		rc = tmpl_parse_tuple(c, 0, &n->b);
		return rc ? rc : expect_end(c);
	}
	n->type = TN_SETBLOCK;
	rc = captured_node(c, &text);
	if (!rc)
		rc = tmpl_parse_filters(c, text, false, &n->b);
	return rc ? rc : body_to(c, "set", "endset", &n->c);
}

static int parse_for(struct tmpl_compile *c, struct tnode *n)
{
	static const char *const ends[] = { "else", "endfor", NULL };
	struct tmpl_nodes l = { 0 };
	struct tnode *body;
	int rc = parse_target(c, TUPLE_END_IN, &n->a);

	n->type = TN_FOR;
	if (!rc && !tmpl_skip_name(c, "in"))
		rc = tmpl_unexpected(c, "'in'");
	if (!rc)
		rc = tmpl_parse_tuple(c, TUPLE_NO_COND | TUPLE_END_RECURSIVE,
				      &n->b);
	if (!rc && tmpl_skip_name(c, "if"))
		rc = tmpl_parse_expr(c, &n->c);
	if (rc)
		return rc;
	n->is_recursive = tmpl_skip_name(c, "recursive");
	tmpl_skip_op(c, ":");
	rc = expect_end(c);
	c->loop_depth++;
	if (!rc)
		rc = parse_body(c, "for", ends, &body);
	c->loop_depth--;
	if (!rc)
		rc = tmpl_nodes_add(c, &l, body);
	if (!rc && tmpl_skip_name(c, "else")) {
		rc = body_to(c, "for", "endfor", &body);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, body);
	} else if (!rc) {
		c->pos++;
	}
	n->items = l.v;
	n->nr_items = l.n;
	return rc ? rc : expect_end(c);
}

static int parse_if(struct tmpl_compile *c, struct tnode *n)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	struct tmpl_nodes l = { 0 };
	int rc = 0;

	n->type = TN_IF;
	while (!rc) {
		struct tnode *v;

		rc = tmpl_parse_tuple(c, TUPLE_NO_COND, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
		tmpl_skip_op(c, ":");
		if (!rc)
			rc = expect_end(c);
		c->soft++;
		if (!rc)
			rc = parse_body(c, "if", ends, &v);
		c->soft--;
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
		if (rc || !tmpl_skip_name(c, "elif"))
			break;
	}
	if (!rc && tmpl_skip_name(c, "else")) {
		c->soft++;
		rc = body_to(c, "if", "endif", &n->c);
		c->soft--;
	} else if (!rc) {
		c->pos++;
	}
	n->items = l.v;
	n->nr_items = l.n;
	return rc ? rc : expect_end(c);
}

/* "(a, b=1)": names to params, defaults of the last ones to items. */
static int parse_signature(struct tmpl_compile *c, struct tnode *n)
{
	struct tmpl_nodes defaults = { 0 };
	uint32_t params[64];
	int rc = tmpl_expect_op(c, "(");

	while (!rc && !tmpl_at_op(c, ")")) {
		const struct ttok *t;
		struct tnode *v;

		if (n->nr_params && (rc = tmpl_expect_op(c, ",")))
			break;
		t = tmpl_tok(c);
		if (t->type != TK_NAME)
			return tmpl_unexpected(c, "a parameter name");
		if (n->nr_params == sizeof(params) / sizeof(params[0]))
			return tmpl_cfail(c, -E2BIG, t->line,
					  "more than 64 parameters");
		c->pos++;
		rc = tmpl_name_id(c, t->s, t->len, &params[n->nr_params++]);
		if (!rc && tmpl_skip_op(c, "=")) {
			rc = tmpl_parse_expr(c, &v);
			if (!rc)
				rc = tmpl_nodes_add(c, &defaults, v);
		} else if (!rc && defaults.n) {
			rc = tmpl_cfail(
				c, -EINVAL, t->line,
				"parameter without a default after one with it");
		}
	}
	if (!rc)
		rc = tmpl_expect_op(c, ")");
	if (rc)
		return rc;
	n->params = tmpl_arena_alloc(&c->t->arena,
				     n->nr_params * sizeof(params[0]) + 1);
	if (!n->params)
		return tmpl_cfail(c, -ENOMEM, n->line, "out of memory");
	memcpy(n->params, params, n->nr_params * sizeof(params[0]));
	n->items = defaults.v;
	n->nr_items = defaults.n;
	return 0;
}

/* Body of a macro: loops outside cannot be left from it. */
static int macro_body(struct tmpl_compile *c, struct tnode *n, const char *tag,
		      const char *end)
{
	uint32_t seen = c->macro_seen, loops = c->loop_depth;
	int rc;

	c->macro_seen = 0;
	c->loop_depth = 0;
	rc = body_to(c, tag, end, &n->c);
	n->op = (uint8_t)c->macro_seen;
	c->macro_seen |= seen;
	c->loop_depth = loops;
	return rc;
}

static int parse_macro(struct tmpl_compile *c, struct tnode *n)
{
	const struct ttok *t = tmpl_tok(c);
	int rc;

	n->type = TN_MACRO;
	if (t->type != TK_NAME)
		return tmpl_unexpected(c, "the macro's name");
	c->pos++;
	rc = tmpl_name_id(c, t->s, t->len, &n->name);
	if (!rc)
		rc = parse_signature(c, n);
	return rc ? rc : macro_body(c, n, "macro", "endmacro");
}

static int parse_call_block(struct tmpl_compile *c, struct tnode *n)
{
	struct tnode *m;
	int rc = tmpl_new_node(c, TN_MACRO, n->line, &m);

	n->type = TN_CALLBLOCK;
	if (!rc)
		rc = tmpl_name_id(c, "caller", 6, &m->name);
	if (!rc && tmpl_at_op(c, "("))
		rc = parse_signature(c, m);
	if (!rc)
		rc = tmpl_parse_expr(c, &n->a);
	if (!rc && n->a->type != TN_CALL)
		rc = tmpl_cfail(c, -EINVAL, n->line,
				"'call' needs a call of a macro");
	if (!rc)
		rc = macro_body(c, m, "call", "endcall");
	if (!rc)
		rc = tmpl_node_done(c, m);
	n->b = m;
	return rc;
}

static int parse_filter_block(struct tmpl_compile *c, struct tnode *n)
{
	struct tnode *text;
	int rc = captured_node(c, &text);

	n->type = TN_FILTERBLOCK;
	if (!rc)
		rc = tmpl_parse_filters(c, text, true, &n->b);
	return rc ? rc : body_to(c, "filter", "endfilter", &n->c);
}

static int parse_with(struct tmpl_compile *c, struct tnode *n)
{
	struct tmpl_nodes l = { 0 };
	int rc = 0;

	n->type = TN_WITH;
	while (!rc && tmpl_tok(c)->type != TK_BLOCK_END) {
		struct tnode *v;

		if (l.n && (rc = tmpl_expect_op(c, ",")))
			break;
		if (tmpl_tok(c)->type != TK_NAME)
			return tmpl_unexpected(c, "a name");
		rc = tmpl_new_node(c, TN_NAME, tmpl_tok(c)->line, &v);
		if (!rc)
			rc = tmpl_name_id(c, tmpl_tok(c)->s, tmpl_tok(c)->len,
					  &v->name);
		c->pos++;
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
		if (!rc)
			rc = tmpl_expect_op(c, "=");
		if (!rc)
			rc = tmpl_parse_expr(c, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
	}
	n->items = l.v;
	n->nr_items = l.n;
	return rc ? rc : body_to(c, "with", "endwith", &n->c);
}

static int parse_block(struct tmpl_compile *c, struct tnode *n)
{
	int rc;

	n->type = TN_SCOPE;
	if (tmpl_tok(c)->type != TK_NAME)
		return tmpl_unexpected(c, "the block's name");
	c->pos++;
	tmpl_skip_name(c, "scoped");
	rc = body_to(c, "block", "endblock", &n->c);
	if (!rc && tmpl_tok(c)->type == TK_NAME)
		c->pos++;
	return rc;
}

/* To jinja2 its body is a macro, which is called without arguments. */
static int parse_generation(struct tmpl_compile *c, struct tnode *n)
{
	n->type = TN_SCOPE;
	return macro_body(c, n, "generation", "endgeneration");
}

static int parse_print(struct tmpl_compile *c, struct tnode *n)
{
	struct tmpl_nodes l = { 0 };
	int rc = 0;

	n->type = TN_OUTPUT;
	while (!rc && tmpl_tok(c)->type != TK_BLOCK_END) {
		struct tnode *v;

		if (l.n && (rc = tmpl_expect_op(c, ",")))
			break;
		rc = tmpl_parse_expr(c, &v);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, v);
	}
	if (!rc)
		rc = tmpl_new_node(c, TN_CONCAT, n->line, &n->a);
	if (rc)
		return rc;
	n->a->items = l.v;
	n->a->nr_items = l.n;
	return tmpl_node_done(c, n->a);
}

static int parse_jump(struct tmpl_compile *c, struct tnode *n,
		      enum tnode_type type)
{
	n->type = (uint8_t)type;
	if (!c->loop_depth)
		return tmpl_cfail(c, -EINVAL, n->line, "'%s' outside a loop",
				  type == TN_BREAK ? "break" : "continue");
	return 0;
}

static int parse_break(struct tmpl_compile *c, struct tnode *n)
{
	return parse_jump(c, n, TN_BREAK);
}

static int parse_continue(struct tmpl_compile *c, struct tnode *n)
{
	return parse_jump(c, n, TN_CONTINUE);
}

struct tag {
	const char *name;
	int (*parse)(struct tmpl_compile *c, struct tnode *n);
	bool has_end; /* parse leaves the tag's last '%}' to the caller */
};

static const struct tag tags[] = {
	{ "set", parse_set, false },
	{ "for", parse_for, false },
	{ "if", parse_if, false },
	{ "macro", parse_macro, true },
	{ "call", parse_call_block, true },
	{ "filter", parse_filter_block, true },
	{ "with", parse_with, true },
	{ "block", parse_block, true },
	{ "generation", parse_generation, true },
	{ "print", parse_print, true },
	{ "break", parse_break, true },
	{ "continue", parse_continue, true },
};

static int unknown_tag(struct tmpl_compile *c, const struct ttok *t,
		       const char *open)
{
	int n = t->len < 40 ? (int)t->len : 40;

	if (open)
		return tmpl_cfail(
			c, -EINVAL, t->line,
			"unknown or misplaced tag '%.*s' ('%s' is open)", n,
			t->s, open);
	return tmpl_cfail(c, -EINVAL, t->line, "unknown tag '%.*s'", n, t->s);
}

static int parse_statement(struct tmpl_compile *c, const char *open,
			   struct tnode **out)
{
	const struct ttok *t = tmpl_tok(c);
	int rc;

	if (t->type != TK_NAME)
		return tmpl_unexpected(c, "a tag name");
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		if (!tmpl_at_name(c, tags[i].name))
			continue;
		rc = tmpl_new_node(c, TN_BODY, t->line, out);
		c->pos++;
		if (!rc)
			rc = tags[i].parse(c, *out);
		if (!rc && (tags[i].has_end || (*out)->type == TN_SETBLOCK))
			rc = expect_end(c);
		return rc ? rc : tmpl_node_done(c, *out);
	}
	return unknown_tag(c, t, open);
}

static int parse_piece(struct tmpl_compile *c, const char *open,
		       struct tnode **out)
{
	const struct ttok *t = tmpl_tok(c);
	int rc;

	if (t->type == TK_DATA) {
		rc = tmpl_new_node(c, TN_TEXT, t->line, out);
		if (!rc)
			(*out)->value = tv_lit(t->s, t->len);
		c->pos++;
		return rc;
	}
	if (t->type == TK_VAR_BEGIN) {
		rc = tmpl_new_node(c, TN_OUTPUT, t->line, out);
		c->pos++;
		if (!rc)
			rc = tmpl_parse_tuple(c, 0, &(*out)->a);
		if (!rc && tmpl_tok(c)->type != TK_VAR_END)
			rc = tmpl_unexpected(c, "'}}'");
		c->pos++;
		return rc ? rc : tmpl_node_done(c, *out);
	}
	return parse_statement(c, open, out);
}

/*
 * Pieces up to a tag named in @ends, which becomes the current token; @ends
 * NULL: up to the end of the template.
 */
static int parse_body(struct tmpl_compile *c, const char *tag,
		      const char *const *ends, struct tnode **out)
{
	struct tmpl_nodes l = { 0 };
	struct tnode *n;
	int rc = tmpl_new_node(c, TN_BODY, tmpl_tok(c)->line, &n);

	if (rc)
		return rc;
	if (c->depth >= TMPL_MAX_PARSE_DEPTH)
		return tmpl_cfail(c, -E2BIG, n->line,
				  "nested more than %d deep",
				  TMPL_MAX_PARSE_DEPTH);
	c->depth++;
	while (!rc && tmpl_tok(c)->type != TK_EOF) {
		struct tnode *piece;

		if (tmpl_tok(c)->type == TK_BLOCK_BEGIN) {
			const char *const *e = ends;

			c->pos++;
			while (e && *e && !tmpl_at_name(c, *e))
				e++;
			if (e && *e)
				goto done;
		}
		rc = parse_piece(c, tag, &piece);
		if (!rc)
			rc = tmpl_nodes_add(c, &l, piece);
	}
	if (!rc && ends)
		rc = tmpl_cfail(c, -EINVAL, n->line,
				"'%s' is not closed: the template ends", tag);
done:
	c->depth--;
	if (rc)
		return rc;
	n->items = l.v;
	n->nr_items = l.n;
	*out = n;
	return tmpl_node_done(c, n);
}

int tmpl_parse(struct tmpl_compile *c)
{
	struct template *t = c->t;
	int rc = tmpl_name_id(c, "loop", 4, &t->id_loop);

	if (!rc)
		rc = tmpl_name_id(c, "caller", 6, &t->id_caller);
	if (!rc)
		rc = tmpl_name_id(c, "varargs", 7, &t->id_varargs);
	if (!rc)
		rc = tmpl_name_id(c, "kwargs", 6, &t->id_kwargs);
	return rc ? rc : parse_body(c, NULL, NULL, &t->root);
}

int template_compile(const char *src, size_t len, struct template **out,
		     char *err, size_t errlen)
{
	struct tmpl_compile c = { .err = err, .errlen = errlen };
	int rc;

	c.t = calloc(1, sizeof(*c.t));
	if (!c.t)
		return tmpl_cfail(&c, -ENOMEM, 1, "out of memory");
	c.t->ctype = tmpl_ctype_create();
	if (!c.t->ctype) {
		template_destroy(c.t);
		return tmpl_cfail(&c, -ENOMEM, 1, "out of memory");
	}

	size_t bad = tmpl_u8_invalid_at(src, len);

	if (len > MAX_SOURCE_BYTES)
		rc = tmpl_cfail(&c, -E2BIG, 1,
				"template of %zu bytes is over %d", len,
				MAX_SOURCE_BYTES);
	else if (bad < len)
		rc = tmpl_cfail(&c, -EINVAL, 1, "byte %zu is not UTF-8", bad);
	else
		rc = tmpl_lex(&c, src, len);
	if (!rc)
		rc = tmpl_parse(&c);
	free(c.toks);
	if (rc) {
		template_destroy(c.t);
		return rc;
	}
	*out = c.t;
	return 0;
}

void template_destroy(struct template *t)
{
	if (!t)
		return;
	tmpl_ctype_destroy(t->ctype);
	tmpl_arena_deinit(&t->arena);
	free(t);
}
