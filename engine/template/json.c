/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON in and out: the context as values (its strings stay in jansson's
 * memory until the rendering ends), and the tojson filter, which writes what
 * Python's json.dumps() writes.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "engine/template/internal.h"

static int from_json(struct tmpl_render *r, json_t *j, struct tv *out);

static int from_array(struct tmpl_render *r, json_t *j, struct tv *out)
{
	size_t n = json_array_size(j);
	struct tv *v = tmpl_alloc(r, n * sizeof(*v));

	if (!v)
		return -E2BIG;
	for (size_t i = 0; i < n; i++) {
		int rc = from_json(r, json_array_get(j, i), &v[i]);

		if (rc)
			return rc;
	}
	return tv_seq_new(r, TV_LIST, v, n, out);
}

static int from_object(struct tmpl_render *r, json_t *j, struct tv *out)
{
	struct tv_dict *d;
	int rc = tv_dict_new(r, json_object_size(j), &d);

	for (void *it = json_object_iter(j); !rc && it;
	     it = json_object_iter_next(j, it)) {
		struct tv k = tv_lit(json_object_iter_key(it),
				     json_object_iter_key_len(it));
		struct tv v;

		rc = from_json(r, json_object_iter_value(it), &v);
		if (!rc)
			rc = tv_dict_set(r, d, &k, &v);
	}
	*out = (struct tv){ .type = TV_DICT, .u.dict = d };
	return rc;
}

static int from_json(struct tmpl_render *r, json_t *j, struct tv *out)
{
	int rc;

	switch (json_typeof(j)) {
	case JSON_NULL:
		*out = tv_none();
		return 0;
	case JSON_TRUE:
	case JSON_FALSE:
		*out = tv_bool(json_is_true(j));
		return 0;
	case JSON_INTEGER:
		*out = tv_int(json_integer_value(j));
		return 0;
	case JSON_REAL:
		*out = tv_float(json_real_value(j));
		return 0;
	case JSON_STRING:
		if (json_string_length(j) > UINT32_MAX / 2)
			return tmpl_fail(r, -E2BIG, "string too long");
		*out = tv_lit(json_string_value(j), json_string_length(j));
		return 0;
	default:
		rc = tmpl_enter(r);
		if (!rc)
			rc = json_is_array(j) ? from_array(r, j, out) :
						from_object(r, j, out);
		tmpl_leave(r);
		return rc;
	}
}

/* Sets r->context; tmpl_drop_context() is due in any case. */
int tmpl_load_context(struct tmpl_render *r, const char *json, size_t len)
{
	json_error_t e;
	struct tv v;
	int rc;

	r->json = json_loadb(json, len, JSON_ALLOW_NUL, &e);
	if (!r->json)
		return tmpl_fail(
			r, -EINVAL,
			"the context is not a JSON object: %s at byte %d",
			e.text, e.position);
	if (!json_is_object(r->json))
		return tmpl_fail(r, -EINVAL,
				 "the context is not a JSON object");
	rc = from_json(r, r->json, &v);
	if (!rc)
		r->context = v.u.dict;
	r->steps = 0; /* the request's size is not the template's doing */
	return rc;
}

void tmpl_drop_context(struct tmpl_render *r)
{
	json_decref(r->json);
	r->json = NULL;
}

/* ---- tojson ---- */

struct dump {
	struct tmpl_render *r;
	struct tmpl_buf b;
	bool is_ascii;
	bool is_sorted;
	bool has_indent;
	struct tv indent;
	struct tv item_sep;
	struct tv key_sep;
	uint32_t level;
};

