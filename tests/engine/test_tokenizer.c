/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tokenizer does beyond equal ids: special tokens, ends, BOS and EOS,
 * pieces, SPM's spaces, bytes and unused pieces. Small vocabularies where
 * the answer can be seen, the real ones where they have a trap.
 */
#include "engine/model/gguf.h"
#include "engine/token/tokenizer.h"
#include "tests/engine/token_file.h"
#include "tests/harness.h"

/* Ids of a text as words, which EXPECT_STREQ compares and prints. */
static const char *ids_of(const struct tokenizer *tok, const char *text,
			  size_t len, unsigned int flags)
{
	static char line[1024];
	size_t at = 0, nr, i;
	int32_t *ids;

	line[0] = '\0';
	if (tokenizer_encode(tok, text, len, flags, &ids, &nr))
		return "failed";
	for (i = 0; i < nr && at + 16 < sizeof(line); i++)
		at += (size_t)sprintf(line + at, "%s%d", i ? " " : "", ids[i]);
	free(ids);
	return line;
}

static const char *ids_str(const struct tokenizer *tok, const char *text,
			   unsigned int flags)
{
	return ids_of(tok, text, strlen(text), flags);
}

static const char *piece_of(const struct tokenizer *tok, int32_t id,
			    bool special)
{
	static char text[256];
	size_t len;
	const char *piece = tokenizer_piece(tok, id, special, &len);

	if (len >= sizeof(text))
		return "too long";
	memcpy(text, piece, len);
	text[len] = '\0';
	return text;
}

static void build(struct gguf_writer *w, struct tokenizer **out)
{
	char err[256] = "";

	ASSERT_EQ(0, token_file_build(w, out, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
}

/* ---- byte-level BPE on a small vocabulary --------------------------------- */

enum {
	U = TOKEN_USER_DEFINED,
	C = TOKEN_CONTROL,
};

static const char *const bpe_tokens[] = {
	"<|bos|>", "<|im_end|>", "a",	"b",	 "c",	 "ab",
	"\u0120",  "\u0120a",	 "<u>", "<u>ab", "<u>a", "bca",
	"\u00c3",  "\u00a9",	 "<",	">",	 "u",
};
static const int32_t bpe_types[] = {
	C, C, 1, 1, 1, 1, 1, 1, U, U, C, 1, 1, 1, 1, 1, 1,
};
static const char *const bpe_merges[] = { "a b", "\u0120 a" };

FIXTURE(bpe)
{
	struct gguf_writer w;
	struct token_spec spec;
	struct tokenizer *tok;
};

FIXTURE_SETUP(bpe)
{
	self->w = (struct gguf_writer)GGUF_WRITER_INIT;
	self->spec = (struct token_spec){
		.model = "gpt2",
		.pre = "gpt-2",
		.tokens = bpe_tokens,
		.nr = sizeof(bpe_tokens) / sizeof(bpe_tokens[0]),
		.types = bpe_types,
		.nr_types = sizeof(bpe_types) / sizeof(bpe_types[0]),
		.merges = bpe_merges,
		.nr_merges = 2,
	};
}

FIXTURE_TEARDOWN(bpe)
{
	tokenizer_destroy(self->tok);
}

TEST_F(bpe, empty_text_has_no_ids)
{
	int32_t *ids = (void *)-1;
	size_t nr = 99;

	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	ASSERT_EQ(0, tokenizer_encode(self->tok, "", 0, 0, &ids, &nr));
	EXPECT_TRUE(ids == NULL);
	EXPECT_EQ(0, nr);
}

TEST_F(bpe, text_beyond_2_gib_is_refused)
{
	int32_t *ids;
	size_t nr;

	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_EQ(-EFBIG,
		  tokenizer_encode(self->tok, "a", 1ul << 31, 0, &ids, &nr));
	EXPECT_TRUE(ids == NULL);
}

TEST_F(bpe, control_tokens_only_on_request)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("2 1 3", ids_str(self->tok, "a<|im_end|>b",
				      TOKENIZE_PARSE_SPECIAL));
	/* Of its letters the vocabulary has < and > alone. */
	EXPECT_STREQ("2 14 15 3", ids_str(self->tok, "a<|im_end|>b", 0));
}

TEST_F(bpe, user_defined_tokens_always_and_the_longest)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("8 4", ids_str(self->tok, "<u>c", 0));
	EXPECT_STREQ("9 4", ids_str(self->tok, "<u>abc", 0));
	/* "<u>a" is a control token. */
	EXPECT_STREQ("8 2 4", ids_str(self->tok, "<u>ac", 0));
	EXPECT_STREQ("10 4",
		     ids_str(self->tok, "<u>ac", TOKENIZE_PARSE_SPECIAL));
	EXPECT_STREQ("14 16 8", ids_str(self->tok, "<u<u>", 0));
}

