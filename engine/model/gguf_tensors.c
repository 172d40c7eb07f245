/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensor directory of a GGUF file: shapes, types and sizes, then where
 * each tensor lies: aligned, inside the file, overlapping no other.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/model/gguf_private.h"

/* Dimensions of a tensor and how many elements they make. */
static int read_dims(struct gguf_reader *r, struct gguf_tensor *tensor,
		     uint64_t *out_elems)
{
	char shown[GGUF_SHOWN_BYTES];
	const uint8_t *p = gguf_take(r, 4);
	uint64_t elems = 1;

	if (!p)
		return GGUF_READER_FAIL(r, -EINVAL,
					"tensor %s: truncated at byte %zu",
					gguf_show(tensor->name, shown),
					r->size);
	tensor->nr_dims = gguf_le32(p);
	if (tensor->nr_dims > GGUF_MAX_DIMS)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"tensor %s: %u dimensions (at most %d may be)",
			gguf_show(tensor->name, shown), tensor->nr_dims,
			GGUF_MAX_DIMS);
	p = gguf_take(r, tensor->nr_dims * 8u);
	if (!p)
		return GGUF_READER_FAIL(r, -EINVAL,
					"tensor %s: truncated at byte %zu",
					gguf_show(tensor->name, shown),
					r->size);
	for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
		tensor->dims[d] = d < tensor->nr_dims ? gguf_le64(p + 8 * d) :
							1;
		if (!tensor->dims[d])
			return GGUF_READER_FAIL(r, -EINVAL,
						"tensor %s: dimension %u is 0",
						gguf_show(tensor->name, shown),
						d);
		/* Signed range: callers may count elements in int64_t. */
		if (__builtin_mul_overflow(elems, tensor->dims[d], &elems) ||
		    elems > INT64_MAX)
			return GGUF_READER_FAIL(
				r, -EINVAL,
				"tensor %s: its dimensions overflow",
				gguf_show(tensor->name, shown));
	}
	*out_elems = elems;
	return 0;
}

/* Bytes of @elems elements, from the tensor's type. */
static int size_tensor(struct gguf_reader *r, struct gguf_tensor *tensor,
		       uint64_t elems)
{
	char shown[GGUF_SHOWN_BYTES];
	char buf[16];
	uint32_t block_elems, block_bytes;
	const char *name = gguf_type_name(tensor->type, buf, sizeof(buf));

	if (gguf_type_block(tensor->type, &block_elems, &block_bytes))
		return GGUF_READER_FAIL(
			r, -ENOTSUP, "tensor %s: type %u (%s) is not supported",
			gguf_show(tensor->name, shown), tensor->type,
			name == buf ? "unknown" : name);
	if (tensor->dims[0] % block_elems)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"tensor %s: row of %llu elements is not whole %s blocks of %u",
			gguf_show(tensor->name, shown),
			(unsigned long long)tensor->dims[0], name, block_elems);
	if (__builtin_mul_overflow(elems / block_elems, (uint64_t)block_bytes,
				   &tensor->size_bytes))
		return GGUF_READER_FAIL(
			r, -EINVAL, "tensor %s: its size in bytes overflows",
			gguf_show(tensor->name, shown));
	return 0;
}

static int read_tensor(struct gguf_reader *r, size_t i,
		       struct gguf_tensor *tensor)
{
	char shown[GGUF_SHOWN_BYTES];
	uint64_t elems = 0;
	int rc = gguf_read_name(r, "tensor", i, GGUF_MAX_TENSOR_NAME_BYTES,
				&tensor->name);

	if (rc)
		return rc;
	rc = read_dims(r, tensor, &elems);
	if (rc)
		return rc;

	const uint8_t *p = gguf_take(r, 12);

	if (!p)
		return GGUF_READER_FAIL(r, -EINVAL,
					"tensor %s: truncated at byte %zu",
					gguf_show(tensor->name, shown),
					r->size);
	tensor->type = gguf_le32(p);
	tensor->offset = gguf_le64(p + 4);
	tensor->data = NULL;
	return size_tensor(r, tensor, elems);
}

