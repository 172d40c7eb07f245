/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publication in local pools: the table of keys, look-up, and descriptors that travel between
 * processes. Pools are private to the process here, so every key is of its own
 * uid. A publication is one reference on the memory. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/kvpool_local.h"

static struct kvpool_key_entry **bucket_of(struct kvpool_local *pool,
					   const struct kvpool_key *key)
{
	uint64_t hash;

	/* Keys are hashes as a rule, but nobody has to keep to it. */
	memcpy(&hash, key->bytes, sizeof(hash));
	hash *= 0x9e3779b97f4a7c15ull;
	return &pool->key_buckets[(hash >> 32) & (pool->nr_key_buckets - 1)];
}

static struct kvpool_key_entry *find_key(struct kvpool_local *pool,
					 const struct kvpool_key *key)
{
	if (!pool->nr_key_buckets)
		return NULL;
	struct kvpool_key_entry *entry = *bucket_of(pool, key);

	while (entry && memcmp(&entry->key, key, sizeof(*key)))
		entry = entry->next;
	return entry;
}

static int grow_table(struct kvpool_local *pool, size_t nr_keys)
{
	size_t nr = pool->nr_key_buckets ? pool->nr_key_buckets :
					   KVPOOL_MIN_KEY_BUCKETS;

	while (nr < nr_keys)
		nr *= 2;
	if (nr == pool->nr_key_buckets)
		return 0;
	struct kvpool_key_entry **old = pool->key_buckets;
	size_t nr_old = pool->nr_key_buckets;
	struct kvpool_key_entry **buckets =
		kvpool_sys.calloc(nr, sizeof(struct kvpool_key_entry *));

	if (!buckets)
		return -ENOMEM;
	pool->key_buckets = buckets;
	pool->nr_key_buckets = nr;
	for (size_t i = 0; i < nr_old; i++) {
		struct kvpool_key_entry *entry = old[i], *next;

		for (; entry; entry = next) {
			struct kvpool_key_entry **bucket =
				bucket_of(pool, &entry->key);

			next = entry->next;
			entry->next = *bucket;
			*bucket = entry;
		}
	}
	free(old);
	return 0;
}

static void unlink_from_bucket(struct kvpool_local *pool,
			       struct kvpool_key_entry *entry)
{
	struct kvpool_key_entry **link = bucket_of(pool, &entry->key);

	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	pool->nr_keys--;
}

static void unlink_from_mem(struct kvpool_key_entry *entry)
{
	struct kvpool_key_entry **link = &entry->mem->keys;

	while (*link != entry)
		link = &(*link)->next_of_mem;
	*link = entry->next_of_mem;
}

static void set_published_locked(struct kvpool_mem *mem, bool value)
{
	uint64_t bytes = mem->nr_committed * kvpool_page(mem);

	if (value)
		mem->pool->shared_bytes += bytes;
	else
		mem->pool->shared_bytes -= bytes;
	mem->is_published = value;
	kvpool_owner_update_locked(mem);
}

/* The charge moves to the owner's shared account before anything else does. */
static int set_publishing_locked(struct kvpool_mem *mem, bool value)
{
	bool was_shared = mem->is_publishing || mem->is_published;
	struct kvpool_owner *account = mem->account;
	uint64_t bytes = mem->owner_bytes;

	if (value && !was_shared && account &&
	    (account->shared_bytes > account->shared_quota_bytes ||
	     bytes > account->shared_quota_bytes - account->shared_bytes))
		return -EDQUOT;
	mem->is_publishing = value;
	kvpool_owner_update_locked(mem);
	return 0;
}

void kvpool_keys_remove_locked(struct kvpool_mem *mem)
{
	struct kvpool_key_entry *entry = mem->keys, *next;

	for (; entry; entry = next) {
		next = entry->next_of_mem;
		unlink_from_bucket(mem->pool, entry);
		free(entry);
	}
	mem->keys = NULL;
	if (mem->is_published)
		set_published_locked(mem, false);
}

/* A key that moved to a newer buffer; the older one may have lost its last. */
static void replace_key_locked(struct kvpool_local *pool,
			       struct kvpool_key_entry *entry)
{
	struct kvpool_mem *mem = entry->mem;

	unlink_from_bucket(pool, entry);
	unlink_from_mem(entry);
	free(entry);
	if (!mem->keys) {
		set_published_locked(mem, false);
		kvpool_mem_put_locked(mem);
	}
}

static void insert_keys_locked(struct kvpool_mem *mem,
			       const struct kvpool_mark *marks, size_t nr,
			       struct kvpool_key_entry *fresh)
{
	struct kvpool_local *pool = mem->pool;

	if (!mem->is_published) {
		set_published_locked(mem, true);
		mem->nr_refs++;
	}
	/* One more, so that moving its own keys about cannot end it. */
	mem->nr_refs++;
	for (size_t i = 0; i < nr; i++) {
		struct kvpool_key_entry *entry = fresh, *old;

		fresh = fresh->next;
		entry->key = marks[i].key;
		entry->n_bytes = marks[i].n_bytes;
		entry->mem = mem;
		struct kvpool_key_entry **bucket = bucket_of(pool, &entry->key);

		old = find_key(pool, &entry->key);
		entry->next = *bucket;
		*bucket = entry;
		entry->next_of_mem = mem->keys;
		mem->keys = entry;
		pool->nr_keys++;
		if (old)
			replace_key_locked(pool, old);
	}
	mem->nr_refs--;
	pool->publishes++;
}

static void free_entries(struct kvpool_key_entry *entry)
{
	while (entry) {
		struct kvpool_key_entry *next = entry->next;

		free(entry);
		entry = next;
	}
}

