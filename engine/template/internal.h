/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the template engine share while a template is rendered: the
 * rendering's state, calls, printing, the tables of functions. Not for use
 * outside engine/template/. Memory is in arena.h, values in value.h, the syntax
 * tree in syntax.h.
 */
#ifndef TARN_TEMPLATE_INTERNAL_H
#define TARN_TEMPLATE_INTERNAL_H

#include "engine/template/syntax.h"

struct json_t;

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
	struct tmpl_chars *chars; /* of unicode.c; NULL: none asked for yet */
	uint64_t steps;
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
	TMPL_MAX_RANGE = 100000, /* as jinja2's sandbox */
};

/* All of them return 0 or a negative errno with r->err written. */
int tmpl_fail(struct tmpl_render *r, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int tmpl_charge(struct tmpl_render *r, size_t bytes);
int tmpl_enter(struct tmpl_render *r);
void tmpl_leave(struct tmpl_render *r);
void *tmpl_alloc(struct tmpl_render *r, size_t bytes);

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

/* format.c: "..." % x; format_braces.c: str.format */
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
const char *tmpl_find_first(const char *s, size_t n, const struct tv *what);
struct tv tmpl_strip(const struct tv *s, const struct tv *chars, bool left,
		     bool right);

/* unicode.c */
enum tmpl_class {
	TMPL_UPPER,
	TMPL_LOWER,
	TMPL_TITLE,
	TMPL_ALPHA,
	TMPL_ALNUM,
	TMPL_DECIMAL,
	TMPL_DIGIT,
	TMPL_PRINTABLE, /* repr() shows the character itself */
	TMPL_IGNORABLE, /* stands within a word */
	TMPL_NR_CLASSES,
};
enum tmpl_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
/* NULL: no memory. */
struct tmpl_ctype *tmpl_ctype_create(void);
void tmpl_ctype_destroy(struct tmpl_ctype *ctype);
/* The end of a rendering. */
void tmpl_ctype_done(struct tmpl_render *r);
int tmpl_case_map(struct tmpl_render *r, const struct tv *s, enum tmpl_case how,
		  struct tv *out);
bool tmpl_cp_is(struct tmpl_render *r, uint32_t cp, enum tmpl_class klass);

#endif /* TARN_TEMPLATE_INTERNAL_H */
