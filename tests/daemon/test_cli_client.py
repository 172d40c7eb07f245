#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn against a server that goes wrong in every way a daemon can, and its tables."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import LOADED, CliTest, Server, start, tap, tarn  # noqa: E402

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


class AskingTest(CliTest):
    def server(self, answer):
        """`answer` for questions only."""
        return Server(self, lambda r: answer(r) or True if r.path in (CHAT, PLAIN) else None)

    def say(self, *pieces):
        def answer(request):
            request.begin_stream()
            for piece in pieces:
                request.text(piece)
            request.end_stream()
        return self.server(answer)


class Asking(AskingTest):
    def test_answer_and_speed(self):
        server = self.say("Good", " day", "")
        result = tarn("run", "--socket", server.path, "Hello,", "you")
        self.ends(result, 0, None, "Good day\n")
        self.assertRegex(result.stderr.decode(),
                         r"\Aprompt: 5 tokens, [\d.]+ tok/s; answer: 3 tokens, [\d.]+ tok/s; "
                         r"first token after \d+\.\d{3} s\n\Z")
        body = server.asked(CHAT)[0].body
        self.assertEqual(body["messages"], [{"role": "user", "content": "Hello, you"}])
        self.assertIs(body["stream"], True)
        self.assertEqual(body["stream_options"], {"include_usage": True})

    def test_options_become_fields(self):
        server = self.say("x")
        tarn("run", "--system", "Be brief.", "--max-tokens", "7", "--temperature", "0.5",
             "--top-p", "0.9", "--top-k", "40", "--seed", "-3", "hi", TARN_SOCKET=server.path)
        body = server.asked(CHAT)[0].body
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual([body[k] for k in ("max_tokens", "temperature", "top_p", "top_k", "seed")],
                         [7, 0.5, 0.9, 40, -3])

    def test_prompt_from_standard_input(self):
        server = self.say("x")
        for words in ((), ("-",)):
            tarn("run", "--socket", server.path, *words, stdin="Grüße 🙂\n".encode())
            self.assertEqual(server.requests[-1].body["messages"][0]["content"], "Grüße 🙂")
        tarn("run", "--socket", server.path, "Sum", "up:", "-", "Please", stdin=b"a\nb\n")
        self.assertEqual(server.requests[-1].body["messages"][0]["content"],
                         "Sum up:\n\na\nb\n\nPlease")

    def test_raw_and_models_without_template_are_continued(self):
        server = self.say("x")
        self.ends(tarn("run", "--socket", server.path, "--raw", "Once"), 0, None, "x\n")
        self.assertEqual(server.asked(PLAIN)[0].body["prompt"], "Once")
        bare = json.loads(json.dumps(LOADED))
        bare["data"][0]["meta"]["chat_template"] = False

        def answer(request):
            if request.path == "/v1/models":
                request.reply(200, bare)
                return True
            if request.path != PLAIN:
                return None
            request.begin_stream()
            request.text("y\n")
            request.end_stream()
            return True
        server = Server(self, answer)
        self.ends(tarn("run", "--socket", server.path, "Once"), 0, None, "y\n")
        self.ends(tarn("run", "--socket", server.path, "--system", "s", "Once"), 2,
                  "Fake has no chat template")

    def test_pieces_come_at_once(self):
        go_on = threading.Event()

        def answer(request):
            request.begin_stream()
            request.text("first")
            go_on.wait(30)
            request.text(" last")
            request.end_stream()
        server = self.server(answer)
        with start("run", "--socket", server.path, "x") as process:
            self.assertEqual(os.read(process.stdout.fileno(), 100), b"first")
            go_on.set()
            self.assertEqual(process.communicate()[0], b" last\n")
        go_on.clear()
        with start("run", "--socket", server.path, "--no-stream", "x") as process:
            threading.Timer(0.3, go_on.set).start()
            # The first read has all of the answer; the newline may come with it or behind.
            first = os.read(process.stdout.fileno(), 100)
            self.assertEqual(first.rstrip(b"\n"), b"first last")
            self.assertEqual(first + process.communicate()[0], b"first last\n")

    def test_stream_cut_anywhere(self):
        """Chunks of one byte, comments, CR LF, events of several lines."""
        event = json.dumps({"choices": [{"delta": {"content": "Grüße 🙂"}}]},
                           ensure_ascii=False).encode()
        stream = (b": hello\r\n\r\ndata:" + event + b"\r\n\r\nevent: x\nid: 3\ndata: "
                  + event.replace(b'"choices":', b'"choices":\ndata: ')
                  + b"\n\ndata: [DONE]\n\n")

        def answer(request):
            request.begin_stream()
            for byte in stream:
                request.chunk(bytes([byte]))
            request.chunk(b"")
        self.ends(tarn("run", "--socket", self.server(answer).path, "x"), 0, "",
                  "Grüße 🙂Grüße 🙂\n")

    def test_default_limit_gives_way_to_a_short_context(self):
        def answer(request):
            if "max_tokens" in request.body:
                request.fail(400, "the context holds 64", "context_length_exceeded")
                return
            request.begin_stream()
            request.text("fits", "length")
            request.end_stream()
        server = self.server(answer)
        self.ends(tarn("run", "--socket", server.path, "x"), 0, "cut at the limit", "fits\n")
        self.ends(tarn("run", "--socket", server.path, "--max-tokens", "99", "x"), 1,
                  "tarn: the context holds 64", "")


