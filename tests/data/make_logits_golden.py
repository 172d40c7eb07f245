#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes logits_smollm2.bin, logits_gemma3.bin and logits_tiny_*.bin: what the logits should be.

An independent computation: it reads the GGUF file by itself, dequantises by
itself and runs the model in float64 with numpy. Nothing of the engine is
used. Weights are the exact values that the quantised blocks stand for.

    make_logits_golden.py --smollm2 FILE --gemma3 FILE [--out DIR] [--check]
    make_logits_golden.py --tiny DIR [--out DIR]

The second reads the files of make_tiny_models.py in DIR.

--check prints for each prompt the mean loss and what the model would say
next, so that a human sees whether the model makes sense.

What is taken from the format's and the models' descriptions:
  llama   RMS norm, rotary pairs (2i, 2i+1), grouped queries, SwiGLU; frequencies divided by
          rope_freqs.weight where the file has it.
  qwen2   as llama, with biases of q, k and v, and rotary pairs (i, i+d/2).
  qwen3   as qwen2 with a norm of each head of q and k before the rotation in place of biases.
  gemma3  embedding times float32(sqrt(n_embd)), RMS norms with the weight as
          stored (its +1 is in the file), norm of each head of q and k before
          the rotation, rotary pairs (i, i+d/2), base 10000 and a window where
          layer % 6 < 5 (a key is seen when query - key < window) and the
          file's base elsewhere, norms after attention and feed-forward before
          the residual, tanh-GELU gate.
Output weights are those of the embedding when the file has no output.weight.

File format, little-endian, all parts a multiple of 8 bytes:
  char[8] "TARNLOG1"; u32 n_vocab, nr_prompts, nr_top, nr_sketch, vec_block, 0;
  u8[32] SHA-256 of the model file; then for each prompt
    u32 nr_tokens, nr_kept, nr_whole, 0;
    i32 tokens[nr_tokens], one 0 more where nr_tokens is odd;
    nr_kept times: u32 position, 0; f64 norm; f32 top[nr_top];
                   u32 top_ids[nr_top]; f32 sketch[nr_sketch];
    nr_whole times: u32 position, 0; f32 scales[n_vocab / vec_block];
                    i16 values[n_vocab]; logit i = scales[i / vec_block] * values[i].