TEST_F(bpe, bytes_without_a_token_vanish)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("", ids_str(self->tok, "xyz", 0));
	EXPECT_STREQ("5", ids_str(self->tok, "axb", 0));
	EXPECT_STREQ("2 3", ids_of(self->tok, "a\0b", 3, 0));
}

TEST_F(bpe, invalid_bytes_are_pre_tokens)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("12 13", ids_str(self->tok, "\u00e9", 0));
	EXPECT_STREQ("2 12 3", ids_str(self->tok,
				       "a\xc3"
				       "b",
				       0));
	EXPECT_STREQ("7 13 7", ids_str(self->tok, " a\xa9 a", 0));
}

TEST_F(bpe, characters_are_composed_under_qwen2)
{
	static const char text[] = "e\u0301";

	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("", ids_str(self->tok, text, 0));
	tokenizer_destroy(self->tok);
	self->spec.pre = "qwen2";
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("12 13", ids_str(self->tok, text, 0));
	/* Between special tokens and bytes that are none of a character as well. */
	EXPECT_STREQ("8 12 13 8 12 13 13 12 13",
		     ids_str(self->tok,
			     "<u>e\u0301<u>e\u0301\xa9"
			     "e\u0301",
			     0));
}

TEST_F(bpe, whole_pre_tokens_go_first_under_llama_bpe)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("3 4 2", ids_str(self->tok, "bca", 0));
	tokenizer_destroy(self->tok);
	self->spec.pre = "llama-bpe";
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("11", ids_str(self->tok, "bca", 0));
	EXPECT_STREQ("3 4 5", ids_str(self->tok, "bcab", 0));
}

TEST_F(bpe, bos_by_flag_of_the_file_or_of_the_pre_tokenizer)
{
	gw_u32(&self->w, "tokenizer.ggml.bos_token_id", 0);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_FALSE(tokenizer_adds_bos(self->tok));
	EXPECT_STREQ("2", ids_str(self->tok, "a", TOKENIZE_ADD_SPECIAL));
	tokenizer_destroy(self->tok);

	self->spec.pre = "llama-bpe";
	gw_u32(&self->w, "tokenizer.ggml.bos_token_id", 0);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_TRUE(tokenizer_adds_bos(self->tok));
	EXPECT_STREQ("0 2", ids_str(self->tok, "a", TOKENIZE_ADD_SPECIAL));
	EXPECT_STREQ("2", ids_str(self->tok, "a", 0));
	tokenizer_destroy(self->tok);

	gw_u32(&self->w, "tokenizer.ggml.bos_token_id", 0);
	gw_bool(&self->w, "tokenizer.ggml.add_bos_token", false);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("2", ids_str(self->tok, "a", TOKENIZE_ADD_SPECIAL));
}

