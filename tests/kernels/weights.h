/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random weights as a model file stores them, and their values in double by
 * code of its own, written from the file format and not from kernels/: what the
 * tests of packing and of the linear layers compare with.
 */
#ifndef TARN_TESTS_KERNELS_WEIGHTS_H
#define TARN_TESTS_KERNELS_WEIGHTS_H

#include "kernels/cpu/kernels_cpu.h"

enum { WEIGHTS_NR_TYPES = 16 };

extern const enum pack_type weights_types[WEIGHTS_NR_TYPES];
const char *weights_name(enum pack_type type);
/* Values of a block; 1 for float types. */
uint32_t weights_block(enum pack_type type);

/* A small generator of its own: same numbers everywhere. */
struct rng {
	uint64_t state;
};
uint32_t rng_u32(struct rng *rng);
/* In [-1, 1). */
float rng_unit(struct rng *rng);

/*
 * @nr_rows rows of @nr_cols weights: every code and sub-scale value, scales any
 * finite f16, subnormal ones included, or any exponent whose sums stay finite (@tame:
 * around 2^-8 instead). Freed by the caller.
 */
uint8_t *weights_make(enum pack_type type, uint32_t nr_rows, uint32_t nr_cols,
		      bool tame, struct rng *rng);

/* One value of a row in double; exact for every type. */
double weights_value(enum pack_type type, const uint8_t *row, uint32_t k);
/* Its code as the file has it: no offset taken out, no scale. Quantised types only. */
int weights_code(enum pack_type type, const uint8_t *row, uint32_t k);

/*
 * Packed by pack_groups() into fresh 64-byte aligned memory of exactly that size.
 * Freed by the caller.
 */
uint8_t *weights_pack(enum pack_type type, uint32_t nr_rows, uint32_t nr_cols,
		      const uint8_t *src, struct packed_matrix *out_matrix);

#endif /* TARN_TESTS_KERNELS_WEIGHTS_H */
