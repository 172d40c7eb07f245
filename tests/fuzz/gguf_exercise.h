/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzzing of the GGUF reader has in common: a seed file, mutations of
 * bytes, and a walk that uses everything an opened file hands out. Aborts
 * where the reader breaks its word; the sanitizers see the rest. All static.
 */
#ifndef TARN_TESTS_FUZZ_GGUF_EXERCISE_H
#define TARN_TESTS_FUZZ_GGUF_EXERCISE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "tests/engine/gguf_writer.h"

#define GGUF_MUST(cond)                                                        \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, \
				__LINE__, #cond);                              \
			abort();                                               \
		}                                                              \
	} while (0)

/* Keeps the reads alive. */
static volatile uint64_t gguf_exercise_sink;

static inline void gguf_touch(const void *bytes, uint64_t nr)
{
	const uint8_t *p = bytes;

	if (nr)
		gguf_exercise_sink += (uint64_t)p[0] + p[nr / 2] + p[nr - 1];
}

static inline void gguf_exercise_array(const struct gguf_array *array)
{
	int64_t integer;
	float number;

	if (array->type == GGUF_STRING) {
		struct gguf_str *strings =
			calloc(array->nr + 1, sizeof(*strings));

		GGUF_MUST(strings);
		GGUF_MUST(gguf_array_strings(array, strings) == 0);
		for (uint64_t i = 0; i < array->nr; i++)
			gguf_touch(strings[i].data, strings[i].len);
		free(strings);
		return;
	}
	for (uint64_t i = 0; i < array->nr; i++) {
		gguf_array_i64(array, i, &integer);
		gguf_array_f32(array, i, &number);
	}
	GGUF_MUST(gguf_array_i64(array, array->nr, &integer) == -ERANGE);
}

static inline void gguf_exercise_key(const struct gguf *gguf, size_t i)
{
	enum gguf_value_type type;
	struct gguf_str key = gguf_key(gguf, i, &type);
	char *name = strndup(key.data, key.len);
	struct gguf_array array;
	struct gguf_str str;
	uint32_t u32;
	float f32;
	bool flag;
	char err[64];

	GGUF_MUST(name && key.len);
	/* A key with a NUL inside cannot be asked for. */
	GGUF_MUST(gguf_has(gguf, name) || strlen(name) < key.len);
	gguf_get_u32(gguf, name, &u32, err, sizeof(err));
	gguf_get_f32(gguf, name, &f32, err, sizeof(err));
	if (gguf_get_bool(gguf, name, &flag, err, sizeof(err)) == 0)
		gguf_exercise_sink += flag;
	if (gguf_get_str(gguf, name, &str, err, sizeof(err)) == 0)
		gguf_touch(str.data, str.len);
	if (gguf_get_array(gguf, name, &array, err, sizeof(err)) == 0)
		gguf_exercise_array(&array);
	free(name);
}

static inline void gguf_exercise_tensor(const struct gguf *gguf,
					const struct gguf_tensor *tensor,
					const uint8_t *base, size_t size,
					unsigned int flags)
{
	char *name = strndup(tensor->name.data, tensor->name.len);

	GGUF_MUST(name);
	GGUF_MUST(tensor->dims[0] && tensor->dims[1] && tensor->dims[2] &&
		  tensor->dims[3]);
	GGUF_MUST(tensor->size_bytes);
	if (flags & GGUF_METADATA_ONLY) {
		GGUF_MUST(!tensor->data);
	} else {
		const uint8_t *data = tensor->data;

		GGUF_MUST(data >= base && tensor->size_bytes <= size);
		GGUF_MUST((size_t)(data - base) <= size - tensor->size_bytes);
		gguf_touch(data, tensor->size_bytes);
	}
	GGUF_MUST(gguf_tensor(gguf, name) == tensor ||
		  strlen(name) < tensor->name.len);
	free(name);
}

/* Opens data[0..size), walks it, closes it. Returns what opening answered. */
static inline int gguf_exercise(const uint8_t *data, size_t size,
				unsigned int flags)
{
	struct gguf *gguf = NULL;
	size_t header_bytes;
	char err[160];

	memset(err, 'x', sizeof(err));

	int rc = gguf_open_memory(data, size, flags, &gguf, err, sizeof(err));

	if (rc) {
		GGUF_MUST(rc == -EINVAL || rc == -ENOTSUP || rc == -ENOMEM);
		GGUF_MUST(memchr(err, 0, sizeof(err)) && err[0]);
		for (const char *c = err; *c; c++)
			GGUF_MUST(*c >= ' ' && *c < 127);
		return rc;
	}
	GGUF_MUST(gguf_header(gguf, &header_bytes) == data);
	gguf_touch(data, header_bytes);
	GGUF_MUST(header_bytes <= size && gguf_file_size(gguf) == size);
	for (size_t i = 0; i < gguf_nr_keys(gguf); i++)
		gguf_exercise_key(gguf, i);
	for (size_t i = 0; i < gguf_nr_tensors(gguf); i++)
		gguf_exercise_tensor(gguf, gguf_tensor_at(gguf, i), data, size,
				     flags);
	gguf_close(gguf);
	return 0;
}

