/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Characters as Python knows them: classes by PCRE2's properties, simple case
 * mappings by the C library's C.UTF-8 tables, and the mappings of one to
 * several characters, which neither has.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include <errno.h>
#include <locale.h>
#include <pcre2.h>
#include <stdlib.h>
#include <wctype.h>

#include "engine/template/internal.h"

/* What str.isdigit() takes beside decimals: superscripts, circled digits and the like. */
#define MORE_DIGITS                                                   \
	"\\x{b2}\\x{b3}\\x{b9}\\x{1369}-\\x{1371}\\x{19da}\\x{2070}"  \
	"\\x{2074}-\\x{2079}\\x{2080}-\\x{2089}\\x{2460}-\\x{2468}"   \
	"\\x{2474}-\\x{247c}\\x{2488}-\\x{2490}\\x{24ea}"             \
	"\\x{24f5}-\\x{24fd}\\x{24ff}\\x{2776}-\\x{277e}"             \
	"\\x{2780}-\\x{2788}\\x{278a}-\\x{2792}\\x{10a40}-\\x{10a43}" \
	"\\x{10e60}-\\x{10e68}\\x{11052}-\\x{1105a}\\x{1f100}-\\x{1f10a}"
/* What a word may hold without ending: Unicode's Case_Ignorable. */
#define IGNORABLE                                                       \
	"\\p{Mn}\\p{Me}\\p{Cf}\\p{Lm}\\p{Sk}'.:\\x{b7}\\x{387}\\x{55f}" \
	"\\x{5f4}\\x{2018}\\x{2019}\\x{2024}\\x{2027}\\x{fe13}"         \
	"\\x{fe52}\\x{fe55}\\x{ff07}\\x{ff0e}\\x{ff1a}"

static const char *const class_patterns[TMPL_NR_CLASSES] = {
	[TMPL_ALPHA] = "\\p{L}",
	[TMPL_ALNUM] = "[\\p{L}\\p{N}]",
	[TMPL_DECIMAL] = "\\p{Nd}",
	[TMPL_DIGIT] = "[\\p{Nd}" MORE_DIGITS "]",
	[TMPL_PRINTABLE] = "[\\p{L}\\p{M}\\p{N}\\p{P}\\p{S} ]",
	[TMPL_TITLE] = "\\p{Lt}",
	[TMPL_IGNORABLE] = "[" IGNORABLE "]",
};

/* Tables that a template keeps; only read once made. */
struct tmpl_ctype {
	locale_t locale; /* 0: only ASCII has case */
	pcre2_code *classes[TMPL_NR_CLASSES]; /* NULL: upper and lower */
};

struct tmpl_ctype *tmpl_ctype_create(void)
{
	struct tmpl_ctype *t = calloc(1, sizeof(*t));
	PCRE2_SIZE at;
	int why;

	if (!t)
		return NULL;
	t->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	for (int i = 0; i < TMPL_NR_CLASSES; i++) {
		if (!class_patterns[i])
			continue;
		t->classes[i] = pcre2_compile((PCRE2_SPTR)class_patterns[i],
					      PCRE2_ZERO_TERMINATED,
					      PCRE2_UTF | PCRE2_ANCHORED, &why,
					      &at, NULL);
		if (!t->classes[i]) {
			tmpl_ctype_destroy(t);
			return NULL;
		}
	}
	return t;
}

void tmpl_ctype_destroy(struct tmpl_ctype *t)
{
	if (!t)
		return;
	if (t->locale)
		freelocale(t->locale);
	for (int i = 0; i < TMPL_NR_CLASSES; i++)
		pcre2_code_free(t->classes[i]);
	free(t);
}

enum {
	NR_CACHED = 1024, /* characters; texts of a kind share few */
	/* A match takes as long as some forty nodes. */
	STEPS_PER_MATCH = 32,
};

/* What is known of characters in one rendering, at the place of their last bits. */
struct tmpl_chars {
	pcre2_match_data *match;
	struct {
		uint32_t cp;
		uint16_t known, is; /* bits of enum tmpl_class */
	} of[NR_CACHED];
};

static bool match_one(struct tmpl_render *r, uint32_t cp, enum tmpl_class klass)
{
	char text[4];
	size_t n = tmpl_u8_encode(cp, text);

	r->steps += STEPS_PER_MATCH;
	return pcre2_match(r->t->ctype->classes[klass], (PCRE2_SPTR)text, n, 0,
			   PCRE2_NO_UTF_CHECK, r->chars->match, NULL) > 0;
}

