/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver thread: see driver.h. All state below belongs to it, but for the
 * flags and the inbox in struct driver.
 */
#include "daemon/driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/probes.h"
#include "daemon/schedule.h"

/* Where a lane of the composed batch comes from. */
struct slot {
	struct job *job;
	uint32_t lane;
};

struct run {
	struct driver *driver;
	struct tarn_engine *engine;
	uint32_t budget;
	struct job *jobs, **jobs_tail; /* in order of arrival */
	struct queue_item *waiting, **waiting_tail; /* requests, likewise */
	bool is_blocked; /* the first of waiting found no memory since the last sequence ended */
	uint64_t nr_steps;
	uint32_t nr_slots; /* size of the arrays below */
	struct slot *slots;
	struct sched_seq *seqs;
	uint32_t *chunks;
	struct tarn_work *work;
	uint32_t *work_slots;
	struct tarn_result *results;
	struct queue_item *out, **out_tail; /* replies of this round */
};

static void post(struct run *run, struct reply *reply)
{
	if (!reply) {
		log_error("out of memory: a reply is lost");
		return;
	}
	*run->out_tail = &reply->item;
	run->out_tail = &reply->item.next;
}

static void flush(struct run *run)
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
	post(run, reply_create_error(request, error));
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
	const uint64_t ns = clock_ns() - request->arrive_ns;

	PROBE_REQUEST_CANCEL(request->serial, nr_generated, ns);
	log_debug("%s cancelled after %u tokens", request->id, nr_generated);
}

/* ---- jobs that end early ---------------------------------------------------- */

static void unlink_job(struct run *run, struct job *job)
{
	struct job **link = &run->jobs;

	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	if (run->jobs_tail == &job->next)
		run->jobs_tail = link;
	atomic_fetch_sub(&run->driver->nr_running,
			 job->request->params.nr_choices);
	run->is_blocked = false;
}

static void fail_job(struct run *run, struct job *job,
		     const struct api_error *error)
{
	atomic_store(&job->request->state, REQUEST_FINISHED);
	post(run, reply_create_error(job->request, error));
	unlink_job(run, job);
	job_destroy(job);
}

static void fail_job_errno(struct run *run, struct job *job, int rc)
{
	struct api_error error;

	log_error("%s: the engine failed: %s", job->request->id, strerror(-rc));
	api_fail(&error, 500, NULL, "engine_error", "the engine failed: %s",
		 strerror(-rc));
	fail_job(run, job, &error);
}

/* Whoever is gone, running or waiting, leaves before the next step. */
static void drop_cancelled(struct run *run)
{
	struct queue_item **link = &run->waiting;
	struct job *next;

	for (struct job *job = run->jobs; job; job = next) {
		next = job->next;
		if (!request_is_cancelled(job->request))
			continue;
		note_cancel(job->request, job->nr_generated);
		atomic_store(&job->request->state, REQUEST_FINISHED);
		unlink_job(run, job);
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
static void drain(struct run *run)
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
		fail_job(run, run->jobs, &error);
}

/* ---- letting requests in ------------------------------------------------------ */

static void receive(struct run *run, struct queue_item *chain)
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
	};
	char reason[256] = "";
	int rc = tarn_seq_create(run->engine, &seq, out_seq, reason,
				 sizeof(reason));
	const char *text = reason[0] ? reason : strerror(-rc);

	switch (rc) {
	case 0:
		break;
	case -ENOSPC:
		api_fail(
			error, 400, "max_tokens", "kv_memory_exceeded",
			"the prompt and max_tokens need more than all KV memory: %s",
			text);
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
	post(run, start);
}

/* In order: the first that cannot be let in holds up the rest. */
static void admit(struct run *run)
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
		if (rc == -EAGAIN && run->jobs) {
			run->is_blocked = true;
			return;
		}
		run->waiting = request->item.next;
		if (!run->waiting)
			run->waiting_tail = &run->waiting;
		if (rc == 0)
			start_job(run, request, seq);
		else
			refuse(run, request, &error);
	}
}

/* ---- a step --------------------------------------------------------------------- */

/* Prompts whose last token is due become as many sequences as there are choices. */
static void fork_jobs(struct run *run)
{
	struct job *next;

	for (struct job *job = run->jobs; job; job = next) {
		int rc;

		next = job->next;
		if (!job_wants_fork(job) ||
		    tarn_seq_pending(job->lanes[0].seq) != 1)
			continue;
		rc = job_fork(job);
		if (rc != 0)
			fail_job_errno(run, job, rc);
	}
}

