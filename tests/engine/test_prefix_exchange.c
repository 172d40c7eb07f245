/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes between caches whose pools are private, over the exchange: what one
 * has computed the other maps and reads, also when the first evicts it or dies;
 * memory that one keeps and the other needs; peers that offer nonsense. Pools of
 * memfd and of a driver without a GPU, which both have one card of it. The
 * exchange itself is in test_exchange.c.
 */
#include "tests/harness.h"

#include "engine/kv/segment_private.h"
#include "engine/kv/shared_prefix.h"
#include "tests/engine/exchange_kit.h"
#include "tests/engine/kv_kit.h"
#include "tests/engine/kv_pool_kit.h"

enum {
	T = 32,
	MAX_TOKENS = 1024,
	WINDOW = 64,
	GRANULE = 8192,
	STRIDE = 12288, /* half of the tiles begin inside a page */
	LIMIT_PAGES = 512,
	CARD_BYTES = 32 << 20,
};

static const struct kvpool_key salt = { { 1 } };

/* A process, as it were. */
struct side {
	struct kvpool *pool;
	struct kv_exchange *exchange;
	struct kv_cache *cache;
};

FIXTURE(pair)
{
	struct kit_dir dir;
	struct side writer, reader;
	int32_t tokens[MAX_TOKENS];
	uint64_t hashes[MAX_TOKENS];
	uint32_t matched;
	enum kv_miss miss;
};

FIXTURE_VARIANT(pair)
{
	bool is_cuda, has_window;
};

FIXTURE_VARIANT_ADD(pair, memfd){ false, false };
FIXTURE_VARIANT_ADD(pair, cuda){ true, false };
FIXTURE_VARIANT_ADD(pair, cuda_window){ true, true };

static struct kv_cache_options options_of(struct side *side, bool has_window)
{
	return (struct kv_cache_options){
		.pool = side->pool,
		.exchange = side->exchange,
		.elem = ATTN_F16,
		.nr_streams = has_window ? 2 : 1,
		.streams = { { .nr_layers = 2,
			       .nr_kv_heads = 1,
			       .head_dim = 40 },
			     { .nr_layers = 1,
			       .nr_kv_heads = 2,
			       .head_dim = 40,
			       .window_tokens = WINDOW } },
		.max_tokens = MAX_TOKENS,
		.max_append_tokens = 64,
		.tile_tokens = T,
		.prefix_cache = true,
		.share_prefixes = true,
		.is_k_by_token = kit_is_k_by_token,
	};
}

static void open_side(struct side *side, const struct kit_dir *dir,
		      bool is_cuda, bool has_window)
{
	side->pool = kit_pool(is_cuda ? GRANULE : 0, true,
			      LIMIT_PAGES * GRANULE, 64 * GRANULE);
	if (is_cuda)
		standin.total_bytes = CARD_BYTES;
	side->exchange = kit_exchange(side->pool, dir);
	struct kv_cache_options options = options_of(side, has_window);

	ASSERT_EQ(0, kv_cache_create(&options, &side->cache));
}

static void close_side(struct side *side)
{
	if (!side->pool)
		return;
	if (side->cache)
		EXPECT_TRUE(kit_check(side->cache));
	kv_cache_destroy(side->cache);
	kv_exchange_destroy(side->exchange);
	kvpool_put(side->pool);
	*side = (struct side){ 0 };
}

static void make_text(struct fixture_pair *self, int32_t seed)
{
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		self->tokens[i] = (int32_t)i * 7 + seed;
	kit_history(self->tokens, 0, MAX_TOKENS, self->hashes);
}

FIXTURE_SETUP(pair)
{
	self->dir = kit_dir_make();
	open_side(&self->writer, &self->dir, variant->is_cuda,
		  variant->has_window);
	open_side(&self->reader, &self->dir, variant->is_cuda,
		  variant->has_window);
	make_text(self, 3);
}

FIXTURE_TEARDOWN(pair)
{
	(void)variant;
	close_side(&self->writer);
	close_side(&self->reader);
	EXPECT_EQ(0, kit_nr_sockets(&self->dir));
	kit_dir_remove(&self->dir);
	if (kit_cpu)
		EXPECT_TRUE(standin_is_clean());
}

