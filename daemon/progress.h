/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the load is, for whoever looks at standard error: a bar on a
 * terminal, else one line per stage; and the service manager's status line.
 * One thread at a time.
 */
#ifndef TARN_DAEMON_PROGRESS_H
#define TARN_DAEMON_PROGRESS_H

void progress_show(const char *stage, double fraction);
/* The load is over: the bar goes away. */
void progress_end(void);

#endif /* TARN_DAEMON_PROGRESS_H */
