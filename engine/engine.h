/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: a model and its KV memory, as the daemon sees them. This is the
 * only header of engine/ (with kv/libkvpool.h) that daemon/ may include.
 *
 * Everything is opaque: an engine (one model, loaded once) and its sequences
 * (one generation each, owned by a principal). The daemon decides who computes
 * in a step; the engine computes it.
 *
 * Threads: calls marked [any] may come from any thread at any time after
 * tarn_engine_create() returned. Calls marked [driver] come from one thread at
 * a time, the driver; nothing else makes the engine change.
 *
 * Errors: 0 or -errno; calls that look at what a client sent end in
 * (char *err, size_t errlen) and write one line that names the offence.
 */
#ifndef TARN_ENGINE_H
#define TARN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tarn_engine;
struct tarn_seq;

/* ---- the engine ----------------------------------------------------------- */

enum tarn_device { TARN_DEVICE_AUTO, TARN_DEVICE_CPU, TARN_DEVICE_CUDA };

enum tarn_kv_backend {
	TARN_KV_AUTO,
	TARN_KV_KERNEL,
	TARN_KV_MEMFD,
	TARN_KV_CUDA,
};

/* Whose prompts a cached prefix is for. */
enum tarn_prefix_scope {
	TARN_PREFIX_OF_USER, /* the uid that computed it */
	TARN_PREFIX_OF_ALL, /* everybody's: how fast a first token comes shows what others ask */
};

struct kvpool;

enum { TARN_MAX_THREADS = 256 };

struct tarn_engine_options {
	const char *model_path; /* a GGUF file */
	/* Up to TARN_MAX_THREADS; 0: one per core this process may use, but no more than that. */
	uint32_t nr_threads;
	uint32_t ctx_tokens; /* most tokens of one sequence; 0: the model's */
	/* AUTO: a GPU where one works and takes the model, else the CPU. */
	enum tarn_device device;
	enum tarn_kv_backend kv_backend;
	uint64_t kv_bytes; /* all KV memory; 0: half of MemAvailable, 9/10 of a GPU's free */
	/*
	 * A pool that other processes use too, by its name: with the kernel backend, made (of
	 * kv_bytes) where it is not there. NULL: one of this engine's own.
	 */
	const char *pool_name;
	/* Of a pool that is made: most private, and most published bytes of a uid; 0: no limit. */
	uint64_t pool_quota_bytes;
	/* In place of all that: a pool that is open; the engine takes a reference. */
	struct kvpool *pool;
	/*
	 * Of a pool that is named or given, and of a GPU's, which processes of one uid share
	 * without a name: prefixes are neither published nor looked for there.
	 */
	bool no_prefix_sharing;
	enum tarn_prefix_scope prefix_scope;
	bool precise; /* float32 activations and KV */
	bool no_prefix_cache;
	/* A pre-tokenizer of unknown name is taken as "default", with a warning, not refused. */
	bool allow_unknown_pre;
	uint32_t max_batch_tokens; /* most tokens of one step; 0: 512 */
	/*
	 * Called while loading, from the creating thread, @fraction rising from 0 to 1. A
	 * non-zero return stops the load: tarn_engine_create() answers -ECANCELED.
	 */
	int (*progress)(void *arg, const char *stage, double fraction);
	void *progress_arg;
};

/**
 * tarn_engine_create - load a model
 * @err, @errlen: [out] what is wrong; when it succeeds, a warning worth logging, or "".
 *
 * Return: 0; -ENOENT, -EACCES (file); -EINVAL (broken file, or an option out of range); -ENOTSUP
 * (architecture, tensor type, tokenizer); -ENODEV (device or KV backend not there);
 * -EACCES also for a pool that does not admit this process; -ENOMEM; -ECANCELED.
 */
int tarn_engine_create(const struct tarn_engine_options *options,
		       struct tarn_engine **out_engine, char *err,
		       size_t errlen);
