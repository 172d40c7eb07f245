/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who computes what of an attention plan on the GPU, as a property: whatever the
 * batch, each visible key of each row belongs to exactly one unit of attn_any, one
 * split of attn_decode or one run of attn_prefill, which find it in the tile that
 * holds it; the results of a row's splits come together in one place.
 */
#include "tests/harness.h"

#include "engine/backend/gpu_private.h"
#include "engine/kv/plan.h"
#include "tests/engine/kv_kit.h"
#include "tests/engine/kv_pool_kit.h"

enum {
	T = 16,
	MAX_TOKENS = 2600,
	MAX_SEQS = 12,
	MAX_ROWS = 512,
	MAX_SPLITS = 8,
	GRANULE = 65536,
	NONE = -1,
};

struct plan_seq {
	struct kv_seq *seq;
	int32_t tokens[MAX_TOKENS];
};

FIXTURE(split)
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
	struct gpu_backend *gpu;
	/* What the sorted plans had, to see that all of it was met. */
	uint32_t nr_splits, nr_runs, nr_units, nr_merges, nr_shared;
};

FIXTURE_VARIANT(split)
{
	uint32_t window; /* of the second stream */
	bool is_slow; /* heads that only attn_any serves */
};

FIXTURE_VARIANT_ADD(split, window_100){ .window = 100 };
FIXTURE_VARIANT_ADD(split, window_700){ .window = 700 };
FIXTURE_VARIANT_ADD(split, other_heads){ .window = 100, .is_slow = true };

FIXTURE_SETUP(split)
{
	self->pool = kit_pool(GRANULE, true, 1 << 28, 1 << 22);
	struct kv_cache_options options = {
		.pool = self->pool,
		.nr_streams = 2,
		.elem = ATTN_BF16,
		.streams = { { .nr_layers = 1,
			       .nr_kv_heads = 1,
			       .head_dim = 128 },
			     { .nr_layers = 1,
			       .nr_kv_heads = 1,
			       .head_dim = 128,
			       .window_tokens = variant->window } },
		.max_tokens = MAX_TOKENS,
		.tile_tokens = T,
		.prefix_cache = true,
		.is_k_by_token = true,
	};

	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	ASSERT_EQ(0, plan_builder_create(&self->builder));
	self->random.state = 11 + variant->window;
	self->gpu = aligned_alloc(64, sizeof(*self->gpu));
	memset(self->gpu, 0, sizeof(*self->gpu));
	self->gpu->has_fast_attn = !variant->is_slow;
	self->gpu->shape.kv_base = (uintptr_t)kv_cache_base(self->cache);
	self->gpu->shape.nr_streams = 2;
	for (uint32_t s = 0; s < 2; s++) {
		struct gpu_plan *p = &self->gpu->plans[s];

		self->gpu->shape.layouts[s] = *kv_cache_layout(self->cache, s);
		p->seq_of_row = calloc(MAX_ROWS, sizeof(uint32_t));
		p->first_partial = calloc(MAX_ROWS, sizeof(uint32_t));
	}
}

FIXTURE_TEARDOWN(split)
{
	(void)variant;
	while (self->nr_seqs)
		kv_seq_close(self->seqs[--self->nr_seqs].seq);
	for (uint32_t s = 0; s < 2; s++)
		gpu_plan_free(&self->gpu->plans[s]);
	free(self->gpu);
	plan_builder_destroy(self->builder);
	kv_cache_destroy(self->cache);
	kit_pool_put(self->pool);
}

static void append_ok(struct fixture_split *self, struct plan_seq *s,
		      uint32_t nr)
{
	uint32_t at = kv_seq_len(s->seq);

	for (uint32_t i = at; i < at + nr; i++)
		s->tokens[i] = (int32_t)kit_below(&self->random, 50);
	ASSERT_EQ(0, kv_seq_append(s->seq, s->tokens + at, nr));
}

