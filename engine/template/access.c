/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes and items of values: what a.b and a[b] give, methods included,
 * in the order jinja2's sandbox looks. Nothing that would change a list or
 * dictionary is reachable.
 */
#include <errno.h>

#include "engine/template/internal.h"

static const char *const refused[] = {
	"append",  "clear", "extend",  "insert",     "pop",    "remove",
	"reverse", "sort",  "popitem", "setdefault", "update", NULL,
};

static const struct tmpl_func *methods_of(const struct tv *v)
{
	switch (v->type) {
	case TV_STR:
		return tmpl_str_methods;
	case TV_DICT:
		return tmpl_dict_methods;
	case TV_LIST:
	case TV_TUPLE:
	case TV_RANGE:
		return tmpl_list_methods;
	case TV_LOOP:
		return tmpl_loop_methods;
	case TV_CYCLER:
		return tmpl_cycler_methods;
	default:
		return NULL;
	}
}

static bool is_refused(const struct tv *v, const struct tv *name)
{
	if (v->type != TV_DICT && v->type != TV_LIST)
		return false;
	for (const char *const *p = refused; *p; p++) {
		bool of_dict = strcmp(*p, "clear") == 0 ||
			       strcmp(*p, "pop") == 0 || p >= refused + 8;
		bool of_list = p < refused + 8;

		if (tv_streq(name, *p) &&
		    (v->type == TV_DICT ? of_dict : of_list))
			return true;
	}
	return false;
}

static int missing_attr(struct tmpl_render *r, const struct tv *v,
			const struct tv *name, struct tv *out)
{
	int n = name->len < 80 ? (int)name->len : 80;

	if (v->type == TV_NONE)
		return tv_undef(r, out, "'None' has no attribute '%.*s'", n,
				name->u.s);
	return tv_undef(r, out, "'%s object' has no attribute '%.*s'",
			tv_type_name(v), n, name->u.s);
}

static int macro_attr(struct tmpl_render *r, const struct tnode *def,
		      const struct tv *name, struct tv *out, bool *has)
{
	static const struct {
		const char *name;
		unsigned int flag;
	} flags[] = { { "catch_varargs", MACRO_VARARGS },
		      { "catch_kwargs", MACRO_KWARGS },
		      { "caller", MACRO_CALLER } };
	const struct tmpl_name *s = &r->t->names[def->name];
	struct tv *v;

	*has = true;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (!tv_streq(name, flags[i].name))
			continue;
		*out = tv_bool(def->op & flags[i].flag);
		return 0;
	}
	*out = tv_lit(s->s, s->len);
	*has = tv_streq(name, "name");
	if (*has || !tv_streq(name, "arguments"))
		return 0;
	*has = true;
	v = tmpl_alloc(r, def->nr_params * sizeof(*v));
	if (!v)
		return -E2BIG;
	for (uint32_t i = 0; i < def->nr_params; i++)
		v[i] = tv_lit(r->t->names[def->params[i]].s,
			      r->t->names[def->params[i]].len);
	return tv_seq_new(r, TV_TUPLE, v, def->nr_params, out);
}

/* Attributes that are values, not methods; @has false: none of that name. */
static int plain_attr(struct tmpl_render *r, const struct tv *v,
		      const struct tv *name, struct tv *out, bool *has)
{
	const struct tv *found;

	*has = true;
	switch (v->type) {
	case TV_LOOP:
		return tmpl_loop_attr(r, v->u.loop, name, out, has);
	case TV_NS:
		found = tv_dict_get_str(v->u.dict, name->u.s, name->len);
		*has = found != NULL;
		if (found)
			*out = *found;
		return 0;
	case TV_CYCLER:
		if (tv_streq(name, "current")) {
			*out = v->u.cycler->items.v[v->u.cycler->pos];
			return 0;
		}
		break;
	case TV_MACRO:
		return macro_attr(r, v->u.macro->def, name, out, has);
	case TV_TUPLE:
		if ((v->flags & TV_F_GROUP) && tv_streq(name, "grouper")) {
			*out = v->u.seq->v[0];
			return 0;
		}
		if ((v->flags & TV_F_GROUP) && tv_streq(name, "list")) {
			*out = v->u.seq->v[1];
			return 0;
		}
		break;
	default:
		break;
	}
	*has = false;
	return 0;
}

