/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end-of-generation set. Chat models end a turn with tokens other than
 * the one file's eos_token_id, so the known texts count too.
 */
#include "engine/token/ends.h"

#include <stddef.h>
#include <string.h>

/* Ends under any type: converters have marked some of them as normal. */
static const char *const sure_texts[] = {
	"<|eot_id|>",
	"<|im_end|>",
	"<|end|>",
	"<|return|>",
	"<|call|>",
	"<|flush|>",
	"<|calls|>",
	"<|endoftext|>",
	"<|eom_id|>",
	"<|end_of_text|>",
	"<end_of_turn>",
	"<end_of_utterance>",
	"<|eos|>",
	"<|end_of_turn|>",
	"<\uff5cend\u2581of\u2581sentence\uff5c>",
};

/*
 * Ends only as control tokens, for they are ordinary text elsewhere: "</s>"
 * closes a struck-out passage of HTML in Gemma's vocabulary. The last rows
 * begin another file in models trained to fill in code.
 */
static const char *const control_texts[] = {
	"<eos>",	 "</s>",	 "<EOT>",	"_<EOT>",
	"[EOT]",	 "[EOS]",	 "<|fim_pad|>", "<fim-pad>",
	"<fim_pad>",	 "<|fim_repo|>", "<fim-repo>",	"<reponame>",
	"<|repo_name|>", "<|file_sep|>",
};

void ends_add(struct ends *ends, int32_t id)
{
	if (id == TOKEN_NONE || ends_has(ends, id) || ends->nr == ENDS_MAX)
		return;
	ends->ids[ends->nr++] = id;
}

static int32_t find(const struct vocab *vocab, const char *text)
{
	return vocab_find(vocab, text, strlen(text));
}

void ends_add_known(struct ends *ends, struct vocab *vocab)
{
	/* Where these two end a message, "<|end|>" only closes a part of it. */
	bool has_parts = find(vocab, "<|return|>") != TOKEN_NONE &&
			 find(vocab, "<|call|>") != TOKEN_NONE;
	size_t i;

	for (i = 0; i < sizeof(sure_texts) / sizeof(sure_texts[0]); i++) {
		int32_t id = find(vocab, sure_texts[i]);

		if (id == TOKEN_NONE)
			continue;
		vocab->types[id] = TOKEN_CONTROL;
		if (!has_parts || strcmp(sure_texts[i], "<|end|>") != 0)
			ends_add(ends, id);
	}
	for (i = 0; i < sizeof(control_texts) / sizeof(control_texts[0]); i++) {
		int32_t id = find(vocab, control_texts[i]);

		if (id != TOKEN_NONE && vocab->types[id] == TOKEN_CONTROL)
			ends_add(ends, id);
	}
}
