/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the GPU backend: activations, tensor maps over them, tables of
 * angles, and a step's inputs, which go to the device in one copy. What grows
 * with use grows to what the largest step needed, between steps. Driver thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/gpu_private.h"
#include "kernels/cpu/kernels_cpu.h"

enum { ALIGN = 256 };

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

int gpu_reserve(struct gpu_backend *gpu, struct gpu_mem *mem, uint64_t bytes)
{
	/* Most of it never grows: the first time it is no more than what is needed. */
	uint64_t want = mem->bytes ? mem->bytes : bytes;
	cuda_status status;

	if (bytes <= mem->bytes)
		return 0;
	while (want < bytes)
		want += want / 2;
	want = round_up(want, ALIGN);
	/* Nothing of an earlier step may still run on what is given back. */
	(void)gpu_base(gpu)->StreamSynchronize(gpu->stream);
	if (mem->addr)
		(void)gpu->driver->MemFree(mem->addr);
	*mem = (struct gpu_mem){ 0 };
	gpu->generation++;
	status = gpu->driver->MemAlloc(&mem->addr, want);
	if (status != CUDA_OK) {
		mem->addr = 0;
		return gpu_errno(status);
	}
	mem->bytes = want;
	return 0;
}

/* ---- activations ------------------------------------------------------------- */

int gpu_encode_map(struct gpu_backend *gpu, struct gpu_attn_tensor_map *out,
		   cuda_addr base, uint32_t rank, const uint64_t *dims,
		   const uint64_t *strides, const uint32_t *box)
{
	const uint32_t steps[5] = { 1, 1, 1, 1, 1 };
	cuda_status status = gpu->driver->TensorMapEncodeTiled(
		out, GPU_MAP_BF16, rank, (void *)(uintptr_t)base, dims, strides,
		box, steps, 0, GPU_MAP_SWIZZLE_128B, GPU_MAP_PROMOTE_128B, 0);

	return gpu_errno(status);
}

static int encode_maps(struct gpu_backend *gpu, struct gpu_input *input,
		       uint32_t nr_rows)
{
	const uint64_t dims[3] = { 64, nr_rows, input->nr_cols / 64 };
	const uint64_t strides[2] = { (uint64_t)input->nr_cols * 2, 128 };

	for (uint32_t i = 0; i < GPU_NR_BOXES; i++) {
		const uint32_t box[3] = { 64, gpu_box_tokens(i),
					  i < GPU_NR_FLAT ? 2 : 1 };
		int rc = gpu_encode_map(gpu, &input->maps[i], input->rows, 3,
					dims, strides, box);

		if (rc)
			return rc;
	}
	return 0;
}

int gpu_reserve_out(struct gpu_backend *gpu, uint32_t rows)
{
	const struct backend_shape *s = &gpu->shape;
	uint32_t want = gpu->out_capacity ? gpu->out_capacity : 1;
	uint64_t bytes;
	int rc;

	if (rows <= gpu->out_capacity)
		return 0;
	while (want < rows)
		want *= 2;
	gpu->logits_stride = (s->n_vocab + 7) / 8 * 8;
	bytes = (uint64_t)want * gpu->logits_stride * sizeof(float);
	gpu->out_capacity = 0;
	rc = gpu_reserve(gpu, &gpu->out_mem, (uint64_t)want * s->n_embd * 2);
	if (!rc)
		rc = gpu_reserve(gpu, &gpu->logits, bytes);
	gpu->out.rows = gpu->out_mem.addr;
	gpu->out.nr_cols = s->n_embd;
	if (!rc)
		rc = encode_maps(gpu, &gpu->out, want);
	if (rc)
		return rc;
	if (gpu->host_logits)
		(void)gpu->driver->MemFreeHost(gpu->host_logits);
	gpu->host_logits = NULL;
	free(gpu->is_fetched);
	gpu->is_fetched = calloc(want, 1);
	if (!gpu->is_fetched)
		return -ENOMEM;
	rc = gpu_errno(gpu->driver->MemHostAlloc((void **)&gpu->host_logits,
						 bytes, 0));
	if (!rc)
		gpu->out_capacity = want;
	return rc;
}

