/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as text: str() and repr() of Python, the shortest float that reads
 * back the same, and HTML escapes. Text goes to buffers of the caller.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/template/internal.h"

int tmpl_put(struct tmpl_render *r, struct tmpl_buf *b, const char *s, size_t n)
{
	int rc = tmpl_charge(r, n);

	if (rc)
		return rc;
	if (n > r->lim.max_output_bytes || b->len > r->lim.max_output_bytes - n)
		return tmpl_fail(r, -E2BIG,
				 "the limit of %zu bytes of output is reached",
				 r->lim.max_output_bytes);
	if (tmpl_buf_put(b, s, n))
		return tmpl_fail(r, -ENOMEM, "out of memory");
	return 0;
}

int tmpl_puts(struct tmpl_render *r, struct tmpl_buf *b, const char *s)
{
	return tmpl_put(r, b, s, strlen(s));
}

/* repr(float): the fewest digits that read back to @f. */
int tmpl_put_float(struct tmpl_render *r, struct tmpl_buf *b, double f)
{
	char text[64], digits[32], out[64];
	int prec, exp, nd = 0, n = 0;

	if (isnan(f))
		return tmpl_puts(r, b, "nan");
	if (isinf(f))
		return tmpl_puts(r, b, f < 0 ? "-inf" : "inf");
	for (prec = 0; prec < 17; prec++) {
		snprintf(text, sizeof(text), "%.*e", prec, f);
		if (strtod(text, NULL) == f)
			break;
	}
	const char *e = strchr(text, 'e');

	if (!e)
		return tmpl_fail(r, -EINVAL, "cannot print a float");
	exp = atoi(e + 1);
	for (const char *p = text; p < e; p++)
		if (*p >= '0' && *p <= '9')
			digits[nd++] = *p;
	if (signbit(f))
		out[n++] = '-';
	if (exp < -4 || exp >= 16) {
		out[n++] = digits[0];
		if (nd > 1)
			out[n++] = '.';
		for (int i = 1; i < nd; i++)
			out[n++] = digits[i];
		n += snprintf(out + n, sizeof(out) - (size_t)n, "e%c%02d",
			      exp < 0 ? '-' : '+', abs(exp));
		return tmpl_put(r, b, out, (size_t)n);
	}
	if (exp < 0) {
		out[n++] = '0';
		out[n++] = '.';
		for (int i = -1; i > exp; i--)
			out[n++] = '0';
	}
	for (int i = 0; i < nd || i <= exp; i++) {
		if (i == exp + 1 && exp >= 0)
			out[n++] = '.';
		out[n++] = i < nd ? digits[i] : '0';
	}
	if (exp >= 0 && nd <= exp + 1) {
		out[n++] = '.';
		out[n++] = '0';
	}
	return tmpl_put(r, b, out, (size_t)n);
}

static int repr_char(struct tmpl_render *r, struct tmpl_buf *b, const char *s,
		     size_t n, uint32_t cp, char quote)
{
	char text[16];

	if (cp == (unsigned char)quote || cp == '\\') {
		text[0] = '\\';
		text[1] = (char)cp;
		return tmpl_put(r, b, text, 2);
	}
	if (cp == '\n')
		return tmpl_puts(r, b, "\\n");
	if (cp == '\r')
		return tmpl_puts(r, b, "\\r");
	if (cp == '\t')
		return tmpl_puts(r, b, "\\t");
	if (tmpl_cp_is(r, cp, TMPL_PRINTABLE))
		return tmpl_put(r, b, s, n);
	if (cp < 0x100)
		snprintf(text, sizeof(text), "\\x%02x", cp);
	else if (cp < 0x10000)
		snprintf(text, sizeof(text), "\\u%04x", cp);
	else
		snprintf(text, sizeof(text), "\\U%08x", cp);
	return tmpl_puts(r, b, text);
}

static int repr_str(struct tmpl_render *r, struct tmpl_buf *b,
		    const struct tv *v)
{
	bool has_single = memchr(v->u.s, '\'', v->len) != NULL;
	bool has_double = memchr(v->u.s, '"', v->len) != NULL;
	char quote = has_single && !has_double ? '"' : '\'';
	int rc = v->flags & TV_F_MARKUP ? tmpl_puts(r, b, "Markup(") : 0;

	if (!rc)
		rc = tmpl_put(r, b, &quote, 1);
	for (size_t i = 0; !rc && i < v->len;) {
		uint32_t cp;
		size_t k = tmpl_u8_decode(v->u.s + i, v->len - i, &cp);

		rc = repr_char(r, b, v->u.s + i, k, cp, quote);
		i += k;
	}
	if (!rc)
		rc = tmpl_put(r, b, &quote, 1);
	if (!rc && (v->flags & TV_F_MARKUP))
		rc = tmpl_puts(r, b, ")");
	return rc;
}

static int repr_seq(struct tmpl_render *r, struct tmpl_buf *b,
		    const struct tv_seq *seq, const char *open,
		    const char *close)
{
	int rc = tmpl_puts(r, b, open);

	for (size_t i = 0; !rc && i < seq->n; i++) {
		if (i)
			rc = tmpl_puts(r, b, ", ");
		if (!rc)
			rc = tv_repr(r, b, &seq->v[i]);
	}
	return rc ? rc : tmpl_puts(r, b, close);
}

