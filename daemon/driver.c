/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver thread: see driver.h. All state below belongs to it, but for the
 * flags and the inbox in struct driver.
 */
#include "daemon/driver_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/probes.h"

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
			run_fail_job_errno(run, job, rc);
	}
}

/* Tokens that a step may compute of the lane. */
static uint32_t pending_of(const struct job *job, uint32_t index)
{
	const struct lane *lane = &job->lanes[index];
	uint32_t nr = tarn_seq_pending(lane->seq);

	/* A step that was begun draws its last one. */
	if (lane->nr_drawn && lane->nr_generated + lane->nr_drawn >=
				      job->request->params.max_tokens)
		return 0;
	return tarn_seq_scores(lane->seq) && nr > TARN_MAX_SCORED ?
		       TARN_MAX_SCORED :
		       nr;
}

/* Lists every open lane; answers how many. */
static uint32_t list_lanes(struct run *run)
{
	uint32_t nr = 0;

	for (struct job *job = run->jobs; job; job = job->next) {
		for (uint32_t i = 0; i < job->nr_lanes; i++) {
			if (!job->lanes[i].seq)
				continue;
			run->slots[nr] = (struct slot){ .job = job, .lane = i };
			run->seqs[nr] = (struct sched_seq){
				.nr_pending = pending_of(job, i),
				.nr_keep = job_wants_fork(job) ? 1 : 0,
			};
			nr++;
		}
	}
	return nr;
}

/* Fills work and the step's slots from the lanes. */
static void compose(struct run *run, struct begun_step *step)
{
	uint32_t nr_lanes = list_lanes(run);

	step->nr = step->nr_decodes = 0;
	step->nr_tokens = sched_compose(run->seqs, nr_lanes, run->budget,
					run->nr_steps, run->chunks);
	for (uint32_t i = 0; i < nr_lanes; i++) {
		struct slot *slot = &run->slots[i];
		const struct lane *lane = &slot->job->lanes[slot->lane];

		if (run->chunks[i] == 0)
			continue;
		slot->draws = run->chunks[i] == tarn_seq_pending(lane->seq);
		step->nr_decodes += lane->nr_generated + lane->nr_drawn > 0;
		run->work[step->nr] = (struct tarn_work){
			.seq = lane->seq,
			.nr_tokens = run->chunks[i],
		};
		step->slots[step->nr++] = *slot;
	}
}

static void finish_job(struct run *run, struct job *job)
{
	struct request *request = job->request;
	const uint64_t ns = job->last_ns - request->arrive_ns;

	atomic_store(&request->state, REQUEST_FINISHED);
	PROBE_REQUEST_FINISH(request->serial, request->nr_prompt,
			     job->nr_generated, ns);
	run_post(run, reply_create(REPLY_END, request));
	run_unlink_job(run, job);
	job_destroy(job);
}

static void take_results(struct run *run, const struct begun_step *step)
{
	for (uint32_t i = 0; i < step->nr; i++) {
		const struct tarn_result *result = &run->results[i];
		const struct slot *slot = &step->slots[i];
		struct job *job = slot->job;
		int rc = result->status;

		/* Gone since the step was begun, or ended by the one before. */
		if (!job || !job->lanes[slot->lane].seq)
			continue;
		job->lanes[slot->lane].nr_drawn -= slot->draws;
		if (rc == 0 && result->has_token) {
			atomic_store(&job->request->state, REQUEST_DECODING);
			rc = job_take(job, slot->lane, result, run->engine,
				      &run->out_tail);
			if (rc == 0 && !job->lanes[slot->lane].seq)
				run_note_leaver(run);
		}
		if (rc != 0) {
			run_fail_job_errno(run, job, rc);
		} else if (job->nr_open == 0) {
			finish_job(run, job);
		}
	}
}

/* Return: 0, or -errno: nothing was begun, and only those of this batch pay for it. */
static int begin(struct run *run)
{
	struct begun_step *step = run_begun(run, run->nr_begun);
	int rc;

	fork_jobs(run);
	compose(run, step);
	if (step->nr == 0)
		return 0;
	step->id = ++run->nr_steps;
	PROBE_STEP_BEGIN(step->id, step->nr, step->nr_tokens);
	step->start_ns = clock_ns();
	for (uint32_t i = 0; i < step->nr; i++) {
		const struct slot *slot = &step->slots[i];

		slot->job->lanes[slot->lane].nr_drawn += slot->draws;
	}
	rc = tarn_step_begin(run->engine, run->work, step->nr);
	if (rc != 0) {
		for (uint32_t i = 0; i < step->nr; i++)
			run->results[i] = (struct tarn_result){ .status = rc };
		take_results(run, step);
		return rc;
	}
	run->nr_begun++;
	return 0;
}

