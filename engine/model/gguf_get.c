/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed reading of a GGUF file's metadata: scalars, strings and arrays by
 * key. Relies on gguf_parse.c having checked every entry against the file.
 */
#include <errno.h>
#include <math.h>

#include "engine/model/gguf_private.h"

const struct gguf_kv *gguf_find_kv(const struct gguf *gguf, const char *key)
{
	struct gguf_str str = { .data = key, .len = strlen(key) };

	return gguf_index_find(&gguf->kv_index, str);
}

/*
 * Integer of type @type at @p. -EINVAL when that is no integer type,
 * -EOVERFLOW for a u64 beyond the i64 range.
 */
static int read_integer(uint32_t type, const uint8_t *p, int64_t *out)
{
	switch (type) {
	case GGUF_U8:
		*out = *p;
		return 0;
	case GGUF_I8:
		*out = (int8_t)*p;
		return 0;
	case GGUF_U16:
		*out = gguf_le16(p);
		return 0;
	case GGUF_I16:
		*out = (int16_t)gguf_le16(p);
		return 0;
	case GGUF_U32:
		*out = gguf_le32(p);
		return 0;
	case GGUF_I32:
		*out = (int32_t)gguf_le32(p);
		return 0;
	case GGUF_I64:
	case GGUF_U64:
		*out = (int64_t)gguf_le64(p);
		return type == GGUF_U64 && *out < 0 ? -EOVERFLOW : 0;
	default:
		return -EINVAL;
	}
}

/*
 * Number of type @type at @p as float. -EINVAL when it is no number,
 * -EOVERFLOW when it is finite and its float is not.
 */
static int read_float(uint32_t type, const uint8_t *p, float *out)
{
	if (type == GGUF_F32) {
		uint32_t bits = gguf_le32(p);

		memcpy(out, &bits, sizeof(*out));
		return 0;
	}
	if (type == GGUF_F64) {
		uint64_t bits = gguf_le64(p);
		double wide;

		memcpy(&wide, &bits, sizeof(wide));
		/* Narrowing beyond the range is undefined in C. */
		if (isfinite(wide) && fabs(wide) > 3.4028234663852886e38)
			return -EOVERFLOW;
		*out = (float)wide;
		return 0;
	}
	if (type == GGUF_U64) {
		*out = (float)gguf_le64(p);
		return 0;
	}

	int64_t integer;
	int rc = read_integer(type, p, &integer);

	if (!rc)
		*out = (float)integer;
	return rc;
}

bool gguf_has(const struct gguf *gguf, const char *key)
{
	return gguf_find_kv(gguf, key);
}

/* Finds @key or names it as missing. */
static int require(const struct gguf *gguf, const char *key,
		   const struct gguf_kv **out_kv, char *err, size_t errlen)
{
	*out_kv = gguf_find_kv(gguf, key);
	if (!*out_kv)
		return gguf_fail(err, errlen, -ENOENT,
				 "metadata key %s is missing", key);
	return 0;
}

static int wrong_type(const struct gguf_kv *kv, const char *key,
		      const char *wanted, char *err, size_t errlen)
{
	return gguf_fail(err, errlen, -EINVAL,
			 "metadata key %s is of type %s, wanted is %s", key,
			 gguf_value_type_name(kv->type), wanted);
}

int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out,
		 char *err, size_t errlen)
{
	const struct gguf_kv *kv;
	int64_t value;
	int rc = require(gguf, key, &kv, err, errlen);

	if (rc)
		return rc;
	rc = read_integer(kv->type, kv->value, &value);
	if (rc == -EINVAL)
		return wrong_type(kv, key, "an integer", err, errlen);
	if (rc)
		return gguf_fail(err, errlen, -EINVAL,
				 "metadata key %s: %llu does not fit a u32",
				 key, (unsigned long long)value);
	if (value < 0 || value > UINT32_MAX)
		return gguf_fail(err, errlen, -EINVAL,
				 "metadata key %s: %lld does not fit a u32",
				 key, (long long)value);
	*out = (uint32_t)value;
	return 0;
}

