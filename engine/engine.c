/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's life: from a model file to something that computes, and back.
 * KV memory is in pool.c, its identity in identity.c, sequences in sequence.c,
 * steps in step.c, text in text.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "engine/kv/exchange.h"
#include "engine/model/gguf.h"
#include "engine/token/utf8.h"

enum {
	MAX_NAME_BYTES = 200, /* of a model */
};

/* ---- loading -------------------------------------------------------------------- */

static int report(const struct tarn_engine_options *o, const char *stage,
		  double fraction)
{
	return o->progress && o->progress(o->progress_arg, stage, fraction) ?
		       -ECANCELED :
		       0;
}

static int load_progress(void *arg, double fraction)
{
	return report(arg, "packing weights", 0.1 + 0.85 * fraction);
}

static int create_backend(struct tarn_engine *e,
			  const struct tarn_engine_options *o, char *err,
			  size_t errlen)
{
	struct backend_options bo = { .nr_threads = o->nr_threads,
				      .precise = o->precise };
	int rc;

	if (o->device == TARN_DEVICE_CUDA) {
		if (!o->precise)
			return backend_gpu_create(&bo, &e->backend, err,
						  errlen);
		snprintf(
			err, errlen,
			"device cuda computes in bf16: --precise is the CPU's");
		return -EINVAL;
	}
	rc = backend_cpu_create(&bo, &e->backend);
	if (rc == -EINVAL)
		snprintf(err, errlen, "%u threads: want 1 to %d", o->nr_threads,
			 TARN_MAX_THREADS);
	else if (rc)
		snprintf(err, errlen, "starting threads: %s", strerror(-rc));
	return rc;
}

/* Packed by the backend, on a GPU copied there. */
static int load_weights(struct tarn_engine *e,
			const struct tarn_engine_options *o,
			uint8_t out_digest[BACKEND_DIGEST_BYTES], char *err,
			size_t errlen)
{
	int rc = e->backend->ops->load(e->backend, load_progress,
				       (void *)(uintptr_t)o, out_digest);

	if (rc && rc != -ECANCELED && e->backend->is_device)
		snprintf(err, errlen, "device cuda: loading the weights: %s",
			 rc == -ENOMEM ? "not enough memory" : strerror(-rc));
	return rc;
}

static int prepare_backend(struct tarn_engine *e, char *err, size_t errlen)
{
	const struct model_config *c = &e->model.config;
	struct backend_shape shape = {
		.n_embd = c->n_embd,
		.n_ff = c->n_ff,
		.n_vocab = c->n_vocab,
		.n_q_heads = c->n_q_heads,
		.n_kv_heads = c->n_kv_heads,
		.head_dim = c->head_dim,
		.max_rows = e->info.max_batch_tokens,
		.nr_streams = e->model.nr_streams,
		.nr_ropes = c->nr_ropes,
		.kv_base = (uintptr_t)kvpool_base(e->pool),
	};

	for (uint32_t i = 0; i < shape.nr_streams; i++)
		shape.layouts[i] = *kv_cache_layout(e->kv, i);
	for (uint32_t i = 0; i < shape.nr_ropes; i++)
		shape.ropes[i] = (struct backend_rope){
			.base = c->ropes[i].base,
			.pos_scale = c->ropes[i].pos_scale,
			.nr_rot = c->ropes[i].nr_rot,
			.neox = c->ropes[i].neox,
			.factors = c->ropes[i].use_factors ?
					   e->model.rope_factors :
					   NULL,
		};
	return e->backend->ops->prepare(e->backend, &shape, err, errlen);
}

