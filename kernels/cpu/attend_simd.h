/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over a plan in vectors of 16: the body of attend_avx2.c and
 * attend_avx512.c, which define v16 before they include it.
 *
 * Scores have 16 keys in lanes, values have head_dim in lanes, so no sum goes
 * across lanes and one query or many give the same bits as attend_ref.c. The
 * query vectors of a unit (rows times heads of the group) are cut into blocks:
 * wide ones reuse a group of keys, made float once, from registers; narrow
 * ones (decode) scan several groups at once, so that enough independent chains
 * are under way to hide the latency of the fused multiply-add.
 *
 * Cost of a wide block per group of 16 tokens: 2 * V16_BLOCK * head_dim fused
 * operations; reads 4 * 16 * head_dim bytes of f16 once per unit and head.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels_private.h"

#define ATTEND_INLINE static inline __attribute__((always_inline))

enum {
	GROUP = ATTN_GROUP_TOKENS,
	/* Columns of a wide block's transposed queries. */
	MAX_BLOCK = V16_BLOCK,
};

/* One anchored group of a piece: K [head_dim][16], V [16][head_dim]. */
struct group {
	const void *k, *v;
	uint32_t token; /* its first, a multiple of 16 */
	uint32_t first, end; /* tokens of the piece in it */
};

struct unit_state {
	const struct attn_args *a;
	uint32_t d, g, nr_q; /* head_dim, heads of the group, query vectors */
	bool is_f16;
	float *qt; /* blocks one after the other: [head_dim][block width] */
	float *acc; /* [nr_q][head_dim] */
	float *lanes; /* [nr_q][16] */
	float *max; /* [nr_q] */
	/* Finished splits, folded: a unit with one split does without. */
	float *total_acc, *total_max, *total_sum;
	bool has_total;
	float *p; /* [block width][16] weights of one group, one block at a time */
	float *kf, *vf; /* a group as floats */
	uint32_t *lo, *end; /* [nr_q] visible tokens */
	/* By a block's first query: tokens that all of it see. */
	uint32_t *all_lo, *all_end;
	uint32_t split; /* at hand */
};

ATTEND_INLINE uint32_t block_width(uint32_t left)
{
	if (left >= V16_BLOCK)
		return V16_BLOCK;
	return left < V16_NARROW ? left : V16_NARROW;
}

ATTEND_INLINE v16 load_elems(const void *p, size_t at, bool is_f16)
{
	return is_f16 ? v16_load_f16((const uint16_t *)p + at) : v16_load((const float *)p + at);
}

/* Scores of @nq queries against @ng groups: out[g][q] = chain over head_dim. */
ATTEND_INLINE void scores(const float *qt, uint32_t nq, const void *const *k, uint32_t ng,
			  bool is_f16, uint32_t d, v16 out[][MAX_BLOCK])
{
	for (uint32_t g = 0; g < ng; g++)
		for (uint32_t q = 0; q < nq; q++)
			out[g][q] = v16_set1(0);
	for (uint32_t i = 0; i < d; i++) {
		for (uint32_t g = 0; g < ng; g++) {
			v16 key = load_elems(k[g], (size_t)i * GROUP, is_f16);

			for (uint32_t q = 0; q < nq; q++)
				out[g][q] =
					v16_fma(v16_set1(qt[(size_t)i * nq + q]), key, out[g][q]);
		}
	}
}

/* acc[q][chunk] += p[q][t] * v[t][chunk] over tokens [first, end), @nc chunks of 16. */
ATTEND_INLINE void weigh(const float *p, uint32_t nq, const void *v, bool is_f16, uint32_t d,
			 uint32_t chunk, uint32_t nc, uint32_t first, uint32_t end, float *acc)
{
	v16 sum[MAX_BLOCK][V16_NARROW_CHUNKS];

	for (uint32_t q = 0; q < nq; q++)
		for (uint32_t c = 0; c < nc; c++)
			sum[q][c] = v16_load(acc + (size_t)q * d + (chunk + c) * 16);
	for (uint32_t t = first; t < end; t++) {
		for (uint32_t c = 0; c < nc; c++) {
			v16 value = load_elems(v, (size_t)t * d + (chunk + c) * 16, is_f16);

			for (uint32_t q = 0; q < nq; q++)
				sum[q][c] = v16_fma(v16_set1(p[q * GROUP + t]), value, sum[q][c]);
		}
	}
	for (uint32_t q = 0; q < nq; q++)
		for (uint32_t c = 0; c < nc; c++)
			v16_store(acc + (size_t)q * d + (chunk + c) * 16, sum[q][c]);
}

