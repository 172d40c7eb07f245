/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars in GBNF (engine/grammar): what is read, what is refused and where, which texts match,
 * and random grammars against a recogniser that follows the rules as they stand.
 */
#include "tests/harness.h"

#include "tests/engine/grammar_kit.h"

/* ---- reading ------------------------------------------------------------------------ */

TEST(rules_are_read_as_they_are_written)
{
	kit_expect_rules(gbnf_read, "root ::= \"a\"", "root=(('a'))");
	kit_expect_rules(
		gbnf_read,
		"# first\nroot ::= x-1 | \"b\" y_2? # second\n\n"
		"x-1 ::=\n  \"c\"\ny_2 ::= \"d\" |\n \"e\"\n | \"f\"\n",
		"root=((x-1)|('b' y_2{0,1})); x-1=(('c')); "
		"y_2=(('d')|('e')|('f'))");
	kit_expect_rules(gbnf_read,
			 "root ::= (\n \"a\"\n \"b\" | \"c\" # no\n )* \"d\"",
			 "root=(((('a' 'b')|('c')){0,} 'd'))");
}

TEST(repetitions_bind_to_one_item)
{
	kit_expect_rules(gbnf_read,
			 "root ::= \"ab\"* \"c\"+ \"d\"{3} \"e\"{2,} "
			 "\"f\"{ 0 , 4 } \"g\"+?",
			 "root=(('ab'{0,} 'c'{1,} 'd'{3,3} 'e'{2,} 'f'{0,4} "
			 "'g'{1,}{0,1}))");
}

TEST(characters_and_escapes_are_code_points)
{
	kit_expect_rules(gbnf_read,
			 "root ::= \"\\n\\t\\r\\\\\\\"\\[\\]\\x41\\u00e9"
			 "\\U0001F600\xc3\xa9\"",
			 "root=(('<0a><09><0d>\\\"[]A<c3><a9><f0><9f><98><80>"
			 "<c3><a9>'))");
	kit_expect_rules(gbnf_read,
			 "root ::= [a-z0-9_-] [^\\\"\\\\\\x00-\\x1f]",
			 "root=(([2d-2d 30-39 5f-5f 61-7a] [20-21 23-5b "
			 "5d-d7ff e000-10ffff]))");
	kit_expect_rules(gbnf_read, "root ::= [a^] [\\]x-] [\\x41-\\x42]",
			 "root=(([5e-5e 61-61] [2d-2d 5d-5d 78-78] [41-42]))");
}

TEST(a_class_is_sorted_and_its_parts_are_apart)
{
	kit_expect_rules(gbnf_read, "root ::= [c-ea-cx] . [^^]",
			 "root=(([61-65 78-78] [0-d7ff e000-10ffff] [0-5d "
			 "5f-d7ff e000-10ffff]))");
}

