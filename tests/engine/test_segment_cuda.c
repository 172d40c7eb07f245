/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments over a cuda pool (a driver without a GPU): tiles with one numbering,
 * pages that hold parts of several tiles, work of the device that reads and
 * writes while sequences fork and end, calls of the driver that fail. What
 * segments do on every pool is in test_segment.c and test_segment_model.c.
 */
#include "tests/harness.h"

#include "engine/kv/segment.h"
#include "tests/engine/kv_kit.h"
#include "tests/engine/kv_pool_kit.h"

enum {
	T = 32,
	MAX_TOKENS = 1024,
	WINDOW = 64,
	GRANULE = 8192,
	STRIDE =
		12288, /* of both streams: half of the tiles begin inside a page */
	LIMIT_PAGES = 256,
};

static const struct kvpool_key salt = { { 1 } };

FIXTURE(device)
{
	struct kvpool *pool;
	struct kv_cache *cache;
	int32_t tokens[MAX_TOKENS];
	uint64_t hashes[MAX_TOKENS];
	cuda_stream stream;
};

static struct kv_cache_options options_of(struct kvpool *pool)
{
	return (struct kv_cache_options){
		.pool = pool,
		.elem = ATTN_F16,
		.nr_streams = 2,
		.streams = { { .nr_layers = 2,
			       .nr_kv_heads = 1,
			       .head_dim = 40 },
			     { .nr_layers = 1,
			       .nr_kv_heads = 2,
			       .head_dim = 40,
			       .window_tokens = WINDOW } },
		.max_tokens = MAX_TOKENS,
		.max_append_tokens = 48,
		.tile_tokens = T,
		.prefix_cache = true,
		.is_k_by_token = true,
	};
}

FIXTURE_SETUP(device)
{
	self->pool =
		kit_pool(GRANULE, false, LIMIT_PAGES * GRANULE, 32 * GRANULE);
	struct kv_cache_options options = options_of(self->pool);

	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	ASSERT_EQ(STRIDE, kv_cache_layout(self->cache, 0)->stride_bytes);
	ASSERT_EQ(STRIDE, kv_cache_layout(self->cache, 1)->stride_bytes);
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		self->tokens[i] = (int32_t)(i * 5 + 1);
	kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
	self->stream = standin_stream();
}

FIXTURE_TEARDOWN(device)
{
	standin_finish(self->stream);
	kv_cache_destroy(self->cache);
	kit_pool_put(self->pool);
	standin_stream_end(self->stream);
}

static int try_open(struct fixture_device *self, uint32_t nr, uint32_t reserve,
		    struct kv_seq **out_seq, uint32_t *out_matched)
{
	enum kv_miss miss;

	return kv_seq_open(self->cache, self->tokens, nr, reserve, &salt, 0,
			   out_seq, out_matched, &miss);
}

static struct kv_seq *open_ok(struct fixture_device *self, uint32_t nr,
			      uint32_t reserve)
{
	struct kv_seq *seq = NULL;
	uint32_t matched;

	ASSERT_EQ(0, try_open(self, nr, reserve, &seq, &matched));
	return seq;
}

/* Return: 0, or what the first append that failed answered. */
static int grow(struct fixture_device *self, struct kv_seq *seq, uint32_t len)
{
	while (kv_seq_len(seq) < len) {
		uint32_t at = kv_seq_len(seq);
		uint32_t nr = len - at < 40 ? len - at : 40;
		int err = kv_seq_append(seq, self->tokens + at, nr);

		if (err)
			return err;
		kit_fill(self->cache, seq, at, at + nr, self->hashes);
	}
	return 0;
}

/* ---- addresses ---- */

/* Tile numbers of all that a sequence sees: whole, and marked as seen. */
static void check_numbers(struct fixture_device *self, const struct kv_seq *seq,
			  uint32_t s)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];
	const struct attn_layout *l = kv_cache_layout(self->cache, s);
	const uint8_t *base = kv_cache_base(self->cache);
	uint32_t len = kv_seq_len(seq);
	int nr = kv_seq_pieces(seq, s, kit_first_visible(self->cache, s, len),
			       len, pieces);

	ASSERT_TRUE(nr > 0);
	for (int i = 0; i < nr; i++) {
		ASSERT_TRUE(pieces[i].base >= base);
		ASSERT_EQ(0, (pieces[i].base - base) % l->stride_bytes);
	}
	ASSERT_EQ(0, (kv_seq_tile(seq, s, len - 1) - base) % l->stride_bytes);
}

