/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of pre-tokenizers. Constant data: any thread.
 *
 * A row says what the tokenizer that the models of that name came with does
 * (tokenizer.json, or the pattern in its code), which is not always what is
 * done elsewhere with a GGUF file:
 *
 *   - (?i:'s) also finds U+017F, the long s.
 *   - gpt-4o, llama4, tekken and kimi-k2 tell upper case from lower in all
 *     scripts, not in ASCII alone, and marks go with letters.
 *   - pixtral is cut as its makers' tokenizer does, which is tekken's way.
 *   - deepseek-llm takes digits one by one, as deepseek-coder does.
 *   - falcon looks for digits among bytes: what it takes for one may be a
 *     part of a character, and groups of three end a search, not a text.
 *   - qwen2, qwen35, command-r and others compose characters first (NFC).
 *   - gpt-4o, llama4, kimi-k2, hunyuan and chatglm-bpe come from tiktoken, which
 *     takes a pre-token that is a token as a whole before it merges.
 */
#include "engine/token/pretok_table.h"

#include <stdbool.h>
#include <string.h>

#include "engine/token/pretok.h"
#include "engine/token/pretok_classes.h"

/* clang-format off */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TRAILING_SPACE "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINES_AND_SPACE "[" SPACE "]*[\\r\\n]+|" TRAILING_SPACE

/* A word with one character that is neither letter nor digit in front. */
#define LEAD "[^\\r\\n" LETTER NUMBER "]?"
#define WORD LEAD "[" LETTER "]+"
#define SYMBOLS " ?[^" SPACE LETTER NUMBER "]+"

#define GPT2_PATTERN \
	"'s|'t|'re|'ve|'m|'ll|'d" \
	"| ?[" LETTER "]+" \
	"| ?[" NUMBER "]+" \
	"|" SYMBOLS \
	"|" TRAILING_SPACE

/* GPT-4's, with its many heirs. @digits: how many go together. */
#define GPT4_PATTERN(digits) \
	CONTRACTION "|" WORD "|[" NUMBER "]" digits \
	"|" SYMBOLS "[\\r\\n]*|" LINES_AND_SPACE

#define QWEN35_PATTERN \
	CONTRACTION "|" LEAD "[" LETTER MARK "]+|[" NUMBER "]" \
	"| ?[^" SPACE LETTER MARK NUMBER "]+[\\r\\n]*|" LINES_AND_SPACE

/* Words that end where lower case is followed by upper case. */
#define CASED_WORD(contraction) \
	LEAD "[" UPPER CASELESS "]*[" LOWER CASELESS "]+" contraction \
	"|" LEAD "[" UPPER CASELESS "]+[" LOWER CASELESS "]*" contraction

#define GPT4O_PATTERN(contraction, digits) \
	CASED_WORD(contraction) "|[" NUMBER "]" digits \
	"|" SYMBOLS "[\\r\\n/]*|" LINES_AND_SPACE

/*
 * GPT-4o's with runs of Han by themselves. What is in both brackets there,
 * caseless, may be part of either half here too; the halves are possessive,
 * for a group that backtracks holds memory for each character. In order:
 * upper case and on to lower case, or up to the last caseless one, or all
 * upper case.
 */
#define NOT_HAN(class) "(?![" HAN "])[" class "]"
#define KIMI_UPPER "(?:" NOT_HAN(UPPER CASELESS) ")"
#define KIMI_LOWER "(?:" NOT_HAN(LOWER CASELESS) ")"
#define KIMI_CASELESS "(?:" NOT_HAN(CASELESS) ")"
#define KIMI_PATTERN \
	"[" HAN "]+" \
	"|" LEAD "(?:" KIMI_UPPER "*+[" LOWER "]" KIMI_LOWER "*+" \
		"|(?:[" UPPER "]*+" KIMI_CASELESS "++)++)" CONTRACTION "?" \
	"|" LEAD KIMI_UPPER "++" CONTRACTION "?" \
	"|[" NUMBER "]{1,3}|" SYMBOLS "[\\r\\n]*|" LINES_AND_SPACE

#define DEEPSEEK3_PATTERN \
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
	"|[^\\r\\n" LETTER PUNCT SYMBOL "]?[" LETTER MARK "]+" \
	"| ?[" PUNCT SYMBOL "]+[\\r\\n]*|" LINES_AND_SPACE

/*
 * Digits in groups of three from the right, where a word ends with them: the
 * group at the left is cut off once, where a run begins, then the others from
 * there. To look ahead at each place would be quadratic.
 */
#define FIRST_OF_GROUPS \
	"(?<![" DIGIT "])[" DIGIT "]{1,3}(?=(?:[" DIGIT "]{3})*+" \
	"(?![" WORD_CHAR "]))"
#define NEXT_OF_GROUPS "\\G[" DIGIT "]{3}"

#define BLOOM_PATTERN \
	" ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}" \
	"\\x{964}\\x{6d4}\\x{60c})]+"

/* Letters of Latin, Greek, Cyrillic and other scripts with two cases. */
#define DEEPSEEK_LETTER \
	"A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}" \
	"\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
	"\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}" \
	"\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}" \
	"\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}" \
	"\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}" \
	"\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}" \
	"\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}" \
	"\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}" \
	"\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}" \
	"\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}" \
	"\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}" \
	"\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}" \
	"\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
	"\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}" \
	"\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}" \
	"\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}" \
	"\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}" \
	"\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}" \
	"\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}" \
	"\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}" \
	"\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}" \
	"\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_PUNCT \
	"!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}" \
	"\\x{3000}-\\x{3002}"
