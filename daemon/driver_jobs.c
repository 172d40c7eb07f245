/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who comes in and who leaves: the driver's waiting requests and running jobs.
 * See driver_private.h.
 */
#include "daemon/driver_private.h"

#include <errno.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/probes.h"

void run_post(struct run *run, struct reply *reply)
{
	if (!reply) {
		log_error("out of memory: a reply is lost");
		return;
	}
	*run->out_tail = &reply->item;
	run->out_tail = &reply->item.next;
}

void run_flush(struct run *run)
{
	*run->out_tail = NULL;
	queue_push(run->driver->replies, run->out);
	run->out = NULL;
	run->out_tail = &run->out;
}

/* The request ends with an error; its reference is dropped. */
static void refuse(struct run *run, struct request *request,
		   const struct api_error *error)
{
	atomic_store(&request->state, REQUEST_FINISHED);
	request_leave_backlog(request);
	run_post(run, reply_create_error(request, error));
	request_put(request);
}

static void refuse_stopping(struct run *run, struct request *request)
{
	struct api_error error;

	api_fail(&error, 503, NULL, "shutting_down",
		 "the server is shutting down");
	error.retry_after_s = 5;
	refuse(run, request, &error);
}

static void note_cancel(const struct request *request, uint32_t nr_generated)
{
	const uint64_t now_ns = clock_ns(), ns = now_ns - request->arrive_ns,
		       gone_ns = atomic_load(&request->gone_ns);

	if (gone_ns && now_ns > gone_ns)
		metrics_observe(request->metrics, METRICS_CANCEL,
				now_ns - gone_ns);
	PROBE_REQUEST_CANCEL(request->serial, nr_generated, ns);
	log_debug("%s cancelled after %u tokens", request->id, nr_generated);
}

/* ---- jobs that end early ---------------------------------------------------- */

void run_unlink_job(struct run *run, struct job *job)
{
	struct job **link = &run->jobs;

	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	if (run->jobs_tail == &job->next)
		run->jobs_tail = link;
	atomic_fetch_sub(&run->driver->nr_running,
			 job->request->params.nr_choices);
	for (uint32_t s = 0; s < MAX_STEPS; s++) {
		struct begun_step *step = &run->begun[s];

		for (uint32_t i = 0; i < step->nr; i++)
			if (step->slots[i].job == job)
				step->slots[i].job = NULL;
	}
	run_note_leaver(run);
}

void run_fail_job(struct run *run, struct job *job,
		  const struct api_error *error)
{
	atomic_store(&job->request->state, REQUEST_FINISHED);
	run_post(run, reply_create_error(job->request, error));
	run_unlink_job(run, job);
	job_destroy(job);
}

void run_fail_job_errno(struct run *run, struct job *job, int rc)
{
	struct api_error error;

	log_error("%s: the engine failed: %s", job->request->id, strerror(-rc));
	/* What was promised is within --kv-bytes: it is the system that has no more. */
	if (rc == -ENOSPC || rc == -EAGAIN || rc == -ENOMEM) {
		api_fail(
			&error, 503, NULL, "out_of_memory",
			"the system has no memory or no file descriptors left for this "
			"request");
		error.retry_after_s = 5;
	} else {
		api_fail(&error, 500, NULL, "engine_error",
			 "the engine failed: %s", strerror(-rc));
	}
	run_fail_job(run, job, &error);
}

/* Whoever is gone, running or waiting, leaves before the next step. */
void run_drop_cancelled(struct run *run)
{
	struct queue_item **link = &run->waiting;
	struct job *next;

	for (struct job *job = run->jobs; job; job = next) {
		next = job->next;
		if (!request_is_cancelled(job->request))
			continue;
		note_cancel(job->request, job->nr_generated);
		atomic_store(&job->request->state, REQUEST_FINISHED);
		run_unlink_job(run, job);
		job_destroy(job);
	}
	while (*link) {
		struct request *request = (struct request *)*link;

		if (!request_is_cancelled(request)) {
			link = &(*link)->next;
			continue;
		}
		*link = request->item.next;
		run->is_blocked = false;
		note_cancel(request, 0);
		request_leave_backlog(request);
		request_put(request);
	}
	run->waiting_tail = link;
}

/* Refuse what waits; on abort, give up what runs. */
void run_drain(struct run *run)
{
	struct api_error error;

	while (run->waiting) {
		struct request *request = (struct request *)run->waiting;

		run->waiting = request->item.next;
		refuse_stopping(run, request);
	}
	run->waiting_tail = &run->waiting;
	if (!atomic_load(&run->driver->is_aborting))
		return;
	api_fail(&error, 503, NULL, "shutting_down",
		 "the server is shutting down and did not wait any longer");
	while (run->jobs)
		run_fail_job(run, run->jobs, &error);
}

