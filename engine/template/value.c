/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a rendering: making them, truth, length, iteration, dictionaries;
 * and the accounts that every part of the evaluator charges.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/template/internal.h"

enum { SMALL_DICT = 8, BYTES_PER_STEP = 64 };

int tmpl_fail(struct tmpl_render *r, int rc, const char *fmt, ...)
{
	va_list ap;
	int n = 0;

	if (!r->errlen)
		return rc;
	if (r->line)
		n = snprintf(r->err, r->errlen, "line %u: ", r->line);
	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < r->errlen)
		vsnprintf(r->err + n, r->errlen - (size_t)n, fmt, ap);
	va_end(ap);
	return rc;
}

/* Accounts for @bytes of copying or scanning. */
int tmpl_charge(struct tmpl_render *r, size_t bytes)
{
	r->steps += 1 + bytes / BYTES_PER_STEP;
	if (r->steps > r->lim.max_steps)
		return tmpl_fail(r, -E2BIG,
				 "the limit of %llu steps is reached",
				 (unsigned long long)r->lim.max_steps);
	return 0;
}

/* One level deeper; pairs with tmpl_leave(), which is due on success only. */
int tmpl_enter(struct tmpl_render *r)
{
	int rc = tmpl_charge(r, 0);

	if (rc)
		return rc;
	if (r->depth >= r->lim.max_depth)
		return tmpl_fail(r, -E2BIG,
				 "nested or recursing more than %u deep",
				 r->lim.max_depth);
	r->depth++;
	return 0;
}

void tmpl_leave(struct tmpl_render *r)
{
	r->depth--;
}

/* Memory of this rendering, or NULL with r->err written: return -E2BIG then. */
void *tmpl_alloc(struct tmpl_render *r, size_t bytes)
{
	void *p;

	if (tmpl_charge(r, bytes))
		return NULL;
	p = tmpl_arena_alloc(&r->arena, bytes ? bytes : 1);
	if (!p && r->arena.at_limit)
		tmpl_fail(r, -E2BIG,
			  "the limit of %zu bytes for values is reached",
			  r->lim.max_value_bytes);
	else if (!p)
		r->is_oom = tmpl_fail(r, -ENOMEM, "out of memory") != 0;
	return p;
}

const char *tv_type_name(const struct tv *v)
{
	static const char *const names[] = {
		[TV_MISSING] = "missing",  [TV_UNDEF] = "Undefined",
		[TV_NONE] = "NoneType",	   [TV_BOOL] = "bool",
		[TV_INT] = "int",	   [TV_FLOAT] = "float",
		[TV_STR] = "str",	   [TV_LIST] = "list",
		[TV_TUPLE] = "tuple",	   [TV_DICT] = "dict",
		[TV_RANGE] = "range",	   [TV_ITER] = "generator",
		[TV_VIEW] = "dict view",   [TV_NS] = "Namespace",
		[TV_LOOP] = "LoopContext", [TV_MACRO] = "Macro",
		[TV_FUNC] = "function",	   [TV_METHOD] = "method",
		[TV_CYCLER] = "Cycler",	   [TV_JOINER] = "Joiner",
	};

	return names[v->type];
}

bool tv_truth(const struct tv *v)
{
	switch (v->type) {
	case TV_MISSING:
	case TV_UNDEF:
	case TV_NONE:
		return false;
	case TV_BOOL:
	case TV_INT:
		return v->u.i != 0;
	case TV_FLOAT:
		return v->u.f != 0;
	case TV_STR:
		return v->len != 0;
	case TV_LIST:
	case TV_TUPLE:
		return v->u.seq->n != 0;
	case TV_DICT:
		return v->u.dict->n != 0;
	case TV_RANGE:
		return v->u.range->n != 0;
	case TV_VIEW:
		return v->u.view->seq.n != 0;
	default:
		return true;
	}
}

int tv_str_new(struct tmpl_render *r, const char *s, size_t n, struct tv *out)
{
	char *p = tmpl_alloc(r, n);

	if (!p)
		return -E2BIG;
	if (n)
		memcpy(p, s, n);
	*out = tv_lit(p, n);
	return 0;
}

