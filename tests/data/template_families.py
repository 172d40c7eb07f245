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
]
