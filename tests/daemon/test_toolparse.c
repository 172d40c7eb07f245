/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: tool calls in a model's text: each family's form, what only
 * looks like it, and that the borders of the pieces do not show.
 */
#include <stdio.h>

#include "daemon/toolparse.h"
#include "tests/harness.h"

static const char known[] = "f\0get_weather\0";

/* What came out as one text: content as it stands, calls as "«number name arguments»". */
static void note(struct text *all, const struct toolparse_out *out)
{
	for (uint32_t i = 0; i < out->nr_events; i++) {
		const struct toolparse_event *event = &out->events[i];
		char begin[16];

		snprintf(begin, sizeof(begin), "\xc2\xab%u ", event->call);
		if (event->kind == TOOLPARSE_BEGIN)
			ASSERT_EQ(0, text_append(all, begin, strlen(begin)));
		if (event->kind == TOOLPARSE_ARGUMENTS)
			ASSERT_EQ(0, text_append(all, " ", 1));
		ASSERT_EQ(0, text_append(all, out->text.bytes + event->at,
					 event->len));
		if (event->kind == TOOLPARSE_END)
			ASSERT_EQ(0, text_append(all, "\xc2\xbb", 2));
	}
}

/* In pieces of @first bytes, then of @step: malloc'ed. */
static char *parse(enum tool_format format, bool only_first, const char *text,
		   size_t len, size_t first, size_t step)
{
	struct toolparse_out out = { 0 };
	struct toolparse parse;
	struct text all = { 0 };
	size_t piece = first;

	toolparse_init(&parse, format, known, only_first);
	for (size_t at = 0; at < len; at += piece, piece = step) {
		if (piece > len - at)
			piece = len - at;
		out.nr_events = 0;
		out.text.len = 0;
		ASSERT_EQ(0, toolparse_push(&parse, text + at, piece, &out));
		note(&all, &out);
	}
	out.nr_events = 0;
	out.text.len = 0;
	ASSERT_EQ(0, toolparse_finish(&parse, &out));
	note(&all, &out);
	ASSERT_EQ(0, text_append(&all, "", 1));
	toolparse_out_deinit(&out);
	toolparse_deinit(&parse);
	return all.bytes;
}

/* Whole, byte by byte, and in every two pieces. */
static void expect_all(enum tool_format format, bool only_first,
		       const char *want, const char *text)
{
	const size_t len = strlen(text);

	for (size_t cut = 1; cut <= len + 1; cut++) {
		const size_t step = cut <= len ? len : 1;
		char *got = parse(format, only_first, text, len,
				  cut <= len ? cut : 1, step);
		const bool is_same = strcmp(want, got) == 0;

		EXPECT_TRUE(is_same)
		{
			TH_LOG("cut at %zu of %zu: \"%s\" is not \"%s\"", cut,
			       len, got, want);
		}
		free(got);
		if (!is_same)
			return;
	}
}

#define expect_hermes(...) expect_all(TOOL_FORMAT_HERMES, false, __VA_ARGS__)
#define expect_llama(...) expect_all(TOOL_FORMAT_LLAMA, false, __VA_ARGS__)
#define expect_mistral(...) expect_all(TOOL_FORMAT_MISTRAL, false, __VA_ARGS__)
#define expect_function(...) \
	expect_all(TOOL_FORMAT_FUNCTION, false, __VA_ARGS__)
#define expect_json(...) expect_all(TOOL_FORMAT_JSON, false, __VA_ARGS__)

/* Nothing but content. */
#define expect_same(format, text) expect_all(format, false, text, text)

/* ---- Hermes and Qwen -------------------------------------------------------------- */

TEST(a_call_between_markers)
{
	expect_hermes(
		"«0 f {\"a\": 1}»",
		"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>");
	expect_hermes(
		"«0 f {}»",
		"<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>");
	/* A tool that is not there is for the client to refuse. */
	expect_hermes(
		"«0 other {}»",
		"<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>");
}

TEST(text_before_and_behind_stays)
{
	expect_hermes(
		"Let me look.«0 f {}» Done. ",
		"Let me look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n"
		"</tool_call> Done. ");
	expect_hermes(
		"«0 f {}»",
		"\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n\n");
	expect_same(TOOL_FORMAT_HERMES, " \n an answer  \n");
	expect_same(TOOL_FORMAT_HERMES, "");
	expect_same(TOOL_FORMAT_HERMES, " \n ");
}

