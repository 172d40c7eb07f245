/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: tools of a chat from the request's body to the answer's: what
 * is refused, what the template gets, and the calls of an answer that is known
 * ahead, whole and in chunks; and calls and results back into a prompt, with a
 * template in the manner of each family.
 */
#include "daemon/api_fields.h"
#include "daemon/job.h"
#include "tests/daemon/api_kit.h"

#define WEATHER                                                        \
	"{\"type\": \"function\", \"function\": {\"name\": "           \
	"\"get_weather\", \"description\": \"d\", \"parameters\": "    \
	"{\"type\": \"object\", \"properties\": {\"city\": {\"type\":" \
	" \"string\"}}}}}"
#define CHAT(more) \
	"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]" more "}"
#define WITH_TOOLS(more) CHAT(", \"tools\": [" WEATHER "]" more)
#define TOOL(function)                                                        \
	CHAT(", \"tools\": [{\"type\": \"function\", \"function\": " function \
	     "}]")
#define CALL_TEXT                                                  \
	"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " \
	"{\"city\": \"Rome\"}}\n</tool_call>"

static void know_tools(struct fixture_api *self, enum tool_format format)
{
	self->context.traits.knows_tools = true;
	self->context.traits.tool_format = format;
}

/* ---- requests ---------------------------------------------------------------------- */

TEST_F(api, tools_reach_the_template_and_the_answer)
{
	char *text;
	size_t len;

	know_tools(self, TOOL_FORMAT_HERMES);
	chat_ok(self, WITH_TOOLS(", \"tool_choice\": \"auto\""));
	EXPECT_EQ(TOOL_FORMAT_HERMES, self->request->params.tool_format);
	EXPECT_FALSE(self->request->params.only_first_call);
	EXPECT_EQ(0, memcmp(self->request->params.tool_names, "get_weather\0",
			    13));
	/* The double's prompt is what its template would have got. */
	ASSERT_EQ(0, tarn_detokenize(self->engine, self->request->prompt,
				     self->request->nr_prompt, false, &text,
				     &len));
	EXPECT_TRUE(memmem(text, len, "get_weather", 11) != NULL);
	free(text);
	chat_ok(self, WITH_TOOLS(", \"parallel_tool_calls\": false"));
	EXPECT_TRUE(self->request->params.only_first_call);
}

TEST_F(api, with_the_choice_none_the_model_hears_of_no_tools)
{
	char *text;
	size_t len;

	/* Nor does it have to know them. */
	chat_ok(self, WITH_TOOLS(", \"tool_choice\": \"none\""));
	EXPECT_EQ(TOOL_FORMAT_NONE, self->request->params.tool_format);
	ASSERT_EQ(0, tarn_detokenize(self->engine, self->request->prompt,
				     self->request->nr_prompt, false, &text,
				     &len));
	EXPECT_TRUE(memmem(text, len, "\"tools\":null", 12) != NULL);
	EXPECT_TRUE(memmem(text, len, "get_weather", 11) == NULL);
	free(text);
	chat_err(CHAT(", \"tools\": [{}], \"tool_choice\": \"none\""), 400,
		 "tools", "tools[0].type");
	chat_ok(self, CHAT(", \"tools\": [], \"tool_choice\": \"auto\""));
}

TEST_F(api, tools_are_refused_where_the_model_could_not_use_them)
{
	chat_err(WITH_TOOLS(""), 400, "tools", "does not know tools");
	know_tools(self, TOOL_FORMAT_UNKNOWN);
	chat_err(WITH_TOOLS(""), 400, "tools",
		 "in a form that is not known here");
}

#define NAMED(name)                                                                    \
	", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"" name \
	"\"}}"

