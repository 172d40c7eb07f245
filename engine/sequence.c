/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: their tokens, their memory, their choices. Driver thread, but
 * for tarn_seq_check().
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"

int tarn_seq_check(const struct tarn_engine *e, const struct tarn_seq_params *p,
		   char *err, size_t errlen)
{
	uint32_t ctx = e->info.ctx_tokens;

	if (!p->nr_prompt) {
		snprintf(err, errlen, "the prompt is empty");
		return -EINVAL;
	}
	if (p->nr_prompt > ctx || p->max_new_tokens > ctx - p->nr_prompt) {
		snprintf(
			err, errlen,
			"the prompt has %u tokens and up to %u more are asked for: "
			"the context holds %u",
			p->nr_prompt, p->max_new_tokens, ctx);
		return -E2BIG;
	}
	for (uint32_t i = 0; i < p->nr_prompt; i++) {
		if (p->prompt[i] >= 0 &&
		    (uint32_t)p->prompt[i] < e->info.nr_vocab)
			continue;
		snprintf(
			err, errlen,
			"token id %d at place %u is out of range: want 0 to %u",
			p->prompt[i], i, e->info.nr_vocab - 1);
		return -EINVAL;
	}
	if (!p->nr_choices || p->nr_choices > TARN_MAX_CHOICES) {
		snprintf(err, errlen, "%u choices, want 1 to %d", p->nr_choices,
			 TARN_MAX_CHOICES);
		return -EINVAL;
	}
	return engine_check_sampling(e, &p->sampling, err, errlen);
}

static void release_held(struct tarn_seq *seq)
{
	while (seq->nr_held)
		kv_seq_close(seq->held[--seq->nr_held]);
	free(seq->held);
	seq->held = NULL;
}

/* Whether all choices together can ever fit: else waiting for others is of no use. */
static int check_choices(const struct tarn_engine *e,
			 const struct tarn_seq_params *p)
{
	uint64_t per_token = e->info.kv_bytes_per_token;
	uint32_t tile = kv_cache_layout(e->kv, 0)->tile_tokens;
	uint64_t own = ((uint64_t)p->max_new_tokens + tile) * per_token;
	uint64_t all = p->nr_prompt * per_token + own * p->nr_choices;

	/* Windowed streams may need less: only the certain case is refused here. */
	if (e->model.nr_streams > 1 || p->nr_choices == 1)
		return 0;
	return all > e->info.kv_limit_bytes ? -ENOSPC : 0;
}

/*
 * Memory for the choices that will be forked off: held by empty sequences, each given up just
 * before its fork takes the same memory.
 */
static int hold_choices(struct tarn_seq *seq, const struct tarn_seq_params *p)
{
	/* What a choice adds to the shared prompt: its own tokens and the tile it starts in. */
	uint32_t tile = kv_cache_layout(seq->engine->kv, 0)->tile_tokens;
	uint32_t tokens = p->max_new_tokens + tile;
	uint32_t matched;
	enum kv_miss miss;

	if (p->nr_choices == 1)
		return 0;
	if (tokens > seq->engine->info.ctx_tokens)
		tokens = seq->engine->info.ctx_tokens;
	seq->held = calloc(p->nr_choices - 1, sizeof(*seq->held));
	if (!seq->held)
		return -ENOMEM;
	for (uint32_t i = 1; i < p->nr_choices; i++) {
		int rc = kv_seq_open(seq->engine->kv, NULL, 0, tokens, NULL,
				     seq->uid, &seq->held[seq->nr_held],
				     &matched, &miss);

		if (rc)
			return rc;
		seq->nr_held++;
	}
	return 0;
}

static struct tarn_seq *seq_alloc(struct tarn_engine *e, uint32_t capacity)
{
	struct tarn_seq *seq = calloc(1, sizeof(*seq));

	if (!seq)
		return NULL;
	seq->engine = e;
	seq->capacity = capacity;
	seq->tokens = malloc(capacity * sizeof(*seq->tokens));
	if (!seq->tokens) {
		free(seq);
		return NULL;
	}
	return seq;
}

/*
 * What choosing tokens keeps from one to the next; the tokens are there, and nothing was drawn: a
 * fork begins its grammar where its parent does.
 */
static int start_sampling(struct tarn_seq *seq)
{
	int rc = constraint_create(seq->sampling.grammar, &seq->constraint);

	if (rc)
		return rc;
	seq->mirostat_mu = 2 * (double)seq->sampling.mirostat_tau;
	return adjust_create(&seq->sampling, seq->tokens, seq->nr_tokens,
			     seq->nr_prompt, &seq->adjust);
}

static int make_scores(struct tarn_seq *seq)
{
	seq->scores = calloc(1, sizeof(*seq->scores) +
					seq->nr_prompt *
						sizeof(seq->scores->items[0]));
	if (!seq->scores)
		return -ENOMEM;
	seq->scores->nr_refs = 1;
	return 0;
}

static void seq_free(struct tarn_seq *seq)
{
	release_held(seq);
	kv_seq_close(seq->kv);
	adjust_destroy(seq->adjust);
	if (seq->scores && --seq->scores->nr_refs == 0)
		free(seq->scores);
	constraint_destroy(seq->constraint);
	free(seq->tokens);
	free(seq);
}

