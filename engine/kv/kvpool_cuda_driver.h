/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA Driver API, opened at run time: a table of the entry points that the
 * cuda backend calls, with the few types they need declared here, so that
 * nothing of CUDA is needed to build and one program runs with and without a
 * GPU. Names in the table are those of the API without "cu"; layouts are those
 * of CUDA 10.2 and later on 64-bit Linux. Knows nothing of pools.
 */
#ifndef TARN_ENGINE_KV_KVPOOL_CUDA_DRIVER_H
#define TARN_ENGINE_KV_KVPOOL_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a call answers. Only those that something here looks at. */
enum cuda_result {
	CUDA_OK = 0,
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3,
	CUDA_DEINITIALIZED = 4,
	CUDA_STUB_LIBRARY = 34,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_INVALID_HANDLE = 400,
	CUDA_NOT_FOUND = 500,
	CUDA_NOT_READY = 600,
	CUDA_ILLEGAL_ADDRESS = 700,
	CUDA_NOT_PERMITTED = 800,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_SYSTEM_NOT_READY = 802,
	CUDA_DRIVER_MISMATCH = 803,
};

enum {
	CUDA_ATTR_VMM = 102, /* cuMemMap and its like */
	CUDA_ATTR_POSIX_FD = 103, /* handles become descriptors */
	CUDA_PINNED = 1, /* the one type of allocation */
	CUDA_POSIX_FD = 1, /* type of shareable handle */
	CUDA_ON_DEVICE = 1, /* type of location */
	CUDA_PROT_READ = 1,
	CUDA_PROT_READWRITE = 3,
	CUDA_GRANULARITY_MINIMUM = 0,
	CUDA_EVENT_NO_TIMING = 2,
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_UUID_BYTES = 16,
	CUDA_MEMORY_DEVICE = 2, /* type of memory, in struct cuda_copy_2d */
};

typedef int cuda_status; /* enum cuda_result, or one that came after */
typedef uint64_t cuda_addr; /* on the device */
typedef uint64_t cuda_handle; /* of physical memory */
typedef struct cuda_context_opaque *cuda_context;
typedef struct cuda_stream_opaque *cuda_stream;
typedef struct cuda_event_opaque *cuda_event;

struct cuda_uuid {
	uint8_t bytes[CUDA_UUID_BYTES];
};

struct cuda_location {
	int type;
	int id; /* ordinal of the device */
};

struct cuda_alloc_prop {
	int type;
	int handle_types;
	struct cuda_location location;
	void *win32_data;
	uint8_t compression, rdma;
	uint16_t usage;
	uint8_t reserved[4];
};

struct cuda_access {
	struct cuda_location location;
	int prot;
};

/* One side of a copy of rows; only memory of the device is of use here. */
struct cuda_side_2d {
	size_t x_bytes, y;
	int type;
	void *host;
	cuda_addr addr;
	void *array;
	size_t pitch;
};

struct cuda_copy_2d {
	struct cuda_side_2d from, to;
	size_t row_bytes, nr_rows;
};

_Static_assert(sizeof(struct cuda_copy_2d) == 128, "CUDA_MEMCPY2D");
_Static_assert(offsetof(struct cuda_copy_2d, to.addr) == 88, "dstDevice");
_Static_assert(sizeof(struct cuda_alloc_prop) == 32, "CUmemAllocationProp");
_Static_assert(offsetof(struct cuda_alloc_prop, win32_data) == 16, "prop");
_Static_assert(sizeof(struct cuda_access) == 12, "CUmemAccessDesc");

/*
 * Every entry point: name in the API, member, CUDA version of the signature (1000 * major + 10 *
 * minor, as cuGetProcAddress wants it), parameters.
 */
