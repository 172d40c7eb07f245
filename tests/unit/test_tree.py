#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tree keeps its own rules: style, arrows between rooms, ABI, and a help line per target."""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap


class Tree(unittest.TestCase):
    def check(self, script):
        result = subprocess.run([os.path.join(tap.ROOT, "scripts", script)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(result.returncode, 0, "\n" + result.stdout)
        return result.stdout

    def test_style_holds(self):
        self.check("check-style")

    def test_arrows_hold(self):
        self.check("check-deps")

    def test_abi_holds(self):
        self.check("check-abi")

    def test_kernel_checks_hold(self):
        shown = self.check("check-kmod")
        if shown:
            self.skipTest(shown.strip())

    def test_help_lists_every_target(self):
        with open(os.path.join(tap.ROOT, "Makefile"), encoding="utf-8") as f:
            phony = " ".join(re.findall(r"^\.PHONY: (.*)$", f.read(), re.M)).split()
        shown = subprocess.run(["make", "-C", tap.ROOT, "help"], text=True, check=True,
                               stdout=subprocess.PIPE).stdout
        for target in sorted(set(phony) - {"FORCE", "deps"}):
            with self.subTest(target=target):
                self.assertRegex(shown, rf"(?m)^  {target} +\S")


if __name__ == "__main__":
    tap.main()
