/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on a KV cache against a dumb model: arrays of token ids.
 * K and V are derived from the token history, so every byte that attention
 * could read is known. Page limits are small: eviction and refusal happen all
 * the time. What was promised must be given: an append within its reservation
 * never fails, a sequence alone in the pool is never refused. Caches that share
 * one pool find each other's prefixes; between them promises are not kept. Over
 * a cuda pool (a driver without a GPU) the CPU cannot touch its addresses, pages
 * are wider than tiles, and kernels are at work when memory is given up.
 *
 * TARN_TEST_OPS: operations in all variants together (default 1,040,000).
 * TARN_TEST_SEED: another sequence of operations; failures print it.
 */
#include "tests/harness.h"

#include <pthread.h>
#include <stdatomic.h>

#include "engine/kv/kvpool_private.h"
#include "engine/kv/segment.h"
#include "tests/engine/kv_kit.h"
#include "tests/engine/kv_pool_kit.h"

enum {
	MAX_SEQS = 8,
	MAX_CACHES = 2,
	MAX_TOKENS = 512,
	MAX_HISTORIES = 256,
	NR_DOCS = 6,
	OPS_PER_ROUND = 2000,
	DEFAULT_OPS = 1040000,
	PAGE = 4096,
};

struct history {
	int32_t tokens[MAX_TOKENS];
	uint32_t len;
	int salt;
};

struct model_seq {
	struct kv_cache *cache;
	struct kv_seq *seq;
	struct history text;
	uint64_t hashes[MAX_TOKENS];
	uint32_t reserve;
	uint32_t safe_len; /* truncating to this and beyond keeps every window */
};

FIXTURE(model)
{
	struct kvpool *pool;
	struct kv_cache *caches[MAX_CACHES];
	uint32_t nr_caches;
	struct kit_random random;
	struct model_seq seqs[MAX_SEQS];
	uint32_t nr_seqs;
	int32_t docs[NR_DOCS][MAX_TOKENS];
	/* What was sealed in a round; all of it is found again until something is evicted. */
	struct history *sealed;
	uint32_t nr_sealed;
	bool knows_all;
	uint64_t nr_ops, nr_refused, nr_matches, nr_evictions, nr_windows_gone;
	uint64_t nr_shared_tokens, nr_published;
	uint64_t seed;
	bool may_lack_memory;
	const char *last_op;
	struct kit_worker worker;
};

FIXTURE_VARIANT(model)
{
	uint32_t tile_tokens;
	uint32_t windows[2]; /* of streams; the second stream is there if not 0 */
	uint32_t limit_tiles;
	uint32_t spare_tiles;
	uint32_t share; /* of all operations, in parts of 16 */
	enum kv_layout_kind layout;
	bool no_prefix_cache;
	uint32_t fail_one_in; /* system calls of the pool fail; 0: never */
	uint32_t nr_sharing; /* caches that share prefixes; 0: one that does not */
	uint32_t head_dim; /* 0: 4, for tiles of a page */
	uint32_t granule; /* of a cuda pool; 0: memfd */
	bool is_working; /* a kernel reads each sequence as it grows, and ends some time later */
};

FIXTURE_VARIANT_ADD(model, one_stream){
	.tile_tokens = 16,
	.limit_tiles = 60,
	.spare_tiles = 30,
	.share = 5,
};
FIXTURE_VARIANT_ADD(model, two_streams){
	.tile_tokens = 16,
	.windows = { 0, 40 },
	.limit_tiles = 120,
	.spare_tiles = 30,
	.share = 4,
};
FIXTURE_VARIANT_ADD(model, window_alone){
	.tile_tokens = 32,
	.windows = { 64 },
	.limit_tiles = 30,
	.spare_tiles = 8,
	.share = 1,
};
FIXTURE_VARIANT_ADD(model, narrow_window){
	.tile_tokens = 32,
	.windows = { 0, 1 },
	.limit_tiles = 60,
	.spare_tiles = 8,
	.share = 1,
};
FIXTURE_VARIANT_ADD(model, roomy){
	.tile_tokens = 16,
	.limit_tiles = 20000,
	.spare_tiles = 64,
	.share = 2,
};
FIXTURE_VARIANT_ADD(model, no_prefix_cache){ .tile_tokens = 64,
					     .windows = { 0, 100 },
					     .limit_tiles = 40,
					     .share = 1,
					     .no_prefix_cache = true };
