/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of pre-tokenizers. Constant data: any thread.
 *
 * Classes are spelt out where the regular-expression library would differ
 * from the tokenizers that models were trained with: PCRE2 counts U+180E as
 * white space, and its Unicode tables may be older than Unicode 16 (10.42
 * has 14), so the characters assigned since then are named. Newer tables
 * know them already, and naming them changes nothing.
 */
#include "engine/token/pretok_table.h"

#include <stdbool.h>
#include <string.h>

#include "engine/token/pretok.h"

/* clang-format off */
#define LETTER_NEW \
	"\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}" \
	"\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}" \
	"\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}" \
	"\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}" \
	"\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}" \
	"\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}" \
	"\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}" \
	"\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}" \
	"\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"

#define NUMBER_NEW \
	"\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}" \
	"\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}" \
	"\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}" \
	"\\x{1e5f1}-\\x{1e5fa}"

#define PUNCT_NEW \
	"\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}" \
	"\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}" \
	"\\x{1e5ff}"

/* Insides of character classes. Property first: it decides most characters. */
#define SPACE \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}" \
	"\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define LETTER "\\p{L}" LETTER_NEW
#define NUMBER "\\p{N}" NUMBER_NEW
#define PUNCT "\\p{P}" PUNCT_NEW

#define TRAILING_SPACE "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

#define GPT2_PATTERN \
	"'s|'t|'re|'ve|'m|'ll|'d" \
	"| ?[" LETTER "]+" \
	"| ?[" NUMBER "]+" \
	"| ?[^" SPACE LETTER NUMBER "]+" \
	"|" TRAILING_SPACE

#define LLAMA3_PATTERN \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)" \
	"|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]+" \
	"|[" NUMBER "]{1,3}" \
	"| ?[^" SPACE LETTER NUMBER "]+[\\r\\n]*" \
	"|[" SPACE "]*[\\r\\n]+" \
	"|" TRAILING_SPACE

static const struct pretok_row rows[] = {
	{
		.names = "smollm starcoder refact command-r exaone",
		.passes = { "[" NUMBER "]", GPT2_PATTERN },
	},
	{
		.names = "gpt-2 mpt olmo jais",
		.passes = { GPT2_PATTERN },
	},
	{
		.names = "llama-bpe llama3 llama-v3 falcon3",
		.flags = PRETOK_IGNORE_MERGES | PRETOK_ADD_BOS,
		.passes = { LLAMA3_PATTERN },
	},
	{
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
