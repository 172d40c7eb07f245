/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 for the tokenizers: how long the character at a place is, and where
 * a text stops being valid. Owns no state; any thread.
 */
#ifndef TARN_ENGINE_TOKEN_UTF8_H
#define TARN_ENGINE_TOKEN_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum {
	UTF8_MAX_BYTES = 4,
};

/**
 * utf8_char_len - bytes of the well-formed character that starts at @text
 *
 * Well-formed as Unicode's table 3-7 has it: no surrogates, no overlong
 * forms, nothing above U+10FFFF.
 *
 * Return: 1 to 4, or 0 where none starts (or @len is 0).
 */
unsigned int utf8_char_len(const char *text, size_t len);

/**
 * utf8_valid_len - bytes of the longest run of well-formed characters at @text
 */
size_t utf8_valid_len(const char *text, size_t len);

/**
 * utf8_invalid_len - bytes at @text at which no well-formed character starts
 *
 * Each such byte counts alone; the run ends where a character starts.
 */
size_t utf8_invalid_len(const char *text, size_t len);

/**
 * utf8_put - write @code_point, which must be a valid one, to @out
 *
 * Return: bytes written, 1 to 4.
 */
unsigned int utf8_put(uint32_t code_point, char out[static UTF8_MAX_BYTES]);

/**
 * utf8_get - the character at @text, of which utf8_char_len() said @char_len
 */
uint32_t utf8_get(const char *text, unsigned int char_len);

/* A copy with a NUL behind it, malloc'ed, of bytes that have none (strndup() may look for one). */
char *utf8_dup(const char *bytes, size_t len);

#endif /* TARN_ENGINE_TOKEN_UTF8_H */
