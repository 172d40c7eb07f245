/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention plans as a property: whatever the batch, each (row, visible key) is
 * covered exactly once, by the memory that holds that key of that sequence;
 * pieces ascend without gaps inside one anchored split; slots and merges fit.
 */
#include "tests/harness.h"

#include "engine/kv/plan.h"
#include "tests/engine/kv_kit.h"
#include "tests/engine/kv_pool_kit.h"

enum {
	T = 16,
	MAX_TOKENS = 2048,
	MAX_SEQS = 12,
	MAX_ROWS = 512,
	MAX_SPLITS = 8
};

struct plan_seq {
	struct kv_seq *seq;
	int32_t tokens[MAX_TOKENS];
	uint64_t hashes[MAX_TOKENS];
};

FIXTURE(plan)
{
	struct kvpool *pool;
	struct kv_cache *cache;
	struct plan_builder *builder;
	struct kit_random random;
	struct plan_seq seqs[MAX_SEQS];
	uint32_t nr_seqs;
	struct plan_item items[MAX_SEQS];
	const struct plan_seq *row_seq[MAX_ROWS];
	uint32_t row_pos[MAX_ROWS];
	uint32_t nr_rows;
};

FIXTURE_VARIANT(plan)
{
	uint32_t window; /* of the second stream */
	uint32_t granule; /* of a cuda pool; 0: memfd */
};

FIXTURE_VARIANT_ADD(plan, window_100){ .window = 100 };
FIXTURE_VARIANT_ADD(plan, window_512){ .window = 512 };
FIXTURE_VARIANT_ADD(plan, window_1){ .window = 1 };
FIXTURE_VARIANT_ADD(plan, cuda){ .window = 100, .granule = 16384 };

FIXTURE_SETUP(plan)
{
	self->pool = kit_pool(variant->granule, true, 1 << 26, 1 << 20);
	struct kv_cache_options options = {
		.pool = self->pool,
		.nr_streams = 2,
		.streams = { { .nr_layers = 1, .nr_kv_heads = 1, .head_dim = 4 },
			     { .nr_layers = 1,
			       .nr_kv_heads = 1,
			       .head_dim = 4,
			       .window_tokens = variant->window } },
		.max_tokens = MAX_TOKENS,
		.tile_tokens = T,
		.prefix_cache = true,
		.is_k_by_token = kit_is_k_by_token,
	};

	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	ASSERT_EQ(0, plan_builder_create(&self->builder));
	self->random.state = 7 + variant->window;
}

FIXTURE_TEARDOWN(plan)
{
	(void)variant;
	while (self->nr_seqs)
		kv_seq_close(self->seqs[--self->nr_seqs].seq);
	plan_builder_destroy(self->builder);
	kv_cache_destroy(self->cache);
	kit_pool_put(self->pool);
}

static void append_ok(struct fixture_plan *self, struct plan_seq *s,
		      uint32_t nr)
{
	uint32_t at = kv_seq_len(s->seq);

	for (uint32_t i = at; i < at + nr; i++)
		s->tokens[i] = (int32_t)kit_below(&self->random, 50);
	kit_history(s->tokens, at, at + nr, s->hashes);
	ASSERT_EQ(0, kv_seq_append(s->seq, s->tokens + at, nr));
	kit_fill(self->cache, s->seq, at, at + nr, s->hashes);
}

static struct plan_seq *open_ok(struct fixture_plan *self)
{
	struct plan_seq *s = &self->seqs[self->nr_seqs++];
	static const struct kvpool_key salt;
	uint32_t matched;
	enum kv_miss miss;

	ASSERT_EQ(0, kv_seq_open(self->cache, NULL, 0, 0, &salt, 0, &s->seq,
				 &matched, &miss));
	return s;
}

static struct plan_seq *fork_ok(struct fixture_plan *self,
				const struct plan_seq *from)
{
	struct plan_seq *s = &self->seqs[self->nr_seqs++];

	*s = *from;
	ASSERT_EQ(0, kv_seq_fork(from->seq, 0, &s->seq));
	return s;
}

/* The last @nr tokens of a sequence are rows of the batch. */
static void add_item(struct fixture_plan *self, uint32_t item,
		     const struct plan_seq *s, uint32_t nr)
{
	uint32_t pos = kv_seq_len(s->seq) - nr;

	self->items[item] =
		(struct plan_item){ s->seq, self->nr_rows, nr, pos };
	for (uint32_t i = 0; i < nr; i++) {
		self->row_seq[self->nr_rows] = s;
		self->row_pos[self->nr_rows++] = pos + i;
	}
}

static uint32_t first_seen(uint32_t pos, uint32_t window)
{
	return window && pos >= window ? pos - window + 1 : 0;
}

