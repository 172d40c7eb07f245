/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters that apply another filter, a test or an attribute to each item.
 * Their results are iterators, good for one pass, as in jinja2.
 */
#include <errno.h>

#include "engine/template/internal.h"

static const struct tv *kwarg(const struct tmpl_args *a, const char *name)
{
	for (size_t i = 0; i < a->nr_kw; i++)
		if (tv_streq(&a->kw[i].name, name))
			return &a->kw[i].v;
	return NULL;
}

static int find_by_name(struct tmpl_render *r, const struct tv *name,
			bool is_test, const struct tmpl_func **out)
{
	const char *kind = is_test ? "test" : "filter";

	if (name->type != TV_STR)
		return tmpl_fail(r, -EINVAL,
				 "the name of a %s must be a string", kind);
	*out = is_test ? tmpl_find(tmpl_tests, name->u.s, name->len) :
			 tmpl_filter_find(name->u.s, name->len);
	if (*out)
		return 0;
	return tmpl_fail(r, -EINVAL, "unknown %s '%.*s'", kind,
			 name->len < 80 ? (int)name->len : 80, name->u.s);
}

static int filter_map(struct tmpl_render *r, const struct tv *self,
		      const struct tmpl_args *a, struct tv *out)
{
	const struct tv *attr = a->nr_pos ? NULL : kwarg(a, "attribute");
	const struct tv *dflt = kwarg(a, "default");
	struct tmpl_args rest = *a;
	const struct tmpl_func *f = NULL;
	struct tv_seq seq = { 0 };
	struct tv *v;
	int rc = 0;

	if (dflt && dflt->type == TV_NONE)
		dflt = NULL;
	if (tv_truth(self))
		rc = tv_items(r, self, &seq);
	/* As a generator, it is asked for nothing before the first item. */
	if (!rc && !seq.n)
		return tv_iter_new(r, "generator", NULL, 0, out);
	if (!rc && !attr && !a->nr_pos)
		rc = tmpl_fail(r, -EINVAL, "map requires a filter argument");
	if (!rc && attr && a->nr_kw != 1U + (kwarg(a, "default") != NULL))
		rc = tmpl_fail(r, -EINVAL, "map: unexpected keyword argument");
	if (!rc && !attr) {
		rc = find_by_name(r, &a->pos[0], false, &f);
		rest.pos++;
		rest.nr_pos--;
	}
	v = rc ? NULL : tmpl_alloc(r, seq.n * sizeof(*v));
	if (!v)
		return rc ? rc : -E2BIG;
	for (size_t i = 0; !rc && i < seq.n; i++)
		rc = attr ? tv_getpath(r, &seq.v[i], attr, dflt, &v[i]) :
			    tmpl_call_func(r, "filter", f, &seq.v[i], &rest,
					   &v[i]);
	return rc ? rc : tv_iter_new(r, "generator", v, seq.n, out);
}

/* Items whose (attribute's) test gives @want; without a test, their truth. */
static int choose(struct tmpl_render *r, const struct tv *self,
		  const struct tmpl_args *a, bool by_attr, bool want,
		  struct tv *out)
{
	struct tv_list_builder l = { 0 };
	struct tmpl_args rest = *a;
	const struct tmpl_func *f = NULL;
	struct tv_seq seq = { 0 };
	int rc = 0;

	if (tv_truth(self))
		rc = tv_items(r, self, &seq);
	if (!rc && by_attr && !a->nr_pos)
		rc = tmpl_fail(r, -EINVAL,
			       "missing parameter for attribute name");
	rest.pos += by_attr;
	rest.nr_pos -= by_attr;
	if (!rc && rest.nr_pos) {
		rc = find_by_name(r, &rest.pos[0], true, &f);
		rest.pos++;
		rest.nr_pos--;
	}
	for (size_t i = 0; !rc && i < seq.n; i++) {
		struct tv v = seq.v[i], holds;

		if (by_attr)
			rc = tv_getpath(r, &seq.v[i], &a->pos[0], NULL, &v);
		holds = v;
		if (!rc && f)
			rc = tmpl_call_func(r, "test", f, &v, &rest, &holds);
		if (!rc && tv_truth(&holds) == want)
			rc = tv_list_add(r, &l, &seq.v[i]);
	}
	return rc ? rc : tv_iter_new(r, "generator", l.v, l.n, out);
}

static int filter_select(struct tmpl_render *r, const struct tv *self,
			 const struct tmpl_args *a, struct tv *out)
{
	return choose(r, self, a, false, true, out);
}

static int filter_reject(struct tmpl_render *r, const struct tv *self,
			 const struct tmpl_args *a, struct tv *out)
{
	return choose(r, self, a, false, false, out);
}

static int filter_selectattr(struct tmpl_render *r, const struct tv *self,
			     const struct tmpl_args *a, struct tv *out)
{
	return choose(r, self, a, true, true, out);
}

static int filter_rejectattr(struct tmpl_render *r, const struct tv *self,
			     const struct tmpl_args *a, struct tv *out)
{
	return choose(r, self, a, true, false, out);
}

static int filter_attr(struct tmpl_render *r, const struct tv *self,
		       const struct tmpl_args *a, struct tv *out)
{
	struct tv any;
	int rc;

	if (a->pos[0].type != TV_STR)
		return tmpl_fail(r, -EINVAL, "attr needs a name");
	rc = tv_getattr(r, self, &a->pos[0], &any);
	if (rc)
		return rc;
	*out = any;
	if (self->type == TV_DICT && any.type != TV_METHOD)
		return tv_undef(r, out, "'dict object' has no attribute '%.*s'",
				a->pos[0].len < 80 ? (int)a->pos[0].len : 80,
				a->pos[0].u.s);
	return 0;
}

const struct tmpl_func tmpl_select_filters[] = {
	{ "attr", filter_attr, "name", 1 },
	{ "map", filter_map, NULL, 0 },
	{ "reject", filter_reject, NULL, 0 },
	{ "rejectattr", filter_rejectattr, NULL, 0 },
	{ "select", filter_select, NULL, 0 },
	{ "selectattr", filter_selectattr, NULL, 0 },
	{ 0 },
};
