/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing a token from a row of logits, on the host.
 *
 * A token depends on the row and on (seed, choice, position) alone: random
 * numbers are Philox4x32-10 of (seed; choice, position, token id), and the winner
 * is the one of the Gumbel-max race, ties to the lower id.
 */
#ifndef TARN_ENGINE_BACKEND_SAMPLE_H
#define TARN_ENGINE_BACKEND_SAMPLE_H

#include "engine/backend/backend.h"

struct cpu_kernels;

/* Bytes sample_row() needs as scratch, 64-byte aligned. */
size_t sample_scratch_bytes(uint32_t n_vocab);
/*
 * Draw samples->token from @logits [n_vocab]; report log probabilities of the model's own
 * distribution where asked. @logits is changed while it runs and restored.
 * Any thread, with a scratch of its own.
 */
void sample_row(const struct cpu_kernels *kernels, float *logits,
		uint32_t n_vocab, struct backend_sample *sample, void *scratch);

#endif /* TARN_ENGINE_BACKEND_SAMPLE_H */