/* Pieces of a unit: where every row of it finds its own keys. */
static void check_pieces(struct fixture_plan *self,
			 const struct attn_plan *plan,
			 const struct attn_unit *unit, uint32_t stream)
{
	const struct attn_layout *l = kv_cache_layout(self->cache, stream);
	const struct attn_piece *piece = plan->pieces + unit->first_piece;
	uint32_t split_first = unit->first_split * ATTN_SPLIT_TOKENS;
	uint32_t split_end = split_first + unit->nr_splits * ATTN_SPLIT_TOKENS;

	ASSERT_TRUE(unit->nr_pieces > 0);
	for (uint32_t i = 0; i < unit->nr_pieces; i++, piece++) {
		ASSERT_TRUE(piece->first_token < piece->end_token);
		ASSERT_TRUE(piece->first_token >= split_first);
		ASSERT_TRUE(piece->end_token <= split_end);
		ASSERT_EQ(0, piece->base_token % T);
		ASSERT_TRUE(piece->base_token <= piece->first_token);
		if (i)
			ASSERT_EQ(piece[-1].end_token, piece->first_token);
		if (i)
			ASSERT_EQ(0, piece->first_token % T);
		for (uint32_t r = 0; r < unit->nr_rows; r++) {
			const struct attn_row *row =
				plan->rows + unit->first_row + r;
			const uint64_t *hashes =
				self->row_seq[row->batch_row]->hashes;

			for (uint32_t t = piece->first_token;
			     t < piece->end_token; t++) {
				if (t >= row->end_key || t < row->first_key)
					continue;
				ASSERT_TRUE(kit_matches(l,
							attn_tile(l, piece, t),
							t % T, hashes[t]));
			}
		}
	}
}

struct row_account {
	uint32_t nr_units;
	uint32_t nr_keys;
	uint32_t slots[MAX_SPLITS]; /* by split */
	bool seen[MAX_SPLITS];
	bool is_whole; /* one unit for all splits */
};

static void check_unit(struct fixture_plan *self, const struct attn_plan *plan,
		       const struct attn_unit *unit, uint32_t window,
		       struct row_account *rows)
{
	const struct attn_piece *pieces = plan->pieces + unit->first_piece;
	uint32_t first = pieces[0].first_token,
		 end = pieces[unit->nr_pieces - 1].end_token;

	for (uint32_t r = 0; r < unit->nr_rows; r++) {
		const struct attn_row *row = plan->rows + unit->first_row + r;
		struct row_account *account = &rows[row->batch_row];
		uint32_t lo = row->first_key, hi = row->end_key;

		ASSERT_EQ(self->row_pos[row->batch_row] + 1, row->end_key);
		ASSERT_EQ(first_seen(row->end_key - 1, window), row->first_key);
		if (r)
			ASSERT_TRUE(row[-1].end_key <= row->end_key);
		account->nr_units++;
		account->is_whole = unit->nr_splits > 1;
		if (unit->nr_splits > 1)
			ASSERT_EQ(ATTN_SLOT_DIRECT, row->slot);
		for (uint32_t split = unit->first_split;
		     split < unit->first_split + unit->nr_splits; split++) {
			ASSERT_FALSE(account->seen[split]);
			account->seen[split] = true;
			account->slots[split] = row->slot;
		}
		lo = lo > first ? lo : first;
		hi = hi < end ? hi : end;
		ASSERT_TRUE(lo < hi);
		account->nr_keys += hi - lo;
	}
}

static void check_row(const struct attn_plan *plan, uint32_t batch_row,
		      uint32_t pos, uint32_t window,
		      const struct row_account *account, bool *slot_used)
{
	uint32_t first = first_seen(pos, window), nr_merges = 0;
	uint32_t first_split = first / ATTN_SPLIT_TOKENS;
	uint32_t nr_splits = pos / ATTN_SPLIT_TOKENS - first_split + 1;

	/* Each unit covers other splits, so this is: every visible key once. */
	ASSERT_EQ(account->is_whole ? 1 : nr_splits, account->nr_units);
	ASSERT_EQ(pos + 1 - first, account->nr_keys);
	for (uint32_t m = 0; m < plan->nr_merges; m++) {
		if (plan->merges[m].batch_row != batch_row)
			continue;
		nr_merges++;
		ASSERT_EQ(nr_splits, plan->merges[m].nr_slots);
		for (uint32_t i = 0; i < nr_splits; i++) {
			uint32_t slot = plan->merges[m].first_slot + i;

			ASSERT_EQ(slot, account->slots[first_split + i]);
			ASSERT_TRUE(slot < plan->nr_slots);
			ASSERT_FALSE(slot_used[slot]);
			slot_used[slot] = true;
		}
	}
	ASSERT_EQ(nr_splits > 1 && !account->is_whole, nr_merges);
	if (nr_splits == 1)
		ASSERT_EQ(ATTN_SLOT_DIRECT, account->slots[first_split]);
}

