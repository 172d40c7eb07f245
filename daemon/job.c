/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and their lanes: see job.h.
 */
#include "daemon/job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/probes.h"

struct job *job_create(struct request *request, struct tarn_seq *seq)
{
	const struct request_params *params = &request->params;
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->lanes = calloc(params->nr_choices, sizeof(*job->lanes));
	if (!job->lanes) {
		free(job);
		return NULL;
	}
	for (uint32_t i = 0; i < params->nr_choices; i++)
		textstream_init(&job->lanes[i].stream, params->stops,
				params->nr_stops);
	job->request = request;
	job->lanes[0].seq = seq;
	job->nr_lanes = 1;
	job->nr_open = params->nr_choices;
	job->last_ns = clock_ns();
	atomic_store_explicit(&request->scheduled_ns, job->last_ns,
			      memory_order_relaxed);
	return job;
}

void job_destroy(struct job *job)
{
	for (uint32_t i = 0; i < job->request->params.nr_choices; i++) {
		struct lane *lane = &job->lanes[i];

		tarn_seq_destroy(lane->seq);
		textstream_deinit(&lane->stream);
		reply_destroy(lane->delta);
	}
	free(job->lanes);
	request_put(job->request);
	free(job);
}

int job_fork(struct job *job)
{
	while (job_wants_fork(job)) {
		int rc = tarn_seq_fork(job->lanes[0].seq, job->nr_lanes,
				       &job->lanes[job->nr_lanes].seq);

		if (rc != 0)
			return rc;
		job->nr_lanes++;
	}
	return 0;
}

