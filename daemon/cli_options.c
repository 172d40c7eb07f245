/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a command's options: see cli_options.h. One table says which command
 * takes which.
 */
#include "daemon/cli_options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_id {
	OPT_SOCKET = 256,
	OPT_MODEL,
	OPT_TEMPLATE,
	OPT_CTX,
	OPT_THREADS,
	OPT_DEVICE,
	OPT_PRECISE,
	OPT_SYSTEM,
	OPT_MAX_TOKENS,
	OPT_TEMPERATURE,
	OPT_TOP_P,
	OPT_TOP_K,
	OPT_SEED,
	OPT_NO_STREAM,
	OPT_RAW,
	OPT_VERBOSE,
	OPT_JSON,
	OPT_SPECIAL,
	OPT_BOS,
	OPT_METADATA,
	OPT_TENSORS,
	OPT_ALLOW_UNKNOWN_PRE,
	OPT_HELP,
};

enum {
	CLI_ASK = CLI_RUN | CLI_CHAT,
	CLI_FILE = CLI_TOKENIZE | CLI_TEMPLATE,
	CLI_ALL = CLI_ASK | CLI_PS | CLI_FILE | CLI_POOL | CLI_INSPECT
};

static const struct cli_option {
	const char *name;
	int has_arg;
	enum option_id id;
	unsigned int commands;
} cli_option_table[] = {
	{ "socket", required_argument, OPT_SOCKET, CLI_ASK | CLI_PS },
	{ "model", required_argument, OPT_MODEL, CLI_ASK | CLI_FILE },
	{ "template", required_argument, OPT_TEMPLATE, CLI_TEMPLATE },
	{ "ctx", required_argument, OPT_CTX, CLI_ASK },
	{ "threads", required_argument, OPT_THREADS, CLI_ASK },
	{ "device", required_argument, OPT_DEVICE, CLI_ASK },
	{ "precise", no_argument, OPT_PRECISE, CLI_ASK },
	{ "system", required_argument, OPT_SYSTEM, CLI_ASK },
	{ "max-tokens", required_argument, OPT_MAX_TOKENS, CLI_ASK },
	{ "temperature", required_argument, OPT_TEMPERATURE, CLI_ASK },
	{ "top-p", required_argument, OPT_TOP_P, CLI_ASK },
	{ "top-k", required_argument, OPT_TOP_K, CLI_ASK },
	{ "seed", required_argument, OPT_SEED, CLI_ASK },
	{ "no-stream", no_argument, OPT_NO_STREAM, CLI_ASK },
	{ "raw", no_argument, OPT_RAW, CLI_ASK },
	{ "verbose", no_argument, OPT_VERBOSE, CLI_ASK },
	{ "json", no_argument, OPT_JSON, CLI_PS | CLI_POOL | CLI_INSPECT },
	{ "metadata", no_argument, OPT_METADATA, CLI_INSPECT },
	{ "tensors", no_argument, OPT_TENSORS, CLI_INSPECT },
	{ "special", no_argument, OPT_SPECIAL, CLI_TOKENIZE },
	{ "bos", no_argument, OPT_BOS, CLI_TOKENIZE },
	{ "allow-unknown-pre", no_argument, OPT_ALLOW_UNKNOWN_PRE,
	  CLI_TOKENIZE },
	{ "help", no_argument, OPT_HELP, CLI_ALL },
};

enum { NR_OPTIONS = sizeof(cli_option_table) / sizeof(cli_option_table[0]) };

/* ---- what was probably meant --------------------------------------------------- */

/* How many letters to change, add or leave out to make one word the other. */
static unsigned int distance(const char *a, const char *b)
{
	enum { MAX_LEN = 31 };
	unsigned int row[MAX_LEN + 1];
	const size_t len = strlen(b);

	if (strlen(a) > MAX_LEN || len > MAX_LEN)
		return MAX_LEN;
	for (unsigned int j = 0; j <= len; j++)
		row[j] = j;
	for (unsigned int i = 1; a[i - 1]; i++) {
		unsigned int diagonal = row[0];

		row[0] = i;
		for (unsigned int j = 1; j <= len; j++) {
			const unsigned int above = row[j];
			unsigned int best = diagonal + (a[i - 1] != b[j - 1]);

			if (above + 1 < best)
				best = above + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = above;
			row[j] = best;
		}
	}
	return row[len];
}

