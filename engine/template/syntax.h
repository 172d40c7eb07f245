/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a template's text to its syntax tree: tokens, nodes, the parser's files
 * among themselves. Not for use outside engine/template/. The tree is written
 * by parse*.c only and lives in the template's arena.
 */
#ifndef TARN_TEMPLATE_SYNTAX_H
#define TARN_TEMPLATE_SYNTAX_H

#include "engine/template/arena.h"
#include "engine/template/template.h"
#include "engine/template/value.h"

/* ---- syntax tree ---- */

enum tnode_type {
	/* expressions */
	TN_CONST,
	TN_NAME,
	TN_LIST,
	TN_TUPLE,
	TN_DICT, /* items: key, value, key, value */
	TN_GETATTR,
	TN_GETITEM,
	TN_SLICE, /* a, b, c may be NULL; only below GETITEM */
	TN_CALL,
	TN_FILTER,
	TN_TEST,
	TN_NEG,
	TN_POS,
	TN_NOT,
	TN_AND,
	TN_OR,
	TN_COND, /* a if b else c */
	TN_BINOP,
	TN_CONCAT,
	TN_COMPARE, /* a, then items with ops */
	TN_CAPTURED, /* text of the enclosing filter or set block */
	TN_NSREF, /* target only: name.name2 */
	/* statements */
	TN_TEXT,
	TN_OUTPUT,
	TN_BODY,
	TN_IF, /* items: test, body, test, body; c: else */
	TN_FOR, /* a target, b iterable, c test, items: body, else */
	TN_SET, /* a target, b value */
	TN_SETBLOCK, /* a target, b filter, c body */
	TN_FILTERBLOCK, /* b filter, c body */
	TN_MACRO, /* items: defaults, params: names, c body */
	TN_CALLBLOCK, /* a call, b caller's macro */
	TN_WITH, /* items: target, value, ...; c body */
	TN_SCOPE, /* c body: block, generation */
	TN_BREAK,
	TN_CONTINUE,
};

enum {
	TMPL_MAX_HEIGHT = 500, /* of a syntax tree */
	TMPL_MAX_PARSE_DEPTH = 200,
};

enum tmpl_macro_flag {
	MACRO_VARARGS = 1,
	MACRO_KWARGS = 2,
	MACRO_CALLER = 4,
};

struct tn_kw {
	uint32_t name;
	struct tnode *value;
};

struct tn_args {
	struct tnode **pos;
	uint32_t nr_pos;
	struct tn_kw *kw;
	uint32_t nr_kw;
	struct tnode *star;
	struct tnode *star2;
};

struct tnode {
	uint8_t type;
	uint8_t op; /* enum tmpl_op, or macro flags */
	bool is_recursive;
	uint16_t height; /* of the subtree; bounds every recursion over it */
	uint32_t line;
	uint32_t name;
	uint32_t name2;
	struct tnode *a, *b, *c;
	struct tnode **items;
	uint32_t nr_items;
	uint8_t *ops; /* one per item of COMPARE */
	uint32_t *params;
	uint32_t nr_params;
	const struct tn_args *args;
	const struct tmpl_func *func; /* filter or test; NULL: unknown */
	struct tv value;
};

struct tmpl_name {
	const char *s;
	uint32_t len;
};

struct tmpl_ctype;

struct template
{
	struct tmpl_arena arena;
	struct tnode *root;
	struct tmpl_ctype *ctype; /* classes and case of characters */
	struct tmpl_name *names;
	uint32_t nr_names;
	uint32_t cap_names;
	/* names the evaluator gives values to */
	uint32_t id_loop, id_caller, id_varargs, id_kwargs;
};

/* ---- lex.c ---- */

enum ttok_type {
	TK_DATA,
	TK_VAR_BEGIN,
	TK_VAR_END,
	TK_BLOCK_BEGIN,
	TK_BLOCK_END,
	TK_NAME,
	TK_STR,
	TK_INT,
	TK_FLOAT,
	TK_OP, /* s, len: the operator itself */
	TK_EOF,
};

struct ttok {
	enum ttok_type type;
	uint32_t line;
	const char *s;
	uint32_t len;
	int64_t i;
	double f;
};

struct tmpl_compile {
	struct template *t;
	struct ttok *toks;
	size_t nr_toks;
	size_t cap_toks;
	size_t pos;
	uint32_t depth;
	uint32_t loop_depth; /* of the loops a break could leave */
	uint32_t soft; /* inside a branch: unknown filters wait for run time */
	uint32_t macro_seen; /* MACRO_* names met since the last reset */
	char *err;
	size_t errlen;
};

int tmpl_lex(struct tmpl_compile *c, const char *src, size_t len);
int tmpl_parse(struct tmpl_compile *c);
int tmpl_parse_expr(struct tmpl_compile *c, struct tnode **out);
int tmpl_cfail(struct tmpl_compile *c, int rc, uint32_t line, const char *fmt,
	       ...) __attribute__((format(printf, 4, 5)));

/* parse_primary.c and parse_expr.c */
enum tmpl_tuple_flag {
	TUPLE_NO_COND = 1,
	TUPLE_PARENS = 2,
	TUPLE_TARGET = 4, /* names and literals only */
	TUPLE_NS = 8, /* with TARGET: name.attr too */
	TUPLE_END_IN = 16,
	TUPLE_END_RECURSIVE = 32,
};

struct tmpl_nodes {
	struct tnode **v;
	uint32_t n;
	uint32_t cap;
};

int tmpl_parse_tuple(struct tmpl_compile *c, unsigned int flags,
		     struct tnode **out);
int tmpl_parse_primary(struct tmpl_compile *c, bool ns, struct tnode **out);
int tmpl_parse_unary(struct tmpl_compile *c, bool filters, struct tnode **out);
int tmpl_parse_filters(struct tmpl_compile *c, struct tnode *in, bool inl,
		       struct tnode **out);
int tmpl_new_node(struct tmpl_compile *c, enum tnode_type type, uint32_t line,
		  struct tnode **out);
int tmpl_node_done(struct tmpl_compile *c, struct tnode *n);
int tmpl_nodes_add(struct tmpl_compile *c, struct tmpl_nodes *l,
		   struct tnode *n);
int tmpl_name_id(struct tmpl_compile *c, const char *s, size_t len,
		 uint32_t *out);
const struct ttok *tmpl_tok(const struct tmpl_compile *c);
const struct ttok *tmpl_look(const struct tmpl_compile *c);
bool tmpl_at_op(const struct tmpl_compile *c, const char *op);
bool tmpl_at_name(const struct tmpl_compile *c, const char *name);
bool tmpl_skip_op(struct tmpl_compile *c, const char *op);
bool tmpl_skip_name(struct tmpl_compile *c, const char *name);
int tmpl_expect_op(struct tmpl_compile *c, const char *op);
int tmpl_unexpected(struct tmpl_compile *c, const char *wanted);

#endif /* TARN_TEMPLATE_SYNTAX_H */
