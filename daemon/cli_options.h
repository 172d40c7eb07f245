/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of tarn's commands, and the texts of its help.
 */
#ifndef TARN_DAEMON_CLI_OPTIONS_H
#define TARN_DAEMON_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_command_bit {
	CLI_RUN = 1u << 0,
	CLI_CHAT = 1u << 1,
	CLI_PS = 1u << 2,
	CLI_TOKENIZE = 1u << 3,
	CLI_POOL = 1u << 4,
	CLI_INSPECT = 1u << 5,
	CLI_TEMPLATE = 1u << 6,
};

struct cli_options {
	/* A running daemon, of TARN_SOCKET where no flag names one; NULL: none is named. */
	const char *socket_path;
	const char *model_path; /* as given; NULL: see cli_model.h */
	const char *template_path;
	const char *ctx, *threads, *device; /* checked, handed on to tarnd */
	bool is_precise;
	const char *system;
	int64_t max_tokens; /* 0: not given */
	double temperature;
	double top_p; /* below 0: not given */
	int64_t top_k; /* below 0: not given */
	int64_t seed;
	bool has_seed;
	bool is_whole; /* print the answer in one piece */
	bool is_raw;
	bool is_verbose;
	bool is_json;
	bool shows_metadata, shows_tensors;
	bool parse_special, add_bos, allow_unknown_pre;
	char **words; /* what is no option */
	int nr_words;
};

enum cli_options_result {
	CLI_OPTIONS_RUN,
	CLI_OPTIONS_HELP,
	CLI_OPTIONS_WRONG,
};

/**
 * cli_options_parse - read one command's options
 * @argv: argv[0] is the command's name; strings of @options point into it.
 * @command: one bit of enum cli_command_bit.
 * @err: on CLI_OPTIONS_WRONG names the offence, with what was probably meant.
 */
enum cli_options_result cli_options_parse(int argc, char **argv,
					  unsigned int command,
					  struct cli_options *options,
					  char *err, size_t errlen);
/*
 * Of a list that ends in NULL, the word nearest to @word; NULL when none is near.
 */
const char *cli_nearest(const char *word, const char *const *words);

/* The help of a command, or of tarn itself for NULL. NULL: no such command. */
const char *cli_help(const char *command);

#endif /* TARN_DAEMON_CLI_OPTIONS_H */
