/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 for the tokenizers. Pure functions of their arguments; any thread.
 */
#include "engine/token/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_tail(unsigned char byte)
{
	return (byte & 0xc0) == 0x80;
}

unsigned int utf8_char_len(const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;

	if (len == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	if (s[0] < 0xe0)
		return len >= 2 && is_tail(s[1]) ? 2 : 0;
	if (s[0] < 0xf0) {
		if (len < 3 || !is_tail(s[1]) || !is_tail(s[2]))
			return 0;
		if ((s[0] == 0xe0 && s[1] < 0xa0) ||
		    (s[0] == 0xed && s[1] > 0x9f))
			return 0;
		return 3;
	}
	if (len < 4 || !is_tail(s[1]) || !is_tail(s[2]) || !is_tail(s[3]))
		return 0;
	if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return 4;
}

size_t utf8_valid_len(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len) {
		uint64_t eight;
		unsigned int nr;

		/* Most text is ASCII: eight characters at a time. */
		if (len - at >= sizeof(eight)) {
			memcpy(&eight, text + at, sizeof(eight));
			if ((eight & 0x8080808080808080u) == 0) {
				at += sizeof(eight);
				continue;
			}
		}
		nr = utf8_char_len(text + at, len - at);
		if (nr == 0)
			break;
		at += nr;
	}
	return at;
}

size_t utf8_invalid_len(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len && utf8_char_len(text + at, len - at) == 0)
		at++;
	return at;
}

unsigned int utf8_put(uint32_t code_point, char out[static UTF8_MAX_BYTES])
{
	if (code_point < 0x80) {
		out[0] = (char)code_point;
		return 1;
	}
	if (code_point < 0x800) {
		out[0] = (char)(0xc0 | code_point >> 6);
		out[1] = (char)(0x80 | (code_point & 0x3f));
		return 2;
	}
	if (code_point < 0x10000) {
		out[0] = (char)(0xe0 | code_point >> 12);
		out[1] = (char)(0x80 | (code_point >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code_point & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code_point >> 18);
	out[1] = (char)(0x80 | (code_point >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code_point >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code_point & 0x3f));
	return 4;
}

uint32_t utf8_get(const char *text, unsigned int char_len)
{
	static const unsigned char first_mask[UTF8_MAX_BYTES + 1] = {
		0, 0x7f, 0x1f, 0x0f, 0x07
	};
	uint32_t code_point = (unsigned char)text[0] & first_mask[char_len];
	unsigned int i;

	for (i = 1; i < char_len; i++)
		code_point = code_point << 6 | ((unsigned char)text[i] & 0x3f);
	return code_point;
}

char *utf8_dup(const char *bytes, size_t len)
{
	char *copy = malloc(len + 1);

	if (!copy)
		return NULL;
	memcpy(copy, bytes, len);
	copy[len] = '\0';
	return copy;
}
