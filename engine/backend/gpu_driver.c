/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling the GPU backend's table of driver calls. Any thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "engine/backend/gpu_driver.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_driver driver; /* under lock until is_open */
static bool is_open; /* under lock */

static int fill_table(char *err, size_t errlen)
{
	int rc = cuda_driver_get(&driver.base, err, errlen);

	if (rc)
		return rc;
#define GPU_RESOLVE(symbol, member, version, params)                                \
	if (!cuda_driver_entry(#symbol, version, (void **)&driver.member)) {        \
		if (err)                                                            \
			snprintf(                                                   \
				err, errlen,                                        \
				"the NVIDIA driver is too old: it lacks " #symbol); \
		return -EOPNOTSUPP;                                                 \
	}
	GPU_ENTRIES(GPU_RESOLVE)
#undef GPU_RESOLVE
	return 0;
}

int gpu_driver_get(const struct gpu_driver **out_driver, char *err,
		   size_t errlen)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!is_open) {
		rc = fill_table(err, errlen);
		is_open = !rc;
	}
	pthread_mutex_unlock(&lock);
	if (!rc)
		*out_driver = &driver;
	return rc;
}
