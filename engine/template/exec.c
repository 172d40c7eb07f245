/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements: walks the tree, writes the output, keeps the scopes. Also
 * template_render(), which owns all memory of a rendering.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/template/internal.h"

/* tmpl_exec() returns these too; only loops take them. */
enum { EXEC_BREAK = 1, EXEC_CONTINUE = 2 };

/* A new innermost scope; the caller restores r->scope. */
int tmpl_scope_push(struct tmpl_render *r, struct tmpl_scope *parent)
{
	struct tmpl_scope *s = tmpl_alloc(r, sizeof(*s));

	if (!s)
		return -E2BIG;
	*s = (struct tmpl_scope){ .parent = parent };
	r->scope = s;
	return 0;
}

int tmpl_scope_set(struct tmpl_render *r, uint32_t name, const struct tv *v)
{
	struct tmpl_scope *s = r->scope;

	for (uint32_t i = 0; i < s->n; i++) {
		if (s->vars[i].name == name) {
			s->vars[i].v = *v;
			return 0;
		}
	}
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 4;
		struct tmpl_var *p = tmpl_alloc(r, cap * sizeof(*p));

		if (!p)
			return -E2BIG;
		if (s->n)
			memcpy(p, s->vars, s->n * sizeof(*p));
		s->vars = p;
		s->cap = cap;
	}
	s->vars[s->n++] = (struct tmpl_var){ name, *v };
	return 0;
}

static int assign_ns(struct tmpl_render *r, const struct tnode *target,
		     const struct tv *v)
{
	const struct tmpl_name *attr = &r->t->names[target->name2];
	struct tv key = tv_lit(attr->s, attr->len), ns;
	struct tnode name = { .type = TN_NAME,
			      .line = target->line,
			      .name = target->name };
	int rc = tmpl_eval(r, &name, &ns);

	if (rc)
		return rc;
	if (ns.type != TV_NS)
		return tmpl_fail(
			r, -EINVAL,
			"cannot assign attribute '%.*s' on non-namespace object",
			(int)attr->len, attr->s);
	return tv_dict_set(r, ns.u.dict, &key, v);
}

static int assign(struct tmpl_render *r, const struct tnode *target,
		  const struct tv *v)
{
	struct tv_seq seq;
	int rc;

	if (target->type == TN_NAME)
		return tmpl_scope_set(r, target->name, v);
	if (target->type == TN_NSREF)
		return assign_ns(r, target, v);
	rc = tv_items(r, v, &seq);
	if (rc)
		return rc;
	if (seq.n != target->nr_items)
		return tmpl_fail(r, -EINVAL,
				 "cannot unpack %zu values into %u names",
				 seq.n, target->nr_items);
	for (uint32_t i = 0; !rc && i < target->nr_items; i++)
		rc = assign(r, target->items[i], &seq.v[i]);
	return rc;
}

/* What @body writes, as a value. */
int tmpl_capture(struct tmpl_render *r, const struct tnode *body,
		 struct tv *out)
{
	struct tmpl_buf b = { 0 }, *to = r->out;
	int rc;

