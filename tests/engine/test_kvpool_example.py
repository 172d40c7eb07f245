#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example program of libkvpool: builds by its own Makefile against the header and the library
alone, and shows the pools and buffers of another process."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap

PAGE = 4096
BACKEND_KERNEL = 1


class Options(ctypes.Structure):
    """struct kvpool_options, as the header has it."""
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("backend", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("limit_bytes", ctypes.c_uint64),
        ("spare_limit_bytes", ctypes.c_uint64),
        ("node_mask", ctypes.c_uint64),
        ("quota_bytes", ctypes.c_uint64),
        ("shared_quota_bytes", ctypes.c_uint64),
        ("mode", ctypes.c_uint32),
        ("is_shared_keys", ctypes.c_bool),
        ("is_small_pages", ctypes.c_bool),
        ("is_read_only", ctypes.c_bool),
    ]


class TestExample(unittest.TestCase):
    def setUp(self):
        # Only what a stranger has: the header, the library, and the example's folder.
        self.build = os.environ.get("TARN_BUILD_DIR", os.path.join(ROOT, "build"))
        if "san-" in os.path.basename(self.build.rstrip("/")):
            self.skipTest("a sanitized library wants a sanitized program")
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        os.makedirs(os.path.join(self.dir, "engine/kv"))
        os.makedirs(os.path.join(self.dir, "build"))
        shutil.copy(os.path.join(ROOT, "engine/kv/libkvpool.h"),
                    os.path.join(self.dir, "engine/kv"))
        for name in ("libkvpool.so", "libkvpool.so.0"):
            shutil.copy(os.path.join(self.build, "libkvpool.so"),
                        os.path.join(self.dir, "build", name))
        shutil.copytree(os.path.join(ROOT, "engine/kv/example"), os.path.join(self.dir, "ex"),
                        ignore=shutil.ignore_patterns("pool_join"))
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        subprocess.run(["make", "-s", "-C", os.path.join(self.dir, "ex"), "KVPOOL=" + self.dir,
                        "CFLAGS=-Wall -Wextra -Werror"], check=True, env=env)

    def run_example(self, *args):
        return subprocess.run([os.path.join(self.dir, "ex/pool_join"), *args],
                              capture_output=True, text=True)

    def test_says_that_there_is_no_pool(self):
        result = self.run_example("no.such.pool")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no.such.pool: No such ", result.stderr)
        self.assertEqual(self.run_example("a", "b").returncode, 2)

    def test_shows_a_pool_of_another_process(self):
        if not os.access("/dev/kvpool", os.R_OK | os.W_OK):
            self.skipTest("no /dev/kvpool here that admits this user")
        lib = ctypes.CDLL(os.path.join(self.build, "libkvpool.so"))
        pool, buf = ctypes.c_void_p(), ctypes.c_void_p()
        name = f"example.{os.getpid()}"
        options = Options(size=ctypes.sizeof(Options), backend=BACKEND_KERNEL,
                          name=name.encode(), limit_bytes=64 * PAGE, is_small_pages=True)
        self.assertEqual(lib.kvpool_open(ctypes.byref(options), ctypes.byref(pool)), 0)
        self.assertEqual(lib.kvpool_buf_create(pool, ctypes.c_uint64(16 * PAGE), 0,
                                               ctypes.byref(buf)), 0)
        self.assertEqual(lib.kvpool_buf_commit(buf, ctypes.c_uint64(0),
                                               ctypes.c_uint64(3 * PAGE)), 0)
        shown = self.run_example(name)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("limit      256 KiB\n", shown.stdout)
        self.assertIn("resident   12 KiB\n", shown.stdout)
        self.assertIn(f"owner {os.geteuid()}, 12 of 64 KiB, sealed 0 KiB, 0 keys, 1 handles, "
                      "private\n", shown.stdout)
        self.assertIn(f"{name}  ", self.run_example().stdout)
        lib.kvpool_buf_put(buf)
        lib.kvpool_put(pool)
        self.assertEqual(self.run_example(name).returncode, 1)


if __name__ == "__main__":
    tap.main()
