/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel backend, pools: the device, joining and creating, limits, numbers
 * and events. Buffers: kvpool_kernel_buf.c. Called by the front. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/kvpool_abi.h"
#include "engine/kv/kvpool_kernel.h"

_Static_assert((int)KVPOOL_NAME_BYTES == KVPOOL_NAME_SIZE, "names");
_Static_assert((int)KVPOOL_KEY_BYTES == KVPOOL_KEY_SIZE, "keys");

enum {
	/* A pool may come and go between our opening and our creating it, but not for ever. */
	MAX_TRIES = 100,
	DEFAULT_MODE = 0600,
	EVENTS_AT_ONCE = 16,
	/* Of one PUBLISH, where the device cannot be asked; no module takes fewer. */
	FEWEST_MARKS = 16,
};

int kvpool_kernel_call(int fd, unsigned int call, void *arg)
{
	return kvpool_sys.ioctl(fd, call, arg) < 0 ? -errno : 0;
}

static int read_info(int device, struct kvpool_info *out_info)
{
	*out_info = (struct kvpool_info){ .size = sizeof(*out_info) };
	int err = kvpool_kernel_call(device, KVPOOL_INFO, out_info);

	if (err)
		return err == -ENOTTY ? -ENODEV : err;
	return out_info->out_abi_version == KVPOOL_ABI_VERSION ? 0 :
								 -EOPNOTSUPP;
}

