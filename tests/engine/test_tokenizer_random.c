/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random vocabularies and texts: the fast paths against naive ones that
 * search the whole list for each merge, arbitrary bytes through the real
 * vocabularies, long texts without a break, and several threads at once.
 */
#include <math.h>
#include <pthread.h>

#include "engine/model/gguf.h"
#include "engine/token/merge.h"
#include "engine/token/pretok.h"
#include "engine/token/tokenizer.h"
#include "tests/engine/token_file.h"
#include "tests/harness.h"

/* ---- a random vocabulary over a few letters ------------------------------- */

enum {
	NR_LETTERS = 4,
	NR_MERGES = 60,
	MAX_TOKENS = NR_LETTERS + NR_MERGES,
	MAX_PIECE = 24,
	MAX_TEXT = 200,
};

struct random_vocab {
	char texts[MAX_TOKENS][MAX_PIECE + 1];
	char merges[NR_MERGES][2 * MAX_PIECE + 2];
	const char *tokens[MAX_TOKENS], *merge_texts[NR_MERGES];
	int parts[NR_MERGES][2]; /* ids of a merge's halves */
	float scores[MAX_TOKENS];
	int nr, nr_merges;
};

static int find_text(const struct random_vocab *v, const char *text)
{
	int i;

	for (i = 0; i < v->nr; i++) {
		if (strcmp(v->texts[i], text) == 0)
			return i;
	}
	return -1;
}

static void put_merge(char *out, const char *left, const char *right)
{
	size_t len = strlen(left);

	memcpy(out, left, len);
	out[len] = ' ';
	memcpy(out + len + 1, right, strlen(right) + 1);
}

static void make_vocab(struct random_vocab *v, unsigned int *seed)
{
	int i;

	memset(v, 0, sizeof(*v));
	for (i = 0; i < NR_LETTERS; i++)
		v->texts[v->nr++][0] = (char)('a' + i);
	while (v->nr_merges < NR_MERGES) {
		int left = rand_r(seed) % v->nr, right = rand_r(seed) % v->nr;
		char text[2 * MAX_PIECE + 1];
		bool is_known = false;

		snprintf(text, sizeof(text), "%s%s", v->texts[left],
			 v->texts[right]);
		for (i = 0; i < v->nr_merges; i++)
			is_known |= v->parts[i][0] == left &&
				    v->parts[i][1] == right;
		if (strlen(text) > MAX_PIECE || is_known)
			continue;
		/* Two merges may well have the same result. */
		if (find_text(v, text) < 0)
			memcpy(v->texts[v->nr++], text, strlen(text) + 1);
		v->parts[v->nr_merges][0] = left;
		v->parts[v->nr_merges][1] = right;
		put_merge(v->merges[v->nr_merges], v->texts[left],
			  v->texts[right]);
		v->merge_texts[v->nr_merges] = v->merges[v->nr_merges];
		v->nr_merges++;
	}
	for (i = 0; i < v->nr; i++) {
		v->tokens[i] = v->texts[i];
		/* Few values, so that ties are common. */
		v->scores[i] = (float)(rand_r(seed) % 8) - 4;
	}
}

static size_t make_text(char *text, unsigned int *seed)
{
	size_t len = rand_r(seed) % MAX_TEXT, i;
	int letters = 1 + rand_r(seed) % NR_LETTERS;

	for (i = 0; i < len; i++)
		text[i] = (char)('a' + rand_r(seed) % letters);
	text[len] = '\0';
	return len;
}

/* How good joining two tokens is: lower goes first; infinite: not at all. */
static double rank_of(const struct random_vocab *v, bool is_spm, int left,
		      int right, int *out_joined)
{
	char text[2 * MAX_PIECE + 1];
	int i;

	snprintf(text, sizeof(text), "%s%s", v->texts[left], v->texts[right]);
	*out_joined = find_text(v, text);
	if (is_spm)
		return *out_joined < 0 ? (double)INFINITY :
					 -(double)v->scores[*out_joined];
	for (i = 0; i < v->nr_merges; i++) {
		if (v->parts[i][0] == left && v->parts[i][1] == right)
			return i;
	}
	return (double)INFINITY;
}