FIXTURE_VARIANT_ADD(model, dense_layout){ .tile_tokens = 16,
					  .limit_tiles = 20,
					  .spare_tiles = 4,
					  .share = 1,
					  .layout = KV_LAYOUT_LAYER };
FIXTURE_VARIANT_ADD(model, failing_system){ .tile_tokens = 16,
					    .windows = { 0, 40 },
					    .limit_tiles = 120,
					    .spare_tiles = 16,
					    .share = 1,
					    .fail_one_in = 20 };
FIXTURE_VARIANT_ADD(model, sharing_alone){ .tile_tokens = 16,
					   .windows = { 0, 40 },
					   .limit_tiles = 120,
					   .spare_tiles = 30,
					   .share = 1,
					   .nr_sharing = 1 };
FIXTURE_VARIANT_ADD(model, two_caches){ .tile_tokens = 16,
					.windows = { 0, 40 },
					.limit_tiles = 160,
					.spare_tiles = 30,
					.share = 1,
					.nr_sharing = 2 };
FIXTURE_VARIANT_ADD(model, two_caches_one_stream){ .tile_tokens = 16,
						   .limit_tiles = 90,
						   .spare_tiles = 30,
						   .share = 1,
						   .nr_sharing = 2 };
FIXTURE_VARIANT_ADD(model, two_caches_window){ .tile_tokens = 32,
					       .windows = { 64 },
					       .limit_tiles = 60,
					       .share = 1,
					       .nr_sharing = 2 };
FIXTURE_VARIANT_ADD(model, two_caches_failing){ .tile_tokens = 16,
						.windows = { 0, 40 },
						.limit_tiles = 160,
						.share = 1,
						.fail_one_in = 20,
						.nr_sharing = 2 };

FIXTURE_VARIANT_ADD(model, cuda){ .tile_tokens = 16,
				  .windows = { 0, 40 },
				  .limit_tiles = 120,
				  .spare_tiles = 30,
				  .share = 1,
				  .granule = PAGE };
FIXTURE_VARIANT_ADD(model, cuda_working){ .tile_tokens = 16,
					  .windows = { 0, 40 },
					  .limit_tiles = 120,
					  .spare_tiles = 30,
					  .share = 1,
					  .granule = PAGE,
					  .is_working = true };
/* Tiles of two thirds of a page: two of three lie in two pages. */
FIXTURE_VARIANT_ADD(model, cuda_wide){ .tile_tokens = 32,
				       .head_dim = 18,
				       .windows = { 0, 40 },
				       .limit_tiles = 150,
				       .spare_tiles = 30,
				       .share = 1,
				       .granule = 3 * PAGE };
FIXTURE_VARIANT_ADD(model, cuda_wide_window_alone){ .tile_tokens = 32,
						    .head_dim = 18,
						    .windows = { 64 },
						    .limit_tiles = 90,
						    .spare_tiles = 12,
						    .share = 1,
						    .granule = 3 * PAGE };
FIXTURE_VARIANT_ADD(model, cuda_dense){ .tile_tokens = 16,
					.limit_tiles = 20,
					.spare_tiles = 4,
					.share = 1,
					.layout = KV_LAYOUT_LAYER,
					.granule = PAGE };
FIXTURE_VARIANT_ADD(model, cuda_failing){ .tile_tokens = 32,
					  .head_dim = 18,
					  .windows = { 0, 40 },
					  .limit_tiles = 150,
					  .spare_tiles = 30,
					  .share = 1,
					  .fail_one_in = 40,
					  .granule = 3 * PAGE };
FIXTURE_VARIANT_ADD(model, cuda_sharing){ .tile_tokens = 32,
					  .head_dim = 18,
					  .windows = { 0, 64 },
					  .limit_tiles = 300,
					  .spare_tiles = 30,
					  .share = 1,
					  .nr_sharing = 2,
					  .granule = 3 * PAGE };