/* One allocation for what has the batch's rows. */
static int allocate_rows(struct gpu_backend *gpu)
{
	const struct backend_shape *s = &gpu->shape;
	uint64_t rows = s->max_rows;
	uint32_t n_q = s->n_q_heads * s->head_dim;
	uint32_t n_kv = s->n_kv_heads * s->head_dim;
	const struct {
		cuda_addr *addr;
		uint64_t bytes;
	} parts[] = {
		{ &gpu->x, rows * s->n_embd * 4 },
		{ &gpu->y, rows * s->n_embd * 4 },
		{ &gpu->qkv, rows * (n_q + 2 * n_kv) * 4 },
		{ &gpu->q, rows * n_q * 2 },
		{ &gpu->gate_up, rows * s->n_ff * 2 * 4 },
		{ &gpu->h.rows, rows * s->n_embd * 2 },
		{ &gpu->a.rows, rows * n_q * 2 },
		{ &gpu->f.rows, rows * s->n_ff * 2 },
	};
	uint64_t bytes = 0;
	int rc;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		bytes += round_up(parts[i].bytes, ALIGN);
	rc = gpu_reserve(gpu, &gpu->arena, bytes);
	if (rc)
		return rc;
	bytes = 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		*parts[i].addr = gpu->arena.addr + bytes;
		bytes += round_up(parts[i].bytes, ALIGN);
	}
	gpu->h.nr_cols = s->n_embd;
	gpu->a.nr_cols = n_q;
	gpu->f.nr_cols = s->n_ff;
	rc = encode_maps(gpu, &gpu->h, s->max_rows);
	if (!rc)
		rc = encode_maps(gpu, &gpu->a, s->max_rows);
	if (!rc)
		rc = encode_maps(gpu, &gpu->f, s->max_rows);
	return rc;
}

static int check_shape(struct gpu_backend *gpu, char *err, size_t errlen)
{
	static const uint32_t dims[GPU_NR_HEADS] = { 64, 128, 256 };
	const struct backend_shape *s = &gpu->shape;

	for (gpu->head_index = 0; gpu->head_index < GPU_NR_HEADS;
	     gpu->head_index++)
		if (dims[gpu->head_index] == s->head_dim)
			return 0;
	snprintf(
		err, errlen,
		"device cuda: no kernel for attention heads of %u values: want 64, 128 or "
		"256",
		s->head_dim);
	return -ENOTSUP;
}

static int prepare_inside(struct gpu_backend *gpu)
{
	const struct backend_shape *s = &gpu->shape;
	uint32_t widest = s->n_ff > s->n_embd ? s->n_ff : s->n_embd;
	uint32_t tokens = (s->max_rows + 63) / 64 * 64;
	int rc = allocate_rows(gpu);

	if (s->n_q_heads * s->head_dim > widest)
		widest = s->n_q_heads * s->head_dim;
	if (!rc)
		rc = gpu_reserve(gpu, &gpu->sums,
				 4ull * gpu_linear_nr_sums(tokens, widest, 64));
	if (!rc)
		rc = gpu_reserve(gpu, &gpu->scratch,
				 gpu_linear_large_scratch_bytes(gpu->nr_sms));
	if (!rc)
		rc = gpu_reserve(gpu, &gpu->totals,
				 (uint64_t)s->max_rows * s->n_q_heads *
					 s->head_dim * sizeof(float));
	if (!rc)
		rc = gpu_attn_prepare(gpu);
	if (!rc)
		rc = gpu_sample_reserve(gpu);
	for (uint32_t i = 0; i < BACKEND_MAX_STARTED && !rc; i++)
		rc = gpu_errno(gpu_base(gpu)->EventCreate(
			&gpu->steps[i].done, CUDA_EVENT_NO_TIMING));
	if (!rc)
		rc = gpu_reserve_out(gpu, 1);
	if (!rc)
		rc = gpu_reserve_positions(gpu, 4096);
	return rc;
}

static int prepare_angles(struct gpu_backend *gpu)
{
	for (uint32_t i = 0; i < gpu->shape.nr_ropes; i++) {
		const struct backend_rope *r = &gpu->shape.ropes[i];

		gpu->inv_freq[i] = calloc(r->nr_rot / 2, sizeof(double));
		if (!gpu->inv_freq[i])
			return -ENOMEM;
		rope_inv_freq(r->base, r->factors, r->pos_scale, r->nr_rot,
			      gpu->inv_freq[i]);
	}
	return 0;
}

int gpu_prepare(struct backend *b, const struct backend_shape *shape, char *err,
		size_t errlen)
{
	struct gpu_backend *gpu = to_gpu(b);
	int rc;

	gpu->shape = *shape;
	rc = check_shape(gpu, err, errlen);
	if (rc)
		return rc;
	rc = gpu_sample_prepare(gpu);
	if (!rc)
		rc = prepare_angles(gpu);
	if (!rc)
		rc = gpu_enter(gpu);
	if (!rc) {
		rc = prepare_inside(gpu);
		gpu_leave(gpu);
	}
	if (rc)
		snprintf(err, errlen, "device cuda: %s for steps of %u tokens",
			 rc == -ENOMEM ? "not enough memory" : "cannot prepare",
			 shape->max_rows);
	return rc;
}

