/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds attention plans: each run of rows of a sequence against each anchored
 * split that it sees, then units of different sequences over the same memory
 * joined, so that a shared prefix is read once. Which rows share a unit
 * changes no bit of a result. Driver thread.
 */
#include "engine/kv/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct grown {
	void *data;
	uint32_t nr, capacity;
};

/* A unit before joining: which group it belongs to, and who comes next in it. */
struct draft {
	struct attn_unit unit;
	uint32_t next; /* draft of the same group, or NONE */
	uint32_t last; /* of a group's first: its last draft */
	uint32_t nr_rows; /* of a group's first: rows of all */
	bool is_full; /* every row sees every key of the pieces */
	bool is_joined; /* behind another draft */
};

enum { NONE = UINT32_MAX };

struct stream_plan {
	struct grown drafts, draft_rows; /* before joining */
	struct grown units, rows, pieces, merges;
	struct grown table; /* of first drafts, by their memory */
	uint32_t nr_slots;
	uint32_t nr_full;
};

struct plan_builder {
	struct stream_plan streams[KV_MAX_STREAMS];
	struct grown first_slots; /* of the rows of one run */
};

struct run {
	const struct kv_seq *seq;
	uint32_t first_row, nr_rows, pos;
};

int plan_builder_create(struct plan_builder **out_builder)
{
	*out_builder = calloc(1, sizeof(**out_builder));
	return *out_builder ? 0 : -ENOMEM;
}

void plan_builder_destroy(struct plan_builder *builder)
{
	if (!builder)
		return;
	for (uint32_t s = 0; s < KV_MAX_STREAMS; s++) {
		struct stream_plan *p = &builder->streams[s];

		free(p->drafts.data);
		free(p->draft_rows.data);
		free(p->units.data);
		free(p->rows.data);
		free(p->pieces.data);
		free(p->merges.data);
		free(p->table.data);
	}
	free(builder->first_slots.data);
	free(builder);
}

/* Room for @more elements behind those in use. */
static int reserve(struct grown *array, uint32_t more, size_t elem_bytes)
{
	if (array->capacity - array->nr >= more)
		return 0;
	uint32_t capacity = array->nr + more > 2 * array->capacity ?
				    array->nr + more :
				    2 * array->capacity;
	void *data = realloc(array->data, capacity * elem_bytes);

	if (!data)
		return -ENOMEM;
	array->data = data;
	array->capacity = capacity;
	return 0;
}

static uint32_t first_visible(uint32_t pos, uint32_t window)
{
	return window && pos >= window ? pos - window + 1 : 0;
}

/* Slots and merges of a run's rows: one slot per split that a row sees, if more than one. */
static int give_slots(struct plan_builder *builder, struct stream_plan *p,
		      const struct run *run, uint32_t window)
{
	struct grown *slots = &builder->first_slots;

	slots->nr = 0;
	if (reserve(slots, run->nr_rows, sizeof(uint32_t)) ||
	    reserve(&p->merges, run->nr_rows, sizeof(struct attn_merge)))
		return -ENOMEM;
	for (uint32_t i = 0; i < run->nr_rows; i++) {
		uint32_t pos = run->pos + i;
		uint32_t first = first_visible(pos, window) / ATTN_SPLIT_TOKENS;
		uint32_t nr = pos / ATTN_SPLIT_TOKENS - first + 1;

		((uint32_t *)slots->data)[i] = p->nr_slots;
		if (nr == 1) {
			((uint32_t *)slots->data)[i] = ATTN_SLOT_DIRECT;
			continue;
		}
		((struct attn_merge *)p->merges.data)[p->merges.nr++] =
			(struct attn_merge){
				.batch_row = run->first_row + i,
				.first_slot = p->nr_slots,
				.nr_slots = nr,
			};
		p->nr_slots += nr;
	}
	return 0;
}

