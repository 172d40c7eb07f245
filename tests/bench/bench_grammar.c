/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What structured output costs a token: the mask of a state when it is first met and when it is
 * kept, over a JSON answer cut into a real vocabulary's tokens. One thread, medians of runs.
 *
 * Usage: bench_grammar [FILE.gguf], or the file that TARN_TEST_MODEL names. Bar: with a vocabulary
 * of 50k tokens under 100 us a token on average over an answer, first masks included.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/ast.h"
#include "engine/grammar/mask.h"
#include "engine/model/gguf.h"
#include "engine/token/tokenizer.h"
#include "tests/bench/times.h"

enum { NR_RUNS = 9, MAX_TOKENS = 1024 };

static const char json_grammar[] =
	"root ::= object\n"
	"value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
	"object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? ws \"}\"\n"
	"array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
	"string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | "
	"\"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\"\n"
	"number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)?\n"
	"ws ::= [ \\n]{0,20}\n";

/* Strings that are counted: a state of its own for each character. */
static const char counted_grammar[] =
	"root ::= \"{\\\"name\\\": \" text \", \\\"text\\\": \" text \"}\"\n"
	"text ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\/bfnrt]){0,1000} \"\\\"\"\n";

static const char json_answer[] =
	"{\"title\": \"Operating systems, in short\", \"year\": 2024, \"tags\": [\"kernel\", "
	"\"memory\", \"sched\\u00e9\"], \"rating\": 4.75e0, \"open\": true, \"notes\": null,\n"
	"  \"author\": {\"first\": \"Ada\", \"last\": \"L\xc3\xb6"
	"fgren\", \"age\": 36},\n"
	"  \"summary\": \"An operating system shares the machine between programs, and keeps "
	"each of them from harming the others.\", \"pages\": [1, 20, 300, -4]}";

static const char counted_answer[] =
	"{\"name\": \"Ada L\xc3\xb6"
	"fgren\", \"text\": \"An operating system shares the machine "
	"between programs, and keeps each of them from harming the others. It also hides what "
	"differs from one machine to the next, so that programs run on all of them.\"}";

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "bench_grammar: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static double now_us(void)
{
	return clock_s(CLOCK_THREAD_CPUTIME_ID) * 1e6;
}

static struct grammar *compile(const char *text)
{
	struct grammar *g;
	struct ast ast;
	char err[256] = "";
	int rc = gbnf_read(text, strlen(text), &ast, err, sizeof(err));

	if (!rc)
		rc = grammar_compile(&ast, &g, err, sizeof(err));
	must(rc, err);
	ast_deinit(&ast);
	return g;
}

struct costs {
	double mean_us, max_us, advance_us;
};

/* Over all tokens of an answer; masks that @cache does not have are made. */
static struct costs walk(struct grammar *g, struct mask_cache *cache,
			 const int32_t *ids, size_t nr)
{
	struct costs costs = { 0 };
	uint32_t state = grammar_start(g);

	for (size_t i = 0; i < nr; i++) {
		double start = now_us(), found;
		struct mask m;

		must(mask_find(cache, state, &m), "mask");
		found = now_us();
		costs.mean_us += (found - start) / (double)nr;
		if (found - start > costs.max_us)
			costs.max_us = found - start;
		if (!(m.allowed[ids[i] >> 6] >> (ids[i] & 63) & 1))
			must(-EINVAL, "the answer's token is not allowed");
		must(mask_advance(cache, state, ids[i], &state), "advance");
		costs.advance_us += (now_us() - found) / (double)nr;
	}
	return costs;
}

static void measure(const struct tokenizer *tok, const struct token_trie *trie,
		    const char *name, const char *text, const char *answer)
{
	double first[NR_RUNS], first_max[NR_RUNS], again[NR_RUNS],
		advance[NR_RUNS], made[NR_RUNS];
	uint32_t nr_states = 0;
	int32_t *ids;
	size_t nr;

	must(tokenizer_encode(tok, answer, strlen(answer), 0, &ids, &nr),
	     "tokens");
	for (int run = 0; run < NR_RUNS; run++) {
		double start = now_us();
		struct grammar *g = compile(text);
		struct mask_cache *cache;
		struct costs costs;

		made[run] = now_us() - start;
		must(mask_cache_create(g, trie, &cache), "cache");
		costs = walk(g, cache, ids, nr);
		first[run] = costs.mean_us;
		first_max[run] = costs.max_us;
		costs = walk(g, cache, ids, nr);
		again[run] = costs.mean_us;
		advance[run] = costs.advance_us;
		nr_states = grammar_nr_states(g);
		mask_cache_destroy(cache);
		grammar_destroy(g);
	}
	printf("%-8s compiled in %.0f us; %zu tokens, %u states; a token: first mask %.1f us "
	       "(longest %.0f), kept %.2f us, advance %.2f us\n",
	       name, quantile(made, NR_RUNS, 0.5), nr, nr_states,
	       quantile(first, NR_RUNS, 0.5), quantile(first_max, NR_RUNS, 0.5),
	       quantile(again, NR_RUNS, 0.5), quantile(advance, NR_RUNS, 0.5));
	free(ids);
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : getenv("TARN_TEST_MODEL");
	struct token_trie *trie;
	struct tokenizer *tok;
	struct gguf *gguf;
	char err[256] = "";
	double start;

	if (!path || !*path) {
		fprintf(stderr, "usage: bench_grammar FILE.gguf\n");
		return 1;
	}
	must(gguf_open(path, GGUF_METADATA_ONLY, &gguf, err, sizeof(err)), err);
	must(tokenizer_create(gguf, &tok, err, sizeof(err)), err);
	gguf_close(gguf);
	start = now_us();
	must(token_trie_create(tok, tokenizer_nr_tokens(tok), &trie), "trie");
	printf("%u tokens; trie in %.1f ms\n", tokenizer_nr_tokens(tok),
	       (now_us() - start) / 1e3);
	measure(tok, trie, "json", json_grammar, json_answer);
	measure(tok, trie, "counted", counted_grammar, counted_answer);
	token_trie_destroy(trie);
	tokenizer_destroy(tok);
	return 0;
}
