/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of a step on the GPU: the launches of what gpu_plan.c sorted.
 * Driver thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/backend/gpu_private.h"

enum {
	FAST_HEAD_DIM = 128,
	/* Tiles a map has: more than any reservation, and no limit to an address. */
	MAP_TILES = 1 << 30,
};

static uint32_t max_slots(const struct gpu_backend *gpu)
{
	uint32_t nr = 0;

	for (uint32_t s = 0; s < gpu->shape.nr_streams; s++) {
		uint32_t n =
			gpu->plans[s].slot_room + gpu->plans[s].partial_room;

		nr = n > nr ? n : nr;
	}
	return nr;
}

/* Partial results [slot][q_head][head_dim], and behind them their states. */
int gpu_reserve_attn(struct gpu_backend *gpu)
{
	uint64_t heads;

	for (uint32_t s = 0; s < gpu->shape.nr_streams; s++) {
		struct gpu_plan *p = &gpu->plans[s];

		p->slot_room = gpu_room(gpu, gpu->batch.plans[s].nr_slots);
		p->partial_room = gpu_room(gpu, p->nr_partials);
	}
	heads = (uint64_t)max_slots(gpu) * gpu->shape.n_q_heads;

	return gpu_reserve(gpu, &gpu->partials,
			   heads * (gpu->shape.head_dim + 2) * sizeof(float));
}

/* Maps over the pool: [64 of head_dim][token of a tile][tile][half][plane]. */
static int encode_kv(struct gpu_backend *gpu, uint32_t stream)
{
	const struct attn_layout *l = &gpu->shape.layouts[stream];
	struct gpu_plan *p = &gpu->plans[stream];
	uint32_t t = l->tile_tokens;
	const uint64_t dims[5] = { 64, t, MAP_TILES, 2,
				   2ull * l->nr_layers * l->nr_kv_heads };
	const uint64_t strides[4] = { FAST_HEAD_DIM * 2, l->stride_bytes, 128,
				      l->head_bytes };
	const uint32_t decode_box[5] = { 64, t, GPU_ATTN_DECODE_LOAD / t, 2,
					 1 };
	const uint32_t prefill_box[5] = { 64, t, GPU_ATTN_PREFILL_LOAD / t, 2,
					  1 };
	const uint32_t tile_box[5] = { 64, t, 1, 1, 1 };
	cuda_addr base = gpu->shape.kv_base;
	int rc = gpu_encode_map(gpu, &p->decode_block, base, 5, dims, strides,
				decode_box);

	if (!rc)
		rc = gpu_encode_map(gpu, &p->prefill_block, base, 5, dims,
				    strides, prefill_box);
	if (!rc)
		rc = gpu_encode_map(gpu, &p->tile, base, 5, dims, strides,
				    tile_box);
	return rc;
}

static int clear(struct gpu_backend *gpu, struct gpu_mem *mem, uint64_t bytes)
{
	int rc = gpu_reserve(gpu, mem, bytes);

	if (rc)
		return rc;
	return gpu_errno(
		gpu_base(gpu)->MemsetD8Async(mem->addr, 0, bytes, gpu->stream));
}

int gpu_attn_prepare(struct gpu_backend *gpu)
{
	const struct backend_shape *s = &gpu->shape;
	uint32_t n_q = s->n_q_heads;
	const uint64_t dims[4] = { 64, s->max_rows, 2, n_q };
	const uint64_t strides[3] = { n_q * FAST_HEAD_DIM * 2ull, 128,
				      FAST_HEAD_DIM * 2 };
	const uint32_t box[4] = { 64, GPU_ATTN_PREFILL_ROWS, 2, 1 };
	int rc = 0;

	for (uint32_t i = 0; i < s->nr_streams; i++) {
		struct gpu_plan *p = &gpu->plans[i];

		p->seq_of_row = calloc(s->max_rows, sizeof(uint32_t));
		p->first_partial = calloc(s->max_rows, sizeof(uint32_t));
		if (!p->seq_of_row || !p->first_partial)
			return -ENOMEM;
	}
	gpu->has_fast_attn = s->head_dim == FAST_HEAD_DIM && s->kv_base &&
			     n_q / s->n_kv_heads <= GPU_ATTN_DECODE_MAX_ROWS;
	if (!gpu->has_fast_attn)
		return 0;
	for (uint32_t i = 0; i < s->nr_streams && !rc; i++)
		rc = encode_kv(gpu, i);
	if (!rc)
		rc = gpu_encode_map(gpu, &gpu->q_map, gpu->q, 4, dims, strides,
				    box);
	if (!rc)
		rc = clear(gpu, &gpu->arrivals,
			   (uint64_t)s->max_rows * s->n_kv_heads *
				   sizeof(uint32_t));
	if (!rc)
		rc = clear(gpu, &gpu->queue, sizeof(struct gpu_attn_queue));
	return rc;
}

