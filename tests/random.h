/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers of tests: the same from each seed, on every machine. A linear congruential
 * generator (Knuth's MMIX), of which the upper bits are taken.
 */
#ifndef TARN_TESTS_RANDOM_H
#define TARN_TESTS_RANDOM_H

#include <stdint.h>

/* The next number, of 31 bits. */
static inline uint32_t random_next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

#endif /* TARN_TESTS_RANDOM_H */
