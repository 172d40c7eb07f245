# SPDX-License-Identifier: Apache-2.0
"""Small templates, one construct each, for make_template_golden.py. A case is
(template,) or (template, context); the context extends CONTEXT. Those of one line
and without a context of their own are in template_cases.txt, one a line."""

import os

CONTEXT = {
    "s": "Hello, Wörld", "n": 7, "f": 2.5, "t": True, "none_v": None, "e": "",
    "l": [3, 1, 2], "d": {"b": 2, "a": 1, "items": "shadow", "C": 3},
    "u": [{"name": "Bob", "age": 30, "tags": ["x", "y"]},
          {"name": "alice", "age": 25, "tags": []},
          {"name": "Carl", "age": 30}],
    "nested": [1, [2, [3, [4]], 5]],
}

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "template_cases.txt"), encoding="utf-8") as _f:
    _LINES = _f.read().removesuffix("\n").split("\n")

_BLOCKS = [
    "  {% if true %}\n  a\n  {% endif %}\n  b\n",
    "a\n  {%- if true %}\n b {%- endif %}\n c",
    "x {% if true %}\n\ny\n{% endif %}z\n\n",
    "  {{ n }}\n  {{ n }}\n",
    "   {# c #}\n a {# c #}\nb\n\t {#- c #}\n d",
    "  {%+ if true %}\n a\n  {%- endif +%}\n b",
    "{% for x in l %}\n  - {{ x }}\n{% endfor %}\nend\n",
    "{% for x in l -%}\n  - {{ x }}\n{%- endfor %}\nend",
    "a\r\nb\r{% if true %}\r\nc{% endif %}\r\n",
    "\n\n  {% set x = 1 %}  \n\n{{ x }}\n",
    "line\n{{ 'multi\nline' }}\n\n{{ missing.x }}",
    "  {% raw %}\n {{ x }}\n  {% endraw %}\n z",
    "{% macro m() %}\n  text\n{% endmacro %}\n[{{ m() }}]",
    "{% set x %}\n a\n{% endset %}\n[{{ x }}]",
    "a {%- set x = 1 -%} b {%- raw %} c {% endraw -%} d",
    "\u00a0\u3000{%- if true -%}\u2003x{% endif %}",
    "é{{ s }}日本 {{ '日本' ~ s[8:] }}",
    "{{ '{{' }} {{ '%}' }} {{ '}}' }} { { } } {% if '%}' %}x{% endif %}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {'b': {}}} }}",
    "text {# unterminated",
    "text {#",
    "text {%- raw -%}  ",
    "text {% raw %}x",
    "text {% if",
    "text {{ x",
    "{%- if true -%}{%- endif -%}",
    "",
    "\n",
    "{{ x }}{% set x = 1 %}{{ x }}",
    "{% if true: %}colon{% endif %}",
    "{{\n n\n }}\n{%\n set y = 2\n %}{{ y }}",
]

CASES = [(line,) for line in _LINES]
CASES += [(block,) for block in _BLOCKS]
CASES += [
    ("{{ range }} {{ dict }}", {"range": 1, "dict": "x"}),
    ("{{ a.b.c }}{{ a['b']['c'] }}{{ a.b.d is defined }}",
     {"a": {"b": {"c": "deep"}}}),
    ("{{ x }} {{ x | tojson }} {{ [x] }}", {"x": 12345.678e10}),
    ("{{ x }} {{ x | tojson }}",
     {"x": "NUL\x00 \x1b[0m \u2028 \U0001F469\u200D\U0001F4BB"}),
    ("{{ x | length }}{{ x | tojson }}", {"x": {"": {"": []}}}),
    ("{% for k, v in x.items() %}{{ k }}{{ v }}{% endfor %}",
     {"x": {str(i): i for i in range(20)}}),
    ("{{ x['k15'] }} {{ x.k3 }} {{ 'k19' in x }} {{ 'k20' in x }} {{ x.get('k7') }}",
     {"x": {f"k{i}": i for i in range(20)}}),
    ("{{ x | sort(attribute='a') | map(attribute='i') | list }}",
     {"x": [{"a": i * 7 % 4, "i": i} for i in range(20)]}),
]