int gguf_read_directory(struct gguf *gguf, struct gguf_reader *r, uint64_t nr)
{
	size_t cap = 0;
	/* Again: the metadata has eaten bytes since the header was read. */
	int rc = gguf_check_count(r, "tensors", nr, GGUF_MIN_TENSOR_BYTES);

	if (rc)
		return rc;
	for (; gguf->nr_tensors < nr; gguf->nr_tensors++) {
		size_t i = gguf->nr_tensors;

		if (gguf_grow((void **)&gguf->tensors, &cap, i, nr,
			      sizeof(gguf->tensors[0])))
			return GGUF_READER_FAIL(r, -ENOMEM,
						"out of memory for %zu tensors",
						i + 1);
		rc = read_tensor(r, i, &gguf->tensors[i]);
		if (rc)
			return rc;
	}
	return gguf_index_names(r, "tensor", &gguf->tensor_index, gguf->tensors,
				sizeof(gguf->tensors[0]), gguf->nr_tensors);
}

static int compare_offsets(const void *a, const void *b)
{
	const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
	const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return 0;
}

/* Offsets and ends are known not to overflow when this is called. */
static int check_overlaps(const struct gguf *gguf, char *err, size_t errlen)
{
	const struct gguf_tensor **sorted =
		calloc(gguf->nr_tensors, sizeof(*sorted));
	char shown[2][GGUF_SHOWN_BYTES];
	int rc = 0;

	if (!sorted)
		return gguf_fail(err, errlen, -ENOMEM,
				 "out of memory for %zu tensors",
				 gguf->nr_tensors);
	for (size_t i = 0; i < gguf->nr_tensors; i++)
		sorted[i] = &gguf->tensors[i];
	qsort(sorted, gguf->nr_tensors, sizeof(*sorted), compare_offsets);
	for (size_t i = 1; i < gguf->nr_tensors && !rc; i++) {
		const struct gguf_tensor *a = sorted[i - 1], *b = sorted[i];

		/* No tensor is empty, so neighbours in order are enough. */
		if (a->offset + a->size_bytes > b->offset)
			rc = gguf_fail(
				err, errlen, -EINVAL,
				"tensors %s and %s overlap at offset %llu",
				gguf_show(a->name, shown[0]),
				gguf_show(b->name, shown[1]),
				(unsigned long long)b->offset);
	}
	free(sorted);
	return rc;
}

static int place_tensor(const struct gguf *gguf, struct gguf_tensor *tensor,
			char *err, size_t errlen)
{
	char shown[GGUF_SHOWN_BYTES];
	uint64_t start, end;

	if (tensor->offset % gguf->alignment)
		return gguf_fail(
			err, errlen, -EINVAL,
			"tensor %s: offset %llu is not a multiple of %u (alignment)",
			gguf_show(tensor->name, shown),
			(unsigned long long)tensor->offset, gguf->alignment);
	if (__builtin_add_overflow(gguf->data_start, tensor->offset, &start) ||
	    __builtin_add_overflow(start, tensor->size_bytes, &end))
		return gguf_fail(
			err, errlen, -EINVAL,
			"tensor %s: offset %llu and size %llu overflow",
			gguf_show(tensor->name, shown),
			(unsigned long long)tensor->offset,
			(unsigned long long)tensor->size_bytes);
	if (gguf->flags & GGUF_METADATA_ONLY)
		return 0;
	if (end > gguf->size)
		return gguf_fail(
			err, errlen, -EINVAL,
			"tensor %s: ends at byte %llu, the file has %zu (truncated?)",
			gguf_show(tensor->name, shown), (unsigned long long)end,
			gguf->size);
	tensor->data = gguf->base + start;
	return 0;
}

int gguf_place_tensors(struct gguf *gguf, char *err, size_t errlen)
{
	uint64_t mask = gguf->alignment - 1;

	/* No overflow: a file is shorter than 2^63, an alignment than 2^32. */
	gguf->data_start = (gguf->header_bytes + mask) & ~mask;
	for (size_t i = 0; i < gguf->nr_tensors; i++) {
		int rc = place_tensor(gguf, &gguf->tensors[i], err, errlen);

		if (rc)
			return rc;
	}
	return gguf->nr_tensors ? check_overlaps(gguf, err, errlen) : 0;
}
