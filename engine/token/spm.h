/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SPM: a text without special tokens to ids by merging characters into the
 * pieces of highest score, as SentencePiece's BPE does. Borrows the
 * vocabulary. Immutable once built.
 *
 * Spaces arrive escaped as U+2581. A character that no piece covers becomes
 * its bytes' tokens where the vocabulary has them, else the unknown token,
 * once for a run of such characters. A byte that is not valid UTF-8 is such
 * a character by itself.
 */
#ifndef TARN_ENGINE_TOKEN_SPM_H
#define TARN_ENGINE_TOKEN_SPM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/token/ids.h"
#include "engine/token/merge.h"
#include "engine/token/vocab.h"

struct spm;

/**
 * spm_create - prepare a vocabulary with scores
 * @vocab: borrowed; must outlive it; has scores.
 * @unknown: the unknown token, or TOKEN_NONE: then what is unknown vanishes.
 *
 * Return: 0, -ENOMEM.
 */
int spm_create(const struct vocab *vocab, int32_t unknown, struct spm **out);
void spm_destroy(struct spm *spm); /* NULL is fine */

/* Scratch memory of one encoding at a time; zeroed is ready. */
struct spm_scratch {
	struct merge_work work;
	struct spm_note *notes; /* how unused pieces of this run came about */
	size_t nr_notes, notes_room;
	struct spm_part *stack;
	size_t stack_room;
};

void spm_scratch_deinit(struct spm_scratch *scratch);

/* Append the ids of an escaped text. Return: 0, -ENOMEM, -EFBIG. */
int spm_encode(const struct spm *spm, struct spm_scratch *scratch,
	       const char *text, size_t len, struct ids *out);

/* The byte that a token's text "<0xHH>" stands for, or -1 for another text. */
int spm_byte_of(const char *text, size_t len);

#endif /* TARN_ENGINE_TOKEN_SPM_H */
