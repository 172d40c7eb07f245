/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes that caches on one pool share: what is published and found, by whom,
 * how much memory and how many look-ups it takes; holes, purges, failures; the
 * end of whoever published. Whole engines are in test_shared_engine.c, random
 * sequences of calls in test_segment_model.c.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

#include "engine/kv/kvpool_private.h"
#include "engine/kv/segment_private.h"
#include "tests/engine/kv_kit.h"

enum { T = 16, MAX_TOKENS = 1024, TILE_BYTES = 4096, WINDOW = 64 };

static const struct kvpool_key salt_a = { { 1 } }, salt_b = { { 2 } };

FIXTURE(shared)
{
	struct kvpool *pool;
	struct kv_cache *writer, *reader;
	int32_t tokens[MAX_TOKENS];
	uint64_t hashes[MAX_TOKENS];
	uint32_t matched;
	enum kv_miss miss;
};

FIXTURE_VARIANT(shared)
{
	uint32_t window; /* of a second stream; 0: one stream */
};

FIXTURE_VARIANT_ADD(shared, one_stream){ 0 };
FIXTURE_VARIANT_ADD(shared, two_streams){ WINDOW };

static struct kv_cache_options make_options(struct kvpool *pool,
					    uint32_t window)
{
	return (struct kv_cache_options){
		.pool = pool,
		.elem = ATTN_F16,
		.nr_streams = window ? 2 : 1,
		/* The tile of the second stream does not fill its page. */
		.streams = { { .nr_layers = 2, .nr_kv_heads = 2, .head_dim = 8 },
			     { .nr_layers = 3,
			       .nr_kv_heads = 1,
			       .head_dim = 8,
			       .window_tokens = window } },
		.max_tokens = MAX_TOKENS,
		.max_append_tokens = 64,
		.tile_tokens = T,
		.prefix_cache = true,
		.share_prefixes = true,
	};
}

static struct kv_cache *create_ok(struct kvpool *pool, uint32_t window)
{
	struct kv_cache_options options = make_options(pool, window);
	struct kv_cache *cache = NULL;

	ASSERT_EQ(0, kv_cache_create(&options, &cache));
	return cache;
}

FIXTURE_SETUP(shared)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_MEMFD,
		.limit_bytes = 256 * TILE_BYTES,
		.spare_limit_bytes = 32 * TILE_BYTES,
	};

	ASSERT_EQ(0, kvpool_open(&options, &self->pool));
	self->writer = create_ok(self->pool, variant->window);
	self->reader = create_ok(self->pool, variant->window);
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		self->tokens[i] = (int32_t)(i * 7 + 3);
	kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
}

FIXTURE_TEARDOWN(shared)
{
	struct kvpool_stat stat;

	(void)variant;
	if (self->writer)
		EXPECT_TRUE(kit_check(self->writer));
	EXPECT_TRUE(kit_check(self->reader));
	kv_cache_destroy(self->writer);
	kv_cache_destroy(self->reader);
	/* Nothing but publications is left, and all of it may be taken. */
	kvpool_stat(self->pool, &stat);
	EXPECT_EQ(stat.resident_bytes, stat.shared_bytes);
	EXPECT_EQ(stat.resident_bytes, stat.volatile_bytes);
	kvpool_put(self->pool);
}

/* ---- what tests do over and over ---- */

static struct kv_seq *open_salted(struct fixture_shared *self,
				  struct kv_cache *cache, uint32_t nr,
				  const struct kvpool_key *salt)
{
	struct kv_seq *seq = NULL;

	self->matched = UINT32_MAX;
	ASSERT_EQ(0, kv_seq_open(cache, self->tokens, nr, nr + 2 * T, salt,
				 1000, &seq, &self->matched, &self->miss));
	ASSERT_TRUE(kit_verify(cache, seq, self->hashes));
	return seq;
}

static struct kv_seq *open_ok(struct fixture_shared *self,
			      struct kv_cache *cache, uint32_t nr)
{
	return open_salted(self, cache, nr, &salt_a);
}

/* Compute up to @len tokens. */
static void grow_ok(struct fixture_shared *self, struct kv_cache *cache,
		    struct kv_seq *seq, uint32_t len)
{
	for (uint32_t at = kv_seq_len(seq); at < len; at = kv_seq_len(seq)) {
		uint32_t nr = len - at < 50 ? len - at : 50;

		ASSERT_EQ(0, kv_seq_append(seq, self->tokens + at, nr));
		kit_fill(cache, seq, at, at + nr, self->hashes);
	}
	ASSERT_TRUE(kit_verify(cache, seq, self->hashes));
}

