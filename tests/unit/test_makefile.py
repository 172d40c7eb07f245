#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Makefile on small trees made for it: rooms that are missing, flags, exports, rebuilding."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import make_kit
import tap

ENGINE_H = "int engine_answer(void);\n"
HEADER = "int kvpool_open(void);\nint kvpool_buf_get(int\n\t\t   a);\n"
TREE = {
    "engine/engine.h": ENGINE_H,
    "engine/engine.c": '#include "engine/engine.h"\nint engine_answer(void)\n{\n\treturn 42;\n}\n',
    "engine/kv/libkvpool.h": HEADER,
    "engine/kv/kvpool_open.c": '#include "engine/kv/libkvpool.h"\nint kvpool_inner(void);\n'
                               "int kvpool_inner(void)\n{\n\treturn 1;\n}\n"
                               "int kvpool_open(void)\n{\n\treturn kvpool_inner();\n}\n"
                               "int kvpool_buf_get(int a)\n{\n\treturn a;\n}\n",
    "kernels/cpu/sum_avx2.c": "#ifndef __AVX2__\n#error no AVX2\n#endif\n#ifdef __AVX512F__\n"
                              "#error AVX-512\n#endif\nint sum_avx2;\n",
    "kernels/cpu/sum_avx512.c": "#ifndef __AVX512VNNI__\n#error no VNNI\n#endif\nint sum_avx512;\n",
    "kernels/cpu/sum_ref.c": "#ifdef __AVX__\n#error AVX\n#endif\nint sum_ref;\n",
    "daemon/main.c": '#include "engine/engine.h"\n#include "daemon/shared.h"\n'
                     "int main(void)\n{\n\treturn shared() + engine_answer();\n}\n",
    "daemon/shared.h": "int shared(void);\n",
    "daemon/shared.c": '#include "daemon/shared.h"\nint shared(void)\n{\n\treturn 1;\n}\n',
    "daemon/cli_main.c": '#include "daemon/shared.h"\nint main(void)\n{\n\treturn shared();\n}\n',
    "tests/unit/test_a.c": '#include "engine/engine.h"\n#include "tests/unit/helper.h"\n'
                           "int main(void)\n{\n\treturn engine_answer() + helper() - 49;\n}\n",
    "tests/unit/helper.h": "int helper(void);\n",
    "tests/unit/helper.c": '#include "tests/unit/helper.h"\nint helper(void)\n{\n\treturn 7;\n}\n',
    "tests/daemon/test_b.c": '#include "daemon/shared.h"\nint main(void)\n{\n'
                             "\treturn shared() - 1;\n}\n",
}


