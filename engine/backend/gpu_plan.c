/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which attention kernel computes which part of a step's plan. Heads of 128
 * without windows have kernels of their own, for rows that decode by
 * themselves (attn_decode.cu) and for runs of a prompt (attn_prefill.cu);
 * everything else is attn_any.cu's. All of them give the same bits, so sorting
 * the plan's units changes none. Driver thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/backend/gpu_private.h"

enum {
	MIN_PREFILL_ROWS = 16, /* fewer leave most of a tile of 128 rows idle */
};

/* Room for @nr more of @elem_bytes behind @used. */
static int reserve(struct gpu_host_array *a, uint32_t nr, size_t elem_bytes)
{
	void *grown;

	if (nr <= a->capacity)
		return 0;
	grown = realloc(a->data, nr * 2 * elem_bytes);
	if (!grown)
		return -ENOMEM;
	a->data = grown;
	a->capacity = nr * 2;
	return 0;
}

static uint32_t nr_row_splits(const struct attn_row *row)
{
	return (row->end_key - 1) / ATTN_SPLIT_TOKENS + 1;
}

/* One row, one split, everything before the row in sight. */
static bool is_decode_unit(const struct attn_plan *plan,
			   const struct attn_unit *u)
{
	return u->nr_rows == 1 && u->nr_splits == 1 &&
	       plan->rows[u->first_row].first_key == 0;
}

/* Consecutive rows of one sequence that see everything before them. */
static bool is_prefill_unit(const struct attn_plan *plan,
			    const struct attn_unit *u)
{
	const struct attn_row *rows = plan->rows + u->first_row;

	if (u->nr_rows < MIN_PREFILL_ROWS ||
	    u->nr_rows > GPU_ATTN_PREFILL_ROWS || u->first_split ||
	    plan->pieces[u->first_piece].first_token)
		return false;
	for (uint32_t i = 0; i < u->nr_rows; i++)
		if (rows[i].first_key || rows[i].slot != ATTN_SLOT_DIRECT ||
		    rows[i].batch_row != rows[0].batch_row + i ||
		    rows[i].end_key != rows[0].end_key + i)
			return false;
	return plan->pieces[u->first_piece + u->nr_pieces - 1].end_token ==
	       rows[u->nr_rows - 1].end_key;
}

/* Pieces as the tensor maps count: tiles from the pool's first address. */
static int convert_pieces(struct gpu_backend *gpu, struct gpu_plan *p,
			  const struct attn_layout *l,
			  const struct attn_plan *plan, uint32_t nr)
{
	struct gpu_attn_piece *to;

	if (reserve(&p->fast_pieces, nr, sizeof(*to)))
		return -ENOMEM;
	to = p->fast_pieces.data;
	for (uint32_t i = 0; i < nr; i++) {
		const struct attn_piece *from = &plan->pieces[i];
		uint64_t ahead =
			(uint64_t)(uintptr_t)from->base - gpu->shape.kv_base;

		to[i] = (struct gpu_attn_piece){
			.first_token = from->first_token,
			.end_token = from->end_token,
			.first_tile = (uint32_t)(ahead / l->stride_bytes) +
				      (from->first_token - from->base_token) /
					      l->tile_tokens,
		};
	}
	p->fast_pieces.nr = nr;
	return 0;
}

static void add_split(struct gpu_plan *p, const struct attn_plan *plan,
		      const struct attn_unit *u, uint32_t *seq_of_row)
{
	const struct attn_row *row = &plan->rows[u->first_row];
	struct gpu_attn_split *s =
		(struct gpu_attn_split *)p->splits.data + p->splits.nr++;
	const struct gpu_attn_piece *pieces = p->fast_pieces.data;
	uint32_t first = u->first_split * ATTN_SPLIT_TOKENS;

	*s = (struct gpu_attn_split){
		.first_token = first,
		.end_token = row->end_key < first + ATTN_SPLIT_TOKENS ?
				     row->end_key :
				     first + ATTN_SPLIT_TOKENS,
		.seq = seq_of_row[row->batch_row],
		.row = row->batch_row,
		.nr_splits = nr_row_splits(row),
		.first_partial = p->first_partial[row->batch_row],
		.next_piece = u->first_piece + 1,
		.piece = pieces[u->first_piece],
	};
}

static void add_run(struct gpu_plan *p, const struct attn_plan *plan,
		    const struct attn_unit *u)
{
	const struct attn_row *rows = plan->rows + u->first_row;
	struct gpu_attn_seq *seqs = p->seqs.data;
	struct gpu_attn_unit *units = p->runs.data;

	seqs[p->seqs.nr] = (struct gpu_attn_seq){
		.first_piece = u->first_piece,
		.nr_tokens = rows[u->nr_rows - 1].end_key,
		.first_row = rows[0].batch_row,
		.nr_rows = u->nr_rows,
		.first_pos = rows[0].end_key - 1,
	};
	units[p->runs.nr++] = (struct gpu_attn_unit){ .seq = p->seqs.nr++ };
}