TEST_F(device, every_tile_has_a_number_behind_the_base)
{
	struct kv_seq *seqs[4];
	struct kvpool_buf *odd;

	/* Of one page: what is reserved behind it begins anywhere. */
	ASSERT_EQ(0, kvpool_buf_create(self->pool, GRANULE, 0, &odd));
	ASSERT_TRUE(kv_cache_base(self->cache) == kvpool_base(self->pool));
	ASSERT_TRUE(kv_cache_base(self->cache) != NULL);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 3; i++) {
			seqs[i] = open_ok(self, 1 + i, 100);
			ASSERT_EQ(0, grow(self, seqs[i], 90 + 5 * i + round));
			ASSERT_EQ(0, kv_seq_seal(seqs[i]));
			ASSERT_EQ(0, grow(self, seqs[i], 100 + i));
		}
		ASSERT_EQ(0, kv_seq_fork(seqs[0], 200, &seqs[3]));
		ASSERT_EQ(0, grow(self, seqs[3], 180));
		for (uint32_t i = 0; i < 4; i++) {
			check_numbers(self, seqs[i], 0);
			check_numbers(self, seqs[i], 1);
			ASSERT_TRUE(
				kit_verify(self->cache, seqs[i], self->hashes));
		}
		for (uint32_t i = 0; i < 4; i++)
			kv_seq_close(seqs[i]);
		/* Buffers are made anew, and others taken over. */
		if (round)
			kvpool_trim(self->pool, UINT64_MAX);
	}
	EXPECT_TRUE(kit_check(self->cache));
	kvpool_buf_put(odd);
}

TEST(a_pool_of_the_host_has_neither_base_nor_fences)
{
	struct kvpool *pool = kit_pool(0, false, 1 << 20, 0);
	struct kv_cache_options options = options_of(pool);
	struct kv_cache *cache;

	ASSERT_EQ(0, kv_cache_create(&options, &cache));
	EXPECT_TRUE(kv_cache_base(cache) == NULL);
	EXPECT_EQ(0, kv_cache_fence(cache, NULL));
	kv_cache_destroy(cache);
	kvpool_put(pool);
}

/* ---- pages ---- */

static uint64_t pages_of(uint32_t first_tile, uint32_t end_tile)
{
	return ((uint64_t)end_tile * STRIDE + GRANULE - 1) / GRANULE -
	       (uint64_t)first_tile * STRIDE / GRANULE;
}

TEST_F(device, a_tile_takes_the_pages_it_touches)
{
	struct kv_seq *seq = open_ok(self, 1, 500);
	struct kvpool_stat stat;

	for (uint32_t len = 1; len <= 400; len++) {
		ASSERT_EQ(0, grow(self, seq, len));
		kvpool_stat(self->pool, &stat);
		uint32_t first = kit_first_visible(self->cache, 1, len - 1) / T;
		uint32_t end = (len + T - 1) / T;

		ASSERT_EQ(pages_of(0, end) + pages_of(first, end),
			  stat.resident_bytes / GRANULE);
	}
	/* A page that two tiles share goes with the second of them. */
	ASSERT_EQ(0, grow(self, seq, 440));
	for (uint32_t len = 440; len-- > 400;) {
		ASSERT_EQ(0, kv_seq_truncate(seq, len));
		ASSERT_TRUE(kit_check(self->cache));
		ASSERT_TRUE(kit_verify(self->cache, seq, self->hashes));
	}
	/* What is made ahead is counted apart, and what it shares with a tile in use is not it. */
	for (uint32_t len = 401; len <= 440; len++) {
		struct kv_cache_stat cached;

		ASSERT_EQ(0, grow(self, seq, len));
		kv_seq_prepare(seq);
		kv_cache_stat(self->cache, &cached);
		kvpool_stat(self->pool, &stat);
		uint32_t first = kit_first_visible(self->cache, 1, len) / T;
		uint32_t end = (len + T - 1) / T;

		ASSERT_EQ(pages_of(0, end) + pages_of(first, end),
			  cached.used_bytes / GRANULE);
		ASSERT_EQ(stat.resident_bytes,
			  cached.used_bytes + cached.ahead_bytes);
	}
	kv_seq_close(seq);
	EXPECT_TRUE(kit_check(self->cache));
}

