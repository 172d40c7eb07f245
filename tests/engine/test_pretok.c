/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where pre-tokenizers cut, to read; test_pretok_golden.c has thousands more.
 * The expected pieces are those of the public tokenizer library that
 * tests/data/make_pretok_golden.py uses: ids hide a wrong cut wherever no
 * token of the vocabulary spans it, as they do for the characters younger than
 * Unicode 14.
 */
#include "engine/token/pretok.h"
#include "tests/harness.h"

enum {
	NR_NAMES = 4,
};

static const char *const names[NR_NAMES] = {
	"smollm",
	"gpt-2",
	"llama-bpe",
	"default",
};

/* A text, and its pieces with '|' between under each of the names. */
struct cuts {
	const char *text;
	const char *pieces[NR_NAMES];
};

/* clang-format off */
static const struct cuts cuts[] = {
	{
		"It's we'LL we'd  go",
		{ "It|'s| we|'|LL| we|'d| | go",
		  "It|'s| we|'|LL| we|'d| | go",
		  "It|'s| we|'LL| we|'d| | go",
		  "It|'|s| we|'|LL| we|'|d| | go" },
	},
	{
		"a1b22 333 4444 55555",
		{ "a|1|b|2|2| |3|3|3| |4|4|4|4| |5|5|5|5|5",
		  "a|1|b|22| 333| 4444| 55555",
		  "a|1|b|22| |333| |444|4| |555|55",
		  "a|1|b|22| |333| |444|4| |555|55" },
	},
	{
		"x  \n\n  y \t z",
		{ "x|  \n\n | y| \t| z",
		  "x|  \n\n | y| \t| z",
		  "x|  \n\n| | y| \t| z",
		  "x|  \n\n | y| \t| z" },
	},
	{
		"(a)==b; c+=1 $5",
		{ "(|a|)==|b|;| c|+=|1| $|5",
		  "(|a|)==|b|;| c|+=|1| $|5",
		  "(a|)==|b|;| c|+=|1| $|5",
		  "(|a|)==|b|;| c|+=|1| |$|5" },
	},
	{
		"a\u180eb \u180e",
		{ "a|\u180e|b| \u180e",
		  "a|\u180e|b| \u180e",
		  "a|\u180eb| \u180e",
		  "a|\u180e|b| \u180e" },
	},
	{
		"\U00010d4aa.\U00010d4a",
		{ "\U00010d4aa|.|\U00010d4a",
		  "\U00010d4aa|.|\U00010d4a",
		  "\U00010d4aa|.\U00010d4a",
		  "\U00010d4aa|.|\U00010d4a" },
	},
	{
		"1\U00010d402 \U00010d40x",
		{ "1|\U00010d40|2| |\U00010d40|x",
		  "1\U00010d402| \U00010d40|x",
		  "1\U00010d402| |\U00010d40|x",
		  "1\U00010d402| |\U00010d40|x" },
	},
	{
		"a\U00011b00b \U00011b00.",
		{ "a|\U00011b00|b| \U00011b00.",
		  "a|\U00011b00|b| \U00011b00.",
		  "a|\U00011b00b| \U00011b00.",
		  "a|\U00011b00|b| |\U00011b00." },
	},
	{
		"\u00e9\u0301x e\u0301",
		{ "\u00e9|\u0301|x| e|\u0301",
		  "\u00e9|\u0301|x| e|\u0301",
		  "\u00e9|\u0301x| e|\u0301",
		  "\u00e9|\u0301|x| e|\u0301" },
	},
	{
		"!!\r\nb \r\n c",
		{ "!!|\r|\n|b| \r\n| c",
		  "!!|\r|\n|b| \r\n| c",
		  "!!\r\n|b| \r\n| c",
		  "!!|\r|\n|b| \r\n| c" },
	},
	{
		"'S it'\u017f",
		{ "'|S| it|'|\u017f",
		  "'|S| it|'|\u017f",
		  "'S| it|'\u017f",
		  "'|S| it|'|\u017f" },
	},
	{
		"\u00bd\u2167x 1\u00b2",
		{ "\u00bd|\u2167|x| |1|\u00b2",
		  "\u00bd\u2167|x| 1\u00b2",
		  "\u00bd\u2167|x| |1\u00b2",
		  "\u00bd\u2167|x| |1\u00b2" },
	},
	{
		"\u3000a\u3000\u3000b\302\205c",
		{ "\u3000|a|\u3000|\u3000|b|\302\205|c",
		  "\u3000|a|\u3000|\u3000|b|\302\205|c",
		  "\u3000a|\u3000|\u3000b|\302\205c",
		  "\u3000|a|\u3000|\u3000|b|\302\205|c" },
	},
	{
		"\u4f60\u597d,\u4e16\u754c 12",
		{ "\u4f60\u597d|,|\u4e16\u754c| |1|2",
		  "\u4f60\u597d|,|\u4e16\u754c| 12",
		  "\u4f60\u597d|,\u4e16\u754c| |12",
		  "\u4f60\u597d|,|\u4e16\u754c| |12" },
	},
};
/* clang-format on */

