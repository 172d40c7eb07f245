#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokens_cases.bin and tokens_*.bin: which ids texts should become.

Vocabularies, merges and scores come from the two real model files; the ids
come from public libraries (PyPI: tokenizers, sentencepiece, protobuf), built
here as the original tokenizers are. Nothing of the engine is used.

    make_tokens_golden.py --smollm2 FILE --gemma3 FILE [--out DIR]

  smollm, gpt-2, llama-bpe, default
      the vocabulary of SmolLM2 under that pre-tokenizer: BPE over Split and
      ByteLevel as in the tokenizer.json of SmolLM2 (Digits, ByteLevel), of
      GPT-2, of Llama 3 (with ignore_merges) and as files without a name have it.
  qwen2, gpt-4o, tekken, kimi-k2, deepseek-v3, falcon
      the same with the steps of make_pretok_golden.py (those that come from tiktoken with
      ignore_merges).
  gemma
      SentencePiece's BPE over Gemma's pieces and scores.
  gemma-prefix
      the same with a space put in front and user-defined pieces made normal
      ones, as Llama 2 has it. No ids for cases with specials.

Cases "with specials" have control tokens parsed; the others do not.

What the libraries cannot take is defined by these rules:
  Bytes that are not UTF-8. The text is cut into the longest stretches of
  well-formed characters and the runs of bytes between (each byte at which no
  such character starts counts alone). BPE: a run is one pre-token of its
  bytes. SPM: each such byte is its byte token, and nothing merges across.

Files, little-endian; v is an unsigned LEB128:
  tokens_cases.bin  "TOKCASE\\0", v nr, then per case: v flags (1: with
                    specials), v bytes, the bytes.
  tokens_NAME.bin   "TOKIDS\\0\\0", v nr of cases, then per case: v 0 when the
                    ids are those of smollm, else v nr + 1 and nr times v id.
"""
import argparse
import os
import random
import struct
import sys
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as sp_pb
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
SPACE = '\u2581'


# ---- GGUF ------------------------------------------------------------------------------------

def read_metadata(path):
    scalars = 'BbHhIif?'
    wide = {10: 'Q', 11: 'q', 12: 'd'}
    with open(path, 'rb') as f:
        def number(code):
            return struct.unpack('<' + code, f.read(struct.calcsize('<' + code)))[0]

        def value(kind):
            if kind < 8:
                return number(scalars[kind])
            if kind == 8:
                return f.read(number('Q'))
            if kind == 9:
                elem, nr = number('I'), number('Q')
                return [value(elem) for _ in range(nr)]
            return number(wide[kind])

        if f.read(4) != b'GGUF' or number('I') not in (2, 3):
            sys.exit(f'{path}: not a GGUF file of version 2 or 3')
        number('Q')
        return {value(8).decode(): value(number('I')) for _ in range(number('Q'))}


def stretches(data):
    """[(is_valid, bytes)]: Python's decoder finds the same bytes invalid."""
    out = []
    for c in data.decode('utf-8', 'surrogateescape'):
        bad = '\udc80' <= c <= '\udcff'
        piece = c.encode('utf-8', 'surrogateescape')
        if out and out[-1][0] != bad:
            out[-1][1].extend(piece)
        else:
            out.append((not bad, bytearray(piece)))
    return [(valid, bytes(piece)) for valid, piece in out]


# ---- references ------------------------------------------------------------------------------

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), 'isolated')


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