/* The tokens of one query that not all of its block see. */
static void weigh_one(const float *p, const void *v, bool is_f16, uint32_t d, uint32_t first,
		      uint32_t end, float *acc)
{
	for (uint32_t c = 0; c < d; c += 16) {
		v16 sum = v16_load(acc + c);

		for (uint32_t t = first; t < end; t++)
			sum = v16_fma(v16_set1(p[t]), load_elems(v, (size_t)t * d + c, is_f16),
				      sum);
		v16_store(acc + c, sum);
	}
}

ATTEND_INLINE void weigh_block(const float *p, uint32_t nq, const void *v, bool is_f16, uint32_t d,
			       uint32_t first, uint32_t end, float *acc)
{
	uint32_t nr_chunks = d / 16, c = 0;

	if (nq <= V16_NARROW)
		for (; c + V16_NARROW_CHUNKS <= nr_chunks; c += V16_NARROW_CHUNKS)
			weigh(p, nq, v, is_f16, d, c, V16_NARROW_CHUNKS, first, end, acc);
	for (; c < nr_chunks; c++)
		weigh(p, nq, v, is_f16, d, c, 1, first, end, acc);
}

static void rescale(float *acc, float *lanes, uint32_t d, float c)
{
	v16 by = v16_set1(c);

	v16_store(lanes, v16_mul(v16_load(lanes), by));
	for (uint32_t i = 0; i < d; i += 16)
		v16_store(acc + i, v16_mul(v16_load(acc + i), by));
}

ATTEND_INLINE float exp_scalar(float x)
{
	float out[16];

	v16_store(out, v16_exp(v16_set1(x)));
	return out[0];
}

/* What part of @grp query @q sees, as lanes. */
ATTEND_INLINE void visible(const struct unit_state *st, const struct group *grp, uint32_t q,
			   uint32_t *out_first, uint32_t *out_end)
{
	uint32_t first = st->lo[q] > grp->first ? st->lo[q] : grp->first;
	uint32_t end = st->end[q] < grp->end ? st->end[q] : grp->end;

	*out_first = first - grp->token;
	*out_end = end > first ? end - grp->token : *out_first;
}

/* A larger maximum: what was summed so far is scaled to it. */
ATTEND_INLINE void raise_max(struct unit_state *st, uint32_t q, float max)
{
	if (max > st->max[q]) {
		if (st->max[q] != -INFINITY)
			rescale(st->acc + (size_t)q * st->d, st->lanes + (size_t)q * GROUP, st->d,
				exp_scalar(st->max[q] - max));
		st->max[q] = max;
	}
}

/* Softmax step of one query over the lanes it sees of one group; weights go to p[16]. */
ATTEND_INLINE void soften(struct unit_state *st, uint32_t q, v16 s, uint32_t first, uint32_t end,
			  float *p)
{
	float *lanes = st->lanes + (size_t)q * GROUP;
	v16_mask mask;

	if (first >= end)
		return;
	mask = v16_mask_range(first, end);
	s = v16_select(mask, v16_mul(s, v16_set1(st->a->scale)), v16_set1(-INFINITY));
	raise_max(st, q, v16_max_lane(s));
	s = v16_exp(v16_sub(s, v16_set1(st->max[q])));
	v16_store(lanes, v16_add(v16_load(lanes), v16_select(mask, s, v16_set1(0))));
	v16_store(p, s);
}

/* The same for a block that sees the whole group: the common case, without masks. */
ATTEND_INLINE void soften_block(struct unit_state *st, uint32_t q0, uint32_t nq, v16 *s)
{
	float max[MAX_BLOCK];

	for (uint32_t q = 0; q < nq; q++) {
		s[q] = v16_mul(s[q], v16_set1(st->a->scale));
		max[q] = v16_max_lane(s[q]);
	}
	for (uint32_t q = 0; q < nq; q++)
		raise_max(st, q0 + q, max[q]);
	for (uint32_t q = 0; q < nq; q++) {
		float *lanes = st->lanes + (size_t)(q0 + q) * GROUP;
		v16 p = v16_exp(v16_sub(s[q], v16_set1(st->max[q0 + q])));

		v16_store(lanes, v16_add(v16_load(lanes), p));
		v16_store(st->p + q * GROUP, p);
	}
}

