/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the template engine: arenas that are freed as a whole, and growing
 * text. Not for use outside engine/template/; each has one thread at a time.
 */
#ifndef TARN_TEMPLATE_ARENA_H
#define TARN_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct tmpl_chunk;

/* Zero-initialised is empty; limit 0 is none. */
struct tmpl_arena {
	struct tmpl_chunk *head;
	size_t used_bytes;
	size_t limit_bytes;
	bool at_limit; /* the last failure was the limit, not malloc */
};

/* @bytes, aligned for any value; NULL: out of memory or over the limit. */
void *tmpl_arena_alloc(struct tmpl_arena *a, size_t bytes);
bool tmpl_arena_extend(struct tmpl_arena *a, const char *end, size_t bytes);
void tmpl_arena_deinit(struct tmpl_arena *a);

/* Growing text outside the arena; buf_deinit() on every path. */
struct tmpl_buf {
	char *data;
	size_t len;
	size_t cap;
};

int tmpl_buf_put(struct tmpl_buf *b, const char *s, size_t n);
void tmpl_buf_deinit(struct tmpl_buf *b);

#endif /* TARN_TEMPLATE_ARENA_H */
