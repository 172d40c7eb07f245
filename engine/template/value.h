/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of templates, and what can be done with them. Not for use outside
 * engine/template/. Values live in the arena of their rendering (those of
 * literals in the template's) and are never changed once others see them, but
 * for namespaces, cyclers, joiners, loops and iterators.
 *
 * Functions that return int return 0 or a negative errno with r->err written.
 */
#ifndef TARN_TEMPLATE_VALUE_H
#define TARN_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tmpl_buf;
struct tmpl_func;
struct tmpl_render;
struct tmpl_scope;
struct tnode;

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
	bool is_run; /* a round came to its end: what an else goes by */
	bool has_after;
	struct tv after, current, before, last_changed;
	int64_t index0;
	int64_t depth0;
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

/* arith.c */
int tv_binop(struct tmpl_render *r, enum tmpl_op op, const struct tv *a,
	     const struct tv *b, struct tv *out);
int tv_concat(struct tmpl_render *r, const struct tv *a, const struct tv *b,
	      struct tv *out);
int tv_slice(struct tmpl_render *r, const struct tv *v, const struct tv *lo,
	     const struct tv *hi, const struct tv *step, struct tv *out);

#endif /* TARN_TEMPLATE_VALUE_H */
