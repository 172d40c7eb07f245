/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments one behaviour at a time: growth, prefix matches of every length
 * around a tile, forks, truncation, windows, admission, eviction, the dense
 * layout, and every errno. What random sequences of calls do is in
 * test_segment_model.c.
 */
#include "tests/harness.h"

#include "engine/kv/kvpool_private.h"
#include "engine/kv/segment.h"
#include "tests/engine/kv_kit.h"
#include "tests/engine/kv_pool_kit.h"

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
	uint32_t granule; /* of a cuda pool; 0: memfd */
	bool is_growing; /* its handles are of several pages */
};

FIXTURE_VARIANT_ADD(segment, one_stream){ .limit_tiles = 512 };
FIXTURE_VARIANT_ADD(segment, two_streams){ .window = 64, .limit_tiles = 512 };
FIXTURE_VARIANT_ADD(segment, cuda){ .limit_tiles = 512, .granule = 4096 };
FIXTURE_VARIANT_ADD(segment, cuda_two_streams){ .window = 64,
						.limit_tiles = 512,
						.granule = 4096 };
/* Pages of several tiles, and handles of several pages. */
FIXTURE_VARIANT_ADD(segment, cuda_wide){ .window = 64,
					 .limit_tiles = 2048,
					 .granule = 16384 };
FIXTURE_VARIANT_ADD(segment, cuda_growing){
	.window = 64, .limit_tiles = 2048, .granule = 8192, .is_growing = true
};

/* Where the number of tiles in memory is what is tested, a page must be one tile. */
#define SKIP_WIDE_PAGES()                                                     \
	do {                                                                  \
		if (variant->granule > TILE_BYTES)                            \
			SKIP(return, "pages of several tiles are counted by " \
				     "other tests");                          \
	} while (0)

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
		.is_k_by_token = kit_is_k_by_token,
	};
}

FIXTURE_SETUP(segment)
{
	self->pool = kit_pool(variant->granule, variant->is_growing,
			      (uint64_t)variant->limit_tiles * TILE_BYTES,
			      64 * TILE_BYTES);
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
	kit_pool_put(self->pool);
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

static struct kv_cache_stat cache_stat(struct fixture_segment *self)
{
	struct kv_cache_stat stat;

	memset(&stat, 0xcc, sizeof(stat));
	kv_cache_stat(self->cache, &stat);
	return stat;
}

/* Tiles in use by stream 0; with two streams, tiles of both. */
static uint64_t used_tiles(struct fixture_segment *self)
{
	return cache_stat(self).used_bytes / TILE_BYTES;
}

static uint32_t tiles(uint32_t tokens)
{
	return (tokens + T - 1) / T;
}

/* ---- layout ---- */

TEST(tile_tokens_follow_the_widest_stream)
{
	struct kv_stream_desc smol = { 30, 3, 64, 0 },
			      llama = { 32, 8, 128, 0 };
	struct kv_stream_desc big = { 80, 8, 128, 0 },
			      both[2] = { smol, llama };

	EXPECT_EQ(64, kv_tile_tokens(&smol, 1, 2));
	EXPECT_EQ(32, kv_tile_tokens(&llama, 1, 2));
	EXPECT_EQ(16, kv_tile_tokens(&big, 1, 2));
	EXPECT_EQ(16, kv_tile_tokens(&llama, 1, 4));
	EXPECT_EQ(32, kv_tile_tokens(both, 2, 2));
}

TEST(tile_layout_is_what_the_design_says)
{
	struct kv_stream_desc smol = { 30, 3, 64, 0 }, odd = { 1, 1, 8, 0 };
	struct attn_layout l;

	kv_layout_init(&l, KV_LAYOUT_TILE, &smol, 64, ATTN_F16);
	EXPECT_EQ(64 * 64 * 2, l.head_bytes);
	EXPECT_EQ(3 * 64 * 64 * 2, l.v_offset_bytes);
	EXPECT_EQ(6 * 64 * 64 * 2, l.layer_bytes);
	EXPECT_EQ(64 * 23040, l.stride_bytes);
	EXPECT_EQ(2 * l.layer_bytes + 64 * 64 * 2, attn_run_offset(&l, 2, 1));
	kv_layout_init(&l, KV_LAYOUT_TILE, &odd, 16, ATTN_F32);
	EXPECT_EQ(4096, l.stride_bytes);
	EXPECT_EQ(4, l.elem_bytes);
}

TEST(caches_refuse_bad_options)
{
	struct kvpool_options pool_options = { .size = sizeof(pool_options),
					       .limit_bytes = 1 << 20 };
	struct kvpool *pool;
	struct kv_cache *cache = NULL;

	ASSERT_EQ(0, kvpool_open(&pool_options, &pool));
	struct kv_cache_options good = make_options(pool, 0), bad = good;

	EXPECT_EQ(-EINVAL, kv_cache_create(NULL, &cache));
	EXPECT_EQ(-EINVAL, kv_cache_create(&good, NULL));
	bad.pool = NULL;
	EXPECT_EQ(-EINVAL, kv_cache_create(&bad, &cache));
	bad = good;
	bad.nr_streams = 0;
	EXPECT_EQ(-EINVAL, kv_cache_create(&bad, &cache));
	bad.nr_streams = KV_MAX_STREAMS + 1;
	EXPECT_EQ(-EINVAL, kv_cache_create(&bad, &cache));
	bad = good;
	bad.streams[0].head_dim = 0;
	EXPECT_EQ(-EINVAL, kv_cache_create(&bad, &cache));
	bad = good;
	bad.max_tokens = 0;
	EXPECT_EQ(-EINVAL, kv_cache_create(&bad, &cache));
	bad = good;
	bad.tile_tokens = 24;
	EXPECT_EQ(-EINVAL, kv_cache_create(&bad, &cache));
	kv_cache_destroy(NULL);
	kvpool_put(pool);
}

/* ---- growth ---- */

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
	kv_seq_close(NULL);
}

