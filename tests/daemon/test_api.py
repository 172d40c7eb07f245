#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API over the socket, with the real model: shapes, limits, and that answers agree with each
other however they are asked for."""

import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import Daemon, DaemonTest, run_together, tap, wait_for  # noqa: E402

PROMPT = "The capital of France is"


class AboutTheModel(DaemonTest):
    def test_health_and_version(self):
        self.assertEqual({"status": "ok"}, self.daemon.get("/health").json)
        version = self.daemon.get("/version").json
        self.assertRegex(version["version"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(version["system_fingerprint"])

    def test_models(self):
        models = self.daemon.get("/v1/models").json
        self.assertEqual("list", models["object"])
        (model,) = models["data"]
        self.assertEqual("model", model["object"])
        self.assertGreater(model["max_model_len"], 0)
        one = self.daemon.get("/v1/models/" + model["id"].replace(" ", "%20"))
        self.assertEqual(model, one.json)
        missing = self.daemon.get("/v1/models/other")
        self.assertEqual(404, missing.status)
        self.assertEqual("model_not_found", missing.error["code"])

    def test_unknown_paths_and_methods(self):
        for path in ["/", "/v1", "/v1/completion", "/v1/completions/", "/..", "/%00",
                     "/health%00x"]:
            self.assertEqual(404, self.daemon.get(path).status, path)
        for method, path, allow in [("GET", "/v1/completions", "POST"),
                                    ("PUT", "/health", "GET, HEAD"),
                                    ("DELETE", "/v1/models", "GET, HEAD"),
                                    ("BREW", "/health", "GET, HEAD")]:
            reply = self.daemon.request(method, path)
            self.assertEqual(405, reply.status)
            self.assertEqual(allow, reply.headers["Allow"])
            self.assertEqual("method_not_allowed", reply.error["code"])

    def test_head_has_no_body(self):
        reply = self.daemon.request("HEAD", "/health")
        self.assertEqual((200, b""), (reply.status, reply.body))
        # Python's client does not look for one: what follows on the connection tells.
        sock = self.daemon.raw()
        sock.sendall(b"HEAD /health HTTP/1.1\r\n\r\nHEAD /nothing HTTP/1.1\r\n\r\n"
                     b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        replies = b"".join(iter(lambda: sock.recv(65536), b"")).split(b"\r\n\r\n")
        sock.close()
        self.assertEqual([b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 200 OK",
                          b'{"status":"ok"}\n'], [one.split(b"\r\n")[0] for one in replies])
        self.assertIn(b"Content-Length: 16\r\n", replies[0])

    def test_request_ids(self):
        reply = self.daemon.request("GET", "/health", headers={"X-Request-Id": "mine-17"})
        self.assertEqual("mine-17", reply.headers["X-Request-Id"])
        reply = self.daemon.request("GET", "/health", headers={"X-Request-Id": "x" * 500})
        self.assertRegex(reply.headers["X-Request-Id"], r"^[0-9a-f]{24}$")

    def test_keep_alive_and_requests_sent_ahead(self):
        connection = self.daemon.connect()
        for _ in range(3):
            connection.request("GET", "/health")
            self.assertEqual(b'{"status":"ok"}\n', connection.getresponse().read())
        connection.close()
        body = json.dumps({"prompt": PROMPT, "max_tokens": 3, "temperature": 0}).encode()
        one = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        sock = self.daemon.raw()
        sock.sendall(one * 3 + b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n")
        replies = b""
        while piece := sock.recv(65536):
            replies += piece
        sock.close()
        self.assertEqual(4, replies.count(b"HTTP/1.1 200 OK"))
        self.assertEqual(3, replies.count(b'"text_completion"'))


    def test_http_1_0_gets_a_stream_that_ends_with_the_connection(self):
        body = json.dumps({"prompt": PROMPT, "max_tokens": 3, "stream": True}).encode()
        for more in (b"", b"Connection: keep-alive\r\n"):
            sock = self.daemon.raw()
            sock.sendall(b"POST /v1/completions HTTP/1.0\r\n%sContent-Length: %d\r\n\r\n%s" %
                         (more, len(body), body))
            reply = b""
            while piece := sock.recv(65536):
                reply += piece
            sock.close()
            self.assertNotIn(b"chunked", reply)
            self.assertTrue(reply.endswith(b"data: [DONE]\n\n"))


class Text(DaemonTest):
    def test_tokenize_and_back(self):
        text = "Hello, wörld! 你好 🙂 \u200d\n\n  x"
        tokens = self.daemon.post("/tokenize", {"content": text, "add_special_tokens": False}).json
        self.assertEqual(len(tokens["tokens"]), tokens["count"])
        back = self.daemon.post("/detokenize", {"tokens": tokens["tokens"]}).json
        self.assertEqual(text, back["prompt"])

    def test_chat_messages_are_tokenised_by_the_template(self):
        messages = [{"role": "user", "content": "hi"}]
        chat = self.daemon.post("/tokenize", {"messages": messages, "return_token_strs": True}).json
        self.assertIn("hi", chat["token_strs"])
        answer = self.daemon.post("/v1/chat/completions",
                                  {"messages": messages, "max_tokens": 1, "temperature": 0}).json
        self.assertEqual(chat["count"], answer["usage"]["prompt_tokens"])


class Completions(DaemonTest):
    def test_shape_and_usage(self):
        answer = self.daemon.complete(PROMPT, max_tokens=8)
        self.assertEqual("text_completion", answer["object"])
        self.assertTrue(answer["id"].startswith("cmpl-"))
        self.assertTrue(answer["system_fingerprint"])
        (choice,) = answer["choices"]
        self.assertEqual(0, choice["index"])
        self.assertIsNone(choice["logprobs"])
        self.assertIn("Paris", choice["text"])
        usage = answer["usage"]
        self.assertEqual(usage["prompt_tokens"] + usage["completion_tokens"], usage["total_tokens"])
        self.assertIn("cached_tokens", usage["prompt_tokens_details"])

    def test_max_tokens_and_its_default(self):
        answer = self.daemon.complete(PROMPT, max_tokens=3, ignore_eos=True)
        self.assertEqual("length", answer["choices"][0]["finish_reason"])
        self.assertEqual(3, answer["usage"]["completion_tokens"])
        answer = self.daemon.complete(PROMPT, ignore_eos=True)
        self.assertEqual(16, answer["usage"]["completion_tokens"])

    def test_text_and_ids_give_the_same(self):
        ids = self.daemon.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        by_text = self.daemon.complete(PROMPT, max_tokens=12)["choices"][0]["text"]
        for prompt in [ids, [ids], [PROMPT]]:
            (choice,) = self.daemon.complete(prompt, max_tokens=12)["choices"]
            self.assertEqual(by_text, choice["text"])

    def test_streamed_and_whole_are_the_same(self):
        body = {"prompt": "Write an emoji: 🙂🙃", "temperature": 0, "max_tokens": 40,
                "ignore_eos": True}
        whole = self.daemon.post("/v1/completions", body).json["choices"][0]
        events = self.daemon.stream("/v1/completions", body)
        self.assertGreater(len(events), 10)
        self.assertEqual(whole["text"], "".join(e["choices"][0]["text"] for e in events))
        self.assertEqual([None] * (len(events) - 1) + ["length"],
                         [e["choices"][0]["finish_reason"] for e in events])
        self.assertEqual(1, len({e["id"] for e in events}))
        self.assertNotIn("usage", events[0])

    def test_stream_usage_comes_last(self):
        body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 5, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        events = self.daemon.stream("/v1/completions", body)
        self.assertEqual([], events[-1]["choices"])
        self.assertEqual(5, events[-1]["usage"]["completion_tokens"])
        self.assertTrue(all(e["usage"] is None for e in events[:-1]))

    def test_token_ids(self):
        answer = self.daemon.complete(PROMPT, max_tokens=10, return_token_ids=True)
        (choice,) = answer["choices"]
        ids = self.daemon.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        self.assertEqual(ids, answer["prompt_token_ids"])
        self.assertEqual(answer["usage"]["completion_tokens"], len(choice["token_ids"]))
        text = self.daemon.post("/detokenize", {"tokens": choice["token_ids"],
                                                "special": False}).json["prompt"]
        self.assertEqual(choice["text"], text)
        events = self.daemon.stream("/v1/completions",
                                    {"prompt": PROMPT, "temperature": 0, "max_tokens": 10,
                                     "return_token_ids": True})
        self.assertEqual(choice["token_ids"],
                         sum((e["choices"][0].get("token_ids", []) for e in events), []))
        self.assertEqual(ids, events[0]["prompt_token_ids"])

    def test_stop_strings_end_the_text_and_never_leak(self):
        text = self.daemon.complete(PROMPT, max_tokens=30, ignore_eos=True)["choices"][0]["text"]
        # Cut in the middle of words: the borders of tokens lie elsewhere.
        stop = text[len(text) // 2:len(text) // 2 + 5]
        wanted = text[:text.index(stop)]
        body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 30, "ignore_eos": True,
                "stop": ["\u0001never", stop]}
        choice = self.daemon.post("/v1/completions", body).json["choices"][0]
        self.assertEqual((wanted, "stop"), (choice["text"], choice["finish_reason"]))
        events = self.daemon.stream("/v1/completions", body)
        self.assertEqual(wanted, "".join(e["choices"][0]["text"] for e in events))
        self.assertEqual("stop", events[-1]["choices"][0]["finish_reason"])

    def test_logprobs(self):
        answer = self.daemon.complete(PROMPT, max_tokens=6, logprobs=3, ignore_eos=True)
        (choice,) = answer["choices"]
        logprobs = choice["logprobs"]
        self.assertEqual({"tokens", "token_logprobs", "top_logprobs", "text_offset"}, set(logprobs))
        self.assertEqual([6] * 4, [len(v) for v in logprobs.values()])
        self.assertEqual(choice["text"], "".join(logprobs["tokens"]))
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                     logprobs["top_logprobs"]):
            self.assertLessEqual(value, 0)
            self.assertEqual(max(top.values()), top[token])  # greedy takes the likeliest
            self.assertEqual(value, top[token])
            self.assertIn(len(top), (2, 3))
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            self.assertEqual(token, choice["text"][offset:offset + len(token)])

    def test_choices_and_seeds(self):
        body = {"prompt": "Once", "n": 4, "max_tokens": 12, "temperature": 1.0, "seed": 5,
                "ignore_eos": True}
        first = self.daemon.post("/v1/completions", body).json
        texts = [c["text"] for c in first["choices"]]
        self.assertEqual([0, 1, 2, 3], [c["index"] for c in first["choices"]])
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(48, first["usage"]["completion_tokens"])
        again = self.daemon.post("/v1/completions", body).json
        self.assertEqual(texts, [c["text"] for c in again["choices"]])
        other = self.daemon.post("/v1/completions", {**body, "seed": 6}).json
        self.assertNotEqual(texts, [c["text"] for c in other["choices"]])
        events = self.daemon.stream("/v1/completions", body)
        streamed = [""] * 4
        for event in events:
            (choice,) = event["choices"]
            streamed[choice["index"]] += choice["text"]
        self.assertEqual(texts, streamed)

    def test_the_best_of_several(self):
        body = {"prompt": "Once", "n": 5, "max_tokens": 9, "temperature": 1.0, "seed": 7}
        every = self.daemon.post("/v1/completions", {**body, "logprobs": 0}).json
        means = [statistics.fmean(choice["logprobs"]["token_logprobs"])
                 for choice in every["choices"]]
        texts = [choice["text"] for choice in every["choices"]]
        ranked = sorted(range(5), key=lambda i: -means[i])
        self.assertGreater(len(set(texts)), 2)
        for n in (1, 2, 4):
            best = self.daemon.post("/v1/completions", {**body, "n": n, "best_of": 5}).json
            self.assertEqual(list(range(n)), [c["index"] for c in best["choices"]])
            self.assertEqual([texts[i] for i in ranked[:n]],
                             [c["text"] for c in best["choices"]])
            self.assertIsNone(best["choices"][0]["logprobs"])
            self.assertEqual(every["usage"], best["usage"])  # all that was computed counts

    def test_breakers_of_several_tokens(self):
        def first(**fields):
            return self.daemon.complete("cat dog sun red map cat dog sun red map cat dog sun",
                                        temperature=0, max_tokens=1, **fields)["choices"][0]["text"]

        self.assertEqual(" red", first())
        self.assertNotEqual(" red", first(dry_multiplier=5, dry_sequence_breakers=[]))
        # No token contains it: its last one, which is the prompt's, breaks every repetition.
        self.assertEqual(" red", first(dry_multiplier=5, dry_sequence_breakers=["dog sun"]))
        self.assertNotEqual(" red", first(dry_multiplier=5, dry_sequence_breakers=["map cat"]))

    def test_an_echo_scores_the_prompt(self):
        def ask(prompt, **fields):
            return self.daemon.complete(prompt, temperature=0, logprobs=3, ignore_eos=True,
                                        return_token_ids=True, **fields)["choices"][0]

        prompt = "The capital of France is Paris, and the naïve 日本 café"
        answer = ask(prompt, max_tokens=40)
        ids = answer["prompt_token_ids"] + answer["token_ids"]
        for fields in ({}, {"max_tokens": 0}, {"max_tokens": 1, "n": 2}):
            echo = ask(ids, echo=True, **{"max_tokens": 5, **fields})
            logprobs = echo["logprobs"]
            self.assertTrue(echo["text"].startswith(prompt + answer["text"]))
            self.assertEqual([None, None], [logprobs["token_logprobs"][0],
                                            logprobs["top_logprobs"][0]])
            # What was said of a token when it was drawn is said of it as part of a prompt.
            for name in ("tokens", "token_logprobs", "top_logprobs"):
                self.assertEqual(answer["logprobs"][name],
                                 logprobs[name][len(ids) - 40:len(ids)])
            nr = fields.get("max_tokens", 5)
            self.assertEqual(len(ids) + nr, len(logprobs["tokens"]))
            self.assertEqual(nr, len(echo["token_ids"]))
        again = ask(prompt, echo=True, max_tokens=40)
        self.assertEqual(prompt + answer["text"], again["text"])

    def test_an_echo_without_logprobs_and_in_a_stream(self):
        body = {"prompt": "Once upon", "echo": True, "max_tokens": 6, "temperature": 0,
                "ignore_eos": True}
        whole = self.daemon.post("/v1/completions", body).json
        self.assertTrue(whole["choices"][0]["text"].startswith("Once upon"))
        self.assertEqual(6, whole["usage"]["completion_tokens"])
        for extra in ({}, {"logprobs": 1}):
            events = self.daemon.stream("/v1/completions", {**body, **extra})
            self.assertEqual(whole["choices"][0]["text"],
                             "".join(e["choices"][0]["text"] for e in events))
        alone = self.daemon.post("/v1/completions", {**body, "max_tokens": 0}).json
        self.assertEqual("Once upon", alone["choices"][0]["text"])
        self.assertEqual("length", alone["choices"][0]["finish_reason"])
        self.assertEqual(0, alone["usage"]["completion_tokens"])
        refused = self.daemon.post("/v1/completions", {**body, "echo": False, "max_tokens": 0})
        self.assertEqual(400, refused.status)

    def test_penalties_and_biases_change_the_answer(self):
        def ids(**fields):
            answer = self.daemon.complete("la la la la la", max_tokens=24, temperature=0,
                                          ignore_eos=True, return_token_ids=True, **fields)
            return answer["choices"][0]["token_ids"]

        plain = ids()
        self.assertLess(len(set(plain)), 24)
        self.assertEqual(24, len(set(ids(frequency_penalty=2, presence_penalty=2,
                                         repetition_penalty=10))))
        favourite = ids(logit_bias={"265": 100})
        self.assertEqual([265] * 24, favourite)
        self.assertNotIn(plain[0], ids(logit_bias={str(plain[0]): -100}))
        self.assertNotEqual(plain, ids(dry_multiplier=5))
        # Steps after the bias: these three are left, and top_k is not among the steps.
        several = self.daemon.complete("la", max_tokens=40, temperature=2, top_k=1,
                                       samplers=["temperature"], ignore_eos=True, seed=3,
                                       return_token_ids=True,
                                       logit_bias={"265": 100, "266": 100, "267": 100})
        several = set(several["choices"][0]["token_ids"])
        self.assertLessEqual(several, {265, 266, 267})
        self.assertGreater(len(several), 1)

    def test_same_text_alone_and_in_company(self):
        prompts = [f"Tell me about the number {i}." for i in range(12)] + ["word " * 700]
        alone = [self.daemon.complete(p, max_tokens=16, ignore_eos=True, return_token_ids=True,
                                      cache_prompt=False)["choices"][0]["token_ids"]
                 for p in prompts]
        together = run_together([
            lambda p=p: self.daemon.complete(p, max_tokens=16, ignore_eos=True,
                                             return_token_ids=True)["choices"][0]["token_ids"]
            for p in prompts])
        self.assertEqual(alone, together)

    def test_a_repeated_prompt_is_cached(self):
        prompt = "A long prompt that is sent twice. " * 30
        first = self.daemon.complete(prompt, max_tokens=4)
        again = self.daemon.complete(prompt, max_tokens=4)
        cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, again["usage"]["prompt_tokens"] // 2)
        self.assertLess(cached, again["usage"]["prompt_tokens"])
        self.assertEqual(first["choices"][0]["text"], again["choices"][0]["text"])

    def test_cached_prompts_are_not_used_when_told_so(self):
        prompt = "Another long prompt, sent twice. " * 30
        self.daemon.complete(prompt, max_tokens=1)
        again = self.daemon.complete(prompt, max_tokens=1, cache_prompt=False)
        self.assertEqual(0, again["usage"]["prompt_tokens_details"]["cached_tokens"])

    def test_stats_show_who_runs_what(self):
        connection, response = self.daemon.start_stream()
        (running,) = wait_for(lambda: self.daemon.stats()["running"], "running")
        self.assertEqual((os.getuid(), os.getpid()), (running["uid"], running["pid"]))
        self.assertIn(running["state"], ("prompt", "decoding"))
        self.assertGreater(running["prompt_tokens"], 0)
        kv = self.daemon.stats()["kv"]
        self.assertGreater(kv["used_bytes"] + kv["reserved_bytes"], 0)
        # A pool of its own has no name, and nobody to share with.
        self.assertEqual((None, False), (kv["pool"], kv["shares_prefixes"]))
        self.assertEqual(0, self.daemon.stats()["totals"]["prefix_shared_tokens"])
        connection.close()
        response.close()


class WithStartToken(DaemonTest):
    """A model whose prompts begin with a token that is no text."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(model=os.path.join(tap.ROOT, "tests/data/tiny_llama.gguf"))

    def test_offsets_are_places_in_the_text(self):
        (choice,) = self.daemon.post("/v1/completions", {
            "prompt": "abc d", "echo": True, "logprobs": 1, "max_tokens": 4, "ignore_eos": True,
            "temperature": 0}).json["choices"]
        logprobs, text = choice["logprobs"], choice["text"]
        self.assertEqual([0, 0], logprobs["text_offset"][:2])
        self.assertNotIn(logprobs["tokens"][0], text)
        places = list(zip(logprobs["tokens"], logprobs["text_offset"]))[1:]
        for token, offset in places:
            if "bytes:" not in token:
                self.assertEqual(token, text[offset:offset + len(token)])
        self.assertGreater(len(places), 4)