/* ---- what tests do over and over ---- */

static struct kv_seq *open_ok(struct fixture_pair *self, struct side *side,
			      uint32_t nr)
{
	struct kv_seq *seq = NULL;

	self->matched = UINT32_MAX;
	ASSERT_EQ(0,
		  kv_seq_open(side->cache, self->tokens, nr, nr + 2 * T, &salt,
			      1000, &seq, &self->matched, &self->miss));
	ASSERT_TRUE(kit_verify(side->cache, seq, self->hashes));
	return seq;
}

static void grow_ok(struct fixture_pair *self, struct side *side,
		    struct kv_seq *seq, uint32_t len)
{
	for (uint32_t at = kv_seq_len(seq); at < len; at = kv_seq_len(seq)) {
		uint32_t nr = len - at < 50 ? len - at : 50;

		ASSERT_EQ(0, kv_seq_append(seq, self->tokens + at, nr));
		kit_fill(side->cache, seq, at, at + nr, self->hashes);
	}
	ASSERT_TRUE(kit_verify(side->cache, seq, self->hashes));
}

/* A request from its beginning to its end. Return: tokens it found. */
static uint32_t request(struct fixture_pair *self, struct side *side,
			uint32_t nr)
{
	struct kv_seq *seq = open_ok(self, side, nr);
	uint32_t matched = self->matched;

	grow_ok(self, side, seq, nr);
	kv_seq_close(seq);
	kv_cache_publish(side->cache);
	ASSERT_TRUE(kit_check(side->cache));
	return matched;
}

static struct kv_cache_stat cache_stat(struct side *side)
{
	struct kv_cache_stat stat;

	kv_cache_stat(side->cache, &stat);
	return stat;
}

static struct kvpool_stat pool_stat(struct side *side)
{
	struct kvpool_stat stat;

	EXPECT_EQ(0, kvpool_stat(side->pool, &stat));
	return stat;
}

static uint32_t whole(uint32_t nr)
{
	return (nr - 1) / T * T;
}

/* ---- finding ---- */

TEST_F(pair, the_second_maps_what_the_first_has_published)
{
	EXPECT_EQ(0, request(self, &self->writer, 300));
	uint64_t used = standin_counts().used_bytes;
	struct kv_seq *seq = open_ok(self, &self->reader, 300);

	EXPECT_EQ(whole(300), self->matched);
	EXPECT_EQ(1, cache_stat(&self->reader).nr_imported);
	EXPECT_EQ(whole(300), cache_stat(&self->reader).shared_hit_tokens);
	/* Neither this pool nor the card has it twice. */
	EXPECT_EQ(0, pool_stat(&self->reader).resident_bytes);
	EXPECT_EQ(used, standin_counts().used_bytes);
	grow_ok(self, &self->reader, seq, 340);
	EXPECT_TRUE(kit_check(self->reader.cache));
	kv_seq_close(seq);
	/* From now on it is known here, a part of a tile too, which is copied. */
	EXPECT_EQ(330, request(self, &self->reader, 331));
	EXPECT_EQ(1, cache_stat(&self->reader).nr_imported);
}

TEST_F(pair, tiles_of_another_process_have_numbers_too)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];

	if (!variant->is_cuda)
		SKIP(return, "memory of the host has no base");
	request(self, &self->writer, 300);
	for (int i = 0; i < 3; i++) {
		/* Of one page: what is mapped behind it begins anywhere. */
		struct kvpool_buf *odd;

		ASSERT_EQ(0, kvpool_buf_create(self->reader.pool, GRANULE, 0,
					       &odd));
		struct kv_seq *seq = open_ok(self, &self->reader, 300);
		const uint8_t *base = kv_cache_base(self->reader.cache);

		for (uint32_t s = 0; s < 1u + variant->has_window; s++) {
			uint32_t first = kit_first_visible(self->reader.cache,
							   s, self->matched);
			int nr = kv_seq_pieces(seq, s, first, self->matched,
					       pieces);

			ASSERT_GT(nr, 0);
			ASSERT_EQ(0,
				  (pieces[0].base - base) %
					  kv_cache_layout(self->reader.cache, s)
						  ->stride_bytes);
		}
		kv_seq_close(seq);
		while (kv_evict_one(self->reader.cache))
			;
		kvpool_buf_put(odd);
	}
	EXPECT_EQ(3, cache_stat(&self->reader).nr_imported);
}

