/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sequence's own tokens do to its next one: repetition, presence, frequency and DRY
 * penalties, and the biases asked for, as a list of changes to single logits. The list is a
 * function of the sampling parameters and the tokens alone. Driver thread.
 */
#ifndef TARN_ENGINE_ADJUST_H
#define TARN_ENGINE_ADJUST_H

#include "engine/backend/backend.h"
#include "engine/engine.h"

struct adjust;

/**
 * adjust_create - the state of a sequence
 * @tokens: its tokens so far, [nr_tokens], @nr_prompt of them prompt
 * @out: [out] adjust_destroy() it; NULL where @sampling asks for none of this.
 *
 * Return: 0, -ENOMEM.
 */
int adjust_create(const struct tarn_sampling *sampling, const int32_t *tokens,
		  uint32_t nr_tokens, uint32_t nr_prompt, struct adjust **out);
/* NULL is fine. */
void adjust_destroy(struct adjust *a);
/* One more token was drawn: @tokens [nr_tokens] with it. Return: 0, or -ENOMEM, nothing noted. */
int adjust_note(struct adjust *a, const int32_t *tokens, uint32_t nr_tokens);
/*
 * The changes for the token after @tokens, all of which were noted; valid until the next call.
 */
const struct backend_adjust *adjust_list(struct adjust *a,
					 const int32_t *tokens,
					 uint32_t nr_tokens, uint32_t *out_nr);

/**
 * dry_lengths - how long the end of a text repeats what stands before
 * @tokens: [nr]; @breakers: bits by token id, no repetition goes over one; may be NULL
 * @out: [nr] out[i], i >= 1: so many tokens before and with tokens[nr - 1 - i] equal the last ones
 *
 * By the Z function of the reversed text: linear in @nr.
 */
void dry_lengths(const int32_t *tokens, uint32_t nr, const uint64_t *breakers,
		 uint32_t *out);

static inline bool dry_is_breaker(const uint64_t *breakers, int32_t id)
{
	return breakers && breakers[id >> 6] >> (id & 63) & 1;
}

#endif /* TARN_ENGINE_ADJUST_H */
