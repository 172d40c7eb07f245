/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step: a flattened batch of tokens from many sequences goes through the
 * model, and the sequences whose last pending token was computed draw their
 * next one. Driver thread.
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
	struct step_arrays *a = &e->step;
	size_t n = e->info.max_batch_tokens;
	bool ok;

	a->tokens = calloc(n, sizeof(*a->tokens));
	a->positions = calloc(n, sizeof(*a->positions));
	a->items = calloc(n, sizeof(*a->items));
	a->out_rows = calloc(n, sizeof(*a->out_rows));
	a->samples = calloc(n, sizeof(*a->samples));
	a->entry_of_out = calloc(n, sizeof(*a->entry_of_out));
	ok = a->tokens && a->positions && a->items && a->out_rows &&
	     a->samples && a->entry_of_out;
	for (uint32_t s = 0; s < e->model.nr_streams; s++) {
		a->tiles[s] = calloc(n, sizeof(*a->tiles[s]));
		ok = ok && a->tiles[s];
	}
	return ok ? 0 : -ENOMEM;
}

void engine_step_deinit(struct tarn_engine *e)
{
	struct step_arrays *a = &e->step;

	free(a->tokens);
	free(a->positions);
	free(a->items);
	free(a->out_rows);
	free(a->samples);
	free(a->entry_of_out);
	for (uint32_t s = 0; s < KV_MAX_STREAMS; s++)
		free(a->tiles[s]);
}

static bool is_valid_batch(struct tarn_engine *e, const struct tarn_work *work,
			   uint32_t nr)
{
	uint64_t total = 0;

	e->step.id++;
	for (uint32_t i = 0; i < nr; i++) {
		if (!work[i].seq || work[i].seq->engine != e ||
		    !work[i].nr_tokens || work[i].seq->failed ||
		    work[i].nr_tokens > tarn_seq_pending(work[i].seq) ||
		    (work[i].seq->scores &&
		     work[i].nr_tokens > TARN_MAX_SCORED) ||
		    work[i].seq->step_id == e->step.id)
			return false;
		work[i].seq->step_id =
			e->step.id; /* a second entry is refused */
		total += work[i].nr_tokens;
	}
	return total <= e->info.max_batch_tokens;
}

/* End tokens are not for those who ignore them, but where nothing else is allowed. */
static bool bans_ends(const struct tarn_seq *seq)
{
	return seq->sampling.ignore_eos &&
	       !(seq->constraint && seq->constraint->is_end);
}

