/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's protocol: what sd_notify(3) and sd_listen_fds(3)
 * speak. Without a manager nothing happens.
 */
#ifndef TARN_DAEMON_NOTIFY_H
#define TARN_DAEMON_NOTIFY_H

/* Lines such as "READY=1". Any thread. */
void notify_send(const char *state);
/*
 * The listening Unix stream socket that we were started with. Return: the descriptor; -ENOENT
 * (none was passed); -EINVAL (not exactly one, or it is of another kind). At start only.
 */
int notify_listen_fd(void);

#endif /* TARN_DAEMON_NOTIFY_H */
