#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes pretok_golden.bin: how each pre-tokenizer should cut some thousands of texts.

The cuts come from a public library (PyPI: tokenizers), with each model's own regular expressions,
Digits, Punctuation and normalizer, as its tokenizer.json or the pattern in its code has them.
Nothing of the engine is used.

    make_pretok_golden.py [--out DIR]          makes the file
    make_pretok_golden.py --show NAME NUMBER   prints one text and its pieces

Characters that the library's parts do not agree on, since their Unicode tables differ in age, are
left out of the texts: those younger than Unicode 16, which Digits knows and expressions do not,
and U+11938. For the same reason Falcon's Punctuation is written as an expression.

File, little-endian; v is an unsigned LEB128: "PRETOK\\0\\0", v nr of texts, per text v bytes and
the bytes (UTF-8); v nr of names, per name v bytes and the bytes, then per text a u16: the halves,
XORed, of a 32-bit FNV-1a hash over its pieces with a byte ff behind each.
"""
import argparse
import os
import random
import struct

from tokenizers import Regex, normalizers, pre_tokenizers

from make_tokens_golden import (CODE, CONTRACTIONS, GPT2, LLAMA3, PROSE, SPACES, byte_level, leb128,
                                new_chars, plain_cases, random_cases, random_char, space_cases,
                                split, write)

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LINES = r'\s*[\r\n]+|\s+(?!\S)|\s+'
QWEN2 = LLAMA3.replace(r'\p{N}{1,3}', r'\p{N}')
UPPERISH, LOWERISH = r'\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}', r'\p{Ll}\p{Lm}\p{Lo}\p{M}'


def cased(contraction, but=''):
    lead, upper, lower = r'[^\r\n\p{L}\p{N}]?', f'[{UPPERISH}{but}]', f'[{LOWERISH}{but}]'
    return f'{lead}{upper}*{lower}+{contraction}|{lead}{upper}+{lower}*{contraction}'


def gpt4o(contraction, digits):
    return rf'{cased(contraction)}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{LINES}'


DEEPSEEK_LETTERS = (
    'A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af'
    '\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1'
    '\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd'
    '\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77'
    '\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45'
    '\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe'
    '\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc'
    '\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139'
    '\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee'
    '\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf'
    '\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3'
    '\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df'
    '\U0001e900-\U0001e943')
DEEPSEEK_CJK = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+'
CJK = '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+'
BLOOM = ' ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+'

DIGITS = pre_tokenizers.Digits(individual_digits=True)
CODE_STYLE = [DIGITS, byte_level(True)]

# name: (whether characters are composed first, the steps)
ROWS = {
    'smollm': (False, CODE_STYLE),
    'command-r': (True, CODE_STYLE),
    'gpt-2': (False, [byte_level(True)]),
    'mpt': (True, [byte_level(True)]),
    'llama-bpe': (False, [split(LLAMA3), byte_level(False)]),
    'dbrx': (False, [split(LLAMA3), byte_level(False)]),
    'minicpm5': (False, [split(r'\p{N}{1,3}'), split(LLAMA3.replace('{1,3}', '+')),
                         byte_level(False)]),
    'qwen2': (True, [split(QWEN2), byte_level(False)]),
    'megrez': (False, [split(QWEN2), byte_level(False)]),
    'qwen35': (True, [split(CONTRACTION + r'|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}'
                            r'| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|' + LINES), byte_level(False)]),
    'bailingmoe': (False, [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                                 r'| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+'),
                           byte_level(False)]),
    'seed-coder': (False, [split(CONTRACTION + r'|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}'
                                 r'| ?[^\s\p{L}\p{N}\r\n]+|' + LINES), byte_level(False)]),
    'gpt-4o': (False, [split(gpt4o(CONTRACTION + '?', '{1,3}')), byte_level(False)]),
    'tekken': (False, [split(gpt4o('', '')), byte_level(False)]),
    'youtu': (False, [split('[\uac00-\ud7a3\u3131-\u318e]+'
                            '|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c'
                            '\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|' + CJK),
                      split(gpt4o(CONTRACTION + '?', '')), byte_level(False)]),
    'kimi-k2': (False, [split(r'[\p{Han}]+|' + cased(CONTRACTION + '?', r'&&[^\p{Han}]')
                              + r'|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|' + LINES),
                        byte_level(False)]),
    'tiny_aya': (False, [split(r'\d{1,3}(?=(?:\d{3})*\b)'),
                         split(gpt4o(CONTRACTION + '?', '{1,3}')), byte_level(False)]),
    'deepseek-v3': (False, [split(r'\p{N}{1,3}'), split(CJK),
                            split(r'[!"#$%&' r"'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
                                  '|[^\r\n' r'\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+'
                                  '[\r\n]*|' r'\s*' '[\r\n]+|' r'\s+(?!\S)|\s+'),
                            byte_level(False)]),
    'deepseek-coder': (False, [split('[\r\n]'), split(r'\s?\p{L}+'), split(r'\s?\p{P}+'),
                               split(DEEPSEEK_CJK), DIGITS, byte_level(False)]),
    'deepseek-llm': (False, [split('[\r\n]'), split(rf'\s?[{DEEPSEEK_LETTERS}]+'),
                             split('\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f'
                                   '\u3000-\u3002]+'),
                             split(r'\s+$'), split(DEEPSEEK_CJK), DIGITS, byte_level(False)]),
    'falcon': (False, [split(r'[\p{P}$+<=>\^`|~]+'), byte_level(True),
                       pre_tokenizers.Digits(individual_digits=False), split('[0-9][0-9][0-9]')]),
    'bloom': (False, [split(BLOOM), byte_level(False)]),
    'viking': (False, [split(BLOOM), DIGITS, byte_level(False)]),
    'default': (False, [split(r'[\p{P}\$\+<=>\^~\|]+'), split(GPT2), split(r'\p{N}+'),
                        split('[0-9][0-9][0-9]'), byte_level(False)]),
}

LEFT_OUT = {0x3250, *range(0x11de0, 0x11dea), 0x16b5a, *range(0x16ff4, 0x16ff7), 0x1ecac, 0x1ecb0,
            0x1ed2e, 0x11938}


def alphabet():
    """GPT-2's alphabet, the other way: character to byte."""
    own = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(rest)}


