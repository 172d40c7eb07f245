/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the golden token ids of tests/data (made by make_tokens_golden.py,
 * which describes the format). For tests; all static, any thread.
 *
 *	struct tokens_golden golden;
 *
 *	tokens_golden_open("gemma", &golden);
 *	while (tokens_golden_next(&golden, &one))
 *		...
 *	tokens_golden_close(&golden);
 */
#ifndef TARN_TESTS_ENGINE_TOKENS_GOLDEN_H
#define TARN_TESTS_ENGINE_TOKENS_GOLDEN_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TOKENS_GOLDEN_MAX_IDS = 4096,
};

struct tokens_reader {
	uint8_t *data; /* malloc'ed */
	size_t len, at;
	bool is_broken; /* read beyond the end */
};

struct tokens_golden {
	struct tokens_reader cases, base, own;
	uint64_t nr;
	int32_t ids[2][TOKENS_GOLDEN_MAX_IDS]; /* of base, of own */
};

struct tokens_case {
	const char *text;
	size_t len;
	bool with_special;
	const int32_t *ids;
	size_t nr;
};

static inline uint64_t tokens_read(struct tokens_reader *reader)
{
	uint64_t number = 0;
	unsigned int shift = 0;

	while (reader->at < reader->len && shift < 63) {
		uint8_t byte = reader->data[reader->at++];

		number |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return number;
		shift += 7;
	}
	reader->is_broken = true;
	return 0;
}

/* Inside the reader's data; NULL, and the reader broken, where there are fewer. */
static inline const char *tokens_read_bytes(struct tokens_reader *reader,
					    size_t nr)
{
	const char *bytes = (const char *)reader->data + reader->at;

	if (nr > reader->len - reader->at) {
		reader->is_broken = true;
		return NULL;
	}
	reader->at += nr;
	return bytes;
}

static inline int tokens_reader_open(struct tokens_reader *reader,
				     const char *path, const char magic[8])
{
	FILE *file;
	long size;

	file = fopen(path, "rb");
	if (!file)
		return -errno;
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	*reader = (struct tokens_reader){ .data = malloc((size_t)size) };
	reader->len = reader->data ? fread(reader->data, 1, size, file) : 0;
	fclose(file);
	if (reader->len < 8 || memcmp(reader->data, magic, 8) != 0)
		return -EINVAL;
	reader->at = 8;
	return 0;
}

static inline void tokens_golden_close(struct tokens_golden *golden)
{
	free(golden->cases.data);
	free(golden->base.data);
	free(golden->own.data);
}

static inline int tokens_golden_open(const char *name,
				     struct tokens_golden *golden)
{
	static const char ids_magic[8] = "TOKIDS\0";
	char path[128];
	int err;

	memset(golden, 0, sizeof(*golden));
	snprintf(path, sizeof(path), "tests/data/tokens_%s.bin", name);
	err = tokens_reader_open(&golden->cases, "tests/data/tokens_cases.bin",
				 "TOKCASE");
	if (!err)
		err = tokens_reader_open(&golden->base,
					 "tests/data/tokens_smollm.bin",
					 ids_magic);
	if (!err)
		err = tokens_reader_open(&golden->own, path, ids_magic);
	if (err)
		return err;
	golden->nr = tokens_read(&golden->cases);
	if (tokens_read(&golden->base) != golden->nr ||
	    tokens_read(&golden->own) != golden->nr)
		return -EINVAL;
	return 0;
}

/* Return: whether the reader gave ids of its own (false: those of smollm). */
static inline bool tokens_read_ids(struct tokens_reader *reader, int32_t *ids,
				   size_t *nr)
{
	uint64_t nr_plus_1 = tokens_read(reader), i;

	if (nr_plus_1 == 0)
		return false;
	if (nr_plus_1 > TOKENS_GOLDEN_MAX_IDS)
		reader->is_broken = true;
	*nr = 0;
	for (i = 1; i < nr_plus_1 && !reader->is_broken; i++)
		ids[(*nr)++] = (int32_t)tokens_read(reader);
	return true;
}

/* Return: whether there was one. Check .is_broken at the end. */
static inline bool tokens_golden_next(struct tokens_golden *golden,
				      struct tokens_case *out)
{
	struct tokens_reader *cases = &golden->cases;
	size_t nr_base = 0;

	if (golden->nr == 0 || cases->is_broken || golden->base.is_broken ||
	    golden->own.is_broken)
		return false;
	golden->nr--;
	out->with_special = tokens_read(cases) & 1;
	out->len = tokens_read(cases);
	out->text = (const char *)cases->data + cases->at;
	if (out->len > cases->len - cases->at) {
		cases->is_broken = true;
		return false;
	}
	cases->at += out->len;
	tokens_read_ids(&golden->base, golden->ids[0], &nr_base);
	out->ids = golden->ids[1];
	if (!tokens_read_ids(&golden->own, golden->ids[1], &out->nr)) {
		out->ids = golden->ids[0];
		out->nr = nr_base;
	}
	return true;
}

#endif /* TARN_TESTS_ENGINE_TOKENS_GOLDEN_H */