class Chat(DaemonTest):
    def test_shape(self):
        answer = self.daemon.chat("Say hello.", max_tokens=12)
        self.assertEqual("chat.completion", answer["object"])
        self.assertTrue(answer["id"].startswith("chatcmpl-"))
        message = answer["choices"][0]["message"]
        self.assertEqual("assistant", message["role"])
        self.assertTrue(message["content"])

    def test_an_answer_ends_by_itself(self):
        answer = self.daemon.chat("Answer with one word: what colour is the sky?")
        self.assertEqual("stop", answer["choices"][0]["finish_reason"])
        self.assertNotIn("<|im_end|>", answer["choices"][0]["message"]["content"])

    def test_stream_is_the_same_text(self):
        (choice,) = self.daemon.chat("Count to five.", max_tokens=24)["choices"]
        events = self.daemon.stream("/v1/chat/completions",
                                    {"messages": [{"role": "user", "content": "Count to five."}],
                                     "temperature": 0, "max_tokens": 24})
        deltas = [e["choices"][0]["delta"] for e in events]
        self.assertEqual("assistant", deltas[0]["role"])
        self.assertTrue(all("role" not in d for d in deltas[1:]))
        self.assertEqual(choice["message"]["content"],
                         "".join(d.get("content", "") for d in deltas))
        self.assertEqual("chat.completion.chunk", events[0]["object"])

    def test_logprob_bytes_are_exact(self):
        answer = self.daemon.chat("Repeat: 🙂🙃🦜", max_tokens=20, logprobs=True, top_logprobs=2)
        (choice,) = answer["choices"]
        entries = choice["logprobs"]["content"]
        self.assertEqual(answer["usage"]["completion_tokens"], len(entries))
        if choice["finish_reason"] == "stop":
            entries = entries[:-1]  # the end token
        joined = b"".join(bytes(e["bytes"]) for e in entries)
        self.assertEqual(choice["message"]["content"], joined.decode("utf-8", "replace"))
        for entry in entries:
            self.assertEqual(bytes(entry["bytes"]).decode("utf-8", "replace"), entry["token"])
            self.assertEqual(2, len(entry["top_logprobs"]))
            self.assertGreaterEqual(entry["top_logprobs"][0]["logprob"],
                                    entry["top_logprobs"][1]["logprob"])
            self.assertEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"])

    def test_max_completion_tokens(self):
        answer = self.daemon.chat("Tell a story.", max_completion_tokens=4, ignore_eos=True)
        self.assertEqual(4, answer["usage"]["completion_tokens"])


