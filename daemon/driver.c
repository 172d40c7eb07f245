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
static uint32_t pending_of(const struct job *job, uint32_t lane)
{
	uint32_t nr = tarn_seq_pending(job->lanes[lane].seq);

	return tarn_seq_scores(job->lanes[lane].seq) && nr > TARN_MAX_SCORED ?
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
			run->slots[nr] = (struct slot){ job, i };
			run->seqs[nr] = (struct sched_seq){
				.nr_pending = pending_of(job, i),
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
	run_post(run, reply_create(REPLY_END, request));
	run_unlink_job(run, job);
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
			run_fail_job_errno(run, job, rc);
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
	metrics_observe(run->driver->metrics, METRICS_STEP, ns);
	metrics_observe(run->driver->metrics, METRICS_STEP_TOKENS, nr_tokens);
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
		bool is_idle = !run->jobs && !run->waiting;
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
