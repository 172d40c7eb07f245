#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn inspect: the real model, files that break off, files that say strange things."""

import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import CliTest, tap, tarn  # noqa: E402

MODEL = os.environ.get("TARN_TEST_MODEL")


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(metadata):
    """A file without tensors; values are strings or unsigned numbers of 32 bits."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    for key, value in metadata.items():
        is_text = isinstance(value, (str, bytes))
        out += string(key) + struct.pack("<I", 8 if is_text else 4)
        out += string(value) if is_text else struct.pack("<I", value)
    return out


def inspect(*words, **env):
    """Exit code, standard output, standard error."""
    result = tarn("inspect", *words, **env)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


class Inspect(CliTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="tarn-inspect-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.gguf")

    def write(self, data):
        with open(self.path, "wb") as f:
            f.write(data)

    def need_model(self):
        if not MODEL:
            self.skipTest("TARN_TEST_MODEL is not set")

    def test_the_real_model(self):
        self.need_model()
        status, out, err = inspect(MODEL)
        self.assertEqual((0, ""), (status, err))
        for line in (f"File        {MODEL}, 93.8 MiB",
                     "Shape       llama, 134.5 M parameters: 30 layers, width 576, 9 heads over 3 "
                     "KV heads of 64",
                     "Context     8192 tokens",
                     "            210 of Q4_1, 63.3 MiB",
                     "Tokenizer   gpt2, smollm: 49152 tokens, BOS 1, EOS 2",
                     "Template    368 bytes",
                     "Memory      weights 92.0 MiB, KV 22.5 KiB a token, 180 MiB for the whole "
                     "context",
                     "Tarn        can serve it"):
            self.assertIn(line + "\n", out)
        self.assertNotIn("Metadata", out)
        # Without a name it is the default model, which TARN_MODEL names here.
        self.assertEqual((0, out, ""), inspect(TARN_MODEL=MODEL))

    def test_json_has_everything(self):
        self.need_model()
        status, out, _ = inspect("--json", MODEL)
        self.assertEqual(0, status)
        root = json.loads(out)
        self.assertEqual(os.path.getsize(MODEL), root["bytes"])
        self.assertEqual(272, len(root["tensors"]))
        self.assertEqual(sum(t["bytes"] for t in root["tensors"]),
                         sum(t["bytes"] for t in root["types"].values()))
        self.assertEqual({"name": "output_norm.weight", "type": "F32", "shape": [576],
                          "bytes": 2304},
                         next(t for t in root["tensors"] if t["name"] == "output_norm.weight"))
        self.assertEqual({"array_of": "string", "length": 49152},
                         root["metadata"]["tokenizer.ggml.tokens"])
        self.assertEqual(100000, root["metadata"]["llama.rope.freq_base"])
        self.assertIs(False, root["metadata"]["tokenizer.ggml.add_bos_token"])
        self.assertEqual(root["memory"]["kv_bytes_per_token"] * 8192,
                         root["memory"]["kv_bytes_of_context"])
        self.assertIs(True, root["can_be_served"])
        self.assertIsNone(root["reason"])

    def test_lists(self):
        self.need_model()
        status, out, _ = inspect("--metadata", "--tensors", MODEL)
        self.assertEqual(0, status)
        self.assertIn("  llama.block_count: 30\n", out)
        self.assertIn("  tokenizer.ggml.tokens: 49152 of type string\n", out)
        self.assertRegex(out, r"\nblk\.29\.ffn_up\.weight +Q4_1 +576 x 1536 ")
        self.assertEqual(272, out.count(".weight "))

    def test_a_file_that_breaks_off(self):
        self.need_model()
        with open(MODEL, "rb") as f:
            self.write(f.read(30_000_000))
        status, out, _ = inspect(self.path)
        self.assertEqual(1, status)
        self.assertIn("            210 of Q4_1, 63.3 MiB\n", out)
        self.assertIn("Tokenizer   gpt2, smollm: 49152 tokens", out)
        self.assertRegex(out, r"Tarn        cannot serve it: .*(end|beyond|file)")
        self.write(b"GGUF" + bytes(7))
        status, out, err = inspect(self.path)
        self.assertEqual((3, ""), (status, out))
        self.assertIn(self.path, err)

    def test_what_no_engine_could_load(self):
        self.write(gguf({"general.architecture": "mamba", "general.name": "M",
                         "tokenizer.ggml.model": "gpt2"}))
        status, out, _ = inspect(self.path)
        self.assertEqual(1, status)
        self.assertIn("Model       M\n", out)
        self.assertIn('cannot serve it: architecture "mamba" is not supported\n', out)
        root = json.loads(inspect("--json", self.path)[1])
        self.assertIs(False, root["can_be_served"])
        self.assertIs(False, root["tokenizer"]["supported"])
        self.assertIn("mamba", root["reason"])

    def test_what_a_file_says_stays_on_its_line(self):
        self.write(gguf({"general.architecture": "x",
                         "general.name": b"a\xff\nTarn        can serve it\x1b[31m"}))
        status, out, _ = inspect(self.path)
        self.assertEqual(1, status)
        self.assertIn("Model       a??Tarn        can serve it?[31m\n", out)
        self.assertNotIn("\nTarn        can serve", out)

    def test_what_is_no_model(self):
        self.write(b"#!/bin/sh\n" * 100)
        for words in ([self.path], [self.path + ".not"], [os.path.dirname(self.path)]):
            status, out, err = inspect(*words)
            self.assertEqual((3, ""), (status, out))
            self.assertIn(words[0], err)
        status, _, err = inspect("a", "b")
        self.assertEqual(2, status)
        self.assertIn('not "b" as well', err)


if __name__ == "__main__":
    tap.main()
