/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver without a GPU keeps of launches: they are checked as the
 * driver checks them and recorded, and compute nothing. See cuda_standin.h.
 */
#ifndef TARN_TESTS_ENGINE_CUDA_STANDIN_GPU_H
#define TARN_TESTS_ENGINE_CUDA_STANDIN_GPU_H

#include "engine/backend/gpu_driver.h"
#include "kernels/cuda/images.h"
#include "tests/engine/cuda_standin.h"

enum {
	STANDIN_PARAM_BYTES = 1024, /* at least those of every kernel */
	STANDIN_NAME_BYTES = 48,
};

struct standin_record {
	_Alignas(64) uint8_t params[STANDIN_PARAM_BYTES]; /* zeros behind */
	char name[STANDIN_NAME_BYTES];
	uint32_t grid[3], nr_threads, smem_bytes, cluster;
};

/* What gpu_images() shall answer, by the configuration. */
const struct gpu_image *standin_images(size_t *out_nr);

/* Launches since standin_forget(), those that were refused left out. */
size_t standin_nr_records(void);
/* Number @i; valid until the next launch. */
const struct standin_record *standin_record(size_t i);
/* The last launch of a kernel whose name begins with @name; NULL: there was none. */
const struct standin_record *standin_find_record(const char *name);
void standin_forget(void);

/* What cuTensorMapEncodeTiled leaves in a map. */
struct standin_map {
	uint64_t addr;
	uint64_t rank;
	uint64_t dims[5];
	uint64_t strides[4];
	uint32_t box[5];
	uint32_t type;
};

_Static_assert(sizeof(struct standin_map) <= sizeof(struct gpu_attn_tensor_map),
	       "a map");

#endif /* TARN_TESTS_ENGINE_CUDA_STANDIN_GPU_H */