/* Lists every open lane; answers how many. */
static uint32_t list_lanes(struct run *run)
{
	uint32_t nr = 0;

	for (struct job *job = run->jobs; job; job = job->next) {
		for (uint32_t i = 0; i < job->nr_lanes; i++) {
			if (!job->lanes[i].seq)
				continue;
			run->slots[nr] = (struct slot){ job, i };
			run->seqs[nr] = (struct sched_seq){
				.nr_pending =
					tarn_seq_pending(job->lanes[i].seq),
				.nr_keep = job_wants_fork(job) ? 1 : 0,
			};
			nr++;
		}
	}
	return nr;
}

/* Fills work from the lanes; answers the number of entries. */
static uint32_t compose(struct run *run, uint32_t *out_tokens,
			uint32_t *out_decodes)
{
	uint32_t nr_lanes = list_lanes(run), nr = 0;

	*out_decodes = 0;
	*out_tokens = sched_compose(run->seqs, nr_lanes, run->budget,
				    run->nr_steps, run->chunks);
	for (uint32_t i = 0; i < nr_lanes; i++) {
		const struct slot *slot = &run->slots[i];

		if (run->chunks[i] == 0)
			continue;
		*out_decodes += slot->job->lanes[slot->lane].nr_generated > 0;
		run->work[nr] = (struct tarn_work){
			.seq = slot->job->lanes[slot->lane].seq,
			.nr_tokens = run->chunks[i],
		};
		run->work_slots[nr++] = i;
	}
	return nr;
}

static void finish_job(struct run *run, struct job *job)
{
	struct request *request = job->request;
	const uint64_t ns = job->last_ns - request->arrive_ns;

	atomic_store(&request->state, REQUEST_FINISHED);
	PROBE_REQUEST_FINISH(request->serial, request->nr_prompt,
			     job->nr_generated, ns);
	post(run, reply_create(REPLY_END, request));
	unlink_job(run, job);
	job_destroy(job);
}

/* Lanes of a job that failed are still in this step's list: they are passed over. */
static void forget_slots(struct run *run, uint32_t from, uint32_t nr,
			 const struct job *job)
{
	for (uint32_t i = from; i < nr; i++) {
		if (run->slots[run->work_slots[i]].job == job)
			run->slots[run->work_slots[i]].job = NULL;
	}
}

static void take_results(struct run *run, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		const struct tarn_result *result = &run->results[i];
		struct slot *slot = &run->slots[run->work_slots[i]];
		struct job *job = slot->job;
		int rc = result->status;

		if (!job)
			continue;
		if (rc == 0 && result->has_token) {
			atomic_store(&job->request->state, REQUEST_DECODING);
			rc = job_take(job, slot->lane, result, run->engine,
				      &run->out_tail);
			if (rc == 0 && !job->lanes[slot->lane].seq)
				run->is_blocked = false;
		}
		if (rc != 0) {
			forget_slots(run, i + 1, nr, job);
			fail_job_errno(run, job, rc);
		} else if (job->nr_open == 0) {
			finish_job(run, job);
		}
	}
}

/* Return: 0, or -errno when the engine is of no more use. */
static int step(struct run *run)
{
	uint32_t nr, nr_tokens, nr_decodes;
	uint64_t start_ns, ns;
	int rc;

	fork_jobs(run);
	nr = compose(run, &nr_tokens, &nr_decodes);
	if (nr == 0)
		return 0;
	run->nr_steps++;
	PROBE_STEP_BEGIN(run->nr_steps, nr, nr_tokens);
	start_ns = clock_ns();
	rc = tarn_step(run->engine, run->work, nr, run->results);
	ns = clock_ns() - start_ns;
	PROBE_STEP_END(run->nr_steps, nr_tokens, nr_decodes, nr - nr_decodes,
		       ns);
	if (rc == -EIO)
		return rc;
	if (rc != 0) {
		/* Nothing was computed: only those of this batch pay for it. */
		for (uint32_t i = 0; i < nr; i++) {
			run->results[i].status = rc;
			run->results[i].has_token = false;
		}
	}
	take_results(run, nr);
	return 0;
}

/* ---- the thread ----------------------------------------------------------------- */

static int run_init(struct run *run, struct driver *driver)
{
	*run = (struct run){ .driver = driver, .engine = driver->engine };
	run->budget = tarn_engine_info(run->engine)->max_batch_tokens;
	if (run->budget == 0)
		run->budget = 1;
	run->jobs_tail = &run->jobs;
	run->waiting_tail = &run->waiting;
	run->out_tail = &run->out;
	/* Beside one wide request nothing else runs: see sched_may_run(). */
	run->nr_slots = run->budget > TARN_MAX_CHOICES ? run->budget :
							 TARN_MAX_CHOICES;
	run->slots = calloc(run->nr_slots, sizeof(*run->slots));
	run->seqs = calloc(run->nr_slots, sizeof(*run->seqs));
	run->chunks = calloc(run->nr_slots, sizeof(*run->chunks));
	run->work = calloc(run->nr_slots, sizeof(*run->work));
	run->work_slots = calloc(run->nr_slots, sizeof(*run->work_slots));
	run->results = calloc(run->nr_slots, sizeof(*run->results));
	return run->slots && run->seqs && run->chunks && run->work &&
			       run->work_slots && run->results ?
		       0 :
		       -ENOMEM;
}

