/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon counts for GET /metrics: names, units and buckets in the
 * manner of vLLM under the prefix "tarn:", in Prometheus' text format.
 * Observations may come from any thread and never wait; a reader sees each of
 * them once, though not all of one request at the same moment.
 */
#ifndef TARN_DAEMON_METRICS_H
#define TARN_DAEMON_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/request.h"
#include "engine/engine.h"

/* Times are observed in nanoseconds, and read in seconds; the rest are numbers. */
enum metrics_histogram {
	METRICS_TTFT, /* from arrival to the first token */
	METRICS_INTER_TOKEN, /* between two tokens of one choice */
	METRICS_TIME_PER_TOKEN, /* of a request: behind the first one, on average */
	METRICS_E2E, /* from arrival until the reply is out */
	METRICS_QUEUE, /* from arrival until it runs */
	METRICS_PREFILL, /* from then to the first token */
	METRICS_DECODE, /* from the first token to the last */
	METRICS_INFERENCE, /* both */
	METRICS_CANCEL, /* from the client's going to the end of its work */
	METRICS_STEP, /* of the engine */
	METRICS_STEP_TOKENS,
	METRICS_PROMPT_TOKENS,
	METRICS_GENERATED_TOKENS,
	METRICS_CHOICES, /* the field n */
	METRICS_MAX_TOKENS, /* the field max_tokens, or what it was settled to */
	METRICS_NR_HISTOGRAMS,
};

enum metrics_end {
	METRICS_END_STOP,
	METRICS_END_LENGTH,
	METRICS_END_ERROR, /* a grammar without a way on */
	METRICS_END_ABORT, /* the client went */
	METRICS_NR_ENDS,
};

enum {
	METRICS_MAX_BUCKETS = 24,
	METRICS_FIRST_STATUS = 400,
	METRICS_NR_STATUS = 200, /* from the first on */
};

struct metrics_counts {
	_Atomic uint64_t buckets[METRICS_MAX_BUCKETS +
				 1]; /* the last: beyond all bounds */
	_Atomic uint64_t sum;
};

struct metrics {
	struct metrics_counts histograms[METRICS_NR_HISTOGRAMS];
	_Atomic uint64_t ends[METRICS_NR_ENDS];
	_Atomic uint64_t refusals[METRICS_NR_STATUS]; /* by status */
};

/* Any thread. @metrics NULL: nobody counts. */
void metrics_observe(struct metrics *metrics, enum metrics_histogram which,
		     uint64_t value);
/* An error that a request for text was answered with. */
void metrics_refuse(struct metrics *metrics, int status);
/**
 * metrics_end - a request for text that ran has ended
 * @finish: of its first choice; FINISH_NONE: the client went before.
 * @now_ns: monotonic.
 *
 * The thread that drops the request; nobody works on it any longer.
 */
void metrics_end(struct metrics *metrics, const struct request *request,
		 enum finish_reason finish, uint64_t now_ns);

/* What is so at this moment, beside what was counted. */
struct metrics_now {
	const char *model; /* NULL while it is loaded: the label is empty */
	uint32_t nr_running, nr_waiting; /* requests */
	const struct tarn_engine_stat *stat; /* NULL while it is loaded */
	uint64_t kv_limit_bytes;
};

/* All of it in Prometheus' text format, version 0.0.4. malloc'ed; NULL without memory. */
char *metrics_text(const struct metrics *metrics,
		   const struct metrics_now *now);

#endif /* TARN_DAEMON_METRICS_H */