TEST_F(bpe, bos_and_eos_are_never_doubled)
{
	const unsigned int both = TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL;

	gw_u32(&self->w, "tokenizer.ggml.bos_token_id", 0);
	gw_u32(&self->w, "tokenizer.ggml.eos_token_id", 1);
	gw_bool(&self->w, "tokenizer.ggml.add_bos_token", true);
	gw_bool(&self->w, "tokenizer.ggml.add_eos_token", true);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("0 1", ids_str(self->tok, "", TOKENIZE_ADD_SPECIAL));
	EXPECT_STREQ("0 2 1", ids_str(self->tok, "a", both));
	EXPECT_STREQ("0 2 1", ids_str(self->tok, "<|bos|>a<|im_end|>", both));
	EXPECT_EQ(0, tokenizer_bos(self->tok));
	EXPECT_EQ(1, tokenizer_eos(self->tok));
}

TEST_F(bpe, ids_the_file_does_not_name_are_none)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	/* 11 is GPT-2's default, but "bca" is no control token. */
	EXPECT_EQ(TOKEN_NONE, tokenizer_bos(self->tok));
	EXPECT_EQ(TOKEN_NONE, tokenizer_eos(self->tok));
	EXPECT_FALSE(tokenizer_is_end(self->tok, TOKEN_NONE));
	EXPECT_FALSE(tokenizer_is_end(self->tok, 11));
}

TEST_F(bpe, ends_are_found_by_text_and_by_id)
{
	gw_u32(&self->w, "tokenizer.ggml.eot_token_id", 4);
	gw_u32(&self->w, "tokenizer.ggml.eom_token_id", 5);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_TRUE(tokenizer_is_end(self->tok, 1));
	EXPECT_TRUE(tokenizer_is_end(self->tok, 4));
	EXPECT_TRUE(tokenizer_is_end(self->tok, 5));
	EXPECT_FALSE(tokenizer_is_end(self->tok, 0));
	EXPECT_FALSE(tokenizer_is_end(self->tok, -1));
	EXPECT_FALSE(tokenizer_is_end(self->tok, 1000));
}

TEST_F(bpe, an_end_marked_as_normal_becomes_a_control_token)
{
	static const int32_t types[] = {
		C, 1, 1, 1, 1, 1, 1, 1, U, U, C, 1, 1, 1, 1, 1, 1,
	};

	self->spec.types = types;
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_EQ(TOKEN_CONTROL, tokenizer_type(self->tok, 1));
	EXPECT_TRUE(tokenizer_is_end(self->tok, 1));
	EXPECT_STREQ("1",
		     ids_str(self->tok, "<|im_end|>", TOKENIZE_PARSE_SPECIAL));
}

TEST_F(bpe, end_of_a_part_is_no_end_where_return_and_call_are)
{
	static const char *const tokens[] = {
		"<|end|>", "a", "b", "ab", "<|return|>", "<|call|>",
	};
	static const int32_t types[] = { C, 1, 1, 1, C, C };

	self->spec.tokens = tokens;
	self->spec.types = types;
	self->spec.nr_merges = 1;
	self->spec.nr = self->spec.nr_types = 6;
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_FALSE(tokenizer_is_end(self->tok, 0));
	EXPECT_TRUE(tokenizer_is_end(self->tok, 4));
	EXPECT_TRUE(tokenizer_is_end(self->tok, 5));
	tokenizer_destroy(self->tok);

	self->spec.nr = self->spec.nr_types = 5;
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_TRUE(tokenizer_is_end(self->tok, 0));
}

TEST_F(bpe, pieces_are_raw_bytes)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ(" a", piece_of(self->tok, 7, false));
	EXPECT_STREQ("\xc3", piece_of(self->tok, 12, false));
	EXPECT_STREQ("<u>ab", piece_of(self->tok, 9, false));
	EXPECT_STREQ("", piece_of(self->tok, 1, false));
	EXPECT_STREQ("<|im_end|>", piece_of(self->tok, 1, true));
	EXPECT_STREQ("", piece_of(self->tok, -1, true));
	EXPECT_STREQ("", piece_of(self->tok, 17, true));
	EXPECT_STREQ("", piece_of(self->tok, INT32_MAX, true));
	EXPECT_EQ(7, tokenizer_find(self->tok, "\u0120a", 3));
	EXPECT_EQ(TOKEN_NONE, tokenizer_find(self->tok, " a", 2));
	EXPECT_EQ(TOKEN_UNKNOWN, tokenizer_type(self->tok, 17));
}

