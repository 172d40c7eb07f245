/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the driver without a GPU, and kernels that a test holds
 * back. See cuda_standin.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "tests/engine/cuda_standin_gpu.h"
#include "tests/engine/cuda_standin_private.h"

enum {
	MAX_WORK = 1024,
	LAZY_QUERIES = 4, /* of an event, until it is done */
};

/* A use of memory by a kernel; or rows of bytes that are copied or set at its end. */
struct work {
	uint64_t to, from, bytes; /* bytes: of a row */
	uint64_t to_pitch, from_pitch;
	uint64_t nr_rows;
	bool is_copy, is_set;
	const void *host_from; /* of a copy from the host */
	void *host_to; /* of one to it */
	struct standin_record *kernel; /* one that computes; owned */
	uint8_t value;
	uint64_t ticket;
	uint64_t after; /* tickets of the stream that were issued before it came */
};

struct cuda_stream_opaque {
	bool is_held;
	uint64_t issued, done; /* tickets */
	uint32_t nr_queries;
	struct work work[MAX_WORK];
	int nr_work;
	cuda_event waits[MAX_WORK];
	int nr_waits;
	LIST_ENTRY(cuda_stream_opaque) link;
};

struct cuda_event_opaque {
	cuda_stream stream; /* NULL: not recorded, or of the default stream */
	uint64_t ticket;
	LIST_ENTRY(cuda_event_opaque) link;
};

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static LIST_HEAD(, cuda_stream_opaque) streams;
/* Events may outlive the stream that they were recorded in. */
static LIST_HEAD(, cuda_stream_opaque) ended;
static LIST_HEAD(, cuda_event_opaque) events;

static cuda_stream new_stream(bool is_held)
{
	cuda_stream stream = calloc(1, sizeof(*stream));

	stream->is_held = is_held;
	LIST_INSERT_HEAD(&streams, stream, link);
	return stream;
}

static void add(cuda_stream stream, struct work work)
{
	work.after = stream->issued;
	stream->work[stream->nr_work++] = work;
}

/* A device that is lost runs nothing any more. */
static void drop_work(cuda_stream stream)
{
	for (int i = 0; i < stream->nr_work; i++)
		free(stream->work[i].kernel);
	stream->nr_work = 0;
	stream->nr_waits = 0;
}

cuda_status standin_StreamCreate(cuda_stream *out, unsigned int flags)
{
	(void)flags;
	ENTER("cuStreamCreate");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	*out = new_stream(false);
	standin_now.streams++;
	return standin_leave(CUDA_OK);
}

static void end_stream(cuda_stream stream)
{
	drop_work(stream);
	LIST_REMOVE(stream, link);
	stream->done = stream->issued;
	LIST_INSERT_HEAD(&ended, stream, link);
}

cuda_status standin_StreamDestroy(cuda_stream stream)
{
	ENTER("cuStreamDestroy");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	end_stream(stream);
	standin_now.streams--;
	return standin_leave(CUDA_OK);
}

static bool is_event_done(cuda_event event)
{
	return !event->stream || event->ticket <= event->stream->done;
}

/* The host's memory is read and written only here, as a copy from and to pinned memory is. */
static void run_host_copy(const struct work *w)
{
	uint64_t at = w->host_to ? w->from : w->to;

	if (!standin_is_mapped(at, w->bytes, false))
		standin_now.nr_violations++;
	else if (w->host_to)
		memcpy(w->host_to, standin_cpu_locked(at), w->bytes);
	else
		memcpy(standin_cpu_locked(at), w->host_from, w->bytes);
}

static void run_one(const struct work *w)
{
	if (w->host_to || w->host_from) {
		run_host_copy(w);
		return;
	}
	if (w->kernel) {
		standin_model_run(w->kernel);
		free(w->kernel);
		return;
	}
	for (uint64_t row = 0; row < w->nr_rows; row++) {
		uint64_t to = w->to + row * w->to_pitch;
		uint64_t from = w->from + row * w->from_pitch;

		if ((w->is_copy || w->is_set) &&
		    !standin_is_mapped(to, w->bytes, false))
			standin_now.nr_violations++;
		else if (w->is_copy)
			memcpy(standin_cpu_locked(to), standin_cpu_locked(from),
			       w->bytes);
		else if (w->is_set)
			memset(standin_cpu_locked(to), w->value, w->bytes);
	}
}

/* What came before the ticket was issued. */
static void run_until(cuda_stream stream, uint64_t ticket)
{
	int nr = 0;

	while (nr < stream->nr_work && stream->work[nr].after < ticket)
		run_one(&stream->work[nr++]);
	memmove(stream->work, stream->work + nr,
		(size_t)(stream->nr_work - nr) * sizeof(stream->work[0]));
	stream->nr_work -= nr;
}

static void run_work(cuda_stream stream)
{
	run_until(stream, UINT64_MAX);
}

/* All that came before the ticket has run, on a stream that nobody holds. */
static void catch_up(cuda_stream stream, uint64_t ticket)
{
	if (stream->is_held)
		return;
	run_until(stream, ticket);
	if (stream->done < ticket)
		stream->done = ticket;
	stream->nr_queries = 0;
}