/* Copies @b's text to a value and frees @b, also on error. */
int tv_str_take(struct tmpl_render *r, struct tmpl_buf *b, struct tv *out)
{
	int rc = tv_str_new(r, b->data ? b->data : "", b->len, out);

	tmpl_buf_deinit(b);
	return rc;
}

/* An undefined value; the text is what its use will be refused with. */
int tv_undef(struct tmpl_render *r, struct tv *out, const char *fmt, ...)
{
	char text[192];
	struct tv s;
	va_list ap;
	int rc;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rc = tv_str_new(r, text, strlen(text) + 1, &s);
	if (rc)
		return rc;
	*out = (struct tv){ .type = TV_UNDEF, .u.s = s.u.s };
	return 0;
}

/* The error of using @v, which is undefined. */
int tv_undef_use(struct tmpl_render *r, const struct tv *v)
{
	return tmpl_fail(r, -EINVAL, "%s", v->u.s);
}

int tv_seq_new(struct tmpl_render *r, enum tv_type type, const struct tv *v,
	       size_t n, struct tv *out)
{
	struct tv_seq *seq = tmpl_alloc(r, sizeof(*seq));

	if (!seq)
		return -E2BIG;
	*seq = (struct tv_seq){ .n = n, .v = v };
	*out = (struct tv){ .type = (uint8_t)type, .u.seq = seq };
	return 0;
}

int tv_iter_new(struct tmpl_render *r, const char *name, const struct tv *v,
		size_t n, struct tv *out)
{
	struct tv_iter *it = tmpl_alloc(r, sizeof(*it));

	if (!it)
		return -E2BIG;
	*it = (struct tv_iter){ .seq = { n, v }, .name = name };
	*out = (struct tv){ .type = TV_ITER, .u.iter = it };
	return 0;
}

int tv_list_add(struct tmpl_render *r, struct tv_list_builder *l,
		const struct tv *v)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 8;
		struct tv *p = tmpl_alloc(r, cap * sizeof(*p));

		if (!p)
			return -E2BIG;
		if (l->n)
			memcpy(p, l->v, l->n * sizeof(*p));
		l->v = p;
		l->cap = cap;
	}
	l->v[l->n++] = *v;
	return tmpl_charge(r, 0);
}

/* ---- dictionaries ---- */

bool tv_is_hashable(const struct tv *v)
{
	if (v->type == TV_TUPLE) {
		for (size_t i = 0; i < v->u.seq->n; i++)
			if (!tv_is_hashable(&v->u.seq->v[i]))
				return false;
		return true;
	}
	return v->type != TV_LIST && v->type != TV_DICT && v->type != TV_VIEW;
}

static uint32_t hash_bytes(const void *p, size_t n, uint32_t h)
{
	const unsigned char *s = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 16777619U;
	return h ^ h >> 15;
}

/* Equal keys hash equally: 1, 1.0 and true are one key, as in Python. */
static uint32_t hash_value(const struct tv *v, uint32_t h)
{
	int64_t i = v->u.i;

	switch (v->type) {
	case TV_STR:
		return hash_bytes(v->u.s, v->len, h);
	case TV_FLOAT:
		if (v->u.f == floor(v->u.f) && fabs(v->u.f) < 9e18)
			i = (int64_t)v->u.f;
		return hash_bytes(&i, sizeof(i), h);
	case TV_BOOL:
	case TV_INT:
		return hash_bytes(&i, sizeof(i), h);
	case TV_TUPLE:
		for (size_t k = 0; k < v->u.seq->n; k++)
			h = hash_value(&v->u.seq->v[k], h);
		return h;
	case TV_NONE:
	case TV_UNDEF:
		return h + v->type;
	default:
		return hash_bytes(&v->u.s, sizeof(v->u.s), h);
	}
}

static uint32_t hash_key(const struct tv *v)
{
	return hash_value(v, 2166136261U);
}

int tv_dict_new(struct tmpl_render *r, size_t cap, struct tv_dict **out)
{
	struct tv_dict *d = tmpl_alloc(r, sizeof(*d));

	if (!d)
		return -E2BIG;
	*d = (struct tv_dict){ .cap = cap };
	if (cap) {
		d->pairs = tmpl_alloc(r, cap * sizeof(*d->pairs));
		if (!d->pairs)
			return -E2BIG;
	}
	*out = d;
	return 0;
}

