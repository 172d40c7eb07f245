/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn run: one question, one answer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli.h"
#include "daemon/cli_answer.h"
#include "daemon/cli_session.h"
#include "daemon/textstream.h"

/* "-": the text of standard input, a blank line between it and what else is said. */
static int add_input(struct text *prompt)
{
	char *input;
	size_t len;
	int rc = cli_read_input(&input, &len);

	if (rc != 0)
		return rc;
	if (len && input[len - 1] == '\n')
		len--;
	if (prompt->len)
		rc = text_append(prompt, "\n\n", 2);
	if (rc == 0)
		rc = text_append(prompt, input, len);
	free(input);
	return rc;
}

/* Words in a row, with a 0 behind that is not counted. */
static int gather_prompt(const struct cli_options *options, struct text *prompt)
{
	bool after_input = false;
	int rc = 0;

	if (options->nr_words == 0)
		rc = add_input(prompt);
	for (int i = 0; rc == 0 && i < options->nr_words; i++) {
		const char *word = options->words[i];

		if (strcmp(word, "-") == 0) {
			rc = add_input(prompt);
			after_input = true;
			continue;
		}
		if (prompt->len)
			rc = text_append(prompt, after_input ? "\n\n" : " ",
					 after_input ? 2 : 1);
		if (rc == 0)
			rc = text_append(prompt, word, strlen(word));
		after_input = false;
	}
	if (rc == 0)
		rc = text_append(prompt, "", 1);
	if (rc == 0)
		prompt->len--;
	return rc;
}

/* Return: CLI_OK, or the exit code after a complaint. */
static int check_prompt(const struct cli_options *options,
			const struct text *prompt, int rc)
{
	if (rc == -EINTR)
		return cli_signal_exit();
	if (rc != 0) {
		cli_complain("cannot read the prompt: %s", strerror(-rc));
		return CLI_FAILURE;
	}
	if (!prompt->len)
		cli_complain("the prompt is empty. Try: tarn help run");
	else if (memchr(prompt->bytes, '\0', prompt->len))
		cli_complain("the prompt has a zero byte in it: is it text?");
	else if (!utf8_is_valid(prompt->bytes, prompt->len) ||
		 (options->system &&
		  !utf8_is_valid(options->system, strlen(options->system))))
		cli_complain("the prompt is not valid UTF-8");
	else
		return CLI_OK;
	return CLI_USAGE;
}

static int ask(const struct cli_options *options, const char *prompt)
{
	struct cli_session session;
	struct cli_answer answer = { 0 };
	json_t *messages = NULL;
	int exit_code = cli_session_open(options, &session);

	if (exit_code == CLI_OK && session.has_template && !options->is_raw) {
		messages = json_array();
		if (options->system)
			json_array_append_new(messages,
					      json_pack("{s:s, s:s}", "role",
							"system", "content",
							options->system));
		json_array_append_new(messages,
				      json_pack("{s:s, s:s}", "role", "user",
						"content", prompt));
	} else if (exit_code == CLI_OK && options->system) {
		cli_complain(
			"%s has no chat template, so --system has no place",
			session.model);
		exit_code = CLI_USAGE;
	}
	if (exit_code == CLI_OK)
		exit_code =
			cli_ask(&session, options, messages, prompt, &answer);
	if (exit_code == CLI_OK)
		cli_show_speed(&answer);
	text_deinit(&answer.text);
	json_decref(messages);
	cli_session_close(&session);
	return exit_code;
}

int cli_run(const struct cli_options *options)
{
	struct text prompt = { 0 };
	int rc, exit_code;

	if (options->nr_words == 0 && isatty(STDIN_FILENO)) {
		cli_complain("run needs a prompt. Try: tarn help run");
		return CLI_USAGE;
	}
	rc = gather_prompt(options, &prompt);
	exit_code = check_prompt(options, &prompt, rc);
	if (exit_code == CLI_OK)
		exit_code = ask(options, prompt.bytes);
	text_deinit(&prompt);
	return exit_code;
}
