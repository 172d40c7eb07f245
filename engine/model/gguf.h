/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF container (versions 2 and 3): metadata and tensor directory of a
 * model file, checked in full against the size of the file before anything
 * is handed out.
 *
 * Owns the mapping of the file. Knows no architecture and no tokenizer. A
 * struct gguf is immutable once opened: any thread may read it.
 */
#ifndef TARN_ENGINE_MODEL_GGUF_H
#define TARN_ENGINE_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value types of the metadata, numbered as in the file. */
enum gguf_value_type {
	GGUF_U8 = 0,
	GGUF_I8 = 1,
	GGUF_U16 = 2,
	GGUF_I16 = 3,
	GGUF_U32 = 4,
	GGUF_I32 = 5,
	GGUF_F32 = 6,
	GGUF_BOOL = 7,
	GGUF_STRING = 8,
	GGUF_ARRAY = 9,
	GGUF_U64 = 10,
	GGUF_I64 = 11,
	GGUF_F64 = 12,
};

/* Tensor types Tarn computes with, numbered as in the file. */
enum gguf_type {
	GGUF_TYPE_F32 = 0,
	GGUF_TYPE_F16 = 1,
	GGUF_TYPE_Q4_0 = 2,
	GGUF_TYPE_Q4_1 = 3,
	GGUF_TYPE_Q5_0 = 6,
	GGUF_TYPE_Q5_1 = 7,
	GGUF_TYPE_Q8_0 = 8,
	GGUF_TYPE_Q2_K = 10,
	GGUF_TYPE_Q3_K = 11,
	GGUF_TYPE_Q4_K = 12,
	GGUF_TYPE_Q5_K = 13,
	GGUF_TYPE_Q6_K = 14,
	GGUF_TYPE_IQ4_NL = 20,
	GGUF_TYPE_IQ4_XS = 23,
	GGUF_TYPE_BF16 = 30,
	GGUF_TYPE_MXFP4 = 39,
};

enum {
	GGUF_MAX_DIMS = 4,
};

/* A byte string inside the mapping: not NUL-terminated. */
struct gguf_str {
	const char *data;
	size_t len;
};

struct gguf_tensor {
	struct gguf_str name;
	uint32_t type; /* as in the file: may be one Tarn does not compute with */
	uint32_t nr_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous; unused ones are 1 */
	uint64_t offset; /* from the start of the tensor data, in its part */
	const void *data; /* NULL when opened with GGUF_METADATA_ONLY */
	uint64_t size_bytes;
};

struct gguf;

enum {
	/* Read metadata and directory alone; tensor data may be absent. */
	GGUF_METADATA_ONLY = 1u << 0,
};

/**
 * gguf_open - map a model file and check it whole
 * @path: the file; of a model in several files the first, NAME-00001-of-0000N.gguf:
 * the others are found beside it.
 * @flags: 0 or GGUF_METADATA_ONLY.
 * @out_gguf: [out] the opened file; gguf_close() frees it.
 * @err, @errlen: [out] one line that names the offence when the call fails;
 * it does not repeat @path. May be NULL, 0.
 *
 * Checked: magic, version, every count against the bytes left, string
 * lengths, value types, bools (0 or 1), array nesting (refused), duplicate
 * keys and tensor names, dimensions and their product, block size, alignment,
 * offsets, overlaps, and that every tensor lies inside the file (but for
 * GGUF_METADATA_ONLY). A tensor of a type whose size is unknown is an error
 * that names it. Cost is linear in the metadata; tensor data is not touched.
 *
 * Parts of a model are each checked in this way, and together: all there, none
 * twice, in the order of their names (split.no, split.count), with as many
 * tensors as split.tensors.count says. The metadata is that of the first part.
 * What is wrong with a further part is reported with its name.
 *
 * The file must not shrink while it is open: reading a page that is gone is
 * SIGBUS. Metadata and tensors point into the mapping until gguf_close().
 *
 * Return: 0; -ENOENT, -EACCES, ... as open(2); -EINVAL for a file that breaks
 * the format or a part that is not the one it should be; -ENOTSUP for a version
 * or a tensor type that is not supported; -ENOMEM.
 */
