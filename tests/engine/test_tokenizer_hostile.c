/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broken and hostile tokenizer metadata: one thing wrong in each test. What
 * is refused is refused by name, and nothing is left behind.
 */
#include <math.h>

#include "tests/engine/token_file.h"
#include "tests/harness.h"

static const char *const bpe_tokens[] = {
	"<|x|>", "a", "b", "c", "ab", "abc", "\xc4\xa0",
};
static const int32_t bpe_types[] = { 3, 1, 1, 1, 1, 1, 1 };
static const char *const bpe_merges[] = { "a b", "ab c" };
static const char *const spm_tokens[] = {
	"<unk>", "<s>", "</s>", "a", "b", "ab",
};
static const int32_t spm_types[] = { 2, 3, 3, 1, 1, 1 };
static const float spm_scores[] = { 0, 0, 0, -2, -3, -1 };

/* A test changes one thing of these and builds. */
struct hostile {
	struct gguf_writer w;
	struct token_spec bpe, spm;
	struct tokenizer *tok;
	char err[256];
};

FIXTURE(hostile)
{
	struct hostile h;
};

FIXTURE_SETUP(hostile)
{
	struct hostile *h = &self->h;

	h->w = (struct gguf_writer)GGUF_WRITER_INIT;
	h->bpe = (struct token_spec){
		.model = "gpt2",
		.pre = "gpt-2",
		.tokens = bpe_tokens,
		.nr = 7,
		.types = bpe_types,
		.nr_types = 7,
		.merges = bpe_merges,
		.nr_merges = 2,
	};
	h->spm = (struct token_spec){
		.model = "llama",
		.tokens = spm_tokens,
		.nr = 6,
		.types = spm_types,
		.nr_types = 6,
		.scores = spm_scores,
		.nr_scores = 6,
	};
	memset(h->err, 'x', sizeof(h->err));
}

FIXTURE_TEARDOWN(hostile)
{
	tokenizer_destroy(self->h.tok);
}

/* What was written is refused with @want, and the message names @named. */
static void refused(struct hostile *h, int want, const char *named)
{
	h->tok = (void *)-1;
	EXPECT_EQ(want,
		  token_file_build(&h->w, &h->tok, h->err, sizeof(h->err)));
	EXPECT_TRUE(h->tok == NULL);
	EXPECT_TRUE(strstr(h->err, named) != NULL)
	{
		TH_LOG("\"%s\" does not name \"%s\"", h->err, named);
	}
}

static void refused_bpe(struct hostile *h, int want, const char *named)
{
	token_spec_put(&h->w, &h->bpe);
	refused(h, want, named);
}

static void refused_spm(struct hostile *h, int want, const char *named)
{
	token_spec_put(&h->w, &h->spm);
	refused(h, want, named);
}

static void taken(struct hostile *h)
{
	EXPECT_EQ(0, token_file_build(&h->w, &h->tok, h->err, sizeof(h->err)))
	{
		TH_LOG("%s", h->err);
	}
}

/* The ids of @text are @want. */
static void encodes(const struct tokenizer *tok, const char *text,
		    const int32_t *want, size_t nr_want)
{
	int32_t *ids;
	size_t nr;

	ASSERT_EQ(0, tokenizer_encode(tok, text, strlen(text), 0, &ids, &nr));
	EXPECT_EQ(nr_want, nr);
	if (nr == nr_want)
		EXPECT_MEMEQ(want, ids, nr * sizeof(*ids));
	free(ids);
}

TEST_F(hostile, sound_bpe_is_taken)
{
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	EXPECT_STREQ("", self->h.err);
	encodes(self->h.tok, "abcab", (int32_t[]){ 5, 4 }, 2);
}

TEST_F(hostile, sound_spm_is_taken)
{
	token_spec_put(&self->h.w, &self->h.spm);
	gw_bool(&self->h.w, "tokenizer.ggml.add_space_prefix", false);
	taken(&self->h);
	EXPECT_STREQ("", self->h.err);
	encodes(self->h.tok, "aab", (int32_t[]){ 3, 5 }, 2);
}