TEST_F(pair, any_part_of_a_prefix_is_found)
{
	/* Within the window every border serves. */
	request(self, &self->writer, WINDOW + 1);
	for (uint32_t nr = 2; nr <= WINDOW + 2 * T; nr += 7) {
		uint32_t most = nr - 1 < WINDOW ? nr - 1 : WINDOW;

		EXPECT_EQ(most / T * T, request(self, &self->reader, nr))
		{
			TH_LOG("a prompt of %u tokens", nr);
		}
		while (kv_evict_one(self->reader.cache))
			;
	}
	(void)variant;
}

TEST_F(pair, a_chain_is_found_and_goes_on_on_both_sides)
{
	struct kv_seq *seq = open_ok(self, &self->writer, 40);

	for (uint32_t len = 100; len <= 300; len += 100) {
		grow_ok(self, &self->writer, seq, len);
		ASSERT_EQ(0, kv_seq_seal(seq));
		kv_cache_publish(self->writer.cache);
	}
	/* The writer is at it still. */
	EXPECT_EQ(whole(301), request(self, &self->reader, 301));
	EXPECT_EQ(3, cache_stat(&self->reader).nr_imported);
	EXPECT_EQ(301, request(self, &self->reader, 500));
	kv_seq_close(seq);
	/* What the reader added is the writer's to find, behind what is its own. */
	EXPECT_EQ(whole(500), request(self, &self->writer, 501));
	EXPECT_TRUE(kit_check(self->writer.cache));
	(void)variant;
}

TEST_F(pair, who_has_another_salt_or_model_finds_nothing)
{
	struct side other = { 0 };
	struct kv_seq *seq;
	static const struct kvpool_key salt_b = { { 2 } };

	request(self, &self->writer, 300);
	ASSERT_EQ(0,
		  kv_seq_open(self->reader.cache, self->tokens, 300, 300,
			      &salt_b, 0, &seq, &self->matched, &self->miss));
	EXPECT_EQ(0, self->matched);
	kv_seq_close(seq);
	open_side(&other, &self->dir, variant->is_cuda, variant->has_window);
	kv_cache_destroy(other.cache);
	struct kv_cache_options options =
		options_of(&other, variant->has_window);

	options.root.bytes[31] = 1;
	ASSERT_EQ(0, kv_cache_create(&options, &other.cache));
	EXPECT_EQ(0, request(self, &other, 300));
	close_side(&other);
}

TEST_F(pair, a_cold_prompt_costs_one_question)
{
	EXPECT_EQ(0, request(self, &self->reader, 500));
	EXPECT_EQ(1, kit_exchange_stat(self->reader.exchange).asked);
	EXPECT_EQ(1, kit_exchange_stat(self->writer.exchange).answered);
	(void)variant;
}

/* ---- the life of shared memory ---- */

TEST_F(pair, what_the_writer_evicts_stays_with_whoever_has_mapped_it)
{
	request(self, &self->writer, 300);
	struct kv_seq *seq = open_ok(self, &self->reader, 300);

	EXPECT_EQ(whole(300), self->matched);
	while (kv_evict_one(self->writer.cache))
		;
	EXPECT_EQ(0, kit_exchange_stat(self->writer.exchange).nr_offers);
	EXPECT_EQ(0, pool_stat(&self->writer).resident_bytes);
	/* The writer's pages are put to other use. */
	make_text(self, 1000);
	EXPECT_EQ(0, request(self, &self->writer, 800));
	make_text(self, 3);
	EXPECT_TRUE(kit_verify(self->reader.cache, seq, self->hashes));
	kv_seq_close(seq);
	while (kv_evict_one(self->reader.cache))
		;
	/* Nobody has it any more. */
	EXPECT_EQ(0, request(self, &self->reader, 300));
	(void)variant;
}

