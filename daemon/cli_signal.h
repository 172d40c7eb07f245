/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that end things: SIGINT the answer or the program, SIGTERM and
 * SIGHUP the program. They are noted, and whoever waits looks.
 */
#ifndef TARN_DAEMON_CLI_SIGNAL_H
#define TARN_DAEMON_CLI_SIGNAL_H

#include <stdbool.h>

/* Once, at the start. A signal that was ignored stays so. Return: 0 or -errno. */
int cli_signal_init(void);
/* Readable as long as a signal is noted; for poll. */
int cli_signal_fd(void);
/* The signal's number, SIGINT after all others; 0: none. */
int cli_signal_noted(void);
/* SIGINT is dealt with. Others stay. */
void cli_signal_forget(void);
/* In a child, before exec: as they were before cli_signal_init(). */
void cli_signal_restore(void);

#endif /* TARN_DAEMON_CLI_SIGNAL_H */