static int alloc_entries(size_t nr, struct kvpool_key_entry **out_list)
{
	*out_list = NULL;
	for (size_t i = 0; i < nr; i++) {
		struct kvpool_key_entry *entry =
			kvpool_sys.calloc(1, sizeof(*entry));

		if (!entry) {
			free_entries(*out_list);
			return -ENOMEM;
		}
		entry->next = *out_list;
		*out_list = entry;
	}
	return 0;
}

/*
 * Write-seal the whole memory; mem->lock held. Whoever gets its descriptor can read all of it, so
 * pages that are not sealed go first, spare ones and committed ones behind the seal: recycled
 * pages hold other people's KV. Where one cannot be punched out nothing is published.
 */
static int protect(struct kvpool_mem *mem)
{
	uint64_t end = kvpool_nr_pages(mem), page = 0, len;
	uint64_t keep = kvpool_to_pages(mem, mem->sealed_n);
	uint64_t nr_dropped = kvpool_map_count(mem->committed, keep, end);
	uint64_t nr_punched = 0;
	int err = 0;

	if (mem->is_protected)
		return 0;
	kvpool_map_set(mem->committed, keep, end, false);
	while (!err && (len = kvpool_map_run(mem->present, mem->committed,
					     &page, end))) {
		int64_t gone = mem->pool->ops->punch(mem, page, page + len);

		if (gone < 0)
			err = (int)gone;
		else
			nr_punched += (uint64_t)gone;
		page += len;
	}
	if (!err)
		err = mem->pool->ops->protect(mem);
	mem->is_protected = !err;
	pthread_mutex_lock(&mem->pool->lock);
	kvpool_account_locked(mem, -(int64_t)nr_dropped, -(int64_t)nr_punched);
	pthread_mutex_unlock(&mem->pool->lock);
	return err;
}

int kvpool_local_publish(struct kvpool_buf *buf,
			 const struct kvpool_mark *marks, size_t nr)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	struct kvpool_local *pool = mem->pool;
	struct kvpool_key_entry *fresh;
	int err = alloc_entries(nr, &fresh);
	bool is_charged = false;

	if (err)
		return err;
	pthread_mutex_lock(&mem->lock);
	for (size_t i = 0; i < nr && !err; i++) {
		if (!marks[i].n_bytes)
			err = -EINVAL;
		else if (marks[i].n_bytes > mem->sealed_n)
			err = -EPERM;
	}
	if (!err) {
		pthread_mutex_lock(&pool->lock);
		err = mem->is_volatile ? -EPERM :
					 grow_table(pool, pool->nr_keys + nr);
		if (!err)
			err = set_publishing_locked(mem, true);
		pthread_mutex_unlock(&pool->lock);
		is_charged = !err;
	}
	if (!err)
		err = protect(mem);
	pthread_mutex_unlock(&mem->lock);
	pthread_mutex_lock(&pool->lock);
	if (!err)
		insert_keys_locked(mem, marks, nr, fresh);
	if (is_charged)
		set_publishing_locked(mem, false);
	pthread_mutex_unlock(&pool->lock);
	if (err)
		free_entries(fresh);
	return err;
}

int kvpool_local_unpublish(struct kvpool_buf *buf)
{
	struct kvpool_mem *mem = kvpool_local_buf(buf)->mem;
	int err = -ENOENT;

	pthread_mutex_lock(&mem->pool->lock);
	if (mem->is_published) {
		kvpool_keys_remove_locked(mem);
		kvpool_mem_put_locked(mem);
		err = 0;
	}
	pthread_mutex_unlock(&mem->pool->lock);
	return err;
}

int kvpool_local_lookup(struct kvpool *base, const struct kvpool_key *key,
			struct kvpool_buf **out_buf, uint64_t *out_n,
			uid_t *out_uid)
{
	struct kvpool_local *pool = kvpool_local(base);
	struct kvpool_buf *buf;

	pthread_mutex_lock(&pool->lock);
	pool->lookups++;
	struct kvpool_key_entry *entry = find_key(pool, key);
	int err = entry ? kvpool_handle_create(entry->mem, true, &buf) :
			  -ENOENT;

	if (!err) {
		pool->hits++;
		entry->mem->nr_refs++;
		entry->mem->nr_votes++;
		kvpool_votes_changed_locked(entry->mem);
		*out_n = entry->n_bytes;
		*out_buf = buf;
		if (out_uid)
			*out_uid = geteuid();
	}
	pthread_mutex_unlock(&pool->lock);
	return err;
}

int kvpool_local_export(struct kvpool_buf *base)
{
	struct kvpool_local_buf *buf = kvpool_local_buf(base);
	struct kvpool_mem *mem = buf->mem;

	pthread_mutex_lock(&mem->lock);
	pthread_mutex_lock(&mem->pool->lock);
	int fd = mem->is_published && buf->is_needed ?
			 mem->pool->ops->export_fd(mem) :
			 -EPERM;

	if (fd >= 0)
		mem->is_exported = true;
	pthread_mutex_unlock(&mem->pool->lock);
	pthread_mutex_unlock(&mem->lock);
	return fd;
}

int kvpool_local_import(struct kvpool *base, int fd, uint64_t stride_bytes,
			struct kvpool_buf **out_buf)
{
	struct kvpool_local *pool = kvpool_local(base);
	struct kvpool_mem *mem;
	int err = pool->ops->import_fd(pool, fd, stride_bytes, &mem);

	if (err)
		return err;
	mem->sealed_n = mem->size_bytes;
	mem->is_protected = true;
	mem->is_imported = true;
	pthread_mutex_lock(&pool->lock);
	kvpool_mem_insert_locked(mem);
	err = kvpool_handle_create(mem, true, out_buf);
	if (err)
		kvpool_mem_put_locked(mem);
	pthread_mutex_unlock(&pool->lock);
	return err;
}