/* [driver] Every sequence must be gone. NULL is fine. */
void tarn_engine_destroy(struct tarn_engine *engine);

struct tarn_engine_info {
	const char *model_name; /* general.name, or the file's stem */
	const char *model_path;
	const char *arch;
	const char *quant; /* what most weight bytes are: "Q4_1" */
	const char *device; /* "cpu (avx512)" */
	const char *kv_backend; /* "memfd" */
	const char *pool_name; /* NULL: the pool has none */
	bool shares_prefixes; /* with other engines on the pool, or the GPU */
	const char *fingerprint; /* the numerics id, short: system_fingerprint */
	uint64_t nr_params;
	uint64_t weight_bytes; /* packed */
	uint64_t kv_limit_bytes;
	uint32_t kv_bytes_per_token; /* all streams, within the window */
	uint32_t ctx_tokens; /* most tokens of one sequence */
	uint32_t model_ctx_tokens; /* what the model was made for */
	uint32_t nr_vocab;
	uint32_t nr_threads;
	uint32_t max_batch_tokens;
	bool runs_ahead; /* a step is computed beside the host: see tarn_step_begin() */
	bool has_chat_template;
	bool precise;
};

/* [any] Strings live as long as the engine. */
const struct tarn_engine_info *
tarn_engine_info(const struct tarn_engine *engine);

/**
 * tarn_inspect_file - [any] what is in a model file, and what an engine would do with it
 * @out_json: [out] malloc'ed: file, bytes, name, parameters, quantisation, shape, memory (packed
 * weights, 16-bit KV), types, tokenizer, chat_template, can_be_served and the reason why not,
 * metadata (arrays by their length), tensors. What a file does not tell is left out.
 *
 * A file that breaks off, or that no engine could load, is told about as far as it goes.
 * Return: 0; as open(2); -EINVAL, -ENOTSUP for what is no GGUF file; -ENOMEM.
 */
int tarn_inspect_file(const char *path, char **out_json, char *err,
		      size_t errlen);

struct tarn_engine_stat {
	uint64_t kv_used_bytes; /* held by live sequences */
	uint64_t kv_reserved_bytes; /* promised to them beyond that */
	uint64_t kv_cached_bytes; /* finished prefixes, given up when needed */
	uint64_t kv_spare_bytes;
	/*
	 * What the pool holds for buffers: less than the above where the system, or a peer, has
	 * taken cached prefixes that nobody has looked for since.
	 */
	uint64_t kv_resident_bytes;
	uint64_t nr_seqs;
	uint64_t nr_steps;
	uint64_t prompt_tokens, generated_tokens;
	uint64_t prefix_query_tokens, prefix_hit_tokens;
	/* Part of the hits that others on the pool had computed. */
	uint64_t prefix_shared_tokens;
};

/* [any] */
void tarn_engine_stat(struct tarn_engine *engine,
		      struct tarn_engine_stat *out_stat);

/* ---- text ------------------------------------------------------------------- */

enum tarn_tokenize_flags {
	TARN_TOKENIZE_PARSE_SPECIAL =
		1u << 0, /* "<|im_end|>" in the text is the token */
	TARN_TOKENIZE_ADD_SPECIAL =
		1u << 1, /* BOS and EOS where the model asks for them */
	/* tarn_tokenize_file() only: see tarn_engine_options.allow_unknown_pre */
	TARN_TOKENIZE_ALLOW_UNKNOWN_PRE = 1u << 2,
};

/* [any] @out_ids: malloc'ed, the caller frees. Return: 0, -ENOMEM, -EFBIG. */
int tarn_tokenize(const struct tarn_engine *engine, const char *text,
		  size_t len, unsigned int flags, int32_t **out_ids,
		  size_t *out_nr);
/*
 * [any] The bytes of one token (not always whole characters); control tokens are empty unless
 * @special. Owned by the engine.
 */
const char *tarn_token_piece(const struct tarn_engine *engine, int32_t id,
			     bool special, size_t *out_len);
