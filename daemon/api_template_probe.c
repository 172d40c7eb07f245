/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which shapes of a request a template takes, by trying: see api_template.h.
 *
 * Templates do not say what they read, and what they do not read they leave
 * out without a word: a list of parts where they print text, the arguments of
 * a call as JSON in quotes, a call whose message has a content of "" and not
 * none, the tools. So words that occur nowhere else are put into a conversation, and
 * looked for in the prompt.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api_template.h"
#include "engine/engine.h"

/*
 * No word is a part of another. The id has nine letters and digits, as Mistral's templates
 * demand; the turns alternate, as many templates do.
 */
#define WORD_TEXT "zqtext"
#define WORD_TOOL "zqtool"
#define WORD_KEY "zqkey"
#define WORD_VALUE "zqvalue"
#define ARGUMENTS "{\"" WORD_KEY "\": \"" WORD_VALUE "\"}"
/* The texts of BOS and EOS are for templates that come without a model. */
#define START "{\"bos_token\": \"\", \"eos_token\": \"\", \"documents\": null, "
#define QUESTION(content) \
	"\"messages\": [{\"role\": \"user\", \"content\": " content "}"
#define TOOLS                                                            \
	"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": " \
	"\"" WORD_TOOL "\", \"description\": \"d\", \"parameters\": "    \
	"{\"type\": \"object\", \"properties\": {}}}}], "
#define CALL_BEFORE_CONTENT   \
	START TOOLS QUESTION( \
		"\"q\"") ", {\"role\": \"assistant\", \"content\": "
#define CALL_BEFORE_ARGUMENTS                                        \
	", \"tool_calls\": [{\"id\": \"zq3456789\", \"type\": "      \
	"\"function\", \"function\": {\"name\": \"" WORD_TOOL "\", " \
	"\"arguments\": "
#define CALL_END                                                       \
	"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"zq3456789\", " \
	"\"name\": \"" WORD_TOOL "\", \"content\": \"r\"}]}"
#define CALL(content, arguments) \
	CALL_BEFORE_CONTENT content CALL_BEFORE_ARGUMENTS arguments CALL_END
#define SAID(content) START "\"tools\": null, " QUESTION(content) "]}"
#define AS_TEXT "\"{\\\"" WORD_KEY "\\\": \\\"" WORD_VALUE "\\\"}\""

/* The prompt, malloc'ed; NULL where the template refuses. */
static char *render(const struct tarn_template *template, const char *request)
{
	char *text, err[8];
	size_t len;

	if (tarn_template_render(template, request, strlen(request), &text,
				 &len, err, sizeof(err)) != 0)
		return NULL;
	return text;
}

static bool holds(const struct tarn_template *template, const char *request,
		  const char *const *words, const char *unless)
{
	char *text = render(template, request);
	bool has_all = text != NULL;

	for (; has_all && *words; words++)
		has_all = strstr(text, *words) != NULL;
	has_all = has_all && !(unless && strstr(text, unless));
	free(text);
	return has_all;
}

static void probe_content(const struct tarn_template *template,
			  struct api_template_traits *out)
{
	static const char *const word[] = { WORD_TEXT, NULL };

	/* A list that is printed as Python would is not taken. */
	out->wants_parts =
		!holds(template, SAID("\"" WORD_TEXT "\""), word, NULL) &&
		holds(template,
		      SAID("[{\"type\": \"text\", \"text\": \"" WORD_TEXT
			   "\"}]"),
		      word, "'text'");
}

static void probe_calls(const struct tarn_template *template,
			struct api_template_traits *out)
{
	static const char *const key_and_value[] = { WORD_KEY, WORD_VALUE,
						     NULL };
	static const char *const whole[] = { ARGUMENTS, NULL };
	static const struct {
		const char *request;
		bool is_text, is_null;
	} ways[] = {
		{ CALL("\"\"", ARGUMENTS), false, false },
		{ CALL("\"\"", AS_TEXT), true, false },
		{ CALL("null", ARGUMENTS), false, true },
		{ CALL("null", AS_TEXT), true, true },
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		/* An object that is printed as Python would is not JSON. */
		if (!holds(template, ways[i].request,
			   ways[i].is_text ? whole : key_and_value,
			   ways[i].is_text ? NULL : "{'" WORD_KEY "': '"))
			continue;
		out->wants_text_arguments = ways[i].is_text;
		out->wants_null_content = ways[i].is_null;
		return;
	}
}

static void probe_tools(const struct tarn_template *template,
			struct api_template_traits *out)
{
	static const char *const name[] = { WORD_TOOL, NULL };

	out->knows_tools = holds(template, START TOOLS QUESTION("\"q\"") "]}",
				 name, NULL) ||
			   holds(template,
				 START TOOLS QUESTION("[{\"type\": \"text\", "
						      "\"text\": \"q\"}]") "]}",
				 name, NULL);
	out->tool_format =
		toolparse_format(tarn_template_source(template, true));
}

void api_template_probe(const struct tarn_template *template,
			struct api_template_traits *out)
{
	*out = (struct api_template_traits){ 0 };
	if (!template)
		return;
	probe_content(template, out);
	probe_calls(template, out);
	probe_tools(template, out);
}
