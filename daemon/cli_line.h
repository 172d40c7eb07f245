/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines from standard input: edited, with a history, where both ends are a
 * terminal; as they come elsewhere.
 */
#ifndef TARN_DAEMON_CLI_LINE_H
#define TARN_DAEMON_CLI_LINE_H

#include <stdbool.h>

struct cli_line;

/* Return: 0 or -ENOMEM. One at a time. */
int cli_line_create(struct cli_line **out_line);
void cli_line_destroy(struct cli_line *line);
bool cli_line_is_terminal(const struct cli_line *line);
/**
 * cli_line_read - one line, without its newline
 * @prompt: shown on a terminal only.
 * @out_text: [out] malloc'ed.
 *
 * Return: 0; -EILSEQ (it has a zero byte, and is gone); -ENODATA (the input has ended);
 * -EINTR (a signal: see cli_signal.h); -EIO; -ENOMEM.
 */
int cli_line_read(struct cli_line *line, const char *prompt, char **out_text);

#endif /* TARN_DAEMON_CLI_LINE_H */