TEST(calls_follow_each_other)
{
	expect_hermes(
		"«0 f {\"n\":1}»«1 g {\"n\":2}»",
		"<tool_call>\n{\"name\":\"f\",\"arguments\":{\"n\":1}}\n</tool_call>\n"
		"<tool_call>\n{\"name\":\"g\",\"arguments\":{\"n\":2}}\n</tool_call>");
	expect_hermes(
		"«0 f {}»and«1 f {}»",
		"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>and"
		"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
	expect_hermes("«0 f {}»«1 g {}»",
		      "<tool_call>[{\"name\":\"f\",\"arguments\":{}},"
		      "{\"name\":\"g\",\"arguments\":{}}]</tool_call>");
	expect_all(TOOL_FORMAT_HERMES, true, "«0 f {}»",
		   "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
		   "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>");
}

TEST(arguments_come_as_they_were_written)
{
	expect_hermes(
		"«0 f { \"a\" :1.0e5 ,\"b\":[ ], \"n\": 123456789012345678901234 }»",
		"<tool_call>{\"name\":\"f\",\"arguments\":{ \"a\" :1.0e5 ,\"b\":[ ], \"n\": "
		"123456789012345678901234 } }</tool_call>");
	expect_hermes(
		"«0 f {\"a\":{\"b\":[{\"c\":{}}]},\"s\":\"}]{[\\\"\\\\\"}»",
		"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":{\"b\":[{\"c\":{}}]},"
		"\"s\":\"}]{[\\\"\\\\\"}}</tool_call>");
	expect_hermes(
		"«0 f {\"s\":\"\\u00e9\\ud83d\\ude00\\u0000 \xc3\xa9 \\n\"}»",
		"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"\\u00e9\\ud83d\\ude00"
		"\\u0000 \xc3\xa9 \\n\"}}</tool_call>");
	expect_hermes(
		"«0 f {\"s\":\"</tool_call><tool_call>\"}»",
		"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>"
		"<tool_call>\"}}</tool_call>");
	expect_hermes(
		"«0 f {\"arguments\":{\"name\":\"g\"}}»",
		"<tool_call>{\"name\":\"f\",\"id\":{\"arguments\":{}},"
		"\"arguments\":{\"arguments\":{\"name\":\"g\"}}}</tool_call>");
}

TEST(arguments_in_quotes_and_none)
{
	expect_hermes(
		"«0 f {\"a\": \"b\"}»",
		"<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"b\\\"}\"}"
		"</tool_call>");
	expect_hermes("«0 f {}»", "<tool_call>{\"name\":\"f\"}</tool_call>");
	expect_hermes(
		"«0 f {}»",
		"<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>");
}

TEST(what_is_broken_comes_out_whole)
{
	static const char *const texts[] = {
		"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call>",
		"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>",
		"<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>",
		"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
		"<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
		"<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
		"<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
		"<tool_call>{\"arguments\": {}}</tool_call>",
		"<tool_call>{'name': 'f', 'arguments': {}}</tool_call>",
		"<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"\\ud83d\"}}</tool_call>",
		"<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\nb\"}}</tool_call>",
		"<tool_call>[]</tool_call>",
		"<tool_call>[{\"name\": \"f\", \"arguments\": {}}, 1]</tool_call>",
		"before \n<tool_call>f(1)</tool_call> behind",
		"<tool_call></tool_call>",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		expect_same(TOOL_FORMAT_HERMES, texts[i]);
	/* A good one behind it is found all the same. */
	expect_hermes(
		"<tool_call>{\"name\": {</tool_call>«0 f {}»",
		"<tool_call>{\"name\": {</tool_call> \n<tool_call>{\"name\":\"f\"}"
		"</tool_call>");
	expect_hermes("<tool_call>{\"name\": \"f«0 f {}»",
		      "<tool_call>{\"name\": \"f\n<tool_call>{\"name\":\"f\"}");
}

TEST(an_end_without_the_closing_marker)
{
	expect_hermes(
		"«0 f {\"a\":1}»",
		"<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n");
	expect_hermes("«0 f {}»</tool_",
		      "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_");
	expect_hermes(
		"«0 f {}»«1 f {}»",
		"<tool_call>{\"name\":\"f\"}\n<tool_call>{\"name\":\"f\"}");
	expect_same(TOOL_FORMAT_HERMES,
		    "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}");
	expect_same(TOOL_FORMAT_HERMES, "text \n<tool_call>\n{\"name\":\"f");
	expect_same(TOOL_FORMAT_HERMES, "<tool_call>");
	expect_same(TOOL_FORMAT_HERMES, "<tool_call> \n");
}

TEST(look_alikes_are_content)
{
	expect_same(TOOL_FORMAT_HERMES, "a < b, <tool>, <tool_call, <tool_cal");
	expect_same(TOOL_FORMAT_HERMES, "<<tool_call");
	expect_same(TOOL_FORMAT_HERMES, "the tag <tool_call> begins a call");
	expect_same(TOOL_FORMAT_HERMES, "{\"name\": \"f\", \"arguments\": {}}");
	expect_same(TOOL_FORMAT_HERMES, "</tool_call>");
	expect_same(TOOL_FORMAT_HERMES, "[TOOL_CALLS][]<|python_tag|>{}");
	expect_same(TOOL_FORMAT_NONE,
		    "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
}

/* White space is held back only so far, however it comes. */
TEST(long_white_space_is_content)
{
	char blank[201], text[400], want[400];

	memset(blank, ' ', 200);
	blank[200] = '\0';
	snprintf(text, sizeof(text), "a%s<tool_call>{\"name\":\"f\"}", blank);
	snprintf(want, sizeof(want), "a%.136s«0 f {}»", blank);
	expect_hermes(want, text);
	snprintf(text, sizeof(text),
		 "<tool_call>{\"name\":\"f\"}%s</tool_call>", blank);
	snprintf(want, sizeof(want), "«0 f {}»%s</tool_call>", blank);
	expect_hermes(want, text);
	snprintf(text, sizeof(text),
		 "<tool_call>%s%.56s{\"name\":\"f\"}</tool_call>", blank,
		 blank);
	expect_hermes("«0 f {}»", text);
	snprintf(text, sizeof(text),
		 "<tool_call>%s%.57s{\"name\":\"f\"}</tool_call>", blank,
		 blank);
	expect_same(TOOL_FORMAT_HERMES, text);
	snprintf(text, sizeof(text), "%s{\"name\":\"f\",\"parameters\":{}}",
		 blank);
	expect_same(TOOL_FORMAT_LLAMA, text);
}

/* ---- Llama 3 ------------------------------------------------------------------------ */

TEST(llama_calls_by_tag_or_bare)
{
	expect_llama("«0 f {\"a\": \"}\"}»",
		     "{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}");
	expect_llama(
		"«0 get_weather {}»",
		"\n {\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {}}");
	expect_llama("«0 f {}»",
		     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}");
	expect_llama(
		"Now:«0 f {}»",
		"Now:\n<|python_tag|>{\"name\": \"f\", \"arguments\": {}}");
	expect_llama(
		"«0 f {}»«1 get_weather {\"c\":1}»",
		"{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_weather\", "
		"\"parameters\": {\"c\":1}}");
	expect_llama("«0 f {}»; so",
		     "{\"name\": \"f\", \"parameters\": {}}; so");
}

TEST(llama_json_that_calls_nothing_is_content)
{
	expect_same(TOOL_FORMAT_LLAMA, "{\"name\": \"x\", \"parameters\": {}}");
	expect_same(TOOL_FORMAT_LLAMA, "{\"name\": \"f\"}");
	expect_same(TOOL_FORMAT_LLAMA, "{\"a\": {\"b\": 1}} and more");
	expect_same(TOOL_FORMAT_LLAMA, "{\"name\": \"f\", \"parameters\": {");
	expect_same(TOOL_FORMAT_LLAMA, "{}");
	expect_same(TOOL_FORMAT_LLAMA,
		    "So: {\"name\": \"f\", \"parameters\": {}}");
	expect_same(TOOL_FORMAT_LLAMA,
		    "[{\"name\": \"f\", \"parameters\": {}}]");
	expect_same(TOOL_FORMAT_LLAMA, "<|python_tag|>brave.call(query=\"x\")");
	expect_llama(
		"«0 f {}»; {\"name\": \"x\", \"parameters\": {}}",
		"{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"x\", \"parameters\": {}}");
}

/* ---- Mistral ------------------------------------------------------------------------- */

TEST(mistral_calls_in_an_array)
{
	expect_mistral(
		"«0 f {\"a\": [1]}»",
		"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}}]");
	expect_mistral(
		"Hm.«0 f {}»«1 g {\"s\":\"]\"}»",
		"Hm. [TOOL_CALLS] [ {\"name\": \"f\", \"arguments\": {}, \"id\": \"x\"} , "
		"{\"arguments\": {\"s\":\"]\"}, \"name\": \"g\"} ]");
	expect_all(
		TOOL_FORMAT_MISTRAL, true, "«0 f {}»",
		"[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": \"g\", \"arguments\": {}}]");
	expect_same(TOOL_FORMAT_MISTRAL,
		    "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", ]");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS] are calls; [TOOL, [1]");
}

TEST(mistral_calls_by_name)
{
	expect_mistral("«0 f {\"a\": 1}»", "[TOOL_CALLS]f[ARGS]{\"a\": 1}");
	expect_mistral("«0 f {}»«1 g.h-i_2 {\"x\":{}}»",
		       "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g.h-i_2[ARGS] "
		       "{\"x\":{}}");
	expect_mistral("«0 f {}»", "[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{}");
	expect_mistral("«0 f {}»", "[TOOL_CALLS]f{}");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": 1");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS]f[ARGS][1]");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\" 1}");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS]f[ARG]{}");
	expect_same(TOOL_FORMAT_MISTRAL, "[TOOL_CALLS]f");
	expect_same(
		TOOL_FORMAT_MISTRAL,
		"[TOOL_CALLS]a23456789a123456789a123456789a123456789a123456789a123456789a12345"
		"[ARGS]{}");
}