/* The bar: what is in use is within one tile of what the tokens need. */
TEST_F(segment, memory_in_use_is_within_a_tile_of_the_tokens)
{
	SKIP_WIDE_PAGES();
	struct kv_seq *seq = open_ok(self, 1, 1000);

	for (uint32_t len = 1; len <= 700; len++) {
		grow_ok(self, seq, len, 1);
		/* One sealed prompt on the way: nothing is held twice. */
		if (len == 100)
			ASSERT_EQ(0, kv_seq_seal(seq));
		kv_seq_prepare(seq);
		uint32_t most = tiles(len);

		/* A window begins and ends inside a tile. */
		if (variant->window)
			most += tiles(len < variant->window ? len :
							      variant->window) +
				1;
		ASSERT_TRUE(used_tiles(self) <= most)
		{
			TH_LOG("%u tokens: %llu tiles", len,
			       (unsigned long long)used_tiles(self));
		}
		ASSERT_TRUE(cache_stat(self).ahead_bytes <=
			    (variant->window ? 2 : 1) * TILE_BYTES);
	}
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
}

TEST_F(segment, prepare_makes_the_next_tile_ahead)
{
	SKIP_WIDE_PAGES();
	struct kv_seq *seq = open_ok(self, 1, 64);
	struct kvpool_stat before, after;

	grow_ok(self, seq, 7, 7);
	kv_seq_prepare(seq);
	EXPECT_EQ(0, cache_stat(self).ahead_bytes);
	grow_ok(self, seq, T, 1);
	kv_seq_prepare(seq);
	EXPECT_EQ((variant->window ? 2 : 1) * TILE_BYTES,
		  cache_stat(self).ahead_bytes);
	kvpool_stat(self->pool, &before);
	grow_ok(self, seq, T + 1, 1);
	kvpool_stat(self->pool, &after);
	EXPECT_EQ(before.commits, after.commits);
	EXPECT_EQ(0, cache_stat(self).ahead_bytes);
	/* Not beyond the reservation. */
	grow_ok(self, seq, 64, 16);
	kv_seq_prepare(seq);
	EXPECT_EQ(0, cache_stat(self).ahead_bytes);
	kv_seq_close(seq);
}

