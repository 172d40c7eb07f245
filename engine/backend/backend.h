/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of operations a device offers to the engine. Coarse: one call is
 * one step of a layer for the whole batch, so that a device may fuse, reorder
 * and overlap what its bits allow.
 *
 * Weights are declared one by one, then loaded together. A step is recorded
 * between begin() and submit(): the calls between them describe work on named
 * activation slots; submit() starts it and wait() returns when results are there. A step may
 * be recorded and submitted while the one before is computed, and take tokens that the host does
 * not know yet from it. Activations live in the device in whatever format its numerics id says.
 *
 * Threads: one driver thread. Errors: -errno.
 */
#ifndef TARN_ENGINE_BACKEND_H
#define TARN_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/attn_plan.h"

enum {
	BACKEND_MAX_STREAMS = 2,
	BACKEND_MAX_ROPES = 2,
	BACKEND_MAX_TOP = 20,
	BACKEND_MAX_BANNED = 32,
	BACKEND_DIGEST_BYTES = 32, /* SHA-256 */
	/* Query rows a unit of an attention plan may have: enough to reuse each key well. */
	BACKEND_UNIT_ROWS = 32,
	BACKEND_NONE = -1, /* "no such vector" in the calls below */
	BACKEND_MAX_STARTED =
		2, /* steps that were submitted and not waited for */
};

/* Activations of a batch: rows of one step. */
enum backend_slot {
	SLOT_X, /* residual [M][n_embd] */
	SLOT_H, /* normed input of a linear layer [M][n_embd] */
	SLOT_QKV, /* [M][(n_q + 2 n_kv) * head_dim] */
	SLOT_A, /* attention's result [M][n_q * head_dim] */
	SLOT_Y, /* a branch's output before its norm [M][n_embd] */
	SLOT_F, /* gated hidden layer [M][n_ff] */
	SLOT_OUT, /* rows that want logits, gathered [nr_out][n_embd] */
	SLOT_LOGITS, /* [nr_out][n_vocab] */
	BACKEND_NR_SLOTS,
};

enum backend_act {
	BACKEND_SILU,
	BACKEND_GELU_TANH,
};

/* Sizes the device needs to know ahead. */
struct backend_shape {
	uint32_t n_embd, n_ff, n_vocab;
	uint32_t n_q_heads, n_kv_heads, head_dim;
	uint32_t max_rows; /* M at most */
	uint32_t nr_streams;
	struct attn_layout layouts[BACKEND_MAX_STREAMS];
	uint64_t kv_base; /* is_device: every tile lies a multiple of its stride behind it */
	uint32_t nr_ropes;
	struct backend_rope {
		double base;
		double pos_scale;
		uint32_t nr_rot;
		bool neox;
		const float *factors; /* [nr_rot / 2], or NULL; copied */
	} ropes[BACKEND_MAX_ROPES];
};

/* A tensor of the model file, still there until load() returned. */
struct backend_tensor {
	const char *name;
	uint32_t type; /* as GGUF numbers it */
	uint32_t nr_rows; /* outputs */
	uint32_t nr_cols; /* inputs; a vector has one row */
	const void *data;
	bool is_looked_up; /* a matrix whose rows embed() reads */
	bool is_multiplied; /* a matrix that some product takes */
};

/* One step's batch. Arrays stay the caller's and untouched until submit() returned. */
struct backend_batch {
	uint32_t nr_rows; /* M */
	/* [M] ids; ~i: what was drawn by sample i of the step before, which keeps_token(). */
	const int32_t *tokens;
	const uint32_t *positions; /* [M] */
	/* Where row r's K and V go: the tile of stream s that holds its position. */
	uint8_t *const *tiles[BACKEND_MAX_STREAMS]; /* [M] */
	struct attn_plan plans[BACKEND_MAX_STREAMS];
	uint32_t nr_out;
	const uint32_t *
		out_rows; /* [nr_out] rows whose logits are wanted, ascending */
};

/*
 * A change to one logit before anything else: x + bias, then divided by the repetition penalty
 * where positive and multiplied where not, then less the penalty. Every id at most once in a row.
 */