/* The layer's KV, with the loads of one kernel. */
static void fill_kv(const struct gpu_backend *gpu, uint32_t stream,
		    uint32_t layer, const struct gpu_attn_tensor_map *block,
		    struct gpu_attn_kv *out)
{
	const struct gpu_plan *p = &gpu->plans[stream];
	uint32_t heads = gpu->shape.n_kv_heads;

	out->k_block = out->v_block = *block;
	out->k_tile = out->v_tile = p->tile;
	out->tile_tokens = gpu->shape.layouts[stream].tile_tokens;
	out->k_plane = layer * 2 * heads;
	out->v_plane = (layer * 2 + 1) * heads;
	out->nr_kv_heads = heads;
}

struct attend {
	struct gpu_backend *gpu;
	uint32_t stream, layer;
	float scale_log2;
	float *partial_out,
		*partial_state; /* of attn_decode: behind attn_any's slots */
};

static const struct gpu_attn_counts *counts_of(const struct gpu_plan *p)
{
	return (const struct gpu_attn_counts *)(uintptr_t)p->counts_at;
}

static void launch_decode(const struct attend *a)
{
	struct gpu_backend *gpu = a->gpu;
	const struct gpu_plan *p = &gpu->plans[a->stream];
	const struct backend_shape *s = &gpu->shape;
	uint64_t skipped = (uint64_t)p->slot_room * s->n_q_heads;
	struct gpu_attn_decode_params params = {
		.pieces = (const void *)(uintptr_t)p->fast_pieces_at,
		.splits = (const void *)(uintptr_t)p->splits_at,
		.q = (const void *)(uintptr_t)gpu->q,
		.out = (void *)(uintptr_t)gpu->a.rows,
		.partial_out = a->partial_out + skipped * s->head_dim,
		.partial_state = a->partial_state + skipped * 2,
		.arrivals = (uint32_t *)(uintptr_t)gpu->arrivals.addr,
		.nr_splits_at = &counts_of(p)->nr_splits,
		.nr_q_heads = s->n_q_heads,
		.scale_log2 = a->scale_log2,
	};
	struct gpu_grid grid = {
		.x = gpu_min(GPU_ATTN_DECODE_CTAS * gpu->nr_sms,
			     gpu_room(gpu, p->splits.nr) * s->n_kv_heads),
		.y = 1,
		.z = 1,
		.threads = GPU_ATTN_DECODE_THREADS,
		.smem_bytes = GPU_ATTN_DECODE_SMEM_BYTES,
	};

	fill_kv(gpu, a->stream, a->layer, &p->decode_block, &params.kv);
	gpu_launch(gpu, gpu->kernels.decode, &grid, &params);
}