const char *cli_nearest(const char *word, const char *const *words)
{
	/* A third of the letters may be wrong: more is another word. */
	unsigned int best = (unsigned int)strlen(word) / 3 + 1;
	const char *nearest = NULL;

	for (; *words; words++) {
		const unsigned int d = distance(word, *words);

		if (d <= best && (!nearest || d < best)) {
			best = d;
			nearest = *words;
		}
	}
	return nearest;
}

static void say_unknown(const char *given, unsigned int command, char *err,
			size_t errlen)
{
	const char *names[NR_OPTIONS + 1];
	const char *nearest;
	char word[32];
	size_t nr = 0;

	for (size_t i = 0; i < NR_OPTIONS; i++) {
		if (cli_option_table[i].commands & command)
			names[nr++] = cli_option_table[i].name;
	}
	names[nr] = NULL;
	while (*given == '-')
		given++;
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(given, "="), given);
	nearest = cli_nearest(word, names);
	if (nearest)
		snprintf(err, errlen,
			 "unknown option \"--%s\"; did you mean \"--%s\"?",
			 word, nearest);
	else
		snprintf(err, errlen, "unknown option \"--%s\"", word);
}

/* What getopt_long() answered with '?'. */
static void say_refused(const char *given, unsigned int command, char *err,
			size_t errlen)
{
	if (optopt >= OPT_SOCKET)
		snprintf(err, errlen, "\"%s\": this option takes no value",
			 given);
	else if (optopt)
		snprintf(err, errlen, "unknown option \"-%c\"", optopt);
	else
		say_unknown(given, command, err, errlen);
}

/* ---- single values: false with @err filled -------------------------------------- */

static const char *name_of(enum option_id id)
{
	for (size_t i = 0; i < NR_OPTIONS; i++) {
		if (cli_option_table[i].id == id)
			return cli_option_table[i].name;
	}
	return "?";
}

static bool wrong(char *err, size_t errlen, enum option_id id, const char *text,
		  const char *wanted)
{
	snprintf(err, errlen, "--%s: \"%s\" is not %s", name_of(id), text,
		 wanted);
	return false;
}

static bool read_int(enum option_id id, const char *text, int64_t min,
		     const char *wanted, int64_t *value, char *err,
		     size_t errlen)
{
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (end == text || *end || errno || number < min)
		return wrong(err, errlen, id, text, wanted);
	*value = number;
	return true;
}

static bool read_real(enum option_id id, const char *text, double max,
		      const char *wanted, double *value, char *err,
		      size_t errlen)
{
	char *end;
	double number = strtod(text, &end);

	if (end == text || *end || !isfinite(number) || number < 0 ||
	    number > max)
		return wrong(err, errlen, id, text, wanted);
	*value = number;
	return true;
}

static bool read_text(enum option_id id, const char *text, const char *wanted,
		      const char **value, char *err, size_t errlen)
{
	if (!*text)
		return wrong(err, errlen, id, text, wanted);
	*value = text;
	return true;
}

static bool read_device(const char *text, char *err, size_t errlen)
{
	if (!strcmp(text, "auto") || !strcmp(text, "cpu") ||
	    !strcmp(text, "cuda"))
		return true;
	return wrong(err, errlen, OPT_DEVICE, text, "one of auto cpu cuda");
}

static bool read_value(enum option_id id, const char *text,
		       struct cli_options *o, char *err, size_t errlen)
{
	int64_t number;

	switch (id) {
	case OPT_SOCKET:
		/* Empty: none, whatever TARN_SOCKET says. */
		o->socket_path = *text ? text : NULL;
		return true;
	case OPT_MODEL:
		return read_text(id, text, "the path of a file", &o->model_path,
				 err, errlen);
	case OPT_TEMPLATE:
		return read_text(id, text, "the path of a file",
				 &o->template_path, err, errlen);
	case OPT_CTX:
		o->ctx = text;
		return read_int(id, text, 1, "a number of tokens", &number, err,
				errlen);
	case OPT_THREADS:
		o->threads = text;
		return read_int(id, text, 1, "a number of threads", &number,
				err, errlen);
	case OPT_DEVICE:
		o->device = text;
		return read_device(text, err, errlen);
	case OPT_SYSTEM:
		o->system = text;
		return true;
	case OPT_MAX_TOKENS:
		return read_int(id, text, 1, "a number of tokens from 1",
				&o->max_tokens, err, errlen);
	case OPT_TEMPERATURE:
		return read_real(id, text, 2, "a number from 0 to 2",
				 &o->temperature, err, errlen);
	case OPT_TOP_P:
		return read_real(id, text, 1, "a number from 0 to 1", &o->top_p,
				 err, errlen);
	case OPT_TOP_K:
		return read_int(id, text, 0, "a number of tokens, or 0 for all",
				&o->top_k, err, errlen);
	case OPT_SEED:
		o->has_seed = true;
		return read_int(id, text, INT64_MIN,
				"a whole number of 64 bits", &o->seed, err,
				errlen);
	default:
		return false;
	}
}

