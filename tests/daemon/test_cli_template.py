#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn template: requests to prompts, with a template or a model file alone. No daemon is asked."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import CliTest, tap, tarn  # noqa: E402
from gguf_kit import gguf_field, gguf_string, tiny_vocabulary  # noqa: E402

STRING = 8
CHAT = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
HI = {"messages": [{"role": "user", "content": "hi"}]}


class Template(CliTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="tarn-template-")
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, data, name="file"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return path

    def model(self, **templates):
        """A file without tensors; names beside `chat_template` are its further templates."""
        more = [gguf_field("tokenizer.chat_template" + ("." + name if name != "plain" else ""),
                           STRING, gguf_string(text)) for name, text in templates.items()]
        return self.file(tiny_vocabulary(more), "model.gguf")

    def run_on(self, request, *options, **changes):
        if not isinstance(request, bytes):
            request = json.dumps(request).encode()
        return tarn("template", *options, stdin=request, **changes)

    def test_the_prompt_is_exact(self):
        text = "\u0000\x1b[1m é🦊\r\n {{ x }} \n"
        request = {"messages": [{"role": "user", "content": text}], "bos_token": "<s>"}
        result = self.run_on(request, "--template", self.file(CHAT + "\n\n\n"))
        self.ends(result, 0, "")
        self.assertEqual(result.stdout, ("<s><user>" + text + "\n").encode())

    def test_a_model_file_brings_template_and_tokens(self):
        model = self.model(plain=CHAT)
        self.ends(self.run_on(HI, "--model", model), 0, "", "<|end|><user>hi")
        self.ends(self.run_on(HI, TARN_MODEL=model), 0, "", "<|end|><user>hi")
        given = {**HI, "bos_token": "mine"}
        self.ends(self.run_on(given, "--model", model), 0, "", "<|end|><user>hi")

    def test_a_tokenizer_that_is_not_supported_is_no_hindrance(self):
        data = tiny_vocabulary([gguf_field("tokenizer.chat_template", STRING, gguf_string(CHAT))])
        path = self.file(data.replace(b"gpt2", b"zzzz"), "other.gguf")
        self.ends(tarn("tokenize", "--model", path, stdin=b"x"), 3, "zzzz")
        self.ends(self.run_on(HI, "--model", path), 0, "", "<|end|><user>hi")

    def test_requests_with_tools_get_the_template_for_tools(self):
        tools = {"tools": [{"type": "function", "function": {"name": "f"}}]}
        model = self.model(tool_use="tools: {{ tools | length }}", plain="plain")
        self.ends(self.run_on({**HI, **tools}, "--model", model), 0, "", "tools: 1")
        self.ends(self.run_on(HI, "--model", model), 0, "", "plain")
        self.ends(self.run_on({**HI, "tools": []}, "--model", model), 0, "", "plain")
        alone = self.model(plain="plain")
        self.ends(self.run_on({**HI, **tools}, "--model", alone), 0, "", "plain")

    def test_variables(self):
        template = self.file("{{ add_generation_prompt }} {{ enable_thinking }} {{ x }}")
        self.ends(self.run_on({**HI, "x": 1.5, "chat_template_kwargs": {"enable_thinking": False}},
                              "--template", template), 0, "", "True False 1.5")
        self.ends(self.run_on({**HI, "add_generation_prompt": False}, "--template", template),
                  0, "", "False  ")

    def test_arguments_are_text_in_the_request_and_an_object_to_the_template(self):
        call = {"id": "1", "type": "function",
                "function": {"name": "f", "arguments": "{\"a\":1}"}}
        request = {"messages": [{"role": "user", "content": "q"},
                                {"role": "assistant", "content": None, "tool_calls": [call]}]}
        template = self.file("{% for m in messages %}{% for c in m.tool_calls %}"
                             "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}")
        self.ends(self.run_on(request, "--template", template), 0, "", "{\"a\": 1}")

    def test_an_unsupported_construct_is_named_with_its_line(self):
        template = self.file("a\n{% include 'x' %}")
        self.ends(self.run_on(HI, "--template", template), 1, "line 2: unknown tag 'include'", "")
        model = self.model(plain="a\n\n{% import 'x' as y %}")
        self.ends(self.run_on(HI, "--model", model), 1, "line 3: unknown tag 'import'", "")

    def test_what_the_template_raises_is_told(self):
        template = self.file("x\n{{ raise_exception('roles must alternate') }}")
        self.ends(self.run_on(HI, "--template", template), 1, "line 2: roles must alternate", "")

    def test_hostile_templates_end(self):
        for source, said in (
                ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"),
                ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                 "steps"),
                ("{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "limit")):
            self.ends(self.run_on(HI, "--template", self.file(source)), 1, said, "")

    def test_wrong_requests(self):
        template = self.file(CHAT)
        for request, said in (
                (b"", "standard input"),
                (b"[]", "object"),
                (b"{\"messages\": [{]}", "standard input"),
                (b"{\"messages\": [{\"role\": \"\xff\"}]}", "standard input"),
                (b"{\"messages\": [{\"role\": \"\\ud800\"}]}", "standard input"),
                ({}, "messages is missing"),
                ({"messages": []}, "messages is empty"),
                ({"messages": [{"role": 5}]}, "messages[0].role must be a string"),
                ({**HI, "tools": [{}]}, "tools[0].type must be \"function\"")):
            self.ends(self.run_on(request, "--template", template), 1, said, "")

    def test_wrong_usage(self):
        self.ends(tarn("template", "x"), 2, "reads standard input")
        self.ends(tarn("template", "--template", "a", "--model", "b"), 2, "one of them")
        self.ends(tarn("template", "--template", ""), 2, "path of a file")
        self.ends(tarn("template", "--template"), 2, "--template needs a value")
        self.ends(tarn("template", "--special"), 2, "unknown option")
        self.ends(tarn("tokenize", "--template", "x"), 2, "unknown option")

    def test_files_that_are_none(self):
        self.ends(self.run_on(HI, "--template", "/nowhere"), 3, "No such file")
        self.ends(self.run_on(HI, "--template", self.folder), 3, "Is a directory")
        self.ends(self.run_on(HI, "--model", "/bin/sh"), 3, "not a GGUF file")
        self.ends(self.run_on(HI, "--model", self.file(tiny_vocabulary())), 3,
                  "has no chat template")
        self.ends(self.run_on(HI, "--template", self.file(b"x" * (5 << 20))), 1,
                  "template of 4194305 bytes is over 4194304")

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "template",
                                     "--template", self.file(CHAT)],
                                    input=json.dumps(HI).encode(), stdout=full, check=False,
                                    stderr=subprocess.PIPE)
        self.ends(result, 1, "No space left on device")


if __name__ == "__main__":
    tap.main()
