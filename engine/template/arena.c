/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the template engine: an arena that only grows and is freed whole,
 * and a text buffer. Used by one thread at a time; knows no values.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/arena.h"

enum { CHUNK_BYTES = 16 * 1024, ALIGN_BYTES = 16 };

struct tmpl_chunk {
	struct tmpl_chunk *next;
	size_t cap;
	size_t len;
	_Alignas(ALIGN_BYTES) char data[];
};

static size_t align_up(size_t n)
{
	return (n + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
}

static bool is_over_limit(struct tmpl_arena *a, size_t bytes)
{
	a->at_limit = a->limit_bytes && bytes > a->limit_bytes - a->used_bytes;
	return a->at_limit;
}

/*
 * Returns @bytes of memory aligned to 16, or NULL. A large request gets room
 * behind it, so that text built by repeated appending is not copied each time.
 */
void *tmpl_arena_alloc(struct tmpl_arena *a, size_t bytes)
{
	struct tmpl_chunk *c = a->head;
	size_t at = c ? align_up(c->len) : 0;

	a->at_limit = false;
	if (bytes > UINT32_MAX / 2 || is_over_limit(a, bytes + ALIGN_BYTES)) {
		a->at_limit = true;
		return NULL;
	}
	if (!c || at > c->cap || bytes > c->cap - at) {
		size_t cap = bytes * 2 > CHUNK_BYTES ? bytes * 2 : CHUNK_BYTES;

		c = malloc(sizeof(*c) + cap);
		if (!c)
			return NULL;
		c->next = a->head;
		c->cap = cap;
		c->len = 0;
		a->head = c;
		at = 0;
	}
	a->used_bytes += bytes + ALIGN_BYTES;
	c->len = at + bytes;
	return c->data + at;
}

/*
 * Grows the latest allocation in place by @bytes if it ends at @end; false
 * where it does not or there is no room.
 */
bool tmpl_arena_extend(struct tmpl_arena *a, const char *end, size_t bytes)
{
	struct tmpl_chunk *c = a->head;

	if (!c || end != c->data + c->len || bytes > c->cap - c->len ||
	    is_over_limit(a, bytes))
		return false;
	c->len += bytes;
	a->used_bytes += bytes;
	return true;
}

void tmpl_arena_deinit(struct tmpl_arena *a)
{
	while (a->head) {
		struct tmpl_chunk *next = a->head->next;

		free(a->head);
		a->head = next;
	}
	a->used_bytes = 0;
}

int tmpl_buf_put(struct tmpl_buf *b, const char *s, size_t n)
{
	if (n > SIZE_MAX / 4 - b->len)
		return -ENOMEM;
	if (b->len + n > b->cap || !b->data) {
		size_t cap = (b->len + n) * 2 + 64;
		char *data = realloc(b->data, cap);

		if (!data)
			return -ENOMEM;
		b->data = data;
		b->cap = cap;
	}
	if (n)
		memcpy(b->data + b->len, s, n);
	b->len += n;
	return 0;
}

void tmpl_buf_deinit(struct tmpl_buf *b)
{
	free(b->data);
	*b = (struct tmpl_buf){ 0 };
}