TEST_F(bpe, decode_refuses_ids_out_of_range)
{
	char *text = (void *)-1;
	size_t len = 99;

	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_EQ(-EINVAL, tokenizer_decode(self->tok, (int32_t[]){ 2, 17 }, 2,
					    false, &text, &len));
	EXPECT_TRUE(text == NULL);
	EXPECT_EQ(-EINVAL, tokenizer_decode(self->tok, (int32_t[]){ -1 }, 1,
					    false, &text, &len));
	EXPECT_EQ(0, tokenizer_decode(self->tok, NULL, 0, false, &text, &len));
	EXPECT_STREQ("", text);
	EXPECT_EQ(0, len);
	free(text);
	EXPECT_EQ(0, tokenizer_decode(self->tok, (int32_t[]){ 0, 7, 1 }, 3,
				      true, &text, &len));
	EXPECT_STREQ("<|bos|> a<|im_end|>", text);
	free(text);
}

/* ---- SPM on a small vocabulary ------------------------------------------- */

#define SP "\u2581"

static const char *const spm_tokens[] = {
	"<unk>", "<s>", "</s>", "<0x41>", "<0xC3>", "<0xA9>",
	SP,	 "a",	"b",	"c",	  SP "a",   "ab",
	"bc",	 "abc", "\n",	"\n\n",	  "<h1>",   "aa",
};
static const int32_t spm_types[] = {
	2, C, C, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, U, U, U, 1,
};
static const float spm_scores[] = {
	0, 0, 0, 0, 0, 0, -9, -9, -9, -9, -2, -3, -3, -8, 0, 0, 0, -1,
};

FIXTURE(spm)
{
	struct gguf_writer w;
	struct token_spec spec;
	struct tokenizer *tok;
};

FIXTURE_SETUP(spm)
{
	self->w = (struct gguf_writer)GGUF_WRITER_INIT;
	self->spec = (struct token_spec){
		.model = "llama",
		.tokens = spm_tokens,
		.nr = 18,
		.types = spm_types,
		.nr_types = 18,
		.scores = spm_scores,
		.nr_scores = 18,
	};
}

FIXTURE_TEARDOWN(spm)
{
	tokenizer_destroy(self->tok);
}

static void build_bare(struct gguf_writer *w, const struct token_spec *spec,
		       struct tokenizer **out)
{
	gw_bool(w, "tokenizer.ggml.add_space_prefix", false);
	token_spec_put(w, spec);
	build(w, out);
}

TEST_F(spm, the_highest_score_goes_first_then_the_leftmost)
{
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("17", ids_str(self->tok, "aa", 0));
	EXPECT_STREQ("17 7", ids_str(self->tok, "aaa", 0));
	/* "ab" and "bc" score the same: "ab" stands first, then joins c. */
	EXPECT_STREQ("13", ids_str(self->tok, "abc", 0));
	EXPECT_STREQ("17 12", ids_str(self->tok, "aabc", 0));
	EXPECT_STREQ("10 8", ids_str(self->tok, " ab", 0));
}

TEST_F(spm, scores_zero_and_minus_zero_are_equal)
{
	float scores[18];

	memcpy(scores, spm_scores, sizeof(scores));
	scores[11] = -0.0f;
	scores[12] = 0.0f;
	scores[13] = -100;
	self->spec.scores = scores;
	self->spec.nr = self->spec.nr_types = self->spec.nr_scores = 13;
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("11 9", ids_str(self->tok, "abc", 0));
}

TEST_F(spm, what_no_piece_covers_becomes_bytes)
{
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("7 4 5 8", ids_str(self->tok, "a\u00e9b", 0));
	EXPECT_STREQ("3", ids_str(self->tok, "A", 0));
	EXPECT_STREQ("7 4 8", ids_str(self->tok,
				      "a\xc3"
				      "b",
				      0));
}

