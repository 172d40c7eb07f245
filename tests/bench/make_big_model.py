#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of the shape of Llama-3.1-8B with random bf16 weights, for speed alone.

    make_big_model.py OUT.gguf [--layers N] [--vocab N] [--head-dim N]

The values are one block of random numbers, read from another place for each tensor. The
vocabulary is bytes and names of nothing: prompts are given as token ids.
"""
import argparse
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'data'))
from make_logits_golden import byte_letters  # noqa: E402
from make_tiny_models import ALIGN, F32, string, value  # noqa: E402

BF16 = 30
EMBD, FF, KV_ROW = 4096, 14336, 1024
POOL_VALUES = 64 << 20  # 128 MiB of bf16


def shapes(nr_layers, nr_vocab):
    yield 'token_embd.weight', (EMBD, nr_vocab)
    yield 'output_norm.weight', (EMBD,)
    yield 'output.weight', (EMBD, nr_vocab)
    for il in range(nr_layers):
        for name, dims in (('attn_norm', (EMBD,)), ('attn_q', (EMBD, EMBD)),
                           ('attn_k', (EMBD, KV_ROW)),
                           ('attn_v', (EMBD, KV_ROW)),
                           ('attn_output', (EMBD, EMBD)), ('ffn_norm', (EMBD,)),
                           ('ffn_gate', (EMBD, FF)), ('ffn_up', (EMBD, FF)),
                           ('ffn_down', (FF, EMBD))):
            yield 'blk.%d.%s.weight' % (il, name), dims


def metadata(nr_layers, nr_vocab, head_dim):
    letters = byte_letters()
    tokens = [letters[b] for b in range(256)] + [letters[116] + letters[104]]
    tokens += ['<%d>' % i for i in range(257, nr_vocab)]
    return {'general.architecture': 'llama', 'general.name': '8B shape, random',
            'llama.block_count': nr_layers, 'llama.context_length': 131072,
            'llama.embedding_length': EMBD, 'llama.feed_forward_length': FF,
            'llama.attention.head_count': EMBD // head_dim,
            'llama.attention.head_count_kv': KV_ROW // head_dim,
            'llama.attention.layer_norm_rms_epsilon': 1e-5, 'llama.rope.freq_base': 500000.0,
            'llama.rope.dimension_count': head_dim, 'llama.vocab_size': nr_vocab,
            'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'llama-bpe',
            'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': [1] * nr_vocab,
            'tokenizer.ggml.merges': [letters[116] + ' ' + letters[104]],
            'tokenizer.ggml.bos_token_id': 0, 'tokenizer.ggml.eos_token_id': 1}


def bf16(values):
    return (values.astype('<f4').view('<u4') + 0x8000 >> 16).astype('<u2')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('out')
    parser.add_argument('--layers', type=int, default=32)
    parser.add_argument('--vocab', type=int, default=128256)
    parser.add_argument('--head-dim', type=int, default=128)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    pool = bf16(rng.standard_normal(POOL_VALUES, dtype=np.float32) * EMBD ** -0.5).tobytes()
    tensors = list(shapes(args.layers, args.vocab))
    meta = metadata(args.layers, args.vocab, args.head_dim)
    head = [b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(meta))]
    for key, v in meta.items():
        kind, raw = value(v)
        head.append(string(key) + struct.pack('<I', kind) + raw)
    at = 0
    for name, dims in tensors:
        kind, elem = (F32, 4) if len(dims) == 1 else (BF16, 2)
        head.append(string(name) + struct.pack('<I%dQIQ' % len(dims), len(dims), *dims, kind, at))
        at += -(-int(np.prod(dims)) * elem // ALIGN) * ALIGN
    head = b''.join(head)
    with open(args.out, 'wb', buffering=0) as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for i, (name, dims) in enumerate(tensors):
            if len(dims) == 1:
                f.write(np.ones(dims, '<f4').tobytes())
                continue
            left = int(np.prod(dims)) * 2
            start = i * 7919 * 64 % (len(pool) // 2)
            while left:
                part = memoryview(pool)[start:start + left]
                f.write(part)
                left -= len(part)
                start = 0
    print('%s: %.2f GB' % (args.out, os.path.getsize(args.out) * 1e-9))


if __name__ == '__main__':
    main()
