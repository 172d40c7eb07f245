#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""POST /apply-template: the prompt of a real model, the same as tarn template's and the one that
chat tokenises; and what it refuses."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import TARN, tarn  # noqa: E402
from kit import MODEL, Daemon, need_model, tap  # noqa: E402

SAID = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "H\u00e9 <b>\n"}]


class ApplyTemplate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need_model()
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)

    def prompt(self, **request):
        reply = self.daemon.post("/apply-template", request)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(list(reply.json), ["prompt"])
        return reply.json["prompt"]

    def test_the_prompt_is_exact(self):
        self.assertEqual(self.prompt(messages=SAID),
                         "<|im_start|>system\nBe brief.<|im_end|>\n"
                         "<|im_start|>user\nH\u00e9 <b>\n<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(self.prompt(messages=SAID, add_generation_prompt=False),
                         "<|im_start|>system\nBe brief.<|im_end|>\n"
                         "<|im_start|>user\nH\u00e9 <b>\n<|im_end|>\n")

    def test_what_is_not_built_is_refused_by_name(self):
        for path in ("/apply-template", "/v1/chat/completions", "/tokenize"):
            for name, value, code in [("continue_final_message", True, "unsupported"),
                                      ("continue_final_message", 1, "invalid_type"),
                                      ("chat_template", "{{ x }}", "unsupported")]:
                reply = self.daemon.post(path, {"messages": SAID, name: value})
                self.assertEqual((400, name, code),
                                 (reply.status, reply.error["param"], reply.error["code"]), path)
                inner = {"messages": SAID, "chat_template_kwargs": {name: value}}
                self.assertEqual(400, self.daemon.post(path, inner).status)
            reply = self.daemon.post(path, {"messages": SAID, "max_tokens": 1,
                                            "continue_final_message": False,
                                            "chat_template": None})
            self.assertEqual(200, reply.status, reply.body)

    def test_it_is_what_chat_tokenises(self):
        text = self.prompt(messages=SAID)
        by_text = self.daemon.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        by_chat = self.daemon.post("/tokenize", {"messages": SAID})
        self.assertEqual(by_text.json["tokens"], by_chat.json["tokens"])

    def test_it_is_what_the_command_line_prints(self):
        if not os.path.exists(TARN):
            self.skipTest("tarn is not built")
        result = tarn("template", "--model", MODEL, stdin=json.dumps({"messages": SAID}).encode())
        self.assertEqual(result.stdout.decode(), self.prompt(messages=SAID))

    def refused(self, request, status, param, said):
        reply = self.daemon.post("/apply-template", request)
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(reply.error["param"], param)
        self.assertIn(said, reply.error["message"])

    def test_bad_input_names_the_field(self):
        self.refused({}, 400, "messages", "missing")
        self.refused({"messages": "x"}, 400, "messages", "must be an array")
        self.refused({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400,
                     "messages", "messages[0].content[0]")
        self.refused({"messages": SAID, "tools": [{"type": "function"}]}, 400, "tools",
                     "tools[0].function")
        self.refused({"messages": SAID, "chat_template_kwargs": {"tools": []}}, 400,
                     "chat_template_kwargs", "field of its own")
        self.refused({"messages": SAID, "model": "other"}, 404, "model", "other")

    def test_only_post(self):
        reply = self.daemon.get("/apply-template")
        self.assertEqual(reply.status, 405)
        self.assertEqual(reply.headers["Allow"], "POST")


if __name__ == "__main__":
    tap.main()
