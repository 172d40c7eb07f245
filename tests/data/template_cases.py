# SPDX-License-Identifier: Apache-2.0
"""Small templates, one construct each, for make_template_golden.py. A case is
(template,) or (template, context); the context extends CONTEXT."""

CONTEXT = {
    "s": "Hello, Wörld", "n": 7, "f": 2.5, "t": True, "none_v": None, "e": "",
    "l": [3, 1, 2], "d": {"b": 2, "a": 1, "items": "shadow", "C": 3},
    "u": [{"name": "Bob", "age": 30, "tags": ["x", "y"]},
          {"name": "alice", "age": 25, "tags": []},
          {"name": "Carl", "age": 30}],
    "nested": [1, [2, [3, [4]], 5]],
}

_TEXT = r"""
plain text
{{ s }}|{{ n }}|{{ f }}|{{ t }}|{{ none_v }}|{{ missing }}|{{ l }}|{{ d }}
{{ 'a' 'b' "c" }}
{{ 'tab\tnl\nq\'q\"\\x\x41\u00e9\U0001F600\101\q' }}
{{ "it's" }} {{ ["it's", 'q"', 'b\\th\n', 'é\x7f\u200b', "both'\""] }}
{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_0.2_5 }}
{{ 1.0 }} {{ 100000000000000000.0 }} {{ 1e16 }} {{ 123456789012345.6 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 0.0001 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ -0.0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e300 * 1e10 }} {{ 0.0 ** 0 }}
{{ -n }} {{ +n }} {{ - - n }} {{ -2 ** 2 }} {{ true + 1 }} {{ -true }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ 10 - 2 - 3 }} {{ 'a' ~ 1 + 2 ~ none }}
{{ 'ab' * 3 }} {{ 3 * [1, 2] }} {{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ 'x' * -1 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }}
{{ 'a' in 'cat' }} {{ 'x' not in 'cat' }} {{ 2 in l }} {{ 'a' in d }} {{ 'z' in d }} {{ not 1 in l }} {{ 1 in missing }} {{ 3 in range(5) }} {{ 5 in range(0, 10, 2) }}
{{ true and 'yes' }} {{ 0 or 'no' }} {{ '' or none }} {{ not '' }} {{ not not 1 }} {{ 1 and 0 or 3 }}
{{ 'a' if n > 5 else 'b' }} {{ 'a' if n < 5 }} {{ 1 if false else 2 if false else 3 }}
{{ s[0] }} {{ s[-1] }} {{ s[7:] }} {{ s[:5] }} {{ s[::-1] }} {{ s[1:10:3] }} {{ s[-4:-1] }} {{ s[100:] }} {{ s[::-2] }}
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5:1:-1] }} {{ l[:-1] }} {{ l[none:2] }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:2] }} {{ range(5)[-1] }}
{{ d.a }} {{ d['a'] }} {{ d.items is callable }} {{ d['items'] }} {{ d.nope }}|{{ d['nope'] }}|{{ l[9] }}|{{ l.x }}
{{ missing.attr }}
{{ d.nope.deep }}
{{ none_v.x }}|
{{ missing + 1 }}
{{ missing() }}
{{ missing['x'] }}
{{ u[0].name }} {{ u[0]['tags'][1] }} {{ u.0.name }} {{ u[n - 7].age }}
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 2 }} {{ [] }} {{ {} }} {{ {'a': 1, 'b': [true, none]} }} {{ {1: 'x', (1, 2): 'y'} }}
{{ {'a': 1, 'a': 2} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}
{{ {[1]: 2} }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}
{% if missing %}a{% elif none_v %}b{% elif l %}c{% endif %}
{% for x in l %}{{ loop.index }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {{ loop.changed(x > 1) }};{% endfor %}
{% for x in [] %}a{% else %}empty{% endfor %}{% for x in missing %}a{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}
{% for a, (b, c) in [[1, [2, 3]], (4, (5, 6))] %}{{ a }}{{ b }}{{ c }} {% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for a, b in [1] %}{{ a }}{% endfor %}
{% for x in range(10) if x is odd %}{{ loop.index }}{{ x }}{{ loop.last }} {% endfor %}
{% for x in range(10) if x > 5 %}{{ loop.length }}{{ loop.revindex }} {% else %}no{% endfor %}
{% for x in range(3) if x > 5 %}{{ x }}{% else %}no{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in nested recursive %}{% if x is sequence %}[{{ loop(x) }}]{% else %}{{ loop.depth }}{{ x }}{% endif %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for c in 'aé日' %}{{ c }}-{% endfor %}
{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% for x in l %}{% set z = x %}{% endfor %}{{ z is defined }} {{ x is defined }} {{ loop is defined }}
{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set (c, d2) = 'xy' %}{{ c }}{{ d2 }}
{% set x %}hello {{ n }}{% endset %}[{{ x }}] {% set y | upper | replace('L', '1') %}hello{% endset %}{{ y }} {{ x is string }}
{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.zz is defined }} {{ ns['a'] }} {{ ns }}
{% set ns = namespace({'x': 1}, y=2) %}{{ ns.x }}{{ ns.y }}{{ ns is mapping }}
{% set d.x = 1 %}
{% set q.x = 1 %}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(b=1, a=0) }} {{ m() }} {{ m }} {{ m.name }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4, y=5) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}
{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}{% for x in [9] %}{{ m() }}{% endfor %}
{% macro fact(k) %}{% if k < 2 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}
{% macro box(t) %}<{{ t }}:{{ caller() }}>{% endmacro %}{% call box('x') %}in{{ n }}{% endcall %}
{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each(l) %}{{ i }}={{ v }};{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}{{ m(m(3)) }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | indent(2, true) %}aa{% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}
{% block x %}in block {{ n }}{% endblock %} {% block y scoped %}z{% endblock y %}
{% generation %}gen {{ n }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}
{% raw %}{{ not }} {% this %} {# text #}{% endraw %}!
{%- raw -%}  {{ x }}  {%- endraw -%}  !
{# comment {{ x }} #}a{#- b -#} c
{% print n, 'x' %}
a  {{- n -}}  b {{ n }} {%- if t -%} c {%- endif -%} d
{{ [1, 2,] }} {{ {'a': 1,} }} {{ range(3,) }}
{{ none_v is none }} {{ n is none }} {{ missing is defined }} {{ missing is not defined }} {{ s is string }} {{ n is string }} {{ d is mapping }} {{ l is mapping }}
{{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ d is sequence }} {{ s is sequence }} {{ n is sequence }} {{ range(2) is sequence }} {{ (1,) is sequence }}
{{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ n is float }} {{ t is boolean }} {{ n is boolean }} {{ t is true }} {{ 1 is true }} {{ false is false }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(3) }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is ge 7 }} {{ n is le 6 }}
{{ 1 is in [1] }} {{ 'x' is in 'y' }} {{ 1 is sameas 1 }} {{ 1 is sameas true }} {{ s is lower }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ '1' is upper }} {{ n is not odd }}
{{ s is callable }} {{ range is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}
{{ n is odd and t }} {{ not n is odd }} {{ n is odd if t else 0 }} {{ (n + 1) is even }} {{ n + 1 is even }}
{{ '  x y '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.lstrip('ba') }}|{{ '\u3000é\xa0'.strip() }}|
{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'aXXbXXc'.split('XX') }} {{ 'a--b'.rsplit('-') }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith('abcd') }}
{{ 'aXbX'.replace('X', '--') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '.') }} {{ 'abc'.replace('b', '') }} {{ 'é日'.replace('', '-') }}
{{ 'hello World'.upper() }} {{ 'HeLLo'.lower() }} {{ "they're bill's friends".title() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'aBc'.swapcase() }} {{ 'straße éà'.upper() }} {{ 'ÀÉ ДА'.lower() }}
{{ ','.join(['a', 'b']) }} {{ ''.join('abc') }} {{ '-'.join(d) }}
{{ ','.join([1]) }}
{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'é日x'.find('x') }} {{ 'hello'.count('l') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.index('e') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abc'.find('', 9) }}
{{ 'x'.index('y') }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'abc'.center(8) }}|{{ 'abc'.center(9, '*') }}|{{ 'ab'.center(5) }}|{{ 'abc'.ljust(5) }}|{{ 'abc'.rjust(5, '.') }}|{{ '42'.zfill(5) }}|{{ '-4'.zfill(4) }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'x'.partition('=') }} {{ 'prefix_x'.removeprefix('prefix_') }} {{ 'x.py'.removesuffix('.py') }}
{{ '123'.isdigit() }} {{ 'a1'.isdigit() }} {{ ''.isdigit() }} {{ 'abé'.isalpha() }} {{ 'a1'.isalnum() }} {{ '  '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ 'é'.isascii() }}
{{ '{} and {}'.format(1, 'x') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{{}}'.format() }} {{ '{:.2f}|{:5d}|{:<4}|'.format(2.345, 42, 'a') }}
{{ '%s is %d and %.2f %%' % ('x', 5, 1.005) }} {{ '%s' % 'a' }} {{ '%(a)s-%(b)05d' % {'a': 1, 'b': 2} }} {{ '%r %x' % ('q', 255) }} {{ "%s %s" | format('a', none) }} {{ '%5s|%-5s|' % ('a', 'b') }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() }} {{ d.keys() }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.copy() }}
{{ l.count(1) }} {{ l.index(2) }} {{ (1, 1).count(1) }}
{{ l.append(4) }}
{{ d.update({'x': 1}) }}
{{ d.pop is defined }} {{ l.append is defined }}
{{ s.__class__ }}|
{{ s | tojson }} {{ l | tojson }} {{ d | tojson }} {{ u | tojson }} {{ none_v | tojson }} {{ t | tojson }} {{ 1.0 | tojson }} {{ 1e100 | tojson }} {{ (1, 'x') | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ u | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=4) }} {{ {'a': []} | tojson(indent=1) }}
{{ s | tojson(ensure_ascii=true) }} {{ '😀\x7f' | tojson(ensure_ascii=true) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }} {{ l | tojson(indent='--') }} {{ l | tojson(true, 0) }}
{{ '<a href="x">&\'\n\t\r\b\f\x01\x1f/\\' | tojson }} {{ 'é\u2028😀' | tojson }}
{{ missing | tojson }}
{{ range(3) | tojson }}
{{ '  a ' | trim }}|{{ 'xax' | trim('x') }}|{{ 5 | trim }}|{{ missing | trim }}|{{ none | trim }}
{{ s | length }} {{ l | count }} {{ d | length }} {{ missing | length }} {{ range(4) | length }} {{ 'é日' | length }} {{ d.items() | length }}
{{ n | length }}
{{ l | map('string') | length }}
{{ l | join }} {{ l | join(', ') }} {{ u | join('/', attribute='name') }} {{ 'abc' | join('.') }} {{ [none, 1, 'x', [2]] | join('|') }} {{ missing | join }}
{{ missing | default('x') }} {{ e | default('x') }}| {{ e | default('x', true) }} {{ none_v | default('x') }} {{ missing | d }}| {{ d.zz | default(5) }} {{ n | d(0, boolean=true) }}
{{ 'abc' | list }} {{ d | list }} {{ range(3) | list }} {{ (1, 2) | list }} {{ missing | list }}
{{ l | first }} {{ l | last }} {{ 'abc' | first }} {{ 'abc' | last }} {{ [] | first }}| {{ [] | last }}| {{ d | first }} {{ l | map('string') | first }}
{{ [].x.y }}
{{ 'aBc' | upper }} {{ 'aBc' | lower }} {{ 'hello wORLD foo-bar (x) <y' | title }} {{ 'aBC' | capitalize }} {{ 5 | upper }} {{ missing | upper }}|
{{ 'aXbX' | replace('X', '-') }} {{ 'aaa' | replace('a', 'b', 1) }} {{ 123 | replace(2, 'x') }} {{ 'aaa' | replace('a', 'b', count=2) }}
{{ l | map('string') | list }} {{ u | map(attribute='name') | list }} {{ u | map(attribute='tags.0', default='-') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ u | map(attribute='nope') | list }} {{ [1.26, 2.5] | map('round', 1) | list }}
{{ l | map('nope') | list }}
{{ l | map | list }}
{{ u | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ u | selectattr('tags') | list | length }} {{ u | rejectattr('tags') | map(attribute='name') | list }} {{ u | selectattr('tags', 'defined') | list | length }} {{ u | selectattr('name', 'in', ['Bob']) | list | length }} {{ u | selectattr('age', '>', 26) | list | length }}
{{ l | select('gt', 1) | list }} {{ l | reject('odd') | list }} {{ [0, 1, '', 'x'] | select | list }} {{ [0, 1] | reject | list }} {{ [1, none] | select('none') | list }} {{ l | select('divisibleby', 3) | list }}
{% set g = l | select('odd') %}{{ g is iterable }}{{ g is sequence }}{% if g %}true{% endif %} {{ g | list }} {{ g | list }} {{ [] | select | list }}
{{ 5 | string ~ 'x' }} {{ none | string }} {{ [1] | string }} {{ '42' | int + 1 }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '0x1f' | int(0, 16) }} {{ '101' | int(base=2) }} {{ 3.99 | int }} {{ -3.99 | int }} {{ none | int }} {{ ' 42 ' | int }} {{ '1_000' | int }} {{ true | int }} {{ '1e3' | int }}
{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.0) }} {{ 3 | float }} {{ '1e3' | float }} {{ none | float }} {{ 'inf' | float }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42.55 | round(1, 'floor') }} {{ 42.11 | round(1, 'ceil') }} {{ 5 | round }} {{ 1234.5 | round(-2) }} {{ 2.5 | round | int }} {{ -2.5 | round }}
{{ -5 | abs }} {{ (-5) | abs }} {{ -2.5 | abs }} {{ true | abs }}
{% for k, v in d | items %}{{ k }}{{ v }};{% endfor %} {{ d | items | list }} {{ missing | items | list }}
{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'x': 3, 'y': 1} | dictsort(by='value') }} {{ d | dictsort(reverse=true) }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ u | sort(attribute='age') | map(attribute='name') | list }} {{ u | sort(attribute='age,name') | map(attribute='name') | list }} {{ u | sort(reverse=true, attribute='age') | map(attribute='name') | list }}
{{ [1, 'a'] | sort }}
{{ [1, 2, 1, 'a', 'A'] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ u | unique(attribute='age') | map(attribute='name') | list }}
{{ l | reverse | list }} {{ 'aéb' | reverse }} {% for x in l | reverse %}{{ x }}{{ loop.last }}{% endfor %}
{{ 'a\nb\n\nc' | indent }}| {{ 'a\nb' | indent(2, true) }}| {{ 'a\n\nb' | indent(2, blank=true) }}| {{ 'a\nb\n' | indent('> ', first=true) }}|
{{ range(7) | batch(3) | list }} {{ range(7) | batch(3, 'x') | list }} {{ range(7) | slice(3) | list }} {{ range(7) | slice(3, 'x') | list }}
{{ l | sum }} {{ u | sum(attribute='age') }} {{ [0.1, 0.2] | sum }} {{ [[1], [2]] | sum(start=[]) }} {{ l | min }} {{ l | max }} {{ u | max(attribute='age') }} {{ [] | min }}| {{ ['b', 'A'] | min }}
{% for g in u | groupby('age') %}{{ g.grouper }}:{{ g.list | map(attribute='name') | join(',') }};{% endfor %}{% for a, b in u | groupby('age') %}{{ a }}{{ b | length }}{% endfor %}
{{ '<a>&"\'' | e }} {{ '<a>' | escape | e }} {{ '<a>' | safe }} {{ ('<b>' | safe) + '<i>' }} {{ ('<b>' | e) ~ '<i>' }} {{ '<' | forceescape }} {{ '<a>' | safe is escaped }}
{{ 'hello world foo bar' | truncate(11) }} {{ 'hello world foo bar' | truncate(9, true, '..', 0) }} {{ 'hello world' | truncate(11) }} {{ 'one two, three_4' | wordcount }} {{ 'ab' | center(6) }}| {{ 'a b/ä&' | urlencode }} {{ 1234567 | filesizeformat }} {{ 1 | filesizeformat }} {{ 5000 | filesizeformat(true) }}
{{ u[0] | attr('name') }}| {{ s | attr('upper') is callable }}
{{ range(3) }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)], y=2) }} {{ dict({'q': 1}) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }} {% set j = joiner(';') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{{ strftime_now('%Y-%m-%d %d %b %Y %H:%M') }}
{{ raise_exception('stop: ' ~ n) }}
{% if n > 100 %}{{ raise_exception('no') }}{% endif %}ok
{{ range(1000000) }}
{{ 1 // 0 }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 'a' < 1 }}
{{ none + 1 }}
{{ 5 in 5 }}
{{ 1 in 'abc' }}
{{ s.nope() }}
{{ n() }}
{{ l | nope }}
{{ n is nope }}
{% if false %}{{ l | nope }}{% endif %}ok
{% nope %}
{% include 'x' %}
{% for x in l %}{{ x }}
{% if x %}a{% endfor %}
{{ 1 + }}
{{ (1 }}
{{ 'abc }}
{% set 5 = 1 %}
{% set true = 1 %}
{% else %}
{% break %}
{{ a b }}
{{ l[1:2:0] }}
{{ d[1:2] }}
{{ l['x'] }}|{{ s.x }}|{{ n.x }}|{{ l[missing] }}|
{% for m in u %}{{ m.name }}{{ ' ' if m.tags is defined and m.tags }}{{ m.get('age') }}{% endfor %}
{% set x = namespace(found=false) %}{% for i in l %}{% if i == 1 %}{% set x.found = true %}{% endif %}{% endfor %}{{ x.found }}
{{ 'a' ~ none_v ~ 1.5 ~ true ~ [1] ~ missing }} {{ 1 ~ 2 }} {{ s ~ s | upper }}
{{ loop }}|
{{ namespace() }} {{ u[0] }} {{ nested | tojson }} {{ nested == [1, [2, [3, [4]], 5]] }}
{% for x in l %}{% macro mm() %}{{ x }}{% endmacro %}{{ mm() }}{% endfor %}
{%+ if true %}x{%+ endif +%}
{{ not true or true }} {{ not (true or true) }} {{ 1 if not none_v }} {{ l == [3, 1, 2] and d != {} }}
{{ l | sort | first }} {{ (l | sort)[0] }} {{ l | length > 2 }} {{ -l[0] | abs }} {{ 'a' if l | length == 3 else 'b' }} {{ 'x' ~ 'y' | upper }}
{{ u | map(attribute='name') | map('lower') | sort | join('-') }}
{{ "x" if missing is defined and missing.y else "z" }}
{{ 9007199254740993 }} {{ 9223372036854775807 }} {{ 9007199254740993 == 9007199254740992.0 }}
{{ true if n in (7, 8) else false }} {{ (n, f) }} {{ ((1, 2), 3)[0][1] }}
{%- set role_map = {'user': 'U', 'assistant': 'A'} -%}{% for r in ['user', 'x', 'assistant'] %}{{ role_map[r] | default(r) }} {{ role_map.get(r, '?') }};{% endfor %}
{% for i in range(3) %}{% with j = i * 2 %}{% if j == 2 %}{% continue %}{% endif %}{{ j }}{% endwith %}{% endfor %}
{% for a in l %}{% filter upper %}x{{ loop.index }}{{ a }}{% endfilter %}{% endfor %}
{{ (none_v or {}).get('x', 'dflt') }} {{ [1, 2, 3][-2:] | join }} {{ 'abc'[1:2] ~ 'abc'[5:] }}
"""

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
    "text {% if",
    "text {{ x",
    "{%- if true -%}{%- endif -%}",
    "",
    "\n",
    "{{ x }}{% set x = 1 %}{{ x }}",
    "{% if true: %}colon{% endif %}",
    "{{\n n\n }}\n{%\n set y = 2\n %}{{ y }}",
]

