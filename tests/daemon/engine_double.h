/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of the engine for tests of the daemon's own logic: everything in
 * engine.h with tokens that are bytes, an answer that is known ahead, and
 * knobs for what a real engine does rarely (no memory, a failing sequence).
 * Include it in one file of a test program, before linking the engine.
 *
 * Tokens 0 to 255 are bytes; 256 is the end token "<end>", 257 "<start>". The
 * answer of choice c to any prompt is double_answer read from its byte c on,
 * then the end token. KV memory is counted in tokens.
 */
#ifndef TARN_TESTS_DAEMON_ENGINE_DOUBLE_H
#define TARN_TESTS_DAEMON_ENGINE_DOUBLE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"

enum { DOUBLE_END = 256, DOUBLE_START = 257, DOUBLE_VOCAB = 258 };

/* Knobs, set before the engine is made. */
static const char *double_answer =
	"The quick brown fox jumps over the lazy dog.";
static uint32_t double_kv_tokens = 1u << 20;
static uint32_t double_batch_tokens = 64;
static uint32_t double_ctx_tokens = 4096;
static const char *double_template =
	"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
/* When set, token 1 is a control token with this text. */
static const char *double_control;
static unsigned int double_step_us;
/* A step may be begun behind another one, as on a GPU. */
static bool double_runs_ahead;
/* The device is lost: every step ends with -EIO. */
static atomic_bool double_is_lost;
static unsigned int double_load_us;
static int32_t double_poison =
	-1; /* a prompt with this token fails when it is computed */

/* What the tests look at. */
static atomic_uint double_nr_seqs, double_nr_steps, double_max_batch,
	double_max_seqs;
static atomic_uint double_used_tokens;
static atomic_uint double_nr_ahead; /* steps that were begun behind another one */
static atomic_uint double_nr_wasted; /* rows of sequences that had ended */

enum { DOUBLE_MAX_STEPS = 2, DOUBLE_MAX_WORK = 256 };

/* A step that was begun. */
struct double_step {
	struct tarn_work work[DOUBLE_MAX_WORK];
	bool draws[DOUBLE_MAX_WORK];
	uint32_t nr;
	bool may_be_followed;
};

struct tarn_engine {
	struct tarn_engine_info info;
	struct double_step steps[DOUBLE_MAX_STEPS]; /* the oldest first */
	uint32_t nr_begun;
	char bytes[256]; /* the pieces of the byte tokens */
	struct tarn_template *template; /* the real thing, of double_template */
};

struct tarn_seq {
	struct tarn_seq_params params;
	uint32_t nr_done, len, choice, kept;
	uint32_t nr_unread, nr_steps;
	bool is_poisoned, is_gone;
	struct tarn_score scores[512]; /* with score_prompt: -1/4, -2/4 ... */
};

int tarn_engine_create(const struct tarn_engine_options *options,
		       struct tarn_engine **out_engine, char *err,
		       size_t errlen)
{
	struct tarn_engine *engine = calloc(1, sizeof(*engine));

	(void)errlen;
	err[0] = '\0';
	for (int i = 0; i < 10; i++) {
		usleep(double_load_us / 10);
		if (options->progress &&
		    options->progress(options->progress_arg, "weights",
				      i / 10.0) != 0) {
			free(engine);
			return -ECANCELED;
		}
	}
	engine->info = (struct tarn_engine_info){
		.model_name = "double",
		.model_path = options->model_path ? options->model_path :
						    "double.gguf",
		.arch = "llama",
		.quant = "F32",
		.device = "cpu (none)",
		.kv_backend = "memfd",
		.fingerprint = "fp_double",
		.nr_params = 1,
		.kv_limit_bytes = double_kv_tokens,
		.kv_bytes_per_token = 1,
		.ctx_tokens = options->ctx_tokens ? options->ctx_tokens :
						    double_ctx_tokens,
		.model_ctx_tokens = double_ctx_tokens,
		.nr_vocab = DOUBLE_VOCAB,
		.nr_threads = 1,
		.runs_ahead = double_runs_ahead,
		.max_batch_tokens = options->max_batch_tokens ?
					    options->max_batch_tokens :
					    double_batch_tokens,
		.has_chat_template = true,
	};
	for (int i = 0; i < 256; i++)
		engine->bytes[i] = (char)i;
	if (double_template &&
	    tarn_template_parse(double_template, strlen(double_template),
				&engine->template, err, errlen) != 0) {
		free(engine);
		return -EINVAL;
	}
	*out_engine = engine;
	return 0;
}

static void double_free(struct tarn_seq *seq)
{
	atomic_fetch_sub(&double_nr_seqs, 1);
	atomic_fetch_sub(&double_used_tokens, seq->kept);
	free(seq);
}

