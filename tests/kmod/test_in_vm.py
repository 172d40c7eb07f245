#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every test of the kernel module, run in the machine of scripts/vm-run (tests/kmod/run-in-vm) and
told on as TAP, one line for each. What runs the tests of this tree calls only this file; the
programs beside it need /dev/kvpool, which the machine one sits at should not have.

-t NAME runs those whose name contains NAME. Skipped where the machine or the module cannot be
built; with CI set in the environment that is a failure."""

import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TARN_BUILD_DIR", os.path.join(ROOT, "build"))
MODULE = os.path.join(ROOT, "build", "kvpool.ko")
TIMEOUT_S = 2600


class Tap:
    """Counts and prints verdicts; what stood before a failed one was printed as it came."""

    def __init__(self):
        self.number = self.nr_failed = self.nr_skipped = 0

    def verdict(self, is_ok, name, skip=None):
        self.number += 1
        self.nr_failed += not is_ok
        self.nr_skipped += skip is not None
        print(f"{'ok' if is_ok else 'not ok'} {self.number} - {name}"
              + (f" # SKIP {skip}" if skip is not None else ""), flush=True)

    def end(self):
        print(f"1..{self.number}")
        if self.nr_failed:
            return 1
        return 4 if self.nr_skipped == self.number else 0


def missing():
    """Why nothing can run, or None."""
    if not os.path.exists(MODULE):
        return "the module is not built (make modules)"
    probe = subprocess.run([os.path.join(ROOT, "scripts/vm-run"), "--", "true"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if probe.returncode != 0:
        return "no virtual machine: " + (probe.stdout.strip().splitlines() or ["no reason"])[-1]
    return None


def tell(tap, lines):
    """Turns the run's output into verdicts. Each program prints a TAP of its own."""
    for line in lines:
        line = line.rstrip("\n")
        found = re.match(r"(ok|not ok)(?: \d+)? - (.*?)(?: # SKIP ?(.*))?$", line)
        if found:
            tap.verdict(found[1] == "ok", found[2], found[3])
        elif not re.match(r"TAP version|1\.\.\d+$", line):
            print(line if line.startswith("#") else f"# {line}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-l", action="store_true", help="list the programs")
    parser.add_argument("-t", metavar="NAME", action="append", default=[])
    options = parser.parse_args()
    if options.l:
        print("in_vm")
        return 0
    print("TAP version 13")
    tap = Tap()
    reason = missing()
    if reason:
        is_ci = bool(os.environ.get("CI"))
        tap.verdict(not is_ci, "in_vm" + (f": {reason}" if is_ci else ""),
                    None if is_ci else reason)
        return tap.end()
    command = [os.path.join(ROOT, "scripts/vm-run"), "--timeout", str(TIMEOUT_S), "--",
               os.path.join(ROOT, "tests/kmod/run-in-vm"), "-v"]
    for name in options.t:
        command += ["-t", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace",
                          env=dict(os.environ, TARN_TEST_BUILD=BUILD)) as process:
        tell(tap, process.stdout)
        status = process.wait()
    # What failed inside has its own line; this one is for what no test could say.
    tap.verdict(status == 0 or status == 1 and tap.nr_failed > 0,
                f"the machine and the kernel's log (status {status})")
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
