/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing tables: see cli_table.h.
 */
#include "daemon/cli_table.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/textstream.h"

enum { GAP = 2 };

void cli_table_add(struct cli_table *table, const char *format, ...)
{
	char **cells =
		realloc(table->cells, (table->nr_cells + 1) * sizeof(*cells));
	va_list args;

	if (!cells) {
		table->is_short = true;
		return;
	}
	table->cells = cells;
	va_start(args, format);
	if (vasprintf(&cells[table->nr_cells], format, args) < 0)
		table->is_short = true;
	else
		table->nr_cells++;
	va_end(args);
}

const char *cli_bytes_text(double bytes, char buf[static CLI_BYTES_TEXT])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	int unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(buf, CLI_BYTES_TEXT, "%.*f %s", unit && bytes < 100 ? 1 : 0,
		 bytes, units[unit]);
	return buf;
}

void cli_table_add_bytes(struct cli_table *table, double bytes)
{
	char text[CLI_BYTES_TEXT];

	cli_table_add(table, "%s", cli_bytes_text(bytes, text));
}

void cli_table_add_user(struct cli_table *table, long long uid)
{
	const struct passwd *user = getpwuid((uid_t)uid);

	if (user)
		cli_table_add(table, "%lld (%s)", uid, user->pw_name);
	else
		cli_table_add(table, "%lld", uid);
}

/* Characters, not bytes: names of models may be in any script. */
static size_t width(const char *text)
{
	size_t nr = 0;

	for (; *text; text++)
		nr += ((unsigned char)*text & 0xc0) != 0x80;
	return nr;
}

static int put_spaces(struct text *line, size_t nr)
{
	int rc = 0;

	while (rc == 0 && nr--)
		rc = text_append(line, " ", 1);
	return rc;
}

/* @cells: one row; nothing is put behind its last word. */
static int print_row(const struct cli_table *table, const size_t *widths,
		     char *const *cells, FILE *out)
{
	struct text line = { 0 };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < table->nr_columns; i++) {
		const char *cell = cells ? cells[i] : table->columns[i].title;
		const size_t pad = widths[i] - width(cell);
		const bool is_right = table->columns[i].is_right;
		const bool is_last = i + 1 == table->nr_columns;

		rc = put_spaces(&line, is_right ? pad : 0);
		if (rc == 0)
			rc = text_append(&line, cell, strlen(cell));
		if (rc == 0 && !is_last)
			rc = put_spaces(&line, GAP + (is_right ? 0 : pad));
	}
	if (rc == 0)
		rc = text_append(&line, "\n", 1);
	if (rc == 0)
		rc = cli_print(out, line.bytes, line.len);
	text_deinit(&line);
	return rc;
}

int cli_table_print(const struct cli_table *table, FILE *out)
{
	size_t *widths = calloc(table->nr_columns, sizeof(*widths));
	int rc = 0;

	if (!widths || table->is_short) {
		free(widths);
		return -ENOMEM;
	}
	for (size_t i = 0; i < table->nr_columns; i++)
		widths[i] = width(table->columns[i].title);
	for (size_t i = 0; i < table->nr_cells; i++) {
		size_t *widest = &widths[i % table->nr_columns];

		if (width(table->cells[i]) > *widest)
			*widest = width(table->cells[i]);
	}
	rc = print_row(table, widths, NULL, out);
	for (size_t i = 0; rc == 0 && i < table->nr_cells;
	     i += table->nr_columns)
		rc = print_row(table, widths, table->cells + i, out);
	free(widths);
	return rc;
}

void cli_table_deinit(struct cli_table *table)
{
	for (size_t i = 0; i < table->nr_cells; i++)
		free(table->cells[i]);
	free(table->cells);
	table->cells = NULL;
	table->nr_cells = 0;
}

int cli_table_print_pair(struct cli_table *top, struct cli_table *bottom)
{
	int rc = cli_table_print(top, stdout);

	if (rc == 0 && bottom->nr_cells) {
		putchar('\n');
		rc = cli_table_print(bottom, stdout);
	}
	cli_table_deinit(top);
	cli_table_deinit(bottom);
	return rc;
}