/* A request of @nr tokens from its beginning to its end. Return: tokens it found. */
static uint32_t request(struct fixture_shared *self, struct kv_cache *cache,
			uint32_t nr)
{
	struct kv_seq *seq = open_ok(self, cache, nr);
	uint32_t matched = self->matched;

	grow_ok(self, cache, seq, nr);
	kv_seq_close(seq);
	ASSERT_TRUE(kit_check(cache));
	return matched;
}

static uint32_t publish_request(struct fixture_shared *self,
				struct kv_cache *cache, uint32_t nr)
{
	uint32_t matched = request(self, cache, nr);

	kv_cache_publish(cache);
	ASSERT_TRUE(kit_check(cache));
	return matched;
}

static struct kv_cache_stat cache_stat(struct kv_cache *cache)
{
	struct kv_cache_stat stat;

	memset(&stat, 0xcc, sizeof(stat));
	kv_cache_stat(cache, &stat);
	return stat;
}

static struct kvpool_stat pool_stat(struct fixture_shared *self)
{
	struct kvpool_stat stat;

	memset(&stat, 0xcc, sizeof(stat));
	EXPECT_EQ(0, kvpool_stat(self->pool, &stat));
	return stat;
}

/* ---- finding ---- */

TEST_F(shared, a_published_prefix_is_found_and_lies_in_memory_once)
{
	uint64_t before;

	EXPECT_EQ(0, publish_request(self, self->writer, 60));
	before = pool_stat(self).resident_bytes;
	struct kv_seq *seq = open_ok(self, self->reader, 60);

	/* Whole tiles; less than one is left to compute. */
	EXPECT_EQ(48, self->matched);
	EXPECT_EQ(before, pool_stat(self).resident_bytes);
	grow_ok(self, self->reader, seq, 60);
	EXPECT_EQ(before + (variant->window ? 2 : 1) * TILE_BYTES,
		  pool_stat(self).resident_bytes);
	EXPECT_EQ(48, cache_stat(self->reader).shared_hit_tokens);
	EXPECT_EQ(48, cache_stat(self->reader).hit_tokens);
	EXPECT_EQ(1, cache_stat(self->reader).nr_imported);
	EXPECT_EQ(1, cache_stat(self->writer).nr_published);
	kv_seq_close(seq);
	/* From now on it is in the reader's own index. */
	EXPECT_EQ(59, request(self, self->reader, 60));
	EXPECT_EQ(48, cache_stat(self->reader).shared_hit_tokens);
	EXPECT_EQ(1, cache_stat(self->reader).nr_imported);
}

TEST_F(shared, a_prompt_is_found_while_its_answer_is_being_computed)
{
	struct kv_seq *writer = open_ok(self, self->writer, 50);

	grow_ok(self, self->writer, writer, 50);
	ASSERT_EQ(0, kv_seq_seal(writer));
	kv_cache_publish(self->writer);
	ASSERT_TRUE(kit_check(self->writer));
	struct kv_seq *reader = open_ok(self, self->reader, 50);

	EXPECT_EQ(48, self->matched);
	grow_ok(self, self->writer, writer, 70);
	grow_ok(self, self->reader, reader, 70);
	kv_seq_close(writer);
	EXPECT_TRUE(kit_verify(self->reader, reader, self->hashes));
	kv_seq_close(reader);
}

TEST_F(shared, nothing_is_published_before_the_call)
{
	EXPECT_EQ(0, request(self, self->writer, 60));
	EXPECT_EQ(0, pool_stat(self).nr_keys);
	EXPECT_EQ(0, request(self, self->reader, 60));
	EXPECT_EQ(KV_MISS_NEVER, self->miss);
}

TEST_F(shared, any_part_of_a_prefix_is_found)
{
	/* Within the window every border serves. */
	publish_request(self, self->writer, WINDOW);
	for (uint32_t nr = 1; nr <= WINDOW + 2 * T; nr += 5) {
		struct kv_cache *cache = create_ok(self->pool, variant->window);
		uint32_t most = nr - 1 < WINDOW ? nr - 1 : WINDOW;

		EXPECT_EQ(most / T * T, request(self, cache, nr))
		{
			TH_LOG("a prompt of %u tokens", nr);
		}
		kv_cache_destroy(cache);
	}
}

