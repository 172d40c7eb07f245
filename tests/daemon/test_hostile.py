#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input over the socket: always an answer that says why, never the daemon's end, and whoever
else is being served gets the same text as alone."""

import http.client
import json
import os
import re
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import DaemonTest, Reply, background, run_together, tap, wait_for  # noqa: E402

WITNESS = {"prompt": "The witness says:", "temperature": 0, "ignore_eos": True,
           "max_tokens": 160 // tap.TIME_SCALE}
TIMEOUT_S = 2


def read_reply(sock):
    response = http.client.HTTPResponse(sock)
    response.begin()
    return Reply(response)


def head_of(length, path="/v1/completions", more=""):
    return f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n{more}\r\n".encode()


class BesideWitness(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.alone = cls.witness()

    @classmethod
    def witness(cls):
        events = cls.daemon.stream("/v1/completions", WITNESS)
        return "".join(e["choices"][0]["text"] for e in events)

    def beside_witness(self, job):
        """Runs @job while a stream is under way, which must not notice."""
        with background(self.witness) as result:
            job()
        self.assertEqual(self.alone, result[0])


class Hostile(BesideWitness):
    options = ("--max-body", "64K", "--timeout", str(TIMEOUT_S), "--max-unsent", "16K")

    def expect(self, reply, status, code=None, param=None, part=""):
        self.assertEqual(status, reply.status, reply.body)
        self.assertEqual("application/json", reply.headers["Content-Type"])
        error = reply.error
        self.assertEqual({"message", "type", "param", "code"}, set(error))
        if code:
            self.assertEqual(code, error["code"])
        if param:
            self.assertEqual(param, error["param"])
        self.assertIn(part, error["message"])

    def test_bodies_that_are_wrong(self):
        def job():
            for body, code, param, part in [
                    (b"", "invalid_json", None, ""),
                    (b"{", "invalid_json", None, "line 1"),
                    (b"[]", "invalid_json", None, "an array"),
                    (b"\xff\xfe{}", "invalid_json", None, "0xff"),
                    (b'{"prompt": "\xc3("}', "invalid_json", None, ""),
                    (b'{"prompt": "a", "prompt": "b"}', "invalid_json", None, "duplicate"),
                    (b"[" * 60000, "invalid_json", None, "60000 levels"),
                    (b'{"a":' * 10000 + b"1" + b"}" * 10000, "invalid_json", None, "levels"),
                    (b'{"prompt": ""}', None, "prompt", "empty"),
                    (b'{"prompt": []}', None, "prompt", "empty"),
                    (b'{"prompt": 5}', "invalid_type", "prompt", ""),
                    (b'{"prompt": {"a": 1}}', "invalid_type", "prompt", ""),
                    (b'{"prompt": "a", "n": 0}', "invalid_value", "n", ""),
                    (b'{"prompt": "a", "n": 1000000}', "invalid_value", "n", "1000000"),
                    (b'{"prompt": "a", "max_tokens": -5}', "invalid_value", "max_tokens", "-5"),
                    (b'{"prompt": "a", "max_tokens": 1e99}', "invalid_type", "max_tokens", ""),
                    (b'{"prompt": "a", "temperature": NaN}', "invalid_json", None, ""),
                    (b'{"prompt": "a", "temperature": 1e999}', "invalid_json", None, ""),
                    (b'{"prompt": "a", "temperature": -1}', "invalid_value", "temperature", "-1"),
                    (b'{"prompt": "a", "top_p": 7}', "invalid_value", "top_p", ""),
                    (b'{"prompt": "a", "seed": 1e3}', "invalid_type", "seed", ""),
                    (b'{"prompt": [-1]}', "invalid_value", "prompt", "prompt[0] is -1"),
                    (b'{"prompt": [1, 99999999]}', "invalid_value", "prompt", "99999999"),
                    (b'{"prompt": "a", "model": "gpt-4"}', "model_not_found", "model", "gpt-4"),
                    (b'{"prompt": "a", "stop": [""]}', "invalid_value", "stop", "")]:
                with self.subTest(body=body[:60]):
                    reply = self.daemon.post("/v1/completions", body)
                    self.expect(reply, 404 if code == "model_not_found" else 400, code, param, part)

        self.beside_witness(job)

    def test_a_prompt_beyond_the_context_is_not_cut(self):
        limit = self.daemon.stats()["ctx_tokens"]
        reply = self.daemon.post("/v1/completions", {"prompt": [5] * (limit + 10)})
        self.expect(reply, 400, "context_length_exceeded", "prompt", str(limit + 10))
        self.assertIn(str(limit), reply.error["message"])
        reply = self.daemon.post("/v1/completions", {"prompt": [5] * 10, "max_tokens": limit})
        self.expect(reply, 400, "context_length_exceeded", "max_tokens", str(limit))
        reply = self.daemon.post("/v1/chat/completions",
                                 {"messages": [{"role": "user", "content": "word " * 12000}]})
        self.expect(reply, 400, "context_length_exceeded", "messages", str(limit))

    def test_bodies_over_the_limit(self):
        def job():
            body = b'{"prompt": "' + b"x" * 200000 + b'"}'
            self.expect(self.daemon.post("/v1/completions", body), 413, "body_too_large")
            for chunk in (60000, 1 << 30):
                sock = self.daemon.raw()
                sock.sendall(b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
                try:
                    for _ in range(10):
                        sock.sendall(b"%x\r\n" % chunk + b"x" * 60000 + b"\r\n")
                except OSError:
                    pass  # it has answered and closed
                self.expect(read_reply(sock), 413, "body_too_large")
                sock.close()

        self.beside_witness(job)

    def test_a_chunk_size_that_never_ends(self):
        sock = self.daemon.raw()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(100):
                sock.sendall(b"0" * 10000)
        except OSError:
            pass
        self.expect(read_reply(sock), 413)
        sock.close()

    def test_a_chunked_body_within_the_limit_is_fine(self):
        sock = self.daemon.raw()
        body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in body:
            sock.sendall(b"1\r\n%c\r\n" % byte)
        sock.sendall(b"0\r\n\r\n")
        self.assertEqual(200, read_reply(sock).status)
        sock.close()

    def test_what_is_not_http(self):
        def job():
            for garbage in [b"\x00\xff\x16\x03\x01" * 20 + b"\r\n\r\n", b"GET\r\n\r\n",
                            b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
                            b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                            b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
                            b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\n"
                            b"Transfer-Encoding: chunked\r\n\r\n",
                            b"GET / HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
                            b"GET /" + b"y" * 100000 + b" HTTP/1.1\r\n\r\n"]:
                with self.subTest(garbage=garbage[:50]):
                    sock = self.daemon.raw()
                    try:
                        sock.sendall(garbage)
                    except OSError:
                        pass
                    reply = read_reply(sock)
                    self.assertGreaterEqual(reply.status, 400)
                    self.assertTrue(reply.error["message"])
                    sock.close()

        self.beside_witness(job)

    def test_no_body_is_taken_for_a_request(self):
        inner = b"GET /version HTTP/1.1\r\nHost: t\r\n\r\n"
        text = b'{"content": "abc"}'
        for status, head, body in [
                (501, b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: gzip\r\n", inner),
                (501, b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n",
                 b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text) + inner),
                (501, b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: x\r\n"
                 b"Transfer-Encoding: chunked\r\n",
                 b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text) + inner),
                (400, b"HEAD /health HTTP/1.1\r\nContent-Length: %d\r\n" % len(inner), inner),
                (400, b"POST /tokenize HTTP/1.1\r\nContent-Length: %d\r\n"
                 b"Content-Length: %d\r\n" % (len(text), len(text + inner)), text + inner),
                (400, b"POST /tokenize HTTP/1.1\r\nContent-Length: +%d\r\n" % len(text),
                 text + inner)]:
            with self.subTest(head=head):
                sock = self.daemon.raw()
                sock.sendall(head + b"Host: t\r\n\r\n" + body)
                replies = b"".join(iter(lambda: sock.recv(65536), b""))  # and it is closed
                sock.close()
                self.assertEqual(1, replies.count(b"HTTP/1.1 "), replies)
                self.assertTrue(replies.startswith(b"HTTP/1.1 %d " % status), replies)
                self.assertNotIn(b"system_fingerprint", replies)

    def test_an_odd_expectation_is_417(self):
        sock = self.daemon.raw()
        sock.sendall(head_of(5, more="Expect: miracles\r\n"))
        self.expect(read_reply(sock), 417)
        sock.close()

    def test_a_client_that_waits_for_100_continue_gets_it(self):
        body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
        sock = self.daemon.raw()
        sock.sendall(head_of(len(body), more="Expect: 100-continue\r\n"))
        self.assertEqual(b"HTTP/1.1 100 Continue\r\n\r\n", sock.recv(100))
        sock.sendall(body)
        self.assertEqual(200, read_reply(sock).status)
        sock.close()

    def test_a_client_that_asks_for_too_much_is_told_at_once(self):
        for nr_before in (0, 1):
            sock = self.daemon.raw()
            for _ in range(nr_before):
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
                self.assertEqual(200, read_reply(sock).status)
            start = time.monotonic()
            sock.sendall(head_of(1 << 30, more="Expect: 100-continue\r\n"))
            self.expect(read_reply(sock), 413, "body_too_large")
            if tap.TIME_SCALE == 1:
                self.assertLess(time.monotonic() - start, TIMEOUT_S)
            sock.close()

    def test_a_length_is_judged_before_the_body(self):
        """Whole or in pieces, after another request, or by a client that waits for the end."""
        ahead = b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n"
        for status, length in [(413, "65537"), (413, str(2**63 - 1)), (400, str(2**63)),
                               (400, str(2**64 + 30)), (400, "9" * 40), (400, "1x"), (400, "")]:
            for pieces in ([head_of(length)], [head_of(length)[:50], head_of(length)[50:]],
                           [ahead + head_of(length)]):
                with self.subTest(length=length, pieces=pieces):
                    sock = self.daemon.raw()
                    start = time.monotonic()
                    for piece in pieces:
                        sock.sendall(piece)
                        time.sleep(0.02)
                    replies = b"".join(iter(lambda: sock.recv(65536), b""))  # and it is closed
                    nr_good = pieces[0].startswith(ahead)
                    self.assertEqual(nr_good, replies.count(b"HTTP/1.1 200 "), replies)
                    self.assertEqual(1 + nr_good, replies.count(b"HTTP/1.1 "), replies)
                    self.assertIn(b"HTTP/1.1 %d " % status, replies)
                    self.assertIn(b"Connection: close\r\n", replies)
                    self.assertIn(b"body_too_large" if status == 413 else b"invalid_http", replies)
                    if tap.TIME_SCALE == 1:
                        self.assertLess(time.monotonic() - start, TIMEOUT_S / 2)
                    sock.close()

    def test_what_evhttp_would_misread_is_refused(self):
        for status, line in [(400, b"GET /health HTTP/1.9999999999"), (400, b"GET /health HTTP/1."),
                             (400, b"GET /health HTTP/1.1x"), (405, b"CONNECT t:80 HTTP/1.1"),
                             (200, b"GET /health HTTP/1.1")]:
            with self.subTest(line=line):
                sock = self.daemon.raw()
                more = b"Connection: close\r\n" if status == 200 else b""
                sock.sendall(line + b"\r\nHost: t\r\n" + more + b"\r\n")
                replies = b"".join(iter(lambda: sock.recv(65536), b""))  # and it is closed
                self.assertTrue(replies.startswith(b"HTTP/1.1 %d " % status), replies)
                self.assertIn(b"Connection: close\r\n", replies)
                sock.close()

    def test_faults_of_chunks_are_named(self):
        body = b'{"content": "abc"}'
        good = b"%x\r\n%s\r\n" % (len(body), body)
        for status, chunks, part in [
                (400, b"%x;a=b\r\n%s\r\n" % (len(body), body), "chunk extensions are not supp"),
                (400, good + b"0;last\r\n\r\n", "chunk extensions are not supported"),
                (400, b"-1\r\n" + good, "hexadecimal"), (400, b"zz\r\n" + good, "hexadecimal"),
                (400, b"%x\r\n%sXX\r\n" % (len(body), body), "do not end where it says"),
                (400, b"F" * 16 + b"\r\n", "not below 2^63"),
                (413, b"7" + b"F" * 15 + b"\r\n", "--max-body"),
                (413, good + b"fff0\r\n", "--max-body")]:
            for step in (len(chunks), 1):
                with self.subTest(chunks=chunks, step=step):
                    sock = self.daemon.raw()
                    sock.sendall(b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for at in range(0, len(chunks), step):
                        sock.sendall(chunks[at:at + step])
                    self.expect(read_reply(sock), status,
                                "body_too_large" if status == 413 else "invalid_http", part=part)
                    sock.close()

    def test_slow_clients_time_out_with_an_answer(self):
        def drip(head, data):
            sock = self.daemon.raw()
            started = time.monotonic()
            sock.sendall(head)
            try:
                for byte in data:
                    sock.sendall(bytes([byte]))
                    time.sleep(0.1)
            except OSError:
                pass
            reply = read_reply(sock)
            sock.close()
            self.assertLess(time.monotonic() - started, TIMEOUT_S * 4 * tap.TIME_SCALE)
            self.expect(reply, 408, "timeout")

        def job():
            run_together([lambda: drip(b"GET /health HTTP/1.1\r\nX-Endless: ", b"x" * 100),
                          lambda: drip(head_of(5000), b"x" * 100),
                          lambda: drip(b"POST /v1/compl", b"")])

        self.beside_witness(job)

    def test_a_silent_client_is_closed(self):
        sock = self.daemon.raw()
        self.assertEqual(b"", sock.recv(100))
        sock.close()

    def test_half_closed_clients(self):
        def job():
            body = json.dumps({"prompt": "a", "max_tokens": 20, "ignore_eos": True}).encode()
            # A whole request, then no more sending: the answer comes all the same.
            sock = self.daemon.raw()
            sock.sendall(head_of(len(body)) + body)
            sock.shutdown(socket.SHUT_WR)
            self.assertEqual(200, read_reply(sock).status)
            sock.close()
            # The same for a stream.
            body = json.dumps({"prompt": "a", "max_tokens": 20, "ignore_eos": True,
                               "stream": True}).encode()
            sock = self.daemon.raw()
            sock.sendall(head_of(len(body)) + body)
            sock.shutdown(socket.SHUT_WR)
            self.assertIn(b"[DONE]", read_reply(sock).body)
            sock.close()
            # Half a request.
            for part in (head_of(500) + b'{"prompt"', b"GET /health HT", head_of(5)[:-2]):
                sock = self.daemon.raw()
                sock.sendall(part)
                sock.shutdown(socket.SHUT_WR)
                self.expect(read_reply(sock), 400, "incomplete_request")
                sock.close()
            # Nothing at all.
            sock = self.daemon.raw()
            sock.shutdown(socket.SHUT_WR)
            self.assertEqual(b"", sock.recv(100))
            sock.close()

        self.beside_witness(job)

    def test_a_half_closed_client_that_goes_is_noticed(self):
        body = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True}).encode()
        sock = self.daemon.raw()
        sock.sendall(head_of(len(body)) + body)
        sock.shutdown(socket.SHUT_WR)
        wait_for(lambda: self.daemon.stats()["running"], "running")
        sock.close()
        wait_for(lambda: not self.daemon.stats()["running"], "cancelled", 5 * tap.TIME_SCALE)

    def test_clients_that_leave_at_every_stage(self):
        def job():
            body = json.dumps({"prompt": "a b c d", "max_tokens": 500, "ignore_eos": True,
                               "stream": True, "n": 3}).encode()
            whole = head_of(len(body)) + body
            for end in list(range(0, len(whole), 7)) + [len(whole)] * 20:
                sock = self.daemon.raw()
                sock.sendall(whole[:end])
                sock.close()

        self.beside_witness(job)
        self.daemon.wait_idle()

    def test_input_while_a_request_waits_does_no_harm(self):
        body = json.dumps({"prompt": "a", "max_tokens": 30, "ignore_eos": True}).encode()
        sock = self.daemon.raw()
        sock.sendall(head_of(len(body)) + body)
        for _ in range(20):
            sock.sendall(b"x" * 3000 + b"\r\n")
        replies = b""
        while piece := sock.recv(65536):
            replies += piece
        sock.close()
        self.assertEqual([b"200", b"400"], re.findall(rb"^HTTP/1.1 (\d+)", replies, re.MULTILINE))
        self.assertIn(b'"invalid_http"', replies)

    def test_200_clients_at_once(self):
        body = {"prompt": "200 ask", "max_tokens": 2, "temperature": 0,
                "ignore_eos": True}
        alone = self.daemon.post("/v1/completions", body).json["choices"][0]["text"]
        texts = run_together([
            lambda: self.daemon.post("/v1/completions", body).json["choices"][0]["text"]] * 200)
        self.assertEqual([alone] * 200, texts)


class SlowReader(BesideWitness):
    # A reader that stands still for --timeout is cut as well, and a step may take long here.
    options = ("--timeout", "300", "--max-unsent", "16K")

    def test_a_slow_reader_is_cut_and_nobody_waits_for_it(self):
        def job():
            # Some 20 KB a step, against what the kernel holds and 16 KiB. Who reads gets it all:
            # every token, if not in as many pieces (half a character waits for its other half).
            fields = {"prompt": "a", "ignore_eos": True, "n": 8, "logprobs": 20}
            pieces = self.daemon.stream("/v1/completions", {**fields, "max_tokens": 3})
            self.assertEqual(24, sum(len(choice["logprobs"]["tokens"])
                                     for piece in pieces for choice in piece["choices"]))
            body = json.dumps({**fields, "max_tokens": 200, "stream": True}).encode()
            sock = self.daemon.raw()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(head_of(len(body)) + body)
            wait_for(lambda: "cut off: it reads too slowly" in self.daemon.log, "cut")
            sock.close()

        self.beside_witness(job)


class FullQueue(DaemonTest):
    options = ("--queue", "2", "--kv-bytes", "64M")

    def test_more_than_the_queue_holds_get_503_and_retry_after(self):
        connection, response = self.daemon.start_stream(max_tokens=2000)
        wait_for(lambda: self.daemon.stats()["running"], "running")
        # 64 MiB of KV memory hold one of these at a time.
        body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True}
        others = [self.daemon.connect() for _ in range(2)]
        for other in others:
            other.request("POST", "/v1/completions", json.dumps(body))
        wait_for(lambda: self.daemon.stats()["backlog"] == 2, "full queue")
        reply = self.daemon.post("/v1/completions", body)
        self.assertEqual(503, reply.status, reply.body)
        self.assertEqual("queue_full", reply.error["code"])
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        for other in others:
            other.close()
        connection.close()
        response.close()

    def test_more_than_all_memory_is_a_400(self):
        reply = self.daemon.post("/v1/completions", {"prompt": "a", "max_tokens": 2000, "n": 100})
        self.assertEqual(400, reply.status, reply.body)
        self.assertEqual("kv_memory_exceeded", reply.error["code"])
        self.assertEqual("n", reply.error["param"])
        reply = self.daemon.post("/v1/completions", {"prompt": "a", "max_tokens": 2000,
                                                     "best_of": 100})
        self.assertEqual("best_of", reply.error["param"])
        reply = self.daemon.post("/v1/completions", {"prompt": "a", "max_tokens": 8000})
        self.assertEqual("max_tokens", reply.error["param"])


if __name__ == "__main__":
    tap.main()