TEST(what_does_not_parse_is_refused_with_its_place)
{
	static const char *const cases[][2] = {
		{ "", "line 1, column 1: there is no rule \"root\"" },
		{ "x ::= \"a\"\n",
		  "line 2, column 1: there is no rule \"root\"" },
		{ "root ::= \"a",
		  "line 1, column 10: the text has no closing '\"'" },
		{ "root ::= \"a\n\"",
		  "line 1, column 10: the text has no closing '\"'" },
		{ "root ::= [a-z",
		  "line 1, column 10: the class has no closing ']'" },
		{ "root ::= []", "line 1, column 10: the class is empty" },
		{ "root ::= [z-a]",
		  "line 1, column 11: the range goes backwards" },
		{ "root ::= (\"a\"\n",
		  "line 1, column 10: the group has no closing ')'" },
		{ "root ::= \"\xc3\xa9\xc3\xa9\" )",
		  "line 1, column 15: unexpected ')', want a part of the rule "
		  "or its end" },
		{ "root = \"a\"",
		  "line 1, column 6: unexpected '=', want \"::=\"" },
		{ "root ::= \"a\"\nroot ::= \"b\"",
		  "line 2, column 1: the rule \"root\" is defined twice" },
		{ "root ::= \"a\" *\n*",
		  "line 2, column 1: unexpected '*', want the name of a rule" },
		{ "root ::= * \"a\"",
		  "line 1, column 10: unexpected '*', want a part of the rule "
		  "or its end" },
		{ "root ::= \"a\"{,3}",
		  "line 1, column 14: unexpected ',', want a number" },
		{ "root ::= \"a\"{3,2}",
		  "line 1, column 13: at least 3 times and at most 2: the range "
		  "goes backwards" },
		{ "root ::= \"a\"{3",
		  "line 1, column 15: the grammar ends, want '}'" },
		{ "root ::= \"a\"{9999999}",
		  "line 1, column 14: a repetition of more than 1048576 times" },
		{ "root ::= \"\\q\"",
		  "line 1, column 11: unknown escape; there are \\n \\r \\t "
		  "\\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH" },
		{ "root ::= \"\\x4\"",
		  "line 1, column 14: unexpected '\"', want a hexadecimal "
		  "digit" },
		{ "root ::= \"\\uD800\"",
		  "line 1, column 11: U+D800 is no character" },
		{ "root ::= \"\\U00110000\"",
		  "line 1, column 11: U+110000 is no character" },
		{ "root ::= \"a\"\x01",
		  "line 1, column 13: a control character, want a part of the "
		  "rule or its end" },
		{ "root ::= \"\xff\"",
		  "line 1, column 11: byte 0xff is not UTF-8" },
		{ "root ::= a\n\n  a ::= b",
		  "line 3, column 9: the rule \"b\" is not defined" },
		{ "root ::= a*********",
		  "line 1, column 19: more than 8 repetitions of one item" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		kit_compile_err(gbnf_read, cases[i][0], cases[i][1]);
}

TEST(groups_that_nest_too_deep_are_refused)
{
	char text[512] = "root ::= ";

	memset(text + 9, '(', 201);
	kit_compile_err(gbnf_read, text,
			"line 1, column 210: more than 200 groups within one "
			"another");
}

/* ---- compiling ---------------------------------------------------------------------- */

TEST(rules_that_begin_with_themselves_are_refused_by_name)
{
	kit_compile_err(gbnf_read, "root ::= root \"a\" | \"b\"",
			"line 1, column 1: the rule \"root\" begins with "
			"itself: left recursion is not supported");
	kit_compile_err(gbnf_read,
			"root ::= \"x\" a\na ::= e* e? b\ne ::= \"y\"? e2\n"
			"e2 ::= \"z\"{0,2}\nb ::= \"c\" | a \"d\"",
			"line 1, column 14: the rule \"a\" begins with itself: "
			"left recursion is not supported");
	/* Behind a rule that may be empty, and not behind one that may not. */
	kit_compile_err(gbnf_read, "root ::= e root | \"x\"\ne ::= \"y\"?",
			"line 1, column 1: the rule \"root\" begins with "
			"itself: left recursion is not supported");
	grammar_destroy(kit_compile_ok(gbnf_read,
				       "root ::= b root | \"x\"\nb ::= \"y\""));
	grammar_destroy(kit_compile_ok(
		gbnf_read, "root ::= a | e \"x\" root\na ::= \"b\" a | e\n"
			   "e ::= \"\" | \"y\""));
}

TEST(a_root_without_an_end_is_refused)
{
	kit_compile_err(gbnf_read, "root ::= \"a\" b\nb ::= \"c\" b",
			"line 1, column 1: no text ends the rule \"root\"");
}

TEST(repetitions_that_explode_are_refused_with_their_place)
{
	kit_compile_err(
		gbnf_read, "root ::= \"x\" (\n \"a\"{1000}\n){1000}",
		"line 2, column 2: with its repetitions written out the "
		"grammar has more than 262144 positions, in rule "
		"\"root\"");
}

TEST(empty_repetitions_take_no_time)
{
	kit_expect(gbnf_read,
		   "root ::= ((\"\"{1000000}){1000000}){1000000} \"a\"",
		   KIT_LIST("a"), KIT_LIST("", "aa"));
}

TEST(texts_match_where_the_rules_say_so)
{
	kit_expect(gbnf_read, "root ::= \"a\" (\"b\" | \"cd\")* \"e\"?",
		   KIT_LIST("a", "ae", "abe", "acdb", "abbcde"),
		   KIT_LIST("", "e", "ac", "aee", "abc", "b"));
	kit_expect(gbnf_read, "root ::= \"a\"{2,3} \"b\"{2} \"c\"{1,}",
		   KIT_LIST("aabbc", "aaabbccc"),
		   KIT_LIST("abbc", "aaaabbc", "aabc", "aabb", "aabbbc"));
	kit_expect(gbnf_read, "root ::= \"(\" root \")\" | \"\"",
		   KIT_LIST("", "()", "((()))"), KIT_LIST("(", ")", "(()"));
	kit_expect(gbnf_read, "root ::= [\\u00e0-\\u00ff] [^a-z] .",
		   KIT_LIST("\xc3\xa9\xe2\x82\xac.", "\xc3\xbf\x41\n"),
		   KIT_LIST("e\xc3\xa9.", "\xc3\xa9q.",
			    "\xc3\xa9\xed\xa0\x80."));
}

TEST(every_character_is_itself_in_a_class)
{
	static const uint32_t edges[] = {
		0x1,	0x7f,	0x80,	0x7ff,	 0x800,	   0xfff,   0x1000,
		0xcfff, 0xd7ff, 0xe000, 0xffff,	 0x10000,  0x3ffff, 0x40000,
		0x1234, 0x5678, 0x9abc, 0xfffff, 0x100000, 0x10ffff
	};
	const uint32_t nr = sizeof(edges) / sizeof(edges[0]);

	for (uint32_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < nr; k++) {
			char text[64];
			struct grammar *g;

			if (edges[k] < edges[i])
				continue;
			snprintf(text, sizeof(text),
				 "root ::= [\\U%08x-\\U%08x]", edges[i],
				 edges[k]);
			g = kit_compile_ok(gbnf_read, text);
			for (uint32_t c = 1; c < 0x110000;
			     c += c < 0x3000 ? 61 : 1021)
				for (uint32_t d = 0; d < 3; d++) {
					uint32_t at = d ? edges[(c + d) % nr] +
								      d - 1 :
							  c;
					char bytes[5] = "";

					if (at >> 11 == 0x1b || at > 0x10ffff)
						continue;
					bytes[utf8_put(at, bytes)] = '\0';
					EXPECT_EQ(at >= edges[i] &&
							  at <= edges[k],
						  kit_accepts(g, bytes))
					{
						TH_LOG("%s: U+%04x", text, at);
					}
				}
			grammar_destroy(g);
		}
}

TEST(a_long_list_is_not_deep)
{
	struct grammar *g = kit_compile_ok(
		gbnf_read, "root ::= item\nitem ::= \"a\" item | \"b\"");
	uint32_t state = grammar_start(g), nr = 0;

	for (int i = 0; i < 100000; i++) {
		ASSERT_EQ(0, grammar_step(g, state, 'a', &state));
		if (i == 10)
			nr = grammar_nr_states(g);
	}
	EXPECT_EQ(nr, grammar_nr_states(g));
	ASSERT_EQ(0, grammar_step(g, state, 'b', &state));
	EXPECT_TRUE(grammar_accepts(g, state));
	grammar_destroy(g);
}

TEST(what_is_deeper_than_the_limit_is_not_allowed)
{
	struct grammar *g =
		kit_compile_ok(gbnf_read, "root ::= \"(\" root \")\" | \"x\"");
	uint32_t state = grammar_start(g), depth = 0, next;

	grammar_allow_work(g);
	for (;; depth++) {
		ASSERT_EQ(0, grammar_step(g, state, '(', &next));
		if (next == GRAMMAR_DEAD)
			break;
		state = next;
	}
	EXPECT_TRUE(depth > 900 && depth <= GRAMMAR_MAX_DEPTH);
	/* It can still be brought to an end. */
	ASSERT_EQ(0, grammar_step(g, state, 'x', &state));
	for (; depth; depth--)
		ASSERT_EQ(0, grammar_step(g, state, ')', &state));
	EXPECT_TRUE(grammar_accepts(g, state));
	grammar_destroy(g);
}

TEST(a_grammar_that_is_too_ambiguous_is_given_up)
{
	/* After n letters, any of the repetitions may have been left: n stacks, then n * n. */
	struct grammar *g = kit_compile_ok(
		gbnf_read, "root ::= (\"a\"{0,200} x){0,200} \"b\"\n"
			   "x ::= \"a\"{0,100}");
	uint32_t state = grammar_start(g);
	int rc = 0;

	for (int i = 0; i < 3000 && !rc; i++) {
		grammar_allow_work(g);
		rc = grammar_step(g, state, 'a', &state);
	}
	EXPECT_EQ(-E2BIG, rc);
	grammar_destroy(g);
}

TEST(work_has_a_limit_between_two_allowances)
{
	/* One more stack for every letter that may have been the one before the last 1500. */
	struct grammar *g = kit_compile_ok(
		gbnf_read, "root ::= [ab]* \"a\" [ab]{1500} \"c\"");
	uint32_t state = grammar_start(g), next;
	int rc = 0;

	grammar_allow_work(g);
	for (int i = 0; i < 1500 && !rc; i++) {
		rc = grammar_step(g, state, 'a', &next);
		if (!rc)
			state = next;
	}
	EXPECT_EQ(-E2BIG, rc);
	grammar_allow_work(g);
	EXPECT_EQ(0, grammar_step(g, state, 'a', &next));
	grammar_destroy(g);
}

/* ---- random grammars ------------------------------------------------------------------ */

enum { RANDOM_RULES = 4 };

static void random_choice(uint64_t *seed, int depth, FILE *out);

/* Rules refer to later ones, or to any behind a letter: few begin with themselves. */
static void random_item(uint64_t *seed, int depth, FILE *out)
{
	static const char *const items[] = {
		"\"a\"", "\"b\"", "\"ab\"",
		"[ab]",	 "[^a]",  "\"\xc3\xa9\"",
		".",	 "\"\"",  "[a\\u00e0-\\u00ff]",
	};
	static const char *const repeats[] = { "*",   "+",    "?",
					       "{2}", "{1,}", "{0,2}" };
	uint32_t kind = (uint32_t)kit_random(seed) % 10;

	if (kind < 2 && depth > 0) {
		fputc('(', out);
		random_choice(seed, depth - 1, out);
		fputc(')', out);
	} else if (kind < 4) {
		fprintf(out, "%sr%u", kit_random(seed) % 3 ? "\"a\" " : "",
			(uint32_t)kit_random(seed) % RANDOM_RULES);
	} else {
		fputs(items[kit_random(seed) % 9], out);
	}
	if (kit_random(seed) % 3 == 0)
		fputs(repeats[kit_random(seed) % 6], out);
	fputc(' ', out);
}

static void random_choice(uint64_t *seed, int depth, FILE *out)
{
	uint32_t nr = 1 + (uint32_t)kit_random(seed) % 3;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t nr_items = (uint32_t)kit_random(seed) % 4;

		if (i)
			fputs("| ", out);
		if (!nr_items)
			fputs("\"\" ", out);
		while (nr_items-- > 0)
			random_item(seed, depth, out);
	}
}

static char *random_grammar(uint64_t *seed)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	fputs("root ::= r0\n", out);
	for (int i = 0; i < RANDOM_RULES; i++) {
		fprintf(out, "r%d ::= ", i);
		random_choice(seed, 2, out);
		fputc('\n', out);
	}
	fclose(out);
	return text;
}

