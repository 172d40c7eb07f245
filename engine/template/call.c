/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: arguments of all four kinds, binding them to the parameters of
 * built-in functions, and macros.
 */
#include <errno.h>

#include "engine/template/internal.h"

static int eval_pos(struct tmpl_render *r, const struct tn_args *spec,
		    struct tmpl_args *out)
{
	struct tv_seq extra = { 0 };
	struct tv star, *v;
	int rc = 0;

	if (spec->star) {
		/* evaluated first, but after the others by Python's rules
		 * only where both have effects, which templates cannot see */
		rc = tmpl_eval(r, spec->star, &star);
		if (!rc)
			rc = tv_items(r, &star, &extra);
		if (rc)
			return rc;
	}
	out->nr_pos = spec->nr_pos + extra.n;
	v = tmpl_alloc(r, out->nr_pos * sizeof(*v));
	if (!v)
		return -E2BIG;
	for (uint32_t i = 0; !rc && i < spec->nr_pos; i++)
		rc = tmpl_eval(r, spec->pos[i], &v[i]);
	if (extra.n)
		memcpy(v + spec->nr_pos, extra.v, extra.n * sizeof(*v));
	out->pos = v;
	return rc;
}

static int eval_kw(struct tmpl_render *r, const struct tn_args *spec,
		   struct tmpl_args *out)
{
	const struct tv_dict *d = NULL;
	struct tmpl_kwarg *kw;
	struct tv star2;
	int rc = 0;

	if (spec->star2) {
		rc = tmpl_eval(r, spec->star2, &star2);
		if (!rc && star2.type != TV_DICT)
			rc = tmpl_fail(
				r, -EINVAL,
				"argument after ** must be a mapping, not %s",
				tv_type_name(&star2));
		if (rc)
			return rc;
		d = star2.u.dict;
	}
	out->nr_kw = spec->nr_kw + (d ? d->n : 0);
	kw = tmpl_alloc(r, out->nr_kw * sizeof(*kw));
	if (!kw)
		return -E2BIG;
	for (uint32_t i = 0; !rc && i < spec->nr_kw; i++) {
		const struct tmpl_name *n = &r->t->names[spec->kw[i].name];

		kw[i].name = tv_lit(n->s, n->len);
		rc = tmpl_eval(r, spec->kw[i].value, &kw[i].v);
	}
	for (size_t i = 0; !rc && d && i < d->n; i++) {
		if (d->pairs[i].key.type != TV_STR)
			return tmpl_fail(r, -EINVAL,
					 "keywords must be strings");
		kw[spec->nr_kw + i] =
			(struct tmpl_kwarg){ d->pairs[i].key, d->pairs[i].val };
	}
	out->kw = kw;
	return rc;
}

/* @spec NULL: no arguments. */
int tmpl_eval_args(struct tmpl_render *r, const struct tn_args *spec,
		   struct tmpl_args *out)
{
	int rc = 0;

	*out = (struct tmpl_args){ 0 };
	if (!spec)
		return 0;
	if (spec->nr_pos || spec->star)
		rc = eval_pos(r, spec, out);
	if (!rc && (spec->nr_kw || spec->star2))
		rc = eval_kw(r, spec, out);
	return rc;
}

/* Position of @name in "a,b,c", or -1; @nr: how many there are. */
static int param_index(const char *params, const struct tv *name, size_t *nr)
{
	int found = -1;

	*nr = 0;
	while (*params) {
		size_t n = strcspn(params, ",");

		if (name && name->len == n && memcmp(name->u.s, params, n) == 0)
			found = (int)*nr;
		++*nr;
		params += n + (params[n] == ',');
	}
	return found;
}

static int bind(struct tmpl_render *r, const char *kind,
		const struct tmpl_func *f, const struct tmpl_args *a,
		struct tv *vals, size_t *out_nr)
{
	size_t nr;

