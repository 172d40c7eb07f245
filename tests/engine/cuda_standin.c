/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver without a GPU: see cuda_standin.h. Devices, memory, and finding the
 * entry points; streams are in cuda_standin_stream.c, kernels and plain memory in
 * cuda_standin_gpu.c. Everything is under one lock.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/backend/gpu_driver.h"
#include "tests/engine/cuda_standin_private.h"

struct standin_config standin;

enum { MAX_CONTEXTS = 8 };

struct handle {
	uint64_t bytes;
	int fd;
	bool is_released, is_imported;
	uint32_t nr_mappings;
	LIST_ENTRY(handle) link;
};

struct mapping {
	uint64_t start, bytes;
	struct handle *handle;
	LIST_ENTRY(mapping) link;
};

struct reservation {
	uint64_t start, bytes;
	uint8_t *cpu; /* the same bytes; start itself unless is_hidden */
	LIST_ENTRY(reservation) link;
};

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, handle) handles;
static LIST_HEAD(, mapping) mappings;
static LIST_HEAD(, reservation) reservations;
struct standin_count standin_now;
pid_t standin_pid; /* 0: not initialised */

static char primary; /* its address is the context */
static __thread cuda_context stack[MAX_CONTEXTS];
static __thread int depth;

cuda_status standin_leave(cuda_status status)
{
	pthread_mutex_unlock(&standin_lock);
	return status;
}

bool standin_has_context(void)
{
	return depth && stack[depth - 1] == (cuda_context)&primary &&
	       standin_now.contexts;
}

/* ---- devices ------------------------------------------------------------- */

static cuda_status Init(unsigned int flags)
{
	pthread_mutex_lock(&standin_lock);
	cuda_status status = standin.fail ? standin.fail("cuInit") : CUDA_OK;

	if (!status)
		status = flags ? CUDA_INVALID_VALUE : standin.init_status;
	if (!status)
		standin_pid = getpid();
	return standin_leave(status);
}

static cuda_status DriverGetVersion(int *out)
{
	ENTER("cuDriverGetVersion");
	*out = 12080;
	return standin_leave(CUDA_OK);
}

static cuda_status DeviceGetCount(int *out)
{
	ENTER("cuDeviceGetCount");
	*out = standin.nr_devices;
	return standin_leave(CUDA_OK);
}

static cuda_status DeviceGet(int *out, int ordinal)
{
	ENTER("cuDeviceGet");
	if (ordinal < 0 || ordinal >= standin.nr_devices)
		return standin_leave(CUDA_INVALID_DEVICE);
	*out = ordinal;
	return standin_leave(CUDA_OK);
}

static cuda_status DeviceGetAttribute(int *out, int attribute, int device)
{
	ENTER("cuDeviceGetAttribute");
	if (device >= standin.nr_devices)
		return standin_leave(CUDA_INVALID_DEVICE);
	switch (attribute) {
	case CUDA_ATTR_VMM:
		*out = standin.has_vmm;
		break;
	case CUDA_ATTR_POSIX_FD:
		*out = standin.has_fd;
		break;
	case GPU_ATTR_MULTIPROCESSORS:
		*out = standin.nr_sms;
		break;
	case GPU_ATTR_CAPABILITY_MAJOR:
	case GPU_ATTR_CAPABILITY_MINOR:
		*out = standin.capability[attribute - GPU_ATTR_CAPABILITY_MAJOR];
		break;
	default:
		*out = -1;
	}
	return standin_leave(*out < 0 ? CUDA_INVALID_VALUE : CUDA_OK);
}

static cuda_status DeviceGetUuid(struct cuda_uuid *out, int device)
{
	ENTER("cuDeviceGetUuid");
	memset(out, 0x40 + device, sizeof(*out));
	return standin_leave(CUDA_OK);
}

static cuda_status DeviceTotalMem(size_t *out, int device)
{
	(void)device;
	ENTER("cuDeviceTotalMem");
	*out = standin.total_bytes;
	return standin_leave(CUDA_OK);
}

static cuda_status MemGetInfo(size_t *out_free, size_t *out_total)
{
	ENTER("cuMemGetInfo");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	*out_total = standin.total_bytes;
	*out_free = standin.total_bytes - standin_now.used_bytes -
		    standin_now.stolen_bytes;
	return standin_leave(CUDA_OK);
}

