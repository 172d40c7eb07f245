/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes GGUF files in memory, for tests: metadata of every kind, tensors
 * with data, and on request what no sane program would write. All static;
 * out of memory aborts the test.
 *
 *	struct gguf_writer w = GGUF_WRITER_INIT;
 *
 *	gw_str(&w, "general.architecture", "llama");
 *	gw_u32(&w, "llama.block_count", 1);
 *	gw_tensor(&w, "token_embd.weight", GGUF_TYPE_F32, 2, (uint64_t[]){ 32, 8 }, data, bytes);
 *	uint8_t *file = gw_finish(&w, &size);	(free() it; the writer is empty again)
 */
#ifndef TARN_TESTS_ENGINE_GGUF_WRITER_H
#define TARN_TESTS_ENGINE_GGUF_WRITER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"

struct gw_buf {
	uint8_t *data;
	size_t len;
	size_t cap;
};

/* version, alignment and the counts may be set before gw_finish() to write a wrong file. */
struct gguf_writer {
	struct gw_buf kvs;
	struct gw_buf infos;
	struct gw_buf data;
	uint32_t version;
	uint32_t alignment; /* of the tensors; also write the key where it is not 32 */
	uint64_t nr_kvs;
	uint64_t nr_tensors;
};

#define GGUF_WRITER_INIT                      \
	{                                     \
		.version = 3, .alignment = 32 \
	}

static inline void gw_put(struct gw_buf *buf, const void *bytes, size_t nr)
{
	if (buf->len + nr > buf->cap) {
		buf->cap = (buf->len + nr) * 2 + 64;
		buf->data = realloc(buf->data, buf->cap);
		if (!buf->data)
			abort();
	}
	if (nr && bytes)
		memcpy(buf->data + buf->len, bytes, nr);
	else if (nr)
		memset(buf->data + buf->len, 0, nr);
	buf->len += nr;
}

static inline void gw_put_u32(struct gw_buf *buf, uint32_t value)
{
	gw_put(buf, &value, sizeof(value));
}

static inline void gw_put_u64(struct gw_buf *buf, uint64_t value)
{
	gw_put(buf, &value, sizeof(value));
}

static inline void gw_put_str(struct gw_buf *buf, const void *bytes, size_t nr)
{
	gw_put_u64(buf, nr);
	gw_put(buf, bytes, nr);
}

/* Key and type: the value's bytes are put into w->kvs by the caller. */
static inline void gw_key(struct gguf_writer *w, const char *key, uint32_t type)
{
	gw_put_str(&w->kvs, key, strlen(key));
	gw_put_u32(&w->kvs, type);
	w->nr_kvs++;
}

static inline void gw_scalar(struct gguf_writer *w, const char *key,
			     uint32_t type, const void *value, size_t bytes)
{
	gw_key(w, key, type);
	gw_put(&w->kvs, value, bytes);
}

#define GW_SCALAR(name, kind, ctype)                                    \
	static inline void name(struct gguf_writer *w, const char *key, \
				ctype value)                            \
	{                                                               \
		gw_scalar(w, key, kind, &value, sizeof(value));         \
	}
GW_SCALAR(gw_u8, GGUF_U8, uint8_t)
GW_SCALAR(gw_i8, GGUF_I8, int8_t)
GW_SCALAR(gw_u16, GGUF_U16, uint16_t)
GW_SCALAR(gw_i16, GGUF_I16, int16_t)
GW_SCALAR(gw_u32, GGUF_U32, uint32_t)
GW_SCALAR(gw_i32, GGUF_I32, int32_t)
GW_SCALAR(gw_u64, GGUF_U64, uint64_t)
GW_SCALAR(gw_i64, GGUF_I64, int64_t)
GW_SCALAR(gw_f32, GGUF_F32, float)
GW_SCALAR(gw_f64, GGUF_F64, double)
GW_SCALAR(gw_bool, GGUF_BOOL, bool)