class Strict(DaemonTest):
    options = ("--strict",)

    def test_unknown_fields_are_named(self):
        reply = self.daemon.post("/v1/completions", {"prompt": "a", "frobnicate": 1})
        self.assertEqual(400, reply.status)
        self.assertEqual("frobnicate", reply.error["param"])
        self.daemon.complete("a", max_tokens=1)

    def test_unknown_fields_of_templates_and_ollama_are_named(self):
        said = [{"role": "user", "content": "a"}]
        few = {"num_predict": 1}
        model = self.daemon.get("/v1/models").json["data"][0]["id"]
        generate = {"model": model, "prompt": "a", "raw": True, "options": few, "keep_alive": "1m"}
        chat = {"model": model, "messages": said, "options": {**few, "num_ctx": 512, "seed": 1}}
        for path, body in [("/apply-template", {"messages": said, "model": model,
                                                "chat_template_kwargs": {"frobnicate": 1}}),
                           ("/api/generate", generate), ("/api/chat", chat)]:
            self.assertEqual(200, self.daemon.post(path, body).status, path)
            bad = [{**body, "frobnicate": 1}]
            if "options" in body:
                bad.append({**body, "options": {**few, "frobnicate": 1}})
            for one in bad:
                reply = self.daemon.post(path, one)
                self.assertEqual(400, reply.status, one)
                self.assertIn("unknown field frobnicate", reply.body.decode())
        # Each endpoint knows its own fields.
        self.assertEqual(400, self.daemon.post("/api/chat", {**chat, "prompt": "a"}).status)
        self.assertEqual(400, self.daemon.post("/api/generate", {**generate, "tools": []}).status)


if __name__ == "__main__":
    tap.main()
