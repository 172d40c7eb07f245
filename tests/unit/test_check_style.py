#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-style finds each offence it is there for, in a small tree made for it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class CheckStyle(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tarn-style-")
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copy(os.path.join(tap.ROOT, ".clang-format"), self.root)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", newline="") as f:
            f.write(text)

    def run_it(self):
        return subprocess.run([os.path.join(tap.ROOT, "scripts", "check-style"),
                               "--root", self.root], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)

    def caught(self, path, text, *messages):
        self.write(path, text)
        result = self.run_it()
        self.assertEqual(result.returncode, 1, result.stdout)
        for message in messages:
            self.assertIn(message, result.stdout)

    def passes(self, path, text):
        self.write(path, text)
        result = self.run_it()
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_tree_is_looked_at_where_git_cannot_tell(self):
        self.write(".git", "not a repository\n")
        self.caught("engine/a.c", "int a;\n", "engine/a.c:1: no SPDX")

    def test_good_file_passes(self):
        self.passes("engine/a.c", SPDX + "int a(void)\n{\n\treturn 0;\n}\n")

    def test_missing_spdx(self):
        self.caught("engine/a.c", "int a;\n", "engine/a.c:1: no SPDX")

    def test_wrong_licence_in_the_kernel_module(self):
        self.caught("kmod/a.c", SPDX + "int a;\n", "kmod/a.c:1: the licence here is GPL-2.0")

    def test_wrong_licence_in_a_test_module(self):
        self.caught("tests/kmod/pin/a.c", SPDX + "int a;\n", "tests/kmod/pin/a.c:1: the licence")
        self.write("tests/kmod/pin/a.c", SPDX.replace("Apache-2.0", "GPL-2.0") + "int a;\n")
        self.passes("tests/kmod/test_a.c", SPDX + "int a;\n")

    def test_script_without_suffix_needs_spdx(self):
        self.caught("scripts/a", "#!/bin/sh\ntrue\n", "scripts/a:1: no SPDX")

    def test_long_line_counts_tabs_as_eight(self):
        text = "\t/* " + "x" * 90 + " */\n"
        self.caught("engine/a.c", SPDX + text, "engine/a.c:2: 104 columns")

    def test_line_of_hundred_characters_passes(self):
        self.passes("engine/a.c", SPDX + "/* " + "\u00e9" * 94 + " */\n")

    def test_long_file(self):
        self.caught("engine/a.c", SPDX + "int a;\n" * 800, "engine/a.c:801: 801 lines")

    def test_long_function(self):
        body = "\tx++;\n" * 99
        self.caught("engine/a.c", SPDX + "void a(int x)\n{\n" + body + "}\n",
                    "engine/a.c:3: a function of 101 lines")

    def test_function_of_hundred_lines_passes(self):
        self.passes("engine/a.c", SPDX + "void a(int x)\n{\n" + "\tx++;\n" * 98 + "}\n")

    def test_trailing_space(self):
        self.caught("engine/a.c", SPDX + "int a; \n", "engine/a.c:2: trailing space")
        self.caught("notes.md", "text \n", "notes.md:1: trailing space")

    def test_carriage_return(self):
        self.caught("engine/a.c", SPDX + "int a;\r\n", "engine/a.c:2: carriage return")

    def test_no_newline_at_the_end(self):
        self.caught("engine/a.c", SPDX + "int a;", "no newline at the end")

    def test_path_of_a_machine(self):
        for path in ("/ro" + "ot/x", "/ho" + "me/someone/x", "/wo" + "rk/x"):
            with self.subTest(path=path):
                self.caught("engine/a.c", SPDX + f"/* see {path} */\n",
                            "engine/a.c:2: a path of one machine")

    def test_mark_of_unfinished_work(self):
        self.caught("engine/a.c", SPDX + "/* TO" + "DO */\n", "a mark of unfinished work")

    def test_host_of_a_registry(self):
        self.caught("scripts/a.py", "# SPDX-License-Identifier: Apache-2.0\n# py" + "pi.org\n",
                    "the host of a registry")

    @unittest.skipUnless(shutil.which("clang-format"), "no clang-format here")
    def test_layout(self):
        self.caught("engine/a.c", SPDX + "int a(void) {\n    return 0;\n}\n",
                    "engine/a.c:2: not laid out")

    def test_test_data_is_left_alone(self):
        self.passes("tests/data/words.txt", "trailing \r\n")


if __name__ == "__main__":
    tap.main()
