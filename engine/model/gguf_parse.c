/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads header and metadata of a GGUF file, and checks every value against
 * the bytes left; the directory is read by gguf_tensors.c.
 */
#include <errno.h>

#include "engine/model/gguf_private.h"

enum {
	GGUF_HEADER_BYTES = 24, /* magic, version, count of tensors, of keys */
	/* A name of one byte, a type, a value of one byte. */
	GGUF_MIN_KV_BYTES = 8 + 1 + 4 + 1,
};

static int check_magic(struct gguf_reader *r, const uint8_t *head)
{
	uint32_t version = gguf_le32(head + 4);

	if (memcmp(head, "GGUF", 4)) {
		char shown[GGUF_SHOWN_BYTES];

		return GGUF_READER_FAIL(
			r, -EINVAL, "not a GGUF file: it begins with \"%s\"",
			gguf_show((struct gguf_str){ (const char *)head, 4 },
				  shown));
	}
	if (version && !(version & 0xffff))
		return GGUF_READER_FAIL(
			r, -ENOTSUP, "big-endian GGUF files are not supported");
	if (version != 2 && version != 3)
		return GGUF_READER_FAIL(
			r, -ENOTSUP,
			"GGUF version %u is not supported (2 and 3 are)",
			version);
	return 0;
}

static int read_header(struct gguf_reader *r, uint64_t *out_nr_kvs,
		       uint64_t *out_nr_tensors)
{
	const uint8_t *head = gguf_take(r, GGUF_HEADER_BYTES);

	if (!head)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"truncated: %zu bytes, a GGUF header has %d", r->size,
			GGUF_HEADER_BYTES);

	int rc = check_magic(r, head);

	if (rc)
		return rc;
	*out_nr_tensors = gguf_le64(head + 8);
	*out_nr_kvs = gguf_le64(head + 16);
	rc = gguf_check_count(r, "metadata keys", *out_nr_kvs,
			      GGUF_MIN_KV_BYTES);
	if (rc)
		return rc;
	return gguf_check_count(r, "tensors", *out_nr_tensors,
				GGUF_MIN_TENSOR_BYTES);
}

static int truncated_value(struct gguf_reader *r, const struct gguf_kv *kv)
{
	char shown[GGUF_SHOWN_BYTES];

	return GGUF_READER_FAIL(
		r, -EINVAL,
		"metadata key %s: its value is truncated at byte %zu",
		gguf_show(kv->key, shown), r->size);
}

static int check_bools(struct gguf_reader *r, const struct gguf_kv *kv)
{
	char shown[GGUF_SHOWN_BYTES];

	for (uint64_t i = 0; i < kv->nr; i++) {
		if (kv->value[i] > 1)
			return GGUF_READER_FAIL(
				r, -EINVAL,
				"metadata key %s: %u is no bool (0 and 1 are)",
				gguf_show(kv->key, shown), kv->value[i]);
	}
	return 0;
}

static int read_string_value(struct gguf_reader *r, struct gguf_kv *kv)
{
	const uint8_t *p = gguf_take(r, 8);

	if (!p)
		return truncated_value(r, kv);
	kv->nr = gguf_le64(p);
	kv->value = gguf_take(r, kv->nr);
	if (!kv->value) {
		char shown[GGUF_SHOWN_BYTES];

		return GGUF_READER_FAIL(
			r, -EINVAL,
			"metadata key %s: a string of %llu bytes, %zu are left",
			gguf_show(kv->key, shown), (unsigned long long)kv->nr,
			gguf_bytes_left(r));
	}
	return 0;
}

/* Walks the strings of an array, so that later readers need not check. */
static int check_string_array(struct gguf_reader *r, const struct gguf_kv *kv)
{
	char shown[GGUF_SHOWN_BYTES];

	for (uint64_t i = 0; i < kv->nr; i++) {
		const uint8_t *p = gguf_take(r, 8);

		if (!p)
			return truncated_value(r, kv);

		uint64_t len = gguf_le64(p);

		if (!gguf_take(r, len))
			return GGUF_READER_FAIL(
				r, -EINVAL,
				"metadata key %s: string %llu has %llu bytes, %zu are left",
				gguf_show(kv->key, shown),
				(unsigned long long)i, (unsigned long long)len,
				gguf_bytes_left(r));
	}
	return 0;
}

static int read_array_value(struct gguf_reader *r, struct gguf_kv *kv)
{
	char shown[GGUF_SHOWN_BYTES];
	const uint8_t *p = gguf_take(r, 12);

	if (!p)
		return truncated_value(r, kv);
	kv->elem_type = gguf_le32(p);
	kv->nr = gguf_le64(p + 4);
	if (kv->elem_type == GGUF_ARRAY)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"metadata key %s: arrays of arrays are not allowed",
			gguf_show(kv->key, shown));

	bool is_string = kv->elem_type == GGUF_STRING;
	size_t elem_bytes = is_string ? 8 : gguf_scalar_bytes(kv->elem_type);

	if (!elem_bytes)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"metadata key %s: element type %u is unknown",
			gguf_show(kv->key, shown), kv->elem_type);
	if (kv->nr > gguf_bytes_left(r) / elem_bytes)
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"metadata key %s: %llu elements do not fit the %zu bytes left",
			gguf_show(kv->key, shown), (unsigned long long)kv->nr,
			gguf_bytes_left(r));
	kv->value = r->base + r->pos;
	if (is_string)
		return check_string_array(r, kv);
	r->pos += kv->nr * elem_bytes;
	return kv->elem_type == GGUF_BOOL ? check_bools(r, kv) : 0;
}

