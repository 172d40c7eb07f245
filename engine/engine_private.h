/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the engine: what engine.c (life), pool.c, identity.c, text.c, sequence.c and
 * step.c share. Nobody outside engine/ includes it.
 */
#ifndef TARN_ENGINE_PRIVATE_H
#define TARN_ENGINE_PRIVATE_H

#include <stdatomic.h>

#include "engine/adjust.h"
#include "engine/backend/backend.h"
#include "engine/engine.h"
#include "engine/kv/plan.h"
#include "engine/kv/segment.h"
#include "engine/model/model.h"
#include "engine/structured.h"
#include "engine/token/tokenizer.h"

enum {
	ENGINE_DEFAULT_BATCH_TOKENS = 512,
	ENGINE_MAX_BATCH_TOKENS = 8192,
};

/* Of a step that is put together, each [max_batch_tokens] but where said. Driver thread. */
struct step_arrays {
	int32_t *tokens;
	uint32_t *positions;
	uint8_t **tiles[KV_MAX_STREAMS];
	struct plan_item *items;
	uint32_t *out_rows;
	uint32_t nr_rows, nr_items;
	uint64_t id; /* of the step at hand, from 1 */
};

/* A sequence's part of a step. */
struct step_entry {
	struct tarn_seq *seq;
	uint32_t end; /* of its rows: length of its KV behind them */
	int status;
};

/* A step that was begun, until it ended; arrays [max_batch_tokens]. Driver thread. */
struct step {
	struct step_entry *entries;
	struct backend_sample *samples;
	uint32_t *entry_of_out; /* entry an output row belongs to */
	uint32_t nr_entries, nr_out;
	uint32_t nr_prompt_tokens;
	bool is_running; /* submitted, and not waited for */
	bool may_be_followed; /* before it ends: nothing has to be known of it first */
	int rc; /* of all of it */
};

struct tarn_engine {
	struct tarn_engine_info info;
	char *model_path, *model_name, *fingerprint, *pool_name;
	struct backend *backend;
	struct model model;
	struct tokenizer *tokenizer;
	struct tarn_template *template; /* NULL: the model has none */
	int32_t end_tokens[BACKEND_MAX_BANNED];
	uint32_t nr_end_tokens;
	struct structured *structured;
	bool no_prefix_cache;

	struct kvpool *pool;
	struct kv_exchange *exchange; /* NULL: none */
	struct kv_cache *kv;
	struct plan_builder *plans;
	struct step_arrays arrays;
	struct step steps[BACKEND_MAX_STARTED];
	uint32_t first_step, nr_begun; /* a ring */
	const struct step *ended; /* whose logits are there; NULL: none */
	struct kvpool_key
		salt_secret; /* of this process, or of all that it shares with */
	enum tarn_prefix_scope prefix_scope;

	atomic_uint_least64_t nr_seqs, nr_steps, prompt_tokens,
		generated_tokens;
};

/* Scores of a prompt; its choices share them. Driver thread. */
struct prompt_scores {
	uint32_t nr_refs;
	struct tarn_score items[];
};

struct tarn_seq {
	struct tarn_engine *engine;
	struct kv_seq *kv;
	struct kv_seq **held; /* [nr_held] memory kept for choices to come */
	uint32_t nr_held;
	uid_t uid;
	int32_t *tokens; /* [capacity] prompt, then what was sampled */
	uint32_t nr_tokens, capacity;
	/* Tokens behind them that steps which were begun draw; the last one's sample there. */
	uint32_t nr_unread, drawn_by;
	uint32_t nr_steps; /* that were begun and did not end */
	/* Tokens of its KV, by steps that ended well; those until it was destroyed. */
	uint32_t nr_written, nr_computed;
	uint32_t nr_prompt, nr_cached;
	uint32_t choice;
	struct tarn_sampling sampling;
	struct adjust *adjust; /* NULL: logits are taken as they are */
	struct constraint *constraint; /* NULL: any token may come */
	double mirostat_mu;
	struct prompt_scores *scores; /* NULL: not asked for */
	bool no_prefix_cache;
	bool prompt_sealed;
	bool failed; /* a step went wrong for it: only destroy is left */
	bool is_gone; /* destroyed, but for what steps still use */
	uint64_t step_id; /* the last step it was part of */
};

