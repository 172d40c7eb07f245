/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn template: a chat request to the prompt that a template makes of it,
 * with a model file or a template alone. No daemon is asked.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api_fields.h"
#include "daemon/api_template.h"
#include "daemon/cli.h"
#include "daemon/cli_model.h"
#include "daemon/cli_session.h"
#include "engine/engine.h"

enum { MAX_FILE_BYTES = 4 * 1024 * 1024 + 1 };

/* All of a file, up to a byte more than a template may have. Return: 0 or -errno. */
static int read_file(const char *path, char **out_text, size_t *out_len)
{
	FILE *file = fopen(path, "re");
	char *text;
	int rc = 0;

	if (!file)
		return -errno;
	text = malloc(MAX_FILE_BYTES);
	if (text) {
		errno = 0;
		*out_len = fread(text, 1, MAX_FILE_BYTES, file);
		if (ferror(file))
			rc = errno ? -errno : -EIO;
	} else {
		rc = -ENOMEM;
	}
	fclose(file);
	if (rc)
		free(text);
	else
		*out_text = text;
	return rc;
}

static int open_file(const char *path, struct tarn_template **template)
{
	char err[512] = "", *text = NULL;
	size_t len = 0;
	int rc = read_file(path, &text, &len);

	if (rc) {
		cli_complain("the template %s: %s", path, strerror(-rc));
		return CLI_UNAVAILABLE;
	}
	rc = tarn_template_parse(text, len, template, err, sizeof(err));
	free(text);
	if (!rc)
		return CLI_OK;
	cli_complain("%s: %s", path, err);
	return CLI_FAILURE;
}

static int open_model(const char *named, struct tarn_template **template)
{
	char err[1024] = "", *path;
	int rc = cli_model_path(named, &path, err, sizeof(err));

	if (rc) {
		cli_complain("%s", err);
		return CLI_UNAVAILABLE;
	}
	rc = tarn_template_open(path, template, err, sizeof(err));
	if (rc)
		cli_complain("%s: %s", path, err[0] ? err : strerror(-rc));
	free(path);
	return rc ? CLI_UNAVAILABLE : CLI_OK;
}

/* The request on standard input; NULL after a complaint, with the exit code. */
static json_t *read_request(int *out_exit)
{
	struct api_error error;
	json_t *body;
	char *text;
	size_t len;
	int rc = cli_read_input(&text, &len);

	if (rc == -EINTR) {
		*out_exit = cli_signal_exit();
		return NULL;
	}
	*out_exit = CLI_FAILURE;
	if (rc) {
		cli_complain("cannot read the request: %s", strerror(-rc));
		return NULL;
	}
	body = api_parse_object(text, len, &error);
	free(text);
	if (!body)
		cli_complain("the request on standard input: %s",
			     error.message);
	return body;
}

static int print_prompt(const struct tarn_template *template,
			const json_t *body)
{
	struct api_template_traits traits;
	struct api_error error;
	json_t *input;
	char *text;
	size_t len;
	bool is_good;
	int rc;

	api_template_probe(template, &traits);
	input = api_template_input(body, &traits, true, &error);
	is_good = input &&
		  api_template_text(template, input, &text, &len, &error);
	json_decref(input);
	if (!is_good) {
		cli_complain("%s", error.message);
		return CLI_FAILURE;
	}
	rc = cli_print(stdout, text, len);
	free(text);
	if (rc == -EINTR)
		return cli_signal_exit();
	return rc ? CLI_FAILURE : CLI_OK;
}

int cli_template(const struct cli_options *options)
{
	struct tarn_template *template = NULL;
	json_t *body;
	int exit_code;

	if (options->nr_words) {
		cli_complain(
			"template reads standard input and takes no \"%s\". "
			"Try: tarn help template",
			options->words[0]);
		return CLI_USAGE;
	}
	if (options->model_path && options->template_path) {
		cli_complain("--model and --template: one of them, not both. "
			     "Try: tarn help template");
		return CLI_USAGE;
	}
	exit_code = options->template_path ?
			    open_file(options->template_path, &template) :
			    open_model(options->model_path, &template);
	if (exit_code != CLI_OK)
		return exit_code;
	body = read_request(&exit_code);
	if (body)
		exit_code = print_prompt(template, body);
	json_decref(body);
	tarn_template_close(template);
	return exit_code;
}
