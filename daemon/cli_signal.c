/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Noting signals: see cli_signal.h. The handler writes to an eventfd, so that
 * no wait can miss a signal that came just before it.
 */
#include "daemon/cli_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

enum { NR_SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static struct sigaction before[NR_SIGNALS];
static volatile sig_atomic_t interrupt_noted, end_noted;
static int event_fd = -1;

static void on_signal(int signo)
{
	const int saved_errno = errno;
	const uint64_t one = 1;

	if (signo == SIGINT)
		interrupt_noted = signo;
	else
		end_noted = signo;
	if (write(event_fd, &one, sizeof(one)) < 0)
		errno = saved_errno; /* full: it is readable already */
	errno = saved_errno;
}

int cli_signal_init(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_fd < 0)
		return -errno;
	/* No SA_RESTART: a blocked read ends, and its caller looks. */
	for (int i = 0; i < NR_SIGNALS; i++)
		sigaddset(&action.sa_mask, signals[i]);
	for (int i = 0; i < NR_SIGNALS; i++) {
		if (sigaction(signals[i], NULL, &before[i]) != 0)
			return -errno;
		if (before[i].sa_handler != SIG_IGN &&
		    sigaction(signals[i], &action, NULL) != 0)
			return -errno;
	}
	return 0;
}

int cli_signal_fd(void)
{
	return event_fd;
}

int cli_signal_noted(void)
{
	return end_noted ? end_noted : interrupt_noted;
}

void cli_signal_forget(void)
{
	uint64_t count;

	interrupt_noted = 0;
	if (!end_noted && read(event_fd, &count, sizeof(count)) < 0)
		return; /* nothing was there */
}

void cli_signal_restore(void)
{
	for (int i = 0; i < NR_SIGNALS; i++)
		sigaction(signals[i], &before[i], NULL);
}