TEST_F(api, calls_that_must_come_are_written_by_a_grammar)
{
	static const struct {
		enum tool_format format;
		const char *text; /* of the grammar, its begin */
	} cases[] = {
		{ TOOL_FORMAT_HERMES,
		  "{\"begin\":\"\",\"between\":\"\\n\",\"end\":\"\",\"is_parallel\":true,"
		  "\"tools\":[{\"head\":\"<tool_call>\\n{\\\"name\\\": \\\"f\\\", "
		  "\\\"arguments\\\": \",\"parameters\":{\"type\":\"object\"},"
		  "\"tail\":\"}\\n</tool_call>\"}]}" },
		{ TOOL_FORMAT_LLAMA, "{\"begin\":\"\",\"between\":\"; \"" },
		{ TOOL_FORMAT_MISTRAL, "{\"begin\":\"[TOOL_CALLS][\"" },
		{ TOOL_FORMAT_FUNCTION, "{\"begin\":\"\",\"between\":\"\"" },
		{ TOOL_FORMAT_JSON, "{\"begin\":\"[\",\"between\":\", \"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		know_tools(self, cases[i].format);
		chat_ok(self,
			CHAT(", \"tool_choice\": \"required\", \"tools\": "
			     "[{\"type\": \"function\", \"function\": "
			     "{\"name\": \"f\", \"strict\": true}}]"));
		EXPECT_EQ(TARN_GRAMMAR_TOOL_CALLS, double_grammar_kind);
		EXPECT_EQ(0, strncmp(cases[i].text, double_grammar_text,
				     strlen(cases[i].text)))
		{
			TH_LOG("%s", double_grammar_text);
		}
		EXPECT_TRUE(self->request->params.grammar != NULL);
		EXPECT_EQ(self->request->params.grammar,
			  self->request->params.sampling.grammar);
	}
}

TEST_F(api, a_function_by_name_is_the_only_one)
{
	know_tools(self, TOOL_FORMAT_LLAMA);
	chat_ok(self,
		CHAT(", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
		     "\"f\"}}, {\"type\": \"function\", \"function\": {\"name\": \"g\"}}], "
		     "\"parallel_tool_calls\": false" NAMED("g")));
	EXPECT_TRUE(strstr(double_grammar_text,
			   "\"is_parallel\":false,\"tools\":[null,{\"head\":"
			   "\"{\\\"name\\\": \\\"g\\\"") != NULL)
	{
		TH_LOG("%s", double_grammar_text);
	}
	chat_err(WITH_TOOLS(NAMED("other")), 400, "tool_choice",
		 "names \"other\", which is not among tools");
	chat_err(CHAT(NAMED("other")), 400, "tool_choice", "not among tools");
	chat_err(WITH_TOOLS(", \"tool_choice\": {\"type\": \"function\"}"), 400,
		 "tool_choice", "as an object must be");
	chat_err(CHAT(", \"tool_choice\": \"required\""), 400, "tool_choice",
		 "there are no tools");
	chat_err(
		WITH_TOOLS(
			", \"tool_choice\": \"required\", \"guided_regex\": \"a\""),
		400, "tool_choice", "give one");
	chat_err(
		CHAT(", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
		     "\"bad\"}}], \"tool_choice\": \"required\""),
		400, "tools", "no such thing");
}

TEST_F(api, what_tools_cannot_be_is_refused)
{
	know_tools(self, TOOL_FORMAT_HERMES);
	chat_err(TOOL("{\"name\": \"f\", \"strict\": true}"), 400, "tools",
		 "tools[0].function.strict needs tool_choice");
	chat_ok(self, TOOL("{\"name\": \"f\", \"strict\": false}"));
	chat_err(TOOL("{\"name\": \"f\", \"strict\": 1}"), 400, "tools",
		 "must be true or false");
	chat_err(WITH_TOOLS(", \"tool_choice\": \"always\""), 400,
		 "tool_choice", "must be");
	chat_err(WITH_TOOLS(", \"tool_choice\": 1"), 400, "tool_choice",
		 "must be");
	chat_err(WITH_TOOLS(", \"parallel_tool_calls\": 1"), 400,
		 "parallel_tool_calls", "");
}

TEST_F(api, names_of_tools_have_letters_and_a_length)
{
	static const char *const bad[] = {
		"a b",
		"f.g",
		"\xc3\xa9",
		"f\\u0000",
		"a23456789a123456789a123456789a123456789a123456789a123456789a12345",
	};
	char body[400], *many, *at;

	know_tools(self, TOOL_FORMAT_HERMES);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(body, sizeof(body), TOOL("{\"name\": \"%s\"}"),
			 bad[i]);
		chat_err(body, 400, "tools", "must be 1 to 64 letters");
	}
	snprintf(body, sizeof(body), TOOL("{\"name\": \"%s\"}"), bad[4] + 1);
	chat_ok(self, body);
	chat_ok(self, TOOL("{\"name\": \"A-z_09\", \"description\": null}"));
	chat_err(TOOL("{\"name\": \"f\", \"description\": 1}"), 400, "tools",
		 "description must be a string");
	for (int nr = 128; nr <= 129; nr++) {
		many = malloc(20000);
		at = many +
		     sprintf(many,
			     "{\"messages\": [{\"role\": \"user\"}], \"max_tokens\": 1, "
			     "\"tool_choice\": \"none\", \"tools\": [");
		for (int i = 0; i < nr; i++)
			at += sprintf(
				at,
				"%s{\"type\": \"function\", \"function\": "
				"{\"name\": \"f%d\"}}",
				i ? ", " : "", i);
		strcpy(at, "]}");
		if (nr == 128)
			chat_ok(self, many);
		else
			chat_err(many, 400, "tools", "at most 128");
		free(many);
	}
}

