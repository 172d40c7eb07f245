/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the template engine share: arena, values, syntax tree,
 * state of a rendering. Not for use outside engine/template/. The tree is
 * written by parse.c only; values live in the arena of their rendering (those
 * of literals in the template's) and are never changed once others see them,
 * but for namespaces, cyclers, joiners, loops and iterators.
 */
#ifndef TARN_TEMPLATE_INTERNAL_H
#define TARN_TEMPLATE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/template/template.h"

struct json_t;

/* ---- arena.c ---- */

struct tmpl_chunk;

/* Zero-initialised is empty; limit 0 is none. */
struct tmpl_arena {
	struct tmpl_chunk *head;
	size_t used_bytes;
	size_t limit_bytes;
	bool at_limit; /* the last failure was the limit, not malloc */
};

void *tmpl_arena_alloc(struct tmpl_arena *a, size_t bytes);
bool tmpl_arena_extend(struct tmpl_arena *a, const char *end, size_t bytes);
void tmpl_arena_deinit(struct tmpl_arena *a);

/* Growing text outside the arena; buf_deinit() on every path. */
struct tmpl_buf {
	char *data;
	size_t len;
	size_t cap;
};

int tmpl_buf_put(struct tmpl_buf *b, const char *s, size_t n);
void tmpl_buf_deinit(struct tmpl_buf *b);

/* ---- values ---- */

enum tv_type {
	TV_MISSING, /* an argument that was not given; templates never see it */
	TV_UNDEF, /* u.s: why, NUL-terminated */
	TV_NONE,
	TV_BOOL,
	TV_INT,
	TV_FLOAT,
	TV_STR,
	TV_LIST,
	TV_TUPLE,
	TV_DICT,
	TV_RANGE,
	TV_ITER, /* what Python's generators are: once through, no length */
	TV_VIEW, /* dict.keys(), .values(), .items() */
	TV_NS,
	TV_LOOP,
	TV_MACRO,
	TV_FUNC,
	TV_METHOD,
	TV_CYCLER,
	TV_JOINER,
};

enum tv_flag {
	TV_F_MARKUP = 1, /* string marked safe: + escapes the other side */
	TV_F_GROUP = 2, /* tuple of groupby: .grouper and .list */
};

struct tv {
	uint8_t type;
	uint8_t flags;
	uint32_t len; /* bytes of a string */
	union {
		int64_t i;
		double f;
		const char *s;
		const struct tv_seq *seq;
		struct tv_dict *dict; /* also of a namespace */
		const struct tv_range *range;
		struct tv_iter *iter;
		const struct tv_view *view;
		struct tv_loop *loop;
		const struct tv_macro *macro;
		const struct tmpl_func *func;
		const struct tv_method *method;
		struct tv_cycler *cycler;
		struct tv_joiner *joiner;
	} u;
};

struct tv_seq {
	size_t n;
	const struct tv *v;
};

struct tv_pair {
	struct tv key;
	struct tv val;
	uint32_t hash;
};

/* Insertion order in pairs; slots (index + 1, 0 empty) once over 8 pairs. */
struct tv_dict {
	size_t n;
	size_t cap;
	struct tv_pair *pairs;
	uint32_t *slots;
	size_t nr_slots;
};

struct tv_range {
	int64_t start;
	int64_t stop;
	int64_t step;
	int64_t n;
};

struct tv_iter {
	struct tv_seq seq;
	size_t pos;
	const char *name; /* how Python would call it */
};

struct tv_view {
	struct tv_seq seq;
	const char *name;
};

struct tv_macro {
	const struct tnode *def;
	struct tmpl_scope *scope; /* where it was defined */
};

struct tv_method {
	struct tv self;
	const struct tmpl_func *func;
};

struct tv_cycler {
	struct tv_seq items;
	size_t pos;
};

struct tv_joiner {
	struct tv sep;
	bool is_used;
};

struct tv_loop {
	const struct tnode *node;
	struct tmpl_scope *outer; /* the scope around the loop */
	struct tv_seq src;
	size_t src_pos;
	bool is_filtered; /* src already holds only what passes the test */
	bool has_after;
	struct tv after, current, before, last_changed;
	int64_t index0;
	int64_t depth0;
};

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

enum tmpl_op {
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_FLOORDIV,
	OP_MOD,
	OP_POW,
	OP_EQ,
	OP_NE,
	OP_LT,
	OP_LE,
	OP_GT,
	OP_GE,
	OP_IN,
	OP_NOTIN,
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

struct template
{
	struct tmpl_arena arena;
	struct tnode *root;
	/* locale_t with Unicode's case tables; NULL: only ASCII has case */
	void *ctype;
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

/* ---- rendering ---- */

struct tmpl_var {
	uint32_t name;
	struct tv v;
};

struct tmpl_scope {
	struct tmpl_scope *parent;
	struct tmpl_var *vars;
	uint32_t n;
	uint32_t cap;
};

struct tmpl_render {
	const struct template *t;
	struct template_limits lim;
	struct tmpl_arena arena;
	struct json_t *json; /* holds the context's strings */
	struct tv_dict *context;
	struct tmpl_scope *scope;
	struct tmpl_buf *out;
	struct tv captured;
	uint64_t steps;
	size_t captured_bytes;
	uint32_t depth;
	uint32_t line;
	bool is_oom; /* malloc failed: template_render() answers -ENOMEM */
	char *err;
	size_t errlen;
};

struct tmpl_kwarg {
	struct tv name;
	struct tv v;
};

struct tmpl_args {
	const struct tv *pos;
	size_t nr_pos;
	const struct tmpl_kwarg *kw;
	size_t nr_kw;
};

/*
 * A function, filter, test or method. With params, a->pos has one value per
 * name (TV_MISSING where not given) and there are no keyword arguments.
 */
typedef int tmpl_fn(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out);

struct tmpl_func {
	const char *name;
	tmpl_fn *fn; /* NULL: known, but refused: params says why */
	const char *params; /* "width,first"; NULL: any arguments */
	uint8_t nr_required;
};

enum {
	TMPL_MAX_PARAMS = 6,
	TMPL_MAX_HEIGHT = 500, /* of a syntax tree */
	TMPL_MAX_PARSE_DEPTH = 200,
	TMPL_MAX_RANGE = 100000, /* as jinja2's sandbox */
};

/* All of them return 0 or a negative errno with r->err written. */
int tmpl_fail(struct tmpl_render *r, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int tmpl_charge(struct tmpl_render *r, size_t bytes);
int tmpl_enter(struct tmpl_render *r);
void tmpl_leave(struct tmpl_render *r);
void *tmpl_alloc(struct tmpl_render *r, size_t bytes);

/* value.c */
static inline struct tv tv_none(void)
{
	return (struct tv){ .type = TV_NONE };
}

static inline struct tv tv_bool(bool b)
{
	return (struct tv){ .type = TV_BOOL, .u.i = b };
}

static inline struct tv tv_int(int64_t i)
{
	return (struct tv){ .type = TV_INT, .u.i = i };
}

static inline struct tv tv_float(double f)
{
	return (struct tv){ .type = TV_FLOAT, .u.f = f };
}

static inline struct tv tv_lit(const char *s, size_t n)
{
	return (struct tv){ .type = TV_STR, .len = (uint32_t)n, .u.s = s };
}

static inline bool tv_is_int(const struct tv *v)
{
	return v->type == TV_INT || v->type == TV_BOOL;
}

static inline bool tv_is_num(const struct tv *v)
{
	return tv_is_int(v) || v->type == TV_FLOAT;
}

static inline bool tv_streq(const struct tv *v, const char *s)
{
	size_t n = strlen(s);

	return v->type == TV_STR && v->len == n && memcmp(v->u.s, s, n) == 0;
}

static inline double tv_num(const struct tv *v)
{
	return v->type == TV_FLOAT ? v->u.f : (double)v->u.i;
}

struct tv_list_builder {
	struct tv *v;
	size_t n;
	size_t cap;
};

int tv_list_add(struct tmpl_render *r, struct tv_list_builder *l,
		const struct tv *v);
const char *tv_type_name(const struct tv *v);
bool tv_truth(const struct tv *v);
int tv_str_new(struct tmpl_render *r, const char *s, size_t n, struct tv *out);
int tv_str_take(struct tmpl_render *r, struct tmpl_buf *b, struct tv *out);
int tv_undef(struct tmpl_render *r, struct tv *out, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int tv_undef_use(struct tmpl_render *r, const struct tv *v);
int tv_seq_new(struct tmpl_render *r, enum tv_type type, const struct tv *v,
	       size_t n, struct tv *out);
int tv_iter_new(struct tmpl_render *r, const char *name, const struct tv *v,
		size_t n, struct tv *out);
int tv_dict_new(struct tmpl_render *r, size_t cap, struct tv_dict **out);
int tv_dict_set(struct tmpl_render *r, struct tv_dict *d, const struct tv *k,
		const struct tv *v);
int tv_dict_get(struct tmpl_render *r, const struct tv_dict *d,
		const struct tv *k, const struct tv **out);
const struct tv *tv_dict_get_str(const struct tv_dict *d, const char *s,
				 size_t n);
int tv_items(struct tmpl_render *r, const struct tv *v, struct tv_seq *out);
int tv_len(struct tmpl_render *r, const struct tv *v, size_t *out);
bool tv_is_hashable(const struct tv *v);

/* compare.c */
int tv_equal(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	     bool *out);
int tv_order(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	     enum tmpl_op op, bool *out);
int tv_contains(struct tmpl_render *r, const struct tv *in,
		const struct tv *what, bool *out);
int tv_sort(struct tmpl_render *r, struct tv *v, const struct tv *keys,
	    size_t n, bool is_reverse);

/* print.c */
int tv_print(struct tmpl_render *r, struct tmpl_buf *b, const struct tv *v);
int tv_repr(struct tmpl_render *r, struct tmpl_buf *b, const struct tv *v);
int tv_to_str(struct tmpl_render *r, const struct tv *v, struct tv *out);
int tmpl_put(struct tmpl_render *r, struct tmpl_buf *b, const char *s,
	     size_t n);
int tmpl_puts(struct tmpl_render *r, struct tmpl_buf *b, const char *s);
int tmpl_put_float(struct tmpl_render *r, struct tmpl_buf *b, double f);
int tmpl_put_html(struct tmpl_render *r, struct tmpl_buf *b,
		  const struct tv *v);

/* arith.c */
int tv_binop(struct tmpl_render *r, enum tmpl_op op, const struct tv *a,
	     const struct tv *b, struct tv *out);
int tv_concat(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	      struct tv *out);
int tv_slice(struct tmpl_render *r, const struct tv *v, const struct tv *lo,
	     const struct tv *hi, const struct tv *step, struct tv *out);

/* methods.c, for the filters of the same names */
int tmpl_str_replace(struct tmpl_render *r, const struct tv *s,
		     const struct tv *old, const struct tv *new, int64_t max,
		     struct tv *out);
int tmpl_str_lines(struct tmpl_render *r, const struct tv *s, bool keep_ends,
		   struct tv_list_builder *out);
int tmpl_str_join(struct tmpl_render *r, const struct tv *sep,
		  const struct tv_seq *items, bool is_strict, struct tv *out);
int tmpl_str_pad(struct tmpl_render *r, const struct tv *s, int64_t width,
		 const struct tv *fill, int where, struct tv *out);

/* format.c: "..." % x and str.format */
int tmpl_percent(struct tmpl_render *r, const struct tv *fmt,
		 const struct tmpl_args *a, const struct tv *map,
		 struct tv *out);
int tmpl_str_format(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out);

/* access.c */
int tv_getattr(struct tmpl_render *r, const struct tv *v, const struct tv *name,
	       struct tv *out);
int tv_getitem(struct tmpl_render *r, const struct tv *v, const struct tv *key,
	       struct tv *out);
int tv_getpath(struct tmpl_render *r, const struct tv *v, const struct tv *path,
	       const struct tv *dflt, struct tv *out);

/* eval.c, exec.c, call.c */
int tmpl_eval(struct tmpl_render *r, const struct tnode *n, struct tv *out);
int tmpl_exec(struct tmpl_render *r, const struct tnode *n);
int tmpl_capture(struct tmpl_render *r, const struct tnode *body,
		 struct tv *out);
int tmpl_scope_push(struct tmpl_render *r, struct tmpl_scope *parent);
int tmpl_scope_set(struct tmpl_render *r, uint32_t name, const struct tv *v);
int tmpl_eval_args(struct tmpl_render *r, const struct tn_args *spec,
		   struct tmpl_args *out);
int tmpl_call(struct tmpl_render *r, const struct tv *fn,
	      const struct tmpl_args *a, struct tv *out);
int tmpl_call_func(struct tmpl_render *r, const char *kind,
		   const struct tmpl_func *f, const struct tv *self,
		   const struct tmpl_args *a, struct tv *out);
int tmpl_call_macro(struct tmpl_render *r, const struct tv_macro *m,
		    const struct tmpl_args *a, struct tv *out);
int tmpl_for(struct tmpl_render *r, const struct tnode *n,
	     const struct tv *iterable, int64_t depth0);
int tmpl_loop_next(struct tmpl_render *r, struct tv_loop *l, struct tv *out,
		   bool *has);
int tmpl_loop_attr(struct tmpl_render *r, struct tv_loop *l,
		   const struct tv *name, struct tv *out, bool *has);

/* tables */
const struct tmpl_func *tmpl_find(const struct tmpl_func *table, const char *s,
				  size_t n);
const struct tmpl_func *tmpl_filter_find(const char *s, size_t n);
extern const struct tmpl_func tmpl_text_filters[];
extern const struct tmpl_func tmpl_seq_filters[];
extern const struct tmpl_func tmpl_select_filters[];
extern const struct tmpl_func tmpl_tests[];
extern const struct tmpl_func tmpl_globals[];
extern const struct tmpl_func tmpl_str_methods[];
extern const struct tmpl_func tmpl_dict_methods[];
extern const struct tmpl_func tmpl_list_methods[];
extern const struct tmpl_func tmpl_loop_methods[];
extern const struct tmpl_func tmpl_cycler_methods[];

/* json.c */
int tmpl_load_context(struct tmpl_render *r, const char *json, size_t len);
void tmpl_drop_context(struct tmpl_render *r);
tmpl_fn tmpl_filter_tojson;

/* text.c */
size_t tmpl_u8_count(const char *s, size_t n);
size_t tmpl_u8_offset(const char *s, size_t n, size_t cp);
size_t tmpl_u8_decode(const char *s, size_t n, uint32_t *out_cp);
size_t tmpl_u8_encode(uint32_t cp, char out[4]);
size_t tmpl_u8_invalid_at(const char *s, size_t n);
bool tmpl_cp_is_space(uint32_t cp);
bool tmpl_cp_is_printable(uint32_t cp);
enum tmpl_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
void *tmpl_ctype_create(void);
void tmpl_ctype_destroy(void *ctype);
int tmpl_case_map(struct tmpl_render *r, const struct tv *s, enum tmpl_case how,
		  struct tv *out);
bool tmpl_cp_is(struct tmpl_render *r, uint32_t cp, const char *klass);
const char *tmpl_find_first(const char *s, size_t n, const struct tv *what);
struct tv tmpl_strip(const struct tv *s, const struct tv *chars, bool left,
		     bool right);

#endif
