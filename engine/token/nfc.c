/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text is worked on in segments: a character that neither changes nor joins
 * what stands before it, and all that are not such behind it. Most text has
 * segments of one character only, which are copied.
 */
#include "engine/token/nfc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/token/nfc_table.h"
#include "engine/token/utf8.h"

enum {
	FIRST_TO_LOOK_AT = 0x300, /* all below are as they should be */
	FIRST_BYTE_TO_LOOK_AT = 0xcc, /* theirs are lower */
	MAX_GROWTH =
		3, /* of bytes: the script that makes the table checks it */
	MAX_PARTS = 4, /* of one character */
	SHORT_RUN = 16, /* marks that are put in order by exchanging them */

	HANGUL_FIRST = 0xac00,
	HANGUL_NR_LEADS = 19,
	HANGUL_NR_VOWELS = 21,
	HANGUL_NR_TAILS = 28, /* none is the first */
	HANGUL_NR = HANGUL_NR_LEADS * HANGUL_NR_VOWELS * HANGUL_NR_TAILS,
	HANGUL_LEAD = 0x1100,
	HANGUL_VOWEL = 0x1161,
	HANGUL_TAIL = 0x11a7,
};

struct nfc_char {
	uint32_t code_point;
	uint8_t ccc;
};

/* A segment taken apart; the second half of the room is for sorting. */
struct segment {
	struct nfc_char *chars;
	size_t nr, room;
};

static bool is_hangul(uint32_t c)
{
	return c >= HANGUL_FIRST && c < HANGUL_FIRST + HANGUL_NR;
}

static bool is_hangul_behind(uint32_t c)
{
	return (c >= HANGUL_VOWEL && c < HANGUL_VOWEL + HANGUL_NR_VOWELS) ||
	       (c > HANGUL_TAIL && c < HANGUL_TAIL + HANGUL_NR_TAILS);
}

static uint8_t class_of(uint32_t c)
{
	unsigned int low = 0, high = nfc_nr_classes;

	while (low < high) {
		unsigned int mid = (low + high) / 2;

		if (c > nfc_classes[mid].last)
			low = mid + 1;
		else
			high = mid;
	}
	return low < nfc_nr_classes && c >= nfc_classes[low].first ?
		       nfc_classes[low].ccc :
		       0;
}

static const struct nfc_pair *find_pair(uint32_t composed)
{
	unsigned int low = 0, high = nfc_nr_pairs;

	while (low < high) {
		unsigned int mid = (low + high) / 2;

		if (nfc_pairs[mid].composed < composed)
			low = mid + 1;
		else
			high = mid;
	}
	return low < nfc_nr_pairs && nfc_pairs[low].composed == composed ?
		       &nfc_pairs[low] :
		       NULL;
}

/* What two characters are together, or 0. */
static uint32_t join(uint32_t first, uint32_t second)
{
	unsigned int low = 0, high = nfc_nr_joins;
	uint32_t lead = first - HANGUL_LEAD, vowel = second - HANGUL_VOWEL;
	uint32_t tail = second - HANGUL_TAIL;

	if (lead < HANGUL_NR_LEADS && vowel < HANGUL_NR_VOWELS)
		return HANGUL_FIRST +
		       (lead * HANGUL_NR_VOWELS + vowel) * HANGUL_NR_TAILS;
	if (is_hangul(first) && tail > 0 && tail < HANGUL_NR_TAILS &&
	    (first - HANGUL_FIRST) % HANGUL_NR_TAILS == 0)
		return first + tail;
	while (low < high) {
		unsigned int mid = (low + high) / 2;
		const struct nfc_pair *pair = &nfc_pairs[nfc_joins[mid]];

		if (pair->first < first ||
		    (pair->first == first && pair->second < second))
			low = mid + 1;
		else
			high = mid;
	}
	if (low < nfc_nr_joins) {
		const struct nfc_pair *pair = &nfc_pairs[nfc_joins[low]];

		if (pair->first == first && pair->second == second)
			return pair->composed;
	}
	return 0;
}

/* Whether a segment begins here: nothing joins it to what stands before. */
static bool is_settled(uint32_t c)
{
	const struct nfc_pair *pair;
	unsigned int i;

	if (c < FIRST_TO_LOOK_AT || is_hangul(c))
		return true;
	if (is_hangul_behind(c) || class_of(c))
		return false;
	for (i = 0; i < nfc_nr_behind && nfc_behind[i] <= c; i++) {
		if (nfc_behind[i] == c)
			return false;
	}
	pair = find_pair(c);
	return !pair || (pair->second && join(pair->first, pair->second) == c);
}

