/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver thread keeps while it runs, shared by driver.c (the thread
 * and its steps) and driver_jobs.c (who comes in, who leaves). Driver thread
 * only.
 */
#ifndef TARN_DAEMON_DRIVER_PRIVATE_H
#define TARN_DAEMON_DRIVER_PRIVATE_H

#include "daemon/driver.h"
#include "daemon/job.h"
#include "daemon/schedule.h"

/* Where a lane of the composed batch comes from. */
struct slot {
	struct job *job; /* NULL: gone since */
	uint32_t lane;
	bool draws; /* a token, in this step */
};

enum { MAX_STEPS = 2 }; /* that were begun and did not end */

/* A step that was begun. */
struct begun_step {
	struct slot *slots; /* [nr], by entry of its work */
	uint32_t nr, nr_tokens, nr_decodes;
	uint64_t id; /* it counts steps, from 1 */
	uint64_t start_ns;
};

struct run {
	struct driver *driver;
	struct tarn_engine *engine;
	uint32_t budget;
	struct job *jobs, **jobs_tail; /* in order of arrival */
	struct queue_item *waiting, **waiting_tail; /* requests, likewise */
	bool is_blocked; /* the first of waiting found no memory since the last sequence ended */
	/*
	 * Sequences ended while a step was begun: their memory comes back when it ends, and
	 * is_blocked is looked at again.
	 */
	bool is_leaving;
	uint64_t nr_steps;
	struct begun_step begun[MAX_STEPS];
	uint32_t first_begun, nr_begun; /* a ring */
	uint64_t last_end_ns;
	uint32_t nr_slots; /* size of the arrays below */
	struct slot *slots;
	struct sched_seq *seqs;
	uint32_t *chunks;
	struct tarn_work *work;
	struct tarn_result *results;
	struct queue_item *out, **out_tail; /* replies of this round */
};

/* Number @i of the steps that were begun, the first one first; behind the last: a place. */
static inline struct begun_step *run_begun(struct run *run, uint32_t i)
{
	return &run->begun[(run->first_begun + i) % MAX_STEPS];
}

/* A sequence ended: its memory is there, or will be. */
static inline void run_note_leaver(struct run *run)
{
	run->is_blocked = false;
	run->is_leaving = run->nr_begun > 0;
}

/* A reply joins those of this round; NULL is one that found no memory. */
void run_post(struct run *run, struct reply *reply);
/* All of them go to the event thread. */
void run_flush(struct run *run);

/* Requests from the inbox join those that wait. */
void run_receive(struct run *run, struct queue_item *chain);
/* Let in what fits, in order: the first that does not holds up the rest. */
void run_admit(struct run *run);
/* Whoever is gone, running or waiting, leaves. */
void run_drop_cancelled(struct run *run);
/* Refuse what waits; when aborting, give up what runs. */
void run_drain(struct run *run);

/* The job is no longer among those that run; it stays the caller's. */
void run_unlink_job(struct run *run, struct job *job);
/* The job ends with an error; it is gone on return. */
void run_fail_job(struct run *run, struct job *job,
		  const struct api_error *error);
void run_fail_job_errno(struct run *run, struct job *job, int rc);

#endif /* TARN_DAEMON_DRIVER_PRIVATE_H */
