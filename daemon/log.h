/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: one line per event on standard error, written whole. Lines carry a
 * time stamp, or the priority prefix of the journal when it reads our stderr.
 * Any thread.
 */
#ifndef TARN_DAEMON_LOG_H
#define TARN_DAEMON_LOG_H

#include <stdbool.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG
};

/* Set once, before threads start. */
void log_init(enum log_level level);
bool log_enabled(enum log_level level);
/* Return: 0, or -EINVAL when the name is none of error, warn, info, debug. */
int log_level_parse(const char *name, enum log_level *out_level);

void log_line(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif /* TARN_DAEMON_LOG_H */
