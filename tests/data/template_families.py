# SPDX-License-Identifier: Apache-2.0
"""Chat templates in the manner of public model families, written for these
tests (template_*.jinja), and requests to render with them. Used by make_template_golden.py."""

import os


def _read(name):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, f"template_{name}.jinja"),
              encoding="utf-8") as f:
        return f.read()


FAMILIES = {
    "llama-3 style": _read("llama3"),
    "chatml-tools style": _read("chatml_tools"),
    "gemma-3 style": _read("gemma3"),
    "macro style": _read("macros"),
    "type definitions on channels": _read("typescript"),
    "calls in tags": _read("xml_calls"),
    "alternating turns": _read("alternating"),
    "documents and plans": _read("documents"),
    "flags in a namespace": _read("flags"),
    "training and pictures": _read("training"),
}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place, in °C or °F",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "e.g. \"Köln\" <city>"},
                "unit": {"type": "string", "enum": ["c", "f"]},
                "days": {"type": "array", "items": {"type": "integer"}},
                "limit": {"type": "number", "default": 0.1},
            },
            "required": ["place"],
        },
    },
}
NOARGS = {"type": "function", "function": {"name": "now", "parameters": {}}}


def request(messages, generate=True, **more):
    r = {"messages": messages, "add_generation_prompt": generate,
         "bos_token": "<s>", "eos_token": "</s>"}
    r.update(more)
    return r


def say(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"id": "c1", "type": "function",
        "function": {"name": "get_weather",
                     "arguments": {"place": "São Paulo", "days": [1, 2],
                                   "limit": 1e-07, "deep": {"a": None, "b": True}}}}
CALL2 = {"id": "c2", "type": "function",
         "function": {"name": "now", "arguments": {}}}

SCHEMA = {
    "type": "function",
    "function": {
        "name": "plan",
        "description": "Plans\nthings",
        "parameters": {
            "type": "object",
            "properties": {
                "steps": {"type": "array", "description": " one\nby one ",
                          "items": {"type": "object",
                                    "properties": {"a": {"enum": ["x", "y"]}},
                                    "required": ["a"]}},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "maybe": {"type": ["string", "null"], "default": None},
                "count": {"type": "integer", "default": 3, "nullable": True},
                "name": {"type": "string", "default": "n", "minLength": 1},
                "pairs": {"type": "array", "items": {"oneOf": [{"type": "number"},
                                                               {"type": "boolean"}]}},
                "free": {"type": "array"},
            },
            "required": ["steps", "name"],
            "additionalProperties": False,
        },
        "return": {"type": "string"},
        "strict": True,
    },
}
NINE = {"id": "abcdefghi", "type": "function",
        "function": {"name": "plan",
                     "arguments": {"steps": [{"a": "x"}], "name": "<n>", "skip": None,
                                   "count": 1e22, "ok": False}}}
TEXT = {"id": "abcdefghi", "type": "function",
        "function": {"name": "plan", "arguments": "{\"name\":\"q\"}"}}

REQUESTS = [
    request([say("user", "Hello")]),
    request([say("user", "Hello")], False),
    request([say("system", "  Be brief.\n"), say("user", "Hi"),
             say("assistant", "Hello!"), say("user", " And now? ")]),
    request([say("user", "日本語 🦊 e\u0301 \u202eRTL\u202c \u00a0x\u3000"),
             say("assistant", "naïve — “quotes” ß"), say("user", "\t\n")]),
    request([say("system", "{{ messages }} {% for x in y %} {# no #}"),
             say("user", "{% raw %}{{ 7 * 7 }}{% endraw %} <|im_end|> \\n")]),
    request([say("user", "Weather?")], tools=[WEATHER, NOARGS]),
    request([say("system", "S"), say("user", "Weather?"),
             say("assistant", "", tool_calls=[CALL]),
             say("tool", "{\"t\": 21.5}", tool_call_id="c1"),
             say("assistant", "21.5 °C"), say("user", "Thanks")],
            tools=[WEATHER]),
    request([say("user", "Both"),
             say("assistant", None, tool_calls=[CALL, CALL2]),
             say("tool", "a"), say("tool", "b")], tools=[WEATHER, NOARGS]),
    request([say("user", "Think"),
             say("assistant", "<think>\nhm\n</think>\n\nDone"),
             say("user", "Again"),
             say("assistant", "Yes", reasoning_content="because")],
            False, enable_thinking=False),
    request([say("user", "x")], enable_thinking=False, date_string="1 Jan 2020"),
    request([say("user", [{"type": "text", "text": " look "},
                          {"type": "image"}])]),
    request([say("assistant", "I start"), say("user", "no")]),
    request([], True),
    request([say("user", "tail\nspace \n\n")] * 3),
    request([say("system", "only system")], tools=[]),
    request([say("user", "w"), say("assistant", "", tool_calls=[CALL2]),
             say("tool", {"k": [1, 2.5, "é"]})], tools=[NOARGS],
            tools_in_user_message=False),
    request([say("developer", "Dev"), say("user", "go")], tools=[SCHEMA, NOARGS],
            builtin_tools=["python", "browser"], reasoning_effort="high"),
    request([say("user", "a"), say("assistant", "", tool_calls=[NINE],
                                   reasoning_content="why"),
             say("tool", {"content": "r"}, tool_call_id="abcdefghi"),
             say("assistant", " b "), say("user", "c")], tools=[SCHEMA]),
    request([say("system", "S"), say("user", "q"),
             say("assistant", "a", tool_plan="look first",
                 tool_calls=[NINE, {**NINE, "id": "jklmnopqr"}]),
             say("tool", ["x", {"y": 1}], tool_call_id="jklmnopqr"),
             say("tool", "z", tool_call_id="abcdefghi", is_error=True)],
            documents=[{"title": "T \u00e9", "text": "body\nof it", "n": 1.50}],
            tools=[SCHEMA]),
    request([say("user", "q"), say("assistant", "", tool_calls=[TEXT]),
             say("tool", "r", tool_call_id="abcdefghi"), say("assistant", "d")],
            False),
    request([say("user", [{"type": "text", "text": "a"}, {"type": "image"},
                          {"type": "image_url", "image_url": {"url": "u"}}]),
             say("assistant", [{"type": "text", "text": "b"}]),
             say("user", [{"type": "video"}])],
            add_vision_id=True, options={"style": "brief"}),
    request([say("user", "/nothink"), say("ignored", "x"),
             say("assistant", "<think>\none\n</think>\n\n two ")], False,
            enable_thinking=False, tools=None, documents=None),
    {"messages": [say("user", "bare")]},
]
