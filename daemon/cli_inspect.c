/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn inspect: what is in a model file, for people or as JSON. No daemon is
 * asked.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/cli_model.h"
#include "daemon/cli_table.h"
#include "engine/engine.h"

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value ? value : "?";
}

/* What a file says, on one line whatever it says. */
static void print_line(FILE *out, const char *title, const char *value)
{
	fputs(title, out);
	for (; *value; value++)
		fputc((unsigned char)*value < ' ' ? '?' : *value, out);
	fputc('\n', out);
}

/* ---- the summary ------------------------------------------------------------------- */

static void print_model(FILE *out, const json_t *root)
{
	const json_t *shape = json_object_get(root, "shape");
	char buf[CLI_BYTES_TEXT];

	fprintf(out, "File        %s, %s\n", text(root, "file"),
		cli_bytes_text(number(root, "bytes"), buf));
	if (json_object_get(root, "name"))
		print_line(out, "Model       ", text(root, "name"));
	if (!shape)
		return;
	fprintf(out,
		"Shape       %s, %.1f M parameters: %.0f layers, width %.0f, %.0f heads over "
		"%.0f KV heads of %.0f\n",
		text(shape, "architecture"), number(root, "parameters") * 1e-6,
		number(shape, "layers"), number(shape, "width"),
		number(shape, "heads"), number(shape, "kv_heads"),
		number(shape, "head_dim"));
	fprintf(out, "Context     %.0f tokens",
		number(shape, "context_tokens"));
	if (number(shape, "window_tokens") > 0)
		fprintf(out, ", some layers see the last %.0f",
			number(shape, "window_tokens"));
	fputc('\n', out);
}

static void print_types(FILE *out, const json_t *root)
{
	const char *type, *title = "Tensors";
	json_t *entry;
	char buf[CLI_BYTES_TEXT];

	json_object_foreach(json_object_get(root, "types"), type, entry)
	{
		fprintf(out, "%-11s %.0f of %s, %s\n", title,
			number(entry, "tensors"), type,
			cli_bytes_text(number(entry, "bytes"), buf));
		title = "";
	}
}

static void print_text_parts(FILE *out, const json_t *root)
{
	const json_t *tokenizer = json_object_get(root, "tokenizer");
	const json_t *template = json_object_get(root, "chat_template");
	const json_t *metadata = json_object_get(root, "metadata");
	const char *pre = json_string_value(
		json_object_get(metadata, "tokenizer.ggml.pre"));

	fprintf(out, "Tokenizer   %.40s%s%.40s: ",
		text(metadata, "tokenizer.ggml.model"), pre ? ", " : "",
		pre ? pre : "");
	if (json_is_true(json_object_get(tokenizer, "supported")))
		fprintf(out, "%.0f tokens, BOS %.0f, EOS %.0f\n",
			number(tokenizer, "tokens"), number(tokenizer, "bos"),
			number(tokenizer, "eos"));
	else
		fprintf(out, "%s\n", text(tokenizer, "reason"));
	if (!json_is_object(template))
		fputs("Template    none: no chat, completions alone\n", out);
	else if (json_is_true(json_object_get(template, "supported")))
		fprintf(out, "Template    %.0f bytes\n",
			number(template, "bytes"));
	else
		fprintf(out, "Template    no chat: %s\n",
			text(template, "reason"));
}

static void print_memory(FILE *out, const json_t *root)
{
	const json_t *memory = json_object_get(root, "memory");
	char weights[CLI_BYTES_TEXT], token[CLI_BYTES_TEXT],
		context[CLI_BYTES_TEXT];

	if (memory)
		fprintf(out,
			"Memory      weights %s, KV %s a token, %s for the whole context\n",
			cli_bytes_text(number(memory, "weight_bytes"), weights),
			cli_bytes_text(number(memory, "kv_bytes_per_token"),
				       token),
			cli_bytes_text(number(memory, "kv_bytes_of_context"),
				       context));
	if (json_is_true(json_object_get(root, "can_be_served")))
		fputs("Tarn        can serve it\n", out);
	else
		print_line(out, "Tarn        cannot serve it: ",
			   text(root, "reason"));
}