static void wait_for(cuda_event event)
{
	if (event->stream && !is_event_done(event))
		catch_up(event->stream, event->ticket);
	while (!is_event_done(event))
		pthread_cond_wait(&progress, &standin_lock);
}

cuda_status standin_StreamSynchronize(cuda_stream stream)
{
	pthread_mutex_lock(&standin_lock);
	cuda_status status =
		standin.fail ? standin.fail("cuStreamSynchronize") : CUDA_OK;

	if (!status && (standin_pid != getpid() || !standin_has_context()))
		status = CUDA_INVALID_CONTEXT;
	if (!status && stream == standin_captured)
		status = CUDA_NOT_PERMITTED;
	if (status) {
		drop_work(stream);
		return standin_leave(status);
	}
	for (int i = 0; i < stream->nr_waits; i++)
		wait_for(stream->waits[i]);
	stream->nr_waits = 0;
	run_work(stream);
	if (!stream->is_held)
		stream->done = stream->issued;
	return standin_leave(CUDA_OK);
}

cuda_status standin_StreamWaitEvent(cuda_stream stream, cuda_event event,
				    unsigned int flags)
{
	ENTER("cuStreamWaitEvent");
	if (!standin_has_context() || flags || stream->nr_waits == MAX_WORK)
		return standin_leave(CUDA_INVALID_CONTEXT);
	stream->waits[stream->nr_waits++] = event;
	return standin_leave(CUDA_OK);
}

cuda_status standin_EventCreate(cuda_event *out, unsigned int flags)
{
	(void)flags;
	ENTER("cuEventCreate");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	*out = calloc(1, sizeof(**out));
	LIST_INSERT_HEAD(&events, *out, link);
	standin_now.events++;
	return standin_leave(CUDA_OK);
}

cuda_status standin_EventDestroy(cuda_event event)
{
	ENTER("cuEventDestroy");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	LIST_REMOVE(event, link);
	free(event);
	standin_now.events--;
	return standin_leave(CUDA_OK);
}

cuda_status standin_EventRecord(cuda_event event, cuda_stream stream)
{
	ENTER("cuEventRecord");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	event->stream = stream;
	event->ticket = stream ? ++stream->issued : 0;
	if (stream && !stream->is_held && !standin.is_lazy)
		stream->done = stream->issued;
	return standin_leave(CUDA_OK);
}

cuda_status standin_EventQuery(cuda_event event)
{
	ENTER("cuEventQuery");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	if (!is_event_done(event) &&
	    ++event->stream->nr_queries >= LAZY_QUERIES)
		catch_up(event->stream, event->ticket);
	return standin_leave(is_event_done(event) ? CUDA_OK : CUDA_NOT_READY);
}

cuda_status standin_EventSynchronize(cuda_event event)
{
	ENTER("cuEventSynchronize");
	if (!standin_has_context() || !event)
		return standin_leave(CUDA_INVALID_CONTEXT);
	wait_for(event);
	if (event->stream)
		run_until(event->stream, event->ticket);
	return standin_leave(CUDA_OK);
}

void standin_add_kernel(cuda_stream stream, const struct standin_record *record)
{
	struct standin_record *copy = aligned_alloc(64, sizeof(*copy));

	*copy = *record;
	if (stream->nr_work == MAX_WORK)
		run_work(stream);
	add(stream, (struct work){ .kernel = copy });
}

static bool are_rows_mapped(uint64_t addr, uint64_t pitch, uint64_t bytes,
			    uint64_t nr_rows)
{
	for (uint64_t row = 0; row < nr_rows; row++) {
		if (!standin_is_mapped(addr + row * pitch, bytes, false))
			return false;
	}
	return true;
}

static cuda_status add_work(cuda_stream stream, struct work work)
{
	if (!standin_has_context() || stream->nr_work == MAX_WORK)
		return CUDA_INVALID_CONTEXT;
	if (!work.bytes || !work.nr_rows ||
	    !are_rows_mapped(work.to, work.to_pitch, work.bytes,
			     work.nr_rows) ||
	    (work.is_copy && !are_rows_mapped(work.from, work.from_pitch,
					      work.bytes, work.nr_rows)))
		return CUDA_INVALID_VALUE;
	add(stream, work);
	return CUDA_OK;
}

cuda_status standin_MemsetD8Async(cuda_addr addr, unsigned char value,
				  size_t bytes, cuda_stream stream)
{
	ENTER("cuMemsetD8Async");
	return standin_leave(add_work(stream, (struct work){ .to = addr,
							     .bytes = bytes,
							     .nr_rows = 1,
							     .value = value,
							     .is_set = true }));
}

cuda_status standin_MemcpyDtoDAsync(cuda_addr to, cuda_addr from, size_t bytes,
				    cuda_stream stream)
{
	ENTER("cuMemcpyDtoDAsync");
	return standin_leave(
		add_work(stream, (struct work){ .to = to,
						.from = from,
						.bytes = bytes,
						.nr_rows = 1,
						.is_copy = true }));
}

