/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is computed next, and who is let in: the decisions of the scheduler
 * as pure functions. No clock, no I/O, no engine; driver.c acts on them.
 */
#ifndef TARN_DAEMON_SCHEDULE_H
#define TARN_DAEMON_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* One running sequence, as the composer of a step sees it. */
struct sched_seq {
	uint32_t nr_pending; /* tokens that wait to be computed; 1 while decoding */
	/*
	 * Pending tokens that must not be computed in this step: 1 while a prompt is still to be
	 * forked into its choices, else 0.
	 */
	uint32_t nr_keep;
};

/**
 * sched_compose - choose the work of one step
 * @seqs: in order of arrival.
 * @budget: most tokens of a step, at least 1.
 * @turn: counts steps. Where more sequences decode than fit, it decides whose turn it is.
 * @out_tokens: [out] per sequence; 0: not in this step.
 *
 * Decodes come first, so that a long prompt never stalls a running answer; what is left of
 * the budget goes to prompts, first come first served. Return: the tokens of the step; 0 only
 * when no sequence has anything to compute.
 */
uint32_t sched_compose(const struct sched_seq *seqs, uint32_t nr,
		       uint32_t budget, uint64_t turn, uint32_t *out_tokens);

/*
 * Whether a request of @nr_choices may run beside @nr_running sequences: one step has room for
 * a token of each. A request wider than a step runs alone.
 */
bool sched_may_run(uint32_t nr_running, uint32_t nr_choices, uint32_t budget);

struct sched_memory {
	uint64_t limit_bytes;
	uint32_t bytes_per_token;
	uint32_t ctx_tokens;
};

/*
 * max_tokens where the client left it open: what the context has left after the prompt, and what
 * KV memory can hold for all choices at most. At least 1; the engine refuses what does not fit.
 */
uint32_t sched_open_max_tokens(const struct sched_memory *memory,
			       uint32_t nr_prompt, uint32_t nr_choices);

/*
 * Seconds after which a client that was refused may try again: the time in which the queue
 * moved by a quarter lately. @finished in @span_ms: requests that ended in the recent past.
 */
uint32_t sched_retry_after_s(uint32_t nr_waiting, uint32_t nr_finished,
			     uint64_t span_ms);

#endif /* TARN_DAEMON_SCHEDULE_H */
