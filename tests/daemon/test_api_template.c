/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: what a template reads of a chat request: the shapes that
 * templates differ in are found out by trying, and what is wrong in messages
 * and tools is named with its place. Templates are real, there is no model.
 */
#include "daemon/api_fields.h"
#include "daemon/api_template.h"
#include "engine/engine.h"
#include "tests/harness.h"

/* As templates that are fine with OpenAI's shapes. */
static const char plain_source[] =
	"{% for m in messages %}[{{ m.role }}]{{ m.content }}"
	"{% for c in m.tool_calls or [] %}<{{ c.function.name }}:"
	"{{ c.function.arguments | tojson }}>{% endfor %}{% endfor %}";
/* As DeepSeek's: arguments are put between texts. */
static const char text_source[] =
	"{% for m in messages %}[{{ m.role }}]{{ m.content }}"
	"{% for c in m.tool_calls or [] %}<{{ c.function.name + ':' + "
	"c.function.arguments }}>{% endfor %}{% endfor %}";
/* As older ones of DeepSeek: what has content has no calls. */
static const char null_source[] =
	"{% for m in messages %}[{{ m.role }}]"
	"{% if m.content is none %}{% for c in m.tool_calls %}<{{ c.function.name }}:"
	"{{ c.function.arguments }}>{% endfor %}"
	"{% else %}{{ m.content }}{% endif %}{% endfor %}";
/* As Functionary's: what has no BOS is an error. */
static const char bos_source[] =
	"{% for m in messages %}{{ bos_token + m.role }}{% for c in m.tool_calls "
	"or [] %}{{ c.function.name + c.function.arguments + eos_token }}"
	"{% endfor %}{% endfor %}";
/* As those for pictures. */
static const char parts_source[] =
	"{% for m in messages %}[{{ m.role }}]{% for p in m.content %}"
	"{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}";

static struct tarn_template *parse(const char *source)
{
	struct tarn_template *t = NULL;
	char err[256] = "";

