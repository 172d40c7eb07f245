/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for the template engine: UTF-8, white space as Python sees it, finding.
 * Positions are code points where templates see them and bytes everywhere
 * else. Classes of characters and case are in unicode.c.
 */
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