/* One block of queries over @ng groups, all of them scored first. */
ATTEND_INLINE void scan_block(struct unit_state *st, uint32_t q0, uint32_t nq,
			      const struct group *groups, const void *const *k,
			      const void *const *v, uint32_t ng, bool is_f16)
{
	const float *qt = st->qt + (size_t)q0 * st->d;
	v16 s[V16_NARROW_GROUPS][MAX_BLOCK];

	scores(qt, nq, k, ng, is_f16, st->d, s);
	for (uint32_t g = 0; g < ng; g++) {
		uint32_t first[MAX_BLOCK], end[MAX_BLOCK], all_first = 0, all_end = GROUP;
		const struct group *grp = &groups[g];

		if (grp->end - grp->first == GROUP && st->all_lo[q0] <= grp->token &&
		    st->all_end[q0] >= grp->end) {
			soften_block(st, q0, nq, s[g]);
			weigh_block(st->p, nq, v[g], is_f16, st->d, 0, GROUP,
				    st->acc + (size_t)q0 * st->d);
			continue;
		}
		for (uint32_t q = 0; q < nq; q++) {
			visible(st, grp, q0 + q, &first[q], &end[q]);
			soften(st, q0 + q, s[g][q], first[q], end[q], st->p + q * GROUP);
			all_first = first[q] > all_first ? first[q] : all_first;
			all_end = end[q] < all_end ? end[q] : all_end;
		}
		if (all_first >= all_end) { /* no token that all see: each by itself */
			for (uint32_t q = 0; q < nq; q++)
				weigh_one(st->p + q * GROUP, v[g], is_f16, st->d, first[q], end[q],
					  st->acc + (size_t)(q0 + q) * st->d);
			continue;
		}
		for (uint32_t q = 0; q < nq; q++)
			if (first[q] < all_first)
				weigh_one(st->p + q * GROUP, v[g], is_f16, st->d, first[q],
					  all_first, st->acc + (size_t)(q0 + q) * st->d);
		weigh_block(st->p, nq, v[g], is_f16, st->d, all_first, all_end,
			    st->acc + (size_t)q0 * st->d);
		for (uint32_t q = 0; q < nq; q++)
			if (end[q] > all_end)
				weigh_one(st->p + q * GROUP, v[g], is_f16, st->d, all_end, end[q],
					  st->acc + (size_t)(q0 + q) * st->d);
	}
}

/* Constant widths, so that accumulators stay in registers. */
ATTEND_INLINE void scan_narrow(struct unit_state *st, uint32_t q0, uint32_t nq,
			       const struct group *groups, const void *const *k,
			       const void *const *v, uint32_t ng, bool is_f16)
{
	switch (nq) {
	case 1:
		scan_block(st, q0, 1, groups, k, v, ng, is_f16);
		break;
	case 2:
		scan_block(st, q0, 2, groups, k, v, ng, is_f16);
		break;
	case 3:
		scan_block(st, q0, 3, groups, k, v, ng, is_f16);
		break;
	default:
		scan_block(st, q0, V16_NARROW, groups, k, v, ng, is_f16);
	}
}

/* A unit with few queries: straight from memory, several groups at once. */
static void scan_few(struct unit_state *st, const struct group *groups, uint32_t ng)
{
	const void *k[V16_NARROW_GROUPS], *v[V16_NARROW_GROUPS];

	for (uint32_t g = 0; g < ng; g++) {
		k[g] = groups[g].k;
		v[g] = groups[g].v;
	}
	if (ng == V16_NARROW_GROUPS && st->is_f16) {
		scan_narrow(st, 0, st->nr_q, groups, k, v, V16_NARROW_GROUPS, true);
		return;
	}
	for (uint32_t g = 0; g < ng; g++) {
		if (st->is_f16)
			scan_narrow(st, 0, st->nr_q, groups + g, k + g, v + g, 1, true);
		else
			scan_narrow(st, 0, st->nr_q, groups + g, k + g, v + g, 1, false);
	}
}

static void widen(const void *src, bool is_f16, size_t nr, float *dst)
{
	for (size_t i = 0; i < nr; i += 16)
		v16_store(dst + i, load_elems(src, i, is_f16));
}

/* A unit with many queries: the group as floats, once, then block after block. */
static void scan_many(struct unit_state *st, const struct group *grp)
{
	const void *k = grp->k, *v = grp->v;

	if (st->is_f16) {
		widen(grp->k, true, (size_t)st->d * GROUP, st->kf);
		/* Rows past the piece's end were never written: leave them be. */
		widen((const uint16_t *)grp->v + (size_t)(grp->first - grp->token) * st->d, true,
		      (size_t)(grp->end - grp->first) * st->d,
		      st->vf + (size_t)(grp->first - grp->token) * st->d);
		k = st->kf;
		v = st->vf;
	}
	for (uint32_t q0 = 0; q0 < st->nr_q;) {
		uint32_t nq = block_width(st->nr_q - q0), end = 0, lo = UINT32_MAX;

		for (uint32_t q = q0; q < q0 + nq; q++) {
			end = st->end[q] > end ? st->end[q] : end;
			lo = st->lo[q] < lo ? st->lo[q] : lo;
		}
		if (grp->first < end && grp->end > lo) {
			if (nq == V16_BLOCK)
				scan_block(st, q0, V16_BLOCK, grp, &k, &v, 1, false);
			else
				scan_narrow(st, q0, nq, grp, &k, &v, 1, false);
		}
		q0 += nq;
	}
}

