/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that every template can call, and the methods of the objects
 * they make (loop's too). A context variable of the same name hides them.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "engine/template/internal.h"

static int fn_range(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out)
{
	int64_t v[3] = { 0, 0, 1 };
	struct tv_range *g;
	uint64_t span;

	(void)self;
	for (size_t i = 0; i < 3; i++) {
		if (a->pos[i].type == TV_MISSING)
			continue;
		if (a->pos[i].type == TV_UNDEF)
			return tv_undef_use(r, &a->pos[i]);
		if (!tv_is_int(&a->pos[i]))
			return tmpl_fail(
				r, -EINVAL,
				"range: '%s' object cannot be interpreted as an integer",
				tv_type_name(&a->pos[i]));
		v[i] = a->pos[i].u.i;
	}
	if (a->pos[1].type == TV_MISSING) {
		v[1] = v[0];
		v[0] = 0;
	}
	if (v[2] == 0 || v[2] == INT64_MIN)
		return tmpl_fail(r, -EINVAL, "range: bad step");
	g = tmpl_alloc(r, sizeof(*g));
	if (!g)
		return -E2BIG;
	*g = (struct tv_range){ v[0], v[1], v[2], 0 };
	if (v[2] > 0 ? v[1] > v[0] : v[1] < v[0]) {
		span = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] :
				  (uint64_t)v[0] - (uint64_t)v[1];
		span = (span - 1) / (uint64_t)(v[2] > 0 ? v[2] : -v[2]) + 1;
		if (span > TMPL_MAX_RANGE)
			return tmpl_fail(r, -E2BIG,
					 "range too big: more than %d items",
					 TMPL_MAX_RANGE);
		g->n = (int64_t)span;
	}
	*out = (struct tv){ .type = TV_RANGE, .u.range = g };
	return 0;
}

/* Pairs of a sequence of pairs, as dict() takes them. */
static int add_pairs(struct tmpl_render *r, const struct tv *from,
		     struct tv_dict *d)
{
	struct tv_seq seq, pair;
	int rc = tv_items(r, from, &seq);

	for (size_t i = 0; !rc && i < seq.n; i++) {
		rc = tv_items(r, &seq.v[i], &pair);
		if (!rc && pair.n != 2)
			rc = tmpl_fail(
				r, -EINVAL,
				"dict: item %zu has length %zu, 2 is required",
				i, pair.n);
		if (!rc)
			rc = tv_dict_set(r, d, &pair.v[0], &pair.v[1]);
	}
	return rc;
}

static int make_dict(struct tmpl_render *r, const struct tmpl_args *a,
		     struct tv_dict **out)
{
	int rc = tv_dict_new(r, a->nr_kw, out);

	if (!rc && a->nr_pos > 1)
		rc = tmpl_fail(r, -EINVAL, "dict takes at most 1 argument");
	if (!rc && a->nr_pos == 1 && a->pos[0].type == TV_DICT) {
		const struct tv_dict *d = a->pos[0].u.dict;

		for (size_t i = 0; !rc && i < d->n; i++)
			rc = tv_dict_set(r, *out, &d->pairs[i].key,
					 &d->pairs[i].val);
	} else if (!rc && a->nr_pos == 1) {
		rc = add_pairs(r, &a->pos[0], *out);
	}
	for (size_t i = 0; !rc && i < a->nr_kw; i++)
		rc = tv_dict_set(r, *out, &a->kw[i].name, &a->kw[i].v);
	return rc;
}

static int fn_dict(struct tmpl_render *r, const struct tv *self,
		   const struct tmpl_args *a, struct tv *out)
{
	struct tv_dict *d;
	int rc = make_dict(r, a, &d);

	(void)self;
	*out = (struct tv){ .type = TV_DICT, .u.dict = d };
	return rc;
}

static int fn_namespace(struct tmpl_render *r, const struct tv *self,
			const struct tmpl_args *a, struct tv *out)
{
	struct tv_dict *d;
	int rc = make_dict(r, a, &d);

	(void)self;
	*out = (struct tv){ .type = TV_NS, .u.dict = d };
	return rc;
}

static int fn_raise(struct tmpl_render *r, const struct tv *self,
		    const struct tmpl_args *a, struct tv *out)
{
	struct tv s;
	int rc = tv_to_str(r, &a->pos[0], &s);

	(void)self;
	(void)out;
	if (rc)
		return rc;
	if (s.type != TV_STR)
		s = tv_lit("", 0);
	return tmpl_fail(r, -ECANCELED, "%.*s", (int)s.len, s.u.s);
}