TEST_F(hostile, model_missing)
{
	self->h.bpe.model = NULL;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.model");
}

TEST_F(hostile, model_unknown)
{
	self->h.bpe.model = "bert";
	refused_bpe(&self->h, -ENOTSUP, "\"bert\"");
}

TEST_F(hostile, model_of_wrong_type)
{
	self->h.bpe.model = NULL;
	gw_u32(&self->h.w, "tokenizer.ggml.model", 1);
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.model");
}

TEST_F(hostile, pre_unknown)
{
	self->h.bpe.pre = "qwen9000";
	refused_bpe(&self->h, -ENOTSUP, "\"qwen9000\"");
}

/* A file's text goes to a terminal and a log: one line, nothing that steers them. */
TEST_F(hostile, what_is_shown_of_a_file_is_printable)
{
	self->h.bpe.pre = "x\n\x1b[2J\xff y";
	refused_bpe(&self->h, -ENOTSUP, "\"x??[2J? y\"");
	gw_deinit(&self->h.w);
	self->h.bpe.pre = "gpt-2";
	self->h.bpe.model = "\x1b]0;gpt";
	refused_bpe(&self->h, -ENOTSUP, "\"?]0;gpt\"");
	gw_deinit(&self->h.w);
	self->h.bpe.model = "gpt2";
	self->h.bpe.merges = (const char *const[]){ "a b", "\r\x07z" };
	refused_bpe(&self->h, -EINVAL, "merges[1] (\"??z\")");
}

/* Building with @flags succeeds and warns of @named; the ids are those of default. */
static void taken_as_default(struct hostile *h, unsigned int flags,
			     const char *named)
{
	struct gguf *gguf;
	size_t size;
	uint8_t *file;

	token_spec_put(&h->w, &h->bpe);
	file = gw_finish(&h->w, &size);
	ASSERT_EQ(0, gguf_open_memory(file, size, GGUF_METADATA_ONLY, &gguf,
				      h->err, sizeof(h->err)));
	EXPECT_EQ(0, tokenizer_create(gguf, flags, &h->tok, h->err,
				      sizeof(h->err)));
	EXPECT_STREQ(named, h->err);
	gguf_close(gguf);
	free(file);
	encodes(h->tok, "abcab", (int32_t[]){ 5, 4 }, 2);
}

TEST_F(hostile, pre_unknown_is_default_where_allowed)
{
	self->h.bpe.pre = "qwen9000\n";
	taken_as_default(
		&self->h, TOKENIZER_ALLOW_UNKNOWN_PRE,
		"pre-tokenizer \"qwen9000?\" is not known: taken as \"default\"");
}

TEST_F(hostile, pre_known_is_itself_where_unknown_ones_are_allowed)
{
	taken_as_default(&self->h, TOKENIZER_ALLOW_UNKNOWN_PRE, "");
}

TEST_F(hostile, pre_empty)
{
	self->h.bpe.pre = "";
	refused_bpe(&self->h, -ENOTSUP, "\"\"");
}

TEST_F(hostile, pre_that_is_two_names_of_the_table)
{
	self->h.bpe.pre = "gpt-2 mpt";
	refused_bpe(&self->h, -ENOTSUP, "\"gpt-2 mpt\"");
}

TEST_F(hostile, pre_missing_is_default_with_a_warning)
{
	self->h.bpe.pre = NULL;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	EXPECT_TRUE(strstr(self->h.err, "tokenizer.ggml.pre") != NULL);
	EXPECT_TRUE(strstr(self->h.err, "default") != NULL);
}

TEST_F(hostile, tokens_missing)
{
	self->h.bpe.tokens = NULL;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.tokens is missing");
}

TEST_F(hostile, tokens_none)
{
	self->h.bpe.nr = 0;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.tokens");
}