static int make_room(struct segment *segment, size_t nr_more)
{
	struct nfc_char *grown;
	size_t room = segment->room ? segment->room : 64;

	while (room - segment->nr < nr_more)
		room *= 2;
	if (room == segment->room)
		return 0;
	grown = realloc(segment->chars, 2 * room * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	segment->chars = grown;
	segment->room = room;
	return 0;
}

/* Append a character's parts, which make_room() has made room for. */
static void take_apart(struct segment *segment, uint32_t c)
{
	uint32_t behind[MAX_PARTS];
	unsigned int nr_behind = 0;
	uint32_t index = c - HANGUL_FIRST;

	if (is_hangul(c)) {
		uint32_t tail = index % HANGUL_NR_TAILS;

		index /= HANGUL_NR_TAILS;
		if (tail)
			behind[nr_behind++] = HANGUL_TAIL + tail;
		behind[nr_behind++] = HANGUL_VOWEL + index % HANGUL_NR_VOWELS;
		c = HANGUL_LEAD + index / HANGUL_NR_VOWELS;
	}
	for (;;) {
		const struct nfc_pair *pair = find_pair(c);

		if (!pair)
			break;
		if (pair->second && nr_behind < MAX_PARTS)
			behind[nr_behind++] = pair->second;
		c = pair->first;
	}
	for (;;) {
		segment->chars[segment->nr++] = (struct nfc_char){
			.code_point = c,
			.ccc = class_of(c),
		};
		if (nr_behind == 0)
			return;
		c = behind[--nr_behind];
	}
}

/* A run of marks by class, those of a class as they are. @spare: [nr]. */
static void sort_marks(struct nfc_char *marks, size_t nr,
		       struct nfc_char *spare)
{
	size_t places[257] = { 0 }, i, k;

	if (nr <= SHORT_RUN) {
		for (i = 1; i < nr; i++) {
			struct nfc_char one = marks[i];

			for (k = i; k > 0 && marks[k - 1].ccc > one.ccc; k--)
				marks[k] = marks[k - 1];
			marks[k] = one;
		}
		return;
	}
	for (i = 0; i < nr; i++)
		places[marks[i].ccc + 1]++;
	for (i = 1; i < 257; i++)
		places[i] += places[i - 1];
	for (i = 0; i < nr; i++)
		spare[places[marks[i].ccc]++] = marks[i];
	memcpy(marks, spare, nr * sizeof(*marks));
}

static void sort_segment(struct segment *segment)
{
	size_t at = 0, end;

	for (; at < segment->nr; at = end) {
		for (end = at; end < segment->nr && segment->chars[end].ccc;)
			end++;
		if (end > at)
			sort_marks(segment->chars + at, end - at,
				   segment->chars + segment->room);
		else
			end++;
	}
}

/* Put together what can be; a mark is cut off by one of its class or higher. */
static void join_segment(struct segment *segment)
{
	struct nfc_char *chars = segment->chars, *base = NULL;
	uint8_t last_class = 0;
	size_t nr = 0, i;

	for (i = 0; i < segment->nr; i++) {
		struct nfc_char one = chars[i];
		uint32_t joined = 0;

		if (base && (last_class == 0 || last_class < one.ccc))
			joined = join(base->code_point, one.code_point);
		if (joined) {
			base->code_point = joined;
			continue;
		}
		chars[nr] = one;
		if (one.ccc == 0)
			base = &chars[nr];
		last_class = one.ccc;
		nr++;
	}
	segment->nr = nr;
}

static size_t put_segment(struct segment *segment, char *out)
{
	size_t nr = 0, i;

	sort_segment(segment);
	join_segment(segment);
	for (i = 0; i < segment->nr; i++)
		nr += utf8_put(segment->chars[i].code_point, out + nr);
	segment->nr = 0;
	return nr;
}

/* Bytes from the start up to the segment of the first unsettled character. */
static size_t settled_len(const char *text, size_t len)
{
	size_t at = 0, last = 0;

	while (at < len) {
		unsigned char first = (unsigned char)text[at];
		unsigned int char_len = first < 0x80 ? 1 : 2;

		if (first >= FIRST_BYTE_TO_LOOK_AT) {
			char_len = utf8_char_len(text + at, len - at);
			if (!is_settled(utf8_get(text + at, char_len)))
				return last;
		}
		last = at;
		at += char_len;
	}
	return len;
}

int nfc_compose(const char *text, size_t len, char **out, size_t *out_len)
{
	struct segment segment = { 0 };
	size_t at = settled_len(text, len), nr = at;
	char *composed;
	int err = 0;

	*out = NULL;
	*out_len = 0;
	if (at == len)
		return 0;
	composed = malloc(MAX_GROWTH * len + UTF8_MAX_BYTES);
	if (!composed)
		return -ENOMEM;
	memcpy(composed, text, at);
	while (at < len && !err) {
		unsigned int char_len = utf8_char_len(text + at, len - at);
		uint32_t c = utf8_get(text + at, char_len);

		if (segment.nr && is_settled(c))
			nr += put_segment(&segment, composed + nr);
		err = make_room(&segment, MAX_PARTS + 1);
		if (!err)
			take_apart(&segment, c);
		at += char_len;
	}
	nr += put_segment(&segment, composed + nr);
	free(segment.chars);
	if (err) {
		free(composed);
		return err;
	}
	*out = composed;
	*out_len = nr;
	return 0;
}
