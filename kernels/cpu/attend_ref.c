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

static void scan_unit(const struct attn_args *a, const struct attn_unit *u, uint32_t kv_head,
		      uint32_t pos, const float *q, struct state *st)
{
	const struct attn_layout *l = a->layout;
	uint32_t window = a->plan->window_tokens;
	uint32_t lo = window && pos + 1 > window ? pos + 1 - window : 0;
	uint64_t run = attn_run_offset(l, a->layer, kv_head);

	for (uint32_t i = 0; i < u->nr_pieces; i++) {
		const struct attn_piece *p = &a->plan->pieces[u->first_piece + i];
		uint32_t t = p->first_token > lo ? p->first_token : lo;
		uint32_t end = p->end_token < pos + 1 ? p->end_token : pos + 1;

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

void attend_ref(const struct attn_args *a, uint32_t unit, uint32_t kv_head, void *scratch)
{
	const struct attn_layout *l = a->layout;
	const struct attn_unit *u = &a->plan->units[unit];
	uint32_t g = a->nr_q_heads / l->nr_kv_heads, d = l->head_dim;

	for (uint32_t r = 0; r < u->nr_rows; r++) {
		const struct attn_row *row = &a->plan->rows[u->first_row + r];

		for (uint32_t h = kv_head * g; h < (kv_head + 1) * g; h++) {
			struct state st = { .max = -INFINITY, .acc = scratch };
			float sum, *out;

			memset(scratch, 0, d * sizeof(float));
			scan_unit(a, u, kv_head, row->pos,
				  a->q + row->batch_row * a->q_stride + (size_t)h * d, &st);
			sum = fold_sum(st.lanes);
			if (row->slot == ATTN_SLOT_DIRECT) {
				out = a->out + row->batch_row * a->out_stride + (size_t)h * d;
				for (uint32_t i = 0; i < d; i++)
					out[i] = st.acc[i] / sum;
				continue;
			}
			out = a->slots +
			      ((size_t)row->slot * a->nr_q_heads + h) * attn_slot_floats(d);
			memcpy(out, st.acc, d * sizeof(float));
			out[d] = st.max;
			out[d + 1] = sum;
		}
	}
}

void merge_ref(const struct attn_args *a, uint32_t merge, uint32_t first_head, uint32_t end_head)
{
	const struct attn_merge *m = &a->plan->merges[merge];
	uint32_t d = a->layout->head_dim;
	size_t slot_floats = attn_slot_floats(d);

	for (uint32_t h = first_head; h < end_head; h++) {
		float *out = a->out + m->batch_row * a->out_stride + (size_t)h * d;
		float max = -INFINITY, sum = 0;

		for (uint32_t s = m->first_slot; s < m->first_slot + m->nr_slots; s++) {
			const float *slot =
				a->slots + ((size_t)s * a->nr_q_heads + h) * slot_floats;
			float new_max = slot[d] > max ? slot[d] : max;
			float c_old, c_new;

			if (slot[d] == -INFINITY)
				continue;
			if (max == -INFINITY) {
				memcpy(out, slot, d * sizeof(float));
				sum = slot[d + 1];
				max = slot[d];
				continue;
			}
			c_old = fmath_exp(max - new_max);
			c_new = fmath_exp(slot[d] - new_max);
			for (uint32_t i = 0; i < d; i++)
				out[i] = fmaf(out[i], c_old, slot[i] * c_new);
			sum = fmaf(sum, c_old, slot[d + 1] * c_new);
			max = new_max;
		}
		for (uint32_t i = 0; i < d; i++)
			out[i] = out[i] / sum;
	}
}

size_t attn_scratch_bytes(const struct attn_layout *layout, uint32_t nr_q_heads,
			  uint32_t max_unit_rows)
{
	/* Per query: its copy, its sums, 16 lane sums, maximum and bounds; then one group as floats. */
	size_t nr_q = (size_t)max_unit_rows * (nr_q_heads / layout->nr_kv_heads);
	size_t floats = nr_q * (2 * (size_t)layout->head_dim + ATTN_GROUP_TOKENS + 3) +
			2 * ATTN_GROUP_TOKENS * ((size_t)layout->head_dim + 16) + 9 * 16;

	return floats * sizeof(float);
}