TEST_F(hostile, tokens_of_wrong_type)
{
	self->h.bpe.tokens = NULL;
	gw_array(&self->h.w, "tokenizer.ggml.tokens", GGUF_I32, bpe_types, 7,
		 sizeof(int32_t));
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.tokens");
}

TEST_F(hostile, types_too_few)
{
	self->h.bpe.nr_types = 6;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.token_type");
}

TEST_F(hostile, types_out_of_range)
{
	static const int32_t types[] = { 3, 1, 7, 1, 1, 1, 1 };

	self->h.bpe.types = types;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.token_type[2]");
}

TEST_F(hostile, types_negative)
{
	static const int32_t types[] = { 3, 1, 1, -1, 1, 1, 1 };

	self->h.bpe.types = types;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.token_type[3]");
}

TEST_F(hostile, types_of_wrong_type)
{
	self->h.bpe.types = NULL;
	gw_strings(&self->h.w, "tokenizer.ggml.token_type", bpe_tokens, 7);
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.token_type");
}

TEST_F(hostile, types_missing_means_normal)
{
	self->h.bpe.types = NULL;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	EXPECT_EQ(TOKEN_NORMAL, tokenizer_type(self->h.tok, 0));
}

TEST_F(hostile, scores_missing)
{
	self->h.spm.scores = NULL;
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.scores is missing");
}

TEST_F(hostile, scores_too_many)
{
	static const float scores[7];

	self->h.spm.scores = scores;
	self->h.spm.nr_scores = 7;
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.scores");
}

TEST_F(hostile, scores_not_a_number)
{
	static const float scores[6] = { [4] = NAN };

	self->h.spm.scores = scores;
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.scores[4]");
}

TEST_F(hostile, scores_infinite_are_taken)
{
	static const float scores[6] = { [3] = -INFINITY, [5] = INFINITY };

	self->h.spm.scores = scores;
	token_spec_put(&self->h.w, &self->h.spm);
	gw_bool(&self->h.w, "tokenizer.ggml.add_space_prefix", false);
	taken(&self->h);
	encodes(self->h.tok, "ab", (int32_t[]){ 5 }, 1);
}

TEST_F(hostile, scores_of_wrong_type)
{
	self->h.spm.scores = NULL;
	gw_strings(&self->h.w, "tokenizer.ggml.scores", spm_tokens, 6);
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.scores");
}

TEST_F(hostile, merges_missing)
{
	self->h.bpe.merges = NULL;
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.merges is missing");
}

TEST_F(hostile, merges_of_wrong_type)
{
	self->h.bpe.merges = NULL;
	gw_array(&self->h.w, "tokenizer.ggml.merges", GGUF_I32, bpe_types, 7,
		 sizeof(int32_t));
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.merges");
}

FIXTURE(merge)
{
	struct gguf_writer w;
};

FIXTURE_VARIANT(merge)
{
	const char *text;
};

FIXTURE_VARIANT_ADD(merge, empty){ "" };
FIXTURE_VARIANT_ADD(merge, of_one_part){ "ab" };
FIXTURE_VARIANT_ADD(merge, of_a_space){ " " };
FIXTURE_VARIANT_ADD(merge, without_left){ " b" };
FIXTURE_VARIANT_ADD(merge, without_right){ "a " };
FIXTURE_VARIANT_ADD(merge, of_unknown_left){ "z c" };
FIXTURE_VARIANT_ADD(merge, of_unknown_right){ "a z" };
FIXTURE_VARIANT_ADD(merge, of_unknown_whole){ "b c" };
FIXTURE_VARIANT_ADD(merge, of_three_parts){ "a b c" };
FIXTURE_VARIANT_ADD(merge, longer_than_any_token){ "abc abc" };

FIXTURE_SETUP(merge)
{
	self->w = (struct gguf_writer)GGUF_WRITER_INIT;
}

FIXTURE_TEARDOWN(merge)
{
	gw_deinit(&self->w);
}

