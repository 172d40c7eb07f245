/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of a step: a flattened batch of tokens from many sequences is planned
 * and put on its way through the model, and the sequences whose last pending
 * token it computes draw their next one.
 *
 * It may be begun while the one before is computed, which holds up nothing then: what a
 * sequence draws there is taken from where the device keeps it, before the host reads it.
 * That needs rows alone that the device can go on with. Where the host has to know a token
 * first (penalties, biases, a grammar, mirostat, a draw that the device does not make), and
 * where a prompt is computed (it is sealed at its end; the step is long), the next one is begun
 * at the end. What is drawn depends on nothing of this. Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"

/* Arrays of one room are indexed by limits of another. */
_Static_assert((int)TARN_MAX_LOGPROBS == (int)BACKEND_MAX_TOP,
	       "alternatives of a token");
_Static_assert((int)TARN_NR_SAMPLERS == (int)BACKEND_NR_SAMPLERS &&
		       (int)TARN_SAMPLER_TEMPERATURE ==
			       (int)BACKEND_TEMPERATURE &&
		       (int)TARN_SAMPLER_TYPICAL_P == (int)BACKEND_TYPICAL_P &&
		       (int)TARN_SAMPLER_XTC == (int)BACKEND_XTC,
	       "steps of the sampler");
_Static_assert((int)KV_MAX_STREAMS == (int)BACKEND_MAX_STREAMS,
	       "streams of a model");

int engine_step_init(struct tarn_engine *e)
{
	struct step_arrays *a = &e->arrays;
	size_t n = e->info.max_batch_tokens;
	bool ok;

	a->tokens = calloc(n, sizeof(*a->tokens));
	a->positions = calloc(n, sizeof(*a->positions));
	a->items = calloc(n, sizeof(*a->items));
	a->out_rows = calloc(n, sizeof(*a->out_rows));
	ok = a->tokens && a->positions && a->items && a->out_rows;
	for (uint32_t i = 0; i < BACKEND_MAX_STARTED; i++) {
		struct step *s = &e->steps[i];

		s->entries = calloc(n, sizeof(*s->entries));
		s->samples = calloc(n, sizeof(*s->samples));
		s->entry_of_out = calloc(n, sizeof(*s->entry_of_out));
		ok = ok && s->entries && s->samples && s->entry_of_out;
	}
	for (uint32_t s = 0; s < e->model.nr_streams; s++) {
		a->tiles[s] = calloc(n, sizeof(*a->tiles[s]));
		ok = ok && a->tiles[s];
	}
	return ok ? 0 : -ENOMEM;
}

void engine_step_deinit(struct tarn_engine *e)
{
	struct step_arrays *a = &e->arrays;

	engine_step_drop(e);
	free(a->tokens);
	free(a->positions);
	free(a->items);
	free(a->out_rows);
	for (uint32_t i = 0; i < BACKEND_MAX_STARTED; i++) {
		free(e->steps[i].entries);
		free(e->steps[i].samples);
		free(e->steps[i].entry_of_out);
	}
	for (uint32_t s = 0; s < KV_MAX_STREAMS; s++)
		free(a->tiles[s]);
}

static bool is_valid_batch(struct tarn_engine *e, const struct tarn_work *work,
			   uint32_t nr)
{
	uint64_t total = 0;

	e->arrays.id++;
	for (uint32_t i = 0; i < nr; i++) {
		if (!work[i].seq || work[i].seq->engine != e ||
		    !work[i].nr_tokens || work[i].seq->failed ||
		    work[i].seq->is_gone ||
		    work[i].nr_tokens > tarn_seq_pending(work[i].seq) ||
		    (work[i].seq->scores &&
		     work[i].nr_tokens > TARN_MAX_SCORED) ||
		    work[i].seq->step_id == e->arrays.id)
			return false;
		work[i].seq->step_id =
			e->arrays.id; /* a second entry is refused */
		total += work[i].nr_tokens;
	}
	return total <= e->info.max_batch_tokens;
}

