#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-deps finds an include against each arrow, and lets the allowed ones pass."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

FORBIDDEN = [
    ("uapi/kvpool.h", "<stdint.h>"),
    ("uapi/kvpool.h", '"engine/engine.h"'),
    ("kmod/kvpool_main.c", '"engine/kv/libkvpool.h"'),
    ("bpf/top.bpf.c", '"kmod/kvpool_private.h"'),
    ("kernels/cpu/norm_ref.c", '"engine/engine.h"'),
    ("kernels/cpu/norm_ref.c", "<numa.h>"),
    ("kernels/cpu/norm_ref.c", "<engine/engine.h>"),
    ("engine/kv/libkvpool.h", '"engine/kv/segment.h"'),
    ("engine/kv/libkvpool.h", "<urcu.h>"),
    ("engine/kv/kvpool_memfd.c", '"engine/model/gguf.h"'),
    ("engine/engine.h", '"engine/kv/segment.h"'),
    ("engine/grammar/mask.c", '"engine/engine.h"'),
    ("engine/grammar/mask.c", '"engine/token/vocab.h"'),
    ("engine/model/gguf.c", '"daemon/api.h"'),
    ("engine/model/gguf.c", '"tests/harness.h"'),
    ("engine/model/gguf.c", '"gguf.h"'),
    ("engine/model/gguf.c", '"engine/model/../kv/segment.h"'),
    ("daemon/api.c", '"engine/model/gguf.h"'),
    ("daemon/api.c", '"kernels/attn_plan.h"'),
    ("tests/unit/test_a.c", '"harness.h"'),
    ("tests/kmod/pin/pin.c", '"kmod/kvpool_private.h"'),
]

ALLOWED = [
    ("uapi/kvpool.h", "<linux/types.h>"),
    ("kmod/kvpool_main.c", '"kvpool_private.h"'),
    ("kmod/kvpool_main.c", "<linux/mm.h>"),
    ("kernels/cpu/norm_ref.c", '"kernels/attn_plan.h"'),
    ("kernels/cpu/norm_avx2.c", "<immintrin.h>"),
    ("engine/kv/kvpool_memfd.c", '"engine/kv/libkvpool.h"'),
    ("engine/grammar/mask.c", '"engine/token/tokenizer.h"'),
    ("engine/forward.c", '"kernels/cpu/kernels_cpu.h"'),
    ("engine/forward.c", "<numa.h>"),
    ("daemon/api.c", '"engine/engine.h"'),
    ("daemon/api.c", "<event2/http.h>"),
    ("tests/unit/test_a.c", '"tests/harness.h"'),
    ("tests/kmod/pin/pin.c", '"pin.h"'),
    ("tests/kmod/pin/pin.c", '"uapi/kvpool.h"'),
]


class CheckDeps(unittest.TestCase):
    def run_on(self, path, header):
        with tempfile.TemporaryDirectory(prefix="tarn-deps-") as root:
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full))
            with open(full, "w", encoding="utf-8") as f:
                f.write(f"/* one line */\n#include {header}\n")
            return subprocess.run([os.path.join(tap.ROOT, "scripts", "check-deps"), root],
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False)

    def test_forbidden_includes_are_named_by_file_and_line(self):
        for path, header in FORBIDDEN:
            with self.subTest(path=path, header=header):
                result = self.run_on(path, header)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(f"{path}:2: includes {header}: ", result.stdout)

    def test_allowed_includes_pass(self):
        for path, header in ALLOWED:
            with self.subTest(path=path, header=header):
                result = self.run_on(path, header)
                self.assertEqual((result.returncode, result.stdout), (0, ""))


if __name__ == "__main__":
    tap.main()