TEST_F(merge, is_refused_with_its_place)
{
	const char *merges[] = { "a b", variant->text };
	struct token_spec spec = {
		.model = "gpt2",
		.pre = "gpt-2",
		.tokens = bpe_tokens,
		.nr = 7,
		.merges = merges,
		.nr_merges = 2,
	};
	struct tokenizer *tok;
	char err[256];

	token_spec_put(&self->w, &spec);
	EXPECT_EQ(-EINVAL, token_file_build(&self->w, &tok, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "tokenizer.ggml.merges[1]") != NULL)
	{
		TH_LOG("%s", err);
	}
}

TEST_F(hostile, merges_given_twice_count_once)
{
	static const char *const merges[] = { "a b", "ab c", "a b" };

	self->h.bpe.merges = merges;
	self->h.bpe.nr_merges = 3;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	encodes(self->h.tok, "abc", (int32_t[]){ 5 }, 1);
}

TEST_F(hostile, merges_never_make_a_control_token)
{
	static const int32_t types[] = { 3, 1, 1, 1, 1, 3, 1 };

	self->h.bpe.types = types;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	encodes(self->h.tok, "abc", (int32_t[]){ 4, 3 }, 2);
}

TEST_F(hostile, scores_never_make_a_control_token)
{
	static const int32_t types[] = { 2, 3, 3, 1, 1, 3 };

	self->h.spm.types = types;
	token_spec_put(&self->h.w, &self->h.spm);
	gw_bool(&self->h.w, "tokenizer.ggml.add_space_prefix", false);
	taken(&self->h);
	encodes(self->h.tok, "ab", (int32_t[]){ 3, 4 }, 2);
}

TEST_F(hostile, empty_tokens_are_taken_and_never_found)
{
	static const char *const tokens[] = {
		"", "a", "b", "c", "ab", "abc", "",
	};
	static const int32_t types[] = { 3, 1, 1, 1, 1, 1, 4 };
	int32_t *ids;
	size_t nr;

	self->h.bpe.tokens = tokens;
	self->h.bpe.types = types;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	ASSERT_EQ(0, tokenizer_encode(self->h.tok, "abc", 3,
				      TOKENIZE_PARSE_SPECIAL, &ids, &nr));
	EXPECT_EQ(1, nr);
	free(ids);
	EXPECT_EQ(TOKEN_NONE, tokenizer_find(self->h.tok, "", 0));
}

TEST_F(hostile, duplicate_tokens_have_the_first_id)
{
	static const char *const tokens[] = {
		"ab", "a", "b", "c", "ab", "abc", "abc",
	};
	static const int32_t types[] = { 1, 1, 1, 1, 1, 3, 1 };

	self->h.bpe.tokens = tokens;
	self->h.bpe.types = types;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	EXPECT_EQ(0, tokenizer_find(self->h.tok, "ab", 2));
	EXPECT_EQ(5, tokenizer_find(self->h.tok, "abc", 3));
	/* 5 is a control token: text becomes its plain double. */
	encodes(self->h.tok, "ababc", (int32_t[]){ 0, 6 }, 2);
}

TEST_F(hostile, duplicate_behind_a_merge_is_not_its_result)
{
	static const char *const tokens[] = {
		"a", "b", "c", "abc", "ab", "abc", "x",
	};

	self->h.bpe.tokens = tokens;
	self->h.bpe.types = NULL;
	token_spec_put(&self->h.w, &self->h.bpe);
	taken(&self->h);
	encodes(self->h.tok, "abc", (int32_t[]){ 3 }, 1);
}

TEST_F(hostile, only_equal_tokens_build_in_linear_time)
{
	enum { NR = 200000 };
	const char **tokens = malloc(NR * sizeof(*tokens));
	int32_t *types = malloc(NR * sizeof(*types));
	int i;

	ASSERT_TRUE(tokens && types);
	for (i = 0; i < NR; i++) {
		tokens[i] = i % 2 ? "ab" : "abc";
		types[i] = i % 3 ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
	}
	self->h.bpe = (struct token_spec){
		.model = "gpt2",
		.pre = "gpt-2",
		.tokens = tokens,
		.nr = NR,
		.types = types,
		.nr_types = NR,
		.merges = bpe_merges,
		.nr_merges = 1,
	};
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.merges[0]");
	free(tokens);
	free(types);
}