static int dump_escape(struct dump *d, uint32_t cp)
{
	char text[16];

	if (cp >= 0x10000) {
		cp -= 0x10000;
		snprintf(text, sizeof(text), "\\u%04x\\u%04x",
			 0xd800 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
	} else {
		snprintf(text, sizeof(text), "\\u%04x", cp);
	}
	return tmpl_puts(d->r, &d->b, text);
}

static int dump_str(struct dump *d, const struct tv *v)
{
	static const char from[] = "\"\\\b\f\n\r\t";
	static const char *const to[] = { "\\\"", "\\\\", "\\b", "\\f",
					  "\\n",  "\\r",  "\\t" };
	int rc = tmpl_puts(d->r, &d->b, "\"");
	size_t start = 0, i = 0;

	while (!rc && i < v->len) {
		unsigned char ch = (unsigned char)v->u.s[i];
		const char *p = ch ? strchr(from, ch) : NULL;
		uint32_t cp;
		size_t k = tmpl_u8_decode(v->u.s + i, v->len - i, &cp);

		if (!p && ch >= 0x20 && !(d->is_ascii && ch >= 0x7f)) {
			i += k;
			continue;
		}
		rc = tmpl_put(d->r, &d->b, v->u.s + start, i - start);
		if (!rc && p)
			rc = tmpl_puts(d->r, &d->b, to[p - from]);
		else if (!rc)
			rc = dump_escape(d, cp);
		i += k;
		start = i;
	}
	if (!rc)
		rc = tmpl_put(d->r, &d->b, v->u.s + start, v->len - start);
	return rc ? rc : tmpl_puts(d->r, &d->b, "\"");
}

static int newline(struct dump *d)
{
	int rc;

	if (!d->has_indent)
		return 0;
	rc = tmpl_puts(d->r, &d->b, "\n");
	for (uint32_t i = 0; !rc && i < d->level; i++)
		rc = tmpl_put(d->r, &d->b, d->indent.u.s, d->indent.len);
	return rc;
}

static int dump_value(struct dump *d, const struct tv *v);

static int dump_list(struct dump *d, const struct tv_seq *seq)
{
	int rc = tmpl_puts(d->r, &d->b, "[");

	d->level++;
	for (size_t i = 0; !rc && i < seq->n; i++) {
		if (i)
			rc = tmpl_put(d->r, &d->b, d->item_sep.u.s,
				      d->item_sep.len);
		if (!rc)
			rc = newline(d);
		if (!rc)
			rc = dump_value(d, &seq->v[i]);
	}
	d->level--;
	if (!rc && seq->n)
		rc = newline(d);
	return rc ? rc : tmpl_puts(d->r, &d->b, "]");
}

/* Keys that are no strings become what json.dumps() makes of them. */
static int dump_key(struct dump *d, const struct tv *k)
{
	int rc;

	switch (k->type) {
	case TV_STR:
		return dump_str(d, k);
	case TV_NONE:
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
		rc = tmpl_puts(d->r, &d->b, "\"");
		if (!rc)
			rc = dump_value(d, k);
		return rc ? rc : tmpl_puts(d->r, &d->b, "\"");
	default:
		return tmpl_fail(
			d->r, -EINVAL,
			"tojson: keys must be str, int, float, bool or None, not %s",
			tv_type_name(k));
	}
}

static int sorted_pairs(struct dump *d, const struct tv_dict *dict,
			struct tv **out)
{
	struct tv *keys = tmpl_alloc(d->r, dict->n * sizeof(*keys));
	struct tv *at = tmpl_alloc(d->r, dict->n * sizeof(*at));

	if (!keys || !at)
		return -E2BIG;
	for (size_t i = 0; i < dict->n; i++) {
		keys[i] = dict->pairs[i].key;
		at[i] = tv_int((int64_t)i);
	}
	*out = at;
	return tv_sort(d->r, at, keys, dict->n, false);
}

static int dump_dict(struct dump *d, const struct tv_dict *dict)
{
	struct tv *order = NULL;
	int rc = tmpl_puts(d->r, &d->b, "{");

	if (!rc && d->is_sorted)
		rc = sorted_pairs(d, dict, &order);
	d->level++;
	for (size_t i = 0; !rc && i < dict->n; i++) {
		const struct tv_pair *p =
			&dict->pairs[order ? (size_t)order[i].u.i : i];

		if (i)
			rc = tmpl_put(d->r, &d->b, d->item_sep.u.s,
				      d->item_sep.len);
		if (!rc)
			rc = newline(d);
		if (!rc)
			rc = dump_key(d, &p->key);
		if (!rc)
			rc = tmpl_put(d->r, &d->b, d->key_sep.u.s,
				      d->key_sep.len);
		if (!rc)
			rc = dump_value(d, &p->val);
	}
	d->level--;
	if (!rc && dict->n)
		rc = newline(d);
	return rc ? rc : tmpl_puts(d->r, &d->b, "}");
}

static int dump_value(struct dump *d, const struct tv *v)
{
	struct tmpl_render *r = d->r;
	int rc;

	switch (v->type) {
	case TV_NONE:
		return tmpl_puts(r, &d->b, "null");
	case TV_BOOL:
		return tmpl_puts(r, &d->b, v->u.i ? "true" : "false");
	case TV_INT:
		return tv_repr(r, &d->b, v);
	case TV_FLOAT:
		if (isnan(v->u.f))
			return tmpl_puts(r, &d->b, "NaN");
		if (isinf(v->u.f))
			return tmpl_puts(r, &d->b,
					 v->u.f < 0 ? "-Infinity" : "Infinity");
		return tmpl_put_float(r, &d->b, v->u.f);
	case TV_STR:
		return dump_str(d, v);
	case TV_LIST:
	case TV_TUPLE:
	case TV_DICT:
		rc = tmpl_enter(r);
		if (rc)
			return rc;
		rc = v->type == TV_DICT ? dump_dict(d, v->u.dict) :
					  dump_list(d, v->u.seq);
		tmpl_leave(r);
		return rc;
	default:
		return tmpl_fail(r, -EINVAL,
				 "object of type %s is not JSON serializable",
				 tv_type_name(v));
	}
}

static int set_separators(struct dump *d, const struct tv *v)
{
	struct tv_seq seq;
	int rc;

	d->item_sep = d->has_indent ? tv_lit(",", 1) : tv_lit(", ", 2);
	d->key_sep = tv_lit(": ", 2);
	if (v->type == TV_MISSING || v->type == TV_NONE)
		return 0;
	rc = tv_items(d->r, v, &seq);
	if (rc)
		return rc;
	if (seq.n != 2 || seq.v[0].type != TV_STR || seq.v[1].type != TV_STR)
		return tmpl_fail(d->r, -EINVAL,
				 "tojson: separators must be two strings");
	d->item_sep = seq.v[0];
	d->key_sep = seq.v[1];
	return 0;
}

static int set_indent(struct dump *d, const struct tv *v)
{
	struct tv space = tv_lit(" ", 1);

	if (v->type == TV_MISSING || v->type == TV_NONE)
		return 0;
	d->has_indent = true;
	if (v->type == TV_STR) {
		d->indent = *v;
		return 0;
	}
	if (!tv_is_int(v))
		return tmpl_fail(d->r, -EINVAL,
				 "tojson: indent must be a number or a string");
	return tv_binop(d->r, OP_MUL, &space, v, &d->indent);
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
int tmpl_filter_tojson(struct tmpl_render *r, const struct tv *self,
		       const struct tmpl_args *a, struct tv *out)
{
	struct dump d = { .r = r, .indent = tv_lit("", 0) };
	int rc = set_indent(&d, &a->pos[1]);

	d.is_ascii = tv_truth(&a->pos[0]);
	d.is_sorted = tv_truth(&a->pos[3]);
	if (!rc)
		rc = set_separators(&d, &a->pos[2]);
	if (!rc)
		rc = dump_value(&d, self);
	if (!rc)
		return tv_str_take(r, &d.b, out);
	tmpl_buf_deinit(&d.b);
	return rc;
}