/* The oldest step is over. */
static void double_shift(struct tarn_engine *engine)
{
	const struct double_step *step = &engine->steps[0];

	for (uint32_t i = 0; i < step->nr; i++) {
		struct tarn_seq *seq = step->work[i].seq;

		if (--seq->nr_steps == 0 && seq->is_gone)
			double_free(seq);
	}
	engine->steps[0] = engine->steps[1];
	engine->nr_begun--;
}

void tarn_engine_destroy(struct tarn_engine *engine)
{
	while (engine && engine->nr_begun)
		double_shift(engine);
	if (engine)
		tarn_template_close(engine->template);
	free(engine);
}

const struct tarn_template *
tarn_engine_template(const struct tarn_engine *engine)
{
	return engine->template;
}

const struct tarn_engine_info *
tarn_engine_info(const struct tarn_engine *engine)
{
	return &engine->info;
}

void tarn_engine_tidy(struct tarn_engine *engine)
{
	(void)engine;
}

void tarn_engine_stat(struct tarn_engine *engine,
		      struct tarn_engine_stat *out_stat)
{
	(void)engine;
	*out_stat = (struct tarn_engine_stat){
		.kv_used_bytes = atomic_load(&double_used_tokens),
		.nr_seqs = atomic_load(&double_nr_seqs),
		.nr_steps = atomic_load(&double_nr_steps),
	};
}

int tarn_tokenize(const struct tarn_engine *engine, const char *text,
		  size_t len, unsigned int flags, int32_t **out_ids,
		  size_t *out_nr)
{
	int32_t *ids = malloc((len + 1) * sizeof(*ids));
	size_t nr = 0;

	(void)engine;
	if (flags & TARN_TOKENIZE_ADD_SPECIAL)
		ids[nr++] = DOUBLE_START;
	for (size_t i = 0; i < len; i++) {
		if ((flags & TARN_TOKENIZE_PARSE_SPECIAL) && len - i >= 5 &&
		    memcmp(text + i, "<end>", 5) == 0) {
			ids[nr++] = DOUBLE_END;
			i += 4;
		} else {
			ids[nr++] = (unsigned char)text[i];
		}
	}
	*out_ids = ids;
	*out_nr = nr;
	return 0;
}

const char *tarn_token_piece(const struct tarn_engine *engine, int32_t id,
			     bool special, size_t *out_len)
{
	static const char *const specials[] = { "<end>", "<start>" };

	if (id >= DOUBLE_END) {
		*out_len = special ? strlen(specials[id - DOUBLE_END]) : 0;
		return specials[id - DOUBLE_END];
	}
	if (id == 1 && double_control) {
		*out_len = special ? strlen(double_control) : 0;
		return double_control;
	}
	*out_len = 1;
	return &engine->bytes[id];
}

static uint32_t double_nr_searches;

int tarn_dry_breakers(const struct tarn_engine *engine,
		      const struct tarn_bytes *texts, uint32_t nr,
		      uint64_t **out)
{
	double_nr_searches++;
	*out = calloc(DOUBLE_VOCAB / 64 + 1, sizeof(**out));
	for (int32_t id = 0; id < 256; id++)
		for (uint32_t i = 0; i < nr; i++)
			if (texts[i].len == 1 &&
			    texts[i].bytes[0] == engine->bytes[id])
				(*out)[id / 64] |= 1ull << id % 64;
	return 0;
}

/* What was asked for last; a text with "bad" in it does not parse. */
static enum tarn_grammar_kind double_grammar_kind;
static char double_grammar_text[256];
static atomic_int double_nr_grammars;

struct tarn_grammar {
	bool is_stuck; /* the text has "stuck" in it: no way on after four tokens */
};

int tarn_grammar_create(const struct tarn_engine *engine,
			enum tarn_grammar_kind kind, const char *text,
			size_t len, struct tarn_grammar **out, char *err,
			size_t errlen)
{
	(void)engine;
	double_grammar_kind = kind;
	snprintf(double_grammar_text, sizeof(double_grammar_text), "%.*s",
		 (int)len, text);
	if (strstr(double_grammar_text, "bad")) {
		snprintf(err, errlen, "line 1, column 2: no such thing");
		return -EINVAL;
	}
	*out = calloc(1, sizeof(**out));
	(*out)->is_stuck = strstr(double_grammar_text, "stuck");
	atomic_fetch_add(&double_nr_grammars, 1);
	return 0;
}

void tarn_grammar_destroy(struct tarn_grammar *grammar)
{
	if (grammar)
		atomic_fetch_sub(&double_nr_grammars, 1);
	free(grammar);
}