static void want_sample(struct tarn_engine *e, const struct tarn_seq *seq,
			uint32_t entry, uint32_t row)
{
	struct step_arrays *a = &e->step;
	const struct tarn_sampling *s = &seq->sampling;
	struct backend_sample *sample = &a->samples[a->nr_out];

	a->out_rows[a->nr_out] = row;
	a->entry_of_out[a->nr_out++] = entry;
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
		.position = seq->nr_tokens,
		.want_logprob = s->logprobs || s->nr_logprobs,
		.nr_top = s->nr_logprobs,
		.banned = e->end_tokens,
		.nr_banned = bans_ends(seq) ? e->nr_end_tokens : 0,
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
static void want_score(struct tarn_engine *e, const struct tarn_seq *seq,
		       uint32_t entry, uint32_t row, uint32_t at)
{
	struct step_arrays *a = &e->step;

	a->out_rows[a->nr_out] = row;
	a->entry_of_out[a->nr_out] = entry;
	a->samples[a->nr_out++] = (struct backend_sample){
		.is_given = true,
		.token = seq->tokens[at],
		.position = at,
		.want_logprob = true,
		.nr_top = seq->sampling.nr_logprobs,
	};
}

/* Rows of one entry; memory for them first, so that a failure leaves the batch as it was. */
static int gather(struct tarn_engine *e, const struct tarn_work *w,
		  uint32_t entry)
{
	struct step_arrays *a = &e->step;
	struct tarn_seq *seq = w->seq;
	uint32_t pos = kv_seq_len(seq->kv);
	bool is_last = w->nr_tokens == tarn_seq_pending(seq);
	int rc = kv_seq_append(seq->kv, seq->tokens + pos, w->nr_tokens);

	if (rc)
		return rc;
	a->items[a->nr_items++] =
		(struct plan_item){ seq->kv, a->nr_rows, w->nr_tokens, pos };
	for (uint32_t i = 0; i < w->nr_tokens; i++) {
		uint32_t row = a->nr_rows++;

		a->tokens[row] = seq->tokens[pos + i];
		a->positions[row] = pos + i;
		for (uint32_t s = 0; s < e->model.nr_streams; s++)
			a->tiles[s][row] = kv_seq_tile(seq->kv, s, pos + i);
		if (seq->scores && pos + i + 1 < seq->nr_prompt)
			want_score(e, seq, entry, row, pos + i + 1);
	}
	if (is_last)
		want_sample(e, seq, entry, a->nr_rows - 1);
	return 0;
}

static int compute(struct tarn_engine *e)
{
	struct step_arrays *a = &e->step;
	struct backend_batch batch = {
		.nr_rows = a->nr_rows,
		.tokens = a->tokens,
		.positions = a->positions,
		.nr_out = a->nr_out,
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
	e->backend->ops->sample(e->backend, a->samples, a->nr_out);
	rc = e->backend->ops->submit(e->backend);
	/* Also where it failed: work that was started may still use what is given up next. */
	if (e->backend->is_device) {
		int fenced = kv_cache_fence(
			e->kv, e->backend->ops->stream(e->backend));

		rc = rc ? rc : fenced;
	}
	return rc;
}

/* The step failed as a whole: no sequence holds a token that was not computed. */
static void undo(struct tarn_engine *e, const struct tarn_work *work,
		 uint32_t nr, int rc, struct tarn_result *out)
{
	e->step.nr_out = 0; /* no row has logits */
	for (uint32_t i = 0; i < nr; i++) {
		struct tarn_seq *seq = work[i].seq;

		if (out[i].status)
			continue;
		(void)kv_seq_truncate(seq->kv,
				      kv_seq_len(seq->kv) - work[i].nr_tokens);
		seq->failed = true;
		out[i].status = rc;
	}
}

/* Return: how many alternatives were copied. */
static uint32_t copy_top(const struct backend_sample *s,
			 struct tarn_logprob *top)
{
	for (uint32_t i = 0; i < s->nr_top; i++)
		top[i] = (struct tarn_logprob){ s->top_ids[i],
						s->top_logprobs[i] };
	return s->nr_top;
}

static void take_score(struct tarn_seq *seq, const struct backend_sample *s)
{
	struct tarn_score *score = &seq->scores->items[s->position];

	score->logprob = s->logprob;
	score->nr_top = copy_top(s, score->top);
}

static void take_sample(struct tarn_engine *e, struct tarn_seq *seq,
			const struct backend_sample *s, struct tarn_result *out)
{
	out->has_token = true;
	out->token = s->token;
	out->is_end = !bans_ends(seq) &&
		      tokenizer_is_end(e->tokenizer, s->token);
	out->logprob = s->logprob;
	out->nr_top = copy_top(s, out->top);
	if (seq->nr_tokens < seq->capacity) {
		seq->tokens[seq->nr_tokens++] = s->token;
		if (seq->adjust)
			out->status = adjust_note(seq->adjust, seq->tokens,
						  seq->nr_tokens);
		seq->failed |= out->status != 0;
	}
	if (seq->constraint && !out->is_end)
		out->is_stuck = constraint_advance(seq->constraint, s->token) !=
				0;
	seq->failed |= out->is_stuck;
	seq->mirostat_mu = s->mirostat_mu;
	atomic_fetch_add_explicit(&e->generated_tokens, 1,
				  memory_order_relaxed);
}

/* The prompt's KV is offered to whoever comes with the same beginning. */
static void seal_prompt(struct tarn_seq *seq)
{
	if (seq->prompt_sealed || kv_seq_len(seq->kv) < seq->nr_prompt)
		return;
	seq->prompt_sealed = true;
	if (!seq->no_prefix_cache)
		(void)kv_seq_seal(
			seq->kv); /* without it only a later match is lost */
}

int tarn_step(struct tarn_engine *e, const struct tarn_work *work, uint32_t nr,
	      struct tarn_result *out)
{
	struct step_arrays *a = &e->step;
	uint64_t prompt_tokens = 0;
	int rc;

	if (!nr || !is_valid_batch(e, work, nr))
		return -EINVAL;
	a->nr_rows = a->nr_items = a->nr_out = 0;
	memset(out, 0, nr * sizeof(*out));
	for (uint32_t i = 0; i < nr; i++) {
		if (kv_seq_len(work[i].seq->kv) < work[i].seq->nr_prompt)
			prompt_tokens += work[i].nr_tokens;
		out[i].status = gather(e, &work[i], i);
		work[i].seq->failed |= out[i].status != 0;
	}
	if (!a->nr_rows)
		return 0;
	rc = compute(e);
	if (rc) {
		undo(e, work, nr, rc, out);
		return rc == -EIO ? rc : 0;
	}
	atomic_fetch_add(&e->nr_steps, 1);
	atomic_fetch_add(&e->prompt_tokens, prompt_tokens);
	for (uint32_t i = 0; i < a->nr_out; i++) {
		uint32_t entry = a->entry_of_out[i];

		if (a->samples[i].is_given)
			take_score(work[entry].seq, &a->samples[i]);
		else
			take_sample(e, work[entry].seq, &a->samples[i],
				    &out[entry]);
	}
	for (uint32_t i = 0; i < nr; i++) {
		if (out[i].status)
			continue;
		seal_prompt(work[i].seq);
		kv_seq_prepare(work[i].seq->kv);
	}
	return 0;
}

const float *tarn_step_logits(const struct tarn_engine *e, uint32_t i)
{
	for (uint32_t row = 0; row < e->step.nr_out; row++)
		if (e->step.entry_of_out[row] == i &&
		    !e->step.samples[row].is_given)
			return e->backend->ops->logits_row(e->backend, row);
	return NULL;
}