/* ---- answers ------------------------------------------------------------------------ */

/* Computes the whole request; its replies in order. */
static struct queue_item *compute(struct fixture_api *self)
{
	const struct request_params *params = &self->request->params;
	const struct tarn_seq_params seq = {
		.prompt = self->request->prompt,
		.nr_prompt = self->request->nr_prompt,
		.max_new_tokens = params->max_tokens,
		.nr_choices = params->nr_choices,
		.sampling = params->sampling,
	};
	struct queue_item *first = NULL, **tail = &first;
	struct tarn_work work;
	struct tarn_result result;
	struct job *job;
	char err[100];

	ASSERT_EQ(0, tarn_seq_create(self->engine, &seq, &work.seq, err,
				     sizeof(err)));
	job = job_create(request_get(self->request), work.seq);
	while (tarn_seq_pending(work.seq) > 1) {
		const uint32_t left = tarn_seq_pending(work.seq) - 1;

		work.nr_tokens = left < 32 ? left : 32;
		ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &result));
	}
	ASSERT_EQ(0, job_fork(job));
	for (uint32_t i = 0; job->nr_open; i = (i + 1) % job->nr_lanes) {
		work.seq = job->lanes[i].seq;
		work.nr_tokens = 1;
		if (!work.seq)
			continue;
		ASSERT_EQ(0, tarn_step(self->engine, &work, 1, &result));
		ASSERT_EQ(0, job_take(job, i, &result, self->engine, &tail));
	}
	job_destroy(job);
	return first;
}

/* The body of the answer to @body, in which the model says @says. */
static json_t *answer_whole(struct fixture_api *self, const char *body,
			    const char *says)
{
	struct api_answer answer;
	json_t *root;
	char *json;

	double_answer = says;
	chat_ok(self, body);
	ASSERT_EQ(0, api_answer_init(&answer, &self->context, self->request));
	for (struct queue_item *item = compute(self); item;) {
		struct reply *reply = (struct reply *)item;

		item = item->next;
		ASSERT_EQ(0, api_answer_add(&answer, reply));
		reply_destroy(reply);
	}
	json = api_answer_json(&answer);
	root = json_loads(json, 0, NULL);
	ASSERT_TRUE(root != NULL);
	free(json);
	api_answer_deinit(&answer);
	return root;
}

static bool keep_chunk(void *arg, char *json)
{
	json_t *chunk = json_loads(json, 0, NULL);

	free(json);
	return json_array_append_new(arg, chunk) == 0;
}

