/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with compiled rules as a whole: a rule that begins with itself would call itself
 * for ever, a root without an end could never be answered. Everything here is linear in the
 * number of positions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar_private.h"

/* Who leads to a position: lists by their target, in one array. */
struct sources {
	uint32_t *first; /* [nr_positions + 1] */
	uint32_t *from; /* positions that split or go on to, or call, the target */
};

/* A walk backwards from the end of rules. */
struct walk {
	const struct program *p;
	struct sources sources;
	uint64_t *reached; /* bits by position: the end of its rule can be reached */
	uint32_t *work;
	uint32_t nr_work;
};

static bool has_bit(const uint64_t *bits, uint32_t i)
{
	return bits[i >> 6] >> (i & 63) & 1;
}

static void set_bit(uint64_t *bits, uint32_t i)
{
	bits[i >> 6] |= 1ull << (i & 63);
}

static uint64_t *bits_create(uint32_t nr)
{
	return calloc(nr / 64 + 1, sizeof(uint64_t));
}

/* The positions that @pos leads to, at most two; answers how many. */
static uint32_t targets_of(const struct program *p, const struct position *pos,
			   uint32_t out[2])
{
	switch (pos->kind) {
	case POS_BYTE:
		out[0] = pos->b;
		return 1;
	case POS_SPLIT:
		out[0] = pos->a;
		out[1] = pos->b;
		return 2;
	case POS_CALL:
		out[0] = p->starts[pos->a];
		out[1] = pos->b;
		return 2;
	default:
		return 0;
	}
}

static int sources_init(struct sources *s, const struct program *p)
{
	uint32_t total = 0, targets[2];

	s->first = calloc((size_t)p->nr_positions + 2, sizeof(*s->first));
	s->from = malloc(2 * (size_t)p->nr_positions * sizeof(*s->from));
	if (!s->first || !s->from)
		return -ENOMEM;
	/* Counted two places further on, so that filling moves each to its own begin. */
	for (uint32_t i = 0; i < p->nr_positions; i++)
		for (uint32_t n = targets_of(p, &p->positions[i], targets);
		     n-- > 0;)
			s->first[targets[n] + 2]++;
	for (uint32_t i = 0; i <= p->nr_positions; i++) {
		total += s->first[i + 1];
		s->first[i + 1] = total;
	}
	for (uint32_t i = 0; i < p->nr_positions; i++)
		for (uint32_t n = targets_of(p, &p->positions[i], targets);
		     n-- > 0;)
			s->from[s->first[targets[n] + 1]++] = i;
	return 0;
}

/* Whether the end can be reached from @pos, as far as is known of where it leads. */
static bool can_reach(const struct walk *w, const struct position *pos,
		      bool over_bytes)
{
	switch (pos->kind) {
	case POS_BYTE:
		return over_bytes && has_bit(w->reached, pos->b);
	case POS_SPLIT:
		return has_bit(w->reached, pos->a) ||
		       has_bit(w->reached, pos->b);
	case POS_CALL:
		return has_bit(w->reached, w->p->starts[pos->a]) &&
		       has_bit(w->reached, pos->b);
	default:
		return false;
	}
}

/* @over_bytes: by any text; else by the empty one. */
static void walk_back(struct walk *w, bool over_bytes)
{
	const struct program *p = w->p;

	memset(w->reached, 0, (p->nr_positions / 64 + 1) * sizeof(uint64_t));
	set_bit(w->reached, POSITION_RETURN);
	w->work[0] = POSITION_RETURN;
	w->nr_work = 1;
	while (w->nr_work) {
		const uint32_t at = w->work[--w->nr_work];

		for (uint32_t i = w->sources.first[at];
		     i < w->sources.first[at + 1]; i++) {
			const uint32_t from = w->sources.from[i];

			if (has_bit(w->reached, from) ||
			    !can_reach(w, &p->positions[from], over_bytes))
				continue;
			set_bit(w->reached, from);
			w->work[w->nr_work++] = from;
		}
	}
}