ATTEND_INLINE void total_add(float *total, float *total_max, float *total_sum, const float *acc,
			     float max, float sum, uint32_t d)
{
	float new_max = max > *total_max ? max : *total_max;
	float c_old, c_new;

	if (max == -INFINITY)
		return;
	if (*total_max == -INFINITY) {
		memcpy(total, acc, d * sizeof(float));
		*total_sum = sum;
		*total_max = max;
		return;
	}
	c_old = exp_scalar(*total_max - new_max);
	c_new = exp_scalar(max - new_max);
	for (uint32_t i = 0; i < d; i += 16)
		v16_store(total + i, v16_fma(v16_load(total + i), v16_set1(c_old),
					     v16_mul(v16_load(acc + i), v16_set1(c_new))));
	*total_sum = fmaf(*total_sum, c_old, sum * c_new);
	*total_max = new_max;
}

/* Fold the split at hand into the totals and begin the next. */
static void finish_split(struct unit_state *st)
{
	if (!st->has_total)
		for (uint32_t q = 0; q < st->nr_q; q++)
			st->total_max[q] = -INFINITY;
	st->has_total = true;
	for (uint32_t q = 0; q < st->nr_q; q++) {
		total_add(st->total_acc + (size_t)q * st->d, &st->total_max[q], &st->total_sum[q],
			  st->acc + (size_t)q * st->d, st->max[q],
			  v16_fold(v16_load(st->lanes + (size_t)q * GROUP)), st->d);
		st->max[q] = -INFINITY;
	}
	memset(st->acc, 0, (size_t)st->nr_q * st->d * sizeof(float));
	memset(st->lanes, 0, (size_t)st->nr_q * GROUP * sizeof(float));
}

/* Groups that wait to be scanned together: narrow units scan several at once. */
struct pending {
	struct group groups[V16_NARROW_GROUPS];
	uint32_t nr;
};

static void scan_pending(struct unit_state *st, struct pending *pending)
{
	if (pending->nr)
		scan_few(st, pending->groups, pending->nr);
	pending->nr = 0;
}

/* Tokens [t, last) of a piece, group by group. */
static void scan_piece(struct unit_state *st, const struct attn_piece *p, uint64_t run, uint32_t t,
		       uint32_t last, struct pending *pending)
{
	const struct attn_layout *l = st->a->layout;

	while (t < last) {
		uint32_t token = t & ~(uint32_t)(GROUP - 1);
		uint32_t next = token + GROUP < last ? token + GROUP : last;
		const uint8_t *k = attn_tile(l, p, t) + run;
		size_t at = (size_t)(token % l->tile_tokens) * st->d * l->elem_bytes;
		struct group grp = { k + at, k + l->v_offset_bytes + at, token, t, next };

		if (token / ATTN_SPLIT_TOKENS != st->split) {
			scan_pending(st, pending);
			finish_split(st);
			st->split = token / ATTN_SPLIT_TOKENS;
		}
		t = next;
		if (st->nr_q > V16_NARROW) {
			scan_many(st, &grp);
			continue;
		}
		pending->groups[pending->nr++] = grp;
		if (pending->nr == V16_NARROW_GROUPS)
			scan_pending(st, pending);
	}
}

static void scan_unit(struct unit_state *st, const struct attn_unit *u, uint32_t kv_head)
{
	uint64_t run = attn_run_offset(st->a->layout, st->a->layer, kv_head);
	struct pending pending = { .nr = 0 };
	uint32_t lo = UINT32_MAX, end = 0;

	for (uint32_t q = 0; q < st->nr_q; q++) {
		end = st->end[q] > end ? st->end[q] : end;
		lo = st->lo[q] < lo ? st->lo[q] : lo;
	}
	for (uint32_t i = 0; i < u->nr_pieces; i++) {
		const struct attn_piece *p = &st->a->plan->pieces[u->first_piece + i];

		scan_piece(st, p, run, p->first_token > lo ? p->first_token : lo,
			   p->end_token < end ? p->end_token : end, &pending);
	}
	scan_pending(st, &pending);
	if (st->has_total)
		finish_split(st);
}