int gguf_open(const char *path, unsigned int flags, struct gguf **out_gguf,
	      char *err, size_t errlen);

/**
 * gguf_open_memory - the same over bytes the caller keeps alive (tests, fuzzing)
 *
 * -ENOTSUP for a part of a model.
 */
int gguf_open_memory(const void *data, size_t size, unsigned int flags,
		     struct gguf **out_gguf, char *err, size_t errlen);
void gguf_close(struct gguf *gguf); /* NULL is fine */

/* Tell the kernel that the file's pages may go (after packing). */
void gguf_drop_pages(const struct gguf *gguf);

uint64_t gguf_file_size(const struct gguf *gguf); /* of all parts */
/* Bytes before the tensor data: header, metadata, directory; of all parts, one after the other. */
const void *gguf_header(const struct gguf *gguf, size_t *out_len);

/*
 * Metadata by key. Each returns 0; -ENOENT when the key is absent, -EINVAL
 * when its type or range does not fit (err names key and both types).
 * Integers of any width are accepted where the value fits, by gguf_get_f32()
 * too. On failure *out is left as it was.
 */
bool gguf_has(const struct gguf *gguf, const char *key);
int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out,
		 char *err, size_t errlen);
int gguf_get_f32(const struct gguf *gguf, const char *key, float *out,
		 char *err, size_t errlen);
int gguf_get_bool(const struct gguf *gguf, const char *key, bool *out,
		  char *err, size_t errlen);
int gguf_get_str(const struct gguf *gguf, const char *key, struct gguf_str *out,
		 char *err, size_t errlen);

/* An array of the metadata. Elements are read by the gguf_array_ calls. */
struct gguf_array {
	enum gguf_value_type type; /* of the elements */
	uint64_t nr;
	const void *data; /* packed scalars, or the first string's length word */
};

int gguf_get_array(const struct gguf *gguf, const char *key,
		   struct gguf_array *out, char *err, size_t errlen);
/* A scalar as an array of one: for whoever does not know its type. */
int gguf_get_scalar(const struct gguf *gguf, const char *key,
		    struct gguf_array *out);
/* All strings of a string array, in order: fills out[0..arr->nr). -EINVAL if not strings. */
int gguf_array_strings(const struct gguf_array *arr, struct gguf_str *out);
/*
 * Scalar @i as integer (bools too) or float; -EINVAL for the wrong element
 * type, -ERANGE past the end, -EOVERFLOW when the value does not fit.
 */
int gguf_array_i64(const struct gguf_array *arr, uint64_t i, int64_t *out);
int gguf_array_f32(const struct gguf_array *arr, uint64_t i, float *out);

/* Keys in file order, for tools. */
size_t gguf_nr_keys(const struct gguf *gguf);
struct gguf_str gguf_key(const struct gguf *gguf, size_t i,
			 enum gguf_value_type *out_type);

size_t gguf_nr_tensors(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t i);
/* NULL when there is none of that name. */
const struct gguf_tensor *gguf_tensor(const struct gguf *gguf,
				      const char *name);

/* "u32", "string"; "unknown" for a type that does not exist. */
const char *gguf_value_type_name(uint32_t value_type);

enum {
	/* A shown string: 64 bytes of it, "..." and NUL. */
	GGUF_SHOWN_BYTES = 68,
};

/* What a file says, for a message: printable ASCII, its first 64 bytes. Returns @buf. */
const char *gguf_show(struct gguf_str str, char buf[static GGUF_SHOWN_BYTES]);

/* "Q4_K", or "type 99". @buf serves unknown types; at least 16 bytes. */
const char *gguf_type_name(uint32_t type, char *buf, size_t len);
/*
 * Elements and bytes of one block of @type. Return: 0, or -ENOTSUP for a type
 * whose layout is not known.
 */
int gguf_type_block(uint32_t type, uint32_t *out_elems, uint32_t *out_bytes);
/* Whether Tarn computes with it (see enum gguf_type). */
bool gguf_type_supported(uint32_t type);

#endif /* TARN_ENGINE_MODEL_GGUF_H */
