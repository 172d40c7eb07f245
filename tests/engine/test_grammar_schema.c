/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas as grammars: instances that may be written and texts that may not, what is refused
 * with its JSON pointer, and random texts of each schema, which must be JSON.
 */
#include "tests/harness.h"

#include <jansson.h>

#include "tests/engine/grammar_kit.h"

static void expect(const char *schema, const char *const *good,
		   const char *const *bad)
{
	kit_expect(schema_read, schema, good, bad);
}

static void expect_err(const char *schema, const char *message)
{
	kit_compile_err(schema_read, schema, message);
}

/* ---- types -------------------------------------------------------------------------------- */

TEST(any_value_is_json)
{
	expect("{}",
	       KIT_LIST("{\"a\":[1,-2.5e3,\"\\u00e9\\n\"], \"b\": {}}", "null",
			"[ ]", "\"\xc3\xa9\"", "0", "\"\\ud83d\\ude00\""),
	       KIT_LIST("", "{a:1}", "[1,]", "{\"a\":}", "01", "1.", "nul",
			"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"",
			"{} ", "[1 2]"));
	kit_expect(json_object_read, "", KIT_LIST("{}", "{\"a\": [{}]}"),
		   KIT_LIST("[]", "null", "1", "\"a\""));
}

TEST(white_space_is_bounded)
{
	expect("{\"type\": \"array\"}", KIT_LIST("[\n\n \t 1\n]", "[ 1 , 2 ]"),
	       KIT_LIST("[  1]", "[\n\n\n1]"));
}

TEST(types_and_lists_of_types)
{
	expect("{\"type\": \"boolean\"}", KIT_LIST("true", "false"),
	       KIT_LIST("null", "1"));
	expect("{\"type\": [\"integer\", \"null\"]}",
	       KIT_LIST("12", "-7", "null", "0"),
	       KIT_LIST("1.5", "true", "-0x", "007"));
	expect("{\"type\": \"string\", \"nullable\": true}",
	       KIT_LIST("\"a\"", "null"), KIT_LIST("1"));
	/* Keywords say which type is meant where there is none. */
	expect("{\"minItems\": 1}", KIT_LIST("[1]"), KIT_LIST("[]", "1"));
	expect("{\"maxLength\": 1}", KIT_LIST("\"a\""),
	       KIT_LIST("\"ab\"", "1"));
}

TEST(values_that_are_listed)
{
	expect("{\"enum\": [\"a\", 1, null, {\"x\": [1.5]}, \"q\\\"\"]}",
	       KIT_LIST("\"a\"", "1", "null", "{\"x\":[1.5]}", "\"q\\\"\""),
	       KIT_LIST("\"b\"", "{\"x\":[1]}", "a"));
	expect("{\"type\": \"string\", \"enum\": [\"a\", 1]}",
	       KIT_LIST("\"a\""), KIT_LIST("1"));
	expect("{\"const\": [true]}", KIT_LIST("[true]"), KIT_LIST("true"));
	expect("{\"const\": 2, \"enum\": [1, 2]}", KIT_LIST("2"),
	       KIT_LIST("1"));
}

/* ---- objects ------------------------------------------------------------------------------ */

TEST(properties_come_in_order_and_required_ones_always)
{
	expect("{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": "
	       "\"null\"}, \"c\": {\"type\": \"boolean\"}}, \"required\": [\"b\"]}",
	       KIT_LIST("{\"b\":null}", "{\"a\":1,\"b\":null}",
			"{\"b\":null,\"c\":true}",
			"{\"a\":1, \"b\": null ,\"c\":false}"),
	       KIT_LIST("{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":1}",
			"{\"b\":null,}", "{,\"b\":null}",
			"{\"b\":null,\"d\":1}", "{\"a\":1\"b\":null}",
			"{\"a\":1,\"a\":1,\"b\":null}"));
	expect("{\"properties\": {\"a\": true, \"b\": false, \"c\": true}}",
	       KIT_LIST("{}", "{\"a\":1}", "{\"c\":2}", "{\"a\":1,\"c\":2}"),
	       KIT_LIST("{\"b\":1}", "{\"a\":1,}"));
	/* Required, and not declared. */
	expect("{\"type\": \"object\", \"required\": [\"x\"]}",
	       KIT_LIST("{\"x\":1}", "{\"x\":{}}"),
	       KIT_LIST("{}", "{\"y\":1}"));
}

