/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules into positions. Each node is compiled against the position behind it, from the end to the
 * begin, so that what is the same behind several alternatives is there once. Characters become
 * their UTF-8 bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar_private.h"
#include "engine/token/utf8.h"

enum {
	MAX_LOOK_BACK = 64,
	FAILED = UINT32_MAX, /* in place of a position: compiler.rc says why */
};

/* Copies of a repetition that lie one behind the other, the last of its text first. */
struct copies {
	uint32_t first, stride, nr;
};

struct compiler {
	struct program *p;
	struct copies *copies;
	uint32_t nr_copies, max_copies;
	const struct ast *ast;
	const struct ast_rule *rule; /* at hand */
	uint32_t at; /* of the node at hand, for messages */
	uint32_t *set_slots; /* set + 1 by hash, 0: free */
	uint32_t nr_set_slots;
	int rc;
	char *err;
	size_t errlen;
};

int grammar_grow(void **array, uint32_t nr, uint32_t *max, size_t item_bytes)
{
	uint32_t wanted = *max ? 2 * *max : 64;
	void *grown;

	if (nr < *max)
		return 0;
	if (wanted < *max)
		return -ENOMEM;
	grown = realloc(*array, wanted * item_bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*max = wanted;
	return 0;
}

static uint32_t fail(struct compiler *c, int rc)
{
	if (!c->rc)
		c->rc = rc;
	return FAILED;
}

static uint32_t add_position(struct compiler *c, enum position_kind kind,
			     uint32_t a, uint32_t b)
{
	struct program *p = c->p;

	if (a == FAILED || b == FAILED)
		return FAILED;
	if (p->nr_positions == GRAMMAR_MAX_POSITIONS)
		return fail(c, ast_fail(c->ast, c->at, c->err, c->errlen,
					"with its repetitions written out the "
					"grammar has more than %d positions, "
					"in rule \"%s\"",
					GRAMMAR_MAX_POSITIONS, c->rule->name));
	if (grammar_grow((void **)&p->positions, p->nr_positions,
			 &p->max_positions, sizeof(*p->positions)) != 0)
		return fail(c, -ENOMEM);
	p->positions[p->nr_positions] =
		(struct position){ .kind = kind, .a = a, .b = b };
	return p->nr_positions++;
}

/* ---- sets of bytes ------------------------------------------------------------------ */

static uint32_t *find_set(struct compiler *c, const struct byte_set *set)
{
	uint64_t hash = 0;
	uint32_t at;

	for (int i = 0; i < 4; i++)
		hash = (hash ^ set->bits[i]) * 0x9e3779b97f4a7c15u;
	at = (uint32_t)(hash >> 32) & (c->nr_set_slots - 1);
	while (c->set_slots[at] && memcmp(&c->p->sets[c->set_slots[at] - 1],
					  set, sizeof(*set)) != 0)
		at = (at + 1) & (c->nr_set_slots - 1);
	return &c->set_slots[at];
}

static int grow_set_slots(struct compiler *c)
{
	uint32_t nr = c->nr_set_slots ? 2 * c->nr_set_slots : 64;
	uint32_t *slots;

	if (2 * (c->p->nr_sets + 1) <= c->nr_set_slots)
		return 0;
	slots = calloc(nr, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(c->set_slots);
	c->set_slots = slots;
	c->nr_set_slots = nr;
	for (uint32_t i = 0; i < c->p->nr_sets; i++)
		*find_set(c, &c->p->sets[i]) = i + 1;
	return 0;
}

/* One byte of @set, then @next. */
static uint32_t add_byte(struct compiler *c, const struct byte_set *set,
			 uint32_t next)
{
	struct program *p = c->p;
	uint32_t *slot;

	if (grow_set_slots(c) != 0 ||
	    grammar_grow((void **)&p->sets, p->nr_sets, &p->max_sets,
			 sizeof(*p->sets)) != 0)
		return fail(c, -ENOMEM);
	slot = find_set(c, set);
	if (!*slot) {
		p->sets[p->nr_sets++] = *set;
		*slot = p->nr_sets;
	}
	return add_position(c, POS_BYTE, *slot - 1, next);
}

static void set_add(struct byte_set *set, uint32_t first, uint32_t last)
{
	for (uint32_t byte = first; byte <= last; byte++)
		set->bits[byte >> 6] |= 1ull << (byte & 63);
}

/* ---- characters ------------------------------------------------------------------- */

/* Bytes that all lead to the same position; the branches of one place in a character. */
struct branch {
	struct byte_set set;
	uint32_t next;
};

struct branches {
	struct branch *list;
	uint32_t nr, max;
};

/* Only the last branches are looked at: what leads to the same place comes near by. */
static void branches_add(struct compiler *c, struct branches *b, uint32_t first,
			 uint32_t last, uint32_t next)
{
	if (next == FAILED)
		return;
	for (uint32_t i = b->nr; i-- > 0 && b->nr - i <= MAX_LOOK_BACK;) {
		if (b->list[i].next == next) {
			set_add(&b->list[i].set, first, last);
			return;
		}
	}
	if (grammar_grow((void **)&b->list, b->nr, &b->max, sizeof(*b->list)) !=
	    0) {
		fail(c, -ENOMEM);
		return;
	}
	b->list[b->nr] = (struct branch){ .next = next };
	set_add(&b->list[b->nr++].set, first, last);
}

static uint32_t branches_compile(struct compiler *c, struct branches *b)
{
	uint32_t at = POSITION_NOWHERE;

	for (uint32_t i = 0; i < b->nr && !c->rc; i++) {
		uint32_t one = add_byte(c, &b->list[i].set, b->list[i].next);

		at = i ? add_position(c, POS_SPLIT, one, at) : one;
	}
	free(b->list);
	return c->rc ? FAILED : at;
}

/* The continuation bytes of a character: positions that are shared within one class. */
struct tails {
	uint32_t next; /* behind the character */
	uint32_t any[UTF8_MAX_BYTES]; /* any k continuation bytes, then next; 0: not made */
};

static uint32_t any_tail(struct compiler *c, struct tails *t, uint32_t nr)
{
	struct byte_set set = { 0 };

	if (!nr)
		return t->next;
	if (!t->any[nr]) {
		uint32_t rest = any_tail(c, t, nr - 1);

		set_add(&set, 0x80, 0xbf);
		t->any[nr] = rest == FAILED ? FAILED : add_byte(c, &set, rest);
	}
	return t->any[nr];
}

/*
 * Continuation bytes whose payload, 6 bits each, is from @first to @last; then what follows the
 * character. @nr: how many, at least 1.
 */
static uint32_t compile_tail(struct compiler *c, struct tails *t, uint32_t nr,
			     uint32_t first, uint32_t last)
{
	const uint32_t shift = 6 * (nr - 1), low = (1u << shift) - 1;
	struct branches b = { 0 };

	if (!first && last == (1u << 6 * nr) - 1)
		return any_tail(c, t, nr);
	for (uint32_t top = first >> shift; top <= last >> shift && !c->rc;) {
		uint32_t from = top == first >> shift ? first & low : 0;
		uint32_t to = top == last >> shift ? last & low : low;
		uint32_t end = top;
		uint32_t next = t->next;

		/* Whole blocks in a row go together. */
		if (nr > 1 && !from && to == low) {
			end = (last & low) == low ? last >> shift :
						    (last >> shift) - 1;
			next = any_tail(c, t, nr - 1);
		} else if (nr > 1) {
			next = compile_tail(c, t, nr - 1, from, to);
		} else {
			end = last;
		}
		branches_add(c, &b, 0x80 | top, 0x80 | end, next);
		top = end + 1;
	}
	return branches_compile(c, &b);
}

/* The part of a range whose characters have @nr bytes. */
static void add_lengths(struct compiler *c, struct branches *b, struct tails *t,
			uint32_t nr, uint32_t first, uint32_t last)
{
	static const uint32_t leads[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };
	const uint32_t shift = 6 * (nr - 1), low = (1u << shift) - 1;

	if (nr == 1) {
		branches_add(c, b, first, last, t->next);
		return;
	}
	for (uint32_t top = first >> shift; top <= last >> shift && !c->rc;
	     top++) {
		uint32_t from = top == first >> shift ? first & low : 0;
		uint32_t to = top == last >> shift ? last & low : low;

		branches_add(c, b, leads[nr] | top, leads[nr] | top,
			     compile_tail(c, t, nr - 1, from, to));
	}
}

static uint32_t compile_class(struct compiler *c, const struct ast_node *node,
			      uint32_t next)
{
	static const uint32_t lasts[] = { 0, 0x7f, 0x7ff, 0xffff,
					  AST_MAX_CODE_POINT };
	struct branches b = { 0 };
	struct tails t = { .next = next };

	for (uint32_t i = 0; i < node->class.nr; i++) {
		const struct ast_range *r = &node->class.ranges[i];

		for (uint32_t nr = 1; nr <= UTF8_MAX_BYTES; nr++) {
			uint32_t from = nr > 1 ? lasts[nr - 1] + 1 : 0;
			uint32_t first = r->first > from ? r->first : from;
			uint32_t last = r->last < lasts[nr] ? r->last :
							      lasts[nr];

			if (first <= last && !c->rc)
				add_lengths(c, &b, &t, nr, first, last);
		}
	}
	return branches_compile(c, &b);
}

static uint32_t compile_text(struct compiler *c, const struct ast_node *node,
			     uint32_t next)
{
	for (uint32_t i = node->text.len; i-- > 0 && next != FAILED;) {
		uint8_t byte = (uint8_t)node->text.bytes[i];
		struct byte_set set = { 0 };

		set_add(&set, byte, byte);
		next = add_byte(c, &set, next);
	}
	return next;
}

/* ---- nodes ------------------------------------------------------------------------ */

static uint32_t compile_node(struct compiler *c, const struct ast_node *node,
			     uint32_t next);

/* Parts are listed forwards and compiled backwards. */
static uint32_t compile_sequence(struct compiler *c,
				 const struct ast_node *node, uint32_t next)
{
	const struct ast_node **parts = NULL;
	uint32_t nr = 0, max = 0;

	for (const struct ast_node *n = node->parts.first; n; n = n->next) {
		if (grammar_grow((void **)&parts, nr, &max, sizeof(*parts))) {
			free(parts);
			return fail(c, -ENOMEM);
		}
		parts[nr++] = n;
	}
	while (nr > 0 && next != FAILED)
		next = compile_node(c, parts[--nr], next);
	free(parts);
	return next;
}

static uint32_t compile_choice(struct compiler *c, const struct ast_node *node,
			       uint32_t next)
{
	uint32_t at = POSITION_NOWHERE;

	for (const struct ast_node *n = node->parts.first; n && at != FAILED;
	     n = n->next) {
		uint32_t one = compile_node(c, n, next);

		at = at == POSITION_NOWHERE ?
			     one :
			     add_position(c, POS_SPLIT, one, at);
	}
	return at;
}

/* All positions since @first are @nr copies, all alike. Few look the same however far they are. */
static uint32_t note_copies(struct compiler *c, uint32_t first, uint32_t nr,
			    uint32_t at)
{
	const uint32_t bytes = c->p->nr_positions - first;

	if (at == FAILED || nr <= GRAMMAR_SIGHT + 1 || !bytes || bytes % nr)
		return at;
	if (grammar_grow((void **)&c->copies, c->nr_copies, &c->max_copies,
			 sizeof(*c->copies)) != 0)
		return fail(c, -ENOMEM);
	c->copies[c->nr_copies++] = (struct copies){ first, bytes / nr, nr };
	return at;
}

/* From @min on the copies are optional, or a loop. */
static uint32_t compile_optional(struct compiler *c,
				 const struct ast_node *node, uint32_t next)
{
	const uint32_t first = c->p->nr_positions;
	const uint32_t nr = node->repeat.max - node->repeat.min;
	uint32_t at = next;

	for (uint32_t i = 0; i < nr && at != FAILED; i++)
		at = add_position(c, POS_SPLIT,
				  compile_node(c, node->repeat.what, at), next);
	return note_copies(c, first, nr, at);
}

static uint32_t compile_repeat(struct compiler *c, const struct ast_node *node,
			       uint32_t next)
{
	const struct ast_node *what = node->repeat.what;
	uint32_t nr_copies = node->repeat.min, at, first;

	if (node->repeat.max == AST_UNBOUNDED) {
		uint32_t loop = add_position(c, POS_SPLIT, next, next);
		uint32_t body;

		if (loop == FAILED)
			return FAILED;
		body = compile_node(c, what, loop);
		if (body == FAILED)
			return FAILED;
		c->p->positions[loop].a = body;
		at = nr_copies ? body : loop;
		nr_copies -= nr_copies > 0;
	} else {
		at = compile_optional(c, node, next);
	}
	first = c->p->nr_positions;
	for (uint32_t i = 0; i < nr_copies && at != FAILED; i++) {
		const uint32_t copy = compile_node(c, what, at);

		/* What adds no position is empty, however often. */
		if (copy == at)
			return at;
		at = copy;
	}
	return note_copies(c, first, nr_copies, at);
}

static uint32_t compile_node(struct compiler *c, const struct ast_node *node,
			     uint32_t next)
{
	if (node->at)
		c->at = node->at;
	switch (node->kind) {
	case AST_TEXT:
		return compile_text(c, node, next);
	case AST_CLASS:
		return compile_class(c, node, next);
	case AST_SEQUENCE:
		return compile_sequence(c, node, next);
	case AST_CHOICE:
		return compile_choice(c, node, next);
	case AST_REPEAT:
		return compile_repeat(c, node, next);
	case AST_RULE:
		return add_position(c, POS_CALL, node->rule, next);
	}
	return FAILED;
}

/* ---- the whole -------------------------------------------------------------------- */

/* Splits the bytes until each set holds whole classes. */
static void find_classes(struct program *p)
{
	p->nr_classes = 1;
	for (uint32_t i = 0; i < p->nr_sets && p->nr_classes < 256; i++) {
		uint16_t split[256] = { 0 }; /* by class: its new half + 1 */
		uint16_t nr_in[256] = { 0 }, nr_all[256] = { 0 };

		for (uint32_t b = 0; b < 256; b++) {
			nr_all[p->class_of[b]]++;
			nr_in[p->class_of[b]] +=
				byte_set_has(&p->sets[i], (uint8_t)b);
		}
		for (uint32_t b = 0; b < 256; b++) {
			uint8_t class = p->class_of[b];

			if (!byte_set_has(&p->sets[i], (uint8_t)b) ||
			    nr_in[class] == nr_all[class])
				continue;
			if (!split[class])
				split[class] = (uint16_t)++p->nr_classes;
			p->class_of[b] = (uint8_t)(split[class] - 1);
		}
	}
	for (uint32_t b = 256; b-- > 0;)
		p->byte_of[p->class_of[b]] = (uint8_t)b;
}

/*
 * Repetitions within others come before them in the list, and each copy of the outer one has its
 * own: positions only ever go down, so that those below are done.
 */
static int find_alike(struct compiler *c)
{
	struct program *p = c->p;

	p->alike = malloc(p->nr_positions * sizeof(*p->alike));
	if (!p->alike)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->nr_positions; i++)
		p->alike[i] = i;
	for (uint32_t k = 0; k < c->nr_copies; k++) {
		const struct copies *r = &c->copies[k];
		const uint32_t from =
			r->first + (GRAMMAR_SIGHT + 1) * r->stride;

		for (uint32_t i = from; i < r->first + r->nr * r->stride; i++)
			p->alike[i] = i - r->stride;
	}
	for (uint32_t i = 0; i < p->nr_positions; i++)
		p->alike[i] = p->alike[p->alike[i]];
	return 0;
}

static int compile_rules(struct compiler *c)
{
	struct program *p = c->p;
	const struct ast *ast = c->ast;

	p->nr_rules = ast->nr_rules;
	p->root = ast->root;
	p->starts = calloc(ast->nr_rules, sizeof(*p->starts));
	if (!p->starts)
		return -ENOMEM;
	add_position(c, POS_RETURN, 0, 0);
	add_position(c, POS_NOWHERE, 0, 0);
	for (uint32_t i = 0; i < ast->nr_rules && !c->rc; i++) {
		c->rule = &ast->rules[i];
		c->at = c->rule->at;
		if (!c->rule->body)
			return ast_fail(ast, c->at, c->err, c->errlen,
					"the rule \"%s\" is not defined",
					c->rule->name);
		p->starts[i] = compile_node(c, c->rule->body, POSITION_RETURN);
	}
	return c->rc;
}

int grammar_compile(const struct ast *ast, struct grammar **out, char *err,
		    size_t errlen)
{
	struct grammar *g = calloc(1, sizeof(*g));
	struct compiler c = { .ast = ast, .err = err, .errlen = errlen };
	int rc;

	if (!g || ast->is_out_of_memory) {
		free(g);
		return -ENOMEM;
	}
	c.p = &g->program;
	rc = compile_rules(&c);
	if (!rc)
		rc = find_alike(&c);
	free(c.set_slots);
	free(c.copies);
	if (!rc)
		rc = program_check(&g->program, ast, err, errlen);
	if (!rc) {
		find_classes(&g->program);
		rc = automaton_init(g);
	}
	if (rc == -E2BIG)
		rc = ast_fail(ast, 0, err, errlen,
			      "the grammar is too ambiguous");
	if (rc) {
		grammar_destroy(g);
		return rc;
	}
	*out = g;
	return 0;
}

void grammar_destroy(struct grammar *g)
{
	if (!g)
		return;
	automaton_deinit(g);
	free(g->program.positions);
	free(g->program.sets);
	free(g->program.starts);
	free(g->program.live);
	free(g->program.alike);
	free(g);
}