class Failing(AskingTest):
    def fails(self, answer, code, stderr, stdout=""):
        result = tarn("run", "--socket", self.server(answer).path, "x")
        self.ends(result, code, stderr, stdout)
        self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)

    def test_errors_are_shown_as_their_message(self):
        self.fails(lambda r: r.fail(400, "temperature is too\n\x1b[31mhigh"), 1,
                   "tarn: temperature is too??[31mhigh\n")
        self.fails(lambda r: r.fail(503, "512 requests are waiting already"), 3,
                   "tarn: 512 requests are waiting already\n")
        self.fails(lambda r: r.reply(500, b"<html>"), 1, "status 500 and no reason")

    def test_error_in_the_middle(self):
        def answer(request):
            request.begin_stream()
            request.text("half")
            request.event({"error": {"message": "the device failed"}})
            request.chunk(b"data: [DONE]\n\n")
            request.chunk(b"")
        self.fails(answer, 1, "tarn: the device failed\n", "half\n")

    def test_daemon_gone_in_the_middle(self):
        def answer(request):
            request.begin_stream()
            request.text("half")
            request.connection.shutdown(socket.SHUT_RDWR)
        self.fails(answer, 1, "went away before the answer was whole", "half\n")

    def test_stream_that_ends_without_done(self):
        def answer(request):
            request.begin_stream()
            request.text("half")
            request.chunk(b"")
        self.fails(answer, 1, "went away before the answer was whole", "half\n")

    def test_gone_before_an_answer(self):
        self.fails(lambda r: r.connection.shutdown(socket.SHUT_RDWR), 1, "went away before")

    def test_events_that_are_no_json(self):
        for wrong in (b"data: {]\n\n", b"data: 7\n\n", b"data: \xff\n\n"):
            def answer(request, wrong=wrong):
                request.begin_stream()
                request.chunk(wrong)
                request.chunk(b"data: [DONE]\n\n")
                request.chunk(b"")
            self.fails(answer, 1, "is not understood: an event that is no JSON object")

    def test_other_json_than_expected_is_passed_over(self):
        def answer(request):
            request.begin_stream()
            for odd in ({}, {"choices": 3}, {"choices": [7]}, {"choices": [{"delta": []}]},
                        {"choices": [{"delta": {"content": None}}]}, {"usage": []}):
                request.event(odd)
            request.text("ok")
            request.end_stream()
        self.ends(tarn("run", "--socket", self.server(answer).path, "x"), 0, None, "ok\n")

    def test_not_http_at_all(self):
        server = Server(self, lambda r: r.send(b"SSH-2.0-x\r\n") or False)
        self.ends(tarn("run", "--socket", server.path, "x"), 1, "is not understood")

    def test_models_without_a_model(self):
        server = Server(self, lambda r: r.reply(200, {"data": []}) or True
                        if r.path == "/v1/models" else None)
        self.ends(tarn("run", "--socket", server.path, "x"), 1, "is not understood")

    def test_output_that_cannot_be_written(self):
        server = self.say("some", "text")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "run", "--socket",
                                     server.path, "x"], stdout=full, stderr=subprocess.PIPE,
                                    check=False)
        self.ends(result, 1, "tarn: cannot write the answer: No space left on device\n")
        self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)

    def test_interrupt_closes_the_connection(self):
        seen = threading.Event()

        def answer(request):
            request.begin_stream()
            request.text("on and on")
            request.connection.settimeout(30)
            if request.connection.recv(1) == b"":
                seen.set()
        for signo, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            seen.clear()
            with start("run", "--socket", self.server(answer).path, "x") as process:
                os.read(process.stdout.fileno(), 100)
                process.send_signal(signo)
                out, err = process.communicate(timeout=30)
                self.assertEqual((process.returncode, out, err), (code, b"\n", b""))
            self.assertTrue(seen.wait(30))


