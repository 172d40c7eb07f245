/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn tokenize: text to token ids, with a model file alone. No daemon is
 * asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/cli_model.h"
#include "daemon/cli_session.h"
#include "engine/engine.h"

static int print_ids(const int32_t *ids, size_t nr)
{
	putchar('[');
	for (size_t i = 0; i < nr; i++)
		printf("%s%" PRId32, i ? ", " : "", ids[i]);
	puts("]");
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_OK;
	cli_complain("cannot write: %s", strerror(errno));
	return CLI_FAILURE;
}

int cli_tokenize(const struct cli_options *options)
{
	const unsigned int flags =
		(options->parse_special ? TARN_TOKENIZE_PARSE_SPECIAL : 0) |
		(options->add_bos ? TARN_TOKENIZE_ADD_SPECIAL : 0) |
		(options->allow_unknown_pre ? TARN_TOKENIZE_ALLOW_UNKNOWN_PRE :
					      0);
	char err[1024] = "";
	char *path = NULL, *text = NULL;
	int32_t *ids = NULL;
	size_t len, nr;
	int rc, exit_code = CLI_UNAVAILABLE;

	if (options->nr_words) {
		cli_complain(
			"tokenize reads standard input and takes no \"%s\". "
			"Try: tarn help tokenize",
			options->words[0]);
		return CLI_USAGE;
	}
	if (cli_model_path(options->model_path, &path, err, sizeof(err)) != 0) {
		cli_complain("%s", err);
		return CLI_UNAVAILABLE;
	}
	rc = cli_read_input(&text, &len);
	if (rc != 0) {
		free(path);
		if (rc == -EINTR)
			return cli_signal_exit();
		cli_complain("cannot read the text: %s", strerror(-rc));
		return CLI_FAILURE;
	}
	rc = tarn_tokenize_file(path, text, len, flags, &ids, &nr, err,
				sizeof(err));
	/* A warning is a line of its own; the ids are right as far as the file can say. */
	if (rc == 0 && err[0])
		cli_complain("%s: %s", path, err);
	if (rc == 0)
		exit_code = print_ids(ids, nr);
	else
		cli_complain("%s: %s", path, err[0] ? err : strerror(-rc));
	free(ids);
	free(text);
	free(path);
	return exit_code;
}