class Makefile(make_kit.MakeCase):
    def status_of(self, program):
        return subprocess.run([self.path(program)], check=False).returncode

    def test_whole_tree_builds_and_runs(self):
        self.write(TREE)
        self.make("all", "tests", "WERROR=1")
        self.assertEqual(self.status_of("build/tarnd"), 43)
        self.assertEqual(self.status_of("build/tarn"), 1)
        self.assertEqual(self.status_of("build/tests/unit/test_a"), 0)
        self.assertEqual(self.status_of("build/tests/daemon/test_b"), 0)

    def test_empty_tree_builds(self):
        self.make()
        self.assertFalse(os.path.exists(self.path("build/tarnd")))

    def test_each_room_may_be_missing(self):
        for rooms in (("daemon/", "tests/daemon/"), ("kernels/",), ("engine/kv/",), ("tests/",)):
            with self.subTest(rooms=rooms):
                shutil.rmtree(self.path("build"), ignore_errors=True)
                for top in ("engine", "kernels", "daemon", "tests"):
                    shutil.rmtree(self.path(top), ignore_errors=True)
                self.write({k: v for k, v in TREE.items() if not k.startswith(rooms)})
                self.make("all", "tests")

    def test_daemon_without_main_is_left_out(self):
        self.write({k: v for k, v in TREE.items() if k != "daemon/main.c"})
        self.make("all", "tests")
        self.assertFalse(os.path.exists(self.path("build/tarnd")))
        self.assertTrue(os.path.exists(self.path("build/tarn")))

    def test_library_exports_what_its_header_declares(self):
        self.write(TREE)
        self.make()
        listed = subprocess.run(["nm", "-D", "--defined-only", self.path("build/libkvpool.so")],
                                text=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(sorted(line.split()[-1] for line in listed.splitlines()),
                         ["kvpool_buf_get", "kvpool_open"])
        dynamic = subprocess.run(["readelf", "-d", self.path("build/libkvpool.so")], text=True,
                                 stdout=subprocess.PIPE, check=True).stdout
        self.assertIn("soname: [libkvpool.so.0]", dynamic)

    def test_second_make_does_nothing(self):
        self.write(TREE)
        self.make("all", "tests")
        again = self.make("all", "tests")
        self.assertNotIn("  CC", again)
        self.assertNotIn("  LINK", again)

    def test_changed_header_rebuilds_its_users(self):
        self.write(TREE)
        self.make("tests")
        self.write({"tests/unit/helper.h": "int helper(void);\n#define MORE 1\n"})
        again = self.make("tests")
        self.assertIn("CC      tests/unit/helper.c", again)
        self.assertIn("CC      tests/unit/test_a.c", again)
        self.assertNotIn("CC      engine/engine.c", again)

    def test_removed_source_leaves_the_library(self):
        self.write(TREE)
        self.make("tests")
        os.unlink(self.path("tests/unit/helper.c"))
        result = self.try_make("tests")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("helper", result.stdout)

    def test_other_flags_rebuild(self):
        self.write(TREE)
        self.make()
        self.assertIn("CC      engine/engine.c", self.make("CFLAGS=-g1"))

    def test_warning_is_an_error_by_switch_only(self):
        self.write(TREE)
        self.write({"engine/warn.c": "int warn(int unused);\nint warn(int unused)\n{\n"
                                     "\treturn 1;\n}\n"})
        self.assertIn("Wunused-parameter", self.make())
        self.assertNotEqual(self.try_make("WERROR=1").returncode, 0)

    def test_sanitizer_build_has_its_own_folder_and_catches(self):
        self.write(TREE)
        self.write({"tests/unit/test_a.c": "#include <stdlib.h>\nint main(int argc, char **argv)\n"
                                           "{\n\tvolatile char *p = malloc(9);\n\n\t(void)argv;\n"
                                           "\tfree((void *)p);\n\treturn p[argc];\n}\n"})
        self.make("tests", "SAN=address,undefined")
        self.assertFalse(os.path.exists(self.path("build/tests")))
        result = subprocess.run([self.path("build/san-address-undefined/tests/unit/test_a")],
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                check=False)
        self.assertIn("heap-use-after-free", result.stderr)

    def test_run_fetches_the_model_and_asks(self):
        self.write({"daemon/cli_main.c": "#include <stdio.h>\nint main(int argc, char **argv)\n{\n"
                                         '\tprintf("%d <%s> <%s>\\n", argc, argv[1], argv[2]);\n'
                                         "\treturn 0;\n}\n"})
        for script in ("setup", "fetch-model"):
            self.write({f"scripts/{script}": f"#!/bin/sh\necho {script} $* >>{self.path('log')}\n"})
        shown = self.make("run", "PROMPT=What's \"this\"?")
        self.assertIn("3 <run> <What's \"this\"?>\n", shown)
        with open(self.path("log"), encoding="ascii") as f:
            self.assertEqual(f.read(), "setup \nfetch-model smollm2\n".replace(" \n", "\n"))

    def test_check_fails_where_a_test_fails(self):
        self.write({"tests/unit/test_a.c": "#include <stdio.h>\nint main(void)\n{\n"
                                           '\tputs("1..1\\nnot ok 1");\n\treturn 1;\n}\n',
                    "scripts/setup": "#!/bin/sh\n", "scripts/fetch-model": "#!/bin/sh\necho /m\n"})
        result = self.try_make("check")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("\n0 passed, 1 failed, 0 skipped\n", result.stdout)

    def test_check_under_ci_adds_the_sanitizer_pass(self):
        self.write({"tests/unit/test_a.c": "#include <stdio.h>\nint main(void)\n{\n"
                                           '\tputs("1..1\\nok 1");\n\treturn 0;\n}\n',
                    "scripts/setup": "#!/bin/sh\n", "scripts/fetch-model": "#!/bin/sh\necho /m\n"})
        shown = self.make("check", CI="1")
        self.assertIn("\n2 passed, 0 failed, 0 skipped\n", shown)
        self.assertIn("unit/test_a (build/san-address-undefined)", shown)

    def test_install_puts_files_below_destdir(self):
        self.write(TREE)
        self.write({"daemon/tarn.1": ".TH TARN 1\n"})
        self.make("install", "DESTDIR=" + self.path("dest"), "PREFIX=/usr")
        for name in ("bin/tarnd", "bin/tarn", "lib/libkvpool.so", "lib/libkvpool.so.0",
                     "include/libkvpool.h", "share/man/man1/tarn.1", "libexec/tarn/fetch-model"):
            self.assertTrue(os.path.exists(self.path("dest/usr/" + name)), name)

    def test_modules_need_headers(self):
        result = self.try_make("modules", "KDIR=" + self.path("nowhere"))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no kernel headers at", result.stdout)

    def test_missing_library_names_the_way_out(self):
        self.write(TREE)
        result = self.try_make("PKG_CONFIG=false")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("libevent", result.stdout)
        self.assertIn("make setup", result.stdout)

    def test_clean_removes_what_was_built(self):
        self.write(TREE)
        self.make()
        self.make("clean")
        self.assertFalse(os.path.exists(self.path("build")))


if __name__ == "__main__":
    tap.main()
