/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks of states, worked out when first asked for and kept in an LRU cache: see mask.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar_private.h"
#include "engine/grammar/trie.h"
#include "engine/token/tokenizer.h"

enum { NO_ENTRY = UINT32_MAX };

struct entry {
	uint64_t *allowed;
	uint32_t state;
	uint32_t newer, older; /* entries, or NO_ENTRY */
	bool has_near; /* some token of the near part is allowed */
	bool has_any;
};

/*
 * Masks are kept for states that stand for others (grammar_alike()), which see all the near
 * tokens; for those others the far ones are worked out each time.
 */
struct mask_cache {
	struct grammar *g;
	const struct token_trie *trie;
	uint32_t *path; /* [max_depth + 1] states on the way down the trie */
	struct entry *entries; /* [max_entries], of which nr_entries are used */
	uint32_t nr_entries, max_entries;
	uint32_t newest, oldest;
	uint32_t *entry_of; /* [nr_known] by state: its entry + 1, 0: none */
	uint32_t nr_known;
	uint64_t *other; /* the mask at hand of a state that another stands for */
};

int mask_cache_create(struct grammar *g, const struct token_trie *trie,
		      struct mask_cache **out)
{
	struct mask_cache *c = calloc(1, sizeof(*c));
	uint32_t nr = MASK_CACHE_BYTES / (trie->nr_words * 8 + 1);

	if (!c)
		return -ENOMEM;
	c->g = g;
	c->trie = trie;
	c->max_entries = nr > MASK_CACHE_MIN ? nr : MASK_CACHE_MIN;
	c->newest = c->oldest = NO_ENTRY;
	c->path = malloc(
		(trie->near.max_depth + (size_t)trie->far.max_depth + 1) *
		sizeof(*c->path));
	c->other = malloc((trie->nr_words + (size_t)1) * sizeof(*c->other));
	c->entries = calloc(c->max_entries, sizeof(*c->entries));
	if (!c->path || !c->other || !c->entries) {
		mask_cache_destroy(c);
		return -ENOMEM;
	}
	*out = c;
	return 0;
}

void mask_cache_destroy(struct mask_cache *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->nr_entries; i++)
		free(c->entries[i].allowed);
	free(c->entries);
	free(c->entry_of);
	free(c->path);
	free(c->other);
	free(c);
}

/* ---- the walk --------------------------------------------------------------------- */

static void allow(uint64_t *bits, const int32_t *ids, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		bits[ids[i] >> 6] |= 1ull << (ids[i] & 63);
}

/* Return: 0, or -errno of the automaton. *out_any: some token is allowed. */
static int walk(struct mask_cache *c, const struct trie_part *t, uint32_t state,
		uint64_t *bits, bool *out_any)
{
	uint32_t at = 0;

	*out_any = false;
	c->path[0] = state;
	while (at < t->nr_nodes) {
		const struct trie_node *n = &t->nodes[at];
		uint32_t next;

		if (!grammar_look(c->g, c->path[n->depth], n->byte, &next)) {
			int rc = grammar_step(c->g, c->path[n->depth], n->byte,
					      &next);

			if (rc)
				return rc;
		}
		if (next == GRAMMAR_DEAD) {
			at = n->end;
			continue;
		}
		c->path[n->depth + 1] = next;
		if (n->nr_ids) {
			allow(bits, t->ids + n->first_id, n->nr_ids);
			*out_any = true;
		}
		at++;
	}
	return 0;
}

static int make_mask(struct mask_cache *c, struct entry *e)
{
	bool has_far;
	int rc;

	memset(e->allowed, 0, c->trie->nr_words * sizeof(*e->allowed));
	rc = walk(c, &c->trie->near, e->state, e->allowed, &e->has_near);
	if (!rc)
		rc = walk(c, &c->trie->far, e->state, e->allowed, &has_far);
	if (rc)
		return rc;
	e->has_any = e->has_near || has_far;
	if (grammar_accepts(c->g, e->state))
		allow(e->allowed, c->trie->ends, c->trie->nr_ends);
	return 0;
}

