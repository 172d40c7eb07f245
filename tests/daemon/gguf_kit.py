# SPDX-License-Identifier: Apache-2.0
"""Small model files: for tests that need a tokenizer or a template and no tensors, and one whose
answer is known ahead."""

import array
import struct

STRING, U32, I32, F32, BOOL, ARRAY = 8, 4, 5, 6, 7, 9


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_field(key, kind, data):
    return gguf_string(key) + struct.pack("<I", kind) + data


def gguf_array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def byte_names():
    """The letters that stand for bytes in the tokens of byte-level BPE."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    names = {b: chr(b) for b in printable}
    names.update({b: chr(256 + i) for i, b in enumerate(others)})
    return names


def tiny_vocabulary(more=(), pre="gpt-2"):
    """A model file with no tensor: byte-level BPE over all bytes, one merge, one control token;
    and @more fields."""
    names = byte_names()
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


def scripted_model(pieces, template):
    """A llama model that answers with @pieces, all different, whatever it is asked: to a prompt
    that ends with a new line, at temperature 0. Its one layer adds nothing; each token's vector is
    an axis of its own, and the output's rows lead from each piece to the next, then to the end."""
    width, heads, ff = 512, 8, 32
    names = byte_names()
    first = 257
    tokens = [names[b] for b in range(256)] + ["he"]
    tokens += ["".join(names[b] for b in piece.encode()) for piece in pieces] + ["<|end|>"]
    end = len(tokens) - 1
    follows = {token: end for token in range(len(tokens))}
    follows.update({first + i: first + i + 1 for i in range(len(pieces))})
    follows[ord("\n")] = first

    def text(key, value):
        return gguf_field(key, STRING, gguf_string(value))

    def number(key, value):
        return gguf_field(key, U32, struct.pack("<I", value))

    def real(key, value):
        return gguf_field(key, F32, struct.pack("<f", value))

    fields = [
        text("general.architecture", "llama"), text("general.name", "Scripted"),
        number("general.file_type", 0), number("llama.block_count", 1),
        number("llama.context_length", 4096), number("llama.embedding_length", width),
        number("llama.feed_forward_length", ff), number("llama.attention.head_count", heads),
        number("llama.attention.head_count_kv", heads), real("llama.rope.freq_base", 10000),
        number("llama.rope.dimension_count", width // heads),
        number("llama.vocab_size", len(tokens)),
        real("llama.attention.layer_norm_rms_epsilon", 1e-5),
        text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "gpt-2"),
        gguf_field("tokenizer.ggml.tokens", ARRAY,
                   gguf_array(STRING, [gguf_string(t) for t in tokens])),
        gguf_field("tokenizer.ggml.token_type", ARRAY,
                   gguf_array(I32, [struct.pack("<i", k) for k in [1] * end + [3]])),
        gguf_field("tokenizer.ggml.merges", ARRAY, gguf_array(STRING, [gguf_string("h e")])),
        number("tokenizer.ggml.bos_token_id", end), number("tokenizer.ggml.eos_token_id", end),
        gguf_field("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        text("tokenizer.chat_template", template),
    ]

    def matrix(nr_rows, nr_columns, ones):
        values = array.array("f", bytes(4 * nr_rows * nr_columns))
        for row, column in ones:
            values[row * nr_columns + column] = 1
        return (nr_columns, nr_rows), values.tobytes()

    def vector():
        return (width,), array.array("f", [1] * width).tobytes()

    tensors = {
        "token_embd.weight": matrix(len(tokens), width, [(t, t) for t in range(len(tokens))]),
        "output.weight": matrix(len(tokens), width, [(to, t) for t, to in follows.items()]),
        "output_norm.weight": vector(), "blk.0.attn_norm.weight": vector(),
        "blk.0.ffn_norm.weight": vector(), "blk.0.ffn_gate.weight": matrix(ff, width, []),
        "blk.0.ffn_up.weight": matrix(ff, width, []),
        "blk.0.ffn_down.weight": matrix(width, ff, []),
    }
    for part in ["q", "k", "v", "output"]:
        tensors[f"blk.0.attn_{part}.weight"] = matrix(width, width, [])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields)
    data = b""
    for name, (dims, raw) in tensors.items():
        head += gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data
