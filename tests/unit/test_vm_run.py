#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/vm-run and its helpers: their parts alone, then whole runs of Debian's kernel."""

import glob
import importlib.machinery
import importlib.util
import lzma
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

SCRIPTS = os.path.join(tap.ROOT, "scripts")
VM_RUN = os.path.join(SCRIPTS, "vm-run")
# An emulated boot takes 5 s on a quiet machine; one that is stuck must not wait for ever.
BOOT_SECONDS = 120 * tap.TIME_SCALE


def load_script(name):
    module_name = name.replace("-", "_")
    loader = importlib.machinery.SourceFileLoader(module_name, os.path.join(SCRIPTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(module_name, loader))
    loader.exec_module(module)
    return module


vm_run = load_script("vm-run")
vm_initrd = load_script("vm-initrd")
vm_kernel = load_script("vm-kernel")


def why_not_boot():
    if not shutil.which("qemu-system-x86_64"):
        return "no qemu-system-x86_64"
    if not glob.glob("/usr/src/linux-headers-*-amd64"):
        return "no kernel headers"
    if not os.path.exists("/bin/busybox"):
        return "no busybox-static"
    kernel = subprocess.run([os.path.join(SCRIPTS, "vm-kernel"), "stock", "--cache",
                             vm_run.cache_folder()], capture_output=True, text=True, check=False)
    return f"no kernel image: {kernel.stderr.strip()}" if kernel.returncode else None


def entries_of(archive):
    """name -> (mode, content) of a newc archive."""
    entries, at = {}, 0
    while True:
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name_at = at + 110
        name = archive[name_at : name_at + fields[11] - 1].decode()
        data_at = (name_at + fields[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            return entries
        entries[name] = (fields[1], archive[data_at : data_at + fields[6]])
        at = (data_at + fields[6] + 3) // 4 * 4


class Parts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tarn-test-vm-")
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, content=b""):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def refusal(self, *arguments):
        result = subprocess.run([VM_RUN, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_options_that_make_no_sense_are_refused(self):
        self.assertIn("no COMMAND", self.refusal())
        self.assertIn("not with --kvm", self.refusal("--icount", "--kvm", "--", "true"))
        self.assertIn("not with --cpus", self.refusal("--icount", "--cpus", "2", "--", "true"))
        self.assertIn("no such folder", self.refusal("--share", "/none/such", "--", "true"))
        self.assertIn("not a size", self.refusal("--mem", "0", "--", "true"))
        self.assertIn("not a size", self.refusal("--mem", "2T", "--", "true"))
        self.assertIn("less than 128 MiB", self.refusal("--mem", "100", "--", "true"))
        self.assertIn("above 0", self.refusal("--nodes", "0", "--", "true"))

    def test_defaults_depend_on_icount(self):
        options = vm_run.parse_options(["--", "true"])
        self.assertEqual((options.cpus, options.nodes, options.mem, options.timeout),
                         (2, 2, 2048, 600))
        options = vm_run.parse_options(["--icount", "--mem", "3G", "--", "true"])
        self.assertEqual((options.cpus, options.nodes, options.mem), (1, 1, 3072))

    def test_nodes_share_all_memory_and_processors(self):
        options = vm_run.parse_options(["--nodes", "3", "--cpus", "4", "--mem", "1000", "--", "x"])
        text = " ".join(vm_run.numa_options(options))
        self.assertEqual([int(part.split("M")[0]) for part in text.split("size=")[1:]],
                         [333, 333, 334])
        self.assertIn("nodeid=0,memdev=ram0,cpus=0-1", text)
        self.assertIn("nodeid=2,memdev=ram2,cpus=3-3", text)
        options = vm_run.parse_options(["--nodes", "2", "--cpus", "1", "--", "x"])
        self.assertEqual(vm_run.numa_options(options)[-1], "node,nodeid=1,memdev=ram1")

    def test_paths_named_under_tmp_are_seen(self):
        path = self.write("file")
        options = vm_run.parse_options(["--", "sh", "-c", f"cat <'{path}'; cat /tmp/none/such"])
        self.assertIn(path, vm_run.visible_paths(options).split("\n"))
        self.assertNotIn("/tmp/none/such", vm_run.visible_paths(options))

    def test_stream_ends_at_its_mark_however_it_is_cut(self):
        content = b"a\x00tarn-tarn-vm-end\ntarn-vm-end-no\n" * 3
        for size in (1, 2, 7, 1000):
            read_end, write_end = os.pipe()
            stream = vm_run.Stream(write_end, "tarn-vm-end-yes")
            whole = content + b"tarn-vm-end-yes\n"
            for at in range(0, len(whole), size):
                self.assertFalse(stream.has_ended)
                stream.take(whole[at : at + size])
            self.assertTrue(stream.has_ended)
            stream.finish()
            os.close(write_end)
            with os.fdopen(read_end, "rb") as file:
                self.assertEqual(file.read(), content, size)

    def test_stream_without_mark_is_passed_on_whole(self):
        read_end, write_end = os.pipe()
        stream = vm_run.Stream(write_end, "tarn-vm-end-yes")
        stream.take(b"cut off at tarn-vm-end")
        stream.finish()
        os.close(write_end)
        with os.fdopen(read_end, "rb") as file:
            self.assertEqual(file.read(), b"cut off at tarn-vm-end")

    def test_faults_are_found_in_a_log(self):
        for line in [
            "BUG: unable to handle page fault for address: ffff",
            "kernel BUG at mm/slub.c:440!",
            "WARNING: CPU: 0 PID: 1 at kernel/x.c:3 f+0x1/0x2 [kvpool]",
            "WARNING: possible circular locking dependency detected",
            "WARNING: inconsistent lock state",
            "WARNING: suspicious RCU usage",
            "BUG: sleeping function called from invalid context at mm/x.c:1",
            "BUG: KASAN: use-after-free in f+0x1/0x2",
            "UBSAN: shift-out-of-bounds in x.c:1:2",
            "Oops: 0002 [#1] PREEMPT SMP KASAN",
            "kmemleak: unreferenced object 0xffff888003c2a000 (size 64):",
            "INFO: task sh:12 blocked for more than 120 seconds.",
            "list_add corruption. prev->next should be next",
            "refcount_t: underflow; use-after-free.",
            "kvpool: unload: 3 folios left",
            "Kernel panic - not syncing: sysrq triggered crash",
        ]:
            log = f"[ 1.0] tarn-vm: command starts\n[ 2.0] {line}\n".encode()
            self.assertEqual(len(vm_run.fault_lines(log)), 1, line)

    def test_what_is_no_fault_is_not(self):
        log = (b"[ 0.1] MDS CPU bug present; WARNING: of booting\n"
               b"[ 1.0] tarn-vm: command starts\n"
               b"[ 2.0] kvpool: loading out-of-tree module taints kernel.\n"
               b"[ 2.1] FAULT_INJECTION: forcing a failure.\n"
               b"[ 2.2] debug: warnings are off\n")
        self.assertEqual(vm_run.fault_lines(log), [])

    def test_archive_is_what_the_kernel_unpacks(self):
        archive = vm_initrd.Cpio()
        archive.add_folder("d")
        for size in range(6):
            archive.add_file(f"d/{'f' * size}", b"x" * size, 0o755)
        entries = entries_of(archive.finish())
        self.assertEqual(entries["d"], (0o40755, b""))
        for size in range(6):
            self.assertEqual(entries[f"d/{'f' * size}"], (0o100755, b"x" * size))
        if shutil.which("cpio"):
            listed = subprocess.run(["cpio", "-t"], input=archive.data, capture_output=True,
                                    check=True)
            self.assertEqual(len(listed.stdout.split()), 7)

    def test_modules_come_after_those_they_need(self):
        needs = {"virtio_pci": "virtio-ring,virtio", "virtio_ring": "virtio", "virtio": "",
                 "virtio_console": "virtio_ring", "9pnet_virtio": "9pnet", "9p": "9pnet,builtin1",
                 "9pnet": "", "overlay": ""}
        for name, depends in needs.items():
            content = b"ELF\0depends=" + depends.encode() + b"\0rest"
            if name == "9p":
                self.write("kernel/9p.ko.xz", lzma.compress(content))
            else:
                self.write(f"kernel/{name.replace('virtio_r', 'virtio-r')}.ko", content)
        self.write("modules.builtin", b"kernel/fs/builtin1.ko\n")
        order = [name for name, _ in vm_initrd.ordered_modules(self.folder)]
        self.assertEqual(sorted(order), sorted(needs))
        for name, depends in needs.items():
            for needed in filter(None, depends.replace("-", "_").split(",")):
                if needed != "builtin1":
                    self.assertLess(order.index(needed), order.index(name))
        os.unlink(os.path.join(self.folder, "kernel/overlay.ko"))
        with self.assertRaisesRegex(SystemExit, "no module overlay"):
            vm_initrd.ordered_modules(self.folder)

    def test_packed_kernel_is_unpacked(self):
        payload = lzma.compress(b"\x7fELF kernel") + struct.pack("<I", 11)
        header = bytearray(1024)
        header[0x1F1] = 1
        struct.pack_into("<II", header, 0x248, 16, len(payload))
        image = self.write("vmlinuz", bytes(header) + b"s" * 16 + payload + b"rest")
        path = vm_kernel.unpacked(image, os.path.join(self.folder, "cache"))
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"\x7fELF kernel")

    def test_option_that_the_kernel_drops_is_an_error(self):
        wanted = "# a comment\nCONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=3\n"
        vm_kernel.check_config(wanted, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=3\n")
        vm_kernel.check_config(wanted, "CONFIG_A=y\nCONFIG_C=3\n")
        for taken, lost in [("CONFIG_C=3\n", "CONFIG_A=y"),
                            ("CONFIG_A=m\nCONFIG_C=3\n", "CONFIG_A=y"),
                            ("CONFIG_A=y\nCONFIG_B=y\nCONFIG_C=3\n", "CONFIG_B"),
                            ("CONFIG_A=y\nCONFIG_C=4\n", "CONFIG_C=3")]:
            with self.assertRaisesRegex(SystemExit, lost):
                vm_kernel.check_config(wanted, taken)


class Boot(unittest.TestCase):
    """Each a run of its own. Their logs lie in a folder of the test, not in build/."""

    @classmethod
    def setUpClass(cls):
        reason = why_not_boot()
        if reason:
            raise unittest.SkipTest(reason)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tarn-test-vm-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.nr_runs = 0

    def command(self, *arguments):
        self.nr_runs += 1
        log = os.path.join(self.folder, f"log{self.nr_runs}")
        return [VM_RUN, "--timeout", str(BOOT_SECONDS), "--log", log, *arguments]

    def run_vm(self, *arguments, **keywords):
        return subprocess.run(self.command(*arguments), capture_output=True, check=False,
                              timeout=2 * BOOT_SECONDS, **keywords)

    def test_command_sees_the_host_and_gives_its_output_and_status(self):
        share = os.path.join(self.folder, "a,share")
        work = os.path.join(self.folder, "the work")
        os.mkdir(share)
        os.mkdir(work)
        content = os.urandom(1_000_000)
        with open(os.path.join(work, "content"), "wb") as file:
            file.write(content)
        script = f"""
            cat content
            cat content >&2
            exec > '{share}/seen'
            pwd
            echo "$TARN_A_WORD"
            echo "$OTHER"
            cat /sys/devices/system/node/online
            nproc
            python3 -c 'import ctypes, json, hashlib; print(json.dumps(1 + 1))'
            cat /sys/class/net/lo/operstate
            read x; echo "read $?"
            cat /proc/mounts
            echo gone > content
            echo kept > '{share}/kept'
            exit 37"""
        environment = {**os.environ, "TARN_A_WORD": "it's $one", "OTHER": "other"}
        result = self.run_vm("--cpus", "3", "--share", share, "--", "bash", "-c", script, cwd=work,
                             env=environment)
        self.assertEqual(result.returncode, 37, result.stderr[-2000:])
        self.assertTrue(result.stdout == content, "standard output came whole")
        self.assertTrue(result.stderr == content, "standard error came whole")
        with open(os.path.join(share, "seen"), encoding="utf-8") as file:
            seen = file.read().split("\n")
        self.assertEqual(seen[:8], [work, "it's $one", "", "0-1", "3", "2", "unknown", "read 1"])
        mounts = "\n".join(seen)
        for kind in ["debugfs", "tracefs", "cgroup2", "devpts"]:
            self.assertIn(f" {kind} ", mounts)
        with open(os.path.join(share, "kept"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "kept\n")
        with open(os.path.join(work, "content"), "rb") as file:
            self.assertTrue(file.read() == content, "the host's file is as it was")

    def test_two_at_once_a_signal_and_a_fault_in_the_log(self):
        results = {}

        def start(name, script):
            results[name] = self.run_vm("--", "sh", "-c", script)

        threads = [
            threading.Thread(target=start, args=["killed", "sleep 1000 & echo one; kill -9 $$"]),
            threading.Thread(target=start, args=["fault", """
                kernel-log-check; echo $?
                echo 'WARNING: of a test' > /dev/kmsg
                kernel-log-check; echo $?
                kernel-log-check --leaks; echo $?"""]),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results["killed"].returncode, 128 + signal.SIGKILL,
                         results["killed"].stderr.decode())
        self.assertEqual(results["killed"].stdout, b"one\n")
        self.assertEqual(results["fault"].returncode, 99)
        lines = results["fault"].stdout.decode().split("\n")
        self.assertEqual([lines[0], lines[2], lines[3]], ["0", "1", "0"], lines)
        self.assertIn("WARNING: of a test", lines[1])
        self.assertIn(b"WARNING: of a test", results["fault"].stderr)

    def test_panic_ends_the_run_and_is_shown(self):
        script = f"echo kept > {self.folder}/kept; echo c > /proc/sysrq-trigger"
        result = self.run_vm("--share", self.folder, "--", "sh", "-c", script)
        with open(os.path.join(self.folder, "kept"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "kept\n")
        self.assertEqual(result.returncode, 99)
        self.assertIn(b"the machine ended by itself", result.stderr)
        self.assertIn(b"Kernel panic - not syncing: sysrq triggered crash", result.stderr)

    def test_run_that_hangs_ends_in_time(self):
        result = self.run_vm("--timeout", "4", "--", "sleep", "1000")
        self.assertEqual(result.returncode, 124)
        self.assertIn(b"the time is over: 4 s", result.stderr)

    def test_interrupt_ends_qemu(self):
        process = subprocess.Popen(self.command("--", "sleep", "1000"), start_new_session=True)
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        deadline = time.monotonic() + BOOT_SECONDS
        qemu = None
        while qemu is None and time.monotonic() < deadline:
            time.sleep(0.05)
            with open(children, encoding="ascii") as file:
                for pid in file.read().split():
                    with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                        qemu = pid if comm.read().startswith("qemu") else qemu
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=BOOT_SECONDS), 128 + signal.SIGINT)
        self.assertIsNotNone(qemu)
        self.assertFalse(os.path.exists(f"/proc/{qemu}"))

    def test_shell_with_counted_instructions(self):
        result = self.run_vm("--icount", "--shell", "--", "echo", "first",
                             input=b"echo $((6 * 7)) cpus $(nproc)\nexit 5\n")
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn(b"first", result.stdout)
        self.assertIn(b"42 cpus 1", result.stdout)


if __name__ == "__main__":
    tap.main()