/* ---- work of the device ---- */

static void *finish_later(void *stream)
{
	usleep(50000);
	standin_finish(stream);
	return NULL;
}

TEST_F(device, a_fork_has_what_the_step_before_it_wrote)
{
	struct kv_seq *seq = open_ok(self, 1, 200), *child;
	const struct attn_layout *l = kv_cache_layout(self->cache, 0);
	pthread_t thread;

	ASSERT_EQ(0, grow(self, seq, 70));
	/* The step that computes tokens 64 to 69 has been started, and takes its time. */
	standin_launch_set(self->stream, kv_seq_tile(seq, 0, 69),
			   l->stride_bytes, 0x5c);
	ASSERT_EQ(0, kv_cache_fence(self->cache, self->stream));
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	ASSERT_EQ(0, kv_seq_fork(seq, 200, &child));
	pthread_join(thread, NULL);
	const uint8_t *tile = standin_cpu(kv_seq_tile(child, 0, 69));
	uint64_t row_bytes = (uint64_t)l->head_dim * l->elem_bytes;

	for (uint64_t run = 0; run < 4; run++) {
		for (uint64_t i = 0; i < 6 * row_bytes; i++)
			ASSERT_EQ(0x5c, tile[run * l->head_bytes + i]);
	}
	EXPECT_TRUE(kv_seq_tile(child, 0, 69) != kv_seq_tile(seq, 0, 69));
	kv_seq_close(child);
	kv_seq_close(seq);
}

TEST_F(device, memory_that_work_still_reads_is_nobody_elses)
{
	struct kit_worker slow = { .stream = self->stream };
	struct kv_seq *seq = open_ok(self, 1, 600), *other;
	int32_t text[600];
	enum kv_miss miss;
	uint32_t matched;
	pthread_t thread;

	ASSERT_EQ(0, grow(self, seq, 600));
	kit_work(&slow, self->cache, seq);
	/* Behind the window, at the end, and all of it. */
	ASSERT_EQ(0, kv_seq_append(seq, self->tokens + 600, 40));
	ASSERT_EQ(0, kv_seq_truncate(seq, 600));
	kv_seq_prepare(seq);
	kv_seq_close(seq);
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	for (int i = 0; i < 600; i++)
		text[i] = -i;
	/* It does not fit beside the first, which is evicted when the work is over. */
	kvpool_set_limit(self->pool, 40 * GRANULE);
	ASSERT_EQ(0, kv_seq_open(self->cache, text, 600, 600, &salt, 0, &other,
				 &matched, &miss));
	for (int i = 0; i < 600; i += 40)
		ASSERT_EQ(0, kv_seq_append(other, text + i, 40));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, standin_counts().nr_violations);
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(other);
}

/* ---- sharing ---- */

/* Pages of the pool that are recycled hold what somebody else wrote. */
static void soil_pool(struct kvpool *pool)
{
	struct kvpool_buf *buf;

	for (int i = 0; i < 2; i++) {
		uint64_t bytes = MAX_TOKENS / T * STRIDE;
		struct kvpool_place all;

		ASSERT_EQ(0, kvpool_buf_create_stride(pool, bytes, STRIDE, 0,
						      &buf));
		ASSERT_EQ(0, kvpool_buf_commit(buf, 0, bytes));
		all = (struct kvpool_place){ .buf = buf };
		ASSERT_EQ(0, kvpool_fill(&all, 0xa5, bytes, 1));
		kvpool_buf_put(buf);
	}
}