TEST_F(segment, lengths_are_bounded)
{
	struct kv_seq *seq = NULL;

	EXPECT_EQ(-E2BIG,
		  kv_seq_open(self->cache, self->tokens, MAX_TOKENS + 1, 0,
			      &salt_a, 0, &seq, &self->matched, &self->miss));
	EXPECT_EQ(-E2BIG,
		  kv_seq_open(self->cache, self->tokens, 1, MAX_TOKENS + 1,
			      &salt_a, 0, &seq, &self->matched, &self->miss));
	EXPECT_TRUE(seq == NULL);
	seq = open_ok(self, 10, 0);
	EXPECT_EQ(-E2BIG, kv_seq_append(seq, self->tokens, MAX_TOKENS + 1));
	grow_ok(self, seq, 10, 10);
	EXPECT_EQ(-E2BIG, kv_seq_append(seq, self->tokens, MAX_TOKENS - 9));
	EXPECT_EQ(0, kv_seq_append(seq, self->tokens, 0));
	EXPECT_EQ(10, kv_seq_len(seq));
	EXPECT_EQ(-E2BIG,
		  kv_seq_fork(seq, MAX_TOKENS + 1, &(struct kv_seq *){ NULL }));
	EXPECT_EQ(-EINVAL, kv_seq_truncate(seq, 11));
	kv_seq_close(seq);
}

/* ---- prefixes ---- */

TEST_F(segment, without_a_salt_nothing_is_found_and_nothing_left)
{
	struct kv_seq *seq = open_ok(self, 3 * T, 4 * T);

	grow_ok(self, seq, 3 * T, T);
	kv_seq_close(seq);
	uint64_t cached = cache_stat(self).nr_cached_segments;

	self->matched = UINT32_MAX;
	ASSERT_EQ(0, kv_seq_open(self->cache, self->tokens, 3 * T, 4 * T, NULL,
				 1000, &seq, &self->matched, &self->miss));
	EXPECT_EQ(0, self->matched);
	EXPECT_EQ(KV_MISS_OFF, self->miss);
	grow_ok(self, seq, 3 * T, T);
	EXPECT_EQ(0, kv_seq_seal(seq));
	kv_seq_close(seq);
	EXPECT_EQ(cached, cache_stat(self).nr_cached_segments);
	EXPECT_EQ(0, cache_stat(self).used_bytes);
}

TEST_F(segment, finds_prefixes_of_every_length_around_tiles)
{
	static const uint32_t lens[] = { 1,  15,  16,  17,  31, 32,
					 33, 100, 127, 128, 129 };

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct kv_seq *seq = open_ok(self, lens[i], 0);

		grow_ok(self, seq, lens[i], 32);
		kv_seq_close(seq);
		for (uint32_t nr = 1; nr <= lens[i] + 2; nr++) {
			seq = open_ok(self, nr, 0);
			uint32_t most = nr - 1 < lens[i] ? nr - 1 : lens[i];

			if (variant->window) {
				/* The cut's window may be gone: it says so. */
				EXPECT_TRUE(self->matched <= most);
				EXPECT_TRUE(self->matched == most ||
					    self->miss == KV_MISS_WINDOW);
				EXPECT_TRUE(nr - 1 < lens[i] ||
					    self->matched == most);
			} else {
				EXPECT_EQ(most, self->matched);
				EXPECT_EQ(nr - 1 <= lens[i] ? KV_MISS_NONE :
							      KV_MISS_NEVER,
					  self->miss);
			}
			EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
			kv_seq_close(seq);
		}
		EXPECT_TRUE(kit_check(self->cache));
	}
}

TEST_F(segment, other_salts_and_other_roots_see_nothing)
{
	struct kv_seq *seq = open_ok(self, 50, 0);

	grow_ok(self, seq, 50, 50);
	kv_seq_close(seq);
	ASSERT_EQ(0, kv_seq_open(self->cache, self->tokens, 50, 0, &salt_b, 0,
				 &seq, &self->matched, &self->miss));
	EXPECT_EQ(0, self->matched);
	EXPECT_EQ(KV_MISS_NEVER, self->miss);
	kv_seq_close(seq);
	seq = open_ok(self, 50, 0);
	EXPECT_EQ(49, self->matched);
	kv_seq_close(seq);
}