static uint32_t random_text(uint64_t *seed, char *out)
{
	static const char *const parts[] = { "a",	 "a",	 "b",	 "ab",
					     "\xc3\xa9", "\xc3", "\xa9", "c" };
	uint32_t nr = (uint32_t)kit_random(seed) % 7, len = 0;

	while (nr-- > 0) {
		const char *part = parts[kit_random(seed) % 8];

		memcpy(out + len, part, strlen(part));
		len += (uint32_t)strlen(part);
	}
	return len;
}

/*
 * Some text leads from every state to an end: nobody is led into a dead end. Searched as far as
 * the limits on states allow.
 */
static void expect_way_out(struct grammar *g, uint32_t state, const char *text)
{
	static const uint8_t bytes[] = { 'a', 'b', 'c', 0xc3, 0xa9 };
	static uint8_t seen[1 << 16];
	uint32_t queue[4096] = { state }, nr = 1;
	bool is_whole = true;

	memset(seen, 0, sizeof(seen));
	for (uint32_t at = 0; at < nr; at++) {
		if (grammar_accepts(g, queue[at]))
			return;
		for (size_t i = 0; i < sizeof(bytes); i++) {
			uint32_t next;

			grammar_allow_work(g);
			if (grammar_step(g, queue[at], bytes[i], &next) ||
			    nr == 4096)
				is_whole = false;
			else if (next != GRAMMAR_DEAD && !seen[next]) {
				seen[next] = 1;
				queue[nr++] = next;
			}
		}
	}
	ASSERT_FALSE(is_whole)
	{
		TH_LOG("no way out: %s", text);
	}
}