	r->out = &b;
	rc = tmpl_exec(r, body);
	r->out = to;
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

/* ---- loops ---- */

/* Whether @v passes the loop's own "if", with the target bound to it. */
static int passes(struct tmpl_render *r, struct tv_loop *l, const struct tv *v,
		  bool *out)
{
	struct tmpl_scope *saved = r->scope;
	struct tv test;
	int rc = tmpl_scope_push(r, l->outer);

	if (!rc)
		rc = assign(r, l->node->a, v);
	if (!rc)
		rc = tmpl_eval(r, l->node->c, &test);
	r->scope = saved;
	*out = !rc && tv_truth(&test);
	return rc;
}

static int pull(struct tmpl_render *r, struct tv_loop *l, struct tv *out,
		bool *has)
{
	int rc = 0;

	*has = false;
	while (!rc && !*has && l->src_pos < l->src.n) {
		*out = l->src.v[l->src_pos++];
		*has = true;
		if (l->node->c && !l->is_filtered)
			rc = passes(r, l, out, has);
	}
	return rc;
}

static int peek(struct tmpl_render *r, struct tv_loop *l, bool *has)
{
	int rc = 0;

	*has = l->has_after;
	if (!l->has_after) {
		rc = pull(r, l, &l->after, has);
		l->has_after = *has;
	}
	return rc;
}

/* The next item of a running loop; @has false at its end. */
int tmpl_loop_next(struct tmpl_render *r, struct tv_loop *l, struct tv *out,
		   bool *has)
{
	int rc = peek(r, l, has);

	if (rc || !*has)
		return rc;
	*out = l->after;
	l->has_after = false;
	l->index0++;
	l->before = l->current;
	l->current = *out;
	return 0;
}

/* Needs all that is left, so the test is applied to it now. */
static int loop_length(struct tmpl_render *r, struct tv_loop *l, int64_t *out)
{
	if (l->node->c && !l->is_filtered) {
		size_t left = l->src.n - l->src_pos, n = 0;
		struct tv *v = tmpl_alloc(r, left * sizeof(*v));
		bool has = true;

		while (v && has) {
			struct tv item;
			int rc = pull(r, l, &item, &has);

			if (rc)
				return rc;
			if (has)
				v[n++] = item;
		}
		if (!v)
			return -E2BIG;
		l->src = (struct tv_seq){ n, v };
		l->src_pos = 0;
		l->is_filtered = true;
	}
	*out = l->index0 + 1 + (int64_t)(l->src.n - l->src_pos) + l->has_after;
	return 0;
}

static int loop_neighbour(struct tmpl_render *r, struct tv_loop *l,
			  bool is_next, struct tv *out)
{
	bool has = l->index0 > 0;
	int rc = is_next ? peek(r, l, &has) : 0;

	if (rc)
		return rc;
	if (!has)
		return tv_undef(r, out, "there is no %s item",
				is_next ? "next" : "previous");
	*out = is_next ? l->after : l->before;
	return 0;
}

int tmpl_loop_attr(struct tmpl_render *r, struct tv_loop *l,
		   const struct tv *name, struct tv *out, bool *has)
{
	int64_t len;
	bool more;
	int rc = 0;

	*has = true;
	if (tv_streq(name, "index0")) {
		*out = tv_int(l->index0);
	} else if (tv_streq(name, "index")) {
		*out = tv_int(l->index0 + 1);
	} else if (tv_streq(name, "first")) {
		*out = tv_bool(l->index0 == 0);
	} else if (tv_streq(name, "last")) {
		rc = peek(r, l, &more);
		*out = tv_bool(!more);
	} else if (tv_streq(name, "length")) {
		rc = loop_length(r, l, &len);
		*out = tv_int(len);
	} else if (tv_streq(name, "revindex")) {
		rc = loop_length(r, l, &len);
		*out = tv_int(len - l->index0);
	} else if (tv_streq(name, "revindex0")) {
		rc = loop_length(r, l, &len);
		*out = tv_int(len - l->index0 - 1);
	} else if (tv_streq(name, "depth")) {
		*out = tv_int(l->depth0 + 1);
	} else if (tv_streq(name, "depth0")) {
		*out = tv_int(l->depth0);
	} else if (tv_streq(name, "previtem")) {
		rc = loop_neighbour(r, l, false, out);
	} else if (tv_streq(name, "nextitem")) {
		rc = loop_neighbour(r, l, true, out);
	} else {
		*has = false;
	}
	return rc;
}

static int run_loop(struct tmpl_render *r, struct tv_loop *l)
{
	struct tv self = { .type = TV_LOOP, .u.loop = l }, item;
	struct tmpl_scope *scope;
	bool has = true;
	int rc = tmpl_scope_push(r, l->outer);

	scope = r->scope;
	while (rc >= 0 && rc != EXEC_BREAK) {
		rc = tmpl_loop_next(r, l, &item, &has);
		if (rc || !has)
			break;
		scope->n = 0; /* what the body has set ends with each round */
		rc = tmpl_scope_set(r, r->t->id_loop, &self);
		if (!rc)
			rc = assign(r, l->node->a, &item);
		if (!rc) {
			rc = tmpl_exec(r, l->node->items[0]);
			l->is_run |= rc == 0;
		}
	}
	return rc < 0 ? rc : 0;
}

/* Runs the loop @n over @iterable; r->scope is the scope around it. */
int tmpl_for(struct tmpl_render *r, const struct tnode *n,
	     const struct tv *iterable, int64_t depth0)
{
	struct tmpl_scope *outer = r->scope;
	struct tv_loop *l = tmpl_alloc(r, sizeof(*l));
	int rc;

	if (!l)
		return -E2BIG;
	*l = (struct tv_loop){
		.node = n, .outer = outer, .index0 = -1, .depth0 = depth0
	};
	rc = tv_items(r, iterable, &l->src);
	if (!rc)
		rc = tmpl_enter(r);
	if (rc)
		return rc;
	rc = run_loop(r, l);
	r->scope = outer;
	if (!rc && !l->is_run && n->nr_items > 1) {
		rc = tmpl_scope_push(r, outer);
		if (!rc)
			rc = tmpl_exec(r, n->items[1]);
		r->scope = outer;
	}
	tmpl_leave(r);
	return rc;
}

/* ---- statements ---- */

static int exec_if(struct tmpl_render *r, const struct tnode *n)
{
	for (uint32_t i = 0; i < n->nr_items; i += 2) {
		struct tv v;
		int rc = tmpl_eval(r, n->items[i], &v);

		if (rc)
			return rc;
		if (tv_truth(&v))
			return tmpl_exec(r, n->items[i + 1]);
	}
	return n->c ? tmpl_exec(r, n->c) : 0;
}

static int exec_for(struct tmpl_render *r, const struct tnode *n)
{
	struct tv v;
	int rc = tmpl_eval(r, n->b, &v);

	return rc ? rc : tmpl_for(r, n, &v, 0);
}

static int capture_scoped(struct tmpl_render *r, const struct tnode *body,
			  struct tv *out)
{
	struct tmpl_scope *saved = r->scope;
	int rc = tmpl_scope_push(r, saved);