static struct plan_seq *open_ok(struct fixture_split *self)
{
	struct plan_seq *s = &self->seqs[self->nr_seqs++];
	static const struct kvpool_key salt;
	uint32_t matched;
	enum kv_miss miss;

	ASSERT_EQ(0, kv_seq_open(self->cache, NULL, 0, 0, &salt, 0, &s->seq,
				 &matched, &miss));
	return s;
}

static struct plan_seq *fork_ok(struct fixture_split *self,
				const struct plan_seq *from)
{
	struct plan_seq *s = &self->seqs[self->nr_seqs++];

	*s = *from;
	ASSERT_EQ(0, kv_seq_fork(from->seq, 0, &s->seq));
	return s;
}

/* The last @nr tokens of a sequence are rows of the batch. */
static void add_item(struct fixture_split *self, uint32_t item,
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

/* ---- accounts ---- */

struct account {
	uint8_t seen[MAX_TOKENS]; /* by how many parts of the plan */
	/* Partial results by split: a slot of attn_any, one of attn_decode; NONE. */
	int slots[MAX_SPLITS], partials[MAX_SPLITS];
	uint32_t nr_direct; /* parts that write the row's result */
};

struct check {
	struct fixture_split *self;
	uint32_t stream;
	const struct attn_plan *plan;
	struct account *rows;
};

/* Where the sequence of a row has a token. */
static const uint8_t *true_tile(const struct check *c, uint32_t row,
				uint32_t token)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];
	const struct kv_seq *seq = c->self->row_seq[row]->seq;
	int nr = kv_seq_pieces(seq, c->stream, token, token + 1, pieces);

	ASSERT_EQ(1, nr);
	return attn_tile(kv_cache_layout(c->self->cache, c->stream), pieces,
			 token);
}

static void see(const struct check *c, uint32_t row, uint32_t token)
{
	ASSERT_LT(row, c->self->nr_rows);
	ASSERT_EQ(0, c->rows[row].seen[token]);
	c->rows[row].seen[token]++;
}

/* Keys [first, end) of a row over pieces as the tensor maps count, from number @piece on. */
static void see_fast(const struct check *c, uint32_t row,
		     const struct gpu_attn_piece *piece, uint32_t first,
		     uint32_t end)
{
	const struct attn_layout *l =
		kv_cache_layout(c->self->cache, c->stream);
	const uint8_t *base = kv_cache_base(c->self->cache);

	ASSERT_LE(piece->first_token, first);
	for (uint32_t t = first; t < end; t++) {
		while (t >= piece->end_token) {
			ASSERT_EQ(piece[0].end_token, piece[1].first_token);
			piece++;
		}
		see(c, row, t);
		/* All tokens of a tile lie in it: the first one says. */
		if (t % T && t != first)
			continue;
		uint64_t tile = piece->first_tile +
				(t - piece->first_token / T * T) / T;

		ASSERT_EQ((uintptr_t)true_tile(c, row, t),
			  (uintptr_t)(base + tile * l->stride_bytes));
	}
}

static void check_units(const struct check *c, const struct gpu_plan *p)
{
	const struct attn_unit *units = p->any_units.data;

	for (uint32_t i = 0; i < p->any_units.nr; i++) {
		const struct attn_unit *u = &units[i];
		const struct attn_piece *pieces =
			c->plan->pieces + u->first_piece;
		uint32_t first = pieces[0].first_token;
		uint32_t end = pieces[u->nr_pieces - 1].end_token;

		ASSERT_LE(u->nr_rows, p->max_unit_rows);
		c->self->nr_shared += u->nr_rows > 1;
		for (uint32_t r = 0; r < u->nr_rows; r++) {
			const struct attn_row *row =
				c->plan->rows + u->first_row + r;
			struct account *a = &c->rows[row->batch_row];

			for (uint32_t t = first; t < end; t++)
				if (t >= row->first_key && t < row->end_key)
					see(c, row->batch_row, t);
			if (row->slot == ATTN_SLOT_DIRECT)
				a->nr_direct++;
			else
				a->slots[u->first_split] = (int)row->slot;
		}
	}
}

