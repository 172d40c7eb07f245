/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over a plan in plain C: the definition of its bits, see
 * kernels_cpu.h. Reads each key once per row and head; never optimised. Pure
 * functions, any thread.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/kernels_private.h"

/* The running state of one row and query head inside a split. */
struct state {
	float max;
	float lanes[ATTN_GROUP_TOKENS]; /* sums of exponentials, token t in lane t % 16 */
	float *acc; /* [head_dim] */
};

static float load_elem(const struct attn_layout *l, const uint8_t *run, size_t at)
{
	return l->elem == ATTN_F16 ? f16_to_f32(((const uint16_t *)run)[at]) :
				     ((const float *)run)[at];
}

static float score(const struct attn_layout *l, const uint8_t *k_run, uint32_t t, const float *q,
		   float scale)
{
	size_t group = (size_t)(t / ATTN_GROUP_TOKENS) * l->head_dim * ATTN_GROUP_TOKENS;
	float s = 0;

	for (uint32_t i = 0; i < l->head_dim; i++)
		s = fmaf(q[i],
			 load_elem(l, k_run,
				   group + (size_t)i * ATTN_GROUP_TOKENS + t % ATTN_GROUP_TOKENS),
			 s);
	return s * scale;
}

/* Tokens [first, end) of one anchored group; @run: the K run of their tile. */
static void scan_group(const struct attn_layout *l, const uint8_t *run, uint32_t first,
		       uint32_t end, const float *q, float scale, struct state *st)
{
	float s[ATTN_GROUP_TOKENS];
	float max = st->max;

	for (uint32_t t = first; t < end; t++) {
		s[t % ATTN_GROUP_TOKENS] = score(l, run, t % l->tile_tokens, q, scale);
		if (s[t % ATTN_GROUP_TOKENS] > max)
			max = s[t % ATTN_GROUP_TOKENS];
	}
	if (max > st->max && st->max != -INFINITY) {
		float c = fmath_exp(st->max - max);

		for (int j = 0; j < ATTN_GROUP_TOKENS; j++)
			st->lanes[j] = st->lanes[j] * c;
		for (uint32_t i = 0; i < l->head_dim; i++)
			st->acc[i] = st->acc[i] * c;
	}
	st->max = max;
	for (uint32_t t = first; t < end; t++) {
		float p = fmath_exp(s[t % ATTN_GROUP_TOKENS] - max);
		size_t v_at = (size_t)(t % l->tile_tokens) * l->head_dim;

		st->lanes[t % ATTN_GROUP_TOKENS] = st->lanes[t % ATTN_GROUP_TOKENS] + p;
		for (uint32_t i = 0; i < l->head_dim; i++)
			st->acc[i] = fmaf(p, load_elem(l, run + l->v_offset_bytes, v_at + i),
					  st->acc[i]);
	}
}

/* The part of [first, end) that lies in the unit's pieces, in order. */
static void scan_range(const struct attn_args *a, const struct attn_unit *u, uint32_t kv_head,
		       uint32_t first, uint32_t last_end, const float *q, struct state *st)
{
	const struct attn_layout *l = a->layout;
	uint64_t run = attn_run_offset(l, a->layer, kv_head);

	for (uint32_t i = 0; i < u->nr_pieces; i++) {
		const struct attn_piece *p = &a->plan->pieces[u->first_piece + i];
		uint32_t t = p->first_token > first ? p->first_token : first;
		uint32_t end = p->end_token < last_end ? p->end_token : last_end;

		while (t < end) {
			uint32_t next = (t | (ATTN_GROUP_TOKENS - 1)) + 1;

			if (next > end)
				next = end;
			scan_group(l, attn_tile(l, p, t) + run, t, next, q, a->scale, st);
			t = next;
		}
	}
}

static float fold_sum(const float in[ATTN_GROUP_TOKENS])
{
	float lanes[ATTN_GROUP_TOKENS];

	memcpy(lanes, in, sizeof(lanes));
	for (int half = ATTN_GROUP_TOKENS / 2; half; half /= 2)
		for (int j = 0; j < half; j++)
			lanes[j] = lanes[j] + lanes[j + half];
	return lanes[0];
}

/* Finished splits so far: acc, maximum, sum. */
struct total {
	float *acc;
	float max, sum;
};