#define DEEPSEEK_CJK "\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}"

/* Youtu's East Asian runs, one kind at a time. */
#define YOUTU_PATTERN \
	"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+" \
	"|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}" \
		"\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+" \
	"|[\\x{3105}-\\x{312f}]+|[" CJK "]+"

static const struct pretok_row rows[] = {
	{
		.names = "smollm starcoder refact codeshell exaone minerva-7b "
			 "mellum2 granite",
		.passes = { "[" NUMBER "]", GPT2_PATTERN },
	},
	{
		.names = "command-r",
		.flags = PRETOK_NFC,
		.passes = { "[" NUMBER "]", GPT2_PATTERN },
	},
	{
		.names = "gpt-2 jais phi-2 gigachat a.x-4.0 mellum exaone4 "
			 "trillion granite-docling",
		.passes = { GPT2_PATTERN },
	},
	{
		.names = "mpt olmo",
		.flags = PRETOK_NFC,
		.passes = { GPT2_PATTERN },
	},
	{
		.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 midm-2.0 "
			 "lfm2",
		.flags = PRETOK_IGNORE_MERGES | PRETOK_ADD_BOS,
		.passes = { GPT4_PATTERN("{1,3}") },
	},
	{
		.names = "dbrx smaug-bpe",
		.passes = { GPT4_PATTERN("{1,3}") },
	},
	{
		.names = "chatglm-bpe glm4",
		.flags = PRETOK_IGNORE_MERGES,
		.passes = { GPT4_PATTERN("{1,3}") },
	},
	{
		.names = "minicpm5",
		.flags = PRETOK_IGNORE_MERGES,
		.passes = { "[" NUMBER "]{1,3}", GPT4_PATTERN("+") },
	},
	{
		.names = "qwen2 deepseek-r1-qwen stablelm2 f2llmv2",
		.flags = PRETOK_NFC,
		.passes = { GPT4_PATTERN("") },
	},
	{
		.names = "hunyuan",
		.flags = PRETOK_IGNORE_MERGES | PRETOK_NFC,
		.passes = { GPT4_PATTERN("") },
	},
	{
		.names = "megrez kormo solar-open grok-2",
		.passes = { GPT4_PATTERN("") },
	},
	{
		.names = "qwen35",
		.flags = PRETOK_NFC,
		.passes = { QWEN35_PATTERN },
	},
	{
		.names = "bailingmoe bailingmoe2 llada-moe",
		.passes = {
			CONTRACTION "|" LEAD "+[" LETTER "]+|[" NUMBER "]"
			"|" SYMBOLS "+[\\r\\n]*|[" SPACE "]*[\\r\\n]|"
			TRAILING_SPACE,
		},
	},
	{
		.names = "seed-coder",
		.passes = {
			CONTRACTION "|" WORD "|[" NUMBER "]"
			"| ?[^\\r\\n" SPACE LETTER NUMBER "]+|" LINES_AND_SPACE,
		},
	},
	{
		.names = "gpt-4o llama4",
		.flags = PRETOK_IGNORE_MERGES,
		.passes = { GPT4O_PATTERN(CONTRACTION "?", "{1,3}") },
	},
	{
		.names = "kanana2 talkie minimax-m2",
		.passes = { GPT4O_PATTERN(CONTRACTION "?", "{1,3}") },
	},
	{
		.names = "tiny_aya cohere2moe",
		.passes = {
			FIRST_OF_GROUPS,
			NEXT_OF_GROUPS,
			GPT4O_PATTERN(CONTRACTION "?", "{1,3}"),
		},
	},
	{
		.names = "tekken pixtral",
		.flags = PRETOK_IGNORE_MERGES | PRETOK_ADD_BOS,
		.passes = { GPT4O_PATTERN("", "") },
	},
	{
		.names = "youtu",
		.flags = PRETOK_IGNORE_MERGES,
		.passes = {
			YOUTU_PATTERN,
			GPT4O_PATTERN(CONTRACTION "?", ""),
		},
	},
	{
		.names = "kimi-k2",
		.flags = PRETOK_IGNORE_MERGES,
		.passes = { KIMI_PATTERN },
	},
	{
		.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
		.passes = {
			"[" NUMBER "]{1,3}",
			"[" CJK "]+",
			DEEPSEEK3_PATTERN,
		},
	},
	{
		.names = "deepseek-coder",
		.passes = {
			"[\\r\\n]",
			"[" SPACE "]?[" LETTER "]+",
			"[" SPACE "]?[" PUNCT "]+",
			"[" DEEPSEEK_CJK "]+",
			"[" NUMBER "]",
		},
	},
	{
		.names = "deepseek-llm",
		.passes = {
			"[\\r\\n]",
			"[" SPACE "]?[" DEEPSEEK_LETTER "]+",
			"[" SPACE "]?[" DEEPSEEK_PUNCT "]+",
			/* Space at the end: looked for once a run, not at each of its places. */
			"(?<![" SPACE "])[" SPACE "]+\\z",
			"[" DEEPSEEK_CJK "]+",
			"[" NUMBER "]",
		},
	},
	{
		.names = "falcon",
		.passes = {
			"[" PUNCT "$+<=>^`|~]+",
			GPT2_PATTERN,
			/* 0 to 9 and the bytes that are Latin-1's superscripts and fractions. */
			"[0-9\\xb2\\xb3\\xb9\\xbc-\\xbe]+",
			"[0-9][0-9][0-9]",
		},
		.nr_byte_passes = 2,
	},
	{
		.names = "poro-chat bloom gpt3-finnish",
		.passes = { BLOOM_PATTERN },
	},
	{
		.names = "viking",
		.passes = { BLOOM_PATTERN, "[" NUMBER "]" },
	},
	{
		/* No model's own: what a file without a name is taken for. */
		.names = "default",
		.passes = {
			"[" PUNCT "$+<=>^~|]+",
			GPT2_PATTERN,
			"[" NUMBER "]+",
			"[0-9][0-9][0-9]",
		},
	},
};
/* clang-format on */

static bool is_among(const char *names, const char *name, size_t len)
{
	while (*names) {
		size_t own_len = strcspn(names, " ");

		if (own_len == len && memcmp(names, name, len) == 0)
			return true;
		names += own_len;
		names += strspn(names, " ");
	}
	return false;
}

const struct pretok_row *pretok_row_find(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (is_among(rows[i].names, name, len))
			return &rows[i];
	}
	return NULL;
}

const struct pretok_row *pretok_row_at(size_t index)
{
	return index < sizeof(rows) / sizeof(rows[0]) ? &rows[index] : NULL;
}
