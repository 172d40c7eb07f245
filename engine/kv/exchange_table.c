/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is offered to other processes: buffers with a descriptor each, found by
 * key. The lock is held for moments: neither the driver thread, which adds and
 * removes, nor the server's, which looks, waits for the other's work.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/exchange_private.h"

enum { MIN_BUCKETS = 64 };

struct exchange_entry {
	struct kvpool_key key;
	uint64_t n_bytes;
	struct exchange_offer *offer;
	struct exchange_entry *next; /* in the bucket */
};

struct exchange_offer {
	struct kvpool_buf *buf; /* a reference */
	int fd; /* of the export */
	size_t nr_entries;
	TAILQ_ENTRY(exchange_offer) link;
	struct exchange_entry entries[];
};

int exchange_table_init(struct exchange_table *table)
{
	TAILQ_INIT(&table->offers);
	table->buckets = calloc(MIN_BUCKETS, sizeof(struct exchange_entry *));
	if (!table->buckets)
		return -ENOMEM;
	table->nr_buckets = MIN_BUCKETS;
	pthread_mutex_init(&table->lock, NULL);
	return 0;
}

static void free_offer(struct exchange_offer *offer)
{
	close(offer->fd);
	kvpool_buf_put(offer->buf);
	free(offer);
}

void exchange_table_deinit(struct exchange_table *table)
{
	struct exchange_offer *offer;

	while ((offer = TAILQ_FIRST(&table->offers))) {
		TAILQ_REMOVE(&table->offers, offer, link);
		free_offer(offer);
	}
	free(table->buckets);
	pthread_mutex_destroy(&table->lock);
}

/* Keys are hashes. */
static struct exchange_entry **bucket_of(const struct exchange_table *table,
					 const struct kvpool_key *key)
{
	uint64_t hash;

	memcpy(&hash, key->bytes, sizeof(hash));
	return &table->buckets[hash & (table->nr_buckets - 1)];
}

static struct exchange_entry *find_locked(const struct exchange_table *table,
					  const struct kvpool_key *key)
{
	struct exchange_entry *entry = *bucket_of(table, key);

	while (entry && memcmp(&entry->key, key, sizeof(*key)))
		entry = entry->next;
	return entry;
}

static void insert_locked(struct exchange_table *table,
			  struct exchange_entry *entry)
{
	struct exchange_entry **bucket = bucket_of(table, &entry->key);

	entry->next = *bucket;
	*bucket = entry;
}

static void unlink_locked(struct exchange_table *table,
			  struct exchange_entry *entry)
{
	struct exchange_entry **link = bucket_of(table, &entry->key);

	while (*link && *link != entry)
		link = &(*link)->next;
	if (*link)
		*link = entry->next;
}

/* Where there is no memory for more buckets, they get longer. */
static void grow_locked(struct exchange_table *table)
{
	size_t nr = table->nr_buckets;
	struct exchange_entry **buckets;
	struct exchange_offer *offer;

	while (nr < table->nr_entries)
		nr *= 2;
	if (nr == table->nr_buckets)
		return;
	buckets = calloc(nr, sizeof(struct exchange_entry *));
	if (!buckets)
		return;
	free(table->buckets);
	table->buckets = buckets;
	table->nr_buckets = nr;
	/* The newest last, as they came: of equal keys it is the first in its bucket. */
	TAILQ_FOREACH(offer, &table->offers, link)
	{
		for (size_t i = 0; i < offer->nr_entries; i++)
			insert_locked(table, &offer->entries[i]);
	}
}

static struct exchange_offer *offer_of_locked(struct exchange_table *table,
					      const struct kvpool_buf *buf)
{
	struct exchange_offer *offer;

	TAILQ_FOREACH(offer, &table->offers, link)
	{
		if (offer->buf == buf)
			break;
	}
	return offer;
}

