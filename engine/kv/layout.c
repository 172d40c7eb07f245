/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of KV streams: how many tokens a tile holds and where a head's
 * run lies inside it (DESIGN section 2). Pure functions; any thread.
 */
#include "engine/kv/segment.h"

/* Strides are multiples of the smallest page, so that no page holds two tiles. */
static const uint64_t page_bytes = 4096;
/* A tile beyond this makes a short sequence expensive: T is lowered until it fits. */
static const uint64_t max_tile_bytes = 4u << 20;

static uint64_t token_bytes(const struct kv_stream_desc *stream,
			    uint32_t elem_bytes)
{
	return 2ull * stream->nr_layers * stream->nr_kv_heads *
	       stream->head_dim * elem_bytes;
}

uint32_t kv_tile_tokens(const struct kv_stream_desc *streams,
			uint32_t nr_streams, uint32_t elem_bytes)
{
	uint64_t widest = 0;

	for (uint32_t s = 0; s < nr_streams; s++) {
		uint64_t bytes = token_bytes(&streams[s], elem_bytes);

		if (bytes > widest)
			widest = bytes;
	}
	for (uint32_t t = 64; t > ATTN_GROUP_TOKENS; t /= 2) {
		if (widest * t <= max_tile_bytes)
			return t;
	}
	return ATTN_GROUP_TOKENS;
}

void kv_layout_init(struct attn_layout *out, enum kv_layout_kind kind,
		    const struct kv_stream_desc *stream, uint32_t tile_tokens,
		    enum attn_elem elem)
{
	uint32_t elem_bytes = elem == ATTN_F32 ? 4 : 2;
	uint64_t row_bytes = (uint64_t)stream->head_dim * elem_bytes;

	*out = (struct attn_layout){
		.tile_tokens = tile_tokens,
		.nr_kv_heads = stream->nr_kv_heads,
		.head_dim = stream->head_dim,
		.elem = elem,
		.elem_bytes = elem_bytes,
	};
	if (kind == KV_LAYOUT_LAYER) {
		/* One layer, one of K and V: [t][head][dim], without any padding. */
		out->nr_layers = 1;
		out->head_bytes = row_bytes;
		out->layer_bytes =
			tile_tokens * stream->nr_kv_heads * row_bytes;
		out->stride_bytes = out->layer_bytes;
		return;
	}
	out->nr_layers = stream->nr_layers;
	out->head_bytes = tile_tokens * row_bytes;
	out->v_offset_bytes = stream->nr_kv_heads * out->head_bytes;
	out->layer_bytes = 2 * out->v_offset_bytes;
	out->stride_bytes = stream->nr_layers * out->layer_bytes;
	out->stride_bytes =
		(out->stride_bytes + page_bytes - 1) / page_bytes * page_bytes;
}
