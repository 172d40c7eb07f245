#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ollama's API over the Unix socket: its own client where it is installed, and the bare bodies."""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import DaemonTest, tap  # noqa: E402

try:
    import httpx
    import ollama
except ImportError as error:
    httpx = ollama = None
    missing = error

MESSAGES = [{"role": "user", "content": "What is 2+2?"}]


class Client(DaemonTest):
    @classmethod
    def setUpClass(cls):
        if ollama is None:
            raise unittest.SkipTest(f"{missing}; make setup installs it")
        super().setUpClass()
        cls.client = ollama.Client("http://tarn",
                                   transport=httpx.HTTPTransport(uds=cls.daemon.socket))
        (model,) = cls.client.list().models
        cls.model = model.model

    def test_what_is_there(self):
        (model,) = self.client.list().models
        self.assertEqual(("gguf", "llama", "134.5M", "Q4_1"),
                         (model.details.format, model.details.family,
                          model.details.parameter_size, model.details.quantization_level))
        self.assertGreater(model.modified_at.year, 2000)
        (running,) = self.client.ps().models
        self.assertEqual(self.model, running.model)

    def test_chat(self):
        options = {"temperature": 0, "num_predict": 200}
        whole = self.client.chat(self.model, MESSAGES, options=options)
        self.assertIn("4", whole.message.content)
        self.assertEqual(("assistant", True, "stop"),
                         (whole.message.role, whole.done, whole.done_reason))
        self.assertGreater(whole.prompt_eval_count, 10)
        self.assertGreater(whole.eval_count, 1)
        self.assertGreaterEqual(whole.total_duration,
                                whole.prompt_eval_duration + whole.eval_duration)
        parts = list(self.client.chat(self.model, MESSAGES, options=options, stream=True))
        self.assertEqual(whole.message.content, "".join(p.message.content for p in parts))
        self.assertEqual([False] * (len(parts) - 1) + [True], [p.done for p in parts])
        self.assertEqual((whole.eval_count, "stop"), (parts[-1].eval_count, parts[-1].done_reason))

    def test_generate(self):
        options = {"temperature": 0, "num_predict": 8}
        answer = self.client.generate(self.model, MESSAGES[0]["content"], options=options)
        self.assertEqual(self.client.chat(self.model, MESSAGES, options=options).message.content,
                         answer.response)
        self.assertEqual(("length", 8), (answer.done_reason, answer.eval_count))
        raw = self.client.generate(self.model, "Once upon a", raw=True, options=options)
        self.assertEqual(self.daemon.complete("Once upon a", max_tokens=8)["choices"][0]["text"],
                         raw.response)
        loaded = self.client.generate(self.model, "")
        self.assertEqual(("", "load"), (loaded.response, loaded.done_reason))

    def test_errors_are_theirs(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.chat("gpt-9", MESSAGES)
        self.assertEqual(404, caught.exception.status_code)
        self.assertRegex(caught.exception.error, '^the model "gpt-9" is not here')


class Bodies(DaemonTest):
    def setUp(self):
        super().setUp()
        self.model = self.daemon.get("/v1/models").json["data"][0]["id"]

    def post(self, path, **fields):
        return self.daemon.post(path, {"model": self.model, **fields})

    def test_streams_are_lines_of_json(self):
        reply = self.post("/api/generate", prompt="Hello", options={"num_predict": 5})
        self.assertEqual("application/x-ndjson", reply.headers["Content-Type"])
        lines = [json.loads(line) for line in reply.body.splitlines()]
        self.assertEqual([False] * (len(lines) - 1) + [True], [line["done"] for line in lines])
        self.assertEqual(("", 5), (lines[-1]["response"], lines[-1]["eval_count"]))
        for line in lines:
            self.assertTrue(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z",
                                         line["created_at"]))
            self.assertEqual(self.model, line["model"])

    def test_options_reach_the_sampler(self):
        def text(**options):
            return self.post("/api/generate", prompt="la la la", raw=True, stream=False,
                             options={"num_predict": 12, "seed": 1, **options}).json["response"]

        cold = text(temperature=0)
        self.assertEqual(cold, text(temperature=2, top_k=1))
        self.assertNotEqual(cold, text(temperature=0, repeat_penalty=10))
        self.assertEqual(cold, text(temperature=0, num_ctx=512, num_gpu=3))
        self.assertNotIn("la", text(temperature=0, stop=["la"]))
        self.assertEqual(text(temperature=1), text(temperature=1))
        # Ollama's own defaults: 0.8, 40, 0.9.
        self.assertEqual(text(), text(temperature=0.8, top_k=40, top_p=0.9))

    def test_system_and_roles(self):
        answer = self.post("/api/generate", prompt="Hi", system="Be brief.", stream=False,
                           options={"num_predict": 1}).json
        chat = self.post("/api/chat", stream=False, options={"num_predict": 1},
                         messages=[{"role": "system", "content": "Be brief."},
                                   {"role": "user", "content": "Hi"}]).json
        self.assertEqual(chat["prompt_eval_count"], answer["prompt_eval_count"])
        self.assertLess(self.post("/api/generate", prompt="Hi", raw=True, stream=False,
                                  options={"num_predict": 1}).json["prompt_eval_count"], 3)

    def test_what_is_refused(self):
        picture = [{"role": "user", "content": "a", "images": ["aGk="]}]
        for path, fields, status, part in (
                ("chat", {"messages": picture}, 400, "messages[0].images"),
                ("chat", {"messages": 5}, 400, "messages must be an array"),
                ("generate", {"prompt": "a", "images": ["x"]}, 400, "images is not supported"),
                ("generate", {"prompt": "a", "context": [1, 2]}, 400, "context is not supported"),
                ("generate", {"prompt": "a", "template": "x"}, 400, "template is not supported"),
                ("generate", {"prompt": "a", "suffix": "x"}, 400, "suffix is not supported"),
                ("generate", {"prompt": 7}, 400, "prompt must be a string"),
                ("generate", {"prompt": "a", "options": []}, 400, "options must be an object"),
                ("generate", {"prompt": "a", "options": {"num_predict": -3}}, 400, "num_predict"),
                ("generate", {"prompt": "a", "options": {"temperature": "x"}}, 400, "temperature"),
                ("generate", {"prompt": "a", "stream": 1}, 400, "stream must be a boolean"),
                ("generate", {"prompt": "a", "format": "xml"}, 400, "format must be"),
                ("generate", {"prompt": "a", "model": None}, 400, "model is missing"),
                ("generate", {"prompt": "a", "model": "no:latest"}, 404, '"no" is not here')):
            reply = self.post("/api/" + path, **fields)
            self.assertEqual(status, reply.status, (path, fields))
            self.assertEqual({"error"}, set(reply.json))
            self.assertIn(part, reply.json["error"])

    def test_every_error_below_api_is_ollamas(self):
        for method, path, status in [("POST", "/api/show", 404), ("GET", "/api/nothing", 404),
                                     ("GET", "/api/chat", 405), ("POST", "/api/tags", 405)]:
            reply = self.daemon.request(method, path, {"model": "x"} if method == "POST" else None)
            self.assertEqual((status, str), (reply.status, type(reply.json["error"])), path)
            self.assertEqual(status == 405, "Allow" in reply.headers)
        self.assertEqual(dict, type(self.daemon.get("/apx").json["error"]))

    def test_names_may_have_a_tag(self):
        reply = self.post("/api/generate", prompt="a", model=self.model + ":latest", stream=False,
                          options={"num_predict": 1})
        self.assertEqual(200, reply.status)


if __name__ == "__main__":
    tap.main()