static void check_splits(const struct check *c, const struct gpu_plan *p)
{
	const struct gpu_attn_split *splits = p->splits.data;
	const struct gpu_attn_piece *pieces = p->fast_pieces.data;

	for (uint32_t i = 0; i < p->splits.nr; i++) {
		const struct gpu_attn_split *s = &splits[i];
		struct account *a = &c->rows[s->row];
		uint32_t nth = s->first_token / ATTN_SPLIT_TOKENS;
		uint32_t end_key = c->self->row_pos[s->row] + 1;

		ASSERT_EQ(0, s->first_token % ATTN_SPLIT_TOKENS);
		ASSERT_LT(s->seq, p->nr_lone);
		ASSERT_EQ((end_key - 1) / ATTN_SPLIT_TOKENS + 1, s->nr_splits);
		ASSERT_LE(s->first_partial + s->nr_splits, p->nr_partials);
		ASSERT_EQ(0, memcmp(&s->piece, &pieces[s->next_piece - 1],
				    sizeof(s->piece)));
		ASSERT_EQ(s->first_token, s->piece.first_token);
		ASSERT_EQ(NONE, a->partials[nth]);
		a->partials[nth] = (int)(s->first_partial + nth);
		see_fast(c, s->row, &pieces[s->next_piece - 1], s->first_token,
			 s->end_token);
		if (i) /* the heaviest first */
			ASSERT_GE(s[-1].end_token - s[-1].first_token,
				  s->end_token - s->first_token);
	}
}

static void check_runs(const struct check *c, const struct gpu_plan *p)
{
	const struct gpu_attn_unit *units = p->runs.data;
	const struct gpu_attn_seq *seqs = p->seqs.data;
	const struct gpu_attn_piece *pieces = p->fast_pieces.data;
	bool has_seq[MAX_ROWS] = { false };

	for (uint32_t i = 0; i < p->runs.nr; i++) {
		const struct gpu_attn_seq *s = &seqs[units[i].seq];

		ASSERT_LT(units[i].seq, p->seqs.nr);
		ASSERT_FALSE(has_seq[units[i].seq]);
		has_seq[units[i].seq] = true;
		ASSERT_EQ(0, units[i].tile);
		ASSERT_LE(s->nr_rows, GPU_ATTN_PREFILL_ROWS);
		ASSERT_EQ(s->first_pos + s->nr_rows, s->nr_tokens);
		for (uint32_t r = 0; r < s->nr_rows; r++) {
			uint32_t row = s->first_row + r;

			ASSERT_EQ(c->self->row_pos[row], s->first_pos + r);
			see_fast(c, row, &pieces[s->first_piece], 0,
				 s->first_pos + r + 1);
			c->rows[row].nr_direct++;
		}
	}
}

/* Slots [0, nr) that rows leave partial results in: all of them, none twice. */
static void take_slot(bool *is_taken, uint32_t nr, int slot)
{
	ASSERT_TRUE(slot >= 0 && (uint32_t)slot < nr);
	ASSERT_FALSE(is_taken[slot]);
	is_taken[slot] = true;
}

