/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of str that answer a question about all of its characters; and the
 * arguments that all of its methods read.
 */
#include <errno.h>

#include "engine/template/methods.h"

int tmpl_need_str(struct tmpl_render *r, const struct tv *v)
{
	if (v->type == TV_STR)
		return 0;
	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	return tmpl_fail(r, -EINVAL, "a string is needed, not '%s'",
			 tv_type_name(v));
}

int tmpl_need_int(struct tmpl_render *r, const struct tv *v, int64_t dflt,
		  int64_t *out)
{
	*out = dflt;
	if (v->type == TV_MISSING || v->type == TV_NONE)
		return 0;
	if (v->type == TV_UNDEF)
		return tv_undef_use(r, v);
	if (!tv_is_int(v))
		return tmpl_fail(r, -EINVAL, "an integer is needed, not '%s'",
				 tv_type_name(v));
	*out = v->u.i;
	return 0;
}

/* Methods that answer a question: all characters of a class, some cased. */
static int all_of(struct tmpl_render *r, const struct tv *s,
		  enum tmpl_class klass, struct tv *out)
{
	bool holds = s->len != 0;
	int rc = tmpl_charge(r, (size_t)s->len * 4);

	for (size_t i = 0; !rc && holds && i < s->len;) {
		uint32_t cp;

		i += tmpl_u8_decode(s->u.s + i, s->len - i, &cp);
		holds = tmpl_cp_is(r, cp, klass);
	}
	*out = tv_bool(holds);
	return rc;
}

METHOD(isdigit)
{
	(void)a;
	return all_of(r, self, TMPL_DIGIT, out);
}

METHOD(isdecimal)
{
	(void)a;
	return all_of(r, self, TMPL_DECIMAL, out);
}

METHOD(isprintable)
{
	if (self->len)
		return all_of(r, self, TMPL_PRINTABLE, out);
	(void)a;
	*out = tv_bool(true);
	return 0;
}

METHOD(isalpha)
{
	(void)a;
	return all_of(r, self, TMPL_ALPHA, out);
}

METHOD(isalnum)
{
	(void)a;
	return all_of(r, self, TMPL_ALNUM, out);
}

METHOD(isspace)
{
	(void)a;
	*out = tv_bool(self->len &&
		       tmpl_strip(self, NULL, true, false).len == 0);
	return tmpl_charge(r, self->len);
}

METHOD(isascii)
{
	bool holds = true;

	(void)a;
	for (size_t i = 0; i < self->len; i++)
		holds &= (unsigned char)self->u.s[i] < 0x80;
	*out = tv_bool(holds);
	return tmpl_charge(r, self->len);
}

static int by_test(struct tmpl_render *r, const struct tv *self,
		   const char *name, struct tv *out)
{
	const struct tmpl_func *f = tmpl_find(tmpl_tests, name, strlen(name));
	struct tmpl_args none = { 0 };

	return tmpl_call_func(r, "test", f, self, &none, out);
}

METHOD(isupper)
{
	(void)a;
	return by_test(r, self, "upper", out);
}

METHOD(islower)
{
	(void)a;
	return by_test(r, self, "lower", out);
}
