# SPDX-License-Identifier: Apache-2.0
"""What the daemon's end-to-end tests share: starting tarnd, and HTTP over its Unix socket.

The client is Python's own http.client on an AF_UNIX connection: nothing of ours is on both sides.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

MODEL = os.environ.get("TARN_TEST_MODEL")
TARND = os.path.join(tap.BUILD_DIR, "tarnd")
WAIT_S = 60 * tap.TIME_SCALE


def need_model():
    if not MODEL:
        raise unittest.SkipTest("TARN_TEST_MODEL is not set")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=WAIT_S):
        super().__init__("tarn", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


def wait_for(predicate, what, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = predicate()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"{what}: not within {seconds} s")


def parse_events(body):
    """The payloads of server-sent events, with the framing checked; [DONE] must be the last."""
    text = body.decode("utf-8")  # strict: a cut character fails here
    assert text.endswith("\n\n"), text[-100:]
    events = text[:-2].split("\n\n")
    assert all(event.startswith("data: ") and "\n" not in event for event in events), events
    assert events[-1] == "data: [DONE]", events[-1]
    return [json.loads(event[len("data: "):]) for event in events[:-1]]


class Daemon:
    """A tarnd of its own, in a directory of its own."""

    def __init__(self, *options, model=None, socket_path=None, env=None, wait=True, pass_fds=(),
                 preexec=None):
        self.dir = tempfile.mkdtemp(prefix="tarn-test-")
        self.socket = socket_path or os.path.join(self.dir, "tarn.sock")
        self.log_path = os.path.join(self.dir, "log")
        arguments = [TARND, "--model", model or MODEL, "--socket", self.socket,
                     "--threads", "2", "--kv-bytes", "1G", *options]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(arguments, stderr=log, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **(env or {})}, pass_fds=pass_fds,
                                            preexec_fn=preexec)
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.stop()
                raise

    @property
    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def wait_ready(self):
        def is_ready():
            if self.process.poll() is not None:
                raise AssertionError(f"tarnd ended with {self.process.returncode}: {self.log}")
            try:
                return self.get("/health").status == 200
            except OSError:
                return False

        wait_for(is_ready, "ready")

    def stop(self):
        """Ends it in good order; answers the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.returncode not in (0, None):
            tap.comment(f"tarnd ended with {self.process.returncode}; its log ends with:")
            tap.comment(self.log[-6000:])
        shutil.rmtree(self.dir, ignore_errors=True)
        return self.process.returncode

    def wait_exit(self, seconds=WAIT_S):
        return self.process.wait(seconds)

    def connect(self, timeout=WAIT_S):
        return UnixConnection(self.socket, timeout)

    def raw(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(WAIT_S)
        sock.connect(self.socket)
        return sock

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode("utf-8")
            connection.request(method, path, body, headers or {})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def complete(self, prompt, **fields):
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert reply.status == 200, reply.body
        return reply.json

    def chat(self, content, **fields):
        reply = self.post("/v1/chat/completions",
                          {"messages": [{"role": "user", "content": content}], "temperature": 0,
                           **fields})
        assert reply.status == 200, reply.body
        return reply.json

    def stream(self, path, body):
        reply = self.post(path, {**body, "stream": True})
        assert reply.status == 200, reply.body
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        return parse_events(reply.body)

    def stats(self):
        return self.get("/stats").json

    def is_idle(self):
        stats = self.stats()
        return not stats["running"] and not stats["waiting"] and stats["backlog"] == 0 and \
            stats["kv"]["used_bytes"] == 0

    def wait_idle(self):
        wait_for(self.is_idle, "idle")

    def start_stream(self, **fields):
        """A long stream, its head read; answers connection and response."""
        connection = self.connect()
        body = {"prompt": "Once upon a time", "temperature": 0, "stream": True,
                "ignore_eos": True, "max_tokens": 4000, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.readline()
        return connection, response


class DaemonTest(unittest.TestCase):
    """Tests of one class share a daemon; after each it must be alive and idle."""

    options = ()

    @classmethod
    def setUpClass(cls):
        need_model()
        cls.daemon = Daemon(*cls.options)

    @classmethod
    def tearDownClass(cls):
        status = cls.daemon.stop()
        assert status == 0, f"tarnd ended with {status}"

    def tearDown(self):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log[-2000:])
        self.daemon.wait_idle()


def run_together(jobs):
    """Calls all of @jobs at once, each in a thread; answers their results in order."""
    results = [None] * len(jobs)
    errors = []
    barrier = threading.Barrier(len(jobs))

    def run(index, job):
        try:
            barrier.wait()
            results[index] = job()
        except BaseException as error:  # noqa: B902 - handed on below
            errors.append(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@contextlib.contextmanager
def background(job):
    """Runs @job beside the block; its result is in the list after the block."""
    result = []
    failure = []

    def run():
        try:
            result.append(job())
        except BaseException as error:  # noqa: B902 - raised below
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield result
    finally:
        thread.join()
    if failure:
        raise failure[0]