	param_index(f->params, NULL, &nr);
	*out_nr = nr;
	if (a->nr_pos > nr)
		return tmpl_fail(
			r, -EINVAL,
			"%s '%s' takes at most %zu arguments (%zu given)", kind,
			f->name, nr, a->nr_pos);
	for (size_t i = 0; i < nr; i++)
		vals[i] = i < a->nr_pos ? a->pos[i] :
					  (struct tv){ .type = TV_MISSING };
	for (size_t i = 0; i < a->nr_kw; i++) {
		const struct tv *name = &a->kw[i].name;
		int at = param_index(f->params, name, &nr);

		if (at < 0 || vals[at].type != TV_MISSING)
			return tmpl_fail(
				r, -EINVAL,
				"%s '%s': unexpected keyword argument '%.*s'",
				kind, f->name,
				name->len < 80 ? (int)name->len : 80,
				name->u.s);
		vals[at] = a->kw[i].v;
	}
	for (size_t i = 0; i < f->nr_required; i++)
		if (vals[i].type == TV_MISSING)
			return tmpl_fail(r, -EINVAL,
					 "%s '%s' needs at least %d arguments",
					 kind, f->name, f->nr_required);
	return 0;
}

/* Calls a built-in; @kind ("filter", ...) is for messages. */
int tmpl_call_func(struct tmpl_render *r, const char *kind,
		   const struct tmpl_func *f, const struct tv *self,
		   const struct tmpl_args *a, struct tv *out)
{
	struct tv vals[TMPL_MAX_PARAMS];
	struct tmpl_args bound = { .pos = vals };
	int rc;

	if (!f->fn)
		return tmpl_fail(r, -EINVAL, "%s '%s' is not supported", kind,
				 f->name);
	rc = tmpl_enter(r);
	if (rc)
		return rc;
	if (f->params) {
		rc = bind(r, kind, f, a, vals, &bound.nr_pos);
		a = &bound;
	}
	if (!rc)
		rc = f->fn(r, self, a, out);
	tmpl_leave(r);
	return rc;
}

/* ---- macros ---- */

static const struct tmpl_kwarg *find_kw(const struct tmpl_render *r,
					const struct tmpl_args *a, uint32_t id)
{
	const struct tmpl_name *n = &r->t->names[id];

	for (size_t i = 0; i < a->nr_kw; i++)
		if (a->kw[i].name.len == n->len &&
		    memcmp(a->kw[i].name.u.s, n->s, n->len) == 0)
			return &a->kw[i];
	return NULL;
}

static bool is_param(const struct tnode *def, uint32_t id)
{
	for (uint32_t i = 0; i < def->nr_params; i++)
		if (def->params[i] == id)
			return true;
	return false;
}

/* Keyword arguments that no parameter took: kwargs, caller, or an error. */
static int bind_extra_kw(struct tmpl_render *r, const struct tnode *def,
			 const struct tmpl_args *a)
{
	const struct tmpl_name *name = &r->t->names[def->name];
	struct tv caller = { .type = TV_MISSING }, v;
	struct tv_dict *d;
	int rc = tv_dict_new(r, 0, &d);

	for (size_t i = 0; !rc && i < a->nr_kw; i++) {
		const struct tmpl_kwarg *kw = &a->kw[i];
		bool is_taken = false;

		for (uint32_t k = 0; k < def->nr_params; k++)
			is_taken |= find_kw(r, a, def->params[k]) == kw &&
				    k >= a->nr_pos;
		if (is_taken)
			continue;
		if (tv_streq(&kw->name, "caller") && (def->op & MACRO_CALLER) &&
		    !is_param(def, r->t->id_caller))
			caller = kw->v;
		else if (def->op & MACRO_KWARGS)
			rc = tv_dict_set(r, d, &kw->name, &kw->v);
		else
			return tmpl_fail(
				r, -EINVAL,
				"macro '%.*s' takes no keyword argument '%.*s'",
				(int)name->len, name->s,
				kw->name.len < 80 ? (int)kw->name.len : 80,
				kw->name.u.s);
	}
	if (!rc && (def->op & MACRO_KWARGS)) {
		v = (struct tv){ .type = TV_DICT, .u.dict = d };
		rc = tmpl_scope_set(r, r->t->id_kwargs, &v);
	}
	if (rc || !(def->op & MACRO_CALLER) || is_param(def, r->t->id_caller))
		return rc;
	if (caller.type == TV_MISSING)
		rc = tv_undef(r, &caller, "no caller defined");
	return rc ? rc : tmpl_scope_set(r, r->t->id_caller, &caller);
}

