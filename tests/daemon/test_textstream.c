/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text on its way out: whole characters, stop strings, and that the borders of
 * tokens do not show.
 */
#include "daemon/textstream.h"
#include "tests/harness.h"

#define FFFD "\xef\xbf\xbd"

static struct stop_string stop_of(const char *text)
{
	return (struct stop_string){ text, strlen(text) };
}

/* Pushes @bytes in pieces of at most @step, checks that each outcome is valid UTF-8. */
static char *run_pieces(const char *bytes, size_t len, size_t step,
			const struct stop_string *stops, uint32_t nr_stops,
			bool *out_stopped)
{
	struct textstream stream;
	struct text all = { 0 };

	textstream_init(&stream, stops, nr_stops);
	for (size_t at = 0; at < len && !stream.is_stopped; at += step) {
		struct text piece = { 0 };

		ASSERT_EQ(0, textstream_push(&stream, bytes + at,
					     len - at < step ? len - at : step,
					     &piece));
		EXPECT_TRUE(utf8_is_valid(piece.bytes, piece.len));
		ASSERT_EQ(0, text_append(&all, piece.bytes, piece.len));
		text_deinit(&piece);
	}
	ASSERT_EQ(0, textstream_finish(&stream, &all));
	*out_stopped = stream.is_stopped;
	textstream_deinit(&stream);
	ASSERT_EQ(0, text_append(&all, "", 1));
	return all.bytes;
}

static void expect_text(const char *wanted, bool want_stopped,
			const char *bytes, const struct stop_string *stops,
			uint32_t nr_stops)
{
	for (size_t step = 1; step <= strlen(bytes) + 1; step++) {
		bool is_stopped;
		char *text = run_pieces(bytes, strlen(bytes), step, stops,
					nr_stops, &is_stopped);

		EXPECT_STREQ(wanted, text)
		{
			TH_LOG("in pieces of %zu", step);
		}
		EXPECT_EQ(want_stopped, is_stopped);
		free(text);
	}
}

TEST(characters_are_never_cut)
{
	expect_text("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80!", false,
		    "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80!", NULL, 0);
}

TEST(an_unfinished_character_is_held_then_replaced)
{
	struct textstream stream;
	struct text out = { 0 };

	textstream_init(&stream, NULL, 0);
	ASSERT_EQ(0, textstream_push(&stream, "a\xf0\x9f\x98", 4, &out));
	EXPECT_EQ(1, out.len);
	ASSERT_EQ(0, textstream_finish(&stream, &out));
	ASSERT_EQ(4, out.len);
	EXPECT_EQ(0, memcmp(out.bytes, "a" FFFD, 4));
	text_deinit(&out);
	textstream_deinit(&stream);
}

TEST(invalid_bytes_become_one_replacement_per_maximal_part)
{
	expect_text("a" FFFD "b", false,
		    "a\xff"
		    "b",
		    NULL, 0);
	expect_text(FFFD FFFD "x", false, "\xc0\x80x", NULL, 0);
	expect_text(FFFD "x", false, "\xf0\x9f\x98x", NULL, 0);
	expect_text(FFFD FFFD FFFD "x", false, "\xed\xa0\x80x", NULL, 0);
	expect_text(FFFD FFFD FFFD FFFD, false, "\xf4\x90\x80\x80", NULL, 0);
	expect_text(FFFD FFFD FFFD, false, "\xe0\x9f\xbf", NULL, 0);
	expect_text(FFFD, false, "\xe2\x82", NULL, 0);
}

TEST(a_stop_string_ends_the_text_before_itself)
{
	const struct stop_string stops[] = { stop_of("STOP") };

	expect_text("go on ", true, "go on STOP here", stops, 1);
	expect_text("", true, "STOP", stops, 1);
	expect_text("STO", false, "STO", stops, 1);
	expect_text("STSTO ", true, "STSTO STOP", stops, 1);
}

