/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Character classes of the pre-tokenizers, as the insides of a bracket
 * expression. Constant text.
 *
 * Classes are spelt out where the regular-expression library would differ
 * from the tokenizers that models were trained with: PCRE2 counts U+180E as
 * white space, and its Unicode tables may be older than Unicode 16 (10.42
 * has 14), so the characters assigned since then are named. Newer tables
 * know them already, and naming them changes nothing.
 */
#ifndef TARN_ENGINE_TOKEN_PRETOK_CLASSES_H
#define TARN_ENGINE_TOKEN_PRETOK_CLASSES_H

/* clang-format off */
#define UPPER_NEW \
	"\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}" \
	"\\x{10d50}-\\x{10d65}"

#define LOWER_NEW \
	"\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}" \
	"\\x{1df25}-\\x{1df2a}"

#define MODIFIER_NEW \
	"\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}" \
	"\\x{1e030}-\\x{1e06d}\\x{1e4eb}"

#define OTHER_NEW \
	"\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}" \
	"\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}" \
	"\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}" \
	"\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}" \
	"\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}" \
	"\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}" \
	"\\x{18cff}\\x{1b132}\\x{1b155}\\x{1e4d0}-\\x{1e4ea}" \
	"\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}" \
	"\\x{31350}-\\x{323af}"

#define MARK_NEW \
	"\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}" \
	"\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}" \
	"\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}" \
	"\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f03}" \
	"\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}" \
	"\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x{1e08f}" \
	"\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}"

#define NUMBER_NEW \
	"\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}" \
	"\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}" \
	"\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}" \
	"\\x{1e5f1}-\\x{1e5fa}"

/* Those of them that are decimal digits. */
#define DIGIT_NEW \
	"\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}" \
	"\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}" \
	"\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

#define PUNCT_NEW \
	"\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}" \
	"\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}\\x{11be1}" \
	"\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"

#define SYMBOL_NEW \
	"\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}" \
	"\\x{10d8e}-\\x{10d8f}\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}" \
	"\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}" \
	"\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}" \
	"\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}" \
	"\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}" \
	"\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}" \
	"\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"

#define SPACE \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}" \
	"\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* Property first: it decides most characters. */
#define LETTER "\\p{L}" OTHER_NEW MODIFIER_NEW UPPER_NEW LOWER_NEW
#define MARK "\\p{M}" MARK_NEW
#define NUMBER "\\p{N}" NUMBER_NEW
#define DIGIT "\\p{Nd}" DIGIT_NEW
#define PUNCT "\\p{P}" PUNCT_NEW
#define SYMBOL "\\p{S}" SYMBOL_NEW

/* Letters of one case only, and those (with marks) that go with either case. */
#define UPPER "\\p{Lu}\\p{Lt}" UPPER_NEW
#define LOWER "\\p{Ll}" LOWER_NEW
#define CASELESS "\\p{Lo}\\p{Lm}\\p{M}" OTHER_NEW MODIFIER_NEW MARK_NEW

/*
 * The script Han, symbols and numbers included. Not \p{Han}: since 10.40
 * that is what may be used with the script too.
 */
#define HAN \
	"\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}" \
	"\\x{3021}-\\x{3029}\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}" \
	"\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}-\\x{16fe3}" \
	"\\x{16ff0}-\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}" \
	"\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}\\x{2ceb0}-\\x{2ebe0}" \
	"\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}" \
	"\\x{31350}-\\x{323af}"

/* What \w is to the library that the models' tokenizers use. */
#define WORD_CHAR \
	LETTER MARK DIGIT "\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" \
	"\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}" \
	"\\x{1f170}-\\x{1f189}"

/* Ideographs and kana, as DeepSeek V3 takes them. */
#define CJK "\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}"
/* clang-format on */

#endif /* TARN_ENGINE_TOKEN_PRETOK_CLASSES_H */
