/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to a ready daemon, its answer printed as it comes, and how fast
 * it was.
 */
#ifndef TARN_DAEMON_CLI_ANSWER_H
#define TARN_DAEMON_CLI_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/cli_options.h"
#include "daemon/cli_session.h"
#include "daemon/textstream.h"

enum { CLI_MAX_TOKENS = 1024 }; /* of an answer, unless --max-tokens says */

struct cli_answer {
	struct text text; /* all of it, valid UTF-8; text_deinit() it */
	bool is_cut; /* it reached the limit of tokens */
	bool has_usage;
	int64_t nr_prompt, nr_cached, nr_generated; /* tokens, with has_usage */
	double first_s,
		whole_s; /* from the question to the first and the last piece */
};

/**
 * cli_ask - ask, and print the answer on standard output
 * @messages: the conversation, for the model's chat template; NULL: @prompt is continued as it
 *	stands.
 * @answer: [out] what came, also after a failure.
 *
 * Return: CLI_OK; else an exit code, after a complaint unless a signal was the cause.
 */
int cli_ask(struct cli_session *session, const struct cli_options *options,
	    json_t *messages, const char *prompt, struct cli_answer *answer);
/* One line about tokens and speed on standard error. */
void cli_show_speed(const struct cli_answer *answer);

#endif /* TARN_DAEMON_CLI_ANSWER_H */
