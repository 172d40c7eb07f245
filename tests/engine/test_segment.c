/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments one behaviour at a time: growth, prefix matches of every length
 * around a tile, forks, truncation, windows, admission, eviction, the dense
 * layout, and every errno. What random sequences of calls do is in
 * test_segment_model.c.
 */
#include "tests/harness.h"

#include "engine/kv/segment.h"
#include "tests/engine/kv_kit.h"

enum { T = 16, MAX_TOKENS = 4096, TILE_BYTES = 4096 };

static const struct kvpool_key salt_a = { { 1 } }, salt_b = { { 2 } };

FIXTURE(segment)
{
	struct kvpool *pool;
	struct kv_cache *cache;
	int32_t tokens[MAX_TOKENS + 64];
	uint64_t hashes[MAX_TOKENS + 64];
	uint32_t matched;
	enum kv_miss miss;
};

FIXTURE_VARIANT(segment)
{
	uint32_t window; /* of a second stream; 0: one stream */
	uint32_t limit_tiles;
};

FIXTURE_VARIANT_ADD(segment, one_stream){ .limit_tiles = 512 };
FIXTURE_VARIANT_ADD(segment, two_streams){ .window = 64, .limit_tiles = 512 };

static struct kv_cache_options make_options(struct kvpool *pool,
					    uint32_t window)
{
	return (struct kv_cache_options){
		.pool = pool,
		.elem = ATTN_F16,
		.nr_streams = window ? 2 : 1,
		.streams = { { .nr_layers = 2, .nr_kv_heads = 1, .head_dim = 8 },
			     { .nr_layers = 3,
			       .nr_kv_heads = 2,
			       .head_dim = 8,
			       .window_tokens = window } },
		.max_tokens = MAX_TOKENS,
		.max_append_tokens = 32,
		.tile_tokens = T,
		.prefix_cache = true,
	};
}

FIXTURE_SETUP(segment)
{
	struct kvpool_options pool_options = {
		.backend = KVPOOL_BACKEND_MEMFD,
		.limit_bytes = (uint64_t)variant->limit_tiles * TILE_BYTES,
		.spare_limit_bytes = 64 * TILE_BYTES,
	};
	ASSERT_EQ(0, kvpool_open(&pool_options, &self->pool));
	struct kv_cache_options options =
		make_options(self->pool, variant->window);

	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	for (uint32_t i = 0; i < MAX_TOKENS + 64; i++)
		self->tokens[i] = (int32_t)(i * 7 + 3);
	kit_history(self->tokens, 0, MAX_TOKENS + 64, self->hashes);
}

FIXTURE_TEARDOWN(segment)
{
	kv_cache_destroy(self->cache);
	kvpool_put(self->pool);
}

/* Open with a prompt of @nr tokens and compute what was not matched. */
static struct kv_seq *open_ok(struct fixture_segment *self, uint32_t nr,
			      uint32_t reserve)
{
	struct kv_seq *seq = NULL;

	self->matched = UINT32_MAX;
	ASSERT_EQ(0,
		  kv_seq_open(self->cache, self->tokens, nr, reserve, &salt_a,
			      1000, &seq, &self->matched, &self->miss));
	return seq;
}

/* Bring a sequence to @len tokens in steps of at most @step. */
static void grow_ok(struct fixture_segment *self, struct kv_seq *seq,
		    uint32_t len, uint32_t step)
{
	for (uint32_t at = kv_seq_len(seq); at < len; at = kv_seq_len(seq)) {
		uint32_t nr = len - at < step ? len - at : step;

		ASSERT_EQ(0, kv_seq_append(seq, self->tokens + at, nr));
		kit_fill(self->cache, seq, at, at + nr, self->hashes);
	}
}

TEST_F(segment, grows_and_keeps_every_token)
{
	struct kv_seq *seq = open_ok(self, 100, 1000);

	EXPECT_EQ(0, self->matched);
	EXPECT_EQ(KV_MISS_NEVER, self->miss);
	grow_ok(self, seq, 1000, 32);
	EXPECT_EQ(1000, kv_seq_len(seq));
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
	EXPECT_TRUE(kit_check(self->cache));
}

TEST_HARNESS_MAIN
