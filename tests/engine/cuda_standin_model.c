/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of a kind for the driver without a GPU: what its kernels compute where
 * standin.has_model. A row leaves its token and position where the first layer of
 * each stream has its K; attention sums over what a row sees, found through the
 * plan as the real kernel finds it; the token drawn depends on that sum and on the
 * row's sampling. So a token tells whether every earlier one of its sequence was where it
 * had to be, and whether memory was taken away under work that uses it.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/layer_params.h"
#include "kernels/cuda/sample_params.h"
#include "tests/engine/cuda_standin_gpu.h"
#include "tests/engine/cuda_standin_private.h"

enum {
	MAX_ROWS = 8192,
	NR_TOKENS = 256, /* that are drawn, from FIRST_TOKEN on */
	FIRST_TOKEN = 3,
	END_TOKEN = 2, /* one in END_EVERY */
	END_EVERY = 37,
};

/* Where K of a token would be. */
struct mark {
	int32_t token;
	uint32_t position;
};

static int32_t tokens[MAX_ROWS];
static uint64_t sums[MAX_ROWS];
static uint32_t out_rows[MAX_ROWS];

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static const void *seen(const void *addr)
{
	return standin_cpu_locked((uint64_t)addr);
}

static void embed(const struct standin_record *r)
{
	const struct gpu_embed_params *p = (const void *)r->params;
	const int32_t *ids = seen(p->tokens);

	for (uint32_t i = 0; i < r->grid[0]; i++) {
		tokens[i] = ids[i];
		if (ids[i] < 0)
			tokens[i] = ((const int32_t *)seen(
				p->drawn))[(size_t)~ids[i] * p->drawn_stride];
		sums[i] = 0;
	}
}

static void append(const struct standin_record *r)
{
	const struct gpu_rope_params *p = (const void *)r->params;
	const uint32_t *positions = seen(p->positions);
	uint8_t *const *tiles = seen(p->tiles);

	for (uint32_t i = 0; i < r->grid[0] && !p->k_offset; i++) {
		uint64_t at = (uint64_t)tiles[i] +
			      (uint64_t)(positions[i] % p->tile_tokens) *
				      p->head_dim * 2;
		struct mark mark = { tokens[i], positions[i] };

		if (!standin_is_mapped(at, sizeof(mark), false))
			standin_now.nr_violations++;
		else
			memcpy(standin_cpu_locked(at), &mark, sizeof(mark));
	}
}

static uint64_t sum_of(const struct gpu_attn_any_params *p,
		       const struct attn_piece *piece, uint32_t head_dim,
		       uint32_t first, uint32_t end)
{
	uint64_t sum = 0;

	for (uint32_t t = first; t < end; t++) {
		uint64_t at = (uint64_t)piece->base +
			      (t - piece->base_token) / p->tile_tokens *
				      p->stride_bytes +
			      (uint64_t)(t % p->tile_tokens) * head_dim * 2;
		struct mark mark;

		if (!standin_is_mapped(at, sizeof(mark), false)) {
			standin_now.nr_violations++;
			continue;
		}
		memcpy(&mark, standin_cpu_locked(at), sizeof(mark));
		standin_now.nr_violations += mark.position != t;
		sum += mix((uint64_t)mark.token << 32 | mark.position);
	}
	return sum;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void attend(const struct standin_record *r, uint32_t head_dim)
{
	const struct gpu_attn_any_params *p = (const void *)r->params;
	const struct gpu_attn_counts *counts = seen(p->counts);
	const struct attn_unit *units = seen(p->units);
	const struct attn_row *rows = seen(p->rows);
	const struct attn_piece *pieces = seen(p->pieces);

	for (uint32_t u = 0; u < counts->nr_units && !p->k_offset; u++) {
		uint32_t from = units[u].first_split * ATTN_SPLIT_TOKENS;
		uint32_t to = from + units[u].nr_splits * ATTN_SPLIT_TOKENS;

		for (uint32_t i = 0; i < units[u].nr_rows; i++) {
			const struct attn_row *row =
				&rows[units[u].first_row + i];

			for (uint32_t k = 0; k < units[u].nr_pieces; k++) {
				const struct attn_piece *piece =
					&pieces[units[u].first_piece + k];

				sums[row->batch_row] += sum_of(
					p, piece, head_dim,
					max_u32(max_u32(from, row->first_key),
						piece->first_token),
					min_u32(min_u32(to, row->end_key),
						piece->end_token));
			}
		}
	}
}

static void gather(const struct standin_record *r)
{
	const struct gpu_norm_params *p = (const void *)r->params;

	if (p->rows)
		memcpy(out_rows, seen(p->rows), r->grid[0] * sizeof(uint32_t));
}

static bool is_banned(const struct gpu_sample_row *row, int32_t token)
{
	for (uint32_t i = 0; i < row->nr_banned; i++)
		if (row->banned[i] == token)
			return true;
	return false;
}

static void sample(const struct standin_record *r)
{
	const struct gpu_sample_params *p = (const void *)r->params;
	const struct gpu_sample_row *rows = seen(p->rows);
	struct gpu_sample_result *results =
		(void *)standin_cpu_locked((uint64_t)p->results);

	/* CTAs write theirs while others read. */
	if ((const uint8_t *)results < (const uint8_t *)(rows + r->grid[1]) &&
	    (const uint8_t *)rows < (const uint8_t *)(results + r->grid[1]))
		standin_now.nr_violations++;
	for (uint32_t i = 0; i < r->grid[1]; i++) {
		const struct gpu_sample_row *row = &rows[i];
		uint64_t x = sums[out_rows[row->logits_row]];

		x = mix(x + mix(row->seed * 31 + row->choice) + row->position);
		results[i].token =
			row->is_given ? row->token :
			x % END_EVERY == 0 && !is_banned(row, END_TOKEN) ?
					END_TOKEN :
					FIRST_TOKEN + (int32_t)(x / END_EVERY %
								NR_TOKENS);
		results[i].logprob = -(float)(x % 1000) / 100;
		results[i].nr_top = row->nr_top;
	}
}

void standin_model_run(const struct standin_record *r)
{
	static const char attn[] = "attn_any_";

	if (!strcmp(r->name, "embed"))
		embed(r);
	else if (!strcmp(r->name, "rope_append"))
		append(r);
	else if (!strcmp(r->name, "rms_norm"))
		gather(r);
	else if (!strcmp(r->name, "sample_rows"))
		sample(r);
	else if (!strncmp(r->name, attn, sizeof(attn) - 1) &&
		 strcmp(r->name, "attn_any_merge"))
		attend(r, (uint32_t)atoi(r->name + sizeof(attn) - 1));
}
