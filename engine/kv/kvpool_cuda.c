/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend: opening a device, memories and their addresses, protection.
 * Physical memory is kvpool_cuda_handle.c's. Called by the front of local pools.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/kvpool_cuda.h"
#include "engine/kv/kvpool_cuda_message.h"

enum {
	/*
	 * Addresses per byte of the device: every cached segment has a range of its longest
	 * context, most of it empty.
	 */
	ADDRESSES_PER_BYTE = 64,
};

/* ---- devices ------------------------------------------------------------- */

static int attribute(const struct cuda_driver *driver, int device, int which)
{
	int value = 0;

	return driver->DeviceGetAttribute(&value, which, device) ? 0 : value;
}

static int find_device(uint32_t ordinal, const struct cuda_driver **out_driver,
		       int *out_device, char *err, size_t errlen)
{
	const struct cuda_driver *driver;
	int rc = cuda_driver_get(&driver, err, errlen);

	if (rc)
		return rc;
	if (ordinal > INT32_MAX ||
	    driver->DeviceGet(out_device, (int)ordinal)) {
		if (err)
			snprintf(err, errlen, "no GPU %u here", ordinal);
		return -ENODEV;
	}
	if (!attribute(driver, *out_device, CUDA_ATTR_VMM) ||
	    !attribute(driver, *out_device, CUDA_ATTR_POSIX_FD)) {
		if (err)
			snprintf(err, errlen,
				 "GPU %u has no virtual memory management",
				 ordinal);
		return -EOPNOTSUPP;
	}
	*out_driver = driver;
	return 0;
}

int kvpool_cuda_check(uint32_t device, char *err, size_t errlen)
{
	const struct cuda_driver *driver;
	int found;

	return find_device(device, &driver, &found, errlen ? err : NULL,
			   errlen);
}

static int read_memory(const struct cuda_driver *driver, cuda_context context,
		       uint64_t *out_free, uint64_t *out_total)
{
	size_t free_bytes, total_bytes;
	int err = cuda_errno(driver->CtxPushCurrent(context));

	if (err)
		return err;
	err = cuda_errno(driver->MemGetInfo(&free_bytes, &total_bytes));
	driver->CtxPopCurrent(&context);
	if (err)
		return err;
	*out_free = free_bytes;
	if (out_total)
		*out_total = total_bytes;
	return 0;
}

int kvpool_cuda_memory(uint32_t device, uint64_t *out_free, uint64_t *out_total)
{
	const struct cuda_driver *driver;
	cuda_context context;
	int found, err;

	if (!out_free)
		return -EINVAL;
	err = find_device(device, &driver, &found, NULL, 0);
	if (!err)
		err = cuda_errno(
			driver->DevicePrimaryCtxRetain(&context, found));
	if (err)
		return err;
	err = read_memory(driver, context, out_free, out_total);
	driver->DevicePrimaryCtxRelease(found);
	return err;
}

/* What can be asked of the device, and addresses. */
static int read_device(struct kvpool_cuda *cuda)
{
	const struct cuda_driver *driver = cuda->driver;
	struct cuda_alloc_prop prop;
	size_t total, granule;

	kvpool_cuda_prop(cuda, &prop);
	int err = cuda_errno(driver->DeviceTotalMem(&total, cuda->device));

	if (!err)
		err = cuda_errno(
			driver->DeviceGetUuid(&cuda->uuid, cuda->device));
	if (!err)
		err = cuda_errno(driver->MemGetAllocationGranularity(
			&granule, &prop, CUDA_GRANULARITY_MINIMUM));
	if (err)
		return err;
	if (!granule || granule > total)
		return -EOPNOTSUPP;
	cuda->page_bytes = granule;
	return kvpool_cuda_ranges_init(cuda, total * ADDRESSES_PER_BYTE, total);
}

/* The stream is of the context, which is current only here. */
static int make_stream(struct kvpool_cuda *cuda)
{
	cuda_context context;
	int err = cuda_errno(cuda->driver->CtxPushCurrent(cuda->context));

	if (err)
		return err;
	err = cuda_errno(cuda->driver->StreamCreate(&cuda->stream,
						    CUDA_STREAM_NON_BLOCKING));
	cuda->driver->CtxPopCurrent(&context);
	return err;
}

static int open_device(struct kvpool_cuda *cuda, uint32_t ordinal)
{
	int err = find_device(ordinal, &cuda->driver, &cuda->device, NULL, 0);

	if (err)
		return err;
	err = cuda_errno(cuda->driver->DevicePrimaryCtxRetain(&cuda->context,
							      cuda->device));
	if (err)
		return err;
	err = read_device(cuda);
	if (err)
		goto err_release;
	err = make_stream(cuda);
	if (err)
		goto err_ranges;
	return 0;

err_ranges:
	kvpool_cuda_ranges_deinit(cuda);
err_release:
	cuda->driver->DevicePrimaryCtxRelease(cuda->device);
	return err;
}