TEST_F(shared, where_the_texts_part_the_hit_ends)
{
	publish_request(self, self->writer, WINDOW);
	self->tokens[40] = 1;
	kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
	EXPECT_EQ(32, request(self, self->reader, WINDOW));
	EXPECT_EQ(KV_MISS_NEVER, self->miss);
	self->tokens[0] = 1;
	kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
	EXPECT_EQ(0, request(self, self->reader, WINDOW));
}

TEST_F(shared, a_chain_of_segments_is_found_as_a_whole)
{
	struct kv_seq *seq = open_ok(self, self->writer, 40);

	grow_ok(self, self->writer, seq, 40);
	ASSERT_EQ(0, kv_seq_seal(seq));
	grow_ok(self, self->writer, seq, 100);
	ASSERT_EQ(0, kv_seq_seal(seq));
	grow_ok(self, self->writer, seq, 200);
	kv_seq_close(seq);
	kv_cache_publish(self->writer);
	EXPECT_EQ(3, cache_stat(self->writer).nr_published);
	EXPECT_EQ(192, request(self, self->reader, 201));
	EXPECT_EQ(3, cache_stat(self->reader).nr_imported);
}

/* Of a long chain, the turns of a talk, nothing is lost by being compacted. */
TEST_F(shared, a_long_chain_is_found_as_well)
{
	for (uint32_t nr = 20; nr <= 400; nr += 20)
		publish_request(self, self->writer, nr);
	EXPECT_EQ(400, request(self, self->reader, 405));
}

TEST_F(shared, what_one_lacks_is_taken_from_the_other)
{
	/* The reader has a beginning of its own, which ends within the writer's segment. */
	EXPECT_EQ(0, request(self, self->reader, 40));
	EXPECT_EQ(0, publish_request(self, self->writer, 60));
	struct kv_seq *seq = open_ok(self, self->reader, 62);

	EXPECT_EQ(48, self->matched);
	grow_ok(self, self->reader, seq, 62);
	kv_seq_close(seq);
	/* And the other way round: the writer goes on behind what the reader added. */
	kv_cache_publish(self->reader);
	EXPECT_EQ(60, request(self, self->writer, 62));
	EXPECT_EQ(48, publish_request(self, self->reader, 49));
}

TEST_F(shared, two_that_computed_the_same_publish_it_once)
{
	EXPECT_EQ(0, request(self, self->writer, 60));
	EXPECT_EQ(0, request(self, self->reader, 60));
	kv_cache_publish(self->writer);
	uint64_t nr_keys = pool_stat(self).nr_keys;

	kv_cache_publish(self->reader);
	EXPECT_EQ(1, cache_stat(self->writer).nr_published);
	EXPECT_EQ(0, cache_stat(self->reader).nr_published);
	EXPECT_EQ(nr_keys, pool_stat(self).nr_keys);
}

TEST_F(shared, a_cold_prompt_costs_one_look_up_and_a_known_one_few)
{
	uint64_t before = cache_stat(self->reader).nr_lookups;

	EXPECT_EQ(0, request(self, self->reader, 500));
	EXPECT_EQ(before + 1, cache_stat(self->reader).nr_lookups);
	publish_request(self, self->reader, 500);
	before = cache_stat(self->writer).nr_lookups;
	EXPECT_EQ(496, request(self, self->writer, 500));
	/* The first border and the last, with two streams twice the window's. */
	EXPECT_EQ(before + (variant->window ? 4 : 2),
		  cache_stat(self->writer).nr_lookups);
	/* What ends in the middle is bisected. */
	struct kv_cache *cache = create_ok(self->pool, variant->window);

	self->tokens[17 * T] = 1;
	kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
	before = cache_stat(cache).nr_lookups;
	EXPECT_EQ(variant->window ? 0 : 17 * T, request(self, cache, 500));
	EXPECT_GE(before + 2 + 5 + 2, cache_stat(cache).nr_lookups);
	kv_cache_destroy(cache);
}

/* ---- who sees it ---- */

TEST_F(shared, another_salt_sees_nothing)
{
	struct kv_seq *seq;

	publish_request(self, self->writer, 60);
	seq = open_salted(self, self->reader, 60, &salt_b);
	EXPECT_EQ(0, self->matched);
	kv_seq_close(seq);
	EXPECT_EQ(0, cache_stat(self->reader).nr_imported);
}