/* Return: units. */
static uint32_t check_plan(struct fixture_plan *self, uint32_t stream,
			   uint32_t nr_items, uint32_t max_unit_rows)
{
	static struct row_account rows[MAX_ROWS];
	static bool slot_used[MAX_ROWS * MAX_SPLITS];
	struct attn_plan plan;

	memset(rows, 0, sizeof(rows));
	memset(slot_used, 0, sizeof(slot_used));
	memset(&plan, 0xcc, sizeof(plan));
	ASSERT_EQ(0, plan_build(self->builder, self->cache, stream, self->items,
				nr_items, max_unit_rows, &plan));
	for (uint32_t u = 0; u < plan.nr_units; u++) {
		ASSERT_TRUE(plan.units[u].nr_rows > 0);
		ASSERT_TRUE(plan.units[u].nr_rows <= max_unit_rows);
		check_unit(self, &plan, &plan.units[u],
			   kv_cache_window(self->cache, stream), rows);
		check_pieces(self, &plan, &plan.units[u], stream);
	}
	for (uint32_t r = 0; r < self->nr_rows; r++)
		check_row(&plan, r, self->row_pos[r],
			  kv_cache_window(self->cache, stream), &rows[r],
			  slot_used);
	for (uint32_t i = 0; i < plan.nr_slots; i++)
		ASSERT_TRUE(slot_used[i]);
	return plan.nr_units;
}

TEST_F_TIMEOUT(plan, covers_every_visible_key_once, 60)
{
	static const uint32_t unit_rows[] = { 1, 3, 16, 64 };

	for (uint32_t round = 0; round < 12; round++) {
		struct plan_seq *base = open_ok(self);

		/* A tree: children of children, with tails of their own. */
		for (uint32_t n = kit_below(&self->random, 4); n; n--)
			append_ok(self, base,
				  1 + kit_below(&self->random, 400));
		append_ok(self, base, 1);
		while (self->nr_seqs < MAX_SEQS) {
			struct plan_seq *from = &self->seqs[kit_below(
				&self->random, self->nr_seqs)];
			struct plan_seq *s = kit_below(&self->random, 5) ?
						     fork_ok(self, from) :
						     open_ok(self);

			append_ok(self, s, 1 + kit_below(&self->random, 60));
		}
		self->nr_rows = 0;
		for (uint32_t i = 0; i < MAX_SEQS; i++) {
			/* Decodes, and prompt chunks of up to 40 rows. */
			uint32_t nr = kit_below(&self->random, 2) ?
					      1 :
					      1 + kit_below(&self->random, 40);

			append_ok(self, &self->seqs[i], nr);
			add_item(self, i, &self->seqs[i], nr);
		}
		for (uint32_t i = 0;
		     i < sizeof(unit_rows) / sizeof(unit_rows[0]); i++) {
			check_plan(self, 0, MAX_SEQS, unit_rows[i]);
			check_plan(self, 1, MAX_SEQS, unit_rows[i]);
		}
		while (self->nr_seqs)
			kv_seq_close(self->seqs[--self->nr_seqs].seq);
	}
}

TEST_F(plan, rows_over_a_shared_prefix_share_units)
{
	struct plan_seq *base = open_ok(self);

	append_ok(self, base, 512);
	append_ok(self, base, 512);
	append_ok(self, base, 100);
	while (self->nr_seqs < 8)
		fork_ok(self, base);
	self->nr_rows = 0;
	for (uint32_t i = 0; i < 8; i++) {
		append_ok(self, &self->seqs[i], 1 + i);
		add_item(self, i, &self->seqs[i], 1);
	}
	/* Two full splits for all eight, and a split of its own for each. */
	EXPECT_EQ(2 + 8, check_plan(self, 0, 8, 64));
	/* Units of at most three rows: three for each full split. */
	EXPECT_EQ(2 * 3 + 8, check_plan(self, 0, 8, 3));
}

TEST_F(plan, long_prompt_chunks_cross_splits)
{
	struct plan_seq *base = open_ok(self);

	append_ok(self, base, 500);
	append_ok(self, base, 400);
	self->nr_rows = 0;
	add_item(self, 0, base, 400);
	for (uint32_t rows = 1; rows <= 512; rows *= 8) {
		check_plan(self, 0, 1, rows);
		check_plan(self, 1, 1, rows);
	}
}

TEST_F(plan, a_batch_of_nothing_is_an_empty_plan)
{
	struct attn_plan plan;

	memset(&plan, 0xcc, sizeof(plan));
	ASSERT_EQ(0, plan_build(self->builder, self->cache, 0, NULL, 0, 64,
				&plan));
	EXPECT_EQ(0, plan.nr_units);
	EXPECT_EQ(0, plan.nr_merges);
	EXPECT_EQ(0, plan.nr_slots);
	plan_builder_destroy(NULL);
}

TEST_F(plan, rows_behind_a_window_that_is_gone_are_stale)
{
	struct plan_seq *base = open_ok(self);
	struct attn_plan plan;

	append_ok(self, base, 500);
	append_ok(self, base, 500);
	append_ok(self, base, 500);
	append_ok(self, base, 1);
	self->items[0] = (struct plan_item){ base->seq, 0, 1, 200 };
	EXPECT_EQ(-ESTALE, plan_build(self->builder, self->cache, 1,
				      self->items, 1, 64, &plan));
	EXPECT_EQ(0, plan_build(self->builder, self->cache, 0, self->items, 1,
				64, &plan));
}

TEST_HARNESS_MAIN