TEST_F(pair, an_evicted_import_lets_the_card_have_its_memory)
{
	if (!variant->is_cuda)
		SKIP(return, "only a card counts it");
	request(self, &self->writer, 300);
	struct kv_seq *seq = open_ok(self, &self->reader, 300);
	uint64_t handles = standin_counts().handles;

	kv_seq_close(seq);
	ASSERT_TRUE(kv_evict_one(self->reader.cache));
	EXPECT_GT(handles, standin_counts().handles);
	while (kv_evict_one(self->writer.cache))
		;
	kvpool_trim(self->writer.pool, UINT64_MAX);
	kvpool_trim(self->reader.pool, UINT64_MAX);
	EXPECT_EQ(0, standin_counts().used_bytes);
	EXPECT_EQ(0, standin_counts().handles);
}

TEST_F(pair, an_import_stays_mapped_under_the_work_that_reads_it)
{
	if (!variant->is_cuda)
		SKIP(return, "the CPU's work is over by then");
	request(self, &self->writer, 300);
	struct kit_worker slow = { .stream = standin_stream() };
	struct kv_seq *seq = open_ok(self, &self->reader, 300);

	kit_work(&slow, self->reader.cache, seq);
	kv_seq_close(seq);
	while (kv_evict_one(self->reader.cache) ||
	       kv_evict_one(self->writer.cache))
		;
	kvpool_trim(self->reader.pool, UINT64_MAX);
	EXPECT_GT(standin_work_left(slow.stream), 0);
	EXPECT_EQ(0, standin_counts().nr_violations);
	standin_finish(slow.stream);
	kvpool_trim(self->reader.pool, UINT64_MAX);
	kvpool_trim(self->writer.pool, UINT64_MAX);
	EXPECT_EQ(0, standin_counts().handles);
	standin_stream_end(slow.stream);
}

TEST_F(pair, published_memory_makes_room_within_the_limit)
{
	/* Many times the limit, all of it published. */
	for (int32_t i = 0; i < 30; i++) {
		make_text(self, i * 1000);
		EXPECT_EQ(0, request(self, &self->writer, 900));
		ASSERT_GE(pool_stat(&self->writer).limit_bytes,
			  pool_stat(&self->writer).charged_bytes);
	}
	EXPECT_EQ(whole(900), request(self, &self->reader, 900));
	make_text(self, 0);
	EXPECT_EQ(0, request(self, &self->reader, 900));
	if (variant->is_cuda)
		EXPECT_GE(pool_stat(&self->writer).limit_bytes +
				  pool_stat(&self->reader).limit_bytes,
			  standin_counts().used_bytes);
}

/* ---- memory that another has ---- */

TEST_F(pair, a_card_that_others_fill_with_caches_has_room)
{
	if (!variant->is_cuda)
		SKIP(return, "only a card is common to two pools");
	for (int32_t i = 0; i < 6; i++) {
		make_text(self, i * 1000);
		request(self, &self->writer, 900);
	}
	make_text(self, 5000);
	/* Of this one a sequence is using all. */
	struct kv_seq *used = open_ok(self, &self->writer, 900);
	uint64_t before = pool_stat(&self->writer).charged_bytes;

	EXPECT_EQ(899, self->matched);
	/* Nothing is free on the card but two pages. */
	standin.total_bytes = standin_counts().used_bytes + 2 * GRANULE;
	make_text(self, 90000);
	EXPECT_EQ(0, request(self, &self->reader, 900));
	EXPECT_GT(before, pool_stat(&self->writer).charged_bytes);
	EXPECT_GT(kit_exchange_stat(self->writer.exchange).room_bytes, 0);
	make_text(self, 5000);
	EXPECT_TRUE(kit_verify(self->writer.cache, used, self->hashes));
	kv_seq_close(used);
	EXPECT_TRUE(kit_check(self->writer.cache));
	/* What was taken is a miss there, and is computed again. */
	standin.total_bytes = CARD_BYTES;
	make_text(self, 0);
	EXPECT_EQ(0, request(self, &self->writer, 900));
	EXPECT_EQ(899, request(self, &self->writer, 900));
}