static int create_cache(struct tarn_engine *e, const struct gguf *gguf,
			const uint8_t weights[BACKEND_DIGEST_BYTES],
			bool prefix_cache)
{
	struct kv_cache_options ko = {
		.pool = e->pool,
		.layout = KV_LAYOUT_TILE,
		.elem = e->backend->kv_elem,
		.nr_streams = e->model.nr_streams,
		.max_tokens = e->info.ctx_tokens,
		.max_append_tokens = e->info.max_batch_tokens,
		.prefix_cache = prefix_cache,
		.share_prefixes = e->info.shares_prefixes,
		.exchange = e->exchange,
		.is_k_by_token = e->backend->is_device,
	};
	int rc = engine_identity_init(e, gguf, weights, &ko.root);

	if (rc)
		return rc;
	if (e->backend->is_device)
		ko.slack_bytes = engine_spare_bytes(e, e->info.kv_limit_bytes);
	memcpy(ko.streams, e->model.streams, sizeof(ko.streams));
	rc = kv_cache_create(&ko, &e->kv);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < e->model.nr_streams; i++) {
		const struct attn_layout *l = kv_cache_layout(e->kv, i);

		e->info.kv_bytes_per_token +=
			(uint32_t)(l->stride_bytes / l->tile_tokens);
	}
	return plan_builder_create(&e->plans);
}

static int check_context(struct tarn_engine *e,
			 const struct tarn_engine_options *o, char *err,
			 size_t errlen)
{
	uint32_t model_ctx = e->model.config.ctx_tokens;

	e->info.model_ctx_tokens = model_ctx;
	e->info.ctx_tokens = o->ctx_tokens ? o->ctx_tokens : model_ctx;
	if (e->info.ctx_tokens > model_ctx) {
		snprintf(err, errlen,
			 "a context of %u tokens: the model was made for %u",
			 o->ctx_tokens, model_ctx);
		return -EINVAL;
	}
	if (e->info.ctx_tokens < 2) {
		snprintf(
			err, errlen,
			"a context of 1 token: want at least 2, one of a prompt and one of "
			"an answer");
		return -EINVAL;
	}
	if (e->info.max_batch_tokens > ENGINE_MAX_BATCH_TOKENS) {
		snprintf(err, errlen, "%u tokens a step: want at most %d",
			 e->info.max_batch_tokens, ENGINE_MAX_BATCH_TOKENS);
		return -EINVAL;
	}
	if (tokenizer_nr_tokens(e->tokenizer) > e->model.config.n_vocab) {
		snprintf(err, errlen,
			 "the tokenizer has %u tokens, token_embd.weight %u",
			 tokenizer_nr_tokens(e->tokenizer),
			 e->model.config.n_vocab);
		return -EINVAL;
	}
	return 0;
}

static int load_model(struct tarn_engine *e,
		      const struct tarn_engine_options *o,
		      const struct gguf *gguf, char *err, size_t errlen)
{
	uint8_t weights[BACKEND_DIGEST_BYTES];
	char warning[512] = "", note[320] = "";
	int rc = tokenizer_create(
		gguf, o->allow_unknown_pre ? TOKENIZER_ALLOW_UNKNOWN_PRE : 0,
		&e->tokenizer, warning, sizeof(warning));

	if (rc) {
		snprintf(err, errlen, "%s", warning);
		return rc;
	}
	rc = report(o, "reading the model", 0.05);
	if (!rc)
		rc = create_backend(e, o, err, errlen);
	if (!rc)
		rc = model_declare(gguf, e->backend, &e->model, err, errlen);
	if (!rc)
		rc = check_context(e, o, err, errlen);
	if (!rc)
		rc = engine_open_pool(e, o, err, errlen);
	if (!rc)
		engine_open_exchange(e, o, note, sizeof(note));
	if (!rc)
		engine_ask_for_room(e, o);
	if (!rc)
		rc = engine_text_init(e, gguf, warning, sizeof(warning));
	if (!rc)
		rc = load_weights(e, o, weights, err, errlen);
	if (!rc)
		rc = create_cache(e, gguf, weights, !o->no_prefix_cache);
	if (!rc)
		rc = engine_check_cache(e, err, errlen);
	if (!rc)
		rc = prepare_backend(e, err, errlen);
	if (!rc)
		rc = engine_fit_pool(e, o, err, errlen);
	if (!rc)
		rc = engine_step_init(e);
	if (!rc)
		rc = structured_create(e->tokenizer, e->model.config.n_vocab,
				       &e->structured);
	if (!rc && !o->pool && !o->pool_name)
		rc = engine_check_commit(e, err, errlen);
	if (!rc)
		snprintf(err, errlen, "%s%s%s", warning,
			 warning[0] && note[0] ? "; " : "", note);
	return rc;
}

