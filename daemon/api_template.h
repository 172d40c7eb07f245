/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a chat request to a prompt's text: what of the request a template may
 * read and in which shape, for every endpoint that takes messages and for
 * tarn template. Pure; any thread.
 */
#ifndef TARN_DAEMON_API_TEMPLATE_H
#define TARN_DAEMON_API_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/api_error.h"
#include "daemon/toolparse.h"

struct tarn_template;

/*
 * Which shapes a template takes. With all of the first three false, as most of them have it:
 * content is one text, arguments of tool calls are an object, and what is not said is "".
 */
struct api_template_traits {
	bool wants_parts; /* content that is one text is lost: a list of parts is not */
	bool wants_text_arguments; /* JSON text, which is printed as it stands */
	bool wants_null_content; /* tool calls beside a content of "" are lost */
	bool knows_tools; /* tools of a request are in the prompt */
	enum tool_format tool_format; /* how the model is told to call them */
};

/* Find out by rendering a few small conversations. @template NULL: all false. */
void api_template_probe(const struct tarn_template *template,
			struct api_template_traits *out);

/**
 * api_template_input - the object that the template reads
 * @body: of a chat request: messages, tools, documents, add_generation_prompt, reasoning_effort,
 *	chat_template_kwargs.
 * @all: every other member of @body is a variable too, but for the name of the model.
 *
 * Return: the caller's reference; NULL with @error filled.
 */
json_t *api_template_input(const json_t *body,
			   const struct api_template_traits *traits, bool all,
			   struct api_error *error);

/* Whether @tools, of a request, are right; @tools NULL is. Else false with @error filled. */
bool api_check_tools(const json_t *tools, struct api_error *error);

/*
 * The messages as templates take them: checked copies, with content as one text (or parts) and
 * arguments in the shape that @traits asks for. NULL with @error filled.
 */
json_t *api_template_messages(const json_t *messages,
			      const struct api_template_traits *traits,
			      struct api_error *error);

/* The prompt that @template makes of it: malloc'ed. Return: true, or false with @error filled. */
bool api_template_text(const struct tarn_template *template,
		       const json_t *input, char **out_text, size_t *out_len,
		       struct api_error *error);
/* Fill @error from what the engine answered to a rendering; always answers false. */
bool api_template_refused(int rc, const char *reason, struct api_error *error);

#endif /* TARN_DAEMON_API_TEMPLATE_H */
