/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The merging loop. Entries of the heap are hints: one whose rank is no
 * longer that of its symbol is dropped when it comes up, and each symbol's
 * present rank always has an entry, so the smallest present rank goes next.
 */
#include "engine/token/merge.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

void merge_work_deinit(struct merge_work *work)
{
	free(work->syms);
	free(work->heap);
	*work = (struct merge_work){ 0 };
}

static int make_room(void **array, size_t *room, size_t need, size_t elem_bytes)
{
	size_t new_room = need < 64 ? 64 : need;
	void *grown;

	if (need <= *room)
		return 0;
	if (new_room < 2 * *room)
		new_room = 2 * *room;
	grown = realloc(*array, new_room * elem_bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = new_room;
	return 0;
}

int merge_reset(struct merge_work *work, size_t nr)
{
	int err;

	if (nr > INT32_MAX)
		return -EFBIG;
	work->nr = 0;
	work->nr_heap = 0;
	err = make_room((void **)&work->syms, &work->room, nr,
			sizeof(*work->syms));
	if (err)
		return err;
	/* nr - 1 pairs at first; each of nr - 1 merges takes one and adds two at most. */
	return make_room((void **)&work->heap, &work->heap_room, 2 * nr,
			 sizeof(*work->heap));
}

static void sift_down(struct merge_work *work, size_t at)
{
	uint64_t *heap = work->heap;
	uint64_t moving = heap[at];

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= work->nr_heap)
			break;
		if (child + 1 < work->nr_heap && heap[child + 1] < heap[child])
			child++;
		if (moving <= heap[child])
			break;
		heap[at] = heap[child];
		at = child;
		work->nr_steps++;
	}
	heap[at] = moving;
}

static void sift_up(struct merge_work *work, uint64_t entry)
{
	uint64_t *heap = work->heap;
	size_t at = work->nr_heap++;

	while (at > 0 && entry < heap[(at - 1) / 2]) {
		heap[at] = heap[(at - 1) / 2];
		at = (at - 1) / 2;
		work->nr_steps++;
	}
	heap[at] = entry;
}

static uint64_t pop(struct merge_work *work)
{
	uint64_t top = work->heap[0];

	work->heap[0] = work->heap[--work->nr_heap];
	if (work->nr_heap > 1)
		sift_down(work, 0);
	work->nr_steps++;
	return top;
}

/* Ask the rules about symbol @at and its right neighbour anew. */
static bool look(struct merge_work *work, const struct merge_rules *rules,
		 uint32_t at)
{
	struct merge_sym *sym = &work->syms[at];

	sym->rank = MERGE_NONE;
	if (sym->next != MERGE_NONE)
		rules->look(rules->owner, sym, &work->syms[sym->next]);
	return sym->rank != MERGE_NONE;
}

static void look_and_push(struct merge_work *work,
			  const struct merge_rules *rules, uint32_t at)
{
	if (look(work, rules, at))
		sift_up(work, (uint64_t)work->syms[at].rank << 32 | at);
}

static void start(struct merge_work *work, const struct merge_rules *rules)
{
	uint32_t nr = (uint32_t)work->nr, i;
	size_t at;

	for (i = 0; i < nr; i++) {
		work->syms[i].prev = i > 0 ? i - 1 : MERGE_NONE;
		work->syms[i].next = i + 1 < nr ? i + 1 : MERGE_NONE;
		if (look(work, rules, i))
			work->heap[work->nr_heap++] =
				(uint64_t)work->syms[i].rank << 32 | i;
	}
	for (at = work->nr_heap / 2; at-- > 0;)
		sift_down(work, at);
}

int merge_run(struct merge_work *work, const struct merge_rules *rules)
{
	start(work, rules);
	while (work->nr_heap > 0) {
		uint64_t entry = pop(work);
		uint32_t at = (uint32_t)entry;
		struct merge_sym *left = &work->syms[at], *right;

		if (left->rank != (uint32_t)(entry >> 32))
			continue;
		right = &work->syms[left->next];
		if (rules->join) {
			int err = rules->join(rules->owner, left, right);

			if (err)
				return err;
		}
		left->id = left->joined;
		left->len += right->len;
		left->next = right->next;
		if (right->next != MERGE_NONE)
			work->syms[right->next].prev = at;
		right->rank = MERGE_NONE; /* gone: its entries are stale */
		look_and_push(work, rules, at);
		if (left->prev != MERGE_NONE)
			look_and_push(work, rules, left->prev);
	}
	return 0;
}