static void shift(struct run *run)
{
	run->first_begun = (run->first_begun + 1) % MAX_STEPS;
	run->nr_begun--;
}

/* The step that was begun first. Return: 0, or -errno when the engine is of no more use. */
static int finish(struct run *run)
{
	const struct begun_step *step = run_begun(run, 0);
	int rc = tarn_step_end(run->engine, run->results);
	uint64_t now_ns = clock_ns();
	/* What it had the device for: the one before may have run until just now. */
	uint64_t from_ns = step->start_ns > run->last_end_ns ? step->start_ns :
							       run->last_end_ns;

	run->last_end_ns = now_ns;
	PROBE_STEP_END(step->id, step->nr_tokens, step->nr_decodes,
		       step->nr - step->nr_decodes, now_ns - from_ns);
	metrics_observe(run->driver->metrics, METRICS_STEP, now_ns - from_ns);
	metrics_observe(run->driver->metrics, METRICS_STEP_TOKENS,
			step->nr_tokens);
	shift(run);
	if (run->is_leaving)
		run->is_blocked = run->is_leaving = false;
	if (rc != 0)
		return rc;
	take_results(run, step);
	return 0;
}

/*
 * The next step is begun while the one before is computed, where the engine says that it may: the
 * device has it before it is through, and what its tokens give to do is done meanwhile. Who comes
 * or goes waits for two steps at most, the one that runs and the one behind it. Return: 0, or
 * -errno when the engine is of no more use.
 */
static int step(struct run *run)
{
	const uint64_t nr_before = run->nr_steps;
	bool goes_on;
	int rc = begin(run);

	goes_on = rc == 0 && run->nr_steps > nr_before &&
		  tarn_engine_info(run->engine)->runs_ahead;
	if (rc != -EIO)
		rc = 0;
	while (rc == 0 && run->nr_begun &&
	       !(goes_on && run->nr_begun == 1 &&
		 tarn_step_may_begin(run->engine))) {
		rc = finish(run);
		run_flush(run);
	}
	return rc;
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
	run->results = calloc(run->nr_slots, sizeof(*run->results));
	for (uint32_t i = 0; i < MAX_STEPS; i++) {
		run->begun[i].slots =
			calloc(run->nr_slots, sizeof(*run->begun[i].slots));
		if (!run->begun[i].slots)
			return -ENOMEM;
	}
	return run->slots && run->seqs && run->chunks && run->work &&
			       run->results ?
		       0 :
		       -ENOMEM;
}

static void run_deinit(struct run *run)
{
	free(run->slots);
	free(run->seqs);
	free(run->chunks);
	free(run->work);
	for (uint32_t i = 0; i < MAX_STEPS; i++)
		free(run->begun[i].slots);
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
		char text[1024];

		snprintf(text, sizeof(text), "%s: %s", options->model_path,
			 reason[0] ? reason : strerror(-rc));
		post_fatal(driver, text);
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
		bool is_idle = !run->jobs && !run->waiting && !run->nr_begun;
		bool is_draining = atomic_load(&driver->is_draining);

		if (is_idle && is_draining)
			break;
		run_receive(run, is_idle ? queue_take_wait(&driver->inbox) :
					   queue_take(&driver->inbox));
		run_drop_cancelled(run);
		if (atomic_load(&driver->is_draining))
			run_drain(run);
		run_admit(run);
		rc = step(run);
		run_flush(run);
		tarn_engine_tidy(run->engine);
	}
	return rc;
}

static void fail_everything(struct run *run, int rc)
{
	struct api_error error;

	api_fail(&error, 500, NULL, "engine_error", "the engine failed: %s",
		 strerror(-rc));
	/* What sequences have is theirs alone then. */
	for (; run->nr_begun; shift(run))
		(void)tarn_step_end(run->engine, run->results);
	while (run->jobs)
		run_fail_job(run, run->jobs, &error);
	run_receive(run, queue_take(&run->driver->inbox));
	run_drain(run);
	run_flush(run);
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
		struct queue *replies, struct metrics *metrics)
{
	int rc;

	*driver = (struct driver){ .engine_options = *options,
				   .replies = replies,
				   .metrics = metrics };
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
