/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPU backend calls of the CUDA Driver API beside what libkvpool's
 * table has (engine/kv/kvpool_cuda_driver.h): modules, launches, plain memory,
 * copies, tensor maps. Same rules: names without "cu", opened at run time.
 */
#ifndef TARN_ENGINE_BACKEND_GPU_DRIVER_H
#define TARN_ENGINE_BACKEND_GPU_DRIVER_H

#include "engine/kv/kvpool_cuda_driver.h"
#include "kernels/cuda/launch_params.h"

enum {
	GPU_ATTR_MULTIPROCESSORS = 16,
	GPU_ATTR_CAPABILITY_MAJOR = 75,
	GPU_ATTR_CAPABILITY_MINOR = 76,
	GPU_FUNC_DYNAMIC_SMEM = 8,
	GPU_LAUNCH_CLUSTER = 4,
	GPU_LAUNCH_OVERLAP = 6, /* programmatic stream serialisation */
	GPU_MAP_BF16 = 9,
	GPU_MAP_SWIZZLE_128B = 3,
	GPU_MAP_PROMOTE_128B = 2,
	GPU_CAPTURE_THREAD = 1, /* other threads' calls are not the capture's */
};

typedef struct gpu_module_opaque *gpu_module;
typedef struct gpu_function_opaque *gpu_function;
typedef struct gpu_graph_opaque *gpu_graph;
typedef struct gpu_graph_exec_opaque *gpu_graph_exec;

struct gpu_launch_attribute {
	int id;
	int pad;
	union {
		uint8_t bytes[64];
		uint32_t cluster[3];
		int flag;
	} value;
};

struct gpu_launch_config {
	unsigned int grid[3], block[3], smem_bytes;
	cuda_stream stream;
	struct gpu_launch_attribute *attributes;
	unsigned int nr_attributes;
};

_Static_assert(sizeof(struct gpu_launch_attribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(struct gpu_launch_config) == 56, "CUlaunchConfig");

#define GPU_ENTRIES(X)                                                        \
	X(cuDeviceGetName, DeviceGetName, 2000,                               \
	  (char *out, int len, int device))                                   \
	X(cuModuleLoadData, ModuleLoadData, 2000,                             \
	  (gpu_module * out, const void *image))                              \
	X(cuModuleUnload, ModuleUnload, 2000, (gpu_module module))            \
	X(cuModuleGetFunction, ModuleGetFunction, 2000,                       \
	  (gpu_function * out, gpu_module module, const char *name))          \
	X(cuFuncSetAttribute, FuncSetAttribute, 9000,                         \
	  (gpu_function function, int attribute, int value))                  \
	X(cuLaunchKernelEx, LaunchKernelEx, 11060,                            \
	  (const struct gpu_launch_config *config, gpu_function function,     \
	   void **params, void **extra))                                      \
	X(cuMemAlloc, MemAlloc, 3020, (cuda_addr * out, size_t bytes))        \
	X(cuMemFree, MemFree, 3020, (cuda_addr addr))                         \
	X(cuMemHostAlloc, MemHostAlloc, 2020,                                 \
	  (void **out, size_t bytes, unsigned int flags))                     \
	X(cuMemFreeHost, MemFreeHost, 2000, (void *addr))                     \
	X(cuMemcpyHtoDAsync, MemcpyHtoDAsync, 3020,                           \
	  (cuda_addr to, const void *from, size_t bytes, cuda_stream stream)) \
	X(cuMemcpyDtoHAsync, MemcpyDtoHAsync, 3020,                           \
	  (void *to, cuda_addr from, size_t bytes, cuda_stream stream))       \
	X(cuEventSynchronize, EventSynchronize, 2000, (cuda_event event))     \
	X(cuStreamBeginCapture, StreamBeginCapture, 10010,                    \
	  (cuda_stream stream, int mode))                                     \
	X(cuStreamEndCapture, StreamEndCapture, 10000,                        \
	  (cuda_stream stream, gpu_graph * out))                              \
	X(cuGraphInstantiate, GraphInstantiate, 12000,                        \
	  (gpu_graph_exec * out, gpu_graph graph, unsigned long long flags))  \
	X(cuGraphLaunch, GraphLaunch, 10000,                                  \
	  (gpu_graph_exec exec, cuda_stream stream))                          \
	X(cuGraphDestroy, GraphDestroy, 10000, (gpu_graph graph))             \
	X(cuGraphExecDestroy, GraphExecDestroy, 10000, (gpu_graph_exec exec)) \
	X(cuTensorMapEncodeTiled, TensorMapEncodeTiled, 12000,                \
	  (struct gpu_attn_tensor_map * out, int type, uint32_t rank,         \
	   void *addr, const uint64_t *dims, const uint64_t *strides,         \
	   const uint32_t *box, const uint32_t *steps, int interleave,        \
	   int swizzle, int promotion, int fill))

struct gpu_driver {
#define GPU_MEMBER(symbol, member, version, params) cuda_status(*member) params;
	GPU_ENTRIES(GPU_MEMBER)
#undef GPU_MEMBER
	const struct cuda_driver *base;
};

/**
 * gpu_driver_get - both tables, opened by the first call that succeeds
 * @out_driver: [out] constant, of the process, never freed
 * @err: [out] why not, in words; may be NULL
 *
 * Context: any thread. Return: 0, or as cuda_driver_get().
 */
int gpu_driver_get(const struct gpu_driver **out_driver, char *err,
		   size_t errlen);

#endif /* TARN_ENGINE_BACKEND_GPU_DRIVER_H */