CASES = [(line,) for line in _TEXT.strip("\n").split("\n")]
CASES += [(block,) for block in _BLOCKS]
CASES += [
    ("{{ range }} {{ dict }}", {"range": 1, "dict": "x"}),
    ("{{ a.b.c }}{{ a['b']['c'] }}{{ a.b.d is defined }}",
     {"a": {"b": {"c": "deep"}}}),
    ("{{ x }} {{ x | tojson }} {{ [x] }}", {"x": 12345.678e10}),
    ("{{ x }} {{ x | tojson }}", {"x": "NUL\x00 \x1b[0m \u2028 \U0001F469\u200D\U0001F4BB"}),
    ("{{ x | length }}{{ x | tojson }}", {"x": {"": {"": []}}}),
    ("{% for k, v in x.items() %}{{ k }}{{ v }}{% endfor %}",
     {"x": {str(i): i for i in range(20)}}),
    ("{{ x['k15'] }} {{ x.k3 }} {{ 'k19' in x }} {{ 'k20' in x }} {{ x.get('k7') }}",
     {"x": {f"k{i}": i for i in range(20)}}),
    ("{{ x | sort(attribute='a') | map(attribute='i') | list }}",
     {"x": [{"a": i * 7 % 4, "i": i} for i in range(20)]}),
]