BYTES = alphabet()


def pieces(name, text):
    composes, steps = ROWS[name]
    if composes:
        text = normalizers.NFC().normalize_str(text)
    cut = pre_tokenizers.Sequence(steps).pre_tokenize_str(text)
    out = [bytes(BYTES[c] for c in piece) for piece, _ in cut]
    assert b''.join(out) == text.encode(), (name, text)
    return out


def hash_of(cut):
    value = 0x811c9dc5
    for byte in b''.join(piece + b'\xff' for piece in cut):
        value = (value ^ byte) * 0x01000193 & 0xffffffff
    return value >> 16 ^ value & 0xffff


# ---- texts -----------------------------------------------------------------------------------

WORDS = '''camelCase HTTPServer XMLHttpRequest iPhone McDonald getURLForID aB AbC ABc ABC a1B2
ÉcoleNormale naïveÜber ΑΒΓδε ΠΑΠΆΣσς ПриветМир ДОМдом ǅungla ǄUNGLA ʰʷModifier ªº ﬁx ſo ᏣᎳᎩꮳꮃꭹ
𐐀𐐨 ⅧⅷⅧ ⓐⒶ ᾈᾀ İIiı'''.split()
HAN = '''我们在北京 中文English混合 漢字カタカナひらがな 〇一二 ⺀⼀ 々〻 ㊀㊁
𠀀𪛖 豈更 ﷺ 한국어漢字 ㄅㄆㄇ ｱｲｳ 龘'''.split()
THAI = '''สวัสดีชาวโลก ภาษาไทย๑๒๓
ลาวພາສາ ភាសាខ្មែរ မြန်မာ
བོད་ཡིག हिन्दी भाषा বাংলা
தமிழ் తెలుగు ಕನ್ನಡ മലയാളം'''.split()
MARKS = ['e\u0301', 'A\u030a', 'o\u0302\u0301', 'a\u0323\u0306', 'u\u0308\u0304',
         '\u1100\u1161\u11a8', '\u09c7\u09be', 'q\u0323\u0307', 'q\u0307\u0323', '\u212b',
         '\u2126', '\u0344', '\u0958', '\u0301\u0300', '\u0327\u0301c', '\uac00\u11a8',
         'D\u0307\u0323', '\u3099', '\u304b\u3099', '\u0338=', '=\u0338', 'X\u20dd', '\u1fbe',
         '\u1f71', '\u2adc', '\ufb1d', '\u0f73']
YOUNG = ['\u0897', '\u1c89', '\u1c8a', '\ua7da', '\ua7db', '\U00010d50', '\U00010d70',
         '\U00010d69', '\U00010d4e', '\U0001e030', '\U0001e4eb', '\U0001e4ec', '\U00011f00',
         '\U00011f34', '\U0001cc00', '\U0001fae8', '\u2ffc', '\u31ef', '\U00031350', '\U0002ebf0',
         '\U000116d0', '\U0001ccf0', '\U00011f50', '\u1b4e', '\U00011b00', '\U00016d40',
         '\U0001df25']
HAN_EDGES = ['\u3005', '\u3007', '\u3021', '\u302a', '\u3038', '\u303b', '\u2e80', '\u2fd5',
             '\u31c0', '\ufa0e', '\U00016fe2', '\U00016ff0', '\U0002f800', '\u30fc', '\u309b',
             '\ufe30']