/* ---- Functionary ---------------------------------------------------------------------- */

TEST(function_tags_name_their_tool)
{
	expect_function("«0 f {\"a\": \"</function>\"}»",
			"<function=f>{\"a\": \"</function>\"}</function>");
	expect_function(
		"Two:«0 f {}»«1 g {\"b\":{}}»",
		"Two:\n<function=f>{}</function>\n<function=g>\n{\"b\":{}}\n</function>");
	expect_function("«0 f {}»", "<function=f>{}");
	expect_same(TOOL_FORMAT_FUNCTION, "<function=f>{\"a\": ");
	expect_same(TOOL_FORMAT_FUNCTION, "<function=f>{\"a\": x}</function>");
	expect_same(TOOL_FORMAT_FUNCTION, "<function=f>[1]</function>");
	expect_same(TOOL_FORMAT_FUNCTION, "<function=f {}></function>");
	expect_same(TOOL_FORMAT_FUNCTION, "<function=>{}</function>");
	expect_same(TOOL_FORMAT_FUNCTION, "<function= is <function>");
}

/* ---- plain JSON ------------------------------------------------------------------------ */

TEST(plain_json_at_the_start)
{
	expect_json("«0 f {\"a\": 1}»",
		    " {\"name\": \"f\", \"arguments\": {\"a\": 1}} ");
	expect_json(
		"«0 f {}»«1 get_weather {}»",
		"[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"get_weather\", "
		"\"arguments\": {}}]");
	expect_same(TOOL_FORMAT_JSON, "[1, 2, 3] are numbers");
	expect_same(TOOL_FORMAT_JSON, "[]");
	expect_same(
		TOOL_FORMAT_JSON,
		"[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"x\", \"arguments\": {}}]");
	expect_same(TOOL_FORMAT_JSON,
		    "ok {\"name\": \"f\", \"arguments\": {}}");
}