/* Add one more finished split, the next in order. */
static void total_add(struct total *total, const float *acc, float max, float sum, uint32_t d)
{
	float new_max = max > total->max ? max : total->max;
	float c_old, c_new;

	if (max == -INFINITY)
		return;
	if (total->max == -INFINITY) {
		memcpy(total->acc, acc, d * sizeof(float));
		total->sum = sum;
		total->max = max;
		return;
	}
	c_old = fmath_exp(total->max - new_max);
	c_new = fmath_exp(max - new_max);
	for (uint32_t i = 0; i < d; i++)
		total->acc[i] = fmaf(total->acc[i], c_old, acc[i] * c_new);
	total->sum = fmaf(total->sum, c_old, sum * c_new);
	total->max = new_max;
}

/* One row and query head: all splits of the unit. */
static void attend_row(const struct attn_args *a, const struct attn_unit *u,
		       const struct attn_row *row, uint32_t kv_head, const float *q, float *scratch,
		       struct total *total)
{
	uint32_t d = a->layout->head_dim;

	*total = (struct total){ .acc = scratch, .max = -INFINITY };
	memset(scratch, 0, 2 * d * sizeof(float));
	for (uint32_t s = u->first_split; s < u->first_split + u->nr_splits; s++) {
		struct state st = { .max = -INFINITY, .acc = scratch + d };
		uint32_t first = s * ATTN_SPLIT_TOKENS, end = first + ATTN_SPLIT_TOKENS;

		memset(st.acc, 0, d * sizeof(float));
		scan_range(a, u, kv_head, first > row->first_key ? first : row->first_key,
			   end < row->end_key ? end : row->end_key, q, &st);
		total_add(total, st.acc, st.max, fold_sum(st.lanes), d);
	}
}

void attend_ref(const struct attn_args *a, uint32_t unit, uint32_t kv_head, void *scratch)
{
	const struct attn_unit *u = &a->plan->units[unit];
	uint32_t g = a->nr_q_heads / a->layout->nr_kv_heads, d = a->layout->head_dim;

	for (uint32_t r = 0; r < u->nr_rows; r++) {
		const struct attn_row *row = &a->plan->rows[u->first_row + r];

		for (uint32_t h = kv_head * g; h < (kv_head + 1) * g; h++) {
			struct total total;
			float *out;

			attend_row(a, u, row, kv_head,
				   a->q + row->batch_row * a->q_stride + (size_t)h * d, scratch,
				   &total);
			if (row->slot == ATTN_SLOT_DIRECT) {
				out = a->out + row->batch_row * a->out_stride + (size_t)h * d;
				for (uint32_t i = 0; i < d; i++)
					out[i] = total.acc[i] / total.sum;
				continue;
			}
			out = a->slots +
			      ((size_t)row->slot * a->nr_q_heads + h) * attn_slot_floats(d);
			memcpy(out, total.acc, d * sizeof(float));
			out[d] = total.max;
			out[d + 1] = total.sum;
		}
	}
}

void merge_ref(const struct attn_args *a, uint32_t merge, uint32_t first_head, uint32_t end_head)
{
	const struct attn_merge *m = &a->plan->merges[merge];
	uint32_t d = a->layout->head_dim;
	size_t slot_floats = attn_slot_floats(d);

	for (uint32_t h = first_head; h < end_head; h++) {
		struct total total = {
			.acc = a->out + m->batch_row * a->out_stride + (size_t)h * d,
			.max = -INFINITY,
		};

		for (uint32_t s = m->first_slot; s < m->first_slot + m->nr_slots; s++) {
			const float *slot =
				a->slots + ((size_t)s * a->nr_q_heads + h) * slot_floats;

			total_add(&total, slot, slot[d], slot[d + 1], d);
		}
		for (uint32_t i = 0; i < d; i++)
			total.acc[i] = total.acc[i] / total.sum;
	}
}

size_t attn_scratch_bytes(const struct attn_layout *layout, uint32_t nr_q_heads,
			  uint32_t max_unit_rows)
{
	/*
	 * Per query: its copy, its sums, the folded sums, 16 lane sums, maxima, a sum, bounds;
	 * then one group as floats, each array padded to 64 bytes.
	 */
	size_t nr_q = (size_t)max_unit_rows * (nr_q_heads / layout->nr_kv_heads);
	size_t floats = nr_q * (3 * (size_t)layout->head_dim + ATTN_GROUP_TOKENS + 7) +
			2 * ATTN_GROUP_TOKENS * ((size_t)layout->head_dim + 16) + 14 * 16;

	return floats * sizeof(float);
}
