/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode for the template engine: UTF-8, white space as Python sees it, case
 * mapping by the C library's C.UTF-8 tables. Positions are code points where
 * templates see them and bytes everywhere else.
 */
#include <errno.h>
#include <locale.h>
#include <wctype.h>

#include "engine/template/internal.h"

size_t tmpl_u8_count(const char *s, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		k += ((unsigned char)s[i] & 0xc0) != 0x80;
	return k;
}

/* Byte offset of code point @cp, at most @n. */
size_t tmpl_u8_offset(const char *s, size_t n, size_t cp)
{
	size_t i = 0;

	while (i < n && cp > 0) {
		i++;
		while (i < n && ((unsigned char)s[i] & 0xc0) == 0x80)
			i++;
		cp--;
	}
	return i;
}

/* Bytes of the first code point; a stray byte counts as one (U+FFFD). */
size_t tmpl_u8_decode(const char *s, size_t n, uint32_t *out_cp)
{
	unsigned char b = n ? (unsigned char)s[0] : 0;
	size_t k = b < 0x80 ? 1 :
		   b < 0xc2 ? 0 :
		   b < 0xe0 ? 2 :
		   b < 0xf0 ? 3 :
		   b < 0xf5 ? 4 :
			      0;
	uint32_t cp = k == 1 ? b : k ? b & (0x7fU >> k) : 0;

	*out_cp = 0xfffd;
	if (k == 0 || k > n)
		return 1;
	for (size_t i = 1; i < k; i++) {
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return 1;
		cp = cp << 6 | ((unsigned char)s[i] & 0x3f);
	}
	if ((k == 3 && cp < 0x800) || (k == 4 && cp < 0x10000) ||
	    cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		return 1;
	*out_cp = cp;
	return k;
}

size_t tmpl_u8_encode(uint32_t cp, char out[4])
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

/* Offset of the first byte that is not UTF-8; @n if there is none. */
size_t tmpl_u8_invalid_at(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n) {
		uint32_t cp;
		size_t k = tmpl_u8_decode(s + i, n - i, &cp);

		if (k == 1 && (unsigned char)s[i] >= 0x80)
			return i;
		i += k;
	}
	return n;
}

bool tmpl_cp_is_space(uint32_t cp)
{
	return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 ||
	       cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
	       cp == 0x3000;
}

/* Whether Python's repr() shows the character itself. */
bool tmpl_cp_is_printable(uint32_t cp)
{
	if (cp < 0x7f)
		return cp >= 0x20;
	return !(cp <= 0xa0 || cp == 0xad || tmpl_cp_is_space(cp) ||
		 (cp >= 0x200b && cp <= 0x200f) ||
		 (cp >= 0x202a && cp <= 0x202e) ||
		 (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff ||
		 (cp >= 0xe000 && cp <= 0xf8ff) ||
		 (cp >= 0xfff0 && cp <= 0xfffb) || (cp & 0xfffe) == 0xfffe ||
		 cp >= 0xe0000);
}

void *tmpl_ctype_create(void)
{
	return newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

void tmpl_ctype_destroy(void *ctype)
{
	if (ctype)
		freelocale((locale_t)ctype);
}

/* @klass: a class of wctype(), "upper", "lower", "alpha", ... */
bool tmpl_cp_is(struct tmpl_render *r, uint32_t cp, const char *klass)
{
	locale_t l = (locale_t)r->t->ctype;

	return l && iswctype_l((wint_t)cp, wctype_l(klass, l), l);
}

static uint32_t map_cp(struct tmpl_render *r, uint32_t cp, bool upper)
{
	locale_t l;

	if (cp < 0x80) {
		if (upper && cp >= 'a' && cp <= 'z')
			return cp - 32;
		return !upper && cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
	}
	l = (locale_t)r->t->ctype;
	if (!l)
		return cp;
	return (uint32_t)(upper ? towupper_l((wint_t)cp, l) :
				  towlower_l((wint_t)cp, l));
}

static bool is_cased(struct tmpl_render *r, uint32_t cp)
{
	return map_cp(r, cp, true) != cp || map_cp(r, cp, false) != cp;
}

int tmpl_case_map(struct tmpl_render *r, const struct tv *s, enum tmpl_case how,
		  struct tv *out)
{
	struct tmpl_buf b = { 0 };
	bool is_inside = false; /* of a word, or past the first character */
	int rc = tmpl_charge(r, (size_t)s->len * 4);

	for (size_t i = 0; !rc && i < s->len;) {
		uint32_t cp;
		size_t k = tmpl_u8_decode(s->u.s + i, s->len - i, &cp);
		bool is_upper = how == CASE_UPPER;
		char text[4];

		if (how == CASE_TITLE || how == CASE_CAPITAL)
			is_upper = !is_inside;
		else if (how == CASE_SWAP)
			is_upper = map_cp(r, cp, true) != cp;
		is_inside = how == CASE_TITLE ? is_cased(r, cp) : true;
		i += k;
		if (is_upper && cp == 0xdf) { /* the one common 1:2 mapping */
			rc = tmpl_buf_put(&b, how == CASE_UPPER ? "SS" : "Ss",
					  2);
			continue;
		}
		cp = map_cp(r, cp, is_upper);
		rc = tmpl_buf_put(&b, text, tmpl_u8_encode(cp, text));
	}
	if (rc == -ENOMEM)
		rc = tmpl_fail(r, rc, "out of memory");
	if (!rc)
		rc = tv_str_new(r, b.data ? b.data : "", b.len, out);
	tmpl_buf_deinit(&b);
	if (!rc)
		out->flags = s->flags;
	return rc;
}

static bool is_stripped(const struct tv *chars, uint32_t cp)
{
	if (!chars)
		return tmpl_cp_is_space(cp);
	for (size_t i = 0; i < chars->len;) {
		uint32_t c;

		i += tmpl_u8_decode(chars->u.s + i, chars->len - i, &c);
		if (c == cp)
			return true;
	}
	return false;
}

/* A view into @s without the @chars (NULL: white space) at its ends. */
struct tv tmpl_strip(const struct tv *s, const struct tv *chars, bool left,
		     bool right)
{
	struct tv v = *s;
	uint32_t cp;

	while (left && v.len) {
		size_t k = tmpl_u8_decode(v.u.s, v.len, &cp);

		if (!is_stripped(chars, cp))
			break;
		v.u.s += k;
		v.len -= (uint32_t)k;
	}
	while (right && v.len) {
		size_t i = v.len - 1;

		while (i > 0 && ((unsigned char)v.u.s[i] & 0xc0) == 0x80)
			i--;
		tmpl_u8_decode(v.u.s + i, v.len - i, &cp);
		if (!is_stripped(chars, cp))
			break;
		v.len = (uint32_t)i;
	}
	return v;
}

/*
 * The first @what in @s, or NULL. Looks in windows that double, so that a
 * find costs what lies before it also under tools that check whole ranges.
 */
const char *tmpl_find_first(const char *s, size_t n, const struct tv *what)
{
	size_t m = what->len, window = 256;

	if (m == 0)
		return s;
	while (n >= m) {
		size_t k = window < n - m + 1 ? window : n - m + 1;
		const char *p = memmem(s, k + m - 1, what->u.s, m);

		if (p)
			return p;
		s += k;
		n -= k;
		if (window < SIZE_MAX / 4)
			window *= 2;
		if (window < m)
			window = m; /* a window under m would search twice */
	}
	return NULL;
}
