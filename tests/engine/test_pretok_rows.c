/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for every pre-tokenizer of the table: each byte is in one piece,
 * and the work grows as the text does, whatever the text. Work is counted:
 * the patterns run without the optimisations that hide backtracking, and
 * each match says how many steps it took.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/token/pretok.h"
#include "engine/token/pretok_table.h"
#include "engine/token/utf8.h"
#include "tests/harness.h"

/* What hostile texts repeat, and what they end in. */
static const char *const units[] = {
	" ",	  "\n",	     "\t",	"\r\n",	  " \n",    "a",   "A",
	"Aa",	  "\u00e9",  "\u4e00",	"\u0e01", "\u0301", "1",   "\u00b2",
	"'",	  "'s",	     "'S a",	"-",	  "/",	    "/\n", "\u3000",
	"\u200b", "A\u0301", "\u4e00A", " a",	  "a ",	    "1 ",  "\U0001f600",
};
static const char *const tails[] = { "", "x", "\u4e00" };

enum {
	NR_UNITS = sizeof(units) / sizeof(units[0]),
	NR_TAILS = sizeof(tails) / sizeof(tails[0]),
};

/* @len bytes of @unit again and again, and @tail; malloc'ed. */
static char *repeat(const char *unit, const char *tail, size_t len,
		    size_t *out_len)
{
	size_t unit_len = strlen(unit), i;
	char *text;

	len = len / unit_len * unit_len;
	text = malloc(len + strlen(tail) + 1);
	ASSERT_TRUE(text != NULL);
	for (i = 0; i < len; i++)
		text[i] = unit[i % unit_len];
	memcpy(text + len, tail, strlen(tail) + 1);
	*out_len = len + strlen(tail);
	return text;
}

static void create(const struct pretok_row *row, struct pretok **out)
{
	char err[256] = "";

	ASSERT_EQ(0, pretok_create(row->names, strcspn(row->names, " "), out,
				   err, sizeof(err)))
	{
		TH_LOG("%s: %s", row->names, err);
	}
}

/* ---- names ------------------------------------------------------------------ */

TEST(every_name_is_known_and_stands_in_one_row)
{
	static const char *const wanted[] = {
		"smollm",	  "gpt-2",
		"llama-bpe",	  "qwen2",
		"qwen35",	  "deepseek-llm",
		"deepseek-v3",	  "tekken",
		"deepseek-coder", "falcon",
		"starcoder",	  "refact",
		"command-r",	  "mpt",
		"olmo",		  "dbrx",
		"gpt-4o",	  "hunyuan",
		"chatglm-bpe",	  "kimi-k2",
		"granite",	  "deepseek-r1-qwen",
		"default",
	};
	const struct pretok_row *row;
	size_t i;

	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		EXPECT_TRUE(pretok_is_known(wanted[i], strlen(wanted[i])))
		{
			TH_LOG("%s", wanted[i]);
		}
	for (i = 0; (row = pretok_row_at(i)) != NULL; i++) {
		const char *name = row->names;

		while (*name) {
			size_t len = strcspn(name, " ");

			EXPECT_LT(0, len);
			EXPECT_TRUE(pretok_row_find(name, len) == row)
			{
				TH_LOG("%s", name);
			}
			name += len + (name[len] == ' ');
		}
	}
	EXPECT_FALSE(pretok_is_known("qwen", 4));
	EXPECT_FALSE(pretok_is_known("qwen22", 6));
}