PRE_TOKENIZERS = {
    'smollm': [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    'gpt-2': [byte_level(True)],
    'llama-bpe': [split(LLAMA3), byte_level(False)],
    'default': [split(r'[\p{P}\$\+<=>\^~\|]+'), split(GPT2), split(r'\p{N}+'),
                split('[0-9][0-9][0-9]'), byte_level(False)],
}


# Names whose steps make_pretok_golden.py has.
OTHER_NAMES = ('qwen2', 'gpt-4o', 'tekken', 'kimi-k2', 'deepseek-v3', 'falcon')


def bpe_steps(name):
    if name in PRE_TOKENIZERS:
        return False, PRE_TOKENIZERS[name]
    # Not at the top: that module takes its texts from this one.
    from make_pretok_golden import ROWS  # pylint: disable=import-outside-toplevel
    return ROWS[name]


class Bpe:
    def __init__(self, meta, name):
        tokens = [t.decode() for t in meta['tokenizer.ggml.tokens']]
        merges = [tuple(m.decode().split(' ')) for m in meta['tokenizer.ggml.merges']]
        vocab = {t: i for i, t in enumerate(tokens)}
        ignore = name in ('llama-bpe', 'gpt-4o', 'tekken', 'kimi-k2')
        composes, steps = bpe_steps(name)
        self.plain = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore))
        self.special = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore))
        for tok in (self.plain, self.special):
            tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
            if composes:
                tok.normalizer = normalizers.NFC()
        types = meta['tokenizer.ggml.token_type']
        self.special.add_special_tokens(
            [AddedToken(t, normalized=False, special=True)
             for t, kind in zip(tokens, types) if kind == CONTROL])
        # GPT-2's alphabet: printable Latin-1 stands for itself, the rest follows U+0100.
        own = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
        rest = [b for b in range(256) if b not in own]
        self.alphabet = {b: chr(b) for b in own}
        self.alphabet |= {b: chr(0x100 + i) for i, b in enumerate(rest)}

    def encode(self, data, with_special):
        tok = self.special if with_special else self.plain
        ids = []
        for valid, piece in stretches(data):
            if valid:
                ids += tok.encode(piece.decode(), add_special_tokens=False).ids
            else:
                mapped = ''.join(self.alphabet[b] for b in piece)
                ids += [t.id for t in tok.model.tokenize(mapped)]
        return ids


def sp_processor(meta, space_prefix=False, special=False, no_user_defined=False):
    model = sp_pb.ModelProto()
    model.trainer_spec.model_type = sp_pb.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.name = 'identity'
    model.normalizer_spec.add_dummy_prefix = space_prefix
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    rows = zip(meta['tokenizer.ggml.tokens'], meta['tokenizer.ggml.scores'],
               meta['tokenizer.ggml.token_type'])
    for text, score, kind in rows:
        if kind == USER_DEFINED and no_user_defined:
            kind = NORMAL
        elif kind == CONTROL and special:
            kind = USER_DEFINED
        model.pieces.add(piece=text.decode().replace(' ', SPACE), score=score, type=kind)
    # The library wants one unknown piece; no text finds this one.
    model.pieces.add(piece='<unknown piece of the library>', score=0, type=UNKNOWN)
    model.trainer_spec.unk_id = len(model.pieces) - 1
    for name in ('bos', 'eos', 'pad'):
        setattr(model.trainer_spec, name + '_id', -1)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


class Spm:
    def __init__(self, meta):
        self.byte_ids = {}
        for i, text in enumerate(meta['tokenizer.ggml.tokens']):
            if len(text) == 6 and text.startswith(b'<0x'):
                self.byte_ids[int(text[3:5], 16)] = i
        self.processors = [sp_processor(meta), sp_processor(meta, special=True)]

    def encode_with(self, processor, data):
        ids = []
        for valid, piece in stretches(data):
            if valid:
                ids += processor.encode(piece.decode())
            else:
                ids += [self.byte_ids[b] for b in piece]
        return ids

    def encode(self, data, special):
        return self.encode_with(self.processors[special], data)


class SpmPrefix(Spm):
    def __init__(self, meta):
        super().__init__(meta)
        self.spaced = sp_processor(meta, space_prefix=True, no_user_defined=True)
        self.bare = sp_processor(meta, no_user_defined=True)

    def encode(self, data, special):
        # Which space follows a special token is no question to the library.
        if special:
            return []
        if stretches(data) == [(True, data)]:
            return self.spaced.encode(data.decode())
        return self.encode_with(self.bare, b' ' + data) if data else []


# ---- cases -----------------------------------------------------------------------------------

