/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sequence may ask of the sampler. Any thread.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"

static int check_ranges(const struct tarn_sampling *s, char *err, size_t errlen)
{
	const struct {
		const char *name;
		float value, min, max;
	} floats[] = {
		{ "temperature", s->temperature, 0, 100 },
		{ "top_p", s->top_p, 0, 1 },
		{ "min_p", s->min_p, 0, 1 },
		{ "typical_p", s->typical_p, 0, 1 },
		{ "top_n_sigma", s->top_n_sigma, 0, 100 },
		{ "xtc_probability", s->xtc_probability, 0, 1 },
		{ "xtc_threshold", s->xtc_threshold, 0, 1 },
		{ "mirostat_tau", s->mirostat_tau, 0, 100 },
		{ "mirostat_eta", s->mirostat_eta, 0, 1 },
		{ "repetition_penalty", s->repetition_penalty, 0, 100 },
		{ "presence_penalty", s->presence_penalty, -100, 100 },
		{ "frequency_penalty", s->frequency_penalty, -100, 100 },
		{ "dry_multiplier", s->dry_multiplier, 0, 100 },
		{ "dry_base", s->dry_multiplier > 0 ? s->dry_base : 1, 1, 100 },
	};

	for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
		if (floats[i].value >= floats[i].min &&
		    floats[i].value <= floats[i].max)
			continue; /* NaN is in no range */
		snprintf(err, errlen, "%s is %g, want %g to %g", floats[i].name,
			 (double)floats[i].value, (double)floats[i].min,
			 (double)floats[i].max);
		return -EINVAL;
	}
	return 0;
}

static int check_order(const struct tarn_sampling *s, char *err, size_t errlen)
{
	uint32_t seen = 0;

	if (s->nr_order > TARN_NR_SAMPLERS) {
		snprintf(err, errlen, "%u steps of the sampler, there are %d",
			 s->nr_order, TARN_NR_SAMPLERS);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < s->nr_order; i++) {
		if ((uint32_t)s->order[i] < TARN_NR_SAMPLERS &&
		    !(seen >> s->order[i] & 1)) {
			seen |= 1u << s->order[i];
			continue;
		}
		snprintf(
			err, errlen,
			"step %u of the sampler, number %d, is unknown or there twice",
			i, (int)s->order[i]);
		return -EINVAL;
	}
	return 0;
}

static int check_biases(const struct tarn_engine *e,
			const struct tarn_sampling *s, char *err, size_t errlen)
{
	for (uint32_t i = 0; i < s->nr_biases; i++) {
		const struct tarn_logit_bias *b = &s->biases[i];

		if (b->id < 0 || (uint32_t)b->id >= e->info.nr_vocab) {
			snprintf(
				err, errlen,
				"logit bias for token id %d, which is out of range: want 0 to %u",
				b->id, e->info.nr_vocab - 1);
			return -EINVAL;
		}
		if (!(fabsf(b->bias) <= 1e6f)) {
			snprintf(
				err, errlen,
				"the logit bias of token id %d is %g, want -1e6 to 1e6",
				b->id, (double)b->bias);
			return -EINVAL;
		}
	}
	return 0;
}

int engine_check_sampling(const struct tarn_engine *e,
			  const struct tarn_sampling *s, char *err,
			  size_t errlen)
{
	int rc = check_ranges(s, err, errlen);

	if (!rc)
		rc = check_order(s, err, errlen);
	if (!rc)
		rc = check_biases(e, s, err, errlen);
	if (rc)
		return rc;
	if (s->grammar && !structured_owns(e->structured, s->grammar)) {
		snprintf(err, errlen, "the grammar is another engine's");
		return -EINVAL;
	}
	if (s->nr_logprobs > TARN_MAX_LOGPROBS) {
		snprintf(err, errlen,
			 "%u log probabilities a token, want at most %d",
			 s->nr_logprobs, TARN_MAX_LOGPROBS);
		return -EINVAL;
	}
	return 0;
}

/* ---- DRY's sequence breakers ------------------------------------------------------ */

enum { MAX_BREAKERS = 64 };

/* Texts by their first byte, so that a token is looked through once whatever their number. */
struct breakers {
	const struct tarn_bytes *texts;
	uint32_t nr;
	uint64_t by_first[256]; /* bits by text */
	uint64_t found; /* texts that some token contains */
};

static bool contains_one(struct breakers *b, const char *piece, size_t len)
{
	bool is_found = false;

	for (size_t at = 0; at < len; at++) {
		uint64_t left = b->by_first[(unsigned char)piece[at]];

		for (; left; left &= left - 1) {
			int i = __builtin_ctzll(left);

			if (b->texts[i].len > len - at ||
			    memcmp(piece + at, b->texts[i].bytes,
				   b->texts[i].len) != 0)
				continue;
			b->found |= 1ull << i;
			is_found = true;
		}
	}
	return is_found;
}

/* A text longer than any token: its last token breaks, as DRY's author does it. */
static int add_last_token(const struct tarn_engine *e,
			  const struct tarn_bytes *text, uint64_t *bits)
{
	int32_t *ids;
	size_t nr;
	int rc = tarn_tokenize(e, text->bytes, text->len,
			       TARN_TOKENIZE_PARSE_SPECIAL, &ids, &nr);

	if (rc)
		return rc;
	if (nr)
		bits[ids[nr - 1] >> 6] |= 1ull << (ids[nr - 1] & 63);
	free(ids);
	return 0;
}

int tarn_dry_breakers(const struct tarn_engine *e,
		      const struct tarn_bytes *texts, uint32_t nr,
		      uint64_t **out)
{
	uint64_t *bits = calloc((e->info.nr_vocab + 63) / 64, sizeof(*bits));
	struct breakers b = { .texts = texts, .nr = nr };
	int rc = 0;

	if (!bits)
		return -ENOMEM;
	if (nr > MAX_BREAKERS)
		rc = -EINVAL;
	for (uint32_t i = 0; i < nr && !rc; i++)
		b.by_first[(unsigned char)texts[i].bytes[0]] |= 1ull << i;
	for (uint32_t id = 0; id < e->info.nr_vocab && !rc; id++) {
		size_t len;
		const char *piece =
			tarn_token_piece(e, (int32_t)id, true, &len);

		if (piece && contains_one(&b, piece, len))
			bits[id >> 6] |= 1ull << (id & 63);
	}
	for (uint32_t i = 0; i < nr && !rc; i++)
		if (!(b.found >> i & 1))
			rc = add_last_token(e, &texts[i], bits);
	if (rc) {
		free(bits);
		return rc;
	}
	*out = bits;
	return 0;
}