struct backend_adjust {
	int32_t id;
	float bias;
	float repetition; /* 1: none */
	float penalty;
};

/* Steps between the changed logits and the race, each off by its own value. */
enum backend_sampler {
	BACKEND_TOP_N_SIGMA,
	BACKEND_TEMPERATURE,
	BACKEND_TOP_K,
	BACKEND_TYPICAL_P,
	BACKEND_TOP_P,
	BACKEND_MIN_P,
	BACKEND_XTC,
	BACKEND_NR_SAMPLERS,
};

/* One row of SLOT_LOGITS to draw a token from. */
struct backend_sample {
	/* in */
	float temperature; /* 0: greedy */
	uint32_t top_k; /* 0: off */
	float top_p; /* 1: off */
	float min_p; /* 0: off */
	float typical_p; /* 0 or 1: off */
	float top_n_sigma; /* 0: off */
	float xtc_probability; /* 0: off */
	float xtc_threshold;
	float mirostat_tau; /* 0: off; else it stands for all steps but the temperature */
	float mirostat_eta;
	/* Steps in the order they are taken, each once; none: that of the enum. */
	uint8_t order[BACKEND_NR_SAMPLERS];
	uint32_t nr_order;
	const struct backend_adjust *adjust; /* [nr_adjust] */
	uint32_t nr_adjust;
	uint64_t seed;
	uint32_t choice;
	uint32_t position; /* of the token that is drawn */
	bool want_logprob;
	bool is_given; /* nothing is drawn: @token says whose log probability is wanted */
	uint32_t nr_top;
	const int32_t *banned; /* ids never drawn */
	uint32_t nr_banned; /* at most BACKEND_MAX_BANNED */
	/*
	 * Bits by token id, [(n_vocab + 63) / 64]: no other is drawn; at least one is set that is
	 * not banned. NULL: all are allowed. Log probabilities are the model's all the same.
	 */
	const uint64_t *allowed;
	/* in and out */
	double mirostat_mu; /* bits of surprise allowed; 2 tau at first */
	/* out */
	int32_t token; /* with is_given: in */
	float logprob;
	int32_t top_ids[BACKEND_MAX_TOP];
	float top_logprobs[BACKEND_MAX_TOP];
};

struct backend;

struct backend_ops {
	/* ---- once ---- */

	/*
	 * Declare weights. *out_id names them in later calls. -ENOTSUP for a type or shape the
	 * device has no kernel for, with @err naming the tensor.
	 */
	int (*add_matrix)(struct backend *b, const struct backend_tensor *t,
			  int *out_id, char *err, size_t errlen);
	int (*add_vector)(struct backend *b, const struct backend_tensor *t,
			  int *out_id, char *err, size_t errlen);
	/*
	 * Matrices that are always multiplied with one input together, by one call of linear() or
	 * gated() in this order: a device may keep them as one. Before load(). NULL: it has no use
	 * for that.
	 */
	void (*join)(struct backend *b, const int *matrices, uint32_t nr);
	/*
	 * Bring all declared weights into place. @progress as in engine.h, may be NULL;
	 * @out_digest: SHA-256 over the SHA-256 of each tensor's bytes as in the file: first
	 * vectors, then matrices, in order of declaration. -ECANCELED by @progress, -ENOMEM.
	 */
	int (*load)(struct backend *b,
		    int (*progress)(void *arg, double fraction), void *arg,
		    uint8_t out_digest[BACKEND_DIGEST_BYTES]);
	/* Bytes of packed weights. */
	uint64_t (*weight_bytes)(const struct backend *b);
	/*
	 * Make room for batches of @shape; called once, after load(). -ENOTSUP for a shape without
	 * kernels, with @err naming it.
	 */
	int (*prepare)(struct backend *b, const struct backend_shape *shape,
		       char *err, size_t errlen);
	void (*destroy)(struct backend *b);

	/*
	 * ---- a step: recorded, then computed by submit() ----
	 * Calls between the two cannot fail by themselves: what goes wrong in them (-ENOMEM)
	 * submit() returns, having computed nothing.
	 */