static void slot_add(struct tv_dict *d, size_t index)
{
	size_t at = d->pairs[index].hash & (d->nr_slots - 1);

	while (d->slots[at])
		at = (at + 1) & (d->nr_slots - 1);
	d->slots[at] = (uint32_t)index + 1;
}

static int dict_grow(struct tmpl_render *r, struct tv_dict *d)
{
	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 4;
		struct tv_pair *p = tmpl_alloc(r, cap * sizeof(*p));

		if (!p)
			return -E2BIG;
		if (d->n)
			memcpy(p, d->pairs, d->n * sizeof(*p));
		d->pairs = p;
		d->cap = cap;
	}
	if (d->n >= SMALL_DICT && (d->n + 1) * 2 > d->nr_slots) {
		size_t nr = d->nr_slots ? d->nr_slots * 2 : 4 * SMALL_DICT;

		while (nr < d->cap * 2)
			nr *= 2;
		d->slots = tmpl_alloc(r, nr * sizeof(*d->slots));
		if (!d->slots)
			return -E2BIG;
		memset(d->slots, 0, nr * sizeof(*d->slots));
		d->nr_slots = nr;
		for (size_t i = 0; i < d->n; i++)
			slot_add(d, i);
	}
	return 0;
}

static int pair_matches(struct tmpl_render *r, const struct tv_pair *p,
			uint32_t hash, const struct tv *k, bool *out)
{
	*out = false;
	if (p->hash != hash)
		return 0;
	if (p->key.type == TV_STR && k->type == TV_STR) {
		*out = p->key.len == k->len &&
		       memcmp(p->key.u.s, k->u.s, k->len) == 0;
		return tmpl_charge(r, k->len);
	}
	return tv_equal(r, &p->key, k, out);
}

static int dict_find(struct tmpl_render *r, const struct tv_dict *d,
		     uint32_t hash, const struct tv *k, struct tv_pair **out)
{
	bool is_same = false;
	int rc = 0;

	*out = NULL;
	if (!d->nr_slots) {
		for (size_t i = 0; !rc && i < d->n; i++) {
			rc = pair_matches(r, &d->pairs[i], hash, k, &is_same);
			if (is_same) {
				*out = &d->pairs[i];
				break;
			}
		}
		return rc;
	}
	for (size_t at = hash & (d->nr_slots - 1); !rc && d->slots[at];
	     at = (at + 1) & (d->nr_slots - 1)) {
		struct tv_pair *p = &d->pairs[d->slots[at] - 1];

		rc = pair_matches(r, p, hash, k, &is_same);
		if (!rc)
			rc = tmpl_charge(r, 0);
		if (is_same) {
			*out = p;
			break;
		}
	}
	return rc;
}

int tv_dict_set(struct tmpl_render *r, struct tv_dict *d, const struct tv *k,
		const struct tv *v)
{
	struct tv_pair *p;
	uint32_t hash;
	int rc;

	if (!tv_is_hashable(k))
		return tmpl_fail(r, -EINVAL, "unhashable type: '%s'",
				 tv_type_name(k));
	hash = hash_key(k);
	rc = dict_find(r, d, hash, k, &p);
	if (rc)
		return rc;
	if (p) {
		p->val = *v;
		return 0;
	}
	rc = dict_grow(r, d);
	if (rc)
		return rc;
	d->pairs[d->n] = (struct tv_pair){ *k, *v, hash };
	if (d->nr_slots)
		slot_add(d, d->n);
	d->n++;
	return 0;
}

/* @out: the value in the dictionary, or NULL. */
int tv_dict_get(struct tmpl_render *r, const struct tv_dict *d,
		const struct tv *k, const struct tv **out)
{
	struct tv_pair *p = NULL;
	int rc = 0;

	if (tv_is_hashable(k))
		rc = dict_find(r, d, hash_key(k), k, &p);
	*out = p ? &p->val : NULL;
	return rc;
}

const struct tv *tv_dict_get_str(const struct tv_dict *d, const char *s,
				 size_t n)
{
	struct tv k = tv_lit(s, n);
	uint32_t hash = hash_key(&k);
	size_t at = d->nr_slots ? hash & (d->nr_slots - 1) : 0;

	for (size_t i = 0; i < d->n; i++) {
		size_t at_pair = i;

		if (d->nr_slots) {
			if (!d->slots[at])
				return NULL;
			at_pair = d->slots[at] - 1;
			at = (at + 1) & (d->nr_slots - 1);
		}
		const struct tv_pair *p = &d->pairs[at_pair];

		if (p->hash == hash && p->key.type == TV_STR &&
		    p->key.len == n && memcmp(p->key.u.s, s, n) == 0)
			return &p->val;
	}
	return NULL;
}