	ASSERT_EQ(0, tarn_template_parse(source, strlen(source), &t, err,
					 sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return t;
}

/* The prompt that @source makes of @request, or the error's message: malloc'ed. */
static char *prompt(const char *source, const char *request,
		    struct api_error *error)
{
	struct tarn_template *t = parse(source);
	struct api_template_traits traits;
	json_t *body, *input;
	char *text = NULL;
	size_t len;

	memset(error, 0, sizeof(*error));
	api_template_probe(t, &traits);
	body = api_parse_object(request, strlen(request), error);
	input = body ? api_template_input(body, &traits, true, error) : NULL;
	if (!input || !api_template_text(t, input, &text, &len, error))
		text = strdup(error->message);
	json_decref(input);
	json_decref(body);
	tarn_template_close(t);
	return text;
}

static void expect_prompt(const char *source, const char *request,
			  const char *want)
{
	struct api_error error;
	char *text = prompt(source, request, &error);

	EXPECT_STREQ(want, text);
	EXPECT_EQ(0, error.status);
	free(text);
}

static void expect_refused(const char *request, const char *param,
			   const char *message)
{
	struct api_error error;
	char *text = prompt(plain_source, request, &error);

	EXPECT_EQ(400, error.status)
	{
		TH_LOG("%s", request);
	}
	EXPECT_STREQ(param, error.param);
	EXPECT_STREQ(message, text);
	free(text);
}

/* A request whose second message is @call, and what follows. */
#define ASKED "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
#define CALL(arguments)                                                      \
	"{\"role\": \"assistant\", \"content\": null, \"tool_calls\": ["     \
	"{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": " \
	"\"f\", \"arguments\": " arguments "}}]}"
#define RESULT \
	"{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"r\"}"
#define TEXT_ARGUMENTS "\"{\\\"b\\\":[1.0,0.1],\\\"a\\\":null}\""
#define OBJECT_ARGUMENTS "{\"b\":[1.0,0.1],\"a\":null}"

TEST(traits_are_found_by_trying)
{
	static const struct {
		const char *source;
		struct {
			bool wants_parts, wants_text_arguments,
				wants_null_content;
		} want;
	} cases[] = {
		{ plain_source, { false, false, false } },
		{ text_source, { false, true, false } },
		{ null_source, { false, true, true } },
		{ parts_source, { true, false, false } },
		{ "{{ messages }}", { false, true, false } },
		{ "{{ raise_exception('no') }}", { false, false, false } },
		{ bos_source, { false, true, false } },
		{ "nothing", { false, false, false } },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tarn_template *t = parse(cases[i].source);
		struct api_template_traits got;

		memset(&got, 0xff, sizeof(got));
		api_template_probe(t, &got);
		EXPECT_EQ(cases[i].want.wants_parts, got.wants_parts)
		{
			TH_LOG("%s", cases[i].source);
		}
		EXPECT_EQ(cases[i].want.wants_text_arguments,
			  got.wants_text_arguments)
		{
			TH_LOG("%s", cases[i].source);
		}
		EXPECT_EQ(cases[i].want.wants_null_content,
			  got.wants_null_content)
		{
			TH_LOG("%s", cases[i].source);
		}
		tarn_template_close(t);
	}
}

TEST(arguments_come_as_the_template_takes_them)
{
	static const char as_text[] = ASKED CALL(TEXT_ARGUMENTS) ", " RESULT
								 "]}";
	static const char as_object[] = ASKED CALL(OBJECT_ARGUMENTS) ", " RESULT
								     "]}";
	static const char empty[] = ASKED CALL("\"\"") "]}";

	expect_prompt(
		plain_source, as_text,
		"[user]q[assistant]<f:{\"b\": [1.0, 0.1], \"a\": null}>[tool]r");
	expect_prompt(
		plain_source, as_object,
		"[user]q[assistant]<f:{\"b\": [1.0, 0.1], \"a\": null}>[tool]r");
	expect_prompt(
		text_source, as_text,
		"[user]q[assistant]<f:{\"b\":[1.0,0.1],\"a\":null}>[tool]r");
	expect_prompt(
		text_source, as_object,
		"[user]q[assistant]<f:{\"b\": [1.0, 0.1], \"a\": null}>[tool]r");
	expect_prompt(
		null_source, as_text,
		"[user]q[assistant]<f:{\"b\":[1.0,0.1],\"a\":null}>[tool]r");
	expect_prompt(plain_source, empty, "[user]q[assistant]<f:{}>");
	expect_prompt(text_source, empty, "[user]q[assistant]<f:{}>");
}

TEST(content_comes_as_the_template_takes_it)
{
	static const char request[] =
		"{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, "
		"{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": "
		"\"two\"}, {\"type\": \"text\", \"text\": \"three\"}]}, "
		"{\"role\": \"user\"}, {\"role\": \"x\", \"content\": null}]}";

	expect_prompt(plain_source, request,
		      "[user]one[assistant]two\nthree[user][x]");
	expect_prompt(parts_source, request,
		      "[user]one[assistant]two\nthree[user][x]");
}

TEST(variables_come_from_top_level_and_from_kwargs)
{
	static const char source[] =
		"{{ a }} {{ b }} {{ tools is none }} {{ documents is none }} "
		"{{ model is defined }} {{ n is defined }} {{ add_generation_prompt }} "
		"{{ bos_token }}";

	expect_prompt(
		source,
		"{\"messages\": [{\"role\": \"user\"}], \"a\": 1, \"b\": 2, \"n\": null, "
		"\"tools\": [], \"model\": \"m\", \"bos_token\": \"<s>\", "
		"\"chat_template_kwargs\": {\"b\": [\"3\"]}}",
		"1 ['3'] True True False False True <s>");
	expect_prompt(
		"{{ add_generation_prompt }}{{ tools[0].function.name }}",
		"{\"messages\": [{\"role\": \"user\"}], "
		"\"add_generation_prompt\": false, \"tools\": [{\"type\": "
		"\"function\", \"function\": {\"name\": \"f\"}}]}",
		"Falsef");
}

TEST(thoughts_have_every_name)
{
	static const char source[] =
		"{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }};{% endfor %}";

	expect_prompt(
		source,
		"{\"messages\": [{\"role\": \"a\", \"reasoning\": \"x\"}, "
		"{\"role\": \"a\", \"thinking\": \"y\"}, "
		"{\"role\": \"a\", \"reasoning_content\": \"z\", \"thinking\": \"w\"}, "
		"{\"role\": \"a\", \"reasoning_content\": null}]}",
		"x|x;y|y;z|w;|;");
}

/* As clients send back what they were answered. */
TEST(what_was_not_said_is_not_there)
{
	expect_prompt(
		"{% for m in messages %}{{ m.items() | list }}{% endfor %}",
		"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", "
		"\"tool_calls\": [], \"function_call\": null, \"refusal\": null}, "
		"{\"role\": \"assistant\", \"tool_calls\": null}]}",
		"[('role', 'assistant'), ('content', 'a')]"
		"[('role', 'assistant'), ('content', '')]");
}

TEST(the_clients_request_stays_as_it_is)
{
	struct api_template_traits traits = { .wants_parts = true };
	struct api_error error = { 0 };
	json_t *body = json_loads(ASKED CALL(TEXT_ARGUMENTS) "]}", 0, NULL);
	json_t *before = json_deep_copy(body);
	json_t *input = api_template_input(body, &traits, true, &error);

	ASSERT_TRUE(input != NULL);
	EXPECT_TRUE(json_equal(before, body));
	json_decref(input);
	json_decref(before);
	json_decref(body);
}

TEST(broken_calls_name_their_place)
{
	expect_refused(
		ASKED CALL("\"{\\\"a\\\": \"") "]}", "messages",
		"messages[1].tool_calls[0].function.arguments is not JSON: "
		"unexpected token near end of file");
	expect_refused(
		ASKED CALL("5") "]}", "messages",
		"messages[1].tool_calls[0].function.arguments must be a string of JSON");
	expect_refused(ASKED "{\"role\": \"assistant\", \"tool_calls\": {}}]}",
		       "messages", "messages[1].tool_calls must be an array");
	expect_refused(ASKED
		       "{\"role\": \"assistant\", \"tool_calls\": [{}]}]}",
		       "messages",
		       "messages[1].tool_calls[0].function must be an object");
	expect_refused(
		ASKED
		"{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}]}",
		"messages",
		"messages[1].tool_calls[0].function.name must be a string");
}

TEST(a_result_belongs_to_a_call)
{
	expect_refused(
		ASKED RESULT "]}", "messages",
		"messages[1] is the result of a tool, but no message before it has "
		"tool_calls");
	expect_refused(
		ASKED CALL(
			"\"{}\"") ", {\"role\": \"tool\", \"tool_call_id\": \"c2\"}]}",
		"messages",
		"messages[2].tool_call_id: no tool call before it has the id \"c2\"");
	expect_refused(
		ASKED CALL(
			"\"{}\"") ", {\"role\": \"tool\", \"tool_call_id\": 1}]}",
		"messages", "messages[2].tool_call_id must be a string");
	expect_prompt(
		plain_source,
		ASKED CALL(
			"\"{}\"") ", {\"role\": \"tool\", \"content\": \"r\"}]}",
		"[user]q[assistant]<f:{}>[tool]r");
}

#define TOOLS(list) \
	"{\"messages\": [{\"role\": \"user\"}], \"tools\": " list "}"

TEST(broken_tools_name_their_place)
{
	expect_refused(TOOLS("{}"), "tools", "tools must be an array");
	expect_refused(TOOLS("[1]"), "tools", "tools[0] must be an object");
	expect_refused(TOOLS("[{\"type\": \"x\"}]"), "tools",
		       "tools[0].type must be \"function\"");
	expect_refused(TOOLS("[{\"type\": \"function\"}]"), "tools",
		       "tools[0].function must be an object");
	expect_refused(
		TOOLS("[{\"type\": \"function\", \"function\": {\"name\": \"\"}}]"),
		"tools",
		"tools[0].function.name must be a string that is not empty");
	expect_refused(
		TOOLS("[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
		      "\"parameters\": []}}]"),
		"tools", "tools[0].function.parameters must be an object");
	expect_refused(
		TOOLS("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}, "
		      "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"),
		"tools",
		"tools[1].function.name: \"f\" is the name of a tool before it");
}

TEST(variables_do_not_replace_fields)
{
	expect_refused(
		"{\"messages\": [{\"role\": \"user\"}], "
		"\"chat_template_kwargs\": {\"messages\": []}}",
		"chat_template_kwargs",
		"chat_template_kwargs.messages: messages is a field of its own in "
		"the request");
	expect_refused("{\"messages\": [{\"role\": \"user\"}], "
		       "\"chat_template_kwargs\": []}",
		       "chat_template_kwargs",
		       "chat_template_kwargs must be an object");
	expect_refused("{\"messages\": []}", "messages", "messages is empty");
	expect_refused(
		"{\"messages\": [{\"role\": \"user\"}], "
		"\"add_generation_prompt\": 1}",
		"add_generation_prompt",
		"add_generation_prompt must be a boolean, not an integer");
}

/* What the template raises, and what it cannot do, with its line. */
TEST(refusals_of_the_template_are_told)
{
	struct api_error error;
	char *text = prompt("\n{{ raise_exception('no ' ~ messages[0].role) }}",
			    "{\"messages\": [{\"role\": \"user\"}]}", &error);

	EXPECT_STREQ("the chat template refused the messages: line 2: no user",
		     text);
	EXPECT_STREQ("messages", error.param);
	free(text);
}

TEST_HARNESS_MAIN
