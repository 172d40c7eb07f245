/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: a request that runs, and its lanes, one per choice: the engine's
 * sequence, its text on the way out, and what was not sent yet. Driver thread
 * only.
 */
#ifndef TARN_DAEMON_JOB_H
#define TARN_DAEMON_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/request.h"
#include "daemon/textstream.h"
#include "engine/engine.h"

struct lane {
	struct tarn_seq
		*seq; /* NULL once the choice has ended, or is not forked yet */
	struct textstream stream;
	struct reply *delta; /* not sent yet; NULL: nothing */
	uint32_t nr_tokens_size, nr_tops,
		nr_tops_size; /* of the delta's arrays */
	uint32_t nr_generated;
	uint64_t last_ns; /* of its last token */
	uint32_t nr_drawn; /* tokens of steps that were begun, to be taken when those end */
};

struct job {
	struct job *next;
	struct request *request; /* one reference */
	struct lane *lanes; /* [params.nr_choices] */
	uint32_t nr_lanes; /* 1 until forked */
	uint32_t nr_open; /* lanes that have not ended */
	uint32_t nr_generated;
	uint64_t last_ns; /* when the request was let in, then its last token */
};

/* Takes the reference over, and the sequence as lane 0; both stay the caller's on NULL. */
struct job *job_create(struct request *request, struct tarn_seq *seq);
/* Ends the sequences that are left; sends nothing. */
void job_destroy(struct job *job);

/* A prompt with several choices that is not forked yet: one pending token is kept back. */
static inline bool job_wants_fork(const struct job *job)
{
	return job->nr_lanes < job->request->params.nr_choices;
}

/* Make the other choices; the parent has one token pending. Return: 0 or -errno. */
int job_fork(struct job *job);

/**
 * job_take - a sampled token
 * @replies: [in, out] chain that what is ready for the client is appended to.
 *
 * Return: 0; -ENOMEM, and the job is to be given up.
 */
int job_take(struct job *job, uint32_t lane, const struct tarn_result *result,
	     const struct tarn_engine *engine, struct queue_item ***replies);

#endif /* TARN_DAEMON_JOB_H */
