#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-kmod finds what checkpatch and sparse find, in a small module made for it."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

SOURCE = "/usr/src/linux-source-6.1.tar.xz"
HEADERS = [path for path in glob.glob("/usr/src/linux-headers-*-amd64")
           if os.path.isdir(os.path.join(path, "include"))]
MODULE = """\
// SPDX-License-Identifier: GPL-2.0
/* A module that does nothing. */
#include <linux/module.h>
#include <linux/uaccess.h>

static int __init small_init(void)
{
	return 0;
}
module_init(small_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("small");
"""
KBUILD = """\
# SPDX-License-Identifier: GPL-2.0
obj-m := small.o
small-y := kmod/small_main.o
"""
UAPI = """\
/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
#define SMALL_FLAG (1U << 0)
"""


class CheckKmod(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tarn-kmod-")
        self.addCleanup(shutil.rmtree, self.root)
        self.write("Kbuild", KBUILD)
        self.write("kmod/small_main.c", MODULE)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="ascii") as file:
            file.write(text)

    def run_it(self, *arguments):
        return subprocess.run([os.path.join(tap.ROOT, "scripts", "check-kmod"),
                               "--root", self.root, *arguments], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def passes(self, *arguments):
        result = self.run_it(*arguments)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def finds(self, only, *messages):
        result = self.run_it("--only", only)
        self.assertEqual(result.returncode, 1, result.stdout)
        for message in messages:
            self.assertIn(message, result.stdout)

    @unittest.skipUnless(os.path.exists(SOURCE), "no linux-source-6.1 here")
    def test_checkpatch(self):
        self.passes("--only", "checkpatch")
        self.write("kmod/small_main.c", MODULE.replace("return 0;", "if (1) return 0;"))
        self.finds("checkpatch", "kmod/small_main.c:8: ERROR:TRAILING_STATEMENTS",
                   "checkpatch: 1 offences")

    @unittest.skipUnless(os.path.exists(SOURCE), "no linux-source-6.1 here")
    def test_what_is_allowed_is_allowed_there_only(self):
        self.write("uapi/small.h", UAPI)
        self.passes("--only", "checkpatch")
        self.write("kmod/small.h", UAPI)
        self.finds("checkpatch", "kmod/small.h:2: CHECK:BIT_MACRO", "checkpatch: 1 offences")

    @unittest.skipUnless(os.path.exists(SOURCE), "no linux-source-6.1 here")
    def test_what_is_allowed_and_not_needed(self):
        self.write("uapi/small.h", UAPI.replace("(1U << 0)", "1"))
        self.finds("checkpatch", "uapi/*.h: BIT_MACRO is allowed in scripts/check-kmod, but not")

    @unittest.skipUnless(HEADERS and shutil.which("sparse"), "no sparse or no kernel headers here")
    def test_sparse(self):
        self.passes("--only", "sparse")
        # A second time nothing is compiled, but all is checked.
        self.write("kmod/small_main.c", MODULE.replace(
            "return 0;", "return *(int __user *)small_init;"))
        self.finds("sparse", "kmod/small_main.c:8", "dereference of noderef expression")
        self.finds("sparse", "dereference of noderef expression")

    @unittest.skipUnless(HEADERS and shutil.which("sparse"), "no sparse or no kernel headers here")
    def test_module_that_does_not_build(self):
        self.write("kmod/small_main.c", MODULE.replace("return 0;", "return nothing;"))
        self.finds("sparse", "nothing")

    def test_missing_source_is_named(self):
        arguments = ("--only", "checkpatch", "--source", os.path.join(self.root, "none.tar.xz"))
        result = self.run_it(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("checkpatch is left out", result.stdout)
        self.assertIn("(package linux-source-6.1)", result.stdout)
        self.assertEqual(self.run_it(*arguments, "--need-tools").returncode, 1)


if __name__ == "__main__":
    tap.main()
