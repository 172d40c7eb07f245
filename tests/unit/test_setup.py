#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup in a world of made-up dpkg-query, apt-get, id and sudo: nothing is installed."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tarn-setup-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = os.path.join(self.folder, "log")
        self.installed = os.path.join(self.folder, "installed")
        self.be(1000)
        # Reports what was asked for and is in the file `installed`, as dpkg-query does.
        self.command("dpkg-query", 'shift 2; for p; do if grep -qx "$p" "$INSTALLED"; then '
                     'echo "$p installed"; else echo "dpkg-query: no package $p" >&2; fi; done; '
                     "exit 1")
        self.command("apt-get", 'echo "apt-get $*" >>"$LOG"; if [ "$1" = install ]; then '
                     '[ -e "$LISTS" ] || exit 100; shift; for p; do case $p in -*) ;; '
                     '*) echo "$p" >>"$INSTALLED";; esac; done; else touch "$LISTS"; fi')

    def command(self, name, body):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + body + "\n")
        os.chmod(path, 0o755)

    def be(self, uid):
        self.command("id", f"echo {uid}")
        self.command("sudo", "exit 1")

    def have(self, *packages):
        with open(self.installed, "w", encoding="ascii") as f:
            f.writelines(p + "\n" for p in packages)

    def run_it(self, *arguments):
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}", LOG=self.log,
                           INSTALLED=self.installed, LISTS=os.path.join(self.folder, "lists"),
                           TARN_CACHE=os.path.join(self.folder, "cache"))
        return subprocess.run([os.path.join(tap.ROOT, "scripts", "setup"), *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env=environment)

    def calls(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="ascii") as f:
            return f.read().splitlines()

    def all_packages(self):
        """What setup wants, from what it says that is missing."""
        self.have()
        shown = self.run_it("--check").stdout
        return shown.split("missing: ")[1].split()

    def test_everything_there_changes_nothing(self):
        self.have(*self.all_packages())
        result = self.run_it()
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertEqual(self.calls(), [])

    def test_ordinary_user_is_told_exactly_what_is_missing(self):
        packages = self.all_packages()
        self.have(*packages[1:])
        result = self.run_it()
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"    apt-get install {packages[0]}\n", result.stdout)
        self.assertEqual(self.calls(), [])

    def test_root_installs_what_is_missing_only(self):
        packages = self.all_packages()
        self.have(*packages[2:])
        self.be(0)
        result = self.run_it()
        self.assertEqual(result.returncode, 0, result.stdout)
        install = f"apt-get install -y -q --no-install-recommends {packages[0]} {packages[1]}"
        self.assertEqual(self.calls(), [install, "apt-get update -q", install])

    def test_sudo_without_password_is_used(self):
        packages = self.all_packages()
        self.have(*packages[1:])
        self.command("sudo", 'echo "sudo $*" >>"$LOG"; shift; exec "$@"')
        result = self.run_it()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertTrue(any(c.startswith("sudo -n env ") for c in self.calls()), self.calls())

    def test_package_that_does_not_come_is_named(self):
        packages = self.all_packages()
        self.have(*packages[1:])
        self.be(0)
        self.command("apt-get", "exit 0")
        result = self.run_it()
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"still missing after the installation: {packages[0]}", result.stdout)

    def test_failing_installation_fails(self):
        self.have(*self.all_packages()[1:])
        self.be(0)
        self.command("apt-get", "exit 100")
        self.assertNotEqual(self.run_it().returncode, 0)

    def test_check_installs_nothing(self):
        self.be(0)
        self.have()
        self.assertEqual(self.run_it("--check").returncode, 1)
        self.assertEqual(self.calls(), [])

    def test_cuda_compiler_lies_in_the_cache(self):
        self.have(*self.all_packages())
        result = self.run_it("--cuda", "--check")
        self.assertEqual(result.returncode, 1)
        folder = os.path.join(self.folder, "cache", "cuda")
        self.assertIn(f"missing: the CUDA compiler in {folder}\n", result.stdout)
        os.makedirs(folder)
        with open(os.path.join(folder, "stamp"), "w", encoding="ascii") as f:
            f.write("of other versions\n")
        self.assertEqual(self.run_it("--cuda", "--check").returncode, 1)
        self.assertEqual(os.listdir(folder), ["stamp"])

    def test_unknown_option_is_refused(self):
        self.assertEqual(self.run_it("--frobnicate").returncode, 2)


if __name__ == "__main__":
    tap.main()
