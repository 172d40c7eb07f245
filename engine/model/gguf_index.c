/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash table from names to the entries of a GGUF file: built once, then only
 * read. Open addressing, at most half full. The hash is SipHash-1-3 with a
 * random key, so that a hostile file cannot make building it quadratic.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "engine/model/gguf_private.h"

static inline uint64_t rotl(uint64_t v, int n)
{
	return v << n | v >> (64 - n);
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] = rotl(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] = rotl(v[2], 32);
}

static uint64_t name_hash(const uint64_t key[2], struct gguf_str name)
{
	uint64_t v[4] = { key[0] ^ 0x736f6d6570736575,
			  key[1] ^ 0x646f72616e646f6d,
			  key[0] ^ 0x6c7967656e657261,
			  key[1] ^ 0x7465646279746573 };
	size_t i;

	for (i = 0; name.len - i >= 8; i += 8) {
		uint64_t word = gguf_le64(name.data + i);

		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
	}

	uint64_t tail = (uint64_t)name.len << 56;

	for (int shift = 0; i < name.len; i++, shift += 8)
		tail |= (uint64_t)(uint8_t)name.data[i] << shift;
	v[3] ^= tail;
	sip_round(v);
	v[0] ^= tail;
	v[2] ^= 0xff;
	for (int round = 0; round < 3; round++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static const void *item_at(const struct gguf_index *index, size_t i)
{
	return (const char *)index->items + i * index->stride;
}

/* The slot that holds @name, or the free one where it belongs. */
static size_t find_slot(const struct gguf_index *index, struct gguf_str name,
			uint64_t hash)
{
	size_t mask = index->nr_slots - 1;
	size_t slot = hash & mask;

	for (; index->slots[slot]; slot = (slot + 1) & mask) {
		uint64_t entry = index->slots[slot];

		if ((entry ^ hash) >> 32)
			continue;

		const struct gguf_str *other =
			item_at(index, (uint32_t)entry - 1);

		if (other->len == name.len &&
		    !memcmp(other->data, name.data, name.len))
			break;
	}
	return slot;
}

int gguf_index_init(struct gguf_index *index, const void *items, size_t stride,
		    size_t nr, size_t *out_dup)
{
	*index = (struct gguf_index){ .items = items, .stride = stride };
	if (!nr)
		return 0;

	/* Without entropy the table still works; it is open to collisions then. */
	if (getrandom(index->key, sizeof(index->key), GRND_NONBLOCK) !=
	    sizeof(index->key))
		index->key[0] = (uintptr_t)items;

	size_t nr_slots = 16;

	while (nr_slots < 2 * nr)
		nr_slots *= 2;
	index->slots = calloc(nr_slots, sizeof(index->slots[0]));
	if (!index->slots)
		return -ENOMEM;
	index->nr_slots = nr_slots;

	for (size_t i = 0; i < nr; i++) {
		struct gguf_str name =
			*(const struct gguf_str *)item_at(index, i);
		uint64_t hash = name_hash(index->key, name);
		size_t slot = find_slot(index, name, hash);

		if (index->slots[slot]) {
			*out_dup = i;
			return -EEXIST;
		}
		index->slots[slot] = (hash >> 32 << 32) | (uint32_t)(i + 1);
	}
	return 0;
}

void gguf_index_deinit(struct gguf_index *index)
{
	free(index->slots);
	index->slots = NULL;
	index->nr_slots = 0;
}

const void *gguf_index_find(const struct gguf_index *index,
			    struct gguf_str name)
{
	if (!index->nr_slots)
		return NULL;

	size_t slot = find_slot(index, name, name_hash(index->key, name));
	uint64_t entry = index->slots[slot];

	return entry ? item_at(index, (uint32_t)entry - 1) : NULL;
}