/*
 * identity.c: the fingerprint, and the numerics id that the keys of all cached
 * prefixes start from: contract, backend, model content and tokenizer, KV format.
 * @weights: the digest of backend_ops.load(). Return: 0, -ENOMEM.
 */
struct gguf;
int engine_identity_init(struct tarn_engine *engine, const struct gguf *gguf,
			 const uint8_t weights[BACKEND_DIGEST_BYTES],
			 struct kvpool_key *out_root);
/* Salt of a uid's prefix keys, or of everybody's. Return: 0, -ENOMEM. */
int engine_salt(const struct tarn_engine *engine, uid_t uid,
		struct kvpool_key *out_salt);

/*
 * text.c: template and end tokens of the file. 0 or -errno; a bad template is a warning, put
 * behind what @err holds.
 */
int engine_text_init(struct tarn_engine *engine, const struct gguf *gguf,
		     char *err, size_t errlen);
void engine_text_deinit(struct tarn_engine *engine);

/*
 * pool.c: KV memory, in the order in which an engine is loaded. 0 or -errno, with @err saying what
 * cannot be had, unless said otherwise.
 */
/* The options' pool, or one of the engine's own where the backend computes. */
int engine_open_pool(struct tarn_engine *e, const struct tarn_engine_options *o,
		     char *err, size_t errlen);
/* Most spare pages of a pool of that limit, and what a GPU's wide pages may take beyond need. */
uint64_t engine_spare_bytes(const struct tarn_engine *e, uint64_t limit);
/* Meet the peers on the GPU; where that cannot be, @note says why and nothing is shared. */
void engine_open_exchange(struct tarn_engine *e,
			  const struct tarn_engine_options *o, char *note,
			  size_t size);
/* Ask them for what the weights take. */
void engine_ask_for_room(struct tarn_engine *e,
			 const struct tarn_engine_options *o);
/* Whether the limit admits a sequence at all. */
int engine_check_cache(struct tarn_engine *e, char *err, size_t errlen);
/* Whether memory for one can be had. */
int engine_check_commit(struct tarn_engine *e, char *err, size_t errlen);
/* Keep a GPU's pool within what weights and activations have left. */
int engine_fit_pool(struct tarn_engine *e, const struct tarn_engine_options *o,
		    char *err, size_t errlen);

/* sampling.c: ranges, ids and pointers. Return: 0, -EINVAL with @err naming the offence. */
int engine_check_sampling(const struct tarn_engine *engine,
			  const struct tarn_sampling *sampling, char *err,
			  size_t errlen);

/* sequence.c: a sequence that was destroyed, once the last step that it was part of is over. */
void engine_seq_end(struct tarn_seq *seq);

/* step.c: putting a step together and starting it; step_end.c: what comes of it. */
int engine_step_init(struct tarn_engine *engine);
/* What was begun is waited for, and dropped. */
void engine_step_deinit(struct tarn_engine *engine);
static inline struct step *engine_step_at(struct tarn_engine *e, uint32_t i)
{
	return &e->steps[(e->first_step + i) % BACKEND_MAX_STARTED];
}
/* End tokens are not for those who ignore them, but where nothing else is allowed. */
bool engine_bans_ends(const struct tarn_seq *seq);
/* Until all steps that were begun are computed. They are still to be ended. */
void engine_step_wait(struct tarn_engine *engine);
/* Nobody asks for them any more: sequences that were destroyed go with them. */
void engine_step_drop(struct tarn_engine *engine);

#endif /* TARN_ENGINE_PRIVATE_H */