/* getattr(v, name): methods and attributes only, no items. */
static int own_attr(struct tmpl_render *r, const struct tv *v,
		    const struct tv *name, struct tv *out, bool *has)
{
	const struct tmpl_func *f = methods_of(v);
	struct tv_method *m;
	int rc = plain_attr(r, v, name, out, has);

	if (rc || *has)
		return rc;
	*has = is_refused(v, name) ||
	       (name->len > 2 && memcmp(name->u.s, "__", 2) == 0 &&
		v->type != TV_DICT);
	if (*has)
		return tv_undef(
			r, out,
			"access to attribute '%.*s' of '%s' object is unsafe",
			name->len < 80 ? (int)name->len : 80, name->u.s,
			tv_type_name(v));
	f = f ? tmpl_find(f, name->u.s, name->len) : NULL;
	if (!f)
		return 0;
	m = tmpl_alloc(r, sizeof(*m));
	if (!m)
		return -E2BIG;
	*m = (struct tv_method){ .self = *v, .func = f };
	*out = (struct tv){ .type = TV_METHOD, .u.method = m };
	*has = true;
	return 0;
}

/* v.name: the attribute, else the item of that name, else undefined. */
int tv_getattr(struct tmpl_render *r, const struct tv *v, const struct tv *name,
	       struct tv *out)
{
	const struct tv *found;
	bool has;
	int rc;

	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	rc = own_attr(r, v, name, out, &has);
	if (rc || has)
		return rc;
	if (v->type == TV_DICT) {
		found = tv_dict_get_str(v->u.dict, name->u.s, name->len);
		if (found) {
			*out = *found;
			return 0;
		}
	}
	return missing_attr(r, v, name, out);
}

static int index_str(struct tmpl_render *r, const struct tv *v, int64_t i,
		     struct tv *out, bool *has)
{
	int64_t n = (int64_t)tmpl_u8_count(v->u.s, v->len);
	size_t at;

	if (i < 0)
		i += n;
	*has = i >= 0 && i < n;
	if (!*has)
		return 0;
	at = tmpl_u8_offset(v->u.s, v->len, (size_t)i);
	*out = tv_lit(v->u.s + at, tmpl_u8_offset(v->u.s + at, v->len - at, 1));
	out->flags = v->flags;
	return tmpl_charge(r, (size_t)v->len * 2);
}

static int index_seq(struct tmpl_render *r, const struct tv *v, int64_t i,
		     struct tv *out, bool *has)
{
	int64_t n;

	*has = false;
	switch (v->type) {
	case TV_STR:
		return index_str(r, v, i, out, has);
	case TV_LIST:
	case TV_TUPLE:
		n = (int64_t)v->u.seq->n;
		break;
	case TV_RANGE:
		n = v->u.range->n;
		break;
	default:
		return 0;
	}
	if (i < 0)
		i += n;
	*has = i >= 0 && i < n;
	if (*has && v->type == TV_RANGE)
		*out = tv_int(v->u.range->start + i * v->u.range->step);
	else if (*has)
		*out = v->u.seq->v[i];
	return 0;
}

/* v[key]: the item, else (for text) the attribute, else undefined. */
int tv_getitem(struct tmpl_render *r, const struct tv *v, const struct tv *key,
	       struct tv *out)
{
	bool has = false;
	int rc = 0;

	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	if (v->type == TV_DICT) {
		const struct tv *found;

		rc = tv_dict_get(r, v->u.dict, key, &found);
		has = found != NULL;
		if (found)
			*out = *found;
	} else if (tv_is_int(key)) {
		rc = index_seq(r, v, key->u.i, out, &has);
	}
	if (rc || has)
		return rc;
	if (key->type == TV_STR) {
		rc = own_attr(r, v, key, out, &has);
		if (rc || has)
			return rc;
		return missing_attr(r, v, key, out);
	}
	if (tv_is_int(key))
		return tv_undef(r, out, "%s%s has no element %lld",
				tv_type_name(v), " object",
				(long long)key->u.i);
	return tv_undef(r, out, "%s object has no such element",
			tv_type_name(v));
}

/*
 * The attribute filters' "a.b.0": items one after the other. @dflt (may be
 * NULL) stands in for each that is undefined.
 */
int tv_getpath(struct tmpl_render *r, const struct tv *v, const struct tv *path,
	       const struct tv *dflt, struct tv *out)
{
	size_t at = 0;
	int rc = 0;

	*out = *v;
	if (path->type == TV_MISSING || path->type == TV_NONE)
		return 0;
	if (path->type != TV_STR) {
		rc = tv_getitem(r, v, path, out);
		if (!rc && dflt && out->type == TV_UNDEF)
			*out = *dflt;
		return rc;
	}
	while (!rc && at <= path->len) {
		const char *s = path->u.s + at;
		const char *dot = memchr(s, '.', path->len - at);
		size_t n = dot ? (size_t)(dot - s) : path->len - at;
		struct tv key = tv_lit(s, n), from = *out;
		int64_t i = 0;
		size_t k = 0;

		while (k < n && k < 18 && s[k] >= '0' && s[k] <= '9')
			i = i * 10 + (s[k++] - '0');
		if (n && k == n)
			key = tv_int(i);
		rc = tv_getitem(r, &from, &key, out);
		if (!rc && dflt && out->type == TV_UNDEF)
			*out = *dflt;
		at += n + 1;
	}
	return rc;
}