static int read_kv(struct gguf_reader *r, size_t i, struct gguf_kv *kv)
{
	char shown[GGUF_SHOWN_BYTES];
	int rc = gguf_read_name(r, "metadata key", i, GGUF_MAX_KEY_BYTES,
				&kv->key);

	if (rc)
		return rc;

	const uint8_t *p = gguf_take(r, 4);

	if (!p)
		return truncated_value(r, kv);
	kv->type = gguf_le32(p);
	kv->elem_type = 0;
	if (kv->type == GGUF_STRING)
		return read_string_value(r, kv);
	if (kv->type == GGUF_ARRAY)
		return read_array_value(r, kv);

	size_t bytes = gguf_scalar_bytes(kv->type);

	if (!bytes)
		return GGUF_READER_FAIL(
			r, -EINVAL, "metadata key %s: value type %u is unknown",
			gguf_show(kv->key, shown), kv->type);
	kv->nr = 1;
	kv->value = gguf_take(r, bytes);
	if (!kv->value)
		return truncated_value(r, kv);
	return kv->type == GGUF_BOOL ? check_bools(r, kv) : 0;
}

static int read_metadata(struct gguf *gguf, struct gguf_reader *r, uint64_t nr)
{
	size_t cap = 0;

	for (; gguf->nr_kvs < nr; gguf->nr_kvs++) {
		size_t i = gguf->nr_kvs;

		if (gguf_grow((void **)&gguf->kvs, &cap, i, nr,
			      sizeof(gguf->kvs[0])))
			return GGUF_READER_FAIL(r, -ENOMEM,
						"out of memory for %zu keys",
						i + 1);

		int rc = read_kv(r, i, &gguf->kvs[i]);

		if (rc)
			return rc;
	}
	return gguf_index_names(r, "metadata key", &gguf->kv_index, gguf->kvs,
				sizeof(gguf->kvs[0]), gguf->nr_kvs);
}

/* As gguf_get_u32(); a key that is absent leaves *out as it is. */
static int optional_u32(const struct gguf *gguf, struct gguf_reader *r,
			const char *key, uint32_t *out)
{
	return gguf_has(gguf, key) ?
		       gguf_get_u32(gguf, key, out, r->err, r->errlen) :
		       0;
}

/* Which part of a model this file is; what the parts are together, gguf_split.c checks. */
static int read_split(struct gguf *gguf, struct gguf_reader *r)
{
	struct gguf_split *split = &gguf->split;
	int rc = optional_u32(gguf, r, "split.count", &split->nr_parts);

	if (!rc)
		rc = optional_u32(gguf, r, "split.no", &split->no);
	if (!rc)
		rc = optional_u32(gguf, r, "split.tensors.count",
				  &split->nr_tensors);
	if (rc)
		return rc;
	split->has_no = gguf_has(gguf, "split.no");
	split->has_tensors = gguf_has(gguf, "split.tensors.count");
	if (split->nr_parts > GGUF_MAX_PARTS)
		return GGUF_READER_FAIL(
			r, -ENOTSUP,
			"split.count: %u parts are more than the %d supported",
			split->nr_parts, GGUF_MAX_PARTS);
	if (split->nr_tensors > GGUF_MAX_ENTRIES)
		return GGUF_READER_FAIL(
			r, -ENOTSUP,
			"split.tensors.count: %u tensors are more than the %d supported",
			split->nr_tensors, GGUF_MAX_ENTRIES);
	return 0;
}

/* The keys that say how the rest of the file is to be read. */
static int check_general(struct gguf *gguf, struct gguf_reader *r)
{
	int rc = read_split(gguf, r);

	if (rc)
		return rc;
	gguf->alignment = GGUF_DEFAULT_ALIGNMENT;
	rc = optional_u32(gguf, r, "general.alignment", &gguf->alignment);
	if (rc)
		return rc;
	if (gguf->alignment < GGUF_MIN_ALIGNMENT ||
	    (gguf->alignment & (gguf->alignment - 1)))
		return GGUF_READER_FAIL(
			r, -EINVAL,
			"general.alignment %u is not a power of two from %d on",
			gguf->alignment, GGUF_MIN_ALIGNMENT);
	return 0;
}

int gguf_parse(struct gguf *gguf, char *err, size_t errlen)
{
	struct gguf_reader r = { .base = gguf->base,
				 .size = gguf->size,
				 .err = err,
				 .errlen = errlen };
	uint64_t nr_kvs = 0, nr_tensors = 0;
	int rc = read_header(&r, &nr_kvs, &nr_tensors);

	if (!rc)
		rc = read_metadata(gguf, &r, nr_kvs);
	if (!rc)
		rc = check_general(gguf, &r);
	if (!rc)
		rc = gguf_read_directory(gguf, &r, nr_tensors);
	if (rc)
		return rc;
	gguf->header_bytes = r.pos;
	return gguf_place_tensors(gguf, err, errlen);
}
