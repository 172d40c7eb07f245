#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny_llama.gguf, tiny_qwen2.gguf and tiny_qwen3.gguf: models of two layers.

Names and metadata are as converters write them; weights are random, with values as large as they
should be. Tensors take the types Q2_K, Q3_K, IQ4_XS, IQ4_NL and MXFP4 in turn. Rows that are no
whole blocks of 256 take IQ4_NL or MXFP4, as quantizers do.

    make_tiny_models.py [--out DIR]
    make_logits_golden.py --tiny DIR

The second computes their logits, by code of its own. The same bytes come out each time.
"""
import argparse
import collections
import os
import struct

import numpy as np

from make_logits_golden import BREAD, CODE, HARBOUR, PAGES, WORD, byte_letters

NR_VOCAB = 320
ALIGN = 32

F32, Q6_K, Q8_0 = 0, 14, 8
Q2_K, Q3_K, IQ4_NL, IQ4_XS, MXFP4 = 10, 11, 20, 23, 39
# Elements and bytes of a block; where its halfs stand (scale, minimum); how large its values are
# in units of the scale; the minimum in the same units.
BLOCKS = {Q6_K: (256, 210, 208, None, 1350, 0), Q8_0: (32, 34, 0, None, 74, 0),
          Q2_K: (256, 84, 80, 82, 14, 1.5), Q3_K: (256, 110, 108, None, 43, 0),
          IQ4_NL: (32, 18, 0, None, 67, 0), IQ4_XS: (256, 136, 0, None, 1250, 0),
          MXFP4: (32, 17, None, None, 5.9, 0)}


# ---- the container -----------------------------------------------------------------------------

def string(text):
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack('<Q', len(raw)) + raw


def value(v):
    """Type and bytes of a metadata value: bool, int (u32), float (f32), text, lists of those."""
    if isinstance(v, bool):
        return 7, struct.pack('<?', v)
    if isinstance(v, int):
        return 4, struct.pack('<I', v)
    if isinstance(v, float):
        return 6, struct.pack('<f', v)
    if isinstance(v, str):
        return 8, string(v)
    if isinstance(v[0], str):
        return 9, struct.pack('<IQ', 8, len(v)) + b''.join(string(s) for s in v)
    return 9, struct.pack('<IQ', 5, len(v)) + struct.pack('<%di' % len(v), *v)


def write_gguf(path, meta, tensors):
    """tensors: name -> (dims, type, bytes)"""
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(meta))
    for key, v in meta.items():
        kind, raw = value(v)
        head += string(key) + struct.pack('<I', kind) + raw
    data = b''
    for name, (dims, kind, raw) in tensors.items():
        head += string(name) + struct.pack('<I%dQIQ' % len(dims), len(dims), *dims, kind,
                                           len(data))
        data += raw + bytes(-len(raw) % ALIGN)
    with open(path, 'wb') as f:
        f.write(head + bytes(-len(head) % ALIGN) + data)


# ---- weights -----------------------------------------------------------------------------------

def vector(rng, n, centre, size):
    return (n,), F32, (centre + size * rng.uniform(-1, 1, n)).astype('<f4').tobytes()


def put_half(raw, at, values):
    raw[:, at:at + 2] = values.astype('<f2').view(np.uint8).reshape(-1, 2)


def matrix(rng, kind, nr_rows, nr_cols, size=None):
    """Random blocks whose values are about 1 / sqrt(nr_cols) large."""
    elems, nr_bytes, d_at, m_at, spread, low = BLOCKS[kind]
    assert nr_cols % elems == 0, (kind, nr_cols)
    nr = nr_rows * nr_cols // elems
    raw = rng.integers(0, 256, (nr, nr_bytes), np.uint8)
    d = (size or nr_cols ** -0.5) / spread * rng.uniform(0.5, 1.5, nr)
    if m_at is not None:
        put_half(raw, m_at, d * low * rng.uniform(0.9, 1.1, nr))
    elif d_at is not None:
        d *= rng.choice([-1, 1], nr)
    if d_at is None:
        raw[:, 0] = 128 + np.rint(np.log2(d)).astype(int)
    else:
        put_half(raw, d_at, d)
    return (nr_cols, nr_rows), kind, raw.tobytes()


def layer(rng, arch, shape, il):
    """The tensors of a layer in the order and under the names of converters."""
    embd, heads, kv_heads, head_dim, ff = shape
    long = [Q2_K, Q3_K, IQ4_XS]
    short = [IQ4_NL, MXFP4]
    # Each type meets each kind of tensor in one layer or the other.
    kinds = iter([long[(i + il) % 3] for i in range(5)])
    t = {'attn_norm.weight': vector(rng, embd, 1, 0.3),
         'ffn_down.weight': matrix(rng, short[il % 2], embd, ff),
         'ffn_gate.weight': matrix(rng, next(kinds), ff, embd),
         'ffn_up.weight': matrix(rng, next(kinds), ff, embd),
         'ffn_norm.weight': vector(rng, embd, 1, 0.3),
         'attn_k.weight': matrix(rng, next(kinds), kv_heads * head_dim, embd),
         'attn_output.weight': matrix(rng, short[(il + 1) % 2], embd, heads * head_dim),
         'attn_q.weight': matrix(rng, next(kinds), heads * head_dim, embd),
         'attn_v.weight': matrix(rng, next(kinds), kv_heads * head_dim, embd)}
    if arch == 'qwen2':
        for name, n in (('k', kv_heads), ('q', heads), ('v', kv_heads)):
            t['attn_%s.bias' % name] = vector(rng, n * head_dim, 0.1, 0.5)
    if arch == 'qwen3':
        for name in 'kq':
            t['attn_%s_norm.weight' % name] = vector(rng, head_dim, 1, 0.3)
    return {'blk.%d.%s' % (il, name): v for name, v in t.items()}


# ---- the vocabulary ----------------------------------------------------------------------------

def vocabulary(specials):
    """Tokens, types and merges: bytes, the most frequent pairs of the texts, specials."""
    letters = byte_letters()
    words = collections.Counter(tuple(letters[b] for b in word.encode())
                                for text in (PAGES, HARBOUR, BREAD, CODE)
                                for word in WORD.findall(text))
    tokens = [letters[b] for b in sorted(letters, key=lambda b: (ord(letters[b]) > 255, b))]
    merges = []
    while len(tokens) + len(specials) < NR_VOCAB:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(' '.join(best))
        tokens.append(''.join(best))
        words = collections.Counter({joined(w, best): n for w, n in words.items()})
    return tokens + specials, [1] * len(tokens) + [3] * len(specials), merges


def joined(word, pair):
    out = []
    for symbol in word:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


CHATML = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA3 = """{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + \
'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\
{% endif %}"""


# ---- the models --------------------------------------------------------------------------------

def common_meta(arch, name, shape, base, eps):
    embd, heads, kv_heads, _, ff = shape
    return {'general.architecture': arch, 'general.type': 'model', 'general.name': name,
            'general.file_type': 10, 'general.quantization_version': 2,
            arch + '.block_count': 2, arch + '.context_length': 1024,
            arch + '.embedding_length': embd, arch + '.feed_forward_length': ff,
            arch + '.attention.head_count': heads, arch + '.attention.head_count_kv': kv_heads,
            arch + '.rope.freq_base': base, arch + '.attention.layer_norm_rms_epsilon': eps}


def tokenizer_meta(pre, specials, bos, eos, add_bos, template):
    tokens, types, merges = vocabulary(specials)
    return {'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': pre,
            'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types,
            'tokenizer.ggml.merges': merges, 'tokenizer.ggml.eos_token_id': tokens.index(eos),
            'tokenizer.ggml.padding_token_id': tokens.index(specials[0]),
            'tokenizer.ggml.bos_token_id': tokens.index(bos),
            'tokenizer.ggml.add_bos_token': add_bos, 'tokenizer.chat_template': template}


def llama3_factors(nr, base, factor=32.0, low=1.0, high=4.0, original=64.0):
    """Divisors of the frequencies, as Llama 3.1 and 3.2 have them: slow waves by the whole factor,
    fast ones not at all, smoothly in between."""
    wave = 2 * np.pi * base ** (np.arange(nr) / nr)
    smooth = np.clip((original / wave - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype('<f4')


QWEN_SPECIALS = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
LLAMA_SPECIALS = ['<|begin_of_text|>', '<|end_of_text|>', '<|start_header_id|>',
                  '<|end_header_id|>', '<|eot_id|>']


def qwen_tokenizer():
    return tokenizer_meta('qwen2', QWEN_SPECIALS, '<|endoftext|>', '<|im_end|>', False, CHATML)


def tiny_qwen2(rng):
    """Untied, grouped queries; what n_embd / n_head says of heads holds."""
    shape = (256, 4, 1, 64, 96)
    meta = common_meta('qwen2', 'Tiny Qwen2', shape, 1000000.0, 1e-6) | qwen_tokenizer()
    tensors = {'output.weight': matrix(rng, Q6_K, NR_VOCAB, 256),
               'token_embd.weight': matrix(rng, Q2_K, NR_VOCAB, 256)}
    return finish(rng, 'qwen2', shape, meta, tensors)


def tiny_qwen3(rng):
    """Tied; heads narrower than n_embd / n_head."""
    shape = (256, 4, 2, 32, 96)
    meta = common_meta('qwen3', 'Tiny Qwen3', shape, 1000000.0, 1e-6)
    meta |= {'qwen3.attention.key_length': 32, 'qwen3.attention.value_length': 32}
    tensors = {'token_embd.weight': matrix(rng, IQ4_XS, NR_VOCAB, 256)}
    return finish(rng, 'qwen3', shape, meta | qwen_tokenizer(), tensors)


def tiny_llama(rng):
    """Tied, with the frequencies' divisors of Llama 3."""
    shape = (256, 4, 2, 64, 96)
    meta = common_meta('llama', 'Tiny Llama 3', shape, 10000.0, 1e-5)
    meta |= {'llama.vocab_size': NR_VOCAB, 'llama.rope.dimension_count': 64}
    meta |= tokenizer_meta('llama-bpe', LLAMA_SPECIALS, '<|begin_of_text|>', '<|eot_id|>', True,
                           LLAMA3)
    tensors = {'rope_freqs.weight': ((32,), F32, llama3_factors(32, 10000.0).tobytes()),
               'token_embd.weight': matrix(rng, Q3_K, NR_VOCAB, 256)}
    return finish(rng, 'llama', shape, meta, tensors)


def finish(rng, arch, shape, meta, tensors):
    for il in range(2):
        tensors |= layer(rng, arch, shape, il)
    tensors['output_norm.weight'] = vector(rng, shape[0], 1, 0.3)
    return meta, tensors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--out', default=os.path.dirname(os.path.abspath(__file__)))
    args = parser.parse_args()
    for seed, (name, make) in enumerate((('llama', tiny_llama), ('qwen2', tiny_qwen2),
                                         ('qwen3', tiny_qwen3))):
        meta, tensors = make(np.random.Generator(np.random.PCG64(seed + 1)))
        write_gguf('%s/tiny_%s.gguf' % (args.out, name), meta, tensors)


if __name__ == '__main__':
    main()