TEST(additional_properties_have_other_names)
{
	const char *schema =
		"{\"properties\": {\"a\": {\"type\": \"null\"}, \"ab\": {\"type\": \"null\"}}, "
		"\"additionalProperties\": {\"type\": \"integer\"}}";

	expect(schema,
	       KIT_LIST("{}", "{\"a\":null}", "{\"x\":1}", "{\"abc\":1}",
			"{\"\":1}", "{\"b\":1,\"c\":2}",
			"{\"a\":null,\"ab\":null,\"ac\":1}"),
	       KIT_LIST("{\"a\":1}", "{\"ab\":1}", "{\"x\":null}",
			"{\"x\":1,\"a\":null}", "{\"\\u0061\":1}"));
	expect("{\"type\": \"object\", \"additionalProperties\": false}",
	       KIT_LIST("{}", "{ }"), KIT_LIST("{\"a\":1}"));
	expect("{\"additionalProperties\": {\"type\": \"null\"}}",
	       KIT_LIST("{}", "{\"a\\\"\":null,\"b\":null}"),
	       KIT_LIST("{\"a\":1}", "{\"a\":null,}"));
}

/* ---- arrays ------------------------------------------------------------------------------- */

TEST(arrays_have_their_lengths_and_prefixes)
{
	expect("{\"items\": {\"type\": \"integer\"}, \"minItems\": 2, \"maxItems\": 3}",
	       KIT_LIST("[1,2]", "[1, 2 ,3]"),
	       KIT_LIST("[]", "[1]", "[1,2,3,4]", "[1,2,]", "[1,true]"));
	expect("{\"maxItems\": 0}", KIT_LIST("[]"), KIT_LIST("[1]"));
	expect("{\"type\": \"array\", \"items\": false}", KIT_LIST("[]"),
	       KIT_LIST("[1]"));
	expect("{\"prefixItems\": [{\"type\": \"null\"}, {\"type\": \"boolean\"}], "
	       "\"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 4}",
	       KIT_LIST("[null]", "[null,true]", "[null,true,1,2]"),
	       KIT_LIST("[]", "[true]", "[null,1]", "[null,true,1,2,3]"));
	expect("{\"prefixItems\": [{\"type\": \"null\"}, {\"type\": \"null\"}], "
	       "\"items\": false}",
	       KIT_LIST("[]", "[null]", "[null,null]"),
	       KIT_LIST("[null,null,null]"));
	expect("{\"prefixItems\": [{\"type\": \"null\"}], \"minItems\": 2}",
	       KIT_LIST("[null,7]"), KIT_LIST("[null]", "[null,7,7]"));
	expect("{\"items\": [{\"type\": \"null\"}, true], \"maxItems\": 1}",
	       KIT_LIST("[]", "[null]"), KIT_LIST("[null,1]"));
}

/* ---- strings ------------------------------------------------------------------------------ */

TEST(strings_have_their_lengths_in_characters)
{
	expect("{\"minLength\": 2, \"maxLength\": 3}",
	       KIT_LIST("\"\xc3\xa9\xc3\xa9\"", "\"ab\\n\"", "\"\\u00e9x\"",
			"\"\\ud83d\\ude00x\""),
	       KIT_LIST("\"\xc3\xa9\"", "\"abcd\"", "\"\\u00e9\""));
}

