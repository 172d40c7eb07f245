/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three standard descriptors. A program may be started without some of
 * them; then the next file or socket it opens would get the number, and what
 * is meant for the terminal would be written there. First thing in main().
 */
#ifndef TARN_DAEMON_STDFDS_H
#define TARN_DAEMON_STDFDS_H

/*
 * Fills those that are closed, so that using one fails with EBADF as before.
 * Return: 0 or -errno.
 */
int stdfds_fill(void);

#endif /* TARN_DAEMON_STDFDS_H */