/* ---- the lists ----------------------------------------------------------------------- */

static void print_metadata(FILE *out, const json_t *root)
{
	const char *key;
	json_t *value;

	fputs("\nMetadata\n", out);
	json_object_foreach(json_object_get(root, "metadata"), key, value)
	{
		char *dumped;

		if (json_is_object(value)) {
			fprintf(out, "  %s: %.0f of type %s\n", key,
				number(value, "length"),
				text(value, "array_of"));
			continue;
		}
		dumped = json_dumps(value,
				    JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
		fprintf(out, "  %s: %s\n", key, dumped ? dumped : "?");
		free(dumped);
	}
}

static int print_tensors(const json_t *root)
{
	static const struct cli_column columns[] = { { "TENSOR", false },
						     { "TYPE", false },
						     { "SHAPE", true },
						     { "SIZE", true } };
	struct cli_table table = { .columns = columns, .nr_columns = 4 };
	json_t *tensor;
	size_t i;
	int rc;

	json_array_foreach(json_object_get(root, "tensors"), i, tensor)
	{
		const json_t *shape = json_object_get(tensor, "shape");
		char dims[128] = "";
		size_t len = 0;

		for (size_t d = 0; d < json_array_size(shape); d++)
			len += (size_t)snprintf(
				dims + len, sizeof(dims) - len, "%s%lld",
				d ? " x " : "",
				(long long)json_integer_value(
					json_array_get(shape, d)));
		cli_table_add(&table, "%s", text(tensor, "name"));
		cli_table_add(&table, "%s", text(tensor, "type"));
		cli_table_add(&table, "%s", dims);
		cli_table_add_bytes(&table, number(tensor, "bytes"));
	}
	rc = cli_print(stdout, "\n", 1);
	if (rc == 0)
		rc = cli_table_print(&table, stdout);
	cli_table_deinit(&table);
	return rc;
}

static int show(const json_t *root, const struct cli_options *options)
{
	char *bytes = NULL;
	size_t len;
	FILE *out = open_memstream(&bytes, &len);
	int rc;

	if (!out)
		return -errno;
	print_model(out, root);
	print_types(out, root);
	print_text_parts(out, root);
	print_memory(out, root);
	if (options->shows_metadata)
		print_metadata(out, root);
	rc = fclose(out) == 0 ? cli_print(stdout, bytes, len) : -ENOMEM;
	free(bytes);
	if (rc == 0 && options->shows_tensors)
		rc = print_tensors(root);
	return rc;
}

/* The one word is the file; --model does not exist here. */
static int find_path(const struct cli_options *options, char **out_path)
{
	char err[1024] = "";

	if (options->nr_words > 1) {
		cli_complain("inspect takes one file, not \"%s\" as well. "
			     "Try: tarn help inspect",
			     options->words[1]);
		return CLI_USAGE;
	}
	if (cli_model_path(options->nr_words ? options->words[0] : NULL,
			   out_path, err, sizeof(err)) == 0)
		return CLI_OK;
	cli_complain("%s", err);
	return CLI_UNAVAILABLE;
}

int cli_inspect(const struct cli_options *options)
{
	char err[1024] = "", *path = NULL, *json = NULL;
	int exit_code = find_path(options, &path), rc;
	bool is_good;
	json_t *root;

	if (exit_code != CLI_OK)
		return exit_code;
	rc = tarn_inspect_file(path, &json, err, sizeof(err));
	if (rc != 0) {
		cli_complain("%s: %s", path, err[0] ? err : strerror(-rc));
		free(path);
		return CLI_UNAVAILABLE;
	}
	root = json_loads(json, 0, NULL);
	is_good = json_is_true(json_object_get(root, "can_be_served"));
	if (options->is_json)
		exit_code = cli_print_json(root);
	else if (show(root, options) != 0)
		exit_code = CLI_FAILURE;
	json_decref(root);
	free(json);
	free(path);
	return exit_code == CLI_OK && !is_good ? CLI_FAILURE : exit_code;
}