int exchange_table_add(struct exchange_table *table, struct kvpool_buf *buf,
		       int fd, const struct kvpool_mark *marks, size_t nr)
{
	struct exchange_offer *offer =
		calloc(1, sizeof(*offer) + nr * sizeof(offer->entries[0]));
	int err = 0;

	if (!offer)
		return -ENOMEM;
	offer->buf = buf;
	offer->fd = fd;
	offer->nr_entries = nr;
	for (size_t i = 0; i < nr; i++)
		offer->entries[i] = (struct exchange_entry){
			.key = marks[i].key,
			.n_bytes = marks[i].n_bytes,
			.offer = offer,
		};
	pthread_mutex_lock(&table->lock);
	if (offer_of_locked(table, buf))
		err = -EEXIST;
	else if (table->nr_offers == EXCHANGE_MAX_OFFERS)
		err = -EMFILE;
	for (size_t i = 0; i < nr && !err; i++)
		insert_locked(table, &offer->entries[i]);
	if (!err) {
		TAILQ_INSERT_TAIL(&table->offers, offer, link);
		table->nr_offers++;
		table->nr_entries += nr;
		kvpool_buf_get(buf);
		grow_locked(table);
	}
	pthread_mutex_unlock(&table->lock);
	if (err)
		free(offer);
	return err;
}

static void remove_locked(struct exchange_table *table,
			  struct exchange_offer *offer)
{
	for (size_t i = 0; i < offer->nr_entries; i++)
		unlink_locked(table, &offer->entries[i]);
	TAILQ_REMOVE(&table->offers, offer, link);
	table->nr_offers--;
	table->nr_entries -= offer->nr_entries;
}

bool exchange_table_remove(struct exchange_table *table, struct kvpool_buf *buf)
{
	pthread_mutex_lock(&table->lock);
	struct exchange_offer *offer = offer_of_locked(table, buf);

	if (offer)
		remove_locked(table, offer);
	pthread_mutex_unlock(&table->lock);
	/* Its last reference may go, which takes the pool's locks. */
	if (offer)
		free_offer(offer);
	return offer != NULL;
}

bool exchange_table_remove_oldest(struct exchange_table *table)
{
	pthread_mutex_lock(&table->lock);
	struct exchange_offer *offer = TAILQ_FIRST(&table->offers);

	if (offer)
		remove_locked(table, offer);
	pthread_mutex_unlock(&table->lock);
	if (offer)
		free_offer(offer);
	return offer != NULL;
}

int exchange_table_find(struct exchange_table *table,
			const struct kvpool_key *key, int *out_fd,
			uint64_t *out_n)
{
	int fd = -1;

	pthread_mutex_lock(&table->lock);
	const struct exchange_entry *entry = find_locked(table, key);

	if (entry) {
		fd = fcntl(entry->offer->fd, F_DUPFD_CLOEXEC, 0);
		*out_n = entry->n_bytes;
	}
	pthread_mutex_unlock(&table->lock);
	*out_fd = fd;
	return fd < 0 ? -ENOENT : 0;
}

size_t exchange_table_nr(struct exchange_table *table)
{
	pthread_mutex_lock(&table->lock);
	size_t nr = table->nr_offers;

	pthread_mutex_unlock(&table->lock);
	return nr;
}

void exchange_table_sweep(struct exchange_table *table)
{
	struct kvpool_buf *bufs[EXCHANGE_MAX_OFFERS];
	struct exchange_offer *offer;
	size_t nr = 0;

	pthread_mutex_lock(&table->lock);
	TAILQ_FOREACH(offer, &table->offers, link)
	bufs[nr++] = kvpool_buf_get(offer->buf);
	pthread_mutex_unlock(&table->lock);
	/* The pool's locks may be held for longer: not while others wait for the table. */
	for (size_t i = 0; i < nr; i++) {
		struct kvpool_buf_stat stat;

		if (kvpool_buf_stat(bufs[i], &stat) || !stat.is_published)
			exchange_table_remove(table, bufs[i]);
		kvpool_buf_put(bufs[i]);
	}
}
