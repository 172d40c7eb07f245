/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the CPU backend: creation (cpu.c), weights (cpu_weights.c), buffers
 * (cpu_buffers.c), recording of a step (cpu_record.c), its execution by all
 * threads (cpu_exec.c, cpu_linear.c).
 */
#ifndef TARN_ENGINE_BACKEND_CPU_PRIVATE_H
#define TARN_ENGINE_BACKEND_CPU_PRIVATE_H

#include "engine/backend/backend.h"
#include "engine/backend/threads.h"
#include "kernels/cpu/kernels_cpu.h"

enum {
	/*
	 * Batches of up to this many rows prepare a linear layer's input on each thread for
	 * itself: cheaper than a barrier.
	 */
	CPU_SMALL_ROWS = 4,
	CPU_MAX_LINEAR = 3,
	/*
	 * Larger batches are cut into panels of rows first: a kernel gathers a panel's activations
	 * once and runs many groups of weights against them.
	 */
	CPU_PANEL_ROWS = 64,
	CPU_UNPANELLED_ROWS = 8,
	/* Groups of 16 outputs that wait in GATED's scratch, at most. */
	CPU_GATE_GROUPS = 128,
};

struct cpu_matrix {
	struct packed_matrix packed; /* data set by load() */
	struct backend_tensor
		tensor; /* of the file; name and data valid until load() returned */
	uint64_t offset_bytes; /* in the arena */
};

struct cpu_vector {
	struct backend_tensor tensor;
	float *values;
};

/* An activation: float rows, and the quantised form where a consumer wants it. */
struct cpu_slot {
	float *f; /* [max_rows][width], 64-byte aligned rows */
	size_t stride; /* floats */
	uint32_t width;
	struct act_q8 q; /* q.q NULL where never wanted */
};

enum cpu_op_kind {
	CPU_OP_TABLES,
	CPU_OP_EMBED,
	CPU_OP_NORM,
	CPU_OP_LINEAR,
	CPU_OP_ROPE_APPEND,
	CPU_OP_ATTEND,
	CPU_OP_MERGE,
	CPU_OP_GATED,
	CPU_OP_SOFTCAP,
	CPU_OP_SAMPLE,
};

struct cpu_op {
	enum cpu_op_kind kind;
	bool barrier; /* others read what it wrote */
	bool is_private; /* NORM: each thread for itself, into its own buffer */
	bool prepare; /* LINEAR, GATED: quantise the input first */
	bool add;
	uint32_t nr_rows;
	struct work_share *share; /* the op's units */
	struct work_share *
		prepare_share; /* rows to quantise; NULL: each thread all of them */
	enum backend_slot src, dst;
	const uint32_t *gather; /* NORM: rows of src to read, or NULL: the same */
	const struct cpu_matrix
		*mats[CPU_MAX_LINEAR]; /* EMBED: [0]; GATED: gate, up */
	const float *biases[CPU_MAX_LINEAR];
	uint32_t nr_mats;
	uint32_t nr_groups; /* LINEAR: of all matrices; GATED: of one */
	uint32_t nr_parts; /* the groups are cut into for each panel; 0: no panels */
	const float *w, *k_norm; /* NORM; ROPE_APPEND: q's and k's */
	float eps, scale;
	uint32_t rope, stream, layer;
	enum gate_kind gate;
	struct backend_sample *samples;
};

struct cpu_thread {
	float *f; /* private input rows [CPU_SMALL_ROWS][max width] */
	struct act_q8 q;
	int8_t *q_data;
	void *scratch; /* attention, gate or sampling */
};

struct cpu_backend {
	struct backend base; /* first: struct backend * is cast to this */
	const struct cpu_kernels *kernels;
	struct threads *threads;
	uint32_t nr_threads;
	bool precise;
	bool has_quantised; /* some matrix takes quantised input */
	char name[32];

	struct cpu_matrix *matrices;
	uint32_t nr_matrices;
	struct cpu_vector *vectors;
	uint32_t nr_vectors;
	uint8_t *arena; /* packed weights, read-only after load() */
	uint64_t arena_bytes;

