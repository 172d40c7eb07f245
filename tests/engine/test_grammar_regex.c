/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions and choices as grammars: which texts match, what is refused and where, and
 * random expressions against PCRE2.
 */
#include "tests/harness.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/grammar/regex.h"
#include "tests/engine/grammar_kit.h"

TEST(texts_match_as_a_whole)
{
	kit_expect(regex_read, "a|bc", KIT_LIST("a", "bc"),
		   KIT_LIST("", "ab", "abc", "xa"));
	kit_expect(regex_read, "^(yes|no)$", KIT_LIST("yes", "no"),
		   KIT_LIST("", "yesno", "yes "));
	kit_expect(regex_read, "^a$|^b|c$", KIT_LIST("a", "b", "c"),
		   KIT_LIST("", "ab"));
	kit_expect(regex_read, "", KIT_LIST(""), KIT_LIST("a"));
	kit_expect(regex_read, "(?:ab){2,3}?c{0}d{1,}e{,2}",
		   KIT_LIST("ababd", "abababddee"),
		   KIT_LIST("abd", "ababcd", "ababdeee"));
	kit_expect(regex_read, "(?P<y>\\d{4})-(?<m>\\d\\d)",
		   KIT_LIST("2024-07"), KIT_LIST("2024-7", "x024-07"));
}

TEST(classes_and_escapes_are_what_they_say)
{
	kit_expect(regex_read, "[\\w.-]+@[^@\\s]+",
		   KIT_LIST("a.b-c@d", "_1@\xc3\xa9"),
		   KIT_LIST("@d", "a@", "a@ b", "\xc3\xa9@x"));
	kit_expect(regex_read, "\\x41\\u00e9\\u{1F600}\\.\\n\\/",
		   KIT_LIST("A\xc3\xa9\xf0\x9f\x98\x80.\n/"),
		   KIT_LIST("A\xc3\xa9\xf0\x9f\x98\x80x\n/"));
	kit_expect(regex_read, "[^\\D5]\\S\\W.",
		   KIT_LIST("1x-y", "9- \xc3\xa9"),
		   KIT_LIST("5x-y", "1 -y", "1xay", "1x-\n"));
	kit_expect(regex_read, "[a\\-z][\\]x-]{x}", KIT_LIST("-]{x}", "a-{x}"),
		   KIT_LIST("b]{x}", "aa{x}"));
	kit_expect(regex_read, "[\xc3\xa0-\xc3\xbf]\\\\",
		   KIT_LIST("\xc3\xa9\\"), KIT_LIST("e\\"));
}

