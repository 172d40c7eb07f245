#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn pool: usage, a machine without the kernel module, and what it shows of real pools.

The module is there only inside scripts/vm-run: Machine boots it and runs the tests of Listing in
it. By hand:
    scripts/vm-run -- sh -c 'insmod build/kvpool.ko && tests/daemon/test_cli_pool.py -t Listing'
"""

import fcntl
import glob
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import CliTest, tap, tarn  # noqa: E402

DEVICE = "/dev/kvpool"
MODULE = os.environ.get("TARN_KVPOOL_KO", os.path.join(tap.ROOT, "build", "kvpool.ko"))
MIB = 1 << 20
UNLIMITED = (1 << 64) - 1
NOBODY = 65534


class Usage(CliTest):
    def test_one_name_at_most(self):
        self.ends(tarn("pool", "a", "b"), 2, 'pool takes one name, not "b" too')

    def test_what_no_name_can_be(self):
        self.ends(tarn("pool", ""), 2, "is no name of a pool")
        self.ends(tarn("pool", "a" * 64), 2, "is no name of a pool")

    def test_options_of_others(self):
        self.ends(tarn("pool", "--socket", "x"), 2, 'unknown option "--socket"')

    @unittest.skipIf(os.path.exists(DEVICE), "the kernel module is there")
    def test_without_the_module(self):
        for arguments in ((), ("name",), ("--json",)):
            result = tarn("pool", *arguments)
            self.ends(result, 3, "tarn: no kernel pools: /dev/kvpool is not there (the module is "
                                 "not loaded)\n", "")


# ---- pools, by the calls of uapi/kvpool.h alone ------------------------------------------------


def call(fd, number, layout, *values):
    """One ioctl on the struct of that layout, behind its size; the fields it has afterwards."""
    layout = "=I" + layout
    argument = bytearray(struct.pack(layout, struct.calcsize(layout), *values))
    fcntl.ioctl(fd, 0xBC00 | number, argument)
    return struct.unpack(layout, argument)[1:]


def pool_create(name, limit=UNLIMITED, mode=0o600):
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        flags = 1 << 1  # KVPOOL_POOL_NO_ORDER
        return call(device, 0x01, "I64sQQQQQIIiI", flags, name.encode(), limit, UNLIMITED,
                    UNLIMITED, 0, 0, mode, 0, 0, 0)[9]
    finally:
        os.close(device)


def buf_create(pool, size, committed=0):
    fd = call(pool, 0x13, "IQQiI", 0, size, 0, 0, 0)[3]
    if committed:
        call(fd, 0x21, "IQQQ", 0, 0, committed, 0)
    return fd


def seal(buf, n):
    call(buf, 0x23, "IQQ", 0, n, 0)


def publish(buf, key, n):
    mark = bytearray(struct.pack("=32sQ", key, n))
    address = mmap.mmap(-1, mmap.PAGESIZE)
    address.write(mark)
    import ctypes  # pylint: disable=import-outside-toplevel
    at = ctypes.addressof(ctypes.c_char.from_buffer(address))
    call(buf, 0x25, "IQII", 0, at, 1, 0)


def volatile(buf):
    call(buf, 0x27, "III", 0, 1, 0)


def tarn_of_nobody(*arguments):
    return subprocess.run(["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY),
                           "--clear-groups", os.path.join(tap.BUILD_DIR, "tarn"), "pool",
                           *arguments], capture_output=True, check=False, timeout=60)


@unittest.skipUnless(os.path.exists(DEVICE), "no kernel module here")
class Listing(CliTest):
    def setUp(self):
        self.fds = []
        self.addCleanup(lambda: [os.close(fd) for fd in self.fds])

    def keep(self, fd):
        self.fds.append(fd)
        return fd

    def rows(self, *arguments, **changes):
        """The cells of each table, by the columns' places: names of users hold spaces."""
        result = tarn("pool", *arguments, **changes)
        self.ends(result, 0, "")
        text = result.stdout.decode()
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, text)
        return [[line.split() for line in table.splitlines()]
                for table in text.replace(" (root)", "").replace(" KiB", "KiB").replace(
                    " MiB", "MiB").replace(" B", "B").split("\n\n")]

    def pools(self, *arguments):
        result = tarn("pool", "--json", *arguments)
        self.ends(result, 0, "")
        return json.loads(result.stdout)

    def test_no_pools(self):
        self.assertEqual(self.pools(), [])
        self.assertEqual(self.rows(), [[["POOL", "OWNER", "MODE", "LIMIT", "CHARGED", "RESIDENT",
                                         "PUBLISHED", "VOLATILE", "BUFFERS", "KEYS"]]])

    def test_name_that_is_not_there(self):
        self.ends(tarn("pool", "nothing"), 3, 'no pool "nothing" that you may read')

    def test_pool_and_buffers_in_every_state(self):
        pool = self.keep(pool_create("show", 64 * MIB, 0o640))
        self.keep(buf_create(pool, 8 * MIB))
        sealed = self.keep(buf_create(pool, 4 * MIB, 2 * MIB))
        seal(sealed, MIB)
        published = self.keep(buf_create(pool, 2 * MIB, 2 * MIB))
        seal(published, 2 * MIB)
        publish(published, b"k" * 32, 2 * MIB)
        taken = self.keep(buf_create(pool, 2 * MIB, 2 * MIB))
        volatile(taken)

        pools, bufs = self.rows()
        self.assertEqual(pools[1], ["show", "0", "0640", "64.0MiB", "6.0MiB", "6.0MiB", "2.0MiB",
                                    "2.0MiB", "4", "1"])
        self.assertEqual(bufs[0], ["POOL", "BUFFER", "OWNER", "STATE", "SIZE", "RESIDENT",
                                   "PRIVATE", "SEALED", "HELD", "VOTES", "KEYS"])
        self.assertEqual(bufs[1:], [
            ["show", "1", "0", "open", "8.0MiB", "0B", "0B", "0B", "1", "1", "0"],
            ["show", "2", "0", "sealed", "4.0MiB", "2.0MiB", "2.0MiB", "1.0MiB", "1", "1", "0"],
            ["show", "3", "0", "published", "2.0MiB", "2.0MiB", "2.0MiB", "2.0MiB", "2", "1", "1"],
            ["show", "4", "0", "volatile", "2.0MiB", "2.0MiB", "2.0MiB", "0B", "1", "0", "0"]])
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("2")
        pools, bufs = self.rows("show")
        self.assertEqual(pools[1][4:8], ["4.0MiB", "4.0MiB", "2.0MiB", "0B"])
        self.assertEqual([row[3] for row in bufs[1:]], ["open", "sealed", "published", "purged"])

    def test_json_says_all(self):
        pool = self.keep(pool_create("all", mode=0o600))
        buf = self.keep(buf_create(pool, 4 * MIB, 2 * MIB))
        seal(buf, 2 * MIB)
        publish(buf, b"j" * 32, MIB)
        (shown,) = self.pools("all")
        (inside,) = shown.pop("buffers")
        self.assertEqual(
            {k: shown[k] for k in ("name", "uid", "mode", "limit_bytes", "charged_bytes",
                                   "resident_bytes", "published_bytes", "nr_buffers", "keys")},
            {"name": "all", "uid": 0, "mode": "0600", "limit_bytes": None,
             "charged_bytes": 2 * MIB, "resident_bytes": 2 * MIB, "published_bytes": 2 * MIB,
             "nr_buffers": 1, "keys": 1})
        self.assertEqual(
            {k: inside[k] for k in ("id", "uid", "publisher_uid", "state", "published", "volatile",
                                    "sealed_bytes", "votes", "keys")},
            {"id": 1, "uid": 0, "publisher_uid": 0, "state": "published", "published": True,
             "volatile": False, "sealed_bytes": 2 * MIB, "votes": 1, "keys": 1})

    def test_one_name_leaves_the_others_out(self):
        self.keep(pool_create("one"))
        self.keep(pool_create("two"))
        self.assertEqual([p["name"] for p in self.pools()], ["one", "two"])
        self.assertEqual([p["name"] for p in self.pools("two")], ["two"])

    def test_pool_without_a_name_tells_little(self):
        self.keep(pool_create(""))
        (shown,) = self.pools()
        self.assertEqual(shown["name"], "")
        self.assertNotIn("buffers", shown)
        self.assertEqual(self.rows()[0][1][0], f"({shown['id']})")

    def test_others_see_what_they_may(self):
        os.chmod(DEVICE, 0o666)
        self.addCleanup(os.chmod, DEVICE, 0o660)
        closed = self.keep(pool_create("closed", mode=0o600))
        opened = self.keep(pool_create("opened", mode=0o604))
        self.keep(buf_create(closed, MIB))
        self.keep(buf_create(opened, MIB))
        result = tarn_of_nobody("--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        (shown,) = json.loads(result.stdout)
        self.assertEqual((shown["name"], shown["buffers"]), ("opened", []))

    def test_device_that_does_not_admit(self):
        result = tarn_of_nobody()
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"members of the group kvpool may", result.stderr)


def why_no_machine():
    if os.path.exists(DEVICE):
        return "the kernel module is here"
    if tap.TIME_SCALE > 1:
        return "emulation and sanitizers together take too long"
    for path, what in ((MODULE, "build/kvpool.ko: make modules builds it"),
                       (shutil.which("qemu-system-x86_64"), "qemu-system-x86_64"),
                       ("/bin/busybox", "busybox-static")):
        if not path or not os.path.exists(path):
            return f"no {what}"
    return "" if glob.glob("/usr/src/linux-headers-*-amd64") else "no kernel headers"


class Machine(CliTest):
    @unittest.skipIf(why_no_machine(), why_no_machine())
    def test_listing(self):
        script = f"insmod {MODULE} && {sys.executable} {os.path.abspath(__file__)} -t Listing"
        result = subprocess.run([os.path.join(tap.ROOT, "scripts", "vm-run"), "--timeout", "300",
                                 "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.STDOUT, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"# [1-9]\d* passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    tap.main()