	int (*begin)(struct backend *b, const struct backend_batch *batch);
	/* X = rows of @matrix by token, times @scale */
	void (*embed)(struct backend *b, int matrix, float scale);
	/* dst = rms_norm(src) * w, to SLOT_H; @add: dst += that, to SLOT_X */
	void (*norm)(struct backend *b, enum backend_slot src, int vector,
		     float eps, bool add, enum backend_slot dst);
	/*
	 * dst columns [0, N0), [N0, N0 + N1), ... = src times each matrix (+ bias vectors, or
	 * BACKEND_NONE); @add: dst += (one matrix).
	 */
	void (*linear)(struct backend *b, enum backend_slot src,
		       const int *matrices, const int *biases, uint32_t nr,
		       bool add, enum backend_slot dst);
	/*
	 * Of QKV: norm of each q and k head (@q_norm, @k_norm or BACKEND_NONE), rotation by @rope,
	 * then K and V into the tiles of @stream.
	 */
	void (*rope_append)(struct backend *b, int q_norm, int k_norm,
			    float eps, uint32_t rope, uint32_t stream,
			    uint32_t layer);
	/* A = attention of QKV's queries over the plan of @stream */
	void (*attention)(struct backend *b, uint32_t stream, uint32_t layer,
			  float scale);
	/* F = act(src * gate) * (src * up) */
	void (*gated)(struct backend *b, enum backend_slot src, int gate,
		      int up, enum backend_act act);
	/* OUT = rms_norm of the wanted rows of X; LOGITS = OUT * matrix, soft cap if not 0 */
	void (*logits)(struct backend *b, int norm_vector, float eps,
		       int matrix, float softcap);
	/* Draw from the rows of LOGITS, samples[i] from row i. */
	void (*sample)(struct backend *b, struct backend_sample *samples,
		       uint32_t nr);
	/*
	 * Whether the token of such a sample stays where the next step finds it, and no step that
	 * is recorded behind this one harms it.
	 */
	bool (*keeps_token)(const struct backend *b,
			    const struct backend_sample *sample);
	/*
	 * Start what was recorded; at most BACKEND_MAX_STARTED, and behind one whose samples do
	 * not all keep their tokens none. Return: 0; -ENOMEM, -EIO (the device is lost): nothing
	 * of it is or will be computed.
	 */
	int (*submit)(struct backend *b);
	/*
	 * Until the oldest step that was submitted and not waited for is computed, its samples
	 * filled in. Return: 0, -ENOMEM, -EIO.
	 */
	int (*wait)(struct backend *b);
	/*
	 * Row @i of LOGITS of the step that was waited for last, in host memory, float [n_vocab];
	 * valid until the next begin(). NULL: the device failed.
	 */
	const float *(*logits_row)(struct backend *b, uint32_t i);
	/* The stream that steps run on, a CUstream; NULL where the CPU computes. */
	void *(*stream)(struct backend *b);
};

struct backend {
	const struct backend_ops *ops;
	const char *name; /* "cpu (avx512)" */
	/* What decides bits besides the model: part of the numerics id. */
	const char *numerics;
	enum attn_elem kv_elem;
	uint32_t nr_threads; /* of the host that compute */
	uint32_t unit_rows; /* query rows a unit of its plans may have */
	/* KV lies in memory of GPU number @device, K and V both [T][head_dim] in their runs. */
	bool is_device;
	uint32_t device;
};

struct backend_options {
	uint32_t nr_threads;
	bool precise;
	uint32_t device; /* the GPU's ordinal */
};

/* Return: 0, -EINVAL (threads), -ENOMEM. */
int backend_cpu_create(const struct backend_options *options,
		       struct backend **out_backend);
/*
 * The NVIDIA GPU. Return: 0; with @err saying what is missing: -ENODEV (no driver, no such GPU, one
 * of another kind, a build without its kernels), -EOPNOTSUPP (a driver that is too old); -EINVAL
 * (threads), -ENOMEM, -EIO.
 */
int backend_gpu_create(const struct backend_options *options,
		       struct backend **out_backend, char *err, size_t errlen);
/* Whether to try: a GPU that KV memory can lie on, and a build with its kernels. */
bool backend_gpu_is_there(uint32_t device);

#endif /* TARN_ENGINE_BACKEND_H */
