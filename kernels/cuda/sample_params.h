/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of sample_rows (sample.cu), in the manner of launch_params.h: plain C, no CUDA
 * header. Rows and results lie in device memory, so that a recorded graph draws other tokens
 * each time.
 *
 * A row may ask for: greedy or a temperature, top_k up to GPU_SAMPLE_MAX_TOP_K and with it top_p,
 * min_p, banned tokens, a mask of those allowed, the token's log probability, the most likely ones,
 * a given token. Steps are taken in the usual order of engine/backend/sample.c: temperature, top_k,
 * top_p, min_p. For the host are rows that want another order of those they use, top_p without
 * top_k (its sum over the whole vocabulary ascends on the host), adjusted logits (biases,
 * penalties), typical_p, top_n_sigma, XTC or mirostat.
 */
#ifndef TARN_KERNELS_CUDA_SAMPLE_PARAMS_H
#define TARN_KERNELS_CUDA_SAMPLE_PARAMS_H

#include <stdint.h>

enum {
	GPU_SAMPLE_THREADS = 512,
	GPU_SAMPLE_MAX_VOCAB = 300000,
	GPU_SAMPLE_MAX_TOP = 20,
	GPU_SAMPLE_MAX_TOP_K = 256,
	GPU_SAMPLE_MAX_BANNED = 32,
	GPU_SAMPLE_MAX_CLUSTER = 8,
	/* Dynamic shared memory; the kernel asserts that its layout fits. Two CTAs share an SM. */
	GPU_SAMPLE_SMEM_BYTES = 93 * 1024,
};

struct gpu_sample_row {
	uint64_t seed;
	/*
	 * Bits by token id, [(n_vocab + 63) / 64], in device memory: no other is drawn; at least
	 * one is set that is not banned. NULL: all are allowed.
	 */
	const uint64_t *allowed;
	float temperature; /* 0: greedy */
	uint32_t top_k; /* 0: off */
	float top_p; /* 1: off; looked at where top_k is on */
	float min_p; /* 0: off */
	uint32_t choice;
	uint32_t position; /* of the token that is drawn */
	uint32_t logits_row; /* row of logits it is drawn from */
	uint32_t is_off; /* nothing is done, nothing written: a place of the batch left empty */
	uint32_t is_given; /* nothing is drawn: @token says whose log probability is wanted */
	int32_t token; /* with is_given: < n_vocab */
	uint32_t want_logprob;
	uint32_t nr_top; /* at most GPU_SAMPLE_MAX_TOP */
	uint32_t nr_banned; /* at most GPU_SAMPLE_MAX_BANNED */
	int32_t banned[GPU_SAMPLE_MAX_BANNED]; /* ids never drawn, each < n_vocab */
};

/* Log probabilities are of the model's own distribution, masks and bans left out. */
struct gpu_sample_result {
	int32_t token; /* drawn, or the given one */
	float logprob; /* written where wanted */
	uint32_t nr_top; /* the lesser of what was wanted and n_vocab */
	int32_t top_ids[GPU_SAMPLE_MAX_TOP]; /* most likely first */
	float top_logprobs[GPU_SAMPLE_MAX_TOP];
};

/*
 * sample_rows: cluster (c, 1, 1), c = gpu_sample_cluster() or any of 1, 2, 4, 8, which changes no
 * bit; grid (c, nr_rows); block and dynamic shared memory above. Row i of results from row i of
 * rows.
 */
struct gpu_sample_params {
	const float *logits; /* [row][stride], 16-byte aligned */
	const struct gpu_sample_row *rows; /* [nr_rows] */
	struct gpu_sample_result *results; /* [nr_rows] */
	uint32_t n_vocab; /* 1 to GPU_SAMPLE_MAX_VOCAB */
	uint32_t stride; /* elements, a multiple of 4, at least n_vocab */
};

/* CTAs of a row: as many as find room at once. */
static inline uint32_t gpu_sample_cluster(uint32_t nr_rows, uint32_t nr_sms)
{
	uint32_t size = GPU_SAMPLE_MAX_CLUSTER;

	while (size > 1 && nr_rows * size > 2 * nr_sms)
		size /= 2;
	return size;
}

#endif