/* ---- a system that fails now and then ---- */

static struct {
	struct kvpool_sys real;
	pthread_mutex_t lock; /* random: a cuda pool has a thread of its own */
	struct kit_random random;
	uint32_t one_in;
	atomic_bool is_on;
} faults = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool fails_now(void)
{
	if (!atomic_load(&faults.is_on) || !faults.one_in)
		return false;
	pthread_mutex_lock(&faults.lock);
	bool fails = !kit_below(&faults.random, faults.one_in);

	pthread_mutex_unlock(&faults.lock);
	return fails;
}

/* Whatever the call: an unknown error. */
static cuda_status failing_driver(const char *name)
{
	(void)name;
	return fails_now() ? 999 : CUDA_OK;
}

static int failing_fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (fails_now()) {
		errno = ENOSPC;
		return -1;
	}
	return faults.real.fallocate(fd, mode, offset, len);
}

static int failing_memfd_create(const char *name, unsigned int flags)
{
	if (fails_now()) {
		errno = EMFILE;
		return -1;
	}
	return faults.real.memfd_create(name, flags);
}

/* ---- rounds ---- */

static void start_round(struct fixture_model *self,
			const struct variant_model *variant)
{
	uint32_t head_dim = variant->head_dim ? variant->head_dim : 4;

	self->pool = kit_pool(variant->granule, false,
			      (uint64_t)variant->limit_tiles * PAGE,
			      (uint64_t)variant->spare_tiles * PAGE);
	if (variant->granule && variant->fail_one_in)
		standin.fail = failing_driver;
	struct kv_cache_options options = {
		.layout = variant->layout,
		.elem = ATTN_F16,
		.nr_streams = variant->windows[1] ? 2 : 1,
		.streams = { { .nr_layers = 2,
			       .nr_kv_heads = 1,
			       .head_dim = head_dim,
			       .window_tokens = variant->windows[0] },
			     { .nr_layers = 1,
			       .nr_kv_heads = 2,
			       .head_dim = head_dim,
			       .window_tokens = variant->windows[1] } },
		.max_tokens = MAX_TOKENS,
		.max_append_tokens = 48,
		.tile_tokens = variant->tile_tokens,
		.prefix_cache = !variant->no_prefix_cache,
		.share_prefixes = variant->nr_sharing > 0,
		.is_k_by_token = kit_is_k_by_token,
		.pool = self->pool,
	};

	self->nr_caches = variant->nr_sharing > 1 ? variant->nr_sharing : 1;
	for (uint32_t i = 0; i < self->nr_caches; i++)
		ASSERT_EQ(0, kv_cache_create(&options, &self->caches[i]));
	for (uint32_t d = 0; d < NR_DOCS; d++) {
		/* Pairs of documents part somewhere in the middle. */
		uint32_t same = d % 2 ? kit_below(&self->random, MAX_TOKENS) :
					0;

		for (uint32_t i = 0; i < MAX_TOKENS; i++)
			self->docs[d][i] =
				i < same ?
					self->docs[d - 1][i] :
					(int32_t)kit_below(&self->random, 1000);
	}
	if (variant->is_working)
		kit_worker_start(&self->worker);
	self->nr_sealed = 0;
	self->knows_all = variant->limit_tiles >= 10000;
	self->may_lack_memory = variant->fail_one_in || self->nr_caches > 1;
	faults.is_on = true;
}

static bool check_caches(struct fixture_model *self)
{
	for (uint32_t i = 0; i < self->nr_caches; i++) {
		if (!kit_check(self->caches[i]))
			return false;
	}
	return true;
}