TEST_F(pair, where_nobody_has_room_ones_own_cache_goes)
{
	if (!variant->is_cuda)
		SKIP(return, "only a card is common to two pools");
	request(self, &self->reader, 900);
	make_text(self, 5000);
	struct kv_seq *used = open_ok(self, &self->writer, 900);

	grow_ok(self, &self->writer, used, 900);
	kvpool_trim(self->writer.pool, UINT64_MAX);
	standin.total_bytes = standin_counts().used_bytes + 2 * GRANULE;
	make_text(self, 90000);
	EXPECT_EQ(0, request(self, &self->reader, 600));
	EXPECT_GT(cache_stat(&self->reader).evictions, 0);
	make_text(self, 5000);
	EXPECT_TRUE(kit_verify(self->writer.cache, used, self->hashes));
	kv_seq_close(used);
}

/* ---- two processes ---- */

/*
 * Publishes 300 tokens, says so, and waits. No process forks with a GPU: this one exists before the
 * others have a pool.
 */
static void be_writer(const struct kit_dir *dir, int sock, bool is_cuda,
		      bool has_window)
{
	struct fixture_pair self = { .dir = *dir };

	make_text(&self, 3);
	open_side(&self.writer, dir, is_cuda, has_window);
	request(&self, &self.writer, 300);
	send(sock, "", 1, 0);
	pause();
}

static void outlive_writer(bool is_cuda, bool has_window)
{
	struct fixture_pair self = { .dir = kit_dir_make() };
	int socks[2], status;
	char byte;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	pid_t pid = fork();

	if (!pid) {
		be_writer(&self.dir, socks[1], is_cuda, has_window);
		_exit(1);
	}
	ASSERT_EQ(1, recv(socks[0], &byte, 1, 0));
	make_text(&self, 3);
	open_side(&self.reader, &self.dir, is_cuda, has_window);
	struct kv_seq *seq = open_ok(&self, &self.reader, 200);

	EXPECT_EQ(has_window ? 0 : whole(200), self.matched);
	kv_seq_close(seq);
	seq = open_ok(&self, &self.reader, 300);
	EXPECT_EQ(whole(300), self.matched);
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(SIGKILL, WTERMSIG(status));
	EXPECT_TRUE(kit_verify(self.reader.cache, seq, self.hashes));
	grow_ok(&self, &self.reader, seq, 330);
	kv_seq_close(seq);
	EXPECT_EQ(329, request(&self, &self.reader, 330));
	/* It is ours alone now, and goes when we let go. */
	while (kv_evict_one(self.reader.cache))
		;
	EXPECT_EQ(2, kit_nr_sockets(&self.dir));
	EXPECT_EQ(0, request(&self, &self.reader, 300));
	EXPECT_EQ(1, kit_nr_sockets(&self.dir));
	close_side(&self.reader);
	kit_dir_remove(&self.dir);
	if (is_cuda)
		EXPECT_TRUE(standin_is_clean());
	close(socks[0]);
	close(socks[1]);
}

TEST(a_writer_that_is_killed_leaves_what_was_mapped)
{
	outlive_writer(false, false);
}

TEST(a_writer_that_is_killed_leaves_what_was_mapped_of_a_card)
{
	outlive_writer(true, false);
}

TEST(a_writer_that_is_killed_leaves_what_was_mapped_with_windows)
{
	outlive_writer(true, true);
}

/* ---- peers that offer nonsense ---- */

/* Offer @buf under the key of the border behind tile @end_tile, with @n_bytes. */
static void offer(struct fixture_pair *self, struct kvpool_buf *buf,
		  uint32_t end_tile, uint64_t n_bytes)
{
	struct kv_cache *cache = self->writer.cache;
	struct kvpool_mark mark = { .n_bytes = n_bytes };
	struct kvpool_key key;

	prefix_hash(&cache->index, &cache->options.root, salt.bytes,
		    sizeof(salt.bytes), &key);
	for (uint32_t i = 0; i < end_tile; i++)
		prefix_hash(&cache->index, &key, self->tokens + i * T,
			    T * sizeof(self->tokens[0]), &key);
	shared_prefix_key(cache, &key, 0, &mark.key);
	ASSERT_EQ(0, kv_exchange_offer(self->writer.exchange, buf, &mark, 1));
}

