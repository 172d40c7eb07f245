/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes log lines: see log.h. A line is put together in one buffer and goes
 * out by one write(), so that lines of several threads never mix. What cannot
 * be printed (clients choose some of the text) is shown as '?'.
 */
#include "daemon/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE_BYTES = 2048 };

static const char *const level_names[] = { "error", "warn", "info", "debug" };
/* The journal's priorities of the four levels. */
static const char *const level_prefixes[] = { "<3>", "<4>", "<6>", "<7>" };

static enum log_level log_max = LOG_LEVEL_INFO;
static bool log_to_journal;

void log_init(enum log_level level)
{
	log_max = level;
	log_to_journal = getenv("JOURNAL_STREAM") != NULL;
}

bool log_enabled(enum log_level level)
{
	return level <= log_max;
}

int log_level_parse(const char *name, enum log_level *out_level)
{
	for (unsigned int i = 0;
	     i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*out_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

static size_t log_prefix(char *line, size_t size, enum log_level level)
{
	int len;

	if (log_to_journal) {
		len = snprintf(line, size, "%s", level_prefixes[level]);
	} else {
		struct timespec now;
		struct tm tm;
		char stamp[32];

		clock_gettime(CLOCK_REALTIME, &now);
		localtime_r(&now.tv_sec, &tm);
		strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
		len = snprintf(line, size, "%s.%03ld %-5s ", stamp,
			       now.tv_nsec / 1000000, level_names[level]);
	}
	return len > 0 ? (size_t)len : 0;
}

/*
 * Whoever logs must not wait for whoever reads: the event thread serves all clients. A stopped
 * terminal or a full pipe loses lines, and the next line that goes out says how many. What is
 * writable takes a line whole, as it is shorter than PIPE_BUF.
 */
static void write_line(const char *line, size_t len)
{
	static atomic_uint nr_lost;
	struct pollfd log = { .fd = STDERR_FILENO, .events = POLLOUT };
	char note[64];
	uint32_t nr;

	if (poll(&log, 1, 0) != 1 || !(log.revents & POLLOUT)) {
		atomic_fetch_add(&nr_lost, 1);
		return;
	}
	nr = atomic_exchange(&nr_lost, 0);
	if (nr) {
		int note_len = snprintf(note, sizeof(note),
					"(%u lines were lost here)\n", nr);

		if (write(STDERR_FILENO, note, (size_t)note_len) < 0 ||
		    poll(&log, 1, 0) != 1) {
			atomic_fetch_add(&nr_lost, 1);
			return;
		}
	}
	/* A log that cannot be written is no reason to fail anything. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_BYTES];
	const int saved_errno = errno;
	size_t len, start;
	va_list args;
	int nr;

	if (!log_enabled(level))
		return;
	start = log_prefix(line, sizeof(line) - 1, level);
	va_start(args, format);
	nr = vsnprintf(line + start, sizeof(line) - 1 - start, format, args);
	va_end(args);
	len = start + (nr > 0 ? (size_t)nr : 0);
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	for (size_t i = start; i < len; i++) {
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	}
	line[len++] = '\n';
	write_line(line, len);
	errno = saved_errno;
}
