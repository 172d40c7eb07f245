/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters on text and numbers. A new one is a function and a line in the
 * table; a line without function makes it known but refused by name.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/template/internal.h"

#define FILTER(id)                                                           \
	static int filter_##id(struct tmpl_render *r, const struct tv *self, \
			       const struct tmpl_args *a, struct tv *out)

static int arg_int(struct tmpl_render *r, const struct tv *v, int64_t dflt,
		   int64_t *out)
{
	*out = dflt;
	if (v->type == TV_MISSING)
		return 0;
	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	if (!tv_is_int(v))
		return tmpl_fail(r, -EINVAL, "an integer is needed, not '%s'",
				 tv_type_name(v));
	*out = v->u.i;
	return 0;
}

static int case_filter(struct tmpl_render *r, const struct tv *self,
		       enum tmpl_case how, struct tv *out)
{
	struct tv s;
	int rc = tv_to_str(r, self, &s);

	return rc ? rc : tmpl_case_map(r, &s, how, out);
}

FILTER(upper)
{
	(void)a;
	return case_filter(r, self, CASE_UPPER, out);
}

FILTER(lower)
{
	(void)a;
	return case_filter(r, self, CASE_LOWER, out);
}

FILTER(capitalize)
{
	(void)a;
	return case_filter(r, self, CASE_CAPITAL, out);
}

/* The first character and the rest, each by itself, as jinja2 does it. */
static int put_word(struct tmpl_render *r, struct tmpl_buf *b,
		    const struct tv *word)
{
	size_t k = tmpl_u8_offset(word->u.s, word->len, 1);
	struct tv first = tv_lit(word->u.s, k), mapped;
	struct tv rest = tv_lit(word->u.s + k, word->len - k);
	int rc = tmpl_case_map(r, &first, CASE_UPPER, &mapped);

	if (!rc)
		rc = tmpl_put(r, b, mapped.u.s, mapped.len);
	if (!rc)
		rc = tmpl_case_map(r, &rest, CASE_LOWER, &mapped);
	return rc ? rc : tmpl_put(r, b, mapped.u.s, mapped.len);
}

