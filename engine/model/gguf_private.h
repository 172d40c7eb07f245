/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the GGUF reader share: the opened file, its entries and
 * the index over names. Only gguf*.c includes this. Nothing here locks: a
 * struct gguf is built by one thread and is immutable from then on.
 */
#ifndef TARN_ENGINE_MODEL_GGUF_PRIVATE_H
#define TARN_ENGINE_MODEL_GGUF_PRIVATE_H

#include <endian.h>
#include <string.h>

#include "engine/model/gguf.h"

enum {
	GGUF_DEFAULT_ALIGNMENT = 32,
	/* The format asks for a multiple of 8; a power of two is one from 8 on. */
	GGUF_MIN_ALIGNMENT = 8,
	/* A name of one byte, no dimensions, type and offset. */
	GGUF_MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8,
	GGUF_MAX_KEY_BYTES = 65535,
	GGUF_MAX_TENSOR_NAME_BYTES = 64,
	/*
	 * Most entries of the metadata and of the directory. Real files have
	 * below 100 and below 20,000; 4 Mi keeps item numbers in 32 bits.
	 */
	GGUF_MAX_ENTRIES = 1 << 22,
	/* Most files of one model; real ones are in some hundreds at most. */
	GGUF_MAX_PARTS = 1024,
};

/* One metadata entry. The name comes first: the index relies on it. */
struct gguf_kv {
	struct gguf_str key;
	uint32_t type; /* enum gguf_value_type */
	uint32_t elem_type; /* of an array */
	uint64_t nr; /* elements of an array, bytes of a string, else 1 */
	const uint8_t
		*value; /* first byte of the scalar, string or first element */
};

/*
 * Names to item numbers. Borrows the items: an array whose entries begin
 * with their struct gguf_str. The hash is keyed, so a file cannot be made to
 * collide.
 */
struct gguf_index {
	const void *items;
	size_t stride; /* bytes from item to item */
	uint64_t key[2];
	uint64_t *slots; /* hash in the upper half, item + 1 in the lower; 0 is free */
	size_t nr_slots; /* a power of two; 0 when there are no items */
};

/* What split.* says of a file. */
struct gguf_split {
	uint32_t no; /* from 0 */
	uint32_t nr_parts; /* 0 and 1: the file is whole */
	uint32_t nr_tensors; /* of all parts */
	bool has_no, has_tensors;
};

struct gguf {
	const uint8_t *base;
	size_t size;
	bool is_mapped; /* base is ours to unmap */
	unsigned int flags;
	struct gguf_split split;
	/*
	 * Of the first part: the further ones, whose tensors stand behind ours in tensors[], and
	 * all parts' headers one after the other (NULL where there is but one file).
	 */
	struct gguf **parts; /* [split.nr_parts - 1] */
	uint8_t *headers;
	size_t headers_bytes;
	uint32_t alignment;
	size_t header_bytes; /* end of the directory */
	uint64_t data_start; /* header_bytes rounded up to the alignment */
	struct gguf_kv *kvs;
	size_t nr_kvs;
	struct gguf_tensor *tensors;
	size_t nr_tensors;
	struct gguf_index kv_index;
	struct gguf_index tensor_index;
};

static inline uint16_t gguf_le16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t gguf_le32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t gguf_le64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/* gguf.c: writes the message (where there is room for one), returns @code. */
int gguf_fail(char *err, size_t errlen, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* gguf.c: maps and parses @path alone, whatever part of a model it is. */
int gguf_open_part(const char *path, unsigned int flags, struct gguf **out_gguf,
		   char *err, size_t errlen);

/*
 * gguf_split.c: opens the other parts of the model whose first part @gguf, of @path, is, and adds
 * their tensors to it. What it allocated is freed by gguf_close(), on failure too.
 */
int gguf_join_parts(struct gguf *gguf, const char *path, char *err,
		    size_t errlen);

/* gguf_types.c: bytes of a scalar; 0 for strings, arrays and unknown types. */
size_t gguf_scalar_bytes(uint32_t value_type);

/*
 * gguf_index.c: fills @index over @nr items of @stride bytes. Return: 0;
 * -EEXIST when two items have one name (*out_dup is the later); -ENOMEM.
 */
int gguf_index_init(struct gguf_index *index, const void *items, size_t stride,
		    size_t nr, size_t *out_dup);
void gguf_index_deinit(struct gguf_index *index);
/* gguf_index.c: the item of that name, or NULL. */
const void *gguf_index_find(const struct gguf_index *index,
			    struct gguf_str name);

/* gguf_reader.c: a place in the file, and where complaints go. */
struct gguf_reader {
	const uint8_t *base;
	size_t size;
	size_t pos; /* never beyond size */
	char *err;
	size_t errlen;
};

#define GGUF_READER_FAIL(r, code, ...) \
	gguf_fail((r)->err, (r)->errlen, code, __VA_ARGS__)

static inline size_t gguf_bytes_left(const struct gguf_reader *r)
{
	return r->size - r->pos;
}

/* The next @nr bytes, or NULL when the file has fewer. */
const uint8_t *gguf_take(struct gguf_reader *r, uint64_t nr);
/* -EINVAL unless @nr entries of @min_bytes or more can be in the bytes left. */
int gguf_check_count(struct gguf_reader *r, const char *what, uint64_t nr,
		     size_t min_bytes);
/* Room for one more of @item_bytes in *items: doubles, up to @total items. */
int gguf_grow(void **items, size_t *cap, size_t nr, uint64_t total,
	      size_t item_bytes);
/* Name of entry @i of its kind: @what is "metadata key" or "tensor". */
int gguf_read_name(struct gguf_reader *r, const char *what, size_t i,
		   uint64_t max_bytes, struct gguf_str *out);
/* gguf_index_init() with a message that names the duplicate. */
int gguf_index_names(struct gguf_reader *r, const char *what,
		     struct gguf_index *index, const void *items, size_t stride,
		     size_t nr);

/* gguf_parse.c: reads base[0..size) into @gguf; what it allocated is freed by gguf_close(). */
int gguf_parse(struct gguf *gguf, char *err, size_t errlen);

/* gguf_tensors.c: reads the @nr entries of the directory. */
int gguf_read_directory(struct gguf *gguf, struct gguf_reader *r, uint64_t nr);
/* gguf_tensors.c: places the directory's tensors in the file; see gguf_open(). */
int gguf_place_tensors(struct gguf *gguf, char *err, size_t errlen);

/* gguf_get.c */
const struct gguf_kv *gguf_find_kv(const struct gguf *gguf, const char *key);

#endif /* TARN_ENGINE_MODEL_GGUF_PRIVATE_H */
