/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front, pools: options, the choice of a backend, references, and checks
 * before a call goes to the pool's kind. Buffers: kvpool_handle.c. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/kv/kvpool_kernel.h"
#include "engine/kv/kvpool_local.h"

enum {
	/* Of all descriptors one in so many is left to the caller. */
	CALLERS_SHARE = 4,
};

/* Every size that struct kvpool_options has had is taken; this was its first. */
static const size_t first_options_bytes =
	offsetof(struct kvpool_options, is_read_only) + sizeof(bool);

static int add_seals(int fd, int seals)
{
	return fcntl(fd, F_ADD_SEALS, seals);
}

static int call_ioctl(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}

struct kvpool_sys kvpool_sys = {
	.memfd_create = memfd_create,
	.fallocate = fallocate,
	.mmap = mmap,
	.open = open,
	.add_seals = add_seals,
	.ioctl = call_ioctl,
	.mprotect = mprotect,
	.calloc = calloc,
};

bool kvpool_is_fd_beyond_share(int fd)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_NOFILE, &limit) &&
	       (rlim_t)fd >= limit.rlim_cur - limit.rlim_cur / CALLERS_SHARE;
}

/* The caller's options as this library knows them: what he does not know is 0. */
static int take_options(const struct kvpool_options *from,
			struct kvpool_options *out_options)
{
	size_t size = from ? from->size : 0;

	if (size < first_options_bytes)
		return -EINVAL;
	for (size_t i = sizeof(*out_options); i < size; i++) {
		if (((const uint8_t *)from)[i])
			return -E2BIG;
	}
	*out_options = (struct kvpool_options){ 0 };
	memcpy(out_options, from,
	       size < sizeof(*out_options) ? size : sizeof(*out_options));
	if (!out_options->limit_bytes && !out_options->is_read_only)
		return -EINVAL;
	if (out_options->mode & ~0666u)
		return -EINVAL;
	const char *name = out_options->name;

	if (name && (!name[0] || strlen(name) >= KVPOOL_NAME_BYTES))
		return -EINVAL;
	/* A private pool that cannot be written would stay empty. */
	if (!name && out_options->is_read_only)
		return -EINVAL;
	return 0;
}

static int open_auto(const struct kvpool_options *options,
		     struct kvpool **out_pool)
{
	int fd = kvpool_kernel_device();

	if (fd >= 0)
		return kvpool_kernel_open(fd, options, out_pool);
	/* Names are the kernel's alone: why it cannot be had says more than that memfd has none. */
	if (options->name && fd != -ENODEV)
		return fd;
	return kvpool_local_open(&kvpool_memfd_ops, options, out_pool);
}

int kvpool_open(const struct kvpool_options *options, struct kvpool **out_pool)
{
	struct kvpool_options own;
	int err = take_options(options, &own);

	if (err || !out_pool)
		return err ? err : -EINVAL;
	switch (own.backend) {
	case KVPOOL_BACKEND_AUTO:
		return open_auto(&own, out_pool);
	case KVPOOL_BACKEND_KERNEL: {
		int fd = kvpool_kernel_device();

		return fd < 0 ? fd : kvpool_kernel_open(fd, &own, out_pool);
	}
	case KVPOOL_BACKEND_MEMFD:
		return kvpool_local_open(&kvpool_memfd_ops, &own, out_pool);
	case KVPOOL_BACKEND_CUDA:
		return kvpool_local_open(&kvpool_cuda_ops, &own, out_pool);
	}
	return -EINVAL;
}

int kvpool_open_fd(int fd, struct kvpool **out_pool)
{
	return out_pool && fd >= 0 ? kvpool_kernel_open_fd(fd, out_pool) :
				     -EINVAL;
}

struct kvpool *kvpool_get(struct kvpool *pool)
{
	if (pool)
		atomic_fetch_add_explicit(&pool->nr_refs, 1,
					  memory_order_relaxed);
	return pool;
}

void kvpool_put(struct kvpool *pool)
{
	if (pool && atomic_fetch_sub_explicit(&pool->nr_refs, 1,
					      memory_order_acq_rel) == 1)
		pool->calls->destroy(pool);
}

const char *kvpool_backend_name(const struct kvpool *pool)
{
	return pool->backend_name;
}

unsigned int kvpool_features(const struct kvpool *pool)
{
	return pool->features;
}

size_t kvpool_page_bytes(const struct kvpool *pool)
{
	return pool->page_bytes;
}

int kvpool_stat(struct kvpool *pool, struct kvpool_stat *out_stat)
{
	return pool && out_stat ? pool->calls->stat(pool, out_stat) : -EINVAL;
}

int kvpool_set_limit(struct kvpool *pool, uint64_t limit_bytes)
{
	return pool && limit_bytes ? pool->calls->set_limit(pool, limit_bytes) :
				     -EINVAL;
}

int kvpool_set_quota(struct kvpool *pool, uid_t uid, uint64_t bytes,
		     uint64_t shared_bytes)
{
	if (!pool || uid == (uid_t)-1)
		return -EINVAL;
	return pool->calls->set_quota ?
		       pool->calls->set_quota(pool, uid, bytes, shared_bytes) :
		       -EOPNOTSUPP;
}

uint64_t kvpool_trim(struct kvpool *pool, uint64_t bytes)
{
	return pool && bytes ? pool->calls->trim(pool, bytes) : 0;
}

uint64_t kvpool_purge(struct kvpool *pool, uint64_t bytes)
{
	return pool && bytes && pool->calls->purge ?
		       pool->calls->purge(pool, bytes) :
		       0;
}

int kvpool_device_id(struct kvpool *pool,
		     uint8_t out_id[KVPOOL_DEVICE_ID_BYTES])
{
	if (!pool || !out_id)
		return -EINVAL;
	return pool->calls->device_id ? pool->calls->device_id(pool, out_id) :
					-EOPNOTSUPP;
}

int kvpool_secret(struct kvpool *pool, uint8_t out_secret[KVPOOL_KEY_BYTES])
{
	return pool && out_secret ? pool->calls->secret(pool, out_secret) :
				    -EINVAL;
}

int kvpool_pool_fd(struct kvpool *pool)
{
	if (!pool)
		return -EINVAL;
	return pool->calls->pool_fd ? pool->calls->pool_fd(pool) : -EOPNOTSUPP;
}

int kvpool_next_pool(uint64_t *id, struct kvpool_pool_info *out_info)
{
	return id && out_info ? kvpool_kernel_next_pool(id, out_info) : -EINVAL;
}

int kvpool_next_buf(struct kvpool *pool, uint64_t *id,
		    struct kvpool_buf_stat *out_stat)
{
	if (!pool || !id || !out_stat)
		return -EINVAL;
	return pool->calls->next_buf ?
		       pool->calls->next_buf(pool, id, out_stat) :
		       -EOPNOTSUPP;
}

int kvpool_fence(struct kvpool *pool, void *stream)
{
	if (!pool)
		return -EINVAL;
	return pool->calls->fence ? pool->calls->fence(pool, stream) :
				    -EOPNOTSUPP;
}

void *kvpool_base(struct kvpool *pool)
{
	return pool && pool->calls->base ? pool->calls->base(pool) : NULL;
}

int kvpool_event_fd(struct kvpool *pool)
{
	return pool ? pool->calls->event_fd(pool) : -EINVAL;
}

int kvpool_events(struct kvpool *pool, struct kvpool_event *out_events,
		  size_t nr, uint64_t *out_lost)
{
	if (!pool || (nr && !out_events))
		return -EINVAL;
	return pool->calls->events(pool, out_events, nr, out_lost);
}