/* Words start after blanks and -({[<, unlike in str.title(). */
FILTER(title)
{
	struct tmpl_buf b = { 0 };
	struct tv s, part;
	size_t i = 0;
	int rc = tv_to_str(r, self, &s);

	(void)a;
	while (!rc && i < s.len) {
		size_t start = i;
		uint32_t cp = 0;
		bool is_gap = false;

		while (i < s.len) {
			size_t k = tmpl_u8_decode(s.u.s + i, s.len - i, &cp);
			bool gap =
				tmpl_cp_is_space(cp) ||
				(cp < 0x80 && cp && strchr("-({[<", (int)cp));

			if (i > start && gap != is_gap)
				break;
			is_gap = gap;
			i += k;
		}
		part = tv_lit(s.u.s + start, i - start);
		rc = put_word(r, &b, &part);
	}
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

FILTER(trim)
{
	const struct tv *chars = &a->pos[0];
	struct tv s;
	int rc = tv_to_str(r, self, &s);

	if (chars->type == TV_MISSING || chars->type == TV_NONE)
		chars = NULL;
	else if (!rc && chars->type != TV_STR)
		rc = tmpl_fail(r, -EINVAL, "trim needs a string");
	if (!rc)
		rc = tmpl_charge(r, (size_t)s.len * (chars ? chars->len : 1));
	if (!rc)
		*out = tmpl_strip(&s, chars, true, true);
	return rc;
}

FILTER(replace)
{
	struct tv s, old, new;
	int64_t max;
	int rc = tv_to_str(r, self, &s);

	if (!rc)
		rc = tv_to_str(r, &a->pos[0], &old);
	if (!rc)
		rc = tv_to_str(r, &a->pos[1], &new);
	if (!rc && a->pos[2].type == TV_NONE)
		max = -1;
	else if (!rc)
		rc = arg_int(r, &a->pos[2], -1, &max);
	return rc ? rc : tmpl_str_replace(r, &s, &old, &new, max, out);
}

FILTER(string)
{
	(void)a;
	return tv_to_str(r, self, out);
}

FILTER(safe)
{
	int rc = tv_to_str(r, self, out);

	(void)a;
	out->flags |= TV_F_MARKUP;
	return rc;
}

FILTER(escape)
{
	struct tmpl_buf b = { 0 };
	int rc = tmpl_put_html(r, &b, self);

	(void)a;
	if (rc) {
		tmpl_buf_deinit(&b);
		return rc;
	}
	rc = tv_str_take(r, &b, out);
	out->flags |= TV_F_MARKUP;
	return rc;
}

FILTER(forceescape)
{
	struct tv s;
	int rc = tv_to_str(r, self, &s);

	s.flags = 0;
	return rc ? rc : filter_escape(r, &s, a, out);
}

FILTER(indent)
{
	struct tv_list_builder lines = { 0 };
	struct tv s, pad = tv_lit(" ", 1), width = tv_int(4);
	bool first = tv_truth(&a->pos[1]), blank = tv_truth(&a->pos[2]);
	struct tmpl_buf b = { 0 };
	struct tv end = tv_lit("\n", 1);
	int rc = 0;

	if (self->type != TV_STR)
		return self->type == TV_UNDEF ?
			       tv_undef_use(r, self) :
			       tmpl_fail(r, -EINVAL, "indent needs a string");
	if (a->pos[0].type != TV_MISSING)
		width = a->pos[0];
	if (width.type == TV_STR)
		pad = width;
	else
		rc = tv_binop(r, OP_MUL, &pad, &width, &pad);
	if (!rc)
		rc = tv_concat(r, self, &end, &s);
	if (!rc)
		rc = tmpl_str_lines(r, &s, false, &lines);
	for (size_t i = 0; !rc && i < lines.n; i++) {
		const struct tv *line = &lines.v[i];

		if (i)
			rc = tmpl_put(r, &b, "\n", 1);
		if (!rc && (i ? blank || line->len : first))
			rc = tmpl_put(r, &b, pad.u.s, pad.len);
		if (!rc)
			rc = tmpl_put(r, &b, line->u.s, line->len);
	}
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

FILTER(center)
{
	struct tv none = { .type = TV_MISSING }, s;
	int64_t width;
	int rc = tv_to_str(r, self, &s);

	if (!rc)
		rc = arg_int(r, &a->pos[0], 80, &width);
	return rc ? rc : tmpl_str_pad(r, &s, width, &none, 0, out);
}

FILTER(truncate)
{
	struct tv s = *self, end = tv_lit("...", 3), cut;
	int64_t length, leeway, n;
	const char *space;
	size_t nr;
	int rc = tv_len(r, self, &nr);

	if (a->pos[2].type == TV_STR)
		end = a->pos[2];
	if (!rc)
		rc = arg_int(r, &a->pos[0], 255, &length);
	if (!rc)
		rc = arg_int(r, &a->pos[3], 5, &leeway);
	if (rc)
		return rc;
	n = (int64_t)tmpl_u8_count(end.u.s, end.len);
	if (length < n || leeway < 0 || length > INT32_MAX ||
	    leeway > INT32_MAX)
		return tmpl_fail(r, -EINVAL, "truncate: bad length or leeway");
	*out = s;
	if ((int64_t)nr <= length + leeway)
		return 0;
	if (s.type != TV_STR)
		return tmpl_fail(r, -EINVAL,
				 "truncate: a string is needed, not '%s'",
				 tv_type_name(self));
	cut = tv_lit(s.u.s, tmpl_u8_offset(s.u.s, s.len, (size_t)(length - n)));
	space = memrchr(cut.u.s, ' ', cut.len);
	if (space && !tv_truth(&a->pos[1]))
		cut.len = (uint32_t)(space - cut.u.s);
	return tv_concat(r, &cut, &end, out);
}

FILTER(wordcount)
{
	bool is_inside = false;
	int64_t n = 0;
	struct tv s;
	int rc = tv_to_str(r, self, &s);

	(void)a;
	if (!rc)
		rc = tmpl_charge(r, s.len);
	for (size_t i = 0; !rc && i < s.len;) {
		uint32_t cp;
		bool is_word;

		i += tmpl_u8_decode(s.u.s + i, s.len - i, &cp);
		is_word = cp == '_' || tmpl_cp_is(r, cp, TMPL_ALNUM);
		n += is_word && !is_inside;
		is_inside = is_word;
	}
	*out = tv_int(n);
	return rc;
}

FILTER(urlencode)
{
	struct tmpl_buf b = { 0 };
	struct tv s;
	int rc;

	(void)a;
	if (self->type >= TV_LIST && self->type <= TV_VIEW)
		return tmpl_fail(r, -EINVAL,
				 "urlencode of a '%s' is not supported",
				 tv_type_name(self));
	rc = tv_to_str(r, self, &s);
	for (size_t i = 0; !rc && i < s.len; i++) {
		unsigned char ch = (unsigned char)s.u.s[i];
		char hex[4];

		if ((ch >= '0' && ch <= '9') ||
		    ((ch | 32) >= 'a' && (ch | 32) <= 'z') ||
		    (ch && strchr("-._~/", ch))) {
			rc = tmpl_put(r, &b, s.u.s + i, 1);
			continue;
		}
		snprintf(hex, sizeof(hex), "%%%02X", ch);
		rc = tmpl_put(r, &b, hex, 3);
	}
	if (!rc)
		return tv_str_take(r, &b, out);
	tmpl_buf_deinit(&b);
	return rc;
}

FILTER(format)
{
	struct tv_dict *d;
	struct tv s, map;
	int rc = tv_to_str(r, self, &s);

	if (rc || !a->nr_kw)
		return rc ? rc : tmpl_percent(r, &s, a, NULL, out);
	if (a->nr_pos)
		return tmpl_fail(
			r, -EINVAL,
			"format takes either positional or keyword arguments");
	rc = tv_dict_new(r, a->nr_kw, &d);
	for (size_t i = 0; !rc && i < a->nr_kw; i++)
		rc = tv_dict_set(r, d, &a->kw[i].name, &a->kw[i].v);
	map = (struct tv){ .type = TV_DICT, .u.dict = d };
	return rc ? rc : tmpl_percent(r, &s, a, &map, out);
}

/* ---- numbers ---- */

/* Text of a number without blanks and underscores; false: it is none. */
static bool number_text(const struct tv *v, char *buf, size_t size)
{
	struct tv s = tmpl_strip(v, NULL, true, true);
	size_t n = 0;

	if (s.len >= size || !s.len)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.u.s[i] == '_' && i && i + 1 < s.len &&
		    s.u.s[i - 1] != '_')
			continue;
		buf[n++] = s.u.s[i];
	}
	buf[n] = 0;
	return strlen(buf) == n;
}

