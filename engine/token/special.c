/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trie of special tokens. The children of a node lie side by side,
 * ordered by byte; nodes are made level by level from the sorted texts, so
 * neither depth nor width of a hostile vocabulary costs stack.
 */
#include "engine/token/special.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/token/tokenizer.h"

struct special_node {
	uint32_t first_child;
	uint16_t nr_children;
	uint8_t byte; /* that leads here */
	int32_t plain_id; /* token that ends here, or TOKEN_NONE */
	int32_t control_id;
};

struct special {
	struct special_node *nodes; /* [0] is the root */
	uint32_t nr;
	bool starts[2][256]; /* [with_control][first byte] */
};

/* The texts that pass through a node, while it waits for its children. */
struct special_range {
	uint32_t first, end, depth;
};

static int compare_texts(const void *left, const void *right)
{
	const struct special_text *a = left, *b = right;
	int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);

	if (order)
		return order;
	if (a->len != b->len)
		return a->len < b->len ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

static uint64_t count_nodes(const struct special_text *texts, size_t nr)
{
	uint64_t total = 1;
	size_t i;

	for (i = 0; i < nr; i++) {
		uint32_t same = 0;

		while (i > 0 && same < texts[i].len &&
		       same < texts[i - 1].len &&
		       texts[i].text[same] == texts[i - 1].text[same])
			same++;
		total += texts[i].len - same;
	}
	return total;
}

static uint32_t add_node(struct special *special, uint8_t byte)
{
	special->nodes[special->nr] = (struct special_node){
		.byte = byte,
		.plain_id = TOKEN_NONE,
		.control_id = TOKEN_NONE,
	};
	return special->nr++;
}

/* The texts that end at the node come first in its range. */
static void take_ids(struct special_node *node,
		     const struct special_text *texts,
		     struct special_range *range)
{
	for (; range->first < range->end &&
	       texts[range->first].len == range->depth;
	     range->first++) {
		const struct special_text *text = &texts[range->first];
		int32_t *id = text->is_control ? &node->control_id :
						 &node->plain_id;

		if (*id == TOKEN_NONE)
			*id = text->id;
	}
}

static void add_children(struct special *special,
			 const struct special_text *texts,
			 struct special_range *ranges, uint32_t at)
{
	struct special_range range = ranges[at];
	uint32_t i = range.first;

	special->nodes[at].first_child = special->nr;
	while (i < range.end) {
		uint8_t byte = (uint8_t)texts[i].text[range.depth];
		uint32_t child = add_node(special, byte);

		ranges[child].first = i;
		ranges[child].depth = range.depth + 1;
		while (i < range.end &&
		       (uint8_t)texts[i].text[range.depth] == byte)
			i++;
		ranges[child].end = i;
		special->nodes[at].nr_children++;
	}
}

int special_create(struct special_text *texts, size_t nr, struct special **out)
{
	struct special *special = calloc(1, sizeof(*special));
	struct special_range *ranges = NULL;
	uint64_t nr_nodes;
	uint32_t at;
	size_t i;

	*out = NULL;
	if (!special)
		return -ENOMEM;
	if (nr > 0)
		qsort(texts, nr, sizeof(*texts), compare_texts);
	nr_nodes = count_nodes(texts, nr);
	if (nr > INT32_MAX || nr_nodes > INT32_MAX) {
		special_destroy(special);
		return -EFBIG;
	}
	special->nodes = malloc(nr_nodes * sizeof(*special->nodes));
	ranges = malloc(nr_nodes * sizeof(*ranges));
	if (!special->nodes || !ranges) {
		free(ranges);
		special_destroy(special);
		return -ENOMEM;
	}
	add_node(special, 0);
	ranges[0] = (struct special_range){ .end = (uint32_t)nr };
	for (at = 0; at < special->nr; at++) {
		struct special_node unused = { 0 };

		/* The empty text must not match everywhere: the root has no id. */
		take_ids(at ? &special->nodes[at] : &unused, texts,
			 &ranges[at]);
		add_children(special, texts, ranges, at);
	}
	for (i = 0; i < nr; i++) {
		if (texts[i].len == 0)
			continue;
		special->starts[true][(uint8_t)texts[i].text[0]] = true;
		if (!texts[i].is_control)
			special->starts[false][(uint8_t)texts[i].text[0]] =
				true;
	}
	free(ranges);
	*out = special;
	return 0;
}

void special_destroy(struct special *special)
{
	if (!special)
		return;
	free(special->nodes);
	free(special);
}

static const struct special_node *child_of(const struct special *special,
					   const struct special_node *node,
					   uint8_t byte)
{
	const struct special_node *first = special->nodes + node->first_child;
	uint32_t low = 0, high = node->nr_children;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (first[middle].byte < byte)
			low = middle + 1;
		else
			high = middle;
	}
	return low < node->nr_children && first[low].byte == byte ?
		       &first[low] :
		       NULL;
}

/* The longest token that starts at @text. Return: its length, or 0. */
static size_t match_here(const struct special *special, const char *text,
			 size_t len, bool with_control, int32_t *out_id)
{
	const struct special_node *node = special->nodes;
	size_t at = 0, longest = 0;

	while (at < len) {
		node = child_of(special, node, (uint8_t)text[at]);
		if (!node)
			break;
		at++;
		if (with_control && node->control_id != TOKEN_NONE) {
			longest = at;
			*out_id = node->control_id;
		} else if (node->plain_id != TOKEN_NONE) {
			longest = at;
			*out_id = node->plain_id;
		}
	}
	return longest;
}

bool special_find(const struct special *special, const char *text, size_t len,
		  size_t from, bool with_control, struct special_match *out)
{
	const bool *starts = special->starts[with_control];
	size_t at;

	for (at = from; at < len; at++) {
		size_t match_len;

		if (!starts[(uint8_t)text[at]])
			continue;
		match_len = match_here(special, text + at, len - at,
				       with_control, &out->id);
		if (match_len > 0) {
			out->start = at;
			out->end = at + match_len;
			return true;
		}
	}
	return false;
}