/* The chunks of the streamed answer: an array. */
static json_t *answer_chunks(struct fixture_api *self, const char *body,
			     const char *says)
{
	json_t *chunks = json_array();
	struct api_answer answer;

	double_answer = says;
	chat_ok(self, body);
	ASSERT_TRUE(self->request->params.is_stream);
	ASSERT_EQ(0, api_answer_init(&answer, &self->context, self->request));
	for (struct queue_item *item = compute(self); item;) {
		struct reply *reply = (struct reply *)item;

		item = item->next;
		ASSERT_TRUE(
			api_answer_chunks(&answer, reply, keep_chunk, chunks));
		reply_destroy(reply);
	}
	api_answer_deinit(&answer);
	return chunks;
}

static const json_t *choice_of(const json_t *root, size_t i)
{
	return json_array_get(json_object_get(root, "choices"), i);
}

/* Strings of an object by a path of members and "#n" of arrays; "" where there is none. */
static const char *text_at(const json_t *value, const char *path)
{
	char name[40];
	int len;

	while (sscanf(path, "%39[^.]%n", name, &len) == 1) {
		value = name[0] == '#' ?
				json_array_get(value, (size_t)atoi(name + 1)) :
				json_object_get(value, name);
		path += len + (path[len] == '.');
	}
	return json_is_string(value) ? json_string_value(value) : "";
}

static bool is_id(const char *id)
{
	return strlen(id) == 29 && strncmp(id, "call_", 5) == 0 &&
	       strspn(id + 5, "0123456789abcdef") == 24;
}

TEST_F(api, a_call_in_a_whole_answer)
{
	const json_t *message;
	json_t *root;

	know_tools(self, TOOL_FORMAT_HERMES);
	root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 200"),
			    CALL_TEXT);
	message = json_object_get(choice_of(root, 0), "message");
	EXPECT_TRUE(json_is_null(json_object_get(message, "content")));
	EXPECT_STREQ("assistant", text_at(message, "role"));
	EXPECT_EQ(1, json_array_size(json_object_get(message, "tool_calls")));
	EXPECT_TRUE(is_id(text_at(message, "tool_calls.#0.id")));
	EXPECT_STREQ("function", text_at(message, "tool_calls.#0.type"));
	EXPECT_STREQ("get_weather",
		     text_at(message, "tool_calls.#0.function.name"));
	EXPECT_STREQ("{\"city\": \"Rome\"}",
		     text_at(message, "tool_calls.#0.function.arguments"));
	EXPECT_STREQ("tool_calls",
		     text_at(choice_of(root, 0), "finish_reason"));
	/* Every token counts, those of the call too, and the one that ended it. */
	EXPECT_EQ(strlen(CALL_TEXT) + 1, json_integer_value(json_object_get(
						 json_object_get(root, "usage"),
						 "completion_tokens")));
	json_decref(root);
}

TEST_F(api, an_answer_without_a_call_is_as_ever)
{
	json_t *root;

	know_tools(self, TOOL_FORMAT_HERMES);
	root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 200"),
			    "It is <tool> warm. ");
	EXPECT_STREQ("It is <tool> warm. ",
		     text_at(choice_of(root, 0), "message.content"));
	EXPECT_TRUE(
		json_object_get(json_object_get(choice_of(root, 0), "message"),
				"tool_calls") == NULL);
	EXPECT_STREQ("stop", text_at(choice_of(root, 0), "finish_reason"));
	json_decref(root);
	/* Nor is a call looked for where none was offered. */
	root = answer_whole(self, CHAT(", \"max_tokens\": 200"), CALL_TEXT);
	EXPECT_STREQ(CALL_TEXT, text_at(choice_of(root, 0), "message.content"));
	json_decref(root);
	/* Cut off: what there is of the call is content. */
	root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 30"),
			    CALL_TEXT);
	EXPECT_EQ(30, strlen(text_at(choice_of(root, 0), "message.content")));
	EXPECT_STREQ("length", text_at(choice_of(root, 0), "finish_reason"));
	json_decref(root);
}

