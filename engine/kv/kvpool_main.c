/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: opening by backend, limits, numbers. What happens to a buffer is in
 * kvpool_buf.c and kvpool_publish.c. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/kv/kvpool_private.h"

static const char device_path[] = "/dev/kvpool";

/*
 * This library speaks to memfd. The kernel's device and CUDA are refused by what is missing: the
 * device itself, or this library's support for it.
 */
static int backend_ops(enum kvpool_backend backend,
		       const struct kvpool_backend_ops **out_ops)
{
	*out_ops = NULL;
	switch (backend) {
	case KVPOOL_BACKEND_AUTO:
	case KVPOOL_BACKEND_MEMFD:
		*out_ops = &kvpool_memfd_ops;
		return 0;
	case KVPOOL_BACKEND_KERNEL:
		return access(device_path, F_OK) ? -ENODEV : -EOPNOTSUPP;
	case KVPOOL_BACKEND_CUDA:
		return -EOPNOTSUPP;
	}
	return -EINVAL;
}

int kvpool_open(const struct kvpool_options *options, struct kvpool **out_pool)
{
	const struct kvpool_backend_ops *ops;

	if (!options || !out_pool || !options->limit_bytes)
		return -EINVAL;
	if (options->name &&
	    (!options->name[0] || strlen(options->name) >= KVPOOL_NAME_BYTES))
		return -EINVAL;
	int err = backend_ops(options->backend, &ops);

	if (err)
		return err;
	struct kvpool *pool = kvpool_sys.calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->ops = ops;
	pool->limit_bytes = options->limit_bytes;
	pool->spare_limit_bytes = options->spare_limit_bytes;
	atomic_init(&pool->nr_refs, 1);
	TAILQ_INIT(&pool->live);
	TAILQ_INIT(&pool->idle);
	TAILQ_INIT(&pool->live_spare);
	TAILQ_INIT(&pool->volatiles);
	err = ops->open(pool, options);
	if (err)
		goto err_free;
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0) {
		err = -errno;
		goto err_free;
	}
	pthread_mutex_init(&pool->lock, NULL);
	*out_pool = pool;
	return 0;

err_free:
	free(pool);
	return err;
}

struct kvpool *kvpool_get(struct kvpool *pool)
{
	if (pool)
		atomic_fetch_add_explicit(&pool->nr_refs, 1,
					  memory_order_relaxed);
	return pool;
}

/* No handle is left: what lives on is published or idle, and goes with the pool. */
static void destroy_pool(struct kvpool *pool)
{
	struct kvpool_mem *mem;

	pthread_mutex_lock(&pool->lock);
	while ((mem = TAILQ_FIRST(&pool->live))) {
		kvpool_keys_remove_locked(mem);
		kvpool_mem_put_locked(mem);
	}
	kvpool_drop_spare_locked(pool, UINT64_MAX, NULL);
	while ((mem = TAILQ_FIRST(&pool->idle))) {
		TAILQ_REMOVE(&pool->idle, mem, link);
		kvpool_mem_free(mem);
	}
	pthread_mutex_unlock(&pool->lock);
	close(pool->event_fd);
	pthread_mutex_destroy(&pool->lock);
	free(pool->key_buckets);
	free(pool);
}

void kvpool_put(struct kvpool *pool)
{
	if (pool && atomic_fetch_sub_explicit(&pool->nr_refs, 1,
					      memory_order_acq_rel) == 1)
		destroy_pool(pool);
}

const char *kvpool_backend_name(const struct kvpool *pool)
{
	return pool->ops->name;
}

unsigned int kvpool_features(const struct kvpool *pool)
{
	return pool->ops->features;
}

size_t kvpool_page_bytes(const struct kvpool *pool)
{
	(void)pool;
	return KVPOOL_PAGE_BYTES;
}

int kvpool_stat(struct kvpool *pool, struct kvpool_stat *out_stat)
{
	if (!pool || !out_stat)
		return -EINVAL;
	pthread_mutex_lock(&pool->lock);
	*out_stat = (struct kvpool_stat){
		.limit_bytes = pool->limit_bytes,
		.resident_bytes = pool->resident_bytes,
		.spare_bytes = pool->spare_bytes,
		.volatile_bytes = pool->volatile_bytes,
		.shared_bytes = pool->shared_bytes,
		.virtual_bytes = pool->virtual_bytes,
		.nr_buffers = pool->nr_live,
		.nr_keys = pool->nr_keys,
		.commits = pool->commits,
		.releases = pool->releases,
		.seals = pool->seals,
		.publishes = pool->publishes,
		.lookups = pool->lookups,
		.hits = pool->hits,
		.purges = pool->purges,
		.peak_resident_bytes = pool->peak_resident_bytes,
	};
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

int kvpool_set_limit(struct kvpool *pool, uint64_t limit_bytes)
{
	if (!pool || !limit_bytes)
		return -EINVAL;
	pthread_mutex_lock(&pool->lock);
	pool->limit_bytes = limit_bytes;
	uint64_t total = pool->resident_bytes + pool->spare_bytes;

	if (total > limit_bytes)
		kvpool_drop_spare_locked(pool, total - limit_bytes, NULL);
	if (pool->resident_bytes > limit_bytes)
		kvpool_purge_locked(pool, pool->resident_bytes - limit_bytes,
				    NULL);
	int err = pool->resident_bytes > limit_bytes ? -EBUSY : 0;

	pthread_mutex_unlock(&pool->lock);
	return err;
}

int kvpool_set_quota(struct kvpool *pool, uid_t uid, uint64_t bytes)
{
	(void)uid;
	(void)bytes;
	return pool ? -EOPNOTSUPP : -EINVAL;
}

uint64_t kvpool_trim(struct kvpool *pool, uint64_t bytes)
{
	if (!pool || !bytes)
		return 0;
	pthread_mutex_lock(&pool->lock);
	uint64_t dropped = kvpool_drop_spare_locked(pool, bytes, NULL);

	pthread_mutex_unlock(&pool->lock);
	return dropped;
}
