/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Showing progress: see progress.h.
 */
#include "daemon/progress.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/notify.h"

enum { BAR_CELLS = 30 };
static const uint64_t redraw_ns =
	50 * 1000000; /* a bar that flickers helps nobody */

static char last_stage[64];
static uint64_t last_ns;
static bool is_drawn;

static void draw(const char *stage, double fraction)
{
	static const char full[] = "##############################";
	static const char empty[] = "..............................";
	int cells = (int)(fraction * BAR_CELLS);
	char line[160];
	int len = snprintf(line, sizeof(line), "\r[%.*s%.*s] %3.0f%% %-32.32s",
			   cells, full, BAR_CELLS - cells, empty,
			   fraction * 100, stage);

	if (len > 0 && write(STDERR_FILENO, line, (size_t)len) > 0)
		is_drawn = true;
}

void progress_show(const char *stage, double fraction)
{
	const bool is_new =
		strncmp(stage, last_stage, sizeof(last_stage) - 1) != 0;
	const uint64_t now_ns = clock_ns();
	char status[128];

	fraction = fraction < 0 ? 0 : fraction > 1 ? 1 : fraction;
	if (!is_new && now_ns - last_ns < redraw_ns)
		return;
	last_ns = now_ns;
	snprintf(last_stage, sizeof(last_stage), "%s", stage);
	if (isatty(STDERR_FILENO))
		draw(stage, fraction);
	else if (is_new)
		log_info("loading: %s", stage);
	if (is_new) {
		snprintf(status, sizeof(status), "STATUS=loading: %.64s",
			 stage);
		notify_send(status);
	}
}

void progress_end(void)
{
	static const char clear[] = "\r\033[K";

	if (is_drawn && write(STDERR_FILENO, clear, sizeof(clear) - 1) > 0)
		is_drawn = false;
}