TEST_F(api, each_choice_has_its_own_calls)
{
	static const char *const calls[] = { "tool_calls.#0.id",
					     "tool_calls.#1.id" };
	json_t *root;
	const json_t *message;

	know_tools(self, TOOL_FORMAT_HERMES);
	/* The double's second choice begins a byte later: its first marker is none. */
	root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 400, \"n\": 2"),
			    CALL_TEXT "\n" CALL_TEXT);
	message = json_object_get(choice_of(root, 0), "message");
	EXPECT_EQ(2, json_array_size(json_object_get(message, "tool_calls")));
	for (size_t i = 0; i < 2; i++)
		EXPECT_TRUE(is_id(text_at(message, calls[i])));
	EXPECT_TRUE(strcmp(text_at(message, calls[0]),
			   text_at(message, calls[1])) != 0);
	message = json_object_get(choice_of(root, 1), "message");
	EXPECT_STREQ(CALL_TEXT + 1, text_at(message, "content"));
	EXPECT_EQ(1, json_array_size(json_object_get(message, "tool_calls")));
	json_decref(root);
	root = answer_whole(self,
			    WITH_TOOLS(", \"max_tokens\": 400, "
				       "\"parallel_tool_calls\": false"),
			    CALL_TEXT "\n" CALL_TEXT);
	message = json_object_get(choice_of(root, 0), "message");
	EXPECT_EQ(1, json_array_size(json_object_get(message, "tool_calls")));
	json_decref(root);
}

TEST_F(api, a_call_in_chunks)
{
	const json_t *delta;
	json_t *chunks;
	size_t nr;

	know_tools(self, TOOL_FORMAT_HERMES);
	chunks = answer_chunks(
		self, WITH_TOOLS(", \"max_tokens\": 200, \"stream\": true"),
		"So:\n" CALL_TEXT);
	nr = json_array_size(chunks);
	/* S, o, :, the call's name, its arguments, the end; what is held back has no chunks. */
	ASSERT_EQ(6, nr);
	delta = json_object_get(choice_of(json_array_get(chunks, 0), 0),
				"delta");
	EXPECT_STREQ("assistant", text_at(delta, "role"));
	EXPECT_STREQ("S", text_at(delta, "content"));
	delta = json_object_get(choice_of(json_array_get(chunks, 3), 0),
				"delta");
	EXPECT_EQ(
		0,
		json_integer_value(json_object_get(
			json_array_get(json_object_get(delta, "tool_calls"), 0),
			"index")));
	EXPECT_TRUE(is_id(text_at(delta, "tool_calls.#0.id")));
	EXPECT_STREQ("function", text_at(delta, "tool_calls.#0.type"));
	EXPECT_STREQ("get_weather",
		     text_at(delta, "tool_calls.#0.function.name"));
	EXPECT_TRUE(json_is_string(json_object_get(
		json_object_get(
			json_array_get(json_object_get(delta, "tool_calls"), 0),
			"function"),
		"arguments")));
	EXPECT_STREQ("", text_at(delta, "tool_calls.#0.function.arguments"));
	delta = json_object_get(choice_of(json_array_get(chunks, 4), 0),
				"delta");
	EXPECT_STREQ("{\"city\": \"Rome\"}",
		     text_at(delta, "tool_calls.#0.function.arguments"));
	EXPECT_STREQ("", text_at(delta, "tool_calls.#0.id"));
	for (size_t i = 0; i < nr; i++)
		EXPECT_STREQ(i + 1 < nr ? "" : "tool_calls",
			     text_at(choice_of(json_array_get(chunks, i), 0),
				     "finish_reason"));
	json_decref(chunks);
}

TEST_F(api, a_call_alone_in_chunks_with_the_tokens_of_all)
{
	json_t *chunks, *chunk;
	const json_t *delta;
	size_t i, nr_tokens = 0;

	know_tools(self, TOOL_FORMAT_LLAMA);
	chunks = answer_chunks(
		self,
		WITH_TOOLS(
			", \"max_tokens\": 200, \"stream\": true, \"return_token_ids\": true"),
		"{\"name\": \"get_weather\", \"parameters\": {}}");
	json_array_foreach(chunks, i, chunk)
	{
		nr_tokens += json_array_size(
			json_object_get(choice_of(chunk, 0), "token_ids"));
	}
	EXPECT_EQ(strlen("{\"name\": \"get_weather\", \"parameters\": {}}") + 1,
		  nr_tokens);
	delta = json_object_get(choice_of(json_array_get(chunks, 0), 0),
				"delta");
	EXPECT_STREQ("assistant", text_at(delta, "role"));
	EXPECT_TRUE(json_is_null(json_object_get(delta, "content")));
	json_decref(chunks);
	chunks = answer_chunks(
		self, WITH_TOOLS(", \"max_tokens\": 200, \"stream\": true"),
		"{\"name\": \"get_weather\", \"parameters\": {}}");
	ASSERT_EQ(4, json_array_size(chunks));
	delta = json_object_get(choice_of(json_array_get(chunks, 1), 0),
				"delta");
	EXPECT_STREQ("get_weather",
		     text_at(delta, "tool_calls.#0.function.name"));
	json_decref(chunks);
}

