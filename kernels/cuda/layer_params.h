/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of the CUDA kernels that a layer consists of beside its matrices:
 * embedding, norm, rope and append, attention for any head, gate. As in
 * launch_params.h: plain C structs, passed by value, device pointers.
 *
 * Activations: the residual and what linear layers put out are float32, what
 * linear layers take in is bf16, so a value is rounded once on its way to a
 * tensor core.
 */
#ifndef TARN_KERNELS_CUDA_LAYER_PARAMS_H
#define TARN_KERNELS_CUDA_LAYER_PARAMS_H

#include <stdint.h>

#include "kernels/attn_plan.h"

enum {
	GPU_ROW_THREADS = 256, /* of a CTA that works on one row */
	GPU_MAX_HEAD_DIM = 256,
};

/* Types of embedding tables, as GGUF numbers them. */
enum gpu_embed_type {
	GPU_EMBED_F32 = 0,
	GPU_EMBED_F16 = 1,
	GPU_EMBED_Q8_0 = 8,
	GPU_EMBED_Q6_K = 14,
	GPU_EMBED_BF16 = 30,
};

/* embed: grid nr_rows, block GPU_ROW_THREADS. */
struct gpu_embed_params {
	const void *table; /* the file's rows, row_bytes each */
	const int32_t *tokens; /* [nr_rows] ids; ~i: what lies at drawn[i * drawn_stride] */
	const int32_t *drawn; /* in device memory, by the step before */
	float *out; /* [nr_rows][nr_cols] */
	uint64_t row_bytes;
	uint32_t type; /* enum gpu_embed_type */
	uint32_t nr_cols;
	uint32_t drawn_stride;
	float scale;
};

/*
 * rms_norm: grid nr_rows, block GPU_ROW_THREADS. Row r of the output comes from row rows[r] of
 * the input, or r where rows is NULL.
 *   y given, is_post:  x += rms_norm(y) * w, x written back, no other output
 *   y given:           x += y, x written back, out = rms_norm(x) * w
 *   else:              out = rms_norm(x) * w
 */
struct gpu_norm_params {
	float *x; /* [.][nr_cols] */
	const float *y; /* [.][nr_cols], or NULL */
	const float *w; /* [nr_cols] */
	void *out; /* bf16 [nr_rows][nr_cols] */
	const uint32_t *rows;
	uint32_t nr_cols;
	float eps;
	uint32_t is_post;
};

/*
 * rope_append: one warp a (row, head of q, k or v); grid nr_rows x ceil(heads / GPU_ROPE_WARPS),
 * block 32 * GPU_ROPE_WARPS. Head norms where asked for, rotation of q and k, then q as bf16 to
 * @q, k and v as bf16 to the rows' tiles, both [T][head_dim] inside their runs.
 */
enum { GPU_ROPE_WARPS = 8 };

struct gpu_rope_params {
	const float *qkv; /* [nr_rows][(nr_q + 2 nr_kv) * head_dim] */
	const float *q_bias, *k_bias, *v_bias; /* of their columns, or NULL */
	const float *q_norm; /* [head_dim], or NULL */
	const float *k_norm;
	const float *cos_sin; /* [position][nr_rot], cos and sin in turn */
	const uint32_t *positions; /* [nr_rows] */
	uint8_t *const *tiles; /* [nr_rows] where k and v go */
	void *q; /* bf16 [nr_rows][nr_q][head_dim] */
	uint64_t k_offset, v_offset; /* of the layer's first run, in a tile */
	uint64_t head_bytes; /* from run to run */
	uint32_t nr_q, nr_kv, head_dim;
	uint32_t nr_rot;
	uint32_t is_neox;
	uint32_t tile_tokens;
	float eps;
};

/* gate: out = act(gate) * up, one thread two columns; grid-stride. */
enum gpu_gate {
	GPU_GATE_SILU,
	GPU_GATE_GELU_TANH,
};

struct gpu_gate_params {
	const float *gate; /* rows in_stride apart */
	const float *up;
	void *out; /* bf16 [nr_rows][nr_cols] */
	uint32_t nr_rows, nr_cols; /* columns even */
	uint32_t in_stride;
	uint32_t kind; /* enum gpu_gate */
};

/* softcap: x = cap * tanh(x / cap), grid-stride. */
struct gpu_softcap_params {
	float *x;
	uint64_t nr;
	float cap;
};

/*
 * attn_any_<head_dim>_m<pairs>: the units of an attention plan. Grid (units or more, KV heads,
 * tiles of `pairs` rows x query heads of the group), block GPU_ATTN_ANY_THREADS, dynamic shared
 * memory gpu_attn_any_smem_bytes(). Rows with a slot leave a partial state, others their result.
 */
enum {
	GPU_ATTN_ANY_THREADS = 128,
	GPU_ATTN_ANY_BLOCK = 128, /* tokens: numerics contract, rule 9 */
	GPU_ATTN_ANY_P_STRIDE = GPU_ATTN_ANY_BLOCK + 8, /* floats */
	GPU_ATTN_ANY_PAD = 16, /* bytes behind a row of q, k and v */
};

/*
 * How much of a plan's arrays is in use. In device memory, so that a recorded graph runs over the
 * plan of each step; grids have room for more.
 */
struct gpu_attn_counts {
	uint32_t nr_units, nr_merges; /* of attn_any */
	uint32_t nr_splits; /* of attn_decode */
	uint32_t pad;
};

struct gpu_attn_any_params {
	const struct gpu_attn_counts *counts;
	const struct attn_unit *units;
	const struct attn_row *rows;
	const struct attn_piece *pieces;
	const struct attn_merge *merges; /* of attn_any_merge */
	const void *q; /* bf16 [row][q_head][head_dim] */
	void *out; /* bf16 [row][q_head][head_dim] */
	float *partial_out; /* [slot][q_head][head_dim], not normalised */
	float *partial_state; /* [slot][q_head][2]: max * scale_log2, sum */
	float *totals; /* [row][q_head][head_dim]: of rows with several splits in one unit */
	uint64_t k_offset, v_offset; /* of the layer's first run, in a tile */
	uint64_t head_bytes;
	uint64_t stride_bytes; /* from tile to tile */
	uint32_t tile_tokens;
	uint32_t nr_kv_heads;
	uint32_t nr_q_heads;
	float scale_log2; /* softmax scale * log2(e) */
};

static inline uint32_t gpu_attn_any_smem_bytes(uint32_t head_dim, uint32_t pairs)
{
	uint32_t row_bytes = head_dim * 2 + GPU_ATTN_ANY_PAD;

	return (pairs + 2 * GPU_ATTN_ANY_BLOCK) * row_bytes + pairs * GPU_ATTN_ANY_P_STRIDE * 4;
}

/* attn_any_merge: grid (at least the merges, query heads), block head_dim; same parameters. */

#endif /* TARN_KERNELS_CUDA_LAYER_PARAMS_H */