static bool str_float(const struct tv *v, double *out)
{
	char buf[128], *end;

	if (!number_text(v, buf, sizeof(buf)) || strpbrk(buf, "xX(") ||
	    tmpl_cp_is_space((unsigned char)buf[0]))
		return false;
	*out = strtod(buf, &end);
	return *end == 0;
}

static bool str_int(const struct tv *v, int64_t base, int64_t *out)
{
	char buf[128], *end, *p = buf;

	if (!number_text(v, buf, sizeof(buf)) || buf[0] == ' ')
		return false;
	p += *p == '-' || *p == '+';
	if (base == 10 && (p[0] < '0' || p[0] > '9'))
		return false;
	if (base == 0 && p[0] == '0' && (p[1] | 32) == 'o')
		return false;
	if ((base == 8 && p[0] == '0' && (p[1] | 32) == 'o') ||
	    (base == 2 && p[0] == '0' && (p[1] | 32) == 'b'))
		memmove(p, p + 2, strlen(p + 2) + 1);
	errno = 0;
	*out = strtoll(buf, &end, (int)base);
	return *end == 0 && errno == 0;
}

static bool float_to_int(double f, int64_t *out)
{
	if (!(f > -9.2e18 && f < 9.2e18))
		return false;
	*out = (int64_t)f;
	return true;
}

FILTER(int)
{
	int64_t base, v;
	double f;
	int rc = arg_int(r, &a->pos[1], 10, &base);

	if (rc)
		return rc;
	if (base != 0 && (base < 2 || base > 36))
		return tmpl_fail(r, -EINVAL, "int: bad base");
	*out = a->pos[0].type == TV_MISSING ? tv_int(0) : a->pos[0];
	if (self->type == TV_UNDEF)
		return tv_undef_use(r, self);
	if (tv_is_int(self))
		*out = tv_int(self->u.i);
	else if (self->type == TV_FLOAT && float_to_int(self->u.f, &v))
		*out = tv_int(v);
	else if (self->type == TV_STR && str_int(self, base, &v))
		*out = tv_int(v);
	else if (self->type == TV_STR && str_float(self, &f) &&
		 float_to_int(f, &v))
		*out = tv_int(v);
	return 0;
}

FILTER(float)
{
	double f;

	*out = a->pos[0].type == TV_MISSING ? tv_float(0) : a->pos[0];
	if (self->type == TV_UNDEF)
		return tv_undef_use(r, self);
	if (tv_is_num(self))
		*out = tv_float(tv_num(self));
	else if (self->type == TV_STR && str_float(self, &f))
		*out = tv_float(f);
	return 0;
}

FILTER(abs)
{
	struct tv zero = tv_int(0);

	(void)a;
	if (self->type == TV_UNDEF)
		return tv_undef_use(r, self);
	if (!tv_is_num(self))
		return tmpl_fail(r, -EINVAL, "bad operand type for abs(): '%s'",
				 tv_type_name(self));
	if (self->type == TV_FLOAT) {
		*out = tv_float(fabs(self->u.f));
		return 0;
	}
	if (self->u.i < 0)
		return tv_binop(r, OP_SUB, &zero, self, out);
	*out = tv_int(self->u.i);
	return 0;
}

/* Half to even in decimal, as round() does it: by printing and reading. */
static double round_decimal(double f, int64_t digits)
{
	char buf[512];

	if (digits < 0) {
		double p = pow(10, (double)-digits);

		return rint(f / p) * p;
	}
	snprintf(buf, sizeof(buf), "%.*f", (int)digits, f);
	return strtod(buf, NULL);
}

