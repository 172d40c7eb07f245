/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps that take candidates out of a draw: see sample.h. Each is a function of the weights
 * alone, sums in double in the order of the candidates, ties to the lower id: a thread or an
 * instruction set changes nothing.
 */
#ifndef TARN_ENGINE_BACKEND_SAMPLE_FILTER_H
#define TARN_ENGINE_BACKEND_SAMPLE_FILTER_H

#include <stdint.h>

struct candidates {
	const float *logits; /* [n_vocab] */
	float *weights; /* [n_vocab] e^((x - max) / temperature), by token id */
	float *keys; /* [n_vocab] scratch */
	double sigma; /* logits_sigma() of the row before it was changed */
	uint32_t *ids; /* those still in the race */
	uint32_t nr;
};

/* Heavier first, lower id among equals; the list's order afterwards. */
void filter_top_k(struct candidates *c, uint32_t top_k);
/* Keep the fewest, heaviest first, whose share of the weight reaches @top_p. */
void filter_top_p(struct candidates *c, float top_p);
/* Keep those of at least @min_p times the heaviest's weight. */
void filter_min_p(struct candidates *c, float min_p);
/* Keep those whose logit is at most @n times sigma below the largest one. */
void filter_top_n_sigma(struct candidates *c, float n);
/*
 * Keep the fewest whose share reaches @typical_p, first those whose surprise is nearest to the
 * entropy (Meister et al., 2022).
 */
void filter_typical_p(struct candidates *c, float typical_p);
/* Exclude top choices: of those with a share of at least @threshold only the lightest stays. */
void filter_xtc(struct candidates *c, float threshold);
/* Keep those of at most @mu bits of surprise, and the heaviest (Basu et al., 2021, version 2). */
void filter_surprise(struct candidates *c, double mu);

/* Standard deviation of the logits that are finite; 0 where there are none. */
double logits_sigma(const float *logits, uint32_t n_vocab);
/* Sum of the candidates' weights. */
double candidates_sum(const struct candidates *c);
/* The heaviest, lower id among equals; there must be one. */
uint32_t candidates_heaviest(const struct candidates *c);

#endif /* TARN_ENGINE_BACKEND_SAMPLE_FILTER_H */