/* Rows [first, end) of a run, as offsets, that see something of a split. */
static void rows_of_split(const struct run *run, uint32_t window,
			  uint32_t split, uint32_t *first, uint32_t *end)
{
	uint64_t split_first = (uint64_t)split * ATTN_SPLIT_TOKENS;
	uint64_t last_pos = split_first + ATTN_SPLIT_TOKENS - 1 + window - 1;

	*first = split_first > run->pos ? (uint32_t)(split_first - run->pos) :
					  0;
	*end = run->nr_rows;
	if (window && run->pos + (uint64_t)run->nr_rows - 1 > last_pos)
		*end = (uint32_t)(last_pos + 1 - run->pos);
}

static int draft_split(struct plan_builder *builder, struct stream_plan *p,
		       const struct run *run, uint32_t stream, uint32_t window,
		       uint32_t split)
{
	uint32_t split_first = split * ATTN_SPLIT_TOKENS, first, end;
	const uint32_t *slots = builder->first_slots.data;

	rows_of_split(run, window, split, &first, &end);
	if (reserve(&p->drafts, 1, sizeof(struct draft)) ||
	    reserve(&p->draft_rows, end - first, sizeof(struct attn_row)) ||
	    reserve(&p->pieces, KV_MAX_CHAIN + 1, sizeof(struct attn_piece)))
		return -ENOMEM;
	uint32_t first_key = first_visible(run->pos + first, window),
		 end_key = run->pos + end;
	uint32_t last_seen_first = first_visible(run->pos + end - 1, window);

	if (first_key < split_first)
		first_key = split_first;
	if (end_key > split_first + ATTN_SPLIT_TOKENS)
		end_key = split_first + ATTN_SPLIT_TOKENS;
	int nr = kv_seq_pieces(run->seq, stream, first_key, end_key,
			       (struct attn_piece *)p->pieces.data +
				       p->pieces.nr);

	if (nr < 0)
		return nr;
	struct attn_row *row =
		(struct attn_row *)p->draft_rows.data + p->draft_rows.nr;

	for (uint32_t i = first; i < end; i++, row++) {
		uint32_t pos = run->pos + i;
		uint32_t nth =
			split - first_visible(pos, window) / ATTN_SPLIT_TOKENS;

		row->batch_row = run->first_row + i;
		row->first_key = first_visible(pos, window);
		row->end_key = pos + 1;
		row->slot = slots[i] == ATTN_SLOT_DIRECT ? ATTN_SLOT_DIRECT :
							   slots[i] + nth;
	}
	bool is_full = run->pos + first + 1 >= end_key &&
		       last_seen_first <= first_key;

	((struct draft *)p->drafts.data)[p->drafts.nr++] = (struct draft){
		.unit = { .first_row = p->draft_rows.nr,
			  .nr_rows = end - first,
			  .first_piece = p->pieces.nr,
			  .nr_pieces = (uint32_t)nr,
			  .first_split = split,
			  .nr_splits = 1 },
		.next = NONE,
		.last = p->drafts.nr - 1,
		.nr_rows = end - first,
		.is_full = is_full,
	};
	p->draft_rows.nr += end - first;
	p->pieces.nr += (uint32_t)nr;
	p->nr_full += is_full;
	return 0;
}

/*
 * All splits of a run in one unit: its rows are folded as they go, and no partial state waits in
 * memory. For prompt chunks, which keep every thread busy by their rows alone.
 */