TEST_F(device, what_is_published_holds_nothing_but_its_tokens)
{
	struct kv_cache_options options = options_of(self->pool);
	uint32_t len = 5 * T + 9;
	/* The window in front of the last border is kept, though the next row sees less. */
	uint32_t first = (5 * T - WINDOW + 1) / T;

	options.share_prefixes = true;
	kv_cache_destroy(self->cache);
	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	soil_pool(self->pool);
	struct kv_seq *seq = open_ok(self, len, 300);
	struct attn_piece piece;

	ASSERT_EQ(0, grow(self, seq, len));
	const uint8_t *tiles[2];

	for (uint32_t s = 0; s < 2; s++) {
		uint32_t from = s ? first : 0;

		ASSERT_EQ(1, kv_seq_pieces(seq, s, from * T, len, &piece));
		tiles[s] = piece.base;
	}
	ASSERT_EQ(0, kv_seq_seal(seq));
	kv_cache_publish(self->cache);
	struct kv_cache_stat stat;

	kv_cache_stat(self->cache, &stat);
	ASSERT_EQ(1, stat.nr_published);
	ASSERT_TRUE(kit_verify(self->cache, seq, self->hashes));
	for (uint32_t s = 0; s < 2; s++) {
		const struct attn_layout *l = kv_cache_layout(self->cache, s);
		uint32_t from = s ? first : 0;
		uint64_t used = l->nr_layers * l->layer_bytes;
		uint64_t front = (uint64_t)from * STRIDE % GRANULE;
		const uint8_t *at = standin_cpu(tiles[s] - front);

		for (uint64_t i = 0; i < front; i++)
			ASSERT_EQ(0, at[i]);
		for (uint32_t tile = from; tile < 6; tile++) {
			const uint8_t *t =
				at + front + (uint64_t)(tile - from) * STRIDE;
			uint32_t nr = tile < 5 ? T : 9;

			for (uint64_t i = used; i < STRIDE; i++)
				ASSERT_EQ(0, t[i]);
			for (uint64_t i = 0; i < used; i++) {
				uint64_t row = i % l->head_bytes /
					       (l->head_dim * l->elem_bytes);

				if (row >= nr)
					ASSERT_EQ(0, t[i]);
			}
			for (uint32_t i = 0; i < nr; i++)
				ASSERT_TRUE(kit_matches(
					l,
					tiles[s] + (uint64_t)(tile - from) *
							   STRIDE,
					i, self->hashes[tile * T + i]));
		}
	}
	kv_seq_close(seq);
}

/* ---- calls that fail ---- */

static atomic_int calls_left = -1; /* until one fails; below 0: none does */
static atomic_bool has_failed;

static cuda_status fail_nth(const char *name)
{
	(void)name;
	if (atomic_load(&calls_left) < 0 ||
	    atomic_fetch_sub(&calls_left, 1) > 0)
		return CUDA_OK;
	atomic_store(&has_failed, true);
	return 999;
}

/* Whatever happened, what is there is right, and goes on once the driver works again. */
static void expect_whole(struct fixture_device *self, struct kv_seq *seq)
{
	ASSERT_TRUE(kit_check(self->cache));
	if (!seq)
		return;
	ASSERT_TRUE(kit_verify(self->cache, seq, self->hashes));
	uint32_t len = kv_seq_len(seq);

	ASSERT_EQ(0, grow(self, seq, len + 50));
	ASSERT_TRUE(kit_verify(self->cache, seq, self->hashes));
}

/* A life of sequences; goes on behind errors. */
static void live(struct fixture_device *self)
{
	struct kv_seq *seq = NULL, *child = NULL;
	uint32_t matched;
	int err = try_open(self, 100, 400, &seq, &matched);

	if (!err) {
		err = grow(self, seq, 100);
		EXPECT_TRUE(!err || err == -ENOSPC || err == -EIO);
		err = kv_seq_seal(seq);
		EXPECT_TRUE(!err || err == -EAGAIN || err == -EIO);
		grow(self, seq, 150);
		err = kv_seq_fork(seq, 300, &child);
		EXPECT_TRUE(!err || err == -EAGAIN || err == -EIO);
		if (err)
			child = NULL;
		else
			grow(self, child, 190);
		err = kv_seq_truncate(seq, kv_seq_len(seq) * 2 / 3);
		EXPECT_TRUE(!err || err == -EAGAIN || err == -EIO ||
			    err == -ESTALE);
		kv_seq_prepare(seq);
	} else {
		EXPECT_TRUE(err == -EAGAIN || err == -ENOSPC || err == -EIO ||
			    err == -ENOMEM);
		seq = NULL;
	}
	atomic_store(&calls_left, -1);
	expect_whole(self, seq);
	expect_whole(self, child);
	kv_seq_close(seq);
	kv_seq_close(child);
	ASSERT_TRUE(kit_check(self->cache));
}

