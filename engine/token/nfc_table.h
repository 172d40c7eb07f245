/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of nfc.c, which alone includes it. Hangul is not among it: that is
 * arithmetic. Constant; any thread.
 */
#ifndef TARN_ENGINE_TOKEN_NFC_TABLE_H
#define TARN_ENGINE_TOKEN_NFC_TABLE_H

#include <stdint.h>

/* A character and what it is taken apart into; second is 0 where that is one. */
struct nfc_pair {
	uint32_t composed, first, second;
};

/* A run of characters of one combining class. */
struct nfc_class {
	uint32_t first, last;
	uint8_t ccc;
};

/* By the composed character. */
extern const struct nfc_pair nfc_pairs[];
extern const unsigned int nfc_nr_pairs;
/* Indices of the pairs that are put together again, by first, then second. */
extern const uint16_t nfc_joins[];
extern const unsigned int nfc_nr_joins;
/* All characters of a class other than 0. */
extern const struct nfc_class nfc_classes[];
extern const unsigned int nfc_nr_classes;
/* Those of class 0 that are some such pair's second. */
extern const uint32_t nfc_behind[];
extern const unsigned int nfc_nr_behind;

#endif /* TARN_ENGINE_TOKEN_NFC_TABLE_H */
