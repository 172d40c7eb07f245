# SPDX-License-Identifier: Apache-2.0
"""Small model files for tests that need a tokenizer or a template and no tensors."""

import struct


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_field(key, kind, data):
    return gguf_string(key) + struct.pack("<I", kind) + data


def gguf_array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def tiny_vocabulary(more=(), pre="gpt-2"):
    """A model file with no tensor: byte-level BPE over all bytes, one merge, one control token;
    and @more fields."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    names = {b: chr(b) for b in printable}
    names.update({b: chr(256 + i) for i, b in enumerate(others)})
    tokens = [names[b] for b in range(256)] + ["he", "<|end|>"]
    kinds = [1] * 257 + [3]
    string, u32, i32, boolean, array = 8, 4, 5, 7, 9
    fields = [
        gguf_field("general.architecture", string, gguf_string("llama")),
        gguf_field("tokenizer.ggml.model", string, gguf_string("gpt2")),
        gguf_field("tokenizer.ggml.pre", string, gguf_string(pre)),
        gguf_field("tokenizer.ggml.tokens", array,
                   gguf_array(string, [gguf_string(t) for t in tokens])),
        gguf_field("tokenizer.ggml.token_type", array,
                   gguf_array(i32, [struct.pack("<i", k) for k in kinds])),
        gguf_field("tokenizer.ggml.merges", array, gguf_array(string, [gguf_string("h e")])),
        gguf_field("tokenizer.ggml.bos_token_id", u32, struct.pack("<I", 257)),
        gguf_field("tokenizer.ggml.eos_token_id", u32, struct.pack("<I", 257)),
        gguf_field("tokenizer.ggml.add_bos_token", boolean, b"\1"),
        *more,
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(fields)