static bool has_property(struct tmpl_render *r, uint32_t cp,
			 enum tmpl_class klass)
{
	const uint16_t bit = (uint16_t)(1U << klass);
	const size_t at = cp % NR_CACHED;

	if (!r->chars) {
		r->chars = calloc(1, sizeof(*r->chars));
		if (r->chars)
			r->chars->match = pcre2_match_data_create(1, NULL);
		if (!r->chars || !r->chars->match) {
			r->is_oom = true;
			return false;
		}
	}
	if (r->chars->of[at].cp != cp) {
		r->chars->of[at].cp = cp;
		r->chars->of[at].known = r->chars->of[at].is = 0;
	}
	if (!(r->chars->of[at].known & bit)) {
		r->chars->of[at].known |= bit;
		r->chars->of[at].is |= match_one(r, cp, klass) ? bit : 0;
	}
	return r->chars->of[at].is & bit;
}

void tmpl_ctype_done(struct tmpl_render *r)
{
	if (!r->chars)
		return;
	pcre2_match_data_free(r->chars->match);
	free(r->chars);
	r->chars = NULL;
}

/* The steps of what has to be looked up are found by the caller's next charge. */
bool tmpl_cp_is(struct tmpl_render *r, uint32_t cp, enum tmpl_class klass)
{
	const locale_t l = r->t->ctype->locale;

	/* The C library takes some of title case for upper or lower case. */
	switch (klass) {
	case TMPL_LOWER:
		if (cp < 0x80)
			return cp >= 'a' && cp <= 'z';
		return l && iswlower_l((wint_t)cp, l) &&
		       !has_property(r, cp, TMPL_TITLE);
	case TMPL_UPPER:
		if (cp < 0x80)
			return cp >= 'A' && cp <= 'Z';
		return l && iswupper_l((wint_t)cp, l) &&
		       !has_property(r, cp, TMPL_TITLE);
	case TMPL_PRINTABLE:
		if (cp < 0x80)
			return cp >= 0x20 && cp < 0x7f;
		break;
	default:
		break;
	}
	return has_property(r, cp, klass);
}

static bool is_cased(struct tmpl_render *r, uint32_t cp)
{
	return tmpl_cp_is(r, cp, TMPL_LOWER) || tmpl_cp_is(r, cp, TMPL_UPPER) ||
	       (cp >= 0x80 && tmpl_cp_is(r, cp, TMPL_TITLE));
}

/* ---- case mapping ---------------------------------------------------------- */

enum { MAX_MAPPED = 3 };

