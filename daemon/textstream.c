/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 hold-back and stop strings: see textstream.h. The daemon's scheduler
 * thread runs it once per token, so nothing here is more than linear in the
 * token's bytes times the stop strings' length.
 */
#include "daemon/textstream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

int text_append(struct text *text, const char *bytes, size_t len)
{
	if (len == 0)
		return 0;
	if (text->size - text->len < len) {
		size_t size = text->size ? text->size * 2 : 64;
		char *grown;

		while (size - text->len < len)
			size *= 2;
		grown = realloc(text->bytes, size);
		if (!grown)
			return -ENOMEM;
		text->bytes = grown;
		text->size = size;
	}
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	return 0;
}

void text_deinit(struct text *text)
{
	free(text->bytes);
	*text = (struct text){ 0 };
}

/*
 * Looks at the first character of @bytes. Return: its length when it is whole and valid, 0 when
 * more bytes could make it valid, or -n when its first n bytes can never be part of one
 * (Unicode's maximal subpart, so that one broken character gives one U+FFFD).
 */
static int utf8_first(const unsigned char *bytes, size_t len)
{
	unsigned int first = bytes[0], low = 0x80, high = 0xbf;
	int need;

	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return -1;
	need = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
	/* Overlong forms, surrogates, beyond U+10FFFF: the second byte decides. */
	if (first == 0xe0)
		low = 0xa0;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xf4)
		high = 0x8f;
	for (int i = 1; i <= need; i++) {
		if ((size_t)i >= len)
			return 0;
		if (bytes[i] < low || bytes[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return need + 1;
}

int text_append_utf8(struct text *text, const char *bytes, size_t len,
		     bool is_end, size_t *out_used)
{
	size_t start = 0, at = 0;
	int rc;

	while (at < len) {
		int step =
			utf8_first((const unsigned char *)bytes + at, len - at);

		if (step > 0) {
			at += (size_t)step;
			continue;
		}
		if (step == 0 && !is_end)
			break;
		rc = text_append(text, bytes + start, at - start);
		if (rc == 0)
			rc = text_append(text, replacement,
					 sizeof(replacement) - 1);
		if (rc != 0)
			return rc;
		at = step == 0 ? len : at + (size_t)-step;
		start = at;
	}
	*out_used = at;
	return text_append(text, bytes + start, at - start);
}

bool utf8_is_valid(const char *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		int step =
			utf8_first((const unsigned char *)bytes + at, len - at);

		if (step <= 0)
			return false;
		at += (size_t)step;
	}
	return true;
}

void textstream_init(struct textstream *stream, const struct stop_string *stops,
		     uint32_t nr_stops)
{
	*stream = (struct textstream){ .stops = stops, .nr_stops = nr_stops };
}

void textstream_deinit(struct textstream *stream)
{
	text_deinit(&stream->held);
}

/*
 * Find the stop string that ends first in held, of those with one end the longest. What ended
 * before @old_len was looked at before.
 */
static bool find_stop(const struct textstream *stream, size_t old_len,
		      size_t *out_start)
{
	const struct text *held = &stream->held;

	for (size_t end = old_len + 1; end <= held->len; end++) {
		size_t longest = 0;

		for (uint32_t i = 0; i < stream->nr_stops; i++) {
			const struct stop_string *stop = &stream->stops[i];

			if (stop->len <= end && stop->len > longest &&
			    memcmp(held->bytes + end - stop->len, stop->bytes,
				   stop->len) == 0)
				longest = stop->len;
		}
		if (longest) {
			*out_start = end - longest;
			return true;
		}
	}
	return false;
}

/* Bytes at the end of held that begin some stop string. */
static size_t partial_stop(const struct textstream *stream)
{
	const struct text *held = &stream->held;
	size_t longest = 0;

	for (uint32_t i = 0; i < stream->nr_stops; i++) {
		const struct stop_string *stop = &stream->stops[i];
		size_t len = stop->len - 1 < held->len ? stop->len - 1 :
							 held->len;

		for (; len > longest; len--) {
			if (memcmp(held->bytes + held->len - len, stop->bytes,
				   len) == 0) {
				longest = len;
				break;
			}
		}
	}
	return longest;
}

/* Moves what is certain from held to @out; @old_len bytes of held were examined before. */
static int release_held(struct textstream *stream, size_t old_len, bool is_end,
			struct text *out)
{
	struct text *held = &stream->held;
	size_t start, keep;
	int rc;

	if (find_stop(stream, old_len, &start)) {
		stream->is_stopped = true;
		rc = text_append(out, held->bytes, start);
		held->len = 0;
		return rc;
	}
	keep = is_end ? 0 : partial_stop(stream);
	rc = text_append(out, held->bytes, held->len - keep);
	if (rc != 0)
		return rc;
	if (keep)
		memmove(held->bytes, held->bytes + held->len - keep, keep);
	held->len = keep;
	return 0;
}

int textstream_push(struct textstream *stream, const char *bytes, size_t len,
		    struct text *out)
{
	const size_t old_len = stream->held.len;
	size_t used;
	int rc;

	if (stream->is_stopped)
		return 0;
	/* Complete the unfinished character byte by byte; the rest goes in one piece. */
	while (stream->nr_tail && len) {
		stream->tail[stream->nr_tail++] = (unsigned char)*bytes++;
		len--;
		rc = text_append_utf8(&stream->held, (const char *)stream->tail,
				      stream->nr_tail, false, &used);
		if (rc != 0)
			return rc;
		stream->nr_tail -= (uint32_t)used;
		memmove(stream->tail, stream->tail + used, stream->nr_tail);
	}
	rc = text_append_utf8(&stream->held, bytes, len, false, &used);
	if (rc != 0)
		return rc;
	if (used < len) {
		stream->nr_tail = (uint32_t)(len - used);
		memcpy(stream->tail, bytes + used, len - used);
	}
	return release_held(stream, old_len, false, out);
}

int textstream_finish(struct textstream *stream, struct text *out)
{
	const size_t old_len = stream->held.len;
	size_t used;
	int rc;

	if (stream->is_stopped)
		return 0;
	rc = text_append_utf8(&stream->held, (const char *)stream->tail,
			      stream->nr_tail, true, &used);
	if (rc != 0)
		return rc;
	stream->nr_tail = 0;
	return release_held(stream, old_len, true, out);
}