static void launch_prefill(const struct attend *a)
{
	struct gpu_backend *gpu = a->gpu;
	const struct gpu_plan *p = &gpu->plans[a->stream];
	const struct backend_shape *s = &gpu->shape;
	struct gpu_attn_prefill_params params = {
		.q_map = gpu->q_map,
		.pieces = (const void *)(uintptr_t)p->fast_pieces_at,
		.seqs = (const void *)(uintptr_t)p->seqs_at,
		.units = (const void *)(uintptr_t)p->runs_at,
		.out = (void *)(uintptr_t)gpu->a.rows,
		.queue = (struct gpu_attn_queue *)(uintptr_t)gpu->queue.addr,
		.nr_units = p->runs.nr,
		.nr_q_heads = s->n_q_heads,
		.scale_log2 = a->scale_log2,
	};
	struct gpu_grid grid = {
		.x = gpu_min(gpu->nr_sms, p->runs.nr * s->n_q_heads),
		.y = 1,
		.z = 1,
		.threads = GPU_ATTN_PREFILL_THREADS,
		.smem_bytes = GPU_ATTN_PREFILL_SMEM_BYTES,
	};

	fill_kv(gpu, a->stream, a->layer, &p->prefill_block, &params.kv);
	gpu_launch(gpu, gpu->kernels.prefill, &grid, &params);
}

static void launch_any(const struct attend *a)
{
	struct gpu_backend *gpu = a->gpu;
	const struct gpu_plan *p = &gpu->plans[a->stream];
	const struct backend_shape *s = &gpu->shape;
	const struct attn_layout *l = &s->layouts[a->stream];
	uint32_t group = s->n_q_heads / s->n_kv_heads;
	uint32_t is_wide = p->max_unit_rows * group > 16;
	uint32_t pairs = is_wide ? 64 : 16;
	struct gpu_attn_any_params params = {
		.counts = counts_of(p),
		.units = (const void *)(uintptr_t)p->units_at,
		.rows = (const void *)(uintptr_t)p->rows_at,
		.pieces = (const void *)(uintptr_t)p->pieces_at,
		.merges = (const void *)(uintptr_t)p->merges_at,
		.q = (const void *)(uintptr_t)gpu->q,
		.out = (void *)(uintptr_t)gpu->a.rows,
		.partial_out = a->partial_out,
		.partial_state = a->partial_state,
		.totals = (float *)(uintptr_t)gpu->totals.addr,
		.k_offset = a->layer * l->layer_bytes,
		.v_offset = a->layer * l->layer_bytes + l->v_offset_bytes,
		.head_bytes = l->head_bytes,
		.stride_bytes = l->stride_bytes,
		.tile_tokens = l->tile_tokens,
		.nr_kv_heads = s->n_kv_heads,
		.nr_q_heads = s->n_q_heads,
		.scale_log2 = a->scale_log2,
	};
	struct gpu_grid grid = {
		.x = gpu_room(gpu, p->any_units.nr),
		.y = s->n_kv_heads,
		.z = (p->max_unit_rows * group + pairs - 1) / pairs,
		.threads = GPU_ATTN_ANY_THREADS,
		.smem_bytes = gpu_attn_any_smem_bytes(s->head_dim, pairs),
	};

	gpu_launch(gpu, gpu->kernels.attend[gpu->head_index][is_wide], &grid,
		   &params);
	if (!p->any_merges.nr)
		return;
	grid = (struct gpu_grid){
		.x = gpu_room(gpu, p->any_merges.nr),
		.y = s->n_q_heads,
		.z = 1,
		.threads = s->head_dim,
	};
	gpu_launch(gpu, gpu->kernels.merge, &grid, &params);
}

void gpu_attend(struct gpu_backend *gpu, uint32_t stream, uint32_t layer,
		float scale)
{
	const struct gpu_plan *p = &gpu->plans[stream];
	float *partials = (float *)(uintptr_t)gpu->partials.addr;
	struct attend a = {
		.gpu = gpu,
		.stream = stream,
		.layer = layer,
		.scale_log2 = scale * 0x1.715476p+0f, /* log2(e) */
		.partial_out = partials,
		.partial_state = partials + (uint64_t)max_slots(gpu) *
						    gpu->shape.n_q_heads *
						    gpu->shape.head_dim,
	};

	if (p->any_units.nr)
		launch_any(&a);
	if (p->splits.nr)
		launch_decode(&a);
	if (p->runs.nr)
		launch_prefill(&a);
}