static int draft_whole(struct stream_plan *p, const struct run *run,
		       uint32_t stream, uint32_t window)
{
	uint32_t first_key = first_visible(run->pos, window);
	uint32_t end_key = run->pos + run->nr_rows;
	uint32_t first = first_key / ATTN_SPLIT_TOKENS;

	if (reserve(&p->drafts, 1, sizeof(struct draft)) ||
	    reserve(&p->draft_rows, run->nr_rows, sizeof(struct attn_row)) ||
	    reserve(&p->pieces, KV_MAX_CHAIN + 1, sizeof(struct attn_piece)))
		return -ENOMEM;
	int nr = kv_seq_pieces(run->seq, stream, first_key, end_key,
			       (struct attn_piece *)p->pieces.data +
				       p->pieces.nr);

	if (nr < 0)
		return nr;
	for (uint32_t i = 0; i < run->nr_rows; i++)
		((struct attn_row *)p->draft_rows.data)[p->draft_rows.nr + i] =
			(struct attn_row){
				.batch_row = run->first_row + i,
				.first_key =
					first_visible(run->pos + i, window),
				.end_key = run->pos + i + 1,
				.slot = ATTN_SLOT_DIRECT,
			};
	((struct draft *)p->drafts.data)[p->drafts.nr++] = (struct draft){
		.unit = { .first_row = p->draft_rows.nr,
			  .nr_rows = run->nr_rows,
			  .first_piece = p->pieces.nr,
			  .nr_pieces = (uint32_t)nr,
			  .first_split = first,
			  .nr_splits = (end_key - 1) / ATTN_SPLIT_TOKENS -
				       first + 1 },
		.next = NONE,
		.last = p->drafts.nr - 1,
		.nr_rows = run->nr_rows,
	};
	p->draft_rows.nr += run->nr_rows;
	p->pieces.nr += (uint32_t)nr;
	return 0;
}

static int draft_run(struct plan_builder *builder, struct stream_plan *p,
		     const struct run *run, uint32_t stream, uint32_t window)
{
	uint32_t first = first_visible(run->pos, window) / ATTN_SPLIT_TOKENS;
	uint32_t last = (run->pos + run->nr_rows - 1) / ATTN_SPLIT_TOKENS;

	if (run->nr_rows >= PLAN_WHOLE_ROWS && first < last)
		return draft_whole(p, run, stream, window);
	int err = give_slots(builder, p, run, window);

	for (uint32_t split = first; !err && split <= last; split++)
		err = draft_split(builder, p, run, stream, window, split);
	return err;
}

static bool is_same_memory(const struct stream_plan *p, const struct draft *a,
			   const struct draft *b)
{
	const struct attn_piece *pieces = p->pieces.data;

	if (a->unit.first_split != b->unit.first_split ||
	    a->unit.nr_pieces != b->unit.nr_pieces)
		return false;
	for (uint32_t i = 0; i < a->unit.nr_pieces; i++) {
		const struct attn_piece *x = &pieces[a->unit.first_piece + i];
		const struct attn_piece *y = &pieces[b->unit.first_piece + i];

		if (x->base != y->base || x->base_token != y->base_token ||
		    x->first_token != y->first_token ||
		    x->end_token != y->end_token)
			return false;
	}
	return true;
}

/* Chain drafts over the same memory whose rows all see all of it, up to a unit's rows. */
static int join_drafts(struct stream_plan *p, uint32_t max_unit_rows)
{
	struct draft *drafts = p->drafts.data;
	const struct attn_piece *pieces = p->pieces.data;
	uint32_t size = 16;

	while (size < 2 * p->nr_full)
		size *= 2;
	p->table.nr = 0;
	if (reserve(&p->table, size, sizeof(uint32_t)))
		return -ENOMEM;
	uint32_t *table = p->table.data;

	memset(table, 0xff, size * sizeof(*table));
	for (uint32_t i = 0; i < p->drafts.nr; i++) {
		struct draft *draft = &drafts[i];

		if (!draft->is_full || !draft->unit.nr_pieces)
			continue;
		uint64_t hash = (uintptr_t)pieces[draft->unit.first_piece].base;

		hash = (hash ^ pieces[draft->unit.first_piece].first_token) *
		       0x9e3779b97f4a7c15ull;
		uint32_t at = (hash >> 40) & (size - 1);

		while (table[at] != NONE &&
		       !is_same_memory(p, &drafts[table[at]], draft))
			at = (at + 1) & (size - 1);
		struct draft *head = table[at] == NONE ? NULL :
							 &drafts[table[at]];

		if (!head || head->nr_rows + draft->nr_rows > max_unit_rows) {
			table[at] =
				i; /* a full unit is left behind: the next ones gather here */
			continue;
		}
		drafts[head->last].next = i;
		head->last = i;
		head->nr_rows += draft->nr_rows;
		draft->is_joined = true;
	}
	return 0;
}