static void end_round(struct fixture_model *self)
{
	struct kv_cache_stat stat;
	struct kvpool_stat pool_stat;

	faults.is_on = false;
	kit_worker_stop(&self->worker);
	while (self->nr_seqs)
		kv_seq_close(self->seqs[--self->nr_seqs].seq);
	ASSERT_TRUE(check_caches(self));
	for (uint32_t i = 0; i < self->nr_caches; i++) {
		kv_cache_stat(self->caches[i], &stat);
		EXPECT_EQ(0, stat.nr_seqs);
		EXPECT_EQ(0, stat.used_bytes);
		EXPECT_EQ(0, stat.ahead_bytes);
		EXPECT_EQ(0, stat.reserved_bytes);
		self->nr_evictions += stat.evictions;
		self->nr_shared_tokens += stat.shared_hit_tokens;
		self->nr_published += stat.nr_published;
		kv_cache_destroy(self->caches[i]);
	}
	/* What is published stays in the pool, and all of it may be taken. */
	kvpool_stat(self->pool, &pool_stat);
	EXPECT_EQ(pool_stat.volatile_bytes, pool_stat.resident_bytes);
	EXPECT_EQ(pool_stat.shared_bytes, pool_stat.resident_bytes);
	EXPECT_EQ(pool_stat.nr_keys > 0, pool_stat.nr_buffers > 0);
	kit_pool_put(self->pool);
}

FIXTURE_SETUP(model)
{
	const char *seed = getenv("TARN_TEST_SEED");

	self->seed = seed ? strtoull(seed, NULL, 0) : 1;
	self->random.state = kit_mix(self->seed);
	self->sealed = malloc(MAX_HISTORIES * sizeof(*self->sealed));
	ASSERT_TRUE(self->sealed != NULL);
	faults.real = kvpool_sys;
	faults.random.state = self->seed;
	faults.one_in = variant->fail_one_in;
	kvpool_sys.fallocate = failing_fallocate;
	kvpool_sys.memfd_create = failing_memfd_create;
}

FIXTURE_TEARDOWN(model)
{
	(void)variant;
	free(self->sealed);
}

/* ---- operations ---- */

static void fill(struct model_seq *m, uint32_t first, uint32_t end)
{
	kit_history(m->text.tokens, first, end, m->hashes);
	if (kv_cache_layout(m->cache, 0)->v_offset_bytes) {
		kit_fill(m->cache, m->seq, first, end, m->hashes);
		return;
	}
	const struct attn_layout *l = kv_cache_layout(m->cache, 0);

	for (uint32_t t = first; t < end; t++) {
		for (uint32_t i = 0; i < 2 * 2; i++) {
			uint16_t *row =
				(uint16_t *)kit_bytes(
					kv_seq_dense(m->seq, 0, i / 2, i % 2)) +
				(size_t)t * l->nr_kv_heads * l->head_dim;

			for (uint32_t d = 0; d < l->head_dim; d++)
				row[d] = kit_value(m->hashes[t], i / 2, 0,
						   i % 2, d);
		}
	}
}

static bool verify_dense(const struct model_seq *m)
{
	const struct attn_layout *l = kv_cache_layout(m->cache, 0);

	for (uint32_t t = 0; t < m->text.len; t++) {
		for (uint32_t i = 0; i < 2 * 2; i++) {
			const uint16_t *row =
				(const uint16_t *)kit_bytes(
					kv_seq_dense(m->seq, 0, i / 2, i % 2)) +
				(size_t)t * l->nr_kv_heads * l->head_dim;

			for (uint32_t d = 0; d < l->head_dim; d++) {
				if (row[d] !=
				    kit_value(m->hashes[t], i / 2, 0, i % 2, d))
					return false;
			}
		}
	}
	return true;
}

static void verify(struct fixture_model *self, const struct model_seq *m)
{
	bool is_dense = !kv_cache_layout(m->cache, 0)->v_offset_bytes;

	ASSERT_EQ(m->text.len, kv_seq_len(m->seq));
	ASSERT_TRUE(is_dense ? verify_dense(m) :
			       kit_verify(m->cache, m->seq, m->hashes))
	{
		TH_LOG("sequence %d, operation %llu: %s", (int)(m - self->seqs),
		       (unsigned long long)self->nr_ops, self->last_op);
	}
}

static void note_sealed(struct fixture_model *self, const struct history *text)
{
	if (self->nr_sealed == MAX_HISTORIES)
		self->knows_all = false;
	else
		self->sealed[self->nr_sealed++] = *text;
}

