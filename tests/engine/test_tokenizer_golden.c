/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token ids of the real vocabularies equal those of public tokenizer
 * libraries on thousands of strings, and decoding gives the text back.
 */
#include "engine/model/gguf.h"
#include "engine/token/nfc.h"
#include "engine/token/tokenizer.h"
#include "engine/token/utf8.h"
#include "tests/engine/token_file.h"
#include "tests/engine/tokens_golden.h"
#include "tests/harness.h"

enum {
	MIN_CASES = 3000,
	MAX_REPORTS = 5,
};

/* Bytes for which SmolLM2's vocabulary has no token: they vanish. */
static const char smollm2_lacks[] = "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2"
				    "\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe"
				    "\xff";

FIXTURE(golden)
{
	struct tokens_golden golden;
	struct gguf *gguf, *changed;
	uint8_t *file;
	struct tokenizer *tok;
};

FIXTURE_VARIANT(golden)
{
	const char *name;
	const char *env;
	bool is_bpe;
	bool composes; /* characters, first */
	bool is_changed;
	struct token_file_change change;
};

FIXTURE_VARIANT_ADD(golden, smollm){
	.name = "smollm",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
};

FIXTURE_VARIANT_ADD(golden, gpt_2){
	.name = "gpt-2",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "gpt-2" },
};

FIXTURE_VARIANT_ADD(golden, llama_bpe){
	.name = "llama-bpe",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "llama-bpe" },
};

FIXTURE_VARIANT_ADD(golden, default_pre){
	.name = "default",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "default" },
};

FIXTURE_VARIANT_ADD(golden, qwen2){
	.name = "qwen2",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.composes = true,
	.is_changed = true,
	.change = { .pre = "qwen2" },
};

FIXTURE_VARIANT_ADD(golden, gpt_4o){
	.name = "gpt-4o",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "gpt-4o" },
};

FIXTURE_VARIANT_ADD(golden, tekken){
	.name = "tekken",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "tekken" },
};

FIXTURE_VARIANT_ADD(golden, kimi_k2){
	.name = "kimi-k2",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "kimi-k2" },
};

FIXTURE_VARIANT_ADD(golden, deepseek_v3){
	.name = "deepseek-v3",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "deepseek-v3" },
};

FIXTURE_VARIANT_ADD(golden, falcon){
	.name = "falcon",
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
	.is_changed = true,
	.change = { .pre = "falcon" },
};

FIXTURE_VARIANT_ADD(golden, gemma){
	.name = "gemma",
	.env = "TARN_TEST_MODEL_GEMMA",
};

FIXTURE_VARIANT_ADD(golden, gemma_prefix){
	.name = "gemma-prefix",
	.env = "TARN_TEST_MODEL_GEMMA",
	.is_changed = true,
	.change = { .no_user_defined = true, .space_prefix = true },
};

FIXTURE_SETUP(golden)
{
	const char *path = getenv(variant->env);
	char err[256] = "";

	if (!path)
		SKIP(return, "the model is not there");
	ASSERT_EQ(0, tokens_golden_open(variant->name, &self->golden));
	ASSERT_EQ(0, gguf_open(path, GGUF_METADATA_ONLY, &self->gguf, err,
			       sizeof(err)));
	if (variant->is_changed) {
		size_t size;

		self->file =
			token_file_changed(self->gguf, &variant->change, &size);
		ASSERT_EQ(0,
			  gguf_open_memory(self->file, size, GGUF_METADATA_ONLY,
					   &self->changed, err, sizeof(err)));
	}
	ASSERT_EQ(0,
		  tokenizer_create(self->changed ? self->changed : self->gguf,
				   0, &self->tok, err, sizeof(err)));
	EXPECT_STREQ("", err);
	/* The tokenizer must live on what it has copied. */
	gguf_close(self->changed);
	gguf_close(self->gguf);
	free(self->file);
}

FIXTURE_TEARDOWN(golden)
{
	tokenizer_destroy(self->tok);
	tokens_golden_close(&self->golden);
}

static void print_ids(const char *label, const int32_t *ids, size_t nr)
{
	char line[512];
	size_t at = 0, i;

	for (i = 0; i < nr && at + 16 < sizeof(line); i++)
		at += (size_t)sprintf(line + at, " %d", ids[i]);
	line[at] = '\0';
	TH_LOG("%s%s", label, line);
}

