/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2's alphabet: each byte as one printable character, which is how
 * byte-level vocabularies write tokens. Pure functions; any thread.
 */
#ifndef TARN_ENGINE_TOKEN_BPE_BYTES_H
#define TARN_ENGINE_TOKEN_BPE_BYTES_H

#include <stdint.h>

/* The character that stands for @byte: below U+0144. */
uint32_t bpe_byte_to_char(uint8_t byte);

/* The byte that the character stands for, or -1. */
int bpe_char_to_byte(uint32_t code_point);

#endif /* TARN_ENGINE_TOKEN_BPE_BYTES_H */