/* Rows of a unit ascend by their end; few are out of order, so insertion is quick. */
static void sort_rows(struct attn_row *rows, uint32_t nr)
{
	for (uint32_t i = 1; i < nr; i++) {
		struct attn_row row = rows[i];
		uint32_t at = i;

		for (; at && rows[at - 1].end_key > row.end_key; at--)
			rows[at] = rows[at - 1];
		rows[at] = row;
	}
}

static int write_units(struct stream_plan *p)
{
	const struct draft *drafts = p->drafts.data;
	const struct attn_row *draft_rows = p->draft_rows.data;

	if (reserve(&p->units, p->drafts.nr, sizeof(struct attn_unit)) ||
	    reserve(&p->rows, p->draft_rows.nr, sizeof(struct attn_row)))
		return -ENOMEM;
	struct attn_row *rows = p->rows.data;

	for (uint32_t i = 0; i < p->drafts.nr; i++) {
		if (drafts[i].is_joined)
			continue;
		struct attn_unit *unit =
			(struct attn_unit *)p->units.data + p->units.nr++;

		*unit = drafts[i].unit;
		unit->first_row = p->rows.nr;
		for (uint32_t d = i; d != NONE; d = drafts[d].next) {
			const struct attn_unit *from = &drafts[d].unit;

			memcpy(rows + p->rows.nr, draft_rows + from->first_row,
			       from->nr_rows * sizeof(*rows));
			p->rows.nr += from->nr_rows;
		}
		unit->nr_rows = p->rows.nr - unit->first_row;
		if (drafts[i].next != NONE)
			sort_rows(rows + unit->first_row, unit->nr_rows);
	}
	return 0;
}

static void reset(struct stream_plan *p)
{
	p->drafts.nr = 0;
	p->draft_rows.nr = 0;
	p->units.nr = 0;
	p->rows.nr = 0;
	p->pieces.nr = 0;
	p->merges.nr = 0;
	p->nr_slots = 0;
	p->nr_full = 0;
}

int plan_build(struct plan_builder *builder, const struct kv_cache *cache,
	       uint32_t stream, const struct plan_item *items,
	       uint32_t nr_items, uint32_t max_unit_rows,
	       struct attn_plan *out_plan)
{
	struct stream_plan *p = &builder->streams[stream];
	uint32_t window = kv_cache_window(cache, stream);
	int err = 0;

	reset(p);
	for (uint32_t i = 0; i < nr_items; i++) {
		for (uint32_t done = 0; !err && done < items[i].nr_rows;
		     done += max_unit_rows) {
			uint32_t left = items[i].nr_rows - done;
			struct run run = {
				.seq = items[i].seq,
				.first_row = items[i].first_row + done,
				.nr_rows = left < max_unit_rows ? left :
								  max_unit_rows,
				.pos = items[i].pos + done,
			};

			err = draft_run(builder, p, &run, stream, window);
		}
	}
	if (!err && nr_items > 1)
		err = join_drafts(p, max_unit_rows);
	if (!err)
		err = write_units(p);
	if (err)
		return err;
	*out_plan = (struct attn_plan){
		.units = p->units.data,
		.nr_units = p->units.nr,
		.rows = p->rows.data,
		.pieces = p->pieces.data,
		.merges = p->merges.data,
		.nr_merges = p->merges.nr,
		.nr_slots = p->nr_slots,
	};
	return 0;
}