	struct backend_shape shape;
	double *inv_freq[BACKEND_MAX_ROPES];
	float *cos_sin[BACKEND_MAX_ROPES]; /* [max_rows][nr_rot] */
	struct cpu_slot slots[BACKEND_NR_SLOTS];
	uint32_t out_capacity; /* rows of SLOT_OUT and SLOT_LOGITS */
	float *attn_slots; /* partial states */
	size_t attn_slot_capacity; /* floats */
	struct cpu_thread *per_thread; /* [nr_threads] */

	int32_t *drawn; /* [max_rows] tokens of the last step */
	struct backend_batch batch;
	struct backend_sample *samples;
	uint32_t nr_samples;
	struct cpu_op *ops;
	uint32_t nr_ops, op_capacity;
	uint8_t *shares; /* work_share structures of this step */
	size_t share_bytes; /* of one */
	uint32_t nr_shares, share_capacity;
	int error; /* first failure while recording: submit() returns it */
};

static inline struct cpu_backend *to_cpu(struct backend *b)
{
	return (struct cpu_backend *)b;
}

static inline bool cpu_is_float(uint32_t type)
{
	return type == PACK_F32 || type == PACK_F16 || type == PACK_BF16;
}

/* Whether a matrix of @type is multiplied with quantised input. */
static inline bool cpu_takes_q8(const struct cpu_backend *cpu, uint32_t type)
{
	return !cpu->precise && !cpu_is_float(type);
}

/* Groups of PACK_ROWS outputs, the last one perhaps not full. */
static inline uint32_t cpu_nr_groups(const struct cpu_matrix *m)
{
	return (m->packed.nr_rows + PACK_ROWS - 1) / PACK_ROWS;
}

/* The table's calls of the same names: contracts in backend.h. */

/* cpu_weights.c */
int cpu_add_matrix(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen);
int cpu_add_vector(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen);
int cpu_load(struct backend *b, int (*progress)(void *arg, double fraction),
	     void *arg, uint8_t out_digest[BACKEND_DIGEST_BYTES]);
void cpu_weights_free(struct cpu_backend *cpu);

/* cpu_buffers.c */
int cpu_prepare(struct backend *b, const struct backend_shape *shape, char *err,
		size_t errlen);
/* Room for @rows rows of logits, and for @nr_slots partial states of attention. */
int cpu_reserve_out(struct cpu_backend *cpu, uint32_t rows);
int cpu_reserve_attn_slots(struct cpu_backend *cpu, uint32_t nr_slots);
void cpu_buffers_free(struct cpu_backend *cpu);

/* cpu_record.c */
int cpu_begin(struct backend *b, const struct backend_batch *batch);
void cpu_embed(struct backend *b, int matrix, float scale);
void cpu_norm(struct backend *b, enum backend_slot src, int vector, float eps,
	      bool add, enum backend_slot dst);
void cpu_linear(struct backend *b, enum backend_slot src, const int *matrices,
		const int *biases, uint32_t nr, bool add,
		enum backend_slot dst);
void cpu_rope_append(struct backend *b, int q_norm, int k_norm, float eps,
		     uint32_t rope, uint32_t stream, uint32_t layer);
void cpu_attention(struct backend *b, uint32_t stream, uint32_t layer,
		   float scale);
void cpu_gated(struct backend *b, enum backend_slot src, int gate, int up,
	       enum backend_act act);
void cpu_logits(struct backend *b, int norm_vector, float eps, int matrix,
		float softcap);
void cpu_sample(struct backend *b, struct backend_sample *samples, uint32_t nr);
bool cpu_keeps_token(const struct backend *b,
		     const struct backend_sample *sample);
int cpu_submit(struct backend *b);
int cpu_wait(struct backend *b);

/* cpu_linear.c: this thread's part of a LINEAR or GATED operation. */
void cpu_exec_linear(struct cpu_backend *cpu, const struct cpu_op *op,
		     uint32_t thread);
void cpu_exec_gated(struct cpu_backend *cpu, const struct cpu_op *op,
		    uint32_t thread);

/* cpu_exec.c: run the recorded operations on every thread. */
void cpu_execute(struct cpu_backend *cpu);

#endif /* TARN_ENGINE_BACKEND_CPU_PRIVATE_H */