TEST(patterns_and_formats)
{
	expect("{\"pattern\": \"^a.b$\"}", KIT_LIST("\"axb\"", "\"a\\\"b\""),
	       KIT_LIST("\"ab\"", "\"a\"b\"", "\"xaxb\""));
	expect("{\"pattern\": \"b\"}", KIT_LIST("\"abc\"", "\"b\""),
	       KIT_LIST("\"ac\""));
	expect("{\"format\": \"date\"}",
	       KIT_LIST("\"2024-02-28\"", "\"1999-12-31\"", "\"2001-04-30\""),
	       KIT_LIST("\"2023-02-29\"", "\"2024-13-01\"", "\"2001-04-31\"",
			"\"24-01-01\"", "\"0000-01-01\""));
	expect("{\"format\": \"date-time\"}",
	       KIT_LIST("\"2024-02-28T23:59:59Z\"",
			"\"2024-02-28T01:02:03.25+05:30\""),
	       KIT_LIST("\"2024-02-28\"", "\"2024-02-28T24:00:00Z\"",
			"\"2024-02-28T23:59:59\""));
	expect("{\"format\": \"uuid\"}",
	       KIT_LIST("\"123e4567-e89b-12d3-a456-426614174000\""),
	       KIT_LIST("\"123e4567e89b12d3a456426614174000\"", "\"\""));
	expect("{\"format\": \"email\"}", KIT_LIST("\"a.b@c-d.org\""),
	       KIT_LIST("\"a@b\"", "\"@b.org\"", "\"a b@c.org\""));
	expect("{\"format\": \"ipv4\"}", KIT_LIST("\"10.0.255.1\""),
	       KIT_LIST("\"10.0.256.1\"", "\"10.0.1\""));
	expect("{\"format\": \"anything\"}", KIT_LIST("\"\""), KIT_LIST("1"));
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* Whole numbers of a window, each tried, against the bounds. */
static void expect_integers(const char *schema, int from, int to)
{
	struct grammar *g = kit_compile_ok(schema_read, schema);

	for (int i = -1300; i <= 1300; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%d", i);
		EXPECT_EQ(i >= from && i <= to, kit_accepts(g, text))
		{
			TH_LOG("%s: %d", schema, i);
		}
	}
	EXPECT_FALSE(kit_accepts(g, "-0"));
	EXPECT_FALSE(kit_accepts(g, "01"));
	EXPECT_FALSE(kit_accepts(g, "1.0"));
	grammar_destroy(g);
}

TEST(integers_are_within_their_bounds)
{
	static const int edges[] = { -1234, -999, -120, -10, -1,  0,
				     1,	    9,	  10,	99,  101, 1234 };
	const size_t nr = sizeof(edges) / sizeof(edges[0]);

	for (size_t i = 0; i < nr; i++)
		for (size_t k = i; k < nr; k++) {
			char schema[120];

			snprintf(
				schema, sizeof(schema),
				"{\"type\": \"integer\", \"minimum\": %d, \"maximum\": %d}",
				edges[i], edges[k]);
			expect_integers(schema, edges[i], edges[k]);
		}
	expect_integers("{\"type\": \"integer\", \"minimum\": 7}", 7, 9999);
	expect_integers("{\"type\": \"integer\", \"maximum\": -7}", -9999, -7);
	expect_integers("{\"type\": \"integer\", \"exclusiveMinimum\": -3, "
			"\"exclusiveMaximum\": 3}",
			-2, 2);
	expect_integers("{\"type\": \"integer\", \"minimum\": 0.5, "
			"\"exclusiveMaximum\": 3.5}",
			1, 3);
	expect_integers("{\"type\": \"integer\", \"minimum\": 1, "
			"\"exclusiveMinimum\": true, \"maximum\": 4}",
			2, 4);
}

TEST(numbers_are_within_their_bounds)
{
	expect("{\"type\": \"number\", \"minimum\": -1, \"maximum\": 2}",
	       KIT_LIST("0", "1.99", "2", "-1", "-0.5", "0.0"),
	       KIT_LIST("2.1", "3", "-1.5", "-2", "1e9", "1."));
	expect("{\"type\": \"number\", \"exclusiveMinimum\": 0, "
	       "\"exclusiveMaximum\": 1}",
	       KIT_LIST("0.5", "0.05", "0.999"),
	       KIT_LIST("0", "0.0", "1", "1.0", "0.50", "-0.5"));
	expect("{\"type\": \"number\", \"minimum\": 10, \"maximum\": 10}",
	       KIT_LIST("10"), KIT_LIST("10.5", "9", "11"));
}

/* ---- combinations ------------------------------------------------------------------------- */

TEST(alternatives_hold_with_what_stands_beside_them)
{
	expect("{\"anyOf\": [{\"type\": \"null\"}, {\"maxLength\": 1}]}",
	       KIT_LIST("null", "\"a\""), KIT_LIST("\"ab\"", "1"));
	expect("{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\"}}, "
	       "\"required\": [\"x\"], \"oneOf\": [{\"properties\": {\"y\": {\"type\": "
	       "\"null\"}}, \"required\": [\"y\"]}, {\"properties\": {\"x\": "
	       "{\"maximum\": 3, \"minimum\": 2}}}]}",
	       KIT_LIST("{\"x\":7,\"y\":null}", "{\"x\":2}"),
	       KIT_LIST("{\"x\":7}", "{\"y\":null}"));
}

TEST(all_of_is_merged)
{
	expect("{\"$defs\": {\"p\": {\"properties\": {\"a\": {\"type\": \"string\"}}, "
	       "\"required\": [\"a\"]}}, \"allOf\": [{\"$ref\": \"#/$defs/p\"}, "
	       "{\"properties\": {\"b\": {\"type\": \"null\"}, \"a\": {\"maxLength\": 1}}, "
	       "\"required\": [\"b\"]}]}",
	       KIT_LIST("{\"a\":\"x\",\"b\":null}"),
	       KIT_LIST("{\"a\":\"xy\",\"b\":null}", "{\"a\":\"x\"}"));
	expect("{\"allOf\": [{\"type\": [\"number\", \"null\"], \"minimum\": 3}, "
	       "{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 9}]}",
	       KIT_LIST("5", "9"), KIT_LIST("3", "4", "10", "null", "5.5"));
	expect("{\"allOf\": [{\"type\": \"integer\", \"maximum\": 9}, {\"type\": "
	       "\"number\", \"maximum\": 7}, {\"maximum\": 8}]}",
	       KIT_LIST("7", "-5"), KIT_LIST("8", "9", "1.5"));
	expect_err(
		"{\"allOf\": [{\"properties\": {\"b\": {}}}, {\"properties\": "
		"{\"a\": {}}, \"additionalProperties\": false}]}",
		"#/allOf/1: additionalProperties of one part forbids \"b\" "
		"of another");
	expect_err(
		"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}",
		"#/allOf/1: no type is in both");
	expect_err(
		"{\"allOf\": [{\"properties\": {\"a\": {}}, "
		"\"additionalProperties\": false}, {\"properties\": {\"b\": {}}}]}",
		"#/allOf/1: additionalProperties of one part forbids \"b\" "
		"of another");
	expect_err("{\"allOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}]}",
		   "#/allOf/1: pattern is there twice, and cannot be merged");
}

TEST(references_may_be_recursive)
{
	expect("{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"properties\": {\"v\": "
	       "{\"type\": \"integer\"}, \"next\": {\"anyOf\": [{\"$ref\": "
	       "\"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"]}}}",
	       KIT_LIST("{\"v\":1,\"next\":null}",
			"{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"),
	       KIT_LIST("{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}"));
	expect("{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}",
	       KIT_LIST("[]", "[[],[[]]]"), KIT_LIST("[1]", "[[]"));
	expect("{\"$ref\": \"#/definitions/a~1b~0\", \"definitions\": {\"a/b~\": "
	       "{\"type\": \"null\"}}}",
	       KIT_LIST("null"), KIT_LIST("1"));
	expect("{\"$ref\": \"#/$defs/p\", \"minimum\": 7, \"title\": \"t\", \"$defs\": "
	       "{\"p\": {\"type\": \"integer\"}}}",
	       KIT_LIST("7", "70"), KIT_LIST("6"));
}

/* ---- what is refused ------------------------------------------------------------------------ */

TEST(what_would_change_the_meaning_is_refused_with_its_pointer)
{
	static const char *const cases[][2] = {
		{ "{\"not\": {}}", "#/not: not is not supported" },
		{ "{\"properties\": {\"x\": {\"items\": {\"uniqueItems\": true}}}}",
		  "#/properties/x/items/uniqueItems: uniqueItems is not "
		  "supported" },
		{ "{\"anyOf\": [{}, {\"patternProperties\": {\"a\": {}}}]}",
		  "#/anyOf/1/patternProperties: patternProperties is not "
		  "supported" },
		{ "{\"type\": \"number\", \"multipleOf\": 2}",
		  "#/multipleOf: multipleOf is not supported" },
		{ "{\"type\": \"number\", \"minimum\": 0.5}",
		  "#: minimum of a number that is not whole is not supported" },
		{ "{\"pattern\": \"a(?=b)\"}",
		  "#/pattern: line 1, column 2: look-ahead is not supported" },
		{ "{\"pattern\": \"a\", \"maxLength\": 3}",
		  "#/pattern: beside minLength or maxLength it is not "
		  "supported" },
		{ "{\"enum\": [1], \"minimum\": 3}",
		  "#: minimum beside enum is not supported" },
		{ "{\"type\": \"object\", \"propertyNames\": false}",
		  "#/propertyNames: propertyNames is not supported" },
		{ "{\"type\": \"array\", \"contains\": true}",
		  "#/contains: contains is not supported" },
		{ "{\"anyOf\": [{}], \"oneOf\": [{}]}",
		  "#: anyOf beside oneOf is not supported" },
		{ "{\"$ref\": \"http://x\"}",
		  "#: $ref must be a JSON pointer into the schema "
		  "(\"#/$defs/...\"), not http://x" },
		{ "{\"$ref\": \"#/$defs/q\"}",
		  "#: $ref must be a JSON pointer into the schema "
		  "(\"#/$defs/...\"), not #/$defs/q" },
		{ "{\"type\": \"foo\"}", "#: unknown type \"foo\"" },
		{ "{\"enum\": []}", "#: enum must be an array, not empty" },
		{ "{\"type\": \"null\", \"enum\": [1]}",
		  "#: no value fits enum and its siblings" },
		{ "{\"anyOf\": []}", "#/anyOf: must be an array, not empty" },
		{ "{\"properties\": 3}", "#: properties must be an object" },
		{ "{\"minItems\": -1}",
		  "#: minItems must be a whole number of at least 0" },
		{ "{\"minItems\": 3, \"maxItems\": 2}",
		  "#: minItems 3 is more than maxItems 2" },
		{ "{\"minimum\": 3, \"maximum\": 2}",
		  "#: no number is between the bounds" },
		{ "[1]", "#: a schema is an object, true or false" },
		{ "nonsense", "#: the schema is no JSON" },
		{ "{\"enum\": [\"a\\u0000b\"]}",
		  "#: \\u0000 in a string is not supported" },
		{ "false", "no text ends the rule \"root\"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_err(cases[i][0], cases[i][1]);
	/* Neutral values and annotations pass. */
	expect("{\"type\": \"integer\", \"multipleOf\": 1, \"uniqueItems\": false, "
	       "\"minProperties\": 0, \"patternProperties\": {}, \"title\": \"t\", "
	       "\"x-own\": 1, \"default\": 3}",
	       KIT_LIST("3"), KIT_LIST("\"a\""));
}

TEST(schemas_that_go_on_for_ever_are_refused)
{
	char deep[2000] = "";

	expect_err(
		"{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"$ref\": "
		"\"#/$defs/a\"}}}",
		"the rule \"#/$defs/a\" begins with itself: left recursion is "
		"not supported");
	expect_err(
		"{\"$defs\": {\"a\": {\"properties\": {\"a\": {\"$ref\": "
		"\"#/$defs/a\"}}, \"required\": [\"a\"]}}, \"$ref\": \"#/$defs/a\"}",
		"no text ends the rule \"root\"");
	expect_err("{\"$ref\": \"#\", \"minimum\": 3}",
		   "#: $ref with siblings cannot be merged");
	for (int i = 0; i < 150; i++)
		strcat(deep, "{\"items\":");
	strcat(deep, "true");
	for (int i = 0; i < 150; i++)
		strcat(deep, "}");
	{
		struct grammar *g;
		char err[300];

		EXPECT_EQ(-EINVAL,
			  kit_compile(schema_read, deep, &g, err, sizeof(err)));
		EXPECT_TRUE(strstr(err, "more than 128 schemas within one "
					"another") != NULL);
	}
}

TEST(schemas_that_explode_are_refused)
{
	char text[8000];
	size_t len = 0;
	struct grammar *g;
	char err[300];

	/* Each level holds the one below twice: 2^20 parts. */
	len += (size_t)sprintf(text + len,
			       "{\"$ref\": \"#/$defs/a20\", \"$defs\": "
			       "{\"a0\": {\"type\": \"null\"}");
	for (int i = 1; i <= 20; i++)
		len += (size_t)sprintf(
			text + len,
			", \"a%d\": {\"anyOf\": [{\"allOf\": [{\"$ref\": \"#/$defs/a%d\"}, "
			"true]}, {\"allOf\": [{\"$ref\": \"#/$defs/a%d\"}, true]}]}",
			i, i - 1, i - 1);
	strcpy(text + len, "}}");
	EXPECT_EQ(-EINVAL,
		  kit_compile(schema_read, text, &g, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "the schema has more than 20000 parts") != NULL)
	{
		TH_LOG("%s", err);
	}
	EXPECT_EQ(-EINVAL, kit_compile(schema_read, "{\"minLength\": 1000000}",
				       &g, err, sizeof(err)));
	EXPECT_TRUE(strstr(err, "more than 262144 positions") != NULL);
}

/* ---- random instances ----------------------------------------------------------------------- */

/* A way through the automaton, drawn by lot; false: it became too long. */
static bool random_instance(struct grammar *g, uint64_t *seed, char *out,
			    size_t size, size_t *out_len)
{
	uint32_t state = grammar_start(g);

	for (*out_len = 0; *out_len < size; (*out_len)++) {
		uint32_t next[256], nr = 0, pick;
		uint8_t bytes[256];

		grammar_allow_work(g);
		for (uint32_t b = 0; b < 256; b++) {
			ASSERT_EQ(0, grammar_step(g, state, (uint8_t)b,
						  &next[nr]));
			bytes[nr] = (uint8_t)b;
			nr += next[nr] != GRAMMAR_DEAD;
		}
		if (grammar_accepts(g, state) &&
		    (!nr || kit_random(seed) % 3 == 0))
			return true;
		ASSERT_TRUE(nr > 0);
		pick = (uint32_t)kit_random(seed) % nr;
		/* Ends are preferred, or it would go on for ever. */
		for (uint32_t i = 0; i < nr && kit_random(seed) % 2; i++)
			if (strchr("\"]}", bytes[i]) && bytes[i])
				pick = i;
		out[*out_len] = (char)bytes[pick];
		state = next[pick];
	}
	return false;
}

TEST(every_text_of_a_schema_is_json)
{
	static const char *const schemas[] = {
		"{}",
		"{\"type\": \"object\", \"properties\": {\"a\": {}, \"ab\": {\"type\": "
		"\"number\", \"exclusiveMinimum\": -20, \"maximum\": 1000}, \"c\\\"\": "
		"{\"enum\": [\"x\", 2]}}, \"required\": [\"ab\"], "
		"\"additionalProperties\": {\"type\": \"string\", \"maxLength\": 4}}",
		"{\"items\": {\"type\": [\"string\", \"integer\", \"null\"], \"maxLength\": "
		"3, \"minimum\": -300}, \"minItems\": 2}",
		"{\"pattern\": \"^[^a-z]{1,9}$\"}",
		"{\"items\": {\"$ref\": \"#\"}, \"maxItems\": 2}",
	};
	uint64_t seed = 9;
	uint32_t nr = 0;

	for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
		struct grammar *g = kit_compile_ok(schema_read, schemas[i]);

		for (int round = 0; round < 60; round++) {
			char text[2000];
			json_error_t why;
			json_t *value;
			size_t len;

			if (!random_instance(g, &seed, text, sizeof(text),
					     &len))
				continue;
			value = json_loadb(text, len,
					   JSON_DECODE_ANY | JSON_ALLOW_NUL,
					   &why);
			/* jansson takes no names with NUL, and no number that large. */
			if (!value && (json_error_code(&why) ==
					       json_error_null_byte_in_key ||
				       json_error_code(&why) ==
					       json_error_numeric_overflow))
				continue;
			EXPECT_TRUE(value != NULL)
			{
				TH_LOG("%s: %.*s: %s", schemas[i], (int)len,
				       text, why.text);
			}
			json_decref(value);
			nr++;
		}
		grammar_destroy(g);
	}
	EXPECT_TRUE(nr > 150);
}

/* ---- calls of tools ----------------------------------------------------------------------- */

#define CALLS(is_parallel, tools)                                  \
	"{\"begin\": \"<\", \"between\": \"; \", \"end\": \">\", " \
	"\"is_parallel\": " is_parallel ", \"tools\": [" tools "]}"
#define CALLED(head, parameters) \
	"{\"head\": \"" head     \
	"(\", \"tail\": \")\", \"parameters\": " parameters "}"

TEST(calls_are_written_with_what_stands_around_them)
{
	static const char tools[] =
		CALLS("true",
		      CALLED("f", "{\"type\": \"integer\"}") ", null, " CALLED(
			      "g", "{\"enum\": [\"a\"]}"));

	kit_expect(calls_read, tools,
		   KIT_LIST("<f(1)>", "<g(\"a\")>", "<f(2); g(\"a\"); f(3)>"),
		   KIT_LIST("", "<>", "<f(1)", "f(1)>", "<f(\"a\")>", "<g(1)>",
			    "<f(1);f(2)>", "<f(1)f(2)>", "<f(1); >",
			    "<f(1)> "));
	kit_expect(calls_read,
		   CALLS("false", CALLED("f", "{\"type\": \"integer\"}")),
		   KIT_LIST("<f(1)>"), KIT_LIST("<f(1); f(2)>", "<>"));
}

/* Each tool's "#" is its own schema, whatever the names in it. */
TEST(references_stay_within_their_tool)
{
#define WITH_REF(type)                                                    \
	"{\"$ref\": \"#/$defs/x\", \"$defs\": {\"x\": {\"type\": \"" type \
	"\"}}}"
	kit_expect(calls_read,
		   CALLS("false", CALLED("f", WITH_REF("integer")) ", " CALLED(
					  "g", WITH_REF("boolean"))),
		   KIT_LIST("<f(1)>", "<g(true)>"),
		   KIT_LIST("<f(true)>", "<g(1)>"));
	/* A property may be named as a keyword is; a constant may look like a reference. */
	kit_expect(
		calls_read,
		CALLS("false",
		      CALLED("f",
			     "{\"type\": \"object\", \"properties\": {\"const\": {\"$ref\": "
			     "\"#/$defs/x\"}, \"b\": {\"const\": {\"$ref\": \"#\"}}}, "
			     "\"required\": "
			     "[\"const\"], \"$defs\": {\"x\": {\"type\": \"null\"}}}")),
		KIT_LIST("<f({\"const\":null})>",
			 "<f({\"const\":null,\"b\":{\"$ref\":\"#\"}})>"),
		KIT_LIST("<f({\"const\":1})>", "<f({})>"));
	/* A list that refers to itself. */
	kit_expect(
		calls_read,
		CALLS("false",
		      "null, " CALLED(
			      "f",
			      "{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}")),
		KIT_LIST("<f([])>", "<f([[],[[]]])>"), KIT_LIST("<f([1])>"));
}

TEST(what_a_tool_cannot_be_called_with_is_named)
{
	kit_compile_err(calls_read,
			CALLS("true",
			      "null, " CALLED("f", "{\"type\": \"tree\"}")),
			"#/tools/1/parameters: unknown type \"tree\"");
	kit_compile_err(
		calls_read,
		CALLS("true", CALLED("f", "{\"properties\": {\"a\": 1}}")),
		"#/tools/0/parameters/properties/a: a schema is an object, "
		"true or false");
}

TEST_HARNESS_MAIN