/* The last token ends the call and the answer: only the last of its chunks says so. */
TEST_F(api, a_call_and_the_end_in_one)
{
	static const char says[] =
		"{\"name\": \"get_weather\", \"parameters\": {}}";
	static const char *const finish[] = { "", "", "length" };
	char body[400];
	json_t *chunks;

	know_tools(self, TOOL_FORMAT_LLAMA);
	snprintf(
		body, sizeof(body),
		WITH_TOOLS(", \"max_tokens\": %zu, \"stream\": true, \"n\": 1"),
		strlen(says));
	chunks = answer_chunks(self, body, says);
	ASSERT_EQ(3, json_array_size(chunks));
	for (size_t i = 0; i < 3; i++)
		EXPECT_STREQ(finish[i],
			     text_at(choice_of(json_array_get(chunks, i), 0),
				     "finish_reason"));
	json_decref(chunks);
}

/* A marker that is a control token has no text of its own in an answer. */
TEST_F(api, a_marker_may_be_a_control_token)
{
	static const char says[] =
		"\001[{\"name\": \"get_weather\", \"arguments\": {}}]";
	json_t *root;

	double_control = "[TOOL_CALLS]";
	know_tools(self, TOOL_FORMAT_MISTRAL);
	root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 200"), says);
	EXPECT_STREQ("get_weather",
		     text_at(choice_of(root, 0),
			     "message.tool_calls.#0.function.name"));
	json_decref(root);
	/* Without tools, and in a form that has no such marker, it stays silent. */
	root = answer_whole(self, CHAT(", \"max_tokens\": 200"), says);
	EXPECT_STREQ(says + 1, text_at(choice_of(root, 0), "message.content"));
	json_decref(root);
	know_tools(self, TOOL_FORMAT_HERMES);
	root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 200"), says);
	EXPECT_STREQ(says + 1, text_at(choice_of(root, 0), "message.content"));
	json_decref(root);
}

/* ---- there and back ------------------------------------------------------------------- */

#define EACH "{% for m in messages %}"
#define IF_TOOLS "{% if tools %}T:{{ tools[0].function.name }};{% endif %}"
#define ARGUMENTS "{{ c.function.arguments | tojson }}"

