/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States and what bytes make of them, worked out when asked for. See grammar.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar_private.h"

enum { NO_NODE = UINT32_MAX };

/* Room in an array, counted against the limit. */
static int grow(struct grammar *g, void **array, uint32_t nr, uint32_t *max,
		size_t item_bytes)
{
	const uint32_t old = *max;
	int rc = grammar_grow(array, nr, max, item_bytes);

	g->state_bytes += (uint64_t)(*max - old) * item_bytes;
	if (!rc && *max != old && g->state_bytes > GRAMMAR_MAX_STATE_BYTES)
		return -E2BIG;
	return rc;
}

/* A table of slots of twice the size; the caller fills it again. Return: 0, -ENOMEM, -E2BIG. */
static int grow_slots(struct grammar *g, uint32_t **slots, uint32_t *nr)
{
	uint32_t wanted = *nr ? 2 * *nr : 256;
	uint32_t *grown;

	if (g->state_bytes + wanted * sizeof(*grown) > GRAMMAR_MAX_STATE_BYTES)
		return -E2BIG;
	grown = calloc(wanted, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	g->state_bytes += (wanted - *nr) * sizeof(*grown);
	free(*slots);
	*slots = grown;
	*nr = wanted;
	return 0;
}

/* ---- stacks ----------------------------------------------------------------------- */

static uint32_t *find_node(struct grammar *g, uint32_t position,
			   uint32_t parent)
{
	uint64_t hash =
		((uint64_t)parent << 32 | position) * 0x9e3779b97f4a7c15u;
	uint32_t at = (uint32_t)(hash >> 32) & (g->nr_node_slots - 1);

	while (g->node_slots[at]) {
		const struct stack_node *n = &g->nodes[g->node_slots[at] - 1];

		if (n->position == position && n->parent == parent)
			break;
		at = (at + 1) & (g->nr_node_slots - 1);
	}
	return &g->node_slots[at];
}

static int reserve_node(struct grammar *g)
{
	int rc = grow(g, (void **)&g->nodes, g->nr_nodes, &g->max_nodes,
		      sizeof(*g->nodes));

	if (rc || 2 * (g->nr_nodes + 1) <= g->nr_node_slots)
		return rc;
	rc = grow_slots(g, &g->node_slots, &g->nr_node_slots);
	for (uint32_t i = 1; i < g->nr_nodes && !rc; i++)
		*find_node(g, g->nodes[i].position, g->nodes[i].parent) = i + 1;
	return rc;
}

static int push(struct grammar *g, uint32_t position, uint32_t parent,
		uint32_t *out);

/* The node that stands for @node: its position's, over its parent's. They are as deep. */
static int find_alike(struct grammar *g, uint32_t node)
{
	const struct stack_node n = g->nodes[node];
	const uint32_t position = g->program.alike[n.position];
	const uint32_t parent = g->nodes[n.parent].alike;
	uint32_t alike = node;
	int rc = 0;

	/* What stands for others stands for itself: this goes one step deep. */
	if (position != n.position || parent != n.parent)
		rc = push(g, position, parent, &alike);
	if (!rc)
		g->nodes[node].alike = alike;
	return rc;
}

/* @position over the stack @parent. *out is NO_NODE where that is too deep. */
static int push(struct grammar *g, uint32_t position, uint32_t parent,
		uint32_t *out)
{
	const uint32_t depth = g->nodes[parent].depth + 1;
	uint32_t *slot;
	int rc = reserve_node(g);

	if (rc)
		return rc;
	slot = find_node(g, position, parent);
	if (*slot) {
		*out = *slot - 1;
		return 0;
	}
	*out = NO_NODE;
	if (depth > GRAMMAR_MAX_DEPTH)
		return 0;
	g->nodes[g->nr_nodes] = (struct stack_node){
		.position = position,
		.parent = parent,
		.depth = depth,
		.alike = g->nr_nodes, /* stays where memory is out */
	};
	*slot = ++g->nr_nodes;
	*out = g->nr_nodes - 1;
	return find_alike(g, *out);
}

/* ---- closures --------------------------------------------------------------------- */

/* The stack is looked at once in the closure at hand. */
static int visit_node(struct grammar *g, uint32_t node)
{
	int rc;

	if (node == NO_NODE || g->nodes[node].seen == g->closure)
		return 0;
	if (g->nr_found + g->nr_work >= GRAMMAR_MAX_STACKS || !g->work_left)
		return -E2BIG;
	g->work_left--;
	rc = grow(g, (void **)&g->work, g->nr_work, &g->max_work,
		  sizeof(*g->work));
	if (rc)
		return rc;
	g->nodes[node].seen = g->closure;
	g->work[g->nr_work++] = node;
	return 0;
}

static int visit(struct grammar *g, uint32_t position, uint32_t parent)
{
	uint32_t node;
	int rc;

	/* A rule at its end is where it was called from. */
	if (position == POSITION_RETURN)
		return visit_node(g, parent);
	if (!program_is_live(&g->program, position))
		return 0;
	rc = push(g, position, parent, &node);
	return rc ? rc : visit_node(g, node);
}

/* A rule at the end of another takes its place: lists may be long without being deep. */
static int call(struct grammar *g, const struct position *p, uint32_t parent)
{
	uint32_t frame = parent;
	int rc = 0;

	if (p->b != POSITION_RETURN)
		rc = push(g, p->b, parent, &frame);
	if (rc || frame == NO_NODE)
		return rc;
	return visit(g, g->program.starts[p->a], frame);
}

/* From all stacks in work to those that wait for a byte, and the end: found. */
static int close_work(struct grammar *g)
{
	int rc = 0;

	while (g->nr_work && !rc) {
		const uint32_t node = g->work[--g->nr_work];
		const struct position *p =
			&g->program.positions[g->nodes[node].position];
		const uint32_t parent = g->nodes[node].parent;

		if (node == NODE_END || p->kind == POS_BYTE) {
			rc = grow(g, (void **)&g->found, g->nr_found,
				  &g->max_found, sizeof(*g->found));
			if (!rc)
				g->found[g->nr_found++] = node;
		} else if (p->kind == POS_SPLIT) {
			rc = visit(g, p->a, parent);
			if (!rc)
				rc = visit(g, p->b, parent);
		} else if (p->kind == POS_CALL) {
			rc = call(g, p, parent);
		}
	}
	return rc;
}

static void start_closure(struct grammar *g)
{
	/* Numbers come round after 2^32 closures: then nothing may look seen. */
	if (++g->closure == 0) {
		for (uint32_t i = 0; i < g->nr_nodes; i++)
			g->nodes[i].seen = 0;
		g->closure = 1;
	}
	g->nr_work = g->nr_found = 0;
}

/* ---- states ----------------------------------------------------------------------- */

static int compare_nodes(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t *find_state(struct grammar *g, const uint32_t *nodes,
			    uint32_t nr)
{
	uint64_t hash = nr;
	uint32_t at;

	for (uint32_t i = 0; i < nr; i++) {
		hash = (hash ^ nodes[i]) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	at = (uint32_t)(hash >> 32) & (g->nr_state_slots - 1);
	while (g->state_slots[at]) {
		const struct state *s = &g->states[g->state_slots[at] - 1];

		if (s->nr == nr &&
		    !memcmp(g->items + s->first, nodes, nr * sizeof(*nodes)))
			break;
		at = (at + 1) & (g->nr_state_slots - 1);
	}
	return &g->state_slots[at];
}

static int reserve_state(struct grammar *g)
{
	int rc = grow(g, (void **)&g->states, g->nr_states, &g->max_states,
		      sizeof(*g->states));

	while (!rc && g->max_items - g->nr_items <= g->nr_found)
		rc = grow(g, (void **)&g->items, g->max_items, &g->max_items,
			  sizeof(*g->items));
	if (rc || 2 * (g->nr_states + 1) <= g->nr_state_slots)
		return rc;
	rc = grow_slots(g, &g->state_slots, &g->nr_state_slots);
	for (uint32_t i = 0; i < g->nr_states && !rc; i++)
		*find_state(g, g->items + g->states[i].first, g->states[i].nr) =
			i + 1;
	return rc;
}

/* The state of the stacks found; that of none is GRAMMAR_DEAD. */
static int found_state(struct grammar *g, uint32_t *out)
{
	uint32_t *slot;
	int rc = reserve_state(g);

	if (rc)
		return rc;
	qsort(g->found, g->nr_found, sizeof(*g->found), compare_nodes);
	slot = find_state(g, g->found, g->nr_found);
	if (!*slot) {
		if (g->nr_found)
			memcpy(g->items + g->nr_items, g->found,
			       g->nr_found * sizeof(*g->found));
		g->states[g->nr_states] = (struct state){ .first = g->nr_items,
							  .nr = g->nr_found };
		g->nr_items += g->nr_found;
		*slot = ++g->nr_states;
	}
	*out = *slot - 1;
	return 0;
}

static int make_next(struct grammar *g, uint32_t state, uint8_t byte,
		     uint32_t *out)
{
	int rc = 0;

	start_closure(g);
	for (uint32_t i = 0; i < g->states[state].nr && !rc; i++) {
		const uint32_t node = g->items[g->states[state].first + i];
		const struct position *p =
			&g->program.positions[g->nodes[node].position];

		if (node != NODE_END &&
		    byte_set_has(&g->program.sets[p->a], byte))
			rc = visit(g, p->b, g->nodes[node].parent);
	}
	if (!rc)
		rc = close_work(g);
	if (!rc)
		rc = found_state(g, out);
	return rc;
}

int grammar_step(struct grammar *g, uint32_t state, uint8_t byte, uint32_t *out)
{
	const uint32_t class = g->program.class_of[byte];
	const size_t bytes = g->program.nr_classes * sizeof(uint32_t);
	uint32_t next;
	int rc;

	if (!g->states[state].next) {
		if (g->state_bytes + bytes > GRAMMAR_MAX_STATE_BYTES)
			return -E2BIG;
		g->states[state].next = calloc(1, bytes);
		if (!g->states[state].next)
			return -ENOMEM;
		g->state_bytes += bytes;
	}
	next = g->states[state].next[class];
	if (next) {
		*out = next - 1;
		return 0;
	}
	rc = make_next(g, state, byte, out);
	if (!rc)
		g->states[state].next[class] = *out + 1;
	return rc;
}

int grammar_alike(struct grammar *g, uint32_t state, uint32_t *out)
{
	int rc = 0;

	if (g->states[state].alike) {
		*out = g->states[state].alike - 1;
		return 0;
	}
	start_closure(g);
	for (uint32_t i = 0; i < g->states[state].nr && !rc; i++) {
		const uint32_t node = g->items[g->states[state].first + i];
		const uint32_t alike = g->nodes[node].alike;

		if (g->nodes[alike].seen == g->closure)
			continue;
		g->nodes[alike].seen = g->closure;
		rc = grow(g, (void **)&g->found, g->nr_found, &g->max_found,
			  sizeof(*g->found));
		if (!rc)
			g->found[g->nr_found++] = alike;
	}
	if (!rc)
		rc = found_state(g, out);
	if (!rc)
		g->states[state].alike = *out + 1;
	return rc;
}

bool grammar_accepts(const struct grammar *g, uint32_t state)
{
	const struct state *s = &g->states[state];

	return s->nr && g->items[s->first] == NODE_END;
}

void grammar_allow_work(struct grammar *g)
{
	g->work_left = GRAMMAR_MAX_WORK;
}

uint32_t grammar_start(const struct grammar *g)
{
	return g->start;
}

uint32_t grammar_nr_states(const struct grammar *g)
{
	return g->nr_states;
}

int automaton_init(struct grammar *g)
{
	uint32_t dead;
	int rc = reserve_node(g);

	grammar_allow_work(g);
	if (!rc)
		rc = grow(g, (void **)&g->found, 0, &g->max_found,
			  sizeof(*g->found));
	if (rc)
		return rc;
	/* The empty stack, which is never looked up. */
	g->nodes[g->nr_nodes++] = (struct stack_node){ POSITION_RETURN };
	start_closure(g);
	rc = found_state(g, &dead);
	if (rc)
		return rc;
	start_closure(g);
	rc = visit(g, g->program.starts[g->program.root], NODE_END);
	if (!rc)
		rc = close_work(g);
	if (!rc)
		rc = found_state(g, &g->start);
	return rc;
}

void automaton_deinit(struct grammar *g)
{
	for (uint32_t i = 0; i < g->nr_states; i++)
		free(g->states[i].next);
	free(g->states);
	free(g->items);
	free(g->nodes);
	free(g->node_slots);
	free(g->state_slots);
	free(g->work);
	free(g->found);
}
