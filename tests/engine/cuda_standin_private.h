/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver without a GPU, between its files. Included by them only.
 */
#ifndef TARN_TESTS_ENGINE_CUDA_STANDIN_PRIVATE_H
#define TARN_TESTS_ENGINE_CUDA_STANDIN_PRIVATE_H

#include <pthread.h>
#include <unistd.h>

#include "tests/engine/cuda_standin.h"

extern pthread_mutex_t standin_lock; /* everything */
extern struct standin_count standin_now;
extern pid_t standin_pid; /* who called cuInit; 0: nobody */

/* Begin a call: the lock, then why it must fail. */
#define ENTER(name)                                                       \
	pthread_mutex_lock(&standin_lock);                                \
	cuda_status status = standin.fail ? standin.fail(name) : CUDA_OK; \
	if (!status && standin_pid != getpid())                           \
		status = CUDA_NOT_INITIALIZED;                            \
	if (status)                                                       \
	return standin_leave(status)

/* Ends a call. */
cuda_status standin_leave(cuda_status status);
/* Whether the device's context is this thread's current one. */
bool standin_has_context(void);
/* Whether [addr, addr + bytes) is nothing but mappings, whole ones where @is_whole. */
bool standin_is_mapped(uint64_t addr, uint64_t bytes, bool is_whole);
/* standin_cpu(), under the lock. */
uint8_t *standin_cpu_locked(uint64_t addr);
/* Plain memory: where the CPU finds [addr, addr + bytes), all of it in one allocation, or NULL. */
uint8_t *standin_plain(uint64_t addr, uint64_t bytes);
/* The stream whose calls are recorded and not done; NULL: none is. */
extern cuda_stream standin_captured;
/* Entry points of gpu_driver.h; NULL: not one of them. */
void *standin_find_gpu(const char *name, int version);
struct standin_record;
/* A kernel that computes, behind what the stream was given so far. */
void standin_add_kernel(cuda_stream stream,
			const struct standin_record *record);
/* What it computes. */
void standin_model_run(const struct standin_record *record);
/* That range is unmapped: a kernel that uses it and has not ended would fault. */
void standin_check_uses(uint64_t addr, uint64_t bytes);

cuda_status standin_StreamCreate(cuda_stream *out, unsigned int flags);
cuda_status standin_StreamDestroy(cuda_stream stream);
cuda_status standin_StreamSynchronize(cuda_stream stream);
cuda_status standin_StreamWaitEvent(cuda_stream stream, cuda_event event,
				    unsigned int flags);
cuda_status standin_EventCreate(cuda_event *out, unsigned int flags);
cuda_status standin_EventDestroy(cuda_event event);
cuda_status standin_EventRecord(cuda_event event, cuda_stream stream);
cuda_status standin_EventQuery(cuda_event event);
cuda_status standin_EventSynchronize(cuda_event event);
cuda_status standin_MemsetD8Async(cuda_addr addr, unsigned char value,
				  size_t bytes, cuda_stream stream);
cuda_status standin_MemcpyDtoDAsync(cuda_addr to, cuda_addr from, size_t bytes,
				    cuda_stream stream);
cuda_status standin_MemsetD2D8Async(cuda_addr addr, size_t pitch,
				    unsigned char value, size_t row_bytes,
				    size_t nr_rows, cuda_stream stream);
cuda_status standin_Memcpy2DAsync(const struct cuda_copy_2d *copy,
				  cuda_stream stream);
cuda_status standin_MemcpyHtoDAsync(cuda_addr to, const void *from,
				    size_t bytes, cuda_stream stream);
cuda_status standin_MemcpyDtoHAsync(void *to, cuda_addr from, size_t bytes,
				    cuda_stream stream);

#endif /* TARN_TESTS_ENGINE_CUDA_STANDIN_PRIVATE_H */
