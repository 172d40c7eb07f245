# SPDX-License-Identifier: Apache-2.0
"""What the command line's tests share: running tarn, and a server that says what a test wants.

The server speaks only as much HTTP as tarn's side needs. Each request is handed to the test's
function, which writes bytes as it likes: also wrong ones.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

TARN = os.path.join(tap.BUILD_DIR, "tarn")
WAIT_S = 60 * tap.TIME_SCALE

LOADED = {
    "object": "list",
    "data": [{"id": "Fake", "object": "model", "max_model_len": 64,
              "meta": {"chat_template": True}}],
}


def environment(**changes):
    """The caller's, without what steers tarn."""
    clean = {k: v for k, v in os.environ.items()
             if k not in ("TARN_SOCKET", "TARN_MODEL", "TARN_CACHE", "XDG_CACHE_HOME",
                          "XDG_RUNTIME_DIR")}
    clean.update(changes)
    return clean


def reset_signals():
    """A test runner in the background ignores SIGINT, and children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def tarn(*arguments, stdin=b"", **changes):
    """Runs tarn to its end; standard output and error as bytes."""
    return subprocess.run([TARN, *arguments], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=WAIT_S,
                          env=environment(**changes), preexec_fn=reset_signals)


def start(*arguments, stdin=subprocess.DEVNULL, **changes):
    return subprocess.Popen([TARN, *arguments], stdin=stdin, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=environment(**changes),
                            preexec_fn=reset_signals)


class Request:
    """One request as it came, and the connection to answer it on."""

    def __init__(self, connection, method, path, body):
        self.connection = connection
        self.method = method
        self.path = path
        self.body = json.loads(body) if body else None

    def send(self, data):
        self.connection.sendall(data)

    def reply(self, status, value):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n"
                  % (status, len(body)) + body)

    def fail(self, status, message, code=None):
        self.reply(status, {"error": {"message": message, "code": code}})

    def begin_stream(self):
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data):
        self.send(b"%x\r\n" % len(data) + data + b"\r\n")

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def text(self, content, finish=None):
        """More of an answer, in the shape of the path that was asked."""
        choice = {"index": 0, "finish_reason": finish}
        if self.path == "/v1/chat/completions":
            choice["delta"] = {"content": content}
        else:
            choice["text"] = content
        self.event({"choices": [choice]})

    def end_stream(self, prompt=5, answer=3):
        self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": answer,
                                             "prompt_tokens_details": {"cached_tokens": 0}}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")


class Server:
    """Listens on a Unix socket in a folder of its own. /health and /v1/models are answered as by a
    daemon that is ready, unless `answer` says that it did so itself."""

    def __init__(self, test, answer):
        self.answer = answer
        self.requests = []
        folder = tempfile.mkdtemp(prefix="tarn-cli-")
        test.addCleanup(shutil.rmtree, folder)
        self.path = os.path.join(folder, "s")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(8)
        test.addCleanup(self.listener.close)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            try:
                while self.serve_one(connection, stream):
                    pass
            except OSError:
                pass  # tarn went away, as some tests want it to

    def serve_one(self, connection, stream):
        line = stream.readline().split()
        if len(line) < 2:
            return False
        length = 0
        while header := stream.readline().strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        request = Request(connection, line[0].decode(), line[1].decode(), stream.read(length))
        self.requests.append(request)
        kept = self.answer(request)
        if kept is None and request.path == "/health":
            request.reply(200, {"status": "ok"})
        elif kept is None and request.path == "/v1/models":
            request.reply(200, LOADED)
        elif kept is False:
            connection.shutdown(socket.SHUT_RDWR)
            return False
        return True

    def asked(self, path):
        return [r for r in self.requests if r.path == path]


class CliTest(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(TARN):
            self.skipTest("tarn is not built")

    def ends(self, result, code, stderr=None, stdout=None):
        """Checks the exit code, a part of what was complained, and the whole output."""
        said = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, code, said)
        if stderr is not None:
            self.assertIn(stderr, said)
        if stdout is not None:
            self.assertEqual(result.stdout.decode(), stdout)