#define CUDA_ENTRIES(X)                                                        \
	X(cuInit, Init, 2000, (unsigned int flags))                            \
	X(cuDriverGetVersion, DriverGetVersion, 2020, (int *out))              \
	X(cuDeviceGetCount, DeviceGetCount, 2000, (int *out))                  \
	X(cuDeviceGet, DeviceGet, 2000, (int *out, int ordinal))               \
	X(cuDeviceGetAttribute, DeviceGetAttribute, 2000,                      \
	  (int *out, int attribute, int device))                               \
	X(cuDeviceGetUuid, DeviceGetUuid, 9020,                                \
	  (struct cuda_uuid * out, int device))                                \
	X(cuDeviceTotalMem, DeviceTotalMem, 3020, (size_t * out, int device))  \
	X(cuDevicePrimaryCtxRetain, DevicePrimaryCtxRetain, 7000,              \
	  (cuda_context * out, int device))                                    \
	X(cuDevicePrimaryCtxRelease, DevicePrimaryCtxRelease, 11000,           \
	  (int device))                                                        \
	X(cuMemGetInfo, MemGetInfo, 3020, (size_t * free, size_t * total))     \
	X(cuCtxPushCurrent, CtxPushCurrent, 4000, (cuda_context context))      \
	X(cuCtxPopCurrent, CtxPopCurrent, 4000, (cuda_context * out))          \
	X(cuMemGetAllocationGranularity, MemGetAllocationGranularity, 10020,   \
	  (size_t * out, const struct cuda_alloc_prop *prop, int option))      \
	X(cuMemAddressReserve, MemAddressReserve, 10020,                       \
	  (cuda_addr * out, size_t bytes, size_t alignment, cuda_addr wish,    \
	   unsigned long long flags))                                          \
	X(cuMemAddressFree, MemAddressFree, 10020,                             \
	  (cuda_addr addr, size_t bytes))                                      \
	X(cuMemCreate, MemCreate, 10020,                                       \
	  (cuda_handle * out, size_t bytes,                                    \
	   const struct cuda_alloc_prop *prop, unsigned long long flags))      \
	X(cuMemRelease, MemRelease, 10020, (cuda_handle handle))               \
	X(cuMemMap, MemMap, 10020,                                             \
	  (cuda_addr addr, size_t bytes, size_t offset, cuda_handle handle,    \
	   unsigned long long flags))                                          \
	X(cuMemUnmap, MemUnmap, 10020, (cuda_addr addr, size_t bytes))         \
	X(cuMemSetAccess, MemSetAccess, 10020,                                 \
	  (cuda_addr addr, size_t bytes, const struct cuda_access *access,     \
	   size_t nr))                                                         \
	X(cuMemExportToShareableHandle, MemExportToShareableHandle, 10020,     \
	  (void *out, cuda_handle handle, int type, unsigned long long flags)) \
	X(cuMemImportFromShareableHandle, MemImportFromShareableHandle, 10020, \
	  (cuda_handle * out, void *os_handle, int type))                      \
	X(cuStreamCreate, StreamCreate, 2000,                                  \
	  (cuda_stream * out, unsigned int flags))                             \
	X(cuStreamDestroy, StreamDestroy, 4000, (cuda_stream stream))          \
	X(cuStreamSynchronize, StreamSynchronize, 2000, (cuda_stream stream))  \
	X(cuStreamWaitEvent, StreamWaitEvent, 3020,                            \
	  (cuda_stream stream, cuda_event event, unsigned int flags))          \
	X(cuEventCreate, EventCreate, 2000,                                    \
	  (cuda_event * out, unsigned int flags))                              \
	X(cuEventDestroy, EventDestroy, 4000, (cuda_event event))              \
	X(cuEventRecord, EventRecord, 2000,                                    \
	  (cuda_event event, cuda_stream stream))                              \
	X(cuEventQuery, EventQuery, 2000, (cuda_event event))                  \
	X(cuMemsetD8Async, MemsetD8Async, 3020,                                \
	  (cuda_addr addr, unsigned char value, size_t bytes,                  \
	   cuda_stream stream))                                                \
	X(cuMemcpyDtoDAsync, MemcpyDtoDAsync, 3020,                            \
	  (cuda_addr to, cuda_addr from, size_t bytes, cuda_stream stream))    \
	X(cuMemsetD2D8Async, MemsetD2D8Async, 3020,                            \
	  (cuda_addr addr, size_t pitch, unsigned char value,                  \
	   size_t row_bytes, size_t nr_rows, cuda_stream stream))              \
	X(cuMemcpy2DAsync, Memcpy2DAsync, 3020,                                \
	  (const struct cuda_copy_2d *copy, cuda_stream stream))

struct cuda_driver {
#define CUDA_MEMBER(symbol, member, version, params) \
	cuda_status(*member) params;
	CUDA_ENTRIES(CUDA_MEMBER)
#undef CUDA_MEMBER
	int version; /* 1000 * major + 10 * minor */
};

/*
 * Where the library comes from: libcuda.so.1 by dlopen(), which a test replaces before its first
 * pool. open() returns NULL where there is none.
 */
struct cuda_loader {
	void *(*open)(void);
	void *(*symbol)(void *library, const char *name);
};

extern struct cuda_loader cuda_loader;

/**
 * cuda_driver_get - the table, opened by the first call that succeeds
 * @out_driver: [out] constant, of the process, never freed
 * @err: [out] why not, in words; may be NULL
 *
 * Context: any thread. A failure is not kept: the next call tries again.
 * Return: 0; -ENODEV (no library, a library without a driver behind it, no
 * device); -EOPNOTSUPP (a driver too old for an entry point, or one that does
 * not fit its library).
 */
int cuda_driver_get(const struct cuda_driver **out_driver, char *err,
		    size_t errlen);
/*
 * One more entry point of the open library, for tables of others. Return: whether it is there;
 * false before the first successful cuda_driver_get().
 */
bool cuda_driver_entry(const char *name, int version, void **out);
/*
 * 0 or -errno: -ENOMEM, -EINVAL, -ENODEV, -EOPNOTSUPP, -EPERM, -EAGAIN (not ready), -EIO (all
 * else, a device that failed included).
 */
int cuda_errno(cuda_status status);

#endif /* TARN_ENGINE_KV_KVPOOL_CUDA_DRIVER_H */
