/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a step on the GPU: each launches its kernels on the stream at
 * once; wait() waits for them. Driver thread, from begin() to submit() with
 * the device's context current.
 */
#include <string.h>

#include "engine/backend/gpu_private.h"
#include "kernels/cuda/sample_params.h"

/* Where embed finds a token that was drawn. */
_Static_assert(offsetof(struct gpu_sample_result, token) == 0, "drawn");

static float *floats(cuda_addr addr)
{
	return (float *)(uintptr_t)addr;
}

static const float *vector(const struct gpu_backend *gpu, int id)
{
	return id == BACKEND_NONE ? NULL : floats(gpu->vectors[id].values);
}

static struct gpu_grid a_row_each(uint32_t nr_rows)
{
	return (struct gpu_grid){
		.x = nr_rows, .y = 1, .z = 1, .threads = GPU_ROW_THREADS
	};
}

/* For kernels whose threads go on to further values. */
static struct gpu_grid spread(const struct gpu_backend *gpu,
			      uint64_t nr_threads)
{
	uint64_t nr = (nr_threads + GPU_ROW_THREADS - 1) / GPU_ROW_THREADS;
	uint64_t most = gpu->nr_sms * 8ull;

	return a_row_each((uint32_t)(nr < most ? nr : most));
}

int gpu_begin(struct backend *b, const struct backend_batch *batch)
{
	struct gpu_backend *gpu = to_gpu(b);
	uint32_t last = 0;
	int rc = gpu_enter(gpu);

	if (rc)
		return rc;
	gpu->batch = *batch;
	gpu->step->nr_samples = gpu->step->nr_device_samples = 0;
	gpu->has_branch = false;
	gpu->error = 0;
	for (uint32_t i = 0; i < batch->nr_rows; i++)
		if (batch->positions[i] > last)
			last = batch->positions[i];
	rc = gpu_reserve_positions(gpu, last + 1);
	for (uint32_t s = 0; s < gpu->shape.nr_streams && !rc; s++)
		rc = gpu_plan_split(gpu, s);
	gpu->mode = GPU_DIRECT;
	gpu->is_bucketed = !rc && gpu_is_recordable(gpu);
	if (!rc)
		rc = gpu_reserve_out(gpu, batch->nr_out);
	if (!rc)
		rc = gpu_reserve_attn(gpu);
	if (!rc)
		rc = gpu_stage_batch(gpu);
	if (rc) {
		gpu_leave(gpu);
		return rc;
	}
	memset(gpu->is_fetched, 0, gpu->out_capacity);
	if (gpu->is_bucketed)
		gpu_graph_begin(gpu);
	return 0;
}

void gpu_embed(struct backend *b, int matrix, float scale)
{
	struct gpu_backend *gpu = to_gpu(b);
	const struct gpu_matrix *m = &gpu->matrices[matrix];
	struct gpu_embed_params p = {
		.table = (const void *)(uintptr_t)m->table,
		.tokens = (const void *)(uintptr_t)gpu->tokens,
		.drawn = (const void *)(uintptr_t)gpu->results,
		.drawn_stride =
			sizeof(struct gpu_sample_result) / sizeof(int32_t),
		.out = floats(gpu->x),
		.row_bytes = m->row_bytes,
		.type = m->table_type,
		.nr_cols = m->tensor.nr_cols,
		.scale = scale,
	};
	struct gpu_grid grid = a_row_each(gpu->batch.nr_rows);

	gpu_launch(gpu, gpu->kernels.embed, &grid, &p);
}

/* The branch that waits is added on the way. */
static void norm_rows(struct gpu_backend *gpu, int vector_id, float eps,
		      uint32_t nr_rows, cuda_addr rows, cuda_addr out)
{
	struct gpu_norm_params p = {
		.x = floats(gpu->x),
		.y = gpu->has_branch ? floats(gpu->y) : NULL,
		.w = vector(gpu, vector_id),
		.out = (void *)(uintptr_t)out,
		.rows = (const void *)(uintptr_t)rows,
		.nr_cols = gpu->shape.n_embd,
		.eps = eps,
	};
	struct gpu_grid grid = a_row_each(nr_rows);

	gpu_launch(gpu, gpu->kernels.rms_norm, &grid, &p);
	gpu->has_branch = false;
}

