/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters on lists and dictionaries as wholes. Those that apply something to
 * each item are in filters_select.c.
 */
#include <errno.h>

#include "engine/template/internal.h"

#define FILTER(id)                                                           \
	static int filter_##id(struct tmpl_render *r, const struct tv *self, \
			       const struct tmpl_args *a, struct tv *out)

FILTER(length)
{
	size_t n;
	int rc = tv_len(r, self, &n);

	(void)a;
	*out = tv_int(rc ? 0 : (int64_t)n);
	return rc;
}

FILTER(default)
{
	bool is_default = self->type == TV_UNDEF ||
			  (tv_truth(&a->pos[1]) && !tv_truth(self));

	*out = *self;
	if (is_default)
		*out = a->pos[0].type == TV_MISSING ? tv_lit("", 0) : a->pos[0];
	return tmpl_charge(r, 0);
}

FILTER(list)
{
	struct tv_seq seq;
	int rc = tv_items(r, self, &seq);

	(void)a;
	return rc ? rc : tv_seq_new(r, TV_LIST, seq.v, seq.n, out);
}

FILTER(first)
{
	struct tv_seq seq;
	int rc;

	(void)a;
	if (self->type == TV_ITER) { /* takes one and leaves the rest */
		struct tv_iter *it = self->u.iter;

		seq = (struct tv_seq){ it->seq.n - it->pos,
				       it->seq.v + it->pos };
		it->pos += it->pos < it->seq.n;
	} else {
		rc = tv_items(r, self, &seq);
		if (rc)
			return rc;
	}
	if (!seq.n)
		return tv_undef(r, out, "no first item, sequence was empty");
	*out = seq.v[0];
	return 0;
}

FILTER(last)
{
	struct tv_seq seq;
	int rc;

	(void)a;
	if (self->type == TV_ITER)
		return tmpl_fail(r, -EINVAL,
				 "'generator' object is not reversible");
	rc = tv_items(r, self, &seq);
	if (rc)
		return rc;
	if (!seq.n)
		return tv_undef(r, out, "no last item, sequence was empty");
	*out = seq.v[seq.n - 1];
	return 0;
}

FILTER(reverse)
{
	struct tv minus = tv_int(-1), *v;
	struct tv_seq seq;
	int rc;

	(void)a;
	if (self->type == TV_STR)
		return tv_slice(r, self, NULL, NULL, &minus, out);
	rc = tv_items(r, self, &seq);
	if (rc)
		return rc;
	v = tmpl_alloc(r, seq.n * sizeof(*v));
	if (!v)
		return -E2BIG;
	for (size_t i = 0; i < seq.n; i++)
		v[i] = seq.v[seq.n - 1 - i];
	if (self->type == TV_ITER || self->type == TV_UNDEF)
		return tv_seq_new(r, TV_LIST, v, seq.n, out);
	return tv_iter_new(r, "list_reverseiterator", v, seq.n, out);
}

FILTER(join)
{
	struct tv sep = tv_lit("", 0), *v;
	struct tv_seq seq;
	int rc = tv_items(r, self, &seq);

	if (!rc && a->pos[0].type != TV_MISSING)
		rc = tv_to_str(r, &a->pos[0], &sep);
	if (rc)
		return rc;
	if (a->pos[1].type != TV_MISSING && a->pos[1].type != TV_NONE) {
		v = tmpl_alloc(r, seq.n * sizeof(*v));
		if (!v)
			return -E2BIG;
		for (size_t i = 0; !rc && i < seq.n; i++)
			rc = tv_getpath(r, &seq.v[i], &a->pos[1], NULL, &v[i]);
		if (rc)
			return rc;
		seq.v = v;
	}
	return tmpl_str_join(r, &sep, &seq, false, out);
}

/* The items of a dictionary as a list of pairs. */
static int pairs_of(struct tmpl_render *r, const struct tv *self,
		    const char *who, struct tv_seq *out)
{
	const struct tmpl_func *f = tmpl_find(tmpl_dict_methods, "items", 5);
	struct tmpl_args none = { 0 };
	struct tv view;
	int rc;

	*out = (struct tv_seq){ 0 };
	if (self->type == TV_UNDEF)
		return 0;
	if (self->type != TV_DICT)
		return tmpl_fail(r, -EINVAL, "%s needs a mapping, not '%s'",
				 who, tv_type_name(self));
	rc = tmpl_call_func(r, "method", f, self, &none, &view);
	if (!rc)
		*out = view.u.view->seq;
	return rc;
}