int gguf_get_f32(const struct gguf *gguf, const char *key, float *out,
		 char *err, size_t errlen)
{
	const struct gguf_kv *kv;
	float value;
	int rc = require(gguf, key, &kv, err, errlen);

	if (rc)
		return rc;
	rc = read_float(kv->type, kv->value, &value);
	if (rc == -EINVAL)
		return wrong_type(kv, key, "a number", err, errlen);
	if (rc)
		return gguf_fail(
			err, errlen, -EINVAL,
			"metadata key %s: the f64 value does not fit an f32",
			key);
	*out = value;
	return 0;
}

int gguf_get_bool(const struct gguf *gguf, const char *key, bool *out,
		  char *err, size_t errlen)
{
	const struct gguf_kv *kv;
	int rc = require(gguf, key, &kv, err, errlen);

	if (rc)
		return rc;
	if (kv->type != GGUF_BOOL)
		return wrong_type(kv, key, "bool", err, errlen);
	*out = *kv->value;
	return 0;
}

int gguf_get_str(const struct gguf *gguf, const char *key, struct gguf_str *out,
		 char *err, size_t errlen)
{
	const struct gguf_kv *kv;
	int rc = require(gguf, key, &kv, err, errlen);

	if (rc)
		return rc;
	if (kv->type != GGUF_STRING)
		return wrong_type(kv, key, "string", err, errlen);
	*out = (struct gguf_str){ .data = (const char *)kv->value,
				  .len = kv->nr };
	return 0;
}

int gguf_get_array(const struct gguf *gguf, const char *key,
		   struct gguf_array *out, char *err, size_t errlen)
{
	const struct gguf_kv *kv;
	int rc = require(gguf, key, &kv, err, errlen);

	if (rc)
		return rc;
	if (kv->type != GGUF_ARRAY)
		return wrong_type(kv, key, "array", err, errlen);
	*out = (struct gguf_array){ .type = kv->elem_type,
				    .nr = kv->nr,
				    .data = kv->value };
	return 0;
}

int gguf_get_scalar(const struct gguf *gguf, const char *key,
		    struct gguf_array *out)
{
	const struct gguf_kv *kv = gguf_find_kv(gguf, key);

	if (!kv)
		return -ENOENT;
	if (kv->type == GGUF_STRING || kv->type == GGUF_ARRAY)
		return -EINVAL;
	*out = (struct gguf_array){ .type = kv->type,
				    .nr = 1,
				    .data = kv->value };
	return 0;
}

int gguf_array_strings(const struct gguf_array *arr, struct gguf_str *out)
{
	const char *p = arr->data;

	if (arr->type != GGUF_STRING)
		return -EINVAL;
	for (uint64_t i = 0; i < arr->nr; i++) {
		out[i].len = gguf_le64(p);
		out[i].data = p + 8;
		p += 8 + out[i].len;
	}
	return 0;
}

int gguf_array_i64(const struct gguf_array *arr, uint64_t i, int64_t *out)
{
	if (i >= arr->nr)
		return -ERANGE;

	/* No overflow: the whole array lies in the file. */
	const uint8_t *p =
		(const uint8_t *)arr->data + i * gguf_scalar_bytes(arr->type);

	if (arr->type == GGUF_BOOL) {
		*out = *p;
		return 0;
	}
	return read_integer(arr->type, p, out);
}

int gguf_array_f32(const struct gguf_array *arr, uint64_t i, float *out)
{
	if (i >= arr->nr)
		return -ERANGE;
	return read_float(arr->type,
			  (const uint8_t *)arr->data +
				  i * gguf_scalar_bytes(arr->type),
			  out);
}

size_t gguf_nr_keys(const struct gguf *gguf)
{
	return gguf->nr_kvs;
}

struct gguf_str gguf_key(const struct gguf *gguf, size_t i,
			 enum gguf_value_type *out_type)
{
	if (i >= gguf->nr_kvs)
		return (struct gguf_str){ 0 };
	if (out_type)
		*out_type = gguf->kvs[i].type;
	return gguf->kvs[i].key;
}
