/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps that header, metadata and directory of a GGUF file have in
 * common. This is where hostile counts are met: bytes are handed out only
 * when the file has them, nothing is allocated for a count that the file has
 * no room for, and tables grow only as entries are really found.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/model/gguf_private.h"

/* The next @nr bytes, or NULL when the file has fewer. */
const uint8_t *gguf_take(struct gguf_reader *r, uint64_t nr)
{
	const uint8_t *p = r->base + r->pos;

	if (nr > gguf_bytes_left(r))
		return NULL;
	r->pos += nr;
	return p;
}

/* Room for one more of @item_bytes in *items: doubles, up to @total items. */
int gguf_grow(void **items, size_t *cap, size_t nr, uint64_t total,
	      size_t item_bytes)
{
	if (nr < *cap)
		return 0;

	size_t new_cap = *cap ? *cap * 2 : 64;

	if (new_cap > total)
		new_cap = total;

	void *bigger = reallocarray(*items, new_cap, item_bytes);

	if (!bigger)
		return -ENOMEM;
	*items = bigger;
	*cap = new_cap;
	return 0;
}

int gguf_check_count(struct gguf_reader *r, const char *what, uint64_t nr,
		     size_t min_bytes)
{
	if (nr > gguf_bytes_left(r) / min_bytes)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"%llu %s do not fit the %zu bytes left in the file",
			(unsigned long long)nr, what, gguf_bytes_left(r));
	if (nr > GGUF_MAX_ENTRIES)
		return GGUF_READER_FAIL(
			r, -ENOTSUP, "%llu %s are more than the %d supported",
			(unsigned long long)nr, what, GGUF_MAX_ENTRIES);
	return 0;
}

/* Name of entry @i: "metadata key 3", "tensor 7". */
int gguf_read_name(struct gguf_reader *r, const char *what, size_t i,
		   uint64_t max_bytes, struct gguf_str *out)
{
	const uint8_t *p = gguf_take(r, 8);

	if (!p)
		return GGUF_READER_FAIL(r, -EINVAL,
					"%s %zu: truncated at byte %zu", what,
					i, r->size);

	uint64_t len = gguf_le64(p);

	if (!len || len > max_bytes)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"%s %zu: a name of %llu bytes (1 to %llu may be)", what,
			i, (unsigned long long)len,
			(unsigned long long)max_bytes);
	p = gguf_take(r, len);
	if (!p)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"%s %zu: truncated inside its name of %llu bytes", what,
			i, (unsigned long long)len);
	*out = (struct gguf_str){ .data = (const char *)p, .len = len };
	return 0;
}

int gguf_index_names(struct gguf_reader *r, const char *what,
		     struct gguf_index *index, const void *items, size_t stride,
		     size_t nr)
{
	char shown[GGUF_SHOWN_BYTES];
	size_t dup;
	int rc = gguf_index_init(index, items, stride, nr, &dup);

	if (rc == -EEXIST) {
		const struct gguf_str *name =
			(const void *)((const char *)items + dup * stride);

		return GGUF_READER_FAIL(r, -EINVAL, "%s %s occurs twice", what,
					gguf_show(*name, shown));
	}
	return rc ? GGUF_READER_FAIL(r, rc, "out of memory for %zu names", nr) :
		    0;
}