static void check_row(const struct check *c, const struct gpu_plan *p,
		      uint32_t row, bool *slots, bool *partials)
{
	const struct account *a = &c->rows[row];
	const struct attn_merge *merges = p->any_merges.data;
	uint32_t pos = c->self->row_pos[row], nr_merges = 0, nr_partials = 0;
	uint32_t first =
		first_seen(pos, kv_cache_window(c->self->cache, c->stream));
	uint32_t first_split = first / ATTN_SPLIT_TOKENS;
	uint32_t nr = pos / ATTN_SPLIT_TOKENS - first_split + 1;

	for (uint32_t t = 0; t < MAX_TOKENS; t++)
		ASSERT_EQ(t >= first && t <= pos, a->seen[t]);
	for (uint32_t i = 0; i < MAX_SPLITS; i++) {
		if (a->partials[i] == NONE)
			continue;
		nr_partials++;
		take_slot(partials, p->nr_partials, a->partials[i]);
	}
	for (uint32_t m = 0; m < p->any_merges.nr; m++) {
		if (merges[m].batch_row != row)
			continue;
		nr_merges++;
		ASSERT_EQ(nr, merges[m].nr_slots);
		for (uint32_t i = 0; i < nr; i++) {
			ASSERT_EQ((int)(merges[m].first_slot + i),
				  a->slots[first_split + i]);
			take_slot(slots, c->plan->nr_slots,
				  a->slots[first_split + i]);
		}
	}
	/* One place has the row's result: a part that writes it, a merge, or attn_decode. */
	ASSERT_EQ(1, a->nr_direct + nr_merges + (nr_partials > 0));
	if (nr_partials)
		ASSERT_EQ(nr, nr_partials);
}

/* A piece may name any tile in front of its first: count some of them from the one before. */
static void move_bases(struct fixture_split *self, uint32_t stream,
		       const struct attn_plan *plan)
{
	uint64_t stride = kv_cache_layout(self->cache, stream)->stride_bytes;
	const uint8_t *first = kv_cache_base(self->cache);

	for (uint32_t i = 0; i < plan->nr_units; i++) {
		struct attn_piece *p =
			(struct attn_piece *)&plan
				->pieces[plan->units[i].first_piece];

		if (p->base_token < T || p->base < first + stride ||
		    kit_below(&self->random, 2))
			continue;
		p->base -= stride;
		p->base_token -= T;
	}
}

static void check_plan(struct fixture_split *self, uint32_t stream,
		       uint32_t nr_items, uint32_t max_unit_rows)
{
	static struct account rows[MAX_ROWS];
	static bool slots[MAX_ROWS * MAX_SPLITS],
		partials[MAX_ROWS * MAX_SPLITS];
	struct gpu_backend *gpu = self->gpu;
	const struct gpu_plan *p = &gpu->plans[stream];
	struct check c = { self, stream, &gpu->batch.plans[stream], rows };

	memset(rows, 0, sizeof(rows));
	memset(slots, 0, sizeof(slots));
	memset(partials, 0, sizeof(partials));
	for (uint32_t i = 0; i < MAX_ROWS; i++) {
		memset(rows[i].slots, 0xff, sizeof(rows[i].slots));
		memset(rows[i].partials, 0xff, sizeof(rows[i].partials));
	}
	ASSERT_EQ(0, plan_build(self->builder, self->cache, stream, self->items,
				nr_items, max_unit_rows,
				&gpu->batch.plans[stream]));
	move_bases(self, stream, &gpu->batch.plans[stream]);
	gpu->batch.nr_rows = self->nr_rows;
	ASSERT_EQ(0, gpu_plan_split(gpu, stream));
	check_units(&c, p);
	check_splits(&c, p);
	check_runs(&c, p);
	for (uint32_t r = 0; r < self->nr_rows; r++)
		check_row(&c, p, r, slots, partials);
	for (uint32_t i = 0; i < p->nr_partials; i++)
		ASSERT_TRUE(partials[i]);
	self->nr_splits += p->splits.nr;
	self->nr_runs += p->runs.nr;
	self->nr_units += p->any_units.nr;
	self->nr_merges += p->any_merges.nr;
}

/* Rows that decode, chunks short and long. */
static uint32_t some_rows(struct fixture_split *self)
{
	switch (kit_below(&self->random, 4)) {
	case 0:
		return 1 + kit_below(&self->random, 20);
	case 1:
		return 1 + kit_below(&self->random, 150);
	default:
		return 1;
	}
}