/* What sets the others apart; where files elsewhere are cut otherwise, this is why. */
struct own_cut {
	const char *name, *text, *pieces;
};

/* clang-format off */
static const struct own_cut own_cuts[] = {
	{ "qwen2", "It'S 123 we'\u017f", "It|'S| |1|2|3| we|'\u017f" },
	/* Marks go with letters. */
	{ "qwen35", "\u0e01\u0e49\u0e32 \u0928\u092e\u0938\u094d\u0924\u0947",
	  "\u0e01\u0e49\u0e32| \u0928\u092e\u0938\u094d\u0924\u0947" },
	{ "qwen2", "\u0e01\u0e49\u0e32", "\u0e01|\u0e49\u0e32" },
	/* Case counts in every script. */
	{ "gpt-4o", "camelCase HTTPServer\u00c9cole DON'T",
	  "camel|Case| HTTPServer|\u00c9cole| DON'T" },
	{ "gpt-4o", "!\n/\n//a", "!\n/\n//|a" },
	{ "gpt-4o", "a//\n b\u0301 1234", "a|//\n| b\u0301| |123|4" },
	{ "tekken", "camelCase DON'T 123", "camel|Case| DON|'T| |1|2|3" },
	{ "pixtral", "camelCase", "camel|Case" },
	{ "kimi-k2", "HelloWorld\u4e2d\u6587ABc \u3007\u4e00 it's",
	  "Hello|World|\u4e2d\u6587|ABc| |\u3007\u4e00| it's" },
	/* A sign of Han's after another sign is no run of Han. */
	{ "kimi-k2", "\u2e80a!\u2e80\u4e00", "\u2e80|a|!\u2e80|\u4e00" },
	{ "deepseek-v3", "x.foo(12345) \u4e2d\u6587\u304b\u306ab \u00a3\u0e01\u0e49",
	  "x|.foo|(|123|45|)| |\u4e2d\u6587\u304b\u306a|b| \u00a3|\u0e01\u0e49" },
	{ "deepseek-coder", "  if x1 == 22:\n\t\u4e2d\u6587",
	  " | if| x|1| == |2|2|:|\n|\t|\u4e2d\u6587" },
	/* Digits one by one; ASCII letters are among the signs as well. */
	{ "deepseek-llm", "\u00e9t\u00e9 2024 \u4e2d\u6587   \u4e2d",
	  "\u00e9|t|\u00e9| |2|0|2|4| |\u4e2d\u6587|   |\u4e2d" },
	/* U+00F2 is c3 b2, and b2 alone a superscript two. */
	{ "falcon", "r\u00f2 2024, x`y", "r\xc3|\xb2| |202|4|,| x|`|y" },
	{ "bloom", "Hi, you  (there) 12", "Hi|,| you|  (|there|)| 12" },
	{ "viking", "Hi 12", "Hi| |1|2" },
};
/* clang-format on */

struct joined {
	char text[256];
	size_t len;
};