TEST_F(shared, another_model_sees_nothing)
{
	struct kv_cache_options options =
		make_options(self->pool, variant->window);
	struct kv_cache *other;

	options.root.bytes[31] = 1;
	ASSERT_EQ(0, kv_cache_create(&options, &other));
	publish_request(self, self->writer, 60);
	EXPECT_EQ(0, request(self, other, 60));
	kv_cache_destroy(other);
}

TEST_F(shared, a_cache_that_does_not_share_neither_publishes_nor_looks)
{
	struct kv_cache_options options =
		make_options(self->pool, variant->window);
	struct kv_cache *other;

	options.share_prefixes = false;
	ASSERT_EQ(0, kv_cache_create(&options, &other));
	publish_request(self, other, 60);
	EXPECT_EQ(0, pool_stat(self).nr_keys);
	publish_request(self, self->writer, 60);
	EXPECT_EQ(59, request(self, other, 60));
	kv_cache_destroy(other);
	EXPECT_EQ(48, request(self, self->reader, 60));
}

TEST_F(shared, a_sequence_that_stays_out_leaves_nothing)
{
	struct kv_seq *seq = open_salted(self, self->writer, 60, NULL), *child;

	grow_ok(self, self->writer, seq, 60);
	ASSERT_EQ(0, kv_seq_fork(seq, 80, &child));
	kv_seq_close(seq);
	kv_seq_close(child);
	kv_cache_publish(self->writer);
	EXPECT_EQ(0, pool_stat(self).nr_keys);
	publish_request(self, self->writer, 60);
	seq = open_salted(self, self->reader, 60, NULL);
	EXPECT_EQ(0, self->matched);
	kv_seq_close(seq);
}

static bool dies_writing(uint8_t *at)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		*(volatile uint8_t *)at = 1;
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

TEST_F(shared, neither_side_can_write_what_is_published)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];
	struct kv_cache *caches[2] = { self->writer, self->reader };

	publish_request(self, self->writer, 60);
	for (int i = 0; i < 2; i++) {
		struct kv_seq *seq = open_ok(self, caches[i], 60);

		ASSERT_TRUE(kv_seq_pieces(seq, 0, 0, 48, pieces) > 0);
		EXPECT_TRUE(dies_writing((uint8_t *)pieces[0].base));
		kv_seq_close(seq);
	}
}

/* Memory of another request is not shown behind the tokens that are. */
TEST_F(shared, unused_rows_and_padding_are_cleared)
{
	struct kv_seq *seq = open_salted(self, self->writer, 100, NULL);
	const struct attn_layout *l = kv_cache_layout(self->writer, 0);
	struct attn_piece pieces[KV_MAX_CHAIN + 1];

	/* Recycled pages, full of something. */
	ASSERT_EQ(0, kv_seq_append(seq, self->tokens, 64));
	for (uint32_t s = 0; s < kv_cache_nr_streams(self->writer); s++) {
		for (uint32_t t = 0; t < 64; t += T)
			memset(kv_seq_tile(seq, s, t), 0xa5, TILE_BYTES);
	}
	kv_seq_close(seq);
	publish_request(self, self->writer, 53);
	seq = open_ok(self, self->writer, 53);
	for (uint32_t s = 0; s < kv_cache_nr_streams(self->writer); s++) {
		uint32_t nr_dirty = 0;

		l = kv_cache_layout(self->writer, s);
		ASSERT_TRUE(kv_seq_pieces(seq, s, 0, 48, pieces) > 0);
		const uint8_t *tiles = pieces[0].base;

		for (uint32_t t = 0; t < 4; t++) {
			for (uint64_t i = l->nr_layers * l->layer_bytes;
			     i < l->stride_bytes; i++)
				nr_dirty += tiles[t * l->stride_bytes + i] != 0;
		}
		for (uint32_t i = 0; i < l->nr_layers * l->nr_kv_heads; i++) {
			const uint16_t *run =
				(const uint16_t *)(tiles + 3 * l->stride_bytes +
						   attn_run_offset(
							   l,
							   i / l->nr_kv_heads,
							   i % l->nr_kv_heads));
			const uint16_t *v = run + l->v_offset_bytes / 2;

			for (uint32_t row = 53 - 48; row < T; row++) {
				for (uint32_t d = 0; d < l->head_dim; d++)
					nr_dirty +=
						run[kit_index(l, false, row,
							      d)] != 0 ||
						v[kit_index(l, true, row, d)] !=
							0;
			}
		}
		EXPECT_EQ(0, nr_dirty);
	}
	kv_seq_close(seq);
}