TEST_F_TIMEOUT(device, each_call_fails_in_turn_and_no_token_is_lost, 120)
{
	int nr_failed = 0;

	standin.fail = fail_nth;
	for (int nth = 0;; nth++) {
		struct kv_cache_options options = options_of(self->pool);
		struct kv_cache_stat stat;

		/* From nothing: all is made anew. */
		kv_cache_destroy(self->cache);
		kvpool_trim(self->pool, UINT64_MAX);
		ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
		/* A fence is over, and yet to be waited for. */
		ASSERT_EQ(0, kv_cache_fence(self->cache, self->stream));
		standin_finish(self->stream);
		atomic_store(&has_failed, false);
		atomic_store(&calls_left, nth);
		live(self);
		kv_cache_stat(self->cache, &stat);
		ASSERT_EQ(0, stat.used_bytes);
		ASSERT_EQ(0, stat.reserved_bytes);
		if (!atomic_load(&has_failed))
			break;
		nr_failed++;
	}
	standin.fail = NULL;
	TH_LOG("%d calls failed in turn", nr_failed);
	EXPECT_GE(nr_failed, 40);
}

/* ---- promises, where handles are of several pages ---- */

/* 384 pages, and 127 of the window, for each sequence: five fit, with next to nothing to spare. */
enum { LONG_TOKENS = 8192, LONG_PAGES = 2728, MAX_LONG = 16 };

TEST_TIMEOUT(what_is_promised_is_kept_though_handles_hold_more, 60)
{
	uint64_t limit = (uint64_t)LONG_PAGES * GRANULE;
	struct kvpool *pool = kit_pool(GRANULE, true, limit, limit / 16);
	struct kv_cache_options options = options_of(pool);
	struct kv_seq *seqs[MAX_LONG];
	struct kit_random random = { 3 };
	static int32_t text[LONG_TOKENS];
	struct kvpool_stat stat;
	uint64_t most_spare = 0;
	uint32_t nr = 0, matched;
	struct kv_cache *cache;
	enum kv_miss miss;

	options.streams[1].window_tokens = 2048;
	options.max_append_tokens = 600;
	options.max_tokens = LONG_TOKENS;
	options.slack_bytes = limit / 16;
	ASSERT_EQ(0, kv_cache_create(&options, &cache));
	/* As many as are admitted, each then within its own. */
	while (nr < MAX_LONG && !kv_seq_open(cache, text, 1, LONG_TOKENS, &salt,
					     0, &seqs[nr], &matched, &miss))
		nr++;
	EXPECT_EQ(5, nr);
	for (uint32_t op = 0; op < 6000; op++) {
		uint32_t i = kit_below(&random, nr);
		uint32_t len = kv_seq_len(seqs[i]), room = LONG_TOKENS - len;
		uint32_t step = 1 + kit_below(&random, 600);

		if (!kit_below(&random, room ? 100 : 4))
			kv_seq_truncate(seqs[i],
					kit_below(&random, 2) ?
						kit_below(&random, len + 1) :
						0);
		else
			ASSERT_EQ(0, kv_seq_append(seqs[i], text,
						   step < room ? step : room));
		if (!kit_below(&random, 4))
			kv_seq_prepare(seqs[i]);
		kvpool_stat(pool, &stat);
		if (stat.spare_bytes > most_spare)
			most_spare = stat.spare_bytes;
	}
	TH_LOG("%u sequences, %llu of %d pages spare at most", nr,
	       (unsigned long long)(most_spare / GRANULE), LONG_PAGES);
	ASSERT_TRUE(kit_check(cache));
	while (nr)
		kv_seq_close(seqs[--nr]);
	kv_cache_destroy(cache);
	kit_pool_put(pool);
}

TEST_HARNESS_MAIN
