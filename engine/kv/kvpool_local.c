/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools kept in this process: making and ending them, limit, numbers. What
 * happens to a buffer is in kvpool_buf.c and kvpool_publish.c. Called by the
 * front. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/kv/kvpool_local.h"

/* No handle is left: what lives on is published or idle, and goes with the pool. */
static void local_destroy(struct kvpool *base)
{
	struct kvpool_local *pool = kvpool_local(base);
	struct kvpool_mem *mem;

	if (pool->ops->stop)
		pool->ops->stop(pool);
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
	/* What did not go by now goes with the backend. */
	while ((mem = TAILQ_FIRST(&pool->draining))) {
		TAILQ_REMOVE(&pool->draining, mem, link);
		kvpool_mem_free(mem);
	}
	pthread_mutex_unlock(&pool->lock);
	if (pool->ops->close)
		pool->ops->close(pool);
	close(pool->event_fd);
	pthread_mutex_destroy(&pool->lock);
	kvpool_owners_free(pool);
	free(pool->key_buckets);
	free(pool);
}

static int local_stat(struct kvpool *base, struct kvpool_stat *out_stat)
{
	struct kvpool_local *pool = kvpool_local(base);

	pthread_mutex_lock(&pool->lock);
	*out_stat = (struct kvpool_stat){
		.limit_bytes = pool->limit_bytes,
		.resident_bytes = pool->resident_bytes,
		.spare_bytes = pool->spare_bytes,
		.volatile_bytes = pool->volatile_bytes,
		.shared_bytes = pool->shared_bytes,
		.charged_bytes = pool->resident_bytes + pool->spare_bytes +
				 pool->draining_bytes,
		.draining_bytes = pool->draining_bytes,
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

static int local_set_limit(struct kvpool *base, uint64_t limit_bytes)
{
	struct kvpool_local *pool = kvpool_local(base);

	pthread_mutex_lock(&pool->lock);
	pool->limit_bytes = limit_bytes;
	kvpool_reap_locked(pool);
	uint64_t total = pool->resident_bytes + pool->spare_bytes;

	if (total > limit_bytes)
		kvpool_drop_spare_locked(pool, total - limit_bytes, NULL);
	if (pool->resident_bytes > limit_bytes)
		kvpool_purge_locked(pool, pool->resident_bytes - limit_bytes,
				    NULL, NULL, false);
	int err = pool->resident_bytes > limit_bytes ? -EBUSY : 0;

	pthread_mutex_unlock(&pool->lock);
	return err;
}

static uint64_t local_trim(struct kvpool *base, uint64_t bytes)
{
	struct kvpool_local *pool = kvpool_local(base);

	pthread_mutex_lock(&pool->lock);
	kvpool_reap_locked(pool);
	uint64_t dropped = kvpool_drop_spare_locked(pool, bytes, NULL);

	pthread_mutex_unlock(&pool->lock);
	return dropped;
}

static uint64_t local_purge(struct kvpool *base, uint64_t bytes)
{
	struct kvpool_local *pool = kvpool_local(base);

	pthread_mutex_lock(&pool->lock);
	uint64_t purged = kvpool_purge_locked(pool, bytes, NULL, NULL, true);

	pthread_mutex_unlock(&pool->lock);
	return purged;
}

static int local_device_id(struct kvpool *base, uint8_t *out_id)
{
	struct kvpool_local *pool = kvpool_local(base);

	if (!pool->ops->device_id)
		return -EOPNOTSUPP;
	pool->ops->device_id(pool, out_id);
	return 0;
}

static int local_secret(struct kvpool *base, uint8_t *out_secret)
{
	memcpy(out_secret, kvpool_local(base)->secret, KVPOOL_KEY_BYTES);
	return 0;
}

static int local_copy(const struct kvpool_place *to,
		      const struct kvpool_place *from, uint64_t row_bytes,
		      uint64_t nr_rows)
{
	const struct kvpool_backend_ops *ops = kvpool_local(to->buf->pool)->ops;

	return ops->copy_rows(to, from, row_bytes, nr_rows);
}

static int local_fill(const struct kvpool_place *to, uint8_t value,
		      uint64_t row_bytes, uint64_t nr_rows)
{
	const struct kvpool_backend_ops *ops = kvpool_local(to->buf->pool)->ops;

	return ops->fill_rows(to, value, row_bytes, nr_rows);
}

static int local_fence(struct kvpool *base, void *stream)
{
	struct kvpool_local *pool = kvpool_local(base);

	return pool->ops->fence ? pool->ops->fence(pool, stream) : -EOPNOTSUPP;
}

static void *local_base(struct kvpool *base)
{
	struct kvpool_local *pool = kvpool_local(base);

	return pool->ops->base ? pool->ops->base(pool) : NULL;
}

static const struct kvpool_calls local_calls = {
	.destroy = local_destroy,
	.stat = local_stat,
	.set_limit = local_set_limit,
	.set_quota = kvpool_local_set_quota,
	.trim = local_trim,
	.purge = local_purge,
	.device_id = local_device_id,
	.secret = local_secret,
	.event_fd = kvpool_local_event_fd,
	.events = kvpool_local_events,
	.create = kvpool_local_create,
	.create_stride = kvpool_local_create_stride,
	.lookup = kvpool_local_lookup,
	.import = kvpool_local_import,
	.free = kvpool_local_free,
	.commit = kvpool_local_commit,
	.release = kvpool_local_release,
	.seal = kvpool_local_seal,
	.clone = kvpool_local_clone,
	.covers = kvpool_local_covers,
	.buf_stat = kvpool_local_buf_stat,
	.publish = kvpool_local_publish,
	.unpublish = kvpool_local_unpublish,
	.advise = kvpool_local_advise,
	.export_fd = kvpool_local_export,
	.copy = local_copy,
	.fill = local_fill,
	.fence = local_fence,
	.base = local_base,
};

int kvpool_local_open(const struct kvpool_backend_ops *ops,
		      const struct kvpool_options *options,
		      struct kvpool **out_pool)
{
	struct kvpool_local *pool = kvpool_sys.calloc(1, sizeof(*pool));
	int err;

	if (!pool)
		return -ENOMEM;
	pool->base.calls = &local_calls;
	pool->base.backend_name = ops->name;
	pool->base.features = ops->features;
	atomic_init(&pool->base.nr_refs, 1);
	pool->ops = ops;
	pool->limit_bytes = options->limit_bytes;
	pool->spare_limit_bytes = options->spare_limit_bytes;
	TAILQ_INIT(&pool->live);
	TAILQ_INIT(&pool->idle);
	TAILQ_INIT(&pool->live_spare);
	TAILQ_INIT(&pool->volatiles);
	TAILQ_INIT(&pool->draining);
	pool->quota_bytes = options->quota_bytes ? options->quota_bytes :
						   UINT64_MAX;
	pool->shared_quota_bytes = options->shared_quota_bytes ?
					   options->shared_quota_bytes :
					   UINT64_MAX;
	err = ops->open(pool, options);
	if (err)
		goto err_free;
	if (getrandom(pool->secret, sizeof(pool->secret), 0) !=
	    sizeof(pool->secret)) {
		err = -EIO;
		goto err_close;
	}
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0) {
		err = -errno;
		goto err_close;
	}
	pthread_mutex_init(&pool->lock, NULL);
	err = ops->start ? ops->start(pool) : 0;
	if (err)
		goto err_unlock;
	*out_pool = &pool->base;
	return 0;

err_unlock:
	pthread_mutex_destroy(&pool->lock);
	close(pool->event_fd);
err_close:
	if (ops->close)
		ops->close(pool);
err_free:
	free(pool);
	return err;
}
