/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line tarn: its commands, exit codes and messages. One thread.
 * Only cli_main.c exits.
 */
#ifndef TARN_DAEMON_CLI_H
#define TARN_DAEMON_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "daemon/cli_options.h"

/* What scripts may rely on; the manual page lists them. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILURE = 1,
	CLI_USAGE = 2,
	CLI_UNAVAILABLE = 3, /* no daemon, no model, or no kernel pools */
	CLI_INTERRUPTED = 130, /* 128 and the signal's number: SIGINT */
};

struct json_t;

struct cli_command {
	const char *name;
	unsigned int bit; /* of enum cli_command_bit */
	/* Return: the exit code. */
	int (*run)(const struct cli_options *options);
};

int cli_run(const struct cli_options *options);
int cli_chat(const struct cli_options *options);
int cli_ps(const struct cli_options *options);
int cli_pool(const struct cli_options *options);
int cli_tokenize(const struct cli_options *options);
int cli_inspect(const struct cli_options *options);
int cli_template(const struct cli_options *options);

/* One line on standard error, after "tarn: "; what cannot be printed becomes '?'. */
void cli_complain(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/*
 * Text from outside. On a terminal, control characters but tab and newline become U+FFFD, so that
 * it cannot steer the terminal; elsewhere every byte passes.
 * Return: 0 or -errno, after a complaint.
 */
int cli_print(FILE *out, const char *bytes, size_t len);
/* Indented, on standard output. Return: the exit code. */
int cli_print_json(const struct json_t *value);
enum { CLI_MAX_INPUT_BYTES = 256 << 20 };
/*
 * All of standard input, malloc'ed, with a 0 behind. Return: 0, -ENOMEM, -EINTR (a signal to end
 * by was noted), -EFBIG (more than CLI_MAX_INPUT_BYTES), -EIO.
 */
int cli_read_input(char **out_text, size_t *out_len);

#endif /* TARN_DAEMON_CLI_H */