static const struct {
	const char *source;
	enum tool_format format;
	const char *prompt; /* of the round trip */
} families[] = {
	{ IF_TOOLS EACH
	  "<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
	  "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": " ARGUMENTS
	  "}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}",
	  TOOL_FORMAT_HERMES,
	  "T:get_weather;<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
	  "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n"
	  "</tool_call><|im_end|>\n<|im_start|>tool\n21<|im_end|>\n" },
	{ IF_TOOLS EACH
	  "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}"
	  "{% for c in m.tool_calls or [] %}{\"name\": \"{{ c.function.name }}\", "
	  "\"parameters\": " ARGUMENTS "}{% endfor %}<|eot_id|>{% endfor %}",
	  TOOL_FORMAT_LLAMA,
	  "T:get_weather;<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
	  "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"get_weather\", "
	  "\"parameters\": {\"city\": \"Rome\"}}<|eot_id|>"
	  "<|start_header_id|>tool<|end_header_id|>\n\n21<|eot_id|>" },
	{ IF_TOOLS EACH
	  "{% if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}{\"name\": "
	  "\"{{ c.function.name }}\", \"arguments\": " ARGUMENTS
	  "}{{ ', ' if not loop.last }}{% endfor %}]</s>{% else %}"
	  "[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}",
	  TOOL_FORMAT_MISTRAL,
	  "T:get_weather;[INST]q[/INST][TOOL_CALLS][{\"name\": \"get_weather\", "
	  "\"arguments\": {\"city\": \"Rome\"}}]</s>[INST]21[/INST]" },
	{ IF_TOOLS EACH
	  "[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}"
	  "[TOOL_CALLS]{{ c.function.name }}[ARGS]" ARGUMENTS
	  "{% endfor %}{% endfor %}",
	  TOOL_FORMAT_MISTRAL,
	  "T:get_weather;[user]q[assistant][TOOL_CALLS]get_weather[ARGS]"
	  "{\"city\": \"Rome\"}[tool]21" },
	{ IF_TOOLS EACH
	  "<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
	  "<function={{ c.function.name }}>" ARGUMENTS
	  "</function>{% endfor %}{% endfor %}",
	  TOOL_FORMAT_FUNCTION,
	  "T:get_weather;<|user|>q<|assistant|><function=get_weather>"
	  "{\"city\": \"Rome\"}</function><|tool|>21" },
	{ IF_TOOLS EACH
	  "<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
	  "{\"name\": \"{{ c.function.name }}\", \"arguments\": " ARGUMENTS
	  "}{% endfor %}{{ '\n' }}{% endfor %}",
	  TOOL_FORMAT_JSON,
	  "T:get_weather;<user>q\n<assistant>{\"name\": \"get_weather\", \"arguments\": "
	  "{\"city\": \"Rome\"}}\n<tool>21\n" },
};

/* What the model says to call: as its template writes it. */
static const char *const family_says[] = {
	CALL_TEXT,
	"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
	"[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]",
	"[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}",
	"<function=get_weather>{\"city\": \"Rome\"}</function>",
	"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}",
};

/* The prompt of the conversation so far, with the answer's message and a result: malloc'ed. */
static char *next_prompt(struct fixture_api *self,
			 const struct tarn_template *template, json_t *message)
{
	json_t *body = json_loads(WITH_TOOLS(""), 0, NULL);
	json_t *messages = json_object_get(body, "messages");
	json_t *input;
	char *text = NULL;
	size_t len;

	json_array_append(messages, message);
	json_array_append_new(messages,
			      json_pack("{s:s, s:s, s:s}", "role", "tool",
					"tool_call_id",
					text_at(message, "tool_calls.#0.id"),
					"content", "21"));
	input = api_template_input(body, &self->context.traits, false,
				   &self->error);
	ASSERT_TRUE(input && api_template_text(template, input, &text, &len,
					       &self->error))
	{
		TH_LOG("%s", self->error.message);
	}
	json_decref(input);
	json_decref(body);
	return text;
}

TEST_F(api, calls_go_there_and_back_in_every_family)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		struct tarn_template *template;
		json_t *root;
		char *text, err[200] = "";

		ASSERT_EQ(0, tarn_template_parse(families[i].source,
						 strlen(families[i].source),
						 &template, err, sizeof(err)))
		{
			TH_LOG("%zu: %s", i, err);
		}
		api_template_probe(template, &self->context.traits);
		EXPECT_TRUE(self->context.traits.knows_tools);
		EXPECT_EQ(families[i].format, self->context.traits.tool_format);
		root = answer_whole(self, WITH_TOOLS(", \"max_tokens\": 200"),
				    family_says[i]);
		text = next_prompt(self, template,
				   json_object_get(choice_of(root, 0),
						   "message"));
		EXPECT_STREQ(families[i].prompt, text);
		free(text);
		json_decref(root);
		tarn_template_close(template);
	}
}

TEST_F(api, a_template_without_tools_is_found_out)
{
	struct api_template_traits traits;

	api_template_probe(tarn_engine_template(self->engine), &traits);
	EXPECT_FALSE(traits.knows_tools);
	api_template_probe(NULL, &traits);
	EXPECT_FALSE(traits.knows_tools);
}

TEST_HARNESS_MAIN