CODE = r'''
#include <stdio.h>
int main(int argc, char **argv)
{
	for (size_t i = 0; i < nr_pages; i++)
		printf("%d: 0x%08lx\n", i, (unsigned long)pages[i]);
	return argc > 1 ? strtol(argv[1], NULL, 10) : -EINVAL; /* why */
}
def fib(n: int) -> int:
    """Return the n-th number."""
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


class Pool(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._lock = threading.RLock()  # guards _free
const sum = (xs) => xs.reduce((a, b) => a + b, 0);
let s = `total: ${sum([1,2,3])}`; if (!s?.length) { throw new Error('no'); }
<table><tr><td class="x">1</td><td>2</td></tr></table><br/><!-- end -->
{"model": "m", "messages": [{"role": "user", "content": "hi\n\t\u00e9"}], "n": 1.5e-3}
SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 AND b <> 'q''s' GROUP BY 1;
fn main() -> Result<(), Box<dyn Error>> { let v: Vec<u8> = vec![0; 16]; Ok(()) }
$ find . -name '*.c' | xargs -0 grep -nE '^static [a-z_]+ \*?' > /dev/null 2>&1
\begin{equation} \sum_{i=0}^{n} x_i^2 \leq \|x\|^2 \end{equation}
-----BEGIN KEY----- MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A -----END KEY-----
'''

PROSE = '''The quick brown fox jumps over the lazy dog. It's what we'd call "nice", isn't it?
They've said we'll see; I'm sure you're right, he'd go. SHOUTING DON'T HELP, WE'LL SEE, I'M OK.
Don’t use “curly” quotes — or do… it’s 50\u00a0% off ½ price (€5).
Café déjà vu naïve coöperate Ångström straße Łódź čeština İstanbul ışık.
Привет, мир! Это тест на 2024 год. Γειά σου Κόσμε, καλημέρα.
我们在北京学习中文，今天天气很好。一二三四五！ 繁體中文也可以。
こんにちは世界。テストのデータです。カタカナと漢字 ｶﾀｶﾅ １２３
안녕하세요 세계! 한국어 테스트입니다. 한글
مرحبا بالعالم ١٢٣٤ شُكْرًا שָׁלוֹם עולם
नमस्ते दुनिया १२३ ক্ষ தமிழ் สวัสดีชาวโลก ๑๒๓ မြန်မာ
გამარჯობა Բարև ሰላም ᎣᎳᎩ ᲐᲑ Ꟁꟁ 𐐷 𐐨𞤀'''

EMOJI = ['\U0001f600', '\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466',
         '\U0001f44d\U0001f3fd', '\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7', '1\ufe0f\u20e3',
         '\u2764\ufe0f\u200d\U0001f525', '\u263a', '\u263a\ufe0f',
         '\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f',
         '\U0001f9d1\U0001f3ff\u200d\U0001f680', '\U0001fae8', '\U0001f6dc', '\u26a1']

SPACES = [' ', '\t', '\n', '\r', '\r\n', '\v', '\f', '\x85', '\xa0', '\u1680', '\u180e',
          '\u2003', '\u2009', '\u200b', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000',
          '\ufeff', '\x1c', '\x1f']

CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M",
                "'lL", "'D", "'\u017f", "'x", "''s", "' s", "\u2019s", "'sa", "'tis"]

INVALID = [b'\x80', b'\xff', b'\xc0\xaf', b'\xc3', b'\xe2\x82', b'\xe2\x28\xa1', b'\xf0\x9f\x98',
           b'\xf0\x28\x8c\xbc', b'\xf8\x88\x80\x80\x80', b'\xed\xa0\x80', b'\xed\xbf\xbf',
           b'\xf4\x90\x80\x80', b'\xe0\x80\x80', b'\xf0\x80\x80\x80', b'\xc3\xc3\xa9',
           b'\xe2\x96', b'\xe2\x96\x81\xe2\x96', b'\xfe\xfe\xff\xff']


def random_char(rng):
    """Any scalar value, the assigned ones more often."""
    while True:
        kind = rng.randrange(10)
        if kind == 0:
            c = rng.randrange(0x110000)
        elif kind < 4:
            c = rng.randrange(0x3000)
        elif kind < 7:
            c = rng.randrange(0x10000)
        else:
            c = rng.randrange(0x10000, 0x20000)
        if not 0xd800 <= c < 0xe000 and (kind == 0 or unicodedata.category(chr(c)) != 'Cn'):
            return chr(c)


