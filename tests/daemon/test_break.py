#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A system that gives less than usual: few descriptors, no room for files, a model file that is
cut while it loads, steps longer than the daemon's patience. A reason each time, never a crash."""

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import MODEL, Daemon, need_model, run_together, tap, wait_for  # noqa: E402

OK, FAILURE, USAGE, NO_MODEL, IN_USE, NO_SOCKET = range(6)


def limited(which, value):
    return lambda: resource.setrlimit(which, (value, value))


class Break(unittest.TestCase):
    def setUp(self):
        need_model()
        self.daemons = []

    def tearDown(self):
        for daemon in self.daemons:
            daemon.stop()

    def start(self, *options, **keywords):
        daemon = Daemon(*options, **keywords)
        self.daemons.append(daemon)
        return daemon

    # ---- descriptors and memory ----------------------------------------------------------------

    def test_a_warm_cache_leaves_descriptors_for_clients(self):
        nr_fds = 64
        daemon = self.start(preexec=limited(resource.RLIMIT_NOFILE, nr_fds))
        for number in range(nr_fds):
            daemon.complete([1000 + number] * 65, max_tokens=1)
        open_fds = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        self.assertGreater(open_fds, nr_fds // 2)  # else this shows nothing
        connection, response = daemon.start_stream(max_tokens=4000)
        others = [daemon.connect(timeout=20 * tap.TIME_SCALE) for _ in range(6)]
        for other in others:
            other.request("GET", "/health")
        for other in others:
            self.assertEqual(200, other.getresponse().status)
            other.close()
        self.assertTrue(daemon.stats()["running"])
        response.close()
        connection.close()
        daemon.wait_idle()

    def test_no_descriptors_for_a_request_is_a_503_and_no_harm(self):
        daemon = self.start(preexec=limited(resource.RLIMIT_NOFILE, 32))
        alone = daemon.complete("Few descriptors", max_tokens=8)["choices"][0]["text"]
        body = {"prompt": "Few descriptors", "max_tokens": 40, "n": 40, "ignore_eos": True}
        reply = daemon.post("/v1/completions", body)
        self.assertEqual(503, reply.status, reply.body)
        self.assertEqual("out_of_memory", reply.error["code"])
        self.assertIn("descriptors", reply.error["message"])
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        daemon.wait_idle()
        again = run_together([lambda: daemon.complete("Few descriptors", max_tokens=8)] * 2)
        self.assertEqual([alone] * 2, [one["choices"][0]["text"] for one in again])

    def test_clients_wait_quietly_where_descriptors_end(self):
        nr_fds = 40
        daemon = self.start(preexec=limited(resource.RLIMIT_NOFILE, nr_fds))

        def cpu_seconds():
            with open(f"/proc/{daemon.process.pid}/stat", encoding="ascii") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        clients = [daemon.raw() for _ in range(nr_fds)]
        wait_for(lambda: "accept failed" in daemon.log, "the end of descriptors")
        used = cpu_seconds()
        time.sleep(2)
        self.assertLess(cpu_seconds() - used, 0.5)
        self.assertEqual(1, daemon.log.count("accept failed"))
        # Whoever waited is served as soon as others leave.
        clients[-1].sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
        for client in clients[:nr_fds // 2]:
            client.close()
        self.assertIn(b" 200 OK", clients[-1].recv(100))
        for client in clients:
            client.close()

    def test_a_small_stack_is_enough(self):
        daemon = self.start(preexec=limited(resource.RLIMIT_STACK, 128 << 10))
        daemon.complete("A small stack " * 50, max_tokens=2, n=2, logprobs=5)
        self.assertGreater(daemon.chat("Hello", max_tokens=2)["usage"]["completion_tokens"], 0)

    def test_no_room_for_a_file_is_no_signal(self):
        daemon = self.start(preexec=limited(resource.RLIMIT_FSIZE, 0), wait=False)
        self.assertEqual(NO_SOCKET, daemon.wait_exit())

    def test_no_kv_memory_is_said_at_the_start(self):
        daemon = self.start("--kv-bytes", "64M", wait=False,
                            preexec=limited(resource.RLIMIT_FSIZE, 100 << 10))
        self.assertEqual(NO_MODEL, daemon.wait_exit())
        self.assertIn("no KV memory can be had", daemon.log)
        self.assertIn("RLIMIT_FSIZE (ulimit -f) is 102400 bytes", daemon.log)
        self.assertNotIn("ready:", daemon.log)
        self.assertNotIn("No space left", daemon.log)

    # ---- files ---------------------------------------------------------------------------------

    def test_a_model_that_cannot_be_used_is_named(self):
        for model in ("/nonexistent/model.gguf", "/dev/null", __file__):
            daemon = self.start(model=model, wait=False)
            self.assertEqual(NO_MODEL, daemon.wait_exit())
            self.assertIn(f"{model}: ", daemon.log)

    def test_a_model_that_is_cut_while_it_loads(self):
        folder = tempfile.mkdtemp(prefix="tarn-cut-")
        self.addCleanup(shutil.rmtree, folder)
        model = os.path.join(folder, "model.gguf")
        shutil.copy(MODEL, model)
        daemon = self.start(model=model, wait=False)
        wait_for(lambda: "opening the file" in daemon.log, "loading")
        os.truncate(model, 1 << 20)
        # Before, in or after the mapping: refused, ended with a reason, or loaded already.
        ended = wait_for(lambda: daemon.process.poll() is not None or "ready:" in daemon.log, "it")
        self.assertTrue(ended)
        if daemon.process.poll() is not None:
            self.assertIn(daemon.process.returncode, (FAILURE, NO_MODEL), daemon.log)
            # Its metadata alone is longer than what is left.
            self.assertRegex(daemon.log,
                             "bus error: a mapped file was cut|truncated|do not fit the .* left")
            self.assertEqual(["log"], os.listdir(daemon.dir))

    # ---- the end -------------------------------------------------------------------------------

    def test_whoever_is_given_up_in_a_long_step_is_told(self):
        # Two steps: the head goes out after the first, the second is long: longer than the daemon
        # waits (0 s and what it grants its clients), not longer than a test may be.
        half = 3000 if tap.TIME_SCALE == 1 else 400
        daemon = self.start("--drain-timeout", "0", "--max-batch-tokens", str(half),
                            "--threads", "1")
        connection = daemon.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": [5 + i % 900 for i in range(2 * half)], "max_tokens": 5, "stream": True}))
        response = connection.getresponse()
        daemon.process.send_signal(signal.SIGTERM)
        rest = response.read()
        self.assertIn(b'"code":"shutting_down"', rest)
        self.assertEqual(OK, daemon.wait_exit())
        connection.close()


if __name__ == "__main__":
    tap.main()
