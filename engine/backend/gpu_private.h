/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the GPU backend: creation (gpu.c), weights (gpu_weights.c), memory
 * of activations and of a step's inputs (gpu_buffers.c), the table's calls
 * (gpu_record.c), matrices (gpu_linear.c), attention (gpu_plan.c, gpu_attn.c) and
 * drawing tokens (gpu_sample.c).
 *
 * A step is put on one stream as it is recorded, so the device works while the
 * host still records, or runs the step before; wait() waits for its event and draws tokens on
 * the host that the device did not. What the host writes for a step and reads of it is there
 * twice; memory of the device once: the stream keeps its uses apart. The
 * residual and what matrices put out are float32, what they take in is bf16.
 * Driver thread throughout.
 */
#ifndef TARN_ENGINE_BACKEND_GPU_PRIVATE_H
#define TARN_ENGINE_BACKEND_GPU_PRIVATE_H

#include "engine/backend/backend.h"
#include "engine/backend/gpu_driver.h"
#include "engine/backend/threads.h"
#include "kernels/cuda/layer_params.h"
#include "kernels/cuda/linear_pack.h"

enum {
	GPU_NR_FORMATS = 7, /* of packed weights, bf16 the first */
	GPU_NR_FLAT = 4, /* instances of a format: 8, 16, 32 and 64 tokens */
	GPU_NR_LARGE = 2, /* 128 and 256 tokens, bf16 alone */
	GPU_NR_BOXES = GPU_NR_FLAT + GPU_NR_LARGE,
	GPU_NR_HEADS = 3, /* head sizes attention has instances for */
	GPU_MAX_JOINED = 3,
	GPU_NR_BIASES = 3, /* q, k, v */
	/* Query rows of a unit of a plan. */
	GPU_UNIT_ROWS = GPU_ATTN_PREFILL_ROWS,
};

/* In gpu_plan.seq_of_row. */
#define GPU_LONE 0x80000000u
#define GPU_NOT_LONE UINT32_MAX

/* Growing memory of the device. */
struct gpu_mem {
	cuda_addr addr;
	uint64_t bytes;
};

/* Of one tensor of the file, or of several that are multiplied together. */
struct gpu_matrix {
	struct backend_tensor
		tensor; /* name, data: valid until load() returned */
	uint8_t format; /* index: of the packed weights */
	uint8_t nr_joined; /* parts, the tensor's own included; 0: part of another */
	int joined[GPU_MAX_JOINED]; /* ids, the own one first */
	uint32_t nr_rows; /* of all parts */
	uint64_t packed_bytes;
	cuda_addr packed; /* 0: not multiplied with */
	cuda_addr table; /* rows as in the file, or float32; 0: nothing is looked up */
	enum gpu_embed_type table_type;
	uint64_t row_bytes; /* of the table */
};

struct gpu_vector {
	struct backend_tensor tensor;
	cuda_addr values; /* float32 */
};

/* What a linear layer reads: bf16 rows, and maps of them for each instance's tile of tokens. */
struct gpu_input {
	cuda_addr rows;
	uint32_t nr_cols;
	struct gpu_attn_tensor_map maps[GPU_NR_BOXES];
};

/* Functions of the images. */
struct gpu_kernels {
	gpu_function flat[GPU_NR_FORMATS][GPU_NR_FLAT];
	gpu_function large[GPU_NR_LARGE];
	gpu_function sums;
	gpu_function embed, rms_norm, rope_append, gate, softcap;
	gpu_function attend[GPU_NR_HEADS][2]; /* 16 and 64 pairs a CTA */
	gpu_function merge, decode, prefill;
	gpu_function sample;
};

enum {
	GPU_MAX_GRAPHS = 64,
	/* A step's arrays, and what else a recorded step depends on. */
	GPU_MAX_PARTS = 4 + BACKEND_MAX_STREAMS * 10,
	GPU_KEY_WORDS = GPU_MAX_PARTS + 4 + BACKEND_MAX_STREAMS * 3,
};

/* A decode step that was recorded: replayed for every step of the same sizes. */
struct gpu_recorded {
	uint64_t key[GPU_KEY_WORDS];
	gpu_graph_exec exec; /* NULL: a free place */
	uint64_t used; /* number of the last step that it ran */
};

enum gpu_mode {
	GPU_DIRECT, /* launches go to the stream */
	GPU_CAPTURE, /* they are recorded */
	GPU_REPLAY, /* they were: nothing is launched */
};

/* Growing memory of the host. */
struct gpu_host_array {
	void *data;
	uint32_t nr, capacity; /* elements */
};