/* Rows all of whose units are their own: row -> its number and first partial result. */
static void find_lone_rows(struct gpu_plan *p, const struct attn_plan *plan,
			   uint32_t nr_rows)
{
	for (uint32_t i = 0; i < nr_rows; i++)
		p->seq_of_row[i] = 0;
	for (uint32_t i = 0; i < plan->nr_units; i++)
		if (is_decode_unit(plan, &plan->units[i]))
			p->seq_of_row[plan->rows[plan->units[i].first_row]
					      .batch_row]++;
	p->nr_lone = p->nr_partials = 0;
	for (uint32_t i = 0; i < plan->nr_units; i++) {
		const struct attn_unit *u = &plan->units[i];
		const struct attn_row *row = &plan->rows[u->first_row];
		uint32_t *seq = &p->seq_of_row[row->batch_row];

		/* The last unit of a row gives it a number; till then the count stands there. */
		if (!is_decode_unit(plan, u) ||
		    u->first_split + 1 != nr_row_splits(row))
			continue;
		if (*seq == nr_row_splits(row)) {
			*seq = GPU_LONE | p->nr_lone++;
			p->first_partial[row->batch_row] = p->nr_partials;
			p->nr_partials += nr_row_splits(row);
		}
	}
	for (uint32_t i = 0; i < nr_rows; i++)
		p->seq_of_row[i] = p->seq_of_row[i] & GPU_LONE ?
					   p->seq_of_row[i] & ~GPU_LONE :
					   GPU_NOT_LONE;
}

static int longer_first(const void *a, const void *b)
{
	const struct gpu_attn_split *x = a, *y = b;
	uint32_t nx = x->end_token - x->first_token,
		 ny = y->end_token - y->first_token;

	return nx != ny		? (nx < ny) - (nx > ny) :
	       x->seq != y->seq ? (x->seq > y->seq) - (x->seq < y->seq) :
				  (x->first_token > y->first_token) -
					  (x->first_token < y->first_token);
}

/* The merges of rows that attn_any computes. */
static void keep_merges(struct gpu_plan *p, const struct attn_plan *plan)
{
	struct attn_merge *merges = p->any_merges.data;

	for (uint32_t i = 0; i < plan->nr_merges; i++)
		if (p->seq_of_row[plan->merges[i].batch_row] == GPU_NOT_LONE)
			merges[p->any_merges.nr++] = plan->merges[i];
}

static int reserve_all(struct gpu_plan *p, const struct attn_plan *plan)
{
	p->splits.nr = p->seqs.nr = p->runs.nr = 0;
	p->any_units.nr = p->any_merges.nr = p->fast_pieces.nr = 0;
	if (reserve(&p->splits, plan->nr_units,
		    sizeof(struct gpu_attn_split)) ||
	    reserve(&p->seqs, plan->nr_units, sizeof(struct gpu_attn_seq)) ||
	    reserve(&p->runs, plan->nr_units, sizeof(struct gpu_attn_unit)) ||
	    reserve(&p->any_units, plan->nr_units, sizeof(struct attn_unit)) ||
	    reserve(&p->any_merges, plan->nr_merges, sizeof(struct attn_merge)))
		return -ENOMEM;
	return 0;
}

int gpu_plan_split(struct gpu_backend *gpu, uint32_t stream)
{
	const struct attn_plan *plan = &gpu->batch.plans[stream];
	struct gpu_plan *p = &gpu->plans[stream];
	bool is_fast = gpu->has_fast_attn;
	uint32_t nr_pieces = 0;
	struct attn_unit *rest;

	if (reserve_all(p, plan))
		return -ENOMEM;
	for (uint32_t i = 0; i < plan->nr_units; i++)
		if (plan->units[i].first_piece + plan->units[i].nr_pieces >
		    nr_pieces)
			nr_pieces = plan->units[i].first_piece +
				    plan->units[i].nr_pieces;
	if (is_fast && convert_pieces(gpu, p, &gpu->shape.layouts[stream], plan,
				      nr_pieces))
		return -ENOMEM;
	if (is_fast)
		find_lone_rows(p, plan, gpu->batch.nr_rows);
	rest = p->any_units.data;
	p->max_unit_rows = 0;
	for (uint32_t i = 0; i < plan->nr_units; i++) {
		const struct attn_unit *u = &plan->units[i];
		const struct attn_row *row = &plan->rows[u->first_row];

		if (is_fast && u->nr_rows == 1 &&
		    p->seq_of_row[row->batch_row] != GPU_NOT_LONE) {
			add_split(p, plan, u, p->seq_of_row);
			continue;
		}
		if (is_fast && is_prefill_unit(plan, u)) {
			add_run(p, plan, u);
			continue;
		}
		rest[p->any_units.nr++] = *u;
		if (u->nr_rows > p->max_unit_rows)
			p->max_unit_rows = u->nr_rows;
	}
	if (is_fast) {
		keep_merges(p, plan);
	} else {
		for (uint32_t i = 0; i < plan->nr_merges; i++)
			((struct attn_merge *)p->any_merges.data)[i] =
				plan->merges[i];
		p->any_merges.nr = plan->nr_merges;
		p->nr_partials = 0;
	}
	qsort(p->splits.data, p->splits.nr, sizeof(struct gpu_attn_split),
	      longer_first);
	return 0;
}

void gpu_plan_free(struct gpu_plan *p)
{
	free(p->splits.data);
	free(p->seqs.data);
	free(p->runs.data);
	free(p->any_units.data);
	free(p->any_merges.data);
	free(p->fast_pieces.data);
	free(p->seq_of_row);
	free(p->first_partial);
}