bool engine_bans_ends(const struct tarn_seq *seq)
{
	return seq->sampling.ignore_eos &&
	       !(seq->constraint && seq->constraint->is_end);
}

static struct backend_sample *add_out(struct tarn_engine *e, struct step *step,
				      uint32_t row)
{
	e->arrays.out_rows[step->nr_out] = row;
	step->entry_of_out[step->nr_out] = step->nr_entries;
	return &step->samples[step->nr_out++];
}

static void want_sample(struct tarn_engine *e, struct step *step,
			const struct tarn_seq *seq, uint32_t row)
{
	const struct tarn_sampling *s = &seq->sampling;
	struct backend_sample *sample = add_out(e, step, row);

	*sample = (struct backend_sample){
		.temperature = s->temperature,
		.top_k = s->top_k,
		.top_p = s->top_p,
		.min_p = s->min_p,
		.typical_p = s->typical_p,
		.top_n_sigma = s->top_n_sigma,
		.xtc_probability = s->xtc_probability,
		.xtc_threshold = s->xtc_threshold,
		.mirostat_tau = s->mirostat_tau,
		.mirostat_eta = s->mirostat_eta,
		.mirostat_mu = seq->mirostat_mu,
		.nr_order = s->nr_order,
		.seed = s->seed,
		.choice = seq->choice,
		.position = seq->nr_tokens + seq->nr_unread,
		.want_logprob = s->logprobs || s->nr_logprobs,
		.nr_top = s->nr_logprobs,
		.banned = e->end_tokens,
		.nr_banned = engine_bans_ends(seq) ? e->nr_end_tokens : 0,
		.allowed = seq->constraint ? seq->constraint->allowed : NULL,
	};
	for (uint32_t i = 0; i < s->nr_order; i++)
		sample->order[i] = (uint8_t)s->order[i];
	if (seq->adjust)
		sample->adjust = adjust_list(seq->adjust, seq->tokens,
					     seq->nr_tokens,
					     &sample->nr_adjust);
}

/* The row's logits say what the model holds of the prompt's next token, number @at. */
static void want_score(struct tarn_engine *e, struct step *step,
		       const struct tarn_seq *seq, uint32_t row, uint32_t at)
{
	*add_out(e, step, row) = (struct backend_sample){
		.is_given = true,
		.token = seq->tokens[at],
		.position = at,
		.want_logprob = true,
		.nr_top = seq->sampling.nr_logprobs,
	};
}

/* Whether the host has to know what it draws before it can say how to go on. */
static bool needs_host(const struct tarn_seq *seq)
{
	return seq->adjust || seq->constraint || seq->sampling.mirostat_tau > 0;
}

/* Rows of one entry; memory for them first, so that a failure leaves the batch as it was. */
static int gather(struct tarn_engine *e, struct step *step,
		  const struct tarn_work *w)
{
	struct step_arrays *a = &e->arrays;
	struct tarn_seq *seq = w->seq;
	uint32_t pos = kv_seq_len(seq->kv);
	/* Then it is all that is pending: what draws has computed everything before. */
	bool is_unread = pos == seq->nr_tokens;
	bool is_last = w->nr_tokens == tarn_seq_pending(seq);
	int rc = kv_seq_append(seq->kv, is_unread ? NULL : seq->tokens + pos,
			       w->nr_tokens);

	if (rc)
		return rc;
	if (pos < seq->nr_prompt) {
		step->nr_prompt_tokens += w->nr_tokens;
		step->may_be_followed = false;
	}
	a->items[a->nr_items++] =
		(struct plan_item){ seq->kv, a->nr_rows, w->nr_tokens, pos };
	for (uint32_t i = 0; i < w->nr_tokens; i++) {
		uint32_t row = a->nr_rows++;

		a->tokens[row] = is_unread ? ~(int32_t)seq->drawn_by :
					     seq->tokens[pos + i];
		a->positions[row] = pos + i;
		for (uint32_t s = 0; s < e->model.nr_streams; s++)
			a->tiles[s][row] = kv_seq_tile(seq->kv, s, pos + i);
		if (seq->scores && pos + i + 1 < seq->nr_prompt)
			want_score(e, step, seq, row, pos + i + 1);
	}
	if (!is_last)
		return 0;
	want_sample(e, step, seq, a->nr_rows - 1);
	if (needs_host(seq) ||
	    !e->backend->ops->keeps_token(e->backend,
					  &step->samples[step->nr_out - 1]))
		step->may_be_followed = false;
	return 0;
}