int tarn_detokenize(const struct tarn_engine *engine, const int32_t *ids,
		    size_t nr, bool special, char **out_text, size_t *out_len)
{
	char *text = malloc(nr * 8 + 1);
	size_t len = 0;

	for (size_t i = 0; i < nr; i++) {
		size_t piece_len;
		const char *piece =
			tarn_token_piece(engine, ids[i], special, &piece_len);

		memcpy(text + len, piece, piece_len);
		len += piece_len;
	}
	*out_text = text;
	*out_len = len;
	return 0;
}

int tarn_chat_prompt(const struct tarn_engine *engine, const char *request_json,
		     size_t len, char **out_text, int32_t **out_ids,
		     size_t *out_nr, char *err, size_t errlen)
{
	if (memmem(request_json, len, "REFUSE", 6)) {
		snprintf(err, errlen,
			 "line 3: raise_exception: roles must alternate");
		return -EINVAL;
	}
	if (out_text)
		*out_text = strndup(request_json, len);
	return out_ids ? tarn_tokenize(engine, request_json, len, 0, out_ids,
				       out_nr) :
			 0;
}

int tarn_seq_check(const struct tarn_engine *engine,
		   const struct tarn_seq_params *params, char *err,
		   size_t errlen)
{
	for (uint32_t i = 0; i < params->nr_prompt; i++) {
		if (params->prompt[i] < 0 ||
		    params->prompt[i] >= DOUBLE_VOCAB) {
			snprintf(err, errlen, "prompt[%u]: no such token %d", i,
				 params->prompt[i]);
			return -EINVAL;
		}
	}
	if (params->nr_prompt + params->max_new_tokens >
	    engine->info.ctx_tokens) {
		snprintf(err, errlen, "%u and %u tokens are more than %u",
			 params->nr_prompt, params->max_new_tokens,
			 engine->info.ctx_tokens);
		return -E2BIG;
	}
	return 0;
}

static struct tarn_seq *double_seq(const struct tarn_seq_params *params,
				   uint32_t choice, uint32_t kept)
{
	struct tarn_seq *seq = calloc(1, sizeof(*seq));
	uint32_t nr;

	seq->params = *params;
	seq->params.prompt = NULL;
	seq->len = params->nr_prompt;
	seq->choice = choice;
	seq->kept = kept;
	for (uint32_t i = 0; i < seq->len && i < 512; i++)
		seq->scores[i].logprob = -0.25f * (float)i;
	nr = atomic_fetch_add(&double_nr_seqs, 1) + 1;
	if (nr > atomic_load(&double_max_seqs))
		atomic_store(&double_max_seqs, nr);
	return seq;
}

int tarn_seq_create(struct tarn_engine *engine,
		    const struct tarn_seq_params *params,
		    struct tarn_seq **out_seq, char *err, size_t errlen)
{
	uint32_t kept =
		params->nr_prompt + params->max_new_tokens * params->nr_choices;
	int rc = tarn_seq_check(engine, params, err, errlen);

	if (rc != 0)
		return rc;
	if (kept > double_kv_tokens) {
		snprintf(err, errlen, "%u tokens are more than %u", kept,
			 double_kv_tokens);
		return -ENOSPC;
	}
	if (atomic_load(&double_used_tokens) + kept > double_kv_tokens)
		return -EAGAIN;
	atomic_fetch_add(&double_used_tokens, kept);
	*out_seq = double_seq(params, 0, kept);
	for (uint32_t i = 0; i < params->nr_prompt; i++)
		(*out_seq)->is_poisoned |= params->prompt[i] == double_poison;
	return 0;
}

int tarn_seq_fork(struct tarn_seq *seq, uint32_t choice,
		  struct tarn_seq **out_seq)
{
	if (tarn_seq_pending(seq) != 1)
		return -EINVAL;
	*out_seq = double_seq(&seq->params, choice, 0);
	(*out_seq)->nr_done = seq->nr_done;
	(*out_seq)->len = seq->len;
	return 0;
}

void tarn_seq_destroy(struct tarn_seq *seq)
{
	if (!seq)
		return;
	if (seq->nr_steps)
		seq->is_gone = true;
	else
		double_free(seq);
}

const struct tarn_score *tarn_seq_scores(const struct tarn_seq *seq)
{
	return seq->params.score_prompt ? seq->scores : NULL;
}

uint32_t tarn_seq_cached(const struct tarn_seq *seq)
{
	(void)seq;
	return 0;
}

uint32_t tarn_seq_pending(const struct tarn_seq *seq)
{
	return seq->len + seq->nr_unread - seq->nr_done;
}

uint32_t tarn_seq_len(const struct tarn_seq *seq)
{
	return seq->len;
}

