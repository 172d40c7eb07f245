# SPDX-License-Identifier: Apache-2.0
"""Runs the Makefile on small trees that a test writes in a folder of its own."""

import os
import shutil
import subprocess
import tempfile
import unittest

import tap


class MakeCase(unittest.TestCase):
    """A test with a tree: the Makefile and its scripts, and what the test writes into it."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tarn-make-")
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copy(os.path.join(tap.ROOT, "Makefile"), self.root)
        os.makedirs(self.path("scripts"))
        for script in ("setup", "run-tests", "fetch-model"):
            shutil.copy(os.path.join(tap.ROOT, "scripts", script), self.path("scripts"))

    def path(self, name):
        return os.path.join(self.root, name)

    def write(self, tree):
        for name, text in tree.items():
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            with open(self.path(name), "w", encoding="ascii") as f:
                f.write(text)

    def try_make(self, *arguments, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS")) and
                k not in ("SAN", "WERROR", "V", "T", "B", "CI", "ROOMS")}
        kept.update(environment)
        return subprocess.run(["make", "-C", self.root, "-j2", *arguments], text=True, env=kept,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def make(self, *arguments, **environment):
        result = self.try_make(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout
