/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies into requests: what is taken, with which defaults, and what is
 * refused, with which status, field and reason. The engine is a double.
 */
#include "tests/daemon/api_kit.h"

TEST_F(api, completion_defaults)
{
	completion_ok(self, "{\"prompt\": \"hi\"}");
	const struct request_params *params = &self->request->params;

	EXPECT_EQ(3, self->request->nr_prompt);
	EXPECT_EQ(DOUBLE_START, self->request->prompt[0]);
	EXPECT_EQ(16, params->max_tokens);
	EXPECT_EQ(1, params->nr_choices);
	EXPECT_EQ(1.0f, params->sampling.temperature);
	EXPECT_EQ(1.0f, params->sampling.top_p);
	EXPECT_EQ(0.0f, params->sampling.min_p);
	EXPECT_EQ(0, params->sampling.top_k);
	EXPECT_FALSE(params->is_stream);
	EXPECT_FALSE(params->sampling.logprobs);
}

TEST_F(api, chat_defaults_to_the_rest_of_the_context)
{
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
	EXPECT_EQ(4096 - self->request->nr_prompt,
		  self->request->params.max_tokens);
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], "
		"\"max_tokens\": 5, \"max_completion_tokens\": 7}");
	EXPECT_EQ(7, self->request->params.max_tokens);
}

TEST_F(api, every_field_is_read)
{
	completion_ok(
		self,
		"{\"model\": \"double\", \"prompt\": [1, 2, 255], \"max_tokens\": 9, "
		"\"temperature\": 0.25, \"top_p\": 0.5, \"top_k\": 40, \"min_p\": 0.125, "
		"\"seed\": -3, \"n\": 4, \"stop\": [\"a\", \"b\\u0000c\"], \"logprobs\": 5, "
		"\"ignore_eos\": true, \"return_token_ids\": true, \"stream\": true, "
		"\"stream_options\": {\"include_usage\": true}, \"user\": \"x\"}");
	const struct request_params *params = &self->request->params;

	EXPECT_EQ(3, self->request->nr_prompt);
	EXPECT_EQ(255, self->request->prompt[2]);
	EXPECT_EQ(9, params->max_tokens);
	EXPECT_EQ(0.25f, params->sampling.temperature);
	EXPECT_EQ(0.5f, params->sampling.top_p);
	EXPECT_EQ(40, params->sampling.top_k);
	EXPECT_EQ(0.125f, params->sampling.min_p);
	EXPECT_EQ((uint64_t)-3, params->sampling.seed);
	EXPECT_EQ(4, params->nr_choices);
	ASSERT_EQ(2, params->nr_stops);
	EXPECT_EQ(3, params->stops[1].len);
	EXPECT_EQ(5, params->sampling.nr_logprobs);
	EXPECT_TRUE(params->sampling.logprobs);
	EXPECT_TRUE(params->sampling.ignore_eos);
	EXPECT_TRUE(params->return_token_ids);
	EXPECT_TRUE(params->is_stream);
	EXPECT_TRUE(params->include_usage);
}

TEST_F(api, seeds_are_random_when_absent)
{
	uint64_t first;

	completion_ok(self, "{\"prompt\": \"hi\"}");
	first = self->request->params.sampling.seed;
	completion_ok(self, "{\"prompt\": \"hi\", \"seed\": null}");
	EXPECT_NE(first, self->request->params.sampling.seed);
}

TEST_F(api, prompts_come_in_four_shapes)
{
	completion_ok(self, "{\"prompt\": \"a<end>\"}");
	EXPECT_EQ(3, self->request->nr_prompt);
	EXPECT_EQ(DOUBLE_END, self->request->prompt[2]);
	completion_ok(self, "{\"prompt\": [\"ab\"]}");
	EXPECT_EQ(3, self->request->nr_prompt);
	completion_ok(self, "{\"prompt\": [7, 8]}");
	EXPECT_EQ(2, self->request->nr_prompt);
	completion_ok(self, "{\"prompt\": [[7, 8, 9]]}");
	EXPECT_EQ(3, self->request->nr_prompt);
	completion_err("{\"prompt\": [\"a\", \"b\"]}", 400, "prompt",
		       "2 prompts");
	completion_err("{\"prompt\": [[1], [2]]}", 400, "prompt", "2 prompts");
	completion_err("{\"prompt\": {}}", 400, "prompt", "must be a string");
	completion_err("{\"prompt\": [true]}", 400, "prompt",
		       "must be a string");
	completion_err("{}", 400, "prompt", "missing");
}

TEST_F(api, empty_prompts_are_refused)
{
	completion_err("{\"prompt\": \"\"}", 400, "prompt", "empty");
	completion_err("{\"prompt\": []}", 400, "prompt", "empty");
	completion_err("{\"prompt\": [[]]}", 400, "prompt", "empty");
	chat_err("{\"messages\": []}", 400, "messages", "empty");
}

TEST_F(api, wrong_json_is_refused_with_its_place)
{
	completion_err("", 400, "", "not valid JSON");
	completion_err("{\"prompt\": \"a\"", 400, "", "line 1");
	completion_err("[1]", 400, "", "must be a JSON object, not an array");
	completion_err("\"x\"", 400, "", "not a string");
	completion_err("{\"prompt\": \"a\", \"prompt\": \"b\"}", 400, "",
		       "duplicate");
	completion_err("{\"prompt\": \"\xff\xfe\"}", 400, "",
		       "unable to decode byte 0xff");
	completion_err("{\"prompt\": \"\\ud800\"}", 400, "", "not valid JSON");
	completion_err("{\"prompt\": \"a\"} x", 400, "", "not valid JSON");
	completion_err("{\"prompt\": \"a\", \"temperature\": NaN}", 400, "",
		       "not valid JSON");
	completion_err("{\"prompt\": \"a\", \"temperature\": 1e999}", 400, "",
		       "not valid JSON");
	completion_err("{\"prompt\": \"a\", \"seed\": 99999999999999999999}",
		       400, "", "not valid JSON");
}

TEST_F(api, deep_nesting_is_refused_before_it_is_parsed)
{
	size_t len = 2 * 1000000;
	char *body = malloc(len);

	memset(body, '[', len / 2);
	memset(body + len / 2, ']', len / 2);
	EXPECT_FALSE(prepare_bytes(self, REQUEST_COMPLETION, body, len));
	EXPECT_EQ(400, self->error.status);
	EXPECT_TRUE(strstr(self->error.message, "1000000 levels") != NULL);
	free(body);
	/* Brackets in a string are text. */
	completion_ok(
		self,
		"{\"prompt\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
		"[[[[[[[[[[[[[[[[[[\\\"[[[[[\"}");
}

TEST_F(api, wrong_types_name_the_field)
{
	static const char *const cases[][3] = {
		{ "\"max_tokens\": \"5\"", "max_tokens",
		  "must be an integer, not a string" },
		{ "\"max_tokens\": 1.5", "max_tokens",
		  "must be an integer, not a number" },
		{ "\"temperature\": \"hot\"", "temperature",
		  "must be a number, not a string" },
		{ "\"stream\": 1", "stream",
		  "must be a boolean, not an integer" },
		{ "\"stop\": 3", "stop", "must be a string" },
		{ "\"stop\": [3]", "stop", "must be a string" },
		{ "\"model\": []", "model", "must be a string, not an array" },
		{ "\"n\": true", "n", "must be an integer, not a boolean" },
		{ "\"logprobs\": true", "logprobs", "must be an integer" },
		{ "\"stream_options\": 1, \"stream\": true", "stream_options",
		  "an object" },
		{ "\"ignore_eos\": 0", "ignore_eos", "must be a boolean" },
	};
	char body[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(body, sizeof(body), "{\"prompt\": \"a\", %s}",
			 cases[i][0]);
		completion_err(body, 400, cases[i][1], cases[i][2]);
	}
}

TEST_F(api, values_out_of_range_name_the_field)
{
	static const char *const cases[][2] = {
		{ "\"max_tokens\": 0", "max_tokens" },
		{ "\"max_tokens\": -1", "max_tokens" },
		{ "\"max_tokens\": 9223372036854775807", "max_tokens" },
		{ "\"temperature\": -0.1", "temperature" },
		{ "\"temperature\": 1e308", "temperature" },
		{ "\"top_p\": 1.01", "top_p" },
		{ "\"top_p\": -1", "top_p" },
		{ "\"min_p\": 2", "min_p" },
		{ "\"top_k\": -2", "top_k" },
		{ "\"top_k\": 2147483648", "top_k" },
		{ "\"n\": 0", "n" },
		{ "\"n\": 129", "n" },
		{ "\"logprobs\": 21", "logprobs" },
		{ "\"logprobs\": -1", "logprobs" },
		{ "\"stop\": \"\"", "stop" },
		{ "\"stop\": [\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\","
		  "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]",
		  "stop" },
		{ "\"stream_options\": {\"include_usage\": true}",
		  "stream_options" },
	};
	char body[300];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(body, sizeof(body), "{\"prompt\": \"a\", %s}",
			 cases[i][0]);
		completion_err(body, 400, cases[i][1], "");
	}
}

TEST_F(api, token_ids_out_of_range_name_their_place)
{
	completion_err("{\"prompt\": [1, 258]}", 400, "prompt",
		       "prompt[1] is 258");
	completion_err("{\"prompt\": [-1]}", 400, "prompt", "prompt[0] is -1");
	completion_err("{\"prompt\": [1, 4294967296]}", 400, "prompt",
		       "prompt[1] is 4294967296");
	completion_err("{\"prompt\": [1, 1.5]}", 400, "prompt",
		       "prompt[1] must be a token id");
	completion_err("{\"prompt\": [1, \"a\"]}", 400, "prompt",
		       "prompt[1] must be a token id");
}

TEST_F(api, a_prompt_beyond_the_context_gives_both_numbers)
{
	char body[8192];
	int len = snprintf(body, sizeof(body), "{\"prompt\": \"");

	memset(body + len, 'x', 4200);
	strcpy(body + len + 4200, "\"}");
	completion_err(body, 400, "prompt",
		       "4201 tokens, but the context holds 4096");
	EXPECT_STREQ("context_length_exceeded", self->error.code);
	completion_err("{\"prompt\": \"hi\", \"max_tokens\": 4094}", 400,
		       "max_tokens", "4097, but the context holds 4096");
	EXPECT_STREQ("context_length_exceeded", self->error.code);
	completion_ok(self, "{\"prompt\": \"hi\", \"max_tokens\": 4093}");
}

TEST_F(api, another_model_is_not_found)
{
	completion_ok(self, "{\"model\": \"double\", \"prompt\": \"a\"}");
	completion_ok(self, "{\"model\": \"byte-model\", \"prompt\": \"a\"}");
	completion_err("{\"model\": \"gpt-9\", \"prompt\": \"a\"}", 404,
		       "model", "gpt-9");
	EXPECT_STREQ("model_not_found", self->error.code);
}

TEST_F(api, what_is_not_built_must_have_its_type_all_the_same)
{
	completion_err("{\"prompt\": \"a\", \"tools\": true}", 400, "tools",
		       "must be an array");
	completion_err("{\"prompt\": \"a\", \"functions\": \"f\"}", 400,
		       "functions", "must be an array");
}

TEST_F(api, what_is_not_built_is_refused_unless_neutral)
{
	static const char *const cases[][2] = {
		{ "\"mirostat\": 1", "mirostat" },
		{ "\"suffix\": \"x\"", "suffix" },
		{ "\"response_format\": {\"type\": \"xml\"}",
		  "response_format" },
		{ "\"tools\": [{}]", "tools" },
		{ "\"tool_choice\": \"required\"", "tool_choice" },
	};
	char body[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(body, sizeof(body), "{\"prompt\": \"a\", %s}",
			 cases[i][0]);
		completion_err(body, 400, cases[i][1], "not supported");
	}
	completion_ok(
		self,
		"{\"prompt\": \"a\", \"mirostat\": 0, \"echo\": false, \"suffix\": \"\", "
		"\"response_format\": {\"type\": \"text\"}, \"tools\": [], "
		"\"tool_choice\": \"none\"}");
}

/* Another engine would obey them: no answer is better than another one than was asked for. */
TEST_F(api, fields_of_others_that_change_the_answer_are_refused)
{
	static const struct {
		const char *name, *neutral, *wanted;
	} cases[] = {
		{ "stop_token_ids", "[]", "[1]" },
		{ "allowed_token_ids", "[]", "[1]" },
		{ "bad_words", "[]", "[\"a\"]" },
		{ "min_tokens", "0", "3" },
		{ "include_stop_str_in_output", "false", "true" },
		{ "skip_special_tokens", "true", "false" },
		{ "truncate_prompt_tokens", "null", "1" },
		{ "prompt_logprobs", "null", "0" },
		{ "use_beam_search", "false", "true" },
		{ "length_penalty", "1.0", "1.1" },
		{ "dynatemp_range", "0", "0.5" },
		{ "add_special_tokens", "true", "false" },
		{ "max_completion_tokens", "null", "4" },
		{ "functions", "[]", "[{}]" },
		{ "min_tokens", "0.0", "\"0\"" },
		{ "use_beam_search", "false", "0" },
	};
	char body[200], plain[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(body, sizeof(body), "{\"prompt\": \"a\", \"%s\": %s}",
			 cases[i].name, cases[i].wanted);
		completion_err(body, 400, cases[i].name,
			       strcmp(cases[i].name, "max_completion_tokens") ?
				       "is not supported" :
				       "is a field of chats");
		EXPECT_STREQ("unsupported", self->error.code);
		self->context.is_strict = i % 2;
		snprintf(plain, sizeof(plain),
			 "{\"prompt\": \"a\", \"%s\": %s}", cases[i].name,
			 cases[i].neutral);
		if (strcmp(cases[i].name, "max_completion_tokens") ||
		    !self->context.is_strict)
			completion_ok(self, plain);
		self->context.is_strict = false;
	}
	chat_err("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		 "\"add_special_tokens\": true}",
		 400, "add_special_tokens", "is not supported");
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		"\"add_special_tokens\": false, \"max_completion_tokens\": 3}");
}

TEST_F(api, names_do_not_end_at_a_nul)
{
	completion_err("{\"prompt\": \"a\", \"model\": \"double\\u0000x\"}",
		       404, "model", "is not here");
	completion_err("{\"prompt\": \"a\", \"samplers\": [\"top_k\\u0000x\"]}",
		       400, "samplers", "must be a string");
	completion_err("{\"prompt\": \"a\", \"response_format\": {\"type\": "
		       "\"text\\u0000x\"}}",
		       400, "response_format", "must be an object with a type");
	chat_err(
		"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
		"\"text\\u0000x\", \"text\": \"a\"}]}]}",
		400, "messages", "only parts of type");
	chat_err("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		 "\"tool_choice\": \"none\\u0000x\"}",
		 400, "tool_choice", "must be");
}

TEST_F(api, unknown_fields_are_ignored_or_refused_when_strict)
{
	completion_ok(self, "{\"prompt\": \"a\", \"frobnicate\": 1}");
	self->context.is_strict = true;
	completion_err("{\"prompt\": \"a\", \"frobnicate\": 1}", 400,
		       "frobnicate", "unknown field frobnicate");
	completion_ok(self, "{\"prompt\": \"a\", \"top_k\": 1}");
	/* A field of the other endpoint is unknown here. */
	completion_err("{\"prompt\": \"a\", \"messages\": []}", 400, "messages",
		       "unknown field");
}

TEST_F(api, chat_content_may_come_in_text_parts)
{
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
		"\"text\": \"one\"}, {\"type\": \"text\", \"text\": \"two\"}]}]}");
	char *text;
	size_t len;

	ASSERT_EQ(0, tarn_detokenize(self->engine, self->request->prompt,
				     self->request->nr_prompt, false, &text,
				     &len));
	EXPECT_TRUE(memmem(text, len, "\"one\\ntwo\"", 10) != NULL);
	free(text);
	chat_err(
		"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
		400, "messages", "messages[0].content[0]");
}

/* The double's prompt is what its template would have got. */
TEST_F(api, chat_hands_variables_to_the_template)
{
	static const char *const want[] = {
		"\"enable_thinking\":false",
		"\"reasoning_effort\":\"low\"",
		"\"documents\":[{\"t\":1}]",
		"\"tools\":null",
		"\"add_generation_prompt\":false",
	};
	char *text;
	size_t len;

	self->context.traits.wants_parts = true;
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		"\"chat_template_kwargs\": {\"enable_thinking\": false}, "
		"\"reasoning_effort\": \"low\", \"documents\": [{\"t\": 1}], "
		"\"add_generation_prompt\": false, \"user\": \"me\"}");
	ASSERT_EQ(0, tarn_detokenize(self->engine, self->request->prompt,
				     self->request->nr_prompt, false, &text,
				     &len));
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		EXPECT_TRUE(memmem(text, len, want[i], strlen(want[i])) != NULL)
		{
			TH_LOG("%s in %.*s", want[i], (int)len, text);
		}
	}
	EXPECT_TRUE(memmem(text, len, "\"me\"", 4) == NULL);
	EXPECT_TRUE(memmem(text, len, "[{\"type\":\"text\",\"text\":\"a\"}]",
			   28) != NULL);
	free(text);
}