/* ---- iteration ---- */

static int str_items(struct tmpl_render *r, const struct tv *s,
		     struct tv_seq *out)
{
	size_t n = tmpl_u8_count(s->u.s, s->len), k = 0;
	struct tv *v = tmpl_alloc(r, n * sizeof(*v));

	if (!v)
		return -E2BIG;
	for (size_t i = 0; i < s->len && k < n;) {
		size_t len = tmpl_u8_offset(s->u.s + i, s->len - i, 1);

		v[k++] = tv_lit(s->u.s + i, len);
		i += len;
	}
	*out = (struct tv_seq){ k, v };
	return 0;
}

static int range_items(struct tmpl_render *r, const struct tv_range *range,
		       struct tv_seq *out)
{
	struct tv *v = tmpl_alloc(r, (size_t)range->n * sizeof(*v));

	if (!v)
		return -E2BIG;
	for (int64_t i = 0; i < range->n; i++)
		v[i] = tv_int(range->start + i * range->step);
	*out = (struct tv_seq){ (size_t)range->n, v };
	return 0;
}

static int dict_items(struct tmpl_render *r, const struct tv_dict *d,
		      struct tv_seq *out)
{
	struct tv *v = tmpl_alloc(r, d->n * sizeof(*v));

	if (!v)
		return -E2BIG;
	for (size_t i = 0; i < d->n; i++)
		v[i] = d->pairs[i].key;
	*out = (struct tv_seq){ d->n, v };
	return 0;
}

static int loop_items(struct tmpl_render *r, struct tv_loop *l,
		      struct tv_seq *out)
{
	struct tv *v = tmpl_alloc(r, (l->src.n + 1) * sizeof(*v));
	size_t n = 0;
	bool has = true;

	while (v && has) {
		int rc = tmpl_loop_next(r, l, &v[n], &has);

		if (rc)
			return rc;
		n += has;
	}
	*out = (struct tv_seq){ n, v };
	return v ? 0 : -E2BIG;
}

/* What a loop over @v yields; uses an iterator up. */
int tv_items(struct tmpl_render *r, const struct tv *v, struct tv_seq *out)
{
	switch (v->type) {
	case TV_UNDEF:
		*out = (struct tv_seq){ 0 };
		return 0;
	case TV_LIST:
	case TV_TUPLE:
		*out = *v->u.seq;
		return 0;
	case TV_VIEW:
		*out = v->u.view->seq;
		return 0;
	case TV_ITER:
		*out = (struct tv_seq){ v->u.iter->seq.n - v->u.iter->pos,
					v->u.iter->seq.v + v->u.iter->pos };
		v->u.iter->pos = v->u.iter->seq.n;
		return 0;
	case TV_STR:
		return str_items(r, v, out);
	case TV_DICT:
		return dict_items(r, v->u.dict, out);
	case TV_RANGE:
		return range_items(r, v->u.range, out);
	case TV_LOOP:
		return loop_items(r, v->u.loop, out);
	default:
		return tmpl_fail(r, -EINVAL, "'%s' object is not iterable",
				 tv_type_name(v));
	}
}

int tv_len(struct tmpl_render *r, const struct tv *v, size_t *out)
{
	switch (v->type) {
	case TV_UNDEF:
		*out = 0;
		return 0;
	case TV_STR:
		*out = tmpl_u8_count(v->u.s, v->len);
		return tmpl_charge(r, v->len);
	case TV_LIST:
	case TV_TUPLE:
		*out = v->u.seq->n;
		return 0;
	case TV_DICT:
		*out = v->u.dict->n;
		return 0;
	case TV_RANGE:
		*out = (size_t)v->u.range->n;
		return 0;
	case TV_VIEW:
		*out = v->u.view->seq.n;
		return 0;
	default:
		return tmpl_fail(r, -EINVAL, "object of type '%s' has no len()",
				 tv_type_name(v));
	}
}