/* The longest start of @text that anything sealed with its salt has, one token left over. */
static uint32_t expected_match(const struct fixture_model *self,
			       const struct history *text)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < self->nr_sealed; i++) {
		const struct history *old = &self->sealed[i];
		uint32_t len = 0;

		if (old->salt != text->salt)
			continue;
		while (len + 1 < text->len && len < old->len &&
		       old->tokens[len] == text->tokens[len])
			len++;
		best = len > best ? len : best;
	}
	return best;
}

static void make_prompt(struct fixture_model *self, struct history *text)
{
	const int32_t *doc = self->docs[kit_below(&self->random, NR_DOCS)];
	uint32_t max = kit_below(&self->random, 4) ? 200 : MAX_TOKENS - 50;

	text->len = 1 + kit_below(&self->random, max);
	text->salt = kit_below(&self->random, 8) == 0;
	memcpy(text->tokens, doc, text->len * sizeof(*doc));
	/* Half of them part from the document. */
	if (kit_below(&self->random, 2)) {
		uint32_t from = kit_below(&self->random, text->len);

		for (uint32_t i = from; i < text->len; i++)
			text->tokens[i] = (int32_t)kit_below(&self->random, 3);
	}
}

static void op_open(struct fixture_model *self)
{
	struct model_seq *m = &self->seqs[self->nr_seqs];
	struct kvpool_key salt = { { 0 } };
	uint32_t matched = UINT32_MAX;
	enum kv_miss miss;

	make_prompt(self, &m->text);
	salt.bytes[0] = (uint8_t)m->text.salt;
	m->reserve = m->text.len +
		     kit_below(&self->random, MAX_TOKENS - m->text.len + 1);
	m->cache =
		self->caches[self->nr_caches > 1 ?
				     kit_below(&self->random, self->nr_caches) :
				     0];
	int err = kv_seq_open(m->cache, m->text.tokens, m->text.len, m->reserve,
			      &salt, 0, &m->seq, &matched, &miss);

	if (err) {
		self->nr_refused++;
		ASSERT_TRUE(err == -EAGAIN || err == -ENOSPC ||
			    self->may_lack_memory);
		/* Alone, only what is beyond the limit for ever is refused. */
		if (!self->may_lack_memory && !self->nr_seqs)
			ASSERT_EQ(-ENOSPC, err);
		return;
	}
	ASSERT_TRUE(matched < m->text.len);
	if (self->knows_all) {
		ASSERT_EQ(expected_match(self, &m->text), matched);
		EXPECT_EQ(matched + 1 == m->text.len ? KV_MISS_NONE :
						       KV_MISS_NEVER,
			  miss);
	}
	uint32_t len = m->text.len;

	kit_history(m->text.tokens, 0, len, m->hashes);
	self->nr_matches += matched > 0;
	self->nr_windows_gone += miss == KV_MISS_WINDOW;
	m->text.len = matched;
	m->safe_len = matched;
	self->nr_seqs++;
	verify(self, m);
	/* The prompt in chunks; not always to its end. */
	for (uint32_t at = matched; at < len;) {
		uint32_t nr = 1 + kit_below(&self->random, 48);

		if (nr > len - at)
			nr = len - at;
		err = kv_seq_append(m->seq, m->text.tokens + at, nr);
		if (err && self->may_lack_memory) {
			m->safe_len = at; /* windows move all the same */
			return;
		}
		ASSERT_EQ(0, err);
		fill(m, at, at + nr);
		m->safe_len = at;
		at += nr;
		m->text.len = at;
		kit_work(&self->worker, m->cache, m->seq);
		if (!kit_below(&self->random, 16))
			return;
	}
	if (kit_below(&self->random, 4)) {
		if (!kv_seq_seal(m->seq))
			note_sealed(self, &m->text);
		m->safe_len = m->text.len;
	}
}