static int grow(void **array, uint32_t *size, uint32_t need, size_t item_bytes)
{
	uint32_t wanted = *size ? *size : 4;
	void *grown;

	if (need <= *size)
		return 0;
	while (wanted < need)
		wanted *= 2;
	grown = realloc(*array, wanted * item_bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*size = wanted;
	return 0;
}

/* Notes a token in the lane's delta, which is made when there is none. */
static int note_token(struct job *job, uint32_t index, int32_t id,
		      float logprob, const struct tarn_logprob *top,
		      uint32_t nr_top)
{
	struct lane *lane = &job->lanes[index];
	struct reply *delta = lane->delta;

	if (!delta) {
		delta = reply_create(REPLY_DELTA, job->request);
		if (!delta)
			return -ENOMEM;
		delta->choice = index;
		lane->delta = delta;
		lane->nr_tokens_size = 0;
		lane->nr_tops = 0;
		lane->nr_tops_size = 0;
	}
	if (grow((void **)&delta->tokens, &lane->nr_tokens_size,
		 delta->nr_tokens + 1, sizeof(*delta->tokens)) != 0 ||
	    grow((void **)&delta->tops, &lane->nr_tops_size,
		 lane->nr_tops + nr_top, sizeof(*delta->tops)) != 0)
		return -ENOMEM;
	delta->tokens[delta->nr_tokens++] = (struct reply_token){
		.id = id,
		.logprob = logprob,
		.nr_top = nr_top,
	};
	if (nr_top)
		memcpy(delta->tops + lane->nr_tops, top, nr_top * sizeof(*top));
	lane->nr_tops += nr_top;
	return 0;
}

/* The prompt goes first into a lane's first delta: its tokens where they were scored, its text. */
static int note_prompt(struct job *job, uint32_t index)
{
	const struct request *request = job->request;
	const struct tarn_score *scores =
		tarn_seq_scores(job->lanes[index].seq);
	struct reply *delta;

	for (uint32_t i = 0; scores && i < request->nr_prompt; i++) {
		int rc = note_token(job, index, request->prompt[i],
				    i ? scores[i].logprob : NAN, scores[i].top,
				    scores[i].nr_top);

		if (rc != 0)
			return rc;
	}
	delta = job->lanes[index].delta;
	if (!delta) {
		delta = reply_create(REPLY_DELTA, job->request);
		if (!delta)
			return -ENOMEM;
		delta->choice = index;
		job->lanes[index].delta = delta;
	}
	delta->nr_echoed = delta->nr_tokens;
	return text_append(&delta->text, request->echo_text.bytes,
			   request->echo_text.len);
}

/* The delta goes out: its tokens get to know their alternatives, the array moves no more. */
static void send_delta(struct lane *lane, struct queue_item ***replies)
{
	struct reply *delta = lane->delta;
	const struct tarn_logprob *top = delta->tops;

	for (uint32_t i = 0; i < delta->nr_tokens; i++) {
		delta->tokens[i].top = top;
		if (delta->tokens[i].nr_top)
			top += delta->tokens[i].nr_top;
	}
	**replies = &delta->item;
	*replies = &delta->item.next;
	lane->delta = NULL;
}

static enum finish_reason finish_of(const struct job *job,
				    const struct lane *lane,
				    const struct tarn_result *result)
{
	if (job->request->params.is_echo_alone)
		return FINISH_LENGTH;
	if (result->is_end || lane->stream.is_stopped)
		return FINISH_STOP;
	if (lane->nr_generated >= job->request->params.max_tokens)
		return FINISH_LENGTH;
	return result->is_stuck ? FINISH_ERROR : FINISH_NONE;
}

/* A token's text; a control token has one only where it marks a tool call. */
static const char *piece_of(const struct tarn_engine *engine,
			    const struct request_params *params, int32_t token,
			    size_t *out_len)
{
	const char *piece = tarn_token_piece(engine, token, false, out_len);

	if (params->tool_format == TOOL_FORMAT_NONE || (piece && *out_len))
		return piece;
	piece = tarn_token_piece(engine, token, true, out_len);
	if (piece && !toolparse_is_marker(params->tool_format, piece, *out_len))
		*out_len = 0;
	return piece;
}

int job_take(struct job *job, uint32_t index, const struct tarn_result *result,
	     const struct tarn_engine *engine, struct queue_item ***replies)
{
	struct lane *lane = &job->lanes[index];
	struct request *request = job->request;
	enum finish_reason finish;
	size_t len = 0;
	int rc = 0;

	if (request->params.echo && !lane->nr_generated)
		rc = note_prompt(job, index);
	if (rc == 0 && !request->params.is_echo_alone)
		rc = note_token(job, index, result->token, result->logprob,
				result->top, result->nr_top);
	if (rc != 0)
		return rc;
	job->last_ns = clock_ns();
	if (lane->nr_generated++)
		metrics_observe(request->metrics, METRICS_INTER_TOKEN,
				job->last_ns - lane->last_ns);
	lane->last_ns = job->last_ns;
	if (job->nr_generated++ == 0) {
		PROBE_REQUEST_FIRST_TOKEN(request->serial,
					  job->last_ns - request->arrive_ns);
		atomic_store_explicit(&request->first_token_ns, job->last_ns,
				      memory_order_relaxed);
	}
	atomic_store_explicit(&request->last_token_ns, job->last_ns,
			      memory_order_relaxed);
	atomic_store_explicit(&request->nr_generated_seen, job->nr_generated,
			      memory_order_relaxed);
	if (!result->is_end && !request->params.is_echo_alone) {
		const char *piece =
			piece_of(engine, &request->params, result->token, &len);

		rc = textstream_push(&lane->stream, piece, piece ? len : 0,
				     &lane->delta->text);
		if (rc != 0)
			return rc;
	}
	finish = finish_of(job, lane, result);
	if (finish == FINISH_ERROR)
		log_info(
			"%s: choice %u ends after %u tokens: its grammar has no way on",
			request->id, index, lane->nr_generated);
	if (finish != FINISH_NONE) {
		rc = textstream_finish(&lane->stream, &lane->delta->text);
		if (rc != 0)
			return rc;
		/* The last bytes may have completed a stop string. */
		lane->delta->finish = lane->stream.is_stopped ? FINISH_STOP :
								finish;
		tarn_seq_destroy(lane->seq);
		lane->seq = NULL;
		job->nr_open--;
	}
	/* Held-back text waits for its rest; tokens wait with it, so that they stay together. */
	if (finish != FINISH_NONE ||
	    (request->params.is_stream && lane->delta->text.len))
		send_delta(lane, replies);
	return 0;
}
