/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a grammar: what compile.c, check.c and automaton.c share.
 */
#ifndef TARN_ENGINE_GRAMMAR_GRAMMAR_PRIVATE_H
#define TARN_ENGINE_GRAMMAR_GRAMMAR_PRIVATE_H

#include "engine/grammar/ast.h"
#include "engine/grammar/grammar.h"

enum {
	POSITION_RETURN = 0, /* the end of every rule */
	POSITION_NOWHERE = 1, /* nothing matches from here */
	NODE_END = 0, /* the stack that is empty: the text may end */
};

enum position_kind {
	POS_RETURN,
	POS_NOWHERE,
	POS_BYTE, /* one byte of set a, then position b */
	POS_SPLIT, /* position a or position b */
	POS_CALL, /* rule a, then position b */
};

struct position {
	uint32_t kind, a, b;
};

struct byte_set {
	uint64_t bits[4];
};

static inline bool byte_set_has(const struct byte_set *set, uint8_t byte)
{
	return set->bits[byte >> 6] >> (byte & 63) & 1;
}

/* What compiling makes; constant afterwards. */
struct program {
	struct position *positions; /* [nr_positions] */
	uint32_t nr_positions, max_positions;
	struct byte_set *sets; /* [nr_sets], each once */
	uint32_t nr_sets, max_sets;
	uint32_t *starts; /* [nr_rules] position of a rule's begin */
	uint32_t nr_rules, root;
	uint64_t *live; /* bits by position: from here the rule's end can be reached */
	/*
	 * [nr_positions] the position that stands for this one as far as GRAMMAR_SIGHT bytes see:
	 * copies of a repetition that are farther than that from its last one look the same.
	 */
	uint32_t *alike;
	uint8_t class_of[256]; /* bytes that all sets treat alike have one class */
	uint8_t byte_of[256]; /* some byte of a class */
	uint32_t nr_classes;
};

static inline bool program_is_live(const struct program *p, uint32_t position)
{
	return p->live[position >> 6] >> (position & 63) & 1;
}

/* A stack: a position over the stack that its rule returns to. */
struct stack_node {
	uint32_t position, parent;
	uint32_t depth;
	uint32_t seen; /* by the closure of this number */
	uint32_t alike; /* the node that stands for it: see program.alike */
};

struct state {
	uint32_t *next; /* [nr_classes] state + 1, 0: not known; NULL: nothing is */
	uint32_t first, nr; /* its stacks, ascending: items[first ...] */
	uint32_t alike; /* the state that stands for it + 1, 0: not known */
};

struct grammar {
	struct program program;

	struct stack_node *nodes;
	uint32_t nr_nodes, max_nodes;
	uint32_t *node_slots; /* node + 1 by hash, 0: free */
	uint32_t nr_node_slots;

	struct state *states;
	uint32_t nr_states, max_states;
	uint32_t *items; /* stacks of all states */
	uint32_t nr_items, max_items;
	uint32_t *state_slots; /* state + 1 by hash of its stacks, 0: free */
	uint32_t nr_state_slots;

	/* The closure at hand. */
	uint32_t *work; /* nodes to look at */
	uint32_t nr_work, max_work;
	uint32_t *found; /* nodes of the state that is made */
	uint32_t nr_found, max_found;
	uint32_t closure; /* its number */

	uint64_t state_bytes;
	uint32_t work_left; /* stacks that may still be looked at */
	uint32_t start;
};

/* grammar_step() where the state was worked out before; false: it was not. */
static inline bool grammar_look(const struct grammar *g, uint32_t state,
				uint8_t byte, uint32_t *out)
{
	const uint32_t *next = g->states[state].next;

	if (!next || !next[g->program.class_of[byte]])
		return false;
	*out = next[g->program.class_of[byte]] - 1;
	return true;
}

/*
 * check.c: marks what can be reached from an end (program.live), and refuses rules that begin with
 * themselves and a root without an end. Return: 0, -EINVAL, -ENOMEM.
 */
int program_check(struct program *p, const struct ast *ast, char *err,
		  size_t errlen);
/* automaton.c: the start state. Return: 0, -E2BIG, -ENOMEM. */
int automaton_init(struct grammar *g);
void automaton_deinit(struct grammar *g);

/* Room for one more item in an array that doubles. Return: 0, -ENOMEM. */
int grammar_grow(void **array, uint32_t nr, uint32_t *max, size_t item_bytes);

#endif /* TARN_ENGINE_GRAMMAR_GRAMMAR_PRIVATE_H */