TEST(what_an_automaton_cannot_do_is_refused_by_name)
{
	static const char *const cases[][2] = {
		{ "(a)\\1",
		  "line 1, column 4: back references are not supported" },
		{ "(?P=x)",
		  "line 1, column 1: back references are not supported" },
		{ "\xc3\xa9(?=x)",
		  "line 1, column 2: look-ahead is not supported" },
		{ "a(?!x)", "line 1, column 2: look-ahead is not supported" },
		{ "(?<=x)", "line 1, column 1: look-behind is not supported" },
		{ "(?<!x)", "line 1, column 1: look-behind is not supported" },
		{ "(?>x)",
		  "line 1, column 1: atomic groups are not supported" },
		{ "(?i)x", "line 1, column 1: flags are not supported" },
		{ "a\\b", "line 1, column 2: the anchor \\b is not supported; "
			  "^ and $ at the ends are" },
		{ "\\p{L}", "line 1, column 1: Unicode properties (\\p) are "
			    "not supported" },
		{ "\\q", "line 1, column 1: the escape \\q is not supported" },
		{ "a\\", "line 1, column 2: the expression ends in a "
			 "backslash" },
		{ "a^b", "line 1, column 2: the anchor '^' is not at an end of "
			 "the expression" },
		{ "(a$)b", "line 1, column 3: the anchor '$' is not at an end "
			   "of the expression" },
		{ "a*+", "line 1, column 2: possessive repetitions are not "
			 "supported" },
		{ "*a", "line 1, column 1: '*' has nothing to repeat" },
		{ "a**", "line 1, column 3: '*' has nothing to repeat" },
		{ "a{3,2}", "line 1, column 2: the range goes backwards" },
		{ "a{9999999}", "line 1, column 2: a repetition of more than "
				"1048576 times" },
		{ "(a", "line 1, column 1: the group has no closing ')'" },
		{ "a)", "line 1, column 2: ')' closes no group" },
		{ "[a", "line 1, column 1: the class has no closing ']'" },
		{ "[]", "line 1, column 1: the class is empty; write \\] for "
			"the bracket" },
		{ "[z-a]", "line 1, column 2: the range goes backwards" },
		{ "[a-\\d]", "line 1, column 2: a range that ends in a class" },
		{ "[[:alpha:]]",
		  "line 1, column 2: POSIX classes are not supported" },
		{ "\\xg", "line 1, column 3: want 2 hexadecimal digits" },
		{ "\\ud800", "line 1, column 3: U+D800 is no character" },
		{ "\xff", "line 1, column 1: byte 0xff is not UTF-8" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		kit_compile_err(regex_read, cases[i][0], cases[i][1]);
}

/* ---- within JSON strings -------------------------------------------------------------- */

static int read_in_json(const char *text, size_t len, struct ast *ast,
			char *err, size_t errlen)
{
	struct ast_node *body;
	int rc;

	ast_init(ast, text, len);
	ast->root = ast_rule_id(ast, "root", 4, 0);
	rc = regex_build(ast, text, len, REGEX_IN_JSON, &body, err, errlen);
	ast->rules[ast->root].body = body;
	return rc;
}

TEST(in_json_an_expression_is_searched_for_and_escaped)
{
	kit_expect(read_in_json, "^a.c$",
		   KIT_LIST("abc", "a\\\"c", "a\\\\c", "a\\tc",
			    "a\xc3\xa9"
			    "c"),
		   KIT_LIST("a\"c", "a\\c", "a\nc", "xabc", "a\\nc"));
	kit_expect(read_in_json, "b+", KIT_LIST("b", "abbc", "\\n\\\"b"),
		   KIT_LIST("", "ac", "\"b", "b\\"));
	kit_expect(read_in_json, "^\"|\\n$", KIT_LIST("\\\"x", "x\\n"),
		   KIT_LIST("\"x", "x\\\"", "x\n"));
}

/* ---- choices -------------------------------------------------------------------------- */

TEST(a_choice_is_one_of_its_texts)
{
	kit_expect(choice_read, "[\"yes\", \"no\", \"no way\", \"\\u00e9\"]",
		   KIT_LIST("yes", "no", "no way", "\xc3\xa9"),
		   KIT_LIST("", "noo", "yesno", "no "));
	kit_compile_err(choice_read, "[]",
			"the choices must be an array of strings, not empty");
	kit_compile_err(choice_read, "[\"a\", 3]", "choice 1 is not a string");
}

/* ---- against PCRE2 ---------------------------------------------------------------------- */

static void random_regex(uint64_t *seed, int depth, FILE *out)
{
	static const char *const atoms[] = {
		"a",   "b",	 "ab",	"[ab]",	    "[^a]",
		"\\d", "\\w",	 ".",	"\xc3\xa9", "[a-c\xc3\xa9]",
		"\\s", "[^\\w]", "\\.",
	};
	static const char *const repeats[] = { "*",	"+",	 "?", "{2}",
					       "{1,3}", "{0,2}", "*?" };
	uint32_t nr = (uint32_t)kit_random(seed) % 4;

	for (uint32_t i = 0; i < nr; i++) {
		if (i && kit_random(seed) % 4 == 0)
			fputc('|', out);
		if (depth && kit_random(seed) % 4 == 0) {
			fputs(kit_random(seed) % 2 ? "(" : "(?:", out);
			random_regex(seed, depth - 1, out);
			fputc(')', out);
		} else {
			fputs(atoms[kit_random(seed) % 13], out);
		}
		if (kit_random(seed) % 3 == 0)
			fputs(repeats[kit_random(seed) % 7], out);
	}
}

static uint32_t random_subject(uint64_t *seed, char *out)
{
	static const char *const parts[] = { "a", "b", "c", "\xc3\xa9",
					     "1", ".", " ", "\n" };
	uint32_t nr = (uint32_t)kit_random(seed) % 7, len = 0;

	while (nr-- > 0) {
		const char *part = parts[kit_random(seed) % 8];

		memcpy(out + len, part, strlen(part));
		len += (uint32_t)strlen(part);
	}
	return len;
}

/* Answers how many texts match. */
static uint32_t compare_texts(const char *regex, pcre2_code *code,
			      uint64_t *seed)
{
	pcre2_match_data *data = pcre2_match_data_create(1, NULL);
	struct grammar *g = kit_compile_ok(regex_read, regex);
	uint32_t nr_good = 0;

	for (int i = 0; i < 40; i++) {
		char text[32];
		uint32_t len = random_subject(seed, text);
		bool want = pcre2_match(code, (PCRE2_SPTR)text, len, 0, 0, data,
					NULL) >= 0;

		nr_good += want;
		EXPECT_EQ(want, grammar_accepts(g, kit_run(g, text, len)))
		{
			TH_LOG("%s: \"%.*s\"", regex, (int)len, text);
		}
	}
	grammar_destroy(g);
	pcre2_match_data_free(data);
	return nr_good;
}

TEST(random_expressions_match_what_pcre2_matches)
{
	uint32_t nr_good = 0;
	uint64_t seed = 3;

	for (int round = 0; round < 500; round++) {
		char *regex = NULL;
		size_t len, where;
		FILE *out = open_memstream(&regex, &len);
		pcre2_code *code;
		int error;

		random_regex(&seed, 2, out);
		fclose(out);
		code = pcre2_compile((PCRE2_SPTR)regex, len,
				     PCRE2_UTF | PCRE2_ANCHORED |
					     PCRE2_ENDANCHORED,
				     &error, &where, NULL);
		ASSERT_TRUE(code != NULL);
		nr_good += compare_texts(regex, code, &seed);
		pcre2_code_free(code);
		free(regex);
	}
	EXPECT_TRUE(nr_good > 500);
}

TEST_HARNESS_MAIN