/* A small file with a value of every kind and some tensors. */
static inline uint8_t *gguf_fuzz_seed(size_t *out_size)
{
	struct gguf_writer w = GGUF_WRITER_INIT;
	static const char *const tokens[] = { "<s>", "", "hello",
					      "\xe2\x96\x81world" };

	gw_str(&w, "general.architecture", "llama");
	gw_u32(&w, "general.alignment", 32);
	gw_u8(&w, "k.u8", 200);
	gw_i8(&w, "k.i8", -100);
	gw_u16(&w, "k.u16", 60000);
	gw_i16(&w, "k.i16", -30000);
	gw_i32(&w, "k.i32", -2000000000);
	gw_f32(&w, "k.f32", 1e-5f);
	gw_bool(&w, "k.bool", true);
	gw_u64(&w, "k.u64", UINT64_MAX);
	gw_i64(&w, "k.i64", INT64_MIN);
	gw_f64(&w, "k.f64", 1e300);
	gw_strings(&w, "tokenizer.ggml.tokens", tokens, 4);
	gw_array(&w, "tokenizer.ggml.scores", GGUF_F32,
		 (float[]){ 0, -1, -2, -3 }, 4, 4);
	gw_array(&w, "k.bools", GGUF_BOOL, (bool[]){ true, false, true }, 3, 1);
	gw_array(&w, "k.none", GGUF_I64, NULL, 0, 8);
	gw_u16(&w, "split.count", 1);
	gw_tensor(&w, "token_embd.weight", GGUF_TYPE_Q8_0, 2,
		  (uint64_t[]){ 64, 4 }, NULL, 272);
	gw_tensor(&w, "blk.0.attn_norm.weight", GGUF_TYPE_F32, 1,
		  (uint64_t[]){ 5 }, NULL, 20);
	gw_tensor(&w, "blk.0.ffn_up.weight", GGUF_TYPE_Q4_K, 3,
		  (uint64_t[]){ 256, 1, 2 }, NULL, 288);
	return gw_finish(&w, out_size);
}

/* xorshift: the same sequence everywhere. @state is not 0. */
static inline uint64_t gguf_fuzz_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* One change of up to 8 bytes at a random place, or a shorter or shuffled file. */
static inline void gguf_mutate_once(uint8_t *data, size_t *size,
				    uint64_t *state)
{
	static const uint64_t odd_numbers[] = { 0,
						1,
						2,
						7,
						8,
						9,
						13,
						255,
						65535,
						65536,
						UINT32_MAX,
						INT64_MAX,
						1ull << 63,
						UINT64_MAX,
						UINT64_MAX - 7,
						UINT64_MAX / 4 + 1,
						1ull << 40 };
	uint64_t choice = gguf_fuzz_random(state);
	size_t at = gguf_fuzz_random(state) % *size;
	size_t left = *size - at;
	size_t width = (size_t[]){ 1, 2, 4, 8 }[choice >> 8 & 3];
	uint64_t value;

	if (width > left)
		width = left;
	switch (choice % 8) {
	case 0:
	case 1:
		data[at] ^= 1u << (choice >> 16 & 7);
		break;
	case 2:
		data[at] = choice >> 16;
		break;
	case 3:
	case 4:
		value = odd_numbers[(choice >> 16) % (sizeof(odd_numbers) / 8)];
		memcpy(data + at, &value, width);
		break;
	case 5:
		value = 0;
		memcpy(&value, data + at, width);
		value += (choice >> 16 & 63) - 32;
		memcpy(data + at, &value, width);
		break;
	case 6:
		memmove(data + at,
			data + gguf_fuzz_random(state) % (*size - left / 2),
			left / 2);
		break;
	default:
		/* Seldom, or most files would end too early to be of interest. */
		if ((choice >> 16) % 8 == 0 && at)
			*size = at;
	}
}

/*
 * Opens @nr_rounds mutations of @seed. Each lies in a block of its exact
 * size, so that a read past its end is seen. Counts those that opened.
 */
static inline uint64_t gguf_fuzz_mutations(const uint8_t *seed,
					   size_t seed_size, uint64_t nr_rounds,
					   uint64_t state)
{
	uint8_t *work = malloc(seed_size);
	uint64_t nr_opened = 0;

	GGUF_MUST(work && seed_size);
	for (uint64_t round = 0; round < nr_rounds; round++) {
		size_t size = seed_size;
		uint64_t nr_changes = 1 + gguf_fuzz_random(&state) % 4;

		memcpy(work, seed, seed_size);
		for (uint64_t i = 0; i < nr_changes; i++)
			gguf_mutate_once(work, &size, &state);

		uint8_t *exact = malloc(size);

		GGUF_MUST(exact);
		memcpy(exact, work, size);
		nr_opened +=
			gguf_exercise(exact, size,
				      round & 1 ? GGUF_METADATA_ONLY : 0) == 0;
		free(exact);
	}
	free(work);
	return nr_opened;
}

#endif /* TARN_TESTS_FUZZ_GGUF_EXERCISE_H */