TEST_F(segment, a_sealed_prompt_is_found_while_its_writer_goes_on)
{
	struct kv_seq *seq = open_ok(self, 100, 300), *other;

	grow_ok(self, seq, 100, 32);
	ASSERT_EQ(0, kv_seq_seal(seq));
	ASSERT_EQ(0, kv_seq_seal(seq)); /* nothing new: nothing happens */
	other = open_ok(self, 100, 200);
	EXPECT_EQ(99, self->matched);
	/* The first writes on, the second writes something else at the same place. */
	grow_ok(self, seq, 150, 7);
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	EXPECT_TRUE(kit_verify(self->cache, other, self->hashes));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
	EXPECT_TRUE(kit_verify(self->cache, other, self->hashes));
	kv_seq_close(other);
	struct kv_cache_stat stat = cache_stat(self);

	EXPECT_EQ(200, stat.query_tokens);
	EXPECT_EQ(99, stat.hit_tokens);
	EXPECT_EQ(1, stat.misses[KV_MISS_NONE]);
	EXPECT_EQ(1, stat.misses[KV_MISS_NEVER]);
}

TEST_F(segment, equal_content_is_kept_once)
{
	struct kv_seq *a = open_ok(self, 160, 160),
		      *b = open_ok(self, 160, 160);

	grow_ok(self, a, 160, 32);
	grow_ok(self, b, 160, 32);
	kv_seq_close(a);
	uint64_t cached = cache_stat(self).cached_bytes;

	kv_seq_close(b);
	EXPECT_EQ(cached, cache_stat(self).cached_bytes);
	EXPECT_EQ(1, cache_stat(self).nr_segments);
	EXPECT_TRUE(kit_check(self->cache));
}

TEST_F(segment, long_chains_are_compacted)
{
	struct kv_seq *seq = open_ok(self, 1, 1200);
	struct attn_piece pieces[KV_MAX_CHAIN + 1];

	for (uint32_t len = 20; len <= 1000; len += 20) {
		grow_ok(self, seq, len, 20);
		ASSERT_EQ(0, kv_seq_seal(seq));
		int nr = kv_seq_pieces(seq, 0, 0, len, pieces);

		ASSERT_TRUE(nr > 0 && nr <= KV_MAX_CHAIN + 1);
		ASSERT_TRUE(kit_verify(self->cache, seq, self->hashes));
	}
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
	seq = open_ok(self, 1001, 0);
	EXPECT_EQ(1000, self->matched);
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
}

/* ---- forks and truncation ---- */

TEST_F(segment, a_fork_takes_at_most_one_tile_of_new_memory)
{
	SKIP_WIDE_PAGES();
	for (uint32_t len = 1; len < 70; len++) {
		struct kv_seq *seq = open_ok(self, 1, 100), *child;

		grow_ok(self, seq, len, 32);
		uint64_t before = used_tiles(self);

		ASSERT_EQ(0, kv_seq_fork(seq, 100, &child));
		EXPECT_TRUE(used_tiles(self) <=
			    before + (variant->window ? 2 : 1));
		grow_ok(self, child, len + 20, 3);
		grow_ok(self, seq, len + 3, 1);
		EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
		EXPECT_TRUE(kit_verify(self->cache, child, self->hashes));
		EXPECT_TRUE(kit_check(self->cache));
		kv_seq_close(seq);
		EXPECT_TRUE(kit_verify(self->cache, child, self->hashes));
		kv_seq_close(child);
	}
}

TEST_F(segment, truncation_to_before_the_last_append_always_works)
{
	struct kv_seq *seq = open_ok(self, 1, 1000);

	for (uint32_t len = 0; len < 600; len += 20) {
		grow_ok(self, seq, len + 20, 20);
		/* A draft of 20 tokens is refused down to each length. */
		for (uint32_t keep = 20; keep-- > 0;) {
			ASSERT_EQ(0, kv_seq_truncate(seq, len + keep));
			ASSERT_TRUE(kit_verify(self->cache, seq, self->hashes));
		}
		grow_ok(self, seq, len + 20, 20);
	}
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
}

/* What the prefix cache finds of @nr tokens and one more, once @seq is closed. */
static uint32_t found_after(struct fixture_segment *self, struct kv_seq *seq,
			    uint32_t nr)
{
	struct kv_seq *next;

	kv_seq_close(seq);
	next = open_ok(self, nr + 1, nr + 1);
	kv_seq_close(next);
	return self->matched;
}