static inline void gw_strn(struct gguf_writer *w, const char *key,
			   const void *bytes, size_t nr)
{
	gw_key(w, key, GGUF_STRING);
	gw_put_str(&w->kvs, bytes, nr);
}

static inline void gw_str(struct gguf_writer *w, const char *key,
			  const char *value)
{
	gw_strn(w, key, value, strlen(value));
}

/* An array of @nr scalars of @elem_bytes each. */
static inline void gw_array(struct gguf_writer *w, const char *key,
			    uint32_t elem_type, const void *elems, size_t nr,
			    size_t elem_bytes)
{
	gw_key(w, key, GGUF_ARRAY);
	gw_put_u32(&w->kvs, elem_type);
	gw_put_u64(&w->kvs, nr);
	gw_put(&w->kvs, elems, nr * elem_bytes);
}

static inline void gw_strings(struct gguf_writer *w, const char *key,
			      const char *const *strings, size_t nr)
{
	gw_array(w, key, GGUF_STRING, NULL, 0, 0);
	memcpy(w->kvs.data + w->kvs.len - 8, &(uint64_t){ nr }, 8);
	for (size_t i = 0; i < nr; i++)
		gw_put_str(&w->kvs, strings[i], strlen(strings[i]));
}

/* A directory entry alone, at @offset of the data. */
static inline void gw_tensor_at(struct gguf_writer *w, const char *name,
				uint32_t type, uint32_t nr_dims,
				const uint64_t *dims, uint64_t offset)
{
	gw_put_str(&w->infos, name, strlen(name));
	gw_put_u32(&w->infos, nr_dims);
	gw_put(&w->infos, dims, nr_dims * sizeof(dims[0]));
	gw_put_u32(&w->infos, type);
	gw_put_u64(&w->infos, offset);
	w->nr_tensors++;
}

/* A tensor with @bytes of data: NULL writes zeros. */
static inline void gw_tensor(struct gguf_writer *w, const char *name,
			     uint32_t type, uint32_t nr_dims,
			     const uint64_t *dims, const void *data,
			     size_t bytes)
{
	size_t pad = -w->data.len & (w->alignment - 1);

	gw_put(&w->data, NULL, pad);
	gw_tensor_at(w, name, type, nr_dims, dims, w->data.len);
	gw_put(&w->data, data, bytes);
}

static inline void gw_deinit(struct gguf_writer *w)
{
	free(w->kvs.data);
	free(w->infos.data);
	free(w->data.data);
	*w = (struct gguf_writer)GGUF_WRITER_INIT;
}

/* The file. The caller frees it; the writer starts anew. */
static inline uint8_t *gw_finish(struct gguf_writer *w, size_t *out_size)
{
	struct gw_buf file = { 0 };

	gw_put(&file, "GGUF", 4);
	gw_put_u32(&file, w->version);
	gw_put_u64(&file, w->nr_tensors);
	gw_put_u64(&file, w->nr_kvs);
	gw_put(&file, w->kvs.data, w->kvs.len);
	gw_put(&file, w->infos.data, w->infos.len);
	if (w->data.len) {
		gw_put(&file, NULL, -file.len & (w->alignment - 1));
		gw_put(&file, w->data.data, w->data.len);
	}
	gw_deinit(w);
	*out_size = file.len;
	return file.data;
}

/* The same into the file @path. Return: 0 or -1 with errno set by stdio. */
static inline int gw_save(struct gguf_writer *w, const char *path)
{
	size_t size;
	uint8_t *bytes = gw_finish(w, &size);
	FILE *f = fopen(path, "wb");
	int rc = -1;

	if (f) {
		size_t nr = fwrite(bytes, 1, size, f);

		rc = fclose(f) == 0 && nr == size ? 0 : -1;
	}
	free(bytes);
	return rc;
}

#endif /* TARN_TESTS_ENGINE_GGUF_WRITER_H */
