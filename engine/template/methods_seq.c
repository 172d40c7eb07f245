/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of dict, list and tuple: those that change nothing.
 */
#include <errno.h>

#include "engine/template/internal.h"

static int view_new(struct tmpl_render *r, const char *name, struct tv *v,
		    size_t n, struct tv *out)
{
	struct tv_view *w = tmpl_alloc(r, sizeof(*w));

	if (!w)
		return -E2BIG;
	*w = (struct tv_view){ .seq = { n, v }, .name = name };
	*out = (struct tv){ .type = TV_VIEW, .u.view = w };
	return 0;
}

static int dict_keys(struct tmpl_render *r, const struct tv *self,
		     const struct tmpl_args *a, struct tv *out)
{
	struct tv_seq keys;
	int rc = tv_items(r, self, &keys);

	(void)a;
	return rc ? rc :
		    view_new(r, "dict_keys", (struct tv *)(uintptr_t)keys.v,
			     keys.n, out);
}

static int dict_values(struct tmpl_render *r, const struct tv *self,
		       const struct tmpl_args *a, struct tv *out)
{
	const struct tv_dict *d = self->u.dict;
	struct tv *v = tmpl_alloc(r, d->n * sizeof(*v));

	(void)a;
	if (!v)
		return -E2BIG;
	for (size_t i = 0; i < d->n; i++)
		v[i] = d->pairs[i].val;
	return view_new(r, "dict_values", v, d->n, out);
}

static int dict_items(struct tmpl_render *r, const struct tv *self,
		      const struct tmpl_args *a, struct tv *out)
{
	const struct tv_dict *d = self->u.dict;
	struct tv *v = tmpl_alloc(r, d->n * sizeof(*v));

	(void)a;
	if (!v)
		return -E2BIG;
	for (size_t i = 0; i < d->n; i++) {
		struct tv *pair = tmpl_alloc(r, 2 * sizeof(*pair));
		int rc;

		if (!pair)
			return -E2BIG;
		pair[0] = d->pairs[i].key;
		pair[1] = d->pairs[i].val;
		rc = tv_seq_new(r, TV_TUPLE, pair, 2, &v[i]);
		if (rc)
			return rc;
	}
	return view_new(r, "dict_items", v, d->n, out);
}

static int dict_get(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out)
{
	const struct tv *found;
	int rc;

	if (!tv_is_hashable(&a->pos[0]))
		return tmpl_fail(r, -EINVAL, "unhashable type: '%s'",
				 tv_type_name(&a->pos[0]));
	rc = tv_dict_get(r, self->u.dict, &a->pos[0], &found);
	*out = found ? *found : a->pos[1];
	if (out->type == TV_MISSING)
		*out = tv_none();
	return rc;
}

static int copy(struct tmpl_render *r, const struct tv *self,
		const struct tmpl_args *a, struct tv *out)
{
	(void)a;
	*out = *self; /* nobody can change it, so it is its own copy */
	return tmpl_charge(r, 0);
}

const struct tmpl_func tmpl_dict_methods[] = {
	{ "copy", copy, "", 0 },
	{ "fromkeys", NULL, NULL, 0 },
	{ "get", dict_get, "key,default", 1 },
	{ "items", dict_items, "", 0 },
	{ "keys", dict_keys, "", 0 },
	{ "values", dict_values, "", 0 },
	{ 0 },
};

static int list_count(struct tmpl_render *r, const struct tv *self,
		      const struct tmpl_args *a, struct tv *out)
{
	struct tv_seq seq;
	int64_t n = 0;
	int rc = tv_items(r, self, &seq);

	for (size_t i = 0; !rc && i < seq.n; i++) {
		bool is_same;

		rc = tv_equal(r, &seq.v[i], &a->pos[0], &is_same);
		n += !rc && is_same;
	}
	*out = tv_int(n);
	return rc;
}

static int list_index(struct tmpl_render *r, const struct tv *self,
		      const struct tmpl_args *a, struct tv *out)
{
	struct tv_seq seq;
	int rc = tv_items(r, self, &seq);

	for (size_t i = 0; !rc && i < seq.n; i++) {
		bool is_same;

		rc = tv_equal(r, &seq.v[i], &a->pos[0], &is_same);
		if (!rc && is_same) {
			*out = tv_int((int64_t)i);
			return 0;
		}
	}
	return rc ? rc : tmpl_fail(r, -EINVAL, "value is not in the list");
}

const struct tmpl_func tmpl_list_methods[] = {
	{ "copy", copy, "", 0 },
	{ "count", list_count, "value", 1 },
	{ "index", list_index, "value", 1 },
	{ 0 },
};