static float *take(float **scratch, size_t nr)
{
	float *p = *scratch;

	*scratch += (nr + 15) & ~(size_t)15;
	return p;
}

static void unit_init(struct unit_state *st, const struct attn_args *a, const struct attn_unit *u,
		      uint32_t kv_head, float *scratch)
{
	uint32_t d = a->layout->head_dim, g = a->nr_q_heads / a->layout->nr_kv_heads;
	uint32_t nr_q = u->nr_rows * g;

	*st = (struct unit_state){ .a = a, .d = d, .g = g, .nr_q = nr_q, .split = u->first_split };
	st->is_f16 = a->layout->elem == ATTN_F16;
	st->qt = take(&scratch, (size_t)nr_q * d);
	st->acc = take(&scratch, (size_t)nr_q * d);
	st->lanes = take(&scratch, (size_t)nr_q * GROUP);
	st->max = take(&scratch, nr_q);
	st->total_acc = take(&scratch, (size_t)nr_q * d);
	st->total_max = take(&scratch, nr_q);
	st->total_sum = take(&scratch, nr_q);
	st->lo = (uint32_t *)take(&scratch, nr_q);
	st->end = (uint32_t *)take(&scratch, nr_q);
	st->all_lo = (uint32_t *)take(&scratch, nr_q);
	st->all_end = (uint32_t *)take(&scratch, nr_q);
	st->p = take(&scratch, (size_t)GROUP * MAX_BLOCK);
	st->kf = take(&scratch, (size_t)GROUP * d);
	st->vf = take(&scratch, (size_t)GROUP * d);
	memset(st->acc, 0, (size_t)nr_q * d * sizeof(float));
	memset(st->lanes, 0, (size_t)nr_q * GROUP * sizeof(float));
	for (uint32_t q0 = 0; q0 < nr_q;) {
		uint32_t nq = block_width(nr_q - q0);

		st->all_lo[q0] = 0;
		st->all_end[q0] = UINT32_MAX;
		for (uint32_t q = 0; q < nq; q++) {
			const struct attn_row *row = &a->plan->rows[u->first_row + (q0 + q) / g];
			const float *src = a->q + row->batch_row * a->q_stride +
					   (size_t)(kv_head * g + (q0 + q) % g) * d;
			float *dst = st->qt + (size_t)q0 * d + q;

			for (uint32_t i = 0; i < d; i++)
				dst[(size_t)i * nq] = src[i];
			st->max[q0 + q] = -INFINITY;
			st->end[q0 + q] = row->end_key;
			st->lo[q0 + q] = row->first_key;
			if (row->first_key > st->all_lo[q0])
				st->all_lo[q0] = row->first_key;
			if (row->end_key < st->all_end[q0])
				st->all_end[q0] = row->end_key;
		}
		q0 += nq;
	}
}

static void attend_body(const struct attn_args *a, uint32_t unit, uint32_t kv_head, void *scratch)
{
	const struct attn_unit *u = &a->plan->units[unit];
	struct unit_state st;

	unit_init(&st, a, u, kv_head, scratch);
	scan_unit(&st, u, kv_head);
	for (uint32_t q = 0; q < st.nr_q; q++) {
		const struct attn_row *row = &a->plan->rows[u->first_row + q / st.g];
		uint32_t head = kv_head * st.g + q % st.g, d = st.d;
		const float *acc = (st.has_total ? st.total_acc : st.acc) + (size_t)q * d;
		float sum = st.has_total ? st.total_sum[q] :
					   v16_fold(v16_load(st.lanes + (size_t)q * GROUP));
		float *out;

		if (row->slot == ATTN_SLOT_DIRECT) {
			out = a->out + row->batch_row * a->out_stride + (size_t)head * d;
			for (uint32_t i = 0; i < d; i += 16)
				v16_store(out + i, v16_div(v16_load(acc + i), v16_set1(sum)));
			continue;
		}
		out = a->slots + ((size_t)row->slot * a->nr_q_heads + head) * attn_slot_floats(d);
		memcpy(out, acc, d * sizeof(float));
		out[d] = st.has_total ? st.total_max[q] : st.max[q];
		out[d + 1] = sum;
	}
}

static void merge_body(const struct attn_args *a, uint32_t merge, uint32_t first_head,
		       uint32_t end_head)
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

			total_add(out, &max, &sum, slot, slot[d], slot[d + 1], d);
		}
		for (uint32_t i = 0; i < d; i += 16)
			v16_store(out + i, v16_div(v16_load(out + i), v16_set1(sum)));
	}
}
