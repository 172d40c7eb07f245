/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the tokenizer, shared by tokenizer.c (use), tokenizer_load.c
 * (building from a file's metadata) and tokenizer_tables.c. No one else includes it.
 */
#ifndef TARN_ENGINE_TOKEN_TOKENIZER_PRIVATE_H
#define TARN_ENGINE_TOKEN_TOKENIZER_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/token/bpe.h"
#include "engine/token/ends.h"
#include "engine/token/pretok.h"
#include "engine/token/special.h"
#include "engine/token/spm.h"
#include "engine/token/tokenizer.h"
#include "engine/token/vocab.h"

struct tokenizer {
	struct vocab vocab;
	struct span_table pieces; /* what tokens stand for, in running text */
	struct special *special;
	struct spm *spm; /* either this, */
	struct pretok *pretok; /* or these two */
	struct bpe *bpe;
	struct ends ends;
	int32_t bos, eos, unknown; /* TOKEN_NONE: there is none */
	bool adds_bos, adds_eos, adds_space;
	bool removes_spaces; /* SPM: all but one of a run, and those at the ends */
};

/* SPM's space: U+2581. */
static const char spm_space[] = "\xe2\x96\x81";

enum {
	SPM_SPACE_BYTES = sizeof(spm_space) - 1,
};

/**
 * spm_escape - copy a text with each space as U+2581
 * @prefix: whether one more is put in front.
 * @out: [out] malloc'ed.
 *
 * Return: 0, -ENOMEM, -EFBIG when the result would exceed 2^31 - 1 bytes.
 */
int spm_escape(const char *text, size_t len, bool prefix, char **out,
	       size_t *out_len);

/*
 * Fill @tok->pieces and @tok->special from its vocabulary, whose types are
 * final. Byte-level BPE is told by @tok->pretok. Return: 0, -ENOMEM, -EFBIG.
 */
int tokenizer_build_pieces(struct tokenizer *tok);
int tokenizer_build_special(struct tokenizer *tok);

#endif /* TARN_ENGINE_TOKEN_TOKENIZER_PRIVATE_H */