/* ---- windows ---- */

TEST_F(shared, a_window_serves_where_it_ends)
{
	publish_request(self, self->writer, 300);
	/* Whoever comes with more finds all, with the last window. */
	EXPECT_EQ(288, request(self, self->reader, 300));
	if (!variant->window)
		return;
	/* What parts in the middle has lost the window in front of it. */
	struct kv_cache *cache = create_ok(self->pool, variant->window);

	EXPECT_EQ(0, request(self, cache, 200));
	EXPECT_EQ(KV_MISS_WINDOW, self->miss);
	EXPECT_EQ(0, cache_stat(cache).nr_imported);
	kv_cache_destroy(cache);
}

TEST_F(shared, a_window_over_two_segments_is_put_together)
{
	struct kv_seq *seq = open_ok(self, self->writer, 48);

	grow_ok(self, self->writer, seq, 48);
	ASSERT_EQ(0, kv_seq_seal(seq));
	kv_cache_publish(self->writer);
	grow_ok(self, self->writer, seq, 90);
	kv_seq_close(seq);
	kv_cache_publish(self->writer);
	EXPECT_EQ(80, request(self, self->reader, 90));
	EXPECT_EQ(2, cache_stat(self->reader).nr_imported);
	/* An earlier segment without its window serves those behind it. */
	publish_request(self, self->writer, 240);
	struct kv_cache *cache = create_ok(self->pool, variant->window);

	EXPECT_EQ(240, request(self, cache, 250));
	kv_cache_destroy(cache);
}

/* ---- memory ---- */

TEST_F(shared, the_publisher_may_go_and_the_reader_goes_on)
{
	struct kv_cache *third;

	publish_request(self, self->writer, 60);
	struct kv_seq *seq = open_ok(self, self->reader, 60);

	kv_cache_destroy(self->writer);
	self->writer = NULL;
	EXPECT_TRUE(kit_verify(self->reader, seq, self->hashes));
	grow_ok(self, self->reader, seq, 90);
	third = create_ok(self->pool, variant->window);
	EXPECT_EQ(48, request(self, third, 60));
	kv_cache_destroy(third);
	kv_seq_close(seq);
	kv_cache_destroy(self->reader);
	/* Nobody is left but the pool. */
	self->reader = create_ok(self->pool, variant->window);
	EXPECT_EQ(48, request(self, self->reader, 60));
}

TEST_F(shared, what_was_evicted_here_comes_back_from_the_pool)
{
	publish_request(self, self->writer, 60);
	while (kv_evict_one(self->writer))
		;
	EXPECT_TRUE(TAILQ_EMPTY(&self->writer->segments));
	EXPECT_EQ(48, request(self, self->writer, 60));
	EXPECT_EQ(1, cache_stat(self->writer).nr_imported);
}

/* As the kernel does under pressure: all volatile memory goes. */
static void purge_all(struct fixture_shared *self)
{
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 32 * TILE_BYTES));
	uint64_t resident = pool_stat(self).resident_bytes;
	struct kvpool_buf *buf;

	ASSERT_EQ(0, kvpool_buf_create(self->pool, 32 * TILE_BYTES, 0, &buf));
	EXPECT_EQ(0,
		  kvpool_buf_commit(
			  buf, 0,
			  32 * TILE_BYTES -
				  (resident - pool_stat(self).volatile_bytes)));
	EXPECT_EQ(0, pool_stat(self).volatile_bytes);
	kvpool_buf_put(buf);
	EXPECT_EQ(0, kvpool_set_limit(self->pool, 256 * TILE_BYTES));
}

TEST_F(shared, purged_memory_is_a_miss_and_leaves_the_index)
{
	publish_request(self, self->writer, 60);
	EXPECT_EQ(48, request(self, self->reader, 49));
	purge_all(self);
	EXPECT_EQ(0, pool_stat(self).nr_keys);
	EXPECT_EQ(0, request(self, self->reader, 60));
	EXPECT_EQ(0, request(self, self->writer, 60));
	EXPECT_EQ(59, request(self, self->writer, 60));
	EXPECT_TRUE(kit_check(self->writer));
}