/* Unicode's mappings to more than one character in upper case, but for those of greek_iota(). */
static const struct special {
	uint16_t cp;
	uint16_t upper[MAX_MAPPED], title[MAX_MAPPED]; /* ended by 0 */
} specials[] = {
	/* clang-format off */
	{ 0x00df, { 0x0053, 0x0053 }, { 0x0053, 0x0073 } },
	{ 0x0149, { 0x02bc, 0x004e }, { 0x02bc, 0x004e } },
	{ 0x01f0, { 0x004a, 0x030c }, { 0x004a, 0x030c } },
	{ 0x0390, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
	{ 0x03b0, { 0x03a5, 0x0308, 0x0301 }, { 0x03a5, 0x0308, 0x0301 } },
	{ 0x0587, { 0x0535, 0x0552 }, { 0x0535, 0x0582 } },
	{ 0x1e96, { 0x0048, 0x0331 }, { 0x0048, 0x0331 } },
	{ 0x1e97, { 0x0054, 0x0308 }, { 0x0054, 0x0308 } },
	{ 0x1e98, { 0x0057, 0x030a }, { 0x0057, 0x030a } },
	{ 0x1e99, { 0x0059, 0x030a }, { 0x0059, 0x030a } },
	{ 0x1e9a, { 0x0041, 0x02be }, { 0x0041, 0x02be } },
	{ 0x1f50, { 0x03a5, 0x0313 }, { 0x03a5, 0x0313 } },
	{ 0x1f52, { 0x03a5, 0x0313, 0x0300 }, { 0x03a5, 0x0313, 0x0300 } },
	{ 0x1f54, { 0x03a5, 0x0313, 0x0301 }, { 0x03a5, 0x0313, 0x0301 } },
	{ 0x1f56, { 0x03a5, 0x0313, 0x0342 }, { 0x03a5, 0x0313, 0x0342 } },
	{ 0x1fb2, { 0x1fba, 0x0399 }, { 0x1fba, 0x0345 } },
	{ 0x1fb3, { 0x0391, 0x0399 }, { 0x1fbc } },
	{ 0x1fb4, { 0x0386, 0x0399 }, { 0x0386, 0x0345 } },
	{ 0x1fb6, { 0x0391, 0x0342 }, { 0x0391, 0x0342 } },
	{ 0x1fb7, { 0x0391, 0x0342, 0x0399 }, { 0x0391, 0x0342, 0x0345 } },
	{ 0x1fbc, { 0x0391, 0x0399 }, { 0x1fbc } },
	{ 0x1fc2, { 0x1fca, 0x0399 }, { 0x1fca, 0x0345 } },
	{ 0x1fc3, { 0x0397, 0x0399 }, { 0x1fcc } },
	{ 0x1fc4, { 0x0389, 0x0399 }, { 0x0389, 0x0345 } },
	{ 0x1fc6, { 0x0397, 0x0342 }, { 0x0397, 0x0342 } },
	{ 0x1fc7, { 0x0397, 0x0342, 0x0399 }, { 0x0397, 0x0342, 0x0345 } },
	{ 0x1fcc, { 0x0397, 0x0399 }, { 0x1fcc } },
	{ 0x1fd2, { 0x0399, 0x0308, 0x0300 }, { 0x0399, 0x0308, 0x0300 } },
	{ 0x1fd3, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
	{ 0x1fd6, { 0x0399, 0x0342 }, { 0x0399, 0x0342 } },
	{ 0x1fd7, { 0x0399, 0x0308, 0x0342 }, { 0x0399, 0x0308, 0x0342 } },
	{ 0x1fe2, { 0x03a5, 0x0308, 0x0300 }, { 0x03a5, 0x0308, 0x0300 } },
	{ 0x1fe3, { 0x03a5, 0x0308, 0x0301 }, { 0x03a5, 0x0308, 0x0301 } },
	{ 0x1fe4, { 0x03a1, 0x0313 }, { 0x03a1, 0x0313 } },
	{ 0x1fe6, { 0x03a5, 0x0342 }, { 0x03a5, 0x0342 } },
	{ 0x1fe7, { 0x03a5, 0x0308, 0x0342 }, { 0x03a5, 0x0308, 0x0342 } },
	{ 0x1ff2, { 0x1ffa, 0x0399 }, { 0x1ffa, 0x0345 } },
	{ 0x1ff3, { 0x03a9, 0x0399 }, { 0x1ffc } },
	{ 0x1ff4, { 0x038f, 0x0399 }, { 0x038f, 0x0345 } },
	{ 0x1ff6, { 0x03a9, 0x0342 }, { 0x03a9, 0x0342 } },
	{ 0x1ff7, { 0x03a9, 0x0342, 0x0399 }, { 0x03a9, 0x0342, 0x0345 } },
	{ 0x1ffc, { 0x03a9, 0x0399 }, { 0x1ffc } },
	{ 0xfb00, { 0x0046, 0x0046 }, { 0x0046, 0x0066 } },
	{ 0xfb01, { 0x0046, 0x0049 }, { 0x0046, 0x0069 } },
	{ 0xfb02, { 0x0046, 0x004c }, { 0x0046, 0x006c } },
	{ 0xfb03, { 0x0046, 0x0046, 0x0049 }, { 0x0046, 0x0066, 0x0069 } },
	{ 0xfb04, { 0x0046, 0x0046, 0x004c }, { 0x0046, 0x0066, 0x006c } },
	{ 0xfb05, { 0x0053, 0x0054 }, { 0x0053, 0x0074 } },
	{ 0xfb06, { 0x0053, 0x0054 }, { 0x0053, 0x0074 } },
	{ 0xfb13, { 0x0544, 0x0546 }, { 0x0544, 0x0576 } },
	{ 0xfb14, { 0x0544, 0x0535 }, { 0x0544, 0x0565 } },
	{ 0xfb15, { 0x0544, 0x053b }, { 0x0544, 0x056b } },
	{ 0xfb16, { 0x054e, 0x0546 }, { 0x054e, 0x0576 } },
	{ 0xfb17, { 0x0544, 0x053d }, { 0x0544, 0x056d } },
	/* clang-format on */
};

static size_t put_all(const uint16_t *from, uint32_t out[MAX_MAPPED])
{
	size_t n = 0;

	for (; n < MAX_MAPPED && from[n]; n++)
		out[n] = from[n];
	return n;
}

/* Greek vowels with an iota below, U+1F80 to U+1FAF: a letter of its own in title case only. */
static size_t greek_iota(uint32_t cp, bool title, uint32_t out[MAX_MAPPED])
{
	static const uint16_t capitals[] = { 0x1f08, 0x1f28, 0x1f68 };

	if (title) {
		out[0] = cp | 8;
		return 1;
	}
	out[0] = capitals[(cp - 0x1f80) >> 4] + (cp & 7);
	out[1] = 0x399;
	return 2;
}

/* The characters of @cp in upper or title case. */
static size_t map_up(const struct tmpl_ctype *t, uint32_t cp, bool title,
		     uint32_t out[MAX_MAPPED])
{
	size_t lo = 0, hi = sizeof(specials) / sizeof(specials[0]);

	out[0] = cp;
	if (cp < 0x80) {
		out[0] = cp >= 'a' && cp <= 'z' ? cp - 32 : cp;
		return 1;
	}
	if (cp >= 0x1f80 && cp <= 0x1faf)
		return greek_iota(cp, title, out);
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (specials[mid].cp == cp)
			return put_all(title ? specials[mid].title :
					       specials[mid].upper,
				       out);
		if (specials[mid].cp < cp)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!t->locale)
		return 1;
	if (title)
		out[0] = (uint32_t)towctrans_l(
			(wint_t)cp, wctrans_l("totitle", t->locale), t->locale);
	else
		out[0] = (uint32_t)towupper_l((wint_t)cp, t->locale);
	return 1;
}

/* Whether a cased letter stands on that side of @at in @s, over what does not end a word. */
static bool has_letter_before(struct tmpl_render *r, const struct tv *s,
			      size_t at)
{
	while (at > 0) {
		uint32_t cp;
		size_t k = at - 1;

		while (k > 0 && ((unsigned char)s->u.s[k] & 0xc0) == 0x80)
			k--;
		tmpl_u8_decode(s->u.s + k, at - k, &cp);
		if (!tmpl_cp_is(r, cp, TMPL_IGNORABLE))
			return is_cased(r, cp);
		at = k;
	}
	return false;
}

static bool has_letter_behind(struct tmpl_render *r, const struct tv *s,
			      size_t at)
{
	while (at < s->len) {
		uint32_t cp;

		at += tmpl_u8_decode(s->u.s + at, s->len - at, &cp);
		if (!tmpl_cp_is(r, cp, TMPL_IGNORABLE))
			return is_cased(r, cp);
	}
	return false;
}

/* The characters of @cp, which stands in @s in front of @end, in lower case. */
static size_t map_down(struct tmpl_render *r, const struct tv *s, size_t end,
		       uint32_t cp, uint32_t out[MAX_MAPPED])
{
	const struct tmpl_ctype *t = r->t->ctype;

	out[0] = cp;
	if (cp < 0x80) {
		out[0] = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
	} else if (cp == 0x130) { /* I with a dot keeps it */
		out[0] = 'i';
		out[1] = 0x307;
		return 2;
	} else if (cp == 0x3a3) { /* sigma has a form for the ends of words */
		out[0] = has_letter_before(r, s, end - 2) &&
					 !has_letter_behind(r, s, end) ?
				 0x3c2 :
				 0x3c3;
	} else if (t->locale) {
		out[0] = (uint32_t)towlower_l((wint_t)cp, t->locale);
	}
	return 1;
}

static int put_mapped(struct tmpl_buf *b, const uint32_t *cps, size_t n)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++) {
		char text[4];

		rc = tmpl_buf_put(b, text, tmpl_u8_encode(cps[i], text));
	}
	return rc;
}