static void run_deinit(struct run *run)
{
	free(run->slots);
	free(run->seqs);
	free(run->chunks);
	free(run->work);
	free(run->work_slots);
	free(run->results);
}

static void post_fatal(struct driver *driver, const char *text)
{
	struct api_error error;
	struct reply *reply;

	api_fail(&error, 500, NULL, NULL, "%s", text);
	reply = reply_create_error(NULL, &error);
	if (!reply)
		return;
	reply->kind = REPLY_FATAL;
	queue_push(driver->replies, &reply->item);
}

/* Loads the model. Return: 0 or -errno, which has been told to the event thread. */
static int load(struct driver *driver)
{
	const struct tarn_engine_options *options = &driver->engine_options;
	const uint64_t start_ns = clock_ns();
	char reason[512] = "";
	struct reply *reply;
	int rc;

	PROBE_LOAD_BEGIN(options->model_path);
	rc = tarn_engine_create(options, &driver->engine, reason,
				sizeof(reason));
	PROBE_LOAD_END(-rc, clock_ns() - start_ns);
	if (rc != 0) {
		post_fatal(driver, reason[0] ? reason : strerror(-rc));
		return rc;
	}
	if (reason[0])
		log_warn("%s", reason);
	reply = reply_create(REPLY_LOADED, NULL);
	if (!reply) {
		post_fatal(driver, "out of memory");
		return -ENOMEM;
	}
	queue_push(driver->replies, &reply->item);
	return 0;
}

/* Until drained. Return: 0, or -errno when the engine is of no more use. */
static int run_steps(struct run *run)
{
	struct driver *driver = run->driver;
	int rc = 0;

	while (rc == 0) {
		bool is_idle = !run->jobs && !run->waiting;
		bool is_draining = atomic_load(&driver->is_draining);

		if (is_idle && is_draining)
			break;
		receive(run, is_idle ? queue_take_wait(&driver->inbox) :
				       queue_take(&driver->inbox));
		drop_cancelled(run);
		if (atomic_load(&driver->is_draining))
			drain(run);
		admit(run);
		rc = step(run);
		flush(run);
	}
	return rc;
}

static void fail_everything(struct run *run, int rc)
{
	struct api_error error;

	api_fail(&error, 500, NULL, "engine_error", "the engine failed: %s",
		 strerror(-rc));
	while (run->jobs)
		fail_job(run, run->jobs, &error);
	receive(run, queue_take(&run->driver->inbox));
	drain(run);
	flush(run);
}

static void *driver_main(void *arg)
{
	struct driver *driver = arg;
	struct reply *reply;
	struct run run;
	int rc;

	if (load(driver) != 0)
		return NULL;
	rc = run_init(&run, driver);
	if (rc == 0) {
		rc = run_steps(&run);
		fail_everything(&run, rc);
	}
	run_deinit(&run);
	if (rc != 0) {
		post_fatal(driver, strerror(-rc));
		return NULL;
	}
	reply = reply_create(REPLY_DRAINED, NULL);
	if (reply)
		queue_push(driver->replies, &reply->item);
	return NULL;
}

int driver_init(struct driver *driver,
		const struct tarn_engine_options *options,
		struct queue *replies)
{
	int rc;

	*driver = (struct driver){ .engine_options = *options,
				   .replies = replies };
	rc = queue_init(&driver->inbox, false);
	if (rc != 0)
		return rc;
	rc = pthread_create(&driver->thread, NULL, driver_main, driver);
	if (rc != 0) {
		queue_deinit(&driver->inbox);
		return -rc;
	}
	driver->is_started = true;
	pthread_setname_np(driver->thread, "tarn-driver");
	return 0;
}

void driver_submit(struct driver *driver, struct request *request)
{
	atomic_store(&request->state, REQUEST_WAITING);
	request->item.next = NULL;
	queue_push(&driver->inbox, &request->item);
}

void driver_drain(struct driver *driver, bool abort)
{
	atomic_store(&driver->is_aborting, abort);
	atomic_store(&driver->is_draining, true);
	queue_close(&driver->inbox);
}

void driver_deinit(struct driver *driver)
{
	if (!driver->is_started)
		return;
	pthread_join(driver->thread, NULL);
	/* What came in after the last look. */
	for (struct queue_item *item = queue_take(&driver->inbox); item;) {
		struct request *request = (struct request *)item;

		item = item->next;
		request_put(request);
	}
	queue_deinit(&driver->inbox);
	tarn_engine_destroy(driver->engine);
	driver->engine = NULL;
	driver->is_started = false;
}
