/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attention routine for ordinary dense tensors, pointers and strides, that
 * knows nothing of tiles, segments or pools, runs over KV_LAYOUT_LAYER as it is
 * while the sequence grows, forks and is found again; its result equals an
 * independent float64 computation. Then: the buffers of the layout, and that
 * growth moved nothing.
 */
#include "tests/harness.h"

#include <math.h>

#include "engine/kv/segment.h"
#include "tests/engine/kv_kit.h"

enum {
	NR_LAYERS = 2,
	NR_KV_HEADS = 2,
	NR_Q_HEADS = 4,
	DIM = 16,
	MAX_TOKENS = 700
};

/* ---- the routine: somebody else's, over tensors [t][head][dim] ---- */

/*
 * out[head][dim] = softmax(q . K^T / sqrt(dim)) V for one query row, in float32. Strides in
 * floats.
 */
static void dense_attention(const float *q, const float *k, const float *v,
			    float *out, int nr_tokens, int nr_q_heads,
			    int nr_kv_heads, int dim, long token_stride,
			    long head_stride)
{
	for (int h = 0; h < nr_q_heads; h++) {
		const float *kh =
			k + h / (nr_q_heads / nr_kv_heads) * head_stride;
		const float *vh =
			v + h / (nr_q_heads / nr_kv_heads) * head_stride;
		float max = -INFINITY, sum = 0;

		for (int d = 0; d < dim; d++)
			out[h * dim + d] = 0;
		for (int t = 0; t < nr_tokens; t++) {
			float score = 0;

			for (int d = 0; d < dim; d++)
				score += q[h * dim + d] *
					 kh[t * token_stride + d];
			score /= sqrtf((float)dim);
			float new_max = score > max ? score : max;
			float scale = expf(max - new_max),
			      p = expf(score - new_max);

			for (int d = 0; d < dim; d++)
				out[h * dim + d] = out[h * dim + d] * scale +
						   p * vh[t * token_stride + d];
			sum = sum * scale + p;
			max = new_max;
		}
		for (int d = 0; d < dim; d++)
			out[h * dim + d] /= sum;
	}
}

/* ---- the reference: float64, over values computed again, not read from the cache ---- */

static float value_of(int32_t token, uint32_t pos, uint32_t layer, bool v,
		      uint32_t head, uint32_t dim)
{
	uint64_t h = kit_mix((uint64_t)token * 1315423911u + pos * 2654435761u +
			     layer * 97 + v * 31 + head * 7 + dim);

	return (float)((double)(h >> 40) / (1 << 23) - 1);
}

static void reference(const float *q, const int32_t *tokens, uint32_t nr,
		      uint32_t layer, double *out)
{
	for (uint32_t h = 0; h < NR_Q_HEADS; h++) {
		static double scores[MAX_TOKENS];
		uint32_t kv = h / (NR_Q_HEADS / NR_KV_HEADS);
		double max = -INFINITY, sum = 0;

		for (uint32_t t = 0; t < nr; t++) {
			scores[t] = 0;
			for (uint32_t d = 0; d < DIM; d++)
				scores[t] += (double)q[h * DIM + d] *
					     value_of(tokens[t], t, layer,
						      false, kv, d);
			scores[t] /= sqrt(DIM);
			max = fmax(max, scores[t]);
		}
		for (uint32_t d = 0; d < DIM; d++)
			out[h * DIM + d] = 0;
		for (uint32_t t = 0; t < nr; t++) {
			double p = exp(scores[t] - max);

			sum += p;
			for (uint32_t d = 0; d < DIM; d++)
				out[h * DIM + d] += p * value_of(tokens[t], t,
								 layer, true,
								 kv, d);
		}
		for (uint32_t d = 0; d < DIM; d++)
			out[h * DIM + d] /= sum;
	}
}

/* ---- the tests ---- */

FIXTURE(dense)
{
	struct kvpool *pool;
	struct kv_cache *cache;
	int32_t tokens[MAX_TOKENS];
};

FIXTURE_SETUP(dense)
{
	struct kvpool_options pool_options = { .size = sizeof(pool_options),
					       .limit_bytes = 64 << 20 };

	ASSERT_EQ(0, kvpool_open(&pool_options, &self->pool));
	struct kv_cache_options options = {
		.pool = self->pool,
		.layout = KV_LAYOUT_LAYER,
		.elem = ATTN_F32,
		.nr_streams = 1,
		.streams = { { .nr_layers = NR_LAYERS,
			       .nr_kv_heads = NR_KV_HEADS,
			       .head_dim = DIM } },
		.max_tokens = MAX_TOKENS,
		.prefix_cache = true,
	};

	ASSERT_EQ(0, kv_cache_create(&options, &self->cache));
	for (int i = 0; i < MAX_TOKENS; i++)
		self->tokens[i] = i * 37 % 101;
}

FIXTURE_TEARDOWN(dense)
{
	kv_cache_destroy(self->cache);
	kvpool_put(self->pool);
}

