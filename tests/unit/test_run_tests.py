#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/run-tests counts, filters and judges right, in a small tree of shell-script programs."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap


class RunTests(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tarn-run-tests-")
        self.addCleanup(shutil.rmtree, self.root)

    def program(self, path, body):
        """A C test's place with a script in the place of what would be built from it."""
        source = os.path.join(self.root, "tests", path + ".c")
        built = os.path.join(self.root, "build", "tests", path)
        for full in (source, built):
            os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(source, "w", encoding="ascii"):
            pass
        with open(built, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + body + "\n")
        os.chmod(built, 0o755)

    def run_it(self, *arguments, **environment):
        return subprocess.run([os.path.join(tap.ROOT, "scripts", "run-tests"), "--root", self.root,
                               *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False,
                              env=dict(os.environ, **environment))

    def ends(self, result, last_line, status):
        self.assertEqual(result.stdout.splitlines()[-1], last_line, result.stdout)
        self.assertEqual(result.returncode, status, result.stdout)

    def test_counts_single_tests_of_all_programs(self):
        self.program("unit/test_a", "echo 1..3; echo ok 1; echo ok 2; echo 'ok 3 # SKIP no gpu'")
        self.program("engine/test_b", "echo 1..1; echo ok 1 - b")
        result = self.run_it()
        self.ends(result, "3 passed, 0 failed, 1 skipped", 0)
        self.assertIn("skipped, 1 times: no gpu", result.stdout)

    def test_failure_shows_its_own_diagnostics_only(self):
        self.program("unit/test_a", "echo 1..2; echo '# first'; echo ok 1; echo '# the reason'; "
                     "echo not ok 2 - bad; exit 1")
        result = self.run_it()
        self.ends(result, "1 passed, 1 failed, 0 skipped", 1)
        self.assertIn("# the reason\n", result.stdout)
        self.assertIn("not ok 2 - bad\n", result.stdout)
        self.assertNotIn("# first", result.stdout)

    def failed_program(self, body, reason):
        self.program("unit/test_a", body)
        result = self.run_it()
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(reason, result.stdout)
        self.assertRegex(result.stdout.splitlines()[-1], r"^\d+ passed, 1 failed, 0 skipped$")

    def test_program_without_plan_fails(self):
        self.failed_program("echo hello", "No plan found")

    def test_program_that_dies_fails(self):
        self.failed_program("echo 1..1; echo ok 1; kill -SEGV $$", "died of signal 11")

    def test_program_that_stops_early_fails(self):
        self.failed_program("echo 1..3; echo ok 1", "Bad plan")

    def test_status_without_failed_test_fails(self):
        self.failed_program("echo 1..1; echo ok 1; exit 3", "ended with status 3")

    def test_status_4_beside_passed_tests_fails(self):
        self.failed_program("echo 1..1; echo ok 1; exit 4", "ended with status 4")

    def test_message_on_standard_error_is_shown(self):
        self.failed_program("echo 1..1; echo boom >&2; exit 1", "boom")

    def test_program_that_was_not_built_fails(self):
        self.program("unit/test_a", "")
        os.unlink(os.path.join(self.root, "build/tests/unit/test_a"))
        self.ends(self.run_it(), "0 passed, 1 failed, 0 skipped", 1)

    def test_status_4_with_all_skipped_passes(self):
        self.program("unit/test_a", "echo 1..1; echo 'ok 1 # SKIP no gpu'; exit 4")
        self.ends(self.run_it(), "0 passed, 0 failed, 1 skipped", 0)

    def test_program_that_skips_as_a_whole_counts_as_one(self):
        self.program("unit/test_a", "echo '1..0 # SKIP no openai'; exit 4")
        result = self.run_it()
        self.ends(result, "0 passed, 0 failed, 1 skipped", 0)
        self.assertIn("no openai", result.stdout)

    def test_rooms_choose_and_unknown_ones_are_refused(self):
        self.program("unit/test_a", "echo 1..1; echo ok 1")
        self.program("engine/test_b", "echo 1..1; echo not ok 1; exit 1")
        self.ends(self.run_it("unit"), "1 passed, 0 failed, 0 skipped", 0)
        self.assertNotEqual(self.run_it("cellar").returncode, 0)

    def test_names_are_passed_on(self):
        self.program("unit/test_a", 'echo 1..1; echo "ok 1 - $1 $2"')
        result = self.run_it("-v", "-t", "some.name")
        self.assertIn("ok 1 - -t some.name", result.stdout)

    def test_nothing_run_is_a_failure(self):
        self.program("unit/test_a", "echo '1..0 # SKIP no test of this name'; exit 4")
        self.ends(self.run_it("-t", "nonesuch"), "0 passed, 0 failed, 0 skipped", 1)

    def test_second_build_runs_its_rooms_only_and_sums_up(self):
        self.program("unit/test_a", "echo 1..1; echo ok 1")
        self.program("bpf/test_b", "echo 1..1; echo ok 1")
        shutil.copytree(os.path.join(self.root, "build"), os.path.join(self.root, "other"))
        result = self.run_it("--build-dir", "build", "--build-dir", "other:unit,engine")
        self.ends(result, "3 passed, 0 failed, 0 skipped", 0)

    def test_benchmarks_run_by_switch_only(self):
        self.program("unit/test_a", "echo 1..1; echo ok 1")
        self.program("bench/test_speed", "echo 1..1; echo not ok 1; exit 1")
        self.program("bench/bench_speed", "echo 12 GB/s")
        self.ends(self.run_it(), "1 passed, 0 failed, 0 skipped", 0)
        result = self.run_it("--bench")
        self.ends(result, "1 benchmarks run, 0 failed", 0)
        self.assertIn("12 GB/s\n", result.stdout)

    def test_models_given_are_handed_on(self):
        self.program("unit/test_a", 'echo 1..1; echo "ok 1 - $TARN_TEST_MODEL $TARN_BUILD_DIR"')
        result = self.run_it("-v", TARN_TEST_MODEL="/m.gguf")
        self.assertIn(f"ok 1 - /m.gguf {os.path.realpath(self.root)}/build\n", result.stdout)

    def test_missing_models_fail_where_they_are_needed(self):
        self.program("unit/test_a", "echo 1..1; echo ok 1")
        result = self.run_it("--need-models", TARN_TEST_MODEL="", TARN_TEST_MODEL_GEMMA="")
        self.ends(result, "1 passed, 1 failed, 0 skipped", 1)


if __name__ == "__main__":
    tap.main()