TEST_F(api, broken_messages_name_their_place)
{
	chat_err("{}", 400, "messages", "missing");
	chat_err("{\"messages\": {}}", 400, "messages", "must be an array");
	chat_err("{\"messages\": [1]}", 400, "messages",
		 "messages[0] must be an object");
	chat_err(
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"content\": \"b\"}]}",
		400, "messages", "messages[1].role");
	chat_err("{\"messages\": [{\"role\": 1}]}", 400, "messages",
		 "messages[0].role");
	chat_err("{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", 400,
		 "messages", "messages[0].content");
	chat_err(
		"{\"messages\": [{\"role\": \"user\", \"content\": \"REFUSE\"}]}",
		400, "messages", "roles must alternate");
}

TEST_F(api, chat_speaks_text_only)
{
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		"\"modalities\": [\"text\"]}");
	chat_err("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		 "\"modalities\": [\"text\", \"audio\"]}",
		 400, "modalities", "not supported");
}

TEST_F(api, chat_logprobs_are_a_flag_and_a_number)
{
	chat_ok(self,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
		"\"logprobs\": true, \"top_logprobs\": 20}");
	EXPECT_EQ(20, self->request->params.sampling.nr_logprobs);
	chat_err(
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 2}",
		400, "top_logprobs", "needs");
	chat_err(
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": 2}",
		400, "logprobs", "must be a boolean");
}

static const char *text_answer(struct fixture_api *self, enum request_kind kind,
			       const char *body)
{
	ASSERT_TRUE(prepare_bytes(self, kind, body, strlen(body)))
	{
		TH_LOG("%s", self->error.message);
	}
	return self->json;
}

TEST_F(api, tokenize_and_detokenize)
{
	EXPECT_STREQ(
		"{\"count\":3,\"max_model_len\":4096,\"tokens\":[257,104,105],"
		"\"token_strs\":null}",
		text_answer(self, REQUEST_TOKENIZE, "{\"prompt\": \"hi\"}"));
	EXPECT_STREQ(
		"{\"count\":2,\"max_model_len\":4096,\"tokens\":[104,256],"
		"\"token_strs\":[\"h\",\"<end>\"]}",
		text_answer(
			self, REQUEST_TOKENIZE,
			"{\"content\": \"h<end>\", \"add_special_tokens\": false, "
			"\"return_token_strs\": true}"));
	EXPECT_STREQ("{\"prompt\":\"h<end>\",\"content\":\"h<end>\"}",
		     text_answer(self, REQUEST_DETOKENIZE,
				 "{\"tokens\": [104, 256]}"));
	EXPECT_STREQ(
		"{\"prompt\":\"h\",\"content\":\"h\"}",
		text_answer(self, REQUEST_DETOKENIZE,
			    "{\"tokens\": [104, 256], \"special\": false}"));
	expect_refused(self, REQUEST_TOKENIZE, "{}", 400, "prompt", "needed");
	expect_refused(self, REQUEST_DETOKENIZE, "{\"tokens\": [300]}", 400,
		       "tokens", "300");
	expect_refused(self, REQUEST_DETOKENIZE, "{\"tokens\": \"x\"}", 400,
		       "tokens", "array");
}

TEST_F(api, apply_template_shows_the_prompt)
{
	EXPECT_STREQ(
		"{\"prompt\":\"user: a\\nassistant: \\u0000\\n\"}",
		text_answer(
			self, REQUEST_APPLY_TEMPLATE,
			"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
			"{\"role\": \"assistant\", \"content\": \"\\u0000\"}]}"));
	expect_refused(self, REQUEST_APPLY_TEMPLATE, "{}", 400, "messages",
		       "missing");
	expect_refused(
		self, REQUEST_APPLY_TEMPLATE,
		"{\"model\": \"other\", \"messages\": [{\"role\": \"user\"}]}",
		404, "model", "other");
	expect_refused(self, REQUEST_APPLY_TEMPLATE,
		       "{\"messages\": [{\"role\": \"user\"}], \"tools\": {}}",
		       400, "tools", "must be an array");
}

TEST(an_error_is_valid_json_whatever_the_client_sent)
{
	struct api_error error;
	char *json;

	api_fail(&error, 404, "model", "model_not_found", "no \"%s\"",
		 "\xff\x01\\");
	json = api_error_json(&error);
	EXPECT_STREQ(
		"{\"error\":{\"message\":\"no \\\"\xef\xbf\xbd\\u0001\\\\\\\"\","
		"\"type\":\"not_found_error\",\"param\":\"model\","
		"\"code\":\"model_not_found\"}}",
		json);
	free(json);
}

TEST_HARNESS_MAIN
