/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention plan of one step: from the sequences of a batch to work units
 * over anchored splits (kernels/attn_plan.h), one plan per stream.
 *
 * Owns the arrays it builds; they are reused from step to step and grow to
 * what the largest step needed. Called by the engine's driver thread.
 */
#ifndef TARN_ENGINE_KV_PLAN_H
#define TARN_ENGINE_KV_PLAN_H

#include "engine/kv/segment.h"
#include "kernels/attn_plan.h"

/* Rows [first_row, first_row + nr_rows) of the batch are tokens [pos, pos + nr_rows) of seq. */
struct plan_item {
	const struct kv_seq *seq;
	uint32_t first_row;
	uint32_t nr_rows;
	uint32_t pos;
};

enum {
	/* Runs of this many rows get one unit over all their splits. */
	PLAN_WHOLE_ROWS = 16,
};

struct plan_builder;

int plan_builder_create(struct plan_builder **out_builder);
void plan_builder_destroy(struct plan_builder *builder); /* NULL is fine */

/**
 * plan_build - the plan of one stream
 * @max_unit_rows: rows a unit may have (a prompt chunk is cut into runs of that many).
 * @out_plan: [out] valid until the next build of the same stream.
 *
 * Rows of several items share a unit where they see the same memory in full (shared prefixes).
 * Every (row, visible key) pair is covered exactly once. Splits wholly outside a row's window are
 * left out. Prompt chunks get one unit for all their splits, other rows one a split.
 * Return: 0; -ESTALE from kv_seq_pieces(); -ENOMEM.
 */
int plan_build(struct plan_builder *builder, const struct kv_cache *cache,
	       uint32_t stream, const struct plan_item *items,
	       uint32_t nr_items, uint32_t max_unit_rows,
	       struct attn_plan *out_plan);

#endif /* TARN_ENGINE_KV_PLAN_H */