static cuda_status DevicePrimaryCtxRetain(cuda_context *out, int device)
{
	(void)device;
	ENTER("cuDevicePrimaryCtxRetain");
	standin_now.contexts++;
	*out = (cuda_context)&primary;
	return standin_leave(CUDA_OK);
}

static cuda_status DevicePrimaryCtxRelease(int device)
{
	(void)device;
	ENTER("cuDevicePrimaryCtxRelease");
	if (!standin_now.contexts)
		return standin_leave(CUDA_INVALID_CONTEXT);
	standin_now.contexts--;
	return standin_leave(CUDA_OK);
}

static cuda_status CtxPushCurrent(cuda_context context)
{
	ENTER("cuCtxPushCurrent");
	if (context != (cuda_context)&primary || !standin_now.contexts ||
	    depth == MAX_CONTEXTS)
		return standin_leave(CUDA_INVALID_CONTEXT);
	stack[depth++] = context;
	return standin_leave(CUDA_OK);
}

static cuda_status CtxPopCurrent(cuda_context *out)
{
	/* Never fails while there is one: an error would say that something ran before. */
	pthread_mutex_lock(&standin_lock);
	if (!depth)
		return standin_leave(CUDA_INVALID_CONTEXT);
	*out = stack[--depth];
	return standin_leave(CUDA_OK);
}

/* ---- memory -------------------------------------------------------------- */

static bool is_prop_good(const struct cuda_alloc_prop *prop)
{
	return prop->type == CUDA_PINNED &&
	       prop->location.type == CUDA_ON_DEVICE &&
	       prop->location.id < standin.nr_devices &&
	       (prop->handle_types == CUDA_POSIX_FD || !prop->handle_types) &&
	       !prop->win32_data && !prop->compression && !prop->usage;
}

static bool is_odd(uint64_t n)
{
	return !n || n % standin.granule_bytes;
}

static cuda_status
MemGetAllocationGranularity(size_t *out, const struct cuda_alloc_prop *prop,
			    int option)
{
	ENTER("cuMemGetAllocationGranularity");
	if (!is_prop_good(prop) || option != CUDA_GRANULARITY_MINIMUM)
		return standin_leave(CUDA_INVALID_VALUE);
	*out = standin.granule_bytes;
	return standin_leave(CUDA_OK);
}

static cuda_status MemAddressReserve(cuda_addr *out, size_t bytes,
				     size_t alignment, cuda_addr wish,
				     unsigned long long flags)
{
	ENTER("cuMemAddressReserve");
	if (is_odd(bytes) || alignment % standin.granule_bytes || wish || flags)
		return standin_leave(CUDA_INVALID_VALUE);
	if (standin.most_addresses && bytes > standin.most_addresses)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	/* Room to align in; what sticks out is given back. */
	uint64_t slack = standin.granule_bytes;
	uint8_t *addr = mmap(NULL, bytes + slack, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			     0);

	if (addr == MAP_FAILED)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	uint64_t skip = (slack - (uint64_t)addr % slack) % slack;

	if (skip)
		munmap(addr, skip);
	munmap(addr + skip + bytes, slack - skip);
	struct reservation *r = calloc(1, sizeof(*r));

	r->start = (uint64_t)addr + skip;
	r->bytes = bytes;
	r->cpu = (uint8_t *)r->start;
	if (standin.is_hidden)
		r->cpu = mmap(NULL, bytes, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			      0);
	if (r->cpu == MAP_FAILED)
		abort();
	LIST_INSERT_HEAD(&reservations, r, link);
	standin_now.reservations++;
	*out = r->start;
	return standin_leave(CUDA_OK);
}

static struct reservation *reservation_at(uint64_t addr)
{
	struct reservation *r;

	LIST_FOREACH(r, &reservations, link)
	{
		if (addr >= r->start && addr - r->start < r->bytes)
			return r;
	}
	return NULL;
}

uint8_t *standin_cpu_locked(uint64_t addr)
{
	struct reservation *r = reservation_at(addr);
	uint8_t *plain = standin_plain(addr, 1);

	if (plain)
		return plain;
	if (!r)
		abort(); /* no address of the device */
	return r->cpu + (addr - r->start);
}