/* The definition, followed to the letter. Return: number of ids. */
static size_t naive(const struct random_vocab *v, bool is_spm, const char *text,
		    size_t len, int32_t *ids)
{
	size_t nr = len, i;

	for (i = 0; i < len; i++)
		ids[i] = text[i] - 'a';
	for (;;) {
		double best = (double)INFINITY;
		size_t best_at = 0;
		int best_joined = 0;

		for (i = 0; i + 1 < nr; i++) {
			int joined;
			double rank =
				rank_of(v, is_spm, ids[i], ids[i + 1], &joined);

			if (rank < best) {
				best = rank;
				best_at = i;
				best_joined = joined;
			}
		}
		if (best == (double)INFINITY)
			return nr;
		ids[best_at] = best_joined;
		nr--;
		memmove(ids + best_at + 1, ids + best_at + 2,
			(nr - best_at - 1) * sizeof(*ids));
	}
}

static void compare_with_naive(bool is_spm, unsigned int seed, int nr_texts)
{
	static struct random_vocab v;
	struct gguf_writer w = GGUF_WRITER_INIT;
	struct token_spec spec = { 0 };
	struct tokenizer *tok;
	char text[MAX_TEXT], err[256];

	make_vocab(&v, &seed);
	spec.model = is_spm ? "llama" : "gpt2";
	spec.pre = "gpt-2";
	spec.tokens = v.tokens;
	spec.nr = spec.nr_scores = (size_t)v.nr;
	spec.scores = v.scores;
	spec.merges = v.merge_texts;
	spec.nr_merges = (size_t)v.nr_merges;
	gw_bool(&w, "tokenizer.ggml.add_space_prefix", false);
	token_spec_put(&w, &spec);
	ASSERT_EQ(0, token_file_build(&w, &tok, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	while (nr_texts-- > 0) {
		int32_t want[MAX_TEXT], *ids;
		size_t len = make_text(text, &seed), nr;
		size_t nr_want = naive(&v, is_spm, text, len, want);

		ASSERT_EQ(0, tokenizer_encode(tok, text, len, 0, &ids, &nr));
		ASSERT_EQ(nr_want, nr)
		{
			TH_LOG("%s", text);
		}
		if (nr)
			ASSERT_MEMEQ(want, ids, nr * sizeof(*ids));
		free(ids);
	}
	tokenizer_destroy(tok);
}

TEST(bpe_merges_as_the_definition_says)
{
	unsigned int seed;

	for (seed = 1; seed <= 30; seed++)
		compare_with_naive(false, seed, 20);
}

TEST(spm_merges_as_the_definition_says)
{
	unsigned int seed;

	for (seed = 1; seed <= 30; seed++)
		compare_with_naive(true, seed, 20);
}

/* ---- operations grow as n log n ------------------------------------------- */

/* Symbols of the same length join, which makes as many merges as there can be. */
static void join_equals(void *owner, struct merge_sym *left,
			const struct merge_sym *right)
{
	(void)owner;
	if (left->len != right->len)
		return;
	left->rank = left->len;
	left->joined = 0;
}

TEST(merging_takes_n_log_n_steps)
{
	const struct merge_rules rules = { .look = join_equals };
	struct merge_work work = { 0 };
	unsigned int log_2;

	for (log_2 = 4; log_2 <= 20; log_2 += 4) {
		uint64_t nr = 1ull << log_2, i;

		ASSERT_EQ(0, merge_reset(&work, nr));
		work.nr_steps = 0;
		for (i = 0; i < nr; i++)
			merge_push(&work, (uint32_t)i, 1, 0);
		ASSERT_EQ(0, merge_run(&work, &rules));
		EXPECT_EQ(nr, work.syms[0].len);
		/* 2 n entries at most, each moved up and down once. */
		EXPECT_LE(work.nr_steps, 4 * nr * (log_2 + 1));
	}
	merge_work_deinit(&work);
}

struct pieces {
	size_t nr, bytes;
};

static int count_piece(void *owner, const char *piece, size_t len)
{
	struct pieces *pieces = owner;

	(void)piece;
	pieces->nr++;
	pieces->bytes += len;
	return 0;
}

/*
 * Pre-tokens of a megabyte of one character with another behind it. Were any
 * pattern to start over inside, the time limit of the test would end it.
 */
static void split_run(const char *name, char c, char last, size_t want)
{
	enum { NR = 1 << 20 };
	struct pretok_scratch *scratch = pretok_scratch_create();
	struct pieces pieces = { 0 };
	struct pretok *pretok;
	char *text = malloc(NR + 1), err[256];

	ASSERT_TRUE(scratch && text);
	ASSERT_EQ(0,
		  pretok_create(name, strlen(name), &pretok, err, sizeof(err)));
	memset(text, c, NR);
	text[NR] = last;
	EXPECT_EQ(0, pretok_split(pretok, scratch, text, NR + 1, count_piece,
				  &pieces));
	EXPECT_EQ(want, pieces.nr);
	EXPECT_EQ(NR + 1, pieces.bytes);
	free(text);
	pretok_destroy(pretok);
	pretok_scratch_destroy(scratch);
}

TEST(a_megabyte_of_one_character_is_split_once)
{
	static const char *const names[] = {
		"smollm",
		"gpt-2",
		"llama-bpe",
		"default",
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		split_run(names[i], 'a', ' ', 2);
		split_run(names[i], ' ', 'a', 2);
		split_run(names[i], ' ', '\n', 1);
		split_run(names[i], '\n', 'a', i == 2 ? 2 : 3);
		split_run(names[i], '-', 'a', 2);
		split_run(names[i], '\t', 'a', i == 2 ? 2 : 3);
	}
	split_run("smollm", '1', '1', (1 << 20) + 1);
	split_run("gpt-2", '1', '1', 1);
	split_run("llama-bpe", '1', '1', (1 << 20) / 3 + 1);
	split_run("default", '1', '1', (1 << 20) / 3 + 1);
}

static int stop_at_two(void *owner, const char *piece, size_t len)
{
	(void)piece;
	(void)len;
	return ++*(int *)owner == 2 ? -ECANCELED : 0;
}

TEST(emit_can_stop_a_split)
{
	struct pretok_scratch *scratch = pretok_scratch_create();
	struct pretok *pretok;
	char err[256];
	int nr = 0;

	ASSERT_EQ(0, pretok_create("default", 7, &pretok, err, sizeof(err)));
	EXPECT_EQ(-ECANCELED, pretok_split(pretok, scratch, "a b c d", 7,
					   stop_at_two, &nr));
	EXPECT_EQ(2, nr);
	pretok_destroy(pretok);
	pretok_scratch_destroy(scratch);
}

/* ---- the real vocabularies ------------------------------------------------ */

FIXTURE(real)
{
	struct tokenizer *tok;
};

FIXTURE_VARIANT(real)
{
	const char *env;
	bool is_bpe;
};

FIXTURE_VARIANT_ADD(real, smollm2){
	.env = "TARN_TEST_MODEL",
	.is_bpe = true,
};

FIXTURE_VARIANT_ADD(real, gemma){
	.env = "TARN_TEST_MODEL_GEMMA",
};

FIXTURE_SETUP(real)
{
	const char *path = getenv(variant->env);
	struct gguf *gguf;
	char err[256];

	if (!path)
		SKIP(return, "the model is not there");
	ASSERT_EQ(0,
		  gguf_open(path, GGUF_METADATA_ONLY, &gguf, err, sizeof(err)));
	ASSERT_EQ(0, tokenizer_create(gguf, 0, &self->tok, err, sizeof(err)));
	gguf_close(gguf);
}

FIXTURE_TEARDOWN(real)
{
	tokenizer_destroy(self->tok);
}

/* Bytes for which SmolLM2 has no token, and U+2581 which SPM takes for a space. */
static bool is_lost(bool is_bpe, unsigned char byte)
{
	static const char lacks[] = "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2";

	if (!is_bpe)
		return byte == 0x81;
	return byte >= 0xf5 || (byte && strchr(lacks, byte));
}

static size_t make_bytes(bool is_bpe, char *text, size_t room,
			 unsigned int *seed)
{
	static const char *const bits[] = {
		"<|im_start|>", "<end_of_turn>", "\n\n", "    ",	 "'ll",
		"\u00e9",	"\U0001f600",	 "the",	 "\u4f60\u597d", "<b>",
		"\u0301",	"12345",	 "\r\n", "<unused12",	 "\t\t",
	};
	size_t len = 0, want = rand_r(seed) % (room - 16);

	while (len < want) {
		const char *bit = bits[rand_r(seed) % 15];
		unsigned char byte = (unsigned char)rand_r(seed);

		if (rand_r(seed) % 3) {
			memcpy(text + len, bit, strlen(bit));
			len += strlen(bit);
		} else if (!is_lost(is_bpe, byte)) {
			text[len++] = (char)byte;
		}
	}
	return len;
}

TEST_F(real, any_bytes_come_back)
{
	char text[256], *back;
	unsigned int seed = 1;
	size_t nr, len, back_len;
	int32_t *ids;
	int i;

	for (i = 0; i < 6000; i++) {
		unsigned int flags = i % 2 ? TOKENIZE_PARSE_SPECIAL : 0;

		len = make_bytes(variant->is_bpe, text, sizeof(text), &seed);
		ASSERT_EQ(0, tokenizer_encode(self->tok, text, len, flags, &ids,
					      &nr));
		ASSERT_EQ(0, tokenizer_decode(self->tok, ids, nr, true, &back,
					      &back_len));
		ASSERT_EQ(len, back_len);
		ASSERT_MEMEQ(text, back, len);
		free(back);
		free(ids);
	}
}

TEST_F(real, all_pieces_are_there)
{
	uint32_t nr = tokenizer_nr_tokens(self->tok), id;
	size_t len;

	for (id = 0; id < nr; id++) {
		const char *piece =
			tokenizer_piece(self->tok, (int32_t)id, true, &len);

		ASSERT_TRUE(piece != NULL);
		ASSERT_LT(0, len);
	}
}

/* A megabyte of @unit again and again comes back (a quarter, where slow). */
static void long_text(const struct tokenizer *tok, const char *unit)
{
	const size_t most = (1 << 20) / (HARNESS_TIME_SCALE > 1 ? 4 : 1);
	size_t unit_len = strlen(unit), len = most / unit_len * unit_len;
	char *text = malloc(len), *back;
	size_t nr, back_len, i;
	int32_t *ids;

	ASSERT_TRUE(text != NULL);
	for (i = 0; i < len; i++)
		text[i] = unit[i % unit_len];
	ASSERT_EQ(0, tokenizer_encode(tok, text, len, TOKENIZE_PARSE_SPECIAL,
				      &ids, &nr));
	ASSERT_EQ(0, tokenizer_decode(tok, ids, nr, true, &back, &back_len));
	EXPECT_EQ(len, back_len);
	EXPECT_MEMEQ(text, back, len);
	free(text);
	free(back);
	free(ids);
}

/* The time limit ends what is quadratic: 2^36 steps at least. */
TEST_F(real, a_megabyte_without_a_break_is_encoded)
{
	static const char *const units[] = {
		"a",	  " ",		 "\n",	       "\t",
		"ab",	  "abcdefghij",	 "\u4e2d",     "\U0001f600",
		"\u0301", "<|im_start|", "<unused",    "<unused12>",
		"<b>",	  "\xe2",	 "\xe2\x96",   "1",
		"\n ",	  "'",		 "<|im_end|>", "\r\n",
	};
	size_t i;

	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		long_text(self->tok, units[i]);
}

/* ---- threads --------------------------------------------------------------- */

struct thread_job {
	const struct tokenizer *tok;
	bool is_bpe;
	uint64_t sum; /* over all ids, in order */
};

static void *encode_many(void *arg)
{
	struct thread_job *job = arg;
	unsigned int seed = 7;
	char text[256];
	size_t nr, len, k;
	int32_t *ids;
	int i;

	for (i = 0; i < 300; i++) {
		len = make_bytes(job->is_bpe, text, sizeof(text), &seed);
		if (tokenizer_encode(job->tok, text, len, 0, &ids, &nr))
			return NULL;
		for (k = 0; k < nr; k++)
			job->sum = job->sum * 31 + (uint64_t)ids[k];
		free(ids);
	}
	return job;
}

TEST_F(real, threads_share_a_tokenizer)
{
	enum { NR = 4 };
	struct thread_job jobs[NR];
	pthread_t threads[NR];
	void *result;
	int i;

	for (i = 0; i < NR; i++) {
		jobs[i] = (struct thread_job){ self->tok, variant->is_bpe, 0 };
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, encode_many,
					    &jobs[i]));
	}
	for (i = 0; i < NR; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &result));
		EXPECT_TRUE(result == &jobs[i]);
		EXPECT_EQ(jobs[0].sum, jobs[i].sum);
	}
	EXPECT_NE(0, jobs[0].sum);
}

TEST_HARNESS_MAIN
