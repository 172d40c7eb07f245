/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding special tokens in text: control tokens, where the caller asks for
 * them, and user-defined ones. Owns a trie of their texts. Immutable once
 * built; any thread may search.
 *
 * At each place the longest token counts, and places go from left to right.
 * A search reads each byte at most once for every byte of the longest token,
 * so it is linear in the text for a given vocabulary.
 */
#ifndef TARN_ENGINE_TOKEN_SPECIAL_H
#define TARN_ENGINE_TOKEN_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct special;

struct special_text {
	const char *text;
	uint32_t len;
	int32_t id;
	bool is_control; /* found only where control tokens are asked for */
};

struct special_match {
	size_t start, end;
	int32_t id;
};

/**
 * special_create - build the trie
 * @texts: [nr], reordered by the call; not needed afterwards. Empty ones are
 *	left out; of equal ones of a kind the lowest id counts.
 *
 * Return: 0, -ENOMEM, -EFBIG for 2^31 nodes or more.
 */
int special_create(struct special_text *texts, size_t nr, struct special **out);
void special_destroy(struct special *special); /* NULL is fine */

/**
 * special_find - the first special token at or behind @from
 * @with_control: whether control tokens count.
 *
 * Return: whether there is one.
 */
bool special_find(const struct special *special, const char *text, size_t len,
		  size_t from, bool with_control, struct special_match *out);

#endif /* TARN_ENGINE_TOKEN_SPECIAL_H */
