/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the driver without a GPU, and kernels that a test holds
 * back. See cuda_standin.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "tests/engine/cuda_standin_private.h"

enum { MAX_WORK = 64 };

/* A use of memory by a kernel, or (of the library's stream) a copy that runs at its end. */
struct work {
	uint64_t to, from, bytes;
	bool is_copy, is_clear;
	uint64_t ticket;
};

struct cuda_stream_opaque {
	bool is_held;
	uint64_t issued, done; /* tickets */
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

static void run_work(cuda_stream stream)
{
	for (int i = 0; i < stream->nr_work; i++) {
		const struct work *w = &stream->work[i];

		if (w->is_copy)
			memcpy((void *)w->to, (void *)w->from, w->bytes);
		else if (w->is_clear)
			memset((void *)w->to, 0, w->bytes);
	}
	stream->nr_work = 0;
}

cuda_status standin_StreamSynchronize(cuda_stream stream)
{
	ENTER("cuStreamSynchronize");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	for (int i = 0; i < stream->nr_waits; i++) {
		while (!is_event_done(stream->waits[i]))
			pthread_cond_wait(&progress, &standin_lock);
	}
	stream->nr_waits = 0;
	run_work(stream);
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
	if (stream && !stream->is_held)
		stream->done = stream->issued;
	return standin_leave(CUDA_OK);
}

cuda_status standin_EventQuery(cuda_event event)
{
	ENTER("cuEventQuery");
	if (!standin_has_context())
		return standin_leave(CUDA_INVALID_CONTEXT);
	return standin_leave(is_event_done(event) ? CUDA_OK : CUDA_NOT_READY);
}

static cuda_status add_work(cuda_stream stream, struct work work)
{
	if (!standin_has_context() || stream->nr_work == MAX_WORK)
		return CUDA_INVALID_CONTEXT;
	if (!standin_is_mapped(work.to, work.bytes, false) ||
	    (work.is_copy && !standin_is_mapped(work.from, work.bytes, false)))
		return CUDA_INVALID_VALUE;
	stream->work[stream->nr_work++] = work;
	return CUDA_OK;
}

cuda_status standin_MemsetD8Async(cuda_addr addr, unsigned char value,
				  size_t bytes, cuda_stream stream)
{
	ENTER("cuMemsetD8Async");
	return standin_leave(
		value ? CUDA_INVALID_VALUE :
			add_work(stream, (struct work){ .to = addr,
							.bytes = bytes,
							.is_clear = true }));
}

cuda_status standin_MemcpyDtoDAsync(cuda_addr to, cuda_addr from, size_t bytes,
				    cuda_stream stream)
{
	ENTER("cuMemcpyDtoDAsync");
	return standin_leave(
		add_work(stream, (struct work){ .to = to,
						.from = from,
						.bytes = bytes,
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

void standin_launch(cuda_stream stream, const void *addr, uint64_t bytes)
{
	pthread_mutex_lock(&standin_lock);
	if (stream->nr_work == MAX_WORK)
		abort(); /* a test that lost sight of its work */
	stream->work[stream->nr_work++] = (struct work){
		.to = (uint64_t)addr, .bytes = bytes, .ticket = ++stream->issued
	};
	pthread_mutex_unlock(&standin_lock);
}

void standin_finish(cuda_stream stream)
{
	pthread_mutex_lock(&standin_lock);
	stream->done = stream->issued;
	stream->nr_work = 0;
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