static struct kv_seq *open_ok(struct fixture_dense *self, uint32_t nr,
			      uint32_t *matched)
{
	static const struct kvpool_key salt;
	struct kv_seq *seq = NULL;
	enum kv_miss miss;

	ASSERT_EQ(0, kv_seq_open(self->cache, self->tokens, nr, MAX_TOKENS,
				 &salt, 0, &seq, matched, &miss));
	return seq;
}

static void grow_ok(struct fixture_dense *self, struct kv_seq *seq, uint32_t nr)
{
	uint32_t at = kv_seq_len(seq);

	ASSERT_EQ(0, kv_seq_append(seq, self->tokens + at, nr));
	for (uint32_t l = 0; l < NR_LAYERS; l++) {
		for (int v = 0; v < 2; v++) {
			float *tensor = (float *)kv_seq_dense(seq, 0, l, v);

			for (uint32_t t = at; t < at + nr; t++) {
				for (uint32_t h = 0; h < NR_KV_HEADS; h++) {
					for (uint32_t d = 0; d < DIM; d++)
						tensor[(t * NR_KV_HEADS + h) *
							       DIM +
						       d] =
							value_of(
								self->tokens[t],
								t, l, v, h, d);
				}
			}
		}
	}
}

static void attend_and_compare(struct fixture_dense *self,
			       const struct kv_seq *seq)
{
	float q[NR_Q_HEADS * DIM], out[NR_Q_HEADS * DIM];
	double expected[NR_Q_HEADS * DIM];
	uint32_t len = kv_seq_len(seq);

	for (uint32_t l = 0; l < NR_LAYERS; l++) {
		double err = 0, norm = 0;

		for (uint32_t i = 0; i < NR_Q_HEADS * DIM; i++) {
			q[i] = value_of(5, len, l, false, 9, i) * 3;
			out[i] = NAN;
		}
		dense_attention(q,
				(const float *)kv_seq_dense(seq, 0, l, false),
				(const float *)kv_seq_dense(seq, 0, l, true),
				out, (int)len, NR_Q_HEADS, NR_KV_HEADS, DIM,
				NR_KV_HEADS * DIM, DIM);
		reference(q, self->tokens, len, l, expected);
		for (uint32_t i = 0; i < NR_Q_HEADS * DIM; i++) {
			err += (out[i] - expected[i]) * (out[i] - expected[i]);
			norm += expected[i] * expected[i];
		}
		EXPECT_TRUE(sqrt(err / norm) < 1e-5)
		{
			TH_LOG("%u tokens, layer %u: relative error %g", len, l,
			       sqrt(err / norm));
		}
	}
}

TEST_F(dense, an_unmodified_dense_kernel_runs_while_the_sequence_grows)
{
	static const uint32_t steps[] = { 1, 62, 1, 1, 100, 347, 1, 128 };
	uint32_t matched;
	struct kv_seq *seq = open_ok(self, 10, &matched);
	const uint8_t *first = kv_seq_dense(seq, 0, 1, true);

	for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		grow_ok(self, seq, steps[i]);
		attend_and_compare(self, seq);
	}
	/* Contiguous and in place all along: a pointer taken at the start is still good. */
	EXPECT_TRUE(first == kv_seq_dense(seq, 0, 1, true));
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
}

TEST_F(dense, forks_and_matches_are_dense_too)
{
	uint32_t matched;
	struct kv_seq *seq = open_ok(self, 10, &matched), *child;

	grow_ok(self, seq, 300);
	ASSERT_EQ(0, kv_seq_fork(seq, MAX_TOKENS, &child));
	grow_ok(self, child, 5);
	attend_and_compare(self, child);
	ASSERT_EQ(0, kv_seq_truncate(seq, 77));
	attend_and_compare(self, seq);
	attend_and_compare(self, child);
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
	kv_seq_close(child);

	/* Found again: all 305 tokens, copied into one run of its own. */
	seq = open_ok(self, 400, &matched);
	EXPECT_EQ(305, matched);
	attend_and_compare(self, seq);
	grow_ok(self, seq, 3);
	attend_and_compare(self, seq);
	EXPECT_TRUE(kit_check(self->cache));
	kv_seq_close(seq);
}

TEST_F(dense, layout_has_no_padding)
{
	const struct attn_layout *l = kv_cache_layout(self->cache, 0);

	EXPECT_EQ(1, l->nr_layers);
	EXPECT_EQ(DIM * 4, l->head_bytes);
	EXPECT_EQ(0, l->v_offset_bytes);
	EXPECT_EQ(l->tile_tokens * NR_KV_HEADS * DIM * 4, l->stride_bytes);
	uint32_t matched;
	struct attn_piece pieces[KV_MAX_CHAIN + 1];
	struct kv_seq *seq = open_ok(self, 10, &matched);

	grow_ok(self, seq, 10);
	EXPECT_EQ(-EINVAL, kv_seq_pieces(seq, 0, 0, 10, pieces));
	kv_seq_close(seq);
}

TEST_HARNESS_MAIN
