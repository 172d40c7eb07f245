/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of pre-tokenizers: what pretok.c compiles. A new one is a row
 * in pretok_table.c.
 */
#ifndef TARN_ENGINE_TOKEN_PRETOK_TABLE_H
#define TARN_ENGINE_TOKEN_PRETOK_TABLE_H

#include <stddef.h>

enum {
	PRETOK_MAX_PASSES = 6,
};

struct pretok_row {
	const char *names; /* the name and its aliases, separated by spaces */
	unsigned int flags; /* enum pretok_flags */
	/*
	 * Applied in order, each to every piece that the one before left. Matches
	 * and the stretches between them are pieces. The unused ones are NULL.
	 */
	const char *passes[PRETOK_MAX_PASSES];
	/* The last so many passes see bytes where the others see characters. */
	unsigned int nr_byte_passes;
};

/* NULL when no row has the name. */
const struct pretok_row *pretok_row_find(const char *name, size_t len);

/* All rows, one for each index from 0; NULL behind the last. */
const struct pretok_row *pretok_row_at(size_t index);

#endif /* TARN_ENGINE_TOKEN_PRETOK_TABLE_H */
