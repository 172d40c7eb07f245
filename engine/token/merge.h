/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging neighbours, best pair first: the loop that byte-level BPE (by rank
 * of the merge) and SPM (by score of the result) share. A heap keeps it at
 * n log n however long the run of symbols is. Owns the scratch memory of one
 * encoding, which one thread uses at a time.
 */
#ifndef TARN_ENGINE_TOKEN_MERGE_H
#define TARN_ENGINE_TOKEN_MERGE_H

#include <stddef.h>
#include <stdint.h>

static const uint32_t MERGE_NONE = UINT32_MAX; /* no neighbour; no merge */

struct merge_sym {
	uint32_t start, len; /* bytes of the run that the symbol covers */
	int32_t id; /* token, or TOKEN_NONE */
	int32_t joined; /* token that it and its right neighbour make */
	uint32_t rank; /* of that merge, lower is sooner; MERGE_NONE: none */
	uint32_t prev, next; /* neighbours, or MERGE_NONE */
	uint32_t note; /* the owner's; MERGE_NONE at first */
};

struct merge_rules {
	/* Set left's rank and joined for the pair. */
	void (*look)(void *owner, struct merge_sym *left,
		     const struct merge_sym *right);
	/* NULL, or told of each merge before it happens; 0 or -errno. */
	int (*join)(void *owner, struct merge_sym *left,
		    const struct merge_sym *right);
	void *owner;
};

struct merge_work {
	struct merge_sym *syms;
	size_t nr, room;
	uint64_t *heap; /* rank << 32 | symbol, the smallest first */
	size_t nr_heap, heap_room;
	uint64_t nr_steps; /* heap entries moved, for tests of linearity */
};

void merge_work_deinit(struct merge_work *work);

/**
 * merge_reset - forget the symbols and make room for @nr new ones
 *
 * Return: 0, -ENOMEM, -EFBIG for 2^31 symbols or more.
 */
int merge_reset(struct merge_work *work, size_t nr);

/* Append a symbol; merge_reset() has made room. */
static inline void merge_push(struct merge_work *work, uint32_t start,
			      uint32_t len, int32_t id)
{
	work->syms[work->nr++] = (struct merge_sym){
		.start = start,
		.len = len,
		.id = id,
		.rank = MERGE_NONE,
		.prev = MERGE_NONE,
		.next = MERGE_NONE,
		.note = MERGE_NONE,
	};
}

/**
 * merge_run - join pairs until no rule applies
 *
 * The pair of lowest rank goes first, the leftmost of equal ones. What is
 * left is the list from symbol 0 along .next.
 *
 * Return: 0, or what @rules->join returned.
 */
int merge_run(struct merge_work *work, const struct merge_rules *rules);

#endif /* TARN_ENGINE_TOKEN_MERGE_H */