TEST_F(segment, tokens_without_ids_get_them_later)
{
	for (uint32_t len = T - 2; len < 2 * T + 2; len++) {
		struct kv_seq *seq = open_ok(self, len, len + 2);

		grow_ok(self, seq, len, 32);
		/* One behind is appended before the first has its id. */
		for (uint32_t i = 0; i < 2; i++) {
			ASSERT_EQ(0, kv_seq_append(seq, NULL, 1));
			EXPECT_EQ(len + i + 1, kv_seq_len(seq));
			if (i)
				kv_seq_name(seq, self->tokens[len]);
		}
		kit_fill(self->cache, seq, len, len + 2, self->hashes);
		kv_seq_name(seq, self->tokens[len + 1]);
		EXPECT_EQ(len + 2, found_after(self, seq, len + 2));
	}
}

TEST_F(segment, a_token_without_an_id_is_truncated)
{
	for (uint32_t len = T - 2; len < 2 * T + 2; len++) {
		struct kv_seq *seq = open_ok(self, len, len + 2);

		grow_ok(self, seq, len, 32);
		ASSERT_EQ(0, kv_seq_append(seq, NULL, 1));
		ASSERT_EQ(0, kv_seq_truncate(seq, len));
		EXPECT_EQ(len, kv_seq_len(seq));
		/* Ids that come now are those of other tokens. */
		ASSERT_EQ(0, kv_seq_append(seq, NULL, 1));
		kit_fill(self->cache, seq, len, len + 1, self->hashes);
		kv_seq_name(seq, self->tokens[len]);
		EXPECT_EQ(len + 1, found_after(self, seq, len + 1));
	}
}

TEST_F(segment, what_is_not_trusted_is_not_found)
{
	struct kv_seq *seq = open_ok(self, 3 * T, 5 * T);

	grow_ok(self, seq, 3 * T, 32);
	ASSERT_EQ(0, kv_seq_seal(seq));
	grow_ok(self, seq, 5 * T, 32);
	kv_seq_distrust(seq);
	EXPECT_EQ(3 * T, found_after(self, seq, 5 * T));
}

TEST_F(segment, truncation_reaches_into_the_chain)
{
	for (uint32_t len = 0; len <= 60; len++) {
		struct kv_seq *seq = open_ok(self, 1, 100);

		grow_ok(self, seq, 30, 30);
		ASSERT_EQ(0, kv_seq_seal(seq));
		grow_ok(self, seq, 50, 20);
		ASSERT_EQ(0, kv_seq_seal(seq));
		grow_ok(self, seq, 60, 10);
		ASSERT_EQ(0, kv_seq_truncate(seq, len));
		EXPECT_EQ(len, kv_seq_len(seq));
		EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
		grow_ok(self, seq, 90, 11);
		EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
		EXPECT_TRUE(kit_check(self->cache));
		kv_seq_close(seq);
	}
}

TEST_F(segment, truncation_behind_the_window_is_stale)
{
	struct kv_seq *seq = open_ok(self, 1, 1000);
	struct attn_piece pieces[KV_MAX_CHAIN + 1];

	if (!variant->window)
		SKIP(goto out, "one stream without a window");
	grow_ok(self, seq, 400, 20);
	EXPECT_EQ(-ESTALE, kv_seq_truncate(seq, 300));
	EXPECT_EQ(400, kv_seq_len(seq));
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	EXPECT_EQ(-ESTALE, kv_seq_pieces(seq, 1, 100, 200, pieces));
	EXPECT_EQ(1, kv_seq_pieces(seq, 0, 100, 200, pieces));
	EXPECT_EQ(-EINVAL, kv_seq_pieces(seq, 0, 100, 401, pieces));
	/* To nothing at all: there is no window to miss. */
	EXPECT_EQ(0, kv_seq_truncate(seq, 0));
	grow_ok(self, seq, 100, 20);
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	EXPECT_TRUE(kit_check(self->cache));
out:
	kv_seq_close(seq);
}