/*
 * A name that JSON and logs can carry, malloc'ed; NULL without memory. Bytes that are no UTF-8
 * become '?', it ends at a NUL, and what is too long is cut between two characters.
 */
static char *clean_name(const char *bytes, size_t len)
{
	char *name = malloc(MAX_NAME_BYTES + 1);
	size_t at = 0;

	if (!name)
		return NULL;
	while (at < len && bytes[at]) {
		unsigned int nr = utf8_char_len(bytes + at, len - at);

		if (at + (nr ? nr : 1) > MAX_NAME_BYTES)
			break;
		if (nr)
			memcpy(name + at, bytes + at, nr);
		else
			name[at] = '?';
		at += nr ? nr : 1;
	}
	name[at] = '\0';
	return name;
}

static int fill_info(struct tarn_engine *e, const struct gguf *gguf,
		     const struct tarn_engine_options *o)
{
	struct tarn_engine_info *i = &e->info;
	struct gguf_str name;
	char none[1];

	if (!gguf_get_str(gguf, "general.name", &name, none, 0) && name.len &&
	    name.data[0]) {
		e->model_name = clean_name(name.data, name.len);
	} else {
		const char *base = strrchr(o->model_path, '/');
		const char *stem = base ? base + 1 : o->model_path;
		const char *dot = strrchr(stem, '.');

		e->model_name = clean_name(stem, dot && dot > stem ?
							 (size_t)(dot - stem) :
							 strlen(stem));
	}
	if (!e->model_name)
		return -ENOMEM;
	i->model_name = e->model_name;
	i->model_path = e->model_path;
	i->arch = e->model.config.arch;
	i->quant = e->model.quant;
	i->device = e->backend->name;
	i->fingerprint = e->fingerprint;
	i->nr_params = e->model.nr_params;
	i->weight_bytes = e->backend->ops->weight_bytes(e->backend);
	i->nr_vocab = e->model.config.n_vocab;
	i->nr_threads = e->backend->nr_threads;
	i->runs_ahead = e->backend->is_device;
	i->has_chat_template = e->template != NULL;
	i->precise = o->precise;
	return 0;
}

/* On the device that the options name. */
static int create_on(const struct tarn_engine_options *o,
		     struct tarn_engine **out_engine, char *err, size_t errlen)
{
	struct tarn_engine *e;
	struct gguf *gguf;
	int rc;

	if (errlen)
		err[0] = '\0';
	rc = report(o, "opening the file", 0);
	if (rc) {
		snprintf(err, errlen, "%s", strerror(-rc));
		return rc;
	}
	rc = gguf_open(o->model_path, 0, &gguf, err, errlen);
	if (rc)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e) {
		gguf_close(gguf);
		return -ENOMEM;
	}
	e->no_prefix_cache = o->no_prefix_cache;
	e->info.max_batch_tokens = o->max_batch_tokens ?
					   o->max_batch_tokens :
					   ENGINE_DEFAULT_BATCH_TOKENS;
	e->model_path = strdup(o->model_path);
	rc = e->model_path && getrandom(e->salt_secret.bytes, KVPOOL_KEY_BYTES,
					0) == KVPOOL_KEY_BYTES ?
		     load_model(e, o, gguf, err, errlen) :
		     -ENOMEM;
	if (!rc)
		rc = fill_info(e, gguf, o);
	gguf_close(gguf); /* its pages too: everything is packed */
	if (!rc)
		rc = report(o, "ready", 1);
	if (rc) {
		/* A warning so far is not why. */
		if (errlen && (!err[0] || rc == -ECANCELED))
			snprintf(err, errlen, "%s", strerror(-rc));
		tarn_engine_destroy(e);
		return rc;
	}
	*out_engine = e;
	return 0;
}

