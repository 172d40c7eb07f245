/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn: chooses the command. Only this file exits.
 */
#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli.h"
#include "daemon/cli_signal.h"
#include "daemon/stdfds.h"
#include "daemon/textstream.h"
#include "daemon/version.h"

static const struct cli_command commands[] = {
	{ "run", CLI_RUN, cli_run },
	{ "chat", CLI_CHAT, cli_chat },
	{ "ps", CLI_PS, cli_ps },
	{ "pool", CLI_POOL, cli_pool },
	{ "tokenize", CLI_TOKENIZE, cli_tokenize },
	{ "inspect", CLI_INSPECT, cli_inspect },
	{ "template", CLI_TEMPLATE, cli_template },
};

enum { NR_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* ---- words for everyone ---------------------------------------------------------------- */

void cli_complain(const char *format, ...)
{
	char line[2048];
	va_list args;
	int start = snprintf(line, sizeof(line), "tarn: "), nr;
	size_t len;

	va_start(args, format);
	nr = vsnprintf(line + start, sizeof(line) - (size_t)start, format,
		       args);
	va_end(args);
	len = (size_t)(start + (nr > 0 ? nr : 0));
	if (len > sizeof(line) - 1)
		len = sizeof(line) - 1;
	/* Clients and files choose some of it. */
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	}
	fprintf(stderr, "%.*s\n", (int)len, line);
}

/* How long the control character at the start of @bytes is; 0: it is none. */
static size_t control_len(const char *bytes, size_t len)
{
	const unsigned char first = (unsigned char)bytes[0];

	if ((first < ' ' && first != '\n' && first != '\t') || first == 0x7f)
		return 1;
	/* U+0080 to U+009F: some terminals obey them. */
	return first == 0xc2 && len > 1 && (unsigned char)bytes[1] < 0xa0 ? 2 :
									    0;
}

int cli_print(FILE *out, const char *bytes, size_t len)
{
	const bool is_terminal = isatty(fileno(out));
	size_t plain, skip;
	bool is_written = true;

	while (is_written && len) {
		for (plain = 0, skip = 0; plain < len; plain++) {
			skip = is_terminal ?
				       control_len(bytes + plain, len - plain) :
				       0;
			if (skip)
				break;
		}
		is_written = fwrite(bytes, 1, plain, out) == plain;
		if (is_written && skip)
			is_written = fputs("\xef\xbf\xbd", out) >= 0;
		bytes += plain + skip;
		len -= plain + skip;
	}
	if (is_written && fflush(out) == 0)
		return 0;
	if (errno == EINTR && cli_signal_noted())
		return -EINTR;
	cli_complain("cannot write the answer: %s", strerror(errno));
	return -EIO;
}

int cli_print_json(const struct json_t *value)
{
	char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	int rc = -ENOMEM;

	if (text) {
		rc = cli_print(stdout, text, strlen(text));
		if (rc == 0)
			rc = cli_print(stdout, "\n", 1);
	}
	free(text);
	return rc == 0 ? CLI_OK : CLI_FAILURE;
}

int cli_read_input(char **out_text, size_t *out_len)
{
	struct text text = { 0 };
	char buffer[65536];
	ssize_t nr;
	int rc = 0;

	do {
		nr = read(STDIN_FILENO, buffer, sizeof(buffer));
		/* A signal counts while input flows as well. */
		if (cli_signal_noted())
			rc = -EINTR;
		else if (nr < 0)
			rc = errno == EINTR ? 0 : -errno;
		else if (text.len + (size_t)nr > CLI_MAX_INPUT_BYTES)
			rc = -EFBIG;
		else
			rc = text_append(&text, buffer, (size_t)nr);
	} while (rc == 0 && nr != 0);
	if (rc == 0)
		rc = text_append(&text, "", 1);
	if (rc != 0) {
		text_deinit(&text);
		return rc;
	}
	*out_text = text.bytes;
	*out_len = text.len - 1;
	return 0;
}

/* ---- choosing ---------------------------------------------------------------------------- */

static int unknown_command(const char *name)
{
	static const char *const names[] = { "run",	 "chat",     "ps",
					     "pool",	 "tokenize", "inspect",
					     "template", "help",     "version",
					     NULL };
	const char *nearest = cli_nearest(name, names);

	if (nearest)
		cli_complain(
			"unknown command \"%s\"; did you mean \"%s\"? Try: tarn help",
			name, nearest);
	else
		cli_complain("unknown command \"%s\". Try: tarn help", name);
	return CLI_USAGE;
}

static int show_help(const char *command)
{
	const char *text = cli_help(command);

	if (!text)
		return unknown_command(command);
	fputs(text, stdout);
	return CLI_OK;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
	struct cli_options options;
	char err[300];

	switch (cli_options_parse(argc, argv, command->bit, &options, err,
				  sizeof(err))) {
	case CLI_OPTIONS_HELP:
		return show_help(command->name);
	case CLI_OPTIONS_WRONG:
		cli_complain("%s%s Try: tarn help %s", err,
			     err[strlen(err) - 1] == '?' ? "" : ".",
			     command->name);
		return CLI_USAGE;
	default:
		return command->run(&options);
	}
}

static int choose(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (!name) {
		fputs(cli_help(NULL), stderr);
		return CLI_USAGE;
	}
	for (int i = 0; i < NR_COMMANDS; i++) {
		if (strcmp(name, commands[i].name) == 0)
			return run_command(&commands[i], argc - 1, argv + 1);
	}
	if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0 ||
	    strcmp(name, "-V") == 0) {
		puts("tarn " TARN_VERSION);
		return CLI_OK;
	}
	if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
	    strcmp(name, "-h") == 0)
		return show_help(argc > 2 ? argv[2] : NULL);
	return unknown_command(name);
}

int main(int argc, char **argv)
{
	int exit_code, rc = stdfds_fill();

	if (rc != 0)
		return CLI_FAILURE;
	rc = cli_signal_init();
	if (rc != 0) {
		cli_complain("cannot watch for signals: %s", strerror(-rc));
		return CLI_FAILURE;
	}
	if (curl_global_init(CURL_GLOBAL_NOTHING) != 0) {
		cli_complain("libcurl cannot be used");
		return CLI_FAILURE;
	}
	exit_code = choose(argc, argv);
	curl_global_cleanup();
	if (fclose(stdout) != 0 && exit_code == CLI_OK) {
		cli_complain("cannot write: %s", strerror(errno));
		exit_code = CLI_FAILURE;
	}
	return exit_code;
}