static void print_case(const struct tokens_case *one, const int32_t *ids,
		       size_t nr)
{
	char line[512];
	size_t at = 0, i;

	for (i = 0; i < one->len && at + 8 < sizeof(line); i++)
		at += (size_t)sprintf(line + at,
				      one->text[i] > 32 && one->text[i] < 127 ?
					      "%c" :
					      "\\x%02x",
				      (unsigned char)one->text[i]);
	line[at] = '\0';
	TH_LOG("%s%s", one->with_special ? "(specials) " : "", line);
	print_ids("  want", one->ids, one->nr);
	print_ids("  have", ids, nr);
}

TEST_F(golden, ids_equal_the_references)
{
	struct tokens_case one;
	size_t nr_cases = 0, nr_wrong = 0, nr;
	int32_t *ids;

	while (tokens_golden_next(&self->golden, &one)) {
		unsigned int flags = one.with_special ? TOKENIZE_PARSE_SPECIAL :
							0;

		/* The library has no word on spaces behind special tokens. */
		if (one.with_special && variant->change.space_prefix)
			continue;
		nr_cases++;
		ASSERT_EQ(0, tokenizer_encode(self->tok, one.text, one.len,
					      flags, &ids, &nr));
		if (nr != one.nr ||
		    (nr && memcmp(ids, one.ids, nr * sizeof(*ids)))) {
			if (nr_wrong++ < MAX_REPORTS)
				print_case(&one, ids, nr);
		}
		free(ids);
	}
	EXPECT_FALSE(self->golden.cases.is_broken);
	EXPECT_FALSE(self->golden.base.is_broken);
	EXPECT_FALSE(self->golden.own.is_broken);
	EXPECT_EQ(0, nr_wrong);
	EXPECT_LE(variant->change.space_prefix ? 2500 : MIN_CASES, nr_cases);
}

/* Well-formed stretches in normal form C. @out: room for 3 * len bytes. */
static size_t compose(const char *text, size_t len, char *out)
{
	size_t nr = 0, at = 0, composed_len;
	char *composed;

	while (at < len) {
		size_t run = utf8_valid_len(text + at, len - at);

		ASSERT_EQ(0, nfc_compose(text + at, run, &composed,
					 &composed_len));
		if (!composed)
			composed_len = run;
		memcpy(out + nr, composed ? composed : text + at, composed_len);
		free(composed);
		nr += composed_len;
		at += run;
		run = utf8_invalid_len(text + at, len - at);
		memcpy(out + nr, text + at, run);
		nr += run;
		at += run;
	}
	return nr;
}

/* What decoding should give. @out: room for len + 1 bytes. */
static size_t expected_text(const struct tokens_case *one, bool is_bpe,
			    bool space_prefix, char *out)
{
	static const char escape[] = "\xe2\x96\x81";
	size_t nr = 0, i;

	if (!is_bpe && space_prefix && one->len > 0)
		out[nr++] = ' ';
	for (i = 0; i < one->len; i++) {
		char c = one->text[i];

		if (is_bpe) {
			if (c && strchr(smollm2_lacks, c))
				continue;
		} else if (one->len - i >= 3 &&
			   memcmp(one->text + i, escape, 3) == 0) {
			/* U+2581 is how SPM writes a space. */
			c = ' ';
			i += 2;
		}
		out[nr++] = c;
	}
	return nr;
}

TEST_F(golden, decoding_gives_the_text_back)
{
	struct tokens_case one;
	int32_t *ids;
	char *text;
	size_t nr, len;

	while (tokens_golden_next(&self->golden, &one)) {
		struct tokens_case own = one;
		char *own_text = malloc(3 * one.len + 1);
		char *want = malloc(3 * one.len + 2);
		size_t want_len;

		ASSERT_TRUE(own_text && want);
		own.text = own_text;
		if (variant->composes)
			own.len = compose(one.text, one.len, own_text);
		else
			memcpy(own_text, one.text, one.len);
		want_len = expected_text(&own, variant->is_bpe,
					 variant->change.space_prefix, want);
		ASSERT_EQ(0, tokenizer_encode(self->tok, one.text, one.len, 0,
					      &ids, &nr));
		ASSERT_EQ(0, tokenizer_decode(self->tok, ids, nr, false, &text,
					      &len));
		ASSERT_EQ(want_len, len)
		{
			print_case(&one, ids, nr);
		}
		ASSERT_EQ(0, memcmp(want, text, len));
		ASSERT_EQ(0, text[len]);
		free(own_text);
		free(want);
		free(text);
		free(ids);
	}
}

TEST_HARNESS_MAIN
