/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of the cuda backend that are copied or set: on a stream of the pool's
 * own, behind all fences so far, and over when the call returns, so that work
 * which is started afterwards sees them wherever it runs. Any thread.
 */
#include <errno.h>

#include "engine/kv/kvpool_cuda.h"

/* Rows of bytes to copy, or with @from 0 to set. */
struct job {
	cuda_addr to, from;
	uint64_t to_pitch, from_pitch; /* of one row not looked at */
	uint64_t row_bytes, nr_rows;
	uint8_t value;
};

/* One run of bytes. */
static cuda_status start_run(struct kvpool_cuda *cuda, const struct job *job,
			     uint64_t bytes)
{
	const struct cuda_driver *driver = cuda->driver;

	return job->from ? driver->MemcpyDtoDAsync(job->to, job->from, bytes,
						   cuda->stream) :
			   driver->MemsetD8Async(job->to, job->value, bytes,
						 cuda->stream);
}

static cuda_status start(struct kvpool_cuda *cuda, const struct job *job)
{
	const struct cuda_driver *driver = cuda->driver;

	if (job->nr_rows == 1)
		return start_run(cuda, job, job->row_bytes);
	if (job->to_pitch == job->row_bytes &&
	    (!job->from || job->from_pitch == job->row_bytes))
		return start_run(cuda, job, job->row_bytes * job->nr_rows);
	if (!job->from)
		return driver->MemsetD2D8Async(job->to, job->to_pitch,
					       job->value, job->row_bytes,
					       job->nr_rows, cuda->stream);
	struct cuda_copy_2d copy = {
		.from = { .type = CUDA_MEMORY_DEVICE,
			  .addr = job->from,
			  .pitch = job->from_pitch },
		.to = { .type = CUDA_MEMORY_DEVICE,
			.addr = job->to,
			.pitch = job->to_pitch },
		.row_bytes = job->row_bytes,
		.nr_rows = job->nr_rows,
	};

	return driver->Memcpy2DAsync(&copy, cuda->stream);
}

/* @job: NULL: nothing but what the fences name. */
static int work(struct kvpool_cuda *cuda, const struct job *job)
{
	pthread_mutex_lock(&cuda->work_lock);
	int err = kvpool_cuda_enter(cuda);

	if (!err) {
		err = kvpool_cuda_order(cuda);
		if (!err && job)
			err = cuda_errno(start(cuda, job));
		int sync = cuda_errno(
			cuda->driver->StreamSynchronize(cuda->stream));

		err = err ? err : sync;
		kvpool_cuda_leave(cuda);
	}
	pthread_mutex_unlock(&cuda->work_lock);
	return err;
}

int kvpool_cuda_finish(struct kvpool_cuda *cuda)
{
	return work(cuda, NULL);
}

int kvpool_cuda_zero(struct kvpool_mem *mem, uint64_t offset, uint64_t len)
{
	struct job job = {
		.to = (cuda_addr)mem->addr + offset,
		.row_bytes = len,
		.nr_rows = 1,
	};

	return work(kvpool_cuda(mem->pool), &job);
}

int kvpool_cuda_copy(struct kvpool_mem *to, struct kvpool_mem *from, uint64_t n)
{
	struct job job = {
		.to = (cuda_addr)to->addr,
		.from = (cuda_addr)from->addr,
		.row_bytes = n,
		.nr_rows = 1,
	};

	return work(kvpool_cuda(to->pool), &job);
}

/*
 * Memory that is not there would cost the device's context, not just a signal. Each buffer is
 * looked at by itself: two of their locks are never held at once.
 */
static int check_place(const struct kvpool_place *place, uint64_t row_bytes,
		       uint64_t nr_rows, bool is_write)
{
	uint64_t len = row_bytes;

	if (nr_rows > 1)
		len += (nr_rows - 1) * place->pitch_bytes;
	return kvpool_local_check(place->buf, place->offset, len, is_write);
}

static cuda_addr addr_of(const struct kvpool_place *place)
{
	return (cuda_addr)place->buf->addr + place->offset;
}

int kvpool_cuda_copy_rows(const struct kvpool_place *to,
			  const struct kvpool_place *from, uint64_t row_bytes,
			  uint64_t nr_rows)
{
	struct job job = {
		.to = addr_of(to),
		.from = addr_of(from),
		.to_pitch = to->pitch_bytes,
		.from_pitch = from->pitch_bytes,
		.row_bytes = row_bytes,
		.nr_rows = nr_rows,
	};
	int err = check_place(to, row_bytes, nr_rows, true);

	if (!err)
		err = check_place(from, row_bytes, nr_rows, false);
	return err ? err : work(kvpool_cuda(kvpool_local(to->buf->pool)), &job);
}

int kvpool_cuda_fill_rows(const struct kvpool_place *to, uint8_t value,
			  uint64_t row_bytes, uint64_t nr_rows)
{
	struct job job = {
		.to = addr_of(to),
		.to_pitch = to->pitch_bytes,
		.row_bytes = row_bytes,
		.nr_rows = nr_rows,
		.value = value,
	};
	int err = check_place(to, row_bytes, nr_rows, true);

	return err ? err : work(kvpool_cuda(kvpool_local(to->buf->pool)), &job);
}
