/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver without a GPU: the calls of kvpool_cuda_driver.h over memfd and mmap,
 * so that device memory holds real bytes, at addresses the CPU can look at (or
 * cannot, as with a GPU: is_hidden). It keeps the driver's rules (granules,
 * whole mappings, no access before it is set, contexts, no use after fork) and
 * says no where they are broken; it can fail any call, hold back a stream, and
 * count what was left behind. Used by tests only; any thread.
 */
#ifndef TARN_TESTS_ENGINE_CUDA_STANDIN_H
#define TARN_TESTS_ENGINE_CUDA_STANDIN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/kv/kvpool_cuda_driver.h"

/* What the driver is like; set before the first pool. */
struct standin_config {
	bool has_library, has_proc_v2, has_proc_v1;
	const char *missing; /* entry point that this driver does not know */
	const char *missing_kernel; /* no image has it */
	int capability[2], nr_sms; /* of every device */
	/* The program's images: none, the build's own, or (neither) one with every kernel. */
	bool has_no_images, has_build_images;
	uint8_t fill; /* bytes of plain memory that was never written */
	cuda_status init_status;
	int nr_devices;
	bool has_vmm, has_fd;
	uint64_t granule_bytes;
	uint64_t total_bytes;
	uint64_t most_addresses; /* largest reservation; 0: any */
	/* A touch of a device's address by the CPU is SIGSEGV; standin_cpu() says where it may. */
	bool is_hidden;
	/*
	 * What a stream was given is done when it is waited for, or a few questions after it was
	 * asked for first, not at once.
	 */
	bool is_lazy;
	/* Kernels compute, in the order of their stream, what cuda_standin_model.c says. */
	bool has_model;
	/* Called at each call with its name: what it shall answer, CUDA_OK: go on. */
	cuda_status (*fail)(const char *name);
};

extern struct standin_config standin;

/* Let libkvpool find this driver: one GPU of 1 GiB, granules of 2 MiB, all calls good. */
void standin_install(void);

/* What exists now. */
struct standin_count {
	uint64_t contexts, reservations, handles, mappings, streams, events;
	uint64_t modules, allocations, host_allocations, graphs;
	uint64_t used_bytes; /* of the device, by this process */
	uint64_t stolen_bytes; /* of the device, by others */
	uint64_t nr_violations; /* unmapped under work that was using it */
	uint64_t creates, maps, unmaps, set_accesses;
};

struct standin_count standin_counts(void);
/*
 * Whether nothing is left but what counts calls, and the calling thread has no context; says on
 * stderr what is.
 */
bool standin_is_clean(void);

/* Contexts that this thread has pushed. */
int standin_depth(void);

/* Bytes of [addr, addr + bytes) that are mapped. */
uint64_t standin_mapped_bytes(const void *addr, uint64_t bytes);

/* Where the CPU finds the byte at an address of the device. */
uint8_t *standin_cpu(const void *addr);

/* Another process takes or gives back @bytes of the device. */
void standin_steal(int64_t bytes);

/* ---- streams of the test, as an engine would have them ---- */

/* Work on it is held back until standin_finish(). Return: the stream. */
cuda_stream standin_stream(void);
/* A kernel on @stream reads or writes [addr, addr + bytes). */
void standin_launch(cuda_stream stream, const void *addr, uint64_t bytes);
/* One that sets [addr, addr + bytes), at its end. */
void standin_launch_set(cuda_stream stream, const void *addr, uint64_t bytes,
			uint8_t value);
/* All work of @stream is done; what comes is held back again. */
void standin_finish(cuda_stream stream);
/* Kernels of @stream that run. */
int standin_work_left(cuda_stream stream);
void standin_stream_end(cuda_stream stream);

#endif /* TARN_TESTS_ENGINE_CUDA_STANDIN_H */