struct tarn_bytes {
	const char *bytes;
	size_t len;
};
/*
 * [any] Tokens at which DRY ends a repetition, as bits by id: (*out)[id / 64] >> id % 64. Those
 * whose text contains one of @texts [nr], at most 64, none empty; where no token does, the last
 * token of that text. malloc'ed, the caller frees. Return: 0, -EINVAL, -ENOMEM.
 */
int tarn_dry_breakers(const struct tarn_engine *engine,
		      const struct tarn_bytes *texts, uint32_t nr,
		      uint64_t **out);
/* [any] malloc'ed text. Return: 0, -EINVAL (an id out of range), -ENOMEM. */
int tarn_detokenize(const struct tarn_engine *engine, const int32_t *ids,
		    size_t nr, bool special, char **out_text, size_t *out_len);
/**
 * tarn_chat_prompt - [any] render the model's chat template
 * @request_json: an object with "messages" and whatever else the template may read ("tools",
 *	"add_generation_prompt": true unless given, ...). bos_token and eos_token are added.
 * @out_text: [out] malloc'ed prompt text, to be tokenised with PARSE_SPECIAL; NULL if not wanted.
 * @out_ids, @out_nr: [out] its token ids, with one BOS where the model wants it, malloc'ed.
 *
 * Return: 0; -ENOENT (the model has no template); -EINVAL (the template refused the request, or a
 * construct failed: err says which and where); -ENOMEM.
 */
int tarn_chat_prompt(const struct tarn_engine *engine, const char *request_json,
		     size_t len, char **out_text, int32_t **out_ids,
		     size_t *out_nr, char *err, size_t errlen);

/* ---- chat templates ------------------------------------------------------------ */

/*
 * A model's chat template with the texts of its BOS and EOS, or a template by itself. Immutable:
 * any thread may render. Those that a file names "tool_use" serve requests with tools.
 */
struct tarn_template;

/* [any] The engine's own, which lives as long as the engine; NULL: the model has none. */
const struct tarn_template *
tarn_engine_template(const struct tarn_engine *engine);
/**
 * tarn_template_open - read the template of a model file, metadata only (no tensors needed)
 * @out_template: [out] the caller's, for tarn_template_close().
 *
 * Return: as tarn_engine_create() for the file; -ENOENT also where it has no template.
 */
int tarn_template_open(const char *model_path,
		       struct tarn_template **out_template, char *err,
		       size_t errlen);
/*
 * From the text of a template. bos_token and eos_token are then the request's own.
 * Return: 0; -EINVAL, with construct and line; -E2BIG; -ENOMEM.
 */
int tarn_template_parse(const char *source, size_t len,
			struct tarn_template **out_template, char *err,
			size_t errlen);
/*
 * [any] The text that it was made of, of the one for requests with tools or without: owned by the
 * template. NULL: that one is broken.
 */
const char *tarn_template_source(const struct tarn_template *template,
				 bool has_tools);
/* NULL is fine. Not for the engine's own. */
void tarn_template_close(struct tarn_template *template);
/**
 * tarn_template_render - the prompt's text
 * @request_json: an object, each member a variable of the template: see tarn_chat_prompt().
 * @out_text: [out] malloc'ed, a NUL behind its @out_len bytes; unchanged on error.
 *
 * Return: 0; -EINVAL (no object, or the template refused the request, or a construct failed: err
 * says which and where); -ENOMEM.
 */
int tarn_template_render(const struct tarn_template *template,
			 const char *request_json, size_t len, char **out_text,
			 size_t *out_len, char *err, size_t errlen);

/*
 * [any] Tokenise with a model file alone, metadata only (no tensors needed): for `tarn tokenize`.
 * @err: [out] what is wrong; when it succeeds, a warning worth showing, or "".
 * Return: as tarn_engine_create() for the file, as tarn_tokenize() for the text.
 */