TEST_F(spm, what_has_no_bytes_becomes_one_unknown_a_run)
{
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("7 0 8", ids_str(self->tok, "axyzb", 0));
	EXPECT_STREQ("0 8 0", ids_str(self->tok, "xbyy", 0));
	EXPECT_STREQ("0 3 0", ids_str(self->tok, "xAy", 0));
}

TEST_F(spm, user_defined_tokens_always_and_the_longest)
{
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("15 14", ids_str(self->tok, "\n\n\n", 0));
	EXPECT_STREQ("7 16 8", ids_str(self->tok, "a<h1>b", 0));
	EXPECT_STREQ("7 16 2 8",
		     ids_str(self->tok, "a<h1></s>b", TOKENIZE_PARSE_SPECIAL));
}

TEST_F(spm, a_space_goes_before_the_text_and_behind_special_tokens)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_TRUE(tokenizer_adds_space(self->tok));
	EXPECT_STREQ("10", ids_str(self->tok, "a", 0));
	EXPECT_STREQ("6 10", ids_str(self->tok, " a", 0));
	EXPECT_STREQ("", ids_str(self->tok, "", 0));
	EXPECT_STREQ("10 16 6 8", ids_str(self->tok, "a<h1>b", 0));
	EXPECT_STREQ("1 10 2 10",
		     ids_str(self->tok, "<s>a</s>a", TOKENIZE_PARSE_SPECIAL));
	EXPECT_STREQ("16", ids_str(self->tok, "<h1>", 0));
}

/* The pieces are SentencePiece's, with remove_extra_whitespaces. */
TEST_F(spm, extra_spaces_go_where_the_file_says_so)
{
	gw_bool(&self->w, "tokenizer.ggml.remove_extra_whitespaces", true);
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("7 6 8", ids_str(self->tok, "  a  b  ", 0));
	EXPECT_STREQ("", ids_str(self->tok, "   ", 0));
	EXPECT_STREQ("", ids_str(self->tok, "", 0));
	EXPECT_STREQ("7 6 16 6 8", ids_str(self->tok, "a  <h1>  b", 0));
	EXPECT_STREQ("16", ids_str(self->tok, "  <h1>  ", 0));
	EXPECT_STREQ("7 14 6 8", ids_str(self->tok, "a\n  b", 0));
	EXPECT_STREQ("7", ids_str(self->tok, "a " SP " ", 0));
	/* Another space is no space, and U+2581 counts at the end alone. */
	EXPECT_STREQ("6 10", ids_str(self->tok, SP SP "a" SP, 0));
	tokenizer_destroy(self->tok);

	gw_bool(&self->w, "tokenizer.ggml.remove_extra_whitespaces", true);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("10 6 8", ids_str(self->tok, "  a  b  ", 0));
	EXPECT_STREQ("", ids_str(self->tok, "   ", 0));
}

TEST_F(bpe, extra_spaces_stay_whatever_the_file_says)
{
	gw_bool(&self->w, "tokenizer.ggml.remove_extra_whitespaces", true);
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_STREQ("6 7 6", ids_str(self->tok, "  a ", 0));
}

TEST_F(spm, ids_and_flags_have_llamas_defaults)
{
	token_spec_put(&self->w, &self->spec);
	build(&self->w, &self->tok);
	EXPECT_EQ(1, tokenizer_bos(self->tok));
	EXPECT_EQ(2, tokenizer_eos(self->tok));
	EXPECT_TRUE(tokenizer_is_end(self->tok, 2));
	EXPECT_TRUE(tokenizer_adds_bos(self->tok));
	EXPECT_STREQ("1 10", ids_str(self->tok, "a", TOKENIZE_ADD_SPECIAL));
}