/* Random texts, until a limit on states is met; answers how many of them match. */
static uint32_t compare_texts(struct grammar *g, const struct ast *ast,
			      uint64_t *seed, const char *text)
{
	uint32_t nr_good = 0;

	for (int i = 0; i < 40; i++) {
		char bytes[PLAIN_MAX_BYTES];
		uint32_t len = random_text(seed, bytes);
		uint32_t state = grammar_start(g);
		bool want = plain_accepts(ast, bytes, len);
		int rc = 0;

		grammar_allow_work(g);
		for (uint32_t k = 0; k < len && !rc; k++)
			rc = grammar_step(g, state, (uint8_t)bytes[k], &state);
		if (rc == -E2BIG)
			break;
		ASSERT_EQ(0, rc);
		nr_good += want;
		ASSERT_EQ(want, grammar_accepts(g, state))
		{
			TH_LOG("%.*s in %s", (int)len, bytes, text);
		}
		if (state != GRAMMAR_DEAD)
			expect_way_out(g, state, text);
	}
	return nr_good;
}

TEST_TIMEOUT(random_grammars_match_what_a_plain_recogniser_matches, 120)
{
	uint64_t seed = 11;
	uint32_t nr_compiled = 0, nr_good = 0;

	for (int round = 0; round < 600; round++) {
		char *text = random_grammar(&seed), err[256];
		struct grammar *g = NULL;
		struct ast ast;

		ASSERT_EQ(0,
			  gbnf_read(text, strlen(text), &ast, err, sizeof(err)))
		{
			TH_LOG("%s: %s", text, err);
		}
		if (!grammar_compile(&ast, &g, err, sizeof(err))) {
			nr_compiled++;
			nr_good += compare_texts(g, &ast, &seed, text);
		}
		grammar_destroy(g);
		ast_deinit(&ast);
		free(text);
	}
	/* Both happen often. */
	EXPECT_TRUE(nr_compiled > 300);
	EXPECT_TRUE(nr_good > 1000);
	TH_LOG("%u grammars, %u texts that match", nr_compiled, nr_good);
}

TEST_HARNESS_MAIN