static cuda_status add_host_copy(cuda_stream stream, struct work work)
{
	uint64_t at = work.host_to ? work.from : work.to;

	if (!standin_has_context())
		return CUDA_INVALID_CONTEXT;
	/* A graph could hold it; here none has to. */
	if (stream == standin_captured)
		return CUDA_NOT_PERMITTED;
	if (!standin_is_mapped(at, work.bytes, false))
		return CUDA_INVALID_VALUE;
	/* Where no more fit, the device has come that far. */
	if (stream->nr_work == MAX_WORK)
		run_work(stream);
	add(stream, work);
	return CUDA_OK;
}

cuda_status standin_MemcpyHtoDAsync(cuda_addr to, const void *from,
				    size_t bytes, cuda_stream stream)
{
	ENTER("cuMemcpyHtoDAsync");
	if (!from)
		return standin_leave(CUDA_INVALID_VALUE);
	return standin_leave(add_host_copy(
		stream,
		(struct work){ .to = to, .host_from = from, .bytes = bytes }));
}

cuda_status standin_MemcpyDtoHAsync(void *to, cuda_addr from, size_t bytes,
				    cuda_stream stream)
{
	ENTER("cuMemcpyDtoHAsync");
	if (!to)
		return standin_leave(CUDA_INVALID_VALUE);
	return standin_leave(add_host_copy(
		stream,
		(struct work){ .host_to = to, .from = from, .bytes = bytes }));
}

cuda_status standin_MemsetD2D8Async(cuda_addr addr, size_t pitch,
				    unsigned char value, size_t row_bytes,
				    size_t nr_rows, cuda_stream stream)
{
	ENTER("cuMemsetD2D8Async");
	if (pitch < row_bytes)
		return standin_leave(CUDA_INVALID_VALUE);
	return standin_leave(add_work(stream, (struct work){ .to = addr,
							     .to_pitch = pitch,
							     .bytes = row_bytes,
							     .nr_rows = nr_rows,
							     .value = value,
							     .is_set = true }));
}

static bool is_side_good(const struct cuda_side_2d *side, size_t row_bytes)
{
	return side->type == CUDA_MEMORY_DEVICE && !side->x_bytes && !side->y &&
	       !side->host && !side->array && side->pitch >= row_bytes;
}

cuda_status standin_Memcpy2DAsync(const struct cuda_copy_2d *copy,
				  cuda_stream stream)
{
	ENTER("cuMemcpy2DAsync");
	if (!is_side_good(&copy->from, copy->row_bytes) ||
	    !is_side_good(&copy->to, copy->row_bytes))
		return standin_leave(CUDA_INVALID_VALUE);
	return standin_leave(
		add_work(stream, (struct work){ .to = copy->to.addr,
						.to_pitch = copy->to.pitch,
						.from = copy->from.addr,
						.from_pitch = copy->from.pitch,
						.bytes = copy->row_bytes,
						.nr_rows = copy->nr_rows,
						.is_copy = true }));
}

void standin_check_uses(uint64_t addr, uint64_t bytes)
{
	cuda_stream stream;

	LIST_FOREACH(stream, &streams, link)
	{
		for (int i = 0; i < stream->nr_work; i++) {
			const struct work *w = &stream->work[i];

			if (w->ticket > stream->done &&
			    addr < w->to + w->bytes && w->to < addr + bytes)
				standin_now.nr_violations++;
		}
	}
}

/* ---- for tests ----------------------------------------------------------- */

cuda_stream standin_stream(void)
{
	pthread_mutex_lock(&standin_lock);
	cuda_stream stream = new_stream(true);

	pthread_mutex_unlock(&standin_lock);
	return stream;
}

static void launch(cuda_stream stream, struct work work)
{
	pthread_mutex_lock(&standin_lock);
	if (stream->nr_work == MAX_WORK)
		abort(); /* a test that lost sight of its work */
	add(stream, work);
	stream->work[stream->nr_work - 1].ticket = ++stream->issued;
	pthread_mutex_unlock(&standin_lock);
}

void standin_launch(cuda_stream stream, const void *addr, uint64_t bytes)
{
	launch(stream, (struct work){ .to = (uint64_t)addr, .bytes = bytes });
}

void standin_launch_set(cuda_stream stream, const void *addr, uint64_t bytes,
			uint8_t value)
{
	launch(stream, (struct work){ .to = (uint64_t)addr,
				      .bytes = bytes,
				      .nr_rows = 1,
				      .value = value,
				      .is_set = true });
}

void standin_finish(cuda_stream stream)
{
	pthread_mutex_lock(&standin_lock);
	run_work(stream);
	stream->done = stream->issued;
	pthread_cond_broadcast(&progress);
	pthread_mutex_unlock(&standin_lock);
}

int standin_work_left(cuda_stream stream)
{
	pthread_mutex_lock(&standin_lock);
	int left = stream->nr_work;

	pthread_mutex_unlock(&standin_lock);
	return left;
}

void standin_stream_end(cuda_stream stream)
{
	pthread_mutex_lock(&standin_lock);
	end_stream(stream);
	pthread_mutex_unlock(&standin_lock);
}
