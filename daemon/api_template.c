/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /apply-template, in llama-server's shape: the prompt that the model's
 * template makes of a chat request, without computing it.
 *
 *	{"messages": [...], "tools": [...], any variable of the template} -> {"prompt": text}
 */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/api_fields.h"

/* Other variables of the template belong into chat_template_kwargs where the daemon is strict. */
static const char *const names[] = {
	"model",
	"messages",
	"tools",
	"documents",
	"add_generation_prompt",
	"continue_final_message",
	"chat_template",
	"chat_template_kwargs",
	"reasoning_effort",
	NULL,
};

char *api_apply_template(const struct api_context *context, const json_t *body,
			 struct api_error *error)
{
	const struct tarn_template *template =
		tarn_engine_template(context->engine);
	json_t *input, *answer;
	char *text = NULL, *json;
	const char *model = NULL;
	size_t len;
	bool is_good;

	if (context->is_strict && !api_check_names(body, names, NULL, error))
		return NULL;
	if (!api_read_string(body, "model", &model, &len, error) ||
	    (model && !api_check_model(context, model, len, error)))
		return NULL;
	if (!template) {
		api_template_refused(-ENOENT, "", error);
		return NULL;
	}
	input = api_template_input(body, &context->traits, true, error);
	if (!input)
		return NULL;
	is_good = api_template_text(template, input, &text, &len, error);
	json_decref(input);
	if (!is_good)
		return NULL;
	answer = json_pack("{s:o}", "prompt", json_stringn(text, len));
	free(text);
	json = api_dump(answer);
	if (!json)
		api_fail(error, 500, NULL, NULL, "out of memory");
	return json;
}