int tarn_tokenize_file(const char *model_path, const char *text, size_t len,
		       unsigned int flags, int32_t **out_ids, size_t *out_nr,
		       char *err, size_t errlen);

/* ---- sequences ---------------------------------------------------------------- */

/* On whose behalf memory is held and work is done. Every sequence has one. */
struct tarn_principal {
	uid_t uid;
	gid_t gid;
	pid_t pid; /* 0 when not known */
};

enum {
	TARN_MAX_LOGPROBS = 20,
	TARN_MAX_CHOICES = 128,
	TARN_MAX_SCORED = 32, /* each needs a row of logits */
};

/* Steps that choose among tokens, in the order they are taken where no other is asked for. */
enum tarn_sampler {
	TARN_SAMPLER_TOP_N_SIGMA,
	TARN_SAMPLER_TEMPERATURE,
	TARN_SAMPLER_TOP_K,
	TARN_SAMPLER_TYPICAL_P,
	TARN_SAMPLER_TOP_P,
	TARN_SAMPLER_MIN_P,
	TARN_SAMPLER_XTC,
	TARN_NR_SAMPLERS,
};

/* What a grammar is written in. */
enum tarn_grammar_kind {
	TARN_GRAMMAR_GBNF, /* llama.cpp's notation; the rule "root" is the answer */
	TARN_GRAMMAR_REGEX, /* a regular expression that the whole answer matches */
	TARN_GRAMMAR_CHOICE, /* a JSON array of strings, one of which is the answer */
	TARN_GRAMMAR_JSON_OBJECT, /* any JSON object; there is no text */
	TARN_GRAMMAR_JSON_SCHEMA, /* a JSON schema, of which the answer is an instance */
	/*
	 * Calls of tools and nothing else, a JSON object {"begin", "between", "end", "is_parallel",
	 * "tools": [{"head", "parameters", "tail"} or null, ...]}: begin, then a call, with
	 * is_parallel more of them and between before each, then end. A call is head, an
	 * instance of the schema parameters, tail.
	 */
	TARN_GRAMMAR_TOOL_CALLS,
};

struct tarn_grammar;

/**
 * tarn_grammar_create - [any] make a grammar that answers have to follow
 * @text, @len: not needed afterwards.
 * @out_grammar: [out] tarn_grammar_destroy() it. After the call it is the driver's: the requests
 *	it is given to work in it.
 * @err: what is wrong, with line and column where the text has lines.
 *
 * Return: 0; -EINVAL (it does not parse, or is too large or ambiguous); -ENOMEM.
 */
int tarn_grammar_create(const struct tarn_engine *engine,
			enum tarn_grammar_kind kind, const char *text,
			size_t len, struct tarn_grammar **out_grammar,
			char *err, size_t errlen);
/* [any] No sequence may use it any more. NULL is fine. */
void tarn_grammar_destroy(struct tarn_grammar *grammar);

struct tarn_logit_bias {
	int32_t id;
	float bias; /* added to the logit */
};

/*
 * How a sequence's tokens are chosen. First logits are changed: the bias is added, then the
 * repetition, presence, frequency and DRY penalties are applied; then come the steps of @order.
 * Pointers are the caller's and stay valid until the sequence and its forks are destroyed.
 */
struct tarn_sampling {
	float temperature; /* 0: greedy */
	uint32_t top_k; /* 0: off */
	float top_p; /* 1: off */
	float min_p; /* 0: off */
	float typical_p; /* 0 or 1: off */
	float top_n_sigma; /* 0: off */
	float xtc_probability; /* 0: off */
	float xtc_threshold; /* above 0.5: off */
	float mirostat_tau; /* 0: off; else mirostat 2 stands for all steps but the temperature */
	float mirostat_eta;
	enum tarn_sampler order[TARN_NR_SAMPLERS]; /* each at most once */
	uint32_t nr_order; /* 0: that of the enum; what is not named is not done */

