/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu_sample.cu draws from and what must come out: rows of logits of many
 * kinds with what is asked of them, and the answers of sample_row(), which the
 * device must repeat bit for bit. Host code without CUDA.
 */
#ifndef TARN_TESTS_BENCH_GPU_SAMPLE_KIT_CUH
#define TARN_TESTS_BENCH_GPU_SAMPLE_KIT_CUH

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <algorithm>
#include <thread>
#include <vector>
extern "C" {
#include "engine/backend/sample.h"
#include "kernels/cpu/kernels_private.h"
}
#include "kernels/cuda/sample_params.h"

enum row_kind {
	KIND_WIDE, /* a few units across: many tokens race */
	KIND_PEAKED, /* as of a model sure of itself */
	KIND_STEPS, /* a few values only: ties everywhere */
	KIND_EQUAL,
	KIND_FEW, /* -inf but for three */
	KIND_NONE, /* -inf */
	KIND_NANS, /* here and there */
	KIND_FIRST_NAN, /* among the first ids */
	KIND_ALL_NAN,
	KIND_INF, /* one of +inf */
	KIND_ZEROS, /* 0, -0 and below */
	KIND_HUGE, /* differences beyond float */
	KIND_TINY, /* subnormal */
	KIND_RISING, /* one thread of the kernel owns none of the largest, or all */
	NR_KINDS,
};

struct draws {
	uint32_t n_vocab, stride, mask_words;
	std::vector<float> logits; /* [row][stride] */
	std::vector<uint64_t> masks; /* [row][mask_words] */
	std::vector<struct gpu_sample_row>
		rows; /* allowed: into masks, of the host */
	std::vector<struct gpu_sample_result> want;
};

/* ---- rows ---- */

