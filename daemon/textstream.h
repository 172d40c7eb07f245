/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of one choice on its way to the client: bytes of tokens go in,
 * whole characters come out. Bytes that may yet become a character, and text
 * that may yet become a stop string, are held back. What comes out does not
 * depend on where the tokens' borders lie.
 *
 * Pure: no I/O, no clock. One thread at a time.
 */
#ifndef TARN_DAEMON_TEXTSTREAM_H
#define TARN_DAEMON_TEXTSTREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *bytes; /* not NUL-terminated; NULL while empty */
	size_t len, size;
};

/* Return: 0 or -ENOMEM, the text unchanged. */
int text_append(struct text *text, const char *bytes, size_t len);
void text_deinit(struct text *text);

/*
 * Append @bytes as valid UTF-8: each maximal invalid part becomes one U+FFFD. With @is_end
 * false, up to three bytes at the end that may begin a character are left over: @out_used says
 * how many bytes were taken. Return: 0 or -ENOMEM.
 */
int text_append_utf8(struct text *text, const char *bytes, size_t len,
		     bool is_end, size_t *out_used);
bool utf8_is_valid(const char *bytes, size_t len);

struct stop_string {
	const char *bytes;
	size_t len; /* at least 1 */
};

struct textstream {
	const struct stop_string *stops; /* outlive the stream */
	uint32_t nr_stops;
	bool is_stopped; /* a stop string was met: nothing comes out any more */
	unsigned char tail[4]; /* bytes of a character that is not whole yet */
	uint32_t nr_tail;
	struct text held; /* valid UTF-8 that may become a stop string */
};

void textstream_init(struct textstream *stream, const struct stop_string *stops,
		     uint32_t nr_stops);
void textstream_deinit(struct textstream *stream);
/*
 * Put a token's bytes in; what is certain is appended to @out. When a stop string is complete,
 * is_stopped is set and @out ends before it; of several, the one that is complete first counts,
 * of those the longest. Return: 0 or -ENOMEM.
 */
int textstream_push(struct textstream *stream, const char *bytes, size_t len,
		    struct text *out);
/* The end: what was held comes out, unfinished characters as U+FFFD. Return: 0 or -ENOMEM. */
int textstream_finish(struct textstream *stream, struct text *out);

#endif /* TARN_DAEMON_TEXTSTREAM_H */
