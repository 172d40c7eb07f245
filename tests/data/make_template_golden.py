#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/template_golden.json and template_families.json: templates,
contexts and what the public library jinja2 makes of them under the settings of
Hugging Face's chat templates. Run by hand, in an environment with `jinja2` and
`gguf`:

    make_template_golden.py SMOLLM2.gguf GEMMA3.gguf

Cases whose rendering fails in jinja2 are stored with the kind of the error; a
message given to raise_exception() is stored too.
"""
import json
import os
import sys
from datetime import datetime, timezone

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_cases import CASES, CONTEXT
from template_families import FAMILIES, REQUESTS

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime(2026, 3, 7, 15, 4, 5, tzinfo=timezone.utc)


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _body(self, _context, caller):
        return caller()


def make_env():
    def tojson(x, ensure_ascii=False, indent=None, separators=None,
               sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, context):
    case = {}
    try:
        case["text"] = make_env().from_string(source).render(**context)
    except jinja2.exceptions.TemplateSyntaxError as e:
        case["error"] = "syntax"
        case["line"] = e.lineno
    except jinja2.exceptions.TemplateError as e:
        raised = type(e) is jinja2.exceptions.TemplateError
        case["error"] = "raised" if raised else "runtime"
        if raised:
            case["message"] = str(e)
    except Exception:  # what Python's own operations raise
        case["error"] = "runtime"
    return case


def real_template(path):
    from gguf import GGUFReader

    field = GGUFReader(path).fields.get("tokenizer.chat_template")
    return field and bytes(field.parts[field.data[0]]).decode()


def write(name, value):
    path = os.path.join(HERE, name)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=0, allow_nan=False)
        f.write("\n")
    print(name, os.path.getsize(path), "bytes")


def main():
    small = []
    for source, *extra in CASES:
        context = dict(CONTEXT)
        context.update(extra[0] if extra else {})
        case = {"template": source}
        if extra:
            case["context"] = extra[0]
        case.update(render(source, context))
        small.append(case)
    write("template_golden.json", {"context": CONTEXT, "cases": small})

    families = dict(FAMILIES)
    for path in sys.argv[1:]:
        source = real_template(path)
        if source is None:
            print(os.path.basename(path), "has no chat template")
        else:
            families[os.path.basename(path)] = source
    out = []
    for name, source in families.items():
        results = [render(source, r) for r in REQUESTS]
        out.append({"name": name, "template": source, "results": results})
    write("template_families.json", {"requests": REQUESTS, "families": out})


if __name__ == "__main__":
    main()
