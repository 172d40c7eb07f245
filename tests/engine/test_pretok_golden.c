/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every pre-tokenizer of the table against the cuts of a public library:
 * tests/data/make_pretok_golden.py, which describes the file and prints the
 * pieces that one text should have.
 */
#include "engine/token/nfc.h"
#include "engine/token/pretok.h"
#include "engine/token/pretok_table.h"
#include "tests/engine/tokens_golden.h"
#include "tests/harness.h"

enum {
	MIN_TEXTS = 4000,
	MAX_TEXTS = 8192,
	MAX_NAME = 32,
	MAX_REPORTS = 5,
};

struct text {
	const char *data;
	size_t len;
};

FIXTURE(golden)
{
	struct tokens_reader file;
	struct text texts[MAX_TEXTS];
	uint64_t nr_texts, nr_names;
	struct pretok_scratch *scratch;
};

FIXTURE_SETUP(golden)
{
	uint64_t i;

	ASSERT_EQ(0, tokens_reader_open(&self->file,
					"tests/data/pretok_golden.bin",
					"PRETOK\0\0"));
	self->nr_texts = tokens_read(&self->file);
	ASSERT_LE(MIN_TEXTS, self->nr_texts);
	ASSERT_LE(self->nr_texts, MAX_TEXTS);
	for (i = 0; i < self->nr_texts; i++) {
		self->texts[i].len = tokens_read(&self->file);
		self->texts[i].data =
			tokens_read_bytes(&self->file, self->texts[i].len);
	}
	self->nr_names = tokens_read(&self->file);
	ASSERT_FALSE(self->file.is_broken);
	self->scratch = pretok_scratch_create();
	ASSERT_TRUE(self->scratch != NULL);
}

FIXTURE_TEARDOWN(golden)
{
	pretok_scratch_destroy(self->scratch);
	free(self->file.data);
}

/* The next name, and where its hashes lie. */
static const uint8_t *next_name(struct tokens_reader *file, uint64_t nr_texts,
				char name[static MAX_NAME])
{
	uint64_t len = tokens_read(file);
	const char *text = tokens_read_bytes(file, len);

	ASSERT_LT(len, MAX_NAME);
	memcpy(name, text, len);
	name[len] = '\0';
	return (const uint8_t *)tokens_read_bytes(file, 2 * nr_texts);
}

static int hash_piece(void *owner, const char *piece, size_t len)
{
	uint32_t *hash = owner;
	size_t i;

	for (i = 0; i < len; i++)
		*hash = (*hash ^ (uint8_t)piece[i]) * 0x01000193u;
	*hash = (*hash ^ 0xff) * 0x01000193u;
	return 0;
}

/* Composed first where the pre-tokenizer says so, as encoding does. */
static uint16_t hash_of(const struct pretok *pretok,
			struct pretok_scratch *scratch, const struct text *text)
{
	uint32_t hash = 0x811c9dc5u;
	const char *data = text->data;
	size_t len = text->len;
	char *composed = NULL;

	if (pretok_flags(pretok) & PRETOK_NFC)
		EXPECT_EQ(0,
			  nfc_compose(text->data, text->len, &composed, &len));
	if (composed)
		data = composed;
	else
		len = text->len;
	EXPECT_EQ(0,
		  pretok_split(pretok, scratch, data, len, hash_piece, &hash));
	free(composed);
	return (uint16_t)(hash >> 16 ^ hash);
}

TEST_F(golden, pieces_equal_the_librarys)
{
	uint64_t name_nr, i;

	for (name_nr = 0; name_nr < self->nr_names; name_nr++) {
		char name[MAX_NAME], err[256];
		const uint8_t *want =
			next_name(&self->file, self->nr_texts, name);
		struct pretok *pretok;
		unsigned int nr_wrong = 0;

		ASSERT_FALSE(self->file.is_broken);
		ASSERT_EQ(0, pretok_create(name, strlen(name), &pretok, err,
					   sizeof(err)))
		{
			TH_LOG("%s: %s", name, err);
		}
		for (i = 0; i < self->nr_texts; i++) {
			uint16_t hash =
				hash_of(pretok, self->scratch, &self->texts[i]);

			if (hash != (want[2 * i] | want[2 * i + 1] << 8) &&
			    nr_wrong++ < MAX_REPORTS)
				TH_LOG("%s: text %d", name, (int)i);
		}
		EXPECT_EQ(0, nr_wrong);
		pretok_destroy(pretok);
	}
	EXPECT_EQ(self->file.len, self->file.at);
}

/* Flags that do not touch pieces, and names, may differ. */
static bool cuts_alike(const struct pretok_row *a, const struct pretok_row *b)
{
	size_t i;

	if ((a->flags ^ b->flags) & PRETOK_NFC ||
	    a->nr_byte_passes != b->nr_byte_passes)
		return false;
	for (i = 0; i < PRETOK_MAX_PASSES; i++) {
		if (!a->passes[i] != !b->passes[i] ||
		    (a->passes[i] && strcmp(a->passes[i], b->passes[i]) != 0))
			return false;
	}
	return true;
}

TEST_F(golden, every_row_is_tried)
{
	bool is_tried[64] = { false };
	const struct pretok_row *row;
	uint64_t name_nr;
	size_t i;

	for (name_nr = 0; name_nr < self->nr_names; name_nr++) {
		char name[MAX_NAME];

		next_name(&self->file, self->nr_texts, name);
		row = pretok_row_find(name, strlen(name));
		ASSERT_TRUE(row != NULL);
		for (i = 0; pretok_row_at(i); i++) {
			ASSERT_LT(i, 64);
			is_tried[i] |= cuts_alike(row, pretok_row_at(i));
		}
	}
	for (i = 0; (row = pretok_row_at(i)) != NULL; i++)
		EXPECT_TRUE(is_tried[i])
		{
			TH_LOG("%s", row->names);
		}
}

TEST_HARNESS_MAIN
