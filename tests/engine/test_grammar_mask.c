/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks of tokens (engine/grammar/mask.h) against every token tried by itself, in every state that
 * is met, with a small vocabulary that has all types of tokens.
 */
#include "tests/harness.h"

#include "engine/grammar/mask.h"
#include "engine/token/tokenizer.h"
#include "tests/engine/grammar_kit.h"
#include "tests/engine/token_file.h"

enum { NR_FIRST = 3 + 256, MAX_TOKENS = 320, NR_BIG = 1 << 24 };

/* Behind <unk>, <s>, </s> and the bytes. */
static const struct {
	const char *text;
	int32_t type;
} words[] = {
	{ "a", TOKEN_NORMAL },
	{ "b", TOKEN_NORMAL },
	{ "ab", TOKEN_NORMAL },
	{ "abc", TOKEN_NORMAL },
	{ "ba", TOKEN_NORMAL },
	{ "aab", TOKEN_NORMAL },
	{ "{\"", TOKEN_NORMAL },
	{ "\":", TOKEN_NORMAL },
	{ "\"}", TOKEN_NORMAL },
	{ "\xe2\x96\x81", TOKEN_NORMAL },
	{ "\xe2\x96\x81"
	  "a",
	  TOKEN_NORMAL },
	{ "\xc3\xa9", TOKEN_NORMAL },
	{ "\xe2\x82\xac\xe2\x82\xac", TOKEN_NORMAL },
	{ "a\xe2\x82\xac", TOKEN_USER_DEFINED },
	{ "abab", TOKEN_UNUSED },
	{ "<|ab|>", TOKEN_CONTROL },
	{ "<|im_end|>", TOKEN_CONTROL },
	{ "(((", TOKEN_NORMAL },
	{ "))", TOKEN_NORMAL },
	{ "12", TOKEN_NORMAL },
	{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	  TOKEN_NORMAL }, /* 32: the last that is near */
	{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", TOKEN_NORMAL },
	{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa12", TOKEN_NORMAL },
	{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", TOKEN_NORMAL },
	{ "abababababababababababababababababababab", TOKEN_NORMAL },
};

FIXTURE(mask)
{
	struct tokenizer *tok;
	struct token_trie *trie;
	uint32_t nr_tokens;
};

FIXTURE_SETUP(mask)
{
	static char bytes[256][8];
	const char *texts[MAX_TOKENS] = { "<unk>", "<s>", "</s>" };
	int32_t types[MAX_TOKENS] = { TOKEN_UNKNOWN, TOKEN_CONTROL,
				      TOKEN_CONTROL };
	float scores[MAX_TOKENS] = { 0 };
	struct gguf_writer w = GGUF_WRITER_INIT;
	uint32_t nr = 3;
	char err[256] = "";

	for (int i = 0; i < 256; i++, nr++) {
		snprintf(bytes[i], sizeof(bytes[i]), "<0x%02X>", i);
		texts[nr] = bytes[i];
		types[nr] = TOKEN_BYTE;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++, nr++) {
		texts[nr] = words[i].text;
		types[nr] = words[i].type;
	}
	token_spec_put(&w, &(struct token_spec){
				   .model = "llama",
				   .tokens = texts,
				   .nr = nr,
				   .types = types,
				   .nr_types = nr,
				   .scores = scores,
				   .nr_scores = nr,
			   });
	gw_u32(&w, "tokenizer.ggml.eos_token_id", 2);
	ASSERT_EQ(0, token_file_build(&w, &self->tok, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	self->nr_tokens = nr;
	ASSERT_EQ(0, token_trie_create(self->tok, nr, &self->trie));
	ASSERT_EQ((nr + 63) / 64, token_trie_words(self->trie));
}

FIXTURE_TEARDOWN(mask)
{
	token_trie_destroy(self->trie);
	tokenizer_destroy(self->tok);
}

static bool has(const struct mask *m, uint32_t id)
{
	return m->allowed[id >> 6] >> (id & 63) & 1;
}

/* GRAMMAR_DEAD: the token is not allowed. */
static uint32_t try_token(struct fixture_mask *self, struct grammar *g,
			  uint32_t state, int32_t id)
{
	enum token_type type = tokenizer_type(self->tok, id);
	size_t len;
	const char *piece = tokenizer_piece(self->tok, id, true, &len);

	if ((type != TOKEN_NORMAL && type != TOKEN_BYTE &&
	     type != TOKEN_USER_DEFINED) ||
	    !len)
		return GRAMMAR_DEAD;
	for (size_t i = 0; i < len; i++)
		ASSERT_EQ(0, grammar_step(g, state, (uint8_t)piece[i], &state));
	return state;
}

static void expect_mask(struct fixture_mask *self, struct mask_cache *cache,
			struct grammar *g, uint32_t state)
{
	const bool may_end = grammar_accepts(g, state);
	bool any = false;
	struct mask m;

	ASSERT_EQ(0, mask_find(cache, state, &m));
	for (uint32_t id = 0; id < self->nr_tokens; id++) {
		uint32_t next = try_token(self, g, state, (int32_t)id);
		bool is_end = tokenizer_is_end(self->tok, (int32_t)id);
		bool want = next != GRAMMAR_DEAD || (is_end && may_end);
		uint32_t after = 0;

		any |= next != GRAMMAR_DEAD;
		EXPECT_EQ(want, has(&m, id))
		{
			TH_LOG("state %u, token %u", state, id);
		}
		EXPECT_EQ(next != GRAMMAR_DEAD ? 0 : -EINVAL,
			  mask_advance(cache, state, (int32_t)id, &after));
		EXPECT_EQ(next, after);
	}
	EXPECT_EQ(!any && !may_end, m.is_empty);
	EXPECT_EQ(!any && may_end, m.is_end);
}

/* Every state that tokens lead to, up to @max; answers how many there were. */
static uint32_t expect_masks(struct fixture_mask *self, const char *text,
			     uint32_t max)
{
	struct grammar *g = kit_compile_ok(gbnf_read, text);
	uint32_t queue[512] = { grammar_start(g) }, nr = 1;
	struct mask_cache *cache;

	ASSERT_EQ(0, mask_cache_create(g, self->trie, &cache));
	for (uint32_t at = 0; at < nr; at++) {
		expect_mask(self, cache, g, queue[at]);
		for (uint32_t id = 0; id < self->nr_tokens && nr < max; id++) {
			uint32_t next =
				try_token(self, g, queue[at], (int32_t)id);
			uint32_t i = 0;

			while (i < nr && queue[i] != next)
				i++;
			if (i == nr && next != GRAMMAR_DEAD)
				queue[nr++] = next;
		}
	}
	mask_cache_destroy(cache);
	grammar_destroy(g);
	return nr;
}

TEST_F(mask, allows_what_every_token_by_itself_would_be)
{
	EXPECT_EQ(1, expect_masks(self, "root ::= [ab]*", 500));
	EXPECT_TRUE(expect_masks(self, "root ::= \"ab\" | \"abab\"", 500) > 3);
	EXPECT_TRUE(
		expect_masks(
			self,
			"root ::= \"{\\\"\" [ab]* \"\\\":\" [0-9]{1,3} \"}\"",
			500) > 5);
	EXPECT_TRUE(expect_masks(self, "root ::= \"(\" root \")\" | \" a\" .*",
				 60) == 60);
	EXPECT_TRUE(expect_masks(self, "root ::= [^a] [\\u20a0-\\u20af]+ .",
				 500) > 5);
}

TEST_F(mask, is_right_at_every_place_of_a_long_repetition)
{
	static const char *const grammars[] = {
		"root ::= \"{\" [ab]{0,90} \"b)\"",
		"root ::= [ab]{90} \"12\"",
		"root ::= [ab]{45,90}",
		"root ::= [ab]{60,}",
		"root ::= (\"a\"? \"b\"?){0,60} \"12\"",
		"root ::= (\"a\"{0,40} \"b\"){0,40} \"a\"",
		"root ::= (\"a\"{40} | \"b\"{0,39} \"(((\"){39,41}",
		"root ::= x{0,60}\nx ::= \"a\" | \"b\" x{0,36} \"))\"",
		"root ::= \"a\" x{36} x{0,36} [ab]{36}\nx ::= \"a\" | \"bb\"",
	};

	for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++)
		EXPECT_TRUE(expect_masks(self, grammars[i], 250) > 25)
		{
			TH_LOG("%s", grammars[i]);
		}
}

static void expect_made_once(const char *text)
{
	struct grammar *g = kit_compile_ok(gbnf_read, text);
	uint32_t state = grammar_start(g), first, alike;

	ASSERT_EQ(0, grammar_alike(g, state, &first));
	for (int i = 0; i < 1000 - GRAMMAR_SIGHT - 1; i++) {
		ASSERT_EQ(0, grammar_alike(g, state, &alike));
		EXPECT_EQ(first, alike);
		grammar_allow_work(g);
		ASSERT_EQ(0, grammar_step(g, state, 'a', &state));
	}
	for (int i = 0; i < GRAMMAR_SIGHT; i++) {
		ASSERT_EQ(0, grammar_step(g, state, 'a', &state));
		ASSERT_EQ(0, grammar_alike(g, state, &alike));
		EXPECT_EQ(state, alike);
	}
	grammar_destroy(g);
}

TEST_F(mask, of_a_long_repetition_is_made_once)
{
	(void)self;
	expect_made_once("root ::= [ab\\u00e9]{0,1000} \"12\"");
	/* Of a rule: its stacks lie over places of the repetition. */
	expect_made_once("root ::= x{0,1000} \"12\"\n"
			 "x ::= [ab] | \"(\" x \")\"");
}

TEST_F(mask, allows_the_end_alone_where_nothing_follows)
{
	struct grammar *g = kit_compile_ok(gbnf_read, "root ::= \"ab\"");
	struct mask_cache *cache;
	struct mask m;
	uint32_t nr = 0;

	ASSERT_EQ(0, mask_cache_create(g, self->trie, &cache));
	ASSERT_EQ(0, mask_find(cache, kit_run(g, "ab", 2), &m));
	EXPECT_TRUE(m.is_end);
	for (uint32_t id = 0; id < self->nr_tokens; id++)
		nr += has(&m, id);
	EXPECT_EQ(2, nr); /* </s> and <|im_end|> */
	EXPECT_TRUE(has(&m, 2));
	ASSERT_EQ(0, mask_find(cache, GRAMMAR_DEAD, &m));
	EXPECT_TRUE(m.is_empty);
	EXPECT_FALSE(m.is_end);
	mask_cache_destroy(cache);
	grammar_destroy(g);
}

TEST_F(mask, is_the_same_after_it_left_the_cache)
{
	struct grammar *g = kit_compile_ok(gbnf_read, "root ::= [ab]{50}");
	struct token_trie *trie;
	struct mask_cache *cache;
	uint32_t states[50];

	/* Masks so large that few are kept. */
	ASSERT_EQ(0, token_trie_create(self->tok, NR_BIG, &trie));
	ASSERT_EQ(0, mask_cache_create(g, trie, &cache));
	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 50; i++) {
			static const char text[] =
				"ababababababababababababababababababababababababab";
			struct mask m;

			states[i] = kit_run(g, text, i);
			ASSERT_EQ(0, mask_find(cache, states[i], &m));
			EXPECT_TRUE(has(&m, NR_FIRST));
			/* "abc" never, "aab" while there is room for it. */
			EXPECT_FALSE(has(&m, NR_FIRST + 3));
			EXPECT_EQ(i <= 47, has(&m, NR_FIRST + 5));
			ASSERT_EQ(0, mask_find(cache, states[i / 2], &m));
			EXPECT_TRUE(has(&m, NR_FIRST));
		}
	mask_cache_destroy(cache);
	token_trie_destroy(trie);
	grammar_destroy(g);
}

TEST_F(mask, of_an_ambiguous_grammar_is_given_up_and_others_go_on)
{
	struct grammar *g = kit_compile_ok(
		gbnf_read, "root ::= \"b\" | (\"a\"{0,200} x){0,200} \"b\"\n"
			   "x ::= \"a\"{0,100}");
	struct mask_cache *cache;
	uint32_t state = grammar_start(g);
	struct mask m;
	int rc = 0;

	ASSERT_EQ(0, mask_cache_create(g, self->trie, &cache));
	for (int i = 0; i < 3000 && !rc; i++) {
		rc = mask_find(cache, state, &m);
		if (!rc)
			rc = mask_advance(cache, state, NR_FIRST, &state);
	}
	EXPECT_EQ(-E2BIG, rc);
	ASSERT_EQ(0, mask_find(cache, kit_run(g, "b", 1), &m));
	EXPECT_TRUE(m.is_end);
	mask_cache_destroy(cache);
	grammar_destroy(g);
}

TEST_HARNESS_MAIN
