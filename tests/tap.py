# SPDX-License-Identifier: Apache-2.0
"""Lets a unittest file be a test program: TAP 13 on standard output, the harness's options.

Use, in an executable tests/<room>/test_<subject>.py (the first two lines find this file when the
test is run by hand):

    import os, sys
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import tap, unittest
    class Subject(unittest.TestCase): ...
    if __name__ == "__main__":
        tap.main()

Options: -l lists the tests, -t NAME runs those whose name contains NAME. Exit status as for
tests/harness.h: 0 passed, 1 failed, 4 all skipped or none chosen. What a test prints appears as
comments. Each subTest that fails fails its test.
"""

import argparse
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Where this run's tarnd and tarn lie, and how much slower than normal they are.
BUILD_DIR = os.environ.get("TARN_BUILD_DIR", os.path.join(ROOT, "build"))
TIME_SCALE = int(os.environ.get("TARN_TEST_TIME_SCALE", "1"))


def comment(text):
    for line in str(text).rstrip("\n").split("\n"):
        print(f"# {line}")
    sys.stdout.flush()


def name_of(test):
    return ".".join(test.id().split(".")[-2:])


class TapResult(unittest.TestResult):
    """Prints one line per test; the reasons of a failure stand before it."""

    def __init__(self):
        super().__init__()
        self.number = self.nr_passed = self.nr_failed = self.nr_skipped = 0
        self.reasons = []
        self.skip_reason = None

    def startTest(self, test):
        super().startTest(test)
        self.reasons = []
        self.skip_reason = None

    def fail_with(self, test, err):
        self.reasons.append(self._exc_info_to_string(err, test))

    def addError(self, test, err):
        if isinstance(test, unittest.TestCase):
            self.fail_with(test, err)
        else:
            # setUpClass or setUpModule: no test is running, and none of its tests will.
            comment(self._exc_info_to_string(err, test))
            self.number += 1
            self.nr_failed += 1
            print(f"not ok {self.number} - {test.id()}", flush=True)

    addFailure = fail_with

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.reasons.append(f"{subtest}")
            self.fail_with(test, err)

    def addSkip(self, test, reason):
        self.skip_reason = reason
        if not isinstance(test, unittest.TestCase):
            self.number += 1
            self.nr_skipped += 1
            print(f"ok {self.number} - {test.id()} # SKIP {reason}", flush=True)

    def addExpectedFailure(self, test, err):
        pass

    def addUnexpectedSuccess(self, test):
        self.reasons.append("succeeded against expectation")

    def stopTest(self, test):
        super().stopTest(test)
        self.number += 1
        name = name_of(test)
        if self.reasons:
            self.nr_failed += 1
            for reason in self.reasons:
                comment(reason)
            print(f"not ok {self.number} - {name}")
        elif self.skip_reason is not None:
            self.nr_skipped += 1
            print(f"ok {self.number} - {name} # SKIP {self.skip_reason}")
        else:
            self.nr_passed += 1
            print(f"ok {self.number} - {name}")
        sys.stdout.flush()


def all_tests(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from all_tests(item)
        else:
            yield item


class CommentStream:
    """Turns what tests print into comments, whole lines at a time."""

    def __init__(self, stream):
        self.stream = stream
        self.is_line_start = True

    def write(self, text):
        for piece in text.splitlines(keepends=True):
            self.stream.write(("# " if self.is_line_start else "") + piece)
            self.is_line_start = piece.endswith("\n")
        return len(text)

    def flush(self):
        self.stream.flush()

    def __getattr__(self, name):
        return getattr(self.stream, name)


def main():
    parser = argparse.ArgumentParser(description="A test program: TAP 13 on standard output.")
    parser.add_argument("-l", action="store_true", dest="is_list", help="list the tests")
    parser.add_argument("-t", action="append", dest="names", metavar="NAME", default=[],
                        help="run the tests whose name contains NAME")
    arguments = parser.parse_args()
    loaded = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    chosen = [test for test in all_tests(loaded)
              if not arguments.names or any(n in name_of(test) for n in arguments.names)]
    if arguments.is_list:
        for test in chosen:
            print(name_of(test))
        return
    print("TAP version 13", flush=True)
    if not chosen:
        print("1..0 # SKIP no test of this name")
        sys.exit(4)
    sys.stderr = CommentStream(sys.stdout)
    result = TapResult()
    unittest.TestSuite(chosen).run(result)
    # At the end, since a class that cannot be set up runs none of its tests.
    print(f"1..{result.number}")
    print(f"# {result.nr_passed} passed, {result.nr_failed} failed, {result.nr_skipped} skipped",
          flush=True)
    if result.nr_failed:
        sys.exit(1)
    sys.exit(0 if result.nr_passed else 4)