static int cuda_open(struct kvpool_local *pool,
		     const struct kvpool_options *options)
{
	/* A pool is of this process, and a GPU's memory lies on no node of the host. */
	if (options->name || options->node_mask)
		return -EOPNOTSUPP;
	struct kvpool_cuda *cuda = kvpool_sys.calloc(1, sizeof(*cuda));
	pthread_condattr_t attr;

	if (!cuda)
		return -ENOMEM;
	cuda->pool = pool;
	cuda->is_exact = options->is_small_pages;
	int err = open_device(cuda, options->device);

	if (err) {
		free(cuda);
		return err;
	}
	pthread_mutex_init(&cuda->work_lock, NULL);
	pthread_mutex_init(&cuda->fence_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&cuda->wake, &attr);
	pthread_condattr_destroy(&attr);
	pthread_cond_init(&cuda->idle, NULL);
	pool->backend = cuda;
	pool->base.page_bytes = cuda->page_bytes;
	kvpool_share_reserve_fds();
	return 0;
}

/* What the driver did not take back before has its last chance. */
static void release_lost(struct kvpool_cuda *cuda)
{
	struct kvpool_cuda_handle *h;

	while ((h = kvpool_cuda_pop(&cuda->lost))) {
		cuda->driver->MemRelease(h->handle);
		free(h);
	}
}

static void cuda_close(struct kvpool_local *pool)
{
	struct kvpool_cuda *cuda = kvpool_cuda(pool);
	cuda_context context;

	kvpool_cuda_trim(pool, UINT64_MAX);
	for (int class = 0; class < KVPOOL_CUDA_CLASSES; class ++) {
		struct kvpool_cuda_handle *h;

		while ((h = kvpool_cuda_pop(&cuda->kept[class])))
			kvpool_cuda_push(&cuda->lost, h);
	}
	release_lost(cuda);
	if (!cuda->driver->CtxPushCurrent(cuda->context)) {
		cuda->driver->StreamDestroy(cuda->stream);
		cuda->driver->CtxPopCurrent(&context);
	}
	kvpool_cuda_ranges_deinit(cuda);
	cuda->driver->DevicePrimaryCtxRelease(cuda->device);
	pthread_cond_destroy(&cuda->wake);
	pthread_cond_destroy(&cuda->idle);
	pthread_mutex_destroy(&cuda->work_lock);
	pthread_mutex_destroy(&cuda->fence_lock);
	free(cuda);
}

/* ---- memories ------------------------------------------------------------ */

int kvpool_cuda_create(struct kvpool_mem *mem, uint64_t stride_bytes)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_sys.calloc(1, sizeof(*cm));
	uint64_t start;
	int err = -ENOMEM;

	if (!cm)
		return err;
	cm->handles = kvpool_sys.calloc(kvpool_nr_pages(mem),
					sizeof(struct kvpool_cuda_handle *));
	if (cm->handles)
		err = kvpool_cuda_range_take(cuda, mem->class_bytes,
					     stride_bytes, &start);
	if (err) {
		free(cm->handles);
		free(cm);
		return err;
	}
	cm->mem = mem;
	cm->addr_bytes = mem->class_bytes;
	mem->backend = cm;
	mem->addr = (uint8_t *)(cuda->base + start);
	return 0;
}

/* For close; the locks of the caller are not known here. */
static void lose(struct kvpool_cuda *cuda, struct kvpool_cuda_handle *h)
{
	pthread_mutex_lock(&cuda->range_lock);
	kvpool_cuda_push(&cuda->lost, h);
	pthread_mutex_unlock(&cuda->range_lock);
}

/* Handles that no memory has. */
static void release_freed(struct kvpool_cuda *cuda, struct kvpool_cuda_mem *cm)
{
	struct kvpool_cuda_handle *h;

	while ((h = kvpool_cuda_pop(&cm->freed))) {
		if (cuda->driver->MemRelease(h->handle))
			lose(cuda, h);
		else
			free(h);
	}
}

/* What the driver does not unmap: the addresses under it are lost to this pool. */
static void lose_mapped(struct kvpool_mem *mem)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	struct kvpool_cuda_handle *h;

	for (uint64_t page = 0; page < kvpool_nr_pages(mem); page++) {
		h = cm->handles[page];
		if (h && h->first + h->nr_pages - 1 == page)
			lose(cuda, h);
	}
	while ((h = kvpool_cuda_pop(&cm->stuck)))
		lose(cuda, h);
}