/* A stream's plan, sorted by who computes what (gpu_plan.c), and where it lies on the device. */
struct gpu_plan {
	struct gpu_host_array any_units, any_merges; /* of attn_any */
	struct gpu_host_array splits; /* of attn_decode */
	struct gpu_host_array seqs, runs; /* of attn_prefill */
	struct gpu_host_array fast_pieces; /* of both */
	uint32_t max_unit_rows; /* of any_units */
	uint32_t *seq_of_row,
		*first_partial; /* [max_rows] rows that decode by themselves */
	uint32_t nr_lone, nr_partials;
	uint32_t slot_room, partial_room; /* in gpu_backend.partials */
	cuda_addr counts_at;
	struct gpu_attn_counts counts;
	cuda_addr units_at, merges_at, rows_at, pieces_at;
	cuda_addr splits_at, seqs_at, runs_at, fast_pieces_at;
	cuda_addr tiles_at; /* of the batch's rows */
	/* One map over the pool for each kind of load. */
	struct gpu_attn_tensor_map decode_block, prefill_block, tile;
};

/* What the host and the device hand each other of one step, until it was waited for. */
struct gpu_step {
	uint8_t *staging; /* pinned: inputs */
	uint64_t staging_bytes;
	uint8_t *host_samples; /* pinned: rows, then results [max_rows] */
	struct backend_sample *samples; /* the engine's */
	uint32_t nr_samples, nr_device_samples;
	cuda_event done;
};

struct gpu_backend {
	struct backend base; /* first: struct backend * is cast to this */
	const struct gpu_driver *driver;
	struct threads *threads; /* pack weights, draw tokens */
	int device;
	cuda_context
		context; /* the primary one, retained; pushed in every call */
	cuda_stream stream;
	uint32_t nr_sms;
	char name[128];
	gpu_module *modules;
	size_t nr_modules;
	struct gpu_kernels kernels;

	struct gpu_matrix *matrices;
	uint32_t nr_matrices;
	struct gpu_vector *vectors;
	uint32_t nr_vectors;
	uint64_t weight_bytes;

	struct backend_shape shape;
	uint32_t head_index;
	bool has_fast_attn; /* attn_decode and attn_prefill serve the shape */
	double *inv_freq[BACKEND_MAX_ROPES];
	uint32_t nr_positions; /* that the tables of cos and sin have */
	struct gpu_mem cos_sin[BACKEND_MAX_ROPES];
	struct gpu_mem arena; /* activations */
	cuda_addr x, y, qkv, q, gate_up; /* float32, but q: bf16 */
	struct gpu_input h, a, f, out;
	struct gpu_mem out_mem, logits, sums, partials, totals, scratch;
	struct gpu_mem arrivals, queue; /* counters, zero between launches */
	struct gpu_attn_tensor_map q_map;
	uint32_t out_capacity; /* rows of OUT and LOGITS */
	bool has_branch; /* y waits to be added to x */
	int biases[GPU_NR_BIASES]; /* of q, k and v, which rope_append() adds */

	struct gpu_step steps[BACKEND_MAX_STARTED];
	struct gpu_step *step; /* recorded now, or next */
	uint32_t nr_started;
	struct gpu_mem inputs; /* of a step */
	float *host_logits; /* pinned [out_capacity][logits_stride] */
	uint8_t *is_fetched; /* [out_capacity] rows of host_logits that are this step's */
	uint32_t logits_stride; /* floats */

	void **sample_scratch; /* [threads] */
	struct work_share *sample_share;
	struct gpu_mem
		samples_mem; /* rows of the kernel, then results, as in gpu_step */
	cuda_addr results; /* there: those of the last step, whose tokens the next one takes */

	/* gpu_graph.c */
	enum gpu_mode mode;
	bool is_bucketed; /* arrays have room by powers of two: the step may be recorded */
	bool no_graphs;
	uint64_t generation; /* of the memory's addresses */
	uint64_t nr_steps;
	uint64_t key[GPU_KEY_WORDS], last_key[GPU_KEY_WORDS];
	struct gpu_recorded graphs[GPU_MAX_GRAPHS];

	struct backend_batch batch;
	cuda_addr tokens, positions, out_rows;
	struct gpu_plan plans[BACKEND_MAX_STREAMS];
	int error; /* first failure while recording */
};

static inline struct gpu_backend *to_gpu(struct backend *b)
{
	return (struct gpu_backend *)b;
}

static inline uint32_t gpu_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline const struct cuda_driver *gpu_base(const struct gpu_backend *gpu)
{
	return gpu->driver->base;
}

/* gpu.c: 0, -ENOMEM or -EIO: what a step may answer. */
int gpu_errno(cuda_status status);
/* The context is current between the two. */
int gpu_enter(struct gpu_backend *gpu);
void gpu_leave(struct gpu_backend *gpu);
/* Keep the first failure of a recorded step. */
void gpu_note(struct gpu_backend *gpu, cuda_status status);
/*
 * Launch @function; @params is a struct of the kernel's own. What fails is noted. The kernel may
 * start while the one in front of it runs: it calls grid_wait() before it touches what others
 * write or read.
 */
struct gpu_grid {
	uint32_t x, y, z, threads, smem_bytes;
	uint32_t cluster; /* 0: none */
	bool is_after_copy; /* does not wait by itself for what came before it */
};
void gpu_launch(struct gpu_backend *gpu, gpu_function function,
		const struct gpu_grid *grid, void *params);