/* Of a state that @e stands for: far tokens see what sets it apart. */
static int make_other(struct mask_cache *c, const struct entry *e,
		      uint32_t state, bool *out_any)
{
	const struct trie_part *far = &c->trie->far;
	bool has_far;
	int rc;

	memcpy(c->other, e->allowed, c->trie->nr_words * sizeof(*c->other));
	for (uint32_t i = 0; i < far->nr_ids; i++)
		c->other[far->ids[i] >> 6] &= ~(1ull << (far->ids[i] & 63));
	rc = walk(c, far, state, c->other, &has_far);
	*out_any = e->has_near || has_far;
	return rc;
}

/* ---- the cache -------------------------------------------------------------------- */

static void unlink_entry(struct mask_cache *c, uint32_t i)
{
	struct entry *e = &c->entries[i];

	if (e->newer == NO_ENTRY)
		c->newest = e->older;
	else
		c->entries[e->newer].older = e->older;
	if (e->older == NO_ENTRY)
		c->oldest = e->newer;
	else
		c->entries[e->older].newer = e->newer;
}

static void link_newest(struct mask_cache *c, uint32_t i)
{
	struct entry *e = &c->entries[i];

	e->newer = NO_ENTRY;
	e->older = c->newest;
	if (c->newest == NO_ENTRY)
		c->oldest = i;
	else
		c->entries[c->newest].newer = i;
	c->newest = i;
}

static int know_state(struct mask_cache *c, uint32_t state)
{
	uint32_t nr = c->nr_known ? c->nr_known : 256;
	uint32_t *grown;

	if (state < c->nr_known)
		return 0;
	while (nr <= state)
		nr *= 2;
	grown = realloc(c->entry_of, nr * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + c->nr_known, 0, (nr - c->nr_known) * sizeof(*grown));
	c->entry_of = grown;
	c->nr_known = nr;
	return 0;
}

/* An entry in no list and of no state: a new one, or the one that was not asked for longest. */
static int free_entry(struct mask_cache *c, uint32_t *out)
{
	if (c->nr_entries < c->max_entries) {
		uint64_t *bits =
			malloc((c->trie->nr_words + (size_t)1) * sizeof(*bits));

		if (!bits)
			return -ENOMEM;
		*out = c->nr_entries++;
		c->entries[*out].allowed = bits;
		return 0;
	}
	*out = c->oldest;
	unlink_entry(c, *out);
	if (c->entry_of[c->entries[*out].state] == *out + 1)
		c->entry_of[c->entries[*out].state] = 0;
	return 0;
}

/* The entry of a state that stands for itself. */
static int find_entry(struct mask_cache *c, uint32_t state, struct entry **out)
{
	uint32_t i;
	int rc = know_state(c, state);

	if (rc)
		return rc;
	if (c->entry_of[state]) {
		i = c->entry_of[state] - 1;
		unlink_entry(c, i);
	} else {
		rc = free_entry(c, &i);
		if (rc)
			return rc;
		c->entries[i].state = state;
		rc = make_mask(c, &c->entries[i]);
		/* What a walk that was given up left is of no state. */
		if (!rc)
			c->entry_of[state] = i + 1;
	}
	link_newest(c, i);
	*out = &c->entries[i];
	return rc;
}

int mask_find(struct mask_cache *c, uint32_t state, struct mask *out)
{
	const bool may_end = grammar_accepts(c->g, state) && c->trie->nr_ends;
	struct entry *e = NULL;
	uint32_t alike;
	bool any;
	int rc;

	grammar_allow_work(c->g);
	rc = grammar_alike(c->g, state, &alike);
	if (!rc)
		rc = find_entry(c, alike, &e);
	if (rc)
		return rc;
	any = e->has_any;
	out->allowed = e->allowed;
	if (alike != state) {
		rc = make_other(c, e, state, &any);
		out->allowed = c->other;
	}
	out->is_empty = !any && !may_end;
	out->is_end = !any && may_end;
	return rc;
}

int mask_advance(struct mask_cache *c, uint32_t state, int32_t id,
		 uint32_t *out)
{
	size_t len;
	const char *bytes = tokenizer_piece(c->trie->tok, id, false, &len);

	*out = GRAMMAR_DEAD;
	if (!len || !token_is_text(c->trie->tok, id))
		return -EINVAL;
	grammar_allow_work(c->g);
	for (size_t i = 0; i < len && state != GRAMMAR_DEAD; i++) {
		int rc = grammar_step(c->g, state, (uint8_t)bytes[i], &state);

		if (rc)
			return rc;
	}
	*out = state;
	return state == GRAMMAR_DEAD ? -EINVAL : 0;
}