static int repr_dict(struct tmpl_render *r, struct tmpl_buf *b,
		     const struct tv_dict *d)
{
	int rc = tmpl_puts(r, b, "{");

	for (size_t i = 0; !rc && i < d->n; i++) {
		if (i)
			rc = tmpl_puts(r, b, ", ");
		if (!rc)
			rc = tv_repr(r, b, &d->pairs[i].key);
		if (!rc)
			rc = tmpl_puts(r, b, ": ");
		if (!rc)
			rc = tv_repr(r, b, &d->pairs[i].val);
	}
	return rc ? rc : tmpl_puts(r, b, "}");
}

static int repr_range(struct tmpl_render *r, struct tmpl_buf *b,
		      const struct tv_range *g)
{
	char text[96];

	if (g->step == 1)
		snprintf(text, sizeof(text), "range(%lld, %lld)",
			 (long long)g->start, (long long)g->stop);
	else
		snprintf(text, sizeof(text), "range(%lld, %lld, %lld)",
			 (long long)g->start, (long long)g->stop,
			 (long long)g->step);
	return tmpl_puts(r, b, text);
}

/* Objects that only show a name in angle brackets. */
static int repr_object(struct tmpl_render *r, struct tmpl_buf *b,
		       const struct tv *v)
{
	const struct tmpl_name *name;
	char text[160];

	switch (v->type) {
	case TV_MACRO:
		name = &r->t->names[v->u.macro->def->name];
		snprintf(text, sizeof(text), "<Macro '%.*s'>",
			 name->len < 100 ? (int)name->len : 100, name->s);
		break;
	case TV_ITER:
		snprintf(text, sizeof(text), "<%s object>", v->u.iter->name);
		break;
	case TV_FUNC:
		snprintf(text, sizeof(text), "<function %s>", v->u.func->name);
		break;
	case TV_METHOD:
		snprintf(text, sizeof(text),
			 "<built-in method %s of %s object>",
			 v->u.method->func->name,
			 tv_type_name(&v->u.method->self));
		break;
	default:
		snprintf(text, sizeof(text), "<%s object>", tv_type_name(v));
		break;
	}
	return tmpl_puts(r, b, text);
}

static int repr_nested(struct tmpl_render *r, struct tmpl_buf *b,
		       const struct tv *v)
{
	int rc;

	switch (v->type) {
	case TV_LIST:
		return repr_seq(r, b, v->u.seq, "[", "]");
	case TV_TUPLE:
		return repr_seq(r, b, v->u.seq, "(",
				v->u.seq->n == 1 ? ",)" : ")");
	case TV_DICT:
		return repr_dict(r, b, v->u.dict);
	case TV_VIEW:
		rc = tmpl_puts(r, b, v->u.view->name);
		return rc ? rc : repr_seq(r, b, &v->u.view->seq, "([", "])");
	case TV_NS:
		rc = tmpl_puts(r, b, "<Namespace ");
		if (!rc)
			rc = repr_dict(r, b, v->u.dict);
		return rc ? rc : tmpl_puts(r, b, ">");
	default:
		return repr_object(r, b, v);
	}
}

int tv_repr(struct tmpl_render *r, struct tmpl_buf *b, const struct tv *v)
{
	char text[32];
	int rc;

	switch (v->type) {
	case TV_MISSING:
		return 0;
	case TV_UNDEF:
		return tmpl_puts(r, b, "Undefined");
	case TV_NONE:
		return tmpl_puts(r, b, "None");
	case TV_BOOL:
		return tmpl_puts(r, b, v->u.i ? "True" : "False");
	case TV_INT:
		snprintf(text, sizeof(text), "%lld", (long long)v->u.i);
		return tmpl_puts(r, b, text);
	case TV_FLOAT:
		return tmpl_put_float(r, b, v->u.f);
	case TV_STR:
		return repr_str(r, b, v);
	case TV_RANGE:
		return repr_range(r, b, v->u.range);
	default:
		rc = tmpl_enter(r);
		if (rc)
			return rc;
		rc = repr_nested(r, b, v);
		tmpl_leave(r);
		return rc;
	}
}

/* str(v), to @b. */
int tv_print(struct tmpl_render *r, struct tmpl_buf *b, const struct tv *v)
{
	if (v->type == TV_STR)
		return tmpl_put(r, b, v->u.s, v->len);
	if (v->type == TV_UNDEF)
		return 0;
	return tv_repr(r, b, v);
}

/* str(v) as a value; a string stays itself. */
int tv_to_str(struct tmpl_render *r, const struct tv *v, struct tv *out)
{
	struct tmpl_buf b = { 0 };
	int rc;

	if (v->type == TV_STR) {
		*out = *v;
		return 0;
	}
	rc = tv_print(r, &b, v);
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

/* str(v) with the five characters of HTML escaped, as markupsafe does. */
int tmpl_put_html(struct tmpl_render *r, struct tmpl_buf *b, const struct tv *v)
{
	struct tv s;
	int rc = tv_to_str(r, v, &s);

	if (!rc && (s.flags & TV_F_MARKUP))
		return tmpl_put(r, b, s.u.s, s.len);
	for (size_t i = 0; !rc && i < s.len; i++) {
		switch (s.u.s[i]) {
		case '&':
			rc = tmpl_puts(r, b, "&amp;");
			break;
		case '<':
			rc = tmpl_puts(r, b, "&lt;");
			break;
		case '>':
			rc = tmpl_puts(r, b, "&gt;");
			break;
		case '"':
			rc = tmpl_puts(r, b, "&#34;");
			break;
		case '\'':
			rc = tmpl_puts(r, b, "&#39;");
			break;
		default:
			rc = tmpl_put(r, b, s.u.s + i, 1);
		}
	}
	return rc;
}