int tarn_seq_create(struct tarn_engine *e, const struct tarn_seq_params *p,
		    struct tarn_seq **out_seq, char *err, size_t errlen)
{
	struct tarn_seq *seq;
	struct kvpool_key salt;
	enum kv_miss miss;
	int rc = tarn_seq_check(e, p, err, errlen);

	if (rc)
		return rc;
	seq = seq_alloc(e, p->nr_prompt + p->max_new_tokens + 1);
	if (!seq)
		return -ENOMEM;
	memcpy(seq->tokens, p->prompt, p->nr_prompt * sizeof(*seq->tokens));
	seq->nr_tokens = p->nr_prompt;
	seq->nr_prompt = p->nr_prompt;
	seq->sampling = p->sampling;
	seq->uid = p->principal.uid;
	seq->no_prefix_cache = p->no_prefix_cache || e->no_prefix_cache ||
			       p->score_prompt;
	rc = engine_salt(e, seq->uid, &salt);
	if (!rc)
		rc = check_choices(e, p);
	if (!rc)
		rc = kv_seq_open(e->kv, seq->tokens, seq->nr_tokens,
				 p->nr_prompt + p->max_new_tokens,
				 seq->no_prefix_cache ? NULL : &salt, seq->uid,
				 &seq->kv, &seq->nr_cached, &miss);
	if (!rc)
		rc = hold_choices(seq, p);
	if (!rc)
		rc = start_sampling(seq);
	if (!rc && p->score_prompt)
		rc = make_scores(seq);
	/* Alone: nobody will give back what its own choices lack. */
	if (rc == -EAGAIN && seq->kv && !atomic_load(&e->nr_seqs))
		rc = -ENOSPC;
	if (rc) {
		if (rc == -ENOSPC)
			snprintf(
				err, errlen,
				"%u tokens in %u choices need more than all KV memory, %llu bytes",
				p->nr_prompt + p->max_new_tokens, p->nr_choices,
				(unsigned long long)e->info.kv_limit_bytes);
		else
			snprintf(err, errlen, "KV memory: %s", strerror(-rc));
		seq_free(seq);
		return rc;
	}
	seq->nr_written = seq->nr_computed = kv_seq_len(seq->kv);
	atomic_fetch_add(&e->nr_seqs, 1);
	*out_seq = seq;
	return 0;
}

int tarn_seq_fork(struct tarn_seq *seq, uint32_t choice,
		  struct tarn_seq **out_seq)
{
	struct tarn_seq *child;
	int rc;

	if (seq->failed || tarn_seq_pending(seq) != 1 ||
	    seq->nr_tokens != seq->nr_prompt)
		return -EINVAL;
	if (seq->nr_steps)
		return -EBUSY;
	child = seq_alloc(seq->engine, seq->capacity);
	if (!child)
		return -ENOMEM;
	memcpy(child->tokens, seq->tokens,
	       seq->nr_tokens * sizeof(*seq->tokens));
	child->nr_tokens = seq->nr_tokens;
	child->nr_prompt = seq->nr_prompt;
	child->nr_cached = seq->nr_cached;
	child->sampling = seq->sampling;
	child->uid = seq->uid;
	child->no_prefix_cache = seq->no_prefix_cache;
	child->choice = choice;
	child->scores = seq->scores;
	if (child->scores)
		child->scores->nr_refs++;
	if (seq->nr_held)
		kv_seq_close(seq->held[--seq->nr_held]);
	rc = start_sampling(child);
	if (!rc)
		rc = kv_seq_fork(seq->kv, seq->capacity - 1, &child->kv);
	if (rc) {
		seq_free(child);
		return rc;
	}
	child->nr_written = child->nr_computed = kv_seq_len(child->kv);
	atomic_fetch_add(&seq->engine->nr_seqs, 1);
	*out_seq = child;
	return 0;
}

/* Rows of a step that failed, or that was over when nobody wanted them any more, are given up. */
void engine_seq_end(struct tarn_seq *seq)
{
	uint32_t len = kv_seq_len(seq->kv);

	if (len > seq->nr_computed &&
	    kv_seq_truncate(seq->kv, seq->nr_computed) && len > seq->nr_written)
		kv_seq_distrust(seq->kv);
	atomic_fetch_sub(&seq->engine->nr_seqs, 1);
	seq_free(seq);
}

void tarn_seq_destroy(struct tarn_seq *seq)
{
	if (!seq)
		return;
	if (seq->nr_steps)
		seq->is_gone = true;
	else
		engine_seq_end(seq);
}

const struct tarn_score *tarn_seq_scores(const struct tarn_seq *seq)
{
	return seq->scores ? seq->scores->items : NULL;
}

uint32_t tarn_seq_cached(const struct tarn_seq *seq)
{
	return seq->nr_cached;
}

uint32_t tarn_seq_pending(const struct tarn_seq *seq)
{
	return seq->nr_tokens + seq->nr_unread - kv_seq_len(seq->kv);
}

uint32_t tarn_seq_len(const struct tarn_seq *seq)
{
	return seq->nr_tokens;
}