FILTER(items)
{
	struct tv_seq seq;
	int rc = pairs_of(r, self, "items", &seq);

	(void)a;
	return rc ? rc : tv_iter_new(r, "generator", seq.v, seq.n, out);
}

/* What sorting without regard to case compares. */
static int sort_key(struct tmpl_render *r, const struct tv *v,
		    bool case_sensitive, struct tv *out)
{
	*out = *v;
	if (case_sensitive || v->type != TV_STR)
		return 0;
	return tmpl_case_map(r, v, CASE_LOWER, out);
}

FILTER(dictsort)
{
	bool by_value = tv_streq(&a->pos[1], "value");
	bool cased = tv_truth(&a->pos[0]);
	struct tv *keys, *v;
	struct tv_seq seq;
	int rc;

	if (self->type == TV_UNDEF)
		return tv_undef_use(r, self);
	if (!by_value && a->pos[1].type != TV_MISSING &&
	    !tv_streq(&a->pos[1], "key"))
		return tmpl_fail(r, -EINVAL,
				 "dictsort sorts by \"key\" or \"value\" only");
	rc = pairs_of(r, self, "dictsort", &seq);
	if (rc)
		return rc;
	keys = tmpl_alloc(r, seq.n * sizeof(*keys));
	v = tmpl_alloc(r, seq.n * sizeof(*v));
	if (!keys || !v)
		return -E2BIG;
	for (size_t i = 0; !rc && i < seq.n; i++) {
		v[i] = seq.v[i];
		rc = sort_key(r, &v[i].u.seq->v[by_value], cased, &keys[i]);
	}
	if (!rc)
		rc = tv_sort(r, v, keys, seq.n, tv_truth(&a->pos[2]));
	return rc ? rc : tv_seq_new(r, TV_LIST, v, seq.n, out);
}

/* "a,b.c": a tuple of what the paths lead to; one path: the value itself. */
static int multi_key(struct tmpl_render *r, const struct tv *v,
		     const struct tv *attr, bool cased, struct tv *out)
{
	struct tv_list_builder l = { 0 };
	struct tv at;
	size_t i = 0;
	int rc = 0;

	if (attr->type != TV_STR || !memchr(attr->u.s, ',', attr->len)) {
		rc = tv_getpath(r, v, attr, NULL, &at);
		return rc ? rc : sort_key(r, &at, cased, out);
	}
	while (!rc && i <= attr->len) {
		const char *s = attr->u.s + i;
		const char *comma = memchr(s, ',', attr->len - i);
		size_t n = comma ? (size_t)(comma - s) : attr->len - i;
		struct tv path = tv_lit(s, n), key;

		rc = tv_getpath(r, v, &path, NULL, &at);
		if (!rc)
			rc = sort_key(r, &at, cased, &key);
		if (!rc)
			rc = tv_list_add(r, &l, &key);
		i += n + 1;
	}
	return rc ? rc : tv_seq_new(r, TV_LIST, l.v, l.n, out);
}

/* A copy of the items and the keys to order them by. */
static int keyed(struct tmpl_render *r, const struct tv *self,
		 const struct tv *attr, bool cased, struct tv **out_v,
		 struct tv **out_keys, size_t *out_n)
{
	struct tv_seq seq;
	int rc = tv_items(r, self, &seq);

	if (rc)
		return rc;
	*out_v = tmpl_alloc(r, seq.n * sizeof(**out_v));
	*out_keys = tmpl_alloc(r, seq.n * sizeof(**out_keys));
	*out_n = seq.n;
	if (!*out_v || !*out_keys)
		return -E2BIG;
	for (size_t i = 0; !rc && i < seq.n; i++) {
		(*out_v)[i] = seq.v[i];
		rc = multi_key(r, &seq.v[i], attr, cased, &(*out_keys)[i]);
	}
	return rc;
}

FILTER(sort)
{
	struct tv *v, *keys, *lists;
	size_t n;
	int rc =
		keyed(r, self, &a->pos[2], tv_truth(&a->pos[1]), &v, &keys, &n);

	/* jinja2 compares lists of keys: of two that are equal, none is asked for its order. */
	lists = rc ? NULL : tmpl_alloc(r, n * sizeof(*lists));
	if (!lists)
		return rc ? rc : -E2BIG;
	for (size_t i = 0; !rc && i < n; i++)
		rc = tv_seq_new(r, TV_LIST, &keys[i], 1, &lists[i]);
	if (!rc)
		rc = tv_sort(r, v, lists, n, tv_truth(&a->pos[0]));
	return rc ? rc : tv_seq_new(r, TV_LIST, v, n, out);
}

