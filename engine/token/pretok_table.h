/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of pre-tokenizers: what pretok.c compiles. A new one is a row
 * in pretok_table.c.
 */
#ifndef TARN_ENGINE_TOKEN_PRETOK_TABLE_H
#define TARN_ENGINE_TOKEN_PRETOK_TABLE_H

#include <stddef.h>

enum {
	PRETOK_MAX_PASSES = 4,
};

struct pretok_row {
	const char *names; /* the name and its aliases, separated by spaces */
	unsigned int flags; /* enum pretok_flags */
	/*
	 * Applied in order, each to every piece that the one before left. Matches
	 * and the stretches between them are pieces. The unused ones are NULL.
	 */
	const char *passes[PRETOK_MAX_PASSES];
};

/* NULL when no row has the name. */
const struct pretok_row *pretok_row_find(const char *name, size_t len);

#endif /* TARN_ENGINE_TOKEN_PRETOK_TABLE_H */