TEST_F(hostile, bos_id_of_2_to_the_31)
{
	gw_u32(&self->h.w, "tokenizer.ggml.bos_token_id", 0x80000000u);
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.bos_token_id");
}

TEST_F(hostile, bos_id_one_past_the_vocabulary)
{
	gw_u32(&self->h.w, "tokenizer.ggml.bos_token_id", 7);
	refused_bpe(&self->h, -EINVAL,
		    "bos_token_id is 7, the vocabulary has 7 tokens");
}

TEST_F(hostile, bos_id_negative)
{
	gw_i32(&self->h.w, "tokenizer.ggml.bos_token_id", -1);
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.bos_token_id");
}

TEST_F(hostile, eos_id_of_64_bits)
{
	gw_u64(&self->h.w, "tokenizer.ggml.eos_token_id", UINT64_MAX);
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.eos_token_id");
}

TEST_F(hostile, eot_id_out_of_range)
{
	gw_u32(&self->h.w, "tokenizer.ggml.eot_token_id", 100);
	refused_bpe(&self->h, -EINVAL, "tokenizer.ggml.eot_token_id");
}

TEST_F(hostile, unknown_id_out_of_range)
{
	gw_u32(&self->h.w, "tokenizer.ggml.unknown_token_id", 6);
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.unknown_token_id");
}

TEST_F(hostile, eos_id_that_is_a_string)
{
	gw_str(&self->h.w, "tokenizer.ggml.eos_token_id", "</s>");
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.eos_token_id");
}

TEST_F(hostile, flag_that_is_a_number)
{
	gw_u32(&self->h.w, "tokenizer.ggml.add_bos_token", 1);
	refused_spm(&self->h, -EINVAL, "tokenizer.ggml.add_bos_token");
}

TEST_F(hostile, message_without_room)
{
	self->h.bpe.model = "bert";
	token_spec_put(&self->h.w, &self->h.bpe);
	EXPECT_EQ(-ENOTSUP,
		  token_file_build(&self->h.w, &self->h.tok, self->h.err, 1));
	EXPECT_EQ(0, self->h.err[0]);
	EXPECT_EQ('x', self->h.err[1]);
}

/* Whatever bits a file has, building and using it breaks nothing. */
static void flip_and_build(const struct token_spec *spec, unsigned int seed)
{
	struct gguf_writer w = GGUF_WRITER_INIT;
	struct gguf *gguf;
	struct tokenizer *tok;
	char err[256];
	size_t size, nr;
	uint8_t *file;
	int32_t *ids;
	int i;

	token_spec_put(&w, spec);
	gw_u32(&w, "tokenizer.ggml.bos_token_id", 1);
	gw_bool(&w, "tokenizer.ggml.add_space_prefix", seed % 2);
	file = gw_finish(&w, &size);
	for (i = rand_r(&seed) % 4; i >= 0; i--)
		file[rand_r(&seed) % size] ^= (uint8_t)(1 << rand_r(&seed) % 8);
	if (!gguf_open_memory(file, size, GGUF_METADATA_ONLY, &gguf, err,
			      sizeof(err))) {
		if (!tokenizer_create(gguf, 0, &tok, err, sizeof(err))) {
			EXPECT_EQ(0, tokenizer_encode(tok, "ab <s>abc</s>", 13,
						      seed % 4, &ids, &nr));
			free(ids);
			tokenizer_destroy(tok);
		} else {
			EXPECT_STRNE("", err);
		}
		gguf_close(gguf);
	}
	free(file);
}

TEST_F(hostile, flipped_bits_break_nothing)
{
	unsigned int seed;

	for (seed = 0; seed < 10000; seed++)
		flip_and_build(seed % 3 ? &self->h.bpe : &self->h.spm, seed);
}

TEST_HARNESS_MAIN