static int start(struct tarn_engine *e, struct step *step)
{
	struct step_arrays *a = &e->arrays;
	struct backend_batch batch = {
		.nr_rows = a->nr_rows,
		.tokens = a->tokens,
		.positions = a->positions,
		.nr_out = step->nr_out,
		.out_rows = a->out_rows,
	};
	int rc = 0;

	for (uint32_t s = 0; s < e->model.nr_streams && !rc; s++) {
		batch.tiles[s] = a->tiles[s];
		rc = plan_build(e->plans, e->kv, s, a->items, a->nr_items,
				e->backend->unit_rows, &batch.plans[s]);
	}
	if (!rc)
		rc = e->backend->ops->begin(e->backend, &batch);
	if (rc)
		return rc;
	model_forward(&e->model, e->backend);
	e->backend->ops->sample(e->backend, step->samples, step->nr_out);
	rc = e->backend->ops->submit(e->backend);
	step->is_running = !rc;
	if (e->backend->is_device) {
		int fenced = kv_cache_fence(
			e->kv, e->backend->ops->stream(e->backend));

		/* What uses memory that no fence guards is over before any is given up. */
		if (fenced)
			engine_step_wait(e);
		rc = rc ? rc : fenced;
	}
	return rc;
}

/* From now on what they draw is pending, where there is room for it. */
static void expect_tokens(struct step *step)
{
	for (uint32_t i = 0; i < step->nr_out; i++) {
		struct tarn_seq *seq = step->entries[step->entry_of_out[i]].seq;

		if (step->samples[i].is_given ||
		    seq->nr_tokens + seq->nr_unread == seq->capacity)
			continue;
		seq->nr_unread++;
		seq->drawn_by = i;
	}
}

bool tarn_step_may_begin(const struct tarn_engine *e)
{
	const struct step *last =
		engine_step_at((struct tarn_engine *)e, e->nr_begun - 1);

	return !e->nr_begun ||
	       (e->nr_begun < BACKEND_MAX_STARTED && last->may_be_followed);
}

int tarn_step_begin(struct tarn_engine *e, const struct tarn_work *work,
		    uint32_t nr)
{
	struct step_arrays *a = &e->arrays;
	struct step *step = engine_step_at(e, e->nr_begun);

	if (!tarn_step_may_begin(e))
		return -EBUSY;
	if (!nr || !is_valid_batch(e, work, nr))
		return -EINVAL;
	e->ended = NULL;
	a->nr_rows = a->nr_items = 0;
	step->nr_entries = step->nr_out = step->nr_prompt_tokens = 0;
	step->may_be_followed = true;
	step->is_running = false;
	step->rc = 0;
	for (uint32_t i = 0; i < nr; i++) {
		struct step_entry *entry = &step->entries[i];
		struct tarn_seq *seq = work[i].seq;

		entry->seq = seq;
		entry->status = gather(e, step, &work[i]);
		entry->end = kv_seq_len(seq->kv);
		/* It is told of at the end: till then nobody knows to leave it out. */
		if (entry->status)
			step->may_be_followed = false;
		seq->failed |= entry->status != 0;
		seq->nr_steps++;
		step->nr_entries++;
	}
	e->nr_begun++;
	if (a->nr_rows)
		step->rc = start(e, step);
	if (!step->rc)
		expect_tokens(step);
	else
		step->may_be_followed = false;
	return 0;
}