TEST_F(shared, memory_in_use_by_a_reader_is_not_purged)
{
	publish_request(self, self->writer, 60);
	struct kv_seq *seq = open_ok(self, self->reader, 60);

	purge_all(self);
	EXPECT_TRUE(kit_verify(self->reader, seq, self->hashes));
	kv_seq_close(seq);
	EXPECT_EQ(48, request(self, self->writer, 49));
}

/* What only publications keep makes room for whoever asks. */
TEST_F(shared, a_pool_full_of_publications_has_room)
{
	for (int32_t i = 0; i < 40; i++) {
		self->tokens[0] = i;
		kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
		publish_request(self, i % 2 ? self->reader : self->writer, 200);
	}
	EXPECT_GT(pool_stat(self).purges, 0);
	EXPECT_EQ(192, request(self, self->writer, 200));
}

TEST_F(shared, a_hole_in_a_chain_ends_the_hit)
{
	struct kv_seq *seq = open_ok(self, self->writer, 40);

	for (uint32_t len = 48; len <= 192; len += 48) {
		grow_ok(self, self->writer, seq, len);
		ASSERT_EQ(0, kv_seq_seal(seq));
		kv_cache_publish(self->writer);
	}
	kv_seq_close(seq);
	const struct kv_segment *seg;

	TAILQ_FOREACH(seg, &self->writer->segments, link)
	{
		if (seg->start == 96)
			ASSERT_EQ(0, kvpool_buf_unpublish(
					     seg->streams[0].bufs[0]));
	}
	EXPECT_EQ(96, request(self, self->reader, 200));
	EXPECT_EQ(2, cache_stat(self->reader).nr_imported);
}

TEST_F(shared, a_window_that_is_missing_is_a_miss_and_says_so)
{
	const struct kv_segment *seg;

	if (!variant->window)
		SKIP(return, "one stream has no window");
	publish_request(self, self->writer, 60);
	TAILQ_FOREACH(seg, &self->writer->segments, link)
	ASSERT_EQ(0, kvpool_buf_unpublish(seg->streams[1].bufs[0]));
	EXPECT_EQ(0, request(self, self->reader, 60));
	EXPECT_EQ(KV_MISS_WINDOW, self->miss);
}

static int no_seals(int fd, int seals)
{
	(void)fd;
	(void)seals;
	errno = EPERM;
	return -1;
}

TEST_F(shared, what_cannot_be_published_stays_ones_own)
{
	int (*real)(int fd, int seals) = kvpool_sys.add_seals;

	kvpool_sys.add_seals = no_seals;
	publish_request(self, self->writer, 60);
	kvpool_sys.add_seals = real;
	EXPECT_EQ(0, cache_stat(self->writer).nr_published);
	EXPECT_EQ(0, pool_stat(self).nr_keys);
	EXPECT_EQ(0, request(self, self->reader, 60));
	EXPECT_EQ(59, request(self, self->writer, 60));
}

/* A buffer under a key of ours whose size means nothing to us. */
TEST_F(shared, a_mark_that_makes_no_sense_is_a_miss)
{
	struct kvpool_buf *buf;
	struct kvpool_mark mark = { .n_bytes = 1000 };
	const struct kv_segment *seg;

	publish_request(self, self->writer, 20);
	seg = TAILQ_FIRST(&self->writer->segments);
	const uint32_t words[2] = { 0x5441524e, 0 };

	prefix_hash(&self->writer->index, &seg->keys[0], words, sizeof(words),
		    &mark.key);
	ASSERT_EQ(0, kvpool_buf_create(self->pool, 4 * TILE_BYTES, 0, &buf));
	ASSERT_EQ(0, kvpool_buf_commit(buf, 0, 4 * TILE_BYTES));
	ASSERT_EQ(0, kvpool_buf_seal(buf, 4 * TILE_BYTES));
	for (int i = 0; i < 2; i++) {
		/* Not whole tiles; more of them than the prompt has in front of the border. */
		mark.n_bytes = i ? 2 * TILE_BYTES : 1000;
		ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
		EXPECT_EQ(0, request(self, self->reader, 20));
		EXPECT_EQ(0, cache_stat(self->reader).nr_imported);
		while (kv_evict_one(self->reader))
			;
	}
	kvpool_buf_put(buf);
}

TEST_HARNESS_MAIN