static inline uint64_t kit_hash(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* About normal, from four 16-bit numbers. */
static inline float kit_normal(uint64_t h)
{
	int sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (int)(h >> 16 * i & 0xffff) - 0x8000;
	return (float)sum * 0x1.bb67aep-16f;
}

static float kit_logit(enum row_kind kind, uint64_t seed, uint32_t id,
		       uint32_t n_vocab)
{
	uint64_t h = kit_hash(seed * 0x100000001ull + id);
	float x = kit_normal(h);
	uint32_t one = (uint32_t)(kit_hash(seed) % n_vocab);

	switch (kind) {
	case KIND_PEAKED:
		return id == one ? 25.0f : 4 * x - 5;
	case KIND_STEPS:
		return (float)(int)(2 * x);
	case KIND_EQUAL:
		return -3.25f;
	case KIND_FEW:
		return (id + one) % (n_vocab / 3 + 1) ? -INFINITY : x;
	case KIND_NONE:
		return -INFINITY;
	case KIND_NANS:
		return h % 5 ? x : NAN;
	case KIND_FIRST_NAN:
		return id < 24 && h % 3 == 0 ? NAN : 2 * x;
	case KIND_ALL_NAN:
		return NAN;
	case KIND_INF:
		return id == one ? INFINITY : x;
	case KIND_ZEROS:
		return h % 3 == 0 ? 0.0f : h % 3 == 1 ? -0.0f : -fabsf(x);
	case KIND_HUGE:
		return x * 1e38f;
	case KIND_TINY:
		return x * 1e-39f;
	case KIND_RISING:
		return (float)(id / 4 % 512) + (float)(id % 4) * 0.25f;
	default:
		return 3 * x;
	}
}

/* Mask of row @i: random, one token, or the last one. */
static void set_mask(struct draws *d, uint32_t i, uint64_t h)
{
	uint64_t *mask = &d->masks[(size_t)i * d->mask_words];
	uint32_t one = h % 3 ? d->n_vocab - 1 : (uint32_t)(h >> 8) % d->n_vocab;

	for (uint32_t w = 0; w < d->mask_words; w++)
		mask[w] = h % 4 < 2 ? kit_hash(h + w) : 0;
	mask[one / 64] |= 1ull << one % 64;
	d->rows[i].allowed = mask;
}

/* Tokens that would be drawn: the largest ones, and others. */
static void set_banned(struct draws *d, uint32_t i, uint64_t h)
{
	struct gpu_sample_row *row = &d->rows[i];
	const float *x = &d->logits[(size_t)i * d->stride];
	uint32_t best = argmax_ref(x, d->n_vocab);

	row->nr_banned = 1 + h % GPU_SAMPLE_MAX_BANNED;
	row->banned[0] = (int32_t)best;
	for (uint32_t k = 1; k < row->nr_banned; k++)
		row->banned[k] =
			(int32_t)((best + k * (h >> 20 & 0xff)) % d->n_vocab);
	if (d->n_vocab > GPU_SAMPLE_MAX_BANNED + 1 || h % 2)
		return;
	/* All but one. */
	row->nr_banned = d->n_vocab - 1;
	for (uint32_t k = 0; k < row->nr_banned; k++)
		row->banned[k] = (int32_t)(k + (k >= h % d->n_vocab));
}

static void set_row(struct draws *d, uint32_t i, uint64_t h)
{
	static const float temperatures[] = { 0,      1,    0.7f,   0.01f,
					      100.0f, 1.0f, 1e-40f, INFINITY };
	static const float min_ps[] = { 0, 0, 0.05f, 1, 1.5f, 0, 0, -1 };
	static const uint32_t top_ks[] = { 0, 0, 0, 1, 5, 20, 50, 256 };
	static const float top_ps[] = { 1, 0.9f, 0.5f, 0.99f,
					0, -1,	 0.1f, 0.999f };
	static const uint32_t tops[] = { 0, 1, 5, 20, 0, 0, 20, 0 };
	struct gpu_sample_row *row = &d->rows[i];

	row->seed = kit_hash(h);
	row->choice = h % 3;
	row->position = h >> 40;
	row->logits_row = i;
	row->temperature = temperatures[h >> 8 & 7];
	row->min_p = min_ps[h >> 11 & 7];
	row->top_k = top_ks[h >> 55 & 7];
	if (i % NR_KINDS == KIND_RISING)
		row->top_k = 256; /* far more are listed at first than fit */
	row->top_p = row->top_k ? top_ps[h >> 58 & 7] : 1;
	row->nr_top = tops[h >> 14 & 7];
	row->want_logprob = h >> 17 & 1;
	row->is_given = (h >> 18 & 7) == 0;
	row->token = (int32_t)((h >> 24) % d->n_vocab);
	if ((h >> 21 & 3) == 0)
		set_mask(d, i, kit_hash(h + 1));
	if ((h >> 23 & 3) == 0)
		set_banned(d, i, kit_hash(h + 2));
	row->is_off = (h >> 50 & 31) == 0;
}

/* ---- answers ---- */

static void answer(struct draws *d, uint32_t i, void *scratch)
{
	const struct gpu_sample_row *row = &d->rows[i];
	struct gpu_sample_result *r = &d->want[i];
	struct cpu_kernels kernels = {};
	struct backend_sample s = {};

	kernels.argmax = argmax_ref;
	kernels.exp_sum = exp_sum_ref;
	s.temperature = row->temperature;
	s.min_p = row->min_p;
	s.top_k = row->top_k;
	s.top_p = row->top_p;
	s.seed = row->seed;
	s.choice = row->choice;
	s.position = row->position;
	s.want_logprob = row->want_logprob;
	s.is_given = row->is_given;
	s.token = row->token;
	s.nr_top = row->nr_top;
	s.banned = row->banned;
	s.nr_banned = row->nr_banned;
	s.allowed = row->allowed;
	sample_row(&kernels, &d->logits[(size_t)i * d->stride], d->n_vocab, &s,
		   scratch);
	r->token = s.token;
	r->logprob = s.logprob;
	r->nr_top = s.nr_top;
	memcpy(r->top_ids, s.top_ids, sizeof(r->top_ids));
	memcpy(r->top_logprobs, s.top_logprobs, sizeof(r->top_logprobs));
}

static void draws_fill(struct draws *d, uint32_t first, uint32_t end,
		       uint64_t seed)
{
	void *scratch = aligned_alloc(
		64, (sample_scratch_bytes(d->n_vocab) + 63) / 64 * 64);

	for (uint32_t i = first; i < end; i++) {
		uint64_t h = kit_hash(seed * 1000 + i);

		for (uint32_t id = 0; id < d->stride; id++)
			d->logits[(size_t)i * d->stride + id] =
				id < d->n_vocab ?
					kit_logit((enum row_kind)(i % NR_KINDS),
						  h, id, d->n_vocab) :
					INFINITY; /* never looked at */
		set_row(d, i, h);
		answer(d, i, scratch);
	}
	free(scratch);
}

/* @nr rows, all kinds of them in turn, with their answers. */
static void draws_init(struct draws *d, uint32_t n_vocab, uint32_t nr,
		       uint64_t seed)
{
	const uint32_t nr_threads = 16;
	std::vector<std::thread> threads;

	d->n_vocab = n_vocab;
	d->stride = (n_vocab + 3) / 4 * 4 + seed % 2 * 8;
	d->mask_words = (n_vocab + 63) / 64;
	d->logits.assign((size_t)nr * d->stride, 0);
	d->masks.assign((size_t)nr * d->mask_words, 0);
	d->rows.assign(nr, {});
	d->want.assign(nr, {});
	for (uint32_t t = 0; t < nr_threads; t++)
		threads.emplace_back(draws_fill, d, nr * t / nr_threads,
				     nr * (t + 1) / nr_threads, seed);
	for (std::thread &t : threads)
		t.join();
}

/* ---- comparison ---- */

static bool same_bits(float a, float b)
{
	return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

/* What differs first, or NULL. */
static const char *draw_diff(const struct gpu_sample_row *row,
			     const struct gpu_sample_result *want,
			     const struct gpu_sample_result *got)
{
	if (row->is_off) /* over bytes of 0xff */
		return got->token == -1 && got->nr_top == UINT32_MAX ?
			       NULL :
			       "written";
	if (got->token != want->token)
		return "token";
	if (row->want_logprob && !same_bits(got->logprob, want->logprob))
		return "log probability";
	if (got->nr_top != want->nr_top)
		return "number of top tokens";
	for (uint32_t i = 0; i < want->nr_top; i++) {
		if (got->top_ids[i] != want->top_ids[i])
			return "top ids";
		if (!same_bits(got->top_logprobs[i], want->top_logprobs[i]))
			return "top log probabilities";
	}
	return NULL;
}

/* Rows that differ; the first few are named. */
static uint32_t nr_wrong_draws(const struct draws *d,
			       const std::vector<struct gpu_sample_result> &got)
{
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < d->rows.size(); i++) {
		const struct gpu_sample_row *row = &d->rows[i];
		const char *what = draw_diff(row, &d->want[i], &got[i]);

		if (!what || wrong++ > 4)
			continue;
		printf("  n_vocab %u row %u kind %d: %s; token %d, want %d; "
		       "logprob %g, want %g; temperature %g, min_p %g, top %u, "
		       "banned %u, %s\n",
		       d->n_vocab, i, (int)(i % NR_KINDS), what, got[i].token,
		       d->want[i].token, (double)got[i].logprob,
		       (double)d->want[i].logprob, (double)row->temperature,
		       (double)row->min_p, row->nr_top, row->nr_banned,
		       row->allowed ? "masked" : "not masked");
	}
	return wrong;
}

#endif