static int bind_params(struct tmpl_render *r, const struct tnode *def,
		       const struct tmpl_args *a)
{
	uint32_t first_default = def->nr_params - def->nr_items;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < def->nr_params; i++) {
		const struct tmpl_kwarg *kw = find_kw(r, a, def->params[i]);
		const struct tmpl_name *n = &r->t->names[def->params[i]];
		struct tv v;

		if (i < a->nr_pos)
			v = a->pos[i];
		else if (kw)
			v = kw->v;
		else if (i >= first_default)
			rc = tmpl_eval(r, def->items[i - first_default], &v);
		else
			rc = tv_undef(r, &v,
				      "parameter '%.*s' was not provided",
				      (int)n->len, n->s);
		if (!rc)
			rc = tmpl_scope_set(r, def->params[i], &v);
	}
	return rc;
}

static int bind_macro(struct tmpl_render *r, const struct tnode *def,
		      const struct tmpl_args *a)
{
	const struct tmpl_name *name = &r->t->names[def->name];
	size_t nr_extra =
		a->nr_pos > def->nr_params ? a->nr_pos - def->nr_params : 0;
	struct tv v;
	int rc = 0;

	if (nr_extra && !(def->op & MACRO_VARARGS))
		return tmpl_fail(
			r, -EINVAL,
			"macro '%.*s' takes not more than %u arguments",
			(int)name->len, name->s, def->nr_params);
	if ((def->op & MACRO_VARARGS) && !is_param(def, r->t->id_varargs)) {
		rc = tv_seq_new(r, TV_TUPLE,
				nr_extra ? a->pos + def->nr_params : NULL,
				nr_extra, &v);
		if (!rc)
			rc = tmpl_scope_set(r, r->t->id_varargs, &v);
	}
	if (!rc)
		rc = bind_extra_kw(r, def, a);
	return rc ? rc : bind_params(r, def, a);
}

int tmpl_call_macro(struct tmpl_render *r, const struct tv_macro *m,
		    const struct tmpl_args *a, struct tv *out)
{
	struct tmpl_scope *saved = r->scope;
	int rc = tmpl_scope_push(r, m->scope);

	if (!rc)
		rc = bind_macro(r, m->def, a);
	if (!rc)
		rc = tmpl_capture(r, m->def->c, out);
	r->scope = saved;
	return rc;
}

static int call_loop(struct tmpl_render *r, struct tv_loop *l,
		     const struct tmpl_args *a, struct tv *out)
{
	struct tmpl_scope *saved = r->scope;
	struct tmpl_buf b = { 0 }, *to = r->out;
	int rc;

	if (!l->node->is_recursive)
		return tmpl_fail(
			r, -EINVAL,
			"the loop must have the 'recursive' marker to be called");
	if (a->nr_pos != 1 || a->nr_kw)
		return tmpl_fail(r, -EINVAL, "loop() takes one argument");
	r->scope = l->outer;
	r->out = &b;
	rc = tmpl_for(r, l->node, &a->pos[0], l->depth0 + 1);
	r->out = to;
	r->scope = saved;
	if (rc >= 0)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

int tmpl_call(struct tmpl_render *r, const struct tv *fn,
	      const struct tmpl_args *a, struct tv *out)
{
	switch (fn->type) {
	case TV_UNDEF:
		return tv_undef_use(r, fn);
	case TV_FUNC:
		return tmpl_call_func(r, "function", fn->u.func, NULL, a, out);
	case TV_METHOD:
		return tmpl_call_func(r, "method", fn->u.method->func,
				      &fn->u.method->self, a, out);
	case TV_MACRO:
		return tmpl_call_macro(r, fn->u.macro, a, out);
	case TV_LOOP:
		return call_loop(r, fn->u.loop, a, out);
	case TV_JOINER:
		*out = fn->u.joiner->is_used ? fn->u.joiner->sep :
					       tv_lit("", 0);
		fn->u.joiner->is_used = true;
		return 0;
	default:
		return tmpl_fail(r, -EINVAL, "'%s' object is not callable",
				 tv_type_name(fn));
	}
}
