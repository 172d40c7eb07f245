/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normal form C against Python's unicodedata (tests/data/make_nfc_golden.py
 * prints the hashes), and the work that hostile marks make.
 */
#include "engine/token/nfc.h"
#include "engine/token/utf8.h"
#include "tests/harness.h"
#include "tests/random.h"

/* In normal form C; as it is where it was already. */
static const char *nfc(const char *text)
{
	static char buf[256];
	size_t len;
	char *out;

	ASSERT_EQ(0, nfc_compose(text, strlen(text), &out, &len));
	if (!out)
		return text;
	ASSERT_LT(len, sizeof(buf));
	memcpy(buf, out, len);
	buf[len] = '\0';
	free(out);
	return buf;
}

TEST(marks_join_their_letter)
{
	EXPECT_STREQ("\u00e9", nfc("e\u0301"));
	EXPECT_STREQ("caf\u00e9s", nfc("cafe\u0301s"));
	EXPECT_STREQ("\u1ed9", nfc("o\u0323\u0302"));
	EXPECT_STREQ("\u1ed9", nfc("o\u0302\u0323"));
	EXPECT_STREQ("\u1ed9", nfc("\u00f4\u0323"));
	EXPECT_STREQ("q\u0323\u0307", nfc("q\u0307\u0323"));
	/* The first of two of a class only. */
	EXPECT_STREQ("\u00e1\u0301", nfc("a\u0301\u0301"));
	/* Not across a letter. */
	EXPECT_STREQ("ab\u0301", nfc("ab\u0301"));
	EXPECT_STREQ("\u304c", nfc("\u304b\u3099"));
	EXPECT_STREQ("\u09cb", nfc("\u09c7\u09be"));
}

TEST(some_characters_always_change)
{
	EXPECT_STREQ("\u00c5", nfc("\u212b"));
	EXPECT_STREQ("\u03a9", nfc("\u2126"));
	EXPECT_STREQ("K", nfc("\u212a"));
	EXPECT_STREQ("\u0915\u093c", nfc("\u0958"));
	EXPECT_STREQ("\u8c48", nfc("\uf900"));
	EXPECT_STREQ("\u0308\u0301", nfc("\u0344"));
	EXPECT_STREQ("\U0001d157\U0001d165", nfc("\U0001d15e"));
}

TEST(hangul_is_arithmetic)
{
	EXPECT_STREQ("\uac00", nfc("\u1100\u1161"));
	EXPECT_STREQ("\uac01", nfc("\u1100\u1161\u11a8"));
	EXPECT_STREQ("\uac01", nfc("\uac00\u11a8"));
	EXPECT_STREQ("\uac01\u11a8", nfc("\uac01\u11a8"));
	EXPECT_STREQ("\ud7a3", nfc("\u1112\u1175\u11c2"));
	EXPECT_STREQ("\u1161\u1100", nfc("\u1161\u1100"));
}

TEST(text_that_is_composed_already_is_not_copied)
{
	static const char *const texts[] = {
		"",	     "plain",
		"caf\u00e9", "\u4f60\u597d \U0001f600",
		"\u00fc",    "\ud55c\uae00",
	};
	size_t i, len;
	char *out;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		out = (char *)texts[i];
		ASSERT_EQ(0,
			  nfc_compose(texts[i], strlen(texts[i]), &out, &len));
		EXPECT_TRUE(out == NULL);
	}
}

/* ---- against unicodedata ------------------------------------------------------- */

static void hash_nfc(uint64_t *hash, const char *text, size_t len)
{
	size_t out_len, i;
	char *out;

	ASSERT_EQ(0, nfc_compose(text, len, &out, &out_len));
	if (out)
		ASSERT_LE(out_len, 3 * len);
	for (i = 0; i < (out ? out_len : len); i++)
		*hash = (*hash ^ (uint8_t)(out ? out : text)[i]) *
			0x100000001b3u;
	*hash = (*hash ^ 0xff) * 0x100000001b3u;
	free(out);
}

TEST(each_character_alone)
{
	uint64_t hash = 0xcbf29ce484222325u;
	char text[UTF8_MAX_BYTES];
	uint32_t c;

	for (c = 0; c < 0x110000; c++) {
		if (c < 0xd800 || c >= 0xe000)
			hash_nfc(&hash, text, utf8_put(c, text));
	}
	EXPECT_EQ(0x420af2407615d53u, hash);
}

static uint32_t draw(uint64_t *state, uint32_t nr)
{
	return random_next(state) % nr;
}

TEST(random_runs_of_what_changes)
{
	static const uint32_t spans[][2] = {
		{ 0x41, 0x7a },	    { 0x300, 0x36f },	  { 0x300, 0x36f },
		{ 0x1100, 0x11ff }, { 0xac00, 0xac40 },	  { 0x900, 0xdff },
		{ 0x1e00, 0x1fff }, { 0x591, 0x5ea },	  { 0x3040, 0x30ff },
		{ 0xf900, 0xfaff }, { 0x1d158, 0x1d1c0 }, { 0x11080, 0x119ff },
		{ 0xfb1d, 0xfb4f }, { 0xc0, 0x17f },
	};
	uint64_t hash = 0xcbf29ce484222325u, state = 1;
	int i;

	for (i = 0; i < 50000; i++) {
		char text[12 * UTF8_MAX_BYTES];
		uint32_t nr = 1 + draw(&state, 12);
		size_t len = 0;

		while (nr-- > 0) {
			const uint32_t *span = spans[draw(&state, 14)];
			uint32_t c =
				span[0] + draw(&state, span[1] - span[0] + 1);

			len += utf8_put(c, text + len);
		}
		hash_nfc(&hash, text, len);
	}
	EXPECT_EQ(0xbbe7f4866eb536f9u, hash);
}

/* ---- hostile ---------------------------------------------------------------------- */

/*
 * A letter and a million marks of two classes in turn: exchanging neighbours
 * would take 2^36 steps, which the time limit ends.
 */
TEST(a_million_marks_are_put_in_order)
{
	enum { NR_PAIRS = 1 << 19 };
	char *text = malloc(1 + 4 * NR_PAIRS), *out, *at;
	size_t len = 1, out_len, i;

	ASSERT_TRUE(text != NULL);
	text[0] = 'q';
	for (i = 0; i < NR_PAIRS; i++) {
		memcpy(text + len, "\u0301\u0327", 4);
		len += 4;
	}
	ASSERT_EQ(0, nfc_compose(text, len, &out, &out_len));
	ASSERT_TRUE(out != NULL);
	ASSERT_EQ(len, out_len);
	EXPECT_EQ('q', out[0]);
	at = out + 1;
	for (i = 0; i < NR_PAIRS; i++)
		ASSERT_EQ(0, memcmp(at + 2 * i, "\u0327", 2));
	at += 2 * NR_PAIRS;
	for (i = 0; i < NR_PAIRS; i++)
		ASSERT_EQ(0, memcmp(at + 2 * i, "\u0301", 2));
	free(text);
	free(out);
}

TEST_HARNESS_MAIN