	if (!rc)
		rc = tmpl_capture(r, body, out);
	r->scope = saved;
	return rc;
}

/* The body's text through the node's filters: filter and set blocks. */
static int filtered_body(struct tmpl_render *r, const struct tnode *n,
			 struct tv *out)
{
	struct tv saved = r->captured, text;
	int rc = capture_scoped(r, n->c, &text);

	if (rc)
		return rc;
	r->captured = text;
	rc = tmpl_eval(r, n->b, out);
	r->captured = saved;
	return rc;
}

static int make_macro(struct tmpl_render *r, const struct tnode *def,
		      struct tv *out)
{
	struct tv_macro *m = tmpl_alloc(r, sizeof(*m));

	if (!m)
		return -E2BIG;
	*m = (struct tv_macro){ .def = def, .scope = r->scope };
	*out = (struct tv){ .type = TV_MACRO, .u.macro = m };
	return 0;
}

static int exec_call_block(struct tmpl_render *r, const struct tnode *n)
{
	struct tmpl_args a;
	struct tmpl_kwarg *kw;
	struct tv fn, v;
	int rc = tmpl_eval(r, n->a->a, &fn);

	if (!rc)
		rc = tmpl_eval_args(r, n->a->args, &a);
	if (rc)
		return rc;
	kw = tmpl_alloc(r, (a.nr_kw + 1) * sizeof(*kw));
	if (!kw)
		return -E2BIG;
	if (a.nr_kw)
		memcpy(kw, a.kw, a.nr_kw * sizeof(*kw));
	kw[a.nr_kw].name = tv_lit("caller", 6);
	rc = make_macro(r, n->b, &kw[a.nr_kw].v);
	a.kw = kw;
	a.nr_kw++;
	r->line = n->line;
	if (!rc)
		rc = tmpl_call(r, &fn, &a, &v);
	return rc ? rc : tv_print(r, r->out, &v);
}

static int exec_with(struct tmpl_render *r, const struct tnode *n)
{
	struct tmpl_scope *outer = r->scope, *inner;
	int rc = tmpl_scope_push(r, outer);

	inner = r->scope;
	for (uint32_t i = 0; !rc && i < n->nr_items; i += 2) {
		struct tv v;

		r->scope = outer;
		rc = tmpl_eval(r, n->items[i + 1], &v);
		r->scope = inner;
		if (!rc)
			rc = tmpl_scope_set(r, n->items[i]->name, &v);
	}
	if (!rc)
		rc = tmpl_exec(r, n->c);
	r->scope = outer;
	return rc;
}

/* What a macro without arguments sees of the names that it uses: enum tmpl_macro_flag. */
static int bind_nothing(struct tmpl_render *r, unsigned int used)
{
	struct tv_dict *d;
	struct tv v;
	int rc = 0;

	if (used & MACRO_VARARGS)
		rc = tv_seq_new(r, TV_TUPLE, NULL, 0, &v);
	if (!rc && (used & MACRO_VARARGS))
		rc = tmpl_scope_set(r, r->t->id_varargs, &v);
	if (!rc && (used & MACRO_KWARGS)) {
		rc = tv_dict_new(r, 0, &d);
		v = (struct tv){ .type = TV_DICT, .u.dict = d };
		if (!rc)
			rc = tmpl_scope_set(r, r->t->id_kwargs, &v);
	}
	if (!rc && (used & MACRO_CALLER))
		rc = tv_undef(r, &v, "no caller defined");
	if (!rc && (used & MACRO_CALLER))
		rc = tmpl_scope_set(r, r->t->id_caller, &v);
	return rc;
}

static int exec_scope(struct tmpl_render *r, const struct tnode *n)
{
	struct tmpl_scope *outer = r->scope;
	int rc = tmpl_scope_push(r, outer);

	if (!rc && n->op)
		rc = bind_nothing(r, n->op);
	if (!rc)
		rc = tmpl_exec(r, n->c);
	r->scope = outer;
	return rc;
}

static int exec_body(struct tmpl_render *r, const struct tnode *n)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < n->nr_items; i++)
		rc = tmpl_exec(r, n->items[i]);
	return rc;
}

