#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-abi finds each change of an ABI that would break programs, and names growth."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

HEADER = """\
/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
#ifndef _KVPOOL_H
#define _KVPOOL_H
#include <linux/ioctl.h>
#include <linux/types.h>

#define KVPOOL_DEVICE "/dev/kvpool" /* a string; not; a field */
#define KVPOOL_ABI_VERSION 1
#define KVPOOL_LIMIT (~0ULL)

/* struct kvpool_ghost { int in_a_comment; }; */
struct kvpool_a {
	__u32 size; /* of the struct */
	__u32 flags;
	__u8 key[32];
	__aligned_u64 bytes;
};

enum kvpool_kind {
	KVPOOL_KIND_ONE = 1, /* the first */
	KVPOOL_KIND_TWO,
};

#define KVPOOL_GET _IO(0xBC, 0x00)
#define KVPOOL_SET _IOWR(0xBC, 0x01, struct kvpool_a)
#endif
"""


class CheckAbi(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tarn-abi-")
        self.addCleanup(shutil.rmtree, self.root)
        self.write(HEADER)
        result = self.run_it("--update")
        self.assertEqual(result.returncode, 0, result.stdout)

    def golden(self):
        with open(os.path.join(self.root, "tests", "data", "kvpool-abi.txt"),
                  encoding="ascii") as file:
            return file.read()

    def write(self, text):
        os.makedirs(os.path.join(self.root, "uapi"), exist_ok=True)
        with open(os.path.join(self.root, "uapi", "kvpool.h"), "w", encoding="ascii") as file:
            file.write(text)

    def run_it(self, *arguments):
        return subprocess.run([os.path.join(tap.ROOT, "scripts", "check-abi"),
                               "--root", self.root, *arguments], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def after(self, old, new):
        self.assertIn(old, HEADER)
        self.write(HEADER.replace(old, new))
        return self.run_it()

    def is_offence(self, old, new, *messages):
        """Named, not to be written down by --update, but by --force."""
        result = self.after(old, new)
        self.assertEqual(result.returncode, 1, result.stdout)
        for message in messages:
            self.assertIn("uapi/kvpool.h: " + message, result.stdout)
        before = self.golden()
        self.assertEqual(self.run_it("--update").returncode, 1)
        self.assertEqual(self.golden(), before)
        self.assertEqual(self.run_it("--update", "--force").returncode, 0)
        self.assertNotEqual(self.golden(), before)

    def is_growth(self, old, new, *messages):
        """Named, and gone once it is written down."""
        result = self.after(old, new)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertNotIn("offences", result.stdout)
        for message in messages:
            self.assertIn("growth: " + message, result.stdout)
        self.assertEqual(self.run_it("--update").returncode, 0)
        result = self.run_it()
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_unchanged_header_passes(self):
        result = self.run_it()
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_golden_file_says_what_the_compiler_says(self):
        lines = [line for line in self.golden().splitlines() if not line.startswith("#")]
        self.assertEqual(lines, [
            "struct kvpool_a 48", "field kvpool_a.size 0 4", "field kvpool_a.flags 4 4",
            "field kvpool_a.key 8 32", "field kvpool_a.bytes 40 8",
            "ioctl KVPOOL_GET 0x0000bc00", "ioctl KVPOOL_SET 0xc030bc01",
            'constant KVPOOL_DEVICE "/dev/kvpool"', "constant KVPOOL_ABI_VERSION 0x1",
            "constant KVPOOL_LIMIT 0xffffffffffffffff",
            "constant KVPOOL_KIND_ONE 0x1", "constant KVPOOL_KIND_TWO 0x2"])

    def test_comments_and_names_may_change(self):
        result = self.after("/* of the struct */", "/* of it, in bytes */")
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_field_at_the_end_is_growth(self):
        # The ioctl that carries the struct's size in its number must go first.
        self.write(HEADER.replace("_IOWR(0xBC, 0x01, struct kvpool_a)", "_IO(0xBC, 0x01)"))
        self.assertEqual(self.run_it("--update", "--force").returncode, 0)
        text = HEADER.replace("_IOWR(0xBC, 0x01, struct kvpool_a)", "_IO(0xBC, 0x01)")
        self.write(text.replace("bytes;\n", "bytes;\n\t__aligned_u64 more;\n"))
        result = self.run_it()
        self.assertEqual(result.returncode, 1)
        self.assertIn("growth: struct kvpool_a grew from 48 to 56 bytes", result.stdout)
        self.assertIn("growth: field kvpool_a.more is new", result.stdout)
        self.assertNotIn("offences", result.stdout)
        self.assertEqual(self.run_it("--update").returncode, 0)
        self.assertEqual(self.run_it().returncode, 0)

    def test_growth_that_changes_an_ioctl_number(self):
        self.is_offence("bytes;\n", "bytes;\n\t__aligned_u64 more;\n",
                        "ioctl KVPOOL_SET had the number 0xc030bc01 and has 0xc038bc01")

    def test_new_ioctl_is_growth(self):
        self.is_growth("#endif\n", "#define KVPOOL_MORE _IO(0xBC, 0x02)\n#endif\n",
                       "ioctl KVPOOL_MORE is new")

    def test_new_struct_is_growth(self):
        self.is_growth("enum", "struct kvpool_b {\n\t__u32 size;\n};\nenum",
                       "struct kvpool_b is new", "field kvpool_b.size is new")

    def test_new_constant_is_growth(self):
        self.is_growth("KVPOOL_KIND_TWO,", "KVPOOL_KIND_TWO,\n\tKVPOOL_KIND_THREE,",
                       "constant KVPOOL_KIND_THREE is new")

    def test_version_may_rise_and_not_fall(self):
        self.is_growth("VERSION 1", "VERSION 2", "KVPOOL_ABI_VERSION rose from 1 to 2")
        self.is_offence("VERSION 1", "VERSION 0", "constant KVPOOL_ABI_VERSION was 0x2")

    def test_moved_field(self):
        self.is_offence("\t__u32 size; /* of the struct */\n\t__u32 flags;\n",
                        "\t__u32 flags;\n\t__u32 size;\n",
                        "field kvpool_a.size moved from offset 0 to 4",
                        "field kvpool_a.flags moved from offset 4 to 0")

    def test_field_that_is_gone(self):
        self.is_offence("__u32 flags;", "__u32 __reserved;",
                        "field kvpool_a.flags is gone",
                        "field kvpool_a.__reserved is new, but lies at offset 4, within")

    def test_field_of_another_size(self):
        self.is_offence("__u8 key[32];", "__u8 key[24];\n\t__aligned_u64 more;",
                        "field kvpool_a.key had 32 bytes and has 24")

    def test_struct_that_shrank(self):
        self.is_offence("\t__aligned_u64 bytes;\n", "",
                        "struct kvpool_a shrank from 48 to 40 bytes",
                        "field kvpool_a.bytes is gone")

    def test_struct_that_is_gone(self):
        self.is_offence("kvpool_a", "kvpool_c", "struct kvpool_a is gone")

    def test_ioctl_of_another_number(self):
        self.is_offence("_IO(0xBC, 0x00)", "_IO(0xBC, 0x05)",
                        "ioctl KVPOOL_GET had the number 0x0000bc00 and has 0x0000bc05")

    def test_ioctl_that_is_gone(self):
        self.is_offence("#define KVPOOL_GET _IO(0xBC, 0x00)\n", "", "ioctl KVPOOL_GET is gone")

    def test_two_ioctls_of_one_number(self):
        self.is_offence("#endif\n", "#define KVPOOL_TWIN _IO(0xBC, 0x00)\n#endif\n",
                        "ioctl KVPOOL_TWIN has the number 0x0000bc00 of KVPOOL_GET")

    def test_constant_of_another_value(self):
        self.is_offence("KVPOOL_KIND_TWO,", "KVPOOL_KIND_TWO = 4,",
                        "constant KVPOOL_KIND_TWO was 0x2 and is 0x4")
        self.write(HEADER)
        self.assertEqual(self.run_it("--update", "--force").returncode, 0)
        self.is_offence("/dev/kvpool", "/dev/pool", 'constant KVPOOL_DEVICE was "/dev/kvpool"')

    def test_hole_between_fields(self):
        self.is_offence("__u32 flags;\n", "__u32 flags;\n\t__u8 small;\n",
                        "field kvpool_a.bytes moved")
        result = self.run_it()
        self.assertIn("struct kvpool_a has a hole of 7 bytes before kvpool_a.bytes", result.stdout)

    def test_header_that_does_not_compile(self):
        result = self.after("__u32 flags;", "__u32_ flags;")
        self.assertEqual(result.returncode, 1)
        self.assertIn("does not compile", result.stdout)

    def test_golden_file_that_is_missing(self):
        os.unlink(os.path.join(self.root, "tests", "data", "kvpool-abi.txt"))
        result = self.run_it()
        self.assertEqual(result.returncode, 1)
        self.assertIn("scripts/check-abi --update", result.stdout)


if __name__ == "__main__":
    tap.main()
