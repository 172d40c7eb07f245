#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the daemon and the command line do not wait for: a log that nobody reads, a service manager
that does not keep up, clients that are gone, input without an end."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import TARND, UnixConnection, tap, wait_for  # noqa: E402

MODEL = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                     "data/tiny_llama.gguf")
TARN = os.path.join(tap.BUILD_DIR, "tarn")
F_SETPIPE_SZ = 1031
SOON_S = 10 * tap.TIME_SCALE


class Stuck(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="tarn-stuck-")
        self.socket = os.path.join(self.dir.name, "tarn.sock")
        self.process = None

    def tearDown(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.dir.cleanup()

    def start(self, *options, **kwargs):
        self.process = subprocess.Popen(
            [TARND, "--model", MODEL, "--socket", self.socket, "--threads", "1",
             "--drain-timeout", "600", *options], stdin=subprocess.DEVNULL, **kwargs)
        wait_for(self.is_ready, "ready")

    def get(self, path="/health"):
        with contextlib.closing(UnixConnection(self.socket, SOON_S)) as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            reply.read()
            return reply.status

    def is_ready(self):
        try:
            return self.get() == 200
        except OSError:
            return False

    def end(self):
        self.process.terminate()
        self.assertEqual(0, self.process.wait(SOON_S))

    def test_a_log_that_nobody_reads_stops_nobody(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 8192)
        self.start("--log-level", "debug", stderr=writer)
        os.close(writer)
        for _ in range(200):
            self.assertEqual(200, self.get())
        os.set_blocking(reader, False)
        full = os.read(reader, 1 << 16)
        self.assertGreater(len(full), 1000)
        # Whoever reads again learns that something is missing.
        self.get()
        self.end()
        with open(reader, "rb") as rest:
            os.set_blocking(reader, True)
            self.assertRegex(rest.read(), rb"\(\d+ lines were lost here\)")
        self.assertTrue(full.endswith(b"\n"))

    def test_a_manager_that_does_not_keep_up_is_not_waited_for(self):
        path = os.path.join(self.dir.name, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, \
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
            manager.bind(path)
            filler.setblocking(False)
            with self.assertRaises(OSError):
                while True:
                    filler.sendto(b"x", path)
            self.start(env={**os.environ, "NOTIFY_SOCKET": path}, stderr=subprocess.DEVNULL)
            self.end()

    def test_replies_that_nobody_fetched_are_not_waited_for(self):
        self.start(stderr=subprocess.DEVNULL)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(self.socket)
            client.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while True:
                    client.send(b"GET /health HTTP/1.1\r\nHost: tarn\r\n\r\n" * 10)
            time.sleep(0.2)
            self.process.terminate()
            time.sleep(0.5)
            self.assertIsNone(self.process.poll())
        self.assertEqual(0, self.process.wait(SOON_S))

    def test_a_signal_ends_input_that_flows(self):
        for command in [["run", "-"], ["tokenize", "--model", MODEL]]:
            for number in [signal.SIGINT, signal.SIGTERM]:
                # Never at its end, never more than is read: memory stays small.
                with open("/dev/zero", "rb") as zeros:
                    with subprocess.Popen(["sh", "-c", 'while :; do echo a; done | exec "$@"', "sh",
                                           TARN, *command], stdin=zeros,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                          start_new_session=True) as shell:
                        self.assert_ends_by(shell, number, command)

    def assert_ends_by(self, shell, number, command):
        try:
            pid = wait_for(lambda: self.find(shell.pid), "started", SOON_S)
            time.sleep(0.3)
            os.kill(pid, number)
            status = shell.wait(SOON_S)
            self.assertIn(status, [128 + number, -number], (command, number))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)

    @staticmethod
    def find(session):
        """The process of tarn in this session, once it reads."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.getsid(int(pid)) == session and \
                        os.readlink(f"/proc/{pid}/exe") == os.path.realpath(TARN):
                    return int(pid)
        return None

    def test_input_without_an_end_is_refused(self):
        with open("/dev/zero", "rb") as zeros:
            done = subprocess.run([TARN, "run", "-"], stdin=zeros, capture_output=True, text=True,
                                  timeout=60 * tap.TIME_SCALE, check=False)
        self.assertEqual(1, done.returncode)
        self.assertIn("File too large", done.stderr)


if __name__ == "__main__":
    tap.main()