static void op_append(struct fixture_model *self, struct model_seq *m)
{
	uint32_t nr = kit_below(&self->random, 4) ?
			      1 :
			      1 + kit_below(&self->random, 48);
	uint32_t len = m->text.len;
	int32_t tokens[48];

	for (uint32_t i = 0; i < nr; i++)
		tokens[i] = (int32_t)kit_below(&self->random, 3);
	int err = kv_seq_append(m->seq, tokens, nr);

	if (len + nr > MAX_TOKENS) {
		ASSERT_EQ(-E2BIG, err);
		return;
	}
	if (err) {
		self->nr_refused++;
		/* Calls of the device's driver that fail are its loss. */
		ASSERT_TRUE(err == -ENOSPC ||
			    (err == -EIO && self->may_lack_memory));
		ASSERT_TRUE(len + nr > m->reserve || self->may_lack_memory);
		ASSERT_EQ(len, kv_seq_len(m->seq));
		m->safe_len = len; /* windows move all the same */
		return;
	}
	memcpy(m->text.tokens + len, tokens, nr * sizeof(*tokens));
	m->text.len += nr;
	m->safe_len = len;
	fill(m, len, len + nr);
	kit_work(&self->worker, m->cache, m->seq);
}

static void op_fork(struct fixture_model *self, struct model_seq *m)
{
	struct model_seq *child = &self->seqs[self->nr_seqs];
	uint32_t reserve =
		m->text.len +
		kit_below(&self->random, MAX_TOKENS - m->text.len + 1);
	int err = kv_seq_fork(m->seq, reserve, &child->seq);

	m->safe_len = m->text.len;
	if (err) {
		self->nr_refused++;
		ASSERT_TRUE(err == -EAGAIN || err == -ENOSPC ||
			    self->may_lack_memory);
		self->knows_all =
			false; /* it may have been sealed all the same */
	} else {
		child->cache = m->cache;
		child->text = m->text;
		memcpy(child->hashes, m->hashes, sizeof(m->hashes));
		child->reserve = reserve;
		child->safe_len = m->text.len;
		self->nr_seqs++;
		verify(self, child);
		/* Sealed only from a tile on: what the index knows now is no longer certain. */
		if (self->knows_all)
			note_sealed(self, &m->text);
		self->knows_all = false;
	}
	verify(self, m);
}

static void op_truncate(struct fixture_model *self, struct model_seq *m)
{
	uint32_t back = kit_below(&self->random, 2) ? 3 : m->text.len + 1;
	uint32_t cut = kit_below(&self->random, back);
	uint32_t len = cut < m->text.len ? m->text.len - cut : 0;
	int err = kv_seq_truncate(m->seq, len);

	if (err) {
		self->nr_refused++;
		ASSERT_TRUE(err == -ESTALE || err == -EAGAIN ||
			    self->may_lack_memory);
		if (err == -ESTALE)
			ASSERT_TRUE(len < m->safe_len);
	} else {
		m->text.len = len;
		if (m->safe_len > len)
			m->safe_len = len;
	}
	verify(self, m);
}

static void op_close(struct fixture_model *self, struct model_seq *m)
{
	if (m->text.len)
		note_sealed(self, &m->text);
	kv_seq_close(m->seq);
	*m = self->seqs[--self->nr_seqs];
}

static void op_prepare_and_count(struct fixture_model *self,
				 struct model_seq *m,
				 const struct variant_model *variant)
{
	struct kv_cache_stat stat;
	uint64_t most = 0;

	kv_seq_prepare(m->seq);
	m->safe_len = m->text.len;
	kv_cache_stat(m->cache, &stat);
	/* Of a published segment all is in use, or nothing. */
	if (variant->layout == KV_LAYOUT_LAYER || variant->windows[0] ||
	    variant->nr_sharing || variant->granule > PAGE)
		return;
	/* Less than a tile more than its tokens, at each end of a window. */
	for (uint32_t i = 0; i < self->nr_seqs; i++) {
		uint32_t T = variant->tile_tokens;

		most += (self->seqs[i].text.len + T - 1) / T;
		if (variant->windows[1])
			most += (variant->windows[1] + 48 + T - 1) / T + 1;
	}
	EXPECT_TRUE(stat.used_bytes <= most * PAGE)
	{
		TH_LOG("%llu bytes for %llu tiles",
		       (unsigned long long)stat.used_bytes,
		       (unsigned long long)most);
	}
	EXPECT_TRUE(stat.ahead_bytes <= 2 * self->nr_seqs * (uint64_t)PAGE);
}

