# SPDX-License-Identifier: Apache-2.0
"""Chat templates in the manner of public model families, written for these
tests, and requests to render with them. Used by make_template_golden.py."""

LLAMA3 = """\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system turn leaves the list, so that the loop below sees the rest. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You may call these functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No user turn to put the tools in!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- 'Answer with a JSON call of one of these functions.\\n\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>" }}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("Only one tool-call at once is possible!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

CHATML_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nFunctions within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nCall them as\\n<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}\\n</tool_call><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and m.role == "user" and m.content is string and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

MACROS = """\
{%- macro type_of(p, depth=0) -%}
    {%- if p.type == 'array' -%}{{ type_of(p['items'], depth + 1) }}[]
    {%- elif p.type == 'object' and p.properties -%}
        { {%- for k, v in p.properties | dictsort -%}
            {{ k }}{{ '' if k in p.get('required', []) else '?' }}: {{ type_of(v, depth=depth + 1) }}{{ ', ' if not loop.last }}
        {%- endfor -%} }
    {%- elif p.enum -%}{{ p.enum | map('tojson') | join(' | ') }}
    {%- else -%}{{ {'string': 'str', 'integer': 'int'}.get(p.type, p.type or 'any') }}
    {%- endif -%}
{%- endmacro %}
{%- macro turn(role) %}
[{{ role | upper }}] {{ caller() | trim }} [/{{ role | upper }}]
{% endmacro -%}
{%- set sys = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | list %}
{%- if sys %}{% call turn('sys') %}{{ sys | join('\\n') | indent(2) }}{% endcall %}{% endif %}
{%- for t in tools or [] %}
fn {{ t.function.name }}({{ type_of(t.function.parameters) }}) # {{ t.function.description | default('-', true) }}
{% endfor %}
{%- for m in messages | rejectattr('role', 'in', ['system', 'tool']) %}
{%- call turn(m.role) %}
{%- if m.content is string %}{{ m.content }}{% endif %}
{%- for c in m.tool_calls or [] %}
 {{ loop.index }}/{{ loop.length }} {{ c.function.name }} {{ c.function.arguments | tojson(separators=(',', ':'), sort_keys=true) }}
{%- endfor %}
{%- endcall %}
{%- else %}
nothing said
{%- endfor %}
{%- if add_generation_prompt %}{% generation %}[ASSISTANT] {% endgeneration %}{% endif %}
"""

FAMILIES = {
    "llama-3 style": LLAMA3,
    "chatml-tools style": CHATML_TOOLS,
    "gemma-3 style": GEMMA,
    "macro style": MACROS,
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