TEST_F(segment, a_cut_whose_window_is_gone_is_a_miss_that_says_so)
{
	struct kv_seq *seq = open_ok(self, 1, 500);

	if (!variant->window)
		SKIP(goto out, "one stream without a window");
	grow_ok(self, seq, 500, 20);
	kv_seq_close(seq);
	seq = open_ok(self, 300, 0);
	EXPECT_EQ(0, self->matched);
	EXPECT_EQ(KV_MISS_WINDOW, self->miss);
	kv_seq_close(seq);
	seq = open_ok(self, 501, 0);
	EXPECT_EQ(500, self->matched);
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
out:
	kv_seq_close(seq);
}

/* ---- admission and eviction ---- */

static int try_open(struct fixture_segment *self, int32_t *tokens, uint32_t nr,
		    uint32_t reserve, struct kv_seq **out_seq)
{
	return kv_seq_open(self->cache, tokens, nr, reserve, &salt_a, 0,
			   out_seq, &self->matched, &self->miss);
}

static int page_errno; /* what making pages fails with; 0: it works */

static int broken_fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (mode || !page_errno)
		return fallocate(fd, mode, offset, len);
	errno = page_errno;
	return -1;
}

static cuda_status broken_driver(const char *name)
{
	if (!page_errno || strcmp(name, "cuMemCreate"))
		return CUDA_OK;
	return page_errno == ENOSPC ? CUDA_OUT_OF_MEMORY : 999;
}

/* Appends to a sequence that matches nothing while pages fail. Return: evictions. */
static uint64_t evictions_after(struct fixture_segment *self, int error)
{
	int32_t others[320];
	struct kv_seq *seq;

	for (int i = 0; i < 320; i++)
		others[i] = 5000 + i;
	EXPECT_EQ(0, try_open(self, others, 1, 320, &seq));
	page_errno = error;
	while (kv_seq_len(seq) < 320 &&
	       !kv_seq_append(seq, others + kv_seq_len(seq), 32))
		;
	EXPECT_GT(320, kv_seq_len(seq));
	page_errno = 0;
	kv_seq_close(seq);
	return cache_stat(self).evictions;
}

TEST_F(segment, a_broken_system_evicts_nothing)
{
	struct kv_seq *seq = open_ok(self, 100, 0);

	kvpool_sys.fallocate = broken_fallocate;
	standin.fail = broken_driver;
	grow_ok(self, seq, 100, 20);
	kv_seq_close(seq);
	EXPECT_EQ(0, evictions_after(self, EIO));
	seq = open_ok(self, 100, 0);
	EXPECT_EQ(99, self->matched);
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	kv_seq_close(seq);
	/* A shortage is another matter. */
	EXPECT_LT(0, evictions_after(self, ENOSPC));
	EXPECT_TRUE(kit_check(self->cache));
	kvpool_sys.fallocate = fallocate;
}

TEST_F(segment, what_is_promised_is_kept)
{
	SKIP_WIDE_PAGES();
	struct kv_seq *a, *b, *c = NULL;
	int32_t other[10] = { -1, -2 };
	/* Half of the pool each, the windowed stream's share with it. */
	uint32_t window_tiles =
		variant->window ? (variant->window - 1 + 32 + T - 1) / T + 1 :
				  0;
	uint32_t half = (50 - window_tiles) * T;

	kvpool_set_limit(self->pool, 100 * TILE_BYTES);
	EXPECT_EQ(-ENOSPC, try_open(self, other, 10, 101 * T, &c));
	ASSERT_EQ(0, try_open(self, self->tokens, 10, half, &a));
	ASSERT_EQ(0, try_open(self, other, 10, half, &b));
	EXPECT_EQ(-EAGAIN, try_open(self, other, 10, 1, &c));
	EXPECT_EQ(-EAGAIN, kv_seq_fork(a, half, &c));
	EXPECT_EQ(-ENOSPC, kv_seq_fork(a, 101 * T, &c));
	grow_ok(self, a, half, 32);
	EXPECT_TRUE(kit_verify(self->cache, a, self->hashes));
	/* Beyond its reservation it would take what the other one was promised. */
	EXPECT_EQ(-ENOSPC, kv_seq_append(a, self->tokens, 1));
	EXPECT_EQ(half, kv_seq_len(a));
	for (uint32_t i = 0; i < half; i += 10)
		ASSERT_EQ(0, kv_seq_append(b, other,
					   half - i < 10 ? half - i : 10));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(b);
	ASSERT_EQ(0, kv_seq_append(a, self->tokens + half, 1));
	kv_seq_close(a);
	ASSERT_EQ(0, try_open(self, other, 10, half, &c));
	kv_seq_close(c);
}