void gpu_norm(struct backend *b, enum backend_slot src, int vector_id,
	      float eps, bool add, enum backend_slot dst)
{
	struct gpu_backend *gpu = to_gpu(b);

	if (src == SLOT_Y && add && dst == SLOT_X) {
		struct gpu_norm_params p = {
			.x = floats(gpu->x),
			.y = floats(gpu->y),
			.w = vector(gpu, vector_id),
			.nr_cols = gpu->shape.n_embd,
			.eps = eps,
			.is_post = 1,
		};
		struct gpu_grid grid = a_row_each(gpu->batch.nr_rows);

		gpu_launch(gpu, gpu->kernels.rms_norm, &grid, &p);
		return;
	}
	norm_rows(gpu, vector_id, eps, gpu->batch.nr_rows, 0, gpu->h.rows);
	(void)dst; /* SLOT_H: the only other use */
}

/* Products of one input: joined matrices at once, others one by one beside each other. */
static void products(struct gpu_backend *gpu, const struct gpu_input *input,
		     const int *matrices, uint32_t nr, cuda_addr out)
{
	const struct gpu_matrix *first = &gpu->matrices[matrices[0]];
	uint32_t stride = 0, column = 0;

	for (uint32_t i = 0; i < nr; i++)
		stride += gpu->matrices[matrices[i]].tensor.nr_rows;
	if (first->nr_joined == nr) {
		gpu_matmul(gpu, input, gpu->batch.nr_rows, first, out, stride);
		return;
	}
	for (uint32_t i = 0; i < nr; i++) {
		const struct gpu_matrix *m = &gpu->matrices[matrices[i]];

		gpu_matmul(gpu, input, gpu->batch.nr_rows, m,
			   out + column * sizeof(float), stride);
		column += m->tensor.nr_rows;
	}
}

void gpu_linear(struct backend *b, enum backend_slot src, const int *matrices,
		const int *biases, uint32_t nr, bool add, enum backend_slot dst)
{
	struct gpu_backend *gpu = to_gpu(b);
	const struct gpu_input *input = src == SLOT_H ? &gpu->h :
					src == SLOT_A ? &gpu->a :
							&gpu->f;

	for (uint32_t i = 0; i < GPU_NR_BIASES; i++)
		gpu->biases[i] = dst == SLOT_QKV && biases && i < nr ?
					 biases[i] :
					 BACKEND_NONE;
	products(gpu, input, matrices, nr, dst == SLOT_QKV ? gpu->qkv : gpu->y);
	gpu->has_branch = add;
}

void gpu_rope_append(struct backend *b, int q_norm, int k_norm, float eps,
		     uint32_t rope, uint32_t stream, uint32_t layer)
{
	struct gpu_backend *gpu = to_gpu(b);
	const struct backend_shape *s = &gpu->shape;
	const struct attn_layout *l = &s->layouts[stream];
	uint32_t nr_heads = s->n_q_heads + 2 * s->n_kv_heads;
	struct gpu_rope_params p = {
		.qkv = floats(gpu->qkv),
		.q_bias = vector(gpu, gpu->biases[0]),
		.k_bias = vector(gpu, gpu->biases[1]),
		.v_bias = vector(gpu, gpu->biases[2]),
		.q_norm = vector(gpu, q_norm),
		.k_norm = vector(gpu, k_norm),
		.cos_sin = floats(gpu->cos_sin[rope].addr),
		.positions = (const void *)(uintptr_t)gpu->positions,
		.tiles =
			(uint8_t *const *)(uintptr_t)gpu->plans[stream].tiles_at,
		.q = (void *)(uintptr_t)gpu->q,
		.k_offset = layer * l->layer_bytes,
		.v_offset = layer * l->layer_bytes + l->v_offset_bytes,
		.head_bytes = l->head_bytes,
		.nr_q = s->n_q_heads,
		.nr_kv = s->n_kv_heads,
		.head_dim = s->head_dim,
		.nr_rot = s->ropes[rope].nr_rot,
		.is_neox = s->ropes[rope].neox,
		.tile_tokens = l->tile_tokens,
		.eps = eps,
	};
	struct gpu_grid grid = {
		.x = gpu->batch.nr_rows,
		.y = (nr_heads + GPU_ROPE_WARPS - 1) / GPU_ROPE_WARPS,
		.z = 1,
		.threads = 32 * GPU_ROPE_WARPS,
	};

	gpu_launch(gpu, gpu->kernels.rope_append, &grid, &p);
}

void gpu_attention(struct backend *b, uint32_t stream, uint32_t layer,
		   float scale)
{
	gpu_attend(to_gpu(b), stream, layer, scale);
}