	float repetition_penalty; /* 0 or 1: off; for tokens of the prompt and the answer */
	uint32_t repetition_window; /* it sees that many last tokens; 0: all */
	float presence_penalty,
		frequency_penalty; /* 0: off; for tokens of the answer */
	float dry_multiplier; /* 0: off */
	float dry_base; /* 1 or more */
	uint32_t dry_allowed_length; /* repetitions shorter than this are free */
	uint32_t dry_window; /* it sees that many last tokens; 0: all */
	const uint64_t *
		dry_breakers; /* bits by token id: tarn_dry_breakers(); NULL: none */
	const struct tarn_logit_bias *biases; /* [nr_biases], every id once */
	uint32_t nr_biases;

	/*
	 * Only tokens that it allows are chosen; end tokens where it may end. NULL: all are. Log
	 * probabilities are those without it.
	 */
	struct tarn_grammar *grammar;

	uint64_t seed;
	uint32_t nr_logprobs; /* alternatives to report, up to TARN_MAX_LOGPROBS */
	bool logprobs; /* report the chosen token's log probability */
	/* End tokens do not end and are never chosen, but where a grammar allows nothing else. */
	bool ignore_eos;
};

struct tarn_logprob {
	int32_t id;
	float logprob;
};

struct tarn_seq_params {
	struct tarn_principal principal;
	const int32_t *prompt; /* copied */
	uint32_t nr_prompt;
	uint32_t max_new_tokens; /* memory for them is kept */
	uint32_t nr_choices; /* 1, or how many tarn_seq_fork() will make, this one included */
	struct tarn_sampling sampling;
	bool no_prefix_cache; /* neither look up nor keep */
	/*
	 * tarn_seq_scores() will know the prompt's log probabilities, with nr_logprobs
	 * alternatives.
	 * All of it is computed, without the prefix cache, TARN_MAX_SCORED tokens a step at most.
	 */
	bool score_prompt;
};

/**
 * tarn_seq_create - [driver] open a sequence and keep memory for it
 * @out_seq: [out] tarn_seq_destroy() ends it.
 * @err: names the offence: an id out of range and its place, the prompt's and context's lengths.
 *
 * The longest known prefix is taken over at once: see tarn_seq_cached().
 * Return: 0; -EINVAL (empty prompt, id out of range, sampling out of range); -E2BIG (prompt plus
 * max_new_tokens beyond the context); -EAGAIN (memory is held by others now); -ENOSPC
 * (more than all KV memory); -ENOMEM.
 */
int tarn_seq_create(struct tarn_engine *engine,
		    const struct tarn_seq_params *params,
		    struct tarn_seq **out_seq, char *err, size_t errlen);
/* [any] The checks of tarn_seq_create() that need no memory, for an early 400. */
int tarn_seq_check(const struct tarn_engine *engine,
		   const struct tarn_seq_params *params, char *err,
		   size_t errlen);
/**
 * tarn_seq_fork - [driver] another choice of the same prompt
 * @choice: its number, part of the random keys; the parent is choice 0.
 *
 * Call it when tarn_seq_pending() of the parent is 1 (the prompt's last token), before
 * that is computed. Shares everything computed. Return: 0, -EAGAIN, -ENOMEM; -EBUSY (part of a
 * step that did not end); -EINVAL otherwise.
 */
int tarn_seq_fork(struct tarn_seq *seq, uint32_t choice,
		  struct tarn_seq **out_seq);
/*
 * [driver] Memory is free, or cached, on return; where the sequence is part of steps that were
 * begun, when they ended: tarn_step_end() says nothing of it, and what its sampling points to is
 * used until then. NULL is fine.
 */
void tarn_seq_destroy(struct tarn_seq *seq);

/*
 * [driver] Prompt tokens from the cache; tokens that wait to be computed (1 while decoding), those
 * that a step which was begun draws included.
 */
uint32_t tarn_seq_cached(const struct tarn_seq *seq);
uint32_t tarn_seq_pending(const struct tarn_seq *seq);
uint32_t
tarn_seq_len(const struct tarn_seq *seq); /* prompt and sampled tokens */