/* ---- letting requests in ------------------------------------------------------ */

void run_receive(struct run *run, struct queue_item *chain)
{
	while (chain) {
		struct queue_item *next = chain->next;

		chain->next = NULL;
		*run->waiting_tail = chain;
		run->waiting_tail = &chain->next;
		chain = next;
	}
}

/* Opens a sequence for the request. Return: 0, or -errno with @error filled. */
static int open_sequence(struct run *run, const struct request *request,
			 struct tarn_seq **out_seq, struct api_error *error)
{
	const struct request_params *params = &request->params;
	const struct tarn_seq_params seq = {
		.principal = request->principal,
		.prompt = request->prompt,
		.nr_prompt = request->nr_prompt,
		.max_new_tokens = params->max_tokens,
		.nr_choices = params->nr_choices,
		.sampling = params->sampling,
		.no_prefix_cache = params->no_prefix_cache,
		.score_prompt = params->echo && params->logprobs,
	};
	char reason[256] = "";
	int rc = tarn_seq_create(run->engine, &seq, out_seq, reason,
				 sizeof(reason));
	const char *text = reason[0] ? reason : strerror(-rc);
	const struct tarn_engine_info *info = tarn_engine_info(run->engine);
	/* Then it is the choices that are too many, best_of's or n's. */
	const bool fits_once = params->nr_choices > 1 &&
			       (seq.nr_prompt + (uint64_t)seq.max_new_tokens) *
					       info->kv_bytes_per_token <=
				       info->kv_limit_bytes;

	switch (rc) {
	case 0:
		break;
	case -ENOSPC:
		api_fail(
			error, 400,
			!fits_once				? "max_tokens" :
			params->nr_choices > params->nr_answers ? "best_of" :
								  "n",
			"kv_memory_exceeded",
			"the prompt and max_tokens%s need more than all KV memory: %s",
			fits_once ? " once for each choice" : "", text);
		break;
	case -EAGAIN:
		api_fail(error, 503, NULL, "kv_memory_busy",
			 "KV memory is held by others: %s", text);
		error->retry_after_s = 5;
		break;
	case -EINVAL:
	case -E2BIG:
		api_fail(error, 400, NULL, "invalid_value", "%s", text);
		break;
	default:
		api_fail(error, 500, NULL, "engine_error", "no sequence: %s",
			 text);
		break;
	}
	return rc;
}

static void start_job(struct run *run, struct request *request,
		      struct tarn_seq *seq)
{
	struct job *job = job_create(request, seq);
	struct reply *start = reply_create(REPLY_START, request);
	const uint32_t nr_cached = tarn_seq_cached(seq);

	if (!job || !start) {
		struct api_error error;

		api_fail(&error, 500, NULL, NULL, "out of memory");
		reply_destroy(start);
		if (job) {
			job->request = request_get(request);
			job_destroy(job);
		} else {
			tarn_seq_destroy(seq);
		}
		refuse(run, request, &error);
		return;
	}
	request_leave_backlog(request);
	atomic_store(&request->nr_cached_seen, nr_cached);
	atomic_store(&request->state, REQUEST_PROMPT);
	atomic_fetch_add(&run->driver->nr_running, request->params.nr_choices);
	*run->jobs_tail = job;
	run->jobs_tail = &job->next;
	PROBE_REQUEST_SCHEDULE(request->serial, request->nr_prompt, nr_cached,
			       request->params.nr_choices);
	start->nr_cached = nr_cached;
	run_post(run, start);
}

/* In order: the first that cannot be let in holds up the rest. */
void run_admit(struct run *run)
{
	while (run->waiting && !run->is_blocked) {
		struct request *request = (struct request *)run->waiting;
		struct api_error error;
		struct tarn_seq *seq = NULL;
		int rc;

		if (!sched_may_run(atomic_load(&run->driver->nr_running),
				   request->params.nr_choices, run->budget))
			return;
		rc = open_sequence(run, request, &seq, &error);
		/* With nothing running nobody will give memory back: then it is an answer. */
		if (rc == -EAGAIN && (run->jobs || run->nr_begun)) {
			run->is_blocked = true;
			return;
		}
		/* Its first choice found memory, the others did not: it never will. */
		if (rc == -EAGAIN && request->params.nr_choices > 1)
			api_fail(
				&error, 400, "n", "kv_memory_exceeded",
				"%u choices of up to %u tokens need more than all KV memory",
				request->params.nr_choices,
				request->nr_prompt +
					request->params.max_tokens);
		run->waiting = request->item.next;
		if (!run->waiting)
			run->waiting_tail = &run->waiting;
		if (rc == 0)
			start_job(run, request, seq);
		else
			refuse(run, request, &error);
	}
}