FILTER(round)
{
	bool up = tv_streq(&a->pos[1], "ceil");
	bool down = tv_streq(&a->pos[1], "floor");
	int64_t digits;
	double f, p;
	int rc = arg_int(r, &a->pos[0], 0, &digits);

	if (rc)
		return rc;
	if (self->type == TV_UNDEF)
		return tv_undef_use(r, self);
	if (!tv_is_num(self))
		return tmpl_fail(r, -EINVAL, "round needs a number, not '%s'",
				 tv_type_name(self));
	if (!up && !down && a->pos[1].type != TV_MISSING &&
	    !tv_streq(&a->pos[1], "common"))
		return tmpl_fail(r, -EINVAL,
				 "round: method must be common, ceil or floor");
	if (digits > 100 || digits < -100)
		return tmpl_fail(r, -EINVAL, "round: precision out of range");
	f = tv_num(self);
	p = pow(10, (double)digits);
	if (up || down)
		*out = tv_float((up ? ceil(f * p) : floor(f * p)) / p);
	else if (tv_is_int(self) && digits >= 0)
		*out = tv_int(self->u.i);
	else if (tv_is_int(self))
		*out = tv_int((int64_t)round_decimal(f, digits));
	else
		*out = tv_float(isfinite(f) ? round_decimal(f, digits) : f);
	return 0;
}

FILTER(filesizeformat)
{
	static const char *const si[] = { "kB", "MB", "GB", "TB",
					  "PB", "EB", "ZB", "YB" };
	static const char *const iec[] = { "KiB", "MiB", "GiB", "TiB",
					   "PiB", "EiB", "ZiB", "YiB" };
	bool is_binary = tv_truth(&a->pos[0]);
	double base = is_binary ? 1024 : 1000, bytes, unit = base;
	struct tv nan = tv_float(NAN), f;
	struct tmpl_args dflt = { .pos = &nan, .nr_pos = 1 };
	char text[64];
	int i = 0, rc = filter_float(r, self, &dflt, &f);

	if (rc)
		return rc;
	bytes = tv_num(&f);
	if (isnan(bytes))
		return tmpl_fail(r, -EINVAL,
				 "filesizeformat: a number is needed");
	if (bytes == 1)
		return tv_str_new(r, "1 Byte", 6, out);
	if (bytes < base)
		snprintf(text, sizeof(text), "%lld Bytes",
			 (long long)(bytes > -9e18 ? bytes : 0));
	else {
		for (unit *= base; i < 7 && bytes >= unit; i++)
			unit *= base;
		snprintf(text, sizeof(text), "%.1f %s", base * bytes / unit,
			 is_binary ? iec[i] : si[i]);
	}
	return tv_str_new(r, text, strlen(text), out);
}

const struct tmpl_func tmpl_text_filters[] = {
	{ "abs", filter_abs, "", 0 },
	{ "capitalize", filter_capitalize, "", 0 },
	{ "center", filter_center, "width", 0 },
	{ "e", filter_escape, "", 0 },
	{ "escape", filter_escape, "", 0 },
	{ "filesizeformat", filter_filesizeformat, "binary", 0 },
	{ "float", filter_float, "default", 0 },
	{ "forceescape", filter_forceescape, "", 0 },
	{ "format", filter_format, NULL, 0 },
	{ "indent", filter_indent, "width,first,blank", 0 },
	{ "int", filter_int, "default,base", 0 },
	{ "lower", filter_lower, "", 0 },
	{ "pprint", NULL, NULL, 0 },
	{ "replace", filter_replace, "old,new,count", 2 },
	{ "round", filter_round, "precision,method", 0 },
	{ "safe", filter_safe, "", 0 },
	{ "string", filter_string, "", 0 },
	{ "striptags", NULL, NULL, 0 },
	{ "title", filter_title, "", 0 },
	{ "tojson", tmpl_filter_tojson,
	  "ensure_ascii,indent,separators,sort_keys", 0 },
	{ "trim", filter_trim, "chars", 0 },
	{ "truncate", filter_truncate, "length,killwords,end,leeway", 0 },
	{ "upper", filter_upper, "", 0 },
	{ "urlencode", filter_urlencode, "", 0 },
	{ "urlize", NULL, NULL, 0 },
	{ "wordcount", filter_wordcount, "", 0 },
	{ "wordwrap", NULL, NULL, 0 },
	{ "xmlattr", NULL, NULL, 0 },
	{ 0 },
};

const struct tmpl_func *tmpl_filter_find(const char *s, size_t n)
{
	const struct tmpl_func *f = tmpl_find(tmpl_text_filters, s, n);

	if (!f)
		f = tmpl_find(tmpl_seq_filters, s, n);
	return f ? f : tmpl_find(tmpl_select_filters, s, n);
}