/* What the model held of a token of the prompt, given those before it. */
struct tarn_score {
	float logprob;
	uint32_t nr_top;
	struct tarn_logprob top[TARN_MAX_LOGPROBS]; /* descending */
};
/*
 * [driver] With score_prompt: [length of the prompt], the first without meaning, the others valid
 * once they were computed. NULL without. Until the sequence is destroyed.
 */
const struct tarn_score *tarn_seq_scores(const struct tarn_seq *seq);

/* ---- a step --------------------------------------------------------------------- */

struct tarn_work {
	struct tarn_seq *seq;
	uint32_t nr_tokens; /* how many of its pending tokens to compute; at least 1 */
};

struct tarn_result {
	/*
	 * 0; or a negative errno that concerns this sequence alone (it was not computed and
	 * can only be destroyed).
	 */
	int status;
	bool has_token; /* a token was sampled: all pending ones were computed */
	int32_t token; /* appended to the sequence as its next pending token */
	bool is_end; /* an end-of-generation token (with ignore_eos: of a grammar alone) */
	/*
	 * The sequence's grammar is at a dead end behind this token, or grew beyond its limits:
	 * the token counts, but the sequence can only be destroyed.
	 */
	bool is_stuck;
	float logprob; /* of the model's own distribution, before temperature */
	uint32_t nr_top;
	struct tarn_logprob top[TARN_MAX_LOGPROBS]; /* descending */
};

/**
 * tarn_step - [driver] compute a batch of tokens from many sequences
 * @work: one entry per sequence; the sum of nr_tokens at most max_batch_tokens.
 * @out_results: [out] one per entry.
 *
 * Results of a sequence do not depend on what else is in the batch, nor on how its prompt is cut.
 * Return: 0 (look at each status); -EINVAL for a bad batch (an entry twice, more tokens than are
 * pending, too many in all), nothing computed; -EBUSY: steps were begun and did not end; -EIO
 * when the device failed: the engine is of no more use.
 */
int tarn_step(struct tarn_engine *engine, const struct tarn_work *work,
	      uint32_t nr, struct tarn_result *out_results);
/**
 * tarn_step_begin - [driver] plan a step and start it, without waiting for it
 *
 * A second one may be begun before the first ended, if tarn_step_may_begin(): a sequence that draws
 * a token in the first has it pending already, and goes on with it in the second. One that turns
 * out to have ended is destroyed, and its row in the second step is of no consequence. Tokens are
 * those of steps one by one. Where the device is the CPU it is all computed on return.
 *
 * Return: 0, and tarn_step_end() answers; -EINVAL as tarn_step(); -EBUSY where not
 * tarn_step_may_begin().
 */
int tarn_step_begin(struct tarn_engine *engine, const struct tarn_work *work,
		    uint32_t nr);
/*
 * [driver] Whether none is begun, or one that another may be begun behind: all of it continues
 * answers, by tokens that the device draws and the host need not know to draw the next
 * (no penalties, biases, grammars, mirostat).
 */
bool tarn_step_may_begin(const struct tarn_engine *engine);
/*
 * [driver] Wait for the step that was begun first. @out_results: [out] one per entry of its work.
 * Return: as tarn_step(); -EINVAL: none was begun.
 */
int tarn_step_end(struct tarn_engine *engine, struct tarn_result *out_results);

/*
 * [driver] What can wait until the results of a step are handed out: new prefixes are published in
 * the pool. Call it between steps.
 */
void tarn_engine_tidy(struct tarn_engine *engine);
/*
 * [driver] Logits of the rows of the last step whose sequences sampled: float [nr_vocab], for tests
 * and tools; NULL when entry @i sampled nothing, or another step was begun. Valid until one is.
 */
const float *tarn_step_logits(const struct tarn_engine *engine, uint32_t i);

#endif /* TARN_ENGINE_H */
