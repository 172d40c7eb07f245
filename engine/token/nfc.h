/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode's normal form C, which some tokenizers put text into before they
 * split it. Owns no state; any thread.
 */
#ifndef TARN_ENGINE_TOKEN_NFC_H
#define TARN_ENGINE_TOKEN_NFC_H

#include <stddef.h>

/**
 * nfc_compose - put characters and their marks together
 * @text, @len: valid UTF-8 throughout (not checked here).
 * @out: [out] malloc'ed; NULL where @text is in normal form C already.
 * @out_len: [out] bytes of it, at most 3 * @len.
 *
 * Linear in @len, whatever marks there are. Characters younger than the
 * table (Unicode 14) stay as they are. Return: 0, -ENOMEM.
 */
int nfc_compose(const char *text, size_t len, char **out, size_t *out_len);

#endif /* TARN_ENGINE_TOKEN_NFC_H */