/* What ids alone show on vocabularies that are not here. */
TEST(flags_are_those_of_the_models)
{
	enum {
		WHOLE = PRETOK_IGNORE_MERGES,
		BOS = PRETOK_ADD_BOS,
		NFC = PRETOK_NFC,
	};
	static const struct {
		const char *name;
		unsigned int flags;
	} wanted[] = {
		{ "smollm", 0 },
		{ "gpt-2", 0 },
		{ "llama-bpe", WHOLE | BOS },
		{ "tekken", WHOLE | BOS },
		{ "gpt-4o", WHOLE },
		{ "llama4", WHOLE },
		{ "kimi-k2", WHOLE },
		{ "chatglm-bpe", WHOLE },
		{ "hunyuan", WHOLE | NFC },
		{ "qwen2", NFC },
		{ "deepseek-r1-qwen", NFC },
		{ "qwen35", NFC },
		{ "command-r", NFC },
		{ "mpt", NFC },
		{ "olmo", NFC },
		{ "dbrx", 0 },
		{ "deepseek-v3", 0 },
		{ "deepseek-coder", 0 },
		{ "deepseek-llm", 0 },
		{ "falcon", 0 },
		{ "default", 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		struct pretok *pretok;
		char err[128];

		ASSERT_EQ(0,
			  pretok_create(wanted[i].name, strlen(wanted[i].name),
					&pretok, err, sizeof(err)));
		EXPECT_EQ(wanted[i].flags, pretok_flags(pretok))
		{
			TH_LOG("%s", wanted[i].name);
		}
		pretok_destroy(pretok);
	}
}

/* ---- each byte in one piece --------------------------------------------------- */

struct cover {
	const char *at; /* where the next piece must begin */
	const char *end;
	size_t nr;
};

static int cover_piece(void *owner, const char *piece, size_t len)
{
	struct cover *cover = owner;

	if (len == 0 || piece != cover->at ||
	    len > (size_t)(cover->end - cover->at))
		return -EINVAL;
	cover->at += len;
	cover->nr++;
	return 0;
}

static void covers(const struct pretok *pretok, struct pretok_scratch *scratch,
		   const char *text, size_t len)
{
	struct cover cover = { .at = text, .end = text + len };

	EXPECT_EQ(0, pretok_split(pretok, scratch, text, len, cover_piece,
				  &cover));
	EXPECT_TRUE(cover.at == cover.end);
}

static size_t random_text(char *text, size_t room, unsigned int *seed)
{
	size_t want = rand_r(seed) % (room - 16), len = 0;

	while (len < want) {
		const char *unit = units[rand_r(seed) % NR_UNITS];
		char any[UTF8_MAX_BYTES];
		uint32_t c = (uint32_t)rand_r(seed) %
			     (rand_r(seed) % 2 ? 0x3000 : 0x110000);

		switch (rand_r(seed) % 4) {
		case 0:
			text[len++] = (char)rand_r(seed);
			break;
		case 1:
			if (c >= 0xd800 && c < 0xe000)
				c = 0x4e00;
			memcpy(text + len, any, utf8_put(c, any));
			len += utf8_put(c, any);
			break;
		default:
			memcpy(text + len, unit, strlen(unit));
			len += strlen(unit);
		}
	}
	return len;
}

TEST(each_byte_is_in_one_piece)
{
	struct pretok_scratch *scratch = pretok_scratch_create();
	const struct pretok_row *row;
	size_t i;

	ASSERT_TRUE(scratch != NULL);
	for (i = 0; (row = pretok_row_at(i)) != NULL; i++) {
		struct pretok *pretok;
		unsigned int seed = 1;
		int nr;

		create(row, &pretok);
		for (nr = 0; nr < 2000; nr++) {
			char text[128];
			size_t len = random_text(text, sizeof(text), &seed);
			size_t at = 0;

			/* As encoding does: well-formed stretches, and the runs between. */
			while (at < len) {
				size_t run =
					utf8_valid_len(text + at, len - at);

				covers(pretok, scratch, text + at, run);
				at += run;
				run = utf8_invalid_len(text + at, len - at);
				EXPECT_EQ(0, utf8_valid_len(text + at, run));
				at += run;
			}
			EXPECT_EQ(len, at);
		}
		pretok_destroy(pretok);
	}
	pretok_scratch_destroy(scratch);
}

/* ---- work ---------------------------------------------------------------------- */

enum {
	COUNTED_BYTES = 1 << 11,
	FIRST_LIMIT = 8, /* of a match; doubled until it is enough */
	/*
	 * A byte of text may take so many steps in each pass: it is met by every
	 * alternative, once more on the way back, and limits are doubled (36 at
	 * most now). What is quadratic takes some 1024 for each.
	 */
	MAX_STEPS_PER_BYTE = 48,
};

struct counter {
	pcre2_code *passes[PRETOK_MAX_PASSES];
	unsigned int nr_passes, nr_byte_passes;
	pcre2_match_data *match;
	pcre2_match_context *context;
	uint64_t nr_steps, max_steps;
};

static void counter_open(struct counter *counter, const struct pretok_row *row)
{
	const uint32_t plain = PCRE2_NO_AUTO_POSSESS | PCRE2_NO_START_OPTIMIZE |
			       PCRE2_NO_DOTSTAR_ANCHOR;
	unsigned int nr = 0, i;

	memset(counter, 0, sizeof(*counter));
	while (nr < PRETOK_MAX_PASSES && row->passes[nr])
		nr++;
	counter->nr_passes = nr;
	counter->nr_byte_passes = row->nr_byte_passes;
	for (i = 0; i < nr; i++) {
		bool of_bytes = nr - i <= row->nr_byte_passes;
		size_t at;
		int err;

		counter->passes[i] = pcre2_compile(
			(PCRE2_SPTR)row->passes[i], PCRE2_ZERO_TERMINATED,
			plain | (of_bytes ? 0 : PCRE2_UTF | PCRE2_UCP), &err,
			&at, NULL);
		ASSERT_TRUE(counter->passes[i] != NULL);
	}
	counter->match = pcre2_match_data_create(1, NULL);
	counter->context = pcre2_match_context_create(NULL);
	ASSERT_TRUE(counter->match && counter->context);
}

static void counter_close(struct counter *counter)
{
	unsigned int i;

	for (i = 0; i < counter->nr_passes; i++)
		pcre2_code_free(counter->passes[i]);
	pcre2_match_data_free(counter->match);
	pcre2_match_context_free(counter->context);
}

/* Return: whether there is a match at @from, within the steps left. */
static bool matches_at(struct counter *counter, unsigned int pass,
		       const char *text, size_t len, size_t from)
{
	const uint32_t plain = PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK |
			       PCRE2_NO_JIT;
	uint32_t limit = FIRST_LIMIT;
	int ret;

	for (;; limit *= 2) {
		pcre2_set_match_limit(counter->context, limit);
		ret = pcre2_match(counter->passes[pass], (PCRE2_SPTR)text, len,
				  from, plain, counter->match,
				  counter->context);
		counter->nr_steps += limit / 2;
		if (ret != PCRE2_ERROR_MATCHLIMIT ||
		    counter->nr_steps > counter->max_steps)
			break;
	}
	return ret > 0;
}

/* The next match, place by place: the library would count from each anew. */
static bool counted_match(struct counter *counter, unsigned int pass,
			  const char *text, size_t len, size_t from)
{
	bool of_bytes = pass >= counter->nr_passes - counter->nr_byte_passes;

	while (from < len && counter->nr_steps <= counter->max_steps) {
		if (matches_at(counter, pass, text, len, from))
			return true;
		from += of_bytes ? 1 : utf8_char_len(text + from, len - from);
	}
	return false;
}

static void count_pass(struct counter *counter, unsigned int pass,
		       const char *text, size_t len)
{
	const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(counter->match);
	size_t at = 0, start, end;

	if (len == 0 || pass == counter->nr_passes)
		return;
	while (counted_match(counter, pass, text, len, at)) {
		start = bounds[0];
		end = bounds[1];
		ASSERT_LT(start, end);
		count_pass(counter, pass + 1, text + at, start - at);
		count_pass(counter, pass + 1, text + start, end - start);
		at = end;
	}
	count_pass(counter, pass + 1, text + at, len - at);
}

TEST(steps_grow_as_the_text_does)
{
	const struct pretok_row *row;
	size_t i, unit, tail;

	for (i = 0; (row = pretok_row_at(i)) != NULL; i++) {
		struct counter counter;

		counter_open(&counter, row);
		for (unit = 0; unit < NR_UNITS * NR_TAILS; unit++) {
			size_t len;
			char *text;

			tail = unit / NR_UNITS;
			text = repeat(units[unit % NR_UNITS], tails[tail],
				      COUNTED_BYTES, &len);
			counter.nr_steps = 0;
			counter.max_steps =
				MAX_STEPS_PER_BYTE * counter.nr_passes * len;
			count_pass(&counter, 0, text, len);
			EXPECT_LE(counter.nr_steps, counter.max_steps)
			{
				TH_LOG("%.20s: unit %d, tail \"%s\"",
				       row->names, (int)(unit % NR_UNITS),
				       tails[tail]);
			}
			free(text);
		}
		counter_close(&counter);
	}
}

/* ---- a megabyte ------------------------------------------------------------------ */

/* As production runs them: compiled code, and its stack that does not grow. */
FIXTURE(megabyte)
{
	struct pretok_scratch *scratch;
};

FIXTURE_VARIANT(megabyte)
{
	const char *unit;
};

FIXTURE_VARIANT_ADD(megabyte, of_spaces){ " " };
FIXTURE_VARIANT_ADD(megabyte, of_newlines){ "\n" };
FIXTURE_VARIANT_ADD(megabyte, of_letters){ "a" };
FIXTURE_VARIANT_ADD(megabyte, of_capitals){ "A" };
FIXTURE_VARIANT_ADD(megabyte, of_digits){ "1" };
FIXTURE_VARIANT_ADD(megabyte, of_apostrophes){ "'" };
FIXTURE_VARIANT_ADD(megabyte, of_quotes){ "\"" };
FIXTURE_VARIANT_ADD(megabyte, of_marks){ "\u0301" };

FIXTURE_SETUP(megabyte)
{
	self->scratch = pretok_scratch_create();
	ASSERT_TRUE(self->scratch != NULL);
}

FIXTURE_TEARDOWN(megabyte)
{
	pretok_scratch_destroy(self->scratch);
}

TEST_F(megabyte, is_split_by_every_row)
{
	const size_t bytes = (1 << 20) / (HARNESS_TIME_SCALE > 1 ? 8 : 1);
	const struct pretok_row *row;
	size_t i;

	for (i = 0; (row = pretok_row_at(i)) != NULL; i++) {
		struct pretok *pretok;
		size_t len;
		char *text =
			repeat(variant->unit, tails[i % NR_TAILS], bytes, &len);

		create(row, &pretok);
		covers(pretok, self->scratch, text, len);
		pretok_destroy(pretok);
		free(text);
	}
}

TEST_HARNESS_MAIN