/* ---- all of them ------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *state, uint32_t nr)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) % nr;
}

/* Scraps of all forms in any order: pieces do not show, and without a call nothing is lost. */
TEST(any_text_however_it_comes)
{
	static const char *const scraps[] = {
		"<tool_call>",
		"</tool_call>",
		"{",
		"}",
		"[",
		"]",
		"\"",
		"\\",
		"{\"name\":\"f\",\"arguments\":{}}",
		"[TOOL_CALLS]",
		"f",
		";",
		"[ARGS]",
		"[CALL_ID]",
		"<function=",
		">",
		"</function>",
		",",
		"<|python_tag|>",
		" ",
		"\n",
		"\"name\":",
		"\xc3\xa9",
		":",
		"<",
		"                                        ",
	};
	const uint32_t nr = sizeof(scraps) / sizeof(scraps[0]);
	uint32_t state = 7;

	for (uint32_t round = 0; round < 3000; round++) {
		const enum tool_format format = TOOL_FORMAT_HERMES + round % 5;
		char text[1200] = "";

		for (uint32_t i = draw(&state, 24); i; i--)
			strcat(text, scraps[draw(&state, nr)]);
		size_t len = strlen(text);
		char *whole = parse(format, false, text, len, len, len);
		char *bytes = parse(format, false, text, len, 1, 1);
		char *some = parse(format, false, text, len,
				   1 + draw(&state, 9), 1 + draw(&state, 9));

		EXPECT_STREQ(whole, bytes)
		{
			TH_LOG("format %d: %s", (int)format, text);
		}
		EXPECT_STREQ(whole, some);
		if (!strstr(whole, "\xc2\xab")) {
			EXPECT_STREQ(text, whole);
		}
		free(whole);
		free(bytes);
		free(some);
	}
}