TEST(a_partial_stop_string_never_leaks)
{
	const struct stop_string stops[] = { stop_of("\n\nUser:") };
	struct textstream stream;
	struct text out = { 0 };

	textstream_init(&stream, stops, 1);
	ASSERT_EQ(0, textstream_push(&stream, "hi\n\nUse", 7, &out));
	EXPECT_EQ(2, out.len);
	ASSERT_EQ(0, textstream_push(&stream, "r", 1, &out));
	EXPECT_EQ(2, out.len);
	ASSERT_EQ(0, textstream_push(&stream, "!", 1, &out));
	EXPECT_EQ(9, out.len);
	EXPECT_FALSE(stream.is_stopped);
	text_deinit(&out);
	textstream_deinit(&stream);
}

TEST(of_several_stop_strings_the_first_complete_one_counts)
{
	const struct stop_string stops[] = { stop_of("abcd"), stop_of("bc"),
					     stop_of("xyz") };

	expect_text("1a", true, "1abcd", stops, 3);
	expect_text("1", true, "1xyzbc", stops, 3);
}

TEST(of_stop_strings_with_one_end_the_longest_counts)
{
	const struct stop_string stops[] = { stop_of("c"), stop_of("abc") };

	expect_text("1", true, "1abc", stops, 2);
}

TEST(stop_strings_of_characters_match_across_bytes)
{
	const struct stop_string stops[] = { stop_of("\xe2\x82\xac"
						     "5") };

	expect_text("cost ", true,
		    "cost \xe2\x82\xac"
		    "5",
		    stops, 1);
	expect_text("cost \xe2\x82\xac"
		    "6",
		    false,
		    "cost \xe2\x82\xac"
		    "6",
		    stops, 1);
}

TEST(a_replacement_can_complete_a_stop_string)
{
	const struct stop_string stops[] = { stop_of("a" FFFD) };

	expect_text("1", true, "1a\xe2\x82", stops, 1);
}

/* A plain search over the whole text says what any way of cutting it must give. */
TEST(random_texts_do_not_depend_on_token_borders)
{
	unsigned int seed = 7;

	for (int round = 0; round < 3000; round++) {
		char bytes[24], stop_bytes[2][4];
		struct stop_string stops[2];
		char *whole = NULL;
		bool was_stopped = false;
		size_t len = 1 + (size_t)rand_r(&seed) % (sizeof(bytes) - 1);

		for (size_t i = 0; i < len; i++)
			bytes[i] = "ab\xc3\xa9\xe2\x82\xac"[rand_r(&seed) % 7];
		for (int i = 0; i < 2; i++) {
			stops[i].len = 1 + (size_t)rand_r(&seed) % 3;
			for (size_t k = 0; k < stops[i].len; k++)
				stop_bytes[i][k] = "ab"[rand_r(&seed) % 2];
			stops[i].bytes = stop_bytes[i];
		}
		for (size_t step = len; step >= 1; step--) {
			bool is_stopped;
			char *text = run_pieces(bytes, len, step, stops, 2,
						&is_stopped);

			if (!whole) {
				whole = text;
				was_stopped = is_stopped;
				continue;
			}
			ASSERT_STREQ(whole, text);
			ASSERT_EQ(was_stopped, is_stopped);
			free(text);
		}
		free(whole);
	}
}

TEST(after_a_stop_nothing_comes_out)
{
	const struct stop_string stops[] = { stop_of(".") };
	struct textstream stream;
	struct text out = { 0 };

	textstream_init(&stream, stops, 1);
	ASSERT_EQ(0, textstream_push(&stream, "a.b", 3, &out));
	ASSERT_EQ(0, textstream_push(&stream, "c", 1, &out));
	ASSERT_EQ(0, textstream_finish(&stream, &out));
	EXPECT_EQ(1, out.len);
	text_deinit(&out);
	textstream_deinit(&stream);
}

TEST_HARNESS_MAIN
