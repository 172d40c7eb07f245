/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode steps as CUDA graphs: the launches of a step, which depend on sizes
 * alone, are recorded once and replayed with one call. Everything that changes
 * from step to step lies in device memory; arrays have room by powers of two,
 * so that a batch that decodes keeps its graph for many steps. A step is
 * recorded when the one before had the same sizes. Driver thread.
 */
#include <string.h>

#include "engine/backend/gpu_private.h"

enum {
	MAX_ROWS = 256, /* beyond, launches take a small part of the step */
	MIN_ROOM = 16, /* elements */
};

uint32_t gpu_room(const struct gpu_backend *gpu, uint32_t nr)
{
	uint32_t room = MIN_ROOM;

	if (!gpu->is_bucketed || !nr)
		return nr;
	while (room < nr)
		room *= 2;
	return room;
}

bool gpu_is_recordable(const struct gpu_backend *gpu)
{
	const struct backend_batch *batch = &gpu->batch;

	if (gpu->no_graphs || batch->nr_rows > MAX_ROWS ||
	    batch->nr_out != batch->nr_rows)
		return false;
	/* A run of a prompt is gone after a step, and its kernel's launch counts the units. */
	for (uint32_t s = 0; s < gpu->shape.nr_streams; s++)
		if (gpu->plans[s].runs.nr)
			return false;
	return true;
}

/* What launches depend on beside the arrays, whose room gpu_stage_batch() has put in front. */
static void complete_key(struct gpu_backend *gpu)
{
	uint64_t *word = gpu->key + GPU_MAX_PARTS;

	*word++ = gpu->generation;
	*word++ = gpu->batch.nr_rows;
	*word++ = gpu->batch.nr_out;
	for (uint32_t s = 0; s < gpu->shape.nr_streams; s++) {
		*word++ = gpu->plans[s].max_unit_rows;
		*word++ = gpu->plans[s].slot_room;
		*word++ = gpu->plans[s].partial_room;
	}
}

static struct gpu_recorded *find(struct gpu_backend *gpu)
{
	for (uint32_t i = 0; i < GPU_MAX_GRAPHS; i++)
		if (gpu->graphs[i].exec &&
		    !memcmp(gpu->graphs[i].key, gpu->key, sizeof(gpu->key)))
			return &gpu->graphs[i];
	return NULL;
}

static void drop(struct gpu_backend *gpu, struct gpu_recorded *r)
{
	if (r->exec)
		(void)gpu->driver->GraphExecDestroy(r->exec);
	*r = (struct gpu_recorded){ 0 };
}

/* A place for a new one: free, or that of the one which has not run for longest. */
static struct gpu_recorded *make_place(struct gpu_backend *gpu)
{
	struct gpu_recorded *oldest = &gpu->graphs[0];

	for (uint32_t i = 0; i < GPU_MAX_GRAPHS; i++) {
		if (!gpu->graphs[i].exec)
			return &gpu->graphs[i];
		if (gpu->graphs[i].used < oldest->used)
			oldest = &gpu->graphs[i];
	}
	drop(gpu, oldest);
	return oldest;
}

void gpu_graph_begin(struct gpu_backend *gpu)
{
	gpu->nr_steps++;
	complete_key(gpu);
	if (find(gpu)) {
		gpu->mode = GPU_REPLAY;
	} else if (!memcmp(gpu->key, gpu->last_key, sizeof(gpu->key))) {
		cuda_status status = gpu->driver->StreamBeginCapture(
			gpu->stream, GPU_CAPTURE_THREAD);

		if (status == CUDA_OK)
			gpu->mode = GPU_CAPTURE;
		else
			gpu->no_graphs = true; /* the step goes its usual way */
	}
	memcpy(gpu->last_key, gpu->key, sizeof(gpu->key));
}

/* The end of a capture: an executable graph; NULL, with what went wrong noted. */
static struct gpu_recorded *finish_capture(struct gpu_backend *gpu)
{
	struct gpu_recorded *r = make_place(gpu);
	gpu_graph graph = NULL;
	cuda_status status = gpu->driver->StreamEndCapture(gpu->stream, &graph);

	if (status == CUDA_OK && !gpu->error)
		status = gpu->driver->GraphInstantiate(&r->exec, graph, 0);
	if (graph)
		(void)gpu->driver->GraphDestroy(graph);
	gpu_note(gpu, status);
	if (!gpu->error) {
		memcpy(r->key, gpu->key, sizeof(gpu->key));
		return r;
	}
	/* Nothing of the step was launched: it fails, and later ones do without. */
	r->exec = NULL;
	gpu->no_graphs = true;
	return NULL;
}

void gpu_graph_end(struct gpu_backend *gpu)
{
	struct gpu_recorded *r = NULL;

	if (gpu->mode == GPU_CAPTURE)
		r = finish_capture(gpu);
	else if (gpu->mode == GPU_REPLAY)
		r = find(gpu);
	gpu->mode = GPU_DIRECT;
	if (!r || gpu->error)
		return;
	r->used = gpu->nr_steps;
	gpu_note(gpu, gpu->driver->GraphLaunch(r->exec, gpu->stream));
}

void gpu_graph_free(struct gpu_backend *gpu)
{
	for (uint32_t i = 0; i < GPU_MAX_GRAPHS; i++)
		drop(gpu, &gpu->graphs[i]);
}