static void cuda_destroy(struct kvpool_mem *mem)
{
	struct kvpool_cuda *cuda = kvpool_cuda(mem->pool);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

	if (!cm)
		return;
	if (kvpool_cuda_strip(mem) || kvpool_cuda_strip(mem))
		kvpool_cuda_range_put(cuda, (cuda_addr)mem->addr - cuda->base,
				      cm->addr_bytes);
	else
		lose_mapped(mem);
	release_freed(cuda, cm);
	free(cm->handles);
	free(cm);
	mem->backend = NULL;
}

/*
 * A handle that ends behind the seal is seen whole by whoever imports it: what was not sealed is
 * cleared before anybody can.
 */
static int clear_rest(struct kvpool_mem *mem)
{
	uint64_t page = kvpool_to_pages(mem, mem->sealed_n), run;
	uint64_t end = kvpool_nr_pages(mem), size = kvpool_page(mem);
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	int err = 0;

	for (; page < end && !err; page = run) {
		run = page + 1;
		if (!cm->handles[page])
			continue;
		while (run < end && cm->handles[run])
			run++;
		err = kvpool_cuda_zero(mem, page * size, (run - page) * size);
	}
	return err;
}

static int cuda_protect(struct kvpool_mem *mem)
{
	/* Work that writes it is over before it is read-only, and others see it. */
	int err = kvpool_cuda_finish(kvpool_cuda(mem->pool));

	if (!err)
		err = clear_rest(mem);
	return err ? err :
		     kvpool_cuda_set_access(mem, 0, kvpool_nr_pages(mem),
					    CUDA_PROT_READ);
}

/* ---- work of the device -------------------------------------------------- */

static void cuda_retire(struct kvpool_mem *mem, uint64_t first, uint64_t end)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);
	uint64_t seq = atomic_load(&kvpool_cuda(mem->pool)->issued);

	for (uint64_t page = first; page < end; page++) {
		struct kvpool_cuda_handle *h = cm->handles[page];

		if (!h)
			continue;
		h->busy_until = seq;
		h->is_released = true;
	}
}

static void cuda_retire_all(struct kvpool_mem *mem)
{
	struct kvpool_cuda_mem *cm = kvpool_cuda_mem(mem);

	atomic_store(&cm->busy_until,
		     atomic_load(&kvpool_cuda(mem->pool)->issued));
	/* Nobody's: whoever has it next begins at its front. */
	if (!mem->nr_refs)
		cm->frontier = 0;
}

static bool cuda_is_busy(struct kvpool_mem *mem)
{
	return !kvpool_cuda_is_passed(
		kvpool_cuda(mem->pool),
		atomic_load(&kvpool_cuda_mem(mem)->busy_until));
}

static void *cuda_base(struct kvpool_local *pool)
{
	return (void *)kvpool_cuda(pool)->base;
}

static void cuda_device_id(const struct kvpool_local *pool, uint8_t *out_id)
{
	const struct kvpool_cuda *cuda = pool->backend;

	_Static_assert(sizeof(cuda->uuid) == KVPOOL_DEVICE_ID_BYTES, "uuid");
	memcpy(out_id, &cuda->uuid, sizeof(cuda->uuid));
}

const struct kvpool_backend_ops kvpool_cuda_ops = {
	.name = "cuda",
	.features = KVPOOL_F_QUOTA | KVPOOL_F_EXPORT | KVPOOL_F_DEVICE,
	.open = cuda_open,
	.start = kvpool_cuda_start,
	.stop = kvpool_cuda_stop,
	.close = cuda_close,
	.create = kvpool_cuda_create,
	.destroy = cuda_destroy,
	.plan = kvpool_cuda_plan,
	.unplan = kvpool_cuda_unplan,
	.populate = kvpool_cuda_populate,
	.punch = kvpool_cuda_punch,
	.purge = kvpool_cuda_purge,
	.protect = cuda_protect,
	.zero = kvpool_cuda_zero,
	.copy = kvpool_cuda_copy,
	.copy_rows = kvpool_cuda_copy_rows,
	.fill_rows = kvpool_cuda_fill_rows,
	.export_fd = kvpool_cuda_export,
	.import_fd = kvpool_cuda_import,
	.covers = kvpool_cuda_covers,
	.fence = kvpool_cuda_fence,
	.retire = cuda_retire,
	.retire_all = cuda_retire_all,
	.shed = kvpool_cuda_shed,
	.is_busy = cuda_is_busy,
	.wait = kvpool_cuda_wait,
	.grown = kvpool_cuda_grown,
	.quiesce = kvpool_cuda_quiesce,
	.settle = kvpool_cuda_settle,
	.trim = kvpool_cuda_trim,
	.base = cuda_base,
	.device_id = cuda_device_id,
};