static void set_flag(enum option_id id, struct cli_options *options)
{
	bool *flags[] = {
		[OPT_PRECISE - OPT_SOCKET] = &options->is_precise,
		[OPT_NO_STREAM - OPT_SOCKET] = &options->is_whole,
		[OPT_RAW - OPT_SOCKET] = &options->is_raw,
		[OPT_VERBOSE - OPT_SOCKET] = &options->is_verbose,
		[OPT_JSON - OPT_SOCKET] = &options->is_json,
		[OPT_SPECIAL - OPT_SOCKET] = &options->parse_special,
		[OPT_BOS - OPT_SOCKET] = &options->add_bos,
		[OPT_METADATA - OPT_SOCKET] = &options->shows_metadata,
		[OPT_TENSORS - OPT_SOCKET] = &options->shows_tensors,
		[OPT_ALLOW_UNKNOWN_PRE - OPT_SOCKET] =
			&options->allow_unknown_pre,
	};

	*flags[id - OPT_SOCKET] = true;
}

/* ---- the whole -------------------------------------------------------------------- */

/* Options of a daemon cannot be had from one that runs already. */
static bool check_together(const struct cli_options *options, char *err,
			   size_t errlen)
{
	const struct {
		bool is_given;
		enum option_id id;
	} of_daemon[] = {
		{ options->model_path, OPT_MODEL },
		{ options->ctx, OPT_CTX },
		{ options->threads, OPT_THREADS },
		{ options->device, OPT_DEVICE },
		{ options->is_precise, OPT_PRECISE },
	};

	if (options->is_raw && options->system) {
		snprintf(
			err, errlen,
			"--system needs the chat template, which --raw leaves out");
		return false;
	}
	for (size_t i = 0; i < sizeof(of_daemon) / sizeof(of_daemon[0]); i++) {
		if (!options->socket_path || !of_daemon[i].is_given)
			continue;
		snprintf(
			err, errlen,
			"--%s is for a daemon that tarn starts, but %.120s names one that "
			"runs (--socket= leaves it alone)",
			name_of(of_daemon[i].id), options->socket_path);
		return false;
	}
	return true;
}

static size_t options_of(unsigned int command, struct option *out)
{
	size_t nr = 0;

	for (size_t i = 0; i < NR_OPTIONS; i++) {
		const struct cli_option *option = &cli_option_table[i];

		if (option->commands & command)
			out[nr++] = (struct option){ .name = option->name,
						     .has_arg = option->has_arg,
						     .val = (int)option->id };
	}
	out[nr] = (struct option){ 0 };
	return nr;
}

enum cli_options_result cli_options_parse(int argc, char **argv,
					  unsigned int command,
					  struct cli_options *options,
					  char *err, size_t errlen)
{
	const char *named = getenv("TARN_SOCKET");
	struct option table[NR_OPTIONS + 1];
	int id;

	*options = (struct cli_options){ .top_p = -1, .top_k = -1 };
	if (named && *named && (command & (CLI_ASK | CLI_PS)))
		options->socket_path = named;
	options_of(command, table);
	optind = 0;
	opterr = 0;
	while ((id = getopt_long(argc, argv, command & CLI_ASK ? ":hv" : ":h",
				 table, NULL)) != -1) {
		switch (id) {
		case 'h':
		case OPT_HELP:
			return CLI_OPTIONS_HELP;
		case ':':
			snprintf(err, errlen, "%s needs a value",
				 argv[optind - 1]);
			return CLI_OPTIONS_WRONG;
		case '?':
			say_refused(argv[optind - 1], command, err, errlen);
			return CLI_OPTIONS_WRONG;
		case 'v':
			options->is_verbose = true;
			break;
		default:
			if (!optarg)
				set_flag((enum option_id)id, options);
			else if (!read_value((enum option_id)id, optarg,
					     options, err, errlen))
				return CLI_OPTIONS_WRONG;
		}
	}
	options->words = argv + optind;
	options->nr_words = argc - optind;
	return check_together(options, err, errlen) ? CLI_OPTIONS_RUN :
						      CLI_OPTIONS_WRONG;
}