TEST_F(spm, unused_pieces_are_taken_apart_again)
{
	int32_t types[18];

	memcpy(types, spm_types, sizeof(types));
	types[13] = TOKEN_UNUSED;
	self->spec.types = types;
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("11 9", ids_str(self->tok, "abc", 0));
	EXPECT_STREQ("11 9 11 9", ids_str(self->tok, "abcabc", 0));
	tokenizer_destroy(self->tok);

	types[11] = TOKEN_UNUSED;
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ("7 8 9", ids_str(self->tok, "abc", 0));
	EXPECT_STREQ("7 8", ids_str(self->tok, "ab", 0));
}

TEST_F(spm, pieces_have_spaces_and_bytes)
{
	build_bare(&self->w, &self->spec, &self->tok);
	EXPECT_STREQ(" a", piece_of(self->tok, 10, false));
	EXPECT_STREQ("A", piece_of(self->tok, 3, false));
	EXPECT_STREQ("\xc3", piece_of(self->tok, 4, false));
	EXPECT_STREQ("", piece_of(self->tok, 0, false));
	EXPECT_STREQ("<unk>", piece_of(self->tok, 0, true));
	EXPECT_STREQ("", piece_of(self->tok, 2, false));
}

/* ---- the real vocabularies ------------------------------------------------ */

static struct tokenizer *open_real(const char *variable)
{
	const char *path = getenv(variable);
	struct tokenizer *tok = NULL;
	struct gguf *gguf;
	char err[256];

	if (!path)
		return NULL;
	ASSERT_EQ(0,
		  gguf_open(path, GGUF_METADATA_ONLY, &gguf, err, sizeof(err)));
	ASSERT_EQ(0, tokenizer_create(gguf, 0, &tok, err, sizeof(err)));
	gguf_close(gguf);
	return tok;
}

TEST(smollm2_has_its_ends_and_no_bos)
{
	struct tokenizer *tok = open_real("TARN_TEST_MODEL");

	if (!tok)
		SKIP(return, "the model is not there");
	EXPECT_EQ(49152, tokenizer_nr_tokens(tok));
	EXPECT_FALSE(tokenizer_adds_bos(tok));
	EXPECT_FALSE(tokenizer_adds_space(tok));
	EXPECT_EQ(1, tokenizer_bos(tok));
	EXPECT_EQ(2, tokenizer_eos(tok));
	EXPECT_TRUE(
		tokenizer_is_end(tok, tokenizer_find(tok, "<|im_end|>", 10)));
	EXPECT_TRUE(tokenizer_is_end(tok, 0)); /* <|endoftext|> */
	EXPECT_FALSE(tokenizer_is_end(tok, 1)); /* <|im_start|> */
	EXPECT_STREQ("19556 905 17 216 33 34 35",
		     ids_str(tok, "Hello world! 123", TOKENIZE_ADD_SPECIAL));
	tokenizer_destroy(tok);
}

TEST(gemma_has_its_ends_and_one_bos)
{
	const unsigned int both = TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL;
	struct tokenizer *tok = open_real("TARN_TEST_MODEL_GEMMA");

	if (!tok)
		SKIP(return, "the model is not there");
	EXPECT_EQ(262144, tokenizer_nr_tokens(tok));
	EXPECT_TRUE(tokenizer_adds_bos(tok));
	EXPECT_FALSE(tokenizer_adds_space(tok));
	EXPECT_TRUE(tokenizer_is_end(tok, 1)); /* <eos> */
	EXPECT_TRUE(tokenizer_is_end(tok, 106)); /* <end_of_turn> */
	/* "</s>" closes a struck-out passage here. */
	EXPECT_EQ(212, tokenizer_find(tok, "</s>", 4));
	EXPECT_FALSE(tokenizer_is_end(tok, 212));
	EXPECT_STREQ("2", ids_str(tok, "", TOKENIZE_ADD_SPECIAL));
	EXPECT_STREQ("2 9259", ids_str(tok, "Hello", TOKENIZE_ADD_SPECIAL));
	EXPECT_STREQ("2 9259", ids_str(tok, "<bos>Hello", both));
	tokenizer_destroy(tok);
}

TEST_HARNESS_MAIN