static struct mapping *mapping_at(uint64_t addr)
{
	struct mapping *m;

	LIST_FOREACH(m, &mappings, link)
	{
		if (addr >= m->start && addr - m->start < m->bytes)
			return m;
	}
	return NULL;
}

static bool is_any_mapped(uint64_t addr, uint64_t bytes)
{
	struct mapping *m;

	LIST_FOREACH(m, &mappings, link)
	{
		if (addr < m->start + m->bytes && m->start < addr + bytes)
			return true;
	}
	return false;
}

static cuda_status MemAddressFree(cuda_addr addr, size_t bytes)
{
	struct reservation *r;

	ENTER("cuMemAddressFree");
	LIST_FOREACH(r, &reservations, link)
	{
		if (r->start == addr && r->bytes == bytes)
			break;
	}
	if (!r || is_any_mapped(addr, bytes))
		return standin_leave(CUDA_INVALID_VALUE);
	munmap((void *)addr, bytes);
	if (r->cpu != (uint8_t *)addr)
		munmap(r->cpu, bytes);
	LIST_REMOVE(r, link);
	free(r);
	standin_now.reservations--;
	return standin_leave(CUDA_OK);
}

static struct handle *new_handle(uint64_t bytes, int fd, bool is_imported)
{
	struct handle *h = calloc(1, sizeof(*h));

	h->bytes = bytes;
	h->fd = fd;
	h->is_imported = is_imported;
	LIST_INSERT_HEAD(&handles, h, link);
	standin_now.handles++;
	if (!is_imported)
		standin_now.used_bytes += bytes;
	return h;
}

static struct handle *find_handle(cuda_handle value)
{
	struct handle *h;

	LIST_FOREACH(h, &handles, link)
	{
		if ((uint64_t)h == value && !h->is_released)
			return h;
	}
	return NULL;
}

/* Physical memory lives while a handle or a mapping has it. */
static void drop_unused(struct handle *h)
{
	if (!h->is_released || h->nr_mappings)
		return;
	if (!h->is_imported)
		standin_now.used_bytes -= h->bytes;
	close(h->fd);
	LIST_REMOVE(h, link);
	free(h);
}