FILTER(unique)
{
	struct tv_list_builder l = { 0 };
	struct tv yes = tv_bool(true);
	struct tv_dict *seen;
	struct tv *v, *keys;
	size_t n;
	int rc =
		keyed(r, self, &a->pos[1], tv_truth(&a->pos[0]), &v, &keys, &n);

	if (!rc)
		rc = tv_dict_new(r, 0, &seen);
	for (size_t i = 0; !rc && i < n; i++) {
		size_t before = seen->n;

		rc = tv_dict_set(r, seen, &keys[i], &yes);
		if (!rc && seen->n > before)
			rc = tv_list_add(r, &l, &v[i]);
	}
	return rc ? rc : tv_iter_new(r, "generator", l.v, l.n, out);
}

static int extreme(struct tmpl_render *r, const struct tv *self,
		   const struct tmpl_args *a, enum tmpl_op op, struct tv *out)
{
	struct tv *v, *keys;
	size_t n, best = 0;
	int rc =
		keyed(r, self, &a->pos[1], tv_truth(&a->pos[0]), &v, &keys, &n);

	for (size_t i = 1; !rc && i < n; i++) {
		bool better = false;

		rc = tv_order(r, &keys[i], &keys[best], op, &better);
		best = better ? i : best;
	}
	if (rc)
		return rc;
	if (!n)
		return tv_undef(r, out,
				"no aggregated item, sequence was empty");
	*out = v[best];
	return 0;
}

FILTER(min)
{
	return extreme(r, self, a, OP_LT, out);
}

FILTER(max)
{
	return extreme(r, self, a, OP_GT, out);
}

FILTER(sum)
{
	struct tv total = a->pos[1].type == TV_MISSING ? tv_int(0) : a->pos[1];
	struct tv_seq seq;
	int rc = tv_items(r, self, &seq);

	if (!rc && total.type == TV_STR)
		rc = tmpl_fail(r, -EINVAL, "sum cannot add strings");
	for (size_t i = 0; !rc && i < seq.n; i++) {
		struct tv v, sum;

		rc = tv_getpath(r, &seq.v[i], &a->pos[0], NULL, &v);
		if (!rc)
			rc = tv_binop(r, OP_ADD, &total, &v, &sum);
		if (!rc)
			total = sum;
	}
	*out = total;
	return rc;
}

static int part_size(struct tmpl_render *r, const struct tv *v, int64_t *out)
{
	if (!tv_is_int(v) || v->u.i < 1 || v->u.i > TMPL_MAX_RANGE)
		return tmpl_fail(r, -EINVAL, "a count from 1 to %d is needed",
				 TMPL_MAX_RANGE);
	*out = v->u.i;
	return 0;
}

FILTER(batch)
{
	const struct tv *fill = &a->pos[1];
	struct tv_list_builder rows = { 0 };
	struct tv_seq seq;
	int64_t size = 1;
	int rc = part_size(r, &a->pos[0], &size);

	if (!rc)
		rc = tv_items(r, self, &seq);
	for (size_t i = 0; !rc && i < seq.n; i += (size_t)size) {
		struct tv_list_builder l = { 0 };
		struct tv row;

		for (size_t k = i; !rc && k < seq.n && k - i < (size_t)size;
		     k++)
			rc = tv_list_add(r, &l, &seq.v[k]);
		while (!rc && l.n < (size_t)size && fill->type > TV_NONE)
			rc = tv_list_add(r, &l, fill);
		if (!rc)
			rc = tv_seq_new(r, TV_LIST, l.v, l.n, &row);
		if (!rc)
			rc = tv_list_add(r, &rows, &row);
	}
	return rc ? rc : tv_iter_new(r, "generator", rows.v, rows.n, out);
}

FILTER(slice)
{
	const struct tv *fill = &a->pos[1];
	struct tv_list_builder cols = { 0 };
	struct tv_seq seq;
	int64_t parts = 1;
	size_t at = 0;
	int rc = part_size(r, &a->pos[0], &parts);

	if (!rc)
		rc = tv_items(r, self, &seq);
	for (size_t i = 0; !rc && i < (size_t)parts; i++) {
		bool has_extra = i < seq.n % (size_t)parts;
		size_t n = seq.n / (size_t)parts + has_extra;
		struct tv_list_builder l = { 0 };
		struct tv col;

		for (size_t k = 0; !rc && k < n; k++)
			rc = tv_list_add(r, &l, &seq.v[at++]);
		if (!rc && fill->type > TV_NONE && !has_extra)
			rc = tv_list_add(r, &l, fill);
		if (!rc)
			rc = tv_seq_new(r, TV_LIST, l.v, l.n, &col);
		if (!rc)
			rc = tv_list_add(r, &cols, &col);
	}
	return rc ? rc : tv_iter_new(r, "generator", cols.v, cols.n, out);
}