def new_chars():
    """Characters younger than Unicode 14, which some tables lack."""
    spans = [(0x1c89, 2), (0xa7cb, 3), (0xa7da, 3), (0x105c0, 52), (0x10d40, 70), (0x1123f, 2),
             (0x11380, 10), (0x11b00, 10), (0x11bc0, 58), (0x11f02, 88), (0x1342f, 40),
             (0x13460, 20), (0x16100, 58), (0x16d40, 58), (0x1d2c0, 20), (0x1e030, 62),
             (0x1e4d0, 42), (0x1e5d0, 48), (0x2ebf0, 9), (0x31350, 9), (0x116d0, 20),
             (0x1ccf0, 10), (0x1b132, 1), (0x1b155, 1), (0x1df25, 6)]
    return [chr(first + i) for first, nr in spans for i in range(nr)]


def plain_cases(rng):
    yield ''
    yield from (line for line in (CODE + PROSE).split('\n') if line)
    lines = CODE + PROSE
    for _ in range(320):
        start = rng.randrange(len(lines))
        yield lines[start:start + rng.randrange(1, 60)]
    for c in range(128):
        yield chr(c)
    for _ in range(120):
        yield ''.join(rng.choice('0123456789') for _ in range(rng.randrange(1, 14)))
    for text in ('3.14159', '1,000,000', '0xDEADBEEF', '1e-10', '-5', '+49 30 1234567', '12:34:56',
                 '2024-02-29', '\u0661\u0662\u0663', '\u00bd\u00b2\u2167', '\uff11\uff12',
                 '1st 2nd', 'x86_64', 'a1b2c3', '100%', '$9.99',
                 '\u3007\u4e00', '\U0001d7d8\U0001d7d9'):
        yield text
        yield ' ' + text + ' '
    for emoji in EMOJI:
        yield from (emoji, ' ' + emoji, emoji * 3, 'a' + emoji + 'b', emoji + ' ' + emoji)
    for text in CONTRACTIONS:
        yield from ('it' + text, text, 'we' + text + ' go', text + text, '1' + text, ' ' + text)
    for word in ('e\u0301', 'a\u0308\u0323', 'Z\u0351\u036b\u0343', '\u0e33', 'n\u0303o', '\u1e69',
                 's\u0323\u0307', '\u0301', ' \u0301x', '\u0915\u094d\u0937', 'x\u20d7',
                 '\u09c7\u09be'):
        yield from (word, 'ab' + word + 'cd', word * 4)


def space_cases(rng):
    for nr in (*range(1, 36), 50, 64, 100, 127, 200):
        yield ' ' * nr
        yield ' ' * nr + 'x'
        if nr < 40:
            yield 'x' + ' ' * nr + 'y'
    for c in ('\t', '\n', '\r\n', '\u3000', '\xa0'):
        for nr in (1, 2, 3, 4, 8, 15, 31, 32, 33, 70):
            yield c * nr
            yield 'a' + c * nr + 'b'
    for a in SPACES:
        yield from (a, 'a' + a, a + 'a', 'a' + a + 'b', ' ' + a + ' b', a + '\n' + a)
    for _ in range(200):
        yield ''.join(rng.choice(SPACES + [' ', ' ', '\n', 'a', '.', '1'])
                      for _ in range(rng.randrange(2, 14)))


def random_cases(rng):
    for _ in range(220):
        yield ''.join(random_char(rng) for _ in range(rng.randrange(1, 9)))
    new = new_chars()
    for _ in range(100):
        yield ''.join(rng.choice(new + ['a', ' ', '1', '.']) for _ in range(rng.randrange(1, 6)))
    words = (PROSE + CODE).split()
    glue = ['', ' ', '  ', '\n', '-', '_', '.', "'", '\u200d', '/', '\t']
    for _ in range(260):
        yield ''.join(rng.choice(words) + rng.choice(glue) for _ in range(rng.randrange(2, 5)))
    ascii_chars = [chr(c) for c in range(32, 127)]
    for _ in range(150):
        yield ''.join(rng.choice(ascii_chars) for _ in range(rng.randrange(1, 20)))
    # U+2581 as such, repeated words without spaces, and long words.
    for text in (SPACE, SPACE * 2, SPACE * 3, 'a' + SPACE + 'b', ' ' + SPACE, SPACE + ' ' + SPACE,
                 '>' + SPACE + '</', '> </', '><', 'a' * 50, 'ab' * 40, 'ha' * 33, '=' * 80,
                 '-' * 77, '.' * 40, '#' * 33, '_' * 65, 'A' * 31, '\u4e2d' * 20, '\U0001f600' * 9,
                 'pneumonoultramicroscopicsilicovolcanoconiosis', 'Donaudampfschifffahrt',
                 '!?' * 20, '0' * 50, '\u00df' * 17, ' a' * 30, '\na' * 20, ';' * 21):
        yield text


