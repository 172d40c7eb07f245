#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tool calls over the socket: a model whose answer is known ahead, asked by the official client of
OpenAI's API and by hand."""

import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gguf_kit import scripted_model  # noqa: E402
from kit import Daemon, DaemonTest, tap  # noqa: E402

try:
    import httpx2
    import openai
except ImportError as error:
    httpx2 = openai = None
    missing = error

TEMPLATE = """{% if tools %}{% for t in tools %}{{ t | tojson }}
{% endfor %}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}\
{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{{ "\\n" }}{% endfor %}"""
PIECES = ["Let me see.", "\n\n<tool_", "call>", "\n{\"name\": \"get_", "weather\", \"argu",
          "ments\": {\"city\"", ": \"Rome\"", "}}\n</", "tool_call>\n",
          "<tool_call>\n{\"name\": \"now\"", ", \"arguments\": {}", "}\n</tool_", "call> "]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
NOW = {"type": "function", "function": {"name": "now"}}
ASKED = [{"role": "user", "content": "Is it warm in Rome?"}]


class Scripted(DaemonTest):
    pieces, template = PIECES, TEMPLATE

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="tarn-tools-")
        path = os.path.join(cls.dir, "scripted.gguf")
        with open(path, "wb") as model:
            model.write(scripted_model(cls.pieces, cls.template))
        cls.daemon = Daemon(model=path)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.dir)

    def ask(self, status=200, **fields):
        reply = self.daemon.post("/v1/chat/completions", {
            "messages": ASKED, "temperature": 0, "max_tokens": 50, **fields})
        self.assertEqual(status, reply.status, reply.body)
        return reply


class ByHand(Scripted):
    def test_without_tools_the_text_stays(self):
        (choice,) = self.ask().json["choices"]
        self.assertEqual("".join(PIECES), choice["message"]["content"])
        self.assertEqual("stop", choice["finish_reason"])
        (choice,) = self.ask(tools=[WEATHER], tool_choice="none").json["choices"]
        self.assertEqual("".join(PIECES), choice["message"]["content"])

    def test_calls_of_each_choice(self):
        answer = self.ask(tools=[WEATHER, NOW], n=2, logprobs=True).json
        self.assertEqual(2 * len(PIECES) + 2, answer["usage"]["completion_tokens"])
        ids = set()
        for choice in answer["choices"]:
            calls = choice["message"]["tool_calls"]
            self.assertEqual([{"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"},
                              {"name": "now", "arguments": "{}"}],
                             [call["function"] for call in calls])
            self.assertEqual("Let me see.", choice["message"]["content"])
            self.assertEqual("tool_calls", choice["finish_reason"])
            self.assertEqual(len(PIECES) + 1, len(choice["logprobs"]["content"]))
            ids.update(call["id"] for call in calls)
        self.assertEqual(4, len(ids))
        (choice,) = self.ask(tools=[WEATHER, NOW], parallel_tool_calls=False).json["choices"]
        self.assertEqual(1, len(choice["message"]["tool_calls"]))


CITY = {"type": "function", "function": {
    "name": "get_weather", "strict": True,
    "parameters": {"type": "object", "required": ["city"], "additionalProperties": False,
                   "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}},
                   "$defs": {"city": {"enum": ["Rome", "Oslo"]}}}}}