/* ---- angles -------------------------------------------------------------------- */

struct angle_job {
	const double *inv_freq;
	uint32_t nr_rot;
	float *out;
	struct work_share *share;
};

static void angle_thread(void *arg, uint32_t thread)
{
	struct angle_job *job = arg;
	uint32_t first, end;

	while (work_share_take(job->share, thread, &first, &end))
		for (uint32_t pos = first; pos < end; pos++)
			rope_cos_sin(job->inv_freq, job->nr_rot, pos,
				     job->out + (size_t)pos * job->nr_rot);
}

static int make_angles(struct gpu_backend *gpu, uint32_t rope, uint32_t nr,
		       struct work_share *share)
{
	uint32_t nr_rot = gpu->shape.ropes[rope].nr_rot;
	uint64_t bytes = (uint64_t)nr * nr_rot * sizeof(float);
	struct angle_job job = { .inv_freq = gpu->inv_freq[rope],
				 .nr_rot = nr_rot,
				 .out = malloc(bytes),
				 .share = share };
	int rc = job.out ? gpu_reserve(gpu, &gpu->cos_sin[rope], bytes) :
			   -ENOMEM;

	if (!rc) {
		work_share_init(share, threads_nr(gpu->threads), nr, 64);
		threads_run(gpu->threads, angle_thread, &job);
		rc = gpu_errno(gpu->driver->MemcpyHtoDAsync(
			gpu->cos_sin[rope].addr, job.out, bytes, gpu->stream));
	}
	if (!rc)
		rc = gpu_errno(gpu_base(gpu)->StreamSynchronize(gpu->stream));
	free(job.out);
	return rc;
}

int gpu_reserve_positions(struct gpu_backend *gpu, uint32_t nr)
{
	uint32_t want = gpu->nr_positions ? gpu->nr_positions : nr;
	struct work_share *share;
	int rc = 0;

	if (nr <= gpu->nr_positions)
		return 0;
	while (want < nr)
		want *= 2;
	share = aligned_alloc(
		64, round_up(work_share_bytes(threads_nr(gpu->threads)), 64));
	if (!share)
		return -ENOMEM;
	gpu->nr_positions = 0;
	for (uint32_t i = 0; i < gpu->shape.nr_ropes && !rc; i++)
		rc = make_angles(gpu, i, want, share);
	if (!rc)
		gpu->nr_positions = want;
	free(share);
	return rc;
}

/* ---- a step's inputs -------------------------------------------------------------- */

struct part {
	const void *data;
	uint64_t nr, elem_bytes;
	cuda_addr *addr;
};

/* Rows and pieces that a plan's units name: one behind the last. */
static uint32_t nr_plan_rows(const struct attn_plan *plan, uint32_t *out_pieces)
{
	uint32_t nr_rows = 0;

	*out_pieces = 0;
	for (uint32_t i = 0; i < plan->nr_units; i++) {
		const struct attn_unit *u = &plan->units[i];

		if (u->first_row + u->nr_rows > nr_rows)
			nr_rows = u->first_row + u->nr_rows;
		if (u->first_piece + u->nr_pieces > *out_pieces)
			*out_pieces = u->first_piece + u->nr_pieces;
	}
	return nr_rows;
}

static struct part part_of(const struct gpu_host_array *a, size_t elem_bytes,
			   cuda_addr *addr)
{
	return (struct part){ a->data, a->nr, elem_bytes, addr };
}

static uint32_t list_plan(struct gpu_backend *gpu, uint32_t stream,
			  struct part *parts)
{
	const struct attn_plan *from = &gpu->batch.plans[stream];
	struct gpu_plan *p = &gpu->plans[stream];
	uint32_t nr_pieces, nr_rows = nr_plan_rows(from, &nr_pieces);
	const struct part all[] = {
		{ gpu->batch.tiles[stream], gpu->batch.nr_rows,
		  sizeof(uint8_t *), &p->tiles_at },
		{ &p->counts, 1, sizeof(p->counts), &p->counts_at },
		{ from->rows, nr_rows, sizeof(*from->rows), &p->rows_at },
		{ from->pieces, nr_pieces, sizeof(*from->pieces),
		  &p->pieces_at },
		part_of(&p->any_units, sizeof(struct attn_unit), &p->units_at),
		part_of(&p->any_merges, sizeof(struct attn_merge),
			&p->merges_at),
		part_of(&p->splits, sizeof(struct gpu_attn_split),
			&p->splits_at),
		part_of(&p->seqs, sizeof(struct gpu_attn_seq), &p->seqs_at),
		part_of(&p->runs, sizeof(struct gpu_attn_unit), &p->runs_at),
		part_of(&p->fast_pieces, sizeof(struct gpu_attn_piece),
			&p->fast_pieces_at),
	};