void gpu_gated(struct backend *b, enum backend_slot src, int gate, int up,
	       enum backend_act act)
{
	struct gpu_backend *gpu = to_gpu(b);
	uint32_t n_ff = gpu->shape.n_ff;
	const int matrices[] = { gate, up };
	struct gpu_gate_params p = {
		.gate = floats(gpu->gate_up),
		.up = floats(gpu->gate_up) + n_ff,
		.out = (void *)(uintptr_t)gpu->f.rows,
		.nr_rows = gpu->batch.nr_rows,
		.nr_cols = n_ff,
		.in_stride = 2 * n_ff,
		.kind = act == BACKEND_SILU ? GPU_GATE_SILU :
					      GPU_GATE_GELU_TANH,
	};
	struct gpu_grid grid =
		spread(gpu, (uint64_t)gpu->batch.nr_rows * n_ff / 2);

	(void)src; /* SLOT_H */
	products(gpu, &gpu->h, matrices, 2, gpu->gate_up);
	gpu_launch(gpu, gpu->kernels.gate, &grid, &p);
}

void gpu_logits(struct backend *b, int norm_vector, float eps, int matrix,
		float softcap)
{
	struct gpu_backend *gpu = to_gpu(b);
	uint32_t nr = gpu->batch.nr_out;
	uint64_t nr_values = (uint64_t)nr * gpu->logits_stride;

	if (!nr)
		return;
	norm_rows(gpu, norm_vector, eps, nr, gpu->out_rows, gpu->out.rows);
	gpu_matmul(gpu, &gpu->out, nr, &gpu->matrices[matrix], gpu->logits.addr,
		   gpu->logits_stride);
	if (softcap > 0) {
		struct gpu_softcap_params p = {
			.x = floats(gpu->logits.addr),
			.nr = nr_values,
			.cap = softcap,
		};
		struct gpu_grid grid = spread(gpu, nr_values);

		gpu_launch(gpu, gpu->kernels.softcap, &grid, &p);
	}
	if (gpu->is_bucketed)
		gpu_graph_end(gpu);
}

void gpu_fetch_logits(struct gpu_backend *gpu, uint32_t i)
{
	uint64_t at = (uint64_t)i * gpu->logits_stride;

	if (gpu->is_fetched[i])
		return;
	gpu->is_fetched[i] = 1;
	gpu_note(gpu, gpu->driver->MemcpyDtoHAsync(
			      gpu->host_logits + at,
			      gpu->logits.addr + at * sizeof(float),
			      gpu->shape.n_vocab * sizeof(float), gpu->stream));
}

/* Most steps' logits nobody asks for: they are fetched when somebody does. */
const float *gpu_logits_row(struct backend *b, uint32_t i)
{
	struct gpu_backend *gpu = to_gpu(b);

	if (!gpu->is_fetched[i]) {
		if (gpu_enter(gpu))
			return NULL;
		gpu_fetch_logits(gpu, i);
		gpu_note(gpu, gpu_base(gpu)->StreamSynchronize(gpu->stream));
		gpu_leave(gpu);
	}
	return gpu->error ? NULL :
			    gpu->host_logits + (size_t)i * gpu->logits_stride;
}

int gpu_submit(struct backend *b)
{
	struct gpu_backend *gpu = to_gpu(b);

	if (!gpu->error)
		gpu_note(gpu, gpu_base(gpu)->EventRecord(gpu->step->done,
							 gpu->stream));
	/* Waited for after a failure: what was launched reads the step's inputs. */
	if (gpu->error)
		(void)gpu_base(gpu)->StreamSynchronize(gpu->stream);
	gpu_leave(gpu);
	if (gpu->error)
		return gpu->error;
	gpu->nr_started++;
	gpu->step = gpu->step == gpu->steps ? gpu->steps + 1 : gpu->steps;
	return 0;
}

int gpu_wait(struct backend *b)
{
	struct gpu_backend *gpu = to_gpu(b);
	/* Of two, the one that is next again. */
	struct gpu_step *step = gpu->nr_started == BACKEND_MAX_STARTED ?
					gpu->step :
					gpu->steps + (gpu->step == gpu->steps);
	int rc = gpu_enter(gpu);

	gpu->nr_started--;
	if (!rc) {
		rc = gpu_errno(gpu->driver->EventSynchronize(step->done));
		gpu_leave(gpu);
	}
	if (rc)
		gpu->error = rc;
	else
		gpu_take_samples(gpu, step);
	return rc;
}
