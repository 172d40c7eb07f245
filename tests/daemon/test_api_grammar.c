/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields that say what an answer has to look like: each reaches the engine, a wrong one is
 * refused with its name, and two contradict each other.
 */
#include "tests/daemon/api_kit.h"

TEST_F(api, no_grammar_unless_asked_for)
{
	completion_ok(self, "{\"prompt\": \"a\", \"grammar\": null, "
			    "\"structured_outputs\": {\"regex\": null}}");
	EXPECT_EQ(NULL, self->request->params.grammar);
	EXPECT_EQ(NULL, self->request->params.sampling.grammar);
}

TEST_F(api, every_way_to_ask_for_a_grammar_reaches_the_engine)
{
	static const struct {
		const char *field;
		enum tarn_grammar_kind kind;
		const char *text;
	} cases[] = {
		{ "\"grammar\": \"root ::= \\\"a\\\"\"", TARN_GRAMMAR_GBNF,
		  "root ::= \"a\"" },
		{ "\"guided_grammar\": \"g\"", TARN_GRAMMAR_GBNF, "g" },
		{ "\"guided_regex\": \"a+\"", TARN_GRAMMAR_REGEX, "a+" },
		{ "\"guided_choice\": [\"a\", \"\\u00e9\"]",
		  TARN_GRAMMAR_CHOICE, "[\"a\",\"\xc3\xa9\"]" },
		{ "\"structured_outputs\": {\"grammar\": \"h\"}",
		  TARN_GRAMMAR_GBNF, "h" },
		{ "\"structured_outputs\": {\"regex\": \"b*\", \"choice\": null}",
		  TARN_GRAMMAR_REGEX, "b*" },
		{ "\"structured_outputs\": {\"choice\": [\"x\"]}",
		  TARN_GRAMMAR_CHOICE, "[\"x\"]" },
		{ "\"structured_outputs\": {\"json\": {\"b\": 1, \"a\": 2}}",
		  TARN_GRAMMAR_JSON_SCHEMA, "{\"b\":1,\"a\":2}" },
		{ "\"structured_outputs\": {\"json_object\": true}",
		  TARN_GRAMMAR_JSON_OBJECT, "" },
		{ "\"guided_json\": \"{ }\"", TARN_GRAMMAR_JSON_SCHEMA, "{ }" },
		{ "\"guided_json\": true", TARN_GRAMMAR_JSON_SCHEMA, "true" },
		{ "\"json_schema\": {}", TARN_GRAMMAR_JSON_SCHEMA, "{}" },
		{ "\"response_format\": {\"type\": \"json_object\"}",
		  TARN_GRAMMAR_JSON_OBJECT, "" },
		{ "\"response_format\": {\"type\": \"json_object\", "
		  "\"schema\": {\"x\": 1}}",
		  TARN_GRAMMAR_JSON_SCHEMA, "{\"x\":1}" },
		{ "\"response_format\": {\"type\": \"json_schema\", "
		  "\"json_schema\": {\"name\": \"n\", \"strict\": true, "
		  "\"schema\": {\"y\": 1}}}",
		  TARN_GRAMMAR_JSON_SCHEMA, "{\"y\":1}" },
	};

	self->context.is_strict = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char body[300];

		snprintf(body, sizeof(body), "{\"prompt\": \"a\", %s}",
			 cases[i].field);
		completion_ok(self, body);
		EXPECT_TRUE(self->request->params.grammar != NULL);
		EXPECT_EQ(self->request->params.grammar,
			  self->request->params.sampling.grammar);
		EXPECT_EQ(cases[i].kind, double_grammar_kind);
		EXPECT_STREQ(cases[i].text, double_grammar_text);
		snprintf(body, sizeof(body),
			 "{\"messages\": [{\"role\": \"user\", \"content\": "
			 "\"a\"}], %s}",
			 cases[i].field);
		chat_ok(self, body);
		EXPECT_TRUE(self->request->params.sampling.grammar != NULL);
	}
	EXPECT_EQ(1, double_nr_grammars); /* of the request that is left */
}

TEST_F(api, a_grammar_that_does_not_parse_is_refused_with_its_field_and_place)
{
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"grammar\": \"bad\"}", 400,
		       "grammar", "grammar: line 1, column 2: no such thing");
	EXPECT_STREQ("invalid_grammar", self->error.code);
	expect_refused(
		self, REQUEST_COMPLETION,
		"{\"prompt\": \"a\", \"structured_outputs\": {\"regex\": "
		"\"bad\"}}",
		400, "structured_outputs.regex", "line 1, column 2");
	EXPECT_EQ(0, double_nr_grammars);
}

TEST_F(api, two_grammars_contradict_each_other)
{
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"grammar\": \"g\", "
		       "\"guided_regex\": \"r\"}",
		       400, "guided_regex", "grammar and guided_regex both");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"guided_choice\": [\"g\"], "
		       "\"structured_outputs\": {\"choice\": [\"g\"]}}",
		       400, "structured_outputs.choice",
		       "guided_choice and structured_outputs.choice both");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"structured_outputs\": "
		       "{\"regex\": \"x\", \"choice\": [\"g\"]}}",
		       400, "structured_outputs.choice",
		       "structured_outputs.regex and");
}

TEST_F(api, response_formats_are_known_and_complete)
{
	completion_ok(self,
		      "{\"prompt\": \"a\", \"grammar\": \"g\", "
		      "\"response_format\": {\"type\": \"text\"}, "
		      "\"structured_outputs\": {\"json_object\": false}}");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"response_format\": {\"type\": "
		       "\"json_schema\", \"json_schema\": {\"name\": \"n\"}}}",
		       400, "response_format",
		       "response_format.json_schema.schema is missing");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"response_format\": \"json\"}",
		       400, "response_format", "must be an object with a type");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"json_schema\": {}, "
		       "\"response_format\": {\"type\": \"json_object\"}}",
		       400, "response_format",
		       "json_schema and response_format");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"response_format\": {\"type\": "
		       "\"json_schema\", \"schema\": \"bad\"}}",
		       400, "response_format", "line 1, column 2");
}

TEST_F(api, grammars_have_their_types)
{
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"guided_choice\": \"bad\"}", 400,
		       "guided_choice", "line 1, column 2");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"grammar\": 3}", 400, "grammar",
		       "must be a string");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"guided_regex\": [\"a\"]}", 400,
		       "guided_regex", "must be a string");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"structured_outputs\": \"a\"}",
		       400, "structured_outputs", "must be an object");
	expect_refused(self, REQUEST_COMPLETION,
		       "{\"prompt\": \"a\", \"structured_outputs\": "
		       "{\"structural_tag\": \"a\"}}",
		       400, "structured_outputs",
		       "structured_outputs.structural_tag is not supported");
}

TEST_HARNESS_MAIN