int kvpool_kernel_device(void)
{
	struct kvpool_info info;
	int fd = kvpool_sys.open(KVPOOL_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == ENXIO ? -ENODEV : -errno;
	int err = read_info(fd, &info);

	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

/* ---- joining and creating ------------------------------------------------ */

static int join(int device, const struct kvpool_options *options, int *out_fd)
{
	struct kvpool_pool_open arg = {
		.size = sizeof(arg),
		.flags = KVPOOL_READ |
			 (options->is_read_only ? 0 : KVPOOL_WRITE),
	};

	strcpy((char *)arg.name, options->name);
	int err = kvpool_kernel_call(device, KVPOOL_POOL_OPEN, &arg);

	*out_fd = arg.out_fd;
	return err;
}

static int create(int device, const struct kvpool_options *options, int *out_fd)
{
	uint64_t reserve = options->spare_limit_bytes;
	struct kvpool_pool_create arg = {
		.size = sizeof(arg),
		.flags = (options->is_small_pages ? 0 : KVPOOL_POOL_NO_ORDER) |
			 (options->is_shared_keys ? KVPOOL_POOL_SHARED : 0),
		.limit = options->limit_bytes,
		.quota = options->quota_bytes ? options->quota_bytes :
						KVPOOL_UNLIMITED,
		.shared_quota = options->shared_quota_bytes ?
					options->shared_quota_bytes :
					KVPOOL_UNLIMITED,
		.reserve = reserve < options->limit_bytes ?
				   reserve :
				   options->limit_bytes,
		.node_mask = options->node_mask,
		.mode = options->mode ? options->mode : DEFAULT_MODE,
	};

	if (options->name)
		strcpy((char *)arg.name, options->name);
	int err = kvpool_kernel_call(device, KVPOOL_POOL_CREATE, &arg);

	*out_fd = arg.out_fd;
	return err;
}

static int join_or_create(int device, const struct kvpool_options *options,
			  int *out_fd)
{
	int err = -EEXIST;

	if (!options->name)
		return create(device, options, out_fd);
	for (int i = 0; i < MAX_TRIES && err == -EEXIST; i++) {
		err = join(device, options, out_fd);
		if (err != -ENOENT || options->is_read_only)
			return err;
		err = create(device, options, out_fd);
	}
	return err;
}

static const struct kvpool_calls kernel_calls;

/* @fd is taken, also on an error. @info may be all zero. */
static int make_pool(int fd, const struct kvpool_info *info,
		     struct kvpool **out_pool)
{
	struct kvpool_kernel *pool = kvpool_sys.calloc(1, sizeof(*pool));
	int flags = fcntl(fd, F_GETFL);

	/* Of the open description: whoever shares it reads events as we do. */
	if (!pool || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) {
		int err = pool ? -errno : -ENOMEM;

		free(pool);
		close(fd);
		return err;
	}
	pool->base.calls = &kernel_calls;
	pool->base.backend_name = "kernel";
	pool->base.features = KVPOOL_F_QUOTA | KVPOOL_F_SHARED |
			      KVPOOL_F_REVOKE | KVPOOL_F_EXPORT;
	if (info->out_features & KVPOOL_FEATURE_PURGE)
		pool->base.features |= KVPOOL_F_PURGE;
	pool->base.page_bytes = info->out_page_size ?
					info->out_page_size :
					(size_t)sysconf(_SC_PAGESIZE);
	atomic_init(&pool->base.nr_refs, 1);
	pool->fd = fd;
	pool->max_marks = info->out_max_marks ? info->out_max_marks :
						FEWEST_MARKS;
	pool->huge_bytes = info->out_huge_size;
	pthread_mutex_init(&pool->event_lock, NULL);
	*out_pool = &pool->base;
	return 0;
}

int kvpool_kernel_open(int device, const struct kvpool_options *options,
		       struct kvpool **out_pool)
{
	struct kvpool_info info;
	int fd, err = read_info(device, &info);

	if (!err)
		err = join_or_create(device, options, &fd);
	close(device);
	return err ? err : make_pool(fd, &info, out_pool);
}

int kvpool_kernel_open_fd(int fd, struct kvpool **out_pool)
{
	struct kvpool_pool_stat stat = { .size = sizeof(stat),
					 .uid = KVPOOL_NO_UID };
	struct kvpool_info info = { 0 };

	if (kvpool_kernel_call(fd, KVPOOL_POOL_STAT, &stat))
		return -EINVAL;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* Who was given a pool may be somebody who cannot open the device. */
	int device = kvpool_kernel_device();

	if (device >= 0) {
		if (read_info(device, &info))
			info = (struct kvpool_info){ 0 };
		close(device);
	}
	return make_pool(fd, &info, out_pool);
}

static void kernel_destroy(struct kvpool *base)
{
	struct kvpool_kernel *pool = kvpool_kernel(base);

	close(pool->fd);
	pthread_mutex_destroy(&pool->event_lock);
	free(pool);
}

static int kernel_pool_fd(struct kvpool *pool)
{
	return kvpool_kernel(pool)->fd;
}

int kvpool_kernel_next_pool(uint64_t *id, struct kvpool_pool_info *out_info)
{
	struct kvpool_pool_next arg = { .size = sizeof(arg), .id = *id };
	int device = kvpool_kernel_device();

	if (device < 0)
		return device;
	int err = kvpool_kernel_call(device, KVPOOL_POOL_NEXT, &arg);

	close(device);
	if (err)
		return err;
	*out_info = (struct kvpool_pool_info){
		.id = arg.id,
		.limit_bytes = arg.out_limit,
		.charged_bytes = arg.out_charged,
		.owner = arg.out_uid,
		.mode = arg.out_mode,
	};
	memcpy(out_info->name, arg.out_name, sizeof(out_info->name) - 1);
	*id = arg.id;
	return 0;
}

/* ---- numbers and limits -------------------------------------------------- */

static int kernel_stat(struct kvpool *base, struct kvpool_stat *out_stat)
{
	struct kvpool_kernel *pool = kvpool_kernel(base);
	struct kvpool_pool_stat arg = { .size = sizeof(arg),
					.uid = KVPOOL_NO_UID };
	int err = kvpool_kernel_call(pool->fd, KVPOOL_POOL_STAT, &arg);

	if (err)
		return err;
	*out_stat = (struct kvpool_stat){
		.limit_bytes = arg.out_limit,
		.resident_bytes = arg.out_resident,
		.spare_bytes = arg.out_reserve,
		.charged_bytes = arg.out_charged,
		.draining_bytes = arg.out_draining,
		.volatile_bytes = arg.out_volatile,
		.shared_bytes = arg.out_shared,
		.virtual_bytes = atomic_load(&pool->virtual_bytes),
		.nr_buffers = arg.out_nr_bufs,
		.nr_keys = arg.out_nr_keys,
		.commits = arg.out_commits,
		.releases = arg.out_releases,
		.seals = arg.out_seals,
		.publishes = arg.out_publishes,
		.lookups = arg.out_lookups,
		.hits = arg.out_hits,
		.purges = arg.out_purges,
		.peak_resident_bytes = arg.out_peak,
	};
	return 0;
}

static int kernel_set_limit(struct kvpool *pool, uint64_t limit_bytes)
{
	struct kvpool_pool_set_limit arg = { .size = sizeof(arg),
					     .limit = limit_bytes };

	return kvpool_kernel_call(kvpool_kernel(pool)->fd,
				  KVPOOL_POOL_SET_LIMIT, &arg);
}

static int kernel_set_quota(struct kvpool *pool, uid_t uid, uint64_t bytes,
			    uint64_t shared_bytes)
{
	struct kvpool_pool_set_quota arg = { .size = sizeof(arg),
					     .uid = uid,
					     .quota = bytes,
					     .shared_quota = shared_bytes };

	return kvpool_kernel_call(kvpool_kernel(pool)->fd,
				  KVPOOL_POOL_SET_QUOTA, &arg);
}

static uint64_t kernel_trim(struct kvpool *pool, uint64_t bytes)
{
	struct kvpool_pool_trim arg = { .size = sizeof(arg), .bytes = bytes };

	return kvpool_kernel_call(kvpool_kernel(pool)->fd, KVPOOL_POOL_TRIM,
				  &arg) ?
		       0 :
		       arg.out_bytes;
}

static int kernel_secret(struct kvpool *pool, uint8_t *out_secret)
{
	struct kvpool_pool_secret arg = { .size = sizeof(arg) };
	int err = kvpool_kernel_call(kvpool_kernel(pool)->fd,
				     KVPOOL_POOL_SECRET, &arg);

	if (!err)
		memcpy(out_secret, arg.out_secret, sizeof(arg.out_secret));
	explicit_bzero(&arg, sizeof(arg));
	return err;
}

/* ---- events -------------------------------------------------------------- */

/* One record of the kernel's. Return: whether it is an event to hand out. */
static bool take_record(struct kvpool_kernel *pool,
			const struct kvpool_event_record *record,
			struct kvpool_event *out_event)
{
	*out_event = (struct kvpool_event){ .bytes = record->bytes };
	switch (record->kind) {
	case KVPOOL_ABI_EVENT_PRESSURE:
		out_event->type = KVPOOL_EVENT_PRESSURE;
		return true;
	case KVPOOL_ABI_EVENT_LIMIT:
		out_event->type = KVPOOL_EVENT_LIMIT;
		return true;
	case KVPOOL_ABI_EVENT_PURGED:
		out_event->type = KVPOOL_EVENT_PURGED;
		out_event->buf_id = record->id;
		return true;
	case KVPOOL_EVENT_LOST:
		pool->nr_lost_events += record->count;
		return false;
	}
	return false; /* of a kind that came after this library */
}

static int kernel_events(struct kvpool *base, struct kvpool_event *out_events,
			 size_t nr, uint64_t *out_lost)
{
	struct kvpool_kernel *pool = kvpool_kernel(base);
	struct kvpool_event_record records[EVENTS_AT_ONCE];
	size_t taken = 0;

	pthread_mutex_lock(&pool->event_lock);
	while (taken < nr) {
		size_t wanted = nr - taken < EVENTS_AT_ONCE ? nr - taken :
							      EVENTS_AT_ONCE;
		ssize_t got =
			read(pool->fd, records, wanted * sizeof(records[0]));

		if (got <= 0)
			break;
		for (size_t i = 0; i < (size_t)got / sizeof(records[0]); i++)
			taken += take_record(pool, &records[i],
					     &out_events[taken]);
	}
	if (out_lost) {
		*out_lost = pool->nr_lost_events;
		pool->nr_lost_events = 0;
	}
	pthread_mutex_unlock(&pool->event_lock);
	return (int)taken;
}

static const struct kvpool_calls kernel_calls = {
	.destroy = kernel_destroy,
	.stat = kernel_stat,
	.set_limit = kernel_set_limit,
	.set_quota = kernel_set_quota,
	.trim = kernel_trim,
	.secret = kernel_secret,
	.pool_fd = kernel_pool_fd,
	.event_fd = kernel_pool_fd,
	.events = kernel_events,
	.next_buf = kvpool_kernel_next_buf,
	.create = kvpool_kernel_create,
	.open = kvpool_kernel_buf_open,
	.lookup = kvpool_kernel_lookup,
	.import = kvpool_kernel_import,
	.free = kvpool_kernel_free,
	.commit = kvpool_kernel_commit,
	.release = kvpool_kernel_release,
	.seal = kvpool_kernel_seal,
	.clone = kvpool_kernel_clone,
	.buf_stat = kvpool_kernel_buf_stat,
	.publish = kvpool_kernel_publish,
	.unpublish = kvpool_kernel_unpublish,
	.advise = kvpool_kernel_advise,
	.revoke = kvpool_kernel_revoke,
	.export_fd = kvpool_kernel_export,
};