static void double_sample(struct tarn_seq *seq, struct tarn_result *result)
{
	uint32_t at = seq->len - seq->params.nr_prompt + seq->choice;
	size_t len = strlen(double_answer);

	result->has_token = true;
	if (seq->params.sampling.ignore_eos)
		result->token = (unsigned char)double_answer[at % len];
	else
		result->token = at < len ? (unsigned char)double_answer[at] :
					   DOUBLE_END;
	result->is_end = result->token == DOUBLE_END;
	result->is_stuck = seq->params.sampling.grammar &&
			   seq->params.sampling.grammar->is_stuck && at >= 3;
	result->logprob = -0.5f;
	result->nr_top = seq->params.sampling.nr_logprobs;
	for (uint32_t i = 0; i < result->nr_top; i++) {
		result->top[i].id = (result->token + (int32_t)i + 1) % 256;
		result->top[i].logprob = -1.0f - (float)i;
	}
	seq->len++;
}

static int double_check(const struct tarn_engine *engine,
			const struct tarn_work *work, uint32_t nr)
{
	uint32_t total = 0;

	for (uint32_t i = 0; i < nr; i++) {
		total += work[i].nr_tokens;
		if (work[i].seq->params.score_prompt &&
		    work[i].nr_tokens > TARN_MAX_SCORED)
			return -EINVAL;
		if (work[i].seq->is_gone || work[i].nr_tokens == 0 ||
		    work[i].nr_tokens > tarn_seq_pending(work[i].seq))
			return -EINVAL;
	}
	if (total > engine->info.max_batch_tokens || nr > DOUBLE_MAX_WORK)
		return -EINVAL;
	if (total > atomic_load(&double_max_batch))
		atomic_store(&double_max_batch, total);
	return 0;
}

bool tarn_step_may_begin(const struct tarn_engine *engine)
{
	return !engine->nr_begun ||
	       (engine->nr_begun < DOUBLE_MAX_STEPS &&
		engine->steps[engine->nr_begun - 1].may_be_followed);
}

int tarn_step_begin(struct tarn_engine *engine, const struct tarn_work *work,
		    uint32_t nr)
{
	struct double_step *step = &engine->steps[engine->nr_begun];

	if (!tarn_step_may_begin(engine))
		return -EBUSY;
	if (double_check(engine, work, nr))
		return -EINVAL;
	atomic_fetch_add(&double_nr_steps, 1);
	atomic_fetch_add(&double_nr_ahead, engine->nr_begun);
	memcpy(step->work, work, nr * sizeof(*work));
	step->nr = nr;
	step->may_be_followed = true;
	for (uint32_t i = 0; i < nr; i++) {
		struct tarn_seq *seq = work[i].seq;

		step->may_be_followed &= !seq->is_poisoned &&
					 !seq->params.sampling.grammar &&
					 seq->nr_done >= seq->params.nr_prompt;
		seq->nr_steps++;
		seq->nr_done += work[i].nr_tokens;
		step->draws[i] = tarn_seq_pending(seq) == 0;
		seq->nr_unread += step->draws[i];
	}
	engine->nr_begun++;
	return 0;
}

int tarn_step_end(struct tarn_engine *engine, struct tarn_result *out_results)
{
	const struct double_step *step = &engine->steps[0];

	if (!engine->nr_begun)
		return -EINVAL;
	usleep(double_step_us);
	if (atomic_load(&double_is_lost)) {
		double_shift(engine);
		return -EIO;
	}
	for (uint32_t i = 0; i < step->nr; i++) {
		struct tarn_seq *seq = step->work[i].seq;

		out_results[i] = (struct tarn_result){ 0 };
		seq->nr_unread -= step->draws[i];
		if (seq->is_gone) {
			/* Nobody has a use for what is said of it. */
			out_results[i].status = -EIO;
			atomic_fetch_add(&double_nr_wasted, 1);
		} else if (seq->is_poisoned)
			out_results[i].status = -EIO;
		else if (step->draws[i])
			double_sample(seq, &out_results[i]);
	}
	double_shift(engine);
	return 0;
}

int tarn_step(struct tarn_engine *engine, const struct tarn_work *work,
	      uint32_t nr, struct tarn_result *out_results)
{
	int rc = engine->nr_begun ? -EBUSY : tarn_step_begin(engine, work, nr);

	return rc ? rc : tarn_step_end(engine, out_results);
}

const float *tarn_step_logits(const struct tarn_engine *engine, uint32_t i)
{
	(void)engine;
	(void)i;
	return NULL;
}

#endif /* TARN_TESTS_DAEMON_ENGINE_DOUBLE_H */