/* groupby's (grouper, list), one for each run of equal keys. */
static int add_group(struct tmpl_render *r, const struct tv *key,
		     const struct tv *v, size_t n, struct tv_list_builder *l)
{
	struct tv *pair = tmpl_alloc(r, 2 * sizeof(*pair)), group;
	int rc;

	if (!pair)
		return -E2BIG;
	pair[0] = *key;
	rc = tv_seq_new(r, TV_LIST, v, n, &pair[1]);
	if (!rc)
		rc = tv_seq_new(r, TV_TUPLE, pair, 2, &group);
	if (rc)
		return rc;
	group.flags |= TV_F_GROUP;
	return tv_list_add(r, l, &group);
}

static int group_key(struct tmpl_render *r, const struct tv *v,
		     const struct tmpl_args *a, bool cased, struct tv *out)
{
	struct tv at;
	int rc = tv_getpath(r, v, &a->pos[0], NULL, &at);

	if (!rc && at.type == TV_UNDEF && a->pos[1].type > TV_NONE)
		at = a->pos[1];
	return rc ? rc : sort_key(r, &at, cased, out);
}

FILTER(groupby)
{
	bool cased = tv_truth(&a->pos[2]);
	struct tv_list_builder l = { 0 };
	struct tv *v, *keys, *order, grouper;
	struct tv_seq seq;
	size_t start = 0;
	int rc = tv_items(r, self, &seq);

	if (rc)
		return rc;
	v = tmpl_alloc(r, seq.n * sizeof(*v));
	keys = tmpl_alloc(r, seq.n * sizeof(*keys));
	order = tmpl_alloc(r, seq.n * sizeof(*order));
	if (!v || !keys || !order)
		return -E2BIG;
	for (size_t i = 0; !rc && i < seq.n; i++) {
		v[i] = seq.v[i];
		rc = group_key(r, &v[i], a, cased, &keys[i]);
		order[i] = keys[i];
	}
	if (!rc)
		rc = tv_sort(r, v, keys, seq.n, false);
	if (!rc)
		rc = tv_sort(r, order, keys, seq.n, false);
	for (size_t i = 1; !rc && i <= seq.n; i++) {
		bool is_same = false;

		if (i < seq.n)
			rc = tv_equal(r, &order[i], &order[start], &is_same);
		if (rc || is_same)
			continue;
		rc = group_key(r, &v[start], a, true, &grouper);
		if (!rc)
			rc = add_group(r, &grouper, v + start, i - start, &l);
		start = i;
	}
	return rc ? rc : tv_seq_new(r, TV_LIST, l.v, l.n, out);
}

const struct tmpl_func tmpl_seq_filters[] = {
	{ "batch", filter_batch, "linecount,fill_with", 1 },
	{ "count", filter_length, "", 0 },
	{ "d", filter_default, "default_value,boolean", 0 },
	{ "default", filter_default, "default_value,boolean", 0 },
	{ "dictsort", filter_dictsort, "case_sensitive,by,reverse", 0 },
	{ "first", filter_first, "", 0 },
	{ "groupby", filter_groupby, "attribute,default,case_sensitive", 1 },
	{ "items", filter_items, "", 0 },
	{ "join", filter_join, "d,attribute", 0 },
	{ "last", filter_last, "", 0 },
	{ "length", filter_length, "", 0 },
	{ "list", filter_list, "", 0 },
	{ "max", filter_max, "case_sensitive,attribute", 0 },
	{ "min", filter_min, "case_sensitive,attribute", 0 },
	{ "random", NULL, NULL, 0 },
	{ "reverse", filter_reverse, "", 0 },
	{ "slice", filter_slice, "slices,fill_with", 1 },
	{ "sort", filter_sort, "reverse,case_sensitive,attribute", 0 },
	{ "sum", filter_sum, "attribute,start", 0 },
	{ "unique", filter_unique, "case_sensitive,attribute", 0 },
	{ 0 },
};