/* ---- rules that begin with themselves ------------------------------------------------ */

/*
 * Positions that are reached from the begin of a rule without a byte. A rule that is met again
 * while its own begin is looked at begins with itself. Each position is looked at once for its
 * rule, and rules are left with all that they begin with known to be good.
 */
struct left {
	const struct program *p;
	const uint64_t *nullable; /* by position, as walk.reached */
	uint64_t *seen; /* by position */
	uint8_t *marks; /* by rule: 0 new, 1 on the path, 2 good */
	struct left_item {
		uint32_t value; /* a position; a rule that is good now */
		bool is_end;
	} * work;
	uint32_t nr_work;
};

static void left_push(struct left *l, uint32_t value, bool is_end)
{
	if (!is_end && has_bit(l->seen, value))
		return;
	if (!is_end)
		set_bit(l->seen, value);
	l->work[l->nr_work++] = (struct left_item){ value, is_end };
}

/* The rule is entered: its end is noted first, so that it is met when all else is done. */
static bool left_enter(struct left *l, uint32_t rule)
{
	if (l->marks[rule])
		return l->marks[rule] == 2;
	l->marks[rule] = 1;
	left_push(l, rule, true);
	left_push(l, l->p->starts[rule], false);
	return true;
}

/* Return: whether @rule is good; *out_bad: the rule that is not. */
static bool left_check(struct left *l, uint32_t rule, uint32_t *out_bad)
{
	if (l->marks[rule])
		return true;
	left_enter(l, rule);
	while (l->nr_work) {
		const struct left_item item = l->work[--l->nr_work];
		const struct position *pos;

		if (item.is_end) {
			l->marks[item.value] = 2;
			continue;
		}
		pos = &l->p->positions[item.value];
		if (pos->kind == POS_SPLIT) {
			left_push(l, pos->a, false);
			left_push(l, pos->b, false);
		} else if (pos->kind == POS_CALL) {
			if (has_bit(l->nullable, l->p->starts[pos->a]))
				left_push(l, pos->b, false);
			if (!left_enter(l, pos->a)) {
				*out_bad = pos->a;
				return false;
			}
		}
	}
	return true;
}

static int check_left(const struct program *p, const uint64_t *nullable,
		      const struct ast *ast, char *err, size_t errlen)
{
	struct left l = {
		.p = p,
		.nullable = nullable,
		.seen = bits_create(p->nr_positions),
		.marks = calloc(p->nr_rules, 1),
		.work = malloc(((size_t)p->nr_positions + p->nr_rules) *
			       sizeof(*l.work)),
	};
	uint32_t bad = 0;
	int rc = l.seen && l.marks && l.work ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < p->nr_rules && !rc; i++)
		if (!left_check(&l, i, &bad))
			rc = ast_fail(ast, ast->rules[bad].at, err, errlen,
				      "the rule \"%s\" begins with itself: "
				      "left recursion is not supported",
				      ast->rules[bad].name);
	free(l.seen);
	free(l.marks);
	free(l.work);
	return rc;
}

int program_check(struct program *p, const struct ast *ast, char *err,
		  size_t errlen)
{
	struct walk w = { .p = p };
	int rc = sources_init(&w.sources, p);

	w.reached = bits_create(p->nr_positions);
	w.work = malloc(p->nr_positions * sizeof(*w.work));
	if (!w.reached || !w.work)
		rc = -ENOMEM;
	if (!rc) {
		walk_back(&w, false);
		rc = check_left(p, w.reached, ast, err, errlen);
	}
	if (!rc) {
		walk_back(&w, true);
		if (!has_bit(w.reached, p->starts[p->root]))
			rc = ast_fail(ast, ast->rules[p->root].at, err, errlen,
				      "no text ends the rule \"%s\"",
				      ast->rules[p->root].name);
		p->live = w.reached;
		w.reached = NULL;
	}
	free(w.sources.first);
	free(w.sources.from);
	free(w.reached);
	free(w.work);
	return rc;
}
