/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step: waiting for it, and what its tokens change. The step behind
 * it may run meanwhile: sequences that end here, or were destroyed, have a row there that
 * nobody looks at, and keep their memory until that step is over as well. Driver thread.
 */
#include <errno.h>
#include <string.h>

#include "engine/engine_private.h"

static void wait_for(struct tarn_engine *e, struct step *step)
{
	int rc;

	if (!step->is_running)
		return;
	rc = e->backend->ops->wait(e->backend);
	step->is_running = false;
	if (rc && !step->rc)
		step->rc = rc;
}

void engine_step_wait(struct tarn_engine *e)
{
	for (uint32_t i = 0; i < e->nr_begun; i++)
		wait_for(e, engine_step_at(e, i));
}

static void fail_entry(struct step_entry *entry, int rc)
{
	if (!entry->status)
		entry->status = rc;
	entry->seq->failed = true;
}

/*
 * The step failed as a whole. What sequences computed of it behind is of no use, nor are tokens
 * that the next step took from it.
 */
static void fail_all(struct tarn_engine *e, struct step *step)
{
	for (uint32_t i = 0; i < step->nr_entries; i++)
		fail_entry(&step->entries[i], step->rc);
	for (uint32_t i = 1; i < e->nr_begun; i++) {
		struct step *next = engine_step_at(e, i);

		for (uint32_t k = 0; k < next->nr_entries; k++)
			if (next->entries[k].seq->failed)
				fail_entry(&next->entries[k], step->rc);
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

/* The next pending token, also where the step behind this one has computed it by now. */
static void append_token(struct tarn_seq *seq, int32_t token)
{
	seq->tokens[seq->nr_tokens++] = token;
	seq->nr_unread--;
	if (kv_seq_len(seq->kv) >= seq->nr_tokens)
		kv_seq_name(seq->kv, token);
}

static void take_sample(struct tarn_engine *e, struct tarn_seq *seq,
			const struct backend_sample *s, struct tarn_result *out)
{
	bool is_kept = seq->nr_tokens < seq->capacity;

	if (is_kept)
		append_token(seq, s->token);
	if (seq->is_gone)
		return;
	out->has_token = true;
	out->token = s->token;
	out->is_end = !engine_bans_ends(seq) &&
		      tokenizer_is_end(e->tokenizer, s->token);
	out->logprob = s->logprob;
	out->nr_top = copy_top(s, out->top);
	if (is_kept && seq->adjust)
		out->status =
			adjust_note(seq->adjust, seq->tokens, seq->nr_tokens);
	seq->failed |= out->status != 0;
	if (seq->constraint && !out->is_end)
		out->is_stuck = constraint_advance(seq->constraint, s->token) !=
				0;
	seq->failed |= out->is_stuck;
	seq->mirostat_mu = s->mirostat_mu;
	atomic_fetch_add_explicit(&e->generated_tokens, 1,
				  memory_order_relaxed);
}

static void take_results(struct tarn_engine *e, const struct step *step,
			 struct tarn_result *out)
{
	for (uint32_t i = 0; i < step->nr_out; i++) {
		uint32_t entry = step->entry_of_out[i];
		struct tarn_seq *seq = step->entries[entry].seq;

		if (out[entry].status)
			continue;
		if (step->samples[i].is_given)
			take_score(seq, &step->samples[i]);
		else
			take_sample(e, seq, &step->samples[i], &out[entry]);
	}
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

/* Its rows are computed. */
static void settle(const struct step_entry *entry)
{
	struct tarn_seq *seq = entry->seq;

	seq->nr_written = entry->end;
	if (seq->is_gone)
		return;
	seq->nr_computed = entry->end;
	seal_prompt(seq);
	kv_seq_prepare(seq->kv);
}

/* Sequences that were destroyed, and waited for it, go. */
static void let_go(const struct step *step)
{
	for (uint32_t i = 0; i < step->nr_entries; i++) {
		struct tarn_seq *seq = step->entries[i].seq;

		if (!--seq->nr_steps && seq->is_gone)
			engine_seq_end(seq);
	}
}

static void shift(struct tarn_engine *e)
{
	e->first_step = (e->first_step + 1) % BACKEND_MAX_STARTED;
	e->nr_begun--;
}

void engine_step_drop(struct tarn_engine *e)
{
	engine_step_wait(e);
	while (e->nr_begun) {
		let_go(engine_step_at(e, 0));
		shift(e);
	}
}

int tarn_step_end(struct tarn_engine *e, struct tarn_result *out)
{
	struct step *step = engine_step_at(e, 0);
	uint32_t nr_good = 0;

	if (!e->nr_begun)
		return -EINVAL;
	wait_for(e, step);
	memset(out, 0, step->nr_entries * sizeof(*out));
	if (step->rc)
		fail_all(e, step);
	for (uint32_t i = 0; i < step->nr_entries; i++) {
		out[i].status = step->entries[i].status;
		nr_good += !out[i].status;
	}
	if (nr_good) {
		atomic_fetch_add(&e->nr_steps, 1);
		atomic_fetch_add(&e->prompt_tokens, step->nr_prompt_tokens);
		take_results(e, step, out);
	}
	for (uint32_t i = 0; i < step->nr_entries; i++)
		if (!out[i].status)
			settle(&step->entries[i]);
	shift(e);
	e->ended = !e->nr_begun && nr_good ? step : NULL;
	let_go(step);
	return step->rc == -EIO ? step->rc : 0;
}

int tarn_step(struct tarn_engine *e, const struct tarn_work *work, uint32_t nr,
	      struct tarn_result *out)
{
	int rc = e->nr_begun ? -EBUSY : tarn_step_begin(e, work, nr);

	return rc ? rc : tarn_step_end(e, out);
}

const float *tarn_step_logits(const struct tarn_engine *e, uint32_t i)
{
	const struct step *step = e->ended;

	for (uint32_t row = 0; step && row < step->nr_out; row++)
		if (step->entry_of_out[row] == i &&
		    !step->samples[row].is_given)
			return e->backend->ops->logits_row(e->backend, row);
	return NULL;
}