TEST_F(pair, a_length_that_makes_no_sense_is_a_miss)
{
	uint64_t stride = kv_cache_layout(self->writer.cache, 0)->stride_bytes;
	uint64_t bad[] = { 0,	       1,	   stride - 1, 2 * stride,
			   stride + 1, 1ull << 40, UINT64_MAX };
	struct kvpool_mark mark = { .n_bytes = stride };
	uint64_t bytes = (uint64_t)GRANULE * 16;
	int nr_fds = 0;

	if (variant->has_window)
		SKIP(return, "one stream shows it");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kvpool_buf *buf;

		memset(&mark.key, (int)i + 1, sizeof(mark.key));
		ASSERT_EQ(0,
			  kvpool_buf_create(self->writer.pool, bytes, 0, &buf));
		ASSERT_EQ(0, kvpool_buf_commit(buf, 0, bytes));
		ASSERT_EQ(0, kvpool_buf_seal(buf, bytes));
		ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
		offer(self, buf, 1, bad[i]);
		EXPECT_EQ(0, request(self, &self->reader, T + 1))
		{
			TH_LOG("%llu bytes", (unsigned long long)bad[i]);
		}
		while (kv_evict_one(self->reader.cache))
			;
		kv_exchange_withdraw(self->writer.exchange, buf);
		kvpool_buf_unpublish(buf);
		kvpool_buf_put(buf);
		/* The driver without a GPU has one for each handle, made when it likes. */
		if (!nr_fds)
			nr_fds = kit_settled_fds();
		if (!variant->is_cuda)
			EXPECT_TRUE(kit_settles_at_fds(nr_fds));
	}
	EXPECT_EQ(0, cache_stat(&self->reader).nr_imported);
	EXPECT_GE(kit_exchange_stat(self->reader.exchange).found,
		  sizeof(bad) / sizeof(bad[0]));
}