static int exec_node(struct tmpl_render *r, const struct tnode *n)
{
	struct tv v;
	int rc;

	switch (n->type) {
	case TN_TEXT:
		return tmpl_put(r, r->out, n->value.u.s, n->value.len);
	case TN_OUTPUT:
		rc = tmpl_eval(r, n->a, &v);
		return rc ? rc : tv_print(r, r->out, &v);
	case TN_BODY:
		return exec_body(r, n);
	case TN_IF:
		return exec_if(r, n);
	case TN_FOR:
		return exec_for(r, n);
	case TN_SET:
		rc = tmpl_eval(r, n->b, &v);
		return rc ? rc : assign(r, n->a, &v);
	case TN_SETBLOCK:
		rc = filtered_body(r, n, &v);
		return rc ? rc : assign(r, n->a, &v);
	case TN_FILTERBLOCK:
		rc = filtered_body(r, n, &v);
		if (!rc && v.type != TV_STR) /* as jinja2, which joins texts */
			rc = tmpl_fail(
				r, -EINVAL,
				"a filter block gives a string, not '%s'",
				tv_type_name(&v));
		return rc ? rc : tv_print(r, r->out, &v);
	case TN_MACRO:
		rc = make_macro(r, n, &v);
		return rc ? rc : tmpl_scope_set(r, n->name, &v);
	case TN_CALLBLOCK:
		return exec_call_block(r, n);
	case TN_WITH:
		return exec_with(r, n);
	case TN_SCOPE:
		return exec_scope(r, n);
	case TN_BREAK:
		return EXEC_BREAK;
	case TN_CONTINUE:
		return EXEC_CONTINUE;
	default:
		return tmpl_fail(r, -EINVAL, "not a statement");
	}
}

int tmpl_exec(struct tmpl_render *r, const struct tnode *n)
{
	int rc;

	r->line = n->line;
	rc = tmpl_enter(r);
	if (rc)
		return rc;
	rc = exec_node(r, n);
	tmpl_leave(r);
	return rc;
}

static struct template_limits with_defaults(const struct template_limits *l)
{
	struct template_limits d = { .max_steps = 5000000,
				     .max_depth = 1000,
				     .max_output_bytes = (size_t)64 << 20,
				     .max_value_bytes = (size_t)256 << 20 };

	if (l && l->max_steps)
		d.max_steps = l->max_steps;
	if (l && l->max_depth)
		d.max_depth = l->max_depth;
	if (l && l->max_output_bytes)
		d.max_output_bytes = l->max_output_bytes;
	if (l && l->max_value_bytes)
		d.max_value_bytes = l->max_value_bytes;
	if (l)
		d.now_seconds = l->now_seconds;
	return d;
}

int template_render(const struct template *t, const char *context_json,
		    size_t len, const struct template_limits *limits,
		    char **out_text, size_t *out_len, char *err, size_t errlen)
{
	struct tmpl_buf out = { 0 };
	struct tmpl_render r = {
		.t = t, .err = err, .errlen = errlen, .out = &out
	};
	int rc;

	r.lim = with_defaults(limits);
	r.arena.limit_bytes = r.lim.max_value_bytes;
	rc = tmpl_load_context(&r, context_json, len);
	if (!rc)
		rc = tmpl_scope_push(&r, NULL);
	if (!rc)
		rc = tmpl_exec(&r, t->root);
	if (!rc && (r.is_oom || tmpl_buf_put(&out, "", 1)))
		rc = tmpl_fail(&r, -ENOMEM, "out of memory");
	tmpl_ctype_done(&r);
	tmpl_drop_context(&r);
	tmpl_arena_deinit(&r.arena);
	if (rc) {
		tmpl_buf_deinit(&out);
		return r.is_oom ? -ENOMEM : rc;
	}
	*out_text = out.data;
	*out_len = out.len - 1;
	return 0;
}