class Waiting(CliTest):
    def test_loading_is_waited_for(self):
        polls = []

        def answer(request):
            if request.path == "/health":
                polls.append(time.monotonic())
                if len(polls) < 5:
                    request.reply(503, {"status": "loading", "stage": "packing weights",
                                        "progress": 0.2 * len(polls)})
                    return True
                return None
            if request.path == CHAT:
                request.begin_stream()
                request.text("ready")
                request.end_stream()
                return True
            return None
        self.ends(tarn("run", "--socket", Server(self, answer).path, "x"), 0, None, "ready\n")
        self.assertEqual(len(polls), 5)

    def test_stopping_is_not(self):
        server = Server(self, lambda r: r.reply(503, {"status": "stopping"}) or True)
        self.ends(tarn("run", "--socket", server.path, "x"), 3, "it is stopping", "")

    def test_interrupt_while_loading(self):
        server = Server(self, lambda r: r.reply(503, {"status": "loading"}) or True)
        with start("run", "--socket", server.path, "x") as process:
            while not server.requests:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 130)


class Conversation(CliTest):
    def echo(self, request):
        if request.path not in (CHAT, PLAIN):
            return None
        request.begin_stream()
        request.text("re: " + (request.body["messages"][-1]["content"]
                               if request.path == CHAT else request.body["prompt"]))
        request.end_stream()
        return True

    def test_lines_are_answered_in_turn_and_kept(self):
        server = Server(self, self.echo)
        result = tarn("chat", "--socket", server.path, "--system", "s",
                      stdin=b"one\n\ntwo \\\nlines\nthree")
        self.ends(result, 0, "", "re: one\nre: two \nlines\nre: three\n")
        said = [m["role"][0] + ":" + m["content"] for m in server.asked(CHAT)[-1].body["messages"]]
        self.assertEqual(said, ["s:s", "u:one", "a:re: one", "u:two \nlines",
                                "a:re: two \nlines", "u:three"])

    def test_commands(self):
        server = Server(self, self.echo)
        result = tarn("chat", "--socket", server.path, stdin=b"a\n/clear\n/clar\nb\n/bye\nc\n")
        self.ends(result, 0, "no command /clar; did you mean /clear", "re: a\nre: b\n")
        self.assertEqual(len(server.asked(CHAT)[-1].body["messages"]), 1)
        self.ends(tarn("chat", "--socket", server.path, stdin=b"/help\n"), 0, "/clear", "")

    def test_raw_text_grows(self):
        server = Server(self, self.echo)
        tarn("chat", "--raw", "--socket", server.path, stdin=b"a\nb\n")
        self.assertEqual([r.body["prompt"] for r in server.asked(PLAIN)], ["a", "are: ab"])

    def test_first_failure_ends_it_without_a_terminal(self):
        server = Server(self, lambda r: r.fail(400, "too long") or True if r.path == CHAT else None)
        self.ends(tarn("chat", "--socket", server.path, stdin=b"a\nb\n"), 1, "tarn: too long\n")
        self.assertEqual(len(server.asked(CHAT)), 1)