def invalid_cases(rng):
    for bad in INVALID:
        yield from (bad, b'a' + bad + b'b', b' ' + bad, bad + b' x', bad * 3,
                    'h\u00e9'.encode() + bad + ' \u00e9'.encode())
    for _ in range(80):
        yield bytes(rng.randrange(256) for _ in range(rng.randrange(1, 12)))
    text = 'na\u00efve \u4f60\u597d \U0001f600!'.encode()
    for end in range(len(text)):
        yield text[:end]
        yield text[end:]


def special_texts(meta):
    rows = zip(meta['tokenizer.ggml.tokens'], meta['tokenizer.ggml.token_type'])
    return [t.decode() for t, kind in rows if kind in (CONTROL, USER_DEFINED)]


def special_cases(rng, smollm2, gemma3):
    ours = special_texts(smollm2)
    theirs = special_texts(gemma3)
    few = [t for t in theirs if not t.startswith('<unused')]
    few += ['<unused0>', '<unused10>', '<unused99>', '<unused6241>']
    for text in ours + rng.sample(few, 60):
        yield from (text, 'a' + text + 'b', ' ' + text + ' ')
    broken = ['<|im_start|', '|im_end|>', '<|im_ end|>', '<|IM_END|>', '<|im_start|><',
              '<<|im_end|>>', '<unused', '<unused9', '<unused100000>', '<start_of_',
              '<end_of_turn', '<bos', '<', '<|endoftext|',
              '<tabl', '</tabl>', '[multimodal', '<h7>', '< b>', '<B>']
    yield from broken
    parts = ours + few + broken + ['Hi', ' there', '\n', 'user\n', '  ', '1', '.', '\u00e9', '\t\t']
    for _ in range(120):
        yield ''.join(rng.choice(parts) for _ in range(rng.randrange(2, 6)))
    yield '<|im_start|>system\nYou are.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n'
    yield '<start_of_turn>user\nHi there<end_of_turn>\n<start_of_turn>model\n'


def all_cases(smollm2, gemma3):
    rng = random.Random(20240229)
    seen = {}
    for source in (plain_cases, space_cases, random_cases):
        for text in source(rng):
            seen[text.encode(), 0] = None
    for data in invalid_cases(rng):
        seen[data, 0] = None
    for text in special_cases(rng, smollm2, gemma3):
        for flag in (0, 1):
            seen[text.encode(), flag] = None
    return list(seen)


# ---- output ----------------------------------------------------------------------------------

def leb128(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def write(path, magic, nr, body):
    with open(path, 'wb') as f:
        f.write(magic + leb128(nr) + body)
    print(f'{path}: {len(magic) + len(body)} bytes')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--smollm2', required=True)
    parser.add_argument('--gemma3', required=True)
    parser.add_argument('--out', default=os.path.dirname(os.path.abspath(__file__)))
    args = parser.parse_args()
    smollm2, gemma3 = read_metadata(args.smollm2), read_metadata(args.gemma3)
    references = {name: Bpe(smollm2, name) for name in (*PRE_TOKENIZERS, *OTHER_NAMES)}
    references['gemma'] = Spm(gemma3)
    references['gemma-prefix'] = SpmPrefix(gemma3)

    cases = all_cases(smollm2, gemma3)
    body = b''.join(leb128(flags) + leb128(len(data)) + data for data, flags in cases)
    write(os.path.join(args.out, 'tokens_cases.bin'), b'TOKCASE\0', len(cases), body)
    base = None
    for name, reference in references.items():
        rows = [reference.encode(data, flags) for data, flags in cases]
        body = bytearray()
        for i, ids in enumerate(rows):
            if base and ids == base[i]:
                body += leb128(0)
            else:
                body += leb128(len(ids) + 1) + b''.join(map(leb128, ids))
        write(os.path.join(args.out, f'tokens_{name}.bin'), b'TOKIDS\0\0', len(cases), bytes(body))
        base = base or rows
    print(f'{len(cases)} cases')


if __name__ == '__main__':
    main()
