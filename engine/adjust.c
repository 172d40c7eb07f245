/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Penalties and biases: see adjust.h. Counts are kept from token to token; DRY ("don't repeat
 * yourself", P. E. Weidmann, 2024) looks at the text anew for each.
 */
#include "engine/adjust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is known of a token that was seen or has a bias. */
struct entry {
	int32_t id;
	float bias;
	uint32_t nr_window; /* times among the last repetition_window tokens */
	uint32_t nr_answer; /* times in the answer */
	uint32_t dry_len; /* longest repetition it would lengthen, for the list at hand */
};

struct adjust {
	const struct tarn_sampling *sampling;
	uint32_t nr_prompt;
	struct entry *
		entries; /* [nr_entries] in the order they came; room for size */
	uint32_t nr_entries, size;
	uint32_t *slots; /* [mask + 1] entry + 1 by hash of the id, 0: free */
	uint32_t mask;
	uint32_t *lengths, nr_lengths; /* for dry_lengths() */
	struct backend_adjust *list;
};

static bool has_repetition(const struct tarn_sampling *s)
{
	return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

static bool has_dry(const struct tarn_sampling *s)
{
	return s->dry_multiplier > 0;
}

static bool is_wanted(const struct tarn_sampling *s)
{
	return has_repetition(s) || has_dry(s) || s->presence_penalty != 0 ||
	       s->frequency_penalty != 0 || s->nr_biases;
}

static uint32_t slot_of(const struct adjust *a, int32_t id)
{
	uint32_t at = (uint32_t)id * 2654435769u & a->mask;

	while (a->slots[at] && a->entries[a->slots[at] - 1].id != id)
		at = (at + 1) & a->mask;
	return at;
}

/* The entry of a token that has one. */
static struct entry *entry_of(const struct adjust *a, int32_t id)
{
	return &a->entries[a->slots[slot_of(a, id)] - 1];
}

/* Room for @nr entries: a table of twice as many slots, the list, and what DRY looks at. */
static int reserve(struct adjust *a, uint32_t nr)
{
	uint32_t size = a->size ? a->size : 16, *slots;
	struct backend_adjust *list;
	struct entry *entries;

	if (nr <= a->size)
		return 0;
	while (size < nr)
		size *= 2;
	entries = realloc(a->entries, size * sizeof(*entries));
	if (entries)
		a->entries = entries;
	list = realloc(a->list, size * sizeof(*list));
	if (list)
		a->list = list;
	slots = calloc(2 * (size_t)size, sizeof(*slots));
	if (!entries || !list || !slots) {
		free(slots);
		return -ENOMEM;
	}
	free(a->slots);
	a->slots = slots;
	a->mask = 2 * size - 1;
	a->size = size;
	for (uint32_t i = 0; i < a->nr_entries; i++)
		a->slots[slot_of(a, a->entries[i].id)] = i + 1;
	return 0;
}

/* The token's entry, made when it is first seen; NULL without memory. */
static struct entry *make_entry(struct adjust *a, int32_t id)
{
	uint32_t at;

	if (reserve(a, a->nr_entries + 1) != 0)
		return NULL;
	at = slot_of(a, id);
	if (!a->slots[at]) {
		a->entries[a->nr_entries] = (struct entry){ .id = id };
		a->slots[at] = ++a->nr_entries;
	}
	return &a->entries[a->slots[at] - 1];
}

/* DRY needs a number for each token of the text. */
static int reserve_lengths(struct adjust *a, uint32_t nr)
{
	uint32_t size = a->nr_lengths ? a->nr_lengths : 256, *lengths;

	if (!has_dry(a->sampling) || nr <= a->nr_lengths)
		return 0;
	while (size < nr)
		size *= 2;
	lengths = realloc(a->lengths, size * sizeof(*lengths));
	if (!lengths)
		return -ENOMEM;
	a->lengths = lengths;
	a->nr_lengths = size;
	return 0;
}

int adjust_note(struct adjust *a, const int32_t *tokens, uint32_t nr_tokens)
{
	uint32_t window = a->sampling->repetition_window;
	struct entry *entry = make_entry(a, tokens[nr_tokens - 1]);

	if (!entry || reserve_lengths(a, nr_tokens) != 0)
		return -ENOMEM;
	entry->nr_window++;
	entry->nr_answer += nr_tokens > a->nr_prompt;
	if (window && nr_tokens > window)
		entry_of(a, tokens[nr_tokens - 1 - window])->nr_window--;
	return 0;
}

static int fill(struct adjust *a, const int32_t *tokens, uint32_t nr_tokens)
{
	const struct tarn_sampling *s = a->sampling;
	int rc = 0;

	for (uint32_t i = 0; i < s->nr_biases && !rc; i++) {
		struct entry *entry = make_entry(a, s->biases[i].id);

		if (entry)
			entry->bias = s->biases[i].bias;
		else
			rc = -ENOMEM;
	}
	for (uint32_t i = 1; i <= nr_tokens && !rc; i++)
		rc = adjust_note(a, tokens, i);
	return rc;
}

int adjust_create(const struct tarn_sampling *sampling, const int32_t *tokens,
		  uint32_t nr_tokens, uint32_t nr_prompt, struct adjust **out)
{
	struct adjust *a;

	*out = NULL;
	if (!is_wanted(sampling))
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->sampling = sampling;
	a->nr_prompt = nr_prompt;
	if (fill(a, tokens, nr_tokens) != 0) {
		adjust_destroy(a);
		return -ENOMEM;
	}
	*out = a;
	return 0;
}

void adjust_destroy(struct adjust *a)
{
	if (!a)
		return;
	free(a->entries);
	free(a->list);
	free(a->slots);
	free(a->lengths);
	free(a);
}

/* multiplier * base^(len - allowed), by multiplications: the same on every machine. */
static float dry_penalty(const struct tarn_sampling *s, uint32_t len)
{
	double penalty = (double)s->dry_multiplier;

	if (!len || len < s->dry_allowed_length)
		return 0;
	for (uint32_t i = s->dry_allowed_length; i < len && penalty < 1e30; i++)
		penalty *= (double)s->dry_base;
	return penalty < 1e30 ? (float)penalty : 1e30f;
}

static void find_repetitions(struct adjust *a, const int32_t *tokens,
			     uint32_t nr)
{
	const struct tarn_sampling *s = a->sampling;

	if (s->dry_window && nr > s->dry_window) {
		tokens += nr - s->dry_window;
		nr = s->dry_window;
	}
	for (uint32_t i = 0; i < a->nr_entries; i++)
		a->entries[i].dry_len = 0;
	dry_lengths(tokens, nr, s->dry_breakers, a->lengths);
	for (uint32_t i = 1; i < nr; i++) {
		int32_t next = tokens[nr - i];
		struct entry *entry;

		if (!a->lengths[i] || dry_is_breaker(s->dry_breakers, next))
			continue;
		entry = entry_of(a, next);
		if (a->lengths[i] > entry->dry_len)
			entry->dry_len = a->lengths[i];
	}
}

const struct backend_adjust *adjust_list(struct adjust *a,
					 const int32_t *tokens,
					 uint32_t nr_tokens, uint32_t *out_nr)
{
	const struct tarn_sampling *s = a->sampling;
	const float repetition = has_repetition(s) ? s->repetition_penalty : 1;
	uint32_t nr = 0;

	if (has_dry(s))
		find_repetitions(a, tokens, nr_tokens);
	for (uint32_t i = 0; i < a->nr_entries; i++) {
		const struct entry *e = &a->entries[i];
		struct backend_adjust change = {
			.id = e->id,
			.bias = e->bias,
			.repetition = e->nr_window ? repetition : 1,
			.penalty = dry_penalty(s, e->dry_len),
		};

		if (e->nr_answer)
			change.penalty +=
				s->presence_penalty +
				s->frequency_penalty * (float)e->nr_answer;
		if (change.bias != 0 || change.repetition != 1 ||
		    change.penalty != 0)
			a->list[nr++] = change;
	}
	*out_nr = nr;
	return a->list;
}

void dry_lengths(const int32_t *tokens, uint32_t nr, const uint64_t *breakers,
		 uint32_t *out)
{
	uint32_t limit = 0, left = 0, right = 0;

	while (limit < nr && !dry_is_breaker(breakers, tokens[nr - 1 - limit]))
		limit++;
	if (nr)
		out[0] = nr;
	/* The reversed text's Z function; [left, right) is the match that reaches farthest. */
	for (uint32_t i = 1; i < nr; i++) {
		uint32_t len = 0;

		if (i < right)
			len = out[i - left] < right - i ? out[i - left] :
							  right - i;
		while (i + len < nr &&
		       tokens[nr - 1 - len] == tokens[nr - 1 - i - len])
			len++;
		out[i] = len;
		if (i + len > right) {
			left = i;
			right = i + len;
		}
	}
	for (uint32_t i = 0; i < nr; i++)
		out[i] = out[i] < limit ? out[i] : limit;
}