TEST_F(segment, the_least_recently_used_goes_first)
{
	SKIP_WIDE_PAGES();
	struct kv_seq *seq;
	int32_t texts[3][64];

	kvpool_set_limit(self->pool, (variant->window ? 20 : 10) * TILE_BYTES);
	for (int i = 0; i < 3; i++) {
		for (int t = 0; t < 64; t++)
			texts[i][t] = i * 1000 + t;
	}
	/* Four tiles each: two fit beside a third. The first is used again. */
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, try_open(self, texts[i], 64, 64, &seq));
		ASSERT_EQ(0, kv_seq_append(seq, texts[i], 32));
		ASSERT_EQ(0, kv_seq_append(seq, texts[i] + 32, 32));
		kv_seq_close(seq);
	}
	ASSERT_EQ(0, try_open(self, texts[0], 64, 64, &seq));
	EXPECT_EQ(63, self->matched);
	kv_seq_close(seq);
	for (int t = 0; t < 5; t++) {
		ASSERT_EQ(0, try_open(self, texts[2], 64, 64, &seq));
		if (!self->matched)
			ASSERT_EQ(0, kv_seq_append(seq, texts[2], 32));
		if (self->matched < 32)
			ASSERT_EQ(0, kv_seq_append(seq, texts[2] + 32, 32));
		kv_seq_close(seq);
	}
	ASSERT_EQ(0, try_open(self, texts[1], 64, 64, &seq));
	EXPECT_EQ(0, self->matched);
	EXPECT_EQ(KV_MISS_EVICTED, self->miss);
	kv_seq_close(seq);
	EXPECT_TRUE(cache_stat(self).evictions > 0);
	EXPECT_TRUE(kit_check(self->cache));
}

TEST_F(segment, memory_purged_by_the_pool_is_a_miss)
{
	struct kv_seq *seq = open_ok(self, 100, 0);
	struct kvpool_buf *other;
	struct kvpool_stat stat;

	grow_ok(self, seq, 100, 32);
	kv_seq_close(seq);
	/* Another user of the pool takes all of it. */
	ASSERT_EQ(0, kvpool_buf_create(self->pool,
				       variant->limit_tiles * TILE_BYTES, 0,
				       &other));
	ASSERT_EQ(0, kvpool_buf_commit(other, 0,
				       variant->limit_tiles * TILE_BYTES));
	kvpool_stat(self->pool, &stat);
	EXPECT_TRUE(stat.purges > 0);
	EXPECT_EQ(-EAGAIN, try_open(self, self->tokens, 100, 0, &seq));
	kvpool_buf_put(other);
	seq = open_ok(self, 100, 0);
	EXPECT_EQ(0, self->matched);
	EXPECT_EQ(KV_MISS_EVICTED, self->miss);
	grow_ok(self, seq, 100, 32);
	EXPECT_TRUE(kit_verify(self->cache, seq, self->hashes));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
}

TEST_F(segment, without_a_prefix_cache_nothing_stays)
{
	struct kv_cache_options options =
		make_options(self->pool, variant->window);
	struct kv_seq *child;

	kv_cache_destroy(self->cache);
	options.prefix_cache = false;
	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	struct kv_seq *seq = open_ok(self, 100, 200);

	EXPECT_EQ(KV_MISS_OFF, self->miss);
	grow_ok(self, seq, 100, 32);
	EXPECT_EQ(0, kv_seq_seal(seq));
	ASSERT_EQ(0, kv_seq_fork(seq, 200, &child));
	EXPECT_TRUE(kit_verify(self->cache, child, self->hashes));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
	kv_seq_close(child);
	EXPECT_EQ(0, cache_stat(self).cached_bytes);
	EXPECT_EQ(0, cache_stat(self).nr_segments);
	seq = open_ok(self, 100, 0);
	EXPECT_EQ(0, self->matched);
	kv_seq_close(seq);
}

TEST_HARNESS_MAIN