SIGNS = ['/', '//', '/\n', '!\r\n', '...', '\u3002', '\uff0c', '\u060c', '\u0964', '(x)', '|',
         '$', '+=', '`', '\u2019s', '\u2018', '\u201c', '\u20ac', '\xb2', '\xbd', '\xa9',
         '\u200b', '\u200d', '\ufeff', '\x00', '\x7f', '\xad', '\ue000', '\U000e0067']


def case_words(rng):
    for word in WORDS + HAN + THAI + MARKS + YOUNG + HAN_EDGES + SIGNS:
        yield from (word, ' ' + word, 'a' + word, 'A' + word + 'b', '1' + word + '2',
                    word + "'S", '!' + word, '\n' + word + '\n')
    kinds = [WORDS, HAN, THAI, MARKS, YOUNG, HAN_EDGES, SIGNS, SPACES, CONTRACTIONS,
             ['1', '22', '333', '4444', '55555', '\u0661\u0662\u0663', '\u0e51\u0e52',
              '\u00b2\u00b3', '\u00bd', '\u2167'],
             ["'S", "'RE", "'Ll", '\u2019T', '\u2019re', "'\u017f"],
             ['a', 'B', '\u00e9', '\u00c9', '\u00f2', '\u00fe']]
    for _ in range(700):
        yield ''.join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(2, 7)))
    few = ['A', 'b', '\u4e00', '\u0301', '\u02b0', '\u05d0', '\u01c5', '1', "'", 's', ' ', '.',
           '\n', '\u3007']
    for _ in range(400):
        yield ''.join(rng.choice(few) for _ in range(rng.randrange(2, 10)))


def digit_groups(rng):
    for text in ('1234567', '  1234abc', 'a1234567 b', '12_345_678', '1,234,567.8901', "1234's",
                 '12345\u00b2', '1234\u0661\u0662\u0663', '1234\u4e00', '1234-5678', 'v1234.x5678',
                 '1234\u203f5678', '\U00010d40' * 4, '12\n3456\n', '1' * 100, '1' * 101 + 'x',
                 '1234\u0301 12', '1234\u2160', '1234\u24b6', '1234\u3280', '1234\u00bd'):
        yield from (text, ' ' + text, text + ' ', text * 2)
    for _ in range(150):
        yield ''.join(rng.choice('0123456789') * rng.randrange(0, 9)
                      + rng.choice(['', ' ', '  ', ',', '.', 'a', '_', '\u0301', '\u00bd', '\n',
                                    '\u0e51'])
                      for _ in range(rng.randrange(1, 5)))


def long_runs(rng):
    for unit in (' ', '\n', '\t', '1', 'a', 'A', "'", '-', '\u0301', '\u4e00', '\r\n', ' \n',
                 '\u3000', '\u200b', 'Aa', 'aA', '\u0e01', '\u00b2', '/', '\u0327\u0301'):
        for nr in (2, 3, 7, 40, 129):
            yield from (unit * nr, 'x' + unit * nr + 'y', unit * nr + '1', unit * nr + '\u4e00')
    for _ in range(150):
        yield ''.join(rng.choice(' \n\t\r\u3000\xa0') * rng.randrange(1, 30)
                      + rng.choice(['', 'x', '\u4e00', '1', '.']) for _ in range(3))


def texts():
    rng = random.Random(20261130)
    seen = {}
    # Of the first three a half: tokens_cases.bin has them all.
    for source, step in ((plain_cases, 2), (space_cases, 2), (random_cases, 2), (case_words, 1),
                         (long_runs, 1), (digit_groups, 1)):
        for text in list(source(rng))[::step]:
            if text and not LEFT_OUT & set(map(ord, text)):
                seen[text] = None
    chars = new_chars()
    for _ in range(200):
        text = ''.join(rng.choice([rng.choice(chars), random_char(rng), 'a', 'B', ' '])
                       for _ in range(rng.randrange(2, 7)))
        if not LEFT_OUT & set(map(ord, text)):
            seen[text] = None
    lines = CODE + PROSE
    seen[lines] = None
    return list(seen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--out', default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument('--show', nargs=2, metavar=('NAME', 'NUMBER'))
    args = parser.parse_args()
    cases = texts()
    if args.show:
        text = cases[int(args.show[1])]
        print(repr(text), '\n', *map(repr, pieces(args.show[0], text)))
        return
    body = bytearray()
    for text in cases:
        data = text.encode()
        body += leb128(len(data)) + data
    body += leb128(len(ROWS))
    for name in ROWS:
        body += leb128(len(name)) + name.encode()
        body += b''.join(struct.pack('<H', hash_of(pieces(name, text))) for text in cases)
    write(os.path.join(args.out, 'pretok_golden.bin'), b'PRETOK\0\0', len(cases), bytes(body))
    print(f'{len(cases)} texts, {len(ROWS)} names')


if __name__ == '__main__':
    main()