static void one_operation(struct fixture_model *self,
			  const struct variant_model *variant)
{
	uint32_t what = kit_below(&self->random, 100);
	struct model_seq *m =
		self->nr_seqs ?
			&self->seqs[kit_below(&self->random, self->nr_seqs)] :
			NULL;

	if (!m || (what < 6 && self->nr_seqs < MAX_SEQS)) {
		self->last_op = "open";
		op_open(self);
	} else if (what < 64) {
		self->last_op = "append";
		op_append(self, m);
	} else if (what < 69) {
		self->last_op = "seal";
		if (!kv_seq_seal(m->seq) && m->text.len &&
		    variant->layout == KV_LAYOUT_TILE)
			note_sealed(self, &m->text);
		m->safe_len = m->text.len;
		verify(self, m);
	} else if (what < 73) {
		self->last_op = "fork";
		if (self->nr_seqs < MAX_SEQS)
			op_fork(self, m);
	} else if (what < 83) {
		self->last_op = "truncate";
		op_truncate(self, m);
	} else if (what < 90) {
		self->last_op = "close";
		op_close(self, m);
	} else if (what < 99) {
		op_prepare_and_count(self, m, variant);
	} else {
		kvpool_trim(self->pool,
			    PAGE * (uint64_t)kit_below(&self->random, 20));
	}
}

TEST_F_TIMEOUT(model, agrees_after_every_operation, 150)
{
	const char *env = getenv("TARN_TEST_OPS");
	uint64_t nr_ops = (env ? strtoull(env, NULL, 0) : DEFAULT_OPS) *
			  variant->share / 16;

	/* A driver without a GPU takes its time. */
	if (variant->granule)
		nr_ops /= 3;

	TH_LOG("seed %llu, %llu operations", (unsigned long long)self->seed,
	       (unsigned long long)nr_ops);
	while (self->nr_ops < nr_ops) {
		start_round(self, variant);
		for (uint32_t i = 0; i < OPS_PER_ROUND; i++) {
			one_operation(self, variant);
			self->nr_ops++;
			if (variant->nr_sharing && self->nr_ops % 4 == 0)
				kv_cache_publish(self->caches[self->nr_ops / 4 %
							      self->nr_caches]);
			ASSERT_TRUE(check_caches(self))
			{
				TH_LOG("after operation %llu: %s",
				       (unsigned long long)self->nr_ops,
				       self->last_op);
			}
			if (self->nr_seqs && self->nr_ops % 8 == 0)
				verify(self,
				       &self->seqs[kit_below(&self->random,
							     self->nr_seqs)]);
		}
		end_round(self);
	}
	TH_LOG("%llu matches, %llu refusals, %llu evictions, %llu windows gone",
	       (unsigned long long)self->nr_matches,
	       (unsigned long long)self->nr_refused,
	       (unsigned long long)self->nr_evictions,
	       (unsigned long long)self->nr_windows_gone);
	if (variant->nr_sharing)
		TH_LOG("%llu segments published, %llu tokens found in the pool",
		       (unsigned long long)self->nr_published,
		       (unsigned long long)self->nr_shared_tokens);
	if (variant->nr_sharing && nr_ops >= 20000) {
		EXPECT_TRUE(self->nr_published > 0);
		EXPECT_TRUE(self->nr_shared_tokens > 0);
	}
	/* A test that never came near the limit would show nothing. */
	if (!variant->no_prefix_cache && nr_ops >= 20000)
		EXPECT_TRUE(self->nr_matches > 0);
	if (variant->limit_tiles < 1000 && nr_ops >= 20000)
		EXPECT_TRUE(self->nr_refused > 0);
	if (variant->limit_tiles < 1000 && !variant->no_prefix_cache &&
	    nr_ops >= 20000)
		EXPECT_TRUE(self->nr_evictions > 0);
}

TEST_HARNESS_MAIN