/* Fewer bytes than it says, and a hole among them. */
TEST_F(pair, a_buffer_without_all_its_tiles_is_a_miss)
{
	uint64_t stride = kv_cache_layout(self->writer.cache, 0)->stride_bytes;
	uint64_t page = kvpool_page_bytes(self->writer.pool);
	uint64_t bytes = 8 * stride / page * page + page;

	if (variant->has_window)
		SKIP(return, "one stream shows it");
	if (!variant->is_cuda)
		SKIP(return, "a file of the host reads as zeros there");
	for (int hole = 0; hole < 2; hole++) {
		struct kvpool_mark mark = { .n_bytes = 1 };
		struct kvpool_buf *buf;

		ASSERT_EQ(0,
			  kvpool_buf_create(self->writer.pool, bytes, 0, &buf));
		ASSERT_EQ(0, kvpool_buf_commit(buf, 0, page));
		if (hole)
			ASSERT_EQ(0, kvpool_buf_commit(
					     buf, 4 * stride / page * page,
					     bytes - 4 * stride / page * page));
		memset(&mark.key, hole + 1, sizeof(mark.key));
		ASSERT_EQ(0, kvpool_buf_seal(buf, hole ? bytes : page));
		ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
		/* So that the search begins, and goes on to it. */
		offer(self, buf, 8, 8 * stride);
		struct kvpool_buf *first;
		uint64_t first_bytes = stride / page * page + page;

		ASSERT_EQ(0, kvpool_buf_create(self->writer.pool, first_bytes,
					       0, &first));
		ASSERT_EQ(0, kvpool_buf_commit(first, 0, first_bytes));
		ASSERT_EQ(0, kvpool_buf_seal(first, first_bytes));
		memset(&mark.key, hole + 3, sizeof(mark.key));
		ASSERT_EQ(0, kvpool_buf_publish(first, &mark, 1));
		offer(self, first, 1, stride);
		uint64_t mapped = standin_counts().mappings;

		EXPECT_EQ(0, request(self, &self->reader, 8 * T + 1));
		while (kv_evict_one(self->reader.cache))
			;
		kvpool_trim(self->reader.pool, UINT64_MAX);
		EXPECT_EQ(mapped, standin_counts().mappings);
		kv_exchange_withdraw(self->writer.exchange, buf);
		kv_exchange_withdraw(self->writer.exchange, first);
		kvpool_buf_unpublish(buf);
		kvpool_buf_unpublish(first);
		kvpool_buf_put(buf);
		kvpool_buf_put(first);
	}
	EXPECT_EQ(0, cache_stat(&self->reader).nr_imported);
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

/* A request that may fail anywhere; what it sees is right. */
static void try_request(struct fixture_pair *self, struct side *side,
			uint32_t nr)
{
	struct kv_seq *seq = NULL;
	int err = kv_seq_open(side->cache, self->tokens, nr, nr + 2 * T, &salt,
			      1000, &seq, &self->matched, &self->miss);

	if (err) {
		EXPECT_TRUE(err == -EAGAIN || err == -ENOSPC || err == -EIO ||
			    err == -ENOMEM);
		return;
	}
	ASSERT_TRUE(kit_verify(side->cache, seq, self->hashes));
	for (uint32_t at = kv_seq_len(seq); at < nr && !err;
	     at = kv_seq_len(seq)) {
		uint32_t step = nr - at < 50 ? nr - at : 50;

		err = kv_seq_append(seq, self->tokens + at, step);
		if (!err)
			kit_fill(side->cache, seq, at, at + step, self->hashes);
	}
	ASSERT_TRUE(kit_verify(side->cache, seq, self->hashes));
	kv_seq_close(seq);
	kv_cache_publish(side->cache);
}

TEST_TIMEOUT(each_call_of_the_driver_fails_in_turn_and_no_token_is_wrong, 120)
{
	struct fixture_pair self = { .dir = kit_dir_make() };
	int nth = 0;

	for (;; nth++) {
		open_side(&self.writer, &self.dir, true, true);
		open_side(&self.reader, &self.dir, true, true);
		make_text(&self, 3);
		request(&self, &self.writer, 150);
		standin.fail = fail_nth;
		atomic_store(&has_failed, false);
		atomic_store(&calls_left, nth);
		/* Imports, copies, publishes on both sides; gives room. */
		try_request(&self, &self.reader, 200);
		try_request(&self, &self.writer, 230);
		kv_evict_one(self.reader.cache);
		kv_exchange_ask_room(self.reader.exchange, 4 * GRANULE);
		atomic_store(&calls_left, -1);
		EXPECT_TRUE(kit_check(self.writer.cache));
		EXPECT_TRUE(kit_check(self.reader.cache));
		request(&self, &self.reader, 230);
		request(&self, &self.writer, 230);
		close_side(&self.writer);
		close_side(&self.reader);
		EXPECT_TRUE(standin_is_clean())
		{
			TH_LOG("after failure %d", nth);
		}
		if (!atomic_load(&has_failed))
			break;
	}
	TH_LOG("%d calls failed in turn", nth);
	EXPECT_GT(nth, 40);
	kit_dir_remove(&self.dir);
}

/* ---- both at once ---- */

struct worker {
	struct fixture_pair *self;
	struct side *side;
	uint64_t seed;
	uint32_t nr_shared;
};

/* Requests of few texts, in any order, each checked to the last byte. */
static void *work(void *arg)
{
	struct worker *worker = arg;
	struct kit_random random = { worker->seed };
	struct fixture_pair own = { .dir = worker->self->dir };

	for (int i = 0; i < 60; i++) {
		make_text(&own, (int32_t)kit_below(&random, 8) * 1000);
		request(&own, worker->side, 50 + kit_below(&random, 900));
		if (!kit_below(&random, 6))
			kv_evict_one(worker->side->cache);
		/* As one that finds the card full. */
		if (!kit_below(&random, 10))
			kv_exchange_ask_room(worker->side->exchange, 1 << 20);
	}
	worker->nr_shared = (uint32_t)cache_stat(worker->side).nr_imported;
	return NULL;
}

TEST_F_TIMEOUT(pair, two_at_work_read_nothing_but_their_texts, 120)
{
	struct worker workers[] = { { self, &self->writer, 1, 0 },
				    { self, &self->reader, 2, 0 } };
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, work, &workers[0]));
	work(&workers[1]);
	pthread_join(thread, NULL);
	EXPECT_GT(workers[0].nr_shared + workers[1].nr_shared, 4);
	EXPECT_TRUE(kit_check(self->writer.cache));
	EXPECT_TRUE(kit_check(self->reader.cache));
	(void)variant;
}

TEST_HARNESS_MAIN