TEST_F_TIMEOUT(split, computes_every_visible_key_once, 120)
{
	static const uint32_t unit_rows[] = { 1, 16, 100, GPU_UNIT_ROWS };

	for (uint32_t round = 0; round < 10; round++) {
		struct plan_seq *base = open_ok(self);

		/* A tree: children of children, with tails of their own. */
		for (uint32_t n = kit_below(&self->random, 5); n; n--)
			append_ok(self, base,
				  1 + kit_below(&self->random, 400));
		append_ok(self, base, 1);
		while (self->nr_seqs < MAX_SEQS) {
			struct plan_seq *from = &self->seqs[kit_below(
				&self->random, self->nr_seqs)];
			struct plan_seq *s = kit_below(&self->random, 4) ?
						     fork_ok(self, from) :
						     open_ok(self);

			append_ok(self, s, 1 + kit_below(&self->random, 60));
		}
		self->nr_rows = 0;
		for (uint32_t i = 0; i < MAX_SEQS; i++) {
			uint32_t nr = some_rows(self);

			if (self->nr_rows + nr + MAX_SEQS > MAX_ROWS)
				nr = 1;
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
	TH_LOG("%u splits, %u runs, %u units (%u of several rows), %u merges",
	       self->nr_splits, self->nr_runs, self->nr_units, self->nr_shared,
	       self->nr_merges);
	EXPECT_EQ(!variant->is_slow, self->nr_splits > 100);
	EXPECT_EQ(!variant->is_slow, self->nr_runs > 50);
	EXPECT_GT(self->nr_shared, 50);
	EXPECT_GT(self->nr_merges, 20);
}

TEST_F(split, long_contexts_decode_by_splits)
{
	struct plan_seq *a = open_ok(self), *b = open_ok(self);

	for (uint32_t i = 0; i < 5; i++)
		append_ok(self, a, 500);
	append_ok(self, b, 512);
	self->nr_rows = 0;
	append_ok(self, a, 1);
	append_ok(self, b, 1);
	add_item(self, 0, a, 1);
	add_item(self, 1, b, 1);
	check_plan(self, 0, 2, GPU_UNIT_ROWS);
	/* 2501 keys: five splits; 513: two. */
	EXPECT_EQ(variant->is_slow ? 0 : 7, self->nr_splits);
	EXPECT_EQ(variant->is_slow ? 7 : 0, self->nr_units);
	check_plan(self, 1, 2, GPU_UNIT_ROWS);
}

TEST_F(split, a_split_that_others_share_takes_its_row_along)
{
	struct plan_seq *base = open_ok(self);

	append_ok(self, base, 512);
	append_ok(self, base, 100);
	fork_ok(self, base);
	append_ok(self, &self->seqs[0], 1);
	append_ok(self, &self->seqs[1], 1);
	self->nr_rows = 0;
	add_item(self, 0, &self->seqs[0], 1);
	add_item(self, 1, &self->seqs[1], 1);
	check_plan(self, 0, 2, GPU_UNIT_ROWS);
	EXPECT_EQ(0, self->nr_splits);
	EXPECT_EQ(3, self->nr_units);
	EXPECT_EQ(2, self->nr_merges);
}

TEST_F(split, chunks_of_a_prompt_are_runs)
{
	struct plan_seq *base = open_ok(self);

	append_ok(self, base, 500);
	append_ok(self, base, 15);
	self->nr_rows = 0;
	add_item(self, 0, base, 15); /* too few for a run */
	check_plan(self, 0, 1, GPU_UNIT_ROWS);
	EXPECT_EQ(0, self->nr_runs);
	append_ok(self, base, 300);
	self->nr_rows = 0;
	add_item(self, 0, base, 300);
	self->nr_units = 0;
	check_plan(self, 0, 1, GPU_UNIT_ROWS);
	EXPECT_EQ(variant->is_slow ? 0 : 3, self->nr_runs); /* 128, 128, 44 */
	EXPECT_EQ(variant->is_slow ? 3 : 0, self->nr_units);
	check_plan(self, 1, 1, GPU_UNIT_ROWS);
}

TEST_HARNESS_MAIN