/* NUL is a character like others. */
TEST(text_with_nul_comes_through)
{
	static const char text[] = "\0{}\0<tool_call>\0{\0[TOOL_CALLS]\0f\0";

	for (int format = TOOL_FORMAT_HERMES; format <= TOOL_FORMAT_JSON;
	     format++) {
		char *got = parse((enum tool_format)format, false, text,
				  sizeof(text), 1, 1);

		EXPECT_EQ(0, memcmp(text, got, sizeof(text)));
		free(got);
	}
}

/* Two megabytes of markers take no longer than two of letters. */
TEST_TIMEOUT(work_grows_with_the_text_alone, 10)
{
	static const char *const scraps[] = {
		"<tool_call>",	 "<tool_call>{",  "<tool_call>{\"a\":[",
		"<tool_call>{}", "<tool_call>\n", "<tool_call>{\"",
	};
	const size_t nr_bytes = 2 << 20;
	char *text = malloc(nr_bytes + 32);

	for (size_t i = 0; i < sizeof(scraps) / sizeof(scraps[0]); i++) {
		size_t len = 0;
		char *got;

		for (; len < nr_bytes; len += strlen(scraps[i]))
			strcpy(text + len, scraps[i]);
		got = parse(TOOL_FORMAT_HERMES, false, text, len, len, len);
		EXPECT_EQ(0, strncmp(text, got, nr_bytes));
		free(got);
		got = parse(TOOL_FORMAT_HERMES, false, text, len, 7, 7);
		EXPECT_EQ(0, strncmp(text, got, nr_bytes));
		free(got);
	}
	free(text);
}

TEST(formats_are_seen_in_the_template)
{
	static const struct {
		const char *source;
		enum tool_format format;
	} cases[] = {
		{ "x '<tool_call>\\n' y", TOOL_FORMAT_HERMES },
		{ "<|start_header_id|>", TOOL_FORMAT_LLAMA },
		{ "<|python_tag|>", TOOL_FORMAT_LLAMA },
		{ "[TOOL_CALLS] [", TOOL_FORMAT_MISTRAL },
		{ "<|start_header_id|> <function=", TOOL_FORMAT_FUNCTION },
		{ "<tool_call><function=f><parameter=x>", TOOL_FORMAT_UNKNOWN },
		{ "<tool_call>f<arg_key>", TOOL_FORMAT_UNKNOWN },
		{ "<|channel|>commentary", TOOL_FORMAT_UNKNOWN },
		{ "<\xef\xbd\x9ctool\xe2\x96\x81"
		  "calls",
		  TOOL_FORMAT_UNKNOWN },
		{ "{{ tools | tojson }}", TOOL_FORMAT_JSON },
		{ NULL, TOOL_FORMAT_JSON },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		EXPECT_EQ(cases[i].format, toolparse_format(cases[i].source))
		{
			TH_LOG("%s", cases[i].source);
		}
	}
	EXPECT_TRUE(
		toolparse_is_marker(TOOL_FORMAT_LLAMA, "<|python_tag|>x", 14));
	EXPECT_FALSE(
		toolparse_is_marker(TOOL_FORMAT_LLAMA, "<|python_tag|>x", 15));
	EXPECT_FALSE(
		toolparse_is_marker(TOOL_FORMAT_HERMES, "<|python_tag|>", 14));
	EXPECT_TRUE(toolparse_is_marker(TOOL_FORMAT_MISTRAL, "[ARGS]", 6));
}

TEST_HARNESS_MAIN
