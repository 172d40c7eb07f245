#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured output over the socket: answers of a real model follow what was asked for, alone, in
several choices and streamed, and what does not parse is refused."""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import DaemonTest, run_together, tap  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

PEOPLE = r'''
root   ::= "[" person ("," person){0,2} "]"
person ::= "{\"name\":" string ",\"age\":" [1-9] [0-9]? "}"
string ::= "\"" [a-zA-Zé ]{1,12} "\""
'''


SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "email": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3}},
        "required": ["name", "age"], "additionalProperties": False},
    "list": {
        "$defs": {"node": {
            "type": "object",
            "properties": {"value": {"type": "number", "minimum": -10, "maximum": 10},
                           "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
            "required": ["value", "next"], "additionalProperties": False}},
        "$ref": "#/$defs/node"},
    "shape": {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"},
                                              "radius": {"type": "number", "exclusiveMinimum": 0}},
             "required": ["kind", "radius"]},
            {"type": "object", "properties": {"kind": {"const": "box"},
                                              "sides": {"prefixItems": [{"type": "integer"},
                                                                        {"type": "integer"}],
                                                        "items": False, "minItems": 2}},
             "required": ["kind", "sides"]}]},
    "pattern": {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
                       "day": {"type": "string", "format": "date"}},
        "required": ["code", "day"], "additionalProperties": {"type": "boolean"}},
    "map": {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}},
            "required": ["id"], "additionalProperties": {"type": "integer"}},
}


class Structured(DaemonTest):
    def texts(self, **fields):
        answer = self.daemon.post("/v1/completions", {
            "prompt": "Here is the list:", "max_tokens": 120, "temperature": 1.2, **fields})
        self.assertEqual(200, answer.status, answer.body)
        return [(choice["text"], choice["finish_reason"]) for choice in answer.json["choices"]]

    def test_every_answer_follows_the_grammar(self):
        for seed in range(4):
            for text, finish in self.texts(grammar=PEOPLE, seed=seed, n=3):
                self.assertEqual("stop", finish, text)
                people = json.loads(text)
                self.assertTrue(1 <= len(people) <= 3)
                for person in people:
                    self.assertEqual({"name", "age"}, set(person))
                    self.assertTrue(1 <= person["age"] <= 99)

    def test_a_regular_expression(self):
        pattern = r"(Mon|Tue|Wednes)day, \d{4}-\d{2}-\d{2}( [\w.]+@[a-z]{2,8}\.(com|org))?"
        for field in ({"guided_regex": pattern}, {"structured_outputs": {"regex": pattern}}):
            for text, finish in self.texts(n=4, **field):
                self.assertIsNotNone(re.fullmatch(pattern, text) if finish == "stop" else True,
                                     text)

    def test_a_choice(self):
        choices = ["yes", "no", "perhaps, but not today", "é"]
        for ignore_eos in (False, True):
            seen = set()
            for seed in range(3):
                for text, finish in self.texts(guided_choice=choices, n=4, seed=seed,
                                               temperature=2, ignore_eos=ignore_eos):
                    self.assertEqual("stop", finish)
                    self.assertIn(text, choices)
                    seen.add(text)
            self.assertGreater(len(seen), 1)

    def test_any_object(self):
        nr_whole = 0
        for fields in ({"response_format": {"type": "json_object"}},
                       {"structured_outputs": {"json_object": True}}):
            for text, finish in self.texts(n=3, seed=1, temperature=0.8, **fields):
                self.assertTrue(text.startswith("{"), text)
                if finish == "stop":
                    self.assertIsInstance(json.loads(text), dict)
                    nr_whole += 1
        self.assertGreater(nr_whole, 0)

    @unittest.skipIf(jsonschema is None, "no jsonschema here; make setup installs it")
    def test_every_answer_is_an_instance_of_its_schema(self):
        for name, schema in SCHEMAS.items():
            nr_whole = 0
            forms = ({"response_format": {"type": "json_schema",
                                          "json_schema": {"name": name, "schema": schema}}},
                     {"guided_json": schema}, {"json_schema": schema},
                     {"structured_outputs": {"json": json.dumps(schema)}})
            if tap.TIME_SCALE > 1:  # sanitizers slow the masks of a whole vocabulary most of all
                forms = forms[:2]
            for i, fields in enumerate(forms):
                for text, finish in self.texts(n=3, seed=i, max_tokens=160, **fields):
                    if finish != "stop":
                        self.assertEqual("length", finish)
                        continue
                    jsonschema.Draft202012Validator(
                        schema, format_checker=jsonschema.FormatChecker()).validate(
                            json.loads(text))
                    nr_whole += 1
            self.assertGreater(nr_whole, len(forms) - 2, name)

    def test_chat_and_stream(self):
        body = {"messages": [{"role": "user", "content": "Name two people."}], "seed": 3,
                "max_tokens": 120, "grammar": PEOPLE}
        whole = self.daemon.post("/v1/chat/completions", body).json["choices"][0]
        json.loads(whole["message"]["content"])
        events = self.daemon.stream("/v1/chat/completions", {**body, "stream": True})
        text = "".join(event["choices"][0]["delta"].get("content") or ""
                       for event in events if event["choices"])
        self.assertEqual(whole["message"]["content"], text)

    def test_the_same_answer_in_company(self):
        alone = self.texts(grammar=PEOPLE, seed=11)
        bodies = [{"grammar": PEOPLE, "seed": 11}, {"seed": 5}, {"guided_regex": "[ab]*"}]
        together = run_together([lambda f=f: self.texts(**f) for f in bodies])
        self.assertEqual(alone, together[0])
        self.assertRegex(together[2][0][0], "^[ab]*$")

    def test_a_grammar_that_explodes_ends_its_own_request(self):
        wild = ('root ::= ("a"{0,200} x){0,200} "z"\nx ::= "a"{0,100}')
        answers = run_together([
            lambda: self.texts(grammar=wild, max_tokens=400),
            lambda: self.texts(grammar=PEOPLE, seed=11)])
        self.assertIn(answers[0][0][1], ("error", "stop", "length"))
        self.assertEqual(self.texts(grammar=PEOPLE, seed=11), answers[1])

    def test_what_does_not_parse_is_refused(self):
        for fields, param, part in (
                ({"grammar": 'root ::= "a'}, "grammar", "line 1, column 10"),
                ({"grammar": "root ::= root"}, "grammar", "begins with itself"),
                ({"guided_regex": "a(?=b)"}, "guided_regex", "look-ahead"),
                ({"guided_choice": []}, "guided_choice", "not empty"),
                ({"grammar": 'root ::= (("a"{1000}){1000})'}, "grammar", "262144 positions"),
                ({"guided_json": {"properties": {"x": {"not": {}}}}}, "guided_json",
                 "#/properties/x/not"),
                ({"guided_json": {"$ref": "#"}}, "guided_json", "begins with itself"),
                ({"guided_json": {}, "grammar": "g"}, "guided_json", "grammar and guided_json")):
            answer = self.daemon.post("/v1/completions", {"prompt": "a", **fields})
            self.assertEqual(400, answer.status)
            error = answer.json["error"]
            self.assertEqual(param, error["param"])
            self.assertIn(part, error["message"])


if __name__ == "__main__":
    tap.main()
