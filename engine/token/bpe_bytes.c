/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2's alphabet. Printable Latin-1 bytes stand for themselves; the 68
 * others (controls, space, 7f to a0, ad) are U+0100 and up, in their order.
 */
#include "engine/token/bpe_bytes.h"

#include <stdbool.h>
#include <stddef.h>

#include "engine/token/bpe.h"
#include "engine/token/utf8.h"

enum {
	FIRST_MOVED = 0x100,
	NR_LOW = 0x21, /* moved bytes below '!' */
	NR_MIDDLE = 0xa1 - 0x7f, /* and from DEL to the no-break space */
	NR_MOVED = NR_LOW + NR_MIDDLE + 1, /* and the soft hyphen */
};

uint32_t bpe_byte_to_char(uint8_t byte)
{
	if (byte < NR_LOW)
		return FIRST_MOVED + byte;
	if (byte >= 0x7f && byte < 0xa1)
		return (uint32_t)(FIRST_MOVED + NR_LOW + byte - 0x7f);
	if (byte == 0xad)
		return FIRST_MOVED + NR_MOVED - 1;
	return byte;
}

int bpe_char_to_byte(uint32_t code_point)
{
	if (code_point >= FIRST_MOVED + NR_MOVED)
		return -1;
	if (code_point == FIRST_MOVED + NR_MOVED - 1)
		return 0xad;
	if (code_point >= FIRST_MOVED + NR_LOW)
		return (int)(code_point - FIRST_MOVED - NR_LOW + 0x7f);
	if (code_point >= FIRST_MOVED)
		return (int)(code_point - FIRST_MOVED);
	return bpe_byte_to_char((uint8_t)code_point) == code_point ?
		       (int)code_point :
		       -1;
}

size_t bpe_decode_text(const char *text, size_t len, char *out)
{
	size_t nr = 0, at = 0;

	while (at < len) {
		unsigned int char_len;
		int byte = -1;

		/* Most characters are ASCII and stand for themselves. */
		if (text[at] > 0x20 && text[at] < 0x7f) {
			out[nr++] = text[at++];
			continue;
		}
		char_len = utf8_char_len(text + at, len - at);
		if (char_len)
			byte = bpe_char_to_byte(utf8_get(text + at, char_len));
		if (byte >= 0) {
			out[nr++] = (char)byte;
			at += char_len;
			continue;
		}
		for (char_len += !char_len; char_len > 0; char_len--)
			out[nr++] = text[at++];
	}
	return nr;
}
