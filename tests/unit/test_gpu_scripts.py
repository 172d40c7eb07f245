#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-gpu and scripts/bench-gpu over programs made up for it: what they count, what they
skip and why, and when they fail. What the real programs say shows on a machine with a GPU."""

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

TAP = "#!/bin/sh\necho 1..3\necho 'ok 2 - b # SKIP no model'\n" \
      "echo '# {} passed, {} failed, 1 skipped'\nexit {}\n"
# As far as a tool of compute-sanitizer goes: options, then a program, then what was found.
SANITIZER = "#!/bin/sh\nfor word; do case $word in */gpu_*) shown=$word;; esac; done\n" \
            "echo \"$shown\"\necho '========= {} SUMMARY: {} errors'\nexit {}\n"


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"),
                                                  os.path.join(tap.ROOT, "scripts", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class ScriptCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tarn-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def run_script(self, *options):
        env = {**os.environ, "CUDA_HOME": os.path.join(self.folder, "cuda"), "TMPDIR": self.folder}
        return subprocess.run([sys.executable, os.path.join(tap.ROOT, "scripts/check-gpu"),
                               "--build-dir", self.folder, *options], capture_output=True,
                              text=True, env=env, check=False)


class CheckGpu(ScriptCase):
    def setUp(self):
        super().setUp()
        self.program("tests/engine/test_kvpool_gpu", TAP.format(2, 0, 0))

    def expect(self, done, status, last):
        self.assertEqual(done.stdout.splitlines()[-1], last, done.stdout + done.stderr)
        self.assertEqual(done.returncode, status)

    def test_counts_single_tests_and_says_why_some_are_skipped(self):
        done = self.run_script("-t", "kvpool")
        self.expect(done, 0, "2 passed, 0 failed, 1 skipped")
        self.assertIn("skipped: no model", done.stdout)

    def test_a_failed_test_fails_the_run_and_is_shown(self):
        self.program("tests/gpu/test_images", "#!/bin/sh\necho 'not ok 1 - x'\n"
                                              "echo '# 0 passed, 1 failed, 0 skipped'\nexit 1\n")
        done = self.run_script("-t", "kvpool", "-t", "images")
        self.expect(done, 1, "2 passed, 1 failed, 1 skipped")
        self.assertIn("not ok 1 - x", done.stdout)

    def test_a_program_that_dies_has_failed(self):
        self.program("tests/gpu/test_images", "#!/bin/sh\necho '# 3 passed, 0 failed, 0 skipped'\n"
                                              "kill -9 $$\n")
        self.expect(self.run_script("-t", "images"), 1, "0 passed, 1 failed, 0 skipped")

    def test_what_is_not_built_is_skipped(self):
        done = self.run_script("-t", "probe-large")
        self.expect(done, 0, "0 passed, 0 failed, 1 skipped")
        self.assertIn("gpu/gpu_large is not there", done.stdout)

    def test_without_a_gpu_it_says_so_and_fails(self):
        self.program("tests/engine/test_kvpool_gpu",
                     "#!/bin/sh\necho 'ok 1 - a # SKIP no driver here'\nexit 4\n")
        self.expect(self.run_script(), 1,
                    "check-gpu: there is no GPU to check: no driver here")

    def test_racecheck_gets_the_images_made_for_it(self):
        self.program("gpu/gpu_large", "#!/bin/sh\n")
        self.program("gpu/races/a", "")
        self.program("cuda/bin/compute-sanitizer",
                     "#!/bin/sh\necho \"$*\" >>%s/said\necho 'RACECHECK SUMMARY: 0 hazards'\n"
                     % self.folder)
        self.expect(self.run_script("-t", "racecheck-large", "-t", "memcheck-large"), 0,
                    "2 passed, 0 failed, 0 skipped")
        with open(os.path.join(self.folder, "said"), encoding="utf-8") as f:
            said = sorted(f.read().splitlines())
        self.assertIn("--tool memcheck", said[0])
        self.assertTrue(said[0].endswith("gpu/gpu_large %s/gpu large-small" % self.folder), said)
        self.assertIn("--tool racecheck", said[1])
        self.assertTrue(said[1].endswith("gpu_large %s/gpu/races large-small" % self.folder), said)

    def test_what_a_sanitizer_finds_fails(self):
        self.program("gpu/gpu_sample", "#!/bin/sh\n")
        for found, status, last in ((0, 0, "1 passed, 0 failed, 0 skipped"),
                                    (3, 0, "0 passed, 1 failed, 0 skipped"),
                                    (0, 1, "0 passed, 1 failed, 0 skipped")):
            self.program("cuda/bin/compute-sanitizer", SANITIZER.format("ERROR", found, status))
            self.expect(self.run_script("-t", "memcheck-sample"), last[0] == "0", last)

    def test_what_takes_too_long_is_ended(self):
        self.program("gpu/gpu_sample", "#!/bin/sh\nsleep 100 & wait\n")
        start = time.monotonic()
        done = self.run_script("-t", "probe-sample", "--timeout", "1")
        # Not only the program itself, but what it has started.
        self.assertLess(time.monotonic() - start, 50)
        self.expect(done, 1, "0 passed, 1 failed, 0 skipped")
        self.assertIn("not done after 1 s", done.stdout)
        done = self.run_script("-t", "probe-sample", "--seconds", "1")
        self.expect(done, 0, "0 passed, 0 failed, 1 skipped")
        self.assertIn("the time was over", done.stdout)


LINEAR = "linear {} 14336 x  4096 M {:3d},  6 stages{}: {:7.2f} us, 4.320 TB/s packed = " \
         "96.0 %, {} TB/s of the file's\n"
DECODE = "decode  T=32      128 MiB {:<9} one cold    248.2 us (min    245.3) {} TB/s, 8 layers  " \
         "  253.5 us each 4.235 TB/s\n"
# What each program prints, as far as it is looked at.
OUTPUTS = {
    "attention":
        DECODE.format("32 x 8k", 4.326) + DECODE.format("1 x 32k", 2.105) +
        DECODE.format("64 ragged", 4.280) +
        "prefill T=32      128 MiB   8192 tokens    905.2 us (min    900.7) 607.4 TFLOP/s\n",
    "linear": "".join(LINEAR.format(*row) for row in (
        ("bf16_m8 ", 1, "    ", 29.2, 4.0), ("bf16_m8 ", 1, " pdl", 27.2, 4.3),
        ("bf16_m16", 16, " pdl", 41.0, 4.1), ("q4_0_m8 ", 1, " pdl", 11.5, 2.88),
        ("q4_k_m8 ", 1, " pdl", 14.5, 2.16), ("q8_0_m8 ", 1, " pdl", 16.9, 3.69))),
    "peer":
        "peer cuBLAS bf16 14336 x 4096 M 1: 30.20 us 3.888 TB/s\n"
        "peer flash decode 32 x 8192: 300.0 us 2.200 TB/s\n"
        "peer cudnn prefill 8192: 905.1 us 580.1 TFLOP/s\n",
    "model":
        "prefill   8192 tokens            33700 tok/s     243.00 ms\n"
        "decode at    128  ahead          241.1 tok/s      4.404 ms  p99 5.1\n"
        "decode at   8192  one by one     217.1 tok/s      4.404 ms  p99 5.1\n"
        "decode at  32768                 184.2 tok/s      4.404 ms  p99 5.1\n"
        "decode of 500 tokens behind 128, ahead, memory made on the way / there before: median "
        "4.519 / 4.515 ms, p99 4.662 / 4.567, p999 4.890 / 4.702; 394.0 MiB were given back\n"
        "decode of 500 tokens behind 2048, ahead, memory made on the way / there before: median "
        "4.519 / 4.515 ms, p99 4.600 / 4.567, p999 4.890 / 4.702; 394.0 MiB were given back\n"
        "fork at 32768 tokens: median 0.227 ms, p99 0.304; 4.00 MiB of new memory each\n"
        "256 x (1000 in, 1000 out) ahead  8358 tok/s out of all time  (in 7.31 s = 35021 tok/s, "
        "out 23.59 s = 10832 tok/s; a step 22.98 ms, p99 43.60)\n",
    "attach":
        "attach to 32768 tokens of a peer: first 9.00 ms, median 4.20, worst 9.00; then to a "
        "token: first 6.10, median 5.00\n"
        "attach to 32768 tokens, known: first 0.90 ms, median 0.80, worst 0.90; then to a token: "
        "first 6.10, median 5.00\n",
    "daemons":
        "24 requests, 0 failed; over a limit in 0 samples of 99; most mapped 1.0 GB; mapped / "
        "needed at most 1.051; ended with [0, 0, 0]\n",
}
FIGURES = {
    "decode attention, 32 x 8k": 4.326, "prefill attention, causal, 8k": 607.4,
    "14336 x 4096 bf16, M = 1": 27.2, "8B, prefill of 8k": 33700,
    "8B, 256 x (1000 in, 1000 out)": 8358, "8B, batch 1, context 8k": 217.1,
    "attach to a peer's 32k prefix": 4.2, "fork of a 32k context": 0.227,
    "3 daemons, 3 models: mapped over needed": 1.051,
}


class BenchGpu(ScriptCase):
    def rows(self):
        bench = load("bench-gpu")
        rows = [*bench.attention_rows(), *bench.linear_rows(), *bench.model_rows()]
        for row in rows:
            row.look(OUTPUTS)
        return {row.name: row for row in rows}

    def test_every_bar_finds_its_figure(self):
        rows = self.rows()
        self.assertEqual([row.name for row in rows.values() if row.figure is None], [])
        for name, figure in FIGURES.items():
            self.assertEqual(rows[name].figure, figure)
        self.assertAlmostEqual(rows["14336 x 4096 Q4_0, M = 1, of 4.5 TB/s"].figure, 64)
        for context, percent in ((128, 2.08), (2048, 0.72)):
            name = "growth from %d: p99 of decode over preallocated" % context
            self.assertAlmostEqual(rows[name].figure, percent, 2)

    def test_rows_say_what_is_met_and_what_stands_beside(self):
        rows = self.rows()
        for name, verdict in (("decode attention, 32 x 8k", "must met"),
                              ("decode attention, 1 x 32k", "MISSED"),
                              ("14336 x 4096 bf16, M = 1", "goal met"),
                              ("14336 x 4096 bf16, M = 16", "MISSED"),
                              ("14336 x 4096 Q4_K, M = 1, of 4.5 TB/s", "MISSED"),
                              ("8B, batch 1, context 128", "goal met"),
                              ("attach to a peer's 32k prefix", "goal met")):
            self.assertIn(verdict, rows[name].text())
        self.assertIn("cuBLAS 30.20", rows["14336 x 4096 bf16, M = 1"].text())
        self.assertIn("SDPA cudnn 580.1", rows["prefill attention, causal, 8k"].text())


if __name__ == "__main__":
    tap.main()