static int join_piece(void *owner, const char *piece, size_t len)
{
	struct joined *joined = owner;

	if (joined->len + len + 2 > sizeof(joined->text))
		return -ENOSPC;
	if (joined->len)
		joined->text[joined->len++] = '|';
	memcpy(joined->text + joined->len, piece, len);
	joined->len += len;
	joined->text[joined->len] = '\0';
	return 0;
}

TEST(pieces_are_those_of_the_public_library)
{
	struct pretok_scratch *scratch = pretok_scratch_create();
	size_t name, i;

	ASSERT_TRUE(scratch != NULL);
	for (name = 0; name < NR_NAMES; name++) {
		struct pretok *pretok;
		char err[128];

		ASSERT_EQ(0, pretok_create(names[name], strlen(names[name]),
					   &pretok, err, sizeof(err)));
		for (i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
			struct joined joined = { .len = 0 };

			EXPECT_EQ(0, pretok_split(pretok, scratch, cuts[i].text,
						  strlen(cuts[i].text),
						  join_piece, &joined));
			EXPECT_STREQ(cuts[i].pieces[name], joined.text)
			{
				TH_LOG("%s, text %zu", names[name], i);
			}
		}
		pretok_destroy(pretok);
	}
	pretok_scratch_destroy(scratch);
}

TEST(own_pieces_are_those_of_the_public_library)
{
	struct pretok_scratch *scratch = pretok_scratch_create();
	size_t i;

	ASSERT_TRUE(scratch != NULL);
	for (i = 0; i < sizeof(own_cuts) / sizeof(own_cuts[0]); i++) {
		const struct own_cut *cut = &own_cuts[i];
		struct joined joined = { .len = 0 };
		struct pretok *pretok;
		char err[128];

		ASSERT_EQ(0, pretok_create(cut->name, strlen(cut->name),
					   &pretok, err, sizeof(err)));
		EXPECT_EQ(0,
			  pretok_split(pretok, scratch, cut->text,
				       strlen(cut->text), join_piece, &joined));
		EXPECT_STREQ(cut->pieces, joined.text)
		{
			TH_LOG("%s, %s", cut->name, cut->text);
		}
		pretok_destroy(pretok);
	}
	pretok_scratch_destroy(scratch);
}

TEST(aliases_cut_as_their_names_do)
{
	static const char *const pairs[][2] = {
		{ "llama3", "llama-bpe" },  { "llama-v3", "llama-bpe" },
		{ "falcon3", "llama-bpe" }, { "starcoder", "smollm" },
		{ "refact", "smollm" },	    { "glm4", "chatglm-bpe" },
		{ "phi-2", "gpt-2" },	    { "olmo", "mpt" },
	};
	static const char text[] = "It's WE'LL 1234  \n\n x";
	struct pretok_scratch *scratch = pretok_scratch_create();
	size_t i, k;

	ASSERT_TRUE(scratch != NULL);
	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct joined joined[2] = { { .len = 0 }, { .len = 0 } };
		unsigned int flags[2];

		for (k = 0; k < 2; k++) {
			struct pretok *pretok;
			char err[128];

			ASSERT_EQ(0, pretok_create(pairs[i][k],
						   strlen(pairs[i][k]), &pretok,
						   err, sizeof(err)));
			flags[k] = pretok_flags(pretok);
			EXPECT_EQ(0, pretok_split(pretok, scratch, text,
						  strlen(text), join_piece,
						  &joined[k]));
			pretok_destroy(pretok);
		}
		EXPECT_STREQ(joined[1].text, joined[0].text);
		EXPECT_EQ(flags[1], flags[0]);
	}
	pretok_scratch_destroy(scratch);
}

TEST(an_empty_text_has_no_pieces)
{
	struct pretok_scratch *scratch = pretok_scratch_create();
	struct joined joined = { .len = 0 };
	struct pretok *pretok;
	char err[128];

	ASSERT_EQ(0, pretok_create("default", 7, &pretok, err, sizeof(err)));
	EXPECT_EQ(0, pretok_split(pretok, scratch, "", 0, join_piece, &joined));
	EXPECT_EQ(0, joined.len);
	pretok_destroy(pretok);
	pretok_scratch_destroy(scratch);
}

TEST_HARNESS_MAIN
