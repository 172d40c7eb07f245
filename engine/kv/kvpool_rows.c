/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front, bytes: copying and setting rows of them, whoever can touch the
 * memory. What the CPU can, it does here; the rest goes to the pool's kind. Any
 * thread.
 */
#include <errno.h>
#include <string.h>

#include "engine/kv/kvpool_private.h"

/* Rows outside of the buffer, or one over the other. */
static bool are_rows_bad(const struct kvpool_place *place, uint64_t row_bytes,
			 uint64_t nr_rows)
{
	uint64_t len = 0;

	if (!place || !place->buf || !row_bytes || !nr_rows)
		return true;
	if (nr_rows > 1 &&
	    (place->pitch_bytes < row_bytes ||
	     __builtin_mul_overflow(place->pitch_bytes, nr_rows - 1, &len)))
		return true;
	return __builtin_add_overflow(len, row_bytes, &len) ||
	       len > place->buf->size_bytes ||
	       place->offset > place->buf->size_bytes - len;
}

static bool is_device(const struct kvpool_buf *buf)
{
	return buf->pool->features & KVPOOL_F_DEVICE;
}

static uint8_t *row_of(const struct kvpool_place *place, uint64_t row)
{
	return place->buf->addr + place->offset + row * place->pitch_bytes;
}

int kvpool_copy(const struct kvpool_place *to, const struct kvpool_place *from,
		uint64_t row_bytes, uint64_t nr_rows)
{
	if (are_rows_bad(to, row_bytes, nr_rows) ||
	    are_rows_bad(from, row_bytes, nr_rows) ||
	    to->buf->pool != from->buf->pool)
		return -EINVAL;
	if (to->buf->is_read_only)
		return -EPERM;
	if (is_device(to->buf))
		return to->buf->pool->calls->copy(to, from, row_bytes, nr_rows);
	for (uint64_t i = 0; i < nr_rows; i++)
		memcpy(row_of(to, i), row_of(from, i), row_bytes);
	return 0;
}

int kvpool_fill(const struct kvpool_place *to, uint8_t value,
		uint64_t row_bytes, uint64_t nr_rows)
{
	if (are_rows_bad(to, row_bytes, nr_rows))
		return -EINVAL;
	if (to->buf->is_read_only)
		return -EPERM;
	if (is_device(to->buf))
		return to->buf->pool->calls->fill(to, value, row_bytes,
						  nr_rows);
	for (uint64_t i = 0; i < nr_rows; i++)
		memset(row_of(to, i), value, row_bytes);
	return 0;
}