/* gpu_weights.c; contracts of the table's calls: backend.h */
int gpu_add_matrix(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen);
int gpu_add_vector(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen);
void gpu_join(struct backend *b, const int *matrices, uint32_t nr);
int gpu_load(struct backend *b, int (*progress)(void *arg, double fraction),
	     void *arg, uint8_t out_digest[BACKEND_DIGEST_BYTES]);
void gpu_weights_free(struct gpu_backend *gpu);

/* gpu_buffers.c */
int gpu_prepare(struct backend *b, const struct backend_shape *shape, char *err,
		size_t errlen);
/* At least @bytes; what it held is lost when it grows. Return: 0, -ENOMEM, -EIO. */
int gpu_reserve(struct gpu_backend *gpu, struct gpu_mem *mem, uint64_t bytes);
int gpu_reserve_out(struct gpu_backend *gpu, uint32_t rows);
int gpu_reserve_positions(struct gpu_backend *gpu, uint32_t nr);
/* A map of bf16 under the 128-byte swizzle. Return: 0, -EIO. */
int gpu_encode_map(struct gpu_backend *gpu, struct gpu_attn_tensor_map *out,
		   cuda_addr base, uint32_t rank, const uint64_t *dims,
		   const uint64_t *strides, const uint32_t *box);
/* Copy the batch to the device: arrays of tokens, and the plans. Enqueued on the stream. */
int gpu_stage_batch(struct gpu_backend *gpu);
void gpu_buffers_free(struct gpu_backend *gpu);

/* gpu_record.c; contracts in backend.h */
int gpu_begin(struct backend *b, const struct backend_batch *batch);
void gpu_embed(struct backend *b, int matrix, float scale);
void gpu_norm(struct backend *b, enum backend_slot src, int vector, float eps,
	      bool add, enum backend_slot dst);
void gpu_linear(struct backend *b, enum backend_slot src, const int *matrices,
		const int *biases, uint32_t nr, bool add,
		enum backend_slot dst);
void gpu_rope_append(struct backend *b, int q_norm, int k_norm, float eps,
		     uint32_t rope, uint32_t stream, uint32_t layer);
void gpu_attention(struct backend *b, uint32_t stream, uint32_t layer,
		   float scale);
void gpu_gated(struct backend *b, enum backend_slot src, int gate, int up,
	       enum backend_act act);
void gpu_logits(struct backend *b, int norm_vector, float eps, int matrix,
		float softcap);
void gpu_sample(struct backend *b, struct backend_sample *samples, uint32_t nr);
int gpu_submit(struct backend *b);
int gpu_wait(struct backend *b);
const float *gpu_logits_row(struct backend *b, uint32_t i);

/* gpu_linear.c: out [nr_rows][out_stride] float32 = rows of @input times @matrix */
void gpu_matmul(struct gpu_backend *gpu, const struct gpu_input *input,
		uint32_t nr_rows, const struct gpu_matrix *matrix,
		cuda_addr out, uint32_t out_stride);
/* The index of the packed format of a file's type; types without kernels are taken as bf16. */
uint32_t gpu_format_of(uint32_t type);
enum gpu_linear_type gpu_format_type(uint32_t format);
/* Tokens of a box of gpu_input.maps. */
uint32_t gpu_box_tokens(uint32_t box);
int gpu_kernels_load(struct gpu_backend *gpu, char *err, size_t errlen);

/* Row @i of the step's logits on its way to the host, on the stream; once a step. */
void gpu_fetch_logits(struct gpu_backend *gpu, uint32_t i);

/* gpu_graph.c */
/* Elements an array of the step has room for. */
uint32_t gpu_room(const struct gpu_backend *gpu, uint32_t nr);
/* Whether the step may be recorded; before its arrays are laid out. */
bool gpu_is_recordable(const struct gpu_backend *gpu);
/* Around what is recorded: from embed() to logits(). */
void gpu_graph_begin(struct gpu_backend *gpu);
void gpu_graph_end(struct gpu_backend *gpu);
void gpu_graph_free(struct gpu_backend *gpu);

/* gpu_sample.c */
bool gpu_keeps_token(const struct backend *b,
		     const struct backend_sample *sample);
/* Scratch of the host; then, inside, what the kernel reads and writes. Return: 0, -ENOMEM, -EIO. */
int gpu_sample_prepare(struct gpu_backend *gpu);
int gpu_sample_reserve(struct gpu_backend *gpu);
/* After the step: results of the device's rows, and the host's rows drawn. */
void gpu_take_samples(struct gpu_backend *gpu, const struct gpu_step *step);
void gpu_sample_free(struct gpu_backend *gpu);

/* gpu_plan.c: sort a stream's plan. Return: 0, -ENOMEM. */
int gpu_plan_split(struct gpu_backend *gpu, uint32_t stream);
void gpu_plan_free(struct gpu_plan *p);

/* gpu_attn.c */
int gpu_attn_prepare(struct gpu_backend *gpu);
void gpu_attend(struct gpu_backend *gpu, uint32_t stream, uint32_t layer,
		float scale);
int gpu_reserve_attn(struct gpu_backend *gpu);

#endif /* TARN_ENGINE_BACKEND_GPU_PRIVATE_H */