int tmpl_case_map(struct tmpl_render *r, const struct tv *s, enum tmpl_case how,
		  struct tv *out)
{
	struct tmpl_buf b = { 0 };
	bool is_inside = false; /* of a word, or past the first character */
	int rc = tmpl_charge(r, (size_t)s->len * 4);

	for (size_t i = 0; !rc && i < s->len;) {
		uint32_t cp, mapped[MAX_MAPPED];
		bool to_upper = how == CASE_UPPER, to_title = false;
		size_t n;

		i += tmpl_u8_decode(s->u.s + i, s->len - i, &cp);
		mapped[0] = cp;
		if (how == CASE_TITLE || how == CASE_CAPITAL)
			to_title = !is_inside;
		else if (how == CASE_SWAP)
			to_upper = tmpl_cp_is(r, cp, TMPL_LOWER);
		is_inside = how == CASE_TITLE ? is_cased(r, cp) : true;
		if (to_upper || to_title)
			n = map_up(r->t->ctype, cp, to_title, mapped);
		else if (how == CASE_SWAP && !tmpl_cp_is(r, cp, TMPL_UPPER))
			n = 1;
		else
			n = map_down(r, s, i, cp, mapped);
		rc = put_mapped(&b, mapped, n);
		if (!rc)
			rc = tmpl_charge(r, 0);
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
