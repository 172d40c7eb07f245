/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening libcuda and filling the table. cuGetProcAddress is the one symbol that
 * is looked up by name: it answers with the version of each entry point whose
 * signature is declared here, whatever the library's newest is. Any thread.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "engine/kv/kvpool_cuda_driver.h"

/* Of CUDA 11.3 with four parameters, of 12.0 with one more. */
typedef cuda_status (*get_proc_v1)(const char *name, void **out, int version,
				   uint64_t flags);
typedef cuda_status (*get_proc_v2)(const char *name, void **out, int version,
				   uint64_t flags, int *out_status);

static void *open_libcuda(void)
{
	return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

struct cuda_loader cuda_loader = { .open = open_libcuda, .symbol = dlsym };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_driver driver; /* under lock until is_open */
static bool is_open; /* under lock */

static int fail(int error, char *err, size_t errlen, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail(int error, char *err, size_t errlen, const char *format, ...)
{
	va_list args;

	if (err) {
		va_start(args, format);
		vsnprintf(err, errlen, format, args);
		va_end(args);
	}
	return error;
}

int cuda_errno(cuda_status status)
{
	switch (status) {
	case CUDA_OK:
		return 0;
	case CUDA_INVALID_VALUE:
	case CUDA_INVALID_HANDLE:
		return -EINVAL;
	case CUDA_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_NOT_INITIALIZED:
	case CUDA_DEINITIALIZED:
	case CUDA_STUB_LIBRARY:
	case CUDA_NO_DEVICE:
	case CUDA_INVALID_DEVICE:
	case CUDA_SYSTEM_NOT_READY:
		return -ENODEV;
	case CUDA_NOT_FOUND:
	case CUDA_NOT_SUPPORTED:
	case CUDA_DRIVER_MISMATCH:
		return -EOPNOTSUPP;
	case CUDA_NOT_PERMITTED:
		return -EPERM;
	case CUDA_NOT_READY:
		return -EAGAIN;
	default:
		return -EIO;
	}
}

struct resolver {
	get_proc_v1 v1;
	get_proc_v2 v2;
};

static bool resolve(const struct resolver *resolver, const char *name,
		    int version, void **out)
{
	int found;

	*out = NULL;
	cuda_status status =
		resolver->v2 ? resolver->v2(name, out, version, 0, &found) :
			       resolver->v1(name, out, version, 0);

	return status == CUDA_OK && *out;
}

static struct resolver resolver; /* as driver */

static int fill_table(void *library, char *err, size_t errlen)
{
	resolver.v1 =
		(get_proc_v1)cuda_loader.symbol(library, "cuGetProcAddress");
	resolver.v2 =
		(get_proc_v2)cuda_loader.symbol(library, "cuGetProcAddress_v2");
	if (!resolver.v1 && !resolver.v2)
		return fail(-EOPNOTSUPP, err, errlen,
			    "the NVIDIA driver is older than CUDA 11.3");
#define CUDA_RESOLVE(symbol, member, version, params)                       \
	if (!resolve(&resolver, #symbol, version, (void **)&driver.member)) \
		return fail(                                                \
			-EOPNOTSUPP, err, errlen,                           \
			"the NVIDIA driver is too old: it lacks " #symbol);
	CUDA_ENTRIES(CUDA_RESOLVE)
#undef CUDA_RESOLVE
	return 0;
}

static int start(char *err, size_t errlen)
{
	int nr_devices = 0;
	cuda_status status = driver.Init(0);

	if (status == CUDA_OK)
		status = driver.DriverGetVersion(&driver.version);
	if (status == CUDA_OK)
		status = driver.DeviceGetCount(&nr_devices);
	if (status == CUDA_OK && !nr_devices)
		status = CUDA_NO_DEVICE;
	if (status == CUDA_NO_DEVICE)
		return fail(-ENODEV, err, errlen, "no NVIDIA GPU here");
	if (status == CUDA_STUB_LIBRARY)
		return fail(-ENODEV, err, errlen,
			    "libcuda.so.1 is a stub: no NVIDIA driver here");
	if (status == CUDA_DRIVER_MISMATCH)
		return fail(-EOPNOTSUPP, err, errlen,
			    "libcuda.so.1 does not fit the kernel's driver");
	/* CUDA_OUT_OF_MEMORY and the like say nothing about pools yet: no device that works. */
	if (status)
		return fail(-ENODEV, err, errlen,
			    "the NVIDIA driver does not start: CUDA error %d",
			    status);
	return 0;
}

int cuda_driver_get(const struct cuda_driver **out_driver, char *err,
		    size_t errlen)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!is_open) {
		/* Never closed: the driver has threads and handlers at exit of its own. */
		void *library = cuda_loader.open();

		rc = library ? fill_table(library, err, errlen) :
			       fail(-ENODEV, err, errlen,
				    "no libcuda.so.1: no NVIDIA driver here");
		if (!rc)
			rc = start(err, errlen);
		is_open = !rc;
	}
	pthread_mutex_unlock(&lock);
	if (!rc)
		*out_driver = &driver;
	return rc;
}

bool cuda_driver_entry(const char *name, int version, void **out)
{
	bool is_there;

	pthread_mutex_lock(&lock);
	is_there = is_open && resolve(&resolver, name, version, out);
	pthread_mutex_unlock(&lock);
	return is_there;
}