	p->counts = (struct gpu_attn_counts){ p->any_units.nr, p->any_merges.nr,
					      p->splits.nr, 0 };
	memcpy(parts, all, sizeof(all));
	return sizeof(all) / sizeof(all[0]);
}

static uint32_t list_parts(struct gpu_backend *gpu, struct part *parts)
{
	const struct backend_batch *batch = &gpu->batch;
	uint32_t nr = 0;

	parts[nr++] =
		(struct part){ batch->tokens, batch->nr_rows, 4, &gpu->tokens };
	parts[nr++] = (struct part){ batch->positions, batch->nr_rows, 4,
				     &gpu->positions };
	parts[nr++] = (struct part){ batch->out_rows, batch->nr_out, 4,
				     &gpu->out_rows };
	for (uint32_t s = 0; s < gpu->shape.nr_streams; s++)
		nr += list_plan(gpu, s, parts + nr);
	return nr;
}

static int reserve_staging(struct gpu_backend *gpu, uint64_t bytes)
{
	struct gpu_step *step = gpu->step;
	int rc = gpu_reserve(gpu, &gpu->inputs, bytes);

	if (rc || step->staging_bytes >= bytes)
		return rc;
	if (step->staging)
		(void)gpu->driver->MemFreeHost(step->staging);
	step->staging = NULL;
	step->staging_bytes = 0;
	rc = gpu_errno(gpu->driver->MemHostAlloc((void **)&step->staging,
						 gpu->inputs.bytes, 0));
	if (!rc)
		step->staging_bytes = gpu->inputs.bytes;
	return rc;
}

/* Bytes from a part's start to the next one's. */
static uint64_t room_bytes(const struct gpu_backend *gpu, const struct part *p)
{
	return round_up(gpu_room(gpu, (uint32_t)p->nr) * p->elem_bytes, ALIGN);
}

int gpu_stage_batch(struct gpu_backend *gpu)
{
	struct part parts[GPU_MAX_PARTS];
	uint32_t nr = list_parts(gpu, parts);
	uint64_t bytes = 0;
	int rc;

	for (uint32_t i = 0; i < nr; i++)
		bytes += room_bytes(gpu, &parts[i]);
	rc = reserve_staging(gpu, bytes);
	if (rc)
		return rc;
	bytes = 0;
	memset(gpu->key, 0, sizeof(gpu->key));
	for (uint32_t i = 0; i < nr; i++) {
		if (parts[i].nr)
			memcpy(gpu->step->staging + bytes, parts[i].data,
			       parts[i].nr * parts[i].elem_bytes);
		*parts[i].addr = gpu->inputs.addr + bytes;
		gpu->key[i] = room_bytes(gpu, &parts[i]);
		bytes += gpu->key[i];
	}
	return gpu_errno(gpu->driver->MemcpyHtoDAsync(
		gpu->inputs.addr, gpu->step->staging, bytes, gpu->stream));
}

void gpu_buffers_free(struct gpu_backend *gpu)
{
	struct gpu_mem *all[] = { &gpu->arena,	 &gpu->out_mem,	 &gpu->logits,
				  &gpu->sums,	 &gpu->partials, &gpu->totals,
				  &gpu->scratch, &gpu->inputs,	 &gpu->arrivals,
				  &gpu->queue };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i]->addr)
			(void)gpu->driver->MemFree(all[i]->addr);
	for (uint32_t i = 0; i < BACKEND_MAX_ROPES; i++) {
		if (gpu->cos_sin[i].addr)
			(void)gpu->driver->MemFree(gpu->cos_sin[i].addr);
		free(gpu->inv_freq[i]);
	}
	for (uint32_t i = 0; i < BACKEND_MAX_STREAMS; i++)
		gpu_plan_free(&gpu->plans[i]);
	for (uint32_t i = 0; i < BACKEND_MAX_STARTED; i++) {
		struct gpu_step *step = &gpu->steps[i];

		if (step->staging)
			(void)gpu->driver->MemFreeHost(step->staging);
		if (step->done)
			(void)gpu_base(gpu)->EventDestroy(step->done);
	}
	if (gpu->host_logits)
		(void)gpu->driver->MemFreeHost(gpu->host_logits);
	free(gpu->is_fetched);
}