NOTHING = {"type": "function", "function": {"name": "now", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": False}}}


class MustCome(Scripted):
    """The model would answer with something else; the grammar leaves it no way."""
    pieces = ["No", " tools."]

    def calls(self, **fields):
        (choice,) = self.ask(tools=[CITY, NOTHING], temperature=1.5, max_tokens=400,
                             **fields).json["choices"]
        if choice["finish_reason"] == "length":
            return []
        self.assertEqual("tool_calls", choice["finish_reason"])
        self.assertFalse(choice["message"]["content"])
        for call in choice["message"]["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "now":
                self.assertEqual({}, arguments)
            else:
                self.assertIn(arguments["city"], ["Rome", "Oslo"])
                self.assertLessEqual(set(arguments), {"city", "days"})
                self.assertIsInstance(arguments.get("days", 0), int)
        return [call["function"]["name"] for call in choice["message"]["tool_calls"]]

    def test_some_call_comes(self):
        seen = [self.calls(tool_choice="required", seed=seed) for seed in range(12)]
        self.assertEqual({"get_weather", "now"}, {name for names in seen for name in names})
        ones = [self.calls(tool_choice="required", seed=seed, parallel_tool_calls=False)
                for seed in range(6)]
        self.assertEqual({1}, {len(names) for names in ones if names})

    def test_the_named_one_comes(self):
        for name in ["get_weather", "now"]:
            named = {"type": "function", "function": {"name": name}}
            seen = [self.calls(tool_choice=named, seed=seed, parallel_tool_calls=False)
                    for seed in range(4)]
            self.assertIn([name], seen)
            self.assertLessEqual({one for names in seen for one in names}, {name})

    def test_schemas_that_cannot_be_followed_are_refused(self):
        tool = {"type": "function", "function": {
            "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "tree"}}}}}
        reply = self.ask(400, tools=[NOW, tool], tool_choice="required")
        self.assertEqual("tools", reply.error["param"])
        self.assertIn("#/tools/1/parameters/properties/a", reply.error["message"])


class MustComeLlama(MustCome):
    template = TEMPLATE.replace("<tool_call>", "<|python_tag|>").replace("</tool_call>", "")


class MustComeMistral(MustCome):
    template = TEMPLATE.replace("<tool_call>", "[TOOL_CALLS]").replace("</tool_call>", "")


class MustComeFunction(MustCome):
    template = TEMPLATE.replace("<tool_call>", "<function=").replace("</tool_call>", "")


class MustComeJson(MustCome):
    template = TEMPLATE.replace("<tool_call>", "").replace("</tool_call>", "")


class NoTools(Scripted):
    pieces, template = ["Yes."], "{% for m in messages %}{{ m.content }}\n{% endfor %}"

    def test_a_template_without_tools_says_so(self):
        reply = self.ask(400, tools=[NOW])
        self.assertEqual("tools", reply.error["param"])
        self.assertIn("does not know tools", reply.error["message"])
        (choice,) = self.ask(tools=[NOW], tool_choice="none").json["choices"]
        self.assertEqual("Yes.", choice["message"]["content"])


class OpenAi(Scripted):
    @classmethod
    def setUpClass(cls):
        if openai is None:
            raise unittest.SkipTest(f"{missing}; make setup installs it")
        super().setUpClass()
        transport = httpx2.HTTPTransport(uds=cls.daemon.socket)
        cls.client = openai.OpenAI(base_url="http://tarn/v1", api_key="none", max_retries=0,
                                   http_client=openai.DefaultHttpxClient(transport=transport))

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def create(self, messages, **fields):
        return self.client.chat.completions.create(
            model="scripted", messages=messages, tools=[WEATHER, NOW], temperature=0, max_tokens=50,
            **fields)

    def test_a_call_and_its_result(self):
        message = self.create(ASKED).choices[0].message
        call, other = message.tool_calls
        self.assertEqual({"city": "Rome"}, json.loads(call.function.arguments))
        results = [{"role": "tool", "tool_call_id": one.id, "content": "21"}
                   for one in (call, other)]
        again = self.create([*ASKED, message, *results])
        self.assertEqual("tool_calls", again.choices[0].finish_reason)
        self.assertGreater(again.usage.prompt_tokens, 100)

    def test_a_streamed_call(self):
        text, calls, finish = "", {}, None
        for chunk in self.create(ASKED, stream=True):
            (choice,) = chunk.choices
            self.assertIsNone(finish)
            text += choice.delta.content or ""
            finish = choice.finish_reason
            for piece in choice.delta.tool_calls or []:
                if piece.id:
                    self.assertNotIn(piece.index, calls)
                    self.assertEqual("", piece.function.arguments)
                    calls[piece.index] = [piece.function.name, ""]
                else:
                    calls[piece.index][1] += piece.function.arguments
        self.assertEqual("Let me see.", text)
        self.assertEqual({0: ["get_weather", "{\"city\": \"Rome\"}"], 1: ["now", "{}"]}, calls)
        self.assertEqual("tool_calls", finish)

    def test_the_clients_own_stream_puts_it_together(self):
        with self.client.chat.completions.stream(
                model="scripted", messages=ASKED, tools=[WEATHER, NOW], temperature=0,
                max_tokens=50) as stream:
            message = stream.get_final_completion().choices[0].message
        self.assertEqual(["get_weather", "now"], [c.function.name for c in message.tool_calls])
        self.assertEqual("{\"city\": \"Rome\"}", message.tool_calls[0].function.arguments)


if __name__ == "__main__":
    tap.main()