static cuda_status MemCreate(cuda_handle *out, size_t bytes,
			     const struct cuda_alloc_prop *prop,
			     unsigned long long flags)
{
	ENTER("cuMemCreate");
	if (is_odd(bytes) || !is_prop_good(prop) || flags)
		return standin_leave(CUDA_INVALID_VALUE);
	if (bytes + standin_now.used_bytes + standin_now.stolen_bytes >
	    standin.total_bytes)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	int fd = memfd_create("standin-cuda", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		return standin_leave(CUDA_OUT_OF_MEMORY);
	*out = (cuda_handle)new_handle(bytes, fd, false);
	standin_now.creates++;
	return standin_leave(CUDA_OK);
}

static cuda_status MemRelease(cuda_handle handle)
{
	ENTER("cuMemRelease");
	struct handle *h = find_handle(handle);

	if (!h)
		return standin_leave(CUDA_INVALID_VALUE);
	h->is_released = true;
	standin_now.handles--;
	drop_unused(h);
	return standin_leave(CUDA_OK);
}

static cuda_status MemMap(cuda_addr addr, size_t bytes, size_t offset,
			  cuda_handle handle, unsigned long long flags)
{
	ENTER("cuMemMap");
	struct handle *h = find_handle(handle);
	struct reservation *r = reservation_at(addr);

	if (!h || !r || bytes > r->bytes - (addr - r->start) || is_odd(bytes) ||
	    addr % standin.granule_bytes || offset || bytes > h->bytes ||
	    flags || is_any_mapped(addr, bytes))
		return standin_leave(CUDA_INVALID_VALUE);
	if (mmap(standin_cpu_locked(addr), bytes, PROT_NONE,
		 MAP_SHARED | MAP_FIXED, h->fd, 0) == MAP_FAILED)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	struct mapping *m = calloc(1, sizeof(*m));

	*m = (struct mapping){ .start = addr, .bytes = bytes, .handle = h };
	LIST_INSERT_HEAD(&mappings, m, link);
	h->nr_mappings++;
	standin_now.mappings++;
	standin_now.maps++;
	return standin_leave(CUDA_OK);
}

/* Whether [addr, addr + bytes) is nothing but mappings, whole ones where @is_whole. */
bool standin_is_mapped(uint64_t addr, uint64_t bytes, bool is_whole)
{
	uint64_t at = addr, end = addr + bytes;

	if (standin_plain(addr, bytes))
		return !is_whole;
	while (at < end) {
		struct mapping *m = mapping_at(at);

		if (!m || (is_whole && m->start != at))
			return false;
		at = m->start + m->bytes;
	}
	return !is_whole || at == end;
}

static cuda_status MemUnmap(cuda_addr addr, size_t bytes)
{
	ENTER("cuMemUnmap");
	if (is_odd(bytes) || !standin_is_mapped(addr, bytes, true))
		return standin_leave(CUDA_INVALID_VALUE);
	standin_check_uses(addr, bytes);
	for (uint64_t at = addr; at < addr + bytes;) {
		struct mapping *m = mapping_at(at);

		at += m->bytes;
		mmap(standin_cpu_locked(m->start), m->bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		     -1, 0);
		m->handle->nr_mappings--;
		drop_unused(m->handle);
		LIST_REMOVE(m, link);
		free(m);
		standin_now.mappings--;
	}
	standin_now.unmaps++;
	return standin_leave(CUDA_OK);
}

static cuda_status MemSetAccess(cuda_addr addr, size_t bytes,
				const struct cuda_access *access, size_t nr)
{
	ENTER("cuMemSetAccess");
	if (nr != 1 || access->location.type != CUDA_ON_DEVICE ||
	    access->location.id >= standin.nr_devices || is_odd(bytes) ||
	    !standin_is_mapped(addr, bytes, false))
		return standin_leave(CUDA_INVALID_VALUE);
	int prot = access->prot == CUDA_PROT_READWRITE ?
			   PROT_READ | PROT_WRITE :
		   access->prot == CUDA_PROT_READ ? PROT_READ :
						    PROT_NONE;

	if (mprotect(standin_cpu_locked(addr), bytes, prot))
		return standin_leave(CUDA_OUT_OF_MEMORY);
	standin_now.set_accesses++;
	return standin_leave(CUDA_OK);
}

static cuda_status MemExportToShareableHandle(void *out, cuda_handle handle,
					      int type,
					      unsigned long long flags)
{
	ENTER("cuMemExportToShareableHandle");
	struct handle *h = find_handle(handle);

	if (!h || type != CUDA_POSIX_FD || flags)
		return standin_leave(CUDA_INVALID_VALUE);
	int fd = dup(h->fd);

	if (fd < 0)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	*(int *)out = fd;
	return standin_leave(CUDA_OK);
}

static cuda_status MemImportFromShareableHandle(cuda_handle *out,
						void *os_handle, int type)
{
	char path[64], name[64] = "";
	struct stat st;

	ENTER("cuMemImportFromShareableHandle");
	int fd = (int)(intptr_t)os_handle;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (type != CUDA_POSIX_FD ||
	    readlink(path, name, sizeof(name) - 1) < 0 ||
	    strncmp(name, "/memfd:standin-cuda", 19) || fstat(fd, &st))
		return standin_leave(CUDA_INVALID_VALUE);
	fd = dup(fd);
	if (fd < 0)
		return standin_leave(CUDA_OUT_OF_MEMORY);
	*out = (cuda_handle)new_handle((uint64_t)st.st_size, fd, true);
	return standin_leave(CUDA_OK);
}

/* ---- the library --------------------------------------------------------- */

/* Entry points of the other file. */
#define StreamCreate standin_StreamCreate
#define StreamDestroy standin_StreamDestroy
#define StreamSynchronize standin_StreamSynchronize
#define StreamWaitEvent standin_StreamWaitEvent
#define EventCreate standin_EventCreate
#define EventDestroy standin_EventDestroy
#define EventRecord standin_EventRecord
#define EventQuery standin_EventQuery
#define MemsetD8Async standin_MemsetD8Async
#define MemcpyDtoDAsync standin_MemcpyDtoDAsync
#define MemsetD2D8Async standin_MemsetD2D8Async
#define Memcpy2DAsync standin_Memcpy2DAsync

static cuda_status find_entry(const char *name, void **out, int version)
{
	*out = NULL;
#define FIND(symbol, member, since, params)                      \
	if (!strcmp(name, #symbol) && version == since &&        \
	    (!standin.missing || strcmp(name, standin.missing))) \
		*out = (void *)member;
	CUDA_ENTRIES(FIND)
#undef FIND
	if (!*out && (!standin.missing || strcmp(name, standin.missing)))
		*out = standin_find_gpu(name, version);
	return *out ? CUDA_OK : CUDA_NOT_FOUND;
}

static cuda_status get_proc_v1(const char *name, void **out, int version,
			       uint64_t flags)
{
	return flags ? CUDA_INVALID_VALUE : find_entry(name, out, version);
}

static cuda_status get_proc_v2(const char *name, void **out, int version,
			       uint64_t flags, int *out_status)
{
	*out_status = 0;
	return flags ? CUDA_INVALID_VALUE : find_entry(name, out, version);
}

static void *open_library(void)
{
	return standin.has_library ? &standin : NULL;
}

static void *find_symbol(void *library, const char *name)
{
	if (library != &standin)
		return NULL;
	if (standin.has_proc_v1 && !strcmp(name, "cuGetProcAddress"))
		return (void *)get_proc_v1;
	if (standin.has_proc_v2 && !strcmp(name, "cuGetProcAddress_v2"))
		return (void *)get_proc_v2;
	return NULL;
}

void standin_install(void)
{
	standin = (struct standin_config){
		.has_library = true,
		.has_proc_v2 = true,
		.has_proc_v1 = true,
		.nr_devices = 1,
		.has_vmm = true,
		.has_fd = true,
		.granule_bytes = 2 << 20,
		.total_bytes = 1 << 30,
		.capability = { 9, 0 },
		.nr_sms = 132,
	};
	cuda_loader.open = open_library;
	cuda_loader.symbol = find_symbol;
}

/* ---- for tests ----------------------------------------------------------- */

struct standin_count standin_counts(void)
{
	pthread_mutex_lock(&standin_lock);
	struct standin_count now = standin_now;

	pthread_mutex_unlock(&standin_lock);
	return now;
}

bool standin_is_clean(void)
{
	struct standin_count now = standin_counts();
	bool is_clean = !now.contexts && !now.reservations && !now.handles &&
			!now.mappings && !now.streams && !now.events &&
			!now.modules && !now.allocations &&
			!now.host_allocations && !now.graphs &&
			!now.used_bytes && !now.nr_violations && !depth;

	if (!is_clean)
		fprintf(stderr,
			"left: %d contexts, %d reservations, %d handles, %d mappings, "
			"%d streams, %d events, %d modules, %d allocations, %d of the "
			"host, %d graphs, %lld bytes, %d contexts pushed; %d violations\n",
			(int)now.contexts, (int)now.reservations,
			(int)now.handles, (int)now.mappings, (int)now.streams,
			(int)now.events, (int)now.modules, (int)now.allocations,
			(int)now.host_allocations, (int)now.graphs,
			(long long)now.used_bytes, depth,
			(int)now.nr_violations);
	return is_clean;
}

int standin_depth(void)
{
	return depth;
}

uint64_t standin_mapped_bytes(const void *addr, uint64_t bytes)
{
	uint64_t start = (uint64_t)addr, sum = 0;
	struct mapping *m;

	pthread_mutex_lock(&standin_lock);
	LIST_FOREACH(m, &mappings, link)
	{
		if (m->start >= start && m->start - start < bytes)
			sum += m->bytes;
	}
	pthread_mutex_unlock(&standin_lock);
	return sum;
}

uint8_t *standin_cpu(const void *addr)
{
	pthread_mutex_lock(&standin_lock);
	uint8_t *cpu = standin_cpu_locked((uint64_t)addr);

	pthread_mutex_unlock(&standin_lock);
	return cpu;
}

void standin_steal(int64_t bytes)
{
	pthread_mutex_lock(&standin_lock);
	standin_now.stolen_bytes += (uint64_t)bytes;
	pthread_mutex_unlock(&standin_lock);
}
