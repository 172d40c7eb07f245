/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens end a generation: known texts and the ids that the file names.
 */
#ifndef TARN_ENGINE_TOKEN_ENDS_H
#define TARN_ENGINE_TOKEN_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/token/vocab.h"

enum {
	ENDS_MAX = 64,
};

struct ends {
	int32_t ids[ENDS_MAX];
	unsigned int nr;
};

/* Add an id; TOKEN_NONE and one that is there already are left out. */
void ends_add(struct ends *ends, int32_t id);

/**
 * ends_add_known - add the tokens whose texts are known to end a turn
 *
 * A text that no one writes by chance makes its token a control token,
 * whatever type the file gives it, so that user text never becomes it.
 */
void ends_add_known(struct ends *ends, struct vocab *vocab);

static inline bool ends_has(const struct ends *ends, int32_t id)
{
	unsigned int i;

	for (i = 0; i < ends->nr; i++) {
		if (ends->ids[i] == id)
			return true;
	}
	return false;
}

#endif /* TARN_ENGINE_TOKEN_ENDS_H */
