#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's life: loading, its place in the file system, signals, clients that are killed."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import MODEL, TARND, WAIT_S, Daemon, need_model, run_together, tap, wait_for  # noqa: E402

OK, FAILURE, USAGE, NO_MODEL, IN_USE, NO_SOCKET = range(6)


class Lifecycle(unittest.TestCase):
    def setUp(self):
        need_model()
        self.dir = tempfile.mkdtemp(prefix="tarn-life-")
        self.path = os.path.join(self.dir, "tarn.sock")
        self.daemons = []

    def tearDown(self):
        for daemon in self.daemons:
            daemon.stop()
        subprocess.run(["rm", "-rf", self.dir], check=True)

    def start(self, *options, **keywords):
        daemon = Daemon(*options, socket_path=self.path, **keywords)
        self.daemons.append(daemon)
        return daemon

    def run_tarnd(self, *arguments, env=None):
        return subprocess.run([TARND, *arguments], capture_output=True, text=True, timeout=WAIT_S,
                              env={**os.environ, **(env or {})}, check=False)

    # ---- loading ---------------------------------------------------------------------------

    def test_the_socket_answers_while_the_model_loads(self):
        daemon = self.start(wait=False)
        first = wait_for(lambda: self.try_get(daemon, "/health"), "an answer")
        self.assertEqual(503, first.status)
        self.assertEqual("loading", first.json["status"])
        self.assertTrue(0 <= first.json["progress"] <= 1)
        self.assertIn("Retry-After", first.headers)
        daemon.wait_ready()
        self.assertEqual(200, daemon.get("/v1/models").status)

    @staticmethod
    def try_get(daemon, path):
        try:
            return daemon.get(path)
        except OSError:
            return None

    def test_requests_while_loading_are_told_to_come_back(self):
        daemon = self.start(wait=False)
        reply = wait_for(lambda: self.try_get(daemon, "/v1/models"), "an answer")
        self.assertEqual(503, reply.status)
        self.assertEqual("loading", reply.error["code"])
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)

    def test_a_signal_while_loading_ends_it(self):
        daemon = self.start(wait=False)
        wait_for(lambda: self.try_get(daemon, "/health"), "an answer")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(OK, daemon.wait_exit())
        self.assertFalse(os.path.exists(self.path))

    def test_a_model_that_is_not_there_or_broken(self):
        for model, part in [("/nonexistent/model.gguf", "No such file"), ("/dev/null", ""),
                            (__file__, "GGUF")]:
            done = self.run_tarnd("--model", model, "--socket", self.path)
            self.assertEqual(NO_MODEL, done.returncode, done.stderr)
            self.assertIn(part, done.stderr)
            self.assertFalse(os.path.exists(self.path))

    def test_a_gpu_that_is_not_there(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("there is a GPU here")
        done = self.run_tarnd("--model", MODEL, "--socket", self.path, "--device", "cuda")
        self.assertEqual(NO_MODEL, done.returncode, done.stderr)
        self.assertRegex(done.stderr, "device cuda: .*no NVIDIA (driver|GPU) here")
        self.assertFalse(os.path.exists(self.path))
        daemon = self.start("--device", "auto")
        self.assertRegex(daemon.get("/v1/models").body.decode(), r'"device": ?"cpu')
        self.assertNotRegex(daemon.log, "warn|cuda|GPU")

    def test_a_pool_by_name_needs_the_kernel_module(self):
        done = self.run_tarnd("--model", MODEL, "--socket", self.path, "--kv-backend", "memfd",
                              "--pool", "tests")
        self.assertEqual(NO_MODEL, done.returncode, done.stderr)
        self.assertIn('pool "tests", KV backend memfd: only the kernel module has pools with names',
                      done.stderr)

    def test_a_module_that_is_not_loaded_is_said(self):
        if os.path.exists("/dev/kvpool"):
            self.skipTest("it is loaded")
        done = self.run_tarnd("--model", MODEL, "--socket", self.path, "--kv-backend", "kernel")
        self.assertEqual(NO_MODEL, done.returncode, done.stderr)
        self.assertIn('KV backend kernel: the kernel module is not loaded; "modprobe kvpool"',
                      done.stderr)

    def test_what_could_never_serve_anybody_does_not_start(self):
        for option, part in (("--ctx=1", "a context of 1 token: want at least 2"),
                             ("--kv-bytes=1M", "1048576 bytes for KV memory hold no sequence")):
            done = self.run_tarnd("--model", MODEL, option)
            self.assertEqual(NO_MODEL, done.returncode, done.stderr)
            self.assertIn(part, done.stderr)

    def test_wrong_usage(self):
        for arguments, part in [((), "--model"), (("--model", "x", "--bogus"), "--bogus"),
                                (("--model", "x", "--threads", "none"), "--threads")]:
            done = self.run_tarnd(*arguments)
            self.assertEqual(USAGE, done.returncode)
            self.assertIn(part, done.stderr)
        for arguments in [("--help",), ("--version",)]:
            done = self.run_tarnd(*arguments)
            self.assertEqual((OK, ""), (done.returncode, done.stderr))
        self.assertIn("curl --unix-socket", self.run_tarnd("--help").stdout)

    # ---- the socket's file --------------------------------------------------------------------

    def test_mode_and_owner(self):
        daemon = self.start()
        self.assertEqual(0o660, stat.S_IMODE(os.stat(self.path).st_mode))
        self.assertTrue(stat.S_ISSOCK(os.stat(self.path).st_mode))
        self.assertEqual(OK, daemon.stop())
        options = ["--socket-mode", "0606"]
        if os.geteuid() == 0:
            options += ["--socket-owner", "nobody:12345"]
        daemon = self.start(*options)
        info = os.stat(self.path)
        self.assertEqual(0o606, stat.S_IMODE(info.st_mode))
        if os.geteuid() == 0:
            self.assertEqual(12345, info.st_gid)
            self.assertNotEqual(0, info.st_uid)

    def test_a_stale_socket_is_replaced(self):
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stale.bind(self.path)
        stale.close()
        self.assertTrue(os.path.exists(self.path))
        self.assertEqual(200, self.start().get("/health").status)

    def test_a_killed_daemon_leaves_nothing_in_the_way(self):
        daemon = self.start()
        daemon.process.kill()
        daemon.process.wait()
        self.assertTrue(os.path.exists(self.path))
        self.assertEqual(200, self.start().get("/health").status)

    def test_a_second_daemon_is_refused_by_name(self):
        daemon = self.start()
        done = self.run_tarnd("--model", MODEL, "--socket", self.path)
        self.assertEqual(IN_USE, done.returncode)
        self.assertIn(f"{self.path} is in use by another tarnd (process {daemon.process.pid})",
                      done.stderr)
        self.assertEqual(200, daemon.get("/health").status)

    def test_of_many_starts_at_once_one_wins(self):
        daemons = run_together([lambda: Daemon(socket_path=self.path, wait=False)] * 6)
        self.daemons += daemons
        wait_for(lambda: sum(d.process.poll() is None for d in daemons) <= 1, "one left")
        codes = sorted(d.process.poll() for d in daemons if d.process.poll() is not None)
        self.assertEqual([IN_USE] * 5, codes)
        (winner,) = [d for d in daemons if d.process.poll() is None]
        winner.wait_ready()

    def test_without_standard_descriptors_nothing_else_is_written(self):
        daemon = self.start(preexec=lambda: [os.close(fd) for fd in (0, 1, 2)])
        with open(daemon.socket + ".lock", encoding="ascii") as lock:
            self.assertEqual(f"{daemon.process.pid}\n", lock.read())
        daemon.complete("Hello", max_tokens=2)
        self.assertEqual(OK, daemon.stop())
        daemon = self.start(preexec=lambda: os.close(2))
        with open(daemon.socket + ".lock", encoding="ascii") as lock:
            self.assertEqual(f"{daemon.process.pid}\n", lock.read())

    def test_someone_elses_socket_and_files_are_left_alone(self):
        other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        other.bind(self.path)
        other.listen()
        done = self.run_tarnd("--model", MODEL, "--socket", self.path)
        self.assertEqual(IN_USE, done.returncode)
        other.close()
        os.unlink(self.path)
        with open(self.path, "w", encoding="ascii") as file:
            file.write("precious")
        done = self.run_tarnd("--model", MODEL, "--socket", self.path)
        self.assertEqual(NO_SOCKET, done.returncode)
        self.assertIn("is not a socket", done.stderr)
        with open(self.path, encoding="ascii") as file:
            self.assertEqual("precious", file.read())

    def test_a_place_that_cannot_be_written(self):
        done = self.run_tarnd("--model", MODEL, "--socket", "/proc/tarn.sock")
        self.assertEqual(NO_SOCKET, done.returncode)
        done = self.run_tarnd("--model", MODEL, "--socket", "/tmp/" + "x" * 200)
        self.assertEqual(USAGE, done.returncode)

    def test_a_socket_that_was_replaced_is_not_removed(self):
        daemon = self.start()
        os.unlink(self.path)
        with open(self.path, "w", encoding="ascii"):
            pass
        self.assertEqual(OK, daemon.stop())
        self.assertTrue(os.path.exists(self.path))

    # ---- the service manager -------------------------------------------------------------------

    def test_readiness_is_told(self):
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.settimeout(WAIT_S)
        manager.bind(os.path.join(self.dir, "notify"))
        daemon = self.start(env={"NOTIFY_SOCKET": os.path.join(self.dir, "notify")})
        told = ""
        while "READY=1" not in told:
            told += manager.recv(4096).decode()
        self.assertIn("STATUS=loading", told)
        daemon.stop()
        while "STOPPING=1" not in told:
            told += manager.recv(4096).decode()
        manager.close()

    def test_a_socket_is_taken_over(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen()
        # LISTEN_PID is the daemon's own, so a shell sets it and becomes the daemon.
        script = 'exec 3<&$0; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
        process = subprocess.Popen(["sh", "-c", script, str(listener.fileno()), TARND, "--model",
                                    MODEL, "--kv-bytes", "256M", "--socket",
                                    os.path.join(self.dir, "unused")],
                                   pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
        listener.close()
        try:
            daemon = Daemon.__new__(Daemon)
            daemon.socket, daemon.process = self.path, process
            wait_for(lambda: daemon.get("/health").status == 200, "ready")
            self.assertFalse(os.path.exists(os.path.join(self.dir, "unused")))
        finally:
            process.terminate()
            self.assertEqual(OK, process.wait(WAIT_S))
        self.assertTrue(os.path.exists(self.path))  # the manager's, not ours

    # ---- signals ------------------------------------------------------------------------------

    def test_sigterm_finishes_what_runs_and_refuses_what_waits(self):
        # 64 MiB of KV memory hold one of these at a time.
        daemon = self.start("--kv-bytes", "64M", "--drain-timeout", "600")
        connection, response = daemon.start_stream(max_tokens=400)
        waiting = daemon.connect()
        waiting.request("POST", "/v1/completions", json.dumps(
            {"prompt": "a", "max_tokens": 2700, "ignore_eos": True}))
        idle = daemon.connect()
        idle.connect()
        wait_for(lambda: daemon.stats()["backlog"] == 1, "one waits")
        daemon.process.send_signal(signal.SIGTERM)
        refused = waiting.getresponse()
        self.assertEqual(503, refused.status)
        self.assertEqual("shutting_down", json.loads(refused.read())["error"]["code"])
        self.assertFalse(os.path.exists(self.path))
        with self.assertRaises(OSError):
            daemon.connect().connect()
        idle.request("GET", "/health")  # who has connected still gets an answer
        answer = idle.getresponse()
        self.assertEqual(503, answer.status)
        rest = response.read()
        self.assertTrue(rest.endswith(b"data: [DONE]\n\n"))
        self.assertIn(b'"finish_reason":"length"', rest)
        self.assertEqual(OK, daemon.wait_exit())
        self.assertFalse(os.path.exists(self.path + ".lock"))
        connection.close()

    def test_every_signal_that_ends_it_lets_an_answer_be_finished(self):
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signo):
                daemon = self.start()
                connection, response = daemon.start_stream(max_tokens=40)
                daemon.process.send_signal(signo)
                self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
                self.assertEqual(OK, daemon.wait_exit())
                self.assertFalse(os.path.exists(self.path))
                connection.close()

    def test_the_end_of_its_terminal_is_nothing_to_one_started_by_nohup(self):
        old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            daemon = self.start()
        finally:
            signal.signal(signal.SIGHUP, old)
        daemon.process.send_signal(signal.SIGHUP)
        self.assertEqual(200, daemon.get("/health").status)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(OK, daemon.wait_exit())

    def test_help_that_cannot_be_written_is_a_failure(self):
        for option in ("--help", "--version"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([TARND, option], stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(FAILURE, done.returncode)
            self.assertIn(b"No space left", done.stderr)

    def test_the_drain_timeout_ends_long_answers(self):
        daemon = self.start("--drain-timeout", "1")
        connection, response = daemon.start_stream(max_tokens=7000)
        started = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        rest = response.read()
        self.assertIn(b'"code":"shutting_down"', rest)
        self.assertEqual(OK, daemon.wait_exit())
        self.assertLess(time.monotonic() - started, 5 * tap.TIME_SCALE)
        connection.close()

    def test_a_second_signal_stops_at_once(self):
        daemon = self.start()
        connection, response = daemon.start_stream(max_tokens=7000)
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not os.path.exists(self.path), "the first is taken")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(FAILURE, daemon.wait_exit(5 * tap.TIME_SCALE))
        self.assertFalse(os.path.exists(self.path + ".lock"))
        response.close()
        connection.close()

    # ---- clients ------------------------------------------------------------------------------

    def test_a_client_killed_in_the_middle_of_a_stream(self):
        daemon = self.start()
        alone = daemon.complete("Someone else asks:", max_tokens=60, ignore_eos=True)
        script = ("import socket,sys,json\n"
                  "s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                  "b=json.dumps({'prompt':'x','stream':True,'max_tokens':6000,'ignore_eos':True})\n"
                  "s.sendall(f'POST /v1/completions HTTP/1.1\\r\\n'.encode())\n"
                  "s.sendall(f'Content-Length: {len(b)}\\r\\n\\r\\n{b}'.encode())\n"
                  "while s.recv(1000): print('got', flush=True)\n")
        clients = [subprocess.Popen([sys.executable, "-c", script, self.path],
                                    stdout=subprocess.PIPE) for _ in range(3)]
        for client in clients:
            client.stdout.readline()
        wait_for(lambda: len(daemon.stats()["running"]) == 3, "all run")
        for client in clients:
            client.kill()
            client.wait()
            client.stdout.close()
        wait_for(daemon.is_idle, "all cancelled, memory free", 5 * tap.TIME_SCALE)
        again = daemon.complete("Someone else asks:", max_tokens=60, ignore_eos=True)
        self.assertEqual(alone["choices"][0]["text"], again["choices"][0]["text"])
        self.assertIn("gone", daemon.log)

    def test_the_peers_identity_is_logged(self):
        daemon = self.start()
        daemon.complete("a", max_tokens=1)
        wait_for(lambda: f"uid={os.getuid()} gid={os.getgid()} pid={os.getpid()}" in daemon.log,
                 "the log line")


class Probes(unittest.TestCase):
    """The probes in the binary are those of the list, with as many arguments."""

    @staticmethod
    def listed(path):
        with open(os.path.join(tap.ROOT, path), encoding="utf-8") as file:
            text = file.read()
        found = re.findall(r"^ \*\t(\w+)\(([^)]*)\)", text, re.MULTILINE)
        return {name: len([a for a in arguments.split(",") if a.strip()])
                for name, arguments in found}

    def test_the_binary_has_the_listed_probes(self):
        notes = subprocess.run(["readelf", "-n", "-W", TARND], capture_output=True, text=True,
                               check=True).stdout
        found = {}
        for block in notes.split("Provider: tarn\n")[1:]:
            name = re.search(r"Name: (\S+)", block).group(1)
            arguments = re.search(r"Arguments: ?(.*)", block).group(1).split()
            found.setdefault(name, set()).add(len(arguments))
        listed = self.listed("daemon/probes.h")
        self.assertGreaterEqual(len(listed), 9)
        engine = os.path.join("engine", "probes.h")
        if os.path.exists(os.path.join(tap.ROOT, engine)):
            with open(os.path.join(tap.ROOT, engine), encoding="utf-8") as file:
                engine_text = file.read()
        else:
            engine_text = ""
        for name, count in listed.items():
            self.assertEqual({count}, found.get(name), name)
        for name in set(found) - set(listed):
            self.assertRegex(engine_text, rf"\b{name}\b")


if __name__ == "__main__":
    tap.main()