norm is the Euclidean norm of the logits; top are the largest, falling, ties by
id. sketch is a count sketch: logit i is added with sign s(i) to sum b(i), where
h = splitmix64(i), b = h >> 58 and s is -1 where h is odd, else +1. For vectors x
and y the expected value of |sketch(x) - sketch(y)|^2 is |x - y|^2, so the error
of all logits, pooled over positions, is measured without keeping them all.
"""
import argparse
import hashlib
import math
import mmap
import os
import re
import struct
import sys

import numpy as np

NR_TOP = 64
NR_SKETCH = 64
VEC_BLOCK = 64


# ---- GGUF ------------------------------------------------------------------------------------

class Gguf:
    SCALARS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?',
               10: 'Q', 11: 'q', 12: 'd'}

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self.pos = 4
        assert self.data[:4] == b'GGUF', path
        version, nr_tensors, nr_keys = self.unpack('IQQ')
        assert version in (2, 3), version
        self.meta = {}
        for _ in range(nr_keys):
            key = self.string().decode()
            self.meta[key] = self.value(self.unpack('I')[0])
        self.tensors = {}
        for _ in range(nr_tensors):
            name = self.string().decode()
            dims = self.unpack('%dQ' % self.unpack('I')[0])
            kind, offset = self.unpack('IQ')
            self.tensors[name] = (dims, kind, offset)
        align = self.meta.get('general.alignment', 32)
        self.start = (self.pos + align - 1) // align * align

    def unpack(self, fmt):
        values = struct.unpack_from('<' + fmt, self.data, self.pos)
        self.pos += struct.calcsize('<' + fmt)
        return values

    def string(self):
        n = self.unpack('Q')[0]
        self.pos += n
        return self.data[self.pos - n:self.pos]

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            elem, n = self.unpack('IQ')
            if elem == 8:
                return [self.string() for _ in range(n)]
            return list(self.unpack('%d%s' % (n, self.SCALARS[elem])))
        return self.unpack(self.SCALARS[kind])[0]

    def tensor(self, name, first_row=0, nr_rows=None):
        """Rows of a tensor as float64 [rows][dims[0]]; a vector has one row."""
        dims, kind, offset = self.tensors[name]
        elems, size, decode = TYPES[kind]
        row_bytes = dims[0] // elems * size
        rows = math.prod(dims[1:])
        if nr_rows is None:
            nr_rows = rows - first_row
        raw = np.frombuffer(self.data, np.uint8, nr_rows * row_bytes,
                            self.start + offset + first_row * row_bytes)
        return decode(raw.reshape(-1, size)).reshape(nr_rows, dims[0])

    def vector(self, name):
        return self.tensor(name)[0]


# ---- dequantisation: raw is uint8 [blocks][block bytes], the result float64 [blocks][elems] ---

def half(raw, at):
    return raw[:, at:at + 2].copy().view('<f2').astype(np.float64)


def nibbles(raw):
    """Element j in the low, j + n in the high nibble of byte j."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def fifth_bits(raw, at):
    bits = raw[:, at:at + 4].copy().view('<u4')
    return ((bits >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8) << 4


def f32(raw):
    return raw.copy().view('<f4').astype(np.float64)


def f16(raw):
    return raw.copy().view('<f2').astype(np.float64)


def bf16(raw):
    wide = raw.copy().view('<u2').astype(np.uint32) << 16
    return wide.view(np.float32).astype(np.float64)


def q4_0(raw):
    return half(raw, 0) * (nibbles(raw[:, 2:]).astype(np.float64) - 8)


def q4_1(raw):
    return half(raw, 0) * nibbles(raw[:, 4:]) + half(raw, 2)


def q5_0(raw):
    q = nibbles(raw[:, 6:]) | fifth_bits(raw, 2)
    return half(raw, 0) * (q.astype(np.float64) - 16)


def q5_1(raw):
    return half(raw, 0) * (nibbles(raw[:, 8:]) | fifth_bits(raw, 4)) + half(raw, 2)


def q8_0(raw):
    return half(raw, 0) * raw[:, 2:].view(np.int8)


def k_scales(b):
    """Eight 6-bit scales and mins out of 12 bytes."""
    scales = np.concatenate([b[:, 0:4] & 63, (b[:, 8:12] & 15) | (b[:, 0:4] >> 6 << 4)], axis=1)
    mins = np.concatenate([b[:, 4:8] & 63, (b[:, 8:12] >> 4) | (b[:, 4:8] >> 6 << 4)], axis=1)
    return scales, mins


def k_4_5(raw, q):
    """q [blocks][8][32] with the scales of Q4_K and Q5_K."""
    scales, mins = k_scales(raw[:, 4:16])
    scale = (half(raw, 0) * scales)[:, :, None]
    low = (half(raw, 2) * mins)[:, :, None]
    return scale * q - low


def q4_k(raw):
    qs = raw[:, 16:].reshape(-1, 4, 32)
    return k_4_5(raw, np.stack([qs & 15, qs >> 4], axis=2).reshape(-1, 8, 32))


def q5_k(raw):
    qs = raw[:, 48:].reshape(-1, 4, 32)
    q = np.stack([qs & 15, qs >> 4], axis=2).reshape(-1, 8, 32)
    high = raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    return k_4_5(raw, q | high << 4)


def q6_k(raw):
    low = raw[:, :128].reshape(-1, 2, 2, 32)
    high = raw[:, 128:192].reshape(-1, 2, 32)
    q = np.empty((len(raw), 2, 4, 32), np.int8)
    for part in range(4):
        q[:, :, part] = (low[:, :, part % 2] >> 4 * (part // 2) & 15) | \
            (high >> 2 * part & 3) << 4
    scales = raw[:, 192:208].view(np.int8).reshape(-1, 2, 4, 2, 1).astype(np.float64)
    d = half(raw, 208).reshape(-1, 1, 1, 1, 1)
    return d * scales * (q.reshape(-1, 2, 4, 2, 16).astype(np.float64) - 32)


def pairs(raw):
    """Two bits of 256 values out of 64 bytes: [blocks][8 groups of 32][32]."""
    qs = raw.reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    return qs.reshape(-1, 8, 32)


def q2_k(raw):
    q = pairs(raw[:, 16:80]).reshape(-1, 16, 16)
    scale, low = half(raw, 80) * (raw[:, :16] & 15), half(raw, 82) * (raw[:, :16] >> 4)
    return scale[:, :, None] * q - low[:, :, None]


def q3_k(raw):
    high = raw[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    q = (pairs(raw[:, 32:96]) | high << 2).astype(np.int8) - 4
    low = nibbles(raw[:, 96:104])
    top = np.concatenate([raw[:, 104:108] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    scales = half(raw, 108) * ((low | top << 4).astype(np.float64) - 32)
    return scales[:, :, None] * q.reshape(-1, 16, 16)


IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.0])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def iq4_nl(raw):
    return half(raw, 0) * IQ4[nibbles(raw[:, 2:])]


def iq4_xs(raw):
    shifts = np.arange(0, 16, 2, dtype=np.uint16)
    high = (raw[:, 2:4].copy().view('<u2') >> shifts & 3).astype(np.uint8)
    low = np.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scales = half(raw, 0) * ((low | high << 4).astype(np.float64) - 32)
    qs = raw[:, 8:].reshape(-1, 8, 16)
    return scales[:, :, None] * IQ4[np.concatenate([qs & 15, qs >> 4], axis=2)]


def mxfp4(raw):
    return np.ldexp(E2M1[nibbles(raw[:, 1:])], raw[:, :1].astype(int) - 127)


TYPES = {0: (1, 4, f32), 1: (1, 2, f16), 30: (1, 2, bf16), 2: (32, 18, q4_0), 3: (32, 20, q4_1),
         6: (32, 22, q5_0), 7: (32, 24, q5_1), 8: (32, 34, q8_0), 12: (256, 144, q4_k),
         13: (256, 176, q5_k), 14: (256, 210, q6_k), 10: (256, 84, q2_k), 11: (256, 110, q3_k),
         20: (32, 18, iq4_nl), 23: (256, 136, iq4_xs), 39: (32, 17, mxfp4)}


# ---- the models ------------------------------------------------------------------------------

def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, base, adjacent, factors):
    """x [t][heads][d], position t; factors divide the frequencies."""
    t, _, d = x.shape
    angle = np.arange(t)[:, None] * (base ** (-np.arange(0, d, 2) / d) / factors)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = (x[..., 0::2], x[..., 1::2]) if adjacent else (x[..., :d // 2], x[..., d // 2:])
    y = np.empty_like(x)
    lo, hi = (y[..., 0::2], y[..., 1::2]) if adjacent else (y[..., :d // 2], y[..., d // 2:])
    lo[...] = a * cos - b * sin
    hi[...] = a * sin + b * cos
    return y


def attention(q, k, v, window):
    """q [t][heads][d], k and v [t][kv_heads][d]; causal, window None: all keys."""
    t, heads, d = q.shape
    per_kv = heads // k.shape[1]
    ahead = np.arange(t)[:, None] - np.arange(t)[None, :]
    hidden = (ahead < 0) | (ahead >= (window or t))
    out = np.empty_like(q)
    for h in range(heads):
        s = q[:, h] @ k[:, h // per_kv].T / math.sqrt(d)
        s[hidden] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[:, h] = p @ v[:, h // per_kv] / p.sum(axis=1, keepdims=True)
    return out


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Model:
    def __init__(self, path):
        self.file = Gguf(path)
        meta = self.file.meta
        self.arch = meta['general.architecture'].decode()
        assert self.arch in ('llama', 'gemma3', 'qwen2', 'qwen3'), self.arch

        def get(key, default=None):
            return meta.get(self.arch + '.' + key, default)
        self.gemma = self.arch == 'gemma3'
        self.head_norms = self.arch in ('gemma3', 'qwen3')
        self.biases = self.arch == 'qwen2'
        self.factors = 1.0
        if 'rope_freqs.weight' in self.file.tensors:
            self.factors = self.file.vector('rope_freqs.weight')
        self.layers = get('block_count')
        self.embd = get('embedding_length')
        self.heads = get('attention.head_count')
        self.kv_heads = get('attention.head_count_kv', self.heads)
        self.head_dim = get('attention.key_length', self.embd // self.heads)
        self.eps = get('attention.layer_norm_rms_epsilon')
        self.base = get('rope.freq_base', 10000.0)
        self.window = get('attention.sliding_window')
        self.vocab = self.file.tensors['token_embd.weight'][0][1]

    def layer(self, il, xs):
        def weight(name):
            return self.file.tensor('blk.%d.%s.weight' % (il, name))

        def vector(name):
            return self.file.vector('blk.%d.%s.weight' % (il, name))

        def bias(name):
            return self.file.vector('blk.%d.%s.bias' % (il, name))
        names = ('attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down')
        w = {name: weight(name) for name in names}
        is_local = self.gemma and il % 6 < 5
        base = 10000.0 if is_local else self.base
        act = gelu_tanh if self.gemma else silu
        for i, x in enumerate(xs):
            t = len(x)
            h = rms_norm(x, vector('attn_norm'), self.eps)
            q, k, v = h @ w['attn_q'].T, h @ w['attn_k'].T, h @ w['attn_v'].T
            if self.biases:
                q, k, v = q + bias('attn_q'), k + bias('attn_k'), v + bias('attn_v')
            q = q.reshape(t, self.heads, self.head_dim)
            k = k.reshape(t, self.kv_heads, self.head_dim)
            v = v.reshape(t, self.kv_heads, self.head_dim)
            if self.head_norms:
                q = rms_norm(q, vector('attn_q_norm'), self.eps)
                k = rms_norm(k, vector('attn_k_norm'), self.eps)
            adjacent, factors = self.arch == 'llama', 1.0 if is_local else self.factors
            q, k = rotate(q, base, adjacent, factors), rotate(k, base, adjacent, factors)
            o = attention(q, k, v, self.window if is_local else None)
            o = o.reshape(t, -1) @ w['attn_output'].T
            if self.gemma:
                o = rms_norm(o, vector('post_attention_norm'), self.eps)
            x = x + o
            h = rms_norm(x, vector('ffn_norm'), self.eps)
            h = (act(h @ w['ffn_gate'].T) * (h @ w['ffn_up'].T)) @ w['ffn_down'].T
            if self.gemma:
                h = rms_norm(h, vector('post_ffw_norm'), self.eps)
            xs[i] = x + h

    def final_states(self, prompts):
        """Normed last hidden states [t][embd] of each prompt."""
        factor = float(np.float32(math.sqrt(self.embd))) if self.gemma else 1.0
        xs = [np.concatenate([self.file.tensor('token_embd.weight', t, 1) for t in prompt])
              * factor for prompt in prompts]
        for il in range(self.layers):
            self.layer(il, xs)
            print('\r%s: layer %d of %d' % (self.arch, il + 1, self.layers), end='',
                  file=sys.stderr)
        print(file=sys.stderr)
        norm = self.file.vector('output_norm.weight')
        return [rms_norm(x, norm, self.eps) for x in xs]

    def head(self, states):
        """Yields (first id, logits [states][ids]) over the vocabulary."""
        name = 'output.weight' if 'output.weight' in self.file.tensors else 'token_embd.weight'
        step = 8192
        for first in range(0, self.vocab, step):
            n = min(step, self.vocab - first)
            yield first, states @ self.file.tensor(name, first, n).T


# ---- text to ids: good enough to spell the prompts; the ids are what the file keeps -----------

def join(symbols, score):
    """Joins the best neighbours until none is left; score answers None or lower-is-better."""
    while True:
        best = min(((score(a, b), i) for i, (a, b) in enumerate(zip(symbols, symbols[1:]))
                    if score(a, b) is not None), default=None)
        if best is None:
            return symbols
        i = best[1]
        symbols = symbols[:i] + [symbols[i] + symbols[i + 1]] + symbols[i + 2:]


def byte_letters():
    """The printable letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in plain}
    others = (b for b in range(256) if b not in letters)
    letters.update({b: chr(256 + n) for n, b in enumerate(others)})
    return letters


WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def tokenize_bpe(meta, text):
    ids = {t.decode(): i for i, t in enumerate(meta['tokenizer.ggml.tokens'])}
    ranks = {tuple(m.decode().split(' ')): i for i, m in enumerate(meta['tokenizer.ggml.merges'])}
    letters = byte_letters()
    out = []
    for part in re.split(r'(<\|[a-z_]+\|>)', text):
        if part in ids:
            out.append(ids[part])
            continue
        for word in WORD.findall(part):
            symbols = [letters[b] for b in word.encode()]
            out += [ids[s] for s in join(symbols, lambda a, b: ranks.get((a, b)))]
    return out


def tokenize_spm(meta, text):
    ids = {t.decode(): i for i, t in enumerate(meta['tokenizer.ggml.tokens'])}
    scores = meta['tokenizer.ggml.scores']

    def score(a, b):
        return -scores[ids[a + b]] if a + b in ids else None
    out = [meta['tokenizer.ggml.bos_token_id']]
    for part in re.split(r'(<[a-z_]+>)', text):
        if part in ids:
            out.append(ids[part])
            continue
        # By line: joins never cross a line's end in this vocabulary but for runs of them.
        for line in re.findall(r'\n+|[^\n]+', part.replace(' ', '\u2581')):
            for s in join(list(line), score):
                out += [ids[s]] if s in ids else [ids['<0x%02X>' % b] for b in s.encode()]
    return out


# ---- prompts ---------------------------------------------------------------------------------

PAGES = """An operating system gives every program the view that it owns the whole memory of the \
machine. It keeps that promise with pages: small pieces of equal size, each of which may lie \
anywhere, may be shared by several programs, or may not exist at all until somebody touches it. \
When that happens, the processor stops the program, the kernel finds a free page, fills it with \
zeros, enters it into the table and lets the program go on as if nothing had happened."""

HARBOUR = """The harbour was quiet when the last ferry came in. Two men in yellow coats threw the \
ropes, a dog barked once, and then there was only the sound of water against the wall. Marta \
counted the passengers as they walked down the ramp: seven, eight, nine. Her brother was not among \
them. She waited until the lights on the upper deck went out, then she folded the letter, put it \
back into her pocket and took the long way home, past the fish market and the old customs house, \
where the clock had been showing ten past four for as long as she could remember."""

CODE = """static int list_length(const struct node *head)
{
	int length = 0;

	for (const struct node *n = head; n != NULL; n = n->next)
		length++;
	return length;
}

def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

print([fibonacci(i) for i in range(10)])
"""

FACTS = """Q: What is the capital of France?
A: Paris.
Q: How many legs does a spider have?
A: Eight.
Q: Who wrote the play about the prince of Denmark?
A: William Shakespeare.
Q: What is 12 times 12?
A: 144.
Q: Which planet is the largest of the solar system?
A:"""

TONGUES = """Der Zug nach München fährt um 9:45 Uhr von Gleis 7 ab. Le café est fermé le \
dimanche. ¿Dónde está la estación de autobuses? 東京は日本の首都です。 \
Москва — столица России. 😀 100 % € 3.14159"""

BREAD = """To bake a simple bread you need five hundred grams of flour, three hundred and \
fifty grams of water, ten grams of salt and a little yeast. Mix everything in a large bowl \
until no dry flour is left, cover it with a cloth and let it stand for one hour. Fold the \
dough over itself from all four sides, wait another hour, and fold it again. Then shape it \
into a ball, put it on a sheet of paper and let it rise while the oven becomes as hot as it \
can be. Bake it for twenty minutes with a pan of hot water below, then for twenty more \
without. The bread is ready when it sounds hollow as you knock on its bottom. Do not cut it \
while it is hot, however good it smells: the crumb needs time to set, and a warm loaf is hard \
to slice."""

STARS = """On a clear night, far from the lights of a town, a person with good eyes can see \
about three thousand stars. They are not all alike. Some are blue and very hot, some are \
yellow as our own sun, and some are red, old and enormous. The light that reaches us from them \
has been on its way for years, for centuries, or for longer than there have been people to \
look at it. So the sky is not a picture of how things are, but a collection of letters, each \
written at another time and all delivered in the same moment. In 1838 Friedrich Bessel \
measured for the first time how far away one of them is. He found that the light of 61 Cygni \
needs more than ten years to arrive."""

CHAT = """<|im_start|>system
You are a helpful AI assistant.<|im_end|>
<|im_start|>user
Explain in two sentences what an operating system does.<|im_end|>
<|im_start|>assistant
"""

TURNS = """<start_of_turn>user
Why is the sky blue? Answer in one sentence.<end_of_turn>
<start_of_turn>model
"""

LONG = '\n\n'.join([HARBOUR, BREAD, STARS, PAGES, FACTS])


def kept_of_long(n):
    """Some positions, most of them around the border at 512."""
    return sorted({*range(0, n, 61), *range(508, 517), n - 2, n - 1} & set(range(n)))


# Text, and the positions kept whole: from the end where negative.
SMOLLM2 = [('Once upon a time', []), (CHAT, [-1]), (CODE, []), (PAGES, []), (TONGUES, []),
           (LONG, [-1])]
GEMMA3 = [('The capital of France is', []), (TURNS, []), (TONGUES, []), (CODE, []), (LONG, [-1])]


# Bytes and few words: the texts are cut to this many tokens.
TINY = [('Once upon a time', []), (TONGUES[:40], []), (LONG, [-1])]
NR_TINY_TOKENS = 640


def tokenize_tiny(meta, text):
    return tokenize_bpe(meta, text[:2 * NR_TINY_TOKENS])[:NR_TINY_TOKENS]


# ---- the golden file -------------------------------------------------------------------------

def splitmix64(i):
    with np.errstate(over='ignore'):
        z = i.astype(np.uint64) + np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        return z ^ z >> np.uint64(31)


class Summary:
    """Norm, largest logits and sketch of many positions, fed by slices of the vocabulary."""

    def __init__(self, nr):
        self.square = np.zeros(nr)
        self.top = np.empty((nr, 0))
        self.ids = np.empty((nr, 0), np.int64)
        self.sketch = np.zeros((nr, NR_SKETCH))

    def add(self, first, logits):
        ids = first + np.arange(logits.shape[1])
        self.square += (logits * logits).sum(axis=1)
        h = splitmix64(ids)
        spread = np.zeros((len(ids), NR_SKETCH))
        spread[np.arange(len(ids)), (h >> np.uint64(58)).astype(int)] = \
            np.where(h & np.uint64(1), -1.0, 1.0)
        self.sketch += logits @ spread
        top = np.concatenate([self.top, logits], axis=1)
        all_ids = np.concatenate([self.ids, np.broadcast_to(ids, logits.shape)], axis=1)
        # Stable on rising ids: ties go to the lower.
        order = np.argsort(-top, axis=1, kind='stable')[:, :NR_TOP]
        self.top = np.take_along_axis(top, order, axis=1)
        self.ids = np.take_along_axis(all_ids, order, axis=1)

    def record(self, i, position):
        return struct.pack('<IId', position, 0, math.sqrt(self.square[i])) + \
            self.top[i].astype('<f4').tobytes() + self.ids[i].astype('<u4').tobytes() + \
            self.sketch[i].astype('<f4').tobytes()


def pack_whole(position, logits):
    """Error at most 1/65534 of a block's largest logit."""
    blocks = logits.reshape(-1, VEC_BLOCK)
    scales = (np.abs(blocks).max(axis=1) / 32767).astype('<f4')
    scales[scales == 0] = 1
    values = np.clip(np.rint(blocks / scales[:, None].astype(np.float64)), -32767, 32767)
    return struct.pack('<II', position, 0) + scales.tobytes() + values.astype('<i2').tobytes()


def sha256(path):
    digest = hashlib.sha256()
    with open(path, 'rb') as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    return digest.digest()


def make(path, texts, tokenize, out_path, check):
    model = Model(path)
    prompts = [tokenize(model.file.meta, text) for text, _ in texts]
    print([len(p) for p in prompts], file=sys.stderr)
    states = model.final_states(prompts)
    kept = [range(len(p)) if len(p) < 400 else kept_of_long(len(p)) for p in prompts]
    picked = np.concatenate([s[list(k)] for s, k in zip(states, kept)])
    whole = [(i, len(prompts[i]) + w) for i, (_, ws) in enumerate(texts) for w in ws]
    starts = np.cumsum([0] + [len(k) for k in kept])
    rows = {(i, p): starts[i] + list(kept[i]).index(p) for i, p in whole}
    summary = Summary(len(picked))
    vectors = {key: np.empty(model.vocab) for key in whole}
    total = np.zeros(len(picked))
    next_logit = np.zeros(len(picked))
    wanted = np.array([(p + [0])[q + 1] for p, k in zip(prompts, kept) for q in k])
    for first, logits in model.head(picked):
        summary.add(first, logits)
        for key in whole:
            vectors[key][first:first + logits.shape[1]] = logits[rows[key]]
        if check:
            total += np.exp(logits).sum(axis=1)
            here = (wanted >= first) & (wanted < first + logits.shape[1])
            next_logit[here] = logits[here, wanted[here] - first]
    with open(out_path, 'wb') as f:
        f.write(b'TARNLOG1' + struct.pack('<6I', model.vocab, len(prompts), NR_TOP, NR_SKETCH,
                                          VEC_BLOCK, 0) + sha256(path))
        for i, prompt in enumerate(prompts):
            mine = [key for key in whole if key[0] == i]
            f.write(struct.pack('<4I', len(prompt), len(kept[i]), len(mine), 0))
            f.write(np.array(prompt + [0] * (len(prompt) % 2), '<i4').tobytes())
            for n, position in enumerate(kept[i]):
                f.write(summary.record(starts[i] + n, position))
            for key in mine:
                f.write(pack_whole(key[1], vectors[key]))
    if check:
        tokens = model.file.meta['tokenizer.ggml.tokens']
        for i, prompt in enumerate(prompts):
            part = slice(starts[i], starts[i + 1] - 1)
            print('%4d tokens, mean loss %.3f, next %r' %
                  (len(prompt), np.mean(np.log(total[part]) - next_logit[part]),
                   [tokens[t].decode() for t in summary.ids[starts[i + 1] - 1][:4]]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--smollm2')
    parser.add_argument('--gemma3')
    parser.add_argument('--tiny')
    parser.add_argument('--out', default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument('--check', action='store_true')
    args = parser.parse_args()
    if args.smollm2:
        make(args.smollm2, SMOLLM2, tokenize_bpe, args.out + '/logits_smollm2.bin', args.check)
    if args.gemma3:
        make(args.gemma3, GEMMA3, tokenize_spm, args.out + '/logits_gemma3.bin', args.check)
    for name in ('llama', 'qwen2', 'qwen3') if args.tiny else ():
        make('%s/tiny_%s.gguf' % (args.tiny, name), TINY, tokenize_tiny,
             '%s/logits_tiny_%s.bin' % (args.out, name), args.check)


if __name__ == '__main__':
    main()