/* Whether auto tries the GPU: one is there, and nothing asked for is the CPU's alone. */
static bool is_for_gpu(const struct tarn_engine_options *o)
{
	if (o->precise || o->pool_name || o->kv_backend == TARN_KV_KERNEL ||
	    o->kv_backend == TARN_KV_MEMFD)
		return false;
	if (o->pool && !(kvpool_features(o->pool) & KVPOOL_F_DEVICE))
		return false;
	return backend_gpu_is_there(0);
}

/* Whether what the GPU refused may be tried on the CPU: not what was stopped, or is the GPU's. */
static bool is_for_cpu_then(const struct tarn_engine_options *o, int rc)
{
	return rc && rc != -ECANCELED && rc != -ENOENT && rc != -EACCES &&
	       !o->pool && o->kv_backend != TARN_KV_CUDA;
}

int tarn_engine_create(const struct tarn_engine_options *o,
		       struct tarn_engine **out_engine, char *err,
		       size_t errlen)
{
	struct tarn_engine_options on = *o;
	char why[512], also[512];
	int rc;

	if (o->device != TARN_DEVICE_AUTO)
		return create_on(o, out_engine, err, errlen);
	on.device = is_for_gpu(o) ? TARN_DEVICE_CUDA : TARN_DEVICE_CPU;
	if (on.device == TARN_DEVICE_CPU)
		return create_on(&on, out_engine, err, errlen);
	rc = create_on(&on, out_engine, why, sizeof(why));
	if (is_for_cpu_then(o, rc)) {
		on.device = TARN_DEVICE_CPU;
		rc = create_on(&on, out_engine, also, sizeof(also));
		if (rc)
			snprintf(err, errlen, "%s", also);
		else
			snprintf(err, errlen,
				 "the CPU computes, the GPU does not: %s%s%s",
				 why, also[0] ? "; " : "", also);
		return rc;
	}
	snprintf(err, errlen, "%s", why);
	return rc;
}

void tarn_engine_destroy(struct tarn_engine *e)
{
	if (!e)
		return;
	engine_step_deinit(e);
	plan_builder_destroy(e->plans);
	/* What the last ones left is there for whoever comes next. */
	tarn_engine_tidy(e);
	kv_cache_destroy(e->kv);
	kv_exchange_destroy(e->exchange);
	kvpool_put(e->pool);
	engine_text_deinit(e);
	structured_destroy(e->structured);
	tokenizer_destroy(e->tokenizer);
	model_free(&e->model);
	if (e->backend)
		e->backend->ops->destroy(e->backend);
	free(e->fingerprint);
	free(e->pool_name);
	free(e->model_name);
	free(e->model_path);
	free(e);
}

const struct tarn_engine_info *tarn_engine_info(const struct tarn_engine *e)
{
	return &e->info;
}

void tarn_engine_stat(struct tarn_engine *e, struct tarn_engine_stat *out)
{
	struct kv_cache_stat kv;
	struct kvpool_stat pool = { 0 };

	kv_cache_stat(e->kv, &kv);
	kvpool_stat(e->pool, &pool);
	*out = (struct tarn_engine_stat){
		.kv_used_bytes = kv.used_bytes,
		.kv_reserved_bytes = kv.reserved_bytes,
		.kv_cached_bytes = kv.cached_bytes,
		.kv_spare_bytes = pool.spare_bytes,
		.kv_resident_bytes = pool.resident_bytes,
		.nr_seqs = atomic_load(&e->nr_seqs),
		.nr_steps = atomic_load(&e->nr_steps),
		.prompt_tokens = atomic_load(&e->prompt_tokens),
		.generated_tokens = atomic_load(&e->generated_tokens),
		.prefix_query_tokens = kv.query_tokens,
		.prefix_hit_tokens = kv.hit_tokens,
		.prefix_shared_tokens = kv.shared_hit_tokens,
	};
}

void tarn_engine_tidy(struct tarn_engine *e)
{
	if (e->kv)
		kv_cache_publish(e->kv);
}