STATS = {
    "status": "ok", "model": "Größe 1B", "pid": 4711, "uptime_s": 3725.5, "device": "cpu (avx2)",
    "backlog": 1, "kv": {"backend": "memfd", "limit_bytes": 8 << 30, "used_bytes": 3 << 19,
                         "cached_bytes": 0, "bytes_per_token": 1024},
    "running": [{"id": "chatcmpl-1", "uid": 0, "gid": 0, "pid": 99, "state": "decoding",
                 "prompt_tokens": 1000, "cached_tokens": 512, "completion_tokens": 24,
                 "age_s": 2.25}],
    "waiting": [{"id": "cmpl-22", "uid": 4000000, "gid": 0, "pid": 123456, "state": "waiting",
                 "prompt_tokens": 7, "cached_tokens": 0, "completion_tokens": 0, "age_s": 90061}],
}


class Ps(CliTest):
    def stats(self, value):
        return Server(self, lambda r: r.reply(200, value) or True if r.path == "/stats" else None)

    def test_tables_are_aligned(self):
        server = self.stats(STATS)
        result = tarn("ps", "--socket", server.path)
        self.ends(result, 0, "")
        lines = result.stdout.decode().splitlines()
        self.assertEqual(lines[0].split("  ")[0], "MODEL")
        self.assertEqual(lines[1].split(), ["Größe", "1B", "4711", "ok", "1h02m", "cpu", "(avx2)",
                                            "1", "1", "1.5", "MiB", "0", "B", "8.0", "GiB",
                                            server.path])
        self.assertEqual(lines[1].index("4711") + 4, lines[0].index("PID") + 3)
        self.assertEqual(lines[2], "")
        self.assertEqual(lines[4].split(), ["chatcmpl-1", "0", "(root)", "99", "decoding", "1000",
                                            "512", "24", "2.2s", "1.0", "MiB"])
        self.assertEqual(lines[5].split(), ["cmpl-22", "4000000", "123456", "waiting", "7", "0",
                                            "0", "1d01h", "-"])
        self.assertEqual(len(lines[4]), len(lines[5]))
        for line in lines:
            self.assertEqual(line, line.rstrip())

    def test_json_tells_all(self):
        server = self.stats(STATS)
        result = tarn("ps", "--json", "--socket", server.path)
        self.ends(result, 0, "")
        self.assertEqual(json.loads(result.stdout), [dict(STATS, socket=server.path)])

    def test_loading_daemon_has_no_numbers_yet(self):
        server = self.stats({"status": "loading", "model": None, "pid": 5, "uptime_s": 0.1,
                             "running": [], "waiting": []})
        result = tarn("ps", "--socket", server.path)
        self.ends(result, 0, "")
        self.assertEqual(result.stdout.decode().splitlines()[1].split()[:3], ["-", "5", "loading"])

    def test_daemons_at_the_default_places(self):
        server = self.stats(STATS)
        folder = os.path.dirname(server.path)
        os.symlink(server.path, os.path.join(folder, "tarn.sock"))
        result = tarn("ps", XDG_RUNTIME_DIR=folder)
        self.assertIn(folder + "/tarn.sock", result.stdout.decode())

    def test_answer_that_is_no_object(self):
        self.ends(tarn("ps", "--socket", self.stats([1]).path), 1, "is not understood", "")


if __name__ == "__main__":
    tap.main()
