/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of text with columns as wide as their longest cell.
 */
#ifndef TARN_DAEMON_CLI_TABLE_H
#define TARN_DAEMON_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cli_column {
	const char *title;
	bool is_right; /* numbers are */
};

struct cli_table {
	const struct cli_column *columns;
	size_t nr_columns;
	char **cells; /* row by row */
	size_t nr_cells;
	bool is_short; /* of memory: a cell is missing */
};

/* The next cell; nr_columns of them are a row. */
void cli_table_add(struct cli_table *table, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
enum { CLI_BYTES_TEXT = 24 };
/* A size in the unit that suits it: "91.5 MiB". Returns @buf. */
const char *cli_bytes_text(double bytes, char buf[static CLI_BYTES_TEXT]);
/* Cells for a size, and for a user, by number and name. */
void cli_table_add_bytes(struct cli_table *table, double bytes);
void cli_table_add_user(struct cli_table *table, long long uid);
/* Return: 0, -ENOMEM, or what cli_print() says. */
int cli_table_print(const struct cli_table *table, FILE *out);
void cli_table_deinit(struct cli_table *table);
/*
 * Two tables to standard output, a blank line between them; the second only where it has rows.
 * Both are deinitialised. Return: as cli_table_print().
 */
int cli_table_print_pair(struct cli_table *top, struct cli_table *bottom);

#endif /* TARN_DAEMON_CLI_TABLE_H */