static int fn_strftime(struct tmpl_render *r, const struct tv *self,
		       const struct tmpl_args *a, struct tv *out)
{
	time_t now = r->lim.now_seconds ? (time_t)r->lim.now_seconds :
					  time(NULL);
	char fmt[256], text[1024];
	struct tm tm;
	size_t n;

	(void)self;
	if (a->pos[0].type != TV_STR || a->pos[0].len >= sizeof(fmt) - 1)
		return tmpl_fail(r, -EINVAL,
				 "strftime_now needs a short format string");
	/* one more character tells an empty result from one too long */
	n = a->pos[0].len;
	memcpy(fmt, a->pos[0].u.s, n);
	fmt[n] = '.';
	fmt[n + 1] = 0;
	if (!localtime_r(&now, &tm))
		return tmpl_fail(r, -EINVAL, "strftime_now: bad time");
	n = strftime(text, sizeof(text), fmt, &tm);
	if (n == 0)
		return tmpl_fail(r, -EINVAL, "strftime_now: result too long");
	return tv_str_new(r, text, n - 1, out);
}

static int fn_cycler(struct tmpl_render *r, const struct tv *self,
		     const struct tmpl_args *a, struct tv *out)
{
	struct tv_cycler *c = tmpl_alloc(r, sizeof(*c));

	(void)self;
	if (!c)
		return -E2BIG;
	if (a->nr_kw || !a->nr_pos)
		return tmpl_fail(r, -EINVAL, "cycler needs at least one item");
	*c = (struct tv_cycler){ .items = { a->nr_pos, a->pos } };
	*out = (struct tv){ .type = TV_CYCLER, .u.cycler = c };
	return 0;
}

static int fn_joiner(struct tmpl_render *r, const struct tv *self,
		     const struct tmpl_args *a, struct tv *out)
{
	struct tv_joiner *j = tmpl_alloc(r, sizeof(*j));

	(void)self;
	if (!j)
		return -E2BIG;
	*j = (struct tv_joiner){ .sep = a->pos[0] };
	if (j->sep.type == TV_MISSING)
		j->sep = tv_lit(", ", 2);
	*out = (struct tv){ .type = TV_JOINER, .u.joiner = j };
	return 0;
}

const struct tmpl_func tmpl_globals[] = {
	{ "range", fn_range, "start,stop,step", 1 },
	{ "dict", fn_dict, NULL, 0 },
	{ "namespace", fn_namespace, NULL, 0 },
	{ "raise_exception", fn_raise, "message", 1 },
	{ "strftime_now", fn_strftime, "format", 1 },
	{ "cycler", fn_cycler, NULL, 0 },
	{ "joiner", fn_joiner, "sep", 0 },
	{ "lipsum", NULL, NULL, 0 },
	{ 0 },
};

/* ---- methods of loop and cycler ---- */

static int loop_cycle(struct tmpl_render *r, const struct tv *self,
		      const struct tmpl_args *a, struct tv *out)
{
	if (!a->nr_pos || a->nr_kw)
		return tmpl_fail(r, -EINVAL, "no items for cycling given");
	int64_t i = self->u.loop->index0 < 0 ? 0 : self->u.loop->index0;

	*out = a->pos[(size_t)i % a->nr_pos];
	return 0;
}

static int loop_changed(struct tmpl_render *r, const struct tv *self,
			const struct tmpl_args *a, struct tv *out)
{
	struct tv_loop *l = self->u.loop;
	bool is_same = false;
	struct tv now;
	int rc = tv_seq_new(r, TV_TUPLE, a->pos, a->nr_pos, &now);

	if (!rc)
		rc = tv_equal(r, &l->last_changed, &now, &is_same);
	l->last_changed = now;
	*out = tv_bool(!is_same);
	return rc;
}

const struct tmpl_func tmpl_loop_methods[] = {
	{ "cycle", loop_cycle, NULL, 0 },
	{ "changed", loop_changed, NULL, 0 },
	{ 0 },
};

static int cycler_next(struct tmpl_render *r, const struct tv *self,
		       const struct tmpl_args *a, struct tv *out)
{
	struct tv_cycler *c = self->u.cycler;

	(void)r;
	(void)a;
	*out = c->items.v[c->pos];
	c->pos = (c->pos + 1) % c->items.n;
	return 0;
}

static int cycler_reset(struct tmpl_render *r, const struct tv *self,
			const struct tmpl_args *a, struct tv *out)
{
	(void)r;
	(void)a;
	self->u.cycler->pos = 0;
	*out = tv_none();
	return 0;
}

const struct tmpl_func tmpl_cycler_methods[] = {
	{ "next", cycler_next, "", 0 },
	{ "reset", cycler_reset, "", 0 },
	{ 0 },
};
